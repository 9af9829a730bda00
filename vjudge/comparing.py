"""Comparing two responses and ranking many: orders, votes, and what they say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.asking import Call, Options, Record, prepare
from vjudge.data.schema import CollectionError, Problem, id_of, plain
from vjudge.grading import WORK, answered, grade, table
from vjudge.records import NAN, unit_of

Row = Mapping[str, Any]

SWAPPED = {"a": "b", "b": "a"}
POINTS = {"a": 1, "b": -1, "tie": 0}
TEXTS = ("scores", "strong", "feedback", "raw")  # of each order
KEPT = ("order", "verdict", "feedback", "raw")  # of each draw, where there are several


def compare(judge: Any, pairs: Any, options: Options) -> pd.DataFrame:
    """The table of `Judge.compare`."""
    # 1) the answers of each pair
    call = prepare(judge, pairs, options, pairs=True)
    records = answered(call)
    answers: dict[int, list[Record]] = {}
    for question, record in zip(call.questions, records, strict=True):
        answers.setdefault(question.row, []).append(record)

    # 2) what they say together
    rows = []
    for place, own in answers.items():
        said = valued(*own) if judge.gives_values else said_together(own, call.options)
        rows.append({"id": own[0]["id"], **said, **call.carried[place]})
    changed = sum(row.get("consistent") is False for row in rows)
    if judge.gives_values:
        call.remarks.append("each response was graded once: a value head knows no order")
    elif changed:
        call.remarks.append(f"{changed} of {len(rows)} verdicts changed with the order")
    return table(call, records, rows)


def valued(first: Record, second: Record) -> Record:
    """The columns of a pair by the values of its responses."""
    verdict = None
    failure = first["failure"] or second["failure"]
    if failure is None:
        verdict = sign(first["score"] - second["score"])
    return {
        "verdict": verdict,
        "consistent": verdict is not None,
        "score_a": first["score"],
        "score_b": second["score"],
        "verdict_ab": verdict,
        "verdict_ba": verdict,
        "failure": failure,
        **{name: first[name] + second[name] for name in WORK},
    }


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


def said_together(records: Sequence[Record], options: Options) -> Record:
    """The columns of a pair: both orders combined, or of several draws the majority."""
    # 1) what each draw says, and what it took
    draws = []
    votes = []
    by_order: dict[str, list[str | None]] = {}
    failures = []
    closed = False
    work = dict.fromkeys(WORK, 0)
    for record in records:
        draw = turned(record)
        draws.append(draw)
        votes.append(draw["verdict"])
        by_order.setdefault(draw["order"], []).append(draw["verdict"])
        closed = closed or draw["closed"]
        if draw["failure"]:
            failures.append(f"{draw['order']}: {draw['failure']}")
        for name in WORK:
            work[name] += draw[name]

    # 2) the verdict of each order, and of both
    in_order = {f"verdict_{order}": majority(own) for order, own in by_order.items()}
    verdict, consistent = combine(list(in_order.values()))
    row: Record = {"verdict": verdict, "consistent": consistent}
    row["probability_a"] = sum(draw["chance"] for draw in draws) / len(draws)

    # 3) each draw: beside one another where an order was asked once, else as votes and a list
    if options.samples > 1 or options.orders == "random":
        row["verdict"] = majority(votes)
        for choice in POINTS:
            row[f"votes_{choice}"] = votes.count(choice)
        row["votes_missing"] = votes.count(None)
        row["draws"] = [{name: draw[name] for name in KEPT} for draw in draws]
    else:
        for name in TEXTS:
            for draw in draws:
                row[f"{name}_{draw['order']}"] = draw[name]
    if options.orders == "random":
        del row["consistent"]
    else:
        row |= in_order
    return row | {"failure": "; ".join(failures) or None, "closed": closed, **work}


def majority(choices: Sequence[str | None]) -> str | None:
    """The choice that has most votes, a tie where several have; what is missing does not vote.

    >>> majority(["a", "a", "b"]), majority(["a", "b", None]), majority(["abstain"]), majority([])
    ('a', 'tie', 'abstain', None)
    """
    votes = Counter(choice for choice in choices if choice in POINTS)
    if not votes:
        return "abstain" if "abstain" in choices else None
    leading, most = votes.most_common(1)[0]
    return leading if list(votes.values()).count(most) == 1 else "tie"


def combine(choices: Sequence[str | None]) -> tuple[str | None, bool | None]:
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
    return sign(sum(POINTS[str(choice)] for choice in choices)), agree


def sign(points: float) -> str:
    """The choice that points above, below or of 0 stand for."""
    if points == 0:
        return "tie"
    return "a" if points > 0 else "b"


# -- best of n


def prepared(judge: Any, items: Any, options: Options, *, by: str) -> Call:
    """The call that `Judge.grade`, `compare` or `rank` would make of rows of their kind."""
    rows: Sequence[Row] = data.rows_of(items)
    if len(rows) and "responses" in rows[0]:
        rows = candidate_rows(rows, "scores" if judge.gives_values else by)
    return prepare(judge, rows, options, pairs=len(rows) > 0 and "response_a" in rows[0])


def rank(judge: Any, candidates: Any, by: str, options: Options) -> pd.DataFrame:
    """The table of `Judge.rank`."""
    # 1) one verdict of each candidate, or of every two, and the points that it gives
    if judge.gives_values:
        by = "scores"
    rows = data.rows_of(candidates)
    parts = candidate_rows(rows, by)
    points: dict[str, list[float]] = {}
    if by == "scores":
        judged = grade(judge, parts, options)
        values = judged["expected_score"].fillna(judged["score"])
        for id, value in zip(judged["id"], values, strict=True):
            points[id] = [value]
    else:
        judged = compare(judge, parts, options)
        for id, *verdicts in judged[["id", "verdict_ab", "verdict_ba"]].to_numpy():
            owner, _, places = id.rpartition("/")
            first, second = places.split("-")
            leads = [POINTS.get(verdict, NAN) for verdict in verdicts]
            points.setdefault(f"{owner}/{first}", []).extend(leads)
            points.setdefault(f"{owner}/{second}", []).extend(-lead for lead in leads)

    # 2) their mean, and the ranks
    cells = []
    for row in rows:
        for place, response in enumerate(row["responses"]):
            own = np.array(points[f"{row['id']}/{place}"], dtype=float)
            known = own[~np.isnan(own)]
            cell = {"id": row["id"], "judge": judge.name, "candidate": place, "response": response}
            cell["value"] = known.mean() if len(known) else NAN
            cell |= {"rank": NAN, "best": False, "n": len(known), "missing": len(own) - len(known)}
            if row.get("ranks"):
                cell["true_rank"] = row["ranks"][place]
            if "category" in row:
                cell["category"] = row["category"]
            cells.append(cell | {"group": unit_of(row)})
    frame = pd.DataFrame(cells)
    frame["rank"] = frame.groupby("id")["value"].rank(method="min", ascending=False)
    frame["best"] = frame["rank"] == 1
    frame.attrs = judged.attrs
    return frame


def candidate_rows(rows: Sequence[Row], by: str) -> Sequence[Row]:
    """What is put to the judge to rank candidates; CollectionError names rows without two."""
    if by not in ("pairs", "scores"):
        raise ValueError(f'by={by!r}: use "pairs" or "scores"')
    sound = []
    for row in rows:
        texts = plain(row.get("responses"))
        sound.append(isinstance(texts, list) and len(texts) > 1)
    what = "is not a list of two texts or more"
    check_rows(rows, "responses", sound, what, "give the candidates")
    return data.rows_of(list(parts_of(rows, by)))


def check_rows(
    rows: Sequence[Row], field: str, sound: Sequence[bool], what: str, remedy: str
) -> None:
    """Refuse rows without an id of their own or whose field is not sound, all by one error."""
    problems = []
    ids = set()
    for index, row in enumerate(rows):
        id = id_of(row)
        if id is None or id in ids:
            own = "give every row its own id"
            problems.append(Problem(index, id, "id", "is missing or not unique", own))
        if not sound[index]:
            problems.append(Problem(index, id, field, what, remedy))
        ids.add(id)
    if problems:
        raise CollectionError.of_rows(problems, len(rows))


def parts_of(candidates: Iterable[Row], by: str) -> Iterator[Record]:
    """Every two responses of each row as a pair "id/i-j"; by "scores", each by itself, "id/i"."""
    names = ("response_a", "response_b") if by == "pairs" else ("response",)
    left_out = ("responses", "preference", "gold", "human_scores")
    for row in candidates:
        shared = {name: cell for name, cell in row.items() if name not in left_out}
        for places in combinations(range(len(row["responses"])), len(names)):
            part = shared | {"id": f"{row['id']}/{'-'.join(map(str, places))}"}
            for name, place in zip(names, places, strict=True):
                part[name] = row["responses"][place]
            yield part
