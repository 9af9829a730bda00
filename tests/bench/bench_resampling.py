"""The bootstrap against a SciPy loop, and its growth with n: ratios within one run. `make bench`."""

from __future__ import annotations

from time import perf_counter

import numpy as np
from scipy import stats

from vjudge.metrics._bootstrap import Design, Table, correlations, estimate, inflation

RESAMPLES = 10_000


def judged(n, seed=0):
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=n)
    return [np.digitize(latent + 0.7 * rng.normal(size=n), [-1.2, -0.4, 0.4, 1.2]) + 1.0 for _ in range(2)]


def ours(n):
    x, y = judged(n)
    start = perf_counter()
    table = Table.of(x, y)
    estimate(
        lambda weights: correlations(table, weights),
        Design(table.cell),
        n_resamples=RESAMPLES,
        method="fisher",
        inflation=inflation(n),
    )
    return perf_counter() - start


def scipy_loop(n, *, timed=100):
    x, y = judged(n)
    rng = np.random.default_rng(0)
    start = perf_counter()
    for _ in range(timed):
        draw = rng.integers(n, size=n)
        for statistic in (stats.pearsonr, stats.spearmanr, stats.kendalltau):
            statistic(x[draw], y[draw])
    return (perf_counter() - start) * RESAMPLES / timed


def test_faster_than_a_scipy_loop():
    ratio = scipy_loop(1_000) / min(ours(1_000) for _ in range(5))
    print(f"\n{RESAMPLES:,} resamples of three correlations, n = 1,000, 5-point scale: {ratio:.0f} times a SciPy loop")
    assert ratio > 150


def test_hardly_grows_with_n():
    small, large = (min(ours(n) for _ in range(5)) for n in (1_000, 1_000_000))
    print(f"\nn = 1,000,000 takes {large / small:.2f} times as long as n = 1,000, tabulation included")
    assert large / small < 2
