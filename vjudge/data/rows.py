"""How anybody's row becomes canonical, cell by cell, and what keeps it from being so."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import datasets
import numpy as np
from datasets import Dataset
from pandas import DataFrame
from PIL import Image

from vjudge.data.schema import (
    CollectionError,
    check_names,
    columns_of,
    id_of,
    plain,
    problems_of,
)
from vjudge.images import ImageError, Picture, image_bytes, open_image
from vjudge.records import NAN, Item, Pair, anchors_of, as_score, brief, criteria_of, is_missing

BLOCK = 32  # rows of a data set that stand in memory with their pictures
# A JPEG, PNG, GIF or WebP file in base64, by its first bytes, as VLMEvalKit's tables hold it.
_BASE64 = re.compile(r"(?:/9j/|iVBORw0KGgo|R0lGOD|UklGR)[A-Za-z0-9+/\s]{60,}={0,2}\s*")
_ABSENT = ("none", "nan", "na", "n/a")  # how a rater's missing score is written

Reading = tuple  # a canonical row, and its faults: field, what is wrong, remedy


# -- what reads a cell; ValueError or TypeError says why it cannot


def ratings(cell: Any) -> list:
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
            cell = text.replace(",", " ").split()
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
    if not isinstance(cell, str) or cell[:1] != "[":
        return cell
    with suppress(ValueError, RecursionError):
        return json.loads(cell)
    if re.search(r"(['\"])\s+\1", cell):
        raise ValueError("is a list without commas, as NumPy prints one; write it as JSON")
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.literal_eval(cell)
    return cell


def _pictures(cell: Any) -> list | None:
    """A cell's pictures, each as `open_image` takes it; [] for none on purpose, None if unsaid."""
    if isinstance(cell, (str, os.PathLike)):
        cell = _picture_text(os.fspath(cell).strip())
    if isinstance(cell, list) and cell and isinstance(cell[0], list):
        with suppress(ValueError):  # of unequal lengths: no pixels
            cell = _pixels(np.asarray(cell))
    if isinstance(cell, np.ndarray) and cell.dtype.kind in "OUS":
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        pictures: list = []
        for part in cell:
            pictures += _pictures(part) or [part]
        return pictures
    if isinstance(cell, Mapping) and cell.get("bytes") is None and is_missing(cell.get("path")):
        return None
    if is_missing(cell) or isinstance(cell, str) and not cell:
        return None
    if not isinstance(cell, (str, bytes, Mapping, np.ndarray, Image.Image)):
        raise ValueError(f"a picture cannot be of type {type(cell).__name__}")
    return [open_image(cell) if isinstance(cell, np.ndarray) else cell]


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


_TEXT_COLUMNS = ("instruction response response_a response_b reference_answer feedback").split()
_READERS: dict = {
    **dict.fromkeys(_TEXT_COLUMNS, _text),
    "id": _name,
    "group": _name,
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
    faults: list = []
    cells: dict = {}
    pictured: dict = {}  # the pictures by column
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


def _flatten_rubric(cells: dict) -> None:
    """Write anchors and named criteria into columns of one type, as a `datasets.Dataset` needs."""
    levels = cells.get("descriptions")
    if isinstance(levels, dict):
        cells["anchors"] = list(levels)
        cells["descriptions"] = list(levels.values())
    criteria = cells.get("criteria")
    if isinstance(criteria, list | Mapping):
        cells["criteria"], named = criteria_of(criteria)
        cells["named_criteria"] = [one.as_cells() for one in named]


def _add_pictures(cells: dict, pictured: Mapping) -> list:
    """Put the pictures, and the group that they name, into a row's cells."""
    faults = []
    first = None
    cells["images"] = None
    for name, found in pictured.items():
        if found and first is None:
            first = name
            cells["images"] = found
        elif found and not _alike(cells["images"], found):
            what = f"this row's columns `{first}` and `{name}` name different pictures"
            faults.append(("images", what, "keep one of the columns"))
        elif found == []:  # none on purpose
            cells["images"] = cells["images"] or []
    if not cells.get("group"):
        cells["group"] = " ".join(filter(None, map(_key, cells["images"] or ()))) or None
    return faults


def _alike(some: list, others: list) -> bool:
    """Whether two columns may name the same pictures, as far as two paths or two files tell."""
    if len(some) != len(others):
        return False
    for one, other in zip(some, others, strict=True):
        if isinstance(one, str) == isinstance(other, str) and _key(one) != _key(other):
            return False
    return True


def _key(picture: Any) -> str:
    """What rows of one image share: its path as written, else a digest of file or pixels."""
    data = getattr(picture, "filename", None) or picture  # of an image that Pillow opened
    if isinstance(data, Mapping):
        data = data.get("bytes") or data.get("path")
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()[:16]
    with suppress(ImageError):  # who opens it names what is wrong with it
        return data if isinstance(data, str) else Picture(data).key[-16:]
    return ""


# -- many rows


class Rows(Sequence):
    """Canonical rows, read when asked for, images undecoded, numbered where none has an id.

    Raises:
        CollectionError: when read, a row that cannot be canonical.
    """

    def __init__(self, source: Dataset | list) -> None:
        if isinstance(source, Dataset):
            source = with_image(source).with_format("arrow")
            names = source.column_names
        else:
            names = []
            for row in source:
                if isinstance(row, Mapping):
                    names += row
        self._source = source
        self.columns = tuple(dict.fromkeys(map(str, names)))

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        place = range(len(self))[index]
        return next(self._sound(range(place, place + 1)))

    def __iter__(self) -> Iterator:
        return self._sound(range(len(self)))

    def as_given(self, places: range) -> Iterator:
        """The rows as they were given, a block of a data set at a time."""
        for first in places[::BLOCK]:
            block = self._source[first : min(first + BLOCK, places.stop)]
            if not isinstance(block, list):
                block = block.to_pylist()
            yield from block

    def reads(self, places: range) -> Iterator:
        """The number of each row, and what `canonical_row` gives of it."""
        for index, row in zip(places, self.as_given(places), strict=True):
            cells, faults = canonical_row(row)
            if "id" not in self.columns:
                cells = {"id": str(index)} | cells
            yield index, cells, faults

    def _sound(self, places: range) -> Iterator:
        for index, row, faults in self.reads(places):
            if faults:
                problems = problems_of(index, id_of(row), faults)
                raise CollectionError.of_rows(problems, len(self))
            yield row


def cells_of(row: Any) -> Any:
    """An `Item` or a `Pair` as a row; anything else as it is."""
    if not isinstance(row, (Item, Pair)):
        return row
    cells = {name: cell for name, cell in vars(row).items() if cell not in ("", None)}
    rubric = cells.pop("rubric", None)
    return cells | rubric.as_row() if rubric else cells


def with_image(table: Dataset) -> Dataset:
    """A data set whose only pictures stand in `image`, where no column has a name of pictures."""
    typed = [name for name, kind in table.features.items() if isinstance(kind, datasets.Image)]
    if len(typed) == 1 and "images" not in columns_of(tuple(table.column_names)).values():
        return table.rename_column(typed[0], "image")
    return table


def frame_rows(frame: DataFrame) -> list:
    """The rows of a frame, whose ids may stand in its index."""
    if "id" in frame.index.names and "id" not in frame.columns:
        frame = frame.reset_index("id")
    check_names(list(frame.columns), "the frame")
    return frame.to_dict("records")
