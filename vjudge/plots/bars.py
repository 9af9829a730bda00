"""Stacked bars of shares: wins, ties and losses, or which feedback people prefer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame

from vjudge.metrics.intervals import INTERVAL
from vjudge.plots.style import GREY, INK, MIN_TEXT, PALETTE, counts, need, page

# Rows of `metrics.feedback_preference` -> their texts in the legend, from left to right
FOUR_WAY = {
    "left": "first better",
    "both_good": "both good",
    "both_bad": "both bad",
    "right": "second better",
}
# Of the shares between the first and the last
TIE_COLOURS = ("#F5F5F5", GREY)
NARROW_BAR = 8  # per cent: the number does not fit into a segment up to this width


def preference_bars(
    tables: Mapping[Any, DataFrame], *, labels: Mapping[str, str] = FOUR_WAY, **options: Any
) -> Figure:
    """Draw shares of wins, ties and losses, or of preferred feedback, as stacked bars.

    Whiskers below each bar are the intervals of its first and its last share.

    Args:
        tables: a bar each: what `metrics.feedback_preference` or `metrics.win_rate` returned, by
            the name of the bar or by the two names of a comparison, (first, second).
        labels: row of the tables -> its text in the legend, from left to right; the default is
            for feedback preferences.
        options: of `page`.
    """
    # One row per bar and share; the index holds the bar's number and the share's name
    stacked = need(pd.concat(dict(enumerate(tables.values()))), *INTERVAL, "n", "missing")
    first, *between, last = labels
    of_first = stacked.xs(first, level=1)
    names = []
    for key, missing in zip(tables, of_first["missing"], strict=True):
        name = key if isinstance(key, str) else " v ".join(key)
        names.append(f"{name} ({missing:,.0f} missing)" if missing else name)
    per_cent = 100 * stacked["estimate"].unstack()[list(labels)]  # (tables, labels)
    # The first two colours of the palette differ in grey print, too
    colors = [PALETTE[0], *TIE_COLOURS[: len(between)], PALETTE[1]]
    with page(**options) as paper:
        fig, ax = paper.subplots(0.42 * len(tables) + 0.5)
        per_cent.rename(columns=labels).plot.barh(
            stacked=True, ax=ax, color=colors, edgecolor=INK, lw=0.4, legend=False
        )
        for index, segments in enumerate(ax.containers):  # a label's segments, one per bar
            texts = [f"{share:.0f}" if share > NARROW_BAR else "" for share in segments.datavalues]
            color = "white" if index == 0 else INK  # the first colour is dark
            ax.bar_label(segments, texts, label_type="center", fontsize=MIN_TEXT, color=color)
        # Whiskers: the first share is measured from 0 and the last one from 100
        for row, origin in ((first, 0), (last, 100)):
            bounds = stacked.xs(row, level=1)[["low", "high"]]
            positions = abs(origin - 100 * bounds).to_numpy().T  # (2, tables)
            y = per_cent.index + 0.36  # below the bar, which is 0.5 high
            ax.plot(positions, [y, y], "|-", color=INK, lw=0.9, ms=3)
        ax.set(xlim=(0, 100), xlabel="share (%)", ylabel="")
        ax.set_yticklabels(paper.fold(names, 0.3 * paper.inches, 3))
        ax.invert_yaxis()
        paper.legend(fig, ax)
        whiskers = "Whiskers below the bars: 95% intervals of the first and the last share"
        return paper.finish(fig, counts(of_first), whiskers)
