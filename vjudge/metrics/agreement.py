"""How far raters agree: with one another, and each of them, and a judge, with the others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Floats, Groups, Integers, Ratings
from vjudge.metrics.caveats import add_caveats, merged_caveats
from vjudge.metrics.cells import distinct_rows, has_many_levels
from vjudge.metrics.coefficients import COEFFICIENTS, Tally, kappas_of_pairs
from vjudge.metrics.columns import check_columns, check_scale
from vjudge.metrics.groups import design_of, groups_from_ids
from vjudge.metrics.ratings import read_ratings
from vjudge.metrics.shares import shares
from vjudge.metrics.tables import tabulate

FINE_RESAMPLES = 1_000  # of scores with many levels
LOPSIDED = 0.75  # share of ratings in one category, from which alpha and kappa say little
NOMINAL = ("alpha_nominal", "cohen_kappa", "gwet_ac1")


def agreement(
    ratings: Ratings,
    *,
    level: Literal["scores", "nominal"] = "scores",
    scale: Sequence = (),
    groups: Groups = None,
    confidence: float = 0.95,
    **options: Any,
) -> pd.DataFrame:
    """Measure how far raters agree with one another, with bootstrap intervals.

    Args:
        ratings: n items by m raters: a frame (a column a rater), a 2-D array, or one list of
            ratings an item (lists may differ in length). NaN, None and blanks ("", "NA") are
            missing. Columns lowest and highest of a frame are the scale of each row, as in a run.
        level: "scores", or "nominal" for labels without an order, such as four-way votes.
        scale: all scores that could have been given, which Gwet's coefficients count; those that
            occur where it is empty, and then too few where the scale's end is rare.
        groups, confidence, options: n_resamples, seed, see `correlate`. Scores with more than
            100 levels take 1,000 resamples by default, since each is slow.

    Returns:
        Columns as `correlate`, over the items with two ratings or more. Rows: alpha_nominal,
        alpha_ordinal, alpha_interval (Krippendorff's); icc (ICC(1,1), one rating, one-way); icc_2k,
        icc_3k (ICC(2,k) and (3,k), the mean of all m raters, of absolute agreement and of
        consistency, over the items that all of them rated); cohen_kappa, quadratic_kappa (mean over
        pairs of raters who share items); gwet_ac1, gwet_ac2 (quadratic weights); exact, within_one
        (share of pairs of ratings of one item that are equal, or at most 1 apart). Of labels
        alpha_nominal, cohen_kappa, gwet_ac1 and exact. Kappa needs a column to be one rater; of
        various ones take alpha.

    Where nearly all ratings are one category, alpha and kappa are near 0 however often raters
    agree, and their 95 % intervals cover less (a binary with 10 % of one value, two raters, 30
    items: 88 %, gwet_ac1's 93 %; five levels with 75 % at the top, up to 200 items: 85 to 89 %):
    take gwet_ac1, or gwet_ac2 with `scale`, there. figures/validity_numbers.csv.

    The formulas are this project's own since krippendorff, pingouin and scikit-learn take one
    sample at a time, and the bootstrap thousands; tests hold them equal.

    Source: Krippendorff, Content Analysis (2004), chapter 11; Light, Psychological Bulletin 76
    (1971), for pairs; Gwet, British Journal of Mathematical and Statistical Psychology 61 (2008);
    Shrout and Fleiss, Psychological Bulletin 86 (1979).

    >>> table = agreement([[1, 2], [2, 2], [4, 3], [5, 5]], n_resamples=0)
    >>> table["estimate"][["exact", "within_one"]].tolist()
    [0.5, 1.0]

    ValueError: ratings outside of their scale, or without one, as a value head's scores are; or
    of so many levels that they share no scale.
    """
    if level not in ("scores", "nominal"):
        raise ValueError(f'level must be "scores" or "nominal", not {level!r}')
    nominal = level == "nominal"
    if len(scale) and nominal:
        raise ValueError("scale= is of scores; labels have none")
    groups, caveats = groups_from_ids(ratings, groups)
    check_columns(ratings=ratings, groups=groups)
    bounds: Any = (min(scale), max(scale)) if len(scale) else None
    if isinstance(ratings, pd.DataFrame) and {"lowest", "highest"} <= set(ratings):
        bounds = ratings[["lowest", "highest"]].to_numpy(dtype=float).T  # (2, n)
        ratings = ratings.drop(columns=["lowest", "highest"])
    table, _ = read_ratings(ratings, nominal=nominal)
    if bounds is not None and not nominal:
        check_scale("agreement", bounds, ratings=table.T)
    n_ratings = (~np.isnan(table)).sum(axis=1)  # of each item
    paired = n_ratings >= 2
    cells, cell = distinct_rows(table[paired])
    if has_many_levels(table):
        options.setdefault("n_resamples", FINE_RESAMPLES)
    names = list(NOMINAL if nominal else COEFFICIENTS)
    tally = Tally.of(cells, scale)
    coefficients = tabulate(
        lambda w: np.stack([COEFFICIENTS[name](tally, w) for name in names]),
        names,
        design_of(cell, groups, paired),
        method="fisher",
        reason="the ratings do not vary" if paired.any() else "no item has two ratings",
        confidence=confidence,
        **options,
    )
    complete = int((n_ratings == table.shape[1]).sum())
    of_means = coefficients.index.str.endswith("k")
    coefficients.loc[of_means, ["n", "missing"]] = complete, len(table) - complete
    # Shares of the pairs of ratings of one item, which depend on one another
    equal, close, pairs = _alike(table)
    units = groups
    if groups is None and pairs.max(initial=0) > 1:
        units = np.arange(len(table))
    rows = [("exact", equal, pairs)]
    if not nominal:
        rows.append(("within_one", close, pairs))
    pair_shares = shares(rows, groups=units, unit="items", confidence=confidence)
    result = pd.concat([coefficients, pair_shares])
    result.attrs = {
        "method": f"{coefficients.attrs['method']}; {pair_shares.attrs['method']}",
        "caveats": merged_caveats([coefficients, pair_shares]),
    }
    counts = np.bincount(cell, minlength=len(cells))
    add_caveats(result, [*caveats, *_limits(tally, counts, level, scale)])
    return result


def _limits(tally: Tally, counts: Integers, level: str, scale: Sequence) -> list[str]:
    """The known limits of agreement that apply to these ratings, in words."""
    limits = []
    of_level = counts @ tally.counts
    n = int(of_level.sum())
    if n and of_level.max() >= LOPSIDED * n:
        limits.append(
            f"{of_level.max() / n:.0%} of the ratings are of one category: alpha and kappa are low"
            " however often raters agree, and their intervals hold less than they say; take Gwet's"
        )
    kappas = kappas_of_pairs(tally, counts[:, None], quadratic=False)
    undefined = np.count_nonzero(np.isnan(kappas))
    if 0 < undefined < len(kappas):
        limits.append(
            f"kappa is undefined of {undefined} of {len(kappas)} pairs of raters, who both gave one"
            " category alone: the mean leaves them out"
        )
    levels = np.count_nonzero(of_level)
    if level == "scores" and not len(scale) and n >= 20 and levels > 0.8 * n:
        limits.append(
            f"{n} ratings have {levels} levels: those of a value head share no scale,"
            " and only correlate compares them; of others give scale="
        )
    return limits


def _alike(ratings: Floats) -> Floats:
    """Of each item the pairs of ratings that are equal, that are at most 1 apart, and all pairs."""
    counts = np.zeros((3, len(ratings)))
    for x, y in combinations(ratings.T, 2):
        gap = np.abs(x - y)
        counts += [gap == 0, gap <= 1 + 1e-9, ~np.isnan(gap)]
    return counts
