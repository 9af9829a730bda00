"""Tabulate statistics of one sample: a row each, with interval, counts, method and caveats."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Column, Floats, Statistic, Weights
from vjudge.metrics.caveats import add_caveats, unequal_group_caveats, warn, warn_of_rows
from vjudge.metrics.cells import MANY_LEVELS
from vjudge.metrics.columns import check_options
from vjudge.metrics.intervals import (
    INTERVAL,
    NO_WIDTH,
    PERFECT,
    bootstrap_interval,
    fisher_interval,
    t_quantile,
)
from vjudge.metrics.resampling import (
    LARGE,
    MAX_UNITS,
    N_BLOCKS,
    Design,
    bootstrap,
    evaluate,
    jackknife,
)

METHODS = {"t": "Student's", "fisher": "Student's on Fisher's z scale"}


def tabulate(
    statistic: Statistic,
    names: Sequence[Hashable],
    design: Design,
    *,
    n: Column | int | None = None,
    missing: Column | int | None = None,
    method: Literal["t", "fisher"] = "t",
    inflation: Floats | float = 1.0,
    unit: str = "items",
    index: str | Sequence[str] = "statistic",
    reason: str = "too few items, or no variation",
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
    by: Literal["bootstrap", "jackknife"] = "bootstrap",
    pairs: int = 0,
) -> pd.DataFrame:
    """Estimate several statistics of one sample, with intervals.

    Args:
        statistic: a function of weights, shape (cells, replicates), as in `resampling`; its values
            have shape (statistics, replicates).
        names: the row label of each statistic.
        design: the sample.
        n, missing: how many items each statistic uses and lacks; None takes the design's numbers.
        method, confidence: see `intervals.bootstrap_interval`.
        inflation: how many times the bootstrap's variance exceeds the true one, one number or one
            per statistic. The jackknife does not use it.
        unit: what a row of the sample is called in the caption.
        index: the name of the table's index, or of each of its levels.
        reason: why a statistic is undefined, for the warning.
        n_resamples: how many bootstrap samples; of the jackknife, the most units or blocks that are
            left out in turn. 0 leaves the intervals NaN.
        seed: of the resampling.
        by: which method estimates the standard error. Two kinds of designs take the jackknife
            anyway: crossed ones, and those of 20,000 rows or more that have groups or more than 100
            cells. The latter take it over 50 random blocks.
        pairs: how many pairs of units the jackknife leaves out, see `resampling.jackknife`; none of
            a sample in 50 random blocks.

    Returns:
        One row per statistic; columns estimate, low, high, n and missing. With by="jackknife", if
        there are intervals, also error (the standard error, on the z scale if method is "fisher")
        and freedom (its degrees of freedom). `attrs["method"]` is a caption.
    """
    check_options(confidence=confidence, n_resamples=n_resamples)
    # 1) Estimates and counts
    table = pd.DataFrame(np.nan, pd.Index(list(names)).set_names(index), INTERVAL)
    table["n"] = len(design.cell) if n is None else n
    table["missing"] = design.missing if missing is None else missing
    if len(design.cell):
        # The sample itself is a replicate in which each cell has its own count: (cells, 1)
        table["estimate"] = evaluate(statistic, design.counts[:, None])[:, 0]
    estimates = table["estimate"]
    warn_of_rows(table.index[estimates.isna()], f"undefined ({reason})")

    # 2) Intervals
    max_units = _max_units(design, by)
    if estimates.notna().any() and design.n_units < 2:
        warn("intervals are undefined: there is one item, or all belong to one group")
    elif estimates.notna().any() and n_resamples:
        options: dict[str, Any] = {"method": method, "confidence": confidence, "seed": seed}
        if max_units:
            # max_units is N_BLOCKS for a large sample, whose blocks are never left out in pairs.
            options["max_units"] = min(n_resamples, max_units)
            options["pairs"] = pairs if max_units > N_BLOCKS else 0
            bounds = _jackknife_intervals(statistic, estimates, design, **options)
        else:
            options |= {"n_resamples": n_resamples, "inflation": inflation, "reason": reason}
            bounds = _bootstrap_intervals(statistic, estimates, design, **options)
        # Callers who asked for the jackknife test with its error and degrees of freedom.
        columns = list(bounds) if by == "jackknife" else ["low", "high"]
        table[columns] = bounds[columns]
        # A statistic that no resample changes, such as the accuracy of a judge that is always right
        no_width = table.index[table["high"] - table["low"] < NO_WIDTH]
        warn_of_rows(no_width, "all resamples agree: an interval without width says nothing")
        for sizes in design.group_sizes:
            add_caveats(table, unequal_group_caveats(sizes))

    # 3) Caption
    kind = f"bootstrap intervals ({METHODS[method]}), {n_resamples:,} resamples"
    if max_units:
        block = "one" if max_units > N_BLOCKS else f"one of {N_BLOCKS} random blocks"
        kind = f"jackknife intervals ({METHODS[method]}), without {block} in turn"
    units = f"{len(design.cell)} {unit}, seed {seed}"
    if design.group_sizes:
        numbers = " by ".join(str(len(sizes)) for sizes in design.group_sizes)
        units = f"{numbers} groups of {units}"
    table.attrs["method"] = f"{confidence:.0%} {kind} of {units}"
    return table


def _max_units(design: Design, by: str) -> int:
    """Return how many units, or blocks of them, the jackknife may leave out; 0 for the bootstrap.

    The bootstrap of many rows is slow if these are in groups or fall into many cells; else a
    replicate is one draw of the cells' counts.
    """
    is_slow = design.groups is not None or len(design.counts) > MANY_LEVELS
    if is_slow and len(design.cell) >= LARGE:
        return N_BLOCKS
    if by == "jackknife" or design.crossing is not None:
        return MAX_UNITS
    return 0


def _bootstrap_intervals(
    statistic: Statistic,
    estimates: pd.Series,
    design: Design,
    *,
    n_resamples: int,
    inflation: Floats | float,
    reason: str,
    seed: int,
    **options: Any,
) -> pd.DataFrame:
    """Compute low and high of each estimate by the bootstrap.

    `options` are method and confidence, see `bootstrap_interval`.
    """
    replicates = bootstrap(statistic, design, n_resamples=n_resamples, seed=seed)
    inflations = np.broadcast_to(inflation, len(estimates))
    # One interval per statistic, from its replicates, shape (n_resamples,), its estimate and its
    # inflation
    bounds = []
    for row in zip(replicates, estimates, inflations, strict=True):
        bounds.append(bootstrap_interval(*row, n_units=design.n_effective, **options))
    # The largest share of undefined replicates among the statistics with a defined estimate
    undefined = np.isnan(replicates[estimates.notna().to_numpy()]).mean(axis=-1).max()
    if undefined > 0.01:
        explanation = f" ({reason})" if reason else ""
        warn(
            f"a statistic is undefined in {undefined:.0%} of the resamples{explanation}: its"
            " interval leaves them out and is too narrow"
        )
    return pd.DataFrame(bounds, estimates.index, ["low", "high"])


def _jackknife_intervals(
    statistic: Statistic,
    estimates: pd.Series,
    design: Design,
    *,
    method: str,
    confidence: float,
    **options: int,
) -> pd.DataFrame:
    """Compute low, high, standard error and degrees of freedom of each estimate by the jackknife.

    The error is on the z scale if the method is "fisher". `options` are those of `jackknife`.
    """

    # The jackknife takes place on the scale on which the interval is symmetric.
    def on_scale(weights: Weights) -> Floats:
        values = statistic(weights)
        if method == "fisher":
            return np.arctanh(np.clip(values, -PERFECT, PERFECT))
        return values

    variance, freedom = jackknife(on_scale, design, **options)
    error = np.sqrt(variance)
    half_width = t_quantile(confidence, freedom) * error
    low, high = estimates - half_width, estimates + half_width
    if method == "fisher":
        _, low, high = fisher_interval(estimates, half_width).T
    # A statistic may be undefined without one of the units: where a single item has another score
    # than all others, there is no correlation without it.
    undefined = estimates.notna() & np.isnan(error)
    warn_of_rows(estimates.index[undefined], "no interval: undefined without one of the units")
    columns = {"low": low, "high": high, "error": error, "freedom": freedom}
    return pd.DataFrame(columns, estimates.index)
