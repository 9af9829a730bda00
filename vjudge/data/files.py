"""The rows of local files and folders, as they stand there."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from vjudge.data.adapters import ADAPTERS, llava_bench_rows
from vjudge.data.schema import CollectionError, check_names

SUFFIXES = ".jsonl .json .csv .tsv .parquet".split()
_SPLITS = "train validation valid val dev test".split()


def parts_of(path: Path) -> dict:
    """What a file or a folder holds, by split; "" is the name of what has none."""
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        saved = datasets.load_from_disk(str(path))
        return saved if isinstance(saved, dict) else {"": saved}
    if path.is_file():
        return {"": path}
    for adapter in ADAPTERS:
        if adapter.files and (path / adapter.files[0]).is_file():
            tables = map(rows_of_file, map(path.joinpath, adapter.files))
            return {adapter.name: llava_bench_rows(tables)}
    parts = {file.stem: file for file in sorted(path.iterdir()) if file.suffix.lower() in SUFFIXES}
    if not parts:
        what = f"{str(path)!r} holds no {', '.join(SUFFIXES)} file; give one that does"
        raise CollectionError(f"{what}, or pass rows to vjudge.data.canonical")
    return parts


def chosen(place: str | Path, split: str | None, names: Collection[str]) -> str:
    """One of several splits; a warning where a split is asked of what has none."""
    if split in names:
        return str(split)
    only = next(iter(names))
    if len(names) > 1 or (split is not None and only in _SPLITS):
        raise CollectionError(f"{str(place)!r} has no split {split!r}; it has: {', '.join(names)}")
    if split is not None:
        what = f"{str(place)!r} is without splits: split={split!r} says nothing"
        warnings.warn(what, stacklevel=3)
    return only


def rows_of_file(path: Path) -> Any:
    """The rows of a file: a list, or of parquet a data set.

    Raises:
        CollectionError: not sound, or of another kind; it names the line where it can.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            return datasets.Dataset(pq.read_table(path))
        if suffix in (".csv", ".tsv"):
            return _csv_rows(path)
        return _json_rows(path)
    except (ValueError, csv.Error, RecursionError) as error:
        what = f"{str(path)!r} is not a sound {suffix[1:]} file in UTF-8 ({error}); repair it"
        raise CollectionError(what) from error


# Text files are read by the standard library, row by row as they stand: `datasets` and pandas give
# twin columns new names, shift a line of one cell too many, make 7 of "007", 1.0 of 1 and nothing
# of "NA", and of a bad line, or a row that is no object, name neither line nor row.


def _json_rows(path: Path) -> list:
    """The entries of an array, or of one object a line, as some published .json files are."""
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip().startswith("["):
        return list(json.loads(text))
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return rows


def _csv_rows(path: Path) -> list:
    """The rows of a table, separated by comma, semicolon or tab; an empty cell is missing."""
    csv.field_size_limit(2**31 - 1)
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = file.readline()
        separator = max(",;\t", key=header.count)
        file.seek(0)
        table = csv.DictReader(file, strict=True, delimiter=separator)
        check_names(table.fieldnames or (), "the table")
        rows = []
        for row in table:
            if None in row:
                what = f"line {table.line_num} has more cells than the header"
                raise ValueError(f"{what}: quote cells with the separator")
            rows.append({name: cell or None for name, cell in row.items()})
    return rows
