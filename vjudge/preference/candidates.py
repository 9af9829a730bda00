"""Candidates: several answers of a policy to each question, as rows that a judge can score or rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.data import rows_of
from vjudge.preference.policy import Policy

PUBLISHED = {"samples": 5, "temperature": 0.7, "top_p": 0.9}
"""How the published recipe draws candidates.

Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning.
"""
OF_A_RESPONSE = ("response", "gold", "feedback", "human_scores")  # what an earlier response was and was given


def draw(
    policy: Policy,
    questions: Any,
    *,
    samples: int = 5,
    temperature: float = 0.7,
    top_p: float = 0.9,
    seed: int = 0,
    out: str | Path | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Draw candidates from a policy; the defaults are the published recipe's (`PUBLISHED`).

    Args:
        policy: who answers.
        questions: as for `Policy.respond`; further columns, such as a rubric, stay in the rows.
        samples: answers a question.
        temperature, top_p, seed, out, options: of `Policy.respond`; with `out`, an interrupted call goes on there.

    Returns:
        As `gather`.
    """
    answers = policy.respond(
        questions, samples=samples, temperature=temperature, top_p=top_p, seed=seed, out=out, **options
    )
    return gather(questions, answers)


def gather(questions: Any, answers: pd.DataFrame) -> list[dict[str, Any]]:
    """Put each question's answers together.

    An answer that was drawn several times stands once, with its count: a judge that decodes greedily would say the same
    of it each time, and two equal answers never make a preference.

    Args:
        questions: the rows that were answered.
        answers: from `Policy.respond`.

    Returns:
        A row a question with the question's own columns, `responses` (distinct, in the order drawn), `times` (how often
        each was drawn), `drawn` (answers asked for) and `policy`. Answers that failed are `drawn` less the sum of
        `times`; a question may have one response or none, which rewards and pairs count.
    """
    by_id = {str(id): part for id, part in answers.groupby("id", sort=False)}
    rows = []
    for question in _plain_rows(questions):
        part = by_id[str(question["id"])].sort_values("sample")
        counts = part["response"].dropna().value_counts(sort=False)
        distinct = list(dict.fromkeys(part["response"].dropna()))
        rows.append(
            {
                **{name: value for name, value in question.items() if name not in OF_A_RESPONSE},
                "responses": distinct,
                "times": [int(counts[text]) for text in distinct],
                "drawn": len(part),
                "policy": str(part["policy"].iloc[0]),
            }
        )
    return rows


def account(candidates: Sequence[dict[str, Any]]) -> pd.Series:
    """What was drawn: questions, answers, failed answers, distinct answers, and questions whose answers are all alike.

    Args:
        candidates: from `draw` or `gather`.
    """
    drawn = sum(row["drawn"] for row in candidates)
    given = sum(sum(row["times"]) for row in candidates)
    counts = {
        "questions": len(candidates),
        "answers": drawn,
        "failed": drawn - given,
        "distinct": sum(len(row["responses"]) for row in candidates),
        "questions with fewer than two distinct answers": sum(len(row["responses"]) < 2 for row in candidates),
    }
    return pd.Series(counts, name="count")


def _plain_rows(questions: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in rows_of(questions)]
