"""The runs that a probe compares: one of the original items, one for each perturbation; graded once, or given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd

from vjudge.data import canonical
from vjudge.metrics._tables import groups_of, scores
from vjudge.probes.outcome import COLUMNS, MARGINS, Effect, Unmet, judged
from vjudge.probes.perturbations import PERTURBATIONS, perturb
from vjudge.records import NAN, is_missing

ORIGINAL = "original"
SAMPLED = "sampled"  # several verdicts an item
COMPARED = "compared"  # a comparison of pairs, as `Judge.compare` returns it
PADDED = "compared_padded"  # a comparison of each response with itself, padded
GOLD = {"observed": "description: gold's noise is not held equal", "exact": "gold held equal",
        "rated": "people's mean held equal, less its noise"}  # fmt: skip


class Trials:
    """Runs by name: "original", the names of `PERTURBATIONS`, "sampled", "compared" and "compared_padded".

    Every probe takes the arguments of this class, or one of its objects, so that several probes share runs.

    Args:
        judge: a judge; or the runs themselves, as a mapping of name to frame, or one frame, the original run.
        items: what the judge grades; with runs, needed only by probes that look at the texts.
        out: a folder in which each run is kept in a folder of its own name; the same call continues there.
        score: the run's column that is compared, "score" or "expected_score".
        gold: what gold is, where scores are read at equal gold. "observed": of unknown noise, so that such rows are
            descriptions. "exact": the truth itself, as in generated collections. "rated": the mean of `human_scores`,
            two or more an item. In each case an item without gold has the mean of its `human_scores`.
        margins: unit -> the largest effect that counts as none, beside `MARGINS`.
        least: the least share of its agreement with gold that a judge must lose with the image or the rubric, 0-1.
        seed: of the perturbations; grading: further options of `Judge.grade`, such as mode or batch_size.
    """

    def __init__(
        self, judge: Any, items: Any = None, *, out: Any = None, score: str = "score", gold: str = "observed",
        margins: Mapping[str, float] | None = None, least: float = 0.25, seed: int = 0, **grading: Any,
    ) -> None:  # fmt: skip
        runs = {ORIGINAL: judge} if isinstance(judge, pd.DataFrame) else judge
        self.judge = None if isinstance(runs, Mapping) else judge
        if gold not in GOLD:
            raise ValueError(f"gold={gold!r}: use one of {', '.join(GOLD)}")
        if not 0 < least < 1:
            raise ValueError(f"least={least}: give a share of the agreement with gold, above 0 and below 1")
        if unknown := set(margins or ()) - set(MARGINS):
            raise ValueError(f"margins: no unit is called {', '.join(sorted(unknown))}; use {', '.join(MARGINS)}")
        if self.judge is not None and not hasattr(judge, "grade"):
            raise ValueError(f"judge is a {type(judge).__name__}; give a Judge, a run (DataFrame) or a mapping of runs")
        if self.judge is None and (out is not None or grading):
            raise ValueError("out and grading options are for a judge; runs are graded already")
        self.runs = {name: _checked(run, name) for name, run in runs.items()} if self.judge is None else {}
        names = [str(name) for run in self.runs.values() if "judge" in run for name in run["judge"].head(1)]
        self.name = " to ".join(dict.fromkeys(names)) or str(getattr(self.judge, "name", "judge"))
        self.out = None if out is None else Path(out)
        self.score, self.gold, self.margins = score, gold, {**MARGINS, **(margins or {})}
        self.least, self.seed, self.grading = least, seed, grading
        self._source = items

    @classmethod
    def of(cls, judge: Any, items: Any = None, **options: Any) -> Trials:
        """The trials themselves where these are passed on, else new ones."""
        if not isinstance(judge, Trials):
            return cls(judge, items, **options)
        if options or items is not None:
            raise ValueError("items and options belong to the Trials: give them where these are set up")
        return judge

    @cached_property
    def items(self) -> datasets.Dataset:
        """The collection, canonical."""
        if self._source is None:
            raise Unmet("needs the items: pass the collection that was graded as items=")
        return canonical(self._source)

    def column(self, name: str) -> pd.Series:
        """A column of the original run or, where it has none, of the items, by id; `Unmet` where neither has it."""
        frame: Any = self.run()
        if name not in frame:
            frame = self._source if isinstance(self._source, pd.DataFrame) else self.items
        if name not in getattr(frame, "column_names", frame):
            raise Unmet(f"needs the items' column {name}")
        values = pd.Series([*frame[name]], index=text_ids(frame), dtype=object)
        return values[~values.index.duplicated()]

    def changed(self, name: str) -> datasets.Dataset:
        """The collection after a perturbation; `Unmet` where this applies to no item."""
        items = self.items
        try:
            changed = perturb(items, name, seed=self.seed)
        except ValueError as error:
            raise Unmet(f"{name}: {error}") from error
        if not len(changed):
            raise Unmet(f"{name}: applies to none of the {len(items)} items")
        return changed

    def run(self, name: str = ORIGINAL, items: Any = None, **options: Any) -> pd.DataFrame:
        """A run by name; where it is not there, graded now, in a folder of that name: of `items` if its name says none.

        `Unmet` where runs were given without this one, or a judge has no wording for two responses.
        """
        if name in self.runs:
            return self.runs[name]
        paired = name in (COMPARED, PADDED)
        if self.judge is None:
            how = f'grade probes.perturb(items, "{name}")' if name in PERTURBATIONS else "grade the items"
            how = "compare pairs in both orders" if paired else how
            raise Unmet(f"needs the run {name!r}: {how} and pass it in the mapping of runs")
        if paired and getattr(self.judge, "pairs", None) is None:
            raise Unmet(f"needs a judge with a wording for two responses; {self.name!r} has none")
        if items is None:
            items = self.items if name == ORIGINAL else self.changed(name)
        grade = self.judge.compare if paired else self.judge.grade
        out = None if self.out is None else self.out / name
        self.runs[name] = _checked(grade(items, out=out, **{**self.grading, **options}), name)
        return self.runs[name]

    def scored(self, name: str = ORIGINAL) -> pd.DataFrame:
        """A run's scores by item, see `scored`."""
        return scored(self.run(name), self.score)

    def contrast(self, name: str) -> pd.DataFrame:
        """Items that the original run and another scored: before, after, delta, gold, group.

        `attrs["missing"]` counts the others of the second run, which may lack items of the first.
        """
        old, new = self.scored(), self.scored(name)
        if unknown := [id for id in new.index if id not in old.index]:
            text = f"{len(unknown)} ids of the second run are not in the first, such as {unknown[0]!r}"
            raise ValueError(f"{text}: compare runs of the same items")
        pair = old.loc[new.index].rename(columns={"score": "before"}).assign(after=new["score"])
        pair["delta"] = pair["after"] - pair["before"]
        pair.attrs["missing"] = int(pair["delta"].isna().sum())
        return pair[pair["delta"].notna()]

    def row(
        self, case: str, effect: Effect | None = None, unit: str = "", must: str | None = None, **cells: Any
    ) -> dict[str, Any]:
        """A row of a probe's table, before the verdict; a description has neither p nor margin."""
        line = {"judge": self.name, "case": case, "must": must, **(effect or Effect())._asdict(), "unit": unit}
        line |= {"margin": self.margins.get(unit, NAN), "missing": 0, "moved": NAN, "note": "", **cells}
        return line if must else line | {"p": NAN, "margin": NAN}

    def table(self, probe: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
        """A probe's rows with their verdicts, Holm's method over all.

        `attrs` has n_tests, method, and against: (probe, case) of each verdict against what must be.
        """
        lines = [{"probe": probe, **row} for row in rows]
        cells = {name: pd.Series([line.get(name) for line in lines], dtype=kind) for name, kind in COLUMNS.items()}
        frame = judged(pd.DataFrame(cells))
        wrong = frame.loc[frame["reading"].astype(str).str.contains("though it must"), ["probe", "case"]]
        frame.attrs = {
            "n_tests": int(frame["p"].notna().sum()),
            "against": [*wrong.itertuples(index=False, name=None)],
            "method": f"95% intervals by a jackknife over groups with Student's t; seed {self.seed}",
        }
        return frame


def _checked(run: Any, name: str) -> pd.DataFrame:
    """A run with ids that stand once in a sample, or an error that says what is wrong with it."""
    paired = name in (COMPARED, PADDED)
    maker, verdicts = ("compare", ("verdict", "verdict_ab")) if paired else ("grade", ("score", "expected_score"))
    if not isinstance(run, pd.DataFrame) or "id" not in run or not {*verdicts} & {*run}:
        text = f"run {name!r}: give a DataFrame as Judge.{maker} returns it"
        raise ValueError(f"{text}, with the columns id and {verdicts[0]}")
    twice = run.duplicated([column for column in ("id", "sample") if column in run])
    if twice.any() and not paired:
        ids = ", ".join(map(repr, run.loc[twice, "id"].head(5)))
        raise ValueError(f"run {name!r}: {int(twice.sum())} ids stand twice ({ids}); give one judge's run of each item")
    return run


def verdicts(run: pd.DataFrame, score: str) -> pd.DataFrame:
    """A run's verdicts by id: score, gold (where missing, the mean of people's) and group."""
    if score not in run:
        raise Unmet(f"needs the column {score!r}; the run has {', '.join(run.columns[:12])}")
    gold = scores(run["gold"], name="gold") if "gold" in run else np.full(len(run), NAN)
    if "human_scores" in run:  # as `data.truth` has it
        gold = np.where(np.isnan(gold), ratings(run["human_scores"]).mean(axis=1), gold)
    cells = {"score": scores(run[score], name=score), "gold": gold, "group": groups_of(run)}
    return pd.DataFrame(cells, index=text_ids(run))


def scored(run: pd.DataFrame, score: str) -> pd.DataFrame:
    """As `verdicts`, a row an item: the score is the mean over its samples."""
    frame = verdicts(run, score)
    items = frame[~frame.index.duplicated()]
    return items if len(items) == len(frame) else items.assign(score=frame.groupby(level=0, sort=False)["score"].mean())


def text_ids(run: Any) -> pd.Index:
    """Ids as text."""
    return pd.Index([str(id) for id in run["id"]], dtype=object)


def ratings(cells: pd.Series) -> pd.DataFrame:
    """People's scores of each item, a column a place in its list; NaN where nobody scored."""
    lists = [cell if isinstance(cell, (list, tuple, np.ndarray)) else () for cell in cells]
    rows = [[NAN if is_missing(value) else float(value) for value in cell] for cell in lists]
    return pd.DataFrame(rows, index=cells.index, dtype=float)
