"""The canonical columns with their types, and the error that names every bad row.

In a canonical row `images` is a list of what `vjudge.images.open_image` opens, or None where the
source names no images; `human_scores` is a list of numbers, `gold` is a number, and a missing text
is None. Where responses are images or hold some, these are in `response_images`, for pairs in
`response_a_images` and `response_b_images`, and the response's text may be None. A question is an
item without a response.
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

from vjudge.records import IMAGE_COLUMNS, RESPONSE_IMAGES, Item, Pair, is_missing, text_of

_TEXT = datasets.Value("string")
_FLOAT = datasets.Value("float64")
PICTURE_COLUMNS = ("images", *RESPONSE_IMAGES.values())
_TYPES = {  # canonical column -> its type, where that is not text
    **dict.fromkeys(PICTURE_COLUMNS, datasets.Sequence(datasets.Image())),
    "descriptions": datasets.Sequence(_TEXT),
    "responses": datasets.Sequence(_TEXT),
    "gold": _FLOAT,
    "human_scores": datasets.Sequence(_FLOAT),
    "ranks": datasets.Sequence(_FLOAT),
}


def _features(columns: str) -> datasets.Features:
    """Make the types of the columns of items, of pairs or of candidates.

    Args:
        columns: names, with blanks between them, of the columns that other kinds of rows lack.
    """
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
# What is wrong with a row: per fault the column, the reason and the remedy.
RowFaults = list[tuple[str, str, str]]
# Whatever `rows_of` reads: a table, rows, or the name or path of a collection.
Items: TypeAlias = (
    datasets.Dataset | pd.DataFrame | Iterable[Mapping | Item | Pair] | str | os.PathLike
)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one row.

    Attributes:
        index: position of the row in its collection, from 0.
        id: of the row; None where it has none.
        field: the column.
        reason, remedy: what is wrong with the cell, and what to do about it.
    """

    index: int
    id: str | None
    field: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        text = f"row {self.index} (id {self.id!r}), {self.field}: {self.reason}; {self.remedy}"
        return text.rstrip(": ;")


class CollectionError(ValueError):
    """A collection cannot be used.

    `problems` has every problem of every bad row. The message shows the first ten, and counts the
    bad rows.
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
        """Make the error whose message counts the bad rows among `n_rows`."""
        n_bad = len({problem.index for problem in problems})
        return cls(f"{n_bad} of {n_rows} rows cannot be used:", problems)


def pictures_in(row: Mapping) -> Iterator[tuple[str, int, Any]]:
    """Yield (column, position in its list, image) for each image of a canonical row."""
    for column in PICTURE_COLUMNS:
        for position, source in enumerate(row.get(column) or ()):
            yield column, position, source


def problems_of(index: int, id: str | None, faults: RowFaults) -> list[Problem]:
    """Turn the faults of one row into problems of its collection."""
    return [Problem(index, id, *fault) for fault in faults]


def as_python(value: object) -> Any:
    """Return a cell as plain Python: NumPy arrays and tuples as lists, a missing value as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, tuple):
        return list(value)
    return None if is_missing(value) else value


def spelled(name: object) -> str:
    """Normalise a column's name: lower case, with underscores between its words.

    A column of response images may be named in the singular.

    >>> spelled("Human scores"), spelled("response A image")
    ('human_scores', 'response_a_images')
    """
    spelling = re.sub(r"[\W_]+", "_", str(name)).strip("_").lower()
    if f"{spelling}s" in RESPONSE_IMAGES.values():
        return f"{spelling}s"
    return spelling


def features_of(columns: Iterable) -> datasets.Features:
    """Return the canonical columns, with their types, of the kind of rows that has some columns.

    Args:
        columns: names, by which items, pairs and candidates are told apart.
    """
    names = set(columns)
    kind = FEATURES  # an item, unless a column says otherwise
    if names & {"response_a", "response_b"}:
        kind = PAIR_FEATURES
    elif "responses" in names:
        kind = CANDIDATE_FEATURES
    pictures = [name for name in RESPONSE_IMAGES.values() if name in names]
    return datasets.Features(kind | {name: _TYPES[name] for name in pictures})


@functools.lru_cache(maxsize=1024)
def columns_of(names: tuple) -> dict[Any, str]:
    """Map each column to its canonical name: `images` for any of `IMAGE_COLUMNS`, else the name.

    Several columns may map to `images`.
    """
    columns = {}
    for name in names:
        columns[name] = str(name)
        if spelled(name) in IMAGE_COLUMNS:
            columns[name] = "images"
    return columns


def has_own_texts(row: Mapping) -> bool:
    """Tell whether a row is trained on as it is: it has a prompt and a target."""
    return text_of(row, "prompt") is not None and text_of(row, "target") is not None


def id_of(row: object) -> str | None:
    """Return a row's id as text, or None where it has none."""
    id = row.get("id") if isinstance(row, Mapping) else None
    return None if is_missing(id) else str(id)


def check_names(names: Sequence, table: str) -> None:
    """Refuse a table in which two columns have the same name."""
    repeated = [str(name) for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise CollectionError(
            f"{table} has several columns {', '.join(repeated)}; keep one of each, rename the"
            " others"
        )
