"""What every probe returns: one table with the same columns, a row a case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from vjudge.probes.estimates import NAN, Estimate

COLUMNS = (
    "judge",
    "probe",
    "case",
    "must",
    "effect",
    "low",
    "high",
    "unit",
    "p",
    "n",
    "groups",
    "missing",
    "moved",
    "reading",
    "note",
)
"""A probe's columns.

- judge, probe, case: who was probed, for which bias, and by what change or in which stratum
- must: "move" where a sound judge's score must change, "stay" where it must not, None for a description
- effect, low, high, unit: the estimate and its interval; p: two-sided, of no effect; NaN where there is no such null
- n, groups: rows and independent groups used; missing: rows without a score, left out
- moved: share of items whose score changed by half a level or more; NaN where nothing is compared
- reading: what effect and p say together; note: what the row's meaning depends on, or what it lacks
"""

TEXTS = ("judge", "probe", "case", "must", "unit", "reading", "note")
LEVEL = 0.05  # of the readings; the p values are there for any other


class Unmet(ValueError):
    """A probe lacks something; the message says what it needs and how to give it."""


def row(
    estimate: Estimate,
    *,
    judge: str,
    probe: str,
    case: str,
    must: str | None,
    unit: str,
    missing: int = 0,
    moved: float = NAN,
    note: str = "",
) -> dict[str, Any]:
    """One row of a probe's table."""
    return {
        **{"judge": judge, "probe": probe, "case": case, "must": must},
        **{name: getattr(estimate, name) for name in ("effect", "low", "high")},
        **{"unit": unit, "p": estimate.p, "n": estimate.n, "groups": estimate.groups, "missing": missing},
        **{"moved": moved, "reading": reading(estimate, must, moved), "note": note},
    }


def reading(estimate: Estimate, must: str | None, moved: float = NAN) -> str:
    """What an estimate says about what must be, at the 5 % level, in words.

    Scores that move both ways may leave an average where it was: the share that moved is then said beside it.
    """
    if math.isnan(estimate.effect):
        return "undefined"
    if must is None or math.isnan(estimate.p):
        return "described"
    found = estimate.p < LEVEL
    if must == "move":
        return "moves, as it must" if found else "no shift shown, though it must move"
    if found:
        return "moves, though it must stay"
    return f"no shift shown; {moved:.0%} of items moved" if moved > 0 else "no shift shown"


def unmet(probe: str, reason: str, *, judge: str) -> dict[str, Any]:
    """The row of a probe that did not apply."""
    made = row(Estimate(NAN, NAN, NAN, NAN, 0, 0), judge=judge, probe=probe, case="", must=None, unit="", note=reason)
    return made | {"reading": "not run"}


def table(rows: Iterable[Mapping[str, Any]], *, confidence: float, seed: int) -> pd.DataFrame:
    """Rows as a table; `attrs` has confidence, seed and the method in words for a caption."""
    listed = list(rows)
    frame = pd.DataFrame(
        {name: pd.Series([row[name] for row in listed], dtype=object if name in TEXTS else None) for name in COLUMNS}
    )
    frame.attrs = {
        "confidence": confidence,
        "seed": seed,
        "method": f"{confidence:.0%} intervals by a jackknife over groups with Student's t; seed {seed}",
    }
    return frame
