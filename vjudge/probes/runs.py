"""The runs that a probe compares: graded when first needed, or given."""

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
from vjudge.probes.changes import NotApplicableError, coarse
from vjudge.probes.decisions import BIAS_COLUMNS, Must, ProbeRow, Ruler, probe_table
from vjudge.probes.effects import Effect, bias_scores
from vjudge.probes.perturbations import perturb
from vjudge.probes.readings import effect_sentence
from vjudge.records import NAN, is_missing, row_levels
from vjudge.results import NotComputed

# --- a run item by item


class MissingInputError(NotComputed):
    """A probe lacks something; the message says what it needs and how to give it."""


def checked_run(run: Any, name: str, *, repeated: bool = False) -> pd.DataFrame:
    """Return a run as it is, if it is a frame with ids.

    Args:
        run: what was given as a run.
        name: of the run, for the error.
        repeated: whether an id may stand any number of times; else it may stand once per sample.

    Raises:
        ValueError: it is no frame, has no column `id`, or repeats an id.
    """
    if not isinstance(run, pd.DataFrame) or "id" not in run:
        remedy = "give a DataFrame as Judge.grade or Judge.compare returns it, with ids"
        raise ValueError(f"run {name!r}: {remedy}")
    is_repeated = run.duplicated(run.columns.intersection(["id", "sample"]).tolist())
    if is_repeated.any() and not repeated:
        ids = ", ".join(map(repr, run.loc[is_repeated, "id"].head(5)))
        problem = f"run {name!r}: {int(is_repeated.sum())} ids stand twice ({ids})"
        raise ValueError(f"{problem}; give one judge's run of each item")
    return run


def text_ids(run: Any) -> pd.Index:
    """Return the ids of a frame or a collection as texts."""
    return pd.Index(list(map(str, run["id"])), dtype=object)


def mean_scores(run: pd.DataFrame, score: str) -> pd.Series:
    """Average the column `score` over the samples of each item, by id."""
    if score not in run:
        columns = ", ".join(run.columns[:12])
        raise MissingInputError(f"needs the column {score!r}; the run has {columns}")
    column = pd.Series(as_floats(run[score], name=score), text_ids(run))
    return column.groupby(level=0, sort=False).mean()


def scored(run: pd.DataFrame, score: str) -> pd.DataFrame:
    """Make the table of a run's items, one row per id.

    Args:
        run: a run of single responses.
        score: the column of scores.

    Returns:
        Columns:

        - score: the mean over samples;
        - gold: the gold score, else the mean of human scores, NaN without either;
        - group;
        - closed: whether any verdict was closed; only where the run has that column.

    Raises:
        MissingInputError: there is no column `score`.
    """
    cells = {"score": mean_scores(run, score)}
    if "closed" in run:
        cells["closed"] = run["closed"].groupby(text_ids(run), sort=False).any()
    unique_items = run[~text_ids(run).duplicated()]
    cells["gold"] = NAN
    with suppress(CollectionError):  # no row has a true score
        cells["gold"] = truth(unique_items.filter(["id", "gold", "human_scores"])).to_numpy()
    return pd.DataFrame(cells | {"group": groups_of(unique_items)})


# --- the runs


ORIGINAL = "original"
IN_PAIRS = "compared"  # a comparison of pairs, as `Judge.compare` returns it
Gold = Literal["observed", "exact", "rated"]
# the kind of gold -> the note on rows at equal gold; the kinds are explained in `ProbeRuns`
GOLD: dict[Gold, str] = {
    "observed": "description: gold's noise is not held equal",
    "exact": "gold held equal",
    "rated": "people's mean held equal, less its noise",
}
MIN_GROUPS = 12  # with fewer independent groups hardly any effect can be found or excluded
# A judge, its runs, or several judges by name.
Judged: TypeAlias = "JudgeLike | pd.DataFrame | Mapping[str, Any] | ProbeRuns"


class Contrast(NamedTuple):
    """Two runs compared item by item."""

    items: pd.DataFrame  # scored by both runs; columns before, after, delta, gold, group
    missing: int  # the number of items that lack a score in one of the runs


class ProbeRuns:
    """Runs by name, shared by several probes.

    The run "original" is of the unchanged items; a run named after a key of `PERTURBATIONS` is of
    the items so changed; "compared" is of pairs. Every probe takes the arguments of this class, or
    one of its objects; or several judges, as a mapping of name to a judge, a run, runs or such an
    object.

    Args:
        judge: a judge; or the runs themselves, as a mapping of name to frame; or one frame, which
            is "compared" if it has verdicts on pairs, else "original".
        items: what the judge grades; with runs, needed only by probes that look at the texts.
        out: a folder in which each run is kept in a folder of its own name; the same call
            continues there.
        score: the run's column that is compared, "score" or "expected_score".
        gold: what gold is, where scores are read at equal gold. An item without gold has the mean
            of its `human_scores`.

            - "observed": of unknown noise, so that such rows are descriptions;
            - "exact": the truth itself, as in generated collections;
            - "rated": the mean of `human_scores`, two or more per item, whose noise is corrected;
            - None: "rated" where there are such scores and no gold, else "observed".
        limit: the largest number of items; they are drawn at random.
        seed: for the perturbations, and for drawing the items where there is a `limit`.
        name: what tables call the judge; None takes its own name.
        grading: further options of `Judge.grade`, such as mode or batch_size.

    Raises:
        ValueError: an invalid option, a run without ids or scores.

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
            self._take_runs(judge)
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
        self.added_caveats: list[str] = []  # those that probes find while they run

    def _take_runs(self, runs: pd.DataFrame | Mapping[str, pd.DataFrame]) -> None:
        """Keep given runs by name, and take the judge's name from them."""
        if isinstance(runs, pd.DataFrame):  # its columns tell a comparison from graded items
            is_compared = bool({"verdict", "verdict_ab"} & set(runs))
            runs = {IN_PAIRS if is_compared else ORIGINAL: runs}
        for name, run in runs.items():
            self.runs[name] = checked_run(run, name, repeated=name == IN_PAIRS)
            if len(run) and "judge" in run:
                self.name = str(run["judge"].iloc[0])

    @classmethod
    def several(cls, judge: Judged, items: Items | None = None, **options: Any) -> list[ProbeRuns]:
        """Return one object per judge, for all forms of the arguments that a probe takes.

        Args:
            judge: one judge or its runs; a mapping of several; a run of several judges, told by its
                column `judge`; or an object of this class, which is returned alone.
            items, options: see the class.

        Raises:
            ValueError: items or options beside an object of this class.
        """
        if isinstance(judge, ProbeRuns):
            if options or items is not None:
                refusal = "items and options belong to the ProbeRuns"
                raise ValueError(f"{refusal}: give them where it is made")
            return [judge]
        judges = _by_name(judge)
        if judges is None:
            return [cls(judge, items, **options)]
        sources = {name: (source, items) for name, source in judges.items()}
        return list(_runs_by_name(sources, **options).values())

    def renamed(self, name: str) -> ProbeRuns:
        """Return an object that shares these runs, under another name and with its own caveats."""
        copied = copy.copy(self)
        copied.name = name
        copied.added_caveats = []
        return copied

    # --- items and runs

    @cached_property
    def items(self) -> datasets.Dataset:
        """The collection in canonical form, at most `limit` of its items."""
        if self._source is None:
            remedy = "pass the collection that was graded as items="
            raise MissingInputError(f"needs the items: {remedy}")
        items = canonical(self._source)
        if self._limit is None or self._limit >= len(items):
            return items
        drawn = np.random.default_rng(self.seed).permutation(len(items))[: self._limit]
        return items.select(sorted(drawn))  # in their order: neighbours share work

    def column(self, name: str) -> pd.Series:
        """Return a column of the original run, else of the items, by id."""
        frame: Any = self.run()
        if name not in frame:
            frame = self.items
            if name not in frame.column_names:
                raise MissingInputError(f"needs the items' column {name}")
        values = pd.Series(list(frame[name]), index=text_ids(frame), dtype=object)
        return values[~values.index.duplicated()]

    def changed(self, name: str, items: Items | None = None) -> datasets.Dataset:
        """Perturb the items; MissingInputError where the perturbation applies to none."""
        try:
            return perturb(self.items if items is None else items, name, seed=self.seed)
        except NotApplicableError as error:
            raise MissingInputError(f"{name}: {error}") from error

    def run(self, name: str = ORIGINAL, items: Items | None = None) -> pd.DataFrame:
        """Return a run by name; grade it now, in a folder of that name, if it is not there.

        Args:
            name: of the run.
            items: what is graded; None takes what the name says.

        Raises:
            MissingInputError: runs were given without this one, or the judge has no prompt template
                for two responses.
        """
        if name in self.runs:
            return self.runs[name]
        if self.judge is None:
            raise MissingInputError(_run_needed(name))
        is_paired = name == IN_PAIRS
        if not is_paired and "response" not in self.items.column_names:
            raise MissingInputError("needs single responses: each row is a pair")
        if items is None:
            items = self.items if name == ORIGINAL else self.changed(name)
        grade = self.judge.compare if is_paired else self.judge.grade
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
        """Compare the original run with another, item by item.

        `missing` counts the items of the second run that lack a score in one of the runs; the
        second run may lack items of the first.
        """
        old = self.scores
        new = mean_scores(self.run(name), self.score)
        unknown = new.index.difference(old.index, sort=False)
        if len(unknown):
            refusal = f"{len(unknown)} ids of the second run are not in the first"
            raise ValueError(f"{refusal}, such as {unknown[0]!r}: compare runs of the same items")
        items = old.loc[new.index].rename(columns={"score": "before"})
        items = items.assign(after=new, delta=new - items["before"])
        in_both = items.dropna(subset="delta")
        return Contrast(in_both, len(items) - len(in_both))

    # --- scale and gold

    @cached_property
    def scales(self) -> pd.DataFrame:
        """The lowest and the highest score of each item by id; NaN where it has no scale.

        They are the run's columns `lowest` and `highest`, else those of the items' rubrics.
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
        """What a change of a score is measured against.

        It is the width of the narrowest scale of an item; where any item has none, the scores'
        standard deviation.
        """
        widths = (self.scales["highest"] - self.scales["lowest"]).reindex(self.scores.index)
        if len(widths) and widths.notna().all():
            return Ruler(float(widths.min()), True)
        return Ruler(float(self.scores["score"].std()), False)

    @cached_property
    def gold(self) -> Gold:
        """What gold is: the class's argument `gold`, else "rated" or "observed" by the items."""
        if self._gold is not None:
            return self._gold
        with suppress(MissingInputError):
            n_ratings = self.column("human_scores").map(_n_ratings)
            # most items have two ratings or more
            if (n_ratings >= 2).mean() > 0.5 and self._is_without_gold():
                return "rated"
        return "observed"

    def _is_without_gold(self) -> bool:
        """Say whether no item has a gold score."""
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
        """Sentences on what limits the numbers of these runs.

        They concern a scale that is unknown or not the same for all items, unequal groups, few
        groups, and what probes added.
        """
        texts = list(self.added_caveats)
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
        if len(sizes) < MIN_GROUPS:
            texts.append(
                f"independent groups: {len(sizes)}; with fewer than {MIN_GROUPS} hardly any effect"
                " can be found or excluded"
            )
        return texts

    # --- rows and tables

    def published(self, pair: pd.DataFrame) -> dict[str, float]:
        """Compute the published measures, bias deviation and conformity, of a contrast's items.

        Args:
            pair: `Contrast.items`, or some of its rows.

        Returns:
            A cell for each of `BIAS_COLUMNS`. It is empty where an item has no scale, and where
            scores lie beyond the scale, which a caveat then says.
        """
        bounds = self.scales.reindex(pair.index)
        if bounds.empty or bounds.isna().any(axis=None):
            return {}
        columns = {name: pair[name].to_numpy() for name in ("before", "after")}
        scale = {name: column.to_numpy() for name, column in bounds.items()}
        try:
            table = bias_scores(**columns, **scale, groups=pair["group"].to_numpy())
        except ValueError as error:  # scores beyond the scale
            self.added_caveats.append(
                f"{self.name}: no bias deviation and conformity, since {error}"
            )
            return {}
        values = table[["estimate", "low", "high"]].to_numpy().ravel()
        return dict(zip(BIAS_COLUMNS, values, strict=True))

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
        """Make a row of a probe's table, before its verdict.

        Args:
            case: what was compared.
            effect, unit: the estimate and its unit; a row without them gets the verdict "not run".
            must: "move" or "stay" for a test; None for a description, which has no p or margin.
            does: the finding's sentence with placeholders {raises}, {towards}, {above} and {size}.
            gold: the true scores, where the effect is a change of the slope of scores on gold.
            cells: further columns, which take precedence; a `margin` among them replaces that of
                `Ruler.margin`.
        """
        effect = effect or Effect()
        margin = NAN
        margin_of = ""
        if must is not None and "margin" not in cells:
            margin, margin_of = self.ruler.margin(unit, gold)
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
        """Make the table of a probe's rows, see `probe_table`; rows may name their own probe."""
        methods = ["95% intervals by a jackknife over groups with Student's t", f"seed {self.seed}"]
        if self.runs:
            methods.append(closed_in(pd.concat(self.runs.values())))
        method = "; ".join(filter(None, methods))
        return probe_table([{"probe": probe, **row} for row in rows], method)


def at_resolutions(
    judge: JudgeLike, items: Items, factors: Sequence[int] = (8, 12), **options: Any
) -> dict[str, ProbeRuns]:
    """Make the runs of a judge, and of the same judge on coarser images: weaker judges.

    A judge without errors can show no bias. For a collection without images there is the judge
    alone.

    Args:
        judge, items, options: see `ProbeRuns`; each judge has a folder of its name in `out`.
        factors: by which the resolution is divided, see `coarse`.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=5)
    >>> list(at_resolutions(vj.load_judge("tiny", device="cpu"), items))
    ['tiny', 'tiny, 1/8 resolution', 'tiny, 1/12 resolution']
    """
    sources: dict[str, tuple[Judged, Items]] = {judge.name: (judge, items)}
    with suppress(NotApplicableError):  # no row has an image
        for factor in factors:
            name = f"{judge.name}, 1/{factor} resolution"
            sources[name] = (judge, coarse(items, factor))
    return _runs_by_name(sources, **options)


def _runs_by_name(
    sources: Mapping[str, tuple[Judged, Items | None]],
    *,
    out: str | Path | None = None,
    **options: Any,
) -> dict[str, ProbeRuns]:
    """Make the runs of several judges by name.

    Args:
        sources: name -> a judge, its runs or a `ProbeRuns`, and the items that it grades.
        out: a folder that gets one folder per name; None records nothing.
        options: of `ProbeRuns`; a given `ProbeRuns` has its own, and only gets the name.
    """
    files = {} if out is None else file_names(sources)
    runs = {}
    for name, (judge, items) in sources.items():
        if isinstance(judge, ProbeRuns):
            runs[name] = judge.renamed(name)
        else:
            folder = None if out is None else Path(out) / files[name]
            runs[name] = ProbeRuns(judge, items, out=folder, name=name, **options)
    return runs


def _by_name(judge: Judged) -> dict[str, Any] | None:
    """Split several judges by name.

    Returns:
        Name -> a judge or its runs, from a mapping of judges, or from a run whose column `judge`
        has several names. None where `judge` stands for a single judge: a mapping with the names
        "original" or "compared" holds the runs of one.
    """
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


def _run_needed(name: str) -> str:
    """Say which run is missing, and how to make it."""
    remedy = f"grade probes.perturb(items, {name!r})"
    if name == IN_PAIRS:
        remedy = "compare pairs in both orders"
    elif name == ORIGINAL:
        remedy = "grade the items"
    return f"needs the run {name!r}: {remedy} and pass it in the mapping of runs"


def _n_ratings(cell: object) -> int:
    """Count the human raters who rated an item."""
    return sum(not is_missing(rating) for rating in rater_scores(cell))
