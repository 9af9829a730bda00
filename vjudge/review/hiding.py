"""Hide scores in the text of a feedback, for a review whose annotator must not know them."""

from __future__ import annotations

import re

# A number in digits or words; what may stand between a label and its number: punctuation (_GAP),
# then linking words such as "is" or "should be" (_LINK); and a word for a score (_LABEL), which an
# explanation in parentheses may follow
_NUMBER = r"(?:[+-]?\d{1,9}(?:\.\d{1,9})?|\b(?:one|two|three|four|five|six|seven|eight|nine|ten)\b)"
_GAP = r"[\s:：=*_`\"'(\[{<>]{0,12}"
_LINK = r"(?:(?:is|was|of|as|at|an?|the|it|should|would|be|to|only)\b[ *_]{0,4}){0,5}"
_LABEL = (
    r"(?:\b(?:scores?\d?|scored|rat(?:ed|ings?)|grade[ds]?|verdict|points|Punktzahl|nota)\b"
    r"|分数|评分|得分|分數|評分)(?: {0,3}\([^()\n]{0,30}\))?"
)
_LABELLED = re.compile(  # "[RESULT] 4", "the score is 4", "rated 4 out of 5"
    rf"((?:\[RESULT\]|\[\[|\\boxed|<score>|{_LABEL}){_GAP}{_LINK}{_GAP})"
    rf"{_NUMBER}(?: {{0,2}}(?:/|-|to|or|out of) {{0,2}}{_NUMBER}){{0,2}}",
    re.IGNORECASE,
)
_FRACTION = re.compile(  # "4/5", "8 out of 10"; but not "6 out of 7"
    rf"{_NUMBER} {{0,3}}(?:/ {{0,3}}{_NUMBER}|out of {{1,3}}(?:5|10|100|five|ten)(?![\w.]*\d))",
    re.IGNORECASE,
)

_WITH_ARTICLE = re.compile(  # "hence an 8", "a perfect 10."
    rf"(\b(?:an?|perfect) [*_]{{0,3}}){_NUMBER}"
    r"(?=[*_]{0,3}(?:[.,;!)\n]|$| (?:for|because|since)\b))",
    re.IGNORECASE,
)


def hide_scores(text: str) -> tuple[str, int]:
    """Replace scores in a text by "[hidden]".

    A score is a number after a marker ("[RESULT] 4") or a label ("the score is 4"), a fraction
    ("4/5", "4 out of 5"), or a number with an article ("an 8").

    Not hidden are scores in other words ("four stars", "a perfect answer", "6 out of 7"), a number
    that stands alone on its line, and labels in other languages than English, Chinese, and a few
    German and Portuguese ones.

    Returns:
        The text, and the number of places where something was hidden.

    >>> hide_scores("The sign is misread, so the score is 2. It counts 4 of the 5 apples.")
    ('The sign is misread, so the score is [hidden]. It counts 4 of the 5 apples.', 1)
    """
    text, n_labelled = _LABELLED.subn(r"\1[hidden]", text)
    text, n_fractions = _FRACTION.subn("[hidden]", text)
    text, n_articles = _WITH_ARTICLE.subn(r"\1[hidden]", text)
    return text, n_labelled + n_fractions + n_articles
