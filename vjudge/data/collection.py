"""Rows of any shape become a data set with the canonical columns."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa  # type: ignore[import-untyped]
from datasets import Dataset
from pandas import DataFrame

from vjudge.data.adapters import Adapter, adapter_of
from vjudge.data.exports import is_export, plain_rows
from vjudge.data.files import METADATA, Table
from vjudge.data.layout import Layout
from vjudge.data.notes import warn
from vjudge.data.paths import missing_files, resolve_paths
from vjudge.data.rows import CheckedRow, Rows, canonical_row, cells_of, frame_rows
from vjudge.data.schema import (
    CollectionError,
    Items,
    RowFaults,
    features_of,
    has_own_texts,
    id_of,
    problems_of,
)
from vjudge.records import NAN, Item, Pair

_EMPTY = {"human_scores": [], "ranks": [], "gold": NAN}  # what these columns hold in place of None
# Where the images of a published set may be, relative to its file's folder. The first file that
# exists is taken.
_SUBFOLDERS = ". images image val2014 data .. ../image".split()


def as_rows(items: Any, columns: Mapping | None = None, people: Sequence | None = None) -> Rows:
    """Bring a table, or rows of any shape, into canonical rows; see `vjudge.data.rows_of`."""
    if isinstance(items, Rows):
        return items
    if isinstance(items, Dataset):
        if not is_export(items.features):
            return Rows(items, columns, people)
        items = items.with_format("arrow")[:].to_pylist()
    if isinstance(items, DataFrame):
        items = frame_rows(items)
    if isinstance(items, (Item, Pair)) or _is_row(items):
        items = [items]
    if not isinstance(items, Iterable) or isinstance(items, (bytes, Mapping)):
        raise CollectionError(
            f"a collection cannot be a {type(items).__name__}; give a Dataset (one split of a"
            " DatasetDict), a DataFrame, a list of rows or Items, or a file's path"
        )
    if not isinstance(items, Table):
        items = list(map(cells_of, items))
    if len(items) and is_export(items[0]):
        items = plain_rows(items)
    return Rows(items, columns, people)


def _is_row(items: object) -> bool:
    """Tell whether a mapping is one row, and not a table by columns.

    A cell of a row may be a text; in a table every value is a list.
    """
    return isinstance(items, Mapping) and any(isinstance(cell, str) for cell in items.values())


def make_collection(
    rows: Items,
    folder: Path | None = None,
    *,
    columns: Mapping | None = None,
    people: Sequence | None = None,
    limit: int | None = None,
    adapter: Adapter | None = None,
    schema: str | None = None,
    names: Sequence[str] = (),
    needed: Collection[str] = (),
) -> Dataset:
    """Bring rows into a data set of the canonical columns.

    A data set with these columns and types is returned as it is.

    Args:
        rows: a table or rows.
        folder: of the file that the rows come from; relative image paths start there.
        columns, people, limit, schema: as for `load_collection`.
        adapter: the published set that the rows belong to; None finds it by `schema`, else by the
            columns.
        names: of split, file and folder; they tell published sets with equal columns apart.
        needed: "instruction" and "response" as far as rows must have them. The user's own rows
            are refused that lack such a text or an image file.

    Raises:
        CollectionError: every bad row of the user's own collection. Bad rows of a published set
            are kept, with the reason in `fault`, unless all are bad.
    """
    # 1) a data set that already has the canonical columns needs nothing but its limit
    if isinstance(rows, Dataset):
        rows = rows.select(range(len(rows))[:limit])
        is_canonical = features_of(rows.column_names).items() <= rows.features.items()
        if is_canonical and not columns and not people:
            return rows

    # 2) the layout of the columns, and the published set that they belong to
    # names[1] is the stem of the file: metadata.csv is the table of a folder of images, in which
    # the datasets library looks for the column "file_name".
    if names[1:2] == [METADATA]:
        columns = {"file_name": "image"} | dict(columns or {})
    source = as_rows(rows, columns, people)
    adapter = adapter or adapter_of(source.columns, names, schema)

    # 3) the rows; a bad one is replaced by its id and the reason
    table: list[dict] = []
    problems = []
    n_bad = 0
    for cells, faults in _read(source, range(len(source))[:limit], adapter, folder, needed):
        if faults:
            n_bad += 1
            problems += problems_of(len(table), cells["id"], faults)
            reason = "; ".join(f"{field}: {reason}" for field, reason, _ in faults)
            cells = {"id": cells["id"], "fault": reason}
        cells["group"] = cells.get("group") or cells["id"]
        table.append(cells)
    if n_bad and (adapter is None or n_bad == len(table)):
        raise CollectionError.of_rows(problems, len(table))

    # 4) the data set
    items = _dataset(table)
    if adapter is None:
        return items
    return _described(items, adapter, table)


def _read(
    source: Rows,
    indices: range,
    adapter: Adapter | None,
    folder: Path | None,
    needed: Collection[str],
) -> Iterator[CheckedRow]:
    """Yield each row in canonical form, with an id and resolved image paths, and its faults.

    Warns where images of the user's own collection are outside of its folder.

    Args:
        source: the rows.
        indices: of the rows to read.
        adapter: the published set that the rows belong to; None for the user's own rows.
        folder, needed: as for `make_collection`.
    """
    subfolders = _SUBFOLDERS if adapter else ["."]
    outside: list[str] = []  # image files
    ids = Counter[str]()
    for index, row in zip(indices, source.arranged(indices), strict=True):
        if adapter:
            cells, faults = adapter.read(row)
        else:
            cells, faults = canonical_row(row, source.decimal)
        if folder is not None and not faults:
            faults, files = resolve_paths(cells, folder, subfolders)
            outside += files
        # Check the user's own rows. In a published set a repeated id gets a number: "7", "7#2".
        id = id_of(cells) or str(index)
        ids[id] += 1
        if needed and not adapter and not faults:
            faults = _missing(cells, source.layout, needed) + missing_files(cells)
            if ids[id] > 1:
                faults.append(("id", "stands twice", source.layout.id_remedy))
        elif adapter and ids[id] > 1:
            id = f"{id}#{ids[id]}"
        yield cells | {"id": id}, faults
    if outside and not adapter:
        where = f"outside of the folder {str(folder)!r}, such as {outside[0]!r}"
        warn(f"{len(outside)} pictures stand {where}: see that they are the right ones")


def _missing(row: Mapping, layout: Layout, needed: Collection[str]) -> RowFaults:
    """List the needed texts that a row lacks; none for a training row (`prompt` and `target`)."""
    if has_own_texts(row):
        return []
    # "response_a" and "response_b" count as "response".
    faults = layout.missing_texts(row)  # (column, reason, remedy) each
    return [fault for fault in faults if fault[0].partition("_")[0] in needed]


def _dataset(table: list[dict]) -> Dataset:
    """Make a data set: canonical columns first, then further ones, as text where types mix.

    Each column is made by itself, so that a column of mixed types does not spoil the others.
    """
    names = dict.fromkeys(itertools.chain.from_iterable(table))
    canonical = features_of(names)
    columns = []
    for name in canonical | names:  # in this order, each once
        values = [cells.get(name) for cells in table]
        values = [_EMPTY.get(name) if cell is None else cell for cell in values]
        features = datasets.Features({name: canonical[name]}) if name in canonical else None
        try:
            columns.append(Dataset.from_dict({name: values}, features))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            texts = [None if cell is None else str(cell) for cell in values]
            columns.append(Dataset.from_dict({name: texts}))
    return datasets.concatenate_datasets(columns, axis=1)


def _described(items: Dataset, adapter: Adapter, table: list[dict]) -> Dataset:
    """Record which published set a data set is, and warn of its unreadable rows with a count.

    Args:
        items: the data set, which is changed and returned.
        adapter: the published set.
        table: the rows of `items`; an unreadable one has the reason in `fault`.
    """
    reasons = Counter(cells["fault"] for cells in table if cells.get("fault"))
    if reasons:
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.items())
        warn(
            f"{adapter.name}: {reasons.total()} of {len(table)} rows could not be read and are kept"
            f" with the reason in `fault`: {listed}"
        )
    return record_origin(items, schema=adapter.name, benchmark=adapter.benchmark)


# -- the origin, as JSON in the data set's description


def origin(items: Items) -> dict:
    """Return where a collection comes from, as `load_collection` recorded it.

    Returns:
        source, split, revision and commit; schema and benchmark of a published set. Empty where
        nothing is recorded.
    """
    if not isinstance(items, Dataset):
        return {}
    with suppress(ValueError):  # a description that vjudge did not write is no JSON
        return json.loads(items.info.description)
    return {}


def record_origin(items: Dataset, **facts: str | None) -> Dataset:
    """Add facts to the recorded origin of a collection, and return it."""
    items.info.description = json.dumps(origin(items) | facts)
    return items
