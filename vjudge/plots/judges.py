"""Judges side by side: on several benchmarks, as a forest, against each other, by model ranking and by cost."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from scipy import stats

from vjudge import metrics
from vjudge.plots import style
from vjudge.plots.style import INK, MIN_TEXT, PALE, PALETTE, Look, interval, items, looks, names_of, need, page, short

BETTER, WORSE, EVEN = PALETTE[0], PALETTE[1], "#E6E6E6"
FEW = 20  # items below which a line is drawn hollow
MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}


def heatmap(table: pd.DataFrame, *, label: str = "Pearson r", **options: Any) -> Figure:
    """Correlations of judges (rows) with the truth on several benchmarks (columns), each with its interval.

    Args:
        table: one statistic of `metrics.correlation_table`: columns judge, benchmark, estimate (in [-1, 1]); low, high,
            n and missing where known; `ceiling`, True on the rows of people, which stand below the others.
        label: of the colour scale.

    Returns:
        The figure; the best judge of each benchmark in bold. Where a value is negative the colours part at 0.

    Source: the layout of the correlation heatmap in Prometheus-Vision (arXiv 2401.06591).
    """
    axes = ["judge", "benchmark"]
    need(table, *axes, "estimate", once=axes)
    table = table.assign(**{name: names_of(table[name]) for name in axes})
    people = table["ceiling"].astype(bool) if "ceiling" in table else pd.Series(False, index=table.index)
    names = [*table.loc[~people, "judge"].unique(), *table.loc[people, "judge"].unique()]
    n_judges, benchmarks = table.loc[~people, "judge"].nunique(), list(table["benchmark"].unique())
    cells = table.set_index(axes).reindex(columns=["estimate", "low", "high"])
    grid = cells["estimate"].unstack(sort=False).reindex(index=names, columns=benchmarks).astype(float)
    negative = bool((grid < 0).any(axis=None))
    shades, scale = colormaps["RdBu" if negative else "Blues"], Normalize(-1 if negative else 0, 1)
    best = grid.iloc[:n_judges].round(3).max()
    bounds = [interval(*row)[1] for row in cells.dropna().to_numpy()]
    with page(**options) as paper:

        def fit(side: float) -> bool:
            return bool(bounds) and max(map(paper.text_width, bounds)) < side - 0.06

        fig, ax, side = paper.grid(names, benchmarks, lambda side: 0.36 if fit(side) else 0.24, 0.6)
        if bounds and not fit(side):
            paper.account.append("intervals are in the figure's data")
        digits = 3 if not fit(side) and paper.text_width("\N{MINUS SIGN}.000") * 1.25 < side else 2
        image = ax.imshow(np.ma.masked_invalid(grid), cmap=shades, norm=scale, aspect="auto")
        for (i, name), (j, benchmark) in product(enumerate(names), enumerate(benchmarks)):
            number = grid.iat[i, j]
            if np.isnan(number):
                ax.text(j, i, "\N{EN DASH}", color=PALE, **MIDDLE)
                continue
            low, high = cells.loc[(name, benchmark), ["low", "high"]]
            two, ink = fit(side) and np.isfinite(low), style.ink_on(shades(scale(number)))
            first = i < n_judges and round(number, 3) == best[benchmark] and n_judges > 1
            text, below = interval(number, low, high) if two else (short(number, digits), "")
            ax.text(j, i - 0.2 * two, text, color=ink, weight="bold" if first else "normal", **MIDDLE)
            ax.text(j, i + 0.22, below, color=ink, fontsize=MIN_TEXT, **MIDDLE)
        ax.set_xticks(np.arange(len(benchmarks) - 1) + 0.5, minor=True)
        ax.set_yticks(np.arange(len(names) - 1) + 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.2)
        ax.tick_params(which="minor", length=0)
        if n_judges < len(names):
            ax.axhline(n_judges - 0.5, color=INK, lw=1)
        bar = fig.colorbar(image, ax=ax, location="bottom", aspect=40, pad=0.03, label=label)
        bar.set_ticks([-1, -0.5, 0, 0.5, 1] if negative else [0, 0.25, 0.5, 0.75, 1])
        bar.outline.set_visible(False)
        return paper.finish(fig, items(table, "a cell"))


def forest(
    table: pd.DataFrame, *, rows: str = "judge", by: str | None = None, panel: str | None = None,
    value: str = "estimate", label: str = "Pearson r", reference: float | None = 0.0, ceiling: float | None = None,
    **options: Any,
) -> Figure:  # fmt: skip
    """Estimates with their intervals as a forest plot: a line a judge, the numbers beside it.

    Args:
        table: one row a line: columns `rows`, `value`, `low`, `high`; `n` and `missing` where known; `margin`, half
            the width of a grey band around the reference (what is too small to matter); `by` and `panel`.
        rows: column with the names at the left, in order of appearance.
        by: column that splits each name into lines of a colour and marker each, for example the statistic.
        panel: column that splits the lines over axes of their own, for example the unit, which then stands below.
        value: column of the estimate; label: of the axis, without panels.
        reference, ceiling: where a dashed line stands, such as no correlation, and a dotted one, such as people's
            agreement; None draws none.

    Returns:
        The figure; lines that rest on fewer than 20 items are hollow.
    """
    keys = [name for name in (panel, rows, by) if name is not None]
    need(table, *keys, value, "low", "high", once=keys)
    table = table.reset_index(drop=True).assign(**{name: names_of(table[name]).to_numpy() for name in keys})
    kinds = looks([""] if by is None else list(table[by].unique()))
    parts = [(label, table)] if panel is None else list(table.groupby(panel, sort=False))
    gap = 0.4 if len(kinds) > 1 else 0.0
    with page(**options) as paper:
        names = list(table[rows].unique())
        left = dict(zip(names, paper.labels(names, 0.36 * paper.inches, lines=2, what="Lines"), strict=True))
        folds = {name: max(len(kinds), 0.9 * (text.count("\n") + 1)) + gap for name, text in left.items()}
        tall = [sum(folds[name] for name in part[rows].unique()) for _, part in parts]
        numbers = _beside(table, value, paper, paper.inches - max(map(paper.text_width, left.values())) - 0.75)
        height = 0.145 * sum(tall) + 0.45 * len(parts)
        fig, axes = paper.subplots(height, len(parts), squeeze=False, height_ratios=[t + 0.5 for t in tall])
        for ax, (unit, part) in zip(axes[:, 0], parts, strict=True):
            ticks, top = [], 0.0
            for place, (name, lines) in enumerate(part.groupby(rows, sort=False)):
                for index, line in lines.iterrows():
                    kind = "" if by is None else line[by]
                    y = top + (folds[name] - len(kinds)) / 2 + list(kinds).index(kind)
                    _line(ax, y, line, value, kinds[kind], reference or 0)
                    ax.text(1.02, y, numbers[index], transform=ax.get_yaxis_transform(), va="center", fontsize=MIN_TEXT)
                if place % 2 == 0:
                    ax.axhspan(top - 0.5, top + folds[name] - 0.5, color="#F5F5F5", lw=0, zorder=-3)
                ticks.append((top + (folds[name] - 1) / 2, left[name]))
                top += folds[name]
            if reference is not None:
                ax.axvline(reference, color=PALE, ls="--", lw=0.8, zorder=-1)
            mark = style.ceiling_line(ax, "x", ceiling)
            ax.set_yticks(*zip(*ticks, strict=True), linespacing=1.0)
            ax.set_ylim(top - 0.5, -0.5)
            ax.tick_params(axis="y", length=0)
            ax.spines["left"].set_visible(False)
            ax.locator_params(axis="x", nbins=2 if paper.inches < 4 else 5)
            ax.set_xlabel("\n".join(paper.wrap(unit, 0.6 * paper.inches, 8)))
            ax.margins(x=0.06)
        handles = [*([style.key(*one, lw=1) for one in kinds.items()] if by is not None else []), *mark]
        if handles:
            paper.legend(fig, handles)
        hollow = f"hollow: fewer than {FEW} items" if "n" in table and (table["n"] < FEW).any() else ""
        if "margin" in table and table["margin"].notna().any():
            paper.account.append("Grey: changes too small to matter")
        return paper.finish(fig, "; ".join(part for part in (items(table, "a line"), hollow) if part))


def _line(ax: Axes, y: float, row: pd.Series, value: str, look: Look, reference: float) -> None:
    estimate, low, high = (float(row[name]) for name in (value, "low", "high"))
    margin = float(row.get("margin", math.nan))
    if math.isfinite(margin):
        ends = reference - margin, reference + margin
        ax.fill_betweenx([y - 0.42, y + 0.42], *ends, color=style.TRUTH, lw=0, zorder=-2)
    if np.isfinite([low, high]).all():
        ax.plot([low, high], [y, y], color=look.color, lw=1.3, solid_capstyle="butt")
        ax.plot([low, high], [y, y], "|", color=look.color, ms=4, mew=1)
    hollow = "n" in row.index and row["n"] < FEW
    ax.plot(estimate, y, look.marker, color="white" if hollow else look.color, ms=4.2,
            mec=look.color if hollow else INK, mew=0.9 if hollow else 0.5)  # fmt: skip


def _beside(table: pd.DataFrame, value: str, paper: style.Page, room: float) -> list[str]:
    """What stands beside each line: with interval and, where counts differ much, n; less where there is no room."""

    def text(row: pd.Series, bounds: bool, n: bool) -> str:
        number = short(row[value]) if np.isfinite(row[value]) else "undefined"
        if bounds and np.isfinite(row[value]):
            whole = np.isfinite([row["low"], row["high"]]).all()
            number = " ".join(interval(row[value], row["low"], row["high"])) if whole else f"{number} no interval"
        return number + (f"  n={int(row['n'])}" if n else "")

    few = "n" in table and bool(table["n"].max() > 2 * table["n"].min())
    forms = ((True, True), (True, False), (False, False))[0 if few else 1 :]
    for form in forms:
        texts = [text(row, *form) for _, row in table.iterrows()]
        if max(map(paper.text_width, texts)) < room:
            break
    else:
        texts = [""] * len(table)
    if form != forms[0] or not any(texts):
        paper.account.append("numbers that do not fit are in the figure's data")
    return texts


def battery_effects(table: pd.DataFrame, **options: Any) -> Figure:
    """What each case of a battery did to the scores: a forest with a panel for each unit and what must be.

    Args:
        table: of one judge, as `probes.battery` returns it.

    Returns:
        What must move and what must stay; grey is what is too small to count. The caption names the cases that are not
        drawn: those that changed no score, descriptions, and what was not run.

    Raises:
        ValueError: a column is absent, or nothing changed that must move or stay.
    """
    need(table, "probe", "case", "must", "effect", "low", "high", "unit")
    cases = table.assign(line=table["case"].where(table["case"].astype(str) != "", table["probe"]))
    undefined, ruled = cases["effect"].isna(), cases["must"].isin(["move", "stay"])
    still = ruled & (cases[["effect", "low", "high"]] == 0).all(axis=1)
    lines = cases[ruled & ~still & ~undefined]
    if lines.empty:
        raise ValueError("no case that must move or stay changed a score: there is nothing to draw")
    lines = lines.assign(panel=lines["unit"].astype(str) + ": must " + lines["must"])
    twice = lines.duplicated(["panel", "line"], keep=False)
    lines["line"] = lines["line"].where(~twice, lines["probe"] + ": " + lines["line"])
    fig = forest(lines, rows="line", panel="panel", value="effect", **options)
    account = [str(fig.get_label())]
    for words, rows in (
        ("No score changed in", still),
        ("Described, not drawn", ~ruled & ~undefined),
        ("Not run or undefined", undefined),
    ):
        if rows.any():
            account.append(f"{words}: {', '.join(cases.loc[rows, 'line'].astype(str).unique())}")
    fig.set_label(". ".join(text for text in account if text))
    return fig


def who_beats_whom(comparisons: pd.DataFrame, *, statistic: str = "pearson", **options: Any) -> Figure:
    """Judges against each other: whether the row's judge agrees better with the truth than the column's.

    Args:
        comparisons: what `metrics.compare_judges` returned for two or more judges.
        statistic: pearson, spearman or kendall.

    Returns:
        One triangle of judges, the best first: dark cells where the column is better, hatched ones where it is worse,
        pale ones where no difference is shown at 5% after Holm's correction; in each the difference, column less row,
        and the corrected p.
    """
    verdict, difference, p = (
        metrics.who_beats_whom(comparisons, statistic=statistic, value=value)
        for value in ("verdict", "difference", "p_holm")
    )
    pairs = comparisons.xs(statistic, level="statistic")
    largest = pairs.reset_index().sort_values("n", kind="stable")  # a judge's own value is that of most items
    own = {
        name: row[f"estimate_{side}"]
        for _, row in largest.iterrows()
        for side, name in zip("ab", row[["a", "b"]], strict=True)
    }
    floor = comparisons.attrs.get("p_floor", 0) * (1 + 1e-9)
    at_floor = {frozenset(pair) for pair, row in pairs.iterrows() if row["p"] <= floor}
    order = sorted(verdict.index, key=lambda name: math.inf if math.isnan(own[name]) else -own[name])
    worse, better = order[1:], order[:-1]
    with page(**options) as paper:
        left, above = ([f"{name} ({short(own[name])})" for name in side] for side in (worse, better))
        fig, ax, side = paper.grid(left, above, lambda _: 0.36, 0.1)
        for j, i in combinations_with_replacement(range(len(worse)), 2):
            pair = better[j], worse[i]
            won, chance = verdict.loc[pair], p.loc[pair]
            fill = {1.0: BETTER, -1.0: WORSE}.get(won, EVEN)
            hatch = {-1.0: "////"}.get(won, "" if won == won else "....")
            ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fc=fill, ec="white", hatch=hatch, lw=1.2))
            least = chance if frozenset(pair) in at_floor else None
            cells = [
                ("differences", -0.2, signed(difference.loc[pair])),
                ("p values", 0.2, style.p_text(chance, least)),
            ]
            for what, below, text in cells if won == won else [("numbers", 0, "undefined")]:
                box = dict(fc=WORSE, ec="none", pad=0.8) if won == -1 else None
                look = dict(fontsize=MIN_TEXT, color="white" if won == 1 else INK, bbox=box, **MIDDLE)
                paper.optional(ax.text(j, i + below, text, **look), what, side)
        keys = [
            Patch(fc=BETTER, label="column better"), Patch(fc=WORSE, ec="white", hatch="////", label="row better"),
            Patch(fc=EVEN, label="no difference shown"),
        ]  # fmt: skip
        paper.legend(fig, keys)
        return paper.finish(fig, f"{len(pairs)} pairs of judges; {items(pairs, 'a pair')}")


def signed(value: float) -> str:
    """A difference with its sign."""
    return ("+" if round(value, 2) > 0 else "") + short(value)


def model_ranking(table: pd.DataFrame, *, judge: str = "judge", people: str = "human", **options: Any) -> Figure:
    """How a judge ranks models against how people do, with Kendall's tau.

    Args:
        table: one row a model, as `metrics.model_ranking` returns it: columns judge and human (strengths or mean
            scores); `attrs` tau, tau_low, tau_high, else tau-b is computed from the two columns.
        judge, people: what the two axes are called.

    Returns:
        A line a model from its place among people to its place with the judge, dashed where the two differ.
    """
    need(table, "judge", "human")
    whole = table.dropna(subset=["judge", "human"])
    tau, low, high = (float(table.attrs.get(name, np.nan)) for name in ("tau", "tau_low", "tau_high"))
    if np.isnan(tau) and len(whole) > 1:
        tau = float(stats.kendalltau(whole["judge"], whole["human"])[0])
    text = f"Kendall's tau {' '.join(interval(tau, low, high)).rstrip()}"
    with page(**options) as paper:
        place = whole[["judge", "human"]].rank(ascending=False, method="first")
        room = paper.inches / 2 - 0.4  # of a name and its number
        wide = room > 1.25
        labels = paper.labels(list(whole.index), room - 0.4 * wide, lines=1, what="models")
        if not wide:
            paper.account.append("strengths are in the figure's data")
        fig, ax = paper.subplots(0.17 * len(whole) + 0.3)
        for label, (_, row), (_, ends) in zip(labels, whole.iterrows(), place.iterrows(), strict=True):
            same = ends["human"] == ends["judge"]
            ax.plot([0, 1], [ends["human"], ends["judge"]], "-" if same else "--", color=PALETTE[0 if same else 5],
                    lw=1.1, marker="o", ms=3.5, mec=INK, mew=0.4)  # fmt: skip
            for x, side, align, gap in ((0, "human", "right", -6), (1, "judge", "left", 6)):
                number = f"{row[side]:.2f}".replace("-", "\N{MINUS SIGN}")
                words = f"{label}  {number}" if align == "right" else f"{number}  {label}"
                ax.annotate(words if wide else label, (x, ends[side]), va="center", ha=align, xytext=(gap, 0),
                            textcoords="offset points", fontsize=MIN_TEXT)  # fmt: skip
        ax.set(xlim=(-0.02, 1.02), ylim=(len(whole) + 0.6, 0.4))
        ax.set_xticks([0, 1], ["\n".join(paper.wrap(name, 0.45 * paper.inches)) for name in (people, judge)])
        ax.tick_params(length=0, labeltop=True, labelbottom=False)
        for name, align in zip(ax.get_xticklabels(), ("right", "left"), strict=True):
            name.set_horizontalalignment(align)
        ax.set_yticks([])
        ax.spines[:].set_visible(False)
        gone = len(table) - len(whole)
        return paper.finish(fig, f"{text}; {len(whole)} models" + (f", {gone} more without both" if gone else ""))


def agreement_by_cost(
    table: pd.DataFrame, *, label: str = "Pearson r", cost_label: str = "cost of 1,000 verdicts (USD)",
    ceiling: float | None = None, **options: Any,
) -> Figure:  # fmt: skip
    """Agreement with the truth against what a judge costs: which judges are beaten at their price.

    Args:
        table: one row a judge: columns judge, estimate, cost (above 0, in any unit); low, high where known.
        label, cost_label: of the axes; ceiling: where a dotted line stands, such as people's agreement.

    Returns:
        Cost on a logarithmic axis; the line joins the judges that no cheaper one equals.
    """
    need(table, "judge", "estimate", "cost", once=["judge"])
    whole = table.dropna(subset=["estimate", "cost"]).sort_values("cost", kind="stable")
    if (whole["cost"] <= 0).any() or whole.empty:
        raise ValueError("cost must be above 0 for at least one judge, on a logarithmic axis")
    whole = whole.reindex(columns=whole.columns.union(["low", "high"], sort=False))
    styles = looks([str(name) for name in table["judge"]])
    with page(**options) as paper:
        fig, ax = paper.subplots(0.4 * min(paper.inches, 4) + 0.6)
        front = whole[whole["estimate"] > whole["estimate"].cummax().shift(fill_value=-np.inf)]
        ax.plot(front["cost"], front["estimate"], color=PALE, lw=0.8, zorder=0, drawstyle="steps-post")
        for name, rows in whole.groupby("judge", sort=False):
            style.bars(ax, rows, "cost", "estimate", styles[str(name)], ms=5, elinewidth=0.9, capsize=2)
        mark = style.ceiling_line(ax, "y", ceiling)
        ax.set(xscale="log", xlabel=cost_label, ylabel=label)
        style.log_ticks(ax, "x", whole["cost"].min(), whole["cost"].max())
        keys = [style.key(str(name), styles[str(name)], ls="none") for name in whole["judge"]]
        paper.legend(fig, [*keys, *mark])
        gone = len(table) - len(whole)
        note = f"{gone} judges without agreement or cost, not drawn" if gone else ""
        return paper.finish(fig, items(table, "a judge"), note)
