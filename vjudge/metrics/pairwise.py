"""Verdicts on pairs: win rates, accuracy, Bradley-Terry. Of both orders, `probes.position`.

A verdict is "a", "b" or "tie", or one of "A>>B", "A>B", "A=B", "B>A", "B>>A" (Arena-Hard,
WildVision-Bench). "abstain", what is missing and what has another spelling is counted apart, never
as a tie.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from scipy.sparse.csgraph import connected_components

from vjudge.metrics.resampling import Floats, Weights, by_code, distinct
from vjudge.metrics.tables import (
    Column,
    Groups,
    check_columns,
    design_of,
    group_codes,
    listed,
    read_verdicts,
    scores,
    shares,
    tabulate,
    warn,
)

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
        tie, loss, of all verdicts; win_ties_half, win + tie / 2; win_or_tie, "as good or better";
        win_ties_out, of the decided verdicts; win_of_all, of all comparisons. `attrs` counts
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
        ("win_or_tie", won | tied, used),
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
    weights: Column | None = None,
    groups: Groups = None,
    n_resamples: int = 2_000,
    **options: Any,
) -> pd.DataFrame:
    """Estimate players' strengths: player i beats j with odds exp(strength_i - strength_j).

    Args:
        first, second: the players of each comparison; verdict "a" means that the first won; a tie
            is half a win.
        verdicts, groups: see `win_rate`.
        weights: how often each comparison counts (Arena-Hard counts strong verdicts three times);
            None once.
        n_resamples, options: confidence and seed, see `correlate`.

    Returns:
        One row a player, the strongest first: estimate, low, high (strength in logits, of mean 0),
        elo, elo_low, elo_high (1000 + 400 / ln 10 times it), n (comparisons used). NaN, with a
        warning, where no finite maximum exists: some players never beat, or never meet, the rest; a
        resample without one is left out. `attrs` has the account as `win_rate`.

    The fit is this project's own since statsmodels fits one sample at a time, and the bootstrap
    needs thousands.

    Source: Bradley and Terry, Biometrika 39 (1952); Ford, American Mathematical Monthly 64 (1957),
    for when a maximum exists; WildVision-AI/WildVision-Bench, show_results.py, for the Elo scale.

    >>> table = bradley_terry(["x", "x", "y"], ["y", "y", "x"], ["a", "b", "b"], n_resamples=0)
    >>> table["estimate"].round(2).to_dict()
    {'x': 0.35, 'y': -0.35}
    """
    # 1) the columns
    check_columns(
        first=first,
        second=second,
        verdicts=verdicts,
        weights=weights,
        groups=groups,
    )
    choice, used, account = read_verdicts(verdicts)
    names = [*first, *second]
    every = np.ones(len(names), dtype=bool)
    i, j = np.split(group_codes(names, every, name="players"), 2)
    players = list(dict.fromkeys(names))
    p = len(players)
    itself = int((used & (i == j)).sum())
    if itself:
        warn(f"{itself} comparisons of a player with itself are left out")
    used = used & (i != j)
    worth = np.ones(len(choice))
    if weights is not None:
        worth = scores(weights, name="weights")
        bad = np.flatnonzero(used & ~(worth > 0))
        if bad.size:
            raise ValueError(f"weights must be positive: {listed(bad, worth)}")
    # 2) each kind of comparison: who met whom, what came of it, and how much it counts
    points = (choice == "a") + (choice == "tie") / 2
    cells, cell = distinct(np.column_stack([i, j, points, worth])[used])
    wins = _wins(cells, p)

    def statistic(w: Weights) -> Floats:
        won = (wins @ w).reshape(p, p, -1)
        return _strengths(np.moveaxis(won, -1, 0)).T

    # 3) strengths, and the scale of Elo
    table = tabulate(
        statistic,
        players,
        design_of(cell, groups, used),
        n=np.bincount(i[used], minlength=p) + np.bincount(j[used], minlength=p),
        unit="comparisons",
        index="player",
        why="some players never beat, or never meet, the others",
        n_resamples=n_resamples,
        **options,
    )
    table.attrs |= account
    table["elo"] = 1000 + ELO_PER_LOGIT * table["estimate"]
    table["elo_low"] = 1000 + ELO_PER_LOGIT * table["low"]
    table["elo_high"] = 1000 + ELO_PER_LOGIT * table["high"]
    columns = ["estimate", "low", "high", "elo", "elo_low", "elo_high", "n"]
    return table[columns].sort_values(
        "estimate",
        ascending=False,
        kind="stable",
    )


def _wins(cells: Floats, p: int) -> Any:
    """The matrix of the wins of each player over each, of kinds of comparisons."""
    first, second = cells[:, :2].astype(np.int64).T
    points, times = cells[:, 2:].T
    of_first = by_code(first * p + second, p * p) * (points * times)
    return of_first + by_code(second * p + first, p * p) * ((1 - points) * times)


def _strengths(won: Floats) -> Floats:
    """Maximum-likelihood strengths (R, p), mean 0, from wins (R, p, p), by Newton's method.

    NaN where there is no finite maximum: some players never beat, or never meet, the others.
    """
    p = won.shape[1]
    strength = np.full(won.shape[:2], np.nan)
    parts = [connected_components(g, directed=True, connection="strong")[0] for g in won > 0]
    rows = np.flatnonzero(np.array(parts) == 1)
    if p < 2 or not len(rows):
        return strength
    won = won[rows]
    met = won + won.transpose(0, 2, 1)
    points = won.sum(axis=2)
    theta = np.zeros((len(rows), p))
    index = np.arange(p)
    for _ in range(200):
        chance = special.expit(theta[:, :, None] - theta[:, None, :])
        spread = met * chance * (1 - chance)
        hessian = 1 / p - spread  # strengths matter up to a constant: 1 / p holds their sum
        hessian[:, index, index] += spread.sum(axis=2)
        slope = points - (met * chance).sum(axis=2)
        step = np.linalg.solve(hessian, slope[..., None])[..., 0]
        size = np.abs(step).max(axis=1, keepdims=True)
        theta += step * np.minimum(1, 2 / np.maximum(size, 1e-300))  # at most two logits at a time
        if size.max() < 1e-11:
            break
    theta[size[:, 0] > 1e-6] = np.nan
    strength[rows] = theta - theta.mean(axis=1, keepdims=True)
    return strength
