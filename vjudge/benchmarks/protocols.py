"""How each benchmark is run: its wording, draws, order and decoding, and its own reader of answers.

To add one, add its fields to `../assets/protocols.json`. What a benchmark's code leaves open stands
in `open`; what keeps every run from being official, in `unofficial`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from vjudge.prompts.wordings import read_asset

_Kind = TypeVar("_Kind")

# What an answer says of the two responses as shown, given which of them people prefer ("a" is the
# first; None where they have none): "a", "b", "tie", or None where it says nothing.
Reader = Callable[[str, str | None], str | None]


@dataclass(frozen=True)
class Protocol:
    """One published way to run a benchmark."""

    source: str  # where it was read
    call: str = "compare"  # the method of `Judge`: "grade", "compare" or "rank"
    template: str | None = None  # the wording; None for the judge's own
    wordings: Mapping[str, str] = field(default_factory=dict)  # by category, in template's place
    quality: str = ""  # the wording of `viescore` that grades a picture by itself
    options: Mapping[str, Any] = field(default_factory=dict)  # of the call
    reader: Reader | None = None  # the benchmark's own; None for the wording's format
    score_reader: Callable[[str], float] | None = None  # the same of scores
    collection: str = ""  # what `load_collection` loads
    n_items: int = 0  # of the whole benchmark
    open: str = ""  # what the published code leaves open
    unofficial: str = ""  # why no run of it is official
    own: tuple[str, ...] = ()  # families whose own wording and decoding are the published ones


def read_overall_judgment(text: str, preferred: str | None) -> str | None:
    """VL-RewardBench's reader, to the letter: any other number than that of the rejected answer
    counts for the preferred one.

    >>> read_overall_judgment("**Overall Judgment:**\\nAnswer 2 is slightly better.", "a")
    'b'

    Source: vl-rewardbench/VL_RewardBench inference_hf.py (process_item).
    """
    pattern = (
        r"(?:Overall Judgment|Therefore)\s*.*\s*-*\s*Answer\s*(\d+)\s*is\s*(?:the\s*)?"
        r"(?:slightly\s*)?better"
    )
    match = re.search(pattern, text.replace("\n", "").replace("*", ""), re.IGNORECASE)
    if match is None:
        return None
    rejected = _other(preferred)
    choice = {1: "a", 2: "b"}.get(int(match[1]))
    return rejected if choice == rejected else preferred


def read_right_phrase(text: str, preferred: str | None) -> str | None:
    """UnifiedReward's reader, to the letter: right where the right phrase stands anywhere.

    >>> read_right_phrase("Answer 1 is better, or Answer 2 is better.", "b")
    'b'

    Source: CodeGoat24/UnifiedReward benchmark_evaluation/LLaVA_evaluation/
    test_llava_vlrewardbench.py.
    """
    number = 1 if preferred == "a" else 2
    return preferred if f"Answer {number} is better" in text else _other(preferred)


def read_answer_tag(text: str, preferred: str | None) -> str | None:
    """R1-Reward's reader, to the letter: the number between the first tags, else the last 1 or 2.

    A number that is not 1 is the second answer; what is no number counts as wrong.

    >>> read_answer_tag("<think>2?</think><answer> 1 </answer>", "b"), read_answer_tag("So 2.", "b")
    ('a', 'b')

    Source: yfzhang114/r1_reward@3693413 inference/VL-Reward-Bench/r1_reward.py.
    """
    numbers = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)[:1]
    if not numbers:
        numbers = re.findall(r"[12]", text)[-1:]
    try:
        return "a" if float(numbers[0]) == 1 else "b"
    except (IndexError, ValueError):
        return _other(preferred)


def read_arena(text: str, preferred: str | None) -> str:
    """WildVision-Bench's reader, to the letter: an answer that can't be read is a tie.

    >>> read_arena("My final verdict is [[B>>A]]", None), read_arena("Neither.", None)
    ('b', 'tie')

    Source: EvolvingLMMs-Lab/lmms-eval@01d6045 wild_vision_bench/utils.py.
    """
    labels = set(re.findall(r"\[\[([AB<>=]+)\]\]", text))
    if len(labels) == 1:
        text = labels.pop()
    signs = {"A>B": "a", "A>>B": "a", "A=B": "tie", "B>A": "b", "B>>A": "b"}
    for sign, verdict in signs.items():
        if sign in text:
            return verdict
    return "tie"


def read_four(text: str, preferred: str | None) -> str | None:
    """GenAI-Bench's reader, to the letter: all from the first to the last brackets of a line.

    >>> read_four("Both fail: [[A=B=Bad]]", None), read_four("[[A>B]] or [[B>A]]", None)
    ('both bad', None)

    Source: TIGER-AI-Lab/GenAI-Bench@f0b0334 inference.py (parse_response).
    """
    signs = {"A>B": "a", "A>>B": "a", "B>A": "b", "B>>A": "b", "A=B": "tie"}
    signs |= {"A=B=Good": "both good", "A=B=Bad": "both bad"}
    match = re.search(r"\[\[(.*)\]\]", text)
    return signs.get(match[1]) if match else None


def read_marked_score(text: str) -> float:
    """MM-JudgeBias's reader, to the letter: the first number behind the last marker, else the last;
    of a text that is a number this one.

    >>> read_marked_score("### Feedback: 2 of 3. ### Score: 7/10"), read_marked_score("So 4, or 5")
    (7.0, 5.0)

    Source: naver-ai/MM-JudgeBias@c8597b2 mm_judgebias/scoring.py.
    """
    with suppress(ValueError):
        return float(text)
    number = r"[0-9]+(?:\.[0-9]+)?"
    _, marker, tail = text.rpartition("### Score:")
    numbers = re.findall(number, tail)[:1] if marker else []
    numbers = numbers or re.findall(number, text)[-1:]
    return float(numbers[0]) if numbers else math.nan


def _other(preferred: str | None) -> str | None:
    return {"a": "b", "b": "a"}.get(str(preferred))


READERS = (
    read_overall_judgment,
    read_right_phrase,
    read_answer_tag,
    read_arena,
    read_four,
    read_marked_score,
)


def table_of(file: str, kind: Callable[..., _Kind]) -> dict[str, _Kind]:
    """The rows of a table of the assets by name, each like another one but for what it states."""
    rules: dict[str, Any] = {}
    readers = {reader.__name__: reader for reader in READERS}
    for name, row in read_asset(file).items():
        like = row.pop("like", None)
        for column in row.keys() & {"reader", "score_reader"}:
            row[column] = readers[row[column]]
        rules[name] = replace(rules[like], **row) if like else kind(**row)
    return rules


PROTOCOLS = table_of("protocols", Protocol)
"""By name; "BENCHMARK by FAMILY" is how the authors of a judge ran it on a benchmark."""
