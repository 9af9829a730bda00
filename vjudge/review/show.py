"""What a notebook shows: an item with its verdict, a case, many pictures small, and an item under review.

Texts come from data and models: they are escaped, never typeset as mathematics, and control characters are named.
"""

from __future__ import annotations

import difflib
import html
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import zip_longest
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from vjudge import images
from vjudge.data import rows_of
from vjudge.data.summary import SPACELESS
from vjudge.records import Item, is_missing
from vjudge.review.review import ReviewCase

ASSETS = files("vjudge") / "assets"
CSS = Markup((ASSETS / "review.css").read_text("utf-8"))
_PIECES = re.compile(rf"\s+|[{SPACELESS}]|[^\s{SPACELESS}]+")  # a character of a script without spaces is a word
COMPARED_WORDS = 4_000  # of both feedbacks together; finding the differences of longer ones would be felt


def plain(value: Any) -> str:
    """Text with its control, format, surrogate and private characters by their code; joiners stay."""
    marks = str(value).replace("\r\n", "\n")
    odd = {m for m in {*marks} - {*"\n\t\u200c\u200d"} if unicodedata.category(m) in ("Cc", "Cf", "Cs", "Co")}
    return "".join(f"<U+{ord(mark):04X}>" if mark in odd else mark for mark in marks)


def escape(text: Any) -> str:
    """Text as HTML that shows it as it is."""
    return html.escape(plain(text))


def vote_words(votes: Mapping[str, Any]) -> str:
    """An annotator's votes on one item in words."""
    answer = votes.get("better")
    lines = [f"score {votes['score']}"] if "score" in votes else []
    lines += [f"better feedback: {answer}" if answer in ("left", "right") else answer] if answer else []
    lines += [f"{place}: {', '.join(tags)}" for place, tags in votes.get("tags", {}).items()]
    return "; ".join([*lines, f"note: {votes['note']}"] if "note" in votes else lines)


def _templates() -> Any:
    """The macros of assets/review.html, which escape every text."""

    def finalize(value: Any) -> str:
        return value if isinstance(value, Markup) else plain(value)

    env = Environment(autoescape=True, undefined=StrictUndefined, finalize=finalize)
    env.filters["number"] = lambda score: "none" if is_missing(score) else f"{float(score):g}"
    env.filters["words"] = vote_words
    lines = (ASSETS / "review.html").read_text("utf-8").splitlines()
    return env.from_string("".join(line.strip() for line in lines)).module


TEMPLATES = _templates()


class View:
    """Something shown as HTML where there is a notebook and as its text elsewhere."""

    def __init__(self, body: str) -> None:
        # Both generations of MathJax would typeset "$5 or $6".
        self.body, self.html = body, f'<div class="vj tex2jax_ignore mathjax_ignore"><style>\n{CSS}</style>{body}</div>'

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        text = re.sub("</strong></div><div[^>]*>", ": ", self.body)
        text = re.sub("<[^>]*>", "", re.sub("</(?:div|li|tr|figure|th|td)>", "\n", text))
        return html.unescape("\n".join(line for line in text.split("\n") if line.strip()))


def show(item: Item | Mapping[str, Any], *, verdict: Any = None, image_size: int = 320) -> View:
    """Show one item whole, with a judge's verdict where there is one.

    Args:
        item: an `Item`, or a row with the canonical columns; KeyError, ValueError where it is none (`Item.from_row`).
        verdict: a row of `Judge.grade`'s table (a Series or mapping), as far as its fields are there; ValueError where
            it is another item's.
        image_size: pixels of an image's longer side at most; it is embedded at that size.

    Returns:
        A view: images, texts, the rubric with the true level marked (and the judge's, with the probability of each),
        and the judge's scores, feedback or failure. An image that cannot be opened shows why.

    >>> from vjudge.review import show
    >>> show({"id": "a", "instruction": "What is it?", "response": "A cat.", "gold": 4})
    Item a
    Instruction: What is it?
    Response: A cat.
    Reference answer: none given
    Rubric: none given
    True score: 4
    """
    item = _item(item)
    given = {} if verdict is None else {name: verdict[name] for name in verdict.keys() if not is_missing(verdict[name])}
    if str(given.get("id", item.id)) != item.id:
        raise ValueError(f"the verdict is of item {given['id']!r}, the item is {item.id!r}: pass its own row")
    marks = [(item.gold, "true score", "vj-true"), (given.get("score"), "judge", "vj-judge")]
    marks += [(int(level), f"{float(share):.0%}", "") for level, share in (given.get("probabilities") or {}).items()]
    return View(TEMPLATES.item(item, pictures(item.images, image_size), marks, None if verdict is None else given))


def show_case(items: Sequence[Mapping[str, Any]], *, image_size: int = 320) -> View:
    """Show the responses to one question side by side, lowest true score first.

    Args:
        items: `Item`s or rows that differ in response, score and feedback alone, as `vjudge.data.cases` finds them;
            ValueError names other fields in which they differ.
        image_size: see `show`.
    """
    case = sorted(map(_item, items), key=lambda item: (math.isnan(item.gold), item.gold))
    if not case:
        raise ValueError("there is no item to show")
    same = ("instruction", "reference_answer", "rubric", "group")
    if unlike := [name for name in same if any(getattr(item, name) != getattr(case[0], name) for item in case)]:
        raise ValueError(f"the items differ in {', '.join(unlike)}: pass the rows of one case, see vjudge.data.cases")
    return View(TEMPLATES.responses(case, pictures(case[0].images, image_size)))


def contact_sheet(sources: Sequence[Any], *, captions: Sequence[str] | None = None, image_size: int = 120) -> View:
    """Show many images small, each with a caption.

    Args:
        sources: anything `vjudge.images.open_image` opens.
        captions: one for each image, else ValueError; its size in pixels when None.
        image_size: see `show`.
    """
    if captions is not None and len(captions) != len(sources):
        raise ValueError(f"{len(captions)} captions for {len(sources)} images: give one each")
    return View(TEMPLATES.sheet(pictures(sources, image_size, captions)))


def case_html(
    case: ReviewCase, image_size: int, *, enlarge: bool = False, truth: bool = False, differences: bool = False
) -> Markup:
    """A case as its annotator may see it now, with the truth only where it is revealed.

    `enlarge` blows smaller pictures up to the size; `differences` marks words that the other feedback lacks.
    """
    shown = truth and case.revealed
    marks: list[Any] = [(case.item.gold, "true score", "vj-true")] if shown else []
    marks += [(side.verdict.get("score"), side.judge or side.place, "") for side in case.sides if side.verdict]
    marks.append((case.votes.get("score"), "you", "vj-own"))
    absent = {"feedback": "not graded by this judge"}
    verdicts = [absent if side.verdict is None else side.verdict for side in case.sides]
    texts = [str(verdict.get("feedback") or verdict.get("raw") or "no feedback") for verdict in verdicts]
    pieces = _compared(*texts) if differences and len(texts) == 2 else [[(text, False)] for text in texts]
    return TEMPLATES.case(case, pictures(case.item.images, image_size, enlarge=enlarge), marks, pieces, shown)


def pictures(
    sources: Sequence[Any], image_size: int, captions: Sequence[str] | None = None, *, enlarge: bool = False
) -> list[tuple[Any, ...]]:
    """Label, data URI, width and height of each picture; the reason and no URI where it cannot be opened."""
    shown: list[tuple[Any, ...]] = []
    for number, source in enumerate(sources):
        try:
            image = images.open_image(source)
        except images.ImageError as error:
            shown.append((f"no image: {error}", "", 0, 0))
            continue
        small = images.thumbnail(image, size=image_size)
        drawing = small.getcolors(2_000) is not None  # which PNG keeps sharp; of a photograph it is slow and large
        uri = Markup(images.data_uri(small, format="png" if drawing else "jpeg"))
        scale = max(1.0, image_size / max(small.size)) if enlarge else 1.0
        label = captions[number] if captions else f"{image.width} x {image.height}"
        shown.append((label, uri, round(small.width * scale), round(small.height * scale)))
    return shown


def _item(row: Item | Mapping[str, Any]) -> Item:
    return row if isinstance(row, Item) else Item.from_row(rows_of([row])[0])


def _compared(*texts: str) -> list[list[tuple[str, bool]]]:
    """Two texts in pieces, each with whether the other text lacks it at that place."""
    words = [_PIECES.findall(text) for text in texts]
    if sum(map(len, words)) > 2 * COMPARED_WORDS:
        return [[(text, False)] for text in texts]
    pieces: list[list[tuple[str, bool]]] = [[], []]
    for kind, *spans in difflib.SequenceMatcher(a=words[0], b=words[1], autojunk=False).get_opcodes():
        for side, (start, end) in enumerate(zip_longest(spans[::2], spans[1::2])):
            text = "".join(words[side][start:end])
            pieces[side].append((text, kind != "equal" and bool(text.strip())))
    return pieces
