"""LLaVA-Critic-113k: its rows are told from their prompts, in the wordings of many benchmarks."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from vjudge.data.schema import Adapter, BadRow, Row
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Verdict

PARTS = {"pointwise": ("response",), "pairwise": ("response_a", "response_b")}  # and the responses of their rows


@dataclass(frozen=True)
class Wording:
    """One way in which prompts of the set are written; none of the set's rows could be looked at."""

    name: str  # whose it is
    form: str  # patterns with the canonical names of the texts in braces; {} for one that is passed over
    format: str  # of the answer in `vjudge.prompts.parse`; "" for a bare number that it opens with
    scale: tuple[int, int] | None = None  # lowest and highest score; None for pairs

    @property
    def part(self) -> str:
        """Which part of the set its rows belong to."""
        return "pointwise" if self.scale else "pairwise"

    def cut(self, prompt: str) -> dict[str, str] | None:
        """The texts by name; None for another wording, and where a text holds a separator of its own."""
        opening, *parts = re.split(r"\{([a-z_]*)\}", self.form)
        start = re.search(opening, prompt)
        if start is None:
            return None
        cells, place = {}, start.end()
        for name, separator in zip(parts[::2], parts[1::2], strict=True):
            marks = [*itertools.islice(re.finditer(separator, prompt[place:]), 2)]
            if len(marks) != 1:
                return None
            cells[name], place = prompt[place : place + marks[0].start()], place + marks[0].end()
        cells.pop("", None)
        return cells


_LAST = r"[^|]*\|\s{0,3}\Z"  # the last cell of MM-Vet's table, which is left open
WORDINGS = (
    Wording(  # lmms-lab/llava-critic-7b README.md; Xiaooolong/vev data/sources/image_llava_critic.py
        "llava-critic-pair",
        r"Question: ?\[{instruction}\]\s{1,2}(?:The first response|Response [1A]): ?\[{response_a}\]"
        r"\s{1,2}(?:The second response|Response [2B]): ?\[{response_b}\](?:\s{1,2}ASSISTANT:|\s{0,3}\Z)",
        "llava-critic-pair",
    ),
    Wording(  # lmms-lab/llava-critic-7b README.md
        "llava-critic",
        r"Question: ?\[{instruction}\]\s{1,2}The LMM response: ?\[{response}\]\s{1,2}ASSISTANT:",
        "llava-critic",
        (0, 100),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval wild_vision_bench/utils.py
        "arena",
        r"<\|User Prompt\|>\n?{instruction}\s{0,2}<\|The Start of Assistant A's Answer\|>\n?{response_a}"
        r"\n?<\|The End of Assistant A's Answer\|>\s{0,2}<\|The Start of Assistant B's Answer\|>\n?{response_b}"
        r"\n?<\|The End of Assistant B's Answer\|>",
        "arena",
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval llava_wilder/utils.py: the first assistant is the reference
        "assistants",
        r"\[Question\]\n?{instruction}\s{0,2}\[Assistant 1\]\n?{reference_answer}"
        r"\s{0,2}\[End of Assistant 1\]\s{0,2}\[Assistant 2\]\n?{response}\s{0,2}\[End of Assistant 2\]",
        "reference-scores",
        (1, 10),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval dc100_en/utils.py
        "caption",
        r"Text Caption: ?{response}\s{0,2}From 0 to 100, how much do you rate for this Text Caption",
        "llava-critic",
        (0, 100),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval mmvet/utils.py
        "mm-vet",
        r"[Qq]uestion \| [Gg]round truth \| [Pp]rediction \|{}"
        rf"\n(?=[^\n|]+\|[^\n|]*\|{_LAST})"  # its table's last line
        rf"{{instruction}} ?\| ?(?=[^\n|]*\|{_LAST}){{reference_answer}} ?\| ?(?={_LAST}){{response}} ?\|\s{{0,3}}\Z",
        "",
        (0, 1),
    ),
)
"""What prompts look like, the more certain first."""

_OPTION = re.compile(r"^\(?[A-Z][.):] ?\S", re.MULTILINE)
_LETTER = re.compile(r"\(?([A-Z])[.)]?(?:\s|$)")
_NUMBER = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3})?)(?![\w.]|\s*[-/%])")


def _turns(row: Row) -> tuple[str, str]:
    """A row's prompt, without image marks at its start, and its answer."""
    turns = row.get("conversations")
    try:
        (human, prompt), (gpt, answer) = ((turn["from"], turn["value"]) for turn in turns or ())
        sound = (human, gpt) == ("human", "gpt") and isinstance(prompt, str) and isinstance(answer, str)
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise BadRow(("conversations", "is not one human and one gpt turn", "correct it or leave the row out"))
    return re.sub(r"\A(?:\s{0,3}<image>\s{0,3})+", "", prompt), answer


def _worded(prompt: str) -> tuple[Wording | None, dict[str, str]]:
    """The wording of a prompt, None for one that is not known, and its texts."""
    return next(((wording, texts) for wording in WORDINGS if (texts := wording.cut(prompt))), (None, {}))


def _verdict(answer: str, wording: Wording) -> Verdict:
    """The verdict of an answer."""
    if wording.format:
        return parse(answer, format=wording.format)
    low, high = wording.scale or (0, 0)
    match = _NUMBER.match(answer)
    if match and low <= float(match[1]) <= high:
        return Verdict(float(match[1]), answer[match.end() :].strip(), answer)
    return Verdict(NAN, answer.strip(), answer, f"no number from {low} to {high} opens the answer")


def _cells(row: Row, part: str | None) -> dict[str, Any]:
    """A row as an item with a score ("pointwise") or as a pair ("pairwise").

    `gold` is on the row's own `scale`, "0-100", "1-10" or "0-1": correlate within one. A row that can't be read as what
    its part holds has no label and the reason in `fault`; `fine_tune` trains on its `prompt` and `target` all the same.

    Source: lmms-lab/llava-critic-113k (the columns); LLaVA-VL/LLaVA-NeXT#461 (the mixture); `WORDINGS`.
    """
    prompt, answer = _turns(row)
    wording, texts = _worded(prompt)
    part = part or (wording.part if wording else "pointwise")
    empty = dict.fromkeys(("instruction", "reference_answer", *PARTS[part]))
    cells = {"prompt": prompt, "target": answer, "wording": wording and wording.name, **empty}
    if wording is None:
        fault = "the prompt is in another wording, or a text holds its headers: its texts cannot be told apart"
        if len(_OPTION.findall(prompt)) > 1 and _LETTER.match(answer):
            fault = "a question with lettered options: its answer is a letter, and no judgement"
        return cells | {"fault": fault}
    verdict = _verdict(answer, wording)
    cells["feedback"] = verdict.feedback or None
    if wording.part != part:
        return cells | {"fault": f"the row is {wording.part} and stands in the {part} part"}
    cells |= {**texts, "fault": verdict.failure}
    if wording.scale:
        return cells | {"gold": verdict.score, "scale": f"{wording.scale[0]}-{wording.scale[1]}"}
    return cells | {"preference": verdict.choice if verdict.choice in ("a", "b", "tie") else None}


def settle(rows: Iterable[Row]) -> str:
    """Which part rows are of: what most of them are."""
    found: Counter[str] = Counter()
    for row in rows:
        with suppress(BadRow):
            wording, _ = _worded(_turns(row)[0])
            found[wording.part if wording else ""] += 1
    return max(PARTS, key=lambda part: found[part])


ADAPTERS = (
    Adapter(
        "LLaVA-Critic-113k",
        ("source", "conversations"),
        {"images": "image"},
        _cells,
        "conversations",
        ids=("lmms-lab/LLaVA-Critic-113k",),
        parts=tuple(PARTS),
        settle=settle,
        repeats_ids=True,
    ),
)
