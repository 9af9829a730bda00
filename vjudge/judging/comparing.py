"""Comparing two responses: the answers to a pair, in both orders or several draws, become one row.

The order "ab" shows `response_a` first, "ba" `response_b`. Answers to "ba" are turned back, so that
every verdict speaks of the pair's own a and b. A verdict is "a", "b", "tie", "abstain" or None.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pandas as pd

from vjudge.judging.asking import ORDERS, Call, Options
from vjudge.judging.counts import announce, work_of
from vjudge.judging.grading import JudgedRow, answer_questions, group_by_row, make_table
from vjudge.judging.record import Record, Records
from vjudge.records import NAN

SWAPPED = {"a": "b", "b": "a"}
SIGNED_POINTS = {"a": 1, "b": -1, "tie": 0}  # for the first response
ANSWER_TEXTS = ("scores", "feedback", "raw")  # each a column per order, such as "raw_ab"
DRAW_CELLS = ("order", "verdict", "feedback", "raw", "closed", "failure")  # listed in "draws"


def compare(call: Call) -> pd.DataFrame:
    """Make the table of `Judge.compare`."""
    records = answer_questions(call, "compare")
    frame = comparison_table(group_by_row(call, records), call.judge.name, call.options)
    remarks = []
    if "consistent" in frame:
        changed = int(frame["consistent"].eq(False).sum())
        if changed:
            remarks.append(f"{changed} of {len(frame)} verdicts changed with the order")
    return announce(call, frame, records, *remarks)


def comparison_table(rows: Sequence[JudgedRow], judge: str, options: Options) -> pd.DataFrame:
    """Make the table of compared pairs, one row per pair.

    Args:
        rows: the records and the cells of each pair.
        judge: its name.
        options: of the call; `load_run` knows `samples` and `orders` alone.
    """
    verdicts = []
    for records, cells in rows:
        if records[0]["order"] in ORDERS:
            verdict = _verdict_of_orders(records, options)
        else:  # "a" and "b": a value head graded each response alone
            verdict = _verdict_of_values(records)
        verdicts.append({"id": records[0]["id"]} | verdict | cells)
    return make_table(verdicts, judge)


def _verdict_of_values(records: Records) -> Record:
    """Choose the response with the larger value of a value head; equal values are a tie.

    Args:
        records: two, of the first and the second response.
    """
    score_a, score_b = (record["score"] for record in records)
    failure = records[0]["failure"] or records[1]["failure"]
    verdict = None if failure else sign(score_a - score_b)
    row = {"verdict": verdict, "score_a": score_a, "score_b": score_b, "failure": failure}
    return row | {"closed": False} | work_of(records)


def _verdict_of_orders(records: Records, options: Options) -> Record:
    """Combine the records of a pair: one per order and sample."""
    # 1) the verdict of each order (with several samples, their majority), and of both orders
    draws = list(map(turn_back, records))
    in_order = {}
    for order in ORDERS:
        verdicts = [draw["verdict"] for draw in draws if draw["order"] == order]
        if verdicts:
            in_order[f"verdict_{order}"] = majority(verdicts)
    verdict, consistent = combine(list(in_order.values()))
    chances = [draw["chance"] for draw in draws]  # one NaN makes their mean NaN
    row = {"verdict": verdict, "consistent": consistent, "probability_a": sum(chances) / len(draws)}

    # 2) one column per order where each was asked once; otherwise each draw is a vote, whose
    # majority replaces the verdict
    if options.samples > 1 or options.orders == "random":
        row |= _votes(draws)
    else:
        for name in ANSWER_TEXTS:
            row |= {f"{name}_{draw['order']}": draw[name] for draw in draws}
    if options.orders == "random":  # an order may be missing, so that the two are not compared
        row["consistent"] = None
    else:
        row |= in_order

    # 3) what went wrong, and what it took
    failures = [f"{draw['order']}: {draw['failure']}" for draw in draws if draw["failure"]]
    row["failure"] = "; ".join(failures) or None
    row["closed"] = any(draw["closed"] for draw in draws)
    return row | work_of(draws)


def _votes(draws: Records) -> Record:
    """Count each draw as a vote; an abstention is neither a vote nor missing.

    Returns:
        The columns of the row: the majority as its verdict, the number of votes for each choice,
        the number of draws without a verdict, and the list of draws.
    """
    votes = [draw["verdict"] for draw in draws]
    return {
        "verdict": majority(votes),
        "votes_a": votes.count("a"),
        "votes_b": votes.count("b"),
        "votes_tie": votes.count("tie"),
        "votes_missing": votes.count(None),
        "draws": [{name: draw[name] for name in DRAW_CELLS} for draw in draws],
    }


def turn_back(record: Record) -> Record:
    """Add to a record its `verdict` and `chance`, in terms of the pair's own a and b.

    `chance` is the probability of a against b, NaN where the answer has none. In the order "ba" the
    response shown first is b: the choice "a" (of the first) is the verdict "b", and the probability
    .9 of the first response is the chance .1 of a.
    """
    verdict = record["choice"]
    chance = NAN
    if record["probabilities"]:
        chance = record["probabilities"]["0"]  # 0 stands for the response that was shown first
    if record["order"] == "ba":
        verdict = SWAPPED.get(verdict, verdict)  # a tie, an abstention or None stays
        chance = 1 - chance
    return record | {"verdict": verdict, "chance": chance}


def sign(points: float) -> str:
    """Turn the points of the first response into a choice: above 0 "a", below 0 "b", 0 "tie"."""
    if points == 0:
        return "tie"
    return "a" if points > 0 else "b"


def majority(choices: Sequence[str | None]) -> str | None:
    """Find the choice with the most votes, or a tie where several choices have the most.

    Only "a", "b" and "tie" are votes. Without a vote the result is an abstention if somebody
    abstained, else None.

    >>> majority(["a", "a", "b"]), majority(["a", "b", None]), majority(["abstain"]), majority([])
    ('a', 'tie', 'abstain', None)
    """
    leading = statistics.multimode(choice for choice in choices if choice in SIGNED_POINTS)
    if not leading:
        return "abstain" if "abstain" in choices else None
    return leading[0] if len(leading) == 1 else "tie"


def combine(choices: Sequence[str | None]) -> tuple[str | None, bool | None]:
    """Combine the verdicts of a pair's orders, one verdict per order.

    A choice and a tie give that choice, two opposite choices a tie. One missing verdict makes the
    result missing, one abstention an abstention.

    Returns:
        The combined verdict, and whether the verdicts agree: None where there is a single verdict
        or one is missing.

    >>> combine(["a", "a"]), combine(["a", "tie"]), combine(["a", "b"]), combine(["a", None])
    (('a', True), ('a', False), ('tie', False), (None, None))

    Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning, sums points likewise.
    """
    if None in choices:
        return None, None
    agree = len(set(choices)) == 1 if len(choices) > 1 else None
    if "abstain" in choices:
        return "abstain", agree
    # "a", "b" and "tie" remain; `if choice` tells mypy that None does not
    return sign(sum(SIGNED_POINTS[choice] for choice in choices if choice)), agree
