"""Votes on disk: a folder of JSON lines, one append-only file for each annotator.

The last line on a thing is the vote on it; null withdraws it. Files are merged by appending one to
the other or by putting them side by side in one folder: a line that occurs twice counts once. A
vote is on the disk before the call that cast it returns. A line that a crash cut short is named in
a warning and skipped.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from vjudge.records import brief

ANSWERS = ("left", "right", "both good", "both bad")
"""Which of two feedbacks is better.

Source: Prometheus-Vision (arXiv 2401.06591), its human comparison of feedback.
"""
TAGS = (
    "too critical",
    "too optimistic",
    "misread the picture",
    "misread the response",
    "ignored the rubric",
    "followed the reference blindly",
    "score contradicts feedback",
    "invented a detail",
    "too vague to use",
)
"""Error tags offered by default.

Source: the first two are of Prometheus-Vision (arXiv 2401.06591), the others ours.
"""
VOTED = ("score", "better", "tags", "note")  # what a person votes on
Vote = dict


class ReviewError(RuntimeError):
    """A review can't go on as asked; the message says why and what to do."""


class VoteLog:
    """The votes of all annotators in a folder, and the file of one of them.

    Args:
        folder: where the files are; made with the first vote.
        annotator: whose votes are appended.
        collection: the fingerprint of the collection, which every line repeats.
        judges: whose verdicts are under review.

    `path` is the annotator's file.

    ReviewError: a line is no vote on this collection and these judges.
    """

    def __init__(self, folder: Path, *, annotator: str, collection: str, judges: Sequence) -> None:
        name = re.sub(r"[^\w-]+", "_", annotator)[:60]
        self.folder = folder
        self.path = folder / f"{name}.jsonl"
        self.annotator = annotator
        self.collection = collection
        self.judges = judges
        self.refresh()

    def refresh(self) -> None:
        """Read all files again."""
        self._standing: list = []  # this annotator's, without those that were undone
        self._current: dict = {}  # by annotator, id and field
        seen = set()
        for path in sorted(self.folder.glob("*.jsonl")):
            for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
                if not line.strip() or line in seen:
                    continue
                seen.add(line)
                where = f"{path}, line {number}"
                try:
                    vote = json.loads(line)
                except ValueError:
                    what = "cut short by a crash, or damaged; what it said is not counted"
                    warnings.warn(f"{where}: {what}", RuntimeWarning, stacklevel=4)
                    continue
                self._check(vote, where)
                self._take(vote)

    def get(self, annotator: str, id: str, field: str) -> Any:
        """The value of one vote, None where there is none."""
        vote = self._current.get((annotator, id, field))
        return None if vote is None else vote["value"]

    def current(self) -> list:
        """Everyone's votes, in the order in which they were cast."""
        return list(self._current.values())

    def append(self, **vote: Any) -> None:
        """Add one line of this annotator and wait until the disk has it; else an OSError."""
        vote["annotator"] = self.annotator
        vote["collection"] = self.collection
        vote["time"] = datetime.now(timezone.utc).isoformat()
        text = json.dumps(vote, ensure_ascii=False, allow_nan=False)
        line = text.encode("utf-8", "surrogatepass") + b"\n"
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # the line before was cut short
                    line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._take(vote)

    def undo(self) -> str:
        """Restore what this annotator's last vote replaced, and return its item."""
        if not self._standing:
            raise ReviewError("there is nothing to undo")
        last = self._standing[-1]
        restored = last | {"value": None}
        for vote in self._standing[:-1]:
            if (vote["id"], vote["field"]) == (last["id"], last["field"]):
                restored = vote
        self.append(**restored | {"undo": True})
        return str(last["id"])

    def _take(self, vote: Vote) -> None:
        if vote["annotator"] == self.annotator:
            if vote.get("undo"):
                del self._standing[-1:]
            else:
                self._standing.append(vote)
        key = (vote["annotator"], vote["id"], vote["field"])
        self._current.pop(key, None)  # so that votes stay in the order in which they were cast
        if vote["value"] is not None:
            self._current[key] = vote

    def _check(self, vote: Any, where: str) -> None:
        """Raise ReviewError for a line that is no vote of this review."""
        if not isinstance(vote, dict) or vote.get("collection") != self.collection:
            what = "no vote on this collection; move it, or use another folder"
            raise ReviewError(f"{where}: {what}")
        about = set()
        if vote["field"] == "better":
            about = {vote["value"]}
        elif vote["field"] == "tags":
            about = set(vote["value"] or ())
        unknown = about.difference(self.judges, ANSWERS[2:], [None])
        if unknown:
            what = f"a vote about {brief(min(unknown))}, not under review"
            raise ReviewError(f"{where}: {what}; use another folder")
