"""What the text around a verdict makes of it: a denial, a quotation, an example, a withdrawal."""

from __future__ import annotations

import re

from vjudge.prompts import phrases
from vjudge.prompts.choices import choice, is_value, side_of
from vjudge.prompts.values import LOOKS_LIKE, Value, undress

_LONGEST_TAIL = 50_000  # characters behind a verdict that can be an explanation
_OVERALL = re.compile(
    rf"(?i)\boverall score is[\s:*_(\[]{{0,8}}({phrases.DIGITS})(?![\w%])(?!\.\d)"
)


# --- before it


def text_before(plain: str, start: int) -> tuple[str, str]:
    """Return the text before a place, on its line and in its clause.

    >>> text_before("Fine.\\nIt names all, so the score: 4", 27)
    ('It names all, so the ', ' the ')
    """
    line_before = plain[plain.rfind("\n", 0, start) + 1 : start]
    clauses = re.split(r"[.!?;]|, (?:so|thus|hence|therefore)\b", line_before[-100:])
    return line_before, clauses[-1]


def labels_something_else(plain: str, start: int) -> bool:
    """Whether a label at a place is that of something else: "Fluency score", "Max score"."""
    line_before, clause = text_before(plain, start)
    opens_bold = re.search(r"(?:^|[\s(:])(?:\*\*|__)$", line_before)  # "It is good: **Score"
    return bool(re.search(r"\w", undress(clause))) and not opens_bold


def is_denied_or_quoted(plain: str, start: int, stop: int, kind: str) -> bool:
    """Whether the text around a verdict denies it, or makes it an example or a quotation.

    Args:
        plain: the answer.
        start, stop: the verdict's place in it.
        kind: of the marker (`formats.Marker.kind`), or "json".
    """
    line_before, clause = text_before(plain, start)
    line_start = start - len(line_before)
    # the line above counts where it announces what stands here: "The response says:"
    above = plain[max(0, line_start - 200) : line_start].rstrip(" \n`").rpartition("\n")[2]
    if not above.endswith(":"):
        above = ""

    # 1) denied: "I would not say [[A]]"
    if kind in ("inside", "json") and phrases.DENIED.search(clause):
        return True

    # 2) announced as a quotation, by the text right before it: 'The response says "[RESULT] 5"'
    announced = above
    if line_before.strip():
        announced = line_before[-100:] if kind in ("after", "json") else ""
    if phrases.QUOTED.search(announced):
        return True
    # JSON is announced as an example, too, or stands inside a sentence: 'It wants {"score": 5}'
    goes_on = r"(?i)(?<!\bis)(?<!\bjson)(?<=\w)[ \"'*`]*$"
    if kind == "json" and (phrases.EXAMPLE.search(above) or re.search(goes_on, clause)):
        return True

    # 3) inside quotation marks, or on a line that begins with ">", as mails quote; the judge may
    #    quote itself: 'I would label this as "[[A>B]]"'
    if re.search(r"\b(?:I|my)\b", clause):
        return False
    is_open = line_before.count('"') % 2 or plain.count('"', line_start, stop) % 2
    return bool(is_open) or line_before.lstrip().startswith(">")


# --- behind it


def is_hedged(line: str) -> bool:
    """Whether words on a verdict's line make it uncertain or take it back: "4, or rather 3"."""
    # each clause may take it back, but for the "I" of an abstention: "I cannot tell"
    clauses = re.sub(r"\A\W*I\b", "", re.sub("[,;]", ":", line))
    return bool(phrases.HEDGED.search(line) or phrases.RETRACTED.search(clauses))


def objection(following: str, tail: str, gives: str, value: Value, *, explains: bool) -> str | None:
    """Say why what follows a verdict takes it back or replaces it; None where it does neither.

    Args:
        following: the answer from the value on.
        tail: the answer from the end of the verdict's line, or of its brackets, on.
        gives: "score" or "choice".
        value: the verdict.
        explains: an explanation may follow: the verdict opens the answer, or is a choice.
    """
    # 1) words that take it back, or that don't begin an explanation
    if len(following) > _LONGEST_TAIL:
        return "what follows is too long for an explanation"
    if phrases.RETRACTED.search(following):
        return "what follows takes it back"
    if not phrases.may_follow(tail, explains=explains):
        return "what follows is no explanation"
    # 2) values in it: an explanation may count ("It names 3 hats"), other text may not
    tail = tail.replace("_", " ")
    if explains:
        return "what follows names another" if _names_another(tail, gives, value) else None
    for hit in LOOKS_LIKE[gives].finditer(tail):
        if gives == "choice" or hit[0] != f"{value.score:g}":
            return "more values follow"
    return None


def _names_another(tail: str, gives: str, value: Value) -> bool:
    """Whether an explanation holds another verdict: on a line of its own, or in a sentence."""
    # 1) a line that is a value alone; two scores agree with the choice that was made of two scores
    for text_line in filter(is_value, set(tail.split("\n"))):
        is_number = gives == "score" or (value.scores and not re.search("[A-Za-z]", text_line))
        if is_number or getattr(choice(text_line), "choice", None) != value.choice:
            return True
    # 2) a sentence that scores ("it merits a 3") or ranks ("the first is better")
    if gives == "score":
        return any(float(hit[1]) != value.score for hit in phrases.SCORED.finditer(tail))
    for worse, *better in phrases.RANKED.findall(tail):
        side = side_of(worse or "".join(better))
        if (side == value.choice) == bool(worse):  # the chosen one is worse, or another is better
            return True
    return False


def names_another_overall(plain: str, value: Value) -> bool:
    """Whether an answer says somewhere that the overall score is another one."""
    return any(float(hit[1]) != value.score for hit in _OVERALL.finditer(plain))
