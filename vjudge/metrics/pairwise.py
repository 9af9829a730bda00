"""Verdicts on pairs: win rates, accuracy, Bradley-Terry, judges compared.

Of both orders, `probes.position`.

A verdict is "a", "b" or "tie", or one of "A>>B", "A>B", "A=B", "B>A", "B>>A" (Arena-Hard,
WildVision-Bench). "abstain", what is missing and what has another spelling is counted apart, never
as a tie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import special, stats
from scipy.sparse.csgraph import connected_components

from vjudge.metrics.array_types import Column, Floats, Groups, Integers
from vjudge.metrics.caveats import add_caveats, unequal_group_caveats, warn, warn_of_rows
from vjudge.metrics.cells import indicator_matrix
from vjudge.metrics.columns import as_floats, check_columns, check_options, is_blank, judges_by_name
from vjudge.metrics.groups import group_codes, groups_from_ids
from vjudge.metrics.intervals import INTERVAL, NO_WIDTH, degrees_of_freedom, t_quantile
from vjudge.metrics.multiple_testing import holm
from vjudge.metrics.shares import shares
from vjudge.metrics.verdicts import read_verdicts

FEEDBACK_CHOICES = ("left", "right", "both good", "both bad")
WINS_OF_A = {"a": 1.0, "b": 0.0, "tie": 0.5}
MANY_SIGNS = 20_000_000  # steps of an exact test
MOST_STEPS = 100  # of Newton's method
LONGEST_STEP = 3.0
SEPARATED = 20.0  # logits, beyond which a fit has no finite maximum
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
        verdicts; win_of_all, of all comparisons. Columns abstained and malformed say how many of
        the missing verdicts are.

    Source: Wilson, JASA 22 (1927), 209-212.

    >>> table = win_rate(["a", "a", "b", "tie"])["estimate"].round(3)
    >>> table[["win", "win_ties_half", "win_ties_out"]].tolist()
    [0.5, 0.625, 0.667]
    """
    groups, caveats = groups_from_ids(verdicts, groups)
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
    table = shares(rows, groups=groups, confidence=confidence, unit="comparisons")
    add_caveats(table, caveats)
    return table.assign(**account)


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
    groups, caveats = groups_from_ids(verdicts, groups)
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
    add_caveats(table, caveats)
    return table.assign(**account)


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
    groups, caveats = groups_from_ids(judgements, groups)
    check_columns(judgements=judgements, groups=groups)
    meanings = dict(zip(FEEDBACK_CHOICES, FEEDBACK_CHOICES, strict=True))
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
    table = shares(rows, groups=groups, confidence=confidence, unit="judgements")
    add_caveats(table, caveats)
    return table.assign(**account)


# --- Judges compared


def compare_choices(
    preferences: Column,
    judges: Mapping[str, Column] | pd.DataFrame,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Compare how often judges of the same pairs are right, two at a time.

    Args:
        preferences: the human choice of each pair, spelled as verdicts are.
        judges: name -> verdicts on the same pairs, or a frame with a column each; at least two.
        groups, confidence: see `win_rate`.

    Returns:
        A row for two judges and a measure of `pairwise_accuracy` (index a, b, measure: with_ties,
        without_ties): estimate_a, estimate_b, over the pairs on which both have a verdict;
        difference, low, high; only_a, only_b (pairs that this judge alone got right); p, two-sided,
        of McNemar's exact test, or in groups of its form for clusters; p_holm, corrected over the
        pairs of judges, for each measure alone; n, missing.

    In groups the test flips the sign of each group's difference, exactly; of single pairs that is
    McNemar's: one judge alone right in 8, the other in 2, p = 2 * 56 / 1024 = .11.

    Source: McNemar, Psychometrika 12 (1947), 153-157; clusters as in Yang, Sun and Hardin,
    Statistics in Medicine 29 (2010), exactly; Bonett and Price, Journal of Educational and
    Behavioral Statistics 37 (2012), for the interval.

    >>> human = ["a"] * 12
    >>> first, second = ["a"] * 10 + ["b"] * 2, ["b"] * 8 + ["a"] * 4
    >>> table = compare_choices(human, {"first": first, "second": second})
    >>> table.loc[("first", "second", "with_ties"), ["only_a", "only_b", "p"]].round(2).tolist()
    [8.0, 2.0, 0.11]
    """
    check_options(confidence=confidence)
    columns = judges_by_name(judges)
    groups, caveats = groups_from_ids(preferences, groups)
    check_columns(preferences=preferences, groups=groups, **columns)
    human, has_preference, _ = read_verdicts(preferences, people=True)
    read = [(str(name), *read_verdicts(judges[name])[:2]) for name in judges]
    rows = {}
    for (a, of_a, has_a), (b, of_b, has_b) in combinations(read, 2):
        both = has_preference & has_a & has_b
        for measure, used in (("with_ties", both), ("without_ties", both & (human != "tie"))):
            right = np.stack([of_a == human, of_b == human])[:, used].astype(float)
            units = group_codes(groups, used)
            rows[a, b, measure] = _two_accuracies(right, units, confidence)
            rows[a, b, measure] |= {"n": len(units), "missing": len(used) - len(units)}
            if groups is not None:
                caveats += unequal_group_caveats(np.bincount(units))
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(rows, names=["a", "b", "measure"])
    table["p_holm"] = table.groupby(level="measure")["p"].transform(holm)
    warn_of_rows(table.index[table["n"] == 0], "undefined (no pair with both verdicts)")
    if (table["low"].isna() & (table["n"] > 0)).any():
        caveats.append("no interval, since all pairs with both verdicts are one, or of one group")
    unit = "pairs" if groups is None else "groups"
    table.attrs["method"] = (
        f"{confidence:.0%} intervals and exact McNemar tests over {unit}; Holm over"
        f" {len(rows) // 2} pairs of judges"
    )
    add_caveats(table, caveats)
    return table[[*COMPARISON_COLUMNS, "p_holm", "n", "missing"]]


COMPARISON_COLUMNS = "estimate_a estimate_b difference low high only_a only_b p".split()


def _two_accuracies(right: Floats, units: Integers, confidence: float) -> dict[str, float]:
    """Two judges' shares of right verdicts, (2, n), with the difference and its test."""
    n = right.shape[1]
    if not n:
        return dict.fromkeys(COMPARISON_COLUMNS, math.nan)
    gap = right[0] - right[1]
    only_a = int((gap > 0).sum())
    only_b = int((gap < 0).sum())
    of_unit: Any = np.bincount(units, gap)
    sizes = np.bincount(units)
    # 1) Bonett and Price: one more pair that either judge alone gets right
    share_a = (only_a + 1) / (n + 2)
    share_b = (only_b + 1) / (n + 2)
    centre = share_a - share_b
    variance = (share_a + share_b - centre**2) / (n + 2)
    # 2) in groups at least as much as the groups' differences vary
    freedom = math.inf
    if 1 < len(sizes) < n:
        surplus = (of_unit - gap.mean() * sizes) / (n - sizes)
        variance = max(variance, float(surplus @ surplus) * (len(sizes) - 1) / len(sizes))
        freedom = degrees_of_freedom(sizes)
    half = math.nan
    if len(sizes) > 1:
        half = t_quantile(confidence, freedom) * math.sqrt(variance)
    low = max(centre - half, -1.0)
    high = min(centre + half, 1.0)
    row = [*right.mean(axis=1), gap.mean(), low, high, only_a, only_b, sign_flip_p(of_unit)]
    return dict(zip(COMPARISON_COLUMNS, row, strict=True))


def sign_flip_p(differences: Floats) -> float:
    """The two-sided p of whole differences whose signs are as likely either way.

    Exact: how many of the 2^n signs give a sum as far from 0; by the normal distribution where that
    would take long. Of ones it is the sign test.

    Source: Fisher, The Design of Experiments (1935), section 21.

    >>> sign_flip_p(np.array([1, 1, 1, -1])), sign_flip_p(np.array([3, 1, -1]))
    (0.625, 0.75)
    """
    sizes = np.abs(differences[differences != 0]).astype(np.int64)
    if not len(sizes):
        return 1.0
    total = int(sizes.sum())
    observed = abs(float(differences.sum()))
    if total * len(sizes) > MANY_SIGNS:
        return float(2 * stats.norm.sf(observed / np.linalg.norm(sizes)))
    chance = np.zeros(total + 1)  # of each sum of the positive differences
    chance[0] = 1.0
    for size in sizes:
        chance[size:] += chance[:-size].copy()
        chance /= 2
    sums = np.abs(2 * np.arange(total + 1) - total)
    return min(float(chance[sums >= observed - 1e-9].sum()), 1.0)


# --- Logistic regression


@dataclass(frozen=True)
class Logistic:
    """A logistic regression of shares on a design, with what each unit adds to it."""

    coefficients: Floats  # (p,)
    influence: Floats  # (units, p), by a jackknife of one step
    covariance: Floats  # (p, p), of independent comparisons
    freedom: float
    unit_size: float  # mean comparisons of a unit
    penalised: bool

    @classmethod
    def of(cls, design: Floats, points: Floats, units: Integers, *, penalise: bool) -> Logistic:
        """Fit by Newton's method; `penalise` adds Firth's penalty, which has a finite maximum.

        Args:
            design: (n, p). points: (n,), shares of a win, 0 to 1. units: (n,), 0 to G - 1.

        Source: Firth, Biometrika 80 (1993), 27-38; Liang and Zeger, Biometrika 73 (1986), for the
        variance over units.
        """
        beta = np.zeros(design.shape[1])
        for _ in range(MOST_STEPS):
            mean = special.expit(design @ beta)
            weight = mean * (1 - mean)
            covariance = np.linalg.pinv(design.T * weight @ design, hermitian=True)
            leverage = np.einsum("np,pq,nq->n", design, covariance, design) * weight  # (n,)
            surplus = points - mean
            if penalise:
                surplus = surplus + leverage * (0.5 - mean)
            step = covariance @ (design.T @ surplus)
            size = np.abs(step).max(initial=0.0)
            beta = beta + step * min(1.0, LONGEST_STEP / max(size, 1e-300))
            if size < 1e-12:
                break
        of_case = (points - mean)[:, None] * design @ covariance  # (n, p)
        sizes = np.bincount(units)
        share: Any = np.bincount(units, leverage)  # of the information, which sums to p
        share_of_rank = share / np.minimum(sizes, design.shape[1])
        influence = indicator_matrix(units) @ of_case / np.maximum(1 - share_of_rank, 1e-6)[:, None]
        influence = influence * math.sqrt(max(len(sizes) - 1, 1) / len(sizes))
        freedom = degrees_of_freedom(share)
        return cls(beta, influence, covariance, freedom, len(points) / len(sizes), penalise)

    def errors(self, contrast: Floats) -> Floats:
        """Standard errors of combinations of the coefficients, (k, p) to (k,).

        With the penalty, or where nothing varies, not below those of independent units.
        """
        varied = self.influence @ contrast.T  # (units, k)
        variance = (varied**2).sum(axis=0)
        if self.penalised or np.abs(varied).max(initial=0.0) < NO_WIDTH:
            model = np.einsum("kp,pq,kq->k", contrast, self.covariance, contrast)
            variance = np.maximum(variance, model * self.unit_size)
        return np.sqrt(variance)


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
        elo, elo_low, elo_high (1000 + 400 / ln 10 times it), n (comparisons used); missing,
        abstained and malformed verdicts as `win_rate`. Where some players never lose to, or never
        beat, the others, Firth's penalty makes strengths finite; players who never meet the largest
        connected part have NaN. Either is a caveat.

    Intervals hold where comparisons of a group are alike; with groups of very unequal size they
    have the degrees of freedom of the effective number of groups. figures/validity_numbers.csv.

    Source: Bradley and Terry, Biometrika 39 (1952); Ford, American Mathematical Monthly 64 (1957),
    for when a maximum exists; Firth, Biometrika 80 (1993), where none does;
    WildVision-AI/WildVision-Bench, show_results.py, for the Elo scale.

    >>> table = bradley_terry(["x", "x", "y"], ["y", "y", "x"], ["a", "b", "b"])
    >>> table["estimate"].round(2).to_dict()
    {'x': 0.35, 'y': -0.35}
    """
    # 1) the columns
    check_options(confidence=confidence)
    groups, caveats = groups_from_ids(verdicts, groups)
    check_columns(first=first, second=second, verdicts=verdicts, groups=groups)
    choice, used, account = read_verdicts(verdicts)
    missing = int((~used).sum())
    names = [*first, *second]
    every = np.ones(len(names), dtype=bool)
    i, j = np.split(group_codes(names, every, name="players"), 2)
    itself = int((used & (i == j)).sum())
    if itself:
        warn(f"{itself} comparisons of a player with itself are left out")
    used = used & (i != j)
    points = ((choice == "a") + (choice == "tie") / 2)[used].astype(float)
    units = group_codes(groups, used)
    # 2) strengths, and the scale of Elo
    players = pd.Index(dict.fromkeys(names), name="player")
    bounds, limits = _strengths(i[used], j[used], points, units, players, confidence)
    table = pd.DataFrame(bounds, players, INTERVAL)
    table[["elo", "elo_low", "elo_high"]] = 1000 + ELO_PER_LOGIT * table
    table["n"] = np.bincount([*i[used], *j[used]], minlength=len(players))
    table = table.assign(missing=missing, **account)
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
    """Strengths of p players, mean 0, with bounds, shape (p, 3), and their limits in words."""
    p = len(players)
    bounds = np.full((p, 3), np.nan)
    # 1) the largest part of the players who meet, be it through others
    wins = np.zeros((p, p))
    np.add.at(wins, (i, j), points)
    np.add.at(wins, (j, i), 1 - points)
    _, component = connected_components(wins + wins.T, directed=False)
    inside = component == np.bincount(component, minlength=1).argmax()
    q = int(inside.sum())
    if q < 2:
        warn("undefined (no two players met)")
        return bounds, []
    caveats = []
    if q < p:
        absent = ", ".join(map(str, players[~inside]))
        caveats.append(f"no strength of {absent}: they never met the other {q} players")
    # 2) a finite maximum exists where nobody is out of reach of anybody's wins
    n_parts, reachable = connected_components(wins[np.ix_(inside, inside)], connection="strong")
    if n_parts > 1:
        apart = players[inside][reachable != np.bincount(reachable).argmax()]
        caveats.append(
            f"Firth's penalty makes strengths finite: {', '.join(map(str, apart))} never beat, or"
            " never lost to, the others"
        )
    # 3) the first player's strength is 0 in the fit; then all are set to a mean of 0
    both_inside = inside[i]
    code = np.cumsum(inside) - 1
    unit_vectors = np.eye(q)
    design = unit_vectors[code[i[both_inside]]] - unit_vectors[code[j[both_inside]]]  # (n, q)
    contrast = (unit_vectors - 1 / q)[:, 1:]
    units = np.unique(units[both_inside], return_inverse=True)[1]
    fit = Logistic.of(design[:, 1:], points[both_inside], units, penalise=n_parts > 1)
    estimate = contrast @ fit.coefficients
    reach = np.full(q, np.nan)
    if units.max() < 1 or len(design) < q:
        warn("intervals are undefined: too few comparisons, or all belong to one group")
    else:
        reach = t_quantile(confidence, fit.freedom) * fit.errors(contrast)
    bounds[inside] = np.column_stack([estimate, estimate - reach, estimate + reach])
    return bounds, caveats


# --- Length


def length_controlled_win_rate(
    verdicts: Column,
    length_a: Column,
    length_b: Column,
    *,
    difficulty: Column | None = None,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate how often side a would win if its responses were as long as those of side b.

    A logistic regression of the verdicts on 1, tanh(difference in length / its standard deviation)
    and, if given, the difficulty of each instruction; then the mean of what it predicts where the
    difference is 0.

    Args:
        verdicts: see `win_rate`, a tie half a win; or numbers, the probability that a wins
            (AlpacaEval's `preference` less 1, where a is its output_2).
        length_a, length_b: of the responses, in one unit (AlpacaEval's are characters).
        difficulty: of each instruction (AlpacaEval's `instruction_difficulty`).
        groups, confidence: see `win_rate`.

    Returns:
        Rows win_rate (ties half) and length_controlled, with columns estimate, low, high, n and
        missing (comparisons without a verdict or a length).

    It is AlpacaEval's regression without its pull towards zero (an L1 penalty chosen by
    cross-validation) and towards the gamed baselines, which need its own data; where no maximum
    exists, Firth's penalty stands in, with a caveat.

    Source: Dubois, Galambosi, Liang and Hashimoto, Length-Controlled AlpacaEval (arXiv
    2404.04475).

    >>> verdicts = ["a", "a", "b", "b", "a", "b"] * 5
    >>> table = length_controlled_win_rate(verdicts, [9, 8, 2, 3, 4, 6] * 5, [5] * 30)
    >>> table["estimate"].round(2).to_dict()
    {'win_rate': 0.5, 'length_controlled': 0.48}
    """
    check_options(confidence=confidence)
    columns = {"length_a": length_a, "length_b": length_b}
    if difficulty is not None:
        columns["difficulty"] = difficulty
    groups, caveats = groups_from_ids(verdicts, groups)
    check_columns(verdicts=verdicts, groups=groups, **columns)
    points = _points(verdicts)
    x = np.stack([as_floats(column, name=name) for name, column in columns.items()])
    has_features = ~np.isnan(x).any(axis=0)
    used = has_features & ~np.isnan(points)
    # 1) the design, and the same at equal lengths
    gap = x[0] - x[1]
    spread = float(np.std(gap[has_features], ddof=1)) if has_features.sum() > 1 else 0.0
    if used.sum() < 10 or spread == 0:
        raise ValueError(
            f"{int(used.sum())} comparisons have a verdict and lengths, which differ by"
            f" {spread:.3g}: use ten or more, of different lengths"
        )
    design = np.column_stack([np.ones(len(gap)), *x[2:], np.tanh(gap / spread)])
    at_zero = design[has_features]
    at_zero[:, -1] = 0.0
    # 2) the fit, and the mean prediction with its error
    data = design[used], points[used], group_codes(groups, used)
    fit = Logistic.of(*data, penalise=False)
    if np.abs(design[used] @ fit.coefficients).max() > SEPARATED:
        fit = Logistic.of(*data, penalise=True)
        caveats.append("Firth's penalty makes the fit finite: length tells all verdicts")
    chance = special.expit(at_zero @ fit.coefficients)
    mean = float(chance.mean())
    slope = (chance * (1 - chance)) @ at_zero / len(chance)
    error = float(fit.errors(slope[None])[0]) / (mean * (1 - mean))  # of its logit
    reach = t_quantile(confidence, fit.freedom) * error
    low, high = special.expit(special.logit(mean) + np.array([-reach, reach]))
    # 3) beside the plain rate
    rows = [("win_rate", np.where(used, points, 0), used)]
    table = shares(rows, groups=groups, unit="comparisons", confidence=confidence)
    table.loc["length_controlled"] = [mean, low, high, used.sum(), (~used).sum()]
    add_caveats(table, caveats)
    return table.astype({"n": int, "missing": int})


def _points(verdicts: Column) -> Floats:
    """The share of a win of side a in each verdict, NaN where there is none."""
    cells = list(verdicts)
    if any(isinstance(cell, str) and not is_blank(cell) for cell in cells):
        choice, _, _ = read_verdicts(verdicts)
        return np.array([WINS_OF_A.get(word, np.nan) for word in choice])
    points = as_floats(verdicts, name="verdicts")
    outside = points[(points < 0) | (points > 1)]
    if outside.size:
        raise ValueError(
            f"verdicts has {outside.size} values outside of [0, 1], such as {outside[0]:g}: give"
            " the probability that a wins (AlpacaEval's preference less 1)"
        )
    return points
