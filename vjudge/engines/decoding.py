"""From logits to tokens, and to the probabilities of a scale."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, RepetitionPenaltyLogitsProcessor, TopPLogitsWarper

from vjudge.engines.engine import Ask
from vjudge.engines.rows import Row
from vjudge.models import VisionLanguageModel


class Writer(LogitsProcessor):
    """Says each row's next token to `generate`: every other one is ruled out.

    The repetition penalty counts the prompt as published: LLaVA generates from embeddings, so there
    is none to count; vLLM, which ran Prometheus, and transformers count it.
    """

    def __init__(
        self,
        model: VisionLanguageModel,
        ends: Collection[int],
        rows: Sequence[Row],
        ask: Ask,
    ) -> None:
        self.model = model
        self.ends = ends
        self.rows = rows
        self.ask = ask
        self.random = [np.random.default_rng(ask.seed(row.index)) for row in rows]
        self.penalty = RepetitionPenaltyLogitsProcessor(float(ask.repetition_penalty))
        self.top_p = TopPLogitsWarper(ask.top_p)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """The scores (rows, vocabulary) that leave each row one token."""
        # 1) choose a token a row
        logits = scores.float()
        check_finite(self.model, self.rows, logits)
        self.model.mask_non_text(logits)
        chances = self._penalised(logits)
        if self.ask.temperature == 0:
            tokens = chances.argmax(-1)
        else:
            draws = [random.random() for random in self.random]
            chances = self.top_p(input_ids, chances / self.ask.temperature)
            tokens = draw_tokens(chances, draws)
        # 2) put it behind the row, and note the distribution where a score begins
        for place, token in enumerate(tokens.tolist()):
            row = self.rows[place]
            if not row.done:
                firsts = row.scale.steps[()] if row.scale else []
                if token in firsts:
                    row.logprobs[len(row.tokens)] = logprobs_of(firsts, logits[place])
                row.tokens.append(token)
                if token in self.ends:
                    row.finish = "stop"
                row.done = row.finish == "stop" or len(row.tokens) == row.limit
            if row.done:
                tokens[place] = min(self.ends)
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)

    def _penalised(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits after the repetition penalty, a row at a time: they count unequal many."""
        if self.ask.repetition_penalty == 1:
            return logits
        rows = []
        for row, line in zip(self.rows, logits, strict=True):
            counted = list(row.tokens)
            if self.model.kind != "llava":
                counted += row.ids
            ids: Any = torch.tensor([counted], dtype=torch.long, device=logits.device)
            rows.append(self.penalty(ids, line[None]))
        return torch.cat(rows)


def draw_tokens(scores: torch.Tensor, draws: Sequence[float]) -> torch.Tensor:
    """The token of each row at its draw in [0, 1), most probable tokens first."""
    probabilities = scores.softmax(-1)
    probabilities, order = probabilities.sort(dim=-1, descending=True, stable=True)
    reached = probabilities.cumsum(-1)
    uniform = torch.tensor(draws, device=scores.device)[:, None]
    wanted = uniform * reached[:, -1:]
    place = (reached <= wanted).sum(-1, keepdim=True)
    # Rounding can put a draw near 1 past the last possible token.
    last = (probabilities > 0).sum(-1, keepdim=True) - 1
    place = torch.minimum(place, last)
    return order.gather(-1, place).squeeze(-1)


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
