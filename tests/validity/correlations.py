"""Do the intervals of correlations cover, do the tests of judges hold their level, and what are chosen labels worth?"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from validity.populations import CUTS, Population
from validity.studies import exact
from vjudge.metrics import compare_judges, correlate, label_weights, next_labels

SIZES = (50, 200)
GROUPS = (1, 5)  # items of a group: 50 items are 10 groups of 5
SCALES = {"5-point": CUTS, "continuous": None}
R = 0.67
BETWEEN = {"judges correlated .60": 0.6, "judges correlated .91": 0.91}
RESAMPLES = {"coverage": 399, "comparison": 199}  # few, since what is measured is a mean over the simulations
ACCOUNT = ("simulations", "n_resamples", "seed")
RHO = 0.7  # correlation of what judge and people see, before it is put on the scale


def coverage(population: Population, n: int, *, simulations: int, seed: int) -> pd.DataFrame:
    """How often the 95 % intervals of `correlate` hold the true correlation of a population's first two scores: a row a
    statistic, with shares of the simulations that add up to 1 less undefined."""
    truth = population.truth()
    hits = np.zeros((5, len(truth)))
    for i in range(simulations):  # simulation i depends on (seed, i) alone
        scores, groups = population.sample(n, np.random.default_rng([seed, i]))
        table = correlate(*scores.T, groups=groups, n_resamples=RESAMPLES["coverage"], seed=i)
        low, high = table["low"].to_numpy(), table["high"].to_numpy()
        inside = (low <= truth) & (truth <= high)
        hits += [inside, truth < low, truth > high, np.nan_to_num(high - low), np.isnan(low)]
    columns = ["covered", "truth_below", "truth_above", "mean_width", "undefined"]
    result = pd.DataFrame((hits / simulations).T, columns=columns)
    result.insert(0, "statistic", list(table.index))
    result.insert(1, "truth", truth)
    return result


def false_positives(population: Population, n: int, *, simulations: int, seed: int) -> pd.DataFrame:
    """How often `compare_judges` tells two judges apart: scores 1 and 2 of a population, with 0 as the reference.

    A row for each statistic and test: permutation, and interval (the bootstrap interval of the difference leaves out
    its true value).
    """
    truth = population.truth(0, 1) - population.truth(0, 2)
    flags: dict[tuple[str, str], list[float]] = {}
    for i in range(simulations):
        scores, groups = population.sample(n, np.random.default_rng([seed, i]))
        judges = {"a": scores[:, 1], "b": scores[:, 2]}
        table = compare_judges(scores[:, 0], judges, groups=groups, n_resamples=RESAMPLES["comparison"], seed=i)
        for (statistic, row), true in zip(table.droplevel(["a", "b"]).iterrows(), truth, strict=True):
            missed = np.nan if np.isnan(row["low"]) else float(not row["low"] <= true <= row["high"])
            flags.setdefault((str(statistic), "interval"), []).append(missed)
            flags.setdefault((str(statistic), "permutation"), []).append(float(row["p"] <= 0.05))
    rows = []
    for (statistic, test), values in flags.items():
        defined = np.array(values)[~np.isnan(values)]
        share = exact(int(defined.sum()), len(defined), "rejected")
        row = {"statistic": statistic, "test": test, **share, "undefined": float(np.isnan(values).mean())}
        rows.append({name.removeprefix("rejected_"): value for name, value in row.items()})
    return pd.DataFrame(rows)


def measure(name: str, *, sizes: Sequence[int] | None, simulations: int, seed: int) -> pd.DataFrame:
    """ "coverage" of `correlate`, or "comparison", the tests of `compare_judges` on whole scores, in all settings."""
    frames = []
    scales = [scale for scale in SCALES.items() if name == "coverage" or scale[1] is not None]
    for n, (scale, cuts), per_group in product(sizes or SIZES, scales, GROUPS):
        for label, between in BETWEEN.items() if name == "comparison" else [("", 0.0)]:
            setting: dict[str, Any] = dict(scale=scale, n=n, items_per_group=per_group)
            options: dict[str, Any] = dict(simulations=simulations, seed=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # undefined resamples are counted in the result
                if name == "coverage":
                    result = coverage(Population.pair(R, cuts=cuts, per_group=per_group), n, **options)
                else:
                    latent = ((1.0, R, R), (R, 1.0, between), (R, between, 1.0))
                    result = false_positives(Population(latent, cuts=cuts, per_group=per_group), n, **options)
                    setting["judges"] = label
            frames.append(
                result.assign(**setting, **options, n_resamples=RESAMPLES[name])[[*setting, *result, *ACCOUNT]]
            )
            print(frames[-1].to_string(index=False, float_format="{:.3f}".format), flush=True)
    return pd.concat(frames)


def labelling(
    *, n_items: int = 500, budgets: Sequence[int] = (20, 40, 80, 160), simulations: int = 100,
    n_resamples: int = 1_000, seed: int = 0,
) -> pd.DataFrame:  # fmt: skip
    """Label a simulated judge's items in two orders, ten at a time, and see how narrow its correlation's interval gets.

    A row an order ("chosen" by `Review.next_best`'s rule, "random") and number of labels: `width` (mean width of the
    95 % interval of Pearson's r) with the t interval of that mean, `covered` (share of intervals that hold the
    population's correlation). Scores are on a 5-point scale, extreme ones being rare.
    """
    truth = float(np.corrcoef(*_scores(np.random.default_rng((seed, 0)), 1_000_000))[0, 1])
    rows = []
    for simulation in range(simulations):
        rng = np.random.default_rng((seed, 1, simulation))
        judge, human = _scores(rng, n_items)
        order = rng.permutation(n_items)
        chosen = np.full(n_items, np.nan)
        for labels in budgets:
            while (held := int(np.isfinite(chosen).sum())) < labels:
                positions = next_labels(judge, chosen, n=min(10, labels - held), seed=seed + simulation)["position"]
                chosen[positions] = human[positions]
            drawn = np.full(n_items, np.nan)
            drawn[order[:labels]] = human[order[:labels]]
            tables = {
                "chosen": correlate(judge, chosen, weights=label_weights(judge, chosen)),
                "random": correlate(judge, drawn, n_resamples=n_resamples, seed=seed + simulation),
            }
            for name, table in tables.items():
                low, high = table.loc["pearson", ["low", "high"]]
                rows.append((name, labels, high - low, low <= truth <= high))
    drawn_rows = pd.DataFrame(rows, columns=["order", "labels", "width", "covered"])
    grouped = drawn_rows.groupby(["order", "labels"])
    result = grouped.agg(width=("width", "mean"), error=("width", "sem"), covered=("covered", "mean"))
    reach = stats.t.ppf(0.975, simulations - 1) * result.pop("error")
    result.insert(1, "low", result["width"] - reach)
    result.insert(2, "high", result["width"] + reach)
    return result.reset_index().assign(simulations=simulations)


def _scores(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    seen = rng.standard_normal(n)
    judged = RHO * seen + np.sqrt(1 - RHO**2) * rng.standard_normal(n)
    return np.digitize(judged, [-1.9, -1.2, -0.3, 0.9]) + 1.0, np.digitize(seen, [-1.2, -0.5, 0.2, 1]) + 1.0
