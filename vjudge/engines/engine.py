"""Engine: the one interface between a judge and whatever runs its model."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from tqdm.auto import tqdm

from vjudge.engines.answer import Answer
from vjudge.prompts import Prompt


class Engine(ABC):
    """Prompts in; texts, token counts and score probabilities out.

    What an engine can't give is an error before the first answer, never a silent substitute. A row that can't be
    answered (too long, a broken image, not enough memory) is an `Answer` with `failure` and stops nothing else.
    Answers come in any order, as soon as they exist; `index` says whose they are, and each is given once.
    """

    name: ClassVar[str]
    # Given before a call that continues a run: the batch size that the run chose (`Work.batch_found`). With it the call
    # repeats the bits of an unbroken one. It holds for one call.
    batch_found: float | None = None

    @abstractmethod
    def generate(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        *,
        score_texts: Mapping[int, str],
        marker: str,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        seeds: Sequence[int] | None = None,
        batch_size: int | str = "auto",
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Generate a text for every prompt, and the distribution over the scores where it writes its verdict.

        Args:
            prompts: one a row; the same prompt may stand several times (samples).
            images: for each prompt what `open_image` opens, one for each IMAGE part; indexed only when needed.
            score_texts: score -> what follows the marker, such as {1: " 1", ..., 5: " 5"}.
            marker: the text before every verdict.
            max_new_tokens: the most tokens a row may generate, at least 1; the model's context bounds it too.
            temperature: 0 for greedy, otherwise the divisor of the logits, above 0.
            top_p: the smallest set of tokens with at least this probability is drawn from; in (0, 1].
            repetition_penalty: above 0; a logit of a token that the prompt or the answer holds already is divided by it
                where positive, else multiplied; 1 for none. LLaVA's families count the answer's tokens alone where this
                machine runs them, because their published code generates from embeddings.
            seeds: one a row, at least 0, which alone decides the row's draws as far as the engine can promise it. None
                uses the row's position.
            batch_size: rows at once, or "auto" for the engine's own choice.
            wanted: rows to answer; None for all. The rest are at most computed as company of wanted rows, so that a
                continued run computes what an unbroken one does.

        Returns:
            An iterator over answers in batches, as they are finished.

        Raises:
            ValueError: the scores can't be told apart by one token.
        """

    @abstractmethod
    def score(
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        *,
        score_texts: Mapping[int, str],
        marker: str,
        batch_size: int | str = "auto",
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Read the distribution over the scores right after prompts that end in the marker.

        Arguments, returns and errors as in `generate`; texts are empty, unless the engine says otherwise.
        """

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What of this engine decides its answers, as plain JSON values, for a run's manifest.

        Two calls with equal identities and equal prompts may continue one run. It holds "engine" and "versions" (the
        libraries that compute), and no secrets.
        """


def say(line: str) -> None:
    """Write a line on standard error, past a progress bar."""
    tqdm.write(line, file=sys.stderr)


def whole(value: Any, least: int) -> bool:
    """Whether an option is a whole number, `least` or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
