"""Take raters' strictness out of ratings, estimated from the items that raters share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd


class Levelled(NamedTuple):
    """Ratings without the raters' strictness, as `levelled` makes them.

    Attributes:
        ratings: items x raters, NaN where a rater gave none.
        error: the variance of one rating about its item's quality, per item; NaN for an item with
            fewer than two ratings.
        teams: the number of parts into which raters fall if raters of different parts share no
            item. A part that is strict can't be told from one whose items are bad.
    """

    ratings: pd.DataFrame
    error: pd.Series
    teams: int


def levelled(ratings: pd.DataFrame) -> Levelled:
    """Subtract each rater's effect from the ratings, by a two-way model without interaction.

    In the model a rating is the sum of an item's effect, a rater's effect and noise. Least squares
    estimates the effects jointly, so that a rater who saw better items does not appear mild. Within
    each part of raters who share items, the raters' effects sum to zero.

    Args:
        ratings: items x raters, NaN where a rater gave none.

    Returns:
        The ratings minus the raters' effects; per item the variance of a single rating, corrected
        for the estimated effects; and the number of parts, see `Levelled`.

    Source: the two-way model of incomplete block designs, Searle, Linear Models (1971), chapter 7.

    >>> teams = pd.DataFrame([[2, 3, None, None], [1, 2, None, None], [None, None, 5, 4]])
    >>> fit = levelled(teams)  # the first two raters differ by one, and so do the others
    >>> fit.ratings.mean(axis=1).tolist(), fit.teams
    ([2.5, 1.5, 4.5], 2)
    """
    is_rated = ratings.notna().to_numpy(float)  # (items, raters)
    counts = is_rated.sum(axis=1, keepdims=True)  # ratings of each item
    share = is_rated / np.maximum(counts, 1)  # diag(1 / counts) R, of the equations below
    deviation = ratings.sub(ratings.mean(axis=1), axis=0).fillna(0.0).to_numpy(float)

    # The normal equations of the raters' effects, from which the items' effects are eliminated,
    # with R = is_rated: (diag(R' 1) - R' diag(1 / counts) R) effects = sums of the deviations
    normal = np.diag(is_rated.sum(axis=0)) - is_rated.T @ share  # (raters, raters)
    # The constant of each part is free. The pseudoinverse takes the shortest solution: sum zero.
    effects = np.linalg.pinv(normal, hermitian=True) @ deviation.sum(axis=0)
    n_effects = int(np.linalg.matrix_rank(normal, hermitian=True))

    # The variances about the items' means have as many degrees of freedom as there are ratings
    # minus items. The raters' effects, which are estimated from the same ratings, use some of them.
    fitted = ratings - effects
    freedom = np.maximum(counts - 1, 0).sum()
    inflation = freedom / (freedom - n_effects) if freedom > n_effects else np.nan
    error = fitted.var(axis=1) * inflation
    # The rank is the number of raters minus that of their parts.
    n_raters = int(is_rated.any(axis=0).sum())
    return Levelled(fitted, error, n_raters - n_effects)
