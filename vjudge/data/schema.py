"""The canonical columns, the names that other tables give them, and the error that names bad rows.

In a canonical row `images` is a list of what `vjudge.images.open_image` opens, or None where no
column names a picture; `human_scores` is a list of numbers, `gold` a number, a missing text None.
`response_images`, of pairs `response_a_images` and `response_b_images`, stand in rows whose
responses are pictures, or hold some; the response's text may then be None. A question is an item
without a response yet.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import datasets
import pandas as pd

from vjudge.records import IMAGE_COLUMNS, RESPONSE_IMAGES, Item, Pair, is_missing

_TEXT = datasets.Value("string")
_FLOAT = datasets.Value("float64")
PICTURE_COLUMNS = ("images", *RESPONSE_IMAGES.values())
_TYPES = {  # of a column that is no text
    **dict.fromkeys(PICTURE_COLUMNS, datasets.Sequence(datasets.Image())),
    "descriptions": datasets.Sequence(_TEXT),
    "responses": datasets.Sequence(_TEXT),
    "gold": _FLOAT,
    "human_scores": datasets.Sequence(_FLOAT),
    "ranks": datasets.Sequence(_FLOAT),
}


def _features(columns: str) -> datasets.Features:
    """The columns of a kind of row with their types: those of every kind, then its own."""
    names = f"id images instruction {columns} group".split()
    return datasets.Features({name: _TYPES.get(name, _TEXT) for name in names})


_RUBRIC = "reference_answer criteria descriptions"
FEATURES = _features(f"response {_RUBRIC} gold feedback human_scores")
"""The canonical columns of items with their types. An image decodes when its row is read."""
PAIR_FEATURES = _features(f"response_a response_b {_RUBRIC} preference feedback")
CANDIDATE_FEATURES = _features(f"responses {_RUBRIC} ranks")

CANONICAL = {*FEATURES, *PAIR_FEATURES, *CANDIDATE_FEATURES, *PICTURE_COLUMNS}
CANONICAL |= {"lowest", "anchors", "named_criteria"}

MAX_PROBLEMS = 10  # problems in an error's message
Row = Mapping[str, Any]
# Whatever `rows_of` reads: a table, rows, or the name or path of a collection.
Items: TypeAlias = (
    datasets.Dataset | pd.DataFrame | Iterable[Mapping | Item | Pair] | str | os.PathLike
)


@dataclass(frozen=True)
class Problem:
    """One thing wrong with one row."""

    index: int
    id: str | None
    field: str
    what: str
    remedy: str

    def __str__(self) -> str:
        text = f"row {self.index} (id {self.id!r}), {self.field}: {self.what}; {self.remedy}"
        return text.rstrip(": ;")


class CollectionError(ValueError):
    """A collection cannot be used.

    `problems` holds every bad row; the message shows the first ones and the count.
    """

    def __init__(self, message: str, problems: Iterable = ()) -> None:
        self.problems = tuple(problems)
        lines = [message, *map(str, self.problems[:MAX_PROBLEMS])]
        n_hidden = len(self.problems) - MAX_PROBLEMS
        if n_hidden > 0:
            lines.append(f"and {n_hidden} more, all in the error's `problems`")
        super().__init__("\n  ".join(lines))

    @classmethod
    def of_rows(cls, problems: Sequence, n_rows: int) -> CollectionError:
        """The error of bad rows among so many, with their number."""
        n_bad = len({problem.index for problem in problems})
        return cls(f"{n_bad} of {n_rows} rows cannot be used:", problems)


def pictures_in(row: Mapping) -> Iterator[tuple[str, Any]]:
    """The pictures of a canonical row, of its question and its responses, each with its column."""
    for column in PICTURE_COLUMNS:
        for source in row.get(column) or ():
            yield column, source


def problems_of(index: int, id: str | None, faults: Iterable) -> list:
    """What is wrong with a row, as problems of the collection."""
    return [Problem(index, id, *fault) for fault in faults]


def as_python(value: object) -> Any:
    """A cell as plain Python: NumPy arrays and tuples as lists, missing as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, tuple):
        return list(value)
    return None if is_missing(value) else value


def spelled(name: object) -> str:
    """A name in lower case, with underscores between its words.

    >>> spelled("Human scores"), spelled("response A image")
    ('human_scores', 'response_a_images')
    """
    spelling = re.sub(r"[\W_]+", "_", str(name)).strip("_").lower()
    if f"{spelling}s" in RESPONSE_IMAGES.values():
        return f"{spelling}s"
    return spelling


def features_of(columns: Iterable) -> datasets.Features:
    """The canonical columns of a row's kind, by the names of its columns."""
    names = set(columns)
    kind = FEATURES
    if names & {"response_a", "response_b"}:
        kind = PAIR_FEATURES
    elif "responses" in names:
        kind = CANDIDATE_FEATURES
    pictures = [name for name in RESPONSE_IMAGES.values() if name in names]
    return datasets.Features(kind | {name: _TYPES[name] for name in pictures})


@functools.lru_cache(maxsize=1024)
def columns_of(names: tuple) -> dict:
    """The canonical name of each of a row's columns; several may hold pictures, in any case."""
    columns = {}
    for name in names:
        columns[name] = str(name)
        if spelled(name) in IMAGE_COLUMNS:
            columns[name] = "images"
    return columns


def id_of(row: object) -> str | None:
    """A row's id as text, None where it has none."""
    id = row.get("id") if isinstance(row, Mapping) else None
    return None if is_missing(id) else str(id)


def check_names(names: Sequence, table: str) -> None:
    """Refuse a table in which a column's name stands twice."""
    twice = [str(name) for name, count in Counter(names).items() if count > 1]
    if twice:
        raise CollectionError(
            f"{table} has several columns {', '.join(twice)}; keep one of each, rename the others"
        )
