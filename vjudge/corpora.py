"""Rows of published training sets of judges whose labels are strings or prose: read right, or a reason why not.

- LLaVA-Critic-113k: a prompt and an answer in many forms. Rows of its "pointwise" part that hold a pair are told from
  their prompt and answer, never from the part they stand in.
- Preference-Collection: scores and preferences are strings, and a rubric has no level descriptions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vjudge.parse import parse
from vjudge.records import Verdict, as_score, is_missing

_PAIR_PROMPT = re.compile(
    r"Question: \[(?P<question>.*)\]\nThe first response: \[(?P<a>.*)\]\n"
    r"The second response: \[(?P<b>.*)\]\nASSISTANT:",
    re.DOTALL,
)
_SINGLE_PROMPT = re.compile(r"Question: \[(?P<question>.*)\]\nThe LMM response: \[(?P<a>.*)\]\nASSISTANT:", re.DOTALL)
_HEADERS = ("]\nThe first response: [", "]\nThe second response: [", "]\nThe LMM response: [")
# Two named answers anywhere in a prompt of another wording.
_TWO_ANSWERS = tuple(
    (re.compile(rf"\b{noun} {first}\b", re.IGNORECASE), re.compile(rf"\b{noun} {second}\b", re.IGNORECASE))
    for noun in ("assistant", "response", "answer", "model", "caption")
    for first, second in (("1", "2"), ("A", "B"))
) + ((re.compile(r"\bfirst (?:response|answer)\b", re.I), re.compile(r"\bsecond (?:response|answer)\b", re.I)),)
_SCALE = re.compile(
    r"\b(?:out of (?P<top>[0-9]{1,3})\b|(?:scale|range|between|from)(?: of| from)? (?P<low>[0-9]) ?(?:to|-|and) ?"
    r"(?P<high>[0-9]{1,3})\b)",
    re.IGNORECASE,
)


class RowError(ValueError):
    """A row can't be read as what its data set says it is; the message names the field and the reason."""


@dataclass(frozen=True)
class CriticRow:
    """One row of LLaVA-Critic-113k.

    Args:
        id, source: as in the row.
        images: the row's image, if it has one.
        kind: "pointwise" or "pairwise", by prompt and answer; None where neither tells.
        prompt: the judge's prompt without image marks at its start.
        instruction, responses: what was asked and answered, where the prompt has the published wording.
        verdict: what the answer says, or the reason why it can't be read.
    """

    id: str
    source: str
    images: tuple[Any, ...]
    kind: str | None
    prompt: str
    instruction: str | None
    responses: tuple[str, ...]
    verdict: Verdict


def read_critic(row: Mapping[str, Any]) -> CriticRow:
    """Read one row of LLaVA-Critic-113k, pointwise or pairwise.

    Args:
        row: `id`, `source`, `conversations` (a human and a gpt turn) and `image`.

    Returns:
        The row. A pointwise verdict is a score from 0 to 100; one on another scale, or without a scale in its prompt,
        is a failure that says so. A pairwise verdict is a choice.

    Raises:
        RowError: `conversations` is not one question and one answer.

    Source: lmms-lab/llava-critic-113k (the columns); LLaVA-VL/LLaVA-NeXT#461 (the mixture).
    """
    turns = row.get("conversations")
    try:
        asked, answered = ((turn["from"], turn["value"]) for turn in turns or ())
    except (TypeError, KeyError, ValueError) as error:
        raise RowError("conversations: is not one human and one gpt turn") from error
    if (asked[0], answered[0]) != ("human", "gpt") or not all(isinstance(turn[1], str) for turn in (asked, answered)):
        raise RowError("conversations: is not one human and one gpt turn")
    prompt = re.sub(r"\A(?:\s{0,3}<image>\s{0,3})+", "", asked[1])
    match = _PAIR_PROMPT.search(prompt) or _SINGLE_PROMPT.search(prompt)
    if match and any(prompt.count(header) > 1 for header in _HEADERS):
        match = None  # a response that holds a header of its own: the sections can't be told apart
    pair = parse(answered[1], format="llava-critic-pair")
    kind = _kind(prompt, pair)
    groups = match.groupdict() if match else {}
    return CriticRow(
        id=str(row.get("id")),
        source=str(row.get("source", "")),
        images=() if is_missing(row.get("image")) else (row["image"],),
        kind=kind,
        prompt=prompt,
        instruction=groups.get("question"),
        responses=tuple(groups[name] for name in ("a", "b") if name in groups),
        verdict=pair if kind == "pairwise" else _pointwise(prompt, answered[1]),
    )


def _kind(prompt: str, pair: Verdict) -> str | None:
    if "]\nThe LMM response: [" in prompt:
        return "pointwise"
    if "]\nThe first response: [" in prompt and "]\nThe second response: [" in prompt:
        return "pairwise"
    two = any(first.search(prompt) and second.search(prompt) for first, second in _TWO_ANSWERS)
    if pair.failure is None:
        return "pairwise"  # two scores, or a choice: no answer about a single response reads so
    return None if two else "pointwise" if _SCALE.search(prompt) else None


def _pointwise(prompt: str, answer: str) -> Verdict:
    """A score from 0 to 100, or why it is none."""
    scales = {(int(found["low"] or 0), int(found["high"] or found["top"])) for found in _SCALE.finditer(prompt)}
    wrong = ""
    if not scales:
        wrong = "the prompt names no scale"
    elif {high for _, high in scales} != {100}:
        named = " and ".join(f"{low}-{high}" for low, high in sorted(scales))
        wrong = f"the prompt's scale is {named}, not 0-100"
    if wrong:
        return Verdict(math.nan, answer.strip(), answer, wrong)
    return parse(answer, format="llava-critic")


def read_preference(row: Mapping[str, Any], *, id: str) -> dict[str, Any]:
    """Read one row of Preference-Collection as a canonical pair.

    Args:
        row: with the published columns; scores and preference are strings.
        id: the row has none.

    Returns:
        `id`, `images` (none), `instruction`, `response_a`, `response_b`, `reference_answer`, `criteria`, `preference`
        ("a" or "b"), `feedback`, `score_a`, `score_b` (1-5, NaN where missing).

    Raises:
        RowError: a text is missing, a score is no whole number from 1 to 5, the preference is neither A nor B, or it
            contradicts the scores; all of these at once.

    Source: prometheus-eval/Preference-Collection (the columns).
    """
    texts = {
        "instruction": "orig_instruction",
        "response_a": "orig_response_A",
        "response_b": "orig_response_B",
        "criteria": "orig_criteria",
    }
    faults = []
    for column in texts.values():
        if not isinstance(row.get(column), str) or not row[column].strip():
            faults.append(f"{column}: is missing or blank")
    scores = {}
    for name, column in (("score_a", "orig_score_A"), ("score_b", "orig_score_B")):
        try:
            scores[name] = as_score(row.get(column))
        except ValueError as error:
            scores[name] = math.nan
            faults.append(f"{column}: {error}")
            continue
        if not math.isnan(scores[name]) and scores[name] not in (1, 2, 3, 4, 5):
            faults.append(f"{column}: {scores[name]:g} is not a whole number from 1 to 5")
    preference = str(row.get("orig_preference")).strip().lower()
    if preference not in ("a", "b"):
        faults.append(f"orig_preference: {row.get('orig_preference')!r} is neither A nor B")
    else:
        other = {"a": "b", "b": "a"}[preference]
        if scores[f"score_{preference}"] < scores[f"score_{other}"]:
            said = f"A {scores['score_a']:g}, B {scores['score_b']:g}"
            faults.append(f"orig_preference: {preference.upper()} contradicts the scores ({said})")
    if faults:
        raise RowError("; ".join(faults))
    reference = row.get("orig_reference_answer")
    feedback = row.get("orig_feedback")
    return {
        "id": id,
        "images": [],
        **{name: row[column] for name, column in texts.items()},
        "reference_answer": None if is_missing(reference) or not str(reference).strip() else str(reference),
        "preference": preference,
        "feedback": None if is_missing(feedback) else str(feedback),
        **scores,
    }
