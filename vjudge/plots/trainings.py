"""A training: its loss, and how well the judge agreed while it learned."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from vjudge.plots.canvas import INK, Column, finish, looks, need, note, style, width

AGREES, READABLE = "Pearson r", "readable verdicts"


def training_curve(log: pd.DataFrame, *, venue: str = "acl", column: Column = "full") -> Figure:
    """The loss of a training and, where it was evaluated, the correlation with its interval, over the steps.

    Args:
        log: as `vjudge.training.read_log` returns it: columns `step`; `loss`, and of evaluations `pearson`, `low`,
            `high`, `parsed`, `n`. An entry lacks the one or the other.
        venue, column: the figure's width.

    Returns:
        The figure: loss on a logarithmic axis; beside it correlation on the validation sample, with the share of
        verdicts that could be read. Where the correlation is undefined (all scores alike) there is no point.
    """
    need(log, "step")
    graded = log[log["parsed"].notna()] if "parsed" in log else log[:0]
    losses = log[log["loss"].notna()] if "loss" in log else log[:0]
    with style(venue):
        inches = width(venue, column)
        panels = 1 + bool(len(graded))
        fig, axes = plt.subplots(1, panels, figsize=(inches, 0.34 * min(inches, 6.3) * (1 if panels == 2 else 1.6)),
                                 layout="constrained", squeeze=False)  # fmt: skip
        drawn = looks([AGREES, READABLE])
        if len(losses):
            axes[0, 0].plot(losses["step"], losses["loss"], color=drawn[AGREES].color)
            axes[0, 0].set_yscale("log")
            axes[0, 0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes[0, 0].yaxis.set_minor_formatter(NullFormatter())
        axes[0, 0].set(xlabel="step", ylabel="loss a token")
        if panels == 2:
            ax = axes[0, 1]
            told = graded[graded["pearson"].notna()]
            reach = [told["pearson"] - told["low"], told["high"] - told["pearson"]]
            ax.errorbar(told["step"], told["pearson"], yerr=reach, color=drawn[AGREES].color, ms=4, mec=INK, mew=0.4,
                        marker=drawn[AGREES].marker, elinewidth=0.8, capsize=2, label=AGREES)  # fmt: skip
            ax.plot(graded["step"], graded["parsed"], color=drawn[READABLE].color, marker=drawn[READABLE].marker,
                    ms=3.5, mec=INK, mew=0.4, ls="--", label=READABLE)  # fmt: skip
            ax.set(xlabel="step", ylim=(min(-0.05, ax.get_ylim()[0]), 1.05))
            fig.legend(loc="outside upper right", ncols=2)
            note(fig, f"{int(graded['n'].max()):,} held-out items an evaluation")
        return finish(fig)
