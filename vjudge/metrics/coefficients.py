"""Coefficients of agreement as functions of weights, for thousands of resamples at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Literal

import numpy as np

from vjudge.metrics.array_types import Column, Floats, Weights
from vjudge.metrics.cells import count_matrix, indicator_matrix

MAX_CELLS = 50_000_000  # of a table of rows by levels


@dataclass(frozen=True)
class Tally:
    """Distinct rows of ratings, and how often each level occurs in each of them."""

    ratings: Floats  # (rows, raters), NaN where missing
    levels: Floats  # (levels,), ascending, then those that nobody gave
    counts: Floats  # (rows, levels)
    size: Floats  # (rows,): ratings of each row, 2 or more

    @classmethod
    def of(cls, ratings: Floats, scale: Sequence = ()) -> Tally:
        """Of distinct rows of ratings, and of all scores that could have been given."""
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
    def value(self) -> Floats:
        """The levels less their mean, so that squares lose no digits."""
        return self.levels - self.levels.mean() if len(self.levels) else self.levels

    def within(self, value: Floats) -> Floats:
        """The sum of squares around each row's mean, (rows, r), from values (levels, r)."""
        return self.counts @ value**2 - (self.counts @ value) ** 2 / self.size[:, None]


def krippendorff_alpha(
    tally: Tally, weights: Weights, *, level: Literal["nominal", "ordinal", "interval"]
) -> Floats:
    """1 - (n - 1) / n times the disagreement within items over that of all n ratings."""
    of_level = tally.counts.T @ weights  # (levels, replicates)
    n = of_level.sum(axis=0)
    size = tally.size
    of_item = weights * (size / np.maximum(size - 1, 1))[:, None]
    if level == "nominal":
        # The unequal pairs of an item over its size: a sum of squares of categories
        n_equal = (tally.counts**2).sum(axis=1) / np.maximum(size, 1)
        within = (size - n_equal) @ of_item
        total = n - (of_level**2).sum(axis=0) / n
    elif level == "ordinal":
        # The value of a level is its midrank among all ratings of the replicate
        midrank = np.cumsum(of_level, axis=0) - of_level / 2 - n / 2
        within = (tally.within(midrank) * of_item).sum(axis=0)
        total = (of_level * midrank**2).sum(axis=0)
    else:
        value = tally.value
        within = tally.within(value[:, None])[:, 0] @ of_item
        total = value**2 @ of_level - (value @ of_level) ** 2 / n
    return 1 - (n - 1) / n * within / _positive(total)


def icc_of_one(tally: Tally, weights: Weights) -> Floats:
    """ICC(1,1): of one rating, one-way, with the mean size of an item for unequal ones."""
    value = tally.value
    of_level = tally.counts.T @ weights
    n = of_level.sum(axis=0)
    items = weights.sum(axis=0)
    total = value**2 @ of_level - (value @ of_level) ** 2 / n
    within = tally.within(value[:, None])[:, 0] @ weights
    between = (total - within) / (items - 1)  # mean squares
    within = within / (n - items)
    raters = (n - tally.size**2 @ weights / n) / (items - 1)
    return (between - within) / _positive(between + (raters - 1) * within)


def icc_of_mean(tally: Tally, weights: Weights, *, absolute: bool) -> Floats:
    """ICC(2,k), of absolute agreement, or ICC(3,k): of the mean of k raters who saw all items."""
    complete = ~np.isnan(tally.ratings).any(axis=1)
    x = tally.ratings[complete]  # (rows, k)
    k = x.shape[1]
    if k < 2 or not len(x):
        return np.full(weights.shape[1], np.nan)
    x = x - x.mean()
    w = weights[complete]
    n = w.sum(axis=0)
    mean_of_rater = x.T @ w / n  # (k, replicates)
    grand = mean_of_rater.mean(axis=0)
    of_items = k * (x.mean(axis=1) ** 2 @ w - n * grand**2)
    of_raters = n * ((mean_of_rater - grand) ** 2).sum(axis=0)
    total = (x**2).sum(axis=1) @ w - n * k * grand**2
    items = of_items / (n - 1)
    error = (total - of_items - of_raters) / ((n - 1) * (k - 1))
    bias = (of_raters / (k - 1) - error) / n  # of raters, which counts in absolute agreement
    return (items - error) / _positive(items + absolute * bias)


def cohen_kappa(tally: Tally, weights: Weights, *, quadratic: bool) -> Floats:
    """The mean kappa over pairs of raters who share items and have one."""
    return mean_of_defined(kappas_of_pairs(tally, weights, quadratic=quadratic))


def mean_of_defined(values: Column) -> Floats:
    """The mean along the first axis of those that are not NaN; NaN where none is."""
    defined = (~np.isnan(values)).sum(axis=0)
    return np.nansum(values, axis=0) / np.where(defined, defined, np.nan)


def kappas_of_pairs(tally: Tally, weights: Weights, *, quadratic: bool) -> Floats:
    """Cohen's kappa, or quadratic kappa, of each pair who share items: (pairs, replicates).

    NaN where both gave one category alone.
    """
    kappas = []
    for x, y in combinations(tally.ratings.T, 2):
        both = ~np.isnan(x + y)
        if not both.any():
            continue
        levels, code = np.unique([x[both], y[both]], return_inverse=True)
        x_code, y_code = code.reshape(2, -1)
        with np.errstate(invalid="ignore", divide="ignore"):
            w = weights[both] / weights[both].sum(axis=0)
        x_margin = indicator_matrix(x_code, len(levels)) @ w  # (levels, replicates)
        y_margin = indicator_matrix(y_code, len(levels)) @ w
        gap = levels[:, None] - levels
        distance = gap**2 if quadratic else (gap != 0).astype(float)
        expected = (x_margin * (distance @ y_margin)).sum(axis=0)
        kappas.append(1 - distance[x_code, y_code] @ w / _positive(expected))
    return np.reshape(kappas, (-1, weights.shape[1]))


def gwet(tally: Tally, weights: Weights, *, quadratic: bool) -> Floats:
    """Gwet's AC1, or AC2 with quadratic weights of the scale and what occurs."""
    q = len(tally.levels)
    size = tally.size
    share = weights / weights.sum(axis=0)
    prevalence = (tally.counts / size[:, None]).T @ share  # (levels, replicates)
    credit = np.eye(q)  # how far two levels agree, 0 to 1
    if quadratic:
        credit = 1 - ((tally.levels[:, None] - tally.levels) / np.ptp(tally.levels)) ** 2
    agreeing = (tally.counts * (tally.counts @ credit - 1)).sum(axis=1) / (size * (size - 1))
    chance = credit.sum() * (prevalence * (1 - prevalence)).sum(axis=0) / (q * (q - 1))
    return (agreeing @ share - chance) / (1 - chance)


COEFFICIENTS: dict[str, Callable[[Tally, Weights], Floats]] = {
    "alpha_nominal": partial(krippendorff_alpha, level="nominal"),
    "alpha_ordinal": partial(krippendorff_alpha, level="ordinal"),
    "alpha_interval": partial(krippendorff_alpha, level="interval"),
    "icc": icc_of_one,
    "icc_2k": partial(icc_of_mean, absolute=True),
    "icc_3k": partial(icc_of_mean, absolute=False),
    "cohen_kappa": partial(cohen_kappa, quadratic=False),
    "quadratic_kappa": partial(cohen_kappa, quadratic=True),
    "gwet_ac1": partial(gwet, quadratic=False),
    "gwet_ac2": partial(gwet, quadratic=True),
}


def _positive(denominator: Floats) -> Floats:
    """NaN where a denominator is nothing but rounding."""
    return np.where(denominator > 1e-12 * np.nanmax(denominator, initial=0), denominator, np.nan)
