"""The runs that a probe compares, graded once or given, and the rows of its table."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import datasets
import numpy as np
import pandas as pd

from vjudge.data import CollectionError, canonical, rows_of, truth
from vjudge.data.cells import rater_scores
from vjudge.data.schema import Items
from vjudge.judging.asking import PairsNotSupportedError
from vjudge.judging.columns import closed_in, groups_of
from vjudge.judging.judge import JudgeLike
from vjudge.judging.paths import file_names
from vjudge.metrics.caveats import unequal_group_caveats
from vjudge.metrics.columns import as_floats
from vjudge.probes.effects import Effect, Must, bias_scores, judged
from vjudge.probes.perturbations import NotApplicableError, coarse, perturb
from vjudge.probes.readings import effect_sentence
from vjudge.records import NAN, is_missing, row_levels
from vjudge.results import NotComputed

ORIGINAL = "original"
IN_PAIRS = "compared"  # a comparison of pairs, as `Judge.compare` returns it
Gold = Literal["observed", "exact", "rated"]
GOLD: dict[Gold, str] = {
    "observed": "description: gold's noise is not held equal",
    "exact": "gold held equal",
    "rated": "people's mean held equal, less its noise",
}
AGREEMENT = "score per gold point"
SCORE_POINTS = "score points"
DOUBLING = "score per doubling"
WINS = "share less one half"
MIN_LOSS = 0.25  # of its agreement with gold, what a judge must lose with the image or the rubric
OF_WIDTH = 0.05  # of the scale's width, the largest change of a score that counts as none
OF_SPREAD = 0.2  # of the scores' standard deviation, where a scale has no width
OF_SLOPE = 0.1  # of the slope that following gold one to one would have
OF_WINS = 0.05  # of verdicts for one of two responses, beyond one half
FEW_GROUPS = 12
PUBLISHED = (
    "deviation deviation_low deviation_high conformity conformity_low conformity_high"
).split()
INTEGER_COLUMNS = ["n", "groups", "missing"]
FLOAT_COLUMNS = ["effect", "low", "high", "p", "p_holm", "margin", *PUBLISHED]
PROBE_COLUMNS = (
    "judge probe case perturbation must effect low high unit p p_holm margin margin_of verdict"
    " passes n groups missing finding reading note"
).split() + PUBLISHED
"""A probe's columns.

- perturbation: a key of `PERTURBATIONS`, None where nothing was changed
- must: "move" where a sound judge's score must change, "stay" where it must not, None for a
  description
- low, high: the 95 % interval of the effect; n, groups: rows and independent groups used
- missing: rows left out
- p: two-sided, of no effect where the score must stay, of an effect of `margin` where it must move;
  p_holm: corrected for all tests of a judge in the table
- margin: the largest effect that counts as none where the score must stay, the least loss where it
  must move; margin_of: what it is a share of
- verdict: "moves", "stays" or "can't say" of a test; else "described", "undefined" or "not run"
- passes: whether the verdict is what must be, NA where none was reached; reading: the same in words
- finding: the effect as a sentence with its direction, size and interval
- deviation, conformity: of a perturbation, as of `bias_scores`; NaN where no scale is known
"""
ProbeRow = dict[str, Any]
# A judge, its runs, or several judges by name.
Judged: TypeAlias = "JudgeLike | pd.DataFrame | Mapping[str, Any] | ProbeRuns"


class MissingInputError(NotComputed):
    """A probe lacks something; the message says what it needs and how to give it."""


class Contrast(NamedTuple):
    """The items that two runs scored (before, after, delta, gold, group), and how many others."""

    items: pd.DataFrame
    missing: int


class Ruler(NamedTuple):
    """What changes of scores are measured against.

    Attributes:
        width: of the scale; without one the standard deviation of the scores.
        bounded: whether there is a scale.
    """

    width: float
    bounded: bool

    @property
    def step(self) -> float:
        """The change of a score that is reckoned with where none was seen: a level of five."""
        if not self.bounded:
            return self.width
        return max(min(1.0, self.width), self.width / 4)


class ProbeRuns:
    """Runs by name, shared by several probes.

    Names are "original", those of `PERTURBATIONS`, and "compared".
    Every probe takes the arguments of this class, or one of its objects; or several judges, as a
    mapping of name to a judge, a run, runs or such an object.

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
            item without gold has the mean of its `human_scores`. None is "rated" where there are
            such scores and no gold, else "observed".
        limit: at most so many items, drawn at random.
        seed: of the perturbations and of the draw.
        name: what tables call the judge; None takes its own.
        grading: further options of `Judge.grade`, such as mode or batch_size.

    ValueError: an unsound option, a run without ids or scores.

    >>> import pandas as pd
    >>> from vjudge.probes import ProbeRuns
    >>> run = pd.DataFrame({"id": ["a", "b"], "score": [1, 2]})
    >>> runs = ProbeRuns({"original": run, "response_bold": run.assign(score=[2, 2])})
    >>> runs.contrast("response_bold").items["delta"].tolist()
    [1.0, 0.0]
    """

    def __init__(
        self,
        judge: Judged,
        items: Items | None = None,
        *,
        out: str | Path | None = None,
        score: str = "score",
        gold: Gold | None = None,
        limit: int | None = None,
        seed: int = 0,
        name: str | None = None,
        **grading: Any,
    ) -> None:
        if gold is not None and gold not in GOLD:
            raise ValueError(f"gold={gold!r}: use one of {', '.join(GOLD)}")
        self.judge: JudgeLike | None = None
        self.name = "judge"
        self.runs: dict[str, pd.DataFrame] = {}
        if isinstance(judge, pd.DataFrame | Mapping):
            if out is not None or grading:
                raise ValueError("out and grading options are for a judge; runs are graded already")
            runs_by_name = judge
            if isinstance(judge, pd.DataFrame):
                compared = {"verdict", "verdict_ab"} & set(judge)
                runs_by_name = {IN_PAIRS if compared else ORIGINAL: judge}
            for run_name, run in runs_by_name.items():
                self.runs[run_name] = _checked(run, run_name)
                if len(run) and "judge" in run:
                    self.name = str(run["judge"].iloc[0])
        elif isinstance(judge, JudgeLike):
            self.judge = judge
            self.name = str(judge.name)
        else:
            remedy = "give a Judge, a run (DataFrame) or a mapping of runs"
            raise ValueError(f"judge is a {type(judge).__name__}; {remedy}")
        self.name = self.name if name is None else name
        self.out = None if out is None else Path(out)
        self.score = score
        self.seed = seed
        self.grading = grading
        self._gold = gold
        self._source = items
        self._limit = limit
        self.limits: list[str] = []  # what single probes add to the caveats

    @classmethod
    def several(cls, judge: Judged, items: Items | None = None, **options: Any) -> list[ProbeRuns]:
        """The runs of one judge, or of each in a mapping by name or in a run of several judges."""
        if isinstance(judge, ProbeRuns):
            if options or items is not None:
                refusal = "items and options belong to the ProbeRuns"
                raise ValueError(f"{refusal}: give them where it is made")
            return [judge]
        named = _by_name(judge)
        if named is None:
            return [cls(judge, items, **options)]
        out = options.pop("out", None)
        files = {} if out is None else file_names(named)
        all_runs = []
        for name, source in named.items():
            if isinstance(source, ProbeRuns):
                all_runs.append(source.renamed(name))
                continue
            folder = None if out is None else Path(out) / files[name]
            all_runs.append(cls(source, items, out=folder, name=name, **options))
        return all_runs

    def renamed(self, name: str) -> ProbeRuns:
        """The same runs, shared, under another judge's name."""
        copied = copy.copy(self)
        copied.name = name
        copied.limits = []
        return copied

    @cached_property
    def items(self) -> datasets.Dataset:
        """The collection, canonical."""
        if self._source is None:
            remedy = "pass the collection that was graded as items="
            raise MissingInputError(f"needs the items: {remedy}")
        items = canonical(self._source)
        if self._limit is None or self._limit >= len(items):
            return items
        chosen = np.random.default_rng(self.seed).permutation(len(items))[: self._limit]
        return items.select(sorted(chosen))  # in their order: neighbours share work

    # --- what scores are measured against

    @cached_property
    def scales(self) -> pd.DataFrame:
        """The lowest and the highest score of each item by id; NaN where it has no scale.

        The run says so in its columns `lowest` and `highest`, else the items' rubrics.
        """
        run = self.run()
        if {"lowest", "highest"} <= set(run):
            bounds = run[["lowest", "highest"]].astype(float).set_axis(text_ids(run))
            return bounds[~bounds.index.duplicated()]
        rows = []
        if self._source is not None and "descriptions" in self.items.column_names:
            for row in rows_of(self.items.remove_columns("images")):
                levels = row_levels(row) or [NAN]
                rows.append((str(row["id"]), min(levels), max(levels)))
        frame = pd.DataFrame(rows, columns=["id", "lowest", "highest"]).set_index("id")
        return frame.reindex(self.scores.index).astype(float)

    @cached_property
    def ruler(self) -> Ruler:
        """What a change of a score is measured against: the narrowest scale, or the spread."""
        widths = (self.scales["highest"] - self.scales["lowest"]).reindex(self.scores.index)
        if len(widths) and widths.notna().all():
            return Ruler(float(widths.min()), True)
        return Ruler(float(self.scores["score"].std()), False)

    def margin(self, unit: str, gold: pd.Series | None = None) -> tuple[float, str]:
        """The largest effect that counts as none, and what it is a share of.

        `gold` are the true scores where the effect is one on the slope of scores on them.
        """
        if unit == WINS:
            return OF_WINS, "a share of verdicts of .55 less one half"
        width, bounded = self.ruler
        if unit == AGREEMENT:
            slope = width / self._width_of(gold)
            text = f"{OF_SLOPE:.0%} of the slope of a judge that follows gold one to one"
            return OF_SLOPE * slope, text
        if bounded:
            return OF_WIDTH * width, f"{OF_WIDTH:.0%} of the scale's width of {width:g}"
        text = f"{OF_SPREAD:.0%} of the scores' standard deviation of {width:.3g}"
        return OF_SPREAD * width, text

    def _width_of(self, gold: pd.Series | None) -> float:
        """Gold's own width: that of the scores where gold lies on about the same scale."""
        width, bounded = self.ruler
        if gold is None or gold.nunique() < 2:
            return width
        if not bounded:
            return float(gold.std())
        span = float(gold.max() - gold.min())
        return width if width / 2 <= span <= width else span

    @cached_property
    def gold(self) -> Gold:
        """What gold is, see the class."""
        if self._gold is not None:
            return self._gold
        with suppress(MissingInputError):
            people = self.column("human_scores").map(_n_ratings)
            if (people >= 2).mean() > 0.5 and self._is_without_gold():
                return "rated"
        return "observed"

    def _is_without_gold(self) -> bool:
        try:
            return bool(self.column("gold").map(is_missing).all())
        except MissingInputError:
            return True

    @property
    def truth_name(self) -> str:
        """What scores at equal gold are compared with, in a figure."""
        return "mean of people" if self._is_without_gold() else "true score"

    @property
    def caveats(self) -> list[str]:
        """What limits the numbers of these runs."""
        texts = list(self.limits)
        if ORIGINAL not in self.runs:
            return texts
        if not self.ruler.bounded:
            texts.append(
                f"{self.name}: no scale is known, or it has no ends (columns lowest and highest, or"
                " items with rubrics); margins are shares of the scores' standard deviation"
            )
        elif (self.scales["highest"] - self.scales["lowest"]).nunique() > 1:
            texts.append(f"{self.name}: items have scales of several widths; margins are of one of"
                         f" {self.ruler.width:g}, the narrowest")  # fmt: skip
        sizes = self.scores["group"].value_counts()
        texts += unequal_group_caveats(sizes)
        if len(sizes) < FEW_GROUPS:
            texts.append(
                f"independent groups: {len(sizes)}; with fewer than {FEW_GROUPS} hardly any effect"
                " can be found or excluded"
            )
        return texts

    # --- runs

    def column(self, name: str) -> pd.Series:
        """A column of the original run, or of the items, by id."""
        frame: Any = self.run()
        if name not in frame:
            frame = self.items
            if name not in frame.column_names:
                raise MissingInputError(f"needs the items' column {name}")
        values = pd.Series(list(frame[name]), index=text_ids(frame), dtype=object)
        return values[~values.index.duplicated()]

    def changed(self, name: str, items: Items | None = None) -> datasets.Dataset:
        """The items after a perturbation; MissingInputError where it applies to none."""
        try:
            return perturb(self.items if items is None else items, name, seed=self.seed)
        except NotApplicableError as error:
            raise MissingInputError(f"{name}: {error}") from error

    def run(self, name: str = ORIGINAL, items: Items | None = None) -> pd.DataFrame:
        """A run by name; where it is not there, graded now in a folder of that name.

        `items` are what the name says unless given. MissingInputError: runs were given without
        this one, or the judge has no wording for two responses.
        """
        if name in self.runs:
            return self.runs[name]
        paired = name == IN_PAIRS
        if self.judge is None:
            remedy = f"grade probes.perturb(items, {name!r})"
            if paired:
                remedy = "compare pairs in both orders"
            elif name == ORIGINAL:
                remedy = "grade the items"
            remedy = f"{remedy} and pass it in the mapping of runs"
            raise MissingInputError(f"needs the run {name!r}: {remedy}")
        if not paired and "response" not in self.items.column_names:
            raise MissingInputError("needs single responses: each row is a pair")
        if items is None:
            items = self.items if name == ORIGINAL else self.changed(name)
        grade = self.judge.compare if paired else self.judge.grade
        out = None if self.out is None else self.out / name
        try:
            self.runs[name] = grade(items, out=out, **self.grading)
        except PairsNotSupportedError as error:
            lack = f"needs a judge with a wording for two responses; {self.name!r} has none"
            raise MissingInputError(lack) from error
        return self.runs[name]

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The original run's scores by item, see `scored`."""
        frame = scored(self.run(), self.score)
        if frame["score"].isna().all():
            reason = f"none of the {len(frame)} verdicts of {self.name} could be read"
            raise MissingInputError(f"needs scores: {reason}")
        return frame

    def contrast(self, name: str) -> Contrast:
        """Items that the original run and another scored.

        `missing` counts the others of the second run, which may lack items of the first.
        """
        old = self.scores
        new = _mean_scores(self.run(name), self.score)
        unknown = new.index.difference(old.index, sort=False)
        if len(unknown):
            refusal = f"{len(unknown)} ids of the second run are not in the first"
            raise ValueError(f"{refusal}, such as {unknown[0]!r}: compare runs of the same items")
        pair = old.loc[new.index].rename(columns={"score": "before"})
        pair = pair.assign(after=new, delta=new - pair["before"])
        both = pair.dropna(subset="delta")
        return Contrast(both, len(pair) - len(both))

    def published(self, pair: pd.DataFrame) -> dict[str, float]:
        """Bias deviation and conformity of a contrast, with intervals; empty without a scale."""
        bounds = self.scales.reindex(pair.index)
        if bounds.empty or bounds.isna().any(axis=None):
            return {}
        scores = (pair["before"].to_numpy(), pair["after"].to_numpy())
        scale = {name: column.to_numpy() for name, column in bounds.items()}
        try:
            table = bias_scores(*scores, **scale, groups=pair["group"].to_numpy())
        except ValueError as error:  # scores beyond the scale
            self.limits.append(f"{self.name}: no bias deviation and conformity, since {error}")
            return {}
        numbers = table[["estimate", "low", "high"]].to_numpy().ravel()
        return dict(zip(PUBLISHED, numbers, strict=True))

    # --- tables

    def row(
        self,
        case: str,
        effect: Effect | None = None,
        unit: str = "",
        must: Must | None = None,
        does: str = "",
        gold: pd.Series | None = None,
        **cells: Any,
    ) -> ProbeRow:
        """A row of a probe's table, before the verdict; a description has neither p nor margin.

        `does` is the finding's sentence with the places {raises}, {towards}, {above} and {size};
        `gold` are the true scores where the effect is one on their slope.
        """
        effect = effect or Effect()
        margin, margin_of = NAN, ""
        if must is not None and "margin" not in cells:
            margin, margin_of = self.margin(unit, gold)
        row = {
            "judge": self.name,
            "case": case,
            "perturbation": None,
            "must": must,
            "unit": unit,
            "margin": margin,
            "margin_of": margin_of,
            "missing": 0,
            "note": "",
            "finding": effect_sentence(does, effect.effect, effect.low, effect.high),
            **effect._asdict(),
            **cells,
        }
        if must is None:
            row["p"] = NAN
        return row

    def table(self, probe: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
        """A probe's rows with their verdicts, Holm's method over all; `attrs` has the method."""
        lines = [{"probe": probe, **row} for row in rows]
        frame = pd.DataFrame(lines, columns=PROBE_COLUMNS, dtype=object)
        frame = frame.astype(
            dict.fromkeys(FLOAT_COLUMNS, float) | dict.fromkeys(INTEGER_COLUMNS, int)
        )
        frame = judged(frame)
        method = "95% intervals by a jackknife over groups with Student's t"
        account = [f"{method}; seed {self.seed}"]
        if self.runs:
            account.append(closed_in(pd.concat(self.runs.values())))
        frame.attrs = {"method": "; ".join(filter(None, account))}
        return frame


def at_resolutions(
    judge: JudgeLike, items: Items, factors: Sequence[int] = (8, 12), **options: Any
) -> dict[str, ProbeRuns]:
    """A judge, and the same judge on coarser images: weaker ones, which make errors.

    A judge without errors can show no bias. Of a collection without images there is the judge
    alone.

    Args:
        judge, items, options: see `ProbeRuns`; each judge has a folder of its name in `out`.
        factors: of the resolution, see `coarse`.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=5)
    >>> list(at_resolutions(vj.load_judge("tiny", device="cpu"), items))
    ['tiny', 'tiny, 1/8 resolution', 'tiny, 1/12 resolution']
    """
    collections = {judge.name: items}
    with suppress(NotApplicableError):  # no row has an image
        for factor in factors:
            collections[f"{judge.name}, 1/{factor} resolution"] = coarse(items, factor)
    out = options.pop("out", None)
    files = file_names(collections)
    runs = {}
    for name, collection in collections.items():
        folder = None if out is None else Path(out) / files[name]
        runs[name] = ProbeRuns(judge, collection, out=folder, name=name, **options)
    return runs


def _by_name(judge: Judged) -> dict[str, Any] | None:
    """Several judges by name: a mapping of them, or the rows of each in one run; None of one."""
    if isinstance(judge, pd.DataFrame):
        names = judge["judge"].dropna().unique() if "judge" in judge else ()
        if len(names) < 2:
            return None
        return {str(name): rows for name, rows in judge.groupby("judge", sort=False)}
    if isinstance(judge, Mapping) and not {ORIGINAL, IN_PAIRS} & set(judge):
        if not judge:
            raise ValueError("no judge is given: the mapping is empty")
        return {str(name): source for name, source in judge.items()}
    return None


def _n_ratings(cell: object) -> int:
    """How many people rated an item."""
    return sum(not is_missing(rating) for rating in rater_scores(cell))


def _checked(run: Any, name: str) -> pd.DataFrame:
    """A run with ids that stand once in a sample, or an error that says what is wrong with it."""
    if not isinstance(run, pd.DataFrame) or "id" not in run:
        problem = "give a DataFrame as Judge.grade or Judge.compare returns it, with ids"
        raise ValueError(f"run {name!r}: {problem}")
    twice = run.duplicated(run.columns.intersection(["id", "sample"]).tolist())
    if twice.any() and name != IN_PAIRS:
        ids = ", ".join(map(repr, run.loc[twice, "id"].head(5)))
        problem = f"run {name!r}: {int(twice.sum())} ids stand twice ({ids})"
        raise ValueError(f"{problem}; give one judge's run of each item")
    return run


def scored(run: pd.DataFrame, score: str) -> pd.DataFrame:
    """A run's items by id: score (the mean over samples), gold (else people's mean) and group.

    Also, where the run says it, whether a verdict was closed.
    """
    cells = {"score": _mean_scores(run, score)}
    if "closed" in run:
        cells["closed"] = run["closed"].groupby(text_ids(run), sort=False).any()
    unique_items = run[~text_ids(run).duplicated()]
    cells["gold"] = NAN
    with suppress(CollectionError):  # no row has one
        cells["gold"] = truth(unique_items.filter(["id", "gold", "human_scores"])).to_numpy()
    return pd.DataFrame(cells | {"group": groups_of(unique_items)})


def _mean_scores(run: pd.DataFrame, score: str) -> pd.Series:
    """Each item's score, the mean over samples."""
    if score not in run:
        have = ", ".join(run.columns[:12])
        raise MissingInputError(f"needs the column {score!r}; the run has {have}")
    column = pd.Series(as_floats(run[score], name=score), text_ids(run))
    return column.groupby(level=0, sort=False).mean()


def text_ids(run: Any) -> pd.Index:
    """Ids as text."""
    return pd.Index(list(map(str, run["id"])), dtype=object)
