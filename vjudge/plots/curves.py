"""Curves of estimates over a number, such as power over the size of an effect, or loss by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from vjudge.plots.style import PALE, log_axis, looks, need, page, reach

# Columns of a training log that are drawn -> the titles of their panels
LOGGED = {"loss": "loss per token", "pearson": "Pearson r", "parsed": "readable verdicts"}


def curves(
    table: DataFrame,
    *,
    x: str,
    y: str,
    by: str,
    panel: str | None = None,
    low: str = "low",
    high: str = "high",
    labels: Sequence[str] | None = None,
    lines: Sequence[float] = (),
    log: bool = False,
    **options: Any,
) -> Figure:
    """Draw estimates with their intervals as curves over a number.

    Args:
        table: one row per point. Points without an estimate are not drawn; the caption counts them.
        x, y, low, high: the names of its columns with the number, the estimate and its bounds.
        by: the name of its column whose values get one curve each.
        panel: the name of its column whose values get one panel each; None draws one panel.
        labels: of the horizontal and the vertical axis; None takes `x` and `y`.
        lines: heights of dotted horizontal lines.
        log: whether both axes are logarithmic.
        options: of `page`.
    """
    table = need(table, x, y, low, high, names=[by])
    table = table.assign(low=table[low], high=table[high])  # the names that `reach` takes
    panels = {"": table}
    if panel is not None:
        panels = dict(list(table.groupby(panel, sort=False)))
    across, up = labels or (x, y)
    kinds = looks(table[by].unique())
    has_intervals = not (table["low"] == table["high"]).all()  # whiskers of no length are not drawn

    def draw(ax: Axes, points: DataFrame) -> None:
        """Draw one panel: the dotted lines, and a curve for each value of `by` (a kind)."""
        for level in lines:
            ax.axhline(level, color=PALE, lw=0.5, ls=":", zorder=0)
        # Move the curves apart by steps of 1 % of the range, so that no whisker hides another:
        # three curves by -1, 0 and 1 steps
        step = 0.0 if log else 0.01 * np.ptp(points[x])
        for index, (kind, look) in enumerate(kinds.items()):
            rows = points[points[by] == kind].sort_values(x)
            moved = rows[x] + step * (index - (len(kinds) - 1) / 2)
            whiskers = reach(rows, y) if has_intervals else None
            ax.errorbar(moved, rows[y], yerr=whiskers, label=kind, **look)
        if (points[x] % 1 == 0).all():  # whole numbers have ticks at whole numbers
            ax.locator_params(axis="x", integer=True)
        if log:
            log_axis(ax, "x", points[x])
            log_axis(ax, "y", table[y])  # the same range in all panels

    with page(**options) as paper:
        fig, axes = paper.panels(panels, 0.7, across=across, up=up, shared=False)
        for ax, points in axes:
            draw(ax, points)
        paper.legend(fig, fig.axes[0])
        account = ""
        n_undefined = table[y].isna().sum()
        if n_undefined:
            account = f"Not drawn, since undefined: {n_undefined:,} of {len(table):,} points"
        return paper.finish(fig, account)


def training_curve(log: DataFrame, **options: Any) -> Figure:
    """Draw the loss of a training, and agreement and readable verdicts of its evaluations.

    Args:
        log: a `training_log.jsonl` as a frame, one row per record: columns step; loss; and, in
            records of evaluations, parsed (the share of readable verdicts) and pearson with low and
            high. An undefined pearson has no point.
        options: of `page`.
    """
    panels = []
    for name in log.columns.intersection(list(LOGGED)):
        points = log.reindex(columns=["step", "low", "high", "parsed"]).assign(value=log[name])
        is_defined = points["value"].notna()
        if name == "pearson":
            # An undefined correlation of an evaluation stays, so that the caption counts it
            points = points[is_defined | points["parsed"].notna()]
        else:
            points = points[is_defined].assign(low=np.nan, high=np.nan)  # no intervals
        panels.append(points.assign(panel=LOGGED[name], by=""))  # one curve per panel
    options = {"column": "full", "labels": ("step", ""), **options}
    return curves(pd.concat(panels), x="step", y="value", by="by", panel="panel", **options)
