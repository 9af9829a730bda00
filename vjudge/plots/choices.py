"""Which of two sides is preferred, as stacked bars, and why feedback was rejected, as bars of tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vjudge.plots.style import INK, MIN_TEXT, PALETTE, ink_on, looks, need, page, span

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from vjudge.plots.style import PageOptions

FOUR_WAY = {
    "left": "left side better",
    "both_good": "both good",
    "both_bad": "both bad",
    "right": "right side better",
}
WINS = {"win": "wins", "tie": "ties", "loss": "loses"}
TIES = ({"fc": "#E6E6E6", "hatch": ""}, {"fc": "#BDBDBD", "hatch": "...."})


def preference_bars(
    tables: Mapping[Any, pd.DataFrame],
    *,
    labels: Mapping[str, str] | None = None,
    **options: Unpack[PageOptions],
) -> Figure:
    """Shares of wins, ties and losses, or of left, both good, both bad and right, as bars that add up to 100%.

    Args:
        tables: what `metrics.feedback_preference` or `metrics.win_rate` returned, by comparison: a pair of names, the
            left side or the one that wins first, which then stand above the two ends of the bar; or one text.
        labels: row of the tables -> its words in the legend, from the left end to the right; None takes the four
            answers where the tables have them, else win, tie and loss.
        options: venue, column, note, font: see `page`.

    Returns:
        A bar a comparison: counts in its parts, n behind it, and whiskers for the intervals of the first and the last
        share. In the corner: judgements, and those that are missing or could not be read.

    Raises:
        ValueError: there is no table, or one lacks a row or column.
    """
    if not tables:
        raise ValueError("there is no comparison to draw: give at least one table")
    words = dict(labels or (FOUR_WAY if "left" in next(iter(tables.values())).index else WINS))
    for name, table in tables.items():
        absent = [row for row in words if row not in table.index]
        absent += [part for part in ("estimate", "low", "high", "n", "missing") if part not in table.columns]
        if absent:
            raise ValueError(f"{name!r} lacks {absent}: pass the table of feedback_preference or win_rate")
    ends = ({"fc": PALETTE[0], "hatch": ""}, {"fc": PALETTE[1], "hatch": "////"})
    kinds = [ends[0], *[TIES[place % 2] for place in range(len(words) - 2)], ends[1]]
    with page(**options) as paper:
        sides = [name if isinstance(name, tuple) else (str(name), "") for name in tables]
        room = paper.inches - 0.65  # of the bar
        above = [[paper.wrap(str(side), room * (0.48 if all(pair) else 1)) for side in pair] for pair in sides]
        lines = max(len(part) for pair in above for part in pair)
        pitch = 0.38 + 0.125 * lines
        fig, ax = paper.subplots(pitch * len(tables) + 0.4)
        for y, (pair, table) in enumerate(zip(above, tables.values(), strict=True)):
            share, n, start, counts = 100 * table.loc[list(words), "estimate"].to_numpy(float), 0, 0.0, []
            n = int(table["n"].max())
            for row, kind, part in zip(words, kinds, share, strict=True):
                part = part if np.isfinite(part) else 0.0
                ax.barh(y, part, 0.24 / pitch, left=start, **kind, edgecolor="white" if kind["hatch"] else INK, lw=0.4)
                count = f"{part * n / 100:.0f}"
                counts.append(f"{words[row]} {count}")
                if part / 100 * room > paper.text_width(count) + 0.06:
                    box = dict(fc=kind["fc"], ec="none", pad=0.6)
                    ax.text(start + part / 2, y, count, ha="center", va="center", fontsize=MIN_TEXT, bbox=box,
                            color=ink_on(kind["fc"]))  # fmt: skip
                start += part
            for at, row, shift in ((0, list(words)[0], -0.07), (1, list(words)[-1], 0.07)):
                low, value, high = (100 * table.loc[row, ["low", "estimate", "high"]].to_numpy(float)).tolist()
                middle = 100 - value if at else value
                reach = [[high - value], [value - low]] if at else [[value - low], [high - value]]
                if np.isfinite(reach).all():
                    ax.errorbar(middle, y + shift / pitch, xerr=np.clip(reach, 0, None), fmt="none",
                                ecolor=INK, elinewidth=0.9, capsize=1.5)  # fmt: skip
            for side, x, align in ((pair[0], 0, "left"), (pair[1], 100, "right")):
                ax.text(
                    x, y - 0.155 / pitch, "\n".join(side), ha=align, va="bottom", fontsize=MIN_TEXT, linespacing=1.05
                )
            ax.text(101.5, y, f"n={n}", va="center", fontsize=MIN_TEXT)
            if len(counts) and any(part / 100 * room <= paper.text_width("00") + 0.06 for part in share):
                name = " against ".join(part for part in sides[y] if part)
                paper.account.append(f"{name}: {', '.join(counts)}")
        ax.set(xlim=(0, 100), ylim=(len(tables) - 1 + 0.2 / pitch, -(0.2 + 0.125 * lines) / pitch), xlabel="share (%)")
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        handles = [Patch(**kind, ec="white" if kind["hatch"] else INK, lw=0.4, label=word)
                   for kind, word in zip(kinds, words.values(), strict=True)]  # fmt: skip
        paper.legend(fig, handles)
        missing = sum(int(table.attrs.get("missing", table["missing"].iloc[0])) for table in tables.values())
        malformed = sum(int(table.attrs.get("malformed", 0)) for table in tables.values())
        judged = sum(int(table["n"].max()) for table in tables.values())
        gone = f", {missing:,} without an answer" + (f" ({malformed:,} unreadable)" if malformed else "")
        return paper.finish(fig, f"{judged:,} judgements" + (gone if missing else ""))


def tag_bars(table: pd.DataFrame, **options: Unpack[PageOptions]) -> Figure:
    """Why feedback was rejected: how often each tag was given to each judge's feedback.

    Args:
        table: one row a judge and tag, as `review.error_tags` returns it: columns judge, tag, count, n, share, low and
            high (in [0, 1]).
        options: venue, column, note, font: see `page`.

    Returns:
        The figure: a bar a judge and tag with its interval and count, the most frequent tag on top. Tags that nobody
        gave are named in the caption.

    Raises:
        ValueError: a column is absent, or no tag was given.
    """
    need(table, "judge", "tag", "count", "n", "share", "low", "high")
    totals = table.groupby("tag", sort=False)["count"].sum().sort_values(ascending=False, kind="stable")
    tags, unused = list(totals[totals > 0].index), list(totals[totals == 0].index)
    if not tags:
        raise ValueError("no tag was given to any feedback: there is nothing to draw")
    judges = looks(list(dict.fromkeys(table["judge"].astype(str))))
    with page(**options) as paper:
        pitch = max(0.24, 0.13 * len(judges) + 0.08)
        left = paper.labels(tags, 0.36 * paper.inches, lines=max(1, int(pitch / 0.12)), what="Tags")
        fig, ax = paper.subplots(pitch * len(tags) + 0.45)
        step, handles = 0.84 / len(judges), []
        for place, (judge, look) in enumerate(judges.items()):
            rows = table[table["judge"].astype(str) == judge].set_index("tag").reindex(tags)
            y = np.arange(len(tags)) - 0.42 + (place + 0.5) * step
            kind: dict[str, Any] = dict(fc=look.color, hatch=look.hatch, ec="white" if look.hatch else INK, lw=0.4)
            share, low, high = (100 * rows[name].to_numpy(float) for name in ("share", "low", "high"))
            ax.barh(y, share, step, **kind)
            reach = np.clip([share - low, high - share], 0, None)
            ax.errorbar(share, y, xerr=reach, fmt="none", ecolor=INK, elinewidth=0.8, capsize=1.5)
            for at, end, count in zip(y, np.fmax(share, high), rows["count"], strict=True):
                if np.isfinite(end):
                    text = ax.annotate(f"{count:.0f}", (end, at), xytext=(3, 0), textcoords="offset points", va="center",
                                       fontsize=MIN_TEXT)  # fmt: skip
                    paper.optional(text, "counts")
            handles.append(Patch(**kind, label=judge))
        ax.set_yticks(range(len(tags)), left)
        ax.set_ylim(len(tags) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("share of reviews (%)")
        ax.margins(x=0.1)
        ax.set_xlim(left=0)
        if len(judges) > 1:
            paper.legend(fig, handles)
        if unused:
            paper.account.append(f"Given to none: {', '.join(map(str, unused))}")
        return paper.finish(fig, f"n = {span(table['n'])}{' a judge' * (len(judges) > 1)}")
