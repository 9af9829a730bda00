"""Rows as annotation tools export them: Label Studio's JSON and Argilla's records.

Each question that people answered becomes a column with one answer a person, every person at the
same position in all rows. What somebody skipped, discarded or only drafted is missing.

Source: labelstud.io/guide/task_format; argilla-io/argilla, argilla/src/argilla/records/_io.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pandas import DataFrame

from vjudge.data.layout import note, numbers_of
from vjudge.data.schema import CollectionError

_ANSWERED = re.compile(r"(.+)\.responses")  # Argilla's columns of answers, and beside them
_NO_COLUMNS = ("responses", "suggestions", "vectors")
_BESIDE = re.compile(r".+(\.responses|[.-]suggestion)([.-].*)?")


def is_export(row: object) -> bool:
    """Whether a row is a task of Label Studio's or a record of Argilla's."""
    if not isinstance(row, Mapping):
        return False
    nested = any(isinstance(row.get(name), Mapping) for name in ("data", "fields"))
    if nested and ("annotations" in row or "responses" in row):
        return True
    return any(_BESIDE.fullmatch(str(name)) for name in row)


def plain_rows(rows: Sequence) -> list:
    """An export's rows, with `human_scores` where one question was answered with numbers.

    Raises:
        CollectionError: a row is no task of such an export.
    """
    # 1) who answered what
    fields = []
    answers: list = []  # a row's answers by question and person
    questions: dict = {}  # the same of all rows, by question
    people: dict = {}
    for index, row in enumerate(rows):
        try:
            fields.append(_fields(row))
            answers.append({})
            for question, person, answer in _answers(row):
                answers[-1][question, str(person)] = answer
                questions.setdefault(question, []).append(answer)
                people[str(person)] = None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            reason = f"row {index} is no task of an annotation tool's export ({error!r})"
            raise CollectionError(f"{reason}: of Label Studio export JSON, not JSON-MIN") from error

    # 2) the question that was answered with numbers
    rated = [name for name in questions if numbers_of(questions[name]) is not None]
    if len(rated) == 1:
        note(f"people's scores are read from the answers to {rated[0]!r} of {len(people)} people")
    elif rated:
        listed = ", ".join(rated)
        note(f"people scored {listed}: columns={{{rated[0]!r}: 'human_scores'}} takes one of them")

    # 3) a column a question
    for cells, by_person in zip(fields, answers, strict=True):
        for question in questions:
            column = [by_person.get((question, person)) for person in people]
            cells.pop(question, None)
            cells["human_scores" if rated == [question] else question] = _only(column)
    return fields


def _fields(row: Mapping) -> dict:
    """What people were shown, and a record's other columns."""
    if "annotations" in row:
        return {"id": row.get("id"), **row["data"]}
    cells: dict = {}
    for name, cell in row.items():
        if name in ("fields", "metadata") and isinstance(cell, Mapping):
            cells.update(cell)
        elif name not in _NO_COLUMNS and not _BESIDE.fullmatch(name):
            cells[name] = cell
    return cells


def _answers(row: Mapping) -> Iterator:
    """Each answer in a row: question, person, answer."""
    # Label Studio: a list of results a person
    for annotation in row.get("annotations") or ():
        if not annotation.get("was_cancelled"):
            person = annotation["completed_by"]
            if isinstance(person, Mapping):
                person = person["id"]
            for result in annotation["result"]:
                values = [cell for cell in result["value"].values() if cell is not None]
                if len(values) == 1:  # no shape in the picture
                    yield result["from_name"], person, _only(values[0])

    # Argilla: a list of answers a question
    for question, responses in _by_question(row).items():
        for response in responses or ():
            if response.get("status") in ("submitted", None):
                yield question, response["user_id"], response["value"]


def _by_question(record: Mapping) -> dict:
    """Argilla's answers to each question, with user_id, value and status."""
    answers = dict(record.get("responses") or {})
    for name, cell in record.items():
        match = _ANSWERED.fullmatch(name)
        if match:
            people = record[f"{name}.users"] or ()
            status = record.get(f"{name}.status") or [None] * len(people)
            columns = {"value": cell or (), "user_id": people, "status": status}
            answers[match[1]] = DataFrame(columns).to_dict("records")
        elif f"{name}-suggestion" in record:
            answers[name] = cell
    return answers


def _only(answers: object) -> Any:
    """The answer of a list that holds one."""
    return answers[0] if isinstance(answers, list) and len(answers) == 1 else answers
