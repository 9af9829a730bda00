"""The runs that a probe compares: one of the original items, one for each perturbation; graded once, or given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd

from vjudge.data import canonical
from vjudge.metrics._bootstrap import Floats
from vjudge.metrics._tables import check_options, scores
from vjudge.probes.outcome import LEAST, MARGINS, NAN, NEEDS, NOTHING, Effect, Unmet, mean, share, slope, table
from vjudge.probes.perturbations import PERTURBATIONS, perturb
from vjudge.records import is_missing

ORIGINAL = "original"
SAMPLED = "sampled"  # several verdicts an item
COMPARED = "compared"  # a comparison of pairs, as `Judge.compare` returns it
PADDED = "compared_padded"  # a comparison of each response with itself, padded
GOLD = ("observed", "exact", "rated")


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
        least: the least share of its agreement with gold that a judge must lose with a part it must look at, 0-1.
        needs: parts ("image", "rubric", "query", "criterion") without which this collection can't be judged: a judge
            must lose agreement with each. For other parts, what is lost is described.
        confidence: of the intervals, in (0, 1); seed: of the perturbations.
        grading: further options of `Judge.grade`: mode, batch_size, temperature and so on.
    """

    def __init__(
        self, judge: Any, items: Any = None, *, out: Any = None, score: str = "score", gold: str = "observed",
        margins: Mapping[str, float] | None = None, least: float = LEAST, needs: Sequence[str] = NEEDS,
        confidence: float = 0.95, seed: int = 0, **grading: Any,
    ) -> None:  # fmt: skip
        check_options(confidence=confidence)
        if gold not in GOLD:
            raise ValueError(f"gold={gold!r}: use one of {', '.join(GOLD)}")
        if not 0 < least < 1:
            raise ValueError(f"least={least}: give a share of the agreement with gold, above 0 and below 1")
        if unknown := set(margins or ()) - set(MARGINS):
            raise ValueError(f"margins: no unit is called {', '.join(sorted(unknown))}; use {', '.join(MARGINS)}")
        if wrong := set(needs) - {kind.part for kind in PERTURBATIONS.values() if kind.must == "move"}:
            raise ValueError(f"needs: no perturbation takes {', '.join(sorted(wrong))} away")
        runs = {ORIGINAL: judge} if isinstance(judge, pd.DataFrame) else judge
        self.judge = None if isinstance(runs, Mapping) else judge
        if self.judge is not None and not hasattr(judge, "grade"):
            raise ValueError(f"judge is a {type(judge).__name__}; give a Judge, a run (DataFrame) or a mapping of runs")
        if self.judge is None and (out is not None or grading):
            raise ValueError("out and grading options are for a judge; runs are graded already")
        self.runs = {name: _checked(run, name) for name, run in runs.items()} if self.judge is None else {}
        names = (str(run["judge"].iloc[0]) for run in self.runs.values() if "judge" in run and len(run))
        self.name = next(names, "judge") if self.judge is None else str(getattr(judge, "name", type(judge).__name__))
        self.out = None if out is None else Path(out)
        self.score, self.gold, self.margins = score, gold, {**MARGINS, **(margins or {})}
        self.least, self.needs = least, tuple(needs)
        self.confidence, self.seed, self.grading = confidence, seed, grading
        self.mean, self.slope, self.share = (partial(of, confidence=confidence) for of in (mean, slope, share))
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
        if name not in (frame.columns if isinstance(frame, pd.DataFrame) else frame.column_names):
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
        """A run by name, graded now where it is not there, once and in a folder of that name.

        `items` are what is graded where the name does not say it. `Unmet` where runs were given without this one, or a
        judge without a wording for two responses is to compare.
        """
        if name in self.runs:
            return self.runs[name]
        paired = name in (COMPARED, PADDED)
        if self.judge is None and paired:
            raise Unmet(f"needs a comparison of pairs in both orders: pass it as the run {name!r}")
        if self.judge is None:
            how = f'grade probes.perturb(items, "{name}") and pass it' if name in PERTURBATIONS else "pass it"
            raise Unmet(f"needs the run {name!r}: {how} in the mapping of runs")
        if paired and getattr(self.judge, "pairs", None) is None:
            raise Unmet(f"needs a judge with a wording for two responses; {self.name!r} has none")
        if items is None:
            items = self.items if name == ORIGINAL else self.changed(name)
        grade = self.judge.compare if paired else self.judge.grade
        out = None if self.out is None else self.out / name
        self.runs[name] = _checked(grade(items, out=out, **{**self.grading, **options}), name)
        return self.runs[name]

    def available(self, probe: str) -> list[str]:
        """A probe's perturbations, of runs those that were given; the first where none was, so that `run` says why."""
        names = [name for name, kind in PERTURBATIONS.items() if kind.probe == probe]
        return names if self.judge is not None else [name for name in names if name in self.runs] or names[:1]

    def scored(self, name: str = ORIGINAL) -> pd.DataFrame:
        """A run's scores by item, see `scored`."""
        return scored(self.run(name), self.score)

    def row(
        self, case: str, effect: Effect = NOTHING, unit: str = "", must: str | None = None, *,
        margin: float | None = None, judge: str | None = None, missing: int = 0, moved: float = NAN, note: str = "",
        reading: str = "",
    ) -> dict[str, Any]:  # fmt: skip
        """A row of a probe's table, before the verdict; a description has neither p nor margin."""
        margin = self.margins.get(unit, NAN) if margin is None else margin
        line = {"judge": judge or self.name, "case": case, "must": must, **effect._asdict(), "unit": unit}
        line |= {"missing": missing, "moved": moved, "note": note, "reading": reading, "margin": margin}
        return line if must else line | {"p": NAN, "margin": NAN}

    def table(self, probe: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
        """A probe's rows with their verdicts, see `outcome.table`."""
        return table(({"probe": probe, **row} for row in rows), confidence=self.confidence, seed=self.seed)


def _checked(run: Any, name: str) -> pd.DataFrame:
    """A run with ids that stand once in a sample, or an error that says what is wrong with it."""
    columns = set(run.columns) if isinstance(run, pd.DataFrame) else set()
    if name in (COMPARED, PADDED):
        if not {"id", "verdict"} <= columns:
            raise ValueError(f"run {name!r}: give a DataFrame as Judge.compare returns it, with columns id and verdict")
        return run
    if "id" not in columns or not {"score", "expected_score"} & columns:
        raise ValueError(f"run {name!r}: give a DataFrame with the columns id and score, as Judge.grade returns it")
    twice = run.duplicated([column for column in ("id", "sample") if column in run])
    if twice.any():
        ids = ", ".join(map(repr, run.loc[twice, "id"].head(5)))
        raise ValueError(f"run {name!r}: {int(twice.sum())} ids stand twice ({ids}); give one judge's run of each item")
    return run


def verdicts(run: pd.DataFrame, score: str) -> pd.DataFrame:
    """A run's verdicts by id: score, gold (where missing, the mean of people's) and group."""
    if score not in run:
        raise Unmet(f"needs the column {score!r}; the run has {', '.join(run.columns[:12])}")
    gold = scores(run["gold"], name="gold") if "gold" in run else np.full(len(run), NAN)
    if "human_scores" in run:  # as `data.truth` has it
        gold = np.where(np.isnan(gold), ratings_of(run["human_scores"])[0], gold)
    cells = {"score": scores(run[score], name=score), "gold": gold, "group": groups_of(run)}
    return pd.DataFrame(cells, index=text_ids(run))


def scored(run: pd.DataFrame, score: str) -> pd.DataFrame:
    """As `verdicts`, a row an item: the score is the mean over its samples."""
    frame = verdicts(run, score)
    items = frame[~frame.index.duplicated()]
    return items if len(items) == len(frame) else items.assign(score=frame.groupby(level=0, sort=False)["score"].mean())


def contrast(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Items that both runs scored: before, after, delta, gold, group; `attrs["missing"]` counts the others of `new`."""
    if unknown := [id for id in new.index if id not in old.index]:
        raise ValueError(
            f"{len(unknown)} ids of the second run are not in the first ({', '.join(map(repr, unknown[:5]))}): "
            "compare runs of the same items"
        )
    pair = old.loc[new.index].rename(columns={"score": "before"}).assign(after=new["score"])
    pair["delta"] = pair["after"] - pair["before"]
    pair.attrs["missing"] = int(pair["delta"].isna().sum())
    return pair[pair["delta"].notna()]


def text_ids(run: Any) -> pd.Index:
    """Ids as text."""
    return pd.Index([str(id) for id in run["id"]], dtype=object)


def groups_of(run: pd.DataFrame) -> np.ndarray:
    """The unit of resampling of each row: its group, its id where it names none."""
    if "group" not in run:
        return text_ids(run).to_numpy()
    labels = run["group"].to_numpy(dtype=object)
    return np.where(pd.isna(labels), text_ids(run), labels)


def ratings_of(cells: pd.Series) -> tuple[Floats, Floats]:
    """Each item's mean of people's scores, NaN of none, and the variance of that mean, NaN of fewer than two."""
    means, errors = np.full(len(cells), NAN), np.full(len(cells), NAN)
    for place, cell in enumerate(cells):
        people = isinstance(cell, (list, tuple, np.ndarray))
        values = [float(value) for value in cell if not is_missing(value)] if people else []
        if values:
            means[place] = np.mean(values)
        if len(values) > 1:
            errors[place] = np.var(values, ddof=1) / len(values)
    return means, errors
