"""Expected calibration error: how far a judge's probabilities are from how often it is right."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Booleans, Floats, Groups, Integers
from vjudge.metrics.caveats import add_caveats, unequal_group_caveats
from vjudge.metrics.cells import indicator_matrix
from vjudge.metrics.columns import as_floats, check_items, check_options, zeros_and_ones
from vjudge.metrics.groups import unit_codes
from vjudge.metrics.intervals import degrees_of_freedom, t_quantile
from vjudge.metrics.resampling import MIN_BLOCK
from vjudge.records import is_int_at_least

MIN_IN_BIN = 5  # items of each bin


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

    The plain error is the mean, over bins of items with similar probabilities, of the absolute gap
    between the share of right verdicts and the mean probability. Noise opens a gap in every bin,
    so the plain error of a perfectly calibrated judge is not 0. The estimate is therefore reduced
    by what noise adds; small errors are then underestimated by about .015.

    Args:
        probability: of each verdict, in [0, 1], NaN where there is none.
        right: 1 where the verdict is right and 0 where it is wrong, by the same index.
        bins: the number of bins of about equal counts, at least 5 items each. There are fewer where
            probabilities tie, since equal ones share a bin.
        groups: the sampling unit of each item, such as its image; None: each item is a unit.
        confidence: of the interval.
        n_resamples, seed: of the simulation of what noise adds, and of the test of calibration.

    Returns:
        `estimate`, `low`, `high`, in [0, 1]; `plain` (the plain error, with what noise adds); `p`
        (the p value of perfect calibration, by simulation or, with groups, by flipping the signs of
        whole groups); the numbers of `bins`, of items used (`n`), and of items left out
        (`missing`).

    Raises:
        ValueError: too few items for the bins, `bins` or `n_resamples` not a whole number from 1,
            probabilities outside of [0, 1], such as percentages, or truths other than 0 and 1.

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
    units = None
    if groups is not None:
        units = unit_codes(groups, probability.index, used)
    # 1) The gap in each of k bins, (k,), and the covariance of the gaps, (k, k)
    bin_code = _equal_bins(stated, bins)
    sizes = np.bincount(bin_code)
    surprise = truth - stated  # positive where the judge is right
    gap = indicator_matrix(bin_code) @ surprise / sizes
    covariance, freedom = _gap_covariance(truth, surprise, bin_code, units)
    weights = sizes / len(stated)
    plain = float(np.abs(gap) @ weights)
    # 2) What noise adds to the mean absolute gap. Shrink the gaps to their likely true size, as
    # James and Stein's estimator does: noise alone makes the sum of squared standardised gaps about
    # k, so with k = 10 and a sum of 40 multiply all gaps by sqrt(1 - 10 / 40). Then add simulated
    # noise to them.
    rng = np.random.default_rng(seed)
    squares = float((gap**2 / np.diag(covariance)).sum())
    likely_gap = gap * math.sqrt(max(1 - len(gap) / max(squares, 1e-12), 0))
    simulated = rng.multivariate_normal(likely_gap, covariance, size=n_resamples, method="eigh")
    added = np.abs(simulated) @ weights - np.abs(likely_gap) @ weights
    # 3) The lower bound deducts the most that noise may have added; it is 0 where perfect
    # calibration can't be excluded. The upper bound deducts nothing; it adds the standard error of
    # the plain error, which is the sum of the gaps with these signed weights.
    p = _p_of_perfect_calibration(stated, surprise, bin_code, units, n_resamples, rng)
    tail = (1 - confidence) / 2
    low = 0.0
    if p <= tail:
        low = max(plain - float(np.quantile(added, 1 - tail)), 0.0)
    signed_weights = weights * np.sign(gap)
    error = math.sqrt(signed_weights @ covariance @ signed_weights)
    high = min(plain + t_quantile(confidence, freedom) * error, 1.0)
    result = {
        "estimate": max(plain - float(added.mean()), 0.0),
        "low": low,
        "high": high,
        "plain": plain,
        "p": p,
        "bins": len(gap),
        "n": len(stated),
        "missing": (~used).sum(),
    }
    row = pd.Series(result, dtype=float)
    if units is not None:
        add_caveats(row, unequal_group_caveats(np.bincount(units)))
    return row


def _with_truth(
    probability: pd.Series, right: pd.Series, bins: int
) -> tuple[Floats, Floats, Booleans]:
    """Read the probabilities and truths of the items that have both.

    Returns:
        The m probabilities, (m,); the m truths, 1 or 0, (m,); and which of the n items these are,
        (n,).

    Raises:
        ValueError: probabilities outside of [0, 1], truths other than 0 and 1, or too few items for
            the bins.
    """
    stated = as_floats(probability, name="probability")
    truth = zeros_and_ones(right.reindex(probability.index), name="right")
    outside = stated[(stated < 0) | (stated > 1)]
    if outside.size:
        raise ValueError(
            f"probability has {outside.size} values outside of [0, 1], such as {outside[0]:g}:"
            " divide percentages by 100"
        )
    used = ~np.isnan(stated + truth)
    if used.sum() < MIN_IN_BIN * bins:
        raise ValueError(
            f"{used.sum()} items have a probability and a truth: too few for {bins} bins of 5"
        )
    return stated[used], truth[used], used


def _equal_bins(values: Floats, bins: int) -> Integers:
    """Divide values into bins of about equal counts; equal values share a bin.

    Values enter in ascending order. A bin is closed once the number of values so far reaches the
    next of `bins` equal parts. With four bins of 60 values the parts end at 15, 30, 45 and 60: here
    the first bin takes all 30 values of 0.1, and the second one must take the rest.

    Returns:
        The bin of each value, 0 to k - 1; (n,).

    >>> code = _equal_bins(np.repeat([0.1, 0.2, 0.9], [30, 6, 24]), bins=4)
    >>> np.unique(code, return_counts=True)[1].tolist()
    [30, 30]
    """
    levels, level_of_value, counts = np.unique(values, return_inverse=True, return_counts=True)
    part = len(values) / bins
    bin_of_level = np.empty(len(levels), dtype=np.int64)
    current = 0
    n_in_bin = 0
    n_so_far = 0
    goal = part  # the number of values so far at which the current bin is closed
    for level, count in enumerate(counts):
        bin_of_level[level] = current
        n_in_bin += count
        n_so_far += count
        if n_so_far >= goal - 1e-9 and n_in_bin >= MIN_IN_BIN:
            current += 1
            n_in_bin = 0
            goal = (math.floor(n_so_far / part + 1e-9) + 1) * part  # the next end of a part
    if 0 < n_in_bin < MIN_IN_BIN:  # too few remain for a bin: they join the one before
        bin_of_level[bin_of_level == current] = max(current - 1, 0)
    return bin_of_level[level_of_value]


def _gap_covariance(
    truth: Floats, surprise: Floats, bin_code: Integers, units: Integers | None
) -> tuple[Floats, float]:
    """Estimate the covariance matrix of the gaps of k bins.

    Args:
        truth: 1 where the verdict is right, else 0; (n,). surprise: truth - probability; (n,).
        bin_code: the bin of each item. units: its unit, 0 to G - 1, or None if independent.

    Returns:
        The covariance, (k, k), and its degrees of freedom.
    """
    sizes = np.bincount(bin_code)
    in_bin = indicator_matrix(bin_code)  # (k, n)
    smoothed = (in_bin @ truth + 1) / (sizes + 2)  # so that a bin with all right varies, too
    variance = smoothed * (1 - smoothed) / sizes
    if units is None:
        return np.diag(variance), math.inf
    # What each unit adds to each gap. The sum of the products over units is the covariance, as the
    # gap of a bin is the sum of what all units add to it
    gap = in_bin @ surprise / sizes
    of_unit = np.zeros((int(units.max()) + 1, len(sizes)))  # (G, k)
    np.add.at(of_unit, (units, bin_code), (surprise - gap[bin_code]) / sizes[bin_code])
    n_units = len(of_unit)
    covariance = of_unit.T @ of_unit * n_units / max(n_units - 1, 1)
    # Raise variances to at least those of independent items
    shortfall = np.maximum(variance - np.diag(covariance), 0)
    return covariance + np.diag(shortfall), degrees_of_freedom(np.bincount(units))


def _p_of_perfect_calibration(
    stated: Floats,
    surprise: Floats,
    bin_code: Integers,
    units: Integers | None,
    n_resamples: int,
    rng: np.random.Generator,
) -> float:
    """Estimate the probability that a perfectly calibrated judge has as large a plain error.

    With independent items, truths are drawn from the stated probabilities. With groups, the sign of
    all surprises of a group is drawn, since either sign is equally likely.

    Args:
        stated: the probability of each verdict; (n,).
        surprise, bin_code, units: as in `_gap_covariance`; (n,).
    """
    weighted_gaps = indicator_matrix(bin_code) / len(stated)  # (k, n)
    # A bin's gap times its weight is the sum of its surprises over n
    plain = np.abs(weighted_gaps @ surprise).sum()
    n_as_large = 0
    for start in range(0, n_resamples, MIN_BLOCK):  # in blocks, to bound the memory
        size = min(MIN_BLOCK, n_resamples - start)
        if units is None:
            drawn = (rng.random((len(stated), size)) < stated[:, None]) - stated[:, None]
        else:
            signs = rng.choice([-1.0, 1.0], size=(units.max() + 1, size))  # (G, size)
            drawn = signs[units] * surprise[:, None]
        errors = np.abs(weighted_gaps @ drawn).sum(axis=0)  # (size,)
        n_as_large += int((errors >= plain - 1e-12).sum())
    return (n_as_large + 1) / (n_resamples + 1)  # the judge itself counts as one draw
