"""Do the intervals of correlations cover, and do the tests of judges hold their level?

Scores are drawn whose true correlations are known; no judge and no rater gave them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from scipy import stats

from validity.studies import exact
from vjudge.metrics import compare_judges, correlate
from vjudge.metrics.array_types import Floats, Integers
from vjudge.metrics.weighted_correlation import correlations

CUTS = (-1.2, -0.4, 0.4, 1.2)
SHARED = 0.5  # of every latent variance, what the items of a group have in common
SIZES = (50, 200)
GROUPS = (1, 5)  # items of a group: 50 items are 10 groups of 5
R = 0.67
BETWEEN = {"judges correlated .60": 0.6, "judges correlated .91": 0.91}


Latent = tuple[tuple[float, ...], ...]
"""Correlation matrix of the m latent scores of an item, which are normal; cuts are where the next point of a scale
starts, None leaves scores continuous."""


def sample(
    latent: Latent, cuts: Sequence[float] | None, per_group: int, n: int, rng: np.random.Generator
) -> tuple[Floats, Integers | None]:
    """Scores of n items, shape (n, m), and the group of each; None where every group is one item."""
    root = np.linalg.cholesky(np.asarray(latent))
    own = rng.standard_normal((n, len(root))) @ root.T
    groups = None
    if per_group > 1:
        groups = np.arange(n) // per_group
        common = rng.standard_normal((int(groups[-1]) + 1, len(root))) @ root.T
        own = np.sqrt(1 - SHARED) * own + np.sqrt(SHARED) * common[groups]
    return own if cuts is None else np.digitize(own, cuts).astype(float) + 1, groups


def correlations_of(rho: float, cuts: Sequence[float] | None) -> Floats:
    """Pearson, Spearman and Kendall's tau-b of two scores in the population; shape (3,).

    Source: Kruskal, JASA 53 (1958), 814-861, for two normal variables; a scale's from its cell probabilities.
    """
    if cuts is None:
        return np.array([rho, 6 / np.pi * np.arcsin(rho / 2), 2 / np.pi * np.arcsin(rho)])
    grid = np.stack(np.meshgrid(*[np.array([-9.0, *cuts, 9.0])] * 2, indexing="ij"), axis=-1)
    below = stats.multivariate_normal(cov=[[1, rho], [rho, 1]]).cdf(grid)
    cells = np.diff(np.diff(below, axis=0), axis=1)
    x, y = np.indices(cells.shape).reshape(2, -1).astype(float)
    # As counts of so large a sample that pairs of an item with itself don't matter.
    return correlations(x, y, np.maximum(cells.reshape(-1, 1), 0) * 1e12)[:, 0]


def coverage(tables: pd.DataFrame) -> pd.DataFrame:
    """How often intervals hold the truth: a row a statistic, with shares that add up to 1 less undefined."""
    low, high, truth = tables["low"], tables["high"], tables["truth"]
    shares = {
        "covered": truth.between(low, high),
        "truth_below": truth < low,
        "truth_above": truth > high,
    }
    shares |= {"mean_width": (high - low).fillna(0), "undefined": low.isna()}
    cells = pd.DataFrame({"truth": truth, **shares})
    return cells.groupby(level="statistic", sort=False).mean().reset_index()


def false_positives(tables: pd.DataFrame) -> pd.DataFrame:
    """How often two judges who agree with people alike are told apart, a row a statistic."""
    rows = []
    for statistic, part in tables.groupby(level="statistic", sort=False):
        p = part["p"].dropna()
        share = exact(int((p <= 0.05).sum()), len(p), "rejected")
        row = {"statistic": statistic, **share, "undefined": part["p"].isna().mean()}
        rows.append({name.removeprefix("rejected_"): value for name, value in row.items()})
    return pd.DataFrame(rows)


def measure(name: str, *, simulations: int, seed: int) -> pd.DataFrame:
    """ "coverage" of `correlate` on two scores, or "comparison": `compare_judges` on whole scores, with a reference and
    two judges; in all settings."""
    compared = name == "comparison"
    latents = {"": ((1.0, R), (R, 1.0))}
    if compared:
        latents = {label: ((1.0, R, R), (R, 1.0, r), (R, r, 1.0)) for label, r in BETWEEN.items()}
    scales = {"5-point": CUTS} if compared else {"5-point": CUTS, "continuous": None}
    # Few resamples, since what is measured is a mean over the simulations.
    frames, account = (
        [],
        {"simulations": simulations, "n_resamples": 199 if compared else 399, "seed": seed},
    )
    for n, (scale, cuts), per_group, (label, latent) in product(
        SIZES, scales.items(), GROUPS, latents.items()
    ):
        tables, truth = (
            [],
            0.0 if compared else correlations_of(R, cuts),
        )  # two judges agree with people alike
        for i in range(simulations):  # simulation i depends on (seed, i) alone
            scores, groups = sample(latent, cuts, per_group, n, np.random.default_rng([seed, i]))
            options = {"groups": groups, "n_resamples": account["n_resamples"], "seed": i}
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", UserWarning
                )  # undefined resamples are counted in the result
                if compared:
                    table = compare_judges(
                        scores[:, 0], {"a": scores[:, 1], "b": scores[:, 2]}, **options
                    )
                else:
                    table = correlate(*scores.T, **options)
            tables.append(table.assign(truth=truth))
        result = (false_positives if compared else coverage)(pd.concat(tables))
        setting = {"scale": scale, "n": n, "items_per_group": per_group} | (
            {"judges": label} if label else {}
        )
        frames.append(result.assign(**setting, **account)[[*setting, *result, *account]])
        print(frames[-1].to_string(index=False, float_format="{:.3f}".format), flush=True)
    return pd.concat(frames)
