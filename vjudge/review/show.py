"""What a notebook and an exported page show of items.

Texts come from data and models: they are escaped, never typeset as mathematics, and control
characters are named.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

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
    """Text with control, format, surrogate and private characters by their code; joiners stay."""
    if isinstance(value, Markup):
        return value
    text = str(value).replace("\r\n", "\n")
    return _CONTROL.sub(lambda mark: f"<U+{ord(mark[0]):04X}>", text)


def escape(text: object) -> str:
    """Text as HTML that shows it as it is."""
    return html.escape(visible(text))


def _number(score: Any) -> str:
    return "none" if is_missing(score) else f"{float(score):g}"


_environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=visible)
_environment.filters["number"] = _number
_lines = (ASSETS / "review.html").read_text("utf-8").splitlines()
TEMPLATES: Any = _environment.from_string("".join(map(str.strip, _lines))).module
"""The macros of assets/review.html, which escape every text."""


def framed(body: str) -> str:
    """HTML with its style sheet; both generations of MathJax would typeset "$5 or $6"."""
    return f'<div class="vj tex2jax_ignore mathjax_ignore"><style>\n{CSS}</style>{body}</div>'


def show(item: Mapping[str, Any], *, image_size: int = 320) -> HTML:
    """Show one item whole, the true score marked in its rubric.

    Args:
        item: a row with the canonical columns (else ValueError). An image that can't be opened
            shows why.
        image_size: pixels of an image's longer side.

    >>> from vjudge.review import show
    >>> item = {"id": "a", "instruction": "What is it?", "response": "A cat.", "gold": 4}
    >>> "A cat." in show(item).data
    True
    """
    item_shown = Item.from_row(rows_of([item])[0])
    return HTML(framed(TEMPLATES.item(item_shown, *_pictures_of(item_shown, image_size))))


def show_case(items: Sequence[Mapping[str, Any]], *, image_size: int = 320) -> HTML:
    """Show the responses to one question side by side, lowest true score first.

    `items` are the rows of one case, as `vjudge.data.cases` finds them; `image_size` as in `show`.
    ValueError: the questions differ.
    """
    rows = map(Item.from_row, rows_of(items))
    case = sorted(rows, key=lambda item: (math.isnan(item.gold), item.gold))
    same = ("instruction", "reference_answer", "rubric", "group")
    unlike = []
    for name in same:
        if any(getattr(item, name) != getattr(case[0], name) for item in case):
            unlike.append(name)
    if unlike:
        remedy = "pass the rows of one case, see vjudge.data.cases"
        raise ValueError(f"the items differ in {', '.join(unlike)}: {remedy}")
    drawn = [pictures(item.response_images, image_size) for item in case]
    return HTML(framed(TEMPLATES.responses(case, pictures(case[0].images, image_size), drawn)))


def case_html(case: ReviewCase, image_size: int) -> Markup:
    """A case as its annotator may see it; the truth only where the case is revealed."""
    marks: list[Any] = []
    if case.revealed:
        marks.append((case.item.gold, "true score", "vj-true"))
    for side, verdict in case.sides.items():
        marks.append((verdict.get("score"), verdict.get("judge", side), ""))
    marks.append((case.votes.get("score"), "you", "vj-own"))
    return TEMPLATES.case(case, *_pictures_of(case.item, image_size), marks)


def _pictures_of(item: Item, image_size: int) -> tuple[list, list]:
    """The pictures of an item's question, and of its response."""
    return pictures(item.images, image_size), pictures(item.response_images, image_size)


def pictures(sources: Sequence[Any], image_size: int) -> list[tuple[str, str, int, int]]:
    """Label, data URI, width and height of each picture; the reason and no URI where it fails."""
    boxes = []
    for source in sources:
        try:
            image = images.open_image(source)
        except images.ImageError as error:
            boxes.append((f"no image: {error}", "", 0, 0))
            continue
        small = images.thumbnail(image, size=image_size)
        # PNG keeps a drawing sharp; of a photograph it is slow and large.
        drawing = small.getcolors(2_000) is not None
        uri = images.data_uri(small, format="png" if drawing else "jpeg")
        scale = image_size / max(small.size)
        boxes.append(
            (
                f"{image.width} x {image.height}",
                uri,
                round(small.width * scale),
                round(small.height * scale),
            )
        )
    return boxes


def review_page(
    review: Session, cases: Sequence[tuple[Markup, Mapping[str, Any]]], kind: str
) -> str:
    """A review as a page in which nothing can run.

    Args:
        review: whose annotator the page is for.
        cases: the markup of each item, and each annotator's votes on it.
        kind: "simulated" where votes are, else "".
    """
    return str(TEMPLATES.page(review, CSS, cases, kind))
