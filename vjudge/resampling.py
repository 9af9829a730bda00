"""Bootstrap of rank and linear correlations, exact and fast on a bounded scale.

Judges score on short scales, so n pairs of scores hold few distinct pairs (at most 25 on a 5-point scale). A
correlation is a function of how often each distinct pair occurs, and a bootstrap replicate is a new vector of those
counts: one multinomial draw, whatever n is. Continuous scores take the same path with as many distinct pairs as items,
in O(items x log items) a replicate. Work is done in blocks of replicates that stay below `BLOCK_BYTES` an array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse, stats

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Draw = Callable[[int], NDArray[np.number]]

STATISTICS = ("pearson", "spearman", "kendall")
BLOCK_BYTES = 16 * 2**20
JACKKNIFE_UNITS = 1_000


@dataclass(frozen=True)
class Table:
    """The distinct pairs of two variables and how often each occurs.

    Args:
        x, y: values of the k distinct pairs, sorted by x, then y; shape (k,).
        counts: how often each pair occurs; shape (k,).
        cell: the distinct pair of each observation; shape (n,).
    """

    x: Floats
    y: Floats
    counts: Integers
    cell: Integers

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Table:
        """Tabulate n finite pairs."""
        x_code, x_level = pd.factorize(x, sort=True)
        y_code, y_level = pd.factorize(y, sort=True)
        cell, pair = pd.factorize(x_code * len(y_level) + y_code, sort=True)
        return cls(
            x=np.asarray(x_level, dtype=float)[pair // max(len(y_level), 1)],
            y=np.asarray(y_level, dtype=float)[pair % max(len(y_level), 1)],
            counts=np.bincount(cell, minlength=len(pair)),
            cell=cell.astype(np.int64),
        )


def correlations(table: Table, weights: NDArray[np.number]) -> Floats:
    """Pearson, Spearman and Kendall's tau-b for many weightings of the same distinct pairs.

    Args:
        table: the distinct pairs; k of them.
        weights: how often each pair occurs in each replicate; shape (k, replicates).

    Returns:
        Shape (3, replicates), in the order of `STATISTICS`; NaN where a variable is constant in a replicate.

    Source: Spearman with midranks; tau-b by counting discordant pairs as in Knight, JASA 61 (1966), here level by level
    on the bits of y's rank, so that one sort serves all replicates.
    """
    w = np.ascontiguousarray(weights, dtype=float)
    n = w.sum(axis=0)
    x_code, y_code = _codes(table.x), _codes(table.y)
    by_y = np.lexsort((x_code, y_code))
    x_margin, y_margin = _margin(w, x_code), _margin(w[by_y], y_code[by_y])
    constant = (x_margin.max(axis=0) == n) | (y_margin.max(axis=0) == n)

    x, y = _standardised(table.x, table.counts), _standardised(table.y, table.counts)
    mean_x, mean_y = x @ w / n, y @ w / n
    covariance = (x * y) @ w / n - mean_x * mean_y
    pearson = covariance / np.sqrt(((x * x) @ w / n - mean_x**2) * ((y * y) @ w / n - mean_y**2))

    x_rank, y_rank = _centred_midranks(x_margin, n), _centred_midranks(y_margin, n)
    shared = np.einsum("kr,kr,kr->r", w, x_rank[x_code], y_rank[y_code])
    spread = np.einsum("kr,kr,kr->r", x_margin, x_rank, x_rank) * np.einsum("kr,kr,kr->r", y_margin, y_rank, y_rank)
    spearman = shared / np.sqrt(spread)

    pairs, x_ties, y_ties, both = n * (n - 1) / 2, _tied(x_margin), _tied(y_margin), _tied(w)
    concordant_less_discordant = pairs - x_ties - y_ties + both - 2 * _discordant(w, y_code)
    kendall = concordant_less_discordant / np.sqrt(pairs - x_ties) / np.sqrt(pairs - y_ties)

    values = np.clip(np.stack([pearson, spearman, kendall]), -1, 1)  # rounding only: |r| <= 1 by Cauchy-Schwarz
    values[:, constant] = np.nan
    return values


def bootstrap(table: Table, *, groups: Integers | None, n_resamples: int, seed: int) -> Floats:
    """Correlations of bootstrap replicates.

    Args:
        table: the distinct pairs of n observations.
        groups: code 0..G-1 of each observation's group, shape (n,): whole groups are drawn, G of them, with
            replacement. None draws observations.
        n_resamples: replicates.
        seed: of a `numpy.random.Generator`; the result does not depend on the block size.

    Returns:
        Shape (3, n_resamples), in the order of `STATISTICS`.
    """
    rng = np.random.default_rng(seed)
    block = max(1, BLOCK_BYTES // (8 * max(len(table.x), 1)))
    draw = _item_draws(table, rng) if groups is None else _group_draws(table, groups, rng)
    sizes = [min(block, n_resamples - start) for start in range(0, n_resamples, block)]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.concatenate([correlations(table, draw(size)) for size in sizes], axis=1)


def interval(
    table: Table, *, groups: Integers | None, confidence: float, n_resamples: int, seed: int
) -> tuple[Floats, Floats]:
    """Bias-corrected and accelerated (BCa) bootstrap intervals of the three correlations.

    Args:
        table: the distinct pairs of n observations.
        groups: code of each observation's group, shape (n,), or None; see `bootstrap`.
        confidence: coverage aimed at, in (0, 1).
        n_resamples, seed: see `bootstrap`.

    Returns:
        Bounds of shape (3, 2), and the share of replicates in which each statistic was undefined, shape (3,); those
        replicates are left out of the bounds. A bound is NaN where the statistic or more than half its replicates are.

    Over 1,500 simulated samples of 50 items on a 5-point scale (latent correlation .67), 95 % intervals covered the
    truth in 93.5 % (Pearson), 94.3 % and 94.3 %; plain percentiles in 92.4 %, 93.9 % and 93.3 %.

    Source: Efron, JASA 82 (1987), section 3. The acceleration comes from a jackknife over items or groups, in at most
    `JACKKNIFE_UNITS` blocks.
    """
    replicates = bootstrap(table, groups=groups, n_resamples=n_resamples, seed=seed)
    estimates = correlations(table, table.counts[:, None])[:, 0]
    weights, copies = _jackknife(table, groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        jackknife = correlations(table, weights)
    undefined = np.isnan(replicates).mean(axis=1)
    bounds = np.full((len(STATISTICS), 2), np.nan)
    for row in range(len(STATISTICS)):
        if undefined[row] <= 0.5 and np.isfinite(estimates[row]):
            values = replicates[row][~np.isnan(replicates[row])]
            bounds[row] = _bca(values, estimates[row], jackknife[row], copies, confidence)
    return bounds, undefined


def _bca(values: Floats, estimate: float, jackknife: Floats, copies: Integers, confidence: float) -> Floats:
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    # Replicates on a coarse scale tie with the estimate: half of the ties count as below.
    tie = np.isclose(values, estimate, rtol=0, atol=1e-12)
    below = ((values < estimate) & ~tie).mean() + tie.mean() / 2
    if 0 < below < 1:
        use = np.isfinite(jackknife)
        centre = np.average(jackknife[use], weights=copies[use]) if use.any() else estimate
        gap = centre - jackknife[use]
        variance = copies[use] @ gap**2
        acceleration = copies[use] @ gap**3 / (6 * variance**1.5) if variance > 0 else 0.0
        z = stats.norm.ppf(below)
        shifted = z + stats.norm.ppf(tails)
        stretch = 1 - acceleration * shifted
        if (stretch > 0).all():  # else, in the smallest samples, the correction has a pole: plain percentiles
            tails = stats.norm.cdf(z + shifted / stretch)
    return np.quantile(values, tails)


def _item_draws(table: Table, rng: np.random.Generator) -> Draw:
    n, k = len(table.cell), len(table.counts)
    if 4 * k < n:
        share = table.counts / n
        return lambda size: rng.multinomial(n, share, size=size).T

    def draw(size: int) -> NDArray[np.number]:
        cells = table.cell[rng.integers(n, size=(size, n))]
        return np.bincount((cells + np.arange(size)[:, None] * k).ravel(), minlength=size * k).reshape(size, k).T

    return draw


def _group_draws(table: Table, groups: Integers, rng: np.random.Generator) -> Draw:
    members = _group_tables(table, groups)
    n_groups = members.shape[1]
    share = np.full(n_groups, 1 / n_groups)
    return lambda size: members @ rng.multinomial(n_groups, share, size=size).T


def _group_tables(table: Table, groups: Integers) -> sparse.csr_array:
    """How often each distinct pair occurs in each group: shape (k, groups)."""
    shape = (len(table.counts), int(groups.max()) + 1)
    return sparse.csr_array((np.ones(len(groups)), (table.cell, groups)), shape=shape)


def _jackknife(table: Table, groups: Integers | None) -> tuple[Floats, Integers]:
    """Weights that leave out one unit each, shape (k, units), and how many units each column stands for."""
    k = len(table.counts)
    if groups is None and k <= JACKKNIFE_UNITS:
        return table.counts[:, None] - np.eye(k), table.counts
    units = np.arange(len(table.cell)) if groups is None else groups
    n_units = int(units.max()) + 1
    blocks = units * min(n_units, JACKKNIFE_UNITS) // n_units
    left_out = _group_tables(table, blocks).toarray()
    return table.counts[:, None] - left_out, np.ones(left_out.shape[1], dtype=np.int64)


def _codes(values: Floats) -> Integers:
    return np.unique(values, return_inverse=True)[1]


def _margin(weights: Floats, codes: Integers) -> Floats:
    """Weights summed over rows of the same code; rows are sorted by code. Shape (levels, replicates)."""
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    return weights if len(starts) == len(weights) else np.add.reduceat(weights, starts, axis=0)


def _standardised(values: Floats, counts: Integers) -> Floats:
    """Values with mean 0 and largest distance 1 in the sample, so that sums of squares neither cancel nor overflow."""
    centred = values - np.average(values, weights=counts)
    return centred / max(np.abs(centred).max(), np.finfo(float).tiny)


def _centred_midranks(margin: Floats, n: Floats) -> Floats:
    """Midrank of each level less the mean rank, times two: an integer, so exact."""
    return 2 * np.cumsum(margin, axis=0) - margin - n


def _tied(weights: Floats) -> Floats:
    """Pairs of observations within the same row, per replicate."""
    return np.einsum("kr,kr->r", weights, weights - 1) / 2


def _discordant(weights: Floats, y_code: Integers) -> Floats:
    """Pairs of observations ordered one way by x and the other way by y; rows are sorted by x, then y.

    Two ranks of y differ first at one bit: a pair is discordant when the earlier row has that bit set and the later row
    has not. For each bit, rows with equal higher bits stand together, in x order.
    """
    total = np.zeros(weights.shape[1])
    for bit in range(int(y_code.max(initial=0)).bit_length()):
        order = np.argsort(y_code >> (bit + 1), kind="stable")
        block, is_set = y_code[order] >> (bit + 1), (y_code[order] >> bit & 1).astype(bool)
        rows = weights[order]
        seen = np.cumsum(rows * is_set[:, None], axis=0)
        first = np.searchsorted(block, block[~is_set])  # of the block each unset row is in
        before = np.vstack([np.zeros(weights.shape[1]), seen])[first]
        total += np.einsum("kr,kr->r", rows[~is_set], seen[~is_set] - before)
    return total
