"""`scores`: one table of judges' and people's scores; its methods are the analyses.

Each method calls functions of `vjudge.metrics` and `vjudge.probes` and returns a `Result`.
"""

from __future__ import annotations

import re
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
from vjudge.analysis.few_labels import correct_by_labels
from vjudge.analysis.inspection import rouge_l
from vjudge.analysis.scales import (
    comparable_columns,
    comparable_scores,
    human_levels,
    rescaled,
)
from vjudge.analysis.sources import rating_table
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
ROUGE = "ROUGE-L with the reference"
LENGTH = "length of the response"
POOLED = (
    "items of several benchmarks are pooled, so that what these differ by counts as agreement:"
    " where(benchmark=...) looks within one"
)
MAX_SUBSETS = 60  # `correlate(by=)` refuses a column with more different values
MAX_UNBINNED = 11  # the calibration of a judge with more different scores is computed in bins
N_BINS = 10  # the number of those bins
COMPARED_COLUMNS = ["a", "b", "difference", "low", "high", "p", "p_holm", "n"]


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
        data: a run, as `Judge.grade` returns it; several runs by the judge's name; or, together
            with `judges`, a wide frame with one row per item.
        judges: for a wide frame, the columns with each judge's scores, on any scale; NaN where a
            score is missing.
        people: for a wide frame, the columns with each person's scores, or one column with lists
            of scores, in which the position is the rater.
        items: for runs, the collection that was graded; it adds responses, references and people's
            scores.
        score: for runs, the column that counts, "score" or "expected_score".
        columns: the roles of further columns and other fields of `RatingTable`: gold (the true
            score; where it is missing, the mean of people is the truth), group (the unit of
            resampling, such as the image), benchmark, system, response (its text or its length);
            scale (people's lowest and highest score), scales (by judge, such as
            {"GPT-4o": (0, 10)}); about (what captions call the items), caveats. A run brings its
            group and its scale.

    Returns:
        A table of scores; see `Scores` for its analyses.

    Raises:
        ValueError: a column is absent or named twice, a group or benchmark is missing, a run has no
            verdicts, or two runs are of one judge.
        TypeError: a score is not a number, `data` is not a frame, or a keyword is unknown.

    >>> frame = DataFrame({"a": [1, 2, 3, 4], "b": [2, 1, 4, 3], "people": [1, 2, 3, 4]})
    >>> table = scores(frame, judges=["a", "b"], people="people")
    >>> table.correlate(n_resamples=0).table.query("statistic == 'pearson'")["estimate"].tolist()
    [1.0, 0.6]
    """
    table = rating_table(Scores, data, judges, people, items, score, columns)
    if table.verdicts is not None and "score" not in table.verdicts:
        raise ValueError("these are verdicts on pairs: use vj.choices")
    # Numbers may come as texts or objects: convert them, or name the cells that are none
    frame = table.frame.copy()
    numeric = [*table.judges, *table.people]
    if table.gold is not None:
        numeric.append(table.gold)
    for name in numeric:
        frame[name] = as_floats(frame[name], name=name)
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
    """Write every analysis into a folder; deprecated: use `scores(...).paper(...)`.

    Args:
        frame, judges, human, roles: the arguments data, judges, people and columns of `scores`.
        out, venue, n_resamples, seed: as for `RatingTable.paper`.

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

    Each method is an analysis and returns a `Result`. Where the resampling options (n_resamples,
    seed, confidence) are not given, those of `vjudge.settings` hold.
    """

    # --- the columns

    def truth(self) -> Series:
        """Return the gold score of each item, or the mean of people where gold is missing.

        Raises:
            NotComputed: no item has either.
        """
        return truth_of(self)[0]

    def baselines(self) -> Scores:
        """Add judges that never look at an image, which a real judge has to beat.

        They are the length of the response in words, and ROUGE-L, the F1 of the longest common
        subsequence of words of the response and the reference answer. A baseline whose texts are
        absent is not added.

        Source: Lin, ROUGE (2004).
        """
        columns = {}
        if self.response is not None:
            responses = self.frame[self.response]
            columns[LENGTH] = _lengths(responses)
            if "reference_answer" in self.frame:
                f1 = map(rouge_l, responses, self.frame["reference_answer"])
                columns[ROUGE] = Series(list(f1), self.frame.index)
        columns = {name: column for name, column in columns.items() if column.notna().any()}
        frame = self.frame.assign(**columns)
        return replace(self, frame=frame, judges=[*self.judges, *columns])

    def panel(self, name: str = "mean of the judges") -> Scores:
        """Add the mean of the judges' scores, on people's scale, as one more judge.

        An item that a judge did not score has no mean.
        """
        columns = DataFrame({judge: rescaled(self, judge) for judge in self.judges})
        frame = self.frame.assign(**{name: columns.mean(axis=1, skipna=False)})
        return replace(self, frame=frame, judges=[*self.judges, name])

    def _pooling_caveats(self) -> list[str]:
        """List the caveat of a number that pools several benchmarks; empty for one benchmark."""
        return [] if self.benchmarks is None else [POOLED]

    def _units(self, new_systems: bool) -> Series | list[Series] | None:
        """Return the units of resampling.

        Args:
            new_systems: whether systems are a sample, too. Resampling is then crossed: it takes two
                columns, the groups and the systems, and items without a group are one group each.
        """
        if not new_systems:
            return self.groups
        groups = Series(self.frame.index, self.frame.index) if self.groups is None else self.groups
        return [groups, self.column("system")]

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
            by: a column or its role ("group", "benchmark", "system"): adds the correlations within
                each of its values. None correlates over all items only.
            statistic: what figure and reading show: "pearson", "spearman" or "kendall".
            new_systems: whether intervals hold for other systems, too, and not only for these. This
                takes the column with the systems, and at least five of them.
            resampling: n_resamples, seed, confidence.

        Returns:
            The columns of `metrics.correlate`, one row per judge, value of `by`, and statistic.
            With several benchmarks, "overall" is the weighted mean of the correlations within each.
        """
        truth, truth_name = truth_of(self)
        table = self._correlations(truth, by, options(**resampling), new_systems)
        rows = table[table["statistic"] == statistic].reset_index(drop=True)
        label = f"{readings.SYMBOLS[statistic]} with {truth_name}"
        if by is None:
            name = "correlation"
            subject = truth_name
            reading = readings.truth_correlations(rows, truth_name, statistic)
            best_first = rows.sort_values("estimate", ascending=False, kind="stable")
            plot = partial(plots.forest, best_first.reset_index(drop=True), label=label)
        else:
            slug = re.sub(r"\W", "_", by.lower()).strip("_")
            name = f"correlation_by_{slug}"
            subject = f"{truth_name} by {by}"
            reading = readings.by_subset(rows, truth_name, by, OVERALL)
            plot = partial(plots.heatmap, rows, columns=by, label=label)
        return self._result(
            table,
            name=name,
            reading=reading,
            caption=f"Agreement of judges with {subject}, {self.about}",
            plot=plot,
            view=_by_statistic(table, by),
        )

    def _correlations(
        self,
        truth: Series,
        by: str | None,
        resampling: Mapping[str, Any],
        new_systems: bool = False,
    ) -> DataFrame:
        """Correlate each judge with the truth overall, and within each value of `by`.

        Args:
            truth: the truth of each item.
            by, resampling, new_systems: as for `correlate`, with all resampling options.

        Returns:
            One row per judge, subset and statistic: judge, `by` (or benchmark where `by` is None)
            with the subset's name or "overall", statistic, estimate, low, high, n, missing.
        """
        subsets = {OVERALL: np.ones(len(self.frame), dtype=bool)}  # name -> mask of rows
        if by is not None:
            column = self.column(by)
            if column.nunique() > MAX_SUBSETS:
                raise NotComputed(
                    f"{by!r} has {column.nunique()} values, and a table holds {MAX_SUBSETS}: group"
                    " them, or look within it by levels()"
                )
            subsets |= {str(value): (column == value).to_numpy() for value in column.unique()}
        key = by or "benchmark"
        tables = []
        for subset, mask in subsets.items():
            within = replace(self, frame=self.frame[mask])
            for judge in self.judges:
                # Strata make the overall number a mean over benchmarks; a subset pools its items
                table = metrics.correlate(
                    within.frame[judge],
                    truth[mask],
                    groups=within._units(new_systems),
                    strata=self.benchmarks if subset == OVERALL else None,
                    **resampling,
                )
                tables.append(table.reset_index().assign(**{"judge": judge, key: subset}))
        return stacked(tables)[["judge", key, "statistic", *INTERVAL, "n", "missing"]]

    @analysis
    def ranks(self, by: str = "benchmark", *, statistic: StatisticName = "pearson") -> Result:
        """Rank the judges by their correlation with the truth, within each value of a column.

        Args:
            by: a column or its role, with at least two values.
            statistic: "pearson", "spearman" or "kendall".

        Returns:
            One row per judge and value: judge, `by`, estimate, rank (1 is best, ties share the
            better rank), n, missing.
        """
        truth, name = truth_of(self)
        table = self._correlations(truth, by, {"n_resamples": 0})  # ranks need no intervals
        rows = table[(table["statistic"] == statistic) & (table[by] != OVERALL)]
        rows = rows.reset_index(drop=True)
        if rows["estimate"].isna().all() or rows[by].nunique() < 2:
            raise NotComputed(f"ranks take correlations within two values of {by!r}")
        rows["rank"] = rows.groupby(by)["estimate"].rank(ascending=False, method="min")
        # The best mean rank comes first
        mean_ranks = rows.groupby("judge", sort=False)["rank"].mean().sort_values()
        best = mean_ranks.index[0]
        n_first = int((rows.loc[rows["judge"] == best, "rank"] == 1).sum())
        return self._result(
            rows[["judge", by, "estimate", "rank", "n", "missing"]],
            name="ranks",
            reading=(
                f"{best} has the best mean rank, {mean_ranks.iloc[0]:.1f}, and is first in"
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
        """Test for each two judges which agrees better with the truth, on the items both scored.

        Args:
            statistic, new_systems, resampling: as for `correlate`.

        Returns:
            The table of `metrics.compare_judges`: one row per pair of judges and statistic.
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
            view=pairs[COMPARED_COLUMNS],
        )

    @analysis
    def raters(self, *, statistic: StatisticName = "pearson", **resampling: Any) -> Result:
        """Compare judges with people: does a judge agree with people as well as a person does?

        Each person is left out in turn and correlated with the mean of the other people. A judge is
        correlated with the same means, on the same items.

        Args:
            statistic, resampling: as for `correlate`.

        Returns:
            The table of `metrics.raters`.
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
        # People and judges apart, each by estimate; the kind of the highest estimate comes first
        rows = pd.concat([rows[rows["kind"] == kind] for kind in rows["kind"].unique()])
        # Figure and reading take the name of a person or judge from a column "judge"
        lines = rows.rename(columns={"who": "judge"})
        symbol = readings.SYMBOLS[statistic]
        return self._result(
            table,
            name="raters",
            reading=readings.judge_beside_people(lines),
            caption=f"{symbol} of people and judges, each with the mean of the same other people",
            caveats=self._pooling_caveats(),
            plot=partial(plots.forest, lines, by="kind", label=f"{symbol} with the others"),
            view=rows[["who", "kind", *INTERVAL, "n", "missing"]],
        )

    @analysis
    def agreement(self, **resampling: Any) -> Result:
        """Measure how well people agree with each other.

        Args:
            resampling: n_resamples, seed, confidence.

        Returns:
            The table of `metrics.agreement`.
        """
        self._require_people(2)
        table = metrics.agreement(
            self.frame[self.people],
            scale=human_levels(self),
            groups=self.groups,
            **options(**resampling),
        )
        return self._result(
            table,
            name="agreement",
            reading=readings.rater_agreement(table, len(self.people)),
            caption=f"Agreement of {len(self.people)} people, {self.about}",
            caveats=self._pooling_caveats(),
        )

    @analysis
    def alt_test(self, epsilon: float = 0.2, *, confidence: float | None = None) -> Result:
        """Test whether each judge may replace a person: the alternative annotator test.

        A judge on another scale than people's is rescaled first, which a caveat says.

        Args:
            epsilon: how much more often a person may win while the judge, who costs less, is still
                the better choice: .2 where people are experts, .15 trained, .1 a crowd.
            confidence: the coverage of intervals.

        Returns:
            One row per judge: judge, winning_rate (share of the people it beats), advantage (the
            share of items on which it is at least as close to the other people), low, high,
            people_beaten, people_tested, missing.
        """
        self._require_people(3)
        people = self.frame[self.people]
        columns, caveats = comparable_columns(self, people.mean(axis=1))
        rows = []
        tests = []
        for judge, scores in columns.items():
            test = metrics.alt_test(
                people,
                scores,
                measure="rmse",
                epsilon=epsilon,
                groups=self.groups,
                confidence=confidence or current().confidence,
            )
            tests.append(test)
            rows.append(_alt_test_row(test, judge))
        table = DataFrame(rows)
        # The figure draws the column "estimate"
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

    # --- single scores

    @analysis
    def confusion(self) -> Result:
        """Count each judge's scores at each level of the truth.

        Returns:
            One row per judge, truth and score, each at the nearest level: judge, truth, score,
            items (their number). NaN stands for a missing truth or score.
        """
        judged = comparable_scores(self)
        rows = judged.rows
        scale = human_levels(self) or None
        ticks = score_levels(rows["score"], rows["gold"], scale=scale)  # the levels, lowest first
        cells = rows.assign(
            truth=nearest_level(rows["gold"], ticks),
            score=nearest_level(rows["score"], ticks),
        ).groupby(["judge", "truth", "score"], dropna=False)
        table = cells.size().rename("items").reset_index()
        # False, too, where the score or the truth is missing
        is_exact = (rows["score"] - rows["gold"]).abs() < 0.5
        exact = is_exact.groupby(rows["judge"], sort=False).mean()
        shares = ", ".join(f"{judge} {short(share)}" for judge, share in exact.items())
        name = judged.truth_name
        return self._result(
            table,
            name="confusion",
            reading=f"Share of items less than half a point from {name}: {shares}.",
            caption=f"Numbers of items by score and {name}, {self.about}; shade: share of a row",
            caveats=judged.caveats,
            plot=partial(plots.confusion, rows, truth_name=name, scale=scale),
            data=rows[["judge", "id", "gold", "score"]],
        )

    @analysis
    def calibration(self, **resampling: Any) -> Result:
        """Compute the mean truth at each score of a judge, and the judge's bias and error.

        Args:
            resampling: n_resamples, seed, confidence.

        Returns:
            Two rows per judge, the means of score minus truth and of its absolute value: judge,
            measure, estimate, low, high, n, missing. The figure draws the mean truth at each score,
            or in ten bins where a judge gives more than eleven different scores.
        """
        judged = comparable_scores(self)
        name = judged.truth_name
        curves = {}  # judge -> the table that the figure draws
        errors = []  # one table per judge, with rows bias and mae
        for judge, rows in judged.rows.groupby("judge", sort=False):
            # None: each different score is a point of the curve
            bins = N_BINS if rows["score"].nunique() > MAX_UNBINNED else None
            # Without groups the column "group" holds row numbers, and items are independent
            groups = None if self.groups is None else rows["group"]
            curves[str(judge)] = metrics.calibration_curve(
                rows["score"], rows["gold"], bins=bins, groups=groups
            )
            error = metrics.calibration_errors(
                rows["score"], rows["gold"], groups=groups, **options(**resampling)
            )
            errors.append(error.reset_index(names="measure").assign(judge=judge))
        table = stacked(errors).replace(
            {"measure": {"bias": "score less truth", "mae": "absolute error"}}
        )
        biases = table[table["measure"] == "score less truth"]
        return self._result(
            table[["judge", "measure", *INTERVAL, "n", "missing"]],
            name="calibration",
            reading=readings.bias(biases, name),
            caption=f"The mean of the truth ({name}) at each score of a judge",
            caveats=judged.caveats,
            plot=partial(plots.calibration_curve, curves, label=name.removeprefix("the ")),
            data=pd.concat(curves, names=["judge_name", "row"]).droplevel("row").reset_index(),
        )

    @analysis
    def scatter(self) -> Result:
        """Draw each judge's scores against the truth.

        Returns:
            One row per judge and whole level of the truth: judge, truth, and mean, std and count of
            the judge's scores there.
        """
        judged = comparable_scores(self)
        name = judged.truth_name
        rows = judged.rows.assign(truth=judged.rows["gold"].round())
        by_level = rows.groupby(["judge", "truth"])["score"].agg(["mean", "std", "count"])
        # Judges stay in their order, each with its levels from the lowest truth to the highest
        table = by_level.reindex(rows["judge"].unique(), level="judge").reset_index()
        texts = []
        for judge, means in table.dropna(subset="mean").groupby("judge", sort=False)["mean"]:
            texts.append(f"{judge} {short(means.iloc[0])} to {short(means.iloc[-1])}")
        return self._result(
            table,
            name="scatter",
            reading=f"Mean scores from the lowest to the highest truth: {'; '.join(texts)}.",
            caption=f"Scores of each judge against {name}, {self.about}",
            caveats=judged.caveats,
            plot=partial(plots.agreement_scatter, judged.rows),
            data=judged.rows[["judge", "id", "gold", "score"]],
        )

    @analysis
    def disagreements(self, n: int = 10) -> Result:
        """List the `n` scores that are furthest from the truth, the largest gap first.

        Returns:
            One row per score: id, group, judge, score, gold, gap (score minus gold).
        """
        comparable = comparable_scores(self)
        truth_name = comparable.truth_name
        # One row per judge and item; the gap is NaN where the score or the truth is missing
        rows = comparable.rows.assign(gap=comparable.rows["score"] - comparable.rows["gold"])
        by_distance = rows.dropna(subset="gap").sort_values(
            "gap", key=abs, ascending=False, kind="stable"
        )
        furthest = by_distance.head(n)
        # Row numbers become ids where the table has a column of ids
        for column in ("id", "item"):
            if column in self.frame:
                ids = self.frame[column].reindex(furthest["id"])
                furthest = furthest.assign(id=ids.to_numpy())
                break
        return self._result(
            furthest[["id", "group", "judge", "score", "gold", "gap"]].reset_index(drop=True),
            name="disagreements",
            reading=readings.far_scores(rows, truth_name, self.scale),
            caption=f"The {len(furthest)} scores furthest from {truth_name}",
            caveats=comparable.caveats,
        )

    # --- what scores depend on

    @analysis
    def length(self) -> Result:
        """Fit the slope of each judge's score on the length of the response at equal truth.

        Returns:
            The result of `probes.length`.
        """
        if self.response is None:
            raise NotComputed(
                "no response is known: give the collection as items=, or name the column response="
            )
        judged = comparable_scores(self)
        result = probes.length(judged.rows)
        result.add_caveats(judged.caveats)
        result.add_data_caveats(self.caveats)
        return result

    @analysis
    def levels(
        self, judge: str | None = None, *, system: str = "system", **resampling: Any
    ) -> Result:
        """Correlate over all items, between the systems' means, and within systems.

        Args:
            judge: the judge whose scores are correlated; None takes all judges.
            system: the column with the model that answered, or another grouping to look within.
            resampling: n_resamples, seed, confidence.

        Returns:
            The table of `metrics.correlate_levels`, with a column judge.
        """
        truth, name = truth_of(self)
        systems = self.column(system)
        judges = self.judges if judge is None else [judge]
        tables = []
        texts = []
        for judge_name in judges:
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
        lines = rows.rename(columns={"judge": "name"})  # the figure takes rows by "name"
        return self._result(
            table,
            name="levels",
            reading=" ".join(texts[:3]),  # of the first three judges
            caption=f"Pearson's r with {name} at three levels, by {system}",
            caveats=self._pooling_caveats(),
            plot=partial(plots.forest, lines, rows="name", by="level"),
            view=rows[["judge", "level", *INTERVAL, "n", "missing"]],
        )

    @analysis
    def effective_judges(self, **resampling: Any) -> Result:
        """Estimate how many independent judges these are worth, and what one more would add.

        Args:
            resampling: n_resamples, seed, confidence.

        Returns:
            The table of `metrics.effective_judges`.
        """
        self._require_two_judges()
        truth, name = truth_of(self)
        columns, caveats = comparable_columns(self, truth)
        errors = columns.sub(truth, axis=0)  # (n_items, n_judges)
        # A correlation needs errors that vary on the items that all judges scored; those of a
        # judge that always hits the truth do not
        complete = errors.dropna()
        if complete.empty:
            raise NotComputed(
                "no item has a truth and a score of every judge: choose judges that scored the same"
                " items by only([...])"
            )
        spread = complete.max() - complete.min()
        constant = list(spread.index[spread < 1e-9])  # equal but for rounding
        if constant:
            caveats.append(f"all errors are equal, and left out: {names_of(constant)}")
            errors = errors.drop(columns=constant)
        n_judges = errors.shape[1]
        if n_judges < 2:
            raise NotComputed("; ".join(["fewer than two judges have errors that vary", *caveats]))
        table = metrics.effective_judges(errors, groups=self.groups, **options(**resampling))
        return self._result(
            table.rename_axis("quantity"),
            name="effective_judges",
            reading=readings.error_correlation(table, n_judges),
            caption=f"Independent judges that {n_judges} amount to; errors against {name}",
            caveats=[*caveats, *self._pooling_caveats()],
        )

    @analysis
    def corrected(
        self, labels: int = 300, *, threshold: float | None = None, seed: int | None = None
    ) -> Result:
        """Correct the mean score and the share of good answers by a few random labels.

        Args:
            labels: the number of random items that keep people's score; all others count as
                unlabelled.
            threshold: the lowest score of a good answer; None means three quarters up the scale.
            seed: the seed of the draw.

        Returns:
            One row per quantity and judge: judge_alone, corrected with low and high, labels_alone,
            and people, the value by people's scores of all items, which is unknown in practice.
        """
        return correct_by_labels(self, labels, threshold, seed)

    @analysis
    def missing(self) -> Result:
        """Count the missing scores of each judge and person, and their reasons where runs have any.

        Returns:
            One row per judge or person: who, kind ("judge" or "person"), scored, missing. Where the
            table was made of runs, one more column per reason with the number of verdicts that are
            missing for it, and `closed`, the number of closed verdicts.
        """
        scored = self.frame[[*self.judges, *self.people]].count()
        table = scored.rename_axis("who").reset_index(name="scored")
        table.insert(1, "kind", ["judge"] * len(self.judges) + ["person"] * len(self.people))
        table["missing"] = len(self) - table["scored"]
        runs = self.verdicts
        if runs is not None and "failure" in runs:
            # The text before the colon is the package's; a model's words may follow it
            reasons = runs["failure"].astype("string").str.split(":").str[0].dropna()
            counts = pd.crosstab(runs["judge"].reindex(reasons.index), reasons)
            closed = runs["closed"].eq(True).groupby(runs["judge"]).sum().rename("closed")
            # A person has no run: its cells of these columns are missing
            counts = counts.join(closed, how="outer").fillna(0).astype("Int64")
            table = table.join(counts, on="who")
        incomplete = table[table["missing"] > 0]
        reading = f"Every judge and person scored all {len(self):,} items."
        if len(incomplete):
            texts = [f"{row['who']} {row['missing']:,}" for _, row in incomplete.iterrows()]
            reading = f"Without a score of {len(self):,} items: {', '.join(texts)}."
        return self._result(
            table,
            name="missing",
            reading=reading,
            caption=f"Scores of {self.about} by judge and person",
        )

    # --- all of it

    def all(self, **resampling: Any) -> Results:
        """Compute the analyses of these scores, by name; one that does not apply says why.

        Args:
            resampling: n_resamples, seed, confidence.
        """
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
    """Arrange correlations as papers do: a row per judge (and subset), a column per statistic.

    A cell is a text such as ".45 [.40, .50]".

    Args:
        table: the table of `Scores._correlations`.
        by: its column of subsets; None where it has none.
    """
    # Each row of INTERVAL: estimate, low, high
    texts = table.assign(text=[short(*row) for row in table[INTERVAL].to_numpy(float)])
    keys = ["judge"] if by is None else [by, "judge"]
    wide = texts.set_index([*keys, "statistic"])["text"].unstack(sort=False)
    wide = wide.rename(columns=str.capitalize)
    counts = table.groupby(keys, sort=False)[["n", "missing"]].max()
    return wide.join(counts).reset_index()


def _alt_test_row(test: DataFrame, judge: str) -> dict[str, Any]:
    """Sum up the table of `metrics.alt_test`, with one row per person, in one row of the judge."""
    over_people = test.iloc[0]  # these columns hold the same number in each row
    return {
        "judge": judge,
        "winning_rate": over_people["winning_rate"],
        "advantage": over_people["advantage_probability"],
        "low": over_people["advantage_probability_low"],
        "high": over_people["advantage_probability_high"],
        "people_beaten": test["rejected"].sum(),
        "people_tested": test["p"].notna().sum(),
        "missing": test["missing"].iloc[0],
    }


def _lengths(responses: Series) -> Series:
    """Count the words of each response; a column of numbers holds lengths already."""
    if pd.api.types.is_numeric_dtype(responses):
        return responses.astype(float)
    return metrics.lengths(responses).astype(float)
