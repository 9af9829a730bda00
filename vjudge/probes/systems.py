"""The probe of self-preference: whether a judge likes its own responses beyond their quality."""

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
from vjudge.probes.decisions import SCORE_POINTS, Must, ProbeRow
from vjudge.probes.effects import UPPER_QUANTILE, Effect, slope
from vjudge.probes.finish import Drawing, probed
from vjudge.probes.lengths import effect_at_equal_gold, with_gold
from vjudge.probes.runs import GOLD, Judged, MissingInputError, ProbeRuns
from vjudge.results import Result, analysis

LIKING = "own responses at equal gold"  # the tested row's case, and the name of the own system
DETECTION_POWER = 0.8  # the probability of finding a liking of the size that the note names
MIN_SYSTEMS = 3  # so many other systems are needed to estimate their spread


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

    A system is an author of responses. The judge's liking of a system is the mean score of its
    responses at equal gold minus that of the other systems. A judge likes each system differently,
    for style or subject. So every other system is a placebo, and the liking of the judge's own
    system is tested against the spread of theirs, as that of one new system of the same kind. It
    must stay 0 where gold is exact or rated.

    With fewer than three other systems nothing is tested. With few of them only a strong liking is
    found; the column `note` names its size. Two more rows describe the plain differences of score
    and of gold, without a test.

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
    """Make the rows of one judge: two descriptions, then those of `_likings`.

    The descriptions are the differences of mean score and mean gold between the judge's own
    responses and all others.

    Args:
        runs: of the judge.
        own, author: as in `self_preference`.
    """
    if own is None:
        raise MissingInputError(f"needs own=: the judge's own name in the column {author!r}")
    names = [own] if isinstance(own, str) else list(own)
    items = runs.scores.copy()
    items["system"] = runs.column(author).reindex(items.index)
    # 1 for the judge's own responses, 0 for others, NaN where the author is unknown
    items["x"] = items["system"].isin(names).astype(float).where(items["system"].notna())
    if items["x"].nunique() < 2:
        lack = f"responses of {', '.join(names)} and of others in the column {author!r}"
        raise MissingInputError(f"needs {lack}")
    all_items, complete = with_gold(runs, items)
    rows = []
    for column in ("score", "gold"):  # the slope on a 0/1 column is a difference of means
        defined = items.dropna(subset=["x", column])
        effect = slope(defined[column], defined["x"], defined["group"], step=runs.ruler.step)
        does = f"own responses have a mean {column} {{size}} {{above}} others"
        missing = len(items) - len(defined)
        case = f"own responses: {column}"
        rows.append(runs.row(case, effect, SCORE_POINTS, does=does, missing=missing))
    return [*rows, *_likings(runs, complete, len(all_items) - len(complete))]


def _likings(runs: ProbeRuns, items: pd.DataFrame, missing: int) -> list[ProbeRow]:
    """Make a row per other system, the placebos, and last the test of the judge's own.

    Args:
        runs: of the judge.
        items: the complete items, with the columns system and x (1 for the judge's own responses).
        missing: the number of items that are not complete.
    """
    # all names of the judge's own are one system
    system = items["system"].astype(str).where(items["x"] == 0, LIKING)
    others = [name for name in system.unique() if name != LIKING]
    effect = _liking(runs, items, system, LIKING, others)
    must: Must | None = None
    note = f"{GOLD[runs.gold]}; {len(others)} other systems, and {MIN_SYSTEMS} or more are needed"
    rows = []
    if len(others) >= MIN_SYSTEMS:
        placebos = []
        does = "being of another system {raises} scores at equal gold by {size}"
        for name in others:
            placebo = _liking(runs, items, system, name, others)
            placebos.append(placebo)
            case = f"system {name}"
            rows.append(runs.row(case, placebo, SCORE_POINTS, does=does, note="a placebo"))
        effect = _against(effect, placebos)
        size = short(_detectable(effect, len(others) - 1))
        note = (
            f"{GOLD[runs.gold]}; against the spread of {len(others)} other systems, which shows a"
            f" liking of {size} points with a power of .8"
        )
        must = None if runs.gold == "observed" else "stay"
    does = "being the judge's own {raises} scores at equal gold by {size}"
    row = runs.row(LIKING, effect, SCORE_POINTS, must, does, missing=missing, note=note)
    return [*rows, row]


def _liking(
    runs: ProbeRuns, items: pd.DataFrame, system: pd.Series, name: str, others: list[str]
) -> Effect:
    """Estimate a system's mean score at equal gold minus the mean over the other systems.

    Args:
        runs: of the judge.
        items: n complete items.
        system: the system of each item, (n,).
        name: the system whose liking is estimated, the judge's own or another.
        others: all systems but the judge's own, which never counts among the others.

    The others are coded so that their effects sum to zero; then the coefficient of the indicator of
    `name` is the difference. For the judge's own system beside the others p, q and r, the last of
    them, r, is -1 in the columns of p and q:

        system   own  p   q
        own       1   0   0
        p         0   1   0
        q         0   0   1
        r         0  -1  -1
    """
    compared = [other for other in others if other != name]
    is_system = pd.get_dummies(system, dtype=float)
    contrasts = is_system[compared[:-1]].sub(is_system[compared[-1]], axis=0)
    # the judge's own responses get an indicator, so that they are not among a placebo's others
    judges_own = is_system[[LIKING]] if name != LIKING else is_system[[]]
    regressors = np.column_stack([is_system[name], contrasts, judges_own])
    return effect_at_equal_gold(runs, items, regressors)


def _against(liking: Effect, placebos: Sequence[Effect]) -> Effect:
    """Return the own system's effect with the interval and p of one more system like the others.

    Let l_s be the liking of the s-th of k others against the mean of all k. A placebo's estimate,
    against the mean of the k - 1 others, is l_s * k / (k - 1). A new system differs from the mean
    of k by a variance of (1 + 1 / k) var(l). Where the own estimate has a larger error than theirs,
    the variance between systems (var(l) minus their errors) and the own error are taken instead.

    Args:
        liking: of the judge's own system.
        placebos: the likings of the k other systems, each against the mean of the k - 1 others.
    """
    k = len(placebos)
    likings = np.array([placebo.effect for placebo in placebos]) * (k - 1) / k
    # l_s minus the mean of k - 1 others has k / (k - 1) times the error variance of l_s alone
    errors = np.array([_variance(placebo) for placebo in placebos]) * (k - 1) / k
    spread = likings.var(ddof=1)
    between = max(0.0, spread - errors.mean())
    variance = max((1 + 1 / k) * spread, (1 + 1 / k) * between + _variance(liking))
    deviation = math.sqrt(variance)
    if not deviation > 0:  # no spread at all, or an undefined one: the own interval stays
        return liking
    reach = deviation * special.stdtrit(k - 1, UPPER_QUANTILE)
    p = 2 * special.stdtr(k - 1, -abs(liking.effect) / deviation)
    return liking._replace(low=liking.effect - reach, high=liking.effect + reach, p=float(p))


def _detectable(effect: Effect, df: int) -> float:
    """Compute the effect that a t test at .05 finds in 8 of 10 cases.

    Args:
        effect: its interval gives the standard error.
        df: the degrees of freedom of that interval.
    """
    quantile = special.stdtrit(df, UPPER_QUANTILE)
    error = (effect.high - effect.low) / 2 / quantile
    return float(error * (quantile + special.stdtrit(df, DETECTION_POWER)))


def _variance(effect: Effect) -> float:
    """Compute the variance of an estimate from the reach of its interval, t * standard error."""
    if effect.groups < 2:
        return math.nan
    reach = (effect.high - effect.low) / 2
    return float((reach / special.stdtrit(effect.groups - 1, UPPER_QUANTILE)) ** 2)


def _figure(table: pd.DataFrame) -> Drawing | None:
    """Draw the liking of each system as a forest, the judge's own last."""
    is_liking = table["case"].str.startswith("system ") | (table["case"] == LIKING)
    rows = table[is_liking].dropna(subset="effect").rename(columns={"effect": "estimate"})
    if rows.empty:
        return None
    label = "liking at equal gold, in points"
    by = "judge" if rows["judge"].nunique() > 1 else None
    return partial(forest, rows, rows="case", by=by, label=label), rows
