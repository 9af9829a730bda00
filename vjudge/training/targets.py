"""What a judge is to answer: the published target text of a row, to the letter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vjudge import prompts
from vjudge.data import rows_of
from vjudge.prompts import IMAGE, Prompt, Template
from vjudge.records import Item, Pair, is_missing

SHAPES = ("feedback", "score", "score-first", "description")
"""What an answer consists of: feedback then score (the published order), the score alone, the score then feedback; or,
for a new projector, a description of the image that stands before it, without any other word ("plain" in LLaVA)."""


_DESCRIBED = ("images", "response")


def prompt_and_target(
    row: Mapping[str, Any] | Item | Pair, template: Template, *, shape: str = "feedback"
) -> tuple[Prompt, str]:
    """A row's prompt and the answer to train on.

    A row that carries its own published texts, `prompt` and `target` as LLaVA-Critic-113k's do, is trained on those, in
    the template's conversation; any other is rendered by the template.

    Args:
        row: canonical columns.
        template: the judge's wording.
        shape: one of `SHAPES`. "score" and "score-first" are for ablations, and for wordings with a "[RESULT]" alone;
            "description" trains a row's `response` on its images alone, whatever the wording.

    Returns:
        The prompt and the answer's text, without what separates it from the prompt and without an end.

    Raises:
        ValueError: the row has no feedback, score or preference to train on, or the wording has no published target;
            no image or no text for a description.

    Source: of descriptions, haotian-liu/LLaVA llava/train/train.py (preprocess_plain).

    >>> import vjudge as vj
    >>> from vjudge.prompts import TEMPLATES
    >>> (row,) = vj.load_collection("scenes", split="train", limit=1)
    >>> prompt, target = prompt_and_target(row, TEMPLATES["prometheus-vision"])
    >>> prompt.n_images, target[-10:]
    (1, '[RESULT] 1')
    """
    if shape not in SHAPES:
        raise ValueError(f"shape {shape!r} is unknown; use one of {', '.join(SHAPES)}")
    if isinstance(row, Mapping) and "images" not in row:
        row = rows_of([row])[0]
    if shape == "description":
        return _described(row, template)
    if has_own_texts(row):
        assert isinstance(row, Mapping)
        n_images = len(row.get("images") or ()) if template.sees_images else 0
        return template.conversation.wrap(row["prompt"], n_images), row["target"]
    if isinstance(row, (Item, Pair)):
        item: Item | Pair = row
    else:
        item = Pair.from_row(row) if "response_a" in row else Item.from_row(row)
    if isinstance(row, Pair) or isinstance(item, Pair):
        return template.render(item), _chosen(row, item, template)
    return template.render(item), _scored(item, template, shape)


def has_own_texts(row: Any) -> bool:
    """Whether a row brings its own prompt and answer, as LLaVA-Critic-113k's do, and needs no other text."""
    return isinstance(row, Mapping) and _text(row.get("prompt")) and _text(row.get("target"))


def _scored(item: Item, template: Template, shape: str) -> str:
    if is_missing(item.gold) or item.gold != int(item.gold):
        raise ValueError("gold: a target needs a whole score; fill it in or leave the row out")
    score = int(item.gold)
    feedback = item.feedback if item.feedback and item.feedback.strip() else None
    if feedback is None and shape != "score":
        raise ValueError(
            "feedback: is missing; fill it in, leave the row out, or train the score alone (shape='score')"
        )
    if template.marker == "[RESULT]":
        if shape == "feedback":
            return prompts.target(str(feedback), score)
        verdict = f"[RESULT] {score}"
        return verdict if shape == "score" else f"{verdict}\n{feedback}"
    if template.marker == "Final Score:" and shape == "feedback":
        return f"{str(feedback).strip()}\nFinal Score: {score}"
    raise ValueError(f"template: no target is published for {template.name!r}; give rows with prompt and target")


def _described(row: Any, template: Template) -> tuple[Prompt, str]:
    images, text = (row.get(name) if isinstance(row, Mapping) else getattr(row, name, None) for name in _DESCRIBED)
    if not template.sees_images:
        raise ValueError(f"template: {template.name!r} shows no images, and a description needs one")
    if images is None or not len(images):
        raise ValueError("images: is empty; a description needs an image: add it or leave the row out")
    if not _text(text):
        raise ValueError("response: is missing; it holds the description: fill it in or leave the row out")
    return Prompt((IMAGE,) * len(images)), str(text)


def _chosen(row: Any, item: Item | Pair, template: Template) -> str:
    preference = getattr(item, "preference", None)
    if preference is None or preference not in ("a", "b"):
        raise ValueError(f"preference: a target needs 'a' or 'b', not {preference!r}; fill it in or leave the row out")
    feedback = row.get("feedback") if isinstance(row, Mapping) else None
    if not isinstance(feedback, str) or not feedback.strip():
        raise ValueError("feedback: is missing; fill it in or leave the row out")
    if template.marker != "[RESULT]":
        raise ValueError(f"template: no target is published for {template.name!r}; give rows with prompt and target")
    return f"{feedback.strip()} [RESULT] {preference.upper()}"


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
