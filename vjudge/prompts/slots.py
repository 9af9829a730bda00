"""Pictures at places inside a wording, for responses that are pictures or hold some.

A body has such a place at {images}, {response_images}, {response_a_images} or {response_b_images}.
A text that holds "<image>" as often as there are pictures has them at these marks instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from string import Formatter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from vjudge.images import ImageSource
from vjudge.prompts.conversation import IMAGE
from vjudge.records import RESPONSE_IMAGES, Subject

if TYPE_CHECKING:
    from vjudge.prompts.template import Template

Fault: TypeAlias = tuple[str, str, str]
"""A column, what is wrong with it, and the remedy."""


class Placed(NamedTuple):
    """A picture at its place in a turn."""

    source: ImageSource


Turn: TypeAlias = list[str | Placed]
"""The texts and pictures of a turn, in reading order."""
UNSEEN = "(an image that you cannot see)"
"""Stands for a picture in the prompt of a text-only judge."""


def _columns(template: Template) -> dict[str, str]:
    """Map each text whose pictures have a place in the body to the column of these pictures."""
    columns = {"instruction": "images"}
    columns |= {name: RESPONSE_IMAGES[name] for name in template.responses}
    return {name: column for name, column in columns.items() if f"{{{column}}}" in template.body}


def fill(template: Template, subject: Subject, texts: Mapping[str, object]) -> Turn:
    """Fill a body that has places for pictures.

    Args:
        template: the wording.
        subject: the item or the pair; its pictures go into the body.
        texts: what stands in the body's fields, by name.

    Returns:
        The body's texts and pictures, in reading order.
    """
    # 1) the content of each field: texts and pictures
    contents: dict[str, Sequence] = {name: [text] for name, text in texts.items()}
    for name, column in _columns(template).items():
        pictures: list = [Placed(source) for source in getattr(subject, column)]
        if not template.sees_images:  # the instruction says so of the question's pictures
            pictures = [] if name == "instruction" else [UNSEEN] * len(pictures)
        contents[name], contents[column] = _at_marks(str(texts[name]), pictures)

    # 2) the body with these contents in the places of its fields; "Q: {instruction}" is parsed
    #    into the literal "Q: " and the field "instruction"
    turn: Turn = []
    for literal, field, style, _ in Formatter().parse(template.body):
        turn.append(literal)
        for content in contents.get(field or "", ()):
            if isinstance(content, Placed):
                turn.append(content)
            else:
                turn.append(format(content, style or ""))
    return turn


def _at_marks(text: str, pictures: Sequence) -> tuple[list, Sequence]:
    """Put pictures at the "<image>" marks of a text, if it has any.

    >>> _at_marks("First <image>, then <image>.", [1, 2])
    (['First ', 1, ', then ', 2, '.'], [])
    >>> _at_marks("Look:", [1, 2])
    (['Look:'], [1, 2])

    Returns:
        The text in pieces with the pictures between them, and the pictures left for their field.
    """
    # n marks part a text into n + 1 texts, and the pictures go between them
    texts = text.split(str(IMAGE))
    if not pictures or len(texts) == 1:
        return [text], pictures
    pieces: list = [texts[0]]
    for picture, behind in zip(pictures, texts[1:], strict=True):
        pieces += [picture, behind]
    return pieces, []


def faults(template: Template, subject: Subject) -> Iterator[Fault]:
    """Yield the pictures and texts of an item or a pair that a wording has no place for."""
    wording = f"template {template.name!r}"
    if subject.images and template.sees_images and _shows_responses_alone(template.body):
        reason = f"{wording} shows a response's pictures, not the question's"
        yield "images", reason, "leave them out, or use one with {images}"
    # 1) the marks in a text are as many as its pictures
    for name, column in _columns(template).items():
        n_pictures = len(getattr(subject, column))
        n_marks = getattr(subject, name).count(str(IMAGE))
        if n_pictures and n_marks not in (0, n_pictures):
            reason = f"{n_marks} times {IMAGE} for {n_pictures} pictures"
            yield name, reason, "write one a picture, or none"

    # 2) what a response has is shown, and what is shown it has
    for name in template.responses:
        column = RESPONSE_IMAGES[name]
        pictures = getattr(subject, column)
        shows_pictures = f"{{{column}}}" in template.body
        shows_text = f"{{{name}}}" in template.body + template.reply
        if pictures and not shows_pictures:
            pictured = "chat-picture-relative" if template.compares else "chat-picture"
            reason = f"{wording} has no place for a response's pictures"
            yield column, reason, f"use template={pictured!r}, or {{{column}}}"
        elif not pictures and not shows_text:
            reason = f"is missing, and {wording} shows pictures alone"
            yield column, reason, "fill it in or leave the row out"
        if getattr(subject, name).strip() and not shows_text:
            reason = f"{wording} shows a response's pictures without its text"
            yield name, reason, f"leave the text out, or use one with {{{name}}}"


def _shows_responses_alone(body: str) -> bool:
    """Whether a body's pictures are those of responses: it opens with them, or asks no question."""
    places = tuple(f"{{{column}}}" for column in RESPONSE_IMAGES.values())
    if "{images}" in body or not any(place in body for place in places):
        return False
    return body.startswith(places) or "{instruction}" not in body
