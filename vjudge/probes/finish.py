"""Finish a probe: run it for each judge, and make the result of the judges' tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from vjudge.data.schema import Items
from vjudge.plots.battery import battery_effects
from vjudge.probes.decisions import ProbeRow
from vjudge.probes.readings import missing_caveats, reading
from vjudge.probes.runs import Judged, MissingInputError, ProbeRuns
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
Drawing = tuple[Callable[..., Figure], pd.DataFrame]  # a function that draws, and its data
Draw = Callable[[pd.DataFrame], Drawing | None]  # makes the drawing of a probe's table


def probed(
    name: str,
    rows_of: Callable[[ProbeRuns], Sequence[ProbeRow]],
    judge: Judged,
    items: Items | None = None,
    *,
    figure: Draw | None = None,
    **options: Any,
) -> Result:
    """Run a probe for one judge or several.

    Args:
        name: of the probe.
        rows_of: makes the rows of one judge from its runs; a MissingInputError says what it lacks.
        judge, items, options: see `ProbeRuns`.
        figure: makes the drawing; None draws all tested effects.

    Raises:
        NotComputed: every judge lacks something; otherwise a judge that lacks something gets a row
            with the verdict "not run".
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
    figure: Draw | None = None,
) -> Result:
    """Make the result of a probe from its judges' tables.

    Args:
        name, figure: as in `probed`.
        tables: one per judge, from `ProbeRuns.table`.
        caveats: of the judges' runs.
    """
    table = pd.concat(tables, ignore_index=True)
    table.attrs = {"method": tables[0].attrs["method"]}
    drawing = (figure or _effects)(table)
    plot, data = drawing or (None, None)
    has_several = table["judge"].nunique() > 1
    return Result(
        table,
        name=name,
        reading=reading(table),
        caption=CAPTIONS.get(name, EFFECTS),
        caveats=[*caveats, *missing_caveats(table)],
        plot=plot,
        data=data,
        view=table[VIEW_COLUMNS if has_several else VIEW_COLUMNS[1:]],
    )


def _effects(table: pd.DataFrame) -> Drawing | None:
    """Return the drawing of the tested effects, None if there are none."""
    if table.dropna(subset=["must", "effect", "margin"]).empty:
        return None
    return partial(battery_effects, table), table
