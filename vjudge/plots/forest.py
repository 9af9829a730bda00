"""Forest plots: estimates with their intervals, one per line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from vjudge.metrics.intervals import INTERVAL
from vjudge.plots.style import (
    GREY,
    MIN_TEXT,
    PALE,
    Look,
    Page,
    counts,
    looks,
    need,
    page,
    reach,
    short,
)

# Heights in lines: `y` counts lines from the top of a panel
GAP = 1.4  # between the last line of a name and the first line of the next name
MARGIN = 0.7  # above the first and below the last line
# Heights in inches
LINE = 0.19
MIN_LINE = 0.1  # lines that are closer can't be read
AXIS = 0.62  # a horizontal axis with its label
NUMBERS_FROM = 2.8  # width of a page from which estimates are also printed


def forest(
    table: DataFrame,
    *,
    rows: str = "judge",
    by: str | None = None,
    panel: str | None = None,
    shared: bool = False,
    label: str = "Pearson r",
    reference: float | None = 0.0,
    **options: Any,
) -> Figure:
    """Draw estimates with their intervals as a forest plot, or as small multiples.

    Args:
        table: one row per line: columns `rows`, estimate, low, high; optionally n and missing (for
            the caption), `margin` (half the width of a grey band around zero), `by` and `panel`.
        rows: the column with the names at the left, in order of appearance.
        by: a column whose values have a colour and marker each, such as the statistic.
        panel: a column that splits the lines into panels, and names each of them.
        shared: whether panels stand side by side with the same names and axes. Otherwise one stands
            below the other.
        label: of the horizontal axis, without panels or with shared ones.
        reference: the position of a dashed vertical line; None draws none.
        options: of `page`.

    Raises:
        PageFull: the lines do not fit on the page.
    """
    names = [name for name in (panel, rows, by) if name is not None]
    table = need(table, *INTERVAL, names=names)
    # In one call, since `rows`, `by` and `panel` may be called "name", "kind" or "panel"
    table = table.assign(name=table[rows], kind=table.get(by, ""), panel=table.get(panel, label))
    table["y"] = _line_positions(table, shared)
    kinds = looks(table["kind"].unique())
    with page(**options) as paper:
        if by and not panel and _inches_of_panels(table) > paper.tall:
            # Too high for the page: draw a panel for each kind, side by side
            multiples: dict[str, Any] = {"panel": by, "shared": True, **options}
            return forest(table, rows=rows, label=label, reference=reference, **multiples)
        fig, panels = _axes_of_panels(paper, table, shared, label)
        for ax, lines in panels:
            _draw_lines(ax, lines, kinds)
            if shared:
                _write_names(ax, table, paper, max_lines=1)
            else:
                _write_names(ax, lines, paper, max_lines=2)
                (title,) = paper.fold(lines["panel"].unique(), 0.6 * paper.inches)
                ax.set_xlabel(title)
                if paper.inches > NUMBERS_FROM:
                    _write_numbers(ax, lines)
            if reference is not None:
                ax.axvline(reference, color=PALE, ls="--", lw=0.8, zorder=-1)
        paper.legend(fig, fig.axes[0])
        band = "Grey band: changes too small to matter" if "margin" in table else ""
        return paper.finish(fig, counts(table), band)


def _line_positions(table: DataFrame, shared: bool) -> pd.Series:
    """Compute the position of each row in its panel, in lines from the top.

    The lines of a name stand together, with a gap below them. Two names with two lines each are at
    0, 1 and 2.4, 3.4. Shared panels have a name at the same position.
    """
    scope = np.where(shared, "", table["panel"])  # within which names are numbered
    name_index = table["name"].groupby(scope).transform(lambda names: pd.factorize(names)[0])
    line_of_name = table.groupby(["panel", "name"]).cumcount()
    return line_of_name + name_index * (line_of_name.max() + GAP)


def _inches_of_panels(table: DataFrame) -> float:
    """Compute the height of panels that stand one below the other."""
    heights = table.groupby("panel")["y"].max() + 2 * MARGIN
    return LINE * heights.sum() + AXIS * len(heights)


def _axes_of_panels(
    paper: Page, table: DataFrame, shared: bool, label: str
) -> tuple[Figure, Iterable[tuple[Axes, DataFrame]]]:
    """Make the axes of each panel, and give them with the panel's rows."""
    panels = dict(list(table.groupby("panel", sort=False)))
    heights = [rows["y"].max() + 2 * MARGIN for rows in panels.values()]
    if shared:
        ratio = 0.08 * max(heights)
        least = MIN_LINE * max(heights)
        return paper.panels(panels, ratio, across=label, min_inches=1.6, min_height=least)
    paper.check(MIN_LINE * sum(heights) + AXIS * len(panels), f"{len(table)} lines")
    fig, axes = paper.subplots(
        _inches_of_panels(table), len(panels), squeeze=False, height_ratios=heights
    )
    return fig, zip(axes.flat, panels.values(), strict=True)


def _draw_lines(ax: Axes, lines: DataFrame, kinds: Mapping[str, Look]) -> None:
    """Draw estimates with whiskers at their `y`, and the grey band of margins."""
    for kind, look in kinds.items():
        of_kind = lines[lines["kind"] == kind]
        ax.errorbar(
            of_kind["estimate"],
            of_kind["y"],
            xerr=reach(of_kind, "estimate"),
            label=kind,
            ls="none",
            **look,
        )
    if "margin" in lines:
        margin = lines["margin"].fillna(0)  # a line without a margin has no band
        ax.barh(lines["y"], 2 * margin, left=-margin, color=GREY, zorder=-2)


def _write_names(ax: Axes, lines: DataFrame, paper: Page, max_lines: int) -> None:
    """Write each name at the left, in the middle of its lines."""
    ticks = lines.groupby("name", sort=False)["y"].mean()
    ax.set_ylim(lines["y"].max() + MARGIN, -MARGIN)  # the first line on top
    ax.set_yticks(ticks, paper.fold(ticks.index, 0.36 * paper.inches, max_lines))
    ax.locator_params(axis="x", nbins=int(paper.inches))


def _write_numbers(ax: Axes, lines: DataFrame) -> None:
    """Write each estimate with its interval at the right."""
    beside = ax.get_yaxis_transform()  # x in shares of the axes' width, y in lines
    for y, bounds in zip(lines["y"], lines[INTERVAL].to_numpy(float), strict=True):
        ax.text(1.02, y, short(*bounds), transform=beside, va="center", fontsize=MIN_TEXT)
