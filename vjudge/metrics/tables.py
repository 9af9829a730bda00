"""Statistics as they go out: a row each, with interval, counts, method and caveats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Column, Floats, Statistic, Weights
from vjudge.metrics.caveats import add_caveats, unequal_group_caveats, warn, warn_of_rows
from vjudge.metrics.cells import MANY_LEVELS
from vjudge.metrics.columns import check_options
from vjudge.metrics.resampling import (
    LARGE,
    MAX_UNITS,
    N_BLOCKS,
    PERFECT,
    Design,
    evaluate,
    fisher_interval,
    interval,
    jackknife,
    replicates,
    t_quantile,
)

INTERVAL = ["estimate", "low", "high"]
NO_WIDTH = 1e-12
METHODS = {"t": "Student's", "fisher": "Student's on Fisher's z scale"}


def tabulate(
    statistic: Statistic,
    names: Sequence[Any],
    design: Design,
    *,
    n: Column | int | None = None,
    missing: Column | int | None = None,
    method: str = "t",
    inflation: Floats | float = 1.0,
    unit: str = "items",
    index: str | Sequence[str] = "statistic",
    why: str = "too few items, or no variation",
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
    by: Literal["bootstrap", "jackknife"] = "bootstrap",
    pairs: int = 0,
) -> pd.DataFrame:
    """Estimate several statistics of one sample, a row each: estimate, low, high, n, missing.

    Args:
        statistic, names: a function of weights, as in `resampling`, and what its values are called.
        design: the sample. n, missing: counts of each row; None takes the design's.
        method, inflation: see `resampling.interval`; an inflation of each row, or one.
        unit, why: words for a row of the sample, and for what a NaN means.
        by: where the standard error comes from; always the jackknife in a crossed design, and over
            50 random blocks from 20,000 rows on in groups, or of more than 100 distinct rows.
        pairs: of units, see `resampling.jackknife`.
    """
    check_options(confidence=confidence, n_resamples=n_resamples)
    # 1) estimates and counts
    table = pd.DataFrame(np.nan, pd.Index(list(names)).set_names(index), INTERVAL)
    table["n"] = len(design.cell) if n is None else n
    table["missing"] = design.missing if missing is None else missing
    if len(design.cell):
        table["estimate"] = evaluate(statistic, design.counts[:, None])[:, 0]
    estimates = table["estimate"]
    undefined = estimates.isna()
    warn_of_rows(table.index[undefined], f"undefined ({why})")
    # 2) intervals
    kind = f"bootstrap intervals ({METHODS[method]}), {n_resamples:,} resamples"
    costly = design.groups is not None or len(design.counts) > MANY_LEVELS
    is_large = len(design.cell) >= LARGE and costly
    jackknifed = by == "jackknife" or design.second is not None or is_large
    if jackknifed:
        block = f"one of {N_BLOCKS} random blocks" if is_large else "one"
        kind = f"jackknife intervals ({METHODS[method]}), without {block} in turn"
    groupings = [codes for codes in (design.groups, design.second) if codes is not None]
    sizes = [np.bincount(codes) for codes in groupings]
    if not undefined.all() and design.n_units < 2:
        warn("intervals are undefined: there is one item, or all belong to one group")
    elif not undefined.all() and n_resamples:
        options: dict[str, Any] = {"method": method, "confidence": confidence, "seed": seed}
        if jackknifed:
            max_units = min(n_resamples, N_BLOCKS if is_large else MAX_UNITS)
            options |= {"max_units": max_units, "pairs": 0 if is_large else pairs}
            bounds = _jackknifed(statistic, estimates, design, **options)
        else:
            options |= {"inflation": inflation, "why": why}
            bounds = _bootstrapped(statistic, estimates, design, n_resamples, **options)
        columns = list(bounds) if by == "jackknife" else ["low", "high"]
        table[columns] = bounds[columns]
        flat = table["high"] - table["low"] < NO_WIDTH
        warn_of_rows(
            table.index[flat], "all resamples agree: an interval without width says nothing"
        )
        add_caveats(table, chain.from_iterable(map(unequal_group_caveats, sizes)))
    # 3) method
    units = f"{len(design.cell)} {unit}, seed {seed}"
    if sizes:
        units = f"{' by '.join(str(len(counts)) for counts in sizes)} groups of {units}"
    table.attrs["method"] = f"{confidence:.0%} {kind} of {units}"
    return table


def _bootstrapped(
    statistic: Statistic,
    estimates: pd.Series,
    design: Design,
    n_resamples: int,
    *,
    inflation: Floats | float,
    why: str,
    seed: int,
    **options: Any,
) -> pd.DataFrame:
    """Low and high of each estimate by the bootstrap."""
    drawn = replicates(statistic, design, n_resamples=n_resamples, seed=seed)
    factors = np.broadcast_to(inflation, len(estimates))
    bounds = []
    for row in zip(drawn, estimates, factors, strict=True):
        bounds.append(interval(*row, n_units=design.n_effective, **options))
    lost = np.isnan(drawn[estimates.notna().to_numpy()]).mean(axis=-1).max()
    if lost > 0.01:
        reason = f" ({why})" if why else ""
        warn(
            f"a statistic is undefined in {lost:.0%} of the resamples{reason}: its interval"
            " leaves them out and is too narrow"
        )
    return pd.DataFrame(bounds, estimates.index, ["low", "high"])


def _jackknifed(
    statistic: Statistic,
    estimates: pd.Series,
    design: Design,
    *,
    method: str,
    confidence: float,
    **options: int,
) -> pd.DataFrame:
    """Low, high, standard error (on the scale of the method) and degrees of freedom, by row."""

    def scaled(weights: Weights) -> Floats:
        value = statistic(weights)
        return np.arctanh(np.clip(value, -PERFECT, PERFECT)) if method == "fisher" else value

    variance, freedom = jackknife(scaled, design, **options)
    error = np.sqrt(variance)
    reach = t_quantile(confidence, freedom) * error
    low, high = estimates - reach, estimates + reach
    if method == "fisher":
        _, low, high = fisher_interval(estimates, reach).T
    undefined = estimates.notna() & np.isnan(error)
    warn_of_rows(estimates.index[undefined], "no interval: undefined without one of the units")
    columns = {"low": low, "high": high, "error": error, "freedom": freedom}
    return pd.DataFrame(columns, estimates.index)
