"""Compare judges with the truth item by item, after putting their scores on its scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from vjudge.analysis.tables import RatingTable, names_of, truth_of
from vjudge.results import NotComputed


@dataclass(frozen=True)
class ComparableScores:
    """The scores of the judges that can be compared with the truth item by item.

    Attributes:
        truth: the truth of each item, NaN where it is missing.
        truth_name: what the truth is, such as "the mean of 3 people".
        rows: one row per judge and item: id, judge, score, gold (the truth), group, and where the
            table has them response, lowest and highest (the ends of the scale).
        caveats: which judges were rescaled, and which were left out for which reason.
    """

    truth: Series
    truth_name: str
    rows: DataFrame
    caveats: list[str]


def comparable_scores(table: RatingTable) -> ComparableScores:
    """Collect the scores of the judges that share a scale with the truth, in long form.

    Raises:
        NotComputed: no judge shares a scale with the truth, or there is no truth.
    """
    truth, truth_name = truth_of(table)
    columns, caveats = comparable_columns(table, truth)
    # (n_items, n_judges) becomes one row per judge and item, which keeps the item's index
    rows = columns.melt(var_name="judge", value_name="score", ignore_index=False)
    rows["gold"] = truth.reindex(rows.index)
    rows["group"] = rows.index if table.groups is None else table.groups.reindex(rows.index)
    if table.response is not None:
        rows["response"] = table.frame[table.response].reindex(rows.index)
    if table.scale is not None:
        rows["lowest"], rows["highest"] = table.scale
    return ComparableScores(truth, truth_name, rows.rename_axis("id").reset_index(), caveats)


def comparable_columns(table: RatingTable, truth: Series) -> tuple[DataFrame, list[str]]:
    """Return the scores of each judge that can share a scale with the truth, and the caveats.

    Returns:
        Scores (n_items, n_judges) on people's scale; and one caveat that names the judges rescaled,
        and one per reason that names the judges left out.

    Raises:
        NotComputed: no judge shares a scale with the truth.
    """
    reasons = Series({judge: _incomparable_reason(table, judge, truth) for judge in table.judges})
    judges = list(reasons.index[reasons == ""])
    if not judges:
        raise NotComputed(
            "no judge has scores on people's scale: name the scales (scale=, scales=);"
            " correlate() and compare() need none"
        )
    caveats = []
    # The judges whose scores `rescaled` changes
    moved = [judge for judge in judges if _has_other_scale(table, judge)]
    if moved:
        caveats.append(f"put on people's scale by the ends of their own: {names_of(moved)}")
    for reason, left_out in reasons.drop(judges).groupby(reasons):
        caveats.append(f"{reason}, and left out: {names_of(left_out.index)}")
    return DataFrame({judge: rescaled(table, judge) for judge in judges}), caveats


def rescaled(table: RatingTable, judge: str) -> Series:
    """Map a judge's scores linearly to people's scale, lowest to lowest and highest to highest.

    A 7 on the scale 0 to 10 becomes 1 + (7 - 0) * (5 - 1) / (10 - 0) = 3.8 on the scale 1 to 5.
    Scores are unchanged where either scale is unknown.
    """
    scores = table.frame[judge]
    if table.scale is None or not _has_other_scale(table, judge):
        return scores
    judge_lowest, judge_highest = table.scales[judge]
    lowest, highest = table.scale
    return lowest + (scores - judge_lowest) * (highest - lowest) / (judge_highest - judge_lowest)


def human_levels(table: RatingTable) -> list[float]:
    """List the whole levels of people's scale, lowest first; empty where the scale is unknown."""
    if table.scale is None:
        return []
    lowest, highest = table.scale
    return [*np.arange(lowest, highest + 1)]


def _has_other_scale(table: RatingTable, judge: str) -> bool:
    """Tell whether a judge's scale is known, and is another than people's."""
    scale = table.scales.get(judge)
    return scale is not None and table.scale is not None and scale != table.scale


def _incomparable_reason(table: RatingTable, judge: str, truth: Series) -> str:
    """Say why a judge's scores can't be compared with the truth item by item; "" if they can.

    Where a scale is unknown, the ranges of scores decide: their overlap has to be at least half of
    the wider range. Scores from 1 to 5 and a truth from 2 to 5 overlap by 3 of 4, and compare;
    scores from 0 to 100 do not.
    """
    pairs = pd.concat([table.frame[judge], truth], axis=1).dropna()  # (n_items, 2)
    if pairs.empty:
        return "without a score of an item that has a truth"
    # The smaller of the two maxima minus the larger of the two minima; below 0 where they are apart
    overlap = pairs.max().min() - pairs.min().max()
    widest = (pairs.max() - pairs.min()).max()
    if 2 * overlap >= widest or (judge in table.scales and table.scale is not None):
        return ""
    return "on another scale than the truth"
