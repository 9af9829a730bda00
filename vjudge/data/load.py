"""Where collections come from: names, files, folders, the hub; and `rows_of` for anybody's rows."""

from __future__ import annotations

import itertools
import json
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa  # type: ignore[import-untyped]
from datasets import Dataset
from pandas import DataFrame

from vjudge.data import photos, scenes
from vjudge.data.adapters import ADAPTERS, Adapter, adapter_of
from vjudge.data.exports import is_export, plain_rows
from vjudge.data.files import METADATA, SUFFIXES, Table, chosen, rows_of_file, splits_of
from vjudge.data.layout import Layout
from vjudge.data.rows import Rows, canonical_row, cells_of, frame_rows
from vjudge.data.schema import (
    PICTURE_COLUMNS,
    CollectionError,
    Items,
    features_of,
    id_of,
    problems_of,
)
from vjudge.records import NAN, Item, Pair, is_int_at_least, text_of

_EMPTY = {"human_scores": [], "ranks": [], "gold": NAN}  # in place of None
# Where a published set's pictures may stand, seen from its file's folder; the first one that is
# there is taken.
_FOLDERS = ". images image val2014 data .. ../image".split()


def rows_of(
    items: Items, *, columns: Mapping | None = None, people: Sequence | None = None
) -> Rows:
    """Bring whatever a person gives into canonical rows: every entrance of the package reads here.

    Args:
        items: a `datasets.Dataset`, a DataFrame, a list of rows, `Item`s or `Pair`s, one of these
            alone, or a name or a path that `load_collection` takes. Pictures may stand in any of
            `vjudge.records.IMAGE_COLUMNS`: each a path, bytes, an array, a PIL image, the {"bytes",
            "path"} dict of the datasets library or a data URI, one or a list.
        columns, people: as for `load_collection`.

    Returns:
        The rows, read as they are asked for, images undecoded.

    Raises:
        CollectionError: not a collection; when it is read, a row that cannot be canonical.

    >>> row = {"id": 1, "image_path": "a.png", "instruction": "What is it?", "response": "A cat."}
    >>> rows_of([row])[0]["images"]
    ['a.png']
    """
    if isinstance(items, (str, Path)):
        return Rows(load_collection(items, columns=columns, people=people))
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
    """Whether a mapping is one row, which holds a text, and no table by its columns."""
    return isinstance(items, Mapping) and any(isinstance(cell, str) for cell in items.values())


def check_pictures(items: Items) -> None:
    """Refuse rows among which no column names a picture, for a model that looks at pictures.

    A response's pictures are some.

    Raises:
        CollectionError: no column names a picture; it says which column looks like it.
    """
    rows = rows_of(items)
    for _, row, faults in rows.reads(range(len(rows))):
        if faults or any(row.get(name) is not None for name in PICTURE_COLUMNS):
            return  # who reads a bad row says what is wrong
    raise CollectionError(
        "this judge looks at pictures, and no column names one (the columns are"
        f" {', '.join(rows.columns)}): add a column with paths, or rename yours to `images`; an"
        " `images` column of empty lists says on purpose that there are none"
    )


def load_collection(
    source: object,
    *,
    columns: Mapping[str, str] | None = None,
    people: Sequence[str] | None = None,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    revision: str | None = None,
    schema: str | None = None,
    questions: bool = False,
) -> Dataset:
    """Load a collection by name, from local files, or from rows that are here already.

    Args:
        source: "scenes", "drawings" or "photos"; the hub id of a published data set (`ADAPTERS`); a
            .jsonl, .json, .csv, .tsv or .parquet file, exports of Label Studio (JSON) and Argilla
            among them; a folder with one, with one a split (test.jsonl), with the files of a
            published set, of pictures with metadata.csv, or from `datasets.save_to_disk`; a frame,
            a data set, a list of rows or one row. Columns are the canonical ones or those of any
            published set.
        columns: what other columns are: {"question": "instruction"}, theirs first.
        people: the columns of people's scores, one a rater, in the raters' order. None reads
            rater1, ann_2, human_3, annotator_a and the like where they hold numbers on the scale,
            and says so.
        split: which split, where there are several; "pointwise" or "pairwise" for
            LLaVA-Critic-113k, whose rows hold `prompt` and `target` for `fine_tune`.
        limit: at most so many rows, the first ones.
        seed: of a generated collection.
        revision: commit of a hub data set, None for the newest.
        schema: the published set whose columns a file has, such as "Feedback-Bench"; None tells it
            by the columns and, where several sets have the same, by the name of file or folder.
        questions: whether rows may lack responses, which a policy then writes:
            `items.remove_columns("response").add_column("response", answers)`.

    Returns:
        A `datasets.Dataset` with the canonical columns of items, pairs or candidates, then any
        further ones. Images decode when a row is read; relative paths count from the file's folder,
        of other sources from the working directory. Bad rows of a published set stay, with the
        reason in `fault`: `items.filter(lambda row: row["fault"] is None)` drops them.

    Raises:
        CollectionError: what cannot be found or read, with every bad row: a cell that is not what
            its column holds, no instruction, no response or only one of two, a picture that is not
            there, an id that stands twice.

    >>> load_collection("scenes", split="test", limit=5).num_rows
    5
    >>> mine = [{"question": "What is it?", "output": "A cat.", "ann_1": 4, "ann_2": None}]
    >>> items = load_collection(
    ...     mine,
    ...     columns={"question": "instruction", "output": "response"},
    ...     people=["ann_1", "ann_2"],
    ... )
    >>> items[0]["instruction"], items[0]["human_scores"]
    ('What is it?', [4.0, nan])
    """
    if limit is not None and not is_int_at_least(limit, 0):
        raise CollectionError(f"limit={limit!r}: use a whole number, or None for all rows")
    needed = ["instruction"] if questions else ["instruction", "response"]
    ways: dict = {"columns": columns, "people": people, "limit": limit, "needed": needed}
    if not isinstance(source, str | Path):
        return _collect(source, None, schema=schema, **ways)
    name = str(source)
    path = Path(name).expanduser()
    if name in ("scenes", "drawings"):
        rows = scenes.rows(split, limit, seed, drawn=name == "drawings")
        return _collect(rows, None, **ways)
    if name == "photos":
        return _collect(photos.rows(split, limit), None, **ways)
    if path.exists():
        return _load_path(path, split, schema, ways)
    names: list = []
    for adapter in ADAPTERS:
        names += adapter.ids
        if name in adapter.ids:
            return _fetch(name, adapter, split, revision, ways)
    raise CollectionError(
        f"unknown collection {name!r}: no such name, and no such file or folder seen from"
        f" {str(Path.cwd())!r}. Names: scenes, drawings, photos, {', '.join(names)}. Files:"
        f" {', '.join(SUFFIXES)}, or from datasets.save_to_disk. Of another hub data set, pass what"
        " datasets.load_dataset returns"
    )


def canonical(rows: Items, *, schema: str | None = None) -> Dataset:
    """Bring rows into a data set of the canonical columns.

    Args:
        rows: what `rows_of` takes, in the canonical columns or in those of a published set.
        schema: as for `load_collection`.

    Returns:
        As `load_collection`. A missing id is the row's number; a missing group the image's path,
        else a digest of its file, else the id. Further columns follow, as text where types mix.

    Raises:
        CollectionError: see `load_collection`.
    """
    return _collect(rows, None, schema=schema)


def origin(items: Items) -> dict:
    """Where a collection comes from, as `load_collection` wrote it down.

    Returns:
        source, split, revision and commit; schema and benchmark of a published set.
    """
    if not isinstance(items, Dataset):
        return {}
    with suppress(ValueError):  # of another's description
        return json.loads(items.info.description)
    return {}


def _record(items: Dataset, **facts: Any) -> Dataset:
    """Add to what is written down of a collection's origin."""
    items.info.description = json.dumps(origin(items) | facts)
    return items


# -- local files and the hub


def _load_path(path: Path, split: str | None, schema: str | None, ways: Mapping) -> Dataset:
    tables = splits_of(path)
    name = chosen(path, split, tables)
    rows = tables[name]
    folder = path
    names = [name, path.name]
    if isinstance(rows, Path):
        folder = rows.parent
        names = [name, rows.stem, folder.name]
        rows = rows_of_file(rows)
    items = _collect(rows, folder, schema=schema, names=names, **ways)
    if origin(items).get("source"):  # saved by the user after loading
        return items
    return _record(items, source=str(path), split=name or None)


def _fetch(
    name: str, adapter: Adapter, split: str | None, revision: str | None, ways: Mapping
) -> Dataset:
    """A published set from the hub, with the commit that it came from."""
    import huggingface_hub

    chosen_split = chosen(name, split, adapter.parts or (adapter.split,))
    commit = None
    with suppress(Exception):  # of many kinds; where there is no copy here, the next call says why
        commit = huggingface_hub.HfApi().dataset_info(name, revision=revision).sha
    config = chosen_split if adapter.parts else None
    try:
        rows = datasets.load_dataset(name, config, split=adapter.split, revision=commit or revision)
    except Exception as error:
        raise CollectionError(
            f"{name!r} could not be loaded from the hub ({type(error).__name__}: {error}); if it"
            f" is gated, accept its terms at https://huggingface.co/datasets/{name} and log in"
            " (hf auth login, or HF_TOKEN)"
        ) from error
    items = _collect(rows, None, adapter=adapter, **ways)
    return _record(items, source=name, split=chosen_split, revision=revision, commit=commit)


# -- rows into a data set


def _collect(
    rows: Items,
    folder: Path | None,
    *,
    columns: Mapping | None = None,
    people: Sequence | None = None,
    limit: int | None = None,
    adapter: Adapter | None = None,
    schema: str | None = None,
    names: Sequence = (),
    needed: Collection = (),
) -> Dataset:
    """As `canonical`; `names` of split, file and folder tell sets of the same columns apart.

    Rows of one's own are refused that lack a text in `needed`, or their pictures.
    """
    if isinstance(rows, Dataset):
        rows = rows.select(range(len(rows))[:limit])
        canonical_types = features_of(rows.column_names).items() <= rows.features.items()
        if canonical_types and not columns and not people:
            return rows
    if METADATA in names[1:2]:
        columns = {"file_name": "image"} | dict(columns or {})
    source = rows_of(rows, columns=columns, people=people)
    adapter = adapter or adapter_of(source.columns, names, schema)
    places = range(len(source))[:limit]

    # 1) the bad rows of one's own collection are refused, those of a published set keep the reason
    table: list = []
    problems = []
    n_bad = 0
    for cells, faults in _read(source, places, adapter, folder, needed):
        if faults:
            n_bad += 1
            problems += problems_of(len(table), cells["id"], faults)
            reason = "; ".join(f"{field}: {reason}" for field, reason, _ in faults)
            cells = {"id": cells["id"], "fault": reason}
        table.append(cells)
    if n_bad and (adapter is None or n_bad == len(table)):
        raise CollectionError.of_rows(problems, len(table))

    # 2) a group for each row
    for cells in table:
        cells["group"] = cells.get("group") or cells["id"]
    items = _dataset(table)
    if adapter is None:
        return items
    return _described(items, adapter, table)


def _read(
    source: Rows, places: range, adapter: Adapter | None, folder: Path | None, needed: Collection
) -> Iterator:
    """Canonical rows, their pictures' paths from the folder on, and what is wrong with each.

    Pictures of one's own collection that stand outside of its folder are warned of.
    """
    roots = _FOLDERS if adapter else ["."]
    outside: list = []
    ids = Counter[str]()
    for index, row in zip(places, source.as_given(places), strict=True):
        cells, faults = adapter.read(row) if adapter else canonical_row(row, source.decimal)
        if folder is not None and not faults:
            faults = _set_beside(cells, folder, roots, outside)
        id = id_of(cells) or str(index)
        ids[id] += 1
        if needed and not adapter and not faults:
            faults = [*_unusable(cells, source.layout, needed)]
            if ids[id] > 1:
                faults.append(("id", "stands twice", source.layout.id_remedy))
        elif adapter and ids[id] > 1:  # published ids repeat
            id = f"{id}#{ids[id]}"
        yield cells | {"id": id}, faults
    if outside and adapter is None:
        where = f"outside of the folder {str(folder)!r}, such as {outside[0]!r}"
        warnings.warn(
            f"{len(outside)} pictures stand {where}: see that they are the right ones", stacklevel=6
        )


def _unusable(cells: Mapping, layout: Layout, needed: Collection) -> Iterator:
    """What keeps a row from every use: texts that it lacks, and pictures that are not there."""
    if text_of(cells, "prompt") is None or text_of(cells, "target") is None:  # as of training rows
        for fault in layout.lacking(cells):
            if fault[0].partition("_")[0] in needed:
                yield fault
    for column, _, path in _paths(cells):
        if not os.path.isfile(path):
            reason = (
                f"{path!r} is a URL" if "://" in path else f"{os.path.abspath(path)!r} is not there"
            )
            yield column, reason, "put the file there, or correct the path"


def _paths(cells: Mapping) -> Iterator:
    """Of each picture that is given by its path, the column, its position there, and the path."""
    for column in PICTURE_COLUMNS:
        for position, path in enumerate(map(_path_of, cells.get(column) or ())):
            if isinstance(path, str):
                yield column, position, path


def _path_of(picture: object) -> Any:
    """The path that a picture is given by; anything else as it is."""
    if isinstance(picture, Mapping) and picture.get("bytes") is None:
        return picture["path"]
    return picture


def _set_beside(cells: dict, folder: Path, roots: Sequence, outside: list) -> list:
    """Have relative paths of pictures count from a folder, which they must not lead out of.

    They may stand beside the folder, as in published sets; those are added to `outside`.
    """
    home = folder.parent
    if home.name == "snapshots":  # of the hub's cache, whose files are links to its blobs
        home = home.parent
    for column, position, path in _paths(cells):
        if "://" in path or os.path.isabs(path):
            continue
        files = [str(folder / root / path) for root in roots]
        file = next(filter(os.path.isfile, files), files[0])
        target = Path(os.path.realpath(file))
        if not target.is_relative_to(os.path.realpath(home)):
            reason = f"{path!r} leads out of the folder {str(folder)!r} to {str(target)!r}"
            return [(column, reason, "write its absolute path, or put it into that folder")]
        beside = home == folder.parent and not target.is_relative_to(os.path.realpath(folder))
        if beside and target.is_file():
            outside.append(file)
        cells[column][position] = {"bytes": None, "path": file}
    return []


def _dataset(table: list) -> Dataset:
    """The canonical columns of the rows' kind, then the further ones, as text where types mix."""
    names = dict.fromkeys(itertools.chain.from_iterable(table))
    kind = features_of(names)
    columns = []
    for name in kind | names:
        values = [cells.get(name) for cells in table]
        values = [_EMPTY.get(name) if cell is None else cell for cell in values]
        features = datasets.Features({name: kind[name]}) if name in kind else None
        try:
            columns.append(Dataset.from_dict({name: values}, features))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            texts = [None if cell is None else str(cell) for cell in values]
            columns.append(Dataset.from_dict({name: texts}))
    return datasets.concatenate_datasets(columns, axis=1)


def _described(items: Dataset, adapter: Adapter, table: list) -> Dataset:
    """A published set with its name, and a warning that counts its unreadable rows."""
    reasons = Counter(cells["fault"] for cells in table if cells.get("fault"))
    if reasons:
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.items())
        unread = f"{reasons.total()} of {len(table)} rows could not be read"
        text = f"{adapter.name}: {unread} and are kept with the reason in `fault`: {listed}"
        warnings.warn(text, stacklevel=5)
    return _record(items, schema=adapter.name, benchmark=adapter.benchmark)
