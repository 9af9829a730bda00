"""Bars of preferences and of tags; curves with intervals: power, what labels buy, a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from vjudge.plots import style
from vjudge.plots.style import INK, MIN_TEXT, PALE, PALETTE, Look, ink_on, key, looks, names_of, need, page, span

FOUR_WAY = {"left": "left side better", "both_good": "both good", "both_bad": "both bad", "right": "right side better"}
WINS = {"win": "wins", "tie": "ties", "loss": "loses"}
FIRST, LAST = Look(PALETTE[0], "", "", "-"), Look(PALETTE[1], "", "////", "-")
AGREES, READABLE = "Pearson r", "readable verdicts"
TIES = (Look("#E6E6E6", "", "", "-"), Look("#BDBDBD", "", "....", "-"))


def preference_bars(
    tables: Mapping[Any, pd.DataFrame], *, labels: Mapping[str, str] | None = None, **options: Any
) -> Figure:
    """Shares of wins, ties and losses, or of left, both good, both bad and right, as bars that add up to 100%.

    Args:
        tables: what `metrics.feedback_preference` or `metrics.win_rate` returned, by a pair of names, which stand above
            the two ends of the bar, or by one text.
        labels: row of the tables -> its words in the legend, from left to right; None takes the four answers where
            the tables have them, else win, tie and loss.

    Returns:
        A bar a comparison: counts in its parts, n behind it, whiskers for the intervals of the first and last share.
    """
    if not tables:
        raise ValueError("there is no comparison to draw: give at least one table")
    words = dict(labels or (FOUR_WAY if "left" in next(iter(tables.values())).index else WINS))
    for name, table in tables.items():
        need(table, "estimate", "low", "high", "n", "missing")
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
            fits = {row: share[row] / 100 * room > paper.text_width(str(counts[row])) + 0.06 for row in words}
            for row, look in styles.items():
                ax.barh(y, share[row], 0.24 / pitch, left=starts[row], **look.bar)
                if fits[row]:
                    box = dict(fc=look.color, ec="none", pad=0.6)
                    small: dict[str, Any] = dict(
                        fontsize=MIN_TEXT, color=ink_on(look.color), bbox=box, ha="center", va="center"
                    )
                    ax.text(starts[row] + share[row] / 2, y, str(counts[row]), **small)
            for row, sign, aside in ((first, 1, -0.07), (last, -1, 0.07)):
                value, low, high = (100 * float(table.at[row, name]) for name in ("estimate", "low", "high"))
                reach = np.clip([[value - low], [high - value]][::sign], 0, None)
                at = value if sign > 0 else 100 - value
                ax.errorbar(at, y + aside / pitch, xerr=reach, fmt="none", ecolor=INK, elinewidth=0.9, capsize=1.5)
            for side, x, align in ((pair[0], 0, "left"), (pair[1], 100, "right")):
                above_bar: dict[str, Any] = dict(ha=align, va="bottom", fontsize=MIN_TEXT, linespacing=1.0)
                ax.text(x, y - 0.155 / pitch, "\n".join(side), **above_bar)
            ax.text(101.5, y, f"n={n}", va="center", fontsize=MIN_TEXT)
            if not all(fits.values()):
                listed = ", ".join(f"{word} {counts[row]}" for row, word in words.items())
                paper.account.append(f"counts of {' against '.join(part for part in sides[y] if part)}: {listed}")
        ax.set(xlim=(0, 100), ylim=(len(tables) - 1 + 0.2 / pitch, -(0.2 + 0.125 * lines) / pitch), xlabel="share (%)")
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        paper.legend(fig, [Patch(**look.bar, label=words[row]) for row, look in styles.items()])
        answered, missing = (sum(int(table.at[first, name]) for table in tables.values()) for name in ("n", "missing"))
        malformed = sum(int(table.attrs.get("malformed", 0)) for table in tables.values())
        gone = f", {missing:,} without an answer" + (f" ({malformed:,} unreadable)" if malformed else "")
        return paper.finish(fig, f"{answered:,} judgements" + (gone if missing else ""))


def tag_bars(table: pd.DataFrame, **options: Any) -> Figure:
    """Why feedback was rejected: how often each tag was given to each judge's feedback.

    Args:
        table: as `review.error_tags` returns it: columns judge, tag, count, n, share, low and high (in [0, 1]).

    Returns:
        A bar a judge and tag with interval and count, the most frequent on top; tags of nobody stand in the caption.
    """
    need(table, "judge", "tag", "count", "n", "share", "low", "high")
    table = table.assign(judge=names_of(table["judge"]), tag=names_of(table["tag"]))
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
            reach = np.clip([share - low, high - share], 0, None)
            ax.barh(y, share, step, **look.bar, xerr=reach, error_kw=dict(ecolor=INK, elinewidth=0.8, capsize=1.5))
            for at, end, count in zip(y, np.fmax(share, high), rows["count"], strict=True):
                if np.isfinite(end):
                    text = ax.annotate(f"{count:.0f}", (end, at), xytext=(3, 0), textcoords="offset points",
                                       va="center", fontsize=MIN_TEXT)  # fmt: skip
                    paper.optional(text, "counts")
        ax.set_yticks(range(len(tags)), left)
        ax.set_ylim(len(tags) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("share of reviews (%)")
        ax.margins(x=0.1)
        ax.set_xlim(left=0)
        if len(judges) > 1:
            paper.legend(fig, [Patch(**look.bar, label=judge) for judge, look in judges.items()])
        if others:
            paper.account.append(f"Given to none: {', '.join(map(str, others))}")
        return paper.finish(fig, f"n = {span(table['n'])}{' a judge' * (len(judges) > 1)}")


def curves(
    table: pd.DataFrame, *, x: str, y: str, by: str | None = None, panel: str | None = None, low: str = "low",
    high: str = "high", labels: tuple[str, str] | None = None, lines: Sequence[float] = (),
    band: tuple[float, float] | None = None, log: bool = False, **options: Any,
) -> Figure:  # fmt: skip
    """Estimates over a number, such as power by planted effect or an interval's width by labels, with their intervals.

    Args:
        table: one row a point; `simulations` where known.
        x, y, low, high, by, panel: names of its columns; a line for each of `by`, axes for each of `panel`.
        labels: of the two axes; None takes the columns' names.
        lines: heights of dotted lines, such as .05 and .9, for shares in [0, 1].
        band: from where to where a grey band lies; log: whether both axes are logarithmic.
    """
    need(table, x, y, low, high, *(name for name in (by, panel) if name is not None))
    table = table.assign(**{name: names_of(table[name]) for name in (by, panel) if name is not None})
    kinds = looks([""] if by is None else list(table[by].unique()))
    parts = [("", table)] if panel is None else list(table.groupby(panel, sort=False))
    with page(**options) as paper:
        fig, axes = paper.panels(len(parts), 0.7, sharey=True)
        for ax, (_, part) in zip(axes, parts, strict=True):
            if band is not None:
                ax.axhspan(*band, color=style.TRUTH, lw=0, zorder=0)
            for level in lines:
                ax.axhline(level, color=PALE, lw=0.5, ls=":", zorder=0)
            for name, look in kinds.items():
                rows = (part if by is None else part[part[by] == name]).sort_values(x)
                style.bars(ax, rows, x, y, look, low=low, high=high, ms=3.5, elinewidth=0.8, capsize=1.5)
            ax.locator_params(axis="x", nbins=4)
            if lines:
                ax.set(ylim=(-0.03, 1.05), yticks=(0, 0.5, 1))
            if log:
                ax.set(xscale="log", yscale="log")
                style.log_ticks(ax, "x", part[x].min(), part[x].max())
                style.log_ticks(ax, "y", table[low].min(), table[high].max())
            elif not lines:
                ax.margins(y=0.1)
            ax.set_xlabel("\n".join(paper.wrap(labels[0] if labels else x, 0.8 * paper.inches / min(3, len(parts)), 8)))
        paper.name_panels(axes, [name for name, _ in parts], labels[1] if labels else y)
        if by is not None:
            paper.legend(fig, [key(name, look, lw=1, ls=look.dash) for name, look in kinds.items()])
        note = f"{span(table['simulations'])} simulations a point" if "simulations" in table else ""
        return paper.finish(fig, note)


def training_curve(log: pd.DataFrame, **options: Any) -> Figure:
    """The loss of a training and, where it was evaluated, correlation and share of readable verdicts, over the steps.

    Args:
        log: as `vjudge.training.read_log` returns it: columns step; loss, and of evaluations pearson (no point where
            undefined), low, high, parsed, n.
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
            ax, styles = axes[1], looks([AGREES, READABLE])
            defined = graded[graded["pearson"].notna()]
            style.bars(ax, defined, "step", "pearson", styles[AGREES], ms=4, elinewidth=0.8, capsize=2)
            ax.plot(graded["step"], graded["parsed"], ms=3.5, ls=styles[READABLE].dash, **styles[READABLE].point)
            ax.set(xlabel="step", ylabel="correlation, share", ylim=(min(-0.05, ax.get_ylim()[0]), 1.05))
            paper.legend(fig, [key(name, look, lw=1, ls=look.dash) for name, look in styles.items()])
            note = f"{span(graded['n'])} held-out items an evaluation"
        return paper.finish(fig, note)
