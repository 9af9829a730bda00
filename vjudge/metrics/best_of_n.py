"""What is lost where a judge picks the best of several responses."""

from __future__ import annotations

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Column
from vjudge.metrics.caveats import add_caveats, warn
from vjudge.metrics.columns import check_options, read_scores
from vjudge.metrics.groups import group_codes
from vjudge.metrics.intervals import INTERVAL, mean_interval

FEW_QUESTIONS = 20


def best_of_n(
    reference: Column,
    judge: Column,
    *,
    groups: Column,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Measure how good the responses are that a judge picks as the best of each question.

    Args:
        reference: the human score of each of n responses; NaN where missing.
        judge: the judge's score of each response. Of several responses with the highest score one
            is picked at random.
        groups: the question that each response answers; a question with only one scored response is
            left out.
        confidence: the level of the Student's t intervals over questions, in (0, 1).

    Returns:
        One row per statistic; the first three are in score points:

        - `regret`: the best human score minus that of the judge's pick;
        - `regret_of_chance`: the best human score minus that of a random pick;
        - `gain`: the human score of the judge's pick minus that of a random pick;
        - `picks_best`: the share of questions whose pick has the best human score.

        Columns: estimate, low, high, n (questions) and missing (responses without both scores).

    Source: regret of best-of-n sampling; Gao, Schulman and Hilton (arXiv 2210.10760) evaluate a
    proxy reward model by the gold reward of its pick.

    >>> best_of_n([1, 3, 2, 5], [1, 2, 9, 4], groups=list("aabb"))["estimate"].to_dict()
    {'regret': 1.5, 'regret_of_chance': 1.25, 'gain': -0.25, 'picks_best': 0.5}
    """
    check_options(confidence=confidence)
    (gold, score), used = read_scores(reference=reference, judge=judge, groups=groups)
    responses = pd.DataFrame({"gold": gold[used], "score": score[used]})
    question = group_codes(groups, used)
    # 1) Per question, the judge's pick. Ties at its highest score are broken at random, so that the
    # expected pick is the mean over the tied responses
    best = responses.groupby(question).transform("max")
    responses["is_best"] = responses["gold"] == best["gold"]
    is_picked = responses["score"] == best["score"]
    pick = responses[is_picked].groupby(question[is_picked])[["gold", "is_best"]].mean()
    # 2) Each statistic per question with at least two responses
    of_all = responses["gold"].groupby(question).agg(["max", "mean", "size"])
    columns = {
        "regret": of_all["max"] - pick["gold"],
        "regret_of_chance": of_all["max"] - of_all["mean"],
        "gain": pick["gold"] - of_all["mean"],
        "picks_best": pick["is_best"],
    }
    table = pd.DataFrame(columns)[of_all["size"] > 1]
    n = len(table)
    if n < 2:
        warn(
            f"{n} questions have two scored responses or more: an interval needs two such questions"
        )
    # 3) Means over questions. Bounds stay within the range of each statistic: regrets are not
    # negative, the gain has no limit, and `picks_best` is a share.
    bounds = mean_interval(table, confidence)  # (statistics, 3): estimate, low, high
    bounds[:, 1] = np.maximum(bounds[:, 1], [0, 0, -np.inf, 0])
    bounds[:, 2] = np.minimum(bounds[:, 2], [np.inf, np.inf, np.inf, 1])
    result = pd.DataFrame(bounds, pd.Index(columns, name="statistic"), INTERVAL)
    result = result.assign(n=n, missing=int((~used).sum()))
    result.attrs["method"] = f"{confidence:.0%} intervals (Student's) over {n} questions"
    caveats = []
    if n < len(of_all):
        caveats.append(f"{len(of_all) - n} questions with one scored response are left out")
    if n < FEW_QUESTIONS:
        caveats.append(f"{n} questions are few for Student's interval")
    add_caveats(result, caveats)
    return result
