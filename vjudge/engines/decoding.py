"""From logits to tokens, and to the probabilities of a scale."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from transformers import LogitsProcessor

from vjudge.engines.engine import Ask
from vjudge.engines.rows import Row
from vjudge.models import VisionLanguageModel


class Writer(LogitsProcessor):
    """Takes the logits of a step and says each row's next token, to `generate` too.

    The repetition penalty counts the prompt as published: LLaVA generates from embeddings, so there
    is none to count; vLLM, which ran Prometheus, and transformers count it.
    """

    def __init__(
        self, model: VisionLanguageModel, ends: Collection[int], rows: Sequence[Row], ask: Ask
    ) -> None:
        self.model = model
        self.ends = ends
        self.rows = list(rows)
        self.ask = ask
        self.ended: list[int] = []  # places of the rows that the last step ended
        self.random = [np.random.default_rng(row.seed) for row in rows]
        self.counted: torch.Tensor | None = None  # (rows, vocabulary): what the penalty counts

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """What `generate` takes: every token but the next one is ruled out."""
        tokens = self.step(scores.float())
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)

    def keep(self, places: list[int]) -> None:
        """Keep these rows alone, in this order."""
        self.rows = [self.rows[place] for place in places]
        self.random = [self.random[place] for place in places]
        if self.counted is not None:
            self.counted = self.counted[places]

    def step(self, logits: torch.Tensor) -> torch.Tensor:
        """The next token of each row from float32 logits (rows, vocabulary), changed in place."""
        alive = [place for place, row in enumerate(self.rows) if not row.done]
        check_finite(self.model, self.rows, logits)
        self.model.mask_non_text(logits)
        chances = self._penalized(logits)
        if self.ask.temperature == 0:
            tokens = chances.argmax(-1)
        else:
            draws = [random.random() for random in self.random]
            tokens = draw_tokens(chances, draws, self.ask.temperature, self.ask.top_p)
        if self.counted is not None:
            self.counted.scatter_(1, tokens[:, None], True)
        written = tokens.tolist()
        for place in alive:
            self._write(self.rows[place], written[place], logits[place])
        self.ended = [place for place in alive if self.rows[place].done]
        return tokens

    def _write(self, row: Row, token: int, logits: torch.Tensor) -> None:
        """Put a token behind a row; where a score begins, note the distribution."""
        if row.done:  # its logits are not finite
            return
        if row.scale is not None and token in row.scale.firsts:
            row.logprobs[len(row.tokens)] = logprobs_of(row.scale.firsts, logits)
        row.tokens.append(token)
        if token in self.ends:
            row.finish = "stop"
        row.done = row.finish == "stop" or len(row.tokens) == row.limit

    def _penalized(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits after the repetition penalty of Keskar et al., CTRL (arXiv 1909.05858)."""
        penalty = self.ask.repetition_penalty
        if penalty == 1.0:
            return logits
        if self.counted is None:
            self.counted = torch.zeros_like(logits, dtype=torch.bool)
            if self.model.kind != "llava":
                for place, row in enumerate(self.rows):
                    self.counted[place, row.ids] = True
        penalized = torch.where(logits < 0, logits * penalty, logits / penalty)
        return torch.where(self.counted, penalized, logits)


def draw_tokens(
    logits: torch.Tensor, draws: Sequence[float], temperature: float, top_p: float
) -> torch.Tensor:
    """The token of each row at its draw in [0, 1), most probable tokens first."""
    uniform = torch.tensor(draws, dtype=logits.dtype, device=logits.device)[:, None]
    probabilities = (logits / temperature).softmax(-1)
    probabilities, order = probabilities.sort(dim=-1, descending=True, stable=True)
    kept = probabilities.cumsum(-1) - probabilities < top_p
    reached = (probabilities * kept).cumsum(-1)
    place = (reached <= uniform * reached[:, -1:]).sum(-1, keepdim=True)
    # Rounding can put a draw near 1 past the last kept token.
    last = kept.sum(-1, keepdim=True) - 1
    return order.gather(-1, torch.minimum(place, last)).squeeze(-1)


def read(model: VisionLanguageModel, rows: Sequence[Row], logits: torch.Tensor) -> None:
    """Note the distribution of each row's scale after its stem."""
    check_finite(model, rows, logits)
    model.mask_non_text(logits)
    for row, line in zip(rows, logits, strict=True):
        if row.failure is None and row.scale is not None:
            row.logprobs[0] = logprobs_of(row.scale.reads(row.stem), line)


def logprobs_of(tokens: list[int], logits: torch.Tensor) -> dict[int, float]:
    """Log-probabilities in the whole vocabulary, before temperature, top_p and penalty."""
    return dict(zip(tokens, logits.log_softmax(-1)[tokens].tolist(), strict=True))


def check_finite(model: VisionLanguageModel, rows: Sequence[Row], outputs: torch.Tensor) -> None:
    """End rows whose outputs (rows, width) are not finite, with a failure; they become 0."""
    broken = ~outputs.amax(-1).isfinite()
    outputs[broken] = 0.0
    for place in broken.nonzero().flatten().tolist():
        row = rows[place]
        if not row.done:
            row.done = True
            row.failure = (
                "the model's output is not finite (NaN or infinity) at token"
                f" {len(row.tokens) + 1}: its weights are damaged, or {model.dtype} overflows:"
                " try dtype='float32'"
            )
