"""Bars of preferences and of tags; curves with intervals: power, what labels buy, a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vjudge.plots import style
from vjudge.plots.style import INK, MIDDLE, PALE, PALETTE, SMALL, Look, ink_on, items, looks, need, page, span

FOUR_WAY = {"left": "left side better", "both_good": "both good", "both_bad": "both bad", "right": "right side better"}
WINS = {"win": "wins", "tie": "ties", "loss": "loses"}
FIRST, LAST = Look(PALETTE[0]), Look(PALETTE[1], hatch="////")
TIES = (Look("#E6E6E6"), Look("#BDBDBD", hatch="...."))


def preference_bars(
    tables: Mapping[Any, pd.DataFrame], *, labels: Mapping[str, str] | None = None, **options: Any
) -> Figure:
    """Shares of wins, ties and losses, or of left, both good, both bad and right, as bars that add up to 100%.

    Args:
        tables: what `metrics.feedback_preference` or `metrics.win_rate` returned, by a pair of names, which stand above
            the two ends of the bar, or by one text; whiskers are the intervals of the first and last share.
        labels: row of the tables -> its words in the legend, from left to right; None takes the four answers where
            the tables have them, else win, tie and loss.
    """
    whole = need(pd.concat(list(tables.values())), "estimate", "low", "high", "n", "missing")
    words = dict(labels or (FOUR_WAY if "left" in whole.index else WINS))
    for name, table in tables.items():
        if absent := [row for row in words if row not in table.index]:
            raise ValueError(f"{name!r} lacks {absent}: pass the table of feedback_preference or win_rate")
    first, *between, last = words
    styles = {first: FIRST, **dict(zip(between, cycle(TIES))), last: LAST}
    with page(**options) as paper:
        sides = [name if isinstance(name, tuple) else (str(name), "") for name in tables]
        room = paper.inches - 0.65  # inches of a bar
        above = [[paper.wrap(str(side), room * (0.48 if all(pair) else 1)) for side in pair] for pair in sides]
        lines = max(len(part) for pair in above for part in pair)
        pitch = 0.38 + 0.125 * lines
        fig, ax = paper.subplots(pitch * len(tables) + 0.4)
        for y, (pair, table) in enumerate(zip(above, tables.values(), strict=True)):
            n, share = int(table.at[first, "n"]), 100 * table.loc[list(words), "estimate"].fillna(0)
            counts, starts = (share * n / 100).round().astype(int), share.cumsum() - share
            fits = share / 100 * room > [paper.text_width(str(count)) + 0.06 for count in counts]
            for row, look in styles.items():
                ax.barh(y, share[row], 0.24 / pitch, left=starts[row], **look.bar)
                if fits[row]:
                    box, ink = dict(fc=look.color, ec="none", pad=0.6), ink_on(look.color)
                    ax.text(starts[row] + share[row] / 2, y, str(counts[row]), color=ink, bbox=box, **MIDDLE, **SMALL)
            for row, start, sign in ((first, 0, 1), (last, 100, -1)):
                ends = start + sign * 100 * table.loc[row, ["low", "high"]].astype(float)
                ax.plot(ends, [y - sign * 0.07 / pitch] * 2, "|-", color=INK, lw=0.9, ms=3)
            for side, x, align in ((pair[0], 0, "left"), (pair[1], 100, "right")):
                ax.text(x, y - 0.155 / pitch, "\n".join(side), ha=align, va="bottom", linespacing=1.0, **SMALL)
            ax.text(101.5, y, f"n={n}", va="center", **SMALL)
            if not all(fits):
                listed = ", ".join(f"{word} {counts[row]}" for row, word in words.items())
                paper.account.append(f"Counts of {' against '.join(part for part in sides[y] if part)}: {listed}")
        ax.set(xlim=(0, 100), ylim=(len(tables) - 1 + 0.2 / pitch, -(0.2 + 0.125 * lines) / pitch), xlabel="share (%)")
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        paper.legend(fig, [Patch(**look.bar, label=words[row]) for row, look in styles.items()])
        answered, missing = whole.loc[[first], ["n", "missing"]].sum().astype(int)
        malformed = sum(int(table.attrs.get("malformed", 0)) for table in tables.values())
        gone = f", {missing:,} without an answer" + (f" ({malformed:,} unreadable)" if malformed else "")
        return paper.finish(fig, f"{answered:,} judgements" + (gone if missing else ""))


def tag_bars(table: pd.DataFrame, **options: Any) -> Figure:
    """Why feedback was rejected: how often each tag was given to each judge's feedback, the most frequent on top.

    Args:
        table: as `review.error_tags` returns it: columns judge, tag, count, n, share, low and high (in [0, 1]).
    """
    table = need(table, "count", "n", "share", "low", "high", names=["judge", "tag"], once=True)
    totals = table.groupby("tag", sort=False)["count"].sum().sort_values(ascending=False, kind="stable")
    tags, others = list(totals[totals > 0].index), list(totals[totals == 0].index)
    if not tags:
        raise ValueError("no tag was given to any feedback: there is nothing to draw")
    judges = looks(list(table["judge"].unique()))
    with page(**options) as paper:
        pitch, step = max(0.24, 0.13 * len(judges) + 0.08), 0.84 / len(judges)
        left = paper.labels(tags, 0.36 * paper.inches, lines=max(1, int(pitch / 0.12)), what="Tags")
        fig, ax = paper.subplots(pitch * len(tags) + 0.45)
        for place, (judge, look) in enumerate(judges.items()):
            rows = table[table["judge"] == judge].set_index("tag").reindex(tags)
            y = np.arange(len(tags)) - 0.42 + (place + 0.5) * step
            share, low, high = (100 * rows[name].to_numpy(float) for name in ("share", "low", "high"))
            ax.barh(y, share, step, **look.bar)
            ax.plot([low, high], [y, y], "|-", color=INK, lw=0.8, ms=3)
            for at, end, count in zip(y, np.fmax(share, high), rows["count"], strict=True):
                if np.isfinite(end):
                    aside: dict[str, Any] = dict(xytext=(3, 0), textcoords="offset points", va="center", **SMALL)
                    paper.optional(ax.annotate(f"{count:.0f}", (end, at), **aside), "counts")
        ax.set_yticks(range(len(tags)), left)
        ax.set_ylim(len(tags) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("share of reviews (%)")
        ax.margins(x=0.1)
        ax.set_xlim(left=0)
        if len(judges) > 1:
            paper.legend(fig, [Patch(**look.bar, label=judge) for judge, look in judges.items()])
        if others:
            paper.account.append(f"Given to none: {', '.join(others)}")
        return paper.finish(fig, items(table, "a judge"))


def curves(
    table: pd.DataFrame, *, x: str, y: str, by: str, panel: str | None = None, low: str = "low", high: str = "high",
    labels: tuple[str, str] | None = None, lines: Sequence[float] = (), band: tuple[float, float] | None = None,
    log: bool = False, **options: Any,
) -> Figure:  # fmt: skip
    """Estimates over a number, such as power by planted effect or an interval's width by labels, with their intervals.

    Args:
        table: one row a point; `simulations` where known.
        x, y, low, high, by, panel: names of its columns; a line for each of `by`, axes for each of `panel`.
        labels: of the two axes; None takes the columns' names.
        lines: heights of dotted lines, such as .05 and .9, for shares in [0, 1].
        band: from where to where a grey band lies; log: whether both axes are logarithmic.
    """
    table = need(table, x, y, low, high, names=[by] if panel is None else [by, panel])
    kinds, (across, up) = looks(list(table[by].unique())), labels or (x, y)
    parts = {"": table} if panel is None else dict(list(table.groupby(panel, sort=False)))
    with page(**options) as paper:
        fig, axes, _ = paper.panels(list(parts), 0.7, label=up, sharey=True)
        for ax, part in zip(axes, parts.values(), strict=True):
            if band is not None:
                ax.axhspan(*band, color=style.TRUTH, lw=0, zorder=0)
            for level in lines:
                ax.axhline(level, color=PALE, lw=0.5, ls=":", zorder=0)
            for name, look in kinds.items():
                rows = part[part[by] == name].sort_values(x)
                style.bars(ax, rows, x, y, look, low=low, high=high, ms=3.5, elinewidth=0.8, capsize=1.5)
            ax.locator_params(axis="x", nbins=4)
            if lines:
                ax.set(ylim=(-0.03, 1.05), yticks=(0, 0.5, 1))
            if log:
                style.log_axis(ax, "x", part[x].min(), part[x].max())
                style.log_axis(ax, "y", table[low].min(), table[high].max())
            elif not lines:
                ax.margins(y=0.1)
            ax.set_xlabel("\n".join(paper.wrap(across, 0.8 * paper.inches / min(3, len(parts)), 8)))
        paper.legend(fig, style.keys(kinds, lw=1))
        return paper.finish(fig, f"{span(table['simulations'])} simulations a point" if "simulations" in table else "")


def training_curve(log: pd.DataFrame, **options: Any) -> Figure:
    """The loss of a training and, where it was evaluated, correlation and share of readable verdicts, over the steps.

    Args:
        log: as `vjudge.training.read_log` returns it: columns step; loss, and of evaluations pearson (no point where
            undefined), low, high, parsed, n.
    """
    need(log, "step")
    log = log.reindex(columns=log.columns.union(["loss", "parsed"]))
    losses, graded = log[log["loss"].notna()], log[log["parsed"].notna()]
    with page(**{"column": "full", **options}) as paper:
        fig, axes, inches = paper.panels([""] * (1 + bool(len(graded))), 0.62)
        if len(losses):
            axes[0].plot(losses["step"], losses["loss"], color=INK)
            style.log_axis(axes[0], "y", losses["loss"].min(), losses["loss"].max())
        axes[0].set(xlabel="step", ylabel="loss per token")
        note = ""
        if len(graded):
            ax, styles = axes[1], looks(["Pearson r", "readable verdicts"])
            agreement, readable = styles.values()
            defined = graded[graded["pearson"].notna()]
            style.bars(ax, defined, "step", "pearson", agreement, ms=4, elinewidth=0.8, capsize=2)
            ax.plot(graded["step"], graded["parsed"], ms=3.5, ls=readable.dash, **readable.point)
            label = "\n".join(paper.wrap("correlation, share", 0.4 * inches))
            ax.set(xlabel="step", ylabel=label, ylim=(min(-0.05, ax.get_ylim()[0]), 1.05))
            paper.legend(fig, style.keys(styles, lw=1))
            note = f"{span(graded['n'])} held-out items an evaluation"
        return paper.finish(fig, note)
