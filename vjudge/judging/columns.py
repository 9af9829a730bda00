"""What other rooms read off a run's columns: its units of resampling, and its closed verdicts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from vjudge.records import is_missing


def groups_of(run: pd.DataFrame) -> np.ndarray:
    """The unit of resampling of each row of a run: its group, its id where it names none."""
    units = run["id"].map(str)
    if "group" in run:
        groups = run["group"]
        units = groups.map(str, na_action="ignore").where(~groups.map(is_missing), units)
    return units.to_numpy(dtype=object)


def closed_in(run: pd.DataFrame) -> str:
    """How many verdicts of a run were closed (`unread="close"`), in words; "" where none was."""
    count = int(run["closed"].eq(True).sum()) if "closed" in run else 0
    return f"{count:,} of {len(run):,} verdicts were closed" if count else ""
