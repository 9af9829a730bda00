"""Read verdicts on pairs as choices: a, b, tie, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Booleans, Column
from vjudge.metrics.caveats import warn
from vjudge.metrics.columns import is_blank, list_cells
from vjudge.prompts.choices import DEGREES

CHOICES = ("a", "b", "tie")
# Spelling -> choice. DEGREES are the five answers of Arena-Hard, WildVision-Bench and their like.
SPELLINGS = {choice: choice for choice in (*CHOICES, "abstain")} | DEGREES


def read_choices(
    verdicts: Column,
    *,
    meanings: Mapping[str, str] = SPELLINGS,
    people: bool = False,
) -> tuple[np.ndarray, Booleans, dict[str, int]]:
    """Read each verdict as the choice that it spells, in any capitals.

    Args:
        verdicts: n verdicts; missing and blank ones are no choice.
        meanings: spelling -> choice. The meaning "abstain" is no choice, and is counted separately.
        people: whether people gave the verdicts. A malformed verdict of a person is an error; one
            of a judge raises a warning and is no choice.

    Returns:
        The choice of each verdict, or None, shape (n,); whether each has a choice, shape (n,); and
        the numbers of verdicts that are `abstained` and `malformed`.

    Raises:
        ValueError: all verdicts that are not missing are malformed, or one of a person is.

    >>> choice, has_choice, counts = read_choices(["A>B", "tie", None, "abstain"])
    >>> choice.tolist(), counts
    (['a', 'tie', None, None], {'abstained': 1, 'malformed': 0})
    """
    choice_of = {spelling.casefold(): choice for spelling, choice in meanings.items()}
    # 1) Sort each verdict: a choice, "abstain", "missing" or "malformed"
    outcomes = []
    for verdict in verdicts:
        outcome = "malformed"
        if is_blank(verdict):
            outcome = "missing"
        elif isinstance(verdict, str):
            outcome = choice_of.get(verdict.casefold(), "malformed")
        outcomes.append(outcome)
    # 2) Refuse a column in which every verdict is malformed or missing, since it must have another
    #    spelling; and any malformed verdict of a person
    counts = Counter(outcomes)
    n_malformed = counts["malformed"]
    if n_malformed:
        positions = [i for i, outcome in enumerate(outcomes) if outcome == "malformed"]
        bad = f"{n_malformed} of {len(outcomes)}"
        cells = list(verdicts)
        if people or n_malformed + counts["missing"] == len(outcomes):
            kind = "preferences" if people else "verdicts"
            raise ValueError(
                f"{kind}: {bad} are none of {', '.join(meanings)}, such as"
                f" {list_cells(positions[:1], cells)}: write them so, or as None"
            )
        examples = list_cells(positions, cells, limit=3)
        warn(f"{bad} verdicts can't be read and count as none: {examples}")
    # 3) Replace all outcomes that are no choice by None
    choices = np.array(outcomes, dtype=object)
    choices[np.isin(choices, ["missing", "malformed", "abstain"])] = None
    has_choice = pd.notna(choices)
    return choices, has_choice, {"abstained": counts["abstain"], "malformed": n_malformed}
