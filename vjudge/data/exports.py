"""Rows as annotation tools export them: Label Studio's JSON and Argilla's records.

Each question that people answered becomes a column: one list per row, with one answer per person,
and each person at the same position in all rows. An answer that somebody skipped, discarded or only
drafted is missing.

Source: labelstud.io/guide/task_format; argilla-io/argilla, argilla/src/argilla/records/_io.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pandas import DataFrame

from vjudge.data.layout import numbers_of
from vjudge.data.notes import warn
from vjudge.data.schema import CollectionError

_ANSWERED = re.compile(r"(.+)\.responses")  # Argilla's columns of answers: "quality.responses"
# Fields of an Argilla record that become no columns.
_NO_COLUMNS = ("responses", "suggestions", "vectors")
# Argilla's columns about a question: "quality.responses.users", "quality-suggestion"
_ABOUT_QUESTION = re.compile(r".+(\.responses|[.-]suggestion)([.-].*)?")


def is_export(row: object) -> bool:
    """Tell whether a row is a task of Label Studio or a record of Argilla."""
    if not isinstance(row, Mapping):
        return False
    nested = any(isinstance(row.get(name), Mapping) for name in ("data", "fields"))
    if nested and ("annotations" in row or "responses" in row):
        return True
    return any(_ABOUT_QUESTION.fullmatch(str(name)) for name in row)


def plain_rows(rows: Sequence) -> list[dict]:
    """Turn an export into rows with a column per question.

    Where exactly one question was answered with numbers, its column is called `human_scores`. Where
    several were, none is, and a warning says how to take one of them.

    Raises:
        CollectionError: a row is no task of such an export.
    """
    # 1) Read what people were shown (one dict per row), and who answered what.
    fields = []
    answers: list[dict] = []  # per row: (question, person) -> answer
    questions: dict[str, list] = {}  # question -> its answers in all rows
    people: dict[str, None] = {}  # everybody, in order of first appearance
    for index, row in enumerate(rows):
        try:
            fields.append(_fields(row))
            answers.append({})
            for question, person, answer in _answers(row):
                answers[-1][question, str(person)] = answer
                questions.setdefault(question, []).append(answer)
                people[str(person)] = None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise CollectionError(
                f"row {index} is no task of an annotation tool's export ({error!r}): of Label"
                " Studio export JSON, not JSON-MIN"
            ) from error

    # 2) Find the question that was answered with numbers.
    rated = [name for name in questions if numbers_of(questions[name]) is not None]
    if len(rated) == 1:
        warn(f"people's scores are read from the answers to {rated[0]!r} of {len(people)} people")
    elif rated:
        listed = ", ".join(rated)
        warn(f"people scored {listed}: columns={{{rated[0]!r}: 'human_scores'}} takes one of them")

    # 3) Write a column per question: its answers in the order of `people`, None where missing.
    for cells, answers_of_row in zip(fields, answers, strict=True):
        for question in questions:
            column = [answers_of_row.get((question, person)) for person in people]
            cells.pop(question, None)
            name = "human_scores" if rated == [question] else question
            cells[name] = _single(column)  # where one person answered, the answer and no list
    return fields


def _fields(row: Mapping) -> dict:
    """Return the columns of a row that are no answers: what people were shown, id and metadata."""
    if "annotations" in row:
        return {"id": row.get("id"), **row["data"]}
    cells: dict = {}
    for name, cell in row.items():
        if name in ("fields", "metadata") and isinstance(cell, Mapping):
            cells.update(cell)
        elif name not in _NO_COLUMNS and not _ABOUT_QUESTION.fullmatch(name):
            cells[name] = cell
    return cells


def _answers(row: Mapping) -> Iterator[tuple[str, Any, Any]]:
    """Yield (question, person, answer) for each submitted answer in a row."""
    # Label Studio: an annotation per person, with a list of results
    for annotation in row.get("annotations") or ():
        if not annotation.get("was_cancelled"):
            person = annotation["completed_by"]
            if isinstance(person, Mapping):
                person = person["id"]
            for result in annotation["result"]:
                values = [cell for cell in result["value"].values() if cell is not None]
                if len(values) == 1:  # several values are a shape in the image: x, y, width, ...
                    yield result["from_name"], person, _single(values[0])

    # Argilla: a list of responses per question
    for question, responses in _responses_by_question(row).items():
        for response in responses or ():
            if response.get("status") in ("submitted", None):
                yield question, response["user_id"], response["value"]


def _responses_by_question(record: Mapping) -> dict[str, list[dict]]:
    """Map each question of an Argilla record to its responses: dicts of user_id, value, status.

    Argilla nests them under "responses", or spreads them over the columns "QUESTION.responses",
    "QUESTION.responses.users" and "QUESTION.responses.status", or, in older exports, keeps them in
    the column "QUESTION" beside "QUESTION-suggestion".
    """
    responses = dict(record.get("responses") or {})
    for name, cell in record.items():
        match = _ANSWERED.fullmatch(name)
        if match:
            people = record[f"{name}.users"] or ()
            status = record.get(f"{name}.status") or [None] * len(people)
            columns = {"value": cell or (), "user_id": people, "status": status}
            responses[match[1]] = DataFrame(columns).to_dict("records")
        elif f"{name}-suggestion" in record:
            responses[name] = cell
    return responses


def _single(answers: object) -> Any:
    """Return the element of a list with one element; return anything else unchanged."""
    return answers[0] if isinstance(answers, list) and len(answers) == 1 else answers
