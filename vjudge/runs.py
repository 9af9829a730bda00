"""The append-only record of a run: what was asked, and every verdict as soon as it exists.

`manifest.json` says what was run, `verdicts.jsonl` holds one verdict a line, on the disk when
`append` returns. Each line ends in a checksum over the line and the manifest's identity. A line
whose checksum fails was cut short, changed, or copied from another run: the next opening names it
and moves it to `damaged.jsonl`, and its verdict is computed again.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

MANIFEST = "manifest.json"
VERDICTS = "verdicts.jsonl"
DAMAGED = "damaged.jsonl"
LOCK = "run.lock"
FORMAT = 3  # 2: a line's checksum did not depend on its run
PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
SHOWN = 10  # damaged lines that a warning lists

_CHECKSUM = re.compile(rb', "crc": "([0-9a-f]{8})"\}\n\Z')

Verdict = dict[str, Any]
Key = tuple[Any, ...]


class RunError(RuntimeError):
    """A run's folder can't be used as asked; the message says why and what to do."""


class Run:
    """A run's folder: to read, or to write as a context manager, one process at a time.

    Args:
        path: the folder.
        keys: the columns that tell one verdict from another.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with Run(folder).open({"judge": "mine"}) as run:
    ...     run.append([{"id": "a", "sample": 0, "score": 4.0}])
    >>> with Run(folder).open({"judge": "mine"}) as run:
    ...     run.done
    {('a', 0): {'id': 'a', 'sample': 0, 'score': 4.0}}
    """

    def __init__(
        self, path: str | os.PathLike[str], *, keys: tuple[str, ...] = ("id", "sample")
    ) -> None:
        self.path = Path(path)
        self.keys = keys
        self.done: dict[Key, Verdict] = {}
        self.note: dict[str, Any] = {}  # of the call before this one
        self._lock = FileLock(self.path / LOCK, timeout=0, thread_local=False)
        self._identity = 0
        self._writes = False

    @property
    def manifest(self) -> dict[str, Any]:
        """What was run; RunError where the folder holds no run of this vjudge that can be read."""
        path = self.path / MANIFEST
        try:
            manifest = json.loads(_read(path))
        except (ValueError, OSError, RecursionError) as error:
            remedy = "restore it or use another folder"
            raise RunError(f"{path} can't be read ({error}); {remedy}") from error
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            what = f"{path} is not a run of this vjudge (format {FORMAT})"
            raise RunError(f"{what}; use another folder")
        return manifest

    def verdicts(self) -> list[Verdict]:
        """All whole verdicts in the order written, NaN as None."""
        lines = _lines(self.path / VERDICTS, _identity(self.manifest))
        return [verdict for _, verdict in lines if verdict is not None]

    def open(self, manifest: Mapping[str, Any], *, expected: int = 0) -> Run:
        """Start the run, or continue the one that the folder holds.

        Args:
            manifest: what is run, in plain JSON values. What stands under "note" may differ from
                call to call, and the last call's is kept; any other difference is refused.
            expected: how many verdicts make the run complete. A complete one that can't be
                written is read.

        Raises:
            RunError: the folder holds another run or something else, or another process writes
                here, or the disk can't be written.
        """
        call = json.loads(json.dumps({"format": FORMAT, **manifest}, default=str))
        try:
            self._start(call)
        except Timeout:
            what = f"{self.path} is being written by another process"
            raise RunError(f"{what}; wait for it, or use another folder") from None
        except OSError as error:
            if not self._complete(call, expected):
                what = f"{self.path} can't be written: {error.strerror or error}"
                raise RunError(f"{what}; use another folder") from error
        finally:
            if not self._writes:
                self.close()
        return self

    def _start(self, call: dict[str, Any]) -> None:
        # 1) look before anything is put into a folder of something else
        self.path.mkdir(parents=True, exist_ok=True)
        self._check(call)

        # 2) one process at a time; the system lets go when the process ends, however it ends
        _refuse_link(self.path / LOCK)
        self._lock.acquire()

        # 3) the manifest first: a kill here leaves a run without verdicts, not the reverse
        self._check(call)
        text = json.dumps(call, indent=2, ensure_ascii=False)
        replace_file(self.path / MANIFEST, f"{text}\n")

        # 4) the verdicts; damaged lines are moved aside
        whole, damaged = self._load(call)
        if damaged:
            self._move_aside(whole, damaged)
        self._writes = True

    def append(self, verdicts: Iterable[Mapping[str, Any]]) -> None:
        """Write verdicts, NaN as null, and wait for the disk; RunError where it fails."""
        if not self._writes:
            raise RunError(f"{self.path} is not open for writing; use another folder")
        fresh = {}
        for verdict in verdicts:
            fresh[self._key(verdict)] = plain(verdict)
        lines = [_line(verdict, self._identity) for verdict in fresh.values()]
        path = self.path / VERDICTS
        try:
            _write(path, b"".join(lines), "ab")
        except OSError as error:  # the next opening moves a torn end aside
            saved = f"{len(self.done)} verdicts are saved"
            remedy = "make room where the disk is full, and repeat the call to continue"
            raise RunError(f"{path}: {error}; {saved}: {remedy}") from error
        self.done |= fresh

    def close(self) -> None:
        self._writes = False
        self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _key(self, verdict: Mapping[str, Any]) -> Key:
        return tuple(verdict[name] for name in self.keys)

    def _check(self, call: dict[str, Any]) -> None:
        """Refuse a folder that holds another run, or other files and no run."""
        if os.path.lexists(self.path / MANIFEST):
            held = self.manifest
            differing = _differences(held | {"note": None}, call | {"note": None})
            if differing:
                what = f"{self.path} holds a run that differs from this call in"
                remedy = "Repeat the first call to continue it, or use another folder"
                raise RunError(f"{what} {'; '.join(differing)}. {remedy}")
            self.note = held.get("note", {})
            return
        others = sorted(set(os.listdir(self.path)) - {LOCK, f"{MANIFEST}.new"})
        if others:
            what = f"{self.path} holds other files and no run ({', '.join(others[:3])})"
            raise RunError(f"{what}; use a new or empty folder")

    def _complete(self, call: dict[str, Any], expected: int) -> bool:
        """Whether the folder, which can't be written, has all verdicts; they are read then."""
        if not os.path.lexists(self.path / MANIFEST):
            return False
        self._check(call)
        _, damaged = self._load(call)
        return not damaged and len(self.done) >= max(1, expected)

    def _load(self, manifest: Mapping[str, Any]) -> tuple[list[bytes], dict[int, bytes]]:
        """Read the verdicts by key; gives their lines, and the damaged ones by number."""
        self._identity = _identity(manifest)
        self.done = {}
        path = self.path / VERDICTS
        whole = []
        damaged = {}
        for number, (line, verdict) in enumerate(_lines(path, self._identity), start=1):
            if verdict is None:
                damaged[number] = line.rstrip(b"\n") + b"\n"
                continue
            key = self._key(verdict)
            if key in self.done:
                what = f"{path}, line {number}: the verdict {key} stands there twice"
                raise RunError(f"{what}; remove it, or use another folder")
            self.done[key] = verdict
            whole.append(line)
        return whole, damaged

    def _move_aside(self, whole: list[bytes], damaged: Mapping[int, bytes]) -> None:
        """Put damaged lines into a file of their own; a kill in between leaves them in both."""
        path = self.path / VERDICTS
        _write(self.path / DAMAGED, b"".join(damaged.values()), "ab")
        replace_file(path, b"".join(whole))
        listed = ", ".join(str(number) for number in list(damaged)[:SHOWN])
        if len(damaged) > SHOWN:
            listed += ", ..."
        what = f"{path}: {len(damaged)} damaged lines ({listed})"
        why = "cut short, changed since they were written, or copied from another run"
        outcome = f"moved to {DAMAGED}, to be computed again"
        warnings.warn(f"{what}, {why}; {outcome}", RuntimeWarning, stacklevel=4)


def _identity(manifest: Mapping[str, Any]) -> int:
    """A checksum of what was run, with which those of its lines start."""
    own = {name: value for name, value in manifest.items() if name != "note"}
    return zlib.crc32(json.dumps(own, sort_keys=True).encode())


def _line(verdict: Mapping[str, Any], identity: int) -> bytes:
    """A verdict as its line: a JSON object that ends in the checksum of what stands before it."""
    text = json.dumps(verdict, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")
    return text[:-1] + b', "crc": "%08x"}\n' % zlib.crc32(text, identity)


def _lines(path: Path, identity: int) -> Iterator[tuple[bytes, Verdict | None]]:
    """Each line of a record with its verdict; None where its checksum does not hold."""
    if not os.path.lexists(path):
        return
    for line in _read(path).splitlines(keepends=True):
        verdict = None
        end = _CHECKSUM.search(line)
        if end is not None:
            text = line[: end.start()] + b"}"
            if zlib.crc32(text, identity) == int(end[1], 16):
                verdict = json.loads(text)
        yield line, verdict


def _differences(held: Any, call: Any, name: str = "") -> list[str]:
    """What two manifests say differently, as "name: old -> new"."""
    if held == call:
        return []
    if not isinstance(held, dict) or not isinstance(call, dict):
        return [f"{name}: {shortened(held)} -> {shortened(call)}"]
    differing = []
    for key in held | call:
        inner = f"{name}.{key}" if name else key
        differing += _differences(held.get(key, "absent"), call.get(key, "absent"), inner)
    return differing


def shortened(value: Any) -> str:
    """A value for an error message, its middle left out where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > 60:
        text = f"{text[:24]}...{text[-12:]}"
    return text


def plain(value: Any) -> Any:
    """JSON values: NaN to None, NumPy scalars to Python's, keys to text; floats keep every bit."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


def replace_file(path: Path, content: str | bytes) -> None:
    """Put a file in place whole or not at all, also over a power cut; no link is followed."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    _write(temporary, content, "wb")
    os.replace(temporary, path)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)  # the folder's entry
        os.close(folder)


def _write(path: Path, content: bytes, mode: str) -> None:
    """Write or append, and wait for the disk."""
    with _open(path, mode) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> bytes:
    with _open(path, "rb") as file:
        content: bytes = file.read()
        return content


def _open(path: Path, mode: str) -> Any:
    _refuse_link(path)
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | PLAIN, 0o644))


def _refuse_link(path: Path) -> None:
    """RunError for a link, which may lead anywhere, and for what is no file."""
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        what = f"{path} is a link, or no file"
        raise RunError(f"{what}: a run's files are plain files; use another folder")
