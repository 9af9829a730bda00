"""Comparing two responses and ranking many: orders, votes, and what they say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from vjudge import data
from vjudge.asking import Call, Options, Record, prepare
from vjudge.data.schema import CollectionError, Problem, id_of
from vjudge.grading import WORK, answered, grade, table
from vjudge.records import NAN, unit_of

Row = Mapping

SWAPPED = {"a": "b", "b": "a"}
POINTS = {"a": 1, "b": -1, "tie": 0}
LEFT_OUT = ("responses", "preference", "gold", "human_scores")  # of a row with candidates
TEXTS = ("scores", "feedback", "raw")  # of each order
KEPT = ("order", "verdict", "feedback", "raw")  # of each draw, where there are several


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
    for place, own in answers.items():
        said = valued(*own) if judge.gives_values else said_together(own, call.options)
        rows.append({"id": own[0]["id"], **said, **call.carried[place]})
    remarks = []
    changed = sum(row.get("consistent") is False for row in rows)
    if changed:
        remarks.append(f"{changed} of {len(rows)} verdicts changed with the order")
    if options.orders == "one":
        remarks += one_sided([cells.get("preference") for cells in call.carried])
    return table(call, records, rows, *remarks)


def one_sided(preferences: Sequence) -> list[str]:
    """What is said where a judge that always takes one side would be right."""
    first = preferences.count("a")
    decided = first + preferences.count("b")
    if decided < 20 or 0.1 * decided < first < 0.9 * decided:
        return []
    return [
        f"{first} of {decided} known preferences are for the first response: a judge that always"
        ' takes one side would be right, which orders="both" tells'
    ]


def valued(first: Record, second: Record) -> Record:
    """The columns of a pair by the values of its responses."""
    verdict = None
    failure = first["failure"] or second["failure"]
    if failure is None:
        verdict = sign(first["score"] - second["score"])
    return {
        "verdict": verdict,
        "score_a": first["score"],
        "score_b": second["score"],
        "failure": failure,
        "closed": False,
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


def said_together(records: Sequence, options: Options) -> Record:
    """The columns of a pair: both orders combined, or of several draws the majority."""
    # 1) the verdict of each order, and of both
    draws = [turned(record) for record in records]
    by_order: dict = {}
    for draw in draws:
        by_order.setdefault(f"verdict_{draw['order']}", []).append(draw["verdict"])
    in_order = {name: majority(own) for name, own in by_order.items()}
    verdict, consistent = combine(list(in_order.values()))
    row: Record = {"verdict": verdict, "consistent": consistent}
    row["probability_a"] = sum(draw["chance"] for draw in draws) / len(draws)

    # 2) each draw: beside one another where an order was asked once, else as votes and a list
    if options.samples > 1 or options.orders == "random":
        votes = [draw["verdict"] for draw in draws]
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
        row["consistent"] = None
    else:
        row |= in_order

    # 3) what went wrong, and what it took
    failures = [f"{draw['order']}: {draw['failure']}" for draw in draws if draw["failure"]]
    row["failure"] = "; ".join(failures) or None
    row["closed"] = any(draw["closed"] for draw in draws)
    return row | {name: sum(draw[name] for draw in draws) for name in WORK}


def majority(choices: Sequence) -> str | None:
    """The choice that has most votes, a tie where several have; what is missing does not vote.

    >>> majority(["a", "a", "b"]), majority(["a", "b", None]), majority(["abstain"]), majority([])
    ('a', 'tie', 'abstain', None)
    """
    votes = Counter(choice for choice in choices if choice in POINTS)
    if not votes:
        return "abstain" if "abstain" in choices else None
    leading, most = votes.most_common(1)[0]
    return leading if list(votes.values()).count(most) == 1 else "tie"


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
    return sign(sum(POINTS[str(choice)] for choice in choices)), agree


def sign(points: float) -> str:
    """The choice that points above, below or of 0 stand for."""
    if points == 0:
        return "tie"
    return "a" if points > 0 else "b"


# -- best of n


def prepared(judge: Any, items: Any, options: Options, *, by: str) -> Call:
    """The call that `Judge.grade`, `compare` or `rank` would make of rows of their kind."""
    rows: Sequence = data.rows_of(items)
    if len(rows) and "responses" in rows[0]:
        rows = candidate_rows(rows, "scores" if judge.gives_values else by)
    return prepare(judge, rows, options, pairs=len(rows) > 0 and "response_a" in rows[0])


def rank(judge: Any, candidates: Any, by: str, options: Options) -> pd.DataFrame:
    """The table of `Judge.rank`."""
    # 1) what each verdict gives each candidate
    if judge.gives_values:
        by = "scores"
    rows = data.rows_of(candidates)
    parts = candidate_rows(rows, by)
    given: list = []
    if by == "scores":
        judged = grade(judge, parts, options)
        given += [[value] for value in judged["expected_score"].fillna(judged["score"])]
    else:
        judged = compare(judge, parts, options)
        verdicts = iter(judged[["verdict_ab", "verdict_ba"]].to_numpy())
        for row in rows:
            own: list = [[] for _ in row["responses"]]
            for first, second in combinations(own, 2):
                for verdict in next(verdicts):
                    lead = POINTS.get(verdict, NAN)
                    first.append(lead)
                    second.append(-lead)
            given += own

    # 2) a row a candidate, with its rank
    cells = []
    for row in rows:
        shared = {name: row[name] for name in ("id", "category") if name in row}
        for place, response in enumerate(row["responses"]):
            cell = {"candidate": place, "response": response, "group": unit_of(row)}
            if row.get("ranks"):
                cell["true_rank"] = row["ranks"][place]
            cells.append(shared | cell)
    frame = pd.DataFrame(cells)
    frame.insert(1, "judge", judge.name)
    points = pd.DataFrame([pd.Series(own, dtype=float) for own in given])
    frame["value"] = points.mean(axis=1)
    frame["rank"] = frame.groupby("id")["value"].rank(method="min", ascending=False)
    frame["best"] = frame["rank"] == 1
    frame["n"] = points.count(axis=1)
    frame["missing"] = [len(own) for own in given] - frame["n"]
    frame.attrs = judged.attrs
    return frame


def candidate_rows(rows: Sequence, by: str) -> Sequence:
    """What is put to the judge to rank candidates; CollectionError names rows without two."""
    if by not in ("pairs", "scores"):
        raise ValueError(f'by={by!r}: use "pairs" or "scores"')
    sound = [len(row.get("responses") or ()) > 1 for row in rows]
    what = "is not a list of two texts or more"
    check_rows(rows, "responses", sound, what, "give the candidates")
    return data.rows_of(list(parts_of(rows, by)))


def check_rows(rows: Sequence, field: str, sound: Sequence, what: str, remedy: str) -> None:
    """Refuse rows without an id of their own or whose field is not sound, all by one error."""
    problems = []
    ids = set()
    for index, row in enumerate(rows):
        id = id_of(row)
        if id is None or id in ids:
            problems.append(Problem(index, id, "id", "is not unique", "give every row its own id"))
        if not sound[index]:
            problems.append(Problem(index, id, field, what, remedy))
        ids.add(id)
    if problems:
        raise CollectionError.of_rows(problems, len(rows))


def parts_of(candidates: Iterable, by: str) -> Iterator:
    """Every two responses of each row as a pair "id/i-j"; by "scores", each by itself, "id/i"."""
    names = ["response_a", "response_b"] if by == "pairs" else ["response"]
    for row in candidates:
        shared = {name: cell for name, cell in row.items() if name not in LEFT_OUT}
        responses = enumerate(row["responses"])
        for chosen in combinations(responses, len(names)):
            places = "-".join(str(place) for place, _ in chosen)
            texts = [text for _, text in chosen]
            yield {**shared, "id": f"{row['id']}/{places}", **dict(zip(names, texts, strict=True))}
