"""Verdicts on pairs in numbers: win rates with ties treated openly, accuracy against a human preference, agreement of
the two orders. How verdicts are read is in `choices`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vjudge.metrics._tables import Labels, design_of, group_codes, read_verdicts, same_index, scores, shares, tabulate

Floats = NDArray[np.float64]

FIVE_POINT_REWARD = {"A>>B": 100.0, "A>B": 50.0, "A=B": 0.0, "B>A": -50.0, "B>>A": -100.0}


def win_rate(
    verdicts: Labels,
    *,
    side: str = "a",
    labels: Mapping[Any, str] | None = None,
    groups: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """How often one side wins, with each treatment of ties under its own name.

    Args:
        verdicts: one for each comparison, see `read_verdicts`.
        side: "a" or "b": whose wins.
        labels: how verdicts are spelled, see `read_verdicts`.
        groups: the unit of resampling of each comparison, for example its image or question; None draws comparisons.
        confidence, n_resamples, seed: see `correlate`.

    Returns:
        Rows, all shares in [0, 1], with columns estimate, low, high, n and missing:
        - win, tie, loss: of all verdicts; n is their number;
        - win_ties_half: win + tie / 2;
        - win_ties_out: wins of the decided verdicts alone;
        - win_or_tie: win + tie, "as good or better";
        - win_of_all: wins of all comparisons, those without a verdict included. Reports that count a verdict that
          can't be read as a tie print this figure as the win rate.
        missing counts comparisons without a verdict (and, for win_ties_out, ties). `attrs` also has, apart: missing,
        abstained, malformed (a count) and malformed_verdicts (texts, at most 80 characters each, with counts).
        Without groups, shares that count something in n have Wilson intervals, win_ties_half a bootstrap.

    Raises:
        ValueError: side is neither a nor b, or a comparison has no group.

    Source: Wilson, JASA 22 (1927), 209-212.

    >>> from vjudge.metrics import win_rate
    >>> win_rate(["a", "a", "b", "tie"])["estimate"].round(3)[["win", "win_ties_half", "win_ties_out"]].tolist()
    [0.5, 0.625, 0.667]
    """
    if side not in ("a", "b"):
        raise ValueError(f'side must be "a" or "b", not {side!r}')
    same_index(verdicts=verdicts, groups=groups)
    read = read_verdicts(verdicts, labels=labels)
    won, tied = read.choice == side, read.choice == "tie"
    used, total = read.used, len(read.choice)
    n, decided = int(used.sum()), int((used & ~tied).sum())
    unread = total - n
    every = np.ones(total, dtype=bool)
    rows = [
        ("win", won, used),
        ("tie", tied, used),
        ("loss", used & ~won & ~tied, used),
        ("win_ties_half", won + tied / 2, used),
        ("win_ties_out", won, used & ~tied),
        ("win_or_tie", won | tied, used),
        ("win_of_all", won, every),
    ]
    table = shares(
        rows,
        groups=groups,
        missing=[unread] * 4 + [total - decided, unread, 0],
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
        unit="comparisons",
    )
    table.attrs |= {"side": side, **read.account}
    return table


def reward(
    verdicts: Labels,
    *,
    points: Mapping[Any, float] = FIVE_POINT_REWARD,
    side: str = "a",
    groups: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """The mean of points given for graded verdicts, such as much better, better, tie, worse, much worse.

    Args:
        verdicts: one for each comparison.
        points: what each spelling is worth to side a; the sign turns for side b. Other verdicts are malformed.
        side, groups, confidence, n_resamples, seed: see `win_rate`.

    Returns:
        One row, reward; columns and `attrs` as `win_rate`.

    Raises:
        ValueError: side is neither a nor b, or a comparison with a verdict has no group.

    Source: WildVision-AI/WildVision-Bench, show_results.py, for the default points.
    """
    if side not in ("a", "b"):
        raise ValueError(f'side must be "a" or "b", not {side!r}')
    same_index(verdicts=verdicts, groups=groups)
    read = read_verdicts(verdicts, labels=dict.fromkeys(points, "tie"))
    used = read.used
    worth = np.array([points[v] for v, use in zip(verdicts, used, strict=True) if use], dtype=float)
    level, cell = np.unique(worth * (1 if side == "a" else -1), return_inverse=True)
    table = tabulate(
        lambda w: (level @ w / w.sum(axis=0))[None],
        ["reward"],
        design_of(cell, groups, used),
        n=int(used.sum()),
        missing=int((~used).sum()),
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
        method="t",
        unit="comparisons",
        why="no verdict has points",
    )
    table.attrs |= {"side": side, **read.account}
    return table


def pairwise_accuracy(
    verdicts: Labels,
    preferences: Labels,
    *,
    labels: Mapping[Any, str] | None = None,
    preference_labels: Mapping[Any, str] | None = None,
    categories: Labels | None = None,
    groups: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """How often a judge's verdict is the human preference, with and without ties.

    Args:
        verdicts, preferences: the judge's and the human's choice on each pair, see `read_verdicts`.
        labels, preference_labels: how each is spelled.
        categories: of each pair; adds the macro average, in which every category counts the same.
        groups, confidence, n_resamples, seed: see `win_rate`.

    Returns:
        Rows, columns as `win_rate`:
        - with_ties: the three-way choice is the same;
        - without_ties: of the pairs on which the human decided; a judge's tie there is an error;
        - both_decided: of the pairs on which both decided;
        - all_pairs: as with_ties, but a pair without a verdict is an error: failures count against the judge;
        and with categories, macro_with_ties, macro_without_ties and so on: the plain mean over categories, whose
        bootstrap interval is always given (a category that is empty in a resample leaves that resample out).
        n counts pairs; missing, pairs that have no human preference or no verdict, or are left out as ties. `attrs` has
        the judge's account of malformed verdicts as `win_rate`, and that of the humans under "preferences".

    Raises:
        ValueError: lengths differ, or a used pair has no group or category.
    """
    same_index(verdicts=verdicts, preferences=preferences, categories=categories, groups=groups)
    read, wanted = read_verdicts(verdicts, labels=labels), read_verdicts(preferences, labels=preference_labels)
    if len(read.choice) != len(wanted.choice):
        raise ValueError(
            f"there are {len(read.choice)} verdicts and {len(wanted.choice)} preferences: one for each pair"
        )
    right = (read.choice == wanted.choice) & read.used & wanted.used
    both, human = read.used & wanted.used, wanted.used
    decided, judged = human & (wanted.choice != "tie"), both & (read.choice != "tie")
    rows = [
        ("with_ties", right, both),
        ("without_ties", right, both & decided),
        ("both_decided", right, judged & decided),
        ("all_pairs", right, human),
    ]
    options: dict[str, Any] = dict(groups=groups, confidence=confidence, n_resamples=n_resamples, seed=seed)
    missing = [len(right) - int(counted.sum()) for _, _, counted in rows]
    table = shares(rows, missing=missing, unit="pairs", **options)
    if categories is not None:
        table = _with_macro(table, rows, categories, missing, options)
    table.attrs |= {**read.account, "preferences": wanted.account}
    return table


def _with_macro(
    table: pd.DataFrame, rows: list[Any], categories: Labels, missing: list[int], options: dict[str, Any]
) -> pd.DataFrame:
    """Add the rows in which every category counts the same."""
    used = np.any([counted for _, _, counted in rows], axis=0)
    codes = group_codes(categories, used, name="categories")
    truth = np.array([right[used] for _, right, _ in rows], dtype=float)
    counts = np.array([counted[used] for _, _, counted in rows], dtype=float)
    inside = codes == np.unique(codes)[:, None]

    def macro(w: NDArray[np.number]) -> Floats:
        per = np.stack([(inside * t * c) @ w / ((inside * c) @ w) for t, c in zip(truth, counts, strict=True)])
        return per.mean(axis=1)

    added = tabulate(
        macro,
        [f"macro_{name}" for name, _, _ in rows],
        design_of(np.arange(int(used.sum())), options["groups"], used),
        n=[int(c.sum()) for c in counts],
        missing=missing,
        confidence=options["confidence"],
        n_resamples=options["n_resamples"],
        seed=options["seed"],
        method="logit",
        unit="pairs",
        why="a category has no pair to count",
        stacklevel=4,
    )
    both = pd.concat([table, added])
    both.attrs = {**table.attrs, "macro_method": added.attrs["method"], "n_categories": len(inside)}
    return both


def order_consistency(
    verdicts_ab: Labels,
    verdicts_ba: Labels,
    *,
    labels: Mapping[Any, str] | None = None,
    groups: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Whether verdicts on the same pairs hold when the order of the two responses is turned.

    Args:
        verdicts_ab, verdicts_ba: verdicts in the order a, b and in the order b, a, both in terms of the pair itself:
            "a" is the same response in both (the columns verdict_ab and verdict_ba of `Judge.compare`).
        labels, groups, confidence, n_resamples, seed: see `win_rate`.

    Returns:
        Rows, columns as `win_rate`; n counts pairs with a verdict in both orders, missing the others:
        - consistent: the same verdict in both orders;
        - flipped: a in one order and b in the other;
        - tie_in_one: a tie in one order only;
        - first_chosen: of the choices of a response (ties left out), those of the one shown first; 0.5 without a bias
          for a position. n counts choices, two a pair at most, and the interval is always bootstrapped over pairs.
        `attrs["ab"]` and `attrs["ba"]` have the account of missing and malformed verdicts.

    Raises:
        ValueError: lengths differ, or a used pair has no group.
    """
    same_index(verdicts_ab=verdicts_ab, verdicts_ba=verdicts_ba, groups=groups)
    ab, ba = read_verdicts(verdicts_ab, labels=labels), read_verdicts(verdicts_ba, labels=labels)
    if len(ab.choice) != len(ba.choice):
        raise ValueError(f"there are {len(ab.choice)} verdicts in one order and {len(ba.choice)} in the other")
    used = ab.used & ba.used
    tie_ab, tie_ba = ab.choice == "tie", ba.choice == "tie"
    same = ab.choice == ba.choice
    rows = [
        ("consistent", same, used),
        ("flipped", ~same & ~tie_ab & ~tie_ba, used),
        ("tie_in_one", tie_ab != tie_ba, used),
    ]
    options: dict[str, Any] = dict(confidence=confidence, n_resamples=n_resamples, seed=seed)
    missing = int((~used).sum())
    table = shares(rows, groups=groups, missing=missing, unit="pairs", **options)
    first = ((ab.choice == "a").astype(int) + (ba.choice == "b").astype(int))[used]
    choices = ((~tie_ab).astype(int) + (~tie_ba).astype(int))[used]
    cells, cell = np.unique(np.stack([first, choices]), axis=1, return_inverse=True)
    added = tabulate(
        lambda w: (cells[0] @ w / (cells[1] @ w))[None],
        ["first_chosen"],
        design_of(np.reshape(cell, -1), groups, used),
        n=int(choices.sum()),
        missing=missing,
        method="logit",
        unit="pairs",
        why="no response was chosen",
        **options,
    )
    both = pd.concat([table, added])
    both.attrs = {**table.attrs, "first_chosen_method": added.attrs["method"], "ab": ab.account, "ba": ba.account}
    return both


def longer_wins(
    verdicts: Labels,
    length_a: Labels,
    length_b: Labels,
    *,
    labels: Mapping[Any, str] | None = None,
    groups: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """How often the longer of two responses wins, among decided verdicts on responses of different length.

    It is no measure of bias by itself, since longer answers may be better: the length probe separates the two.

    Args:
        verdicts, labels, groups, confidence, n_resamples, seed: see `win_rate`.
        length_a, length_b: lengths in any one unit; NaN where unknown.

    Returns:
        One row, longer_wins; n counts the comparisons used, missing all others: ties, equal or unknown lengths, and
        those without a verdict. Columns and `attrs` as `win_rate`.

    Raises:
        ValueError: lengths differ in number, or a used comparison has no group.
    """
    same_index(verdicts=verdicts, length_a=length_a, length_b=length_b, groups=groups)
    read = read_verdicts(verdicts, labels=labels)
    a, b = scores(length_a, name="length_a"), scores(length_b, name="length_b")
    if not len(a) == len(b) == len(read.choice):
        raise ValueError(f"{len(read.choice)} verdicts, {len(a)} and {len(b)} lengths: give one of each a comparison")
    with np.errstate(invalid="ignore"):
        used = read.used & (read.choice != "tie") & ((a > b) | (a < b))
        longer = np.where(a > b, read.choice == "a", read.choice == "b")
    table = shares(
        [("longer_wins", longer, used)],
        groups=groups,
        missing=int((~used).sum()),
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
        unit="comparisons",
    )
    table.attrs |= read.account
    return table
