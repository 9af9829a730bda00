"""A few human labels beside many verdicts: which to ask for next, and what they add.

Labels may be a random part of the items. Or they are chosen, `next_labels` says where; they are
then a stratified sample, and `label_weights` says how many items each label stands for, for
`correlate(..., weights=)` and `prediction_powered_mean(..., weights=)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics.resampling import (
    Floats,
    Integers,
    correlations,
    on_fisher_scale,
    student,
    values,
)
from vjudge.metrics.tables import INTERVAL, Column, aligned, positive, scores, warn
from vjudge.records import is_int_at_least

MOST_STRATA = 10
FIRST_LABELS = 4  # of every stratum, before any gets more
EXPECTED_R = 0.6  # the correlation where no label tells it yet
MOST_R = 0.95  # the most that labels are believed


def prediction_powered_mean(
    verdicts: pd.Series,
    labels: pd.Series,
    *,
    weights: pd.Series | None = None,
    groups: pd.Series | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate the mean of people's labels on all items from a few labels and all verdicts.

    It holds whatever the judge's errors are; a better judge makes the interval shorter. For a win
    rate put 1, 0.5 and 0 for win, tie and loss; for the difference of two systems put the
    differences of their scores on each item.

    Args:
        verdicts: the judge's value of each of n items; NaN where there is none.
        labels: people's value by the same index, NaN where nobody labelled.
        weights: how many items each label stands for, where they were chosen (`label_weights`).
            None: the labelled items are a random part of all.
        groups: the unit of sampling of each item, usually its image; None: each item is its own.
        confidence: of the intervals, by the t distribution.

    Returns:
        Rows `prediction_powered` and `labels_alone`: `estimate`, `low`, `high`, `n` (labels).
        `attrs`: `weight` (how far the verdicts are trusted, the one of least variance),
        `labels_saved` (further labels that the same precision would take without the judge),
        `missing` (items without a verdict, labelled or not, which are left out).

    ValueError: fewer than two labelled items, or no item without a label.

    >>> rng = np.random.default_rng(1)
    >>> truth = pd.Series(rng.integers(1, 6, size=2000).astype(float))
    >>> verdicts = truth + rng.normal(0.5, 0.4, size=2000)
    >>> table = prediction_powered_mean(verdicts, truth.where(truth.index < 100))
    >>> (table["high"] - table["low"]).round(2).to_dict()
    {'prediction_powered': 0.21, 'labels_alone': 0.55}

    Source: Angelopoulos, Duchi and Zrnic, PPI++ (arXiv 2311.01453); for judges of language models
    Fisch et al. (arXiv 2406.04291).
    """
    verdicts, labels = verdicts.astype(float).align(labels.astype(float), join="left")
    judged = verdicts.notna().to_numpy()
    f = verdicts.to_numpy()[judged]
    y = labels.to_numpy()[judged]
    known = ~np.isnan(y)
    n = int(known.sum())
    if n < 2 or n == len(f):
        raise ValueError(f"{n} labelled and {len(f) - n} unlabelled items: use at least 2 and 1")
    # 1) the share of the items that each label stands for
    share = known / n
    if weights is not None:
        worth = positive(weights[verdicts.index], judged & labels.notna(), name="weights")[judged]
        share = np.where(known, worth, 0.0) / worth[known].sum()
    y = np.where(known, y, 0.0)
    units = np.arange(len(f))
    if groups is not None:
        units = pd.factorize(groups[verdicts.index])[0][judged]
    # 2) trust verdicts as far as it takes most off the variance
    covariance = share @ ((f - share @ f) * (y - share @ y)) * n / (n - 1)
    trust = covariance / max(f.var(ddof=1), 1e-300)
    # 3) both means, each with the variance of its sum over units
    n_units = len(np.unique(units[known]))
    rows = {}
    errors = []
    for name, weight in {"prediction_powered": trust, "labels_alone": 0.0}.items():
        rest = y - weight * f
        mean = share @ rest
        influence = share * (rest - mean) + weight * (f - f.mean()) / len(f)
        by_unit = np.bincount(units, influence)
        errors.append(math.sqrt(by_unit @ by_unit * n_units / max(n_units - 1, 1)))
        half = student(confidence, max(n_units - 1, 1)) * errors[-1]
        estimate = mean + weight * f.mean()
        rows[name] = [estimate, estimate - half, estimate + half, n]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=[*INTERVAL, "n"])
    ratio = errors[1] / errors[0] if errors[0] else 1.0
    table.attrs = {
        "weight": float(trust * (1 - n / len(f))),
        "labels_saved": round(n * (ratio**2 - 1)),
        "missing": int((~judged).sum()),
    }
    return table


# --- Labels that are chosen


def strata(judge: Column) -> Integers:
    """The stratum of each item, lowest first: its score, or decile of many scores; -1: no score.

    A score that fewer than `FIRST_LABELS` items have joins the next higher one, the highest the
    next lower.
    """
    every = scores(judge, name="judge")
    scored = every[~np.isnan(every)]
    levels = np.unique(scored)
    if len(levels) > MOST_STRATA:
        levels = np.unique(np.quantile(scored, np.arange(MOST_STRATA) / MOST_STRATA))
    starts: list[float] = []
    size = FIRST_LABELS
    for level, above in zip(levels, [*levels[1:], np.inf], strict=False):
        if size >= FIRST_LABELS:
            starts.append(level)
        size = ((scored >= starts[-1]) & (scored < above)).sum()
    if len(starts) > 1 and size < FIRST_LABELS:
        starts.pop()
    return np.where(np.isnan(every), -1, np.searchsorted(starts, every, side="right") - 1)


def label_weights(judge: Column, human: Column) -> pd.Series:
    """Count how many items each label stands for, where labels were chosen by strata of the score.

    Args:
        judge, human: n scores by the judge that the choice went by, and the labels, NaN where there
            is none.

    Returns:
        n weights, index of `human`: items over labels of the stratum, NaN without a label, and
        throughout, with a warning, where a stratum has none.

    Source: stratified sampling as in Cochran, Sampling Techniques (1977), chapter 5.

    >>> label_weights([1] * 8 + [2] * 4, [3, 3] + [None] * 6 + [4, 4, 5, 4]).dropna().tolist()
    [4.0, 4.0, 1.0, 1.0, 1.0, 1.0]
    """
    x, y, _ = aligned(judge=judge, human=human, by_design=True)
    code = strata(x)
    sizes = np.bincount(code[code >= 0], minlength=1)
    known = (code >= 0) & ~np.isnan(y)
    labels = np.bincount(code[known], minlength=len(sizes))
    index = human.index if isinstance(human, pd.Series) else pd.RangeIndex(len(y))
    weights = pd.Series(np.nan, index=index, name="weight")
    if (labels == 0).any():
        warn(f"weights are undefined: {(labels == 0).sum()} of {len(sizes)} strata have no label")
    else:
        weights[known] = (sizes / labels)[code[known]]
    return weights


def next_labels(judge: Column, human: Column, *, n: int, seed: int = 0) -> pd.DataFrame:
    """Choose which items to label next, so that the interval of Pearson's r shrinks fastest.

    Every stratum gets `FIRST_LABELS` labels first. Then each goes, at random within a stratum,
    where it is expected to take most off the variance, W_s^2 S_s^2 (1 / n_s - 1 / (n_s + 1)): W_s
    is the stratum's share, S_s^2 the variance of the correlation's influence function within it.

    Args:
        judge, human: as in `label_weights`.
        n: how many items, at most. seed: of the choice within strata.

    Returns:
        A row an item, the most useful first: `position` in the input, `stratum`, `judge` (its
        score), `gain` (share of the variance it is expected to take off; NaN while a stratum lacks
        its first labels).

    Source: Neyman, JRSS 97 (1934), 558-625, for the allocation.

    >>> next_labels([1, 1, 2, 2, 2, 2, 2, 2], [None] * 8, n=2)["stratum"].tolist()
    [0, 0]
    """
    if not is_int_at_least(n, 1):
        raise ValueError(f"n must be a whole number from 1, not {n!r}")
    x, y, _ = aligned(judge=judge, human=human, by_design=True)
    code = strata(x)
    sizes = np.bincount(code[code >= 0], minlength=1)
    waiting: list[list[int]] = [[] for _ in sizes]
    for item in np.random.default_rng(seed).permutation(len(x)):
        if code[item] >= 0 and np.isnan(y[item]):
            waiting[code[item]].append(int(item))
    count = sizes - [len(items) for items in waiting]
    spread = sizes.astype(float)
    if sizes.sum():
        spread = (sizes / sizes.sum()) ** 2 * _influence_variance(x, y, code, sizes)
    rows: list[dict[str, Any]] = []
    while len(rows) < n and any(waiting):
        variance = spread / np.maximum(count, 1)
        gains = variance / (np.maximum(count, 1) + 1)
        filled = [stratum for stratum, items in enumerate(waiting) if items]
        few = [s for s in filled if count[s] < min(FIRST_LABELS, sizes[s])]
        gain = math.nan
        if few:
            stratum = max(few, key=lambda s: (-count[s], sizes[s]))
        else:
            stratum = max(filled, key=lambda s: gains[s])
            if variance.sum() > 0:
                gain = gains[stratum] / variance.sum()
        item = waiting[stratum].pop(0)
        rows.append({"position": item, "stratum": stratum, "judge": x[item], "gain": gain})
        count[stratum] += 1
    return pd.DataFrame(rows, columns=["position", "stratum", "judge", "gain"])


def _influence_variance(x: Floats, y: Floats, code: Integers, sizes: Integers) -> Floats:
    """Variance within each stratum of Pearson's influence, zx zy - r (zx^2 + zy^2) / 2.

    With zy = r zx + e, e normal of variance v = 1 - r^2, it is v^3 zx^2 + r^2 v^2 / 2. Only r is
    taken from the labels: variances of their own would bias the estimate upwards (by .02 at 60
    labels, in a simulation).
    """
    both = (code >= 0) & ~np.isnan(y)
    r = EXPECTED_R
    if both.sum() > 2 and min(np.ptp(x[both]), np.ptp(y[both])) > 0:
        r = np.clip(np.corrcoef(x[both], y[both])[0, 1], -MOST_R, MOST_R)
    centre = np.bincount(code[code >= 0], x[code >= 0]) / sizes
    squares = (centre - np.average(centre, weights=sizes)) ** 2
    spread = np.average(squares, weights=sizes)
    z2 = squares / spread if spread > 0 else np.ones(len(sizes))
    v = 1 - r**2
    return np.asarray(v**3 * z2 + r**2 * v**2 / 2)


def weighted_correlations(
    x: Floats, y: Floats, weights: Floats, codes: Integers | None, *, confidence: float
) -> tuple[Floats, str]:
    """Estimate, low, high of correlations, shape (3, 3), of labels with weights, and the method.

    Student's interval on Fisher's scale, by a stratified jackknife over labels (those of one weight
    are a stratum) and over the strata's sizes, with Satterthwaite's degrees of freedom; with
    groups, on the wide side, over whole groups.

    Source: Cochran, Sampling Techniques (1977), chapter 5; Jones, Biometrika 61 (1974).
    """

    def of(worth: Floats) -> Floats:
        """The three correlations for columns of weights of the labels."""
        return values(lambda w: correlations(x, y, w), worth)

    estimate = of(weights[:, None])[:, 0]
    if codes is not None:
        groups = int(codes.max(initial=-1)) + 1
        without = of(weights[:, None] * (codes[:, None] != np.arange(groups)))
        spread = (without - without.mean(axis=1, keepdims=True)) ** 2
        variance = (groups - 1) / groups * spread.sum(axis=1)
        freedom = np.full(3, groups - 1.0)
        how = f"a jackknife over {groups} groups of {len(x)} weighted labels"
    else:
        variance, freedom, n_strata = _over_strata(of, estimate, weights)
        how = (
            f"a stratified jackknife of {len(x)} labels that stand for {weights.sum():g} items,"
            f" {n_strata} different weights"
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = student(confidence, freedom) * np.sqrt(variance) / (1 - estimate**2)
    reach = np.where(np.isfinite(variance) & (variance > 0), reach, np.nan)
    if np.isnan(reach).any():
        warn(
            "intervals are undefined: a single label stands for many items, or without one there is"
            " no variation"
        )
    method = f"{confidence:.0%} Student's intervals on Fisher's z scale, by {how}"
    return on_fisher_scale(estimate, reach), method


def _over_strata(
    of: Callable[[Floats], Floats], estimate: Floats, weights: Floats
) -> tuple[Floats, Floats, int]:
    """The jackknife's variance, its degrees of freedom and the number of strata."""
    levels, stratum = np.unique(np.round(weights, 9), return_inverse=True)
    labels = np.bincount(stratum)
    sizes = levels * labels
    n_items = weights.sum()
    in_stratum = stratum[:, None] == np.arange(len(levels))
    # 1) how the labels of a stratum vary: leave out each, the others of it standing in
    more = (labels / np.maximum(labels - 1, 1))[stratum]
    stand_in = np.where(stratum[:, None] == stratum, more, 1.0)
    np.fill_diagonal(stand_in, 0)
    squares = (of(weights[:, None] * stand_in) - estimate[:, None]) ** 2
    within = np.nan_to_num(squares, nan=np.inf) @ in_stratum * (labels - 1) / labels
    within[:, (labels < 2) & (sizes > 1.5)] = np.nan
    # 2) how the sizes of the strata vary: leave out each item
    smaller = of(weights[:, None] * np.where(in_stratum, 1 - 1 / sizes, 1.0))
    between = (n_items - 1) / n_items * ((smaller - estimate[:, None]) ** 2 @ sizes)
    variance = within.sum(axis=1) + between
    # 3) Satterthwaite's degrees of freedom
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = variance**2 / (within**2 / np.maximum(labels - 1, 1)).sum(axis=1)
    return variance, freedom, len(levels)
