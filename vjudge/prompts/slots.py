"""Images inside the body of a prompt template, for responses that are images or contain some.

A body has images at the placeholders {images}, {response_images}, {response_a_images} and
{response_b_images}. Where a text (the instruction or a response) holds the marker "<image>" as
often as it has images, they stand at these markers instead.
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
    """An image in a turn, between its texts."""

    source: ImageSource


Turn: TypeAlias = list[str | Placed]
"""The texts and images of a turn, in reading order."""
UNSEEN = "(an image that you cannot see)"
"""Stands for an image in the prompt of a text-only judge."""


def _columns(template: Template) -> dict[str, str]:
    """Map each text column to the column of its images, where the body has their placeholder.

    For a body with {images} and {response_images} it is {"instruction": "images", "response":
    "response_images"}.
    """
    columns = {"instruction": "images"}
    columns |= {name: RESPONSE_IMAGES[name] for name in template.responses}
    return {name: column for name, column in columns.items() if f"{{{column}}}" in template.body}


def fill(template: Template, subject: Subject, texts: Mapping[str, object]) -> Turn:
    """Fill a body that has placeholders for images.

    Args:
        template: the prompt template.
        subject: the item or the pair, with the images.
        texts: placeholder -> text (or number), for all placeholders but those of images.

    Returns:
        The body's texts and images, in reading order.
    """
    # 1) placeholder -> its texts and images, in reading order
    contents: dict[str, Sequence] = {name: [text] for name, text in texts.items()}
    for name, column in _columns(template).items():
        images: list = [Placed(source) for source in getattr(subject, column)]
        # a text-only judge: the text of the instruction says already how many images it can't see
        if not template.sees_images:
            images = [] if name == "instruction" else [UNSEEN] * len(images)
        contents[name], contents[column] = _at_marks(str(texts[name]), images)

    # 2) the body with these contents instead of its placeholders; "Q: {instruction}" is parsed
    #    into the literal "Q: " and the field "instruction"
    turn: Turn = []
    for literal, field, format_spec, _conversion in Formatter().parse(template.body):
        turn.append(literal)
        for content in contents.get(field or "", ()):
            if isinstance(content, Placed):
                turn.append(content)
            else:
                turn.append(format(content, format_spec or ""))
    return turn


def _at_marks(text: str, images: Sequence) -> tuple[list, Sequence]:
    """Put images at the "<image>" markers of a text, if it has any.

    >>> _at_marks("First <image>, then <image>.", [1, 2])
    (['First ', 1, ', then ', 2, '.'], [])
    >>> _at_marks("Look:", [1, 2])
    (['Look:'], [1, 2])

    Args:
        text: has as many markers as images, or none (`faults` refuses any other number).
        images: what stands for the images.

    Returns:
        tuple: the pieces of the text with the images between them, and the images that are left for
            their placeholder.
    """
    # n markers split a text into n + 1 texts, and the images go between them
    texts = text.split(str(IMAGE))
    if not images or len(texts) == 1:
        return [text], images
    pieces: list = [texts[0]]
    for image, text_after in zip(images, texts[1:], strict=True):
        pieces += [image, text_after]
    return pieces, []


def faults(template: Template, subject: Subject) -> Iterator[Fault]:
    """Yield why a prompt template can't show an item or a pair: its images or texts don't fit.

    Args:
        template: the prompt template.
        subject: the item or the pair.

    Yields:
        (column, what is wrong with it, the remedy), once per fault.
    """
    # 1) a template for responses that are images shows no images of the question
    wording = f"template {template.name!r}"
    if subject.images and template.sees_images and _shows_responses_alone(template.body):
        reason = f"{wording} shows a response's pictures, not the question's"
        yield "images", reason, "leave them out, or use one with {images}"
    # 2) a text has as many markers as images, or none
    for name, column in _columns(template).items():
        n_images = len(getattr(subject, column))
        n_markers = getattr(subject, name).count(str(IMAGE))
        if n_images and n_markers not in (0, n_images):
            reason = f"{n_markers} times {IMAGE} for {n_images} pictures"
            yield name, reason, "write one a picture, or none"

    # 3) the template shows both images and text of a response, where it has both; a response
    #    without images needs a template that shows its text
    for name in template.responses:
        column = RESPONSE_IMAGES[name]
        images = getattr(subject, column)
        shows_images = f"{{{column}}}" in template.body
        shows_text = f"{{{name}}}" in template.body + template.reply
        if images and not shows_images:
            pictured = "chat-picture-relative" if template.compares else "chat-picture"
            reason = f"{wording} has no place for a response's pictures"
            yield column, reason, f"use template={pictured!r}, or {{{column}}}"
        elif not images and not shows_text:
            reason = f"is missing, and {wording} shows pictures alone"
            yield column, reason, "fill it in or leave the row out"
        if getattr(subject, name).strip() and not shows_text:
            reason = f"{wording} shows a response's pictures without its text"
            yield name, reason, f"leave the text out, or use one with {{{name}}}"


def _shows_responses_alone(body: str) -> bool:
    """Whether a body shows only images of responses, so that the question's have no place.

    Such a body has no {images}, and it begins with a response's images or shows no instruction. In
    any other body the question's images stand before the text.
    """
    placeholders = tuple(f"{{{column}}}" for column in RESPONSE_IMAGES.values())
    if "{images}" in body or not any(placeholder in body for placeholder in placeholders):
        return False
    return body.startswith(placeholders) or "{instruction}" not in body
