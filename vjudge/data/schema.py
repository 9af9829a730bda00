"""The canonical columns, the names that other tables give them, and the error that names bad rows.

In a canonical row `images` is a list of what `vjudge.images.open_image` opens, or None where no
column names a picture; `human_scores` is a list of numbers, `gold` a number, a missing text None.
A question is an item without a response yet.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasets

from vjudge.records import IMAGE_COLUMNS, brief, is_missing

_TEXT = datasets.Value("string")
_FLOAT = datasets.Value("float64")
_TEXTS = datasets.Sequence(_TEXT)
_FLOATS = datasets.Sequence(_FLOAT)
_QUESTION = {"id": _TEXT, "images": datasets.Sequence(datasets.Image()), "instruction": _TEXT}
_RUBRIC = {"reference_answer": _TEXT, "criteria": _TEXT, "descriptions": _TEXTS}
_SCORES = {"gold": _FLOAT, "feedback": _TEXT, "human_scores": _FLOATS}
_PREFERENCE = {"preference": _TEXT, "feedback": _TEXT, "group": _TEXT}
FEATURES = datasets.Features({**_QUESTION, "response": _TEXT, **_RUBRIC, **_SCORES, "group": _TEXT})
"""The canonical columns of items with their types. An image decodes when its row is read."""
PAIR_FEATURES = datasets.Features(
    {**_QUESTION, "response_a": _TEXT, "response_b": _TEXT, **_RUBRIC, **_PREFERENCE}
)
CANDIDATE_FEATURES = datasets.Features(
    {**_QUESTION, "responses": _TEXTS, **_RUBRIC, "ranks": _FLOATS, "group": _TEXT}
)

CANONICAL = frozenset({*FEATURES, *PAIR_FEATURES, *CANDIDATE_FEATURES})
RESPONSES = ("response", "response_a", "response_b", "responses")
SIMILAR = {
    "response": "prediction model_output output completion generation reply answer text caption",
    "instruction": "prompt question query input task",
    "response_a": "answer_a output_a response_1 answer1 output1 chosen",
    "response_b": "answer_b output_b response_2 answer2 output2 rejected",
    "criteria": "criterion rubric rubric_criteria aspect",
    "descriptions": "levels rubric rubrics score_descriptions",
    "gold": "score rating label human_score ground_truth grade mos",
    "human_scores": "ratings scores labels human_ratings annotations rater human annotator",
    "images": "image_url url photo photos file path file_name filename picture_file",
}
"""Names of a column in other tables: suggested where it is missing, never taken for it."""

Row = Mapping[str, Any]
Fault = tuple[str, str, str]  # field, what is wrong, remedy


@dataclass(frozen=True)
class Problem:
    """One thing wrong with one row."""

    index: int
    id: str | None
    field: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"row {self.index} (id {self.id!r}), {self.field}: {self.what}; {self.remedy}"


class CollectionError(ValueError):
    """A collection cannot be used.

    `problems` holds every bad row; the message shows three of each kind and the count.
    """

    def __init__(self, message: str, problems: Iterable[Problem] = ()) -> None:
        self.problems = tuple(problems)
        kinds = Counter[tuple[str, str]]()
        lines = [message]
        for problem in self.problems:
            kind = (problem.field.partition("[")[0], problem.remedy)
            kinds[kind] += 1
            if kinds[kind] <= 3:
                lines.append(f"  {problem}")
        more = len(self.problems) - len(lines) + 1
        if more:
            lines.append(f"  and {more} more, all in the error's `problems`")
        super().__init__("\n".join(lines))

    @classmethod
    def of_rows(cls, problems: Sequence[Problem], n_rows: int, source: str = "") -> CollectionError:
        """The error of bad rows among so many, with their number."""
        n_bad = len({problem.index for problem in problems})
        return cls(f"{n_bad} of {n_rows} rows{source} cannot be used:", problems)


class BadRow(Exception):
    """A row that cannot be read; its arguments are the faults."""

    args: tuple[Fault, ...]


def plain(value: Any) -> Any:
    """A cell as plain Python: NumPy arrays and tuples as lists, missing as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, tuple):
        return list(value)
    return None if is_missing(value) else value


def spelled(name: Any) -> str:
    """A name in lower case, with underscores between its words."""
    return re.sub(r"[\W_]+", "_", str(name)).strip("_").lower()


def features_of(columns: Iterable[str]) -> datasets.Features:
    """The canonical columns of a row's kind, by the names of its columns."""
    names = set(columns)
    if names & {"response_a", "response_b"}:
        return PAIR_FEATURES
    return CANDIDATE_FEATURES if "responses" in names else FEATURES


@functools.lru_cache(maxsize=1024)
def columns_of(names: tuple[Any, ...]) -> dict[Any, str]:
    """The canonical column of each of a row's columns, "" for a further one.

    Several columns may hold pictures, in upper or lower case.
    """
    kind = features_of(names)
    columns = {}
    for name in names:
        columns[name] = name if name in kind else ""
        if spelled(name) in IMAGE_COLUMNS:
            columns[name] = "images"
    return columns


def id_of(row: Any) -> str | None:
    """A row's id as text, None where it has none."""
    id = row.get("id") if isinstance(row, Mapping) else None
    if is_missing(id):
        return None
    if isinstance(id, int) and id.bit_length() > 64:
        return brief(id)
    return str(id)


def suggestion(field: str, columns: Iterable[str]) -> str:
    """What to do about a canonical column that is not there."""
    names = {spelled(column): str(column) for column in columns}
    similar = SIMILAR.get(field, "").split()
    similar += difflib.get_close_matches(field, names, cutoff=0.8)
    if field == "human_scores":
        raters = [
            f"`{name}`" for key, name in names.items() if re.sub(r"_?\d+$", "", key) in similar
        ]
        if len(raters) > 1:
            return f"{', '.join(raters)} look like it: put them in one list, `human_scores`"
    for key in (field, *similar):
        name = names.get(key)
        if name is None or name in CANONICAL:
            continue
        if key in ("rubric", "rubrics"):  # one column can't become two
            remedy = "put its text into `criteria`, its levels into `descriptions`"
            return f"`{name}` looks like it: {remedy}"
        return f"`{name}` looks like it: rename it"
    return "add it"


def check_names(names: Iterable[str], table: str) -> None:
    """Refuse a table in which a canonical column stands twice."""
    counts = Counter(names)
    ours = CANONICAL.union(IMAGE_COLUMNS)
    twice = [name for name, count in counts.items() if count > 1 and name in ours]
    if twice:
        raise CollectionError(
            f"{table} has several columns {', '.join(twice)}; keep one of each, rename the others"
        )
