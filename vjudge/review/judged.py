"""Judged items as tables: what each judge said of each item, and each item's criteria and scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge import probes
from vjudge.data import canonical
from vjudge.data.schema import Items
from vjudge.judging.judge import JudgeLike
from vjudge.probes.perturbations import NotApplicableError
from vjudge.records import row_levels, unit_of
from vjudge.review.votes import ANSWERS


def contrast(
    judge: JudgeLike, items: Items, *, out: str | Path | None = None, **grading: Any
) -> dict[str, pd.DataFrame]:
    """Grade a collection by a judge, and by the same judge with less to go by, to compare both.

    Args:
        judge: who grades.
        items: a collection of single responses; of pairs nothing is graded.
        out: a folder that records every verdict; the same call goes on there.
        grading: further options of `Judge.grade`.

    Returns:
        Two runs by name: the judge's own, and its run on pictures blanked to grey, or without
        pictures at temperature 1. Of pairs none.

    Raises:
        CollectionError: bad rows, all named before any work.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", limit=4)
    >>> list(contrast(vj.load_judge("tiny", device="cpu"), items, progress=False))
    ['tiny', 'tiny, blanked']
    """
    items = canonical(items)
    if "response" not in items.column_names:
        return {}
    weaker: dict[str, Any] = {"blanked": {}}
    rows = items
    try:
        rows = probes.blanked(items)
    except NotApplicableError:  # no picture
        weaker = {"sampled": {"temperature": 1.0}}
    ((name, options),) = weaker.items()
    folders = {
        folder_name: None if out is None else Path(out) / folder_name
        for folder_name in ("given", name)
    }
    return {
        judge.name: judge.grade(items, out=folders["given"], **grading),
        f"{judge.name}, {name}": judge.grade(rows, out=folders[name], **{**grading, **options}),
    }


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


def item_table(
    rows: Iterable[Mapping], verdicts: pd.DataFrame, scale: tuple[int, int] | None
) -> pd.DataFrame:
    """Criteria, scale (lowest, highest) and unit of resampling of each item, by its id.

    ValueError: rows share an id; a verdict is of an item that is not there.
    """
    facts = {}
    for row in rows:
        id = str(row["id"])
        if id in facts:
            raise ValueError(f"id: {id!r} stands twice in the collection; give each row its own")
        limits = scale
        levels = row_levels(row)
        if levels:
            limits = (min(levels), max(levels))
        facts[id] = (row.get("criteria"), limits, unit_of(row))
    for judge, id in verdicts.index:
        if id not in facts:
            raise ValueError(f"{judge}: item {id!r} is not in the collection")
    columns = ["criteria", "scale", "group"]
    table = pd.DataFrame(facts.values(), index=list(facts), columns=columns)
    return table.rename_axis("id")
