"""Where collections come from: names, files, folders, the hub; and `rows_of`, the one way in for anybody's rows."""

from __future__ import annotations

import csv
import difflib
import itertools
import json
import os
import re
import uuid
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from vjudge.data import scenes, schema
from vjudge.data.adapters import ADAPTERS
from vjudge.data.schema import (
    BLOCK,
    FEATURES,
    Adapter,
    BadRow,
    CollectionError,
    Problem,
    Rows,
    features_of,
)
from vjudge.records import as_score, is_missing

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_SPLITS = {
    "train",
    "training",
    "validation",
    "valid",
    "val",
    "dev",
    "test",
    "testing",
}  # as a split's file is called
_OTHER_SETS = (
    "Of another hub data set, pass what datasets.load_dataset returns to vjudge.data.canonical"
)
_IMAGES = datasets.Features({"images": FEATURES["images"]})
# A number that Python refuses to read stays text, so that its row and field can be named.
_JSON = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) < 4_300 else digits)


def rows_of(items: Any) -> Rows:
    """Bring whatever a person gives into canonical rows: every entrance of the package reads its rows here.

    `items` is a `datasets.Dataset`, a DataFrame, a list of rows, `Item`s or `Pair`s, or what `load_collection` takes.
    Pictures may stand in any of `vjudge.records.IMAGE_COLUMNS`: each a path, bytes, an array, a PIL image, the
    {"bytes", "path"} dict of the datasets library or a data URI, one or a list. Rows are read as they are asked for,
    images undecoded. CollectionError: not a collection; when it is read, a row that cannot be canonical.

    >>> rows_of([{"id": 1, "image_path": "a.png", "instruction": "What is it?", "response": "A cat."}])[0]["images"]
    ['a.png']
    """
    if isinstance(items, (str, Path)):
        items = load_collection(items)
    if isinstance(items, Rows):
        return items
    if isinstance(items, pd.DataFrame):
        items = schema.frame_rows(items)
    if not isinstance(items, Iterable) or isinstance(items, (bytes, Mapping)):
        what = "a Dataset (one split of a DatasetDict), a DataFrame, a list of rows or Items, or a file's path"
        raise CollectionError(f"a collection cannot be a {type(items).__name__}; give {what}")
    return Rows(items if isinstance(items, datasets.Dataset) else list(items))


def check_pictures(items: Any) -> None:
    """Refuse with a CollectionError rows among which no column names a picture, for a model that looks at pictures."""
    names = dict[str, None]()
    for row, _ in rows_of(items).reads():
        if row.get("images") is not None:
            return
        names |= dict.fromkeys(str(name) for name, cell in row.items() if not is_missing(cell))
    if names:
        hint = schema.suggestion("images", names).replace(
            "add it", "add a column with paths, or rename yours"
        )
        what = f"this judge looks at pictures, and no column names one (the columns are {', '.join(names)})"
        none = "an `images` column of empty lists says on purpose that there are none"
        raise CollectionError(f"{what}: {hint} to `images`; {none}")


def load_collection(
    name_or_path: str | Path,
    *,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    revision: str | None = None,
) -> datasets.Dataset:
    """Load a collection by name or from local files.

    Args:
        name_or_path: "scenes" or "photos"; the hub id of a published data set (`ADAPTERS`); a .jsonl, .json, .csv, .tsv
            or .parquet file; a folder with one, with one a split (test.jsonl), with the files of a published set, or
            from `datasets.save_to_disk`. Columns are the canonical ones or those of any published set.
        split: which split, where there are several; "pointwise" or "pairwise" for LLaVA-Critic-113k.
        limit: at most so many rows, the first ones.
        seed: of a generated collection.
        revision: commit of a hub data set, None for the newest.

    Returns:
        A `datasets.Dataset` with the canonical columns of items, pairs or candidates, then any further ones. Images
        decode when a row is read; relative paths count from the file's folder, of a hub set from the working directory.
        Bad rows of a published set stay, with the reason in `fault`: see `readable`. Questions wait for responses:
        `items.remove_columns("response").add_column("response", answers)`. CollectionError: what cannot be found or
        read, with every bad row.

    >>> load_collection("scenes", split="test", limit=5).num_rows
    5
    """
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise CollectionError(
            f"limit is {limit!r}; give the number of rows, 0 or more, or None for all"
        )
    if name_or_path in ("scenes", "photos"):
        own = (
            scenes.photo_rows(split, limit)
            if name_or_path == "photos"
            else scenes.rows(split, limit, seed)
        )
        return _collect(own, None)
    name, path = str(name_or_path), Path(name_or_path).expanduser()
    if path.exists():
        rows, file = _read(path, split, limit)
        folder = file if file.is_dir() else file.parent
        items = _collect(rows, folder, parts=(split, file.stem), source=f" of {str(file)!r}")
        if origin(items).get("source"):  # saved by the user after loading
            return items
        return _record(
            items,
            source=str(path),
            split=None if path.is_file() else split,
            revision=None,
            commit=None,
        )
    hub = {id: adapter for adapter in ADAPTERS for id in adapter.ids}
    if adapter := next(
        (adapter for id, adapter in hub.items() if id.lower() == name.lower()), None
    ):
        return _fetch(name, adapter, split, limit, revision)
    names = ["scenes", "photos", *hub]
    near = "".join(
        f"; {near!r} looks like it" for near in difflib.get_close_matches(name.strip(), names, n=1)
    )
    raise CollectionError(
        f"unknown collection {name!r}: no such name, and no such file or folder seen from {str(Path.cwd())!r}{near}."
        f" Names: {', '.join(names)}. Files: {', '.join(SUFFIXES)}, or from datasets.save_to_disk. {_OTHER_SETS}"
    )


def canonical(
    rows: Iterable[Mapping[str, Any]], *, folder: str | Path | None = None
) -> datasets.Dataset:
    """Bring what `rows_of` takes, in our columns or in those of a published set, into a data set of our columns.

    Relative image paths count from `folder`. A missing id is the row's number; a missing group the image's path, else a
    digest of its file, else the id. Further columns follow, as text where their types mix. Bad rows: `load_collection`.
    """
    if isinstance(rows, (str, Path)):
        return load_collection(rows)
    return _collect(rows, None if folder is None else Path(folder))


def _collect(
    rows: Any,
    folder: Path | None,
    adapter: Adapter | None = None,
    *,
    parts: Iterable[Any] = (),
    source: str = "",
) -> datasets.Dataset:
    """As `canonical`; `parts` are names that the rows' part of the data set may have."""
    files = None
    if isinstance(rows, datasets.Dataset):
        rows = schema.with_image(rows)
        if features_of(rows.column_names).items() <= rows.features.items():
            return rows
        columns = schema.columns_of(tuple(rows.column_names))
        pictured = [name for name, column in columns.items() if column == "images"]
        if len(pictured) == 1 and isinstance(rows.features[pictured[0]], datasets.Image):
            # Its image files stand in memory a block at a time: their column is passed on as it is.
            rows = rows if rows._indices is None else rows.flatten_indices()
            files = rows.data.column(pictured[0])
        rows = itertools.chain.from_iterable(
            batch.to_pylist() for batch in rows.with_format("arrow").iter(BLOCK)
        )
    rows = iter(schema.frame_rows(rows) if isinstance(rows, pd.DataFrame) else rows)
    head = list(itertools.islice(rows, BLOCK))
    objects = [row for row in head if isinstance(row, Mapping)]
    fitting = [known for known in ADAPTERS if objects and set(known.columns) <= objects[0].keys()]
    adapter = adapter or max(
        fitting, key=lambda known: len(known.columns), default=None
    )  # that asks for most
    settled = adapter.settle(objects) if adapter and adapter.settle else None
    part = next((name for name in parts if adapter and name in adapter.parts), settled)
    outside: list[str] = []
    table, images, problems, ids = (
        list[dict[str, Any]](),
        list[Any](),
        list[Problem](),
        Counter[str](),
    )
    rows = itertools.chain(head, rows)
    while block := list(itertools.islice(rows, BLOCK)):
        for index, row in enumerate(block, len(table)):
            try:
                cells = _cells(row, adapter, part, folder)
            except BadRow as bad:
                id = schema.id_of(row)
                problems += [Problem(index, id, *fault) for fault in bad.args]
                cells = {
                    "id": id,
                    "fault": "; ".join(f"{field}: {what}" for field, what, _ in bad.args),
                }
            id = str(index) if cells["id"] is None else cells["id"]
            ids[id] += 1
            cells["id"] = (
                f"{id}#{ids[id]}" if adapter and adapter.repeats_ids and ids[id] > 1 else id
            )
            cells["group"] = cells.get("group") or cells["id"]
            table.append(cells)
        pictures = [cells.pop("images", None) for cells in table[-len(block) :]]
        outside += _outside(pictures, folder, adapter)
        if files is None:
            images.append(datasets.Dataset.from_dict({"images": pictures}, _IMAGES))
    if problems and (adapter is None or len({problem.index for problem in problems}) == len(table)):
        raise CollectionError.of_rows(problems, len(table), source)
    if outside:
        warnings.warn(
            f"{len(outside)} pictures stand outside of the folder {str(folder)!r}, such as"
            f" {outside[0]!r}: see that they are those to be judged",
            stacklevel=4,
        )
    reasons = Counter(row["fault"] for row in table if adapter and row.get("fault") is not None)
    if adapter and reasons:
        what = f"{reasons.total()} of {len(table)} rows could not be read and are kept with the reason in `fault`"
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(5))
        warnings.warn(
            f"{adapter.name}: {what}: {listed}; vjudge.data.readable leaves them out", stacklevel=4
        )
    kind = next((features_of(row) for row in table if "instruction" in row), FEATURES)
    if not table:
        return datasets.Dataset.from_dict({name: [] for name in kind}, kind)
    known = datasets.Features({name: type for name, type in kind.items() if name != "images"})
    names = [
        name for name in dict.fromkeys(itertools.chain.from_iterable(table)) if name not in kind
    ]
    blocks = [
        datasets.Dataset.from_dict(
            {name: [row.get(name) for row in table] for name in known}, known
        )
    ]
    blocks.append(
        datasets.concatenate_datasets(images)
        if files is None
        else _lists(files, adapter is not None)
    )
    if names:
        blocks.append(
            datasets.Dataset.from_dict(
                {name: _column([row.get(name) for row in table]) for name in names}
            )
        )
    items = datasets.concatenate_datasets(blocks, axis=1).select_columns([*kind, *names])
    if adapter and adapter.benchmark:
        # LLaVA-Bench's two sets have the same columns: a row says which it is of.
        _record(
            items,
            benchmark=next(
                (row["benchmark"] for row in table if "benchmark" in row), adapter.benchmark
            ),
        )
    return items


def _outside(
    rows: Iterable[list[Any] | None], folder: Path | None, adapter: Adapter | None
) -> list[str]:
    """The rows' picture files that were found by a relative path and lie outside of the folder."""
    roots = adapter.image_roots if adapter else (".",)
    found = []
    for pictures in rows:
        for picture in pictures or ():
            path = picture.get("path") if isinstance(picture, Mapping) else picture
            if folder is None or not isinstance(path, str) or not path.startswith(str(folder)):
                continue
            if os.path.isfile(path) and schema.leads_out(path, folder, roots):
                found.append(path)
    return found


def _cells(
    row: Any, adapter: Adapter | None, part: str | None, folder: Path | None
) -> dict[str, Any]:
    """One row with every canonical column of its kind, then its further ones."""
    if isinstance(row, BadRow):
        raise row
    if adapter and isinstance(row, Mapping):
        row = adapter.read(row, part)
    cells, faults = schema.canonical_row(
        row, folder=folder, roots=adapter.image_roots if adapter else (".",)
    )
    kind = features_of(cells)
    if adapter is None and not faults:
        for name in [
            name
            for name in ("instruction", *schema.RESPONSES)
            if name in kind and name not in cells
        ]:
            hint = schema.suggestion(name, cells)
            if name != "response" or "`" in hint:  # else the row is a question
                faults.append((name, f"there is no column {name}", hint))
    if faults:
        raise BadRow(*faults)
    result = {name: schema.plain(cells.pop(name, None)) for name in kind}
    result |= {name: result[name] or [] for name in ("human_scores", "ranks") if name in kind}
    result |= {name: str(result[name]) for name in ("id", "group") if not is_missing(result[name])}
    if "gold" in kind:
        result["gold"] = as_score(result["gold"])
    if adapter:  # a published set that names no images has none; a file may have misnamed them
        result["images"] = result["images"] or []
    return result | cells


def _column(values: list[Any]) -> list[Any]:
    """A further column as it is where Arrow can hold it, as text where its types mix."""
    with suppress(pa.ArrowInvalid, pa.ArrowTypeError):
        pa.array(values)
        return values
    return [
        cell if cell is None or isinstance(cell, str) else json.dumps(cell, default=str)
        for cell in values
    ]


def _lists(column: Any, empty_is_none: bool) -> datasets.Dataset:
    """Each cell of a column of image files as a list of one image, an empty one as none or as missing; no copies."""
    kind, chunks = _IMAGES.arrow_schema.field("images").type, []
    for chunk in column.chunks:
        present = np.asarray(chunk.is_valid())
        offsets = pa.array(np.append(0, np.cumsum(present)), pa.int32())
        mask = None if empty_is_none else pa.array(~present)
        chunks.append(pa.ListArray.from_arrays(offsets, chunk.drop_null(), type=kind, mask=mask))
    table = datasets.table.InMemoryTable(pa.table({"images": pa.chunked_array(chunks, type=kind)}))
    # A fingerprint of our own: to make one, the library would copy the whole table.
    return datasets.Dataset(
        table, info=datasets.DatasetInfo(features=_IMAGES), fingerprint=uuid.uuid4().hex[:16]
    )


def readable(items: datasets.Dataset) -> datasets.Dataset:
    """What `load_collection` returned without the rows that have a `fault`, which a warning counted at loading."""
    faults = items["fault"] if "fault" in items.column_names else [None] * len(items)
    return items.select([place for place, fault in enumerate(faults) if fault is None])


# -- files and folders


def _read(path: Path, split: str | None, limit: int | None) -> tuple[Any, Path]:
    """The rows of a file or folder, and the file or folder that its relative image paths count from."""
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        saved = datasets.load_from_disk(str(path))
        name = _chosen(path, split, saved if isinstance(saved, datasets.DatasetDict) else ())
        dataset = saved[name] if name else saved
        return dataset if limit is None else dataset.select(range(min(limit, len(dataset)))), path
    for adapter in ADAPTERS:
        if adapter.files and (path / adapter.files[0]).is_file():
            _chosen(path, split)
            return _joined(path, adapter)[:limit], path
    found = [path] if path.is_file() else sorted(path.iterdir())
    files = {file.stem: file for file in found if path.is_file() or file.suffix.lower() in SUFFIXES}
    if not files:
        raise CollectionError(
            f"{str(path)!r} holds no {', '.join(SUFFIXES)} file; give one that does. {_OTHER_SETS}"
        )
    splits = path.is_dir() and (len(files) > 1 or _SPLITS & set(files))
    file = files[_chosen(path, split, files if splits else ()) or next(iter(files))]
    return itertools.islice(_rows_of_file(file), limit), file


def _chosen(place: str | Path, split: str | None, names: Collection[str] = ()) -> str:
    """One of several splits; of what has none, nothing, and that one was asked for is said."""
    if not names and split is not None:
        warnings.warn(
            f"{str(place)!r} is without splits: split={split!r} says nothing", stacklevel=4
        )
    if not names or (split is None and len(names) == 1):
        return "".join(names)
    if split is not None and split in names:
        return split
    what = (
        "has several splits, and split= names none" if split is None else f"has no split {split!r}"
    )
    raise CollectionError(f"{str(place)!r} {what}; it has: {', '.join(names)}")


def _joined(folder: Path, adapter: Adapter) -> list[dict[str, Any]]:
    """The rows of a set that comes as questions, with the answers and captions of its other files."""
    files = [folder / name for name in adapter.files]
    questions, answers, *more = [
        list(_rows_of_file(file)) if file.is_file() else [] for file in files
    ]
    replies = {line["question_id"]: line["text"] for line in answers}
    pictures = {line["image"]: line for line in next(filter(None, more), [])}
    for line in questions:
        facts = pictures.get(line["image"], {}) | {"answer": replies.get(line["question_id"])}
        line |= {
            name: facts[name]
            for name in ("answer", "caption", "captions", "instances")
            if name in facts
        }
    return questions


def _rows_of_file(path: Path) -> Iterator[Any]:
    """The rows of a file, one after the other; for one that cannot be read, the `BadRow` that says why."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise CollectionError(f"{str(path)!r} is no {', '.join(SUFFIXES)} file; convert it")
    try:
        if suffix == ".parquet":
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as table:
                for batch in table.iter_batches(batch_size=BLOCK):
                    yield from batch.to_pylist()
            return
        with path.open(
            encoding="utf-8-sig", newline="" if suffix in (".csv", ".tsv") else "\n"
        ) as file:
            if suffix in (".csv", ".tsv"):
                yield from _csv_rows(file, path)
            else:  # some published .json files hold one object a line
                array = suffix == ".json" and file.read(2**16).lstrip()[:1] == "["
                file.seek(0)
                yield from (
                    _JSON.decode(file.read()) if array else map(_object, filter(str.strip, file))
                )
    except (
        UnicodeDecodeError,
        csv.Error,
        json.JSONDecodeError,
        RecursionError,
        pa.ArrowInvalid,
    ) as error:
        what = f"{str(path)!r} is not a sound {suffix[1:]} file in UTF-8 ({error}); repair it"
        raise CollectionError(what) from error


def _csv_rows(file: Any, path: Path) -> Iterator[Any]:
    """The rows of a table in text, whichever of comma, semicolon and tab separates it; an empty cell is missing."""
    csv.field_size_limit(2**31 - 1)
    separator = max(",;\t", key=file.readline().count)
    file.seek(0)
    table = csv.DictReader(file, strict=True, delimiter=separator)
    schema.check_names(table.fieldnames or (), repr(str(path)))
    for row in table:
        if None in row:
            yield BadRow(
                (
                    "row",
                    f"has {len(row[None])} more cells than the header",
                    "quote cells with the separator",
                )
            )
        elif separator == ";" and re.fullmatch(
            r"\s*[-+]?\d+,\d+\s*", row.get("human_scores") or ""
        ):
            what = f"{row['human_scores']!r} may be one score or two where semicolons separate the columns"
            yield BadRow(("human_scores", what, "write 3.5, or [3, 5]"))
        else:
            yield {name: cell if cell != "" else None for name, cell in row.items()}


def _object(line: str) -> Any:
    try:
        return _JSON.decode(line)
    except (ValueError, RecursionError) as error:
        return BadRow(("row", f"is not JSON ({error})", "repair the line"))


# -- the Hugging Face hub


def _fetch(
    name: str, adapter: Adapter, split: str | None, limit: int | None, revision: str | None
) -> datasets.Dataset:
    """A published set from the hub, with the commit that it came from; of a limit, so many rows are streamed."""
    import huggingface_hub

    choices = adapter.parts or ((adapter.split,) if adapter.files else ())
    part = _chosen(name, split or choices[0], choices) if choices else None
    commit = folder = None
    with suppress(
        Exception
    ):  # of many kinds: a copy may be here, and where there is none the next call says why
        commit = huggingface_hub.HfApi().dataset_info(name, revision=revision).sha
    at, of = commit or revision, adapter.split if part else split or adapter.split
    try:
        if adapter.files:
            folder = Path(huggingface_hub.snapshot_download(name, repo_type="dataset", revision=at))
            rows: Any = _joined(folder, adapter)[:limit]
        else:
            rows = datasets.load_dataset(
                name, part, split=of, revision=at, streaming=limit is not None
            )
            if limit is not None:
                rows = list((rows.decode(False) if rows.features else rows).take(limit))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        what = f"{name!r} could not be loaded from the hub ({type(error).__name__}: {reason})"
        terms = f"accept its terms at https://huggingface.co/datasets/{name} and log in (hf auth login, or HF_TOKEN)"
        raise CollectionError(f"{what}; if it is gated, {terms}") from error
    columns = (
        rows.column_names
        if isinstance(rows, datasets.Dataset)
        else list(rows[0] if rows else adapter.columns)
    )
    if missing := ", ".join(column for column in adapter.columns if column not in columns):
        where = f"{name!r} at {at or 'its newest commit'}"
        raise CollectionError(
            f"{where} has no columns {missing}; pass the revision= of a commit that has them"
        )
    items = _collect(rows, folder, adapter, parts=(part,))
    return _record(
        items, source=name, split=part or split or adapter.split, revision=revision, commit=commit
    )


def _record(items: datasets.Dataset, **facts: Any) -> datasets.Dataset:
    """Add to what is written down of a collection's origin."""
    items.info.description = json.dumps(origin(items) | facts)
    return items


def origin(items: datasets.Dataset) -> dict[str, Any]:
    """Where a collection comes from, as `load_collection` wrote it down: source, split, revision, commit, benchmark."""
    try:
        facts = json.loads(items.info.description or "")
    except (AttributeError, json.JSONDecodeError):
        return {}
    return facts if isinstance(facts, dict) and {"source", "benchmark"} & facts.keys() else {}
