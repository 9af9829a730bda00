"""Wilson score intervals of a share, and of a mean of shares, at the effective number of cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from vjudge.metrics.array_types import Booleans, Floats, Integers
from vjudge.metrics.intervals import NO_WIDTH, degrees_of_freedom, t_quantile


@dataclass(frozen=True)
class Share:
    """A share of cases, and how much it varies over units: groups of cases, or single cases.

    Attributes:
        estimate: the share, in [0, 1]; NaN where no case counts.
        influence: how much each unit moves the share; shape (units,). The sum of its squares is
            the variance of the share.
        has_cases: whether each unit has a case that counts; shape (units,).
        n_effective: the effective number of cases: the share of so many independent cases would
            vary as much.
        freedom: degrees of freedom of the variance; infinite where cases are independent.
    """

    estimate: float
    influence: Floats
    has_cases: Booleans
    n_effective: float
    freedom: float

    @classmethod
    def of(cls, gain: Floats, weight: Floats, unit: Integers, *, grouped: bool) -> Share:
        """Estimate a share, and its effective number of cases, from n cases.

        Args:
            gain, weight: of each case, with 0 <= gain <= weight; shape (n,). The share is the sum
                of gains over the sum of weights. A case of weight 0 does not count.
            unit: the unit of each case, 0..units-1; shape (n,).
            grouped: whether units are groups of cases; else each case is a unit.
        """
        total = weight.sum()
        size: Any = np.bincount(unit, weight)  # the weight of each unit: (units,)
        n_units = int(np.count_nonzero(size))
        if not n_units:  # no influence of any unit: size is all 0
            return cls(math.nan, size, size > 0, math.nan, math.nan)
        share = float(gain.sum() / total)
        # The variance of independent cases: the sum of the squared residuals of a ratio
        residual = (gain - share * weight) / total
        variances = [residual @ residual]
        influence: Any = np.bincount(unit, residual)
        freedom = math.inf
        if grouped and n_units > 1:
            influence = _jackknife_influence(influence, size / total)
            variances.append(influence @ influence)
            freedom = degrees_of_freedom(size)
        n_effective = _effective_cases(share, variances, n_units)
        # A case of weight w > 1 is w pairs, which tell no more than w independent cases.
        if weight.max() > 1:
            n_effective = min(n_effective, float(total))
        return cls(share, influence, size > 0, n_effective, freedom)

    @property
    def n_units(self) -> int:
        """The number of units that have a case."""
        return int(np.count_nonzero(self.has_cases))

    def wilson_interval(self, confidence: float) -> tuple[float, float]:
        """Compute Wilson's score interval at the effective number of cases; NaN for one unit.

        >>> share = Share.of(np.array([1.0, 1, 0]), np.ones(3), np.arange(3), grouped=False)
        >>> np.round(share.wilson_interval(0.95), 2).tolist()
        [0.21, 0.94]
        """
        if self.n_units < 2:
            return math.nan, math.nan
        p = self.estimate
        # With q the quantile and n the effective number of cases: the center is
        # (p + q^2/2n) / (1 + q^2/n), the half width sqrt(q^2/n (p (1 - p) + q^2/4n)) / (1 + q^2/n)
        q2_over_n = float(t_quantile(confidence, self.freedom)) ** 2 / self.n_effective
        half_width = math.sqrt(q2_over_n * (p * (1 - p) + q2_over_n / 4)) / (1 + q2_over_n)
        center = (p + q2_over_n / 2) / (1 + q2_over_n)
        return max(0.0, center - half_width), min(1.0, center + half_width)

    def correlation(self, other: Share) -> float:
        """Estimate the correlation of two shares' errors, in [-1, 1].

        Shares of different units are independent: 0. If one of the shares has no variance, because
        all its cases are equal, the correlation is the number of units that both have over the
        geometric mean of their numbers of units.

        Args:
            other: a share over the same units.
        """
        product = np.linalg.norm(self.influence) * np.linalg.norm(other.influence)
        if product > NO_WIDTH**2:
            return float(self.influence @ other.influence / product)
        n_common = np.count_nonzero(self.has_cases & other.has_cases)
        return float(n_common / math.sqrt(self.n_units * other.n_units))


def _jackknife_influence(residuals: Any, group_weights: Any) -> Floats:
    """Compute each group's influence on a share by the delete-one jackknife; shape (groups,).

    Without group g the share moves by the residuals of g over the weight that remains. A factor
    makes the sum of squares the jackknife's variance, (G - 1) / G times that of these moves.

    Args:
        residuals: the sum of each group's residuals, each over the total weight.
        group_weights: each group's share of the total weight.
    """
    n_groups = np.count_nonzero(group_weights)
    return residuals / (1 - group_weights) * math.sqrt((n_groups - 1) / n_groups)


def _effective_cases(share: float, variances: Sequence[float], n_units: int) -> float:
    """Return the number n of independent cases whose variance, p (1 - p) / n, is the largest given.

    Args:
        share: p.
        variances: estimates of the share's variance: that of independent cases, and of cases in
            groups also that by the jackknife.
        n_units: the number of units. It is returned where a variance is 0, such as where all cases
            are equal: a group then counts as one case.
    """
    if min(variances) <= NO_WIDTH**2:
        return float(n_units)
    return float(share * (1 - share) / max(variances))


def mean_share_interval(
    shares: Sequence[Share],
    confidence: float,
    weights: Sequence[float] | None = None,
) -> tuple[float, float, float]:
    """Average k shares, with the interval of a score test that generalizes Wilson's.

    Args:
        shares: k shares.
        confidence: coverage of the interval.
        weights: the weight of each share in the mean, summing to 1; None weights them equally.

    Returns:
        Mean, low and high; the bounds are NaN if a share has fewer than two units.
    """
    estimates = np.array([share.estimate for share in shares])
    weight = np.full(len(shares), 1 / len(shares)) if weights is None else np.array(weights)
    mean = float(weight @ estimates)
    if min(share.n_units for share in shares) < 2:
        return mean, math.nan, math.nan
    if len(shares) == 1:
        return mean, *shares[0].wilson_interval(confidence)
    correlation = np.eye(len(shares))  # of the shares' errors, (k, k)
    for a, b in combinations(range(len(shares)), 2):
        correlation[a, b] = correlation[b, a] = shares[a].correlation(shares[b])
    n = np.array([share.n_effective for share in shares])
    quantile = t_quantile(confidence, np.array([share.freedom for share in shares]))
    low = _lowest_mean(estimates, weight, n, quantile, correlation)
    # The upper bound of shares is 1 minus the lower bound of their complements.
    high = 1 - _lowest_mean(1 - estimates, weight, n, quantile, correlation)
    return mean, low, high


def _lowest_mean(
    estimates: Floats, weight: Floats, n: Floats, quantile: Floats, correlation: Floats
) -> float:
    """Find the lowest mean of k shares that a score test does not reject, by bisection.

    To test a mean, take the k shares p that are most likely among those with this mean. The test
    rejects the mean if it lies further below the estimate than the quantile times the standard
    error that the mean has under p. The most likely p maximize the binomial likelihood under the
    constraint, so that with one Lagrange multiplier for all shares
    n (estimate - p) / (p (1 - p)) = multiplier * weight.
    The larger the multiplier, the lower the mean. Shares of few cases are pulled down first, even
    if all their cases are right.

    Args:
        estimates, weight, n, quantile: each share, its weight, its effective number of cases and
            its t quantile; shape (k,).
        correlation: of the shares' errors; shape (k, k).
    """
    mean = weight @ estimates
    # A multiplier whose mean is accepted, since it hardly differs from the estimate, and one whose
    # mean, near 0, is rejected. Between them is the one sought.
    accepted, rejected = 1e-9, 1e9 * n.max() / weight.min()
    for _ in range(80):  # more would not change a digit
        # Halve the interval on a log scale.
        multiplier = math.sqrt(accepted * rejected)
        pull = multiplier * weight
        # The root in [0, 1] of pull p^2 - (pull + n) p + n estimate = 0, in the form that loses no
        # digits: 2 c / (b + sqrt(b^2 - 4 a c)), with a = pull, b = pull + n and c = n estimate
        b = pull + n
        root = np.sqrt(np.maximum(b**2 - 4 * pull * n * estimates, 0.0))
        p = np.minimum(2 * n * estimates / (b + root), 1.0)
        margins = weight * quantile * np.sqrt(p * (1 - p) / n)
        if (mean - weight @ p) ** 2 > margins @ correlation @ margins:
            rejected = multiplier
        else:
            accepted = multiplier
    return float(weight @ p)
