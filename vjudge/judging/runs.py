"""A run's folder: what was asked, and every verdict as soon as it exists.

`manifest.json` says what was run, `verdicts.jsonl` holds one verdict per line, and `rows.jsonl` the
cells of each row that a table repeats. The last two are `Log`s whose checksums start from the
manifest, so that a line copied from another run counts as damaged. Damaged lines are counted in a
warning when they are read, and their verdicts are computed again.
"""

from __future__ import annotations

import json
import os
import warnings
import zlib
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock

from vjudge.judging.record import Log, Record, json_value, replace_file

MANIFEST = "manifest.json"
VERDICTS = "verdicts.jsonl"
ROWS = "rows.jsonl"
LOCK = "run.lock"
FORMAT = 3  # in format 2, a line's checksum did not depend on its run
# entries of a manifest:
VERSIONS = ("vjudge", "versions")  # versions of libraries
NO_IDENTITY = ("note", "continued")  # no part of what was run: checksums leave them out


class RunError(RuntimeError):
    """A run's folder can't be used as asked; the message gives the reason and the remedy."""


class Run:
    """A run's folder, to read; or, opened as a context manager, to write by one process at a time.

    `done` maps the entry "asked" of each verdict, the key of its question, to the verdict.
    `changes` lists, in words, the entries of the manifest in which this call differs from the
    first one without changing any verdict.

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
        self.done: dict[str, Record] = {}
        self.changes: list[str] = []
        self._lock = FileLock(self.path / LOCK, timeout=0, thread_local=False)
        self._verdicts = Log(self.path / VERDICTS)
        self._rows = Log(self.path / ROWS)

    @property
    def manifest(self) -> Record:
        """Read what was run.

        Raises:
            RunError: the folder holds no run of this vjudge, or one that can't be read.
        """
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
        """Raise a RunError that names the runs in subfolders; do nothing where there are none."""
        folders = [file.parent for file in sorted(self.path.rglob(f"*/{MANIFEST}"))]
        if folders:
            runs = ", ".join(f"{folder.name!r}: load_run({str(folder)!r})" for folder in folders)
            raise RunError(
                f"{self.path} holds several runs, such as those of a panel's members, and is none"
                f" itself: load each by name, runs = {{{runs}}}"
            )

    def verdicts(self) -> list[Record]:
        """Read all intact verdicts in the order in which they were written, NaN as None."""
        self._identify(self.manifest)
        return self._read(self._verdicts)

    def rows(self) -> list[Record]:
        """Read the rows that `keep` wrote, in the collection's order."""
        self._identify(self.manifest)
        rows: dict[str, Record] = {}
        for row in self._read(self._rows):
            rows.pop(row["id"], None)  # a row that was written again moves to its new position
            rows[row["id"]] = row
        return list(rows.values())

    def open(self, manifest: Record) -> Run:
        """Start the run, or continue the one that the folder holds.

        Args:
            manifest: what is run, in plain JSON values. The entry "note" may differ from call to
                call, and that of the last call is kept. The versions of libraries, the path of an
                unchanged checkpoint and the port of a server may differ too: the first call's are
                kept, and the differences are recorded under "continued". Any other difference is
                refused.

        Returns:
            This run, to be closed, or used as a context manager.

        Raises:
            RunError: the folder holds another run or something else, another process writes here,
                or the disk can't be written.
        """
        # as the file holds it, so that both compare equal: tuples become lists
        call = json.loads(json.dumps({"format": FORMAT, **manifest}, default=str))
        try:
            # 1) lock the folder, so that the files below are those that the last process left
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            # 2) write the manifest before any verdict: a crash between the two leaves a run
            # without verdicts, never verdicts without a run
            if (self.path / MANIFEST).exists():
                call = self._continued(call)
            text = json.dumps(call, indent=2, ensure_ascii=False)
            replace_file(self.path / MANIFEST, f"{text}\n")
        except BaseException as error:  # an interruption from the keyboard unlocks the folder, too
            self.close()
            if not isinstance(error, OSError):
                raise
            raise RunError(
                f"{self.path} can't be written ({error}); wait for another process that writes"
                " here, or use another folder"
            ) from error
        # 3) read the verdicts of earlier calls
        self._identify(call)
        self.done = {verdict["asked"]: verdict for verdict in self._read(self._verdicts)}
        return self

    def _continued(self, call: Record) -> Record:
        """Compare a call's manifest with the folder's, and list the differences in `changes`.

        Returns:
            The manifest to write: the folder's, with the call's note and, under "continued", the
            entries in which calls differ from it.

        Raises:
            RunError: they differ in something on which verdicts depend.
        """
        first = self.manifest  # of the first call
        changes = {}
        for name in first | call:
            if name not in NO_IDENTITY and first.get(name) != call.get(name):
                changes[name] = call.get(name)
        self.changes = [f"{name}: {first.get(name)!r} -> {new!r}" for name, new in changes.items()]
        if not all(_decides_no_verdict(name, first, call) for name in changes):
            raise RunError(
                f"{self.path} holds a run that differs from this call in {'; '.join(self.changes)}."
                " Repeat the first call to continue it, or use another folder"
            )
        if changes and changes not in first.setdefault("continued", []):
            first["continued"].append(changes)
        return first | {"note": call.get("note")}

    def _identify(self, manifest: Record) -> None:
        """Set the number from which checksums of both logs start: a checksum of the manifest."""
        run = {name: value for name, value in manifest.items() if name not in NO_IDENTITY}
        identity = zlib.crc32(json.dumps(run, sort_keys=True).encode())
        self._verdicts.identity = self._rows.identity = identity

    def _read(self, log: Log) -> list[Record]:
        """Read the intact lines of a log, and count the damaged ones in a warning."""
        entries = log.read()
        if log.damaged:
            warnings.warn(
                f"{log.path}: {len(log.damaged)} damaged lines, cut short, changed since they were"
                " written, or copied from another run, are passed over; their verdicts are computed"
                " again",
                RuntimeWarning,
                stacklevel=4,  # the caller of `load_run`
            )
        return entries

    def append(self, verdicts: Iterable[Record]) -> None:
        """Write verdicts, NaN as null, and wait for the disk.

        Raises:
            RunError: the disk does not take them.
        """
        fresh = [json_value(verdict) for verdict in verdicts]
        self._write(self._verdicts, fresh)
        self.done |= {verdict["asked"]: verdict for verdict in fresh}

    def keep(self, rows: Iterable[Record]) -> None:
        """Write the rows of a call, unless the folder holds the same rows in the same order.

        Args:
            rows: in the collection's order, each with "id", "asked" (the list of the keys of its
                questions, one per verdict) and "cells" (what a table repeats of the row).

        Raises:
            RunError: the disk does not take them.
        """
        new = {row["id"]: row for row in map(json_value, rows)}
        # rows of earlier calls may stand between them, and stay
        written = [row for row in self.rows() if row["id"] in new]
        if written != list(new.values()):
            self._write(self._rows, new.values())

    def _write(self, log: Log, entries: Iterable[Record]) -> None:
        """Append entries to a log; an error of the disk becomes a RunError."""
        try:
            log.append(entries)
        except OSError as error:
            raise RunError(
                f"{log.path}: {error}; {len(self.done)} verdicts are saved: make room where the"
                " disk is full, and repeat the call to continue"
            ) from error

    def close(self) -> None:
        """Let other processes write here."""
        self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _decides_no_verdict(name: str, first: Record, call: Record) -> bool:
    """Whether two manifests may differ in an entry, since no verdict depends on the difference.

    Args:
        name: of the entry.
        first, call: the manifests of the first call and of this one.
    """
    if name in VERSIONS:
        return True
    if name == "judge":  # the path of a checkpoint: its weights are compared by their checksum
        return "checkpoint" in first and first["checkpoint"] == call.get("checkpoint")
    if name == "base_url":
        return _without_port(first.get(name)) == _without_port(call.get(name))
    return False


def _without_port(url: str | None) -> tuple[str, str | None, str]:
    """Split a server's address into scheme, host and path; this machine is always "localhost".

    >>> _without_port("http://127.0.0.1:8000/v1/")
    ('http', 'localhost', '/v1')
    """
    parts = urlsplit(str(url))
    host = parts.hostname
    if host in ("127.0.0.1", "::1"):
        host = "localhost"
    return parts.scheme, host, parts.path.rstrip("/")
