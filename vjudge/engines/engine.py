"""The interface between a judge and whatever runs its model: Ask, Answer, Engine."""

from __future__ import annotations

import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from tqdm.auto import tqdm

from vjudge.prompts import Prompt
from vjudge.records import Rubric, Verdict, is_int_at_least

Sources = Sequence[Sequence[Any]]  # a prompt's images, as `vjudge.images.picture` takes them
Wanted = Container[int] | None  # rows, None for all
Texts = Mapping[int, str]  # score -> what is written after the marker, such as {1: " 1"}

MODES = ("feedback", "score", "value")


UNCOMPARED = (
    "values_compared=False: vLLM's values of prompts with pictures lay up to 10.7 from those of"
    " transformers on small Qwen2-VL and Qwen2.5-VL models, without pictures within 5e-6: use"
    ' engine="hf", or compare some rows with it and give load_judge values_compared=True'
)
"""Why values of pictures are refused where nobody has compared them (vLLM 0.32, CPU, float32)."""


NOISE = {"float32": 1e-6, "float16": 5e-4, "bfloat16": 5e-3}
"""By type of weights, how far apart two values of the same prompt may lie, as a share of the scale.

Measured on the embedded judge, 60 items alone, in batches of 3 and 16, and all together, on a CPU:
expected scores on a scale from 1 to 5 lay 9e-7, .0016 and .015 apart at most.
"""


@dataclass(frozen=True)
class Closing:
    """How an answer that holds no verdict is closed (`unread="close"`).

    The answer stays as it is, `marker` is put behind it, and the distribution over the row's scale
    is read at that place. The most probable score is the verdict. Of several criteria each is read
    so behind the answer, by itself.
    """

    read: Callable[..., tuple[Verdict, bool]]  # a text -> its verdict, and whether it has none
    marker: str = "\n[RESULT]"
    criterion: str = ""  # the marker of a named criterion, with {name} for its name in JSON

    def before(self, name: str) -> str:
        """What is put behind an answer to read a named criterion, or by "" its one verdict."""
        if not name:
            return self.marker
        return self.criterion.format(name=json.dumps(name, ensure_ascii=False))


@dataclass(frozen=True)
class Ask:
    """How a call decodes, and where its verdicts are read.

    Args:
        mode: "feedback" writes an answer; "score" reads the distribution right after prompts that
            end in the marker; "value" takes the number that a value head gives after the prompt.
        marker: the text before every verdict; "" where answers have no single place for one.
        scales: one a prompt, score -> what is written after the marker, such as {1: " 1"}; empty
            for no distribution.
        seeds: one a prompt, at least 0, which alone decides its draws; () uses its position.
        schemas: one a prompt, the JSON schema that its answer has to follow; () for free text.
            Engines that can enforce a schema do; for the others the wording has to suffice.
        closing: how answers without a verdict are closed; None leaves them as they are.
        criteria: one a prompt, the rubric whose named criteria its answer scores; None for an
            answer with one verdict. An answer with criteria has no distribution.
        max_new_tokens: the most tokens of an answer, at least 1; the context bounds it too.
        temperature: 0 for greedy, otherwise the divisor of the logits, above 0.
        top_p: the smallest set of tokens with at least this probability is drawn from; in (0, 1].
        repetition_penalty: above 0; a logit of a token that the prompt or the answer already holds
            is divided by it where positive, else multiplied; 1 for none. LLaVA's families, run
            here, count the answer's tokens alone.
        batch_size: prompts at once, or "auto" for the engine's own choice.
    """

    mode: str = "feedback"
    marker: str = ""
    scales: Sequence[Texts] = ()
    seeds: Sequence[int] = ()
    schemas: Sequence[Mapping[str, Any]] = ()
    closing: Closing | None = None
    criteria: Sequence[Rubric | None] = ()
    max_new_tokens: int = 1024
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    batch_size: int | str = "auto"

    @property
    def scores(self) -> bool:
        """Whether it is a score pass, which writes nothing."""
        return self.mode == "score"

    def scale(self, row: int) -> Texts:
        """The scale of which a distribution is read; empty for none."""
        return self.scales[row] if self.scales else {}

    def seed(self, row: int) -> int:
        return self.seeds[row] if self.seeds else row

    def schema(self, row: int) -> Mapping[str, Any] | None:
        return self.schemas[row] if self.schemas else None

    def closings(self, row: int) -> Mapping[str, Texts]:
        """The verdicts that close an answer: criterion, or "" for one verdict -> its scale."""
        if self.closing is None or self.mode != "feedback":
            return {}
        rubric = self.criteria[row] if self.criteria else None
        if rubric is None:
            return {"": self.scale(row)} if self.scale(row) else {}
        scales = {name: each.scores for name, each in rubric.by_name.items()}
        return {name: {score: f" {score}" for score in scale} for name, scale in scales.items()}

    def closes(self, row: int, answer: Answer) -> bool:
        """Whether an answer holds no verdict and is to be closed; a refusal never is.

        It is read for that, and keeps its verdict.
        """
        if self.closing is None or not self.closings(row):
            return False
        answer.verdict, unread = self.closing.read(
            answer.text,
            finish=answer.finish,
            scores=tuple(self.scale(row)),
            rubric=self.criteria[row] if self.criteria else None,
        )
        return unread

    def check(self) -> list[str]:
        """What is unsound about these options, each with its remedy; empty for sound ones."""
        rules = {
            "mode": (self.mode in MODES, 'one of "feedback", "score", "value"'),
            "temperature": (is_number(self.temperature), "0 for greedy, or a number above 0"),
            "top_p": (is_number(self.top_p) and 0 < self.top_p <= 1, "a number in (0, 1]"),
            "repetition_penalty": (
                is_number(self.repetition_penalty) and self.repetition_penalty > 0,
                "1 for none, or a number above 0",
            ),
            "batch_size": (
                self.batch_size == "auto" or is_int_at_least(self.batch_size, 1),
                '"auto" or a whole number from 1',
            ),
            "max_new_tokens": (is_int_at_least(self.max_new_tokens, 1), "a whole number from 1"),
        }
        faults = []
        for name, (sound, remedy) in rules.items():
            if not sound:
                faults.append(f"{name}={getattr(self, name)!r}: use {remedy}")
        draws = (self.temperature, self.top_p, self.repetition_penalty) != (0, 1, 1)
        if draws and self.mode != "feedback":
            faults.append(
                f'mode="{self.mode}" draws nothing: leave temperature, top_p and'
                " repetition_penalty out"
            )
        return faults


@dataclass
class Answer:
    """What the engine made of the prompt at `index` of the call.

    `score_logprobs` maps each score to the natural log of its text's probability at the verdict's
    place (temperature 1, no truncation). It is None where no verdict was written.
    """

    index: int
    text: str = ""  # without the end-of-sequence token; empty in a score pass
    n_prompt_tokens: int = 0  # image tokens included
    n_new_tokens: int = 0  # the end-of-sequence token included
    score_logprobs: dict[int, float] | None = None
    finish: str = "length"  # "stop" where it ended by itself; after no other can it hold a verdict
    seconds: float = 0.0  # its share of the batch's wall time
    failure: str | None = None  # why there is no answer
    transient: bool = False  # whether asking again may bring one
    closed: int | None = None  # the score of the row's scale that it was closed with
    closed_scores: dict[str, int] | None = None  # the same of each named criterion
    unclosed: str | None = None  # why it could not be closed, where that was wanted
    reasoning: str = ""  # what a server gave as the model's thinking, apart from the text
    served: str | None = None  # the model that answered, by its server's own name
    remarks: tuple[str, ...] = ()  # what of a reply was unsound, or of its pictures was changed
    value: float | None = None  # what a value head gave
    tokens: Sequence[int] = ()  # of the text and what ended it, from an engine that shows them
    verdict: Verdict | None = None  # of the text, where the engine had to read it


Answers = Iterator[list[Answer]]  # batches as they are finished


@dataclass
class Work:
    """What a call computed on this machine; a run's table keeps it in `attrs["work"]`."""

    prompt_tokens: int = 0  # image tokens among them
    computed_tokens: int = 0  # of these, each shared one once
    new_tokens: int = 0
    images: int = 0
    seconds: float = 0.0  # wall time


class Quantity(NamedTuple):
    """One line of a plan: `planned` is a number, or NaN where it is not known; `note` says why."""

    quantity: str
    planned: float
    unit: str = ""
    note: str = ""


class Engine(ABC):
    """Prompts in; texts, token counts and score probabilities out.

    What an engine can't give is an error before the first answer, never a silent substitute; a row
    that can't be answered is an `Answer` with `failure`.
    """

    name: ClassVar[str]
    noise: float = NOISE["float32"]  # differences below this share of the scale say nothing
    work: Work | None = None  # of the last call; None where it computes elsewhere

    @abstractmethod
    def answer(
        self,
        prompts: Sequence[Prompt],
        images: Sources,
        ask: Ask,
        wanted: Wanted = None,
    ) -> Answers:
        """Answer every prompt, in any order; options are checked (`Ask.check`) by the caller.

        Args:
            prompts: one a row; the same one may stand several times (samples). Those of a score
                pass end in the marker.
            images: one for each prompt's IMAGE parts.
            wanted: rows to answer; others are at most computed beside them, as in an unbroken run.

        ValueError: options or a scale that this engine can't serve.
        """

    def plan(self, prompts: Sequence[Prompt], images: Sources, ask: Ask) -> list[Quantity]:
        """What `answer` would take, without running it; here only what the prompts show."""
        n_characters = sum(len(prompt.text) for prompt in prompts)
        limit = {"feedback": ask.max_new_tokens, "score": 1, "value": 0}[ask.mode]
        return [
            Quantity("verdicts", len(prompts)),
            Quantity("prompt tokens", n_characters / 4, "", "estimated; pictures come on top"),
            Quantity("images shown", sum(prompt.n_images for prompt in prompts)),
            Quantity("new tokens", limit * len(prompts), "", f"at most: {limit} each"),
            Quantity("total", math.nan, "seconds", "not measured: time a part of the items"),
        ]

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What decides this engine's answers, as JSON values without secrets: equal ones may
        continue one run."""


def check_images(prompt: Prompt, images: Sequence[Any]) -> None:
    """Refuse a prompt with more or fewer places than images."""
    if prompt.n_images != len(images):
        raise ValueError(
            f"the prompt has {prompt.n_images} image place(s) and the item {len(images)} image(s)"
        )


def say(line: str) -> None:
    """Write a line past a progress bar: on standard error, in a notebook as plain output."""
    in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
    tqdm.write(line, file=sys.stdout if in_notebook else sys.stderr)


@contextmanager
def progress_bar(total: int, done: int, *, show: bool) -> Iterator[tqdm]:
    """A progress bar; one that an interruption left half made is forgotten, as `tqdm` does not."""
    before = set(tqdm._instances)
    try:
        bar = tqdm(total=total, initial=done, disable=not show)
    except BaseException:
        for half_made in set(tqdm._instances) - before:
            tqdm._instances.discard(half_made)
        raise
    with bar:
        yield bar


def is_number(value: Any) -> bool:
    """Whether an option is a finite number, 0 or more."""
    kind = isinstance(value, int | float) and not isinstance(value, bool)
    return kind and 0 <= value < math.inf
