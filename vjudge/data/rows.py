"""Rows of any known schema -> the canonical columns."""

from __future__ import annotations

import hashlib
import json
import uuid
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from vjudge.data.adapters import Adapter, BadRow, by_columns
from vjudge.data.schema import FEATURES, CollectionError, Problem, features_of, plain, rows_of
from vjudge.images import ImageError, image_bytes
from vjudge.records import as_score, is_missing

_BLOCK = 2_000  # rows that stand in memory one by one while a collection is read
_TEXTS = ("instruction", "response", "response_a", "response_b", "reference_answer", "criteria", "feedback")


def canonical(
    rows: Iterable[Mapping[str, Any]],
    *,
    folder: str | Path | None = None,
    adapter: Adapter | None = None,
    part: str | None = None,
) -> datasets.Dataset:
    """Bring rows of a known schema into the canonical columns.

    Known are the canonical columns themselves (`image` for a single one; optional ones may be absent) and every schema
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
    else:
        rows = rows if hasattr(rows, "__len__") else list(rows)  # read more than once
        first = next((row for row in rows_of(rows) if isinstance(row, Mapping)), {})
    pictures, rows = _set_aside(rows)
    adapter = adapter or by_columns(first)
    if adapter and adapter.settle and part is None:
        part = adapter.settle(row for row in rows_of(rows) if isinstance(row, Mapping))
    made = _Made(None if pictures is None else pictures[1], number=bool(adapter and adapter.repeats_ids))
    problems: list[Problem] = []
    for index, row in enumerate(rows_of(rows)):
        try:
            made.add(_read(row, index, adapter, part, folder))
        except BadRow as bad:
            id = row.get("id") if isinstance(row, Mapping) else None
            problems += [Problem(index, None if id is None else str(id), *fault) for fault in bad.faults]
            made.add({"id": str(index if id is None else id), "fault": _said(bad)})
    n_bad = len({problem.index for problem in problems})
    if problems and (adapter is None or adapter.strict or n_bad == len(made)):
        raise CollectionError(f"{n_bad} rows cannot be read", problems)
    dataset = made.dataset(None if pictures is None else pictures[0])
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


def _read(row: Any, index: int, adapter: Adapter | None, part: str | None, folder: Path | None) -> dict[str, Any]:
    """One row with every canonical column of its kind, then its further ones."""
    if not isinstance(row, Mapping):
        raise BadRow(("row", f"is a {type(row).__name__}", "write one object with named columns for each row"))
    found = dict(adapter.read(row, part) if adapter else _as_it_is(row))
    kind = features_of(found)
    for name in _TEXTS:
        if not isinstance(found.get(name), str) and not is_missing(found.get(name)):
            raise BadRow((name, f"is a {type(found[name]).__name__}", "give a text"))
    known = {name: plain(found.pop(name, None)) for name in kind}
    for name in {"descriptions", "responses"} & set(kind):
        if known[name] is not None and not isinstance(known[name], list):
            raise BadRow((name, "is not a list", "give a list of texts"))
    try:
        for name in {"human_scores", "ranks"} & set(kind):
            known[name] = [as_score(score) for score in known[name] or ()]
        if "gold" in kind:
            known["gold"] = as_score(known["gold"])
    except (ValueError, TypeError) as error:
        raise BadRow(("gold or human_scores", str(error), "give numbers, or None where unknown")) from error
    pictures = known["images"]
    pictures = pictures if isinstance(pictures, list) else [] if pictures is None else [pictures]
    roots = adapter.image_roots if adapter else (".",)
    known["images"] = [_image(picture, folder, roots, place) for place, picture in enumerate(pictures)]
    known["id"] = str(index if is_missing(known["id"]) else known["id"])
    known["group"] = _group(pictures) if is_missing(known["group"]) else str(known["group"])
    return known | found


def _as_it_is(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row that has the canonical columns already."""
    kind = features_of(row)
    answered = [name for name in ("response", "response_a", "response_b", "responses") if name in kind]
    for name in ("instruction", *answered):
        if name not in row:
            raise BadRow((name, f"there is no column {name}", "add or rename it"))
    made = {name: value for name, value in row.items() if name != "image"}
    return made if "images" in row else made | {"images": row.get("image")}


def _image(picture: Any, folder: Path | None, roots: tuple[str, ...], place: int) -> Any:
    """An image as the datasets library stores it; relative paths count from `folder`, or from a root seen from it."""
    if isinstance(picture, str) and picture.startswith("data:"):
        try:
            return {"bytes": image_bytes(picture), "path": None}
        except ImageError as error:
            what, _, remedy = str(error).rpartition("; ")
            raise BadRow((f"images[{place}]", what, remedy)) from error
    path = picture.get("path") if isinstance(picture, Mapping) and picture.get("bytes") is None else picture
    if not isinstance(path, (str, Path)):
        return picture
    if folder is None or "://" in str(path):
        return {"bytes": None, "path": str(path)}
    places = [folder / root / path for root in roots]
    return {"bytes": None, "path": str(next((there for there in places if there.is_file()), places[0]))}


def _group(pictures: list[Any]) -> str | None:
    """What rows of the same images share; None where nothing tells."""
    names = []
    for picture in pictures:
        data = picture.get("bytes") if isinstance(picture, Mapping) else picture
        if isinstance(data, str) and not data.startswith("data:"):
            names.append(data)
        elif isinstance(data, bytes):
            names.append(hashlib.sha256(data).hexdigest()[:16])
        elif isinstance(picture, Mapping) and isinstance(picture.get("path"), str):
            names.append(picture["path"])
    return " ".join(names) or None


def _set_aside(rows: Any) -> tuple[Any, Any]:
    """A data set's column of image files by itself, so that it never stands in memory, and the rows without it.

    Returns:
        (column, groups), or None where images come with the rows; and the rows.
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
    return (column, groups), rows.remove_columns(name).add_column(name, [None] * len(rows))


class _Made:
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
        for name in dict.fromkeys(chain.from_iterable(self._block)):
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
        made = self._blocks[0] if len(self._blocks) == 1 else datasets.concatenate_datasets(self._blocks)
        if column is not None and len(made):
            made = _with_images(made, column)
        for name, values in self._further.items():
            made = made.add_column(name, _column(values))
        return made


def _with_images(dataset: datasets.Dataset, column: Any) -> datasets.Dataset:
    """The dataset with each cell of a column of image files as its list of one image, or none; nothing is copied."""
    feature = datasets.Features({"images": FEATURES["images"]})
    kind = feature.arrow_schema.field("images").type
    chunks = []
    for chunk in column.chunks:
        present = chunk.is_valid().to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(present)]), pa.int32())
        chunks.append(pa.ListArray.from_arrays(offsets, chunk if present.all() else chunk.drop_null(), type=kind))
    table = pa.table({"images": pa.chunked_array(chunks, type=kind)})
    info = datasets.DatasetInfo(features=feature)
    # A fingerprint of our own: to make one, the library would copy the whole table.
    images = datasets.Dataset(datasets.table.InMemoryTable(table), info=info, fingerprint=uuid.uuid4().hex[:16])
    order = dataset.column_names
    return datasets.concatenate_datasets([dataset.remove_columns("images"), images], axis=1).select_columns(order)


def _warn(faults: Iterable[str | None], name: str) -> None:
    """Warn of rows that could not be read."""
    said = list(faults)
    reasons = Counter(fault for fault in said if fault is not None)
    if reasons:
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(5))
        more = f"; and {len(reasons) - 5} more reasons" if len(reasons) > 5 else ""
        warnings.warn(
            f"{name}: {sum(reasons.values())} of {len(said)} rows could not be read and are kept with the reason in"
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
