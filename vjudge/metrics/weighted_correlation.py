"""Pearson, Spearman and Kendall correlations of weighted pairs, for many replicates at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vjudge.metrics.array_types import Floats, Integers, Weights
from vjudge.metrics.cells import dense_ranks, indicator_matrix

STATISTICS = ("pearson", "spearman", "kendall")


def correlations(
    x: Floats, y: Floats, weights: Weights, *, statistics: Sequence[str] = STATISTICS
) -> Floats:
    """Correlate k weighted pairs in each of many replicates.

    Args:
        x, y: the two scores of each pair; shape (k,).
        weights: how often each pair occurs in each replicate; shape (k, replicates).
        statistics: which correlations to compute, some of `STATISTICS`.

    Returns:
        Correlations in [-1, 1], shape (statistics, replicates): Pearson's r, Spearman's rho with
        midranks, Kendall's tau-b. NaN where a variable is constant or a replicate has fewer than
        three observations.

    Source: for ties Kendall, Rank Correlation Methods (1970), chapter 3.

    >>> x, y = np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])
    >>> correlations(x, y, np.ones((4, 1))).round(2).tolist()
    [[0.8], [0.8], [0.67]]
    """
    w = np.ascontiguousarray(weights, dtype=float)
    n = w.sum(axis=0)  # (replicates,)
    x_rank = dense_ranks(x)
    y_rank = dense_ranks(y)
    # The weight of each level of a score: (levels, replicates)
    x_margin = indicator_matrix(x_rank) @ w
    y_margin = indicator_matrix(y_rank) @ w
    # Ordered pairs of observations that differ in a score: n^2 minus those within each level.
    # Levels that hold 2, 2 and 1 of five observations: 25 - (4 + 4 + 1) = 16.
    x_untied = n**2 - np.einsum("kr,kr->r", x_margin, x_margin)
    y_untied = n**2 - np.einsum("kr,kr->r", y_margin, y_margin)
    rows = []
    for name in statistics:
        if name == "pearson":
            row = _pearson(x, y, w)
        elif name == "spearman":
            row = _spearman(x_rank, y_rank, x_margin, y_margin, w)
        else:
            # Kendall's tau-b. Net concordance counts a pair once, the denominator twice.
            row = 2 * net_concordance(x_rank, y_rank, w) / np.sqrt(x_untied) / np.sqrt(y_untied)
        rows.append(row)
    result = np.array(rows)  # (statistics, replicates)
    is_constant = np.minimum(x_untied, y_untied) <= 1e-12 * n**2
    result[:, is_constant | (n < 3)] = np.nan
    return np.clip(result, -1, 1)  # rounding alone goes beyond 1


def _pearson(x: Floats, y: Floats, w: Floats) -> Floats:
    """Compute Pearson's r of weighted pairs: covariance over both standard deviations."""
    # Center the scores once, at their mean over all replicates, so that squares lose no digits.
    share = w.sum(axis=1) / max(w.sum(), 1e-300)
    a = x - x @ share
    b = y - y @ share
    # First and second moments of each replicate: (5, replicates)
    moments = np.stack([a, b, a * a, b * b, a * b]) @ w / w.sum(axis=0)
    mean_a, mean_b, mean_aa, mean_bb, mean_ab = moments
    covariance = mean_ab - mean_a * mean_b
    return covariance / np.sqrt(mean_aa - mean_a**2) / np.sqrt(mean_bb - mean_b**2)


def _spearman(
    x_rank: Integers, y_rank: Integers, x_margin: Floats, y_margin: Floats, w: Floats
) -> Floats:
    """Compute Spearman's rho: Pearson's r of midranks.

    Args:
        x_rank, y_rank: the level of each pair's scores, 0, 1 ...; shape (k,).
        x_margin, y_margin: the weight of each level; shape (levels, replicates).
        w: the weight of each pair; shape (k, replicates).
    """
    n_cubed = w.sum(axis=0) ** 3
    # Twice the midrank of a level, minus 1: the weight up to its end plus that up to its start. Two
    # observations at the first level and one at the second have 0 + 2 = 2 and 2 + 3 = 5; their
    # midranks are 1.5 and 3. The mean of these numbers over all n observations is n.
    x_midrank = 2 * np.cumsum(x_margin, axis=0) - x_margin
    y_midrank = 2 * np.cumsum(y_margin, axis=0) - y_margin
    # With x and y these numbers, sum(x y) - n^3 over observations is n times their covariance, and
    # n^3 - sum(t^3) over levels, with t observations at a level, is 3 n times a variance.
    product = np.einsum("kr,kr,kr->r", w, x_midrank[x_rank], y_midrank[y_rank])
    x_spread = n_cubed - np.einsum("kr,kr,kr->r", x_margin, x_margin, x_margin)
    y_spread = n_cubed - np.einsum("kr,kr,kr->r", y_margin, y_margin, y_margin)
    return 3 * (product - n_cubed) / np.sqrt(x_spread) / np.sqrt(y_spread)


def net_concordance(x_rank: Integers, y_rank: Integers, w: Floats) -> Floats:
    """Count concordant minus discordant pairs of observations by radix partition.

    Knight's merge sort counts the exchanges of one sample. This function divides the rows into a
    lower and a higher half as Knight does, and since the division depends on the ranks alone it
    serves all replicates.

    The division goes by the bits of the ranks of x. At each bit, rows whose ranks agree in all
    higher bits form a block; within a block, rows with bit 0 are the lower half and rows with bit
    1 the higher half. Two rows of different x meet in different halves of one block at exactly one
    bit, the highest in which their ranks differ; two rows of equal x never do. Within a block,
    cumulative sums of the lower half's weights in the order of y tell how much of it lies below
    and above each row of the higher half in y.

    Five rows of weight 1, x = 0 0 1 2 2 and y = 0 2 1 1 2:

        bit  block (x)  lower half (y)  higher half (y)  concordant  discordant
        1    all rows   0, 2, 1         1, 2             1 + 2       1 + 0
        0    0 0 1      0, 2            1                1           1
        0    2 2        1, 2            none             0           0

    Four minus two is 2. (The pairs of y = 1 with 1 and of 2 with 2 tie.)

    Args:
        x_rank, y_rank: dense ranks 0, 1 ... of k rows; shape (k,).
        w: how often each row occurs in each replicate; shape (k, replicates).

    Returns:
        The net number of pairs in each replicate, shape (replicates,).

    Source: Knight, JASA 61 (1966), 436-439, for the division into halves.

    >>> x, y = np.array([0, 0, 1, 2, 2]), np.array([0, 2, 1, 1, 2])
    >>> net_concordance(x, y, np.ones((5, 1))).tolist()
    [2.0]
    """
    # 1) Partition by the variable of fewer levels: the fewer bits, the less work.
    if x_rank.max(initial=0) > y_rank.max(initial=0):
        x_rank, y_rank = y_rank, x_rank
    n_bits = int(x_rank.max(initial=0)).bit_length()
    y_levels = int(y_rank.max(initial=0)) + 1
    total = np.zeros(w.shape[1])
    for bit in range(n_bits):
        # 2) Sort rows by block and, within a block, by y; then divide them at this bit.
        prefix = x_rank >> bit  # its last bit is the half, the bits before it are the block
        block = prefix >> 1
        block_and_y = block * y_levels + y_rank
        order = np.argsort(block_and_y, kind="stable")
        is_high = prefix[order] & 1 == 1
        low = order[~is_high]
        high = order[is_high]
        # cumulative[i] is the weight of the first i rows of the lower halves.
        cumulative = np.zeros((len(low) + 1, w.shape[1]))
        np.cumsum(w[low], axis=0, out=cumulative[1:])
        # 3) For each higher row, find its block among the lower rows, and the rows of equal y:
        #    block_start .. tie_start are concordant, tie_stop .. block_stop discordant.
        block_start = np.searchsorted(block[low], block[high])
        block_stop = np.searchsorted(block[low], block[high], side="right")
        tie_start = np.searchsorted(block_and_y[low], block_and_y[high])
        tie_stop = np.searchsorted(block_and_y[low], block_and_y[high], side="right")
        # 4) Weigh each higher row by the weight concordant minus discordant with it.
        net = cumulative[tie_start] - cumulative[block_start]
        net -= cumulative[block_stop] - cumulative[tie_stop]
        total += np.einsum("kr,kr->r", net, w[high])
    return total
