"""Shares of verdicts on pairs: win rates, accuracy by people's choices, preferred feedback.

A verdict is "a", "b" or "tie", or one of "A>>B", "A>B", "A=B", "B>A", "B>>A" (Arena-Hard,
WildVision-Bench). "abstain", a missing verdict and an unknown spelling are counted apart, and never
as a tie. `probes.position` takes verdicts on both orders of each pair.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Column, Groups
from vjudge.metrics.caveats import add_caveats
from vjudge.metrics.columns import check_columns
from vjudge.metrics.groups import groups_from_ids
from vjudge.metrics.shares import shares
from vjudge.metrics.verdicts import read_choices

FEEDBACK_CHOICES = ("left", "right", "both good", "both bad")


def win_rate(
    verdicts: Column,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Count how often side a wins, with one row per treatment of ties.

    Args:
        verdicts: one for each comparison.
        groups: the unit of sampling of each comparison, such as its image or question; None:
            comparisons are independent.
        confidence: coverage of the intervals, in (0, 1).

    Returns:
        One row per share:

        - `win`, `tie`, `loss`: among the comparisons with a verdict;
        - `win_ties_half`: wins plus half of the ties, among the same;
        - `win_ties_out`: wins among wins and losses;
        - `win_of_all`: wins among all comparisons, with or without a verdict.

        Columns: estimate (in [0, 1]), low, high (Wilson score interval), n and missing (comparisons
        that the share counts, and that it does not), abstained and malformed (verdicts of these
        kinds, which count as missing).

    Source: Wilson, JASA 22 (1927), 209-212.

    >>> table = win_rate(["a", "a", "b", "tie"])["estimate"].round(3)
    >>> table[["win", "win_ties_half", "win_ties_out"]].tolist()
    [0.5, 0.625, 0.667]
    """
    groups, caveats = groups_from_ids(verdicts, groups)
    check_columns(verdicts=verdicts, groups=groups)
    choice, used, missing_counts = read_choices(verdicts)
    won = choice == "a"
    tied = choice == "tie"
    # Each row: its name, what each comparison adds to the share, and which comparisons count
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
    return table.assign(**missing_counts)


def pairwise_accuracy(
    verdicts: Column,
    preferences: Column,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Count how often a judge's verdict equals the human preference, with and without ties.

    Args:
        verdicts, groups, confidence: as in `win_rate`.
        preferences: the human choice of each pair, spelled as verdicts are.

    Returns:
        One row per share of pairs on which the judge's choice is the human one, with columns as
        `win_rate`:

        - `with_ties`: among the pairs on which both made a choice ("a", "b" or "tie");
        - `without_ties`: among those that the human did not tie; a judge's tie is an error;
        - `both_decided`: among those that neither tied;
        - `all_pairs`: among all pairs with a human choice; a missing verdict is an error.

    Source: the ways of counting ties as in MLLM-as-a-Judge (arXiv 2402.04788) and LLaVA-Critic
    (arXiv 2410.02712).

    >>> table = pairwise_accuracy(["a", "b", "tie"], ["a", "a", "tie"])
    >>> table["estimate"].round(2).to_dict()
    {'with_ties': 0.67, 'without_ties': 0.5, 'both_decided': 0.5, 'all_pairs': 0.67}
    """
    groups, caveats = groups_from_ids(verdicts, groups)
    check_columns(verdicts=verdicts, preferences=preferences, groups=groups)
    judge, has_verdict, missing_counts = read_choices(verdicts)
    human, has_preference, _ = read_choices(preferences, people=True)
    both = has_verdict & has_preference
    right = (judge == human) & both
    human_decided = both & (human != "tie")
    # Each row: its name, which pairs the judge gets right, and which pairs count
    rows = [
        ("with_ties", right, both),
        ("without_ties", right, human_decided),
        ("both_decided", right, human_decided & (judge != "tie")),
        ("all_pairs", right, has_preference),
    ]
    table = shares(rows, groups=groups, confidence=confidence, unit="pairs")
    add_caveats(table, caveats)
    return table.assign(**missing_counts)


def feedback_preference(
    judgements: Column,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Count which of two feedbacks people prefer: left, right, both good or both bad.

    Args:
        judgements: "left", "right", "both good" or "both bad" for each pair of feedbacks.
        groups, confidence: as in `win_rate`.

    Returns:
        One row per share of the judgements, with columns as `win_rate`:

        - `left`, `right`, `both_good`, `both_bad`: the share of each answer;
        - `left_as_good_or_better`, `right_as_good_or_better`: that side or both good; above one
          half for feedbacks of equal quality;
        - `left_of_decided`: left among left and right;
        - `left_ties_half`: left plus half of both good and both bad.

    Source: Prometheus-Vision (arXiv 2401.06591), whose headline figure 57.78 % is
    `left_as_good_or_better`: (21 + 57) / 135.

    >>> table = feedback_preference(["left", "right", "both good"])["estimate"].round(2)
    >>> table.to_dict()["left_as_good_or_better"]
    0.67
    """
    groups, caveats = groups_from_ids(judgements, groups)
    check_columns(judgements=judgements, groups=groups)
    # Each answer is spelled as itself
    meanings = dict(zip(FEEDBACK_CHOICES, FEEDBACK_CHOICES, strict=True))
    choice, used, missing_counts = read_choices(judgements, meanings=meanings)
    left, right, good, bad = (choice == answer for answer in FEEDBACK_CHOICES)
    # Each row: its name, what each judgement adds to the share, and which judgements count
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
    return table.assign(**missing_counts)
