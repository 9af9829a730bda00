"""Tabulate shares of cases, a row each, with Wilson score intervals."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Column
from vjudge.metrics.caveats import add_caveats, unequal_group_caveats, warn_of_rows
from vjudge.metrics.columns import check_options
from vjudge.metrics.groups import group_codes
from vjudge.metrics.intervals import INTERVAL
from vjudge.metrics.wilson import Share, mean_share_interval


def shares(
    rows: Sequence[tuple[Hashable, np.ndarray, np.ndarray]],
    *,
    groups: Column | None,
    unit: str,
    confidence: float = 0.95,
    index: str | Sequence[str] = "statistic",
) -> pd.DataFrame:
    """Estimate shares of one sample, with Wilson's score interval at the effective number of cases.

    Args:
        rows: one tuple (name, gains, weights) per row of the table. Each of n cases has a gain and
            a weight, with 0 <= gain <= weight; the share is the sum of gains over the sum of
            weights. Where gains and weights have shape (k, n) instead of (n,), the row is the plain
            mean of the shares of k categories.
        groups: the group of each case; None where cases are independent.
        unit: what cases are called in the caption, such as "items".
        confidence: coverage of the intervals, in (0, 1).
        index: the name of the table's index, or of each of its levels.

    Returns:
        One row per share; columns estimate, low, high, n (the cases that count, whose weight is
        above 0) and missing (the other cases). A share of a single case or group has no interval,
        nor has a mean over such a share; a caveat names these rows.

    The effective number of cases is p (1 - p) over the variance of the share: the variance of
    independent cases or the one by a jackknife over groups, whichever is larger. A case of weight
    w > 1 is w pairs, and the effective number is at most the number of all pairs. With groups,
    Student's t quantile replaces the normal one; its degrees of freedom are the effective number of
    groups minus 1. A mean of shares is bounded by the same score test, so that a category in which
    all cases are right is not taken for certain. Coverage: figures/validity_numbers.csv.

    Source: Wilson, JASA 22 (1927), 209-212; Korn and Graubard, Survey Methodology 24 (1998); for
    means Yan and Su, Statistics in Biopharmaceutical Research 2 (2010), 329-335.

    >>> right = np.array([1, 1, 1, 0])
    >>> table = shares([("right", right, np.ones(4))], groups=None, unit="items")
    >>> table.round(2).iloc[0].tolist()
    [0.75, 0.3, 0.95, 4.0, 0.0]
    """
    check_options(confidence=confidence)
    # 1) The cases that count in any row, and the unit of each. `cases` has the gains and weights of
    #    each row.
    cases = []
    for _, gain, weight in rows:
        weights = np.atleast_2d(np.asarray(weight, dtype=float))  # (categories, cases)
        gains = np.where(weights > 0, np.asarray(gain, dtype=float), 0.0)
        cases.append((gains, weights))
    used = np.any([weights.any(axis=0) for _, weights in cases], axis=0)
    units = group_codes(groups, used)
    is_grouped = groups is not None

    # 2) The share of each category, and their mean
    estimates: list[list[float]] = []
    for gains, weights in cases:
        categories = []
        for gain, weight in zip(gains[:, used], weights[:, used], strict=True):
            categories.append(Share.of(gain, weight, units, grouped=is_grouped))
        n = int(weights.any(axis=0).sum())
        missing = len(used) - n
        estimates.append([*mean_share_interval(categories, confidence), n, missing])
    names = pd.Index([name for name, _, _ in rows]).set_names(index)
    table = pd.DataFrame(estimates, names, [*INTERVAL, "n", "missing"])

    # 3) Caption and caveats
    undefined = table["estimate"].isna()
    warn_of_rows(names[undefined], "undefined (nothing to count)")
    caption = f"{len(units)} {unit}"
    if is_grouped:
        sizes = np.bincount(units)
        caption = f"the effective number of {unit}, of {caption} in {len(sizes)} groups"
        add_caveats(table, unequal_group_caveats(sizes))
    table.attrs["method"] = f"{confidence:.0%} Wilson intervals over {caption}"
    single = names[~undefined & table["low"].isna()]
    if len(single):
        kind = "group" if is_grouped else "item"
        listing = ", ".join(map(str, single))
        add_caveats(table, [f"{listing}: no interval, since one {kind} is all there is of it"])
    return table
