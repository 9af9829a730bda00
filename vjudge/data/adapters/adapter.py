"""What an adapter is: one published schema, and how a row of it becomes canonical."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vjudge.data.schema import BadRow
from vjudge.records import is_missing

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Adapter:
    """One published data set.

    Args:
        name: as its paper calls it.
        columns: what its rows must have.
        read: a row, and the part of the data set it is from, to canonical columns (those that it knows) and whatever
            else of the row is worth keeping under names of its own. A row whose label cannot be read may carry the
            reason in `fault` instead of the label. Raises `BadRow`.
        signature: the columns by which a local file is known as this data set; `columns` when empty.
        ids: its names on the Hugging Face hub; it is fetched by the name that was asked for.
        split: the hub's split to load where none is asked for.
        parts: the hub's configurations, which `split=` chooses among; the first is the default.
        settle: which part rows are of, where nothing says it.
        reads_folder: reads a folder of several files as rows; None where one table holds everything.
        marker: the file by which such a folder is known.
        image_roots: where relative image paths may count from, seen from the file's folder.
        images_apart: whether the hub's table holds paths of images that come in files of their own.
        repeats_ids: whether its ids repeat; a later one is then told apart by "#2", "#3".
        strict: whether one row that cannot be read makes the whole unreadable, as with files that users write in this
            schema themselves; otherwise it stays, empty, with the reason in `fault`.
        gated: whether the hub asks for an agreement first.
        home: where it is published, if not on the hub.
    """

    name: str
    columns: tuple[str, ...]
    read: Callable[[Row, str | None], dict[str, Any]]
    signature: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    split: str = "train"
    parts: tuple[str, ...] = ()
    settle: Callable[[Iterable[Row]], str] | None = None
    reads_folder: Callable[[Path], list[Row]] | None = None
    marker: str = ""
    image_roots: tuple[str, ...] = (".",)
    images_apart: bool = False
    repeats_ids: bool = False
    strict: bool = False
    gated: bool = False
    home: str = ""

    def fits(self, columns: Iterable[str]) -> bool:
        """Whether rows with these columns look like this data set."""
        return set(self.signature or self.columns) <= set(columns)


def texts(row: Row, names: Mapping[str, str]) -> dict[str, Any]:
    """Text cells under their canonical names.

    Args:
        names: canonical name -> column.

    Raises:
        BadRow: a text is missing, blank or no text; all of them.
    """
    bad = [name for name in names.values() if not isinstance(row.get(name), str) or not row[name].strip()]
    if bad:
        raise BadRow(*((name, "is missing or blank", "correct it or leave the row out") for name in bad))
    return {name: row[column] for name, column in names.items()}


def images(row: Row, name: str = "image") -> list[Any]:
    """The row's image in a list; none where the cell is empty."""
    value = row.get(name)
    if isinstance(value, list):
        return value
    return [] if is_missing(value) or value == "" else [value]


def rest(row: Row, *used: str) -> dict[str, Any]:
    """The row's other columns."""
    return {name: value for name, value in row.items() if name not in used}
