"""Phrases in and around a verdict: they name it, take it back, hedge it, quote it, and so on.

They are the rows of `../assets/phrases.tsv`. Each has the table that it belongs to, a name, an
example that it matches, and a pattern. A pattern is matched with plain text (`values.plain_text`),
in upper or lower case except inside "(?-i:...)". In it <START> stands for the beginning of a line,
a sentence or a clause, and <VERDICT> for a word that means a verdict.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

DIGITS = r"\d{1,9}(?:\.\d{1,9})?"
WHO = "(?:[ab12]|first|second)"
"""A pattern of the words that name one of two responses."""
DRESS = r"[\s*_`\"':=|]*"
"""A pattern of what may stand between a marker and its value."""
# What the tables write -> the pattern that it stands for.
_SHORT_FORMS = {
    "<START>": r"(?:^|[.!?\n:(]| -)[ *_#>(-]{0,8}",
    "<VERDICT>": r"(?:score|rating|verdict|grade|mark|judge?ment|decision|choice)",
    "<WHO>": WHO,
    "<DRESS>": DRESS,
}


def read_table(name: str) -> list[dict[str, str]]:
    """Read a TSV file of the assets, whose name comes without ".tsv", as one dict per row.

    Short forms, such as <START>, are replaced by the patterns that they stand for.
    """
    text = (Path(__file__).parents[1] / "assets" / f"{name}.tsv").read_text(encoding="utf-8")
    for short, pattern in _SHORT_FORMS.items():
        text = text.replace(short, pattern)
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


PHRASE_ROWS = read_table("phrases")
"""Every phrase, with its table, name, example and pattern."""


def any_of(*tables: str) -> str:
    """Write one pattern that matches any phrase of these tables."""
    patterns = [f"(?:{phrase['pattern']})" for phrase in PHRASE_ROWS if phrase["table"] in tables]
    return f"(?:{'|'.join(patterns)})"


LABEL = any_of("label")
"""A pattern of the words for a score, in eight languages."""
NOUN = any_of("noun")
"""A pattern of the words for a response, or for a choice of one."""
_SHORT_FORMS["<LABEL>"] = LABEL  # for the tables that are read later, by `formats.py`


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that matches upper and lower case alike."""
    return re.compile(pattern, re.IGNORECASE)


RETRACTED = compiled(any_of("retraction"))
"""Words that take a verdict back, on its line or after it."""
HEDGED = compiled(any_of("hedge"))
"""Words on a verdict's line that make the verdict uncertain."""
EXAMPLE = compiled(any_of("example"))
"""Words before a verdict that say that it is an example, or somebody else's."""
DENIED = compiled(any_of("example", "denial"))
"""Words before a verdict that say that it is an example, somebody else's, or denied."""
QUOTED = compiled(any_of("quotation"))
"""Words right before a marker that quote it."""
SCORED = compiled(rf"\b{any_of('scored')}({DIGITS})")
"""A phrase that gives a score, which is its group 1: "it merits a 3"."""
RANKED = compiled(any_of("worse", "better"))
"""A phrase that ranks a response: group 1 is the worse one, groups 2 and 3 are the better one."""
WEAKER = re.compile(rf"(?: \w+ly)?{any_of('weaker')}")
"""Words after the name of a response that say that it is the weaker one."""
REFUSAL = compiled(rf"\W{{0,20}}{any_of('refusal')}")
"""The words with which a judge, or a generator, begins to decline."""
# How an explanation begins, after closing tags, punctuation and blanks; or the end of the text.
_EXPLAINS = compiled(rf"(?:<\|?\w+\|?>|\W)*(?:$|{any_of('explanation')})")
# How a text begins that turns against what was said: "However, ...".
_TURNS = compiled(rf"\W*{any_of('turn')}")
_CONFIDENCE = compiled(  # "Confidence is very high", "Certainty: 0.8", "= 80 %", "of 4/5"
    any_of("confidence")
    + r"(?: is| of|[\s\"'*_:=|>(-]){1,12}(?:(?:very )?(?:high|medium|moderate|low)"
    r"|\d{1,3}(?:\.\d{1,9})?(?: ?%| ?/ ?\d{1,3}| out of \d{1,3})?)(?![\w%])"
)


def without_thinking(text: str) -> str | None:
    """Replace a model's thinking by as many blanks; return None if the thinking did not end.

    Everything up to the last closing tag is thinking.

    >>> without_thinking("<think>2?</think> 4").split(), without_thinking("<think>2?")
    (['4'], None)
    """
    tag = r"(?i)< ?{}(?:think(?:ing)?|thought|reasoning|feedback)>"
    end = 0
    for closing_tag in re.finditer(tag.format("/ ?"), text):
        end = closing_tag.end()
    visible = " " * end + text[end:]
    # an opening tag after the last closing one: thinking that did not end
    return None if re.search(tag.format(""), visible) else visible


def may_follow(tail: str, *, explains: bool) -> bool:
    """Whether the text after a verdict begins in a way that leaves the verdict valid.

    >>> may_follow("Thank you!", explains=False), may_follow("Not really.", explains=False)
    (True, False)

    Args:
        tail: the text after the verdict.
        explains: whether an explanation is expected there, because the verdict opens the answer or
            is a choice. Then any beginning but a turn ("However, ...") is valid. Otherwise the text
            has to begin with one of the phrases of an explanation, or be empty.
    """
    if explains:
        return not _TURNS.match(tail)
    return bool(_EXPLAINS.match(tail))


def without_confidence(plain: str) -> str:
    """Replace the judge's statement of its confidence, which is no verdict, by as many blanks.

    >>> without_confidence("4 (confidence: 0.8)").split()
    ['4', '(', ')']
    """
    return _CONFIDENCE.sub(lambda hit: " " * len(hit[0]), plain)
