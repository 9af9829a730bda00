"""compare_judges: enumeration by hand, similar judges, statsmodels, and what it refuses."""

from __future__ import annotations

import itertools
import json
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from validity.populations import Population

from vjudge.metrics import compare_judges, correlate, who_beats_whom
from vjudge.metrics._tables import holm
from vjudge.metrics.correlation import COMPARISON, _matched

JUDGES = Population(((1, 0.8, 0.6), (0.8, 1, 0.5), (0.6, 0.5, 1)))


def sample(population, n, seed=0, per_group=1):
    """A reference and two judges, and the groups."""
    scores, groups = Population(population.latent, per_group=per_group).sample(n, np.random.default_rng(seed))
    return (*scores.T, groups)


def compare(gold, a, b, **options):
    return compare_judges(gold, {"a": a, "b": b}, **options)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_equals_statsmodels(p):
    with mock.patch("gc.collect"):  # which statsmodels calls each time, for a third of a second where torch is loaded
        expected = multipletests(p, method="holm")[1]
    np.testing.assert_allclose(holm(np.array(p)), expected, rtol=0, atol=1e-12)
    with_gap = holm(np.array([np.nan, *p]))
    assert np.isnan(with_gap[0]) and np.allclose(with_gap[1:], holm(np.array(p)))


def test_frame_and_its_account():
    gold, a, b, _ = sample(JUDGES, 150)
    a[:5], b[3:9], gold[20] = np.nan, np.nan, np.nan
    table = compare(gold, a, b, n_resamples=500, seed=2)
    assert table.index.tolist() == [("a", "b", s) for s in ("pearson", "spearman", "kendall")]
    assert table.columns.tolist() == list(COMPARISON)
    assert (table["n"] == 140).all() and (table["missing"] == 10).all()
    both = ~np.isnan(gold + a + b)
    for column, judge in (("estimate_a", a), ("estimate_b", b)):
        expected = correlate(judge[both], gold[both], n_resamples=0)["estimate"]
        np.testing.assert_allclose(table[column], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(table["difference"], table["estimate_a"] - table["estimate_b"], atol=1e-15)
    assert ((table["low"] < table["difference"]) & (table["difference"] < table["high"])).all()
    assert (table["p"] == table["p_holm"]).all() and table.attrs["p_floor"] == 1 / 501
    pd.testing.assert_frame_equal(table, compare(gold, a, b, n_resamples=500, seed=2))
    assert table.attrs == json.loads(json.dumps(table.attrs))


def test_permutation_p_approaches_the_enumeration_of_all_swaps():
    gold, a, b = np.array([[1, 2, 2, 3, 4, 5, 5, 3], [1, 2, 3, 3, 5, 4, 5, 2], [2, 2, 1, 5, 3, 5, 4, 4]], dtype=float)
    table = compare(gold, a, b, n_resamples=20_000).droplevel(["a", "b"])
    functions = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}
    for statistic, function in functions.items():
        x, y = (stats.zscore(a), stats.zscore(b)) if statistic == "pearson" else _matched(a, b)
        gaps = []
        for swap in itertools.product([False, True], repeat=len(gold)):
            one, other = np.where(swap, y, x), np.where(swap, x, y)
            gaps.append(abs(function(one, gold)[0] - function(other, gold)[0]))
        exact = np.mean(np.array(gaps) >= gaps[0] - 1e-12)
        assert table.loc[statistic, "p"] == pytest.approx(exact, abs=0.015), statistic


def test_a_harsher_or_wider_judge_is_not_told_apart_by_that():
    gold, a, b, _ = sample(JUDGES, 100)
    plain, shifted = compare(gold, a, b, n_resamples=300), compare(gold, a, 3 * b - 7, n_resamples=300)
    pd.testing.assert_frame_equal(plain, shifted, rtol=0, atol=1e-9)
    stretched = compare(gold, a, np.exp(b), n_resamples=300)  # ranks are as they were
    rank = plain.index.get_level_values("statistic") != "pearson"
    pd.testing.assert_frame_equal(plain[rank], stretched[rank], rtol=0, atol=1e-9)


def nearly_the_same(n=300, changed=15):
    """A reference, a judge, and one equal to it but for some items, where it is worse."""
    rng = np.random.default_rng(0)
    gold = rng.integers(1, 6, n).astype(float)
    a = np.clip(gold + rng.integers(-1, 2, n), 1, 5)
    b = a.copy()
    worse = np.flatnonzero(a == gold)[:changed]
    b[worse] += np.where(gold[worse] > 3, -2, 2)
    return gold, a, b


def test_p_of_similar_judges_on_a_short_scale():
    """Midranks swapped and ranked again gave .16 and .12 on such data, beside intervals that left out 0."""
    table = compare(*nearly_the_same(), n_resamples=9_999).droplevel(["a", "b"])
    assert (table["p"] < 0.002).all() and (table["low"] > 0).all() and not table["conflict"].any()


def test_level_of_similar_judges():
    """Judges who correlate .95 with each other: 120 samples of 80 items, three standard errors above 5 % is 11 %."""
    latent = ((1, 0.67, 0.67), (0.67, 1, 0.95), (0.67, 0.95, 1))
    p = [compare(*sample(Population(latent), 80, seed)[:3], n_resamples=199)["p"] for seed in range(120)]
    rejected = (np.array(p) <= 0.05).mean(axis=0)
    assert (rejected <= 0.11).all() and (rejected > 0).all(), rejected  # .005 before, for ranks


def test_p_that_contradicts_its_interval_is_flagged():
    """Small samples where p is below .05 and the interval holds 0, or the other way round, exist and are named."""
    flags = []
    for seed in range(60):
        table = compare(*sample(JUDGES, 20, seed)[:3], n_resamples=199)
        holds_zero = (table["low"] <= 0) & (0 <= table["high"])
        assert (table["conflict"] == ((table["p"] <= 0.05) == holds_zero)).all()
        flags += table["conflict"].tolist()
    assert 0 < sum(flags) < len(flags) / 2


def test_many_judges_and_who_beats_whom():
    latent = np.outer(quality := [1, 0.9, 0.6, 0.6, 0.2], quality)
    np.fill_diagonal(latent, 1)
    scores, _ = Population(tuple(map(tuple, latent))).sample(400, np.random.default_rng(0))
    judges = pd.DataFrame(scores[:, 1:], columns=["best", "one", "other", "worst"])
    judges.loc[:9, "worst"] = np.nan
    table = compare_judges(scores[:, 0], judges, n_resamples=999)
    assert len(table) == 6 * 3 and table.loc[("best", "worst"), "n"].tolist() == [390] * 3
    assert table.loc[("best", "one"), "n"].tolist() == [400] * 3  # a gap in one judge costs the others nothing
    for _, rows in table.groupby(level="statistic"):
        np.testing.assert_allclose(rows["p_holm"], multipletests(rows["p"], method="holm")[1])
    matrix = who_beats_whom(table, statistic="kendall")
    assert matrix.loc["best"].tolist()[1:] == [1, 1, 1] and matrix.loc["worst"].tolist()[:3] == [-1, -1, -1]
    assert matrix.loc["one", "other"] == 0 and np.isnan(np.diag(matrix)).all()
    difference = who_beats_whom(table, value="difference")
    assert np.nansum((difference + difference.T).abs().to_numpy()) == 0
    p = who_beats_whom(table, value="p_holm")
    assert p.loc["one", "other"] == p.loc["other", "one"] == table.loc[("one", "other", "pearson"), "p_holm"]
    as_mapping = compare_judges(scores[:, 0], {name: judges[name].to_numpy() for name in judges}, n_resamples=999)
    pd.testing.assert_frame_equal(table, as_mapping)


@pytest.mark.parametrize(
    ("judges", "options", "error", "message"),
    [
        ({"a": [1, "x", 3], "b": [1, 2, 3]}, {}, TypeError, "a has values that are not numbers: position 1: 'x'"),
        ({"a": [1, 2], "b": [1, 2, 3]}, {}, ValueError, "reference has 3, judge a has 2"),
        ({"x": [1, 2, 3]}, {}, ValueError, "two or more, each with a name of its own, not x"),
        ({1: [1, 2, 3], "1": [1, 2, 3]}, {}, ValueError, "a name of its own, not 1, 1"),
        ({"a": [1, 2, 3], "b": [1, 2, 3]}, {"groups": ["x", None, "x"]}, ValueError, "position 1"),
    ],
)
def test_bad_input_is_named(judges, options, error, message):
    with pytest.raises(error, match=message):
        compare_judges([1, 2, 3], judges, **options)
