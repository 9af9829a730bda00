"""Phrases around a verdict: they take it back, hedge it, quote it, or say how sure the judge is.

`../assets/phrases.tsv` is the table: which list a phrase belongs to, its name, an example in which
it is found, and its pattern. A pattern is one of plain text, in any case where it doesn't say
"(?-i:...)"; <START> begins a line, a sentence or a clause, and <VERDICT> is a word for a verdict.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

_SHORT_FORMS = {
    "<START>": r"(?:^|[.!?\n:(]| -)[ *_#>(-]{0,8}",
    "<VERDICT>": r"(?:score|rating|verdict|grade|mark|judge?ment|decision|choice)",
}


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of a table of the assets, tabs between its cells."""
    text = (Path(__file__).parents[1] / "assets" / f"{name}.tsv").read_text(encoding="utf-8")
    for short, pattern in _SHORT_FORMS.items():
        text = text.replace(short, pattern)
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


PHRASE_ROWS = read_table("phrases")
"""Every phrase: table, name, example, pattern."""


def _any_of(*tables: str) -> re.Pattern:
    """A pattern that finds each phrase of some tables."""
    patterns = [f"(?:{phrase['pattern']})" for phrase in PHRASE_ROWS if phrase["table"] in tables]
    return re.compile("|".join(patterns), re.IGNORECASE)


RETRACTED = _any_of("retraction")  # takes a verdict back, on its line or behind it
HEDGED = _any_of("hedge")  # makes the words on a verdict's line more than an explanation
EXAMPLE = _any_of("example")  # before a verdict: it is an example, or another's
DENIED = _any_of("example", "denial")  # before it: it is another's, or none
QUOTED = _any_of("quotation")  # right before a marker: it is quoted
_EXPLAINS = re.compile(rf"(?:<\|?\w+\|?>|\W)*(?:$|{_any_of('explanation').pattern})", re.IGNORECASE)
_TURNS = re.compile(rf"\W*{_any_of('turn').pattern}", re.IGNORECASE)

_CONFIDENCE = re.compile(
    r"(?i)(?:\b(?:confidence|certainty)(?: score| level| rating)?|\bkonfidenz|\bconfianza"
    r"|\bconfiance|置信度|신뢰도|확신도|確信度)(?: is| of|[\s\"'*_:=|>(-]){1,12}"
    r"(?:(?:very )?(?:high|medium|moderate|low)"
    r"|\d{1,3}(?:\.\d{1,9})?(?: ?%| ?/ ?\d{1,3}| out of \d{1,3})?)(?![\w%])"
)
REFUSAL = re.compile(
    r"(?i)\W{0,20}(?:(?:i'?m|i am) (?:(?:very|so|really) )?(?:sorry|unable to|not able to)|sorry,"
    r"|i apologi[sz]e|as an ai\b|as a language model|i (?:can(?:no|')t|can not|won't|will not|must"
    r" decline|decline to) (?:\w+ )?(?:assist|help|comply|provide|evaluate|judge|rate|grade|score"
    r"|fulfil|complete|do|continue|engage|answer|compare))"
)
"""How a judge, or a generator, begins to decline."""


def may_follow(tail: str, *, explains: bool) -> bool:
    """Whether a text begins as what follows a verdict may.

    Behind a verdict that opens an answer an explanation is due (`explains`), and only a turn is
    suspicious; behind one that ends an answer the text has to begin as an explanation does.

    >>> may_follow("Thank you!", explains=False), may_follow("Not really.", explains=False)
    (True, False)
    """
    return not _TURNS.match(tail) if explains else bool(_EXPLAINS.match(tail))


def without_confidence(plain: str) -> str:
    """A text of the same length without what it says of confidence, which is no verdict.

    >>> without_confidence("4 (confidence: 0.8)").split()
    ['4', '(', ')']
    """
    return _CONFIDENCE.sub(lambda hit: " " * len(hit[0]), plain)
