"""Figures of estimates with intervals: forests, shares, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from vjudge.plots.style import (
    GREY,
    INK,
    MIN_TEXT,
    PALE,
    PALETTE,
    Page,
    counts,
    log_axis,
    looks,
    need,
    page,
    reach,
    short,
)

BOUNDS = ["estimate", "low", "high"]
LEAST_LINE = 0.1  # inches from line to line of a forest
FOUR_WAY = {
    "left": "first better",
    "both_good": "both good",
    "both_bad": "both bad",
    "right": "second better",
}
TIE_COLOURS = ["#F5F5F5", "#D9D9D9"]
SIDE_COLOURS = ("#0072B2", "#E69F00")  # dark and light in grey, too
LOGGED = {"loss": "loss per token", "pearson": "Pearson r", "parsed": "readable verdicts"}


def forest(
    table: DataFrame,
    *,
    rows: str = "judge",
    by: str | None = None,
    panel: str | None = None,
    shared: bool = False,
    label: str = "Pearson r",
    reference: float | None = 0.0,
    **options: Any,
) -> Figure:
    """Estimates with their intervals as a forest plot, or as small multiples.

    Args:
        table: one row a line: columns `rows`, estimate, low, high; n and missing where known;
            `margin`, half the width of a grey band around zero; `by` and `panel`.
        rows: column with the names at the left, in order of appearance.
        by: column whose values have a colour and marker each: the statistic, or people and judges.
        panel: column that splits the lines over axes, and names each axis.
        shared: whether the panels stand side by side and have the same names and axes.
        label: of the axis, without panels or of shared ones.
        reference: where a dashed line stands; None draws none.
    """
    table = need(table, *BOUNDS, names=list(filter(None, (panel, rows, by))))
    table = table.assign(
        name=table[rows], kind=table.get(by, ""), panel=table.get(panel, label)
    )  # at once: any of the three may be a column of the table
    # 1) the height of each line: the lines of a name stand together
    apart = np.where(shared, "", table["panel"])
    name_index = table["name"].groupby(apart).transform(lambda names: pd.factorize(names)[0])
    within = table.groupby(["panel", "name"]).cumcount()
    table["y"] = within + name_index * (within.max() + 1.4)
    # 2) the lines of each panel, and their names
    kinds = looks(table["kind"].unique())
    with page(**options) as paper:
        inches = _forest_inches(table)
        if by and not panel and inches > paper.tall:  # a panel for each kind instead
            side: dict = {"rows": rows, "panel": by, "shared": True, "label": label}
            return forest(table, **side, reference=reference, **options)
        fig, panels = _forest_axes(paper, table, shared, label)
        for ax, rows_of_panel in panels:
            _lines(ax, rows_of_panel, kinds)
            _names(ax, table if shared else rows_of_panel, paper, 1 if shared else 2)
            if reference is not None:
                ax.axvline(reference, color=PALE, ls="--", lw=0.8, zorder=-1)
            if not shared:
                ax.set_xlabel(*paper.fold(rows_of_panel["panel"].unique(), 0.6 * paper.inches))
                if paper.inches > 2.8:
                    _numbers(ax, rows_of_panel)
        paper.legend(fig, fig.axes[0])
        band = "Grey band: changes too small to matter" if "margin" in table else ""
        return paper.finish(fig, counts(table), band)


def _forest_inches(table: DataFrame) -> float:
    """How high panels are that stand one below the other."""
    heights = table.groupby("panel")["y"].max() + 1.4
    return 0.19 * heights.sum() + 0.62 * len(heights)


def _forest_axes(paper: Page, table: DataFrame, shared: bool, label: str) -> tuple[Figure, list]:
    """Axes for each panel: side by side where they share names, else one below the other."""
    panels = dict(list(table.groupby("panel", sort=False)))
    heights = [rows["y"].max() + 1.4 for rows in panels.values()]
    if shared:
        size: dict = {"min_inches": 1.6, "min_height": LEAST_LINE * max(heights)}
        return paper.panels(panels, 0.08 * max(heights), across=label, **size)
    paper.check(LEAST_LINE * sum(heights) + 0.62 * len(panels), f"{len(table)} lines")
    height = _forest_inches(table)
    fig, axes = paper.subplots(height, len(panels), squeeze=False, height_ratios=heights)
    return fig, list(zip(axes.flat, panels.values(), strict=True))


def _names(ax: Axes, rows: DataFrame, paper: Page, n_lines: int) -> None:
    """The names of rows at the left, each on so many lines of text at most."""
    ticks = rows.groupby("name", sort=False)["y"].mean()
    ax.set_ylim(rows["y"].max() + 0.7, -0.7)
    ax.set_yticks(ticks, paper.fold(ticks.index, 0.36 * paper.inches, n_lines))
    ax.locator_params(axis="x", nbins=int(paper.inches))


def _lines(ax: Axes, rows: DataFrame, kinds: Mapping) -> None:
    """Draw estimates at their `y`, from top to bottom."""
    for kind, style in kinds.items():
        lines = rows[rows["kind"] == kind]
        whiskers = reach(lines, "estimate")
        ax.errorbar(lines["estimate"], lines["y"], xerr=whiskers, label=kind, ls="none", **style)
    if "margin" in rows:
        margin = rows["margin"].fillna(0)  # a line without a margin has no band
        ax.barh(rows["y"], 2 * margin, left=-margin, color=GREY, zorder=-2)


def _numbers(ax: Axes, rows: DataFrame) -> None:
    """Each estimate with its interval, at the right."""
    style: dict = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": MIN_TEXT}
    for y, bounds in zip(rows["y"], rows[BOUNDS].to_numpy(float), strict=True):
        ax.text(1.02, y, short(*bounds), **style)


OUTCOMES: dict[str, dict[str, Any]] = {
    "as it must": {"color": PALETTE[0], "marker": "o", "ms": 4},
    "against what must be": {"color": PALETTE[5], "marker": "X", "ms": 6.5},
    "undecided": {"color": PALE, "marker": "^", "ms": 4},
}


def battery_effects(table: DataFrame, **options: Any) -> Figure:
    """What each case of a battery did to the scores, as a share of its margin; judges side by side.

    Args:
        table: as a probe's or `probes.battery`'s result has it. Above stands what must stay, with
            the margin as a grey band, below what must move, with the least loss as a line. Cases
            that nothing tests, or without an effect, are counted in the caption.
    """
    cases = need(
        table, "effect", "low", "high", "margin", "must", "passes", "judge", names=["case"]
    )
    tested = cases["must"].notna() & (cases["effect"] / cases["margin"]).notna()
    lines = cases[tested].copy()
    if lines.empty:
        raise ValueError("no case that must move or stay was tested: there is nothing to draw")
    bounds = ["effect", "low", "high"]
    lines[bounds] = lines[bounds].div(lines["margin"], axis=0)
    passes = lines["passes"].astype("boolean")
    outcomes = passes.map({True: "as it must", False: "against what must be"})
    lines["outcome"] = outcomes.astype(object).fillna("undecided")
    lines["case"] = lines["case"].str.replace(": change", "", regex=False)
    kinds = [kind for kind in ("stay", "move") if (lines["must"] == kind).any()]
    names = {kind: lines.loc[lines["must"] == kind, "case"].unique() for kind in kinds}
    judges = dict(list(lines.groupby("judge", sort=False)))
    heights = [len(names[kind]) + 1 for kind in kinds]
    with page(**options) as paper:
        fig, axes = paper.subplots(
            0.125 * sum(heights) + 0.25 * len(kinds) + 0.35,
            len(kinds),
            len(judges),
            squeeze=False,
            sharex=True,
            sharey="row",
            height_ratios=heights,
        )
        for column, (judge, rows) in zip(axes.T, judges.items(), strict=True):
            for ax, kind in zip(column, kinds, strict=True):
                _outcomes(ax, rows[rows["must"] == kind], names[kind], kind)
            if len(judges) > 1:
                column[0].set_title(*paper.fold([judge], paper.inches / len(judges) - 0.5))
        for ax, kind in zip(axes[:, 0], kinds, strict=True):
            ax.set_yticks(range(len(names[kind])), paper.fold(names[kind], 0.36 * paper.inches, 1))
            ax.set_ylabel(f"must {kind}")
        fig.supxlabel("effect, in margins")
        paper.legend(fig, axes[0, 0])
        gone = len(cases) - len(lines)
        left_out = f"Left out, as nothing was tested: {gone} cases" if gone else ""
        marks = "Grey band: less than a margin. Dashed line: the least loss"
        return paper.finish(fig, marks, counts(lines), left_out)


def _outcomes(ax: Axes, rows: DataFrame, names: Sequence, kind: str) -> None:
    """A judge's effects in margins, of what must stay or of what must move."""
    height = {name: y for y, name in enumerate(names)}
    for outcome, style in OUTCOMES.items():
        chosen = rows[rows["outcome"] == outcome]
        y = chosen["case"].map(height)
        whiskers = reach(chosen, "effect")
        ax.errorbar(chosen["effect"], y, xerr=whiskers, label=outcome, ls="none", **style)
    if kind == "stay":
        ax.axvspan(-1, 1, color=GREY, lw=0, zorder=-2)
    else:
        ax.axvline(-1, color=PALE, ls="--", lw=0.8, zorder=-1)
    ax.axvline(0, color=PALE, lw=0.5, zorder=-1)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def preference_bars(tables: Mapping, *, labels: Mapping = FOUR_WAY, **options: Any) -> Figure:
    """Shares of wins, ties and losses, or of preferred feedback, as stacked bars.

    Args:
        tables: what `metrics.feedback_preference` or `metrics.win_rate` returned, by a pair of
            names, (first, second), or by one name. Whiskers are the intervals of the first and the
            last share.
        labels: row of the tables -> its words in the legend, from left to right; the default is
            that of feedback preferences.
    """
    stacked = need(pd.concat(dict(enumerate(tables.values()))), *BOUNDS, "n", "missing")
    first, *between, last = labels
    of_first = stacked.xs(first, level=1)
    names = []
    for name, missing in zip(tables, of_first["missing"], strict=True):
        name = name if isinstance(name, str) else " v ".join(name)
        names.append(f"{name} ({missing:,.0f} missing)" if missing else name)
    shares = 100 * stacked["estimate"].unstack()[list(labels)]
    colors = [SIDE_COLOURS[0], *TIE_COLOURS[: len(between)], SIDE_COLOURS[1]]
    with page(**options) as paper:
        fig, ax = paper.subplots(0.42 * len(tables) + 0.5)
        shares.rename(columns=labels).plot.barh(
            stacked=True, ax=ax, color=colors, edgecolor=INK, lw=0.4, legend=False
        )
        for drawn in ax.containers:
            texts = ["" if share <= 8 else f"{share:.0f}" for share in drawn.datavalues]
            color = "white" if drawn is ax.containers[0] else INK
            ax.bar_label(drawn, texts, label_type="center", fontsize=MIN_TEXT, color=color)
        for row, start in ((first, 0), (last, 100)):
            ends = abs(start - 100 * stacked.xs(row, level=1)[["low", "high"]]).to_numpy().T
            y = shares.index + 0.36
            ax.plot(ends, [y, y], "|-", color=INK, lw=0.9, ms=3)
        ax.set(xlim=(0, 100), xlabel="share (%)", ylabel="")
        ax.set_yticklabels(paper.fold(names, 0.3 * paper.inches, 3))
        ax.invert_yaxis()
        paper.legend(fig, ax)
        whiskers = "Whiskers below the bars: 95% intervals of the first and the last share"
        return paper.finish(fig, counts(of_first), whiskers)


def curves(
    table: DataFrame,
    *,
    x: str,
    y: str,
    by: str,
    panel: str | None = None,
    low: str = "low",
    high: str = "high",
    labels: Sequence | None = None,
    lines: Sequence = (),
    log: bool = False,
    **options: Any,
) -> Figure:
    """Estimates over a number with their intervals, such as power by the size of an effect.

    Args:
        table: one row a point; those without an estimate are counted in the caption.
        x, y, low, high, by, panel: its columns; a line for each of `by`, axes for each of `panel`.
        labels: of the two axes; None takes the columns' names.
        lines: heights of dotted lines.
        log: whether both axes are logarithmic.
    """
    table = need(table, x, y, low, high, names=[by])
    table = table.assign(low=table[low], high=table[high])
    panels = {"": table}
    if panel is not None:
        panels = dict(list(table.groupby(panel, sort=False)))
    across, up = labels or (x, y)
    kinds = looks(table[by].unique())
    bare = (table["low"] == table["high"]).all()  # no interval is known
    with page(**options) as paper:
        fig, drawn = paper.panels(panels, 0.7, across=across, up=up, shared=False)
        for ax, points in drawn:
            for level in lines:
                ax.axhline(level, color=PALE, lw=0.5, ls=":", zorder=0)
            step = 0.0 if log else 0.01 * np.ptp(points[x])  # lest one bar hide another
            for number, (name, style) in enumerate(kinds.items()):
                rows = points[points[by] == name].sort_values(x)
                across_bars = rows[x] + step * (number - (len(kinds) - 1) / 2)
                whiskers = None if bare else reach(rows, y)
                ax.errorbar(across_bars, rows[y], yerr=whiskers, label=name, **style)
            if (points[x] % 1 == 0).all():
                ax.xaxis.get_major_locator().set_params(integer=True)
            if log:
                log_axis(ax, "x", points[x])
                log_axis(ax, "y", table[y])
        paper.legend(fig, fig.axes[0])
        n_undefined = table[y].isna().sum()
        account = f"Not drawn, since undefined: {n_undefined:,} of {len(table):,} points"
        return paper.finish(fig, account if n_undefined else "")


def training_curve(log: DataFrame, **options: Any) -> Figure:
    """The loss of a training and, where it was evaluated, agreement and readable verdicts.

    Args:
        log: a `training_log.jsonl` as a frame: columns step; loss, and of evaluations pearson (no
            point where undefined), low, high, parsed, n.
    """
    names = log.columns.intersection(list(LOGGED))
    columns = log.reindex(columns=["step", "low", "high", "parsed", *names])
    columns.columns = ["step", "low", "high", "evaluated", *names]
    long = columns.melt(["step", "low", "high", "evaluated"], var_name="panel")
    undefined = (long["panel"] == "pearson") & long["evaluated"].notna()
    long = long[long["value"].notna() | undefined]
    long.loc[long["panel"] != "pearson", ["low", "high"]] = np.nan
    long = long.assign(panel=long["panel"].map(LOGGED), by="")
    options = {"column": "full", "labels": ("step", ""), **options}
    return curves(long, x="step", y="value", by="by", panel="panel", **options)
