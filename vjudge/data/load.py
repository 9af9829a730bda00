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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from vjudge.data import benchmarks, critic, photos, prometheus, scenes
from vjudge.data.schema import (
    FEATURES,
    RESPONSES,
    Adapter,
    BadRow,
    CollectionError,
    Fault,
    Problem,
    Rows,
    canonical_row,
    check_names,
    features_of,
    frame_rows,
    group_of,
    id_of,
    plain,
    suggestion,
)
from vjudge.images import ImageError, Picture, image_bytes
from vjudge.records import Item, Pair, Rubric, as_score, is_missing

ADAPTERS: tuple[Adapter, ...] = (*prometheus.ADAPTERS, *critic.ADAPTERS, *benchmarks.ADAPTERS)
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
BLOCK = 32  # rows that stand in memory with their pictures
_SPLITS = {"train", "training", "validation", "valid", "val", "dev", "test", "testing"}  # as a split's file is called
_IMAGES = datasets.Features({"images": FEATURES["images"]})
# A number that Python refuses to read stays text, so that its row and field can be named.
_JSON = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) < 4_300 else digits)


def rows_of(items: Any) -> Rows:
    """Bring whatever a person gives into canonical rows: every entrance of the package reads its rows here.

    Args:
        items: a `datasets.Dataset`, a DataFrame, a list of rows, `Item`s or `Pair`s, or what `load_collection` takes.
            Pictures may stand in any of `vjudge.records.IMAGE_COLUMNS`: each a path, bytes, an array, a PIL image, the
            {"bytes", "path"} dict of the datasets library or a data URI, one or a list.

    Returns:
        A sequence of mappings as `canonical_row` makes them, read one by one as they are asked for, images undecoded.
        CollectionError: not a collection; when it is read, a row that cannot be canonical.

    >>> rows_of([{"id": 1, "image_path": "a.png", "instruction": "What is it?", "response": "A cat."}])[0]["images"]
    ['a.png']
    """
    if isinstance(items, (str, Path)):
        items = load_collection(items)
    if isinstance(items, Rows):
        return items
    if isinstance(items, datasets.Dataset):
        return Rows(items, items.column_names)
    if isinstance(items, datasets.DatasetDict):
        raise CollectionError(f"this is a DatasetDict; give one split of it: {', '.join(map(str, items))}")
    if hasattr(items, "to_dict") and hasattr(items, "columns"):  # a pandas.DataFrame
        return Rows(frame_rows(items), items.columns)
    if not isinstance(items, Iterable) or isinstance(items, (bytes, Mapping, Item, Pair)):
        raise CollectionError(
            f"a collection cannot be a {type(items).__name__}; give a datasets.Dataset, a DataFrame, a list of rows or"
            " Items, or a file's path"
        )
    rows = list(items)
    cells = (row if isinstance(row, Mapping) else vars(row) for row in rows if isinstance(row, (Mapping, Item, Pair)))
    return Rows(rows, itertools.chain.from_iterable(cells))


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
            or .parquet file; a folder with one, or one a split (test.jsonl), or with the files of a published set; or a
            folder written by `datasets.save_to_disk`. Columns are the canonical ones or those of any published set.
        split: which split, where there are several; "pointwise" or "pairwise" for LLaVA-Critic-113k. Of what has no
            splits it is warned that this says nothing.
        limit: at most so many rows: the first ones, in the file's order.
        seed: the seed of a generated collection; nothing else draws.
        revision: commit of a hub data set, None for the newest; schemas have changed between commits. See `origin`.
            Pictures that a hub set names by path alone (Perception-Collection's) count from the working directory.

    Returns:
        A `datasets.Dataset` with the canonical columns of items, pairs or candidates, then any further ones. Images
        decode when a row is read; relative paths count from the file's folder. Rows are not checked here: see
        `validate`. A set of questions has no responses yet: see `with_responses`. Bad rows of a published set stay,
        with the reason in `fault`: see `readable`. CollectionError: what cannot be found or read, with every bad row.

    >>> load_collection("scenes", split="test", limit=5).num_rows
    5
    """
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise CollectionError(f"limit is {limit!r}; give the number of rows, 0 or more, or None for all")
    if name_or_path in ("scenes", "photos"):
        extras = photos.EXTRAS if name_or_path == "photos" else ()
        own = photos.rows(split, limit) if extras else scenes.rows(split, limit, seed)
        features = datasets.Features({**FEATURES, **{name: datasets.Value("string") for name in extras}})
        return datasets.Dataset.from_dict({name: [row[name] for row in own] for name in features}, features)
    name, path = str(name_or_path), Path(name_or_path).expanduser()
    if path.exists():
        rows, file = _read(path, split, limit)
        folder = file if file.is_dir() else file.parent
        items = _canonical(rows, folder, parts=(split, file.stem), source=f" of {str(file)!r}")
        if origin(items).get("source"):  # saved by the user after loading
            return items
        return _record(items, source=str(path), split=None if path.is_file() else split, revision=None, commit=None)
    hub = {id.lower(): adapter for adapter in ADAPTERS for id in adapter.ids}
    if adapter := hub.get(name.lower()):
        return _fetch(name, adapter, split, limit, revision)
    names = ["scenes", "photos", *(id for adapter in ADAPTERS for id in adapter.ids)]
    near = difflib.get_close_matches(name.strip(), names, n=1)
    raise CollectionError(
        f"unknown collection {name!r}: no such name, and no such file or folder seen from {str(Path.cwd())!r}"
        f"{f'; {near[0]!r} looks like it' if near else ''}. Names: {', '.join(names)}. Files: {', '.join(SUFFIXES)}, or"
        " a folder of datasets.save_to_disk, in the canonical columns or in those of a published set. For another hub"
        " data set, pass what datasets.load_dataset returns to vjudge.data.canonical"
    )


def canonical(rows: Iterable[Mapping[str, Any]], *, folder: str | Path | None = None) -> datasets.Dataset:
    """Bring rows of a known schema into the canonical columns.

    Args:
        rows: what `rows_of` takes, in our columns or in those of a published set (`ADAPTERS`, told by its columns).
        folder: what relative image paths count from; None leaves them as they are.

    Returns:
        A dataset of `FEATURES`, `PAIR_FEATURES` or `CANDIDATE_FEATURES`, then the source's further columns (as text
        where their types mix). An id that is missing is the row's number; a group, the image's path, else a digest of
        its file, else the id. Bad rows as in `load_collection`.
    """
    if isinstance(rows, (str, Path)):
        return load_collection(rows)
    return _canonical(rows, None if folder is None else Path(folder))


def _canonical(
    rows: Any,
    folder: Path | None,
    adapter: Adapter | None = None,
    *,
    parts: Iterable[str | None] = (),
    source: str = "",
) -> datasets.Dataset:
    """As `canonical`; `parts` are names that the rows' part of the data set may have."""
    files, columns = None, []
    if isinstance(rows, datasets.Dataset):
        columns = rows.column_names
        if features_of(columns).items() <= rows.features.items():
            return rows
        rows, files = _without_images(rows)
        rows = itertools.chain.from_iterable(batch.to_pylist() for batch in rows.with_format("arrow").iter(256))
    elif hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # a pandas.DataFrame
        rows = frame_rows(rows)
    rows = iter(rows)
    head = list(itertools.islice(rows, BLOCK))
    objects = [row for row in head if isinstance(row, Mapping)]
    adapter = adapter or by_columns(objects[0] if objects else columns)
    part = next((name for name in parts if adapter and name in adapter.parts), None)
    if adapter and adapter.settle and part is None:
        part = adapter.settle(objects)
    table, problems, ids = list[dict[str, Any]](), list[Problem](), Counter[str]()

    def pictures() -> Iterator[Any]:  # of each row, whose other cells go to the table
        for index, row in enumerate(itertools.chain(head, rows)):
            try:
                cells = _cells(row, index, adapter, part, folder)
            except BadRow as bad:
                id = bad.id or (id_of(row) if isinstance(row, Mapping) else None)
                problems.extend(Problem(index, id, *fault) for fault in bad.faults)
                reason = "; ".join(f"{field}: {what}" for field, what, _ in bad.faults)
                cells = {"id": str(index) if id is None else id, "fault": reason}
            ids[cells["id"]] += 1
            if adapter and adapter.repeats_ids and ids[cells["id"]] > 1:
                cells["id"] = f"{cells['id']}#{ids[cells['id']]}"
            own = None if files is None else group_of([files[index].as_py()])
            cells["group"] = cells.get("group") or own or cells["id"]
            table.append(cells)
            yield cells.pop("images", None)

    cells, blocks = pictures(), []
    while block := list(itertools.islice(cells, BLOCK)):
        blocks.append(datasets.Dataset.from_dict({"images": block}, _IMAGES))
    if problems and (
        adapter is None
        or len({problem.index for problem in problems}) == len(table)
        or any(problem.field == "row" for problem in problems)
    ):
        raise CollectionError.of_rows(problems, len(table), source)
    reasons = Counter(row["fault"] for row in table if adapter and row.get("fault") is not None)
    if adapter and reasons:
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(5))
        more = f"; and {len(reasons) - 5} more reasons" if len(reasons) > 5 else ""
        warnings.warn(
            f"{adapter.name}: {sum(reasons.values())} of {len(table)} rows could not be read and are kept with the"
            f" reason in `fault`: {listed}{more}; vjudge.data.readable leaves them out",
            stacklevel=4,
        )
    if files is not None:
        blocks = [_lists(files, adapter is not None)]
    items = _dataset(table, blocks)
    if adapter and adapter.benchmark:
        # LLaVA-Bench's two sets have the same columns: a row says which it is of.
        own = next(iter(items["benchmark"]), None) if "benchmark" in items.column_names else None
        _record(items, benchmark=own or adapter.benchmark)
    return items


def by_columns(columns: Iterable[str]) -> Adapter | None:
    """The adapter whose columns these have; of several, the one that asks for most, then the first."""
    fitting = [adapter for adapter in ADAPTERS if set(adapter.columns) <= set(columns)]
    return max(fitting, key=lambda adapter: len(adapter.columns), default=None)


def _cells(row: Any, index: int, adapter: Adapter | None, part: str | None, folder: Path | None) -> dict[str, Any]:
    """One row with every canonical column of its kind, then its further ones."""
    if isinstance(row, BadRow):
        raise row
    if adapter and isinstance(row, Mapping):
        row = adapter.read(row, part)
    cells, faults = canonical_row(row, folder=folder, roots=adapter.image_roots if adapter else (".",))
    kind = features_of(cells)
    if adapter is None and not faults:
        faults = lacking(cells, kind)
    if faults:
        raise BadRow(*faults)
    result = {name: plain(cells.pop(name, None)) for name in kind}
    result |= {name: result[name] or [] for name in ("human_scores", "ranks") if name in kind}
    if "gold" in kind:
        result["gold"] = as_score(result["gold"])
    # A published set that names no images has none; a file may have misnamed them.
    if adapter or result["images"] is not None:
        result["images"] = [_storable(picture, place) for place, picture in enumerate(result["images"] or ())]
    result["id"] = str(index if is_missing(result["id"]) else result["id"])
    result["group"] = None if is_missing(result["group"]) else str(result["group"])
    return result | cells


def lacking(row: Mapping[str, Any], kind: Iterable[str]) -> list[Fault]:
    """What a row of nobody's schema lacks; one without a response is a question, unless something looks like one."""
    names = ["instruction", *(name for name in RESPONSES if name in kind)]
    remedies = {name: suggestion(name, row) for name in names if name not in row}
    if "`" not in remedies.get("response", "`"):
        del remedies["response"]
    return [(name, f"there is no column {name}", remedy) for name, remedy in remedies.items()]


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


def _dataset(rows: list[dict[str, Any]], images: list[datasets.Dataset]) -> datasets.Dataset:
    """Canonical rows without their images, and these, as a dataset."""
    kind = next((features_of(row) for row in rows if "instruction" in row), FEATURES)
    if not rows:
        return datasets.Dataset.from_dict({name: [] for name in kind}, kind)
    names = [name for name in dict.fromkeys(itertools.chain.from_iterable(rows)) if name not in kind]
    features = datasets.Features({name: type for name, type in kind.items() if name != "images"})
    cells = {name: [row.get(name) for row in rows] for name in (*features, *names)}
    columns = [datasets.Dataset.from_dict({name: cells[name] for name in features}, features)]
    columns.append(datasets.concatenate_datasets(images))
    if names:
        columns.append(datasets.Dataset.from_dict({name: _column(cells[name]) for name in names}))
    return datasets.concatenate_datasets(columns, axis=1).select_columns([*kind, *names])


def _column(values: list[Any]) -> list[Any]:
    """A further column as it is where Arrow can hold it, as text where its types mix."""
    try:
        pa.array(values)
        return values
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        whole = (value if isinstance(value, str) else json.dumps(value, default=str) for value in values)
        return [None if value is None else text for value, text in zip(values, whole, strict=True)]


def _without_images(rows: datasets.Dataset) -> tuple[datasets.Dataset, Any]:
    """A data set with its column of image files empty, and that column by itself, so that it never stands in memory."""
    name = next((name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)), None)
    if name is None:
        return rows, None
    rows = rows.flatten_indices() if rows._indices is not None else rows
    return rows.remove_columns(name).add_column(name, [None] * len(rows)), rows.data.column(name)


def _lists(column: Any, empty_is_none: bool) -> datasets.Dataset:
    """Each cell of a column of image files as a list of one image, an empty one as none or as missing; no copies."""
    kind, chunks = _IMAGES.arrow_schema.field("images").type, []
    for chunk in column.chunks:
        present = chunk.is_valid().to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(present)]), pa.int32())
        mask = None if empty_is_none else pa.array(~present)
        chunks.append(pa.ListArray.from_arrays(offsets, chunk.drop_null(), type=kind, mask=mask))
    table = datasets.table.InMemoryTable(pa.table({"images": pa.chunked_array(chunks, type=kind)}))
    # A fingerprint of our own: to make one, the library would copy the whole table.
    return datasets.Dataset(table, info=datasets.DatasetInfo(features=_IMAGES), fingerprint=uuid.uuid4().hex[:16])


def readable(items: datasets.Dataset) -> datasets.Dataset:
    """What `load_collection` returned without the rows that have a `fault`, which a warning counted at loading."""
    if "fault" not in items.column_names:
        return items
    return items.select([place for place, fault in enumerate(items["fault"]) if fault is None])


def with_responses(
    questions: datasets.Dataset,
    responses: Sequence[str] | Mapping[str, str],
    *,
    policy: str | None = None,
    rubric: Rubric | None = None,
) -> datasets.Dataset:
    """Put a policy's responses in a collection, so that a judge can grade them.

    Args:
        questions: a collection of items, with or without responses, such as Perception-Bench.
        responses: in the collection's order, or by id.
        policy: the name of the model that responded, which becomes the column `policy` and the end of the ids.
        rubric: for questions without one; None leaves those as they are.

    Returns:
        The collection with `response` filled; scores and feedback that an earlier response had are gone.
        CollectionError: all questions without a response, blank responses, or responses to no question.
    """
    rows = [dict(row) for row in rows_of(questions)]
    if isinstance(responses, Mapping):
        by_question = {str(id): response for id, response in responses.items()}
        if strangers := sorted(set(by_question) - {str(row["id"]) for row in rows}):
            raise CollectionError(f"{len(strangers)} responses are to no question of the collection: {strangers[:20]}")
        responses = [by_question.get(str(row["id"]), "") for row in rows]
    if isinstance(responses, str) or len(responses) != len(rows):
        count = "one text" if isinstance(responses, str) else f"{len(responses)} responses"
        raise CollectionError(f"there are {count} for {len(rows)} questions; give one for each, or a mapping by id")
    problems = []
    for index, (row, response) in enumerate(zip(rows, responses, strict=True)):
        if not isinstance(response, str) or not response.strip():
            what = ("response", "is missing or blank", "have the policy answer, or leave the row out")
            problems.append(Problem(index, str(row["id"]), *what))
        row |= {"response": response, "gold": None, "feedback": None, "human_scores": None}
        if rubric is not None and not row.get("criteria") and not row.get("descriptions"):
            row |= {"criteria": rubric.criteria, "descriptions": list(rubric.descriptions), "lowest": rubric.lowest}
        if policy is not None:
            row |= {"id": f"{row['id']}/{policy}", "policy": policy}
    if problems:
        raise CollectionError(f"{len(problems)} of {len(rows)} questions have no response:", problems)
    return _record(canonical(rows), **origin(questions))


# -- files and folders


def _read(path: Path, split: str | None, limit: int | None) -> tuple[Any, Path]:
    """The rows of a file or folder, and the file or folder that its relative image paths count from."""

    def one() -> None:  # there are no splits, and one was asked for
        if split is not None:
            kind = "a single file" if path.is_file() else "a folder"
            warnings.warn(f"{str(path)!r} is {kind} without splits: split={split!r} says nothing", stacklevel=4)

    def choose(splits: Iterable[str]) -> str:
        names = list(splits)
        if split in names or (split is None and len(names) == 1):
            return split or names[0]
        what = "has several splits, and split= names none" if split is None else f"has no split {split!r}"
        raise CollectionError(f"{str(path)!r} {what}; it has: {', '.join(names)}")

    if path.is_file():
        one()
        return itertools.islice(_rows_of_file(path), limit), path
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        dataset = datasets.load_from_disk(str(path))
        if isinstance(dataset, datasets.DatasetDict):
            dataset = dataset[choose(dataset)]
        else:
            one()
        return dataset if limit is None else dataset.select(range(min(limit, len(dataset)))), path
    for adapter in ADAPTERS:
        if adapter.files and (path / adapter.files[0]).is_file():
            one()
            return _joined(path, adapter)[:limit], path
    files = {file.stem: file for file in sorted(path.iterdir()) if file.suffix.lower() in SUFFIXES}
    if not files:
        raise CollectionError(
            f"{str(path)!r} holds no {', '.join(SUFFIXES)} file; give a folder that does. A copy of a hub repository is"
            " read by datasets.load_dataset: pass what it returns to vjudge.data.canonical"
        )
    if len(files) == 1 and not _SPLITS & set(files):
        one()
        (file,) = files.values()
    else:
        file = files[choose(files)]
    return itertools.islice(_rows_of_file(file), limit), file


def _joined(folder: Path, adapter: Adapter) -> list[dict[str, Any]]:
    """The rows of a set that comes as questions, with the answers and captions of its other files."""
    lines = [list(_rows_of_file(folder / name)) if (folder / name).is_file() else [] for name in adapter.files]
    replies = {line["question_id"]: line["text"] for line in lines[1]}
    pictures = {line["image"]: line for line in next(filter(None, lines[2:]), [])}
    rows = []
    for line in lines[0]:
        context = pictures.get(line["image"], {}).items()
        context = {name: cell for name, cell in context if name in ("caption", "captions", "instances")}
        rows.append({**line, "answer": replies.get(line["question_id"]), **context})
    return rows


def _rows_of_file(path: Path) -> Iterator[Any]:
    """The rows of a file, one after the other; for one that cannot be read, the `BadRow` that says why."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as table:
                for batch in table.iter_batches(batch_size=BLOCK):
                    yield from batch.to_pylist()
        elif suffix in (".csv", ".tsv"):
            with path.open(encoding="utf-8-sig", newline="") as file:
                yield from _csv_rows(file, path)
        elif suffix in SUFFIXES:
            with path.open(encoding="utf-8-sig", newline="\n") as file:
                # Some published .json files hold one object a line.
                array = suffix == ".json" and file.read(2**16).lstrip()[:1] == "["
                file.seek(0)
                yield from _JSON.decode(file.read()) if array else map(_object, filter(str.strip, file))
        else:
            raise CollectionError(f"{str(path)!r} is no {', '.join(SUFFIXES)} file; convert it")
    except (UnicodeDecodeError, csv.Error, json.JSONDecodeError, RecursionError, pa.ArrowInvalid) as error:
        raise CollectionError(
            f"{str(path)!r} is not a sound {suffix[1:]} file in UTF-8 ({error}); repair it"
        ) from error


def _csv_rows(file: Any, path: Path) -> Iterator[Any]:
    """The rows of a table in text, whichever of comma, semicolon and tab separates it; an empty cell is missing."""
    csv.field_size_limit(2**31 - 1)
    separator = max(",;\t", key=file.readline().count)
    file.seek(0)
    table = csv.DictReader(file, strict=True, delimiter=separator)
    check_names(table.fieldnames or (), repr(str(path)))
    for row in table:
        cells = {str(name): cell if cell != "" else None for name, cell in row.items() if name is not None}
        comma = [
            name for name in ("gold", "human_scores") if re.fullmatch(r"\s*[-+]?\d+,\d+\s*", cells.get(name) or "")
        ]
        if None in row:
            what = f"has {len(row[None])} more cells than the header has columns"
            yield BadRow(("row", what, "quote cells that hold the separator"), id=cells.get("id"))
        elif comma and separator == ";":
            what = f"{cells[comma[0]]!r} may be one score or two where semicolons separate the columns"
            yield BadRow((comma[0], what, "write 3.5, or [3, 5]"), id=cells.get("id"))
        else:
            yield cells


def _object(line: str) -> Any:
    try:
        return _JSON.decode(line)
    except RecursionError:
        return BadRow(("row", "is nested too deeply", "flatten it"))
    except ValueError as error:
        return BadRow(("row", f"is not JSON ({error})", "repair the line"))


# -- the Hugging Face hub


def _fetch(name: str, adapter: Adapter, split: str | None, limit: int | None, revision: str | None) -> datasets.Dataset:
    """A published set from the hub, with the commit that it came from."""
    import huggingface_hub

    choices = adapter.parts or ((adapter.split,) if adapter.files else ())
    if choices and split not in (None, *choices):
        raise CollectionError(f"{name!r} has no split {split!r}; it has: {', '.join(choices)}")
    part, folder = (split or adapter.parts[0] if adapter.parts else None), None
    try:
        commit = huggingface_hub.HfApi().dataset_info(name, revision=revision).sha
    except Exception:  # of many kinds: a copy may be here, and where there is none the next call says why
        commit = None
    at = commit or revision
    try:
        if adapter.files:
            folder = Path(huggingface_hub.snapshot_download(name, repo_type="dataset", revision=at))
            rows: Any = _joined(folder, adapter)[:limit]
        else:
            rows = _table(name, part, adapter.split if part else split or adapter.split, at, limit)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise CollectionError(
            f"{name!r} could not be loaded from the hub ({type(error).__name__}: {reason}); if it is gated, accept its"
            f" terms at https://huggingface.co/datasets/{name} and log in here (hf auth login, or HF_TOKEN); else"
            " correct the revision, connect to the network, or fetch it elsewhere and give load_collection its folder"
        ) from error
    columns = getattr(rows, "column_names", adapter.columns)
    if columns and (missing := [column for column in adapter.columns if column not in columns]):
        raise CollectionError(
            f"{name!r} at {at or 'its newest commit'} does not have {adapter.name}'s columns: {', '.join(missing)}"
            f" missing (found: {', '.join(columns)}); its schema has changed: pass the revision= of a commit that has"
            " them, or rename them and give the rows to vjudge.data.canonical"
        )
    items = _canonical(rows, folder, adapter, parts=(part,))
    return _record(items, source=name, split=part or split or adapter.split, revision=revision, commit=commit)


def _table(name: str, part: str | None, split: str, revision: str | None, limit: int | None) -> datasets.Dataset:
    """The table, or its first rows: these are streamed, so that a few rows of a large set cost a few rows."""
    names = [name, part] if part else [name]
    if limit is None:
        return datasets.load_dataset(*names, split=split, revision=revision)
    stream = datasets.load_dataset(*names, split=split, revision=revision, streaming=True)
    features = stream.features
    for column, kind in (features or {}).items():
        if isinstance(kind, datasets.Image):
            stream = stream.cast_column(column, datasets.Image(decode=False))
    rows = datasets.Dataset.from_list(list(stream.take(max(limit, 1))), features=features)
    return rows.select(range(min(limit, len(rows))))


def _record(items: datasets.Dataset, **facts: Any) -> datasets.Dataset:
    """Add to what is written down of a collection's origin."""
    if facts:
        items.info.description = json.dumps(origin(items) | facts)
    return items


def origin(items: datasets.Dataset) -> dict[str, Any]:
    """Where a collection comes from, as far as `load_collection` wrote it down; empty for anything else.

    Returns:
        source (hub id or path), split, revision (as asked for), commit (None if unknown or local), benchmark (its key).
    """
    try:
        facts = json.loads(items.info.description or "")
    except (AttributeError, json.JSONDecodeError):
        return {}
    return facts if isinstance(facts, dict) and {"source", "benchmark"} & facts.keys() else {}
