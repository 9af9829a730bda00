"""Test by Kendall's S whether two measures are independent within blocks of rows."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
from scipy import stats

from vjudge.metrics.array_types import Floats

# The test is exact for at most so many blocks, of at most so many rows, which have 720 orders.
EXACT_BLOCKS = 50
EXACT_ROWS = 6


def within_blocks(blocks: list[Floats]) -> tuple[float, float]:
    """Test whether the better of two responses tends to be the longer one within blocks.

    Kendall's S of a block counts its concordant minus its discordant pairs, and the test takes
    their sum over blocks. Four blocks of one pair each, in all of which the better response is the
    longer: p = 2 / 2^4 = .125, where the normal distribution says .046.

    Args:
        blocks: one array per question, with the score and the length of each of its n responses;
            shape (n, 2).

    Returns:
        The share of concordant pairs, in [0, 1], among the pairs of one block with different
        scores, ties in length counted as half; and the two-sided p-value of the test that score and
        length are independent within blocks. It is exact for up to 50 blocks of up to six
        responses, else by the normal distribution. Both are NaN if no pair has different scores.

    Source: Daniels, Biometrika 33 (1944), 129-135, for the variance of a general coefficient, of
    which Kendall's S with ties is a case.
    """
    # Each pair is counted in both orders, so that all sums are twice those over pairs.
    twice_s = 0.0
    n_untied = 0  # ordered pairs with different scores
    variance = 0.0  # of twice_s
    signs = []
    for block in blocks:
        # The sign of each ordered pair's difference, in score and in length: (2, n, n)
        pair_signs = np.sign(block.T[:, :, None] - block.T[:, None])
        signs.append(pair_signs)
        twice_s += float(pair_signs.prod(axis=0).sum())
        n_untied += int(np.count_nonzero(pair_signs[0]))
        variance += _daniels_variance(pair_signs)
    if not n_untied:
        return math.nan, math.nan
    if len(blocks) <= EXACT_BLOCKS and max(map(len, blocks)) <= EXACT_ROWS:
        p = _exact_p(round(abs(twice_s) / 2), signs)
    elif variance:
        p = float(2 * stats.norm.sf(abs(twice_s) / math.sqrt(variance)))
    else:
        p = 1.0
    return float((twice_s / n_untied + 1) / 2), p


def _daniels_variance(signs: Floats) -> float:
    """Compute the variance of sum(a_ij b_ij) over random orders of one of the two measures.

    It is 4 A B / (n (n - 1) (n - 2)) + 2 A' B' / (n (n - 1)). Here A' is the sum of a_ij^2, A the
    sum over rows i of (sum_j a_ij)^2 minus A', and B' and B are the same sums of b.

    Args:
        signs: the matrices a and b of one block, shape (2, n, n).
    """
    n = signs.shape[1]
    squares = (signs**2).sum(axis=(1, 2))  # A', B'
    row_squares = (signs.sum(axis=2) ** 2).sum(axis=1) - squares  # A, B
    variance = 2 * squares.prod() / max(n * (n - 1), 1)
    return variance + 4 * row_squares.prod() / max(n * (n - 1) * (n - 2), 1)


def _exact_p(s: int, signs: list[Floats]) -> float:
    """Compute the probability that |S| is at least s if all orders in blocks are equally likely.

    Blocks are independent, so that the distribution of their sum is the convolution of theirs. A
    block of one pair has S = -1 or 1; the sum of two is -2, 0, 2 with probability 1/4, 1/2, 1/4.

    Args:
        s: the size of the observed S.
        signs: for each block the signs of its ordered pairs in score and in length, shape
            (2, n, n).
    """
    distribution = np.ones(1)  # of S, from its lowest to its highest value
    for score_signs, length_signs in signs:
        n = len(score_signs)
        orders = np.array(list(permutations(range(n))))  # (n!, n)
        shuffled = length_signs[orders[:, :, None], orders[:, None, :]]  # (n!, n, n)
        # Half of the sum over ordered pairs
        s_of_order = np.rint((score_signs * shuffled).sum(axis=(1, 2)) / 2).astype(int)
        highest = math.comb(n, 2)  # S if all pairs are concordant; the lowest is minus this
        counts = np.bincount(s_of_order + highest, minlength=2 * highest + 1)
        distribution = np.convolve(distribution, counts / len(orders))
    highest = len(distribution) // 2
    is_extreme = np.abs(np.arange(-highest, highest + 1)) >= s
    return float(min(distribution[is_extreme].sum(), 1.0))
