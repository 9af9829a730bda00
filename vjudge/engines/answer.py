"""Answer: what every engine gives back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """What the engine made of one prompt.

    Args:
        index: the prompt's position in the call.
        text: the generated text without the end-of-sequence token; empty in a score pass.
        n_prompt_tokens: positions the prompt took, image tokens included.
        n_new_tokens: tokens generated, the end-of-sequence token included.
        score_logprobs: for each score, the natural log of its token's probability in the whole vocabulary, at the step
            that wrote the verdict (temperature 1, no truncation); None where no verdict was written.
        stopped: whether the model ended the text itself, rather than a limit.
        seconds: the row's share of its batch's wall time.
        failure: None, or why there is no answer.
        transient: whether the failure was the transport's, so that asking again may bring an answer.
    """

    index: int
    text: str = ""
    n_prompt_tokens: int = 0
    n_new_tokens: int = 0
    score_logprobs: dict[int, float] | None = None
    stopped: bool = False
    seconds: float = 0.0
    failure: str | None = None
    transient: bool = False
