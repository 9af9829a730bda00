"""Decide whether the text around a verdict denies it, quotes it, or takes it back.

In this file `plain` is an answer as plain text (`values.plain_text`), without its thinking.
"""

from __future__ import annotations

import re

from vjudge.prompts import phrases
from vjudge.prompts.choices import choice, is_value, side_of
from vjudge.prompts.values import LOOKS_LIKE, Value, undress

_LONGEST_TAIL = 50_000  # characters after a verdict that can be an explanation
_OVERALL = re.compile(
    rf"(?i)\boverall score is[\s:*_(\[]{{0,8}}({phrases.DIGITS})(?![\w%])(?!\.\d)"
)


# --- the text before a verdict


def text_before(plain: str, start: int) -> tuple[str, str]:
    """Return the text on the same line before a position, and that in the same clause.

    >>> text_before("Fine.\\nIt names all, so the score: 4", 27)
    ('It names all, so the ', ' the ')

    Args:
        plain: the answer.
        start: the position, in characters; 27 is that of "score".

    Returns:
        tuple: the text from the line's beginning on, and the text from the clause's beginning on,
            of at most 100 characters.
    """
    line_before = plain[plain.rfind("\n", 0, start) + 1 : start]
    clauses = re.split(r"[.!?;]|, (?:so|thus|hence|therefore)\b", line_before[-100:])
    return line_before, clauses[-1]


def labels_something_else(plain: str, start: int) -> bool:
    """Whether words before a label make it that of something else: "Fluency score", "Max score".

    Words that change no verdict ("The final score") don't, nor do words before a label in bold.
    """
    line_before, clause = text_before(plain, start)
    opens_bold = re.search(r"(?:^|[\s(:])(?:\*\*|__)$", line_before)  # "It is good **Score"
    return bool(re.search(r"\w", undress(clause))) and not opens_bold


def is_denied_or_quoted(plain: str, start: int, stop: int, kind: str) -> bool:
    """Whether the text around a verdict denies it, or makes it an example or a quotation.

    Args:
        plain: the answer.
        start, stop: where the marker starts and its text ends; for JSON both are where it starts.
        kind: the marker's kind (`formats.Marker.kind`), or "json".
    """
    line_before, clause = text_before(plain, start)
    line_start = start - len(line_before)
    # the line above counts where it announces what follows: "The response says:"
    above = plain[max(0, line_start - 200) : line_start].rstrip(" \n`").rpartition("\n")[2]
    if not above.endswith(":"):
        above = ""

    # 1) denied: "I would not say [[A]]"
    if kind in ("inside", "json") and phrases.DENIED.search(clause):
        return True

    # 2) announced as a quotation, by the text right before it: 'The response says "[RESULT] 5"'.
    #    For a verdict that begins its line this is the line above, else the text on its line, which
    #    matters for JSON and for a marker of kind "after"
    announced = above
    if line_before.strip():
        announced = line_before[-100:] if kind in ("after", "json") else ""
    if phrases.QUOTED.search(announced):
        return True
    # JSON is announced as an example, too, or stands inside a sentence: the clause ends with a word
    # other than "is" or "JSON", as in 'It wants {"score": 5}'
    goes_on = r"(?i)(?<!\bis)(?<!\bjson)(?<=\w)[ \"'*`]*$"
    if kind == "json" and (phrases.EXAMPLE.search(above) or re.search(goes_on, clause)):
        return True

    # 3) inside quotation marks, or on a line that begins with ">", as mails quote; the judge may
    #    quote itself: 'I would label this as "[[A>B]]"'
    if re.search(r"\b(?:I|my)\b", clause):
        return False
    # an odd number of quotation marks up to the verdict, or up to its end: it is inside them
    is_open = line_before.count('"') % 2 or plain.count('"', line_start, stop) % 2
    return bool(is_open) or line_before.lstrip().startswith(">")


# --- the text after a verdict


def is_hedged(line: str) -> bool:
    """Whether words on a verdict's line make it uncertain or take it back: "4, or rather 3"."""
    # a retraction stands at the beginning of a clause, which ":" marks in these patterns; the "I"
    # that begins an abstention ("I cannot tell") takes nothing back
    clauses = re.sub(r"\A\W*I\b", "", re.sub("[,;]", ":", line))
    return bool(phrases.HEDGED.search(line) or phrases.RETRACTED.search(clauses))


def objection(following: str, tail: str, gives: str, value: Value, *, explains: bool) -> str | None:
    """Say why the text after a verdict takes it back or replaces it.

    Args:
        following: the answer from the value on.
        tail: the answer from the end of the verdict's line, or of its brackets, on.
        gives: "score" or "choice".
        value: the verdict.
        explains: whether an explanation may follow, since the verdict opens the answer or is a
            choice.

    Returns:
        The reason; None where the text does neither.
    """
    # 1) words that take it back, or that don't begin an explanation
    if len(following) > _LONGEST_TAIL:
        return "what follows is too long for an explanation"
    if phrases.RETRACTED.search(following):
        return "what follows takes it back"
    if not phrases.may_follow(tail, explains=explains):
        return "what follows is no explanation"
    # 2) values in it: an explanation may count ("It names 3 hats"), other text may only repeat a
    #    score
    tail = tail.replace("_", " ")  # so that a value in "_3_" stands between word boundaries
    if explains:
        return "what follows names another" if _names_another(tail, gives, value) else None
    for hit in LOOKS_LIKE[gives].finditer(tail):
        if gives == "choice" or hit[0] != f"{value.score:g}":
            return "more values follow"
    return None


def _names_another(tail: str, gives: str, value: Value) -> bool:
    """Whether an explanation holds a different verdict, alone on a line or in a sentence.

    Args:
        tail: the explanation.
        gives: "score" or "choice".
        value: the verdict.
    """
    # 1) a line that is a value alone: a second score, or a different choice. After a choice that
    #    was read from two scores (`value.scores`) a line without letters holds scores again: then
    #    "2" is no name of a response
    for text_line in filter(is_value, set(tail.split("\n"))):
        is_score = gives == "score" or (value.scores and not re.search("[A-Za-z]", text_line))
        if is_score or getattr(choice(text_line), "choice", None) != value.choice:
            return True
    # 2) a sentence that scores ("it merits a 3") or ranks ("the first is better"); of the groups of
    #    `RANKED` only one is not empty
    if gives == "score":
        return any(float(hit[1]) != value.score for hit in phrases.SCORED.finditer(tail))
    for worse, *better in phrases.RANKED.findall(tail):
        side = side_of(worse or "".join(better))
        if (side == value.choice) == bool(worse):  # the chosen one is worse, or the other is better
            return True
    return False


def names_another_overall(plain: str, value: Value) -> bool:
    """Whether an answer states somewhere an overall score that differs from the verdict."""
    return any(float(hit[1]) != value.score for hit in _OVERALL.finditer(plain))
