"""Do the intervals of correlations cover, and do the tests of judges hold their level? Measured on simulated scores.

    python -m vjudge.simulate --only coverage comparison --out figures

writes validity_correlation_coverage.csv and validity_comparison.csv, rows as soon as they are known; 25 minutes on one
core. `--simulations 100` gives a first look.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics import compare_judges, correlate
from vjudge.simulate.correlated import CUTS, Population

SIZES = (50, 200, 1000)
GROUPS = (1, 5)  # items of a group: 50 items are 10 groups of 5
SCALES = {"5-point": CUTS, "continuous": None}
CORRELATION = 0.67
BETWEEN_JUDGES = 0.6
RESAMPLES = 399  # few, since what is measured is a mean over the simulations
TESTS = {"permutation": "p", "williams": "p_williams", "steiger": "p_steiger"}


def coverage(
    population: Population,
    n: int,
    *,
    simulations: int,
    n_resamples: int = 399,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """How often the intervals of `correlate` hold the true correlation of a population's first two scores.

    Args:
        population: what samples are drawn from.
        n: items of a sample.
        simulations: samples.
        n_resamples, confidence: see `correlate`.
        seed: of the samples and of the resampling; simulation i depends on (seed, i) alone.

    Returns:
        A row for each statistic: truth, covered, truth_below and truth_above (shares of the simulations, adding up to
        1 less undefined), mean_width, undefined.
    """
    truth = population.truth()
    hits = np.zeros((5, len(truth)))
    for i, scores, groups in _samples(population, n, simulations, seed):
        table = correlate(
            scores[:, 0], scores[:, 1], groups=groups, confidence=confidence, n_resamples=n_resamples, seed=i
        )
        low, high = table["low"].to_numpy(), table["high"].to_numpy()
        width = np.nan_to_num(high - low)
        hits += [(low <= truth) & (truth <= high), truth < low, truth > high, width, np.isnan(low)]
    found = pd.DataFrame(
        (hits / simulations).T, columns=["covered", "truth_below", "truth_above", "mean_width", "undefined"]
    )
    found.insert(0, "statistic", table.index)
    found.insert(1, "truth", truth)
    return found


def false_positives(
    population: Population, n: int, *, simulations: int, n_resamples: int = 399, alpha: float = 0.05, seed: int = 0
) -> pd.DataFrame:
    """How often `compare_judges` tells two judges apart: scores 1 and 2 of a population, with 0 as the reference.

    Args:
        population: three scores; both judges correlate equally with the reference for a false-positive rate, else the
            result is power.
        n, simulations, n_resamples, seed: see `coverage`.
        alpha: level of the tests; intervals have confidence 1 - alpha.

    Returns:
        A row for each statistic and test (permutation, williams, steiger, and interval: the bootstrap interval of the
        difference leaves out its true value): rejected, the share of the simulations; undefined.
    """
    truth = population.truth(0, 1) - population.truth(0, 2)
    found: dict[tuple[str, str], list[float]] = {}
    for i, scores, groups in _samples(population, n, simulations, seed):
        table = compare_judges(
            *scores.T, groups=groups, confidence=1 - alpha, n_resamples=n_resamples, seed=i
        ).droplevel(["a", "b"])
        for statistic, true in zip(table.index, truth, strict=True):
            row = table.loc[statistic]
            missed = np.nan if np.isnan(row["low"]) else float(not row["low"] <= true <= row["high"])
            found.setdefault((statistic, "interval"), []).append(missed)
            for test, column in TESTS.items():
                rejected = np.nan if np.isnan(row[column]) else float(row[column] <= alpha)
                found.setdefault((statistic, test), []).append(rejected)
    rows = [
        {"statistic": s, "test": t, "rejected": np.nanmean(v), "undefined": np.isnan(v).mean()}
        for (s, t), v in found.items()
        if not np.isnan(v).all()
    ]
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
        name: "coverage" of `correlate`, or "comparison", the tests of `compare_judges`.
        out: the folder.
        sizes: items of a sample; 50, 200 and 1,000 where None, without the last for comparisons.
        simulations, seed: see `coverage`.

    Returns:
        The file.
    """
    r, between = CORRELATION, BETWEEN_JUDGES
    judges = ((1.0, r, r), (r, 1.0, between), (r, between, 1.0))
    measures: dict[str, tuple[str, Callable[..., pd.DataFrame], Any, Sequence[int]]] = {
        "coverage": ("validity_correlation_coverage.csv", coverage, ((1.0, r), (r, 1.0)), SIZES),
        "comparison": ("validity_comparison.csv", false_positives, judges, SIZES[:2]),
    }
    file, measured, latent, usual = measures[name]
    frames = []
    for n, (scale, cuts), per_group in product(sizes or usual, SCALES.items(), GROUPS):
        population = Population(latent, cuts=cuts, per_group=per_group)
        found = measured(population, n, simulations=simulations, n_resamples=RESAMPLES, seed=seed)
        setting = dict(scale=scale, n=n, items_per_group=per_group)
        account = dict(simulations=simulations, n_resamples=RESAMPLES, seed=seed)
        frames.append(pd.concat([pd.DataFrame([setting] * len(found)), found], axis=1).assign(**account))
        pd.concat(frames).round(4).to_csv(out / file, index=False, lineterminator="\n")
        print(frames[-1].to_string(index=False, float_format="{:.3f}".format), flush=True)
    return out / file
