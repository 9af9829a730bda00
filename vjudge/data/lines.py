"""A file of JSON lines as a sequence whose rows are read when they are asked for."""

from __future__ import annotations

import codecs
import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vjudge.data.schema import CollectionError, Problem


class JsonLines(Sequence[Any]):
    """The values of a file with one JSON value a line; empty lines count for nothing.

    Where each line begins is all that stays in memory, 8 bytes a row.

    Args:
        path: the file, in UTF-8.
        limit: at most so many lines; None for all.

    Raises:
        CollectionError: lines that are not JSON, all of them.
        UnicodeDecodeError: a line that is not UTF-8.
    """

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self._path, self._starts = path, array("q")
        problems: list[Problem] = []
        with path.open("rb") as file:
            start = len(codecs.BOM_UTF8) if file.read(3) == codecs.BOM_UTF8 else 0
            file.seek(start)
            while (limit is None or len(self._starts) < limit) and (line := file.readline()):
                if line.strip():
                    try:
                        json.loads(line.decode("utf-8"))
                    except json.JSONDecodeError as error:
                        index = len(self._starts)
                        problems.append(Problem(index, None, "row", f"is not JSON ({error})", "repair the line"))
                    self._starts.append(start)
                start += len(line)
        if problems:
            raise CollectionError(f"{len(problems)} lines of {str(path)!r} cannot be read", problems)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        with self._path.open("rb") as file:
            file.seek(self._starts[index])
            return json.loads(file.readline())

    def __iter__(self) -> Iterator[Any]:
        with self._path.open("rb") as file:
            for start in self._starts:
                file.seek(start)
                yield json.loads(file.readline())
