"""Forest plots: estimates with their intervals, one per line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

# Heights in lines of the figure (a row of the table each); `y` counts them from the top
GAP = 1.4  # from the last line of a name to the first line of the next name
MARGIN = 0.7  # above the first and below the last line
# Heights in inches
LINE_HEIGHT = 0.19
MIN_LINE_HEIGHT = 0.1  # names of lines that are closer can't be read
AXIS_HEIGHT = 0.62  # a horizontal axis with its label
NUMBERS_FROM = 2.8  # a page that is wider has room to print the estimates as numbers, too


def forest(
    table: DataFrame,
    *,
    rows: str = "judge",
    by: str | None = None,
    panel: str | None = None,
    label: str = "Pearson r",
    reference: float | None = 0.0,
    **options: Any,
) -> Figure:
    """Draw estimates with their intervals as a forest plot, or as small multiples.

    If a forest with `by` and without `panel` is higher than the page, each value of `by` gets a
    panel instead.

    Args:
        table: one row per line: columns `rows`, estimate, low, high; optionally n and missing (for
            the caption), margin (half the width of a grey band around zero), and the columns that
            `by` and `panel` name.
        rows: the column with the names at the left, in order of appearance.
        by: a column whose values get one colour and marker each, such as the statistic.
        panel: a column whose values get one panel each, side by side with the same names and axes.
        label: of the horizontal axis.
        reference: the position of a dashed vertical line; None draws none.
        options: of `page`.

    Raises:
        ValueError: the table has no row.
        PageFull: the lines do not fit on the page.
    """
    names = [name for name in (panel, rows, by) if name is not None]
    table = need(table, *INTERVAL, names=names)
    if table.empty:
        raise ValueError("the table has no row: there is nothing to draw")
    # In one call, since the columns that are read may themselves be called "name", "kind" or
    # "panel"; without `by` or `panel`, `get` returns ""
    table = table.assign(name=table[rows], kind=table.get(by, ""), panel=table.get(panel, ""))
    table["y"] = _line_positions(table)
    n_lines = table["y"].max() + 2 * MARGIN
    kinds = looks(table["kind"].unique())
    with page(**options) as paper:
        if by and not panel and LINE_HEIGHT * n_lines + AXIS_HEIGHT > paper.tall:
            return forest(table, rows=rows, panel=by, label=label, reference=reference, **options)
        fig, axes = _axes_with_lines(paper, table, n_lines, panel, label)
        ticks = table.groupby("name", sort=False)["y"].mean()  # at the middle of a name's lines
        tick_names = paper.fold(ticks.index, 0.36 * paper.inches, 1 if panel else 2)
        for ax, lines in axes:
            _draw_lines(ax, lines, kinds)
            ax.set_ylim(n_lines - MARGIN, -MARGIN)  # the first line on top
            ax.set_yticks(ticks, tick_names)
            ax.locator_params(axis="x", nbins=int(paper.inches))
            if reference is not None:
                ax.axvline(reference, color=PALE, ls="--", lw=0.8, zorder=-1)
        paper.legend(fig, fig.axes[0])
        band = "Grey band: changes too small to matter" if "margin" in table else ""
        return paper.finish(fig, counts(table), band)


def _axes_with_lines(
    paper: Page, table: DataFrame, n_lines: float, panel: str | None, label: str
) -> tuple[Figure, list[tuple[Axes, DataFrame]]]:
    """Make a figure with an axes for each panel, or with a single one.

    Args:
        table: the rows, with the columns panel and y. n_lines: the height of a panel, in lines.
        panel: None makes a single axes. label: of the horizontal axis.

    Returns:
        The figure, and each axes with the rows that it shows.

    Raises:
        PageFull: the lines do not fit on the page.
    """
    if panel:
        panels = dict(list(table.groupby("panel", sort=False)))
        ratio = 0.08 * n_lines  # of a panel's height to its width
        min_height = MIN_LINE_HEIGHT * n_lines
        return paper.panels(panels, ratio, across=label, min_inches=1.6, min_height=min_height)
    paper.check(MIN_LINE_HEIGHT * n_lines + AXIS_HEIGHT, f"{len(table)} lines")
    fig, ax = paper.subplots(LINE_HEIGHT * n_lines + AXIS_HEIGHT)
    (title,) = paper.fold([label], 0.6 * paper.inches)
    ax.set_xlabel(title)
    if paper.inches > NUMBERS_FROM:
        _write_numbers(ax, table)
    return fig, [(ax, table)]


def _line_positions(table: DataFrame) -> pd.Series:
    """Compute the position of each row in its panel, in lines from the top.

    The lines of a name stand together, with a gap below them: two names with two lines each have
    the positions 0, 1 and 2.4, 3.4. A name has the same position in all panels.
    """
    name_index = pd.factorize(table["name"])[0]
    line_of_name = table.groupby(["panel", "name"]).cumcount()
    return line_of_name + name_index * (line_of_name.max() + GAP)


def _draw_lines(ax: Axes, lines: DataFrame, kinds: Mapping[str, Look]) -> None:
    """Draw estimates with whiskers at their `y`, and the grey band of margins.

    Args:
        lines: the rows of one axes, with columns estimate, low, high, y, kind; optionally margin.
        kinds: the colour and marker of each kind.
    """
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


def _write_numbers(ax: Axes, lines: DataFrame) -> None:
    """Write each estimate with its interval as text, at the right of the axes."""
    beside = ax.get_yaxis_transform()  # x in shares of the axes' width, y in lines
    for y, bounds in zip(lines["y"], lines[INTERVAL].to_numpy(float), strict=True):
        ax.text(1.02, y, short(*bounds), transform=beside, va="center", fontsize=MIN_TEXT)
