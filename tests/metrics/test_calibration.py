"""The calibration curve and the cross-fitted map: hand-derived values, scikit-learn, statsmodels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge.metrics import calibrate, calibration_curve, calibration_errors


def lenient(n=300, seed=0):
    """A judge one point too lenient, noisy, on a 5-point scale."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    human = np.clip(np.round(3 + quality + 0.5 * rng.normal(size=n)), 1, 5)
    return np.clip(np.round(3.9 + 0.6 * quality + 0.5 * rng.normal(size=n)), 1, 5), human


def test_calibration_curve_by_hand():
    with pytest.warns(UserWarning, match="undefined in 2 of 3 bins"):
        table = calibration_curve([1, 1, 1, 2, 2, 5, np.nan], [1, 2, 3, 2, 2, 4, 1])
    assert table[["judge", "human", "gap", "n"]].to_numpy().tolist() == [[1, 2, 1, 3], [2, 2, 0, 2], [5, 4, -1, 1]]
    theirs = stats.t.interval(0.95, 2, loc=2, scale=stats.sem([1, 2, 3]))
    assert table.loc[0, ["low", "high"]].tolist() == pytest.approx(theirs, abs=1e-10)
    assert table.loc[1:, ["low", "high"]].isna().all(axis=None) and table.attrs["missing"] == 1
    with pytest.raises(ValueError, match="bins"):
        calibration_curve([3], [1], bins=0)


def test_grouped_intervals_are_statsmodels_cluster_robust():
    import statsmodels.api as sm

    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(20), 5)
    human = rng.normal(size=20)[group] + rng.normal(size=100)
    table = calibration_curve(np.ones(100), human, groups=group).iloc[0]
    model = sm.OLS(human, np.ones(100)).fit(cov_type="cluster", cov_kwds={"groups": group, "use_correction": False})
    half = stats.t.ppf(0.975, 19) * model.bse[0] * np.sqrt(20 / 19)
    assert table["high"] - table["human"] == pytest.approx(half, abs=1e-10)


def test_the_map_equals_scikit_learn_on_the_other_half():
    from sklearn.isotonic import IsotonicRegression

    judge, human = lenient(101)
    mapped = calibrate(judge, human, seed=3)
    second = np.random.default_rng(3).permutation(101) >= 50
    for fit_on in (second, ~second):
        theirs = IsotonicRegression(out_of_bounds="clip").fit(judge[fit_on], human[fit_on])
        np.testing.assert_allclose(mapped[~fit_on], theirs.predict(judge[~fit_on]), atol=1e-10)


def test_calibration_removes_leniency_on_held_out_items():
    judge, human = lenient()
    table = calibration_errors(judge, human, groups=np.arange(300) // 3, n_resamples=300)
    raw = judge - human
    expected = [raw.mean(), np.abs(raw).mean(), np.sqrt((raw**2).mean()), (raw == 0).mean()]
    assert table.loc["raw", "estimate"].tolist() == pytest.approx(expected)
    assert abs(table.loc[("isotonic", "bias"), "estimate"]) < 0.1 and table.loc[("reduction", "rmse"), "low"] > 0.1
    exact = table["estimate"].xs("exact", level="error")
    assert exact["reduction"] == pytest.approx(exact["isotonic"] - exact["raw"])


def test_no_item_sees_its_own_label_or_its_groups():
    judge, human = lenient(60)
    group = np.arange(60) // 6
    before = calibrate(judge, human, groups=group)
    after = calibrate(judge, np.where(group == 0, 1, human), groups=group)
    pd.testing.assert_series_equal(before[group == 0], after[group == 0])
    assert (before != after).any()
