"""The state of decoding: a prompt on its way, how the call decodes, and an answer while it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from vjudge.engines.answer import Answer
from vjudge.engines.encoding import Encoder, Scale


@dataclass(frozen=True)
class Job:
    """One prompt on its way through the engine."""

    index: int
    ids: list[int]
    images: tuple[str, ...]  # fingerprints
    seed: int


@dataclass(frozen=True)
class Decoding:
    """How a call decodes; `max_new_tokens` 0 is a score pass."""

    scale: Scale
    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0

    @property
    def score_ids(self) -> frozenset[int]:
        return frozenset(self.scale.tokens.values())

    def choose(self, logits: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
        """The next token of each row: the argmax, or the inverse of the truncated distribution at the row's draw."""
        if self.temperature == 0:
            return logits.argmax(-1)
        draws = torch.tensor([row.draw for row in rows], dtype=logits.dtype, device=logits.device)
        chances, order = (logits / self.temperature).softmax(-1).sort(dim=-1, descending=True, stable=True)
        kept = chances.cumsum(-1) - chances < self.top_p
        reached = (chances * kept).cumsum(-1)
        place = (reached <= draws[:, None] * reached[:, -1:]).sum(-1, keepdim=True)
        # Rounding can put a draw near 1 past the last kept token.
        return order.gather(-1, torch.minimum(place, kept.sum(-1, keepdim=True) - 1)).squeeze(-1)


@dataclass
class Row:
    """One answer while it is written."""

    job: Job
    run: Decoding
    room: int
    tokens: list[int] = field(default_factory=list)
    scored: dict[int, list[float]] = field(default_factory=dict)  # step -> log-probabilities over the scale
    done: bool = False
    stopped: bool = False

    def __post_init__(self) -> None:
        self.limit = min(self.run.max_new_tokens, self.room)
        self.draws = np.random.default_rng(self.job.seed).random(self.limit) if self.run.temperature else None

    @property
    def draw(self) -> float:
        """The uniform number of the step about to be written."""
        return 0.0 if self.draws is None or self.done else float(self.draws[len(self.tokens)])

    def add(self, token: int, ends: frozenset[int]) -> None:
        """Take the next token, unless the row is done and only still in the batch."""
        if not self.done:
            self.tokens.append(token)
            self.stopped = token in ends
            self.done = self.stopped or len(self.tokens) == self.limit

    def answer(self, encoder: Encoder, scale: Scale) -> Answer:
        ids = self.tokens[:-1] if self.stopped else self.tokens
        step = encoder.verdict_step(ids, list(self.scored), scale.marker)
        answer = self.scores(scale, step) if step is not None else Answer(self.job.index)
        return replace(
            answer,
            text=encoder.text(ids),
            n_prompt_tokens=len(self.job.ids),
            n_new_tokens=len(self.tokens),
            stopped=self.stopped,
        )

    def scores(self, scale: Scale, step: int = 0) -> Answer:
        logprobs = dict(zip(scale.tokens, self.scored[step], strict=True))
        return Answer(self.job.index, n_prompt_tokens=len(self.job.ids), score_logprobs=logprobs, stopped=True)


def logprobs_of(logits: torch.Tensor, tokens: torch.Tensor) -> list[list[float]]:
    """Log-probabilities of some tokens, normalised over the whole vocabulary."""
    picked: list[list[float]] = (logits[:, tokens] - logits.logsumexp(-1, keepdim=True)).tolist()
    return picked
