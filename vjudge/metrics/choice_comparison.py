"""Compare judges of the same pairs: whose choices equal people's more often?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.array_types import Column, Floats, Groups, Integers
from vjudge.metrics.caveats import add_caveats, unequal_group_caveats, warn_of_rows
from vjudge.metrics.cells import indicator_matrix
from vjudge.metrics.columns import check_columns, check_options, judges_by_name
from vjudge.metrics.groups import group_codes, groups_from_ids
from vjudge.metrics.intervals import degrees_of_freedom, t_quantile
from vjudge.metrics.multiple_testing import holm
from vjudge.metrics.verdicts import read_choices

MAX_EXACT_WORK = 20_000_000  # additions; an exact test that takes more is approximated
# The columns that compare two judges, a and b
COMPARED = "estimate_a estimate_b difference low high only_a only_b p".split()


def compare_choices(
    preferences: Column,
    judges: Mapping[str, Column] | pd.DataFrame,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Compare the accuracies of judges of the same pairs, two judges at a time.

    Args:
        preferences: the human choice of each pair, spelled as verdicts are.
        judges: name -> verdicts on the same pairs, or a frame with a column for each; at least two.
        groups, confidence: as in `win_rate`.

    Returns:
        One row per combination of two judges, a and b, and a measure of `pairwise_accuracy`
        (with_ties, without_ties), over the pairs on which both judges have a verdict. Columns:

        - `estimate_a`, `estimate_b`: the accuracies;
        - `difference`, `low`, `high`: a minus b, with its interval;
        - `only_a`, `only_b`: how many pairs only judge a, or only judge b, got right;
        - `p`: two-sided, of the exact sign-flip test below;
        - `p_holm`: p corrected by Holm's method for the number of combinations of two judges,
          separately for each measure;
        - `n`, `missing`: how many pairs count, and how many do not.

    The test compares the sum of the differences with its exact distribution if the difference of
    each group (of each pair, without groups) had either sign with equal chance. Without groups this
    is McNemar's exact test: if one judge alone is right in 8 pairs and the other alone in 2,
    p = 2 * 56 / 1024 = .11.

    Source: McNemar, Psychometrika 12 (1947), 153-157; for groups Yang, Sun and Hardin, Statistics
    in Medicine 29 (2010), here with the exact distribution; for the interval Bonett and Price,
    Journal of Educational and Behavioral Statistics 37 (2012).

    >>> human = ["a"] * 12
    >>> first, second = ["a"] * 10 + ["b"] * 2, ["b"] * 8 + ["a"] * 4
    >>> table = compare_choices(human, {"first": first, "second": second})
    >>> table.loc[("first", "second", "with_ties"), ["only_a", "only_b", "p"]].round(2).tolist()
    [8.0, 2.0, 0.11]
    """
    check_options(confidence=confidence)
    columns = judges_by_name(judges)
    groups, caveats = groups_from_ids(preferences, groups)
    check_columns(preferences=preferences, groups=groups, **columns)
    human, has_preference, _ = read_choices(preferences, people=True)
    choices = {str(name): read_choices(judges[name])[0] for name in judges}  # None: no verdict
    # 1) One row per combination of two judges and a measure
    rows = {}
    for a, b in combinations(choices, 2):
        both = has_preference & pd.notna(choices[a]) & pd.notna(choices[b])
        right = np.stack([choices[a] == human, choices[b] == human])  # (2, pairs)
        for measure, used in (("with_ties", both), ("without_ties", both & (human != "tie"))):
            units = group_codes(groups, used)
            row = _compare_two(right[:, used].astype(float), units, confidence)
            rows[a, b, measure] = row | {"n": len(units), "missing": len(used) - len(units)}
            if groups is not None:
                caveats += unequal_group_caveats(np.bincount(units))
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(rows, names=["a", "b", "measure"])
    # 2) Correction for several tests, method and caveats
    table["p_holm"] = table.groupby(level="measure")["p"].transform(holm)
    warn_of_rows(table.index[table["n"] == 0], "undefined (no pair with both verdicts)")
    if (table["low"].isna() & (table["n"] > 0)).any():
        caveats.append("no interval, since all pairs with both verdicts are one, or of one group")
    unit = "pairs" if groups is None else "groups"
    table.attrs["method"] = (
        f"{confidence:.0%} intervals and exact McNemar tests over {unit}; Holm over"
        f" {len(rows) // 2} pairs of judges"  # each pair has two rows, one per measure
    )
    add_caveats(table, caveats)
    return table[[*COMPARED, "p_holm", "n", "missing"]]


def _compare_two(right: Floats, units: Integers, confidence: float) -> dict[str, float]:
    """Compare two judges' accuracies on n pairs.

    Args:
        right: 1 where a judge's verdict is right, else 0; (2, n).
        units: the unit of sampling of each pair, 0 to G - 1; (n,).

    Returns:
        The values of the columns `COMPARED`; NaN without any pair.
    """
    if not len(units):
        return dict.fromkeys(COMPARED, math.nan)
    difference = right[0] - right[1]  # 1: only a is right; -1: only b; 0: both or neither
    only_a = np.count_nonzero(difference > 0)
    only_b = np.count_nonzero(difference < 0)
    low, high = _difference_interval(difference, units, confidence)
    of_unit = indicator_matrix(units) @ difference
    accuracies = right.mean(axis=1)
    p = sign_flip_p(of_unit)
    row = [*accuracies, difference.mean(), low, high, only_a, only_b, p]
    return dict(zip(COMPARED, row, strict=True))


def _difference_interval(
    difference: Floats, units: Integers, confidence: float
) -> tuple[float, float]:
    """Bound the difference of two paired proportions (Bonett and Price's adjusted Wald interval).

    Args:
        difference: 1, 0 or -1 for each of n pairs; (n,).
        units: the unit of sampling of each pair, 0 to G - 1; (n,).

    Returns:
        The bounds, in [-1, 1]; NaN if all pairs are of one unit.
    """
    n = len(difference)
    sizes = np.bincount(units)
    if len(sizes) < 2:
        return math.nan, math.nan
    # 1) Add one pair that only a gets right and one that only b does, so that no variance is 0
    share_a = (np.count_nonzero(difference > 0) + 1) / (n + 2)
    share_b = (np.count_nonzero(difference < 0) + 1) / (n + 2)
    centre = share_a - share_b
    variance = (share_a + share_b - centre**2) / (n + 2)
    freedom = math.inf
    # 2) With groups the variance is at least that of the delete-one-group jackknife
    if len(sizes) < n:
        of_unit = indicator_matrix(units) @ difference
        # How far the mean moves without each unit; (G,)
        deviation = (of_unit - difference.mean() * sizes) / (n - sizes)
        jackknife = deviation @ deviation * (len(sizes) - 1) / len(sizes)
        variance = max(variance, jackknife)
        freedom = degrees_of_freedom(sizes)
    half_width = t_quantile(confidence, freedom) * math.sqrt(variance)
    return max(centre - half_width, -1.0), min(centre + half_width, 1.0)


def sign_flip_p(differences: Floats) -> float:
    """Compute the two-sided p value of a sign-flip test of a sum of differences.

    Under the hypothesis each difference has either sign with equal chance. The p value is exact,
    over all 2^n assignments of signs to n differences, unless that takes long; then the normal
    distribution is used. If all differences are 1 or -1, it is the sign test.

    Args:
        differences: whole numbers, (n,).

    Source: Fisher, The Design of Experiments (1935), section 21.

    >>> sign_flip_p(np.array([1, 1, 1, -1])), sign_flip_p(np.array([3, 1, -1]))
    (0.625, 0.75)
    """
    sizes = np.abs(differences[differences != 0]).astype(np.int64)
    if not len(sizes):
        return 1.0
    total = int(sizes.sum())
    observed = abs(float(differences.sum()))
    if total * len(sizes) > MAX_EXACT_WORK:
        return float(2 * stats.norm.sf(observed / np.linalg.norm(sizes)))
    # Add one difference after another: `chance[s]` is the probability that, of the differences so
    # far, those with a positive sign sum to s. Sizes 3 and 1: sums 0, 1, 3 and 4 with 1/4 each.
    chance = np.zeros(total + 1)
    chance[0] = 1.0
    for size in sizes:
        chance[size:] += chance[:-size].copy()
        chance /= 2
    # If the positive differences sum to s, the negative ones sum to total - s
    signed_sums = 2 * np.arange(total + 1) - total
    as_extreme = np.abs(signed_sums) >= observed - 1e-9
    return min(float(chance[as_extreme].sum()), 1.0)
