"""The append-only record of a run: what was asked, and every verdict as soon as it exists.

A run is a folder with two files. `manifest.json` says what was run: judge, weights, prompts, decoding, versions, seed,
collection. `verdicts.jsonl` holds one verdict a line and only ever grows. A process killed at any moment leaves whole
lines and at most one torn one, which the next opening cuts off and mentions; a verdict that `append` returned for is on
the disk. A lock keeps two processes from writing at once (not on Windows, where the system offers no such lock).
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import sys
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

MANIFEST, VERDICTS, LOCK = "manifest.json", "verdicts.jsonl", "run.lock"
FORMAT = 1
FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}  # Windows has no quotas
BYTES_PER_VERDICT = 4096  # a generous guess, to refuse a run that the disk can't hold


_ABSENT = object()


class RunError(RuntimeError):
    """A run's folder can't be used as asked; the message says why and what to do."""


class Run:
    """A run's folder, to read, or to write as a context manager.

    Args:
        path: the folder; made by `open` where it does not exist.
        keys: the columns that tell one verdict from another.

    With `open`, one process at a time holds the folder:

        with Run("outputs/tiny").open(manifest, expected=300) as run:
            run.done      # (id, sample) -> verdict, from earlier calls
            run.append(verdicts)
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
            manifest = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{self.path} holds no run: it has no {MANIFEST}") from None
        except (ValueError, OSError) as error:
            raise RunError(
                f"{self.path / MANIFEST} can't be read ({error}); restore it or use another folder"
            ) from error
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise RunError(f"{self.path / MANIFEST} is not a run of this vjudge (format {FORMAT}); use another folder")
        return manifest

    def verdicts(self) -> list[dict[str, Any]]:
        """All whole verdicts in the order they were written; NaN is None. A torn last line is left out, not cut off."""
        return list(_read(self.path / VERDICTS, self.keys)[0].values())

    def open(self, manifest: Mapping[str, Any], *, expected: int = 0) -> Run:
        """Start the run, or continue the one that the folder holds.

        Args:
            manifest: what is run, as plain JSON values. What stands under "note" may differ between calls; all else
                must be as in the first call.
            expected: verdicts to come, to check the disk's room.

        Raises:
            RunError: another process writes here; the folder holds something else, or a run with another manifest
                (each difference is named); it can't be written; the disk has no room.
        """
        wanted = json.loads(json.dumps({"format": FORMAT, **manifest}, default=str))
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_folder()
            self._lock = _lock(self.path / LOCK)
            self._start(wanted, expected)
        except OSError as error:
            self.close()
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
        data = "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in fresh.values())
        encoded = data.encode("utf-8", "surrogatepass")
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

    def note(self, **values: Any) -> None:
        """Put values under the manifest's "note", where calls that continue the run may look; the disk has them."""
        manifest = self.manifest
        manifest["note"] = {**manifest.get("note", {}), **values}
        replace_file(self.path / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")

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
            shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            raise RunError(f"{self.path} holds other files and no run ({shown}); use a new or empty folder")

    def _start(self, wanted: dict[str, Any], expected: int) -> None:
        if (self.path / MANIFEST).exists():
            differences = _differences(self.manifest, wanted)
            if differences:
                raise RunError(
                    f"{self.path} holds a run that differs from this call in {'; '.join(differences)}."
                    " Repeat the first call to continue it, or use another folder"
                )
        self.done, self._size, torn = _read(self.path / VERDICTS, self.keys)
        needed, free = BYTES_PER_VERDICT * max(0, expected - len(self.done)), shutil.disk_usage(self.path).free
        if needed > free:
            raise RunError(
                f"{self.path}: the disk has {free / 1e6:.1f} MB free, and {expected} verdicts may take"
                f" {needed / 1e6:.1f} MB; make room or use a folder on another disk"
            )
        # The manifest first: a kill between the two leaves a run without verdicts, not verdicts without a run.
        if not (self.path / MANIFEST).exists():
            replace_file(self.path / MANIFEST, json.dumps(wanted, indent=2, ensure_ascii=False) + "\n")
        self._file = os.open(self.path / VERDICTS, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        if torn:
            self._cut(self._size)
            warnings.warn(
                f"{self.path / VERDICTS}: the last line was cut short when its run was stopped; {torn} bytes of an"
                " unfinished verdict were removed, and it is computed again",
                RuntimeWarning,
                stacklevel=4,
            )

    def _cut(self, size: int) -> None:
        """Drop what stands after the whole lines; where even that fails, the next opening does it."""
        try:
            os.ftruncate(self._file, size)
            os.fsync(self._file)
        except OSError:
            pass


def _read(path: Path, keys: tuple[str, ...]) -> tuple[dict[tuple[Any, ...], dict[str, Any]], int, int]:
    """Read whole verdicts; return them by key, the bytes they take, and the bytes of a torn end after them.

    Raises:
        RunError: a line that is not the last is damaged, or a verdict stands twice: not the work of a killed process.
    """
    data = path.read_bytes() if path.exists() else b""
    lines = data.split(b"\n")
    verdicts: dict[tuple[Any, ...], dict[str, Any]] = {}
    size = 0
    for number, line in enumerate(lines[:-1], start=1):
        try:
            verdict = json.loads(line.decode("utf-8", "surrogatepass"))
            key = tuple(verdict[name] for name in keys)
        except (ValueError, KeyError, TypeError):
            if any(rest.strip(b"\0") for rest in lines[number:]):
                raise RunError(
                    f"{path}, line {number}: not a verdict; restore the file or use another folder"
                ) from None
            break  # a block that the file system never filled, after a power cut
        if key in verdicts:
            raise RunError(f"{path}, line {number}: the verdict {key} stands there twice; use another folder")
        verdicts[key] = verdict
        size += len(line) + 1
    return verdicts, size, len(data) - size


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Name every value that differs, as "name: old -> new", nested names with dots; "note" is free."""
    found = []
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if before == after or (not prefix and name == "note"):
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            found += _differences(before, after, f"{prefix}{name}.")
        else:
            found.append(f"{prefix}{name}: {shortened(before)} -> {shortened(after)}")
    return found


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


def replace_file(path: Path, text: str) -> None:
    """Put a file in place whole or not at all, also over a power cut."""
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("w", encoding="utf-8", errors="surrogatepass") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _lock(path: Path) -> int:
    """Hold a file for this process; the system lets go when the process ends, however it ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
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
