"""How far raters agree, and the human ceiling."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics.columns import Column, Groups, check_columns, check_scaled, design_of, scores
from vjudge.metrics.resampling import (
    STATISTICS,
    Floats,
    Weights,
    by_code,
    correlations,
    distinct,
    is_fine,
    summing,
)
from vjudge.metrics.tables import shares, tabulate
from vjudge.records import is_missing

FEWER_RESAMPLES = 1_000  # of scores with many levels
NOMINAL = ("alpha_nominal", "cohen_kappa", "gwet_ac1")
COEFFICIENTS = (
    "alpha_nominal",
    "alpha_ordinal",
    "alpha_interval",
    "icc",
    "cohen_kappa",
    "quadratic_kappa",
    "gwet_ac1",
    "gwet_ac2",
)


def agreement(
    ratings: Any,
    *,
    level: str = "scores",
    scale: Sequence = (),
    groups: Groups = None,
    confidence: float = 0.95,
    **options: Any,
) -> pd.DataFrame:
    """Measure how far raters agree with one another, with bootstrap intervals.

    Args:
        ratings: n items by m raters: a frame (a column a rater), a 2-D array, or one list of
            ratings an item (lists may differ in length). NaN and None are missing.
        level: "scores", or "nominal" for labels without an order, such as four-way votes.
        scale: all scores that could have been given, which Gwet's coefficients count; those that
            occur where it is empty, and then too few where the scale's end is rare.
        groups, confidence, options: n_resamples, seed, see `correlate`. Scores with more than
            100 levels take 1,000 resamples by default, since each is slow.

    Returns:
        Columns as `correlate`, over the items with two ratings or more. Rows: alpha_nominal,
        alpha_ordinal, alpha_interval (Krippendorff's); icc (ICC(1,1), one rating, one-way);
        cohen_kappa, quadratic_kappa (mean over pairs of raters who share items); gwet_ac1, gwet_ac2
        (quadratic weights); exact, within_one (share of pairs of ratings of one item that are
        equal, or at most 1 apart). Of labels alpha_nominal, cohen_kappa, gwet_ac1 and exact.
        Kappa needs a column to be one rater; of various ones take alpha.

    Where nearly all ratings are one category, alpha and kappa are near 0 however often raters
    agree, and their 95 % intervals cover less (a binary with 10 % of one value, two raters, 30
    items: 88 %, gwet_ac1's 93 %; five levels with 75 % at the top, up to 200 items: 85 to 89 %):
    take gwet_ac1, or gwet_ac2 with `scale`, there. figures/validity_numbers.csv.

    The formulas are this project's own since krippendorff and scikit-learn take one sample at a
    time, and the bootstrap thousands; tests hold them equal.

    Source: Krippendorff, Content Analysis (2004), chapter 11; Light, Psychological Bulletin 76
    (1971), for pairs; Gwet, British Journal of Mathematical and Statistical Psychology 61 (2008);
    Shrout and Fleiss, Psychological Bulletin 86 (1979).

    >>> table = agreement([[1, 2], [2, 2], [4, 3], [5, 5]], n_resamples=0)
    >>> table["estimate"][["exact", "within_one"]].tolist()
    [0.5, 1.0]

    ValueError: scores of a value head, which have no scale.
    """
    if len(scale) and level == "nominal":
        raise ValueError("scale= is of scores; labels have none")
    if level not in ("scores", "nominal"):
        raise ValueError(f'level must be "scores" or "nominal", not {level!r}')
    check_columns(ratings=ratings, groups=groups)
    check_scaled("agreement", ratings)
    table, _ = read_ratings(ratings, nominal=level == "nominal")
    paired = (~np.isnan(table)).sum(axis=1) >= 2
    cells, cell = distinct(table[paired])
    if is_fine(table):
        options.setdefault("n_resamples", FEWER_RESAMPLES)
    names = NOMINAL if level == "nominal" else COEFFICIENTS
    rows = list(map(COEFFICIENTS.index, names))

    def coefficients(weights: Weights) -> Floats:
        parts = [_alphas(cells, weights), _kappas(cells, weights), _gwets(cells, weights, scale)]
        return np.vstack(parts)[rows]

    result = tabulate(
        coefficients,
        names,
        design_of(cell, groups, paired),
        method="fisher",
        why="no item has two ratings, or there is no variation",
        confidence=confidence,
        **options,
    )
    # Shares of the pairs of ratings of one item
    equal, close, pairs = _alike(table)
    lines = [("exact", equal, pairs), ("within_one", close, pairs)]
    if level == "nominal":
        lines = lines[:1]
    close_ones = shares(
        lines,
        groups=groups,
        unit="items",
        confidence=confidence,
    )
    method = f"{result.attrs['method']}; {close_ones.attrs['method']}"
    result = pd.concat([result, close_ones])
    result.attrs["method"] = method
    return result


def read_ratings(ratings: Any, *, nominal: bool = False) -> tuple[Floats, list[Any]]:
    """Ratings (labels as numbers if nominal) as floats (n, m), NaN where missing, and raters."""
    frame = ratings
    if not isinstance(ratings, pd.DataFrame):
        rows = []
        for position, row in enumerate(ratings):
            if is_missing(row):
                row = []
            elif isinstance(row, str | bytes) or not hasattr(row, "__iter__"):
                raise TypeError(
                    f"ratings of item {position} are {row!r}: give a list of numbers, one for each"
                    " rater"
                )
            rows.append(list(row))
        frame = pd.DataFrame(rows, dtype=object)
    raters = list(frame)
    if not frame.columns.is_unique:
        twice = ", ".join(map(str, frame.columns[frame.columns.duplicated()]))
        raise ValueError(f"raters share a name: {twice}; give each column its own")
    if nominal:
        words = frame.map(label_text).to_numpy(dtype=object)
        codes = pd.factorize(words.ravel())[0].reshape(words.shape)
        return np.where(codes < 0, np.nan, codes), raters
    table = np.empty(frame.shape)
    for place, name in enumerate(raters):
        table[:, place] = scores(frame[name], name=f"rater {name}")
    return table, raters


def label_text(label: Any) -> str | None:
    """A label as text, None where it is missing; 1, 1.0 and NumPy's are one label.

    pandas turns whole numbers into floats where one is missing.

    >>> [label_text(label) for label in (1.0, "1.0", np.int64(1), 1.5, None)]
    ['1', '1', '1', '1.5', None]
    """
    if is_missing(label):
        return None
    if isinstance(label, float | np.floating) and label.is_integer():
        return str(int(label))
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", str(label).strip())


# Coefficients of distinct rows of ratings, shape (rows, raters), for weights (rows, replicates)


def _tally(ratings: Floats) -> tuple[Floats, Floats, Floats]:
    """The levels, how often each row has each of them, (rows, levels), and ratings of each row."""
    present = ~np.isnan(ratings)
    levels, code = np.unique(ratings[present], return_inverse=True)
    shape = (len(ratings), len(levels))
    tally = summing(np.nonzero(present)[0], code, shape).toarray()
    return levels, tally, tally.sum(axis=1)


def _alphas(ratings: Floats, weights: Weights) -> Floats:
    """Krippendorff's alpha, nominal, ordinal and interval, and ICC(1,1).

    Alpha is 1 - (n - 1) / n times the disagreement within items over the total.
    """
    levels, tally, size = _tally(ratings)
    counts = tally.T @ weights  # of each level, per replicate
    n = counts.sum(axis=0)
    scaled = weights * (size / np.maximum(size - 1, 1))[:, None]
    # Half the unequal ordered pairs of an item over its size: a sum of squares of categories.
    alike = (tally**2).sum(axis=1) / np.maximum(size, 1)
    unequal = (size - alike) / 2
    rank = np.cumsum(counts, axis=0) - counts / 2 - n / 2
    value = levels - (levels.mean() if len(levels) else 0.0)
    around = _within(tally, size, value[:, None])[:, 0]
    total = value**2 @ counts - (value @ counts) ** 2 / n
    of_labels = _alpha(
        unequal @ scaled,
        (n - (counts**2).sum(axis=0) / n) / 2,
        n,
    )
    by_rank = (_within(tally, size, rank) * scaled).sum(axis=0)
    ordinal = _alpha(by_rank, (counts * rank**2).sum(axis=0), n)
    interval = _alpha(around @ scaled, total, n)
    # ICC(1,1), with the mean size of an item for unequal ones
    items = weights.sum(axis=0)
    inner = around @ weights / (n - items)
    outer = (total - around @ weights) / (items - 1)
    raters = (n - size**2 @ weights / n) / (items - 1)
    icc = (outer - inner) / _positive(outer + (raters - 1) * inner)
    return np.stack([of_labels, ordinal, interval, icc])


def _alpha(inner: Any, total: Floats, n: Floats) -> Floats:
    return 1 - (n - 1) / n * inner / _positive(total)


def _within(tally: Floats, size: Floats, value: Floats) -> Floats:
    """Sum of squares around the mean of each item, from a value of each level and replicate."""
    return tally @ value**2 - (tally @ value) ** 2 / size[:, None]


def _positive(whole: Floats) -> Floats:
    """NaN where a denominator is nothing but rounding."""
    return np.where(whole > 1e-12 * np.nanmax(whole, initial=0), whole, np.nan)


def _kappas(ratings: Floats, weights: Weights) -> Floats:
    """Cohen's and quadratic kappa, mean over pairs of raters who share items."""
    kappas = []
    for x, y in combinations(ratings.T, 2):
        both = ~np.isnan(x + y)
        if not both.any():
            continue
        levels, code = np.unique([x[both], y[both]], return_inverse=True)
        own, other = code.reshape(2, -1)
        w = weights[both] / weights[both].sum(axis=0)
        margin = by_code(own, len(levels)) @ w
        other_margin = by_code(other, len(levels)) @ w
        gap = levels[:, None] - levels
        pair = []
        for apart in ((gap != 0).astype(float), gap**2):
            expected = (margin * (apart @ other_margin)).sum(axis=0)
            pair.append(1 - apart[own, other] @ w / _positive(expected))
        kappas.append(pair)
    if not kappas:
        return np.full((2, weights.shape[1]), np.nan)
    return np.mean(kappas, axis=0)


def _gwets(ratings: Floats, weights: Weights, scale: Sequence) -> Floats:
    """Gwet's AC1 and AC2, the latter with quadratic weights of the scale and what occurs."""
    levels, tally, size = _tally(ratings)
    absent = np.setdiff1d(np.asarray(scale, dtype=float), levels)
    levels = np.concatenate([levels, absent])
    tally = np.pad(tally, ((0, 0), (0, len(absent))))
    q = len(levels)
    share = weights / weights.sum(axis=0)
    prevalence = (tally / size[:, None]).T @ share
    spread = (prevalence * (1 - prevalence)).sum(axis=0)
    spread /= q * (q - 1)
    gap = (levels[:, None] - levels) / np.ptp(levels)
    result = []
    for alike in (np.eye(q), 1 - gap**2):
        pairs = (tally * (tally @ alike - 1)).sum(axis=1)
        agreeing = pairs / (size * (size - 1))
        chance = alike.sum() * spread
        result.append((agreeing @ share - chance) / (1 - chance))
    return np.stack(result)


def _alike(ratings: Floats) -> tuple[Floats, Floats, Floats]:
    """Of each item the pairs of ratings that are equal, that are at most 1 apart, and all pairs."""
    counts = np.zeros((3, len(ratings)))
    for x, y in combinations(ratings.T, 2):
        gap = np.abs(x - y)
        counts[0] += gap == 0
        counts[1] += gap <= 1 + 1e-9
        counts[2] += ~np.isnan(gap)
    return counts[0], counts[1], counts[2]


# --- Raters, ceiling and judges


def rater_table(
    ratings: Any,
    judges: Mapping[str, Column] | pd.DataFrame | None = None,
    *,
    groups: Groups = None,
    n_resamples: int = 2_000,
    **options: Any,
) -> pd.DataFrame:
    """Correlate each rater, and each judge, with the mean of the other raters.

    Args:
        ratings, groups: see `agreement`; a frame's columns name the raters.
        judges: scores of the items by judge; NaN where missing. None: people alone.
        n_resamples, options: confidence and seed, see `correlate`.

    Returns:
        Columns as `correlate`, index (who, against, statistic): each rater against "the others",
        their mean; "ceiling", the mean of these; each judge against "all but one": the mean over
        raters of its correlation with the mean of the others, on that rater's items, which is the
        one to hold beside the ceiling.

    Source: Calderon, Reichart and Dror, "The Alternative Annotator Test" (arXiv 2501.10970),
    section 3.

    >>> people = pd.DataFrame({"ann": [1, 2, 4, 5], "bob": [2, 2, 3, 5], "eve": [1, 3, 4, 4]})
    >>> table = rater_table(people, {"tiny": [1, 2, 3, 5]}, n_resamples=0)["estimate"]
    >>> float(table["tiny", "all but one", "pearson"].round(2))
    0.97
    """
    by_name = {} if judges is None else dict(judges)
    check_columns(ratings=ratings, groups=groups, **by_name)
    table, raters = read_ratings(ratings)
    columns = [scores(column, name=str(name)) for name, column in by_name.items()]
    used = (~np.isnan(table)).sum(axis=1) >= 2
    cells, cell = distinct(np.column_stack([table, *columns])[used])
    design = design_of(cell, groups, used)
    pairs = _pairs(cells, raters, list(by_name))
    # How many items count in a row
    n = []
    for own in pairs.values():
        counted = np.any([~np.isnan(x + y) for x, y in own], axis=0)
        n.append(design.counts[counted].sum())
    of_each = np.repeat(n, len(STATISTICS))
    return tabulate(
        lambda w: np.concatenate([_mean_correlation(own, w) for own in pairs.values()]),
        [(*row, name) for row in pairs for name in STATISTICS],
        design,
        n=of_each,
        missing=len(table) - of_each,
        method="fisher",
        index=["who", "against", "statistic"],
        why="some rater has too few shared items, or no variation",
        n_resamples=n_resamples,
        **options,
    )


def _pairs(
    cells: Floats,
    raters: list[Any],
    judges: list[Any],
) -> dict[tuple[Any, str], list[tuple[Floats, Floats]]]:
    """Of each row of the table the pairs of columns whose mean correlation it is."""
    people, of_judges = np.split(cells.T, [len(raters)])
    rows = {}
    ceiling = []
    for place, name in enumerate(raters):
        others = pd.DataFrame(np.delete(people, place, axis=0)).mean()
        pair = (people[place], others.to_numpy().round(12))  # so that equal means are ties
        rows[name, "the others"] = [pair]
        ceiling.append(pair)
    rows["ceiling", "the others"] = ceiling
    for judge, column in zip(judges, of_judges, strict=True):
        rows[judge, "all but one"] = []
        for own, rest in ceiling:
            on_own_items = np.where(np.isnan(own), np.nan, column)
            rows[judge, "all but one"].append((on_own_items, rest))
    return rows


def _mean_correlation(pairs: list[tuple[Floats, Floats]], weights: Weights) -> Floats:
    """Mean correlations of pairs of columns, each over the rows that have both."""
    each = []
    for x, y in pairs:
        both = ~np.isnan(x + y)
        each.append(correlations(x[both], y[both], weights[both]))
    return np.mean(each, axis=0)


def human_ceiling(
    ratings: Any,
    *,
    groups: Groups = None,
    n_resamples: int = 10_000,
    **options: Any,
) -> pd.DataFrame:
    """Correlate each rater with the mean of the others: what one more person would reach.

    Takes and returns what `correlate` does, for ratings as in `agreement`; each row is the plain
    mean over the raters.

    Source: VIEScore's `compute_spearman_correlation_by_item` (TIGER-AI-Lab/VIEScore,
    analyze_json.ipynb).

    >>> table = human_ceiling([[1, 2], [2, 2], [4, 3], [5, 5]], n_resamples=0)
    >>> table["estimate"].round(3).to_dict()
    {'pearson': 0.904, 'spearman': 0.949, 'kendall': 0.913}
    """
    table = rater_table(
        ratings,
        groups=groups,
        n_resamples=n_resamples,
        **options,
    )
    return table.iloc[-len(STATISTICS) :].droplevel(["who", "against"])
