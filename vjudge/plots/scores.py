"""Draw single verdicts: scores against the truth, calibration, lengths of responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from pandas import DataFrame

from vjudge import metrics
from vjudge.judging.columns import closed_in
from vjudge.metrics.levels import nearest_level, score_levels
from vjudge.plots.style import (
    FROM_ZERO,
    INK,
    PALE,
    PALETTE,
    Look,
    draw_cells,
    log_axis,
    looks,
    need,
    page,
    reach,
)

BOTH = ["score", "gold"]  # the judge's score and the true score
DIAGONAL: Look = {"ls": "--", "color": PALE, "lw": 0.8}
SLOPE = "slope at equal gold"  # the case of a length probe that `length_scatter` draws


def by_judge(run: DataFrame, *columns: str) -> dict[str, DataFrame]:
    """Split a run by judge, in order of appearance.

    Args:
        run: one row per verdict; without a column `judge` all are of one judge, "".
        columns: that the run must have.

    Raises:
        ValueError: the run is empty, or lacks a column.
    """
    if run.empty:
        raise ValueError("the run holds no verdict")
    named = need(run.assign(judge=run.get("judge", "")), *columns, names=["judge"])
    return dict(list(named.groupby("judge", sort=False)))


def _used(frame: DataFrame, columns: Sequence[str]) -> str:
    """Describe how many rows have all these columns, and how many verdicts were closed."""
    n = len(frame.dropna(subset=columns))
    text = f"{n:,} of {len(frame):,} rows have {' and '.join(columns)}"
    closed = closed_in(frame)
    return f"{text}; {closed}" if closed else text


def confusion(
    run: DataFrame,
    *,
    truth_name: str = "true score",
    scale: Sequence[float] | None = None,
    **options: Any,
) -> Figure:
    """Draw the confusion matrix of each judge: how often each true score got each score.

    A cell is shaded by its share of the items with the same true score.

    Args:
        run: one row per verdict: columns score, gold; optionally judge.
        truth_name: what gold is called, for example "mean of three people".
        scale: the rubric's scores, as in `metrics.levels.score_levels`.
        options: of `page`.

    Returns:
        A figure with one panel per judge. A score between two levels is counted at the nearer one;
        the column "none" counts verdicts without a score.
    """
    judges = by_judge(run, *BOTH)
    levels = score_levels(run["score"], run["gold"], scale=scale)
    names = [f"{level:g}" for level in levels]
    across = [*names, "none"] if run["score"].isna().any() else names
    with page(**options) as paper:
        fig, panels = paper.panels(
            judges,
            0.75,
            across="judge's score",
            up=truth_name,
            min_inches=0.2 * len(across) + 0.35,  # a cell holds three digits
            min_height=0.11 * len(names),
            shared=False,
        )
        for ax, rows in panels:
            gold = nearest_level(rows["gold"], levels).map("{:g}".format)
            score = nearest_level(rows["score"], levels).map("{:g}".format).replace("nan", "none")
            n = pd.crosstab(gold.to_numpy(), score.to_numpy())  # without levels that do not occur
            n = n.reindex(names, columns=across, fill_value=0)  # (true scores, scores)
            share = n.div(n.sum(axis=1).clip(lower=1), axis=0)
            texts = n.astype(str).where(n > 0, "")
            draw_cells(ax, share, texts, cmap=FROM_ZERO, vmin=0, vmax=1)
            ax.tick_params(axis="x", rotation=90 if len(across) > 8 else 0)
        return paper.finish(fig, "Cells: numbers of items", _used(run, BOTH))


def calibration_curve(
    tables: Mapping[str, DataFrame], *, label: str = "mean true score", **options: Any
) -> Figure:
    """Draw the mean true score at each score that a judge gives, with one panel per judge.

    On the dashed diagonal both are equal. A judge is too harsh at points above it, and too lenient
    at points below it.

    Args:
        tables: judge's name -> what `metrics.calibration_curve` returned: columns judge, human,
            low, high, n.
        label: of the vertical axis, for example "mean human score".
        options: of `page`.
    """
    points = need(pd.concat(tables), "judge", "human", "low", "high", "n")
    if points.empty:
        raise ValueError("no item has both scores: there is nothing to draw")
    low = points["human"].min()
    high = points["human"].max()
    with page(**options) as paper:
        fig, panels = paper.panels(tables, 0.85, across="judge's score", up=label, min_inches=1.25)
        for (ax, table), look in zip(panels, looks(tables).values(), strict=True):
            ax.axline((low, low), slope=1, **DIAGONAL)
            ax.errorbar(table["judge"], table["human"], yerr=reach(table, "human"), **look)
        # The axes end near the means: an interval of two items may be far longer than the scale
        margin = 0.1 * (high - low) + 0.1
        bottom = low - margin
        top = high + margin
        ax.set_ylim(bottom, top)  # of the last panel, and so of all, which share their axes
        n_cut = ((points["low"] < bottom) | (points["high"] > top)).sum()
        cut = f"{n_cut} intervals of few items reach beyond the axes" if n_cut else ""
        return paper.finish(fig, f"{points['n'].sum():,} scores", cut)


def agreement_scatter(run: DataFrame, **options: Any) -> Figure:
    """Draw the judge's score against the mean human score, with one panel per judge.

    A dot stands for all items with the same two scores, and a diamond for the mean scores of the
    items whose human score is nearest to the same level of the scale.

    Args:
        run: one row per verdict: columns score and gold (the mean human score); optionally judge.
        options: of `page`.
    """
    judges = by_judge(run, *BOTH)
    levels = score_levels(run["gold"])
    # Each distinct (score, gold) with its number of items, for each judge
    dots = [rows.value_counts(BOTH, sort=False).reset_index(name="n") for rows in judges.values()]
    n_max = max(1, pd.concat(dots)["n"].max())
    with page(**options) as paper:
        fig, panels = paper.panels(
            judges, 1.0, across="mean of people's scores", up="judge's score"
        )
        for (ax, rows), points in zip(panels, dots, strict=True):
            # In square points: at most 8 per item, and at most 80 for the largest dot
            area = min(8.0, 80 / n_max) * points["n"]
            ax.scatter(points["gold"], points["score"], s=area, color=PALETTE[0], alpha=0.5, lw=0)
            ax.axline((levels[0], levels[0]), slope=1, **DIAGONAL)
            scored = rows[BOTH].dropna()
            means = scored.groupby(nearest_level(scored["gold"], levels)).mean()
            ax.plot(means["gold"], means["score"], "D", color=PALETTE[1])
            ax.set_box_aspect(1)
        marks = f"Area of a dot: number of items, at most {n_max:,}; diamonds: means"
        return paper.finish(fig, _used(run, BOTH), marks)


def length_by_score(
    frame: DataFrame,
    *,
    score_name: str = "true score",
    scale: Sequence[float] | None = None,
    **options: Any,
) -> Figure:
    """Draw box plots of the length of responses at each score, with whiskers to 5 and 95 %.

    Args:
        frame: one row per item: columns gold and response.
        score_name: what gold is called.
        scale: the rubric's scores, as in `metrics.levels.score_levels`.
        options: of `page`.
    """
    rows = need(frame, "gold", "response").reset_index(drop=True)
    lengths = metrics.lengths(rows["response"])
    levels = score_levels(rows["gold"], scale=scale)
    with page(**options) as paper:
        fig, ax = paper.subplots(1.8)
        sns.boxplot(
            x=nearest_level(rows["gold"], levels),
            y=lengths,
            order=levels,
            whis=(5, 95),
            showfliers=False,
            color=PALETTE[4],  # light, so that the median is visible
            ax=ax,
        )
        ax.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
        ax.set(xlabel=score_name, ylabel="response (words)")
        ax.set_ylim(0, 1.06 * ax.get_ylim()[1])  # no box touches the top
        boxes = "Boxes: quartiles; whiskers: 5 and 95%"
        return paper.finish(fig, _used(rows, ["gold", "response"]), boxes)


def length_scatter(
    frame: DataFrame, probe: DataFrame, *, truth_name: str = "true score", **options: Any
) -> Figure:
    """Draw scores, minus their mean at equal true score, against the lengths of responses.

    Args:
        frame: one row per verdict: columns score, gold and response; optionally judge, with a panel
            for each.
        probe: the table that `probes.length` returned for these verdicts; with several judges,
            their tables one after another, in the judges' order. Its rows "slope at equal gold"
            are drawn as lines, with their intervals as bands.
        truth_name: what gold is called.
        options: of `page`.

    Raises:
        ValueError: there are not as many slopes as judges, or a column is absent.
    """
    columns = [*BOTH, "response"]
    verdicts = need(frame, *columns)
    lengths = metrics.lengths(verdicts["response"])
    verdicts["length"] = lengths
    # A response without a word has no logarithm of its length: it counts as missing
    verdicts["response"] = verdicts["response"].where(lengths > 0)
    judges = by_judge(verdicts, *columns)
    slopes = need(probe, "case", "effect", "low", "high")
    slopes = slopes[slopes["case"] == SLOPE].to_dict("records")
    if len(slopes) != len(judges):
        raise ValueError(f"{len(slopes)} slopes of {len(judges)} judges: give one for each")
    levels = score_levels(frame["gold"])
    with page(**options) as paper:
        fig, panels = paper.panels(
            judges,
            0.75,
            across="length of the response (words)",
            up=f"score less its mean\nat equal {truth_name}",
            min_inches=1.6,
        )
        for (ax, rows), slope in zip(panels, slopes, strict=True):
            rows = rows.dropna(subset=columns).sort_values("length")
            level = nearest_level(rows["gold"], levels)
            deviation = rows["score"] - rows["score"].groupby(level).transform("mean")
            x = rows["length"]
            ax.scatter(x, deviation, s=8, color=PALETTE[0], alpha=0.35, lw=0)
            # A slope is in score points per doubling of the length; its line is 0 at the mean
            doublings = np.log2(x) - np.log2(x).mean()
            band = [slope["low"] * doublings, slope["high"] * doublings]
            ax.fill_between(x, *band, color=PALETTE[1], alpha=0.4, lw=0)
            ax.plot(x, slope["effect"] * doublings, color=INK)
        log_axis(ax, "x", lengths[lengths > 0])  # of all panels, which share their axes
        return paper.finish(fig, _used(verdicts, columns))
