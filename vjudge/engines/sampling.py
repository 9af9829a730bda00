"""How the tokens of an answer are drawn: one set of options, and which values they may take."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the tokens of an answer are drawn.

    Args:
        temperature: the divisor of the logits, above 0; or 0 for greedy decoding.
        top_p: nucleus sampling: tokens are drawn from the smallest set of the most probable ones
            that has at least this probability; in (0, 1].
        repetition_penalty: above 0; 1 for none. The logit of a token that the prompt or the answer
            already holds is divided by it if positive, else multiplied. The `LLaVA` families in
            transformers count the tokens of the answer alone.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    def check(self) -> list[str]:
        """Return a text per invalid option that names its value and what to use instead."""
        # option -> whether its value is valid, and the values to use
        rules = {
            "temperature": (_is_number(self.temperature), "0 for greedy, or a number above 0"),
            "top_p": (_is_number(self.top_p) and 0 < self.top_p <= 1, "a number in (0, 1]"),
            "repetition_penalty": (
                _is_number(self.repetition_penalty) and self.repetition_penalty > 0,
                "1 for none, or a number above 0",
            ),
        }
        faults = []
        for name, (is_valid, remedy) in rules.items():
            if not is_valid:
                faults.append(f"{name}={getattr(self, name)!r}: use {remedy}")
        return faults


def _is_number(value: object) -> bool:
    """Tell whether an option is a finite number, 0 or more; True and False are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < math.inf
