"""Judged items as tables: what each judge said of each item, and the truth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from vjudge import data
from vjudge.records import row_levels
from vjudge.review.votes import ANSWERS

MOST_LEVELS = 11  # a longer scale is divided into ranges


class Judged:
    """Items with the verdicts of one or several judges on them.

    `rows` are the items, `ids` their ids, `facts` has criteria, scale and all texts by id,
    `verdicts` is indexed by judge and id; `scores`, `graded` have one row an item and one column a
    judge; `truth` is `vj.truth`, all NaN where there is none.

    ValueError: rows are pairs or share an id; a run has several verdicts for an item, or items that
    the collection lacks.
    """

    def __init__(
        self,
        items: Any,
        runs: pd.DataFrame | Mapping[str, pd.DataFrame],
        scale: tuple[int, int] | None,
    ) -> None:
        self.rows = data.rows_of(items)
        self.verdicts = _verdicts(runs)
        self.facts = _facts(self.rows, self.verdicts, scale)
        self.ids = self.facts.index
        self.judges = tuple(self.verdicts.index.unique("judge"))
        table = self.verdicts.reset_index(drop=True)
        scores = table.pivot(index="id", columns="judge", values="score")
        self.scores = scores.reindex(self.ids)[[*self.judges]].astype(float)
        graded = table.pivot(index="id", columns="judge", values="feedback")
        self.graded = graded.reindex(self.ids)[[*self.judges]].notna()
        try:
            self.truth = data.truth(self.rows).set_axis(self.ids)
        except data.CollectionError:  # nobody scored yet: that is what a review is for
            self.truth = pd.Series(np.nan, index=self.ids, name="no truth")

    @cached_property
    def levels(self) -> dict[str, tuple[int, int]]:
        """The lowest and highest score of each level, by its name.

        A level is a whole number, or a range of a scale of more than eleven.
        """
        scales = self.facts["scale"].dropna().explode()
        values = pd.concat([self.scores.stack(), self.truth, scales]).dropna()
        if values.empty:
            return {}
        lowest, highest = (math.floor(end + 0.5) for end in (values.min(), values.max()))
        width = math.ceil((highest - lowest + 1) / MOST_LEVELS)
        levels = {}
        for low in range(lowest, highest + 1, width):
            high = min(low + width - 1, highest)
            levels[str(low) if low == high else f"{low} to {high}"] = (low, high)
        return levels

    def confusion(self, judge: str, truth: pd.Series) -> pd.DataFrame:
        """Count how often a judge gives each score at each level of the truth.

        Counts are over the items that the judge graded: one row a level of truth (`levels`), one
        column a level of score, "none" without a score. `attrs["words"]` says what is counted.
        """
        truth = truth[self.graded[judge]]
        scores = self.scores.loc[truth.index, judge]
        table = pd.DataFrame(0, index=list(self.levels), columns=[*self.levels, "none"])
        for row, bounds in self.levels.items():
            here = scores[within(truth, bounds)]
            table.loc[row, "none"] = here.isna().sum()
            for column, level in self.levels.items():
                table.loc[row, column] = within(here, level).sum()
        table.attrs["words"] = (
            f"Rows: {truth.name}. Columns: {judge}. Items: {truth.notna().sum()}; "
            f"without a truth yet: {truth.isna().sum()}. "
            "Scores between two levels count with the nearest, halves up."
        )
        return table


def within(scores: Any, level: Any) -> Any:
    """Which scores are a level, or in a range (lowest, highest); halves count up."""
    bounds = np.ravel(level)
    nearest = np.floor(scores + 0.5)
    return (nearest >= bounds[0]) & (nearest <= bounds[-1])


def _verdicts(runs: pd.DataFrame | Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """All judges' verdicts by judge and item id."""
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


def _facts(rows: Any, verdicts: pd.DataFrame, scale: tuple[int, int] | None) -> pd.DataFrame:
    """Criterion, scale and all texts of each item, by its id."""
    if len(rows) and "response" not in rows.columns:
        what = "a review is of responses with a score each; these rows are pairs or questions"
        raise ValueError(what)
    feedback = verdicts["feedback"].groupby(level="id").agg("\0".join)
    facts = {}
    for row in rows:
        id = str(row["id"])
        if id in facts:
            raise ValueError(f"id: {id!r} stands twice in the collection; give each row its own")
        levels = row_levels(row)
        own = (min(levels), max(levels)) if levels else scale
        names = ("instruction", "response", "reference_answer")
        texts = [str(row.get(name) or "") for name in names]
        text = "\0".join([*texts, feedback.get(id, "")]).casefold()
        facts[id] = (row.get("criteria"), own, text)
    for judge, id in verdicts.index:
        if id not in facts:
            raise ValueError(f"{judge}: item {id!r} is not in the collection")
    table = pd.DataFrame(facts.values(), index=list(facts), columns=["criteria", "scale", "text"])
    return table.rename_axis("id")
