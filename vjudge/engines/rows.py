"""The requests of a call on this machine: a prompt's tokens, its answer, what is read behind it.

hf.py and vllm.py compute them; in a batch each is a row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from vjudge.engines.engine import Answer, Ask
from vjudge.engines.tokens import Encoder, ScoreTokens, Stem


@dataclass(eq=False)
class Prefix:
    """The tokens that several prompts begin with, all their images among them."""

    ids: list[int]
    keys: tuple[str, ...]  # of the images
    slot: int  # its row in the shared cache


@dataclass(eq=False, kw_only=True)
class Tokenized:
    """Tokens that the model reads in one pass."""

    ids: list[int] = field(default_factory=list)
    keys: tuple[str, ...] = ()  # of the images
    prefix: Prefix | None = None  # where its cache is shared
    n_prompt_tokens: int = 0  # an image counts as the places that it takes
    failure: str | None = None

    @property
    def n_behind_prefix(self) -> int:
        """How many tokens are computed for it alone."""
        return len(self.ids) - (len(self.prefix.ids) if self.prefix else 0)


@dataclass(eq=False, kw_only=True)
class Reading(Tokenized):
    """Tokens behind which the distribution over the next token is read.

    They end in `stem`, the tokens with which the texts of some scores begin: of a scale from 1 to
    10, () and the token of "1".
    """

    scale: ScoreTokens
    stem: Stem
    name: str = ""  # of the criterion, where there are several
    logprobs: dict[int, float] = field(default_factory=dict)  # token -> log-probability


@dataclass(eq=False)
class Request(Tokenized):
    """A prompt of the call: its answer is written, then its scale is read."""

    index: int  # of the prompt
    scale: ScoreTokens | None = None
    # writing
    limit: int = 0  # tokens of its answer at most
    tokens: list[int] = field(default_factory=list)  # of its answer, the one that ended it included
    done: bool = False
    logprobs: dict[int, dict[int, float]] = field(default_factory=dict)  # step -> token -> value
    # reading
    readings: list[Reading] = field(default_factory=list)
    closes: bool = False  # whether the readings close the answer
    # what comes of both
    answer: Answer = field(init=False)

    def __post_init__(self) -> None:
        self.answer = Answer(self.index)

    def read_behind(self, ids: Sequence[int], scale: ScoreTokens, name: str = "") -> None:
        """Have a scale read behind `ids`, once behind each stem."""
        for stem in scale.steps:
            reading = Reading(ids=[*ids, *stem], keys=self.keys, scale=scale, stem=stem, name=name)
            self.readings.append(reading)

    def end(self, encoder: Encoder, ask: Ask, end_ids: Collection[int], context: int) -> None:
        """Decode the finished answer, and decide what is read behind it."""
        written = self.tokens
        if written and written[-1] in end_ids:
            written = written[:-1]
        self.answer.text = encoder.text(written)
        if self.failure is not None:
            return
        # 1) an answer without a verdict is closed
        if ask.closes(self.index, self.answer):
            self._close(ask, [*self.ids, *written], encoder, context)
            return
        # 2) the distribution at the place where the verdict was written
        step = encoder.verdict_step(written, self.scale) if self.scale else None
        if self.scale is None or step is None:
            return
        if self.scale.single:
            self.answer.score_logprobs = self.scale.logprobs({(): self.logprobs[step]})
        else:
            self.read_behind([*self.ids, *written[:step]], self.scale)

    def _close(self, ask: Ask, ids: list[int], encoder: Encoder, context: int) -> None:
        """Have each scale read behind an answer and the marker that closes it."""
        closing: Any = ask.closing
        try:
            for name, texts in ask.closings(self.index).items():
                marker, scale = encoder.closing(closing.before(name), texts)
                self.read_behind([*ids, *marker], scale, name)
        except ValueError as error:
            self.readings = []
            self.answer.unclosed = str(error)
            return
        self.closes = True
        # `ids` may hold one token for an image that takes many places.
        n_image_places = self.n_prompt_tokens - len(self.ids)
        longest = max(len(reading.ids) for reading in self.readings)
        if n_image_places + longest >= context:
            self.readings = []
            self.answer.unclosed = (
                f"the model's context of {context} tokens leaves no room for a verdict"
            )

    def settle(self) -> None:
        """Make the distribution over each scale of the readings; it closes an answer."""
        for reading in self.readings:
            self.failure = self.failure or reading.failure
        if self.failure is not None or not self.readings:
            return
        after: dict[str, dict[Stem, dict[int, float]]] = {}
        for reading in self.readings:
            after.setdefault(reading.name, {})[reading.stem] = reading.logprobs
        levels = {}
        for name, of_stems in after.items():
            scale = next(reading.scale for reading in self.readings if reading.name == name)
            logprobs = scale.logprobs(of_stems)
            levels[name] = max(sorted(logprobs), key=logprobs.__getitem__)  # lowest of equals
        if "" not in levels:
            self.answer.closed_scores = levels
            return
        self.answer.score_logprobs = logprobs
        if self.closes:
            self.answer.closed = levels[""]

    def finished(self, seconds: float) -> Answer:
        """The answer; a failure has no verdict."""
        answer = self.answer
        answer.failure = self.failure
        if self.failure is not None:
            answer.score_logprobs = None
            answer.closed = answer.closed_scores = None
        answer.n_prompt_tokens = self.n_prompt_tokens
        answer.tokens = self.tokens
        answer.n_new_tokens = len(self.tokens)
        answer.seconds = seconds
        return answer
