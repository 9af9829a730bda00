"""Distinct rows of a sample, its cells, and sums of weights by cell."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import sparse

from vjudge.metrics.array_types import Column, Floats, Integers

MANY_LEVELS = 100  # of a score, beyond which resampling takes long


def has_many_levels(*columns: Floats) -> bool:
    """Whether a column has so many levels that resampling takes long."""
    return max(len(np.unique(column)) for column in columns) > MANY_LEVELS


def count_matrix(rows: Integers, columns: Integers, shape: tuple[int, int]) -> sparse.csr_array:
    """How often each (row, column) occurs: a matrix that sums weights of the columns by row."""
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


def indicator_matrix(code: Integers, n: int | None = None) -> sparse.csr_array:
    """A matrix that sums weights by code, 0 to n - 1, the highest code by default."""
    if n is None:
        n = int(code.max(initial=-1)) + 1
    return count_matrix(code, np.arange(len(code)), (n, len(code)))


def distinct_rows(rows: Floats) -> tuple[Floats, Integers]:
    """The distinct rows, shape (k, m), in ascending order (NaN first), and the one of each row."""
    cell = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        code = codes(column) + 1  # 0 is NaN
        cell = codes(cell * (code.max(initial=0) + 1) + code)
    return rows[np.unique(cell, return_index=True)[1]], cell


def codes(column: Column) -> Integers:
    """The place of each value among the distinct ones, in ascending order; -1 of NaN."""
    return np.asarray(pd.factorize(column, sort=True)[0], dtype=np.int64)
