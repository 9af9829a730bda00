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
BLOCK_BYTES = 16 << 20  # of a file, about, that stand in memory as rows at once
SPLITS = ("train", "training", "validation", "valid", "val", "dev", "test", "testing")  # as a file of a split is called
_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}")
# A number that Python refuses to read stays text, so that its row and field can be named.
_JSON = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) < 4_300 else digits)


def read(path: Path, split: str | None, limit: int | None, adapters: Iterable[Adapter]) -> tuple[Any, Path]:
    """The rows of a file or folder, and the file or folder that its relative image paths count from.

    Args:
        split, limit: as for `load_collection`.
        adapters: the published sets, some of which are known by a folder.

    Raises:
        CollectionError: the folder holds no rows, or several splits of which none is chosen.
    """
    if path.is_file():
        _say_one(path, "a single file", split)
        return itertools.islice(rows_of_file(path), limit), path
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        dataset = datasets.load_from_disk(str(path))
        if isinstance(dataset, datasets.DatasetDict):
            dataset = dataset[_choose(split, list(dataset), path)]
        else:
            _say_one(path, "a folder", split)
        return dataset if limit is None else dataset.select(range(min(limit, len(dataset)))), path
    for adapter in adapters:
        if adapter.reads_folder is not None and (path / adapter.marker).is_file():
            _say_one(path, "a folder", split)
            try:
                return adapter.reads_folder(path)[:limit], path
            except (OSError, KeyError, json.JSONDecodeError) as error:
                raise CollectionError(f"{str(path)!r} looks like {adapter.name} and is not sound ({error})") from error
    if shards := _shards(path):
        name = _choose(split, list(shards), path)
        table = datasets.Dataset.from_parquet([str(file) for file in shards[name]])
        return table if limit is None else table.select(range(min(limit, len(table)))), path / name
    files = {file.stem: file for file in sorted(path.iterdir()) if file.suffix.lower() in SUFFIXES}
    if len(files) == 1 and not set(SPLITS) & set(files):
        _say_one(path, "a folder", split)
        split = None
    file = files[_choose(split, list(files), path)]
    return itertools.islice(rows_of_file(file), limit), file


def _say_one(path: Path, kind: str, split: str | None) -> None:
    """Say of a split that was asked for that there are none."""
    if split is not None:
        warnings.warn(f"{str(path)!r} is {kind} without splits: split={split!r} says nothing", stacklevel=4)


def _shards(path: Path) -> dict[str, list[Path]]:
    """The parquet files of a copy of a hub data set, by split, or by configuration where each has its own folder."""
    shards: dict[str, list[Path]] = {}
    for file in sorted([*path.glob("*.parquet"), *path.glob("*/*.parquet")]):
        if match := _SHARD.fullmatch(file.stem):
            own = file.parent.name if file.parent not in (path, path / "data") else match[1]
            shards.setdefault(own, []).append(file)
    return shards


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
    """The rows of a file, one after the other; for one that cannot be read, the `BadRow` that says why.

    Raises:
        CollectionError: the file as a whole cannot be read.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as table:
                row_groups = (table.metadata.row_group(place) for place in range(table.metadata.num_row_groups))
                bytes_a_row = max((group.total_byte_size // max(group.num_rows, 1) for group in row_groups), default=0)
                for batch in table.iter_batches(batch_size=min(256, max(1, BLOCK_BYTES // max(bytes_a_row, 1)))):
                    yield from batch.to_pylist()
        elif suffix == ".csv":
            with path.open(encoding=_encoding(path), newline="") as file:
                yield from _csv_rows(file, path)
        elif suffix in (".json", ".jsonl"):
            with path.open(encoding=_encoding(path), newline="\n") as file:
                # Some published .json files hold one object a line.
                array = suffix == ".json" and file.read(2**16).lstrip()[:1] == "["
                file.seek(0)
                yield from _json_array(file.read()) if array else _json_lines(file)
        else:
            raise CollectionError(f"{str(path)!r} is no {', '.join(SUFFIXES)} file; convert it")
    except UnicodeDecodeError as error:
        raise CollectionError(
            f"{str(path)!r} is not in UTF-8 (the byte 0x{error.object[error.start]:02x} is none of its), but probably"
            " in Latin-1 or Windows-1252, as spreadsheets write it: save it as UTF-8, or open it with"
            ' encoding="cp1252", as in pandas.read_csv(path, encoding="cp1252"), and give its rows'
        ) from error
    except (csv.Error, pa.ArrowInvalid) as error:
        raise CollectionError(f"{str(path)!r} is not a sound {suffix[1:]} file ({error}); repair it") from error


def _encoding(path: Path) -> str:
    """The encoding of a text: UTF-8, unless its first bytes say UTF-16."""
    with path.open("rb") as file:
        if file.read(2) not in (b"\xff\xfe", b"\xfe\xff"):
            return "utf-8-sig"
    warnings.warn(f"{str(path)!r} is read as UTF-16, which its first bytes say it is", stacklevel=2)
    return "utf-16"


def _csv_rows(file: Any, path: Path) -> Iterator[Any]:
    """The rows of a table in text, whichever of comma, semicolon and tab separates it; an empty cell is missing."""
    csv.field_size_limit(2**31 - 1)
    comma = re.compile(r"\s*[-+]?\d+,\d+\s*")  # a decimal one, where semicolons separate
    separator = _separator(file.read(2**16), path)
    file.seek(0)
    table = csv.DictReader(file, strict=True, delimiter=separator)
    check_names(table.fieldnames or (), repr(str(path)))
    for row in table:
        cells = {str(name): cell if cell != "" else None for name, cell in row.items() if name is not None}
        gold, people = cells.get("gold"), cells.get("human_scores")
        if None in row:
            what = f"has {len(row[None])} more cells than the header has columns"
            yield BadRow(("row", what, "quote cells that hold the separator"), id=cells.get("id"))
        elif separator == ";" and people and comma.fullmatch(people):
            what = f"{people!r} may be one score or two where semicolons separate the columns"
            yield BadRow(("human_scores", what, "write 3.5, or [3, 5]"), id=cells.get("id"))
        elif separator == ";" and gold and comma.fullmatch(gold):
            yield cells | {"gold": gold.replace(",", ".")}
        else:
            yield cells


def _separator(head: str, path: Path) -> str:
    """What separates the columns of a file that begins so.

    Raises:
        CollectionError: its header has columns in two ways.
    """
    names = {*CANONICAL, *IMAGE_COLUMNS, *" ".join(NEAR.values()).split()}
    headers = {mark: next(csv.reader(io.StringIO(head), delimiter=mark), []) for mark in ",;\t"}

    def hits(header: Iterable[str]) -> int:
        return sum(name.strip().lower() in names for name in header)

    best = max(headers, key=lambda mark: (hits(headers[mark]), len(headers[mark])))
    for mark in set(headers) - {best}:
        if any(hits(cell.split(mark)) > 1 for cell in headers[best]):
            raise CollectionError(
                f"{str(path)!r} may be separated by {best!r} or by {mark!r}: its header has columns either way; use one"
            )
    return best


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
