"""How anybody's row becomes canonical, cell by cell, and what keeps it from being so."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
from PIL import Image

from vjudge.data.schema import (
    BadRow,
    CollectionError,
    Fault,
    Problem,
    Row,
    check_names,
    columns_of,
    id_of,
    plain,
)
from vjudge.images import ImageError, Picture, image_bytes
from vjudge.records import Item, Pair, anchors_of, as_score, brief, criteria_of, is_missing

BLOCK = 32  # rows that stand in memory with their pictures
LEVEL = re.compile(r"(?:orig_)?score(-?\d+)_description")
"""A column for each level, as Prometheus' rubrics have them."""
# A JPEG, PNG, GIF or WebP file in base64, by its first bytes, as VLMEvalKit's tables hold it.
_BASE64 = re.compile(r"(?:/9j/|iVBORw0KGgo|R0lGOD|UklGR)[A-Za-z0-9+/\s]{60,}={0,2}\s*")
_ABSENT = ("none", "null", "nan", "na", "n/a")  # how a rater's missing score is written

Cells = dict[str, Any]
Reading = tuple[Cells, list[Fault]]  # a canonical row, and what is wrong with it


# -- what reads a cell; ValueError or TypeError says why it cannot


def ratings(cell: Any) -> list[float]:
    """One score a rater, from a list, a number or a text; NaN where a rater gave none.

    >>> ratings("3;4;2"), ratings("[3, 4, 2]")
    ([3.0, 4.0, 2.0], [3.0, 4.0, 2.0])
    >>> ratings("3,5; 4")  # beside semicolons a comma is a decimal one
    [3.5, 4.0]

    Raises:
        ValueError: a rating is not a number.
    """
    cell = plain(cell)
    if isinstance(cell, str):
        cell = _split_ratings(cell.strip())
    if isinstance(cell, Iterable) and not isinstance(cell, (Mapping, bytes)):
        return [as_score(score) for score in cell]
    return [] if cell is None else [as_score(cell)]


def _split_ratings(text: str) -> list[str | None]:
    if text[:1] + text[-1:] in ("[]", "()"):
        text = text[1:-1].strip()
    if not text:
        return []
    if ";" in text or "|" in text:
        parts = [part.strip().replace(",", ".") for part in re.split("[;|]", text)]
    else:
        parts = re.split(r"\s*,\s*|\s+", text.rstrip(","))
    return [None if part.lower() in _ABSENT else part.strip("'\"") for part in parts]


def _text(cell: Any) -> str | None:
    if is_missing(cell):
        return None
    if not isinstance(cell, str):
        raise ValueError(f"is no text but {brief(cell)}")
    return cell


def _texts(cell: Any) -> list[Any] | None:
    cell = plain(_list_in(cell))
    if cell is not None and not isinstance(cell, list):
        raise ValueError("is not a list")
    return cell


def _levels(cell: Any) -> list[Any] | dict[int, str] | None:
    """Descriptions as a list of texts, or as anchors: score -> text."""
    return anchors_of(cell) if isinstance(cell, Mapping) else _texts(cell)


def _criteria(cell: Any) -> Any:
    """A text, or several criteria as `criteria_of` reads them."""
    if isinstance(cell, list | Mapping):
        criteria_of(cell)
        return cell
    return _text(cell)


def _list_in(cell: Any) -> Any:
    """A list that stands in a text, as JSON or as Python writes it; anything else as it is."""
    if isinstance(cell, str) and cell[:1] == "[" and cell.count("[") <= 1_000:
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return read(cell)
    return cell


def _pictures(cell: Any) -> list[Any] | None:
    """A cell's pictures, each as `open_image` takes it; [] for none on purpose, None if unsaid."""
    if isinstance(cell, (str, os.PathLike)):
        cell = _picture_text(os.fspath(cell))
    if isinstance(cell, tuple) or (isinstance(cell, np.ndarray) and cell.dtype.kind in "OUS"):
        cell = list(cell)
    if isinstance(cell, list) and cell and isinstance(cell[0], list):
        cell = _pixels(cell)
    if isinstance(cell, np.ndarray):
        return list(cell) if cell.ndim == 4 else [cell]
    if isinstance(cell, list):
        pictures: list[Any] = []
        for part in cell:
            read = None if is_missing(part) else _pictures(part)
            pictures += read or [part]
        return pictures
    return None if _is_no_picture(cell) else [cell]


def _is_no_picture(cell: Any) -> bool:
    """Whether a cell names no picture; ValueError where it cannot name one."""
    if isinstance(cell, Mapping):
        return cell.get("bytes") is None and is_missing(cell.get("path"))
    if is_missing(cell) or cell == "":
        return True
    if not isinstance(cell, (str, bytes, Image.Image)):
        raise ValueError(f"a picture cannot be of type {type(cell).__name__}")
    return False


def _picture_text(text: str) -> Any:
    """What a text names: a list of pictures, the bytes of a data URI, else a path."""
    cell = _list_in(text.strip())
    if isinstance(cell, str) and _BASE64.fullmatch(cell):
        cell = f"data:image;base64,{''.join(cell.split())}"
    if isinstance(cell, str) and cell.startswith("data:"):
        return {"bytes": image_bytes(cell), "path": None}
    return cell


def _pixels(cell: list[Any]) -> Any:
    """The array that Arrow made lists of; a list of anything but numbers stays."""
    try:
        array = np.asarray(cell)
    except (ValueError, OverflowError):
        return cell
    if not array.size or array.dtype.kind not in "uif":
        return cell
    if array.dtype.kind == "i" and 0 <= array.min() <= array.max() < 256:
        return array.astype(np.uint8)
    return array


_GIVE_TEXT = (_text, "give text")
_GIVE_NUMBERS = (ratings, "give numbers, or None where unknown")
_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "instruction": _GIVE_TEXT,
    "response": _GIVE_TEXT,
    "response_a": _GIVE_TEXT,
    "response_b": _GIVE_TEXT,
    "reference_answer": _GIVE_TEXT,
    "feedback": _GIVE_TEXT,
    "criteria": (_criteria, "give a text, or a list of objects with name, criteria and weight"),
    "descriptions": (_levels, "give a list of texts, or a mapping of scores to texts"),
    "responses": (_texts, "give a list of texts"),
    "human_scores": _GIVE_NUMBERS,
    "ranks": _GIVE_NUMBERS,
    "gold": (as_score, "give a number, or None where unknown"),
    "images": (_pictures, "give a path, bytes, an array or a PIL image, or a list"),
}
"""What reads the cells of a canonical column, and what to do where it cannot."""


def _unwritable(cell: Any) -> str:
    """Why a cell cannot be written to a file or read by a tokenizer; empty where it can."""
    try:
        json.dumps(cell, ensure_ascii=False, default=_kind, skipkeys=True).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        return f"holds half a character (the lone surrogate {half!r})"
    except (ValueError, RecursionError) as error:  # a number of too many digits, endless nesting
        return f"cannot be written ({error})"
    return ""


def _kind(value: Any) -> str:
    return type(value).__name__


# -- a row


def canonical_row(row: Any) -> Reading:
    """A row in canonical form, and what is wrong with it; bad cells stay as they are.

    A missing group is named after the images, by their paths or a digest of their bytes.

    >>> canonical_row({"id": "a", "image": "a.png", "human_scores": "3;4"})[0]
    {'id': 'a', 'human_scores': [3.0, 4.0], 'images': ['a.png'], 'group': 'a.png'}
    """
    if isinstance(row, (Item, Pair)):
        row = _cells_of(row)
    if not isinstance(row, Mapping):
        what = f"is a {type(row).__name__}"
        return {}, [("row", what, "write one object with named columns for each row")]
    faults = list[Fault]()
    try:
        row = _with_levels(row)
    except BadRow as bad:
        faults += bad.args
    cells: Cells = {}
    pictured: Cells = {}  # the pictures by column
    for name, column in columns_of(tuple(row)).items():
        cell, fault = _read_cell(str(name), column, row[name])
        if fault:
            faults.append(fault)
        if column == "images":
            pictured[str(name)] = [] if fault else cell
        else:
            cells[name] = cell
    if not faults:
        _flatten_rubric(cells)
    if pictured:
        faults += _add_pictures(cells, pictured)
    return cells, faults


def _cells_of(item: Item | Pair) -> Cells:
    cells = {name: cell for name, cell in vars(item).items() if cell not in ("", None)}
    rubric = cells.pop("rubric", None)
    return cells | rubric.as_row() if rubric else cells


def _with_levels(row: Row) -> Row:
    """A row whose descriptions may stand in a column for each level."""
    if not is_missing(row.get("descriptions")):
        return row
    # A table's rows may have fewer levels than its columns.
    filled = {name: cell for name, cell in row.items() if plain(cell) not in (None, "")}
    levels = levels_of(filled)
    if not levels:
        return row
    return {name: row[name] for name in row if not LEVEL.fullmatch(str(name))} | levels


def levels_of(row: Row) -> Cells:
    """`descriptions`, and `lowest` where that is not 1, from a column for each level."""
    levels = {}
    for name in row:
        match = LEVEL.fullmatch(str(name))
        if match:
            levels[int(match[1])] = row[name]
    scores = sorted(levels)
    if not scores:
        return {}
    lowest = scores[0]
    if scores != list(range(lowest, lowest + len(scores))):
        raise BadRow(("descriptions", f"the levels are for scores {scores}", "leave no score out"))
    cells: Cells = {"descriptions": [levels[score] for score in scores]}
    return cells if lowest == 1 else cells | {"lowest": lowest}


def _read_cell(name: str, column: str, cell: Any) -> tuple[Any, Fault | None]:
    """A cell as its canonical column holds it, or as it is with what is wrong with it."""
    what = _unwritable(cell)
    if what:
        return cell, (name, what, "repair it")
    if column not in _READERS:
        return cell, None
    read, remedy = _READERS[column]
    try:
        return read(cell), None
    except (ValueError, TypeError) as error:
        return cell, (name, str(error), remedy)


def _flatten_rubric(cells: Cells) -> None:
    """Write anchors and named criteria into columns of one type, as a `datasets.Dataset` needs."""
    levels = cells.get("descriptions")
    if isinstance(levels, dict):
        cells["descriptions"] = list(levels.values())
        cells["anchors"] = list(levels)
    criteria = cells.get("criteria")
    if isinstance(criteria, list | Mapping):
        cells["criteria"], named = criteria_of(criteria)
        cells["named_criteria"] = [one.as_cells() for one in named]


def _add_pictures(cells: Cells, pictured: Cells) -> list[Fault]:
    """Put the pictures, and the group that they name, into a row's cells."""
    given = {name: pictures for name, pictures in pictured.items() if pictures}
    pictures: list[Any] | None = None
    faults = []
    for name, others in (given or pictured).items():
        if not pictures:
            pictures = pictures if others is None else others
        elif len(others) != len(pictures) or not all(map(_same, pictures, others)):
            what = f"this row's columns `{next(iter(given))}` and `{name}` name different pictures"
            faults.append(("images", what, "keep one of the columns"))
    cells["images"] = pictures
    if is_missing(cells.get("group")) or cells["group"] == "":
        keys = [_key(picture) for picture in pictures or ()]
        if any(keys):
            cells["group"] = " ".join(filter(None, keys))
    return faults


def _same(one: Any, other: Any) -> bool:
    """Whether two pictures are the same, as far as paths and bytes tell.

    Beside bytes the last part of a path counts.
    """
    held = any(isinstance(picture, Mapping) and picture.get("bytes") for picture in (one, other))
    name = _file_name(one)
    return _key(one) == _key(other) or (held and name == _file_name(other) != "")


def _file_name(picture: Any) -> str:
    path = picture.get("path") if isinstance(picture, Mapping) else picture
    return Path(path).name if isinstance(path, str) else ""


def _key(picture: Any) -> str:
    """What rows of one image share: its path as written, else a digest of file or pixels."""
    data = getattr(picture, "filename", None) or picture  # of an image that Pillow opened
    if isinstance(data, Mapping):
        data = data.get("path") if data.get("bytes") is None else data["bytes"]
    if isinstance(data, (Image.Image, np.ndarray)):
        try:
            return Picture(data).key[-16:]
        except ImageError:  # who opens it names what is wrong with it
            return ""
    return hashlib.sha256(data).hexdigest()[:16] if isinstance(data, bytes) else str(data or "")


# -- many rows


class Rows(Sequence[Row]):
    """Canonical rows, read when asked for, images undecoded, numbered where none has an id.

    Raises:
        CollectionError: when read, a row that cannot be canonical; all such rows are named.
    """

    def __init__(self, source: datasets.Dataset | list[Any]) -> None:
        if isinstance(source, datasets.Dataset):
            names = source.column_names
            source = with_image(source).with_format("arrow")
        else:
            rows = [vars(row) if isinstance(row, (Item, Pair)) else row for row in source]
            mappings = [row for row in rows if isinstance(row, Mapping)]
            names = itertools.chain.from_iterable(mappings)
        self._source = source
        self.columns = tuple(dict.fromkeys(map(str, names)))

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        place = range(len(self))[index]
        if isinstance(place, range):
            return [self[each] for each in place]
        row, faults = next(self.reads(place, place + 1))
        return self._sound(row, faults)

    def __iter__(self) -> Iterator[Row]:
        for row, faults in self.reads():
            yield self._sound(row, faults)

    def reads(self, start: int = 0, stop: int | None = None) -> Iterator[Reading]:
        """Every row and its faults, as `canonical_row` gives them."""
        stop = len(self) if stop is None else stop
        for first in range(start, stop, BLOCK):
            block = self._source[first : min(first + BLOCK, stop)]
            rows = block if isinstance(block, list) else block.to_pylist()
            for index, row in enumerate(rows, first):
                cells, faults = canonical_row(row)
                if "id" not in self.columns:
                    cells = {"id": str(index)} | cells
                yield cells, faults

    def _sound(self, row: Cells, faults: list[Fault]) -> Cells:
        if not faults:
            return row
        problems = []
        for place, (bad, wrong) in enumerate(self.reads()):
            problems += [Problem(place, id_of(bad), *fault) for fault in wrong]
        raise CollectionError.of_rows(problems, len(self))


def with_image(table: datasets.Dataset) -> datasets.Dataset:
    """A data set whose only pictures stand in `image`, where no column has a name of pictures."""
    typed = [name for name, kind in table.features.items() if isinstance(kind, datasets.Image)]
    if len(typed) == 1 and "images" not in columns_of(tuple(table.column_names)).values():
        return table.rename_column(typed[0], "image")
    return table


def frame_rows(frame: pd.DataFrame) -> list[Cells]:
    """The rows of a frame, whose ids may stand in its index."""
    if "id" in frame.index.names and "id" not in frame.columns:
        frame = frame.reset_index("id")
    check_names(map(str, frame.columns), "the frame")
    return frame.to_dict("records")
