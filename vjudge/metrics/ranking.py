"""How a judge ranks systems and responses: pairs with ties, confidence in pairs, best of n."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vjudge.metrics.array_types import Column, Floats, Integers
from vjudge.metrics.caveats import add_caveats, warn
from vjudge.metrics.cells import dense_ranks
from vjudge.metrics.columns import check_columns, check_options, judges_by_name, read_scores
from vjudge.metrics.groups import group_codes
from vjudge.metrics.intervals import INTERVAL, mean_interval, t_quantile
from vjudge.metrics.resampling import N_BLOCKS

Measure = Callable[[Floats, Floats, np.ndarray], float]  # of people, a judge and some items
SIGNIFICANT = 0.05
ROUNDING = 1e-9
SWAPS = 200  # permutations of two judges
MIN_SYSTEMS = 8
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
    tables, used = _tables(reference, judges, systems, items)
    n_systems, n_items = tables[0].shape
    complete = ~np.isnan(tables).any(axis=(0, 1))  # items that all systems answered
    # As mt-metrics-eval draws them: the same signs for all pairs of systems, in single precision
    draws = np.random.default_rng(seed).random((n_permutations, complete.sum()), dtype=np.float32)
    signs = 2 * np.rint(draws) - 1  # (permutations, items)

    def tie_calibrated(people: Floats, judge: Floats, items: np.ndarray) -> float:
        return calibrated(people[:, items], judge[:, items])[0]

    def soft_pairwise(people: Floats, judge: Floats, items: np.ndarray) -> float:
        by_people = p_better(people[:, items], signs[:, items])
        return float(1 - np.abs(by_people - p_better(judge[:, items], signs[:, items])).mean())

    measures: list[tuple[Measure, list[Floats]]] = [
        (tie_calibrated, tables),
        (soft_pairwise, [table[:, complete] for table in tables]),
    ]
    frames = []
    for measure, (people, *scores) in measures:
        if not people.size:
            continue
        estimate, error, p, freedom = _evaluate(measure, people, scores, seed)
        reach = t_quantile(confidence, freedom) * error
        bounds = np.clip([estimate, estimate - reach, estimate + reach], 0, 1)
        index = pd.MultiIndex.from_product(
            [map(str, judges), [measure.__name__]], names=["judge", "statistic"]
        )
        frame = pd.DataFrame(bounds.T, index, INTERVAL).assign(threshold=np.nan)
        if measure is tie_calibrated:
            frame["threshold"] = [calibrated(people, judge)[1] for judge in scores]
        order = np.argsort(-estimate, kind="stable")
        frames.append(frame.iloc[order].assign(rank=rank_groups(p[np.ix_(order, order)])))
    result = pd.concat(frames).assign(n=int(used.sum()), missing=int((~used).sum()))
    result.attrs["method"] = (
        f"{confidence:.0%} intervals (Student's) over {n_items} items, given {n_systems} systems;"
        f" ranks by permutations of pairs of judges, seed {seed}"
    )
    texts = []
    if n_systems < MIN_SYSTEMS:
        texts.append(f"{n_systems} systems, and intervals and ranks are given these systems")
    if not complete.any():
        texts.append("soft_pairwise is left out: no item has scores of all systems")
    add_caveats(result, texts)
    return result


def _tables(
    reference: Column,
    judges: Mapping[str, Any] | pd.DataFrame,
    systems: Column,
    items: Column,
) -> tuple[list[Floats], np.ndarray]:
    """Scores of people and of each judge, systems by items, and which rows all of them scored."""
    by_name = judges_by_name(judges, minimum=1)
    check_columns(reference=reference, systems=systems)
    *columns, used = read_scores(reference=reference, groups=items, **by_name)
    system = _sorted_codes(systems, used, "systems")
    item = _sorted_codes(items, used, "items")
    shape = (int(system.max(initial=-1)) + 1, int(item.max(initial=-1)) + 1)
    if len(np.unique(system * shape[1] + item)) < len(system):
        raise ValueError("a system answers an item twice: give the mean, or name the samples apart")
    if shape[0] < 2:
        raise ValueError(f"{shape[0]} system(s): ranking takes two or more")
    tables = np.full((len(columns), *shape), np.nan)  # (people and judges, systems, items)
    tables[:, system, item] = np.stack(columns)[:, used]
    return list(tables), used


def _sorted_codes(labels: Column, used: np.ndarray, name: str) -> Integers:
    """Codes in the order of the labels, whatever the order of the rows."""
    group_codes(labels, used, name=name)  # refuses missing ones
    return dense_ranks(np.array([str(label) for label in labels], dtype=object)[used])


def _evaluate(
    measure: Measure, people: Floats, scores: list[Floats], seed: int
) -> tuple[Floats, Floats, Floats, int]:
    """A measure of k judges: estimates, standard errors, p of pairs, and degrees of freedom.

    Tables are of shape (systems, items). `p[a, b]` is that of a test that judge a is better than b:
    their standardised scores of random responses are swapped.
    """
    k = len(scores)
    items = np.arange(people.shape[1])
    estimate = np.array([measure(people, table, items) for table in scores])
    # 1) leave out items in turn
    left = []
    for block in np.array_split(items, min(len(items), N_BLOCKS)):
        remaining = np.delete(items, block)
        estimates = np.full(k, np.nan)
        if len(remaining):
            estimates[:] = [measure(people, table, remaining) for table in scores]
        left.append(estimates)
    freedom = max(len(left) - 1, 1)
    error = np.sqrt(freedom * np.var(left, axis=0))
    # 2) swap the scores of pairs of judges
    rng = np.random.default_rng(seed)
    p = np.ones((k, k))
    standard = [(table - np.nanmean(table)) / (np.nanstd(table) or 1.0) for table in scores]
    for a, b in combinations(range(k), 2):
        drawn = []
        for _ in range(SWAPS):
            swap = rng.random(people.shape) < 0.5
            swapped_a = measure(people, np.where(swap, standard[a], standard[b]), items)
            swapped_b = measure(people, np.where(swap, standard[b], standard[a]), items)
            drawn.append(swapped_a - swapped_b)
        ahead = estimate[a] - estimate[b]
        p[a, b] = np.mean(np.array(drawn) >= ahead - ROUNDING)
        p[b, a] = np.mean(np.array(drawn) <= ahead + ROUNDING)
    return estimate, error, p, freedom


def calibrated(people: Floats, judge: Floats) -> tuple[float, float]:
    """Accuracy with calibrated ties, the mean over items, and the threshold of a tie.

    Scores of shape (systems, items). NaN where no item has two systems.
    """
    i, j = np.triu_indices(len(people), 1)
    gap = people[i] - people[j]  # (pairs of systems, items)
    of_judge = judge[i] - judge[j]
    scored = ~np.isnan(gap + of_judge)
    pairs = scored.sum(axis=0)
    weight = scored / np.maximum(pairs, 1) / max(np.count_nonzero(pairs), 1)
    if not scored.any():
        return np.nan, np.nan
    threshold = best_threshold(gap[scored], of_judge[scored], weight[scored])
    verdict = np.where(np.abs(of_judge) <= threshold, 0, np.sign(of_judge))
    return float(weight[np.sign(gap) == verdict].sum()), threshold


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
    steps = np.flatnonzero(np.diff(size[order], append=np.inf) > 0)  # of each threshold
    gained = np.r_[0.0, gained[steps]]
    thresholds = np.r_[0.0, size[order][steps]]
    return float(thresholds[np.argmax(np.round(gained, 12))])


def p_better(scores: Floats, signs: NDArray[np.float32]) -> Floats:
    """The p of each pair of systems that the first is better, by a paired permutation test.

    Scores of shape (systems, items), signs (permutations, items): a sign of -1 swaps the two
    systems' scores of an item, so that the difference of their sums changes its sign there.
    """
    single = scores.astype(np.float32)
    sums = single.sum(axis=1)
    swapped = signs @ single.T  # (permutations, systems)
    i, j = np.triu_indices(len(scores), 1)
    return np.mean(swapped[:, i] - swapped[:, j] >= sums[i] - sums[j], axis=0)


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
    gold, score, used = read_scores(reference=reference, judge=judge, groups=groups)
    frame = pd.DataFrame({"gold": gold[used], "score": score[used]})
    code = group_codes(groups, used)
    best = frame.groupby(code).transform("max")
    frame["is_best"] = frame["gold"] == best["gold"]
    # The responses that the judge may pick, all equally likely
    is_picked = frame["score"] == best["score"]
    pick = frame[is_picked].groupby(code[is_picked])[["gold", "is_best"]].mean()
    of_all = frame["gold"].groupby(code).agg(["max", "mean", "size"])
    columns = {
        "regret": of_all["max"] - pick["gold"],
        "regret_of_chance": of_all["max"] - of_all["mean"],
        "gain": pick["gold"] - of_all["mean"],
        "picks_best": pick["is_best"],
    }
    table = pd.DataFrame(columns)[of_all["size"] > 1]
    n = len(table)
    if n < 2:
        warn(f"{n} questions have two scored responses: intervals take two such questions")
    bounds = mean_interval(table, confidence)
    bounds[:, 1] = np.maximum(bounds[:, 1], [0, 0, -np.inf, 0])
    bounds[:, 2] = np.minimum(bounds[:, 2], [np.inf, np.inf, np.inf, 1])
    result = pd.DataFrame(bounds, pd.Index(columns, name="statistic"), INTERVAL)
    result = result.assign(n=n, missing=int((~used).sum()))
    result.attrs["method"] = f"{confidence:.0%} intervals (Student's) over {n} questions"
    texts = []
    if n < len(of_all):
        texts.append(f"{len(of_all) - n} questions with one scored response are left out")
    if n < FEW_QUESTIONS:
        texts.append(f"{n} questions are few for Student's interval")
    add_caveats(result, texts)
    return result
