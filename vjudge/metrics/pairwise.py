"""Verdicts on pairs: win rates, accuracy, Bradley-Terry. Of both orders, `probes.position`.

A verdict is "a", "b" or "tie", or one of "A>>B", "A>B", "A=B", "B>A", "B>>A" (Arena-Hard,
WildVision-Bench). "abstain", what is missing and what has another spelling is counted apart, never
as a tie.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy.sparse.csgraph import connected_components

from vjudge.metrics.columns import (
    Column,
    Groups,
    check_columns,
    check_options,
    group_codes,
    read_verdicts,
    warn,
)
from vjudge.metrics.resampling import Floats, Integers
from vjudge.metrics.tables import INTERVAL, shares

FEEDBACK_CHOICES = ("left", "right", "both good", "both bad")
ELO_PER_LOGIT = 400 / math.log(10)


def win_rate(
    verdicts: Column,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Count how often side a wins, with each treatment of ties under its own name.

    Args:
        verdicts, groups: one for each comparison; groups such as its image or question, None for
            independent ones.
        confidence: coverage of the intervals, in (0, 1).

    Returns:
        Rows, shares in [0, 1], with columns estimate, low, high (Wilson's), n and missing: win,
        tie, loss, of all verdicts; win_ties_half, win + tie / 2; win_ties_out, of the decided
        verdicts; win_of_all, of all comparisons. `attrs` counts
        missing, abstained and malformed verdicts.

    Source: Wilson, JASA 22 (1927), 209-212.

    >>> table = win_rate(["a", "a", "b", "tie"])["estimate"].round(3)
    >>> table[["win", "win_ties_half", "win_ties_out"]].tolist()
    [0.5, 0.625, 0.667]
    """
    check_columns(verdicts=verdicts, groups=groups)
    choice, used, account = read_verdicts(verdicts)
    won = choice == "a"
    tied = choice == "tie"
    rows = [
        ("win", won, used),
        ("tie", tied, used),
        ("loss", choice == "b", used),
        ("win_ties_half", won + tied / 2, used),
        ("win_ties_out", won, used & ~tied),
        ("win_of_all", won, np.ones(len(used), dtype=bool)),
    ]
    table = shares(
        rows,
        groups=groups,
        confidence=confidence,
        unit="comparisons",
    )
    table.attrs |= account
    return table


def pairwise_accuracy(
    verdicts: Column,
    preferences: Column,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Count how often a judge's verdict is the human preference, with and without ties.

    Arguments and returns as `win_rate`. Rows: with_ties, the three-way choice is the same;
    without_ties, of the pairs on which the human decided, where a judge's tie is an error;
    both_decided, of those on which both did; all_pairs, as with_ties, but a pair without a verdict
    is an error.

    Source: the ways of counting ties as in MLLM-as-a-Judge (arXiv 2402.04788) and LLaVA-Critic
    (arXiv 2410.02712).

    >>> table = pairwise_accuracy(["a", "b", "tie"], ["a", "a", "tie"])
    >>> table["estimate"].round(2).to_dict()
    {'with_ties': 0.67, 'without_ties': 0.5, 'both_decided': 0.5, 'all_pairs': 0.67}
    """
    check_columns(verdicts=verdicts, preferences=preferences, groups=groups)
    judge, has_verdict, account = read_verdicts(verdicts)
    human, has_preference, _ = read_verdicts(preferences, people=True)
    both = has_verdict & has_preference
    right = (judge == human) & both
    decided = both & (human != "tie")
    rows = [
        ("with_ties", right, both),
        ("without_ties", right, decided),
        ("both_decided", right, decided & (judge != "tie")),
        ("all_pairs", right, has_preference),
    ]
    table = shares(rows, groups=groups, confidence=confidence, unit="pairs")
    table.attrs |= account
    return table


def feedback_preference(
    judgements: Column,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Count which of two feedbacks people prefer: left, right, both good or both bad.

    Arguments and returns as `win_rate`. Rows: left, right, both_good, both_bad;
    left_as_good_or_better (left or both good, above one half for equals),
    right_as_good_or_better; left_of_decided; left_ties_half.

    Source: Prometheus-Vision (arXiv 2401.06591), whose headline figure 57.78 % is (21 + 57) / 135,
    as good or better.

    >>> table = feedback_preference(["left", "right", "both good"])["estimate"].round(2)
    >>> table.to_dict()["left_as_good_or_better"]
    0.67
    """
    check_columns(judgements=judgements, groups=groups)
    meanings = {answer: answer for answer in FEEDBACK_CHOICES}
    choice, used, account = read_verdicts(judgements, meanings=meanings)
    left, right, good, bad = (choice == answer for answer in FEEDBACK_CHOICES)
    rows = [
        ("left", left, used),
        ("right", right, used),
        ("both_good", good, used),
        ("both_bad", bad, used),
        ("left_as_good_or_better", left | good, used),
        ("right_as_good_or_better", right | good, used),
        ("left_of_decided", left, left | right),
        ("left_ties_half", left + (good | bad) / 2, used),
    ]
    table = shares(
        rows,
        groups=groups,
        confidence=confidence,
        unit="judgements",
    )
    table.attrs |= account
    return table


# --- Strengths


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
        first, second: the players of each comparison; verdict "a" means that the first won; a tie
            is half a win.
        verdicts, groups: see `win_rate`. A comparison that counts three times, as Arena-Hard's
            strong verdicts do, is given three times, in one group.
        confidence: coverage of the intervals, in (0, 1).

    Returns:
        One row a player, the strongest first: estimate, low, high (strength in logits, of mean 0),
        elo, elo_low, elo_high (1000 + 400 / ln 10 times it), n (comparisons used). NaN, with a
        warning, where no finite maximum exists: some players never beat, or never meet, the rest.
        `attrs` has the account as `win_rate`, and method.

    The fit is statsmodels' logistic regression, with intervals that hold where comparisons of a
    group are alike; with groups of very unequal size they cover less (sizes by Zipf's law 87 %, one
    group of half the comparisons 69 %).

    Source: Bradley and Terry, Biometrika 39 (1952); Ford, American Mathematical Monthly 64 (1957),
    for when a maximum exists; Liang and Zeger, Biometrika 73 (1986), for the variance;
    WildVision-AI/WildVision-Bench, show_results.py, for the Elo scale.

    >>> table = bradley_terry(["x", "x", "y"], ["y", "y", "x"], ["a", "b", "b"])
    >>> table["estimate"].round(2).to_dict()
    {'x': 0.35, 'y': -0.35}
    """
    # 1) the columns
    check_options(confidence=confidence)
    check_columns(first=first, second=second, verdicts=verdicts, groups=groups)
    choice, used, account = read_verdicts(verdicts)
    names = [*first, *second]
    every = np.ones(len(names), dtype=bool)
    i, j = np.split(group_codes(names, every, name="players"), 2)
    itself = int((used & (i == j)).sum())
    if itself:
        warn(f"{itself} comparisons of a player with itself are left out")
    used = used & (i != j)
    points = (choice == "a") + (choice == "tie") / 2
    points = points[used].astype(float)
    units = group_codes(groups, used)
    # 2) strengths, and the scale of Elo
    players = pd.Index(dict.fromkeys(names), name="player")
    bounds = _strengths(i[used], j[used], points, units, len(players), confidence)
    table = pd.DataFrame(bounds, players, INTERVAL)
    elo = 1000 + ELO_PER_LOGIT * table
    table[["elo", "elo_low", "elo_high"]] = elo
    met = [*i[used], *j[used]]
    table["n"] = np.bincount(met, minlength=len(players))
    unit = "comparisons" if groups is None else "groups"
    table.attrs = account
    table.attrs["method"] = f"{confidence:.0%} intervals by Student's t, robust over {unit}"
    return table.sort_values("estimate", ascending=False, kind="stable")


def _strengths(
    i: Integers,
    j: Integers,
    points: Floats,
    units: Integers,
    p: int,
    confidence: float,
) -> Floats:
    """Maximum-likelihood strengths of p players, mean 0, with bounds, shape (p, 3)."""
    import statsmodels.api as sm  # slow to import

    bounds = np.full((p, 3), np.nan)
    # 1) a finite maximum exists where nobody is out of reach of anybody's wins
    wins = np.zeros((p, p))
    np.add.at(wins, (i, j), points)
    np.add.at(wins, (j, i), 1 - points)
    if p < 2 or connected_components(wins, connection="strong")[0] > 1:
        warn("undefined (some players never beat, or never meet, the others)")
        return bounds
    # 2) the first player's strength is 0 in the fit; then all are set to a mean of 0
    each = np.eye(p)
    design = each[i] - each[j]
    contrast = each - 1 / p
    model = sm.GLM(points, design[:, 1:], family=sm.families.Binomial())
    robust = {"cov_type": "cluster", "cov_kwds": {"groups": units}, "use_t": True}
    is_few = units.max() < 1 or len(points) < p
    if is_few:
        warn("intervals are undefined: too few comparisons, or all belong to one group")
        robust = {}
    with np.errstate(invalid="ignore"):  # as many comparisons as strengths
        fit = model.fit(tol=1e-12, tol_criterion="params", **robust)
    test = fit.t_test(contrast[:, 1:])
    bounds[:, 0] = test.effect
    if not is_few:
        bounds[:, 1:] = test.conf_int(alpha=1 - confidence)
    return bounds
