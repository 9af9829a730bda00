"""Rows -> questions: what a call asks, and how its engine is told to answer.

An item is asked once a sample, a pair once a sample and order, "ab" and "ba", since a judge may
prefer whichever response stands first.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vjudge import data
from vjudge.engines.engine import Ask, Closing
from vjudge.images import ImageError, Pictures
from vjudge.prompts import Prompt, Template
from vjudge.records import Item, Pair, Rubric, is_int_at_least

if TYPE_CHECKING:
    from vjudge.prompts.families import Family

ORDERS = ("ab", "ba")
# What a table says of a row beside the verdict, where the row has it.
CARRIED = tuple("gold human_scores preference group criteria category policy_a policy_b".split())
ONE_SIDED = 0.75  # the share of known preferences for one side from which both orders are asked
CHANCE = 0.01  # the p-value below which that share is no accident
GREEDY = {"samples": 1, "temperature": 0.0, "top_p": 1.0, "repetition_penalty": 1.0}

Record = dict[str, Any]


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

    def settled(self, template: Template, family: Family | None) -> Options:
        """With what the judge's family and wording decide in place of None."""
        published = {"max_new_tokens": Ask.max_new_tokens, **GREEDY}
        if family is not None:
            published |= family.published
        if template.compares:
            published["samples"] = 1
        changes: Record = {}
        if self.mode == "score" and all(getattr(self, name) == published[name] for name in GREEDY):
            changes |= GREEDY  # as a whole it means what a score pass does, which draws nothing
        if self.max_new_tokens is None:
            changes["max_new_tokens"] = published["max_new_tokens"]
        if self.unread is None:
            changes["unread"] = template.unread
        return replace(self, **changes)

    def ask(self, template: Template) -> Ask:
        """What the engine is told; ValueError names every unsound option with its remedy."""
        closing = None
        if self.unread == "close" and template.closing is not None:
            closing = Closing(template.format, template.closing)
        ask = Ask(
            mode="value" if template.gives == "value" else self.mode,
            marker=template.marker,
            closing=closing,
            max_new_tokens=self.max_new_tokens,  # type: ignore[arg-type]  # settled
            temperature=self.temperature,
            top_p=self.top_p,
            repetition_penalty=self.repetition_penalty,
            batch_size=self.batch_size,
        )
        faults = ask_faults(ask, samples=self.samples, seed=self.seed)
        if self.mode == "value":
            faults.append('mode="value": use "feedback" or "score"; the wording says what is given')
        elif ask.mode == "value" and (self.mode, self.temperature) != ("feedback", 0):
            faults.append("a value head writes and draws nothing: leave mode and temperature out")
        if ask.scores and not template.marker:
            what = f"answers to template {template.name!r} have no place for a verdict"
            remedy = 'use mode="feedback", or for LLaVA-Critic template="llava-critic-rubric"'
            faults.append(f'mode="score": {what}: {remedy}')
        if self.orders not in ("both", "one", "random"):
            faults.append(f'orders={self.orders!r}: use "both", "one" or "random"')
        if self.unread not in ("missing", "close"):
            faults.append(f'unread={self.unread!r}: use "missing" or "close"')
        elif self.unread == "close" and closing is None:
            faults.append(f'unread="close": template {template.name!r} has no words to close with')
        if faults:
            raise ValueError("; ".join(faults))
        return ask


def ask_faults(ask: Ask, *, samples: int, seed: int) -> list[str]:
    """What is unsound about how an engine is asked, each with its remedy."""
    faults = ask.check()
    if not is_int_at_least(samples, 1):
        faults.append(f"samples={samples!r}: use a whole number from 1")
    elif samples > 1 and ask.temperature == 0:
        faults.append(f"samples={samples!r} of greedy decoding are all the same: set a temperature")
    if not is_int_at_least(seed, 0):
        faults.append(f"seed={seed!r}: use a whole number from 0")
    return faults


@dataclass(frozen=True)
class Question:
    """One prompt of a call, and what its verdict is kept under."""

    row: int  # the position of its row
    id: str
    prompt: Prompt
    sample: int = 0
    order: str = ""  # of a pair "ab" or "ba", of values its side
    scores: tuple[int, ...] = ()  # the scale; (0, 1) for the first and the second of two responses
    rubric: Rubric | None = None

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of each named criterion; empty for a rubric of one criterion."""
        return self.rubric.weights if self.rubric else {}

    @property
    def key(self) -> Record:
        """What tells its verdict from the others of the call."""
        key: Record = {"id": self.id, "sample": self.sample}
        if self.order:
            key["order"] = self.order
        return key

    def seed(self, seed: int) -> int:
        """What decides its draws, whatever else the call asks."""
        unit: int | str = self.sample
        if self.order:
            unit = f"{self.order}{self.sample or ''}"
        return seed_of(seed, self.id, unit)


def seed_of(seed: int, id: str, unit: int | str) -> int:
    """A number for one verdict's draws that no other verdict shares."""
    digest = hashlib.sha256(f"{seed}\0{unit}\0{id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


class Images(Sequence[Sequence[Any]]):
    """The images of each question, read from its row when they are asked for."""

    def __init__(self, rows: Sequence[Any], places: Sequence[int], pictures: Pictures) -> None:
        self.rows = rows
        self.places = places  # a question's row; empty for a judge that sees no images
        self.pictures = pictures
        self._row = lru_cache(maxsize=1)(self._read)  # samples and orders of a row are neighbours

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Any:
        return self._row(self.places[index]) if self.places else []

    def _read(self, place: int) -> list[Any]:
        images = list(self.rows[place].get("images") or ())
        for position, source in enumerate(images):
            with suppress(ImageError):  # the engine says of the row what is wrong with it
                images[position] = self.pictures(source)
        return images


@dataclass
class Call:
    """What a judge puts to its engine in one call."""

    judge: Any
    template: Template
    options: Options
    ask: Ask
    questions: list[Question]
    images: Images
    carried: list[Record]  # by row: the cells of `CARRIED`
    origin: Record  # of the collection
    remarks: list[str]  # what is said of the call beside what its verdicts lack
    without_images: int = 0  # rows


def prepare(judge: Any, items: Any, options: Options, *, pairs: bool = False) -> Call:
    """Turn a collection into questions; ValueError: unsound options, CollectionError: bad rows."""
    # 1) the wording, and how it is asked
    rows = data.rows_of(items)
    remarks = []
    if pairs and options.orders == "one":
        remarks = one_sided(row.get("preference") for row in rows)
    if remarks:
        options = replace(options, orders="both")
    template = judge.template
    if pairs and not judge.gives_values:
        template = judge.wording_of_pairs()
    options = options.settled(template, judge.family)
    ask = options.ask(template)

    # 2) the rows, checked before anything costs time
    pictures = Pictures()
    sees = template.sees_images
    data.validate(rows, needs=template.needs, sees_images=sees, pictures=pictures, pairs=pairs)

    # 3) each row once a sample and order
    questions: list[Question] = []
    carried = []
    without_images = 0
    for place, row in enumerate(rows):
        subject: Any = (Pair if pairs else Item).from_row(row)
        questions += _questions(template, options, place, dict(row), subject)
        criteria = getattr(subject.rubric or subject, "criteria", None)
        cells = dict(row) | {"group": subject.group, "criteria": criteria}
        carried.append({name: cells[name] for name in CARRIED if name in cells})
        without_images += sees and not subject.images

    # 4) for each question its scale, its seed, and the form of its answer
    score_texts = lru_cache(template.score_texts)
    scales = []
    named = []  # the scale of each criterion
    seeds = []
    schemas = []
    for question in questions:
        scales.append(score_texts(() if question.weights else question.scores))
        named.append(dict.fromkeys(question.weights, score_texts(question.scores)))
        if ask.mode == "feedback":
            seeds.append(question.seed(options.seed))
            schemas.append(template.schema(question.rubric))
    if not template.is_json:
        schemas = []
    ask = replace(ask, scales=scales, criteria=named, seeds=seeds, schemas=schemas)
    places = [question.row for question in questions] if sees else []
    images = Images(rows, places, pictures)
    origin = data.origin(items)
    return Call(
        judge, template, options, ask, questions, images, carried, origin, remarks, without_images
    )


def one_sided(preferences: Iterable[Any]) -> list[str]:
    """What is said where one order would not tell a judge that always takes one side."""
    counts = Counter(preferences)
    first = counts["a"]
    decided = first + counts["b"]
    if max(first, decided - first) < ONE_SIDED * decided or 0.5**decided > CHANCE:
        return []
    from scipy.stats import binomtest  # seldom needed

    if binomtest(first, decided).pvalue >= CHANCE:
        return []
    return [
        f"both orders were asked: {first} of {decided} known preferences are for the first"
        " response, and a judge that always takes one side would be right"
    ]


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
            orders = orders[:1]
        elif template.compares and options.orders == "random":
            drawn = seed_of(options.seed, subject.id, f"order {sample}") % 2
            orders = [orders[drawn]]
        for order in orders:
            yield Question(place, subject.id, prompts[order], sample, order, scores, rubric)
