"""Which of several judges agrees better with a reference: bootstrap, permutation and Holm."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics.correlation import FEWER_RESAMPLES, MANY_LEVELS, RESAMPLES, _undefined
from vjudge.metrics.resampling import (
    STATISTICS,
    Design,
    Floats,
    Integers,
    Weights,
    correlations,
    distinct,
    p_value,
    swaps,
)
from vjudge.metrics.tables import Column, Groups, aligned, design_of, holm, tabulate

COMPARISON = "estimate_a estimate_b difference low high p p_holm conflict n missing".split()


def compare_judges(
    reference: Column,
    judges: Mapping[str, Any] | pd.DataFrame,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
    n_resamples: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare how well judges of the same items agree with one reference, pair by pair.

    Args:
        reference: the scores to agree with, of n items; None and NaN are missing.
        judges: name -> scores of the same items, or a frame with a column each; at least two.
        groups, confidence, seed: see `correlate`; every pair of judges has the same resamples.
        n_resamples: bootstrap replicates, and permutations; None takes 10,000, and 2,000 of scores
            with more than 100 levels; 0 leaves intervals and p NaN.

    Returns:
        A row for each pair of judges and statistic (index a, b, statistic), NaN with a warning
        where undefined: estimate_a, estimate_b, each judge's correlation with the reference over
        the items that both scored; difference, in [-2, 2], with low and high of a paired bootstrap;
        p, two-sided, of swapping the judges' scores within items or groups, first brought to one
        scale (standardised for Pearson, else level matched to level by its share of items); p_holm,
        corrected over the pairs of judges, for each statistic alone; conflict, whether p and
        interval disagree at this confidence, and nothing is proven; n and missing. `attrs` has
        p_floor, the least possible p.

    Source: Good (2005), chapter 3, for the permutation; Holm, Scandinavian Journal of Statistics 6
    (1979), 65-70. Coverage and level by simulation, similar judges among them:
    figures/validity_comparison.csv.

    >>> first, second = [1, 2, 3, 4, 5] * 4, [1, 3, 2, 5, 4] * 4
    >>> table = compare_judges(first, {"first": first, "second": second}, n_resamples=200)
    >>> table["difference"].round(2).tolist()
    [0.2, 0.2, 0.4]
    """
    names = [str(name) for name in judges]
    if len(set(names)) < max(len(names), 2):
        given = ", ".join(names) or "none"
        raise ValueError(f"judges must be two or more, each with a name of its own, not {given}")
    by_name = {f"judge {name}": judges[name] for name in judges}
    gold, *columns, _ = aligned(reference=reference, groups=groups, **by_name)
    if n_resamples is None:
        levels = max(len(np.unique(column)) for column in (gold, *columns))
        n_resamples = FEWER_RESAMPLES if levels > MANY_LEVELS else RESAMPLES
    parts = {}
    for (a, x), (b, y) in combinations(zip(names, columns, strict=True), 2):
        three = np.stack([gold, x, y])
        options = {"confidence": confidence, "n_resamples": n_resamples, "seed": seed}
        parts[a, b] = _compare(three, a, b, groups, **options)
    table = pd.concat(parts, names=["a", "b", "statistic"])
    by_statistic = table.groupby(level="statistic")["p"]
    table["p_holm"] = by_statistic.transform(lambda p: holm(p.to_numpy()))
    excludes_0 = (table["low"] > 0) | (table["high"] < 0)
    disagree = (table["p"] <= 1 - confidence) != excludes_0
    table["conflict"] = table[["p", "low"]].notna().all(axis=1) & disagree
    unit = "items" if groups is None else "groups"
    table.attrs = {
        "method": f"{confidence:.0%} paired bootstrap intervals (Student's) and paired permutation"
        f" over {unit}, {n_resamples:,} of each, seed {seed}; Holm over {len(parts)} pairs of"
        " judges",
        "p_floor": 1 / (n_resamples + 1) if n_resamples else None,
    }
    return table[COMPARISON]


def _compare(columns: Floats, a: str, b: str, groups: Groups, **options: Any) -> pd.DataFrame:
    """The rows of one pair of judges; columns of shape (3, n): the reference, a, b."""
    used = np.asarray(~np.isnan(columns).any(axis=0))
    gold, x, y = columns[:, used]
    why = _undefined(**{"the reference": gold, a: x, b: y})
    cells, cell = distinct(columns[:, used].T)
    design = design_of(cell, groups, used)

    def sides(weights: Weights) -> Floats:
        """The correlations with the reference, shape (2, 3, replicates)."""
        cell_gold, cell_a, cell_b = cells.T
        return np.stack(
            [correlations(cell_gold, cell_a, weights), correlations(cell_gold, cell_b, weights)]
        )

    def difference(weights: Weights) -> Floats:
        if why:
            return np.full((3, weights.shape[1]), np.nan)
        of_a, of_b = sides(weights)
        return of_a - of_b

    table = tabulate(difference, STATISTICS, design, why=f"{a} and {b}: {why}", **options)
    table = table.rename(columns={"estimate": "difference"})
    table[["estimate_a", "estimate_b", "p"]] = np.nan
    if not why:
        table["estimate_a"], table["estimate_b"] = sides(design.counts[:, None])[..., 0]
        if options["n_resamples"] and design.n_units > 1:
            first = np.unique(cell, return_index=True)[1]
            table["p"] = _permutation(
                design, gold, np.stack([x, y]), first, options["n_resamples"], options["seed"]
            )
    return table


def _permutation(
    design: Design, gold: Floats, judges: Floats, first: Integers, n_resamples: int, seed: int
) -> Floats:
    """p of each statistic, of swapping the judges' (2, n) scores; `first` item of each cell."""
    centred = judges - judges.mean(axis=1, keepdims=True)
    centred /= np.abs(centred).max(axis=1, keepdims=True)  # first, so that squares stay in range
    standardised = centred / centred.std(axis=1, keepdims=True)
    stands = np.concatenate([design.counts, np.zeros_like(design.counts)])[:, None]
    twice = np.concatenate([gold[first], gold[first]])
    parts = []
    for statistics, scale in (
        (("pearson",), standardised),
        (("spearman", "kendall"), _matched(*judges)),
    ):
        a, b = scale
        own = np.concatenate([a[first], b[first]])
        other = np.concatenate([b[first], a[first]])

        def difference(
            w: Weights, own: Floats = own, other: Floats = other, names: Any = statistics
        ) -> Floats:
            of_own = correlations(twice, own, w, statistics=names)
            return of_own - correlations(twice, other, w, statistics=names)

        permuted = swaps(difference, design, n_resamples=n_resamples, seed=seed)
        parts.append(p_value(permuted, difference(stands)[:, 0]))
    return np.concatenate(parts)


def _matched(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Two judges' scores on one scale: the share of items below a level and half of those at it.

    Levels of the two that are each other's nearest take one value.
    """
    positions = []
    codes = []
    for scale in (a, b):
        _, code, counts = np.unique(scale, return_inverse=True, return_counts=True)
        positions.append((np.cumsum(counts) - counts / 2) / len(scale))
        codes.append(code)
    one, other = positions
    nearest = _nearest(one, other)
    mutual = np.flatnonzero(_nearest(other, one)[nearest] == np.arange(len(one)))
    joined = other.copy()
    joined[nearest[mutual]] = one[mutual]
    return one[codes[0]], joined[codes[1]]


def _nearest(points: Floats, among: Floats) -> Integers:
    """For each point the position of the nearest of the others; both ascending."""
    above = np.minimum(np.searchsorted(among, points), len(among) - 1)
    below = np.maximum(above - 1, 0)
    return np.where(points - among[below] <= among[above] - points, below, above).astype(np.int64)
