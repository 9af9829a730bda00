"""Files that survive a crash: an append-only log of JSON objects, and files replaced as a whole."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from vjudge.records import is_missing

Record: TypeAlias = dict[str, Any]
"""One JSON object of a log: its entries by name."""
Records: TypeAlias = Sequence[Record]


class Log:
    """An append-only file of JSON objects, one per line, each with a checksum.

    A line is on the disk when `append` returns. `read` skips a line whose checksum fails: a crash
    cut it short, somebody changed it, or it was copied from a log with another identity.

        {"score": 4.0, "crc": "1f0a52c3"}
        ^^^^^^^^^^^^^          ^^^^^^^^
        the object, with }     CRC-32 of these bytes, which starts from `identity`

    Args:
        path: the file; it need not exist.
        identity: the number from which checksums start. Logs with equal identities may exchange
            lines.
        before: the field names of objects that older versions wrote without a checksum. `read`
            accepts a line without a checksum that has no other fields, and lists its number in
            `unchecked`.

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
        self.damaged: list[int] = []  # numbers, from 1, of the lines that `read` skipped
        self.unchecked: list[int] = []  # numbers of the lines that `read` took without a checksum

    def read(self) -> list[Record]:
        """Read all intact objects, in the order in which they were written."""
        entries = []
        self.damaged = []
        self.unchecked = []
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        for number, line in enumerate(lines, start=1):
            # '{"score": 4.0, "crc": "1f0a52c3"}' -> '{"score": 4.0' and '1f0a52c3"}'
            start, _, end = line.rpartition(b', "crc": "')
            text = start + b"}"
            if end == self._checksum(text):
                entries.append(json.loads(text))
                continue
            entry = self._without_checksum(line)
            if entry:
                entries.append(entry)
                self.unchecked.append(number)
            elif line:  # an empty line has lost nothing
                self.damaged.append(number)
        return entries

    def _without_checksum(self, line: bytes) -> Record:
        """Parse a line of an older version; {} where the line is damaged or has other fields."""
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.keys() <= set(self.before):
                return entry
        return {}

    def append(self, entries: Iterable[Record]) -> None:
        """Write objects, NaN as null, and wait for the disk.

        Raises:
            OSError: the disk does not take them.
        """
        lines = []
        for entry in entries:
            text = _bytes(json.dumps(json_value(entry), ensure_ascii=False, allow_nan=False))
            # the checksum becomes the last entry: it stands before the closing brace
            lines.append(text[:-1] + b', "crc": "' + self._checksum(text) + b"\n")
        if not lines:
            return
        if not self._ends_a_line():
            lines.insert(0, b"\n")  # a crash cut the last line short: it must not damage this one
        _write(self.path, "ab", b"".join(lines))

    def _ends_a_line(self) -> bool:
        """Whether the file is empty, or ends with a line break."""
        if not self.path.exists() or not self.path.stat().st_size:
            return True
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _checksum(self, text: bytes) -> bytes:
        """Compute the end of a line: its checksum in hexadecimal, and the closing of the object."""
        return b'%08x"}' % zlib.crc32(text, self.identity)


def json_value(value: Any) -> Any:
    """Convert a value for JSON: NaN to None, NumPy's values to Python's, names to text.

    Floats keep every bit.

    >>> json_value({"score": float("nan"), "scores": (1, 2)})
    {'score': None, 'scores': [1, 2]}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(json_value, value))
    return None if is_missing(value) else value


def replace_file(path: Path, text: str) -> None:
    """Write a text file so that a crash leaves the old file or the new one, never a part of it."""
    temporary = path.with_name(f"{path.name}.new")
    _write(temporary, "wb", _bytes(text))
    os.replace(temporary, path)


def _bytes(text: str) -> bytes:
    """Encode a text that may hold half a surrogate pair, as texts from the web do."""
    return text.encode("utf-8", "surrogatepass")


def _write(path: Path, mode: str, content: bytes) -> None:
    """Write or append bytes, and wait until the disk has them."""
    with open(path, mode) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
