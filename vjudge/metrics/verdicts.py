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
SPELLINGS = {choice: choice for choice in (*CHOICES, "abstain")}
# The five answers of Arena-Hard, WildVision-Bench and their like, by who won
SPELLINGS |= DEGREES


def read_choices(
    verdicts: Column,
    *,
    meanings: Mapping[str, str] = SPELLINGS,
    people: bool = False,
) -> tuple[np.ndarray, Booleans, dict[str, int]]:
    """Read each verdict as the choice that it spells, in any capitals.

    Args:
        verdicts: n verdicts; missing and blank ones are no choice.
        meanings: spelling -> choice; "abstain" is no choice, but counted apart.
        people: whether people gave the verdicts. A malformed one is then an error; of a judge it
            is warned of and is no choice.

    Returns:
        The choice of each verdict, or None; which have a choice, a boolean array of shape (n,);
        and how many `abstained` and are `malformed`.

    Raises:
        ValueError: no verdict can be read, or one of a person can't.

    >>> choice, has_choice, counts = read_choices(["A>B", "tie", None, "abstain"])
    >>> choice.tolist(), counts
    (['a', 'tie', None, None], {'abstained': 1, 'malformed': 0})
    """
    choice_of = {spelling.casefold(): choice for spelling, choice in meanings.items()}
    # 1) Sort each verdict: a choice, "abstain", "missing" or "malformed"
    read = []
    for verdict in verdicts:
        choice = "malformed"
        if is_blank(verdict):
            choice = "missing"
        elif isinstance(verdict, str):
            choice = choice_of.get(verdict.casefold(), "malformed")
        read.append(choice)
    # 2) Refuse a column of nothing but malformed verdicts, which has another spelling, and any
    #    malformed choice of a person
    counts = Counter(read)
    n_malformed = counts["malformed"]
    if n_malformed:
        positions = [position for position, choice in enumerate(read) if choice == "malformed"]
        bad = f"{n_malformed} of {len(read)}"
        cells = list(verdicts)
        if people or n_malformed + counts["missing"] == len(read):
            kind = "preferences" if people else "verdicts"
            raise ValueError(
                f"{kind}: {bad} are none of {', '.join(meanings)}, such as"
                f" {list_cells(positions[:1], cells)}: write them so, or as None"
            )
        examples = list_cells(positions, cells, limit=3)
        warn(f"{bad} verdicts can't be read and count as none: {examples}")
    # 3) Only choices remain.
    choices = np.array(read, dtype=object)
    choices[np.isin(choices, ["missing", "malformed", "abstain"])] = None
    has_choice = pd.notna(choices)
    return choices, has_choice, {"abstained": counts["abstain"], "malformed": n_malformed}
