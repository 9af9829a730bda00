"""What a judge's score means in true scores: reliability curves."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from vjudge.plots.canvas import INK, PALE, Column, finish, looks, need, note, style, width


def reliability_curve(
    tables: Mapping[str, pd.DataFrame],
    *,
    label: str = "mean true score",
    venue: str = "acl",
    column: Column = "half",
) -> Figure:
    """The mean true score at each score that a judge gives, and how often it gives it.

    Args:
        tables: by judge, what `metrics.calibration_curve` returned.
        label: of the upper vertical axis, for example "mean human score".
        venue, column: the figure's width.

    Returns:
        The figure: on the dashed diagonal a score means what it says; above it the judge is too harsh, below it too
        lenient. Bars are the tables' intervals, missing where a bin has a single item or no spread. Below: the
        share of items at each score.

    Raises:
        ValueError: there is no table, or one lacks a column or is empty.
    """
    if not tables:
        raise ValueError("there is no judge to draw: give at least one table of metrics.calibration_curve")
    for name, table in tables.items():
        need(table, "judge", "human", "low", "high", "n", "share")
        if table.empty:
            raise ValueError(f"{name!r} has no item with both scores")
    drawn = looks(list(tables))
    known = pd.concat([table[["judge", "human"]] for table in tables.values()])
    ends = (float(known.min(axis=None)), float(known.max(axis=None)))
    with style(venue):
        inches = width(venue, column)
        height = 0.95 * min(inches, 3.4) + 0.16 * (len(tables) > 2)
        fig, (ax, below) = plt.subplots(
            2, 1, figsize=(inches, height), sharex=True, layout="constrained", height_ratios=(3.2, 1)
        )
        ax.plot(ends, ends, "--", color=PALE, zorder=0)
        for place, (name, table) in enumerate(tables.items()):
            look = drawn[name]
            shift = (place - (len(tables) - 1) / 2) * 0.012 * (ends[1] - ends[0])  # intervals must not cover each other
            spread = np.abs(table[["low", "high"]].to_numpy() - table[["human"]].to_numpy()).T
            ax.errorbar(
                table["judge"] + shift, table["human"], yerr=spread, color=look.color, marker=look.marker, ms=4.5,
                mec=INK, mew=0.4, lw=1, elinewidth=0.9, capsize=2, label=name,
            )  # fmt: skip
            aside = (place - (len(tables) - 1) / 2) * 0.025 * (ends[1] - ends[0])
            at, share = table["judge"] + aside, 100 * table["share"]
            below.vlines(at, 0, share, color=look.color, lw=1.3)
            below.plot(at, share, look.marker, color=look.color, ms=3.5, mec=INK, mew=0.4)
        ax.set_ylabel(label)
        below.set(xlabel="judge's score", ylabel="share (%)")
        below.set_ylim(bottom=0)
        fig.legend(loc="outside upper center", ncols=min(len(tables), 2 if column == "half" else 4), handlelength=1.8)
        missing = max(int(table.attrs.get("missing", 0)) for table in tables.values())
        counts = sorted({int(table["n"].sum()) for table in tables.values()})
        n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        note(fig, f"n = {n} a judge, at most {missing} missing" if missing else f"n = {n} a judge, none missing")
        return finish(fig)
