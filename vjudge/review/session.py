"""One annotator's review without widgets: choose items, hide who judged them, take votes, undo."""

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

SCORE_FILTERS = {"score", "truth", "disagreement"}  # filters that tell an annotator scores
NOTHING_LISTED = "no item passes the filters: there is nothing to vote on; clear them with filter()"
NO_SCORE = "none"  # the level of a verdict without a score

Scale = tuple[int, int]  # the lowest and the highest score


class ReviewCase(NamedTuple):
    """One item as its annotator may see it now; show its truth only where it is `revealed`."""

    number: int  # its position in the list, from 0
    item: Item
    scale: Scale | None  # None where neither a rubric nor the review has one
    # Side, such as "left" -> the columns of its verdict; where that judge did not grade the item,
    # only "judge" if `revealed`, else {}
    sides: Mapping[str, Mapping[str, Any]]
    votes: Mapping[str, Any]  # this annotator's votes: field -> value
    revealed: bool  # whether judges' names, scores and the truth are shown


class Pace(NamedTuple):
    """The progress of an annotator: numbers of items, and the minutes that are left."""

    assigned: int  # items to review
    voted: int  # items with a vote, withdrawn ones aside; also items that are not assigned
    left: int  # assigned items without a vote
    # By the median time from item to item; NaN below three items ever voted on
    minutes_left: float


class Session:
    """One annotator's votes on judged items; `vjudge.review.Review` adds the results.

    See `Review` for the arguments and public attributes. Tables by item have the item ids as index,
    in the order of the collection.
    """

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
        scale: Scale | None = None,
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
            self.reason = (  # nothing below is set then, and every method refuses
                "a review is of single responses with a score each, and each row here is a pair or"
                " a question: give a collection with a column `response`"
            )
            return

        self._read_verdicts(runs, scale)
        self._compare_with_truth()
        self.plan = assignment(self._ids, annotators or [annotator], overlap=overlap, seed=seed)
        _require_option("annotator", annotator, self.plan)
        folder = Path(out).expanduser()
        fingerprint = data.fingerprint(self.items)[:16]
        self._log = VoteLog(folder, annotator=annotator, collection=fingerprint, judges=self.judges)
        self.path = self._log.path
        self._simulated = False
        self.filter()

    def _read_verdicts(
        self, runs: pd.DataFrame | Mapping[str, pd.DataFrame], scale: Scale | None
    ) -> None:
        """Set what describes items and verdicts: their rows, the judges, and the judges' scores."""
        self._rows = data.rows_of(self.items)
        self._verdicts = verdict_table(runs)
        self._facts = item_table(self._rows, self._verdicts, scale)  # criteria, scale, group
        self._ids = self._facts.index
        self.judges = tuple(self._verdicts.index.unique("judge"))
        self.criteria = self._facts["criteria"].dropna().value_counts().index.tolist()
        self.judge_scores = self._by_judge("score").astype(float)  # (n_items, n_judges)
        self._graded = self._by_judge("feedback").notna()  # (n_items, n_judges)

    def _compare_with_truth(self) -> None:
        """Set the truth, the level of every score, and the gaps between judges and truth."""
        try:
            self.truth = data.truth(self._rows).set_axis(self._ids)
        except data.CollectionError:  # nobody has scored yet: that is what a review is for
            self.truth = pd.Series(np.nan, index=self._ids, name="no truth")
        ends = self._facts["scale"].dropna().explode()  # the ends of the items' scales
        self.scale = None if ends.empty else (ends.min(), ends.max())
        # Levels as numbers, the lowest first; `levels` are their names
        ticks = score_levels(self.judge_scores.stack(), self.truth, scale=self.scale)
        self.levels = [f"{level:g}" for level in ticks]
        self._true_levels = _nearest_levels(self.truth, ticks).rename(self.truth.name)
        score_levels_by_judge = self.judge_scores.apply(_nearest_levels, ticks=ticks)
        # A verdict without a score has the level "none"; an item not graded has NaN, no level
        self._score_levels = score_levels_by_judge.where(self._graded)
        # Score minus truth, (n_items, n_judges): above 0 the judge is too high
        self._score_gaps = self.judge_scores.sub(self.truth, axis=0)
        distances = self._score_gaps.abs()
        half_scale = max(1, round((ticks[-1] - ticks[0]) / 2))  # points, at least 1
        self._disagreements = {  # kind -> mask (n_items, n_judges); a gap of NaN is of no kind
            "large": distances >= half_scale,
            "judge too high": self._score_gaps >= 0.5,
            "judge too low": self._score_gaps <= -0.5,
            "none": distances < 0.5,
        }

    @property
    def filters(self) -> dict[str, Collection[Any]]:
        """The values that each filter of the list takes, by the filter's name."""
        return {
            "judge": self.judges,
            "score": [*self.levels, NO_SCORE],
            "truth": self.levels,
            "disagreement": list(self._disagreements),
            "criterion": self.criteria,
            "voted": [False, True],
            "order": ["file", "worst", "random"],
        }

    def refresh(self) -> None:
        """Read the votes of other annotators again.

        Raises:
            ReviewError: a file has votes of another review.
        """
        self._log.refresh()

    @property
    def voted(self) -> pd.Series:
        """Whether this annotator has a vote on each item, withdrawn ones aside, by item id."""
        return pd.Series(self._ids.isin(self._voted_ids(self.annotator)), self._ids)

    def _voted_ids(self, annotator: str) -> set[str]:
        """Return the items that an annotator has a vote on, withdrawn ones aside."""
        votes = self._log.current()
        ids = {vote["id"] for vote in votes if vote["annotator"] == annotator}
        return ids.intersection(self._ids)

    def is_complete(self, id: str) -> bool:
        """Tell whether this annotator has cast every vote that an item takes.

        An item with a scale takes a score; one that both of two judges graded takes an answer.
        """
        fields = []
        if self._facts.loc[id, "scale"] is not None:
            fields.append("score")
        if len(self.judges) == 2 and self._graded.loc[id].all():
            fields.append("better")
        return all(self._log.get(self.annotator, id, field) is not None for field in fields)

    # --- The list: which items, in which order, and the current one

    @property
    def case(self) -> ReviewCase | None:
        """The current item; None where no item passes the filters."""
        return self._case_at(self._position) if self.listed else None

    def cases(self) -> Iterator[ReviewCase]:
        """Iterate over the listed items; the current item stays the same."""
        return map(self._case_at, range(len(self.listed)))

    def step(self, by: int = 1, *, id: str | None = None) -> ReviewCase | None:
        """Move in the list, and return the new current item.

        Args:
            by: the number of items forward, or backward where it is negative. A step beyond the
                first or the last item ends there.
            id: the item to start from; None, and an item that is not listed, mean the current one.
        """
        if id in self.listed:
            self._position = self.listed.index(str(id))
        last_position = max(len(self.listed) - 1, 0)
        self._position = min(max(self._position + by, 0), last_position)
        return self.case

    def goto(self, id: str) -> ReviewCase | None:
        """Make an item of the list the current one.

        Raises:
            ValueError: the list does not have it.
        """
        if id not in self.listed:
            raise ValueError(f"item {id!r} is not in the list; clear the filters with filter()")
        self._position = self.listed.index(id)
        return self.case

    def number_of(self, id: str) -> int:
        """Return the position of an item in the collection, from 0."""
        return int(self._ids.get_loc(id))

    def id_at(self, number: str) -> str | None:
        """Return the id of the item at a position in the collection, given as text.

        None where the text is not such a position.
        """
        if not number.isdecimal() or int(number) >= len(self._ids):
            return None
        return str(self._ids[int(number)])

    def filter(self, *, seed: int = 0, **filters: Any) -> int:
        """Choose which items are listed and in which order; return their number.

        The first item without a vote of this annotator becomes the current one. Every vote records
        the filters of its list. It does not count as blind where one of these filters tells scores:
        score, truth, disagreement, or the order "worst".

        Args:
            judge: lists the items that this judge graded, and makes score, disagreement and the
                order "worst" be about it alone; None means any judge.
            score, truth: the level nearest to the judge's score or to the truth, one of `levels`;
                a score may be "none".
            disagreement: "large" (half of the scale or more), "judge too high", "judge too low" or
                "none".
            criterion: the full text of a criterion.
            voted: whether this annotator had voted on the item when the list was made.
            order: "file", "random" (by the seed) or "worst" (furthest from the truth first).
            seed: the seed of the random order.
            filters: those above from `judge` to `order`; one that is None or absent does not
                restrict the list.

        Raises:
            ValueError: a filter or its value is unknown.
        """
        chosen = {name: value for name, value in filters.items() if value is not None}
        for name, value in chosen.items():
            _require_option("filter", name, self.filters)
            _require_option(name, value, self.filters[name])
        self._chosen = chosen
        judges = [chosen["judge"]] if "judge" in chosen else list(self.judges)

        order = chosen.get("order")
        ids = self._ids
        if order == "random":
            ids = ids[np.random.default_rng(seed).permutation(len(ids))]
            self._chosen = {**chosen, "seed": seed}
        elif order == "worst":
            distances = self._score_gaps[judges].abs().max(axis=1)
            # items without a truth have a distance of NaN and come last
            ids = distances.sort_values(ascending=False, kind="stable").index

        # Item id -> whether it is listed: assigned to this annotator, and passed by every filter
        passes = pd.Series(self._ids.isin(self.plan[self.annotator]), self._ids)
        for name, value in chosen.items():
            if name != "order":
                passes &= self._passes(name, value, judges)
        self.listed = ids[passes[ids]].tolist()
        # The first item not voted on (False is the least); the first of all where every one is
        self._position = int(self.voted[self.listed].argmin()) if self.listed else 0
        return len(self.listed)

    def _passes(self, name: str, value: Any, judges: list[str]) -> pd.Series:
        """Tell for each item whether it passes one filter.

        Args:
            name: the filter, any but "order".
            value: its value.
            judges: the judges it is about; an item passes that passes for one of them.
        """
        if name == "truth":
            return self._true_levels == value
        if name == "criterion":
            return self._facts["criteria"] == value
        if name == "voted":
            return self.voted == value
        if name == "judge":
            passes = self._graded
        elif name == "score":
            passes = self._score_levels == value
        else:  # "disagreement"
            passes = self._disagreements[value]
        return passes[judges].any(axis=1)

    def _by_judge(self, column: str) -> pd.DataFrame:
        """Arrange a column of the verdicts as one row per item and one column per judge."""
        table = self._verdicts[column].unstack("judge")
        return table.reindex(index=self._ids, columns=list(self.judges))

    # --- What is shown

    def sides(self, id: str) -> dict[str, str]:
        """Return the judge on each side of an item, as a dict from side to judge.

        Sides of two judges are "left" and "right"; of any other number "1", "2", ... Where a review
        of two judges is blind, they are swapped on about half of the items, by a hash of seed and
        item id, so that all annotators see the same sides of an item.
        """
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
            Counts over the items that the judge graded: one row per level of the truth, the lowest
            first, and one column per level of the score, the last of them "none" for verdicts
            without a score. `attrs["caption"]` says what is counted.
        """
        _require_option("judge", judge, self.judges)
        graded = self._graded[judge]
        truth = self.truth[graded]
        table = pd.crosstab(self._true_levels[graded], self._score_levels.loc[graded, judge])
        table = table.reindex(
            index=self.levels,
            columns=[*self.levels, NO_SCORE],
            fill_value=0,
        )
        table.attrs["caption"] = (
            f"Rows: {truth.name}. Columns: {judge}. Items: {truth.notna().sum()}; "
            f"without a truth yet: {truth.isna().sum()}. "
            "Scores between two levels count with the nearest, halves up."
        )
        return table

    # --- Votes: each is on the item with an id, or on the current item

    def score(self, value: float | None, *, id: str | None = None) -> None:
        """Score the response to an item; None withdraws the score.

        Raises:
            ValueError: the item has no scale, or the value is no whole number on it.
        """
        id = self._target_id(id)
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

        The vote names the judge that was on the side, or the answer "both good" or "both bad".

        Raises:
            ValueError: the answer is unknown, or not both judges graded the item.
        """
        id = self._target_id(id)
        if answer is not None:
            _require_option("answer", answer, ANSWERS)
        graded = self._graded.loc[id]
        if len(graded) != 2 or not graded.all():
            raise ValueError(
                "which feedback is better can be asked only of two judges that both graded the item"
            )
        # A side becomes its judge; "both good", "both bad" and None are no sides and stay
        self._vote(id, "better", self.sides(id).get(str(answer), answer))

    def tag(self, names: Collection[str], *, side: str, id: str | None = None) -> None:
        """Replace the error tags on one side's feedback; an empty collection withdraws them.

        Raises:
            ValueError: the side or a tag is unknown.
        """
        id = self._target_id(id)
        judge_of = self.sides(id)  # side -> judge
        _require_option("side", side, judge_of)
        for name in names:
            _require_option("tag", name, self.offered_tags)
        tags_by_side = {**self.votes_on(id).get("tags", {}), side: list(names)}
        value = {judge_of[key]: tags for key, tags in tags_by_side.items() if tags}
        self._vote(id, "tags", value or None)

    def note(self, text: str | None, *, id: str | None = None) -> None:
        """Write a free note on an item; a blank text withdraws it."""
        self._vote(self._target_id(id), "note", (text or "").strip() or None)

    def undo(self) -> ReviewCase | None:
        """Undo this annotator's last vote, and make its item the current one if it is listed."""
        self.refresh()
        id = self._log.undo()
        return self.goto(id) if id in self.listed else self.case

    def votes(self, *fields: str) -> pd.DataFrame:
        """Collect everyone's votes.

        Args:
            fields: the fields to return, of "score", "better", "tags" and "note"; none means all.

        Returns:
            One row per vote: id, annotator, field, value (for "better" a judge's name, "both good"
            or "both bad"; for "tags" a dict from judge to tags), blind, simulated (by
            `simulate_votes`), selection (the filters of the list) and time (UTC).
        """
        self.refresh()
        columns = ["id", "annotator", "field", "value", "blind", "simulated", "selection", "time"]
        table = pd.DataFrame(self._log.current(*fields), columns=columns)
        table["simulated"] = table["simulated"].eq(True)
        return table

    def human_scores(self) -> pd.DataFrame:
        """Arrange everyone's scores as one row per item (`id`) and one column per annotator.

        A score that was not given is NaN.
        """
        votes = self.votes("score").astype({"value": float})
        table = votes.pivot(index="id", columns="annotator", values="value")
        return table.reindex(self._ids)

    def pace(self, annotator: str) -> Pace:
        """Measure an annotator's progress, and estimate the minutes that are left.

        The estimate is the median time between the first votes on two items, which a pause hardly
        moves, times the number of items left. A withdrawn vote took its time, and counts there.
        """
        # Item id -> time of the first vote on it, also where that was withdrawn later
        starts: dict[str, datetime] = {}
        for vote in self._log.lines:
            if vote["annotator"] == annotator:
                starts.setdefault(vote["id"], datetime.fromisoformat(vote["time"]))
        voted = self._voted_ids(annotator)
        # An annotator without a share in this review has voted in another one of the folder
        assigned = self.plan.get(annotator, list(voted))
        n_left = len(set(assigned) - voted)
        minutes = math.nan
        if len(starts) > 2:
            gaps = np.diff(sorted(time.timestamp() for time in starts.values()))  # seconds
            minutes = float(np.median(gaps)) * n_left / 60
        return Pace(assigned=len(assigned), voted=len(voted), left=n_left, minutes_left=minutes)

    def _target_id(self, id: str | None) -> str:
        """Return the item to vote on: the item with this id, or the current one.

        Raises:
            ReviewError: there is no such item, or the review has none.
        """
        if self.reason:
            raise ReviewError(self.reason)
        if id is None:
            if not self.listed:
                raise ReviewError(NOTHING_LISTED)
            return self.listed[self._position]
        if id not in self._ids:
            raise ReviewError(f"item {id!r} is not under review: nothing was voted")
        return id

    def _vote(self, id: str, field: str, value: object) -> None:
        """Write a vote to the disk, unless the same vote stands already; None withdraws it."""
        if value == self._log.get(self.annotator, id, field):
            return
        vote = {"id": id, "field": field, "value": value}
        if self._simulated:
            vote["simulated"] = True
        # A list filtered by scores or with the worst first tells an annotator something about the
        # scores of an item, even where the item itself hides them: such a vote is not blind
        list_tells = SCORE_FILTERS & self._chosen.keys() or self._chosen.get("order") == "worst"
        blind = not self._is_revealed(id) and not list_tells
        self._log.append(**vote, blind=blind, selection=self._chosen)

    def _is_revealed(self, id: str) -> bool:
        """Tell whether an item's judges and scores are shown to this annotator.

        They are shown where the review is not blind, or once the annotator has cast the vote that
        blindness protects: the answer "better" where there are two judges, else the score.
        """
        decisive = "better" if len(self.judges) == 2 else "score"
        return not self.blind or self._log.get(self.annotator, id, decisive) is not None

    def votes_on(self, id: str, annotator: str | None = None) -> dict[str, Any]:
        """Return an annotator's votes on an item by field, with sides in place of judges' names.

        Args:
            id: the item.
            annotator: who voted; None means this annotator.
        """
        side_of = {judge: side for side, judge in self.sides(id).items()}
        votes = {}
        for field in VOTED:
            value = self._log.get(annotator or self.annotator, id, field)
            if value is None:
                continue
            if field == "better":
                value = side_of.get(value, value)  # "both good" and "both bad" are no judges
            elif field == "tags":
                value = {side_of[judge]: tags for judge, tags in value.items()}
            votes[field] = value
        return votes

    def _case_at(self, position: int) -> ReviewCase:
        """Return the item at a position of the list; scores are hidden until it is revealed.

        A revealed verdict has the columns of the run without missing values; a hidden one has the
        feedback, and `hidden`, the number of places where a score was replaced in it.
        """
        id = self.listed[position]
        revealed = self._is_revealed(id)
        sides = {}
        for side, judge in self.sides(id).items():
            verdict = {}
            if self._graded.loc[id, judge]:
                verdict = self._verdicts.loc[(judge, id)].dropna().to_dict()
            if revealed:
                verdict["judge"] = judge
            elif verdict:
                feedback, n_hidden = hide_scores(verdict["feedback"])
                verdict = {"feedback": feedback, "hidden": n_hidden}
            sides[side] = verdict
        return ReviewCase(
            number=position,
            item=Item.from_row(self._rows[self.number_of(id)]),
            scale=self._facts.loc[id, "scale"],
            sides=sides,
            votes=self.votes_on(id),
            revealed=revealed,
        )


def assignment(
    ids: Collection[str], annotators: Sequence[str], *, overlap: float = 0.2, seed: int = 0
) -> dict[str, list[str]]:
    """Assign items to annotators: a share of them to everyone, each of the rest to one person.

    Args:
        ids: the ids of the items.
        annotators: who reviews; a single annotator gets every item.
        overlap: the share, in [0, 1], that everyone reviews, so that their agreement can be
            measured; rounded up.
        seed: the seed of the draw.

    Returns:
        The item ids of each annotator, in the order of `ids`.

    Raises:
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
        # Everyone gets the first n_shared; the rest is dealt like cards, every nth to one person
        positions = {*order[:n_shared], *order[n_shared + turn :: len(annotators)]}
        plan[annotator] = [id for position, id in enumerate(ids) if position in positions]
    return plan


def _require_option(name: str, value: object, options: Collection[Any]) -> None:
    """Raise ValueError where a value is none of the options; the message lists them.

    Args:
        name: what the value is, for the message.
        value, options: the value, and those that are valid.
    """
    if value not in options:
        listed = ", ".join(map(str, options))
        raise ValueError(f"{name} {value!r} is unknown; use one of {listed}")


def _nearest_levels(scores: pd.Series, ticks: np.ndarray) -> pd.Series:
    """Name the level nearest to each score, such as "4"; "none" where there is no score."""
    names = nearest_level(scores, ticks).map("{:g}".format)
    return names.replace("nan", NO_SCORE)
