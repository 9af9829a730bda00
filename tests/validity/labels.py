"""Reviews in which only some items are labelled: what choosing them is worth against random order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics import correlate, label_weights, next_labels

RHO = 0.7  # correlation of what judge and people see, before it is put on the scale


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
