"""A judge's rewards of candidates, the preference pairs that follow, and the best of n.

With a_ij the points of the response shown second, j, against the one shown first, i (1, -1, or 0
for a tie), the published reward is r_i = sum_k a_ki - sum_l a_il. A judge that prefers one of the
places adds some c to every a_ij, and (K - 1) c - (K - 1) c = 0 to the reward: what depends on the
order alone cancels.

Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning; the code that makes the
a_ij was not published (LLaVA-VL/LLaVA-NeXT#372, #384), so the sign is stated here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from vjudge.data import CollectionError, Problem, check_pictures, n_words, rows_of
from vjudge.data.checks import check_rows
from vjudge.engines.engine import Engine
from vjudge.images import ImageError, Pictures
from vjudge.judging.candidates import judged_rows, parties_of, points_by_order
from vjudge.judging.judge import JudgeLike
from vjudge.judging.panel import noise_of
from vjudge.judging.ranking import expected_scores, scale_width, tie_within_noise
from vjudge.metrics.groups import design_of
from vjudge.metrics.tables import tabulate
from vjudge.records import NAN, text_of, unit_of

PAIR = (
    "id question instruction images margin group chosen reward_chosen true_chosen rejected"
    " reward_rejected true_rejected"
).split()
FEWER = "question: fewer than two distinct responses to choose from"


def reward(
    judge: JudgeLike, candidates: Sequence, *, by: str = "scores", **options: Any
) -> pd.DataFrame:
    """Let a judge reward candidates: by a score of each, or by comparing every two in both orders.

    Args:
        judge: a `Judge` or a panel; for `by="pairs"` one that compares two responses.
        candidates: from `draw`; a question with fewer than two distinct responses is not judged.
        by: "scores" or "pairs".
        options: of `Judge.grade` or `Judge.compare`.

    Returns:
        One row a candidate: id, candidate (its place), response, times, true_score (NaN where the
        candidates have no `true_scores`), words, group and reward, NaN where a verdict is missing;
        noise, up to which rewards of one question are equal (of the engine, see
        `vjudge.engines.engine.NOISE`).
        By scores it is the expected score if all verdicts have one, else the score; by pairs r_i,
        in which a response that was drawn several times counts as often.

    Raises:
        ValueError: an unknown `by`, or orders at random; no question has two responses. Also what
            the judge raises.
    """
    if by not in ("scores", "pairs"):
        raise ValueError(f'by={by!r}: use "scores" or "pairs"')
    rows = [row for row in rows_of(candidates) if len(row.get("responses") or ()) > 1]
    if not rows:
        raise ValueError(
            f"none of {len(candidates)} questions has two distinct responses: raise the temperature"
        )
    if options.get("orders") == "random":
        raise ValueError('a reward by pairs takes each order once: orders="both", or "one"')
    table = _listed(rows)
    judged = list(judged_rows(rows, by))
    if by == "pairs":
        run = judge.compare(judged, **options)
        return table.assign(reward=_by_pairs(rows, table["times"], run), noise=0.0)
    run = judge.grade(judged, **options)
    noise = noise_of(judge) * scale_width(run)
    scores = tie_within_noise(expected_scores(run), table["id"], noise)
    return table.assign(reward=scores, noise=noise)


def _listed(rows: Sequence) -> pd.DataFrame:
    """One row a candidate, without its reward."""
    cells = []
    for row in rows:
        times = row.get("times") or [1] * len(row["responses"])
        truths = row.get("true_scores") or [NAN] * len(row["responses"])
        for candidate, text in enumerate(row["responses"]):
            cell = {"id": str(row["id"]), "candidate": candidate, "response": text}
            cell |= {"times": times[candidate], "true_score": float(truths[candidate])}
            cells.append(cell | {"words": n_words(text), "group": unit_of(row)})
    return pd.DataFrame(cells)


def _by_pairs(rows: Sequence, times: pd.Series, run: pd.DataFrame) -> np.ndarray:
    """Compute the published reward from the verdicts on every two candidates in each order.

    A rival that was drawn several times (`times`) counts as often.
    """
    parties = parties_of(rows, "pairs")
    gains = points_by_order(run).sum(axis=1, skipna=False).to_numpy()  # (verdicts,)
    gained = gains[parties["verdict"]] * parties["sign"] * times.to_numpy()[parties["rival"]]
    return np.bincount(parties["candidate"], weights=gained)  # NaN where a verdict is missing


def make_pairs(
    candidates: Sequence,
    rewards: pd.DataFrame,
    *,
    every: bool = False,
    min_margin: float = 0.0,
    max_length_ratio: float = math.inf,
) -> pd.DataFrame:
    """Pair the best with the worst response of each question, as published.

    Args:
        candidates, rewards: from `draw`, and from `reward` on them; a response without a reward
            makes no pair, and of equal rewards the one that was drawn first is taken.
        every: whether to take every two responses instead.
        min_margin: the difference of rewards must be larger; ties never make a pair, nor do rewards
            within the numeric noise, which the column `noise` says (without it, float32's).
        max_length_ratio: the most words of the longer response for one of the shorter.

    Returns:
        One row a pair: id ("question/i-j", the chosen one first), question, instruction, images,
        margin, group, chosen, rejected, and of both reward_chosen, true_chosen and so on. `attrs`
        counts questions, without_pair (questions) and `left_out`: reason -> number of questions,
        responses or pairs, as the reason's first word says.
    """
    questions = {}
    for row in rows_of(candidates):
        questions[str(row["id"])] = row
    noise = float(rewards["noise"].max()) if "noise" in rewards else Engine.noise
    left_out = Counter[str]()
    pairs = []
    left_out[FEWER] = len(questions) - rewards["id"].nunique()
    for id, part in rewards.groupby("id", sort=False):
        answers = part.dropna(subset="reward").to_dict("records")
        left_out["response: without a reward"] += len(part) - len(answers)
        if len(answers) < 2:
            left_out[FEWER] += 1
            continue
        for duel in combinations(answers, 2) if every else [answers]:
            better = max(duel, key=itemgetter("reward"))
            worse = min(duel, key=itemgetter("reward"))
            margin = better["reward"] - worse["reward"]
            shorter, longer = sorted([better["words"], worse["words"]])
            if margin <= noise:
                left_out["pair: a tie"] += 1
            elif margin <= min_margin:
                left_out[f"pair: margin not above {min_margin:g}"] += 1
            elif longer > max_length_ratio * shorter:
                left_out[f"pair: one response more than {max_length_ratio:g} times as long"] += 1
            else:
                pairs.append(_pair(questions[str(id)], better, worse, margin))
    frame = pd.DataFrame(pairs, columns=PAIR)
    frame.attrs["questions"] = len(questions)
    frame.attrs["without_pair"] = len(questions) - frame["question"].nunique()
    frame.attrs["left_out"] = dict(+left_out)
    return frame


def _pair(
    question: Mapping,
    better: Mapping,
    worse: Mapping,
    margin: float,
) -> dict:
    pair = {
        "id": f"{better['id']}/{better['candidate']}-{worse['candidate']}",
        "question": better["id"],
        "instruction": question["instruction"],
        "images": list(question.get("images") or ()),
        "margin": margin,
        "group": better["group"],
    }
    for side, answer in (("chosen", better), ("rejected", worse)):
        pair[side] = answer["response"]
        pair[f"reward_{side}"] = answer["reward"]
        pair[f"true_{side}"] = answer["true_score"]
    return pair


def best_of_n(rewards: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """The mean true score of the answer with the highest reward among n.

    It is exact: the mean over all ways to take n of a question's answers.

    Args:
        rewards: from `reward`; `true_score` may be a second judge's. Of equal rewards each answer
            is preferred as often.
        options: confidence, n_resamples and seed, see `metrics.correlate`; groups are resampled.

    Returns:
        A row for each n, from 1 to the fewest answers of any question: estimate, low, high, n
        (questions) and missing (questions without a reward or a true score).

    Raises:
        ValueError: no question has a reward and a true score for every answer.
    """
    curves = []
    groups = []
    for _, candidates in rewards.groupby("id", sort=False):
        answers = candidates.iloc[
            np.repeat(np.arange(len(candidates)), candidates["times"])
        ].sort_values("reward")
        if not answers[["reward", "true_score"]].isna().any(axis=None):
            worth = answers.groupby("reward")["true_score"].transform("mean")
            curves.append(_best_of_each(worth.to_numpy(float)))
            groups.append(candidates["group"].iloc[0])
    missing = rewards["id"].nunique() - len(curves)
    if not curves:
        raise ValueError(
            f"no question has a reward and a true score for every answer ({missing} left out)"
        )
    n_max = min(map(len, curves))
    table = np.array([curve[:n_max] for curve in curves])

    def mean(weights: Any) -> Any:
        return table.T @ weights / weights.sum(axis=0)

    design = design_of(np.arange(len(table)), groups, np.ones(len(table), dtype=bool))
    counts = range(1, n_max + 1)
    return tabulate(
        mean, list(counts), design, missing=missing, unit="questions", index="n", **options
    )


def _best_of_each(worth: np.ndarray) -> list:
    """The mean of the last value among n of a sorted list, for n from 1 to all of them."""
    places = range(len(worth))
    means = []
    for n in range(1, len(worth) + 1):
        ways = [math.comb(rank, n - 1) for rank in places]  # in which this one is the last of n
        means.append(float(worth @ ways) / math.comb(len(worth), n))
    return means


def check_texts(rows: Any, name: str, remedy: str) -> None:
    """Refuse all rows in which a text is missing."""
    sound = [text_of(row, name) is not None for row in rows]
    check_rows(rows, name, sound, "is missing or blank", remedy)


def checked(items: Any, texts: Sequence[str] = ("instruction", "chosen", "rejected")) -> list:
    """Rows to train on; CollectionError where there are none, or lack a text or a picture."""
    rows = rows_of(items)
    if not len(rows):
        raise CollectionError(
            "there are no rows to train on: of pairs see attrs['left_out'] of make_pairs"
        )
    check_pictures(rows)
    for name in texts:
        check_texts(rows, name, "fill it in or leave the row out")
    pictures = Pictures()
    problems = []
    for index, row in enumerate(rows):
        for source in row.get("images") or ():
            try:
                pictures(source)
            except ImageError as error:
                reason, _, remedy = str(error).rpartition("; ")
                problems.append(Problem(index, str(row.get("id")), "images", reason, remedy))
    if problems:
        raise CollectionError.of_rows(problems, len(rows))
    return [{**row, "images": list(row.get("images") or ())} for row in rows]
