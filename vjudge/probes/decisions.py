"""The table of a probe: margins within which an effect counts as none, and the verdict on each row.

"Moves" needs a p value below .05 after Holm's correction over all tests of the table, so that at
most one honest judge in twenty is accused of anything. "Stays" needs the whole interval inside a
stated margin: that no effect was shown does not show that there is none. False alarms were measured
on simulated judges: figures/validity.csv.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from vjudge.metrics.multiple_testing import ALPHA, holm
from vjudge.records import is_missing

# --- what changes of scores are measured against


# units of effects
AGREEMENT = "score per gold point"
SCORE_POINTS = "score points"
DOUBLING = "score per doubling"
# margins
MIN_LOSS = 0.25  # the share of its agreement with gold that a judge must lose without the image
MARGIN_OF_WIDTH = 0.05  # of the scale's width
MARGIN_OF_SPREAD = 0.2  # of the scores' standard deviation, where a scale has no width
MARGIN_OF_SLOPE = 0.1  # of the slope of scores that follow gold one to one


class Ruler(NamedTuple):
    """The width of one judge's scale, which margins and steps of scores are shares of.

    Attributes:
        width: highest minus lowest score; without a scale the standard deviation of the scores.
        bounded: whether there is a scale.
    """

    width: float
    bounded: bool

    @property
    def step(self) -> float:
        """The change of a score that is assumed possible where none was seen.

        It is one point (the scale's width, if that is less), but at least a quarter of the width:
        1 on 1 to 5, 1 on 1 to 3, 2.5 on 0 to 10. Without a scale it is the standard deviation.
        """
        if not self.bounded:
            return self.width
        return max(min(1.0, self.width), self.width / 4)

    def margin(self, unit: str, gold: pd.Series | None = None) -> tuple[float, str]:
        """Return the margin of an effect, and what it is a share of.

        Args:
            unit: of the effect: `AGREEMENT`, or any other.
            gold: the true scores, where the unit is `AGREEMENT`: the effect is a change of the
                slope of scores on gold.
        """
        if unit == AGREEMENT:
            slope = self.width / self._width_of(gold)
            share = f"{MARGIN_OF_SLOPE:.0%} of the slope of a judge that follows gold one to one"
            return MARGIN_OF_SLOPE * slope, share
        if self.bounded:
            share = f"{MARGIN_OF_WIDTH:.0%} of the scale's width of {self.width:g}"
            return MARGIN_OF_WIDTH * self.width, share
        share = f"{MARGIN_OF_SPREAD:.0%} of the scores' standard deviation of {self.width:.3g}"
        return MARGIN_OF_SPREAD * self.width, share

    def _width_of(self, gold: pd.Series | None) -> float:
        """Return gold's width: the scores' width if gold seems to lie on the same scale.

        It seems so where gold's range is between half the scores' width and all of it: gold of 1 to
        4 beside scores of 1 to 5 has the width 4, gold of 0 to 100 the width 100.
        """
        if gold is None or gold.nunique() < 2:
            return self.width
        if not self.bounded:
            return float(gold.std())
        span = float(gold.max() - gold.min())
        return self.width if self.width / 2 <= span <= self.width else span


# --- the table and its verdicts


Must = Literal["move", "stay"]
ProbeRow = dict[str, Any]
BIAS_COLUMNS = (
    "deviation deviation_low deviation_high conformity conformity_low conformity_high"
).split()
INTEGER_COLUMNS = ["n", "groups", "missing"]
FLOAT_COLUMNS = ["effect", "low", "high", "p", "p_holm", "margin", *BIAS_COLUMNS]
PROBE_COLUMNS = (
    "judge probe case perturbation must effect low high unit p p_holm margin margin_of verdict"
    " passes n groups missing finding reading note"
).split() + BIAS_COLUMNS
"""A probe's columns.

- perturbation: a key of `PERTURBATIONS`, None where nothing was changed
- must: "move" where a valid judge's score must change, "stay" where it must not, None for a
  description
- low, high: the 95 % interval of the effect; n, groups: rows and independent groups that count
- missing: rows left out
- p: two-sided, of no effect where the score must stay, of an effect of `margin` where it must move;
  p_holm: corrected for all tests of a judge in the table
- margin: the largest effect that counts as none where the score must stay, the smallest loss where
  it must move; margin_of: what it is a share of
- verdict: "moves", "stays" or "can't say" of a test; else "described", "undefined" or "not run"
- passes: whether the verdict is what must be, NA where none was reached; reading: the same in words
- finding: the effect as a sentence with its direction, size and interval
- deviation, conformity: of a perturbation, as in `bias_scores`; NaN where no scale is known
"""


def probe_table(rows: Iterable[Mapping[str, Any]], method: str) -> pd.DataFrame:
    """Make the table of one judge's rows, with Holm's correction over all of them.

    Args:
        rows: from `ProbeRuns.row`, with the column `probe`.
        method: a phrase that says how intervals were made, kept in `attrs`.
    """
    table = pd.DataFrame(rows, columns=PROBE_COLUMNS, dtype=object)
    types = dict.fromkeys(FLOAT_COLUMNS, float) | dict.fromkeys(INTEGER_COLUMNS, int)
    table = judged(table.astype(types))
    table.attrs = {"method": method}
    return table


def judged(rows: pd.DataFrame) -> pd.DataFrame:
    """Add to a probe's rows the columns p_holm, verdict, passes and reading.

    An effect that is too small to matter is never called a failure, however small its p. A blanked
    image counts as seen only where swapped images move the scores too: grey is odd to look at.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979); two one-sided tests by an interval
    inside a margin: Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987).
    """
    rows = rows.assign(p_holm=holm(rows["p"].to_numpy(dtype=float)))
    # 1) the verdict on each row by itself
    verdicts = [_verdict(row) for row in rows.to_dict("records")]
    rows = rows.assign(verdict=pd.Series(verdicts, rows.index, dtype=object))

    # 2) a note on significant effects that may be too small to matter
    is_small = (rows["must"] == "stay") & (rows["verdict"] == "can't say")
    is_small &= rows["p_holm"] < ALPHA
    rows.loc[is_small, "note"] = "significant, but perhaps too small to count"

    # 3) blanked images decide nothing without swapped ones
    moving = rows["perturbation"].where(rows["verdict"] == "moves")
    if not (moving == "image_swapped").any():
        note = "only swapped images tell seeing from noticing an odd image"
        rows.loc[moving == "image_blanked", ["verdict", "note"]] = ["can't say", note]

    # 4) the verdict against what must be: "moves" against "move" + "s"
    is_decided = rows["verdict"].isin(["moves", "stays"])
    passes = (rows["verdict"] == rows["must"].astype(str) + "s").astype("boolean")
    rows = rows.assign(passes=passes.where(is_decided))
    readings = [_reading(row) for row in rows.to_dict("records")]
    return rows.assign(reading=pd.Series(readings, rows.index, dtype=object))


def _verdict(row: Mapping[str, Any]) -> str:
    """Decide one row by its interval and corrected p against its margin m.

    Where the score must move, the p is that of a loss of m at most. Where it must stay,

        -m        0        m
         |    [--+--]      |          stays: the whole interval is inside
         |        |        | [--+--]  moves, if p_holm < .05
         |        |     [--+--]       can't say: p_holm may be below .05, but the effect is not
         |        |        |          sure to matter
    """
    if row["unit"] == "":  # a row without an effect has no unit
        return "not run"
    effect = row["effect"]
    margin = row["margin"]
    if np.isnan(effect):
        return "undefined"
    if is_missing(row["must"]):
        return "described"
    is_significant = row["p_holm"] < ALPHA
    if row["must"] == "move":
        if not is_significant:
            return "can't say"
        # the test is two-sided: the loss is certainly above the margin, or certainly below it
        return "moves" if effect < -margin else "stays"
    if -margin < row["low"] and row["high"] < margin:
        return "stays"
    is_inside = abs(effect) < margin
    return "moves" if is_significant and not is_inside else "can't say"


def _reading(row: Mapping[str, Any]) -> str:
    """Put the verdict against what must be into words."""
    if is_missing(row["passes"]):
        return str(row["verdict"])
    if not row["passes"]:
        return f"{row['verdict']}, though it must {row['must']}"
    return "moves, as it must" if row["must"] == "move" else "stays"
