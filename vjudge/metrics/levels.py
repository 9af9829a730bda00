"""The level a correlation is taken at, and the ways of averaging correlations of groups, each under its own name.

Item-level: over all items of all systems together. System-level: over the systems' mean scores. Within-group: inside
each system, or each question, then averaged. They answer different questions and may differ in sign. When some systems
are better than others, a judge that only tells which system wrote a response reaches a high item-level correlation and
knows nothing within any system; a judge that ranks well within every system but is lenient to the weak ones may have
a negative one overall (Simpson's paradox). So a figure means little until its level is named.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from tqdm.auto import tqdm

from vjudge.metrics import _bootstrap
from vjudge.metrics._bootstrap import STATISTICS, Table, block_of
from vjudge.metrics._tables import Labels, Scores, check_options, design_of, group_codes, same_index, scores, tabulate
from vjudge.metrics.correlation import correlate

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEVELS = ("item", "system", "within")
AVERAGES = ("mean", "fisher", "pooled", "tanh_of_means")


class Grouped:
    """The distinct (group, x, y) of the used items, and the correlations of each group and of all as functions of how
    often each of them occurs.

    Args:
        x, y: scores of the used items; shape (n,).
        codes: group of each, 0..G-1.
        units: the unit each item is drawn in, or None where items are drawn.
    """

    def __init__(self, x: Floats, y: Floats, codes: Integers, units: Integers | None) -> None:
        self.pooled = Table.of(x, y)
        key = codes * max(len(self.pooled.counts), 1) + self.pooled.cell
        cell, first = pd.factorize(key, sort=True)
        self.cell = cell.astype(np.int64)
        self.pair = np.asarray(first, dtype=np.int64) % max(len(self.pooled.counts), 1)
        self.group = np.asarray(first, dtype=np.int64) // max(len(self.pooled.counts), 1)
        self.n_groups = int(codes.max(initial=-1)) + 1
        self.bounds = np.searchsorted(self.group, np.arange(self.n_groups + 1))
        self.size = np.bincount(codes, minlength=self.n_groups)
        # Groups that lie each in one unit are drawn as wholes, and count as often as they are.
        self.whole = units is not None and len(np.unique(np.stack([codes, units]), axis=1).T) == self.n_groups
        self.collect = _indicator(self.pair, len(self.pooled.counts))
        self.by_group = _indicator(self.group, self.n_groups)

    def each(self, weights: NDArray[np.number]) -> Floats:
        """Correlations within each group; shape (G, 3, replicates), NaN where a group has none."""
        found = np.empty((self.n_groups, 3, weights.shape[1]))
        for group in range(self.n_groups):
            rows = slice(self.bounds[group], self.bounds[group + 1])
            pairs = self.pair[rows]
            empty = np.empty(0, dtype=np.int64)
            table = Table(self.pooled.x[pairs], self.pooled.y[pairs], np.bincount(self.cell)[rows], empty)
            w = weights[rows]
            found[group] = _bootstrap.correlations(table, w)
            found[group][:, w.sum(axis=0) < 3] = np.nan
        return found

    def drawn(self, weights: NDArray[np.number]) -> Floats:
        """How often each group counts in each replicate; shape (G, replicates)."""
        items = self.by_group @ weights
        return np.asarray(items / self.size[:, None] if self.whole else items > 0, dtype=float)

    def all(self, weights: NDArray[np.number]) -> Floats:
        """Correlations over all items; shape (3, replicates)."""
        return _bootstrap.correlations(self.pooled, self.collect @ weights)

    def of_means(self, weights: NDArray[np.number]) -> Floats:
        """Correlations over the groups' mean scores; a group counts as often as it was drawn."""
        n = self.by_group @ weights
        mean_x = self.by_group @ (weights * self.pooled.x[self.pair][:, None]) / n
        mean_y = self.by_group @ (weights * self.pooled.y[self.pair][:, None]) / n
        columns, step = (mean_x, mean_y, self.drawn(weights)), block_of(self.n_groups**2)
        starts = range(0, weights.shape[1], step)
        parts = [_correlations_of(*(c[:, start : start + step] for c in columns)) for start in starts]
        return np.concatenate(parts, axis=1)


def _indicator(codes: Integers, size: int) -> sparse.csr_array:
    return sparse.csr_array((np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(size, len(codes)))


def _correlations_of(x: Floats, y: Floats, counts: Floats) -> Floats:
    """Pearson, Spearman and tau-b of (G, replicates) values, each replicate with its own; a count of 0 is absence."""
    # Equal means that were summed in another order still tie.
    x, y = (np.where(counts > 0, np.round(v, 12), 0) for v in (x, y))
    sign_x, sign_y = (np.sign(v[:, None] - v[None, :]) for v in (x, y))
    pairs = counts[:, None] * counts[None, :]
    concordance = (pairs * sign_x * sign_y).sum(axis=(0, 1))
    untied = np.sqrt((pairs * sign_x**2).sum(axis=(0, 1)) * (pairs * sign_y**2).sum(axis=(0, 1)))
    rank_x, rank_y = ((counts[None, :] * sign).sum(axis=1) for sign in (sign_x, sign_y))
    kendall = concordance / np.where(untied > 0, untied, np.nan)
    return np.stack([_pearson(x, y, counts), _pearson(rank_x, rank_y, counts), kendall])


def _pearson(x: Floats, y: Floats, counts: Floats) -> Floats:
    x, y = (v - (counts * v).sum(axis=0) / counts.sum(axis=0) for v in (x, y))
    variance_x, variance_y, shared = ((counts * v).sum(axis=0) for v in (x * x, y * y, x * y))
    spread = np.sqrt(variance_x * variance_y)
    return np.clip(shared / np.where(spread > 0, spread, np.nan), -1, 1)


def correlate_levels(
    x: Scores,
    y: Scores,
    *,
    systems: Labels,
    groups: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Correlate two scores at the item level, at the system level and within systems.

    Args:
        x, y: scores of n items, NaN where missing.
        systems: what each item is an output of (a model, a decoding), or any other grouping to look within.
        groups: the unit of resampling, for example the image or question that systems share; None draws items.
        confidence, n_resamples, seed: see `correlate`.

    Returns:
        Rows (level, statistic): item (all items together), system (mean scores of the systems, each counting once),
        within (the plain mean of the systems' own correlations); columns estimate, low, high, n (items, systems, and
        systems whose own correlation is defined) and missing (items; at "within", systems without a correlation, which
        the mean leaves out). The systems are taken as given: intervals say how the figure would vary over other items
        of the same systems, not over other systems; for those, give the systems as groups too. `attrs["simpson"]`
        lists the statistics whose item-level and within-system correlations have opposite signs.

    Raises:
        TypeError, ValueError: as `correlate`; a scored item has no system.

    Source: Deutsch, Dror and Roth, TACL 9 (2021), 1132-1146, section 2, for the levels; their "boot-inputs" is
    `groups` = the input.
    """
    data, used, missing = _grouped(x, y, systems, groups=groups, name="systems")

    def statistic(weights: NDArray[np.number]) -> Floats:
        within = _mean(data.each(weights), data.drawn(weights))
        return np.concatenate([data.all(weights), data.of_means(weights), within])

    undefined = _undefined(data)
    n = [int(used.sum())] * 3 + [data.n_groups] * 3 + (data.n_groups - undefined).tolist()
    table = tabulate(
        statistic,
        [(level, name) for level in LEVELS for name in STATISTICS],
        design_of(data.cell, groups, used),
        n=n,
        missing=[missing] * 6 + undefined.tolist(),
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
        method="fisher",
        index=["level", "statistic"],
        why="fewer than three items or two systems, or no variation",
    )
    if undefined.any():
        warnings.warn(
            f"{undefined.max()} of {data.n_groups} systems have no correlation of their own (fewer than three items, "
            "or a constant score): the within-system mean leaves them out",
            stacklevel=2,
        )
    sign = np.sign(table["estimate"])
    table.attrs["simpson"] = [name for name in STATISTICS if sign["item", name] * sign["within", name] < 0]
    if table.attrs["simpson"]:
        warnings.warn(
            f"{', '.join(table.attrs['simpson'])}: opposite signs over all items and within systems; differences "
            "between systems dominate the item-level figure (Simpson's paradox)",
            stacklevel=2,
        )
    return table


def correlate_groups(
    x: Scores,
    y: Scores,
    *,
    groups: Labels,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Correlate two scores within each group by itself.

    Args:
        x, y, confidence, n_resamples, seed: see `correlate`.
        groups: of each item.

    Returns:
        Rows (group, statistic), columns as `correlate`; items are resampled within the group. NaN where a group has
        fewer than three pairs or a constant score, with one warning that counts such groups.

    Raises:
        TypeError, ValueError: as `correlate`; an item has no group.
    """
    same_index(x=x, y=y, groups=groups)
    check_options(confidence=confidence, n_resamples=n_resamples)
    a, b = _both(x, y)
    labels = pd.Series(list(groups), dtype=object)
    codes = group_codes(labels, np.ones(len(a), dtype=bool))
    parts = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # told once, below
        present = range(int(codes.max(initial=-1)) + 1)
        for code in tqdm(present, desc="groups", delay=_bootstrap.PATIENCE, leave=False):
            inside = codes == code
            name = labels[int(np.flatnonzero(inside)[0])]
            options: dict[str, Any] = dict(confidence=confidence, n_resamples=n_resamples, seed=seed)
            parts[name] = correlate(a[inside], b[inside], **options)
    if not parts:
        raise ValueError("there are no items: give at least one group of three")
    table = pd.concat(parts, names=["group"])
    table.attrs = {
        "method": f"{confidence:.0%} bootstrap intervals, {n_resamples:,} resamples of each group's items, seed {seed}",
        "confidence": confidence,
        "n_resamples": n_resamples,
        "seed": seed,
    }
    undefined = table["estimate"].isna().groupby(level="statistic").sum().max()
    if undefined:
        warnings.warn(
            f"{undefined} of {len(parts)} groups have no correlation: fewer than three pairs, or a constant score",
            stacklevel=2,
        )
    return table


def average_correlations(
    x: Scores,
    y: Scores,
    *,
    within: Labels,
    strata: Labels | None = None,
    groups: Labels | None = None,
    averages: Sequence[str] = ("mean", "fisher", "pooled"),
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Average the correlations within groups in each of the ways that papers use, each under its own name.

    Args:
        x, y: scores of n items, NaN where missing.
        within: the group each correlation is taken in; every group counts the same, whatever its size.
        strata: coarser groups that count the same, each the mean of its own groups (tasks with several models each);
            None counts all groups the same.
        groups: the unit of resampling of each item; None draws items, and groups of `within` are taken as given. Where
            each of these lies in one unit (it is the unit, or the unit holds several), it is drawn as a whole.
        averages: which of
            - "mean": the plain mean of the correlations;
            - "fisher": tanh of the mean of atanh of the correlations, the Fisher z average;
            - "pooled": one correlation over all items, no average at all; differences between groups count in it;
            - "tanh_of_means": tanh of the mean, taken anew at every level (groups, then strata), without any atanh. No
              estimate of anything, and too near 0: what VIEScore prints as its Fisher z average, so that its published
              figures can be compared.
        confidence, n_resamples, seed: see `correlate`.

    Returns:
        Rows (average, statistic), columns estimate, low, high, n (groups with a correlation; for "pooled", items) and
        missing (groups without one, which the averages leave out, with a warning; for "pooled", items). A group
        correlation of 1 or -1 makes the Fisher average infinite: NaN, with a warning.

    Raises:
        TypeError, ValueError: as `correlate`; a scored item has no group, a group lies in two strata, or an average is
            not known.

    Source: Corey, Dunlap and Burke, Journal of General Psychology 125 (1998), 245-261, for mean against Fisher z;
    TIGER-AI-Lab/VIEScore, analyze_json.ipynb, `average_correlation`, for the last.
    """
    unknown = [name for name in averages if name not in AVERAGES]
    if unknown or not averages:
        raise ValueError(f"averages must be some of {', '.join(AVERAGES)}, not {unknown or 'none'}")
    same_index(x=x, strata=strata)
    data, used, missing = _grouped(x, y, within, groups=groups, name="within")
    stratum = _strata(data, strata, used)

    def statistic(weights: NDArray[np.number]) -> Floats:
        each, drawn = data.each(weights), data.drawn(weights)
        found = {"pooled": data.all(weights)} if "pooled" in averages else {}
        if "mean" in averages:
            found["mean"] = _nested(each, drawn, stratum)
        if "fisher" in averages:
            finite = np.where(np.abs(each) < 1, each, np.nan)
            infinite = (np.abs(each) >= 1).any(axis=0)
            found["fisher"] = np.where(infinite, np.nan, np.tanh(_nested(np.arctanh(finite), drawn, stratum)))
        if "tanh_of_means" in averages:
            found["tanh_of_means"] = np.tanh(_nested(each, drawn, stratum, between=np.tanh))
        return np.concatenate([found[name] for name in averages])

    undefined = _undefined(data)
    counts: dict[bool, tuple[list[int], list[int]]] = {
        True: ([int(used.sum())] * 3, [missing] * 3),
        False: ((data.n_groups - undefined).tolist(), undefined.tolist()),
    }
    table = tabulate(
        statistic,
        [(average, name) for average in averages for name in STATISTICS],
        design_of(data.cell, groups, used),
        n=[n for name in averages for n in counts[name == "pooled"][0]],
        missing=[n for name in averages for n in counts[name == "pooled"][1]],
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
        method="fisher",
        index=["average", "statistic"],
        why="no group has a correlation, or, for the Fisher average, one is 1 or -1",
    )
    if undefined.any():
        warnings.warn(
            f"{undefined.max()} of {data.n_groups} groups have no correlation (fewer than three pairs, or a constant "
            "score): the averages leave them out",
            stacklevel=2,
        )
    return table


def _grouped(x: Scores, y: Scores, labels: Labels, *, groups: Labels | None, name: str) -> tuple[Grouped, Any, int]:
    same_index(x=x, y=y, **{name: labels}, groups=groups)
    a, b = _both(x, y)
    used = ~(np.isnan(a) | np.isnan(b))
    codes = group_codes(labels, used, name=name)
    units = None if groups is None else group_codes(groups, used)
    return Grouped(a[used], b[used], codes, units), used, int((~used).sum())


def _both(x: Scores, y: Scores) -> tuple[Floats, Floats]:
    a, b = scores(x, name="x"), scores(y, name="y")
    if len(a) != len(b):
        raise ValueError(f"x has {len(a)} scores and y has {len(b)}: give one of each per item")
    return a, b


def _strata(data: Grouped, strata: Labels | None, used: Any) -> Integers:
    """The stratum of each group."""
    if strata is None:
        return np.zeros(data.n_groups, dtype=np.int64)
    codes = group_codes(strata, used, name="strata")
    of_group = data.group[data.cell]
    pairs = np.unique(np.column_stack([of_group, codes]), axis=0)
    split = np.flatnonzero(np.bincount(pairs[:, 0], minlength=data.n_groups) > 1)
    if len(split):
        raise ValueError(
            f"{len(split)} groups of `within` lie in more than one stratum: make their labels distinct, for example by "
            "naming stratum and group together"
        )
    return np.asarray(pairs[:, 1], dtype=np.int64)


def _nested(each: Floats, drawn: Floats, stratum: Integers, *, between: Any = None) -> Floats:
    """The mean over strata of the means over groups; undefined groups are left out. Shape (3, replicates)."""
    inside = [stratum == s for s in range(int(stratum.max(initial=-1)) + 1)]
    means = np.stack([_mean(each[rows], drawn[rows]) for rows in inside] or [_mean(each, drawn)])
    return _mean(between(means) if between else means, np.ones((len(means), means.shape[-1])))


def _mean(values: Floats, counts: Floats) -> Floats:
    """The mean over the first axis, each row counted as often as given, NaN left out."""
    known = ~np.isnan(values) * counts[:, None]
    return np.asarray((np.nan_to_num(values) * known).sum(axis=0) / known.sum(axis=0))


def _undefined(data: Grouped) -> Integers:
    """Groups without a correlation, for each statistic."""
    counts = np.bincount(data.cell, minlength=len(data.group)) if len(data.cell) else np.zeros(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.isnan(data.each(counts[:, None])[:, :, 0]).sum(axis=0))
