"""Preference pairs: which candidate is preferred to which, with every question and pair that was left out counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from vjudge import metrics

Rows = Sequence[Mapping[str, Any]]
COLUMNS = (
    *("id", "question", "instruction", "images", "chosen", "rejected", "reward_chosen", "reward_rejected", "margin"),
    *("words_chosen", "words_rejected", "length_gap", "consistent", "group"),
)


def make_pairs(
    candidates: Rows,
    rewards: pd.DataFrame,
    *,
    choose: str = "extremes",
    min_margin: float = 0.0,
    max_length_ratio: float | None = None,
    max_inconsistent: float | None = None,
    consistent_only: bool = False,
) -> pd.DataFrame:
    """Choose the pairs that a policy learns from.

    Args:
        candidates: from `draw` or `gather`.
        rewards: from `reward`, on the same candidates.
        choose: "extremes" pairs the best with the worst response of a question, as published; of several that tie
            there, the one drawn first, since draws are alike in distribution. "all" takes every two responses.
        min_margin: the difference of rewards must be larger; at 0, ties make no pair.
        max_length_ratio: the most words of the longer response for one of the shorter; None for any.
        max_inconsistent: the largest share of a question's pairs whose verdict changes with the order; None for any.
        consistent_only: whether to leave out pairs on which the two orders of a direct comparison disagree.

    Returns:
        One row a pair: id ("question/i-j", the chosen one first), question, instruction, images, chosen, rejected,
        reward_chosen, reward_rejected, margin, words_chosen, words_rejected, length_gap (chosen less rejected, in
        words), consistent (None where not compared directly), group, and true_chosen, true_rejected where known.
        `attrs["left_out"]` counts what was left out by reason, `attrs["questions"]` and `attrs["without_pair"]` the
        questions. The reasons count questions with "extremes" and for what concerns a whole question, else pairs.

    Raises:
        ValueError: an unknown choice, or a filter on the order of rewards that were not made from pairs.
    """
    if choose not in ("extremes", "all"):
        raise ValueError(f'choose={choose!r}: use "extremes" or "all"')
    if (consistent_only or max_inconsistent is not None) and "flipped" not in rewards:
        raise ValueError('order consistency is known of rewards by="pairs" alone: leave the filter out')
    by_id = dict(list(rewards.groupby("id", sort=False)))
    left_out: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    without = 0
    for question in candidates:
        table = by_id.get(str(question["id"]))
        before = len(rows)
        if table is None:
            left_out["question: fewer than two distinct responses"] += 1
        else:
            reason = _unusable(table, max_inconsistent)
            if reason:
                left_out[f"question: {reason}"] += 1
            else:
                for pair in _chosen(question, table, choose):
                    why = _fault(pair, min_margin, max_length_ratio, consistent_only)
                    if why:
                        left_out[f"pair: {why}"] += 1
                    else:
                        rows.append(pair)
                unrewarded = int(table["reward"].isna().sum())
                left_out["response: without a reward"] += unrewarded
        without += len(rows) == before
    frame = pd.DataFrame(rows, columns=list(rows[0]) if rows else list(COLUMNS))
    frame.attrs = {
        "left_out": {reason: count for reason, count in left_out.items() if count},
        "questions": len(candidates),
        "without_pair": without,
    }
    return frame


def _unusable(table: pd.DataFrame, max_inconsistent: float | None) -> str | None:
    if table["reward"].notna().sum() < 2:
        return "fewer than two rewards"
    if max_inconsistent is not None and table["inconsistent"].mean() > max_inconsistent:
        return "verdicts change with the order too often"
    return None


def _chosen(question: Mapping[str, Any], table: pd.DataFrame, choose: str) -> list[dict[str, Any]]:
    known = table.dropna(subset="reward").to_dict("records")
    if choose == "extremes":
        picked = [(max(known, key=lambda row: row["reward"]), min(known, key=lambda row: row["reward"]))]
    else:
        two = [(a, b) for place, a in enumerate(known) for b in known[place + 1 :]]
        picked = [(a, b) if a["reward"] >= b["reward"] else (b, a) for a, b in two]
    return [_pair(question, better, worse) for better, worse in picked]


def _pair(question: Mapping[str, Any], better: Mapping[str, Any], worse: Mapping[str, Any]) -> dict[str, Any]:
    row = {
        "id": f"{question['id']}/{better['candidate']}-{worse['candidate']}",
        "question": str(question["id"]),
        "instruction": question["instruction"],
        "images": list(question.get("images") or ()),
        **{"chosen": better["response"], "rejected": worse["response"]},
        **{"reward_chosen": better["reward"], "reward_rejected": worse["reward"]},
        "margin": better["reward"] - worse["reward"],
        **{"words_chosen": better["words"], "words_rejected": worse["words"]},
        "length_gap": better["words"] - worse["words"],
        "consistent": worse["candidate"] not in better["flipped"] if "flipped" in better else None,
        "group": better["group"],
    }
    if "true_score" in better:
        row |= {"true_chosen": better["true_score"], "true_rejected": worse["true_score"]}
    return row


def _fault(pair: Mapping[str, Any], min_margin: float, ratio: float | None, consistent_only: bool) -> str | None:
    longer, shorter = sorted((pair["words_chosen"], pair["words_rejected"]), reverse=True)
    if pair["margin"] == 0:
        return "a tie"
    if not pair["margin"] > min_margin:
        return f"margin not above {min_margin:g}"
    if ratio is not None and longer > ratio * shorter:
        return f"one response more than {ratio:g} times as long"
    if consistent_only and not pair["consistent"]:
        return "the orders disagree"
    return None


def true_order(pairs: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """How often the chosen response is truly the better one.

    Args:
        pairs: from `make_pairs`, with true_chosen and true_rejected.
        options: of `metrics.pairwise_accuracy`: confidence; `groups` is the pairs' own.

    Returns:
        As `metrics.pairwise_accuracy`: in with_ties a pair of truly equal responses is an error, without_ties leaves
        those out. Intervals resample groups.

    Raises:
        ValueError: the pairs have no true scores.
    """
    if "true_chosen" not in pairs:
        raise ValueError("the pairs have no true scores: give the candidates `true_scores` before rewards are made")
    gap = pairs["true_chosen"] - pairs["true_rejected"]
    truth = ["a" if value > 0 else "b" if value < 0 else "tie" if value == 0 else None for value in gap]
    return metrics.pairwise_accuracy(["a"] * len(pairs), truth, groups=list(pairs["group"]), **options)
