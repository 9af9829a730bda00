"""Keep the known limits of numbers beside their table, and warn of each once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd
from numpy.typing import NDArray

from vjudge.data.notes import warn as warn  # statistics import it from this file
from vjudge.metrics.intervals import effective_number

# The effective number of groups over their number, below which a caveat warns of unequal sizes
UNEQUAL = 0.7


def warn_of_rows(rows: pd.Index, message: str) -> None:
    """Warn with a message that names these rows of a table; do nothing if there are none."""
    if len(rows):
        warn(f"{', '.join(map(str, rows))}: {message}")


def add_caveats(table: pd.DataFrame | pd.Series, caveats: Iterable[str]) -> None:
    """Add caveats to a table's `attrs["caveats"]`, a list of texts, and warn of each new one."""
    present = table.attrs.setdefault("caveats", [])
    for caveat in caveats:
        if caveat not in present:
            present.append(caveat)
            warn(caveat)


def merged_caveats(tables: Iterable[pd.DataFrame]) -> list[str]:
    """List the caveats of several tables in their order, without repeats."""
    merged: list[str] = []
    for table in tables:
        merged += table.attrs.get("caveats", ())
    return list(dict.fromkeys(merged))


def unequal_group_caveats(sizes: Sequence[float] | NDArray) -> list[str]:
    """Return a list of one caveat if groups are of very unequal size, else an empty list.

    Args:
        sizes: how many items each group has.

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
