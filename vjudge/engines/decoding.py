"""The state of decoding: a prompt on its way, how the call decodes, and an answer while it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from vjudge.engines.encoding import Encoder, Scale
from vjudge.engines.engine import Answer


@dataclass(frozen=True)
class Job:
    """One prompt on its way through the engine."""

    index: int
    ids: np.ndarray  # of tokens
    images: tuple[str, ...]  # fingerprints
    seed: int
    image_token: int | None = None
    shown: tuple[tuple[int, int], ...] = ()  # of each image, a negative number of its own, and its places

    @property
    def atoms(self) -> np.ndarray:
        """The ids, with an image's places named after it; made when asked for, so that a plan holds ids once."""
        if not self.shown:
            return self.ids
        atoms = self.ids.copy()
        numbers, places = zip(*self.shown, strict=True)
        atoms[atoms == self.image_token] = np.repeat(numbers, places)
        return atoms


@dataclass(frozen=True)
class Decoding:
    """How a call decodes; `max_new_tokens` 0 is a score pass."""

    scale: Scale
    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0

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
    seconds: float = 0.0  # its share of the passes it took part in

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
        if not self.run.max_new_tokens:
            return self.scores(scale)
        ids = self.tokens[:-1] if self.stopped else self.tokens
        step = encoder.verdict_step(ids, list(self.scored), scale.marker)
        answer = self.scores(scale, step) if step is not None else Answer(self.job.index)
        return replace(
            answer,
            text=encoder.text(ids),
            n_prompt_tokens=len(self.job.ids),
            n_new_tokens=len(self.tokens),
            stopped=self.stopped,
            seconds=self.seconds,
        )

    def scores(self, scale: Scale, step: int = 0) -> Answer:
        return Answer(
            self.job.index,
            n_prompt_tokens=len(self.job.ids),
            score_logprobs=dict(zip(scale.tokens, self.scored[step], strict=True)),
            stopped=True,
            seconds=self.seconds,
        )


class Writer:
    """Write answers: it takes the logits of a step and says each row's next token.

    Args:
        rows: the answers to write first, as they stand in the batch.
        run: how the call decodes.
        encoder: makes texts of tokens.
        words: from logits (rows, vocabulary) takes, in place, what is no word of an answer.
        ends: tokens that end an answer.
        counts_prompt: whether the repetition penalty counts the prompt's tokens as well as the answer's.
    """

    def __init__(
        self,
        rows: list[Row],
        run: Decoding,
        encoder: Encoder,
        *,
        words: Callable[[torch.Tensor], None],
        ends: frozenset[int],
        counts_prompt: bool,
    ) -> None:
        self.rows, self.run, self.encoder, self.words, self.ends = rows, run, encoder, words, ends
        self.live = list(rows)  # the rows in the batch, by their place in it
        self._scale_tokens = list(run.scale.tokens.values())
        self._counts_prompt = counts_prompt
        self._seen: torch.Tensor | None = None  # (live rows, vocabulary): what the penalty counts

    def admit(self, rows: list[Row]) -> None:
        """Put rows at the end of the batch."""
        self.live += rows
        if self._seen is not None:
            self._seen = torch.cat([self._seen, self._prompts(rows, self._seen)])

    def step(self, logits: torch.Tensor, first: int = 0) -> torch.Tensor:
        """Take the next token of each row in the batch, and where it is a score, the distribution over the scores.

        Args:
            logits: (rows, vocabulary) of the batch's rows from `first` on, float32; changed in place.

        Returns:
            The tokens, (rows,); of rows that are done, anything.
        """
        live = self.live[first:]
        self.words(logits)
        scale_tokens = torch.tensor(self._scale_tokens, dtype=torch.long, device=logits.device)
        if not self.run.max_new_tokens:
            for row, line in zip(live, logprobs_of(logits, scale_tokens), strict=True):
                row.scored[0], row.done = line, True
            return logits.argmax(-1)
        tokens = self.run.choose(self._penalized(logits, first), live)
        written = tokens.tolist()
        scored = [place for place, token in enumerate(written) if token in self.run.score_ids and not live[place].done]
        if scored:
            for place, line in zip(scored, logprobs_of(logits[scored], scale_tokens), strict=True):
                live[place].scored[len(live[place].tokens)] = line
        for row, token in zip(live, written, strict=True):
            row.add(token, self.ends)
        if self._seen is not None:
            self._seen[first:].scatter_(1, tokens[:, None], True)
        return tokens

    def going(self) -> list[int]:
        """The places of the batch whose rows are not done."""
        return [place for place, row in enumerate(self.live) if not row.done]

    def keep(self, places: list[int]) -> None:
        """Note that these rows alone stay in the batch, in this order."""
        self.live = [self.live[place] for place in places]
        if self._seen is not None:
            self._seen = self._seen[places]

    def answers(self) -> list[Answer]:
        """The finished answers, all rows of the batch."""
        return [row.answer(self.encoder, self.run.scale) for row in self.rows]

    def _penalized(self, logits: torch.Tensor, first: int) -> torch.Tensor:
        """The logits after the repetition penalty, which the scores' distribution is read before.

        Source: Keskar et al., CTRL (arXiv 1909.05858), section 4.1, with the sign as Hugging Face and vLLM have it.
        """
        penalty = self.run.repetition_penalty
        if penalty == 1.0:
            return logits
        if self._seen is None:
            self._seen = self._prompts(self.live, logits)
        return torch.where(self._seen[first:], torch.where(logits < 0, logits * penalty, logits / penalty), logits)

    def _prompts(self, rows: Sequence[Row], like: torch.Tensor) -> torch.Tensor:
        """What the penalty counts before an answer begins: (rows, vocabulary)."""
        seen = torch.zeros((len(rows), like.shape[-1]), dtype=torch.bool, device=like.device)
        for place, row in enumerate(rows if self._counts_prompt else ()):
            seen[place, torch.as_tensor(row.job.ids, dtype=torch.long, device=like.device)] = True
        return seen


def logprobs_of(logits: torch.Tensor, tokens: torch.Tensor) -> list[list[float]]:
    """Log-probabilities of some tokens, normalised over the whole vocabulary."""
    picked: list[list[float]] = (logits[:, tokens] - logits.logsumexp(-1, keepdim=True)).tolist()
    return picked
