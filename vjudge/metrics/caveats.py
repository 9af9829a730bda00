"""Known limits of numbers: kept beside a table, and warned of once."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from itertools import chain

import pandas as pd
from numpy.typing import NDArray

from vjudge.metrics.resampling import effective_number


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the caller outside this package."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("vjudge."):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


UNEQUAL = 0.7  # effective number of groups over their number, below which it is said


def add_caveats(table: pd.DataFrame | pd.Series, texts: Iterable[str]) -> None:
    """Put known limits that apply to these data beside a table's numbers, and warn of each once.

    They stand in `attrs["caveats"]`, a list of texts; one that is there already is not repeated.
    """
    caveats = table.attrs.setdefault("caveats", [])
    for text in texts:
        if text not in caveats:
            caveats.append(text)
            warn(text)


def merged_caveats(tables: Iterable[pd.DataFrame]) -> list[str]:
    """The caveats of several tables that become one, each once."""
    texts = chain.from_iterable(table.attrs.get("caveats", ()) for table in tables)
    return list(dict.fromkeys(texts))


def unequal_group_caveats(sizes: Sequence[float] | NDArray) -> list[str]:
    """The caveat of groups of very unequal size, if they are.

    >>> unequal_group_caveats([2] * 50), unequal_group_caveats([50] + [1] * 50)
    ([], ['groups of very unequal size: 51 weigh as much as 4 equal ones, so that the interval may \
hold less than it says'])
    """
    if not len(sizes) or effective_number(sizes) >= UNEQUAL * len(sizes):
        return []
    return [
        f"groups of very unequal size: {len(sizes)} weigh as much as {effective_number(sizes):.0f}"
        " equal ones, so that the interval may hold less than it says"
    ]


def warn_of_rows(rows: pd.Index, message: str) -> None:
    """Warn of rows of a table, if there are any."""
    if len(rows):
        warn(f"{', '.join(map(str, rows))}: {message}")
