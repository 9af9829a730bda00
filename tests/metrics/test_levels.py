"""Levels and averages of correlations: SciPy, hand-derived averages, Simpson's paradox, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge.metrics import average_correlations, correlate, correlate_levels

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


def test_fishers_average_of_a_perfect_group_is_undefined():
    with pytest.warns(UserWarning, match="1 or -1"):
        table = average_correlations([1, 2, 3, 1, 2, 3], [1, 2, 3, 1, 3, 2], within=list("aaabbb"), n_resamples=0)
    assert np.isnan(table.loc[("fisher", "spearman"), "estimate"])
    assert table.loc[("mean", "spearman"), "estimate"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"within": ["a", None, "b"]}, "within.*position 1"),
        ({"within": list("aab"), "averages": ["median"]}, "averages must be some of"),
        ({"within": list("ab")}, "within has 2"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        average_correlations([1, 2, 3], [1, 3, 2], **options)
