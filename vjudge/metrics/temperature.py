"""Temperature scaling: how over- or underconfident a judge's distributions over scores are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, special

from vjudge.metrics.array_types import Floats, Groups
from vjudge.metrics.caveats import add_caveats, unequal_group_caveats
from vjudge.metrics.cells import indicator_matrix
from vjudge.metrics.columns import check_items, check_options
from vjudge.metrics.groups import unit_codes
from vjudge.metrics.intervals import INTERVAL, degrees_of_freedom, t_quantile
from vjudge.records import from_csv

MIN_LABELLED = 10  # items with a distribution and a true score
LOG_RANGE = (-4.0, 4.0)  # of log temperatures that are searched
STEP = 1e-4  # of a log temperature, for a numerical slope


def temperature_scaling(
    probabilities: pd.Series,
    truth: pd.Series,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.Series:
    """Find the temperature at which a judge's distributions over scores fit the truth best.

    Args:
        probabilities: for each item a mapping score -> probability (a run's column), None where
            there is none.
        truth: the true score by the same index, NaN where unknown.
        groups: the sampling unit of each item, such as its image; None: each item is a unit.
        confidence: of the interval, by the likelihood ratio; it is wider where the items of a group
            are similar.

    Returns:
        `estimate`, `low`, `high`: the temperature, above 1 for an overconfident judge and below 1
        for an underconfident one. A bound is NaN if it lies outside of exp(-4) to exp(4). `n` and
        `missing`: the numbers of items used and left out. `scaled(probabilities, temperature)`
        applies a temperature.

    Raises:
        ValueError: fewer than ten items have both, or a distribution lacks the true score.

    >>> rng = np.random.default_rng(0)
    >>> share = rng.uniform(0.2, 0.8, size=3000)
    >>> truth = pd.Series((rng.random(3000) < share).astype(float))
    >>> odds = (share / (1 - share)) ** 2  # as sure as a temperature of one half makes it
    >>> judge = pd.Series([{0: 1 / (1 + o), 1: o / (1 + o)} for o in odds])
    >>> round(float(temperature_scaling(judge, truth)["estimate"]), 1)
    2.1

    Source: Guo et al., On Calibration of Modern Neural Networks (ICML 2017), section 4.2; in groups
    Rotnitzky and Jewell, Biometrika 77 (1990), 485-497.
    """
    check_options(confidence=confidence)
    check_items(probabilities=probabilities, truth=truth)
    # The items that have both, in the order of `truth`
    labelled = truth.dropna().index.intersection(probabilities.dropna().index)
    if len(labelled) < MIN_LABELLED:
        raise ValueError(f"{len(labelled)} items have a distribution and a truth: use ten or more")
    predictions = Predictions.of(probabilities[labelled], truth[labelled])
    # 1) The temperature of the lowest loss
    best = optimize.minimize_scalar(predictions.loss, bounds=LOG_RANGE, method="bounded")
    # 2) With groups: how much more the slope of the loss at the best temperature varies than it
    # would with independent items
    freedom = math.inf
    design_effect = 1.0
    caveats = []
    if groups is not None:
        units = unit_codes(groups, truth.index, truth.index.isin(labelled))
        above = predictions.losses(best.x + STEP)
        slopes = (above - predictions.losses(best.x - STEP)) / (2 * STEP)  # (n,)
        of_unit = indicator_matrix(units) @ slopes
        sizes = np.bincount(units)
        small_sample = len(sizes) / max(len(sizes) - 1, 1)
        design_effect = max(of_unit @ of_unit / (slopes @ slopes) * small_sample, 1.0)
        freedom = degrees_of_freedom(sizes)
        caveats = unequal_group_caveats(sizes)
    # 3) The interval holds the temperatures that a likelihood ratio test does not reject: those
    # whose loss is at most `limit`. On either side of the best one, the bound is where the loss
    # crosses the limit, if it does so within the range.
    limit = best.fun + t_quantile(confidence, freedom) ** 2 / 2 * design_effect
    bounds = []
    for edge in LOG_RANGE:
        bound = math.nan
        if predictions.loss(edge) > limit:
            bound = math.exp(optimize.brentq(lambda t: predictions.loss(t) - limit, best.x, edge))
        bounds.append(bound)
    result = pd.Series([math.exp(best.x), *bounds], index=INTERVAL)
    result["n"] = len(labelled)
    result["missing"] = len(truth) - len(labelled)
    add_caveats(result, caveats)
    return result


@dataclass(frozen=True)
class Predictions:
    """A judge's distributions over scores for n items, and their true scores."""

    log_probabilities: Floats  # (n, scores)
    of_truth: Floats  # (n,), the log probability of each item's true score

    @classmethod
    def of(cls, probabilities: pd.Series, truth: pd.Series) -> Predictions:
        """Read distributions of items that all have a truth; arguments as in `temperature_scaling`.

        Raises:
            ValueError: a true score is absent from all distributions, or has probability 0 in its
                own.
        """
        distributions = list(map(from_csv, probabilities))
        table = pd.DataFrame(distributions, index=truth.index).rename(columns=float)
        column = table.columns.get_indexer(truth)  # of each true score; -1 if no column has it
        absent = truth.index[column < 0]
        if len(absent):
            raise ValueError(f"the truth of item {absent[0]!r} is none of {list(table)}")
        # A probability of 0 becomes 1e-30, whose logarithm is finite. A score that an item's
        # distribution lacks has a log probability of minus infinity. Both are below 1e-29, and
        # neither may be the true score.
        logs = np.log(table.astype(float).clip(lower=1e-30)).fillna(-np.inf).to_numpy()
        of_truth = logs[np.arange(len(truth)), column]
        impossible = truth.index[of_truth < np.log(1e-29)]
        if len(impossible):
            raise ValueError(
                f"{len(impossible)} items, such as {impossible[0]!r}, give their true score no"
                " probability, which no temperature mends: leave them out, or read the whole scale"
            )
        return cls(logs, of_truth)

    def losses(self, log_temperature: float) -> Floats:
        """Compute the negative log probability of each true score at a temperature.

        Args:
            log_temperature: the natural logarithm of the temperature.

        Returns:
            The loss of each item; (n,).
        """
        temperature = math.exp(log_temperature)
        normaliser = special.logsumexp(self.log_probabilities / temperature, axis=1)
        return normaliser - self.of_truth / temperature

    def loss(self, log_temperature: float) -> float:
        """Sum the losses of all items at a temperature, given by its natural logarithm."""
        return float(self.losses(log_temperature).sum())


def scaled(probabilities: Mapping[Any, float], temperature: float) -> dict[Any, float]:
    """Scale a distribution over scores by a temperature: p^(1 / temperature), summing to 1.

    Args:
        probabilities: score -> probability.
        temperature: above 0; above 1 it flattens the distribution.

    Returns:
        Score -> probability, rounded to twelve decimals.

    Source: as `temperature_scaling`.

    >>> scaled({1: 0.2, 2: 0.8}, 2.0)
    {1: 0.333333333333, 2: 0.666666666667}
    """
    powers = pd.Series(dict(probabilities), dtype=float) ** (1 / temperature)
    return (powers / powers.sum()).round(12).to_dict()
