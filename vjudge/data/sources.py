"""Where collections come from: the generator, local files and folders, and the hub."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from vjudge import scenes
from vjudge.data.schema import FEATURES, CollectionError, Problem, canonical

HUB: dict[str, str] = {
    "kaist-ai/Perception-Collection": "train",
    "prometheus-eval/Perception-Collection": "train",
    "prometheus-eval/Feedback-Collection": "train",
    "prometheus-eval/Feedback-Bench": "train",
}
"""Data sets of the Hugging Face hub that `load_collection` knows by name -> the split loaded by default."""

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
        name_or_path: "scenes"; a hub data set in `HUB`; a .jsonl, .json, .csv or .parquet file; a folder with one
            such file, or one a split (test.jsonl); or a folder written by `datasets.save_to_disk`. Columns are the
            canonical ones or any published schema that `canonical` knows.
        split: which split, where there are several.
        limit: at most so many rows: the first ones, in the file's order.
        seed: the seed of a generated collection; nothing else draws.
        revision: commit of a hub data set; pin it, published schemas have changed.

    Returns:
        A `datasets.Dataset` with the canonical columns, then any further columns of the source. Images decode when a
        row is read; relative image paths count from the file's folder. Rows are not checked here: see `validate`.

    Raises:
        CollectionError: an unknown name, an unreadable file, a missing column, or scores that are not numbers.
    """
    if limit is not None and limit < 0:
        raise CollectionError(f"limit is {limit}; give the number of rows, 0 or more, or None for all")
    if name_or_path == "scenes":
        made = scenes.rows(split=split, limit=limit, seed=seed)
        return datasets.Dataset.from_list(made, features=FEATURES).select_columns(list(FEATURES))
    path = Path(name_or_path).expanduser()
    if path.exists():
        dataset, folder = _load_local(path, split, limit)
        return canonical(dataset, folder=folder)
    if str(name_or_path) in HUB:
        return canonical(_load_hub(str(name_or_path), split, limit, revision))
    names = ", ".join(["scenes", *HUB])
    raise CollectionError(
        f"unknown collection {str(name_or_path)!r}: no such file or folder here, and no such name. Names: {names}. "
        f"Files: {', '.join(_SUFFIXES)}, or a folder of datasets.save_to_disk. "
        "For another hub data set, pass what datasets.load_dataset returns to vjudge.data.canonical"
    )


def _load_local(path: Path, split: str | None, limit: int | None) -> tuple[Any, Path]:
    """The rows of a file or folder, and what its relative image paths count from."""
    if path.is_file():
        if split is not None:
            raise CollectionError(f"{str(path)!r} is a single file without splits; leave split= out")
        return _read_file(path, limit), path.parent
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        dataset = datasets.load_from_disk(str(path))
        splits = list(dataset) if isinstance(dataset, datasets.DatasetDict) else []
        if splits or split is not None:
            dataset = dataset[_choose(split, splits, path)]
        return dataset if limit is None else dataset.select(range(min(limit, len(dataset)))), path
    files = {file.stem: file for file in sorted(path.iterdir()) if file.suffix.lower() in _SUFFIXES}
    return _read_file(files[_choose(split, list(files), path)], limit), path


def _choose(split: str | None, splits: list[str], path: Path) -> str:
    if split is None and len(splits) == 1:
        return splits[0]
    if split not in splits:
        known = ", ".join(splits) or f"none, and no {', '.join(_SUFFIXES)} file"
        raise CollectionError(f"{str(path)!r} has no split {split!r}; it has: {known}")
    return split


def _read_file(path: Path, limit: int | None) -> list[Any]:
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
        with path.open(encoding="utf-8-sig") as lines:  # some published .json files hold one object a line
            return _json_lines(itertools.islice((line for line in lines if line.strip()), limit), path)
    except (UnicodeDecodeError, json.JSONDecodeError, csv.Error, pa.ArrowInvalid) as error:
        raise CollectionError(f"{str(path)!r} is not a sound {suffix[1:]} file ({error}); repair it") from error


def _json_lines(lines: Iterable[str], path: Path) -> list[Any]:
    rows: list[Any] = []
    problems: list[Problem] = []
    for index, line in enumerate(lines):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            problems.append(Problem(index, None, "row", f"is not JSON ({error})", "repair the line"))
    if problems:
        raise CollectionError(f"{len(problems)} lines of {str(path)!r} cannot be read", problems)
    return rows


def _csv_row(row: dict[str | None, Any]) -> dict[str, Any]:
    """A CSV row: an empty cell is missing, and a list stands as JSON in its cell."""
    cells = {name: value if value != "" else None for name, value in row.items() if name is not None}
    for name in ("images", "descriptions", "human_scores"):
        cell = cells.get(name)
        if isinstance(cell, str) and cell.startswith("["):
            cells[name] = json.loads(cell)
    return cells


def _load_hub(name: str, split: str | None, limit: int | None, revision: str | None) -> datasets.Dataset:
    wanted = (split or HUB[name]) + ("" if limit is None else f"[:{limit}]")
    try:
        return datasets.load_dataset(name, split=wanted, revision=revision)
    except Exception as error:  # the hub's client raises many kinds
        raise CollectionError(
            f"{name!r} could not be loaded from the hub ({type(error).__name__}: {error}); connect to the network, or "
            "fetch it elsewhere, write it with save_to_disk, and give load_collection that folder"
        ) from error
