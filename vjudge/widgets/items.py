"""An item with its verdict, the responses to one question side by side, many pictures small."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vjudge.data import rows_of
from vjudge.records import Item, is_missing
from vjudge.widgets import page
from vjudge.widgets.page import View


def show(item: Item | Mapping[str, Any], *, verdict: Any = None, image_size: int = 320) -> View:
    """Show one item whole, with a judge's verdict where there is one.

    Args:
        item: an `Item`, or a row with the canonical columns.
        verdict: a row of `Judge.grade`'s table (a Series or mapping): score, expected_score, probabilities, feedback,
            failure and raw, as far as they are there.
        image_size: pixels of an image's longer side at most; it is embedded at that size.

    Returns:
        A view: the images, instruction, response, reference answer, the rubric with the true level marked (and the
        judge's, with the probability of each level), the true score and feedback, and the judge's score, expected
        score, feedback or the reason that it has none. An image that cannot be opened shows why.

    Raises:
        KeyError, ValueError: a row that is no item; see `Item.from_row`.
        ValueError: the verdict is another item's.
    """
    item = _item(item)
    if verdict is not None and "id" in verdict and str(verdict["id"]) != item.id:
        raise ValueError(f"the verdict is of item {verdict['id']!r}, the item is {item.id!r}: pass its own row")
    given = _parts(verdict)
    truth = [("Reference feedback", item.feedback)] if item.feedback else []
    raters = ", ".join(page.number(score) for score in item.human_scores)
    said = [
        ("Instruction", item.instruction),
        ("Response", item.response),
        ("Reference answer", item.reference_answer or "none given"),
    ]
    scored = [("True score", page.number(item.gold)), *([("Human scores", raters)] if raters else []), *truth]
    judged = [(f"Judge's {name}", value) for name, value in given["lines"]]
    noted = {score: page.marks(score, item.gold, given["score"], given["probabilities"]) for score in page.scale(item)}
    body = (
        f'<div class="vj-id">Item {page.escape(item.id)}</div>'
        f'<div class="vj-top">{page.pictures(item, image_size)}<div class="vj-texts">{page.texts(said)}</div></div>'
        + page.rubric(item, noted, truth=item.gold, judged=given["score"])
        + f"<div>{page.texts(scored)}</div>"
        + (f'<div class="vj-verdict">{page.texts(judged)}</div>' if judged else "")
    )
    levels = [page.level_line(item, score, noted[score]) for score in page.scale(item)]
    text = [f"Item {page.plain(item.id)}, {page.images_line(item)}", *map(page.line, said)]
    text += [page.line(("Rubric", page.criteria(item))), *levels, *map(page.line, scored + judged)]
    return View(body, "\n".join(text))


def show_case(items: Sequence[Mapping[str, Any]], *, image_size: int = 320) -> View:
    """Show the responses to one question side by side, lowest true score first.

    Args:
        items: `Item`s or canonical rows that differ in response, score and feedback alone, as `vjudge.data.cases`
            finds them.
        image_size: see `show`.

    Raises:
        ValueError: there is no item, or they differ in more; the fields are named.
    """
    case = sorted(map(_item, items), key=lambda item: (math.isnan(item.gold), item.gold))
    if not case:
        raise ValueError("there is no item to show")
    first = case[0]
    same = ("instruction", "reference_answer", "rubric", "group")
    unlike = [name for name in same if any(getattr(item, name) != getattr(first, name) for item in case)]
    if unlike:
        raise ValueError(f"the items differ in {', '.join(unlike)}: pass the rows of one case, see vjudge.data.cases")
    said = [("Instruction", first.instruction), ("Reference answer", first.reference_answer or "none given")]
    heads = "".join(f"<th{page.LEFT}>{name}</th>" for name in ("True score", "Response", "Reference feedback"))
    cells = [(page.number(item.gold), item.response, item.feedback or "") for item in case]
    rows = "".join(f"<tr>{''.join(map(page.cell, row))}</tr>" for row in cells)
    body = (
        f'<div class="vj-top">{page.pictures(first, image_size)}'
        f'<div class="vj-texts">{page.texts(said)}{page.rubric(first, {})}</div></div>'
        f"<table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )
    lines = [page.images_line(first), *map(page.line, said), page.line(("Rubric", page.criteria(first)))]
    lines += [page.level_line(first, score, []) for score in page.scale(first)]
    lines += [page.line((f"Response of score {page.number(item.gold)}", item.response)) for item in case]
    return View(body, "\n".join(lines))


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
    figures, lines = [], []
    for place, image in enumerate(map(page.opened, sources)):
        caption = page.described(image) if captions is None else captions[place]
        figures.append(page.figure(image, image_size, caption=caption))
        lines.append(f"{place}: {page.plain(caption)}")
    return View(f'<div class="vj-sheet">{"".join(figures)}</div>', "\n".join(lines))


def _item(row: Item | Mapping[str, Any]) -> Item:
    return row if isinstance(row, Item) else Item.from_row(rows_of([row])[0])


def _parts(verdict: Mapping[str, Any] | None) -> dict[str, Any]:
    """A verdict's score, probabilities and labelled texts."""
    made: dict[str, Any] = {"score": math.nan, "probabilities": {}, "lines": []}
    if verdict is None:
        return made
    value = {name: verdict[name] for name in verdict.keys() if not is_missing(verdict[name])}
    made["score"] = float(value.get("score", math.nan))
    made["probabilities"] = {int(score): float(p) for score, p in (value.get("probabilities") or {}).items()}
    lines = [("score", page.number(made["score"]))]
    if "expected_score" in value:
        lines.append(("expected score", f"{float(value['expected_score']):.2f}"))
    if "failure" in value:
        lines.append(("failure", str(value["failure"])))
    if value.get("feedback"):
        lines.append(("feedback", str(value["feedback"])))
    elif "failure" in value and value.get("raw"):
        lines.append(("whole answer", str(value["raw"])))
    made["lines"] = [*([("name", str(value["judge"]))] if "judge" in value else []), *lines]
    return made
