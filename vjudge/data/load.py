"""Where collections come from: names, files, folders, the hub; and `rows_of`, the one way in for anybody's rows."""

from __future__ import annotations

import difflib
import itertools
import json
import os
import uuid
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from vjudge import photos, scenes
from vjudge.data import benchmarks, critic, files, hub, prometheus
from vjudge.data.schema import (
    FEATURES,
    Adapter,
    BadRow,
    CollectionError,
    Problem,
    Rows,
    canonical_row,
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
_TEXTS = ("instruction", "response", "response_a", "response_b", "reference_answer", "criteria", "feedback")
_IMAGES = datasets.Features({"images": FEATURES["images"]})


def by_id(name: str) -> Adapter | None:
    """The adapter of a hub id or of a data set's own name, in any case of letters."""
    names = {id.lower(): adapter for adapter in ADAPTERS for id in (*adapter.ids, adapter.name)}
    return names.get(name.lower())


def by_columns(columns: Iterable[str]) -> Adapter | None:
    """The adapter whose columns these have; of several, the one that asks for most, then the first."""
    fitting = [adapter for adapter in ADAPTERS if set(adapter.columns) <= set(columns)]
    return max(fitting, key=lambda adapter: len(adapter.columns), default=None)


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
        name_or_path: "scenes" or "photos"; the hub id of a published data set (`ADAPTERS`); a .jsonl, .json, .csv or
            .parquet file; a folder with one, or one a split (test.jsonl), or with the files of a published set; or a
            folder written by `datasets.save_to_disk`. Columns are the canonical ones or those of any published set.
        split: which split, where there are several; "pointwise" or "pairwise" for LLaVA-Critic-113k. Of what has no
            splits it is warned that this says nothing.
        limit: at most so many rows: the first ones, in the file's order.
        seed: the seed of a generated collection; nothing else draws.
        revision: commit of a hub data set; None takes the one in `data.PINNED`, else the newest. See `origin`.

    Returns:
        A `datasets.Dataset` with the canonical columns of items, pairs or candidates, then any further columns of the
        source. Images decode when a row is read; relative image paths count from the file's folder. Rows are not
        checked here: see `validate`. A set of questions has no responses yet: see `with_responses`. Bad rows of a
        published set stay, with the reason in `fault`: see `readable`.

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
    if name_or_path in ("scenes", "photos"):
        extras = photos.EXTRAS if name_or_path == "photos" else ()
        own = photos.rows(split, limit) if extras else scenes.rows(split, limit, seed)
        features = datasets.Features({**FEATURES, **{name: datasets.Value("string") for name in extras}})
        return datasets.Dataset.from_dict({name: [row[name] for row in own] for name in features}, features)
    name, path = str(name_or_path), Path(name_or_path).expanduser()
    if path.exists():
        rows, file = files.read(path, split, limit, ADAPTERS)
        folder = file if file.is_dir() else file.parent
        items = _canonical(rows, folder, parts=(split, file.stem), source=f" of {str(file)!r}")
        if hub.origin(items).get("source"):  # saved by the user after loading
            return items
        return hub.record(items, source=str(path), split=None if path.is_file() else split, revision=None, commit=None)
    adapter, ids = by_id(name), [id for adapter in ADAPTERS for id in adapter.ids]
    if adapter and name.lower() in (id.lower() for id in adapter.ids):
        revision = revision or hub.pinned(name, ids)
        rows, pictures, part, facts = hub.fetch(name, adapter, split=split, limit=limit, revision=revision)
        return hub.record(_canonical(rows, pictures, adapter, parts=(part,)), **facts)
    if adapter:
        remedy = f"load it by its hub id, {adapter.ids[0]!r}" if adapter.ids else f"get it from {adapter.home}"
        raise CollectionError(f"{adapter.name}: {remedy}, or give the path of its file or folder")
    if path.suffix.lower() in files.SUFFIXES:
        raise CollectionError(f"there is no file {str(path)!r}; a relative path counts from {str(Path.cwd())!r}")
    names = {name.lower(): name for name in ("scenes", "photos", *ids)}
    near = difflib.get_close_matches(name.strip().lower(), names, n=1)
    raise CollectionError(
        f"unknown collection {name!r}: no such file or folder here, and no such name"
        f"{f'; {names[near[0]]!r} looks like it' if near else ''}. Names: {', '.join(names.values())}. Files:"
        f" {', '.join(files.SUFFIXES)}, or a folder of datasets.save_to_disk, in the canonical columns or in those of a"
        " published set. For another hub data set, pass what datasets.load_dataset returns to vjudge.data.canonical"
    )


def canonical(rows: Iterable[Mapping[str, Any]], *, folder: str | Path | None = None) -> datasets.Dataset:
    """Bring rows of a known schema into the canonical columns.

    Known are the canonical columns, as `rows_of` takes them (optional ones may be absent), and every schema in
    `ADAPTERS`, told by its columns.

    Args:
        rows: a `datasets.Dataset`, a DataFrame, mappings, or what `load_collection` takes.
        folder: what relative image paths count from; None leaves them as they are.

    Returns:
        A dataset of `FEATURES`, `PAIR_FEATURES` or `CANDIDATE_FEATURES`, then the source's further columns (as text
        where their types mix). An id that is missing is the row's number; a group, the image's path, else a digest of
        its file, else the id. Bad rows of a published set stay, with the reason in `fault`; see `readable`.

    Raises:
        CollectionError: every row that cannot be read, with its index, id, field and remedy.
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
    images, columns = None, []
    if isinstance(rows, datasets.Dataset):
        columns = rows.column_names
        if features_of(dict.fromkeys(columns)).items() <= rows.features.items():
            return rows
        rows, images = _without_images(rows)
        rows = itertools.chain.from_iterable(batch.to_pylist() for batch in rows.with_format("arrow").iter(256))
    elif hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # a pandas.DataFrame
        rows = frame_rows(rows)
    rows = iter(rows)
    head = list(itertools.islice(rows, files.BLOCK))
    objects = [row for row in head if isinstance(row, Mapping)]
    adapter = adapter or by_columns(objects[0] if objects else columns)
    part = next((name for name in parts if adapter and name in adapter.parts), None)
    if adapter and adapter.settle and part is None:
        part = adapter.settle(objects)
    groups = itertools.repeat(None) if images is None else (group_of([cell.as_py()]) for cell in images)
    table, problems, ids = list[dict[str, Any]](), list[Problem](), Counter[str]()
    block, blocks = list[Any](), list[datasets.Dataset]()  # of images: few stand in memory as Python's
    for index, (row, group) in enumerate(zip(itertools.chain(head, rows), groups, strict=False)):
        try:
            cells = _read(row, index, adapter, part, folder)
        except BadRow as bad:
            id = bad.id or (id_of(row) if isinstance(row, Mapping) else None)
            problems += [Problem(index, id, *fault) for fault in bad.faults]
            reason = "; ".join(f"{field}: {what}" for field, what, _ in bad.faults)
            cells = {"id": str(index) if id is None else id, "fault": reason}
        ids[cells["id"]] += 1
        if adapter and adapter.repeats_ids and ids[cells["id"]] > 1:
            cells["id"] = f"{cells['id']}#{ids[cells['id']]}"
        cells["group"] = cells.get("group") or group or cells["id"]
        block.append(cells.pop("images", None))
        table.append(cells)
        if len(block) == files.BLOCK:
            blocks.append(datasets.Dataset.from_dict({"images": block}, _IMAGES))
            block = []
    blocks.append(datasets.Dataset.from_dict({"images": block}, _IMAGES))
    n_rows, whole = len(table), adapter is None or adapter.strict
    whole = whole or len({problem.index for problem in problems}) == n_rows
    if problems and (whole or any(problem.field == "row" for problem in problems)):
        raise CollectionError.of_rows(problems, n_rows, source)
    reasons = Counter(row["fault"] for row in table if adapter and row.get("fault") is not None)
    if adapter and reasons:
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(5))
        more = f"; and {len(reasons) - 5} more reasons" if len(reasons) > 5 else ""
        warnings.warn(
            f"{adapter.name}: {sum(reasons.values())} of {n_rows} rows could not be read and are kept with the"
            f" reason in `fault`: {listed}{more}; vjudge.data.readable leaves them out",
            stacklevel=4,
        )
    pictures = datasets.concatenate_datasets(blocks) if images is None else _lists(images, adapter is not None)
    items = _dataset(table, pictures)
    if adapter and adapter.benchmark:
        # LLaVA-Bench's two sets have the same columns: a row says which it is of.
        own = next(iter(items["benchmark"]), None) if "benchmark" in items.column_names else None
        hub.record(items, benchmark=own or adapter.benchmark)
    return items


def _read(row: Any, index: int, adapter: Adapter | None, part: str | None, folder: Path | None) -> dict[str, Any]:
    """One row with every canonical column of its kind, then its further ones."""
    if isinstance(row, BadRow):
        raise row
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
    # A published set that names no images has none; a file may have misnamed them.
    if adapter or result["images"] is not None:
        result["images"] = [_storable(picture, place) for place, picture in enumerate(result["images"] or ())]
    result["id"] = str(index if is_missing(result["id"]) else result["id"])
    result["group"] = None if is_missing(result["group"]) else str(result["group"])
    return result | cells


def _check_columns(row: Mapping[str, Any], kind: Iterable[str]) -> None:
    """Refuse a row of nobody's schema; one without a response is a question, unless something looks like a response."""
    names = ["instruction", *(name for name in ("response", "response_a", "response_b", "responses") if name in kind)]
    remedies = {name: suggestion(name, row) for name in names if name not in row}
    if "`" not in remedies.get("response", "`"):
        del remedies["response"]
    if remedies:
        raise BadRow(*((name, f"there is no column {name}", remedy) for name, remedy in remedies.items()))


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


def _dataset(rows: list[dict[str, Any]], images: datasets.Dataset) -> datasets.Dataset:
    """Canonical rows without their images, and these, as a dataset."""
    kind = next((features_of(row) for row in rows if "instruction" in row), FEATURES)
    if not rows:
        return datasets.Dataset.from_dict({name: [] for name in kind}, kind)
    names = [name for name in dict.fromkeys(itertools.chain.from_iterable(rows)) if name not in kind]
    features = datasets.Features({name: type for name, type in kind.items() if name != "images"})
    cells = {name: [row.get(name) for row in rows] for name in (*features, *names)}
    columns = [datasets.Dataset.from_dict({name: cells[name] for name in features}, features), images]
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
    kind = _IMAGES.arrow_schema.field("images").type
    chunks = []
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

    Raises:
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
        if rubric is not None and is_missing(row.get("criteria")) and not row.get("descriptions"):
            row |= {"criteria": rubric.criteria, "descriptions": list(rubric.descriptions), "lowest": rubric.lowest}
        if policy is not None:
            row |= {"id": f"{row['id']}/{policy}", "policy": policy}
    if problems:
        raise CollectionError(f"{len(problems)} of {len(rows)} questions have no response:", problems)
    facts = {name: fact for name, fact in hub.origin(questions).items() if name not in ("rows", "unreadable")}
    return hub.record(canonical(rows), **facts) if facts else canonical(rows)
