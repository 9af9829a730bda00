"""The bootstrap of weighted samples, and correlations of weighted pairs.

A sample is a table of cells, its distinct rows, with a weight each: how often the row occurs. On a
bounded scale that is the contingency table, and a bootstrap replicate is one multinomial draw, so
that 10,000 replicates are one array. Continuous scores have a cell for each item.

A statistic is a function of weights, shape (cells, replicates), to values, shape (..., replicates):
`lambda w: values @ w / w.sum(axis=0)` is a mean, `lambda w: correlations(x, y, w)` are three.
No library takes a statistic of many weighted samples at once, which is why this module exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse, stats

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Weights = NDArray[np.number]
Statistic = Callable[[Weights], Floats]

STATISTICS = ("pearson", "spearman", "kendall")
BLOCK_BYTES = 2**20  # of one array of weights, so that it stays in a processor's cache
LEAST_BLOCK = 50  # replicates at once
PERFECT = 1 - 1e-9  # a correlation beyond this has no Fisher z to speak of


def summing(
    rows: Integers,
    columns: Integers,
    shape: tuple[int, int],
) -> sparse.csr_array:
    """How often each (row, column) occurs: a matrix that sums weights of the columns by row."""
    ones = np.ones(len(rows))
    return sparse.csr_array((ones, (rows, columns)), shape=shape)


def by_code(code: Integers, n: int | None = None) -> sparse.csr_array:
    """A matrix that sums weights by code, 0 to n - 1, the highest code by default."""
    if n is None:
        n = int(code.max(initial=-1)) + 1
    return summing(code, np.arange(len(code)), (n, len(code)))


def student(confidence: float, freedom: Any = np.inf) -> Any:
    """Student's two-sided quantile; of infinite freedom the normal one."""
    return stats.t.ppf((1 + confidence) / 2, freedom)


def on_fisher_scale(estimate: Floats, reach: Floats) -> Floats:
    """Estimates with bounds so far from them on Fisher's z scale, shape (n, 3)."""
    z = np.arctanh(np.clip(estimate, -PERFECT, PERFECT))
    low = np.tanh(z - reach)
    high = np.tanh(z + reach)
    return np.column_stack([estimate, low, high])


def distinct(rows: Floats) -> tuple[Floats, Integers]:
    """The distinct rows, shape (k, m), in ascending order (NaN first), and the one of each row."""
    cell = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        code = pd.factorize(column, sort=True)[0] + 1  # 0 is NaN
        key = cell * (code.max(initial=0) + 1) + code
        cell = pd.factorize(key, sort=True)[0]
    first = np.unique(cell, return_index=True)[1]
    return rows[first], cell.astype(np.int64)


@dataclass(frozen=True)
class Design:
    """How n rows are resampled: one by one or, with a code 0..G-1 of each row's group, in groups.

    `cell` is the cell of each row, 0..k-1; `missing` counts rows that were left out beforehand.
    """

    cell: Integers
    groups: Integers | None = None
    missing: int = 0

    @property
    def counts(self) -> Integers:
        """How often each cell occurs in the sample itself; shape (k,)."""
        return np.bincount(self.cell).astype(np.int64)

    @property
    def n_units(self) -> int:
        """The number of independent units: rows or groups."""
        if self.groups is None:
            return len(self.cell)
        return int(self.groups.max(initial=-1)) + 1


def replicates(
    statistic: Statistic,
    design: Design,
    *,
    n_resamples: int,
    seed: int,
) -> Floats:
    """A statistic of bootstrap samples, shape (..., n_resamples), in blocks of bounded memory."""
    rng = np.random.default_rng(seed)
    counts = design.counts
    units = design.n_units
    if design.groups is not None:
        members = summing(design.cell, design.groups, (len(counts), units))
    block = max(BLOCK_BYTES // (8 * max(len(counts), units)), LEAST_BLOCK)
    parts = []
    for start in range(0, n_resamples, block):
        size = min(block, n_resamples - start)
        if design.groups is None:
            weights = rng.multinomial(units, counts / units, size=size).T
        else:
            times = rng.multinomial(units, np.full(units, 1 / units), size=size)
            weights = members @ times.T
        parts.append(values(statistic, weights))
    return np.concatenate(parts, axis=-1)


def values(statistic: Statistic, weights: Weights) -> Floats:
    """A statistic of weights; where it is undefined it is NaN, without NumPy's warnings."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(statistic(weights), dtype=float)


def interval(
    replicates: Floats,
    estimate: float,
    inflation: float = 1.0,
    *,
    method: str,
    n_units: int,
    confidence: float,
) -> tuple[float, float]:
    """Low and high of a bootstrap interval.

    "t" is Student's with n_units - 1 degrees of freedom, and the variance of the replicates times
    n_units / (n_units - 1) over their inflation. "fisher" is the same on Fisher's z scale, where
    perfect replicates take the most extreme value below 1. Undefined replicates are left out; NaN
    where more than half of them are.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 12; Fisher,
    Metron 1 (1921), 3-32.
    """
    drawn = replicates[~np.isnan(replicates)]
    if 2 * len(drawn) < len(replicates) or not np.isfinite(estimate):
        return np.nan, np.nan
    reach = student(confidence, n_units - 1) * np.sqrt(n_units / (n_units - 1) / inflation)
    if method == "t":
        half = float(reach * drawn.std())
        return estimate - half, estimate + half
    imperfect = np.abs(drawn[np.abs(drawn) < PERFECT])
    if abs(estimate) >= PERFECT or not len(imperfect):
        return float(drawn.min()), float(drawn.max())
    # A perfect replicate counts as half as far from 1 as the nearest other one.
    most = (1 + max(imperfect.max(), abs(estimate))) / 2
    spread = np.arctanh(np.clip(drawn, -most, most)).std()
    _, low, high = on_fisher_scale(np.array([estimate]), reach * spread)[0]
    return float(low), float(high)


# --- Correlations of weighted pairs


def correlations(
    x: Floats,
    y: Floats,
    weights: Weights,
    *,
    statistics: Sequence[str] = STATISTICS,
) -> Floats:
    """Correlations of k pairs for weights (k, replicates).

    NaN where a variable is constant, and of fewer than three observations.

    Source: Spearman's with midranks; Kendall's tau-b, Kendall, Rank Correlation Methods (1970),
    chapter 3, for ties.
    """
    w = np.ascontiguousarray(weights, dtype=float)
    x_code = pd.factorize(x, sort=True)[0]
    y_code = pd.factorize(y, sort=True)[0]
    n = w.sum(axis=0)
    x_margin = by_code(x_code) @ w  # the weight of each level
    y_margin = by_code(y_code) @ w
    # Twice the number of pairs of observations that differ in a variable.
    x_untied = n**2 - np.einsum("kr,kr->r", x_margin, x_margin)
    y_untied = n**2 - np.einsum("kr,kr->r", y_margin, y_margin)
    result = np.empty((len(statistics), len(n)))
    for place, name in enumerate(statistics):
        if name == "pearson":
            result[place] = _pearson(x, y, w)
        elif name == "spearman":
            result[place] = _spearman(x_code, y_code, x_margin, y_margin, w)
        else:
            net = net_concordance(x_code, y_code, w)
            result[place] = 2 * net / np.sqrt(x_untied) / np.sqrt(y_untied)
    constant = np.minimum(x_untied, y_untied) <= 1e-12 * n**2
    result[:, constant | (n < 3)] = np.nan
    return np.clip(result, -1, 1)  # only rounding goes beyond 1


def _pearson(x: Floats, y: Floats, w: Floats) -> Floats:
    """Pearson's r from the moments of scores about their mean."""
    share = w.sum(axis=1) / max(w.sum(), 1e-300)
    a = x - x @ share
    b = y - y @ share
    terms = np.stack([a, b, a * a, b * b, a * b])
    mean_a, mean_b, square_a, square_b, product = terms @ w / w.sum(axis=0)
    variance_a = square_a - mean_a**2
    variance_b = square_b - mean_b**2
    return (product - mean_a * mean_b) / np.sqrt(variance_a) / np.sqrt(variance_b)


def _spearman(
    x_code: Integers,
    y_code: Integers,
    x_margin: Floats,
    y_margin: Floats,
    w: Floats,
) -> Floats:
    """Spearman's rho; a level's midrank is the weight below it and half of its own."""
    n3 = w.sum(axis=0) ** 3
    x_rank = 2 * np.cumsum(x_margin, axis=0) - x_margin  # twice the midrank: a whole number
    y_rank = 2 * np.cumsum(y_margin, axis=0) - y_margin
    shared = np.einsum("kr,kr,kr->r", w, x_rank[x_code], y_rank[y_code])
    x_spread = n3 - np.einsum("kr,kr,kr->r", x_margin, x_margin, x_margin)
    y_spread = n3 - np.einsum("kr,kr,kr->r", y_margin, y_margin, y_margin)
    return 3 * (shared - n3) / np.sqrt(x_spread) / np.sqrt(y_spread)


def net_concordance(
    x_code: Integers,
    y_code: Integers,
    w: Floats,
) -> Floats:
    """Concordant less discordant pairs of observations.

    Two rows are compared at the highest bit in which their codes of x differ: of the rows that
    agree in the bits before it, those with a 1 lie above those with a 0. Cumulative sums of the
    lower rows' weights by y then say how much of it is concordant. Ties in x differ in no bit.
    """
    if x_code.max(initial=0) > y_code.max(initial=0):
        x_code, y_code = y_code, x_code
    y_levels = y_code.max(initial=0) + 1
    total = np.zeros(w.shape[1])
    for bit in range(int(x_code.max(initial=0)).bit_length()):
        before = x_code >> (bit + 1)
        key = before * y_levels + y_code
        order = np.argsort(key, kind="stable")
        is_high = (x_code[order] >> bit) & 1 == 1
        low = order[~is_high]
        high = order[is_high]
        below = np.zeros((len(low) + 1, w.shape[1]))
        np.cumsum(w[low], axis=0, out=below[1:])
        net = below[np.searchsorted(key[low], key[high])]  # up to lower y
        net -= below[np.searchsorted(before[low], before[high])]
        net += below[np.searchsorted(key[low], key[high], side="right")]  # less those of higher y
        net -= below[np.searchsorted(before[low], before[high], side="right")]
        total += np.einsum("kr,kr->r", net, w[high])
    return total
