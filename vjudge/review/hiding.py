"""Hide the scores that a feedback tells, for a review whose annotator is not to know them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vjudge.prompts.values import plain_text

_WORD = "one|two|three|four|five|six|seven|eight|nine|ten"
_NUMBER = rf"(?:[+-]?\d{{1,9}}(?:\.\d{{1,9}})?|\b(?:{_WORD})\b)"
_GAP = r"[\s:=*_`\"'(\[{<>]{0,12}"
_LINK = (
    r"(?:(?:is|are|was|of|as|at|an?|the|it|should|would|be|to|only|still|overall)\b[ *_]{0,4}){0,5}"
)
_VALUE = rf"(?P<value>{_NUMBER}(?: {{0,2}}(?:/|-|to|or|out of) {{0,2}}{_NUMBER}){{0,2}})"
_LABELS = r"scores?\d?|scored|scoring|rat(?:e|ed|ing|ings)|grade[ds]?|verdict|points|Punktzahl|nota"
_HAN = "\u5206\u6570|\u8bc4\u5206|\u5f97\u5206|\u5206\u6578|\u8a55\u5206"
_TOLD = (
    r"\[RESULT\][^\w\n]{0,12}\n?[^\w\n]{0,12}(?P<value>[^\s*]{1,40})",
    r"\[\[\s{0,3}(?P<value>[^\[\]\n]{1,20}?)\s{0,3}\]\]",
    rf"(?:<score>|\\boxed){_GAP}{_VALUE}",
    rf"\b(?:{_LABELS})\b(?: {{0,3}}\([^()\n]{{0,30}}\))?{_GAP}{_LINK}{_GAP}{_VALUE}",
    rf"(?:{_HAN}){_GAP}{_VALUE}",
    r"(?P<value>\d{1,3}|"
    r"[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341]{1,3}) ?(?=\u5206)",
    rf"(?P<value>{_NUMBER} {{0,3}}(?:/|out of) {{0,3}}(?:5|10|100|five|ten|HIGHEST))(?![\w.]*\d)",
    rf"(?P<value>{_NUMBER})(?=[ -](?:stars?|score|rating|grade|points)\b)",
    rf"\ban? (?:\w{{1,12}} )?[*_]{{0,3}}(?P<value>{_NUMBER})"
    r"(?=[*_]{0,3}(?:[.,;!)\n]|$| (?:for|because|since|out)\b))",
    rf"^[ *_#>]{{0,8}}(?P<value>{_NUMBER}(?: {{0,3}}/ {{0,3}}\d{{1,4}})?)(?=[ *_.]{{0,4}}$)",
)


def hide_scores(text: str, highest: int = 5) -> tuple[str, int]:
    """Replace what a marker, a label, "4/5" or a line that is a number says by "[hidden]".

    >>> hide_scores("The sign is misread, so the score is 2. It counts 4 of the 5 apples.")
    ('The sign is misread, so the score is [hidden]. It counts 4 of the 5 apples.', 1)

    Args:
        text: a judge's feedback.
        highest: the highest score, so that "4/7" is known as one on a scale up to 7.

    Returns:
        The text, and at how many places something was hidden. More is hidden than a parser reads;
        a score that is told in other words stays.
    """
    plain = plain_text(text)
    told = [False] * len(text)
    for pattern in _TOLD:
        pattern = pattern.replace("HIGHEST", str(highest))
        for hit in re.finditer(pattern, plain, re.IGNORECASE | re.MULTILINE):
            first, last = hit.span("value")
            told[first:last] = [True] * (last - first)
    pieces = []
    count = 0
    for position, sign in enumerate(text):
        if not told[position]:
            pieces.append(sign)
        elif position == 0 or not told[position - 1]:
            pieces.append("[hidden]")
            count += 1
    return "".join(pieces), count


def hidden(verdict: Mapping[str, Any], scale: tuple[int, int]) -> dict[str, Any]:
    """A verdict without what tells its score; a failure's reason may name scores too."""
    if not verdict:
        return {}
    feedback, count = hide_scores(verdict["feedback"], scale[1])
    shown = {"feedback": feedback, "hidden": count}
    if "failure" in verdict:
        shown["failure"] = "[hidden]"
    return shown
