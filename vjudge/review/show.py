"""HTML of items and of reviews, by the macros of assets/review.html.

Texts come from data and models: they are escaped, never typeset as mathematics, and control
characters are shown by their code.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from IPython.display import HTML
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from vjudge import images
from vjudge.data import rows_of
from vjudge.prompts.wordings import ASSETS
from vjudge.records import Item, is_missing
from vjudge.review.session import ReviewCase, Session

CSS = Markup((ASSETS / "review.css").read_text("utf-8"))


_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    r"\ud800-\uf8ff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f\U000f0000-\U0010ffff]"
)


def visible(value: object) -> str:
    """Replace control, format, surrogate and private-use characters by their code, as <U+200B>.

    Zero-width joiners stay, since words of some scripts and emoji need them. `Markup` is unchanged.
    """
    if isinstance(value, Markup):
        return value
    text = str(value).replace("\r\n", "\n")
    return _CONTROL.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)


def escape(text: object) -> str:
    """Make a text into HTML that shows it as it is."""
    return html.escape(visible(text))


def _number(score: Any) -> str:
    """Format a score for the macros: "none" where it is missing, "4" for 4.0."""
    return "none" if is_missing(score) else f"{float(score):g}"


_environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=visible)
_environment.filters["number"] = _number
# The lines of the template are joined without their indentation, which a page would show as spaces
_lines = (ASSETS / "review.html").read_text("utf-8").splitlines()
TEMPLATES: Any = _environment.from_string("".join(map(str.strip, _lines))).module
"""The macros of assets/review.html, which escape every text."""


def framed(body: str) -> str:
    """Put HTML into a box with its style sheet, where MathJax 2 and 3 do not typeset "$5 or $6"."""
    return f'<div class="vj tex2jax_ignore mathjax_ignore"><style>\n{CSS}</style>{body}</div>'


def show(item: Mapping[str, Any], *, image_size: int = 320) -> HTML:
    """Show one item in full, with the true score marked in its rubric.

    Args:
        item: a row with the canonical columns. An image that can't be opened shows the reason.
        image_size: the pixels of an image's longer side.

    Raises:
        ValueError: the row is not canonical.

    >>> from vjudge.review import show
    >>> item = {"id": "a", "instruction": "What is it?", "response": "A cat.", "gold": 4}
    >>> "A cat." in show(item).data
    True
    """
    record = Item.from_row(rows_of([item])[0])
    return HTML(framed(TEMPLATES.item(record, *_boxes_of(record, image_size))))


def show_case(items: Sequence[Mapping[str, Any]], *, image_size: int = 320) -> HTML:
    """Show the responses to one question side by side, the lowest true score first.

    Args:
        items: the rows of one case, as `vjudge.data.cases` finds them.
        image_size: the pixels of an image's longer side.

    Raises:
        ValueError: the rows are of several questions.
    """
    rows = map(Item.from_row, rows_of(items))
    case = sorted(rows, key=lambda item: (math.isnan(item.gold), item.gold))  # NaN comes last
    differing = []
    for name in ("instruction", "reference_answer", "rubric", "group"):
        if any(getattr(item, name) != getattr(case[0], name) for item in case):
            differing.append(name)
    if differing:
        remedy = "pass the rows of one case, see vjudge.data.cases"
        raise ValueError(f"the items differ in {', '.join(differing)}: {remedy}")
    responses = [image_boxes(item.response_images, image_size) for item in case]
    question = image_boxes(case[0].images, image_size)
    return HTML(framed(TEMPLATES.responses(case, question, responses)))


def case_html(case: ReviewCase, image_size: int) -> Markup:
    """Show a case as its annotator may see it: the truth is marked only where it is revealed."""
    # Marks beside the rubric's level of a score: the score, the mark's label, and its CSS class
    marks: list[tuple[object, str, str]] = []
    if case.revealed:
        marks.append((case.item.gold, "true score", "vj-true"))
    for side, verdict in case.sides.items():
        marks.append((verdict.get("score"), verdict.get("judge", side), ""))
    marks.append((case.votes.get("score"), "you", "vj-own"))
    return TEMPLATES.case(case, *_boxes_of(case.item, image_size), marks)


class ImageBox(NamedTuple):
    """An image as the macros show it."""

    label: str  # its size, or why it can't be opened
    uri: str = ""  # "" where it can't be opened
    width: int = 0  # pixels on the page
    height: int = 0


def _boxes_of(item: Item, image_size: int) -> tuple[list[ImageBox], list[ImageBox]]:
    """Make the boxes of an item's question, and those of its response."""
    return image_boxes(item.images, image_size), image_boxes(item.response_images, image_size)


def image_boxes(sources: Sequence[Any], image_size: int) -> list[ImageBox]:
    """Scale images so that the longer side has `image_size` pixels on the page.

    The browser enlarges small images; a data URI never has more pixels than its image.
    """
    boxes = []
    for source in sources:
        try:
            image = images.open_image(source)
        except images.ImageError as error:
            boxes.append(ImageBox(f"no image: {error}"))
            continue
        small = images.thumbnail(image, size=image_size)
        # PNG keeps a drawing, which has few colours, sharp; a photograph as PNG is slow and large.
        # `getcolors` returns None where there are more colours than its argument
        is_drawing = small.getcolors(2_000) is not None
        uri = images.data_uri(small, format="png" if is_drawing else "jpeg")
        scale = image_size / max(small.size)
        width = round(small.width * scale)
        height = round(small.height * scale)
        boxes.append(ImageBox(f"{image.width} x {image.height}", uri, width, height))
    return boxes


def review_page(
    review: Session, cases: Sequence[tuple[Markup, Mapping[str, Any]]], kind: str
) -> str:
    """Make one HTML page of a review, in which no script can run.

    Args:
        review: the review, which says whose page it is.
        cases: the HTML of each item, and its votes by annotator.
        kind: "simulated" where there are simulated votes, else "".
    """
    return str(TEMPLATES.page(review, CSS, cases, kind))
