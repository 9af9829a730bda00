"""The runs that a probe compares, graded once or given, and the table that it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd

from vjudge.asking import PairsNotSupportedError
from vjudge.data import CollectionError, canonical, rows_of, truth
from vjudge.judge import JudgeLike
from vjudge.metrics.columns import closed_in, groups_of, scores
from vjudge.metrics.formatting import format_number
from vjudge.probes.effects import Effect, Must, bias_scores, judged
from vjudge.probes.perturbations import perturb
from vjudge.records import NAN, row_levels

ORIGINAL = "original"
COMPARED = "compared"  # a comparison of pairs, as `Judge.compare` returns it
GOLD = {
    "observed": "description: gold's noise is not held equal",
    "exact": "gold held equal",
    "rated": "people's mean held equal, less its noise",
}
AGREEMENT = "score per gold point"
POINTS = "score points"
DOUBLING = "score per doubling"
WINS = "share less one half"
LEAST = 0.25  # of its agreement with gold, what a judge must lose with the image or the rubric
MARGINS = {POINTS: 0.2, DOUBLING: 0.2, AGREEMENT: 0.1, WINS: 0.05}
"""Unit -> the largest effect that counts as none, for scales of about five levels: a fifth of a
level, a tenth of the slope on gold, and 45 to 55 % for one of two responses."""
PUBLISHED = (
    "deviation deviation_low deviation_high conformity conformity_low conformity_high"
).split()
COUNTS = ["n", "groups", "missing"]
NUMBERS = ["effect", "low", "high", "p", "p_holm", "margin", *PUBLISHED]
COLUMNS = (
    "judge probe case perturbation must effect low high unit p p_holm margin verdict passes n"
    " groups missing finding reading note"
).split() + PUBLISHED
"""A probe's columns.

- perturbation: a key of `PERTURBATIONS`, None where nothing was changed
- must: "move" where a sound judge's score must change, "stay" where it must not, None for a
  description
- low, high: the 95 % interval of the effect; n, groups: rows and independent groups used
- missing: rows left out
- p: two-sided, of no effect where the score must stay, of an effect of `margin` where it must move;
  p_holm: corrected for all tests of the table
- margin: the largest effect that counts as none where the score must stay, the least loss where it
  must move
- verdict: "moves", "stays" or "can't say" of a test; else "described", "undefined" or "not run"
- passes: whether the verdict is what must be, NA where none was reached; reading: the same in words
- finding: the effect as a sentence with its direction and size
- deviation, conformity: of a perturbation, as of `bias_scores`; NaN where no common scale is known
"""


class MissingInputError(ValueError):
    """A probe lacks something; the message says what it needs and how to give it."""


class ProbeRuns:
    """Runs by name, shared by several probes.

    Names are "original", those of `PERTURBATIONS`, and "compared".
    Every probe takes the arguments of this class, or one of its objects.

    Args:
        judge: a judge; or the runs themselves, as a mapping of name to frame, or one frame, the
            original run.
        items: what the judge grades; with runs, needed only by probes that look at the texts.
        out: a folder in which each run is kept in a folder of its own name; the same call
            continues there.
        score: the run's column that is compared, "score" or "expected_score".
        gold: what gold is, where scores are read at equal gold. "observed": of unknown noise, so
            that such rows are descriptions. "exact": the truth itself, as in generated
            collections. "rated": the mean of `human_scores`, two or more an item. In each case an
            item without gold has the mean of its `human_scores`.
        seed: of the perturbations.
        grading: further options of `Judge.grade`, such as mode or batch_size.

    ValueError: an unsound option, a run without ids or scores.

    >>> import pandas as pd
    >>> from vjudge.probes import ProbeRuns
    >>> run = pd.DataFrame({"id": ["a", "b"], "score": [1, 2]})
    >>> runs = ProbeRuns({"original": run, "response_bold": run.assign(score=[2, 2])})
    >>> runs.contrast("response_bold")["delta"].tolist()
    [1.0, 0.0]
    """

    def __init__(
        self,
        judge: Any,
        items: Any = None,
        *,
        out: str | Path | None = None,
        score: str = "score",
        gold: str = "observed",
        seed: int = 0,
        **grading: Any,
    ) -> None:
        if gold not in GOLD:
            raise ValueError(f"gold={gold!r}: use one of {', '.join(GOLD)}")
        self.judge: Any = None
        self.name = "judge"
        self.runs: dict[str, pd.DataFrame] = {}
        if isinstance(judge, JudgeLike):
            self.judge = judge
            self.name = str(judge.name)
        elif isinstance(judge, pd.DataFrame | Mapping):
            if out is not None or grading:
                raise ValueError("out and grading options are for a judge; runs are graded already")
            given = {ORIGINAL: judge} if isinstance(judge, pd.DataFrame) else judge
            for name, run in given.items():
                self.runs[name] = _checked(run, name)
                if len(run) and "judge" in run:
                    self.name = str(run["judge"].iloc[0])
        else:
            what = "give a Judge, a run (DataFrame) or a mapping of runs"
            raise ValueError(f"judge is a {type(judge).__name__}; {what}")
        self.out = None if out is None else Path(out)
        self.score = score
        self.gold = gold
        self.seed = seed
        self.grading = grading
        self._source = items

    @classmethod
    def of(cls, judge: Any, items: Any = None, **options: Any) -> ProbeRuns:
        """The object itself where one is passed on, else a new one."""
        if not isinstance(judge, ProbeRuns):
            return cls(judge, items, **options)
        if options or items is not None:
            what = "items and options belong to the ProbeRuns"
            raise ValueError(f"{what}: give them where it is made")
        return judge

    @cached_property
    def items(self) -> datasets.Dataset:
        """The collection, canonical."""
        if self._source is None:
            what = "pass the collection that was graded as items="
            raise MissingInputError(f"needs the items: {what}")
        return canonical(self._source)

    @cached_property
    def scale(self) -> Any:
        """The lowest and the highest score, where all rows, or all rubrics, say the same."""
        ends: set[Any] = set()
        if {"lowest", "highest"} <= set(self.run()):
            scales = self.run()[["lowest", "highest"]].dropna()
            ends = set(scales.itertuples(index=False, name=None))
        elif self._source is not None:
            for row in rows_of(self.items.remove_columns("images")):
                levels = row_levels(row)
                if levels:
                    ends.add((min(levels), max(levels)))
        return ends.pop() if len(ends) == 1 else None

    def column(self, name: str) -> pd.Series:
        """A column of the original run, or of the items, by id."""
        frame: Any = self.run()
        if name not in frame:
            frame = self.items
            if name not in frame.column_names:
                raise MissingInputError(f"needs the items' column {name}")
        values = pd.Series(list(frame[name]), index=text_ids(frame), dtype=object)
        return values[~values.index.duplicated()]

    def changed(self, name: str, items: Any = None) -> datasets.Dataset:
        """The items after a perturbation; MissingInputError where it applies to none."""
        try:
            return perturb(self.items if items is None else items, name, seed=self.seed)
        except ValueError as error:
            raise MissingInputError(f"{name}: {error}") from error

    def run(
        self,
        name: str = ORIGINAL,
        items: Any = None,
        **options: Any,
    ) -> pd.DataFrame:
        """A run by name; where it is not there, graded now in a folder of that name.

        `items` are what the name says unless given. MissingInputError: runs were given without
        this one, or the judge has no wording for two responses.
        """
        if name in self.runs:
            return self.runs[name]
        paired = name == COMPARED
        if self.judge is None:
            how = f"grade probes.perturb(items, {name!r})"
            if paired:
                how = "compare pairs in both orders"
            how = f"{how} and pass it in the mapping of runs"
            raise MissingInputError(f"needs the run {name!r}: {how}")
        if items is None:
            items = self.items if name == ORIGINAL else self.changed(name)
        grade = self.judge.compare if paired else self.judge.grade
        out = None if self.out is None else self.out / name
        options = {**self.grading, **options}
        try:
            self.runs[name] = grade(items, out=out, **options)
        except PairsNotSupportedError as error:
            what = f"needs a judge with a wording for two responses; {self.name!r} has none"
            raise MissingInputError(what) from error
        return self.runs[name]

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The original run's scores by item, see `scored`."""
        return scored(self.run(), self.score)

    def contrast(self, name: str) -> pd.DataFrame:
        """Items that the original run and another scored: before, after, delta, gold, group.

        `attrs["missing"]` counts the others of the second run, which may lack items of the first.
        """
        old = self.scores
        new = _mean_scores(self.run(name), self.score)
        unknown = new.index.difference(old.index, sort=False)
        if len(unknown):
            what = f"{len(unknown)} ids of the second run are not in the first"
            raise ValueError(f"{what}, such as {unknown[0]!r}: compare runs of the same items")
        pair = old.loc[new.index].rename(columns={"score": "before"})
        pair = pair.assign(after=new, delta=new - pair["before"])
        pair.attrs["missing"] = int(pair["delta"].isna().sum())
        return pair.dropna(subset="delta")

    def published(self, pair: pd.DataFrame) -> dict[str, float]:
        """Bias deviation and conformity of a contrast, with intervals; empty without a scale."""
        if self.scale is None:
            return {}
        lowest, highest = self.scale
        with suppress(ValueError):  # scores beyond the scale, such as a value head's
            cells = (pair["before"], pair["after"])
            table = bias_scores(*cells, lowest=lowest, highest=highest, groups=pair["group"])
            numbers = table[["estimate", "low", "high"]].to_numpy().ravel()
            return dict(zip(PUBLISHED, numbers, strict=True))
        return {}

    def row(
        self,
        case: str,
        effect: Effect | None = None,
        unit: str = "",
        must: Must | None = None,
        says: str = "",
        **cells: Any,
    ) -> dict[str, Any]:
        """A row of a probe's table, before the verdict; a description has neither p nor margin.

        `says` is the finding's sentence with the places {raises}, {towards}, {above} and {size}.
        """
        effect = effect or Effect()
        row = {
            "judge": self.name,
            "case": case,
            "perturbation": None,
            "must": must,
            "unit": unit,
            "margin": MARGINS.get(unit, NAN),
            "missing": 0,
            "note": "",
            "finding": _finding(says, effect.effect),
            **effect._asdict(),
            **cells,
        }
        if must is None:
            row |= {"p": NAN, "margin": NAN}
        return row

    def table(self, probe: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
        """A probe's rows with their verdicts, Holm's method over all.

        `attrs` has the method.
        """
        lines = [{"probe": probe, **row} for row in rows]
        frame = pd.DataFrame(lines, columns=COLUMNS, dtype=object)
        frame = frame.astype(dict.fromkeys(NUMBERS, float) | dict.fromkeys(COUNTS, int))
        frame = judged(frame)
        method = "95% intervals by a jackknife over groups with Student's t"
        account = [f"{method}; seed {self.seed}"]
        if self.runs:
            account.append(closed_in(pd.concat(self.runs.values())))
        frame.attrs = {"method": "; ".join(filter(None, account))}
        return frame


def _finding(says: str, value: float) -> str:
    """A finding's sentence with its direction and size."""
    if np.isnan(value):
        return ""
    words = {"raises": "raises", "towards": "towards", "above": "above"}
    if value < 0:
        words = {"raises": "lowers", "towards": "away from", "above": "below"}
    words["size"] = format_number(abs(value), zero=False)
    if abs(value) < 0.005:
        words |= {"raises": "changes", "size": "less than .005"}
    return says.format(**words)


def _checked(run: Any, name: str) -> pd.DataFrame:
    """A run with ids that stand once in a sample, or an error that says what is wrong with it."""
    if not isinstance(run, pd.DataFrame) or "id" not in run:
        what = "give a DataFrame as Judge.grade or Judge.compare returns it, with ids"
        raise ValueError(f"run {name!r}: {what}")
    twice = run.duplicated(run.columns.intersection(["id", "sample"]).tolist())
    if twice.any() and name != COMPARED:
        ids = ", ".join(map(repr, run.loc[twice, "id"].head(5)))
        what = f"run {name!r}: {int(twice.sum())} ids stand twice ({ids})"
        raise ValueError(f"{what}; give one judge's run of each item")
    return run


def scored(run: pd.DataFrame, score: str) -> pd.DataFrame:
    """A run's items by id: score (the mean over samples), gold (else people's mean) and group.

    Also, where the run says it, whether a verdict was closed.
    """
    cells = {"score": _mean_scores(run, score)}
    if "closed" in run:
        cells["closed"] = run["closed"].groupby(text_ids(run), sort=False).any()
    first = run[~text_ids(run).duplicated()]
    cells["gold"] = NAN
    with suppress(CollectionError):  # no row has one
        cells["gold"] = truth(first.filter(["id", "gold", "human_scores"])).to_numpy()
    return pd.DataFrame(cells | {"group": groups_of(first)})


def _mean_scores(run: pd.DataFrame, score: str) -> pd.Series:
    """Each item's score, the mean over samples."""
    if score not in run:
        have = ", ".join(run.columns[:12])
        raise MissingInputError(f"needs the column {score!r}; the run has {have}")
    column = pd.Series(scores(run[score], name=score), text_ids(run))
    return column.groupby(level=0, sort=False).mean()


def text_ids(run: Any) -> pd.Index:
    """Ids as text."""
    return pd.Index(list(map(str, run["id"])), dtype=object)
