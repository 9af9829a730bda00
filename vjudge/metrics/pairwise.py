"""Verdicts on pairs: win rates, accuracy, length, Bradley-Terry. Of both orders, `probes.position`.

A verdict is "a", "b" or "tie", or one of "A>>B", "A>B", "A=B", "B>A", "B>>A" (Arena-Hard,
WildVision-Bench). "abstain", what is missing and what has another spelling is counted apart, never
as a tie.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from scipy.sparse.csgraph import connected_components

from vjudge.metrics.resampling import Design, Floats, Integers, Weights, by_code, distinct, student
from vjudge.metrics.tables import (
    Column,
    Groups,
    aligned,
    check_columns,
    design_of,
    group_codes,
    label_text,
    listed,
    positive,
    read_verdicts,
    scores,
    shares,
    tabulate,
    warn,
)
from vjudge.records import is_missing

FEEDBACK_CHOICES = ("left", "right", "both good", "both bad")
ELO_PER_LOGIT = 400 / math.log(10)
LEAST_OVERLAP = 0.1
MOST_LOG_ODDS = 30  # of a coefficient; beyond it the likelihood has no maximum
NOT_ALPACA_EVAL = (
    "not AlpacaEval's length-controlled win rate: it has no term for the difficulty of each"
    " instruction, which needs the verdicts on many models, and no penalty on the coefficients"
)


def win_rate(verdicts: Column, *, groups: Groups = None, confidence: float = 0.95) -> pd.DataFrame:
    """Count how often side a wins, with each treatment of ties under its own name.

    Args:
        verdicts, groups: one for each comparison; groups such as its image or question, None for
            independent ones.
        confidence: coverage of the intervals, in (0, 1).

    Returns:
        Rows, shares in [0, 1], with columns estimate, low, high (Wilson's), n and missing: win,
        tie, loss, of all verdicts; win_ties_half, win + tie / 2; win_or_tie, "as good or better";
        win_ties_out, of the decided verdicts; win_of_all, of all comparisons. `attrs` has missing,
        abstained, malformed (counts) and malformed_verdicts (texts with counts).

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
    return shares(rows, groups=groups, confidence=confidence, unit="comparisons", account=account)


def pairwise_accuracy(
    verdicts: Column, preferences: Column, *, groups: Groups = None, confidence: float = 0.95
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
    return shares(rows, groups=groups, confidence=confidence, unit="pairs", account=account)


def feedback_preference(
    judgements: Column, *, groups: Groups = None, confidence: float = 0.95
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
    return shares(rows, groups=groups, confidence=confidence, unit="judgements", account=account)


def classification(
    predicted: Column, actual: Column, *, groups: Groups = None, confidence: float = 0.95
) -> pd.DataFrame:
    """Measure accuracy, macro-F1, and recall, precision and F1 of each class of any labels.

    Args:
        predicted, actual: the judge's and the true label of each of n items, strings or numbers (1
            and 1.0 are one label); None, NaN are missing.
        groups, confidence: see `win_rate`.

    Returns:
        Rows (class, statistic), columns as `win_rate`: of "all" accuracy (items with both labels),
        accuracy_of_all (a missing verdict is an error) and macro_f1, the plain mean of the classes'
        F1; of each class recall and precision (NaN, with a warning, where no item, or no verdict,
        has it) and f1.

    Source: van Rijsbergen, Information Retrieval (1979), for F1; equal to scikit-learn's.

    >>> table = classification(["a", "b", "tie", "b"], ["a", "a", "tie", "b"])
    >>> table.loc["all", "estimate"].round(3).to_dict()
    {'accuracy': 0.75, 'accuracy_of_all': 0.75, 'macro_f1': 0.778}
    """
    check_columns(predicted=predicted, actual=actual, groups=groups)
    verdict = np.array([label_text(label) for label in predicted], dtype=object)
    true = np.array([label_text(label) for label in actual], dtype=object)
    known = pd.notna(true)
    both = known & pd.notna(verdict)
    right = both & (verdict == true)
    classes = sorted({*verdict[both], *true[both]})
    of_class = np.array(classes, dtype=object)[:, None]
    in_truth = both & (true == of_class)
    in_verdicts = both & (verdict == of_class)
    hits = in_truth & in_verdicts
    either = in_truth * 1 + in_verdicts
    rows: list[tuple[Any, Any, Any]] = [
        (("all", "accuracy"), right, both),
        (("all", "accuracy_of_all"), right, known),
        (("all", "macro_f1"), 2 * hits, either),
    ]
    for k, label in enumerate(classes):
        rows.append(((label, "recall"), hits[k], in_truth[k]))
        rows.append(((label, "precision"), hits[k], in_verdicts[k]))
        rows.append(((label, "f1"), 2 * hits[k], either[k]))
    index = ["class", "statistic"]
    return shares(rows, groups=groups, confidence=confidence, unit="items", index=index)


def tie_calibrated_accuracy(
    judge: Column, human: Column, *, within: Column, n_resamples: int = 2_000, **options: Any
) -> pd.DataFrame:
    """Measure how often two items of a group are ordered right, where nearly equal scores tie.

    Fine scores never tie, and people often do: the threshold of the judge's ties is the one that
    suits the human scores best, chosen anew in every resample.

    Args:
        judge, human: scores of n items, NaN where missing; equal human scores are a tie.
        within: the question or image whose responses are ordered; each counts the same, and is
            drawn as a whole.
        n_resamples, options: confidence and seed, see `correlate`.

    Returns:
        Rows calibrated (at the best threshold, the smallest of which is `attrs["epsilon"]`) and
        as_scored (equal scores alone are a tie); columns as `correlate`, where n counts groups with
        at least one pair.

    Source: Deutsch, Foster and Freitag, "Ties Matter" (arXiv 2305.14324), and mt-metrics-eval's
    `acc_23`.

    >>> table = tie_calibrated_accuracy([0, 2, 6, 8], [1, 1, 1, 4], within=list("qqqq"))
    >>> table["estimate"].round(3).tolist()
    [0.667, 0.5]
    """
    x, y, used = aligned(judge=judge, human=human, groups=within)
    code = group_codes(within, used, name="within")
    items = pd.DataFrame({"group": code, "x": x[used], "y": y[used]}).reset_index()
    pairs = items.merge(items, on="group", suffixes=("", "_other"))
    pairs = pairs[pairs["index"] < pairs["index_other"]]
    row, labels = pd.factorize(pairs["group"])
    gap = (pairs["x"] - pairs["x_other"]).abs().to_numpy()
    order = np.sign(pairs["y"] - pairs["y_other"]).to_numpy()
    as_scored = (np.sign(pairs["x"] - pairs["x_other"]) == order).to_numpy()
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
        accuracy = curve(weights.astype(float))
        return np.stack([accuracy.max(axis=0), accuracy[0]])

    named = {label for label in within if not is_missing(label)}
    table = tabulate(
        statistic,
        ["calibrated", "as_scored"],
        Design(np.arange(len(labels))),
        missing=len(named) - len(labels),
        method="logit",
        width=2 * len(row),
        unit="groups of items",
        why="no group has two scored items",
        n_resamples=n_resamples,
        **options,
    )
    table.attrs["epsilon"] = math.nan
    if len(row):
        accuracy = curve(np.ones((len(labels), 1)))[:, 0]
        thresholds = [0.0, *gap[rising][last]]
        table.attrs["epsilon"] = float(thresholds[np.argmax(accuracy > accuracy.max() - 1e-12)])
    return table


# --- Length


def length_controlled(
    verdicts: Column,
    length_a: Column,
    length_b: Column,
    *,
    preferences: Column | None = None,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Describe how often the longer response wins, and side a's win rate were lengths equal.

    A logistic regression of the verdict (1 for a, 0 for b, 1/2 for a tie) on a constant, the known
    preference, where given (1, -1, 0 for a tie), and the tanh of the difference in length over its
    standard deviation. This is not AlpacaEval's (`attrs["note"]`); the two were seen to differ by
    .24 for a short model.

    It describes the verdicts and is no test of bias: a preference in three steps does not hold
    quality equal, and where longer answers are better a judge that looks at quality alone has a
    slope, too. In 500 simulated collections each of 200 pairs whose quality correlates with length
    at .3 and .6, the interval of such a judge's missed 0 in .07 and .12 (and in far more of larger
    ones). `probes.length` on perturbed responses is the test.

    Args:
        verdicts, groups, confidence: see `win_rate`.
        length_a, length_b: see `lengths`; NaN where unknown.
        preferences: of each pair; those without one are left out. None: quality is held equal on
            average only.

    Returns:
        Rows, columns as `win_rate`: longer_wins, of decided verdicts on unequal lengths (no bias by
        itself, since longer answers may be better); win_rate (ties as half) and
        length_controlled_win_rate, of side a; length_log_odds, of a's winning for a full advantage
        in length. The last two have Student's intervals over groups, and are NaN, with a warning,
        where length or preference separates the verdicts; of equal lengths alone the controlled
        rate is the win rate. `attrs` has overlap (the share in which the mostly shorter side is not
        the shorter one; below .1 a warning says so), note, and the account of `win_rate`.

    Source: Singhal et al., "A Long Way to Go" (arXiv 2310.03716), for longer winners; Dubois et
    al., "Length-Controlled AlpacaEval" (arXiv 2404.04475), section 3; Liang and Zeger, Biometrika
    73 (1986), for errors over groups.

    >>> table = length_controlled(["a", "b", "a"] * 9, [5, 5, 1] * 9, [3, 3, 2] * 9)
    >>> table["estimate"].round(3).tolist()[:2]
    [0.333, 0.667]
    """
    sides = {"length_a": length_a, "length_b": length_b}
    check_columns(verdicts=verdicts, **sides, preferences=preferences, groups=groups)
    choice, used, account = read_verdicts(verdicts)
    for name, lengths in sides.items():
        column = scores(lengths, name=name)
        bad = np.flatnonzero(column < 0)
        if bad.size:
            raise ValueError(f"{name} is negative: {listed(bad, column)}")
    gap = scores(length_a, name="length_a") - scores(length_b, name="length_b")
    used = used & ~np.isnan(gap)
    decided = used & (choice != "tie") & (gap != 0)
    quality = np.zeros(len(gap))
    if preferences is not None:
        human, has_preference, _ = read_verdicts(preferences, people=True)
        quality = (human == "a").astype(float) - (human == "b")
        used = used & has_preference
    worth = (choice == "a") + (choice == "tie") / 2
    longer = choice == np.where(gap > 0, "a", "b")
    rows = [("longer_wins", longer, decided), ("win_rate", worth, used)]
    table = shares(rows, groups=groups, confidence=confidence, unit="comparisons", account=account)
    *own, n, missing = table.loc["win_rate"]
    y = worth[used]
    gap = gap[used]
    codes = group_codes(groups, used)
    rate, slope = _at_equal_length(y, gap, quality[used], codes, confidence)
    if not gap.any() or np.ptp(y) == 0:  # nothing to control for
        rate = own
    if np.isnan([*rate, *slope]).any():
        warn(
            "length_log_odds: undefined (lengths or verdicts do not vary, length or preference"
            " separates the verdicts, or there are too few groups)"
        )
    table.loc["length_controlled_win_rate"] = [*rate, n, missing]
    table.loc["length_log_odds"] = [*slope, n, missing]
    unit = "comparisons" if groups is None else "groups"
    table.attrs["method"] += (
        f"; at equal length: {confidence:.0%} intervals (Student's) over {unit}"
    )
    table.attrs |= {"overlap": _overlap(gap), "note": NOT_ALPACA_EVAL}
    return table.astype({"n": int, "missing": int})


def _overlap(gap: Floats) -> float:
    """The share in which the mostly shorter side is not the shorter one; a small one is said."""
    if not len(gap):
        return math.nan
    overlap = float(min((gap >= 0).mean(), (gap <= 0).mean()))
    if overlap < LEAST_OVERLAP:
        side = "a" if (gap > 0).mean() > 0.5 else "b"
        warn(
            f"lengths hardly overlap: {side} is longer in {1 - overlap:.0%} of the comparisons, so"
            " that the rate at equal lengths is an extrapolation"
        )
    return overlap


def _at_equal_length(
    y: Floats, gap: Floats, quality: Floats, codes: Integers, confidence: float
) -> tuple[Floats, Floats]:
    """Win rate at equal length and the coefficient of length, each with bounds."""
    from statsmodels.api import GLM, families  # slow to import

    undefined = np.full(3, np.nan)
    groups = int(codes.max(initial=-1)) + 1
    if groups < 2 or np.ptp(gap) == 0 or np.ptp(y) == 0:
        return undefined, undefined
    # 1) the regression
    columns = [np.ones(len(y)), np.tanh(gap / gap.std())]
    if quality.any():
        columns.insert(1, quality)
    design = np.column_stack(columns)
    if np.linalg.matrix_rank(design) < len(columns):
        return undefined, undefined
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of separation, which its coefficients show
        fit = GLM(y, design, family=families.Binomial()).fit(tol=1e-12)
    if not np.abs(fit.params).max() < MOST_LOG_ODDS or fit.bse.max() > MOST_LOG_ODDS:
        return undefined, undefined
    # 2) the rate at a gap of 0, and what each comparison adds to its log-odds and to the slope
    level = design.copy()
    level[:, -1] = 0
    chance = special.expit(level @ fit.params)
    rate = chance.mean()
    gradient = (level * (chance * (1 - chance))[:, None]).mean(axis=0)
    of_fit = design * (y - fit.fittedvalues)[:, None] @ fit.normalized_cov_params
    of_rate = ((chance - rate) / len(y) + of_fit @ gradient) / (rate * (1 - rate))
    # 3) intervals from what each group adds
    reach = []
    for influence in (of_rate, of_fit[:, -1]):
        variance = (np.bincount(codes, influence) ** 2).sum() * groups / (groups - 1)
        reach.append(student(confidence, groups - 1) * math.sqrt(variance))
    around = np.array([0, -1, 1])
    bounds = special.expit(special.logit(rate) + around * reach[0])
    return bounds, fit.params[-1] + around * reach[1]


# --- Strengths


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
    """Estimate players' strengths: player i beats j with odds exp(strength_i - strength_j).

    Args:
        first, second: the players of each comparison; verdict "a" means that the first won; a tie
            is half a win.
        verdicts, groups: see `win_rate`.
        weights: how often each comparison counts (Arena-Hard counts strong verdicts three times);
            None once.
        anchor: the player whose strength is 0 and whose Elo is 1000; None centres the mean strength
            at 0.
        n_resamples, options: confidence and seed, see `correlate`.

    Returns:
        One row a player, the strongest first: estimate, low, high (strength in logits), elo,
        elo_low, elo_high (1000 + 400 / ln 10 times it), n (comparisons used). NaN, with a warning,
        where no finite maximum exists: some players never beat, or never meet, the rest; a resample
        without one is left out. `attrs` has the account as `win_rate`.

    The fit is this project's own since statsmodels fits one sample at a time, and the bootstrap
    needs thousands.

    Source: Bradley and Terry, Biometrika 39 (1952); Ford, American Mathematical Monthly 64 (1957),
    for when a maximum exists; WildVision-AI/WildVision-Bench, show_results.py, for the Elo scale.

    >>> table = bradley_terry(["x", "x", "y"], ["y", "y", "x"], ["a", "b", "b"], n_resamples=0)
    >>> table["estimate"].round(2).to_dict()
    {'x': 0.35, 'y': -0.35}
    """
    check_columns(first=first, second=second, verdicts=verdicts, weights=weights, groups=groups)
    choice, used, account = read_verdicts(verdicts)
    names = [*first, *second]
    every = np.ones(len(names), dtype=bool)
    i, j = np.split(group_codes(names, every, name="players"), 2)
    players = list(dict.fromkeys(names))
    p = len(players)
    if anchor is not None and anchor not in players:
        known = ", ".join(map(str, players[:20]))
        raise ValueError(f"the anchor {anchor!r} is none of the players: {known}")
    itself = int((used & (i == j)).sum())
    if itself:
        warn(f"{itself} comparisons of a player with itself are left out")
    used = used & (i != j)
    worth = np.ones(len(choice))
    if weights is not None:
        worth = positive(weights, used, name="weights")
    # Each kind of comparison is a cell: who met whom, what came of it, and how much it counts.
    points = (choice == "a") + (choice == "tie") / 2
    cells, cell = distinct(np.column_stack([i, j, points, worth])[used])
    wins = _wins(cells, p)

    def statistic(w: Weights) -> Floats:
        won = (wins @ w).reshape(p, p, -1)
        strength = _strengths(np.moveaxis(won, -1, 0))
        if anchor is not None:
            strength = strength - strength[:, [players.index(anchor)]]
        return np.asarray(strength.T)

    table = tabulate(
        statistic,
        players,
        design_of(cell, groups, used),
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
    for name, bound in {"elo": "estimate", "elo_low": "low", "elo_high": "high"}.items():
        table[name] = 1000 + ELO_PER_LOGIT * table[bound]
    columns = ["estimate", "low", "high", "elo", "elo_low", "elo_high", "n"]
    return table[columns].sort_values("estimate", ascending=False, kind="stable")


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
