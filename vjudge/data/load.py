"""Where collections come from: names, files, folders, the hub; and `rows_of` for anybody's rows."""

from __future__ import annotations

import itertools
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa  # type: ignore[import-untyped]
from datasets import Dataset
from pandas import DataFrame

from vjudge.data import photos, scenes
from vjudge.data.adapters import ADAPTERS, Adapter, adapter_of
from vjudge.data.files import SUFFIXES, chosen, parts_of, rows_of_file
from vjudge.data.rows import Rows, canonical_row, cells_of, frame_rows
from vjudge.data.schema import CollectionError, features_of, id_of, problems_of
from vjudge.records import NAN, is_int_at_least

_EMPTY = {"human_scores": [], "ranks": [], "gold": NAN}  # in place of None
# Where a published set's pictures may stand, seen from its file's folder; the first one that is
# there is taken.
_FOLDERS = ". images image val2014 data .. ../image".split()


def rows_of(items: Any) -> Rows:
    """Bring whatever a person gives into canonical rows: every entrance of the package reads here.

    Args:
        items: a `datasets.Dataset`, a DataFrame, a list of rows, `Item`s or `Pair`s, or what
            `load_collection` takes. Pictures may stand in any of `vjudge.records.IMAGE_COLUMNS`:
            each a path, bytes, an array, a PIL image, the {"bytes", "path"} dict of the datasets
            library or a data URI, one or a list.

    Returns:
        The rows, read as they are asked for, images undecoded.

    Raises:
        CollectionError: not a collection; when it is read, a row that cannot be canonical.

    >>> row = {"id": 1, "image_path": "a.png", "instruction": "What is it?", "response": "A cat."}
    >>> rows_of([row])[0]["images"]
    ['a.png']
    """
    if isinstance(items, (str, Path)):
        items = load_collection(items)
    if isinstance(items, Rows):
        return items
    if isinstance(items, Dataset):
        return Rows(items)
    if isinstance(items, DataFrame):
        items = frame_rows(items)
    if not isinstance(items, Iterable) or isinstance(items, (bytes, Mapping)):
        raise CollectionError(
            f"a collection cannot be a {type(items).__name__}; give a Dataset (one split of a"
            " DatasetDict), a DataFrame, a list of rows or Items, or a file's path"
        )
    return Rows(list(map(cells_of, items)))


def check_pictures(items: Any) -> None:
    """Refuse rows among which no column names a picture, for a model that looks at pictures.

    Raises:
        CollectionError: no column names a picture; it says which column looks like it.
    """
    rows = rows_of(items)
    for _, row, faults in rows.reads(range(len(rows))):
        if faults or row.get("images") is not None:  # who reads a bad row says what is wrong
            return
    raise CollectionError(
        "this judge looks at pictures, and no column names one (the columns are"
        f" {', '.join(rows.columns)}): add a column with paths, or rename yours to `images`; an"
        " `images` column of empty lists says on purpose that there are none"
    )


def load_collection(
    name_or_path: str | Path,
    *,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    revision: str | None = None,
    schema: str | None = None,
) -> Dataset:
    """Load a collection by name or from local files.

    Args:
        name_or_path: "scenes" or "photos"; the hub id of a published data set (`ADAPTERS`); a
            .jsonl, .json, .csv, .tsv or .parquet file; a folder with one, with one a split
            (test.jsonl), with the files of a published set, or from `datasets.save_to_disk`.
            Columns are the canonical ones or those of any published set.
        split: which split, where there are several; "pointwise" or "pairwise" for
            LLaVA-Critic-113k, whose rows hold `prompt` and `target` for `fine_tune`.
        limit: at most so many rows, the first ones.
        seed: of a generated collection.
        revision: commit of a hub data set, None for the newest.
        schema: the published set whose columns a file has, such as "Feedback-Bench"; None tells it
            by the columns and, where several sets have the same, by the name of file or folder.

    Returns:
        A `datasets.Dataset` with the canonical columns of items, pairs or candidates, then any
        further ones. Images decode when a row is read; relative paths count from the file's folder,
        of a hub set from the working directory. Bad rows of a published set stay, with the reason
        in `fault`: `items.filter(lambda row: row["fault"] is None)` drops them. Questions wait for
        responses: `items.remove_columns("response").add_column("response", answers)`.

    Raises:
        CollectionError: what cannot be found or read, with every bad row.

    >>> load_collection("scenes", split="test", limit=5).num_rows
    5
    """
    if not isinstance(name_or_path, str | Path):
        raise CollectionError(
            f"a collection has a name or a path, not a {type(name_or_path).__name__}; for rows or a"
            " frame call vjudge.data.canonical"
        )
    if limit is not None and not is_int_at_least(limit, 0):
        raise CollectionError(f"limit={limit!r}: use a whole number, or None for all rows")
    name = str(name_or_path)
    if name == "scenes":
        return canonical(scenes.rows(split, limit, seed))
    if name == "photos":
        return canonical(photos.rows(split, limit))
    path = Path(name).expanduser()
    if path.exists():
        return _load_path(path, split, limit, schema)
    names: list = []
    for adapter in ADAPTERS:
        names += adapter.ids
        if name in adapter.ids:
            return _fetch(name, adapter, split, limit, revision)
    raise CollectionError(
        f"unknown collection {name!r}: no such name, and no such file or folder seen from"
        f" {str(Path.cwd())!r}. Names: scenes, photos, {', '.join(names)}. Files:"
        f" {', '.join(SUFFIXES)}, or from datasets.save_to_disk. Of another hub data set, pass what"
        " datasets.load_dataset returns to vjudge.data.canonical"
    )


def canonical(rows: Any, *, schema: str | None = None) -> Dataset:
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


def origin(items: Any) -> dict:
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


def _load_path(path: Path, split: str | None, limit: int | None, schema: str | None) -> Dataset:
    parts = parts_of(path)
    name = chosen(path, split, parts)
    rows = parts[name]
    folder = path
    names = [name, path.name]
    if isinstance(rows, Path):
        folder = rows.parent
        names = [name, rows.stem, folder.name]
        rows = rows_of_file(rows)
    items = _collect(rows, folder, limit=limit, schema=schema, names=names)
    if origin(items).get("source"):  # saved by the user after loading
        return items
    return _record(items, source=str(path), split=name or None)


def _fetch(
    name: str, adapter: Adapter, split: str | None, limit: int | None, revision: str | None
) -> Dataset:
    """A published set from the hub, with the commit that it came from."""
    import huggingface_hub

    part = chosen(name, split, adapter.parts or (adapter.split,))
    commit = None
    with suppress(Exception):  # of many kinds; where there is no copy here, the next call says why
        commit = huggingface_hub.HfApi().dataset_info(name, revision=revision).sha
    config = part if adapter.parts else None
    try:
        rows = datasets.load_dataset(name, config, split=adapter.split, revision=commit or revision)
    except Exception as error:
        raise CollectionError(
            f"{name!r} could not be loaded from the hub ({type(error).__name__}: {error}); if it"
            f" is gated, accept its terms at https://huggingface.co/datasets/{name} and log in"
            " (hf auth login, or HF_TOKEN)"
        ) from error
    items = _collect(rows, None, limit=limit, adapter=adapter)
    return _record(items, source=name, split=part, revision=revision, commit=commit)


# -- rows into a data set


def _collect(
    rows: Any,
    folder: Path | None,
    *,
    limit: int | None = None,
    adapter: Adapter | None = None,
    schema: str | None = None,
    names: Sequence = (),
) -> Dataset:
    """As `canonical`; `names` of split, file and folder tell sets of the same columns apart."""
    if isinstance(rows, Dataset):
        rows = rows.select(range(len(rows))[:limit])
        if features_of(rows.column_names).items() <= rows.features.items():
            return rows
    source = rows_of(rows)
    adapter = adapter or adapter_of(source.columns, names, schema)
    given = source.as_given(range(len(source))[:limit])

    # 1) the bad rows of one's own collection are refused, those of a published set keep the reason
    table: list = []
    problems: list = []
    n_bad = 0
    for cells, faults in _read(given, adapter, folder):
        if faults:
            n_bad += 1
            problems += problems_of(len(table), cells["id"], faults)
            reason = "; ".join(f"{field}: {what}" for field, what, _ in faults)
            cells = {"id": cells["id"], "fault": reason}
        table.append(cells)
    if n_bad and (adapter is None or n_bad == len(table)):
        raise CollectionError.of_rows(problems, len(table))

    # 2) an id and a group for each row
    ids = Counter[str]()
    for cells in table:
        ids[cells["id"]] += 1
        if adapter and ids[cells["id"]] > 1:  # published ids repeat
            cells["id"] += f"#{ids[cells['id']]}"
        cells["group"] = cells.get("group") or cells["id"]
    items = _dataset(table)
    if adapter is None:
        return items
    return _described(items, adapter, table)


def _read(given: Iterable, adapter: Adapter | None, folder: Path | None) -> Iterator:
    """Canonical rows, their pictures' paths from the folder on, and what is wrong with each.

    Pictures of one's own collection that stand outside of its folder are warned of.
    """
    roots = _FOLDERS if adapter else ["."]
    read = adapter.read if adapter else canonical_row
    outside: list = []
    for index, row in enumerate(given):
        cells, faults = read(row)
        if folder is not None and not faults:
            faults = _set_beside(cells, folder, roots, outside)
        yield cells | {"id": id_of(cells) or str(index)}, faults
    if outside and adapter is None:
        where = f"outside of the folder {str(folder)!r}, such as {outside[0]!r}"
        what = f"{len(outside)} pictures stand {where}: see that they are the right ones"
        warnings.warn(what, stacklevel=6)


def _set_beside(cells: dict, folder: Path, roots: Sequence, outside: list) -> list:
    """Have relative paths of pictures count from a folder, which they must not lead out of.

    They may stand beside the folder, as in published sets; those are added to `outside`.
    """
    home = folder.parent
    if home.name == "snapshots":  # of the hub's cache, whose files are links to its blobs
        home = home.parent
    for place, picture in enumerate(cells.get("images") or ()):
        path = picture
        if isinstance(picture, Mapping) and picture.get("bytes") is None:
            path = picture["path"]
        if not isinstance(path, str) or "://" in path or os.path.isabs(path):
            continue
        files = [str(folder / root / path) for root in roots]
        file = next(filter(os.path.isfile, files), files[0])
        target = Path(os.path.realpath(file))
        if not target.is_relative_to(os.path.realpath(home)):
            what = f"{path!r} leads out of the folder {str(folder)!r} to {str(target)!r}"
            return [("images", what, "write its absolute path, or put it into that folder")]
        beside = home == folder.parent and not target.is_relative_to(os.path.realpath(folder))
        if beside and target.is_file():
            outside.append(file)
        cells["images"][place] = {"bytes": None, "path": file}
    return []


def _dataset(table: list) -> Dataset:
    """The canonical columns of the rows' kind, then the further ones, as text where types mix."""
    names = dict.fromkeys(itertools.chain.from_iterable(table))
    kind = features_of(names)
    columns = []
    for name in kind | names:
        values = []
        for cells in table:
            cell = cells.get(name)
            values.append(_EMPTY.get(name) if cell is None else cell)
        known = datasets.Features({name: kind[name]}) if name in kind else None
        try:
            columns.append(Dataset.from_dict({name: values}, known))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            texts = [None if cell is None else str(cell) for cell in values]
            columns.append(Dataset.from_dict({name: texts}))
    return datasets.concatenate_datasets(columns, axis=1)


def _described(items: Dataset, adapter: Adapter, table: list) -> Dataset:
    """A published set with its name, and a warning that counts its unreadable rows."""
    reasons = Counter(cells["fault"] for cells in table if cells.get("fault"))
    if reasons:
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.items())
        what = f"{reasons.total()} of {len(table)} rows could not be read"
        text = f"{adapter.name}: {what} and are kept with the reason in `fault`: {listed}"
        warnings.warn(text, stacklevel=5)
    return _record(items, schema=adapter.name, benchmark=adapter.benchmark)
