"""From a wide table of scores, one column a judge, to the tables and figures of a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from vjudge import metrics, plots, probes
from vjudge.metrics.tables import scores as numbers
from vjudge.plots.style import need

OVERALL = "overall"
MOST_LEVELS = 11  # of a scale whose scores are calibrated one by one, not in bins


FIGURES = "heatmap forest matrix ranks multiples confusion scatter calibration length".split()


class ScoreAnalysis(SimpleNamespace):
    """What `from_scores` computed: tables as frames, figures as matplotlib figures.

    Attributes:
        counts: one row a judge, and "human": n (items with a score) and missing.
        correlations: as `metrics.correlation_table` returns it, by benchmark and, of several
            benchmarks, "overall"; "people" is the agreement of one person with the others, where
            `human` names several columns.
        about: what all captions say: the items, the reference and how many scores each judge lacks.
        comparisons: as `metrics.compare_judges` returns it, over all items; None of a single judge.
        length_slopes: one row a judge: score points per doubling of the response's length at equal
            human score, as `probes.length` estimates it; None without responses.
        heatmap, forest, matrix, ranks, multiples, confusion, calibration, scatter, length: the
            figures; `matrix` needs two judges, `ranks` also several benchmarks, `multiples` several
            benchmarks, `length` responses; they are None otherwise.
        files: the paths that were written, by name and ending.
    """

    def draw(
        self, name: str, plot: Any, rows: Any, data: pd.DataFrame, caption: str, **options: Any
    ) -> None:
        """Draw a figure, keep it under its name, and write it where there is a folder."""
        figure = plot(rows, venue=self.venue, column="full", **options)
        setattr(self, name, figure)
        if self.out is not None:
            text = f"{caption}. {self.about}"
            paths = plots.save_figure(
                figure,
                name,
                caption=text,
                data=data,
                folder=self.out,
            )
            self.files[name] = paths

    def write(self, name: str, save: Any, table: pd.DataFrame, caption: str) -> None:
        """Write a table where there is a folder."""
        if self.out is not None:
            text = f"{caption}. {self.about}."
            self.files[name] = save(
                table,
                name,
                caption=text,
                folder=self.out,
                venue=self.venue,
            )


def from_scores(
    frame: pd.DataFrame,
    judges: Sequence[str],
    human: str | Sequence[str],
    *,
    benchmark: str | None = None,
    group: str | None = None,
    response: str | None = None,
    out: str | Path | None = None,
    venue: str = "neurips",
    n_resamples: int = 2_000,
    seed: int = 0,
) -> ScoreAnalysis:
    """Compute and draw how well judges agree with people, from a wide table of scores.

    Args:
        frame: one row an item. The other arguments name its columns.
        judges: the scores of each judge, on any scale; NaN where missing.
        human: people's scores; of several columns the mean of those that scored an item is the
            reference.
        benchmark: the benchmark of each item; None takes all items as one benchmark.
        group: the unit of resampling, such as the image; None resamples items.
        response: the text that was judged, for the slope of the score on its length.
        out: a folder for the figures (PDF, SVG, PNG, data, caption) and tables (LaTeX, CSV); None
            writes nothing.
        venue: whose page figures and tables fit, one of `plots.VENUES`.
        n_resamples, seed: of the bootstrap.

    Raises:
        ValueError: there is no such venue; a column is absent, or a benchmark or group is missing.
        TypeError: a score is no number.

    >>> frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": [2, 1, 4, 3], "people": [1, 2, 3, 4]})
    >>> analysis = from_scores(frame, ["a", "b"], "people", n_resamples=100)
    >>> pearson = analysis.correlations.query("statistic == 'pearson'").set_index("judge")
    >>> pearson["estimate"].round(2).to_dict()
    {'a': 1.0, 'b': 0.6}
    """
    # 1) check the venue and the columns, and read the scores
    plots.width(venue, "full")
    judges = list(judges)
    people = [human] if isinstance(human, str) else list(human)
    labels = [name for name in (benchmark, group, response) if name is not None]
    frame = need(
        frame,
        *judges,
        *people,
        *labels,
    ).reset_index(drop=True)
    for name in labels:
        if frame[name].isna().any():
            row = int(frame[name].isna().argmax())
            raise ValueError(f"row {row}: {name!r} is missing; fill it, or leave the row out")
    scores = pd.DataFrame({name: numbers(frame[name], name=name) for name in judges + people})
    reference = scores[people].mean(axis=1)
    columns = scores[judges].assign(human=reference)
    counts = pd.DataFrame({"n": columns.notna().sum(), "missing": columns.isna().sum()})
    about = f"{len(frame):,} items; reference: mean of {', '.join(people)}"
    lacking = ", ".join(f"{name} {count:,}" for name, count in counts["missing"].items())
    result = ScoreAnalysis(
        **dict.fromkeys([*FIGURES, "comparisons", "length_slopes"]),
        counts=counts.rename_axis("judge"),
        about=f"{about}. Missing scores: {lacking}",
        venue=venue,
        out=out,
        files={},
    )

    # 2) agreement by benchmark and overall
    options: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
    groups = pd.Series(range(len(frame))) if group is None else frame[group]
    parts = {OVERALL: frame.index}
    if benchmark is not None:
        parts = frame.groupby(frame[benchmark].astype(str), sort=False).groups | parts
    tables = {name: scores.loc[here, judges] for name, here in parts.items()}
    truth = {name: reference[here] for name, here in parts.items()}
    inside = {name: groups[here] for name, here in parts.items()}
    ceilings = {}
    for name, here in parts.items():
        if len(people) > 1:
            rated = scores.loc[here, people]
            ceilings[name] = metrics.human_ceiling(rated, groups=inside[name], **options)
    result.correlations = metrics.correlation_table(
        tables,
        truth,
        groups=inside,
        ceiling=ceilings or None,
        **options,
    )
    unit = "items" if group is None else f"groups ({group})"
    method = f"95% bootstrap intervals, {n_resamples:,} resamples of {unit}, seed {seed}"
    _agreement(result, method)

    # 3) comparison of judges, confusion, calibration, density and length
    if len(judges) > 1:
        _comparison(result, reference, scores[judges], groups, options)
    _scores(result, scores[judges], reference, groups)
    if response is not None:
        run = pd.DataFrame({"gold": reference, "response": frame[response], "group": groups})
        _length(result, scores[judges], run.assign(id=run.index))
    return result


def _agreement(result: ScoreAnalysis, method: str) -> None:
    """The table of correlations and its figures."""
    title = "Pearson correlation with people's scores"
    text = f"{title}. {method}"
    table = result.correlations
    result.write("correlations", plots.save_correlations, table, f"Correlations. {method}")
    pearson = table[table["statistic"] == "pearson"].reset_index(drop=True)
    result.draw(
        "heatmap",
        plots.heatmap,
        pearson,
        pearson,
        text,
        label=title,
    )
    overall = pearson["benchmark"] == OVERALL
    own = pearson[overall & ~pearson["ceiling"]].dropna(subset="estimate")
    ceiling = None
    for estimate in pearson.loc[overall & pearson["ceiling"], "estimate"]:
        ceiling = estimate
    result.draw(
        "forest",
        plots.forest,
        own,
        own,
        text,
        label=title,
        ceiling=ceiling,
    )
    each = pearson[~overall]
    if len(each):
        look = {"panel": "benchmark", "shared": True, "label": title}
        result.draw("multiples", plots.forest, each, each, text, **look)
        if len(own) > 1:
            ranks = "Ranks of judges by Pearson correlation"
            result.draw("ranks", plots.rank_heatmap, each, each, ranks)


def _comparison(
    result: ScoreAnalysis,
    reference: pd.Series,
    scores: pd.DataFrame,
    groups: pd.Series,
    options: dict[str, Any],
) -> None:
    """Every two judges against each other."""
    result.comparisons = metrics.compare_judges(reference, scores, groups=groups, **options)
    table = result.comparisons.xs("pearson", level="statistic").reset_index()
    table = table[["a", "b", "difference", "low", "high", "p", "p_holm", "n"]]
    text = "Differences of Pearson correlations, a less b; p_holm: corrected by Holm"
    result.write("comparisons", plots.save_table, table, text)
    result.draw("matrix", plots.who_beats_whom, result.comparisons, table, text)


def _scores(
    result: ScoreAnalysis, scores: pd.DataFrame, reference: pd.Series, groups: pd.Series
) -> None:
    """Confusion and density of judges with people, and what each score of a judge means."""
    long = scores.assign(gold=reference).melt("gold", var_name="judge", value_name="score")
    text = "Scores of each judge by people's score; shade: share of a row"
    result.draw(
        "confusion",
        plots.confusion,
        long,
        long,
        text,
        truth_name="people's score",
    )
    text = "Scores of each judge against people's"
    result.draw("scatter", plots.agreement_scatter, long, long, text)
    curves = {}
    for name in scores:
        curves[str(name)] = binned_calibration(scores[name], reference, groups)
    data = pd.concat(curves, names=["name", "row"]).reset_index()
    text = "Mean of people's scores at each score of a judge, with 95% t intervals"
    label = "mean of people's scores"
    result.draw(
        "calibration",
        plots.calibration_curve,
        curves,
        data,
        text,
        label=label,
    )


def binned_calibration(scores: pd.Series, truth: pd.Series, groups: pd.Series) -> pd.DataFrame:
    """The mean truth at each score, or in tenths of the scores where there are more than 11."""
    bins = None if scores.nunique() <= MOST_LEVELS else 10
    return metrics.calibration_curve(scores, truth, bins=bins, groups=groups)


def _length(result: ScoreAnalysis, scores: pd.DataFrame, run: pd.DataFrame) -> None:
    """The slope of each judge's score on the response's length, as `probes.length` estimates it."""
    rows = []
    for name in scores:
        table = probes.length(run.assign(score=scores[name]), gold="observed")
        rows.append(table[table["case"] == "slope at equal gold"].assign(judge=name))
    slopes = pd.concat(rows)[["judge", "effect", "low", "high", "n"]]
    result.length_slopes = slopes.reset_index(drop=True)
    lines = slopes.rename(columns={"effect": "estimate"}).dropna(subset="estimate")
    label = "score points per doubling of the response's length, at equal human score"
    if len(lines):
        result.draw(
            "length",
            plots.forest,
            lines,
            slopes,
            label.capitalize(),
            label=label,
        )
