"""Who scored what: one row an item, a column a judge or person, and what each column is.

`from_runs` and `from_frame` make the table of `Scores` and `Choices` out of runs and wide frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from pandas import DataFrame, Series
from pandas.api.types import is_list_like

from vjudge import data
from vjudge.data.schema import PICTURE_COLUMNS, Items
from vjudge.data.summary import gold_else_people
from vjudge.data.verdicts import Bounds
from vjudge.judging.carried import VERDICT_COLUMNS
from vjudge.judging.columns import closed_in, groups_of
from vjudge.metrics.caveats import merged_caveats
from vjudge.metrics.columns import as_floats
from vjudge.metrics.groups import groups_from_ids
from vjudge.plots.latex import sentences
from vjudge.records import from_csv, is_missing, row_levels
from vjudge.results import NotComputed, Result, Results, current, settings

if TYPE_CHECKING:
    from vjudge.analysis.card import Report

OF_VERDICTS = VERDICT_COLUMNS | {"feedback", "lowest"}  # columns of a run, not of its items
GROUP = "group"  # the column that holds the unit of resampling of a run's items
ITEM_TEXTS = ("response", "reference_answer", "instruction", "criteria", "human_scores", "gold")


@dataclass(frozen=True, eq=False)
class RatingTable:
    """Columns of items, and what each of them is.

    Attributes:
        frame: one row an item; the index is a plain count.
        judges, people: the columns of verdicts by judges and by people.
        gold: the column with the true score or preference; where it is missing, people's count.
        group: the unit of resampling, such as the image; None resamples items.
        benchmark, system, response: the columns with the benchmark of an item, the model that wrote
            (or drew) the response, and the text of the response or its length.
        scale: the lowest and the highest score of people; None where it is unknown.
        scales: by judge, the same of its scores, where it is another.
        about: what the items are called in captions.
        source, licence, citation: of public verdicts.
        caveats: what must stand beside every number of these data.
        verdicts: the runs that the table was made of, one row a verdict; None of a wide table.
    """

    frame: DataFrame
    judges: list[str]
    people: list[str] = field(default_factory=list)
    gold: str | None = None
    group: str | None = None
    benchmark: str | None = None
    system: str | None = None
    response: str | None = None
    scale: Bounds | None = None
    scales: Mapping[str, Bounds] = field(default_factory=dict)
    about: str = "the items"
    source: str = ""
    licence: str = ""
    citation: str = ""
    caveats: list[str] = field(default_factory=list)
    verdicts: DataFrame | None = None
    absent: str = ""  # why there are no verdicts: every analysis then says so

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        people = f"{len(self.people)} people" if self.people else "no people"
        judges = ", ".join(self.judges)
        return f"{type(self).__name__}: {len(self):,} items, {people}, judges {judges}"

    def __getattr__(self, name: str) -> Any:
        """An analysis of the other kind of table says that it does not apply here."""
        analyses = (vars(kind).get(name) for kind in RatingTable.__subclasses__())
        if any(hasattr(function, "__wrapped__") for function in analyses):  # by `analysis`
            return partial(_of_the_other_kind, name, type(self).__name__)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def groups(self) -> Series | None:
        """The unit of resampling of each item; None where each item is its own."""
        return None if self.group is None else self.frame[self.group]

    @property
    def benchmarks(self) -> Series | None:
        """The benchmark of each item; None where all are of one."""
        if self.benchmark is None or self.frame[self.benchmark].nunique() < 2:
            return None
        return self.frame[self.benchmark].astype(str)

    def named(self, column: str) -> Series:
        """A column of the frame by its name, or by what it is: group, benchmark, system, response.

        NotComputed: there is no such column.
        """
        name = getattr(self, column, None) if column in ROLES else None
        name = column if name is None else name
        if name not in self.frame:
            raise NotComputed(
                f"there is no column {column!r}: use one of {', '.join(map(str, self.frame))}, or"
                f" name it when the table is made ({column}=...)"
            )
        return self.frame[name]

    def _result(self, table: DataFrame, *, caption: str, **fields: Any) -> Result:
        """A result with the caveats of these data; its caption says whose numbers they are."""
        citation = f"Data: {self.citation}" if self.citation else ""
        closed = closed_in(self.verdicts) if self.verdicts is not None else ""
        caption = sentences(caption, citation, closed)
        return Result(table, caption=caption, data_caveats=self.caveats, **fields)

    def _need_people(self, needed: int) -> None:
        """NotComputed where fewer people scored the items."""
        if len(self.people) < needed:
            raise NotComputed(
                f"{len(self.people)} people scored these items, and it takes {needed}: add the"
                " scores of each (human_scores, people=[...])"
            )

    def _need_rival(self) -> None:
        """NotComputed where there is one judge."""
        if len(self.judges) < 2:
            raise NotComputed("there is one judge: add the runs of another")

    def all(self, **resampling: Any) -> Results:
        """Every analysis by name; one that does not apply says why."""
        raise NotImplementedError

    def paper(self, out: str | Path, venue: str | None = None, **resampling: Any) -> Results:
        """Write every figure, table and caption of a paper into a folder.

        Args:
            out: the folder; it is made.
            venue: whose page they fit, one of `plots.VENUES`; None takes that of `settings`.
            resampling: of scores n_resamples, seed, confidence.

        Returns:
            The results by name, those that were not computed among them.

        ValueError: an unknown venue.
        """
        before = current().venue
        settings(venue=venue or before)
        try:
            return self.all(**resampling).save(Path(out).expanduser())
        finally:
            settings(venue=before)

    def report(self, battery: Result | None = None, out: str | Path | None = None) -> Report:
        """Put what was found about the judges on one page, a claim a row and a judge a column.

        Args:
            battery: what `probes.battery` found about the same judges, by name.
            out: a folder for the page, its figures and tables; None writes nothing.
        """
        from vjudge.analysis.card import make_report  # it is made of the tables

        table: Any = self  # one of its two kinds
        card = make_report(table, battery)
        return card if out is None else card.write(out)

    def only(self, judges: Sequence[str]) -> Self:
        """The same items with some of the judges, in this order.

        ValueError: there is no such judge.
        """
        absent = [name for name in judges if name not in self.judges]
        if absent:
            raise ValueError(f"no judge is called {absent[0]!r}: {', '.join(self.judges)}")
        return replace(self, judges=list(judges))

    def where(self, **values: Any) -> Self:
        """The items whose columns have these values, as in `where(criterion="fluency")`.

        ValueError: there is no such column or value.
        """
        frame = self.frame
        for column, value in values.items():
            if column not in frame or not (frame[column] == value).any():
                has = names_of(frame[column].unique()) if column in frame else "no such column"
                raise ValueError(f"no item has {column}={value!r}: {has}")
            frame = frame[frame[column] == value]
        subject = f"{self.about}, {', '.join(map(str, values.values()))}"
        return replace(self, frame=frame.reset_index(drop=True), about=subject)


def _of_the_other_kind(name: str, kind: str, *_: Any, **__: Any) -> Result:
    """The result of an analysis that needs scores where there are choices, or the reverse."""
    needs = {"Choices": "scores of single responses, and each row here is a pair"}
    reason = needs.get(kind, "verdicts on pairs, and each row here is one response")
    return Result.not_computed(f"{name}() needs {reason}: see vj.scores and vj.choices", name=name)


ROLES = ("gold", "group", "benchmark", "system", "response")


def fields_of(
    data: DataFrame | Mapping[str, DataFrame],
    judges: Sequence[str] | None,
    people: str | Sequence[str] | None,
    items: Items,
    verdict: str,
    columns: Mapping[str, Any],
) -> dict[str, Any]:
    """The fields of a table; arguments as of `vjudge.scores`, `verdict` a run's column."""
    caveats = list(columns.get("caveats", ()))
    roles = {name: value for name, value in columns.items() if name != "caveats"}
    if judges is None:
        runs = {"": data} if isinstance(data, DataFrame) else data
        if not isinstance(runs, Mapping):
            kind = type(data).__name__
            raise TypeError(f"give a run, runs by name, or a frame with judges=, not {kind}")
        fields = from_runs(runs, items, verdict)
        return {**fields, **roles, "caveats": [*fields["caveats"], *caveats]}
    if not isinstance(data, DataFrame):
        raise TypeError(f"judges= names columns of a DataFrame, not of a {type(data).__name__}")
    fields = from_frame(data, judges, people, roles)
    return {**fields, "caveats": [*fields["caveats"], *caveats]}


# --- From a wide frame


def from_frame(
    frame: DataFrame,
    judges: Sequence[str],
    people: str | Sequence[str] | None,
    roles: Mapping[str, Any],
) -> dict[str, Any]:
    """The fields of a table out of a frame with a column a judge; see `vjudge.scores`."""
    judges = _listed(judges)
    columns = _listed(people)
    named = [roles[role] for role in ROLES if roles.get(role) is not None]
    absent = [name for name in [*judges, *columns, *named] if name not in frame]
    if absent:
        raise ValueError(f"columns are absent: {absent}; the frame has {list(frame)}")
    both = Series([*judges, *columns])
    twice = both[both.duplicated()].tolist()
    if twice:
        raise ValueError(f"{twice} are named twice: name each once, and no judge as a person")
    if not judges:
        raise ValueError("name at least one judge: judges=[...]")
    # Several rows of one id, such as votes, are one unit of resampling
    ids = frame["id"] if "id" in frame and not frame["id"].map(is_missing).any() else None
    units, caveats = groups_from_ids(frame, roles.get("group"), ids)
    frame, columns = spread_people(frame.reset_index(drop=True), columns)
    if caveats:
        frame = frame.assign(**{GROUP: units})
        roles = {**roles, "group": GROUP}
    for name in (roles.get("group"), roles.get("benchmark")):
        if name is not None and frame[name].map(is_missing).any():
            row = int(frame[name].map(is_missing).argmax())
            raise ValueError(f"row {row}: {name!r} is missing; fill it, or leave the row out")
    return {"frame": frame, "judges": judges, "people": columns, "caveats": caveats, **roles}


def _listed(names: Any) -> list[str]:
    """One name, several or none as a list."""
    if names is None:
        return []
    return [names] if isinstance(names, str) else list(names)


def spread_people(frame: DataFrame, people: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Give each rater a column where one column holds lists of scores, a rater a position."""
    columns = list(people)
    cells = frame[columns[0]].map(from_csv) if len(columns) == 1 else None
    if cells is None or not cells.map(is_list_like).any():
        return frame, columns
    lists = [list(row) if is_list_like(row) else [] for row in cells]
    n_raters = max(map(len, lists))
    names = [f"person {rater}" for rater in range(1, n_raters + 1)]
    padded = [[*row, *[None] * (n_raters - len(row))] for row in lists]
    ratings = DataFrame(padded, columns=names, index=frame.index)
    return pd.concat([frame.drop(columns=columns), ratings], axis=1), names


# --- From runs


def from_runs(
    runs: Mapping[str, DataFrame],
    items: Items,
    score: str,
) -> dict[str, Any]:
    """The fields of a table out of runs by judge; see `vjudge.scores`."""
    by_judge = _by_judge(runs)
    caveats = []
    columns = {}
    about_items = []
    for name, run in by_judge.items():
        if score not in run:
            raise ValueError(f"{name}: the run has no column {score!r}; it has {list(run)}")
        columns[name] = _by_id(name, run, score)
        if len(columns[name]) < len(run):
            n_items = len(columns[name])
            caveats.append(f"{name}: {len(run):,} verdicts on {n_items:,} items, their mean")
        about_items.append(_item_columns(run))
    # 1) the items, in the order of the first run, and those that only others have
    rows = pd.concat(about_items)
    for column in {"gold", "preference"} & set(rows):
        _check_one_truth(rows[column].dropna())
    rows = rows[~rows.index.duplicated()]
    if items is not None:
        rows = _with_items(rows, items)
    frame = pd.concat([rows, DataFrame(columns).reindex(rows.index)], axis=1)
    # 2) who is what
    frame, people = _people_of(frame)
    frame[GROUP] = groups_of(frame.rename_axis(None).assign(id=frame.index))
    scales = {}
    for name, run in by_judge.items():
        scale_of_run = _scale_of(run)
        if scale_of_run is not None:
            scales[name] = scale_of_run
    scale = _scale_of_rubrics(items)
    if scale is None:
        truth = frame[[*people, *({"gold"} & set(frame))]].apply(pd.to_numeric)
        scale = _narrowest(set(scales.values()), truth.min().min(), truth.max().max())
        if scale is not None and len(set(scales.values())) > 1:
            caveats.append(
                f"judges have several scales, and people's scale is taken to be {scale[0]:g} to"
                f" {scale[1]:g} (scale=)"
            )
    verdicts = [run.assign(judge=name) for name, run in by_judge.items()]
    return {
        "frame": frame.rename_axis("id").reset_index(),
        "judges": list(columns),
        "people": people,
        "gold": "gold" if "gold" in frame and frame["gold"].notna().any() else None,
        "group": GROUP,
        "response": "response" if "response" in frame else None,
        "scale": scale,
        "scales": scales,
        "caveats": caveats,
        "verdicts": pd.concat(verdicts, ignore_index=True),
    }


def _by_judge(runs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """One run a judge: a frame that holds several judges is split by its column `judge`."""
    split = {}
    for name, run in runs.items():
        if not isinstance(run, DataFrame) or "id" not in run or run.empty:
            raise ValueError(
                f"{name or 'the run'}: give a run with verdicts, as Judge.grade or Judge.compare"
                " returns it, with ids; a wide table of scores needs judges=[...]"
            )
        runs_by_name = {str(name or "judge"): run}
        if "judge" in run and run["judge"].nunique() > 1:
            runs_by_name = {str(judge): rows for judge, rows in run.groupby("judge", sort=False)}
        elif "judge" in run and not name:
            runs_by_name = {str(run["judge"].iloc[0]): run}
        for judge, rows in runs_by_name.items():
            if judge in split:
                raise ValueError(f"two runs are of a judge {judge!r}: give each a name of its own")
            split[judge] = rows
    return split


def _by_id(name: str, run: DataFrame, column: str) -> Series:
    """A run's verdicts by item: numbers as their mean over samples, choices as they are.

    TypeError: a score is no number. ValueError: a pair has several verdicts.
    """
    ids = run["id"].map(str)
    if column != "verdict":
        values = Series(as_floats(run[column], name=f"{name}.{column}"), run.index)
        return values.groupby(ids, sort=False).mean()
    twice = ids[ids.duplicated()]
    if len(twice):
        count = int((ids == twice.iloc[0]).sum())
        raise ValueError(
            f"{name}: pair {twice.iloc[0]!r} has {count} verdicts: give one, as Judge.compare does"
        )
    return run[column].set_axis(ids)


def _check_one_truth(column: Series) -> None:
    """ValueError where runs give an item several values of gold or preference."""
    values = column.groupby(level=0, sort=False).unique()
    several = values[values.map(len) > 1]
    if len(several):
        listing = ", ".join(map(str, several.iloc[0]))
        raise ValueError(
            f"{several.index[0]!r} has {len(several.iloc[0])} values of {column.name} ({listing}):"
            " give runs of one collection"
        )


def _item_columns(run: DataFrame) -> DataFrame:
    """What a run says of its items, by id."""
    names = [name for name in run if name not in OF_VERDICTS]
    rows = run[names].set_index(run["id"].map(str)).drop(columns="id")
    return rows[~rows.index.duplicated()]


def _with_items(rows: DataFrame, items: Items) -> DataFrame:
    """Add the collection's columns to the items of runs, by id."""
    table = DataFrame(list(data.rows_of(items))).drop(columns=[*PICTURE_COLUMNS], errors="ignore")
    table = table.set_index(table["id"].map(str)).drop(columns="id")
    unknown = rows.index.difference(table.index)
    if len(unknown):
        raise ValueError(
            f"{len(unknown)} items of the runs are not in items=, such as {unknown[0]!r}: give the"
            " collection that was graded"
        )
    fresh = [name for name in table if name not in rows or name in ITEM_TEXTS]
    return rows.drop(columns=fresh, errors="ignore").join(table[fresh])


def _people_of(frame: DataFrame) -> tuple[DataFrame, list[str]]:
    """The frame with a column a rater, and the raters."""
    if "human_scores" not in frame:
        return frame, []
    if not any(np.iterable(row) and list(row) for row in frame["human_scores"]):
        return frame.drop(columns="human_scores"), []
    return spread_people(frame, ["human_scores"])


def _scale_of(run: DataFrame) -> Bounds | None:
    """The scale of a run, where all its rows have one."""
    if not {"lowest", "highest"} <= set(run):
        return None
    bounds = run[["lowest", "highest"]].drop_duplicates()
    if len(bounds) != 1 or bounds.isna().any(axis=None):
        return None
    lowest, highest = bounds.iloc[0]
    return float(lowest), float(highest)


def _scale_of_rubrics(items: Items) -> Bounds | None:
    """The scale of a collection's rubrics, where all have one."""
    if items is None:
        return None
    levels = {tuple(row_levels(row)) for row in data.rows_of(items)}
    if len(levels) != 1 or levels == {()}:
        return None
    (scores_of_all,) = levels
    return float(min(scores_of_all)), float(max(scores_of_all))


def _narrowest(scales: set[Bounds], lowest: float, highest: float) -> Bounds | None:
    """The narrowest scale that holds the lowest and the highest score; None where none does."""
    for scale in sorted(scales, key=lambda bounds: bounds[1] - bounds[0]):
        if not (lowest < scale[0] or highest > scale[1]):
            return scale
    return None


# --- The truth


def truth_of(table: RatingTable) -> tuple[Series, str]:
    """What judges are held against, a number an item, and what it is called.

    The gold score where there is one, else the mean of people's.

    NotComputed: no item has either.
    """
    gold = Series(np.nan, table.frame.index)
    if table.gold is not None:
        gold = table.frame[table.gold]
    truth, sources = gold_else_people(gold, table.frame[table.people])
    n = len(table.people)
    mean = "one person's score" if n == 1 else f"the mean of {n} people"
    names = {"gold": "the true score", "mean of people": mean}
    used = [name for source, name in names.items() if (sources == source).any()]
    if not used:
        raise NotComputed(
            "nobody scored these items, and no true score is known: add human_scores or gold to the"
            " collection"
        )
    return truth, " or ".join(used)


def stacked(tables: Sequence[DataFrame]) -> DataFrame:
    """Tables below one another, with the method of the first and the caveats of all."""
    joined = pd.concat(tables, ignore_index=True)
    joined.attrs = {**tables[0].attrs, "caveats": merged_caveats(tables)}
    return joined


def names_of(values: Iterable[object], limit: int = 5) -> str:
    """Some names for a sentence: at most `limit`, and how many more there are.

    >>> names_of(["a", "b", "c"]), names_of(["a, x", "b"]), names_of(["a", "b", "c"], limit=2)
    ('a, b and c', 'a, x; b', 'a, b and 1 more')
    """
    texts = list(map(str, values))
    if len(texts) > limit:
        texts = [*texts[:limit], f"{len(texts) - limit} more"]
    if any("," in text for text in texts):
        return "; ".join(texts)
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"
