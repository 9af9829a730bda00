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
from vjudge.metrics import label_weights, next_labels
from vjudge.records import Item
from vjudge.review.hiding import hidden
from vjudge.review.judged import Judged, within
from vjudge.review.votes import ANSWERS, TAGS, VOTED, ReviewError, VoteLog

ORDERS = ("file", "worst", "random")
TELLING = {"score", "truth", "human", "gap", "distance", "unparsed"}  # filters that tell scores
FILTERS = {*TELLING, "judge", "criterion", "voted", "text"}


class ReviewCase(NamedTuple):
    """One item as it is reviewed now; its truth is for display only where it is `revealed`."""

    number: int  # its place in the current list, from 0
    item: Item
    scale: tuple[int, int] | None  # None where neither a rubric nor the review says
    sides: Mapping[str, Mapping[str, Any]]  # place -> its verdict; no feedback where not graded
    votes: Mapping[str, Any]  # field -> value
    others: Mapping[str, Mapping[str, Any]]  # of each other annotator; empty while hidden
    revealed: bool


class Review:
    """Votes of one annotator on judged items.

    Args:
        items: a collection with the canonical columns.
        runs: name -> table of `Judge.grade`, or one such table with a column `judge`; one verdict
            an item and judge.
        out: a folder of votes, for all annotators.
        annotator: who votes.
        blind: until an item has its vote, hide names, scores, the truth, others' votes and what
            reads as a verdict in a feedback (`vjudge.review.hiding.hide_scores`); swap sides.
        seed: of the sides in blind mode; the same for every annotator.
        tags: the error tags offered.
        scale: lowest and highest score for items without a rubric.

    `path` (the annotator's file), `judges`, `criteria`, `listed` (ids), `judge_scores` (items by
    judges), `truth` (of `vj.truth`; all NaN where there is none) and the arguments can be read.

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

        # 1) items, verdicts and the truth
        self._judged = Judged(items, runs, scale)
        self._ids = self._judged.ids
        self.judges = self._judged.judges
        self.judge_scores = self._judged.scores
        self.truth = self._judged.truth
        criteria = self._judged.facts["criteria"].dropna()
        self.criteria = criteria.value_counts().index.tolist()

        # 2) votes, and the list
        fingerprint = data.fingerprint(items)[:16]
        self._log = VoteLog(
            Path(out), annotator=annotator, collection=fingerprint, judges=self.judges
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
            judge: whose score `score`, `gap`, `distance` and `unparsed` look at; any where None.
            score, truth, human: a level or a range (lowest, highest) of the judge's score, the
                truth, or the mean of the scores voted here; halves count up.
            gap, distance: bounds (lowest, highest) of truth minus score, or of its absolute value.
            unparsed: verdicts without a score, or with one.
            criterion: the whole criterion.
            voted: with a vote of this annotator or without, when the list is made.
            text: a part of instruction, response, reference or feedback, in any case.

        The current item stays. A vote records the list it was made on: where that tells scores
        (`TELLING`, or the worst first), it does not count as blind.

        ValueError: an unknown filter, judge or criterion, or bounds the wrong way round.
        """
        chosen = {name: value for name, value in filters.items() if value is not None}
        _check("judge", chosen.get("judge"), (None, *self.judges))
        _check("criterion", chosen.get("criterion"), (None, *self.criteria))
        for name, value in chosen.items():
            _check("filter", name, FILTERS)
            if isinstance(value, tuple) and value[0] > value[1]:
                what = "is the wrong way round: give the lower bound first"
                raise ValueError(f"{name} {value} {what}")
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
            distance = self._gap().abs().max(axis=1).fillna(-math.inf)  # without a truth: last
            order = np.argsort(-distance.to_numpy(), kind="stable")
        self.listed = self._ids[order[keep[order]]].tolist()
        self._position = self.listed.index(current) if current in self.listed else 0

    def _passing(self, name: str, value: Any) -> pd.Series:
        """Which items pass one filter."""
        among = self._among()
        if name == "judge":
            return self._judged.graded[among].any(axis=1)
        if name == "score":
            return within(self.judge_scores[among], value).any(axis=1)
        if name == "unparsed":
            unread = self.judge_scores[among].isna() & self._judged.graded[among]
            return unread.any(axis=1) == value
        if name in ("gap", "distance"):
            gap = self._gap()
            if name == "distance":
                gap = gap.abs()
            return ((gap >= value[0]) & (gap <= value[1])).any(axis=1)
        if name in ("truth", "human"):
            return within(self._truth(name), value)
        if name == "criterion":
            return self._judged.facts["criteria"] == value
        if name == "voted":
            return self.voted == value
        return self._judged.facts["text"].str.contains(value.casefold(), regex=False)

    def _truth(self, by: str) -> pd.Series:
        """The truth, or with "human" the mean of the scores voted here."""
        if by == "truth":
            return self.truth
        return self.human_scores().mean(axis=1).rename("mean of the scores voted here")

    def _among(self) -> list[str]:
        """The judge that is chosen by a filter, else all."""
        return [self._filters["judge"]] if "judge" in self._filters else list(self.judges)

    def _gap(self) -> pd.DataFrame:
        """Truth minus score, one column a judge."""
        return self.judge_scores[self._among()].rsub(self.truth, axis=0)

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

    @property
    def levels(self) -> dict[str, tuple[int, int]]:
        """The lowest and highest score of each level, by its name: a number, or a range."""
        return self._judged.levels

    def confusion(self, judge: str, *, by: str = "truth") -> pd.DataFrame:
        """Count how often a judge gives each score at each level of the truth.

        Args:
            judge: whose scores.
            by: "truth", or "human" for the mean of the scores voted here.

        Returns:
            Counts over the items that the judge graded: one row a level of truth, one column a
            level of score, "none" without a score. `attrs["words"]` says what is counted.
        """
        return self._judged.confusion(judge, self._truth(by))

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
        table["selection"] = [_json(selection) for selection in table["selection"]]
        return table

    def human_scores(self) -> pd.DataFrame:
        """Everyone's scores, NaN for none: one row an item (index `id`), one column an annotator.

        Where `next_best` chose some, `attrs["labelled_by"]` says so, and statistics ask for
        `weights=review.weights()`.
        """
        votes = self.votes("score").astype({"value": float})
        table = votes.pivot(index="id", columns="annotator", values="value")
        table = table.reindex(self._ids, columns=self.annotators)
        judges = self._choosers(votes["id"])
        if judges:
            table.attrs["labelled_by"] = f"next_best, by the score of {' and of '.join(judges)},"
        return table

    def weights(self) -> pd.Series | None:
        """How many items each scored item stands for, NaN for the others; None without `next_best`.

        ValueError: items were chosen by the scores of two judges.

        Source: see `vjudge.metrics.label_weights`.
        """
        human = self.human_scores().mean(axis=1)
        judges = self._choosers(human.dropna().index)
        if not judges:
            return None
        if len(judges) > 1:
            what = f"items were chosen by the scores of {' and of '.join(judges)}"
            raise ValueError(f"{what}: choose by one judge alone")
        return label_weights(self.judge_scores[judges[0]].to_numpy(), human)

    def next_best(self, n: int = 10, *, judge: str | None = None, seed: int = 0) -> pd.DataFrame:
        """Name the n items whose label shrinks the interval of the judge-human correlation fastest.

        Args:
            n: how many.
            judge: by whose score; needed where several are reviewed, else ValueError.
            seed: of the choice among items of one score.

        Returns:
            The table of `vjudge.metrics.next_labels` with `id`, the most useful first. The file
            keeps what was named, for `weights`.
        """
        if judge is None and len(self.judges) == 1:
            judge = self.judges[0]
        _check("judge", judge, self.judges)
        assert judge is not None
        human = self.human_scores().mean(axis=1).to_numpy()
        chosen = next_labels(self.judge_scores[judge], human, n=n, seed=seed)
        chosen.insert(0, "id", self._ids[chosen.pop("position")].tolist())
        for id in chosen["id"]:
            if self._log.get(self.annotator, id, "next_best") != judge:
                self._log.append(id=id, field="next_best", value=judge)
        return chosen

    def _choosers(self, ids: Collection[str]) -> list[str]:
        """The judges by whose scores `next_best` named some of these items."""
        among = set(ids)
        named = [vote for vote in self._log.current("next_best") if vote["id"] in among]
        return sorted({vote["value"] for vote in named})

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
        blind = not case.revealed and not tells
        self._log.append(
            id=case.item.id, field=field, value=value, blind=blind, selection=selection
        )

    def _votes_of(self, annotator: str, id: str) -> dict[str, Any]:
        """One annotator's votes on one item: field -> value, with places for judges' names."""
        places = {judge: place for place, judge in self.sides(id).items()}
        votes = {}
        for field in VOTED:
            value = self._log.get(annotator, id, field)
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
        scale = self._judged.facts["scale"].iloc[index]

        # 1) an item is revealed by the vote that blindness protects
        decisive = "better" if len(self.judges) == 2 else "score"
        votes = self._votes_of(self.annotator, id)
        revealed = not self.blind or decisive in votes
        revealed = revealed or bool(self._log.get(self.annotator, id, "reveal"))

        # 2) each side's verdict, without what tells its score
        sides = {}
        for place, judge in self.sides(id).items():
            verdict = {}
            if (judge, id) in self._judged.verdicts.index:
                verdict = self._judged.verdicts.loc[(judge, id)].dropna().to_dict()
            if revealed:
                sides[place] = {**verdict, "judge": judge}
            else:
                sides[place] = hidden(verdict, scale or (1, 5))

        # 3) the others' votes
        others = {}
        for name in self.annotators if revealed else ():
            theirs = self._votes_of(name, id)
            if theirs and name != self.annotator:
                others[name] = theirs
        item = Item.from_row(self._judged.rows[index])
        return ReviewCase(number, item, scale, sides, votes, others, revealed)


def _check(what: str, value: Any, options: Collection[Any]) -> None:
    if value not in options:
        names = ", ".join(str(option) for option in options if option is not None)
        raise ValueError(f"{what} {value!r} is unknown; use one of {names}")


def _json(selection: Any) -> str:
    if not isinstance(selection, dict) or not selection:
        return ""
    return json.dumps(selection, sort_keys=True)
