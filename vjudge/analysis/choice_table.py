"""`choices`: one table of judges' and people's verdicts on pairs; its methods are the analyses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pandas import DataFrame, Series

from vjudge import metrics, plots, probes
from vjudge.analysis import readings
from vjudge.analysis.score_table import COMPARED_COLUMNS
from vjudge.analysis.sources import rating_table
from vjudge.analysis.tables import RatingTable, stacked
from vjudge.data.schema import Items
from vjudge.metrics.intervals import INTERVAL
from vjudge.results import NotComputed, Result, Results, analysis, current

# Statistic of `metrics.win_rate` -> its label in the figure
OUTCOME_LABELS = {"win": "A is better", "tie": "no difference", "loss": "B is better"}
COUNTED = {  # statistic of `metrics.pairwise_accuracy` -> what it counts
    "with_ties": "same choice, ties included",
    "both_decided": "both decide",
    "all_pairs": "all pairs, a missing verdict is wrong",
}


def choices(
    data: DataFrame | Mapping[str, DataFrame],
    judges: Sequence[str] | None = None,
    people: str | None = None,
    *,
    items: Items | None = None,
    **columns: Any,
) -> Choices:
    """Put judges' and people's verdicts on the same pairs into one table.

    Args:
        data: a run, as `Judge.compare` returns it; several runs by the judge's name; or, together
            with `judges`, a wide frame with one row per pair.
        judges: for a wide frame, the columns with each judge's verdict: "a", "b", "tie" or another
            spelling that `metrics.win_rate` reads; missing where there is none.
        people: for a wide frame, the column with people's preference.
        items: for runs, the collection that was compared.
        columns: the roles of further columns and other fields of `RatingTable`: group (the unit of
            resampling), benchmark, systems (two columns: the models that wrote responses a and b);
            about (what captions call the pairs), caveats. A run brings its group.

    Returns:
        A table of choices; see `Choices` for its analyses.

    Raises:
        ValueError: a column is absent or named twice, a run has no verdicts, or two are of one
            judge.
        NotComputed: a column of `systems` is absent.

    >>> frame = DataFrame({"judge": ["a", "b", "a", "tie"], "people": ["a", "b", "b", "tie"]})
    >>> float(choices(frame, ["judge"], "people").accuracy().table["estimate"].iloc[0])
    0.75
    """
    table = rating_table(Choices, data, judges, people, items, "verdict", columns)
    if judges is None:
        # A run has people's preference in the column of this name, if at all; a choice has neither
        # gold nor a scale
        preference = [name for name in ["preference"] if name in table.frame]
        table = replace(table, people=preference, gold=None, scale=None, scales={})
    for name in table.systems or ():
        table.column(name)  # NotComputed where the frame has no such column
    return table


@dataclass(frozen=True, eq=False, repr=False)
class Choices(RatingTable):
    """Judges' and people's verdicts on the same pairs; `choices` makes it.

    Attributes:
        systems: the two columns with the models that wrote responses a and b; None where they are
            unknown.
    """

    systems: tuple[str, str] | None = None

    def preference(self) -> Series:
        """Return people's choice for each pair.

        Raises:
            NotComputed: there is none.
        """
        if not self.people:
            raise NotComputed(
                "nobody says which response is better: add the column preference (a, b or tie)"
            )
        return self.frame[self.people[0]]

    @analysis
    def win_rates(self) -> Result:
        """Estimate how often each judge, and people, choose response a, response b, or neither."""
        rates = {}  # rater -> table of `metrics.win_rate`
        for name in [*self.people[:1], *self.judges]:  # people have one column of preferences
            rater = "people" if name in self.people else name
            rates[rater] = metrics.win_rate(
                self.frame[name], groups=self.groups, confidence=current().confidence
            )
        table = stacked([rate.reset_index().assign(judge=rater) for rater, rate in rates.items()])
        table.insert(0, "judge", table.pop("judge"))
        # The reading names the first four
        wins = table[table["statistic"] == "win_ties_half"].dropna().head(4)
        texts = [f"{row['judge']} {readings.bounds(row)}" for _, row in wins.iterrows()]
        return self._result(
            table,
            name="win_rates",
            reading=f"Share of response A, ties counted half: {'; '.join(texts)}.",
            caption=f"Verdicts on {self.about}",
            plot=partial(plots.preference_bars, rates, labels=OUTCOME_LABELS),
            view=table[table["statistic"].isin(["win", "tie", "loss"])].drop(columns="missing"),
        )

    @analysis
    def accuracy(self, by: str | None = None) -> Result:
        """Estimate how often each judge chooses as people do, for each treatment of ties.

        Args:
            by: a column or its role ("group", "benchmark"): the share within each of its values;
                None takes all pairs together.

        Returns:
            The columns of `metrics.pairwise_accuracy`, one row per judge, value of `by`, and
            statistic.
        """
        human = self.preference()
        subsets = Series("all", self.frame.index) if by is None else self.column(by)
        tables = []
        for subset in subsets.dropna().unique():
            within = replace(self, frame=self.frame[subsets == subset])
            for judge in self.judges:
                table = metrics.pairwise_accuracy(
                    within.frame[judge], human[subsets == subset], groups=within.groups
                )
                # Without `by` there is one subset, whose column is dropped below
                names = {"judge": judge, by or "subset": str(subset)}
                tables.append(table.reset_index().assign(**names))
        table = stacked(tables)
        if by is not None:
            rows = table[table["statistic"] == "with_ties"]
            label = "share of pairs, ties included"
            return self._result(
                table,
                name=f"accuracy_by_{by}",
                reading=readings.shared_choices(rows, f"Within a {by}, "),
                caption=f"Share of pairs on which a judge chooses as people, by {by}",
                plot=partial(plots.heatmap, rows, columns=by, label=label),
            )
        # The view has the judges in the order of their share, the highest first, of the pairs on
        # which both the judge and people decide
        decided = table[table["statistic"] == "both_decided"]
        order = decided.sort_values("estimate", ascending=False)["judge"].tolist()
        view = table[table["statistic"].isin(COUNTED)]
        view = view.assign(counted=view["statistic"].map(COUNTED))
        view = view.sort_values("judge", key=lambda names: names.map(order.index), kind="stable")
        return self._result(
            table.drop(columns="subset"),
            name="accuracy",
            reading=readings.shared_choices(decided, "Where both decide, "),
            caption=f"Share of pairs on which a judge chooses as people, {self.about}",
            plot=partial(plots.forest, view, by="counted", label="share of pairs", reference=0.5),
            view=view[["judge", "counted", *INTERVAL, "n", "missing"]],
        )

    @analysis
    def compare(self) -> Result:
        """Test for each two judges which chooses as people do more often, on the same pairs."""
        human = self.preference()
        self._require_two_judges()
        table = metrics.compare_choices(human, self.frame[self.judges], groups=self.groups)
        rows = table.xs("without_ties", level="measure").reset_index()
        return self._result(
            table.reset_index(),
            name="choice_comparison",
            reading=readings.comparisons(rows, "chooses as people do more often"),
            caption="Differences of shares: decided pairs on which a judge chooses as people do",
            plot=partial(plots.who_beats_whom, table, statistic="without_ties"),
            view=rows[COMPARED_COLUMNS],
        )

    @analysis
    def positions(self) -> Result:
        """Test whether the order of two responses changes a judge's choice: `probes.position`."""
        runs = self.verdicts
        if runs is None or not {"verdict_ab", "verdict_ba"} <= set(runs):
            raise NotComputed(
                'both orders of every pair are needed: grade by judge.compare(orders="both")'
            )
        return probes.position(runs)

    @analysis
    def bradley_terry(self, judge: str | None = None) -> Result:
        """Estimate the strength of each system by the Bradley-Terry model.

        Args:
            judge: the judge whose verdicts are used; None means people's preferences.
        """
        if self.systems is None:
            raise NotComputed("name the two columns with the systems: vj.choices(systems=(a, b))")
        verdicts = self.preference() if judge is None else self.frame[judge]
        # For each pair, the system that wrote response a, and the one that wrote response b
        a, b = (self.frame[name] for name in self.systems)
        table = metrics.bradley_terry(a, b, verdicts, groups=self.groups)
        return self._result(
            table,
            name="bradley_terry",
            reading=readings.ranking(list(table.index), table, "strength"),
            caption=f"Bradley-Terry strengths of systems by the verdicts of {judge or 'people'}",
            plot=partial(
                plots.forest,
                table.reset_index(names="judge"),
                label="strength in logits, of mean 0",
            ),
        )

    def baselines(self) -> Choices:
        """Return this table unchanged, since only scores have baselines (`Scores.baselines`)."""
        return self

    def all(self, **resampling: Any) -> Results:
        """Compute every analysis of these choices, by name; one that does not apply says why.

        Args:
            resampling: not used; it is there so that scores and choices can be called alike.
        """
        results = Results(
            win_rates=self.win_rates(),
            accuracy=self.accuracy(),
            comparison=self.compare(),
            positions=self.positions(),
        )
        if self.systems is not None:
            results["bradley_terry"] = self.bradley_terry()
        return results
