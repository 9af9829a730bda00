"""Two measures of how well a judge ranks systems: accuracy with calibrated ties, soft accuracy.

Scores are tables of systems by items. Pairs of systems are in the order of `np.triu_indices`:
of three systems (0, 1), (0, 2), (1, 2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vjudge.metrics.array_types import Floats


def tie_calibrated_accuracy(human: Floats, judge: Floats) -> tuple[float, float]:
    """Measure how often a judge orders two responses as people do, ties included.

    The judge ties where its scores differ by at most a threshold, which is chosen for the highest
    accuracy on these data.

    Args:
        human, judge: scores, (systems, items); NaN where missing.

    Returns:
        The accuracy, a mean over items, and the threshold; both NaN where no item has two systems
        with both scores.
    """
    i, j = np.triu_indices(len(human), 1)
    human_difference = human[i] - human[j]  # (pairs of systems, items)
    judge_difference = judge[i] - judge[j]
    is_scored = ~np.isnan(human_difference + judge_difference)
    if not is_scored.any():
        return np.nan, np.nan
    # Each item weighs the same, whatever the number of its scored pairs
    n_pairs = is_scored.sum(axis=0)  # (items,)
    weight = is_scored / np.maximum(n_pairs, 1) / max(np.count_nonzero(n_pairs), 1)
    threshold = best_tie_threshold(
        human_difference[is_scored], judge_difference[is_scored], weight[is_scored]
    )
    is_tie = np.abs(judge_difference) <= threshold
    judge_order = np.where(is_tie, 0, np.sign(judge_difference))
    return float(weight[np.sign(human_difference) == judge_order].sum()), threshold


def best_tie_threshold(human: Floats, judge: Floats, weight: Floats) -> float:
    """Find the difference in a judge's scores up to which calling a tie gives the best accuracy.

    Args:
        human, judge: the differences between the two scores of each pair; (pairs,).
        weight: of each pair.

    Returns:
        The lowest of equally good thresholds; candidates are 0 and the judge's differences.

    People tie on the first three of these six pairs, where the judge's differences are 2, 6 and 4.
    On the last three the judge's differences are 8, 6 and 2, in people's order. A threshold of 4
    corrects two of the first three pairs and spoils the last one:

    >>> human, judge = np.array([0, 0, 0, 3, 3, 3]), np.array([2, 6, 4, 8, 6, 2])
    >>> best_tie_threshold(human, judge, np.full(6, 1 / 6))
    4.0
    """
    size = np.abs(judge)
    order = np.argsort(size, kind="stable")
    # Whether the judge is right on a pair if it calls a tie, and if it keeps its order; with a
    # difference of 0 it ties in any case
    right_if_tie = (human == 0).astype(float)
    right_as_is = np.where(size == 0, right_if_tie, np.sign(judge) == np.sign(human))
    # A threshold t turns all pairs up to size t into ties. In the order of size, the gain of t is
    # therefore the cumulative sum of what each pair gains as a tie.
    gain = np.cumsum(((right_if_tie - right_as_is) * weight)[order])
    # Pairs of equal size become ties together: take the gain at the last pair of each size
    last_of_size = np.flatnonzero(np.diff(size[order], append=np.inf) > 0)
    gains = np.r_[0.0, gain[last_of_size]]
    thresholds = np.r_[0.0, size[order][last_of_size]]
    # `argmax` takes the first of equal gains; rounding removes differences of summation alone
    return float(thresholds[np.argmax(np.round(gains, 12))])


def p_first_is_better(scores: Floats, signs: NDArray[np.float32]) -> Floats:
    """Test for each pair of systems whether the first is better: a paired permutation test.

    Args:
        scores: (systems, items), none missing.
        signs: 1 or -1, (permutations, items). A sign of -1 swaps the two systems' scores of that
            item, so that their difference changes its sign.

    Returns:
        The one-sided p value of each pair of systems; (pairs of systems,).
    """
    single = scores.astype(np.float32)  # as mt-metrics-eval computes
    sums = single.sum(axis=1)
    permuted_sums = signs @ single.T  # (permutations, systems)
    i, j = np.triu_indices(len(scores), 1)
    return np.mean(permuted_sums[:, i] - permuted_sums[:, j] >= sums[i] - sums[j], axis=0)


def soft_pairwise_accuracy(human: Floats, judge: Floats, signs: NDArray[np.float32]) -> float:
    """Measure how far a judge is as sure as people are which of two systems is better.

    With p values of .02 (people) and .30 (judge) for one pair of systems, and of .50 and .40 for a
    second pair, the accuracy is 1 - (.28 + .10) / 2 = .81.

    Args:
        human, judge: tables of scores, as in `p_first_is_better`.
        signs: as in `p_first_is_better`.
    """
    difference = p_first_is_better(human, signs) - p_first_is_better(judge, signs)
    return float(1 - np.abs(difference).mean())
