"""Published data sets from the Hugging Face hub, with the commit that they came from.

Schemas have changed between commits, so the commit is resolved first, fetched, and recorded with the collection
(`origin`) and in the manifests of runs on it. Pass it as `revision=`, or put it into `PINNED`, to get the same rows
again; a run that is continued refuses other rows. Nothing is pinned at first: no commit could be looked up when this
was written, and a pin that nobody checked is worse than the newest one with its name.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import datasets

from vjudge.data.adapters import Adapter, hub_ids
from vjudge.data.schema import CollectionError, plain

PINNED: dict[str, str] = {}
"""Hub id -> the commit to load where `revision=` names none: one place for all sets of a study, for example
`data.PINNED |= json.loads(Path("revisions.json").read_text())`. It is read whenever a set is loaded."""

_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.part", ".7z")
_WAY_OUT = "connect to the network, or fetch it elsewhere and give load_collection the file or folder"


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
    revision = revision or _pinned(name)
    commit = _commit(name, adapter, revision)
    wanted = commit or revision
    part = None
    if adapter.parts:
        part = split or adapter.parts[0]
        if part not in adapter.parts:
            raise CollectionError(f"{name!r} has no split {split!r}; it has: {', '.join(adapter.parts)}")
    folder = None
    if adapter.reads_folder is not None:
        if split not in (None, adapter.split):
            raise CollectionError(f"{name!r} has no split {split!r}; it is one set: leave split= out")
        folder = _snapshot(name, adapter, wanted)
        rows: Any = adapter.reads_folder(folder)[:limit]
    else:
        rows = _table(name, adapter, part, adapter.split if part else split or adapter.split, wanted, limit)
    columns = rows.column_names if isinstance(rows, datasets.Dataset) else list(rows[0] if rows else ())
    if columns:
        check_columns(f"{name!r} at {wanted or 'its newest commit'}", adapter, columns)
    if adapter.images_apart and isinstance(rows, datasets.Dataset) and _holds_paths(rows):
        folder = _fetch_images(name, rows, wanted)
    facts = {"source": name, "split": part or split or adapter.split, "revision": revision, "commit": commit}
    return rows, folder, part, facts


def check_columns(what: str, adapter: Adapter, columns: Iterable[str]) -> None:
    """Refuse a table whose columns are not those that its data set is known to have.

    Raises:
        CollectionError: with the columns expected, found and missing.
    """
    found = list(columns)
    missing = [name for name in adapter.columns if name not in found]
    if missing:
        raise CollectionError(
            f"{what} does not have {adapter.name}'s columns: {', '.join(missing)} missing (expected:"
            f" {', '.join(adapter.columns)}; found: {', '.join(found)}); its schema has changed: pass the revision= of"
            " a commit that has them, or rename them and give the rows to vjudge.data.canonical"
        )


def record(items: datasets.Dataset, **facts: Any) -> datasets.Dataset:
    """Write down where a collection comes from, for `origin`."""
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
        rows and unreadable (how many of them carry a `fault`) at loading; empty for other data sets.
    """
    try:
        facts = json.loads(items.info.description or "")
    except (AttributeError, json.JSONDecodeError):
        return {}
    return facts if isinstance(facts, dict) and "source" in facts else {}


def _pinned(name: str) -> str | None:
    """The commit that a set is pinned to.

    Raises:
        CollectionError: a pin of a set that is not known: it would pin nothing.
    """
    pins = {id.lower(): commit for id, commit in PINNED.items()}
    if unknown := sorted(set(pins) - {id.lower() for id in hub_ids()}):
        raise CollectionError(f"PINNED names {', '.join(unknown)}, which no data set here is called; correct the name")
    return pins.get(name.lower())


def _commit(name: str, adapter: Adapter, revision: str | None) -> str | None:
    """The commit that a revision is now; None, with a warning, where the hub cannot be asked."""
    import huggingface_hub

    try:
        commit = huggingface_hub.HfApi().dataset_info(name, revision=revision).sha
        return None if commit is None else str(commit)
    except Exception as error:  # the hub's client raises many kinds
        if refusal := _refusal(name, adapter, error):
            raise refusal from error
        warnings.warn(
            f"the hub could not be asked for the commit of {name!r} ({type(error).__name__}): if a copy is here it is"
            " used, and its commit is not recorded",
            stacklevel=4,
        )
        return None


def _refusal(name: str, adapter: Adapter, error: Exception) -> CollectionError | None:
    """The error of a set that the hub has not, or does not give to this user; None for any other failure."""
    kind, said = type(error).__name__, _first_line(error)
    if kind == "GatedRepoError" or "gated" in said.lower():
        return CollectionError(
            f"{name!r} is gated: accept its terms at https://huggingface.co/datasets/{name}, then log in here"
            f" (huggingface-cli login, or HF_TOKEN) ({said})"
        )
    if kind == "RevisionNotFoundError":
        return CollectionError(f"{name!r} has no such revision ({said}); give a branch, a tag or a commit that it has")
    if kind in ("RepositoryNotFoundError", "DatasetNotFoundError"):
        gate = ", or accept its terms and log in: it is gated" if adapter.gated else ", or log in if it is private"
        return CollectionError(f"the hub has no data set {name!r} that you may see ({said}); correct the name{gate}")
    return None


def _table(
    name: str, adapter: Adapter, part: str | None, split: str, revision: str | None, limit: int | None
) -> datasets.Dataset:
    """The table, or its first rows: these are streamed, so that a few rows of a large set cost a few rows."""
    try:
        if limit is None:
            return datasets.load_dataset(name, *([part] if part else []), split=split, revision=revision)
        asked: dict[str, Any] = {"split": split, "revision": revision, "streaming": True}
        stream = datasets.load_dataset(name, *([part] if part else []), **asked)
        features = stream.features
        for column, kind in (features or {}).items():
            if isinstance(kind, datasets.Image):
                stream = stream.cast_column(column, datasets.Image(decode=False))
        rows = datasets.Dataset.from_list(list(stream.take(max(limit, 1))), features=features)
        return rows.select(range(min(limit, len(rows))))
    except Exception as error:  # the hub's client raises many kinds
        if refusal := _refusal(name, adapter, error):
            raise refusal from error
        raise _out_of_reach(name, error) from error


def _snapshot(name: str, adapter: Adapter, revision: str | None, files: Any = None) -> Path:
    import huggingface_hub

    try:
        return Path(
            huggingface_hub.snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=files)
        )
    except Exception as error:  # as above
        if refusal := _refusal(name, adapter, error):
            raise refusal from error
        raise _out_of_reach(name, error) from error


def _out_of_reach(name: str, error: Exception) -> CollectionError:
    return CollectionError(
        f"{name!r} could not be loaded from the hub ({type(error).__name__}: {_first_line(error)}); {_WAY_OUT}"
    )


def _holds_paths(rows: datasets.Dataset) -> bool:
    return "image" in rows.features and not isinstance(rows.features["image"], datasets.Image)


def _fetch_images(name: str, rows: datasets.Dataset, revision: str | None) -> Path | None:
    """The folder with the images that a table names, if the hub keeps them as files; says what to do if it does not."""
    import huggingface_hub

    paths = sorted({path for path in rows["image"] if isinstance(plain(path), str)})
    try:
        there = huggingface_hub.list_repo_files(name, repo_type="dataset", revision=revision)
    except Exception as error:  # as above
        there = []
        reason = f"the list of its files could not be had ({type(error).__name__})"
    else:
        archives = [file for file in there if file.lower().endswith(_ARCHIVES)]
        reason = f"its images stand in {', '.join(archives)}" if archives else "its images are not among its files"
    if paths and set(paths) <= set(there):
        return Path(
            huggingface_hub.snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=paths)
        )
    if paths:
        warnings.warn(
            f"{name!r} names {len(paths)} images by path, such as {paths[0]!r}, and {reason}: unpack them beside the"
            " data file and give load_collection that file or folder",
            stacklevel=4,
        )
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
