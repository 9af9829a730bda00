"""Figures of single verdicts: scores against the truth, calibration, lengths of responses."""

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
    draw_cells,
    log_axis,
    looks,
    need,
    page,
    reach,
)

BOTH = ["score", "gold"]
DIAGONAL: dict = {"ls": "--", "color": PALE, "lw": 0.8}


def by_judge(run: DataFrame, *columns: str) -> dict:
    """The verdicts of each judge, in order of appearance, with these columns checked."""
    if run.empty:
        raise ValueError("the run holds no verdict")
    named = need(run.assign(judge=run.get("judge", "")), *columns, names=["judge"])
    return dict(list(named.groupby("judge", sort=False)))


def _used(frame: DataFrame, columns: Sequence) -> str:
    """How many rows have all columns, and how many verdicts were closed."""
    both = len(frame.dropna(subset=columns))
    text = f"{both:,} of {len(frame):,} rows have {' and '.join(columns)}"
    return "; ".join(filter(None, [text, closed_in(frame)]))


def confusion(
    run: DataFrame, *, truth_name: str = "true score", scale: Sequence | None = None, **options: Any
) -> Figure:
    """Counts of each score for each true score, shaded by their share of the true score's items.

    Args:
        run: one row a verdict: columns score, gold; judge where known.
        truth_name: what gold is called, for example "mean of three people".
        scale: see `levels`.

    Returns:
        A panel a judge; scores between two levels are counted at the nearer, and "none" counts
        verdicts without a score.
    """
    judges = by_judge(run, *BOTH)
    where = score_levels(run["score"], run["gold"], scale=scale)
    names = [f"{level:g}" for level in where]
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
            gold = nearest_level(rows["gold"], where).map("{:g}".format)
            score = nearest_level(rows["score"], where).map("{:g}".format).replace("nan", "none")
            table = pd.crosstab(gold.to_numpy(), score.to_numpy())
            table = table.reindex(names, columns=across, fill_value=0)
            share = table.div(table.sum(axis=1).clip(lower=1), axis=0)
            draw_cells(
                ax, share, table.astype(str).where(table > 0, ""), cmap=FROM_ZERO, vmin=0, vmax=1
            )
            ax.tick_params(axis="x", rotation=90 if len(across) > 8 else 0)
        return paper.finish(fig, "Cells: numbers of items", _used(run, BOTH))


def calibration_curve(tables: Mapping, *, label: str = "mean true score", **options: Any) -> Figure:
    """The mean true score at each score that a judge gives: a panel a judge, with the same axes.

    On the dashed diagonal a score means what it says; above it the judge is too harsh, below it too
    lenient.

    Args:
        tables: by judge, what `metrics.calibration_curve` returned: columns judge, human, low,
            high, n.
        label: of the vertical axis, for example "mean human score".
    """
    points = need(pd.concat(tables), "judge", "human", "low", "high", "n")
    if points.empty:
        raise ValueError("no item has both scores: there is nothing to draw")
    low = points["human"].min()
    high = points["human"].max()
    with page(**options) as paper:
        fig, panels = paper.panels(tables, 0.85, across="judge's score", up=label, min_inches=1.25)
        for (ax, table), style in zip(panels, looks(tables).values(), strict=True):
            ax.axline((low, low), slope=1, **DIAGONAL)
            ax.errorbar(table["judge"], table["human"], yerr=reach(table, "human"), **style)
        # an interval of two items may be far longer than the scale
        margin = 0.1 * (high - low) + 0.1
        bottom = low - margin
        top = high + margin
        ax.set_ylim(bottom, top)
        n_cut = ((points["low"] < bottom) | (points["high"] > top)).sum()
        cut = f"{n_cut} intervals of few items reach beyond the axes" if n_cut else ""
        return paper.finish(fig, f"{points['n'].sum():,} scores", cut)


def agreement_scatter(run: DataFrame, **options: Any) -> Figure:
    """The judge's score against people's mean: items by place, and the mean score at each level.

    Args:
        run: one row a verdict: columns score and gold; judge where known, a panel each.
    """
    judges = by_judge(run, *BOTH)
    where = score_levels(run["gold"])
    dots = [rows.value_counts(BOTH, sort=False).reset_index(name="n") for rows in judges.values()]
    n_most = max([1, *(points["n"].max() for points in dots if len(points))])
    with page(**options) as paper:
        fig, panels = paper.panels(
            judges, 1.0, across="mean of people's scores", up="judge's score"
        )
        for (ax, rows), points in zip(panels, dots, strict=True):
            area = min(8.0, 80 / n_most) * points["n"]
            ax.scatter(points["gold"], points["score"], s=area, color=PALETTE[0], alpha=0.5, lw=0)
            ax.axline((where[0], where[0]), slope=1, **DIAGONAL)
            rows = rows[BOTH].dropna()
            means = rows.groupby(nearest_level(rows["gold"], where)).mean()
            ax.plot(means["gold"], means["score"], "D", color=PALETTE[1])
            ax.set_box_aspect(1)
        marks = f"Area of a dot: number of items, at most {n_most:,}; diamonds: means"
        return paper.finish(fig, _used(run, BOTH), marks)


def length_by_score(
    frame: DataFrame,
    *,
    score_name: str = "true score",
    scale: Sequence | None = None,
    **options: Any,
) -> Figure:
    """Length of the response at each score, as box plots: quartiles, and whiskers to 5 and 95%.

    Args:
        frame: one row an item: columns gold and response.
        score_name: what gold is called.
        scale: see `levels`.
    """
    rows = need(frame, "gold", "response").reset_index(drop=True)
    lengths = metrics.lengths(rows["response"])
    where = score_levels(rows["gold"], scale=scale)
    with page(**options) as paper:
        fig, ax = paper.subplots(1.8)
        sns.boxplot(
            x=nearest_level(rows["gold"], where),
            y=lengths,
            order=where,
            whis=(5, 95),
            showfliers=False,
            color=PALETTE[4],  # light: the median is seen
            ax=ax,
        )
        ax.set_xticks(range(len(where)), [f"{level:g}" for level in where])
        ax.set(xlabel=score_name, ylabel="response (words)")
        ax.set_ylim(0, 1.06 * ax.get_ylim()[1])  # no box touches the top
        boxes = "Boxes: quartiles; whiskers: 5 and 95%"
        return paper.finish(fig, _used(rows, ["gold", "response"]), boxes)


def length_scatter(
    frame: DataFrame, probe: DataFrame, *, truth_name: str = "true score", **options: Any
) -> Figure:
    """What is left of a judge's score at equal true score, against the length of the response.

    Args:
        frame: one row a verdict: columns score, gold and response; judge where known, a panel each.
        probe: what `probes.length` returned for these verdicts; of several judges the tables in the
            judges' order. The rows "slope at equal gold" are the lines, their intervals the bands.
        truth_name: what gold is called.
    """
    used = [*BOTH, "response"]
    verdicts = need(frame, *used)
    lengths = metrics.lengths(verdicts["response"])
    verdicts["length"] = lengths
    verdicts["response"] = verdicts["response"].where(lengths > 0)  # no words have no logarithm
    judges = by_judge(verdicts, *used)
    slopes = need(probe, "case", "effect", "low", "high")
    slopes = slopes[slopes["case"] == "slope at equal gold"].to_dict("records")
    if len(slopes) != len(judges):
        raise ValueError(f"{len(slopes)} slopes of {len(judges)} judges: give one for each")
    where = score_levels(frame["gold"])
    with page(**options) as paper:
        fig, panels = paper.panels(
            judges,
            0.75,
            across="length of the response (words)",
            up=f"score less its mean\nat equal {truth_name}",
            min_inches=1.6,
        )
        for (ax, rows), slope in zip(panels, slopes, strict=True):
            rows = rows.dropna(subset=used).sort_values("length")
            means = rows["score"].groupby(nearest_level(rows["gold"], where)).transform("mean")
            x = rows["length"]
            doublings = np.log2(x) - np.log2(x).mean()
            ax.scatter(x, rows["score"] - means, s=8, color=PALETTE[0], alpha=0.35, lw=0)
            band = [slope["low"] * doublings, slope["high"] * doublings]
            ax.fill_between(x, *band, color=PALETTE[1], alpha=0.4, lw=0)
            ax.plot(x, slope["effect"] * doublings, color=INK)
        log_axis(ax, "x", lengths[lengths > 0])
        return paper.finish(fig, _used(verdicts, used))
