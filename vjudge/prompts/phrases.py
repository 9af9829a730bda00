"""Phrases in and around a verdict: they name it, take it back, hedge it, quote it, and so on.

`../assets/phrases.tsv` is the table: which list a phrase belongs to, its name, an example in which
it is found, and its pattern. A pattern is one of plain text, in any case where it doesn't say
"(?-i:...)"; <START> begins a line, a sentence or a clause, and <VERDICT> is a word for a verdict.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

DIGITS = r"\d{1,9}(?:\.\d{1,9})?"
WHO = "(?:[ab12]|first|second)"
"""Which of two responses."""
DRESS = r"[\s*_`\"':=|]*"
"""What may stand between a marker and its value."""
_SHORT_FORMS = {
    "<START>": r"(?:^|[.!?\n:(]| -)[ *_#>(-]{0,8}",
    "<VERDICT>": r"(?:score|rating|verdict|grade|mark|judge?ment|decision|choice)",
    "<WHO>": WHO,
    "<DRESS>": DRESS,
}


def read_table(name: str) -> list[dict[str, str]]:
    """Read a table of the assets, its cells separated by tabs, with short forms written out."""
    text = (Path(__file__).parents[1] / "assets" / f"{name}.tsv").read_text(encoding="utf-8")
    for short, pattern in _SHORT_FORMS.items():
        text = text.replace(short, pattern)
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


PHRASE_ROWS = read_table("phrases")
"""Every phrase: table, name, example, pattern."""


def any_of(*tables: str) -> str:
    """Write one pattern for all phrases of some tables."""
    patterns = [f"(?:{phrase['pattern']})" for phrase in PHRASE_ROWS if phrase["table"] in tables]
    return f"(?:{'|'.join(patterns)})"


LABEL = any_of("label")
"""What a score is called, in eight languages."""
NOUN = any_of("noun")
"""What a response, or a choice of one, is called."""
_SHORT_FORMS["<LABEL>"] = LABEL


def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


RETRACTED = compiled(any_of("retraction"))
"""Takes a verdict back, on its line or behind it."""
HEDGED = compiled(any_of("hedge"))
"""Makes the words on a verdict's line more than an explanation."""
EXAMPLE = compiled(any_of("example"))
"""Before a verdict: it is an example, or somebody else's."""
DENIED = compiled(any_of("example", "denial"))
"""Before a verdict: it is somebody else's, or none."""
QUOTED = compiled(any_of("quotation"))
"""Right before a marker: the marker is quoted."""
SCORED = compiled(rf"\b{any_of('scored')}({DIGITS})")
"""A sentence that gives a score, which is its group: "it merits a 3"."""
RANKED = compiled(any_of("worse", "better"))
"""A sentence that ranks a response: the worse one is group 1, the better one group 2 or 3."""
WEAKER = re.compile(rf"(?: \w+ly)?{any_of('weaker')}")
"""Behind the name of a response: it is the weaker one."""
REFUSAL = compiled(rf"\W{{0,20}}{any_of('refusal')}")
"""How a judge, or a generator, begins to decline."""
_EXPLAINS = compiled(rf"(?:<\|?\w+\|?>|\W)*(?:$|{any_of('explanation')})")
_TURNS = compiled(rf"\W*{any_of('turn')}")
_CONFIDENCE = compiled(  # "Confidence is very high", "Certainty: 0.8", "= 80 %", "of 4/5"
    any_of("confidence")
    + r"(?: is| of|[\s\"'*_:=|>(-]){1,12}(?:(?:very )?(?:high|medium|moderate|low)"
    r"|\d{1,3}(?:\.\d{1,9})?(?: ?%| ?/ ?\d{1,3}| out of \d{1,3})?)(?![\w%])"
)


def without_thinking(text: str) -> str | None:
    """Blank out a model's thinking, so that places stay; None if the thinking did not end.

    >>> without_thinking("<think>2?</think> 4").split(), without_thinking("<think>2?")
    (['4'], None)
    """
    tag = r"(?i)< ?{}(?:think(?:ing)?|thought|reasoning|feedback)>"
    end = 0
    for closing_tag in re.finditer(tag.format("/ ?"), text):
        end = closing_tag.end()
    visible = " " * end + text[end:]
    return None if re.search(tag.format(""), visible) else visible


def may_follow(tail: str, *, explains: bool) -> bool:
    """Whether a text begins as what follows a verdict may.

    >>> may_follow("Thank you!", explains=False), may_follow("Not really.", explains=False)
    (True, False)

    Args:
        tail: the text behind the verdict.
        explains: the verdict opens the answer, so that an explanation is due and only a turn
            ("However, ...") is suspicious. Behind a verdict that ends an answer the text has to
            begin as an explanation does.
    """
    if explains:
        return not _TURNS.match(tail)
    return bool(_EXPLAINS.match(tail))


def without_confidence(plain: str) -> str:
    """Blank out how sure the judge says it is, which is no verdict; the length stays the same.

    >>> without_confidence("4 (confidence: 0.8)").split()
    ['4', '(', ')']
    """
    return _CONFIDENCE.sub(lambda hit: " " * len(hit[0]), plain)
