"""Correlations of weighted tables, and the bootstrap on them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vjudge.metrics import resampling
from vjudge.metrics.resampling import Design, Table, correlations, interval, p_value, replicates

BINS = [-1.2, -0.4, 0.4, 1.2]


def scipy_correlations(x, y):
    return [stats.pearsonr(x, y)[0], stats.spearmanr(x, y)[0], stats.kendalltau(x, y)[0]]


def judged(rng, n, *, ordinal=True):
    """Two noisy readings of one latent quality, on a 5-point scale or continuous."""
    latent = rng.normal(size=n)
    x, y = (latent + 0.7 * rng.normal(size=n) for _ in range(2))
    return (np.digitize(x, BINS) + 1.0, np.digitize(y, BINS) + 1.0) if ordinal else (x, y)


def bootstrap(table, *, groups=None, **options):
    return replicates(
        lambda weights: correlations(table, weights), Design(table.cell, groups), **options
    )


@given(st.data())
def test_weighted_correlations_equal_scipy_on_the_repeated_pairs(data):
    levels = data.draw(st.integers(2, 12))
    cell = st.tuples(st.integers(1, levels), st.integers(1, levels))
    table = Table(*np.array(data.draw(st.lists(cell, min_size=4, max_size=30)), dtype=float).T)
    counts = data.draw(st.lists(st.integers(0, 4), min_size=len(table.x), max_size=len(table.x)))
    x, y = np.repeat(table.x, counts), np.repeat(table.y, counts)
    with np.errstate(all="ignore"):
        ours = correlations(table, np.array(counts)[:, None])[:, 0]
    if len(set(x)) > 1 and len(set(y)) > 1:
        np.testing.assert_allclose(ours, scipy_correlations(x, y), rtol=0, atol=1e-12)
    else:
        assert np.isnan(ours).all()


@pytest.mark.parametrize("digits", [(8, 8), (0, 8), (2, 1)])
def test_many_distinct_pairs_equal_scipy(digits):
    """Enough of them for several blocks of signs, with ties in one score, in both or in none."""
    rng = np.random.default_rng(0)
    table = Table(
        *(
            np.round(values, d)
            for values, d in zip(judged(rng, 700, ordinal=False), digits, strict=True)
        )
    )
    assert len(table.x_signs) > 2 and table.grid is not None
    weights = replicates(lambda w: w, Design(table.cell), n_resamples=3, seed=0).astype(int)
    ours = correlations(table, weights)
    for replicate, column in enumerate(weights.T):
        expected = scipy_correlations(np.repeat(table.x, column), np.repeat(table.y, column))
        np.testing.assert_allclose(ours[:, replicate], expected, rtol=0, atol=1e-12)


def test_intervals_by_hand():
    drawn, z, reach = (
        np.linspace(0, 1, 101),
        np.arctanh(0.5),
        1.8331129 * np.sqrt(10 / 9),
    )  # t(9) at .95
    options = dict(n_units=10, confidence=0.9)
    assert interval(drawn, 0.5, "t", **options)[1] - 0.5 == pytest.approx(reach * drawn.std())
    assert interval(drawn, 0.5, "t", 4, **options)[1] - 0.5 == pytest.approx(
        reach * drawn.std() / 2
    )
    fisher = interval(np.tanh([z - 1, z + 1, np.nan]), 0.5, "fisher", **options)
    assert fisher == pytest.approx((np.tanh(z - reach), np.tanh(z + reach), 1 / 3))
    logit = interval(1 / (1 + np.exp([-3.0, -1.0])), 1 / (1 + np.exp(-2)), "logit", **options)
    assert logit[:2] == pytest.approx(1 / (1 + np.exp(-(2 + np.array([-reach, reach])))))
    low, high, _ = interval(np.r_[np.ones(60), np.full(40, 0.9)], 0.95, "fisher", **options)
    assert -1 < low < 0.95 < high < 1, "perfect correlations have finite bounds"


def test_p_value_counts_the_observed_one():
    assert p_value(np.array([0.1, -0.5, 0.5, 0.7]), 0.5) == pytest.approx(4 / 5)
    assert p_value(np.array([0.1, np.nan]), 1.0) == pytest.approx(2 / 3)  # undefined counts against
    assert np.isnan(p_value(np.zeros(9), np.nan))


def test_a_bar_shows_only_when_it_takes_long(capfd, monkeypatch):
    for patience, shown in ((2.0, False), (0.0, True)):
        monkeypatch.setattr(resampling, "PATIENCE", patience)
        replicates(lambda w: w.sum(axis=0), Design(np.arange(10)), n_resamples=50, seed=0)
        assert ("resamples" in capfd.readouterr().err) == shown
