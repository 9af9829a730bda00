"""Comparing two responses: the answers to a pair in both orders, and in several draws, as a row."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from vjudge.judging.asking import Call, Options
from vjudge.judging.choices import combine, majority, sign
from vjudge.judging.counts import announce, work_of
from vjudge.judging.grading import JudgedRow, answer_questions, group_by_row, make_table
from vjudge.judging.orders import ORDERS, turn_back
from vjudge.judging.record import Record, Records

ANSWER_TEXTS = ("scores", "feedback", "raw")  # columns of each order
DRAW_CELLS = ("order", "verdict", "feedback", "raw", "closed", "failure")  # of each of several


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
    """Make the table of compared pairs."""
    verdicts = []
    for records, cells in rows:
        if records[0]["order"] in ORDERS:
            verdict = _verdict_of_orders(records, options)
        else:
            verdict = _verdict_of_values(records)
        verdicts.append({"id": records[0]["id"]} | verdict | cells)
    return make_table(verdicts, judge)


def _verdict_of_values(records: Records) -> Record:
    """Choose the response with the larger value of a value head; equal values are a tie."""
    score_a, score_b = (record["score"] for record in records)
    failure = records[0]["failure"] or records[1]["failure"]
    verdict = None if failure else sign(score_a - score_b)
    row = {"verdict": verdict, "score_a": score_a, "score_b": score_b, "failure": failure}
    return row | {"closed": False} | work_of(records)


def _verdict_of_orders(records: Records, options: Options) -> Record:
    """Combine the records of a pair: its two orders, or the votes of several draws."""
    # 1) the verdict of each order, and of both
    draws = list(map(turn_back, records))
    in_order = {}
    for order in ORDERS:
        verdicts = [draw["verdict"] for draw in draws if draw["order"] == order]
        if verdicts:
            in_order[f"verdict_{order}"] = majority(verdicts)
    verdict, consistent = combine(list(in_order.values()))
    chances = [draw["chance"] for draw in draws]
    row = {"verdict": verdict, "consistent": consistent, "probability_a": sum(chances) / len(draws)}

    # 2) a column an order where each order was asked once, otherwise votes and a list of the draws
    if options.samples > 1 or options.orders == "random":
        row |= _votes(draws)
    else:
        for name in ANSWER_TEXTS:
            row |= {f"{name}_{draw['order']}": draw[name] for draw in draws}
    if options.orders == "random":  # an order may be missing, so that nothing is said of the two
        row["consistent"] = None
    else:
        row |= in_order

    # 3) what went wrong, and what it took
    failures = [f"{draw['order']}: {draw['failure']}" for draw in draws if draw["failure"]]
    row["failure"] = "; ".join(failures) or None
    row["closed"] = any(draw["closed"] for draw in draws)
    return row | work_of(draws)


def _votes(draws: Records) -> Record:
    """Count each draw as a vote: the majority, the votes, and what each draw says."""
    votes = [draw["verdict"] for draw in draws]
    return {
        "verdict": majority(votes),
        "votes_a": votes.count("a"),
        "votes_b": votes.count("b"),
        "votes_tie": votes.count("tie"),
        "votes_missing": votes.count(None),
        "draws": [{name: draw[name] for name in DRAW_CELLS} for draw in draws],
    }
