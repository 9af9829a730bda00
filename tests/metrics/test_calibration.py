"""Calibration, and few labels: by hand, by scikit-learn and statsmodels, by their formulas, and honest intervals."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge.metrics import (
    calibrate,
    calibration_curve,
    calibration_errors,
    correlate,
    label_weights,
    next_labels,
    prediction_powered_mean,
)
from vjudge.metrics.ppi import FIRST_LABELS


def test_formulas_of_ppi_and_ppi_plus_plus():
    rng = np.random.default_rng(0)
    quality, hidden = rng.normal(size=600), rng.permutation(600) >= 40
    y = np.clip(np.round(3 + quality + 0.7 * rng.normal(size=600)), 1, 5)
    judge = np.clip(np.round(3.6 + 0.9 * quality + 0.6 * rng.normal(size=600)), 1, 5)
    table = prediction_powered_mean(judge, np.where(hidden, np.nan, y))
    y, f, rest = y[~hidden], judge[~hidden], judge[hidden]
    n, m = len(y), len(rest)
    weight = np.cov(y, f)[0, 1] / ((1 + n / m) * judge.var(ddof=1))
    tuned = weight * rest.mean() + (y - weight * f).mean()
    expected = [y.mean(), rest.mean() + (y - f).mean(), tuned, judge.mean()]
    assert table["estimate"].tolist() == pytest.approx(expected, abs=1e-10)
    errors = [stats.sem(y), np.sqrt((y - f).var(ddof=1) / n + rest.var(ddof=1) / m)]
    half = (table["high"] - table["low"])[:2] / 2
    assert half.tolist() == pytest.approx(stats.t.ppf(0.975, n - 1) * np.array(errors), abs=1e-10)
    assert table.loc["ppi_tuned", "weight"] == pytest.approx(weight, abs=1e-10) and table.attrs["gain"] > 0.1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: prediction_powered_mean([1, 2], [1]), ValueError, "judge has 2, human has 1"),
        (lambda: prediction_powered_mean([1], [1], confidence=0), ValueError, "between 0 and 1"),
        (lambda: next_labels(list("abc"), [1, 2, 3], n=1), TypeError, "numbers"),
        (lambda: correlate([1, 2, 3], [1, 2, 2], weights=[1, 0, 2]), ValueError, "must be positive: position 1"),
        (lambda: correlate([1, 2, 3], [1, 2, 2], weights=[1, 1]), ValueError, "weights has 2, x has 3"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def population(rng, n=500, rho=0.7):
    """Simulated scores of a judge with few low ones, and what people would say."""
    z = rng.standard_normal(n)
    human = rho * z + np.sqrt(1 - rho**2) * rng.standard_normal(n)
    return np.digitize(z, [-1.9, -1.2, -0.3, 0.9]) + 1.0, np.digitize(human, [-1.2, -0.5, 0.2, 1]) + 1.0


def test_weights_undo_unequal_labelling():
    # Two strata of 100 and 4 items, four labels each: by hand, the labels of the large one count 25 times.
    x = np.array([1.0] * 100 + [2.0] * 4)
    y = np.full(104, np.nan)
    y[:4], y[100:] = [1, 1, 1, 3], [3, 3, 3, 1]
    r = np.corrcoef(x, [1.0] * 75 + [3.0] * 25 + [3.0] * 3 + [1.0])[0, 1]
    assert correlate(x, y, weights=label_weights(x, y)).loc["pearson", "estimate"] == pytest.approx(r, abs=1e-12)
    assert abs(correlate(x, y, n_resamples=0).loc["pearson", "estimate"] - r) > 0.2


def test_the_first_labels_go_to_every_stratum_and_no_item_twice():
    x, _ = population(np.random.default_rng(1))
    chosen = next_labels(x, np.full(500, np.nan), n=20, seed=3)
    assert chosen["position"].is_unique and (chosen["stratum"].value_counts() == FIRST_LABELS).all()
    assert (x[chosen["position"]] == chosen["judge"]).all()
    pd.testing.assert_frame_equal(chosen, next_labels(x, np.full(500, np.nan), n=20, seed=3))
    assert len(next_labels(x[:30], np.full(30, np.nan), n=99)) == 30


def test_chosen_labels_give_narrower_intervals_that_still_cover():
    """120 simulated reviews of 60 labels among 500: chosen ones against random order."""
    truth = np.corrcoef(*population(np.random.default_rng(99), n=1_000_000))[0, 1]
    rows = {"chosen": [], "random": []}
    for seed in range(120):
        rng = np.random.default_rng(seed)
        x, y = population(rng)
        drawn, chosen = np.full(500, np.nan), np.full(500, np.nan)
        order = rng.permutation(500)[:60]
        drawn[order] = y[order]
        while np.isfinite(chosen).sum() < 60:
            batch = next_labels(x, chosen, n=10, seed=10_000 + seed)["position"]
            chosen[batch] = y[batch]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rows["chosen"].append(correlate(x, chosen, weights=label_weights(x, chosen)).loc["pearson"])
        rows["random"].append(correlate(x, drawn, n_resamples=1_000, seed=seed).loc["pearson"])
    tables = {name: pd.DataFrame(lines) for name, lines in rows.items()}
    width = {name: (table["high"] - table["low"]).mean() for name, table in tables.items()}
    assert width["chosen"] < 0.9 * width["random"], "about .26 against .30: as good as 28 % fewer labels"
    for table in tables.values():  # at a true coverage of .95, 120 reviews show less than .89 once in 300 times
        assert (table["low"].le(truth) & table["high"].ge(truth)).mean() >= 0.89
    assert abs(tables["chosen"]["estimate"].mean() - truth) < 0.02


def test_labels_that_were_chosen_are_refused_unless_they_are_weighted():
    """Plain correlation of chosen labels is biased: .724 where the truth was .634 was seen, at a coverage of 82 %."""
    x, y = population(np.random.default_rng(5))
    human = pd.Series(np.nan, index=range(500))
    chosen = next_labels(x, human, n=60)["position"]
    human[chosen] = y[chosen]
    human.attrs["labelled_by"] = "next_best, by the score of tiny,"
    with pytest.raises(ValueError, match="y was labelled where next_best, by the score of tiny, chose.*weights="):
        correlate(x, human)
    with pytest.raises(ValueError, match="no random sample"):
        prediction_powered_mean(x, human)
    table = correlate(x, human, weights=label_weights(x, human))
    assert (table["low"] < table["estimate"]).all() and table["n"].eq(60).all()
    assert "stratified jackknife of 60 labels that stand for 500 items" in table.attrs["method"]
    grouped = correlate(x, human, weights=label_weights(x, human), groups=np.arange(500) // 5)
    assert grouped["estimate"].tolist() == pytest.approx(table["estimate"].tolist())
    assert (grouped["high"] - grouped["low"] > 0.7 * (table["high"] - table["low"])).all()


def test_strata_without_enough_labels_are_said():
    with pytest.warns(UserWarning, match="1 of 2 strata have no label"):
        assert label_weights([1] * 9 + [2] * 9, [3.0] * 9 + [np.nan] * 9).isna().all()
    with pytest.warns(UserWarning, match="single label"):
        table = correlate([1, 2, 3, 4], [1, 2, 2, 4], weights=[5, 2, 2, 2])
    assert table["estimate"].notna().all() and table["low"].isna().all()


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
