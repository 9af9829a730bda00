"""A pair in both orders, since a judge may prefer the response that stands first.

"ab" shows `response_a` first, "ba" `response_b`. What the judge says of "ba" is turned back, so
that every verdict speaks of the pair's own a and b.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from vjudge.data.schema import Row
from vjudge.judging.record import Record
from vjudge.prompts import Template
from vjudge.records import NAN, Item, Pair

ORDERS = ("ab", "ba")
SWAPPED = {"a": "b", "b": "a"}
View: TypeAlias = Item | Pair
"""A row as the judge is shown it in one order."""


def views_of(template: Template, row: Row, subject: Item | Pair) -> dict[str, View]:
    """Prepare a row as the judge is shown it, by order.

    Args:
        template: of pairs, one that compares; or one of a value head, which grades each response.
        row, subject: the same row, as a canonical row and as an item or a pair.

    Returns:
        An item under ""; a pair under "ab" and "ba"; of a pair for a value head the item of each
        response, under "a" and "b".
    """
    if isinstance(subject, Item):
        return {"": subject}
    if template.compares:
        # each response goes to the other's place, its pictures with it
        swapped = replace(
            subject,
            response_a=subject.response_b,
            response_b=subject.response_a,
            response_a_images=subject.response_b_images,
            response_b_images=subject.response_a_images,
        )
        return {"ab": subject, "ba": swapped}
    # a value head reads one response at a time
    views: dict[str, View] = {}
    for side in "ab":
        response = row[f"response_{side}"]
        pictures = row.get(f"response_{side}_images")
        alone = {**row, "response": response, "response_images": pictures, "gold": None}
        views[side] = Item.from_row(alone)
    return views


def turn_back(record: Record) -> Record:
    """Add `verdict` and `chance`, the probability of a against b, in terms of the pair's a and b.

    In the order "ba" the response shown first is b: a choice of "a" is the verdict "b", and the
    probability .9 of the first response is the chance .1 of a.
    """
    verdict = record["choice"]
    chance = NAN
    if record["probabilities"]:
        chance = record["probabilities"]["0"]  # of the response that was shown first
    if record["order"] == "ba":
        verdict = SWAPPED.get(verdict, verdict)
        chance = 1 - chance
    return record | {"verdict": verdict, "chance": chance}
