"""Canonical rows: how a row of any source becomes one, and what is wrong with those that cannot."""

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
from vjudge.data.layout import Layout, are_alike, layout_of, raters_of
from vjudge.data.notes import warn
from vjudge.data.schema import (
    CollectionError,
    RowFaults,
    check_names,
    columns_of,
    id_of,
    problems_of,
    spelled,
)
from vjudge.images import ImageError, Picture
from vjudge.records import RESPONSE_IMAGES, Item, Pair, criteria_of, row_levels

RUBRIC_COLUMNS = ("descriptions", "anchors", "lowest")
BLOCK = 32  # rows of a data set that are in memory at once with their images

CheckedRow = tuple[dict, RowFaults]  # a canonical row, and a list of its faults


# -- a row


def canonical_row(row: object, decimal: str | None = None) -> CheckedRow:
    """Bring a row into canonical form.

    A missing group is named after the images, by their paths or by a digest of their bytes.

    Args:
        row: a mapping; anything else is a fault.
        decimal: the decimal sign of the row's file, see `vjudge.data.cells.number`.

    Returns:
        The canonical row, in which a cell that cannot be read stays as it is, and the faults.

    >>> canonical_row({"id": "a", "image": "a.png", "human_scores": "3;4"})[0]
    {'id': 'a', 'human_scores': [3.0, 4.0], 'images': ['a.png'], 'group': 'a.png'}
    """
    if not isinstance(row, Mapping):
        reason = f"is a {type(row).__name__}"
        return {}, [("row", reason, "write one object with named columns for each row")]
    faults = []
    cells = {}
    images_by_column = {}
    for name, column in columns_of(tuple(row)).items():
        cell = row[name]
        try:
            # Refuse what cannot be written to a file as UTF-8, such as half of a surrogate pair.
            json.dumps(cell, ensure_ascii=False, default=lambda _: None, skipkeys=True).encode()
            if column in CELL_READERS:
                cell = CELL_READERS[column](cell)
            elif column in NUMBER_READERS:
                cell = NUMBER_READERS[column](cell, decimal)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            faults.append((str(name), str(error), "correct it or leave the row out"))
        if column == "images":
            images_by_column[str(name)] = cell
        else:
            cells[name] = cell
    if not faults:
        _flatten_rubric(cells)
        if images_by_column:
            faults = _add_images(cells, images_by_column)
    return cells, faults


def _flatten_rubric(cells: dict) -> None:
    """Split mixed cells into columns of one type each, as a `datasets.Dataset` needs.

    Level descriptions that are a dict score -> text become `anchors` (the scores) and
    `descriptions` (the texts); named criteria become `named_criteria`, and `criteria` one text.

    Args:
        cells: of a canonical row, changed in place.
    """
    levels = cells.get("descriptions")
    if isinstance(levels, dict):
        cells["anchors"] = list(levels)
        cells["descriptions"] = list(levels.values())
    criteria = cells.get("criteria")
    if isinstance(criteria, list | Mapping):
        cells["criteria"], named = criteria_of(criteria)
        cells["named_criteria"] = [criterion.as_cells() for criterion in named]


def _add_images(cells: dict, images_by_column: Mapping) -> RowFaults:
    """Write `images`, and a missing `group`, into a row from the columns that may hold images.

    Args:
        cells: of the row, changed in place.
        images_by_column: column -> its images, [] for none on purpose, None for a missing cell.

    Returns:
        A fault per column whose images differ from those of the first column with any.
    """
    faults = []
    chosen = None  # the first column with images
    cells["images"] = None
    for name, images in images_by_column.items():
        if images and chosen is None:
            chosen = name
            cells["images"] = images
        elif images and not _may_be_equal(cells["images"], images):
            reason = f"this row's columns `{chosen}` and `{name}` name different pictures"
            faults.append(("images", reason, "keep one of the columns"))
        elif images == []:  # on purpose without images, unlike None
            cells["images"] = cells["images"] or []
    if not cells.get("group"):
        cells["group"] = " ".join(filter(None, map(_key, cells["images"] or ()))) or None
    return faults


def _may_be_equal(images: list, others: list) -> bool:
    """Tell whether two columns may name the same images.

    Two paths are compared, and so are two images in memory. A path and an image in memory cannot
    be compared, and may be equal.
    """
    if len(images) != len(others):
        return False
    for image, counterpart in zip(images, others, strict=True):
        comparable = isinstance(image, str) == isinstance(counterpart, str)
        if comparable and _key(image) != _key(counterpart):
            return False
    return True


def _key(image: object) -> str:
    """Return what rows of one image share: its path as written, else a digest of file or pixels.

    The key is empty where the image cannot be read.
    """
    data = getattr(image, "filename", None) or image  # an image that Pillow opened has a filename
    if isinstance(data, Mapping):
        data = data.get("bytes") or data.get("path")
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()[:16]
    with suppress(ImageError):  # the code that opens it reports the error
        return data if isinstance(data, str) else Picture(data).key[-16:]
    return ""


def off_scale(row: Mapping, name: str) -> list[float]:
    """List the scores of one column that lie off the scale of the row's rubric.

    The list is sorted, and empty where the row has no rubric. A missing score, None or NaN, is
    never off the scale.

    Args:
        row: in canonical form.
        name: of a column with one score or a list of scores.
    """
    levels = row_levels(row)
    if not levels:
        return []
    cell = row.get(name)
    scores = set(cell if isinstance(cell, list) else [cell]) - {None}
    return sorted(score for score in scores if score < min(levels) or score > max(levels))


# -- many rows


class Rows(Sequence):
    """Canonical rows, each read when it is asked for, images undecoded.

    Rows without a column `id` are numbered.

    Args:
        source: a data set, or a list of rows, which may know its file's decimal sign (`Table`).
        columns, people: as for `vjudge.data.load_collection`.

    Raises:
        CollectionError: the source lacks a column that `columns` or `people` names. When a row is
            read: the row cannot be brought into canonical form.
    """

    def __init__(
        self, source: Dataset | list, columns: Mapping | None = None, people: Sequence | None = None
    ) -> None:
        # The columns' names, in order of first appearance. In the arrow format a data set does not
        # decode its images.
        if isinstance(source, Dataset):
            source = with_image(source, columns or ()).with_format("arrow")
            names = source.column_names
        else:
            names = []
            for row in source:
                if isinstance(row, Mapping):
                    names += row  # the mapping's keys
        self._source = source
        self.decimal = getattr(source, "decimal", None)
        names = list(dict.fromkeys(names))
        self.layout = layout_of(names, self._column, columns, people)
        if people is None:
            self._read_raters(raters_of(self.layout))
        self.columns = self.layout.columns

    def _column(self, name: object) -> list:
        """Return the cells of a column as the source has them."""
        if isinstance(self._source, Dataset):
            return self._source.select_columns([name])[:].column(0).to_pylist()
        return [row.get(name) if isinstance(row, Mapping) else None for row in self._source]

    def _read_raters(self, raters: Sequence) -> None:
        """Take columns as people's scores where all their cells are on the scale.

        A warning says in either case how the columns were read.

        Args:
            raters: columns that are named like raters; none for an empty list.
        """
        if not raters:
            return
        layout = self.layout
        with_raters = Layout(layout.names | dict.fromkeys(raters), raters, layout.levels)
        listed = ", ".join(map(str, raters))
        if are_alike(raters) and self._hold_scores(with_raters):
            self.layout = with_raters
            warn(f"people's scores are read from {listed}; people=[...] names others")
        else:
            reason = "they are not named alike, or not all are numbers on the scale"
            warn(f"{listed}: not read as people's scores: {reason}; people=[...] names who rated")

    def _hold_scores(self, layout: Layout) -> bool:
        """Tell whether `layout.people` all hold numbers on the scales of their rows' rubrics."""
        # Read only the columns that this takes: raters, and what makes up the scale.
        names = [*layout.people, *layout.levels]
        names += [name for name, ours in layout.names.items() if ours in RUBRIC_COLUMNS]
        for cells in zip(*map(self._column, names), strict=True):
            row = layout.arrange(dict(zip(names, cells, strict=True)))
            row, faults = canonical_row(row, self.decimal)
            if faults or off_scale(row, "human_scores"):
                return False
        return True

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        # The range resolves a negative index, and refuses one beyond the last row.
        position = range(len(self))[index]
        return next(self._valid(range(position, position + 1)))

    def __iter__(self) -> Iterator[dict]:
        return self._valid(range(len(self)))

    def arranged(self, indices: range) -> Iterator:
        """Yield the source's rows with these indices: names canonical, cells as they were given."""
        for start in indices[::BLOCK]:  # a block at a time, as images may fill the memory
            block = self._source[start : min(start + BLOCK, indices.stop)]
            if not isinstance(block, list):
                block = block.to_pylist()
            yield from map(self.layout.arrange, block)

    def checked(self, indices: range | None = None) -> Iterator[tuple[int, dict, RowFaults]]:
        """Yield each row's index, the row in canonical form, and a list of its faults.

        Args:
            indices: of the rows; None for all.
        """
        if indices is None:
            indices = range(len(self))
        for index, row in zip(indices, self.arranged(indices), strict=True):
            cells, faults = canonical_row(row, self.decimal)
            if "id" not in self.columns:
                cells = {"id": str(index)} | cells
            yield index, cells, faults

    def _valid(self, indices: range) -> Iterator[dict]:
        """Yield rows in canonical form; raise a CollectionError at the first one with a fault."""
        for index, row, faults in self.checked(indices):
            if faults:
                problems = problems_of(index, id_of(row), faults)
                raise CollectionError.of_rows(problems, len(self))
            yield row


def cells_of(row: object) -> Any:
    """Turn an `Item` or a `Pair` into a row without its empty fields; return others unchanged."""
    if not isinstance(row, (Item, Pair)):
        return row
    cells = {name: cell for name, cell in vars(row).items() if cell not in ("", None)}
    for name in RESPONSE_IMAGES.values():  # an empty tuple stands for no column
        if not cells.get(name):
            cells.pop(name, None)
    rubric = cells.pop("rubric", None)
    if rubric:
        cells |= rubric.as_row()
    return cells


def with_image(table: Dataset, named: Collection = ()) -> Dataset:
    """Rename a data set's only column of images to `image`.

    The data set is returned unchanged where one of its columns has a canonical name of images, or
    where several columns hold images.

    Args:
        table: the data set.
        named: columns for which the caller gave canonical names, which are left alone.
    """
    typed = []  # names of the columns whose type is an image
    for name, kind in table.features.items():
        if isinstance(kind, datasets.Image) and spelled(name) not in RESPONSE_IMAGES.values():
            typed.append(name)
    no_column_named = "images" not in columns_of(tuple(table.column_names)).values()
    if len(typed) == 1 and typed[0] not in named and no_column_named:
        return table.rename_column(typed[0], "image")
    return table


def frame_rows(frame: DataFrame) -> list[dict]:
    """Return the rows of a frame. Their ids may be in its index."""
    if "id" in frame.index.names and "id" not in frame.columns:
        frame = frame.reset_index("id")
    check_names(list(frame.columns), "the frame")
    return frame.to_dict("records")
