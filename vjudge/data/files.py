"""The rows of local files and folders, their cells unchanged."""

from __future__ import annotations

import codecs
import csv
import itertools
import json
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from vjudge.data.adapters import ADAPTERS, llava_bench_rows
from vjudge.data.notes import warn
from vjudge.data.schema import CollectionError, check_names

SUFFIXES = ".jsonl .json .csv .tsv .parquet".split()
METADATA = "metadata"  # what `datasets` calls the table in a folder of images
_SPLITS = "train validation valid val dev test".split()  # usual names of splits


def splits_of(path: Path) -> dict:
    """Find the splits of a file or a folder.

    Returns:
        Split -> its rows, its data set or the path of its file. The split of a source without
        splits is called "".

    Raises:
        CollectionError: the folder holds no file of rows.
    """
    # 1) saved by `datasets`
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        saved = datasets.load_from_disk(str(path))
        return saved if isinstance(saved, dict) else {"": saved}

    # 2) a file
    if path.is_file():
        return {"": path}

    # 3) the files of a published set, whose name then tells what the columns are
    for adapter in ADAPTERS:
        if adapter.files and (path / adapter.files[0]).is_file():
            tables = map(rows_of_file, map(path.joinpath, adapter.files))
            return {adapter.name: llava_bench_rows(tables)}

    # 4) a file per split: test.jsonl -> "test"; in a folder of images test/metadata.csv -> "test"
    splits = {}
    for file in [*sorted(path.iterdir()), *sorted(path.glob(f"*/{METADATA}.*"))]:
        if file.suffix.lower() in SUFFIXES:
            splits[file.stem if file.parent == path else file.parent.name] = file
    if not splits:
        raise CollectionError(
            f"{str(path)!r} holds no {', '.join(SUFFIXES)} file; give one that does, or pass rows"
            " or a frame (pandas.read_excel of a sheet)"
        )
    return splits


def chosen(source: str | Path, split: str | None, names: Collection[str]) -> str:
    """Choose one of a source's splits.

    Args:
        source: name or path of the source, for messages.
        split: the one that the user asked for, or None.
        names: of all splits. A source with one name has no splits, unless the name is a usual one
            such as "test": then a split that was asked for is ignored with a warning.

    Raises:
        CollectionError: several splits and none chosen, or no split of that name.
    """
    if split in names:
        return str(split)
    only = next(iter(names))  # the first name, which is returned where there is no other one
    if len(names) > 1 or (split is not None and only in _SPLITS):
        raise CollectionError(f"{str(source)!r} has no split {split!r}; it has: {', '.join(names)}")
    if split is not None:
        warn(f"{str(source)!r} is without splits: split={split!r} says nothing")
    return only


def rows_of_file(path: Path) -> Any:
    """Read the rows of a file: a data set from parquet, else a list.

    Raises:
        CollectionError: the file is broken or of an unknown kind; the message names the line where
            the parser knows it.
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
        read = _csv_rows if suffix in (".csv", ".tsv") else _json_rows
        return read(path)
    except (ValueError, csv.Error, RecursionError) as error:
        raise CollectionError(
            f"{str(path)!r} is not a valid {suffix[1:]} file in UTF-8 ({error}); repair it, or save"
            " it as UTF-8"
        ) from error


# The standard library reads text files, because it leaves cells unchanged. `datasets` and pandas
# rename columns with equal names, shift a line with one cell too many, turn "007" into 7, 1 into
# 1.0 and "NA" into a missing value, and don't name a bad line, or a row that is no object.


def _json_rows(path: Path) -> list:
    """Read JSON rows: the entries of an array, or one object per line.

    The text decides which of the two, and not the file's ending: some published .json files have
    one object per line.

    Raises:
        ValueError: a line is no JSON, or the file is one object over several lines.
    """
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
            # Where the whole text is valid, it is one object over several lines: say that instead.
            with suppress(ValueError):
                json.loads(text)
                reason = "it holds one object: take its list of rows, and pass that"
            raise ValueError(reason) from error
    return rows


class Table(list):
    """The rows of a CSV or TSV file, with its decimal sign; None where the file does not tell."""

    decimal: str | None = None


def _csv_rows(path: Path) -> Table:
    """Read a table whose cells are separated by commas, semicolons or tabs.

    An empty cell is missing. A file separated by semicolons has decimal commas. Columns without a
    name are named as pandas names them, "Unnamed: 3"; empty rows at the end are left out.

    Raises:
        ValueError, csv.Error: a line has more cells than the header, or cannot be parsed.
        CollectionError: two columns have the same name.
    """
    csv.field_size_limit(2**31 - 1)  # bytes of a cell: the most that every platform allows
    utf_16 = path.read_bytes()[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    rows = Table()
    with path.open(encoding="utf-16" if utf_16 else "utf-8-sig", newline="") as file:
        # 1) the separator: what Excel's line "sep=;" above the header says, else the candidate
        #    that the header has most often outside of quotes
        header = file.readline()
        separator = max(",;\t", key=re.sub('"[^"]*"', "", header).count)
        if header.lower().startswith("sep="):
            separator = header[4]
        else:
            file.seek(0)
        rows.decimal = {",": ".", ";": ","}.get(separator)

        # 2) the columns' names, then the rows; short rows are filled up with missing cells
        table = csv.reader(file, strict=True, delimiter=separator)
        names = [name or f"Unnamed: {index}" for index, name in enumerate(next(table, []))]
        check_names(names, "the table")
        for cells in table:
            while len(cells) > len(names) and not cells[-1]:  # separators at the line's end
                cells.pop()
            if len(cells) > len(names):
                raise ValueError(
                    f"line {table.line_num} has more cells than the header: quote cells with the"
                    " separator"
                )
            if cells:
                filled = [cell or None for cell in cells]
                rows.append(dict(itertools.zip_longest(names, filled)))
    while rows and not any(rows[-1].values()):
        rows.pop()
    return rows
