"""What scores and probabilities mean: curves, errors, temperature, intervals of single scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, special

from vjudge.metrics.array_types import Column, Floats, Groups, Integers
from vjudge.metrics.caveats import add_caveats, unequal_group_caveats, warn
from vjudge.metrics.cells import indicator_matrix
from vjudge.metrics.columns import (
    as_floats,
    check_items,
    check_options,
    check_scale,
    read_scores,
    zeros_and_ones,
)
from vjudge.metrics.groups import design_of, group_codes, groups_from_ids, unit_codes
from vjudge.metrics.intervals import INTERVAL, degrees_of_freedom, t_quantile
from vjudge.metrics.labels import check_random
from vjudge.metrics.resampling import MIN_BLOCK
from vjudge.metrics.shares import shares
from vjudge.metrics.tables import tabulate
from vjudge.records import from_csv, is_int_at_least

LEAST_IN_BIN = 5
STEP = 1e-4  # of a log temperature, for a slope

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
        A row a bin, lowest first: judge, human (mean scores), low, high (Student's t), n, share and
        missing (items without both scores). The interval is NaN, with a warning, in a bin of one
        item, group or human score.

    Source: reliability diagrams, Niculescu-Mizil and Caruana, ICML 2005, of scores.

    >>> calibration_curve([1, 1, 2, 2], [1, 2, 3, 4])[["judge", "human", "n"]].values.tolist()
    [[1.0, 1.5, 2.0], [2.0, 3.5, 2.0]]
    """
    check_options(confidence=confidence)
    groups, caveats = groups_from_ids(judge, groups)
    x, y, used = read_scores(judge=judge, human=human, groups=groups)
    if bins is not None and not is_int_at_least(bins, 1):
        raise ValueError(f"bins must be a whole number from 1, or None, not {bins!r}")
    frame = pd.DataFrame({"judge": x[used], "human": y[used], "bin": x[used]})
    frame["unit"] = group_codes(groups, used)
    # 1) mean scores of each bin
    if bins is not None and len(frame):
        edges = np.unique(np.quantile(frame["judge"], np.linspace(0, 1, bins + 1)[1:-1]))
        frame["bin"] = np.searchsorted(edges, frame["judge"], side="right")
    by_bin = frame.groupby("bin")
    table = by_bin[["judge", "human"]].mean()
    n = by_bin.size()
    # 2) the standard error of a mean of groups, from the sum of each group's deviations
    frame["deviation"] = frame["human"] - by_bin["human"].transform("mean")
    of_unit = frame.groupby(["bin", "unit"])["deviation"].agg(["sum", "size"])
    by_bin_of_units = of_unit.groupby("bin")
    units = by_bin_of_units.size()
    squares = (of_unit["sum"] ** 2).groupby("bin").sum()
    error = np.sqrt(squares * units / (units - 1)) / n
    freedom = by_bin_of_units["size"].agg(degrees_of_freedom)
    half = t_quantile(confidence, freedom) * error.where(by_bin["human"].nunique() > 1)
    table = table.assign(low=table["human"] - half, high=table["human"] + half, n=n)
    table["share"] = n / len(frame)
    alone = int(half.isna().sum())
    if alone or table.empty:
        warn(
            f"intervals are undefined in {alone} of {len(table)} bins (of one item or group, or of"
            " one human score: give bins=, or more items)"
        )
    unit = "items" if groups is None else "groups"
    table = table.reset_index(drop=True).assign(missing=int((~used).sum()))
    table.attrs["method"] = (
        f"{confidence:.0%} intervals by Student's t over {unit}; {len(frame)} items"
    )
    add_caveats(table, caveats)
    return table


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
    groups, caveats = groups_from_ids(judge, groups)
    x, y, used = read_scores(judge=judge, human=human, groups=groups)
    if scale is not None:
        bounds = scale.to_numpy(dtype=float).T if isinstance(scale, pd.DataFrame) else scale
        check_scale("calibration_errors", bounds, judge=x, human=y)
    miss = (x - y)[used]
    table = tabulate(
        lambda w: np.stack([miss, np.abs(miss)]) @ w / w.sum(axis=0),
        ["bias", "mae"],
        design_of(np.arange(len(miss)), groups, used),
        n_resamples=n_resamples,
        reason="too few items",
        **options,
    )
    add_caveats(table, caveats)
    return table


# --- Probabilities


def expected_calibration_error(
    probability: pd.Series,
    right: pd.Series,
    *,
    bins: int = 10,
    groups: Groups = None,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> pd.Series:
    """Measure how far a judge's probability of its verdict is from how often it is right.

    Noise alone makes a distance in every bin, so the plain error of a perfectly calibrated judge is
    not 0. What noise adds is taken off the estimate; small errors are then put low by about .015.

    Args:
        probability: of each verdict, in [0, 1], NaN where there is none.
        right: 1 where the verdict is right and 0 where it is wrong, by the same index.
        bins: of about equal numbers of items, 5 items each at least; fewer where probabilities tie,
            since equal ones share a bin.
        groups: the unit of sampling of each item, such as its image; None: each item is its own.
        confidence, n_resamples, seed: of the interval; what noise adds is simulated.

    Returns:
        `estimate`, `low`, `high`, in [0, 1]; `plain` (with what noise adds); `p` (of a perfect
        calibration, by simulating one, or by flipping signs of whole groups); `bins`, `n`,
        `missing`.

    ValueError: too few items for the bins, bins that are no whole number from 1, probabilities
    outside of [0, 1], as percentages are, or truths other than 0 and 1.

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
    stated, truth, used = _with_truth(probability, right, bins)
    units = unit_codes(groups, probability.index, used)
    code = _equal_bins(stated, bins)
    # 1) the gap of each bin, and the covariance of the gaps: (k,), (k, k)
    sizes: Any = np.bincount(code)
    miss = truth - stated
    gap = np.bincount(code, miss) / sizes
    covariance, freedom = _noise(truth, miss, code, units, grouped=groups is not None)
    weights = sizes / len(stated)
    plain = float(np.abs(gap) @ weights)
    # 2) how much noise of this size adds to the mean absolute gap
    rng = np.random.default_rng(seed)
    surplus = float((gap**2 / np.diag(covariance)).sum())
    likely = gap * math.sqrt(max(1 - len(gap) / max(surplus, 1e-12), 0))
    drawn = rng.multivariate_normal(likely, covariance, size=n_resamples, method="eigh")
    added = np.abs(drawn) @ weights - np.abs(likely) @ weights
    # 3) below by the most that noise may have added, above as if it had added nothing
    p = _p_of_calibration(stated, miss, code, None if groups is None else units, n_resamples, rng)
    tail = (1 - confidence) / 2
    low = 0.0  # where a perfect calibration can't be excluded
    if p <= tail:
        low = max(plain - float(np.quantile(added, 1 - tail)), 0.0)
    signed = weights * np.sign(gap)
    high = plain + t_quantile(confidence, freedom) * math.sqrt(signed @ covariance @ signed)
    estimate = max(plain - float(added.mean()), 0.0)
    result = pd.Series([estimate, low, min(high, 1.0)], index=INTERVAL)
    result["plain"], result["p"], result["bins"] = plain, p, len(gap)
    result["n"], result["missing"] = len(stated), int((~used).sum())
    if groups is not None:
        group_sizes = np.bincount(units)
        add_caveats(result, unequal_group_caveats(group_sizes))
    return result


def _with_truth(probability: pd.Series, right: pd.Series, bins: int) -> tuple[Floats, Floats, Any]:
    """Probabilities and truths of the items that have both, and which items these are."""
    stated = as_floats(probability, name="probability")
    truth = zeros_and_ones(right.reindex(probability.index), name="right")
    outside = stated[(stated < 0) | (stated > 1)]
    if outside.size:
        raise ValueError(
            f"probability has {outside.size} values outside of [0, 1], such as {outside[0]:g}:"
            " divide percentages by 100"
        )
    used = ~np.isnan(stated + truth)
    if used.sum() < LEAST_IN_BIN * bins:
        raise ValueError(
            f"{used.sum()} items have a probability and a truth: too few for {bins} bins of 5"
        )
    return stated[used], truth[used], used


def _equal_bins(values: Floats, bins: int) -> Integers:
    """The bin of each value, 0 to k - 1, of about equal numbers; equal values share one.

    A bin is closed once its last value reaches the next of `bins` equal parts:

    >>> code = _equal_bins(np.repeat([0.1, 0.2, 0.9], [30, 6, 24]), bins=4)
    >>> np.unique(code, return_counts=True)[1].tolist()
    [30, 30]
    """
    levels, level, counts = np.unique(values, return_inverse=True, return_counts=True)
    size = len(values) / bins
    of_level = np.empty(len(levels), dtype=np.int64)
    number = in_bin = total = 0
    goal = size
    for position, count in enumerate(counts):
        of_level[position] = number
        in_bin += count
        total += count
        if total >= goal - 1e-9 and in_bin >= LEAST_IN_BIN:
            number += 1
            in_bin = 0
            goal = (math.floor(total / size + 1e-9) + 1) * size
    if 0 < in_bin < LEAST_IN_BIN:  # what is left over joins the bin before it
        of_level[of_level == number] = max(number - 1, 0)
    return of_level[level]


def _noise(
    truth: Floats, miss: Floats, code: Integers, units: Integers, *, grouped: bool
) -> tuple[Floats, float]:
    """The covariance of the gaps of k bins, (k, k), and its degrees of freedom."""
    sizes: Any = np.bincount(code)
    smoothed = (np.bincount(code, truth) + 1) / (sizes + 2)  # where all are right it varies, too
    variance = smoothed * (1 - smoothed) / sizes
    if not grouped:
        return np.diag(variance), math.inf
    gap = np.bincount(code, miss) / sizes
    of_group = np.zeros((int(units.max()) + 1, len(sizes)))
    np.add.at(of_group, (units, code), (miss - gap[code]) / sizes[code])
    n_groups = len(of_group)
    covariance = of_group.T @ of_group * n_groups / max(n_groups - 1, 1)
    below = np.maximum(variance - np.diag(covariance), 0)
    return covariance + np.diag(below), degrees_of_freedom(np.bincount(units))


def _p_of_calibration(
    stated: Floats,
    miss: Floats,
    code: Integers,
    units: Integers | None,
    n_resamples: int,
    rng: np.random.Generator,
) -> float:
    """How often a perfectly calibrated judge has a plain error as large.

    Of independent items the truths are drawn from the stated probabilities; in groups the sign of
    each group's misses is drawn, as it would be as likely either way.
    """
    into_bins = indicator_matrix(code) / len(stated)  # (k, n): the weighted gaps of bins
    plain = np.abs(into_bins @ miss).sum()
    count = 0
    for start in range(0, n_resamples, MIN_BLOCK):
        size = min(MIN_BLOCK, n_resamples - start)
        if units is None:
            drawn = (rng.random((len(stated), size)) < stated[:, None]) - stated[:, None]
        else:
            drawn = rng.choice([-1.0, 1.0], size=(units.max() + 1, size))[units] * miss[:, None]
        count += int((np.abs(into_bins @ drawn).sum(axis=0) >= plain - 1e-12).sum())
    return (count + 1) / (n_resamples + 1)


def temperature_scaling(
    probabilities: pd.Series,
    truth: pd.Series,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.Series:
    """Find the temperature at which a judge's distributions over scores fit the truth best.

    Args:
        probabilities: of each item a mapping score -> probability (a run's column), None where
            there is none.
        truth: the true score by the same index, NaN where unknown.
        groups: the unit of sampling of each item, such as its image; None: each item is its own.
        confidence: of the interval, by the likelihood ratio, which groups whose items are alike
            make smaller.

    Returns:
        `estimate`, `low`, `high`: above 1 the judge is too sure, below 1 not sure enough; `n`,
        `missing`. `scaled(probabilities, t)` applies it.

    ValueError: fewer than ten items, or a truth that a distribution does not hold.

    >>> rng = np.random.default_rng(0)
    >>> share = rng.uniform(0.2, 0.8, size=3000)
    >>> truth = pd.Series((rng.random(3000) < share).astype(float))
    >>> odds = (share / (1 - share)) ** 2  # as sure as a temperature of one half makes it
    >>> judge = pd.Series([{0: 1 / (1 + o), 1: o / (1 + o)} for o in odds])
    >>> round(float(temperature_scaling(judge, truth)["estimate"]), 1)
    2.1

    Source: Guo et al., On Calibration of Modern Neural Networks (ICML 2017), section 4.2; in groups
    Rotnitzky and Jewell, Biometrika 77 (1990), 485-497.
    """
    check_options(confidence=confidence)
    check_items(probabilities=probabilities, truth=truth)
    labelled = truth.dropna().index.intersection(probabilities.dropna().index)
    n = len(labelled)
    if n < 10:
        raise ValueError(f"{n} items have a distribution and a truth: use ten or more")
    # 1) log probabilities, a column a score, and those of the true scores
    shares = list(map(from_csv, probabilities[labelled]))
    table = pd.DataFrame(shares, index=labelled).rename(columns=float)
    column = table.columns.get_indexer(truth[labelled])
    lacking = labelled[column < 0]
    if len(lacking):
        raise ValueError(f"the truth of item {lacking[0]!r} is none of {list(table)}")
    logs = np.log(table.astype(float).clip(lower=1e-30)).fillna(-np.inf).to_numpy()
    of_truth = logs[np.arange(n), column]
    without = labelled[of_truth < np.log(1e-29)]
    if len(without):
        raise ValueError(
            f"{len(without)} items, such as {without[0]!r}, give their true score no probability,"
            " which no temperature mends: leave them out, or read the whole scale"
        )

    def losses(log_temperature: float) -> Floats:
        """Of each item, at a temperature."""
        t = math.exp(log_temperature)
        return special.logsumexp(logs / t, axis=1) - of_truth / t

    # 2) the best temperature, and how much more the slope of its loss varies than of independent
    # items: 1 without groups
    best = optimize.minimize_scalar(lambda t: losses(t).sum(), bounds=(-4, 4), method="bounded")
    freedom = math.inf
    excess = 1.0
    caveats = []
    if groups is not None:
        position = truth.index.get_indexer(labelled)
        units = unit_codes(groups, truth.index, truth.index.isin(labelled))[np.argsort(position)]
        slopes = (losses(best.x + STEP) - losses(best.x - STEP)) / (2 * STEP)
        of_unit: Any = np.bincount(units, slopes)
        sizes = np.bincount(units)
        excess = of_unit @ of_unit / (slopes @ slopes) * len(sizes) / max(len(sizes) - 1, 1)
        freedom = degrees_of_freedom(sizes)
        caveats = unequal_group_caveats(sizes)
    # 3) those temperatures that a likelihood ratio does not exclude
    limit = best.fun + t_quantile(confidence, freedom) ** 2 / 2 * max(excess, 1.0)
    bounds = []
    for edge in (-4.0, 4.0):
        bound = math.nan
        if losses(edge).sum() > limit:
            bound = math.exp(optimize.brentq(lambda t: losses(t).sum() - limit, best.x, edge))
        bounds.append(bound)
    result = pd.Series([math.exp(best.x), *bounds], index=INTERVAL)
    result["n"], result["missing"] = n, len(truth) - n
    add_caveats(result, caveats)
    return result


def scaled(probabilities: Mapping[Any, float], temperature: float) -> dict[Any, float]:
    """Put a distribution over scores at another temperature.

    Source: as `temperature_scaling`.

    >>> scaled({1: 0.2, 2: 0.8}, 2.0)
    {1: 0.333333333333, 2: 0.666666666667}
    """
    powers = pd.Series(dict(probabilities), dtype=float) ** (1 / temperature)
    return (powers / powers.sum()).round(12).to_dict()


# --- Intervals of single scores


def conformal_intervals(
    expected: pd.Series,
    truth: pd.Series,
    *,
    spread: pd.Series | None = None,
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
        confidence: share of items, in (0, 1).

    Returns:
        One row an item: `estimate`, `low`, `high` (NaN without a score).

    ValueError: too few known items for the confidence (19 are the fewest for 95 %), or known ones
    whose scores are evidently not those of a random sample.

    >>> rng = np.random.default_rng(0)
    >>> truth = pd.Series(rng.normal(3, 1, size=1000))
    >>> judge = truth + rng.normal(0, 0.5, size=1000)
    >>> table = conformal_intervals(judge, truth.where(truth.index < 200))
    >>> bool(0.85 < truth.between(table["low"], table["high"]).mean() < 0.95)
    True

    Source: split conformal prediction, Vovk et al. (2005); locally weighted, Lei et al. (JASA
    2018).
    """
    scale, distance, rank, caveats = _distances(expected, truth, spread, confidence)
    estimate = expected.astype(float)
    half = scale * np.sort(distance)[rank - 1]
    table = pd.DataFrame({"estimate": estimate, "low": estimate - half, "high": estimate + half})
    table.attrs["method"] = f"{confidence:.0%} conformal intervals by {len(distance)} true scores"
    add_caveats(table, caveats)
    return table


def conformal_coverage(
    expected: pd.Series,
    truth: pd.Series,
    *,
    spread: pd.Series | None = None,
    by: pd.Series | None = None,
    groups: Groups = None,
    confidence: float = 0.9,
) -> pd.DataFrame:
    """Count how often an interval of `conformal_intervals` holds the true score, by kind.

    Args:
        expected, truth, spread, confidence: as for `conformal_intervals`.
        by: a kind of each item, such as its category.
        groups: the unit of sampling of each item, such as its image; None: each item is its own.

    Returns:
        A row "all" and one a kind: `share` of known items inside an interval made of the other
        known items, Wilson's `low` and `high`, and `n`. A kind whose interval lies below
        `confidence` is not served by one width for all.

    Source: as `conformal_intervals`.

    >>> truth = pd.Series(np.arange(40.0))
    >>> conformal_coverage(truth + truth % 2, truth, by=truth % 2)["share"].round(2).tolist()
    [1.0, 1.0, 1.0]
    """
    _, distance, _, caveats = _distances(expected, truth, spread, confidence)
    n = len(distance)
    ordered = np.sort(distance)
    # Without an item the interval is made of the n - 1 others: its rank among all is one more where
    # the item's distance is below it
    below, above = ordered[min(math.ceil(n * confidence), n - 1) + np.array([-1, 0])]
    inside = distance <= np.where(distance <= below, above, below)
    rows = [("all", inside, np.ones(n))]
    if by is not None:
        labels = by[inside.index]
        for name in sorted(labels.dropna().unique()):
            rows.append((name, inside & (labels == name), labels == name))
    units = None
    if groups is not None:
        known = expected.index.isin(inside.index)
        units = unit_codes(groups, expected.index, known)
    coverage = shares(rows, groups=units, unit="items").rename(columns={"estimate": "share"})
    add_caveats(coverage, caveats)
    return coverage.drop(columns="missing")


def _distances(
    expected: pd.Series, truth: pd.Series, spread: pd.Series | None, confidence: float
) -> tuple[pd.Series, pd.Series, int, list[str]]:
    """Scales of items, distances over them of known ones, the half width's rank, and caveats."""
    check_options(confidence=confidence)
    check_items(expected=expected, truth=truth)
    expected, truth = expected.astype(float).align(truth.astype(float), join="left")
    scale = pd.Series(1.0, expected.index)
    if spread is not None:
        scale = spread[expected.index].astype(float)
        if not scale.mean() > 0:
            raise ValueError("spread is 0 in all items: leave it out")
        scale += scale.mean() / 10  # a judge that is certain and wrong has a width, too
    distance = ((truth - expected).abs() / scale).dropna()
    n = len(distance)
    scored = expected.dropna()
    caveats = check_random(
        scored.to_numpy(), scored.index.isin(distance.index), np.arange(len(scored))
    )
    rank = math.ceil(round((n + 1) * confidence, 9))  # of the half width, from 1
    if rank > n:
        needed = math.ceil(round(confidence / (1 - confidence), 9))
        raise ValueError(
            f"{n} items have a score and a truth: {confidence:.0%} takes {needed} or more"
        )
    return scale, distance, rank, caveats
