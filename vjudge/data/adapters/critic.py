"""LLaVA-Critic-113k: a prompt and an answer in many forms.

A row is told from its prompt and its answer, never from the part that it stands in: the pointwise part holds pairs too.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vjudge.data.adapters.adapter import Adapter, Row, images, rest
from vjudge.data.schema import BadRow
from vjudge.prompts.parse import parse
from vjudge.records import Verdict

PARTS = ("pointwise", "pairwise")
_LOOKED_AT = 200  # rows, to tell a part
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


@dataclass(frozen=True)
class Reading:
    """What one row says.

    Args:
        kind: "pointwise" or "pairwise", by prompt and answer; None where neither tells.
        prompt: the judge's prompt without image marks at its start.
        answer: what the judge answered; the target of training.
        instruction, responses: what was asked and answered, where the prompt has the published wording.
        verdict: a score from 0 to 100, a choice, or the reason why there is neither.
    """

    kind: str | None
    prompt: str
    answer: str
    instruction: str | None
    responses: tuple[str, ...]
    verdict: Verdict


def read(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row as an item scored from 0 to 100 ("pointwise") or as a pair ("pairwise").

    A row that can't be read as what its part holds stays, with what is known of it, without a label, and with the
    reason in `fault`. `prompt` and `target` hold the row's own texts, for training.

    Source: lmms-lab/llava-critic-113k (the columns); LLaVA-VL/LLaVA-NeXT#461 (the mixture).
    """
    found = interpret(row)
    part = part or found.kind or PARTS[0]
    verdict = found.verdict
    fault = verdict.failure
    if found.kind is None:
        fault = "neither prompt nor answer tells whether one response is scored or two are compared"
    elif found.kind != part:
        fault = f"the row is {found.kind} and stands in the {part} part"
    elif not found.responses:
        fault = f"the prompt is in another wording, so its texts cannot be told apart{f'; {fault}' if fault else ''}"
    sound = found.kind == part
    made = {
        **rest(row, "conversations", "image"),
        "images": images(row),
        "instruction": found.instruction if sound else None,
        "feedback": verdict.feedback or None,
        "prompt": found.prompt,
        "target": found.answer,
        "fault": fault,
    }
    if part == "pairwise":
        first, second = found.responses if sound and len(found.responses) == 2 else (None, None)
        choice = verdict.choice if sound and verdict.choice in ("a", "b", "tie") else None
        return made | {"response_a": first, "response_b": second, "preference": choice}
    gold = verdict.score if sound else math.nan
    return made | {"response": found.responses[0] if sound and found.responses else None, "gold": gold}


def interpret(row: Row) -> Reading:
    """Tell what kind a row is, take its prompt apart and read its answer.

    Raises:
        BadRow: `conversations` is not one question and one answer.
    """
    fault = ("conversations", "is not one human and one gpt turn", "correct it or leave the row out")
    try:
        asked, answered = ((turn["from"], turn["value"]) for turn in row.get("conversations") or ())
    except (TypeError, KeyError, ValueError) as error:
        raise BadRow(fault) from error
    if (asked[0], answered[0]) != ("human", "gpt") or not all(isinstance(turn[1], str) for turn in (asked, answered)):
        raise BadRow(fault)
    prompt = re.sub(r"\A(?:\s{0,3}<image>\s{0,3})+", "", asked[1])
    match = _PAIR_PROMPT.search(prompt) or _SINGLE_PROMPT.search(prompt)
    if match and any(prompt.count(header) > 1 for header in _HEADERS):
        match = None  # a response that holds a header of its own: the sections can't be told apart
    pair = parse(answered[1], format="llava-critic-pair")
    kind = _kind(prompt, pair)
    groups = match.groupdict() if match else {}
    return Reading(
        kind=kind,
        prompt=prompt,
        answer=answered[1],
        instruction=groups.get("question"),
        responses=tuple(groups[name] for name in ("a", "b") if name in groups),
        verdict=pair if kind == "pairwise" else _pointwise(prompt, answered[1]),
    )


def settle(rows: Iterable[Row]) -> str:
    """Which part rows are of: what most of the first ones are."""
    kinds: Counter[str | None] = Counter()
    for row in itertools.islice(rows, _LOOKED_AT):
        try:
            kinds[interpret(row).kind] += 1
        except BadRow:
            continue
    return max(PARTS, key=lambda part: kinds[part])


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


LLAVA_CRITIC_113K = Adapter(
    "LLaVA-Critic-113k",
    columns=("source", "conversations", "image"),
    signature=("source", "conversations"),
    read=read,
    ids=("lmms-lab/LLaVA-Critic-113k",),
    parts=PARTS,
    settle=settle,
    repeats_ids=True,
)
