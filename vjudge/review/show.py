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
from importlib import resources
from itertools import zip_longest
from typing import Any

from vjudge import images
from vjudge.data import rows_of
from vjudge.data.summary import SPACELESS
from vjudge.records import Item, is_missing
from vjudge.review.review import ReviewCase, Side

# Grays and tints are transparent: they take the colour of the page under them.
_STYLE = f"<style>\n{(resources.files('vjudge') / 'assets' / 'review.css').read_text('utf-8')}</style>"

# JupyterLab drops a style sheet from a notebook that it does not trust yet, and keeps these.
_TINT, _LEFT = ' style="background-color:rgba(0,114,178,.2)"', ' style="text-align:left"'
_SAFE = 'class="vj tex2jax_ignore mathjax_ignore"'  # both generations of MathJax, which would typeset "$5 or $6"
_PIECES = re.compile(rf"\s+|[{SPACELESS}]|[^\s{SPACELESS}]+")  # a character of a script without spaces is a word
COMPARED_WORDS = 4_000  # of both feedbacks together; finding the differences of longer ones would be felt


class View:
    """Something shown as HTML where there is a notebook and as its text elsewhere."""

    def __init__(self, body: str) -> None:
        self.body, self.html = body, f"<div {_SAFE}>{_STYLE}{body}</div>"

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        text = re.sub("</strong></div><div[^>]*>", ": ", self.body)
        text = re.sub("<[^>]*>", "", re.sub("</(?:div|li|tr|figure|th|td)>", "\n", text))
        return html.unescape("\n".join(line for line in text.split("\n") if line.strip()))


def show(item: Item | Mapping[str, Any], *, verdict: Any = None, image_size: int = 320) -> View:
    """Show one item whole, with a judge's verdict where there is one.

    Args:
        item: an `Item`, or a row with the canonical columns.
        verdict: a row of `Judge.grade`'s table (a Series or mapping), as far as its fields are there.
        image_size: pixels of an image's longer side at most; it is embedded at that size.

    Returns:
        A view: images, texts, the rubric with the true level marked (and the judge's, with the probability of each),
        and the judge's scores, feedback or failure. An image that cannot be opened shows why.

    Raises:
        KeyError, ValueError: a row that is no item; see `Item.from_row`.
        ValueError: the verdict is another item's.

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
    score, shares = float(given.get("score", math.nan)), given.get("probabilities") or {}
    notes: dict[float, list[str]] = {}
    marks = [(item.gold, "true score"), (score, "judge"), *((int(n), f"{float(p):.0%}") for n, p in shares.items())]
    for level, mark in marks:
        notes.setdefault(level, []).append(mark)
    judged = ""
    if verdict is not None:
        lines = [("Judge's name", str(given["judge"]))] if "judge" in given else []
        lines.append(("Judge's score", number(score)))
        if "expected_score" in given:
            lines.append(("Judge's expected score", f"{float(given['expected_score']):.2f}"))
        if "failure" in given:
            lines.append(("Judge's failure", str(given["failure"])))
        if given.get("feedback"):
            lines.append(("Judge's feedback", str(given["feedback"])))
        elif "failure" in given and given.get("raw"):
            lines.append(("Judge's whole answer", str(given["raw"])))
        judged = f'<div class="vj-verdict">{_texts(lines)}</div>'
    return View(
        f'<div class="vj-id">Item {escape(item.id)}</div>'
        f'<div class="vj-top">{pictures(item, image_size)}<div class="vj-texts">{_texts(_question(item))}</div></div>'
        + _rubric(item, notes, truth=item.gold, judged=score)
        + f"<div>{_texts(_truth(item, 'Human scores'))}</div>{judged}"
    )


def show_case(items: Sequence[Mapping[str, Any]], *, image_size: int = 320) -> View:
    """Show the responses to one question side by side, lowest true score first.

    Args:
        items: `Item`s or rows that differ in response, score and feedback alone, as `vjudge.data.cases` finds them.
        image_size: see `show`.

    Raises:
        ValueError: there is no item, or they differ in more; the fields are named.
    """
    case = sorted(map(_item, items), key=lambda item: (math.isnan(item.gold), item.gold))
    if not case:
        raise ValueError("there is no item to show")
    first, same = case[0], ("instruction", "reference_answer", "rubric", "group")
    if unlike := [name for name in same if any(getattr(item, name) != getattr(first, name) for item in case)]:
        raise ValueError(f"the items differ in {', '.join(unlike)}: pass the rows of one case, see vjudge.data.cases")
    instruction, _, reference = _question(first)
    heads = "".join(f"<th{_LEFT}>{name}</th>" for name in ("True score", "Response", "Reference feedback"))
    cells = [(number(item.gold), item.response, item.feedback or "") for item in case]
    rows = ["".join(f'<td dir="auto"{_LEFT}>{escape(text)}</td>' for text in row) for row in cells]
    return View(
        f'<div class="vj-top">{pictures(first, image_size)}'
        f'<div class="vj-texts">{_texts([instruction, reference])}{_rubric(first, {})}</div></div>'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"
    )


def contact_sheet(sources: Sequence[Any], *, captions: Sequence[str] | None = None, image_size: int = 120) -> View:
    """Show many images small, each with a caption.

    Args:
        sources: anything `vjudge.images.open_image` opens.
        captions: one for each image; its size in pixels when None.
        image_size: see `show`.

    Raises:
        ValueError: captions and images differ in number.
    """
    if captions is not None and len(captions) != len(sources):
        raise ValueError(f"{len(captions)} captions for {len(sources)} images: give one each")
    names = [None] * len(sources) if captions is None else captions
    figures = [_figure(source, image_size, caption=name) for source, name in zip(sources, names, strict=True)]
    return View(f'<div class="vj-sheet">{"".join(figures)}</div>')


def case_html(case: ReviewCase, *, pictures: str, truth: bool = False, differences: bool = False) -> str:
    """A case as its annotator may see it now, with the truth and others' votes only where it is revealed."""
    item, shown, own = case.item, truth and case.revealed, case.votes.get("score")
    notes: dict[float, list[str]] = {}
    verdicts = [(side.judge or side.place, (side.verdict or {}).get("score")) for side in case.sides]
    for name, score in [*([("true score", item.gold)] if shown else []), *verdicts, ("you", own)]:
        if score is not None:
            notes.setdefault(score, []).append(escape(name))
    lines = _truth(item, "Human scores in the collection") if shown else []
    lines += [(f"Votes of {name}", "; ".join(vote_lines(votes))) for name, votes in case.others.items() if shown]
    feedbacks = _marked(case.sides) if differences else [escape(_feedback(side)) for side in case.sides]
    sides = "".join(_side(side, text) for side, text in zip(case.sides, feedbacks, strict=True))
    return (
        f'<div class="vj-case"><div class="vj-id">Item {escape(item.id)}</div>'
        f'<div class="vj-top">{pictures}<div class="vj-texts">{_texts(_question(item))}'
        + _rubric(item, notes, truth=item.gold if shown else math.nan, own=own)
        + "</div></div>"
        + (f"<div>{_texts(lines)}</div>" if lines else "")
        + f'<div class="vj-sides">{sides}</div></div>'
    )


def vote_lines(votes: Mapping[str, Any]) -> list[str]:
    """An annotator's votes on one item in words."""
    lines = [f"score {votes['score']}"] if "score" in votes else []
    if answer := votes.get("better"):
        lines.append(f"better feedback: {answer}" if answer in ("left", "right") else answer)
    lines += [f"{place}: {', '.join(tags)}" for place, tags in votes.get("tags", {}).items()]
    return [*lines, f"note: {votes['note']}"] if "note" in votes else lines


def pictures(item: Item, image_size: int, *, enlarge: bool = False) -> str:
    """An item's pictures, their longer side at most `image_size` pixels; smaller ones blown up to it if `enlarge`."""
    figures = [_figure(source, image_size, enlarge=enlarge) for source in item.images]
    return f'<div class="vj-pictures">{"".join(figures)}</div>' if figures else ""


def number(score: float) -> str:
    """A score for a reader; "none" for NaN."""
    return "none" if math.isnan(score) else f"{score:g}"


def plain(value: Any) -> str:
    """Text with its control, format, surrogate and private characters by their code; joiners stay."""
    marks = str(value).replace("\r\n", "\n")
    odd = {m for m in {*marks} - {*"\n\t\u200c\u200d"} if unicodedata.category(m) in ("Cc", "Cf", "Cs", "Co")}
    return "".join(f"<U+{ord(mark):04X}>" if mark in odd else mark for mark in marks)


def escape(text: str) -> str:
    return html.escape(plain(text))


def _item(row: Item | Mapping[str, Any]) -> Item:
    return row if isinstance(row, Item) else Item.from_row(rows_of([row])[0])


def _question(item: Item) -> list[tuple[str, str]]:
    reference = item.reference_answer or "none given"
    return [("Instruction", item.instruction), ("Response", item.response), ("Reference answer", reference)]


def _truth(item: Item, human_scores: str) -> list[tuple[str, str]]:
    lines = [("True score", number(item.gold))]
    lines += [(human_scores, ", ".join(map(number, item.human_scores)))] if item.human_scores else []
    return [*lines, ("Reference feedback", item.feedback)] if item.feedback else lines


def _figure(source: Any, image_size: int, *, caption: str | None = None, enlarge: bool = False) -> str:
    try:
        image = images.open_image(source)
    except images.ImageError as error:
        return f"<figure><figcaption>{escape(f'no image: {error}')}</figcaption></figure>"
    label = escape(f"{image.width} x {image.height}" if caption is None else caption)
    small = images.thumbnail(image, size=image_size)
    drawing = small.getcolors(2_000) is not None  # which PNG keeps sharp; of a photograph it is slow and large
    uri = images.data_uri(small, format="png" if drawing else "jpeg")
    scale = max(1.0, image_size / max(small.size)) if enlarge else 1.0
    width, height = round(small.width * scale), round(small.height * scale)
    return (
        f'<figure><img src="{uri}" width="{width}" height="{height}" alt="{label}">'
        f"<figcaption>{label}</figcaption></figure>"
    )


def _texts(lines: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f'<div class="vj-name"><strong>{escape(name)}</strong></div>'
        f'<div class="vj-text" dir="auto">{escape(value)}</div>'
        for name, value in lines
    )


def _rubric(
    item: Item,
    notes: Mapping[float, Sequence[str]],
    *,
    truth: float = math.nan,
    judged: float = math.nan,
    own: float | None = None,
) -> str:
    """The rubric with notes beside its levels, and the true, the judge's and one's own level set off."""
    levels, rubric = [], item.rubric
    for score, description in zip(rubric.scores, rubric.descriptions, strict=True) if rubric else ():
        kinds = {"vj-true": score == truth, "vj-judge": score == judged, "vj-own": score == own}
        note = f" <small><strong>{', '.join(notes[score])}</strong></small>" if notes.get(score) else ""
        levels.append(
            f'<li class="{" ".join(kind for kind in kinds if kinds[kind])}"{_TINT * (score == truth)}>'
            f'<b>{score}</b> <span dir="auto">{escape(description)}</span>{note}</li>'
        )
    return _texts([("Rubric", rubric.criteria if rubric else "none given")]) + f"<ul>{''.join(levels)}</ul>"


def _side(side: Side, text: str) -> str:
    verdict = side.verdict or {}
    head = side.place.capitalize() if side.judge is None else f"{side.place.capitalize()}: {side.judge}"
    if "score" in verdict:
        head += f", score {number(float(verdict['score']))}"
        if "expected_score" in verdict:
            head += f" (expected {float(verdict['expected_score']):.2f})"
    notes = [f"no score: {verdict['failure']}"] if "failure" in verdict else []
    if side.hidden:
        notes.append(f"{side.hidden} place{'s' * (side.hidden > 1)} that may tell the score: hidden until your vote")
    return (
        f'<div class="vj-side"><div class="vj-name"><strong>{escape(head)}</strong></div>'
        + "".join(f'<div class="vj-note">{escape(note)}</div>' for note in notes)
        + f'<div class="vj-text" dir="auto">{text}</div></div>'
    )


def _feedback(side: Side) -> str:
    verdict = {"feedback": "not graded by this judge"} if side.verdict is None else side.verdict
    return str(verdict.get("feedback") or verdict.get("raw") or "no feedback")


def _marked(sides: Sequence[Side]) -> list[str]:
    """The feedbacks as HTML, words that the other one lacks at that place marked."""
    words = [_PIECES.findall(plain(_feedback(side))) for side in sides]
    if len(words) != 2 or sum(map(len, words)) > 2 * COMPARED_WORDS:
        return [html.escape("".join(parts)) for parts in words]
    marked: list[list[str]] = [[], []]
    for kind, *spans in difflib.SequenceMatcher(a=words[0], b=words[1], autojunk=False).get_opcodes():
        for side, (start, end) in enumerate(zip_longest(spans[::2], spans[1::2])):
            text = html.escape("".join(words[side][start:end]))
            marked[side].append(text if kind == "equal" or not text.strip() else f"<mark>{text}</mark>")
    return ["".join(parts) for parts in marked]
