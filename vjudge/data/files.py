"""The rows of local files and folders, as they stand there."""

from __future__ import annotations

import codecs
import csv
import itertools
import json
import re
import warnings
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from vjudge.data.adapters import ADAPTERS, llava_bench_rows
from vjudge.data.schema import CollectionError, check_names

SUFFIXES = ".jsonl .json .csv .tsv .parquet".split()
METADATA = "metadata"  # what `datasets` calls the table in a folder of pictures
_SPLITS = "train validation valid val dev test".split()


def splits_of(path: Path) -> dict:
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
    splits = {}
    for file in [*sorted(path.iterdir()), *sorted(path.glob(f"*/{METADATA}.*"))]:
        if file.suffix.lower() in SUFFIXES:
            # of a folder of pictures the table is called metadata, one a split
            splits[file.stem if file.parent == path else file.parent.name] = file
    if not splits:
        reason = f"{str(path)!r} holds no {', '.join(SUFFIXES)} file; give one that does"
        raise CollectionError(f"{reason}, or pass rows or a frame (pandas.read_excel of a sheet)")
    return splits


def chosen(source: str | Path, split: str | None, names: Collection[str]) -> str:
    """One of several splits; a warning where a split is asked of what has none."""
    if split in names:
        return str(split)
    only = next(iter(names))
    if len(names) > 1 or (split is not None and only in _SPLITS):
        raise CollectionError(f"{str(source)!r} has no split {split!r}; it has: {', '.join(names)}")
    if split is not None:
        reason = f"{str(source)!r} is without splits: split={split!r} says nothing"
        warnings.warn(reason, stacklevel=3)
    return only


def rows_of_file(path: Path) -> Any:
    """The rows of a file: a list, or of parquet a data set.

    Raises:
        CollectionError: not sound, or of another kind; it names the line where it can.
    """
    suffix = path.suffix.lower()
    if suffix in (".xlsx", ".xls", ".ods"):
        raise CollectionError(
            f"{str(path)!r} is a spreadsheet: save it as CSV (UTF-8), or pass what"
            " pandas.read_excel returns to load_collection"
        )
    try:
        if suffix == ".parquet":
            return datasets.Dataset(pq.read_table(path))
        return (_csv_rows if suffix in (".csv", ".tsv") else _json_rows)(path)
    except (ValueError, csv.Error, RecursionError) as error:
        reason = f"{str(path)!r} is not a sound {suffix[1:]} file in UTF-8 ({error})"
        raise CollectionError(f"{reason}; repair it, or save it as UTF-8") from error


# Text files are read by the standard library, row by row as they stand: `datasets` and pandas give
# twin columns new names, shift a line of one cell too many, make 7 of "007", 1.0 of 1 and nothing
# of "NA", and of a bad line, or a row that is no object, name neither line nor row.


def _json_rows(path: Path) -> list:
    """The entries of an array, or of one object a line, as some published .json files are."""
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip().startswith("["):
        return list(json.loads(text))
    rows = []
    for number, row_text in enumerate(text.split("\n"), start=1):
        if not row_text.strip():
            continue
        try:
            rows.append(json.loads(row_text))
        except ValueError as error:
            reason = f"line {number}: {error}"
            with suppress(ValueError):
                json.loads(text)
                reason = "it holds one object: take its list of rows, and pass that"
            raise ValueError(reason) from error
    return rows


class Table(list):
    """The rows of a text file, with its decimal sign; None where nothing tells it."""

    decimal: str | None = None


def _csv_rows(path: Path) -> Table:
    """The rows of a table, separated by comma, semicolon or tab; an empty cell is missing.

    A file separated by semicolons has decimal commas. Columns without a name are called as pandas
    calls them, and empty rows at its end are left out.
    """
    csv.field_size_limit(2**31 - 1)
    utf_16 = path.read_bytes()[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    rows = Table()
    with path.open(encoding="utf-16" if utf_16 else "utf-8-sig", newline="") as file:
        # 1) the separator: Excel's own line before the header, else the header's commonest
        header = file.readline()
        separator = max(",;\t", key=re.sub('"[^"]*"', "", header).count)
        if header.lower().startswith("sep="):
            separator = header[4]
        else:
            file.seek(0)
        rows.decimal = {",": ".", ";": ","}.get(separator)

        # 2) the columns, then the rows
        table = csv.reader(file, strict=True, delimiter=separator)
        names = [name or f"Unnamed: {index}" for index, name in enumerate(next(table, []))]
        check_names(names, "the table")
        for cells in table:
            while len(cells) > len(names) and not cells[-1]:
                cells.pop()
            if len(cells) > len(names):
                reason = f"line {table.line_num} has more cells than the header"
                raise ValueError(f"{reason}: quote cells with the separator")
            if cells:
                filled = [cell or None for cell in cells]
                rows.append(dict(itertools.zip_longest(names, filled)))
    while rows and not any(rows[-1].values()):
        rows.pop()
    return rows
