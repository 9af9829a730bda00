"""Votes on disk: a folder with one append-only file of JSON lines for each annotator.

- The latest line about a field of an item is the vote on it; the value null withdraws the vote.
- A vote is on the disk before the call that cast it returns.
- Files may be merged, by appending one to the other or by putting them into one folder: a line that
  occurs twice counts once.
- Each line has a checksum. A line that a crash truncated, or that was changed, does not count, and
  a warning names it. A line of a version without checksums counts, and a warning says so.
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
VOTED = {  # field -> the type of its value
    "score": int,
    "better": str,
    "tags": dict,
    "note": str,
}
REQUIRED = {"annotator", "id", "field", "value", "collection", "time"}  # keys of every line
VOTE_KEYS = {*REQUIRED, "blind", "selection", "simulated", "undo"}  # all keys that a line may have
Vote = dict[str, Any]


class ReviewError(RuntimeError):
    """A review can't do what was asked; the message has the reason and the remedy."""


class VoteLog:
    """The votes of all annotators in a folder, to which one of them appends.

    Args:
        folder: the folder of the files, made with the first vote.
        annotator: who votes.
        collection: the fingerprint of the collection, which every line repeats.
        judges: the judges under review.

    Further attributes are `path`, the annotator's file; and `lines`, all votes, also replaced and
    withdrawn ones: those on the disk in the order of the files, then those cast since.

    Raises:
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
        """Read all files again.

        Raises:
            ReviewError: a line is no vote on this collection and these judges.
        """
        self.lines: list[Vote] = []
        self._current: dict[tuple[str, str, str], Vote] = {}  # (annotator, id, field) -> vote
        read = set()
        for path in sorted(self.folder.glob("*.jsonl")):
            log = Log(path, before=VOTE_KEYS)
            for number, vote in enumerate(log.read(), start=1):
                text = json.dumps(vote, sort_keys=True)
                if text not in read:  # a merged folder may have a line twice
                    read.add(text)
                    self._check(vote, f"{path}, vote {number}")
                    self._add(vote)
            _warn_of_lines(log)

    def get(self, annotator: str, id: str, field: str) -> Any:
        """Return the value of a vote; None where there is none."""
        vote = self._current.get((annotator, id, field))
        return None if vote is None else vote["value"]

    def current(self, *fields: str) -> list[Vote]:
        """List everyone's current votes, without replaced and withdrawn ones.

        Args:
            fields: the fields of the votes; none means all.
        """
        return [vote for vote in self._current.values() if vote["field"] in (fields or VOTED)]

    def append(self, **vote: Any) -> None:
        """Write a vote of this annotator, and wait until it is on the disk.

        Args:
            vote: id, field, value and further keys of `VOTE_KEYS`; annotator, collection and time
                are set here.

        Raises:
            ReviewError: the file can't be written.
        """
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
        self._add(vote)

    def undo(self) -> str:
        """Restore what this annotator's last vote replaced, and return the id of its item.

        Nothing is deleted: a line with `undo` is appended, which repeats the vote before the last
        on the same item and field, or withdraws the last where there is none before it.

        Raises:
            ReviewError: there is no vote to undo.
        """
        # This annotator's votes that no earlier undo took back: each undo takes back the last one
        # that stood before it
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
        undone = standing.pop()
        # Without an earlier vote on the same item and field, the undone vote is withdrawn (None);
        # else the last of them is restored
        restored = {"id": undone["id"], "field": undone["field"], "value": None}
        for vote in standing:
            if vote["id"] == undone["id"] and vote["field"] == undone["field"]:
                restored = vote
        self.append(**{**restored, "undo": True})
        return str(undone["id"])

    def _add(self, vote: Vote) -> None:
        """Add a line to the votes in memory; it replaces the vote on the same item and field."""
        self.lines.append(vote)
        key = (vote["annotator"], vote["id"], vote["field"])
        self._current.pop(key, None)  # a new vote moves to the end: the order is that of casting
        if vote["value"] is not None:
            self._current[key] = vote

    def _check(self, vote: object, where: str) -> None:
        """Raise ReviewError for a line that is no vote of this review.

        Args:
            vote: the line's JSON value.
            where: the file and the number of the line, for the message.
        """
        if not isinstance(vote, dict) or not vote.keys() >= REQUIRED:
            raise ReviewError(f"{where}: no vote; move the file, or use another folder")
        if vote["collection"] != self.collection:
            raise ReviewError(
                f"{where}: no vote on this collection; move it, or use another folder"
            )
        field = vote["field"]
        value: Any = vote["value"]
        value_type = None  # None: the field is unknown, or a name is no text
        if all(isinstance(name, str) for name in (vote["annotator"], vote["id"], field)):
            value_type = VOTED.get(field)
        # In every field a value None is valid: it withdraws the vote
        if value_type is None or not isinstance(value, (value_type, type(None))):
            reason = f"the {brief(field)} {brief(value)} is not a vote"
            raise ReviewError(f"{where}: {reason}; correct or remove it, or use another folder")
        # Judges that the vote names: the keys of tags, or the better one of two. Each must be under
        # review; ANSWERS[2:], "both good" and "both bad", are answers without a judge
        judges: Any = ()
        if field == "tags" and value:
            judges = value
        elif field == "better" and value:
            judges = (value,)
        unknown = set(judges).difference(self.judges, ANSWERS[2:])
        if unknown:
            reason = f"a vote about {brief(min(unknown))}, not under review"
            raise ReviewError(f"{where}: {reason}; use another folder")


def _warn_of_lines(log: Log) -> None:
    """Warn of the lines of a file that do not count, and of those without a checksum."""
    texts = []
    if log.damaged:
        lines = ", ".join(map(str, log.damaged))
        texts.append(
            f"line {lines}: cut short by a crash, or changed since it was written; what it said is"
            " not counted"
        )
    if log.unchecked:
        texts.append(
            f"{len(log.unchecked)} lines are of a version without checksums: they count, though a"
            " change since they were written would not show"
        )
    for text in texts:  # level 5 is the line that makes the review
        warnings.warn(f"{log.path}, {text}", RuntimeWarning, stacklevel=5)
