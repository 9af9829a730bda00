"""Correlations of each person, and of each judge, with the mean of the other people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Column, Floats, Groups, Ratings, Weights
from vjudge.metrics.caveats import add_caveats
from vjudge.metrics.cells import count_matrix, distinct_rows
from vjudge.metrics.coefficients import mean_of_defined
from vjudge.metrics.columns import as_floats, check_columns, judges_by_name
from vjudge.metrics.groups import design_of, groups_from_ids
from vjudge.metrics.ratings import read_ratings
from vjudge.metrics.tables import tabulate
from vjudge.metrics.weighted_correlation import STATISTICS, correlations

SUBSETS = 10  # of raters, whose mean is held against the rest
MAX_RATERS = 4  # in such a mean


@dataclass(frozen=True)
class Paired:
    """Two columns of a sample by their distinct cells, few where both have few levels.

    Attributes:
        x, y: the values of each cell.
        sums: a matrix (cells, rows of the sample) that sums rows with both values by cell.
    """

    x: Floats
    y: Floats
    sums: Any

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Paired:
        """From columns with NaN where a value is missing."""
        both = np.flatnonzero(~np.isnan(x + y))
        cells, code = distinct_rows(np.column_stack([x, y])[both])
        return cls(cells[:, 0], cells[:, 1], count_matrix(code, both, (len(cells), len(x))))

    def correlations(self, weights: Weights) -> Floats:
        """Correlations (3, replicates) of the sample's rows with these weights."""
        return correlations(self.x, self.y, self.sums @ weights)


@dataclass(frozen=True)
class Comparison:
    """A row of `raters`: whose scores are held against the mean of how many others."""

    who: str
    kind: Literal["person", "mean of k people", "judge"]
    n_others: int
    pairs: list[Paired]  # whose mean correlation it is


def raters(
    people: Ratings,
    judges: Mapping[str, Column] | pd.DataFrame | None = None,
    *,
    groups: Groups = None,
    n_resamples: int = 2_000,
    seed: int = 0,
    **options: Any,
) -> pd.DataFrame:
    """Correlate people and judges with the same other people: may a judge stand for a person?

    Each person is held against the mean of the others, and each judge against the same means, one
    person left out in turn, on that person's items. The mean of k people is held against the rest.

    Args:
        people, groups: ratings as in `agreement`; a frame's columns name the people.
        judges: scores of the items by judge; NaN where missing. None: people alone.
        n_resamples, seed, options: confidence, see `correlate`.

    Returns:
        A row each: who; kind ("person", "mean of k people" or "judge"); statistic; estimate, low,
        high, n and missing as in `correlate`; others, how many people they are held against. "One
        person" is the mean over people, the one to hold a judge beside. "Mean of 2 people", up to
        4, are means over all subsets, or 10 random ones: against fewer others, whose mean is less
        reliable, so that no row is the most that can be reached.

    Source: Calderon, Reichart and Dror, "The Alternative Annotator Test" (arXiv 2501.10970),
    section 3.

    >>> people = pd.DataFrame({"ann": [1, 2, 4, 5], "bob": [2, 2, 3, 5], "eve": [1, 3, 4, 4]})
    >>> table = raters(people, {"tiny": [1, 2, 3, 5]}, n_resamples=0)
    >>> r = table[table["statistic"] == "pearson"].set_index("who")["estimate"].round(2)
    >>> r[["ann", "one person", "tiny"]].to_dict()
    {'ann': 0.99, 'one person': 0.88, 'tiny': 0.97}
    """
    by_name = {} if judges is None else dict(judges)
    named = judges_by_name(by_name, minimum=0)
    groups, caveats = groups_from_ids(people, groups)
    check_columns(people=people, groups=groups, **named)
    table, names = read_ratings(people)
    columns = [as_floats(column, name=name) for name, column in named.items()]
    used = (~np.isnan(table)).sum(axis=1) >= 2
    cells, cell = distinct_rows(np.column_stack([table, *columns])[used])
    design = design_of(cell, groups, used)
    of_people, of_judges = np.split(cells.T, [len(names)])
    rows = _against_the_others(of_people, list(map(str, names)), seed)
    for judge, column in zip(by_name, of_judges, strict=True):
        pairs = []
        for person in range(len(names)):
            on_persons_items = np.where(np.isnan(of_people[person]), np.nan, column)
            others = _mean(np.delete(of_people, person, axis=0))
            pairs.append(Paired.of(on_persons_items, others))
        rows.append(Comparison(str(judge), "judge", len(names) - 1, pairs))
    paired = list({id(pair): pair for row in rows for pair in row.pairs}.values())

    def statistic(weights: Weights) -> Floats:
        """The mean correlations of all rows, each pair computed once: (rows * 3, replicates)."""
        by_pair = {id(pair): pair.correlations(weights) for pair in paired}
        return np.concatenate(
            [mean_of_defined([by_pair[id(pair)] for pair in row.pairs]) for row in rows]
        )

    # How many items count in a row
    counts = []
    for row in rows:
        counted = sum(pair.sums.sum(axis=0) for pair in row.pairs) > 0
        counts += [int(design.counts[counted].sum())] * len(STATISTICS)
    result = tabulate(
        statistic,
        [(row.who, row.kind, name, row.n_others) for row in rows for name in STATISTICS],
        design,
        n=counts,
        missing=len(table) - np.array(counts),
        method="fisher",
        index=["who", "kind", "statistic", "others"],
        reason="too few shared items, or no variation",
        n_resamples=n_resamples,
        seed=seed,
        **options,
    )
    flat = result.reset_index()
    flat.attrs = result.attrs
    add_caveats(flat, caveats)
    return flat["who kind statistic estimate low high n missing others".split()]


def _against_the_others(people: Floats, names: list[str], seed: int) -> list[Comparison]:
    """Each person, and the means of one, two ... of them, against the rest; people of (m, rows)."""
    m = len(names)

    def against_the_others(subset: Any) -> Paired:
        inside = people[subset]
        mean = np.where(np.isnan(inside).any(axis=0), np.nan, _mean(inside))
        return Paired.of(mean, _mean(np.delete(people, subset, axis=0)))

    alone = [against_the_others([person]) for person in range(m)]
    rows = []
    for name, pair in zip(names, alone, strict=True):
        rows.append(Comparison(name, "person", m - 1, [pair]))
    rows.append(Comparison("one person", "mean of k people", m - 1, alone))
    for k in range(2, min(m - 1, MAX_RATERS) + 1):
        subsets = list(combinations(range(m), k)) if m <= 12 else []
        if not 0 < len(subsets) <= SUBSETS:
            rng = np.random.default_rng(seed)
            subsets = [tuple(rng.permutation(m)[:k]) for _ in range(SUBSETS)]
        pairs = [against_the_others(list(subset)) for subset in subsets]
        rows.append(Comparison(f"mean of {k} people", "mean of k people", m - k, pairs))
    return rows


def _mean(ratings: Floats) -> Floats:
    """The mean of each column's ratings, NaN where there is none; equal means are ties."""
    return pd.DataFrame(ratings).mean().to_numpy().round(12)
