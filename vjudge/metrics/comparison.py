"""Which of several judges agrees better with a reference: paired bootstrap and Holm."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.correlation import (
    FEWER_RESAMPLES,
    MANY_LEVELS,
    RESAMPLES,
    undefined_because,
)
from vjudge.metrics.resampling import (
    STATISTICS,
    Floats,
    Weights,
    correlations,
    distinct,
    student,
    values,
)
from vjudge.metrics.tables import Column, Groups, aligned, design_of, holm, tabulate

COMPARISON = "estimate_a estimate_b difference low high p p_holm n missing".split()


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
        n_resamples: bootstrap replicates; None takes 10,000, and 2,000 of scores with more than 100
            levels; 0 leaves intervals and p NaN.

    Returns:
        A row for each pair of judges and statistic (index a, b, statistic), NaN with a warning
        where undefined: estimate_a, estimate_b, each judge's correlation with the reference over
        the items that both scored; difference, in [-2, 2], with low and high of a paired bootstrap;
        p, two-sided, of the t test whose inversion the interval is; p_holm, corrected over the
        pairs of judges, for each statistic alone; n and missing.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 12; Holm,
    Scandinavian Journal of Statistics 6 (1979), 65-70. The level by simulation, similar judges
    among them: figures/validity_comparison.csv.

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
    options = {"confidence": confidence, "n_resamples": n_resamples, "seed": seed}
    parts = {}
    for (a, x), (b, y) in combinations(zip(names, columns, strict=True), 2):
        parts[a, b] = _compare(np.stack([gold, x, y]), a, b, groups, **options)
    table = pd.concat(parts, names=["a", "b", "statistic"])
    by_statistic = table.groupby(level="statistic")["p"]
    table["p_holm"] = by_statistic.transform(lambda p: holm(p.to_numpy()))
    unit = "items" if groups is None else "groups"
    table.attrs["method"] = (
        f"{confidence:.0%} paired bootstrap intervals and tests (Student's) over {unit},"
        f" {n_resamples:,} resamples, seed {seed}; Holm over {len(parts)} pairs of judges"
    )
    return table[COMPARISON]


def _compare(
    columns: Floats,
    a: str,
    b: str,
    groups: Groups,
    *,
    confidence: float,
    **options: Any,
) -> pd.DataFrame:
    """The rows of one pair of judges; columns of shape (3, n): the reference, a, b."""
    used = np.asarray(~np.isnan(columns).any(axis=0))
    gold, x, y = columns[:, used]
    why = undefined_because(**{"the reference": gold, a: x, b: y})
    cells, cell = distinct(columns[:, used].T)
    design = design_of(cell, groups, used)

    def both(weights: Weights) -> Floats:
        """The correlations with the reference, shape (2, 3, replicates)."""
        of_gold, of_a, of_b = cells.T
        return np.stack([correlations(of_gold, own, weights) for own in (of_a, of_b)])

    def difference(weights: Weights) -> Floats:
        return np.subtract(*both(weights))

    table = tabulate(
        difference,
        STATISTICS,
        design,
        why=f"{a} and {b}: {why}",
        confidence=confidence,
        **options,
    )
    table = table.rename(columns={"estimate": "difference"})
    table[["estimate_a", "estimate_b"]] = np.nan
    if not why:
        table[["estimate_a", "estimate_b"]] = values(both, design.counts[:, None])[..., 0].T
    # The p of the t test that the interval inverts
    freedom = max(design.n_units - 1, 1)
    error = (table["high"] - table["low"]) / 2 / student(confidence, freedom)
    table["p"] = 2 * stats.t.sf(table["difference"].abs() / error, freedom)
    table.loc[(error == 0) & (table["difference"] == 0), "p"] = 1.0  # one judge twice
    return table
