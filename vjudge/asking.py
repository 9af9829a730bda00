"""Rows -> questions: what a call asks, and how its engine is told to answer.

An item is asked once a sample, a pair once a sample and order, "ab" and "ba", since a judge may
prefer whichever response stands first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from vjudge import data
from vjudge.engines.engine import Ask, Closing
from vjudge.images import Pictures
from vjudge.prompts import Prompt, Template
from vjudge.records import Item, Pair, Rubric, is_int_at_least
from vjudge.runs import MANIFEST, Run

ORDERS = ("ab", "ba")
# What a table says of a row beside the verdict, where the row has it.
CARRIED = tuple("gold human_scores preference group criteria category policy_a policy_b".split())

Record = dict


@dataclass(frozen=True)
class Options:
    """How a call asks: arguments of `Judge.grade` and `Judge.compare`."""

    mode: str = "feedback"
    orders: str = "both"
    samples: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    batch_size: int | str = "auto"
    max_new_tokens: int | None = None
    unread: str | None = None
    out: str | Path | None = None
    progress: bool = True

    def ask(self, template: Template, family: Any) -> Ask:
        """What the engine is told; ValueError names every unsound option with its remedy.

        What is None is decided by the judge's family and wording.
        """
        limit = self.max_new_tokens
        if limit is None:
            published = {} if family is None else family.published
            limit = published.get("max_new_tokens", Ask.max_new_tokens)
        unread = self.unread or template.unread
        closing = None
        if unread == "close" and template.closing is not None:
            closing = Closing(template.format, template.closing)
        ask = Ask(
            mode="value" if (template.gives, self.mode) == ("value", "feedback") else self.mode,
            marker=template.marker,
            closing=closing,
            max_new_tokens=limit,
            temperature=self.temperature,
            top_p=self.top_p,
            repetition_penalty=self.repetition_penalty,
            batch_size=self.batch_size,
        )
        faults = ask.check()
        if not is_int_at_least(self.samples, 1):
            faults.append(f"samples={self.samples!r}: use a whole number from 1")
        elif self.samples > 1 and self.temperature == 0:
            faults.append(
                f"samples={self.samples!r} of greedy decoding are all the same: set a temperature"
            )
        if not is_int_at_least(self.seed, 0):
            faults.append(f"seed={self.seed!r}: use a whole number from 0")
        if ask.scores and not template.marker:
            faults.append(
                f'mode="score": answers to template {template.name!r} have no place for a verdict:'
                ' use mode="feedback", or for LLaVA-Critic template="llava-critic-rubric"'
            )
        if self.orders not in ("both", "one", "random"):
            faults.append(f'orders={self.orders!r}: use "both", "one" or "random"')
        if unread != "missing" and closing is None:
            faults.append(
                f'unread={unread!r}: use "missing", or "close" where the wording has a place'
                " for a verdict"
            )
        if faults:
            raise ValueError("; ".join(faults))
        return ask


def options_of(**given: Any) -> Options:
    """Options by name; TypeError says which there are."""
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            raise TypeError(f"there is no option {name!r}; use one of {', '.join(known)}")
    return Options(**given)


@dataclass(frozen=True)
class Question:
    """One prompt of a call, and what its verdict is kept under."""

    row: int  # the position of its row
    id: str
    prompt: Prompt
    sample: int = 0
    order: str = ""  # of a pair "ab" or "ba", of values its side
    scores: tuple = ()  # the scale; (0, 1) for the first and the second of two responses
    rubric: Rubric | None = None

    @property
    def weights(self) -> Mapping:
        """The weight of each named criterion; empty for a rubric of one criterion."""
        return self.rubric.weights if self.rubric else {}

    def seed(self, seed: int) -> int:
        """What decides its draws, whatever else the call asks."""
        return seed_of(seed, self.id, f"{self.order}{self.sample}")


def day_of(out: str | Path | None) -> str:
    """The day that a run's prompts name: today, or that on which the run in `out` was begun."""
    held: Record = {}
    if out is not None and (Path(out).expanduser() / MANIFEST).exists():
        held = Run(out).manifest
    return held.get("day") or date.today().isoformat()


def seed_of(seed: int, id: str, unit: str) -> int:
    """A number for one verdict's draws that no other verdict shares."""
    digest = hashlib.sha256(f"{seed}\0{unit}\0{id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


@dataclass
class Call:
    """What a judge puts to its engine in one call."""

    judge: Any
    template: Template
    options: Options
    ask: Ask
    questions: list
    images: list
    carried: list  # by row: the cells of `CARRIED`
    blind: int  # questions without an image, though the judge sees images or the row has some
    origin: Record  # of the collection


def prepare(judge: Any, items: Any, options: Options, *, pairs: bool = False) -> Call:
    """Turn a collection into questions; ValueError: unsound options, CollectionError: bad rows."""
    # 1) the wording, and how it is asked
    template = judge.template
    if pairs and not judge.gives_values:
        template = judge.wording_of_pairs()
    template = template.dated(day_of(options.out))
    ask = options.ask(template, judge.family)

    # 2) the rows, checked before anything costs time
    rows = data.rows_of(items)
    pictures = Pictures()
    sees = template.sees_images
    data.validate(rows, needs=template.needs, sees_images=sees, pictures=pictures, pairs=pairs)

    # 3) each row once a sample and order
    questions: list = []
    images = []
    carried = []
    blind = 0
    for place, row in enumerate(rows):
        subject: Any = (Pair if pairs else Item).from_row(row)
        own = list(_questions(template, options, place, dict(row), subject))
        questions += own
        images += [[pictures(source) for source in subject.images if sees]] * len(own)
        blind += len(own) * (sees != bool(subject.images))
        criteria = getattr(subject.rubric or subject, "criteria", None)
        cells = dict(row) | {"group": subject.group, "criteria": criteria}
        carried.append({name: cells[name] for name in CARRIED if name in cells})

    # 4) for each question its scale, its seed, and the form of its answer
    score_texts = lru_cache(template.score_texts)
    scales = []
    named = []  # the scale of each criterion
    schemas = []
    for question in questions:
        scales.append(score_texts(() if question.weights else question.scores))
        named.append(dict.fromkeys(question.weights, score_texts(question.scores)))
        if template.is_json and ask.mode == "feedback":
            schemas.append(template.schema(question.rubric))
    if ask.scores and any(named):
        raise ValueError('mode="score" reads one score, and criteria have names: use "feedback"')
    seeds = [question.seed(options.seed) for question in questions]
    ask = replace(ask, scales=scales, criteria=named, seeds=seeds, schemas=schemas)
    return Call(
        judge, template, options, ask, questions, images, carried, blind, data.origin(items)
    )


def _questions(
    template: Template, options: Options, place: int, row: Record, subject: Any
) -> Iterator[Question]:
    """A row's questions; those of one order share a prompt."""
    # 1) what is shown: an item; a pair in each order; of values each response of a pair
    rubric = subject.rubric
    scores = template.scores(rubric)
    shown = {"": subject}
    if template.compares:
        rubric = None
        scores = (0, 1)
        swapped = replace(subject, response_a=subject.response_b, response_b=subject.response_a)
        shown = {"ab": subject, "ba": swapped}
    elif isinstance(subject, Pair):
        shown = {}
        for side in "ab":
            shown[side] = Item.from_row(row | {"response": row[f"response_{side}"], "gold": None})
    forced = template.forced if options.mode == "score" else ""
    prompts = {order: template.render(one).append(forced) for order, one in shown.items()}

    # 2) each as often as it is asked
    for sample in range(options.samples):
        orders = list(prompts)
        if template.compares and options.orders == "one":
            orders = ["ab"]
        elif template.compares and options.orders == "random":
            orders = [ORDERS[seed_of(options.seed, subject.id, f"order {sample}") % 2]]
        for order in orders:
            yield Question(place, subject.id, prompts[order], sample, order, scores, rubric)
