"""Rewards: what a judge makes of candidates, one by one or over all ordered pairs.

Over ordered pairs, a_ij stands for the points of the response shown second, j, against the one shown first, i: 1 if j
is better, -1 if i is, 0 for a tie. The published reward is

    r_i = sum_k a_ki - sum_l a_il

the points of i where it was shown second, less what others got against it where it was shown first. A judge that adds
c to every a_ij, because it likes the second (or, with c below 0, the first) place, adds (K - 1) c - (K - 1) c = 0 to
every r_i: what depends on the order alone cancels. A judge whose verdict flips with the order says a tie by it.

Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning; the code that makes the a_ij was not published
(LLaVA-VL/LLaVA-NeXT#372, #384), so the sign is stated here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge import table
from vjudge.records import NAN, is_missing
from vjudge.table import ORDERS, POINTS

Rows = Sequence[Mapping[str, Any]]
KINDS = ("choice", "scores", "probability")
_OURS = ("responses", "times", "drawn", "true_scores")


def reward(
    judge: Any,
    candidates: Rows,
    *,
    by: str = "scores",
    points: str = "choice",
    out: str | Path | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Let a judge reward candidates.

    Args:
        judge: a `Judge`; for `by="pairs"` one that compares two responses.
        candidates: from `draw` or `gather`. Questions with fewer than two distinct responses are not put to the judge:
            they can't make a pair.
        by: "scores" grades each response (rubric or 0-100; the expected score where there is one), "pairs" compares
            every two of them in both orders.
        points: by pairs, what a_ij is; see `rewards_of_pairs`.
        out, options: of `Judge.grade` or `Judge.compare`: an interrupted call goes on in `out`.

    Returns:
        As `rewards_of_scores` or `rewards_of_pairs`.

    Raises:
        ValueError: an unknown `by` or `points`; no question has two distinct responses.
        CollectionError, RunError: as `Judge.grade`.
    """
    if by not in ("scores", "pairs"):
        raise ValueError(f'by={by!r}: use "scores" or "pairs"')
    _check_points(points)
    rows = [row for row in candidates if len(row["responses"]) > 1]
    if not rows:
        raise ValueError(f"none of {len(candidates)} questions has two distinct responses: raise the temperature")
    if by == "scores":
        judged = judge.grade(list(singles_of(rows)), out=out, **options)
        return rewards_of_scores(rows, judged)
    judged = judge.compare(list(pairs_of(rows)), orders="both", out=out, **options)
    return rewards_of_pairs(rows, judged, points=points)


def singles_of(candidates: Rows) -> Iterator[dict[str, Any]]:
    """Every candidate as a row to grade, named "id/i"; `gold` is its true score where `true_scores` has it."""
    for row, single in _along(candidates, table.singles_of):
        true = row.get("true_scores")
        place = int(single["id"].rpartition("/")[2])
        yield single | ({} if true is None else {"gold": true[place]})


def pairs_of(candidates: Rows) -> Iterator[dict[str, Any]]:
    """Every two candidates as a row to compare, named "id/i-j"; `gold_a` and `gold_b` where `true_scores` has them."""
    for row, pair in _along(candidates, table.pairs_of):
        true = row.get("true_scores")
        i, j = map(int, pair["id"].rpartition("/")[2].split("-"))
        yield pair | ({} if true is None else {"gold_a": true[i], "gold_b": true[j]})


def _along(candidates: Rows, split: Any) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    for row in candidates:
        for made in split([row]):
            kept = {name: value for name, value in made.items() if name not in _OURS}
            yield row, kept | {"group": str(row["id"] if is_missing(row.get("group")) else row["group"])}


def rewards_of_scores(candidates: Rows, graded: pd.DataFrame) -> pd.DataFrame:
    """Rewards from scores.

    Args:
        candidates: the rows that were graded.
        graded: from `Judge.grade` on `singles_of(candidates)`.

    Returns:
        One row a candidate: id, candidate (its place), response, times, reward (the expected score, else the score;
        NaN where there is none), missing (verdicts without a score), words, group, and true_score where known.
    """
    found = {row["id"]: row for row in graded.to_dict("records")}
    rows = []
    for row in candidates:
        for place, response in enumerate(row["responses"]):
            verdict = found[f"{row['id']}/{place}"]
            expected = verdict.get("expected_score", NAN)
            value = float(verdict["score"]) if is_missing(expected) else float(expected)
            rows.append(_row(row, place, response, value, missing=int(math.isnan(value))))
    return _frame(rows, "scores")


def rewards_of_pairs(candidates: Rows, compared: pd.DataFrame, *, points: str = "choice") -> pd.DataFrame:
    """Rewards from comparisons: r_i = sum_k a_ki - sum_l a_il over all ordered pairs.

    A response that was drawn several times counts as often among the others. A response with a verdict missing in
    either order against any other has no reward, since with one order alone the place would count again.

    Args:
        candidates: the rows that were compared.
        compared: from `Judge.compare` on `pairs_of(candidates)`; with one order only, r_i is the sum over that order
            and keeps the judge's bias for a place (for demonstrations of it).
        points: what a_ij is: "choice", 1, -1 or 0 for a tie; "scores", the second score less the first, from a judge
            that scores both; "probability", of the second less that of the first, where the judge's format has it.

    Returns:
        As `rewards_of_scores`, and: ties (verdicts that said so), verdicts, flipped (the candidates against which the
        two orders chose differently, a list), inconsistent (their share of the other candidates).

    Raises:
        ValueError: the comparisons have no such points.
    """
    _check_points(points)
    orders = [order for order in ORDERS if f"verdict_{order}" in compared]
    if points == "probability" and "probability_a" not in compared:
        raise ValueError('points="probability" needs a judge whose answers have a distribution: use "choice"')
    if points == "scores" and f"scores_{orders[0]}" not in compared:
        raise ValueError('points="scores" needs a judge that scores both responses: use "choice"')
    found = {row["id"]: row for row in compared.to_dict("records")}
    rows = []
    for row in candidates:
        n = len(row["responses"])
        times = list(row.get("times") or [1] * n)
        sums, missing, ties, verdicts = [0.0] * n, [0] * n, [0] * n, [0] * n
        flipped: list[list[int]] = [[] for _ in range(n)]
        for i in range(n):
            for j in range(i + 1, n):
                pair = found[f"{row['id']}/{i}-{j}"]
                got = [_points(pair, order, points) for order in orders]  # of i against j
                known = [value for value in got if value is not None]
                for here, there, sign in ((i, j, 1), (j, i, -1)):
                    missing[here] += len(got) - len(known)
                    verdicts[here] += len(known)
                    ties[here] += sum(value == 0 for value in known)
                    sums[here] += sign * times[there] * sum(known)
                if pair.get("consistent") is False:
                    flipped[i].append(j)
                    flipped[j].append(i)
        for place, response in enumerate(row["responses"]):
            value = NAN if missing[place] else sums[place]
            extra = {"ties": ties[place], "verdicts": verdicts[place], "flipped": flipped[place]}
            extra["inconsistent"] = len(flipped[place]) / (n - 1) if len(orders) > 1 else NAN
            rows.append(_row(row, place, response, value, missing=missing[place], **extra))
    return _frame(rows, "pairs")


def by_question(rewards: pd.DataFrame) -> pd.DataFrame:
    """What the rewards of each question leave to choose from: one row a question.

    Args:
        rewards: from `reward`.

    Returns:
        id, candidates, missing (candidates without a reward), best, worst, margin (best less worst), tied_best and
        tied_worst (candidates that share each), length_gap (words of the best less those of the worst, the first
        of equals), inconsistent (share of pairs whose verdict changed with the order; NaN by scores), group.
    """
    rows = []
    for id, part in rewards.groupby("id", sort=False):
        known = part.dropna(subset="reward")
        best, worst = known["reward"].max(), known["reward"].min()
        high, low = known[known["reward"] == best], known[known["reward"] == worst]
        rows.append(
            {
                **{"id": id, "candidates": len(part), "missing": len(part) - len(known)},
                **{"best": best, "worst": worst, "margin": best - worst},
                **{"tied_best": len(high), "tied_worst": len(low)},
                "length_gap": high["words"].iloc[0] - low["words"].iloc[0] if len(known) else NAN,
                "inconsistent": part["inconsistent"].mean() if "inconsistent" in part else NAN,
                "group": part["group"].iloc[0],
            }
        )
    return pd.DataFrame(rows)


def _check_points(points: str) -> None:
    if points not in KINDS:
        raise ValueError(f"points={points!r}: use one of {', '.join(map(repr, KINDS))}")


def _points(pair: Mapping[str, Any], order: str, points: str) -> float | None:
    """Points of the pair's a against its b in one order: -a_ab where a is shown first, a_ba where it is second."""
    if points == "choice":
        return POINTS.get(pair[f"verdict_{order}"])
    if points == "probability":  # the mean of both orders, so that each counts half of the sum
        chance = pair["probability_a"]
        return None if is_missing(chance) else 2 * float(chance) - 1
    scores = pair[f"scores_{order}"]
    if is_missing(scores) or len(scores) != 2:
        return None
    first, second = scores  # in the order shown
    return float(first - second) if order == "ab" else float(second - first)


def _row(row: Mapping[str, Any], place: int, response: str, value: float, **more: Any) -> dict[str, Any]:
    true, times = row.get("true_scores"), row.get("times")
    made = {"id": str(row["id"]), "candidate": place, "response": response}
    made |= {"times": times[place] if times else 1, "reward": value, **more, "words": len(response.split())}
    made["group"] = str(row["id"] if is_missing(row.get("group")) else row["group"])
    return made | ({} if true is None else {"true_score": float(true[place])})


def _frame(rows: list[dict[str, Any]], by: str) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    frame.attrs = {"by": by, "missing": int(frame["reward"].isna().sum())}
    return frame
