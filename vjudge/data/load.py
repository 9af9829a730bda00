"""Where collections come from: names, files, folders, the hub; and `rows_of` for anybody's rows."""

from __future__ import annotations

import difflib
import itertools
import json
import os
import uuid
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]

from vjudge.data import files, photos, scenes
from vjudge.data.adapters import ADAPTERS, Adapter, adapter_of
from vjudge.data.rows import BLOCK, Cells, Rows, canonical_row, frame_rows, with_image
from vjudge.data.schema import (
    FEATURES,
    RESPONSES,
    BadRow,
    CollectionError,
    Fault,
    Problem,
    columns_of,
    features_of,
    id_of,
    plain,
    suggestion,
)
from vjudge.records import as_score, is_missing

_IMAGES = datasets.Features({"images": FEATURES["images"]})


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
    if isinstance(items, datasets.Dataset):
        return Rows(items)
    if isinstance(items, pd.DataFrame):
        items = frame_rows(items)
    if not isinstance(items, Iterable) or isinstance(items, (bytes, Mapping)):
        forms = (
            "a Dataset (one split of a DatasetDict), a DataFrame, a list of rows or Items, or a"
            " file's path"
        )
        raise CollectionError(f"a collection cannot be a {type(items).__name__}; give {forms}")
    return Rows(list(items))


def check_pictures(items: Any) -> None:
    """Refuse rows among which no column names a picture, for a model that looks at pictures.

    Raises:
        CollectionError: no column names a picture; it says which column looks like it.
    """
    names = dict[str, None]()
    for row, _ in rows_of(items).reads():
        if row.get("images") is not None:
            return
        names |= dict.fromkeys(str(name) for name, cell in row.items() if not is_missing(cell))
    if not names:
        return
    hint = suggestion("images", names)
    if hint == "add it":
        hint = "add a column with paths, or rename yours"
    raise CollectionError(
        "this judge looks at pictures, and no column names one (the columns are"
        f" {', '.join(names)}): {hint} to `images`; an `images` column of empty lists says on"
        " purpose that there are none"
    )


def load_collection(
    name_or_path: str | Path,
    *,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    revision: str | None = None,
    schema: str | None = None,
) -> datasets.Dataset:
    """Load a collection by name or from local files.

    Args:
        name_or_path: "scenes" or "photos"; the hub id of a published data set (`ADAPTERS`); a
            .jsonl, .json, .csv, .tsv or .parquet file; a folder with one, with one a split
            (test.jsonl), with the files of a published set, or from `datasets.save_to_disk`.
            Columns are the canonical ones or those of any published set.
        split: which split, where there are several; "pointwise" or "pairwise" for
            LLaVA-Critic-113k.
        limit: at most so many rows, the first ones.
        seed: of a generated collection.
        revision: commit of a hub data set, None for the newest.
        schema: the published set whose columns a file has, such as "Feedback-Bench"; None tells it
            by the columns and, where several sets have the same, by the name of file or folder.

    Returns:
        A `datasets.Dataset` with the canonical columns of items, pairs or candidates, then any
        further ones. Images decode when a row is read; relative paths count from the file's folder,
        of a hub set from the working directory. Bad rows of a published set stay, with the reason
        in `fault`: see `readable`. Questions wait for responses:
        `items.remove_columns("response").add_column("response", answers)`.

    Raises:
        CollectionError: what cannot be found or read, with every bad row.

    >>> load_collection("scenes", split="test", limit=5).num_rows
    5
    """
    if not isinstance(name_or_path, str | Path):
        what = f"a collection has a name or a path, not a {type(name_or_path).__name__}"
        raise CollectionError(f"{what}; for rows or a frame call vjudge.data.canonical")
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        what = f"limit is {limit!r}; give the number of rows, 0 or more, or None for all"
        raise CollectionError(what)
    if name_or_path == "scenes":
        return canonical(scenes.rows(split, limit, seed))
    if name_or_path == "photos":
        return canonical(photos.rows(split, limit))
    name = str(name_or_path)
    path = Path(name_or_path).expanduser()
    if path.exists():
        return _load_path(path, split, limit, schema)
    on_hub = [one for one in ADAPTERS if name.lower() in map(str.lower, one.ids)]
    if on_hub:
        return _fetch(name, on_hub, split, limit, revision)
    ids = itertools.chain.from_iterable(one.ids for one in ADAPTERS)
    names = ["scenes", "photos", *dict.fromkeys(ids)]
    near = difflib.get_close_matches(name.strip(), names, n=1)
    hint = f"; {near[0]!r} looks like it" if near else ""
    raise CollectionError(
        f"unknown collection {name!r}: no such name, and no such file or folder seen from"
        f" {str(Path.cwd())!r}{hint}. Names: {', '.join(names)}. Files:"
        f" {', '.join(files.SUFFIXES)}, or from datasets.save_to_disk. {files.OTHER_SETS}"
    )


def canonical(
    rows: Iterable[Mapping[str, Any]],
    *,
    folder: str | Path | None = None,
    schema: str | None = None,
) -> datasets.Dataset:
    """Bring rows into a data set of the canonical columns.

    Args:
        rows: what `rows_of` takes, in the canonical columns or in those of a published set.
        folder: relative image paths count from it.
        schema: as for `load_collection`.

    Returns:
        As `load_collection`. A missing id is the row's number; a missing group the image's path,
        else a digest of its file, else the id. Further columns follow, as text where types mix.

    Raises:
        CollectionError: see `load_collection`.
    """
    if isinstance(rows, (str, Path)):
        return load_collection(rows, schema=schema)
    return _collect(rows, None if folder is None else Path(folder), schema=schema)


def readable(items: datasets.Dataset) -> datasets.Dataset:
    """Drop the unreadable rows of a published set, which a warning counted at loading."""
    if "fault" not in items.column_names:
        return items
    return items.select([place for place, fault in enumerate(items["fault"]) if fault is None])


def origin(items: datasets.Dataset) -> Cells:
    """Where a collection comes from, as `load_collection` wrote it down.

    Returns:
        source, split, revision and commit; schema and benchmark of a published set.
    """
    try:
        facts = json.loads(items.info.description or "")
    except (AttributeError, json.JSONDecodeError):
        return {}
    return facts if isinstance(facts, dict) and {"source", "schema"} & facts.keys() else {}


def _record(items: datasets.Dataset, **facts: Any) -> datasets.Dataset:
    """Add to what is written down of a collection's origin."""
    items.info.description = json.dumps(origin(items) | facts)
    return items


# -- local files and the hub


def _load_path(
    path: Path, split: str | None, limit: int | None, schema: str | None
) -> datasets.Dataset:
    rows, file = files.read(path, split, limit)
    folder = file if file.is_dir() else file.parent
    names = (split or "", file.stem, folder.name)
    items = _collect(rows, folder, schema=schema, names=names, source=f" of {str(file)!r}")
    if origin(items).get("source"):  # saved by the user after loading
        return items
    if path.is_file():
        split = None
    return _record(items, source=str(path), split=split, revision=None, commit=None)


def _fetch(
    name: str,
    adapters: list[Adapter],
    split: str | None,
    limit: int | None,
    revision: str | None,
) -> datasets.Dataset:
    """A published set from the hub, with the commit that it came from; a limit is streamed."""
    import huggingface_hub

    adapter = adapters[0]
    part = None
    of = split or adapter.split
    if adapter.part:  # configurations, which `split` chooses among
        parts = {one.part: one for one in adapters}
        part = files.chosen(name, split or adapter.part, parts)
        adapter = parts[part]
        of = adapter.split
    elif adapter.files:
        files.chosen(name, of, [adapter.split])
    commit = None
    with suppress(Exception):  # of many kinds; where there is no copy here, the next call says why
        commit = huggingface_hub.HfApi().dataset_info(name, revision=revision).sha
    at = commit or revision
    try:
        rows, folder = _download(name, adapter, of, at, limit)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        terms = f"https://huggingface.co/datasets/{name}"
        raise CollectionError(
            f"{name!r} could not be loaded from the hub ({type(error).__name__}: {reason}); if it"
            f" is gated, accept its terms at {terms} and log in (hf auth login, or HF_TOKEN)"
        ) from error
    _check_columns(rows, adapter, f"{name!r} at {at or 'its newest commit'}")
    items = _collect(rows, folder, adapter=adapter)
    return _record(items, source=name, split=part or of, revision=revision, commit=commit)


def _download(
    name: str, adapter: Adapter, split: str, commit: str | None, limit: int | None
) -> tuple[Any, Path | None]:
    """The rows, and the folder that its image paths count from where the set comes as files."""
    import huggingface_hub

    if adapter.files:
        folder = huggingface_hub.snapshot_download(name, repo_type="dataset", revision=commit)
        return files.joined(Path(folder), adapter.files)[:limit], Path(folder)
    part = adapter.part or None
    if limit is None:
        return datasets.load_dataset(
            name, part, split=split, revision=commit, streaming=False
        ), None
    stream = datasets.load_dataset(name, part, split=split, revision=commit, streaming=True)
    if stream.features:
        stream = stream.decode(False)
    return list(stream.take(limit)), None


def _check_columns(rows: Any, adapter: Adapter, where: str) -> None:
    """Refuse a commit of a hub set that lacks the columns by which it is read."""
    if not len(rows):
        return
    columns = rows.column_names if isinstance(rows, datasets.Dataset) else rows[0]
    missing = [column for column in adapter.columns if column not in columns]
    if missing:
        raise CollectionError(
            f"{where} has no columns {', '.join(missing)}; pass the revision= of a commit that has"
            " them"
        )


# -- rows into a data set


def _collect(
    rows: Any,
    folder: Path | None,
    *,
    adapter: Adapter | None = None,
    schema: str | None = None,
    names: tuple[str, ...] = (),
    source: str = "",
) -> datasets.Dataset:
    """As `canonical`; `names` of split, file and folder tell sets of the same columns apart."""
    image_files = None
    if isinstance(rows, datasets.Dataset):
        rows = with_image(rows)
        if features_of(rows.column_names).items() <= rows.features.items():
            return rows
        rows, image_files = _with_image_files(rows)
        batches = rows.with_format("arrow").iter(BLOCK)
        rows = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
    elif isinstance(rows, pd.DataFrame):
        rows = frame_rows(rows)
    rows = iter(rows)
    block = list(itertools.islice(rows, BLOCK))
    if adapter is None:
        objects = [row for row in block if isinstance(row, Mapping)]
        adapter = adapter_of(objects, names, schema)
    collector = _Collector(folder, adapter)
    while block:
        pictures = collector.add(block)
        if image_files is None:
            collector.images.append(datasets.Dataset.from_dict({"images": pictures}, _IMAGES))
        block = list(itertools.islice(rows, BLOCK))
    collector.report(source)
    items = collector.dataset(image_files)
    if adapter:
        # LLaVA-Bench's two sets have the same columns: a row says which it is of.
        named = [row["benchmark"] for row in collector.table if "benchmark" in row]
        benchmark = named[0] if named else adapter.benchmark
        _record(items, schema=adapter.name)
        if benchmark:
            _record(items, benchmark=benchmark)
    return items


def _with_image_files(table: datasets.Dataset) -> tuple[datasets.Dataset, Any]:
    """A data set and its only column of image files, which is passed on without a copy."""
    columns = columns_of(tuple(table.column_names))
    pictured = [name for name, column in columns.items() if column == "images"]
    if len(pictured) != 1 or not isinstance(table.features[pictured[0]], datasets.Image):
        return table, None
    if table._indices is not None:
        table = table.flatten_indices()
    return table, table.data.column(pictured[0])


@dataclass
class _Collector:
    """Canonical rows in the making, images a block at a time."""

    folder: Path | None
    adapter: Adapter | None
    table: list[Cells] = field(default_factory=list)
    images: list[datasets.Dataset] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    ids: Counter[str] = field(default_factory=Counter)

    def add(self, block: list[Any]) -> list[Any]:
        """Read a block of rows and return their pictures; a bad row keeps its id and fault."""
        pictures = []
        for row in block:
            try:
                cells = self._cells(row)
            except BadRow as bad:
                id = id_of(row)
                self.problems += [Problem(len(self.table), id, *fault) for fault in bad.args]
                reasons = [f"{name}: {what}" for name, what, _ in bad.args]
                cells = {"id": id, "fault": "; ".join(reasons)}
            id = str(len(self.table)) if cells["id"] is None else cells["id"]
            self.ids[id] += 1
            if self.adapter and self.adapter.repeats_ids and self.ids[id] > 1:
                id = f"{id}#{self.ids[id]}"
            cells["id"] = id
            cells["group"] = cells.get("group") or id
            pictures.append(cells.pop("images", None))
            self.table.append(cells)
        return pictures

    def _cells(self, row: Any) -> Cells:
        """One row with every canonical column of its kind, then its further ones."""
        if isinstance(row, BadRow):
            raise row
        if self.adapter and isinstance(row, Mapping):
            row = self.adapter.read(row)
        cells, faults = canonical_row(row)
        kind = features_of(cells)
        if self.adapter is None and not faults:
            faults = _missing_columns(cells, kind)
        if faults:
            raise BadRow(*faults)
        result = {name: plain(cells.pop(name, None)) for name in kind}
        if self.adapter:  # a published set that names no images has none; a file may misname them
            result["images"] = result["images"] or []
        if self.folder and result["images"]:
            result["images"] = [self._beside(picture, self.folder) for picture in result["images"]]
        return _typed(result) | cells

    def _beside(self, picture: Any, folder: Path) -> Any:
        """A picture whose relative path counts from the folder.

        It may stand beside the folder, as in published sets, which is noted, and no further away.
        """
        path = picture
        if isinstance(picture, Mapping) and picture.get("bytes") is None:
            path = picture["path"]
        if not isinstance(path, str) or "://" in path or os.path.isabs(path):
            return picture
        roots = self.adapter.image_roots if self.adapter else (".",)
        places = [str(folder / root / path) for root in roots]
        place = next(filter(os.path.isfile, places), places[0])
        if _leads_out(place, [folder.parent]):
            what = (
                f"{path!r} leads out of the folder {str(folder)!r} to {os.path.realpath(place)!r}"
            )
            remedy = "write its absolute path, or put the picture into that folder"
            raise BadRow(("images", what, remedy))
        if os.path.isfile(place) and _leads_out(place, [folder / root for root in roots]):
            self.outside.append(place)
        return {**picture, "path": place} if isinstance(picture, Mapping) else place

    def report(self, source: str) -> None:
        """Raise where rows are bad, and say what was kept all the same."""
        n_rows = len(self.table)
        n_bad = len({problem.index for problem in self.problems})
        if n_bad and (self.adapter is None or n_bad == n_rows):
            raise CollectionError.of_rows(self.problems, n_rows, source)
        if self.outside:
            where = f"outside of the folder {str(self.folder)!r}, such as {self.outside[0]!r}"
            what = f"{len(self.outside)} pictures stand {where}: see that they are the right ones"
            warnings.warn(what, stacklevel=5)
        if self.adapter is None:
            return
        reasons = Counter(row["fault"] for row in self.table if row.get("fault") is not None)
        if reasons:
            n_bad = sum(reasons.values())
            listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(5))
            what = f"{n_bad} of {n_rows} rows could not be read and are kept with the reason"
            remedy = "vjudge.data.readable leaves them out"
            warnings.warn(
                f"{self.adapter.name}: {what} in `fault`: {listed}; {remedy}", stacklevel=5
            )

    def dataset(self, image_files: Any) -> datasets.Dataset:
        """The canonical columns of the first readable row's kind, then the further ones."""
        read = [row for row in self.table if "instruction" in row]
        kind = features_of(read[0] if read else ())
        if not self.table:
            return datasets.Dataset.from_dict({name: [] for name in kind}, kind)
        known = datasets.Features({name: type for name, type in kind.items() if name != "images"})
        columns = {name: self._column(name) for name in known}
        blocks = [datasets.Dataset.from_dict(columns, known)]
        if image_files is None:
            blocks.append(datasets.concatenate_datasets(self.images))
        else:
            blocks.append(_lists(image_files, empty_is_none=self.adapter is not None))
        names = dict.fromkeys(itertools.chain.from_iterable(self.table))
        further = [name for name in names if name not in kind]
        for name in further:
            blocks.append(_further(name, self._column(name)))
        return datasets.concatenate_datasets(blocks, axis=1).select_columns([*kind, *further])

    def _column(self, name: str) -> list[Any]:
        return [row.get(name) for row in self.table]


def _typed(cells: Cells) -> Cells:
    """Canonical cells in the types of their columns."""
    for name in ("human_scores", "ranks"):
        if name in cells:
            cells[name] = cells[name] or []
    for name in ("id", "group"):
        if not is_missing(cells[name]):
            cells[name] = str(cells[name])
    if "gold" in cells:
        cells["gold"] = as_score(cells["gold"])
    return cells


def _missing_columns(cells: Cells, kind: Iterable[str]) -> list[Fault]:
    """Faults of a row without a text that its kind needs; without a response it is a question."""
    faults = []
    for name in ("instruction", *RESPONSES):
        if name in kind and name not in cells:
            hint = suggestion(name, cells)
            if name != "response" or "`" in hint:
                faults.append((name, f"there is no column {name}", hint))
    return faults


def _leads_out(place: str, folders: list[Path]) -> bool:
    """Whether a path leads out of all the folders, by `../` or a link."""
    target = Path(os.path.realpath(place))
    for folder in folders:
        homes = [folder]
        # The files of the hub's cache are links to its blobs.
        outer = (folder, *folder.parents)
        homes += [one.parent for one in outer if one.name == "snapshots"]
        if any(target.is_relative_to(os.path.realpath(home)) for home in homes):
            return False
    return True


def _further(name: str, values: list[Any]) -> datasets.Dataset:
    """A further column as it is where Arrow can hold it, as text where its types mix."""
    try:
        return datasets.Dataset.from_dict({name: values})
    except (pa.ArrowInvalid, pa.ArrowTypeError, RecursionError):
        texts = []
        for cell in values:
            is_text = cell is None or isinstance(cell, str)
            texts.append(cell if is_text else json.dumps(cell, default=str))
        return datasets.Dataset.from_dict({name: texts})


def _lists(column: Any, *, empty_is_none: bool) -> datasets.Dataset:
    """Each cell of a column of image files as a list of one image, without copies.

    An empty cell is an empty list, or missing.
    """
    kind = _IMAGES.arrow_schema.field("images").type
    chunks = []
    for chunk in column.chunks:
        present = np.asarray(chunk.is_valid())
        offsets = pa.array(np.append(0, np.cumsum(present)), pa.int32())
        mask = None if empty_is_none else pa.array(~present)
        chunks.append(pa.ListArray.from_arrays(offsets, chunk.drop_null(), type=kind, mask=mask))
    table = datasets.table.InMemoryTable(pa.table({"images": pa.chunked_array(chunks, type=kind)}))
    # A fingerprint of our own: to make one, the library would copy the whole table.
    info = datasets.DatasetInfo(features=_IMAGES)
    return datasets.Dataset(table, info=info, fingerprint=uuid.uuid4().hex[:16])
