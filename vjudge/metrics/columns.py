"""Check columns of items and read them as numbers."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Booleans, Column, Floats, Groups, Integers, Ratings
from vjudge.metrics.caveats import warn
from vjudge.records import is_int_at_least, is_missing

FEW_RESAMPLES = 100  # below which intervals are rough
# Texts that stand for a missing rating, in any capitals
MISSING_TEXTS = ("", "na", "n/a", "nan", "<na>", "null", "#n/a")
SCALE_SLACK = 1e-9  # how far outside its scale a score may lie, by rounding


def check_options(*, confidence: float = 0.95, n_resamples: int = 10_000) -> None:
    """Check the options of intervals.

    Fewer than 100 resamples raise a warning, and 0, which asks for no intervals, does not.

    Raises:
        ValueError: confidence is outside (0, 1), or n_resamples is no whole number from 0.
    """
    if not isinstance(confidence, numbers.Real) or not 0 < confidence < 1:
        raise ValueError(f"confidence must be a number between 0 and 1, not {confidence!r}")
    if not is_int_at_least(n_resamples, 0):
        raise ValueError(
            f"n_resamples must be a whole number, such as 10_000, from 0, not {n_resamples!r}"
        )
    if 0 < n_resamples < FEW_RESAMPLES:
        warn(f"n_resamples={n_resamples}: intervals of so few are rough; take 1,000 or more")


def check_columns(**columns: Ratings | Groups) -> None:
    """Check that columns describe the same items: one value per item, in the same order.

    Args:
        columns: the columns by the names that errors use; None is skipped. `groups` may be the two
            columns of a crossed design, which are checked as groups[0] and groups[1].

    Raises:
        TypeError: a column is no sequence.
        ValueError: columns differ in length, or pandas columns in their index.
    """
    crossed = group_columns(columns.get("groups"))
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
        reference = next(iter(indexes))  # the first column that has an index
        if not index.equals(indexes[reference]):
            raise ValueError(
                f"{reference} and {name} have different indexes: align them first, or pass"
                " .to_numpy() if their order is the same"
            )


def group_columns(groups: Groups) -> list[Column]:
    """List the columns of groups: none, one, or the two of a crossed design.

    Raises:
        ValueError: groups has more than two columns.

    >>> [len(group_columns(groups)) for groups in (None, ["a", "b"], [["a", "b"], ["x", "x"]])]
    [0, 1, 2]
    """
    if groups is None:
        return []
    columns: Any = [groups]
    if isinstance(groups, pd.DataFrame):
        columns = [groups[name] for name in groups]
    elif isinstance(groups, list | tuple) and len(groups) == 2:
        # A list of two texts is one column, of two items; a list of two columns is crossed.
        if all(isinstance(column, list | tuple | np.ndarray | pd.Series) for column in groups):
            columns = list(groups)
    if len(columns) > 2:
        raise ValueError(f"groups has {len(columns)} columns: give one, or two that are crossed")
    return columns


def check_items(**columns: object) -> None:
    """Check that each column is a Series or a DataFrame that has each item once in its index.

    Raises:
        TypeError: a column is neither.
        ValueError: an item stands twice in the index.
    """
    for name, column in columns.items():
        if not isinstance(column, pd.DataFrame | pd.Series):
            raise TypeError(f"{name} is a {type(column).__name__}: give a Series, a row an item")
        if not column.index.is_unique:
            twice = column.index[column.index.duplicated()][0]
            raise ValueError(f"{name}: item {twice} stands twice in the index; give it one row")


def judges_by_name(
    judges: Mapping[str, Column] | pd.DataFrame, *, minimum: int = 2
) -> dict[str, Column]:
    """Return the judges' columns under the names that errors use, "judge NAME".

    Raises:
        ValueError: there are fewer than `minimum` judges (0, 1 or 2), or two of one name.
    """
    names = list(map(str, judges))
    # The distinct names are fewer than the names if two are equal.
    if len(set(names)) < max(len(names), minimum):
        listing = ", ".join(names) or "none"
        number = ("any number", "one or more", "two or more")[minimum]
        raise ValueError(f"judges must be {number}, each with a name of its own, not {listing}")
    return {f"judge {name}": judges[name] for name in judges}


def is_blank(cell: object) -> bool:
    """Return whether a cell holds no rating: None, NaN, NA, or a text that stands for them.

    The text "none" may be an answer; "None" is how Python writes a missing one.

    >>> [is_blank(cell) for cell in (None, float("nan"), " ", "n/a", "NA", "None", "none", 0)]
    [True, True, True, True, True, True, False, False]
    """
    if isinstance(cell, str):
        return cell.strip().casefold() in MISSING_TEXTS or cell == "None"
    return is_missing(cell)


def as_floats(values: Column, *, name: str) -> Floats:
    """Read a column of numbers as float64; None, NaN and blank texts become NaN.

    Args:
        values: n numbers, of one dimension.
        name: what the column is called in errors.

    Raises:
        TypeError: a value is no number; True and False are none.
        ValueError: a value is infinite, or the column has two dimensions.
    """
    dimensions = getattr(values, "ndim", 1)
    if dimensions != 1:
        raise ValueError(f"{name} must have one dimension, not {dimensions}")
    dtype = getattr(values, "dtype", None)
    # Other columns are read cell by cell: texts, truth values, objects, pandas' nullable types.
    is_numeric = isinstance(dtype, np.dtype) and dtype.kind in "iuf"
    if not is_numeric:
        values = [math.nan if is_blank(cell) else cell for cell in values]
        bad = [position for position, cell in enumerate(values) if not _is_number(cell)]
        if bad:
            raise TypeError(
                f"{name} has values that are not numbers: {list_cells(bad, values)}; convert them"
                " or set them to NaN"
            )
    array = np.array(values, dtype=float)
    infinite = np.flatnonzero(np.isinf(array))
    if infinite.size:
        listing = list_cells(infinite, array)
        raise ValueError(f"{name} has infinite values: {listing}; set them to NaN if missing")
    return array


def _is_number(cell: object) -> bool:
    return isinstance(cell, numbers.Real) and not isinstance(cell, bool)


def zeros_and_ones(column: pd.Series, *, name: str) -> Floats:
    """Read truth values, or ones and zeros, as floats; missing and blank cells become NaN.

    Raises:
        ValueError: a cell holds another number.

    >>> zeros_and_ones(pd.Series([True, 0, None]), name="right").tolist()
    [1.0, 0.0, nan]
    """
    cells = [int(cell) if isinstance(cell, bool | np.bool_) else cell for cell in column]
    values = as_floats(cells, name=name)
    if not np.isin(values[~np.isnan(values)], [0, 1]).all():
        raise ValueError(f"{name} holds other values than 0 and 1")
    return values


def read_scores(*, groups: Groups = None, **columns: Column) -> tuple[list[Floats], Booleans]:
    """Read columns of scores of the same n items.

    Args:
        groups: checked to have one value per item, too; not returned.
        columns: scores by the names that errors use.

    Returns:
        A list of the columns as floats, shape (n,), NaN where missing; and which items have all
        scores, shape (n,).
    """
    check_columns(**columns, groups=groups)
    arrays = [as_floats(values, name=name) for name, values in columns.items()]
    return arrays, np.asarray(~np.isnan(arrays).any(axis=0))


def check_scale(measure: str, scale: Column, **columns: np.ndarray) -> None:
    """Check that scores lie on their scale.

    Args:
        measure: the name of what needs the scale, for the error.
        scale: the lowest and the highest score, numbers or one array each with a number per item;
            NaN where scores are unbounded, as in a run's columns `lowest` and `highest`.
        columns: scores by name, shape (..., n), NaN where missing.

    Raises:
        ValueError: a score lies outside its scale, or has none (as the scores of a value head).
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
        outside = present & ((values < lowest - SCALE_SLACK) | (values > highest + SCALE_SLACK))
        if outside.any():
            raise ValueError(
                f"{measure}: {int(outside.sum())} of {name} lie outside of the scale, such as"
                f" {values[outside][0]:g}: put all scores on one scale"
            )


def list_cells(positions: Sequence[int] | Integers, values: Column, *, limit: int = 20) -> str:
    """List positions of a column with their values, the first few of them, for an error message.

    >>> list_cells([0, 2], ["x", 1, None], limit=1)
    "position 0: 'x', and 1 more"
    """
    texts = []
    for position in positions[:limit]:
        value = values[position]
        if isinstance(value, np.generic):
            value = value.item()  # 1.0 rather than np.float64(1.0)
        texts.append(f"position {position}: {repr(value)[:80]}")
    if len(positions) > limit:
        texts.append(f"and {len(positions) - limit} more")
    return ", ".join(texts)
