"""Kendall's test within blocks: whether two measures of a block's rows are independent."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
from scipy import stats

from vjudge.metrics.array_types import Floats

FEW_BLOCKS = 50  # up to which the test within blocks is exact
SMALL_BLOCK = 6  # responses, of which there are 720 orders


def within_blocks(blocks: list[Floats]) -> tuple[float, float]:
    """How often the better of two responses is the longer one within blocks, and a p-value.

    Args:
        blocks: of each question an array with score and length of each response, shape (n, 2).

    Returns:
        The share in [0, 1] over pairs with different scores, ties in length counted as half, and
        the p of the test that score and length are independent within blocks: exact for up to 50
        blocks of up to six responses, else by the normal distribution; NaN without such pairs.

    Four pairs in which the better one is always the longer: 2 / 2^4 = .125, where the normal
    distribution says .046.

    Source: Daniels, Biometrika 33 (1944), 129-135, of which Kendall's S with ties is a case.
    """
    net = 0.0
    pairs = 0
    variance = 0.0
    orders = []
    for block in blocks:
        n = len(block)
        signs = np.sign(block.T[:, :, None] - block.T[:, None])  # (score and length, n, n)
        net += float(signs.prod(axis=0).sum())
        pairs += int(np.count_nonzero(signs[0]))
        orders.append(signs)
        # The variance of the sum over orders of the items
        squares = (signs**2).sum(axis=(1, 2))
        spread = (signs.sum(axis=2) ** 2).sum(axis=1) - squares
        variance += 2 * squares.prod() / max(n * (n - 1), 1)
        variance += 4 * spread.prod() / max(n * (n - 1) * (n - 2), 1)
    if not pairs:
        return math.nan, math.nan
    if len(blocks) <= FEW_BLOCKS and max(map(len, blocks)) <= SMALL_BLOCK:
        p = _exact(round(abs(net) / 2), orders)
    elif variance:
        p = float(2 * stats.norm.sf(abs(net) / math.sqrt(variance)))
    else:
        p = 1.0
    return float((net / pairs + 1) / 2), p


def _exact(net: int, blocks: list[Floats]) -> float:
    """The share of all orders of the lengths within blocks whose |S| is `net` or more.

    S of a block is the number of pairs of which the better is the longer, less that of which it is
    the shorter. Blocks are independent, so that the distribution of their sum is the convolution of
    theirs: of two pairs 1/4, 1/2, 1/4 at -2, 0, 2.
    """
    distribution = np.ones(1)  # of S from -reach to reach
    for ahead, longer in blocks:
        order = np.array(list(permutations(range(len(ahead)))))  # (orders, n)
        shuffled = longer[order[:, :, None], order[:, None, :]]  # (orders, n, n)
        s = np.rint((ahead * shuffled).sum(axis=(1, 2)) / 2).astype(int)
        reach = math.comb(len(ahead), 2)
        share = np.bincount(s + reach, minlength=2 * reach + 1) / len(order)
        distribution = np.convolve(distribution, share)
    reach = len(distribution) // 2
    extreme = np.abs(np.arange(-reach, reach + 1)) >= net
    return float(min(distribution[extreme].sum(), 1.0))
