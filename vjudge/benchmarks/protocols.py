"""How each benchmark is run, how its own code reads answers, and what it reports.

To add a benchmark, add its fields to `../assets/protocols.json` and `../assets/benchmarks.json`. A
protocol's field `open` says what the published code leaves open; `unofficial` says what keeps every
run from being official.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

import pandas as pd

from vjudge.judging.comparing import SWAPPED
from vjudge.prompts.choices import DEGREES
from vjudge.prompts.wordings import read_asset

_Kind = TypeVar("_Kind")

# Reads the choice between two responses from an answer: "a" (the response shown first), "b", "tie",
# or None where the answer holds none. Its second argument is the response that people prefer, None
# where that is unknown: some published readers look at it.
Reader = Callable[[str, str | None], str | None]


@dataclass(frozen=True)
class Protocol:
    """One published way to run a benchmark."""

    source: str  # where it was read
    call: str = "compare"  # the method of `Judge`: "grade", "compare" or "rank"
    template: str | None = None  # the prompt template; None for the judge's own
    wordings: Mapping[str, str] = field(default_factory=dict)  # category -> template, if several
    quality: str = ""  # the template by which `viescore` grades an image by itself
    options: Mapping[str, Any] = field(default_factory=dict)  # of the call
    reader: Reader | None = None  # the benchmark's own; None for the template's format
    score_reader: Callable[[str], float] | None = None  # the same for scores
    collection: str = ""  # what `load_collection` loads
    n_items: int = 0  # in the complete benchmark
    open: str = ""  # what the published code leaves open
    unofficial: str = ""  # why no run of it is official
    # judge families for which their own template and decoding are the published ones
    own: tuple[str, ...] = ()


def read_overall_judgment(text: str, preferred: str | None) -> str | None:
    """Read an answer as VL-RewardBench's code does, with its quirk.

    Any number other than that of the response people rejected counts for the preferred response.

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
    choice = {1: "a", 2: "b"}.get(int(match[1]))
    rejected = SWAPPED.get(preferred or "")  # None where the preference is unknown
    return rejected if choice == rejected else preferred


def read_right_phrase(text: str, preferred: str | None) -> str | None:
    """Read an answer as UnifiedReward's code does, with its quirk.

    The answer is right if the phrase for the preferred response stands anywhere in it, else wrong.

    >>> read_right_phrase("Answer 1 is better, or Answer 2 is better.", "b")
    'b'

    Source: CodeGoat24/UnifiedReward benchmark_evaluation/LLaVA_evaluation/
    test_llava_vlrewardbench.py.
    """
    number = 1 if preferred == "a" else 2
    return preferred if f"Answer {number} is better" in text else SWAPPED.get(preferred or "")


def read_answer_tag(text: str, preferred: str | None) -> str | None:
    """Read an answer as R1-Reward's code does: the first answer tag, else the last 1 or 2.

    A number other than 1 means the second response; a text that is no number counts as wrong.

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
        return SWAPPED.get(preferred or "")


def read_arena(text: str, preferred: str | None) -> str:
    """Read an answer as WildVision-Bench's code does: an unreadable answer is a tie.

    `preferred` is not used.

    >>> read_arena("My final verdict is [[B>>A]]", None), read_arena("Neither.", None)
    ('b', 'tie')

    Source: EvolvingLMMs-Lab/lmms-eval@01d6045 wild_vision_bench/utils.py.
    """
    # Where several different labels, or none, are in brackets, the code searches the whole text.
    labels = set(re.findall(r"\[\[([AB<>=]+)\]\]", text))
    if len(labels) == 1:
        text = labels.pop()
    for label, choice in DEGREES.items():
        if label in text:
            return choice
    return "tie"


def read_four(text: str, preferred: str | None) -> str | None:
    """Read an answer as GenAI-Bench's code does: from the first to the last brackets of a line.

    `preferred` is not used.

    >>> read_four("Both fail: [[A=B=Bad]]", None), read_four("[[A>B]] or [[B>A]]", None)
    ('both bad', None)

    Source: TIGER-AI-Lab/GenAI-Bench@f0b0334 inference.py (parse_response).
    """
    choices = DEGREES | {"A=B=Good": "both good", "A=B=Bad": "both bad"}
    match = re.search(r"\[\[(.*)\]\]", text)
    return choices.get(match[1]) if match else None


def read_marked_score(text: str) -> float:
    """Read a score as MM-JudgeBias's code does.

    It is the text itself if that is a number; else the first number behind the last "### Score:";
    else the last number of the text; NaN where there is none.

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


READERS = (
    read_overall_judgment,
    read_right_phrase,
    read_answer_tag,
    read_arena,
    read_four,
    read_marked_score,
)


def table_of(file: str, kind: Callable[..., _Kind]) -> dict[str, _Kind]:
    """Load a JSON table of the assets as objects by name.

    Args:
        file: the table's name, without ".json".
        kind: the class of the objects, `Protocol` or `Benchmark`; a row has its fields.

    A row with the field `like` copies the row of that name, and replaces the fields that it states.
    The fields `reader` and `score_reader` name functions of `READERS`.
    """
    objects: dict[str, Any] = {}
    readers = {reader.__name__: reader for reader in READERS}
    for name, row in read_asset(file).items():
        copied = row.pop("like", None)
        for column in row.keys() & {"reader", "score_reader"}:
            row[column] = readers[row[column]]
        objects[name] = replace(objects[copied], **row) if copied else kind(**row)
    return objects


PROTOCOLS = table_of("protocols", Protocol)
"""Protocols by name. "BENCHMARK by FAMILY" is how the authors of a judge ran it on a benchmark."""


def protocol_table() -> pd.DataFrame:
    """List the protocols, one row each: prompt template, draws, orders, temperature, open choices.

    >>> protocol_table().loc["vl-rewardbench", ["wording", "orders"]].tolist()
    ['vl-rewardbench', 'random']
    """
    rows = {}
    for name, protocol in PROTOCOLS.items():
        templates = protocol.template or ", ".join(protocol.wordings.values())
        rows[name] = {
            "wording": templates or "the judge's own",
            "draws": protocol.options.get("samples", 1),
            "orders": protocol.options.get("orders", ""),
            "temperature": protocol.options.get("temperature", 0.0),
            "left open": protocol.open,
            "never official, since": protocol.unofficial,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


# --- what each benchmark reports


Kind = Literal[
    "subset", "wording", "protocol", "option", "rows", "images", "closed", "unanswered", "panel"
]


class Deviation(NamedTuple):
    """One way in which a run differs from the published procedure: its kind, and a description."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class Benchmark:
    """What one benchmark reports."""

    title: str  # as its paper calls it
    source: str  # where the definition was read
    note: str  # what else must stand beside the number
    measure: str = "accuracy"  # which of `MEASURES` makes its table
    statistics: tuple[str, ...] = ("accuracy",)  # what is reported, the headline first
    unread: str = "left out"  # what an answer without a verdict counts as officially
    parts: tuple[str, ...] = ("overall", "category")  # also "macro", the plain mean over categories
    by: str = "category"  # the column of categories
    categories: tuple[str, ...] = ()  # all of them, where a missing one changes the macro average
    # Which verdicts on a pair count: "both" orders joined, the "published" one alone, or "each".
    orders: Literal["both", "published", "each"] = "both"


BENCHMARKS = table_of("benchmarks", Benchmark)
"""What each benchmark reports, by name."""


def key_of(name: str | None) -> str:
    """Return the name of a benchmark; ValueError, with all names, for any other text or None."""
    if name in BENCHMARKS:
        return str(name)
    reason = f"there is no benchmark {name!r}"
    if not name:
        reason = "nothing says which benchmark the run is of"
    raise ValueError(f"{reason}: give name=, one of {', '.join(BENCHMARKS)}")


def subset_of(name: str, n_items: int) -> list[Deviation]:
    """Return the deviation of a run on fewer items than the benchmark has, or an empty list.

    The published number of items is 0 where it is unknown; then no run counts as a subset.
    """
    n_published = PROTOCOLS[name].n_items
    if n_items >= n_published:
        return []
    return [Deviation("subset", f"{n_items:,} of the benchmark's {n_published:,} rows")]
