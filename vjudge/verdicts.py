"""Engine answers -> verdict records -> the table a researcher works with.

A record is what a run keeps of one verdict, in plain JSON values. The table is built from records alone, whether they
were just computed or read back, so that a continued run ends in the same table as an unbroken one.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from vjudge.prompts.parse import parse
from vjudge.records import NAN, Verdict

if TYPE_CHECKING:
    from vjudge.engines import Answer

NUMBERS = ("score", "expected_score", "probability_mass")
CARRIED = ("gold", "human_scores", "group", "criteria")


def record(answer: Answer, *, scores: Sequence[int], format: str | None, choices: bool = False) -> dict[str, Any]:
    """Read one answer.

    Args:
        answer: from an engine.
        scores: the rubric's scale.
        format: how the judge writes its verdict, see `vjudge.prompts.parse`; None for a score pass, whose score is
            the mode of the distribution (the lowest of equals).
        choices: whether two responses were compared; `scores` is then (0, 1), the first and the second.

    Returns:
        The verdict's columns; those that a failure leaves without a value are NaN or None.
    """
    probabilities, mass = distribution(answer.score_logprobs, scores)
    if answer.failure is not None:
        verdict = Verdict(NAN, "", answer.text, answer.failure)
    elif format is None and not probabilities:
        verdict = Verdict(NAN, "", answer.text, "no score of the rubric has a probability")
    elif format is None and choices:
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
    """Normalise log-probabilities over a scale.

    Returns:
        score -> probability (empty where there are no log-probabilities, or none of a score's), and the mass the scale
        had before (NaN without log-probabilities).
    """
    if logprobs is None:
        return {}, NAN
    highest = max(logprobs[score] for score in scores)
    if highest == -math.inf:
        return {}, 0.0
    weights = {score: math.exp(logprobs[score] - highest) for score in scores}
    total = sum(weights.values())
    return {score: weight / total for score, weight in weights.items()}, total * math.exp(highest)


def table(
    verdicts: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    *,
    judge: str,
    mode: str,
    several: bool,
    scale: tuple[int, int] | None = None,
    distributed: bool = True,
) -> pd.DataFrame:
    """The table of a run, and one line on standard error about what is missing from it.

    Args:
        verdicts: for each verdict its record and the columns carried along, in the collection's order.
        judge, mode: of the run.
        several: whether an item has several samples, so that a column numbers them.
        scale: lowest and highest score where the judge has a scale of its own; None for the rubric's.
        distributed: whether the judge's answers have a place where a distribution can be read at all.
    """
    records = [record for record, _ in verdicts]
    columns: dict[str, Any] = {"id": _objects(record["id"] for record in records), "judge": judge}
    if several:
        columns["sample"] = [record["sample"] for record in records]
    for name in ("score", "expected_score", "probabilities", "probability_mass", "feedback", "raw", "failure"):
        values = [record[name] for record in records]
        if name in NUMBERS:
            columns[name] = pd.Series(values, dtype="float64")
        elif name == "probabilities":
            columns[name] = _objects(
                value and {int(score): share for score, share in value.items()} for value in values
            )
        else:
            columns[name] = _objects(values)
    for name, kind in (("n_prompt_tokens", "int64"), ("n_new_tokens", "int64"), ("seconds", "float64")):
        columns[name] = pd.Series([record[name] for record in records], dtype=kind)
    if any(record.get("choice") is not None for record in records):
        columns["choice"] = _objects(record.get("choice") for record in records)
    for name in CARRIED:
        if any(name in carried for _, carried in verdicts):
            column = [carried.get(name) for _, carried in verdicts]
            columns[name] = pd.Series(column, dtype="float64") if name == "gold" else _objects(column)
    frame = pd.DataFrame(columns)
    reasons = Counter(record["failure"] for record in records if record["failure"] is not None)
    abstained = sum(record.get("choice") == "abstain" for record in records)
    silent = sum(record["failure"] is None and record["probabilities"] is None for record in records) - abstained
    blind = silent if distributed else 0
    frame.attrs = {"judge": judge, "mode": mode, "failures": dict(reasons), "without_distribution": blind}
    frame.attrs |= {"abstained": abstained, "scale": scale}
    _report(len(records), reasons, blind, abstained)
    return frame


def _objects(values: Iterable[Any]) -> pd.Series:
    """A column that keeps texts, None and dicts as they are."""
    return pd.Series(list(values), dtype=object)


def _report(total: int, reasons: Counter[str], blind: int, abstained: int) -> None:
    """Say on one line what a table lacks; nothing when it is whole."""
    parts = []
    if reasons:
        counts = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common(5))
        more = f", and {len(reasons) - 5} more reasons" if len(reasons) > 5 else ""
        parts.append(f"{sum(reasons.values())} of {total} verdicts failed: {counts}{more}")
    if abstained:
        parts.append(f"{abstained} of {total} verdicts are abstentions")
    if blind:
        parts.append(
            f"{blind} of {total} have a score and no distribution: no log-probabilities came with it, or it was written"
            " in other tokens than the scale's"
        )
    if parts:
        print("; ".join(parts), file=sys.stderr)
