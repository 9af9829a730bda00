r"""Read a line that is one value and nothing else: a score, a choice, or two scores.

The usual dress is taken off first (bold, brackets, quotes, boxes, tags); then the whole line has to
match. A reader returns what the line says, or as a text why it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vjudge.records import NAN

OFF_SCALE = "not on the scale"
MORE = "more than a verdict on its line"
NO_VALUE = "no verdict marker with a verdict after it"
LONGEST = 200  # characters of a line that can be a value


class Said(NamedTuple):
    """What an answer says; the fields are those of `vjudge.records.Verdict`."""

    score: float = NAN
    choice: str | None = None
    scores: tuple | Mapping | None = None


# --- a line without its dress

_PLAIN: dict = str.maketrans(  # each kind of line end, dash, quote and bracket, so that places stay
    "\x85\u2028\u2029\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\u3002\u2018\u2019\u201a"
    "\u201b\u201c\u201d\u201e\u201f\xab\xbb\u300c\u300d\u300e\u300f\u3010\u3011\u2044\u2215",
    "\n\n\n---------.''''" + 10 * '"' + "[]//",
)
_PLAIN.update({code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)})  # full width
_BLANK = re.compile(r"[^\S\n]|[\0\x1c-\x1f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_DRESS = re.compile(
    r"</?\w+>|<\|[\w ]+\|>|\\(?:boxed|text(?:bf)?|math(?:bf|rm))\b|\\[()\[\]]|\}\$?|[*_`\"'()\[\]{]"
)
_NOUN = (
    "(?:score|rating|grade|judge?ment|verdict|result|choice|answer|response|assistant|model"
    "|option|candidate)"
)
_IDLE = re.compile(  # words that change no verdict; a noun at the end of a line may
    r"\b(?:(?:so|thus|therefore|hence|finally|(?:in )?conclusion|my|the|final|overall|total"
    r"|judge ?s|far|much|slightly|clearly|marginally|significantly|definitely)\b,?"
    rf"|{_NOUN}\b(?=\W*\w))"
)


def plain_text(text: str) -> str:
    """A text of the same length with plain dashes, quotes, blanks and digits."""
    text = _BLANK.sub(" ", text.translate(_PLAIN))
    return re.sub(r"\d", lambda digit: str(int(digit[0])), text)


def _bare(line: str) -> str:
    """The first characters of a line, in lower case, without emphasis, brackets, boxes and tags."""
    line = re.sub(r"\$([^$]*)\$", r" \1 ", line[:LONGEST])
    return " ".join(_DRESS.sub(" ", line).casefold().split())


def undress(line: str) -> str:
    r"""The same without idle words.

    >>> undress(r"**The score is:** $\boxed{4}$/5")
    'is: 4 /5'
    """
    return " ".join(_IDLE.sub(" ", _bare(line)).split())


# --- patterns of undressed lines

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
DIGITS = r"\d{1,9}(?:\.\d{1,9})?"
WHO = "(?:[ab12]|first|second)"
_NUMBER = rf"[+-]?{DIGITS}|{'|'.join(WORDS)}"
_IS = r"(?:winner ?|better (?:one )?)?(?:is ?|of ?)?[:=]? ?"
_UNIT = r"(?: (?:points?|stars?|marks?))?"
_OUT_OF = r"(?:/|\bout of\b|\bof\b) ?(?:a )?(?:possible |maximum )?"
_SCORE = re.compile(
    rf"{_IS}(?:(?:(?P<low>{DIGITS}) ?(?:-|to) ?|{_OUT_OF})(?P<high>{DIGITS}) ?[:=] ?)?"
    rf"(?P<value>{_NUMBER}){_UNIT}(?: ?{_OUT_OF}(?P<top>{_NUMBER}))?(?P<percent> ?%)?{_UNIT}"
    r"[.!,;: ]*"
)
_NAMED = re.compile(  # no score: "Answer 2", "The answer is 3"
    r"\b(?:answer|response|assistant|model|option|candidate|winner|choice)(?: is)?[:=]? ?\d"
)
_TEN = r"(?: ?(?:/|out of) ?10)?"
_PAIR = re.compile(rf"({DIGITS}){_TEN} ?[ ,;|] ?({DIGITS}){_TEN} ?[.]?")
_CHOICE = re.compile(
    rf"{_IS}(?:(?P<who>{WHO})(?:(?<=t|d) (?:one|{_NOUN}))?(?: wins| (?:is|was) (?:better|best"
    rf"|preferred|winner|superior|stronger)(?: one| {_NOUN})?(?: than (?P<than>{WHO}))?)?|(?:a )?"
    r"(?:tied?|draw)|(?:(?:(?:both|two)(?: answers| responses)?|they)(?: are)? )?equal(?:ly good)?)"
    r"[.! ]*"
)
_ABSTAINED = re.compile(
    r"(?:n/?a|not applicable|abstain(?:ed|s)?|(?:i )?(?:cannot|can ?t|unable to) (?:be )?"
    r"(?:judged?|decided?|determined?|tell|evaluated?)) ?[.!]?"
)
LOOKS_LIKE = {  # a value in a line or text that is more than one
    "score": re.compile(rf"(?i)\d|\b(?:{'|'.join(WORDS[2:])})\b"),
    "choice": re.compile(r"\b(?:[AB12]|(?i:first|second|tie|tied|draw|equal\w{0,2}))\b"),
}


# --- readers of a line


def _match(pattern: re.Pattern, line: str) -> re.Match | None:
    return pattern.fullmatch(undress(line)) if len(line) <= LONGEST else None


def is_value(line: str) -> bool:
    """Whether a line is a value of any kind and scale."""
    return any(_match(kind, line) for kind in (_SCORE, _CHOICE, _PAIR))


def _no_value(line: str, gives: str) -> Said | str:
    """What a line says that is no value: an abstention, or why it says nothing."""
    if _match(_ABSTAINED, line):
        return Said(choice="abstain")
    return MORE if LOOKS_LIKE[gives].search(line[:LONGEST]) else NO_VALUE


def _number(text: str) -> float:
    return float(WORDS.index(text)) if text in WORDS else float(text)


def score(line: str, scale: Sequence, *, halves: bool = False) -> Said | str:
    """A line that is one number of the scale; `halves` allows the numbers between.

    >>> score("**4/5**", (1, 2, 3, 4, 5)).score, score("4 or 5", (1, 2, 3, 4, 5))
    (4.0, 'more than a verdict on its line')
    """
    hit = _match(_SCORE, line)
    if hit is None or _NAMED.search(_bare(line)):
        return _no_value(line, "score")
    lowest = scale[0]
    highest = scale[-1]
    value = _number(hit["value"])
    fits = value in scale or (halves and lowest <= value <= highest)
    fits = fits and (hit["low"] is None or _number(hit["low"]) == lowest)
    for top in (hit["high"], hit["top"], "100" if hit["percent"] else None):
        fits = fits and (top is None or _number(top) == highest)
    return Said(score=value) if fits else f"{OFF_SCALE} of {lowest} to {highest}"


def two_scores(line: str, scale: Sequence, *, of_second: bool = False) -> Said | str:
    """A line of two numbers: a choice by them, or `of_second` the second one."""
    hit = _PAIR.fullmatch(_bare(line))
    if hit is None:
        return NO_VALUE
    first, second = scores = (float(hit[1]), float(hit[2]))
    if min(scores) < scale[0] or max(scores) > scale[-1]:
        return OFF_SCALE
    if of_second:
        return Said(score=second, scores=scores)
    if first == second:
        return Said(choice="tie", scores=scores)
    return Said(choice="a" if first > second else "b", scores=scores)


def side_of(who: str) -> str:
    """Which of two responses "first", "2" or "A" is."""
    return "a" if who.casefold() in ("a", "1", "first") else "b"


def choice(line: str, scale: Sequence = (), *, signs: str = "ab12") -> Said | str:
    """A line that is one choice; `signs` are the letters and digits that stand for one.

    >>> choice("Answer 2 is better.").choice, choice("A is weaker than B")
    ('b', 'more than a verdict on its line')
    """
    hit = _match(_CHOICE, line)
    if hit is None:
        return _no_value(line, "choice")
    if hit["who"] is None:
        return Said(choice="tie")
    if hit["who"] in "12" and "1" not in signs:
        return f"{OFF_SCALE} of {', '.join(signs).upper()}"
    side = side_of(hit["who"])
    return MORE if hit["than"] and side_of(hit["than"]) == side else Said(choice=side)


DEGREES = {"A>>B": "a", "A>B": "a", "A=B": "tie", "B>A": "b", "B>>A": "b"}
LETTERS = {"A": "a", "B": "b", "C": "tie", "TIE": "tie"}


def sign(line: str, scale: Sequence = (), *, table: Mapping) -> Said | str:
    """What double brackets hold: one of a table's signs."""
    bare = re.sub(r"[\s.!]", "", undress(line)).upper()
    if bare in table:
        return Said(choice=table[bare])
    said = _no_value(line, "choice")
    return f"{OFF_SCALE} of {', '.join(table)}" if said == MORE else said
