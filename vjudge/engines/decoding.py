"""From logits to tokens, and to the probabilities of a scale."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, RepetitionPenaltyLogitsProcessor, TopPLogitsWarper

from vjudge.engines.engine import Ask
from vjudge.engines.rows import Request
from vjudge.models import VisionLanguageModel


class Writer(LogitsProcessor):
    """Says each row's next token to `generate`: every other one is ruled out.

    The repetition penalty counts the prompt as published: LLaVA generates from embeddings, so there
    is none to count; vLLM, which ran Prometheus, and transformers count it.
    """

    def __init__(
        self,
        model: VisionLanguageModel,
        end_ids: Collection[int],
        rows: Sequence[Request],
        ask: Ask,
    ) -> None:
        self.model = model
        self.end_ids = end_ids
        self.rows = rows
        self.ask = ask
        self.random = [np.random.default_rng(ask.seed(row.index)) for row in rows]
        self.penalty = RepetitionPenaltyLogitsProcessor(float(ask.repetition_penalty))
        self.top_p = TopPLogitsWarper(ask.top_p)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> Any:
        """The scores (rows, vocabulary) that leave each row one token."""
        # 1) choose a token a row
        logits = scores.float()  # (rows, vocabulary)
        for position in zero_not_finite(logits):
            row = self.rows[position]
            if not row.done:
                row.done = True
                row.failure = not_finite(self.model, len(row.tokens) + 1)
        self.model.mask_non_text(logits)
        penalised = self._penalised(logits)
        if self.ask.temperature == 0:
            tokens = penalised.argmax(-1)  # (rows,)
        else:
            draws = [random.random() for random in self.random]
            nucleus = self.top_p(input_ids, penalised / self.ask.temperature)
            tokens = draw_tokens(nucleus, draws)
        # 2) put it behind the row, and keep the distribution where a score begins
        for position, token in enumerate(tokens.tolist()):
            row = self.rows[position]
            if not row.done:
                score_tokens = row.scale.steps[()] if row.scale else []
                if token in score_tokens:
                    row.logprobs[len(row.tokens)] = logprobs_of(score_tokens, logits[position])
                row.tokens.append(token)
                if token in self.end_ids:
                    row.answer.finish = "stop"
                row.done = token in self.end_ids or len(row.tokens) == row.limit
            if row.done:
                tokens[position] = min(self.end_ids)
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)

    def _penalised(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits after the repetition penalty, a row at a time: they count unequal many."""
        if self.ask.repetition_penalty == 1:
            return logits
        penalised = []
        for row, row_logits in zip(self.rows, logits, strict=True):
            counted = list(row.tokens)
            if self.model.kind != "llava":
                counted += row.ids
            ids: Any = torch.tensor([counted], dtype=torch.long, device=logits.device)
            penalised.append(self.penalty(ids, row_logits[None]))
        return torch.cat(penalised)


def draw_tokens(scores: torch.Tensor, draws: Sequence[float]) -> torch.Tensor:
    """The token of each row at its draw in [0, 1), most probable tokens first.

    probability   .5  .3  .2
    reached       .5  .8  1.0     a draw of .6 passes one token and takes the second
    """
    probabilities = scores.softmax(-1)  # (rows, vocabulary)
    probabilities, order = probabilities.sort(dim=-1, descending=True, stable=True)
    reached = probabilities.cumsum(-1)
    draw = torch.tensor(draws, device=scores.device)[:, None] * reached[:, -1:]  # (rows, 1)
    n_passed = (reached <= draw).sum(-1, keepdim=True)
    # Rounding can put a draw near 1 past the last possible token.
    n_possible = (probabilities > 0).sum(-1, keepdim=True)
    rank = torch.minimum(n_passed, n_possible - 1)
    return order.gather(-1, rank).squeeze(-1)


def logprobs_of(tokens: list[int], logits: torch.Tensor) -> dict[int, float]:
    """Log-probabilities in the whole vocabulary, before temperature, top_p and penalty."""
    return dict(zip(tokens, logits.log_softmax(-1)[tokens].tolist(), strict=True))


def zero_not_finite(outputs: torch.Tensor) -> list[int]:
    """Set rows of outputs (rows, width) that are not finite to 0, and name their positions."""
    broken = ~outputs.amax(-1).isfinite()  # (rows,)
    outputs[broken] = 0.0
    return broken.nonzero().flatten().tolist()


def not_finite(model: VisionLanguageModel, step: int) -> str:
    """Why a row failed whose output is NaN or infinite."""
    return (
        f"the model's output is not finite (NaN or infinity) at token {step}: its weights are"
        f" damaged, or {model.dtype} overflows: try dtype='float32'"
    )
