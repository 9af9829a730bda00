"""The four-way comparison of feedback: left, right, both good, both bad."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics._tables import Labels, read_verdicts, same_index, shares

FEEDBACK_CHOICES = ("left", "right", "both good", "both bad")


def feedback_preference(
    judgements: Labels | Mapping[str, int],
    *,
    labels: Mapping[Any, str] | None = None,
    groups: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Which of two feedbacks people prefer, with the answers left, right, both good and both bad.

    Args:
        judgements: one answer for each judgement, or the four counts by name.
        labels: spelling -> one of the four answers; None reads these words.
        groups: the unit of resampling of each judgement (the item, or the person); not with counts.
        confidence, n_resamples, seed: see `win_rate`.

    Returns:
        Rows, all shares in [0, 1] of the n judgements unless it says otherwise; columns as `win_rate`:
        - left, right, both_good, both_bad: the four answers;
        - left_as_good_or_better: left + both good, Prometheus-Vision's headline figure. It counts every "both good" for
          the left side and none for the right, and says nothing of "both bad", so it is above one half for equals;
        - right_as_good_or_better: the same figure from the other side; the two add up to more than 1 by both_good;
        - left_of_decided: left of left and right alone, 0.5 for equals;
        - left_ties_half: left and half of both kinds of tie.
        `attrs` has sign_test_p (two-sided, that left and right are equally likely among the decided; judgements taken
        as independent), missing, and malformed as `win_rate`.

    Raises:
        ValueError: counts are negative or no whole numbers, an answer is not known, or groups come with counts.

    Source: Prometheus-Vision (arXiv 2401.06591), human comparison of feedback: 57.78 % is (21 + 57) / 135.
    """
    if isinstance(judgements, Mapping):
        if groups is not None:
            raise ValueError("groups belong to single judgements: give one answer for each, not counts")
        given = {str(answer).replace("_", " "): count for answer, count in judgements.items()}
        wrong = {k: v for k, v in given.items() if k not in FEEDBACK_CHOICES or not _is_count(v)}
        if wrong:
            raise ValueError(f"counts must be whole numbers for {', '.join(FEEDBACK_CHOICES)}, not {wrong}")
        judgements = [answer for answer, count in given.items() for _ in range(int(count))]
    same_index(judgements=judgements, groups=groups)
    known = labels or {answer: answer for answer in FEEDBACK_CHOICES}
    wrong_labels = sorted({str(meaning) for meaning in known.values()} - set(FEEDBACK_CHOICES))
    if wrong_labels:
        raise ValueError(f"labels may stand for {', '.join(FEEDBACK_CHOICES)}, not {', '.join(wrong_labels)}")
    read = read_verdicts(judgements, labels=dict.fromkeys(known, "tie"))
    used = read.used
    answers = np.array([known[j] if use else None for j, use in zip(judgements, used, strict=True)], dtype=object)
    left, right, good, bad = (answers == answer for answer in FEEDBACK_CHOICES)
    decided = left | right
    rows = [
        ("left", left, used),
        ("right", right, used),
        ("both_good", good, used),
        ("both_bad", bad, used),
        ("left_as_good_or_better", left | good, used),
        ("right_as_good_or_better", right | good, used),
        ("left_of_decided", left, decided),
        ("left_ties_half", left + (good | bad) / 2, used),
    ]
    table = shares(
        rows,
        groups=groups,
        missing=[len(answers) - int(counted.sum()) for _, _, counted in rows],
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
        unit="judgements",
    )
    p = stats.binomtest(int(left.sum()), int(decided.sum())).pvalue if decided.any() else math.nan
    table.attrs |= {"sign_test_p": float(p), **read.account}
    return table


def _is_count(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 0
