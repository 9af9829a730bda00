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

# Tables for `bracketed`: what stands in double brackets -> the choice that it means.
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
# "is: tie", "is: A", "A > B", "first one wins", "2 is better than 1"; "one" or a noun follows only
# "first" and "second", which end in "t" and "d"
_CHOICE = re.compile(
    rf"(?i){IS}(?:it ?(?:is|'s) )?(?:(?:a )?(?P<tie>{_TIE})"
    rf"|(?P<who>{WHO})(?:(?<=t|d) (?:one|{NOUN}))?"
    rf"(?: ?(?P<sign>>{{1,3}}|<{{1,3}}|=|beats ) ?(?P<beaten>{WHO})"
    rf"| wins| (?:is|was|ist|est|es) (?:{_BEST})(?: (?:than|over|to) (?P<than>{WHO}))?)?)(?!\w)"
)
# "A>>B", "(A = B = good", "tie", "C"
_SIGN = re.compile(rf"(?i)[( ]*(tie|[a-z](?: ?[<>=]+ ?[a-z]+)*)(?: is {NOUN})?(?![\w/])")


def side_of(who: str) -> str:
    """Convert "A", "1" or "first" to "a", "B", "2" or "second" to "b", and other words to "tie"."""
    who = who.casefold()
    if who in ("a", "1", "first"):
        return "a"
    return "b" if who in ("b", "2", "second") else "tie"


def choice(text: str, scale: Scale = (), *, signs: str = "ab12") -> ValueOrReason:
    """Read a line that states one choice.

    >>> choice("Answer 2 is better.").choice, choice("A is weaker than B")
    ('b', 'more than a verdict on its line')

    Args:
        text: the line, as plain text.
        scale: not used; every reader of `formats.READERS` is given one.
        signs: the letters and digits by which the format names a response: "ab12", or "ab" where
            digits name none.
    """
    # 1) the side that the line names first, in the letters or digits of the format
    undressed = undress(text)
    hit = _CHOICE.match(undressed)
    if hit is None:
        return no_value(text, "choice")
    if hit["who"] and hit["who"] in "12" and "1" not in signs:  # a digit, but letters are due
        return f"{OFF_SCALE} of {', '.join(signs).upper()}"
    side = side_of(hit["who"] or "tie")
    # 2) the side that it beats: "A > B", "A beats B", "B is better than A"; "tie" if none is named
    beaten = side_of(hit["beaten"] or hit["than"] or "tie")
    if beaten == side != "tie":  # "A is better than A"
        return MORE
    # the choice by the first character of the sign, which is "b" for "beats"; without a sign it is
    # the side that is named first
    if hit["sign"]:
        sides = {">": side, "b": side, "<": beaten, "=": "tie"}
        side = sides[hit["sign"][0]]
    return _unless_more(side, undressed[hit.end() :])


def bracketed(text: str, scale: Scale = (), *, table: Mapping[str, str]) -> ValueOrReason:
    """Read one sign of a table, such as "A>>B", from inside double brackets.

    Args:
        text: what the brackets hold.
        scale: not used; every reader of `formats.READERS` is given one.
        table: sign -> choice.
    """
    undressed = undress(text)
    hit = _SIGN.match(undressed)
    sign = re.sub(r"\s", "", hit[1]).upper() if hit else ""
    if hit and sign in table:
        return _unless_more(table[sign], undressed[hit.end() :])
    # an abstention, no value, or (`MORE`) what looks like a choice but is no sign of the table
    reason = no_value(text, "choice")
    return f"{OFF_SCALE} of {', '.join(table)}" if reason == MORE else reason


def _unless_more(side: str, tail: str) -> ValueOrReason:
    """Return a choice, unless the text after it may name another one.

    Args:
        side: the choice: "a", "b" or "tie".
        tail: the text after it on its line. It may name the same response again, or the other one
            as the weaker; after a tie it may name no response.
    """
    if not SEPARATOR.match(tail):
        return MORE
    # "A because B misses the hat" keeps A; "A because B is better", "A, B" and "A, as A misses the
    # hat" do not
    for hit in LOOKS_LIKE["choice"].finditer(tail):
        is_same = side_of(hit[0]) == side
        is_weaker = WEAKER.match(tail, hit.end()) is not None
        if is_weaker == is_same or (side == "tie" and not is_same):
            return MORE
    return Value(choice=side)


def two_scores(text: str, scale: Scale, *, of_second: bool = False) -> ValueOrReason:
    """Read a line of two scores, of the first response and of the second.

    Args:
        text: the line, as plain text.
        scale: the scale of both, lowest first.
        of_second: return the second response's score, instead of a choice: the first response is
            then a reference.

    Returns:
        The choice of the response with the higher score, or the second score; both with all
        `scores`.
    """
    hit = _PAIR.fullmatch(bare(text).lstrip("("))  # `bare` makes "(" of an opening bracket
    if hit is None:
        return NO_VALUE
    scores = (float(hit[1]), float(hit[2]))
    if min(scores) < scale[0] or max(scores) > scale[-1]:
        return OFF_SCALE
    if of_second:
        return Value(score=scores[1], scores=scores)
    if scores[0] == scores[1]:
        return Value(choice="tie", scores=scores)
    return Value(choice="a" if scores[0] > scores[1] else "b", scores=scores)


def is_value(text: str) -> bool:
    """Whether a line holds a value of any kind and scale, and nothing else."""
    text = undress(text) if len(text) <= 200 else ""  # a longer line is prose
    for kind in (SCORE, _CHOICE, _PAIR):
        hit = kind.match(text)
        if hit and not text[hit.end() :].strip(" .!,;:"):
            return True
    return False
