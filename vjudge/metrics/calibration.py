"""Calibration: what a judge's score means in human scores, and a map from one to the other judged on other items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, stats

from vjudge.metrics._bootstrap import Floats, Weights
from vjudge.metrics._tables import Column, aligned, check_options, design_of, group_codes, tabulate, warn

ERRORS = ("bias", "mae", "rmse", "exact")


def calibration_curve(
    judge: Column, human: Column, *, bins: int | None = None, groups: Column | None = None, confidence: float = 0.95
) -> pd.DataFrame:
    """The mean human score at each score of the judge: on the diagonal, a score means what it says.

    Args:
        judge, human: scores of n items, NaN where missing.
        bins: None makes a row of every distinct score of the judge; a number cuts continuous scores into that many bins
            with about equal counts (fewer where scores tie).
        groups: whose items may depend on each other. confidence: coverage of the intervals, in (0, 1).

    Returns:
        One row a bin, lowest first: judge (its mean score), human (mean human score), low, high (Student's t), gap
        (human - judge), n, share. The interval is NaN, with a warning, in a bin of one item, group or human score.
        `attrs` has method and missing.

    Source: reliability diagrams as in Niculescu-Mizil and Caruana, ICML 2005, of scores instead of probabilities.

    >>> calibration_curve([1, 1, 2, 2], [1, 2, 3, 4])[["judge", "human", "gap", "n"]].values.tolist()
    [[1.0, 1.5, 0.5, 2.0], [2.0, 3.5, 1.5, 2.0]]
    """
    check_options(confidence=confidence)
    x, y, used = aligned(judge=judge, human=human, groups=groups)
    if bins is not None and bins < 1:
        raise ValueError(f"bins must be at least 1, not {bins}")
    frame = pd.DataFrame({"judge": x[used], "human": y[used], "unit": group_codes(groups, used)})
    frame["bin"] = frame["judge"]
    if bins is not None and len(frame):
        edges = np.unique(np.quantile(frame["judge"], np.linspace(0, 1, bins + 1))[1:-1])
        frame["bin"] = np.searchsorted(edges, frame["judge"], side="right")
    rows = []
    for _, part in frame.groupby("bin"):
        at, mean, n = part["judge"].mean(), part["human"].mean(), len(part)
        totals = (part["human"] - mean).groupby(part["unit"]).sum()
        half, units = np.nan, len(totals)
        if units > 1 and np.ptp(part["human"]) > 0:
            error = np.sqrt(totals @ totals * units / (units - 1)) / n
            half = stats.t.ppf((1 + confidence) / 2, units - 1) * error
        rows.append([at, mean, mean - half, mean + half, mean - at, n, n / len(frame)])
    table = pd.DataFrame(rows, columns=["judge", "human", "low", "high", "gap", "n", "share"]).astype({"n": int})
    if table.empty:
        warn("there is no item with both scores")
    if alone := int(table["low"].isna().sum()):
        what = "of one item or group, or of one human score: give bins=, or more items"
        warn(f"intervals are undefined in {alone} of {len(table)} bins ({what})")
    unit = "items" if groups is None else "groups"
    method = f"{confidence:.0%} intervals by Student's t over {unit}; {len(frame)} items"
    table.attrs = {"method": method, "missing": int((~used).sum())}
    return table


def calibrate(judge: Column, human: Column, *, groups: Column | None = None, seed: int = 0) -> pd.Series:
    """Map a judge's scores to human scores, each item by an isotonic map fitted on the other half of the items.

    Args:
        judge, human: scores of n items, NaN where missing. seed: of the split.
        groups: whole groups go to one half, so that no item is mapped by its neighbours; None splits items.

    Returns:
        n calibrated scores, NaN where either score is missing, and throughout, with a warning, of fewer than four items
        or two groups; index of `judge` if it is a Series. `attrs` has method and missing.

    Source: Barlow et al., Statistical Inference under Order Restrictions (1972), by `scipy.optimize`.

    >>> judge, human = [1, 2, 3, 4, 5] * 4, [2, 3, 4, 5, 5] * 4
    >>> [round(float(score), 2) for score in calibrate(judge, human)[:3]]
    [2.0, 3.0, 4.0]
    """
    x, y, used = aligned(judge=judge, human=human, groups=groups)
    codes, mapped, second = group_codes(groups, used), np.full(len(x), np.nan), np.zeros(len(x), dtype=bool)
    if (n := int(used.sum())) < 4 or (units := int(codes.max()) + 1) < 2:
        warn(f"calibration is undefined: {n} items in {len(set(codes))} units can't be halved")
    else:
        second[used] = np.random.default_rng(seed).permutation(units)[codes] >= units // 2
        for fit, rest in ((used & second, used & ~second), (used & ~second, used & second)):
            level, at, counts = np.unique(x[fit], return_inverse=True, return_counts=True)
            fitted = optimize.isotonic_regression(np.bincount(at, weights=y[fit]) / counts, weights=counts).x
            mapped[rest] = np.interp(x[rest], level, fitted)
    result = pd.Series(mapped, index=judge.index if isinstance(judge, pd.Series) else None, name="calibrated")
    result.attrs = {"method": f"isotonic, cross-fitted on halves, seed {seed}", "missing": int((~used).sum())}
    return result


def calibration_errors(
    judge: Column,
    human: Column,
    *,
    groups: Column | None = None,
    n_resamples: int = 2_000,
    seed: int = 0,
    **options: Any,
) -> pd.DataFrame:
    """How far a judge's scores are from human scores, raw and after the cross-fitted map of `calibrate`.

    Args:
        judge, human, groups: see `calibrate`. n_resamples, seed, options: confidence, see `correlate`.

    Returns:
        Rows (map, error): raw, isotonic, and reduction: how much smaller the error is after the map (exact: how much
        larger; bias: in absolute value); bias (mean of score - human), mae, rmse, exact (share of items whose rounded
        score is the human one). Columns as `correlate`.

    Source: Hastie, Tibshirani and Friedman, The Elements of Statistical Learning (2009), section 7.10.

    >>> table = calibration_errors([2, 3, 4, 5] * 5, [1, 2, 3, 4] * 5, n_resamples=0)
    >>> table["estimate"].round(2).loc[:, "mae"].to_dict()
    {'raw': 1.0, 'isotonic': 0.0, 'reduction': 1.0}
    """
    x, y, used = aligned(judge=judge, human=human, groups=groups)
    mapped = np.stack([x, calibrate(judge, human, groups=groups, seed=seed).to_numpy()])[:, used]
    y = y[used]
    miss, hit = mapped - y, np.where(np.isnan(mapped), np.nan, np.rint(mapped) == y)

    def statistic(w: Weights) -> Floats:
        n = w.sum(axis=0)
        errors = np.stack([miss @ w / n, np.abs(miss) @ w / n, np.sqrt(miss**2 @ w / n), hit @ w / n], axis=1)
        raw, mapped = np.abs(errors) * np.array([1, 1, 1, -1])[:, None]
        return np.concatenate([*errors, raw - mapped])

    return tabulate(
        statistic,
        [(name, error) for name in ("raw", "isotonic", "reduction") for error in ERRORS],
        design_of(np.arange(len(y)), groups, used),
        method=[*(2 * ["t", "t", "t", "logit"]), *(4 * ["t"])],
        index=["map", "error"],
        why="too few items",
        n_resamples=n_resamples,
        seed=seed,
        **options,
    )
