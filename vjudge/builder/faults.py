"""What is wrong with a generator's answer: its form, or a text that judges itself.

The patterns are tables of rows (name, example, regular expression). A test checks that each
expression finds its example.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Container, Mapping
from dataclasses import dataclass
from textwrap import shorten

import jsonschema
from rapidfuzz import fuzz, process

from vjudge.data import n_words
from vjudge.prompts.objects import json_objects
from vjudge.prompts.parse import parse
from vjudge.prompts.phrases import REFUSAL, without_thinking
from vjudge.prompts.values import plain_text
from vjudge.prompts.wordings import ASSETS

NEAR = 80.0
"""The similarity from which on two criteria are near duplicates: rapidfuzz's ratio in percent.

Among 2,016 pairs of different criteria the highest is 63 (Chinese 69, German 71); rewordings of one
criterion have 83 to 97.
"""
STAGES: dict[str, dict] = json.loads((ASSETS / "stages.json").read_text("utf-8"))
"""The stages in order, each with its task, and the JSON schema and a sample of the answer."""
KINDS = {
    "refusal": "it declined, or a content filter cut it off",
    "turned down": "the request was refused: too long, an unusable picture",
    "cut off": "the answer reached the limit of new tokens",
    "not JSON": "the answer holds no JSON object",
    "wrong form": "the JSON object has other fields or values than asked for, or the form's words",
    "markup": "a text holds headings of the judge's prompt, control tokens or invisible characters",
    "score leak": "a text judges itself: its own score, the rubric or planned errors",
    "length": "a text is shorter or longer than asked for",
    "repetition": "a text is one that the generator gave already",
    "contradiction": "the feedback states another score than the one asked for",
    "near duplicate": "the criterion is too close to a seed's or an earlier one",
    "not judgeable": "the generator says that the rubric can't be applied to the image",
}
"""The kinds of faults, as a build and its card count them, with their meaning."""


@dataclass(eq=False)  # exceptions are compared by identity
class Fault(Exception):
    """Why an answer is rejected.

    Args:
        kind: one of `KINDS`.
        detail: what was wrong, for the log.
        note: what the next attempt tells the generator. A fault without a note is final: the call
            is not asked again.
    """

    kind: str
    detail: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


_FORM = set(re.findall(r'"([^"]+)"', " ".join(stage["sample"] for stage in STAGES.values())))
"""The texts in the stages' samples, which weak generators copy."""
MARKUP = (  # name, example, pattern
    ("bracketed token", "[RESULT] 3", r"\[/?(?:RESULT|INST|SYS)\]|\[\[[AB]\]\]"),
    ("control token", "<|im_end|>", r"<\|[^|<>]{0,40}\|>"),
    ("tag", "</think>", r"</?(?:image|s|pad|unk|think|answer|score|feedback)>"),
    (
        "heading of the judge's prompt",
        "### Feedback",
        r"^\s*###\s*(?:Task Description|The instruction|Response|Reference Answer|Score Rubrics?"
        r"|Feedback)",
    ),
    ("control character", "\x07", "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]"),
    (
        "invisible character",
        "\u200b",
        "[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]",
    ),
)
_MARKUP = re.compile("|".join(pattern for _, _, pattern in MARKUP), re.IGNORECASE | re.MULTILINE)

# Fragments of the patterns below, in English and German
_NUMERALS = (
    "zero one two three four five six seven eight nine ten".split(),
    "零一二三四五六七八九十",
)
_NUMBERS = {word: n for numerals in _NUMERALS for n, word in enumerate(numerals)} | {"两": 2}
# a number: "3", "3.5", "three", "三"
_N = rf"(?:[0-9]+(?:\.[0-9]+)?|(?:{'|'.join(_NUMBERS)})(?![a-z]))"
_TEXT = r"(?:answer|response|reply)"
# the text itself: "this answer", "my own response", "diese Antwort"
_SELF = (
    rf"(?:(?:this|my(?: own)?|the|your|an?) {_TEXT}"
    r"|(?:diese|meine|deine|die|der|eine)[rs]? Antwort)"
)
_GRADE = r"(?:score|rating|mark|grade|level|quality)"
# up to nine words between a text, its verb and the number: "answer [that clearly] deserves [a] 3"
_LINK = (
    r"(?:,? (?:that|which|is|be|would|should|could|can|will|may|clearly|only|just|probably|fully"
    rf"|full|overall|an?|the|of|at|as|with|{_GRADE}|eine?|die|mit|nur|wohl|würde|\w{{0,20}}note))"
    r"{0,9}"
)
# a verb: "deserves", "is worth", "verdient"
_EARNS = (
    r"(?:(?:deserve|earn|merit|warrant|receive|get|score|rate|grade)[sd]?|worth|given"
    r"|verdient|bekommt|erhält|erhalten|erreicht|erzielt|bewerten|benoten|geben)"
)
_AT_BEST = r"at (?:the )?(?:very )?(?:best|most)\b"
# what follows a grade, unlike a count such as "3 stars": punctuation, "out of", "points", "as"
_END = (
    r"(?=\s*(?:$|[.,;:!?)\n/]|(?:out of|von|points?|Punkte?|because|since|as|for|about)\b"
    rf"|{_AT_BEST}))"
)
# "rubric", "rubric's standards", but not "rubric's author"
_OF_RUBRIC = r"(?!['\u2019]s (?!standard|criteri|level|scale|term|wording))"
# Name, example, pattern: phrases in which a text judges itself, and that describe no image.
JUDGEMENTS = (
    (
        "earns at best",
        "the cup merits a 3 at best",
        rf"\b(?:merit|deserve|warrant)s?{_LINK} {_N} {_AT_BEST}",
    ),
    (
        "earns",
        "this answer deserves a score of 3",
        rf"\b(?:{_SELF}{_LINK} {_EARNS}"
        rf"|(?:this|it) (?:deserve|merit|warrant)s(?= [a-z ]*[0-9])){_LINK} {_N}{_END}",
    ),
    (
        "number before the verb",
        "eine Antwort, die 3 Punkte verdient",
        rf"\b{_SELF}{_LINK} {_N}(?: von {_N})?(?: Punkte?)? {_EARNS}\b",
    ),
    (
        "I rate",
        "I would rate this response 2",
        r"\b(?:I|ich)\b[^.?!\n]{0,9}"
        rf" (?:(?:rate|score|grade|mark|bewerte|benote|gebe) (?:{_SELF}|myself)[^.?!\n]{{0,25}}"
        rf"|give (?:this|my|myself)(?: own)?(?: {_TEXT})?{_LINK}) {_N}{_END}",
    ),
    (
        "rated by me",
        "rated 3/5 by me",
        rf"\b(?:rated|scored|graded)(?: at| as)? {_N}[^.?!\n]{{0,9}} by me\b",
    ),
    (
        "grade before the noun",
        "a low-scoring answer",
        rf"\b(?:{_GRADE}[- ](?:of )?{_N}|{_N}[- ]out[- ]of[- ]{_N}"
        rf"|(?:low|high|top|middle)\w{{0,3}}[- ]scor(?:e|ing)) {_TEXT}\b",
    ),
    (
        "grade behind the noun",
        "a response of score 3",
        rf"\b{_TEXT} (?:of|at|with|worth){_LINK} {_GRADE}{_LINK} {_N}",
    ),
    (
        "rubric",  # not "by the rubric's author"
        "by the rubric's standards",
        r"\b(?:by|per|following|under|against|according to) (?:the|this)"
        rf" (?:(?:scoring )?rubric{_OF_RUBRIC}|scoring criteri)",
    ),
    (
        "rubric, German",
        "laut dem Bewertungsraster",
        r"\b(?:nach|laut|gemäß) (?:dem|diesem) Bewertungs(?:raster|schema)",
    ),
    (
        "planned errors",
        "this response is meant to be vague",
        rf"\b(?:this|my) {_TEXT} (?:(?:(?!that\b)\w+ ){{0,4}}(?:deliberate|intentional)"
        r"|(?:is|was) (?:meant|supposed|intended) to be)",
    ),
    (
        "on purpose",
        "I purposely left it out",
        r"\bI (?:have |\w+ed )?(?:deliberate|intentional|purpose)ly\b",
    ),
    (
        "earns, Chinese",
        "这个回答应得3分",
        r"(?:本|这个|这份|這個|该|該|此|我的)(?:回答|回复|回覆|答案|回应|答复)[^。！？\n]{0,6}"
        rf"(?:得|获|評|评|打|给|給|值)[^。！？\n]{{0,4}}{_N}\s*分",
    ),
    (
        "answer of so many points, Chinese",
        "得3分的回答",
        rf"得\s*{_N}\s*分的(?:回答|回复|回覆|答案)",
    ),
    (
        "rubric, Chinese",
        "根据评分标准",
        r"(?:根据|按照|依据|根據|依據)(?:本|此|该|這個|这个)?[评評]分(?:标准|標準|细则)",
    ),
)
_JUDGES_ITSELF = re.compile("|".join(pattern for _, _, pattern in JUDGEMENTS), re.IGNORECASE)
# A sentence or a line that is nothing but a verdict, such as "So the overall score is 3/5.",
# "**Rating:** 3", "Daher ist die Gesamtnote 3." or "因此，总体得分是3。"
_VERDICT = re.compile(
    r"(?i)[*_\s]*"
    # "So ", "Therefore, "
    r"(?P<so>(?:so|thus|therefore|hence|also|daher|somit|deshalb),? "
    r"|(?:因此|所以|综上|因而)[，,]?)?"
    # "the overall final "
    r"(?:ist |beträgt )?(?:the |my |die )?"
    r"(?P<overall>overall |总体|整体|總體)?(?:final |total |最终)?"
    # "score"
    r"(?:score|rating|grade|(?:mark|level|quality)(?= is)|Gesamt\w+|Bewertung|Wertung|Note"
    r"|Punktzahl|得分|评分|評分|分数|分數|总分|總分)[*_]*"
    # " is" or ":"
    r"(?:(?P<label>\s*[:：])| is| ist| beträgt|[是为為])?[*_\s]*"
    # "3" or "3 out of 5 points."
    rf"(?P<n>{_N})(?:\s*(?:/|out of|von)\s*{_N})?(?: Punkte| points|\s*分)?[*_\s.。!]*"
)
# A sentence ends at the end of a line, or at a full stop before white space or a non-ASCII letter.
_SENTENCES = re.compile(r"\n|(?<=[.!?。！？])(?=\s|[^\x00-\x7f])")


def read_answer(record: Mapping, schema: Mapping) -> dict:
    """Read the JSON object of an answer: bare, in a fenced block or with prose around it.

    Args:
        record: the keys "text", "failure" (a reason, or None) and "finish" ("stop" where the answer
            is complete).
        schema: the JSON schema of the object; the first object that satisfies it is taken.

    Raises:
        Fault: there is no such object: the request failed, the generator refused, the answer was
            truncated, or it holds no JSON or JSON of another form.
    """
    # 1) requests without an answer; a request that was turned down would be turned down again, so
    #    that its fault gets no note, which makes it final
    failure = record["failure"]
    if failure:
        if "refused" in failure or "filter" in failure:
            raise Fault("refusal", failure, "it was refused, and the task is harmless.")
        raise Fault("turned down", failure)

    # 2) the text behind the thinking, and the objects in it
    text = without_thinking(record["text"])
    if text is None:
        raise Fault("cut off", shorten(record["text"], 80), "it ended before the thinking did.")
    validator = jsonschema.Draft202012Validator(schema)
    objects = [cells for _, _, cells in json_objects(text)]
    for cells in objects:
        if validator.is_valid(cells):
            return cells

    # 3) why there is none
    excerpt = shorten(text, 80)
    if not objects and REFUSAL.match(plain_text(text).lstrip()):
        raise Fault("refusal", excerpt, "it declined to answer, and the task is harmless.")
    if record["finish"] != "stop":
        raise Fault("cut off", excerpt, "it was too long.")
    if not objects:
        raise Fault("not JSON", f"no object in {excerpt!r}", "it was not a single JSON object.")
    error = jsonschema.exceptions.best_match(validator.iter_errors(objects[0]))
    raise Fault(
        "wrong form",
        shorten(f"{error.json_path}: {error.message}", 100),
        "its fields were not those of the form shown above.",
    )


def self_judgement(text: str, scores: Container[float] = range(101)) -> str:
    """Find the phrase in which a text judges itself.

    A text judges itself, in English, German or Chinese, where
    - it grades itself, or speaks of the rubric or of planned errors (`JUDGEMENTS`);
    - `parse` reads a verdict in it;
    - its first or last sentence does nothing but state a score, and that is one of `scores`.

    Args:
        text: to search.
        scores: those that a sentence must not state; other numbers count as content.

    Returns:
        The phrase, or a description of the verdict's form; empty where the text does not judge
        itself.

    >>> self_judgement("The scoreboard says that the score is 3.")
    ''
    >>> self_judgement("A cup. This answer deserves a 3.")
    'This answer deserves a 3'
    """
    text = plain_text(text.strip())
    match = _JUDGES_ITSELF.search(text)
    if match:
        return match[0]
    # Three formats whose marker stands before verdicts only, and never before content.
    for form in ("prometheus", "mt-bench-score", "flow-judge"):
        if not parse(text, scores=range(101), format=form).failure:
            return f"a verdict in the form of {form}"
    sentences = _SENTENCES.split(text)
    for sentence in (sentences[0], sentences[-1]):
        verdict = _VERDICT.fullmatch(sentence)
        # "So the score is 3" and "Score: 3" are verdicts; "The score is 3" may be of a game.
        if verdict and (verdict["so"] or verdict["label"]) and _value(verdict) in scores:
            return verdict[0].strip()
    return ""


def check_text(name: str, text: str, scores: Container[float] = ()) -> str:
    """Strip a field's text, and check it.

    Args:
        name: of the field, for messages.
        text: as the generator wrote it.
        scores: scores that the text must not state; empty for a text that may judge itself.

    Returns:
        The text without white space around it.

    Raises:
        Fault: the text is blank, copied from the sample, holds markup or judges itself.
    """
    text = text.strip()
    if not text or text in _FORM:
        raise Fault(
            "wrong form",
            f"{name} is {text!r}",
            "it repeated the words of the form, or left a text out; fill the form in.",
        )
    quote = self_judgement(text, scores) if scores else ""
    if quote:
        note = f"{name} spoke of its own score or level, the rubric or planned errors."
        raise Fault("score leak", f"{name} says {quote!r}", f"{note} It must never do so.")
    match = _MARKUP.search(text)
    if match:
        note = "Use plain prose without headers, tags, markers or control characters."
        raise Fault("markup", f"{name} holds {match[0].strip()!r}", f"{name} held markup. {note}")
    return text


def check_feedback(text: str, score: int) -> str:
    """Return a feedback without its closing "So the overall score is N.", and check the rest.

    Args:
        text: as the generator wrote it.
        score: the one that the generator was asked for.

    Raises:
        Fault: the closing states another score, the feedback opens with its score, or its text
            fails `check_text`.
    """
    text = text.strip()
    sentences = _SENTENCES.split(text)
    opening_line = sentences[0]
    closing_line = sentences[-1]
    closing = _VERDICT.fullmatch(closing_line)
    if closing and (closing["so"] or closing["overall"]):
        if _value(closing) != score:
            detail = f"the feedback for score {score} ends {closing_line.strip()!r}"
            note = f"the feedback stated another score than the one asked for, {score}."
            raise Fault("contradiction", detail, note)
        text = text.removesuffix(closing_line)
    # An empty text was nothing but its closing; `check_text` below refuses it as blank.
    opening = _VERDICT.fullmatch(opening_line)
    if text and opening and opening["overall"] and _value(opening) == score:
        raise Fault(
            "score leak", f"feedback says {opening_line!r}", "the feedback stated the score."
        )
    return check_text("feedback", text, (score,))


def normal(text: str) -> str:
    """Normalise a text for comparisons: without case, punctuation and white space."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def check_length(name: str, text: str, limits: Mapping) -> None:
    """Check the number of words of a text, by `n_words`.

    Args:
        name: of the text, for messages.
        text: to check.
        limits: the keys "least" and "most": the allowed numbers of words.

    Raises:
        Fault: the text has fewer or more words.
    """
    length = n_words(text)
    if not limits["least"] <= length <= limits["most"]:
        allowed = f"{limits['least']} to {limits['most']}"
        note = f"{name} had {length} words, and must have {allowed}."
        raise Fault("length", f"{name} has {length} words, not {allowed}", note)


def near_duplicate(text: str, texts: Mapping[str, str], threshold: float = NEAR) -> Fault | None:
    """Compare a text with others; return a `Fault` where it is too similar to one, else None.

    Args:
        text: as the generator wrote it.
        texts: name -> text, as `normal` returns it.
        threshold: the similarity from which on a text is a near duplicate, in percent.
    """
    closest = process.extractOne(normal(text), texts, scorer=fuzz.ratio, score_cutoff=threshold)
    if closest is None:
        return None
    _, similarity, name = closest
    detail = f"{text[:60]!r} is {similarity:.0f} % like {name}"
    return Fault("near duplicate", detail, "it was too close to one that there is already.")


def _value(verdict: re.Match[str]) -> float:
    """Return the number in a match of `_VERDICT`, which may be a word such as "three"."""
    return float(_NUMBERS.get(verdict["n"].lower(), verdict["n"]))
