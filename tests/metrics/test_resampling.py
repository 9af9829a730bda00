"""Correlations of weighted pairs, and the bootstrap of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vjudge.metrics.cells import distinct_rows
from vjudge.metrics.intervals import bootstrap_interval
from vjudge.metrics.resampling import Design, bootstrap, jackknife
from vjudge.metrics.weighted_correlation import correlations

SCIPY = (stats.pearsonr, stats.spearmanr, stats.kendalltau)


LEVEL = st.integers(1, 12)


@given(st.lists(st.tuples(LEVEL, LEVEL, st.integers(0, 4)), min_size=4, max_size=30))
def test_weighted_correlations_equal_scipy_on_the_repeated_pairs(rows):
    x, y, weights = np.array(rows).T
    with np.errstate(all="ignore"):
        ours = correlations(x, y, weights[:, None])[:, 0]
    x, y = np.repeat([x, y], weights, axis=1)
    if len(x) > 2 and len(set(x)) > 1 and len(set(y)) > 1:
        theirs = [function(x, y)[0] for function in SCIPY]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    else:
        assert np.isnan(ours).all()


def test_rows_are_drawn_one_by_one_or_in_whole_groups():
    rows = np.random.default_rng(0).integers(1, 4, (60, 2)).astype(float)
    cells, cell = distinct_rows(rows)
    assert (cells[cell] == rows).all()
    grouped = Design(np.arange(60), np.arange(60) // 3)
    for design in (Design(cell), grouped):
        weights = bootstrap(lambda w: w, design, n_resamples=30, seed=0)
        assert (weights.sum(axis=0) == 60).all() and (weights.std(axis=1) > 0).all()
    by_group = weights.reshape(20, 3, 30)
    assert (by_group == by_group[:, :1]).all()


def test_intervals_by_hand():
    drawn = np.linspace(0, 1, 101)
    z = np.arctanh(0.5)
    reach = 1.8331129 * np.sqrt(10 / 9)  # t(9) at .95
    options = {"n_units": 10, "confidence": 0.9, "method": "t"}
    for inflation, times in ((1, 1), (4, 0.5)):
        high = bootstrap_interval(drawn, 0.5, inflation, **options)[1]
        assert high == pytest.approx(0.5 + times * reach * drawn.std())
    options["method"] = "fisher"
    fisher = bootstrap_interval(np.tanh([z - 1, z + 1, np.nan]), 0.5, **options)
    assert fisher == pytest.approx((np.tanh(z - reach), np.tanh(z + reach)))
    low, high = bootstrap_interval(np.r_[np.ones(60), np.full(40, 0.9)], 0.95, **options)
    assert -1 < low < 0.95 < high < 1, "perfect correlations have finite bounds"


def test_a_jackknife_of_a_mean_is_its_textbook_variance():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 4))
    image, system = np.indices(x.shape).reshape(2, -1)
    rows = Design(np.arange(24))
    variance, freedom = jackknife(lambda w: x.reshape(1, -1) @ w / w.sum(axis=0), rows)
    assert variance[0] == pytest.approx(x.var(ddof=1) / 24)
    assert freedom == pytest.approx(23)
    crossed = Design(np.arange(24), image, 0, system)
    both, freedom = jackknife(lambda w: x.reshape(1, -1) @ w / w.sum(axis=0), crossed)
    by_image, by_system = (x.mean(axis=axis).var(ddof=1) / x.shape[1 - axis] for axis in (1, 0))
    total = by_image + by_system - variance[0]
    assert both[0] == pytest.approx(max(total, by_image, by_system)) and freedom == pytest.approx(3)
    blocks, freedom = jackknife(lambda w: x.reshape(1, -1) @ w / w.sum(axis=0), rows, max_units=12)
    assert freedom == pytest.approx(11) and blocks[0] == pytest.approx(variance[0], rel=0.8)


def test_what_pairs_add_is_counted_once():
    """To a mean they add nothing; to the mean of x_i x_j over 435 pairs, var(x)^2 / 435 once more.

    Of fewer than 30 units it is twice, since tests of so few would reject too often.
    """

    def mean_and_pairs(w):
        total, squares = x @ w, x**2 @ w
        n = w.sum(axis=0)
        return np.stack([total / n, total / n + (total**2 - squares) / n / (n - 1)])

    excess = []
    for seed in range(300):
        x = np.random.default_rng(seed).normal(size=30)
        plain, corrected = (
            jackknife(mean_and_pairs, Design(np.arange(30)), pairs=pairs)[0] for pairs in (0, 435)
        )
        excess.append(plain - corrected)
    assert np.mean(excess, axis=0) * 435 == pytest.approx([0, 1.07], abs=0.15)
    x = x[:20]
    few = [jackknife(mean_and_pairs, Design(np.arange(20)), pairs=pairs)[0] for pairs in (0, 190)]
    assert few[0].tolist() == few[1].tolist()
