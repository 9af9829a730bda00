"""From a wide table of scores, one column a judge, to the tables and figures of a paper."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from vjudge import metrics, plots, probes

OVERALL = "overall"
MOST_LEVELS = 11  # of a scale whose scores are calibrated one by one, not in bins


@dataclass
class ScoreAnalysis:
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

    counts: pd.DataFrame
    correlations: pd.DataFrame
    about: str
    venue: str
    out: str | Path | None
    comparisons: pd.DataFrame | None = None
    length_slopes: pd.DataFrame | None = None
    heatmap: Figure | None = None
    forest: Figure | None = None
    matrix: Figure | None = None
    ranks: Figure | None = None
    multiples: Figure | None = None
    confusion: Figure | None = None
    calibration: Figure | None = None
    scatter: Figure | None = None
    length: Figure | None = None
    files: dict[str, dict[str, Path]] = field(default_factory=dict)

    def draw(
        self, name: str, plot: Any, rows: Any, data: pd.DataFrame, caption: str, **options: Any
    ) -> None:
        """Draw a figure, keep it under its name, and write it where there is a folder."""
        figure = plot(rows, venue=self.venue, column="full", **options)
        setattr(self, name, figure)
        if self.out is not None:
            text = f"{caption}. {self.about}"
            paths = plots.save_figure(figure, name, caption=text, data=data, folder=self.out)
            self.files[name] = paths

    def save_table(self, name: str, table: pd.DataFrame, caption: str) -> None:
        """Write a table where there is a folder."""
        if self.out is not None:
            options: dict[str, Any] = {"folder": self.out, "venue": self.venue}
            save = plots.save_correlations if name == "correlations" else plots.save_table
            self.files[name] = save(table, name, caption=f"{caption}. {self.about}.", **options)


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
        n_resamples, seed: of the bootstrap and the permutations.

    Raises:
        ValueError: a column is absent or named twice, a score is no number, or a benchmark or
            group is missing.

    >>> frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": [2, 1, 4, 3], "people": [1, 2, 3, 4]})
    >>> analysis = from_scores(frame, ["a", "b"], "people", n_resamples=100)
    >>> pearson = analysis.correlations.query("statistic == 'pearson'").set_index("judge")
    >>> pearson["estimate"].round(2).to_dict()
    {'a': 1.0, 'b': 0.6}
    """
    # 1) check the columns, and read the scores
    plots.width(venue, "full")
    judges = list(judges)
    people = [human] if isinstance(human, str) else list(human)
    labels = [name for name in (benchmark, group, response) if name is not None]
    _check_columns(frame, [*judges, *people], labels)
    frame = frame.reset_index(drop=True)
    _check_labels(frame, [name for name in (benchmark, group) if name is not None])
    scores = pd.DataFrame({name: _numbers(frame[name]) for name in [*judges, *people]})
    reference = scores[people].mean(axis=1)
    groups = None if group is None else frame[group]
    who = people[0]
    if len(people) > 1:
        fewer = int(scores[people].isna().any(axis=1).sum())
        who = f"mean of {len(people)} people (items that not all of them scored: {fewer:,})"
    counts = _counts(scores[judges], reference)
    about = f"{len(frame):,} items; reference: {who}. {_missing(counts)}"

    # 2) agreement by benchmark and overall
    options: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
    parts = _benchmarks(frame, benchmark)
    inside = {name: None if groups is None else groups[here] for name, here in parts.items()}
    ceilings = None
    if len(people) > 1:
        ceilings = {}
        for name, here in parts.items():
            rated = scores.loc[here, people]
            ceilings[name] = metrics.human_ceiling(rated, groups=inside[name], **options)
    correlations = metrics.correlation_table(
        {name: scores.loc[here, judges] for name, here in parts.items()},
        {name: reference[here] for name, here in parts.items()},
        groups=None if groups is None else inside,
        ceiling=ceilings,
        **options,
    )
    result = ScoreAnalysis(counts, correlations, about, venue, out)
    result.save_table("counts", counts, "Scores of each judge")
    unit = "items" if group is None else f"groups ({group})"
    method = f"95% bootstrap intervals, {n_resamples:,} resamples of {unit}, seed {seed}"
    _agreement(result, method)

    # 3) comparison of judges, confusion, calibration and density
    if len(judges) > 1:
        compared = metrics.compare_judges(reference, scores[judges], groups=groups, **options)
        result.comparisons = compared
        pearson = compared.xs("pearson", level="statistic").reset_index()
        text = "Differences of Pearson correlations, row less column"
        result.draw("matrix", plots.who_beats_whom, compared, pearson, text)
        text = "Differences of Pearson correlations, a less b; p_holm: corrected by Holm"
        columns = ["a", "b", "difference", "low", "high", "p", "p_holm", "n"]
        result.save_table("comparisons", pearson[columns], text)
    _scores(result, scores[judges], reference, groups)

    # 4) length
    if response is not None:
        slopes = _length_slopes(scores[judges], reference, frame[response], groups)
        result.length_slopes = slopes
        lines = slopes.rename(columns={"effect": "estimate"}).dropna(subset="estimate")
        label = "score points per doubling of the response's length, at equal human score"
        if len(lines):
            result.draw("length", plots.forest, lines, slopes, label.capitalize(), label=label)
    return result


def _agreement(result: ScoreAnalysis, method: str) -> None:
    """The table of correlations and its figures."""
    title = "Pearson correlation with people's scores"
    text = f"{title}. {method}"
    table = result.correlations
    pearson = table[table["statistic"] == "pearson"].reset_index(drop=True)
    result.draw("heatmap", plots.heatmap, pearson, pearson, text, label=title)
    last = pearson[pearson["benchmark"] == pearson["benchmark"].iloc[-1]]
    own = last[~last["ceiling"]]
    ceiling = last.loc[last["ceiling"], "estimate"]
    if own["estimate"].notna().any():
        look: dict[str, Any] = {"ceiling": float(ceiling.iloc[0]) if len(ceiling) else None}
        result.draw("forest", plots.forest, own, own, f"{text}, all items", label=title, **look)
    each = pearson[pearson["benchmark"] != OVERALL]
    if each["benchmark"].nunique() > 1:
        result.draw("multiples", plots.small_multiples, each, each, text, label=title)
        if len(own) > 1:
            ranks = "Ranks of judges by Pearson correlation"
            result.draw("ranks", plots.rank_heatmap, each, each, ranks)
    result.save_table("correlations", table, f"Correlation with people's scores. {method}")


def _scores(
    result: ScoreAnalysis, scores: pd.DataFrame, reference: pd.Series, groups: pd.Series | None
) -> None:
    """Confusion and density of judges with people, and what each score of a judge means."""
    long = scores.assign(gold=reference).melt("gold", var_name="judge", value_name="score")
    text = "Scores of each judge by people's score; shade: share of a row"
    result.draw("confusion", plots.confusion, long, long, text, truth_name="people's score")
    text = "Scores of each judge against people's"
    result.draw("scatter", plots.agreement_scatter, long, long, text)
    curves = {}
    for name in scores:
        bins = None if scores[name].nunique() <= MOST_LEVELS else 10
        curve = metrics.calibration_curve(scores[name], reference, bins=bins, groups=groups)
        if len(curve):
            curves[str(name)] = curve
    if curves:
        data = pd.concat(curves, names=["name", "row"]).reset_index()
        text = "Mean of people's scores at each score of a judge, with 95% t intervals"
        label = "mean of people's scores"
        result.draw("calibration", plots.calibration_curve, curves, data, text, label=label)


def _check_columns(frame: pd.DataFrame, scores: list[str], labels: list[str]) -> None:
    names = [*scores, *labels]
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise ValueError(f"columns are absent: {absent}; the frame has {list(frame.columns)}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"{twice} are named twice: a column is a judge, people or a label, not two"
        )
    if len(scores) < 2 or frame.empty:
        raise ValueError("at least one judge, one column of people's scores and one row are needed")


def _numbers(column: pd.Series) -> pd.Series:
    """A column of scores as float; an error names the row of a cell that is no finite number."""
    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    wrong = (numbers.isna() & column.notna()) | numbers.abs().eq(float("inf"))
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        cell = str(column.iloc[row])[:40]
        remedy = "leave a missing score empty"
        raise ValueError(f"row {row}: {column.name!r} is {cell!r}, not a finite number; {remedy}")
    return numbers


def _counts(scores: pd.DataFrame, reference: pd.Series) -> pd.DataFrame:
    columns = scores.assign(human=reference)
    table = pd.DataFrame({"n": columns.notna().sum(), "missing": columns.isna().sum()})
    return table.rename_axis("judge")


def _missing(counts: pd.DataFrame) -> str:
    lacking = counts.loc[counts["missing"] > 0, "missing"]
    if lacking.empty:
        return "No score is missing"
    return "Missing scores: " + ", ".join(f"{name} {count:,}" for name, count in lacking.items())


def _check_labels(frame: pd.DataFrame, names: list[str]) -> None:
    for name in names:
        if frame[name].isna().any():
            row = int(frame[name].isna().to_numpy().argmax())
            raise ValueError(f"row {row}: {name!r} is missing; fill it, or leave the row out")


def _benchmarks(frame: pd.DataFrame, benchmark: str | None) -> dict[str, pd.Series]:
    """Which rows each benchmark has; of several benchmarks also all rows, as the last."""
    everything = {OVERALL: pd.Series(True, index=frame.index)}
    if benchmark is None:
        return everything
    names = frame[benchmark].astype(str)
    parts = {name: names == name for name in names.unique()}
    return parts | everything if len(parts) > 1 else parts


def _length_slopes(
    scores: pd.DataFrame, reference: pd.Series, responses: pd.Series, groups: pd.Series | None
) -> pd.DataFrame:
    """The row of `probes.length` of each judge."""
    run = pd.DataFrame({"gold": reference, "response": responses})
    run["id"] = [str(place) for place in run.index]
    run["group"] = run["id"] if groups is None else groups.astype(str)
    rows = []
    for name in scores:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*observed.*")
            table = probes.length(run.assign(score=scores[name]), gold="observed")
        rows.append(table[table["case"] == "slope at equal gold"].assign(judge=name))
    slopes = pd.concat(rows, ignore_index=True)
    return slopes[["judge", "effect", "low", "high", "n"]]
