"""Levels and averages of correlations: SciPy, hand-derived averages, Simpson's paradox, and what is refused."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vjudge.metrics import average_correlations, correlate, correlate_levels
from vjudge.metrics._bootstrap import BLOCK_BYTES


def data(systems=6, items=30, seed=0):
    rng = np.random.default_rng(seed)
    system = np.repeat([f"model {s}" for s in range(systems)], items)
    item = np.tile(np.arange(items), systems)
    skill = np.repeat(rng.normal(size=systems), items)
    gold = np.clip(np.round(3 + skill + rng.normal(size=len(system))), 1, 5)
    judge = np.clip(np.round(gold + 0.8 * rng.normal(size=len(system))), 1, 5)
    return pd.DataFrame({"system": system, "item": item, "judge": judge, "gold": gold})


SCIPY = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


def test_levels_equal_scipy():
    rows = data()
    found = correlate_levels(rows.judge, rows.gold, systems=rows.system, groups=rows.item, n_resamples=200)
    means = rows.groupby("system")[["judge", "gold"]].mean()
    for name, function in SCIPY.items():
        within = [function(part.judge, part.gold)[0] for _, part in rows.groupby("system")]
        expected = [function(rows.judge, rows.gold)[0], function(means.judge, means.gold)[0], np.mean(within)]
        levels = [found.loc[(level, name), "estimate"] for level in ("item", "system", "within")]
        assert levels == pytest.approx(expected, abs=1e-10)
    assert (found["low"] < found["estimate"]).all() and (found["estimate"] < found["high"]).all()
    assert found.attrs["n_groups"] == 30 and found.attrs["simpson"] == []
    assert found["n"].tolist() == [180] * 3 + [6] * 6


def test_simpsons_paradox_is_pointed_out():
    """Within each system the judge ranks perfectly, and it likes the weaker system better."""
    gold = [1, 2, 3, 11, 12, 13]
    judge = [11, 12, 13, 1, 2, 3]
    with pytest.warns(UserWarning, match="Simpson"):
        found = correlate_levels(judge, gold, systems=list("aaabbb"), n_resamples=0)
    assert found.loc[("within", "spearman"), "estimate"] == pytest.approx(1)
    assert found.loc[("item", "spearman"), "estimate"] < 0
    assert found.attrs["simpson"] == ["pearson", "spearman", "kendall"]


def test_averages_are_what_they_are_called():
    rows = data(5, 20, seed=3)
    table = average_correlations(rows.judge, rows.gold, within=rows.system, n_resamples=200)
    average = table["estimate"].xs("spearman", level="statistic")
    rho = rows.groupby("system").apply(lambda part: stats.spearmanr(part.judge, part.gold)[0]).to_numpy()
    assert average["mean"] == pytest.approx(rho.mean(), abs=1e-10)
    assert average["fisher"] == pytest.approx(np.tanh(np.arctanh(rho).mean()), abs=1e-10)
    assert average["pooled"] == pytest.approx(stats.spearmanr(rows.judge, rows.gold)[0], abs=1e-10)
    assert (
        list(average_correlations(rows.judge, rows.gold, within=rows.system, averages=["fisher"], n_resamples=0).n)
        == [5] * 3
    )


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
    """The spread of the mean over 150 samples of 30 groups; drawing items gave 1.3 times as much in groups of five."""
    means, errors = [], []
    for seed in range(150):
        rows = data(30, items, seed)
        rows["judge"] = np.clip(np.round(rows.gold + 1.2 * np.random.default_rng(seed).normal(size=len(rows))), 1, 5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # some groups of five are constant
            row = average_correlations(rows.judge, rows.gold, within=rows.system, averages=["mean"], n_resamples=100)
        low, high = np.arctanh(row[["low", "high"]].iloc[1])
        errors.append((high - low) / 2 / stats.t.ppf(0.975, 29))
        means.append(np.arctanh(row["estimate"].iloc[1]))
    assert np.mean(errors) / np.std(means) == pytest.approx(1, abs=0.17)


def test_groups_without_a_correlation_are_left_out_and_counted():
    rows = data(3, 20)
    rows.loc[rows.system == "model 1", "judge"] = 4.0
    with pytest.warns(UserWarning, match="1 of 3 groups"):
        found = average_correlations(rows.judge, rows.gold, within=rows.system, n_resamples=0)
    kept = [stats.pearsonr(p.judge, p.gold)[0] for name, p in rows.groupby("system") if name != "model 1"]
    assert found.loc[("mean", "pearson"), "estimate"] == pytest.approx(np.mean(kept), abs=1e-10)
    assert found.loc[("mean", "pearson"), ["n", "missing"]].tolist() == [2, 1]


def test_fishers_average_of_a_perfect_group_is_undefined():
    with pytest.warns(UserWarning, match="1 or -1"):
        found = average_correlations([1, 2, 3, 1, 2, 3], [1, 2, 3, 1, 3, 2], within=list("aaabbb"), n_resamples=0)
    assert np.isnan(found.loc[("fisher", "spearman"), "estimate"])
    assert found.loc[("mean", "spearman"), "estimate"] == pytest.approx(0.75)


def test_intervals_cover():
    """Mean within-group Spearman of six groups of 30, 200 samples; three standard errors below 95 % is 90.4 %."""
    big = data(6, 20_000, seed=99)
    truth = average_correlations(big.judge, big.gold, within=big.system, averages=["mean"], n_resamples=0)
    truth = truth["estimate"].iloc[1]
    hits = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rows = big.groupby("system").sample(30, random_state=rng.integers(2**31))
        found = average_correlations(rows.judge, rows.gold, within=rows.system, averages=["mean"], n_resamples=200)
        hits += found["low"].iloc[1] <= truth <= found["high"].iloc[1]
    assert 0.904 <= hits / 200 <= 0.99


def test_groups_drawn_as_wholes_count_as_often_as_drawn():
    """With its own group as its unit, the mean of group correlations is a plain mean of G numbers."""
    rows = data(40, 12)
    rho = rows.groupby("system").apply(lambda part: stats.pearsonr(part.judge, part.gold)[0])
    found = average_correlations(
        rows.judge, rows.gold, within=rows.system, groups=rows.system, averages=["mean"], n_resamples=2000
    ).iloc[0]
    z = np.arctanh([found["low"], found["high"]])
    error = stats.sem(rho) / (1 - rho.mean() ** 2)  # on Fisher's scale, to first order
    assert z[1] - z[0] == pytest.approx(2 * stats.t.ppf(0.975, 39) * error, rel=0.08)


def test_system_level_over_other_systems():
    """Systems as units: the bootstrap of the correlation of their means."""
    rows = data(25, 10)
    means = rows.groupby("system")[["judge", "gold"]].mean()
    found = correlate_levels(rows.judge, rows.gold, systems=rows.system, groups=rows.system, n_resamples=3000)
    plain = correlate(means["judge"], means["gold"], n_resamples=3000)
    np.testing.assert_allclose(found.xs("system", level="level")["estimate"], plain["estimate"], atol=1e-10)
    np.testing.assert_allclose(found.xs("system", level="level")["low"], plain["low"], atol=0.06)


@pytest.mark.parametrize(
    "rows",
    [
        ([], [], []),
        ([1, 2], [2, 1], ["a", "b"]),
        ([1.0, np.nan, 3], [np.nan, 2, np.nan], ["a", "a", "b"]),
        ([3, 3, 3, 3], [1, 2, 3, 4], ["a", "a", "a", "b"]),
        ([1, 2, 3], [1, 2, 3], ["a", "b", "c"]),
    ],
)
def test_degenerate_input_is_nan_with_a_warning(rows):
    x, y, groups = rows
    with pytest.warns(UserWarning, match="undefined|have no correlation"):
        found = correlate_levels(x, y, systems=groups, n_resamples=50)
    assert found.xs("within", level="level")["estimate"].isna().all()
    with pytest.warns(UserWarning, match="undefined"):
        average_correlations(x, y, within=groups, n_resamples=50)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"within": ["a", None, "b"]}, "within.*position 1"),
        ({"within": list("aab"), "averages": ["median"]}, "averages must be some of"),
        ({"within": list("aab"), "averages": []}, "averages must be some of"),
        ({"within": list("ab")}, "2 labels for 3 items"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        average_correlations([1, 2, 3], [1, 3, 2], **options)


def test_many_systems_do_not_fill_the_memory():
    rng = np.random.default_rng(0)
    y = rng.integers(1, 6, 1200)
    tracemalloc.start()
    with pytest.warns(UserWarning):
        correlate_levels(np.clip(y + rng.integers(-1, 2, 1200), 1, 5), y, systems=np.arange(1200) // 4, n_resamples=100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * BLOCK_BYTES, f"{peak / 2**20:.0f} MB"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 5), st.floats(-1e3, 1e3), st.sampled_from("abc")), max_size=15))
def test_no_exception_on_any_numbers(rows):
    x, y, groups = ([row[i] for row in rows] for i in range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for found in (
            correlate_levels(x, y, systems=groups, n_resamples=20),
            average_correlations(x, y, within=groups, n_resamples=20),
        ):
            assert (found["estimate"].isna() | found["estimate"].between(-1, 1)).all()
