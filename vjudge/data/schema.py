"""The canonical columns of a collection, how anybody's row becomes canonical, and the error that says why one cannot.

In a canonical row `images` is a list of what `vjudge.images.open_image` opens, or None where no column names a picture;
`human_scores` is a list of numbers, `gold` a number, a missing text None. A question is an item without a response yet.
"""

from __future__ import annotations

import ast
import difflib
import functools
import hashlib
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
from PIL import Image

from vjudge.images import ImageError, Picture, image_bytes
from vjudge.records import (
    IMAGE_COLUMNS,
    Item,
    Pair,
    anchors_of,
    as_score,
    brief,
    criteria_of,
    is_missing,
    text_of,
)

_TEXT, _FLOAT = datasets.Value("string"), datasets.Value("float64")
_TEXTS, _FLOATS = datasets.Sequence(_TEXT), datasets.Sequence(_FLOAT)
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
_LEVEL = re.compile(
    r"score(-?\d+)_description"
)  # a column for each level, as Prometheus' rubrics have them
NEAR = {
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
"""Names that other tables give to a canonical column: suggested where it is missing, never taken for it."""
# An image file in base64, as VLMEvalKit's tables hold them: JPEG, PNG, GIF or WebP by their first bytes.
_BASE64 = re.compile(r"(?:/9j/|iVBORw0KGgo|R0lGOD|UklGR)[A-Za-z0-9+/\s]{60,}={0,2}\s*")
_HALF = re.compile("[\ud800-\udfff]")  # of a character that takes two places in UTF-16
_ABSENT = ("none", "null", "nan", "na", "n/a")  # as a rater's missing score is written
_DEEPEST, _DIGITS = 32, 4_300  # of lists within lists; the most digits that Python reads and writes
BLOCK = 32  # rows that stand in memory with their pictures

Row = Mapping[str, Any]
Fault = tuple[str, str, str]  # field, what is wrong, remedy
Reading = tuple[dict[str, Any], list[Fault]]  # a canonical row, and what keeps it from being one


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
    """A collection cannot be used: `problems` holds every bad row, the message three of each kind and the count."""

    def __init__(self, message: str, problems: Iterable[Problem] = ()) -> None:
        self.problems = tuple(problems)
        kinds, lines = Counter[tuple[str, str]](), list[str]()
        for problem in self.problems:
            kinds[kind := (problem.field.partition("[")[0], problem.remedy)] += 1
            lines += [f"  {problem}"] if kinds[kind] <= 3 else []
        if more := len(self.problems) - len(lines):
            lines.append(f"  and {more} more, all in the error's `problems`")
        super().__init__("\n".join([message, *lines]))

    @classmethod
    def of_rows(cls, problems: Sequence[Problem], n_rows: int, source: str = "") -> CollectionError:
        """The error of bad rows among so many, with their number."""
        n_bad = len({problem.index for problem in problems})
        return cls(f"{n_bad} of {n_rows} rows{source} cannot be used:", problems)


class BadRow(Exception):
    """A row that cannot be read; its arguments are the faults."""

    args: tuple[Fault, ...]


@dataclass(frozen=True)
class Adapter:
    """One published data set: which of its columns is which of ours, and what takes more than a name."""

    name: str  # as its paper calls it
    columns: tuple[str, ...]  # by which rows are known as this data set
    names: Mapping[
        str, str
    ]  # canonical name -> its column, or several with blanks between: the first that is there
    more: Callable[[Row, str | None], dict[str, Any]] = (
        lambda row, part: {}
    )  # other cells, of a row and its part
    drop: str = ""  # pattern of the columns that are not kept
    ids: tuple[str, ...] = ()  # on the Hugging Face hub
    split: str = "train"  # the hub's, where none is asked for
    parts: tuple[
        str, ...
    ] = ()  # the hub's configurations, which `split=` chooses among; the first is the default
    settle: Callable[[Iterable[Row]], str] | None = (
        None  # which part rows are of, where nothing says it
    )
    files: tuple[
        str, ...
    ] = ()  # of its folder: questions, answers, captions (the first that is there)
    image_roots: tuple[str, ...] = (
        ".",
    )  # where relative image paths may count from, seen from the file's folder
    repeats_ids: bool = False  # a later row of an id is told apart by "#2", "#3"
    benchmark: str = ""  # its key in `vjudge.benchmarks.BENCHMARKS`

    def read(self, row: Row, part: str | None = None) -> dict[str, Any]:
        """The canonical cells of a row, then its other columns; `BadRow` names what is blank or cannot be read."""
        sources = {
            name: next((c for c in columns.split() if c in row), "")
            for name, columns in self.names.items()
        }
        gone = {*sources.values()}
        cells = {
            name: cell
            for name, cell in row.items()
            if name not in gone and not re.fullmatch(self.drop, name)
        }
        cells |= {name: plain(row.get(column)) for name, column in sources.items()}
        if blank := [
            name
            for name in ("instruction", *RESPONSES)
            if name in sources and text_of(cells, name) is None
        ]:
            columns = (sources[name] or self.names[name] for name in blank)
            raise BadRow(
                *(
                    (column, "is missing or blank", "correct it or leave the row out")
                    for column in columns
                )
            )
        return cells | self.more(row, part)


def plain(value: Any) -> Any:
    """A cell as plain Python: NumPy arrays and tuples as lists, missing as None."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, tuple) else None if is_missing(value) else value


def features_of(row: Iterable[str]) -> datasets.Features:
    """The canonical columns of a row's kind, by the names of its columns."""
    names = set(row)
    items = CANDIDATE_FEATURES if "responses" in names else FEATURES
    return PAIR_FEATURES if names & {"response_a", "response_b"} else items


def id_of(row: Any) -> str | None:
    """A row's id as text, None where it has none."""
    id = row.get("id") if isinstance(row, Mapping) else None
    return (
        None
        if is_missing(id)
        else brief(id)
        if isinstance(id, int) and id.bit_length() > 64
        else str(id)
    )


def suggestion(field: str, columns: Iterable[str]) -> str:
    """What to do about a canonical column that is not there."""
    names = {re.sub(r"\W+", "_", str(column)).strip("_").lower(): str(column) for column in columns}
    near = [
        field,
        *NEAR.get(field, "").split(),
        *difflib.get_close_matches(field, names, cutoff=0.8),
    ]
    likely = [names[name] for name in near if name in names and names[name] not in CANONICAL]
    raters = [
        name
        for key, name in names.items()
        if field == "human_scores" and re.sub(r"_?\d+$", "", key) in near[1:]
    ]
    if len(raters) > 1:
        return f"{', '.join(f'`{name}`' for name in raters)} look like it: put them in one list, `human_scores`"
    if likely and likely[0].lower() in ("rubric", "rubrics"):  # one column can't become two
        return f"`{likely[0]}` looks like it: put its text into `criteria`, its levels into `descriptions`"
    return f"`{likely[0]}` looks like it: rename it" if likely else "add it"


def levels_of(row: Row, pattern: re.Pattern[str] = _LEVEL) -> dict[str, Any]:
    """The descriptions, and their lowest score where that is not 1, from a column for each level; empty without any."""
    levels = {int(match[1]): row[name] for name in row if (match := pattern.fullmatch(str(name)))}
    scores = sorted(levels)
    if scores and scores[-1] - scores[0] >= len(scores):
        raise BadRow(("descriptions", f"the levels are for scores {scores}", "leave no score out"))
    cells: dict[str, Any] = {"descriptions": [levels[score] for score in scores]} if scores else {}
    return cells | ({"lowest": scores[0]} if scores and scores[0] != 1 else {})


# -- what reads a cell; ValueError or TypeError says why it cannot


def ratings(cell: Any) -> list[float]:
    """One score a rater, NaN where one gave none, from a list, a number or a text; ValueError: one is no number.

    >>> ratings("3;4;2"), ratings("[3, 4, 2]"), ratings("3,5; 4")  # beside semicolons a comma is a decimal one
    ([3.0, 4.0, 2.0], [3.0, 4.0, 2.0], [3.5, 4.0])
    """
    cell = plain(cell)
    if isinstance(cell, str):
        text = cell.strip()
        if text[:1] + text[-1:] in ("[]", "()"):
            text = text[1:-1].strip()
        parts = re.split(r"\s*,\s*|\s+", text.rstrip(",")) if text else []
        if ";" in text or "|" in text:
            parts = [part.strip().replace(",", ".") for part in re.split("[;|]", text)]
        cell = [None if part.lower() in _ABSENT else part.strip("'\"") for part in parts]
    if isinstance(cell, Iterable) and not isinstance(cell, (Mapping, bytes)):
        return [as_score(score) for score in cell]
    return [] if cell is None else [as_score(cell)]


def _text(cell: Any) -> str | None:
    if is_missing(cell) or isinstance(cell, str):
        return None if is_missing(cell) else cell
    raise ValueError(f"is no text but {brief(cell)}")


def _texts(cell: Any) -> list[Any] | None:
    if (cell := plain(_list_in(cell))) is None or isinstance(cell, list):
        return cell
    raise ValueError("is not a list")


def _levels(cell: Any) -> list[Any] | dict[int, str] | None:
    """Descriptions as a list of texts, or as anchors: score -> text."""
    return anchors_of(cell) if isinstance(cell, Mapping) else _texts(cell)


def _criteria(cell: Any) -> Any:
    """A text, or several criteria as `criteria_of` reads them."""
    if isinstance(cell, list | Mapping):
        criteria_of(cell)
        return cell
    return _text(cell)


def _columns_of_rubric(cells: dict[str, Any]) -> None:
    """Write anchors and named criteria into columns of one type, as a `datasets.Dataset` needs."""
    levels = cells.get("descriptions")
    if isinstance(levels, dict):
        cells["descriptions"] = list(levels.values())
        cells["anchors"] = list(levels)
    criteria = cells.get("criteria")
    if isinstance(criteria, list | Mapping):
        cells["criteria"], named = criteria_of(criteria)
        cells["named_criteria"] = [one.as_cells() for one in named]


def _list_in(cell: Any) -> Any:
    """A list that stands in a text, as JSON or as Python writes it; anything else as it is."""
    if isinstance(cell, str) and cell[:1] == "[" and cell.count("[") <= 1_000:
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return read(cell)
    return cell


def _pictures(cell: Any) -> list[Any] | None:
    """The pictures in a cell, one or a list, each as `open_image` takes it; [] for none on purpose, None if unsaid."""
    cell = os.fspath(cell) if isinstance(cell, os.PathLike) else cell
    cell = _list_in(cell.strip()) if isinstance(cell, str) else cell
    if isinstance(cell, str) and _BASE64.fullmatch(cell):
        cell = f"data:image;base64,{''.join(cell.split())}"
    if isinstance(cell, str) and cell.startswith("data:"):
        return [{"bytes": image_bytes(cell), "path": None}]
    if isinstance(cell, tuple) or (isinstance(cell, np.ndarray) and cell.dtype.kind in "OUS"):
        cell = list(cell)
    if isinstance(cell, list) and cell and isinstance(cell[0], list):
        with suppress(ValueError, OverflowError):  # numbers are the array that Arrow made lists of
            array = np.asarray(cell)
            if array.size and array.dtype.kind == "i" and 0 <= array.min() <= array.max() < 256:
                array = array.astype(np.uint8)
            cell = array if array.size and array.dtype.kind in "uif" else cell
    if isinstance(cell, np.ndarray):
        return list(cell) if cell.ndim == 4 else [cell]
    if isinstance(cell, list):
        return [
            picture
            for part in cell
            for picture in ([part] if is_missing(part) else _pictures(part) or [part])
        ]
    nowhere = (
        isinstance(cell, Mapping) and cell.get("bytes") is None and is_missing(cell.get("path"))
    )
    if nowhere or is_missing(cell) or cell == "":
        return None
    if isinstance(cell, (str, bytes, Image.Image, Mapping)):
        return [cell]
    raise ValueError(f"a picture cannot be of type {type(cell).__name__}")


_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    **dict.fromkeys(
        (*RESPONSES[:3], "instruction", "reference_answer", "feedback"),
        (_text, "give text"),
    ),
    "criteria": (_criteria, "give a text, or a list of objects with name, criteria and weight"),
    "descriptions": (_levels, "give a list of texts, or a mapping of scores to texts"),
    "responses": (_texts, "give a list of texts"),
    **dict.fromkeys(("human_scores", "ranks"), (ratings, "give numbers, or None where unknown")),
    "gold": (as_score, "give a number, or None where unknown"),
    "images": (_pictures, "give a path, bytes, an array or a PIL image, or a list"),
}
"""Canonical column -> what reads its cells, and what to do where it cannot."""


@functools.lru_cache(maxsize=1024)
def columns_of(names: tuple[Any, ...]) -> dict[Any, str]:
    """Which canonical column each of a row's is; several may hold pictures, whatever the case of their letters."""
    kind = features_of(names)
    columns = {name: name if name in kind else "" for name in names}
    spelled = {name: re.sub(r"[\s-]+", "_", str(name).strip()).lower() for name in names}
    return columns | {name: "images" for name in names if spelled[name] in IMAGE_COLUMNS}


def _unwritable(cell: Any, depth: int = 0) -> str:
    """Why a cell cannot be written to a file or read by a tokenizer; empty where it can."""
    if isinstance(cell, str) and (half := _HALF.search(cell)):
        return f"holds half a character (the lone surrogate {half[0]!r} at place {half.start()})"
    if isinstance(cell, int) and cell.bit_length() > _DIGITS and abs(cell) >= 10**_DIGITS:
        return f"is a number of more than {_DIGITS:,} digits"
    if isinstance(cell, (list, tuple, dict)):
        if depth >= _DEEPEST:
            return f"is nested more than {_DEEPEST} deep"
        parts = cell.values() if isinstance(cell, dict) else cell
        return next(filter(None, (_unwritable(part, depth + 1) for part in parts)), "")
    return ""


def canonical_row(
    row: Any, *, folder: Path | None = None, roots: Sequence[str] = (".",)
) -> Reading:
    """A row in canonical form, and what keeps it from being so; such cells stay as they are.

    Relative image paths count from the first of `roots`, seen from `folder`, in which the file stands. A group that is
    missing is named after the images, by their paths as written or a digest of their bytes.

    >>> canonical_row({"id": "a", "image": "a.png", "human_scores": "3;4"})[0]
    {'id': 'a', 'human_scores': [3.0, 4.0], 'images': ['a.png'], 'group': 'a.png'}
    """
    if isinstance(row, (Item, Pair)):
        own = {
            name: cell
            for name, cell in vars(row).items()
            if name != "rubric" and cell not in ("", None)
        }
        row = own | (row.rubric.as_row() if row.rubric else {})
    if not isinstance(row, Mapping):
        return {}, [
            (
                "row",
                f"is a {type(row).__name__}",
                "write one object with named columns for each row",
            )
        ]
    faults, cells, first, pictures = list[Fault](), dict[str, Any](), "", None
    if is_missing(row.get("descriptions")):
        try:
            # A table's rows may have fewer levels than its columns.
            if levels := levels_of(
                {name: cell for name, cell in row.items() if not is_missing(cell) and cell != ""}
            ):
                row = {
                    name: cell for name, cell in row.items() if not _LEVEL.fullmatch(str(name))
                } | levels
        except BadRow as error:
            faults += error.args
    columns = columns_of(tuple(row))
    for name, column in columns.items():
        cell, (read, remedy) = row[name], _READERS.get(column, (None, ""))
        if what := _unwritable(cell):
            remedy = "repair it"
        elif read:
            try:
                cell = read(cell)
            except (ValueError, TypeError) as error:
                what = str(error)
        if what:
            faults.append((str(name), what, remedy))
        if column != "images":
            cells[name] = cell
        elif not pictures:
            first, pictures = name, [] if what else pictures if cell is None else cell
        elif (
            cell
            and not what
            and (len(cell) != len(pictures) or not all(map(_same, pictures, cell)))
        ):
            what = f"this row's columns `{first}` and `{name}` name different pictures"
            faults.append(("images", what, "keep one of the columns"))
    if not faults:
        _columns_of_rubric(cells)
    if "images" in columns.values():
        cells["images"] = pictures
        if folder and pictures:
            try:
                cells["images"] = [_beside(picture, folder, roots) for picture in pictures]
            except ValueError as error:
                remedy = "write its absolute path, or put the picture into that folder"
                faults.append((first, str(error), remedy))
        nameless = is_missing(cells.get("group")) or cells["group"] == ""
        if nameless and (group := " ".join(filter(None, map(_key, pictures or ())))):
            cells["group"] = group
    return cells, faults


def _same(one: Any, other: Any) -> bool:
    """Whether two pictures are the same, as far as paths and bytes tell; beside bytes a path's last part counts."""
    paths = [
        picture.get("path") if isinstance(picture, Mapping) else picture for picture in (one, other)
    ]
    names = [Path(path).name if isinstance(path, str) else "" for path in paths]
    held = any(
        isinstance(picture, Mapping) and picture.get("bytes") is not None
        for picture in (one, other)
    )
    return _key(one) == _key(other) or (held and names[0] == names[1] != "")


def _beside(picture: Any, folder: Path, roots: Sequence[str]) -> Any:
    """A picture whose relative path counts from a folder.

    ValueError: it leads out of that folder and of those beside it, where published sets have theirs.
    """
    path = picture
    if isinstance(picture, Mapping) and picture.get("bytes") is None:
        path = picture.get("path")
    if not isinstance(path, str) or "://" in path:
        return picture
    places = [str(folder / root / path) for root in roots]
    place = next(filter(os.path.isfile, places), places[0])
    if not os.path.isabs(path) and leads_out(place, folder.parent):
        target = os.path.realpath(place)
        raise ValueError(f"{path!r} leads out of the folder {str(folder)!r} to {target!r}")
    return {**picture, "path": place} if isinstance(picture, Mapping) else place


def leads_out(place: str, folder: Path, roots: Sequence[str] = (".",)) -> bool:
    """Whether a path leads out of a folder and of the `roots` seen from it, by `../` or a link."""
    homes = [folder / root for root in roots]
    for outer in (folder, *folder.parents):
        if outer.name == "snapshots":  # of the hub's cache, whose files are links to its blobs
            homes.append(outer.parent)
    target = Path(os.path.realpath(place))
    return not any(target.is_relative_to(os.path.realpath(home)) for home in homes)


def _key(picture: Any) -> str:
    """What rows of the same image share: its path as written, else a digest of its file or pixels; empty for none."""
    data = getattr(picture, "filename", None) or picture  # of an image that Pillow opened
    if isinstance(data, Mapping):
        data = data.get("path") if data.get("bytes") is None else data["bytes"]
    if isinstance(data, (Image.Image, np.ndarray)):
        with suppress(ImageError):  # who opens it names what is wrong with it
            return Picture(data).key[-16:]
        return ""
    return hashlib.sha256(data).hexdigest()[:16] if isinstance(data, bytes) else str(data or "")


class Rows(Sequence[Row]):
    """Canonical rows, read when asked for, images undecoded, numbered where none has an id; or a CollectionError."""

    def __init__(self, source: datasets.Dataset | list[Any]) -> None:
        if isinstance(source, datasets.Dataset):
            names, source = source.column_names, with_image(source).with_format("arrow")
        else:
            rows = (vars(row) if isinstance(row, (Item, Pair)) else row for row in source)
            names = itertools.chain.from_iterable(row for row in rows if isinstance(row, Mapping))
        self._source, self.columns = source, tuple(dict.fromkeys(map(str, names)))

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        place = range(len(self))[index]
        if isinstance(place, range):
            return [self[each] for each in place]
        return self._sound(*next(self.reads(place, place + 1)))

    def __iter__(self) -> Iterator[Row]:
        return itertools.starmap(self._sound, self.reads())

    def reads(self, start: int = 0, stop: int | None = None) -> Iterator[Reading]:
        """Every row and its faults, as `canonical_row` gives them."""
        stop = len(self) if stop is None else stop
        for place in range(start, stop, BLOCK):
            block = self._source[place : min(place + BLOCK, stop)]
            for index, row in enumerate(
                block if isinstance(block, list) else block.to_pylist(), place
            ):
                cells, faults = canonical_row(row)
                yield (cells if "id" in self.columns else {"id": str(index)} | cells), faults

    def _sound(self, row: dict[str, Any], faults: list[Fault]) -> dict[str, Any]:
        if faults:  # all that cannot be read are named at once
            reads = enumerate(self.reads())
            problems = [
                Problem(place, id_of(bad), *fault)
                for place, (bad, wrong) in reads
                for fault in wrong
            ]
            raise CollectionError.of_rows(problems, len(self))
        return row


def with_image(table: datasets.Dataset) -> datasets.Dataset:
    """A data set whose only pictures stand in `image`, where no column has a name of pictures."""
    typed = [name for name, kind in table.features.items() if isinstance(kind, datasets.Image)]
    alone = len(typed) == 1 and "images" not in columns_of(tuple(table.column_names)).values()
    return table.rename_column(typed[0], "image") if alone else table


def frame_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame, whose ids may stand in its index."""
    if "id" in frame.index.names and "id" not in frame.columns:
        frame = frame.reset_index("id")
    check_names(map(str, frame.columns), "the frame")
    return frame.to_dict("records")


def check_names(names: Iterable[str], table: str) -> None:
    """Refuse a table in which one of our columns stands twice: one of them would win in silence."""
    ours = CANONICAL.union(IMAGE_COLUMNS)
    if several := [name for name, count in Counter(names).items() if count > 1 and name in ours]:
        raise CollectionError(
            f"{table} has several columns {', '.join(several)}; keep one of each, rename the others"
        )
