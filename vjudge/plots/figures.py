"""Figures of estimates with intervals: forests, shares, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vjudge.plots import style
from vjudge.plots.style import (
    CENTER,
    GREY,
    INK,
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
FOUR_WAY = {
    "left": "first better",
    "both_good": "both good",
    "both_bad": "both bad",
    "right": "second better",
}
WINS = {"win": "wins", "tie": "ties", "loss": "loses"}
FIRST = Look(PALETTE[0], "o")
LAST = Look(PALETTE[1], hatch="////")
TIES = (Look("#E6E6E6"), Look("#BDBDBD", hatch="...."))
UNITS = {
    "score per gold point": "change of the score's slope on the true score",
    "score points": "change of the score, in points",
    "score per doubling": "score points per doubling of the length",
}
MUST = {"move": " (expected to change)", "stay": " (expected to stay)"}


def forest(
    table: pd.DataFrame,
    *,
    rows: str = "judge",
    by: str | None = None,
    panel: str | None = None,
    label: str = "Pearson r",
    reference: float | None = 0.0,
    ceiling: float | None = None,
    **options: Any,
) -> Figure:
    """Estimates with their intervals as a forest plot, hollow where fewer than 20 items bear them.

    Args:
        table: one row a line: columns `rows`, estimate, low, high; n and missing where known;
            `margin`, half the width of a grey band around the reference; `by` and `panel`.
        rows: column with the names at the left, in order of appearance.
        by: column whose values have a colour and marker each: the statistic, or people and judges.
        panel: column that splits the lines over axes, and names each axis.
        label: of the axis, without panels.
        reference, ceiling: where a dashed and a dotted line stand; None draws none.
    """
    names = [name for name in (panel, rows, by) if name is not None]
    table = need(table, *BOUNDS, names=names, once=True)
    kinds = looks([""] if by is None else list(table[by].unique()))
    parts = {label: table} if panel is None else dict(list(table.groupby(panel, sort=False)))
    with page(**options) as paper:
        left = paper.named(table[rows].unique(), 0.36 * paper.inches, lines=2, what="Lines")
        tall = [len(part) + 0.4 * part[rows].nunique() for part in parts.values()]
        folded = any("\n" in name for name in left.values()) and by is None
        units = paper.labels(list(parts), 0.7 * paper.inches, what="Axes")
        height = (0.22 if folded else 0.155) * sum(tall)
        height += sum(0.5 + 0.13 * unit.count("\n") for unit in units)
        fig, axes = paper.subplots(height, len(parts), squeeze=False, height_ratios=tall)
        for ax, unit, part in zip(axes[:, 0], units, parts.values(), strict=True):
            y = _lines(ax, part, part[rows].map(left), by, kinds, reference)
            if paper.inches > 2.8:
                for at, bounds in zip(y, part[BOUNDS].to_numpy(float), strict=True):
                    text = short(*bounds).replace("n/a", "\N{EN DASH}")
                    ax.text(
                        1.02, at, text, transform=ax.get_yaxis_transform(), va="center", **SMALL
                    )
            if ceiling is not None:
                ax.axvline(ceiling, color=INK, ls=":", lw=1, zorder=-1, label="ceiling")
            ax.locator_params(axis="x", nbins=3 if paper.inches < 4 else 6)
            ax.set_xlabel(unit)
        handles = [] if by is None else style.keys(kinds, lw=1, ls="-")
        if ceiling is not None:
            handles.append(axes[0, 0].lines[-1])
        if handles:
            paper.legend(fig, handles)
        if "n" in table and (table["n"] < FEW).any():
            paper.account.append(f"Hollow: fewer than {FEW} items")
        if "margin" in table and table["margin"].notna().any():
            paper.account.append("Grey band: changes too small to matter")
        return paper.finish(fig, items(table, "a line"))


def _lines(
    ax: Axes, part: pd.DataFrame, names: pd.Series, by: str | None, kinds: Mapping[str, Look],
    reference: float | None,
) -> np.ndarray:  # fmt: skip
    """Draw the lines of a panel from top to bottom, those of one name together; returns heights."""
    place, shown = pd.factorize(names)
    y = np.empty(len(part))
    y[np.argsort(place, kind="stable")] = np.arange(len(part))
    y += 0.4 * place
    for at, (_, row) in zip(y, part.iterrows(), strict=True):
        _line(ax, at, row, kinds["" if by is None else row[by]], reference or 0.0)
    ticks = pd.Series(y).groupby(place)
    for first, last in zip(ticks.min()[::2], ticks.max()[::2], strict=True):
        ax.axhspan(first - 0.7, last + 0.7, color="#F5F5F5", lw=0, zorder=-3)
    if reference is not None:
        ax.axvline(reference, color=PALE, ls="--", lw=0.8, zorder=-1)
    ax.set_yticks(ticks.mean(), shown, linespacing=0.9)
    ax.set_ylim(max(y) + 0.7, -0.7)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.margins(x=0.06)
    return y


def _line(ax: Axes, y: float, row: pd.Series, look: Look, reference: float) -> None:
    margin = row.get("margin", np.nan)
    if np.isfinite(margin):
        ends = (reference - margin, reference + margin)
        ax.fill_betweenx([y - 0.42, y + 0.42], *ends, color=GREY, lw=0, zorder=-2)
    ax.plot([row["low"], row["high"]], [y, y], "|-", color=look.color, lw=1.3, ms=4)
    point: dict[str, Any] = look.point
    if row.get("n", FEW) < FEW:
        point = point | dict(color="white", mec=look.color, mew=0.9)
    ax.plot(row["estimate"], y, ms=4.2, **point)


def small_multiples(
    table: pd.DataFrame,
    *,
    rows: str = "judge",
    panel: str = "benchmark",
    label: str = "Pearson r",
    reference: float | None = 0.0,
    **options: Any,
) -> Figure:
    """Estimates of the same judges in each category: a panel a category, all with the same axes.

    Args:
        table: columns `rows`, `panel`, estimate, low, high; n and missing where known.
        rows, panel: columns with the judges and with the categories.
        label: of the axes.
        reference: where a dashed line stands; None draws none.
    """
    table = need(table, *BOUNDS, names=[rows, panel], once=True)
    whole = table[[rows]].drop_duplicates()
    with page(**{"column": "full", **options}) as paper:
        left = paper.named(whole[rows], 0.36 * paper.inches, lines=1)
        parts = dict(list(table.groupby(panel, sort=False)))
        ratio = (0.18 * len(whole) + 0.2) / 1.6
        fig, axes = paper.panels(list(parts), ratio, least=1.6, most=1.6, sharex=True, sharey=True)
        for ax, part in zip(axes, parts.values(), strict=True):
            part = whole.merge(part, how="left")
            _lines(ax, part, part[rows].map(left), None, {"": FIRST}, reference)
        paper.name_axes(fig, label)
        return paper.finish(fig, items(table, "a cell"))


def battery_effects(table: pd.DataFrame, **options: Any) -> Figure:
    """What each case of a battery did to the scores: a forest with a panel for each unit.

    Args:
        table: as `probes.battery` returns it; of several judges, one below the other. The caption
            names the cases that are not drawn: descriptions, undefined ones, and those that changed
            no score.
    """
    need(table, "probe", "case", "must", "effect", "low", "high", "unit")
    cases = table.rename(columns={"effect": "estimate"})
    named = cases["case"].where(cases["case"].astype(str) != "", cases["probe"])
    named = named.str.replace(r": (agreement|change)$", "", regex=True)
    cases["line"] = named.replace("slope at equal gold", "length at equal true score")
    drawn = cases["must"].isin(list(MUST)) & cases["estimate"].notna()
    drawn &= (cases[BOUNDS] != 0).any(axis=1)
    if not drawn.any():
        raise ValueError("no case must move or stay and has an effect: there is nothing to draw")
    lines = cases[drawn]
    lines = lines.assign(panel=lines["unit"].replace(UNITS) + lines["must"].map(MUST))
    by = "judge" if "judge" in lines and lines["judge"].nunique() > 1 else None
    twice = lines.duplicated(["panel", "line", *([by] if by else [])], keep=False)
    lines["line"] = lines["line"].where(~twice, lines["probe"] + ": " + lines["line"])
    fig = forest(lines, rows="line", panel="panel", by=by, **options)
    rest = cases.loc[~drawn, "line"].unique()
    if len(rest):
        fig.set_label(
            f"{fig.get_label()}. Not drawn, for want of a test or a change: {', '.join(rest)}"
        )
    return fig


def preference_bars(
    tables: Mapping[Any, pd.DataFrame], *, labels: Mapping[str, str] | None = None, **options: Any
) -> Figure:
    """Shares of wins, ties and losses, or of preferred feedback, as stacked bars.

    Args:
        tables: what `metrics.feedback_preference` or `metrics.win_rate` returned, by a pair of
            names, (first, second), or by one name. Whiskers are the intervals of the first and the
            last share.
        labels: row of the tables -> its words in the legend, from left to right.
    """
    whole = need(pd.concat(list(tables.values())), "estimate", "low", "high", "n", "missing")
    words = dict(labels or (FOUR_WAY if "left" in whole.index else WINS))
    names = [name if isinstance(name, str) else " v ".join(name) for name in tables]
    if len(tables) == 1 and labels is None and " v " in names[0]:
        first, second = next(iter(tables))
        ends = [f"{first} better", f"{second} better"]
        words |= dict(zip([list(words)[0], list(words)[-1]], ends, strict=True))
        names = [""]  # the legend has both
    for name, table in tables.items():
        if not set(words) <= set(table.index):
            raise ValueError(f"{name!r}: pass the table of feedback_preference or win_rate")
    first, *between, last = words
    styles = {first: FIRST, **dict(zip(between, cycle(TIES))), last: LAST}
    with page(**options) as paper:
        fig, ax = paper.subplots(0.42 * len(tables) + 0.5)
        for y, table in enumerate(tables.values()):
            _stack(ax, y, table, styles, 30 / paper.inches)
        ax.set(xlim=(0, 100), ylim=(len(tables) - 0.4, -0.5), xlabel="share (%)")
        ax.set_yticks(range(len(tables)), paper.labels(names, 0.3 * paper.inches, what="Bars"))
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        paper.legend(fig, style.patches({words[row]: look for row, look in styles.items()}))
        answered, missing = whole.loc[[first], ["n", "missing"]].sum().astype(int)
        malformed = sum(int(table.attrs.get("malformed", 0)) for table in tables.values())
        gone = f", {missing:,} without an answer ({malformed:,} unreadable)" if missing else ""
        return paper.finish(fig, f"{answered:,} judgements{gone}")


def _stack(ax: Axes, y: int, table: pd.DataFrame, styles: Mapping[str, Look], least: float) -> None:
    """One bar of shares, counts in those above `least` percent, whiskers below it, and n."""
    n = int(table.at[next(iter(styles)), "n"])
    start = 0.0
    for row, look in styles.items():
        share, low, high = 100 * table.loc[row, BOUNDS].astype(float).fillna(0)
        ax.barh(y, share, 0.5, left=start, **look.bar)
        if share > least:
            box = dict(fc=look.color, ec="none", pad=0.6)
            ink = "white" if look is FIRST else INK
            count = f"{share * n / 100:.0f}"
            ax.text(start + share / 2, y, count, color=ink, bbox=box, **CENTER)
        if look is FIRST:
            ax.plot([low, high], [y + 0.36] * 2, "|-", color=INK, lw=0.9, ms=3)
        if look is LAST:
            ax.plot([100 - low, 100 - high], [y + 0.36] * 2, "|-", color=INK, lw=0.9, ms=3)
        start += share
    ax.text(101.5, y, f"n={n}", va="center", **SMALL)


def tag_bars(table: pd.DataFrame, **options: Any) -> Figure:
    """How often each error tag was given to each judge's feedback, the most frequent on top.

    Args:
        table: as `review.error_tags` returns it: columns judge, tag, count, n, share, low, high.
    """
    table = need(table, "count", "share", "low", "high", names=["judge", "tag"], once=True)
    totals = table.groupby("tag")["count"].transform("sum")
    given = table.assign(total=totals)[totals > 0].rename(columns={"share": "estimate"})
    if given.empty:
        raise ValueError("no tag was given to any feedback: there is nothing to draw")
    given = given.sort_values("total", ascending=False, kind="stable")
    look: dict[str, Any] = dict(rows="tag", by="judge", reference=None, label="share of reviews")
    fig = forest(given, **look, **options)
    others = table.loc[totals == 0, "tag"].unique()
    if len(others):
        fig.set_label(f"{fig.get_label()}. Given to none: {', '.join(others)}")
    return fig


def curves(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    by: str,
    panel: str | None = None,
    low: str = "low",
    high: str = "high",
    labels: tuple[str, str] | None = None,
    lines: Sequence[float] = (),
    band: tuple[float, float] | None = None,
    log: bool = False,
    **options: Any,
) -> Figure:
    """Estimates over a number with their intervals, such as power by the size of an effect.

    Args:
        table: one row a point; `simulations` where known.
        x, y, low, high, by, panel: its columns; a line for each of `by`, axes for each of `panel`.
        labels: of the two axes; None takes the columns' names.
        lines, band: heights of dotted lines for shares in [0, 1], and ends of a grey band.
        log: whether both axes are logarithmic.
    """
    table = need(table, x, y, low, high, names=[by] if panel is None else [by, panel])
    kinds = looks(list(table[by].unique()))
    parts = {"": table} if panel is None else dict(list(table.groupby(panel, sort=False)))
    with page(**options) as paper:
        fig, axes = paper.panels(list(parts), 0.7, sharey=True)
        for ax, part in zip(axes, parts.values(), strict=True):
            if band is not None:
                ax.axhspan(*band, color=GREY, lw=0, zorder=0)
            for level in lines:
                ax.axhline(level, color=PALE, lw=0.5, ls=":", zorder=0)
                ax.set(ylim=(-0.03, 1.05), yticks=(0, 0.5, 1))
            for name, look in kinds.items():
                rows = part[part[by] == name].sort_values(x)
                style.bars(ax, rows, x, y, look, low, high)
            ax.locator_params(axis="x", nbins=4)
            if log:
                style.log_axis(ax, "x", part[x].min(), part[x].max())
                style.log_axis(ax, "y", table[low].min(), table[high].max())
        paper.name_axes(fig, *(labels or (x, y)))
        paper.legend(fig, style.keys(kinds, lw=1))
        note = ""
        if "simulations" in table:
            note = f"{style.span(table['simulations'])} simulations a point"
        return paper.finish(fig, note)


def training_curve(log: pd.DataFrame, **options: Any) -> Figure:
    """The loss of a training and, where it was evaluated, agreement and readable verdicts.

    Args:
        log: a `training_log.jsonl` as a frame: columns step; loss, and of evaluations pearson (no
            point where undefined), low, high, parsed, n.
    """
    need(log, "step")
    log = log.reindex(columns=log.columns.union(["loss", "parsed"]))
    losses = log[log["loss"].notna()]
    graded = log[log["parsed"].notna()]
    panels = 2 if len(graded) else 1
    with page(**{"column": "full", **options}) as paper:
        fig, axes = paper.subplots(max(1.4, 0.36 * paper.inches), 1, panels, squeeze=False)
        axes[0, 0].set(xlabel="step", ylabel="loss per token")
        if len(losses):
            axes[0, 0].plot(losses["step"], losses["loss"], color=INK)
            style.log_axis(axes[0, 0], "y", losses["loss"].min(), losses["loss"].max())
        if graded.empty:
            return paper.finish(fig)
        styles = looks(["Pearson r", "readable verdicts"])
        style.bars(
            axes[0, 1], graded[graded["pearson"].notna()], "step", "pearson", styles["Pearson r"]
        )
        look = styles["readable verdicts"]
        axes[0, 1].plot(graded["step"], graded["parsed"], ms=3.5, ls=look.dash, **look.point)
        axes[0, 1].set(xlabel="step", ylabel="correlation, share")
        paper.legend(fig, style.keys(styles, lw=1))
        return paper.finish(fig, f"{style.span(graded['n'])} held-out items an evaluation")
