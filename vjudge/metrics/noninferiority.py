"""Tests that a person is ahead of a judge by less than a margin, on paired items."""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats

from vjudge.metrics.array_types import Floats, Integers
from vjudge.metrics.intervals import effective_number

EXACT_BELOW = 10  # items of a kind, below which the t test gives way to an exact one
NUISANCE = 60  # values of the nuisance share
EXACT = 300  # items, beyond which the score test is as good and the exact one slow


def p_below(lead: Floats, unit: Integers, epsilon: float) -> float:
    """The p-value against a mean lead of epsilon or more.

    Args:
        lead: of n items 1 where the person is ahead, -1 where the judge is, else 0.
        unit: the group of each item, 0..G-1.

    Where one of them is ahead on a few items only, the mean is far from normal: with people right
    in .98 to .99 of 30 items a t test rejects in 12 to 16 % at 5 %. The exact test is taken there;
    of items in groups each group counts as one, with its share of the items.
    """
    n = len(lead)
    if not n:
        return math.nan
    size = np.bincount(unit)
    ahead = np.count_nonzero(lead > 0)
    behind = np.count_nonzero(lead < 0)
    if min(ahead, behind) < EXACT_BELOW:
        share = len(size) / n  # 1 without groups
        return noninferiority(
            math.ceil(ahead * share), math.floor(behind * share), len(size), epsilon
        )
    # Student's t of a mean over items, with the sums over groups as independent
    surplus = np.bincount(unit, lead - lead.mean())
    error = math.sqrt(surplus @ surplus * len(size) / (len(size) - 1)) / n
    freedom = effective_number(size) - 1
    return float(stats.t.cdf((lead.mean() - epsilon) / error, freedom))


def noninferiority(ahead: int, behind: int, n: int, epsilon: float) -> float:
    """The exact p-value against a difference of epsilon or more between paired shares.

    Of n items, a share p + epsilon is ahead, p behind, the rest tied. All outcomes that speak as
    much against this by Tango's score are added up, for the p that makes them likeliest. Thirty
    ties at an epsilon of .01 are .99^30 = .74 likely where p is 0. Beyond 300 items the normal
    distribution of the score takes its place.

    Source: Tango, Statistics in Medicine 17 (1998), 891-908; Sidik, Journal of Statistical Planning
    and Inference 113 (2003), 209-224, for the unconditional test.

    >>> round(noninferiority(0, 0, 30, 0.01), 2)
    0.74
    """
    score = _tango(np.array(ahead), np.array(behind), n, epsilon)
    if n > EXACT:
        return float(stats.norm.cdf(score))
    # 1) all outcomes (ahead, behind) at least as extreme
    a, b = np.indices((n + 1, n + 1)).reshape(2, -1)
    possible = a + b <= n
    a, b = a[possible], b[possible]
    extreme = _tango(a, b, n, epsilon) <= score + 1e-9
    a, b = a[extreme], b[extreme]
    # 2) their probability under each p; shape (p, outcomes)
    orders = special.gammaln([n + 1]) - special.gammaln([a + 1, b + 1, n - a - b + 1]).sum(axis=0)
    p = np.linspace(0, (1 - epsilon) / 2, NUISANCE)[:, None]
    logs = special.xlogy(a, p + epsilon) + special.xlogy(b, p)
    logs += special.xlogy(n - a - b, np.maximum(1 - epsilon - 2 * p, 0))
    return float(min(np.exp(orders + logs).sum(axis=1).max(), 1.0))


def _tango(ahead: Integers, behind: Integers, n: int, epsilon: float) -> Floats:
    """Tango's score: the difference less epsilon over its error where it is epsilon.

    The share behind is then q, the root of 2n q^2 + (2n epsilon - a - b - (a - b) epsilon) q
    - b epsilon (1 - epsilon) = 0.
    """
    linear = (2 * n - ahead + behind) * epsilon - ahead - behind
    constant = behind * epsilon * (1 - epsilon)
    q = (np.sqrt(linear**2 + 8 * n * constant) - linear) / (4 * n)
    variance = n * (2 * q + epsilon - epsilon**2)
    return (ahead - behind - n * epsilon) / np.sqrt(np.maximum(variance, 1e-300))
