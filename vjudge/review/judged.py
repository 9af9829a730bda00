"""Judged items as tables: what each judge said of each item, and the texts of each item."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from vjudge.records import row_levels
from vjudge.review.votes import ANSWERS

MOST_LEVELS = 11  # a longer scale is divided into ranges


def verdict_table(runs: pd.DataFrame | Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """All judges' verdicts, indexed by judge and item id; ValueError where one stands twice."""
    if not isinstance(runs, pd.DataFrame):
        if not runs:
            raise ValueError("there is no run to review")
        named = [pd.DataFrame({**run, "judge": judge}) for judge, run in runs.items()]
        runs = pd.concat(named)
    table = runs.astype({"judge": str, "id": str})
    if "feedback" not in table:
        table["feedback"] = ""
    table["feedback"] = table["feedback"].fillna("").astype(str)
    table = table.set_index(["judge", "id"], drop=False)
    for name in table["judge"].unique():
        if name in ANSWERS:
            raise ValueError(f"{name}: is the name of an answer; give the judge another")
    if table.index.has_duplicates:
        judge, id = table.index[table.index.duplicated()][0]
        raise ValueError(f"{judge}: item {id!r} has several verdicts; choose one")
    return table


def item_table(rows: Any, verdicts: pd.DataFrame, scale: tuple[int, int] | None) -> pd.DataFrame:
    """Criteria, scale and all texts of each item, by its id.

    ValueError: rows are pairs or share an id; a verdict is of an item that is not there.
    """
    if len(rows) and "response" not in rows.columns:
        what = "a review is of responses with a score each; these rows are pairs or questions"
        raise ValueError(what)
    feedback = verdicts["feedback"].groupby(level="id").agg("\0".join)
    facts = {}
    for row in rows:
        id = str(row["id"])
        if id in facts:
            raise ValueError(f"id: {id!r} stands twice in the collection; give each row its own")
        own = scale
        levels = row_levels(row)
        if levels:
            own = (min(levels), max(levels))
        texts = [feedback.get(id, "")]
        for name in ("instruction", "response", "reference_answer"):
            texts.append(str(row.get(name) or ""))
        facts[id] = (row.get("criteria"), own, "\0".join(texts).casefold())
    for judge, id in verdicts.index:
        if id not in facts:
            raise ValueError(f"{judge}: item {id!r} is not in the collection")
    table = pd.DataFrame(facts.values(), index=list(facts), columns=["criteria", "scale", "text"])
    return table.rename_axis("id")


def levels_of(values: pd.Series) -> dict[str, tuple[int, int]]:
    """The lowest and highest score of each level, by its name.

    A level is a whole number, or a range of a scale of more than eleven.
    """
    values = values.dropna()
    if values.empty:
        return {}
    lowest = math.floor(values.min() + 0.5)
    highest = math.floor(values.max() + 0.5)
    width = math.ceil((highest - lowest + 1) / MOST_LEVELS)
    levels = {}
    for low in range(lowest, highest + 1, width):
        high = min(low + width - 1, highest)
        name = str(low) if low == high else f"{low} to {high}"
        levels[name] = (low, high)
    return levels


def level_names(scores: pd.Series, levels: Mapping[str, tuple[int, int]]) -> pd.Series:
    """The level of each score, NaN for none; halves count up."""
    ends = [high + 0.5 for low, high in levels.values()]
    first = next(iter(levels.values()))[0] - 0.5
    named = pd.cut(np.floor(scores + 0.5), [first, *ends], labels=list(levels))
    return named.astype(object)


def within(scores: Any, level: Any) -> Any:
    """Which scores are a level, or in a range (lowest, highest); halves count up."""
    bounds = np.ravel(level)
    nearest = np.floor(scores + 0.5)
    return (nearest >= bounds[0]) & (nearest <= bounds[-1])
