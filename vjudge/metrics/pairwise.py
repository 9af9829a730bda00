"""Verdicts on pairs in numbers: win rates, accuracy, length, Bradley-Terry. Of both orders see `probes.position`.

A verdict is "a", "b" or "tie", or one of "A>>B", "A>B", "A=B", "B>A", "B>>A" (Arena-Hard, WildVision-Bench). "abstain",
what is missing and what has another spelling is counted apart, never as a tie.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy import special, stats
from scipy.sparse.csgraph import connected_components

from vjudge.metrics import tables
from vjudge.metrics.resampling import Design, Floats, Integers, Weights, summing
from vjudge.metrics.tables import (
    Column,
    Groups,
    aligned,
    check_columns,
    group_codes,
    label_text,
    read_verdicts,
    shares,
    tabulate,
)
from vjudge.records import is_missing

FEEDBACK_CHOICES = ("left", "right", "both good", "both bad")
ELO_PER_LOGIT = 400 / math.log(10)
LEAST_OVERLAP = 0.1
NOT_ALPACA_EVAL = (
    "not AlpacaEval's length-controlled win rate: it has no term for the difficulty of each instruction, which needs "
    "the verdicts on many models, and no penalty on the coefficients"
)


def win_rate(verdicts: Column, *, groups: Groups = None, confidence: float = 0.95) -> pd.DataFrame:
    """How often side a wins, with each treatment of ties under its own name.

    Args:
        verdicts, groups: one for each comparison; groups such as its image or question, None for independent ones.
        confidence: coverage of the intervals, in (0, 1).

    Returns:
        Rows, shares in [0, 1], with columns estimate, low, high (Wilson's), n and missing: win, tie, loss, of all
        verdicts; win_ties_half, win + tie / 2; win_or_tie, "as good or better"; win_ties_out, of the decided verdicts;
        win_of_all, of all comparisons. `attrs` has missing, abstained, malformed (counts) and malformed_verdicts (texts
        with counts).

    Source: Wilson, JASA 22 (1927), 209-212.

    >>> win_rate(["a", "a", "b", "tie"])["estimate"].round(3)[["win", "win_ties_half", "win_ties_out"]].tolist()
    [0.5, 0.625, 0.667]
    """
    check_columns(verdicts=verdicts, groups=groups)
    choice, used, account = read_verdicts(verdicts)
    won, tied = choice == "a", choice == "tie"
    rows = [
        ("win", won, used),
        ("tie", tied, used),
        ("loss", used & ~won & ~tied, used),
        ("win_ties_half", won + tied / 2, used),
        ("win_ties_out", won, used & ~tied),
        ("win_or_tie", won | tied, used),
        ("win_of_all", won, np.ones(len(used), dtype=bool)),
    ]
    return shares(rows, groups=groups, confidence=confidence, unit="comparisons", account=account)


def pairwise_accuracy(
    verdicts: Column, preferences: Column, *, groups: Groups = None, confidence: float = 0.95
) -> pd.DataFrame:
    """How often a judge's verdict is the human preference, with and without ties; arguments and returns as `win_rate`.

    Rows are with_ties, the three-way choice is the same; without_ties, of the pairs on which the human decided, where a
    judge's tie is an error; both_decided, of those on which both did; all_pairs, as with_ties, but a pair without a
    verdict is an error.

    Source: the ways of counting ties as in MLLM-as-a-Judge (arXiv 2402.04788) and LLaVA-Critic (arXiv 2410.02712).

    >>> pairwise_accuracy(["a", "b", "tie"], ["a", "a", "tie"])["estimate"].round(2).to_dict()
    {'with_ties': 0.67, 'without_ties': 0.5, 'both_decided': 0.5, 'all_pairs': 0.67}
    """
    check_columns(verdicts=verdicts, preferences=preferences, groups=groups)
    judge, has_verdict, account = read_verdicts(verdicts)
    human, has_preference, _ = read_verdicts(preferences, people=True)
    both = has_verdict & has_preference
    right, decided = (judge == human) & both, both & (human != "tie")
    rows = [
        ("with_ties", right, both),
        ("without_ties", right, decided),
        ("both_decided", right, decided & (judge != "tie")),
        ("all_pairs", right, has_preference),
    ]
    return shares(rows, groups=groups, confidence=confidence, unit="pairs", account=account)


def feedback_preference(
    judgements: Column, *, groups: Groups = None, confidence: float = 0.95
) -> pd.DataFrame:
    """Which of two feedbacks people prefer: left, right, both good or both bad; arguments and returns as `win_rate`.

    Rows are left, right, both_good, both_bad; left_as_good_or_better (left or both good, above one half for equals),
    right_as_good_or_better; left_of_decided; left_ties_half.

    Source: Prometheus-Vision (arXiv 2401.06591), whose headline figure 57.78 % is (21 + 57) / 135, as good or better.

    >>> feedback_preference(["left", "right", "both good"])["estimate"].round(2).to_dict()["left_as_good_or_better"]
    0.67
    """
    check_columns(judgements=judgements, groups=groups)
    choice, used, account = read_verdicts(
        judgements, meanings={answer: answer for answer in FEEDBACK_CHOICES}
    )
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
    return shares(rows, groups=groups, confidence=confidence, unit="judgements", account=account)


def classification(
    predicted: Column, actual: Column, *, groups: Groups = None, confidence: float = 0.95
) -> pd.DataFrame:
    """Accuracy, macro-F1 and recall, precision and F1 of each class, for verdicts that are labels of any kind.

    Args:
        predicted, actual: the judge's and the true label of each of n items, strings or numbers (1 and 1.0 are one
            label); None, NaN are missing.
        groups, confidence: see `win_rate`.

    Returns:
        Rows (class, statistic), columns as `win_rate`: of "all" accuracy (items with both labels), accuracy_of_all (a
        missing verdict is an error) and macro_f1, the plain mean of the classes' F1; of each class recall and precision
        (NaN, with a warning, where no item, or no verdict, has it) and f1.

    Source: van Rijsbergen, Information Retrieval (1979), for F1; equal to scikit-learn's f1_score(average="macro").

    >>> classification(["a", "b", "tie", "b"], ["a", "a", "tie", "b"]).loc["all", "estimate"].round(3).to_dict()
    {'accuracy': 0.75, 'accuracy_of_all': 0.75, 'macro_f1': 0.778}
    """
    check_columns(predicted=predicted, actual=actual, groups=groups)
    texts = ([label_text(label) or "" for label in column] for column in (predicted, actual))
    verdict, true = (np.array(column, dtype=str if column else "<U1") for column in texts)
    both = (true != "") & (verdict != "")
    right = both & (verdict == true)
    classes = sorted({*verdict[both], *true[both]})
    of_class = np.array(classes, dtype=str)[:, None]
    in_truth, in_verdicts = both & (true == of_class), both & (verdict == of_class)
    hits, either = in_truth & in_verdicts, in_truth * 1 + in_verdicts
    rows: list[tuple[Any, Any, Any]] = [
        (("all", "accuracy"), right, both),
        (("all", "accuracy_of_all"), right, true != ""),
        (("all", "macro_f1"), 2 * hits, either),
    ]
    for k, label in enumerate(classes):
        rows += [
            ((label, "recall"), hits[k], in_truth[k]),
            ((label, "precision"), hits[k], in_verdicts[k]),
        ]
        rows.append(((label, "f1"), 2 * hits[k], either[k]))
    return shares(
        rows, groups=groups, confidence=confidence, unit="items", index=["class", "statistic"]
    )


def tie_calibrated_accuracy(
    judge: Column, human: Column, *, within: Column, n_resamples: int = 2_000, **options: Any
) -> pd.DataFrame:
    """Accuracy of the order of every two items of one group, where scores that are nearly equal count as a tie.

    Fine scores never tie, and people often do: the threshold of the judge's ties is the one that suits the human scores
    best, chosen anew in every resample.

    Args:
        judge, human: scores of n items, NaN where missing; human scores that are equal are a tie.
        within: the question or image whose responses are ordered; each counts the same, and is drawn as a whole.

    Returns:
        Rows calibrated (at the best threshold, the smallest of which is `attrs["epsilon"]`) and as_scored (equal scores
        alone are a tie); columns and options as `correlate`, where n counts groups with at least one pair.

    Source: Deutsch, Foster and Freitag, "Ties Matter" (arXiv 2305.14324), and mt-metrics-eval's `acc_23`.

    >>> tie_calibrated_accuracy([0, 2, 6, 8], [1, 1, 1, 4], within=list("qqqq"))["estimate"].round(3).tolist()
    [0.667, 0.5]
    """
    x, y, used = aligned(judge=judge, human=human, groups=within)
    code, x, y = group_codes(within, used, name="within"), x[used], y[used]
    members = np.split(
        np.argsort(code, kind="stable"), np.cumsum(np.bincount(code, minlength=1))[:-1]
    )
    first, second = np.concatenate(
        [items[np.stack(np.triu_indices(len(items), 1))] for items in members], axis=1
    )
    labels, row = np.unique(code[first], return_inverse=True)
    gap, order = np.abs(x[first] - x[second]), np.sign(y[first] - y[second])
    as_scored = np.sign(x[first] - x[second]) == order
    # What a pair adds once the threshold reaches its gap, and becomes a tie; by rising gap.
    rising = np.argsort(gap, kind="stable")
    share = 1 / np.bincount(row, minlength=len(labels))[row]
    change = (((order == 0).astype(float) - as_scored) * share)[rising]
    last = np.flatnonzero(np.diff(gap[rising], append=np.inf) > 0)  # of the pairs of one gap

    def curve(weights: Weights) -> Floats:
        """Accuracy at threshold 0 and at every gap, shape (thresholds, replicates)."""
        start = (as_scored * share) @ weights[row]
        steps = np.cumsum(change[:, None] * weights[row[rising]], axis=0)[last]
        return np.vstack([start, start + steps]) / weights.sum(axis=0)

    def statistic(weights: Weights) -> Floats:
        accuracy = curve(np.asarray(weights, dtype=float))
        return np.stack([accuracy.max(axis=0), accuracy[0]])

    table = tabulate(
        statistic,
        ["calibrated", "as_scored"],
        Design(np.arange(len(labels))),
        missing=len({label for label in within if not is_missing(label)}) - len(labels),
        method="logit",
        width=2 * len(row),
        unit="groups of items",
        why="no group has two scored items",
        n_resamples=n_resamples,
        **options,
    )
    accuracy = curve(np.ones((len(labels), 1)))[:, 0] if len(row) else np.zeros(0)
    best = np.flatnonzero(accuracy > accuracy.max(initial=0) - 1e-12)
    table.attrs["epsilon"] = float([0.0, *gap[rising][last]][best[0]]) if len(best) else math.nan
    return table


def length_controlled(
    verdicts: Column,
    length_a: Column,
    length_b: Column,
    *,
    preferences: Column | None = None,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """How often the longer response wins, the win rate of side a were the lengths equal, and how far length moves it.

    A logistic regression of the verdict (1 for a, 0 for b, 1/2 for a tie) on a constant, the tanh of the difference in
    length over its standard deviation, and, where given, the known preference (1, -1, 0 for a tie). This is not
    AlpacaEval's (`attrs["note"]`); the two were seen to differ by .24 for a short model.

    It describes the verdicts and is no test of bias: a preference in three steps does not hold quality equal, and where
    longer answers are better a judge that looks at quality alone has a slope, too. In 500 simulated collections each of
    200 pairs whose quality correlates with length at .3 and .6, the interval of such a judge's missed 0 in .07 and
    .12 (and in far more of larger ones). `probes.length` on perturbed responses is the test.

    Args:
        verdicts, groups, confidence: see `win_rate`. length_a, length_b: see `lengths`; NaN where unknown.
        preferences: of each pair; those without one are left out. None: quality is held equal on average only.

    Returns:
        Rows, columns as `win_rate`: longer_wins, of decided verdicts on unequal lengths (no bias by itself, since
        longer answers may be better); win_rate (ties as half) and length_controlled_win_rate, of side a;
        length_log_odds, of a's winning for a full advantage in length. The last two have Student's intervals by a jackknife over groups, and are NaN, with a warning, where length or preference
        separates the verdicts; of equal lengths alone the controlled rate is the win rate. `attrs` has overlap
        (the share in which the mostly shorter side is not the shorter one; below .1 a warning
        says so), note, and the account of `win_rate`.

    Source: Singhal et al., "A Long Way to Go" (arXiv 2310.03716), for longer winners; Dubois et al., "Length-Controlled
    AlpacaEval" (arXiv 2404.04475), section 3; MacKinnon, Nielsen and Webb, Journal of Econometrics 232 (2023).

    >>> length_controlled(["a", "b", "a"] * 9, [5, 5, 1] * 9, [3, 3, 2] * 9)["estimate"].round(3).tolist()[:2]
    [0.333, 0.667]
    """
    check_columns(
        verdicts=verdicts,
        length_a=length_a,
        length_b=length_b,
        preferences=preferences,
        groups=groups,
    )
    choice, used, account = read_verdicts(verdicts)
    sides = {"length_a": length_a, "length_b": length_b}
    each = [tables.scores(lengths, name=name) for name, lengths in sides.items()]
    for name, lengths in zip(sides, each, strict=True):
        if (bad := np.flatnonzero(lengths < 0)).size:
            raise ValueError(f"{name} is negative: {tables.listed(bad, lengths)}")
    gap = each[0] - each[1]
    used, quality = used & ~np.isnan(gap), np.zeros(len(gap))
    decided = used & (choice != "tie") & (gap != 0)
    if preferences is not None:
        human, has_preference, _ = read_verdicts(preferences, people=True)
        quality, used = (human == "a").astype(float) - (human == "b"), used & has_preference
    worth = np.where(choice == "a", 1.0, np.where(choice == "b", 0.0, 0.5))
    rows = [
        ("longer_wins", choice == np.where(gap > 0, "a", "b"), decided),
        ("win_rate", worth, used),
    ]
    table = shares(rows, groups=groups, confidence=confidence, unit="comparisons", account=account)
    y, gap, quality = worth[used], gap[used], quality[used]
    overlap = float(min((gap >= 0).mean(), (gap <= 0).mean())) if len(y) else math.nan
    if overlap < LEAST_OVERLAP:
        tables.warn(
            f"lengths hardly overlap: {'a' if (gap > 0).mean() > 0.5 else 'b'} is longer in {1 - overlap:.0%} of the "
            "comparisons, so that the rate at equal lengths is an extrapolation"
        )
    spread = gap.std() if len(y) else 0.0
    rate = np.full(3, np.nan)
    slope = np.full(3, np.nan)
    if spread > 0:
        columns = [np.ones(len(y)), quality, np.tanh(gap / spread)]
        design = np.column_stack([column for column in columns if column.any()])
        rate, slope = _at_equal_length(y, design, group_codes(groups, used), confidence)
    *own, n, missing = table.loc["win_rate"]
    if spread == 0 or np.ptp(y) == 0:  # nothing to control for
        rate = np.array(own)
    if np.isnan([*rate, *slope]).any():
        tables.warn(
            "length_log_odds: undefined (lengths or verdicts do not vary, length or preference separates the verdicts, "
            "in all comparisons or without one group, or there are too few groups)"
        )
    table.loc["length_controlled_win_rate"] = [*rate, n, missing]
    table.loc["length_log_odds"] = [*slope, n, missing]
    unit = "comparisons" if groups is None else "groups"
    method = f"{table.attrs['method']}; at equal length: {confidence:.0%} intervals by a jackknife over {unit}"
    table.attrs |= {"method": method, "overlap": overlap, "note": NOT_ALPACA_EVAL}
    return table.astype({"n": int, "missing": int})


def _at_equal_length(
    y: Floats, design: Floats, code: Integers, confidence: float
) -> tuple[Floats, Floats]:
    """Win rate at equal length and the last column's coefficient, each with bounds."""
    nothing = np.full(3, np.nan), np.full(3, np.nan)
    n_groups, k = int(code.max(initial=-1)) + 1, design.shape[1]
    beta = _logistic(y, design)
    if n_groups < 2 or np.isnan(beta).any():
        return nothing
    chance = special.expit(design @ beta)
    slopes, curvatures = np.zeros((n_groups, k)), np.zeros((n_groups, k, k))
    np.add.at(slopes, code, design * (y - chance)[:, None])
    np.add.at(
        curvatures,
        code,
        design[:, :, None] * design[:, None, :] * (chance * (1 - chance))[:, None, None],
    )
    rest = curvatures.sum(axis=0) - curvatures
    if (np.linalg.cond(rest) > 1e10).any():  # length or preference does not vary without some group
        return nothing
    fits = np.vstack([beta, beta - np.linalg.solve(rest, slopes[..., None])[..., 0]])
    # Rows that differ in nothing but length, and how many of each every group has.
    kinds, kind = np.unique(design[:, :-1], axis=0, return_inverse=True)
    of_group = np.zeros((n_groups, len(kinds)))
    np.add.at(of_group, (code, np.reshape(kind, -1)), 1)
    counts = np.vstack([of_group.sum(axis=0), of_group.sum(axis=0) - of_group])
    rates = (special.expit(fits[:, :-1] @ kinds.T) * counts).sum(axis=1) / counts.sum(axis=1)
    values = np.stack([special.logit(rates), fits[:, -1]])
    rate, slope = values[:, 0]
    spread = values[:, 1:] - values[:, 1:].mean(axis=1, keepdims=True)
    error = np.sqrt((n_groups - 1) / n_groups * (spread**2).sum(axis=1))
    reach = stats.t.ppf((1 + confidence) / 2, n_groups - 1) * error
    bounds = np.array([0, -1, 1])
    return special.expit(rate + bounds * reach[0]), slope + bounds * reach[1]


def _logistic(y: Floats, design: Floats) -> Floats:
    """Coefficients of a logistic regression by Newton's method; NaN where the likelihood has no maximum."""
    beta = np.zeros(design.shape[1])
    for _ in range(50):
        chance = special.expit(design @ beta)
        information = design.T @ (design * (chance * (1 - chance))[:, None])
        if np.linalg.cond(information) > 1e10 or np.abs(beta).max() > 30:
            break
        step = np.linalg.solve(information, design.T @ (y - chance))
        beta = beta + step
        if np.abs(step).max() < 1e-10:
            return beta
    return np.full(len(beta), np.nan)


def bradley_terry(
    first: Column,
    second: Column,
    verdicts: Column,
    *,
    weights: Column | None = None,
    anchor: Any = None,
    groups: Groups = None,
    n_resamples: int = 2_000,
    **options: Any,
) -> pd.DataFrame:
    """Estimate players' strengths by maximum likelihood: player i beats j with odds exp(strength_i - strength_j).

    Args:
        first, second: the players of each comparison; verdict "a" means that the first won; a tie is half a win.
        weights: how often each comparison counts (Arena-Hard counts strong verdicts three times); None once.
        anchor: the player whose strength is 0 and whose Elo is 1000; None centres the mean strength at 0.
        verdicts, groups: see `win_rate`. n_resamples, options: confidence and seed, see `correlate`.

    Returns:
        One row a player, the strongest first: estimate, low, high (strength in logits), elo, elo_low, elo_high (1000 +
        400 / ln 10 times it), n (comparisons used). NaN, with a warning, where no finite maximum exists: some players
        never beat, or never meet, the rest; a resample without one is left out. `attrs` has the account as `win_rate`.

    Source: Bradley and Terry, Biometrika 39 (1952); Ford, American Mathematical Monthly 64 (1957), for when a maximum
    exists; WildVision-AI/WildVision-Bench, show_results.py, for the Elo scale.

    >>> bradley_terry(["x", "x", "y"], ["y", "y", "x"], ["a", "b", "b"], n_resamples=0)["estimate"].round(2).to_dict()
    {'x': 0.35, 'y': -0.35}
    """
    check_columns(first=first, second=second, verdicts=verdicts, weights=weights, groups=groups)
    choice, used, account = read_verdicts(verdicts)
    names = [*first, *second]
    i, j = np.split(group_codes(names, np.ones(len(names), dtype=bool), name="players"), 2)
    players = list(dict.fromkeys(names))
    if anchor is not None and anchor not in players:
        raise ValueError(
            f"the anchor {anchor!r} is none of the players: {', '.join(map(str, players[:20]))}"
        )
    if itself := int((used & (i == j)).sum()):
        tables.warn(f"{itself} comparisons of a player with itself are left out")
    used, p = used & (i != j), len(players)
    worth = (
        np.ones(len(choice)) if weights is None else tables.positive(weights, used, name="weights")
    )

    # Each kind of comparison is a cell: who met whom, what came of it, and how much it counts.
    points = np.where(choice == "tie", 0.5, np.where(choice == "a", 1.0, 0.0))
    (*both, half, times), cell = np.unique(
        np.stack([i, j, points, worth])[:, used], axis=1, return_inverse=True
    )
    a, b = np.asarray(both, dtype=np.int64)
    forth, back = (
        summing(pair, np.arange(len(a)), (p * p, len(a))) for pair in (a * p + b, b * p + a)
    )
    at = None if anchor is None else players.index(anchor)

    def statistic(w: Weights) -> Floats:
        won = forth @ (w * (times * half)[:, None]) + back @ (w * (times * (1 - half))[:, None])
        strength = _strengths(np.moveaxis(won.reshape(p, p, -1), -1, 0))
        return np.asarray(
            (strength - (strength.mean(axis=1) if at is None else strength[:, at])[:, None]).T
        )

    table = tabulate(
        statistic,
        players,
        tables.design_of(cell, groups, used),
        n=np.bincount(i[used], minlength=p) + np.bincount(j[used], minlength=p),
        width=p * p,
        unit="comparisons",
        index="player",
        why="some players never beat, or never meet, the others",
        no_width=anchor is None,
        n_resamples=n_resamples,
        **options,
    )
    table.attrs |= account
    columns = ["estimate", "low", "high", "elo", "elo_low", "elo_high"]
    table[columns[3:]] = 1000 + ELO_PER_LOGIT * table[columns[:3]].to_numpy()
    return table[[*columns, "n"]].sort_values("estimate", ascending=False, kind="stable")


def _strengths(won: Floats) -> Floats:
    """Maximum-likelihood strengths (R, p), mean 0, from wins (R, p, p), by Newton; NaN without a finite maximum."""
    p = won.shape[1]
    strength = np.full(won.shape[:2], np.nan)
    rows = np.flatnonzero(
        [connected_components(g, directed=True, connection="strong")[0] == 1 for g in won > 0]
    )
    if p < 2 or not len(rows):
        return strength
    won = won[rows]
    met, points = won + won.transpose(0, 2, 1), won.sum(axis=2)
    theta, index = np.zeros((len(rows), p)), np.arange(p)
    for _ in range(200):
        chance = special.expit(theta[:, :, None] - theta[:, None, :])
        spread = met * chance * (1 - chance)
        hessian = 1 / p - spread  # strengths matter up to a constant: 1 / p holds their sum
        hessian[:, index, index] += spread.sum(axis=2)
        step = np.linalg.solve(hessian, (points - (met * chance).sum(axis=2))[..., None])[..., 0]
        size = np.abs(step).max(axis=1, keepdims=True)
        theta += step * np.minimum(
            1, 2 / np.maximum(size, 1e-300)
        )  # two logits at a time: no step overshoots
        if size.max() < 1e-11:
            break
    theta[size[:, 0] > 1e-6] = np.nan
    strength[rows] = theta - theta.mean(axis=1, keepdims=True)
    return strength
