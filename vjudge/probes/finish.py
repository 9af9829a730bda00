"""From rows to results: the judges' table, its reading and caveats; a score at equal gold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from vjudge.data.cells import rater_scores
from vjudge.data.schema import Items
from vjudge.metrics.strictness import levelled
from vjudge.plots.battery import battery_effects
from vjudge.probes.effects import Must, coefficient, equal
from vjudge.probes.readings import missing_text, reading
from vjudge.probes.runs import GOLD, Judged, MissingInputError, ProbeRow, ProbeRuns
from vjudge.results import NotComputed, Result

VIEW_COLUMNS = "judge case must effect low high p_holm margin verdict passes n missing".split()
EFFECTS = (
    "Effects of what was changed on the scores, as shares of the margin within which an effect"
    " counts as none"
)
CAPTIONS = {
    "length": "Scores less their mean at equal gold, by length of the response. Lines: slopes;"
    " bands: their 95% intervals",
    "position": "Which of two responses a judge chooses when each stands first once",
    "self_preference": "Liking of each system's responses at equal gold",
}
Drawing = tuple[
    Callable[..., Figure], pd.DataFrame
]  # a figure's function, and what it is drawn from


def probed(
    name: str,
    rows_of: Callable[[ProbeRuns], Sequence[ProbeRow]],
    judge: Judged,
    items: Items | None = None,
    *,
    figure: Callable[[pd.DataFrame], Drawing | None] | None = None,
    **options: Any,
) -> Result:
    """A probe of one judge or several: `rows_of` makes the rows of each, `figure` the drawing.

    A judge that lacks something has a row that is not run; NotComputed where all do.
    """
    tables = []
    caveats = []
    reasons = []
    for runs in ProbeRuns.several(judge, items, **options):
        try:
            rows = rows_of(runs)
            caveats += runs.caveats
        except MissingInputError as error:
            reasons.append(str(error))
            rows = [runs.row("", note=str(error))]
        tables.append(runs.table(name, rows))
    if len(reasons) == len(tables):
        raise NotComputed("; ".join(dict.fromkeys(reasons)))
    return finish(name, tables, caveats, figure)


def finish(
    name: str,
    tables: Sequence[pd.DataFrame],
    caveats: Iterable[str] = (),
    figure: Callable[[pd.DataFrame], Drawing | None] | None = None,
) -> Result:
    """The result of the judges' tables, by default with the figure of all tested effects."""
    table = pd.concat(tables, ignore_index=True)
    table.attrs = {"method": tables[0].attrs["method"]}
    drawing = (figure or _effects)(table)
    plot, data = drawing or (None, None)
    several = table["judge"].nunique() > 1
    return Result(
        table,
        name=name,
        reading=reading(table),
        caption=CAPTIONS.get(name, EFFECTS),
        caveats=[*caveats, *missing_text(table)],
        plot=plot,
        data=data,
        view=table[VIEW_COLUMNS if several else VIEW_COLUMNS[1:]],
    )


def _effects(table: pd.DataFrame) -> Drawing | None:
    """The figure of what was tested, if anything was."""
    if table.dropna(subset=["must", "effect", "margin"]).empty:
        return None
    return partial(battery_effects, table), table


def at_equal_gold(
    runs: ProbeRuns,
    cells: pd.DataFrame,
    case: str,
    unit: str,
    does: str,
) -> ProbeRow:
    """The row of the slope of the score on the column x at equal gold, read as `gold=` allows."""
    cells, used = gold_cells(runs, cells)
    effect = coefficient(
        used["score"],
        np.column_stack([used["x"], gold_columns(runs, used)]),
        used["group"],
        error=used["error"].to_numpy() if runs.gold == "rated" else None,
        step=runs.ruler.step,
    )
    must: Must | None = None if runs.gold == "observed" else "stay"
    does = f"{does} {{raises}} scores at equal gold by {{size}}"
    missing = len(cells) - len(used)
    return runs.row(case, effect, unit, must, does, missing=missing, note=GOLD[runs.gold])


def gold_cells(runs: ProbeRuns, cells: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All items with their gold, and those with a score, gold and x.

    People's mean is that of their scores less their strictness, estimated where they share items;
    its error is the variance of such a mean, NaN of one person.
    """
    lacks = "gold scores"
    if runs.gold == "rated":
        lacks = "human_scores of two people or more an item"
        ratings_by_id = runs.column("human_scores").map(rater_scores, na_action="ignore").dropna()
        people = pd.DataFrame(ratings_by_id.tolist(), ratings_by_id.index, dtype=float)
        fit = levelled(people)
        error = fit.error / people.count(axis=1)
        gold = fit.ratings.mean(axis=1).where(error.notna())
        cells = cells.assign(gold=gold, error=error)
        if fit.teams > 1:
            runs.limits.append(
                f"{fit.teams} parts of the raters share no item: whether one part is stricter can't"
                " be told from the quality of what it rated"
            )
    used = cells.dropna(subset=["score", "gold", "x"])
    if used.empty:
        reason = "only at equal gold is what people see in an answer told from a bias"
        raise MissingInputError(f"needs {lacks}: {reason}")
    return cells, used


def gold_columns(runs: ProbeRuns, used: pd.DataFrame) -> np.ndarray:
    """Columns that hold gold equal; of people's mean the last one is measured with error."""
    gold = used["gold"].to_numpy()
    if runs.gold == "rated":
        return np.column_stack([np.ones(len(gold)), gold - gold.mean()])
    return equal(gold)
