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


@pytest.mark.parametrize("digits", [(8, 8), (0, 8), (2, 1)])
@pytest.mark.parametrize("grouped", [False, True])
def test_resamples_equal_scipy(digits, grouped):
    """With ties in one score, in both or in none; a group is drawn whole."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    rows = np.column_stack([x, x + rng.normal(size=300)])
    rows = np.column_stack([np.round(column, d) for column, d in zip(rows.T, digits, strict=True)])
    cells, cell = distinct(rows)
    assert (cells[cell] == rows).all()
    groups = np.arange(300) // 3 if grouped else None
    weights = replicates(lambda w: w, Design(cell, groups), n_resamples=3, seed=0).astype(int)
    ours = correlations(*cells.T, weights)
    for replicate, column in enumerate(weights.T):
        if not grouped:
            assert column.sum() == 300
        expected = by_scipy(*np.repeat(cells, column, axis=0).T)
        np.testing.assert_allclose(ours[:, replicate], expected, rtol=0, atol=1e-12)


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
