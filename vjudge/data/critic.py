"""LLaVA-Critic-113k: prompts and answers in the wordings of many benchmarks.

A row is told from its prompt and its answer, never from the part that it stands in. A wording that is not known loses
nothing that training needs: `prompt` and `target` are the row's own texts.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vjudge.data.schema import Adapter, BadRow, Row, images, rest
from vjudge.prompts.parse import parse
from vjudge.records import NAN, Verdict

PARTS = ("pointwise", "pairwise")
_LOOKED_AT = 200  # rows, to tell a part


@dataclass(frozen=True)
class Wording:
    """One way in which prompts of the set are written: texts between separators.

    Args:
        name: whose it is.
        kind: "pointwise" or "pairwise".
        texts: canonical names of the texts, in their order; "" for one that is passed over.
        separators: patterns before, between and after them; "" for the prompt's end.
        scale: lowest and highest score of a pointwise one.
        format: how the answer is read, a format of `vjudge.prompts.parse`; "number" for a bare number that it opens
            with.
        source: where it is evidenced; none of the set's rows could be looked at.
    """

    name: str
    kind: str
    texts: tuple[str, ...]
    separators: tuple[str, ...]
    scale: tuple[int, int] | None
    format: str
    source: str

    def cut(self, prompt: str) -> dict[str, str] | None:
        """The texts by name; None for another wording, and where a text holds a separator of its own."""
        start = re.search(self.separators[0], prompt)
        if start is None:
            return None
        cells, place = {}, start.end()
        for name, separator in zip(self.texts, self.separators[1:], strict=True):
            marks = [*itertools.islice(re.finditer(separator or r"\Z", prompt[place:]), 2)]
            if len(marks) != 1:
                return None
            cells[name], place = prompt[place : place + marks[0].start()], place + marks[0].end()
        cells.pop("", None)
        return cells


_PAIR = ("instruction", "response_a", "response_b")
_CONVERTER = "Xiaooolong/vev data/sources/image_llava_critic.py"
_OPEN = r"[^|]*\|\s{0,3}\Z"
_LMMS = "EvolvingLMMs-Lab/lmms-eval"
WORDINGS = (
    Wording(
        "llava-critic-pair",
        "pairwise",
        _PAIR,
        (
            r"Question: ?\[",
            r"\]\s{1,2}The first response: ?\[",
            r"\]\s{1,2}The second response: ?\[",
            r"\]\s{1,2}ASSISTANT:",
        ),
        None,
        "llava-critic-pair",
        "lmms-lab/llava-critic-7b README.md",
    ),
    Wording(
        "responses",
        "pairwise",
        _PAIR,
        (
            r"Question: ?\[",
            r"\]\s{1,2}Response [1A]: ?\[",
            r"\]\s{1,2}Response [2B]: ?\[",
            r"\](?:\s{1,2}ASSISTANT:|\s{0,3}\Z)",
        ),
        None,
        "llava-critic-pair",
        _CONVERTER,
    ),
    Wording(
        "llava-critic",
        "pointwise",
        ("instruction", "response"),
        (r"Question: ?\[", r"\]\s{1,2}The LMM response: ?\[", r"\]\s{1,2}ASSISTANT:"),
        (0, 100),
        "llava-critic",
        "lmms-lab/llava-critic-7b README.md",
    ),
    Wording(
        "arena",
        "pairwise",
        _PAIR,
        (
            r"<\|User Prompt\|>\n?",
            r"\s{0,2}<\|The Start of Assistant A's Answer\|>\n?",
            r"\n?<\|The End of Assistant A's Answer\|>\s{0,2}<\|The Start of Assistant B's Answer\|>\n?",
            r"\n?<\|The End of Assistant B's Answer\|>",
        ),
        None,
        "arena",
        f"{_LMMS} wild_vision_bench/utils.py",
    ),
    Wording(
        "assistants",
        "pointwise",
        ("instruction", "reference_answer", "response"),
        (
            r"\[Question\]\n?",
            r"\s{0,2}\[Assistant 1\]\n?",
            r"\s{0,2}\[End of Assistant 1\]\s{0,2}\[Assistant 2\]\n?",
            r"\s{0,2}\[End of Assistant 2\]",
        ),
        (1, 10),
        "reference-scores",
        f"{_LMMS} llava_wilder/utils.py: the first assistant is the reference",
    ),
    Wording(
        "caption",
        "pointwise",
        ("response",),
        (r"Text Caption: ?", r"\s{0,2}From 0 to 100, how much do you rate for this Text Caption"),
        (0, 100),
        "llava-critic",
        f"{_LMMS} dc100_en/utils.py",
    ),
    Wording(
        "mm-vet",
        "pointwise",
        ("", "instruction", "reference_answer", "response"),
        (
            r"[Qq]uestion \| [Gg]round truth \| [Pp]rediction \|",
            rf"\n(?=[^\n|]+\|[^\n|]*\|{_OPEN})",  # its table's last line, whose last cell is left open
            rf" ?\| ?(?=[^\n|]*\|{_OPEN})",
            rf" ?\| ?(?={_OPEN})",
            r" ?\|\s{0,3}\Z",
        ),
        (0, 1),
        "number",
        f"{_LMMS} mmvet/utils.py",
    ),
)
"""What prompts look like, the more certain first."""

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
_ASSISTANTS = re.compile(r"\bassistant 1\b.*?\bassistant 2\b", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"^\(?[A-Z][.):] ?\S", re.MULTILINE)
_LETTER = re.compile(r"\(?([A-Z])[.)]?(?:\s|$)")
_NUMBER = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3})?)(?![\w.]|\s*[-/%])")


@dataclass(frozen=True)
class Reading:
    """What one row says.

    Args:
        kind: "pointwise" or "pairwise", by prompt and answer; "choice" for a question with lettered options; None where
            neither tells.
        wording: whose wording the prompt has; None for another one.
        prompt: the judge's prompt without image marks at its start.
        answer: what the judge answered; the target of training.
        texts: instruction, response, response_a, response_b and reference_answer, as far as the wording shows them.
        scale: of a score.
        verdict: a score, a choice, or the reason why there is neither.
    """

    kind: str | None
    wording: str | None
    prompt: str
    answer: str
    texts: dict[str, str]
    scale: tuple[int, int] | None
    verdict: Verdict


def read(row: Row, part: str | None = None) -> dict[str, Any]:
    """A row as an item with a score ("pointwise") or as a pair ("pairwise").

    `gold` is on the row's own `scale`, "0-100", "1-10" or "0-1": correlate within one. A row that can't be read as what
    its part holds stays, with what is known of it, without a label, and with the reason in `fault`. `prompt` and
    `target` hold the row's own texts, on which `fine_tune` trains whatever could be read of them.

    Source: lmms-lab/llava-critic-113k (the columns); LLaVA-VL/LLaVA-NeXT#461 (the mixture); `WORDINGS`.
    """
    reading = interpret(row)
    part = part or (reading.kind if reading.kind in PARTS else PARTS[0])
    verdict, sound = reading.verdict, reading.kind == part
    fault = verdict.failure
    if reading.kind == "choice":
        fault = "a question with lettered options: its answer is a letter, and no judgement"
    elif reading.kind is None:
        fault = "neither prompt nor answer tells whether one response is scored or two are compared"
    elif not sound:
        fault = f"the row is {reading.kind} and stands in the {part} part"
    elif reading.wording is None:
        fault = f"the prompt is in another wording, so its texts cannot be told apart{f'; {fault}' if fault else ''}"
    shown = reading.texts if sound else {}
    cells = {
        **rest(row, "conversations", "image"),
        "images": images(row),
        "instruction": shown.get("instruction"),
        "reference_answer": shown.get("reference_answer"),
        "feedback": verdict.feedback or None,
        "wording": reading.wording,
        "prompt": reading.prompt,
        "target": reading.answer,
        "fault": fault,
    }
    if part == "pairwise":
        choice = verdict.choice if sound and verdict.choice in ("a", "b", "tie") else None
        return cells | {name: shown.get(name) for name in ("response_a", "response_b")} | {"preference": choice}
    scale = f"{reading.scale[0]}-{reading.scale[1]}" if sound and reading.scale else None
    gold = verdict.score if sound else math.nan
    return cells | {"response": shown.get("response"), "gold": gold, "scale": scale}


def interpret(row: Row) -> Reading:
    """Tell what kind a row is, take its prompt apart and read its answer.

    Raises:
        BadRow: `conversations` is not one question and one answer.
    """
    fault = ("conversations", "is not one human and one gpt turn", "correct it or leave the row out")
    try:
        human, gpt = ((turn["from"], turn["value"]) for turn in row.get("conversations") or ())
    except (TypeError, KeyError, ValueError) as error:
        raise BadRow(fault) from error
    if (human[0], gpt[0]) != ("human", "gpt") or not all(isinstance(turn[1], str) for turn in (human, gpt)):
        raise BadRow(fault)
    prompt, answer = re.sub(r"\A(?:\s{0,3}<image>\s{0,3})+", "", human[1]), gpt[1]
    for wording in WORDINGS:
        texts = wording.cut(prompt)
        if texts is not None:
            verdict = _read(answer, wording.format, wording.scale)
            return Reading(wording.kind, wording.name, prompt, answer, texts, wording.scale, verdict)
    return _unworded(prompt, answer)


def _unworded(prompt: str, answer: str) -> Reading:
    """A row in another wording: its kind and its verdict, as far as prompt and answer tell them."""

    def reading(kind: str | None, verdict: Verdict | str, scale: tuple[int, int] | None = None) -> Reading:
        if isinstance(verdict, str):
            verdict = Verdict(NAN, answer.strip(), answer, verdict)
        return Reading(kind, None, prompt, answer, {}, scale, verdict)

    pair = parse(answer, format="llava-critic-pair")
    two = any(first.search(prompt) and second.search(prompt) for first, second in _TWO_ANSWERS)
    scales = {(int(match["low"] or 0), int(match["high"] or match["top"])) for match in _SCALE.finditer(prompt)}
    if pair.scores and _ASSISTANTS.search(prompt):  # two scores of which the first is the reference's
        return reading("pointwise", _read(answer, "reference-scores", (1, 10)), (1, 10))
    if pair.failure is None:
        return reading("pairwise", pair)  # a choice: no answer about a single response reads so
    if "]\nThe LMM response: [" in prompt:
        return reading("pointwise", _read(answer, "llava-critic", (0, 100)), (0, 100))
    if "]\nThe first response: [" in prompt and "]\nThe second response: [" in prompt:
        return reading("pairwise", pair)
    if len(_OPTION.findall(prompt)) > 1 and not two and not scales and _LETTER.match(answer):
        return reading("choice", "a letter of an option")
    if two or not scales:
        return reading(None, "the prompt names no scale")
    if len({high for _, high in scales}) > 1:
        return reading("pointwise", f"the prompt names several scales, {_and(scales)}")
    return reading("pointwise", _read(answer, "score", min(scales)), min(scales))


def _and(scales: Iterable[tuple[int, int]]) -> str:
    return " and ".join(f"{low}-{high}" for low, high in sorted(scales))


def _read(answer: str, format: str, scale: tuple[int, int] | None) -> Verdict:
    """The verdict of an answer; a score of a scale whose steps are smaller than one is read, too."""
    if scale is None:
        return parse(answer, format=format)
    if format == "score":
        if scale == (0, 100):
            return parse(answer, format="llava-critic")
        verdict = parse(answer, scores=range(scale[0], scale[1] + 1), format="score")
        if verdict.failure is None:
            return verdict
    if format in ("score", "number"):
        match = _NUMBER.match(answer)
        if match and scale[0] <= float(match[1]) <= scale[1]:
            return Verdict(
                float(match[1]), answer[match.end() :].strip(), answer, scale=(float(scale[0]), float(scale[1]))
            )
        return Verdict(NAN, answer.strip(), answer, f"no number from {scale[0]} to {scale[1]} opens the answer")
    return parse(answer, format=format)


def settle(rows: Iterable[Row]) -> str:
    """Which part rows are of: what most of the first ones are."""
    kinds: Counter[str | None] = Counter()
    for row in itertools.islice(rows, _LOOKED_AT):
        try:
            kinds[interpret(row).kind] += 1
        except BadRow:
            continue
    return max(PARTS, key=lambda part: kinds[part])


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
