"""What several choices between two responses say together: "a", "b", "tie", "abstain" or None."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

SIGNED_POINTS = {"a": 1, "b": -1, "tie": 0}


def sign(points: float) -> str:
    """Turn points of the first response into a choice: above 0 is "a", below 0 "b", 0 a tie."""
    if points == 0:
        return "tie"
    return "a" if points > 0 else "b"


def majority(choices: Sequence[str | None]) -> str | None:
    """Find the choice with the most votes; of several such choices, a tie.

    Only "a", "b" and "tie" are votes. Without a vote the result is an abstention if somebody
    abstained, else None.

    >>> majority(["a", "a", "b"]), majority(["a", "b", None]), majority(["abstain"]), majority([])
    ('a', 'tie', 'abstain', None)
    """
    leading = statistics.multimode(choice for choice in choices if choice in SIGNED_POINTS)
    if not leading:
        return "abstain" if "abstain" in choices else None
    return leading[0] if len(leading) == 1 else "tie"


def combine(choices: Sequence[str | None]) -> tuple[str | None, bool | None]:
    """Combine the verdicts of a pair's orders.

    A choice and a tie give that choice, two opposite choices a tie. One missing verdict makes the
    result missing, one abstention an abstention.

    Returns:
        The combined verdict, and whether the verdicts agree: None of a single verdict, or where one
        is missing.

    >>> combine(["a", "a"]), combine(["a", "tie"]), combine(["a", "b"]), combine(["a", None])
    (('a', True), ('a', False), ('tie', False), (None, None))

    Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning, sums points likewise.
    """
    if None in choices:
        return None, None
    agree = len(set(choices)) == 1 if len(choices) > 1 else None
    if "abstain" in choices:
        return "abstain", agree
    return sign(sum(SIGNED_POINTS[choice] for choice in choices if choice)), agree
