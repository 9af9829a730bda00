"""The formats of answers: the markers at which a verdict stands, and the function that reads it.

The tables are `../assets/formats.tsv` and `../assets/marks.tsv` (the markers), each row with an
example.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

from vjudge.prompts import choices, values
from vjudge.prompts.phrases import DRESS, read_table

Reader: TypeAlias = Callable[..., values.ValueOrReason]
"""A function (text, scale) -> the value at the beginning of the text, or why there is none."""


class Marker(NamedTuple):
    """A marker, at which a verdict stands: a row of `marks.tsv` with the reader of the verdict."""

    pattern: re.Pattern[str]  # the text to read is in its group "value"
    read: Reader
    # Where the verdict stands, and what else has to be true:
    # "after"   between the marker and the end of the line: "Good. [RESULT] 4"
    # "label"   as "after", with no word before the marker on its line or in its clause: "Score: 4"
    # "inside"  after an opening bracket: "My verdict is [[A]]"
    # "line"    the marker is a line or sentence, which is prose if no value is in it: "4 - nice"
    # "last"    as "line", for the last line, after a complete sentence: "A hat is missing.\n4"
    kind: str


class Format(NamedTuple):
    """One way in which judges write a verdict: a row of `formats.tsv`."""

    gives: str  # "score", or "choice" between two responses
    markers: tuple[Marker, ...]  # all verdicts at them must agree; () for JSON alone
    scale: tuple[int, int] | None  # the format's lowest and highest score; None for the rubric's
    opens: bool  # whether the verdict may open the answer, with an explanation after it
    # What to read from a JSON object: "score", "choice", or "lowest" of a list of scores; "" where
    # the format has no JSON.
    json: str
    # {feedback} and the verdict as judges write them, in their order, with "|" between them; "" if
    # the judges' answers have no known form
    answer: str


# the names of the readers in `formats.tsv`
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
    """Make a marker of its entry in `formats.tsv`: "result = score" names marker and reader."""
    name, _, reader = text.partition(" = ")
    pattern = _MARKS[name]["pattern"]
    if "(?P<value>" not in pattern:  # the value stands between the marker and the line's end
        pattern = rf"(?:{pattern}){DRESS}(?P<value>[^\n]*)"
    compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    return Marker(compiled, READERS[reader], _MARKS[name]["kind"])


def _format(row: Mapping[str, str]) -> Format:
    """Make a format of its row in `formats.tsv`.

    Its cell "marks" is as "result = score, json", its cell "scale" as "1-10" or "".
    """
    lowest, _, highest = row["scale"].partition("-")
    marks = row["marks"].split(", ")
    # the entries that are no markers -> `Format.json`; such an entry is the last of its cell
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
"""Name -> format: every format that `vjudge.prompts.parse.parse` reads."""
