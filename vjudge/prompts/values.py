r"""Read a line that is one value and nothing else: a score, a choice, or two scores.

The usual dress is taken off first (bold, brackets, quotes, boxes, tags); then the whole line has to
match. A reader returns what the line says, or as a text why it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

OFF_SCALE = "not on the scale"
MORE = "more than a verdict on its line"
NO_VALUE = "no verdict marker with a verdict after it"
LONGEST = 200  # characters of a line that can be a value


class Said(NamedTuple):
    """What an answer says; the fields are those of `vjudge.records.Verdict`."""

    score: float | None = None
    choice: str | None = None
    scores: tuple | Mapping | None = None


class Reading(NamedTuple):
    """What is said at one place of an answer, or as a text why nothing is."""

    start: int
    end: int
    said: Said | str
    prose: bool = False  # a marker without a value after it, as prose has
    feedback: str | None = None


# --- plain signs: one for each kind of dash, quote, bracket and space, so that places stay

_SIGNS = {
    "\n": "\x85\u2028\u2029",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63",
    ".": "\u3002",
    "'": "\u2018\u2019\u201a\u201b",
    '"': "\u201c\u201d\u201e\u201f\xab\xbb\u300c\u300d\u300e\u300f",
    "[": "\u3010",
    "]": "\u3011",
    "/": "\u2044\u2215",
}
_PLAIN = {ord(sign): plain for plain, signs in _SIGNS.items() for sign in signs}
_PLAIN.update({code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)})  # full width
_BLANK = re.compile(r"[^\S\n]|[\0\x1c-\x1f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_TAG = "b|i|u|p|em|strong|span|div|code|big|mark|score|rating|answer|result|verdict|output"
_DRESS = re.compile(
    rf"(?i)</?(?:{_TAG})>|</s>|<\|[\w ]{{1,30}}\|>|\\(?:boxed|text(?:bf)?|math(?:bf|rm))\b"
    r"|\\[()\[\]]|[*_`\"'()\[\]{}]"
)


def plain_text(text: str) -> str:
    """A text of the same length with plain dashes, quotes, blanks and digits."""
    text = _BLANK.sub(" ", text.translate(_PLAIN))
    return re.sub(r"\d", lambda digit: str(int(digit[0])), text)


def undress(line: str) -> str:
    r"""The first characters of a line, in lower case, without emphasis, brackets, boxes and tags.

    >>> undress(r"**Score:** $\boxed{4}$/5")
    'score: 4 /5'
    """
    line = re.sub(r"\$([^$]*)\$", r" \1 ", line[:LONGEST])
    return " ".join(_DRESS.sub(" ", line).split()).casefold()


# --- scores

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
DIGITS = r"\d{1,9}(?:\.\d{1,9})?"
_NUMBER = rf"[+-]?{DIGITS}|{'|'.join(WORDS)}"
_LABEL = (
    r"(?:(?:so |therefore |thus ),? ?)?(?:(?:the |my |a )?(?:(?:final|overall|total) )?(?:score"
    r"|rating|grade|verdict|judge?ment|result|answer|choice|winner|better (?:response|answer))"
    r"(?: is| of)?|is) ?[:=]? ?"
)
_OUT_OF = r"(?:/|\bout of\b|\bof\b) ?(?:a )?(?:possible |maximum |total )?"
_SCORE = re.compile(
    rf"(?:{_LABEL})?(?:(?:(?P<low>{DIGITS}) ?(?:-|to) ?|{_OUT_OF})(?P<high>{DIGITS}) ?[:=] ?)?"
    rf"(?P<value>{_NUMBER})(?: ?{_OUT_OF}(?P<top>{_NUMBER}))?(?P<percent> ?%)?"
    rf"(?: (?:points?|stars?|marks?))?(?: ?{_OUT_OF}(?P<best>{_NUMBER}))? ?[.!,;:]?"
)
_ABSTAINED = re.compile(
    r"(?:n/?a|not applicable|abstain(?:ed|s)?|(?:i )?(?:cannot|can ?t|unable to) (?:be )?"
    r"(?:judged?|decided?|determined?|tell|evaluated?)) ?[.!]?"
)
_ANY_NUMBER = rf"(?:\d|(?i:\b(?:{'|'.join(WORDS[2:])})\b))"
_ANY_CHOICE = r"\b(?:[AB12]|(?i:first|second|tie|tied|draw|equal\w{0,2}))\b"
LOOKS_LIKE = {  # a value in a line or text that is more than one
    "score": re.compile(_ANY_NUMBER),
    "choice": re.compile(_ANY_CHOICE),
}
# a number in the first word, or a choice in the first three
OPENS_WITH_VALUE = re.compile(
    rf"\s*(?:(?:(?!{_ANY_NUMBER})\S)*{_ANY_NUMBER}|(?:\S+\s+){{0,2}}(?:(?!{_ANY_CHOICE})\S)*{_ANY_CHOICE})"
)


def _number(text: str) -> float:
    return float(WORDS.index(text)) if text in WORDS else float(text)


def _no_value(line: str, gives: str) -> Said | str:
    """What a line says that is no value: an abstention, or why it says nothing."""
    if _ABSTAINED.fullmatch(undress(line)):
        return Said(choice="abstain")
    return MORE if LOOKS_LIKE[gives].search(line[:LONGEST]) else NO_VALUE


def score(line: str, scale: Sequence, *, halves: bool = False) -> Said | str:
    """A line that is one number of the scale; `halves` allows the numbers between.

    >>> score("**4/5**", (1, 2, 3, 4, 5)).score, score("4 or 5", (1, 2, 3, 4, 5))
    (4.0, 'more than a verdict on its line')
    """
    hit = _SCORE.fullmatch(undress(line))
    if hit is None or len(line) > LONGEST:
        return _no_value(line, "score")
    value = _number(hit["value"])
    fits = value in scale or (halves and scale[0] <= value <= scale[-1])
    ends = [(hit["low"], scale[0]), ("100" if hit["percent"] else None, scale[-1])]
    ends += [(hit[name], scale[-1]) for name in ("high", "top", "best")]
    for said, end in ends:
        if said and _number(said) != end:
            fits = False
    return Said(score=value) if fits else f"{OFF_SCALE} of {scale[0]} to {scale[-1]}"


_PAIR = re.compile(
    rf"({DIGITS})(?: ?(?:/|out of) ?10)? ?[ ,;|] ?({DIGITS})(?: ?(?:/|out of) ?10)? ?[.]?"
)


def two_scores(line: str, scale: Sequence, *, of_second: bool = False) -> Said | str:
    """A line of two numbers: a choice by them, or `of_second` the second one."""
    hit = _PAIR.fullmatch(undress(line))
    if hit is None or len(line) > LONGEST:
        return NO_VALUE
    first = float(hit[1])
    second = float(hit[2])
    if min(first, second) < scale[0] or max(first, second) > scale[-1]:
        return OFF_SCALE
    if of_second:
        return Said(score=second, scores=(first, second))
    if first == second:
        return Said(choice="tie", scores=(first, second))
    return Said(choice="a" if first > second else "b", scores=(first, second))


# --- choices

WHO = (
    r"(?:(?:the )?(?:response|answer|assistant|model|option|candidate) )?(?:a|b|1|2)"
    r"|(?:the )?(?:first|second)(?: (?:response|answer|assistant|model|option|one))?"
)
_VERY = r"(?:much|far|slightly|clearly|marginally|significantly|overall|definitely|the)"
_BETTER = rf"(?:is|was) (?:{_VERY} ){{0,3}}(?:better|best|preferred|superior|winner|stronger)"
_TIE = (
    r"(?:a )?(?:tie|tied|draw)|(?:the )?(?:(?:both|two)(?: (?:responses|answers))? (?:are )?)?"
    r"equal(?:ly good)?|they are equally good"
)
FILLERS = re.compile(
    r"(?i)(?:(?:so|thus|therefore|hence|overall|finally|in conclusion|conclusion|and|my|the|is"
    r"|judge'?s)\b[ ,:]*)*"
)
_CHOICE = re.compile(
    rf"(?:{FILLERS.pattern[4:]})(?:{_LABEL})?(?:(?P<who>{WHO})(?: {_BETTER}"
    rf"(?: (?:response|answer|one|option|choice))?(?: than (?P<than>{WHO}))?| wins)?"
    rf"|(?P<tie>{_TIE})) ?[.!]?"
)


def side_of(who: str) -> str:
    """Which of two responses "the first response", "Answer 2" or "A" is."""
    return "a" if re.search(r"(?i)\b(?:a|1|first)\b", who) else "b"


def choice(line: str, scale: Sequence = (), *, signs: str = "ab12") -> Said | str:
    """A line that is one choice; `signs` are the letters and digits that stand for one.

    >>> choice("Answer 2 is better.").choice, choice("A is weaker than B")
    ('b', 'more than a verdict on its line')
    """
    hit = _CHOICE.fullmatch(undress(line))
    if hit is None or len(line) > LONGEST:
        return _no_value(line, "choice")
    if hit["tie"]:
        return Said(choice="tie")
    sign = hit["who"].split()[-1]
    if sign in "ab12" and sign not in signs:
        return f"{OFF_SCALE} of {', '.join(signs).upper()}"
    side = side_of(hit["who"])
    if hit["than"] and side_of(hit["than"]) == side:
        return MORE
    return Said(choice=side)


DEGREES = {"A>>B": "a", "A>B": "a", "A=B": "tie", "B>A": "b", "B>>A": "b"}
LETTERS = {"A": "a", "B": "b", "C": "tie", "TIE": "tie"}


def sign(line: str, scale: Sequence = (), *, table: Mapping) -> Said | str:
    """What double brackets hold: one of a table's signs."""
    bare = re.sub(r"[\s*_]", "", line.upper())
    if bare in table:
        return Said(choice=table[bare])
    said = _no_value(line, "choice")
    return f"{OFF_SCALE} of {', '.join(table)}" if said == MORE else said


def is_value(line: str) -> bool:
    """Whether a line is a value of any kind and scale."""
    bare = undress(line)
    return any(kind.fullmatch(bare) for kind in (_SCORE, _CHOICE, _PAIR))
