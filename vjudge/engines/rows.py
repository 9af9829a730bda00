"""The rows of a batch on this machine: a prompt's tokens, its answer, what is read after it.

    Prefix     tokens that several rows begin with
    Tokenized  tokens that the model reads in one pass; a `Request` or a `Reading`
    Request    a prompt of the call: its `Writing`, then its readings, then its `Answer`
    Writing    the tokens of an answer while it is written
    Reading    tokens after which the distribution over the next token is read

hf.py and vllm.py compute them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from vjudge.engines.closing import most_probable
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
    prefix: Prefix | None = None  # the beginning whose keys and values come from the shared cache
    n_prompt_tokens: int = 0  # with each image counted by the places that it takes
    failure: str | None = None  # why it can't be computed

    @property
    def n_after_prefix(self) -> int:
        """How many tokens are computed for this row alone."""
        return len(self.ids) - (len(self.prefix.ids) if self.prefix else 0)


TokenizedT = TypeVar("TokenizedT", bound=Tokenized)


@dataclass(eq=False, kw_only=True)
class Reading(Tokenized):
    """Tokens after which the distribution over the next token is read.

    They end in `stem`, the tokens with which the texts of some scores begin. A scale from 1 to 10
    has two readings: after (), and after the token of "1", where "0" makes it "10".
    """

    scale: ScoreTokens
    stem: Stem
    criterion: str = ""  # whose scale it is, in an answer that scores several criteria
    logprobs: dict[int, float] = field(default_factory=dict)  # token -> log-probability


@dataclass(eq=False)
class Writing:
    """The tokens of an answer while it is written."""

    limit: int = 0  # the most tokens that it may have
    tokens: list[int] = field(default_factory=list)  # the one that ends the answer included
    is_done: bool = False
    # step -> score's token -> log-probability, for each step that wrote a token of the scale
    logprobs: dict[int, dict[int, float]] = field(default_factory=dict)


@dataclass(eq=False)
class Request(Tokenized):
    """A prompt of the call: first its answer is written, then its scale is read."""

    index: int  # the position of the prompt in the call
    scale: ScoreTokens | None = None
    writing: Writing = field(default_factory=Writing)
    readings: list[Reading] = field(default_factory=list)
    is_closing: bool = False  # whether the readings close an answer without a verdict
    answer: Answer = field(init=False)

    def __post_init__(self) -> None:
        self.answer = Answer(self.index)

    def read_after(self, ids: Sequence[int], scale: ScoreTokens, criterion: str = "") -> None:
        """Add the readings of a scale after `ids`: one for each stem of the scale."""
        for stem in scale.next_tokens:
            reading = Reading(
                ids=[*ids, *stem], keys=self.keys, scale=scale, stem=stem, criterion=criterion
            )
            self.readings.append(reading)

    def plan_readings(
        self, encoder: Encoder, ask: Ask, end_ids: Collection[int], context: int
    ) -> None:
        """Decode the finished answer, and plan what is read after it.

        Args:
            encoder: decodes the answer, and encodes what closes it.
            ask: the options of the call.
            end_ids: the tokens that end an answer.
            context: the most tokens that the model can read.
        """
        tokens = self.writing.tokens
        if tokens and tokens[-1] in end_ids:
            tokens = tokens[:-1]
        self.answer.text = encoder.text(tokens)
        if self.failure is not None:
            return
        # 1) an answer without a verdict is closed: its scale is read after a marker that is added
        if ask.has_to_be_closed(self.answer):
            self._plan_closing(ask, [*self.ids, *tokens], encoder, context)
            return
        # 2) else the distribution is that of the step at which the verdict was written, if one was
        if self.scale is None:
            return
        step = encoder.verdict_step(tokens, self.scale)
        if step is None:
            return
        if self.scale.first_token_decides:  # it was kept when that token was written
            self.answer.score_logprobs = self.scale.logprobs({(): self.writing.logprobs[step]})
        else:
            self.read_after([*self.ids, *tokens[:step]], self.scale)

    def _plan_closing(self, ask: Ask, ids: list[int], encoder: Encoder, context: int) -> None:
        """Plan to read each scale after prompt, answer and marker; or set why that is impossible.

        Args:
            ask: the options of the call.
            ids: the tokens of prompt and answer.
            encoder: encodes the marker.
            context: the most tokens that the model can read.
        """
        assert ask.closing is not None
        try:
            for criterion, texts in ask.scales_to_close(self.index).items():
                marker, scale = encoder.closing_ids(ask.closing.marker_of(criterion), texts)
                self.read_after([*ids, *marker], scale, criterion)
            # `ids` may hold one token for an image that takes many places.
            n_image_places = self.n_prompt_tokens - len(self.ids)
            longest = max(len(reading.ids) for reading in self.readings)
            if n_image_places + longest >= context:
                raise ValueError(
                    f"the model's context of {context} tokens leaves no room for a verdict"
                )
            self.is_closing = True
        except ValueError as error:
            self.readings = []
            self.answer.unclosed = str(error)

    def combine_readings(self) -> None:
        """Combine the readings into one distribution per scale, and set the answer's verdicts.

        The answer of one scale gets its distribution and, if it is being closed, the most probable
        score. The answer of several criteria gets the most probable score of each.
        """
        # 1) a reading that failed makes the request fail
        for reading in self.readings:
            self.failure = self.failure or reading.failure
        if self.failure is not None or not self.readings:
            return
        # 2) the distribution over each scale, and its most probable score
        scores = {}
        scales = {reading.criterion: reading.scale for reading in self.readings}
        for criterion, scale in scales.items():
            readings = [reading for reading in self.readings if reading.criterion == criterion]
            logprobs = scale.logprobs({reading.stem: reading.logprobs for reading in readings})
            scores[criterion] = most_probable(logprobs)
        # 3) several criteria: their scores alone. Else "" is the only criterion, and `logprobs` are
        # those of its scale
        if "" not in scores:
            self.answer.closed_scores = scores
            return
        self.answer.score_logprobs = logprobs
        if self.is_closing:
            self.answer.closed = scores[""]

    def finished_answer(self, seconds: float) -> Answer:
        """Return the answer with its failure, tokens and time; a failed one loses its verdicts.

        Args:
            seconds: its share of the batch's wall time.
        """
        answer = self.answer
        answer.failure = self.failure
        if self.failure is not None:
            answer.score_logprobs = None
            answer.closed = answer.closed_scores = None
        answer.n_prompt_tokens = self.n_prompt_tokens
        answer.tokens = self.writing.tokens
        answer.n_new_tokens = len(self.writing.tokens)
        answer.seconds = seconds
        return answer
