"""Correlations of weighted tables, and the bootstrap on them."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score
from validity.populations import Population

from vjudge.metrics import _bootstrap
from vjudge.metrics._bootstrap import (
    AGREEMENTS,
    Design,
    Table,
    agreements,
    correlations,
    interval,
    p_value,
    replicates,
    swaps,
)

BINS = [-1.2, -0.4, 0.4, 1.2]


def scipy_correlations(x, y):
    return [stats.pearsonr(x, y)[0], stats.spearmanr(x, y)[0], stats.kendalltau(x, y)[0]]


def judged(rng, n, *, ordinal=True):
    """Two noisy readings of one latent quality, on a 5-point scale or continuous."""
    latent = rng.normal(size=n)
    x, y = (latent + 0.7 * rng.normal(size=n) for _ in range(2))
    return (np.digitize(x, BINS) + 1.0, np.digitize(y, BINS) + 1.0) if ordinal else (x, y)


def bootstrap(table, *, groups=None, **options):
    return replicates(lambda weights: correlations(table, weights), Design(table.cell, groups), **options)


def bounds_of(table, *, groups=None, **options):
    values = correlations(table, table.counts[:, None])[:, 0]
    drawn, units = bootstrap(table, groups=groups, **options), Design(table.cell, groups).n_units
    return np.array([interval(*row, n_units=units, method="fisher")[:2] for row in zip(drawn, values, strict=True)])


def test_table_keeps_every_pair():
    table = Table.of(np.array([2.0, 1.0, 2.0, 2.0]), np.array([5.0, 3.0, 4.0, 5.0]))
    assert table.x.tolist() == [1, 2, 2] and table.y.tolist() == [3, 4, 5]
    assert table.counts.tolist() == [1, 1, 2] and table.cell.tolist() == [2, 0, 1, 2]


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_weighted_correlations_equal_scipy_on_the_repeated_pairs(data):
    levels = data.draw(st.integers(2, 12))
    cell = st.tuples(st.integers(1, levels), st.integers(1, levels))
    pairs = np.array(data.draw(st.lists(cell, min_size=4, max_size=30)), dtype=float)
    table = Table.of(pairs[:, 0], pairs[:, 1])
    counts = data.draw(st.lists(st.integers(0, 4), min_size=len(table.x), max_size=len(table.x)))
    x, y = np.repeat(table.x, counts), np.repeat(table.y, counts)
    with np.errstate(all="ignore"):
        ours = correlations(table, np.array(counts)[:, None])[:, 0]
    if len(set(x)) > 1 and len(set(y)) > 1:
        np.testing.assert_allclose(ours, scipy_correlations(x, y), rtol=0, atol=1e-12)
    else:
        assert np.isnan(ours).all()


@pytest.mark.parametrize("digits", [(8, 8), (1, 8), (0, 8), (2, 1)])
def test_many_distinct_pairs_equal_scipy(digits):
    """Enough of them for several blocks of signs, with ties in one score, in both or in none."""
    rng = np.random.default_rng(0)
    x, y = (np.round(values, d) for values, d in zip(judged(rng, 700, ordinal=False), digits, strict=True))
    table = Table.of(x, y)
    assert len(table.order.x_signs) > 2 and table.order.grid is not None
    weights = Design(table.cell).draws(0)(3)
    ours = correlations(table, weights)
    for replicate, column in enumerate(weights.T):
        expected = scipy_correlations(np.repeat(table.x, column), np.repeat(table.y, column))
        np.testing.assert_allclose(ours[:, replicate], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(correlations(table, 0.37 * weights), ours, rtol=0, atol=1e-12)  # ratios alone count


@pytest.mark.parametrize("ordinal", [True, False])
@pytest.mark.parametrize("n", [40, 400])
def test_bootstrap_has_the_spread_of_a_plain_scipy_loop(ordinal, n):
    rng = np.random.default_rng(5)
    x, y = judged(rng, n, ordinal=ordinal)
    ours = bootstrap(Table.of(x, y), groups=None, n_resamples=4000, seed=1)
    draws = rng.integers(n, size=(600, n))
    loop = np.array([scipy_correlations(x[draw], y[draw]) for draw in draws]).T
    standard_error = loop.std(axis=1) / np.sqrt(600)
    assert (np.abs(ours.mean(axis=1) - loop.mean(axis=1)) < 5 * standard_error).all()
    np.testing.assert_allclose(ours.std(axis=1), loop.std(axis=1), rtol=0.12)


def test_groups_are_drawn_whole():
    x, y = np.array([1.0, 1, 2, 2, 3, 3]), np.array([1.0, 2, 2, 3, 3, 1])
    table, groups = Table.of(x, y), np.array([0, 0, 1, 1, 2, 2])
    draw = Design(table.cell, groups).draws(0)(200)
    assert draw.shape == (6, 200)
    for first, second in ((0, 1), (2, 3), (4, 5)):  # the two items of an image come and go together
        cells = table.cell[[first, second]]
        assert (draw[cells[0]] == draw[cells[1]]).all()
    assert (draw.sum(axis=0) == 6).all()


def test_copies_of_an_image_do_not_narrow_a_grouped_interval():
    rng = np.random.default_rng(3)
    x, y = judged(rng, 60)
    copies = [np.repeat(values, 4) for values in (x, y)]
    widths = {}
    for name, groups in (("items", None), ("images", np.repeat(np.arange(60), 4))):
        bounds = bounds_of(Table.of(*copies), groups=groups, n_resamples=2000, seed=0)
        widths[name] = bounds[:, 1] - bounds[:, 0]
    alone = bounds_of(Table.of(x, y), groups=None, n_resamples=2000, seed=0)
    np.testing.assert_allclose(widths["images"], alone[:, 1] - alone[:, 0], rtol=0.1)
    np.testing.assert_allclose(widths["items"], widths["images"] / 2, rtol=0.25)


def test_replicates_depend_on_the_seed_and_not_on_the_block(monkeypatch):
    x, y = judged(np.random.default_rng(0), 90)
    for groups in (None, np.arange(90) // 3):
        for values in ((x, y), judged(np.random.default_rng(1), 90, ordinal=False)):
            table = Table.of(*values)
            whole = bootstrap(table, groups=groups, n_resamples=300, seed=4)
            with monkeypatch.context() as patch:
                patch.setattr(_bootstrap, "BLOCK_BYTES", 8 * len(table.x) * 7)
                np.testing.assert_allclose(bootstrap(table, groups=groups, n_resamples=300, seed=4), whole, atol=1e-12)
            assert not np.allclose(bootstrap(table, groups=groups, n_resamples=300, seed=5), whole, equal_nan=True)


@pytest.mark.parametrize("per_group", [1, 5])
def test_intervals_cover_the_truth(per_group):
    """A first look, 150 samples of 60 items; figures/validity_correlation_coverage.csv has 2,000 of every kind."""
    population = Population.pair(0.67, per_group=per_group)
    truth, hits = population.truth(), np.zeros(3)
    for seed in range(150):
        scores, groups = population.sample(60, np.random.default_rng([11, seed]))
        bounds = bounds_of(Table.of(*scores.T), groups=groups, n_resamples=200, seed=seed)
        hits += (bounds[:, 0] <= truth) & (truth <= bounds[:, 1])
    assert (0.89 <= hits / 150).all() and (hits / 150 < 1).all(), hits / 150


def mean_of(values):
    return lambda weights: values @ weights / weights.sum(axis=0)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=4, max_size=30))
def test_agreement_equals_scikit_learn(pairs):
    x, y = np.array(pairs, dtype=float).T
    table = Table.of(x, y)
    with np.errstate(all="ignore"):
        ours = dict(zip(AGREEMENTS, agreements(table, table.counts[:, None])[:, 0], strict=True))
    assert ours["exact"] == pytest.approx((x == y).mean(), abs=1e-14)
    assert ours["within_one"] == pytest.approx((np.abs(x - y) <= 1).mean(), abs=1e-14)
    for name, weights in (("cohen_kappa", None), ("linear_kappa", "linear"), ("quadratic_kappa", "quadratic")):
        if len(set(x) | set(y)) == 1:
            assert np.isnan(ours[name])
        else:
            theirs = cohen_kappa_score(x.astype(int), y.astype(int), labels=range(1, 6), weights=weights)
            assert ours[name] == pytest.approx(theirs, abs=1e-10)


def test_kappas_by_hand():
    # Two of four equal, x margins 2/4 2/4 0, y margins 1/4 2/4 1/4: nominal chance agreement 3/8; |x - y| expected
    # (0 + 2 + 2 + 1 + 0 + 1) / 8 = 3/4, squared (0 + 2 + 4 + 1 + 0 + 1) / 8 = 1; observed 0 1 0 1: 1/2 each.
    table = Table.of(np.array([1.0, 1, 2, 2]), np.array([1.0, 2, 2, 3]))
    assert agreements(table, table.counts[:, None])[:, 0] == pytest.approx([0.5, 1, 1 - 0.5 / 0.625, 1 - 2 / 3, 0.5])


def test_design_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="2 codes for 3 rows"):
        Design(np.arange(3), np.arange(2))


def test_intervals_by_hand():
    drawn, z, reach = np.linspace(0, 1, 101), np.arctanh(0.5), 1.8331129 * np.sqrt(10 / 9)  # t(9) at .95
    options = dict(n_units=10, confidence=0.9)
    assert interval(drawn, 0.5, method="percentile", **options) == pytest.approx((0.05, 0.95, 0))
    assert interval(drawn, 0.5, method="t", **options)[1] - 0.5 == pytest.approx(reach * drawn.std())
    assert interval(drawn, 0.5, method="t", inflation=4, **options)[1] - 0.5 == pytest.approx(reach * drawn.std() / 2)
    fisher = interval(np.tanh([z - 1, z + 1, np.nan]), 0.5, method="fisher", **options)
    assert fisher == pytest.approx((np.tanh(z - reach), np.tanh(z + reach), 1 / 3))
    logit = interval(1 / (1 + np.exp([-3.0, -1.0])), 1 / (1 + np.exp(-2)), method="logit", **options)
    assert logit[:2] == pytest.approx(1 / (1 + np.exp(-(2 + np.array([-reach, reach])))))


def test_perfect_correlations_have_finite_bounds_or_no_width():
    assert interval(np.ones(50), 1.0, n_units=9, method="fisher")[:2] == (1, 1)
    low, high, _ = interval(np.r_[np.ones(60), np.full(40, 0.9)], 0.95, n_units=9, method="fisher")
    assert -1 < low < 0.95 < high < 1


def test_an_unknown_interval_is_refused():
    with pytest.raises(ValueError, match="percentile"):
        interval(np.zeros(5), 0.0, n_units=5, method="basic")


def test_undefined_replicates_are_counted_and_too_many_leave_no_interval():
    some, many = np.r_[np.full(2, np.nan), np.arange(8.0)], np.r_[np.full(6, np.nan), np.arange(4.0)]
    low, high, undefined = interval(some, 4.0, n_units=9, method="t")
    assert low < 4 < high and undefined == pytest.approx(0.2)
    low, high, undefined = interval(many, 2.0, n_units=9, method="t")
    assert np.isnan([low, high]).all() and undefined == pytest.approx(0.6)


@pytest.mark.parametrize("groups", [None, np.array([0, 0, 1, 1, 2, 2, 2])])
def test_swaps_keep_every_row_and_whole_groups(groups, monkeypatch):
    sample = Design(np.array([0, 1, 0, 2, 1, 1, 2]), groups)
    weights = swaps(lambda w: w, sample, n_resamples=200, seed=0)
    stand, swapped = np.split(weights, 2)
    assert (stand + swapped == sample.counts[:, None]).all() and (stand >= 0).all() and (swapped >= 0).all()
    assert np.abs(swapped.mean(axis=1) / sample.counts - 0.5).max() < 0.12
    if groups is not None:  # which groups are swapped makes eight patterns
        assert len(np.unique(swapped, axis=1).T) == 8
    monkeypatch.setattr(_bootstrap, "BLOCK_BYTES", 8 * 14)
    assert (swaps(lambda w: w, sample, n_resamples=200, seed=0) == weights).all()


def test_p_value_counts_the_observed_one():
    assert p_value(np.array([0.1, -0.5, 0.5, 0.7]), 0.5) == pytest.approx(4 / 5)
    assert p_value(np.zeros(99), 1.0) == pytest.approx(0.01)
    assert p_value(np.array([0.1, np.nan]), 1.0) == pytest.approx(2 / 3)  # undefined counts against
    assert np.isnan(p_value(np.zeros(9), np.nan)) and np.isnan(p_value(np.zeros(0), 1.0))


@pytest.mark.parametrize("kind", ["rows", "groups"])
def test_memory_is_bounded(kind):
    n = 60_000
    x = np.random.default_rng(0).normal(size=n)
    groups = None if kind == "rows" else np.arange(n) // 3
    tracemalloc.start()
    replicates(mean_of(x), Design.rows(n, groups=groups), n_resamples=80, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * _bootstrap.BLOCK_BYTES, (
        f"{peak / 2**20:.0f} MB, all draws at once {80 * n * 8 / 2**20:.0f} MB an array"
    )


@pytest.mark.parametrize("width", [0, 400_000])
def test_wide_statistics_are_bounded_too(width):
    n = 30_000
    x = np.random.default_rng(0).normal(size=n)

    def statistic(weights):
        rest = np.ones((width, weights.shape[1])).sum(axis=0) if width else 0
        return mean_of(x)(weights) + 0 * rest

    tracemalloc.start()
    replicates(statistic, Design.rows(n), n_resamples=60, seed=0, width=width)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * _bootstrap.BLOCK_BYTES, f"{peak / 2**20:.0f} MB"


def test_a_bar_shows_only_when_it_takes_long(capfd, monkeypatch):
    def slowly(weights):
        time.sleep(0.05)
        return weights.sum(axis=0)

    monkeypatch.setattr(_bootstrap, "BLOCK_BYTES", 8 * 10)
    replicates(slowly, Design.rows(10), n_resamples=5, seed=0)
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(_bootstrap, "PATIENCE", 0.1)
    replicates(slowly, Design.rows(10), n_resamples=8, seed=0)
    assert "resamples" in capfd.readouterr().err
