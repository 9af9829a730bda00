"""Comparing two responses and ranking many: orders, votes, and what they say together."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, count
from typing import Any

import pandas as pd

from vjudge import data
from vjudge.data.schema import CollectionError, Problem, id_of
from vjudge.judging.asking import ORDERS, Call, Options, Record, prepare
from vjudge.judging.grading import announced, answered, by_row, table, work_of
from vjudge.records import NAN, unit_of

SWAPPED = {"a": "b", "b": "a"}
SIGNED_POINTS = {"a": 1, "b": -1, "tie": 0}
COLUMNS = {"scores": ["response"], "pairs": ["response_a", "response_b"]}  # of a question
LEFT_OUT = ("responses", "preference", "gold", "human_scores")  # of a row with candidates
ANSWER_TEXTS = ("scores", "feedback", "raw")  # of each order
KEPT = ("order", "verdict", "feedback", "raw", "closed", "failure")  # of each draw, if several


def compare(judge: Any, pairs: Any, options: Options) -> pd.DataFrame:
    """The table of `Judge.compare`."""
    # 1) the answers of each pair
    call = prepare(judge, pairs, options, pairs=True)
    records = answered(call, "compare")

    # 2) what they say together
    frame = compared(
        by_row(call, records),
        call.facts,
        judge=judge.name,
        samples=options.samples,
        orders=options.orders,
    )
    remarks = []
    if "consistent" in frame:
        changed = int(frame["consistent"].eq(False).sum())
        if changed:
            remarks.append(f"{changed} of {len(frame)} verdicts changed with the order")
    return announced(call, frame, records, *remarks)


def compared(
    answers: Sequence, facts: Sequence, *, judge: str, samples: int, orders: str
) -> pd.DataFrame:
    """The records of each pair as a row; `facts` are the further cells of each."""
    rows = []
    for records, cells in zip(answers, facts, strict=True):
        if records[0]["order"] in ORDERS:
            verdict = said_together(records, samples=samples, orders=orders)
        else:
            verdict = valued(records)
        rows.append({"id": records[0]["id"]} | verdict | cells)
    return table(rows, judge)


def valued(records: Sequence) -> Record:
    """The columns of a pair by the values of its responses."""
    score_a, score_b = (record["score"] for record in records)
    failure = records[0]["failure"] or records[1]["failure"]
    verdict = None if failure else sign(score_a - score_b)
    row = {"verdict": verdict, "score_a": score_a, "score_b": score_b, "failure": failure}
    return row | {"closed": False} | work_of(records)


def turned(record: Record) -> Record:
    """A record with `verdict` and `chance` (of a against b) as the pair itself names them."""
    verdict = record["choice"]
    chance = (record["probabilities"] or {"0": NAN})["0"]
    if record["order"] == "ba":
        verdict = SWAPPED.get(verdict, verdict)
        chance = 1 - chance
    return record | {"verdict": verdict, "chance": chance}


def said_together(records: Sequence, *, samples: int, orders: str) -> Record:
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
    row = {"verdict": verdict, "consistent": consistent, "probability_a": sum(chances) / len(draws)}

    # 2) each draw: beside one another where an order was asked once, else as votes and a list
    if samples > 1 or orders == "random":
        row |= voted(draws)
    else:
        for name in ANSWER_TEXTS:
            row |= {f"{name}_{draw['order']}": draw[name] for draw in draws}
    if orders == "random":
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
    leading = statistics.multimode(choice for choice in choices if choice in SIGNED_POINTS)
    if not leading:
        return "abstain" if "abstain" in choices else None
    return leading[0] if len(leading) == 1 else "tie"


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
    agree = len(set(choices)) == 1 if len(choices) > 1 else None
    if "abstain" in choices:
        return "abstain", agree
    return sign(sum(map(SIGNED_POINTS.__getitem__, choices))), agree


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


def rank(
    candidates: Any, by: str, judged: Callable[[Sequence], pd.DataFrame], *, noise: float
) -> pd.DataFrame:
    """The table of `Judge.rank`.

    `judged` grades or compares rows, as `by` says; scores nearer than `noise` of their scale are
    ties.
    """
    # 1) the points that each verdict gives each candidate
    rows = data.rows_of(candidates)
    run = judged(candidate_rows(rows, by))
    verdicts = verdicts_of_each(rows, by)
    if by == "scores":
        values = finest(run).to_numpy()[:, None]  # (verdicts, 1)
        noise *= width_of(run)
    else:
        values = points_by_order(run).to_numpy()  # (verdicts, orders)
        noise = 0.0
    points = []
    for signs in verdicts:
        points.append((values[[*signs]].T * [*signs.values()]).ravel())

    # 2) a row a candidate, with its rank
    cells = []
    for row in rows:
        shared = {"id": row["id"], "judge": run["judge"].iloc[0]}
        if "category" in row:
            shared["category"] = row["category"]
        for position, response in enumerate(row["responses"]):
            cell = {"candidate": position, "response": response, "group": unit_of(row)}
            if row.get("ranks"):
                cell["true_rank"] = row["ranks"][position]
            cells.append(shared | cell)
    frame = pd.DataFrame(cells)
    of_candidates = pd.DataFrame(list(map(pd.Series, points)), dtype=float)
    frame["value"] = settled(of_candidates.mean(axis=1), frame["id"], noise)
    frame["rank"] = frame.groupby("id")["value"].rank(method="min", ascending=False)
    frame["best"] = frame["rank"] == 1
    frame["n"] = of_candidates.count(axis=1)
    frame["missing"] = list(map(len, points)) - frame["n"]
    about = [run.iloc[[*signs]] for signs in verdicts]
    failures = [verdict["failure"].dropna() for verdict in about]
    reasons = pd.Series(["; ".join(texts) or None for texts in failures], dtype=object)
    frame["failure"] = reasons.where(frame["n"] == 0, None)
    frame["closed"] = [bool(verdict["closed"].any()) for verdict in about]
    frame["sees_image"] = [bool(verdict["sees_image"].all()) for verdict in about]
    frame.attrs = run.attrs
    return frame


def width_of(run: pd.DataFrame) -> float:
    """The width of a run's widest scale; where none is known its largest number either way."""
    widths = run["score"].abs()
    if {"lowest", "highest"} <= set(run):
        widths = (run["highest"] - run["lowest"]).fillna(widths)
    return float(widths.max())


def settled(values: pd.Series, questions: pd.Series, noise: float) -> pd.Series:
    """Values of one question that lie nearer together than the noise, each as the least of them.

    >>> values = pd.Series([3.0, 3.0000004, 3.2])
    >>> settled(values, pd.Series(["q", "q", "q"]), 1e-6).tolist()
    [3.0, 3.0, 3.2]
    """
    ascending = values.dropna().sort_values()
    of_each = questions[ascending.index]
    # a step above the noise begins the next cluster
    clusters = (ascending.groupby(of_each).diff() > noise).groupby(of_each).cumsum()
    smallest = ascending.groupby([of_each, clusters]).transform("min")
    return smallest.reindex(values.index)


def finest(judged: pd.DataFrame) -> pd.Series:
    """Expected scores if all verdicts have one, else the scores: a mixture would rank by form."""
    expected = judged.get("expected_score")
    if expected is None or expected.isna().gt(judged["score"].isna()).any():
        return judged["score"]
    return expected


def verdicts_of_each(rows: Sequence, by: str) -> list[dict[int, int]]:
    """For each candidate the rows of the run of `candidate_rows` about it.

    Each row has a sign: 1 where the candidate stands first or alone, -1 where it stands second.
    """
    verdicts = []
    numbers = count()
    for row in rows:
        candidates: list = [{} for _ in row["responses"]]
        for parties in combinations(candidates, len(COLUMNS[by])):
            number = next(numbers)
            for sign_of_party, party in zip((1, -1), parties, strict=False):
                party[number] = sign_of_party
        verdicts += candidates
    return verdicts


def points_by_order(run: pd.DataFrame) -> pd.DataFrame:
    """What each pair's verdicts give its first response, a column an order: 1, 0, -1 or NaN.

    A run that says one thing of both orders says it twice.
    """
    verdicts = run.filter(["verdict_ab", "verdict_ba"])
    if verdicts.columns.empty:
        verdicts = run[["verdict", "verdict"]]
    return verdicts.map(lambda verdict: float(SIGNED_POINTS.get(verdict, NAN)))


def candidate_rows(rows: Sequence, by: str) -> Sequence:
    """What is put to the judge to rank candidates; CollectionError names rows without two."""
    if by not in COLUMNS:
        raise ValueError(f'by={by!r}: use "pairs" or "scores"')
    sound = [len(row.get("responses") or ()) > 1 for row in rows]
    reason = "is not a list of two texts or more"
    check_rows(rows, "responses", sound, reason, "give the candidates")
    textual = [not row.get("response_images") for row in rows]
    remedy = "grade each response, or compare pairs of them"
    check_rows(rows, "response_images", textual, "pictures are no candidates", remedy)
    return data.rows_of(list(parts_of(rows, by)))


def check_rows(rows: Sequence, field: str, sound: Sequence, reason: str, remedy: str) -> None:
    """Refuse rows without an id of their own or whose field is not sound, all by one error."""
    problems = []
    seen = set()
    for index, row in enumerate(rows):
        id = id_of(row)
        if id is None or id in seen:
            problems.append(Problem(index, id, "id", "is not unique", "give every row its own id"))
        if not sound[index]:
            problems.append(Problem(index, id, field, reason, remedy))
        seen.add(id)
    if problems:
        raise CollectionError.of_rows(problems, len(rows))


def parts_of(rows: Iterable, by: str) -> Iterator:
    """Every two responses of each row as a pair "id/i-j"; by "scores", each by itself, "id/i"."""
    for row in rows:
        shared = {name: cell for name, cell in row.items() if name not in LEFT_OUT}
        columns = COLUMNS[by]
        for candidates in combinations(enumerate(row["responses"]), len(columns)):
            positions, texts = zip(*candidates, strict=True)
            id = f"{row['id']}/{'-'.join(map(str, positions))}"
            yield shared | {"id": id} | dict(zip(columns, texts, strict=True))
