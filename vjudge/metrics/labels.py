"""A few human labels beside many judge scores: what to label next, and correlations of labels so chosen.

They are a stratified sample: `label_weights` says how many items each stands for, for `correlate(..., weights=)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.resampling import Floats, Integers, Table, correlations, summing, values
from vjudge.metrics.tables import Column, aligned, scores, warn
from vjudge.records import is_int_at_least

MOST_STRATA = 10
FIRST_LABELS = 4  # of every stratum, before any gets more
EXPECTED_R, MOST_R = (
    0.6,
    0.95,
)  # the correlation where no label tells it yet, and the most that labels are believed


def strata(judge: Column) -> Integers:
    """The stratum of each item, from 0, lowest first: its score, or decile where there are many; -1: no score.

    A score that fewer than `FIRST_LABELS` items have joins the next higher one, the highest the next lower.
    """
    every = scores(judge, name="judge")
    scored = every[~np.isnan(every)]
    levels = np.unique(scored)
    if len(levels) > MOST_STRATA:
        levels = np.unique(np.quantile(scored, np.arange(MOST_STRATA) / MOST_STRATA))
    starts: list[float] = []
    full = True  # whether the stratum under way has enough items
    for level, above in zip(levels, [*levels[1:], np.inf], strict=False):
        if full:
            starts.append(level)
        full = ((scored >= starts[-1]) & (scored < above)).sum() >= FIRST_LABELS
    if len(starts) > 1 and not full:
        starts.pop()
    return np.where(np.isnan(every), -1, np.searchsorted(starts, every, side="right") - 1)


def label_weights(judge: Column, human: Column) -> pd.Series:
    """How many items each human label stands for, where labels were chosen by strata of the judge's score.

    Args:
        judge, human: n scores by the judge that the choice went by, and the labels, NaN where there is none.

    Returns:
        n weights, index of `human`: items over labels of the stratum, NaN without a label, and throughout, with a
        warning, where a stratum has none.

    Source: stratified sampling as in Cochran, Sampling Techniques (1977), chapter 5.

    >>> label_weights([1] * 8 + [2] * 4, [3, 3] + [None] * 6 + [4, 4, 5, 4]).dropna().tolist()
    [4.0, 4.0, 1.0, 1.0, 1.0, 1.0]
    """
    x, y, _ = aligned(judge=judge, human=human, by_design=True)
    code = strata(x)
    sizes = np.bincount(code[code >= 0], minlength=1)
    has_label = (code >= 0) & ~np.isnan(y)
    labels = np.bincount(code[has_label], minlength=len(sizes))
    index = human.index if isinstance(human, pd.Series) else pd.RangeIndex(len(y))
    weights = pd.Series(np.nan, index=index, name="weight")
    if (labels == 0).any():
        warn(f"weights are undefined: {(labels == 0).sum()} of {len(sizes)} strata have no label")
    else:
        weights[has_label] = (sizes / labels)[code[has_label]]
    return weights


def next_labels(judge: Column, human: Column, *, n: int, seed: int = 0) -> pd.DataFrame:
    """Choose which items to label next so that the interval of the Pearson correlation shrinks fastest.

    Every stratum gets `FIRST_LABELS` labels first. Then each goes, at random within a stratum, where it is expected to
    take most off the variance, W_s^2 S_s^2 (1 / n_s - 1 / (n_s + 1)): W_s is the stratum's share, S_s^2 the variance of
    the correlation's influence function within it.

    Args:
        judge, human: as in `label_weights`. n: how many items, at most. seed: of the choice within strata.

    Returns:
        A row an item, the most useful first: `position` in the input, `stratum`, `judge` (its score), `gain` (share of
        the variance it is expected to take off; NaN while a stratum lacks its first labels).

    Source: Neyman, JRSS 97 (1934), 558-625, for the allocation.
    """
    if not is_int_at_least(n, 1):
        raise ValueError(f"n must be a whole number from 1, not {n!r}")
    x, y, _ = aligned(judge=judge, human=human, by_design=True)
    code = strata(x)
    sizes = np.bincount(code[code >= 0], minlength=1)
    order = np.random.default_rng(seed).permutation(len(x))
    waiting = [
        [i for i in order if code[i] == stratum and np.isnan(y[i])] for stratum in range(len(sizes))
    ]
    count = sizes - np.array([len(items) for items in waiting])
    spread = (
        (sizes / sizes.sum()) ** 2 * _influence_variance(x, y, code, sizes)
        if sizes.sum()
        else sizes
    )
    rows: list[dict[str, Any]] = []
    while len(rows) < n and any(waiting):
        variance = spread / np.maximum(count, 1)
        gains = variance / (np.maximum(count, 1) + 1)
        filled = [stratum for stratum, items in enumerate(waiting) if items]
        few = [s for s in filled if count[s] < min(FIRST_LABELS, sizes[s])]
        stratum = (
            max(few, key=lambda s: (-count[s], sizes[s]))
            if few
            else max(filled, key=lambda s: gains[s])
        )
        item = waiting[stratum].pop(0)
        gain = np.nan if few or not variance.sum() > 0 else gains[stratum] / variance.sum()
        rows.append(
            {"position": int(item), "stratum": int(stratum), "judge": x[item], "gain": gain}
        )
        count[stratum] += 1
    return pd.DataFrame(rows, columns=["position", "stratum", "judge", "gain"])


def _influence_variance(x: Floats, y: Floats, code: Integers, sizes: Integers) -> Floats:
    """Variance within each stratum of Pearson's influence function, zx zy - r (zx^2 + zy^2) / 2, shape (strata,).

    With zy = r zx + e, e normal of variance v = 1 - r^2, it is v^3 zx^2 + r^2 v^2 / 2. Only r is taken from the labels:
    variances of their own would bias the estimate upwards (by .02 at 60 labels, in a simulation).
    """
    both = (code >= 0) & ~np.isnan(y)
    varied = both.sum() > 2 and np.ptp(x[both]) > 0 and np.ptp(y[both]) > 0
    r = (
        float(np.clip(np.corrcoef(x[both], y[both])[0, 1], -MOST_R, MOST_R))
        if varied
        else EXPECTED_R
    )
    centre = np.array([x[code == s].mean() for s in range(len(sizes))])
    across = np.average(centre, weights=sizes)
    spread = np.average((centre - across) ** 2, weights=sizes)
    z2 = (centre - across) ** 2 / spread if spread > 0 else np.ones(len(sizes))
    v = 1 - r**2
    return np.asarray(v**3 * z2 + r**2 * v**2 / 2)


def weighted_correlations(
    x: Floats, y: Floats, weights: Floats, codes: Integers | None, *, confidence: float
) -> tuple[Floats, str]:
    """Estimate, low, high of `STATISTICS`, shape (3, 3), of labels that stand for several items each, and the method.

    Student's interval on Fisher's scale, by a stratified jackknife over labels (those of one weight are a stratum) and
    over the strata's sizes with Satterthwaite's degrees of freedom; with groups, on the wide side, over whole groups.

    Source: Cochran, Sampling Techniques (1977), chapter 5; Jones, Biometrika 61 (1974), for the stratified jackknife.
    """
    table = Table(x, y)
    levels, stratum = np.unique(np.round(weights, 9), return_inverse=True)
    n, n_items = len(x), float(weights.sum())
    # Labels of one pair of scores and one weight are a cell.
    distinct = np.unique(
        np.stack([table.cell, stratum]), axis=1, return_inverse=True, return_counts=True
    )
    (pair, level), cell, counts = distinct
    worth = levels[level] * counts
    collect = summing(pair, np.arange(len(pair)), (len(table.x), len(pair)))

    def of(worth: Floats) -> Floats:
        """The three correlations for columns of weights of the cells."""
        return values(lambda w: correlations(table, collect @ w), worth)

    estimate = of(worth[:, None])[:, 0]
    if codes is not None:
        n_groups = int(codes.max(initial=-1)) + 1
        by_group = np.zeros((len(worth), n_groups))
        np.add.at(by_group, (np.reshape(cell, -1), codes), weights)
        without = of(worth[:, None] - by_group)
        variance = (
            (n_groups - 1)
            / n_groups
            * ((without - without.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        )
        freedom = np.full(3, n_groups - 1.0)
        how = f"a jackknife over {n_groups} groups of {n} weighted labels"
    else:
        labels = np.bincount(stratum)
        sizes = levels * labels
        # Leave out each label once, the others of its stratum standing in for it: how the labels of a stratum vary.
        stand_in = np.where(
            level[:, None] == level, (labels / np.maximum(labels - 1, 1))[level], 1.0
        )
        without = of((worth[:, None] - np.diag(levels[level])) * stand_in)
        squares = np.nan_to_num((without - estimate[:, None]) ** 2, nan=np.inf) * counts
        within = squares @ (level[:, None] == np.arange(len(levels))) * (labels - 1) / labels
        within[:, (labels < 2) & (sizes > 1.5)] = np.nan
        # Leave out each item once: how the sizes of the strata vary.
        smaller = worth[:, None] * np.where(
            level[:, None] == np.arange(len(levels)), 1 - 1 / sizes, 1.0
        )
        variance = within.sum(axis=1) + (n_items - 1) / n_items * (
            (of(smaller) - estimate[:, None]) ** 2 @ sizes
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            freedom = variance**2 / (within**2 / np.maximum(labels - 1, 1)).sum(
                axis=1
            )  # Satterthwaite's
        how = f"a stratified jackknife of {n} labels that stand for {n_items:g} items, {len(levels)} different weights"
    with np.errstate(invalid="ignore", divide="ignore"):
        half = stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(variance) / (1 - estimate**2)
        bounds = np.tanh(np.arctanh(estimate) + half * np.array([[-1], [1]]))
    bounds = np.where(np.isfinite(variance) & (variance > 0), bounds, np.nan)
    method = f"{confidence:.0%} Student's intervals on Fisher's z scale, by {how}"
    return np.stack([estimate, *bounds], axis=1), method
