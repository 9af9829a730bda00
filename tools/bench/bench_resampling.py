"""The bootstrap against a SciPy loop, and its growth with n: ratios within one run. `make bench`."""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest
from scipy import stats

from vjudge.metrics import compare_judges, correlate

RESAMPLES = 10_000


def judged(n, *, points, judges=1, seed=0):
    """A reference and judges of n items, on a 5-point scale or continuous, as expected scores are."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=n)
    columns = [latent + 0.7 * rng.normal(size=n) for _ in range(judges + 1)]
    return (
        [np.digitize(column, [-1.2, -0.4, 0.4, 1.2]) + 1.0 for column in columns]
        if points
        else columns
    )


def seconds(function, *arguments, repeats=3, **options):
    """Processor time of the quickest of some calls: other processes disturb it least."""
    times = []
    for _ in range(repeats):
        start = process_time()
        function(*arguments, **options)
        times.append(process_time() - start)
    return min(times)


def scipy_loop(x, y, *, timed):
    rng = np.random.default_rng(0)
    for _ in range(timed):
        draw = rng.integers(len(x), size=len(x))
        for statistic in (stats.pearsonr, stats.spearmanr, stats.kendalltau):
            statistic(x[draw], y[draw])


@pytest.mark.parametrize(
    ("points", "n", "least"), [(True, 1_000, 60), (False, 1_000, 4), (False, 10_000, 4)]
)
def test_faster_than_a_scipy_loop(points, n, least):
    x, y = judged(n, points=points)
    timed = 100_000 // n
    loop = seconds(scipy_loop, x, y, timed=timed) * RESAMPLES / timed
    ratio = loop / seconds(correlate, x, y, n_resamples=RESAMPLES)
    scale = "5-point scale" if points else "continuous scores"
    print(
        f"\n{RESAMPLES:,} resamples of three correlations, n = {n:,}, {scale}: {ratio:.0f} times a SciPy loop"
    )
    assert ratio > least


@pytest.mark.parametrize("points", [True, False])
def test_a_pair_of_judges_takes_a_small_multiple_of_one_judge(points):
    reference, a, b = judged(1_000, points=points, judges=2)
    one = seconds(correlate, a, reference, n_resamples=2_000)
    pair = seconds(compare_judges, reference, {"a": a, "b": b}, n_resamples=2_000)
    print(f"\na pair of judges takes {pair / one:.0f} times as long as one judge, n = 1,000")
    assert pair / one < 30


def test_hardly_grows_with_n():
    small, large = (
        seconds(correlate, *judged(n, points=True), n_resamples=RESAMPLES)
        for n in (1_000, 1_000_000)
    )
    print(
        f"\n5-point scale: n = 1,000,000 takes {large / small:.2f} times as long as n = 1,000, tabulation included"
    )
    assert large / small < 10
