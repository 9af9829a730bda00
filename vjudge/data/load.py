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
    rows_in,
    suggestion,
)
from vjudge.images import ImageError, Picture, image_bytes
from vjudge.records import Rubric, as_score, is_missing

_BLOCK = 2_000  # rows that stand in memory one by one while a collection is read
_HEAD = 200  # rows that tell what a collection is
_OF_THE_RESPONSE = ("gold", "feedback", "human_scores")  # what an earlier response was given
_TEXTS = ("instruction", "response", "response_a", "response_b", "reference_answer", "criteria", "feedback")


ADAPTERS: tuple[Adapter, ...] = (
    prometheus.PERCEPTION_COLLECTION,
    prometheus.PERCEPTION_BENCH,
    prometheus.FEEDBACK_COLLECTION,
    prometheus.FEEDBACK_BENCH,
    prometheus.PREFERENCE_COLLECTION,
    prometheus.EVALUATION_ROWS,
    prometheus.TRAINING_ROWS,
    critic.LLAVA_CRITIC_113K,
    benchmarks.VL_REWARDBENCH,
    benchmarks.MULTIMODAL_REWARDBENCH,
    benchmarks.MLLM_JUDGE_SCORE,
    benchmarks.MLLM_JUDGE_PAIR,
    benchmarks.MLLM_JUDGE_BATCH,
    benchmarks.LLAVA_BENCH_WILD,
    benchmarks.LLAVA_BENCH_WILD_TABLE,
    benchmarks.LLAVA_BENCH_COCO,
    benchmarks.LLAVA_BENCH_COCO_FOLDER,
    benchmarks.VISIT_BENCH,
    benchmarks.HHH,
    benchmarks.MT_BENCH,
)


def by_id(name: str) -> Adapter | None:
    """The adapter of a hub id or of a data set's own name, in any case of letters."""
    for adapter in ADAPTERS:
        if name.lower() in (known.lower() for known in (*adapter.ids, adapter.name)):
            return adapter
    return None


def by_columns(columns: Iterable[str]) -> Adapter | None:
    """The adapter whose signature these columns have; of several, the one that asks for most, then the first."""
    fitting = [adapter for adapter in ADAPTERS if adapter.fits(columns)]
    return max(fitting, key=lambda adapter: len(adapter.signature or adapter.columns), default=None)


def hub_ids() -> tuple[str, ...]:
    """Every hub id that is known."""
    return tuple(id for adapter in ADAPTERS for id in adapter.ids)


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
        name_or_path: "scenes" or "photos"; the hub id of a published data set (`ADAPTERS`); a .jsonl,
            .json, .csv or .parquet file; a folder with one such file, or one a split (test.jsonl), or with the files
            that a published set consists of, such as a copy of its hub repository; or a folder written by
            `datasets.save_to_disk`. Columns are the canonical ones or those of any published set.
        split: which split, where there are several; "pointwise" or "pairwise" for LLaVA-Critic-113k. A single file, or
            a folder saved without splits, has none: that is warned of, and it is read.
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
    if not isinstance(name_or_path, (str, os.PathLike)) or not str(name_or_path).strip():
        kind = type(name_or_path).__name__ if not isinstance(name_or_path, str) else "blank text"
        raise CollectionError(
            f"a collection is loaded by its name or path, and this is a {kind}; rows in memory need no loading: give"
            " them to `grade` as they are, or to vjudge.data.canonical"
        )
    if name_or_path == "scenes":
        return _typed(scenes.rows(split=split, limit=limit, seed=seed), FEATURES)
    if name_or_path == "photos":
        extras = {name: datasets.Value("string") for name in photos.EXTRAS}
        return _typed(photos.rows(split=split, limit=limit), datasets.Features({**FEATURES, **extras}))
    name, path = str(name_or_path), Path(name_or_path).expanduser()
    if path.exists():
        rows, file = files.read(path, split, limit, ADAPTERS)
        folder = file if file.is_dir() else file.parent
        items = _canonical(rows, folder, parts=(split, file.stem), source=f" of {str(file)!r}")
        if hub.origin(items).get("source"):  # saved by the user after loading
            return items
        return hub.record(items, source=str(path), split=None if path.is_file() else split, revision=None, commit=None)
    adapter = by_id(name)
    if adapter is not None and name.lower() in (id.lower() for id in adapter.ids):
        revision = revision or hub.pinned(name, hub_ids())
        rows, images, part, facts = hub.fetch(name, adapter, split=split, limit=limit, revision=revision)
        return hub.record(_canonical(rows, images, adapter, parts=(part,)), **facts)
    if adapter is not None:
        ids = f"load it by its hub id, {adapter.ids[0]!r}" if adapter.ids else f"get it from {adapter.home}"
        raise CollectionError(f"{adapter.name}: {ids}, or give the path of its file or folder")
    if path.suffix.lower() in files.SUFFIXES:
        raise CollectionError(f"there is no file {str(path)!r}; a relative path counts from {str(Path.cwd())!r}")
    names = ["scenes", "photos", *hub_ids()]
    near = [other for other in names if other.lower() == name.strip().lower()]
    near = near or difflib.get_close_matches(name, names, n=1)
    hint = f"; {near[0]!r} looks like it" if near else ""
    local = "; ".join(f"{adapter.name} from {adapter.home}" for adapter in ADAPTERS if adapter.home)
    raise CollectionError(
        f"unknown collection {name!r}: no such file or folder here, and no such name{hint}. Names: {', '.join(names)}."
        f" Files: {', '.join(files.SUFFIXES)}, or a folder of datasets.save_to_disk, in the canonical columns or in"
        f" those of a published set (not on the hub: {local}). For another hub data set, pass what"
        " datasets.load_dataset returns to vjudge.data.canonical"
    )


def _typed(rows: list[dict[str, Any]], features: datasets.Features) -> datasets.Dataset:
    """Rows of our own collections; there may be none."""
    return datasets.Dataset.from_dict({name: [row[name] for row in rows] for name in features}, features)


def canonical(rows: Iterable[Mapping[str, Any]], *, folder: str | Path | None = None) -> datasets.Dataset:
    """Bring rows of a known schema into the canonical columns.

    Known are the canonical columns themselves, as `rows_of` takes them (optional ones may be absent), and every schema
    in `ADAPTERS`, told by its columns. A row without an id gets its number. A row without a group gets its
    image's path as written, else a digest of its image's file, else its id.

    Args:
        rows: a `datasets.Dataset`, a DataFrame, mappings, or what `load_collection` takes.
        folder: what relative image paths count from; None leaves them as they are.

    Returns:
        A dataset of `FEATURES`, `PAIR_FEATURES` or `CANDIDATE_FEATURES`, then the source's further columns (as text
        where their types mix), without the ready prompts and targets that published rows repeat. Rows of a published
        set that cannot be read stay, with the reason in `fault` and a warning that counts them; see `readable`.

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
    """As `canonical`.

    Args:
        adapter: how to read a row; None tells it from the columns of the first one.
        parts: names that may be that of the part of the data set that the rows are from.
        source: where they are from, for messages.
    """
    images = None
    empty: Mapping[str, Any] = {}
    if isinstance(rows, datasets.Dataset):
        empty = dict.fromkeys(rows.column_names)
        if features_of(empty).items() <= rows.features.items():
            return rows
        rows, images = _without_images(rows)
        rows = itertools.chain.from_iterable(batch.to_pylist() for batch in rows.with_format("arrow").iter(256))
    elif hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # a pandas.DataFrame
        rows = frame_rows(rows)
    rows = iter(rows)
    head: list[Any] = []
    for row in rows:
        head.append(row)
        if isinstance(row, Mapping):
            break
    adapter = adapter or by_columns(next((row for row in head if isinstance(row, Mapping)), empty))
    part = next((name for name in parts if adapter and name in adapter.parts), None)
    if adapter and adapter.settle and part is None:
        head += itertools.islice(rows, _HEAD)
        part = adapter.settle(row for row in head if isinstance(row, Mapping))
    groups = itertools.repeat(None) if images is None else (group_of([cell.as_py()]) for cell in images)
    ids = Counter[str]()
    table, problems, reasons = _Table(), [], Counter[str]()
    for index, (row, group) in enumerate(zip(itertools.chain(head, rows), groups, strict=False)):
        try:
            cells = _read(row, index, adapter, part, folder)
        except BadRow as bad:
            id = bad.id or (id_of(row) if isinstance(row, Mapping) else None)
            problems += [Problem(index, id, *fault) for fault in bad.faults]
            cells = {"id": str(index) if id is None else id}
            cells["fault"] = "; ".join(f"{field}: {what}" for field, what, _ in bad.faults)
        ids[cells["id"]] += 1
        if adapter and adapter.repeats_ids and ids[cells["id"]] > 1:
            cells["id"] = f"{cells['id']}#{ids[cells['id']]}"
        cells["group"] = cells.get("group") or group or cells["id"]
        reasons.update([cells["fault"]] if adapter and cells.get("fault") is not None else [])
        table.add(cells)
    n_bad = len({problem.index for problem in problems})
    whole = adapter is None or adapter.strict or n_bad == table.n_rows
    if problems and (whole or any(problem.field == "row" for problem in problems)):
        raise CollectionError.of_rows(problems, table.n_rows, source)
    if adapter and reasons:
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(5))
        more = f"; and {len(reasons) - 5} more reasons" if len(reasons) > 5 else ""
        warnings.warn(
            f"{adapter.name}: {sum(reasons.values())} of {table.n_rows} rows could not be read and are kept with the"
            f" reason in `fault`: {listed}{more}; vjudge.data.readable leaves them out",
            stacklevel=4,
        )
    items = table.dataset(None if images is None else _lists(images, empty_is_none=adapter is not None))
    if adapter and adapter.benchmark:
        # LLaVA-Bench's two sets have the same columns: a row says which it is of.
        own = next(iter(items["benchmark"]), None) if "benchmark" in items.column_names else None
        hub.record(items, benchmark=own or adapter.benchmark)
    return items


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
        policy: the name of the model that responded: it becomes the column `policy`, and ids end in "/" and the name,
            so that several policies' items can stand in one collection.
        rubric: for questions without one; None leaves those as they are.

    Returns:
        The collection with `response` filled; scores and feedback that an earlier response had are gone.

    Raises:
        CollectionError: a question without a response, a response that is blank or no text, or one to no question; all
            of them.
    """
    rows = [dict(row) for row in rows_of(questions)]
    if isinstance(responses, Mapping):
        by_id = {str(id): response for id, response in responses.items()}
        if strangers := sorted(set(by_id) - {str(row["id"]) for row in rows}):
            raise CollectionError(f"{len(strangers)} responses are to no question of the collection: {strangers[:20]}")
        answers = [by_id.get(str(row["id"])) for row in rows]
    elif isinstance(responses, str) or len(responses) != len(rows):
        count = "one text" if isinstance(responses, str) else f"{len(responses)} responses"
        raise CollectionError(f"there are {count} for {len(rows)} questions; give one for each, or a mapping by id")
    else:
        answers = list(responses)
    remedy = "have the policy answer, or leave the row out"
    problems = [
        Problem(index, str(row["id"]), "response", "is missing or blank", remedy)
        for index, (row, answer) in enumerate(zip(rows, answers, strict=True))
        if not isinstance(answer, str) or not answer.strip()
    ]
    if problems:
        raise CollectionError(f"{len(problems)} of {len(rows)} questions have no response:", problems)
    for row, answer in zip(rows, answers, strict=True):
        row["response"] = answer
        row.update(dict.fromkeys(_OF_THE_RESPONSE))
        if rubric is not None and is_missing(row.get("criteria")) and not row.get("descriptions"):
            row |= {"criteria": rubric.criteria, "descriptions": list(rubric.descriptions), "lowest": rubric.lowest}
        if policy is not None:
            row |= {"id": f"{row['id']}/{policy}", "policy": policy}
    answered = canonical(rows)
    facts = {name: fact for name, fact in hub.origin(questions).items() if name not in ("rows", "unreadable")}
    return hub.record(answered, **facts) if facts else answered


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
    """Refuse a row of nobody's schema; one without a response is a question, unless something looks like a response.

    Raises:
        BadRow: with the column that is missing, and the one that looks like it.
    """
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


def _without_images(rows: datasets.Dataset) -> tuple[datasets.Dataset, Any]:
    """A data set with its column of image files empty, and that column by itself, so that it never stands in memory."""
    name = next((name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)), None)
    if name is None:
        return rows, None
    rows = rows.flatten_indices() if rows._indices is not None else rows
    return rows.remove_columns(name).add_column(name, [None] * len(rows)), rows.data.column(name)


def _lists(column: Any, *, empty_is_none: bool) -> Any:
    """Each cell of a column of image files as a list of one image; nothing is copied.

    Args:
        empty_is_none: whether an empty cell says that there is no image, rather than that it is missing.
    """
    kind = datasets.Features({"images": FEATURES["images"]}).arrow_schema.field("images").type
    chunks = []
    for chunk in column.chunks:
        present = chunk.is_valid().to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(present)]), pa.int32())
        mask = None if empty_is_none else pa.array(~present)
        chunks.append(pa.ListArray.from_arrays(offsets, chunk.drop_null(), type=kind, mask=mask))
    return pa.chunked_array(chunks, type=kind)


class _Table:
    """Canonical rows on their way into a dataset: in blocks of Arrow, so that few stand in memory as Python objects."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._block: list[dict[str, Any]] = []
        self._bytes = 0  # of the block's images
        self._blocks: list[datasets.Dataset] = []
        self._further: dict[str, list[Any]] = {}
        self._kind: datasets.Features | None = None  # not known before a row could be read

    def add(self, row: dict[str, Any]) -> None:
        """Take the next row."""
        if self._kind is None and "images" in row:
            self._kind = features_of(row)
        self._block.append(row)
        self.n_rows += 1
        for picture in row.get("images") or ():
            self._bytes += len(picture.get("bytes") or b"") if isinstance(picture, Mapping) else 0
        if self._kind is not None and (len(self._block) >= _BLOCK or self._bytes >= files.BLOCK_BYTES):
            self._flush(self._kind)

    def _flush(self, kind: datasets.Features) -> None:
        before = self.n_rows - len(self._block)
        for name in dict.fromkeys(itertools.chain.from_iterable(self._block)):
            if name not in kind:
                self._further.setdefault(name, [None] * before)
        for name, values in self._further.items():
            values += [row.get(name) for row in self._block]
        columns = {name: [row.get(name) for row in self._block] for name in kind}
        self._blocks.append(datasets.Dataset.from_dict(columns, kind))
        self._block, self._bytes = [], 0

    def dataset(self, images: Any) -> datasets.Dataset:
        """All rows, with another column of images, if any."""
        if self._block or not self._blocks:
            self._flush(self._kind or FEATURES)
        whole = self._blocks[0] if len(self._blocks) == 1 else datasets.concatenate_datasets(self._blocks)
        if images is not None and len(whole):
            info = datasets.DatasetInfo(features=datasets.Features({"images": FEATURES["images"]}))
            table = datasets.table.InMemoryTable(pa.table({"images": images}))
            # A fingerprint of our own: to make one, the library would copy the whole table.
            column = datasets.Dataset(table, info=info, fingerprint=uuid.uuid4().hex[:16])
            parts, order = [whole.remove_columns("images"), column], whole.column_names
            whole = datasets.concatenate_datasets(parts, axis=1).select_columns(order)
        for name, values in self._further.items():
            whole = whole.add_column(name, _column(values))
        return whole


def _column(values: list[Any]) -> list[Any]:
    """A further column as it is where Arrow can hold it, as text where its types mix."""
    try:
        pa.array(values)
        return values
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        whole = (value if isinstance(value, str) else json.dumps(value, default=str) for value in values)
        return [None if value is None else text for value, text in zip(values, whole, strict=True)]
