"""Rows -> questions: what a call asks, and how its engine is told to answer.

An item is asked once a sample, a pair once a sample and order, "ab" and "ba", since a judge may
prefer whichever response stands first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from vjudge import data
from vjudge.data.schema import PICTURE_COLUMNS, CollectionError, problems_of
from vjudge.engines.closing import Closing
from vjudge.engines.engine import Ask
from vjudge.images import Pictures
from vjudge.judging.record import json_value
from vjudge.judging.runs import MANIFEST, Run
from vjudge.prompts import Prompt, Template
from vjudge.prompts.parse import parse_to_close
from vjudge.records import NAN, Item, Pair, Rubric, is_int_at_least

ORDERS = ("ab", "ba")
DECODING = ("max_new_tokens", "temperature", "top_p", "repetition_penalty")
CARRIED = tuple("gold human_scores preference group criteria category policy_a policy_b".split())
"""The canonical columns of a row that stay in its run; so do all that the collection adds."""
NOT_CARRIED = frozenset(
    "id instruction response response_a response_b responses ranks reference_answer"
    " descriptions anchors named_criteria lowest feedback context fault".split()
).union(PICTURE_COLUMNS)
VERDICT_COLUMNS = frozenset(
    "judge sample score raw failure expected_score probabilities probability_mass closed choice"
    " scores reasoning served_model remarks unclosed asked order n_prompt_tokens n_new_tokens"
    " seconds verdict consistent probability_a verdict_ab verdict_ba scores_ab scores_ba"
    " feedback_ab feedback_ba raw_ab raw_ba votes_a votes_b votes_tie votes_missing"
    " draws score_a score_b n missing highest sees_image"
    " candidate value rank best true_rank".split()
)
"""What a run says of a verdict; a column that the collection adds under such a name is renamed."""

Record = dict


class PairsNotSupportedError(ValueError):
    """A judge has no wording for two responses."""


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
    criteria: str = "together"
    out: str | Path | None = None
    progress: bool = True

    def ask(self, template: Template, family: Any) -> Ask:
        """What the engine is told; ValueError names every unsound option with its remedy.

        What is None is decided by the judge's family and wording.
        """
        decoding = {name: getattr(self, name) for name in DECODING}
        if self.max_new_tokens is None:
            published = {} if family is None else family.published
            decoding["max_new_tokens"] = published.get("max_new_tokens", Ask.max_new_tokens)
        unread = self.unread or template.unread
        closing = None
        if unread == "close" and template.closing is not None:
            read = partial(parse_to_close, format=template.format)
            closing = Closing(read, template.closing, template.closing_criterion)
        ask = Ask(
            mode="value" if (template.gives, self.mode) == ("value", "feedback") else self.mode,
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
        """What is unsound about the options that the engine has not, each with its remedy."""
        if not is_int_at_least(self.samples, 1):
            yield f"samples={self.samples!r}: use a whole number from 1"
        elif self.samples > 1 and self.temperature == 0:
            yield f"samples={self.samples!r} of greedy decoding are all the same: set a temperature"
        if not is_int_at_least(self.seed, 0):
            yield f"seed={self.seed!r}: use a whole number from 0"
        if ask.scores and not template.marker:
            yield (
                f'mode="score": answers to template {template.name!r} have no place for a verdict:'
                ' use mode="feedback", or for LLaVA-Critic template="llava-critic-rubric"'
            )
        values = {"orders": ("both", "one", "random"), "criteria": ("together", "apart")}
        for name, allowed in values.items():
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


def options_of(options: Mapping, *unused: str) -> Options:
    """Options by name; TypeError says which a call has, all but those that it has no use for."""
    names = [each.name for each in fields(Options) if each.name not in unused]
    for name in options:
        if name not in names:
            raise TypeError(f"there is no option {name!r}; use one of {', '.join(names)}")
    return Options(**options)


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
    criterion: Record | None = field(default=None, repr=False)  # asked apart: see `_rubrics`

    @property
    def criteria(self) -> Rubric | None:
        """Its rubric, where that has several criteria."""
        return self.rubric if self.rubric and self.rubric.named else None

    def seed(self, seed: int) -> int:
        """What decides its draws, whatever else the call asks."""
        name = f" {self.criterion['name']}" if self.criterion else ""
        return seed_of(seed, self.id, f"{self.order}{self.sample}{name}")


def day_of(out: str | Path | None) -> str:
    """The day that a run's prompts name: today, or that on which the run in `out` was begun."""
    day = None
    if out is not None and (Path(out).expanduser() / MANIFEST).exists():
        day = Run(out).manifest.get("day")
    return day or date.today().isoformat()


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
    images: list  # of each question
    facts: list  # of each row: `lowest`, `highest`, `sees_image`, and the collection's columns
    blind: int  # questions without an image, though the judge sees images or the row has some
    origin: Record  # of the collection
    remarks: list  # on columns of the collection that the run renames or leaves out


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
    subjects: list = list(map((Pair if pairs else Item).from_row, rows))
    forms = _checked_forms(template, rows, subjects)
    examples = _examples(judge, template, subjects, pictures)

    # 3) the prompts of each row, each as often as it is asked
    questions: list = []
    images = []
    facts = []
    blind = 0
    origin = data.origin(items)
    added = AddedColumns()
    forced = template.forced if options.mode == "score" else ""
    for index, (row, subject) in enumerate(zip(rows, subjects, strict=True)):
        for criterion, rubric in _rubrics(options, subject.rubric):
            prompts = {}
            shown = {}
            for order, form in forms[index].items():
                prompt = template.render(replace(form, rubric=rubric), examples)
                prompts[order] = prompt.append(forced)
                shown[order] = list(map(pictures, template.pictures(form, examples)))
            scale = (template.scores(rubric), rubric)
            if template.compares:
                scale = ((0, 1), None)  # the first and the second response
            for sample in range(options.samples):
                for order in _orders(template, options, subject.id, sample, list(prompts)):
                    key = (index, subject.id, prompts[order], sample, order)
                    questions.append(Question(*key, *scale, criterion))
                    images.append(shown[order])
                    blind += sees != has_pictures(subject)
        facts.append(json_value(_facts(template, row, subject, origin)) | added.of(row))

    # 4) for each question its scale, its seed, and the form of its answer
    score_texts = lru_cache(template.score_texts)
    scales = [score_texts(question.scores) for question in questions]
    criteria = [question.criteria for question in questions]
    schemas = []
    if template.is_json and ask.mode == "feedback":
        schemas = [template.schema(question.rubric) for question in questions]
    if ask.scores and any(criteria):
        raise ValueError(
            'mode="score" reads one score, and criteria have names: use "feedback", or'
            ' criteria="apart"'
        )
    seeds = [question.seed(options.seed) for question in questions]
    ask = replace(ask, scales=scales, criteria=criteria, seeds=seeds, schemas=schemas)
    added.settle(facts)
    return Call(
        judge, template, options, ask, questions, images, facts, blind, origin, added.remarks()
    )


def _rubrics(
    options: Options, rubric: Rubric | None
) -> Iterator[tuple[Record | None, Rubric | None]]:
    """A row's rubric, or apart that of each named criterion with the cells that join its score."""
    if options.criteria == "together" or rubric is None or not rubric.named:
        yield None, rubric
        return
    for criterion in rubric.named:
        alone = rubric.by_name[criterion.name]
        cells = {"name": criterion.name, "weight": criterion.weight, "bounds": alone.bounds}
        yield json_value(cells), alone


def _examples(
    judge: Any, template: Template, subjects: Sequence, pictures: Callable
) -> Sequence[Item]:
    """The examples of a judge's prompts; CollectionError names rows that are among them."""
    if not judge.examples:
        return ()
    if template.gives != "score":
        raise ValueError(
            "examples show scores, and a comparison asks for a choice: compare by the judge that"
            " with_examples was called of"
        )

    def content(item: Item) -> tuple:
        shown = [pictures(source).key for source in (*item.images, *item.response_images)]
        return item.instruction, item.response, *shown

    ids = {example.id for example in judge.examples} - {""}
    contents = set(map(content, judge.examples))
    problems = []
    for index, item in enumerate(subjects):
        if item.id in ids or content(item) in contents:
            fault = ("id", "is an example in the judge's prompts", "leave it out here or there")
            problems += problems_of(index, item.id, [fault])
    if problems:
        raise CollectionError.of_rows(problems, len(subjects))
    return judge.examples


def _checked_forms(template: Template, rows: Sequence, subjects: Sequence) -> list[dict]:
    """The forms of each row; CollectionError names responses that the wording can't show."""
    forms_of_rows = []
    problems: list = []
    for index, (row, subject) in enumerate(zip(rows, subjects, strict=True)):
        forms = _forms(template, row, subject)
        forms_of_rows.append(forms)
        for order, form in forms.items():
            if order != "ba":  # which has the faults of "ab"
                problems += problems_of(index, form.id, template.faults(form))
    if problems:
        raise CollectionError.of_rows(problems, len(rows))
    return forms_of_rows


def _forms(template: Template, row: Record, subject: Item | Pair) -> dict[str, Any]:
    """What is shown of a row, by order: an item; a pair in both; of values either response."""
    if not isinstance(subject, Pair):
        return {"": subject}
    if template.compares:
        swapped = replace(
            subject,
            response_a=subject.response_b,
            response_b=subject.response_a,
            response_a_images=subject.response_b_images,
            response_b_images=subject.response_a_images,
        )
        return {"ab": subject, "ba": swapped}
    forms = {}
    for side in "ab":
        alone = dict(row) | {"response": row[f"response_{side}"], "gold": None}
        alone["response_images"] = row.get(f"response_{side}_images")
        forms[side] = Item.from_row(alone)
    return forms


def has_pictures(subject: Item | Pair) -> bool:
    """Whether a judge can be shown a picture of a row: the question's, or a response's."""
    return any(getattr(subject, name, ()) for name in PICTURE_COLUMNS)


def _orders(
    template: Template, options: Options, id: str, sample: int, orders: list[str]
) -> list[str]:
    """The orders that are asked for as one sample."""
    if template.compares and options.orders == "one":
        return ["ab"]
    if template.compares and options.orders == "random":
        return [ORDERS[seed_of(options.seed, id, f"order {sample}") % 2]]
    return orders


def _facts(template: Template, row: Record, subject: Any, origin: Record) -> Record:
    """The cells of a run that follow from its row alone."""
    # 1) the ends of the scale: of several criteria those of their weighted mean
    bounds = template.scale or (NAN, NAN)
    scores = template.scores(subject.rubric)
    if subject.rubric and subject.rubric.named:
        bounds = subject.rubric.bounds
    elif scores:
        bounds = (scores[0], scores[-1])
    lowest, highest = map(float, bounds)
    sees = template.sees_images and has_pictures(subject)
    facts = {"lowest": lowest, "highest": highest, "sees_image": sees}

    # 2) the canonical columns that a table repeats
    criteria = getattr(subject.rubric or subject, "criteria", None)
    cells = dict(row) | {"group": subject.group, "criteria": criteria}
    if origin.get("benchmark"):
        facts["benchmark"] = origin["benchmark"]
    return facts | {name: cells[name] for name in CARRIED if name in cells}


class AddedColumns:
    """The columns that a collection adds to the canonical ones, as a run holds them: JSON values.

    One with the name of a verdict's column gets "item_" before it; one with a cell that JSON can't
    hold, such as bytes, is left out. `remarks` says both.
    """

    def __init__(self) -> None:
        self.renamed: dict[str, str] = {}
        self.left_out: dict[str, None] = {}

    def of(self, row: Record) -> Record:
        """The cells of one row."""
        cells = {}
        for name, cell in row.items():
            if name in CARRIED or name in NOT_CARRIED or name in self.left_out:
                continue
            try:
                text = json.dumps(json_value(cell), allow_nan=False, default=_as_text)
            except (TypeError, ValueError, RecursionError):
                self.left_out[name] = None
                continue
            if name in VERDICT_COLUMNS:
                self.renamed[name] = name = f"item_{name}"
            cells[str(name)] = json.loads(text)
        return cells

    def settle(self, rows: Sequence[Record]) -> None:
        """Take what is left out from the rows that were read before."""
        for name in self.left_out:
            for cells in rows:
                cells.pop(self.renamed.get(name, str(name)), None)

    def remarks(self) -> list[str]:
        remarks = []
        if self.renamed:
            names = ", ".join(f"{old} as {new}" for old, new in self.renamed.items())
            remarks.append(f"the collection's columns of a verdict's name are kept: {names}")
        if self.left_out:
            names = ", ".join(map(str, self.left_out))
            remarks.append(f"the collection's {names} can't be written as JSON and are left out")
        return remarks


def _as_text(value: Any) -> str | None:
    """A day or a time as text, None where it is missing; TypeError for anything else."""
    if not isinstance(value, date | time):
        raise TypeError
    return value.isoformat() if value == value else None
