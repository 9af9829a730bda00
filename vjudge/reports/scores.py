"""From a wide table of scores, one column a judge, to the tables and figures of a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
from pandas import DataFrame, Series
from pandas.api.types import is_list_like

from vjudge import metrics, plots, probes
from vjudge.metrics.columns import scores as numbers
from vjudge.plots.save import sentences
from vjudge.plots.style import need

MOST_LEVELS = 11  # of a scale whose scores are calibrated one by one, not in bins
OVERALL = "overall"
NAMES = (
    "heatmap forest matrix ranks multiples confusion scatter calibration length comparisons "
    "length_slopes"
).split()
HUMAN = "human"
ONE_PERSON = "one person"
TITLE = "Pearson correlation with people's scores"
COMPARED = "Differences of Pearson correlations with people's scores"


class Figures(dict):
    """By name a figure, its caption and what it was drawn from, as wide as the venue's page."""

    def __init__(self, venue: str) -> None:
        plots.width(venue, "full")  # an unknown venue is refused before anything is computed
        self.venue = venue

    def draw(self, name: str, plot: Any, rows: Any, caption: str, /, **options: Any) -> None:
        """Draw rows, a frame or frames by judge, and keep the figure."""
        figure = plot(rows, venue=self.venue, column="full", **options)
        if isinstance(rows, dict):
            rows = pd.concat(rows, names=["name", "row"]).reset_index()
        self[name] = (figure, caption, rows)

    def draw_scores(self, run: DataFrame, truth: str) -> tuple[DataFrame, str]:
        """Draw confusion with the truth, and what each score means.

        run: columns judge, score, gold, group, a row an item and judge. Judges whose scores
            share less than half of the truth's range are left out.

        Returns the rows that are drawn, and a sentence with the judges that are left out.
        """
        drawn = run.groupby("judge", sort=False).filter(on_one_scale)
        left_out = ", ".join(sorted(set(run["judge"]) - set(drawn["judge"])))
        if left_out:
            left_out = f"Not drawn, as they share less than half of the truth's range: {left_out}"
        if drawn.empty:
            return drawn, left_out
        self.draw(
            "confusion",
            plots.confusion,
            drawn,
            sentences(f"Scores of each judge by {truth}; shade: share of a row", left_out),
            truth_name=truth,
        )
        curves = {}
        for name, rows in drawn.groupby("judge", sort=False):
            bins = None if rows["score"].nunique() <= MOST_LEVELS else 10
            curves[str(name)] = metrics.calibration_curve(
                rows["score"], rows["gold"], bins=bins, groups=rows["group"]
            )
        self.draw(
            "calibration",
            plots.calibration_curve,
            curves,
            sentences(
                f"The truth ({truth}) at each score of a judge: means with 95% t intervals",
                left_out,
            ),
            label=truth,
        )
        return drawn, left_out

    def save(self, folder: str | Path, about: str = "") -> dict:
        """Write all figures; `about` is added to each caption. Returns the paths by name."""
        files = {}
        for name, (figure, caption, data) in self.items():
            files[name] = plots.save_figure(
                figure, name, caption=sentences(caption, about), data=data, folder=folder
            )
        return files


def on_one_scale(rows: DataFrame) -> bool:
    """Whether a judge's scores and the truth reach over half of each other's range at least."""
    both = rows[["score", "gold"]].dropna()
    shared = both.max().min() - both.min().max()
    return len(both) > 0 and bool(2 * shared >= (both.max() - both.min()).max())


class ScoreAnalysis(SimpleNamespace):
    """What `from_scores` computed: tables as frames, figures as matplotlib figures.

    Attributes:
        counts: one row a judge, and "human": n (items with a score) and missing.
        correlations: as `metrics.correlation_table` returns it, by benchmark and "overall". Where
            `human` names several columns, "one person" is the correlation of one of them with the
            mean of the others. It is no ceiling: a judge is compared with the mean of all.
        comparisons: as `metrics.compare_judges` returns it, over all items; None of a single judge.
        length_slopes: one row a judge: score points per doubling of the response's length at equal
            human score, as `probes.length` estimates it; None without responses.
        heatmap, forest, matrix, ranks, multiples, confusion, calibration, scatter, length: the
            figures; `matrix` needs two judges, `ranks` also several benchmarks, `multiples` several
            benchmarks, `length` responses; they are None otherwise.
        files: the paths that were written, by name and ending.
    """

    def __repr__(self) -> str:
        return f"ScoreAnalysis with {', '.join(vars(self))}"


def from_scores(
    frame: DataFrame,
    judges: Sequence,
    human: str | Sequence,
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
        judges: the scores of each judge, on any scale; NaN where missing. Confusion, calibration
            and scatter leave out judges that share less than half of people's range.
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
        ValueError: there is no such venue; a column is absent or named twice, or a benchmark or
            group is missing; a judge or a benchmark has a name that is used here; no judge has a
            correlation with people.
        TypeError: there is no frame; a score is no number.

    >>> frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": [2, 1, 4, 3], "people": [1, 2, 3, 4]})
    >>> analysis = from_scores(frame, ["a", "b"], "people", n_resamples=100)
    >>> pearson = analysis.correlations.query("statistic == 'pearson'").set_index("judge")
    >>> pearson["estimate"].round(2).to_dict()
    {'a': 1.0, 'b': 0.6}
    """
    # 1) check the columns, and read the scores
    figures = Figures(venue)
    judges = _listed(judges)
    people = _listed(human)
    labels = [name for name in (benchmark, group, response) if name is not None]
    if not isinstance(frame, DataFrame):
        raise TypeError(f"give a DataFrame, not a {type(frame).__name__}; pandas reads files")
    frame = need(frame, *judges, *people, *labels).reset_index(drop=True)
    _check_names(judges, people, frame[benchmark] if benchmark else ())
    scores = _read(frame, [*judges, *people], labels)
    judged = scores[judges]
    reference = scores[people].mean(axis=1)
    groups = Series(frame.index) if group is None else frame[group]

    # 2) agreement by benchmark and overall
    found = ScoreAnalysis(**dict.fromkeys(NAMES), counts=_counts(judged, reference), files={})
    options = {"n_resamples": n_resamples, "seed": seed}
    parts = _parts(frame, benchmark)
    found.correlations = _correlations(judged, scores[people], groups, parts, options)
    if found.correlations.query("statistic == 'pearson' and not ceiling")["estimate"].isna().all():
        raise ValueError(
            "no judge has a correlation with people: it takes three items that both scored, and"
            f" scores that differ (scores by judge: {found.counts['n'].to_dict()})"
        )
    unit = "items" if group is None else f"groups ({group})"
    method = f"95% bootstrap intervals, {n_resamples:,} resamples of {unit}, seed {seed}"
    alone = "One person: with the mean of the other people" if len(people) > 1 else ""
    _draw_agreement(figures, found.correlations, sentences(TITLE, alone, method))

    # 3) comparison of judges, confusion, calibration, density and length
    if len(judges) > 1:
        pairs = metrics.compare_judges(reference, judged, groups=groups, **options)
        figures.draw("matrix", plots.who_beats_whom, pairs, f"{COMPARED}, row less column")
        found.comparisons = pairs
    run = _run(judged, reference, groups)
    drawn, left_out = figures.draw_scores(run, "mean of people's scores")
    if len(drawn):
        text = sentences("Scores of each judge against people's", left_out)
        figures.draw("scatter", plots.agreement_scatter, drawn, text)
    if response is not None:
        found.length_slopes = _length(figures, run.assign(response=run["id"].map(frame[response])))

    # 4) files
    if out is not None:
        about = _about(found.counts, people)
        found.files = figures.save(out, about)
        found.files |= _tables(found, f"{method}. {about}", folder=out, venue=venue)
    for name, (figure, *_) in figures.items():
        setattr(found, name, figure)
    return found


def _listed(names: Any) -> list:
    """One column's name, or several, as a list."""
    return list(names) if is_list_like(names) else [names]


def _check_names(judges: Sequence, people: Sequence, benchmarks: Any) -> None:
    """Refuse columns that are named twice, and names that mean something else in the tables."""
    columns = Series([*judges, *people])
    twice = columns[columns.duplicated()].tolist()
    if twice:
        raise ValueError(
            f"columns {twice} are named twice; name each judge once, and no judge as a person"
        )
    for name in (HUMAN, ONE_PERSON):
        if name in judges:
            raise ValueError(f"a judge can't be called {name!r} here; rename its column")
    if OVERALL in set(benchmarks):
        raise ValueError(f"a benchmark can't be called {OVERALL!r} here; rename it")


def _read(frame: DataFrame, names: Sequence, labels: Sequence) -> DataFrame:
    """Columns of scores as numbers; a row without a label is a ValueError."""
    for name in labels:
        if frame[name].isna().any():
            row = int(frame[name].isna().argmax())
            raise ValueError(f"row {row}: {name!r} is missing; fill it, or leave the row out")
    return DataFrame({name: numbers(frame[name], name=name) for name in names})


def _counts(judged: DataFrame, reference: Series) -> DataFrame:
    """How many scores each judge and the reference have, and how many they lack."""
    scores = judged.copy()
    scores[HUMAN] = reference
    counts = DataFrame({"n": scores.notna().sum(), "missing": scores.isna().sum()})
    return counts.rename_axis("judge")


def _about(counts: DataFrame, people: Sequence) -> str:
    """What all captions say: the items, the reference and how many scores each judge lacks."""
    lacking = ", ".join(f"{name} {count:,}" for name, count in counts["missing"].items())
    about = f"{counts.loc[HUMAN].sum():,} items; reference: mean of {', '.join(people)}"
    return f"{about}. Missing scores: {lacking}"


def _parts(frame: DataFrame, benchmark: str | None) -> dict:
    """The rows of each benchmark, and all of them."""
    parts = {OVERALL: frame.index}
    if benchmark is not None:
        parts = frame.groupby(frame[benchmark].astype(str), sort=False).groups | parts
    return parts


def _correlations(
    judged: DataFrame, people: DataFrame, groups: Series, parts: Mapping, options: Mapping
) -> DataFrame:
    """Every judge's agreement with the mean of people on each part, and that of several people."""
    tables: dict = {"judges": {}, "truth": {}, "groups": {}, "ceiling": {}}
    for name, here in parts.items():
        rated = people.loc[here]
        tables["judges"][name] = judged.loc[here]
        tables["truth"][name] = rated.mean(axis=1)
        tables["groups"][name] = groups[here]
        if rated.shape[1] > 1:
            ceiling = metrics.human_ceiling(rated, groups=groups[here], **options)
            tables["ceiling"][name] = ceiling
    table = metrics.correlation_table(**tables, **options)
    return table.assign(judge=table["judge"].mask(table["ceiling"], ONE_PERSON))


def _run(judged: DataFrame, reference: Series, groups: Series) -> DataFrame:
    """The scores as a run: a row an item and judge."""
    run = judged.melt(var_name="judge", value_name="score", ignore_index=False)
    known = DataFrame({"gold": reference, "group": groups})
    return run.rename_axis("id").reset_index().join(known, on="id")


def _draw_agreement(figures: Figures, table: DataFrame, text: str) -> None:
    """The figures of a table of correlations."""
    pearson = table[table["statistic"] == "pearson"].reset_index(drop=True)
    figures.draw(
        "heatmap",
        plots.heatmap,
        pearson,
        text,
        label=TITLE,
    )
    own = pearson[pearson["benchmark"] == OVERALL].dropna(subset="estimate")
    figures.draw("forest", plots.forest, own, text, label=TITLE)
    each = pearson[pearson["benchmark"] != OVERALL]
    several = each["benchmark"].nunique() > 1
    if several:
        look: dict = {"panel": "benchmark", "shared": True, "label": TITLE}
        figures.draw(
            "multiples",
            plots.forest,
            each,
            text,
            **look,
        )
    if several and (~own["ceiling"]).sum() > 1:
        text = "Ranks of judges by Pearson correlation"
        figures.draw("ranks", plots.rank_heatmap, each, text)


def _length(figures: Figures, run: DataFrame) -> DataFrame:
    """The slope of each judge's score on the response's length, as `probes.length` estimates it."""
    tables = [probes.length(rows).table for _, rows in run.groupby("judge", sort=False)]
    slopes = pd.concat(tables)
    slopes = slopes[["judge", "effect", "low", "high", "n"]].reset_index(drop=True)
    lines = slopes.rename(columns={"effect": "estimate"}).dropna(subset="estimate")
    label = "score points per doubling of the response's length, at equal human score"
    if len(lines):
        figures.draw(
            "length",
            plots.forest,
            lines,
            label.capitalize(),
            label=label,
        )
    return slopes


def _tables(found: ScoreAnalysis, text: str, **where: Any) -> dict:
    """Write the tables, with a text in their captions. Returns the paths by name."""
    table = plots.save_correlations(
        found.correlations,
        "correlations",
        caption=f"Correlations. {text}",
        **where,
    )
    files = {"correlations": table}
    if found.comparisons is not None:
        pairs = found.comparisons.xs("pearson", level="statistic")
        pairs = pairs[["difference", "low", "high", "p", "p_holm", "n"]]
        files["comparisons"] = plots.save_table(
            pairs,
            "comparisons",
            caption=f"{COMPARED}, judge a less judge b; p_holm: corrected by Holm. {text}",
            **where,
        )
    return files
