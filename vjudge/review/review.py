"""Reviewing judges' feedback, without widgets: list items, hide who judged, take votes, undo."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.records import Item
from vjudge.review.hiding import hidden
from vjudge.review.judged import item_table, level_names, levels_of, verdict_table, within
from vjudge.review.votes import ANSWERS, TAGS, VOTED, ReviewError, VoteLog

ORDERS = ("file", "worst", "random")
DISAGREEMENTS = ("large", "judge too high", "judge too low", "none")
TELLING = {"score", "truth", "disagreement", "unparsed"}  # filters that tell scores
FILTERS = {*TELLING, "judge", "criterion", "voted", "text"}


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
    judges), `truth` (of `vj.truth`; all NaN where there is none), `levels` (name -> lowest and
    highest score) and the arguments can be read.

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
        if not isinstance(annotator, str) or not annotator.strip():
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
        table = self._verdicts.reset_index(drop=True)
        shape = {"index": self._ids, "columns": list(self.judges)}
        scores = table.pivot(index="id", columns="judge", values="score")
        self.judge_scores = scores.reindex(**shape).astype(float)
        feedback = table.pivot(index="id", columns="judge", values="feedback")
        self._graded = feedback.reindex(**shape).notna()

        # 2) the truth, and the levels of all scores
        try:
            self.truth = data.truth(self._rows).set_axis(self._ids)
        except data.CollectionError:  # nobody scored yet: that is what a review is for
            self.truth = pd.Series(np.nan, index=self._ids, name="no truth")
        scales = self._facts["scale"].dropna().explode()
        self.levels = levels_of(pd.concat([self.judge_scores.stack(), self.truth, scales]))

        # 3) votes, and the list
        self._log = VoteLog(
            Path(out),
            annotator=annotator,
            collection=data.fingerprint(items)[:16],
            judges=self.judges,
        )
        self.path = self._log.path
        self.order = "file"
        self._order_seed = 0
        self._filters: dict[str, Any] = {}
        self.listed: list[str] = list(self._ids)
        self._position = 0

    def refresh(self) -> None:
        """Read what others wrote; ReviewError where a file has votes of another review."""
        self._log.refresh()

    @property
    def annotators(self) -> list[str]:
        """Everyone who voted."""
        names = [vote["annotator"] for vote in self._log.lines if vote["field"] in VOTED]
        return list(dict.fromkeys(names))

    @property
    def voted(self) -> pd.Series:
        """Which items have a vote of this annotator, by id."""
        votes = self._log.current(*VOTED)
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

    def next_unvoted(self) -> ReviewCase | None:
        """Go to the next item of the list without a vote, from its start where none follows."""
        voted = self.voted
        here = self._position
        for number in (*range(here + 1, len(self.listed)), *range(here)):
            if not voted[self.listed[number]]:
                return self.step(number - here)
        return self.case

    def goto(self, id: str) -> ReviewCase | None:
        """Go to an item of the list; ValueError where it is not in it."""
        if id not in self.listed:
            raise ValueError(f"item {id!r} is not in the list; clear the filters with filter()")
        return self.step(self.listed.index(id) - self._position)

    def filter(self, **filters: Any) -> int:
        """Choose what is listed, and return its length. A filter of None does not restrict.

        Args:
            judge: whose score `score`, `disagreement` and `unparsed` look at; any where None.
            score, truth: a level or a range (lowest, highest) of the judge's score or the truth;
                halves count up.
            disagreement: one of `DISAGREEMENTS`; large is half of the scale or more.
            unparsed: verdicts without a score, or with one.
            criterion: the whole criterion.
            voted: with a vote of this annotator or without, when the list is made.
            text: a part of instruction, response, reference or feedback, in any case.

        The current item stays. A vote records the list it was made on: where that tells scores
        (`TELLING`, or the worst first), it does not count as blind.

        ValueError: an unknown filter, judge, criterion or disagreement.
        """
        chosen = {name: value for name, value in filters.items() if value is not None}
        for name in chosen:
            _check("filter", name, FILTERS)
        _check("judge", chosen.get("judge"), (None, *self.judges))
        _check("criterion", chosen.get("criterion"), (None, *self.criteria))
        _check("disagreement", chosen.get("disagreement"), (None, *DISAGREEMENTS))
        self._filters = chosen
        self._relist()
        return len(self.listed)

    def sort(self, order: str = "file", *, seed: int = 0) -> None:
        """Order the list, and go to its start.

        `order`: "file", "random" (by the seed) or "worst" (farthest from the truth first).
        """
        _check("order", order, ORDERS)
        self.order = order
        self._order_seed = seed
        self._relist()
        self._position = 0

    def _relist(self) -> None:
        """List what passes the filters, in the order; the current item stays where it is listed."""
        current = self.listed[self._position] if self.listed else None
        keep = np.ones(len(self._ids), dtype=bool)
        for name, value in self._filters.items():
            keep &= self._passing(name, value).to_numpy(dtype=bool)
        order = np.arange(len(self._ids))
        if self.order == "random":
            order = np.random.default_rng(self._order_seed).permutation(order)
        elif self.order == "worst":
            distance = self._excess().abs().max(axis=1).fillna(-math.inf)  # without a truth: last
            order = np.argsort(-distance.to_numpy(), kind="stable")
        self.listed = self._ids[order[keep[order]]].tolist()
        self._position = self.listed.index(current) if current in self.listed else 0

    def _passing(self, name: str, value: Any) -> pd.Series:
        """Which items pass one filter."""
        if name == "truth":
            return within(self.truth, value)
        if name == "criterion":
            return self._facts["criteria"] == value
        if name == "voted":
            return self.voted == value
        if name == "text":
            return self._facts["text"].str.contains(value.casefold(), regex=False)
        graded = self._graded[self._among()]
        scores = self.judge_scores[self._among()]
        if name == "judge":
            return graded.any(axis=1)
        if name == "score":
            return within(scores, value).any(axis=1)
        if name == "unparsed":
            return (scores.isna() & graded).any(axis=1) == value
        return self._disagreeing(value).any(axis=1)

    def _disagreeing(self, how: str) -> pd.DataFrame:
        """Which items have this disagreement with the truth, by judge."""
        excess = self._excess()
        if how == "judge too high":
            return excess >= 0.5
        if how == "judge too low":
            return excess <= -0.5
        if how == "none":
            return excess.abs() < 0.5
        ends = np.ravel(list(self.levels.values()))
        return excess.abs() >= max(1, round(np.ptp(ends) / 2))

    def _among(self) -> list[str]:
        """The judge that is chosen by a filter, else all."""
        return [self._filters["judge"]] if "judge" in self._filters else list(self.judges)

    def _excess(self) -> pd.DataFrame:
        """Score minus truth, one column a judge."""
        return self.judge_scores[self._among()].sub(self.truth, axis=0)

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
            Counts over the items that the judge graded: one row a level of truth, one column a
            level of score, "none" without a score. `attrs["words"]` says what is counted.
        """
        graded = self._graded[judge]
        truth = self.truth[graded]
        rows = level_names(truth, self.levels)
        columns = level_names(self.judge_scores.loc[graded, judge], self.levels).fillna("none")
        names = list(self.levels)
        table = pd.crosstab(rows, columns).reindex(
            index=names, columns=[*names, "none"], fill_value=0
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
        if value is None:
            self._vote(case, "score", None)
        elif isinstance(value, bool) or value not in range(lowest, highest + 1):
            raise ValueError(f"score {value!r} is not a whole number from {lowest} to {highest}")
        else:
            self._vote(case, "score", int(value))

    def better(self, answer: str | None) -> None:
        """Say which of two judges' feedbacks is better, by one of `ANSWERS`; None withdraws it.

        ValueError: another answer, or an item that not both judges graded.
        """
        _check("answer", answer, (None, *ANSWERS))
        case = self._needed()
        compared = [verdict for verdict in case.sides.values() if "feedback" in verdict]
        if len(self.judges) != 2 or len(compared) != 2:
            what = "which feedback is better can be asked only of two judges that both graded"
            raise ValueError(f"{what} the item")
        self._vote(case, "better", self.sides(case.item.id).get(str(answer), answer))

    def tag(self, name: str, on: bool | None = None, *, side: str) -> None:
        """Set an error tag on the feedback at a place, or remove it; None turns it over."""
        case = self._needed()
        places = self.sides(case.item.id)
        _check("tag", name, self.tags)
        _check("side", side, places)
        given = dict(case.votes.get("tags", {}))
        before = given.pop(side, [])
        if on == (name in before):
            return
        after = [tag for tag in self.tags if (tag in before) != (tag == name)]
        if after:
            given[side] = after
        value = {places[place]: tags for place, tags in given.items()}
        self._vote(case, "tags", value or None)

    def note(self, text: str | None) -> None:
        """Keep a free note on the current item; blank withdraws it."""
        case = self._needed()
        value = (text or "").strip() or None
        if value != case.votes.get("note"):
            self._vote(case, "note", value)

    def reveal(self) -> None:
        """Show names and scores of the current item before voting; its vote is then not blind."""
        case = self._needed()
        if not case.revealed:
            self._log.append(id=case.item.id, field="reveal", value=True)

    def undo(self) -> ReviewCase | None:
        """Restore what this annotator's last vote replaced, and go to its item."""
        self.refresh()
        id = self._log.undo()
        return self.goto(id) if id in self.listed else self.case

    def votes(self, *fields: str) -> pd.DataFrame:
        """Everyone's votes in some fields ("score", "better", "tags", "note"), else in all.

        One row a vote: id, annotator, field, value (of "better" a judge's name or one of
        `ANSWERS[2:]`; of "tags" judge -> tags), blind, selection (JSON, "" for the whole list in
        the file's order) and time (UTC).
        """
        self.refresh()
        columns = ["id", "annotator", "field", "value", "blind", "selection", "time"]
        table = pd.DataFrame(self._log.current(*(fields or VOTED)), columns=columns)
        table["blind"] = table["blind"].eq(True)
        texts = []
        for selection in table["selection"]:
            chosen = isinstance(selection, dict) and selection
            texts.append(json.dumps(selection, sort_keys=True) if chosen else "")
        table["selection"] = texts
        return table

    def human_scores(self) -> pd.DataFrame:
        """Everyone's scores, NaN for none: one row an item (`id`), one column an annotator."""
        votes = self.votes("score").astype({"value": float})
        table = votes.pivot(index="id", columns="annotator", values="value")
        return table.reindex(self._ids, columns=self.annotators)

    def _needed(self) -> ReviewCase:
        """The current item, which a vote needs; else ReviewError."""
        case = self.case
        if case is None:
            what = "no item passes the filters: there is nothing to vote on"
            raise ReviewError(f"{what}; clear them with filter()")
        return case

    def _vote(self, case: ReviewCase, field: str, value: Any) -> None:
        selection = dict(self._filters)
        if self.order != "file":
            selection["order"] = self.order
        if self.order == "random":
            selection["seed"] = self._order_seed
        tells = self.order == "worst" or bool(TELLING & set(self._filters))
        self._log.append(
            id=case.item.id,
            field=field,
            value=value,
            blind=not case.revealed and not tells,
            selection=selection,
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
        revealed = revealed or bool(self._log.get(self.annotator, id, "reveal"))

        # 2) each side's verdict, without what tells its score
        sides = {}
        for place, judge in self.sides(id).items():
            verdict = {}
            if self._graded.loc[id, judge]:
                verdict = self._verdicts.loc[(judge, id)].dropna().to_dict()
            if revealed:
                sides[place] = {**verdict, "judge": judge}
            else:
                sides[place] = hidden(verdict, scale or (1, 5))
        item = Item.from_row(self._rows[index])
        return ReviewCase(number, item, scale, sides, votes, revealed)


def _check(what: str, value: Any, options: Collection[Any]) -> None:
    if value not in options:
        names = ", ".join(str(option) for option in options if option is not None)
        raise ValueError(f"{what} {value!r} is unknown; use one of {names}")
