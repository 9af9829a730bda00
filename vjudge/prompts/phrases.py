"""Phrases around a verdict: they take it back, hedge it, quote it, or say how sure the judge is.

`../assets/phrases.tsv` is the table: which list a phrase belongs to, its name, an example in which
it is found, and its pattern. A pattern is one of plain text, in any case where it doesn't say
"(?-i:...)"; <START> begins a line, a sentence or a clause, and <VERDICT> is a word for a verdict.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from vjudge.prompts.values import DIGITS, LABEL, WHO

DRESS = r"[\s*_`\"':=|]*"
"""What may stand between a marker and its value."""
_SHORT_FORMS = {
    "<START>": r"(?:^|[.!?\n:(]| -)[ *_#>(-]{0,8}",
    "<VERDICT>": r"(?:score|rating|verdict|grade|mark|judge?ment|decision|choice)",
    "<LABEL>": LABEL,
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


def _any_of(*tables: str) -> str:
    """Write one pattern for all phrases of some tables."""
    patterns = [f"(?:{phrase['pattern']})" for phrase in PHRASE_ROWS if phrase["table"] in tables]
    return f"(?:{'|'.join(patterns)})"


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


RETRACTED = _compiled(_any_of("retraction"))
"""Takes a verdict back, on its line or behind it."""
HEDGED = _compiled(_any_of("hedge"))
"""Makes the words on a verdict's line more than an explanation."""
EXAMPLE = _compiled(_any_of("example"))
"""Before a verdict: it is an example, or somebody else's."""
DENIED = _compiled(_any_of("example", "denial"))
"""Before a verdict: it is somebody else's, or none."""
QUOTED = _compiled(_any_of("quotation"))
"""Right before a marker: the marker is quoted."""
SCORED = _compiled(rf"\b{_any_of('scored')}({DIGITS})")
"""A sentence that gives a score, which is its group: "it merits a 3"."""
RANKED = _compiled(_any_of("worse", "better"))
"""A sentence that ranks a response: the worse one is group 1, the better one group 2 or 3."""
WEAKER = re.compile(rf"(?: \w+ly)?{_any_of('weaker')}")
"""Behind the name of a response: it is the weaker one."""
REFUSAL = _compiled(rf"\W{{0,20}}{_any_of('refusal')}")
"""How a judge, or a generator, begins to decline."""
_EXPLAINS = _compiled(rf"(?:<\|?\w+\|?>|\W)*(?:$|{_any_of('explanation')})")
_TURNS = _compiled(rf"\W*{_any_of('turn')}")
_CONFIDENCE = _compiled(
    # "Confidence score", in seven languages
    r"(?:\b(?:confidence|certainty)(?: score| level| rating)?|\bkonfidenz|\bconfianza"
    r"|\bconfiance|置信度|신뢰도|확신도|確信度)"
    # " is very high", or ": 0.8", "= 80 %", " of 4/5"
    r"(?: is| of|[\s\"'*_:=|>(-]){1,12}(?:(?:very )?(?:high|medium|moderate|low)"
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
