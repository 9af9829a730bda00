"""What is under review: the items, each judge's verdict about them, and which of them are listed in what order."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from vjudge.data import rows_of
from vjudge.records import Item, is_missing

ORDERS = ("file", "worst", "random")
_TOLD_SCORE = re.compile(r"(\bscore\b(?:\s+(?:is|of|as)|\s*[:=])?\s*|\[RESULT\]\s*)\(?\d+(?:\.\d+)?\)?", re.IGNORECASE)
HIDDEN = "[hidden]"


@dataclass(frozen=True)
class Side:
    """One judge's verdict as the annotator sees it.

    Args:
        place: "left" or "right" where two judges are reviewed, else a number from "1".
        judge: the judge's name, None while hidden.
        verdict: the judge's row of its run (score, feedback, failure, ...), its scores left out while hidden; None
            where the judge did not grade this item.
    """

    place: str
    judge: str | None
    verdict: Mapping[str, Any] | None


@dataclass(frozen=True)
class Case:
    """One item as it is reviewed now.

    Args:
        index: its row in the collection; number: its place in the current list, from 0.
        item: the item; its gold and human scores are for the view to hide or show, by `revealed`.
        scale: lowest and highest score that its response can have; None where neither a rubric nor the review says.
        sides: the judges' verdicts in the order in which they are shown.
        votes: this annotator's votes: field -> value.
        others: the other annotators' votes, annotator -> field -> value; empty while hidden.
        revealed: whether names, scores and others' votes are shown.
    """

    index: int
    number: int
    item: Item
    scale: tuple[int, int] | None
    sides: tuple[Side, ...]
    votes: Mapping[str, Any]
    others: Mapping[str, Mapping[str, Any]]
    revealed: bool


@dataclass(frozen=True)
class Progress:
    """How far an annotator is: items with a vote in the current list, its length, and the same of everything."""

    voted: int
    listed: int
    voted_in_all: int
    items: int


@dataclass
class Selection:
    """What the list is made by; only what differs from the file's own order is recorded with a vote."""

    filters: dict[str, Any] = field(default_factory=dict)
    order: str = "file"
    seed: int = 0

    def note(self) -> dict[str, Any]:
        """What a vote records of it; empty for the whole collection in the file's order."""
        ordered = {} if self.order == "file" else {"order": self.order}
        return {**ordered, **({"seed": self.seed} if self.order == "random" else {}), **self.filters}


class Cases:
    """Items with the verdicts of one or more judges; arguments and errors as in `vjudge.review.Review`."""

    def __init__(self, items: Any, runs: pd.DataFrame | Mapping[str, pd.DataFrame]) -> None:
        self.rows = rows_of(items)
        self.texts = _texts(items, self.rows)
        self.place = {id: index for index, id in enumerate(self.texts["id"])}
        self.runs = _runs_by_judge(runs, self.place)
        ids = self.texts["id"]
        self.scores = pd.DataFrame({name: run["score"].reindex(ids).to_numpy(float) for name, run in self.runs.items()})
        self.graded = pd.DataFrame({name: ids.isin(run.index) for name, run in self.runs.items()})
        self._searched: pd.Series | None = None
        self._last: tuple[int, Item] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def judges(self) -> tuple[str, ...]:
        """The judges under review."""
        return tuple(self.runs)

    @property
    def criteria(self) -> list[str]:
        """The criteria of the collection, the most frequent first."""
        return [str(name) for name in self.texts["criteria"].value_counts().index]

    def check(self, judge: str | None, criterion: str | None, gap: tuple[float, float] | None) -> None:
        """Refuse filters that can't be meant."""
        if judge is not None and judge not in self.judges:
            raise ValueError(f"judge {judge!r} is not under review; use one of {', '.join(self.judges)}")
        if criterion is not None and criterion not in self.criteria:
            raise ValueError(f"no item has the criterion {criterion!r}; see review.criteria")
        if gap is not None and gap[0] > gap[1]:
            raise ValueError(f"gap {gap} is the wrong way round: give the lower bound first")

    def item(self, index: int) -> Item:
        """An item, its images opened only by whoever shows them; the last one is kept, as it is asked for again."""
        if self._last is None or self._last[0] != index:
            row = self.rows[index]
            self._last = index, row if isinstance(row, Item) else Item.from_row(row)
        return self._last[1]

    def sides(self, id: str, *, seed: int | None) -> dict[str, str]:
        """Place -> judge; two judges change sides by the item and the seed, unless it is None."""
        if len(self.judges) != 2:
            return {str(number): judge for number, judge in enumerate(self.judges, start=1)}
        coin = hashlib.sha256(f"{seed}\0{id}".encode("utf-8", "surrogatepass")).digest()[0] % 2
        first, second = reversed(self.judges) if seed is not None and coin else self.judges
        return {"left": first, "right": second}

    def side(self, id: str, judge: str, place: str, *, shown: bool) -> Side:
        """A judge's verdict at a place; while hidden, its feedback without the score it tells, and that it failed."""
        run = self.runs[judge]
        name = judge if shown else None
        if id not in run.index:
            return Side(place, name, None)
        verdict = {key: value for key, value in run.loc[id].to_dict().items() if not is_missing(value)}
        if not shown:
            told = {"feedback": _TOLD_SCORE.sub(rf"\1{HIDDEN}", str(verdict.get("feedback", "")))}
            verdict = told | ({"failure": HIDDEN} if "failure" in verdict else {})  # its reason may name scores
        return Side(place, name, verdict)

    def select(self, filters: Mapping[str, Any], *, order: str, seed: int, voted: np.ndarray) -> np.ndarray:
        """The rows that pass all filters, in an order; see `vjudge.review.Review.filter` and `sort`.

        Args:
            filters: those that restrict.
            voted: whether each row has a vote, shape (n,).
        """
        judges = [filters["judge"]] if "judge" in filters else list(self.judges)
        scores, graded = self.scores[judges], self.graded[judges]
        gap = scores.rsub(self.texts["gold"], axis=0)
        tests = {
            "judge": lambda judge: graded[judge],
            "score": lambda score: (scores == score).any(axis=1),
            "gap": lambda bounds: ((gap >= bounds[0]) & (gap <= bounds[1])).any(axis=1),
            "criterion": lambda criterion: self.texts["criteria"].eq(criterion),
            "unparsed": lambda wanted: (scores.isna() & graded).any(axis=1) == wanted,
            "voted": lambda wanted: voted == wanted,
            "text": lambda text: self._search(str(text)),
        }
        keep = np.ones(len(self), dtype=bool)
        for name, value in filters.items():
            keep &= np.asarray(tests[name](value), dtype=bool)
        listed = np.arange(len(self))
        if order == "random":
            listed = np.random.default_rng(seed).permutation(len(self))
        elif order == "worst":
            distance = gap.abs().max(axis=1).fillna(-math.inf).to_numpy()  # what has no distance comes last
            listed = np.argsort(-distance, kind="stable")
        return listed[keep[listed]]

    def _search(self, text: str) -> pd.Series:
        if self._searched is None:
            columns = [self.texts[name].fillna("") for name in ("instruction", "response", "reference_answer")]
            for run in self.runs.values():
                said = run["feedback"].reindex(self.texts["id"]).fillna("").astype(str)
                columns.append(said.reset_index(drop=True))
            self._searched = pd.concat(columns, axis=1).agg("\0".join, axis=1).str.casefold()
        return self._searched.str.contains(text.casefold(), regex=False)


def _texts(items: Any, rows: Sequence[Any]) -> pd.DataFrame:
    """What filters look at, without the images."""
    names = ("id", "instruction", "response", "reference_answer", "criteria", "gold")
    if hasattr(items, "with_format"):
        frame = items.select_columns([name for name in names if name in items.column_names]).to_pandas()
    else:
        made = [row if isinstance(row, Item) else Item.from_row(row) for row in rows]
        frame = pd.DataFrame({name: [getattr(item, name) for item in made] for name in names if name != "criteria"})
        frame["criteria"] = [item.rubric.criteria if item.rubric else None for item in made]
    frame = frame.reindex(columns=list(names)).assign(id=lambda made: made["id"].astype(str))
    repeated = sorted(set(frame["id"][frame["id"].duplicated()]))
    if repeated:
        raise ValueError(f"id: {', '.join(map(repr, repeated[:10]))} stand twice in the collection; give each its own")
    return frame.assign(gold=pd.to_numeric(frame["gold"]))


def _runs_by_judge(
    runs: pd.DataFrame | Mapping[str, pd.DataFrame], places: Mapping[str, int]
) -> dict[str, pd.DataFrame]:
    """Each judge's verdicts by item id."""
    if isinstance(runs, pd.DataFrame):
        runs = {str(judge): run for judge, run in runs.groupby("judge", sort=False)}
    faults, made = [], {}
    for judge, run in runs.items():
        ids = run["id"].astype(str)
        unknown, repeated = sorted(set(ids) - set(places)), sorted(set(ids[ids.duplicated()]))
        if unknown:
            faults.append(f"{judge}: {len(unknown)} items are not in the collection, such as {unknown[0]!r}")
        if repeated:
            faults.append(f"{judge}: {len(repeated)} items have several verdicts, such as {repeated[0]!r}; choose one")
        made[str(judge)] = run.set_index(ids)
    if not made:
        faults.append("there is no run to review")
    if faults:
        raise ValueError("; ".join(faults))
    return made
