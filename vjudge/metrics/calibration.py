"""Calibration: what a judge's score means in human scores, and maps from one to the other judged on other items."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, stats

from vjudge.metrics._bootstrap import Design, Floats
from vjudge.metrics._tables import Labels, Scores, aligned, check_options, group_codes, scores, tabulate

METHODS = ("shift", "isotonic")
ERRORS = ("bias", "mae", "rmse", "exact")
PARTS = ("error", "reduction")


def calibration_curve(
    judge: Scores,
    human: Scores,
    *,
    bins: int | None = None,
    groups: Labels | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The mean human score at each score of the judge: on the diagonal, a score means what it says.

    Args:
        judge, human: scores of n items, NaN where missing.
        bins: None makes a row of every distinct score of the judge; a number cuts expected or other continuous scores
            into that many bins with about equal counts (fewer where scores tie).
        groups: of each item; standard errors then let items of one group depend on each other.
        confidence: coverage of the intervals, in (0, 1).

    Returns:
        One row a bin, lowest first: judge (its mean score), human (mean human score), low, high (Student's t, with as
        many degrees of freedom as items or groups in the bin less one), gap (human - judge), n, share. The interval is
        NaN, with a warning, in a bin of one item or group, and where all human scores of a bin are the same: no spread
        says nothing of uncertainty. `attrs` has method, missing, confidence, n_groups.

    Raises:
        TypeError, ValueError: as `correlate`; bins is below 1, or a used item has no group.

    Source: reliability diagrams as in Niculescu-Mizil and Caruana, ICML 2005, of scores instead of probabilities.

    >>> from vjudge.metrics import calibration_curve
    >>> calibration_curve([1, 1, 2, 2], [1, 2, 3, 4])[["judge", "human", "gap", "n"]].values.tolist()
    [[1.0, 1.5, 0.5, 2.0], [2.0, 3.5, 1.5, 2.0]]
    """
    check_options(confidence=confidence)
    x, y, used, codes = _pairs(judge, human, groups)
    if bins is not None and bins < 1:
        raise ValueError(f"bins must be at least 1, not {bins}")
    if bins is None or not len(x):
        inside = np.unique(x, return_inverse=True)[1]
    else:
        edges = np.unique(np.quantile(x, np.linspace(0, 1, bins + 1))[1:-1])
        inside = np.unique(np.searchsorted(edges, x, side="right"), return_inverse=True)[1]
    rows = []
    for code in range(int(inside.max(initial=-1)) + 1):
        at = inside == code
        n = int(at.sum())
        mean = float(y[at].mean())
        units = np.unique(codes[at], return_inverse=True)[1]
        totals = np.bincount(units, weights=y[at] - mean)
        half = np.nan
        if len(totals) > 1 and np.ptp(y[at]) > 0:
            error = np.sqrt(totals @ totals * len(totals) / (len(totals) - 1)) / n
            half = float(stats.t.ppf((1 + confidence) / 2, len(totals) - 1) * error)
        rows.append([float(x[at].mean()), mean, mean - half, mean + half, mean - float(x[at].mean()), n, n / len(x)])
    table = pd.DataFrame(rows, columns=["judge", "human", "low", "high", "gap", "n", "share"]).astype({"n": int})
    if table.empty:
        warnings.warn("there is no item with both scores", stacklevel=2)
    alone = int(table["low"].isna().sum())
    if alone:
        what = "of one item or group, or of one human score: give bins=, or more items"
        warnings.warn(f"intervals are undefined in {alone} of {len(table)} bins ({what})", stacklevel=2)
    unit = "items" if groups is None else "groups"
    table.attrs = {
        "method": f"{confidence:.0%} intervals by Student's t over {unit}; {len(x)} items",
        "missing": int((~used).sum()),
        "confidence": confidence,
        "n_groups": None if groups is None else len(np.unique(codes)),
    }
    return table


def calibrate(
    judge: Scores,
    human: Scores,
    *,
    method: str = "isotonic",
    groups: Labels | None = None,
    seed: int = 0,
) -> pd.Series:
    """Map a judge's scores to human scores, each item by a map fitted on the other half of the items.

    Args:
        judge, human: scores of n items, NaN where missing.
        method: "shift" adds the mean gap; "isotonic" is the best map that never falls, interpolated between the
            judge's scores and constant beyond them.
        groups: whole groups go to one half, so that no item is mapped by its neighbours; None splits items.
        seed: of the split.

    Returns:
        n calibrated scores, NaN where either score is missing; index of `judge` if it is a Series. `attrs` has method,
        n, missing, seed. All NaN, with a warning, with fewer than four items or two groups.

    Raises:
        TypeError, ValueError: as `correlate`; the method is not known, or a used item has no group.

    Source: Barlow et al., Statistical Inference under Order Restrictions (1972), by `scipy.optimize`.

    >>> from vjudge.metrics import calibrate
    >>> judge, human = [1, 2, 3, 4, 5] * 4, [2, 3, 4, 5, 5] * 4
    >>> [round(float(score), 2) for score in calibrate(judge, human, method="shift")[:3]]
    [1.7, 2.9, 3.7]
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
    x, y, used, codes = _pairs(judge, human, groups)
    index = judge.index if isinstance(judge, pd.Series) else pd.RangeIndex(len(used))
    mapped = np.full(len(x), np.nan)
    units = len(np.unique(codes))
    if len(x) < 4 or units < 2:
        warnings.warn(f"calibration is undefined: {len(x)} items in {units} units can't be halved", stacklevel=2)
    else:
        second = np.random.default_rng(seed).permutation(units)[codes] >= units // 2
        for fit_on in (second, ~second):
            mapped[~fit_on] = _fitted(method, x[fit_on], y[fit_on])(x[~fit_on])
    values = np.full(len(used), np.nan)
    values[used] = mapped
    series = pd.Series(values, index=index, name=method)
    series.attrs = {"method": f"{method}, cross-fitted on halves, seed {seed}", "n": len(x), "seed": seed}
    series.attrs["missing"] = int((~used).sum())
    return series


def calibration_errors(
    judge: Scores,
    human: Scores,
    *,
    methods: Sequence[str] = METHODS,
    groups: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> pd.DataFrame:
    """How far a judge's scores are from human scores, raw and after each cross-fitted map.

    Args:
        judge, human, groups: see `calibrate`.
        methods: maps to try beside "raw".
        confidence, n_resamples, seed: see `correlate`.

    Returns:
        Rows (map, error): bias (mean of score - human), mae, rmse, exact (share of items whose rounded score is the
        human one); columns estimate, low, high, n, missing, and reduction, low_reduction, high_reduction: how much
        smaller the error is than raw, on the same resamples (for exact: how much larger the share; for bias: in
        absolute value). Every item is mapped by a map fitted on the other half. Intervals take the two maps as
        given: they say nothing about other splits.

    Raises:
        TypeError, ValueError: as `calibrate`.

    Source: Hastie, Tibshirani and Friedman, The Elements of Statistical Learning (2009), section 7.10, for errors on
    the half that a map was not fitted on.

    >>> from vjudge.metrics import calibration_errors
    >>> table = calibration_errors([2, 3, 4, 5] * 5, [1, 2, 3, 4] * 5, methods=["shift"], n_resamples=0)
    >>> table["estimate"].round(2).loc[:, "mae"].to_dict()
    {'raw': 1.0, 'shift': 0.0}
    """
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise ValueError(f"methods must be some of {', '.join(METHODS)}, not {', '.join(map(str, unknown))}")
    x, y, used, codes = _pairs(judge, human, groups)
    labels = None if groups is None else np.asarray(pd.Series(list(groups), dtype=object))
    maps = {"raw": x}
    for name in methods:
        whole = scores(judge, name="judge"), scores(human, name="human")
        maps[name] = calibrate(*whole, method=name, groups=labels, seed=seed).to_numpy()[used]
    miss = np.stack([value - y for value in maps.values()])
    with np.errstate(invalid="ignore"):
        hit = np.stack([np.where(np.isnan(value), np.nan, np.rint(value) == y) for value in maps.values()])

    def statistic(w: NDArray[np.number]) -> Floats:
        n = w.sum(axis=0)
        errors = np.stack([miss @ w / n, np.abs(miss) @ w / n, np.sqrt(miss**2 @ w / n), hit @ w / n], axis=1)
        size = np.abs(errors) * np.array([1, 1, 1, -1])[:, None]
        return np.concatenate([errors.reshape(-1, w.shape[1]), (size[:1] - size).reshape(-1, w.shape[1])])

    names = [(name, error) for name in maps for error in ERRORS]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no width.*")  # the reduction of raw itself
        both = tabulate(
            statistic,
            [(*name, part) for part in PARTS for name in names],
            Design.rows(len(x), groups=None if groups is None else codes),
            n=len(x),
            missing=int((~used).sum()),
            confidence=confidence,
            n_resamples=n_resamples,
            seed=seed,
            method=["logit" if part == "error" and name[1] == "exact" else "t" for part in PARTS for name in names],
            index=["map", "error", "part"],
            why="too few items",
        )
    table, less = both.xs("error", level="part"), both.xs("reduction", level="part")
    table = table.assign(reduction=less["estimate"], low_reduction=less["low"], high_reduction=less["high"])
    table.attrs = {**both.attrs, "undefined_resamples": max(both.attrs["undefined_resamples"].values(), default=np.nan)}
    return table


def _pairs(
    judge: Scores, human: Scores, groups: Labels | None
) -> tuple[Floats, Floats, NDArray[np.bool_], NDArray[np.int64]]:
    """Items with both scores, which they are, and their group (themselves without groups)."""
    x, y = aligned(judge=judge, human=human, groups=groups)
    used = ~(np.isnan(x) | np.isnan(y))
    codes = np.arange(int(used.sum())) if groups is None else group_codes(groups, used)
    return x[used], y[used], used, codes


def _fitted(method: str, x: Floats, y: Floats) -> Callable[[Floats], Floats]:
    """The map of judge scores x to human scores y."""
    if method == "shift":
        gap = float((y - x).mean())
        return lambda new: new + gap
    level, at = np.unique(x, return_inverse=True)
    counts = np.bincount(at)
    fitted = optimize.isotonic_regression(np.bincount(at, weights=y) / counts, weights=counts).x
    return lambda new: np.interp(new, level, fitted)
