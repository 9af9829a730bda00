"""How well judges rank systems, and which judges do it better than others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Booleans, Column, Floats, Integers
from vjudge.metrics.caveats import add_caveats
from vjudge.metrics.cells import dense_ranks
from vjudge.metrics.columns import check_columns, check_options, judges_by_name, read_scores
from vjudge.metrics.groups import group_codes
from vjudge.metrics.intervals import INTERVAL, t_quantile
from vjudge.metrics.ranking_measures import soft_pairwise_accuracy, tie_calibrated_accuracy
from vjudge.metrics.resampling import N_BLOCKS

# A function of the scores of people and of a judge, (systems, items), and of the indices of the
# items to use, that returns how well the judge ranks the systems
Measure = Callable[[Floats, Floats, np.ndarray], float]
RANK_LEVEL = 0.05  # significance level of the permutation tests between judges
EQUAL = 1e-9  # measures that differ by no more count as equal
N_SWAPS = 200  # random exchanges of two judges' scores, for each test between judges
FEW_RANKED = 8  # systems, below which a caveat says that results hold for these systems alone


def ranking_accuracy(
    reference: Column,
    judges: Mapping[str, Column] | pd.DataFrame,
    *,
    systems: Column,
    items: Column,
    confidence: float = 0.95,
    n_permutations: int = 1_000,
    seed: int = 4,
) -> pd.DataFrame:
    """Measure how well judges rank systems, on each item and over items, and rank the judges.

    Args:
        reference: the human score of each of n responses; NaN where missing.
        judges: name -> scores of the same responses, or a frame with a column for each judge.
        systems, items: the system that wrote each response, and the item it answers. Each system
            answers an item once.
        confidence: of the intervals, which generalise to new items but not to new systems.
        n_permutations, seed: of the permutation tests; the defaults are mt-metrics-eval's.

    Returns:
        One row per judge and statistic, the best judge first. Statistics:

        - `tie_calibrated`: the share of pairs of systems that the judge orders on an item as people
          do, ties included, averaged over items. The judge ties where its scores differ by at
          most `threshold`, which is chosen for the highest accuracy on these data.
        - `soft_pairwise`: 1 minus the mean absolute difference, over pairs of systems, between the
          p value that the first is better by human scores and the one by the judge's. It uses the
          items that all systems answered.

        Columns: estimate (in [0, 1]), low, high (Student's interval, by a jackknife over items),
        threshold (NaN for `soft_pairwise`), rank, n (responses that people and all judges scored)
        and missing. Judges share a rank if none of them is significantly worse than another of them
        (p <= .05 by a permutation test).

    Raises:
        ValueError: a system answers an item twice, or there are fewer than two systems.

    Source: Deutsch, Foster and Freitag, "Ties Matter" (arXiv 2305.14324), for accuracy with
    calibrated ties; Thompson et al., "Improving Statistical Significance in Human Evaluation of
    Automatic Metrics via Soft Pairwise Accuracy" (arXiv 2409.09598); the ranks as the WMT 2024
    metrics task has them (google-research/mt-metrics-eval).

    >>> table = ranking_accuracy(
    ...     [1, 2, 3, 4], {"one": [0, 2, 6, 8]}, systems=list("abcd"), items=[0] * 4
    ... )
    >>> table.loc[("one", "tie_calibrated"), ["estimate", "threshold"]].round(9).tolist()
    [1.0, 0.0]
    """
    check_options(confidence=confidence)
    tables, used = _tables(reference, judges, systems, items)
    n_systems, n_items = tables[0].shape
    is_complete = ~np.isnan(tables).any(axis=(0, 1))  # items that all systems answered
    # mt-metrics-eval draws the same signs for all pairs of systems, in single precision
    draws = np.random.default_rng(seed).random((n_permutations, is_complete.sum()), np.float32)
    signs = 2 * np.rint(draws) - 1  # (permutations, items)

    # Both measures as functions of the indices of items, so that the jackknife can leave items out;
    # those of `soft_pairwise` count complete items, as the columns of `signs` do
    def tie_calibrated(human: Floats, judge: Floats, indices: np.ndarray) -> float:
        return tie_calibrated_accuracy(human[:, indices], judge[:, indices])[0]

    def soft_pairwise(human: Floats, judge: Floats, indices: np.ndarray) -> float:
        return soft_pairwise_accuracy(human[:, indices], judge[:, indices], signs[:, indices])

    # 1) A table for each measure: judges with intervals and ranks, the best first
    names = list(map(str, judges))
    frame = _rank_judges(tie_calibrated, tables, names, confidence, seed)
    thresholds = [tie_calibrated_accuracy(tables[0], judge)[1] for judge in tables[1:]]
    frames = {"tie_calibrated": frame.assign(threshold=pd.Series(thresholds, names))}
    caveats = []
    if n_systems < FEW_RANKED:
        caveats.append(f"{n_systems} systems, and intervals and ranks are given these systems")
    if is_complete.any():
        complete = [table[:, is_complete] for table in tables]
        frames["soft_pairwise"] = _rank_judges(soft_pairwise, complete, names, confidence, seed)
    else:
        caveats.append("soft_pairwise is left out: no item has scores of all systems")
    # 2) One table of both
    result = pd.concat(frames, names=["statistic", "judge"]).swaplevel()
    result = result[[*INTERVAL, "threshold", "rank"]]
    result = result.assign(n=int(used.sum()), missing=int((~used).sum()))
    result.attrs["method"] = (
        f"{confidence:.0%} intervals (Student's) over {n_items} items, given {n_systems} systems;"
        f" ranks by permutations of pairs of judges, seed {seed}"
    )
    add_caveats(result, caveats)
    return result


def _tables(
    reference: Column,
    judges: Mapping[str, Column] | pd.DataFrame,
    systems: Column,
    items: Column,
) -> tuple[list[Floats], Booleans]:
    """Arrange scores as tables of systems by items.

    Returns:
        A table for people and then one for each judge, (systems, items), NaN where a score is
        missing; and which of the n responses people and all judges scored.

    Raises:
        ValueError: a system answers an item twice, or there are fewer than two systems.
    """
    by_name = judges_by_name(judges, minimum=1)
    check_columns(reference=reference, systems=systems)
    columns, used = read_scores(reference=reference, groups=items, **by_name)
    system = _sorted_codes(systems, used, "systems")
    item = _sorted_codes(items, used, "items")
    n_systems = int(system.max(initial=-1)) + 1  # 0 without any used response
    n_items = int(item.max(initial=-1)) + 1
    if len(np.unique(system * n_items + item)) < len(system):
        raise ValueError("a system answers an item twice: give the mean, or name the samples apart")
    if n_systems < 2:
        raise ValueError(f"{n_systems} system(s): ranking takes two or more")
    tables = np.full((len(columns), n_systems, n_items), np.nan)
    tables[:, system, item] = np.stack(columns)[:, used]
    return list(tables), used


def _sorted_codes(labels: Column, used: Booleans, name: str) -> Integers:
    """Code the labels of used rows by their alphabetical order.

    Random draws are then the same whatever the order of the rows.
    """
    group_codes(labels, used, name=name)  # refuses missing labels
    texts = np.array([str(label) for label in labels], dtype=object)
    return dense_ranks(texts[used])


def _rank_judges(
    measure: Measure, tables: list[Floats], names: list[str], confidence: float, seed: int
) -> pd.DataFrame:
    """Evaluate k judges by one measure, and rank them.

    Args:
        tables: k + 1 tables of scores, those of people and then those of each judge; (systems,
            items).
        names: of the k judges.
        confidence, seed: as in `ranking_accuracy`.

    Returns:
        Columns estimate, low, high and rank by judge, the best first.
    """
    human, *judges = tables
    items = np.arange(human.shape[1])
    estimate = np.array([measure(human, judge, items) for judge in judges])
    # 1) Intervals by the jackknife, which leaves out one of G blocks of items after another: the
    # variance is (G - 1) / G times the sum of squared deviations from their mean
    blocks = np.array_split(items, min(len(items), N_BLOCKS))
    without_block = np.full((len(blocks), len(judges)), np.nan)
    if len(items) > 1:
        for row, block in enumerate(blocks):
            remaining = np.delete(items, block)
            without_block[row] = [measure(human, judge, remaining) for judge in judges]
    freedom = max(len(blocks) - 1, 1)
    error = np.sqrt(freedom * np.var(without_block, axis=0))  # NaN for a single item
    half_width = t_quantile(confidence, freedom) * error
    bounds = np.clip([estimate, estimate - half_width, estimate + half_width], 0, 1)
    # 2) Ranks by tests between judges
    p = _p_first_judge_is_better(measure, human, judges, estimate, seed)
    order = np.argsort(-estimate, kind="stable")
    frame = pd.DataFrame(bounds.T, names, INTERVAL).iloc[order]
    return frame.assign(rank=rank_groups(p[np.ix_(order, order)]))


def _p_first_judge_is_better(
    measure: Measure, human: Floats, judges: list[Floats], estimate: Floats, seed: int
) -> Floats:
    """Test for each pair of judges whether the first is better, by a permutation test.

    Each permutation exchanges the two judges' standardised scores of some responses, of each with
    probability 1/2.

    Args:
        human, judges: scores of people and of k judges, (systems, items).
        estimate: the measure of each judge; (k,).

    Returns:
        The one-sided p value that judge a is better than judge b at [a, b]; (k, k).
    """
    k = len(judges)
    items = np.arange(human.shape[1])
    rng = np.random.default_rng(seed)
    # A judge with equal scores has no standard deviation to divide by
    standardised = [(judge - np.nanmean(judge)) / (np.nanstd(judge) or 1.0) for judge in judges]
    p = np.ones((k, k))
    for a, b in combinations(range(k), 2):
        differences = np.empty(N_SWAPS)
        for swap in range(N_SWAPS):
            is_swapped = rng.random(human.shape) < 0.5
            mixed_a = np.where(is_swapped, standardised[a], standardised[b])
            mixed_b = np.where(is_swapped, standardised[b], standardised[a])
            differences[swap] = measure(human, mixed_a, items) - measure(human, mixed_b, items)
        observed = estimate[a] - estimate[b]
        p[a, b] = np.mean(differences >= observed - EQUAL)
        p[b, a] = np.mean(differences <= observed + EQUAL)
    return p


def rank_groups(p: Floats, level: float = RANK_LEVEL) -> list[int]:
    """Give k judges, sorted from the best to the worst, ranks that similar judges share.

    A judge starts a new rank if any judge of the current rank is significantly better.

    Args:
        p: p[a, b], for a before b, is the p value of the test that judge a is better than judge b;
            (k, k).
        level: p values up to this are significant.

    >>> rank_groups(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]]))
    [1, 1, 2]
    """
    ranks = [1]
    start = 0  # the first judge of the current rank
    for judge in range(1, len(p)):
        rank = ranks[-1]
        if (p[start:judge, judge] <= level).any():
            rank += 1
            start = judge
        ranks.append(rank)
    return ranks
