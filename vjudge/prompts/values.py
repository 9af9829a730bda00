r"""Read a line that begins with one score; `choices.py` reads one that begins with a choice.

The line's formatting ("dress": bold, brackets, quotes, boxes, tags) is removed first. Then the line
must be a value, or a value, a separator, and words that hold no second value. A reader returns a
`Value`, or a `str` with the reason why there is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from vjudge.prompts.phrases import DIGITS, LABEL, NOUN, any_of, compiled
from vjudge.records import NAN

# Reasons why a line has no value.
OFF_SCALE = "not on the scale"
MORE = "more than a verdict on its line"
NO_VALUE = "no verdict marker with a verdict after it"
LONGEST = 1000  # characters of a line that can be a verdict and its explanation


class Value(NamedTuple):
    """The value in an answer; the fields are those of `vjudge.records.Verdict`."""

    score: float = NAN
    choice: str | None = None
    scores: tuple[float, ...] | Mapping[str, float] | None = None


Scale: TypeAlias = Sequence[int]
"""The whole numbers of a scale, lowest first."""
ValueOrReason: TypeAlias = Value | str
"""The value that was read; a `str` is the reason why there is none."""


class Candidate(NamedTuple):
    """What was read at one position of an answer where a verdict may stand."""

    start: int  # where the marker, or the JSON object, starts, in characters of the answer
    stop: int  # where the verdict's line, brackets or JSON object ends
    value: ValueOrReason
    value_start: int = 0  # where the text of the value starts, between `start` and `stop`
    feedback: str | None = None  # the feedback in the same JSON object
    is_prose: bool = False  # whether its first words hold no value, as in a heading


# --- a line without its dress

# Each kind of line end, dash, quote and bracket becomes the ASCII one, character by character.
_PLAIN: dict[int, int] = str.maketrans(
    "\x85\u2028\u2029\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\u3002\u2018\u2019\u201a"
    "\u201b\u201c\u201d\u201e\u201f\xab\xbb\u300c\u300d\u300e\u300f\u3010\u3011\u2044\u2215\u3001",
    "\n\n\n----::---.''''" + 10 * '"' + "[]//,",
)
_PLAIN.update({code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)})  # full-width ASCII
# White space, invisible characters and ornaments, each of which becomes a blank.
_BLANK = re.compile(
    r"[^\S\n]|[\0\x1c-\x1f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufe0f\u20e3\u2605\u2606"
    "\u2696\u2705\u2714\u2728\u2b50\U0001f300-\U0001f64f\U0001f680-\U0001f6ff\U0001f900-\U0001faff]"
)
# Tags as </b> and <|im_end|>, LaTeX as \boxed and \(, emphasis, quotes and closing brackets.
_DRESS = re.compile(
    r"</?\w+>|<\|[\w ]+\|>|\\(?:boxed|text(?:bf)?|math(?:bf|rm))\b|\\[()\[\]]|\}\$?"
    r"|[*_`\")\]]|(?<!\w)'|'(?!\w)"
)
# Words that change no verdict; a label or a noun only where a further word follows it.
_IDLE = compiled(rf"(?<![a-z])(?:{any_of('idle')}\b,?|(?:{LABEL}|{NOUN})(?![a-z])(?=\W*\w))")


def plain_text(text: str) -> str:
    """Replace dashes, quotes, blanks and digits of any script by ASCII ones, one for one."""
    text = _BLANK.sub(" ", text.translate(_PLAIN))
    # `[^\D0-9]` is a digit of another script, which int() reads
    return re.sub(r"[^\D0-9]", lambda digit: str(int(digit[0])), text)


def bare(text: str) -> str:
    """Remove emphasis, quotes, boxes and tags; an opening bracket of any kind becomes "("."""
    text = re.sub(r"\$([^$]*)\$", r" \1 ", text)  # "$4$", as LaTeX writes formulas
    return re.sub(r"[\[{]", "(", " ".join(_DRESS.sub(" ", text).split()))


def undress(text: str) -> str:
    r"""Remove the formatting of a line, and words that change no verdict ("the", "score").

    >>> undress(r"**The score is:** $\boxed{4}$/5")
    'is: (4 /5'
    """
    return " ".join(_IDLE.sub(" ", bare(text)).split())


# --- patterns of undressed lines

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
IS = r"[(|: ]*(?:winner ?|better (?:one )?)?(?:is ?|of ?)?(?:[:=(|]|- )*[( ]*"
"""A pattern of what `undress` leaves of a label before its value, such as "is: ("."""
_NUMBER = rf"[+-]?{DIGITS}|{'|'.join(WORDS)}"
_UNIT = r"(?: (?:points?|stars?|marks?|punkten?|puntos)\b| ?(?:点|분|점|分))?"
_OUT_OF = r"\(? ?(?:/|(?:out of|of|von|sur|de)\b) ?(?:a )?(?:possible |maximum )?"
# Matches "is: 1-5: 4 points / 5", where low is 1, high is 5, value is 4 and top is 5; matches
# "out of 5: 4", where high is 5; and "80 %". It does not match the beginning of "4.5.1" or "4½".
SCORE = re.compile(
    rf"(?i){IS}(?:(?:(?P<low>{DIGITS}) ?(?:-|to) ?|{_OUT_OF})(?P<high>{DIGITS}) ?[:=] ?)?"
    rf"(?P<value>{_NUMBER})(?![\d\xb2\xb3\xb9\xbc-\xbe])(?!\.\d){_UNIT}"
    rf"(?: ?{_OUT_OF}(?P<top>{_NUMBER}))?(?P<percent> ?%)?{_UNIT}"
)
# A number that names a response or an answer, and is no score: "Answer 2", "The answer is 3".
_NAMED = re.compile(
    r"(?i)\b(?:answer|response|assistant|model|option|candidate|winner|choice)(?: is)?[:=]? ?\d"
)
# A whole line such as "N/A" or "I cannot tell (the image is too dark)".
_ABSTAINED = compiled(rf"\(?{any_of('abstention')}(?: ?[.!]?| ?\([^\d]*)")
LOOKS_LIKE = {
    "score": re.compile(rf"(?i)\d+(?:\.\d+)?|\b(?:{'|'.join(WORDS[2:])})\b"),
    "choice": re.compile(r"\b(?:[AB12]|(?i:first|second|tied?|draw|equal\w{0,2}))\b"),
}
"""What a format gives ("score" or "choice") -> a pattern of what may be a value in a text.

Of the number words "zero" and "one" are left out: "one" is mostly a pronoun.
"""
SEPARATOR = re.compile(any_of("separator"))
"""What separates a verdict from its explanation, or the end of the line."""
_REASON = re.compile(r"(?i)\b(?:because|since|as|due to|given that)\b")
# A number that counts something: "since 1 object is missing", "2 of the colours".
_COUNTED = re.compile(
    rf"(?i)\b(?:\d+|{'|'.join(WORDS)})(?= (?:of (?:\w+ )?)?(?!(?:is|was|would|should|could|might"
    r"|may|can|seems?|fits?|and|or|for|to|than|but|if|at|in|on|as|points?|stars?|marks?|out|of|less"
    r"|more|lower|higher|instead|rather|then|not|because|since|given|after|with)\b)[a-z]{3,})"
)


def no_value(text: str, gives: str) -> ValueOrReason:
    """Say what a line is from which no single value was read.

    Args:
        text: the line, as plain text.
        gives: "score" or "choice".

    Returns:
        The choice "abstain" for an abstention ("N/A"); `MORE` if it holds anything like a value;
        else `NO_VALUE`.
    """
    if _ABSTAINED.fullmatch(bare(text)):
        return Value(choice="abstain")
    return MORE if LOOKS_LIKE[gives].search(text) else NO_VALUE


def score(text: str, scale: Scale, *, halves: bool = False) -> ValueOrReason:
    """Read a line that states one number of the scale.

    >>> score("**4/5** (good)", (1, 2, 3, 4, 5)).score, score("4 or 5", (1, 2, 3, 4, 5))
    (4.0, 'more than a verdict on its line')

    Args:
        text: the line, as plain text.
        scale: whole numbers, lowest first.
        halves: whether numbers between those of the scale are read, too.
    """
    # 1) one value, and no other one in the words after it
    undressed = undress(text)
    hit = SCORE.match(undressed)
    if hit is None or _NAMED.search(bare(text)):
        return no_value(text, "score")
    number = _number(hit["value"])
    if not _only_explains(undressed[hit.end() :], number):
        return MORE
    # 2) on the scale; where the line names the scale's ends ("4/5"), they have to be the same
    lowest = scale[0]
    highest = scale[-1]
    fits = number in scale or (halves and lowest <= number <= highest)
    limits = {"low": lowest, "high": highest, "top": highest}
    for name, limit in limits.items():
        fits = fits and (hit[name] is None or _number(hit[name]) == limit)
    fits = fits and (hit["percent"] is None or highest == 100)
    return Value(number) if fits else f"{OFF_SCALE} of {lowest} to {highest}"


def _number(text: str) -> float:
    """Convert digits, or a number word from "zero" to "ten", to a number."""
    word = text.lower()
    return float(WORDS.index(word) if word in WORDS else word)


def _only_explains(tail: str, number: float) -> bool:
    """Whether the text after a score is an explanation that holds no other number.

    Args:
        tail: the text after the score on its line.
        number: the score, which the explanation may repeat.
    """
    if not SEPARATOR.match(tail):
        return False
    # a reason may count things: "4, because 1 hat is missing"
    if _REASON.search(tail):
        tail = _COUNTED.sub("", tail)
    return all(_number(hit[0]) == number for hit in LOOKS_LIKE["score"].finditer(tail))
