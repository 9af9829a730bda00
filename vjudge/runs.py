"""The append-only record of a run: what was asked, and every verdict as soon as it exists.

`manifest.json` says what was run, `verdicts.jsonl` holds one verdict a line, `rows.jsonl` the cells
of each row that a table repeats. Each line ends in a checksum over the line and the manifest's
identity: a `Log` passes over lines that fail it, the next opening counts them in a warning, and
their verdicts are computed again.
"""

from __future__ import annotations

import json
import os
import re
import warnings
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock

from vjudge.records import is_missing

MANIFEST = "manifest.json"
VERDICTS = "verdicts.jsonl"
ROWS = "rows.jsonl"
LOCK = "run.lock"
FORMAT = 3  # 2: a line's checksum did not depend on its run
VERSIONS = ("vjudge", "versions")
NO_IDENTITY = ("note", "continued")
LONGEST_NAME = 120  # bytes of a file's name


class RunError(RuntimeError):
    """A run's folder can't be used as asked; the message says why and what to do."""


class Log:
    """An append-only file of JSON objects, one a line, each with a checksum.

    A line is on the disk when `append` returns. One whose checksum fails was cut short, changed, or
    copied from a log with another identity: `read` passes it over.

    Args:
        path: the file; it need not be there.
        identity: a number with which checksums start, equal for logs whose lines may be exchanged.
        before: all names of entries that were once written without a checksum: such a line is read,
            and its number kept in `unchecked`.

    >>> import tempfile
    >>> log = Log(Path(tempfile.mkdtemp()) / "log.jsonl")
    >>> log.append([{"score": 4.0}])
    >>> log.read(), log.damaged
    ([{'score': 4.0}], [])
    """

    def __init__(self, path: Path, identity: int = 0, *, before: Collection[str] = ()) -> None:
        self.path = path
        self.identity = identity
        self.before = before
        self.damaged: list[int] = []  # the numbers, from 1, of the lines that were passed over
        self.unchecked: list[int] = []  # of those that were read without a checksum

    def read(self) -> list[dict]:
        """All whole objects in the order written."""
        entries = []
        self.damaged = []
        self.unchecked = []
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        for number, line in enumerate(lines, start=1):
            start, _, end = line.rpartition(b', "crc": "')
            text = start + b"}"
            if end == self._checksum(text):
                entries.append(json.loads(text))
                continue
            entry = self._without_checksum(line)
            if entry:
                entries.append(entry)
                self.unchecked.append(number)
            elif line:
                self.damaged.append(number)
        return entries

    def _without_checksum(self, line: bytes) -> dict:
        """The object of a line that never had a checksum; empty where it had one, or is cut."""
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.keys() <= set(self.before):
                return entry
        return {}

    def append(self, entries: Iterable[Mapping]) -> None:
        """Write objects, NaN as null, and wait for the disk; OSError where it fails."""
        lines = []
        for entry in entries:
            text = _bytes(json.dumps(plain(entry), ensure_ascii=False, allow_nan=False))
            lines.append(text[:-1] + b', "crc": "' + self._checksum(text) + b"\n")
        if not lines:
            return
        if not self._ends_a_line():
            lines.insert(0, b"\n")  # behind one that was cut short
        _write(self.path, "ab", b"".join(lines))

    def _ends_a_line(self) -> bool:
        if not self.path.exists() or not self.path.stat().st_size:
            return True
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _checksum(self, text: bytes) -> bytes:
        """How a line ends."""
        return b'%08x"}' % zlib.crc32(text, self.identity)


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
        fresh = [plain(verdict) for verdict in verdicts]
        self._write(self._verdicts, fresh)
        self.done |= {verdict["asked"]: verdict for verdict in fresh}

    def keep(self, rows: Iterable) -> None:
        """Write the rows of a call, unless they are there; RunError where the disk fails.

        Args:
            rows: of each its "id", "asked" (the keys of its verdicts) and "cells", in the
                collection's order.
        """
        call = {row["id"]: row for row in map(plain, rows)}
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


def file_name(name: str) -> str:
    """The name of a judge, a person or a run as that of a file or folder.

    >>> file_name("org/model 7b"), file_name("../../etc")
    ('org-model-7b', 'etc')
    """
    text = re.sub(r"[^\w.-]+", "-", str(name)).strip("-.")
    if text and len(text.encode()) <= LONGEST_NAME:
        return text
    digest = f"{zlib.crc32(_bytes(name)):08x}"
    cut = text.encode()[: LONGEST_NAME - 9].decode(errors="ignore")
    return f"{cut}-{digest}".lstrip("-")


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


def file_names(names: Iterable[str]) -> dict[str, str]:
    """The file of each name; ValueError where two would share one, on some system."""
    files = {}
    owners: dict[str, str] = {}
    for name in names:
        files[name] = file_name(name)
        folded = files[name].casefold()
        if folded in owners:
            both = f"{owners[folded]!r} and {name!r}"
            raise ValueError(f"{both} need names of their own, also as files: rename one")
        owners[folded] = name
    return files


def plain(value: Any) -> Any:
    """JSON values: NaN to None, NumPy's to Python's, keys to text; floats keep every bit."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(plain, value))
    return None if is_missing(value) else value


def replace_file(path: Path, text: str) -> None:
    """Put a text file in place whole or not at all."""
    temporary = path.with_name(f"{path.name}.new")
    _write(temporary, "wb", _bytes(text))
    os.replace(temporary, path)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _write(path: Path, mode: str, content: bytes) -> None:
    """Write or append, and wait for the disk."""
    with open(path, mode) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
