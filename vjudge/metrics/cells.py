"""Group the rows of a sample into cells, its distinct rows, and sum weights by cell."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import sparse

from vjudge.metrics.array_types import Floats, Integers

MANY_LEVELS = 100  # distinct values of a score, above which resampling is slow


def has_many_levels(*columns: Floats) -> bool:
    """Return whether a column has so many distinct values that resampling is slow."""
    return max(len(np.unique(column)) for column in columns) > MANY_LEVELS


def count_matrix(rows: Integers, columns: Integers, shape: tuple[int, int]) -> sparse.csr_array:
    """Count how often each pair (row, column) occurs.

    Args:
        rows, columns: the row and the column of each of n entries; shape (n,).
        shape: the shape of the matrix.

    `count_matrix(...) @ weights` sums for each row the weights of the columns that it has.

    >>> count_matrix(np.array([0, 0, 1]), np.array([1, 1, 0]), (2, 2)).toarray().tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


def indicator_matrix(code: Integers, n_codes: int | None = None) -> sparse.csr_array:
    """One-hot encode codes: entry (c, i) is 1 where row i has code c.

    `indicator_matrix(code) @ weights` sums the weights of the rows by code.

    Args:
        code: the code of each row, from 0; shape (n,).
        n_codes: the number of codes; None takes the highest code + 1.

    Returns:
        A sparse matrix, shape (n_codes, n).

    >>> indicator_matrix(np.array([1, 0, 1])).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """
    if n_codes is None:
        n_codes = int(code.max(initial=-1)) + 1
    return count_matrix(code, np.arange(len(code)), (n_codes, len(code)))


def distinct_rows(rows: Floats) -> tuple[Floats, Integers]:
    """Find the distinct rows of a table, and which of them each row is.

    Args:
        rows: shape (n, columns); NaN is a value like any other.

    Returns:
        The k distinct rows, shape (k, columns), in ascending order with NaN first; and the index
        of each row among them, shape (n,).

    >>> cells, cell = distinct_rows(np.array([[2.0, 1], [1, 5], [2, 1]]))
    >>> cells.tolist(), cell.tolist()
    ([[1.0, 5.0], [2.0, 1.0]], [1, 0, 1])
    """
    cell = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        # `cell` ranks the rows by the columns before this one. This column's rank is appended as
        # the last digit: with 3 levels, cell 1 and level 2 give 1 * 3 + 2 = 5. These numbers are
        # then ranked anew, so that they stay small.
        level = dense_ranks(column) + 1  # 0 is NaN
        n_levels = level.max(initial=0) + 1
        cell = dense_ranks(cell * n_levels + level)
    first_rows = np.unique(cell, return_index=True)[1]
    return rows[first_rows], cell


def dense_ranks(column: np.ndarray | pd.Series) -> Integers:
    """Rank values 0, 1, 2 ... in ascending order; equal values share a rank, and NaN has -1.

    >>> dense_ranks(np.array([2.5, 1, np.nan, 2.5])).tolist()
    [1, 0, -1, 1]
    """
    return np.asarray(pd.factorize(column, sort=True)[0], dtype=np.int64)
