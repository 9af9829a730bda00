"""What other rooms compute from a run's columns: units of resampling, and closed verdicts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from vjudge.records import is_missing


def groups_of(run: pd.DataFrame) -> np.ndarray:
    """Return the unit of resampling of each row of a run: its group, or its id if it has none.

    Returns:
        Texts, one per row.
    """
    units = run["id"].map(str)
    if "group" in run:
        groups = run["group"]
        units = groups.map(str, na_action="ignore").where(~groups.map(is_missing), units)
    return units.to_numpy(dtype=object)


def closed_in(run: pd.DataFrame) -> str:
    """Write how many verdicts of a run were closed (`unread="close"`); "" where none was."""
    count = int(run["closed"].eq(True).sum()) if "closed" in run else 0
    return f"{count:,} of {len(run):,} verdicts were closed" if count else ""
