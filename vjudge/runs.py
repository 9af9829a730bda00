"""The append-only record of a run: what was asked, and every verdict as soon as it exists.

A run is a folder with two files. `manifest.json` says what was run: judge, weights, prompts, decoding, versions, seed,
collection. `verdicts.jsonl` holds one verdict a line, with a checksum, and only ever grows. A process killed at any
moment leaves whole lines and at most one torn one, which the next opening cuts off and mentions; a verdict that
`append` returned for is on the disk. A line whose checksum does not hold is named, moved to `damaged.jsonl` and
computed again. A lock keeps two processes from writing at once (not on Windows, where the system offers no such lock).

A run that somebody else made is read with care: its files are opened only where they are plain files, so that a link in
the folder leads nowhere.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import stat
import sys
import warnings
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

MANIFEST, VERDICTS, DAMAGED, LOCK = "manifest.json", "verdicts.jsonl", "damaged.jsonl", "run.lock"
FORMAT = 2  # 1 had no checksums
FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}  # Windows has no quotas
READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
BYTES_PER_VERDICT = 4096  # a generous guess, to refuse a run that the disk can't hold

_ABSENT = object()
_CHECKSUM = re.compile(rb', "crc": "([0-9a-f]{8})"\}\Z')


class RunError(RuntimeError):
    """A run's folder can't be used as asked; the message says why and what to do."""


@dataclass
class _Contents:
    """What a record's file holds."""

    lines: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)  # key -> verdict
    whole: list[bytes] = field(default_factory=list)  # their lines, line feeds included
    damaged: dict[int, bytes] = field(default_factory=dict)  # number of the line, from 1 -> the line
    torn: int = 0  # bytes after the last line

    @property
    def size(self) -> int:
        return sum(map(len, self.whole))


class Run:
    """A run's folder, to read, or to write as a context manager.

    Args:
        path: the folder; made by `open` where it does not exist.
        keys: the columns that tell one verdict from another.

    With `open`, one process at a time holds the folder:

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with Run(folder).open({"judge": "mine"}, expected=2) as run:
    ...     run.append([{"id": "a", "sample": 0, "score": 4.0}])
    >>> with Run(folder).open({"judge": "mine"}, expected=2) as run:
    ...     list(run.done)
    [('a', 0)]
    >>> Run(folder).verdicts()
    [{'id': 'a', 'sample': 0, 'score': 4.0}]
    """

    def __init__(self, path: str | os.PathLike[str], *, keys: tuple[str, ...] = ("id", "sample")) -> None:
        self.path, self.keys = Path(path), keys
        self.done: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._file = -1
        self._lock = -1
        self._size = 0  # bytes of whole, synced lines

    @property
    def manifest(self) -> dict[str, Any]:
        """What was run.

        Raises:
            RunError: the folder holds no run, or its manifest can't be read.
        """
        try:
            manifest = json.loads(_read_bytes(self.path / MANIFEST).decode("utf-8", "surrogatepass"))
        except FileNotFoundError:
            raise RunError(f"{self.path} holds no run: it has no {MANIFEST}") from None
        except (ValueError, OSError, RecursionError) as error:
            raise RunError(
                f"{self.path / MANIFEST} can't be read ({error}); restore it or use another folder"
            ) from error
        if isinstance(manifest, dict) and manifest.get("format") == 1:
            raise RunError(
                f"{self.path} holds a run of an earlier vjudge, whose lines have no checksums: its {VERDICTS} is plain"
                " JSON lines to read, and can't be continued; use another folder"
            )
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise RunError(f"{self.path / MANIFEST} is not a run of this vjudge (format {FORMAT}); use another folder")
        return manifest

    def verdicts(self) -> list[dict[str, Any]]:
        """All whole verdicts in the order they were written; NaN is None. Nothing on the disk is changed.

        A torn last line is left out; damaged ones are, with a warning.
        """
        contents = self._read()
        if contents.damaged:
            warnings.warn(f"{self._named(contents)}; left out", RuntimeWarning, stacklevel=2)
        return list(contents.lines.values())

    def open(self, manifest: Mapping[str, Any], *, expected: int = 0) -> Run:
        """Start the run, or continue the one that the folder holds.

        A complete run in a folder that can't be written is opened to be read.

        Args:
            manifest: what is run, as plain JSON values. What stands under "note" may differ between calls; all else
                must be as in the first call.
            expected: verdicts to come, to check the disk's room.

        Raises:
            RunError: another process writes here; the folder holds something else, or a run with another manifest
                (each difference is named); it can't be written; the disk has no room.
        """
        call = json.loads(json.dumps({"format": FORMAT, **manifest}, default=str))
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_folder()
            self._lock = _lock(self.path / LOCK)
            self._start(call, expected)
        except OSError as error:
            self.close()
            if error.errno in READ_ONLY and self._complete(call, expected):
                return self
            raise RunError(f"{self.path} can't be written: {error.strerror or error}; use another folder") from error
        except BaseException:
            self.close()
            raise
        return self

    def append(self, verdicts: Iterable[Mapping[str, Any]]) -> None:
        """Write verdicts and wait until the disk has them; NaN becomes null.

        Raises:
            RunError: the disk is full or failed. The file keeps its earlier verdicts, whole.
            ValueError: a verdict is there already.
        """
        fresh: dict[tuple[Any, ...], dict[str, Any]] = {}
        for verdict in verdicts:
            line = plain(verdict)
            key = tuple(line[name] for name in self.keys)
            if key in self.done or key in fresh:
                raise ValueError(f"the verdict {key} is in {self.path} already")
            fresh[key] = line
        encoded = b"".join(map(_line, fresh.values()))
        try:
            write_all(self._file, encoded)
            os.fsync(self._file)
        except OSError as error:
            self._cut(self._size)
            full = "the disk is full" if error.errno in FULL else str(error)
            raise RunError(
                f"{self.path / VERDICTS}: {full}; {len(self.done)} verdicts are saved: make room and repeat the call to"
                " continue"
            ) from error
        self._size += len(encoded)
        self.done.update(fresh)

    def close(self) -> None:
        """Let go of the folder."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_folder(self) -> None:
        """Refuse a folder that holds anything but a run or a start of one."""
        entries = sorted(entry.name for entry in self.path.iterdir())
        if MANIFEST not in entries and (others := [name for name in entries if name not in (LOCK, f"{MANIFEST}.new")]):
            listed = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            raise RunError(f"{self.path} holds other files and no run ({listed}); use a new or empty folder")

    def _check_manifest(self, call: dict[str, Any]) -> None:
        if differences := _differences(self.manifest, call):
            raise RunError(
                f"{self.path} holds a run that differs from this call in {'; '.join(differences)}."
                " Repeat the first call to continue it, or use another folder"
            )

    def _complete(self, call: dict[str, Any], expected: int) -> bool:
        """Whether the folder holds all of the call's verdicts; `done` has them then."""
        if not (self.path / MANIFEST).exists():
            return False
        self._check_manifest(call)
        contents = self._read()
        self.done = contents.lines
        return not contents.damaged and len(contents.lines) >= max(1, expected)

    def _start(self, call: dict[str, Any], expected: int) -> None:
        exists = os.path.lexists(self.path / MANIFEST)
        if exists:
            self._check_manifest(call)
        contents = self._read()
        needed = BYTES_PER_VERDICT * max(0, expected - len(contents.lines))
        free = shutil.disk_usage(self.path).free
        if needed > free:
            raise RunError(
                f"{self.path}: the disk has {free / 1e6:.1f} MB free, and {expected} verdicts may take"
                f" {needed / 1e6:.1f} MB; make room or use a folder on another disk"
            )
        # The manifest first: a kill between the two leaves a run without verdicts, not verdicts without a run.
        if not exists:
            replace_file(self.path / MANIFEST, json.dumps(call, indent=2, ensure_ascii=False) + "\n")
        if contents.damaged:
            self._set_aside(contents)
        self._file = _open(self.path / VERDICTS, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.done, self._size = contents.lines, contents.size
        if contents.torn:
            self._cut(self._size)
            _warn(
                f"{self.path / VERDICTS}: the last line was cut short when its run was stopped; {contents.torn} bytes"
                " of an unfinished verdict were removed, and it is computed again"
            )

    def _read(self) -> _Contents:
        """What the record's file holds.

        Raises:
            RunError: a verdict stands twice, or a line lacks what names it: not the work of a killed process.
        """
        path = self.path / VERDICTS
        contents = _Contents()
        try:
            data = _read_bytes(path)
        except FileNotFoundError:
            return contents
        *lines, end = data.split(b"\n")
        while lines and not lines[-1].strip(b"\0"):  # blocks that the file system never filled, after a power cut
            end = lines.pop() + b"\n" + end
        contents.torn = len(end)
        for number, line in enumerate(lines, start=1):
            verdict = _verdict_of(line)
            if verdict is None:
                contents.damaged[number] = line
                continue
            key = tuple(verdict.get(name) for name in self.keys)
            if None in key:
                raise RunError(f"{path}, line {number}: not a verdict of this kind of run; use another folder")
            if key in contents.lines:
                raise RunError(
                    f"{path}, line {number}: the verdict {key} stands there twice; remove one of the two lines, or use"
                    " another folder"
                )
            contents.lines[key] = verdict
            contents.whole.append(line + b"\n")
        return contents

    def _set_aside(self, contents: _Contents) -> None:
        """Move damaged lines out of the record; a kill in between leaves them in both places."""
        aside = _open(self.path / DAMAGED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            write_all(aside, b"".join(line + b"\n" for line in contents.damaged.values()))
            os.fsync(aside)
        finally:
            os.close(aside)
        replace_file(self.path / VERDICTS, b"".join(contents.whole))
        contents.torn = 0
        _warn(f"{self._named(contents)}; moved to {DAMAGED}, to be computed again")

    def _named(self, contents: _Contents) -> str:
        numbers = [str(number) for number in contents.damaged]
        listed = ", ".join(numbers[:10]) + (", ..." if len(numbers) > 10 else "")
        count = f"{len(numbers)} damaged line{'s' * (len(numbers) > 1)}"
        return f"{self.path / VERDICTS}, line{'s' * (len(numbers) > 1)} {listed}: {count}, whose checksum does not hold"

    def _cut(self, size: int) -> None:
        """Drop what stands after the whole lines; where even that fails, the next opening does it."""
        try:
            os.ftruncate(self._file, size)
            os.fsync(self._file)
        except OSError:
            pass


def _line(verdict: Mapping[str, Any]) -> bytes:
    """A verdict as its line: a JSON object that ends in the checksum of what stands before it."""
    text = json.dumps(verdict, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")
    return text[:-1] + b', "crc": "%08x"}\n' % zlib.crc32(text)


def _verdict_of(line: bytes) -> dict[str, Any] | None:
    """What a line says; None where its checksum does not hold."""
    end = _CHECKSUM.search(line)
    if end is None or zlib.crc32(text := line[: end.start()] + b"}") != int(end[1], 16):
        return None
    try:
        verdict = json.loads(text.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return verdict if isinstance(verdict, dict) else None


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Name every value that differs, as "name: old -> new", nested names with dots; "note" is free."""
    differences = []
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if before == after or (not prefix and name == "note"):
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            differences += _differences(before, after, f"{prefix}{name}.")
        else:
            differences.append(f"{prefix}{name}: {shortened(before)} -> {shortened(after)}")
    return differences


def shortened(value: Any) -> str:
    """A value for an error message, its middle left out where it is long."""
    text = "absent" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:24]}...{text[-12:]}"


def plain(value: Any) -> Any:
    """JSON values: NaN to None, NumPy scalars to Python's, mapping keys to text; floats keep every bit."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data, in as many calls as the system needs."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def replace_file(path: Path, content: str | bytes) -> None:
    """Put a file in place whole or not at all, also over a power cut; a link is replaced, never followed."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = _open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _open(path: Path, flags: int) -> int:
    """Open a plain file, and nothing else.

    Raises:
        RunError: it is a link, or no file.
    """
    guarded = flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    kind = "a link"
    try:
        descriptor = os.open(path, guarded, 0o644)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        kind = "no file"
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK):
            raise
    raise RunError(f"{path} is {kind}: a run's files are plain files; use another folder")


def _read_bytes(path: Path) -> bytes:
    """All of a plain file."""
    with open(_open(path, os.O_RDONLY), "rb") as file:
        return file.read()


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=5)


def _lock(path: Path) -> int:
    """Hold a file for this process; the system lets go when the process ends, however it ends."""
    descriptor = _open(path, os.O_RDWR | os.O_CREAT)
    if sys.platform == "win32":
        return descriptor
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise RunError(
            f"{path.parent} is being written by another process (number {holder}); wait for it, or use another folder"
        ) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor
