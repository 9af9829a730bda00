"""The unit of resampling of each item: read, checked and coded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Column, Groups, Integers
from vjudge.metrics.columns import factors, listed
from vjudge.metrics.resampling import Design

MIN_CROSSED = 5  # units of each kind in a crossed design


def group_codes(groups: Any, used: np.ndarray, *, name: str = "groups") -> Integers:
    """Codes 0..G-1 of the groups of the used items; None makes each item a group.

    A used item without a group is a ValueError.
    """
    if groups is None:
        return np.arange(int(used.sum()))
    if len(factors(groups)) > 1:
        raise ValueError(
            "groups has two columns, and this number takes one: give the one that is new"
        )
    labels = list(groups)
    codes = pd.factorize(pd.Series(labels, dtype=object))[0]
    bad = np.flatnonzero(used & (codes < 0))
    if bad.size:
        raise ValueError(
            f"{name} are missing for scored items: {listed(bad, labels)}; name them, or leave these"
            " out"
        )
    return np.asarray(pd.factorize(codes[used])[0], dtype=np.int64)


def unit_codes(groups: Groups, index: pd.Index, used: np.ndarray) -> Integers:
    """`group_codes` of items of an index: groups are a Series by it, or one of each in order."""
    if isinstance(groups, pd.Series):
        groups = groups.reindex(index)
    if groups is not None and len(groups) != len(index):
        raise ValueError(f"groups has {len(groups)}, and there are {len(index)} items")
    return group_codes(groups, used)


def design_of(cell: np.ndarray, groups: Groups, used: np.ndarray) -> Design:
    """The design of the used items, from their cells and the groups of all, if there are any.

    ValueError: a crossed design with fewer than five units of a kind.
    """
    kinds = [group_codes(column, used) for column in factors(groups)]
    primary, crossing = (*kinds, None, None)[:2]
    design = Design(cell, primary, int((~used).sum()), crossing)
    if crossing is not None and 1 < design.n_units < MIN_CROSSED:
        raise ValueError(
            f"groups are crossed, and one of them has {design.n_units} units: new ones can be"
            f" spoken for from {MIN_CROSSED} on; give the other alone, and say that results"
            " are given these"
        )
    return design


def groups_from_ids(
    scores: Any,
    groups: Groups,
    ids: Column | None = None,
) -> tuple[Groups, list[str]]:
    """Groups of rows that share an id, and a caveat that says so, where groups are not given.

    Ids are those given, or the text labels of a Series' index; a numbered index names rows.
    """
    if ids is None and isinstance(scores, pd.Series | pd.DataFrame):
        if pd.api.types.is_string_dtype(scores.index):
            ids = scores.index.to_numpy(dtype=object)
    if groups is not None or ids is None:
        return groups, []
    n = pd.Series(list(ids), dtype=object).nunique()
    if n == len(ids):
        return None, []
    return list(ids), [
        f"{len(ids):,} rows have {n:,} ids: rows of one id are resampled together, as one group"
    ]


def balanced_group_caveats(groups: Groups, used: np.ndarray) -> list[str]:
    """The caveat that rows of equally many a group may be outputs of the same systems."""
    kinds = factors(groups)
    if len(kinds) != 1:
        return []
    sizes = np.bincount(group_codes(kinds[0], used))
    if not len(sizes) or sizes[0] < 2 or len(set(sizes)) > 1:
        return []
    return [
        f"each group has {sizes[0]} rows: if they are of the same {sizes[0]} systems, intervals and"
        " tests are given these systems; groups=[group, system] speaks for new ones"
    ]
