"""Events -> votes: who holds what about which item now, what can be undone, and where people differ."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.review.journal import Event, Journal, ReviewError, encode
from vjudge.runs import replace_file

FORMAT = 1
FIELDS = ("score", "better", "tags", "note")
ANSWERS = ("left", "right", "both good", "both bad")
"""Which of two feedbacks is better. Source: Prometheus-Vision (arXiv 2401.06591), its human comparison of feedback."""

TAGS = (
    "misread the picture",
    "misread the response",
    "ignored the rubric",
    "followed the reference blindly",
    "score contradicts feedback",
    "invented a detail",
    "too vague to use",
)
"""Error tags offered by default; a review takes its own with `tags=`."""
NOTE_LIMIT = 20_000

COLUMNS = ("id", "annotator", "field", "value", "blind", "selection", "time", "event")
Key = tuple[str, str, str]


def new_event(annotator: str, **content: Any) -> Event:
    """An event with a name of its own, its time (UTC, milliseconds) and its annotator."""
    time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return {"event": uuid.uuid4().hex, "time": time, "annotator": annotator, **content}


def header(fingerprint: str, judges: Sequence[str]) -> Event:
    """The first line of a review's file: what is reviewed."""
    return {"review": FORMAT, "collection": fingerprint, "judges": list(judges)}


@dataclass
class Votes:
    """The votes that a list of events amounts to.

    A vote is the last event about (annotator, id, field) that was not undone. Undoing takes back the last event of one
    annotator, redoing the last one undone, until a new vote is cast. `chosen` holds the items that `next_best` named,
    with the judge by whose scores it did.
    """

    live: dict[Key, list[Event]] = field(default_factory=dict)
    done: dict[str, list[Event]] = field(default_factory=dict)
    undone: dict[str, list[Event]] = field(default_factory=dict)
    revealed: set[tuple[str, str]] = field(default_factory=set)
    withdrawn: dict[str, Event] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    chosen: dict[str, str] = field(default_factory=dict)

    def add(self, events: Iterable[Event]) -> None:
        """Take events in, in the order in which they were written; an event that is known already counts once.

        Raises:
            ReviewError: an event is not one of a review, or takes back what is not there.
        """
        for event in events:
            if "review" in event:
                continue
            try:
                name, annotator = event["event"], event["annotator"]
                if name in self.seen:
                    continue
                self._apply(event, annotator)
            except (KeyError, TypeError, ValueError) as error:
                raise ReviewError(f"not an event of a review: {json.dumps(event)[:200]}") from error
            self.seen.add(name)

    def _apply(self, event: Event, annotator: str) -> None:
        if event.get("field") == "next_best":
            self.chosen |= dict.fromkeys(event["id"], event["value"])
            return
        done, undone = self.done.setdefault(annotator, []), self.undone.setdefault(annotator, [])
        if "undo" in event:
            vote = next((vote for vote in done if vote["event"] == event["undo"]), None)
            if vote is None:
                raise ValueError("it takes back a vote that is not there")
            done.remove(vote)
            self.live[_key(vote)].remove(vote)
            self.withdrawn[vote["event"]] = vote
            undone.append(vote)
        elif "redo" in event:
            vote = self.withdrawn.pop(event["redo"])
            if vote in undone:
                undone.remove(vote)
            self.live.setdefault(_key(vote), []).append(vote)
            done.append(vote)
        elif event["field"] == "reveal":
            self.revealed.add((annotator, event["id"]))
        else:
            self.live.setdefault(_key(event), []).append(event)
            done.append(event)
            undone.clear()

    def of(self, annotator: str, id: str) -> dict[str, Any]:
        """One annotator's votes on one item: field -> value, of "better" the judge's name, "both good" or "both bad".

        What was never voted or was taken back is absent.
        """
        return {name: value_of(vote) for name in FIELDS if (vote := self.last(annotator, id, name))}

    def last(self, annotator: str, id: str, name: str) -> Event | None:
        """The event that holds a vote, None where there is none."""
        events = self.live.get((annotator, id, name))
        return events[-1] if events and events[-1]["value"] is not None else None

    def voted(self, annotator: str) -> set[str]:
        """The items that an annotator has any vote on."""
        return {id for who, id, name in self.live if who == annotator and self.last(who, id, name)}

    @property
    def annotators(self) -> list[str]:
        """Everyone who voted, in the order of their first event."""
        return list(self.done)

    def table(self) -> pd.DataFrame:
        """One row a vote, with `COLUMNS`; `better` is the judge's name, "both good" or "both bad"."""
        rows = [
            {
                "id": id,
                "annotator": annotator,
                "field": name,
                "value": value_of(vote),
                "blind": bool(vote.get("blind")),
                "selection": json.dumps(vote["selection"], sort_keys=True) if vote.get("selection") else "",
                "time": vote["time"],
                "event": vote["event"],
            }
            for annotator, id, name in self.live
            if (vote := self.last(annotator, id, name))
        ]
        return pd.DataFrame(rows, columns=list(COLUMNS))


def value_of(vote: Event) -> Any:
    """What a vote says, with a judge's name for a side."""
    value = vote["value"]
    return vote[value] if vote["field"] == "better" and value in ("left", "right") else value


def placed(votes: Mapping[str, Any], sides: Mapping[str, str]) -> dict[str, Any]:
    """Votes with places where the file has judges' names; `sides` gives the judge of each place."""
    place = {judge: side for side, judge in sides.items()}
    made = dict(votes)
    if "better" in made:
        made["better"] = place.get(made["better"], made["better"])
    if "tags" in made:
        made["tags"] = {place[judge]: tags for judge, tags in made["tags"].items()}
    return made


def differences(votes: pd.DataFrame) -> pd.DataFrame:
    """Where annotators differ about the same item: one row for each item and field, one column for each annotator.

    Args:
        votes: as `Votes.table` gives them; notes are not compared.
    """
    told = votes[votes["field"] != "note"].assign(value=lambda rows: rows["value"].map(_comparable))
    wide = told.pivot(index=["id", "field"], columns="annotator", values="value")
    differing = wide.apply(lambda row: row.dropna().nunique() > 1, axis=1) if len(wide) else []
    return wide[differing] if len(wide) else wide


def merge(paths: Sequence[str | Path], target: str | Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Put the events of several review files into one new file, in the order of their times.

    Args:
        paths: files about the same collection and judges; an event that stands in several of them counts once.
        target: a file that does not exist yet.

    Returns:
        Conflicts, one row each with the columns id, field, annotator and one for each file: an annotator who voted
        differently about the same thing in two files, of whose votes the later one holds in the merged file. And the
        `differences` between annotators, which are findings and stay as they are.

    Raises:
        ReviewError: the target exists, or the files are not of one review; each difference is named.
    """
    if Path(target).exists():
        raise ReviewError(f"{target} exists: merge into a new file")
    contents = {str(path): Journal(path).read() for path in paths}
    empty = [path for path, events in contents.items() if not events or "review" not in events[0]]
    if empty:
        raise ReviewError(f"no review in {', '.join(empty)}")
    first = next(iter(contents.values()))[0]
    for path, events in contents.items():
        if events[0] != first:
            unlike = [name for name in first if events[0].get(name) != first[name]]
            raise ReviewError(f"{path} and {paths[0]} are reviews of different things: {', '.join(unlike)} differ")
    standing: dict[Key, dict[str, Any]] = {}
    for path, events in contents.items():
        votes = Votes()
        votes.add(events)
        for key in votes.live:
            if vote := votes.last(*key):
                standing.setdefault(key, {})[path] = _comparable(value_of(vote))
    conflicts = [
        {"id": id, "field": name, "annotator": annotator, **by_file}
        for (annotator, id, name), by_file in standing.items()
        if len(set(by_file.values())) > 1
    ]
    together: dict[str, tuple[str, Event]] = {}
    for events in contents.values():
        latest = ""  # a clock that was set back must not put an undoing before its vote
        for event in events[1:]:
            latest = max(latest, event["time"])
            together.setdefault(event["event"], (latest, event))
    ordered = [event for _, event in sorted(together.values(), key=lambda timed: timed[0])]
    merged = Votes()
    merged.add(ordered)
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    replace_file(Path(target), encode([first, *ordered]).decode("utf-8", "surrogatepass"))
    columns = ["id", "field", "annotator", *contents]
    return pd.DataFrame(conflicts, columns=columns), differences(merged.table())


def _key(vote: Mapping[str, Any]) -> Key:
    return vote["annotator"], vote["id"], vote["field"]


def _comparable(value: Any) -> Any:
    return json.dumps(value, sort_keys=True, ensure_ascii=False) if isinstance(value, dict) else value
