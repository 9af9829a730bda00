"""Make a table of scores or choices out of runs, or out of a wide frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from pandas import DataFrame, Series
from pandas.api.types import is_list_like

from vjudge import data
from vjudge.analysis.tables import ROLES, RatingTable
from vjudge.data.schema import PICTURE_COLUMNS, Items
from vjudge.data.verdicts import Bounds
from vjudge.judging.carried import VERDICT_COLUMNS
from vjudge.judging.columns import groups_of
from vjudge.metrics.columns import as_floats
from vjudge.metrics.groups import groups_from_ids
from vjudge.records import from_csv, is_missing, row_levels

TableKind = TypeVar("TableKind", bound=RatingTable)  # `Scores` or `Choices`

# Columns of a run that describe a verdict and not its item; ids become the index instead
NOT_OF_ITEMS = VERDICT_COLUMNS | {"feedback", "lowest", "id"}
GROUP = "group"  # the column made here that holds the unit of resampling
SEVERAL_SCALES = (
    "judges have several scales, and people's scale is taken to be {:g} to {:g} (scale=)"
)
# Columns that `items` overrides: a run may hold a shortened or an older version of them
ITEM_TEXTS = ("response", "reference_answer", "instruction", "criteria", "human_scores", "gold")


def rating_table(
    kind: type[TableKind],
    data: DataFrame | Mapping[str, DataFrame],
    judges: Sequence[str] | None,
    people: str | Sequence[str] | None,
    items: Items,
    verdict: str,
    fields: Mapping[str, Any],
) -> TableKind:
    """Make a table of one kind, with the arguments of `vjudge.scores`.

    Args:
        kind: `Scores` or `Choices`.
        data: a run or runs by judge's name where `judges` is None, else a wide frame.
        judges, people, items: as for `vjudge.scores`; people is used for a wide frame alone, items
            for runs alone.
        verdict: the column of a run that holds the verdict, such as "score".
        fields: further fields of `RatingTable`, which replace those read from runs; caveats are
            appended.

    Raises:
        TypeError: `data` is of another type, or a field is unknown.
        ValueError: as for `vjudge.scores`.
    """
    if judges is not None:
        if not isinstance(data, DataFrame):
            raise TypeError(f"judges= names columns of a DataFrame, not of a {type(data).__name__}")
        table = from_frame(kind, data, judges, people, fields)
    else:
        runs = {"": data} if isinstance(data, DataFrame) else data  # a single run has no name yet
        if not isinstance(runs, Mapping):
            name = type(data).__name__
            raise TypeError(f"give a run, runs by name, or a frame with judges=, not {name}")
        table = from_runs(kind, runs, items, verdict)
        # Fields that the caller names replace those read from the runs
        table = replace(table, **{**fields, "caveats": table.caveats})
    return replace(table, caveats=[*table.caveats, *fields.get("caveats", ())])


# --- From a wide frame


def from_frame(
    kind: type[TableKind],
    frame: DataFrame,
    judges: Sequence[str],
    people: str | Sequence[str] | None,
    fields: Mapping[str, Any],
) -> TableKind:
    """Make a table out of a frame with one column per judge; arguments as for `rating_table`.

    The caveats of the table are those of the frame alone, without those in `fields`.
    """
    judges = _name_list(judges)
    people = _name_list(people)
    _check_columns(frame, judges, people, fields)
    # Several rows with one id, such as votes, are resampled as one unit unless a group is named
    ids = frame["id"] if "id" in frame and not frame["id"].map(is_missing).any() else None
    units, caveats = groups_from_ids(frame, fields.get("group"), ids)
    fields = {**fields, "caveats": caveats}
    frame, people = split_ratings(frame.reset_index(drop=True), people)
    if caveats:  # there are some only where rows with one id were grouped
        frame = frame.assign(**{GROUP: units})
        fields["group"] = GROUP
    return kind(frame=frame, judges=judges, people=people, **fields)


def _check_columns(
    frame: DataFrame, judges: list[str], people: list[str], fields: Mapping[str, Any]
) -> None:
    """Raise ValueError for columns that are absent or named twice, and for a missing group."""
    roles = [fields[role] for role in ROLES if fields.get(role) is not None]
    unknown = [name for name in [*judges, *people, *roles] if name not in frame]
    if unknown:
        raise ValueError(f"columns are absent: {unknown}; the frame has {list(frame)}")
    raters = Series([*judges, *people])
    repeated = raters[raters.duplicated()].tolist()
    if repeated:
        raise ValueError(f"{repeated} are named twice: name each once, and no judge as a person")
    if not judges:
        raise ValueError("name at least one judge: judges=[...]")
    for name in (fields.get("group"), fields.get("benchmark")):
        if name is not None and frame[name].map(is_missing).any():
            row = int(frame[name].map(is_missing).argmax())
            raise ValueError(f"row {row}: {name!r} is missing; fill it, or leave the row out")


def _name_list(names: str | Sequence[str] | None) -> list[str]:
    """Return one name, several names, or None as a list."""
    if names is None:
        return []
    return [names] if isinstance(names, str) else list(names)


def split_ratings(frame: DataFrame, people: list[str]) -> tuple[DataFrame, list[str]]:
    """Split one column with lists of scores into one column per rater.

    Args:
        frame: one row per item.
        people: the names of columns. Only a single column can hold lists; position r of each list
            is rater r, and short lists are filled up with None.

    Returns:
        The frame and the names of the raters' columns, both unchanged where there are no lists.
    """
    if len(people) != 1:
        return frame, people
    cells = frame[people[0]].map(from_csv)
    if not cells.map(is_list_like).any():
        return frame, people
    lists = [list(cell) if is_list_like(cell) else [] for cell in cells]
    n_raters = max(map(len, lists))
    padded = [[*scores, *[None] * (n_raters - len(scores))] for scores in lists]
    names = [f"person {rater}" for rater in range(1, n_raters + 1)]
    ratings = DataFrame(padded, columns=names, index=frame.index)  # (n_items, n_raters)
    return pd.concat([frame.drop(columns=people), ratings], axis=1), names


# --- From runs


def from_runs(
    kind: type[TableKind], runs: Mapping[str, DataFrame], items: Items, verdict: str
) -> TableKind:
    """Make a table out of runs by judge's name.

    Args:
        kind, items, verdict: as for `rating_table`.
        runs: a name -> a run; a run with several judges is split.

    Raises:
        TypeError, ValueError: as for `vjudge.scores`.
    """
    runs = _split_by_judge(runs)
    columns, caveats = _verdict_columns(runs, verdict)  # judge -> its verdicts by item id

    # One row per item, in the order of the first run; items that only later runs have come last
    rows = _item_rows(runs.values(), items)
    frame = pd.concat([rows, DataFrame(columns).reindex(rows.index)], axis=1)
    frame, people = _split_human_scores(frame)
    # `groups_of` reads ids from a column; here they are the index
    frame[GROUP] = groups_of(frame.rename_axis(None).assign(id=frame.index))
    has_gold = "gold" in frame and frame["gold"].notna().any()

    # People's scale is that of the rubrics, else the narrowest of the judges' that holds the truth
    scales = {}
    for judge, run in runs.items():
        scale = _run_scale(run)
        if scale is not None:
            scales[judge] = scale
    human_scale = _rubric_scale(items)
    if human_scale is None:
        # The columns of true scores: people's, and gold where there is such a column
        truths = frame[[*people, *({"gold"} & set(frame))]].apply(pd.to_numeric)
        human_scale = _narrowest_scale(scales.values(), truths)
        if human_scale is not None and len(set(scales.values())) > 1:
            caveats.append(SEVERAL_SCALES.format(*human_scale))
    verdicts = [run.assign(judge=judge) for judge, run in runs.items()]
    return kind(
        frame=frame.rename_axis("id").reset_index(),
        judges=list(columns),
        people=people,
        gold="gold" if has_gold else None,
        group=GROUP,
        response="response" if "response" in frame else None,
        scale=human_scale,
        scales=scales,
        caveats=caveats,
        verdicts=pd.concat(verdicts, ignore_index=True),
    )


def _split_by_judge(runs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Return one run per judge: a run with several judges is split by its column `judge`.

    A run of one judge keeps the name it was given. One without a name ("") takes that of its column
    `judge`, or is called "judge" where it has no such column.

    Raises:
        ValueError: a run is no frame with ids and rows, or two runs are of one judge.
    """
    runs_by_judge: dict[str, DataFrame] = {}
    for name, run in runs.items():
        if not isinstance(run, DataFrame) or "id" not in run or run.empty:
            raise ValueError(
                f"{name or 'the run'}: give a run with verdicts, as Judge.grade or Judge.compare"
                " returns it, with ids; a wide table of scores needs judges=[...]"
            )
        split = {str(name or "judge"): run}
        if "judge" in run and (run["judge"].nunique() > 1 or not name):
            # Rows without a judge's name are a judge "nan", so that they show
            by_judge = run.groupby("judge", sort=False, dropna=False)
            split = {str(judge): rows for judge, rows in by_judge}
        for judge, rows in split.items():
            if judge in runs_by_judge:
                raise ValueError(f"two runs are of a judge {judge!r}: give each a name of its own")
            runs_by_judge[judge] = rows
    return runs_by_judge


def _verdict_columns(
    runs: Mapping[str, DataFrame], verdict: str
) -> tuple[dict[str, Series], list[str]]:
    """Return each judge's verdicts by item id, and a caveat for each judge with repeated items."""
    columns = {}
    caveats = []
    for judge, run in runs.items():
        if verdict not in run:
            raise ValueError(f"{judge}: the run has no column {verdict!r}; it has {list(run)}")
        columns[judge] = _verdict_by_id(judge, run, verdict)
        n_items = len(columns[judge])
        if n_items < len(run):
            caveats.append(f"{judge}: {len(run):,} verdicts on {n_items:,} items, their mean")
    return columns, caveats


def _verdict_by_id(judge: str, run: DataFrame, verdict: str) -> Series:
    """Return a run's verdicts by item id: the mean of an item's scores, or its only choice.

    Args:
        judge: the judge's name, for messages.
        run: the run.
        verdict: "verdict", the column of choices; any other column has scores.

    Raises:
        TypeError: a score is no number.
        ValueError: a pair has several choices.
    """
    ids = run["id"].map(str)
    if verdict != "verdict":
        scores = Series(as_floats(run[verdict], name=f"{judge}.{verdict}"), run.index)
        return scores.groupby(ids, sort=False).mean()
    repeated = ids[ids.duplicated()]
    if len(repeated):
        count = int((ids == repeated.iloc[0]).sum())
        raise ValueError(
            f"{judge}: pair {repeated.iloc[0]!r} has {count} verdicts: give one, as Judge.compare"
            " does"
        )
    return run[verdict].set_axis(ids)


def _item_rows(runs: Iterable[DataFrame], items: Items) -> DataFrame:
    """Collect the columns that describe items, by id, from all runs and from the collection.

    Raises:
        ValueError: runs give an item several values of gold or preference, or the collection lacks
            an item of the runs.
    """
    tables = []
    for run in runs:
        rows = run[[name for name in run if name not in NOT_OF_ITEMS]]
        rows = rows.set_axis(run["id"].map(str))
        tables.append(rows[~rows.index.duplicated()])  # samples of one item repeat its columns
    rows = pd.concat(tables)
    for name in {"gold", "preference"} & set(rows):
        _check_one_truth(rows[name].dropna())
    rows = rows[~rows.index.duplicated()]
    if items is None:
        return rows

    table = DataFrame(list(data.rows_of(items))).drop(columns=[*PICTURE_COLUMNS], errors="ignore")
    table = table.set_index(table["id"].map(str)).drop(columns="id")
    unknown = rows.index.difference(table.index)
    if len(unknown):
        raise ValueError(
            f"{len(unknown)} items of the runs are not in items=, such as {unknown[0]!r}: give the"
            " collection that was graded"
        )
    added = [name for name in table if name not in rows or name in ITEM_TEXTS]
    return rows.drop(columns=added, errors="ignore").join(table[added])


def _check_one_truth(column: Series) -> None:
    """Raise ValueError where runs give one item several values of gold or preference."""
    values = column.groupby(level=0, sort=False).unique()
    several = values[values.map(len) > 1]
    if len(several):
        listing = ", ".join(map(str, several.iloc[0]))
        raise ValueError(
            f"{several.index[0]!r} has {len(several.iloc[0])} values of {column.name} ({listing}):"
            " give runs of one collection"
        )


def _split_human_scores(frame: DataFrame) -> tuple[DataFrame, list[str]]:
    """Split `human_scores` into one column per rater; drop it where no list has a score."""
    if "human_scores" not in frame:
        return frame, []
    if not any(np.iterable(cell) and list(cell) for cell in frame["human_scores"]):
        return frame.drop(columns="human_scores"), []
    return split_ratings(frame, ["human_scores"])


# --- Scales


def _run_scale(run: DataFrame) -> Bounds | None:
    """Return the scale of a run; None where its rows have several scales or none."""
    if not {"lowest", "highest"} <= set(run):
        return None
    bounds = run[["lowest", "highest"]].drop_duplicates()
    if len(bounds) != 1 or bounds.isna().any(axis=None):
        return None
    lowest, highest = bounds.iloc[0]
    return float(lowest), float(highest)


def _rubric_scale(items: Items) -> Bounds | None:
    """Return the scale of a collection's rubrics; None where they have several scales or none."""
    if items is None:
        return None
    level_sets = {tuple(row_levels(row)) for row in data.rows_of(items)}
    if len(level_sets) != 1:
        return None
    levels = level_sets.pop()
    return (float(min(levels)), float(max(levels))) if levels else None


def _narrowest_scale(scales: Iterable[Bounds], truths: DataFrame) -> Bounds | None:
    """Return the narrowest scale that holds every true score; None where no scale does."""
    smallest = truths.min().min()
    largest = truths.max().max()
    for lowest, highest in sorted(set(scales), key=lambda bounds: bounds[1] - bounds[0]):
        # Without a true score `smallest` and `largest` are NaN, so that no comparison is true, and
        # the narrowest scale is taken
        if not (smallest < lowest or largest > highest):
            return lowest, highest
    return None
