"""Curves with intervals: power, what labels buy; and a training while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from vjudge.plots.style import INK, PALE, TRUTH, bars, key, log_ticks, looks, names_of, need, page, span

AGREES, READABLE = "Pearson r", "readable verdicts"


def curves(
    table: pd.DataFrame, *, x: str, y: str, by: str | None = None, panel: str | None = None, low: str = "low",
    high: str = "high", labels: tuple[str, str] | None = None, lines: Sequence[float] = (),
    band: tuple[float, float] | None = None, log: bool = False, **options: Any,
) -> Figure:  # fmt: skip
    """Estimates over a number, such as power by planted effect or an interval's width by labels, with their intervals.

    Args:
        table: one row a point: columns x, y, low, high; by (a line each) and panel (axes each); `simulations` where
            known.
        x, y, by, panel, low, high: names of those columns.
        labels: of the two axes; None takes the columns' names.
        lines: where dotted horizontal lines stand, such as .05 and .9, for shares, which then stand between 0 and 1.
        band: from where to where a grey band lies, such as .04 to .06.
        log: whether both axes are logarithmic.
        options: venue, column, note, font: see `page`.

    Raises:
        ValueError: a column is absent.
    """
    need(table, x, y, low, high, *(name for name in (by, panel) if name is not None))
    table = table.assign(**{name: names_of(table[name]) for name in (by, panel) if name is not None})
    kinds = looks([""] if by is None else list(table[by].unique()))
    parts = [("", table)] if panel is None else list(table.groupby(panel, sort=False))
    with page(**options) as paper:
        fig, axes = paper.panels(len(parts), 0.7, sharey=True)
        for ax, (_, part) in zip(axes, parts, strict=True):
            if band is not None:
                ax.axhspan(*band, color=TRUTH, lw=0, zorder=0)
            for level in lines:
                ax.axhline(level, color=PALE, lw=0.5, ls=":", zorder=0)
            for name, look in kinds.items():
                rows = (part if by is None else part[part[by] == name]).sort_values(x)
                bars(ax, rows, x, y, look, low=low, high=high, ms=3.5, elinewidth=0.8, capsize=1.5)
            ax.locator_params(axis="x", nbins=4)
            if lines:
                ax.set(ylim=(-0.03, 1.05), yticks=(0, 0.5, 1))
            if log:
                ax.set(xscale="log", yscale="log")
                log_ticks(ax, "x", part[x].min(), part[x].max())
                log_ticks(ax, "y", table[low].min(), table[high].max())
            elif not lines:
                ax.margins(y=0.1)
            ax.set_xlabel("\n".join(paper.wrap(labels[0] if labels else x, 0.8 * paper.inches / min(3, len(parts)), 8)))
        paper.name_panels(axes, [name for name, _ in parts], labels[1] if labels else y)
        if by is not None:
            paper.legend(fig, [key(name, look, lw=1, ls=look.dash) for name, look in kinds.items()])
        note = f"{span(table['simulations'])} simulations a point" if "simulations" in table else ""
        return paper.finish(fig, note)


def training_curve(log: pd.DataFrame, **options: Any) -> Figure:
    """The loss of a training and, where it was evaluated, the correlation with its interval, over the steps.

    Args:
        log: as `vjudge.training.read_log` returns it: columns `step`; `loss`, and of evaluations `pearson`, `low`,
            `high`, `parsed`, `n`. An entry lacks the one or the other.
        options: venue, column (here "full" unless given), note, font: see `page`.

    Returns:
        The figure: loss on a logarithmic axis; beside it correlation on the validation sample, with the share of
        verdicts that could be read. Where the correlation is undefined (all scores alike) there is no point.
    """
    need(log, "step")
    graded = log[log["parsed"].notna()] if "parsed" in log else log[:0]
    losses = log[log["loss"].notna()] if "loss" in log else log[:0]
    with page(**{"column": "full", **options}) as paper:
        fig, axes = paper.panels(1 + bool(len(graded)), 0.62, least=1.9)
        if len(losses):
            axes[0].plot(losses["step"], losses["loss"], color=INK)
            axes[0].set_yscale("log")
            axes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes[0].yaxis.set_minor_formatter(NullFormatter())
        axes[0].set(xlabel="step", ylabel="loss per token")
        note = ""
        if len(graded):
            ax, drawn = axes[1], looks([AGREES, READABLE])
            known = graded[graded["pearson"].notna()]
            bars(ax, known, "step", "pearson", drawn[AGREES], ms=4, elinewidth=0.8, capsize=2)
            ax.plot(graded["step"], graded["parsed"], ms=3.5, ls=drawn[READABLE].dash, **drawn[READABLE].point)
            ax.set(xlabel="step", ylabel="correlation, share", ylim=(min(-0.05, ax.get_ylim()[0]), 1.05))
            paper.legend(fig, [key(name, look, lw=1, ls=look.dash) for name, look in drawn.items()])
            note = f"{span(graded['n'])} held-out items an evaluation"
        return paper.finish(fig, note)
