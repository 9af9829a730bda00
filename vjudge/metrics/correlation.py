"""How far judges' scores agree with a reference, over items, over systems and within systems.

A judge that only tells which system wrote a response reaches a high correlation over all items and
knows nothing within any system (Simpson's paradox is the reverse): name the level of a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
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
    Weights,
    correlations,
    distinct,
    is_fine,
    on_fisher_scale,
    student,
    values,
)
from vjudge.metrics.tables import INTERVAL, holm, tabulate, warn_of

LEVELS = ("item", "system", "within")
RESAMPLES = 10_000
FEWER_RESAMPLES = 2_000  # of scores with many levels
LARGE = 20_000  # rows
BLOCKS = 100


def correlate(
    x: Column,
    y: Column,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
    n_resamples: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Correlate two scores of the same items, with bootstrap intervals.

    Args:
        x, y: scores of n items, in the same order (two Series share their index); None and NaN are
            missing, anything else that is no number, or infinite, is an error.
        groups: the unit of resampling of each item, for example its image. None resamples items.
        confidence: coverage of the intervals, in (0, 1).
        n_resamples: None takes 10,000, and 2,000 of scores with more than 100 levels; 0 leaves the
            intervals NaN. From 20,000 rows on in groups, or with more than 100 levels, intervals
            come from 100 random blocks of units instead.
        seed: of the resampling.

    Returns:
        Rows pearson, spearman (midranks) and kendall (tau-b), columns estimate, low and high in
        [-1, 1], n (pairs used) and missing. NaN, with a warning, of fewer than three pairs, a
        constant score or fewer than two groups. `attrs["method"]` is in words for a caption.

    Of 2,000 simulated samples of each kind 95 % intervals held the truth in 94 to 96.5 %. They
    don't under a strong ceiling (80 % of both at the top, 20 to 60 items: 87 to 94 %), and
    Pearson's doesn't with heavy tails (Student's t with 3 degrees of freedom: 91 %): take a rank
    correlation there. With groups of very unequal size (40, as Zipf's law has them) all three hold
    it in 88 to 90 %. figures/validity_correlation_coverage.csv, validity_numbers.csv.

    Source: Fisher, Metron 1 (1921), 3-32: Student's interval on his z scale, with the bootstrap's
    standard error.

    >>> table = correlate([1, 2, 2, 4, 5, 5], [1, 2, 3, 4, 4, 5], seed=0)
    >>> table[["estimate", "n"]].round(3).values.tolist()
    [[0.933, 6.0], [0.94, 6.0], [0.889, 6.0]]
    """
    a, b, used = aligned(x=x, y=y, groups=groups)
    a = a[used]
    b = b[used]
    n = len(a)
    why = undefined_because(x=a, y=b)
    fine = is_fine(a, b)
    if n_resamples is None:
        n_resamples = FEWER_RESAMPLES if fine else RESAMPLES
    check_options(confidence=confidence, n_resamples=n_resamples)
    if n >= LARGE and not why and (fine or groups is not None):
        codes = group_codes(groups, used)
        blocks = BLOCKS if n_resamples else 0
        table = _by_blocks(a, b, codes, blocks, confidence=confidence, seed=seed)
        kind = "items" if groups is None else "groups"
        table.attrs["method"] += f" {kind}, seed {seed}"
        return table.assign(missing=int((~used).sum()))
    cells, cell = distinct(np.column_stack([a, b]))
    return tabulate(
        lambda w: correlations(cells[:, 0], cells[:, 1], w),
        STATISTICS,
        design_of(cell, groups, used),
        method="fisher",
        # An item drawn twice ties with itself, which widens rank statistics: at n = 50 the
        # ratio of bootstrap to true variances on Fisher's z scale was 0.98-1.00 for Pearson,
        # 1.02-1.09 for Spearman and 1.04-1.14 for Kendall.
        inflation=1 + np.array([0, 3, 5]) / max(n, 1),
        why=why,
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
    )


def undefined_because(**columns: Floats) -> str:
    """Why correlations of these columns are undefined; "" where they are not."""
    n = len(next(iter(columns.values())))
    if n < 3:
        return f"{n} complete items, at least 3 are needed"
    constant = [name for name, column in columns.items() if np.ptp(column) == 0]
    return f"{' and '.join(constant)} constant" if constant else ""


def _by_blocks(
    x: Floats,
    y: Floats,
    codes: Integers,
    most: int,
    *,
    confidence: float,
    seed: int,
) -> pd.DataFrame:
    """Correlations of many rows, with intervals from `most` random blocks of units.

    The standard error on Fisher's z scale is that of the values of B blocks of equally many units,
    over the root of B, with Student's t of B - 1 degrees of freedom.

    Source: Wolter, Introduction to Variance Estimation (2007), chapter 2, random groups.
    """
    units = int(codes.max()) + 1
    blocks = min(most, units // 10)
    reach = np.full(3, np.nan)
    if blocks >= 2:
        block = (np.random.default_rng(seed).permutation(units) % blocks)[codes]
        order = np.argsort(block, kind="stable")
        ends = np.cumsum(np.bincount(block, minlength=blocks))[:-1]
        own = [_by_scipy(x[rows], y[rows]) for rows in np.split(order, ends)]
        z = np.arctanh(np.clip(own, -PERFECT, PERFECT))
        spread = z.std(axis=0, ddof=1)
        reach = student(confidence, blocks - 1) * spread / np.sqrt(blocks)
        if np.isnan(reach).any():
            warn("intervals are undefined: a score is constant in a random block of the items")
    elif most:
        warn(f"intervals are undefined: {units} groups are too few for random blocks")
    table = _table(on_fisher_scale(_by_scipy(x, y), reach), n=len(x))
    perfect = table["estimate"].abs() >= PERFECT
    table.loc[perfect, ["low", "high"]] = np.nan
    warn_of(table.index[perfect], "a perfect correlation has no interval from random blocks")
    table.attrs["method"] = (
        f"{confidence:.0%} intervals (Student's on Fisher's z scale) from {blocks} random blocks of"
        f" {units:,}"
    )
    return table


def _table(bounds: Floats, n: int) -> pd.DataFrame:
    index = pd.Index(STATISTICS, name="statistic")
    return pd.DataFrame(bounds, index, INTERVAL).assign(n=n)


def _by_scipy(x: Floats, y: Floats) -> Floats:
    """Pearson, Spearman and tau-b; NaN where a score is constant, and of fewer than three items."""
    if undefined_because(x=x, y=y):
        return np.full(3, np.nan)
    functions = (stats.pearsonr, stats.spearmanr, stats.kendalltau)
    return np.array([function(x, y).statistic for function in functions])


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
            own = _of_means(scores, code, confidence)
            tables[level] = own.assign(missing=missing)
        else:
            tables[level] = _within(scores, code, confidence)
    table = pd.concat(tables, names=["level", "statistic"])
    methods = dict.fromkeys(part.attrs["method"] for part in tables.values())
    table.attrs = {"method": "; ".join(methods)}
    if {"item", "within"} <= set(levels):
        product = tables["item"]["estimate"] * tables["within"]["estimate"]
        turned = product.index[product < 0]
        if len(turned):
            warn(
                f"{', '.join(turned)}: opposite signs over all items and within systems;"
                " differences between systems dominate the item-level figure (Simpson's paradox)"
            )
    return table


def _of_means(
    scores: pd.DataFrame,
    code: Integers,
    confidence: float,
) -> pd.DataFrame:
    """Correlations over the systems' mean scores, with intervals for so many systems.

    Source: Bonett and Wright, Psychometrika 65 (2000), 23-28, for the variances on Fisher's scale.
    """
    means = scores.groupby(code).mean()
    means = means.round(12)  # equal means that were summed in another order still tie
    n = len(means)
    estimate = _by_scipy(means["x"], means["y"])
    reach = np.full(3, np.nan)
    if n > 4:
        factors = np.array([1, 1 + estimate[1] ** 2 / 2, 0.437])
        left = n - np.array([3, 3, 4])
        reach = student(confidence) * np.sqrt(factors / left)
    if np.isnan(estimate + reach).any():
        warn(f"system level: undefined (of {n} systems; intervals take five, and variation)")
    # A perfect order is half a swap of two systems away from an imperfect one.
    half_swap = 2 / max(n * (n - 1), 2)
    most = np.array([PERFECT, 1 - half_swap, 1 - half_swap])
    bounds = on_fisher_scale(np.clip(estimate, -most, most), reach)
    bounds[:, 0] = estimate
    bounds[:, 1] = np.minimum(bounds[:, 1], estimate)
    bounds[:, 2] = np.maximum(bounds[:, 2], estimate)
    table = _table(bounds, n)
    table.attrs["method"] = f"{confidence:.0%} intervals (Fisher's z) over {n} systems"
    return table


def _within(
    scores: pd.DataFrame,
    code: Integers,
    confidence: float,
) -> pd.DataFrame:
    """The mean of the systems' own correlations, with Student's interval over the systems."""
    own = [_by_scipy(part["x"], part["y"]) for _, part in scores.groupby(code)]
    each = np.reshape(own, (-1, 3))
    each = each[~np.isnan(each).any(axis=1)]
    n = len(each)
    bounds = np.full((3, 3), np.nan)
    if n:
        bounds[:, 0] = each.mean(axis=0)
    if n > 1:
        error = each.std(axis=0, ddof=1) / np.sqrt(n)
        half = student(confidence, n - 1) * error
        bounds[:, 1] = bounds[:, 0] - half
        bounds[:, 2] = bounds[:, 0] + half
        bounds = bounds.clip(-1, 1)
    if n < max(len(own), 2):
        warn(
            f"{len(own) - n} of {len(own)} groups have no correlation of their own (fewer than"
            " three items, or a constant score): the mean leaves them out; an interval takes two"
        )
    table = _table(bounds, n)
    table["missing"] = len(own) - n
    table.attrs["method"] = f"{confidence:.0%} Student's intervals over {n} correlations"
    return table


def correlation_table(
    judges: Mapping[str, Mapping[str, Any] | pd.DataFrame],
    truth: Mapping[str, Any],
    *,
    groups: Mapping[str, Column] | None = None,
    ceiling: Mapping[str, pd.DataFrame] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Correlate every judge with the truth of every benchmark: the table of a paper, in long form.

    Args:
        judges: for each benchmark, the judges' scores of its items, by name; a judge may lack one.
        truth, groups: for each benchmark, the scores to agree with, and the unit of resampling of
            each item, if any.
        ceiling: for each benchmark that has several raters, the table of `human_ceiling`.
        options: of `correlate`, whose errors are raised with the names of judge and benchmark.

    Returns:
        A row a benchmark, judge and statistic: columns judge, benchmark, statistic, those of
        `correlate`, and ceiling (True in the rows of "people").

    Source: as `correlate`.

    >>> table = correlation_table({"scenes": {"one": [1, 2, 3, 4]}}, {"scenes": [1, 2, 3, 5]},
    ...                           n_resamples=0)
    >>> table[["judge", "statistic", "estimate"]].round(2).values.tolist()[2]
    ['one', 'kendall', 1.0]
    """
    parts = []
    methods = {}
    for benchmark, columns in judges.items():
        if benchmark not in truth:
            raise ValueError(f"no truth for {benchmark}: give judges and truth of each")
        units = (groups or {}).get(benchmark)
        for judge in columns:
            try:
                table = correlate(
                    columns[judge],
                    truth[benchmark],
                    groups=units,
                    **options,
                )
            except (TypeError, ValueError) as error:
                raise type(error)(f"{judge} on {benchmark}: {error}") from error
            methods[benchmark] = f"{benchmark}: {table.attrs['method']}"
            parts.append(table.assign(judge=str(judge), benchmark=str(benchmark), ceiling=False))
        if ceiling is not None and benchmark in ceiling:
            people = ceiling[benchmark].rename_axis("statistic")
            parts.append(people.assign(judge="people", benchmark=str(benchmark), ceiling=True))
    result = pd.concat(parts).reset_index()
    result.attrs = {"method": "; ".join(methods.values())}
    return result["judge benchmark statistic estimate low high n missing ceiling".split()]


# --- Judges compared

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
    among them: figures/validity_comparison.csv; with groups of very unequal size 8 to 9 % of
    equal judges are told apart at 5 %.

    >>> first, second = [1, 2, 3, 4, 5] * 4, [1, 3, 2, 5, 4] * 4
    >>> table = compare_judges(first, {"first": first, "second": second}, n_resamples=200)
    >>> table["difference"].round(2).tolist()
    [0.2, 0.2, 0.4]
    """
    names = list(map(str, judges))
    if len(set(names)) < max(len(names), 2):
        given = ", ".join(names) or "none"
        raise ValueError(f"judges must be two or more, each with a name of its own, not {given}")
    by_name = {f"judge {name}": judges[name] for name in judges}
    gold, *columns, _ = aligned(reference=reference, groups=groups, **by_name)
    if n_resamples is None:
        n_resamples = FEWER_RESAMPLES if is_fine(gold, *columns) else RESAMPLES
    options = {"confidence": confidence, "n_resamples": n_resamples, "seed": seed}
    parts = {}
    for (a, x), (b, y) in combinations(zip(names, columns, strict=True), 2):
        three = np.stack([gold, x, y])
        parts[a, b] = _compare(three, a, b, groups, **options)
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
        why=": ".join(filter(None, [f"{a} and {b}", why])),
        confidence=confidence,
        **options,
    )
    table = table.rename(columns={"estimate": "difference"})
    table[["estimate_a", "estimate_b"]] = np.nan
    if not why:
        table[["estimate_a", "estimate_b"]] = values(both, design.counts[:, None])[..., 0].T
    # The p of the t test that the interval inverts
    freedom = max(design.n_effective - 1, 1)
    error = (table["high"] - table["low"]) / 2 / student(confidence, freedom)
    table["p"] = 2 * stats.t.sf(table["difference"].abs() / error, freedom)
    table.loc[(error == 0) & (table["difference"] == 0), "p"] = 1.0  # one judge twice
    return table
