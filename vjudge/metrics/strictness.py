"""How strict raters are, told from the quality of what they rated: only where they share items."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd


class Levelled(NamedTuple):
    """Ratings without the raters' strictness, as `levelled` makes them.

    Attributes:
        ratings: items x raters, NaN where a rater gave none.
        error: the variance of one rating about its item's quality; NaN where no item has two.
        teams: how many parts of the raters share no item with one another: whether one part is
            stricter than another can't be told from the quality of their items.
    """

    ratings: pd.DataFrame
    error: pd.Series
    teams: int


def levelled(ratings: pd.DataFrame) -> Levelled:
    """Take each rater's strictness out of the ratings.

    Ratings are item + rater + noise. The raters' effects are the least-squares ones beside an
    effect of each item, so that a rater who saw better items is not called mild; within each part
    of connected raters they sum to zero.

    Args:
        ratings: items x raters, NaN where a rater gave none.

    Returns:
        The ratings less the raters' effects, and the variance of a single rating on each item that
        has two, corrected for the estimated effects.

    Source: the two-way model of incomplete block designs, Searle, Linear Models (1971), chapter 7.

    >>> teams = pd.DataFrame([[2, 3, None, None], [1, 2, None, None], [None, None, 5, 4]])
    >>> fit = levelled(teams)  # the first two raters differ by one, and so do the others
    >>> fit.ratings.mean(axis=1).tolist(), fit.teams
    ([2.5, 1.5, 4.5], 2)
    """
    rated = ratings.notna().to_numpy(float)  # (items, raters)
    counts = rated.sum(axis=1, keepdims=True)
    share = rated / np.maximum(counts, 1)
    deviation = ratings.sub(ratings.mean(axis=1), axis=0).fillna(0.0).to_numpy(float)

    # normal equations of the raters' effects, with the items' effects eliminated
    square = np.diag(rated.sum(axis=0)) - rated.T @ share  # (raters, raters)
    effects = np.linalg.pinv(square, hermitian=True) @ deviation.sum(axis=0)
    n_effects = int(np.linalg.matrix_rank(square, hermitian=True))
    present = rated.any(axis=0)

    # the variance about an item's mean, as if its ratings were not used for the effects too
    fitted = ratings - effects
    freedom = np.maximum(counts - 1, 0).sum()
    inflation = freedom / (freedom - n_effects) if freedom > n_effects else np.nan
    error = fitted.var(axis=1) * inflation
    return Levelled(fitted, error, int(present.sum()) - n_effects)
