"""The figures of a paper on judges: heatmap, forest, rivals, rankings, costs, bars of preferences and tags, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, combinations_with_replacement, cycle, product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from vjudge.plots import style
from vjudge.plots.style import (
    INK,
    MIDDLE,
    PALE,
    PALETTE,
    SMALL,
    Look,
    items,
    looks,
    need,
    page,
    short,
)

BOUNDS = ["estimate", "low", "high"]
FEW = 20  # items below which a line is drawn hollow
RIVALS: dict[float, tuple[str, str, str]] = {
    1: (PALETTE[0], "", "column better"), -1: (PALETTE[1], "////", "row better"),
    0: ("#E6E6E6", "", "no difference shown"),
}  # fmt: skip
FOUR_WAY = {
    "left": "left side better",
    "both_good": "both good",
    "both_bad": "both bad",
    "right": "right side better",
}
WINS = {"win": "wins", "tie": "ties", "loss": "loses"}
FIRST, LAST = Look(PALETTE[0]), Look(PALETTE[1], hatch="////")
TIES = (Look("#E6E6E6"), Look("#BDBDBD", hatch="...."))


def heatmap(table: pd.DataFrame, *, label: str = "Pearson r", **options: Any) -> Figure:
    """Correlations of judges (rows) with the truth on several benchmarks (columns), the best of each in bold.

    Args:
        table: one statistic of `metrics.correlation_table`: columns judge, benchmark, estimate (in [-1, 1]); low, high,
            n and missing where known; `ceiling`, True on the rows of people, which stand below the others.
        label: of the colour scale, which parts at 0 where a value is negative.

    Source: the layout of the correlation heatmap in Prometheus-Vision (arXiv 2401.06591).
    """
    axes = ["judge", "benchmark"]
    table = need(table, "estimate", names=axes, once=True)
    people = (
        table["ceiling"].astype(bool) if "ceiling" in table else pd.Series(False, index=table.index)
    )
    own, benchmarks = list(table.loc[~people, "judge"].unique()), list(table["benchmark"].unique())
    names = [*own, *table.loc[people, "judge"].unique()]
    cells = table.set_index(axes).reindex(columns=BOUNDS).astype(float)
    grid = cells["estimate"].unstack(sort=False).reindex(index=names, columns=benchmarks)
    negative = bool((grid < 0).any(axis=None))
    best = grid.loc[own].round(3).max()
    with page(**options) as paper:
        bounds = [
            paper.text_width(short(*row).partition(" ")[2]) for row in cells.dropna().to_numpy()
        ]
        wide = max(bounds, default=np.inf) + 0.06
        fig, ax, side = paper.grid(
            names, benchmarks, lambda side: 0.36 if wide < side else 0.24, 0.6
        )
        if bounds and wide >= side:
            paper.account.append("Intervals are in the figure's data")
        image = ax.imshow(
            grid,
            cmap="RdBu" if negative else "Blues",
            vmin=-1 if negative else 0,
            vmax=1,
            aspect="auto",
        )
        for (i, name), (j, benchmark) in product(enumerate(names), enumerate(benchmarks)):
            number = grid.iat[i, j]
            if np.isnan(number):
                ax.text(j, i, "\N{EN DASH}", color=PALE, **MIDDLE)
                continue
            two = wide < side and np.isfinite(cells.at[(name, benchmark), "low"])
            text, _, below = (
                short(*cells.loc[(name, benchmark)]) if two else short(number)
            ).partition(" ")
            ink = style.ink_on(image.to_rgba(number))
            first = name in own and round(number, 3) == best[benchmark] and len(own) > 1
            ax.text(
                j, i - 0.2 * two, text, color=ink, weight="bold" if first else "normal", **MIDDLE
            )
            ax.text(j, i + 0.22, below, color=ink, **MIDDLE, **SMALL)
        ax.set_xticks(np.arange(len(benchmarks) - 1) + 0.5, minor=True)
        ax.set_yticks(np.arange(len(names) - 1) + 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.2)
        ax.tick_params(which="minor", length=0)
        if len(own) > 1:
            paper.account.append("Bold: the highest of a column, people aside")
        if len(own) < len(names):
            ax.axhline(len(own) - 0.5, color=INK, lw=1)
        bar = fig.colorbar(image, ax=ax, location="bottom", aspect=40, pad=0.03, label=label)
        bar.set_ticks([-1, -0.5, 0, 0.5, 1] if negative else [0, 0.25, 0.5, 0.75, 1])
        bar.outline.set_visible(False)
        return paper.finish(fig, items(table, "a cell"))


def forest(
    table: pd.DataFrame, *, rows: str = "judge", by: str | None = None, panel: str | None = None,
    label: str = "Pearson r", reference: float | None = 0.0, ceiling: float | None = None, **options: Any,
) -> Figure:  # fmt: skip
    """Estimates with their intervals as a forest plot: a line a judge, hollow where it rests on fewer than 20 items.

    Args:
        table: one row a line: columns `rows`, estimate, low, high; n and missing where known; `margin`, half the width
            of a grey band around the reference (what is too small to matter); `by` and `panel`.
        rows, by, panel: columns with the names at the left, in order of appearance; what splits each name into lines of
            a colour and marker each, such as the statistic; what splits the lines over axes, such as the unit.
        label: of the axis, without panels.
        reference, ceiling: where a dashed line stands, such as no correlation, and a dotted one, such as people's
            agreement; None draws none.
    """
    table = need(
        table, *BOUNDS, names=[name for name in (panel, rows, by) if name is not None], once=True
    )
    table = table.assign(kind="" if by is None else table[by]).reset_index(drop=True)
    kinds = looks(list(table["kind"].unique()))
    parts = [(label, table)] if panel is None else list(table.groupby(panel, sort=False))
    with page(**options) as paper:
        names = list(table[rows].unique())
        left = dict(
            zip(names, paper.labels(names, 0.36 * paper.inches, lines=2, what="Lines"), strict=True)
        )
        gap = 0.4 if len(kinds) > 1 else 0.0
        folds = {
            name: max(len(kinds), 0.9 * (text.count("\n") + 1)) + gap for name, text in left.items()
        }
        tall = [sum(folds[name] for name in part[rows].unique()) for _, part in parts]
        numbers = _beside(
            table, paper, paper.inches - max(map(paper.text_width, left.values())) - 0.75
        )
        height = 0.145 * sum(tall) + 0.45 * len(parts)
        fig, axes = paper.subplots(
            height, len(parts), squeeze=False, height_ratios=[t + 0.5 for t in tall]
        )
        handles = [] if by is None else style.keys(kinds, lw=1, ls="-")
        for ax, (unit, part) in zip(axes[:, 0], parts, strict=True):
            ticks, top = [], 0.0
            for place, (name, lines) in enumerate(part.groupby(rows, sort=False)):
                for index, line in lines.iterrows():
                    y = top + (folds[name] - len(kinds)) / 2 + list(kinds).index(line["kind"])
                    _line(ax, y, line, kinds[line["kind"]], reference or 0)
                    ax.text(
                        1.02,
                        y,
                        numbers[index],
                        transform=ax.get_yaxis_transform(),
                        va="center",
                        **SMALL,
                    )
                if place % 2 == 0:
                    ax.axhspan(top - 0.5, top + folds[name] - 0.5, color="#F5F5F5", lw=0, zorder=-3)
                ticks.append((top + (folds[name] - 1) / 2, left[name]))
                top += folds[name]
            if reference is not None:
                ax.axvline(reference, color=PALE, ls="--", lw=0.8, zorder=-1)
            mark = [] if ceiling is None else [ax.axvline(ceiling, **style.CEILING)]
            ax.set_yticks(*zip(*ticks, strict=True), linespacing=1.0)
            ax.set_ylim(top - 0.5, -0.5)
            ax.tick_params(axis="y", length=0)
            ax.spines["left"].set_visible(False)
            ax.locator_params(axis="x", nbins=2 if paper.inches < 4 else 5)
            ax.set_xlabel("\n".join(paper.wrap(unit, 0.6 * paper.inches, 8)))
            ax.margins(x=0.06)
        if handles + mark:
            paper.legend(fig, handles + mark)
        hollow = (
            f"hollow: fewer than {FEW} items" if "n" in table and (table["n"] < FEW).any() else ""
        )
        if "margin" in table and table["margin"].notna().any():
            paper.account.append("Grey: changes too small to matter")
        return paper.finish(
            fig, "; ".join(part for part in (items(table, "a line"), hollow) if part)
        )


def _line(ax: Axes, y: float, row: pd.Series, look: Look, reference: float) -> None:
    margin = row.get("margin", np.nan)
    if np.isfinite(margin):
        ends = reference - margin, reference + margin
        ax.fill_betweenx([y - 0.42, y + 0.42], *ends, color=style.TRUTH, lw=0, zorder=-2)
    ax.plot(
        [row["low"], row["high"]],
        [y, y],
        "|-",
        color=look.color,
        lw=1.3,
        ms=4,
        solid_capstyle="butt",
    )
    hollow = row.get("n", FEW) < FEW
    fill, edge, wide = ("white", look.color, 0.9) if hollow else (look.color, INK, 0.5)
    ax.plot(row["estimate"], y, look.marker, ms=4.2, color=fill, mec=edge, mew=wide)


def _beside(table: pd.DataFrame, paper: style.Page, room: float) -> list[str]:
    """What stands beside each line: with interval and, where counts differ much, n; less where there is no room."""
    whole = [short(*row) for row in table[BOUNDS].to_numpy(float)]
    forms = [whole, [text.partition(" ")[0] for text in whole]]
    if "n" in table and table["n"].max() > 2 * table["n"].min():
        forms.insert(0, [f"{text}  n={n:.0f}" for text, n in zip(whole, table["n"], strict=True)])
    form = next(
        (form for form in forms if max(map(paper.text_width, form)) < room), [""] * len(table)
    )
    if form is not forms[0]:
        paper.account.append("Numbers that do not fit are in the figure's data")
    return form


def battery_effects(table: pd.DataFrame, **options: Any) -> Figure:
    """What each case of a battery did to the scores: a forest with a panel for each unit and what must be.

    Args:
        table: of one judge, as `probes.battery` returns it. The caption names the cases that are not drawn: those that
            changed no score, descriptions, and what was not run or is undefined.
    """
    need(table, "probe", "case", "must", "effect", "low", "high", "unit")
    cases = table.rename(columns={"effect": "estimate"})
    cases["line"] = cases["case"].where(cases["case"].astype(str) != "", cases["probe"])
    undefined, ruled = cases["estimate"].isna(), cases["must"].isin(["move", "stay"])
    still = ruled & (cases[BOUNDS] == 0).all(axis=1)
    lines = cases[ruled & ~still & ~undefined]
    if lines.empty:
        raise ValueError("no case that must move or stay changed a score: there is nothing to draw")
    lines = lines.assign(panel=lines["unit"].astype(str) + ": must " + lines["must"])
    twice = lines.duplicated(["panel", "line"], keep=False)
    lines["line"] = lines["line"].where(~twice, lines["probe"] + ": " + lines["line"])
    fig = forest(lines, rows="line", panel="panel", **options)
    rest = {
        "No score changed in": still,
        "Described, not drawn": ~ruled & ~undefined,
        "Without a number": undefined,
    }
    account = [
        f"{words}: {', '.join(cases.loc[rows, 'line'].unique())}"
        for words, rows in rest.items()
        if rows.any()
    ]
    fig.set_label(". ".join(text for text in (str(fig.get_label()), *account) if text))
    return fig


def who_beats_whom(
    comparisons: pd.DataFrame, *, statistic: str = "pearson", **options: Any
) -> Figure:
    """Judges against each other, the best first: the difference in agreement, column less row, and its p.

    Args:
        comparisons: what `metrics.compare_judges` returned for two or more judges; a cell is dark or hatched where p,
            by Holm's correction, is at most 5%.
        statistic: pearson, spearman or kendall.
    """
    pairs, own = comparisons.xs(statistic, level="statistic"), dict[str, float]()
    for (a, b), row in pairs.sort_values("n", kind="stable").iterrows():
        own |= {
            a: row["estimate_a"],
            b: row["estimate_b"],
        }  # a judge's own value is that of most items
    names = dict.fromkeys(chain(*pairs.index))
    order = sorted(names, key=lambda name: np.inf if np.isnan(own[name]) else -own[name])
    worse, better = order[1:], order[:-1]
    both_ways = pd.concat(
        [pairs, pairs.swaplevel().assign(difference=-pairs["difference"].to_numpy())]
    )
    with page(**options) as paper:
        left, above = (
            [f"{name} ({short(own[name])})" for name in side] for side in (worse, better)
        )
        fig, ax, side = paper.grid(left, above, lambda _: 0.36, 0.1)
        drawn = set()
        for j, i in combinations_with_replacement(range(len(worse)), 2):
            gap, p_holm = both_ways.loc[(better[j], worse[i]), ["difference", "p_holm"]].astype(
                float
            )
            won = np.nan if np.isnan(p_holm) else np.sign(gap) * (p_holm <= 0.05)
            fill, hatch, _ = RIVALS.get(won, (RIVALS[0][0], "....", ""))
            ax.add_patch(
                Rectangle((j - 0.5, i - 0.5), 1, 1, fc=fill, ec="white", hatch=hatch, lw=1.2)
            )
            look: dict[str, Any] = dict(color="white" if won == 1 else INK, **MIDDLE, **SMALL)
            box = dict(fc=fill, ec="none", pad=0.8) if won == -1 else None
            drawn.add(won)
            sign = "+" if round(gap, 2) > 0 else ""
            paper.optional(
                ax.text(j, i - 0.2, sign + short(gap), bbox=box, **look), "differences", side
            )
            paper.optional(
                ax.text(j, i + 0.2, style.p_text(p_holm), bbox=box, **look), "p values", side
            )
        keys = [
            Patch(fc=fill, ec="white", hatch=hatch, label=text)
            for won, (fill, hatch, text) in RIVALS.items()
            if won in drawn
        ]
        if keys:
            paper.legend(fig, keys)
        return paper.finish(fig, f"{len(pairs)} pairs of judges; {items(pairs, 'a pair')}")


def preference_bars(
    tables: Mapping[Any, pd.DataFrame], *, labels: Mapping[str, str] | None = None, **options: Any
) -> Figure:
    """Shares of wins, ties and losses, or of left, both good, both bad and right, as bars that add up to 100%.

    Args:
        tables: what `metrics.feedback_preference` or `metrics.win_rate` returned, by a pair of names, which stand above
            the two ends of the bar, or by one text; whiskers are the intervals of the first and last share.
        labels: row of the tables -> its words in the legend, from left to right; None takes those of the tables' kind.
    """
    whole = need(pd.concat(list(tables.values())), "estimate", "low", "high", "n", "missing")
    words = dict(labels or (FOUR_WAY if "left" in whole.index else WINS))
    named = [name for name in tables if isinstance(name, tuple)]
    if labels is None and len(named) == len(tables) == 1 and "left" in words:
        words |= {
            side: f"{name} better" for side, name in zip(("left", "right"), named[0], strict=True)
        }
    for name, table in tables.items():
        if absent := [row for row in words if row not in table.index]:
            raise ValueError(
                f"{name!r} lacks {absent}: pass the table of feedback_preference or win_rate"
            )
    first, *between, last = words
    styles = {first: FIRST, **dict(zip(between, cycle(TIES))), last: LAST}
    with page(**options) as paper:
        sides = [name if isinstance(name, tuple) else (str(name), "") for name in tables]
        room = paper.inches - 0.65  # inches of a bar
        above = [
            [paper.wrap(str(side), room * (0.48 if all(pair) else 1)) for side in pair]
            for pair in sides
        ]
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
                    box, ink = dict(fc=look.color, ec="none", pad=0.6), style.ink_on(look.color)
                    ax.text(
                        starts[row] + share[row] / 2,
                        y,
                        str(counts[row]),
                        color=ink,
                        bbox=box,
                        **MIDDLE,
                        **SMALL,
                    )
            for row, start, sign in ((first, 0, 1), (last, 100, -1)):
                ends = start + sign * 100 * table.loc[row, ["low", "high"]].astype(float)
                ax.plot(ends, [y - sign * 0.07 / pitch] * 2, "|-", color=INK, lw=0.9, ms=3)
            for side, x, align in ((pair[0], 0, "left"), (pair[1], 100, "right")):
                ax.text(
                    x,
                    y - 0.155 / pitch,
                    "\n".join(side),
                    ha=align,
                    va="bottom",
                    linespacing=1.0,
                    **SMALL,
                )
            ax.text(101.5, y, f"n={n}", va="center", **SMALL)
            if not all(fits):
                listed = ", ".join(f"{word} {counts[row]}" for row, word in words.items())
                paper.account.append(
                    f"Counts of {' against '.join(part for part in sides[y] if part)}: {listed}"
                )
        ax.set(
            xlim=(0, 100),
            ylim=(len(tables) - 1 + 0.2 / pitch, -(0.2 + 0.125 * lines) / pitch),
            xlabel="share (%)",
        )
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        paper.legend(fig, [Patch(**look.bar, label=words[row]) for row, look in styles.items()])
        answered, missing = whole.loc[[first], ["n", "missing"]].sum().astype(int)
        malformed = sum(int(table.attrs.get("malformed", 0)) for table in tables.values())
        gone = f", {missing:,} without an answer" + (
            f" ({malformed:,} unreadable)" if malformed else ""
        )
        return paper.finish(fig, f"{answered:,} judgements" + (gone if missing else ""))


def tag_bars(table: pd.DataFrame, **options: Any) -> Figure:
    """Why feedback was rejected: how often each tag was given to each judge's feedback, the most frequent on top.

    Args:
        table: as `review.error_tags` returns it: columns judge, tag, count, n, share, low and high (in [0, 1]).
    """
    table = need(table, "count", "n", "share", "low", "high", names=["judge", "tag"], once=True)
    totals = (
        table.groupby("tag", sort=False)["count"].sum().sort_values(ascending=False, kind="stable")
    )
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
            share, low, high = (
                100 * rows[name].to_numpy(float) for name in ("share", "low", "high")
            )
            ax.barh(y, share, step, **look.bar)
            ax.plot([low, high], [y, y], "|-", color=INK, lw=0.8, ms=3)
            for at, end, count in zip(y, np.fmax(share, high), rows["count"], strict=True):
                if np.isfinite(end):
                    aside: dict[str, Any] = dict(
                        xytext=(3, 0), textcoords="offset points", va="center", **SMALL
                    )
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
        lines, band: heights of dotted lines, such as .05 and .9, for shares in [0, 1], and ends of a grey band.
        log: whether both axes are logarithmic.
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
                style.bars(
                    ax, rows, x, y, look, low=low, high=high, ms=3.5, elinewidth=0.8, capsize=1.5
                )
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
        return paper.finish(
            fig,
            f"{style.span(table['simulations'])} simulations a point"
            if "simulations" in table
            else "",
        )


def training_curve(log: pd.DataFrame, **options: Any) -> Figure:
    """The loss of a training and, where it was evaluated, correlation and share of readable verdicts, over the steps.

    Args:
        log: a `training_log.jsonl` as a frame: columns step; loss, and of evaluations pearson (no point where
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
            note = f"{style.span(graded['n'])} held-out items an evaluation"
        return paper.finish(fig, note)
