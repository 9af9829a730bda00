"""The formats of answers: where each puts its verdict, and who reads it there.

The tables are `../assets/formats.tsv` and `../assets/marks.tsv`, each row with an example.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

from vjudge.prompts import choices, values
from vjudge.prompts.phrases import DRESS, read_table

Reader: TypeAlias = Callable[..., values.ValueOrReason]
"""A line and the scale -> the value that the line begins with, or why there is none."""


class Marker(NamedTuple):
    """Where a format puts its verdict: a row of `marks.tsv`, and who reads it there."""

    pattern: re.Pattern[str]  # the verdict is in its group "value"
    read: Reader
    # "after": behind a marker, to the end of the line. "label": so, and before the marker the line
    # or the sentence says nothing. "inside": after an opening bracket. "line": a line or sentence,
    # which is prose where it is no verdict. "last": so, behind a whole sentence.
    kind: str


class Format(NamedTuple):
    """One way in which judges write a verdict: a row of `formats.tsv`."""

    gives: str  # "score", or "choice" between two responses
    markers: tuple[Marker, ...]  # what they read must agree; none for JSON alone
    scale: tuple[int, int] | None  # its own; None for the rubric's
    opens: bool  # the verdict may open the answer, and an explanation follow
    # What a JSON object may hold: "score", "choice", "lowest" of a list of scores; "" for nothing.
    json: str
    answer: str  # {feedback} and the verdict, in their order and with "|" between; "" if unknown


READERS: dict[str, Reader] = {
    "score": values.score,
    "half": partial(values.score, halves=True),
    "two scores": choices.two_scores,
    "second score": partial(choices.two_scores, of_second=True),
    "choice": choices.choice,
    "letter": partial(choices.choice, signs="ab"),
    "degree": partial(choices.bracketed, table=choices.DEGREES),
    "sign": partial(choices.bracketed, table=choices.LETTERS),
    "four sign": partial(choices.bracketed, table=choices.FOUR_SIGNS),
    "any sign": partial(choices.bracketed, table=choices.DEGREES | choices.LETTERS),
}
_MARKS = {row["name"]: row for row in read_table("marks")}


def _marker(text: str) -> Marker:
    """Make the marker that a cell of `formats.tsv` names with its reader: "result = score"."""
    name, _, reader = text.partition(" = ")
    pattern = _MARKS[name]["pattern"]
    if "(?P<value>" not in pattern:  # the value stands behind it, to the end of the line
        pattern = rf"(?:{pattern}){DRESS}(?P<value>[^\n]*)"
    compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    return Marker(compiled, READERS[reader], _MARKS[name]["kind"])


def _format(row: Mapping[str, str]) -> Format:
    """Make a format of its row: marks "result = score, json", scale "1-10"."""
    lowest, _, highest = row["scale"].partition("-")
    marks = row["marks"].split(", ")
    in_json = {"json": row["gives"], "json list": "lowest"}
    return Format(
        row["gives"],
        tuple(_marker(mark) for mark in marks if mark not in in_json),
        (int(lowest), int(highest)) if highest else None,
        opens=bool(row["opens"]),
        json=in_json.get(marks[-1], ""),
        answer=row["answer"].replace("\\n", "\n"),
    )


FORMATS = {row["name"]: _format(row) for row in read_table("formats")}
"""What can be read, by name."""
