"""Reviewing judges' feedback, without widgets: votes on disk, and a review that lists, hides, takes votes and undoes.

Votes are a folder of JSON lines, one append-only file for each annotator, the last line on a thing its vote. Files are
merged by putting one behind the other or side by side in one folder: a line that stands twice counts once. A vote is on
the disk before the call that cast it returns; a torn last line is named and skipped.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.metrics import label_weights, next_labels
from vjudge.prompts.parse import verdict_spans
from vjudge.records import Item, is_missing
from vjudge.runs import shortened

ORDERS = ("file", "worst", "random")
ANSWERS = ("left", "right", "both good", "both bad")
"""Which of two feedbacks is better. Source: Prometheus-Vision (arXiv 2401.06591), its human comparison of feedback."""
TAGS = (
    "too critical", "too optimistic", "misread the picture", "misread the response", "ignored the rubric",
    "followed the reference blindly", "score contradicts feedback", "invented a detail", "too vague to use",
)  # fmt: skip
"""Error tags offered by default; a review takes its own with `tags=`. Source: the first two are among the reasons for
which people turned feedback down in Prometheus-Vision (arXiv 2401.06591); the others are ours."""
KINDS = {"score": int, "better": str, "tags": dict, "note": str, "reveal": bool, "next_best": str}
"""What a line can be about, and the type of its value; null withdraws it."""
VOTED = ("score", "better", "tags", "note")
HIDDEN = "[hidden]"
MOST_LEVELS = 11  # a longer scale is divided into ranges
TELLING = {"score", "truth", "human", "gap", "unparsed"}  # filters that say something about scores
Level = float | tuple[float, float]  # a score, or the lowest and the highest of a range
Vote = dict[str, Any]


class ReviewError(RuntimeError):
    """A review can't go on as asked; the message says why and what to do."""


class Side(NamedTuple):
    """One judge's verdict as the annotator sees it: a blind view has its feedback alone."""

    place: str  # "left" or "right" of two judges, else a number from "1"
    judge: str | None  # None while hidden
    verdict: Mapping[str, Any] | None  # None where the judge did not grade the item
    hidden: int  # places of the feedback


class ReviewCase(NamedTuple):
    """One item as it is reviewed now; the view hides its truth where it is not `revealed`."""

    number: int  # its place in the current list, from 0
    item: Item
    scale: tuple[int, int] | None  # None where neither a rubric nor the review says
    sides: list[Side]
    votes: Mapping[str, Any]  # field -> value
    others: Mapping[str, Mapping[str, Any]]  # of each other annotator; empty while hidden
    revealed: bool


class Review:
    """Votes of one annotator on judged items.

    Args:
        items: a collection with the canonical columns.
        runs: name -> table of `Judge.grade`, or one such table with a column `judge`; one verdict an item and judge.
        out: a folder of votes, for all annotators.
        annotator: who votes.
        blind: hide names, scores, the truth, others' votes and what reads as a verdict in a feedback
            (`vjudge.prompts.parse.verdict_spans`) until the item has its vote, and swap sides.
        seed: of the sides in blind mode; the same for every annotator.
        tags: the error tags offered.
        scale: lowest and highest score for items without a rubric.

    `path` (the annotator's file), `judges`, `criteria`, `listed` (ids), `judge_scores` (one row an item, one column a
    judge), `truth` (of `vj.truth`; all NaN where there is none) and the arguments can be read.

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
        self.annotator, self.blind, self.seed, self.tags = annotator, blind, seed, tuple(tags)
        self._folder, self._collection = Path(out), data.fingerprint(items)[:16]
        if self._folder.is_file():
            raise ReviewError(f"{out} is a file: give a folder as out=, in which each annotator has a file of votes")
        self.path = self._folder / (re.sub(r"[^\w-]+", "_", annotator)[:60] + ".jsonl")
        self._rows = data.rows_of(items)
        self._verdicts = _verdicts(runs)
        self.judges = tuple(self._verdicts.index.unique("judge"))
        self._texts = _texts(self._rows, self._verdicts, scale)
        self._ids = self._texts.index
        self.criteria = [str(name) for name in self._texts["criteria"].value_counts().index]
        shape = {"index": self._ids, "columns": list(self.judges)}
        self.judge_scores = self._verdicts["score"].unstack("judge").reindex(**shape).astype(float)
        self._graded = self._verdicts["id"].unstack("judge").reindex(**shape).notna()
        try:
            self.truth = data.truth(self._rows).set_axis(self._ids)
        except data.CollectionError:  # nobody scored yet: that is what a review is for
            self.truth = pd.Series(np.nan, index=self._ids, name="no truth")
        self._gap = self.judge_scores.rsub(self.truth, axis=0)
        self.order, self._order_seed, self._among = "file", 0, list(self.judges)
        self._filters, self._keep = dict[str, Any](), np.ones(len(self._ids), dtype=bool)
        self.listed, self._position = list(self._ids), 0
        self.refresh()

    def refresh(self) -> None:
        """Take in what others wrote; ReviewError where a file has votes of another review."""
        votes = list(_read_votes(self._folder, self._collection, self.judges))
        self._lines: list[Vote] = []
        self._last: dict[tuple[str, str, str], Vote] = {}  # by annotator, id and field
        for vote in votes:
            self._take(vote)

    @property
    def annotators(self) -> list[str]:
        """Everyone who voted."""
        return list(dict.fromkeys(vote["annotator"] for vote in self._lines if vote["field"] in VOTED))

    @property
    def voted(self) -> pd.Series:
        """Which items have a vote of this annotator, by id."""
        own = [vote["id"] for vote in self._on(*VOTED) if vote["annotator"] == self.annotator]
        return pd.Series(self._ids.isin(own), self._ids)

    # What is shown

    @property
    def case(self) -> ReviewCase | None:
        """The current item, None where no item passes the filters."""
        return self._case(self._position) if self.listed else None

    def cases(self) -> Iterator[ReviewCase]:
        """The listed items one after another; the current one stays."""
        return map(self._case, range(len(self.listed)))

    def sides(self, id: str) -> dict[str, str]:
        """Place -> judge: which feedback stands where; two change sides by the item and the seed in blind mode."""
        if len(self.judges) != 2:
            return {str(number): judge for number, judge in enumerate(self.judges, start=1)}
        coin = hashlib.sha256(f"{self.seed}\0{id}".encode("utf-8", "surrogatepass")).digest()[0] % 2
        first, second = reversed(self.judges) if self.blind and coin else self.judges
        return {"left": first, "right": second}

    def step(self, by: int = 1) -> ReviewCase | None:
        """Go so many items on in the list, back where negative; at its ends, stay."""
        self._position = min(max(self._position + by, 0), max(len(self.listed) - 1, 0))
        return self.case

    def next_unvoted(self) -> ReviewCase | None:
        """Go to the next item of the list without a vote, round its end if need be; stay where there is none."""
        voted, here = self.voted, self._position
        ahead = [*range(here + 1, len(self.listed)), *range(here)]
        self._position = next((number for number in ahead if not voted[self.listed[number]]), here)
        return self.case

    def goto(self, id: str) -> ReviewCase | None:
        """Go to an item of the list; ValueError where it is not in it."""
        if id not in self.listed:
            raise ValueError(f"item {id!r} is not in the list; clear the filters with filter()")
        self._position = self.listed.index(id)
        return self.case

    def filter(self, **filters: Any) -> int:
        """Choose what is listed, and give its length; what is left out, or None, does not restrict.

        Args:
            judge: whose score `score`, `gap` and `unparsed` look at; any judge's where None.
            score, truth, human: the judge's score, the truth, and the mean of the scores voted here, to the nearest
                level, halves up: the one given, or in the range (lowest, highest) given.
            gap: bounds of truth minus score, both included.
            criterion: the item's criterion, whole.
            unparsed: verdicts without a score, or with one.
            voted: items with a vote of this annotator, or without, as the list is made.
            text: a part of the instruction, response, reference answer or a feedback, in any case of letters.

        The current item stays. A vote carries the selection it was made on: by `TELLING` filters, or the worst first,
        it does not count as blind. ValueError: an unknown filter, judge or criterion, or bounds the wrong way round.
        """
        filters = {name: value for name, value in filters.items() if value is not None}
        _check("judge", filters.get("judge"), (None, *self.judges))
        _check("criterion", filters.get("criterion"), (None, *self.criteria))
        among = [filters["judge"]] if "judge" in filters else list(self.judges)
        scores, gap, graded = self.judge_scores[among], self._gap[among], self._graded[among]
        tests = {
            "judge": lambda judge: graded[judge],
            "score": lambda level: _within(scores, level).any(axis=1),
            "truth": lambda level: _within(self.truth, level),
            "human": lambda level: _within(self.human_scores().mean(axis=1), level),
            "gap": lambda bounds: ((gap >= bounds[0]) & (gap <= bounds[1])).any(axis=1),
            "criterion": lambda criterion: self._texts["criteria"].eq(criterion),
            "unparsed": lambda is_so: (scores.isna() & graded).any(axis=1) == is_so,
            "voted": lambda is_so: self.voted == is_so,
            "text": lambda text: self._texts["all"].str.contains(text.casefold(), regex=False),
        }
        keep = pd.Series(True, self._ids)
        for name, value in filters.items():
            _check("filter", name, tests)
            if isinstance(value, tuple) and value[0] > value[1]:
                raise ValueError(f"{name} {value} is the wrong way round: give the lower bound first")
            keep &= tests[name](value).astype(bool)
        self._filters, self._keep, self._among = filters, keep.to_numpy(), among
        self._relist()
        return len(self.listed)

    def sort(self, order: str = "file", *, seed: int = 0) -> None:
        """Choose the order of the list, and go to its start: "file", "random" (by the seed), or "worst".

        The worst have the largest distance of a (filtered) judge's score from the truth.
        """
        _check("order", order, ORDERS)
        self.order, self._order_seed = order, seed
        self._relist()
        self._position = 0

    @property
    def levels(self) -> dict[str, Level]:
        """The levels of scores and truths, by their names: whole numbers, or about ten ranges of a longer scale."""
        ends = [end for scale in self._texts["scale"].dropna() for end in scale]
        values = _nearest(pd.Series([*self.judge_scores.to_numpy().ravel(), *self.truth, *ends], dtype=float)).dropna()
        lowest, highest = (int(values.min()), int(values.max())) if len(values) else (0, -1)
        if highest - lowest < MOST_LEVELS:
            return {str(score): float(score) for score in range(lowest, highest + 1)}
        width = math.ceil((highest - lowest + 1) / 10)
        ranges = [(start, min(start + width - 1, highest)) for start in range(lowest, highest + 1, width)]
        return {f"{start} to {end}": (float(start), float(end)) for start, end in ranges}

    def confusion(self, judge: str, *, by: str = "truth") -> pd.DataFrame:
        """How often a judge gives each score to items of each level of truth, or of the votes' mean (`by="human"`).

        Returns:
            Counts over the items that it graded: one row a level of truth (`levels`), one column a level of score,
            "none" without. `attrs["words"]` says what is counted and what is not.
        """
        graded, levels = self._graded[judge], self.levels
        truth = (self.truth if by == "truth" else self.human_scores().mean(axis=1))[graded]
        scores = self.judge_scores.loc[graded, judge]
        columns = {name: _within(scores, level) for name, level in levels.items()} | {"none": scores.isna()}
        rows = {name: _within(truth, level) for name, level in levels.items()}
        counts = {name: [int((of & has).sum()) for of in rows.values()] for name, has in columns.items()}
        table = pd.DataFrame(counts, index=list(rows))
        name = self.truth.name if by == "truth" else "mean of the scores voted here"
        between, missing = ((truth != _nearest(truth)) & truth.notna()).sum(), truth.isna().sum()
        words = [f"Rows: {name}. Columns: {judge}. Items: {truth.notna().sum()}"]
        words += ["scores in ranges"] * any(isinstance(level, tuple) for level in levels.values())
        words += [f"between two levels, counted with the nearest (halves up): {between}"] * bool(between)
        words += [f"without a truth yet: {missing}"] * bool(missing)
        table.attrs["words"] = "; ".join(words) + "."
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

    def tag(self, name: str, on: bool | None = None, *, side: str) -> None:
        """Set one of the review's error tags on the feedback at a place, take it off, or turn it over where None."""
        case = self._current()
        sides = self.sides(case.item.id)
        _check("tag", name, self.tags)
        _check("side", side, sides)
        tags = dict(self._of(self.annotator, case.item.id).get("tags", {}))
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
            self._append(case.item.id, "reveal", True)

    def undo(self) -> ReviewCase | None:
        """Put back what this annotator's last vote replaced (else ReviewError), and go to its item if it is listed."""
        self.refresh()
        own: list[Vote] = []  # what was not undone
        for vote in self._lines:
            if vote["annotator"] == self.annotator and vote["field"] in VOTED:
                own = own[:-1] if vote.get("undo") else [*own, vote]
        if not own:
            raise ReviewError("there is nothing to undo")
        id, field = own[-1]["id"], own[-1]["field"]
        same = (vote for vote in reversed(own[:-1]) if (vote["id"], vote["field"]) == (id, field))
        earlier = next(same, {"value": None})
        more = {name: earlier[name] for name in ("blind", "selection") if name in earlier}
        self._append(id, field, earlier["value"], **more, undo=True)
        return self.goto(id) if id in self.listed else self.case

    def votes(self, *fields: str) -> pd.DataFrame:
        """Everyone's votes in some fields ("score", "better", "tags", "note"), else in all, one a row.

        Returns:
            Columns id, annotator, field, value (of "better" a judge's name or one of `ANSWERS[2:]`; of "tags" judge ->
            tags), blind, selection (JSON, "" for the whole list in the file's order) and time (UTC).
        """
        self.refresh()
        columns = ["id", "annotator", "field", "value", "blind", "selection", "time"]
        table = pd.DataFrame(self._on(*(fields or VOTED)), columns=columns)
        selection = [json.dumps(it, sort_keys=True) if isinstance(it, dict) else "" for it in table["selection"]]
        return table.assign(blind=table["blind"].eq(True), selection=selection)

    # What votes are for

    def human_scores(self) -> pd.DataFrame:
        """Everyone's scores, NaN for none: one row an item of the collection (index `id`), one column an annotator.

        Where `next_best` chose some, `attrs["labelled_by"]` says so, and statistics ask for `weights=review.weights()`.
        """
        votes = self.votes("score").astype({"value": float})
        table = votes.pivot(index="id", columns="annotator", values="value").reindex(self._ids, columns=self.annotators)
        if judges := self._choosers(votes["id"]):
            table.attrs["labelled_by"] = f"next_best, by the score of {' and of '.join(judges)},"
        return table

    def weights(self) -> pd.Series | None:
        """How many items each scored item stands for (index `id`, NaN without a score); None without `next_best`.

        ValueError: items were chosen by the scores of two judges. Source: see `vjudge.metrics.label_weights`.
        """
        human = self.human_scores().mean(axis=1)
        judges = self._choosers(human.dropna().index)
        if len(judges) > 1:
            raise ValueError(f"items were chosen by the scores of {' and of '.join(judges)}: choose by one judge alone")
        return label_weights(self.judge_scores[judges[0]].to_numpy(), human) if judges else None

    def next_best(self, n: int = 10, *, judge: str | None = None, seed: int = 0) -> pd.DataFrame:
        """Which n items to label next so that the interval of the judge-human correlation shrinks fastest.

        Args:
            judge: of whose score; not needed where one judge is reviewed, else ValueError.
            seed: of the choice among items of one score.

        Returns:
            As `vjudge.metrics.next_labels`, with `id`, the most useful first; the file keeps what was named, for
            `weights`.
        """
        judge = self.judges[0] if judge is None and len(self.judges) == 1 else judge
        _check("judge", judge, self.judges)
        chosen = next_labels(self.judge_scores[judge], self.human_scores().mean(axis=1).to_numpy(), n=n, seed=seed)
        chosen.insert(0, "id", self._ids[chosen.pop("position")].tolist())
        before = {(vote["id"], vote["value"]) for vote in self._on("next_best")}
        for id in chosen["id"]:
            if (id, judge) not in before:
                self._append(id, "next_best", judge)
        return chosen

    # How it works

    def _take(self, vote: Vote) -> None:
        self._lines.append(vote)
        key = vote["annotator"], vote["id"], vote["field"]
        self._last.pop(key, None)
        if vote["value"] is not None:
            self._last[key] = vote

    def _on(self, *fields: str) -> list[Vote]:
        """The lines that hold everyone's votes on some fields."""
        return [vote for vote in self._last.values() if vote["field"] in fields]

    def _of(self, annotator: str, id: str) -> dict[str, Any]:
        """One annotator's votes on one item: field -> value, the better feedback by its judge's name."""
        return {field: vote["value"] for field in VOTED if (vote := self._last.get((annotator, id, field)))}

    def _append(self, id: str, field: str, value: Any, **more: Any) -> None:
        """Write one line of this annotator and wait until the disk has it; else ReviewError."""
        time = datetime.now(timezone.utc).isoformat(timespec="microseconds")
        vote = {"annotator": self.annotator, "id": id, "field": field, "value": value, **more, "time": time}
        vote["collection"] = self._collection
        line = json.dumps(vote, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass") + b"\n"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    line = line if file.read(1) == b"\n" else b"\n" + line  # after a torn line
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ReviewError(f"{self.path} can't be written: {error.strerror or error}; nothing was voted") from error
        self._take(vote)

    def _vote(self, case: ReviewCase, field: str, value: Any) -> None:
        selection = ({"order": self.order} if self.order != "file" else {}) | self._filters
        selection |= {"seed": self._order_seed} if self.order == "random" else {}
        blind = not (case.revealed or TELLING & set(self._filters) or self.order == "worst")
        self._append(case.item.id, field, value, blind=blind, **({"selection": selection} if selection else {}))

    def _choosers(self, ids: Collection[str]) -> list[str]:
        """The judges by whose scores `next_best` named some of these items."""
        return sorted({vote["value"] for vote in self._on("next_best") if vote["id"] in set(ids)})

    def _current(self) -> ReviewCase:
        if case := self.case:
            return case
        raise ReviewError("no item passes the filters: there is nothing to vote on; clear them with filter()")

    def _case(self, number: int) -> ReviewCase:
        id = self.listed[number]
        index, decisive = self._ids.get_loc(id), "better" if len(self.judges) == 2 else "score"
        shown = not self.blind or any((self.annotator, id, name) in self._last for name in ("reveal", decisive))
        item, scale, sides = Item.from_row(self._rows[index]), self._texts["scale"].iloc[index], []
        for place, judge in self.sides(id).items():
            graded, hidden = self._graded.at[id, judge], 0
            verdict = self._verdicts.loc[(judge, id)].dropna().to_dict() if graded else None
            if verdict and not shown:
                verdict, hidden = _hide(verdict, scale or (1, 5))
            sides.append(Side(place, judge if shown else None, verdict, hidden))
        places = {judge: place for place, judge in self.sides(id).items()}
        voters = self.annotators if shown else [self.annotator]
        votes = {name: _placed(self._of(name, id), places) for name in voters}
        others = {name: vote for name, vote in votes.items() if vote and name != self.annotator}
        return ReviewCase(number, item, scale, sides, votes.get(self.annotator, {}), others, shown)

    def _relist(self) -> None:
        """List what passes the filters, in the order; the current item stays current where it is in the list."""
        current = self.listed[self._position] if self.listed else None
        order = np.arange(len(self._ids))
        if self.order == "random":
            order = np.random.default_rng(self._order_seed).permutation(order)
        elif self.order == "worst":
            distance = self._gap[self._among].abs().max(axis=1).fillna(-math.inf)  # what has no distance comes last
            order = np.argsort(-distance.to_numpy(), kind="stable")
        self.listed = self._ids[order[self._keep[order]]].tolist()
        self._position = self.listed.index(current) if current in self.listed else 0


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


def _read_votes(folder: Path, collection: str, judges: Sequence[str]) -> Iterator[Vote]:
    """The lines of a folder's files, in order; ReviewError for one that is no vote of this review."""
    lines: set[bytes] = set()
    for path in sorted(folder.glob("*.jsonl")):
        torn = []
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            if not line.strip() or line in lines:
                continue
            lines.add(line)
            try:
                vote = json.loads(line)
            except (ValueError, RecursionError):
                torn.append(str(number))
                continue
            if fault := _fault(vote, collection, judges):
                raise ReviewError(f"{path}, line {number}: {fault}; correct or remove it, or use another folder")
            yield {"value": None} | vote
        if torn:
            what = "cut short when its kernel was stopped, or damaged since; what it said is not counted"
            warnings.warn(f"{path}, line {', '.join(torn[:10])}: {what}", RuntimeWarning, stacklevel=4)


def _fault(vote: Any, collection: str, judges: Sequence[str]) -> str:
    """Why a line is no vote of this review."""
    texts = ("annotator", "id", "field", "time", "collection")
    if not isinstance(vote, dict) or not all(isinstance(vote.get(name), str) for name in texts):
        return "not a vote"
    field, value = vote["field"], vote.get("value")
    if field not in KINDS or not isinstance(value, (KINDS[field], type(None))):
        return f"the {shortened(field)} {shortened(value)} is not a vote"
    if vote["collection"] != collection:
        there, here = shortened(vote["collection"]), shortened(collection)
        return f"a vote on another collection (fingerprint {there} there, {here} here)"
    about = set(vote.get("value") or ()) if field == "tags" else {value} if field in ("better", "next_best") else set()
    unknown = about - {None, *judges, *ANSWERS[2:]}
    return f"a vote about {shortened(min(map(str, unknown)))}, not under review" if unknown else ""


def _hide(verdict: Mapping[str, Any], scale: tuple[int, int]) -> tuple[dict[str, str], int]:
    """A feedback without what reads as a verdict, and at how many places; a failure's reason may name scores."""
    feedback = str(verdict.get("feedback", ""))
    spans = verdict_spans(feedback, scale)
    for start, end in reversed(spans):
        feedback = feedback[:start] + HIDDEN + feedback[end:]
    return {"feedback": feedback} | ({"failure": HIDDEN} if "failure" in verdict else {}), len(spans)


def _placed(votes: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """Votes with places where the file has judges' names."""
    better = {"better": places.get(votes["better"], votes["better"])} if "better" in votes else {}
    tags = {"tags": {places[judge]: names for judge, names in votes["tags"].items()}} if "tags" in votes else {}
    return {**votes, **better, **tags}


def _verdicts(runs: pd.DataFrame | Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """All judges' verdicts by judge and item id."""
    if not isinstance(runs, pd.DataFrame):
        if not runs:
            raise ValueError("there is no run to review")
        runs = pd.concat([pd.DataFrame({**run, "judge": judge}) for judge, run in runs.items()])  # without their attrs
    table = runs.astype({"judge": str, "id": str}).set_index(["judge", "id"], drop=False)
    if names := {*table["judge"]} & {*ANSWERS}:
        raise ValueError(f"{min(names)}: is the name of an answer; give the judge another")
    if len(repeated := table[table.index.duplicated()]):
        raise ValueError(
            f"{repeated['judge'].iloc[0]}: item {repeated['id'].iloc[0]!r} has several verdicts; choose one"
        )
    return table


def _texts(rows: Any, verdicts: pd.DataFrame, scale: tuple[int, int] | None) -> pd.DataFrame:
    """Criterion, scale and all texts of each item, by its id."""
    if len(rows) and "response" not in rows.columns:
        raise ValueError("a review is of responses with a score each; these rows are pairs or questions")
    cells: dict[str, list[Any]] = {}
    for row in rows:
        if (id := str(row["id"])) in cells:
            raise ValueError(f"id: {id!r} stands twice in the collection; give each row its own")
        lowest, n = 1 if is_missing(row.get("lowest")) else int(row["lowest"]), len(row.get("descriptions") or ())
        texts = [str(row.get(name) or "") for name in ("instruction", "response", "reference_answer")]
        cells[id] = [row.get("criteria"), (lowest, lowest + n - 1) if n else scale, texts]
    feedbacks = verdicts.get("feedback", pd.Series("", verdicts.index)).fillna("")
    for (judge, id), feedback in feedbacks.items():
        if id not in cells:
            raise ValueError(f"{judge}: item {id!r} is not in the collection")
        cells[id][2].append(str(feedback))
    index = pd.Index(list(cells), name="id", dtype=object)
    table = pd.DataFrame(list(cells.values()), index, ["criteria", "scale", "all"])
    return table.assign(all=table["all"].map("\0".join).str.casefold())
