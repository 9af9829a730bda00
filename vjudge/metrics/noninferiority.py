"""Test that a person is ahead of a judge by less than a margin, on paired items."""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats

from vjudge.metrics.array_types import Floats, Integers
from vjudge.metrics.intervals import effective_number

EXACT_BELOW = 10  # items on which one side is ahead, below which the test is exact
MAX_EXACT = 300  # items, beyond which the score test is as good and the exact one slow
NUISANCES = 60  # values of the nuisance parameter of the exact test


def noninferiority_test(lead: Floats, unit: Integers, epsilon: float) -> float:
    """Test the hypothesis that a person's mean lead is epsilon or more; return its p-value.

    The test is Student's t of a mean over items or groups, as published. Where one side is ahead on
    fewer than 10 items the mean is far from normal: if people are right in .98 to .99 of 30 items,
    a t test at a level of 5 % rejects a true hypothesis in 12 to 16 %. There the test is exact. Of
    items in groups, it then takes the number of groups for n, and reduces the numbers of items
    ahead and behind in proportion.

    Args:
        lead: of n items 1 where the person is ahead, -1 where the judge is, else 0.
        unit: the group of each item, 0..G-1.
        epsilon: the margin, in [0, 1).

    Returns:
        A one-sided p-value; NaN without items, or where the t test has one group alone.

    >>> lead = np.repeat([1.0, -1.0, 0.0], [20, 30, 50])  # the person leads by -.1
    >>> round(noninferiority_test(lead, np.arange(100), 0.1), 4)
    0.0027
    """
    n = len(lead)
    if not n:
        return math.nan
    group_sizes = np.bincount(unit)
    n_groups = len(group_sizes)
    n_ahead = int(np.count_nonzero(lead > 0))
    n_behind = int(np.count_nonzero(lead < 0))
    if min(n_ahead, n_behind) < EXACT_BELOW:
        # Reduce the numbers of items to those of groups, exactly. Rounding goes against the judge:
        # `ahead` is rounded up, `behind` down.
        ahead = -(-n_ahead * n_groups // n)
        behind = n_behind * n_groups // n
        return exact_p(ahead, behind, n_groups, epsilon)
    if n_groups < 2:
        return math.nan
    # The standard error of the mean, from each group's sum of deviations: groups are independent.
    group_sums = np.bincount(unit, lead - lead.mean())
    error = math.sqrt(group_sums @ group_sums * n_groups / (n_groups - 1)) / n
    freedom = effective_number(group_sizes) - 1
    return float(stats.t.cdf((lead.mean() - epsilon) / error, freedom))


def exact_p(ahead: int, behind: int, n: int, epsilon: float) -> float:
    """Compute an exact p-value against a difference of epsilon or more between paired shares.

    In the model a share p + epsilon of the items is ahead, p is behind, and the remaining items are
    tied. The p-value sums the probabilities of all outcomes that speak as much against the
    hypothesis by Tango's score, for the p that makes their sum largest (the unconditional test).
    Thirty ties at an epsilon of .01 have probability .99^30 = .74 at p = 0.

    Beyond 300 items the normal distribution of the score takes its place.

    Args:
        ahead, behind: on how many of n items the person is ahead and behind.
        n: the number of items.
        epsilon: the margin, in [0, 1).

    Returns:
        A one-sided p-value, in [0, 1].

    Source: Tango, Statistics in Medicine 17 (1998), 891-908; Sidik, Journal of Statistical Planning
    and Inference 113 (2003), 209-224, for the unconditional test.

    >>> round(exact_p(0, 0, 30, 0.01), 2)
    0.74
    """
    score = _tango_score(np.array(ahead), np.array(behind), n, epsilon)
    if n > MAX_EXACT:
        return float(stats.norm.cdf(score))
    # 1) All outcomes (a ahead, b behind) that are at least as extreme: their score is as low
    a, b = np.indices((n + 1, n + 1)).reshape(2, -1)
    possible = a + b <= n
    a, b = a[possible], b[possible]
    extreme = _tango_score(a, b, n, epsilon) <= score + 1e-9
    a, b = a[extreme], b[extreme]
    tied = n - a - b
    # 2) Their multinomial probabilities for each p, shape (p, outcomes):
    #    n! / (a! b! tied!) * (p + epsilon)^a * p^b * (1 - epsilon - 2 p)^tied
    log_ways = special.gammaln([n + 1]) - special.gammaln([a + 1, b + 1, tied + 1]).sum(axis=0)
    p = np.linspace(0, (1 - epsilon) / 2, NUISANCES)[:, None]
    logs = special.xlogy(a, p + epsilon) + special.xlogy(b, p)
    logs += special.xlogy(tied, np.maximum(1 - epsilon - 2 * p, 0))
    return float(min(np.exp(log_ways + logs).sum(axis=1).max(), 1.0))


def _tango_score(ahead: Integers, behind: Integers, n: int, epsilon: float) -> Floats:
    """Compute Tango's score: the difference minus epsilon, over its standard error at epsilon.

    The lower the score, the more the items speak against a lead of epsilon.

    Under the hypothesis the share behind is most likely q, the positive root of
    2n q^2 + (2n epsilon - a - b - (a - b) epsilon) q - b epsilon (1 - epsilon) = 0
    for a items ahead and b behind; the variance of the difference of counts is then
    n (2q + epsilon - epsilon^2).
    """
    linear = (2 * n - ahead + behind) * epsilon - ahead - behind
    constant = behind * epsilon * (1 - epsilon)
    q = (np.sqrt(linear**2 + 8 * n * constant) - linear) / (4 * n)
    variance = n * (2 * q + epsilon - epsilon**2)
    return (ahead - behind - n * epsilon) / np.sqrt(np.maximum(variance, 1e-300))
