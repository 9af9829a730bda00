"""Figures of judges against benchmarks, and against each other, as matrices of cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from vjudge.metrics.tables import format_p, holm
from vjudge.plots import style
from vjudge.plots.style import need, page

AXES = ["judge", "benchmark"]
CELL = ["estimate", "text", "bold"]
LEVEL = 0.05  # of tests that are corrected by Holm's method
SURE = "Bold: p at most .05, corrected by Holm's method"


def heatmap(table: pd.DataFrame, *, label: str = "Pearson r", **options: Any) -> Figure:
    """Correlations of judges with the truth on several benchmarks, the best of each in bold.

    The side with more names stands in rows.

    Args:
        table: one statistic of `metrics.correlation_table`: columns judge, benchmark, estimate (in
            [-1, 1]); low, high, n and missing where known; `ceiling`, True on the rows of people,
            which stand last and are not compared.
        label: of the colour scale.

    Source: the correlation heatmap of Prometheus-Vision (arXiv 2401.06591).
    """
    cells = need(table, "estimate", names=AXES)
    people = cells.get("ceiling", pd.Series(False, cells.index)).astype(bool)
    bounds = cells.reindex(columns=["estimate", "low", "high"]).to_numpy(float)
    cells["text"] = [style.short(*row).replace(" [", "\n[") for row in bounds]
    rounded = cells["estimate"].where(~people).round(3)
    cells["bold"] = rounded == rounded.groupby(cells["benchmark"]).transform("max")
    rows = pd.concat([cells[~people], cells[people]])["judge"].unique()
    columns = cells["benchmark"].unique()
    axes = AXES
    if len(columns) > len(rows):
        rows, columns = columns, rows
        axes = AXES[::-1]
    grid = cells.pivot(index=axes[0], columns=axes[1], values=CELL)
    with page(**options) as paper:
        fig = _matrix(paper, grid, rows, columns, label, cmap="Blues")
        bold = "Bold: the best judge of each benchmark, people not compared"
        return paper.finish(fig, style.counts(table), bold)


def rank_heatmap(table: pd.DataFrame, **options: Any) -> Figure:
    """Ranks of judges on each benchmark, 1 for the highest estimate, the best mean rank on top.

    Args:
        table: columns judge, benchmark and estimate, one row of each pair; people are left out.
    """
    table = need(table, "estimate", names=AXES)
    if "ceiling" in table:
        table = table[~table["ceiling"].astype(bool)]
    grid = table.pivot(index="judge", columns="benchmark", values="estimate")
    ranks = grid[table["benchmark"].unique()].round(3).rank(ascending=False, method="min")
    ranks["mean"] = ranks.mean(axis=1)
    ranks = ranks.sort_values("mean")
    cells = {"estimate": ranks, "text": ranks.map("{:.3g}".format), "bold": ranks == 1}
    grid = pd.concat(cells, axis=1)
    with page(**options) as paper:
        fig = _matrix(
            paper,
            grid,
            ranks.index,
            ranks.columns,
            cmap="Blues_r",
            vmin=0,
            vmax=len(ranks) + 1,
        )
        return paper.finish(fig, "Bold: rank 1; judges equal to three decimals share a rank")


def who_beats_whom(comparisons: pd.DataFrame, **options: Any) -> Figure:
    """Judges against each other, the best first: the difference in Pearson's r, row less column.

    Args:
        comparisons: what `metrics.compare_judges` returned. A difference is bold where p, corrected
            by Holm's method, is at most 5%.
    """
    pairs = comparisons.xs("pearson", level="statistic").reset_index()
    pairs = pairs.assign(estimate=pairs["difference"], mirror=-pairs["difference"])
    own = pd.concat([pairs.set_index("a")["estimate_a"], pairs.set_index("b")["estimate_b"]])
    order = own.groupby(level=0).first().sort_values(ascending=False).index
    most = max(0.1, pairs["estimate"].abs().max())
    with page(**options) as paper:
        label = "difference, row less column"
        fig = _pairs(
            paper,
            pairs,
            order,
            label,
            vmin=-most,
            vmax=most,
        )
        return paper.finish(fig, style.counts(pairs), SURE)


def win_matrix(tables: Mapping[tuple[str, str], pd.DataFrame], **options: Any) -> Figure:
    """How often the row wins against the column, ties counted half, with a test of each pair.

    Args:
        tables: by pair (a, b), what `metrics.win_rate` returned for a against b, with 95%
            intervals. p is that of the score test whose inversion the interval is, corrected by
            Holm's method over the pairs; a share is bold where it is at most 5%.

    Source: Wilson, JASA 22 (1927), 209-212.
    """
    halves = {pair: table.loc["win_ties_half"] for pair, table in tables.items()}
    pairs = pd.DataFrame(halves).T.astype(float).rename_axis(["a", "b"]).reset_index()
    share = pairs["estimate"]
    # 1) the effective number of comparisons, from the bound that is nearer to one half
    bound = pairs["low"].where(share > 0.5, pairs["high"])
    n = stats.norm.ppf(0.975) ** 2 * bound * (1 - bound) / (share - bound) ** 2
    # 2) the score test of one half
    p = 2 * stats.norm.sf(2 * (share - 0.5).abs() * np.sqrt(n))
    pairs = pairs.assign(mirror=1 - share, p_holm=holm(p))
    wins = pd.concat([pairs.set_index("a")["estimate"], pairs.set_index("b")["mirror"]])
    order = wins.groupby(level=0).mean().sort_values(ascending=False).index
    with page(**options) as paper:
        fig = _pairs(
            paper,
            pairs,
            order,
            "share won by the row",
            vmin=0,
            vmax=1,
        )
        return paper.finish(fig, style.counts(pairs), SURE)


def _pairs(
    paper: style.Page, pairs: pd.DataFrame, order: Sequence[str], label: str, **look: Any
) -> Figure:
    """A matrix of pairs: `estimate` in the row of `a`, `mirror` in that of `b`, with p_holm."""
    back = pairs.rename(columns={"a": "b", "b": "a"}).assign(estimate=pairs["mirror"])
    cells = pd.concat([pairs, back], ignore_index=True)
    tests = "\np " + cells["p_holm"].map(format_p)
    cells["text"] = cells["estimate"].map(style.short) + tests.replace("\np n/a", "")
    cells["bold"] = cells["p_holm"] <= LEVEL
    grid = cells.pivot(index="a", columns="b", values=CELL)
    return _matrix(
        paper,
        grid,
        order,
        order,
        label,
        cmap="RdBu",
        **look,
    )


def _matrix(
    paper: style.Page,
    grid: pd.DataFrame,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str = "",
    **look: Any,
) -> Figure:
    """Cells of `grid`, whose columns are CELL by name; an undefined one is grey.

    label: of a colour bar; none draws none.
    """
    value, texts, bold = [grid[name].reindex(index=rows, columns=columns) for name in CELL]
    known = value.notna()
    side = 0.62 * paper.inches / len(columns)
    texts = texts.fillna("")
    if side < 0.6:  # too narrow for an interval
        texts = texts.map(lambda text: text.partition("\n")[0] if side > 0.25 else " ")
    upright = max(map(len, " ".join(columns).replace("-", " ").split())) > style.CHARACTERS * side
    across = paper.fold(columns, side)
    if upright:
        across = paper.fold(columns, 1, max(1, int(8 * side)))
    height = 0.33 * len(rows) + (1.1 if upright else 0.4)
    fig, ax = paper.subplots(height + (0.6 if label else 0))
    style.cells(
        ax,
        value.astype(float),
        texts,
        mask=~known,
        xticklabels=across,
        yticklabels=paper.fold(rows, 0.34 * paper.inches),
        cbar=bool(label),
        cbar_kws={
            "location": "bottom",
            "aspect": 40,
            "pad": 0.03,
            "label": label,
        },
        **look,
    )
    for text, strong in zip(ax.texts, bold.to_numpy()[known], strict=True):
        text.set_weight("bold" if strong else "normal")
    ax.tick_params(labeltop=True, labelbottom=False)
    ax.tick_params(axis="x", labelrotation=90 if upright else 0)
    return fig
