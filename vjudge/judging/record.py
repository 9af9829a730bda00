"""The record: an append-only file of JSON objects, and how files are named and replaced."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vjudge.records import is_missing

LONGEST_NAME = 120  # bytes of a file's name


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
            text = _bytes(json.dumps(json_value(entry), ensure_ascii=False, allow_nan=False))
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


def json_value(value: Any) -> Any:
    """JSON values: NaN to None, NumPy's to Python's, keys to text; floats keep every bit."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(json_value, value))
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
