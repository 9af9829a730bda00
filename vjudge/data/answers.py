"""A policy's responses to the questions of a collection: what turns a benchmark of questions into items to grade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import datasets

from vjudge.data.hub import origin, record
from vjudge.data.load import canonical, rows_of
from vjudge.data.schema import CollectionError, Problem
from vjudge.records import Rubric, is_missing

_OF_THE_RESPONSE = ("gold", "feedback", "human_scores")  # what an earlier response was given


def with_responses(
    questions: datasets.Dataset,
    responses: Sequence[str] | Mapping[str, str],
    *,
    policy: str | None = None,
    rubric: Rubric | None = None,
) -> datasets.Dataset:
    """Put a policy's responses in a collection, so that a judge can grade them.

    Args:
        questions: a collection of items, with or without responses, such as Perception-Bench.
        responses: in the collection's order, or by id.
        policy: the name of the model that responded: it becomes the column `policy`, and ids end in "/" and the name,
            so that several policies' items can stand in one collection.
        rubric: for questions without one; None leaves those as they are.

    Returns:
        The collection with `response` filled; scores and feedback that an earlier response had are gone.

    Raises:
        CollectionError: a question without a response, a response that is blank or no text, or one to no question; all
            of them.
    """
    rows = [dict(row) for row in rows_of(questions)]
    if isinstance(responses, Mapping):
        by_id = {str(id): response for id, response in responses.items()}
        if strangers := sorted(set(by_id) - {str(row["id"]) for row in rows}):
            raise CollectionError(f"{len(strangers)} responses are to no question of the collection: {strangers[:20]}")
        answers = [by_id.get(str(row["id"])) for row in rows]
    elif isinstance(responses, str) or len(responses) != len(rows):
        count = "one text" if isinstance(responses, str) else f"{len(responses)} responses"
        raise CollectionError(f"there are {count} for {len(rows)} questions; give one for each, or a mapping by id")
    else:
        answers = list(responses)
    remedy = "have the policy answer, or leave the row out"
    problems = [
        Problem(index, str(row["id"]), "response", "is missing or blank", remedy)
        for index, (row, answer) in enumerate(zip(rows, answers, strict=True))
        if not isinstance(answer, str) or not answer.strip()
    ]
    if problems:
        raise CollectionError(f"{len(problems)} of {len(rows)} questions have no response:", problems)
    for row, answer in zip(rows, answers, strict=True):
        row["response"] = answer
        row.update(dict.fromkeys(_OF_THE_RESPONSE))
        if rubric is not None and is_missing(row.get("criteria")) and not row.get("descriptions"):
            row |= {"criteria": rubric.criteria, "descriptions": list(rubric.descriptions), "lowest": rubric.lowest}
        if policy is not None:
            row |= {"id": f"{row['id']}/{policy}", "policy": policy}
    answered = canonical(rows)
    facts = {name: fact for name, fact in origin(questions).items() if name not in ("rows", "unreadable")}
    return record(answered, **facts) if facts else answered
