"""Rows -> questions: what a call asks, and how its engine is told to answer.

An item is asked once a sample, a pair once a sample and order (orders.py). Criteria that are asked
apart (criteria.py) and graded examples in the prompts (examples.py) are called from here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vjudge import data
from vjudge.data.schema import CollectionError, Items, Row, problems_of
from vjudge.engines.closing import Closing
from vjudge.engines.engine import Ask, Sampling
from vjudge.images import Picture, Pictures
from vjudge.judging.carried import carried_cells, has_pictures
from vjudge.judging.criteria import rubrics_of
from vjudge.judging.examples import check_examples
from vjudge.judging.orders import ORDERS, View, views_of
from vjudge.judging.record import Record
from vjudge.judging.runs import MANIFEST, Run
from vjudge.prompts import Prompt, Template
from vjudge.prompts.families import Family
from vjudge.prompts.parse import parse_to_close
from vjudge.records import Item, Pair, Rubric, is_int_at_least

if TYPE_CHECKING:
    from vjudge.judging.judge import Judge

DECODING = ("max_new_tokens", *(option.name for option in fields(Sampling)))


class PairsNotSupportedError(ValueError):
    """A judge has no wording for two responses."""


# -- how a call asks


@dataclass(frozen=True)
class Options(Sampling):
    """How a call asks: the keyword arguments of `Judge.grade` and `Judge.compare`."""

    mode: str = "feedback"
    orders: str = "both"
    samples: int = 1
    seed: int = 0
    batch_size: int | str = "auto"
    max_new_tokens: int | None = None
    unread: str | None = None
    criteria: str = "together"
    out: str | Path | None = None
    progress: bool = True

    def ask(self, template: Template, family: Family | None) -> Ask:
        """Translate these options for the engine.

        The judge's family decides `max_new_tokens` where it is None, and the wording `unread`.

        Raises:
            ValueError: unsound options, all named, each with its remedy.
        """
        decoding = {name: getattr(self, name) for name in DECODING}
        if self.max_new_tokens is None:
            published = {} if family is None else family.published
            decoding["max_new_tokens"] = published.get("max_new_tokens", Ask.max_new_tokens)
        # how an answer without a verdict is closed, if it is
        unread = self.unread or template.unread
        closing = None
        if unread == "close" and template.closing is not None:
            read = partial(parse_to_close, format=template.format)
            closing = Closing(read, template.closing, template.closing_criterion)
        # a value head writes no feedback: its one number is read after the prompt
        reads_value = template.gives == "value" and self.mode == "feedback"
        ask = Ask(
            mode="value" if reads_value else self.mode,
            marker=template.marker,
            closing=closing,
            batch_size=self.batch_size,
            **decoding,
        )
        faults = [*ask.check(), *self._faults(template, ask, unread)]
        if faults:
            raise ValueError("; ".join(faults))
        return ask

    def _faults(self, template: Template, ask: Ask, unread: str) -> Iterator[str]:
        """List the unsound options that the engine does not know of, each with its remedy."""
        if not is_int_at_least(self.samples, 1):
            yield f"samples={self.samples!r}: use a whole number from 1"
        elif self.samples > 1 and self.temperature == 0:
            yield f"samples={self.samples!r} of greedy decoding are all the same: set a temperature"
        if not is_int_at_least(self.seed, 0):
            yield f"seed={self.seed!r}: use a whole number from 0"
        if ask.is_score_pass and not template.marker:
            yield (
                f'mode="score": answers to template {template.name!r} have no place for a verdict:'
                ' use mode="feedback", or for LLaVA-Critic template="llava-critic-rubric"'
            )
        words = {"orders": ("both", "one", "random"), "criteria": ("together", "apart")}
        for name, allowed in words.items():
            value = getattr(self, name)
            if value not in allowed:
                yield f"{name}={value!r}: use one of {', '.join(allowed)}"
        if self.criteria == "apart" and not template.takes_criterion:
            yield (
                f'criteria="apart": template {template.name!r} asks for no score of a criterion on'
                ' its scale: use template="chat" or "chat-json"'
            )
        if unread != "missing" and ask.closing is None:
            yield (
                f'unread={unread!r}: use "missing", or "close" where the wording has a place'
                " for a verdict"
            )


def options_of(options: Mapping[str, Any], *unused: str) -> Options:
    """Make `Options` of a call's keyword arguments.

    Args:
        options: the arguments by name.
        unused: options that this call has no use for.

    Raises:
        TypeError: an option that does not exist, or is unused.
    """
    names = [each.name for each in fields(Options) if each.name not in unused]
    for name in options:
        if name not in names:
            raise TypeError(f"there is no option {name!r}; use one of {', '.join(names)}")
    return Options(**options)


# -- what a call asks


@dataclass(frozen=True)
class Question:
    """One prompt of a call; the record finds its verdict again by all of it but `row`."""

    row: int  # the position of its row in the collection
    id: str
    prompt: Prompt
    sample: int = 0
    order: str = ""  # "ab" or "ba" for a pair, "a" or "b" for a response's value, "" for an item
    scores: tuple[int, ...] = ()  # the scale; (0, 1) for the first and the second of two responses
    rubric: Rubric | None = None
    criterion: Record | None = field(default=None, repr=False)  # if apart: see `rubrics_of`
    images: Sequence[Picture] = field(default=(), repr=False)  # of the prompt's places, in order

    def seed(self, seed: int) -> int:
        """Derive the seed of its draws, which no other question of the call changes."""
        name = f" {self.criterion['name']}" if self.criterion else ""
        return seed_of(seed, self.id, f"{self.order}{self.sample}{name}")


@dataclass
class Call:
    """What a judge puts to its engine in one call."""

    judge: Judge
    template: Template
    options: Options
    ask: Ask
    questions: list[Question]
    cells: list[Record]  # what the run repeats of each row
    remarks: list[str]  # on columns of the collection that the run renames or leaves out
    n_blind: int  # questions without an image, though the judge sees images or the row has some
    origin: Record  # of the collection


def prepare(judge: Judge, items: Items, options: Options, *, pairs: bool = False) -> Call:
    """Turn a collection into questions.

    Raises:
        ValueError: unsound options. CollectionError: bad rows, all named.
    """
    # 1) the wording, and how the engine is to answer
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
    kind = Pair if pairs else Item
    subjects: list[Item | Pair] = [kind.from_row(row) for row in rows]
    views = _checked_views(template, rows, subjects)
    check_examples(judge.examples, template, rows, subjects, pictures)

    # 3) the questions of each row: its forms, each as often as it is asked
    questions: list[Question] = []
    for index, subject in enumerate(subjects):
        for forms in _forms(subject, views[index], template, options, judge.examples, pictures):
            questions += _repeated(forms, index, options)
    ask = _with_questions(ask, template, questions, options.seed)
    n_blind = sum(sees != has_pictures(subjects[question.row]) for question in questions)

    # 4) the cells of each row that the run repeats, so that its table needs no collection
    origin = data.origin(items)
    cells, remarks = carried_cells(template, rows, subjects, origin)
    return Call(judge, template, options, ask, questions, cells, remarks, n_blind, origin)


def _checked_views(
    template: Template, rows: Sequence[Row], subjects: Sequence[Item | Pair]
) -> list[dict[str, View]]:
    """Prepare each row as the judge is shown it, by order.

    Raises:
        CollectionError: responses that the wording has no place for, all named.
    """
    views_of_rows = []
    problems = []
    for index, (row, subject) in enumerate(zip(rows, subjects, strict=True)):
        views = views_of(template, row, subject)
        views_of_rows.append(views)
        for order, view in views.items():
            if order != "ba":  # it has the faults of "ab"
                problems += problems_of(index, view.id, template.faults(view))
    if problems:
        raise CollectionError.of_rows(problems, len(rows))
    return views_of_rows


def _forms(
    subject: Item | Pair,
    views: Mapping[str, View],
    template: Template,
    options: Options,
    examples: Sequence[Item],
    pictures: Pictures,
) -> Iterator[dict[str, Question]]:
    """Write the prompts for one row, by order, once for each criterion that is asked apart."""
    images = {}
    for order, view in views.items():
        images[order] = list(map(pictures, template.pictures(view, examples)))
    # a score pass forces the marker: the prompt ends where the verdict comes next
    forced = template.forced if options.mode == "score" else ""
    for criterion, rubric in rubrics_of(subject.rubric, options.criteria):
        reading: Record = {"scores": template.scores(rubric), "rubric": rubric}
        if template.compares:
            reading = {"scores": (0, 1)}  # the first and the second response
        forms = {}
        for order, view in views.items():
            prompt = template.render(replace(view, rubric=rubric), examples).append(forced)
            reading |= {"criterion": criterion, "images": images[order]}
            forms[order] = Question(0, subject.id, prompt, 0, order, **reading)
        yield forms


def _repeated(forms: Mapping[str, Question], row: int, options: Options) -> Iterator[Question]:
    """Ask the forms of a row in each sample: all, or of a pair the one in a fixed or drawn order.

    Args:
        forms: by order.
        row: the position of the row.
    """
    for sample in range(options.samples):
        orders = list(forms)
        if "ab" in forms and options.orders == "one":
            orders = ["ab"]
        elif "ab" in forms and options.orders == "random":
            # the pair's id and the sample decide, so that other rows change no order
            draw = seed_of(options.seed, forms["ab"].id, f"order {sample}")
            orders = [ORDERS[draw % 2]]
        for order in orders:
            yield replace(forms[order], row=row, sample=sample)


def _with_questions(ask: Ask, template: Template, questions: Sequence[Question], seed: int) -> Ask:
    """Tell the engine each question's scale, named criteria, seed, and form of its answer.

    Raises:
        ValueError: a score pass, which reads one score, of several named criteria.
    """
    score_texts = lru_cache(template.score_texts)  # most questions share a scale
    criteria = []
    for question in questions:
        rubric = question.rubric
        criteria.append(rubric if rubric and rubric.named else None)
    if ask.is_score_pass and any(criteria):
        raise ValueError(
            'mode="score" reads one score, and criteria have names: use "feedback", or'
            ' criteria="apart"'
        )
    schemas: list[Any] = []
    if template.is_json and ask.mode == "feedback":
        schemas = [template.schema(question.rubric) for question in questions]
    return replace(
        ask,
        scales=[score_texts(question.scores) for question in questions],
        criteria=criteria,
        seeds=[question.seed(seed) for question in questions],
        schemas=schemas,
    )


def day_of(out: str | Path | None) -> str:
    """Choose the day that a run's prompts name: that of the run in `out`, otherwise today."""
    day = None
    if out is not None and (Path(out).expanduser() / MANIFEST).exists():
        day = Run(out).manifest.get("day")
    return day or date.today().isoformat()


def seed_of(seed: int, id: str, unit: str) -> int:
    """Hash a call's seed, a row's id and what is drawn for it into a number below 2 ** 64."""
    # 8 bytes of SHA-256: equal on every machine, as hash() is not
    digest = hashlib.sha256(f"{seed}\0{unit}\0{id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")
