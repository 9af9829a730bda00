"""Shares of cases, a row each, with Wilson's interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vjudge.metrics.array_types import Column
from vjudge.metrics.caveats import add_caveats, unequal_group_caveats, warn_of_rows
from vjudge.metrics.columns import check_options
from vjudge.metrics.groups import group_codes
from vjudge.metrics.intervals import INTERVAL
from vjudge.metrics.wilson import Share, mean_share_interval


def shares(
    rows: Sequence[tuple[Any, NDArray[Any], NDArray[Any]]],
    *,
    groups: Column | None,
    unit: str,
    confidence: float = 0.95,
    index: str | Sequence[str] = "statistic",
) -> pd.DataFrame:
    """Shares of one sample, with Wilson's interval at the effective number of cases.

    Args:
        rows: a name, and gain and weight of each of n cases, 0 <= gain <= weight; the share is the
            sum of gains over that of weights. Of shape (k, n) they are the shares of k categories,
            and the row is their plain mean.
        groups: of each case, or None. unit: what a case is.

    Returns:
        Columns as `tabulate`. A share of one case or one group has no interval, nor has a mean over
        such a category; it is a caveat.

    The effective number is p (1 - p) over the variance of the share, by a jackknife over groups,
    and at most that of independent cases (of pairs, where a case of weight w is w of them); then
    Student's t, with as many degrees of freedom as equal groups of that weight would have, takes
    the place of the normal quantile. A mean of shares has the bounds of the same score test, so
    that a category where all are right is not certain. Coverage: figures/validity_numbers.csv.

    Source: Wilson, JASA 22 (1927), 209-212; Korn and Graubard, Survey Methodology 24 (1998); for
    means Yan and Su, Statistics in Biopharmaceutical Research 2 (2010), 329-335.
    """
    check_options(confidence=confidence)
    # 1) which cases count in any row, and their groups
    cases = []
    for _, gain, weight in rows:
        weights = np.atleast_2d(np.asarray(weight, dtype=float))  # (k, n)
        cases.append((np.where(weights > 0, np.asarray(gain, dtype=float), 0.0), weights))
    used = np.any([weights.any(axis=0) for _, weights in cases], axis=0)
    codes = group_codes(groups, used)
    grouped = groups is not None
    # 2) a line a row
    lines = []
    for gains, weights in cases:
        categories = []
        for gain, weight in zip(gains[:, used], weights[:, used], strict=True):
            categories.append(Share.of(gain, weight, codes, grouped=grouped))
        n = int(weights.any(axis=0).sum())
        lines.append([*mean_share_interval(categories, confidence), n, len(used) - n])
    names = pd.Index([row[0] for row in rows]).set_names(index)
    table = pd.DataFrame(lines, names, [*INTERVAL, "n", "missing"])
    # 3) method and caveats
    undefined = table["estimate"].isna()
    warn_of_rows(names[undefined], "undefined (nothing to count)")
    cases_of = f"{len(codes)} {unit}"
    if grouped:
        sizes = np.bincount(codes)
        cases_of = f"the effective number of {unit}, of {cases_of} in {len(sizes)} groups"
        add_caveats(table, unequal_group_caveats(sizes))
    table.attrs["method"] = f"{confidence:.0%} Wilson intervals over {cases_of}"
    single = names[~undefined & table["low"].isna()]
    if len(single):
        kind = "group" if grouped else "item"
        listing = ", ".join(map(str, single))
        add_caveats(table, [f"{listing}: no interval, since one {kind} is all there is of it"])
    return table
