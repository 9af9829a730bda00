"""Votes on disk: a folder of JSON lines, one append-only file for each annotator, the last line on a thing its vote.

Files are merged by putting one behind the other or side by side in one folder: a line that stands twice counts once. A
vote is on the disk before the call that cast it returns; a torn last line is named and skipped.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.runs import shortened

Vote = dict[str, Any]
KINDS = {"score": int, "better": str, "tags": dict, "note": str, "reveal": bool, "next_best": str}
"""What a line can be about, and the type of its value; null withdraws it."""
VOTED = ("score", "better", "tags", "note")


class ReviewError(RuntimeError):
    """A review can't go on as asked; the message says why and what to do."""


class Votes:
    """Everyone's votes in a folder, and where one annotator's go; ReviewError for lines that are no votes on it."""

    def __init__(self, folder: str | os.PathLike[str], annotator: str, collection: str) -> None:
        self.folder, self.annotator, self.collection = Path(folder), annotator, collection
        if self.folder.is_file():
            raise ReviewError(f"{folder} is a file: give a folder as out=, in which each annotator has a file of votes")
        self.path = self.folder / (re.sub(r"[^\w-]+", "_", annotator)[:60] + ".jsonl")
        self._sizes: dict[Path, int] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the files again where one has grown."""
        sizes = {path: path.stat().st_size for path in sorted(self.folder.glob("*.jsonl"))}
        if sizes == self._sizes and sizes:
            return
        self.last: dict[tuple[str, str, str], Vote] = {}  # by annotator, id and field
        self.annotators: list[str] = []  # in the order of the files
        self._history: list[Vote] = []  # this annotator's votes that were not undone
        elsewhere: set[bytes] = set()
        for path in sizes:
            lines = list(self._read(path))
            for line, vote in lines:
                if line not in elsewhere:
                    self._take(vote)
            elsewhere.update(line for line, _ in lines)
        self._sizes = sizes

    def append(self, id: str, field: str, value: Any, **more: Any) -> None:
        """Write one line of this annotator and wait until the disk has it; else ReviewError."""
        time = datetime.now(timezone.utc).isoformat(timespec="microseconds")
        vote = {"annotator": self.annotator, "id": id, "field": field, "value": value, **more, "time": time}
        vote["collection"] = self.collection
        line = json.dumps(vote, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass") + b"\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    line = line if file.read(1) == b"\n" else b"\n" + line  # after a torn line
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ReviewError(f"{self.path} can't be written: {error.strerror or error}; nothing was voted") from error
        self._sizes[self.path] = self._sizes.get(self.path, 0) + len(line)
        self._take(vote)

    def undo(self) -> str:
        """Write what this annotator's last vote replaced, null where it was the first; give its item."""
        if not self._history:
            raise ReviewError("there is nothing to undo")
        *before, last = self._history
        same = (vote for vote in reversed(before) if (vote["id"], vote["field"]) == (last["id"], last["field"]))
        earlier = next(same, {"value": None})
        more = {name: earlier[name] for name in ("blind", "selection") if name in earlier}
        self.append(last["id"], last["field"], earlier["value"], **more, undo=True)
        return str(last["id"])

    def of(self, annotator: str, id: str) -> dict[str, Any]:
        """One annotator's votes on one item: field -> value, the better feedback by its judge's name."""
        return {field: vote["value"] for field in VOTED if (vote := self.last.get((annotator, id, field)))}

    def on(self, *fields: str) -> list[Vote]:
        """The lines that hold everyone's votes on some fields."""
        return [vote for vote in self.last.values() if vote["field"] in fields]

    def table(self, *fields: str) -> pd.DataFrame:
        """One row a vote in any of the fields."""
        rows = []
        for vote in self.on(*fields):
            selection = json.dumps(vote["selection"], sort_keys=True) if vote.get("selection") else ""
            rows.append({**vote, "blind": bool(vote.get("blind")), "selection": selection})
        return pd.DataFrame(rows, columns=["id", "annotator", "field", "value", "blind", "selection", "time"])

    def _take(self, vote: Vote) -> None:
        key = vote["annotator"], vote["id"], vote["field"]
        self.last.pop(key, None)
        if vote["value"] is not None:
            self.last[key] = vote
        if vote["field"] not in VOTED:
            return
        if vote["annotator"] not in self.annotators:
            self.annotators.append(vote["annotator"])
        if vote["annotator"] == self.annotator:
            if not vote.get("undo"):
                self._history.append(vote)
            elif self._history:
                self._history.pop()

    def _read(self, path: Path) -> Iterator[tuple[bytes, Vote]]:
        """The lines of a file and what they say."""
        torn = []
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            if line.strip():
                try:
                    vote = json.loads(line)
                except (ValueError, RecursionError):
                    torn.append(str(number))
                    continue
                if reason := self._why_no_vote(vote):
                    raise ReviewError(f"{path}, line {number}: {reason}; correct or remove it, or use another folder")
                yield line, vote
        if torn:
            what = "cut short when its kernel was stopped, or damaged since; what it said is not counted"
            warnings.warn(f"{path}, line {', '.join(torn[:10])}: {what}", RuntimeWarning, stacklevel=5)

    def _why_no_vote(self, vote: Any) -> str:
        names = ("annotator", "id", "field", "time", "collection")
        if not isinstance(vote, dict) or not all(isinstance(vote.get(name), str) for name in names):
            return "not a vote"
        if vote["collection"] != self.collection:
            there, here = shortened(vote["collection"]), shortened(self.collection)
            return f"a vote on another collection (fingerprint {there} there, {here} here)"
        field, value = vote["field"], vote.get("value")
        if field not in KINDS or not isinstance(value, (KINDS[field], type(None))):
            return f"the {shortened(field)} {shortened(value)} is not a vote"
        return ""
