"""Conformal prediction: intervals of single scores that hold the true score in a given share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Groups
from vjudge.metrics.caveats import add_caveats
from vjudge.metrics.columns import check_items, check_options
from vjudge.metrics.groups import unit_codes
from vjudge.metrics.labels import check_random
from vjudge.metrics.shares import shares


def conformal_intervals(
    expected: pd.Series,
    truth: pd.Series,
    *,
    spread: pd.Series | None = None,
    confidence: float = 0.9,
) -> pd.DataFrame:
    """Put an interval around each score that holds the true score in a share `confidence` of items.

    The coverage holds whatever the judge's errors are.

    Args:
        expected: the judge's (expected) score of each item, NaN where there is none.
        truth: the true score by the same index, NaN where it is unknown. The known ones calibrate
            the intervals, and must be a random sample of all items.
        spread: the standard deviation of the judge's distribution over scores; intervals are then
            wider where the judge is less sure. None: all intervals have one width.
        confidence: the share of items whose interval holds the true score, in (0, 1).

    Returns:
        One row per item: `estimate`, `low`, `high` (NaN without a score).

    Raises:
        ValueError: too few known items for the confidence (95 % takes 19 or more), or known items
            that are evidently not a random sample.

    >>> rng = np.random.default_rng(0)
    >>> truth = pd.Series(rng.normal(3, 1, size=1000))
    >>> judge = truth + rng.normal(0, 0.5, size=1000)
    >>> table = conformal_intervals(judge, truth.where(truth.index < 200))
    >>> bool(0.85 < truth.between(table["low"], table["high"]).mean() < 0.95)
    True

    Source: split conformal prediction, Vovk et al. (2005); locally weighted, Lei et al. (JASA
    2018).
    """
    errors = StandardisedErrors.of(expected, truth, spread, confidence)
    n = len(errors.size)
    # The half width, divided by the scale, is the error of this rank among the n known ones.
    rank = _next_whole((n + 1) * confidence)  # counted from 1
    half_width = errors.scale * np.sort(errors.size)[rank - 1]
    estimate = expected.astype(float)
    bounds = {"estimate": estimate, "low": estimate - half_width, "high": estimate + half_width}
    table = pd.DataFrame(bounds)
    table.attrs["method"] = f"{confidence:.0%} conformal intervals by {n} true scores"
    add_caveats(table, errors.caveats)
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
    """Count how often an interval of `conformal_intervals` holds the true score, by category.

    Args:
        expected, truth, spread, confidence: as in `conformal_intervals`.
        by: the category of each item; None gives the row "all" alone.
        groups: the sampling unit of each item, such as its image; None: each item is a unit.

    Returns:
        A row "all" and one per category. Columns: `share` of known items inside an interval that is
        made from the other known items; `low` and `high`, its 95 % Wilson interval; and `n`. If a
        category's interval lies below `confidence`, one width does not suit all categories.

    Source: as `conformal_intervals`.

    >>> truth = pd.Series(np.arange(40.0))
    >>> conformal_coverage(truth + truth % 2, truth, by=truth % 2)["share"].round(2).tolist()
    [1.0, 1.0, 1.0]
    """
    errors = StandardisedErrors.of(expected, truth, spread, confidence)
    n = len(errors.size)
    ordered = np.sort(errors.size)
    # Leave each item out in turn: its interval is made from the other n - 1 errors, of which it
    # takes the one of rank r = ceil(n * confidence). Among all n errors, this is the one of rank
    # r + 1 if the item's own error is among the r smallest, else the one of rank r.
    rank = min(_next_whole(n * confidence), n - 1)
    limit = np.where(errors.size <= ordered[rank - 1], ordered[rank], ordered[rank - 1])
    inside = errors.size <= limit
    # Each row: its name, which items are inside, and which items count
    rows = [("all", inside, np.ones(n))]
    if by is not None:
        categories = by[inside.index]
        for name in sorted(categories.dropna().unique()):
            rows.append((name, inside & (categories == name), categories == name))
    units = None
    if groups is not None:
        is_known = expected.index.isin(inside.index)
        units = unit_codes(groups, expected.index, is_known)
    coverage = shares(rows, groups=units, unit="items").rename(columns={"estimate": "share"})
    add_caveats(coverage, errors.caveats)
    return coverage.drop(columns="missing")


@dataclass(frozen=True)
class StandardisedErrors:
    """A judge's absolute errors, each divided by the scale of its item."""

    scale: pd.Series  # of each item: 1, or its spread plus a tenth of the mean spread
    size: pd.Series  # of each item with a score and a truth: the absolute error over the scale
    caveats: list[str]  # on whether the items with a truth are a random sample

    @classmethod
    def of(
        cls, expected: pd.Series, truth: pd.Series, spread: pd.Series | None, confidence: float
    ) -> StandardisedErrors:
        """Compute the errors, and check the arguments as `conformal_intervals` says.

        Raises:
            ValueError: too few known items, or known items that are evidently not a random sample.
        """
        check_options(confidence=confidence)
        check_items(expected=expected, truth=truth)
        expected, truth = expected.astype(float).align(truth.astype(float), join="left")
        scale = pd.Series(1.0, expected.index)
        if spread is not None:
            scale = spread[expected.index].astype(float)
            if not scale.mean() > 0:
                raise ValueError("spread is 0 in all items: leave it out")
            scale += scale.mean() / 10  # so that a judge that is certain and wrong has a width
        size = ((truth - expected).abs() / scale).dropna()
        scored = expected.dropna()
        is_known = scored.index.isin(size.index)
        caveats = check_random(scored.to_numpy(), is_known, np.arange(len(scored)))
        # Of n errors the one of rank (n + 1) * c must exist: (n + 1) * c <= n, so n >= c / (1 - c)
        minimum = _next_whole(confidence / (1 - confidence))
        if len(size) < minimum:
            raise ValueError(
                f"{len(size)} items have a score and a truth: {confidence:.0%} takes {minimum} or"
                " more"
            )
        return cls(scale, size, caveats)


def _next_whole(number: float) -> int:
    """Round up to a whole number, but not by a rounding error, as in 18.000000000000004."""
    return math.ceil(round(number, 9))
