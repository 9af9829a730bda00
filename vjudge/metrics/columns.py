"""Columns as they come in, read and checked: scores, groups, verdicts."""

from __future__ import annotations

import math
import numbers
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from vjudge.metrics.resampling import Design, Floats, Integers
from vjudge.records import is_int_at_least, is_missing

Column: TypeAlias = Sequence[Any] | np.ndarray | pd.Series
# People's ratings, items by raters: a frame, a 2-D array, or one list of ratings an item.
Ratings: TypeAlias = pd.DataFrame | np.ndarray | Sequence | pd.Series
# The group of each item (its image, its question), or two of a crossed design: [image, system].
Groups: TypeAlias = Column | Sequence[Column] | pd.DataFrame | None
FEW_RESAMPLES = 100
LEAST_CROSSED = 5  # units of each kind in a crossed design


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the caller outside this package."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("vjudge."):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def check_columns(**columns: Any) -> None:
    """Refuse what is no column, and columns that differ in length or index; None is left out."""
    crossed = factors(columns.get("groups"))
    if len(crossed) == 2:
        del columns["groups"]
        columns |= {"groups[0]": crossed[0], "groups[1]": crossed[1]}
    lengths = {}
    indexes: dict[str, pd.Index] = {}
    for name, column in columns.items():
        if column is None:
            continue
        if isinstance(column, str | bytes) or not hasattr(column, "__len__"):
            kind = type(column).__name__
            raise TypeError(f"{name} must be a sequence, one of each per item, not {kind}")
        lengths[name] = len(column)
        if isinstance(column, pd.DataFrame | pd.Series):
            indexes[name] = column.index
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise ValueError(f"{counts}: give one of each per item")
    for name, index in indexes.items():
        reference = next(iter(indexes))
        if not index.equals(indexes[reference]):
            raise ValueError(
                f"{reference} and {name} have different indexes: align them first, or pass"
                " .to_numpy() if their order is the same"
            )


def factors(groups: Groups) -> list[Any]:
    """The columns of groups: none, one, or the two of a crossed design.

    >>> [len(factors(groups)) for groups in (None, ["a", "b"], [["a", "b"], ["x", "x"]])]
    [0, 1, 2]
    """
    if groups is None:
        return []
    columns: Any = [groups]
    if isinstance(groups, pd.DataFrame):
        columns = [groups[name] for name in groups]
    elif isinstance(groups, list | tuple) and len(groups) == 2:
        if all(isinstance(factor, list | tuple | np.ndarray | pd.Series) for factor in groups):
            columns = list(groups)
    if len(columns) > 2:
        raise ValueError(f"groups has {len(columns)} columns: give one, or two that are crossed")
    return columns


def check_items(**columns: Any) -> None:
    """Refuse columns that are not pandas', with each item once in their index."""
    for name, column in columns.items():
        if not isinstance(column, pd.DataFrame | pd.Series):
            raise TypeError(f"{name} is a {type(column).__name__}: give a Series, a row an item")
        if not column.index.is_unique:
            twice = column.index[column.index.duplicated()][0]
            raise ValueError(f"{name}: item {twice} stands twice in the index; give it one row")


def judges_by_name(judges: Mapping[str, Any] | pd.DataFrame, *, minimum: int = 2) -> dict[str, Any]:
    """Judges' columns by "judge NAME". ValueError: fewer than `least`, or two of one name."""
    names = list(map(str, judges))
    if len(set(names)) < max(len(names), minimum):
        listing = ", ".join(names) or "none"
        number = ("any number", "one or more", "two or more")[minimum]
        raise ValueError(f"judges must be {number}, each with a name of its own, not {listing}")
    return {f"judge {name}": judges[name] for name in judges}


MISSING_TEXTS = (
    "",
    "na",
    "n/a",
    "nan",
    "<na>",
    "null",
    "#n/a",
)  # in any capitals


def is_blank(cell: object) -> bool:
    """Whether a cell holds no rating: None, NaN, NA, or text that stands for them.

    "none" may be an answer, "None" is Python's word for a missing one.

    >>> [is_blank(cell) for cell in (None, float("nan"), " ", "n/a", "NA", "None", "none", 0)]
    [True, True, True, True, True, True, False, False]
    """
    if isinstance(cell, str):
        return cell.strip().casefold() in MISSING_TEXTS or cell == "None"
    return is_missing(cell)


def as_floats(values: Column, *, name: str) -> Floats:
    """Numbers as float64, NaN where missing or blank."""
    dimensions = getattr(values, "ndim", 1)
    if dimensions != 1:
        raise ValueError(f"{name} must have one dimension, not {dimensions}")
    dtype = getattr(values, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iuf":
        values = [math.nan if is_blank(cell) else cell for cell in values]
        bad = [position for position, cell in enumerate(values) if not _is_number(cell)]
        if bad:
            raise TypeError(
                f"{name} has values that are not numbers: {listed(bad, values)}; convert them or"
                " set them to NaN"
            )
    array = np.array(values, dtype=float)
    infinite = np.flatnonzero(np.isinf(array))
    if infinite.size:
        listing = listed(infinite, array)
        raise ValueError(f"{name} has infinite values: {listing}; set them to NaN if missing")
    return array


def zeros_and_ones(column: pd.Series, *, name: str) -> Floats:
    """Truth values, or 1 and 0, as floats, NaN where missing or blank.

    >>> zeros_and_ones(pd.Series([True, 0, None]), name="right").tolist()
    [1.0, 0.0, nan]
    """
    cells = [int(cell) if isinstance(cell, bool | np.bool_) else cell for cell in column]
    values = as_floats(cells, name=name)
    if not np.isin(values[~np.isnan(values)], [0, 1]).all():
        raise ValueError(f"{name} holds other values than 0 and 1")
    return values


def _is_number(cell: object) -> bool:
    return isinstance(cell, numbers.Real) and not isinstance(cell, bool)


def check_scale(measure: str, scale: Any, **columns: Any) -> None:
    """Refuse scores outside of their scale, or of a value head, which have none.

    Args:
        measure: what needs the scale, in words.
        scale: the lowest and the highest score, numbers or arrays of one for each item; NaN where
            scores are unbounded, as in a run's columns `lowest` and `highest`.
        columns: scores, (..., n), NaN where missing.
    """
    lowest, highest = np.asarray(scale, dtype=float)
    for name, column in columns.items():
        values = np.asarray(column, dtype=float)
        present = ~np.isnan(values)
        unbounded = present & np.isnan(lowest + highest)
        if unbounded.any():
            raise ValueError(
                f"{measure} needs a scale, and {int(unbounded.sum())} of {name} have none, as a"
                " value head's: use correlate, or compare and pairwise_accuracy"
            )
        outside = present & ((values < lowest - 1e-9) | (values > highest + 1e-9))
        if outside.any():
            raise ValueError(
                f"{measure}: {int(outside.sum())} of {name} lie outside of the scale, such as"
                f" {values[outside][0]:g}: put all scores on one scale"
            )


def aligned(*, groups: Any = None, **columns: Any) -> list[Any]:
    """Columns of scores of the same items, and last which items have all of them."""
    check_columns(**columns, groups=groups)
    arrays = [as_floats(values, name=name) for name, values in columns.items()]
    complete = ~np.isnan(arrays).any(axis=0)
    return [*arrays, complete]


def listed(positions: Any, values: Column, *, limit: int = 20) -> str:
    """Positions with their values, the first few of them, for an error message."""
    texts = []
    for position in positions[:limit]:
        value = values[position]
        if isinstance(value, np.generic):
            value = value.item()
        texts.append(f"position {position}: {repr(value)[:80]}")
    if len(positions) > limit:
        texts.append(f"and {len(positions) - limit} more")
    return ", ".join(texts)


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


def units_of(groups: Groups, index: pd.Index, used: np.ndarray) -> Integers:
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
    if crossing is not None and 1 < design.n_units < LEAST_CROSSED:
        raise ValueError(
            f"groups are crossed, and one of them has {design.n_units} units: new ones can be"
            f" spoken for from {LEAST_CROSSED} on; give the other alone, and say that results"
            " are given these"
        )
    return design


CHOICES = ("a", "b", "tie")
# Beside these, the five answers of Arena-Hard, WildVision-Bench and their like, by who won.
SPELLINGS = {choice: choice for choice in (*CHOICES, "abstain")}
SPELLINGS |= {"A>>B": "a", "A>B": "a", "A=B": "tie", "B>A": "b", "B>>A": "b"}


def read_verdicts(
    verdicts: Column,
    *,
    meanings: Mapping[str, str] = SPELLINGS,
    people: bool = False,
) -> tuple[Any, Any, dict[str, int]]:
    """Each choice or None, by its spelling in any capitals; which are choices; others counted.

    A judge's malformed verdicts are counted and warned of. ValueError: a column of which nothing
    can be read, or a person's choice that can't be.
    """
    folded = {spelling.casefold(): word for spelling, word in meanings.items()}
    read: list[str | None] = []
    for verdict in verdicts:
        word = None
        if is_blank(verdict):
            word = "missing"
        elif isinstance(verdict, str):
            word = folded.get(verdict.casefold())
        read.append(word)
    counts = Counter(read)
    malformed = [position for position, word in enumerate(read) if word is None]
    if malformed:
        bad = f"{len(malformed)} of {len(read)}"
        cells = list(verdicts)
        if people or len(malformed) + counts["missing"] == len(read):
            kind = "preferences" if people else "verdicts"
            raise ValueError(
                f"{kind}: {bad} are none of {', '.join(meanings)}, such as"
                f" {listed(malformed[:1], cells)}: write them so, or as None"
            )
        some = listed(malformed, cells, limit=3)
        warn(f"{bad} verdicts can't be read and count as none: {some}")
    account = {"abstained": counts["abstain"], "malformed": len(malformed)}
    choice = np.array(read, dtype=object)
    choice[np.isin(choice, ["missing", "abstain"])] = None
    return choice, pd.notna(choice), account


def check_options(*, confidence: float = 0.95, n_resamples: int = 10_000) -> None:
    """Refuse a confidence or a number of resamples that can't be meant."""
    if not isinstance(confidence, numbers.Real) or not 0 < confidence < 1:
        raise ValueError(f"confidence must be a number between 0 and 1, not {confidence!r}")
    if not is_int_at_least(n_resamples, 0):
        raise ValueError(
            f"n_resamples must be a whole number, such as 10_000, from 0, not {n_resamples!r}"
        )
    if 0 < n_resamples < FEW_RESAMPLES:
        warn(f"n_resamples={n_resamples}: intervals of so few are rough; take 1,000 or more")
