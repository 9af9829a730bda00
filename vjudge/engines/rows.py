"""A prompt while it is answered on this machine: what hf.py and vllm.py know of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from vjudge.engines.engine import Answer, Ask
from vjudge.engines.tokens import Encoder, Scale, Stem


@dataclass(eq=False)
class Prefix:
    """The beginning of prompts, with all their images."""

    ids: list[int]
    keys: tuple[str, ...]
    place: int  # of its keys and values


@dataclass(eq=False)
class Row(Answer):
    """One prompt as tokens, and its answer while it is written.

    `readings` are rows after which a distribution is read; they end in the `stem` of a score's
    text. `logprobs` is step -> token -> log-probability.
    """

    ids: list[int] = field(default_factory=list)
    keys: tuple[str, ...] = ()  # of its images
    limit: int = 0  # tokens of its answer
    scale: Scale | None = None
    stem: Stem = ()
    prefix: Any = None  # a `Prefix`, where it is shared
    tokens: list[int] = field(default_factory=list)  # of its answer, the one that ended it too
    done: bool = False
    logprobs: dict[int, dict[int, float]] = field(default_factory=dict)
    readings: list[Row] = field(default_factory=list)
    closing: bool = False  # whether what is read closes the answer

    @property
    def own(self) -> int:
        """How many tokens stand after its prefix."""
        return len(self.ids) - (len(self.prefix.ids) if self.prefix else 0)

    def read_after(self, ids: Sequence[int], scale: Scale) -> None:
        """Have a scale read after `ids`, once behind each stem."""
        self.readings = []
        for stem in scale.steps:
            reading = Row(self.index, ids=[*ids, *stem], keys=self.keys, scale=scale, stem=stem)
            self.readings.append(reading)

    def end(self, encoder: Encoder, ask: Ask, ends: Collection[int], context: int) -> None:
        """Decode the finished answer, and say what is to be read after it."""
        written = self.tokens
        if written and written[-1] in ends:
            written = written[:-1]
        self.text = encoder.text(written)
        if self.failure is not None:
            return
        if ask.closes(self.index, self.text, self.finish):
            self._close(ask, [*self.ids, *written], encoder, context)
        elif self.scale is not None:
            step = encoder.verdict_step(written, self.scale)
            if step is None:
                return
            if self.scale.single:  # the distribution where the verdict was written
                self.score_logprobs = self.scale.logprobs({(): self.logprobs[step]})
            else:
                self.read_after([*self.ids, *written[:step]], self.scale)

    def settle(self) -> None:
        """Take over what was read."""
        for reading in self.readings:
            self.failure = self.failure or reading.failure
        if self.failure is not None or not self.readings:
            return
        scale: Any = self.readings[0].scale
        logprobs = scale.logprobs({one.stem: one.logprobs[0] for one in self.readings})
        self.score_logprobs = logprobs
        if self.closing:
            self.closed = max(sorted(logprobs), key=logprobs.__getitem__)  # the lowest of equals

    def _close(self, ask: Ask, ids: list[int], encoder: Encoder, context: int) -> None:
        """Have the scale read behind `ids` and what closes an answer."""
        texts = ask.closings(self.index).get("")
        if texts is None or ask.closing is None:
            self.unclosed = "only one verdict can be closed here, not named criteria"
            return
        try:
            marker, scale = encoder.closing(ask.closing.marker, texts)
        except ValueError as error:
            self.unclosed = str(error)
            return
        self.read_after([*ids, *marker], scale)
        self.closing = True
        n_places = self.n_prompt_tokens - len(self.ids)  # of images, where `ids` have one of each
        if n_places + len(self.readings[-1].ids) >= context:
            self.readings = []
            self.unclosed = f"the model's context of {context} tokens leaves no room for a verdict"

    def answer(self, seconds: float) -> Answer:
        """What was written and read."""
        if self.failure is not None:
            self.score_logprobs = None
            self.closed = None
        self.n_new_tokens = len(self.tokens)
        self.seconds = seconds
        return self
