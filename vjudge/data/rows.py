"""How anybody's row becomes canonical, cell by cell, and what keeps it from being so."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import datasets
import numpy as np
import pandas as pd
from PIL import Image

from vjudge.data.schema import (
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
from vjudge.records import NAN, Item, Pair, anchors_of, as_score, brief, criteria_of, is_missing

BLOCK = 32  # rows of a data set that stand in memory with their pictures
# A JPEG, PNG, GIF or WebP file in base64, by its first bytes, as VLMEvalKit's tables hold it.
_BASE64 = re.compile(r"(?:/9j/|iVBORw0KGgo|R0lGOD|UklGR)[A-Za-z0-9+/\s]{60,}={0,2}\s*")
_ABSENT = ("none", "nan", "na", "n/a")  # how a rater's missing score is written

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
        text = re.sub(r"[\[\]()'\"]", "", cell).strip(" ,")
        if re.search("[;|]", text):
            cell = re.split("[;|]", text.replace(",", "."))
        else:
            cell = re.split(r"[\s,]+", text) if text else []
    if cell is None:
        return []
    scores = cell if isinstance(cell, list) else [cell]
    return [NAN if str(score).strip().lower() in _ABSENT else as_score(score) for score in scores]


def _name(cell: Any) -> str | None:
    return None if is_missing(cell) else str(cell)


def _text(cell: Any) -> str | None:
    if is_missing(cell):
        return None
    if not isinstance(cell, str):
        raise ValueError(f"is no text but {brief(cell)}")
    return cell if cell.strip() else None


def _texts(cell: Any) -> Any:
    cell = plain(_list_in(cell))
    if cell is not None and not isinstance(cell, list):
        raise ValueError("is not a list")
    return cell


def _levels(cell: Any) -> Any:
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
    if isinstance(cell, str) and cell[:1] == "[":
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return read(cell)
    return cell


def _pictures(cell: Any) -> list[Any] | None:
    """A cell's pictures, each as `open_image` takes it; [] for none on purpose, None if unsaid."""
    if isinstance(cell, (str, os.PathLike)):
        cell = _picture_text(os.fspath(cell).strip())
    if isinstance(cell, list) and cell and isinstance(cell[0], list):
        with suppress(ValueError):  # of unequal lengths: no pixels
            cell = _pixels(np.asarray(cell))
    if isinstance(cell, np.ndarray) and cell.dtype.kind in "OUS":
        cell = cell.tolist()
    if isinstance(cell, np.ndarray):
        return list(cell) if cell.ndim == 4 else [cell]
    if isinstance(cell, list | tuple):
        pictures: list[Any] = []
        for part in cell:
            pictures += _pictures(part) or [part]
        return pictures
    if isinstance(cell, Mapping):
        named = cell.get("bytes") is not None or not is_missing(cell.get("path"))
        return [cell] if named else None
    if is_missing(cell) or cell == "":
        return None
    if not isinstance(cell, (str, bytes, Image.Image)):
        raise ValueError(f"a picture cannot be of type {type(cell).__name__}")
    return [cell]


def _picture_text(text: str) -> Any:
    """What a text names: a list of pictures, the bytes of a data URI, else a path."""
    if _BASE64.fullmatch(text):
        text = f"data:image;base64,{''.join(text.split())}"
    if text.startswith("data:"):
        return {"bytes": image_bytes(text), "path": None}
    return _list_in(text)


def _pixels(array: np.ndarray) -> np.ndarray:
    """Pixels that Arrow made lists of, in 8 bits where they fit."""
    if array.dtype.kind == "i" and 0 <= array.min() <= array.max() < 256:
        return array.astype(np.uint8)
    return array


_READERS: dict[str, Callable[[Any], Any]] = {
    "id": _name,
    "group": _name,
    "instruction": _text,
    "response": _text,
    "response_a": _text,
    "response_b": _text,
    "reference_answer": _text,
    "feedback": _text,
    "criteria": _criteria,
    "descriptions": _levels,
    "responses": _texts,
    "human_scores": ratings,
    "ranks": ratings,
    "gold": as_score,
    "images": _pictures,
}
"""What reads the cells of a canonical column."""


# -- a row


def canonical_row(row: Any) -> Reading:
    """A row in canonical form, and what is wrong with it; bad cells stay as they are.

    A missing group is named after the images, by their paths or a digest of their bytes.

    >>> canonical_row({"id": "a", "image": "a.png", "human_scores": "3;4"})[0]
    {'id': 'a', 'human_scores': [3.0, 4.0], 'images': ['a.png'], 'group': 'a.png'}
    """
    if not isinstance(row, Mapping):
        what = f"is a {type(row).__name__}"
        return {}, [("row", what, "write one object with named columns for each row")]
    faults = list[Fault]()
    cells: Cells = {}
    pictured: Cells = {}  # the pictures by column
    for name, column in columns_of(tuple(row)).items():
        cell = row[name]
        try:
            # What cannot be written to a file, such as half a character, is no text either.
            json.dumps(cell, ensure_ascii=False, default=lambda _: None, skipkeys=True).encode()
            if column in _READERS:
                cell = _READERS[column](cell)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            faults.append((str(name), str(error), "correct it or leave the row out"))
        if column == "images":
            pictured[str(name)] = cell
        else:
            cells[name] = cell
    if not faults:
        _flatten_rubric(cells)
        if pictured:
            faults = _add_pictures(cells, pictured)
    return cells, faults


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
    said = {name: found for name, found in pictured.items() if found is not None}
    given = {name: found for name, found in said.items() if found}
    pictures: Any = next(iter((given or said).values()), None)
    faults = []
    for name, found in given.items():
        if len(found) != len(pictures) or any(map(_differ, pictures, found)):
            what = f"this row's columns `{next(iter(given))}` and `{name}` name different pictures"
            faults.append(("images", what, "keep one of the columns"))
    cells["images"] = pictures
    if not cells.get("group"):
        keys = [_key(picture) for picture in pictures or ()]
        cells["group"] = " ".join(filter(None, keys)) or None
    return faults


def _differ(one: Any, other: Any) -> bool:
    """Whether two pictures differ, as far as two paths or two files tell."""
    return isinstance(one, str) == isinstance(other, str) and _key(one) != _key(other)


def _key(picture: Any) -> str:
    """What rows of one image share: its path as written, else a digest of file or pixels."""
    data = getattr(picture, "filename", None) or picture  # of an image that Pillow opened
    if isinstance(data, Mapping):
        data = data.get("bytes") or data.get("path")
    if isinstance(data, str):
        return data
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()[:16]
    with suppress(ImageError):  # who opens it names what is wrong with it
        return Picture(data).key[-16:]
    return ""


# -- many rows


class Rows(Sequence[Row]):
    """Canonical rows, read when asked for, images undecoded, numbered where none has an id.

    Raises:
        CollectionError: when read, a row that cannot be canonical.
    """

    def __init__(self, source: datasets.Dataset | list[Any]) -> None:
        if isinstance(source, datasets.Dataset):
            source = with_image(source).with_format("arrow")
            names = source.column_names
        else:
            names = itertools.chain.from_iterable(row for row in source if isinstance(row, Mapping))
        self._source = source
        self.columns = tuple(dict.fromkeys(map(str, names)))

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        place = range(len(self))[index]
        return next(self._sound(place, place + 1))

    def __iter__(self) -> Iterator[Row]:
        return self._sound(0, len(self))

    def as_given(self, start: int, stop: int) -> Iterator[Any]:
        """The rows as they were given, a block of a data set at a time."""
        for first in range(start, stop, BLOCK):
            block = self._source[first : min(first + BLOCK, stop)]
            yield from block if isinstance(block, list) else block.to_pylist()

    def reads(self, start: int = 0, stop: int | None = None) -> Iterator[Reading]:
        """Every row and its faults, as `canonical_row` gives them."""
        rows = self.as_given(start, len(self) if stop is None else stop)
        for index, row in enumerate(rows, start):
            cells, faults = canonical_row(row)
            if "id" not in self.columns:
                cells = {"id": str(index)} | cells
            yield cells, faults

    def _sound(self, start: int, stop: int) -> Iterator[Row]:
        for index, (row, faults) in enumerate(self.reads(start, stop), start):
            if faults:
                problems = [Problem(index, id_of(row), *fault) for fault in faults]
                raise CollectionError.of_rows(problems, len(self))
            yield row


def cells_of(row: Any) -> Any:
    """An `Item` or a `Pair` as a row; anything else as it is."""
    if not isinstance(row, (Item, Pair)):
        return row
    cells = {name: cell for name, cell in vars(row).items() if cell not in ("", None)}
    rubric = cells.pop("rubric", None)
    return cells | rubric.as_row() if rubric else cells


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
    check_names(list(frame.columns), "the frame")
    return frame.to_dict("records")
