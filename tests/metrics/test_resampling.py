"""Correlations of weighted pairs, and the bootstrap of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vjudge.metrics.resampling import Design, correlations, distinct, interval, replicates

SCIPY = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


def by_scipy(x, y):
    return [function(x, y)[0] for function in SCIPY.values()]


@given(st.data())
def test_weighted_correlations_equal_scipy_on_the_repeated_pairs(data):
    levels = data.draw(st.integers(2, 12))
    pair = st.tuples(st.integers(1, levels), st.integers(1, levels))
    rows = np.array(data.draw(st.lists(pair, min_size=4, max_size=30)), dtype=float)
    cells = distinct(rows)[0]
    counts = st.lists(st.integers(0, 4), min_size=len(cells), max_size=len(cells))
    weights = np.array(data.draw(counts))
    x, y = np.repeat(cells, weights, axis=0).T
    with np.errstate(all="ignore"):
        ours = correlations(*cells.T, weights[:, None])[:, 0]
    if len(x) > 2 and len(set(x)) > 1 and len(set(y)) > 1:
        np.testing.assert_allclose(ours, by_scipy(x, y), rtol=0, atol=1e-12)
    else:
        assert np.isnan(ours).all()


def test_rows_are_drawn_one_by_one_or_in_whole_groups():
    rows = np.random.default_rng(0).integers(1, 4, (60, 2)).astype(float)
    cells, cell = distinct(rows)
    assert (cells[cell] == rows).all()
    alone = replicates(lambda w: w, Design(cell), n_resamples=30, seed=0)
    assert (alone.sum(axis=0) == 60).all() and (alone.std(axis=1) > 0).all()
    each = Design(np.arange(60), np.arange(60) // 3)
    by_group = replicates(lambda w: w, each, n_resamples=30, seed=0).reshape(20, 3, 30)
    assert (by_group == by_group[:, :1]).all() and (by_group.sum(axis=(0, 1)) == 60).all()


def test_intervals_by_hand():
    drawn = np.linspace(0, 1, 101)
    z = np.arctanh(0.5)
    reach = 1.8331129 * np.sqrt(10 / 9)  # t(9) at .95
    options = {"n_units": 10, "confidence": 0.9}
    high = interval(drawn, 0.5, method="t", **options)[1]
    assert high == pytest.approx(0.5 + reach * drawn.std())
    high = interval(drawn, 0.5, 4, method="t", **options)[1]
    assert high == pytest.approx(0.5 + reach * drawn.std() / 2)
    options["method"] = "fisher"
    fisher = interval(np.tanh([z - 1, z + 1, np.nan]), 0.5, **options)
    assert fisher == pytest.approx((np.tanh(z - reach), np.tanh(z + reach)))
    low, high = interval(np.r_[np.ones(60), np.full(40, 0.9)], 0.95, **options)
    assert -1 < low < 0.95 < high < 1, "perfect correlations have finite bounds"
