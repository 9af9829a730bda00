"""One annotator's session, without widgets: list items, hide who judged, take votes, undo."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.data.schema import Items
from vjudge.metrics.levels import nearest_level, score_levels
from vjudge.records import Item
from vjudge.review.hiding import hide_scores
from vjudge.review.judged import item_table, verdict_table
from vjudge.review.votes import ANSWERS, TAGS, VOTED, ReviewError, VoteLog

TELLING = {"score", "truth", "disagreement"}  # filters that tell scores
NOTHING_LISTED = "no item passes the filters: there is nothing to vote on; clear them with filter()"
NO_SCORE = "none"  # the level of a verdict without a score


class ReviewCase(NamedTuple):
    """One item as it is reviewed now; its truth is for display only where it is `revealed`."""

    number: int  # its place in the current list, from 0
    item: Item
    scale: tuple[int, int] | None  # None where neither a rubric nor the review says
    sides: Mapping[str, Mapping[str, Any]]  # place -> its verdict; no feedback where not graded
    votes: Mapping[str, Any]  # field -> value
    revealed: bool


class Pace(NamedTuple):
    """How far an annotator is: numbers of items, and the minutes that the rest takes."""

    assigned: int
    voted: int
    left: int
    minutes_left: float  # by the median time from item to item; NaN below three items


class Session:
    """The votes of one annotator on judged items: all of `vjudge.review.Review` but its results."""

    def __init__(
        self,
        items: Items,
        runs: pd.DataFrame | Mapping[str, pd.DataFrame],
        *,
        out: str | Path,
        annotator: str,
        blind: bool = False,
        seed: int = 0,
        tags: Sequence[str] = TAGS,
        scale: tuple[int, int] | None = None,
        annotators: Sequence[str] = (),
        overlap: float = 0.2,
    ) -> None:
        if not annotator.strip():
            raise ValueError("annotator: give a name, so that votes can be told apart")
        self.annotator = annotator
        self.blind = blind
        self.seed = seed
        self.offered_tags = tuple(tags)
        self.judges: tuple[str, ...] = ()
        self.listed: list[str] = []
        self.source = Path(str(data.origin(items).get("source") or "the collection")).name
        self.items = data.canonical(items)
        self.reason = ""
        if len(self.items) and "response" not in self.items.column_names:
            self.reason = (
                "a review is of single responses with a score each, and each row here is a pair or"
                " a question: give a collection with a column `response`"
            )
            return

        # 1) items and verdicts
        self._rows = data.rows_of(self.items)
        self._verdicts = verdict_table(runs)
        self._facts = item_table(self._rows, self._verdicts, scale)
        self._ids = self._facts.index
        self.judges = tuple(self._verdicts.index.unique("judge"))
        self.criteria = self._facts["criteria"].dropna().value_counts().index.tolist()
        self.judge_scores = self._by_judge("score").astype(float)
        self._graded = self._by_judge("feedback").notna()
        self._compare_with_truth()
        self.filters = {
            "judge": self.judges,
            "score": [*self.levels, NO_SCORE],
            "truth": self.levels,
            "disagreement": list(self._disagreeing),
            "criterion": self.criteria,
            "voted": [False, True],
            "order": ["file", "worst", "random"],
        }

        # 2) who reviews what
        self.plan = assignment(self._ids, annotators or [annotator], overlap=overlap, seed=seed)
        _check("annotator", annotator, list(self.plan))

        # 3) votes, and the list
        fingerprint = data.fingerprint(self.items)[:16]
        self._log = VoteLog(
            Path(out).expanduser(), annotator=annotator, collection=fingerprint, judges=self.judges
        )
        self.path = self._log.path
        self._simulated = False
        self.filter()

    def _compare_with_truth(self) -> None:
        """Find the truth, the level of each score, and how far they are apart."""
        try:
            self.truth = data.truth(self._rows).set_axis(self._ids)
        except data.CollectionError:  # nobody scored yet: that is what a review is for
            self.truth = pd.Series(np.nan, index=self._ids, name="no truth")
        limits = self._facts["scale"].dropna().explode()
        self.scale = None if limits.empty else (limits.min(), limits.max())
        ticks = score_levels(self.judge_scores.stack(), self.truth, scale=self.scale)
        self.levels = [f"{level:g}" for level in ticks]
        self._true_levels = _named(self.truth, ticks).rename(self.truth.name)
        self._score_levels = self.judge_scores.apply(_named, ticks=ticks).where(self._graded)
        self._excess = self.judge_scores.sub(self.truth, axis=0)
        distance = self._excess.abs()
        self._disagreeing = {
            "large": distance >= max(1, round((ticks[-1] - ticks[0]) / 2)),
            "judge too high": self._excess >= 0.5,
            "judge too low": self._excess <= -0.5,
            "none": distance < 0.5,
        }

    def refresh(self) -> None:
        """Read what others wrote; ReviewError where a file has votes of another review."""
        self._log.refresh()

    @property
    def voted(self) -> pd.Series:
        """Which items have a vote of this annotator, by id."""
        votes = self._log.current()
        ids = [vote["id"] for vote in votes if vote["annotator"] == self.annotator]
        return pd.Series(self._ids.isin(ids), self._ids)

    def is_complete(self, id: str) -> bool:
        """Whether an item has this annotator's score and answer, as far as it takes them."""
        fields = []
        if self._facts.loc[id, "scale"] is not None:
            fields.append("score")
        if len(self.judges) == 2 and self._graded.loc[id].all():
            fields.append("better")
        return all(self._log.get(self.annotator, id, field) is not None for field in fields)

    # The list: which items, in which order, and the current one

    @property
    def case(self) -> ReviewCase | None:
        """The current item, None where no item passes the filters."""
        return self._case(self._position) if self.listed else None

    def cases(self) -> Iterator[ReviewCase]:
        """The listed items one after another; the current one stays."""
        return map(self._case, range(len(self.listed)))

    def step(self, by: int = 1, *, id: str | None = None) -> ReviewCase | None:
        """Go so many items on in the list, back where negative, from an item or the current one."""
        if id in self.listed:
            self._position = self.listed.index(str(id))
        last_number = max(len(self.listed) - 1, 0)
        self._position = min(max(self._position + by, 0), last_number)
        return self.case

    def goto(self, id: str) -> ReviewCase | None:
        """Go to an item of the list; ValueError where it is not in it."""
        if id not in self.listed:
            raise ValueError(f"item {id!r} is not in the list; clear the filters with filter()")
        self._position = self.listed.index(id)
        return self.case

    def number_of(self, id: str) -> int:
        """The number of an item in the collection, from 0."""
        return int(self._ids.get_loc(id))

    def id_at(self, number: str) -> str | None:
        """The id of the item with a number in the collection; None where it is none."""
        if not number.isdecimal() or int(number) >= len(self._ids):
            return None
        return str(self._ids[int(number)])

    def filter(self, *, seed: int = 0, **filters: Any) -> int:
        """Choose what is listed in which order, and return how many items that are.

        The current item is then the first one without a vote of this annotator.

        Args:
            judge: whose score `score`, `disagreement` and the worst order look at; else any.
            score, truth: one of `levels`, the nearest to the judge's score or the truth; a score
                may be "none".
            disagreement: "large" (half of the scale or more), "judge too high", "judge too low" or
                "none".
            criterion: the whole criterion.
            voted: with a vote of this annotator or without, when the list is made.
            order: "file", "random" (by the seed) or "worst" (farthest from the truth first).

        A filter of None does not restrict. A vote records the list it was made on: where that tells
        scores (`TELLING`, or the worst first), it does not count as blind.

        ValueError: an unknown filter or value.
        """
        chosen = {name: value for name, value in filters.items() if value is not None}
        for name, value in chosen.items():
            _check("filter", name, self.filters)
            _check(name, value, self.filters[name])
        self._chosen = chosen
        self._judges = list(self.judges)
        if "judge" in chosen:
            self._judges = [chosen["judge"]]
        order = chosen.get("order", "file")
        ids = self._ids
        if order == "random":
            ids = ids[np.random.default_rng(seed).permutation(len(ids))]
            self._chosen = {**chosen, "seed": seed}
        elif order == "worst":  # without a truth: last
            distance = self._excess[self._judges].abs().max(axis=1)
            ids = distance.sort_values(ascending=False, kind="stable").index
        passing = pd.Series(self._ids.isin(self.plan[self.annotator]), self._ids)
        for name, value in chosen.items():
            if name != "order":
                passing &= self._passing(name, value)
        self.listed = ids[passing[ids]].tolist()
        self._position = 0
        if self.listed:
            self._position = int(self.voted[self.listed].argmin())
        return len(self.listed)

    def _passing(self, name: str, value: Any) -> pd.Series:
        """Which items pass one filter."""
        if name == "truth":
            return self._true_levels == value
        if name == "criterion":
            return self._facts["criteria"] == value
        if name == "voted":
            return self.voted == value
        if name == "judge":
            passing = self._graded
        elif name == "score":
            passing = self._score_levels == value
        else:
            passing = self._disagreeing[value]
        return passing[self._judges].any(axis=1)

    def _by_judge(self, column: str) -> pd.DataFrame:
        """A column of the verdicts: one row an item, one column a judge."""
        table = self._verdicts[column].unstack("judge")
        return table.reindex(index=self._ids, columns=list(self.judges))

    # What is shown

    def sides(self, id: str) -> dict[str, str]:
        """Place -> judge; in blind mode two judges change sides by the item and the seed."""
        if len(self.judges) != 2:
            return {str(number): judge for number, judge in enumerate(self.judges, start=1)}
        left, right = self.judges
        key = f"{self.seed}\0{id}".encode("utf-8", "surrogatepass")
        if self.blind and hashlib.sha256(key).digest()[0] % 2:
            left, right = right, left
        return {"left": left, "right": right}

    def confusion(self, judge: str) -> pd.DataFrame:
        """Count how often a judge gives each score at each level of the truth.

        Returns:
            Counts over the items that the judge graded: one row a level of truth, the lowest
            first, one column a level of score, "none" without a score. `attrs["words"]` says what
            is counted.
        """
        _check("judge", judge, self.judges)
        graded = self._graded[judge]
        truth = self.truth[graded]
        table = pd.crosstab(self._true_levels[graded], self._score_levels.loc[graded, judge])
        table = table.reindex(
            index=self.levels,
            columns=[*self.levels, NO_SCORE],
            fill_value=0,
        )
        table.attrs["words"] = (
            f"Rows: {truth.name}. Columns: {judge}. Items: {truth.notna().sum()}; "
            f"without a truth yet: {truth.isna().sum()}. "
            "Scores between two levels count with the nearest, halves up."
        )
        return table

    # Votes: each on the item with an id, else on the current one

    def score(self, value: float | None, *, id: str | None = None) -> None:
        """Score an item's response on its scale (else ValueError); None withdraws it."""
        id = self._target(id)
        scale = self._facts.loc[id, "scale"]
        if scale is None:
            remedy = "open the review with scale=, such as (0, 100)"
            raise ValueError(f"item {id!r} has no rubric: {remedy}")
        if value is not None:
            lowest, highest = scale
            if value not in range(lowest, highest + 1):
                raise ValueError(
                    f"score {value!r} is not a whole number from {lowest} to {highest}"
                )
            value = int(value)
        self._vote(id, "score", value)

    def better(self, answer: str | None, *, id: str | None = None) -> None:
        """Say which of two judges' feedbacks is better, by one of `ANSWERS`; None withdraws it.

        ValueError: another answer, or an item that not both judges graded.
        """
        id = self._target(id)
        if answer is not None:
            _check("answer", answer, ANSWERS)
        graded = self._graded.loc[id]
        if len(graded) != 2 or not graded.all():
            raise ValueError(
                "which feedback is better can be asked only of two judges that both graded the item"
            )
        self._vote(id, "better", self.sides(id).get(str(answer), answer))

    def tag(self, names: Collection[str], *, side: str, id: str | None = None) -> None:
        """Set the error tags on the feedback at a place; none withdraws them."""
        id = self._target(id)
        judges = self.sides(id)
        _check("side", side, judges)
        for name in names:
            _check("tag", name, self.offered_tags)
        tags = {**self.votes_on(id).get("tags", {}), side: list(names)}
        value = {judges[tagged]: names for tagged, names in tags.items() if names}
        self._vote(id, "tags", value or None)

    def note(self, text: str | None, *, id: str | None = None) -> None:
        """Keep a free note on an item; blank withdraws it."""
        self._vote(self._target(id), "note", (text or "").strip() or None)

    def undo(self) -> ReviewCase | None:
        """Restore what this annotator's last vote replaced, and go to its item."""
        self.refresh()
        id = self._log.undo()
        return self.goto(id) if id in self.listed else self.case

    def votes(self, *fields: str) -> pd.DataFrame:
        """Everyone's votes in some fields ("score", "better", "tags", "note"), else in all.

        One row a vote: id, annotator, field, value (of "better" a judge's name or one of
        `ANSWERS[2:]`; of "tags" judge -> tags), blind, simulated (by `simulate_votes`), selection
        (the filters of the list) and time (UTC).
        """
        self.refresh()
        columns = ["id", "annotator", "field", "value", "blind", "simulated", "selection", "time"]
        table = pd.DataFrame(self._log.current(*fields), columns=columns)
        table["simulated"] = table["simulated"].eq(True)
        return table

    def human_scores(self) -> pd.DataFrame:
        """Everyone's scores, NaN for none: one row an item (`id`), one column an annotator."""
        votes = self.votes("score").astype({"value": float})
        table = votes.pivot(index="id", columns="annotator", values="value")
        return table.reindex(self._ids)

    def pace(self, annotator: str) -> Pace:
        """How far an annotator is."""
        starts: dict[str, datetime] = {}
        for vote in self._log.lines:
            if vote["annotator"] == annotator:
                starts.setdefault(vote["id"], datetime.fromisoformat(vote["time"]))
        assigned = self.plan.get(annotator, list(starts))
        left = len(set(assigned).difference(starts))
        minutes = math.nan
        if len(starts) > 2:  # the median: a pause moves it little
            gaps = np.diff(sorted(time.timestamp() for time in starts.values()))
            minutes = float(np.median(gaps)) * left / 60
        return Pace(len(assigned), len(starts), left, minutes)

    def _target(self, id: str | None) -> str:
        """The item that a vote is on; ReviewError where there is none."""
        if self.reason:
            raise ReviewError(self.reason)
        if id is None and not self.listed:
            raise ReviewError(NOTHING_LISTED)
        if id is None:
            return self.listed[self._position]
        if id not in self._ids:
            raise ReviewError(f"item {id!r} is not under review: nothing was voted")
        return id

    def _vote(self, id: str, field: str, value: object) -> None:
        """Write a vote, unless it stands already."""
        if value == self._log.get(self.annotator, id, field):
            return
        tells = TELLING & self._chosen.keys() or self._chosen.get("order") == "worst"
        vote = {"id": id, "field": field, "value": value}
        if self._simulated:
            vote["simulated"] = True
        blind = not self._is_revealed(id) and not tells
        self._log.append(**vote, blind=blind, selection=self._chosen)

    def _is_revealed(self, id: str) -> bool:
        """Whether names and scores of an item show: always, or after what blindness protects."""
        decisive = "better" if len(self.judges) == 2 else "score"
        return not self.blind or self._log.get(self.annotator, id, decisive) is not None

    def votes_on(self, id: str, annotator: str | None = None) -> dict[str, Any]:
        """An annotator's votes on one item: field -> value, with places for judges' names."""
        places = {judge: side for side, judge in self.sides(id).items()}
        votes = {}
        for field in VOTED:
            value = self._log.get(annotator or self.annotator, id, field)
            if value is None:
                continue
            if field == "better":
                value = places.get(value, value)
            elif field == "tags":
                value = {places[judge]: tags for judge, tags in value.items()}
            votes[field] = value
        return votes

    def _case(self, number: int) -> ReviewCase:
        id = self.listed[number]
        index = self.number_of(id)
        scale = self._facts["scale"].iloc[index]

        # each side's verdict, without what tells its score while that is hidden
        revealed = self._is_revealed(id)
        votes = self.votes_on(id)
        sides = {}
        for side, judge in self.sides(id).items():
            verdict = {}
            if self._graded.loc[id, judge]:
                verdict = self._verdicts.loc[(judge, id)].dropna().to_dict()
            if revealed:
                verdict["judge"] = judge
            elif verdict:
                feedback, hidden = hide_scores(verdict["feedback"])
                verdict = {"feedback": feedback, "hidden": hidden}
            sides[side] = verdict
        item = Item.from_row(self._rows[index])
        return ReviewCase(number, item, scale, sides, votes, revealed)


def assignment(
    ids: Collection[str], annotators: Sequence[str], *, overlap: float = 0.2, seed: int = 0
) -> dict[str, list[str]]:
    """Deal items to annotators: a share of them to all, each of the rest to one person.

    Args:
        ids: of the items.
        annotators: who reviews; one alone gets everything.
        overlap: the share, in [0, 1], that everyone reviews, for their agreement; rounded up.
        seed: of the draw.

    Returns:
        The ids of each annotator's items, in their order.

    ValueError: a name stands twice, or the share is outside of [0, 1].

    >>> assignment(["a", "b", "c", "d"], ["ann", "bob"], overlap=0.5)
    {'ann': ['a', 'b', 'c'], 'bob': ['a', 'c', 'd']}
    """
    if len(set(annotators)) < len(annotators) or not 0 <= overlap <= 1:
        raise ValueError("annotators have names of their own, and overlap is from 0 to 1")
    order = np.random.default_rng(seed).permutation(len(ids))
    n_shared = math.ceil(overlap * len(ids))
    plan = {}
    for turn, annotator in enumerate(annotators):
        numbers = {*order[:n_shared], *order[n_shared + turn :: len(annotators)]}
        plan[annotator] = [id for number, id in enumerate(ids) if number in numbers]
    return plan


def _check(what: str, value: object, options: Collection[Any]) -> None:
    if value not in options:
        names = ", ".join(map(str, options))
        raise ValueError(f"{what} {value!r} is unknown; use one of {names}")


def _named(scores: pd.Series, ticks: np.ndarray) -> pd.Series:
    """The name of the level nearest to each score."""
    names = nearest_level(scores, ticks).map("{:g}".format)
    return names.replace("nan", NO_SCORE)
