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
from typing import TYPE_CHECKING

from vjudge.records import Verdict

if TYPE_CHECKING:
    from vjudge.engines.engine import Answer, Ask, Texts


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


def scales_to_close(ask: Ask, row: int) -> Mapping[str, Texts]:
    """Return the scales on which a row's answer can be closed.

    Args:
        ask: the options of the call.
        row: the position of the prompt in the call.

    Returns:
        criterion -> its scale, each score with its text, such as {1: " 1"}; "" stands for the only
        verdict of a row without named criteria. Empty where the row has no scale, or where the
        call closes no answers.
    """
    if ask.closing is None or ask.mode != "feedback":
        return {}
    rubric = ask.rubric(row)
    if rubric is None:
        return {"": ask.scale(row)} if ask.scale(row) else {}
    scales = {}
    for name, criterion in rubric.by_name.items():
        scales[name] = {score: f" {score}" for score in criterion.scores}
    return scales


def has_to_be_closed(ask: Ask, answer: Answer) -> bool:
    """Tell whether an answer holds no verdict and can be closed; a refusal is not to be closed.

    To find out, the answer is read. Its verdict is stored in `answer.verdict`, so that it need not
    be read a second time.
    """
    row = answer.index
    if ask.closing is None or not scales_to_close(ask, row):
        return False
    answer.verdict, is_open = ask.closing.read(
        answer.text,
        finish=answer.finish,
        scores=tuple(ask.scale(row)),
        rubric=ask.rubric(row),
    )
    return is_open


def most_probable(logprobs: Mapping[int, float]) -> int:
    """Return the most probable score; of equally probable ones the lowest.

    Args:
        logprobs: score -> log-probability, at least one.

    >>> most_probable({2: -0.7, 1: -0.7, 3: -5.0})
    1
    """
    return max(sorted(logprobs), key=logprobs.__getitem__)
