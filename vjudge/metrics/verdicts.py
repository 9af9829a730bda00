"""Verdicts on pairs, read: a, b, tie, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Column
from vjudge.metrics.caveats import warn
from vjudge.metrics.columns import is_blank, listed

CHOICES = ("a", "b", "tie")
# Beside these, the five answers of Arena-Hard, WildVision-Bench and their like, by who won.
SPELLINGS = {choice: choice for choice in (*CHOICES, "abstain")}
SPELLINGS |= {"A>>B": "a", "A>B": "a", "A=B": "tie", "B>A": "b", "B>>A": "b"}


def read_verdicts(
    verdicts: Column,
    *,
    meanings: Mapping[str, str] = SPELLINGS,
    people: bool = False,
) -> tuple[Any, Any, dict[str, int]]:
    """Each choice or None, by its spelling in any capitals; which are choices; others counted.

    A judge's malformed verdicts are counted and warned of. ValueError: a column of which nothing
    can be read, or a person's choice that can't be.
    """
    folded = {spelling.casefold(): word for spelling, word in meanings.items()}
    read: list[str | None] = []
    for verdict in verdicts:
        word = None
        if is_blank(verdict):
            word = "missing"
        elif isinstance(verdict, str):
            word = folded.get(verdict.casefold())
        read.append(word)
    counts = Counter(read)
    malformed = [position for position, word in enumerate(read) if word is None]
    if malformed:
        bad = f"{len(malformed)} of {len(read)}"
        cells = list(verdicts)
        if people or len(malformed) + counts["missing"] == len(read):
            kind = "preferences" if people else "verdicts"
            raise ValueError(
                f"{kind}: {bad} are none of {', '.join(meanings)}, such as"
                f" {listed(malformed[:1], cells)}: write them so, or as None"
            )
        some = listed(malformed, cells, limit=3)
        warn(f"{bad} verdicts can't be read and count as none: {some}")
    account = {"abstained": counts["abstain"], "malformed": len(malformed)}
    choice = np.array(read, dtype=object)
    choice[np.isin(choice, ["missing", "abstain"])] = None
    return choice, pd.notna(choice), account
