"""A judge's rewards of candidates (a policy's responses to one question), and what they select:
preference pairs, and the best of n.

Let a_ij be the points of the response shown second, j, against the response shown first, i: 1 if it
wins, -1 if it loses, 0 for a tie. The published reward of response i of K is

    r_i = sum_k a_ki - sum_l a_il

A judge that prefers one position adds some c to every a_ij, and (K - 1) c - (K - 1) c = 0 to the
reward: what depends on the order alone cancels.

Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning; the code that makes the
a_ij was not published (LLaVA-VL/LLaVA-NeXT#372, #384), so the sign is stated here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from vjudge.data import n_words, rows_of
from vjudge.data.schema import Items, Row
from vjudge.engines.engine import Engine
from vjudge.judging.candidates import judged_rows, parties_of, points_by_order
from vjudge.judging.judge import JudgeLike
from vjudge.judging.panel import noise_of
from vjudge.judging.ranking import expected_scores, scale_width, tie_within_noise
from vjudge.metrics.groups import design_of
from vjudge.metrics.tables import tabulate
from vjudge.records import NAN, unit_of


def reward(
    judge: JudgeLike, candidates: Sequence[Row], *, by: str = "scores", **options: Any
) -> pd.DataFrame:
    """Reward candidates by a judge's score of each, or by its comparisons of every two.

    Args:
        judge: a `Judge` or a panel; for `by="pairs"` one that compares two responses.
        candidates: from `draw`; questions with fewer than two distinct responses are not judged.
        by: "scores": the expected score, or the score if any verdict lacks an expected one.
            "pairs": r_i, see the module; a response that was drawn several times counts as often.
        options: of `Judge.grade` or `Judge.compare`. Pairs are compared in both orders; with
            orders="one" the judge's liking for a position stays in the reward.

    Returns:
        One row per candidate:

        - id, group: its question, and the unit of resampling;
        - candidate, response: its index among the question's responses, and its text;
        - times, words: how often it was drawn, and its length in words;
        - true_score: from the candidates' `true_scores`, NaN without them;
        - reward: NaN where a verdict is missing;
        - noise: rewards of one question that differ by no more are equal; 0 by pairs, by scores
          from the engine's numeric precision, see `vjudge.engines.engine.NOISE`.

    Raises:
        ValueError: an unknown `by`; random orders of pairs; no question has two responses. Also
            what the judge raises.
    """
    if by not in ("scores", "pairs"):
        raise ValueError(f'by={by!r}: use "scores" or "pairs"')
    if by == "pairs" and options.get("orders") == "random":
        raise ValueError('a reward by pairs takes each order once: orders="both", or "one"')
    rows = [row for row in rows_of(candidates) if len(row.get("responses") or ()) > 1]
    if not rows:
        raise ValueError(
            f"none of {len(candidates)} questions has two distinct responses: raise the temperature"
        )
    table = _candidate_table(rows)
    questions = list(judged_rows(rows, by))  # one per response, or one per two responses
    if by == "pairs":
        run = judge.compare(questions, **options)
        return table.assign(reward=_rewards_by_pairs(rows, table["times"], run), noise=0.0)
    run = judge.grade(questions, **options)
    noise = noise_of(judge) * scale_width(run)
    # scores that differ by noise alone become equal: they must not decide which response is better
    rewards = tie_within_noise(expected_scores(run), table["id"], noise)
    return table.assign(reward=rewards, noise=noise)


def _candidate_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Make the table of `reward` without rewards: one row per candidate, question by question."""
    cells = []
    for row in rows:
        times = row.get("times") or [1] * len(row["responses"])
        true_scores = row.get("true_scores") or [NAN] * len(row["responses"])
        for index, response in enumerate(row["responses"]):
            cells.append(
                {
                    "id": str(row["id"]),
                    "candidate": index,
                    "response": response,
                    "times": times[index],
                    "true_score": float(true_scores[index]),
                    "words": n_words(response),
                    "group": unit_of(row),
                }
            )
    return pd.DataFrame(cells)


def _rewards_by_pairs(rows: Sequence[Row], times: pd.Series, run: pd.DataFrame) -> np.ndarray:
    """Sum each candidate's points over all comparisons: r_i, shape (candidates,).

    A pair (i, j) is compared in both orders. Its gain, a_ji - a_ij, is the sum of i's points in
    both: 2 if i wins both, 0 if the position decides, -2 if it loses both. It is added to r_i and
    subtracted from r_j, as often as the rival was drawn.

    Args:
        rows: the questions.
        times: how often each candidate was drawn, shape (candidates,).
        run: one row per pair, as `judged_rows` lists them.
    """
    parties = parties_of(rows, "pairs")  # two rows per pair: i with sign 1, j with sign -1
    gains = points_by_order(run).sum(axis=1, skipna=False).to_numpy()  # NaN without an order
    points = gains[parties["verdict"]] * parties["sign"]
    points *= times.to_numpy()[parties["rival"]]
    return np.bincount(parties["candidate"], weights=points)  # NaN where a verdict is missing


# --- preference pairs


PREFERENCE_COLUMNS = (
    "id question instruction images margin group chosen reward_chosen true_chosen rejected"
    " reward_rejected true_rejected"
).split()
TOO_FEW = "question: fewer than two distinct responses to choose from"


def make_pairs(
    candidates: Items,
    rewards: pd.DataFrame,
    *,
    every: bool = False,
    min_margin: float = 0.0,
    max_length_ratio: float = math.inf,
) -> pd.DataFrame:
    """Pair the best with the worst response of each question, as published.

    Args:
        candidates, rewards: from `draw`, and from `reward` on them. A response without a reward
            makes no pair; of equal rewards the response that was drawn first is taken.
        every: whether to make a pair of every two responses instead.
        min_margin: the difference of rewards must be larger. Ties never make a pair, nor do rewards
            within the numeric noise: that of the column `noise`, without it that of float32.
        max_length_ratio: the longer response has at most so many times the words of the shorter.

    Returns:
        One row per pair: id ("question/i-j", the chosen response's index first), question,
        instruction, images, margin, group, and for both responses chosen, reward_chosen,
        true_chosen and rejected, reward_rejected, true_rejected.

        `attrs` counts questions, without_pair (questions) and `left_out`: reason -> number of
        questions, responses or pairs, as the reason's first word says.
    """
    questions = {str(row["id"]): row for row in rows_of(candidates)}
    noise = float(rewards["noise"].max()) if "noise" in rewards else Engine.noise
    left_out = Counter[str]()
    left_out[TOO_FEW] = len(questions) - rewards["id"].nunique()  # `reward` leaves these out
    pairs = []
    for id, rows in rewards.groupby("id", sort=False):
        responses = rows.dropna(subset="reward").to_dict("records")
        left_out["response: without a reward"] += len(rows) - len(responses)
        if len(responses) < 2:
            left_out[TOO_FEW] += 1
            continue
        # a pair is the best and the worst of a contest: of every two responses, or of all of them
        for contest in combinations(responses, 2) if every else [responses]:
            better = max(contest, key=itemgetter("reward"))  # the first of equals
            worse = min(contest, key=itemgetter("reward"))
            margin = better["reward"] - worse["reward"]
            shorter, longer = sorted([better["words"], worse["words"]])
            if margin <= noise:
                left_out["pair: a tie"] += 1
            elif margin <= min_margin:
                left_out[f"pair: margin not above {min_margin:g}"] += 1
            elif longer > max_length_ratio * shorter:
                left_out[f"pair: one response more than {max_length_ratio:g} times as long"] += 1
            else:
                pairs.append(_pair(questions[str(id)], better, worse))
    table = pd.DataFrame(pairs, columns=PREFERENCE_COLUMNS)
    table.attrs["questions"] = len(questions)
    table.attrs["without_pair"] = len(questions) - table["question"].nunique()
    table.attrs["left_out"] = dict(+left_out)  # without zero counts
    return table


def _pair(question: Row, better: Row, worse: Row) -> dict[str, Any]:
    """Make a pair's row, with the columns `PREFERENCE_COLUMNS`.

    Args:
        question: its row among the candidates.
        better, worse: the rows of rewards of the chosen and the rejected response.
    """
    pair = {
        "id": f"{better['id']}/{better['candidate']}-{worse['candidate']}",
        "question": better["id"],
        "instruction": question["instruction"],
        "images": list(question.get("images") or ()),
        "margin": better["reward"] - worse["reward"],
        "group": better["group"],
    }
    for role, response in (("chosen", better), ("rejected", worse)):
        pair[role] = response["response"]
        pair[f"reward_{role}"] = response["reward"]
        pair[f"true_{role}"] = response["true_score"]
    return pair


# --- the best of n


def best_of_n(rewards: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """Compute the mean true score of the response with the highest reward among n.

    The mean is exact: it runs over all ways to choose n of a question's responses. Responses of
    equal reward are selected equally often.

    Args:
        rewards: from `reward`, with `true_score`, which may be a second judge's.
        options: confidence, n_resamples and seed, see `metrics.correlate`; groups are resampled.

    Returns:
        One row per n, from 1 to the smallest number of responses to a question: estimate, low,
        high, n (questions) and missing (questions without a reward or a true score).

    Raises:
        ValueError: no question has a reward and a true score for every response.
    """
    curves = []
    groups = []
    for _, rows in rewards.groupby("id", sort=False):
        # a response that was drawn several times stands several times
        indices = np.repeat(np.arange(len(rows)), rows["times"])
        responses = rows.iloc[indices].sort_values("reward")
        if not responses[["reward", "true_score"]].isna().any(axis=None):
            # of equal rewards each is selected equally often: all get the mean of their true scores
            expected = responses.groupby("reward")["true_score"].transform("mean")
            curves.append(_best_of_each(expected.to_numpy(float)))
            groups.append(rows["group"].iloc[0])
    missing = rewards["id"].nunique() - len(curves)
    if not curves:
        raise ValueError(
            f"no question has a reward and a true score for every answer ({missing} left out)"
        )
    n_max = min(map(len, curves))
    table = np.array([curve[:n_max] for curve in curves])  # (questions, n_max)

    def mean(weights: np.ndarray) -> np.ndarray:  # weights (questions, resamples)
        return table.T @ weights / weights.sum(axis=0)  # (n_max, resamples)

    return tabulate(
        mean,
        range(1, n_max + 1),
        design_of(np.arange(len(table)), groups, np.ones(len(table), dtype=bool)),
        missing=missing,
        unit="questions",
        index="n",
        **options,
    )


def _best_of_each(values: np.ndarray) -> list[float]:
    """Compute the mean value of the last among n of N values, over all choices, for n = 1 to N.

    `values` (N,) are in ascending order of their rewards. The value of rank i (from 0) is the last
    of n in C(i, n - 1) of the C(N, n) choices:

        N = 3, n = 2:  {0, 1} -> 1,  {0, 2} -> 2,  {1, 2} -> 2,  so (0 v_0 + 1 v_1 + 2 v_2) / 3
    """
    size = len(values)
    means = []
    for n in range(1, size + 1):
        n_choices = [math.comb(rank, n - 1) for rank in range(size)]
        means.append(float(values @ n_choices) / math.comb(size, n))
    return means
