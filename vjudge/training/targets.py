"""What a judge is to answer: the published target text of a row, to the letter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vjudge import prompts
from vjudge.data import rows_of
from vjudge.prompts import Prompt, Template
from vjudge.records import Item, Pair

SHAPES = ("feedback", "score", "score-first")
"""What an answer consists of: feedback then score (the published order), the score alone, the score then feedback."""


def prompt_and_target(
    row: Mapping[str, Any] | Item | Pair, template: Template, *, shape: str = "feedback"
) -> tuple[Prompt, str]:
    """A row's prompt and the answer to train on.

    A row that carries its own published texts, `prompt` and `target` as LLaVA-Critic-113k's do, is trained on those, in
    the template's conversation; any other is rendered by the template.

    Args:
        row: canonical columns.
        template: the judge's wording.
        shape: one of `SHAPES`. "score" and "score-first" are for ablations, and for wordings with a "[RESULT]" alone.

    Returns:
        The prompt and the answer's text, without what separates it from the prompt and without an end.

    Raises:
        ValueError: the row has no feedback, score or preference to train on, or the wording has no published target.

    >>> import vjudge as vj
    >>> from vjudge.prompts import TEMPLATES
    >>> (row,) = vj.load_collection("scenes", split="train", limit=1)
    >>> prompt, target = prompt_and_target(row, TEMPLATES["prometheus-vision"])
    >>> prompt.n_images, target[-10:]
    (1, '[RESULT] 1')
    """
    if shape not in SHAPES:
        raise ValueError(f"shape {shape!r} is unknown; use one of {', '.join(SHAPES)}")
    plain: Any = row if isinstance(row, Mapping) and "images" in row else rows_of([row])[0]
    if has_own_texts(plain):
        n_images = len(plain["images"] or ()) if template.sees_images else 0
        return template.conversation.wrap(plain["prompt"], n_images), plain["target"]
    item = Pair.from_row(plain) if "response_a" in plain else Item.from_row(plain)
    return template.render(item), _target(item, plain.get("feedback"), template, shape)


def has_own_texts(row: Mapping[str, Any]) -> bool:
    """Whether a row brings its own prompt and answer, as LLaVA-Critic-113k's do, and needs no other text."""
    return _text(row.get("prompt")) and _text(row.get("target"))


def _target(item: Any, feedback: Any, template: Template, shape: str) -> str:
    """The answer to a rendered row: feedback and a whole score, or feedback and the better response."""
    compares = isinstance(item, Pair)
    if compares and item.preference not in ("a", "b"):
        raise ValueError(
            f"preference: a target needs 'a' or 'b', not {item.preference!r}; fill it in or leave the row out"
        )
    if not compares and not float(item.gold).is_integer():  # NaN is none
        raise ValueError("gold: a target needs a whole score; fill it in or leave the row out")
    if not _text(feedback) and (compares or shape != "score"):
        alone = "" if compares else ", or train the score alone (shape='score')"
        raise ValueError(f"feedback: is missing; fill it in or leave the row out{alone}")
    if compares and template.marker == "[RESULT]":
        return f"{feedback.strip()} [RESULT] {item.preference.upper()}"
    if not compares and template.marker == "[RESULT]":
        score = int(item.gold)
        if shape == "feedback":
            return prompts.target(feedback, score)
        return f"[RESULT] {score}" + (f"\n{feedback}" if shape == "score-first" else "")
    if not compares and template.marker == "Final Score:" and shape == "feedback":
        return f"{feedback.strip()}\nFinal Score: {int(item.gold)}"
    raise ValueError(f"template: no target is published for {template.name!r}; give rows with prompt and target")


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
