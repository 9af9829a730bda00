"""Do the intervals of correlations cover, and do the tests of judges hold their level? Measured on simulated scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from validity.populations import CUTS, Population
from vjudge.metrics import compare_judges, correlate

SIZES = (50, 200)
GROUPS = (1, 5)  # items of a group: 50 items are 10 groups of 5
SCALES = {"5-point": CUTS, "continuous": None}
CORRELATION = 0.67
BETWEEN = {"judges correlated .60": 0.6, "judges correlated .91": 0.91}
RESAMPLES = {"coverage": 399, "comparison": 199}  # few, since what is measured is a mean over the simulations


def coverage(
    population: Population, n: int, *, simulations: int, n_resamples: int = RESAMPLES["coverage"], seed: int = 0
) -> pd.DataFrame:
    """How often the 95 % intervals of `correlate` hold the true correlation of a population's first two scores.

    Args:
        population: what samples are drawn from.
        n: items of a sample.
        simulations: samples.
        n_resamples: of each interval.
        seed: of the samples and of the resampling; simulation i depends on (seed, i) alone.

    Returns:
        A row for each statistic: truth, covered, truth_below and truth_above (shares of the simulations, adding up to
        1 less undefined), mean_width, undefined.
    """
    truth = population.truth()
    hits = np.zeros((5, len(truth)))
    for i, scores, groups in _samples(population, n, simulations, seed):
        table = correlate(scores[:, 0], scores[:, 1], groups=groups, n_resamples=n_resamples, seed=i)
        low, high = table["low"].to_numpy(), table["high"].to_numpy()
        width = np.nan_to_num(high - low)
        hits += [(low <= truth) & (truth <= high), truth < low, truth > high, width, np.isnan(low)]
    columns = ["covered", "truth_below", "truth_above", "mean_width", "undefined"]
    result = pd.DataFrame((hits / simulations).T, columns=columns)
    result.insert(0, "statistic", list(table.index))
    result.insert(1, "truth", truth)
    return result


def false_positives(
    population: Population, n: int, *, simulations: int, n_resamples: int = RESAMPLES["comparison"], seed: int = 0
) -> pd.DataFrame:
    """How often `compare_judges` tells two judges apart: scores 1 and 2 of a population, with 0 as the reference.

    Args:
        population: three scores; both judges correlate equally with the reference for a false-positive rate, else the
            result is power.
        n, simulations, n_resamples, seed: see `coverage`.

    Returns:
        A row for each statistic and test (permutation, and interval: the bootstrap interval of the difference leaves
        out its true value): rejected, the share of the simulations, with its exact 95 % interval; undefined.
    """
    truth = population.truth(0, 1) - population.truth(0, 2)
    flags: dict[tuple[str, str], list[float]] = {}
    for i, scores, groups in _samples(population, n, simulations, seed):
        table = compare_judges(*scores.T, groups=groups, n_resamples=n_resamples, seed=i).droplevel(["a", "b"])
        for statistic, true in zip(table.index, truth, strict=True):
            row = table.loc[statistic]
            missed = np.nan if np.isnan(row["low"]) else float(not row["low"] <= true <= row["high"])
            flags.setdefault((statistic, "interval"), []).append(missed)
            flags.setdefault((statistic, "permutation"), []).append(float(row["p"] <= 0.05))
    rows = []
    for (statistic, test), values in flags.items():
        defined = np.array(values)[~np.isnan(values)]
        interval = stats.binomtest(int(defined.sum()), len(defined)).proportion_ci(0.95, method="exact")
        rows.append({"statistic": statistic, "test": test, "rejected": defined.mean(), "low": interval.low,
                     "high": interval.high, "undefined": float(np.isnan(values).mean())})  # fmt: skip
    return pd.DataFrame(rows)


def _samples(population: Population, n: int, simulations: int, seed: int) -> Iterator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # undefined resamples are counted in the result
        for i in range(simulations):
            yield i, *population.sample(n, np.random.default_rng([seed, i]))


def measure(
    name: str, *, out: Path, sizes: Sequence[int] | None = None, simulations: int = 2_000, seed: int = 0
) -> Path:
    """Measure coverage or false positives in all settings, and write a CSV after each of them.

    Args:
        name: "coverage" of `correlate`, or "comparison", the tests of `compare_judges`, on whole scores alone.
        out: the folder.
        sizes: items of a sample.
        simulations, seed: see `coverage`.

    Returns:
        The file.
    """
    r = CORRELATION
    frames = []
    file = out / {"coverage": "validity_correlation_coverage.csv", "comparison": "validity_comparison.csv"}[name]
    scales = [scale for scale in SCALES.items() if name == "coverage" or scale[1] is not None]
    for n, (scale, cuts), per_group in product(sizes or SIZES, scales, GROUPS):
        for label, between in BETWEEN.items() if name == "comparison" else [("", 0.0)]:
            setting: dict[str, Any] = dict(scale=scale, n=n, items_per_group=per_group)
            options: dict[str, Any] = dict(simulations=simulations, seed=seed)
            if name == "coverage":
                result = coverage(Population(((1.0, r), (r, 1.0)), cuts=cuts, per_group=per_group), n, **options)
            else:
                latent = ((1.0, r, r), (r, 1.0, between), (r, between, 1.0))
                result = false_positives(Population(latent, cuts=cuts, per_group=per_group), n, **options)
                setting["judges"] = label
            account = dict(simulations=simulations, n_resamples=RESAMPLES[name], seed=seed)
            frames.append(pd.concat([pd.DataFrame([setting] * len(result)), result], axis=1).assign(**account))
            pd.concat(frames).round(4).to_csv(file, index=False, lineterminator="\n")
            print(frames[-1].to_string(index=False, float_format="{:.3f}".format), flush=True)
    return file
