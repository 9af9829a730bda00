"""Coefficients of agreement between raters, for thousands of weighted replicates at once.

Each coefficient is a function of a `Tally` and of weights, shape (rows, replicates), and returns
one value per replicate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from vjudge.metrics.array_types import Column, Floats, Weights
from vjudge.metrics.cells import count_matrix, indicator_matrix

MAX_CELLS = 50_000_000  # of a table of rows by levels, so that it fits into memory


@dataclass(frozen=True)
class Tally:
    """Distinct rows of ratings, and how often each row has each level.

    Attributes:
        ratings: shape (rows, raters), NaN where missing.
        levels: the distinct ratings in ascending order, then the levels of the scale that nobody
            gave; shape (levels,).
        counts: how often each row has each level; shape (rows, levels).
        size: how many ratings each row has, at least 2; shape (rows,).
    """

    ratings: Floats
    levels: Floats
    counts: Floats
    size: Floats

    @classmethod
    def of(cls, ratings: Floats, scale: Sequence[float] = ()) -> Tally:
        """Count distinct rows of ratings, shape (rows, raters), over all levels of the scale.

        Raises:
            ValueError: rows by levels are more than `MAX_CELLS`.
        """
        present = ~np.isnan(ratings)
        levels, code = np.unique(ratings[present], return_inverse=True)
        levels = np.concatenate([levels, np.setdiff1d(np.asarray(scale, dtype=float), levels)])
        shape = (len(ratings), len(levels))
        if math.prod(shape) > MAX_CELLS:
            raise ValueError(
                f"{len(ratings):,} different rows of ratings have {len(levels):,} levels, too many"
                " for a table of both: round them to a scale, or compare raters by correlate"
            )
        counts = count_matrix(np.nonzero(present)[0], code, shape).toarray()
        return cls(ratings, levels, counts, counts.sum(axis=1))

    @property
    def centered_levels(self) -> Floats:
        """The levels minus their mean, so that squares lose no digits."""
        return self.levels - self.levels.mean() if len(self.levels) else self.levels

    def squares_within(self, values: Floats) -> Floats:
        """Sum the squared distances of each row's ratings from their mean.

        Args:
            values: the value of each level, in each of r replicates; shape (levels, r).

        Returns:
            Shape (rows, r).
        """
        return self.counts @ values**2 - (self.counts @ values) ** 2 / self.size[:, None]

    def pairable(self, weights: Weights) -> Any:
        """Multiply the rows' weights by size / (size - 1), as Krippendorff's alpha does.

        A row of m ratings has m (m - 1) ordered pairs, each of which alpha counts 1 / (m - 1)
        times; the squared distances of all pairs sum to 2 m times the squares around the mean.
        """
        return weights * (self.size / (self.size - 1))[:, None]


# --- Krippendorff's alpha: 1 - observed / expected disagreement


def _alpha(n: Floats, within: Floats, total: Floats) -> Floats:
    """Compute alpha from the sums of squares within items and around the mean of all n ratings.

    Observed disagreement is 2 within / n, expected disagreement 2 total / (n - 1).
    """
    return 1 - (n - 1) / n * within / _positive(total)


def alpha_nominal(tally: Tally, weights: Weights) -> Floats:
    """Compute Krippendorff's alpha for categories: two ratings differ by 0 or 1."""
    level_counts = tally.counts.T @ weights  # (levels, replicates)
    n = level_counts.sum(axis=0)
    # The sum of squares of indicators: n minus the sum over categories of n_c^2 / n.
    # An item with ratings a, a, b: 3 - (4 + 1) / 3 = 4/3.
    within = tally.size - (tally.counts**2).sum(axis=1) / tally.size
    total = n - (level_counts**2).sum(axis=0) / n
    return _alpha(n, within @ tally.pairable(weights), total)


def alpha_ordinal(tally: Tally, weights: Weights) -> Floats:
    """Compute Krippendorff's alpha for ranks: two ratings differ by their midranks' distance^2."""
    level_counts = tally.counts.T @ weights  # (levels, replicates)
    n = level_counts.sum(axis=0)
    # A level's midrank among all ratings of the replicate, minus the mean rank
    midrank = np.cumsum(level_counts, axis=0) - level_counts / 2 - n / 2
    within = tally.squares_within(midrank) * tally.pairable(weights)  # (rows, replicates)
    total = (level_counts * midrank**2).sum(axis=0)
    return _alpha(n, within.sum(axis=0), total)


def alpha_interval(tally: Tally, weights: Weights) -> Floats:
    """Compute Krippendorff's alpha for numbers: two ratings differ by their distance^2."""
    n, _, total = _sums_of_squares(tally, weights)
    within = tally.squares_within(tally.centered_levels[:, None])[:, 0]
    return _alpha(n, within @ tally.pairable(weights), total)


def _sums_of_squares(tally: Tally, weights: Weights) -> tuple[Floats, Floats, Floats]:
    """Count the ratings, and sum their squares around item means and around the grand mean.

    Returns:
        The number of ratings, the sum within items and the total sum; shape (replicates,) each.
    """
    values = tally.centered_levels
    level_counts: Any = tally.counts.T @ weights  # (levels, replicates)
    n = level_counts.sum(axis=0)
    within: Any = tally.squares_within(values[:, None])[:, 0] @ weights
    total = values**2 @ level_counts - (values @ level_counts) ** 2 / n
    return n, within, total


# --- Intraclass correlations, from mean squares (MS) of an analysis of variance


def icc_1(tally: Tally, weights: Weights) -> Floats:
    """Compute ICC(1,1), one-way, of a single rating.

    It is (MS between - MS within) / (MS between + (k - 1) MS within), with k the mean number of
    ratings per item, corrected for unequal numbers.
    """
    n, within, total = _sums_of_squares(tally, weights)
    n_items = weights.sum(axis=0)
    ms_between = (total - within) / (n_items - 1)
    ms_within = within / (n - n_items)
    k = (n - tally.size**2 @ weights / n) / (n_items - 1)
    return (ms_between - ms_within) / _positive(ms_between + (k - 1) * ms_within)


def icc_k(tally: Tally, weights: Weights, *, absolute: bool) -> Floats:
    """Compute ICC(2,k) or ICC(3,k), two-way, of the mean of k raters who rated all items.

    ICC(3,k), of consistency, is (MS items - MS error) / MS items. ICC(2,k), of absolute agreement,
    adds (MS raters - MS error) / n to the denominator: raters who differ in their means disagree.

    Args:
        absolute: whether to compute ICC(2,k); else it is ICC(3,k).
    """
    complete = ~np.isnan(tally.ratings).any(axis=1)
    x = tally.ratings[complete]  # (rows, k)
    k = x.shape[1]
    if k < 2 or not len(x):
        return np.full(weights.shape[1], np.nan)
    x = x - x.mean()  # so that squares lose no digits
    w = weights[complete]
    n = w.sum(axis=0)
    rater_means = x.T @ w / n  # (k, replicates)
    grand_mean = rater_means.mean(axis=0)
    # Sums of squares of the two-way table without interaction
    ss_items = k * (x.mean(axis=1) ** 2 @ w - n * grand_mean**2)
    ss_raters = n * ((rater_means - grand_mean) ** 2).sum(axis=0)
    ss_total = (x**2).sum(axis=1) @ w - n * k * grand_mean**2
    ms_items = ss_items / (n - 1)
    ms_error = (ss_total - ss_items - ss_raters) / ((n - 1) * (k - 1))
    denominator = ms_items
    if absolute:
        denominator = ms_items + (ss_raters / (k - 1) - ms_error) / n
    return (ms_items - ms_error) / _positive(denominator)


# --- Kappa and Gwet's coefficients: (observed - chance agreement) / (1 - chance agreement)


def cohen_kappa(tally: Tally, weights: Weights, *, quadratic: bool) -> Floats:
    """Average Cohen's kappa over the pairs of raters for whom it is defined (Light's kappa)."""
    return mean_of_defined(kappas_of_pairs(tally, weights, quadratic=quadratic))


def mean_of_defined(values: Column) -> Floats:
    """Average values along the first axis, without NaN; the mean of no value is NaN."""
    n_defined = (~np.isnan(values)).sum(axis=0)
    return np.nansum(values, axis=0) / np.where(n_defined, n_defined, np.nan)


def kappas_of_pairs(tally: Tally, weights: Weights, *, quadratic: bool) -> Floats:
    """Compute Cohen's kappa of each pair of raters who share items.

    Args:
        tally: the ratings of n items by m raters.
        weights: how often each bootstrap replicate holds each item, shape (items, replicates).
        quadratic: whether a disagreement counts as the squared distance of the two ratings; else
            every disagreement counts as 1.

    Returns:
        Shape (pairs, replicates); NaN where both raters used a single category, the same one, so
        that no disagreement is expected, and in replicates without an item that both rated.
    """
    kappas = []
    for x, y in combinations(tally.ratings.T, 2):
        both = ~np.isnan(x + y)
        if not both.any():
            continue
        levels, code = np.unique([x[both], y[both]], return_inverse=True)
        x_code, y_code = code.reshape(2, -1)
        with np.errstate(invalid="ignore", divide="ignore"):
            # The weight of each item that both rated, summing to 1: (items of both, replicates)
            share = weights[both] / weights[both].sum(axis=0)
        # How often each rater gives each level: (levels, replicates)
        x_margin = indicator_matrix(x_code, len(levels)) @ share
        y_margin = indicator_matrix(y_code, len(levels)) @ share
        gap = levels[:, None] - levels
        disagreement = gap**2 if quadratic else (gap != 0).astype(float)  # (levels, levels)
        observed = disagreement[x_code, y_code] @ share
        # Expected by chance, x' D y in each replicate: (replicates,)
        expected = (x_margin * (disagreement @ y_margin)).sum(axis=0)
        kappas.append(1 - observed / _positive(expected))
    return np.reshape(kappas, (-1, weights.shape[1]))


def gwet(tally: Tally, weights: Weights, *, quadratic: bool) -> Floats:
    """Compute Gwet's AC1, or AC2 with quadratic weights, over all levels of the scale.

    Args:
        quadratic: whether two levels agree by 1 - (distance / range of the scale)^2; else only
            equal levels agree.
    """
    q = len(tally.levels)
    size = tally.size
    share = weights / weights.sum(axis=0)
    # How often each level is given, each item counting once: (levels, replicates)
    prevalence = (tally.counts / size[:, None]).T @ share
    credit = np.eye(q)  # how far two levels agree, 0 to 1
    if quadratic:
        credit = 1 - ((tally.levels[:, None] - tally.levels) / np.ptp(tally.levels)) ** 2
    # How many of a row's ordered pairs of ratings agree. A rating agrees with `counts @ credit`
    # ratings of its row, and one of these is itself, which is no pair.
    pairs_agreeing = (tally.counts * (tally.counts @ credit - 1)).sum(axis=1)
    observed = pairs_agreeing / (size * (size - 1)) @ share
    chance = credit.sum() * (prevalence * (1 - prevalence)).sum(axis=0) / (q * (q - 1))
    return (observed - chance) / (1 - chance)


COEFFICIENTS: dict[str, Callable[[Tally, Weights], Floats]] = {
    "alpha_nominal": alpha_nominal,
    "alpha_ordinal": alpha_ordinal,
    "alpha_interval": alpha_interval,
    "icc": icc_1,
    "icc_2k": partial(icc_k, absolute=True),
    "icc_3k": partial(icc_k, absolute=False),
    "cohen_kappa": partial(cohen_kappa, quadratic=False),
    "quadratic_kappa": partial(cohen_kappa, quadratic=True),
    "gwet_ac1": partial(gwet, quadratic=False),
    "gwet_ac2": partial(gwet, quadratic=True),
}


def _positive(denominator: Floats) -> Floats:
    """Replace denominators that are only rounding errors by NaN.

    Those are at most 1e-12 of the largest denominator of all replicates.
    """
    return np.where(denominator > 1e-12 * np.nanmax(denominator, initial=0), denominator, np.nan)
