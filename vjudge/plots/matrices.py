"""Figures of judges against benchmarks, and against each other, as matrices of cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from scipy import stats

from vjudge.metrics.tables import format_p, holm
from vjudge.plots.style import CENTER, CHARACTERS, PALE, SMALL, Page, items, need, page, short

BOUNDS = ["estimate", "low", "high"]
LEVEL = 0.05  # of tests that are corrected by Holm's method


def heatmap(table: pd.DataFrame, *, label: str = "Pearson r", **options: Any) -> Figure:
    """Correlations of judges with the truth on several benchmarks, the best of each in bold.

    Benchmarks are columns, or rows where only so the cells hold their intervals.

    Args:
        table: one statistic of `metrics.correlation_table`: columns judge, benchmark, estimate (in
            [-1, 1]); low, high, n and missing where known; `ceiling`, True on the rows of people,
            which stand last and are not compared.
        label: of the colour scale, which has 0 in its middle where a value is negative.

    Source: the correlation heatmap of Prometheus-Vision (arXiv 2401.06591).
    """
    axes = ["judge", "benchmark"]
    table = need(table, "estimate", names=axes, once=True).reset_index(drop=True)
    if "ceiling" in table:
        table = table.sort_values("ceiling", kind="stable")
    names = list(table["judge"].unique())
    benchmarks = list(table["benchmark"].unique())
    cells = table.set_index(axes).reindex(columns=BOUNDS).astype(float)
    shown = cells.map(short)
    bounds = "\n[" + shown["low"] + ", " + shown["high"] + "]"
    texts = shown["estimate"] + bounds.where(cells["low"].notna(), "")
    own = table if "ceiling" not in table else table[~table["ceiling"].astype(bool)]
    rounded = own.set_index(axes)["estimate"].round(3)
    best = rounded.eq(rounded.groupby("benchmark").transform("max"))
    with page(**options) as paper:
        turned = not _fits(paper, names, benchmarks) and _fits(paper, benchmarks, names)
        if own["judge"].nunique() > 1:
            side = "row" if turned else "column"
            paper.account.append(f"Bold: the highest of a {side}, people not compared")
        frames = []
        for column in (cells["estimate"], texts, best):
            frame = column.unstack(sort=False).reindex(index=names, columns=benchmarks)
            frames.append(frame.T if turned else frame)
        look: dict[str, Any] = dict(cmap="Blues", vmin=0, vmax=1)
        if (cells["estimate"] < 0).any():
            look = dict(cmap="RdBu", vmin=-1, vmax=1)
        fig = _matrix(paper, *frames, label=label, **look)
        return paper.finish(fig, items(table, "a cell"))


def _widest(texts: Iterable[str]) -> float:
    """Inches that the longest of some texts may take."""
    return max(map(len, texts), default=0) / CHARACTERS["sans"]


def _lines(texts: Iterable[str]) -> int:
    """The most lines that one of some texts has."""
    return 1 + max((text.count("\n") for text in texts), default=0)


def _room(paper: Page, rows: Sequence[str], columns: Sequence[str]) -> float:
    """Inches of a column beside the names of rows."""
    return (paper.inches - min(0.34 * paper.inches, _widest(rows)) - 0.2) / len(columns)


def _fits(paper: Page, rows: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether a cell holds an interval."""
    return _room(paper, rows, columns) >= 0.6


def _fitting(paper: Page, texts: pd.DataFrame, side: float) -> pd.DataFrame:
    """Texts of cells without the second line, or none at all, where a cell is too narrow."""
    first = texts.map(lambda text: text.partition("\n")[0])
    for shown in (texts, first, texts.where(texts == "", " ")):
        if 0.85 * _widest("\n".join(shown.stack()).split("\n")) < side:
            break
    if not shown.equals(texts):
        paper.account.append("Numbers that the cells cannot hold are in the figure's data")
    return shown


def _matrix(
    paper: Page,
    values: pd.DataFrame,
    texts: pd.DataFrame,
    bold: pd.DataFrame,
    *,
    label: str = "",
    **look: Any,
) -> Figure:
    """Cells with texts, those in `bold` set so; what is undefined is a dash.

    label: of a colour bar; none draws none.
    """
    known = values.notna()
    side = _room(paper, values.index, values.columns)
    texts = _fitting(paper, texts.fillna(""), side)
    upright = _widest(" ".join(values.columns).split()) > side
    rows = paper.labels(values.index, 0.34 * paper.inches, what="Rows")
    room = side
    fold = 2  # inches and lines of a column's name
    if upright:
        room = 1.1
        fold = max(1, int(8 * side))
    columns = paper.labels(values.columns, room, lines=fold, what="Columns")
    above = _widest(columns) if upright else 0.3
    lines = max(_lines(rows), 1.15 * _lines(texts.stack()))
    high = 0.13 * lines + 0.07
    fig, ax = paper.subplots(high * len(rows) + above + (0.6 if label else 0.1))
    bar = dict(location="bottom", aspect=40, pad=0.03, label=label)
    look |= dict(cbar=bool(label), cbar_kws=bar, xticklabels=columns, yticklabels=rows)
    look |= dict(annot=texts, fmt="", annot_kws=SMALL, linewidths=1)
    sns.heatmap(values.astype(float), mask=~known, ax=ax, **look)
    for text, strong in zip(ax.texts, bold.to_numpy()[known.to_numpy()], strict=True):
        text.set(weight="bold" if strong == 1 else "normal", linespacing=1.0)
    for i, j in np.argwhere(~known.to_numpy() & texts.ne("").to_numpy()):
        ax.text(j + 0.5, i + 0.5, "\N{EN DASH}", color=PALE, **CENTER)
    ax.tick_params(length=0, labeltop=True, labelbottom=False, labelrotation=0)
    ax.tick_params(axis="x", labelrotation=90 if upright else 0)
    ax.set(xlabel="", ylabel="")
    return fig


def rank_heatmap(table: pd.DataFrame, **options: Any) -> Figure:
    """Ranks of judges on each benchmark, 1 for the highest estimate, the best mean rank on top.

    Args:
        table: columns judge, benchmark and estimate, one row of each pair; people are left out.
    """
    table = need(table, "estimate", names=["judge", "benchmark"], once=True)
    if "ceiling" in table:
        table = table[~table["ceiling"].astype(bool)]
    grid = table.set_index(["judge", "benchmark"])["estimate"].unstack(sort=False)
    ranks = grid.round(3).rank(ascending=False, method="min")
    ranks["mean"] = ranks.mean(axis=1)
    ranks = ranks.sort_values("mean", kind="stable")
    texts = ranks.map("{:.0f}".format).assign(mean=ranks["mean"].map("{:.1f}".format))
    with page(**options) as paper:
        look: dict[str, Any] = dict(cmap="Blues_r", vmin=0, vmax=len(ranks) + 1)
        fig = _matrix(paper, ranks, texts, ranks.eq(1), **look)
        paper.account.append("Bold: rank 1; judges equal to three decimals share a rank")
        return paper.finish(fig)


def who_beats_whom(
    comparisons: pd.DataFrame, *, statistic: str = "pearson", **options: Any
) -> Figure:
    """Judges against each other, the best first: the difference in agreement, row less column.

    Args:
        comparisons: what `metrics.compare_judges` returned. A difference is bold where p, corrected
            by Holm's method, is at most 5%.
        statistic: pearson, spearman or kendall.
    """
    pairs = comparisons.xs(statistic, level="statistic")
    rows = pairs.rename(columns={"difference": "value"}).assign(mirror=-pairs["difference"])
    own = {}
    for (a, b), row in pairs.sort_values("n", kind="stable").iterrows():
        own[a] = row["estimate_a"]  # a judge's own value is that of most items
        own[b] = row["estimate_b"]
    names = {name: f"{name} ({short(value)})" for name, value in own.items()}
    rows.index = pd.MultiIndex.from_tuples([(names[a], names[b]) for a, b in rows.index])
    best_first = pd.Series(own).sort_values(ascending=False, kind="stable").index
    order = [names[name] for name in best_first]
    most = max(0.1, rows["value"].abs().max())
    with page(**options) as paper:
        look = dict(cmap="RdBu", vmin=-most, vmax=most, label="difference, row less column")
        fig = _pairs(paper, rows, order, **look)
        return paper.finish(fig, f"{len(pairs)} pairs of judges; {items(pairs, 'a pair')}")


def win_matrix(tables: Mapping[tuple[str, str], pd.DataFrame], **options: Any) -> Figure:
    """How often the row wins against the column, ties counted half, with a test of each pair.

    Args:
        tables: by pair (a, b), what `metrics.win_rate` returned for a against b, with 95%
            intervals. p is that of the score test whose inversion the interval is, corrected by
            Holm's method over the pairs; a share is bold where it is at most 5%.

    Source: Wilson, JASA 22 (1927), 209-212.
    """
    if not tables:
        raise ValueError("there is no pair: give what metrics.win_rate returned, by pair")
    halves = pd.concat({pair: table.loc[["win_ties_half"]] for pair, table in tables.items()})
    rows = halves.droplevel(-1).rename(columns={"estimate": "value"})
    rows["mirror"] = 1 - rows["value"]
    columns = rows[["value", "low", "high"]].to_numpy(float)
    rows["p_holm"] = holm(np.array([_p_of_half(*row) for row in columns]))
    sides = [rows["value"].droplevel(1), rows["mirror"].droplevel(0)]
    order = pd.concat(sides).groupby(level=0).mean().sort_values(ascending=False).index
    with page(**options) as paper:
        look: dict[str, Any] = dict(cmap="RdBu", vmin=0, vmax=1, label="share won by the row")
        fig = _pairs(paper, rows, list(order), **look)
        return paper.finish(fig, items(rows, "a pair"))


def _pairs(paper: Page, rows: pd.DataFrame, order: list[str], **look: Any) -> Figure:
    """A matrix of pairs: `value` in the first's row, `mirror` in the second's, with p_holm."""
    values = pd.DataFrame(np.nan, index=order, columns=order)
    texts = pd.DataFrame(None, index=order, columns=order, dtype=object)
    sure = pd.DataFrame(False, index=order, columns=order)
    for (a, b), row in rows.iterrows():
        for first, second, value in ((a, b, row["value"]), (b, a, row["mirror"])):
            p = row["p_holm"]
            values.loc[first, second] = value
            sure.loc[first, second] = p <= LEVEL
            texts.loc[first, second] = short(value) + ("" if np.isnan(p) else f"\np {format_p(p)}")
    paper.account.append("Bold: p at most .05, corrected by Holm's method")
    return _matrix(paper, values, texts, sure, **look)


def _p_of_half(share: float, low: float, high: float) -> float:
    """p of a share of one half, from its 95% Wilson interval."""
    bound = low if share > 0.5 else high
    if np.isnan(bound) or share == bound:
        return np.nan
    z = stats.norm.ppf(0.975)
    n = z**2 * bound * (1 - bound) / (share - bound) ** 2  # the effective number of comparisons
    return float(2 * stats.norm.sf(abs(share - 0.5) / np.sqrt(0.25 / n)))
