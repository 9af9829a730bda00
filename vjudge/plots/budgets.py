"""What labels buy: the width of an interval by the number of labelled items."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from vjudge.plots.canvas import INK, Column, finish, looks, need, note, style, width


def label_curve(table: pd.DataFrame, *, venue: str = "acl", column: Column = "half") -> Figure:
    """The width of an interval by the number of labels, a line an order of labelling, on logarithmic axes.

    Args:
        table: one row an order and number of labels: columns `order`, `labels`, `width`, `low`, `high`,
            `simulations`. As `tests/validity/labels.py` returns it.
        venue, column: the figure's width.

    Returns:
        The figure: on these axes an interval that shrinks with the root of the labels is a straight line.
    """
    need(table, "order", "labels", "width", "low", "high", "simulations")
    with style(venue):
        inches = width(venue, column)
        fig, ax = plt.subplots(figsize=(inches, 0.66 * min(inches, 3.6)), layout="constrained")
        for name, look in looks(list(dict.fromkeys(table["order"]))).items():
            rows = table[table["order"] == name].sort_values("labels")
            reach = [rows["width"] - rows["low"], rows["high"] - rows["width"]]
            ax.errorbar(rows["labels"], rows["width"], yerr=reach, color=look.color, marker=look.marker, ms=4,
                        mec=INK, mew=0.4, elinewidth=0.8, capsize=2, label=name)  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel="labelled items", ylabel="width of the interval")
        labels = sorted(set(table["labels"]))
        ax.set_xticks(labels, [f"{count:g}" for count in labels])
        ticks = [tick for tick in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1) if table["low"].min() / 1.3 < tick]
        ticks = [tick for tick in ticks if tick < table["high"].max() * 1.3]
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_minor_locator(NullLocator())
        fig.legend(loc="outside upper center", ncols=2)
        note(fig, f"{int(table['simulations'].min()):,} simulated reviews a point")
        return finish(fig)
