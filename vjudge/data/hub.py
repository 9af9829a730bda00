"""Published data sets from the Hugging Face hub, with the commit that they came from.

Schemas have changed between commits, so the commit is resolved first, fetched, and recorded with the collection
(`origin`) and in the manifests of runs on it. `revision=` or `PINNED` gets the same rows again.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import datasets

from vjudge.data.files import joined
from vjudge.data.schema import Adapter, CollectionError

PINNED: dict[str, str] = {}
"""Hub id -> the commit to load where `revision=` names none: one place for all sets of a study."""
_REFUSALS = {
    "GatedRepoError": "it is gated: accept its terms at https://huggingface.co/datasets/{name}, then log in here"
    " (huggingface-cli login, or HF_TOKEN)",
    "RevisionNotFoundError": "give a branch, a tag or a commit that it has",
    "RepositoryNotFoundError": "correct the name, or log in if it is private or gated",
}
_REFUSALS["DatasetNotFoundError"] = _REFUSALS["RepositoryNotFoundError"]


def fetch(
    name: str, adapter: Adapter, *, split: str | None, limit: int | None, revision: str | None
) -> tuple[Any, Path | None, str | None, dict[str, Any]]:
    """A hub set's rows, the folder of their images (None: with the rows), their part, and what to `record`."""
    import huggingface_hub

    choices = adapter.parts or ((adapter.split,) if adapter.files else ())
    if choices and split not in (None, *choices):
        raise CollectionError(f"{name!r} has no split {split!r}; it has: {', '.join(choices)}")
    part = (split or adapter.parts[0]) if adapter.parts else None
    commit, folder = None, None
    try:
        commit = huggingface_hub.HfApi().dataset_info(name, revision=revision).sha
    except Exception as error:  # of many kinds: a local copy may do
        if type(error).__name__ in _REFUSALS:
            raise _refusal(name, error) from error
        warnings.warn(
            f"the hub could not be asked for the commit of {name!r} ({type(error).__name__}): if a copy is here it is"
            " used, and its commit is not recorded",
            stacklevel=3,
        )
    at = commit or revision
    try:
        if adapter.files:
            folder = Path(huggingface_hub.snapshot_download(name, repo_type="dataset", revision=at))
        else:
            rows: Any = _table(name, part, adapter.split if part else split or adapter.split, at, limit)
    except Exception as error:
        raise _refusal(name, error) from error
    if folder is not None:
        rows = joined(folder, adapter)[:limit]
    columns = rows.column_names if isinstance(rows, datasets.Dataset) else list(rows[0] if rows else ())
    if columns and (missing := [column for column in adapter.columns if column not in columns]):
        raise CollectionError(
            f"{name!r} at {at or 'its newest commit'} does not have {adapter.name}'s columns: {', '.join(missing)}"
            f" missing (found: {', '.join(columns)}); its schema has changed: pass the revision= of a commit that has"
            " them, or rename them and give the rows to vjudge.data.canonical"
        )
    if folder is None and rows.features.get("image") == datasets.Value("string"):
        warnings.warn(
            f"{name!r} names its images by path, and they are not in its table: put them beside the data file and give"
            " load_collection that file or folder",
            stacklevel=3,
        )
    facts = {"source": name, "split": part or split or adapter.split, "revision": revision, "commit": commit}
    return rows, folder, part, facts


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


def _refusal(name: str, error: Exception) -> CollectionError:
    """What to say of a set that the hub, whose client raises many kinds of errors, does not give."""
    kind = type(error).__name__
    reason = (str(error).strip().splitlines() or [kind])[0]
    gated = "GatedRepoError" if "gated" in reason.lower() else kind
    remedy = "connect to the network, or fetch it elsewhere and give load_collection the file or folder"
    remedy = _REFUSALS.get(gated, remedy).format(name=name)
    return CollectionError(f"{name!r} could not be loaded from the hub ({kind}: {reason}); {remedy}")


def record(items: datasets.Dataset, **facts: Any) -> datasets.Dataset:
    """Add to what is written down of a collection's origin."""
    facts = origin(items) | facts
    faults = items["fault"] if "fault" in items.column_names else ()
    facts |= {"rows": len(items), "unreadable": sum(fault is not None for fault in faults)}
    items.info.description = json.dumps(facts)
    return items


def origin(items: datasets.Dataset) -> dict[str, Any]:
    """Where a collection comes from, as far as `load_collection` wrote it down.

    Args:
        items: what `load_collection` returned, a selection of it, or anything else.

    Returns:
        source (hub id or path), split, revision (asked for or pinned), commit (None if unknown or local), benchmark
        (its key, where it is one), rows and unreadable (those with a `fault`) at loading; empty for other data sets.
    """
    try:
        facts = json.loads(items.info.description or "")
    except (AttributeError, json.JSONDecodeError):
        return {}
    return facts if isinstance(facts, dict) and {"source", "benchmark"} & facts.keys() else {}


def pinned(name: str, ids: Iterable[str]) -> str | None:
    """The commit that a set is pinned to; a pin of none of the hub's `ids` would pin nothing, and is refused."""
    pins = {id.lower(): commit for id, commit in PINNED.items()}
    if unknown := sorted(set(pins) - {id.lower() for id in ids}):
        raise CollectionError(f"PINNED names {', '.join(unknown)}, which no data set here is called; correct the name")
    return pins.get(name.lower())
