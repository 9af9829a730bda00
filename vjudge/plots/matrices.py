"""Draw matrices of cells: judges by benchmarks, and judges by judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame

from vjudge.metrics.formatting import format_p
from vjudge.metrics.intervals import INTERVAL
from vjudge.metrics.multiple_testing import ALPHA
from vjudge.plots.style import (
    AROUND_ZERO,
    CHARACTERS,
    FROM_ZERO,
    Look,
    Page,
    PageFull,
    best,
    counts,
    draw_cells,
    need,
    page,
    short,
)

MIN_ROW = 0.16  # inches of a row's height; names of lower rows can't be read
WITH_INTERVAL = 0.6  # inches of a cell's width; a narrower cell has no interval
WITH_NUMBER = 0.25  # inches of a cell's width; a cell that is no wider has no number
COLUMNS_PER_INCH = 5  # names of more columns can't be read


def heatmap(
    table: DataFrame, *, columns: str = "benchmark", label: str = "Pearson r", **options: Any
) -> Figure:
    """Draw correlations of judges with the truth on several benchmarks, the best of each in bold.

    Rows show judges or benchmarks, whichever are more. Colours run from 0 to 1, or from -1 to 1 if
    a correlation is negative, so that figures of one paper can be compared.

    Args:
        table: one statistic, one row per judge and benchmark: columns judge, the one that `columns`
            names, estimate (in [-1, 1]); optionally low, high, n and missing.
        columns: the name of the column with the benchmarks, or with criteria or groups in their
            place.
        label: of the colour scale.
        options: of `page`.

    Source: the correlation heatmap of Prometheus-Vision (arXiv 2401.06591).
    """
    cells = need(table, "estimate", names=["judge", columns])
    bounds = cells.reindex(columns=INTERVAL).to_numpy(float)
    # The interval stands on a second line, which `_draw` leaves out of a narrow cell
    cells["text"] = [short(*row).replace(" [", "\n[") for row in bounds]
    cells["bold"] = best(cells, [columns])
    judges = cells["judge"].unique()
    names = cells[columns].unique()
    matrix = CellMatrix.of(cells, "judge", columns, judges, names)
    if len(names) > len(judges):
        matrix = matrix.transposed()
    look: Look = {"cmap": FROM_ZERO, "vmin": 0, "vmax": 1}
    if (cells["estimate"] < 0).any():
        look = {"cmap": AROUND_ZERO, "vmin": -1, "vmax": 1}
    with page(**options) as paper:
        fig = _draw(paper, matrix, label, look)
        bold = f"Bold: the best judge of each {columns}" if len(judges) > 1 else ""
        return paper.finish(fig, counts(table), bold)


def rank_heatmap(table: DataFrame, *, columns: str = "benchmark", **options: Any) -> Figure:
    """Draw the rank of each judge on each benchmark, and its mean rank; the best mean is on top.

    Args:
        table: one row per judge and benchmark: columns judge, the one that `columns` names, and
            estimate; rank 1 is the highest estimate.
        columns: the name of the column with the benchmarks.
        options: of `page`.
    """
    table = need(table, "estimate", names=["judge", columns])
    grid = table.pivot(index="judge", columns=columns, values="estimate")
    ranks = grid[table[columns].unique()].round(3).rank(ascending=False, method="min")
    ranks["mean"] = ranks.mean(axis=1)
    ranks = ranks.sort_values("mean")
    matrix = CellMatrix(ranks, ranks.map("{:.3g}".format), ranks == 1)
    look: Look = {"cmap": FROM_ZERO.reversed(), "vmin": 0, "vmax": len(ranks)}
    with page(**options) as paper:
        fig = _draw(paper, matrix, "", look)
        return paper.finish(fig, "Bold: rank 1; judges equal to three decimals share a rank")


def who_beats_whom(comparisons: DataFrame, *, statistic: str = "pearson", **options: Any) -> Figure:
    """Draw the difference between each two judges, row minus column, with the best judge first.

    Args:
        comparisons: what `metrics.compare_judges` or `metrics.compare_choices` returned. A
            difference is coloured and bold if it is significant: its p value, corrected by Holm's
            method, is at most 5 %.
        statistic: which of the statistics or measures in it, such as "pearson" or "without_ties".
        options: of `page`.
    """
    pairs = comparisons.xs(statistic, level=2).reset_index()
    pairs["estimate"] = pairs["difference"]
    # Each comparison fills two cells: (a, b), and mirrored (b, a) with the other sign
    mirrored = pairs.rename(columns={"a": "b", "b": "a"}).assign(estimate=-pairs["difference"])
    cells = pd.concat([pairs, mirrored], ignore_index=True)
    tests = "\np " + cells["p_holm"].map(format_p)  # on a second line; none where undefined
    cells["text"] = cells["estimate"].map(short) + tests.replace("\np n/a", "")
    cells["bold"] = cells["p_holm"] <= ALPHA
    order = cells.groupby("a")["estimate"].mean().sort_values(ascending=False).index
    # A difference that is not significant has the colour of 0, and an undefined one stays grey
    has_colour = cells["bold"] | cells["estimate"].isna()
    coloured = cells.assign(estimate=cells["estimate"].where(has_colour, 0.0))
    matrix = CellMatrix.of(coloured, "a", "b", order, order)
    # Differences beyond 0.55 have its colour
    look: Look = {"cmap": AROUND_ZERO, "vmin": -0.55, "vmax": 0.55}
    with page(**options) as paper:
        fig = _draw(paper, matrix, "difference, row less column", look)
        significant = "Coloured and bold: p at most .05, corrected by Holm's method"
        return paper.finish(fig, counts(pairs), significant)


@dataclass(frozen=True)
class CellMatrix:
    """The cells of a figure as three tables of the same shape, rows and columns."""

    values: DataFrame  # what gives a cell its colour; NaN where undefined
    texts: DataFrame  # one or two lines, "\n" between them; NaN where there is no cell
    bold: DataFrame  # True where the text is bold

    @classmethod
    def of(
        cls, cells: DataFrame, down: str, across: str, rows: Sequence[str], columns: Sequence[str]
    ) -> CellMatrix:
        """Arrange the cells of a long table in a matrix.

        Args:
            cells: one row per cell: columns estimate, text, bold, and those named next.
            down, across: the names of the columns of `cells` that tell a cell's row and column.
            rows, columns: the rows and the columns of the matrix, in their order.
        """
        fields = ["estimate", "text", "bold"]
        grids = cells.pivot(index=down, columns=across, values=fields)
        return cls(*[grids[field].reindex(rows, columns=columns) for field in fields])

    def transposed(self) -> CellMatrix:
        """Return the matrix with rows and columns exchanged."""
        return CellMatrix(self.values.T, self.texts.T, self.bold.T)


def _draw(paper: Page, matrix: CellMatrix, label: str, look: Look) -> Figure:
    """Draw a matrix with as much text in its cells as they hold; an undefined cell is grey.

    Args:
        label: of a colour bar; "" draws none.
        look: the colour map and its limits.

    Raises:
        PageFull: the names of rows or columns could not be read.
    """
    values = matrix.values
    _check_capacity(paper, *values.shape)
    names = list(values.columns)
    inches = 0.62 * paper.inches / len(names)  # of a cell's width; names of rows take the rest
    # 1) What fits into a cell: the number with its interval, the number, or nothing
    texts = matrix.texts.fillna("")
    if inches <= WITH_NUMBER:
        texts = texts.map(lambda _: " ")
    elif inches < WITH_INTERVAL:
        texts = texts.map(lambda text: text.partition("\n")[0])
    # 2) Names of columns are turned upright if a word of them is longer than a cell is wide. They
    # are then folded onto lines of an inch, of which a cell holds 8 per inch of its width.
    longest_word = max(map(len, " ".join(names).replace("-", " ").split()))
    is_upright = longest_word > CHARACTERS * inches
    height = 0.33 * len(values) + 0.4
    if is_upright:
        across = paper.fold(names, 1, max(1, int(8 * inches)))
        height += 0.7
    else:
        across = paper.fold(names, inches)
    if label:
        height += 0.6
    # 3) Cells, colour bar, bold texts
    fig, ax = paper.subplots(height)
    down = paper.fold(values.index, 0.34 * paper.inches)
    mesh = draw_cells(ax, values.set_axis(down).set_axis(across, axis=1), texts, **look)
    if label and values.size > 1:
        bar = fig.colorbar(mesh, ax=ax, location="bottom", aspect=40, pad=0.03, label=label)
        bar.outline.set_visible(False)
    for text, is_bold in zip(ax.texts, matrix.bold.eq(True).to_numpy().ravel(), strict=True):
        if is_bold:
            text.set_weight("bold")
    ax.tick_params(labeltop=True, labelbottom=False)
    ax.tick_params(axis="x", labelrotation=90 if is_upright else 0)
    return fig


def _check_capacity(paper: Page, n_rows: int, n_columns: int) -> None:
    """Refuse a matrix without cells, and one whose names could not be read on this page."""
    max_rows = int(paper.tall / MIN_ROW)
    max_columns = int(COLUMNS_PER_INCH * paper.inches)
    if not (1 <= n_rows <= max_rows and 1 <= n_columns <= max_columns):
        raise PageFull(
            f"{n_rows} rows and {n_columns} columns can't be drawn: this page holds 1 to"
            f" {max_rows} and 1 to {max_columns}; choose some, or group them"
        )
