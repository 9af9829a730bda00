"""The level of a test, and Holm's correction of p-values for multiple testing."""

from __future__ import annotations

import numpy as np

from vjudge.metrics.array_types import Column, Floats

ALPHA = 0.05  # the level of a test, after Holm's correction where there are several


def holm(p: Column) -> Floats:
    """Correct p-values for their number by Holm's step-down method.

    The result equals statsmodels' `multipletests`, which collects Python's garbage at every call
    (.15 s).

    Args:
        p: p-values, shape (n,); NaN stays NaN and is not counted.

    Returns:
        Corrected p-values in [0, 1], shape (n,).

    Source: Holm, Scandinavian Journal of Statistics 6 (1979), 65-70.

    >>> holm([0.04, float("nan"), 0.01]).tolist()
    [0.04, nan, 0.02]
    """
    p = np.asarray(p)
    order = np.argsort(p, kind="stable")  # NaN last
    n_tests = np.count_nonzero(~np.isnan(p))
    # The smallest p is multiplied by the number of tests, the next by that number minus 1 ...
    factors = n_tests - np.arange(len(p))
    corrected = np.empty(len(p))
    # ... and no p becomes smaller than one before it.
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1)
    return corrected
