"""Published data sets from the Hugging Face hub, with the commit that they came from.

Schemas have changed between commits, so the commit is resolved first, fetched, and recorded with the collection
(`origin`) and in the manifests of runs on it. Pass it as `revision=`, or put it into `PINNED`, to get the same rows
again; a run that is continued refuses other rows. Nothing is pinned at first: no commit could be looked up when this
was written, and a pin that nobody checked is worse than the newest one with its name.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets

from vjudge.data.schema import Adapter, CollectionError, plain

PINNED: dict[str, str] = {}
"""Hub id -> the commit to load where `revision=` names none: one place for all sets of a study, for example
`data.PINNED |= json.loads(Path("revisions.json").read_text())`. It is read whenever a set is loaded."""

_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.part", ".7z")


def fetch(
    name: str, adapter: Adapter, *, split: str | None, limit: int | None, revision: str | None
) -> tuple[Any, Path | None, str | None, dict[str, Any]]:
    """Fetch a published data set by its hub id.

    Args:
        name: one of the adapter's ids.
        others: as for `load_collection`.

    Returns:
        Its rows, the folder of their images (None where they come with the rows), the part that they are of, and what
        `record` is to write down.

    Raises:
        CollectionError: it is out of reach, gated, or has no such split; its columns are others than expected.
    """
    commit = _commit(name, adapter, revision)
    at = commit or revision
    part = None
    if adapter.parts:
        part = split or adapter.parts[0]
        if part not in adapter.parts:
            raise CollectionError(f"{name!r} has no split {split!r}; it has: {', '.join(adapter.parts)}")
    folder = None
    if adapter.reads_folder is not None:
        if split not in (None, adapter.split):
            raise CollectionError(f"{name!r} has no split {split!r}; it is one set: leave split= out")
        with _asking(name, adapter):
            folder = _snapshot(name, at)
        rows: Any = adapter.reads_folder(folder)[:limit]
    else:
        with _asking(name, adapter):
            rows = _table(name, part, adapter.split if part else split or adapter.split, at, limit)
    columns = rows.column_names if isinstance(rows, datasets.Dataset) else list(rows[0] if rows else ())
    if columns and (missing := [column for column in adapter.columns if column not in columns]):
        raise CollectionError(
            f"{name!r} at {at or 'its newest commit'} does not have {adapter.name}'s columns: {', '.join(missing)}"
            f" missing (expected: {', '.join(adapter.columns)}; found: {', '.join(columns)}); its schema has changed:"
            " pass the revision= of a commit that has them, or rename them and give the rows to vjudge.data.canonical"
        )
    if adapter.images_apart and not isinstance(rows.features.get("image"), datasets.Image):
        folder = _fetch_images(name, {path for path in rows["image"] if isinstance(plain(path), str)}, at)
    facts = {"source": name, "split": part or split or adapter.split, "revision": revision, "commit": commit}
    return rows, folder, part, facts


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
        source (hub id or path), split, revision (asked for or pinned), commit (the hub's, None if unknown or local),
        benchmark (its key in `vjudge.benchmarks.BENCHMARKS`, where it is one), rows and unreadable (how many of them
        carry a `fault`) at loading; empty for other data sets.
    """
    try:
        facts = json.loads(items.info.description or "")
    except (AttributeError, json.JSONDecodeError):
        return {}
    return facts if isinstance(facts, dict) and {"source", "benchmark"} & facts.keys() else {}


def pinned(name: str, ids: Iterable[str]) -> str | None:
    """The commit that a set is pinned to.

    Args:
        ids: every hub id that is known.

    Raises:
        CollectionError: a pin of a set that is not known: it would pin nothing.
    """
    pins = {id.lower(): commit for id, commit in PINNED.items()}
    if unknown := sorted(set(pins) - {id.lower() for id in ids}):
        raise CollectionError(f"PINNED names {', '.join(unknown)}, which no data set here is called; correct the name")
    return pins.get(name.lower())


def _commit(name: str, adapter: Adapter, revision: str | None) -> str | None:
    """The commit that a revision is now; None, with a warning, where the hub cannot be asked."""
    import huggingface_hub

    try:
        with _asking(name, adapter):
            commit = huggingface_hub.HfApi().dataset_info(name, revision=revision).sha
        return None if commit is None else str(commit)
    except _OutOfReach as error:
        warnings.warn(
            f"the hub could not be asked for the commit of {name!r} ({type(error.__cause__).__name__}): if a copy is"
            " here it is used, and its commit is not recorded",
            stacklevel=4,
        )
        return None


class _OutOfReach(CollectionError):
    """The hub gave no answer."""


@contextmanager
def _asking(name: str, adapter: Adapter) -> Iterator[None]:
    """Say of a question to the hub, whose client raises many kinds of errors, why it failed.

    Raises:
        CollectionError: the hub has no such set, or does not give it to this user.
    """
    try:
        yield
    except Exception as error:
        kind = type(error).__name__
        reason = (str(error).strip().splitlines() or [kind])[0]
        if kind == "GatedRepoError" or "gated" in reason.lower():
            message = (
                f"{name!r} is gated: accept its terms at https://huggingface.co/datasets/{name}, then log in here"
                f" (huggingface-cli login, or HF_TOKEN) ({reason})"
            )
        elif kind == "RevisionNotFoundError":
            message = f"{name!r} has no such revision ({reason}); give a branch, a tag or a commit that it has"
        elif kind in ("RepositoryNotFoundError", "DatasetNotFoundError"):
            gate = "or accept its terms and log in: it is gated" if adapter.gated else "or log in if it is private"
            message = f"the hub has no data set {name!r} that you may see ({reason}); correct the name, {gate}"
        else:
            raise _OutOfReach(
                f"{name!r} could not be loaded from the hub ({kind}: {reason}); connect to the network, or fetch it"
                " elsewhere and give load_collection the file or folder"
            ) from error
        raise CollectionError(message) from error


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


def _snapshot(name: str, revision: str | None, files: list[str] | None = None) -> Path:
    import huggingface_hub

    return Path(huggingface_hub.snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=files))


def _fetch_images(name: str, paths: set[str], revision: str | None) -> Path | None:
    """The folder with the images that a table names, if the hub keeps them as files; says what to do if it does not."""
    import huggingface_hub

    try:
        files = huggingface_hub.list_repo_files(name, repo_type="dataset", revision=revision)
    except Exception as error:  # as in `_asking`
        files, reason = [], f"the list of its files could not be had ({type(error).__name__})"
    else:
        archives = [file for file in files if file.lower().endswith(_ARCHIVES)]
        reason = f"its images stand in {', '.join(archives)}" if archives else "its images are not among its files"
    if paths and paths <= set(files):
        return _snapshot(name, revision, sorted(paths))
    if paths:
        warnings.warn(
            f"{name!r} names {len(paths)} images by path, such as {min(paths)!r}, and {reason}: unpack them beside the"
            " data file and give load_collection that file or folder",
            stacklevel=4,
        )
    return None
