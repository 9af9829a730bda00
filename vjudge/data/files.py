"""The rows of local files and folders, as they stand there."""

from __future__ import annotations

import csv
import itertools
import json
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from vjudge.data.adapters import ADAPTERS
from vjudge.data.rows import BLOCK
from vjudge.data.schema import BadRow, CollectionError, check_names

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
OTHER_SETS = (
    "Of another hub data set, pass what datasets.load_dataset returns to vjudge.data.canonical"
)
_SPLITS = {"train", "training", "validation", "valid", "val", "dev", "test", "testing"}


def _integer(digits: str) -> int | str:
    """A number that Python refuses to read stays text, so that its row and field can be named."""
    return int(digits) if len(digits) < 4_300 else digits


_JSON = json.JSONDecoder(parse_int=_integer)


def read(path: Path, split: str | None, limit: int | None) -> tuple[Any, Path]:
    """The rows of a file or folder, and the place that its relative image paths count from."""
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        return _saved(path, split, limit), path
    for adapter in ADAPTERS:
        if adapter.files and (path / adapter.files[0]).is_file():
            chosen(path, split)
            return joined(path, adapter.files)[:limit], path
    if path.is_file():
        found = {path.stem: path}
    else:
        found = {
            file.stem: file for file in sorted(path.iterdir()) if file.suffix.lower() in SUFFIXES
        }
    if not found:
        what = f"{str(path)!r} holds no {', '.join(SUFFIXES)} file; give one that does"
        raise CollectionError(f"{what}. {OTHER_SETS}")
    has_splits = path.is_dir() and (len(found) > 1 or _SPLITS & set(found))
    name = chosen(path, split, found if has_splits else ()) or next(iter(found))
    return itertools.islice(_rows_of_file(found[name]), limit), found[name]


def _saved(path: Path, split: str | None, limit: int | None) -> datasets.Dataset:
    saved = datasets.load_from_disk(str(path))
    if isinstance(saved, datasets.DatasetDict):
        saved = saved[chosen(path, split, saved)]
    else:
        chosen(path, split)
    return saved if limit is None else saved.select(range(min(limit, len(saved))))


def chosen(place: str | Path, split: str | None, names: Collection[str] = ()) -> str:
    """One of several splits; "" where there are none, with a warning if one was asked for."""
    if not names:
        if split is not None:
            what = f"{str(place)!r} is without splits: split={split!r} says nothing"
            warnings.warn(what, stacklevel=5)
        return ""
    if split in names:
        return str(split)
    if split is None and len(names) == 1:
        return next(iter(names))
    what = "has several splits, and split= names none"
    if split is not None:
        what = f"has no split {split!r}"
    raise CollectionError(f"{str(place)!r} {what}; it has: {', '.join(names)}")


def joined(folder: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a set that comes as questions, with the answers and captions of other files."""
    tables = []
    for name in names:
        file = folder / name
        tables.append(list(_rows_of_file(file)) if file.is_file() else [])
    questions, answers, *captions = tables
    answer_of = {line["question_id"]: line["text"] for line in answers}
    picture_of: dict[str, Any] = {}
    for lines in captions:  # the first file that is there
        if lines and not picture_of:
            picture_of = {line["image"]: line for line in lines}
    for line in questions:
        facts = dict(picture_of.get(line["image"], {}))
        facts["answer"] = answer_of.get(line["question_id"])
        for name in ("answer", "caption", "captions", "instances"):
            if name in facts:
                line[name] = facts[name]
    return questions


def _rows_of_file(path: Path) -> Iterator[Any]:
    """The rows of a file; in place of one that cannot be read, the `BadRow` that says why."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise CollectionError(f"{str(path)!r} is no {', '.join(SUFFIXES)} file; convert it")
    try:
        if suffix == ".parquet":
            yield from _parquet_rows(path)
        elif suffix in (".csv", ".tsv"):
            yield from _csv_rows(path)
        else:
            yield from _json_rows(path)
    except (ValueError, csv.Error, RecursionError, pa.ArrowInvalid) as error:
        if isinstance(error, CollectionError):
            raise
        what = f"{str(path)!r} is not a sound {suffix[1:]} file in UTF-8 ({error}); repair it"
        raise CollectionError(what) from error


def _parquet_rows(path: Path) -> Iterator[Any]:
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as table:
        for batch in table.iter_batches(batch_size=BLOCK):
            yield from batch.to_pylist()


def _json_rows(path: Path) -> Iterator[Any]:
    """The entries of an array, or of one object a line, as some published .json files are."""
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        if path.suffix.lower() == ".json" and file.read(2**16).lstrip()[:1] == "[":
            file.seek(0)
            yield from _JSON.decode(file.read())
            return
        file.seek(0)
        for line in filter(str.strip, file):
            try:
                yield _JSON.decode(line)
            except (ValueError, RecursionError) as error:
                yield BadRow(("row", f"is not JSON ({error})", "repair the line"))


def _csv_rows(path: Path) -> Iterator[Any]:
    """The rows of a table, separated by comma, semicolon or tab; an empty cell is missing."""
    csv.field_size_limit(2**31 - 1)
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = file.readline()
        separator = max(",;\t", key=header.count)
        file.seek(0)
        table = csv.DictReader(file, strict=True, delimiter=separator)
        check_names(table.fieldnames or (), repr(str(path)))
        for row in table:
            yield _csv_row(row, separator)


def _csv_row(row: dict[Any, Any], separator: str) -> Any:
    if None in row:
        what = f"has {len(row[None])} more cells than the header"
        return BadRow(("row", what, "quote cells with the separator"))
    scores = row.get("human_scores") or ""
    if separator == ";" and re.fullmatch(r"\s*[-+]?\d+,\d+\s*", scores):
        what = f"{scores!r} may be one score or two where semicolons separate the columns"
        return BadRow(("human_scores", what, "write 3.5, or [3, 5]"))
    return {name: None if cell == "" else cell for name, cell in row.items()}
