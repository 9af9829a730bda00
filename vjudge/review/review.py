"""Reviewing judges' feedback as a plain state machine: filter, order, vote, undo, resume. No widgets."""

from __future__ import annotations

import hashlib
import math
from collections import namedtuple
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.metrics import label_weights, next_labels
from vjudge.prompts.parse import verdict_spans
from vjudge.records import Item, is_missing
from vjudge.review.votes import VOTED, ReviewError, Votes

ORDERS = ("file", "worst", "random")
ANSWERS = ("left", "right", "both good", "both bad")
"""Which of two feedbacks is better. Source: Prometheus-Vision (arXiv 2401.06591), its human comparison of feedback."""
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
"""Error tags offered by default; a review takes its own with `tags=`. Source: the first two are among the reasons for
which people turned feedback down in Prometheus-Vision (arXiv 2401.06591); the others are ours."""
HIDDEN = "[hidden]"
MOST_LEVELS = 11  # a longer scale is divided into ranges
TELLING = {"score", "truth", "human", "gap", "unparsed"}  # filters that say something about scores
Level = float | tuple[float, float]  # a score, or the lowest and the highest of a range


@dataclass(frozen=True)
class Side:
    """One judge's verdict as the annotator sees it: a blind view has its feedback alone."""

    place: str  # "left" or "right" of two judges, else a number from "1"
    judge: str | None  # None while hidden
    verdict: Mapping[str, Any] | None  # None where the judge did not grade the item
    hidden: int = 0  # places of the feedback


@dataclass(frozen=True)
class ReviewCase:
    """One item as it is reviewed now; the view hides its truth where it is not `revealed`."""

    number: int  # its place in the current list, from 0
    item: Item
    scale: tuple[int, int] | None  # None where neither a rubric nor the review says
    sides: tuple[Side, ...]
    votes: Mapping[str, Any]  # field -> value
    others: Mapping[str, Mapping[str, Any]]  # of each other annotator; empty while hidden
    revealed: bool


Progress = namedtuple("Progress", "voted listed voted_in_all items")
"""How far an annotator is: items with a vote in the current list, its length, and the same of everything."""


class Review:
    """Votes of one annotator on judged items.

    Args:
        items: a collection with the canonical columns.
        runs: name -> table of `Judge.grade`, or one such table with a column `judge`; one verdict an item and judge.
        out: a folder of votes, for all annotators; see `vjudge.review.votes`.
        annotator: who votes.
        blind: hide names, scores, the truth, others' votes and what reads as a verdict in a feedback
            (`vjudge.prompts.parse.verdict_spans`) until the item has its vote, and swap sides.
        seed: of the sides in blind mode; the same for every annotator.
        tags: the error tags offered.
        scale: lowest and highest score for items without a rubric.

    `path` (the annotator's file), `judges`, `criteria`, `annotator`, `blind`, `tags`, `judge_scores` (one row an item,
    one column a judge) and `truth` (of `vj.truth`; all NaN where there is none) can be read.

    Raises:
        ReviewError: the folder has votes on another collection, or about judges that are not under review.
        ValueError: rows are pairs; a run has several verdicts for an item, or items that the collection lacks.

    >>> import tempfile
    >>> import pandas as pd
    >>> from vjudge.review import Review
    >>> item = {"id": "a", "instruction": "What is it?", "response": "A cat.", "gold": 4}
    >>> run = pd.DataFrame({"id": ["a"], "score": [5.0], "feedback": ["Right, so 5/5."]})
    >>> review = Review([item], {"mine": run}, out=tempfile.mkdtemp(), annotator="ann", blind=True, scale=(1, 5))
    >>> review.case.sides[0].verdict["feedback"]
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
        self.annotator, self.blind, self.tags = annotator, blind, tuple(tags)
        self._seed, self._own_scale = seed, scale
        self._rows = data.rows_of(items)
        self._texts = _texts(self._rows)
        self._ids = self._texts.index
        self._runs = _by_judge(runs, self._ids)
        self.judges = tuple(self._runs)
        self.criteria = [str(name) for name in self._texts["criteria"].value_counts().index]
        scores = {name: run["score"].reindex(self._ids) for name, run in self._runs.items()}
        self.judge_scores = pd.DataFrame(scores).astype(float)
        try:
            self.truth = data.truth(self._rows).set_axis(self._ids)
        except data.CollectionError:  # nobody scored yet: that is what a review is for
            self.truth = pd.Series(np.nan, index=self._ids, name="no truth")
        self._graded = pd.DataFrame({name: self._ids.isin(run.index) for name, run in self._runs.items()}, self._ids)
        self._votes = Votes(out, annotator, data.fingerprint(items)[:16])
        self.path = self._votes.path
        self._filters: dict[str, Any] = {}
        self.order, self._order_seed = "file", 0
        self._list = np.arange(len(self._ids))
        self._position = 0
        self.refresh()

    @property
    def annotators(self) -> list[str]:
        """Everyone who voted."""
        return self._votes.annotators

    def refresh(self) -> None:
        """Take in what others wrote; ReviewError where a file has votes of another review."""
        self._votes.refresh()
        names = {judge for vote in self._votes.on("tags") for judge in vote["value"]}
        names |= {vote["value"] for vote in self._votes.on("better")} - set(ANSWERS[2:])
        if unknown := ", ".join(map(repr, sorted(names - set(self.judges))[:5])):
            raise ReviewError(f"{self._votes.folder} has votes about {unknown}, not under review; use another folder")

    # What is shown

    @property
    def case(self) -> ReviewCase | None:
        """The current item, None where no item passes the filters."""
        return self._case(self._position) if len(self._list) else None

    def cases(self) -> Iterator[ReviewCase]:
        """The listed items one after another; the current one stays."""
        return (self._case(number) for number in range(len(self._list)))

    def revealed(self, id: str) -> bool:
        """Whether an item's names and scores are open to this annotator: not blind, voted, or looked up."""
        decisive = "better" if len(self.judges) == 2 else "score"
        return not self.blind or any((self.annotator, id, field) in self._votes.last for field in ("reveal", decisive))

    def sides(self, id: str) -> dict[str, str]:
        """Place -> judge: which feedback stands where; two change sides by the item and the seed in blind mode."""
        if len(self.judges) != 2:
            return {str(number): judge for number, judge in enumerate(self.judges, start=1)}
        coin = hashlib.sha256(f"{self._seed}\0{id}".encode("utf-8", "surrogatepass")).digest()[0] % 2
        first, second = reversed(self.judges) if self.blind and coin else self.judges
        return {"left": first, "right": second}

    @property
    def progress(self) -> Progress:
        """How far this annotator is."""
        voted = self._voted()
        return Progress(int(voted[self._list].sum()), len(self._list), int(voted.sum()), len(voted))

    def step(self, by: int = 1) -> ReviewCase | None:
        """Go so many items on in the list, back where negative; at its ends, stay."""
        self._position = min(max(self._position + by, 0), max(len(self._list) - 1, 0))
        return self.case

    def next_unvoted(self) -> ReviewCase | None:
        """Go to the next item of the list without a vote, round its end if need be; stay where there is none."""
        waiting = np.flatnonzero(~self._voted()[self._list])
        after = waiting[waiting > self._position]
        self._position = int([*after, *waiting, self._position][0])
        return self.case

    def goto(self, id: str) -> ReviewCase | None:
        """Go to an item of the list; ValueError where it is not in it."""
        if id not in self._ids[self._list]:
            raise ValueError(f"item {id!r} is not in the list; clear the filters with filter()")
        self._move(id)
        return self.case

    def filter(self, **filters: Any) -> int:
        """Choose what is listed; what is left out, or None, does not restrict.

        Args:
            judge: whose score `score`, `gap` and `unparsed` look at; any judge's where None.
            score, truth, human: the judge's score, the truth, and the mean of the scores voted here, to the nearest
                level, halves up: the one given, or in the range (lowest, highest) given.
            gap: bounds of truth minus score, both included.
            criterion: the item's criterion, whole.
            unparsed: verdicts without a score, or with one.
            voted: items with a vote of this annotator, or without. The list is made now: voting does not change it.
            text: a part of the instruction, response, reference answer or a feedback, in any case of letters.

        Returns:
            How many items are listed; the current one stays where it is among them. A vote carries the selection it
            was made on: by `TELLING` filters, or the worst first, it does not count as blind.

        Raises:
            ValueError: an unknown filter, judge or criterion, or bounds the wrong way round.
        """
        filters = {name: value for name, value in filters.items() if value is not None}
        _check("judge", filters.get("judge"), (None, *self.judges))
        _check("criterion", filters.get("criterion"), (None, *self.criteria))
        for name, value in filters.items():
            _check("filter", name, (*sorted(TELLING), "judge", "criterion", "voted", "text"))
            if isinstance(value, tuple) and value[0] > value[1]:
                raise ValueError(f"{name} {value} is the wrong way round: give the lower bound first")
        self._filters = filters
        self._relist()
        return len(self._list)

    def sort(self, order: str = "file", *, seed: int = 0) -> None:
        """Choose the order of the list, and go to its start.

        Args:
            order: "file", "random", or "worst": the largest distance of a (filtered) judge's score from the truth.
            seed: of "random".
        """
        _check("order", order, ORDERS)
        self.order, self._order_seed = order, seed
        self._relist()
        self._position = 0

    @property
    def levels(self) -> dict[str, Level]:
        """The levels of scores and truths, by their names: whole numbers, or about ten ranges of a longer scale."""
        scales = [*self._texts["scale"].dropna(), self._own_scale or ()]
        scores = [*self.judge_scores.to_numpy().ravel(), *self.truth, *(end for scale in scales for end in scale)]
        values = _nearest(pd.Series(scores, dtype=float)).dropna()
        if not len(values):
            return {}
        lowest, highest = int(values.min()), int(values.max())
        if highest - lowest < MOST_LEVELS:
            return {str(score): float(score) for score in range(lowest, highest + 1)}
        width = math.ceil((highest - lowest + 1) / 10)
        ranges = [(start, min(start + width - 1, highest)) for start in range(lowest, highest + 1, width)]
        return {f"{start} to {end}": (float(start), float(end)) for start, end in ranges}

    def confusion(self, judge: str, *, by: str = "truth") -> pd.DataFrame:
        """How often a judge gives each score to items of each level of truth.

        Args:
            judge: whose verdicts; items that it did not grade are left out.
            by: "truth", or "human" for the mean of the scores voted in this review.

        Returns:
            Counts: one row a level of truth (`levels`), one column a level of score, "none" without. `attrs`: `truth`
            (its name), `n`, `missing` (graded, without a truth), `between` (truths that count with the nearest level).
        """
        truth = self.truth if by == "truth" else self.human_scores().mean(axis=1)
        graded, scores = self._graded[judge], self.judge_scores[judge]
        rows = {name: graded & _within(truth, level) for name, level in self.levels.items()}
        columns = {name: _within(scores, level) for name, level in self.levels.items()} | {"none": scores.isna()}
        counts = {name: {row: int((of & has).sum()) for row, of in rows.items()} for name, has in columns.items()}
        table = pd.DataFrame(counts, index=list(rows))
        name = str(self.truth.name) if by == "truth" else "mean of the scores voted here"
        between = int((graded & (truth != _nearest(truth)) & truth.notna()).sum())
        table.attrs = {"truth": name, "n": int(table.to_numpy().sum()), "between": between}
        table.attrs["missing"] = int((graded & truth.isna()).sum())
        return table

    # What is voted

    def score(self, value: float | None) -> None:
        """Give the current item's response a score of one's own, on its scale (else ValueError); None withdraws it."""
        case = self._current()
        if case.scale is None:
            raise ValueError(f"item {case.item.id!r} has no rubric: open the review with scale=, such as (0, 100)")
        if value is not None and (isinstance(value, bool) or value not in range(case.scale[0], case.scale[1] + 1)):
            raise ValueError(f"score {value!r} is not a whole number from {case.scale[0]} to {case.scale[1]}")
        self._vote(case, "score", None if value is None else int(value))

    def better(self, answer: str | None) -> None:
        """Say which of two judges' feedbacks is better, by one of `ANSWERS` (else ValueError); None withdraws it."""
        _check("answer", answer, (None, *ANSWERS))
        case = self._current()
        if len(case.sides) != 2 or any(side.verdict is None for side in case.sides):
            raise ValueError("which feedback is better can be asked only of two judges that both graded the item")
        self._vote(case, "better", answer and self.sides(case.item.id).get(answer, answer))

    def tag(self, name: str, on: bool | None = None, *, side: str | None = None) -> None:
        """Set an error tag on a feedback of the current item, take it off, or turn it over where `on` is None.

        Args:
            name: one of the review's tags; else ValueError.
            side: the place of the feedback, such as "left"; not needed where one judge is reviewed.
        """
        _check("tag", name, self.tags)
        case = self._current()
        sides = self.sides(case.item.id)
        side = side or (next(iter(sides)) if len(sides) == 1 else "")
        _check("side", side, sides)
        tags = dict(self._votes.of(self.annotator, case.item.id).get("tags", {}))
        before = tags.pop(sides[side], [])
        if on is None or on != (name in before):
            after = [tag for tag in self.tags if (tag in before) != (tag == name)]
            self._vote(case, "tags", tags | ({sides[side]: after} if after else {}) or None)

    def note(self, text: str | None) -> None:
        """Keep a free note on the current item; blank withdraws it."""
        case, text = self._current(), (text or "").strip() or None
        if text != case.votes.get("note"):
            self._vote(case, "note", text)

    def reveal(self) -> None:
        """Show names and scores of the current item before voting; the file records it, and the vote is not blind."""
        case = self._current()
        if not case.revealed:
            self._votes.append(case.item.id, "reveal", True)

    def undo(self) -> ReviewCase | None:
        """Put back what this annotator's last vote replaced (else ReviewError), and go to its item if it is listed."""
        self.refresh()
        self._move(self._votes.undo())
        return self.case

    def votes(self, *fields: str) -> pd.DataFrame:
        """Everyone's votes, one a row.

        Args:
            fields: of "score", "better", "tags" and "note"; all where none is given.

        Returns:
            Columns id, annotator, field, value (of "better" a judge's name or one of `ANSWERS[2:]`; of "tags" judge ->
            tags), blind, selection (JSON, "" for the whole list in the file's order) and time (UTC).
        """
        self.refresh()
        return self._votes.table(*(fields or VOTED))

    # What votes are for

    def human_scores(self) -> pd.DataFrame:
        """Everyone's scores: one row an item of the collection (index `id`), one column an annotator, NaN for none.

        Where `next_best` chose some, `attrs["labelled_by"]` says so, and statistics ask for `weights=review.weights()`.
        """
        votes = self.votes("score").astype({"value": float})
        table = votes.pivot(index="id", columns="annotator", values="value").reindex(self._ids, columns=self.annotators)
        if judges := self._choosers(votes):
            table.attrs["labelled_by"] = f"next_best, by the score of {' and of '.join(judges)},"
        return table

    def weights(self) -> pd.Series | None:
        """How many items each scored item stands for, where `next_best` chose some of them.

        Returns:
            One weight an item (index `id`), NaN where nobody scored it; None where `next_best` chose none of them.

        Raises:
            ValueError: items were chosen by the scores of two judges.

        Source: see `vjudge.metrics.label_weights`.
        """
        human, judges = self.human_scores(), self._choosers(self.votes("score"))
        if len(judges) > 1:
            raise ValueError(f"items were chosen by the scores of {' and of '.join(judges)}: choose by one judge alone")
        return label_weights(self.judge_scores[judges[0]].to_numpy(), human.mean(axis=1)) if judges else None

    def next_best(self, n: int = 10, *, judge: str | None = None, seed: int = 0) -> pd.DataFrame:
        """Which items to label next so that the interval of the judge-human correlation shrinks fastest.

        Args:
            n: how many.
            judge: of whose score; not needed where one judge is reviewed, else ValueError.
            seed: of the choice among items of one score.

        Returns:
            As `vjudge.metrics.next_labels`, the most useful first: `id`, `stratum`, `judge` (its score), `gain`. The
            file records what was named, for `weights`.
        """
        judge = self.judges[0] if judge is None and len(self.judges) == 1 else judge
        _check("judge", judge, self.judges)
        chosen = next_labels(self.judge_scores[judge], self.human_scores().mean(axis=1).to_numpy(), n=n, seed=seed)
        ids, before = self._ids[chosen["position"]].tolist(), self._chosen()
        for id in ids:
            if before.get(id) != judge:
                self._votes.append(id, "next_best", judge)
        return chosen.drop(columns="position").assign(id=ids)[["id", "stratum", "judge", "gain"]]

    # How it works

    def _vote(self, case: ReviewCase, field: str, value: Any) -> None:
        selection: dict[str, Any] = {} if self.order == "file" else {"order": self.order}
        selection |= ({"seed": self._order_seed} if self.order == "random" else {}) | self._filters
        blind = not (case.revealed or TELLING & set(self._filters) or self.order == "worst")
        self._votes.append(case.item.id, field, value, blind=blind, **({"selection": selection} if selection else {}))

    def _current(self) -> ReviewCase:
        if case := self.case:
            return case
        raise ReviewError("no item passes the filters: there is nothing to vote on; clear them with filter()")

    def _case(self, number: int) -> ReviewCase:
        index = int(self._list[number])
        id = str(self._ids[index])
        shown, sides = self.revealed(id), self.sides(id)
        places = {judge: place for place, judge in sides.items()}
        others = [name for name in self.annotators if name != self.annotator] if shown else []
        theirs = {name: _placed(votes, places) for name in others if (votes := self._votes.of(name, id))}
        own, scale = _placed(self._votes.of(self.annotator, id), places), self._texts["scale"].iloc[index]
        views = tuple(self._side(id, place, judge, scale, shown) for place, judge in sides.items())
        return ReviewCase(number, Item.from_row(self._rows[index]), scale or self._own_scale, views, own, theirs, shown)

    def _side(self, id: str, place: str, judge: str, scale: tuple[int, int] | None, shown: bool) -> Side:
        run, name = self._runs[judge], judge if shown else None
        if id not in run.index:
            return Side(place, name, None)
        verdict = {key: value for key, value in run.loc[id].to_dict().items() if not is_missing(value)}
        if shown:
            return Side(place, name, verdict)
        feedback = str(verdict.get("feedback", ""))
        spans = verdict_spans(feedback, scale or self._own_scale or (1, 5))
        for start, end in reversed(spans):
            feedback = feedback[:start] + HIDDEN + feedback[end:]
        failure = {"failure": HIDDEN} if "failure" in verdict else {}  # its reason may name scores
        return Side(place, None, {"feedback": feedback} | failure, len(spans))

    def _chosen(self) -> dict[str, str]:
        """Item that `next_best` named -> the judge by whose scores."""
        return {vote["id"]: vote["value"] for vote in self._votes.on("next_best")}

    def _choosers(self, votes: pd.DataFrame) -> list[str]:
        """The judges by whose scores `next_best` named items with a vote."""
        return sorted({judge for id, judge in self._chosen().items() if id in set(votes["id"])})

    def _voted(self) -> np.ndarray:
        own = [vote["id"] for vote in self._votes.on(*VOTED) if vote["annotator"] == self.annotator]
        return np.asarray(self._ids.isin(own))

    def _relist(self) -> None:
        """List what passes the filters, in the order; the current item stays current where it is in the list."""
        current = self._ids[self._list[self._position]] if len(self._list) else None
        judges = [self._filters["judge"]] if "judge" in self._filters else list(self.judges)
        scores, graded = self.judge_scores[judges], self._graded[judges]
        gap = scores.rsub(self.truth, axis=0)
        tests = {
            "judge": lambda judge: graded[judge],
            "score": lambda level: _within(scores, level).any(axis=1),
            "truth": lambda level: _within(self.truth, level),
            "human": lambda level: _within(self.human_scores().mean(axis=1), level),
            "gap": lambda bounds: ((gap >= bounds[0]) & (gap <= bounds[1])).any(axis=1),
            "criterion": lambda criterion: self._texts["criteria"].eq(criterion),
            "unparsed": lambda is_so: (scores.isna() & graded).any(axis=1) == is_so,
            "voted": lambda is_so: self._voted() == is_so,
            "text": self._search,
        }
        keep = np.ones(len(self._ids), dtype=bool)
        for name, value in self._filters.items():
            keep &= np.asarray(tests[name](value), dtype=bool)
        listed = np.arange(len(self._ids))
        if self.order == "random":
            listed = np.random.default_rng(self._order_seed).permutation(len(self._ids))
        elif self.order == "worst":
            distance = gap.abs().max(axis=1).fillna(-math.inf).to_numpy()  # what has no distance comes last
            listed = np.argsort(-distance, kind="stable")
        self._list, self._position = listed[keep[listed]], 0
        self._move(current)

    def _move(self, id: str | None) -> None:
        """Make an item the current one, if it is in the list."""
        place = np.flatnonzero(self._ids[self._list] == id)
        self._position = int(place[0]) if len(place) else self._position

    def _search(self, text: str) -> pd.Series:
        columns = [self._texts[name] for name in ("instruction", "response", "reference_answer")]
        columns += [run["feedback"].reindex(self._ids) for run in self._runs.values() if "feedback" in run]
        texts = pd.concat(columns, axis=1).fillna("").astype(str).agg("\0".join, axis=1)
        return texts.str.casefold().str.contains(text.casefold(), regex=False)


def _check(what: str, value: Any, options: Collection[Any]) -> None:
    if value not in options:
        names = ", ".join(str(option) for option in options if option is not None)
        raise ValueError(f"{what} {value!r} is unknown; use one of {names}")


def _nearest(scores: Any) -> Any:
    """Scores to the nearest level, halves up."""
    return np.floor(scores + 0.5)


def _within(scores: Any, level: Level) -> Any:
    lowest, highest = level if isinstance(level, tuple) else (level, level)
    return (_nearest(scores) >= lowest) & (_nearest(scores) <= highest)


def _placed(votes: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """Votes with places where the file has judges' names."""
    better = {"better": places.get(votes["better"], votes["better"])} if "better" in votes else {}
    tags = {"tags": {places[judge]: names for judge, names in votes["tags"].items()}} if "tags" in votes else {}
    return {**votes, **better, **tags}


def _texts(rows: Any) -> pd.DataFrame:
    """What filters look at, and the scale of each rubric, without the images; one row an item, by its id."""
    names = ("instruction", "response", "reference_answer", "criteria")
    if len(rows) and "response" not in rows[0]:
        raise ValueError("a review is of responses with a score each; these rows are pairs or questions")
    texts, ids = [], []
    for row in rows:
        lowest, n = 1 if is_missing(row.get("lowest")) else int(row["lowest"]), len(row.get("descriptions") or ())
        texts.append({name: row.get(name) for name in names} | {"scale": (lowest, lowest + n - 1) if n else None})
        ids.append(str(row["id"]))
    index = pd.Index(ids, name="id", dtype=object)
    if index.has_duplicates:
        repeated = ", ".join(map(repr, sorted(set(index[index.duplicated()]))[:10]))
        raise ValueError(f"id: {repeated} stand twice in the collection; give each its own")
    return pd.DataFrame(texts, index, [*names, "scale"])


def _by_judge(runs: pd.DataFrame | Mapping[str, pd.DataFrame], ids: pd.Index) -> dict[str, pd.DataFrame]:
    """Each judge's verdicts by item id."""
    if isinstance(runs, pd.DataFrame):
        runs = {str(judge): run for judge, run in runs.groupby("judge", sort=False)}
    faults = [] if len(runs) else ["there is no run to review"]
    by_judge = {str(judge): run.set_index(pd.Index(run["id"].astype(str), name="id")) for judge, run in runs.items()}
    for judge, run in by_judge.items():
        unknown, repeated = run.index.difference(ids), run.index[run.index.duplicated()].unique()
        if len(unknown):
            faults.append(f"{judge}: {len(unknown)} items are not in the collection, such as {unknown[0]!r}")
        if len(repeated):
            faults.append(f"{judge}: {len(repeated)} items have several verdicts, such as {repeated[0]!r}; choose one")
        if judge in ANSWERS:
            faults.append(f"{judge}: is the name of an answer; give the judge another")
    if faults:
        raise ValueError("; ".join(faults))
    return by_judge
