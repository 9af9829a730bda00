"""Code the unit of resampling of each item: its group, its pair of crossed groups, or itself."""

from __future__ import annotations

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Booleans, Column, Groups, Integers, Ratings
from vjudge.metrics.columns import group_columns, list_cells
from vjudge.metrics.resampling import Design

MIN_CROSSED = 5  # units of each kind in a crossed design


def group_codes(groups: Groups, used: Booleans, *, name: str = "groups") -> Integers:
    """Number the groups of the used items 0..G-1, in order of appearance.

    Args:
        groups: the group of each of n items; None makes each item a group of its own.
        used: which items count, shape (n,).
        name: what the groups are called in errors.

    Returns:
        The code of each used item.

    Raises:
        ValueError: a used item has no group, or groups has two columns.

    >>> group_codes(["x", "y", "x", None], np.array([False, True, True, False])).tolist()
    [0, 1]
    """
    if groups is None:
        return np.arange(int(used.sum()))
    if len(group_columns(groups)) > 1:
        raise ValueError(
            "groups has two columns, and this number takes one: give the one that is new"
        )
    labels = list(groups)
    codes = pd.factorize(pd.Series(labels, dtype=object))[0]  # -1 where a label is missing
    bad = np.flatnonzero(used & (codes < 0))
    if bad.size:
        raise ValueError(
            f"{name} are missing for scored items: {list_cells(bad, labels)}; name them, or leave"
            " these out"
        )
    # Number anew, without the groups that only unused items have.
    return np.asarray(pd.factorize(codes[used])[0], dtype=np.int64)


def unit_codes(groups: Groups, index: pd.Index, used: Booleans) -> Integers:
    """Number the groups of the used items of a Series or a DataFrame, see `group_codes`.

    Args:
        groups: a Series that holds a group for each label of the index; or one group per item, in
            the order of the index; or None.
        index: the items.
        used: which items count, in the order of the index.

    Raises:
        ValueError: there is not one group per item, or as in `group_codes`.
    """
    if isinstance(groups, pd.Series):
        groups = groups.reindex(index)
    if groups is not None and len(groups) != len(index):
        raise ValueError(f"groups has {len(groups)}, and there are {len(index)} items")
    return group_codes(groups, used)


def design_of(cell: Integers, groups: Groups, used: Booleans) -> Design:
    """Make the design of the used items.

    Args:
        cell: the cell of each used item.
        groups: the groups of all n items: None, a column, or two crossed columns.
        used: which items count, shape (n,).

    Raises:
        ValueError: a crossed design has fewer than five units of a kind.
    """
    codes = [group_codes(column, used) for column in group_columns(groups)]
    # The codes of no, one or two groupings, filled up with None
    primary, crossing = (*codes, None, None)[:2]
    design = Design(cell, primary, missing=int((~used).sum()), crossing=crossing)
    # A single unit is no error: `tabulate` then leaves the intervals NaN.
    if crossing is not None and 1 < design.n_units < MIN_CROSSED:
        raise ValueError(
            f"groups are crossed, and one of them has {design.n_units} units: new ones can be"
            f" spoken for from {MIN_CROSSED} on; give the other alone, and say that results"
            " are given these"
        )
    return design


def groups_from_ids(
    scores: Ratings, groups: Groups, ids: Column | None = None
) -> tuple[Groups, list[str]]:
    """Group rows that share an id, where no groups are given.

    Args:
        scores: a column or a table of scores. The text labels of a pandas index are ids; numbers
            only count rows.
        groups: returned as they are, unless None.
        ids: the id of each row; None takes those of `scores`, if any.

    Returns:
        The groups, or None where each row has an id of its own; and a caveat that rows of one id
        are resampled together, if they are.

    >>> groups_from_ids([5, 4, 3], None, ["a", "a", "b"])
    (['a', 'a', 'b'], ['3 rows have 2 ids: rows of one id are resampled together, as one group'])
    """
    if ids is None and isinstance(scores, pd.Series | pd.DataFrame):
        if pd.api.types.is_string_dtype(scores.index):
            ids = scores.index.to_numpy(dtype=object)
    if groups is not None or ids is None:
        return groups, []
    n_ids = pd.Series(list(ids), dtype=object).nunique()
    if n_ids == len(ids):
        return None, []
    return list(ids), [
        f"{len(ids):,} rows have {n_ids:,} ids: rows of one id are resampled together, as one group"
    ]


def balanced_group_caveats(groups: Groups, used: Booleans) -> list[str]:
    """Return a caveat where all groups have equally many rows, two or more; else an empty list.

    Such rows may be outputs of the same systems; the intervals do not generalize to new systems.
    """
    columns = group_columns(groups)
    if len(columns) != 1:
        return []
    sizes = np.bincount(group_codes(columns[0], used))
    if not len(sizes) or sizes[0] < 2 or len(set(sizes)) > 1:
        return []
    return [
        f"each group has {sizes[0]} rows: if they are of the same {sizes[0]} systems, intervals and"
        " tests are given these systems; groups=[group, system] speaks for new ones"
    ]
