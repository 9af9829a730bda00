"""A run's folder: what was asked, and every verdict as soon as it exists.

`manifest.json` says what was run, `verdicts.jsonl` holds one verdict a line, `rows.jsonl` the cells
of each row that a table repeats. Each line ends in a checksum over the line and the manifest's
identity: a `Log` passes over lines that fail it, the next opening counts them in a warning, and
their verdicts are computed again.
"""

from __future__ import annotations

import json
import os
import warnings
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock

from vjudge.judging.record import Log, file_name, json_value, replace_file

MANIFEST = "manifest.json"
VERDICTS = "verdicts.jsonl"
ROWS = "rows.jsonl"
LOCK = "run.lock"
FORMAT = 3  # 2: a line's checksum did not depend on its run
VERSIONS = ("vjudge", "versions")
NO_IDENTITY = ("note", "continued")


class RunError(RuntimeError):
    """A run's folder can't be used as asked; the message says why and what to do."""


class Run:
    """A run's folder: to read, or to write as a context manager, one process at a time.

    `done` holds its verdicts by their entry "asked", which tells each from the others; `changes`
    says in words what this call has otherwise than the first, though its verdicts are the same.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with Run(folder).open({"judge": "mine"}) as run:
    ...     run.append([{"asked": "a", "score": 4.0}])
    >>> with Run(folder).open({"judge": "mine"}) as run:
    ...     run.done
    {'a': {'asked': 'a', 'score': 4.0}}
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser()
        self.done: dict = {}
        self.changes: list[str] = []
        self._lock = FileLock(self.path / LOCK, timeout=0, thread_local=False)
        self._verdicts = Log(self.path / VERDICTS)
        self._rows = Log(self.path / ROWS)

    @property
    def manifest(self) -> dict:
        """What was run; RunError where the folder holds no run of this vjudge that can be read."""
        path = self.path / MANIFEST
        if not path.exists():
            self._refuse_several()
        try:
            manifest = json.loads(path.read_bytes())
        except (ValueError, OSError, RecursionError) as error:
            raise RunError(
                f"{path} can't be read ({error}); restore it or use another folder"
            ) from error
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise RunError(
                f"{path} is not a run of this vjudge (format {FORMAT}); use another folder"
            )
        return manifest

    def _refuse_several(self) -> None:
        """RunError where the folder holds runs in folders of their own."""
        folders = [file.parent for file in sorted(self.path.rglob(f"*/{MANIFEST}"))]
        if folders:
            runs = ", ".join(f"{folder.name!r}: load_run({str(folder)!r})" for folder in folders)
            raise RunError(
                f"{self.path} holds several runs, such as those of a panel's members, and is none"
                f" itself: load each by name, runs = {{{runs}}}"
            )

    def verdicts(self) -> list:
        """All whole verdicts in the order written, NaN as None."""
        self._identify(self.manifest)
        return self._read(self._verdicts)

    def rows(self) -> list:
        """The rows whose verdicts it holds, in the collection's order, as `keep` was given them."""
        self._identify(self.manifest)
        rows: dict = {}
        for row in self._read(self._rows):
            rows.pop(row["id"], None)  # a row that was written again stands where that was
            rows[row["id"]] = row
        return list(rows.values())

    def open(self, manifest: Mapping) -> Run:
        """Start the run, or continue the one that the folder holds.

        Args:
            manifest: what is run, in plain JSON values. What stands under "note" may differ from
                call to call, and the last call's is kept. So may the versions of libraries, the
                path of the same checkpoint and the port of the same server: they are recorded
                under "continued". Any other difference is refused.

        Raises:
            RunError: the folder holds another run or something else, or another process writes
                here, or the disk can't be written.
        """
        call = json.loads(json.dumps({"format": FORMAT, **manifest}, default=str))
        try:
            # 1) one process at a time; what another one wrote before is read after it let go
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            # 2) the manifest first: a kill here leaves a run without verdicts, not the reverse
            if (self.path / MANIFEST).exists():
                call = self._continued(call)
            text = json.dumps(call, indent=2, ensure_ascii=False)
            replace_file(self.path / MANIFEST, f"{text}\n")
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError):
                raise
            raise RunError(
                f"{self.path} can't be written ({error}); wait for another process that writes"
                " here, or use another folder"
            ) from error
        self._identify(call)
        self.done = {verdict["asked"]: verdict for verdict in self._read(self._verdicts)}
        return self

    def _continued(self, call: dict) -> dict:
        """The manifest of the run that is there, with this call's note; else RunError."""
        first = self.manifest
        changes = {}
        for name in first | call:
            if name not in NO_IDENTITY and first.get(name) != call.get(name):
                changes[name] = call.get(name)
        self.changes = [f"{name}: {first.get(name)!r} -> {new!r}" for name, new in changes.items()]
        if not all(_same_in_kind(name, first, call) for name in changes):
            raise RunError(
                f"{self.path} holds a run that differs from this call in {'; '.join(self.changes)}."
                " Repeat the first call to continue it, or use another folder"
            )
        continued = first.get("continued", [])
        if changes and changes not in continued:
            continued.append(changes)
        if continued:
            first["continued"] = continued
        return first | {"note": call.get("note")}

    def _identify(self, manifest: Mapping) -> None:
        """Have the checksums of lines start with one of what was run."""
        run = {name: value for name, value in manifest.items() if name not in NO_IDENTITY}
        identity = zlib.crc32(json.dumps(run, sort_keys=True).encode())
        self._verdicts.identity = self._rows.identity = identity

    def _read(self, log: Log) -> list:
        """The lines whose checksum holds; a warning counts the others."""
        entries = log.read()
        if log.damaged:
            warnings.warn(
                f"{log.path}: {len(log.damaged)} damaged lines, cut short, changed since they were"
                " written, or copied from another run, are passed over; their verdicts are computed"
                " again",
                RuntimeWarning,
                stacklevel=4,
            )
        return entries

    def append(self, verdicts: Iterable) -> None:
        """Write verdicts, NaN as null, and wait for the disk; RunError where it fails."""
        fresh = [json_value(verdict) for verdict in verdicts]
        self._write(self._verdicts, fresh)
        self.done |= {verdict["asked"]: verdict for verdict in fresh}

    def keep(self, rows: Iterable) -> None:
        """Write the rows of a call, unless they are there; RunError where the disk fails.

        Args:
            rows: of each its "id", "asked" (the keys of its verdicts) and "cells", in the
                collection's order.
        """
        call = {row["id"]: row for row in map(json_value, rows)}
        written = [row for row in self.rows() if row["id"] in call]
        if written != list(call.values()):
            self._write(self._rows, call.values())

    def _write(self, log: Log, entries: Iterable) -> None:
        try:
            log.append(entries)
        except OSError as error:
            raise RunError(
                f"{log.path}: {error}; {len(self.done)} verdicts are saved: make room where the"
                " disk is full, and repeat the call to continue"
            ) from error

    def close(self) -> None:
        self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _same_in_kind(name: str, first: Mapping, call: Mapping) -> bool:
    """Whether a difference of two manifests decides no verdict."""
    if name in VERSIONS:
        return True
    if name == "judge":  # another path to equal weights
        return "checkpoint" in first and first["checkpoint"] == call.get("checkpoint")
    if name == "base_url":
        return _without_port(first.get(name)) == _without_port(call.get(name))
    return False


def _without_port(url: Any) -> tuple:
    """A server's address, this machine's by one name."""
    parts = urlsplit(str(url))
    host = parts.hostname
    if host in ("127.0.0.1", "::1"):
        host = "localhost"
    return parts.scheme, host, parts.path.rstrip("/")


def run_folder(outputs: str | Path, *parts: Any) -> Path:
    """A folder for the runs of one notebook, named by what they are runs of.

    Args:
        outputs: the folder that it stands in.
        parts: the judge (a name, or the arguments of `load_judge` as a dict), the collection, and
            what else tells one set of runs from another.

    >>> run_folder("outputs", "org/model", "items.csv", 500).as_posix()
    'outputs/org-model-items.csv-500'
    """
    names = []
    for part in parts:
        name = part.get("name_or_path", part) if isinstance(part, Mapping) else part
        names.append(file_name(name))
    return Path(outputs) / file_name("-".join(names))
