"""LLaVA-Critic-113k: its rows are told from prompt and answer, in the wordings of many benchmarks."""

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

PARTS = ("pointwise", "pairwise")


@dataclass(frozen=True)
class Wording:
    """One way in which prompts of the set are written; none of the set's rows could be looked at."""

    name: str  # whose it is
    kind: str  # "pointwise" or "pairwise"
    form: str  # patterns with the canonical names of the texts in braces; {} for one that is passed over
    format: str  # of the answer in `vjudge.prompts.parse`; "number" for a bare number that it opens with
    scale: tuple[int, int] | None = None  # lowest and highest score of a pointwise one

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
    Wording(  # lmms-lab/llava-critic-7b README.md
        "llava-critic-pair",
        "pairwise",
        r"Question: ?\[{instruction}\]\s{1,2}The first response: ?\[{response_a}\]"
        r"\s{1,2}The second response: ?\[{response_b}\]\s{1,2}ASSISTANT:",
        "llava-critic-pair",
    ),
    Wording(  # Xiaooolong/vev data/sources/image_llava_critic.py
        "responses",
        "pairwise",
        r"Question: ?\[{instruction}\]\s{1,2}Response [1A]: ?\[{response_a}\]"
        r"\s{1,2}Response [2B]: ?\[{response_b}\](?:\s{1,2}ASSISTANT:|\s{0,3}\Z)",
        "llava-critic-pair",
    ),
    Wording(  # lmms-lab/llava-critic-7b README.md
        "llava-critic",
        "pointwise",
        r"Question: ?\[{instruction}\]\s{1,2}The LMM response: ?\[{response}\]\s{1,2}ASSISTANT:",
        "llava-critic",
        (0, 100),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval wild_vision_bench/utils.py
        "arena",
        "pairwise",
        r"<\|User Prompt\|>\n?{instruction}\s{0,2}<\|The Start of Assistant A's Answer\|>\n?{response_a}"
        r"\n?<\|The End of Assistant A's Answer\|>\s{0,2}<\|The Start of Assistant B's Answer\|>\n?{response_b}"
        r"\n?<\|The End of Assistant B's Answer\|>",
        "arena",
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval llava_wilder/utils.py: the first assistant is the reference
        "assistants",
        "pointwise",
        r"\[Question\]\n?{instruction}\s{0,2}\[Assistant 1\]\n?{reference_answer}"
        r"\s{0,2}\[End of Assistant 1\]\s{0,2}\[Assistant 2\]\n?{response}\s{0,2}\[End of Assistant 2\]",
        "reference-scores",
        (1, 10),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval dc100_en/utils.py
        "caption",
        "pointwise",
        r"Text Caption: ?{response}\s{0,2}From 0 to 100, how much do you rate for this Text Caption",
        "llava-critic",
        (0, 100),
    ),
    Wording(  # EvolvingLMMs-Lab/lmms-eval mmvet/utils.py
        "mm-vet",
        "pointwise",
        r"[Qq]uestion \| [Gg]round truth \| [Pp]rediction \|{}"
        rf"\n(?=[^\n|]+\|[^\n|]*\|{_LAST})"  # its table's last line
        rf"{{instruction}} ?\| ?(?=[^\n|]*\|{_LAST}){{reference_answer}} ?\| ?(?={_LAST}){{response}} ?\|\s{{0,3}}\Z",
        "number",
        (0, 1),
    ),
)
"""What prompts look like, the more certain first."""

_TWO_ANSWERS = [  # named anywhere in a prompt of another wording
    [re.compile(rf"\b{name}\b", re.IGNORECASE) for name in names]
    for noun in ("assistant", "response", "answer", "model", "caption")
    for names in ((f"{noun} 1", f"{noun} 2"), (f"{noun} A", f"{noun} B"))
] + [[re.compile(rf"\b{place} (?:response|answer)\b", re.IGNORECASE) for place in ("first", "second")]]
_SCALE = re.compile(
    r"\b(?:out of (?P<top>[0-9]{1,3})\b|(?:scale|range|between|from)(?: of| from)? (?P<low>[0-9]) ?(?:to|-|and) ?"
    r"(?P<high>[0-9]{1,3})\b)",
    re.IGNORECASE,
)
_ASSISTANTS = re.compile(r"\bassistant 1\b.*?\bassistant 2\b", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"^\(?[A-Z][.):] ?\S", re.MULTILINE)
_LETTER = re.compile(r"\(?([A-Z])[.)]?(?:\s|$)")
_NUMBER = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3})?)(?![\w.]|\s*[-/%])")


@dataclass(frozen=True)
class Critique:
    """What one row says."""

    kind: str | None  # "pointwise", "pairwise", "choice" of lettered options; None where neither text tells
    wording: str | None  # None for one that is not known
    prompt: str  # without image marks at its start
    answer: str
    texts: dict[str, str]  # by canonical name, as far as the wording shows them
    scale: tuple[int, int] | None
    verdict: Verdict  # a score, a choice, or the reason why there is neither


def interpret(row: Row) -> Critique:
    """Tell what kind a row is, take its prompt apart and read its answer."""
    fault = ("conversations", "is not one human and one gpt turn", "correct it or leave the row out")
    try:
        (human, prompt), (gpt, answer) = ((turn["from"], turn["value"]) for turn in row.get("conversations") or ())
    except (TypeError, KeyError, ValueError) as error:
        raise BadRow(fault) from error
    if (human, gpt) != ("human", "gpt") or not (isinstance(prompt, str) and isinstance(answer, str)):
        raise BadRow(fault)
    prompt = re.sub(r"\A(?:\s{0,3}<image>\s{0,3})+", "", prompt)
    for wording in WORDINGS:
        texts = wording.cut(prompt)
        if texts is not None:
            verdict = _read(answer, wording.format, wording.scale)
            return Critique(wording.kind, wording.name, prompt, answer, texts, wording.scale, verdict)
    kind, scale, own = _unworded(prompt, answer)
    verdict = Verdict(NAN, answer.strip(), answer, own) if isinstance(own, str) else own
    return Critique(kind, None, prompt, answer, {}, scale, verdict)


def _unworded(prompt: str, answer: str) -> tuple[str | None, tuple[int, int] | None, Verdict | str]:
    """Kind, scale and verdict of a row in another wording, as far as prompt and answer tell them."""
    pair = parse(answer, format="llava-critic-pair")
    two = any(first.search(prompt) and second.search(prompt) for first, second in _TWO_ANSWERS)
    scales = {(int(match["low"] or 0), int(match["high"] or match["top"])) for match in _SCALE.finditer(prompt)}
    if pair.scores and _ASSISTANTS.search(prompt):  # two scores of which the first is the reference's
        return "pointwise", (1, 10), _read(answer, "reference-scores", (1, 10))
    if pair.failure is None:
        return "pairwise", None, pair  # a choice: no answer about a single response reads so
    if "]\nThe LMM response: [" in prompt:
        return "pointwise", (0, 100), _read(answer, "llava-critic", (0, 100))
    if "]\nThe first response: [" in prompt and "]\nThe second response: [" in prompt:
        return "pairwise", None, pair
    if len(_OPTION.findall(prompt)) > 1 and not two and not scales and _LETTER.match(answer):
        return "choice", None, "a letter of an option"
    if two or not scales:
        return None, None, "the prompt names no scale"
    if len({high for _, high in scales}) > 1:
        listed = " and ".join(f"{low}-{high}" for low, high in sorted(scales))
        return "pointwise", None, f"the prompt names several scales, {listed}"
    return "pointwise", min(scales), _read(answer, "llava-critic" if min(scales) == (0, 100) else "score", min(scales))


def _read(answer: str, format: str, scale: tuple[int, int] | None) -> Verdict:
    """The verdict of an answer; a score of a scale whose steps are smaller than one is read, too."""
    if scale is None or format not in ("score", "number"):
        return parse(answer, format=format)
    if format == "score":
        verdict = parse(answer, scores=range(scale[0], scale[1] + 1), format="score")
        if verdict.failure is None:
            return verdict
    match = _NUMBER.match(answer)
    if match and scale[0] <= float(match[1]) <= scale[1]:
        feedback = answer[match.end() :].strip()
        return Verdict(float(match[1]), feedback, answer, scale=(float(scale[0]), float(scale[1])))
    return Verdict(NAN, answer.strip(), answer, f"no number from {scale[0]} to {scale[1]} opens the answer")


def _cells(row: Row, part: str | None) -> dict[str, Any]:
    """A row as an item with a score ("pointwise") or as a pair ("pairwise").

    `gold` is on the row's own `scale`, "0-100", "1-10" or "0-1": correlate within one. A row that can't be read as what
    its part holds has no label and the reason in `fault`; `fine_tune` trains on its `prompt` and `target` all the same.

    Source: lmms-lab/llava-critic-113k (the columns); LLaVA-VL/LLaVA-NeXT#461 (the mixture); `WORDINGS`.
    """
    says = interpret(row)
    part = part or (says.kind if says.kind in PARTS else PARTS[0])
    fault, sound = says.verdict.failure, says.kind == part
    if says.kind == "choice":
        fault = "a question with lettered options: its answer is a letter, and no judgement"
    elif says.kind is None:
        fault = "neither prompt nor answer tells whether one response is scored or two are compared"
    elif not sound:
        fault = f"the row is {says.kind} and stands in the {part} part"
    elif says.wording is None:
        fault = f"the prompt is in another wording, so its texts cannot be told apart{f'; {fault}' if fault else ''}"
    cells = {"feedback": says.verdict.feedback or None, "wording": says.wording, "fault": fault}
    cells |= {"prompt": says.prompt, "target": says.answer}
    names = (
        "instruction",
        "reference_answer",
        *(("response_a", "response_b") if part == "pairwise" else ("response",)),
    )
    cells |= {name: says.texts.get(name) if sound else None for name in names}
    if part == "pairwise":
        choice = says.verdict.choice if sound and says.verdict.choice in ("a", "b", "tie") else None
        return cells | {"preference": choice}
    scale = f"{says.scale[0]}-{says.scale[1]}" if sound and says.scale else None
    return cells | {"gold": says.verdict.score if sound else NAN, "scale": scale}


def settle(rows: Iterable[Row]) -> str:
    """Which part rows are of: what most of them are."""
    kinds: Counter[str | None] = Counter()
    for row in rows:
        with suppress(BadRow):
            kinds[interpret(row).kind] += 1
    return max(PARTS, key=lambda part: kinds[part])


ADAPTERS = (
    Adapter(
        "LLaVA-Critic-113k",
        ("source", "conversations"),
        {"images": "image"},
        _cells,
        "conversations",
        ids=("lmms-lab/LLaVA-Critic-113k",),
        parts=PARTS,
        settle=settle,
        repeats_ids=True,
    ),
)
