"""Read a line that begins with a choice between two responses, or with two scores."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vjudge.prompts.phrases import DIGITS, NOUN, WEAKER, WHO
from vjudge.prompts.values import (
    IS,
    LOOKS_LIKE,
    MORE,
    NO_VALUE,
    OFF_SCALE,
    SCORE,
    SEPARATOR,
    Scale,
    Value,
    ValueOrReason,
    bare,
    no_value,
    undress,
)

DEGREES = {"A>>B": "a", "A>B": "a", "A=B": "tie", "B>A": "b", "B>>A": "b"}
FOUR_SIGNS = DEGREES | {"A=B=GOOD": "tie", "A=B=BAD": "tie"}
LETTERS = {"A": "a", "B": "b", "C": "tie", "TIE": "tie"}

_TEN = r"(?: ?(?:/|out of) ?10)?"
_PAIR = re.compile(rf"({DIGITS}){_TEN} ?[ ,;|] ?({DIGITS}){_TEN} ?[.]?")  # "8/10, 6/10"
_BEST = (
    rf"(?:better|best|preferred|winner|superior|stronger|{NOUN})(?: one| {NOUN})?|besser|mejor"
    "|meilleure?"
)
_TIE = rf"(?:tied?|draw)|(?:(?:(?:both|two)(?: {NOUN}s?)?|they)(?: are)? )?equal(?:ly good)?"
# "is: tie", "is: A", "A > B", "first one wins", "2 is better than 1"
_CHOICE = re.compile(
    rf"(?i){IS}(?:it ?(?:is|'s) )?(?:(?:a )?(?P<tie>{_TIE})"
    rf"|(?P<who>{WHO})(?:(?<=t|d) (?:one|{NOUN}))?"
    rf"(?: ?(?P<sign>>{{1,3}}|<{{1,3}}|=|beats ) ?(?P<beaten>{WHO})"
    rf"| wins| (?:is|was|ist|est|es) (?:{_BEST})(?: (?:than|over|to) (?P<than>{WHO}))?)?)(?!\w)"
)
_SIGN = re.compile(rf"(?i)[( ]*(tie|[a-z](?: ?[<>=]+ ?[a-z]+)*)(?: is {NOUN})?(?![\w/])")


def side_of(who: str) -> str:
    """Name the response that "first", "2" or "A" is: "a" or "b"; "tie" for other words."""
    who = who.casefold()
    if who in ("a", "1", "first"):
        return "a"
    return "b" if who in ("b", "2", "second") else "tie"


def choice(text: str, scale: Scale = (), *, signs: str = "ab12") -> ValueOrReason:
    """Read a line that says one choice; `signs` are the letters and digits that stand for one.

    >>> choice("Answer 2 is better.").choice, choice("A is weaker than B")
    ('b', 'more than a verdict on its line')
    """
    # 1) the side that the line names first, in the letters or digits of the format
    undressed = undress(text)
    hit = _CHOICE.match(undressed)
    if hit is None:
        return no_value(text, "choice")
    if hit["who"] and hit["who"] in "12" and "1" not in signs:
        return f"{OFF_SCALE} of {', '.join(signs).upper()}"
    side = side_of(hit["who"] or "tie")
    # 2) the side that it beats: "A > B", "A beats B", "B is better than A"
    beaten = side_of(hit["beaten"] or hit["than"] or "tie")
    if beaten == side != "tie":  # "A is better than A"
        return MORE
    if hit["sign"]:
        sides = {">": side, "b": side, "<": beaten, "=": "tie"}  # "b" begins "beats"
        side = sides[hit["sign"][0]]
    return _unless_more(side, undressed[hit.end() :])


def bracketed(text: str, scale: Scale = (), *, table: Mapping[str, str]) -> ValueOrReason:
    """Read what double brackets hold: one of a table's signs, such as "A>>B"."""
    undressed = undress(text)
    hit = _SIGN.match(undressed)
    sign = re.sub(r"\s", "", hit[1]).upper() if hit else ""
    if hit and sign in table:
        return _unless_more(table[sign], undressed[hit.end() :])
    reason = no_value(text, "choice")
    return f"{OFF_SCALE} of {', '.join(table)}" if reason == MORE else reason


def _unless_more(side: str, tail: str) -> ValueOrReason:
    """Return a choice, unless what stands behind it names a side otherwise than as the weaker."""
    if not SEPARATOR.match(tail):
        return MORE
    # "A because B misses the hat" keeps A; "A because B is better" and "A, B" do not
    for hit in LOOKS_LIKE["choice"].finditer(tail):
        is_same = side_of(hit[0]) == side
        is_weaker = WEAKER.match(tail, hit.end()) is not None
        if is_weaker == is_same or (side == "tie" and not is_same):
            return MORE
    return Value(choice=side)


def two_scores(text: str, scale: Scale, *, of_second: bool = False) -> ValueOrReason:
    """Read a line of two numbers: as a choice by them, or `of_second` as the second one."""
    hit = _PAIR.fullmatch(bare(text).lstrip("("))
    if hit is None:
        return NO_VALUE
    scores = (float(hit[1]), float(hit[2]))  # of the first response and of the second
    if min(scores) < scale[0] or max(scores) > scale[-1]:
        return OFF_SCALE
    if of_second:
        return Value(score=scores[1], scores=scores)
    if scores[0] == scores[1]:
        return Value(choice="tie", scores=scores)
    return Value(choice="a" if scores[0] > scores[1] else "b", scores=scores)


def is_value(text: str) -> bool:
    """Whether a line is a value of any kind and scale, and nothing else."""
    text = undress(text) if len(text) <= 200 else ""
    for kind in (SCORE, _CHOICE, _PAIR):
        hit = kind.match(text)
        if hit and not text[hit.end() :].strip(" .!,;:"):
            return True
    return False
