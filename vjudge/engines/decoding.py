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
        """Choose a token per row, and return scores that allow no other.

        Args:
            input_ids: all tokens of the rows so far, which `generate` passes to every processor.
            scores: the logits of the next token, (rows, vocabulary).

        Returns:
            Scores (rows, vocabulary): 0 for the chosen token, -inf for all others.
        """
        # 1) a row whose logits are not finite ends here
        logits = scores.float()  # (rows, vocabulary)
        for position in zero_not_finite(logits):
            row = self.rows[position]
            if not row.writing.is_done:
                row.writing.is_done = True
                row.failure = not_finite(self.model, len(row.writing.tokens) + 1)
        # 2) choose the tokens, among those that an answer may hold
        self.model.mask_non_text(logits)
        tokens = self._choose(input_ids, self._penalised(logits))  # (rows,)
        # 3) write them down; `generate` takes a token for a finished row, too: one that ends it
        for position, token in enumerate(tokens.tolist()):
            row = self.rows[position]
            if not row.writing.is_done:
                self._write(row, token, logits[position])
            if row.writing.is_done:
                tokens[position] = min(self.end_ids)
        # 4) rule out every other token
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)

    def _choose(self, input_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Choose a token per row: the most probable one, or a draw from the nucleus.

        Args:
            input_ids: all tokens of the rows so far; transformers' nucleus takes and ignores them.
            logits: those of the next token, (rows, vocabulary), repetition penalty included.

        Returns:
            The tokens (rows,).
        """
        if self.ask.temperature == 0:
            return logits.argmax(-1)  # (rows,)
        draws = [generator.random() for generator in self.generators]
        nucleus = self.top_p(input_ids, logits / self.ask.temperature)  # (rows, vocabulary)
        return draw_tokens(nucleus, draws)

    def _write(self, row: Request, token: int, logits: torch.Tensor) -> None:
        """Append a token to a row's answer, and end the answer where the token or its limit does.

        Where scores of the row's scale begin with the token, the distribution over all tokens that
        scores begin with is kept: the verdict may stand here.

        Args:
            row: the request whose answer is written.
            token: the chosen token.
            logits: those that it was chosen by, (vocabulary,), without the repetition penalty.
        """
        writing = row.writing
        score_tokens = row.scale.next_tokens[()] if row.scale else []
        if token in score_tokens:
            writing.logprobs[len(writing.tokens)] = logprobs_of(score_tokens, logits)
        writing.tokens.append(token)
        if token in self.end_ids:
            row.answer.finish = "stop"
            writing.is_done = True
        elif len(writing.tokens) == writing.limit:  # `finish` stays "length"
            writing.is_done = True

    def _penalised(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits (rows, vocabulary) with the repetition penalty applied.

        Whether a token of the prompt counts as a repetition depends on how the family was
        published. LLaVA generates from embeddings, so that it has no ids of the prompt to count;
        vLLM, which ran Prometheus, and transformers count the prompt's tokens.
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
    """Draw a token per row by inverse transform sampling, with the most probable tokens first.

        probability   .5  .3  .2
        cumulative    .5  .8  1.0     a draw of .6 passes one token and takes the second

    Args:
        scores: logits (rows, vocabulary), -inf for a token that is ruled out.
        draws: a number in [0, 1) for each row.

    Returns:
        The tokens (rows,).
    """
    probabilities = scores.softmax(-1)  # (rows, vocabulary)
    probabilities, order = probabilities.sort(dim=-1, descending=True, stable=True)
    cumulative = probabilities.cumsum(-1)
    # By rounding, the last cumulative probability is not exactly 1: the draw is scaled to it.
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
    """Set rows of outputs (rows, width) that hold NaN or +infinity to 0; return their positions.

    To be fast, only the maximum of each row is checked: it is NaN if any number is, and +inf if any
    number is. Single numbers of -inf pass, since they rule a token out; a row of -inf alone fails.
    """
    is_broken = ~outputs.amax(-1).isfinite()  # (rows,)
    outputs[is_broken] = 0.0
    return is_broken.nonzero().flatten().tolist()


def not_finite(model: VisionLanguageModel, step: int) -> str:
    """Return the failure of a row whose output is NaN or infinite.

    Args:
        model: the model that computed it.
        step: the new token at which this happened, counted from 1.
    """
    return (
        f"the model's output is not finite (NaN or infinity) at token {step}: its weights are"
        f" damaged, or {model.dtype} overflows: try dtype='float32'"
    )
