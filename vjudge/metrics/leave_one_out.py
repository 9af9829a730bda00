"""Correlate each person and each judge with the mean of the other people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import sparse

from vjudge.metrics.array_types import Column, Floats, Groups, Integers, Ratings, Weights
from vjudge.metrics.caveats import add_caveats
from vjudge.metrics.cells import count_matrix, distinct_rows
from vjudge.metrics.coefficients import mean_of_defined
from vjudge.metrics.columns import as_floats, check_columns, judges_by_name
from vjudge.metrics.groups import design_of, groups_from_ids
from vjudge.metrics.ratings import read_ratings
from vjudge.metrics.tables import tabulate
from vjudge.metrics.weighted_correlation import STATISTICS, correlations

MAX_RATERS = 4  # the most people whose mean is correlated with the mean of the others
SUBSETS_PER_SIZE = 10  # the most subsets of each size; of more, as many random ones are taken


@dataclass(frozen=True)
class ScorePair:
    """Two columns of a sample, stored as the distinct pairs of their values.

    Such pairs are few where scores have few levels.

    Attributes:
        x, y: the values of each distinct pair; shape (pairs,).
        rows_of_pair: a matrix (pairs, rows of the sample), 1 where a row has the pair's values; a
            row that lacks a value belongs to no pair.
    """

    x: Floats
    y: Floats
    rows_of_pair: sparse.csr_array

    @classmethod
    def of(cls, x: Floats, y: Floats) -> ScorePair:
        """Pair two columns of shape (rows,), NaN where a value is missing."""
        complete = np.flatnonzero(~np.isnan(x + y))
        pairs, pair_of_row = distinct_rows(np.column_stack([x, y])[complete])
        rows_of_pair = count_matrix(pair_of_row, complete, (len(pairs), len(x)))
        return cls(pairs[:, 0], pairs[:, 1], rows_of_pair)

    def correlations(self, weights: Weights) -> Floats:
        """Correlate the columns by each of `STATISTICS`.

        Args:
            weights: how often each row of the sample occurs, shape (rows, replicates).

        Returns:
            Shape (3, replicates).
        """
        return correlations(self.x, self.y, self.rows_of_pair @ weights)


@dataclass(frozen=True)
class Comparison:
    """A rater, or a mean of raters, of the table that `raters` makes, where it has three rows.

    Attributes:
        who: the name of the rater, or of the mean.
        kind: which of these it is.
        n_others: with the mean of how many people the scores are correlated.
        pairs: the scores and the mean of the others, for one or several choices of the others; the
            rows hold the mean of these pairs' correlations.
    """

    who: str
    kind: Literal["person", "mean of k people", "judge"]
    n_others: int
    pairs: list[ScorePair]

    def correlations(self, weights: Weights) -> Floats:
        """Average the correlations of the pairs that have one, see `ScorePair.correlations`."""
        return mean_of_defined([pair.correlations(weights) for pair in self.pairs])

    def n_items(self, counts: Integers) -> int:
        """Count the items that have both values in at least one of the pairs.

        Args:
            counts: how many items each row of the sample stands for, shape (rows,).
        """
        has_pair = sum(pair.rows_of_pair.sum(axis=0) for pair in self.pairs) > 0
        return int(counts[has_pair].sum())


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

    Each person is correlated with the mean of the others. Each judge is correlated with the same
    means, one for each person left out, on that person's items; its row has the average of these
    correlations. The mean of k people is correlated with the mean of the remaining people.

    Args:
        people: ratings, items by people, as in `agreement`; a frame's columns name the people.
        judges: each judge's scores of the items, by name; NaN where missing. None: people alone.
        groups, n_resamples, seed: see `correlate`; the seed also chooses random subsets of people.
        options: confidence, see `correlate`.

    Returns:
        One row per statistic and rater, or mean of raters, over the items that two people or more
        rated, with columns
        - who, and kind: "person", "mean of k people" or "judge";
        - statistic, and estimate, low, high, n and missing as in `correlate`;
        - others: with the mean of how many people the scores are correlated.
        Compare a judge with "one person", the mean over people. "Mean of 2 people", up to 4, are
        means over all subsets, or over 10 random ones; their remaining people are fewer and their
        mean less reliable, so that no row is an upper bound.

    Source: Calderon, Reichart and Dror, "The Alternative Annotator Test" (arXiv 2501.10970),
    section 3.

    >>> people = pd.DataFrame({"ann": [1, 2, 4, 5], "bob": [2, 2, 3, 5], "eve": [1, 3, 4, 4]})
    >>> table = raters(people, {"tiny": [1, 2, 3, 5]}, n_resamples=0)
    >>> r = table[table["statistic"] == "pearson"].set_index("who")["estimate"].round(2)
    >>> r[["ann", "one person", "tiny"]].to_dict()
    {'ann': 0.99, 'one person': 0.88, 'tiny': 0.97}
    """
    judges = {} if judges is None else judges
    by_name = judges_by_name(judges, minimum=0)
    groups, caveats = groups_from_ids(people, groups)
    check_columns(people=people, groups=groups, **by_name)
    # 1) Distinct rows of scores, among the items that two people rated
    ratings, names = read_ratings(people)
    columns = [as_floats(column, name=name) for name, column in by_name.items()]
    used = (~np.isnan(ratings)).sum(axis=1) >= 2
    cells, cell = distinct_rows(np.column_stack([ratings, *columns])[used])
    design = design_of(cell, groups, used)
    people_scores, judge_scores = np.split(cells.T, [len(names)])  # (people, k), (judges, k)

    # 2) The pairs of scores to correlate: of people, of means of people, and of judges
    rows = _people_with_others(people_scores, list(map(str, names)), seed)
    for judge, scores in zip(judges, judge_scores, strict=True):
        pairs = _judge_with_others(scores, people_scores)
        rows.append(Comparison(str(judge), "judge", n_others=len(names) - 1, pairs=pairs))

    def statistic(weights: Weights) -> Floats:
        return np.concatenate([row.correlations(weights) for row in rows])

    # 3) Estimates, with the number of items of each row; each comparison has three rows
    counts = np.repeat([row.n_items(design.counts) for row in rows], len(STATISTICS))
    result = tabulate(
        statistic,
        [(row.who, row.kind, name, row.n_others) for row in rows for name in STATISTICS],
        design,
        n=counts,
        missing=len(ratings) - counts,
        method="fisher",
        index=["who", "kind", "statistic", "others"],
        reason="too few shared items, or no variation",
        n_resamples=n_resamples,
        seed=seed,
        **options,
    )
    table = result.reset_index()
    table.attrs = result.attrs
    add_caveats(table, caveats)
    return table["who kind statistic estimate low high n missing others".split()]


def _judge_with_others(scores: Floats, people: Floats) -> list[ScorePair]:
    """Pair a judge's scores with the mean of all people but one, for each person left out.

    Args:
        scores: the judge's scores, shape (rows,), NaN where missing.
        people: the people's ratings, shape (people, rows), NaN where missing.

    Returns:
        One pair per person, on the items that this person rated.
    """
    pairs = []
    for person, ratings in enumerate(people):
        # Person and judge are compared on the same items, with the same mean.
        on_same_items = np.where(np.isnan(ratings), np.nan, scores)
        pairs.append(ScorePair.of(on_same_items, _mean(np.delete(people, person, axis=0))))
    return pairs


def _people_with_others(people: Floats, names: list[str], seed: int) -> list[Comparison]:
    """Compare each person, and the means of one to four people, with the remaining people.

    Args:
        people: ratings, shape (people, rows), NaN where missing.
        names: the people's names.
        seed: of the random subsets.

    Returns:
        One comparison per person, then one per k, the first of which is "one person".
    """
    m = len(names)  # people

    def subset_pair(subset: list[int]) -> ScorePair:
        """Pair the mean of a subset, on items that all of them rated, with the remaining mean."""
        ratings = people[subset]
        mean = np.where(np.isnan(ratings).any(axis=0), np.nan, _mean(ratings))
        return ScorePair.of(mean, _mean(np.delete(people, subset, axis=0)))

    single = [subset_pair([person]) for person in range(m)]  # subsets of one person each
    rows = []
    for name, pair in zip(names, single, strict=True):
        rows.append(Comparison(name, "person", n_others=m - 1, pairs=[pair]))
    rows.append(Comparison("one person", "mean of k people", n_others=m - 1, pairs=single))
    for k in range(2, min(m - 1, MAX_RATERS) + 1):
        # All subsets of k people, or random ones if they are many
        if math.comb(m, k) <= SUBSETS_PER_SIZE:
            subsets = [list(subset) for subset in combinations(range(m), k)]
        else:
            rng = np.random.default_rng(seed)
            subsets = [rng.permutation(m)[:k].tolist() for _ in range(SUBSETS_PER_SIZE)]
        pairs = [subset_pair(subset) for subset in subsets]
        who = f"mean of {k} people"
        rows.append(Comparison(who, "mean of k people", n_others=m - k, pairs=pairs))
    return rows


def _mean(ratings: Floats) -> Floats:
    """Average the ratings of each column, NaN where there are none.

    Means that differ by rounding alone become equal, so that they tie.
    """
    return pd.DataFrame(ratings).mean().to_numpy().round(12)
