"""Hide the scores that a feedback tells, for a review whose annotator is not to know them."""

from __future__ import annotations

import re

_NUMBER = r"(?:[+-]?\d{1,9}(?:\.\d{1,9})?|\b(?:one|two|three|four|five|six|seven|eight|nine|ten)\b)"
_GAP = r"[\s:：=*_`\"'(\[{<>]{0,12}"
_LINK = r"(?:(?:is|was|of|as|at|an?|the|it|should|would|be|to|only)\b[ *_]{0,4}){0,5}"
_LABEL = (
    r"(?:\b(?:scores?\d?|scored|rat(?:ed|ings?)|grade[ds]?|verdict|points|Punktzahl|nota)\b"
    r"|分数|评分|得分|分數|評分)(?: {0,3}\([^()\n]{0,30}\))?"
)
_LABELLED = re.compile(
    rf"((?:\[RESULT\]|\[\[|\\boxed|<score>|{_LABEL}){_GAP}{_LINK}{_GAP})"
    rf"{_NUMBER}(?: {{0,2}}(?:/|-|to|or|out of) {{0,2}}{_NUMBER}){{0,2}}",
    re.IGNORECASE,
)
_OUT_OF = re.compile(
    rf"{_NUMBER} {{0,3}}(?:/ {{0,3}}{_NUMBER}|out of {{1,3}}(?:5|10|100|five|ten)(?![\w.]*\d))",
    re.IGNORECASE,
)

_A_NUMBER = re.compile(  # "hence an 8", "a perfect 10."
    rf"(\b(?:an?|perfect) [*_]{{0,3}}){_NUMBER}"
    r"(?=[*_]{0,3}(?:[.,;!)\n]|$| (?:for|because|since)\b))",
    re.IGNORECASE,
)


def hide_scores(text: str) -> tuple[str, int]:
    """Replace the number after a marker or a label, "4/5", "an 8" and the like, by "[hidden]".

    Not hidden: a score in other words ("four stars", "a perfect answer", "6 out of 7"), one that
    stands alone on its line, and labels in other languages than English and Chinese.

    >>> hide_scores("The sign is misread, so the score is 2. It counts 4 of the 5 apples.")
    ('The sign is misread, so the score is [hidden]. It counts 4 of the 5 apples.', 1)

    Returns the text, and at how many places something was hidden.
    """
    text, labelled = _LABELLED.subn(r"\1[hidden]", text)
    text, outs = _OUT_OF.subn("[hidden]", text)
    text, plain = _A_NUMBER.subn(r"\1[hidden]", text)
    return text, labelled + outs + plain
