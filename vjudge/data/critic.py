"""LLaVA-Critic-113k, whose rows are known by their prompts, in the wordings of many benchmarks.

None of the set's rows could be looked at: `WORDINGS` is what is evidenced, with its sources.
Source: lmms-lab/llava-critic-113k (the columns); LLaVA-VL/LLaVA-NeXT#461 (the mixture).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from vjudge.data.rows import Cells
from vjudge.data.schema import BadRow, Row, plain
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Verdict

PARTS = ("pointwise", "pairwise")
RESPONSES = {"pointwise": ("response",), "pairwise": ("response_a", "response_b")}


class Wording(NamedTuple):
    """One way in which prompts of the set are written: a separator before and after each text."""

    name: str
    separators: tuple[str, ...]  # patterns
    texts: tuple[str, ...]  # canonical names of what stands between; "" for what is passed over
    format: str  # of the answer, see `vjudge.prompts.parse`; "" for a number from 0 to 1
    scale: tuple[int, int] | None = None  # lowest and highest score; None for pairs

    @property
    def part(self) -> str:
        return "pointwise" if self.scale else "pairwise"

    def cut(self, prompt: str) -> dict[str, str]:
        """The texts; empty for another wording, or where a text holds a separator itself."""
        opening, *separators = self.separators
        pieces = re.split(opening, prompt, maxsplit=1)[1:]
        texts = {}
        for name, separator in zip(self.texts, separators, strict=True):
            if len(pieces) != 1:
                return {}
            texts[name], *pieces = re.split(separator, pieces[0], maxsplit=2)
        if len(pieces) != 1:
            return {}
        texts.pop("", None)
        return texts


_LAST_CELL = r"[^|]*\|\s{0,3}\Z"  # of MM-Vet's table, which is left open
WORDINGS = (
    # lmms-lab/llava-critic-7b README.md; Xiaooolong/vev data/sources/image_llava_critic.py
    Wording(
        "llava-critic-pair",
        (
            r"Question: ?\[",
            r"\]\s{1,2}(?:The first response|Response [1A]): ?\[",
            r"\]\s{1,2}(?:The second response|Response [2B]): ?\[",
            r"\](?:\s{1,2}ASSISTANT:|\s{0,3}\Z)",
        ),
        ("instruction", "response_a", "response_b"),
        "llava-critic-pair",
    ),
    Wording(  # lmms-lab/llava-critic-7b README.md
        "llava-critic",
        (r"Question: ?\[", r"\]\s{1,2}The LMM response: ?\[", r"\]\s{1,2}ASSISTANT:"),
        ("instruction", "response"),
        "llava-critic",
        (0, 100),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval wild_vision_bench/utils.py
        "arena",
        (
            r"<\|User Prompt\|>\n?",
            r"\s{0,2}<\|The Start of Assistant A's Answer\|>\n?",
            r"\n?<\|The End of Assistant A's Answer\|>\s{0,2}"
            r"<\|The Start of Assistant B's Answer\|>\n?",
            r"\n?<\|The End of Assistant B's Answer\|>",
        ),
        ("instruction", "response_a", "response_b"),
        "arena",
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval llava_wilder/utils.py: the first one is the reference
        "assistants",
        (
            r"\[Question\]\n?",
            r"\s{0,2}\[Assistant 1\]\n?",
            r"\s{0,2}\[End of Assistant 1\]\s{0,2}\[Assistant 2\]\n?",
            r"\s{0,2}\[End of Assistant 2\]",
        ),
        ("instruction", "reference_answer", "response"),
        "reference-scores",
        (1, 10),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval dc100_en/utils.py
        "caption",
        (r"Text Caption: ?", r"\s{0,2}From 0 to 100, how much do you rate for this Text Caption"),
        ("response",),
        "llava-critic",
        (0, 100),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval mmvet/utils.py
        "mm-vet",
        (
            r"[Qq]uestion \| [Gg]round truth \| [Pp]rediction \|",
            rf"\n(?=[^\n|]+\|[^\n|]*\|{_LAST_CELL})",  # its table's last line
            rf" ?\| ?(?=[^\n|]*\|{_LAST_CELL})",
            rf" ?\| ?(?={_LAST_CELL})",
            r" ?\|\s{0,3}\Z",
        ),
        ("", "instruction", "reference_answer", "response"),
        "",
        (0, 1),
    ),
)
"""What prompts look like, the more certain first."""

_OPTION = re.compile(r"^\(?[A-Z][.):] ?\S", re.MULTILINE)
_LETTER = re.compile(r"\(?([A-Z])[.)]?(?:\s|$)")
_NUMBER = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3})?)(?![\w.]|\s*[-/%])")


def read(row: Row, part: str) -> Cells:
    """A row as an item with a score ("pointwise") or as a pair ("pairwise").

    `gold` is on the row's own `scale`, "0-100", "1-10" or "0-1": correlate within one. A row that
    is not what its part holds has no label and the reason in `fault`; `fine_tune` trains on its
    `prompt` and `target` all the same.
    """
    prompt, answer = _turns(row)
    wording, texts = _wording_of(prompt)
    cells: Cells = {"prompt": prompt, "target": answer, "wording": None}
    cells |= dict.fromkeys(("instruction", "reference_answer", *RESPONSES[part]))
    if wording is None:
        return cells | {"fault": _unknown(prompt, answer)}
    verdict = _verdict(answer, wording)
    cells["wording"] = wording.name
    cells["feedback"] = verdict.feedback or None
    if wording.part != part:
        return cells | {"fault": f"the row is {wording.part} and stands in the {part} part"}
    cells |= {**texts, "fault": verdict.failure}
    if wording.scale:
        lowest, highest = wording.scale
        return cells | {"gold": verdict.score, "scale": f"{lowest}-{highest}"}
    return cells | {"preference": verdict.choice if verdict.choice != "abstain" else None}


def part_of(rows: Iterable[Row]) -> str:
    """Which part rows are of, where nothing names it: what most of them are."""
    counts = dict.fromkeys(PARTS, 0)
    for row in rows:
        try:
            wording, _ = _wording_of(_turns(row)[0])
        except BadRow:
            continue
        if wording:
            counts[wording.part] += 1
    return max(PARTS, key=counts.__getitem__)


def _turns(row: Row) -> tuple[str, str]:
    """A row's prompt, without image marks at its start, and its answer."""
    match plain(row.get("conversations")):
        case [{"from": "human", "value": str(prompt)}, {"from": "gpt", "value": str(answer)}]:
            return re.sub(r"\A(?:\s{0,3}<image>\s{0,3})+", "", prompt), answer
    what = "is not one human and one gpt turn"
    raise BadRow(("conversations", what, "correct it or leave the row out"))


def _wording_of(prompt: str) -> tuple[Wording | None, dict[str, str]]:
    for wording in WORDINGS:
        texts = wording.cut(prompt)
        if texts:
            return wording, texts
    return None, {}


def _unknown(prompt: str, answer: str) -> str:
    """Why the texts of a prompt cannot be told apart."""
    if len(_OPTION.findall(prompt)) > 1 and _LETTER.match(answer):
        return "a question with lettered options: its answer is a letter, and no judgement"
    what = "the prompt is in another wording, or a text holds its headers"
    return f"{what}: its texts cannot be told apart"


def _verdict(answer: str, wording: Wording) -> Verdict:
    if wording.format:
        return parse(answer, format=wording.format)
    number = _NUMBER.match(answer)
    if number is None or float(number[1]) > 1:
        return Verdict(NAN, answer.strip(), answer, "no number from 0 to 1 opens the answer")
    return Verdict(float(number[1]), answer[number.end() :].strip(), answer)
