"""Estimate strengths of players (systems that wrote responses) from verdicts on pairs of them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy.sparse.csgraph import connected_components

from vjudge.metrics.array_types import Booleans, Column, Floats, Groups, Integers
from vjudge.metrics.caveats import add_caveats, unequal_group_caveats, warn
from vjudge.metrics.columns import check_columns, check_options
from vjudge.metrics.groups import group_codes, groups_from_ids
from vjudge.metrics.intervals import INTERVAL, t_quantile
from vjudge.metrics.logistic import Logistic
from vjudge.metrics.verdicts import read_choices

ELO_PER_LOGIT = 400 / math.log(10)  # a lead of 400 Elo points means odds of 10 to 1


def bradley_terry(
    first: Column,
    second: Column,
    verdicts: Column,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate players' strengths: player i beats j with odds exp(strength_i - strength_j).

    Args:
        first, second: the players of each comparison.
        verdicts: "a" means that the first player won; a tie is half a win; spelled as in
            `win_rate`. To count a comparison three times, as Arena-Hard counts strong verdicts,
            give it three times, in one group.
        groups: as in `win_rate`.
        confidence: coverage of the intervals, in (0, 1).

    Returns:
        One row per player, the strongest first, with columns

        - `estimate`, `low`, `high`: the strength in logits; the mean over players is 0;
        - `elo`, `elo_low`, `elo_high`: 1000 plus 400 / ln 10 times the strength;
        - `n`: how many of the player's comparisons are used;
        - `missing`, `abstained`, `malformed`: as in `win_rate`, the same numbers for all players.

        Where some players never lose to the others, or never beat them, Firth's penalty makes
        strengths finite. Players outside the largest connected set of players have NaN. A caveat
        reports either case.

    The intervals allow for dependence within groups. Their degrees of freedom are those of the
    effective number of groups, which is lower where groups are of very unequal size. Coverage:
    figures/validity_numbers.csv.

    Source: Bradley and Terry, Biometrika 39 (1952); Ford, American Mathematical Monthly 64 (1957),
    for when a maximum exists; Firth, Biometrika 80 (1993), where none does;
    WildVision-AI/WildVision-Bench, show_results.py, for the Elo scale.

    >>> table = bradley_terry(["x", "x", "y"], ["y", "y", "x"], ["a", "b", "b"])
    >>> table["estimate"].round(2).to_dict()
    {'x': 0.35, 'y': -0.35}
    """
    # 1) Code players and verdicts
    check_options(confidence=confidence)
    groups, caveats = groups_from_ids(verdicts, groups)
    check_columns(first=first, second=second, verdicts=verdicts, groups=groups)
    choice, used, missing_counts = read_choices(verdicts)
    missing = int((~used).sum())
    names = [*first, *second]
    codes = group_codes(names, np.ones(len(names), dtype=bool), name="players")
    i, j = np.split(codes, 2)  # the codes of the first and of the second players
    with_itself = int((used & (i == j)).sum())
    if with_itself:
        warn(f"{with_itself} comparisons of a player with itself are left out")
    used = used & (i != j)
    points = ((choice == "a") + (choice == "tie") / 2)[used].astype(float)  # of the first player
    units = group_codes(groups, used)
    # 2) Estimate strengths, and put them on the Elo scale
    players = pd.Index(dict.fromkeys(names), name="player")  # in the order of their codes
    bounds, limits = _strengths(i[used], j[used], points, units, players, confidence)
    table = pd.DataFrame(bounds, players, INTERVAL)
    table[["elo", "elo_low", "elo_high"]] = 1000 + ELO_PER_LOGIT * table
    # 3) Counts, method and caveats
    table["n"] = np.bincount([*i[used], *j[used]], minlength=len(players))
    table = table.assign(missing=missing, **missing_counts)
    unit = "comparisons" if groups is None else "groups"
    table.attrs["method"] = f"{confidence:.0%} intervals by Student's t, robust over {unit}"
    if groups is not None:
        limits += unequal_group_caveats(np.bincount(units))
    add_caveats(table, caveats + limits)
    return table.sort_values("estimate", ascending=False, kind="stable")


def _strengths(
    i: Integers,
    j: Integers,
    points: Floats,
    units: Integers,
    players: pd.Index,
    confidence: float,
) -> tuple[Floats, list[str]]:
    """Estimate strengths of p players from n comparisons.

    Args:
        i, j: codes of the first and the second player, 0 to p - 1; (n,).
        points: of the first player: 1, 0.5 or 0; (n,).
        units: the unit of sampling of each comparison, 0 to G - 1; (n,).
        players: their p names, for caveats.

    Returns:
        Estimate, low and high of each player, (p, 3), NaN where undefined; and caveats.
    """
    bounds = np.full((len(players), 3), np.nan)
    connected, is_unbounded, caveats = _comparable(i, j, points, players)
    q = int(connected.sum())
    if q < 2:
        warn("undefined (no two players met)")
        return bounds, []  # the warning says all
    # 1) Fit a logistic regression. The column of a player has 1 where it is first and -1 where it
    # is second. The first of the q players has strength 0 and no column: with players x, y and z,
    # a comparison of y (first) with z is the row [1, -1], and one of x with z the row [0, -1].
    used = connected[i]  # where i is connected, j is connected to it
    code = np.cumsum(connected) - 1  # codes among the q connected players
    unit_vectors = np.eye(q)
    design = unit_vectors[code[i[used]]] - unit_vectors[code[j[used]]]  # (comparisons, q)
    units = np.unique(units[used], return_inverse=True)[1]  # numbered anew from 0
    fit = Logistic.of(design[:, 1:], points[used], units, penalise=is_unbounded)
    # 2) Shift strengths to a mean of 0, by contrasts of the coefficients of players 2 to q
    contrasts = (unit_vectors - 1 / q)[:, 1:]  # (q, q - 1)
    estimate = contrasts @ fit.coefficients
    half_width = np.full(q, np.nan)
    if units.max() < 1 or len(design) < q:
        warn("intervals are undefined: too few comparisons, or all belong to one group")
    else:
        half_width = t_quantile(confidence, fit.freedom) * fit.errors(contrasts)
    bounds[connected] = np.column_stack([estimate, estimate - half_width, estimate + half_width])
    return bounds, caveats


def _comparable(
    i: Integers, j: Integers, points: Floats, players: pd.Index
) -> tuple[Booleans, bool, list[str]]:
    """Find the largest set of players who are connected by comparisons, if need be through others.

    Args:
        i, j, points: as in `_strengths`.

    Returns:
        - which players are in this set; (p,);
        - whether some of them never beat, or never lost to, the others, so that the likelihood has
          no finite maximum;
        - caveats.
    """
    wins = np.zeros((len(players), len(players)))  # [a, b]: how often a beat b
    np.add.at(wins, (i, j), points)
    np.add.at(wins, (j, i), 1 - points)
    _, component = connected_components(wins + wins.T, directed=False)
    connected = component == np.bincount(component, minlength=1).argmax()
    caveats = []
    if not connected.all():
        absent = ", ".join(map(str, players[~connected]))
        n_connected = np.count_nonzero(connected)
        caveats.append(f"no strength of {absent}: they never met the other {n_connected} players")
    # Ford's condition for a finite maximum: along wins, every player is reached from every other.
    # If x always beats y and z, who beat each other, then x is a strong component of its own.
    wins_in_set = wins[np.ix_(connected, connected)]
    n_strong, strong_component = connected_components(wins_in_set, connection="strong")
    if n_strong > 1:
        apart = players[connected][strong_component != np.bincount(strong_component).argmax()]
        caveats.append(
            f"Firth's penalty makes strengths finite: {', '.join(map(str, apart))} never beat, or"
            " never lost to, the others"
        )
    return connected, n_strong > 1, caveats
