"""The append-only record of a run: what was asked, and every verdict as soon as it exists.

`manifest.json` says what was run, `verdicts.jsonl` holds one verdict a line, on the disk when
`append` returns. Each line ends in a checksum over the line and the manifest's identity. A line
whose checksum fails was cut short, changed, or copied from another run: it is passed over, the next
opening counts such lines in a warning, and their verdicts are computed again.
"""

from __future__ import annotations

import json
import math
import os
import warnings
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

MANIFEST = "manifest.json"
VERDICTS = "verdicts.jsonl"
LOCK = "run.lock"
FORMAT = 3  # 2: a line's checksum did not depend on its run


class RunError(RuntimeError):
    """A run's folder can't be used as asked; the message says why and what to do."""


class Run:
    """A run's folder: to read, or to write as a context manager, one process at a time.

    `done` holds its verdicts by their entry "asked", which tells each from the others.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with Run(folder).open({"judge": "mine"}) as run:
    ...     run.append([{"asked": "a", "score": 4.0}])
    >>> with Run(folder).open({"judge": "mine"}) as run:
    ...     run.done
    {'a': {'asked': 'a', 'score': 4.0}}
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.done: dict = {}
        self._lock = FileLock(self.path / LOCK, timeout=0, thread_local=False)
        self._identity = 0

    @property
    def manifest(self) -> dict:
        """What was run; RunError where the folder holds no run of this vjudge that can be read."""
        path = self.path / MANIFEST
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

    def verdicts(self) -> list:
        """All whole verdicts in the order written, NaN as None."""
        self._identity = _identity(self.manifest)
        return self._read()

    def open(self, manifest: Mapping) -> Run:
        """Start the run, or continue the one that the folder holds.

        Args:
            manifest: what is run, in plain JSON values. What stands under "note" may differ from
                call to call, and the last call's is kept; any other difference is refused.

        Raises:
            RunError: the folder holds another run or something else, or another process writes
                here, or the disk can't be written.
        """
        call = json.loads(json.dumps({"format": FORMAT, **manifest}, default=str))
        try:
            # 1) the same call, one process at a time
            self.path.mkdir(parents=True, exist_ok=True)
            if (self.path / MANIFEST).exists():
                self._check(call)
            self._lock.acquire()
            # 2) the manifest first: a kill here leaves a run without verdicts, not the reverse
            text = json.dumps(call, indent=2, ensure_ascii=False)
            replace_file(self.path / MANIFEST, f"{text}\n")
            # 3) a new line behind a verdict that was cut short
            path = self.path / VERDICTS
            if path.exists() and not path.read_bytes().endswith(b"\n"):
                _write(path, "ab", b"\n")
        except OSError as error:
            raise RunError(
                f"{self.path} can't be written ({error}); wait for another process that writes"
                " here, or use another folder"
            ) from error
        self._identity = _identity(call)
        self.done = {verdict["asked"]: verdict for verdict in self._read()}
        return self

    def _check(self, call: dict) -> None:
        """Refuse a folder that holds another run."""
        held = self.manifest
        differing = []
        for name in held | call:
            if name != "note" and held.get(name) != call.get(name):
                differing.append(f"{name}: {held.get(name)!r} -> {call.get(name)!r}")
        if differing:
            raise RunError(
                f"{self.path} holds a run that differs from this call in {'; '.join(differing)}."
                " Repeat the first call to continue it, or use another folder"
            )

    def _read(self) -> list:
        """The verdicts whose checksum holds; a warning counts other lines."""
        path = self.path / VERDICTS
        verdicts = []
        damaged = 0
        for line in path.read_bytes().splitlines() if path.exists() else ():
            start, _, end = line.rpartition(b', "crc": "')
            text = start + b"}"
            if end == _checksum(text, self._identity):
                verdicts.append(json.loads(text))
            elif line:
                damaged += 1
        if damaged:
            warnings.warn(
                f"{path}: {damaged} damaged lines, cut short, changed since they were written, or"
                " copied from another run, are passed over; their verdicts are computed again",
                RuntimeWarning,
                stacklevel=4,
            )
        return verdicts

    def append(self, verdicts: Iterable) -> None:
        """Write verdicts, NaN as null, and wait for the disk; RunError where it fails."""
        path = self.path / VERDICTS
        fresh = {}
        lines = []
        for given in verdicts:
            verdict = plain(given)
            fresh[verdict["asked"]] = verdict
            text = _bytes(json.dumps(verdict, ensure_ascii=False, allow_nan=False))
            lines.append(text[:-1] + b', "crc": "' + _checksum(text, self._identity) + b"\n")
        try:
            _write(path, "ab", b"".join(lines))
        except OSError as error:
            raise RunError(
                f"{path}: {error}; {len(self.done)} verdicts are saved: make room where the disk"
                " is full, and repeat the call to continue"
            ) from error
        self.done |= fresh

    def close(self) -> None:
        self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _identity(manifest: Mapping) -> int:
    """A checksum of what was run, with which those of its lines start."""
    own = {name: value for name, value in manifest.items() if name != "note"}
    return zlib.crc32(json.dumps(own, sort_keys=True).encode())


def _checksum(text: bytes, identity: int) -> bytes:
    """How the line of a verdict ends."""
    return b'%08x"}' % zlib.crc32(text, identity)


def plain(value: Any) -> Any:
    """JSON values: NaN to None, NumPy scalars to Python's, keys to text; floats keep every bit."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(plain, value))
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


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
