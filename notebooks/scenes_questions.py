"""For notebook 06: questions of Scenes, the true score of a free answer, a biased judge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from vjudge.data import scenes

_SAID = {"count": scenes.NUMBERS, "colour": scenes.COLOURS, "size": scenes.SIZES}
_SAID |= {"shape": scenes.SHAPES, "position": scenes.SHAPES, "presence": ("present", "absent")}
N_CLAIMS = 4  # that a whole answer makes


def _sentences() -> dict[tuple[str, str], tuple[str, Any]]:
    """Every sentence that Scenes can write: aspect and sentence -> the thing, and what is said."""
    claims = {}
    for name, aspect in scenes.ASPECTS.items():
        keys = scenes.PLACES
        if name in ("count", "presence"):
            keys = [*scenes.COLOURS, *scenes.SHAPES]
        for form, key, said in product(range(len(aspect.wordings)), keys, _SAID[name]):
            sentence = scenes.statement(aspect, [scenes.Claim(key, said, "")], form)
            claims[name, sentence.removeprefix("(1) ")] = (key, said)
    return claims


CLAIMS = _sentences()


def true_parts(question: Mapping, answer: str) -> dict[str, int]:
    """How many claims of an answer are wrong, missing, or no claims at all."""
    sentences = [text.strip() for text in re.split(r"\(\d+\)", answer) if text.strip()]
    claims = [CLAIMS.get((question["aspect"], text)) for text in sentences]
    _, split, number = question["group"].split("-")
    shows = scenes.sample(split, 0, int(number)).shows
    made = set(claims) - {None}
    wrong = sum(shows(question["aspect"], key) != said for key, said in made)
    missing = max(0, N_CLAIMS - len(dict(made)))
    return {"wrong": wrong, "missing": missing, "unreadable": claims.count(None)}


def true_score(question: Mapping, answer: str) -> float:
    """5, less one for each wrong or missing claim and each sentence that is none; at least 1."""
    return float(max(1, 5 - sum(true_parts(question, answer).values())))


def with_truth(rewards: pd.DataFrame, questions: list) -> pd.DataFrame:
    """Rewards with the true score of each answer, and what is wrong with it."""
    rows = {row["id"]: row for row in questions}
    pairs = list(zip(rewards["id"], rewards["response"], strict=True))
    parts = pd.DataFrame([true_parts(rows[id], text) for id, text in pairs], rewards.index)
    truth = [true_score(rows[id], text) for id, text in pairs]
    return rewards.assign(true_score=truth, **parts)


def questions_of(split: str, n: int) -> list:
    """Scenes' instructions with their rubric, and the five answers that Scenes itself gives."""
    rows = scenes.rows(split, limit=5 * n)
    questions = []
    for first in range(0, 5 * n, 5):
        case = rows[first : first + 5]
        names = ("images", "instruction", "criteria", "descriptions", "group")
        question = {name: case[0][name] for name in names}
        question["id"] = case[0]["id"].rpartition("-")[0]
        question["aspect"] = scenes.ASPECT_OF[question["criteria"]]
        question["responses"] = [row["response"] for row in case]
        question["true_scores"] = [row["gold"] for row in case]
        questions.append(question)
    return questions


class FirstPlaceJudge:
    """A simulated judge of pairs: it knows the true scores, and favours what stands first.

    `lean` is in log-odds; `orders` "one" judges each pair once.
    """

    def __init__(self, questions: list, *, lean: float = 2.5, orders: str = "both") -> None:
        self.lean = lean
        self.orders = orders
        self.rng = np.random.default_rng(0)
        self.truth = {}
        for row in questions:
            for text, score in zip(row["responses"], row["true_scores"], strict=True):
                self.truth[row["id"], text] = score

    def compare(self, pairs: Any) -> pd.DataFrame:
        """A verdict a pair and order."""
        lead = []
        for pair in pairs:
            id = pair["id"].rpartition("/")[0]
            lead.append(self.truth[id, pair["response_a"]] - self.truth[id, pair["response_b"]])
        leads = np.array(lead)
        columns = {"verdict_ab": np.where(self._first_wins(leads), "a", "b")}
        if self.orders == "both":
            columns["verdict_ba"] = np.where(self._first_wins(-leads), "b", "a")
        return pd.DataFrame(columns)

    def _first_wins(self, lead: np.ndarray) -> np.ndarray:
        chance = 1 / (1 + np.exp(-lead - self.lean))
        return np.asarray(self.rng.random(len(lead)) < chance)
