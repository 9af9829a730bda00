"""The runs that a probe compares, graded once or given, and the table that it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd

from vjudge.data import canonical, rows_of
from vjudge.metrics.agreement import read_ratings
from vjudge.metrics.tables import format_number, groups_of, scores
from vjudge.probes.effects import Effect, bias_scores, judged
from vjudge.probes.perturbations import PERTURBATIONS, perturb
from vjudge.records import NAN, row_levels

ORIGINAL = "original"
SAMPLED = "sampled"  # several verdicts an item
COMPARED = "compared"  # a comparison of pairs, as `Judge.compare` returns it
PADDED = "compared_padded"  # a comparison of each response with itself, padded
GOLD = {
    "observed": "description: gold's noise is not held equal",
    "exact": "gold held equal",
    "rated": "people's mean held equal, less its noise",
}
AGREEMENT = "score per gold point"
POINTS = "score points"
WINS = "share less one half"
MOVED = 0.5  # score points: what counts as a move on a scale of whole scores
MARGINS = {POINTS: 0.2, "score per doubling": 0.2, AGREEMENT: 0.1, WINS: 0.05}
"""Unit -> the largest effect that counts as none, for scales of about five levels: a fifth of a
level, a tenth of the slope on gold, and 45 to 55 % for one of two responses."""
TEXTS = ["judge", "probe", "case", "must", "unit", "verdict", "finding", "reading", "note"]
COUNTS = ["n", "groups", "missing"]
PUBLISHED = ["deviation", "deviation_low", "deviation_high"]
PUBLISHED += ["conformity", "conformity_low", "conformity_high"]
COLUMNS = "judge probe case must effect low high unit p p_holm margin verdict n groups".split()
COLUMNS += ["missing", "moved", "finding", "reading", "note", *PUBLISHED]
"""A probe's columns.

- must: "move" where a sound judge's score must change, "stay" where it must not, None for a
  description
- low, high: the 95 % interval of the effect; n, groups: rows and independent groups used
- missing: rows left out; moved: share of items whose score changed by half a level or more
- p: two-sided, of no effect where the score must stay, of an effect of `margin` where it must move;
  p_holm: corrected for all tests of the table
- margin: the largest effect that counts as none where the score must stay, the least loss where it
  must move
- verdict: "moves", "stays" or "can't say"; reading: the verdict against what must be
- finding: the effect as a sentence with its direction and size
- deviation, conformity: of a perturbation, as of `bias_scores`; NaN where no scale is known
"""


class MissingInputError(ValueError):
    """A probe lacks something; the message says what it needs and how to give it."""


class ProbeRuns:
    """Runs by name, shared by several probes.

    Names are "original", those of `PERTURBATIONS`, "sampled", "compared" and "compared_padded".
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
        margins: unit -> the largest effect that counts as none, beside `MARGINS`.
        least: the least share of its agreement with gold that a judge must lose with the image or
            the rubric, above 0 and below 1.
        seed: of the perturbations.
        grading: further options of `Judge.grade`, such as mode or batch_size.

    ValueError: an unsound option, a run without ids or scores.
    """

    def __init__(
        self,
        judge: Any,
        items: Any = None,
        *,
        out: str | Path | None = None,
        score: str = "score",
        gold: str = "observed",
        margins: Mapping[str, float] | None = None,
        least: float = 0.25,
        seed: int = 0,
        **grading: Any,
    ) -> None:
        if gold not in GOLD:
            raise ValueError(f"gold={gold!r}: use one of {', '.join(GOLD)}")
        if not 0 < least < 1:
            what = "give a share of the agreement with gold, above 0 and below 1"
            raise ValueError(f"least={least}: {what}")
        for unit in margins or ():
            if unit not in MARGINS:
                raise ValueError(f"margins: no unit is called {unit}; use {', '.join(MARGINS)}")
        self.judge: Any = None
        self.runs: dict[str, pd.DataFrame] = {}
        if isinstance(judge, pd.DataFrame | Mapping):
            if out is not None or grading:
                raise ValueError("out and grading options are for a judge; runs are graded already")
            runs = {ORIGINAL: judge} if isinstance(judge, pd.DataFrame) else judge
            self.runs = {name: _checked(run, name) for name, run in runs.items()}
        elif hasattr(judge, "grade"):
            self.judge = judge
        else:
            what = "give a Judge, a run (DataFrame) or a mapping of runs"
            raise ValueError(f"judge is a {type(judge).__name__}; {what}")
        self.name = self._name()
        self.out = None if out is None else Path(out)
        self.score = score
        self.gold = gold
        self.margins = MARGINS | dict(margins or {})
        self.least = least
        self.seed = seed
        self.grading = grading
        self._source = items

    @classmethod
    def of(cls, judge: Any, items: Any = None, **options: Any) -> ProbeRuns:
        """The object itself where one is passed on, else a new one."""
        if not isinstance(judge, ProbeRuns):
            return cls(judge, items, **options)
        if options or items is not None:
            raise ValueError(
                "items and options belong to the ProbeRuns: give them where it is made"
            )
        return judge

    def _name(self) -> str:
        """The judge's name; where a second run is another's, both."""
        names = []
        for run in self.runs.values():
            if "judge" in run:
                names += [str(name) for name in run["judge"].head(1)]
        return " to ".join(dict.fromkeys(names)) or str(getattr(self.judge, "name", "judge"))

    @cached_property
    def items(self) -> datasets.Dataset:
        """The collection, canonical."""
        if self._source is None:
            what = "pass the collection that was graded as items="
            raise MissingInputError(f"needs the items: {what}")
        return canonical(self._source)

    @cached_property
    def scale(self) -> pd.DataFrame | None:
        """Each item's lowest and highest score, by id; None where neither run nor items say."""
        ends = self.run().attrs.get("scale")
        if ends is not None:
            index = self.scored().index
            return pd.DataFrame({"lowest": ends[0], "highest": ends[1]}, index=index)
        if self._source is None:
            return None
        rows = {}
        for row in rows_of(self.items.remove_columns("images")):
            levels = row_levels(row)
            if levels:
                rows[str(row["id"])] = [min(levels), max(levels)]
        return pd.DataFrame.from_dict(rows, orient="index", columns=["lowest", "highest"])

    def column(self, name: str) -> pd.Series:
        """A column of the original run, or of the items, by id."""
        frame: Any = self.run()
        if name not in frame:
            frame = self._source if isinstance(self._source, pd.DataFrame) else self.items
        if name not in getattr(frame, "column_names", frame):
            raise MissingInputError(f"needs the items' column {name}")
        values = pd.Series([*frame[name]], index=text_ids(frame), dtype=object)
        return values[~values.index.duplicated()]

    def changed(self, name: str, items: Any = None) -> datasets.Dataset:
        """The items after a perturbation; MissingInputError where it applies to none."""
        items = self.items if items is None else items
        try:
            changed = perturb(items, name, seed=self.seed)
        except ValueError as error:
            raise MissingInputError(f"{name}: {error}") from error
        if not len(changed):
            raise MissingInputError(f"{name}: applies to none of the {len(items)} items")
        return changed

    def run(self, name: str = ORIGINAL, items: Any = None, **options: Any) -> pd.DataFrame:
        """A run by name; where it is not there, graded now in a folder of that name.

        `items` are what the name says unless given. MissingInputError: runs were given without
        this one, or the judge has no wording for two responses.
        """
        if name in self.runs:
            return self.runs[name]
        paired = name in (COMPARED, PADDED)
        if self.judge is None:
            how = "grade the items"
            if name in PERTURBATIONS:
                how = f'grade probes.perturb(items, "{name}")'
            elif paired:
                how = "compare pairs in both orders"
            what = f"needs the run {name!r}: {how} and pass it in the mapping of runs"
            raise MissingInputError(what)
        if paired and getattr(self.judge, "pairs", None) is None:
            what = f"needs a judge with a wording for two responses; {self.name!r} has none"
            raise MissingInputError(what)
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
        old = self.scored()
        new = self.scored(name)
        unknown = new.index.difference(old.index, sort=False)
        if len(unknown):
            what = f"{len(unknown)} ids of the second run are not in the first"
            raise ValueError(f"{what}, such as {unknown[0]!r}: compare runs of the same items")
        pair = old.loc[new.index].rename(columns={"score": "before"}).assign(after=new["score"])
        pair["delta"] = pair["after"] - pair["before"]
        pair.attrs["missing"] = int(pair["delta"].isna().sum())
        return pair[pair["delta"].notna()]

    def published(self, pair: pd.DataFrame) -> dict[str, float]:
        """Bias deviation and conformity of a contrast, with intervals; empty without a scale."""
        if self.scale is None:
            return {}
        ends = self.scale.reindex(pair.index)
        try:
            table = bias_scores(pair["before"], pair["after"], **ends, groups=pair["group"])
        except ValueError:  # scores beyond the scale, such as a value head's
            return {}
        return dict(zip(PUBLISHED, table.iloc[:, :3].to_numpy().ravel(), strict=True))

    def row(
        self,
        case: str,
        effect: Effect | None = None,
        unit: str = "",
        must: str | None = None,
        says: str = "",
        **cells: Any,
    ) -> dict[str, Any]:
        """A row of a probe's table, before the verdict; a description has neither p nor margin.

        `says` is the finding's sentence with the places {raises}, {towards} and {size}.
        """
        effect = effect or Effect()
        row = {"judge": self.name, "case": case, "must": must, "unit": unit, **effect._asdict()}
        row |= {"margin": self.margins.get(unit, NAN), "missing": 0, "moved": NAN, "note": ""}
        row |= {"finding": _finding(says, effect.effect), **cells}
        if must is None:
            row |= {"p": NAN, "margin": NAN}
        return row

    def table(self, probe: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
        """A probe's rows with their verdicts, Holm's method over all.

        `attrs` has n_tests, method, and against: (probe, case) of each verdict against what must
        be.
        """
        lines = [{"probe": probe, **row} for row in rows]
        frame = pd.DataFrame(lines, columns=COLUMNS, dtype=object)
        numbers = frame.columns.difference(TEXTS)
        frame = frame.astype(dict.fromkeys(numbers, float)).astype(dict.fromkeys(COUNTS, int))
        frame = judged(frame)
        against = frame["reading"].astype(str).str.contains("though it must")
        wrong = frame.loc[against, ["probe", "case"]]
        method = "95% intervals by a jackknife over groups with Student's t"
        frame.attrs = {
            "n_tests": int(frame["p"].notna().sum()),
            "against": [*wrong.itertuples(index=False, name=None)],
            "method": f"{method}; seed {self.seed}",
        }
        return frame


def _finding(says: str, value: float) -> str:
    """A finding's sentence with its direction and size."""
    if np.isnan(value):
        return ""
    words = {"{raises}": "raises", "{towards}": "towards", "{above}": "above"}
    if value < 0:
        words = {"{raises}": "lowers", "{towards}": "away from", "{above}": "below"}
    words["{size}"] = format_number(abs(value), zero=False)
    if abs(value) < 0.005:
        words["{raises}"] = "moves"
        words["{size}"] = "less than .005"
    for place, word in words.items():
        says = says.replace(place, word)
    return says


def _checked(run: Any, name: str) -> pd.DataFrame:
    """A run with ids that stand once in a sample, or an error that says what is wrong with it."""
    paired = name in (COMPARED, PADDED)
    if not isinstance(run, pd.DataFrame) or "id" not in run:
        maker = "compare" if paired else "grade"
        raise ValueError(f"run {name!r}: give a DataFrame as Judge.{maker} returns it, with ids")
    twice = run.duplicated([column for column in ("id", "sample") if column in run])
    if twice.any() and not paired:
        ids = ", ".join(map(repr, run.loc[twice, "id"].head(5)))
        what = f"run {name!r}: {int(twice.sum())} ids stand twice ({ids})"
        raise ValueError(f"{what}; give one judge's run of each item")
    return run


def verdicts(run: pd.DataFrame, score: str) -> pd.DataFrame:
    """A run's verdicts by id: score, gold (where missing, the mean of people's) and group."""
    if score not in run:
        have = ", ".join(run.columns[:12])
        raise MissingInputError(f"needs the column {score!r}; the run has {have}")
    gold = np.full(len(run), NAN)
    if "gold" in run:
        gold = scores(run["gold"], name="gold")
    if "human_scores" in run and np.isnan(gold).any():  # as `data.truth` has it
        gold = np.where(np.isnan(gold), ratings(run["human_scores"]).mean(axis=1), gold)
    cells = {"score": scores(run[score], name=score), "gold": gold, "group": groups_of(run)}
    return pd.DataFrame(cells, index=text_ids(run))


def scored(run: pd.DataFrame, score: str) -> pd.DataFrame:
    """As `verdicts`, a row an item: the score is the mean over its samples."""
    frame = verdicts(run, score)
    items = frame[~frame.index.duplicated()]
    if len(items) == len(frame):
        return items
    return items.assign(score=frame.groupby(level=0, sort=False)["score"].mean())


def text_ids(run: Any) -> pd.Index:
    """Ids as text."""
    return pd.Index([str(id) for id in run["id"]], dtype=object)


def ratings(cells: pd.Series) -> pd.DataFrame:
    """People's scores of each item, a column a place in its list; NaN where nobody scored."""
    return pd.DataFrame(read_ratings(cells)[0], index=cells.index)
