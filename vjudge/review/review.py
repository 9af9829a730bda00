"""Reviewing judges' feedback, without widgets: list items, hide who judged, take votes, undo."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.plots.scores import levels, nearest
from vjudge.records import Item
from vjudge.review.hiding import hide_scores
from vjudge.review.judged import item_table, verdict_table
from vjudge.review.votes import ANSWERS, TAGS, VOTED, ReviewError, VoteLog

TELLING = {"score", "truth", "disagreement"}  # filters that tell scores
NO_SCORE = "none"  # the level of a verdict without a score


class ReviewCase(NamedTuple):
    """One item as it is reviewed now; its truth is for display only where it is `revealed`."""

    number: int  # its place in the current list, from 0
    item: Item
    scale: tuple[int, int] | None  # None where neither a rubric nor the review says
    sides: Mapping[str, Mapping[str, Any]]  # place -> its verdict; no feedback where not graded
    votes: Mapping[str, Any]  # field -> value
    revealed: bool


class Review:
    """Votes of one annotator on judged items.

    Args:
        items: a collection with the canonical columns.
        runs: name -> table of `Judge.grade`, or one such table with a column `judge`; one verdict
            an item and judge.
        out: a folder of votes, for all annotators.
        annotator: who votes.
        blind: until an item has its vote, hide names, scores, the truth and what reads as a verdict
            in a feedback (`vjudge.review.hiding.hide_scores`); swap sides.
        seed: of the sides in blind mode; the same for every annotator.
        tags: the error tags offered.
        scale: lowest and highest score for items without a rubric.

    `path` (the annotator's file), `judges`, `criteria`, `listed` (ids), `judge_scores` (items by
    judges), `truth` (of `vj.truth`; all NaN where there is none), `levels` (names of the levels of
    `vjudge.plots.confusion`), `scale` (of all items), `filters` (name -> its values) and the other
    arguments can be read.

    ReviewError: the folder has votes on another collection or other judges. ValueError: rows are
    pairs; a run has several verdicts for an item, or items that the collection lacks.

    >>> import tempfile
    >>> import pandas as pd
    >>> from vjudge.review import Review
    >>> item = {"id": "a", "instruction": "What is it?", "response": "A cat.", "gold": 4}
    >>> run = pd.DataFrame({"id": ["a"], "score": [5.0], "feedback": ["Right, so 5/5."]})
    >>> out = tempfile.mkdtemp()
    >>> review = Review([item], {"mine": run}, out=out, annotator="ann", blind=True, scale=(1, 5))
    >>> review.case.sides["1"]["feedback"]
    'Right, so [hidden].'
    >>> review.score(4)
    >>> review.votes()[["id", "annotator", "field", "value"]].to_numpy().tolist()
    [['a', 'ann', 'score', 4]]
    """

    def __init__(
        self,
        items: Any,
        runs: pd.DataFrame | Mapping[str, pd.DataFrame],
        *,
        out: str | Path,
        annotator: str,
        blind: bool = False,
        seed: int = 0,
        tags: Sequence[str] = TAGS,
        scale: tuple[int, int] | None = None,
    ) -> None:
        if not annotator.strip():
            raise ValueError("annotator: give a name, so that votes can be told apart")
        self.annotator = annotator
        self.blind = blind
        self.seed = seed
        self.tags = tuple(tags)

        # 1) items and verdicts
        self._rows = data.rows_of(items)
        self._verdicts = verdict_table(runs)
        self._facts = item_table(self._rows, self._verdicts, scale)
        self._ids = self._facts.index
        self.judges = tuple(self._verdicts.index.unique("judge"))
        self.criteria = self._facts["criteria"].dropna().value_counts().index.tolist()
        self.judge_scores = self._by_judge("score").astype(float)
        self._graded = self._by_judge("feedback").notna()

        # 2) the truth, and the level of each score
        try:
            self.truth = data.truth(self._rows).set_axis(self._ids)
        except data.CollectionError:  # nobody scored yet: that is what a review is for
            self.truth = pd.Series(np.nan, index=self._ids, name="no truth")
        ends = self._facts["scale"].dropna().explode()
        self.scale = None if ends.empty else (ends.min(), ends.max())
        scores = self.judge_scores.stack()
        where = levels(scores, self.truth, scale=self.scale)
        self.levels = [f"{level:g}" for level in where]
        self._true_levels = _named(self.truth, where).rename(self.truth.name)
        self._score_levels = self.judge_scores.apply(_named, where=where).where(self._graded)
        self._excess = self.judge_scores.sub(self.truth, axis=0)
        distance = self._excess.abs()
        self._disagreeing = {
            "large": distance >= max(1, round((where[-1] - where[0]) / 2)),
            "judge too high": self._excess >= 0.5,
            "judge too low": self._excess <= -0.5,
            "none": distance < 0.5,
        }
        self.filters = {
            "judge": self.judges,
            "score": [*self.levels, NO_SCORE],
            "truth": self.levels,
            "disagreement": list(self._disagreeing),
            "criterion": self.criteria,
            "voted": [False, True],
            "order": ["file", "worst", "random"],
        }

        # 3) votes, and the list
        self._log = VoteLog(
            Path(out).expanduser(),
            annotator=annotator,
            collection=data.fingerprint(items)[:16],
            judges=self.judges,
        )
        self.path = self._log.path
        self._position = 0
        self.filter()

    def refresh(self) -> None:
        """Read what others wrote; ReviewError where a file has votes of another review."""
        self._log.refresh()

    @property
    def voted(self) -> pd.Series:
        """Which items have a vote of this annotator, by id."""
        votes = self._log.current()
        own = [vote["id"] for vote in votes if vote["annotator"] == self.annotator]
        return pd.Series(self._ids.isin(own), self._ids)

    # The list: which items, in which order, and the current one

    @property
    def case(self) -> ReviewCase | None:
        """The current item, None where no item passes the filters."""
        return self._case(self._position) if self.listed else None

    def cases(self) -> Iterator[ReviewCase]:
        """The listed items one after another; the current one stays."""
        return map(self._case, range(len(self.listed)))

    def step(self, by: int = 1) -> ReviewCase | None:
        """Go so many items on in the list, back where negative; stop at its ends."""
        last = max(len(self.listed) - 1, 0)
        self._position = min(max(self._position + by, 0), last)
        return self.case

    def goto(self, id: str) -> ReviewCase | None:
        """Go to an item of the list; ValueError where it is not in it."""
        if id not in self.listed:
            raise ValueError(f"item {id!r} is not in the list; clear the filters with filter()")
        self._position = self.listed.index(id)
        return self.case

    def filter(self, *, seed: int = 0, **filters: Any) -> int:
        """Choose what is listed in which order, go to its start, and return its length.

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
        passing = pd.Series(True, index=ids)
        for name, value in chosen.items():
            if name != "order":
                passing &= self._passing(name, value)
        self.listed = ids[passing[ids]].tolist()
        self._position = 0
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

    # Votes

    def score(self, value: float | None) -> None:
        """Score the current item's response on its scale (else ValueError); None withdraws it."""
        case = self._needed()
        if case.scale is None:
            remedy = "open the review with scale=, such as (0, 100)"
            raise ValueError(f"item {case.item.id!r} has no rubric: {remedy}")
        lowest, highest = case.scale
        if value is not None:
            if value not in range(lowest, highest + 1):
                what = f"is not a whole number from {lowest} to {highest}"
                raise ValueError(f"score {value!r} {what}")
            value = int(value)
        self._vote(case, "score", value)

    def better(self, answer: str | None) -> None:
        """Say which of two judges' feedbacks is better, by one of `ANSWERS`; None withdraws it.

        ValueError: another answer, or an item that not both judges graded.
        """
        if answer is not None:
            _check("answer", answer, ANSWERS)
        case = self._needed()
        graded = self._graded.loc[case.item.id]
        if len(graded) != 2 or not graded.all():
            what = "which feedback is better can be asked only of two judges that both graded"
            raise ValueError(f"{what} the item")
        self._vote(case, "better", self.sides(case.item.id).get(str(answer), answer))

    def tag(self, names: Collection[str], *, side: str) -> None:
        """Set the error tags on the feedback at a place; none withdraws them."""
        case = self._needed()
        places = self.sides(case.item.id)
        _check("side", side, places)
        for name in names:
            _check("tag", name, self.tags)
        given = {**case.votes.get("tags", {}), side: list(names)}
        value = {places[place]: tags for place, tags in given.items() if tags}
        self._vote(case, "tags", value or None)

    def note(self, text: str | None) -> None:
        """Keep a free note on the current item; blank withdraws it."""
        self._vote(self._needed(), "note", (text or "").strip() or None)

    def undo(self) -> ReviewCase | None:
        """Restore what this annotator's last vote replaced, and go to its item."""
        self.refresh()
        id = self._log.undo()
        return self.goto(id) if id in self.listed else self.case

    def votes(self, *fields: str) -> pd.DataFrame:
        """Everyone's votes in some fields ("score", "better", "tags", "note"), else in all.

        One row a vote: id, annotator, field, value (of "better" a judge's name or one of
        `ANSWERS[2:]`; of "tags" judge -> tags), blind, selection (the filters of the list) and time
        (UTC).
        """
        self.refresh()
        columns = ["id", "annotator", "field", "value", "blind", "selection", "time"]
        return pd.DataFrame(self._log.current(*fields), columns=columns)

    def human_scores(self) -> pd.DataFrame:
        """Everyone's scores, NaN for none: one row an item (`id`), one column an annotator."""
        votes = self.votes("score").astype({"value": float})
        table = votes.pivot(index="id", columns="annotator", values="value")
        return table.reindex(self._ids)

    def _needed(self) -> ReviewCase:
        """The current item, which a vote needs; else ReviewError."""
        case = self.case
        if case is None:
            what = "no item passes the filters: there is nothing to vote on"
            raise ReviewError(f"{what}; clear them with filter()")
        return case

    def _vote(self, case: ReviewCase, field: str, value: Any) -> None:
        """Write a vote, unless it stands already."""
        if value == self._log.get(self.annotator, case.item.id, field):
            return
        tells = TELLING & self._chosen.keys() or self._chosen.get("order") == "worst"
        self._log.append(
            id=case.item.id,
            field=field,
            value=value,
            blind=not case.revealed and not tells,
            selection=self._chosen,
        )

    def _votes_on(self, id: str) -> dict[str, Any]:
        """This annotator's votes on one item: field -> value, with places for judges' names."""
        places = {judge: place for place, judge in self.sides(id).items()}
        votes = {}
        for field in VOTED:
            value = self._log.get(self.annotator, id, field)
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
        index = self._ids.get_loc(id)
        scale = self._facts["scale"].iloc[index]

        # 1) an item is revealed by the vote that blindness protects
        decisive = "better" if len(self.judges) == 2 else "score"
        votes = self._votes_on(id)
        revealed = not self.blind or decisive in votes

        # 2) each side's verdict, without what tells its score
        sides = {}
        for place, judge in self.sides(id).items():
            verdict = {}
            if self._graded.loc[id, judge]:
                verdict = self._verdicts.loc[(judge, id)].dropna().to_dict()
            if revealed:
                verdict["judge"] = judge
            elif verdict:
                feedback, hidden = hide_scores(verdict["feedback"])
                verdict = {"feedback": feedback, "hidden": hidden}
            sides[place] = verdict
        item = Item.from_row(self._rows[index])
        return ReviewCase(number, item, scale, sides, votes, revealed)


def _check(what: str, value: Any, options: Collection[Any]) -> None:
    if value not in options:
        names = ", ".join(map(str, options))
        raise ValueError(f"{what} {value!r} is unknown; use one of {names}")


def _named(scores: pd.Series, where: np.ndarray) -> pd.Series:
    """The name of the level nearest to each score."""
    names = nearest(scores, where).map("{:g}".format)
    return names.replace("nan", NO_SCORE)
