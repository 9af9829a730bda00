"""Rows -> questions: what a call asks, and how its engine is told to answer.

An item is asked once per sample, a pair once per sample and order, since a judge may prefer the
response that stands first. Criteria that are asked apart (criteria.py) and graded examples in the
prompts (examples.py) are called from here.
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
from vjudge.judging.record import Record
from vjudge.judging.runs import MANIFEST, Run
from vjudge.prompts import Prompt, Template
from vjudge.prompts.families import Family
from vjudge.prompts.parse import parse_to_close
from vjudge.records import Item, Pair, Rubric, Subject, is_int_at_least

if TYPE_CHECKING:
    from vjudge.judging.judge import Judge

ORDERS = ("ab", "ba")  # of a pair: the first letter is the response that is shown first
DECODING = ("max_new_tokens", *(option.name for option in fields(Sampling)))
"""The options that shape an answer's text: passed to the engine and recorded in the manifest."""


class PairsNotSupportedError(ValueError):
    """A judge has no prompt template for two responses."""


# -- how a call asks


@dataclass(frozen=True)
class Options(Sampling):
    """How a call asks: the keyword arguments that `Judge.grade` and `Judge.compare` describe."""

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
        """Translate these options into sampling parameters for the engine.

        Where they are None, `max_new_tokens` is what the judge's family published, and `unread` is
        what the template says.

        Args:
            template: the prompt template of the call.
            family: the judge's, None where it is unknown.

        Raises:
            ValueError: invalid options, all named, each with its remedy.
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
        """Describe each invalid option that `Ask.check` does not check, with its remedy.

        Args:
            template: the prompt template of the call.
            ask: these options, translated for the engine.
            unread: the option, or what the template says where it is None.
        """
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
        allowed_values = {"orders": ("both", "one", "random"), "criteria": ("together", "apart")}
        for name, allowed in allowed_values.items():
            value = getattr(self, name)
            if value not in allowed:
                yield f"{name}={value!r}: use one of {', '.join(allowed)}"
        if self.criteria == "apart" and not template.takes_criterion:
            yield (
                f'criteria="apart": template {template.name!r} asks for no score of a criterion on'
                ' its scale: use template="chat" or "chat-json"'
            )
        # an unknown value, or "close" with a template that has no marker to close an answer with
        if unread != "missing" and ask.closing is None:
            yield (
                f'unread={unread!r}: use "missing", or "close" where the wording has a place'
                " for a verdict"
            )


def options_of(options: Mapping[str, Any], *unused: str) -> Options:
    """Make `Options` of a call's keyword arguments.

    Args:
        options: the arguments by name.
        unused: the names of options that this call does not take.

    Raises:
        TypeError: an option that does not exist, or that this call does not take.
    """
    names = [each.name for each in fields(Options) if each.name not in unused]
    for name in options:
        if name not in names:
            raise TypeError(f"there is no option {name!r}; use one of {', '.join(names)}")
    return Options(**options)


# -- what a call asks


@dataclass(frozen=True)
class Question:
    """One prompt of a call.

    The run's record finds the verdict again by all of these fields but `row`.
    """

    row: int  # the position of its row in the collection
    id: str
    prompt: Prompt
    sample: int = 0
    order: str = ""  # "ab" or "ba" for a pair, "a" or "b" for a response's value, "" for an item
    scores: tuple[int, ...] = ()  # the scale; (0, 1) for the first and the second of two responses
    rubric: Rubric | None = None
    criterion: Record | None = field(default=None, repr=False)  # asked apart: see `rubrics_of`
    images: Sequence[Picture] = field(default=(), repr=False)  # one per placeholder of the prompt

    def seed(self, seed: int) -> int:
        """Derive the seed of this question's answer from the call's, whatever else is asked."""
        name = f" {self.criterion['name']}" if self.criterion else ""
        return seed_of(seed, self.id, f"{self.order}{self.sample}{name}")


@dataclass
class Call:
    """All that a judge asks of its engine in one call, before anything is answered."""

    judge: Judge
    template: Template
    options: Options
    ask: Ask  # the sampling parameters, and the scale and the seed of each question
    questions: list[Question]
    cells: list[Record]  # the cells of each row that the run repeats
    remarks: list[str]  # on columns of the collection that the run renames or leaves out
    n_blind: int  # questions without an image, though the judge sees images or the row has some
    origin: Record  # where the collection comes from: see `vjudge.data.origin`


def prepare(judge: Judge, items: Items, options: Options, *, pairs: bool = False) -> Call:
    """Turn a collection into the questions of a call.

    Args:
        judge: who is asked.
        items: a collection, of pairs where `pairs` is true.
        options: how it is asked.
        pairs: whether to compare two responses per row.

    Raises:
        PairsNotSupportedError: the judge has no template for pairs. ValueError: invalid options.
            CollectionError: bad rows, all named.
    """
    # 1) the prompt template, and how the engine is to answer
    template = judge.template
    if pairs and not judge.gives_values:  # a value head grades each response of a pair alone
        template = judge.wording_of_pairs()
    template = template.dated(day_of(options.out))  # some chat templates write the date
    ask = options.ask(template, judge.family)

    # 2) the rows, checked before anything costs time
    rows = data.rows_of(items)
    pictures = Pictures()
    sees = template.sees_images
    data.validate(rows, needs=template.needs, sees_images=sees, pictures=pictures, pairs=pairs)
    kind = Pair if pairs else Item
    subjects: list[Subject] = [kind.from_row(row) for row in rows]
    views = _checked_views(template, rows, subjects)
    check_examples(judge.examples, template, rows, subjects, pictures)

    # 3) the questions of each row: the prompt of each order, and then its repeats
    questions: list[Question] = []
    for index, subject in enumerate(subjects):
        for by_order in _questions_by_order(
            subject, views[index], template, options, judge.examples, pictures
        ):
            questions += _repeated(by_order, index, options)
    ask = _with_questions(ask, template, questions, options.seed)
    # the judge sees images and the row has none, or the other way round
    n_blind = sum(sees != has_pictures(subjects[question.row]) for question in questions)

    # 4) the cells of each row that the run repeats, so that its table needs no collection
    origin = data.origin(items)
    cells, remarks = carried_cells(template, rows, subjects, origin)
    return Call(judge, template, options, ask, questions, cells, remarks, n_blind, origin)


def _checked_views(
    template: Template, rows: Sequence[Row], subjects: Sequence[Subject]
) -> list[dict[str, Subject]]:
    """Apply `views_of` to each row, and check that the template can show each view.

    Raises:
        CollectionError: responses that the template has no placeholder for, all named.
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


def views_of(template: Template, row: Row, subject: Subject) -> dict[str, Subject]:
    """Prepare what the judge is shown of a row, in each order.

    Args:
        template: of the call. One that compares two responses shows a pair; one that does not is
            a value head's, and shows each response of a pair alone.
        row, subject: the same row, as a canonical row and as an item or a pair.

    Returns:
        Order -> what is shown: the item under ""; or the pair under "ab", and under "ba" with its
        responses swapped; or, for a value head, the item of each response, under "a" and "b".
    """
    if isinstance(subject, Item):
        return {"": subject}
    if template.compares:
        # the responses change places, and their images with them
        swapped = replace(
            subject,
            response_a=subject.response_b,
            response_b=subject.response_a,
            response_a_images=subject.response_b_images,
            response_b_images=subject.response_a_images,
        )
        return {"ab": subject, "ba": swapped}
    # a value head reads one response at a time
    views: dict[str, Subject] = {}
    for side in "ab":
        response = row[f"response_{side}"]
        pictures = row.get(f"response_{side}_images")
        # the gold choice of a pair is no gold score of one response
        alone = {**row, "response": response, "response_images": pictures, "gold": None}
        views[side] = Item.from_row(alone)
    return views


def _questions_by_order(
    subject: Subject,
    views: Mapping[str, Subject],
    template: Template,
    options: Options,
    examples: Sequence[Item],
    pictures: Pictures,
) -> Iterator[dict[str, Question]]:
    """Write the prompts of one row: order -> question, without the row's position and the sample.

    Args:
        subject: the row, as an item or a pair.
        views: of the row, see `views_of`.
        template, options, examples: of the call.
        pictures: opens the images of the call, each file once.

    Yields:
        The questions by order: once, or once per criterion where criteria are asked apart.
    """
    images = {}  # order -> the images of its prompt
    for order, view in views.items():
        images[order] = list(map(pictures, template.pictures(view, examples)))
    # a score pass forces the marker: the prompt ends where the verdict comes next
    forced = template.forced if options.mode == "score" else ""
    for criterion, rubric in rubrics_of(subject.rubric, options.criteria):
        reading: Record = {"scores": template.scores(rubric), "rubric": rubric}
        if template.compares:
            # the first and the second response, between which no rubric's levels choose
            reading = {"scores": (0, 1)}
        by_order = {}
        for order, view in views.items():
            prompt = template.render(replace(view, rubric=rubric), examples).append(forced)
            reading |= {"criterion": criterion, "images": images[order]}
            by_order[order] = Question(0, subject.id, prompt, order=order, **reading)
        yield by_order


def _repeated(by_order: Mapping[str, Question], row: int, options: Options) -> Iterator[Question]:
    """Repeat the questions of a row for each sample, with the row's position and the sample in it.

    A sample asks a pair in both orders, in the first one, or in one that is drawn: see the option
    `orders`.

    Args:
        by_order: the row's questions by order, from `_questions_by_order`.
        row: the position of the row.
        options: of the call.
    """
    for sample in range(options.samples):
        orders = list(by_order)
        if "ab" in by_order and options.orders == "one":
            orders = ["ab"]
        elif "ab" in by_order and options.orders == "random":
            # the pair's id and the sample decide, so that other rows change no order
            draw = seed_of(options.seed, by_order["ab"].id, f"order {sample}")
            orders = [ORDERS[draw % 2]]
        for order in orders:
            yield replace(by_order[order], row=row, sample=sample)


def _with_questions(ask: Ask, template: Template, questions: Sequence[Question], seed: int) -> Ask:
    """Add to `ask` each question's scale, named criteria, seed, and the JSON schema of its answer.

    Raises:
        ValueError: a score pass, which reads one score, is asked for several named criteria.
    """
    score_texts = lru_cache(template.score_texts)  # most questions share a scale
    criteria = []  # of each question: the rubric, or None where it asks for one score
    for question in questions:
        rubric = question.rubric
        criteria.append(rubric if rubric and rubric.named else None)
    if ask.is_score_pass and any(criteria):
        raise ValueError(
            'mode="score" reads one score, and criteria have names: use "feedback", or'
            ' criteria="apart"'
        )
    schemas: list[Any] = []  # empty where answers are no JSON
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
    """Hash a call's seed, a row's id and the name of what is drawn into a number below 2 ** 64."""
    # 8 bytes of SHA-256: equal on every machine, as hash() is not
    digest = hashlib.sha256(f"{seed}\0{unit}\0{id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")
