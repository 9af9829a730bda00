"""What a review is made of: a run of a judge beside a weaker one, and runs and items as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge import probes
from vjudge.data import canonical
from vjudge.data.schema import Items
from vjudge.judging.judge import JudgeLike
from vjudge.probes.changes import NotApplicableError
from vjudge.records import row_levels, unit_of
from vjudge.review.votes import ANSWERS


def contrast(
    judge: JudgeLike, items: Items, *, out: str | Path | None = None, **grading: Any
) -> dict[str, pd.DataFrame]:
    """Grade a collection by a judge, and again with less information, to compare the feedback.

    The second run is on images blanked to grey, or at temperature 1 where there are no images.

    Args:
        judge: the judge.
        items: a collection of single responses.
        out: a folder that records every verdict; the same call continues there.
        grading: further options of `Judge.grade`.

    Returns:
        The two runs by name: the judge's, and the judge's with ", blanked" or ", sampled". A
        collection of pairs is not graded and has no runs.

    Raises:
        CollectionError: there are bad rows; all are named before any work.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", limit=4)
    >>> list(contrast(vj.load_judge("tiny", device="cpu"), items, progress=False))
    ['tiny', 'tiny, blanked']
    """
    items = canonical(items)
    if "response" not in items.column_names:
        return {}
    change = "blanked"
    weaker = grading
    try:
        rows = probes.blanked(items)
    except NotApplicableError:  # there is no image to blank
        change = "sampled"
        weaker = {**grading, "temperature": 1.0}
        rows = items
    folder = None if out is None else Path(out)
    return {
        judge.name: judge.grade(items, out=folder and folder / "given", **grading),
        f"{judge.name}, {change}": judge.grade(rows, out=folder and folder / change, **weaker),
    }


def verdict_table(runs: pd.DataFrame | Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Stack runs into one table of verdicts, with index (judge, item id).

    Args:
        runs: runs by judge's name, or one table with a column `judge`.

    Returns:
        One row per verdict, with the columns of the runs. `feedback` is a text in every row, ""
        where there is none.

    Raises:
        ValueError: there is no run, a judge has several verdicts on an item, or a judge is called
            like one of `ANSWERS`.
    """
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
    for name in set(table["judge"]).intersection(ANSWERS):  # the first such name is an error
        raise ValueError(f"{name}: is the name of an answer; give the judge another")
    if table.index.has_duplicates:
        judge, id = table.index[table.index.duplicated()][0]
        raise ValueError(f"{judge}: item {id!r} has several verdicts; choose one")
    return table


def item_table(
    rows: Iterable[Mapping], verdicts: pd.DataFrame, scale: tuple[int, int] | None
) -> pd.DataFrame:
    """Describe each item by its criteria, its scale and its group (the unit of resampling).

    Args:
        rows: the canonical rows of the collection.
        verdicts: the table of `verdict_table`.
        scale: the lowest and the highest score of items whose rubric has no levels.

    Returns:
        One row per item, with its id as index: criteria, scale (lowest, highest), group.

    Raises:
        ValueError: two rows share an id, or a verdict is on an item that the collection lacks.
    """
    facts = {}
    for row in rows:
        id = str(row["id"])
        if id in facts:
            raise ValueError(f"id: {id!r} stands twice in the collection; give each row its own")
        levels = row_levels(row)
        item_scale = (min(levels), max(levels)) if levels else scale
        facts[id] = (row.get("criteria"), item_scale, unit_of(row))
    for judge, id in verdicts.index:
        if id not in facts:
            raise ValueError(f"{judge}: item {id!r} is not in the collection")
    columns = ["criteria", "scale", "group"]
    table = pd.DataFrame(facts.values(), index=list(facts), columns=columns)
    return table.rename_axis("id")
