"""Correlations, their levels and tables, and judges compared: by hand, SciPy, enumeration."""

import re
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from vjudge.metrics import (
    compare_judges,
    correlate,
    correlate_levels,
    correlation_table,
    human_ceiling,
)

SCIPY = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


def estimates(x, y):
    return correlate(x, y, n_resamples=0)["estimate"].tolist()


def hold(table, value="estimate"):
    """Whether every interval holds its estimate."""
    return ((table["low"] < table[value]) & (table[value] < table["high"])).all()


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
        scipy = [function(x, y)[0] for function in SCIPY.values()]
    np.testing.assert_allclose(estimates(x, y), scipy, rtol=0, atol=1e-12)


def test_frame_and_its_account():
    item = np.arange(120)
    score = np.where(item < 7, np.nan, item % 5 + item % 3)
    table = correlate(score, item % 5, groups=item // 4, n_resamples=500, seed=3)
    assert table.columns.tolist() == ["estimate", "low", "high", "n", "missing"]
    assert (table["n"] == 113).all() and (table["missing"] == 7).all() and hold(table)
    assert table.attrs["method"] == (
        "95% bootstrap intervals (Student's on Fisher's z scale), 500 resamples of 29 groups of"
        " 113 items, seed 3"
    )


FLOATS = np.random.default_rng(0).normal(size=30)
TWICE = [1, 2, 2, 4, 5, 3, 3, 1] * 5
WARNED = {
    "constant": (lambda: correlate([0.1 + 0.2] * 3, [1, 2, 3]), "x constant"),
    "few resamples": (
        lambda: correlate(TWICE, TWICE[::-1], n_resamples=5),
        "n_resamples=5: .* few",
    ),
    "perfect": (lambda: correlate(FLOATS, 2 * FLOATS + 1, n_resamples=200), "without width"),
    "sound": (lambda: correlate(TWICE, TWICE[::-1], n_resamples=200), ""),
    "four systems": (
        lambda: correlate_levels(TWICE, TWICE[::-1], systems=list("abcd") * 10, levels=["system"]),
        "of 4 systems; intervals take five",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_what_is_not_sound_is_said(case):
    call, message = WARNED[case]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert bool(caught) == (case != "sound")
    for warning in caught:
        assert re.search(message, str(warning.message))
        assert warning.filename == __file__, "a warning names the caller's line"


WRONG = [
    (dict(y=["a", 2, "b"]), TypeError, "y has .* not numbers: position 0: 'a', position 2: 'b'"),
    (dict(x=[1, 2, np.inf]), ValueError, "position 2"),
    (dict(groups=["a", None, "b"]), ValueError, "position 1: None"),
    (dict(groups=["a", "b"]), ValueError, "x has 3, y has 3, groups has 2"),
    (dict(confidence=95), ValueError, "between 0 and 1"),
    (dict(n_resamples=1e4), ValueError, "whole number"),
    (
        dict(x=pd.Series([1, 2, 3]), y=pd.Series([1, 2, 3], index=[2, 1, 0])),
        ValueError,
        "different indexes",
    ),
]


@pytest.mark.parametrize(("arguments", "error", "message"), WRONG)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        correlate(**{"x": [1, 2, 3], "y": [1, 2, 4], **arguments})


@pytest.mark.parametrize("grouped", [False, True])
def test_many_rows_take_the_time_of_scipy(grouped):
    rng = np.random.default_rng(0)
    groups = np.arange(100_000) // 2
    common = rng.normal(size=50_000)[groups]
    x = common + rng.normal(size=100_000)
    y = common + rng.normal(size=100_000)
    if grouped:
        x = np.digitize(x, [-1, 0, 1, 2])
        y = np.digitize(y, [-1, 0, 1, 2])
    began = time.process_time()
    table = correlate(x, y, groups=groups if grouped else None)
    assert time.process_time() - began < 3  # it was 40
    tau = stats.kendalltau(x, y).statistic
    assert table.loc["kendall", "estimate"] == pytest.approx(tau, abs=1e-12)
    assert "100 random blocks" in table.attrs["method"] and hold(table)


# Levels


@pytest.mark.parametrize("groups", [None, "item"])
def test_levels_equal_scipy_and_the_same_numbers_have_one_interval(groups):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"system": np.repeat(range(6), 30), "item": np.tile(range(30), 6)})
    skill = rng.normal(size=6)[rows.system]
    rows["gold"] = np.clip(np.round(3 + skill + rng.normal(size=180)), 1, 5)
    rows["judge"] = np.clip(np.round(rows.gold + 0.8 * rng.normal(size=180)), 1, 5)
    options = dict(groups=None if groups is None else rows[groups], n_resamples=200)
    table = correlate_levels(rows.judge, rows.gold, systems=rows.system, **options)
    means = rows.groupby("system")[["judge", "gold"]].mean()
    for name in SCIPY:
        within = [part.judge.corr(part.gold, name) for _, part in rows.groupby("system")]
        pooled = [each.judge.corr(each.gold, name) for each in (rows, means)]
        found = table["estimate"].xs(name, level="statistic")
        assert found.tolist() == pytest.approx([*pooled, np.mean(within)], abs=1e-10)
    assert hold(table)
    low, high = stats.t.interval(0.95, 5, np.mean(within), stats.sem(within))  # of Kendall's tau
    assert table.loc[("within", "kendall"), ["low", "high"]].tolist() == pytest.approx([low, high])
    pd.testing.assert_frame_equal(correlate(rows.judge, rows.gold, **options), table.xs("item"))
    # Fisher's interval of six systems, from the textbook
    r, low, high = table.loc[("system", "pearson"), ["estimate", "low", "high"]]
    half = 1.959964 / np.sqrt(6 - 3)
    assert [low, high] == pytest.approx(np.tanh(np.arctanh(r) + np.array([-half, half])))


def test_simpsons_paradox_is_pointed_out():
    """Within each system the judge ranks perfectly, and it likes the weaker system better."""
    gold, judge = [1, 2, 3, 11, 12, 13], [11, 12, 13, 1, 2, 3]
    with pytest.warns(UserWarning, match="pearson, spearman, kendall: opposite signs .*Simpson"):
        table = correlate_levels(judge, gold, systems=list("aaabbb"), n_resamples=0)
    assert table.loc[("within", "spearman"), "estimate"] == pytest.approx(1)


def test_judges_by_benchmarks():
    rng = np.random.default_rng(0)
    truth = {"long": rng.integers(1, 6, 120), "short": rng.integers(1, 6, 40)}
    people = truth["long"][:, None] + rng.normal(size=(120, 3))
    good, bad, _ = people.T
    judges = {"long": {"good": good, "bad": bad}, "short": {"bad": truth["short"]}}
    groups = np.arange(120) // 4
    ceilings = {"long": human_ceiling(people, n_resamples=100)}
    options = {"groups": {"long": groups}, "ceiling": ceilings, "n_resamples": 200}
    table = correlation_table(judges, truth, **options)
    assert table["judge"][::3].tolist() == ["good", "bad", "people", "bad"]
    assert table["benchmark"][::3].tolist() == ["long", "long", "long", "short"]
    assert table["ceiling"].tolist() == (table["judge"] == "people").tolist()
    alone = correlate(good, truth["long"], groups=groups, n_resamples=200)
    pd.testing.assert_frame_equal(table.head(3).set_index("statistic")[list(alone)], alone)
    judges["short"]["bad"] = [1, 2, 3]
    with pytest.raises(ValueError, match="bad on short: x has 3, y has 40"):
        correlation_table(judges, truth, n_resamples=0)


# Judges compared


def test_judges_are_compared_on_common_items_and_corrected_together():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=200)
    judges = pd.DataFrame(gold[:, None] + rng.normal(size=(200, 4)) * [0.3, 1, 1, 4])
    judges.columns = ["best", "one", "other", "worst"]
    judges.loc[:9, "worst"] = np.nan
    table = compare_judges(gold, judges, n_resamples=200)
    assert table.loc[("best", "one"), "n"].tolist() == [200] * 3  # a gap costs others nothing
    pair = table.loc[("best", "worst")]
    assert (pair["n"] == 190).all() and (pair["missing"] == 10).all() and hold(pair, "difference")
    expected = np.transpose([estimates(judges[name][10:], gold[10:]) for name in ("best", "worst")])
    np.testing.assert_allclose(pair[["estimate_a", "estimate_b"]], expected, rtol=0, atol=1e-12)
    error = (table["high"] - table["low"]) / 2 / stats.t.ppf(0.975, table["n"] - 1)
    expected = 2 * stats.t.sf(table["difference"].abs() / error, table["n"] - 1)
    np.testing.assert_allclose(table["p"], expected)
    for _, rows in table.groupby(level="statistic"):
        np.testing.assert_allclose(rows["p_holm"], multipletests(rows["p"], method="holm")[1])
    told = table["p_holm"].xs("kendall", level="statistic") <= 0.05
    assert told.tolist() == [True, True, True, False, True, True]  # "one" and "other" are alike
    with pytest.raises(ValueError, match="two or more, each with a name of its own, not one"):
        compare_judges(gold, judges[["one"]])
