"""Tables of ratings, items by raters, as they come in, and their distinct rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vjudge.metrics._tables import check_scale, listed_twice, scores

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Patterns:
    """The distinct rows of a table of ratings.

    Args:
        values: k distinct rows by m raters, NaN where a rater gave none.
        codes: position of each value among `levels`, -1 where there is none; shape (k, m).
        levels: the distinct ratings, ascending.
        cell: the distinct row of each item; shape (n,).
    """

    values: Floats
    codes: NDArray[np.int64]
    levels: Floats
    cell: NDArray[np.int64]

    @classmethod
    def of(cls, table: Floats) -> Patterns:
        """Tabulate n rows of finite ratings and NaN."""
        levels = np.unique(table[~np.isnan(table)])
        codes = np.where(np.isnan(table), -1, np.searchsorted(levels, np.nan_to_num(table)))
        rows, cell = np.unique(codes, axis=0, return_inverse=True)
        padded = np.append(levels, np.nan)
        return cls(padded[rows], rows, levels, np.reshape(cell, -1))


def read_ratings(ratings: Any, *, scale: tuple[float, float] | None = None) -> np.ndarray:
    """Ratings as an n by m array of float64, NaN where missing; what is no number or off the scale is refused.

    Args:
        ratings: a frame, a 2-D array, or one list of ratings an item.
        scale: lowest and highest rating; None accepts any.

    Raises:
        TypeError: the ratings are no table, or some are no numbers; all are named by rater and position.
        ValueError: some are infinite or off the scale, or columns share a name; all are named.
    """
    if isinstance(ratings, str | bytes) or not hasattr(ratings, "__len__"):
        raise TypeError(f"ratings must be a table of items by raters, not {type(ratings).__name__}")
    if isinstance(ratings, pd.DataFrame):
        columns = {str(name): ratings.iloc[:, i] for i, name in enumerate(ratings.columns)}
        if len(columns) < ratings.shape[1]:
            raise ValueError(
                f"raters share a name: {listed_twice(map(str, ratings.columns))}; give each column its own"
            )
    elif isinstance(ratings, np.ndarray) and ratings.dtype != object:
        if ratings.ndim != 2:
            raise ValueError(f"ratings must have two dimensions, items by raters, not {ratings.ndim}")
        columns = {str(rater): ratings[:, rater] for rater in range(ratings.shape[1])}
    else:
        rows = [_as_list(row, position) for position, row in enumerate(ratings)]
        width = max(map(len, rows), default=0)
        padded = [row + [math.nan] * (width - len(row)) for row in rows]
        columns = {str(rater): pd.Series([row[rater] for row in padded], dtype=object) for rater in range(width)}
    found: list[np.ndarray] = []
    faults: list[str] = []
    kind: type[Exception] = ValueError
    for name, column in columns.items():
        try:
            found.append(scores(column.tolist() if isinstance(column, pd.Series) else column, name=f"rater {name}"))
        except (TypeError, ValueError) as error:
            faults.append(str(error))
            kind = TypeError if isinstance(error, TypeError) else kind
    if faults:
        raise kind("; ".join(faults))
    table = np.column_stack(found) if found else np.empty((len(ratings), 0))
    if scale is not None:
        check_scale(scale)
        off = np.argwhere((table < scale[0]) | (table > scale[1]))
        if len(off):
            named = ", ".join(f"item {i}, rater {list(columns)[j]}: {table[i, j]:g}" for i, j in off[:20])
            more = f" and {len(off) - 20} more" if len(off) > 20 else ""
            raise ValueError(
                f"ratings off the scale {scale[0]:g} to {scale[1]:g}: {named}{more}; correct or remove them"
            )
    return table


def _as_list(row: Any, position: int) -> list[Any]:
    if row is None or (isinstance(row, float) and math.isnan(row)):
        return []
    if isinstance(row, str | bytes) or not hasattr(row, "__iter__"):
        raise TypeError(f"ratings of item {position} are {row!r}: give a list of numbers, one for each rater")
    return list(row)
