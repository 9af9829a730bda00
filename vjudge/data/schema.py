"""Rows of published schemas -> the canonical columns.

To add a data set, add its column names to `COLUMNS`.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa  # type: ignore[import-untyped]

from vjudge.images import ImageError, image_bytes
from vjudge.parse import parse
from vjudge.prompts import TEMPLATES
from vjudge.records import Item, Rubric, as_score, is_missing

COLUMNS: dict[str, tuple[str, ...]] = {
    "instruction": ("orig_instruction",),
    "response": ("orig_response", "original_response"),
    "reference_answer": ("orig_reference_answer",),
    "criteria": ("orig_criteria",),
    "gold": ("orig_score",),
    "feedback": ("orig_feedback",),
}
"""Canonical column -> its names in published files: Perception-Collection, Feedback-Collection and the samples of
prometheus-vision (which say `original_response` in their evaluation rows). `orig_score1_description` and so on become
`descriptions`."""

_LEVEL = re.compile(r"orig_score(\d+)_description")
_SHOWN = 20
_TEXT, _FLOAT = datasets.Value("string"), datasets.Value("float64")
FEATURES = datasets.Features(
    {
        "id": _TEXT,
        "images": datasets.Sequence(datasets.Image()),
        "instruction": _TEXT,
        "response": _TEXT,
        "reference_answer": _TEXT,
        "criteria": _TEXT,
        "descriptions": datasets.Sequence(_TEXT),
        "gold": _FLOAT,
        "feedback": _TEXT,
        "human_scores": datasets.Sequence(_FLOAT),
        "group": _TEXT,
    }
)
"""The canonical columns with their types. An image decodes when its row is read."""


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
    """A collection cannot be used; the message lists what is wrong, `problems` holds every bad row.

    Args:
        message: what is wrong as a whole.
        problems: the rows concerned, all of them; the message shows the first 20 and counts the rest.
    """

    def __init__(self, message: str, problems: Iterable[Problem] = ()) -> None:
        self.problems = tuple(problems)
        shown = [f"  {problem}" for problem in self.problems[:_SHOWN]]
        more = len(self.problems) - len(shown)
        rest = [f"  and {more} more, all in the error's `problems`"] if more else []
        super().__init__("\n".join([message, *shown, *rest]))


def canonical(rows: Iterable[Mapping[str, Any]], *, folder: str | Path | None = None) -> datasets.Dataset:
    """Bring rows of a known schema into the canonical columns.

    Known are the canonical columns themselves (`image` for a single one; optional ones may be absent), the published
    `orig_*` columns, and LLaVA's training rows (`conversations`), whose prompt is taken apart and must render back
    byte for byte. A score and feedback stated only in a target text are read from there. A row without an id gets its
    number; a row without a group gets its image path as written, else its id.

    Args:
        rows: a `datasets.Dataset` or mappings.
        folder: what relative image paths count from; None leaves them as they are.

    Returns:
        A dataset of `FEATURES`, then the source's further columns (as text where their types mix), without the ready
        prompts and targets that published rows repeat.

    Raises:
        CollectionError: every row that cannot be read, with its index, id, field and remedy.
    """
    if isinstance(rows, datasets.Dataset) and FEATURES.items() <= rows.features.items():
        return rows
    made: list[dict[str, Any]] = []
    extras: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for index, row in enumerate(rows_of(rows)):
        try:
            known, extra = _canonical_row(row, index, None if folder is None else Path(folder))
            made.append(known)
            extras.append(extra)
        except _BadField as error:
            id = row.get("id") if isinstance(row, Mapping) else None
            problems.append(Problem(index, None if id is None else str(id), *error.args))
    if problems:
        raise CollectionError(f"{len(problems)} rows cannot be read", problems)
    dataset = datasets.Dataset.from_dict({name: [known[name] for known in made] for name in FEATURES}, FEATURES)
    for name in dict.fromkeys(name for extra in extras for name in extra):
        dataset = dataset.add_column(name, _column([extra.get(name) for extra in extras]))
    return dataset


class _BadField(Exception):
    """(field, what, remedy) of a row that cannot be read."""


def rows_of(items: Any) -> Iterable[Mapping[str, Any]]:
    """Any collection as mappings, images undecoded: a broken one must not stop the loop."""
    if isinstance(items, datasets.Dataset):
        batches = items.with_format("arrow").iter(batch_size=256)
        return itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
    if hasattr(items, "to_dict") and hasattr(items, "columns"):  # a pandas.DataFrame
        return items.to_dict("records")
    return (_row_of(item) if isinstance(item, Item) else item for item in items)


def _row_of(item: Item) -> dict[str, Any]:
    rubric = item.rubric
    known = {name: getattr(item, name) for name in FEATURES if hasattr(item, name)}
    return known | {"criteria": rubric.criteria, "descriptions": list(rubric.descriptions), "lowest": rubric.lowest}


def plain(value: Any) -> Any:
    """A cell as plain Python: NumPy arrays and tuples as lists, missing as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return list(value) if isinstance(value, tuple) else None if is_missing(value) else value


def _canonical_row(row: Any, index: int, folder: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """One row's canonical columns, and its further ones."""
    if not isinstance(row, Mapping):
        raise _BadField("row", f"is a {type(row).__name__}", "write one object with named columns for each row")
    if "conversations" in row:
        row = _from_conversations(row)
    published = "orig_instruction" in row or "orig_criteria" in row
    levels = {int(match[1]): row[name] for name in row if (match := _LEVEL.fullmatch(name))}
    known: dict[str, Any] = {}
    for name in ("instruction", "response", "reference_answer", "criteria", "gold", "feedback"):
        names = [alias for alias in (COLUMNS[name] if published else (name,)) if alias in row]
        if not names and name in ("instruction", "response", "criteria"):
            wanted = " or ".join(COLUMNS[name] if published else (name,))
            raise _BadField(name, f"there is no column {wanted}", "add or rename it")
        known[name] = plain(row[names[0]]) if names else None
        if name != "gold" and not isinstance(known[name], (str, type(None))):
            raise _BadField(name, f"is a {type(known[name]).__name__}", "give a text")
    if published and sorted(levels) != list(range(min(levels, default=1), min(levels, default=1) + len(levels))):
        raise _BadField("descriptions", f"the levels are for scores {sorted(levels)}", "leave no score out")
    known["descriptions"] = [levels[score] for score in sorted(levels)] if published else plain(row.get("descriptions"))
    if not isinstance(known["descriptions"], list):
        raise _BadField("descriptions", "is not a list", "give one text for each score, lowest first")
    try:
        known["gold"] = as_score(known["gold"])
        known["human_scores"] = [as_score(score) for score in plain(row.get("human_scores")) or ()]
    except (ValueError, TypeError) as error:
        raise _BadField("gold or human_scores", str(error), "give numbers, or None where unknown") from error
    if published and math.isnan(known["gold"]) and isinstance(row.get("output"), str):
        known["gold"], known["feedback"] = _read_target(row["output"], tuple(sorted(levels)), "output")
    pictures = plain(row["images"] if "images" in row else row.get("image"))
    pictures = pictures if isinstance(pictures, list) else [] if pictures is None else [pictures]
    known["images"] = [_image_source(picture, folder, i) for i, picture in enumerate(pictures)]
    known["id"] = str(index) if is_missing(row.get("id")) else str(row["id"])
    written = [picture for picture in pictures if isinstance(picture, str) and not picture.startswith("data:")]
    group = row.get("group")
    known["group"] = (" ".join(written) or known["id"]) if is_missing(group) else str(group)
    used = {*FEATURES, "image"}
    if published:
        used |= {"output", "messages", "input", *itertools.chain(*COLUMNS.values())}
    extra = {name: row[name] for name in row if name not in used and not (published and _LEVEL.fullmatch(name))}
    if levels and min(levels) != 1:
        extra["lowest"] = min(levels)
    return known, extra


def _image_source(picture: Any, folder: Path | None, position: int) -> Any:
    """An image as the datasets library stores it; relative paths count from `folder`."""
    if isinstance(picture, str) and picture.startswith("data:"):
        try:
            return {"bytes": image_bytes(picture), "path": None}
        except ImageError as error:
            raise _BadField(f"images[{position}]", *str(error).rsplit("; ", 1)) from error
    path = picture.get("path") if isinstance(picture, Mapping) and picture.get("bytes") is None else picture
    if isinstance(path, (str, Path)):
        local = folder is not None and "://" not in str(path)
        return {"bytes": None, "path": str(folder / path) if local and folder else str(path)}
    return picture


def _read_target(text: str, scores: tuple[int, ...], field: str) -> tuple[float, str]:
    verdict = parse(text, scores=scores or (1,))
    if verdict.failure:
        raise _BadField(field, f"its target text has {verdict.failure}", "correct it or leave the row out")
    return verdict.score, verdict.feedback


_SECTIONS = re.compile(
    r"###The instruction to evaluate:\n(?P<instruction>.*)\n\n###Response to evaluate:\n(?P<response>.*?)"
    r"(?:\n\n###Reference Answer \(Score \d+\):\n(?P<reference>.*))?\n\n"
    r"###Score Rubrics:\n(?P<rubric>.*)\n\n###Feedback:",
    re.DOTALL,
)
_HEADER = re.compile(r"\n###(?:The instruction|Response|Reference Answer|Score Rubrics|Feedback)")
_RUBRIC_LEVEL = re.compile(r"\nScore (-?\d+): ")


def _from_conversations(row: Mapping[str, Any]) -> dict[str, Any]:
    """A training row of prometheus-vision: take its prompt apart and its target's verdict.

    Source: kaistAI/prometheus-vision sample_train_data.json.
    """
    try:
        turns = [turn["value"] for turn in row["conversations"]]
        talk = _take_apart(turns[0])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = "the prompt is in no known wording, or its sections cannot be told apart"
        raise _BadField("conversations", what, "use the collection's orig_* columns") from error
    made = {name: value for name, value in row.items() if name != "conversations"}
    made |= {name: getattr(talk, name) for name in ("instruction", "response", "reference_answer")}
    made |= {"criteria": talk.rubric.criteria, "descriptions": list(talk.rubric.descriptions)}
    if len(turns) > 1:
        made["gold"], made["feedback"] = _read_target(turns[1], talk.rubric.scores, "conversations")
    return made


def _take_apart(prompt: str) -> Item:
    """The item that renders to this prompt; ValueError unless there is exactly one way to read it."""
    headers = _HEADER.findall(prompt)
    match = _SECTIONS.search(prompt)
    if match is None or len(headers) != len(set(headers)):
        raise ValueError("the sections are not there, or one of them twice")
    criteria, *rest = _RUBRIC_LEVEL.split(match["rubric"])
    levels, lowest = tuple(rest[1::2]), int(rest[0])
    images = ("",) * len(re.match(r"(?:<image>\n)*", prompt)[0].split("\n")[:-1])  # type: ignore[index]
    for template in TEMPLATES.values():
        for text in (criteria, criteria[1:-1]):  # some wordings put the criteria in brackets
            rubric = Rubric(text, levels, lowest)
            item = Item("", images, match["instruction"], match["response"], rubric, match["reference"])
            whole = template.conversation.opening + prompt + template.conversation.closing
            if template.sees_images and template.render(item).text == whole:
                return item
    raise ValueError("no template renders to it")


def _column(values: list[Any]) -> list[Any]:
    """A further column as it is where Arrow can hold it, as text where its types mix."""
    try:
        pa.array(values)
        return values
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        texts = (value if isinstance(value, str) else json.dumps(value, default=str) for value in values)
        return [None if value is None else text for value, text in zip(values, texts, strict=True)]
