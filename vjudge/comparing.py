"""Comparing two responses and ranking many: orders, votes, and what they say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from vjudge import data
from vjudge.asking import ORDERS, Call, Options, Record, prepare
from vjudge.data.schema import CollectionError, Problem, id_of
from vjudge.grading import WORK, answered, grade, table
from vjudge.records import NAN, unit_of

SWAPPED = {"a": "b", "b": "a"}
POINTS = {"a": 1, "b": -1, "tie": 0}
LEFT_OUT = ("responses", "preference", "gold", "human_scores")  # of a row with candidates
TEXTS = ("scores", "feedback", "raw")  # of each order
KEPT = ("order", "verdict", "feedback", "raw", "closed", "failure")  # of each draw, if several


def compare(judge: Any, pairs: Any, options: Options) -> pd.DataFrame:
    """The table of `Judge.compare`."""
    # 1) the answers of each pair
    call = prepare(judge, pairs, options, pairs=True)
    records = answered(call)
    answers: dict[int, list] = {}
    for question, record in zip(call.questions, records, strict=True):
        answers.setdefault(question.row, []).append(record)

    # 2) what they say together
    rows = []
    changed = 0
    for place, own in answers.items():
        if judge.gives_values:
            said = valued(own)
        else:
            said = said_together(own, call.options)
        changed += said.get("consistent") is False
        row = {"id": own[0]["id"]}
        rows.append(row | said | call.carried[place])
    remarks = []
    if changed:
        remarks.append(f"{changed} of {len(rows)} verdicts changed with the order")
    return table(call, records, rows, *remarks)


def valued(records: Sequence) -> Record:
    """The columns of a pair by the values of its responses."""
    first, second = records
    verdict = None
    failure = first["failure"] or second["failure"]
    if failure is None:
        verdict = sign(first["score"] - second["score"])
    row = {
        "verdict": verdict,
        "score_a": first["score"],
        "score_b": second["score"],
        "failure": failure,
        "closed": False,
    }
    return row | work_of(records)


def work_of(records: Sequence) -> Record:
    """What the answers of a pair took."""
    return {name: sum(record[name] for record in records) for name in WORK}


def turned(record: Record) -> Record:
    """A record with `verdict` and `chance` (of a against b) as the pair itself names them."""
    verdict = record["choice"]
    chance = NAN
    if record["probabilities"]:
        chance = record["probabilities"]["0"]
    if record["order"] == "ba":
        verdict = SWAPPED.get(verdict, verdict)
        chance = 1 - chance
    return record | {"verdict": verdict, "chance": chance}


def said_together(records: Sequence, options: Options) -> Record:
    """The columns of a pair: both orders combined, or of several draws the majority."""
    # 1) the verdict of each order, and of both
    draws = list(map(turned, records))
    in_order = {}
    for order in ORDERS:
        verdicts = [draw["verdict"] for draw in draws if draw["order"] == order]
        if verdicts:
            in_order[f"verdict_{order}"] = majority(verdicts)
    verdict, consistent = combine(list(in_order.values()))
    chances = [draw["chance"] for draw in draws]
    row = {
        "verdict": verdict,
        "consistent": consistent,
        "probability_a": sum(chances) / len(draws),
    }

    # 2) each draw: beside one another where an order was asked once, else as votes and a list
    if options.samples > 1 or options.orders == "random":
        row |= voted(draws)
    else:
        for name in TEXTS:
            row |= {f"{name}_{draw['order']}": draw[name] for draw in draws}
    if options.orders == "random":
        row["consistent"] = None
    else:
        row |= in_order

    # 3) what went wrong, and what it took
    failures = [f"{draw['order']}: {draw['failure']}" for draw in draws if draw["failure"]]
    row["failure"] = "; ".join(failures) or None
    row["closed"] = any(draw["closed"] for draw in draws)
    return row | work_of(draws)


def voted(draws: Sequence) -> Record:
    """The majority of the draws, its votes, and what each draw says."""
    votes = [draw["verdict"] for draw in draws]
    return {
        "verdict": majority(votes),
        "votes_a": votes.count("a"),
        "votes_b": votes.count("b"),
        "votes_tie": votes.count("tie"),
        "votes_missing": votes.count(None),
        "draws": [{name: draw[name] for name in KEPT} for draw in draws],
    }


def majority(choices: Sequence) -> str | None:
    """The choice that has most votes, a tie where several have; what is missing does not vote.

    >>> majority(["a", "a", "b"]), majority(["a", "b", None]), majority(["abstain"]), majority([])
    ('a', 'tie', 'abstain', None)
    """
    votes = Counter(choice for choice in choices if choice in POINTS)
    if not votes:
        return "abstain" if "abstain" in choices else None
    (leading, most), *others = votes.most_common()
    if others and others[0][1] == most:
        return "tie"
    return leading


def combine(choices: Sequence) -> tuple[str | None, bool | None]:
    """What the verdicts of a pair's orders say together, and whether they agree, if there are two.

    A choice and a tie make that choice, a choice of each side a tie; None and an abstention stay
    what they are.

    >>> combine(["a", "a"]), combine(["a", "tie"]), combine(["a", "b"]), combine(["a", None])
    (('a', True), ('a', False), ('tie', False), (None, None))

    Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning, sums points likewise.
    """
    if None in choices:
        return None, None
    agree = None
    if len(choices) > 1:
        agree = len(set(choices)) == 1
    if "abstain" in choices:
        return "abstain", agree
    points = [POINTS[choice] for choice in choices]
    return sign(sum(points)), agree


def sign(points: float) -> str:
    """The choice that points above, below or of 0 stand for."""
    if points == 0:
        return "tie"
    return "a" if points > 0 else "b"


# -- best of n


def prepared(judge: Any, items: Any, options: Options, *, by: str) -> Call:
    """The call that `Judge.grade`, `compare` or `rank` would make of rows of their kind."""
    rows: Sequence = data.rows_of(items)
    first = rows[0] if len(rows) else {}
    pairs = "response_a" in first
    if "responses" in first:
        if judge.gives_values:
            by = "scores"
        rows = candidate_rows(rows, by)
        pairs = by == "pairs"
    return prepare(judge, rows, options, pairs=pairs)


def rank(judge: Any, candidates: Any, by: str, options: Options) -> pd.DataFrame:
    """The table of `Judge.rank`."""
    # 1) the points that each verdict gives each candidate
    if judge.gives_values:
        by = "scores"
    rows = data.rows_of(candidates)
    parts = candidate_rows(rows, by)
    if by == "scores":
        judged = grade(judge, parts, options)
        points = [[value] for value in finest(judged)]
    else:
        judged = compare(judge, parts, options)
        points = points_of(rows, judged)

    # 2) a row a candidate, with its rank
    cells = []
    for row in rows:
        shared = {"id": row["id"], "judge": judge.name}
        if "category" in row:
            shared["category"] = row["category"]
        for place, response in enumerate(row["responses"]):
            cell = {
                "candidate": place,
                "response": response,
                "group": unit_of(row),
            }
            if row.get("ranks"):
                cell["true_rank"] = row["ranks"][place]
            cells.append(shared | cell)
    frame = pd.DataFrame(cells)
    own = pd.DataFrame([pd.Series(each, dtype=float) for each in points])
    frame["value"] = own.mean(axis=1)
    ranks = frame.groupby("id")["value"]
    frame["rank"] = ranks.rank(method="min", ascending=False)
    frame["best"] = frame["rank"] == 1
    frame["n"] = own.count(axis=1)
    frame["missing"] = list(map(len, points)) - frame["n"]
    frame.attrs = judged.attrs
    return frame


def finest(judged: pd.DataFrame) -> pd.Series:
    """Expected scores if all verdicts have one, else the scores: a mixture would rank by form."""
    expected = judged.get("expected_score")
    if expected is None or expected.isna().gt(judged["score"].isna()).any():
        return judged["score"]
    return expected


def points_of(rows: Sequence, judged: pd.DataFrame) -> list:
    """Each candidate's points, two from each pair that it is in; NaN where a verdict is missing."""
    points: list = []
    verdicts = iter(zip(judged["verdict_ab"], judged["verdict_ba"], strict=True))
    for row in rows:
        own: list = [[] for _ in row["responses"]]
        for first, second in combinations(own, 2):
            for verdict in next(verdicts):
                lead = POINTS.get(verdict, NAN)
                first.append(lead)
                second.append(-lead)
        points += own
    return points


def candidate_rows(rows: Sequence, by: str) -> Sequence:
    """What is put to the judge to rank candidates; CollectionError names rows without two."""
    if by not in ("pairs", "scores"):
        raise ValueError(f'by={by!r}: use "pairs" or "scores"')
    check_rows(
        rows,
        "responses",
        [len(row.get("responses") or ()) > 1 for row in rows],
        what="is not a list of two texts or more",
        remedy="give the candidates",
    )
    return data.rows_of(list(parts_of(rows, by)))


def check_rows(
    rows: Sequence,
    field: str,
    sound: Sequence,
    what: str,
    remedy: str,
) -> None:
    """Refuse rows without an id of their own or whose field is not sound, all by one error."""
    problems = []
    seen = set()
    for index, row in enumerate(rows):
        id = id_of(row)
        if id is None or id in seen:
            problems.append(Problem(index, id, "id", "is not unique", "give every row its own id"))
        if not sound[index]:
            problems.append(Problem(index, id, field, what, remedy))
        seen.add(id)
    if problems:
        raise CollectionError.of_rows(problems, len(rows))


def parts_of(candidates: Iterable, by: str) -> Iterator:
    """Every two responses of each row as a pair "id/i-j"; by "scores", each by itself, "id/i"."""
    for row in candidates:
        shared = {name: cell for name, cell in row.items() if name not in LEFT_OUT}
        places = range(len(row["responses"]))
        if by == "scores":
            for place in places:
                part = {"id": f"{row['id']}/{place}", "response": row["responses"][place]}
                yield shared | part
        else:
            for first, second in combinations(places, 2):
                part = {
                    "id": f"{row['id']}/{first}-{second}",
                    "response_a": row["responses"][first],
                    "response_b": row["responses"][second],
                }
                yield shared | part
