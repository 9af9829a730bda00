"""Texts changed: the same items with their response, instruction, rubric or reference answer altered.

Each function takes a collection and returns it changed; rows that the change does not apply to are left out, and the
caller counts them. All inserted text was written for this project, says nothing about any picture and judges nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import datasets
import numpy as np

from vjudge.data import rows_of
from vjudge.records import is_missing

OPENINGS = (
    "Here is my answer to the question.",
    "I will now go through this step by step.",
    "Let me write down what there is to say about it.",
    "What follows is my reply to what was asked.",
)
CLOSINGS = (
    "This is the end of my answer to the question.",
    "That is what I have to say in reply to what was asked.",
    "With this, I have come to the end of what I wanted to write down here.",
    "Thank you for reading all of this, from the first word to the last.",
)
MISSING_QUESTION = "(The question is missing.)"
POLITE = "Please take your time and do the following. {instruction} Thank you."

_SENTENCE = re.compile(r".+?(?:(?<!\d)[.!?]+(?=\s|$)|(?=\n)|$)\s*")  # "3.5" and "1." end no sentence
_FILLER = re.compile(
    r"^(?:sure|certainly|of course|absolutely|great question|i hope (?:this|that) helps|let me know if|feel free to|"
    r"thank you for|as an ai|happy to help|here is my answer|i will now go through|let me write down|what follows is|"
    r"this is the end of my|that is what i have to say|with this, i have come)\b",
    re.IGNORECASE,
)
ROOM = 5  # words that a trimmed response must keep


def replaced(items: datasets.Dataset, **columns: Sequence[Any]) -> datasets.Dataset:
    """The collection with whole columns replaced, in their old order and types."""
    changed = items
    for name, values in columns.items():
        made = datasets.Dataset.from_dict(
            {name: list(values)}, features=datasets.Features({name: items.features[name]})
        )
        changed = datasets.concatenate_datasets([changed.remove_columns([name]), made], axis=1)
    return changed.select_columns(items.column_names)


def changed(items: datasets.Dataset, column: str, change: Callable[[dict[str, Any]], Any]) -> datasets.Dataset:
    """The rows to which a change applies, changed.

    Args:
        items: a collection with the canonical columns.
        column: what is changed.
        change: a row without its images -> the column's new value; None where the change does not apply.
    """
    values = [change(dict(row)) for row in rows_of(items.remove_columns(["images"]))]
    kept = [index for index, value in enumerate(values) if value is not None]
    if not kept:
        return items.select([])
    return replaced(items.select(kept), **{column: [values[index] for index in kept]})


def sentences(text: str) -> list[str]:
    """A text's sentences; a numbered mark such as "(1)" stays with its sentence, and joined they are the text."""
    return _SENTENCE.findall(text) or [text]


def padded(items: datasets.Dataset, *, doublings: float = 1.0, seed: int = 0) -> datasets.Dataset:
    """Make every response longer by sentences that say nothing: neither about the picture nor about the answer.

    Args:
        items: a collection with the canonical columns.
        doublings: of the length in words that is aimed at, above 0; whole sentences are added, alternately after and
            before the response, until it is reached.
        seed: of the choice of sentences.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=1)
    >>> len(vj.probes.padded(items)[0]["response"]) > len(items[0]["response"])
    True
    """
    rng = np.random.default_rng(seed)

    def pad(row: dict[str, Any]) -> str:
        response = row["response"]
        target = len(response.split()) * 2**doublings
        before, after = list(rng.permutation(OPENINGS)), list(rng.permutation(CLOSINGS))
        head: list[str] = []
        tail: list[str] = []
        while len(" ".join([*head, response, *tail]).split()) < target and len(head) + len(tail) < 400:
            side, stock, full = (tail, after, CLOSINGS) if len(tail) <= len(head) else (head, before, OPENINGS)
            if not stock:
                stock.extend(rng.permutation(full))
            side.append(str(stock.pop()))
        return " ".join([*head, response, *tail])

    return changed(items, "response", pad)


def trimmed(items: datasets.Dataset) -> datasets.Dataset:
    """Cut from every response the sentences that say nothing, and sentences that stand there twice.

    Cut are openings and closings such as "Sure, ..." and "I hope this helps", among them what `padded` adds, by a list
    of beginnings in English. Rows with nothing to cut, or of which hardly anything would stay, are left out.
    """

    def trim(row: dict[str, Any]) -> str | None:
        kept, seen = [], set()
        for sentence in sentences(row["response"]):
            plain = " ".join(sentence.split()).lower()
            if plain and (_FILLER.match(plain) or plain in seen):
                continue
            seen.add(plain)
            kept.append(sentence)
        text = "".join(kept).strip()
        return text if text != row["response"].strip() and len(text.split()) >= ROOM else None

    return changed(items, "response", trim)


def bold(items: datasets.Dataset) -> datasets.Dataset:
    """Set the longest word of every sentence in Markdown's bold."""

    def embolden(row: dict[str, Any]) -> str | None:
        made = []
        for sentence in sentences(row["response"]):
            words = re.findall(r"[^\W\d_]{3,}", sentence)
            longest = max(words, key=len, default=None)
            pattern = None if longest is None else rf"(?<!\*)\b{re.escape(longest)}\b(?!\*)"
            made.append(sentence if pattern is None else re.sub(pattern, f"**{longest}**", sentence, count=1))
        return _other("".join(made), row["response"])

    return changed(items, "response", embolden)


def listed(items: datasets.Dataset) -> datasets.Dataset:
    """Set every sentence as a point of a Markdown list; responses of one sentence are left out."""

    def enlist(row: dict[str, Any]) -> str | None:
        parts = [part for sentence in sentences(row["response"]) if (part := sentence.strip().lstrip("-* ").strip())]
        return _other("\n".join(f"- {part}" for part in parts), row["response"]) if len(parts) > 1 else None

    return changed(items, "response", enlist)


def halved(items: datasets.Dataset) -> datasets.Dataset:
    """Keep the first half of every response: of its sentences, or of its words where it is one sentence."""

    def halve(row: dict[str, Any]) -> str | None:
        parts = sentences(row["response"])
        parts = parts if len(parts) > 1 else re.findall(r"\S+\s*", row["response"])
        return "".join(parts[: len(parts) // 2]).strip() or None if len(parts) > 1 else None

    return changed(items, "response", halve)


def exchanged(items: datasets.Dataset, column: str, *, seed: int = 0) -> datasets.Dataset:
    """Give every row another row's text: one of another group, and another text where there is one.

    Args:
        items: a collection with the canonical columns.
        column: "response", "instruction" or "reference_answer"; rows without a text are left out.
        seed: of the choice.

    Raises:
        ValueError: fewer than two groups have such a text.
    """
    texts, groups = list(items[column]), list(items["group"])
    kept = [index for index, text in enumerate(texts) if not is_missing(text) and text.strip()]
    if len({groups[index] for index in kept}) < 2:
        raise ValueError(f"{column}: fewer than two groups have one, so none can be exchanged; load more rows")
    rng = np.random.default_rng(seed)
    values = []
    for index in kept:
        for donor in rng.choice(kept, size=100):  # a hundred draws fail together only where texts hardly differ
            if groups[donor] != groups[index] and texts[donor] != texts[index]:
                break
        else:
            donor = next(other for other in kept if groups[other] != groups[index])
        values.append(texts[int(donor)])
    return replaced(items.select(kept), **{column: values})


def unreferenced(items: datasets.Dataset) -> datasets.Dataset:
    """Take the reference answer away; rows without one are left out."""
    kept = [index for index, text in enumerate(items["reference_answer"]) if not is_missing(text) and text.strip()]
    return replaced(items.select(kept), reference_answer=[None] * len(kept)) if kept else items.select([])


def reversed_levels(items: datasets.Dataset) -> datasets.Dataset:
    """Put the rubric's level descriptions in the opposite order: what earned the best score now earns the worst."""
    return changed(items, "descriptions", lambda row: list(row["descriptions"])[::-1])


def exchanged_criteria(items: datasets.Dataset, *, seed: int = 0) -> datasets.Dataset:
    """Give every row another rubric with as many levels: the one that shares the fewest words with its own.

    Args:
        items: a collection with the canonical columns.
        seed: of the order among equals, and of the 200 candidates where there are more rubrics.

    Raises:
        ValueError: the collection has one rubric only.
    """
    rubrics = [
        (criteria, tuple(levels)) for criteria, levels in zip(items["criteria"], items["descriptions"], strict=True)
    ]
    distinct = list(dict.fromkeys(rubrics))
    if len(distinct) < 2:
        raise ValueError("criteria: all rows have one rubric, so none can be exchanged; load more rows")
    rng = np.random.default_rng(seed)
    pool = [distinct[i] for i in rng.permutation(len(distinct))[:200]]
    words = {rubric: set(re.findall(r"\w+", " ".join([rubric[0], *rubric[1]]).lower())) for rubric in distinct}

    def other(rubric: tuple[str, tuple[str, ...]]) -> tuple[str, tuple[str, ...]] | None:
        fits = [r for r in pool if r[0] != rubric[0] and len(r[1]) == len(rubric[1])]
        own = words[rubric]
        return min(fits, key=lambda r: len(words[r] & own) / len(words[r] | own), default=None)

    partner = {rubric: other(rubric) for rubric in distinct}
    kept = [index for index, rubric in enumerate(rubrics) if partner[rubric] is not None]
    chosen: list[Any] = [partner[rubrics[index]] for index in kept]
    return replaced(
        items.select(kept), criteria=[rubric[0] for rubric in chosen], descriptions=[list(r[1]) for r in chosen]
    )


def _other(text: str, before: str) -> str | None:
    return text if text != before else None
