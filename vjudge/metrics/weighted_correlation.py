"""Pearson, Spearman and Kendall correlations of weighted pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vjudge.metrics.array_types import Floats, Integers, Weights
from vjudge.metrics.cells import codes, indicator_matrix

STATISTICS = ("pearson", "spearman", "kendall")


def correlations(
    x: Floats, y: Floats, weights: Weights, *, statistics: Sequence[str] = STATISTICS
) -> Floats:
    """Correlations of k pairs for weights (k, replicates).

    NaN where a variable is constant, and of fewer than three observations.

    Source: Spearman's with midranks; Kendall's tau-b, Kendall, Rank Correlation Methods (1970),
    chapter 3, for ties.
    """
    w = np.ascontiguousarray(weights, dtype=float)
    n = w.sum(axis=0)
    x_code = codes(x)
    y_code = codes(y)
    x_margin = indicator_matrix(x_code) @ w  # the weight of each level
    y_margin = indicator_matrix(y_code) @ w
    # Twice the number of pairs of observations that differ in a variable.
    x_untied = n**2 - np.einsum("kr,kr->r", x_margin, x_margin)
    y_untied = n**2 - np.einsum("kr,kr->r", y_margin, y_margin)
    rows = []
    for name in statistics:
        if name == "pearson":
            row = _pearson(x, y, w)
        elif name == "spearman":
            row = _spearman(x_code, y_code, x_margin, y_margin, w)
        else:
            net = net_concordance(x_code, y_code, w)
            row = 2 * net / np.sqrt(x_untied) / np.sqrt(y_untied)
        rows.append(row)
    result = np.array(rows)
    constant = np.minimum(x_untied, y_untied) <= 1e-12 * n**2
    result[:, constant | (n < 3)] = np.nan
    return np.clip(result, -1, 1)  # only rounding goes beyond 1


def _pearson(x: Floats, y: Floats, w: Floats) -> Floats:
    """Pearson's r from the moments of scores about their mean."""
    share = w.sum(axis=1) / max(w.sum(), 1e-300)
    a = x - x @ share
    b = y - y @ share
    moments = np.stack([a, b, a * a, b * b, a * b]) @ w / w.sum(axis=0)
    mean_a, mean_b, square_a, square_b, product = moments
    covariance = product - mean_a * mean_b
    return covariance / np.sqrt(square_a - mean_a**2) / np.sqrt(square_b - mean_b**2)


def _spearman(
    x_code: Integers, y_code: Integers, x_margin: Floats, y_margin: Floats, w: Floats
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
    """Concordant less discordant pairs of observations, by radix partition over the bits of x.

    Knight's merge sort counts the exchanges of one sample; here the same division of the rows into
    a lower and a higher half serves all replicates, since it depends on the codes alone. At each
    bit, rows whose codes of x agree in the bits before it are a block; within a block those with a
    1 lie above those with a 0. So every pair of rows of different x meets at exactly one bit, and
    ties in x at none. Cumulative sums of the lower half's weights by y say how much of it lies
    below and above each row of the higher half in y.

    Five rows of weight 1, x = 0 0 1 2 2 and y = 0 2 1 1 2:

        bit  block  lower half (y)  higher half (y)  concordant  discordant
        1    all    0, 2, 1         1, 2             1 + 2       1 + 0
        0    0 0 1  0, 2            1                1           1
        0    2 2    1, 2            none             0           0

    Four less two is 2. (The pairs of y = 1 with 1 and of 2 with 2 tie.)

    Args:
        x_code, y_code: ranks 0, 1, ... of k rows.
        w: how often each row occurs in each replicate; shape (k, replicates).

    Returns:
        One number a replicate, shape (replicates,).

    Source: Knight, JASA 61 (1966), 436-439, for the division into halves.

    >>> x, y = np.array([0, 0, 1, 2, 2]), np.array([0, 2, 1, 1, 2])
    >>> net_concordance(x, y, np.ones((5, 1))).tolist()
    [2.0]
    """
    # 1) Partition by the variable of fewer levels: the fewer bits, the less work.
    x_last = int(x_code.max(initial=0))
    y_last = int(y_code.max(initial=0))
    if x_last > y_last:
        x_code, y_code = y_code, x_code
        x_last, y_last = y_last, x_last
    y_levels = y_last + 1
    total = np.zeros(w.shape[1])
    for bit in range(x_last.bit_length()):
        # 2) Sort rows by block and, within a block, by y; then divide them at this bit.
        prefix = x_code >> bit
        block = prefix >> 1
        key = block * y_levels + y_code
        order = np.argsort(key, kind="stable")
        is_high = prefix[order] & 1 == 1
        low = order[~is_high]
        high = order[is_high]
        below = np.zeros((len(low) + 1, w.shape[1]))  # (lower rows + 1, replicates)
        np.cumsum(w[low], axis=0, out=below[1:])
        # 3) Of the lower half in the same block, add the rows of lower y: concordant.
        start = np.searchsorted(block[low], block[high])
        stop = np.searchsorted(key[low], key[high])
        net = below[stop] - below[start]
        # 4) Subtract those of higher y: discordant.
        start = np.searchsorted(key[low], key[high], side="right")
        stop = np.searchsorted(block[low], block[high], side="right")
        net -= below[stop] - below[start]
        total += np.einsum("kr,kr->r", net, w[high])
    return total
