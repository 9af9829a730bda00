"""The rows of a file or folder: JSON, JSON lines, CSV, parquet, and what `datasets.save_to_disk` wrote."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from vjudge.data.schema import CANONICAL, NEAR, Adapter, BadRow, CollectionError, check_names
from vjudge.records import IMAGE_COLUMNS

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
BLOCK = 32  # rows that stand in memory with their pictures
SPLITS = {"train", "training", "validation", "valid", "val", "dev", "test", "testing"}  # as a split's file is called
_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}")
_NAMES = {*CANONICAL, *IMAGE_COLUMNS, *" ".join(NEAR.values()).split()}
_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
# A number that Python refuses to read stays text, so that its row and field can be named.
_JSON = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) < 4_300 else digits)


def read(path: Path, split: str | None, limit: int | None, adapters: Iterable[Adapter]) -> tuple[Any, Path]:
    """The rows of a file or folder, and the file or folder that its relative image paths count from."""
    if path.is_file():
        _say_one(path, split)
        return itertools.islice(rows_of_file(path), limit), path
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        dataset = datasets.load_from_disk(str(path))
        if isinstance(dataset, datasets.DatasetDict):
            dataset = dataset[_choose(split, list(dataset), path)]
        else:
            _say_one(path, split)
        return dataset if limit is None else dataset.select(range(min(limit, len(dataset)))), path
    for adapter in adapters:
        if adapter.files and (path / adapter.files[0]).is_file():
            _say_one(path, split)
            return joined(path, adapter)[:limit], path
    files: dict[str, list[Path]] = {}  # by split; by configuration where each has its own folder
    for file in sorted([*path.iterdir(), *path.glob("*/*.parquet")]):
        if match := _SHARD.fullmatch(file.stem):
            own = match[1] if file.parent in (path, path / "data") else file.parent.name
            files.setdefault(own, []).append(file)
        elif file.parent == path and file.suffix.lower() in SUFFIXES:
            files[file.stem] = [file]
    if len(files) == 1 and not SPLITS & set(files):
        _say_one(path, split)
        split = None
    name = _choose(split, list(files), path)
    chosen = files[name]
    if not _SHARD.fullmatch(chosen[0].stem):
        return itertools.islice(rows_of_file(chosen[0]), limit), chosen[0]
    table = datasets.Dataset.from_parquet([str(file) for file in chosen])
    return table if limit is None else table.select(range(min(limit, len(table)))), path / name


def joined(folder: Path, adapter: Adapter) -> list[dict[str, Any]]:
    """The rows of a set that comes as questions, with the answers and captions of its other files."""
    try:
        lines = [list(rows_of_file(folder / name)) if (folder / name).is_file() else [] for name in adapter.files]
        replies = {line["question_id"]: line.get("text") for line in lines[1]}
        pictures = {line.get("image"): line for line in next(filter(None, lines[2:]), [])}
        rows = []
        for line in lines[0]:
            context = pictures.get(line.get("image"), {}).items()
            context = {name: cell for name, cell in context if name in ("caption", "captions", "instances")}
            rows.append({**line, "answer": replies.get(line.get("question_id")), **context})
        return rows
    except (AttributeError, KeyError, TypeError) as error:  # a line is no object, or lacks its key
        raise CollectionError(f"{str(folder)!r} looks like {adapter.name} and is not sound ({error})") from error


def _say_one(path: Path, split: str | None) -> None:
    """Say of a split that was asked for that there are none."""
    if split is not None:
        kind = "a single file" if path.is_file() else "a folder"
        warnings.warn(f"{str(path)!r} is {kind} without splits: split={split!r} says nothing", stacklevel=4)


def _choose(split: str | None, splits: list[str], path: Path) -> str:
    if split is None and len(splits) == 1:
        return splits[0]
    if split not in splits:
        if not splits:
            raise CollectionError(f"{str(path)!r} holds no {', '.join(SUFFIXES)} file; give a folder that does")
        what = "has several splits, and split= names none" if split is None else f"has no split {split!r}"
        raise CollectionError(f"{str(path)!r} {what}; it has: {', '.join(splits)}")
    return split


def rows_of_file(path: Path) -> Iterator[Any]:
    """The rows of a file, one after the other; for one that cannot be read, the `BadRow` that says why."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as table:
                for batch in table.iter_batches(batch_size=BLOCK):
                    yield from batch.to_pylist()
        elif suffix == ".csv":
            with path.open(encoding="utf-8-sig", newline="") as file:
                yield from _csv_rows(file, path)
        elif suffix in (".json", ".jsonl"):
            with path.open(encoding="utf-8-sig", newline="\n") as file:
                # Some published .json files hold one object a line.
                array = suffix == ".json" and file.read(2**16).lstrip()[:1] == "["
                file.seek(0)
                yield from _json_array(file.read()) if array else _json_lines(file)
        else:
            raise CollectionError(f"{str(path)!r} is no {', '.join(SUFFIXES)} file; convert it")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise CollectionError(f"{str(path)!r} is not in UTF-8 (byte 0x{byte:02x}); save it as UTF-8") from error
    except (csv.Error, pa.ArrowInvalid) as error:
        raise CollectionError(f"{str(path)!r} is not a sound {suffix[1:]} file ({error}); repair it") from error


def _csv_rows(file: Any, path: Path) -> Iterator[Any]:
    """The rows of a table in text, whichever of comma, semicolon and tab separates it; an empty cell is missing."""
    csv.field_size_limit(2**31 - 1)
    head = file.read(2**16)
    file.seek(0)

    def columns(mark: str) -> tuple[int, int]:
        names = next(csv.reader(io.StringIO(head), delimiter=mark), [])
        return sum(name.strip().lower() in _NAMES for name in names), len(names)

    separator = max(",;\t", key=columns)
    table = csv.DictReader(file, strict=True, delimiter=separator)
    check_names(table.fieldnames or (), repr(str(path)))
    for row in table:
        cells = {str(name): cell if cell != "" else None for name, cell in row.items() if name is not None}
        comma = [name for name in ("gold", "human_scores") if _COMMA.fullmatch(cells.get(name) or "")]
        if None in row:
            what = f"has {len(row[None])} more cells than the header has columns"
            yield BadRow(("row", what, "quote cells that hold the separator"), id=cells.get("id"))
        elif comma and separator == ";":
            what = f"{cells[comma[0]]!r} may be one score or two where semicolons separate the columns"
            yield BadRow((comma[0], what, "write 3.5, or [3, 5]"), id=cells.get("id"))
        else:
            yield cells


def _json_lines(lines: Iterable[str]) -> Iterator[Any]:
    """The values of a text with one a line; empty lines count for nothing."""
    for line in filter(str.strip, lines):
        try:
            yield _JSON.decode(line)
        except (ValueError, RecursionError) as error:
            yield _no_json(error)


def _json_array(text: str) -> Iterator[Any]:
    """The elements of an array, up to the first that cannot be read."""
    place = text.index("[") + 1
    while True:
        place = re.compile(r"[\s,]*").match(text, place).end()  # type: ignore[union-attr]
        if text[place : place + 1] == "]" and not text[place + 1 :].strip():
            return
        try:
            row, place = _JSON.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            yield _no_json(error)
            return
        yield row


def _no_json(error: Exception) -> BadRow:
    if isinstance(error, RecursionError):
        return BadRow(("row", "is nested too deeply", "flatten it"))
    return BadRow(("row", f"is not JSON ({error})", "repair the line"))
