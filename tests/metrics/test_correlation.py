"""correlate, its levels and averages: hand-derived values, SciPy, Simpson's paradox, and what is refused."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vjudge.metrics import average_correlations, correlate, correlate_levels


def estimates(x, y, **options):
    return correlate(x, y, n_resamples=0, **options)["estimate"].tolist()


def test_values_derived_by_hand():
    # Deviations (-2 -1 0 1 2) and (-1 -2 1 0 2): 8 / 10. One swap costs d² = 2, two swaps 4: 1 - 6·4/120 = 0.8.
    # Two of ten pairs are discordant: (8 - 2) / 10.
    assert estimates([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx([0.8, 0.8, 0.6], abs=1e-15)
    # x 1 1 2 3, y 1 2 2 3: 4 concordant, none discordant, one tie in each: 4 / sqrt(5·5). Midranks 1.5 1.5 3 4 and
    # 1 2.5 2.5 4: covariance 3.75, variances 4.5. Pearson: 2 / sqrt(2.75 · 2) = 2.0 / 2.345.
    expected = [2 / np.sqrt(2.75 * 2), 3.75 / 4.5, 0.8]
    assert estimates([1, 1, 2, 3], [1, 2, 2, 3]) == pytest.approx(expected, abs=1e-15)


NUMBER = st.one_of(st.integers(-5, 5), st.floats(-1e3, 1e3).map(lambda value: round(value, 3)))


@given(st.lists(st.tuples(NUMBER, NUMBER), min_size=3, max_size=40))
def test_equals_scipy(pairs):
    x, y = np.array(pairs, dtype=float).T
    if len(set(x)) == 1 or len(set(y)) == 1:
        with pytest.warns(UserWarning, match="constant"):
            assert np.isnan(estimates(x, y)).all()
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        scipy = [stats.pearsonr(x, y)[0], stats.spearmanr(x, y)[0], stats.kendalltau(x, y)[0]]
    np.testing.assert_allclose(estimates(x, y), scipy, rtol=0, atol=1e-12)


def test_frame_and_its_account():
    rng = np.random.default_rng(0)
    gold = rng.integers(1, 6, size=120)
    score = np.where(rng.random(120) < 0.6, gold, rng.integers(1, 6, size=120)).astype(float)
    score[:7] = np.nan
    image = np.arange(120) // 4
    table = correlate(score, gold, groups=image, n_resamples=2000, seed=3)
    assert table.index.tolist() == ["pearson", "spearman", "kendall"]
    assert table.columns.tolist() == ["estimate", "low", "high", "n", "missing"]
    assert (table["n"] == 113).all() and (table["missing"] == 7).all()
    assert ((table["low"] < table["estimate"]) & (table["estimate"] < table["high"])).all()
    assert table.attrs["method"] == (
        "95% bootstrap intervals (Student's on Fisher's z scale), 2,000 resamples of 29 groups of 113 items, seed 3"
    )
    pd.testing.assert_frame_equal(table, correlate(score, gold, groups=image, n_resamples=2000, seed=3))
    assert table.attrs == json.loads(json.dumps(table.attrs))


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_is_left_out_and_counted(missing):
    table = correlate([1, 2, missing, 4, 5], [1, 3, 2, 4, missing], groups=[1, 2, None, 4, None], n_resamples=0)
    assert table["n"].tolist() == [3] * 3 and table["missing"].tolist() == [2] * 3
    assert table.loc["spearman", "estimate"] == 1


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([3, 3, 3, 3], [1, 2, 3, 4], "x constant"),
        ([3, 3, 3, 3], [1, 1, 1, 1], "x and y constant"),
        ([1, 2], [1, 2], "2 complete items"),
        ([np.nan] * 5, [1, 2, 3, 4, 5], "0 complete items"),
        ([0.1 + 0.2, 0.1 + 0.2, 0.1 + 0.2], [1, 2, 3], "x constant"),
    ],
)
def test_undefined_is_nan_with_a_warning(x, y, reason):
    with pytest.warns(UserWarning, match=reason) as caught:
        table = correlate(x, y)
    assert table[["estimate", "low", "high"]].isna().all(axis=None)
    assert {warning.filename for warning in caught} == {__file__}, "a warning names the caller's line"


@pytest.mark.parametrize(("n", "off", "warns"), [(60, 12, True), (60, 30, False), (400, 80, False), (20, 14, False)])
def test_strong_ceilings_are_named_by_their_items(n, off, warns):
    """A warning on every run, not only on those where resamples happen to be constant."""
    rng = np.random.default_rng(0)
    x, y = (np.where(rng.permutation(n) < off, rng.integers(1, 5, n), 5) for _ in range(2))
    y[:3] = x[:3] = [1, 5, 3]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = correlate(x, y, n_resamples=50)
    assert any("off the most frequent score" in str(w.message) for w in caught) == warns
    assert table.attrs["off_mode"] == {"x": n - np.bincount(x).max(), "y": n - np.bincount(y).max()}


def test_unstable_and_widthless_intervals_warn():
    with pytest.warns(UserWarning, match="undefined in .* of the resamples"):
        correlate([1, 1, 1, 2], [1, 2, 2, 3], n_resamples=500)
    with pytest.warns(UserWarning, match="no width"):
        correlate(range(30), range(30), n_resamples=200)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(x=[1, "4", 3]), TypeError, "x has values that are not numbers: position 1: '4'"),
        (dict(y=["a", 2, "b"]), TypeError, "position 0: 'a', position 2: 'b'"),
        (dict(x=np.ones((3, 2))), ValueError, "one dimension"),
        (dict(x="123"), TypeError, "one of each per item, not str"),
        (dict(x=[1, 2, np.inf]), ValueError, "position 2"),
        (dict(y=[1, 2]), ValueError, "x has 3, y has 2"),
        (dict(groups=["a", None, "b"]), ValueError, "position 1: None"),
        (dict(groups=["a", "b"]), ValueError, "x has 3, y has 3, groups has 2"),
        (dict(x=[1, 55, 3], scale=(1, 5)), ValueError, "x has scores off the scale 1 to 5: position 1: 55"),
        (dict(n_resamples=-1), ValueError, "negative"),
        (dict(n_resamples=1e4), ValueError, "whole number"),
        (dict(x=pd.Series([1, 2, 3]), y=pd.Series([1, 2, 3], index=[2, 1, 0])), ValueError, "different indexes"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        correlate(**{"x": [1, 2, 3], "y": [1, 2, 4], **arguments})


SCIPY = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


def data(systems=6, items=30, seed=0):
    rng = np.random.default_rng(seed)
    system = np.repeat([f"model {s}" for s in range(systems)], items)
    item = np.tile(np.arange(items), systems)
    skill = np.repeat(rng.normal(size=systems), items)
    gold = np.clip(np.round(3 + skill + rng.normal(size=len(system))), 1, 5)
    judge = np.clip(np.round(gold + 0.8 * rng.normal(size=len(system))), 1, 5)
    return pd.DataFrame({"system": system, "item": item, "judge": judge, "gold": gold})


def test_levels_and_averages_equal_scipy():
    rows = data()
    table = correlate_levels(rows.judge, rows.gold, systems=rows.system, groups=rows.item, n_resamples=200)
    averages = average_correlations(rows.judge, rows.gold, within=rows.system, n_resamples=0)["estimate"]
    means = rows.groupby("system")[["judge", "gold"]].mean()
    for name, function in SCIPY.items():
        within = [function(part.judge, part.gold)[0] for _, part in rows.groupby("system")]
        expected = [function(rows.judge, rows.gold)[0], function(means.judge, means.gold)[0], np.mean(within)]
        levels = [table.loc[(level, name), "estimate"] for level in ("item", "system", "within")]
        assert levels == pytest.approx(expected, abs=1e-10)
        expected = [np.mean(within), np.tanh(np.mean(np.arctanh(within))), expected[0]]
        assert averages.xs(name, level="statistic").tolist() == pytest.approx(expected, abs=1e-10)
    assert (table["low"] < table["estimate"]).all() and (table["estimate"] < table["high"]).all()
    assert "30 groups" in table.attrs["method"] and table.attrs["simpson"] == []
    assert table["n"].tolist() == [180] * 3 + [6] * 6


def test_simpsons_paradox_is_pointed_out():
    """Within each system the judge ranks perfectly, and it likes the weaker system better."""
    gold, judge = [1, 2, 3, 11, 12, 13], [11, 12, 13, 1, 2, 3]
    with pytest.warns(UserWarning, match="Simpson"):
        table = correlate_levels(judge, gold, systems=list("aaabbb"), n_resamples=0)
    assert table.loc[("within", "spearman"), "estimate"] == pytest.approx(1)
    assert table.attrs["simpson"] == ["pearson", "spearman", "kendall"]


@pytest.mark.parametrize("groups", [None, "item", "system"])
def test_the_same_numbers_have_one_interval(groups):
    rows = data()
    groups = None if groups is None else rows[groups]
    plain = correlate(rows.judge, rows.gold, groups=groups)
    item = correlate_levels(rows.judge, rows.gold, systems=rows.system, groups=groups).xs("item")
    pooled = average_correlations(rows.judge, rows.gold, within=rows.system, groups=groups, averages=["pooled"])
    pd.testing.assert_frame_equal(plain, item)
    pd.testing.assert_frame_equal(plain, pooled.xs("pooled"))


@pytest.mark.parametrize("items", [5, 12])
def test_width_of_the_mean_within_small_groups(items):
    """The spread of the mean over 120 samples of 30 groups; drawing items gave 1.3 times as much in groups of five."""
    means, errors = [], []
    for seed in range(120):
        rows = data(30, items, seed)
        rows["judge"] = np.clip(np.round(rows.gold + 1.2 * np.random.default_rng(seed).normal(size=len(rows))), 1, 5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # some groups of five are constant
            row = average_correlations(rows.judge, rows.gold, within=rows.system, averages=["mean"], n_resamples=100)
        low, high = np.arctanh(row[["low", "high"]].iloc[1])
        errors.append((high - low) / 2 / stats.t.ppf(0.975, 29))
        means.append(np.arctanh(row["estimate"].iloc[1]))
    assert np.mean(errors) / np.std(means) == pytest.approx(1, abs=0.19)


def test_groups_without_a_correlation_are_left_out_and_counted():
    rows = data(3, 20)
    rows.loc[rows.system == "model 1", "judge"] = 4.0
    with pytest.warns(UserWarning, match="1 of 3 groups"):
        table = average_correlations(rows.judge, rows.gold, within=rows.system, n_resamples=0)
    rest = [stats.pearsonr(p.judge, p.gold)[0] for name, p in rows.groupby("system") if name != "model 1"]
    assert table.loc[("mean", "pearson"), "estimate"] == pytest.approx(np.mean(rest), abs=1e-10)
    assert table.loc[("mean", "pearson"), ["n", "missing"]].tolist() == [2, 1]
