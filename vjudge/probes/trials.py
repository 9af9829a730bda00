"""The runs that a probe compares: one of the original items, one for each perturbation; graded once, or given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd

from vjudge.data import canonical
from vjudge.metrics._tables import check_options, scores
from vjudge.probes.catalogue import PERTURBATIONS, perturb
from vjudge.probes.estimates import NAN
from vjudge.probes.outcome import Unmet

ORIGINAL = "original"
COMPARED = "compared"  # a comparison of pairs, as `Judge.compare` returns it


class Trials:
    """Runs by name: "original", the names of `PERTURBATIONS`, "sampled" and "compared".

    Args:
        judge: anything with `grade(items, out=, progress=, ...)` as `vjudge.Judge` has it; or the runs themselves, as
            a mapping of name to frame, or one frame, which is the original run.
        items: what the judge grades; with runs, wanted only by probes that look at the texts.
        out: a folder in which each run is kept in a folder of its own name; the same call continues there.
        seed: of the perturbations.
        grading: further options of `Judge.grade`: mode, batch_size, temperature and so on.
    """

    def __init__(self, judge: Any, items: Any = None, *, out: Any = None, seed: int = 0, **grading: Any) -> None:
        self.judge = None if isinstance(judge, (Mapping, pd.DataFrame)) else judge
        if self.judge is not None and not hasattr(judge, "grade"):
            raise ValueError(f"judge is a {type(judge).__name__}; give a Judge, a run (DataFrame) or a mapping of runs")
        if self.judge is None and (out is not None or grading):
            raise ValueError("out and grading options are for a judge; runs are graded already")
        given = {ORIGINAL: judge} if isinstance(judge, pd.DataFrame) else judge if self.judge is None else {}
        self.runs: dict[str, pd.DataFrame] = {name: _checked(run, name) for name, run in given.items()}
        self.out = None if out is None else Path(out)
        self.seed, self.grading, self._given = seed, grading, items
        self._items: datasets.Dataset | None = None

    @classmethod
    def of(cls, judge: Any, items: Any = None, *, confidence: float, **options: Any) -> Trials:
        """The trials themselves where they are given already, so that several probes share runs.

        A probe's confidence is checked here, before anything is graded.
        """
        check_options(confidence=confidence)
        return judge if isinstance(judge, Trials) else cls(judge, items, **options)

    @property
    def name(self) -> str:
        """The judge's name, as its runs have it."""
        if self.judge is not None:
            return str(getattr(self.judge, "name", type(self.judge).__name__))
        for run in self.runs.values():
            if "judge" in run and len(run):
                return str(run["judge"].iloc[0])
        return "judge"

    @property
    def items(self) -> datasets.Dataset:
        """The collection, canonical."""
        if self._given is None:
            raise Unmet("needs the items: pass the collection that was graded as items=")
        if self._items is None:
            self._items = canonical(self._given.to_dict("records") if _framed(self._given) else self._given)
        return self._items

    def texts(self, *columns: str) -> pd.DataFrame:
        """Columns of the items, by id."""
        items = self._given if _framed(self._given) else self.items
        absent = [
            name for name in ("id", *columns) if name not in (items.columns if _framed(items) else items.features)
        ]
        if absent:
            raise Unmet(f"needs the items' column {', '.join(absent)}")
        index = pd.Index(_text_ids(items if _framed(items) else pd.DataFrame({"id": list(items["id"])})), dtype=object)
        held = {name: np.array(items[name] if _framed(items) else list(items[name]), dtype=object) for name in columns}
        return pd.DataFrame(held, index=index, dtype=object)

    def run(self, name: str = ORIGINAL) -> pd.DataFrame:
        """A run, graded now where it is not there.

        Raises:
            Unmet: runs were given and this one is not among them, or the perturbation applies to no item.
        """
        if name in self.runs:
            return self.runs[name]
        if self.judge is None:
            how = f'grade probes.perturb(items, "{name}") and pass it' if name in PERTURBATIONS else "pass it"
            raise Unmet(f"needs the run {name!r}: {how} in the mapping of runs")
        items = self.items
        if name != ORIGINAL:
            try:
                items = perturb(items, name, seed=self.seed)
            except ValueError as error:
                raise Unmet(f"{name}: {error}") from error
            if not len(items):
                raise Unmet(f"{name}: applies to none of the {len(self.items)} items")
        return self.grade(name, items)

    def perturbed(self, name: str, column: str) -> pd.Series:
        """A text column of the perturbed items, by id."""
        items = perturb(self.items, name, seed=self.seed)
        return pd.Series(list(items[column]), index=pd.Index(items["id"], name="id"), dtype=object)

    @property
    def has_items(self) -> bool:
        """Whether the collection is known."""
        return self._given is not None

    def grade(self, name: str, items: Any, **options: Any) -> pd.DataFrame:
        """Grade items under a name, once."""
        if name not in self.runs:
            if self.judge is None:
                raise Unmet(f"needs the run {name!r}, or a judge to make it")
            out = None if self.out is None else self.out / name
            self.runs[name] = _checked(self.judge.grade(items, out=out, **{**self.grading, **options}), name)
        return self.runs[name]

    def available(self, names: tuple[str, ...]) -> list[str]:
        """Those of the perturbations that can be run, or were given; all where none can, so that `run` says why."""
        return list(names) if self.judge is not None else [name for name in names if name in self.runs] or [names[0]]


def _framed(items: Any) -> bool:
    return isinstance(items, pd.DataFrame)


def _checked(run: Any, name: str) -> pd.DataFrame:
    """A run with ids that stand once in a sample, or an error that says what is wrong with it."""
    if name == COMPARED:
        if not _framed(run) or not {"id", "verdict"} <= set(run.columns):
            raise ValueError(
                f"run {name!r}: give a DataFrame as Judge.compare returns it, with the columns id and verdict"
            )
        return run
    if not _framed(run) or "id" not in run or not {"score", "expected_score"} & set(run.columns):
        raise ValueError(f"run {name!r}: give a DataFrame with the columns id and score, as Judge.grade returns it")
    keys = [column for column in ("id", "sample", "judge") if column in run]
    if run["id"].is_unique:
        return run
    twice = run.duplicated(keys)
    if twice.any():
        shown = ", ".join(map(repr, run.loc[twice, "id"].head(5)))
        raise ValueError(f"run {name!r}: {int(twice.sum())} ids stand twice ({shown}); give every item its own id")
    return run


@dataclass
class Scored:
    """A run as arrays, an entry an item: ids and groups as text; scores and gold, NaN where missing."""

    ids: np.ndarray
    score: np.ndarray
    gold: np.ndarray
    group: np.ndarray

    def __getitem__(self, rows: Any) -> Scored:
        return Scored(self.ids[rows], self.score[rows], self.gold[rows], self.group[rows])


def scored(run: pd.DataFrame, score: str) -> Scored:
    """A run's scores by item; the mean over samples where there are several. Missing stays NaN.

    Raises:
        Unmet: the run has no such column.
        TypeError: a score is no number; each is named.
    """
    if score not in run:
        raise Unmet(f"needs the column {score!r}; the run has {', '.join(run.columns[:12])}")
    ids = _text_ids(run)
    gold = scores(run["gold"], name="gold") if "gold" in run else np.full(len(run), NAN)
    made = Scored(ids, scores(run[score], name=score), gold, groups_of(run))
    if "sample" not in run and run["id"].is_unique:
        return made
    frame = pd.DataFrame({"id": ids, "score": made.score})
    first = ~frame["id"].duplicated().to_numpy()
    means = frame.groupby("id", sort=False)["score"].mean()
    return Scored(ids[first], means.to_numpy(dtype=float), gold[first], made.group[first])


def _text_ids(run: pd.DataFrame) -> np.ndarray:
    ids = run["id"].to_numpy(dtype=object)
    if pd.api.types.infer_dtype(ids, skipna=False) == "string":
        return ids
    return np.array([str(id) for id in ids], dtype=object)


def groups_of(run: pd.DataFrame) -> np.ndarray:
    """The unit of resampling of each row: its group, its id where it names none."""
    if "group" not in run:
        return _text_ids(run)
    labels = run["group"].to_numpy(dtype=object)
    gone = pd.isna(labels)
    return np.where(gone, _text_ids(run), labels) if gone.any() else labels
