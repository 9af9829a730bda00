"""Bootstrap and permutation, exact and fast, and correlations of weighted tables.

A statistic is a function of weights, shape (cells, replicates), to values, shape (..., replicates): its value for a
sample in which each cell occurs that often, such as `lambda w: values @ w / w.sum(axis=0)` for a mean of rows.
Correlations are `lambda w: correlations(table, w)`, where `table = Table(x, y)`, on `Design(table.cell)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse, stats
from tqdm import tqdm

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Weights = NDArray[np.number]
Statistic = Callable[[Weights], Floats]

STATISTICS = ("pearson", "spearman", "kendall")
CACHE_BYTES = 2**19  # an array of this size stays in a processor's cache
BLOCK_BYTES = 8 * 2**20
ENOUGH = 60  # replicates at once, so that NumPy's time for a call is small; a power of two would fill one cache set
PATIENCE = 2.0  # seconds before a bar shows; a plain one, since in a notebook even a hidden widget is stored
PERFECT = 1 - 1e-9  # a correlation beyond this has no Fisher z to speak of
NARROWEST = 64  # rows of a block of signs, at least


def summing(rows: Integers, columns: Integers, shape: tuple[int, int]) -> sparse.csr_array:
    """How often each (row, column) occurs: a matrix that sums weights of the columns by row."""
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


@dataclass(frozen=True)
class Design:
    """How n rows are resampled: single ones, or whole groups where there are codes 0..G-1 of them, shape (n,).

    Rows of one cell, 0..k-1, are alike to the statistic: a replicate is then one multinomial draw over few cells.
    `missing` counts rows that were left out beforehand.
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
        return len(self.cell) if self.groups is None else int(self.groups.max(initial=-1)) + 1

    @property
    def members(self) -> sparse.csr_array | None:
        """How often each cell occurs in each group, shape (k, G); None without groups."""
        return (
            None
            if self.groups is None
            else summing(self.cell, self.groups, (len(self.counts), self.n_units))
        )


def replicates(
    statistic: Statistic, design: Design, *, n_resamples: int, seed: int, width: int = 0
) -> Floats:
    """A statistic of bootstrap samples, shape (..., n_resamples); `width`: how many numbers it holds for each."""
    rng, members, units = np.random.default_rng(seed), design.members, design.n_units
    counts, n = design.counts, len(design.cell)
    k = len(counts)

    def draw(size: int) -> Weights:
        if members is not None:
            return members @ rng.multinomial(units, np.full(units, 1 / units), size=size).T
        if 4 * k < n:
            return rng.multinomial(n, counts / n, size=size).T
        cells = design.cell[rng.integers(n, size=(size, n))] + np.arange(size)[:, None] * k
        return np.bincount(cells.ravel(), minlength=size * k).reshape(size, k).T

    held = max(k, units if members is not None or 4 * k >= n else 0, width)
    return _in_blocks(statistic, draw, n_resamples, held)


def swaps(statistic: Statistic, design: Design, *, n_resamples: int, seed: int) -> Floats:
    """A statistic after the two judges' names are swapped at random, in half of the rows or groups of a design.

    It is of weights (2k, replicates): of each cell first the rows that stand, then those that are swapped.

    Source: Good, Permutation, Parametric and Bootstrap Tests of Hypotheses (2005), chapter 3, matched pairs.
    """
    rng, counts, members = np.random.default_rng(seed), design.counts[:, None], design.members

    def draw(size: int) -> Weights:
        if members is not None:
            swapped = members @ rng.integers(2, size=(size, members.shape[1])).T
        elif counts.max() == 1:  # a coin for each row is far quicker than a binomial draw of one
            swapped = rng.integers(2, size=(size, len(counts))).T
        else:
            swapped = rng.binomial(counts.T, 0.5, size=(size, len(counts))).T
        return np.concatenate([counts - swapped, swapped])

    return _in_blocks(
        statistic,
        draw,
        n_resamples,
        max(2 * len(counts), design.n_units if members is not None else 0),
    )


def _in_blocks(
    statistic: Statistic, draw: Callable[[int], Weights], total: int, held: int
) -> Floats:
    """A statistic of so many draws, in blocks of bounded memory; `held`: numbers for each draw."""
    row = 8 * max(held, 1)
    block = max(1, min(max(CACHE_BYTES // row, ENOUGH), BLOCK_BYTES // row))
    starts = tqdm(range(0, total, block), desc="resamples, in blocks", delay=PATIENCE, leave=False)
    return np.concatenate(
        [values(statistic, draw(min(block, total - start))) for start in starts], axis=-1
    )


def values(statistic: Statistic, weights: Weights) -> Floats:
    """A statistic of weights, without NumPy's warnings where it is undefined: that is NaN, and the caller's to tell."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(statistic(weights), dtype=float)


def interval(
    replicates: Floats,
    estimate: float,
    method: str,
    inflation: float = 1.0,
    *,
    n_units: int,
    confidence: float,
) -> tuple[float, float, float]:
    """Low and high of the bootstrap interval of one statistic, and the share of replicates that are undefined.

    "t" is Student's with n_units - 1 degrees of freedom, with the replicates' variance times n_units / (n_units - 1),
    over its inflation; "fisher" the same on Fisher's z scale, where perfect replicates take the most extreme value
    below 1; "logit" for shares. NaN where more than half the replicates are.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 12; Fisher, Metron 1 (1921), 3-32.
    """
    share = method == "logit"  # log-odds are twice Fisher's z of 2 p - 1
    if share:
        replicates, estimate = 2 * replicates - 1, 2 * estimate - 1
    drawn = replicates[~np.isnan(replicates)]
    undefined = 1 - len(drawn) / len(replicates)
    if undefined > 0.5 or not np.isfinite(estimate):
        return np.nan, np.nan, undefined
    quantile = stats.t.ppf([(1 - confidence) / 2, (1 + confidence) / 2], n_units - 1)
    reach = quantile * np.sqrt(n_units / (n_units - 1) / inflation)
    if method == "t":
        bounds = estimate + reach * drawn.std()
    elif abs(estimate) >= PERFECT or not (near := np.abs(drawn) < PERFECT).any():
        bounds = np.array([drawn.min(), drawn.max()])
    else:
        most = max(np.abs(drawn[near]).max(), abs(estimate))
        bounds = np.tanh(
            np.arctanh(estimate) + reach * np.arctanh(np.clip(drawn, -most, most)).std()
        )
    low, high = map(float, bounds)
    if share:
        low, high = (low + 1) / 2, (high + 1) / 2
        if low == high:  # every resample agrees
            low, high = constant_share((estimate + 1) / 2, n_units, quantile[1] ** 2)
    return low, high, undefined


def constant_share(share: float, units: float, q2: float) -> tuple[float, float]:
    """Bounds of a share that is the same in each of so many units: Wilson's on the units that could have another."""
    other = q2 / (units + q2)
    return share * (1 - other), share + (1 - share) * other


def p_value(permuted: Floats, observed: Floats | float) -> Floats:
    """Two-sided p, shape (..., n), of what is 0 under the null hypothesis; undefined permutations count against.

    Source: Phipson and Smyth, Statistical Applications in Genetics and Molecular Biology 9 (2010), article 39.
    """
    value = np.asarray(observed, dtype=float)
    nearer = (np.abs(permuted) < np.abs(value)[..., None] - 1e-12).sum(axis=-1)
    n = permuted.shape[-1]
    return np.where(np.isnan(value), np.nan, (n - nearer + 1) / (n + 1))


class Table:
    """The k distinct pairs of two variables, sorted by x, then y, and what their correlations need for any weights.

    `counts` says how often each pair occurs, `cell` which one each observation is. The quadratic form of all signs
    takes few small products: rows are cut into blocks of neighbours in x, and of neighbours in y, never within a level.
    Pairs in one block of x, and the others in one block of y, have a matrix of signs; elsewhere blocks decide the sign.
    """

    def __init__(self, x: Floats, y: Floats) -> None:
        x_code, x_level = pd.factorize(x, sort=True)
        y_code, y_level = pd.factorize(y, sort=True)
        self.cell, pair = pd.factorize(x_code * len(y_level) + y_code, sort=True)
        k = len(pair)
        self.x_code, self.y_code = np.divmod(pair, max(len(y_level), 1))
        self.x, self.y = (
            np.asarray(x_level, dtype=float)[self.x_code],
            np.asarray(y_level, dtype=float)[self.y_code],
        )
        self.counts = np.bincount(self.cell, minlength=k)
        self.by_y = np.lexsort((self.x_code, self.y_code))
        self.x_starts = np.flatnonzero(np.diff(self.x_code, prepend=-1))
        self.y_starts = np.flatnonzero(np.diff(self.y_code[self.by_y], prepend=-1))
        # Mean 0 and largest distance 1, so that sums of squares neither cancel nor overflow.
        centred = [v - np.average(v, weights=self.counts) if k else v for v in (self.x, self.y)]
        a, b = (v / max(np.abs(v).max(initial=0), np.finfo(float).tiny) for v in centred)
        self.moments = np.stack([a, b, a * a, b * b, a * b])
        self.memory: dict[str, Floats] = {}

        width = k if k <= 2 * NARROWEST else max(NARROWEST, int(1.25 * np.sqrt(k)))
        x_block, y_sorted = (
            np.repeat(
                np.unique(starts // max(width, 1), return_inverse=True)[1],
                np.diff(starts, append=k),
            )
            for starts in (self.x_starts, self.y_starts)
        )
        rows = np.arange(k)
        self.x_signs = [(part, self._signs(rows[part])) for part in _slices(x_block)]
        self.y_signs: list[tuple[slice, NDArray[np.int8]]] = []
        self.grid = None
        if x_block.max(initial=0) > 0:
            for part in _slices(y_sorted):
                here = self.by_y[part]
                self.y_signs.append(
                    (part, self._signs(here) * (x_block[here][:, None] != x_block[here]))
                )
            self.shape = int(x_block[-1]) + 1, int(y_sorted[-1]) + 1
            y_block = y_sorted[np.argsort(self.by_y)]
            self.grid = summing(
                x_block * self.shape[1] + y_block, rows, (self.shape[0] * self.shape[1], k)
            )

    def _signs(self, rows: Integers) -> NDArray[np.int8]:
        """1 where two of the rows are concordant, -1 where discordant, 0 where tied."""
        x, y = self.x_code[rows], self.y_code[rows]
        return np.asarray((np.sign(x[:, None] - x) * np.sign(y[:, None] - y)).astype(np.int8))

    def rows(self, name: str, values: Floats, index: Integers) -> Floats:
        """values[index], in memory that one block of replicates hands to the next: asking for it anew costs a third."""
        shape = len(index), values.shape[1]
        if name not in self.memory or self.memory[name].shape != shape:
            self.memory[name] = np.empty(shape)
        return np.take(values, index, axis=0, out=self.memory[name], mode="clip")

    def net_concordance(self, by_x: Floats, by_y: Floats) -> Floats:
        """Concordant less discordant pairs of observations, for weights in the order of x and of y."""
        total = np.zeros(by_x.shape[1])
        for weights, blocks in ((by_x, self.x_signs), (by_y, self.y_signs)):
            for part, signs in blocks:
                total += (
                    np.einsum("kr,kr->r", signs.astype(float) @ weights[part], weights[part]) / 2
                )
        if self.grid is not None:
            cells = (self.grid @ by_x).reshape(*self.shape, -1)
            before = np.cumsum(
                np.cumsum(cells, axis=0) - cells, axis=1
            )  # in blocks of lower x, of y up to here
            net = before - before[:, -1:]
            net[:, 1:] += before[:, :-1]
            total += np.einsum("xyr,xyr->r", net, cells)
        return total


def _slices(block: Integers) -> list[slice]:
    """The rows of each block, of sorted codes."""
    return [
        slice(*ends) for ends in pairwise([*np.flatnonzero(np.diff(block, prepend=-1)), len(block)])
    ]


def correlations(
    table: Table, weights: Weights, *, statistics: Sequence[str] = STATISTICS
) -> Floats:
    """Pearson, Spearman and tau-b (or some) for weights (k, replicates); NaN where a variable is constant.

    Source: Spearman with midranks, cumulative sums of weights over items sorted once; tau-b as a quadratic form in the
    weights, Kendall, Biometrika 30 (1938), 81-93, and Rank Correlation Methods (1970), chapter 3, for ties.
    """
    w = np.ascontiguousarray(weights, dtype=float)
    n = w.sum(axis=0)
    by_y = table.rows("by_y", w, table.by_y)
    x_margin, y_margin = (
        weights if len(starts) == len(weights) else np.add.reduceat(weights, starts, axis=0)
        for weights, starts in ((w, table.x_starts), (by_y, table.y_starts))
    )
    # Twice the number of pairs that differ in a variable: 0 where it is constant.
    x_untied, y_untied = (
        n**2 - np.einsum("kr,kr->r", margin, margin) for margin in (x_margin, y_margin)
    )

    def pearson() -> Floats:
        mean_x, mean_y, square_x, square_y, product = table.moments @ w / n
        return (product - mean_x * mean_y) / np.sqrt(
            (square_x - mean_x**2) * (square_y - mean_y**2)
        )

    def spearman() -> Floats:
        x_rank = table.rows("x_rank", _midranks(x_margin), table.x_code)
        y_rank = table.rows("y_rank", _midranks(y_margin), table.y_code)
        shared = np.einsum("kr,kr,kr->r", w, x_rank, y_rank) - n**3
        x_spread, y_spread = (
            n**3 - np.einsum("kr,kr,kr->r", m, m, m) for m in (x_margin, y_margin)
        )
        return 3 * shared / np.sqrt(x_spread) / np.sqrt(y_spread)

    def kendall() -> Floats:
        return 2 * table.net_concordance(w, by_y) / np.sqrt(x_untied) / np.sqrt(y_untied)

    of = {"pearson": pearson, "spearman": spearman, "kendall": kendall}
    result = np.clip(
        [of[name]() for name in statistics], -1, 1
    )  # rounding only: |r| <= 1 by Cauchy-Schwarz
    result[:, (x_untied <= 1e-12 * n**2) | (y_untied <= 1e-12 * n**2)] = np.nan
    return result


def _midranks(margin: Floats) -> Floats:
    """Twice the midrank of each level, the weight below and half the weight at it: whole for whole weights."""
    rank = np.cumsum(margin, axis=0)
    rank *= 2
    rank -= margin
    return rank


def correlations_of(x: Floats, y: Floats, counts: Floats) -> Floats:
    """Pearson, Spearman, tau-b (3, replicates) of values (G, replicates) of their own; a count of 0 is absence."""
    # Equal means that were summed in another order still tie.
    x, y = (np.where(counts > 0, np.round(v, 12), 0) for v in (x, y))
    sign_x, sign_y = (np.sign(v[:, None] - v[None, :]) for v in (x, y))
    pairs = counts[:, None] * counts[None, :]
    concordance = (pairs * sign_x * sign_y).sum(axis=(0, 1))
    untied = np.sqrt((pairs * sign_x**2).sum(axis=(0, 1)) * (pairs * sign_y**2).sum(axis=(0, 1)))
    result = [concordance / np.where(untied > 0, untied, np.nan)]
    ranks = [(counts[None, :] * sign).sum(axis=1) for sign in (sign_x, sign_y)]
    for a, b in (ranks, (x, y)):
        a, b = (v - (counts * v).sum(axis=0) / counts.sum(axis=0) for v in (a, b))
        square_a, square_b, shared = ((counts * v).sum(axis=0) for v in (a * a, b * b, a * b))
        spread = np.sqrt(square_a * square_b)
        result.insert(0, np.clip(shared / np.where(spread > 0, spread, np.nan), -1, 1))
    return np.stack(result)
