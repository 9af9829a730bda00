"""Whether a judge likes its own responses: beside every other system's, which are placebos."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from vjudge.data.schema import Items
from vjudge.plots.forest import forest
from vjudge.plots.style import short
from vjudge.probes.effects import TAIL, Effect, Must, coefficient, slope
from vjudge.probes.finish import Drawing, gold_cells, gold_columns, probed
from vjudge.probes.runs import GOLD, SCORE_POINTS, Judged, MissingInputError, ProbeRow, ProbeRuns
from vjudge.results import Result, analysis

LIKING = "own responses at equal gold"
POWER = 0.8  # of the smallest liking that is named
FEWEST = 3  # other systems, of which a spread is estimated


@analysis
def self_preference(
    judge: Judged,
    items: Items | None = None,
    *,
    own: str | Sequence[str] | None = None,
    author: str = "model",
    **options: Any,
) -> Result:
    """Test whether the judge prefers its own responses to others of equal quality.

    Liking is the mean score at equal gold less that of the other systems. A judge likes each system
    differently, for style or subject, so every other system is a placebo, and its own is tested
    against their spread: as one new system of the same kind. It must stay 0 where gold is exact or
    rated. With fewer than three other systems nothing is tested, and few others show only a strong
    liking, whose size `note` names. The plain differences of score and gold are descriptions.

    Args:
        judge, items, options: see `ProbeRuns`.
        own: the judge's name, or those of its family, in the column `author`.
        author: the column that says whose response it is.

    Source: Spiliopoulou et al. (arXiv 2508.06709): the shift of a judge's scores on its own
    responses, given an independent measure of their quality; one case against a small sample:
    Crawford and Howell, The Clinical Neuropsychologist 12 (1998).

    >>> import pandas as pd
    >>> from vjudge.probes import self_preference
    >>> run = pd.DataFrame({"id": list("abcd"), "score": [2, 2, 5, 4], "gold": [1, 2, 4, 5]})
    >>> result = self_preference(run.assign(model=["me", "you", "me", "you"]), own="me")
    >>> result.table["finding"][0].partition(" (")[0]
    'own responses have a mean score .50 above others'
    """
    rows_of = partial(_rows, own=own, author=author)
    return probed("self_preference", rows_of, judge, items, figure=_figure, **options)


def _rows(runs: ProbeRuns, *, own: str | Sequence[str] | None, author: str) -> list[ProbeRow]:
    """Descriptions, each system's liking, and the test of the judge's own."""
    if own is None:
        raise MissingInputError(f"needs own=: the judge's own name in the column {author!r}")
    names = [own] if isinstance(own, str) else list(own)
    cells = runs.scores.copy()
    cells["system"] = runs.column(author).reindex(cells.index)
    cells["x"] = cells["system"].isin(names).astype(float).where(cells["system"].notna())
    if cells["x"].nunique() < 2:
        lack = f"responses of {', '.join(names)} and of others in the column {author!r}"
        raise MissingInputError(f"needs {lack}")
    everything, used = gold_cells(runs, cells)
    rows = []
    for column in ("score", "gold"):
        defined = cells.dropna(subset=["x", column])
        effect = slope(defined[column], defined["x"], defined["group"], step=runs.ruler.step)
        does = f"own responses have a mean {column} {{size}} {{above}} others"
        missing = len(cells) - len(defined)
        case = f"own responses: {column}"
        rows.append(runs.row(case, effect, SCORE_POINTS, does=does, missing=missing))
    return [*rows, *_likings(runs, used, len(everything) - len(used))]


def _likings(runs: ProbeRuns, used: pd.DataFrame, missing: int) -> list[ProbeRow]:
    """The liking of each other system, and last that of the judge's own against their spread."""
    system = used["system"].astype(str).where(used["x"] == 0, LIKING)
    systems = [name for name in system.unique() if name != LIKING]
    placebos = {}
    if len(systems) >= FEWEST:
        placebos = {name: _liking(runs, used, system, name, systems) for name in systems}
    effect = _liking(runs, used, system, LIKING, systems)
    must: Must | None = None
    note = f"{GOLD[runs.gold]}; {len(systems)} other systems, and {FEWEST} or more are needed"
    if placebos:
        effect = _against(effect, list(placebos.values()))
        size = short(_detectable(effect, len(systems) - 1))
        note = (
            f"{GOLD[runs.gold]}; against the spread of {len(systems)} other systems, which shows a"
            f" liking of {size} points with a power of .8"
        )
        must = None if runs.gold == "observed" else "stay"
    does = "being the judge's own {raises} scores at equal gold by {size}"
    rows = []
    for name, placebo in placebos.items():
        text = "being of another system {raises} scores at equal gold by {size}"
        rows.append(runs.row(f"system {name}", placebo, SCORE_POINTS, does=text, note="a placebo"))
    return [*rows, runs.row(LIKING, effect, SCORE_POINTS, must, does, missing=missing, note=note)]


def _liking(
    runs: ProbeRuns, used: pd.DataFrame, system: pd.Series, name: str, systems: list[str]
) -> Effect:
    """A system's mean score at equal gold less the mean over the other systems but the judge's own.

    With effects of the others that sum to zero, the first column's coefficient is just that.
    """
    compared = [label for label in systems if label != name]
    is_system = pd.get_dummies(system, dtype=float)
    contrasts = is_system[compared[:-1]].sub(is_system[compared[-1]], axis=0)
    judges_own = is_system[[LIKING]] if name != LIKING else is_system[[]]
    design = np.column_stack([is_system[name], contrasts, judges_own, gold_columns(runs, used)])
    error = used["error"].to_numpy() if runs.gold == "rated" else None
    step = runs.ruler.step
    return coefficient(used["score"], design, used["group"], error=error, step=step)


def _against(liking: Effect, placebos: Sequence[Effect]) -> Effect:
    """The own system's effect, with interval and p as of one more system like the others.

    Of k others with likings l_s, a placebo is l_s less the mean of the k - 1 others,
    k / (k - 1) times l_s less the mean of all. One more system differs from the mean of k by a
    variance of (1 + 1 / k) var(l); where the own's error is larger than theirs, by that much more.
    """
    k = len(placebos)
    likings = np.array([placebo.effect for placebo in placebos]) * (k - 1) / k
    spread = likings.var(ddof=1)
    errors = np.array([_variance(placebo) for placebo in placebos]) * (k - 1) / k
    between = max(0.0, spread - errors.mean())
    variance = max((1 + 1 / k) * spread, (1 + 1 / k) * between + _variance(liking))
    deviation = math.sqrt(variance)
    if not deviation > 0:
        return liking
    t = abs(liking.effect) / deviation
    reach = deviation * special.stdtrit(k - 1, TAIL)
    p = 2 * special.stdtr(k - 1, -t)
    return liking._replace(low=liking.effect - reach, high=liking.effect + reach, p=float(p))


def _detectable(effect: Effect, freedom: int) -> float:
    """The effect that a test at .05 with this error finds in 8 of 10 cases."""
    error = (effect.high - effect.low) / 2 / special.stdtrit(freedom, TAIL)
    return float(error * (special.stdtrit(freedom, TAIL) + special.stdtrit(freedom, POWER)))


def _variance(effect: Effect) -> float:
    """The variance that an effect's interval stands for."""
    if effect.groups < 2:
        return math.nan
    reach = (effect.high - effect.low) / 2
    return float((reach / special.stdtrit(effect.groups - 1, TAIL)) ** 2)


def _figure(table: pd.DataFrame) -> Drawing | None:
    """The liking of each system as a forest, the judge's own last."""
    rows = table[table["case"].str.startswith("system ") | (table["case"] == LIKING)]
    rows = rows.dropna(subset="effect").rename(columns={"effect": "estimate"})
    if rows.empty:
        return None
    label = "liking at equal gold, in points"
    by = "judge" if rows["judge"].nunique() > 1 else None
    return partial(forest, rows, rows="case", by=by, label=label), rows
