"""What scores and probabilities mean: curves, errors, temperature, intervals of single scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, special, stats

from vjudge.metrics.columns import (
    Column,
    Groups,
    aligned,
    check_items,
    check_options,
    check_scale,
    design_of,
    group_codes,
    warn,
)
from vjudge.metrics.resampling import student
from vjudge.metrics.tables import INTERVAL, shares, tabulate
from vjudge.records import is_int_at_least

# --- Scores against people's


def calibration_curve(
    judge: Column,
    human: Column,
    *,
    bins: int | None = None,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Average the human score at each score of the judge: on the diagonal both are equal.

    Args:
        judge, human: scores of n items, NaN where missing.
        bins: None makes a row of each score of the judge, a number so many of about equal counts
            (fewer where scores tie).
        groups, confidence: see `correlate`.

    Returns:
        A row a bin, lowest first: judge, human (mean scores), low, high (Student's t), n and share.
        The interval is NaN, with a warning, in a bin of one item, group or human score. `attrs` has
        missing.

    Source: reliability diagrams, Niculescu-Mizil and Caruana, ICML 2005, of scores.

    >>> calibration_curve([1, 1, 2, 2], [1, 2, 3, 4])[["judge", "human", "n"]].values.tolist()
    [[1.0, 1.5, 2.0], [2.0, 3.5, 2.0]]
    """
    check_options(confidence=confidence)
    x, y, used = aligned(judge=judge, human=human, groups=groups)
    if bins is not None and not is_int_at_least(bins, 1):
        raise ValueError(f"bins must be a whole number from 1, or None, not {bins!r}")
    frame = pd.DataFrame({"judge": x[used], "human": y[used]})
    frame["unit"] = group_codes(groups, used)
    # 1) mean scores of each bin
    frame["bin"] = frame["judge"]
    if bins is not None and len(frame):
        levels = np.linspace(0, 1, bins + 1)[1:-1]
        edges = np.unique(np.quantile(frame["judge"], levels))
        frame["bin"] = np.searchsorted(edges, frame["judge"], side="right")
    by_bin = frame.groupby("bin")
    table = by_bin[["judge", "human"]].mean()
    n = by_bin.size()
    # 2) the standard error of a mean of groups, from the sum of each group's deviations
    frame["deviation"] = frame["human"] - by_bin["human"].transform("mean")
    totals = frame.groupby(["bin", "unit"])["deviation"].sum()
    units = totals.groupby("bin").size()
    squares = (totals**2).groupby("bin").sum()
    error = np.sqrt(squares * units / (units - 1)) / n
    error = error.where(by_bin["human"].nunique() > 1)
    half = student(confidence, units - 1) * error
    table["low"] = table["human"] - half
    table["high"] = table["human"] + half
    table["n"] = n
    table["share"] = n / len(frame)
    alone = int(half.isna().sum())
    if alone or table.empty:
        warn(
            f"intervals are undefined in {alone} of {len(table)} bins (of one item or group, or of"
            " one human score: give bins=, or more items)"
        )
    unit = "items" if groups is None else "groups"
    table.attrs["method"] = (
        f"{confidence:.0%} intervals by Student's t over {unit}; {len(frame)} items"
    )
    table.attrs["missing"] = int((~used).sum())
    return table.reset_index(drop=True)


def calibration_errors(
    judge: Column,
    human: Column,
    *,
    scale: tuple[float, float] | pd.DataFrame | None = None,
    groups: Groups = None,
    n_resamples: int = 2_000,
    **options: Any,
) -> pd.DataFrame:
    """Measure bias (mean of score less human) and mae (mean absolute error).

    Args:
        judge, human: scores of n items on one scale, NaN where missing.
        scale: its lowest and highest score, or a run's columns `lowest` and `highest`, which are
            NaN for a value head; None takes the scores at their word.
        groups, n_resamples, options: see `correlate`.

    Returns:
        Rows bias and mae, with columns as `correlate`.

    ValueError: scores outside of the scale, or without one.

    Source: Willmott and Matsuura, Climate Research 30 (2005), 79-82.

    >>> calibration_errors([2, 3, 4, 5], [1, 2, 3, 5], n_resamples=0)["estimate"].to_dict()
    {'bias': 0.75, 'mae': 0.75}
    """
    x, y, used = aligned(judge=judge, human=human, groups=groups)
    if scale is not None:
        bounds = scale.to_numpy(dtype=float).T if isinstance(scale, pd.DataFrame) else scale
        check_scale("calibration_errors", bounds, judge=x, human=y)
    miss = (x - y)[used]
    both = np.stack([miss, np.abs(miss)])
    return tabulate(
        lambda w: both @ w / w.sum(axis=0),
        ["bias", "mae"],
        design_of(np.arange(len(miss)), groups, used),
        n_resamples=n_resamples,
        why="too few items",
        **options,
    )


# --- Probabilities


def expected_calibration_error(
    probability: pd.Series,
    right: pd.Series,
    *,
    bins: int = 10,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> pd.Series:
    """Measure how far a judge's probability of its verdict is from how often it is right.

    Noise alone makes a distance in every bin, so the plain error of a perfectly calibrated judge is
    not 0. What noise adds is taken off the estimate; the plain error is in `attrs`. Small errors
    are then put low by about .015, and `p` is below .05 in 8 to 9 % of perfectly calibrated
    samples.

    Args:
        probability: of each verdict, in [0, 1], NaN where there is none.
        right: 1 where the verdict is right and 0 where it is wrong, by the same index.
        bins: of equal numbers of items, 5 items each at least.
        confidence, n_resamples, seed: of the interval; what noise adds is simulated.

    Returns:
        `estimate`, `low`, `high`, in [0, 1]; `attrs`: `plain`, `p` (of a perfect calibration), `n`,
        `missing`.

    ValueError: too few items for the bins, or bins that are no whole number from 1.

    >>> rng = np.random.default_rng(0)
    >>> sure = pd.Series(rng.uniform(0.5, 1, size=2000))
    >>> right = pd.Series((rng.random(2000) < sure - 0.2).astype(int))  # too sure by 0.2
    >>> round(float(expected_calibration_error(sure, right)["estimate"]), 1)
    0.2

    Source: Guo et al., On Calibration of Modern Neural Networks (ICML 2017), section 2; bins of
    equal numbers after Nixon et al. (CVPR workshops 2019). The interval is this project's own,
    since bootstrap intervals held the true error in as few as half of simulated samples:
    figures/validity_numbers.csv.
    """
    check_options(confidence=confidence, n_resamples=n_resamples)
    check_items(probability=probability, right=right)
    if not is_int_at_least(bins, 1) or n_resamples == 0:
        raise ValueError(f"bins={bins!r}, n_resamples={n_resamples!r}: use whole numbers from 1")
    table = pd.DataFrame({"probability": probability, "right": right}).dropna().astype(float)
    n = len(table)
    if n < 5 * bins:
        raise ValueError(f"{n} items have a probability and a truth: too few for {bins} bins of 5")
    # 1) the gap of each bin, and its variance; a bin where all are right has one, too
    ordered = table.sort_values("probability", kind="stable").to_numpy()
    starts = np.arange(bins) * n // bins
    sizes = np.diff([*starts, n])
    stated, share = (np.add.reduceat(ordered, starts) / sizes[:, None]).T
    gap = share - stated
    smoothed = (share * sizes + 1) / (sizes + 2)
    variance = smoothed * (1 - smoothed) / sizes
    # 2) how much noise of this size adds to the mean absolute gap
    weights = sizes / n
    plain = np.abs(gap) @ weights
    surplus = (gap**2 / variance).sum()
    likely = gap * math.sqrt(max(1 - bins / max(surplus, 1e-12), 0))
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(n_resamples, bins)) * np.sqrt(variance)
    added = np.abs(likely + noise) @ weights - np.abs(likely) @ weights
    # 3) below by the most that noise may have added, above as if it had added nothing
    tail = (1 - confidence) / 2
    p = float(stats.chi2.sf(surplus, bins))
    low = 0.0  # where a perfect calibration can't be excluded
    if p <= tail:
        low = max(plain - np.quantile(added, 1 - tail), 0.0)
    high = plain + stats.norm.ppf(1 - tail) * math.sqrt(weights**2 @ variance)
    estimate = max(plain - added.mean(), 0.0)
    result = pd.Series([estimate, low, high], index=INTERVAL)
    missing = len(probability) - n
    result.attrs = {"plain": float(plain), "p": p, "n": n, "missing": missing}
    return result


def temperature_scaling(
    probabilities: pd.Series,
    truth: pd.Series,
    *,
    confidence: float = 0.95,
) -> pd.Series:
    """Find the temperature at which a judge's distributions over scores fit the truth best.

    Args:
        probabilities: of each item a mapping score -> probability (a run's column), None where
            there is none.
        truth: the true score by the same index, NaN where unknown.
        confidence: of the interval, by the likelihood ratio.

    Returns:
        `estimate`, `low`, `high`: above 1 the judge is too sure, below 1 not sure enough; `attrs`:
        `n` and `missing`. `scaled(probabilities, t)` applies it.

    ValueError: fewer than ten items, or a truth that a distribution does not hold.

    >>> rng = np.random.default_rng(0)
    >>> share = rng.uniform(0.2, 0.8, size=3000)
    >>> truth = pd.Series((rng.random(3000) < share).astype(float))
    >>> odds = (share / (1 - share)) ** 2  # as sure as a temperature of one half makes it
    >>> judge = pd.Series([{0: 1 / (1 + o), 1: o / (1 + o)} for o in odds])
    >>> round(float(temperature_scaling(judge, truth)["estimate"]), 1)
    2.1

    Source: Guo et al., On Calibration of Modern Neural Networks (ICML 2017), section 4.2.
    """
    check_options(confidence=confidence)
    check_items(probabilities=probabilities, truth=truth)
    known = truth.dropna().index.intersection(probabilities.dropna().index)
    n = len(known)
    if n < 10:
        raise ValueError(f"{n} items have a distribution and a truth: use ten or more")
    # 1) log probabilities, a column a score, and those of the true scores
    table = pd.DataFrame(list(probabilities[known]), index=known).rename(columns=float)
    column = table.columns.get_indexer(truth[known])
    lacking = known[column < 0]
    if len(lacking):
        raise ValueError(f"the truth of item {lacking[0]!r} is none of {list(table)}")
    logs = np.log(table.astype(float).clip(lower=1e-30))
    logs = logs.fillna(-np.inf).to_numpy()
    own = logs[np.arange(n), column]
    without = known[own < np.log(1e-29)]
    if len(without):
        raise ValueError(
            f"{len(without)} items, such as {without[0]!r}, give their true score no probability,"
            " which no temperature mends: leave them out, or read the whole scale"
        )

    def log_loss(log_temperature: float) -> float:
        t = math.exp(log_temperature)
        return float((special.logsumexp(logs / t, axis=1) - own / t).sum())

    # 2) the best temperature, and those that a likelihood ratio does not exclude
    best = optimize.minimize_scalar(log_loss, bounds=(-4, 4), method="bounded")
    limit = best.fun + stats.chi2.ppf(confidence, 1) / 2
    bounds = []
    for end in (-4.0, 4.0):
        bound = math.nan
        if log_loss(end) > limit:
            bound = math.exp(optimize.brentq(lambda t: log_loss(t) - limit, best.x, end))
        bounds.append(bound)
    result = pd.Series([math.exp(best.x), *bounds], index=INTERVAL)
    result.attrs = {"n": n, "missing": len(truth) - n}
    return result


def scaled(probabilities: Mapping[Any, float], temperature: float) -> dict[Any, float]:
    """Put a distribution over scores at another temperature.

    Source: as `temperature_scaling`.

    >>> scaled({1: 0.2, 2: 0.8}, 2.0)
    {1: 0.333333333333, 2: 0.666666666667}
    """
    powers = {score: share ** (1 / temperature) for score, share in probabilities.items()}
    total = sum(powers.values())
    return {score: round(power / total, 12) for score, power in powers.items()}


# --- Intervals of single scores


def conformal_intervals(
    expected: pd.Series,
    truth: pd.Series,
    *,
    spread: pd.Series | None = None,
    by: pd.Series | None = None,
    confidence: float = 0.9,
) -> pd.DataFrame:
    """Put an interval around each score that holds the true one in `confidence` of items.

    It does so whatever the judge's errors are.

    Args:
        expected: the judge's (expected) score of each item, NaN where there is none.
        truth: the true score by the same index, NaN where it is unknown; the known ones calibrate,
            and must be a random part of all items.
        spread: the standard deviation of the judge's distribution over scores; intervals are then
            wider where the judge is less sure. None: all have one width.
        by: a group of each item, such as its category, for the check of coverage.
        confidence: share of items, in (0, 1).

    Returns:
        One row an item: `estimate`, `low`, `high` (NaN without a score). `attrs["coverage"]`: a
        table with one row a group of `by` and "all": `share` of known items inside an interval made
        of the other known items, Wilson's `low` and `high`, `n`. A group whose interval lies below
        `confidence` is not served by one width for all.

    ValueError: too few known items for the confidence (19 are the fewest for 95 %).

    >>> rng = np.random.default_rng(0)
    >>> truth = pd.Series(rng.normal(3, 1, size=1000))
    >>> judge = truth + rng.normal(0, 0.5, size=1000)
    >>> table = conformal_intervals(judge, truth.where(truth.index < 200))
    >>> bool(0.85 < truth.between(table["low"], table["high"]).mean() < 0.95)
    True

    Source: split conformal prediction, Vovk et al. (2005); locally weighted, Lei et al. (JASA
    2018).
    """
    check_options(confidence=confidence)
    check_items(expected=expected, truth=truth)
    expected, truth = expected.astype(float).align(truth.astype(float), join="left")
    scale = pd.Series(1.0, index=expected.index)
    if spread is not None:
        scale = spread[expected.index].astype(float)
        if not scale.mean() > 0:
            raise ValueError("spread is 0 in all items: leave it out")
        scale = scale + scale.mean() / 10  # a judge that is certain and wrong has a width, too
    distance = ((truth - expected).abs() / scale).dropna()
    n = len(distance)
    place = math.ceil(round((n + 1) * confidence, 9))  # of the half width, from 1
    if place > n:
        least = math.ceil(round(confidence / (1 - confidence), 9))
        raise ValueError(
            f"{n} items have a score and a truth: {confidence:.0%} takes {least} or more"
        )
    ordered = np.sort(distance.to_numpy())
    half = scale * ordered[place - 1]
    table = pd.DataFrame({"estimate": expected, "low": expected - half, "high": expected + half})
    # Leave each known item out: its interval is made of the n - 1 others.
    place_without = min(math.ceil(n * confidence), n - 1)
    others = np.full(n, ordered[place_without - 1])
    others[distance <= ordered[place_without - 1]] = ordered[place_without]
    inside = distance <= others
    rows = [("all", inside, np.ones(n))]
    if by is not None:
        labels = by[inside.index]
        for name in sorted(labels.dropna().unique()):
            rows.append((name, inside & (labels == name), labels == name))
    coverage = shares(rows, groups=None, unit="items").rename(columns={"estimate": "share"})
    table.attrs = {"confidence": confidence, "n": n, "coverage": coverage.drop(columns="missing")}
    return table
