"""How far judges' scores agree with a reference, over items, over systems and within systems.

A judge that only tells which system wrote a response reaches a high correlation over all items and
knows nothing within any system (Simpson's paradox is the reverse): name the level of a figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.columns import (
    Column,
    Groups,
    aligned,
    check_columns,
    check_options,
    design_of,
    group_codes,
    warn,
)
from vjudge.metrics.resampling import (
    PERFECT,
    STATISTICS,
    Floats,
    Integers,
    correlations,
    distinct,
    is_fine,
    mean_interval,
    on_fisher_scale,
    student,
    values,
)
from vjudge.metrics.strata import Strata, grouped_by_id, of_balanced_groups
from vjudge.metrics.tables import INTERVAL, add_caveats, gathered_caveats, tabulate

LEVELS = ("item", "system", "within")
RESAMPLES = 10_000
FEWER_RESAMPLES = 2_000  # of scores with many levels
OVERALL = "overall"
FEW_SYSTEMS = 10
CEILING = 0.75  # share of both scores at one end of the scale
LEVELS_OF_A_SCALE = 10
HEAVY = 3.0  # excess kurtosis


def correlate(
    x: Column,
    y: Column,
    *,
    groups: Groups = None,
    ids: Column | None = None,
    strata: Column | None = None,
    confidence: float = 0.95,
    n_resamples: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Correlate two scores of the same items, with intervals.

    Args:
        x, y: scores of n items, in the same order (two Series share their index); None and NaN are
            missing, anything else that is no number, or infinite, is an error.
        groups: the unit of resampling of each item, for example its image. None resamples items.
            Two columns, [image, system], are a crossed design: the interval is of new images and
            new systems. With one of them it is given the other: given these systems.
        ids: of the items; rows that share one (several votes) are one group where groups is None.
            The text labels of a Series' index are ids, too; numbers of rows are not.
        strata: the benchmark of each item. The estimate is then the mean of the correlations within
            benchmarks, on Fisher's z scale with weights n - 3, never that of all rows pooled, in
            which benchmarks of different scales make a correlation of their own.
        confidence: coverage of the intervals, in (0, 1).
        n_resamples: None takes 10,000, and 2,000 of scores with more than 100 levels; 0 leaves the
            intervals NaN. With crossed groups or strata intervals come from the jackknife over
            units, or at most 400 random blocks of them; from 20,000 rows on in groups, or with more
            than 100 levels, over 50 such blocks.
        seed: of the resampling.

    Returns:
        Rows pearson, spearman (midranks) and kendall (tau-b), columns estimate, low and high in
        [-1, 1], n (pairs used) and missing. NaN, with a warning, of fewer than three pairs, a
        constant score or fewer than two groups. `attrs["method"]` is in words for a caption;
        `attrs["caveats"]` are the known limits that apply to these data, each warned of once.

    ValueError: crossed groups with fewer than five units of a kind.

    Of 2,000 simulated samples of each kind 95 % intervals held the truth in 94 to 96.5 %. They
    don't under a strong ceiling (80 % of both at the top, 20 to 60 items: 87 to 94 %), and
    Pearson's doesn't with heavy tails (Student's t with 3 degrees of freedom: 91 %): take a rank
    correlation there. figures/validity_correlation_coverage.csv, validity_crossed.csv.

    Source: Fisher, Metron 1 (1921), 3-32: Student's interval on his z scale, with the bootstrap's
    standard error; Hedges and Olkin, Statistical Methods for Meta-Analysis (1985), chapter 11, for
    strata.

    >>> table = correlate([1, 2, 2, 4, 5, 5], [1, 2, 3, 4, 4, 5], seed=0)
    >>> table[["estimate", "n"]].round(3).values.tolist()
    [[0.933, 6.0], [0.94, 6.0], [0.889, 6.0]]
    """
    groups, caveats = grouped_by_id(x, groups, ids)
    check_columns(x=x, ids=ids, strata=strata)
    a, b, used = aligned(x=x, y=y, groups=groups)
    if n_resamples is None:
        n_resamples = FEWER_RESAMPLES if is_fine(a[used], b[used]) else RESAMPLES
    check_options(confidence=confidence, n_resamples=n_resamples)
    options: dict[str, Any] = {
        "confidence": confidence,
        "n_resamples": n_resamples,
        "seed": seed,
    }
    if strata is not None:
        stratified = Strata.of(strata, used, [a, b])
        table = _over_strata(a, b, stratified, groups, **options)
        used = stratified.used
    else:
        table = _over_items(a, b, groups, used, **options)
    caveats += [*_of_scores(a[used], b[used]), *of_balanced_groups(groups, used)]
    add_caveats(table, caveats)
    return table


def _over_items(
    a: Floats, b: Floats, groups: Groups, used: np.ndarray, **options: Any
) -> pd.DataFrame:
    """Correlations over all used items."""
    a = a[used]
    b = b[used]
    why = undefined_because(x=a, y=b)
    cells, cell = distinct(np.column_stack([a, b]))
    x, y = cells.T
    design = design_of(cell, groups, used)
    # An item drawn twice ties with itself, which widens rank statistics of scores without ties: at
    # n = 50 the ratio of bootstrap to true variances on Fisher's z scale was 0.98-1.00 for Pearson,
    # 1.02-1.09 for Spearman and 1.04-1.14 for Kendall. Of a binary, half of whose pairs tie
    # anyway, it is 1.
    untied = max(2 * min(_untied(a), _untied(b)) - 1, 0) ** 2
    return tabulate(
        lambda w: correlations(x, y, w),
        STATISTICS,
        design,
        method="fisher",
        inflation=1 + untied * np.array([0, 3, 5]) / max(len(a), 1),
        why=why,
        **options,
    )


def _untied(column: Floats) -> float:
    """The share of pairs of items whose scores differ: 1 of distinct scores, .5 of a fair coin."""
    n = len(column)
    size = np.unique(column, return_counts=True)[1]
    return float(1 - (size * (size - 1)).sum() / max(n * (n - 1), 1))


def _over_strata(
    a: Floats, b: Floats, strata: Strata, groups: Groups, **options: Any
) -> pd.DataFrame:
    """The mean of the correlations within strata."""
    used = strata.used
    cells, cell = distinct(np.column_stack([a[used], b[used], strata.code]))
    x, y, code = cells.T
    design = design_of(cell, groups, used)
    table = tabulate(
        lambda w: strata.correlations(x, y, code, w),
        STATISTICS,
        design,
        method="fisher",
        by="jackknife",
        why="no stratum has four items and scores that differ",
        **options,
    ).drop(columns=["error", "freedom"], errors="ignore")
    text, caveats = strata.heterogeneity(cells, design, options["seed"])
    table.attrs["method"] += text
    add_caveats(table, [*strata.caveats, *caveats])
    return table


def _of_scores(x: Floats, y: Floats) -> list[str]:
    """The caveats of scores whose intervals are known to hold less."""
    n = len(x)
    caveats = []
    if n < 3:
        return []
    for edge, name in ((np.max, "top"), (np.min, "bottom")):
        share = min(np.mean(x == edge(x)), np.mean(y == edge(y)))
        if CEILING <= share < 1 and n < 100:
            caveats.append(
                f"{share:.0%} of both scores are at the {name}, of {n} items: 95% intervals of such"
                " held the truth in 87 to 94%"
            )
    columns = [column for column in (x, y) if len(np.unique(column)) > LEVELS_OF_A_SCALE]
    if any(stats.kurtosis(column) > HEAVY for column in columns):
        caveats.append(
            "a score has heavy tails: 95% intervals of Pearson's r held the truth in 91%; take a"
            " rank correlation"
        )
    if n < 30 and min(len(np.unique(x)), len(np.unique(y))) == 2:
        caveats.append(
            f"a score of two levels and {n} items: 95% intervals held the truth in 90 to 96%, least"
            " where one level is rare"
        )
    return caveats


def undefined_because(**columns: Floats) -> str:
    """Why correlations of these columns are undefined; "" where they are not."""
    n = len(next(iter(columns.values())))
    if n < 3:
        return f"{n} complete items, at least 3 are needed"
    constant = [name for name, column in columns.items() if np.ptp(column) == 0]
    return f"{' and '.join(constant)} constant" if constant else ""


def _table(bounds: Floats, n: int) -> pd.DataFrame:
    return pd.DataFrame(bounds, pd.Index(STATISTICS, name="statistic"), INTERVAL).assign(n=n)


def _by_group(scores: pd.DataFrame, code: Integers) -> Floats:
    """The correlations of columns x and y in each group, (groups, 3)."""
    rows = [_of_sample(group) for _, group in scores.groupby(code)]
    return np.reshape(rows, (-1, 3))


def _of_sample(scores: pd.DataFrame) -> Floats:
    """Pearson, Spearman and tau-b of columns x and y; NaN where undefined."""
    of_pairs = partial(correlations, *scores[["x", "y"]].to_numpy().T)
    return values(of_pairs, np.ones((len(scores), 1)))[:, 0]


# --- Levels


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
    a, b, used = aligned(x=x, y=y, groups=groups)
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
    table.attrs = {"method": "; ".join(methods), "caveats": gathered_caveats(tables.values())}
    if {"item", "within"} <= set(levels):
        product = tables["item"]["estimate"] * tables["within"]["estimate"]
        turned = product.index[product < 0]
        if len(turned):
            warn(
                f"{', '.join(turned)}: opposite signs over all items and within systems;"
                " differences between systems dominate the item-level figure (Simpson's paradox)"
            )
    return table


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
        reach = student(confidence) * np.sqrt(factors / (n - np.array([3, 3, 4])))
    if np.isnan(estimate + reach).any():
        warn(f"system level: undefined (of {n} systems; intervals take five, and variation)")
    # A perfect order is half a swap of two systems away from an imperfect one.
    half_swap = 2 / max(n * (n - 1), 2)
    limit = np.array([PERFECT, 1 - half_swap, 1 - half_swap])
    _, low, high = on_fisher_scale(np.clip(estimate, -limit, limit), reach).T
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
