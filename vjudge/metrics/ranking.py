"""How a judge ranks systems and responses: pairs with ties, confidence in pairs, best of n."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vjudge.metrics.columns import Column, aligned, check_options, group_codes, warn
from vjudge.metrics.resampling import Floats, Integers, codes, student
from vjudge.metrics.tables import INTERVAL, add_caveats

SIGNIFICANT = 0.05
ROUNDING = 1e-9
SWAPS = 200  # permutations of two judges for soft pairwise accuracy, each of which holds a test
BLOCKS = 50  # of items, left out in turn
FEW_SYSTEMS = 8
FEW_QUESTIONS = 20


def ranking_accuracy(
    reference: Column,
    judges: Mapping[str, Any] | pd.DataFrame,
    *,
    systems: Column,
    items: Column,
    confidence: float = 0.95,
    n_permutations: int = 1_000,
    seed: int = 4,
) -> pd.DataFrame:
    """Measure how well judges rank systems, on each item and over items, and rank the judges.

    Args:
        reference: people's score of each of n responses; NaN where missing.
        judges: name -> scores of the same responses, or a frame with a column each.
        systems, items: the system that wrote each response, and the item it answers. Each system
            answers an item once.
        confidence: of the intervals, over items like these, given these systems.
        n_permutations, seed: of the permutation tests; the defaults are mt-metrics-eval's.

    Returns:
        A row a judge and statistic, best first: estimate in [0, 1], low and high (Student's, over
        items left out in turn), threshold, rank, n (responses that all scored) and missing.
        `tie_calibrated` is the share of pairs of systems on an item that the judge orders as people
        do, a tie being right where people tie; the judge ties where its scores differ by at most
        the threshold, the one of highest accuracy on these data; mean over items. `soft_pairwise`
        is 1 less the mean difference, over pairs of systems, of two p values: that one system is
        better by people, and by the judge (items that not all systems answered are left out).
        Judges of one rank are not told apart: none is worse than another of it at .05 by a
        permutation test.

    ValueError: a system that answers an item twice, or fewer than two systems.

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
    by_name = {f"judge {name}": judges[name] for name in judges}
    gold, *columns, used = aligned(reference=reference, groups=items, **by_name)
    system = _sorted_codes(systems, used, "systems")
    item = _sorted_codes(items, used, "items")
    shape = (int(system.max(initial=-1)) + 1, int(item.max(initial=-1)) + 1)
    if len(np.unique(system * shape[1] + item)) < len(system):
        raise ValueError("a system answers an item twice: give the mean, or name the samples apart")
    if shape[0] < 2:
        raise ValueError(f"{shape[0]} system(s): ranking takes two or more")
    tables = []
    for column in (gold, *columns):
        table = np.full(shape, np.nan)  # (systems, items)
        table[system, item] = column[used]
        tables.append(table)
    people, *scores = tables
    parts = {
        "tie_calibrated": _tie_calibrated(people, scores, n_permutations, seed),
        "soft_pairwise": _soft_pairwise(people, scores, n_permutations, seed),
    }
    rows = {}
    for statistic, found in parts.items():
        order = np.argsort(-found.estimate, kind="stable")
        ranks = rank_groups(found.p[np.ix_(order, order)])
        for judge, rank in zip(order, ranks, strict=True):
            estimate = found.estimate[judge]
            half = student(confidence, max(found.freedom, 1)) * found.error[judge]
            bounds = np.clip([estimate - half, estimate + half], 0, 1)
            name = str(list(judges)[judge])
            rows[name, statistic] = [estimate, *bounds, found.threshold[judge], rank]
    index = pd.MultiIndex.from_tuples(list(rows), names=["judge", "statistic"])
    result = pd.DataFrame(list(rows.values()), index, [*INTERVAL, "threshold", "rank"])
    result = result.assign(n=int(used.sum()), missing=int((~used).sum()))
    result.attrs["method"] = (
        f"{confidence:.0%} intervals (Student's) over {shape[1]} items, given {shape[0]} systems;"
        f" ranks by {n_permutations:,} permutations, seed {seed}"
    )
    texts = []
    if shape[0] < FEW_SYSTEMS:
        texts.append(f"{shape[0]} systems, and intervals and ranks are given these systems")
    if np.isnan(parts["soft_pairwise"].estimate).any():
        texts.append("soft_pairwise is undefined: no item has scores of all systems")
    add_caveats(result, texts)
    return result


def _sorted_codes(labels: Column, used: np.ndarray, name: str) -> Integers:
    """Codes in the order of the labels, whatever the order of the rows."""
    group_codes(labels, used, name=name)  # refuses missing ones
    texts = np.array([str(label) for label in labels], dtype=object)
    return codes(texts[used])


@dataclass(frozen=True)
class Found:
    """One statistic of k judges: estimate, standard error, threshold, and the p of pairs.

    `p[a, b]` is that of a test that judge a is better than judge b.
    """

    estimate: Floats
    error: Floats
    threshold: Floats
    p: Floats
    freedom: int


def _tie_calibrated(people: Floats, scores: list[Floats], n: int, seed: int) -> Found:
    """Accuracy with calibrated ties; scores of shape (systems, items)."""
    first, second = np.triu_indices(len(people), 1)
    gap = people[first] - people[second]  # (pairs of systems, items)
    scored = ~np.isnan(gap)
    pairs = scored.sum(axis=0)
    weight = scored / np.maximum(pairs, 1) / max(np.count_nonzero(pairs), 1)
    estimate, error, threshold, right = [], [], [], []
    for table in scores:
        of_judge = table[first] - table[second]
        limit = best_threshold(gap[scored], of_judge[scored], weight[scored])
        correct = np.sign(gap) == np.where(np.abs(of_judge) <= limit, 0, np.sign(of_judge))
        by_item = (correct * weight).sum(axis=0)[pairs > 0] * np.count_nonzero(pairs)
        right.append((correct * weight)[scored])
        estimate.append(by_item.mean() if by_item.size else np.nan)
        error.append(by_item.std(ddof=1) / np.sqrt(by_item.size) if by_item.size > 1 else np.nan)
        threshold.append(limit)
    # Swap the two judges' answers on random pairs: a sign for each difference (pairs as in WMT)
    rng = np.random.default_rng(seed)
    p = np.ones((len(scores), len(scores)))
    signs = [2.0 * rng.integers(0, 2, int(scored.sum())) - 1 for _ in range(n)]
    for a, b in permutations(range(len(scores)), 2):
        difference = right[a] - right[b]
        drawn = np.array([sign @ difference for sign in signs])
        p[a, b] = np.mean(drawn >= difference.sum() - ROUNDING)
    freedom = int(np.count_nonzero(pairs)) - 1
    return Found(np.array(estimate), np.array(error), np.array(threshold), p, freedom)


def best_threshold(people: Floats, judge: Floats, weight: Floats) -> float:
    """The difference of a judge's scores up to which a tie is right most often; lowest of equals.

    Args:
        people, judge: differences of scores of pairs. weight: of each pair.

    People tie on three of six pairs, the judge's differences are 2, 4, 6 there and 8, 6, 2 on the
    rest, all in people's order: a threshold of 4 makes two more right, and one less.

    >>> people, judge = np.array([0, 0, 0, 3, 3, 3]), np.array([2, 6, 4, 8, 6, 2])
    >>> best_threshold(people, judge, np.full(6, 1 / 6))
    4.0
    """
    size = np.abs(judge)
    order = np.argsort(size, kind="stable")
    as_tie = (people == 0).astype(float)
    as_is = np.where(size == 0, as_tie, np.sign(judge) == np.sign(people))
    gained = np.cumsum(((as_tie - as_is) * weight)[order])
    last = np.flatnonzero(np.diff(size[order], append=np.inf) > 0)  # of each threshold
    gained = np.r_[0.0, gained[last]]
    thresholds = np.r_[0.0, size[order][last]]
    return float(thresholds[np.argmax(np.round(gained, 12))])


def _soft_pairwise(people: Floats, scores: list[Floats], n: int, seed: int) -> Found:
    """Soft pairwise accuracy; scores of shape (systems, items)."""
    complete = ~np.isnan(people).any(axis=0)
    people = people[:, complete]
    scores = [table[:, complete] for table in scores]
    n_items = people.shape[1]
    k = len(scores)
    undefined = np.full(k, np.nan)
    if not n_items:
        return Found(undefined, undefined, undefined, np.ones((k, k)), 0)
    # As mt-metrics-eval draws them: the same signs for all pairs, in single precision
    draws = np.random.default_rng(seed).random((n, n_items), dtype=np.float32)
    signs = 2 * np.rint(draws) - 1  # (permutations, items)
    goal = p_better(people, signs)
    estimate = np.array([_likeness(goal, p_better(table, signs)) for table in scores])
    # 1) standard errors: leave out items in turn
    left_out = []
    for block in np.array_split(np.arange(n_items), min(n_items, BLOCKS)):
        rest = np.delete(np.arange(n_items), block)
        near = p_better(people[:, rest], signs[:, rest])
        left_out.append([_likeness(near, p_better(t[:, rest], signs[:, rest])) for t in scores])
    left = np.array(left_out)  # (blocks, judges)
    error = np.sqrt((len(left) - 1) * left.var(axis=0)) if len(left) > 1 else undefined
    # 2) pairs of judges: swap their standardised scores of random responses
    rng = np.random.default_rng(seed)
    p = np.ones((k, k))
    standard = [(table - table.mean()) / (table.std() or 1.0) for table in scores]
    for a, b in combinations(range(k), 2):
        drawn = []
        for _ in range(SWAPS):
            swap = rng.random(people.shape) < 0.5
            mixed = np.where(swap, standard[a], standard[b])
            rest = np.where(swap, standard[b], standard[a])
            better = _likeness(goal, p_better(mixed, signs))
            drawn.append(better - _likeness(goal, p_better(rest, signs)))
        ahead = estimate[a] - estimate[b]
        p[a, b] = np.mean(np.array(drawn) >= ahead - ROUNDING)
        p[b, a] = np.mean(np.array(drawn) <= ahead + ROUNDING)
    return Found(estimate, error, undefined, p, len(left) - 1)


def p_better(scores: Floats, signs: NDArray[np.float32]) -> Floats:
    """The p of each pair of systems that the first is better, by a paired permutation test.

    Scores of shape (systems, items), signs (permutations, items): a sign of -1 swaps the two
    systems' scores of an item, so that the difference of their sums changes its sign there.
    """
    single = scores.astype(np.float32)
    sums = single.sum(axis=1)
    swapped = signs @ single.T  # (permutations, systems)
    first, second = np.triu_indices(len(scores), 1)
    return np.mean(swapped[:, first] - swapped[:, second] >= sums[first] - sums[second], axis=0)


def _likeness(p: Floats, q: Floats) -> float:
    return float(1 - np.abs(p - q).mean())


def rank_groups(p: Floats, level: float = SIGNIFICANT) -> list[int]:
    """Ranks of judges in order, best first: a new one where one of the group is better.

    `p[a, b]`, a before b, is of the test that a is better than b.

    >>> rank_groups(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]]))
    [1, 1, 2]
    """
    ranks: list[int] = []
    start = 0
    for judge in range(len(p)):
        if (p[start:judge, judge] <= level).any():
            start = judge
        ranks.append(ranks[-1] + (start == judge) if ranks else 1)
    return ranks


def best_of_n(
    reference: Column,
    judge: Column,
    *,
    groups: Column,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Measure what is lost where the judge picks the best of several responses.

    Args:
        reference: people's score of each of n responses; NaN where missing.
        judge: the judge's. Of responses that it scores alike one is picked at random.
        groups: the question that each response answers; one with a single response is left out.
        confidence: of the intervals, Student's over questions.

    Returns:
        Rows `regret` (people's best score less that of the judge's pick), `regret_of_chance` (of a
        random pick), `gain` (the judge's pick less a random one), all in score points, and
        `picks_best` (how often the pick is a best one); columns estimate, low, high, n (questions)
        and missing (responses without a score).

    Source: regret of best-of-n sampling, as Gao, Schulman and Hilton (arXiv 2210.10760) measure a
    proxy by the gold score of its pick.

    >>> best_of_n([1, 3, 2, 5], [1, 2, 9, 4], groups=list("aabb"))["estimate"].to_dict()
    {'regret': 1.5, 'regret_of_chance': 1.25, 'gain': -0.25, 'picks_best': 0.5}
    """
    check_options(confidence=confidence)
    gold, score, used = aligned(reference=reference, judge=judge, groups=groups)
    code = group_codes(groups, used)
    lines = []
    for rows in pd.Series(np.flatnonzero(used)).groupby(code):
        answers = rows[1].to_numpy()
        if len(answers) < 2:
            continue
        quality = gold[answers]
        picked = quality[score[answers] == score[answers].max()]
        best = quality.max()
        pick = picked.mean()
        lines.append(
            [best - pick, best - quality.mean(), pick - quality.mean(), np.mean(picked == best)]
        )
    table = np.reshape(lines, (-1, 4))
    n = len(table)
    if n < 2:
        warn(f"{n} questions have two scored responses: intervals take two such questions")
    estimate = table.mean(axis=0) if n else np.full(4, np.nan)
    half = np.full(4, np.nan)
    if n > 1:
        half = student(confidence, n - 1) * table.std(axis=0, ddof=1) / np.sqrt(n)
    low = np.maximum(estimate - half, [0, 0, -np.inf, 0])
    high = np.minimum(estimate + half, [np.inf, np.inf, np.inf, 1])
    rows_out = pd.Index(["regret", "regret_of_chance", "gain", "picks_best"], name="statistic")
    result = pd.DataFrame(np.column_stack([estimate, low, high]), rows_out, INTERVAL)
    result = result.assign(n=n, missing=int((~used).sum()))
    result.attrs["method"] = f"{confidence:.0%} intervals (Student's) over {n} questions"
    add_caveats(
        result, [f"{n} questions are few for Student's interval"] if n < FEW_QUESTIONS else []
    )
    return result
