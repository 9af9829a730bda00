"""The requests of a call on this machine: a prompt's tokens, its answer, what is read behind it.

hf.py and vllm.py compute them; in a batch each is a row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

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

    def read_behind(self, ids: Sequence[int], scale: ScoreTokens) -> None:
        """Have a scale read behind `ids`, once behind each stem."""
        self.readings = []
        for stem in scale.steps:
            reading = Reading(ids=[*ids, *stem], keys=self.keys, scale=scale, stem=stem)
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
        if ask.closes(self.index, self.answer.text, self.answer.finish):
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
        """Have the scale read behind an answer and the marker that closes it."""
        texts = ask.closings(self.index).get("")
        if texts is None or ask.closing is None:
            self.answer.unclosed = "only one verdict can be closed here, not named criteria"
            return
        try:
            marker, scale = encoder.closing(ask.closing.marker, texts)
        except ValueError as error:
            self.answer.unclosed = str(error)
            return
        self.read_behind([*ids, *marker], scale)
        self.closes = True
        # `ids` may hold one token for an image that takes many places.
        n_image_places = self.n_prompt_tokens - len(self.ids)
        if n_image_places + len(self.readings[-1].ids) >= context:
            self.readings = []
            self.answer.unclosed = (
                f"the model's context of {context} tokens leaves no room for a verdict"
            )

    def settle(self) -> None:
        """Make the distribution over the scale of the readings; it closes an answer."""
        for reading in self.readings:
            self.failure = self.failure or reading.failure
        if self.failure is not None or not self.readings:
            return
        after = {reading.stem: reading.logprobs for reading in self.readings}
        logprobs = self.readings[0].scale.logprobs(after)
        self.answer.score_logprobs = logprobs
        if self.closes:
            self.answer.closed = max(sorted(logprobs), key=logprobs.__getitem__)  # lowest of equals

    def finished(self, seconds: float) -> Answer:
        """The answer; a failure has no verdict."""
        answer = self.answer
        answer.failure = self.failure
        if self.failure is not None:
            answer.score_logprobs = None
            answer.closed = None
        answer.n_prompt_tokens = self.n_prompt_tokens
        answer.tokens = self.tokens
        answer.n_new_tokens = len(self.tokens)
        answer.seconds = seconds
        return answer
