"""Estimates against SciPy, statsmodels and brute force, and what they say where nothing can be estimated."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge.probes.estimates import coefficient, equal, log_odds, mean, rank_correlation, share


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_mean_of_single_rows_is_students_t_test(rng):
    values = rng.normal(0.3, 1, 40)
    found, wanted = mean(values, range(40)), stats.ttest_1samp(values, 0)
    interval = wanted.confidence_interval(0.95)
    assert found == pytest.approx((values.mean(), interval.low, interval.high, wanted.pvalue, 40, 40), abs=1e-10)


def test_a_mean_of_equal_groups_is_the_t_test_of_their_means(rng):
    values, groups = rng.normal(0.3, 1, 60), np.repeat(np.arange(12), 5)
    found, wanted = mean(values, groups), stats.ttest_1samp(values.reshape(12, 5).mean(axis=1), 0)
    assert (found.p, found.n, found.groups) == pytest.approx((wanted.pvalue, 60, 12), abs=1e-10)


def test_a_coefficient_is_the_least_squares_one_with_a_jackknife_over_groups(rng):
    groups = rng.integers(0, 15, 80)
    x, gold = rng.normal(size=80), rng.integers(1, 6, 80).astype(float)
    y = 0.2 * x + gold + rng.normal(size=80)
    design = np.column_stack([x, equal(gold)])
    found = coefficient(y, design, groups)
    left_out = np.array(
        [np.linalg.lstsq(design[groups != g], y[groups != g], rcond=None)[0][0] for g in np.unique(groups)]
    )
    error = np.sqrt((len(left_out) - 1) / len(left_out) * ((left_out - left_out.mean()) ** 2).sum())
    assert found.effect == pytest.approx(np.linalg.lstsq(design, y, rcond=None)[0][0], abs=1e-10)
    assert found.high - found.low == pytest.approx(2 * error * stats.t.ppf(0.975, len(left_out) - 1), abs=1e-10)


def test_a_level_that_one_group_alone_has_is_no_trouble(rng):
    gold = np.r_[rng.integers(1, 4, 57), [5, 5, 5]].astype(float)
    groups = np.repeat(np.arange(20), 3)
    found = coefficient(rng.normal(size=60), np.column_stack([rng.normal(size=60), equal(gold)]), groups)
    assert np.isfinite(found[:4]).all() and found.low < found.effect < found.high


def test_single_rows_agree_with_statsmodels_hc3(rng):
    models = pytest.importorskip("statsmodels.api")
    x = np.column_stack([rng.normal(size=200), np.ones(200)])
    y = x[:, 0] * 0.1 + rng.normal(size=200) * (1 + np.abs(x[:, 0]))
    wanted = models.OLS(y, x).fit(cov_type="HC3", use_t=True)
    found = coefficient(y, x, range(200))
    assert found.effect == pytest.approx(wanted.params[0], abs=1e-10)
    assert (found.high - found.low) / 2 == pytest.approx(wanted.bse[0] * stats.t.ppf(0.975, 199), rel=0.01)


def test_log_odds_are_those_of_statsmodels(rng):
    models = pytest.importorskip("statsmodels.api")
    x = np.column_stack([rng.normal(size=300), np.ones(300)])
    y = (rng.random(300) < 1 / (1 + np.exp(-0.5 * x[:, 0]))) * 1.0
    wanted = models.GLM(y, x, family=models.families.Binomial()).fit(cov_type="HC0")
    found, beta = log_odds(y, x, range(300))
    assert beta == pytest.approx(wanted.params, abs=1e-8)
    assert (found.high - found.low) / 2 == pytest.approx(wanted.bse[0] * stats.t.ppf(0.975, 299), rel=0.03)


def test_a_rank_correlation_with_nothing_held_is_spearmans(rng):
    x = rng.normal(size=50)
    y = x + rng.normal(size=50)
    found = rank_correlation(x, y, np.ones((50, 1)), range(50))
    assert found.effect == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-10)
    assert found.low < found.effect < found.high and found.p < 0.01


def test_a_share_is_wilsons_and_keeps_a_width_where_all_agree(rng):
    flags = np.arange(2000) < 300
    found = share(rng.permutation(flags), range(2000))
    wanted = stats.binomtest(300, 2000).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=2e-4)
    none = share(np.zeros(40), np.repeat(np.arange(10), 4))
    assert none.effect == none.low == 0 and 0.2 < none.high < 0.4
    clustered = share(np.repeat([0, 1] * 5, 20), np.repeat(np.arange(10), 20))
    assert clustered.high - clustered.low > 0.5  # ten images, not 200 rows


def test_many_levels_of_gold_are_held_equal_by_classes(rng):
    gold = rng.uniform(1, 5, 400)
    x = gold + rng.normal(0, 0.5, 400)
    found = coefficient(gold + rng.normal(0, 0.1, 400), np.column_stack([x, equal(gold)]), range(400))
    assert abs(found.effect) < 0.05 and equal(gold).shape == (400, 11)


@pytest.mark.parametrize(
    ("values", "groups"),
    [([], []), ([1.0], ["a"]), ([1.0, 2.0], ["a", "a"])],
    ids=["nothing", "one row", "one group"],
)
def test_too_little_is_nan_with_a_warning(values, groups):
    with pytest.warns(UserWarning, match="undefined"):
        assert np.isnan(mean(np.array(values), groups).effect)
    with pytest.warns(UserWarning, match="undefined"):
        assert np.isnan(share(np.array(values), groups).effect)


def test_what_does_not_vary_is_undefined_and_what_never_moves_has_p_of_one(rng):
    with pytest.warns(UserWarning, match="does not vary"):
        assert np.isnan(coefficient(rng.normal(size=9), np.ones((9, 2)), range(9)).p)
    assert mean(np.zeros(9), range(9)) == (0, 0, 0, 1, 9, 9)
    assert mean(np.ones(9), range(9)).p == 2.0**-8  # all nine groups moved alike: the sign test
    with pytest.warns(UserWarning, match="undefined"):
        x = np.column_stack([np.arange(20) - 9.5, np.ones(20)])
        assert np.isnan(log_odds((x[:, 0] > 0) * 1.0, x, range(20))[0].effect)  # separated


def test_labels_may_be_anything():
    values = np.array([0.1, 0.5, -0.2, 0.4])
    assert mean(values, pd.Series(["b", "a", "b", "c"])) == mean(values, [7, 3, 7, 1])
