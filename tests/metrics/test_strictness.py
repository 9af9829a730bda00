"""Strictness is estimated where raters share items, equal to least squares with item effects, and nowhere else."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from vjudge.metrics.planning import _reliability_of_one
from vjudge.metrics.strictness import levelled

rng = np.random.default_rng(0)


def test_effects_are_those_of_least_squares_with_item_effects():
    wide = pd.DataFrame(rng.integers(1, 6, (30, 4)).astype(float)).mask(rng.random((30, 4)) < 0.4)
    long = wide.stack().rename_axis(["item", "rater"]).rename("score").reset_index()
    fit = smf.ols("score ~ 0 + C(item) + C(rater)", long).fit()
    found = (wide - levelled(wide).ratings).mean()
    expected = np.append(0.0, fit.params.filter(like="C(rater)"))
    assert found.to_numpy() == pytest.approx(expected - expected.mean(), abs=1e-8)
    # the pooled variance of a rating, over items with two ratings or more
    counts = wide.count(axis=1)
    error = levelled(wide).error
    pooled = (error * (counts - 1)).sum() / np.maximum(counts - 1, 0).sum()
    assert pooled == pytest.approx(fit.mse_resid)


def test_teams_on_different_items_keep_their_difference_and_its_noise():
    """Two raters a system, equally strict: the better system's mean stays, with one error variance."""
    quality = np.repeat([2.0, 4.0], 50)
    ratings = pd.DataFrame(quality[:, None] + rng.normal(0, 0.7, (100, 4)))
    ratings.iloc[:50, 2:] = np.nan
    ratings.iloc[50:, :2] = np.nan
    fit = levelled(ratings)
    means = fit.ratings.mean(axis=1).groupby(quality).mean()
    assert fit.teams == 2 and np.ptp(means) == pytest.approx(2, abs=0.3)
    assert fit.error.mean() == pytest.approx(0.49, abs=0.12)
    assert levelled(ratings.iloc[:, :1]).error.isna().all()  # of one rater nothing is known


def test_a_pilot_of_teams_is_as_reliable_as_its_raters():
    """Centred columns took the difference of the systems out: .23 where the truth is near .84."""
    quality = np.repeat([1.0, 5.0], 200) + rng.normal(0, 0.5, 400)
    ratings = pd.DataFrame(quality[:, None] + rng.normal(0, 0.9, (400, 4)))
    ratings.iloc[:200, 2:] = np.nan
    ratings.iloc[200:, :2] = np.nan
    assert _reliability_of_one(ratings) == pytest.approx(4.25 / (4.25 + 0.81), abs=0.05)
