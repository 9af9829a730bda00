"""How many independent judges a panel with correlated errors amounts to."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Floats, Groups, Weights
from vjudge.metrics.caveats import add_caveats
from vjudge.metrics.coefficients import mean_of_defined
from vjudge.metrics.columns import check_columns
from vjudge.metrics.groups import balanced_group_caveats, design_of, groups_from_ids
from vjudge.metrics.intervals import INTERVAL
from vjudge.metrics.tables import tabulate
from vjudge.metrics.weighted_correlation import correlations


def effective_judges(
    errors: pd.DataFrame,
    *,
    groups: Groups = None,
    n_resamples: int = 2_000,
    **options: Any,
) -> pd.DataFrame:
    """Estimate how many independent judges a panel with correlated errors is worth.

    Args:
        errors: one row per item and one column per judge: score minus truth, or 1 where the judge
            is wrong and 0 where it is right. An item that lacks the error of a judge (NaN) is left
            out and counted.
        groups: the unit of resampling of each item, see `correlate`.
        n_resamples: how many bootstrap samples; 0 leaves the intervals NaN.
        options: confidence and seed, see `correlate`.

    Returns:
        Rows error_correlation (the mean over pairs of judges), effective_judges and next_judge (how
        many one more judge with errors as correlated would add); columns estimate, low, high, n
        (items) and missing.

    Raises:
        ValueError: there are fewer than two judges, or a judge's errors are all the same.

    >>> rng = np.random.default_rng(0)
    >>> shared = rng.normal(size=(500, 1))
    >>> errors = pd.DataFrame(shared + rng.normal(size=(500, 9)))  # correlated by one half
    >>> round(float(effective_judges(errors).loc["effective_judges", "estimate"]), 1)
    1.7

    Source: Kish's effective sample size k / (1 + (k - 1) r), as for judges in arXiv 2605.29800.
    """
    groups, caveats = groups_from_ids(errors, groups)
    check_columns(errors=errors, groups=groups)
    used = errors.notna().all(axis=1).to_numpy()
    complete = errors[used].astype(float)
    n, k = complete.shape
    if k < 2:
        raise ValueError(f"errors has {k} column(s): a panel is two judges or more")
    constant = complete.columns[complete.nunique() < 2]
    if len(constant):
        raise ValueError(
            f"the errors of {', '.join(map(str, constant))} are all the same: their correlation"
            " with others is undefined"
        )
    pairs = list(combinations(complete.to_numpy().T, 2))

    def mean_correlation(weights: Weights) -> Floats:
        """Average Pearson's r over pairs of judges, shape (1, replicates)."""
        return mean_of_defined(
            [correlations(x, y, weights, statistics=["pearson"]) for x, y in pairs]
        )

    # Each item is a cell of its own, since errors may be continuous.
    table = tabulate(
        mean_correlation,
        ["error_correlation"],
        design_of(np.arange(n), groups, used),
        method="fisher",
        n_resamples=n_resamples,
        **options,
    )
    add_caveats(table, [*caveats, *balanced_group_caveats(groups, used)])
    r = table.loc["error_correlation", INTERVAL]
    # Kish: k judges are worth k / (1 + (k - 1) r). Of nine judges with r = .5: 9 / (1 + 4) = 1.8.
    # The higher r, the fewer judges they are worth, so that the low bound of r makes the high bound
    # of their number. Judges whose errors cancel (r < 0) count as independent ones, no more.
    swapped = r.rename({"low": "high", "high": "low"}).clip(lower=0)
    n_judges = k / (1 + (k - 1) * swapped)
    with_one_more = (k + 1) / (1 + k * swapped)
    rows = {
        "error_correlation": r,
        "effective_judges": n_judges,
        "next_judge": with_one_more - n_judges,
    }
    result = pd.DataFrame(rows).T[INTERVAL].assign(n=n, missing=len(errors) - n)
    result.attrs = table.attrs
    return result
