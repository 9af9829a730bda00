"""Confidence intervals from a standard error or from replicates: Student's t and Fisher's z."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from vjudge.metrics.array_types import Column, Floats

INTERVAL = ["estimate", "low", "high"]  # the columns of an estimate with its interval
NO_WIDTH = 1e-12  # a width or a standard error below this is only a rounding error
PERFECT = 1 - 1e-9  # a correlation of this size or more counts as 1, whose Fisher's z is infinite


def t_quantile(confidence: float, freedom: Floats | float = np.inf) -> Any:
    """Return the two-sided quantile of Student's t; with infinite freedom, the normal one.

    >>> [round(float(t_quantile(0.95, freedom)), 2) for freedom in (9, np.inf)]
    [2.26, 1.96]
    """
    return stats.t.ppf((1 + confidence) / 2, freedom)


def effective_number(sizes: Sequence[float] | NDArray) -> float:
    """Count the groups of equal size that weigh as much as groups of these sizes.

    This is Kish's effective sample size, (sum of sizes)^2 / sum of squared sizes. Ten groups of
    one size are ten; one that holds half of all items beside fifty others is about four.

    Source: Kish, Survey Sampling (1965), section 11.7.

    >>> round(effective_number([5] * 10), 9), round(effective_number([50] + [1] * 50), 1)
    (10.0, 3.9)
    """
    share = np.asarray(sizes, dtype=float) / np.sum(sizes)
    return float(1 / (share @ share))


def degrees_of_freedom(sizes: Sequence[float] | NDArray) -> float:
    """Return the degrees of freedom of a variance over groups of these sizes, at least 1."""
    return max(effective_number(sizes) - 1, 1.0)


def mean_interval(table: Column, confidence: float) -> Floats:
    """Average each column over n rows, with Student's interval on n - 1 degrees of freedom.

    Args:
        table: shape (n, columns), or (n,) for one column.
        confidence: coverage of the intervals, in (0, 1).

    Returns:
        Mean, low and high of each column, shape (columns, 3). The mean of no row is NaN, and so are
        the bounds of fewer than two rows.
    """
    frame = pd.DataFrame(table, dtype=float)
    mean = frame.mean()
    half_width = t_quantile(confidence, len(frame) - 1) * frame.sem()
    return np.column_stack([mean, mean - half_width, mean + half_width])


def fisher_interval(estimate: Floats | float, half_width: Floats) -> Floats:
    """Make intervals of correlations that are symmetric on Fisher's z scale, z = arctanh(r).

    Args:
        estimate: correlations in [-1, 1], shape (n,).
        half_width: half the width of each interval on the z scale, shape (n,).

    Returns:
        Estimate, low and high, shape (n, 3).

    >>> fisher_interval(np.array([0.5]), np.array([0.4])).round(2).tolist()
    [[0.5, 0.15, 0.74]]
    """
    z = np.arctanh(np.clip(estimate, -PERFECT, PERFECT))
    return np.column_stack([estimate, np.tanh(z - half_width), np.tanh(z + half_width)])


def bootstrap_interval(
    replicates: Floats,
    estimate: float,
    inflation: float = 1.0,
    *,
    method: str,
    n_units: float,
    confidence: float,
) -> tuple[float, float]:
    """Compute Student's interval with the bootstrap's standard error.

    On Fisher's z scale, a perfect correlation (1 or -1) has no such interval. If the estimate or
    all replicates are perfect, the interval is the range of the replicates.

    Args:
        replicates: the statistic in each bootstrap sample; undefined (NaN) ones are left out.
        estimate: the statistic in the sample itself.
        inflation: how many times the variance of the replicates exceeds the true one.
        method: "t" for the statistic's own scale, "fisher" for Fisher's z scale of correlations.
        n_units: how many independent units were resampled; may be an effective number. The
            interval has n_units - 1 degrees of freedom, at least one, and the variance of the
            replicates is multiplied by n_units / (n_units - 1), since the bootstrap divides by n.
        confidence: coverage of the interval, in (0, 1).

    Returns:
        Low and high; NaN if the estimate or more than half of the replicates are undefined.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 12; Fisher,
    Metron 1 (1921), 3-32.
    """
    defined = replicates[~np.isnan(replicates)]
    if 2 * len(defined) < len(replicates) or not np.isfinite(estimate):
        return np.nan, np.nan
    freedom = max(n_units - 1, 1.0)
    # Half the width of the interval in standard deviations of the replicates
    reach = t_quantile(confidence, freedom) * np.sqrt((freedom + 1) / freedom / inflation)
    if method == "t":
        half_width = float(reach * defined.std())
        return estimate - half_width, estimate + half_width

    size = np.abs(defined)
    imperfect = size[size < PERFECT]
    if abs(estimate) >= PERFECT or not len(imperfect):
        return float(defined.min()), float(defined.max())
    # A perfect replicate has an infinite z: it counts as half as far from 1 as the nearest
    # imperfect one. Beside replicates of at most .98 it counts as .99.
    limit = (1 + max(imperfect.max(), abs(estimate))) / 2
    z = np.arctanh(np.clip(defined, -limit, limit))
    _, low, high = fisher_interval(estimate, reach * z.std())[0]
    return float(low), float(high)
