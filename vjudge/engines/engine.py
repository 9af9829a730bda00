"""The interface between a judge and whatever runs its model: Ask, Answer, Engine."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from vjudge.engines.closing import Closing
from vjudge.prompts import Prompt
from vjudge.records import Rubric, Verdict, is_int_at_least

Sources = Sequence[Sequence[Any]]  # of each prompt, as for `vjudge.images.picture`
Wanted = Container[int] | None  # the rows to answer; None for all
Texts = Mapping[int, str]  # score -> the text of it after the marker, such as {1: " 1"}

MODES = ("feedback", "score", "value")

NOISE = {"float32": 1e-6, "float16": 5e-4, "bfloat16": 5e-3}
"""Type of weights -> how far apart two values of one prompt may lie, as a share of the scale.

They differ by rounding, which depends on the prompts that are computed beside it. Measured on the
embedded judge, 60 items alone, in batches of 3 and 16, and all together, on a CPU: expected scores
on a scale from 1 to 5 lay 9e-7, .0016 and .015 apart at most.
"""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the tokens of an answer are drawn.

    Args:
        temperature: the divisor of the logits, above 0; or 0 for greedy decoding.
        top_p: nucleus sampling: tokens are drawn from the smallest set of the most probable ones
            that has at least this probability; in (0, 1].
        repetition_penalty: above 0; 1 for none. The logit of a token that the prompt or the answer
            already holds is divided by it if positive, else multiplied. The `LLaVA` families in
            transformers count the tokens of the answer alone.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    def check(self) -> list[str]:
        """Return a text per invalid option that names its value and what to use instead."""
        faults = []
        if not _is_number(self.temperature):
            faults.append(
                f"temperature={self.temperature!r}: use 0 for greedy, or a number above 0"
            )
        if not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            faults.append(f"top_p={self.top_p!r}: use a number in (0, 1]")
        if not (_is_number(self.repetition_penalty) and self.repetition_penalty > 0):
            faults.append(
                f"repetition_penalty={self.repetition_penalty!r}: use 1 for none, or a number"
                " above 0"
            )
        return faults


@dataclass(frozen=True)
class Ask(Sampling):
    """How a call writes its answers, and where it reads their verdicts.

    The sampling parameters, those of `vjudge.engines.engine.Sampling`, are given by name, too. Each
    row of the sequences below is one prompt.

    Args:
        mode: "feedback" writes an answer; "score" reads the distribution right after prompts that
            end in the marker; "value" reads the number that a value head returns after the prompt.
        marker: the text before every verdict; "" where answers have no single place for one.
        scales: the scale of each row, score -> its text after the marker, such as {1: " 1"}; an
            empty scale asks for no distribution.
        seeds: the seed of each row, at least 0, which alone decides its draws; () takes the row's
            position in the call.
        schemas: the JSON schema that each answer has to follow; () for free text. Only engines
            that can enforce a schema do so; in the others nothing but the prompt asks for it.
        closing: how answers without a verdict are closed; None leaves them without one.
        criteria: for each row, the rubric whose named criteria its answer scores; None for an
            answer with one verdict; () where all rows have one verdict. An answer with named
            criteria has no distribution.
        max_new_tokens: the most tokens of an answer, at least 1; the model's context bounds it too.
        batch_size: prompts computed at once, or "auto" for the engine's own choice.
    """

    mode: str = "feedback"
    marker: str = ""
    scales: Sequence[Texts] = ()
    seeds: Sequence[int] = ()
    schemas: Sequence[Mapping[str, Any]] = ()
    closing: Closing | None = None
    criteria: Sequence[Rubric | None] = ()
    max_new_tokens: int = 1024
    batch_size: int | str = "auto"

    @property
    def is_score_pass(self) -> bool:
        """Whether the call only reads distributions, and writes nothing."""
        return self.mode == "score"

    def scale(self, row: int) -> Texts:
        """Return the scale whose distribution is read for a row; empty for none."""
        return self.scales[row] if self.scales else {}

    def seed(self, row: int) -> int:
        """Return the number that decides the draws of a row."""
        return self.seeds[row] if self.seeds else row

    def schema(self, row: int) -> Mapping[str, Any] | None:
        """Return the JSON schema of a row's answer; None for free text."""
        return self.schemas[row] if self.schemas else None

    def rubric(self, row: int) -> Rubric | None:
        """Return the rubric whose named criteria a row's answer scores; None for one verdict."""
        return self.criteria[row] if self.criteria else None

    def scales_to_close(self, row: int) -> Mapping[str, Texts]:
        """Return the scales on which a row's answer can be closed (see `Closing`).

        Returns:
            criterion -> its scale, each score with its text, such as {1: " 1"}; "" stands for the
            only verdict of a row without named criteria. Empty where the row has no scale, or where
            the call closes no answers.
        """
        if self.closing is None or self.mode != "feedback":
            return {}
        rubric = self.rubric(row)
        if rubric is None:
            return {"": self.scale(row)} if self.scale(row) else {}
        scales = {}
        for name, criterion in rubric.by_name.items():
            scales[name] = {score: f" {score}" for score in criterion.scores}
        return scales

    def has_to_be_closed(self, answer: Answer) -> bool:
        """Tell whether an answer holds no verdict and can be closed; a refusal is not to be closed.

        To find out, the answer is read. Its verdict is stored in `answer.verdict`, so that it need
        not be read a second time.
        """
        row = answer.index
        if self.closing is None or not self.scales_to_close(row):
            return False
        answer.verdict, is_open = self.closing.read(
            answer.text,
            finish=answer.finish,
            scores=tuple(self.scale(row)),
            rubric=self.rubric(row),
        )
        return is_open

    def check(self) -> list[str]:
        """Return a text per invalid option that names its value and what to use instead."""
        faults = super().check()
        if self.mode not in MODES:
            faults.append(f'mode={self.mode!r}: use one of "feedback", "score", "value"')
        if self.batch_size != "auto" and not is_int_at_least(self.batch_size, 1):
            faults.append(f'batch_size={self.batch_size!r}: use "auto" or a whole number from 1')
        if not is_int_at_least(self.max_new_tokens, 1):
            faults.append(f"max_new_tokens={self.max_new_tokens!r}: use a whole number from 1")
        changes_decoding = (self.temperature, self.top_p, self.repetition_penalty) != (0, 1, 1)
        if self.mode != "feedback" and changes_decoding:
            faults.append(
                f'mode="{self.mode}" draws nothing: leave temperature, top_p and'
                " repetition_penalty out"
            )
        return faults


@dataclass
class Answer:
    """What an engine made of one prompt, or why it made nothing of it.

    `score_logprobs` maps each score to the natural logarithm of the probability of its text at the
    place of the verdict (temperature 1, no truncation). It is None where no verdict was written.
    """

    index: int  # the position of the prompt in the call
    text: str = ""  # without the end-of-sequence token; empty in a score pass
    n_prompt_tokens: int = 0  # image tokens included
    n_new_tokens: int = 0  # the end-of-sequence token included
    score_logprobs: dict[int, float] | None = None
    # how it ended: "stop" by itself, "length" by a limit, or a server's own reason; a verdict is
    # read only in the text of an answer that ended by itself
    finish: str = "length"
    seconds: float = 0.0  # its share of the batch's wall time
    failure: str | None = None  # why there is no answer
    transient: bool = False  # whether the same prompt, asked again, may get an answer
    closed: int | None = None  # the score that the answer was closed with
    closed_scores: dict[str, int] | None = None  # the same for each named criterion
    unclosed: str | None = None  # why it could not be closed, where that was asked for
    reasoning: str = ""  # what a server returned as the model's thinking, apart from the text
    served: str | None = None  # the name that the server gives to the model that answered
    remarks: tuple[str, ...] = ()  # fields of a reply that were ignored, pictures that were changed
    value: float | None = None  # the output of a value head
    tokens: Sequence[int] = ()  # the ids of the text and its end, from an engine that shows them
    verdict: Verdict | None = None  # read from the text, where the engine had to read it


Answers = Iterator[list[Answer]]  # a batch at a time, in the order in which batches are finished


@dataclass
class Work:
    """What a call computed on this machine; a run's table keeps it in `attrs["work"]`."""

    prompt_tokens: int = 0  # image tokens included
    computed_tokens: int = 0  # the same, with a token that several prompts share counted once
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
    """Run a model: prompts in; texts, token counts and score probabilities out.

    An engine raises an error before the first answer if it can't do what a call asks; it never
    replaces an option silently. A row that can't be answered is an `Answer` with `failure`.
    """

    name: ClassVar[str]
    noise: float = NOISE["float32"]  # differences below this share of the scale say nothing
    work: Work | None = None  # of the last call; None for an engine that computes elsewhere

    @abstractmethod
    def answer(
        self,
        prompts: Sequence[Prompt],
        images: Sources,
        ask: Ask,
        wanted: Wanted = None,
    ) -> Answers:
        """Answer every prompt, in any order. The caller has checked the options (`Ask.check`).

        Args:
            prompts: one a row; the same one may stand several times (samples). Those of a score
                pass end in the marker.
            images: for each prompt, one image for each of its IMAGE parts.
            wanted: the rows to answer. An engine may compute others beside them, so that a
                continued run computes the same batches as an uninterrupted one.

        Raises:
            ValueError: an option or a scale that this engine can't serve.
        """

    def plan(self, prompts: Sequence[Prompt], images: Sources, ask: Ask) -> list[Quantity]:
        """Estimate what `answer` would take, without running it, from the prompts alone."""
        n_characters = sum(len(prompt.text) for prompt in prompts)
        # the most new tokens per prompt; an engine computes one to read the scale after the prompt
        limit = {"feedback": ask.max_new_tokens, "score": 1, "value": 0}[ask.mode]
        return [
            Quantity("verdicts", len(prompts)),
            # About four characters of English make one token.
            Quantity("prompt tokens", n_characters / 4, "", "estimated; pictures come on top"),
            Quantity("images shown", sum(prompt.n_images for prompt in prompts)),
            Quantity("new tokens", limit * len(prompts), "", f"at most: {limit} each"),
            Quantity("total", math.nan, "seconds", "not measured: time a part of the items"),
        ]

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what decides this engine's answers, as JSON values without secrets.

        A run may be continued by an engine with an equal identity.
        """


def check_images(prompt: Prompt, images: Sequence[Any]) -> None:
    """Raise ValueError unless a prompt has exactly one place for each of its images."""
    if prompt.n_images != len(images):
        raise ValueError(
            f"the prompt has {prompt.n_images} image place(s) and the item {len(images)} image(s)"
        )


def _is_number(value: object) -> bool:
    """Tell whether an option is a finite number, 0 or more; True and False are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < math.inf
