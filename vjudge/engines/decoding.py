"""From logits to tokens, and to the probabilities of a scale."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from transformers import LogitsProcessor, RepetitionPenaltyLogitsProcessor, TopPLogitsWarper

from vjudge.engines.engine import Ask
from vjudge.engines.rows import Request
from vjudge.models import VisionLanguageModel


class Writer(LogitsProcessor):
    """Choose each row's next token for `generate`, and write it down in the row.

    `generate` picks the token with the largest score, so this processor returns scores of which
    only the chosen token's is finite. Each row draws from a random generator of its own: its text
    does not depend on the rows beside it.

    Args:
        model: the model that writes.
        end_ids: the tokens that end an answer.
        rows: the requests of the batch, in its order.
        ask: how tokens are drawn.
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
        self.generators = [np.random.default_rng(ask.seed(row.index)) for row in rows]
        self.penalty = RepetitionPenaltyLogitsProcessor(float(ask.repetition_penalty))
        self.top_p = TopPLogitsWarper(ask.top_p)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Choose a token a row, and return scores (rows, vocabulary) that allow no other."""
        # 1) a row whose logits are not finite ends here
        logits = scores.float()  # (rows, vocabulary)
        for position in zero_not_finite(logits):
            row = self.rows[position]
            if not row.writing.is_done:
                row.writing.is_done = True
                row.failure = not_finite(self.model, len(row.writing.tokens) + 1)
        # 2) choose the tokens, among those that are text
        self.model.mask_non_text(logits)
        tokens = self._choose(input_ids, self._penalised(logits))  # (rows,)
        # 3) write them down; `generate` has to be given a token for a finished row, too
        for position, token in enumerate(tokens.tolist()):
            row = self.rows[position]
            if not row.writing.is_done:
                self._write(row, token, logits[position])
            if row.writing.is_done:
                tokens[position] = min(self.end_ids)
        # 4) rule out every other token
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)

    def _choose(self, input_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Choose a token a row: the most probable one, or a draw from the nucleus."""
        if self.ask.temperature == 0:
            return logits.argmax(-1)  # (rows,)
        draws = [generator.random() for generator in self.generators]
        nucleus = self.top_p(input_ids, logits / self.ask.temperature)  # (rows, vocabulary)
        return draw_tokens(nucleus, draws)

    def _write(self, row: Request, token: int, logits: torch.Tensor) -> None:
        """Append a token to a row's answer; if it belongs to the scale, keep the distribution."""
        writing = row.writing
        score_tokens = row.scale.next_tokens[()] if row.scale else []
        if token in score_tokens:
            writing.logprobs[len(writing.tokens)] = logprobs_of(score_tokens, logits)
        writing.tokens.append(token)
        if token in self.end_ids:
            row.answer.finish = "stop"
            writing.is_done = True
        elif len(writing.tokens) == writing.limit:
            writing.is_done = True

    def _penalised(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply the repetition penalty to logits (rows, vocabulary).

        The penalty counts the prompt as each family was published. LLaVA generates from embeddings,
        so that it sees no prompt to count; vLLM, which ran Prometheus, and transformers count it.
        """
        if self.ask.repetition_penalty == 1:
            return logits
        penalised = []
        # A row at a time, because rows have different numbers of tokens to count.
        for row, row_logits in zip(self.rows, logits, strict=True):
            counted = list(row.writing.tokens)
            if self.model.kind != "llava":
                counted += row.ids
            ids = torch.tensor([counted], dtype=torch.long, device=logits.device)  # (1, counted)
            penalised.append(self.penalty(ids, row_logits[None]))  # (1, vocabulary)
        return torch.cat(penalised)


def draw_tokens(scores: torch.Tensor, draws: Sequence[float]) -> torch.Tensor:
    """Draw a token a row by inverse transform sampling, with the most probable tokens first.

        probability   .5  .3  .2
        cumulative    .5  .8  1.0     a draw of .6 passes one token and takes the second

    Args:
        scores: logits (rows, vocabulary), -inf for a token that is ruled out.
        draws: a number in [0, 1) for each row.
    """
    probabilities = scores.softmax(-1)  # (rows, vocabulary)
    probabilities, order = probabilities.sort(dim=-1, descending=True, stable=True)
    cumulative = probabilities.cumsum(-1)
    draw = torch.tensor(draws, device=scores.device)[:, None] * cumulative[:, -1:]  # (rows, 1)
    n_passed = (cumulative <= draw).sum(-1, keepdim=True)
    # Rounding can put a draw near 1 past the last possible token.
    n_possible = (probabilities > 0).sum(-1, keepdim=True)
    rank = torch.minimum(n_passed, n_possible - 1)
    return order.gather(-1, rank).squeeze(-1)  # (rows,)


def logprobs_of(tokens: list[int], logits: torch.Tensor) -> dict[int, float]:
    """Return the log-probabilities of tokens under logits (vocabulary,).

    They are over the whole vocabulary, before temperature, top_p and repetition penalty.
    """
    return dict(zip(tokens, logits.log_softmax(-1)[tokens].tolist(), strict=True))


def zero_not_finite(outputs: torch.Tensor) -> list[int]:
    """Set rows of outputs (rows, width) that hold NaN or infinity to 0; return their positions.

    The largest of a row's numbers is NaN if any is: looking at it alone is fast. -inf passes.
    """
    is_broken = ~outputs.amax(-1).isfinite()  # (rows,)
    outputs[is_broken] = 0.0
    return is_broken.nonzero().flatten().tolist()


def not_finite(model: VisionLanguageModel, step: int) -> str:
    """Say why a row failed whose output is NaN or infinite at its token number `step`."""
    return (
        f"the model's output is not finite (NaN or infinity) at token {step}: its weights are"
        f" damaged, or {model.dtype} overflows: try dtype='float32'"
    )
