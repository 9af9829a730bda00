"""Correlations by level of aggregation: over items, over systems and within systems."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Column, Floats, Groups, Integers
from vjudge.metrics.caveats import add_caveats, merged_caveats, warn
from vjudge.metrics.columns import check_columns, read_scores
from vjudge.metrics.correlation import correlate
from vjudge.metrics.groups import group_codes
from vjudge.metrics.intervals import INTERVAL, PERFECT, fisher_interval, mean_interval, t_quantile
from vjudge.metrics.resampling import evaluate
from vjudge.metrics.weighted_correlation import STATISTICS, correlations

LEVELS = ("item", "system", "within")
FEW_SYSTEMS = 10


def correlate_levels(
    x: Column,
    y: Column,
    *,
    systems: Column,
    groups: Groups = None,
    levels: Sequence[str] = LEVELS,
    confidence: float = 0.95,
    **options: Any,
) -> pd.DataFrame:
    """Correlate two scores at the item level, at the system level and within systems.

    Args:
        x, y: scores of n items, NaN where missing.
        systems: what each item is an output of (a model, a decoding), or another grouping to look
            within.
        groups: the unit of resampling at the item level.
        levels: some of item, system and within.
        confidence, options: n_resamples and seed at the item level, see `correlate`.

    Returns:
        Rows (level, statistic), columns as `correlate`: item, over all n items; system, over the
        mean scores of the n systems; within, the plain mean of the correlations of the n systems
        that have one.

    Intervals of the levels system and within are for systems like these n, whose items are taken as
    given. In simulated collections of 5 to 20 systems by 40 to 60 questions those of the system
    level held a true correlation of .9 in 92 to 99 %, where a bootstrap of the items, with the
    systems as given, held it in 57 to 88 %. Noise in the means lowers the correlation itself.
    figures/validity_numbers.csv.

    Source: Deutsch, Dror and Roth, TACL 9 (2021), 1132-1146, section 2.

    >>> x, y = [1, 2, 3, 4, 5, 6], [2, 1, 3, 5, 4, 6]
    >>> table = correlate_levels(x, y, systems=list("aaabbb"), n_resamples=0)
    >>> table["estimate"].xs("spearman", level="statistic")[["item", "within"]].round(3).tolist()
    [0.886, 0.5]
    """
    if not levels or not set(levels) <= set(LEVELS):
        raise ValueError(f"levels must be some of {', '.join(LEVELS)}, not {list(levels)}")
    check_columns(x=x, systems=systems)
    a, b, used = read_scores(x=x, y=y, groups=groups)
    code = group_codes(systems, used, name="systems")
    scores = pd.DataFrame({"x": a[used], "y": b[used]})
    missing = int((~used).sum())
    tables = {}
    for level in levels:
        if level == "item":
            tables[level] = correlate(x, y, groups=groups, confidence=confidence, **options)
        elif level == "system":
            tables[level] = _of_means(scores, code, confidence).assign(missing=missing)
        else:
            tables[level] = _within(scores, code, confidence)
    table = pd.concat(tables, names=["level", "statistic"])
    methods = dict.fromkeys(level_table.attrs["method"] for level_table in tables.values())
    table.attrs = {"method": "; ".join(methods), "caveats": merged_caveats(tables.values())}
    if {"item", "within"} <= set(levels):
        product = tables["item"]["estimate"] * tables["within"]["estimate"]
        turned = product.index[product < 0]
        if len(turned):
            warn(
                f"{', '.join(turned)}: opposite signs over all items and within systems;"
                " differences between systems dominate the item-level figure (Simpson's paradox)"
            )
    return table


def _table(bounds: Floats, n: int) -> pd.DataFrame:
    return pd.DataFrame(bounds, pd.Index(STATISTICS, name="statistic"), INTERVAL).assign(n=n)


def _by_group(scores: pd.DataFrame, code: Integers) -> Floats:
    """The correlations of columns x and y in each group, (groups, 3)."""
    rows = [_of_sample(group) for _, group in scores.groupby(code)]
    return np.reshape(rows, (-1, 3))


def _of_sample(scores: pd.DataFrame) -> Floats:
    """Pearson, Spearman and tau-b of columns x and y; NaN where undefined."""
    of_pairs = partial(correlations, *scores[["x", "y"]].to_numpy().T)
    return evaluate(of_pairs, np.ones((len(scores), 1)))[:, 0]


def _of_means(scores: pd.DataFrame, code: Integers, confidence: float) -> pd.DataFrame:
    """Correlations over the systems' mean scores, with intervals for so many systems.

    Source: Bonett and Wright, Psychometrika 65 (2000), 23-28, for the variances on Fisher's scale.
    """
    means = scores.groupby(code).mean().round(12)  # equal means summed in another order still tie
    n = len(means)
    estimate = _of_sample(means)
    reach = np.full(3, np.nan)
    if n > 4:
        factors = np.array([1, 1 + estimate[1] ** 2 / 2, 0.437])
        reach = t_quantile(confidence) * np.sqrt(factors / (n - np.array([3, 3, 4])))
    if np.isnan(estimate + reach).any():
        warn(f"system level: undefined (of {n} systems; intervals take five, and variation)")
    # A perfect order is half a swap of two systems away from an imperfect one.
    half_swap = 2 / max(n * (n - 1), 2)
    limit = np.array([PERFECT, 1 - half_swap, 1 - half_swap])
    _, low, high = fisher_interval(np.clip(estimate, -limit, limit), reach).T
    bounds = [estimate, np.minimum(low, estimate), np.maximum(high, estimate)]
    table = _table(np.column_stack(bounds), n)
    table.attrs["method"] = f"{confidence:.0%} intervals (Fisher's z) over {n} systems"
    if 4 < n < FEW_SYSTEMS:
        text = f"system level: {n} systems are few, and their correlation is hardly known"
        add_caveats(table, [text])
    return table


def _within(scores: pd.DataFrame, code: Integers, confidence: float) -> pd.DataFrame:
    """The mean of the systems' own correlations, with Student's interval over the systems."""
    by_system = _by_group(scores, code)
    defined = by_system[~np.isnan(by_system).any(axis=1)]
    n = len(defined)
    missing = len(by_system) - n
    if missing or n < 2:
        warn(
            f"{missing} of {len(by_system)} groups have no correlation of their own"
            " (fewer than three items, or a constant score): the mean leaves them out; an interval"
            " takes two"
        )
    table = _table(mean_interval(defined, confidence).clip(-1, 1), n).assign(missing=missing)
    table.attrs["method"] = f"{confidence:.0%} Student's intervals over {n} correlations"
    return table
