"""Where collections come from: names, files, folders, the hub; and `rows_of`, the one way in for anybody's rows."""

from __future__ import annotations

import codecs
import csv
import difflib
import hashlib
import io
import itertools
import json
import os
import re
import uuid
import warnings
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from vjudge import photos, scenes
from vjudge.data import hub
from vjudge.data.adapters import ADAPTERS, Adapter, by_columns, by_id, hub_ids
from vjudge.data.schema import (
    CANONICAL,
    FEATURES,
    NEAR,
    BadRow,
    CollectionError,
    Problem,
    Rows,
    canonical_row,
    check_names,
    features_of,
    id_of,
    plain,
    rows_in,
    suggestion,
)
from vjudge.images import ImageError, Picture, image_bytes
from vjudge.records import IMAGE_COLUMNS, as_score, is_missing

_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}")
_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
_BLOCK = 2_000  # rows that stand in memory one by one while a collection is read
_TEXTS = ("instruction", "response", "response_a", "response_b", "reference_answer", "criteria", "feedback")


def rows_of(items: Any) -> Rows:
    """Bring whatever a person gives into canonical rows: every entrance of the package reads its rows here.

    Args:
        items: a `datasets.Dataset`, a DataFrame, a list of rows, `Item`s or `Pair`s, or what `load_collection` takes.
            Pictures may stand in any of `vjudge.records.IMAGE_COLUMNS`: each a path, bytes, an array, a PIL image, the
            {"bytes", "path"} dict of the datasets library or a data URI, one or a list.

    Returns:
        A sequence of mappings with `images` as a list, None where no column names a picture; see `canonical_row`. The
        rows of a `datasets.Dataset` are read one by one as they are asked for, with their images undecoded.

    Raises:
        CollectionError: not a collection; when it is read, a row that cannot be canonical.

    >>> rows_of([{"id": 1, "image_path": "a.png", "instruction": "What is it?", "response": "A cat."}])[0]["images"]
    ['a.png']
    """
    return rows_in(load_collection(items) if isinstance(items, (str, Path)) else items)


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
        split: which split, where there are several; "pointwise" or "pairwise" for LLaVA-Critic-113k. A single file has
            none: that is warned of, and the file is read.
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

    >>> load_collection("scenes", split="test", limit=5).num_rows
    5
    """
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise CollectionError(f"limit is {limit!r}; give the number of rows, 0 or more, or None for all")
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise CollectionError(
            f"a collection is loaded by its name or path, and this is a {type(name_or_path).__name__}; rows in memory"
            " need no loading: give them to `grade` as they are, or to vjudge.data.canonical"
        )
    if name_or_path == "scenes":
        return _typed(scenes.rows(split=split, limit=limit, seed=seed), FEATURES)
    if name_or_path == "photos":
        extras = {name: datasets.Value("string") for name in photos.EXTRAS}
        return _typed(photos.rows(split=split, limit=limit), datasets.Features({**FEATURES, **extras}))
    path = Path(name_or_path).expanduser()
    if path.exists():
        rows, file = _load_local(path, split, limit)
        adapter = _adapter_of(rows)
        part = next((part for part in adapter.parts if part in (split, file.stem)), None) if adapter else None
        folder = file if file.is_dir() else file.parent
        items = canonical(rows, folder=folder, adapter=adapter, part=part)
        split = None if path.is_file() else split
        if hub.origin(items):  # saved by the user after loading
            return items
        return hub.record(items, source=str(path), split=split, revision=None, commit=None)
    adapter = by_id(str(name_or_path))
    if adapter is not None and str(name_or_path).lower() in (id.lower() for id in adapter.ids):
        rows, images, part, facts = hub.fetch(str(name_or_path), adapter, split=split, limit=limit, revision=revision)
        return hub.record(canonical(rows, folder=images, adapter=adapter, part=part), **facts)
    if adapter is not None:
        ids = f"load it by its hub id, {adapter.ids[0]!r}" if adapter.ids else f"get it from {adapter.home}"
        raise CollectionError(f"{adapter.name}: {ids}, or give the path of its file or folder")
    if path.suffix.lower() in _SUFFIXES:
        raise CollectionError(f"there is no file {str(path)!r}; a relative path counts from {str(Path.cwd())!r}")
    known = ["scenes", "photos", *hub_ids()]
    near = [name for name in known if name.lower() == str(name_or_path).strip().lower()]
    near = near or difflib.get_close_matches(str(name_or_path), known, n=1)
    hint = f"; {near[0]!r} looks like it" if near else ""
    names = ", ".join(known)
    local = "; ".join(f"{each.name} from {each.home}" for each in ADAPTERS if each.home)
    raise CollectionError(
        f"unknown collection {str(name_or_path)!r}: no such file or folder here, and no such name{hint}"
        f". Names: {names}. Files: {', '.join(_SUFFIXES)}, or a folder of datasets.save_to_disk, in the canonical"
        f" columns or those of a published set (not on the hub: {local}). "
        "For another hub data set, pass what datasets.load_dataset returns to vjudge.data.canonical"
    )


def _typed(rows: list[dict[str, Any]], features: datasets.Features) -> datasets.Dataset:
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
            warnings.warn(f"{str(path)!r} is a single file without splits: split={split!r} says nothing", stacklevel=3)
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
    file = files[_choose(split, list(files), path)]
    return _read_file(file, limit), file


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
            raise CollectionError(f"{str(path)!r} holds no {', '.join(_SUFFIXES)} file; give a folder that does")
        what = "has several splits, and split= names none" if split is None else f"has no split {split!r}"
        raise CollectionError(f"{str(path)!r} {what}; it has: {', '.join(splits)}")
    return split


def _read_file(path: Path, limit: int | None) -> Sequence[Any]:
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            return pq.read_table(path).slice(0, limit).to_pylist()
        if suffix == ".csv":
            return _csv_rows(path, limit)
        if suffix == ".json":
            text = path.read_text("utf-8-sig")
            if text.lstrip()[:1] == "[":
                return _json_rows(text, path)[:limit]
        elif suffix != ".jsonl":
            raise CollectionError(f"{str(path)!r} is no {', '.join(_SUFFIXES)} file; convert it")
        return JsonLines(path, limit)  # some published .json files hold one object a line
    except (UnicodeDecodeError, json.JSONDecodeError, csv.Error, pa.ArrowInvalid) as error:
        raise CollectionError(f"{str(path)!r} is not a sound {suffix[1:]} file ({error}); repair it") from error


def _csv_rows(path: Path, limit: int | None) -> list[dict[str, Any]]:
    """The rows of a table in text, whichever of comma, semicolon and tab separates it; an empty cell is missing.

    Raises:
        CollectionError: what separates it is not clear, or a row has more cells than there are columns.
    """
    csv.field_size_limit(2**31 - 1)
    comma = re.compile(r"\s*[-+]?\d+,\d+\s*")  # a decimal one, where semicolons separate
    with path.open(encoding="utf-8-sig", newline="") as file:
        separator = _separator(file.read(2**16), path)
        file.seek(0)
        rows: list[dict[str, Any]] = []
        problems: list[Problem] = []
        table = csv.DictReader(file, strict=True, delimiter=separator)
        check_names(table.fieldnames or (), repr(str(path)))
        for index, row in enumerate(itertools.islice(table, limit)):
            cells = {str(name): cell if cell != "" else None for name, cell in row.items() if name is not None}
            if None in row:
                what = f"has {len(row[None])} more cells than the header has columns"
                problems.append(Problem(index, cells.get("id"), "row", what, "quote cells that hold the separator"))
            gold, people = cells.get("gold"), cells.get("human_scores")
            if separator == ";" and gold and comma.fullmatch(gold):
                cells["gold"] = gold.replace(",", ".")
            if separator == ";" and people and comma.fullmatch(people):
                what = f"{people!r} may be one score or two where semicolons separate the columns"
                problems.append(Problem(index, cells.get("id"), "human_scores", what, "write 3.5, or [3, 5]"))
            rows.append(cells)
    if problems:
        raise CollectionError(f"{len(problems)} rows of {str(path)!r} cannot be read", problems)
    return rows


def _separator(head: str, path: Path) -> str:
    """What separates the columns of a file that begins so."""
    names = {*CANONICAL, *IMAGE_COLUMNS, *itertools.chain.from_iterable(NEAR.values())}
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


def _parse(text: str) -> Any:
    """A JSON value; a number that Python refuses to read stays text, so that its row and field can be named."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 4_300 else digits)


def _fault(error: Exception) -> tuple[str, str]:
    """What is wrong with JSON that cannot be read, and what to do."""
    if isinstance(error, RecursionError):
        return "is nested too deeply", "flatten it"
    return f"is not JSON ({error})", "repair the line"


def _json_rows(text: str, path: Path) -> list[Any]:
    """The elements of a JSON array; where it cannot be read at once, one by one, to name the first bad one."""
    try:
        return list(_parse(text))
    except (ValueError, RecursionError) as error:
        index, place, decode = 0, text.index("[") + 1, json.JSONDecoder(parse_int=str).raw_decode
        while True:
            place = re.compile(r"[\s,]*").match(text, place).end()  # type: ignore[union-attr]
            try:
                place = decode(text, place)[1]
            except (ValueError, RecursionError):
                break
            index += 1
        problem = Problem(index, None, "row", *_fault(error))
        raise CollectionError(f"{str(path)!r} is not a sound json file", [problem]) from error


class JsonLines(Sequence[Any]):
    """The values of a file with one JSON value a line, read when they are asked for; empty lines count for nothing.

    Where each line begins is all that stays in memory, 8 bytes a row.

    Args:
        path: the file, in UTF-8.
        limit: at most so many lines; None for all.

    Raises:
        CollectionError: lines that are not JSON, all of them.
        UnicodeDecodeError: a line that is not UTF-8.
    """

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self._path, self._starts = path, array("q")
        problems: list[Problem] = []
        with path.open("rb") as file:
            start = len(codecs.BOM_UTF8) if file.read(3) == codecs.BOM_UTF8 else 0
            file.seek(start)
            while (limit is None or len(self._starts) < limit) and (line := file.readline()):
                if line.strip():
                    text = line.decode("utf-8")
                    try:
                        _parse(text)
                    except (ValueError, RecursionError) as error:
                        problems.append(Problem(len(self._starts), None, "row", *_fault(error)))
                    self._starts.append(start)
                start += len(line)
        if problems:
            raise CollectionError(f"{len(problems)} lines of {str(path)!r} cannot be read", problems)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        with self._path.open("rb") as file:
            file.seek(self._starts[index])
            return _parse(file.readline().decode("utf-8"))

    def __iter__(self) -> Iterator[Any]:
        with self._path.open("rb") as file:
            for start in self._starts:
                file.seek(start)
                yield _parse(file.readline().decode("utf-8"))


def canonical(
    rows: Iterable[Mapping[str, Any]],
    *,
    folder: str | Path | None = None,
    adapter: Adapter | None = None,
    part: str | None = None,
) -> datasets.Dataset:
    """Bring rows of a known schema into the canonical columns.

    Known are the canonical columns themselves, as `rows_of` takes them (optional ones may be absent), and every schema
    in `vjudge.data.adapters`, told by its columns. A row without an id gets its number. A row without a group gets its
    image's path as written, else a digest of its image's file, else its id.

    Args:
        rows: a `datasets.Dataset` or mappings.
        folder: what relative image paths count from; None leaves them as they are.
        adapter: how to read a row; None tells it from the columns of the first one.
        part: which part of the data set the rows are from, such as "pointwise".

    Returns:
        A dataset of `FEATURES`, `PAIR_FEATURES` or `CANDIDATE_FEATURES`, then the source's further columns (as text
        where their types mix), without the ready prompts and targets that published rows repeat. Rows of a published
        set that cannot be read stay, with the reason in `fault` and a warning that counts them; see `readable`.

    Raises:
        CollectionError: every row that cannot be read, with its index, id, field and remedy.
    """
    folder = None if folder is None else Path(folder)
    if isinstance(rows, datasets.Dataset):
        first: Mapping[str, Any] = dict.fromkeys(rows.column_names)
        if features_of(first).items() <= rows.features.items():
            return rows
    elif isinstance(rows, (str, Path)):
        return load_collection(rows)
    elif hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # a pandas.DataFrame
        return canonical(rows.to_dict("records"), folder=folder, adapter=adapter, part=part)
    else:
        rows = rows if hasattr(rows, "__len__") else list(rows)  # read more than once
        first = next((row for row in rows if isinstance(row, Mapping)), {})
    adapter = adapter or by_columns(first)
    pictures, rows = _set_aside(rows, empty_is_none=adapter is not None)
    if adapter and adapter.settle and part is None:
        part = adapter.settle(row for row in _raw(rows) if isinstance(row, Mapping))
    table = _Table(None if pictures is None else pictures[1], number=bool(adapter and adapter.repeats_ids))
    problems: list[Problem] = []
    for index, row in enumerate(_raw(rows)):
        try:
            table.add(_read(row, index, adapter, part, folder))
        except BadRow as bad:
            id = id_of(row) if isinstance(row, Mapping) else None
            problems += [Problem(index, id, *fault) for fault in bad.faults]
            table.add({"id": str(index) if id is None else id, "fault": _said(bad)})
    n_bad = len({problem.index for problem in problems})
    if problems and (adapter is None or adapter.strict or n_bad == len(table)):
        raise CollectionError(f"{n_bad} rows cannot be read", problems)
    dataset = table.dataset(None if pictures is None else pictures[0])
    if adapter and "fault" in dataset.column_names:
        _warn(dataset["fault"], adapter.name)
    return dataset


def readable(items: datasets.Dataset) -> datasets.Dataset:
    """The rows whose `fault` names no fault.

    Args:
        items: what `load_collection` returned.

    Returns:
        The same collection without the others, which a warning counted by reason when they were loaded; the very same
        where it has no column `fault`.
    """
    if "fault" not in items.column_names:
        return items
    return items.select([place for place, fault in enumerate(items["fault"]) if fault is None])


def _raw(rows: Any) -> Iterable[Any]:
    """Rows as they are, images undecoded."""
    if isinstance(rows, datasets.Dataset):
        batches = rows.with_format("arrow").iter(batch_size=256)
        return itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
    return rows


def _read(row: Any, index: int, adapter: Adapter | None, part: str | None, folder: Path | None) -> dict[str, Any]:
    """One row with every canonical column of its kind, then its further ones."""
    if adapter and isinstance(row, Mapping):
        row = adapter.read(row, part)
    cells, faults = canonical_row(row, folder=folder, roots=adapter.image_roots if adapter else (".",))
    if faults:
        raise BadRow(*faults)
    kind = features_of(cells)
    if adapter is None:
        _check_columns(cells, kind)
    for name in _TEXTS:
        if not isinstance(cells.get(name), str) and not is_missing(cells.get(name)):
            raise BadRow((name, f"is a {type(cells[name]).__name__}", "give a text"))
    result = {name: plain(cells.pop(name, None)) for name in kind}
    for name in {"descriptions", "responses"} & set(kind):
        if result[name] is not None and not isinstance(result[name], list):
            raise BadRow((name, "is not a list", "give a list of texts"))
    for name in {"human_scores", "ranks"} & set(kind):
        result[name] = result[name] or []
    if "gold" in kind:
        result["gold"] = as_score(result["gold"])
    if (
        adapter or result["images"] is not None
    ):  # a published set without images has none; a file may have misnamed them
        result["images"] = [_storable(picture, place) for place, picture in enumerate(result["images"] or ())]
    result["id"] = str(index if is_missing(result["id"]) else result["id"])
    result["group"] = None if is_missing(result["group"]) else str(result["group"])
    return result | cells


def _check_columns(row: Mapping[str, Any], kind: Iterable[str]) -> None:
    """Refuse a row of nobody's schema; one without a response is a question, unless something looks like a response.

    Raises:
        BadRow: with the column that is missing, and the one that looks like it.
    """
    faults = []
    for name in (
        "instruction",
        *(name for name in ("response", "response_a", "response_b", "responses") if name in kind),
    ):
        remedy = suggestion(name, row)
        if name not in row and (name != "response" or "`" in remedy):
            faults.append((name, f"there is no column {name}", remedy))
    if faults:
        raise BadRow(*faults)


def _storable(picture: Any, place: int) -> Any:
    """A picture as the datasets library stores it."""
    if isinstance(picture, Picture):
        picture = picture.source
    if isinstance(picture, str) and picture.startswith("data:"):
        try:
            return {"bytes": image_bytes(picture), "path": None}
        except ImageError as error:
            what, _, remedy = str(error).rpartition("; ")
            raise BadRow((f"images[{place}]", what, remedy)) from error
    return {"bytes": None, "path": os.fspath(picture)} if isinstance(picture, (str, os.PathLike)) else picture


def _set_aside(rows: Any, *, empty_is_none: bool) -> tuple[Any, Any]:
    """A data set's column of image files by itself, so that it never stands in memory, and the rows without it.

    Args:
        empty_is_none: whether an empty cell says that there is no image, rather than that it is missing.

    Returns:
        (column of lists, groups), or None where images come with the rows; and the rows.
    """
    if not isinstance(rows, datasets.Dataset):
        return None, rows
    name = next((name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)), None)
    if name is None:
        return None, rows
    rows = rows.flatten_indices() if rows._indices is not None else rows
    column = rows.data.column(name)
    groups: list[str | None] = []
    for chunk in column.chunks:
        for cell in chunk:
            data, path = (
                cell["bytes"].as_py() if cell.is_valid else None,
                cell["path"].as_py() if cell.is_valid else None,
            )
            groups.append(hashlib.sha256(data).hexdigest()[:16] if data is not None else path)
    return (_lists(column, empty_is_none), groups), rows.remove_columns(name).add_column(name, [None] * len(rows))


class _Table:
    """Canonical rows on their way into a dataset: in blocks of Arrow, so that few stand in memory as Python objects.

    Args:
        groups: of the rows, where their column of image files was set aside.
        number: whether to number ids that repeat, from the second on.
    """

    def __init__(self, groups: list[str | None] | None, *, number: bool) -> None:
        self._groups, self._seen = groups, Counter[str]() if number else None
        self._block: list[dict[str, Any]] = []
        self._blocks: list[datasets.Dataset] = []
        self._further: dict[str, list[Any]] = {}
        self._kind: datasets.Features | None = None  # not known before a row could be read
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def add(self, row: dict[str, Any]) -> None:
        """Take the next row."""
        if self._kind is None and "images" in row:
            self._kind = features_of(row)
        if self._seen is not None:
            self._seen[row["id"]] += 1
            if self._seen[row["id"]] > 1:
                row["id"] = f"{row['id']}#{self._seen[row['id']]}"
        row["group"] = row.get("group") or (self._groups[self._n] if self._groups else None) or row["id"]
        self._block.append(row)
        self._n += 1
        if len(self._block) >= _BLOCK and self._kind is not None:
            self._flush(self._kind)

    def _flush(self, kind: datasets.Features) -> None:
        columns: dict[str, list[Any]] = {name: [row.get(name) for row in self._block] for name in kind}
        before = self._n - len(self._block)
        for name in dict.fromkeys(itertools.chain.from_iterable(self._block)):
            if name not in kind:
                self._further.setdefault(name, [None] * before)
        for name, values in self._further.items():
            values += [row.get(name) for row in self._block]
        self._blocks.append(datasets.Dataset.from_dict(columns, kind))
        self._block = []

    def dataset(self, column: Any) -> datasets.Dataset:
        """All rows, with the column of image files that was set aside, if any."""
        if self._block or not self._blocks:
            self._flush(self._kind or features_of({}))
        whole = self._blocks[0] if len(self._blocks) == 1 else datasets.concatenate_datasets(self._blocks)
        if column is not None and len(whole):
            whole = _with_images(whole, column)
        for name, values in self._further.items():
            whole = whole.add_column(name, _column(values))
        return whole


def _lists(column: Any, empty_is_none: bool) -> Any:
    """Each cell of a column of image files as a list of one image; nothing is copied."""
    kind = datasets.Features({"images": FEATURES["images"]}).arrow_schema.field("images").type
    chunks = []
    for chunk in column.chunks:
        present = chunk.is_valid().to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(present)]), pa.int32())
        cells, mask = chunk if present.all() else chunk.drop_null(), None if empty_is_none else pa.array(~present)
        chunks.append(pa.ListArray.from_arrays(offsets, cells, type=kind, mask=mask))
    return pa.chunked_array(chunks, type=kind)


def _with_images(dataset: datasets.Dataset, column: Any) -> datasets.Dataset:
    """The dataset with another column of images; nothing is copied."""
    table = pa.table({"images": column})
    info = datasets.DatasetInfo(features=datasets.Features({"images": FEATURES["images"]}))
    # A fingerprint of our own: to make one, the library would copy the whole table.
    images = datasets.Dataset(datasets.table.InMemoryTable(table), info=info, fingerprint=uuid.uuid4().hex[:16])
    order = dataset.column_names
    return datasets.concatenate_datasets([dataset.remove_columns("images"), images], axis=1).select_columns(order)


def _warn(faults: Iterable[str | None], name: str) -> None:
    """Warn of rows that could not be read."""
    cells = list(faults)
    reasons = Counter(fault for fault in cells if fault is not None)
    if reasons:
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(5))
        more = f"; and {len(reasons) - 5} more reasons" if len(reasons) > 5 else ""
        warnings.warn(
            f"{name}: {sum(reasons.values())} of {len(cells)} rows could not be read and are kept with the reason in"
            f" `fault`: {listed}{more}; vjudge.data.readable leaves them out",
            stacklevel=3,
        )


def _said(bad: BadRow) -> str:
    return "; ".join(f"{field}: {what}" for field, what, _ in bad.faults)


def _column(values: list[Any]) -> list[Any]:
    """A further column as it is where Arrow can hold it, as text where its types mix."""
    try:
        pa.array(values)
        return values
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        whole = (value if isinstance(value, str) else json.dumps(value, default=str) for value in values)
        return [None if value is None else text for value, text in zip(values, whole, strict=True)]
