"""Where collections come from: the generator, local files and folders, and the hub."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from vjudge import photos, scenes
from vjudge.data import hub
from vjudge.data.adapters import ADAPTERS, Adapter, by_columns, by_id, hub_ids
from vjudge.data.lines import JsonLines
from vjudge.data.rows import canonical
from vjudge.data.schema import FEATURES, CollectionError

_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}")
_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")


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
        name_or_path: "scenes" or "photos"; the hub id of a published data set (`vjudge.data.adapters`); a .jsonl,
            .json, .csv or .parquet file; a folder with one such file, or one a split (test.jsonl), or with the files
            that a published set consists of, such as a copy of its hub repository; or a folder written by
            `datasets.save_to_disk`. Columns are the canonical ones or those of any published set.
        split: which split, where there are several; "pointwise" or "pairwise" for LLaVA-Critic-113k.
        limit: at most so many rows: the first ones, in the file's order.
        seed: the seed of a generated collection; nothing else draws.
        revision: commit of a hub data set; published schemas have changed. None takes the one in `data.PINNED`, else
            the newest. `origin` says which one was loaded.

    Returns:
        A `datasets.Dataset` with the canonical columns of items, pairs or candidates, then any further columns of the
        source. Images decode when a row is read; relative image paths count from the file's folder. Rows are not
        checked here: see `validate`. A set of questions has no responses yet: see `with_responses`. Rows of a
        published set that cannot be read stay, with the reason in `fault`: see `readable`.

    Raises:
        CollectionError: an unknown name, a set that is gated or out of reach, an unreadable file, a missing column, or
            scores that are not numbers.
    """
    if limit is not None and limit < 0:
        raise CollectionError(f"limit is {limit}; give the number of rows, 0 or more, or None for all")
    if name_or_path == "scenes":
        return _made(scenes.rows(split=split, limit=limit, seed=seed), FEATURES)
    if name_or_path == "photos":
        extras = {name: datasets.Value("string") for name in photos.EXTRAS}
        return _made(photos.rows(split=split, limit=limit), datasets.Features({**FEATURES, **extras}))
    path = Path(name_or_path).expanduser()
    if path.exists():
        rows, file = _load_local(path, split, limit)
        adapter = _adapter_of(rows)
        part = next((part for part in adapter.parts if part in (split, file.stem)), None) if adapter else None
        folder = file if file.is_dir() else file.parent
        items = canonical(rows, folder=folder, adapter=adapter, part=part)
        if hub.origin(items):  # saved by the user after loading
            return items
        return hub.record(items, source=str(path), split=split, revision=None, commit=None)
    adapter = by_id(str(name_or_path))
    if adapter is not None and str(name_or_path).lower() in (id.lower() for id in adapter.ids):
        return hub.load(str(name_or_path), adapter, split=split, limit=limit, revision=revision)
    if adapter is not None:
        ids = f"load it by its hub id, {adapter.ids[0]!r}" if adapter.ids else f"get it from {adapter.home}"
        raise CollectionError(f"{adapter.name}: {ids}, or give the path of its file or folder")
    names = ", ".join(["scenes", "photos", *hub_ids()])
    local = "; ".join(f"{each.name} from {each.home}" for each in ADAPTERS if each.home)
    raise CollectionError(
        f"unknown collection {str(name_or_path)!r}: no such file or folder here, and no such name. Names: {names}. "
        f"Files: {', '.join(_SUFFIXES)}, or a folder of datasets.save_to_disk, in the canonical columns or those of a "
        f"published set (not on the hub: {local}). "
        "For another hub data set, pass what datasets.load_dataset returns to vjudge.data.canonical"
    )


def _made(rows: list[dict[str, Any]], features: datasets.Features) -> datasets.Dataset:
    """Rows of our own collections; there may be none."""
    return datasets.Dataset.from_dict({name: [row[name] for row in rows] for name in features}, features)


def _adapter_of(rows: Any) -> Adapter | None:
    """The published set that rows look like, with its columns checked."""
    if isinstance(rows, datasets.Dataset):
        return None if FEATURES.items() <= rows.features.items() else by_columns(rows.column_names)
    return by_columns(next((row for row in rows if isinstance(row, dict)), {}))


def _load_local(path: Path, split: str | None, limit: int | None) -> tuple[Any, Path]:
    """The rows of a file or folder, and the file or folder that its relative image paths count from."""
    if path.is_file():
        if split is not None:
            raise CollectionError(f"{str(path)!r} is a single file without splits; leave split= out")
        return _read_file(path, limit), path
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        dataset = datasets.load_from_disk(str(path))
        splits = list(dataset) if isinstance(dataset, datasets.DatasetDict) else []
        if splits or split is not None:
            dataset = dataset[_choose(split, splits, path)]
        return dataset if limit is None else dataset.select(range(min(limit, len(dataset)))), path
    for adapter in ADAPTERS:
        if adapter.reads_folder is not None and (path / adapter.marker).is_file():
            try:
                return adapter.reads_folder(path)[:limit], path
            except (OSError, KeyError, json.JSONDecodeError) as error:
                raise CollectionError(f"{str(path)!r} looks like {adapter.name} and is not sound ({error})") from error
    if shards := _shards(path):
        name = _choose(split, list(shards), path)
        table = datasets.Dataset.from_parquet([str(file) for file in shards[name]])
        return table if limit is None else table.select(range(min(limit, len(table)))), path / name
    files = {file.stem: file for file in sorted(path.iterdir()) if file.suffix.lower() in _SUFFIXES}
    chosen = files[_choose(split, list(files), path)]
    return _read_file(chosen, limit), chosen


def _shards(path: Path) -> dict[str, list[Path]]:
    """The parquet files of a copy of a hub data set, by split, or by configuration where each has its own folder."""
    found: dict[str, list[Path]] = {}
    for file in sorted([*path.glob("*.parquet"), *path.glob("*/*.parquet")]):
        if match := _SHARD.fullmatch(file.stem):
            own = file.parent.name if file.parent not in (path, path / "data") else match[1]
            found.setdefault(own, []).append(file)
    return found


def _choose(split: str | None, splits: list[str], path: Path) -> str:
    if split is None and len(splits) == 1:
        return splits[0]
    if split not in splits:
        known = ", ".join(splits) or f"none, and no {', '.join(_SUFFIXES)} file"
        raise CollectionError(f"{str(path)!r} has no split {split!r}; it has: {known}")
    return split


def _read_file(path: Path, limit: int | None) -> Sequence[Any]:
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            return pq.read_table(path).slice(0, limit).to_pylist()
        if suffix == ".csv":
            csv.field_size_limit(2**31 - 1)
            with path.open(encoding="utf-8-sig", newline="") as file:
                return [_csv_row(row) for row in itertools.islice(csv.DictReader(file, strict=True), limit)]
        if suffix == ".json":
            text = path.read_text("utf-8-sig")
            if text.lstrip()[:1] == "[":
                return json.loads(text)[:limit]
        elif suffix != ".jsonl":
            raise CollectionError(f"{str(path)!r} is no {', '.join(_SUFFIXES)} file; convert it")
        return JsonLines(path, limit)  # some published .json files hold one object a line
    except (UnicodeDecodeError, json.JSONDecodeError, csv.Error, pa.ArrowInvalid) as error:
        raise CollectionError(f"{str(path)!r} is not a sound {suffix[1:]} file ({error}); repair it") from error


def _csv_row(row: dict[str | None, Any]) -> dict[str, Any]:
    """A CSV row: an empty cell is missing, and a list stands as JSON in its cell."""
    cells = {name: value if value != "" else None for name, value in row.items() if name is not None}
    for name in ("images", "descriptions", "human_scores"):
        cell = cells.get(name)
        if isinstance(cell, str) and cell.startswith("["):
            cells[name] = json.loads(cell)
    return cells
