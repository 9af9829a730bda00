"""How far judges' scores agree with a reference: correlations at every level, and which judge agrees better.

A judge that only tells which system wrote a response reaches a high correlation over all items and knows nothing within
any system (Simpson's paradox is the reverse): name the level of a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics import resampling, tables
from vjudge.metrics.labels import weighted_correlations
from vjudge.metrics.resampling import (
    PERFECT,
    STATISTICS,
    Design,
    Floats,
    Integers,
    Statistic,
    Table,
    Weights,
    correlations,
)
from vjudge.metrics.tables import (
    Column,
    Groups,
    aligned,
    check_columns,
    design_of,
    group_codes,
    tabulate,
    warn,
)

LEVELS = ("item", "system", "within")
LARGE = 20_000  # rows
MANY_LEVELS = 100  # of a score, from which a table of its pairs is no shorter than the rows
BLOCKS = 100
COMPARISON = (
    "estimate_a",
    "estimate_b",
    "difference",
    "low",
    "high",
    "p",
    "p_holm",
    "conflict",
    "n",
    "missing",
)
FEW_OFF_MODE, CEILING = (
    20,
    0.6,
)  # items off the most frequent score, and its share, where intervals cover too little


def correlate(
    x: Column,
    y: Column,
    *,
    groups: Groups = None,
    weights: Column | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Correlate two scores of the same items, with bootstrap intervals.

    Args:
        x, y: scores of n items, in the same order (two Series share their index); None and NaN are missing, anything
            else that is no number, or infinite, is an error.
        groups: the unit of resampling of each item, for example its image. None resamples items.
        weights: how many items each pair stands for, where the labelled items were chosen (`label_weights`,
            `Review.weights`); the interval is then a stratified jackknife's. None refuses labels chosen by `next_best`.
        confidence: coverage of the intervals, in (0, 1). n_resamples: 0 leaves them NaN. seed: of the resampling.

    Returns:
        Rows pearson, spearman (midranks) and kendall (tau-b), columns estimate, low and high in [-1, 1], n (pairs used)
        and missing. NaN, with a warning, of fewer than three pairs, a constant score or fewer than two groups. `attrs`
        has the method in words for a caption, and off_mode: how many items are off the most frequent x, and y.

    Of 2,000 simulated samples of each kind 95 % intervals held the truth in 94 to 96.5 %; under a strong ceiling (80 %
    of both at the top, 20 to 60 items) in 87 to 94 %, and a warning says so: figures/validity_correlation_coverage.csv.
    Pearson's of heavy tails (Student's t with 3 degrees of freedom) held it in 91 %: take a rank correlation there.
    From 20,000 rows on with many levels or groups, intervals come from random blocks of units (`_large`).

    Source: `resampling.interval`, "fisher": Student's on Fisher's z scale, with the bootstrap's standard error.

    >>> correlate([1, 2, 2, 4, 5, 5], [1, 2, 3, 4, 4, 5], seed=0)[["estimate", "n"]].round(3).values.tolist()
    [[0.933, 6.0], [0.94, 6.0], [0.889, 6.0]]
    """
    a, b, used = aligned(x=x, y=y, groups=groups, by_design=weights is not None)
    a, b = a[used], b[used]
    n, why = len(a), _undefined(x=a, y=b)
    if weights is None and not why and _is_large(a, b, groups):
        codes = None if groups is None else group_codes(groups, used)
        table = _large(a, b, codes, n_resamples=n_resamples, confidence=confidence, seed=seed)
        return table.assign(n=n, missing=int((~used).sum()))
    table = Table(a, b)
    result = tabulate(
        lambda w: correlations(table, w) + (np.nan if why else 0),
        STATISTICS,
        design_of(table.cell, groups, used),
        method="fisher",
        # An item drawn twice ties with itself, which widens rank statistics: at n = 50 the ratio of bootstrap to true
        # variances on Fisher's z scale was 0.98-1.00 for Pearson, 1.02-1.09 for Spearman and 1.04-1.14 for Kendall.
        inflation=1 + np.array([0, 3, 5]) / max(n, 1),
        why=why,
        confidence=confidence,
        n_resamples=n_resamples if weights is None else 0,
        seed=seed,
    )
    if weights is not None and not why:
        check_columns(weights=np.asarray(weights), x=x)
        worth = tables.positive(weights, used, name="weights")[used]
        codes = None if groups is None else group_codes(groups, used)
        bounds, result.attrs["method"] = weighted_correlations(
            a, b, worth, codes, confidence=confidence
        )
        result[["estimate", "low", "high"]] = bounds
        if np.isnan(bounds).any():
            warn(
                "intervals are undefined: a single label stands for many items, or without one there is no variation"
            )
    modes = {
        name: np.unique(v, return_counts=True)[1].max(initial=0) for name, v in (("x", a), ("y", b))
    }
    result.attrs["off_mode"] = off_mode = {name: n - int(mode) for name, mode in modes.items()}
    few = [
        f"{name} has {off}"
        for name, off in off_mode.items()
        if off < min(FEW_OFF_MODE, (1 - CEILING) * n)
    ]
    if few and not why and n_resamples:
        warn(
            f"of {n} items, {' and '.join(few)} off the most frequent score: intervals cover less often than they say"
        )
    return result


def _is_large(x: Floats, y: Floats, groups: Groups) -> bool:
    """Whether resampling would take minutes: many rows in groups, or of many distinct scores."""
    if len(x) < LARGE:
        return False
    return groups is not None or max(len(np.unique(x)), len(np.unique(y))) > MANY_LEVELS


def _large(
    x: Floats, y: Floats, codes: Integers | None, *, n_resamples: int, confidence: float, seed: int
) -> pd.DataFrame:
    """`correlate` of many rows: SciPy's estimates, intervals from their spread over random blocks of units.

    With B blocks of equally many units the standard error on Fisher's z scale is that of the blocks' values over the
    root of B, with Student's t of B - 1 degrees of freedom.

    Source: Wolter, Introduction to Variance Estimation (2007), chapter 2, the method of random groups.
    """
    tables.check_options(confidence=confidence, n_resamples=n_resamples)
    units = len(x) if codes is None else int(codes.max()) + 1
    table = pd.DataFrame(
        {"estimate": _by_scipy(x, y), "low": np.nan, "high": np.nan},
        index=pd.Index(STATISTICS, name="statistic"),
    )
    blocks = min(BLOCKS, units // 10)
    table.attrs["method"] = (
        f"{confidence:.0%} intervals (Student's on Fisher's z scale) from {blocks} random blocks of"
        f" {units:,} {'items' if codes is None else 'groups'}, seed {seed}"
    )
    table.attrs["off_mode"] = {}
    for name, scores in (("x", x), ("y", y)):
        mode = np.unique(scores, return_counts=True)[1].max()
        table.attrs["off_mode"][name] = len(x) - int(mode)
    if not n_resamples:
        return table
    if blocks < 2:
        warn(f"intervals are undefined: {units} groups are too few for random blocks")
        return table
    block = np.random.default_rng(seed).permutation(units) % blocks
    if codes is not None:
        block = block[codes]
    own = [_by_scipy(x[block == one], y[block == one]) for one in range(blocks)]
    z = np.arctanh(np.clip(own, -PERFECT, PERFECT))
    reach = stats.t.ppf((1 + confidence) / 2, blocks - 1) * z.std(axis=0, ddof=1) / np.sqrt(blocks)
    centre = np.arctanh(np.clip(table["estimate"].to_numpy(), -PERFECT, PERFECT))
    table["low"] = np.tanh(centre - reach)
    table["high"] = np.tanh(centre + reach)
    return table


def _by_scipy(x: Floats, y: Floats) -> list[float]:
    """Pearson, Spearman and tau-b; NaN where a score is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return [np.nan] * 3
    correlations = (stats.pearsonr, stats.spearmanr, stats.kendalltau)
    return [float(correlation(x, y).statistic) for correlation in correlations]


def _undefined(**columns: Floats) -> str:
    """Why correlations of these columns are undefined; "" where they are not."""
    if (n := len(next(iter(columns.values())))) < 3:
        return f"{n} complete items, at least 3 are needed"
    constant = [name for name, column in columns.items() if (column == column[0]).all()]
    return f"{' and '.join(constant)} constant" if constant else ""


def correlate_levels(
    x: Column,
    y: Column,
    *,
    systems: Column,
    groups: Groups = None,
    levels: Sequence[str] = LEVELS,
    **options: Any,
) -> pd.DataFrame:
    """Correlate two scores at the item level, at the system level and within systems.

    Args:
        x, y: scores of n items, NaN where missing.
        systems: what each item is an output of (a model, a decoding), or any other grouping to look within.
        groups: the unit of resampling, for example the question that systems share, which are then taken as given. None
            draws items, and whole systems for the mean within them.
        levels: some of item, system and within. options: confidence, n_resamples, seed, see `correlate`.

    Returns:
        Rows (level, statistic), columns as `correlate`: item, over all n items; system, over the mean scores of the n
        systems; within, the plain mean of the correlations of the n systems that have one.

    At the system level the mean scores are noisy, which lowers their correlation, and the systems are few: of simulated
    collections of 5 to 20 systems by 40 to 60 questions with a true correlation of .9 the 95 % intervals held it in .76
    to .88 (questions drawn, systems fixed), and in .57 with `groups=None` (systems drawn). `attrs["fixed"]` names what is
    taken as given; a warning says it where the intervals of systems are shown.

    Source: Deutsch, Dror and Roth, TACL 9 (2021), 1132-1146, section 2; their "boot-inputs" is `groups` = the input.

    >>> table = correlate_levels([1, 2, 3, 4, 5, 6], [2, 1, 3, 5, 4, 6], systems=list("aaabbb"), n_resamples=0)
    >>> table["estimate"].xs("spearman", level="statistic").round(3).to_dict()
    {'item': 0.886, 'system': 1.0, 'within': 0.5}
    """
    if not levels or not set(levels) <= set(LEVELS):
        raise ValueError(f"levels must be some of {', '.join(LEVELS)}, not {list(levels)}")
    check_columns(x=x, systems=systems)
    a, b, used = aligned(x=x, y=y, groups=groups)
    codes = group_codes(systems, used, name="systems")
    cells, cell = np.unique(np.column_stack([codes, a[used], b[used]]), axis=0, return_inverse=True)
    items, system = design_of(cell, groups, used), cells[:, 0].astype(np.int64)
    by_system = resampling.summing(
        system, np.arange(len(system)), (int(system.max(initial=-1)) + 1, len(system))
    )
    # Systems that lie each in one unit are drawn as wholes.
    whole, unit = np.unique(
        np.column_stack([codes, codes if items.groups is None else items.groups]), axis=0
    ).T
    design = Design(whole, unit) if len(whole) == by_system.shape[0] else None
    means, own = (
        partial(part, by_system, cells, items, design, **options) for part in (_of_means, _within)
    )
    parts = {
        "item": partial(correlate, x, y, groups=groups, **options),
        "system": means,
        "within": own,
    }
    tables = {level: parts[level]() for level in levels}
    table = pd.concat(tables, names=["level", "statistic"])
    table.attrs = {
        "method": "; ".join(dict.fromkeys(part.attrs["method"] for part in tables.values()))
    }
    table.attrs["fixed"] = "systems" if groups is not None else "items of a system"
    if "system" in levels and table.loc["system", "low"].notna().any():
        warn(
            "system level: intervals of so few mean scores cover less often than they say (.57 to .88 of 95 % intervals in"
            " simulations of 5 to 20 systems): give them as a lower bound of the uncertainty"
        )
    if {"item", "within"} <= set(levels):
        turned = np.sign(tables["item"]["estimate"]) * np.sign(tables["within"]["estimate"]) < 0
        if turned.any():
            warn(
                f"{', '.join(turned[turned].index)}: opposite signs over all items and within systems; differences "
                "between systems dominate the item-level figure (Simpson's paradox)"
            )
    return table


def _of_means(
    by_system: Any, cells: Floats, items: Design, whole: Design | None, **options: Any
) -> pd.DataFrame:
    """Correlations over the systems' mean scores; a system counts as often as it was drawn."""

    def statistic(weights: Weights) -> Floats:
        n = by_system @ weights
        times = np.asarray(n > 0, dtype=float)
        if items.groups is not None and whole is not None:
            times = n / (by_system @ items.counts)[:, None]
        mean_x, mean_y = (by_system @ (weights * v[:, None]) / n for v in cells.T[1:])
        return resampling.correlations_of(mean_x, mean_y, times)

    n = by_system.shape[0]
    options |= dict(n=n, width=n**2, why="fewer than two systems, or no variation")
    return tabulate(statistic, STATISTICS, items, method="fisher", **options)


def _within(
    by_system: Any, cells: Floats, items: Design, whole: Design | None, **options: Any
) -> pd.DataFrame:
    """The mean of the systems' correlations."""
    n, counts = by_system.shape[0], items.counts
    parts = [slice(*ends) for ends in pairwise(np.searchsorted(cells[:, 0], np.arange(n + 1)))]
    tables = [Table(*(np.repeat(v[rows], counts[rows]) for v in cells.T[1:])) for rows in parts]

    def own(weights: Weights) -> Floats:
        """Correlations of each system, shape (systems, 3, replicates), NaN where one has none."""
        result = np.empty((n, 3, weights.shape[1]))
        for system, (table, rows) in enumerate(zip(tables, parts, strict=True)):
            result[system] = correlations(table, weights[rows])
        return np.where((by_system @ weights < 3)[:, None], np.nan, result)

    sample = resampling.values(own, counts[:, None])
    undefined = np.isnan(sample).sum(axis=0)[:, 0]

    def statistic(weights: Weights) -> Floats:
        """The mean over systems, each as often as it was drawn, NaN left out."""
        correlation, times = (sample, weights) if whole else (own(weights), by_system @ weights > 0)
        counted = ~np.isnan(correlation) * times[:, None]
        return np.asarray((np.nan_to_num(correlation) * counted).sum(axis=0) / counted.sum(axis=0))

    options |= dict(n=n - undefined, missing=undefined, unit="correlations" if whole else "items")
    table = tabulate(
        statistic,
        STATISTICS,
        whole or items,
        method="fisher",
        why="no group has a correlation",
        **options,
    )
    if undefined.any():
        warn(
            f"{undefined.max()} of {n} groups have no correlation of their own (fewer than three items, or a constant "
            "score): the mean leaves them out"
        )
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
        judges: for each benchmark, the judges' scores of its items, by name; a judge may lack a benchmark.
        truth, groups: for each benchmark, the scores to agree with, and the unit of resampling of each item, if any.
        ceiling: for each benchmark that has several raters, the table of `human_ceiling`.

    Returns:
        A row a benchmark, judge and statistic: columns judge, benchmark, statistic, those of `correlate`, whose options
        it has, and ceiling (True in the rows of "people").

    Source: as `correlate`, whose errors are raised with the names of judge and benchmark.

    >>> table = correlation_table({"scenes": {"one": [1, 2, 3, 4]}}, {"scenes": [1, 2, 3, 5]}, n_resamples=0)
    >>> table[["judge", "statistic", "estimate"]].round(2).values.tolist()[2]
    ['one', 'kendall', 1.0]
    """
    without = [str(name) for name in judges if name not in truth]
    if without or not judges:
        raise ValueError(
            f"no truth for {', '.join(without) or 'any benchmark'}: give judges and truth of each"
        )
    parts, methods = [], []
    for benchmark, columns in judges.items():
        for judge in columns:
            try:
                table = correlate(
                    columns[judge],
                    truth[benchmark],
                    groups=(groups or {}).get(benchmark),
                    **options,
                )
            except (TypeError, ValueError) as error:
                raise type(error)(f"{judge} on {benchmark}: {error}") from error
            methods.append(f"{benchmark}: {table.attrs['method']}")
            parts.append(
                table.reset_index().assign(
                    judge=str(judge), benchmark=str(benchmark), ceiling=False
                )
            )
        if ceiling and benchmark in ceiling:
            people = ceiling[benchmark].loc[list(STATISTICS)].rename_axis("statistic").reset_index()
            parts.append(people.assign(judge="people", benchmark=str(benchmark), ceiling=True))
    result = pd.concat(parts, ignore_index=True)
    result.attrs = {"method": "; ".join(dict.fromkeys(methods))}
    return result["judge benchmark statistic estimate low high n missing ceiling".split()]


def compare_judges(
    reference: Column,
    judges: Mapping[str, Any] | pd.DataFrame,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare how well judges of the same items agree with one reference, pair by pair.

    Args:
        reference: the scores to agree with, of n items; None and NaN are missing.
        judges: name -> scores of the same items, or a frame with a column each; at least two, of different names.
        groups, confidence, seed: see `correlate`; every pair of judges has the same resamples.
        n_resamples: bootstrap replicates, and permutations; 0 leaves intervals and p NaN.

    Returns:
        A row for each pair of judges and statistic (index a, b, statistic), NaN with a warning where undefined:
        estimate_a, estimate_b, each judge's correlation with the reference over the items that both scored; difference,
        in [-2, 2], with low and high of a paired bootstrap; p, two-sided, of swapping the judges' scores within items
        or groups, first brought to one scale (standardised for Pearson, else level matched to level by its share of
        items); p_holm, corrected over the pairs of judges, for each statistic alone; conflict, whether p and interval
        disagree at this confidence, and nothing is proven; n and missing. `attrs` has p_floor, the least possible p.

    Source: `resampling.interval` ("t") and `resampling.swaps`; Holm, Scandinavian Journal of Statistics 6 (1979),
    65-70. Coverage and level by simulation, similar judges among them: figures/validity_comparison.csv.

    >>> first, second = [1, 2, 3, 4, 5] * 4, [1, 3, 2, 5, 4] * 4
    >>> compare_judges(first, {"first": first, "second": second}, n_resamples=200)["difference"].round(2).tolist()
    [0.2, 0.2, 0.4]
    """
    names = [str(name) for name in judges]
    if len(set(names)) < max(len(names), 2):
        raise ValueError(
            f"judges must be two or more, each with a name of its own, not {', '.join(names) or 'none'}"
        )
    by_name = {f"judge {name}": judges[name] for name in judges}
    gold, *columns, _ = aligned(reference=reference, groups=groups, **by_name)
    options: dict[str, Any] = dict(confidence=confidence, n_resamples=n_resamples, seed=seed)
    parts = {
        (a, b): _compare(np.stack([gold, x, y]), a, b, groups, **options)
        for (a, x), (b, y) in combinations(zip(names, columns, strict=True), 2)
    }
    table = pd.concat(parts, names=["a", "b", "statistic"])
    table["p_holm"] = table.groupby(level="statistic")["p"].transform(
        lambda p: tables.holm(p.to_numpy())
    )
    excludes_0 = (table["low"] > 0) | (table["high"] < 0)
    table["conflict"] = table[["p", "low"]].notna().all(axis=1) & (
        (table["p"] <= 1 - confidence) != excludes_0
    )
    unit = "items" if groups is None else "groups"
    table.attrs = {
        "method": f"{confidence:.0%} paired bootstrap intervals (Student's) and paired permutation over {unit}, "
        f"{n_resamples:,} of each, seed {seed}; Holm over {len(parts)} pairs of judges",
        "p_floor": 1 / (n_resamples + 1) if n_resamples else None,
    }
    return table[list(COMPARISON)]


def _compare(columns: Floats, a: str, b: str, groups: Groups, **options: Any) -> pd.DataFrame:
    """The rows of one pair of judges; columns of shape (3, n): the reference, a, b."""
    used = np.asarray(~np.isnan(columns).any(axis=0))
    columns = columns[:, used]
    why = _undefined(**dict(zip(("the reference", a, b), columns, strict=True)))
    triples, first, cell = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    design, sides = design_of(cell, groups, used), _sides(*triples)
    table = tabulate(
        lambda w: -np.diff(sides(w), axis=0)[0] + (np.nan if why else 0),
        STATISTICS,
        design,
        why=f"{a} and {b}: {why}",
        **options,
    ).rename(columns={"estimate": "difference"})
    table[["estimate_a", "estimate_b", "p"]] = np.nan
    if not why:
        table["estimate_a"], table["estimate_b"] = sides(design.counts[:, None])[..., 0]
        if options["n_resamples"] and design.n_units > 1:
            table["p"] = _permutation(
                design, triples[0], columns[1:], first, options["n_resamples"], options["seed"]
            )
    return table


def _sides(gold: Floats, a: Floats, b: Floats, statistics: Sequence[str] = STATISTICS) -> Statistic:
    """Two judges' correlations with gold, (2, statistics, replicates), from counts of distinct triples."""
    tables = [Table(gold, judge) for judge in (a, b)]
    pairs = [
        (t, resampling.summing(t.cell, np.arange(len(gold)), (len(t.counts), len(gold))))
        for t in tables
    ]
    return lambda w: np.stack(
        [correlations(table, pair @ w, statistics=statistics) for table, pair in pairs]
    )


def _permutation(
    design: Design, gold: Floats, judges: Floats, first: Integers, n_resamples: int, seed: int
) -> Floats:
    """p of each statistic: the judges (2, n) on one scale, swapped; gold of each cell, and the first item in it."""
    parts = []
    centred = judges - judges.mean(axis=1, keepdims=True)
    centred /= np.abs(centred).max(axis=1, keepdims=True)  # first, so that squares stay in range
    standardised = centred / centred.std(axis=1, keepdims=True)
    stands = np.concatenate([design.counts, np.zeros_like(design.counts)])[:, None]
    for statistics, (a, b) in (
        (("pearson",), standardised),
        (("spearman", "kendall"), _matched(*judges)),
    ):
        own, other = np.concatenate([a[first], b[first]]), np.concatenate([b[first], a[first]])
        sides = _sides(np.concatenate([gold, gold]), own, other, statistics)

        def change(weights: Any, sides: Any = sides) -> Any:
            return np.diff(sides(weights), axis=0)[0]

        permuted = resampling.swaps(change, design, n_resamples=n_resamples, seed=seed)
        parts.append(resampling.p_value(permuted, np.diff(sides(stands), axis=0)[0, :, 0]))
    return np.concatenate(parts)


def _matched(a: Floats, b: Floats) -> list[Floats]:
    """Two judges' scores as positions on one scale: a level's share of items below it and half of those at it."""
    positions, codes = [], []
    for scale in (a, b):
        _, code, counts = np.unique(scale, return_inverse=True, return_counts=True)
        positions.append((np.cumsum(counts) - counts / 2) / len(scale))
        codes.append(code)
    one, other = positions
    nearest_other = _nearest(one, other)
    mutual = np.flatnonzero(_nearest(other, one)[nearest_other] == np.arange(len(one)))
    other = other.copy()
    other[nearest_other[mutual]] = one[mutual]
    return [one[codes[0]], other[codes[1]]]


def _nearest(points: Floats, among: Floats) -> Integers:
    """For each point the position of the nearest of the others; both ascending."""
    above = np.minimum(np.searchsorted(among, points), len(among) - 1)
    below = np.maximum(above - 1, 0)
    return np.where(points - among[below] <= among[above] - points, below, above).astype(np.int64)
