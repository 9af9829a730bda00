"""What every probe returns: one table with the same columns, a row a case, and a verdict on each: moves, stays, or
can't say.

"Moves" needs a p value of no effect below .05 after Holm's correction over all tests of the table, so that one honest
judge in twenty at most is accused of anything. "Stays" needs the whole interval inside a stated margin: that an effect
was not shown does not show that there is none. Where a score must move, the margin is the least effect that counts, and
p is that of an effect of just this size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics._tables import holm
from vjudge.probes._cluster import NAN, Effect

COLUMNS = {
    "judge": object, "probe": object, "case": object, "must": object, "effect": float, "low": float, "high": float,
    "unit": object, "p": float, "p_holm": float, "margin": float, "verdict": object, "n": int, "groups": int,
    "missing": int, "moved": float, "reading": object, "note": object,
}  # fmt: skip
"""A probe's columns.

- judge, probe, case: who was probed, for which bias, and by what change or in which stratum
- must: "move" where a sound judge's score must change, "stay" where it must not, None for a description
- effect, low, high, unit: the estimate and its interval
- margin: the largest effect that counts as none where the score must stay, the least loss where it must move
- p: two-sided, of no effect where the score must stay, of an effect of `margin` where it must move; NaN for a
  description; p_holm: after Holm's correction over the tests of the table
- verdict: "moves", "stays" or "can't say"; None for a description
- n, groups: rows and independent groups used; missing: rows without a score, left out
- moved: share of items whose score changed by half a level or more; NaN where nothing is compared
- reading: the verdict against what must be, in words; note: what the row's meaning depends on, or what it lacks
"""

MARGINS = {"score points": 0.2, "score per doubling": 0.2, "score per gold point": 0.1, "share less one half": 0.05}
"""Unit -> the largest effect that counts as none, for scales of about five levels: a fifth of a level, a
tenth of the slope on gold, and 45 to 55 % for one of two responses."""
LEAST = 0.25
"""The least share of its agreement with gold that a judge must lose with a part that it must look at (of what it loses
if it knows all from that part)."""
NEEDS = ("image", "rubric")
"""Parts without which a collection can't be judged, as a rule. Not among them: the query, where rubric and response say
what was asked, and the criterion, where good answers are good by all criteria."""
LEVEL = 0.05  # of the verdicts; the p values are there for any other


class Unmet(ValueError):
    """A probe lacks something; the message says what it needs and how to give it."""


def unmet(probe: str, case: str, reason: str, *, judge: str) -> dict[str, Any]:
    """The row of a probe that did not apply."""
    line = Effect(NAN, NAN, NAN, NAN, 0, 0)._asdict() | {"judge": judge, "probe": probe, "case": case, "must": None}
    return line | {"unit": "", "margin": NAN, "missing": 0, "moved": NAN, "note": reason, "reading": "not run"}


def verdict(line: Mapping[str, Any]) -> str | None:
    """The verdict on a row with its p_holm: "moves", "stays" or "can't say"; None for a description.

    >>> line = {"must": "stay", "effect": 0.05, "low": -0.02, "high": 0.12, "margin": 0.2, "p_holm": 1.0}
    >>> verdict(line), verdict(line | {"high": 0.3}), verdict(line | {"low": 0.15, "high": 0.4, "p_holm": 0.001})
    ('stays', "can't say", 'moves')
    """
    if not line["must"]:
        return None
    sure = line["p_holm"] < LEVEL
    if line["must"] == "move":
        return "can't say" if not sure else "moves" if line["effect"] < -line["margin"] else "stays"
    if -line["margin"] < line["low"] and line["high"] < line["margin"]:
        return "stays"
    return "moves" if sure else "can't say"


def _reading(line: Mapping[str, Any]) -> str:
    """A row's verdict against what must be, in words, with the share that moved where the average stayed."""
    if np.isnan(line["effect"]):
        return "undefined"
    must, short = line["must"], line["verdict"]
    if not must:
        return "described"
    if short == "can't say":
        return short
    if f"{must}s" != short:
        return f"{short}, though it must {must}"
    if must == "move":
        return "moves, as it must"
    return "stays" + (f"; {line['moved']:.0%} of items moved" if line["moved"] > 0 else "")


def table(rows: Iterable[Mapping[str, Any]], *, confidence: float, seed: int) -> pd.DataFrame:
    """Rows as a table, with Holm's p over all of them and the verdicts.

    `attrs` has confidence, seed, n_tests, the method in words for a caption, and two lists of (probe, case): `against`,
    whose verdict is against what must be, and `open`, of which nothing can be said.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979). Two one-sided tests by an interval inside a margin:
    Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987); at 95 %, each of the two at 2.5 %.
    """
    lines = [dict(line) for line in rows]
    for line, p_holm in zip(lines, holm(np.array([line["p"] for line in lines], dtype=float)), strict=True):
        line["p_holm"] = p_holm
        line["verdict"] = verdict(line)
        if line.get("reading") != "not run":
            line["reading"] = _reading(line)
    frame = pd.DataFrame(
        {name: pd.Series([line[name] for line in lines], dtype=kind) for name, kind in COLUMNS.items()}
    )
    judged = [line for line in lines if line["must"]]
    against = [line for line in judged if line["verdict"] not in (f"{line['must']}s", "can't say")]
    frame.attrs = {
        "confidence": confidence,
        "seed": seed,
        "n_tests": int(frame["p"].notna().sum()),
        "against": [(line["probe"], line["case"]) for line in against],
        "open": [(line["probe"], line["case"]) for line in judged if line["verdict"] == "can't say"],
        "method": f"{confidence:.0%} intervals by a jackknife over groups with Student's t; seed {seed}",
    }
    return frame
