"""What a test finds of effects that are there, and of effects that are not: power curves."""

from __future__ import annotations

import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vjudge.plots.canvas import INK, MIN_TEXT, PALE, TRUTH, Column, Look, finish, looks, need, note, style, width

LEVEL, BAND, WANTED = 0.05, (0.04, 0.06), 0.9


def power_curves(
    cells: pd.DataFrame,
    *,
    panel: str = "label",
    by: str = "design",
    effect: str = "planted",
    columns: int = 4,
    venue: str = "acl",
    column: Column = "half",
) -> Figure:
    """The share of simulations in which a test rejects, by the size of the planted effect: a panel a test.

    Args:
        cells: one row a simulated setting: columns `panel`, `by`, `effect`, `rejected`, `rejected_low`,
            `rejected_high` (shares in [0, 1]) and `simulations`; `unit` (of the effect) where known. As
            `tests/validity/probes.py` returns them.
        panel: column that names the test; by: column of the lines within a panel; effect: column of the planted size.
        columns: panels in a row, at most.
        venue, column: the figure's width.

    Returns:
        The figure: at no effect the curve should meet the nominal 5 % (grey band 4 to 6 %), and then rise past .9.
    """
    need(cells, panel, by, effect, "rejected", "rejected_low", "rejected_high", "simulations")
    drawn = looks(list(dict.fromkeys(cells[by])))
    labels = list(dict.fromkeys(cells[panel]))
    n_columns = min(columns, len(labels))
    n_rows = -(-len(labels) // n_columns)
    with style(venue):
        inches = width(venue, column)
        height = (1.3 if n_columns > 1 else 1.9) * n_rows + 0.35
        fig, grid = plt.subplots(n_rows, n_columns, figsize=(inches, height), sharey=True, squeeze=False,
                                 layout="constrained")  # fmt: skip
        axes = grid.flat
        for ax, label in zip(axes, labels, strict=False):
            power_panel(ax, cells[cells[panel] == label], drawn, by=by, effect=effect)
            if len(labels) > 1:
                ax.set_title(label, pad=3, fontsize=MIN_TEXT + 0.5)
        for ax in list(grid.flat)[len(labels) :]:
            ax.set_axis_off()
        for row in grid:
            row[0].set_ylabel("share rejected")
        handles, names = grid[0, 0].get_legend_handles_labels()
        fig.legend(handles, names, loc="outside upper center", ncols=min(len(names), 2 if column == "half" else 4))
        low, high = int(cells["simulations"].min()), int(cells["simulations"].max())
        note(fig, f"{low:,} simulations a point" if low == high else f"{low:,} to {high:,} simulations a point")
        return finish(fig)


def power_panel(
    ax: Axes, cells: pd.DataFrame, looks: dict[str, Look], *, by: str, effect: str, narrow: bool = False
) -> None:
    """Draw one test's curves on given axes; narrow ones have two ticks and wrap the unit."""
    ax.axhspan(*BAND, color=TRUTH, lw=0, zorder=0)
    for level in (LEVEL, WANTED):
        ax.axhline(level, color=PALE, lw=0.5, ls=":", zorder=0)
    for name, look in looks.items():
        here = cells[cells[by] == name].sort_values(effect)
        spread = np.abs(here[["rejected_low", "rejected_high"]].to_numpy() - here[["rejected"]].to_numpy()).T
        ax.errorbar(here[effect], here["rejected"], yerr=spread, color=look.color, marker=look.marker, ms=3,
                    mec=INK, mew=0.3, lw=0.9, elinewidth=0.6, label=name)  # fmt: skip
    ax.set(ylim=(-0.03, 1.05), yticks=(0, 0.5, 1))
    largest = float(cells[effect].max())
    ax.set_xlim(-0.06 * largest, 1.06 * largest)
    ticks = (0, largest) if narrow else (0, largest / 2, largest)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    if "unit" in cells.columns:
        unit = str(cells["unit"].iloc[0])
        ax.set_xlabel(textwrap.fill(unit, 14) if narrow else unit, fontsize=MIN_TEXT, labelpad=0 if narrow else 1)
