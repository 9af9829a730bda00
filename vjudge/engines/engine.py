"""Engine: the one interface between a judge and whatever runs its model, and what goes through it."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from tqdm.auto import tqdm

from vjudge.prompts import Prompt

Sources = Sequence[Sequence[Any]]  # the images of each prompt, as `vjudge.images.picture` takes them
Wanted = Container[int] | None  # rows, None for all


@dataclass(frozen=True)
class Ask:
    """How a call decodes, and where its verdicts are read.

    Args:
        mode: "feedback" writes an answer; "score" reads the distribution right after prompts that end in the marker.
        marker: the text before every verdict; "" where answers have no single place for one.
        scales: one a prompt, score -> what is written after the marker, such as {1: " 1"}; empty for no distribution.
        seeds: one a prompt, at least 0, which alone decides its draws; () uses the prompt's position.
        max_new_tokens: the most tokens of an answer, at least 1; the model's context bounds it too.
        temperature: 0 for greedy, otherwise the divisor of the logits, above 0.
        top_p: the smallest set of tokens with at least this probability is drawn from; in (0, 1].
        repetition_penalty: above 0; a logit of a token that the prompt or the answer holds already is divided by it
            where positive, else multiplied; 1 for none. LLaVA's families, run here, count the answer's tokens alone.
        batch_size: prompts at once, or "auto" for the engine's own choice.
    """

    mode: str = "feedback"
    marker: str = ""
    scales: Sequence[Mapping[int, str]] = ()
    seeds: Sequence[int] = ()
    max_new_tokens: int = 1024
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    batch_size: int | str = "auto"

    @property
    def scores(self) -> bool:
        """Whether it is a score pass, which writes nothing."""
        return self.mode == "score"

    def scale(self, row: int) -> Mapping[int, str]:
        return self.scales[row] if self.scales else {}

    def seed(self, row: int) -> int:
        return self.seeds[row] if self.seeds else row

    def check(self) -> list[str]:
        """What is unsound about these options, each with its remedy; empty for sound ones."""
        penalty, batch = self.repetition_penalty, self.batch_size
        sound = {
            "mode": (self.mode in ("feedback", "score"), 'use "feedback" or "score"'),
            "temperature": (_number(self.temperature), "use 0 for greedy decoding, or a number above 0"),
            "top_p": (_number(self.top_p) and 0 < self.top_p <= 1, "use a number in (0, 1]"),
            "repetition_penalty": (_number(penalty) and penalty, "use 1 for none, or a number above 0"),
            "batch_size": (batch == "auto" or whole(batch, 1), 'use "auto" or a whole number from 1'),
            "max_new_tokens": (whole(self.max_new_tokens, 1), "use a whole number from 1"),
        }
        faults = [f"{name}={getattr(self, name)!r}: {remedy}" for name, (fine, remedy) in sound.items() if not fine]
        if self.scores and (self.temperature, self.top_p, penalty) != (0, 1, 1):
            faults.append('mode="score" draws nothing: leave temperature, top_p and repetition_penalty out')
        return faults


@dataclass(frozen=True)
class Answer:
    """What the engine made of the prompt at `index` of the call."""

    index: int
    text: str = ""  # without the end-of-sequence token; empty in a score pass
    n_prompt_tokens: int = 0  # image tokens included
    n_new_tokens: int = 0  # the end-of-sequence token included
    # Score -> natural log of its text's probability at the verdict's step (temperature 1, no truncation); None where no
    # verdict was written, or one token can't carry the scores.
    score_logprobs: dict[int, float] | None = None
    stopped: bool = False  # whether the model ended the text itself, rather than a limit
    seconds: float = 0.0  # its share of the batch's wall time
    failure: str | None = None  # why there is no answer
    transient: bool = False  # whether asking again may bring one


Answers = Iterator[list[Answer]]  # batches as they are finished


@dataclass
class Work:
    """What a call computed on this machine; a run's table keeps it in `attrs["work"]`."""

    prompt_tokens: int = 0  # image tokens among them
    computed_tokens: int = 0  # of these, each shared one once
    new_tokens: int = 0
    images: int = 0
    at_once: int = 0
    threads: int = 0  # torch's on a CPU
    seconds: float = 0.0  # wall time
    notes: list[str] = field(default_factory=list)  # for example why rows shared no prefixes


class Quantity(NamedTuple):
    """One line of a plan: `planned` is a number, or NaN where it is not known, and then `note` says why."""

    quantity: str
    planned: float
    unit: str = ""
    note: str = ""


class Engine(ABC):
    """Prompts in; texts, token counts and score probabilities out.

    What an engine can't give is an error before the first answer, never a silent substitute; a row that can't be
    answered is an `Answer` with `failure`.
    """

    name: ClassVar[str]
    work: Work | None = None  # of the last call; None where it computes elsewhere

    @abstractmethod
    def answer(self, prompts: Sequence[Prompt], images: Sources, ask: Ask, wanted: Wanted = None) -> Answers:
        """Answer every prompt, in any order; options are checked (`Ask.check`) by the caller.

        Args:
            prompts: one a row; the same one may stand several times (samples). Those of a score pass end in the marker.
            images: one for each prompt's IMAGE parts.
            wanted: rows to answer; others are at most computed beside them, as in an unbroken run.

        ValueError: options or a scale that this engine can't serve.
        """

    def plan(self, prompts: Sequence[Prompt], images: Sources, ask: Ask) -> list[Quantity]:
        """What `answer` would take, without running it: here only what the prompts themselves show."""
        shown = sum(prompt.n_images for prompt in prompts)
        characters = sum(len(part) for prompt in prompts for part in prompt.parts if isinstance(part, str))
        extra = "; pictures come on top" if shown else ""
        limit = 1 if ask.scores else ask.max_new_tokens
        most = "one a prompt" if ask.scores else f"at most: every answer at its limit of {limit}"
        return [
            Quantity("verdicts", len(prompts)),
            Quantity("prompt tokens", characters / 4, "", f"estimated, 4 characters each, as in English{extra}"),
            Quantity("images shown", shown),
            Quantity("new tokens", limit * len(prompts), "", most),
            Quantity("total", math.nan, "seconds", "not measured: time a part of the items"),
        ]

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What decides this engine's answers, as JSON values without secrets: equal ones may continue one run."""


def check_images(prompt: Prompt, images: Sequence[Any]) -> None:
    """Refuse a prompt that has not a place for each of its images."""
    if prompt.n_images != len(images):
        raise ValueError(f"the prompt has {prompt.n_images} image place(s) and the item {len(images)} image(s)")


def say(line: str) -> None:
    """Write a line on standard error, past a progress bar."""
    tqdm.write(line, file=sys.stderr)


def whole(value: Any, least: int) -> bool:
    """Whether an option is a whole number, `least` or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _number(value: Any) -> bool:
    """Whether an option is a finite number, 0 or more."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
