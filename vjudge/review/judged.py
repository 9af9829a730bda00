"""Judged items as tables: what each judge said of each item, and each item's criteria and scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from vjudge.records import row_levels
from vjudge.review.votes import ANSWERS


def verdict_table(runs: pd.DataFrame | Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """All judges' verdicts, indexed by judge and item id; ValueError where one stands twice."""
    if not isinstance(runs, pd.DataFrame):
        if not runs:
            raise ValueError("there is no run to review")
        named = [run.assign(judge=judge) for judge, run in runs.items()]
        runs = pd.concat(named)
    table = runs.astype({"judge": str, "id": str})
    if "feedback" not in table:
        table["feedback"] = ""
    table["feedback"] = table["feedback"].fillna("").astype(str)
    table = table.set_index(["judge", "id"], drop=False)
    for name in set(table["judge"]).intersection(ANSWERS):
        raise ValueError(f"{name}: is the name of an answer; give the judge another")
    if table.index.has_duplicates:
        judge, id = table.index[table.index.duplicated()][0]
        raise ValueError(f"{judge}: item {id!r} has several verdicts; choose one")
    return table


def item_table(rows: Any, verdicts: pd.DataFrame, scale: tuple[int, int] | None) -> pd.DataFrame:
    """Criteria and scale (lowest, highest) of each item, by its id.

    ValueError: rows are pairs or share an id; a verdict is of an item that is not there.
    """
    if len(rows) and "response" not in rows.columns:
        what = "a review is of responses with a score each; these rows are pairs or questions"
        raise ValueError(what)
    facts = {}
    for row in rows:
        id = str(row["id"])
        if id in facts:
            raise ValueError(f"id: {id!r} stands twice in the collection; give each row its own")
        own = scale
        levels = row_levels(row)
        if levels:
            own = (min(levels), max(levels))
        facts[id] = (row.get("criteria"), own)
    for judge, id in verdicts.index:
        if id not in facts:
            raise ValueError(f"{judge}: item {id!r} is not in the collection")
    table = pd.DataFrame(facts.values(), index=list(facts), columns=["criteria", "scale"])
    return table.rename_axis("id")
