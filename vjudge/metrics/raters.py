"""How far raters agree: chance-corrected agreement, reliability, the human ceiling, and a judge's correlation
corrected for the noise of the humans it is held to."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from vjudge.metrics import _bootstrap
from vjudge.metrics._bootstrap import Table
from vjudge.metrics._tables import Labels, Scores, design_of, same_index, scores, tabulate
from vjudge.metrics.ratings import Patterns, read_ratings

Floats = np.ndarray

AGREEMENT = (
    "alpha_nominal",
    "alpha_ordinal",
    "alpha_interval",
    "cohen_kappa",
    "quadratic_kappa",
    "icc_1_1",
    "icc_2_1",
    "icc_2_k",
    "exact",
    "within_one",
)
_SCALES = ["fisher"] * 7 + ["t"] + ["logit"] * 2  # the mean of many ratings may have an ICC far below -1


def agreement(
    ratings: Any,
    *,
    groups: Labels | None = None,
    scale: tuple[float, float] | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Measure how far raters agree with one another, with bootstrap intervals.

    Args:
        ratings: n items by m raters: a frame (a column a rater), a 2-D array, or one list of ratings an item
            (`human_scores`; lists may differ in length). NaN and None are missing.
        groups: the unit of resampling of each item, for example its image; None resamples items.
        scale: lowest and highest possible rating; a rating outside is refused. None accepts any.
        confidence: coverage of the intervals, in (0, 1).
        n_resamples: bootstrap replicates; 0 leaves the intervals NaN.
        seed: of the resampling.

    Returns:
        A frame with columns estimate, low, high, n (items used) and missing (items left out), and rows
        - alpha_nominal, alpha_ordinal, alpha_interval: Krippendorff's alpha, at most 1, over items with at least two
          ratings; it allows missing ratings and doesn't need to know who rated.
        - cohen_kappa, quadratic_kappa: the mean over pairs of raters who share items (Light's kappa; for two raters,
          the kappa itself). Quadratic weights are squared differences of the ratings themselves.
        - icc_1_1: the intraclass correlation of one rating where each item may have had other raters, and any number
          of them; over items with at least two ratings.
        - icc_2_1, icc_2_k: over items that every rater rated: one rating, absolute agreement, raters a sample of
          raters; the mean of the m ratings likewise.
        - exact, within_one: the share in [0, 1] of all pairs of ratings of one item that are equal, or at most 1
          apart.
        Kappa and ICC(2, .) mean something only if a column is one and the same rater throughout: read alpha and
        ICC(1,1) where it isn't. `attrs` has what `correlate` has, and n_raters and pairs_without_items: pairs of raters
        who share no item, which the kappas leave out.

    Raises:
        TypeError: a rating is not a number; every such position is named.
        ValueError: a rating is infinite or off the scale, or a used item has no group.

    Over 400 simulated samples of 50 items and three raters on a 5-point scale, 95 % intervals covered the truth in
    94.5 % to 96.2 % for every row.

    Source: Krippendorff, Content Analysis (2004), chapter 11, where the ordinal metric is the squared difference of
    midranks; Shrout and Fleiss, Psychological Bulletin 86 (1979), 420-428; Donner, International Statistical Review 54
    (1986), 67-82, for ICC(1,1) of unequal numbers of ratings; Light, Psychological Bulletin 76 (1971).

    >>> from vjudge.metrics import agreement
    >>> table = agreement([[1, 2], [2, 2], [4, 3], [5, 5]], n_resamples=0)
    >>> table["estimate"][["exact", "within_one"]].tolist()
    [0.5, 1.0]
    """
    if isinstance(ratings, pd.DataFrame | pd.Series):
        same_index(ratings=ratings.index.to_series(), groups=groups)
    table = read_ratings(ratings, scale=scale)
    shared = (~np.isnan(table)).sum(axis=1) >= 2
    complete = (~np.isnan(table)).all(axis=1) & shared
    patterns = Patterns.of(table[shared])
    given = ~np.isnan(patterns.values)
    pairs = list(itertools.combinations(range(table.shape[1]), 2))
    apart = [pair for pair in pairs if not given[:, pair].all(axis=1).any()]
    crossed = np.array([name.startswith("icc_2") for name in AGREEMENT])
    n = np.where(crossed, complete.sum(), shared.sum())
    result = tabulate(
        lambda weights: _agreement(patterns, [pair for pair in pairs if pair not in apart], weights),
        AGREEMENT,
        design_of(patterns.cell, groups, shared),
        n=n,
        missing=len(table) - n,
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
        method=_SCALES,
        why="no item has two ratings, too few items have all, or there is no variation",
    )
    result.attrs |= {"n_raters": table.shape[1], "pairs_without_items": len(apart)}
    return result


def _agreement(patterns: Patterns, pairs: list[tuple[int, int]], weights: Floats) -> Floats:
    return np.vstack(
        [_alphas(patterns, weights), _kappas(patterns, pairs, weights), _one_way(patterns, weights)[:1]]
        + [_two_way(patterns, weights)[:2], _close(patterns, weights)]
    )


def _alphas(patterns: Patterns, weights: Floats) -> Floats:
    """Krippendorff's alpha, nominal, ordinal and interval: 1 - (n - 1) / n * within-item by total disagreement."""
    given = patterns.codes >= 0
    size = given.sum(axis=1)
    scaled = weights * (size / np.maximum(size - 1, 1))[:, None]
    k, c = len(size), len(patterns.levels)
    rows, raters = np.nonzero(given)
    tally = sparse.csr_array((np.ones(len(rows)), (rows, patterns.codes[rows, raters])), shape=(k, c))
    counts = tally.T @ weights  # of each level, per replicate
    n = counts.sum(axis=0)

    # Half the unequal ordered pairs of an item, over its size: what a sum of squares is for numbers.
    unequal = (size - (tally * tally).sum(axis=1) / np.maximum(size, 1)) / 2
    nominal = unequal @ scaled, (n - (counts**2).sum(axis=0) / n) / 2

    rank = np.cumsum(counts, axis=0) - counts / 2
    ordinal = (_within(patterns.codes, rank) * scaled).sum(axis=0), (counts * (rank - n / 2) ** 2).sum(axis=0)

    value = patterns.levels - (patterns.levels.mean() if c else 0.0)
    within = _within(patterns.codes, value[:, None])[:, 0]
    interval = within @ scaled, value**2 @ counts - (value @ counts) ** 2 / n
    return np.stack([1 - (n - 1) / n * _ratio(*pair) for pair in (nominal, ordinal, interval)])


def _within(codes: Floats, values: Floats) -> Floats:
    """Sum of squares of each row's values around the row's mean, per replicate; shape (k, replicates)."""
    given = codes >= 0
    size = np.maximum(given.sum(axis=1), 1)[:, None]
    columns = range(codes.shape[1])
    mean = sum((np.where(given[:, [j]], values[codes[:, j]], 0) for j in columns), np.zeros(())) / size
    return sum((np.where(given[:, [j]], (values[codes[:, j]] - mean) ** 2, 0) for j in columns), np.zeros(()))


def _ratio(part: Floats, whole: Floats) -> Floats:
    """part / whole, NaN where the whole is nothing but rounding."""
    return part / np.where(whole > 1e-12 * np.nanmax(whole, initial=0), whole, np.nan)


def _kappas(patterns: Patterns, pairs: list[tuple[int, int]], weights: Floats) -> Floats:
    """Cohen's and quadratic kappa, mean over pairs of raters; shape (2, replicates)."""
    wanted = [_bootstrap.AGREEMENTS.index(name) for name in ("cohen_kappa", "quadratic_kappa")]
    total = np.zeros((2, weights.shape[1]))
    for first, second in pairs:
        both = ~np.isnan(patterns.values[:, [first, second]]).any(axis=1)
        x, y = patterns.values[both][:, [first, second]].T
        total += _bootstrap.agreements(Table(x, y, np.empty(0, int), np.empty(0, int)), weights[both])[wanted]
    return total / len(pairs) if pairs else np.full_like(total, np.nan)


def _close(patterns: Patterns, weights: Floats) -> Floats:
    """Share of pairs of ratings of one item that are equal, and at most 1 apart; shape (2, replicates)."""
    found = np.zeros((3, len(patterns.values)))
    for first, second in itertools.combinations(range(patterns.values.shape[1]), 2):
        gap = np.abs(patterns.values[:, first] - patterns.values[:, second])
        found += np.stack([gap == 0, gap <= 1 + 1e-9, ~np.isnan(gap)])
    return found[:2] @ weights / (found[2] @ weights)


def _one_way(patterns: Patterns, w: Floats) -> Floats:
    """ICC(1,1), and the reliability of mean ratings, where each item has raters of its own; shape (2, replicates).

    With equal numbers of ratings the second is ICC(1,k): the share of the variance of the means that is not the raters'
    noise, which is the variance within items times the mean of 1 / (ratings of the item).
    """
    if not patterns.values.size:
        return np.full((2, w.shape[1]), np.nan)
    size = (~np.isnan(patterns.values)).sum(axis=1)
    values = patterns.values - patterns.levels.mean()  # so that sums of squares don't cancel
    mean = np.nansum(values, axis=1) / size
    n, total = w.sum(axis=0), size @ w
    inside = np.nansum((values - mean[:, None]) ** 2, axis=1)
    within = inside @ w / (total - n)
    between = np.maximum((size * mean**2) @ w - ((size * mean) @ w) ** 2 / total, 0) / (n - 1)
    per_item = (total - size**2 @ w / total) / (n - 1)
    spread = np.maximum(mean**2 @ w - (mean @ w) ** 2 / n, 0) / (n - 1)
    found = np.stack(
        [
            (between - within) / (between + (per_item - 1) * within),
            1 - within * ((1 / size) @ w / n) / spread,
        ]
    )
    tiny = 1e-12 * max(float(np.nanmax(values**2)), np.finfo(float).tiny)
    found[:, (n < 2) | (between + within <= tiny)] = np.nan
    found[1, spread <= tiny] = np.nan
    return np.where(np.isfinite(found), found, np.nan)


def _two_way(patterns: Patterns, weights: Floats) -> Floats:
    """ICC(2,1), ICC(2,k), ICC(3,k) of complete rows; shape (3, replicates)."""
    complete = ~np.isnan(patterns.values).any(axis=1)
    values, w = patterns.values[complete], weights[complete]
    m = values.shape[1]
    if m < 2 or not len(values):
        return np.full((3, weights.shape[1]), np.nan)
    values = values - values.mean()  # so that sums of squares don't cancel
    n = w.sum(axis=0)
    column = values.T @ w / n
    grand = column.mean(axis=0)
    by_item = m * (values.mean(axis=1) ** 2 @ w - n * grand**2)
    by_rater = n * ((column - grand) ** 2).sum(axis=0)
    total = (values**2).sum(axis=1) @ w - n * m * grand**2
    tiny = 1e-12 * max(float((values**2).max()), np.finfo(float).tiny) * n
    items = by_item / (n - 1)
    raters = by_rater / (m - 1)
    error = np.maximum(total - by_item - by_rater, 0) / ((n - 1) * (m - 1))
    found = np.stack(
        [
            (items - error) / (items + (m - 1) * error + m * (raters - error) / n),
            (items - error) / (items + (raters - error) / n),
            (items - error) / items,
        ]
    )
    found[:, (n < 2) | (total <= tiny)] = np.nan
    found[2, by_item <= tiny] = np.nan
    return np.where(np.isfinite(found), found, np.nan)


def human_ceiling(
    ratings: Any,
    *,
    groups: Labels | None = None,
    scale: tuple[float, float] | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Correlate each rater with the mean of the others: what a judge as good as one more human would reach.

    Args:
        ratings, groups, scale, confidence, n_resamples, seed: see `agreement`.

    Returns:
        Rows pearson, spearman and kendall, each the plain mean over the raters; columns as `correlate`. For two raters
        it is the correlation between them. n counts items with two ratings or more. `attrs["raters"]` has each
        rater's own correlations. NaN, with a warning, where some rater's is undefined.

    A judge is commonly held to the mean of all raters, which is less noisy than the mean of all but one, so a judge may
    pass this ceiling without being better than a human; compare like with like.

    Source: the human upper bound as, for example, in VIEScore's `compute_spearman_correlation_by_item`
    (TIGER-AI-Lab/VIEScore, analyze_json.ipynb): each rater against the mean of the other two.

    >>> from vjudge.metrics import human_ceiling
    >>> human_ceiling([[1, 2], [2, 2], [4, 3], [5, 5]], n_resamples=0)["estimate"].round(3).to_dict()
    {'pearson': 0.904, 'spearman': 0.949, 'kendall': 0.913}
    """
    if isinstance(ratings, pd.DataFrame | pd.Series):
        same_index(ratings=ratings.index.to_series(), groups=groups)
    table = read_ratings(ratings, scale=scale)
    used = (~np.isnan(table)).sum(axis=1) >= 2
    patterns = Patterns.of(table[used])
    given = ~np.isnan(patterns.values)
    sums = np.nansum(patterns.values, axis=1)
    pairings = []
    for rater in range(table.shape[1]):
        rows = np.flatnonzero(given[:, rater])
        own = patterns.values[rows, rater]
        others = np.round((sums[rows] - own) / (given[rows].sum(axis=1) - 1), 12)  # equal means are ties
        pairs = Table.of(own, others)
        collect = sparse.csr_array((np.ones(len(rows)), (pairs.cell, rows)), shape=(len(pairs.counts), len(given)))
        pairings.append((pairs, collect))

    def each(weights: Floats) -> Floats:
        empty = np.full((3, weights.shape[1]), np.nan)
        return np.stack(
            [_bootstrap.correlations(t, c @ weights) if len(t.counts) else empty for t, c in pairings] or [empty]
        )

    result = tabulate(
        lambda weights: each(weights).mean(axis=0),
        _bootstrap.STATISTICS,
        design_of(patterns.cell, groups, used),
        n=int(used.sum()),
        missing=int((~used).sum()),
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
        method="fisher",
        why="some rater has too few shared items, or no variation",
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        own_values = each(np.bincount(patterns.cell)[:, None])[:, :, 0] if used.any() else np.full((1, 3), np.nan)
    names = list(ratings.columns) if isinstance(ratings, pd.DataFrame) else list(range(table.shape[1]))
    result.attrs["raters"] = {
        name: dict(zip(_bootstrap.STATISTICS, row.tolist(), strict=True))
        for name, row in zip(names, own_values, strict=False)
    }
    return result


def noise_corrected(
    judge: Scores,
    ratings: Any,
    *,
    raters: str = "same",
    groups: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Correct a judge's correlation with the mean human rating for the noise in that mean.

    Args:
        judge: n scores; NaN is missing.
        ratings: n items by m raters, see `agreement`.
        raters: "same" if a column is one rater throughout: only items that all raters rated are used, and the
            reliability is ICC(3,k), Cronbach's alpha, since a rater's own leniency moves every mean alike. "different"
            if each item had raters of its own, in any number: all items with a rating are used, and the reliability is
            1 less the share of the variance of the means that is raters' noise, ICC(1,k) where the numbers are equal.
        groups, confidence, n_resamples, seed: see `agreement`.

    Returns:
        Rows observed (Pearson with the mean rating), reliability (of the mean rating), ceiling (its square root: what a
        judge that knew the true score would reach against this mean), corrected (observed over ceiling); columns as
        `correlate`. Both reliability and correlation are drawn anew in every resample. corrected is not clipped: above
        1 it says, with a warning, that an assumption fails or that the sample is small. NaN where the reliability is
        not positive.

    It assumes that raters' errors are independent of each other, of the true score and of the judge's errors, and
    equal in size. Humans who share a bias with one another make the reliability too high and the correction too small;
    a judge that shares the humans' errors (it was tuned on them, say) gets a corrected value that is too high. The
    judge's own noise is not corrected for: it is the judge's. It holds for Pearson; no such formula holds for ranks.

    Source: Spearman, American Journal of Psychology 15 (1904), 72-101; Shrout and Fleiss (see `agreement`).
    """
    if raters not in ("same", "different"):
        raise ValueError(f'raters must be "same" or "different", not {raters!r}')
    if isinstance(ratings, pd.DataFrame | pd.Series):
        same_index(ratings=ratings.index.to_series(), judge=judge, groups=groups)
    table, score = read_ratings(ratings), scores(judge, name="judge")
    if len(score) != len(table):
        raise ValueError(f"judge has {len(score)} scores and ratings has {len(table)} items: give one score per item")
    lacking = np.isnan(table)
    used = ~(np.isnan(score) | (lacking.any(axis=1) if raters == "same" else lacking.all(axis=1))) & (
        table.shape[1] > 0
    )
    patterns = Patterns.of(np.column_stack([score, table])[used])
    humans = Patterns(patterns.values[:, 1:], patterns.codes[:, 1:], patterns.levels, patterns.cell)
    mean = np.asarray(np.round(np.nanmean(humans.values, axis=1), 12), dtype=float) if used.any() else np.empty(0)
    pairs = Table.of(patterns.values[:, 0], mean)
    collect = sparse.csr_array(
        (np.ones(len(mean)), (pairs.cell, np.arange(len(mean)))), shape=(len(pairs.counts), len(mean))
    )

    def statistic(weights: Floats) -> Floats:
        observed = _bootstrap.correlations(pairs, collect @ weights)[0]
        reliability = _two_way(humans, weights)[2] if raters == "same" else _one_way(humans, weights)[1]
        ceiling = np.sqrt(np.where(reliability > 0, reliability, np.nan))
        return np.stack([observed, reliability, ceiling, observed / ceiling])

    result = tabulate(
        statistic,
        ("observed", "reliability", "ceiling", "corrected"),
        design_of(patterns.cell, groups, used),
        n=int(used.sum()),
        missing=int((~used).sum()),
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
        method=["fisher", "fisher", "bca", "bca"],
        why="too few items with "
        + (
            'a rating of every rater (where items have raters of their own, pass raters="different")'
            if raters == "same"
            else "two ratings"
        )
        + ", one rater, no variation, or a reliability that is not positive",
    )
    if abs(result.loc["corrected", "estimate"]) > 1:
        warnings.warn("corrected lies beyond 1: an assumption fails, or the sample is small", stacklevel=2)
    return result
