"""Rows as training texts: the prompt of a row, and the answer that a judge should learn to give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vjudge.data import rows_of
from vjudge.data.schema import has_own_texts
from vjudge.prompts import Prompt, Template
from vjudge.prompts.answers import ORDINALS, answer_text
from vjudge.records import Item, Pair, text_of


def prompt_and_target(
    row: Mapping, template: Template, *, shape: str = "feedback"
) -> tuple[Prompt, str]:
    """Return a row's prompt, and the answer to train on.

    The answer has neither the separator before it nor the token that ends it.

    Args:
        row: an item with gold and feedback, or a pair with preference and feedback. A row with
            its own `prompt` and `target`, such as those of LLaVA-Critic-113k, is trained on these.
        template: the prompt template.
        shape: one of `vjudge.training.recipes.ANSWER_SHAPES`; "score" needs no feedback.

    Raises:
        ValueError: the row lacks feedback, score or preference; it has several criteria but one
            gold score; or it is not known what answers to the template look like.

    >>> import vjudge as vj
    >>> from vjudge.prompts import TEMPLATES
    >>> (row,) = vj.load_collection("scenes", split="train", limit=1)
    >>> prompt, target = prompt_and_target(row, TEMPLATES["prometheus-vision"])
    >>> prompt.n_images, target[-10:]
    (1, '[RESULT] 1')

    Source: kaistAI/prometheus-vision sample_train_data.json; for the other templates the answers
    that their prompts ask for and their authors' code reads (`vjudge.prompts.parse.FORMATS`).
    """
    # 0) a row that is not in canonical form yet
    if not (isinstance(row, Mapping) and "images" in row):
        row = rows_of([row])[0]
    # 1) a row that is trained on as it is
    if has_own_texts(row):
        n_images = len(row["images"] or ()) if template.sees_images else 0
        return template.conversation.wrap(row["prompt"], n_images), row["target"]

    # 2) an item or a pair, whose answer is made of its verdict and feedback
    subject: Any = _subject(row)
    if template.is_json and subject.rubric and subject.rubric.named:
        raise ValueError(
            "criteria: named criteria are answered by a score each, and a row has one gold; give"
            " rows with prompt and target"
        )
    verdict = _verdict(subject)
    feedback = (text_of(row, "feedback") or "").strip()
    if not feedback and shape != "score":
        raise ValueError(
            "feedback: is missing; fill it in, leave the row out, or train the verdict alone"
            " (shape='score')"
        )
    return template.render(subject), answer_text(template, feedback, verdict, shape)


def _subject(row: Mapping) -> Item | Pair:
    """Make the pair or the item that a canonical row describes."""
    return Pair.from_row(row) if "response_a" in row else Item.from_row(row)


def pictures_of(row: Mapping, template: Template) -> tuple:
    """Return the images of a row in the order in which its prompt shows them."""
    if has_own_texts(row):
        return tuple(row.get("images") or ())
    return tuple(template.pictures(_subject(row)))


def _verdict(subject: Item | Pair) -> str | int:
    """Return which response of a pair is better ("a" or "b"), or the score of an item.

    Raises:
        ValueError: a pair is a tie or has no preference; an item's gold is missing or no whole
            number.
    """
    if isinstance(subject, Pair):
        if subject.preference not in ORDINALS:
            raise ValueError(
                "preference: a target needs 'a' or 'b'; fill it in or leave the row out"
            )
        return subject.preference
    if not float(subject.gold).is_integer():  # NaN is no integer
        raise ValueError("gold: a target needs a whole score; fill it in or leave the row out")
    return int(subject.gold)
