"""Figures of judges against benchmarks, and against each other, as matrices of cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame

from vjudge.metrics.formatting import format_p
from vjudge.metrics.multiple_testing import ALPHA
from vjudge.plots.style import (
    AROUND_ZERO,
    CHARACTERS,
    FROM_ZERO,
    Page,
    PageFull,
    best,
    counts,
    draw_cells,
    need,
    page,
    short,
)


def heatmap(
    table: DataFrame, *, columns: str = "benchmark", label: str = "Pearson r", **options: Any
) -> Figure:
    """Correlations of judges with the truth on several benchmarks, the best of each in bold.

    The side with more names stands in rows. Colours run from 0 to 1, from -1 to 1 where a
    correlation is negative, so that figures of one paper can be compared.

    Args:
        table: one statistic: columns judge, `columns`, estimate (in [-1, 1]); low, high, n and
            missing where they are there.
        columns: the column with the names beside the judges': benchmarks, criteria, groups.
        label: of the colour scale.

    Source: the correlation heatmap of Prometheus-Vision (arXiv 2401.06591).
    """
    cells = need(table, "estimate", names=["judge", columns])
    bounds = cells.reindex(columns=["estimate", "low", "high"]).to_numpy(float)
    cells["text"] = [short(*row).replace(" [", "\n[") for row in bounds]
    cells["bold"] = best(cells, [columns])
    judges = cells["judge"].unique()
    grids = _grids(cells, "judge", columns, judges, cells[columns].unique())
    if len(grids[0].columns) > len(judges):
        grids = [grid.T for grid in grids]
    scale: dict[str, Any] = {"cmap": FROM_ZERO, "vmin": 0, "vmax": 1}
    if (cells["estimate"] < 0).any():
        scale = {"cmap": AROUND_ZERO, "vmin": -1, "vmax": 1}
    with page(**options) as paper:
        fig = _matrix(paper, grids, label, **scale)
        bold = f"Bold: the best judge of each {columns}" if len(judges) > 1 else ""
        return paper.finish(fig, counts(table), bold)


def rank_heatmap(table: DataFrame, *, columns: str = "benchmark", **options: Any) -> Figure:
    """Ranks of judges on each benchmark, 1 for the highest estimate, the best mean rank on top.

    Args:
        table: columns judge, `columns` and estimate, one row of each pair.
        columns: the column with the names of benchmarks.
    """
    table = need(table, "estimate", names=["judge", columns])
    grid = table.pivot(index="judge", columns=columns, values="estimate")
    ranks = grid[table[columns].unique()].round(3).rank(ascending=False, method="min")
    ranks["mean"] = ranks.mean(axis=1)
    ranks = ranks.sort_values("mean")
    texts = ranks.map("{:.3g}".format)
    with page(**options) as paper:
        fig = _matrix(
            paper, [ranks, texts, ranks == 1], cmap=FROM_ZERO.reversed(), vmin=0, vmax=len(ranks)
        )
        return paper.finish(fig, "Bold: rank 1; judges equal to three decimals share a rank")


def who_beats_whom(comparisons: DataFrame, *, statistic: str = "pearson", **options: Any) -> Figure:
    """Judges against each other, the best first: differences of correlations, row less column.

    Args:
        comparisons: what `metrics.compare_judges` or `compare_choices` returned. A difference is
            coloured and bold where p, corrected by Holm's method, is at most 5 %.
        statistic: which of its statistics, such as "pearson" or "without_ties".
    """
    pairs = comparisons.xs(statistic, level=2).reset_index()
    pairs["estimate"] = pairs["difference"]
    back = pairs.rename(columns={"a": "b", "b": "a"}).assign(estimate=-pairs["difference"])
    cells = pd.concat([pairs, back], ignore_index=True)
    tests = "\np " + cells["p_holm"].map(format_p)
    cells["text"] = cells["estimate"].map(short) + tests.replace("\np n/a", "")
    cells["bold"] = cells["p_holm"] <= ALPHA
    order = cells.groupby("a")["estimate"].mean().sort_values(ascending=False).index
    decided_or_absent = cells["bold"] | cells["estimate"].isna()
    cells["estimate"] = cells["estimate"].where(decided_or_absent, 0.0)  # the colour of the middle
    grids = _grids(cells, "a", "b", order, order)
    with page(**options) as paper:
        fig = _matrix(
            paper, grids, "difference, row less column", cmap=AROUND_ZERO, vmin=-0.55, vmax=0.55
        )
        decided = "Coloured and bold: p at most .05, corrected by Holm's method"
        return paper.finish(fig, counts(pairs), decided)


def _grids(
    cells: DataFrame,
    down: str,
    across: str,
    rows: Sequence,
    columns: Sequence,
) -> list:
    """Estimates, texts and whether they are bold, as rows and columns."""
    grids = []
    for name in ("estimate", "text", "bold"):
        grid = cells.pivot(index=down, columns=across, values=name)
        grids.append(grid.reindex(rows, columns=columns))
    return grids


def _matrix(paper: Page, grids: Sequence, label: str = "", **look: Any) -> Figure:
    """Cells of values with their texts, some bold; an undefined one is grey.

    label: of a colour bar; none draws none.
    """
    value, texts, bold = grids
    columns = value.columns
    capacity = (int(paper.tall / 0.16), int(5 * paper.inches))  # readable names
    if value.empty or (np.array(value.shape) > capacity).any():
        n_rows, n_columns = value.shape
        raise PageFull(
            f"{n_rows} rows and {n_columns} columns can't be drawn: this page holds 1 to"
            f" {capacity[0]} and 1 to {capacity[1]}; choose some, or group them"
        )
    side = 0.62 * paper.inches / len(columns)
    texts = texts.fillna("")
    if side < 0.6:  # too narrow for an interval
        texts = texts.map(lambda text: text.partition("\n")[0] if side > 0.25 else " ")
    across = paper.fold(columns, side)
    upright = max(map(len, " ".join(columns).replace("-", " ").split())) > CHARACTERS * side
    height = 0.33 * len(value) + 0.4
    if upright:
        across = paper.fold(columns, 1, max(1, int(8 * side)))
        height += 0.7
    if label:
        height += 0.6
    fig, ax = paper.subplots(height)
    rows = paper.fold(value.index, 0.34 * paper.inches)
    mesh = draw_cells(ax, value.set_axis(rows).set_axis(across, axis=1), texts, **look)
    if label and value.size > 1:
        bar = fig.colorbar(mesh, ax=ax, location="bottom", aspect=40, pad=0.03, label=label)
        bar.outline.set_visible(False)
    for text, strong in zip(ax.texts, bold.eq(True).to_numpy().ravel(), strict=True):
        if strong:
            text.set_weight("bold")
    ax.tick_params(labeltop=True, labelbottom=False)
    ax.tick_params(axis="x", labelrotation=90 if upright else 0)
    return fig
