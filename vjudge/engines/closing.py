"""Close an answer that holds no verdict (`unread="close"`): add a marker, and read the scale there.

The text of the answer stays as it was written. The marker is put after it, and the engine reads
the distribution over the row's scale at that place; the most probable score is the verdict.

    ... the cat is asleep.           the answer, without a verdict
    ... the cat is asleep.\\n[RESULT]  what the model reads next: P(" 1") = .1, P(" 4") = .7, ...
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vjudge.records import Verdict


@dataclass(frozen=True)
class Closing:
    """How the answers of a call are closed.

    Args:
        read: `read(text, finish=..., scores=..., rubric=...)` returns the verdict of an answer, and
            whether the answer has to be closed; `vjudge.prompts.parse.parse_to_close` explains the
            arguments.
        marker: the text that is put before the verdict of an answer with one score.
        criterion: the text that is put before the score of one named criterion; in it, `{name}`
            stands for the criterion's name as a JSON string.
    """

    read: Callable[..., tuple[Verdict, bool]]
    marker: str = "\n[RESULT]"
    criterion: str = ""

    def marker_of(self, name: str) -> str:
        """Return the text that is put before a score.

        Args:
            name: the criterion that is scored; "" for the only verdict of an answer.
        """
        if not name:
            return self.marker
        return self.criterion.format(name=json.dumps(name, ensure_ascii=False))


def most_probable(logprobs: Mapping[int, float]) -> int:
    """Return the most probable score; of equally probable ones the lowest.

    Args:
        logprobs: score -> log-probability, at least one.

    >>> most_probable({2: -0.7, 1: -0.7, 3: -5.0})
    1
    """
    return max(sorted(logprobs), key=logprobs.__getitem__)
