"""Graded examples in a judge's prompts: which items may be examples, and of which calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vjudge import data
from vjudge.data.checks import check_rows
from vjudge.data.schema import CollectionError, Items, Row, problems_of
from vjudge.images import Pictures
from vjudge.prompts import Template
from vjudge.records import Item


def examples_of(template: Template, items: Items) -> tuple[Item, ...]:
    """Read the examples that `Judge.with_examples` puts into every prompt.

    Args:
        template: the judge's prompt template for one response.
        items: graded rows.

    Raises:
        CollectionError: rows that can't be examples, all named. ValueError: the template's
            conversation has one turn.
    """
    rows = data.rows_of(items)
    data.validate(rows, needs=template.needs, sees_images=template.sees_images, pairs=False)
    examples = list(map(Item.from_row, rows))
    problems = []
    for index, example in enumerate(examples):
        problems += problems_of(index, example.id, _faults(template, example))
    if problems:
        raise CollectionError.of_rows(problems, len(rows))
    template.render(examples[0], examples)  # a ValueError where the conversation has one turn
    # ids that are mere positions in these rows would match unrelated rows of another collection
    if "id" not in rows.columns:
        examples = [replace(example, id="") for example in examples]
    return tuple(examples)


def _faults(template: Template, example: Item) -> list[tuple[str, str, str]]:
    """List what keeps an item from being a few-shot example.

    Returns:
        Tuples (column, reason, remedy); an error reads the first two as a sentence.
    """
    faults = template.faults(example)
    if not example.feedback:
        faults.append(("feedback", "is missing", "write why it earns its score"))
    if example.rubric and example.rubric.named:
        faults.append(("criteria", "are several, and an example has one score", "keep one"))
    elif example.gold not in template.scores(example.rubric):
        faults.append(("gold", "is not on the scale", "give a score of the scale, or leave it out"))
    return faults


def check_examples(
    examples: Sequence[Item],
    template: Template,
    rows: Sequence[Row],
    items: Sequence[Any],
    pictures: Pictures,
) -> None:
    """Refuse a call whose prompts would show one of its own items, or examples of another task.

    Args:
        examples: of the judge; with () every call passes.
        template: of the call.
        rows, items: the same rows of the call, as canonical rows and as items.
        pictures: opens the images of the call.

    Raises:
        ValueError: the call asks for a choice, which no example shows. CollectionError: rows with
            the id of an example, or with its texts and images.
    """
    if not examples:
        return
    if template.gives != "score":
        raise ValueError(
            "examples show scores, and a comparison asks for a choice: compare by the judge that"
            " with_examples was called of"
        )

    # an item with another id is the same one if its texts and the content of its images are
    def content(item: Item) -> tuple[str, ...]:
        keys = [pictures(source).key for source in (*item.images, *item.response_images)]
        return item.instruction, item.response, *keys

    ids = {example.id for example in examples} - {""}  # "" of examples without an id
    contents = set(map(content, examples))
    is_new = [item.id not in ids and content(item) not in contents for item in items]
    reason = "is an example in the judge's prompts"
    check_rows(rows, "id", is_new, reason, "leave it out here or there")
