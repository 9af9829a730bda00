"""Votes on disk: a folder of JSON lines with checksums, one append-only file for each annotator.

The last line on a thing is the vote on it; null withdraws it. Files are merged by appending one to
the other or by putting them side by side in one folder: a line that occurs twice counts once. A
vote is on the disk before the call that cast it returns. A line that a crash cut short, or that was
changed since, is named in a warning and not counted; one from before lines had checksums counts,
and a warning says so.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from vjudge.judging.paths import file_name
from vjudge.judging.record import Log
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
VOTED = {  # what a person votes on, and the type of its value
    "score": int,
    "better": str,
    "tags": dict,
    "note": str,
}
REQUIRED = {"annotator", "id", "field", "value", "collection", "time"}  # of every line
VOTE_FIELDS = {*REQUIRED, "blind", "selection", "simulated", "undo"}
Vote = dict[str, Any]


class ReviewError(RuntimeError):
    """A review can't go on as asked; the message says why and what to do."""


class VoteLog:
    """The votes of all annotators in a folder, and the file of one of them.

    Args:
        folder: where the files are; made with the first vote.
        annotator: whose votes are appended.
        collection: the fingerprint of the collection, which every line repeats.
        judges: whose verdicts are under review.

    `path` is the annotator's file, `lines` are all votes in the order of the files.

    ReviewError: a line is no vote on this collection and these judges.
    """

    def __init__(
        self, folder: Path, *, annotator: str, collection: str, judges: Sequence[str]
    ) -> None:
        self.folder = folder
        self.path = folder / f"{file_name(annotator)}.jsonl"
        self.annotator = annotator
        self.collection = collection
        self.judges = judges
        self.refresh()

    def refresh(self) -> None:
        """Read all files again."""
        self.lines: list[Vote] = []
        self._current: dict[tuple[str, str, str], Vote] = {}  # by annotator, id and field
        seen = set()
        for path in sorted(self.folder.glob("*.jsonl")):
            log = Log(path, before=VOTE_FIELDS)
            for number, vote in enumerate(log.read(), start=1):
                key = json.dumps(vote, sort_keys=True)
                if key not in seen:
                    seen.add(key)
                    self._check(vote, f"{path}, vote {number}")
                    self._take(vote)
            texts = []
            if log.damaged:
                lines = ", ".join(map(str, log.damaged))
                texts.append(
                    f"line {lines}: cut short by a crash, or changed since it was written; what it"
                    " said is not counted"
                )
            if log.unchecked:
                texts.append(
                    f"{len(log.unchecked)} lines are of a version without checksums: they count,"
                    " though a change since they were written would not show"
                )
            for text in texts:
                warnings.warn(f"{path}, {text}", RuntimeWarning, stacklevel=4)

    def get(self, annotator: str, id: str, field: str) -> Any:
        """The value of one vote, None where there is none."""
        vote = self._current.get((annotator, id, field))
        return None if vote is None else vote["value"]

    def current(self, *fields: str) -> list[Vote]:
        """Everyone's votes on some fields, else on all, in the order in which they were cast."""
        return [vote for vote in self._current.values() if vote["field"] in (fields or VOTED)]

    def append(self, **vote: Any) -> None:
        """Add one line of this annotator and wait until the disk has it; else ReviewError."""
        vote["annotator"] = self.annotator
        vote["collection"] = self.collection
        vote["time"] = datetime.now(timezone.utc).isoformat()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            Log(self.path).append([vote])
        except OSError as error:
            raise ReviewError(
                f"{self.path} can't be written: {error}; nothing was voted"
            ) from error
        self._take(vote)

    def undo(self) -> str:
        """Restore what this annotator's last vote replaced, and return its item."""
        standing: list[Vote] = []
        for vote in self.lines:
            if vote["annotator"] != self.annotator:
                continue
            if vote.get("undo"):
                standing = standing[:-1]
            else:
                standing.append(vote)
        if not standing:
            raise ReviewError("there is nothing to undo")
        newest = standing.pop()
        restored = {"id": newest["id"], "field": newest["field"], "value": None}
        for vote in standing:
            if vote["id"] == newest["id"] and vote["field"] == newest["field"]:
                restored = vote
        self.append(**{**restored, "undo": True})
        return str(newest["id"])

    def _take(self, vote: Vote) -> None:
        self.lines.append(vote)
        key = (vote["annotator"], vote["id"], vote["field"])
        self._current.pop(key, None)  # so that votes stay in the order in which they were cast
        if vote["value"] is not None:
            self._current[key] = vote

    def _check(self, vote: object, where: str) -> None:
        """Raise ReviewError for a line that is no vote of this review."""
        if not isinstance(vote, dict) or not vote.keys() >= REQUIRED:
            raise ReviewError(f"{where}: no vote; move the file, or use another folder")
        if vote["collection"] != self.collection:
            raise ReviewError(
                f"{where}: no vote on this collection; move it, or use another folder"
            )
        field = vote["field"]
        value: Any = vote["value"]
        kind = None
        if all(isinstance(name, str) for name in (vote["annotator"], vote["id"], field)):
            kind = VOTED.get(field)
        if kind is None or not isinstance(value, (kind, type(None))):
            reason = f"the {brief(field)} {brief(value)} is not a vote"
            raise ReviewError(f"{where}: {reason}; correct or remove it, or use another folder")
        judges: Any = ()
        if field == "tags" and value:
            judges = value
        elif field == "better" and value:
            judges = (value,)
        unknown = set(judges).difference(self.judges, ANSWERS[2:])
        if unknown:
            reason = f"a vote about {brief(min(unknown))}, not under review"
            raise ReviewError(f"{where}: {reason}; use another folder")
