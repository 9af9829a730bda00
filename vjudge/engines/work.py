"""What a call computed, and how long that took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from vjudge.engines.engine import Answer


@dataclass
class Work:
    """What a call of the torch engine computed.

    Args:
        prompt_tokens: of all prompts, image tokens included.
        computed_tokens: of them computed, each shared one once.
        new_tokens: of answers.
        images: encoded.
        at_once: the most answers in one pass.
        batch_found: the batch size that the call found fastest, as a multiple of the planned one; 0 where none was
            measured, or not yet.
        image_seconds, prompt_seconds, answer_seconds: of wall time; images' preparation included.
    """

    prompt_tokens: int = 0
    computed_tokens: int = 0
    new_tokens: int = 0
    images: int = 0
    at_once: int = 0
    batch_found: float = 0.0
    image_seconds: float = 0.0
    prompt_seconds: float = 0.0
    answer_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Wall time of all passes."""
        return self.image_seconds + self.prompt_seconds + self.answer_seconds

    def add_batch(self, answers: Iterable[Answer]) -> None:
        """Take note of a plain batch, each row computed whole; its time is not told apart."""
        answers = list(answers)
        self.at_once = max(self.at_once, len(answers))
        for answer in answers:
            self.prompt_tokens += answer.n_prompt_tokens
            self.computed_tokens += answer.n_prompt_tokens
            self.new_tokens += answer.n_new_tokens
            self.answer_seconds += answer.seconds

    def as_dict(self) -> dict[str, float]:
        """Its counts by name."""
        return asdict(self)
