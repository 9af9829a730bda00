"""Estimates against SciPy, statsmodels and brute force, and what they say where nothing can be estimated."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge.probes.outcome import coefficient, equal, judged, mean, share, slope


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_means_are_students_t_tests_of_single_rows_or_of_equal_groups(rng):
    values = rng.normal(0.3, 1, 60)
    expected = stats.ttest_1samp(values, 0)
    interval = expected.confidence_interval(0.95)
    effect = mean(values, range(60))
    assert effect == pytest.approx((values.mean(), interval.low, interval.high, expected.pvalue, 60, 60), abs=1e-10)
    effect, expected = mean(values, np.repeat(list("abcdefghijkl"), 5)), values.reshape(12, 5).mean(axis=1)
    assert (effect.p, effect.n, effect.groups) == pytest.approx((stats.ttest_1samp(expected, 0).pvalue, 60, 12))


def test_a_coefficient_is_the_least_squares_one_with_a_jackknife_over_groups(rng):
    groups = np.r_[rng.integers(0, 15, 77), [15, 15, 15]]
    x, gold = rng.normal(size=80), np.r_[rng.integers(1, 5, 77), [5, 5, 5]].astype(float)  # one group alone has a level
    y = 0.2 * x + gold + rng.normal(size=80)
    design = np.column_stack([x, equal(gold)])
    effect = coefficient(y, design, groups)
    fits = [np.linalg.lstsq(design[groups != g], y[groups != g], rcond=None)[0][0] for g in np.unique(groups)]
    error = np.sqrt((len(fits) - 1) / len(fits) * ((fits - np.mean(fits)) ** 2).sum())
    assert effect.effect == pytest.approx(np.linalg.lstsq(design, y, rcond=None)[0][0], abs=1e-10)
    assert effect.high - effect.low == pytest.approx(2 * error * stats.t.ppf(0.975, len(fits) - 1), abs=1e-10)


def test_single_rows_agree_with_statsmodels_hc3(rng):
    models = pytest.importorskip("statsmodels.api")
    x = np.column_stack([rng.normal(size=200), np.ones(200)])
    y = x[:, 0] * 0.1 + rng.normal(size=200) * (1 + np.abs(x[:, 0]))
    expected, effect = models.OLS(y, x).fit(cov_type="HC3", use_t=True), coefficient(y, x, range(200))
    assert effect.effect == pytest.approx(expected.params[0], abs=1e-10)
    assert (effect.high - effect.low) / 2 == pytest.approx(expected.bse[0] * stats.t.ppf(0.975, 199), rel=0.01)


def test_a_share_is_wilsons_and_keeps_a_width_where_all_agree(rng):
    effect = share(rng.permutation(np.arange(2000) < 300), range(2000))
    expected = stats.binomtest(300, 2000).proportion_ci(0.95, method="wilson")
    assert (effect.low, effect.high) == pytest.approx((expected.low, expected.high), abs=2e-4)
    none = share(np.zeros(40), np.repeat(np.arange(10), 4))
    assert none.effect == none.low == 0 and 0.2 < none.high < 0.4
    clustered = share(np.repeat([0, 1] * 5, 20), np.repeat(np.arange(10), 20))
    assert clustered.high - clustered.low > 0.5  # ten images, not 200 rows


@pytest.mark.parametrize("groups", [[], ["a", "a"]], ids=["nothing", "one group"])
@pytest.mark.parametrize("estimate", [mean, share])
def test_too_little_is_nan_with_a_warning(estimate, groups):
    with pytest.warns(UserWarning, match="undefined"):
        assert np.isnan(estimate(np.ones(len(groups)), groups).effect)


def test_what_does_not_vary_is_undefined_and_what_never_moves_has_p_of_one(rng):
    with pytest.warns(UserWarning, match="does not vary"):
        assert np.isnan(coefficient(rng.normal(size=9), np.ones((9, 2)), range(9)).p)
    still = mean(np.zeros(9), range(9))
    # None of nine moved: up to 1 - .025 ** (1 / 9) of all may move, by a score point each.
    assert still == pytest.approx((0, -(1 - 0.025 ** (1 / 9)), 1 - 0.025 ** (1 / 9), 1, 9, 9))
    assert mean(np.ones(9), range(9)).p == 2.0**-8  # all nine groups moved alike: the sign test
    flat = slope(np.zeros(40), np.tile([1.0, 2, 3, 4, 5], 8), range(40))
    assert flat.high == pytest.approx((1 - 0.025 ** (1 / 40)) * 1.2 / 2)  # the mean distance from 3 over the variance


def test_noise_in_what_is_held_equal_is_taken_out(rng):
    n = 40_000
    truth = rng.normal(0, 1, n)
    x, raters = truth + rng.normal(0, 1, n), truth[:, None] + rng.normal(0, 1, (n, 2))
    y, gold, error = truth + rng.normal(0, 0.5, n), raters.mean(axis=1), raters.var(axis=1, ddof=1) / 2
    design = np.column_stack([x, np.ones(n), gold])
    naive, corrected = coefficient(y, design, range(n)), coefficient(y, design, range(n), error=error)
    assert naive.low > 0.15 and corrected.low < 0 < corrected.high < 0.05
    with pytest.warns(UserWarning, match="nothing but noise"):
        assert np.isnan(coefficient(y[:50], design[:50], range(50), error=np.full(50, 9.0)).effect)


VERDICTS = [
    (("stay", 0.0, -0.1, 0.1, 0.2, 1.0), "stays"),
    (("stay", 0.1, 0.05, 0.15, 0.2, 0.0001), "stays"),  # shown, and too small to matter
    (("stay", 0.3, 0.1, 0.5, 0.2, 0.0001), "moves"),
    (("stay", 0.3, 0.01, 0.5, 0.2, 0.04), "can't say"),  # its own interval leaves out 0, Holm's p does not
    (("stay", 0.0, -0.3, 0.3, 0.2, 1.0), "can't say"),
    (("move", -0.9, -1.0, -0.8, 0.25, 0.0001), "moves"),
    (("move", -0.1, -0.2, 0.0, 0.25, 0.0001), "stays"),
    (("move", -0.3, -0.5, -0.1, 0.25, 0.4), "can't say"),
    (("stay", np.nan, np.nan, np.nan, 0.2, np.nan), "can't say"),
    ((None, 0.3, 0.1, 0.5, np.nan, np.nan), None),
]


def test_verdicts_follow_holms_p_and_the_stated_margin():
    frame = pd.DataFrame([line for line, _ in VERDICTS], columns=["must", "effect", "low", "high", "margin", "p"])
    table = judged(frame.astype({"must": object}).assign(unit="score points", moved=0.3))
    assert [None if verdict is None else str(verdict) for verdict in table["verdict"]] == [name for _, name in VERDICTS]
    assert table["reading"].tolist() == [
        *["stays; 30% of items moved"] * 2, "moves, though it must stay", *["can't say"] * 2, "moves, as it must",
        "stays, though it must move", "can't say", "undefined", "described",
    ]  # fmt: skip
    assert table["p_holm"].iloc[:4].tolist() == pytest.approx([1, 0.0008, 0.0008, 0.16])
