"""What an answer must hold before anything of it is kept: its form, and that none of its texts judges itself."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema
from rapidfuzz import fuzz, process

from vjudge.prompts.parse import PLAIN, parse

SKIPPED = "given up without an answer"  # the failure of a call that a build goes on without
NEAR = 80.0
"""From where two criteria are near duplicates: rapidfuzz's ratio in percent. Of 2,016 pairs of different criteria the
closest has 63 (Chinese 69, German 71); rewordings of one criterion have 83 to 97."""
KINDS = {
    "no answer": "the generator gave none: a time-out, a broken connection, something that is no chat completion",
    "refusal": "it declined, or a content filter cut it off",
    "turned down": "the request was refused: too long, an unusable picture",
    "cut off": "the answer reached the limit of new tokens",
    "not JSON": "the answer is no JSON object",
    "wrong form": "the JSON object has other fields or values than asked for",
    "markup": "a text holds headings of the judge's prompt, control tokens or invisible characters",
    "score leak": "a text judges itself: it states its own score, speaks of the rubric or of planned errors",
    "length": "a text is shorter or longer than asked for",
    "repetition": "a text is one that the generator gave already",
    "contradiction": "the feedback states another score than the one asked for",
    "near duplicate": "the criterion is too close to a seed's or an earlier one",
    "not judgeable": "the generator says that the rubric can't be applied to the image",
}
"""What can be wrong, as counted in a build and its card."""


@dataclass(eq=False)  # exceptions are told apart by identity
class Fault(Exception):
    """Why an answer is not kept: one of `KINDS`, what was wrong, and what the generator is told about it."""

    kind: str
    detail: str
    note: str = "it could not be used."

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


_FENCE = re.compile(r"(?is)```(?:json)?\s*\n(.*?)\n?\s*```")
_REFUSAL = re.compile(
    r"(?i)^\W*(?:i(?:(?:'|\u2019)?m| am) (?:very |so )?(?:sorry|unable|not able)|sorry\b|as an ai\b|unfortunately, i "
    r"|i (?:can(?:'|\u2019)?t|cannot|won(?:'|\u2019)?t|will not) )"
)
_MARKUP = re.compile(  # control tokens, headings of the judge's prompt, invisible characters
    r"(?im)\[/?(?:RESULT|INST|SYS)\]|\[\[[AB]\]\]|<\|[^|<>]{0,40}\|>|</?(?:image|s|pad|unk|think|answer|score|feedback)>"
    r"|^\s*###\s*(?:Task Description|The instruction|Response|Reference Answer|Score Rubrics?|Feedback)"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_ORDER = ("zero one two three four five six seven eight nine ten", "零一二三四五六七八九十")
_NUMBERS = {word: n for words in (_ORDER[0].split(), _ORDER[1]) for n, word in enumerate(words)} | {"两": 2}
_N = rf"(?:[0-9]+(?:\.[0-9]+)?|[{_ORDER[1]}两]|(?:{'|'.join(_ORDER[0].split())})\b)"
_END = r"(?=\s*(?:$|[.,;:!?)\n/]|out of\b|points?\b|because\b|since\b|as\b|for\b|about\b))"
_SELF = r"(?:this|my(?: own)?|the|your|an?) (?:answer|response|reply)"
_GRADE = r"(?:score|rating|mark|grade|level|quality)"
_A = rf"| an?| the| of| {_GRADE}"
_JUDGES_ITSELF = re.compile(  # what a text says of itself; of what an image shows nobody speaks like this
    rf"(?i)\b(?:{_SELF}(?:(?: that| which)?(?: would| should| could| will| may| clearly| only| probably| fully)*)"
    r" (?:deserve|earn|merit|warrant|receive|get|score|is worth|(?:is|be) (?:rated|graded|scored|given))s?"
    rf"|(?:this|it) (?:deserve|merit|warrant)s(?= [a-z ]*[0-9]))(?: at| as| with| only| full| overall{_A})* {_N}{_END}"
    rf"|\bI(?: would| will|'d|'ll)?(?: \w+)? (?:(?:rate|score|grade|mark) (?:{_SELF}|myself)\b[^.?!\n]{{0,25}}"
    rf"|give (?:this|my|myself)(?: own)?(?: answer| response| reply)?(?:{_A})*) {_N}{_END}"
    rf"|\b(?:rated|scored|graded)(?: at| as)? {_N}(?:\s*(?:/|out of)\s*{_N})? by me\b"
    rf"|\b(?:{_GRADE}[- ](?:of )?{_N}|{_N}[- ]out[- ]of[- ]{_N}|(?:low|high|top|middle)\w{{0,3}}[- ]scor(?:e|ing))"
    r" (?:answer|response|reply)\b"
    rf"|\b(?:answer|response|reply) (?:of|at|with|worth) (?:an? )?(?:overall )?{_GRADE}(?: of)? {_N}"
    r"|\b(?:by|per|following|under|against|according to) (?:the|this) (?:(?:scoring )?rubric|scoring criteri)"
    r"|\b(?:this|my) (?:answer|response|reply)(?: (?!that)\w+){0,4} (?:deliberate|intentional)(?:ly)?\b"
    r"|\b(?:this|my) (?:answer|response|reply) (?:is|was) (?:meant|supposed|intended) to be"
    r"|\bI (?:have |\w+ed )?(?:deliberate|intentional|purpose)ly\b"
    r"|\b(?:diese[rs]?|meine[rs]?|die|eine) Antwort(?:(?:,? die| würde| wohl| nur)*"
    rf" (?:verdient|bekommt|erhält|erreicht|erzielt)(?: eine?| die| \w*note)* {_N}"
    rf"|, die {_N}(?: Punkte?)? (?:verdient|bekommt|erhält|erreicht))"
    rf"|\bich (?:bewerte|benote|gebe|würde|werde) (?:diese[rs]?|meine[rs]?|die|der) Antwort[^.?!\n]{{0,25}} {_N}\b"
    r"|\b(?:nach|laut|gemäß) (?:dem|diesem) Bewertungs(?:raster|schema)"
    r"|(?:本|这个|這個|该|該|此|我的|这份|给这个)(?:回答|回复|回覆|答案|回应|答复)[^。！？\n]{0,6}"
    rf"(?:得|获|評|评|打|给|給|值)[^。！？\n]{{0,4}}{_N}\s*分|(?:应|應|可|能)?得\s*{_N}\s*分的(?:回答|回复|回覆|答案)"
    r"|(?:根据|按照|依据|根據|依據)(?:本|此|该|這個|这个)?(?:评分|評分)(?:标准|標準|细则)"
)
_CLOSING = re.compile(  # the last sentence of a judge's feedback
    r"(?i)(?:^|(?<=[.!?]\s)|(?<=[。！？\n]))"
    r"(?P<so>(?:(?:so|thus|therefore|hence|also|daher|somit|deshalb),? |(?:因此|所以|综上|因而)[，,]?)?)"
    rf"(?:(?:the |my )?(?P<overall>overall )?(?:final |total )?{_GRADE} (?:is|:)|(?:ist |beträgt )?die (?:Gesamt\w+|"
    r"Bewertung)(?: ist| beträgt)?|(?:总体|整体|總體|最终)?(?:得分|评分|總分|总分|分数)(?:是|为|為|：|:))"
    rf"\s*(?P<n>{_N})(?:\s*(?:/|out of|von) ?{_N})?(?: Punkte| points| 分|分)?(?:[.。!]|$)"
)
_LABEL = re.compile(  # a line that is nothing but a label and a number
    r"(?i)[*_\s]*(?:(?:my |the )?(?:overall |final |total )?(?:score|rating|grade)"
    r"|(?:Gesamt)?(?:Bewertung|Note|Wertung|Punktzahl)|"
    rf"(?:总体|最终)?(?:分数|评分|得分|分數|評分|总分))[*_\s]*[:：][*_\s]*(?P<n>{_N})"
    rf"(?:\s*(?:/|out of|von)\s*{_N})?[*_\s分.。]*"
)


def read_answer(record: Mapping[str, Any], schema: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Read a recorded answer that is one JSON object of a form, bare or in one fenced block; else a `Fault`.

    `record` has its text, its failure or None, and whether it stopped before `limit` new tokens.
    """
    if failure := record["failure"]:
        refused = "refused" in failure or "filter" in failure
        kind = "no answer" if failure == SKIPPED else "refusal" if refused else "turned down"
        raise Fault(kind, failure, "it was refused, and the task is harmless." if refused else "")
    body = record["text"].strip()
    if fenced := _FENCE.fullmatch(body):
        body = fenced[1].strip()
    try:
        answer = json.loads(body, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        if _REFUSAL.search(body):
            raise Fault("refusal", _short(body), "it declined to answer, and the task is harmless.") from None
        if not record["stopped"]:
            raise Fault("cut off", f"at {limit} new tokens", "it was too long.") from None
        raise Fault("not JSON", f"{error}, in {_short(body)}", "it was not a single JSON object.") from None
    errors = jsonschema.Draft202012Validator(schema).iter_errors(answer)
    if wrong := [f"{error.json_path}: {_short(error.message)}" for error in errors]:
        raise Fault("wrong form", "; ".join(wrong[:5]), "its fields were not those of the form shown above.")
    return answer


def self_judgement(text: str, score: float | None = None) -> str:
    """The words in which a text judges itself; empty where its numbers are content, such as a scoreboard's.

    A judgement is a grade that the text gives itself, in English, German or Chinese; talk of the rubric or of planned
    errors; a verdict that the parser reads; under a label in the first or last line the row's own `score` (None: any).

    >>> self_judgement("The scoreboard says that the final score is 3.", 3)
    ''
    >>> self_judgement("A red cup. This answer deserves a 3.", 3)
    'This answer deserves a 3'
    """
    text = text.strip().translate(PLAIN)
    if match := _JUDGES_ITSELF.search(text):
        return match[0]
    for form in ("prometheus", "mt-bench-score", "flow-judge"):  # in which nothing but a verdict is written
        if not parse(text, scores=range(101), format=form).failure:
            return f"a verdict in the form of {form}"
    lines = re.split(r"\n|(?<=[.!?。！？])(?=\s|[^\x00-\x7f])", text)
    labels = [match for line in (lines[0], lines[-1]) if (match := _LABEL.fullmatch(line))]
    labels += [closing] if (closing := _closing(text)) and closing["so"] else []
    return next((match[0].strip() for match in labels if score in (None, _value(match["n"]))), "")


def check_text(name: str, text: str, *, score: float | None = None, graded: bool = False) -> str:
    """A field's text, stripped; a `Fault` if it is blank, holds markup or, given a score or graded, judges itself."""
    text = text.strip()
    if not text:
        raise Fault("wrong form", f"{name} is blank", f"{name} was blank.")
    if (graded or score is not None) and (words := self_judgement(text, score)):
        note = f"{name} spoke of its own score or level, the rubric or planned errors. It must never do so."
        raise Fault("score leak", f"{name} says {words!r}", note)
    if match := _MARKUP.search(text):
        note = f"{name} held markup. Use plain prose without headers, tags, markers or control characters."
        raise Fault("markup", f"{name} holds {match[0].strip()!r}", note)
    return text


def check_feedback(text: str, score: int) -> str:
    """A feedback without its closing "So the overall score is N."; a `Fault` if another score or markup is in it."""
    text = text.strip()
    if closing := _closing(text):
        if _value(closing["n"]) != score:
            note = f"the feedback stated another score than the one asked for, {score}."
            raise Fault("contradiction", f"the feedback for score {score} ends {closing[0]!r}", note)
        text = text[: closing.start()]
    if (opening := _CLOSING.match(text)) and opening["overall"] and _value(opening["n"]) == score:
        raise Fault("score leak", f"feedback says {opening[0]!r}", "the feedback stated the score.")
    return check_text("feedback", text, score=score)


def normal(text: str) -> str:
    """A text as repetitions are told by: case, punctuation and white space do not count."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def closest(text: str, texts: Mapping[str, str], least: float = 0.0) -> tuple[str, float, str] | None:
    """The closest of texts by name, as `normal` gives them: its words, rapidfuzz's ratio in percent, its name."""
    return process.extractOne(normal(text), texts, scorer=fuzz.ratio, score_cutoff=least)


def near_duplicate(text: str, texts: Mapping[str, str]) -> Fault | None:
    """What is wrong with a criterion that is too close to one of `texts`, see `closest` and `NEAR`."""
    if not (clash := closest(text, texts, NEAR)):
        return None
    detail = f"{text[:60]!r} is {clash[1]:.0f} % like {clash[2]}"
    return Fault("near duplicate", detail, "it was too close to a criterion that there is already.")


def _closing(text: str) -> re.Match[str] | None:
    """The last sentence, where it states an overall score; "The final score is 3." may be what a scoreboard shows."""
    *_, last = (None, *_CLOSING.finditer(text))
    return last if last and last.end() == len(text) and (last["so"] or last["overall"]) else None


def _value(number: str) -> float:
    return float(_NUMBERS.get(number.lower(), number))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a field stands twice")
    return dict(pairs)


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:50]}...{text[-20:]}")
