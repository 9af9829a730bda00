"""The calibration curve and cross-fitted maps: hand-derived values, scikit-learn, statsmodels, and what is refused."""

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
        found = calibration_curve([1, 1, 1, 2, 2, 5, np.nan], [1, 2, 3, 2, 2, 4, 1])
    assert found[["judge", "human", "gap", "n"]].to_numpy().tolist() == [[1, 2, 1, 3], [2, 2, 0, 2], [5, 4, -1, 1]]
    theirs = stats.t.interval(0.95, 2, loc=2, scale=stats.sem([1, 2, 3]))
    assert found.loc[0, ["low", "high"]].tolist() == pytest.approx(theirs, abs=1e-10)
    assert found.loc[1:, ["low", "high"]].isna().all(axis=None) and found.attrs["missing"] == 1


def test_grouped_intervals_are_statsmodels_cluster_robust():
    import statsmodels.api as sm

    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(20), 5)
    human = rng.normal(size=20)[group] + rng.normal(size=100)
    found = calibration_curve(np.ones(100), human, groups=group).iloc[0]
    model = sm.OLS(human, np.ones(100)).fit(cov_type="cluster", cov_kwds={"groups": group, "use_correction": False})
    half = stats.t.ppf(0.975, 19) * model.bse[0] * np.sqrt(20 / 19)
    assert found["high"] - found["human"] == pytest.approx(half, abs=1e-10)


def test_isotonic_map_equals_scikit_learn_on_the_other_half():
    from sklearn.isotonic import IsotonicRegression

    judge, human = lenient(101)
    found = calibrate(judge, human, method="isotonic", seed=3)
    second = np.random.default_rng(3).permutation(101) >= 50
    for fit_on in (second, ~second):
        theirs = IsotonicRegression(out_of_bounds="clip").fit(judge[fit_on], human[fit_on])
        np.testing.assert_allclose(found[~fit_on], theirs.predict(judge[~fit_on]), atol=1e-10)


def test_calibration_removes_leniency_on_held_out_items():
    judge, human = lenient()
    found = calibration_errors(judge, human, groups=np.arange(300) // 3, n_resamples=300)
    raw = judge - human
    assert found.loc[("raw", "bias"), "estimate"] == pytest.approx(raw.mean())
    assert found.loc[("raw", "rmse"), "estimate"] == pytest.approx(np.sqrt((raw**2).mean()))
    assert found.loc[("raw", "exact"), "estimate"] == pytest.approx((raw == 0).mean())
    for method in ("shift", "isotonic"):
        assert abs(found.loc[(method, "bias"), "estimate"]) < 0.1
        assert found.loc[(method, "rmse"), "low_reduction"] > 0.1
        assert found.loc[(method, "exact"), "reduction"] == pytest.approx(
            found.loc[(method, "exact"), "estimate"] - found.loc[("raw", "exact"), "estimate"]
        )


def test_no_item_sees_its_own_label_or_its_groups():
    judge, human = lenient(60)
    group = np.arange(60) // 6
    before = calibrate(judge, human, groups=group)
    changed = human.copy()
    changed[group == 0] = 1
    after = calibrate(judge, changed, groups=group)
    pd.testing.assert_series_equal(before[group == 0], after[group == 0])
    assert (before != after).any()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: calibration_curve(["3"], [1]), TypeError, "position 0"),
        (lambda: calibration_curve([3], [1, 2]), ValueError, "judge has 1, human has 2"),
        (lambda: calibration_curve([3], [1], bins=0), ValueError, "bins"),
        (lambda: calibration_curve([3, 1], [1, 2], groups=["a", None]), ValueError, "position 1"),
        (lambda: calibrate([3], [1], method="platt"), ValueError, "method must be one of"),
        (lambda: calibration_errors([3], [1], methods=["platt"]), ValueError, "platt"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
