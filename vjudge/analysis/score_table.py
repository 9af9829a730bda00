"""`scores`: one table of judges' and people's scores; its methods are the analyses.

Each method calls functions of `vjudge.metrics` and `vjudge.probes` and returns a `Result`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from vjudge import metrics, plots, probes
from vjudge.analysis import readings
from vjudge.analysis.inspection import rouge_l
from vjudge.analysis.sources import make_table
from vjudge.analysis.tables import RatingTable, names_of, stacked, truth_of
from vjudge.data.schema import Items
from vjudge.metrics.caveats import merged_caveats, warn
from vjudge.metrics.columns import as_floats
from vjudge.metrics.intervals import INTERVAL
from vjudge.metrics.levels import nearest_level, score_levels
from vjudge.metrics.strata import OVERALL
from vjudge.plots.style import short
from vjudge.results import NotComputed, Result, Results, analysis, current, options

StatisticName = Literal["pearson", "spearman", "kendall"]
Corrected = tuple[dict[str, Any], list[str]]  # a row, and its caveats
ROUGE = "ROUGE-L with the reference"
LENGTH = "length of the response"
POOLED = (
    "items of several benchmarks are pooled, so that what these differ by counts as agreement:"
    " where(benchmark=...) looks within one"
)
MAX_PARTS = 60  # of a correlation by a column
MAX_LEVELS = 11  # of scores that are calibrated one by one, not in bins
PAIR_COLUMNS = ["a", "b", "difference", "low", "high", "p", "p_holm", "n"]
OVER_PEOPLE = (
    "winning_rate advantage_probability advantage_probability_low advantage_probability_high"
).split()
ALT_TEST = "judge winning_rate advantage low high people_beaten people_tested missing".split()


def scores(
    data: DataFrame | Mapping[str, DataFrame],
    judges: Sequence[str] | None = None,
    people: str | Sequence[str] | None = None,
    *,
    items: Items | None = None,
    score: str = "score",
    **columns: Any,
) -> Scores:
    """Put judges' and people's scores of the same items into one table.

    Args:
        data: a run, as `Judge.grade` returns it; runs by the judge's name; or a wide frame, one row
            an item, with `judges`.
        judges: of a wide frame, the columns with each judge's scores, on any scale; NaN where
            missing.
        people: of a wide frame, the columns with each person's scores, or one column with lists.
        items: of runs, the collection that was graded: adds its responses, references and people.
        score: of runs, the column that counts, "score" or "expected_score".
        columns: what further columns are, see `RatingTable`: gold (the true score; where it is
            missing, the mean of people counts), group (the unit of resampling, such as the image),
            benchmark, system, response (or its length); scale (the lowest and the highest score of
            people), scales (by judge, such as {"GPT-4o": (0, 10)}); about (what captions call the
            items), caveats. A run brings its own group and scale.

    Returns:
        A table of scores; see `Scores` for its analyses.

    Raises:
        ValueError: a column is absent or named twice, a group or benchmark is missing, a run has no
            verdicts, or two runs are of one judge.
        TypeError: a score is no number, `data` no frame, or a keyword is unknown.

    >>> frame = DataFrame({"a": [1, 2, 3, 4], "b": [2, 1, 4, 3], "people": [1, 2, 3, 4]})
    >>> table = scores(frame, judges=["a", "b"], people="people")
    >>> table.correlate(n_resamples=0).table.query("statistic == 'pearson'")["estimate"].tolist()
    [1.0, 0.6]
    """
    table = make_table(Scores, data, judges, people, items, score, columns)
    if table.verdicts is not None and "score" not in table.verdicts:
        raise ValueError("these are verdicts on pairs: use vj.choices")
    frame = table.frame.copy()
    for name in filter(None, [*table.judges, *table.people, table.gold]):
        frame[name] = as_floats(frame[name], name=name)  # a TypeError names the cells
    return replace(table, frame=frame)


def from_scores(
    frame: DataFrame,
    judges: Sequence[str],
    human: str | Sequence[str],
    *,
    out: str | Path,
    venue: str = "neurips",
    n_resamples: int = 2_000,
    seed: int = 0,
    **roles: Any,
) -> Results:
    """The name of `scores(...).paper(...)` in version 0.1; arguments as of those.

    >>> import tempfile
    >>> frame = DataFrame({"a": [1, 2, 3, 4], "b": [2, 1, 4, 3], "people": [1, 2, 3, 4]})
    >>> paper = from_scores(frame, ["a", "b"], "people", out=tempfile.mkdtemp())
    >>> paper["correlation"].computed
    True
    """
    warn("from_scores is deprecated: use vj.scores(...).paper(out, venue)", DeprecationWarning)
    table = scores(frame, judges, human, **roles)
    return table.paper(out, venue, n_resamples=n_resamples, seed=seed)


@dataclass(frozen=True, eq=False, repr=False)
class Scores(RatingTable):
    """Judges' and people's scores of the same items; `scores` makes it.

    Each method is an analysis and returns a `Result`. Options of resampling (n_resamples, seed,
    confidence) are those of `vjudge.settings` unless given.
    """

    # --- the columns

    def truth(self) -> Series:
        """What judges are held against: gold, else the mean of people. NotComputed without any."""
        return truth_of(self)[0]

    def baselines(self) -> Scores:
        """The same table with what uses no picture as further judges: length, ROUGE-L.

        A judge has to beat them. ROUGE-L is the F1 of the longest common subsequence of words with
        the reference answer. Baselines whose texts are absent are not added.

        Source: Lin, ROUGE (2004).
        """
        columns = {}
        if self.response is not None:
            columns[LENGTH] = _lengths(self.frame[self.response])
            if "reference_answer" in self.frame:
                f1 = map(rouge_l, self.frame[self.response], self.frame["reference_answer"])
                columns[ROUGE] = Series(list(f1), self.frame.index)
        columns = {name: column for name, column in columns.items() if column.notna().any()}
        frame = self.frame.assign(**columns)
        return replace(self, frame=frame, judges=[*self.judges, *columns])

    # --- agreement with the truth

    @analysis
    def correlate(
        self,
        by: str | None = None,
        *,
        statistic: StatisticName = "pearson",
        new_systems: bool = False,
        **resampling: Any,
    ) -> Result:
        """Correlate each judge with the truth, over all items or within each value of a column.

        Args:
            by: a column, or what it is ("group", "benchmark", "system"): a correlation within each
                of its values, and overall.
            statistic: what figure and reading show: "pearson", "spearman" or "kendall".
            new_systems: whether intervals speak for other systems than these, too, which takes the
                column with the systems, and five of them.
            resampling: n_resamples, seed, confidence.

        Returns:
            A row a judge, part and statistic of `metrics.correlate`. With several benchmarks
            "overall" is the weighted mean of the correlations within each.
        """
        truth, name = truth_of(self)
        table = self._correlations(truth, by, options(**resampling), new_systems)
        rows = table[table["statistic"] == statistic].reset_index(drop=True)
        label = f"{readings.SYMBOLS[statistic]} with {name}"
        view = _by_statistic(table, by)
        if by is None:
            best_first = rows.sort_values("estimate", ascending=False, kind="stable")
            return self._result(
                table,
                name="correlation",
                reading=readings.truth_correlations(rows, name, statistic),
                caption=f"Agreement of judges with {name}, {self.about}",
                plot=partial(plots.forest, best_first.reset_index(drop=True), label=label),
                view=view,
            )
        slug = "".join(c if c.isalnum() else "_" for c in by.lower()).strip("_")
        return self._result(
            table,
            name=f"correlation_by_{slug}",
            reading=readings.by_subset(rows, name, by, OVERALL),
            caption=f"Agreement of judges with {name} by {by}, {self.about}",
            plot=partial(plots.heatmap, rows, columns=by, label=label),
            view=view,
        )

    def _pooled(self) -> list[str]:
        """The caveat of items of several benchmarks, whose scores one number takes together."""
        return [] if self.benchmarks is None else [POOLED]

    def _units(self, new_systems: bool) -> Series | list[Series] | None:
        """The units of resampling: groups, crossed with systems where these are a sample, too."""
        if not new_systems:
            return self.groups
        items = Series(self.frame.index, self.frame.index)
        return [items if self.groups is None else self.groups, self.column("system")]

    def _correlations(
        self,
        truth: Series,
        by: str | None,
        resampling: Mapping[str, Any],
        new_systems: bool = False,
    ) -> DataFrame:
        """Correlations in long form: judge, `by` (else benchmark), statistic, estimate, ..."""
        subsets = {OVERALL: np.ones(len(self.frame), dtype=bool)}
        if by is not None:
            column = self.column(by)
            if column.nunique() > MAX_PARTS:
                raise NotComputed(
                    f"{by!r} has {column.nunique()} values, and a table holds {MAX_PARTS}: group"
                    " them, or look within it by levels()"
                )
            subsets |= {str(value): (column == value).to_numpy() for value in column.unique()}
        key = by or "benchmark"
        tables = []
        for value_name, rows in subsets.items():
            within = replace(self, frame=self.frame[rows])
            for judge in self.judges:
                table = metrics.correlate(
                    within.frame[judge],
                    truth[rows],
                    groups=within._units(new_systems),
                    strata=self.benchmarks if value_name == OVERALL else None,
                    **resampling,
                )
                tables.append(table.reset_index().assign(**{"judge": judge, key: value_name}))
        return stacked(tables)[["judge", key, "statistic", *INTERVAL, "n", "missing"]]

    @analysis
    def ranks(self, by: str = "benchmark", *, statistic: StatisticName = "pearson") -> Result:
        """Rank the judges within each value of a column by their correlation with the truth."""
        truth, name = truth_of(self)
        table = self._correlations(truth, by, {"n_resamples": 0})
        rows = table[(table["statistic"] == statistic) & (table[by] != OVERALL)]
        rows = rows.reset_index(drop=True)
        if rows["estimate"].isna().all() or rows[by].nunique() < 2:
            raise NotComputed(f"ranks take correlations within two values of {by!r}")
        rows["rank"] = rows.groupby(by)["estimate"].rank(ascending=False, method="min")
        means = rows.groupby("judge", sort=False)["rank"].mean().sort_values()
        n_first = int((rows.loc[rows["judge"] == means.index[0], "rank"] == 1).sum())
        return self._result(
            rows[["judge", by, "estimate", "rank", "n", "missing"]],
            name="ranks",
            reading=(
                f"{means.index[0]} has the best mean rank, {means.iloc[0]:.1f}, and is first in"
                f" {n_first} of {rows[by].nunique()}."
            ),
            caption=f"Ranks of judges by {readings.SYMBOLS[statistic]} with {name}",
            caveats=["ranks have no interval: compare() tests differences"],
            plot=partial(plots.rank_heatmap, rows, columns=by),
        )

    @analysis
    def compare(
        self, *, statistic: StatisticName = "pearson", new_systems: bool = False, **resampling: Any
    ) -> Result:
        """Test which judge agrees better with the truth than which, on the items both scored.

        Arguments as of `correlate`. Returns the table of `metrics.compare_judges`: a row a pair of
        judges and statistic.
        """
        truth, name = truth_of(self)
        self._require_two_judges()
        table = metrics.compare_judges(
            truth,
            self.frame[self.judges],
            groups=self._units(new_systems),
            strata=self.benchmarks,
            **options(**resampling),
        )
        pairs = table.xs(statistic, level="statistic").reset_index()
        return self._result(
            table.reset_index(),
            name="comparison",
            reading=readings.comparisons(pairs),
            caption=f"Differences of {readings.SYMBOLS[statistic]} with {name}, row less column",
            plot=partial(plots.who_beats_whom, table, statistic=statistic),
            view=pairs[PAIR_COLUMNS],
        )

    @analysis
    def raters(self, *, statistic: StatisticName = "pearson", **resampling: Any) -> Result:
        """Hold people and judges against the same others: may a judge stand where a person stands?

        Each person is left out in turn and correlated with the mean of the others; a judge is
        correlated with the same means, on the same items. Returns the table of `metrics.raters`.
        """
        self._require_people(2)
        table = metrics.raters(
            self.frame[self.people],
            self.frame[self.judges],
            groups=self.groups,
            **options(**resampling),
        )
        rows = table[table["statistic"] == statistic]
        rows = rows.sort_values("estimate", ascending=False, kind="stable")
        rows = pd.concat([rows[rows["kind"] == kind] for kind in rows["kind"].unique()])
        lines = rows.rename(columns={"who": "judge"})
        symbol = readings.SYMBOLS[statistic]
        return self._result(
            table,
            name="raters",
            reading=readings.judge_beside_people(lines),
            caption=(f"{symbol} of people and judges, each with the mean of the same other people"),
            caveats=self._pooled(),
            plot=partial(plots.forest, lines, by="kind", label=f"{symbol} with the others"),
            view=rows[["who", "kind", *INTERVAL, "n", "missing"]],
        )

    @analysis
    def agreement(self, **resampling: Any) -> Result:
        """Measure how far people agree with each other: the table of `metrics.agreement`."""
        self._require_people(2)
        table = metrics.agreement(
            self.frame[self.people],
            scale=self._levels() or (),
            groups=self.groups,
            **options(**resampling),
        )
        return self._result(
            table,
            name="agreement",
            reading=readings.rater_agreement(table, len(self.people)),
            caption=f"Agreement of {len(self.people)} people, {self.about}",
            caveats=self._pooled(),
        )

    @analysis
    def alt_test(self, epsilon: float = 0.2, *, confidence: float | None = None) -> Result:
        """Test of each judge whether it may replace a person: the alternative annotator test.

        Args:
            epsilon: what a judge may be worse by and still be the better choice, since it costs
                less: .2 where people are experts, .15 trained, .1 a crowd.
            confidence: of the intervals.

        Judges on another scale than people's are put on it first, which the caption says.
        """
        self._require_people(3)
        rows = []
        tests = []
        columns, caveats = self._on_scale_of(self.frame[self.people].mean(axis=1))
        for name, scores in columns.items():
            test = metrics.alt_test(
                self.frame[self.people],
                scores,
                measure="rmse",
                epsilon=epsilon,
                groups=self.groups,
                confidence=confidence or current().confidence,
            )
            row = (
                name,
                *test[OVER_PEOPLE].iloc[0],
                test["rejected"].sum(),
                test["p"].notna().sum(),
                test["missing"].iloc[0],
            )
            rows.append(row)
            tests.append(test)
        table = DataFrame(rows, columns=ALT_TEST)
        lines = table.rename(columns={"advantage": "estimate"}).dropna(subset="estimate")
        return self._result(
            table,
            name="alt_test",
            reading=readings.replacement(table, epsilon),
            caption=(
                "Alternative annotator test: the share of items on which a judge is at least as"
                f" close to the other people as the person left out; epsilon {epsilon:g}"
            ),
            caveats=[*caveats, *merged_caveats(tests)],
            plot=partial(
                plots.forest,
                lines,
                label="share of items, judge at least as close",
                reference=0.5,
            ),
        )

    def _is_rescaled(self, judge: str) -> bool:
        scale = self.scales.get(judge)
        return scale is not None and self.scale is not None and scale != self.scale

    def _rescaled(self, judges: Sequence[str]) -> list[str]:
        """The caveat about judges whose scores were put on people's scale."""
        scaled = list(filter(self._is_rescaled, judges))
        if not scaled:
            return []
        return [f"put on people's scale by the ends of their own: {names_of(scaled)}"]

    def _on_peoples_scale(self, judge: str) -> Series:
        """A judge's scores, moved and stretched so that the ends of its scale are people's."""
        column = self.frame[judge]
        if not self._is_rescaled(judge) or self.scale is None:
            return column
        low, high = self.scales[judge]
        lowest, highest = self.scale
        return lowest + (column - low) * (highest - lowest) / (high - low)

    # --- single scores

    def _comparable(self) -> tuple[Series, str, DataFrame, list[str]]:
        """The truth and its name; the scores, in long form, of judges on its scale; caveats.

        A judge on another known scale is put on people's by its ends. Where scales are unknown, its
        scores and the truth have to reach over half of each other's range at least.
        """
        truth, name = truth_of(self)
        columns, caveats = self._on_scale_of(truth)
        long = columns.melt(var_name="judge", value_name="score", ignore_index=False)
        long["gold"] = truth.reindex(long.index)
        long["group"] = long.index if self.groups is None else self.groups.reindex(long.index)
        if self.response is not None:
            long["response"] = self.frame[self.response].reindex(long.index)
        if self.scale is not None:
            long["lowest"], long["highest"] = self.scale
        return truth, name, long.rename_axis("id").reset_index(), caveats

    def _on_scale_of(self, truth: Series) -> tuple[DataFrame, list[str]]:
        """The scores of judges that share a scale with the truth, and who was left out or moved."""
        reasons = Series({judge: self._incomparable(judge, truth) for judge in self.judges})
        judged = list(reasons.index[reasons == ""])
        if not judged:
            raise NotComputed(
                "no judge has scores on people's scale: name the scales (scale=, scales=);"
                " correlate() and compare() need none"
            )
        caveats = self._rescaled(judged)
        for reason, judges in reasons.drop(judged).groupby(reasons):
            caveats.append(f"{reason}, and left out: {names_of(list(judges.index))}")
        return DataFrame({judge: self._on_peoples_scale(judge) for judge in judged}), caveats

    def _incomparable(self, judge: str, truth: Series) -> str:
        """Why a judge's scores can't be held against the truth item by item; "" where they can."""
        both = pd.concat([self.frame[judge], truth], axis=1).dropna()
        if both.empty:
            return "without a score of an item that has a truth"
        overlap = both.max().min() - both.min().max()
        is_named = judge in self.scales and self.scale is not None
        if is_named or 2 * overlap >= (both.max() - both.min()).max():
            return ""
        return "on another scale than the truth"

    def _levels(self) -> list[float] | None:
        """The levels of people's scale, for the axes of figures; None where it is unknown."""
        if self.scale is None:
            return None
        lowest, highest = self.scale
        return [*np.arange(lowest, highest + 1)]

    @analysis
    def confusion(self) -> Result:
        """Count each judge's scores for each level of the truth."""
        _, name, run, caveats = self._comparable()
        ticks = score_levels(run["score"], run["gold"], scale=self._levels())
        rows = run.assign(
            truth=nearest_level(run["gold"], ticks),
            score=nearest_level(run["score"], ticks),
        )
        counted = rows.groupby(["judge", "truth", "score"], sort=False, dropna=False)
        table = counted.size().rename("items").reset_index()
        far = (run["score"] - run["gold"]).abs()
        exact = (far < 0.5).groupby(run["judge"], sort=False).mean()
        shares = ", ".join(f"{judge} {short(share)}" for judge, share in exact.items())
        return self._result(
            table.sort_values(["judge", "truth", "score"]).reset_index(drop=True),
            name="confusion",
            reading=f"Share of items less than half a point from {name}: {shares}.",
            caption=f"Numbers of items by score and {name}, {self.about}; shade: share of a row",
            caveats=caveats,
            plot=partial(plots.confusion, run, truth_name=name, scale=self._levels()),
            data=run[["judge", "id", "gold", "score"]],
        )

    @analysis
    def calibration(self, **resampling: Any) -> Result:
        """What each score of a judge means: the mean truth at it; each judge's lean and error."""
        _, name, run, caveats = self._comparable()
        curves = {}
        errors = []
        for judge, rows in run.groupby("judge", sort=False):
            bins = None if rows["score"].nunique() <= MAX_LEVELS else 10
            units = None if self.groups is None else rows["group"]
            curves[str(judge)] = metrics.calibration_curve(
                rows["score"], rows["gold"], bins=bins, groups=units
            )
            error = metrics.calibration_errors(
                rows["score"], rows["gold"], groups=units, **options(**resampling)
            )
            errors.append(error.reset_index(names="measure").assign(judge=judge))
        table = stacked(errors).replace(
            {"measure": {"bias": "score less truth", "mae": "absolute error"}}
        )
        leans = table[table["measure"] == "score less truth"]
        return self._result(
            table[["judge", "measure", *INTERVAL, "n", "missing"]],
            name="calibration",
            reading=readings.bias(leans, name),
            caption=f"The mean of the truth ({name}) at each score of a judge",
            caveats=caveats,
            plot=partial(plots.calibration_curve, curves, label=name.removeprefix("the ")),
            data=pd.concat(curves, names=["judge_name", "row"]).droplevel("row").reset_index(),
        )

    @analysis
    def scatter(self) -> Result:
        """Draw each judge's scores against the truth."""
        _, name, run, caveats = self._comparable()
        means = run.assign(truth=run["gold"].round()).groupby(["judge", "truth"], sort=False)
        table = means["score"].agg(["mean", "std", "count"]).reset_index()
        means_of = table.dropna(subset="mean").groupby("judge", sort=False)["mean"]
        texts = []
        for judge, values in means_of:
            texts.append(f"{judge} {short(values.iloc[0])} to {short(values.iloc[-1])}")
        return self._result(
            table,
            name="scatter",
            reading=f"Mean scores from the lowest to the highest truth: {'; '.join(texts)}.",
            caption=f"Scores of each judge against {name}, {self.about}",
            caveats=caveats,
            plot=partial(plots.agreement_scatter, run),
            data=run[["judge", "id", "gold", "score"]],
        )

    @analysis
    def disagreements(self, n: int = 10) -> Result:
        """The items on which a judge and the truth are furthest apart, the largest gap first."""
        truth, name, run, caveats = self._comparable()
        gaps = run.assign(gap=run["score"] - run["gold"])
        width = np.ptp(self.scale or (truth.min(), truth.max()))
        far = (gaps["gap"].abs() >= width / 2).where(gaps["gap"].notna())
        share = far.astype(float).groupby(gaps["judge"], sort=False).mean().dropna()
        texts = ", ".join(f"{judge} {short(value)}" for judge, value in share.items())
        order = gaps["gap"].abs().sort_values(ascending=False, kind="stable").index
        rows = gaps.loc[order].dropna(subset="gap").head(n)
        names = [column for column in ("id", "item") if column in self.frame]
        if names:
            rows["id"] = self.frame[names[0]].reindex(rows["id"]).to_numpy()
        return self._result(
            rows[["id", "group", "judge", "score", "gold", "gap"]].reset_index(drop=True),
            name="disagreements",
            reading=f"Share of items half the scale or more from {name}: {texts}.",
            caption=f"The {len(rows)} scores furthest from {name}",
            caveats=caveats,
        )

    # --- what scores depend on

    @analysis
    def length(self) -> Result:
        """The slope of each judge's score on the length of the response at equal truth."""
        if self.response is None:
            raise NotComputed(
                "no response is known: give the collection as items=, or name the column response="
            )
        *_, run, caveats = self._comparable()
        result = probes.length(run)
        result.add_caveats(caveats)
        result.add_data_caveats(self.caveats)
        return result

    @analysis
    def levels(
        self, judge: str | None = None, *, system: str = "system", **resampling: Any
    ) -> Result:
        """Correlate over all items, between the systems' means, and within systems.

        Args:
            judge: whose scores; None takes all judges.
            system: the column with the model that answered, or another grouping to look within.
            resampling: n_resamples, seed, confidence.

        Returns:
            The table of `metrics.correlate_levels`, with a column judge.
        """
        truth, name = truth_of(self)
        systems = self.column(system)
        tables = []
        texts = []
        for judge_name in self.judges if judge is None else [judge]:
            at_levels = metrics.correlate_levels(
                self.frame[judge_name],
                truth,
                systems=systems,
                groups=self.groups,
                **options(**resampling),
            )
            tables.append(at_levels.reset_index().assign(judge=judge_name))
            pearson = at_levels.xs("pearson", level="statistic")
            texts.append(readings.at_levels(pearson, judge_name))
        table = stacked(tables)
        rows = table[table["statistic"] == "pearson"]
        lines = rows.rename(columns={"judge": "name"})
        return self._result(
            table,
            name="levels",
            reading=" ".join(texts[:3]),
            caption=f"Pearson's r with {name} at three levels, by {system}",
            caveats=self._pooled(),
            plot=partial(plots.forest, lines, rows="name", by="level"),
            view=rows[["judge", "level", *INTERVAL, "n", "missing"]],
        )

    @analysis
    def effective_judges(self, **resampling: Any) -> Result:
        """How many independent judges these amount to, and what one more would add."""
        self._require_two_judges()
        truth, name = truth_of(self)
        columns, caveats = self._on_scale_of(truth)
        errors = columns.sub(truth, axis=0)
        spread = errors.dropna().max() - errors.dropna().min()
        constant = list(spread.index[spread < 1e-9])
        if constant:  # such as of a judge without an error
            caveats.append(f"all errors are equal, and left out: {names_of(constant)}")
            errors = errors.drop(columns=constant)
        if errors.shape[1] < 2:
            raise NotComputed("; ".join(["fewer than two judges have errors that vary", *caveats]))
        table = metrics.effective_judges(errors, groups=self.groups, **options(**resampling))
        return self._result(
            table.rename_axis("quantity"),
            name="effective_judges",
            reading=readings.error_correlation(table, errors.shape[1]),
            caption=f"Independent judges that {errors.shape[1]} amount to; errors against {name}",
            caveats=[*caveats, *self._pooled()],
        )

    def panel(self, name: str = "mean of the judges") -> Scores:
        """The same table with the mean of the judges' scores, on people's scale, as one more judge.

        Items that a judge did not score have no mean.
        """
        columns = DataFrame({judge: self._on_peoples_scale(judge) for judge in self.judges})
        frame = self.frame.assign(**{name: columns.mean(axis=1, skipna=False)})
        return replace(self, frame=frame, judges=[*self.judges, name])

    @analysis
    def corrected(
        self, labels: int = 300, *, threshold: float | None = None, seed: int | None = None
    ) -> Result:
        """What a few random labels correct: the mean score and the share of good answers.

        Args:
            labels: how many random items keep people's score; all others count as unlabelled.
            threshold: from which score on an answer is good; None takes the upper quarter of the
                scale.
            seed: of the draw.

        Returns:
            Rows (quantity, judge): judge_alone, corrected with low and high, labels_alone, and
            people, what people say on all items, which one does not know in practice.
        """
        truth, _ = truth_of(self)
        n_true = int(truth.notna().sum())
        if n_true <= labels:
            raise NotComputed(f"{n_true} items have a truth: draw fewer than that, labels=")
        *_, run, caveats = self._comparable()
        lowest, highest = self.scale or (truth.min(), truth.max())
        cutoff = lowest + 0.75 * (highest - lowest) if threshold is None else threshold
        rng = np.random.default_rng(current().seed if seed is None else seed)
        drawn = rng.choice(np.flatnonzero(truth.notna()), size=labels, replace=False)
        labelled = truth.where(np.isin(np.arange(len(truth)), drawn))
        rows = []
        for judge in run["judge"].unique():
            column = self._on_peoples_scale(judge)
            estimates = [_corrected_mean(judge, column, labelled, truth, self.groups)]
            try:
                share = _corrected_share(judge, column, labelled, truth, cutoff, self.groups)
                estimates.append(share)
            except ValueError as error:
                caveats.append(f"{judge}: no corrected share of {cutoff:g} or more: {error}")
            for row, limits in estimates:
                rows.append(row)
                caveats += [f"{judge}, {row['quantity']}: {text}" for text in limits]
        table = DataFrame(rows)
        table["holds_people"] = table["people"].between(table["low"], table["high"])
        means = table[table["quantity"] == "mean score"].head(3)
        texts = []
        for _, row in means.rename(columns={"corrected": "estimate"}).iterrows():
            alone = short(row["judge_alone"])
            texts.append(f"{row['judge']} alone says {alone}, corrected {readings.bounds(row)}")
        return self._result(
            table,
            name="corrected",
            reading=(
                f"Mean score: {'; '.join(texts)}; people say {short(truth.mean())} on all items."
            ),
            caption=(
                f"Corrected by {labels} random labels of {n_true:,} (a good answer has {cutoff:g}"
                " or more)"
            ),
            caveats=caveats,
        )

    @analysis
    def missing(self) -> Result:
        """Count what each judge and each person did not score, and why where a run says it."""
        scored = self.frame[[*self.judges, *self.people]].count()
        table = scored.rename_axis("who").reset_index(name="scored")
        table.insert(1, "kind", ["judge"] * len(self.judges) + ["person"] * len(self.people))
        table["missing"] = len(self) - table["scored"]
        runs = self.verdicts
        if runs is not None and "failure" in runs:
            causes = runs["failure"].astype("string").str.split(":").str[0].dropna()
            reasons = pd.crosstab(runs["judge"].reindex(causes.index), causes)
            closed = runs["closed"].eq(True).groupby(runs["judge"]).sum().rename("closed")
            counts = reasons.join(closed, how="outer").fillna(0).astype(int)
            table = table.join(counts.astype("Int64"), on="who")
        gone = table[table["missing"] > 0]
        lost = ", ".join(f"{row['who']} {row['missing']:,}" for _, row in gone.iterrows())
        reading = f"Every judge and person scored all {len(self):,} items."
        if lost:
            reading = f"Without a score of {len(self):,} items: {lost}."
        return self._result(
            table,
            name="missing",
            reading=reading,
            caption=f"Scores of {self.about} by judge and person",
        )

    # --- all of it

    def all(self, **resampling: Any) -> Results:
        """Every analysis of these scores by name; one that does not apply says why."""
        results = Results(
            missing=self.missing(),
            correlation=self.correlate(**resampling),
            comparison=self.compare(**resampling),
            raters=self.raters(**resampling),
            agreement=self.agreement(**resampling),
            confusion=self.confusion(),
            calibration=self.calibration(**resampling),
            scatter=self.scatter(),
            length=self.length(),
        )
        if self.benchmarks is not None:
            results["correlation_by_benchmark"] = self.correlate(by="benchmark", **resampling)
        if self.system is not None:
            results["levels"] = self.levels(**resampling)
        return results


# --- Parts of analyses


def _by_statistic(table: DataFrame, by: str | None) -> DataFrame:
    """Correlations as papers print them: a row a judge (and part), a column a statistic."""
    texts = table.assign(text=[short(*row) for row in table[INTERVAL].to_numpy(float)])
    keys = list(filter(None, [by, "judge"]))
    wide = texts.set_index([*keys, "statistic"])["text"].unstack(sort=False)
    wide = wide.rename(columns=str.capitalize)
    counts = table.groupby(keys, sort=False)[["n", "missing"]].max()
    return wide.join(counts).reset_index()


def _lengths(column: Series) -> Series:
    """The length of each response in words; a column of numbers is lengths already."""
    if pd.api.types.is_numeric_dtype(column):
        return column.astype(float)
    return metrics.lengths(column).astype(float)


def _corrected_mean(
    judge: str, column: Series, labels: Series, truth: Series, groups: Series | None
) -> Corrected:
    """The mean score of all items, by a judge and a few labels."""
    table = metrics.prediction_powered_mean(column, labels, groups=groups)
    row = {
        "quantity": "mean score",
        "judge": judge,
        "judge_alone": column.mean(),
        **table.loc["prediction_powered", INTERVAL].rename({"estimate": "corrected"}),
        "labels_alone": table.loc["labels_alone", "estimate"],
        "people": truth.mean(),
    }
    return row, table.attrs["caveats"]


def _corrected_share(
    judge: str,
    column: Series,
    labels: Series,
    truth: Series,
    cutoff: float,
    groups: Series | None,
) -> Corrected:
    """The share of answers with a score of `cutoff` or more; ValueError: too few labels."""
    good, right, people = (
        values.ge(cutoff).astype(float).where(values.notna()) for values in (column, labels, truth)
    )
    rate = metrics.corrected_rate_from_labels(good, right, groups=groups)
    row = {
        "quantity": f"share of {cutoff:g} or more",
        "judge": judge,
        "judge_alone": good.mean(),
        "labels_alone": right.mean(),
        **rate[INTERVAL].rename({"estimate": "corrected"}),
        "people": people.mean(),
    }
    return row, rate.attrs["caveats"]
