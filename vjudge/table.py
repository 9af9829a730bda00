"""What a judge answered, as records and as tables.

A record is what a run keeps of one verdict, in plain JSON values. Tables are built from records alone, so that a
continued run ends in the table of an unbroken one. What a table lacks is counted in its `attrs` and said on a line.

A judge may prefer whichever response stands first. So a pair is put to it in both orders, "ab" and "ba"; verdicts are
turned back to the pair's own a and b before anything else is done with them.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pandas as pd

from vjudge.data.schema import CollectionError, Problem
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Pair, Verdict, is_missing, unit_of

if TYPE_CHECKING:
    from vjudge.engines import Answer

ORDERS = ("ab", "ba")
SWAPPED = {"a": "b", "b": "a"}
POINTS = {"a": 1, "b": -1, "tie": 0}
LOW_MASS = 0.5  # the scores' probability together, below which the judge would rather have written something else
ONE_SIDED, CHANCE = 0.75, 0.01  # the share of decided preferences for one side, and the test's p-value

_KINDS = dict.fromkeys(("score", "expected_score", "probability_mass", "probability_a", "seconds", "gold"), "float64")
_KINDS |= dict.fromkeys(("sample", "n_prompt_tokens", "n_new_tokens"), "int64")
_READ = ("score", "expected_score", "probabilities", "probability_mass", "feedback", "raw", "failure")
_WORK = ("n_prompt_tokens", "n_new_tokens", "seconds")
_SHOWN = 5  # reasons on a line


def record_of(answer: Answer, *, scores: Sequence[int], format: str | None, compares: bool = False) -> dict[str, Any]:
    """One verdict's columns, NaN or None where a failure leaves none, read from the text by its `format`.

    Without one, the mode of the distribution (the lowest of equals). Two compared responses have the scale (0, 1).
    """
    probabilities, mass = distribution(answer.score_logprobs, scores)
    if answer.failure is not None:
        verdict = Verdict(NAN, "", answer.text, answer.failure)
    elif format is None and not probabilities:
        verdict = Verdict(NAN, "", answer.text, "no score of the rubric has a probability")
    elif format is None and compares:
        first, second = probabilities.values()
        verdict = Verdict(NAN, "", "", choice="tie" if first == second else "a" if first > second else "b")
    elif format is None:
        verdict = Verdict(float(max(probabilities, key=probabilities.__getitem__)), "", "")
    else:
        verdict = parse(answer.text, scores=scores, format=format)
        if verdict.failure is not None and not answer.stopped:
            verdict = replace(verdict, failure=f"{verdict.failure} (cut off at {answer.n_new_tokens} tokens)")
    if verdict.failure is not None or verdict.abstained:
        probabilities, mass = {}, NAN
    return {
        "score": verdict.score,
        "choice": verdict.choice,
        "scores": list(verdict.scores) or None,
        "strong": verdict.strong,
        "expected_score": sum(score * share for score, share in probabilities.items()) if probabilities else NAN,
        "probabilities": {str(score): share for score, share in probabilities.items()} or None,
        "probability_mass": mass,
        "feedback": verdict.feedback,
        "raw": verdict.raw,
        "failure": verdict.failure,
        "n_prompt_tokens": answer.n_prompt_tokens,
        "n_new_tokens": answer.n_new_tokens,
        "seconds": answer.seconds,
    }


def distribution(logprobs: Mapping[int, float] | None, scores: Sequence[int]) -> tuple[dict[int, float], float]:
    """Log-probabilities as score -> probability over a scale, and its mass before; empty where there is none."""
    values = [] if logprobs is None else [logprobs.get(score, NAN) for score in scores]
    if not values or any(math.isnan(value) or value == math.inf for value in values):
        return {}, NAN
    highest = max(values)
    if highest == -math.inf:
        return {}, 0.0
    weights = [math.exp(value - highest) for value in values]
    total = sum(weights)
    return {score: weight / total for score, weight in zip(scores, weights, strict=True)}, total * math.exp(highest)


def fault_of(record: Mapping[str, Any], scores: Sequence[int], *, compares: bool) -> str | None:
    """What keeps a record that was read back from being a verdict on a scale; None for a sound one."""
    if lacking := [name for name in (*_READ, "choice", "scores", "strong", *_WORK) if name not in record]:
        return f"lacks {', '.join(lacking)}"
    low, high = (0, 1) if compares else (min(scores, default=-math.inf), max(scores, default=math.inf))
    for name in ("expected_score",) if compares else ("score", "expected_score"):
        value = record[name]
        if value is not None and not (isinstance(value, (int, float)) and low <= value <= high):
            return f"has the {name} {value!r}, off its scale ({low}-{high})"
    shares = record["probabilities"]
    if shares is not None and not (isinstance(shares, dict) and set(shares) == {str(score) for score in scores}):
        return f"has probabilities of other scores than its scale's ({low}-{high})"
    if not any(record[name] is not None for name in ("score", "choice", "failure")):
        return "has neither a score, a choice nor a failure"
    return None


def grades(
    records: Sequence[Mapping[str, Any]],
    carried: Sequence[Mapping[str, Any]],
    *,
    judge: str,
    mode: str,
    scale: tuple[int, int] | None = None,
    distributed: bool = True,
    **notes: Any,
) -> pd.DataFrame:
    """The table of `Judge.grade`; `distributed`: whether answers have a place where a distribution can be read."""
    samples, total = len(records) // len(carried), len(records)
    names = ["id", *(["sample"] if samples > 1 else []), *_READ, *_WORK]
    names += [name for name in ("choice", "scores") if any(record[name] for record in records)]
    columns: dict[str, list[Any]] = {name: [record[name] for record in records] for name in names}
    columns["probabilities"] = [
        shares and {int(score): share for score, share in shares.items()} for shares in columns["probabilities"]
    ]
    for name in ("gold", "human_scores", "group", "criteria", "category"):
        if any(name in row for row in carried):
            columns[name] = [row.get(name) for row in carried for _ in range(samples)]
    frame = _frame(columns)
    frame.insert(1, "judge", judge)
    abstained = sum(record["choice"] == "abstain" for record in records)
    silent = sum(record["failure"] is None and record["probabilities"] is None for record in records) - abstained
    blind = silent if distributed else 0
    lines = {
        f"{abstained} of {total} verdicts are abstentions": abstained,
        f"{blind} of {total} have a score and no distribution: no log-probabilities came with it, or it was written in"
        " other tokens than the scale's": blind,
    }
    own = {"without_distribution": blind, "abstained": abstained, "scale": scale}
    return _account(frame, records, own, lines, judge=judge, mode=mode, nouns=("verdicts", "items"), **notes)


def comparisons(
    records: Sequence[Mapping[str, Any]], carried: Sequence[Mapping[str, Any]], *, judge: str, mode: str, **notes: Any
) -> pd.DataFrame:
    """The table of `Judge.compare`, from its records, a pair's orders after each other, and each pair's own columns."""
    columns: dict[str, list[Any]] = {}
    counts = Counter(pairs=0, consistent=0, choices=0, first=0)
    n_orders = len(records) // len(carried)
    for place, pair in enumerate(carried):
        by_order = {record["order"]: record for record in records[place * n_orders : (place + 1) * n_orders]}
        choices = {  # on what was shown, in terms of the pair itself
            order: SWAPPED.get(record["choice"], record["choice"]) if order == "ba" else record["choice"]
            for order, record in by_order.items()
        }
        verdict, agree = combine(list(choices.values()))
        first = [record["choice"] == "a" for record in by_order.values() if record["choice"] in ("a", "b")]
        counts.update(choices=len(first), first=sum(first))
        if agree is not None and "abstain" not in choices.values():
            counts.update(pairs=1, consistent=int(agree))
        chances = [
            record["expected_score"] if order == "ba" else 1 - record["expected_score"]
            for order, record in by_order.items()
            if not is_missing(record["expected_score"])
        ]
        row: dict[str, Any] = {"id": pair["id"], "judge": judge, "verdict": verdict, "consistent": agree}
        row["probability_a"] = sum(chances) / len(chances) if len(chances) == n_orders else NAN
        row |= {f"verdict_{order}": choice for order, choice in choices.items()}
        failures = [f"{order}: {record['failure']}" for order, record in by_order.items() if record["failure"]]
        row["failure"] = "; ".join(failures) or None
        for name in ("scores", "strong", "feedback", "raw"):
            row |= {f"{name}_{order}": record[name] for order, record in by_order.items()}
        row |= {name: sum(record[name] for record in by_order.values()) for name in _WORK}
        row |= {name: pair[name] for name in ("preference", "group", "criteria", "category") if name in pair}
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    changed = counts["pairs"] - counts["consistent"]
    lines = {
        f"{changed} of {counts['pairs']} verdicts changed with the order; the first response was chosen in"
        f" {counts['first']} of {counts['choices']} choices": changed
    }
    own, nouns = {"position": dict(counts)}, ("comparisons", "pairs")
    return _account(_frame(columns), records, own, lines, judge=judge, mode=mode, nouns=nouns, **notes)


def combine(choices: Sequence[str | None]) -> tuple[str | None, bool | None]:
    """What the verdicts of a pair's orders say together.

    Args:
        choices: one for each order, in terms of the pair; None where there is no verdict.

    Returns:
        The combined verdict and whether the orders agree. The side with more points wins, a choice counting one point
        and a tie none: a choice and a tie make that choice, a choice of each side makes a tie. Without a verdict in
        some order there is none; an abstention in some order is one. With a single order nothing is known of agreement.

    >>> combine(["a", "a"]), combine(["a", "tie"]), combine(["a", "b"]), combine(["a", None])
    (('a', True), ('a', False), ('tie', False), (None, None))

    Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning, sums points over both orders likewise.
    """
    agree = None if len(choices) < 2 or None in choices else len(set(choices)) == 1
    if None in choices:
        return None, agree
    if "abstain" in choices:
        return "abstain", agree
    points = sum(POINTS[choice] for choice in choices if choice)
    return "a" if points > 0 else "b" if points < 0 else "tie", agree


def one_sided(preferences: Iterable[Any]) -> dict[str, int] | None:
    """How many known preferences are for `first` among the `decided`; None where they are not `ONE_SIDED`.

    >>> one_sided(["a"] * 20 + ["tie"]), one_sided(["a"] * 5), one_sided("aababaab")
    ({'first': 20, 'decided': 20}, None, None)
    """
    counts = Counter(choice for choice in preferences if choice in ("a", "b"))
    first, decided = counts["a"], counts.total()
    if not decided or max(first, decided - first) < ONE_SIDED * decided:
        return None
    from scipy.stats import binomtest  # seldom needed

    return {"first": first, "decided": decided} if binomtest(first, decided).pvalue < CHANCE else None


def in_order(pair: Pair, order: str) -> Pair:
    """The pair as it is put to the judge in an order."""
    if order == "ab":
        return pair
    return replace(pair, response_a=pair.response_b, response_b=pair.response_a, preference=None)


def pairs_of(candidates: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every two responses of each row as a pair, named "id/i-j"."""
    for row in candidates:
        shared = {name: value for name, value in row.items() if name not in ("responses", "id", "preference")}
        for (i, a), (j, b) in combinations(enumerate(row["responses"]), 2):
            yield {**shared, "id": f"{row['id']}/{i}-{j}", "response_a": a, "response_b": b}


def singles_of(candidates: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every response of each row by itself, named "id/i"."""
    for row in candidates:
        shared = {name: value for name, value in row.items() if name not in ("responses", "id", "gold", "human_scores")}
        for i, response in enumerate(row["responses"]):
            yield {**shared, "id": f"{row['id']}/{i}", "response": response}


def check_rows(rows: Sequence[Mapping[str, Any]], field: str, sound: Sequence[bool], what: str, remedy: str) -> None:
    """Refuse rows without an id of their own or whose field is not sound, all of them by CollectionError."""
    problems = []
    ids: set[str] = set()
    for index, (row, fine) in enumerate(zip(rows, sound, strict=True)):
        id = None if is_missing(row.get("id")) else str(row["id"])
        if id is None or id in ids:
            problems.append(Problem(index, id, "id", "is missing or not unique", "give every row its own id"))
        if not fine:
            problems.append(Problem(index, id, field, what, remedy))
        ids.add(str(id))
    if problems:
        raise CollectionError.of_rows(problems, len(rows))


def ranking(candidates: Iterable[Mapping[str, Any]], judged: pd.DataFrame, *, judge: str, by: str) -> pd.DataFrame:
    """The table of a ranking, one row a candidate, from the frame of `Judge.compare` or `Judge.grade`."""
    verdicts = {row["id"]: row for row in judged.to_dict("records")}
    orders = [order for order in ORDERS if f"verdict_{order}" in judged]
    rows: list[dict[str, Any]] = []
    for row in candidates:
        responses = row["responses"]
        points: list[list[float]] = [[] for _ in responses]
        expected = 1 if by == "scores" else len(orders) * (len(responses) - 1)
        for i, own in enumerate(points if by == "scores" else ()):
            verdict = verdicts[f"{row['id']}/{i}"]
            score = verdict["score"] if is_missing(verdict["expected_score"]) else verdict["expected_score"]
            own += [] if is_missing(score) else [score]
        for i, j in combinations(range(len(responses)), 2) if by == "pairs" else ():
            choices = (verdicts[f"{row['id']}/{i}-{j}"][f"verdict_{order}"] for order in orders)
            wins = [POINTS[choice] for choice in choices if choice in POINTS]
            points[i] += wins
            points[j] += [-win for win in wins]
        values = [sum(own) / len(own) if own else NAN for own in points]
        for i, (value, response) in enumerate(zip(values, responses, strict=True)):
            rank = NAN if math.isnan(value) else 1.0 + sum(other > value for other in values)
            line = {"id": row["id"], "judge": judge, "candidate": i, "response": response, "value": value}
            line |= {"rank": rank, "best": rank == 1, "n": len(points[i]), "missing": expected - len(points[i])}
            line |= {"true_rank": row["ranks"][i]} if row.get("ranks") else {}
            line |= {"category": row["category"]} if "category" in row else {}
            rows.append(line | {"group": unit_of(row)})
    frame = pd.DataFrame(rows)
    frame.attrs = {name: judged.attrs[name] for name in ("judge", "mode", "failures", "low_mass", "without_images")}
    return frame


def _frame(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """A table whose texts, None and dicts stay as they are."""
    return pd.DataFrame({name: pd.Series(cells, dtype=_KINDS.get(name, object)) for name, cells in columns.items()})


def _account(
    frame: pd.DataFrame,
    records: Sequence[Mapping[str, Any]],
    own: Mapping[str, Any],
    lines: Mapping[str, int],
    *,
    judge: str,
    mode: str,
    nouns: tuple[str, str],
    without_images: int = 0,
    unlike: Mapping[str, int] | None = None,
    suggested: str | None = None,
    collection: Mapping[str, Any] | None = None,
    one_sided: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """The table with what it lacks counted in its `attrs` and said on one line; nothing is said of a whole one."""
    total = len(records)
    reasons = Counter(record["failure"] for record in records if record["failure"] is not None)
    masses = [record["probability_mass"] for record in records if record["failure"] is None] if mode == "score" else []
    low = sum(mass is not None and mass < LOW_MASS for mass in masses)
    seldom = {"unlike": unlike, "suggested_format": suggested, "collection": collection, "one_sided": one_sided}
    frame.attrs = {"judge": judge, "mode": mode, "failures": dict(reasons), **own}
    frame.attrs |= {"low_mass": low, "without_images": without_images}
    frame.attrs |= {name: value for name, value in seldom.items() if value}
    listed = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common(_SHOWN))
    more = f", and {len(reasons) - _SHOWN} more reasons" if len(reasons) > _SHOWN else ""
    sides, looks = one_sided or {"first": 0, "decided": 0}, unlike or {"rows": 0, "pictures": 0, "texts": 0}
    kinds = [f"{looks[kind]} have {kind}" for kind in ("pictures", "texts") if looks[kind]]
    remarks: dict[str, Any] = {
        f"both orders were asked: {sides['first']} of {sides['decided']} known preferences are for the first response,"
        " and a judge that always takes one side would be right there by the order alone": one_sided,
        f"{reasons.total()} of {total} {nouns[0]} failed: {listed}{more}": reasons,
        f"format {suggested!r} would read most of them: give load_judge a template= with it, if the judge writes"
        " so": suggested,
        **lines,
        f"{low} of {total} {nouns[0]} rest on less than {LOW_MASS:g} of the probability: the judge would rather have"
        " written something else there": low,
        f"{without_images} {nouns[1]} have no image and were judged without": without_images,
        f"of {looks['rows']} rows looked at, {' and '.join(kinds)} unlike those of Scenes, the drawings that {judge!r}"
        " was made for: its scores mean nothing there": kinds,
    }
    if line := "; ".join(remark for remark, applies in remarks.items() if applies):
        print(line, file=sys.stderr)
    return frame
