"""A table of ratings: one row per item, one column per judge or person, and each column's role.

`Scores` and `Choices` are its two kinds; sources.py makes them out of runs and wide frames.
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

from vjudge.data.summary import gold_else_people
from vjudge.data.verdicts import Bounds
from vjudge.judging.columns import closed_in
from vjudge.metrics.caveats import merged_caveats
from vjudge.plots.latex import sentences
from vjudge.results import NotComputed, Result, Results, current, settings

if TYPE_CHECKING:
    from vjudge.analysis.card import Report

ROLES = ("gold", "group", "benchmark", "system", "response")  # fields that name a column


@dataclass(frozen=True, eq=False)
class RatingTable:
    """Ratings of items, and the role of each column.

    Attributes:
        frame: one row per item; the index counts from 0.
        judges, people: the columns with the verdicts of each judge and of each person.
        gold: the column with the true score or preference. Where it is missing, the mean of people
            is the truth.
        group: the column with the unit of resampling, such as the image; None resamples items.
        benchmark, system, response: the columns with the benchmark of an item, the model that wrote
            (or drew) the response, and the text of the response or its length.
        scale: the lowest and the highest score of people; None where it is unknown.
        scales: the lowest and the highest score of each judge whose scale is known.
        about: what captions call the items.
        source, licence, citation: where public verdicts come from.
        caveats: the known limits of these data, which stand beside every number made of them.
        verdicts: the rows of the runs that the table was made of; None for a wide table.
        reason: why there are no verdicts at all: no analysis is computed then, and each result
            shows this reason. "" where there are verdicts.
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
    reason: str = ""

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        people = f"{len(self.people)} people" if self.people else "no people"
        judges = ", ".join(self.judges)
        return f"{type(self).__name__}: {len(self):,} items, {people}, judges {judges}"

    def __getattr__(self, name: str) -> Any:
        """Return an analysis that only the other kind of table has, as one that is not computed.

        Python calls this for a name that the table lacks. The analysis returned takes any arguments
        and returns a `Result` with the reason, so that a notebook for either kind goes on.

        Raises:
            AttributeError: neither kind has an analysis of this name.
        """
        for kind in RatingTable.__subclasses__():
            if hasattr(vars(kind).get(name), "__wrapped__"):  # decorated by `results.analysis`
                return partial(_of_other_kind, name, type(self).__name__)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def groups(self) -> Series | None:
        """The unit of resampling of each item; None where items are resampled one by one."""
        return None if self.group is None else self.frame[self.group]

    @property
    def benchmarks(self) -> Series | None:
        """The benchmark of each item; None where all items are of one benchmark."""
        if self.benchmark is None or self.frame[self.benchmark].nunique() < 2:
            return None
        return self.frame[self.benchmark].astype(str)

    def column(self, name: str) -> Series:
        """Return a column by its name or by its role: gold, group, benchmark, system, response.

        Raises:
            NotComputed: there is no such column.
        """
        key = name
        if name in ROLES and getattr(self, name) is not None:
            key = getattr(self, name)
        if key not in self.frame:
            raise NotComputed(
                f"there is no column {name!r}: use one of {', '.join(map(str, self.frame))}, or"
                f" name it when the table is made ({name}=...)"
            )
        return self.frame[key]

    def _result(self, table: DataFrame, *, caption: str, **fields: Any) -> Result:
        """Make a result with the caveats of these data.

        Args:
            table: the numbers.
            caption: the caption; the citation of the data and the number of closed verdicts are
                appended.
            fields: further arguments of `Result`.
        """
        notes = []
        if self.citation:
            notes.append(f"Data: {self.citation}")
        if self.verdicts is not None:
            notes.append(closed_in(self.verdicts))  # "" where none was closed, which adds nothing
        caption = sentences(caption, *notes)
        return Result(table, caption=caption, data_caveats=self.caveats, **fields)

    def _require_people(self, count: int) -> None:
        """Raise NotComputed where fewer than `count` people scored the items."""
        if len(self.people) < count:
            raise NotComputed(
                f"{len(self.people)} people scored these items, and it takes {count}: add the"
                " scores of each (human_scores, people=[...])"
            )

    def _require_two_judges(self) -> None:
        """Raise NotComputed where there is one judge."""
        if len(self.judges) < 2:
            raise NotComputed("there is one judge: add the runs of another")

    def all(self, **resampling: Any) -> Results:
        """Compute the analyses of a table, by name; `Scores` and `Choices` define it."""
        raise NotImplementedError

    def paper(self, out: str | Path, venue: str | None = None, **resampling: Any) -> Results:
        """Write every figure, table and caption of a paper into a folder.

        Args:
            out: the folder, which is made where it is missing.
            venue: the venue whose page they fit, one of `plots.VENUES`; None means that of
                `settings`.
            resampling: n_resamples, seed, confidence; used for scores, ignored for choices.

        Returns:
            The results by name, with those that were not computed.

        Raises:
            ValueError: the venue is unknown.
        """
        before = current().venue
        settings(venue=venue or before)
        try:
            return self.all(**resampling).save(Path(out).expanduser())
        finally:
            settings(venue=before)

    def report(self, battery: Result | None = None, out: str | Path | None = None) -> Report:
        """Make the report card of the judges: one page, a row per claim and a column per judge.

        Args:
            battery: the result of `probes.battery` for the same judges, by name.
            out: a folder for the page, its figures and tables; None writes nothing.
        """
        from vjudge.analysis.card import make_report  # card.py imports this module

        table: Any = self  # `Scores` or `Choices`
        card = make_report(table, battery)
        return card if out is None else card.write(out)

    def only(self, judges: Sequence[str]) -> Self:
        """Return the same items with some of the judges, in the order given.

        Raises:
            ValueError: there is no such judge.
        """
        for name in judges:
            if name not in self.judges:
                raise ValueError(f"no judge is called {name!r}: {', '.join(self.judges)}")
        return replace(self, judges=list(judges))

    def where(self, **values: Any) -> Self:
        """Return the items whose columns have these values, as in `where(criterion="fluency")`.

        Raises:
            ValueError: there is no such column or value.
        """
        frame = self.frame
        for column, value in values.items():
            if column not in frame:
                raise ValueError(f"no item has {column}={value!r}: no such column")
            matches = frame[column] == value
            if not matches.any():
                listed = names_of(frame[column].unique())
                raise ValueError(f"no item has {column}={value!r}: {listed}")
            frame = frame[matches]
        subject = f"{self.about}, {', '.join(map(str, values.values()))}"
        return replace(self, frame=frame.reset_index(drop=True), about=subject)


def _of_other_kind(name: str, kind: str, *_: Any, **__: Any) -> Result:
    """Return the result of an analysis that a table of this kind, such as "Choices", lacks.

    The arguments of the analysis are accepted and not used.
    """
    needed = "verdicts on pairs, and each row here is one response"
    if kind == "Choices":
        needed = "scores of single responses, and each row here is a pair"
    return Result.not_computed(f"{name}() needs {needed}: see vj.scores and vj.choices", name=name)


# --- The truth


def truth_of(table: RatingTable) -> tuple[Series, str]:
    """Return the truth that judges are compared with, one number per item, and its name.

    The truth is the gold score, or the mean of people where gold is missing.

    Raises:
        NotComputed: no item has either.
    """
    gold = Series(np.nan, table.frame.index)
    if table.gold is not None:
        gold = table.frame[table.gold]
    truth, sources = gold_else_people(gold, table.frame[table.people])
    names = []
    if (sources == "gold").any():
        names.append("the true score")
    if (sources == "mean of people").any():
        n = len(table.people)
        names.append("one person's score" if n == 1 else f"the mean of {n} people")
    if not names:
        raise NotComputed(
            "nobody scored these items, and no true score is known: add human_scores or gold to the"
            " collection"
        )
    return truth, " or ".join(names)


# --- Tables and texts of results


def stacked(tables: Sequence[DataFrame]) -> DataFrame:
    """Stack tables into one; its `attrs` are those of the first, with the caveats of all."""
    table = pd.concat(tables, ignore_index=True)
    table.attrs = {**tables[0].attrs, "caveats": merged_caveats(tables)}
    return table


def names_of(values: Iterable[object], limit: int = 5) -> str:
    """Join names for a sentence: at most `limit` of them, and how many more there are.

    Names with a comma in them are separated by semicolons.

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
