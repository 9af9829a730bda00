"""How anybody's rows become canonical, and what keeps one from being so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import datasets
from datasets import Dataset
from pandas import DataFrame

from vjudge.data.cells import CELL_READERS, NUMBER_READERS
from vjudge.data.layout import Layout, are_alike, layout_of, note, raters_of
from vjudge.data.schema import CollectionError, check_names, columns_of, id_of, problems_of, spelled
from vjudge.images import ImageError, Picture
from vjudge.records import RESPONSE_IMAGES, Item, Pair, criteria_of, row_levels

RUBRIC_COLUMNS = ("descriptions", "anchors", "lowest")
BLOCK = 32  # rows of a data set that stand in memory with their pictures

CheckedRow = tuple  # a canonical row, and its faults: field, what is wrong, remedy


# -- a row


def canonical_row(row: object, decimal: str | None = None) -> CheckedRow:
    """A row in canonical form, and what is wrong with it; bad cells stay as they are.

    A missing group is named after the images, by their paths or a digest of their bytes. `decimal`
    is the sign of the row's file, see `vjudge.data.cells.number`.

    >>> canonical_row({"id": "a", "image": "a.png", "human_scores": "3;4"})[0]
    {'id': 'a', 'human_scores': [3.0, 4.0], 'images': ['a.png'], 'group': 'a.png'}
    """
    if not isinstance(row, Mapping):
        reason = f"is a {type(row).__name__}"
        return {}, [("row", reason, "write one object with named columns for each row")]
    faults = []
    cells = {}
    pictured = {}  # the pictures by column
    for name, column in columns_of(tuple(row)).items():
        cell = row[name]
        try:
            # What cannot be written to a file, such as half a character, is no text either.
            json.dumps(cell, ensure_ascii=False, default=lambda _: None, skipkeys=True).encode()
            if column in CELL_READERS:
                cell = CELL_READERS[column](cell)
            elif column in NUMBER_READERS:
                cell = NUMBER_READERS[column](cell, decimal)
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
        cells["named_criteria"] = [criterion.as_cells() for criterion in named]


def _add_pictures(cells: dict, pictured: Mapping) -> list:
    """Put the pictures, and the group that they name, into a row's cells."""
    faults = []
    filled = None  # the column whose pictures are taken
    cells["images"] = None
    for name, sources in pictured.items():
        if sources and filled is None:
            filled = name
            cells["images"] = sources
        elif sources and not _alike(cells["images"], sources):
            reason = f"this row's columns `{filled}` and `{name}` name different pictures"
            faults.append(("images", reason, "keep one of the columns"))
        elif sources == []:  # none on purpose
            cells["images"] = cells["images"] or []
    if not cells.get("group"):
        cells["group"] = " ".join(filter(None, map(_key, cells["images"] or ()))) or None
    return faults


def _alike(sources: list, other_sources: list) -> bool:
    """Whether two columns may name the same pictures, as far as two paths or two files tell."""
    if len(sources) != len(other_sources):
        return False
    for picture, same in zip(sources, other_sources, strict=True):
        if isinstance(picture, str) == isinstance(same, str) and _key(picture) != _key(same):
            return False
    return True


def _key(picture: object) -> str:
    """What rows of one image share: its path as written, else a digest of file or pixels."""
    data = getattr(picture, "filename", None) or picture  # of an image that Pillow opened
    if isinstance(data, Mapping):
        data = data.get("bytes") or data.get("path")
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()[:16]
    with suppress(ImageError):  # who opens it names what is wrong with it
        return data if isinstance(data, str) else Picture(data).key[-16:]
    return ""


def off_scale(row: Mapping, name: str) -> list:
    """The scores in a column of a canonical row that its rubric does not have."""
    levels = row_levels(row)
    cell = row.get(name)
    scores = set(cell if isinstance(cell, list) else [cell]) - {None}
    if not levels:
        return []
    return sorted(score for score in scores if score < min(levels) or score > max(levels))


# -- many rows


class Rows(Sequence):
    """Canonical rows, read when asked for, images undecoded, numbered where none has an id.

    Args:
        source: a data set, or a list of rows; a file's knows its decimal sign.
        columns, people: as for `vjudge.data.load_collection`.

    Raises:
        CollectionError: `columns` or `people` name no column; when read, a row that cannot be
            canonical.
    """

    def __init__(
        self, source: Dataset | list, columns: Mapping | None = None, people: Sequence | None = None
    ) -> None:
        if isinstance(source, Dataset):
            source = with_image(source, columns or ()).with_format("arrow")
            names = source.column_names
        else:
            names = []
            for row in source:
                if isinstance(row, Mapping):
                    names += row
        self._source = source
        self.decimal = getattr(source, "decimal", None)
        names = list(dict.fromkeys(names))
        self.layout = layout_of(names, self._column, columns, people)
        if people is None:
            self._read_raters(raters_of(self.layout))
        self.columns = self.layout.columns

    def _column(self, name: object) -> list:
        """The cells of a column as they were given."""
        if isinstance(self._source, Dataset):
            return self._source.select_columns([name])[:].column(0).to_pylist()
        return [row.get(name) if isinstance(row, Mapping) else None for row in self._source]

    def _read_raters(self, raters: Sequence) -> None:
        """Take columns for people's scores where all of them are on the scale, and say so."""
        if not raters:
            return
        old = self.layout
        rated = Layout(old.names | dict.fromkeys(raters), raters, old.levels)
        listed = ", ".join(map(str, raters))
        if are_alike(raters) and self._hold_scores(rated):
            self.layout = rated
            note(f"people's scores are read from {listed}; people=[...] names others")
        else:
            reason = "they are not named alike, or not all are numbers on the scale"
            note(f"{listed}: not read as people's scores: {reason}; people=[...] names who rated")

    def _hold_scores(self, layout: Layout) -> bool:
        """Whether all raters' columns hold numbers on their rows' scales."""
        names = [*layout.people, *layout.levels]
        names += [name for name, ours in layout.names.items() if ours in RUBRIC_COLUMNS]
        for cells in zip(*map(self._column, names), strict=True):
            row = layout.arranged(dict(zip(names, cells, strict=True)))
            row, faults = canonical_row(row, self.decimal)
            if faults or off_scale(row, "human_scores"):
                return False
        return True

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        position = range(len(self))[index]
        return next(self._sound(range(position, position + 1)))

    def __iter__(self) -> Iterator:
        return self._sound(range(len(self)))

    def as_given(self, places: range) -> Iterator:
        """The rows as they were given, a block of a data set at a time."""
        for start in places[::BLOCK]:
            block = self._source[start : min(start + BLOCK, places.stop)]
            if not isinstance(block, list):
                block = block.to_pylist()
            yield from map(self.layout.arranged, block)

    def reads(self, places: range) -> Iterator:
        """The number of each row, and what `canonical_row` gives of it."""
        for index, row in zip(places, self.as_given(places), strict=True):
            cells, faults = canonical_row(row, self.decimal)
            if "id" not in self.columns:
                cells = {"id": str(index)} | cells
            yield index, cells, faults

    def _sound(self, places: range) -> Iterator:
        for index, row, faults in self.reads(places):
            if faults:
                problems = problems_of(index, id_of(row), faults)
                raise CollectionError.of_rows(problems, len(self))
            yield row


def cells_of(row: object) -> Any:
    """An `Item` or a `Pair` as a row; anything else as it is."""
    if not isinstance(row, (Item, Pair)):
        return row
    cells = {name: cell for name, cell in vars(row).items() if cell not in ("", None)}
    for name in RESPONSE_IMAGES.values():
        if not cells.get(name):
            cells.pop(name, None)
    rubric = cells.pop("rubric", None)
    return cells | rubric.as_row() if rubric else cells


def with_image(table: Dataset, named: Collection = ()) -> Dataset:
    """A data set whose only pictures stand in `image`, where no column is named as pictures are."""
    typed = []
    for name, kind in table.features.items():
        if isinstance(kind, datasets.Image) and spelled(name) not in RESPONSE_IMAGES.values():
            typed.append(name)
    unnamed = "images" not in columns_of(tuple(table.column_names)).values()
    if len(typed) == 1 and typed[0] not in named and unnamed:
        return table.rename_column(typed[0], "image")
    return table


def frame_rows(frame: DataFrame) -> list:
    """The rows of a frame, whose ids may stand in its index."""
    if "id" in frame.index.names and "id" not in frame.columns:
        frame = frame.reset_index("id")
    check_names(list(frame.columns), "the frame")
    return frame.to_dict("records")
