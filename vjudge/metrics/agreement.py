"""How far raters agree with one another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Floats, Groups, Integers, Ratings, Weights
from vjudge.metrics.caveats import add_caveats, merged_caveats
from vjudge.metrics.cells import distinct_rows, has_many_levels
from vjudge.metrics.coefficients import COEFFICIENTS, Tally, kappas_of_pairs
from vjudge.metrics.columns import check_columns, check_scale
from vjudge.metrics.groups import design_of, groups_from_ids
from vjudge.metrics.ratings import read_ratings
from vjudge.metrics.shares import shares
from vjudge.metrics.tables import tabulate

FINE_RESAMPLES = 1_000  # bootstrap samples of scores with many levels, each of which is slow
LOPSIDED = 0.75  # share of ratings in one category, from which alpha and kappa say little
# If there are more levels than this share of the ratings, which are at least so many, a caveat says
# that they may have no common scale.
CONTINUOUS = 0.8
MIN_CONTINUOUS = 20
# The coefficients of labels, which have no order
NOMINAL = ("alpha_nominal", "cohen_kappa", "gwet_ac1")


def agreement(
    ratings: Ratings,
    *,
    level: Literal["scores", "nominal"] = "scores",
    scale: Sequence[float] = (),
    groups: Groups = None,
    confidence: float = 0.95,
    **options: Any,
) -> pd.DataFrame:
    """Measure how far raters agree with one another, with bootstrap intervals.

    Args:
        ratings: n items by m raters: a frame (one column per rater), a 2-D array, or one list of
            ratings per item (lists may differ in length). NaN, None and blanks ("", "NA") are
            missing. Columns lowest and highest of a frame are the scale of each row, as in a run.
        level: "scores", or "nominal" for labels without an order, such as four-way votes.
        scale: all scores that could have been given, which Gwet's coefficients count. If empty, the
            scores that occur are counted: too few where the scale's end is rare.
        groups, confidence: see `correlate`.
        options: n_resamples and seed, see `correlate`. Scores with more than 100 levels take 1,000
            resamples by default, since each is slow.

    Returns:
        Columns as `correlate`, over the items with two ratings or more. Rows:
        - alpha_nominal, alpha_ordinal, alpha_interval: Krippendorff's alpha.
        - icc: ICC(1,1), of a single rating, one-way.
        - icc_2k, icc_3k: ICC(2,k) and (3,k), of the mean of all m raters, of absolute agreement and
          of consistency, over the items that all of them rated.
        - cohen_kappa, quadratic_kappa: the mean over pairs of raters who share items. Kappa needs
          each column to be one rater; where a column mixes raters, take alpha.
        - gwet_ac1, gwet_ac2: Gwet's coefficients, gwet_ac2 with quadratic weights.
        - exact, within_one: the share of pairs of ratings of one item that are equal, or at most 1
          apart.
        Labels have alpha_nominal, cohen_kappa, gwet_ac1 and exact.

    Where nearly all ratings are of one category, alpha and kappa are near 0 however often raters
    agree, and their 95 % intervals hold the true value less often. For a binary rating with 10 % of
    one value, two raters and 30 items those intervals held it in 88 % of the simulated samples,
    gwet_ac1's in 93 %; for five levels with 75 % at the top and up to 200 items, in 85 to 89 %. For
    such ratings take gwet_ac1, or gwet_ac2 with `scale`. Source: figures/validity_numbers.csv.

    `coefficients.py` has formulas of its own because krippendorff, pingouin and scikit-learn take
    one sample at a time, and the bootstrap thousands; tests compare the results with theirs.

    Raises:
        ValueError: the level is unknown; labels have a scale; a rating lies outside its scale or
            has none (as a value head's scores); or there are too many different rows and levels of
            ratings for a table of both.

    Source: Krippendorff, Content Analysis (2004), chapter 11; Light, Psychological Bulletin 76
    (1971), for pairs; Gwet, British Journal of Mathematical and Statistical Psychology 61 (2008);
    Shrout and Fleiss, Psychological Bulletin 86 (1979).

    >>> table = agreement([[1, 2], [2, 2], [4, 3], [5, 5]], n_resamples=0)
    >>> table["estimate"][["exact", "within_one"]].tolist()
    [0.5, 1.0]
    """
    if level not in ("scores", "nominal"):
        raise ValueError(f'level must be "scores" or "nominal", not {level!r}')
    is_nominal = level == "nominal"
    if len(scale) and is_nominal:
        raise ValueError("scale= is of scores; labels have none")
    groups, caveats = groups_from_ids(ratings, groups)
    check_columns(ratings=ratings, groups=groups)
    table = _read_on_scale(ratings, scale, is_nominal)  # (items, raters)
    used = (~np.isnan(table)).sum(axis=1) >= 2
    if has_many_levels(table):
        options.setdefault("n_resamples", FINE_RESAMPLES)

    # 1) Coefficients, from distinct rows of ratings and how often each occurs
    cells, cell = distinct_rows(table[used])
    tally = Tally.of(cells, scale)
    names = list(NOMINAL if is_nominal else COEFFICIENTS)

    def coefficients(weights: Weights) -> Floats:
        return np.stack([COEFFICIENTS[name](tally, weights) for name in names])

    result = tabulate(
        coefficients,
        names,
        design_of(cell, groups, used),
        method="fisher",
        reason="the ratings do not vary" if used.any() else "no item has two ratings",
        confidence=confidence,
        **options,
    )
    # icc_2k and icc_3k, whose names end in "k", use only the items that all raters rated.
    n_complete = int((~np.isnan(table)).all(axis=1).sum())
    is_mean = result.index.str.endswith("k")
    result.loc[is_mean, ["n", "missing"]] = n_complete, len(table) - n_complete

    # 2) Shares of pairs of ratings, and caveats
    pair_shares = _pair_shares(table, groups, confidence, is_nominal)
    merged = pd.concat([result, pair_shares])
    merged.attrs = {
        "method": f"{result.attrs['method']}; {pair_shares.attrs['method']}",
        "caveats": merged_caveats([result, pair_shares]),
    }
    counts = np.bincount(cell, minlength=len(cells))
    caveats += _lopsided_caveats(tally, counts)
    if not is_nominal and not len(scale):
        caveats += _continuous_caveats(table[used])
    add_caveats(merged, caveats)
    return merged


def _read_on_scale(ratings: Ratings, scale: Sequence[float], is_nominal: bool) -> Floats:
    """Read ratings, shape (items, raters), and check that scores lie on their scale.

    The scale of each row is in the columns lowest and highest of a frame; without them, `scale` is
    that of all rows. Labels, and scores without any scale, are not checked.

    Raises:
        ValueError: a score lies outside its scale, or its bounds are NaN.
    """
    bounds: Any = (min(scale), max(scale)) if len(scale) else None
    if isinstance(ratings, pd.DataFrame) and {"lowest", "highest"} <= set(ratings):
        bounds = ratings[["lowest", "highest"]].to_numpy(dtype=float).T  # (2, items)
        ratings = ratings.drop(columns=["lowest", "highest"])
    table, _ = read_ratings(ratings, nominal=is_nominal)
    if bounds is not None and not is_nominal:
        # Bounds per row belong to the last axis of the scores: (raters, items)
        check_scale("agreement", bounds, ratings=table.T)
    return table


def _pair_shares(
    ratings: Floats, groups: Groups, confidence: float, is_nominal: bool
) -> pd.DataFrame:
    """Estimate the shares of pairs of ratings of one item that are equal, or at most 1 apart.

    Args:
        ratings: shape (items, raters), NaN where missing.
        is_nominal: whether ratings are labels, of which only equal pairs are counted.

    Returns:
        Rows exact and, of scores, within_one; columns as `shares`.
    """
    # How many pairs of each item are equal, are at most 1 apart, and have both ratings: (items,)
    n_equal, n_close, n_pairs = np.zeros((3, len(ratings)))
    for x, y in combinations(ratings.T, 2):
        gap = np.abs(x - y)  # NaN, which is in no comparison, where a rating is missing
        n_equal += gap == 0
        n_close += gap <= 1 + 1e-9  # with slack for rounding
        n_pairs += ~np.isnan(gap)
    # Several pairs of one item depend on one another: the item is their group.
    if groups is None and n_pairs.max(initial=0) > 1:
        groups = np.arange(len(ratings))
    rows = [("exact", n_equal, n_pairs)]
    if not is_nominal:
        rows.append(("within_one", n_close, n_pairs))
    return shares(rows, groups=groups, unit="items", confidence=confidence)


def _lopsided_caveats(tally: Tally, counts: Integers) -> list[str]:
    """Return caveats if most ratings are of one category, or kappa is undefined for some pairs.

    Args:
        tally: the distinct rows of ratings.
        counts: how often each of them occurs, shape (rows,).
    """
    caveats = []
    level_counts = counts @ tally.counts
    n = int(level_counts.sum())
    if n and level_counts.max() >= LOPSIDED * n:
        caveats.append(
            f"{level_counts.max() / n:.0%} of the ratings are of one category: alpha and kappa are"
            " low however often raters agree, and their intervals hold less than they say; take"
            " Gwet's"
        )
    kappas = kappas_of_pairs(tally, counts[:, None], quadratic=False)
    n_undefined = np.count_nonzero(np.isnan(kappas))
    if 0 < n_undefined < len(kappas):
        caveats.append(
            f"kappa is undefined of {n_undefined} of {len(kappas)} pairs of raters, who both gave"
            " one category alone: the mean leaves them out"
        )
    return caveats


def _continuous_caveats(ratings: Floats) -> list[str]:
    """Return a caveat if there are nearly as many levels as ratings; else an empty list.

    Args:
        ratings: shape (items, raters), NaN where missing.
    """
    present = ratings[~np.isnan(ratings)]
    n_levels = len(np.unique(present))
    if len(present) < MIN_CONTINUOUS or n_levels <= CONTINUOUS * len(present):
        return []
    return [
        f"{len(present)} ratings have {n_levels} levels. If they are scores of value heads, which"
        " have no common scale, compare them by correlate alone; if they have one, name scale="
    ]
