"""Wilson's interval of a share, and of a mean of shares, at the effective number of cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vjudge.metrics.array_types import Floats, Integers
from vjudge.metrics.intervals import NO_WIDTH, degrees_of_freedom, t_quantile


@dataclass(frozen=True)
class Share:
    """A share of cases in units (groups, or the cases themselves), and how much it varies."""

    estimate: float
    influence: Floats  # (units,): what each unit adds to the share, by a jackknife
    present: NDArray[np.bool_]  # (units,): which units have a case that counts
    number: float  # of independent cases that would vary as much
    freedom: float

    @classmethod
    def of(cls, gain: Floats, weight: Floats, codes: Integers, *, grouped: bool) -> Share:
        """From gain and weight of each case, and the unit of each, 0..units - 1; all (n,)."""
        total = weight.sum()
        size: Any = np.bincount(codes, weight)
        n_units = np.count_nonzero(size)
        if not n_units:
            return cls(math.nan, size, size > 0, math.nan, math.nan)
        share = float(gain.sum() / total)
        of_case = (gain - share * weight) / total
        influence: Any = np.bincount(codes, of_case)
        variance = of_case @ of_case
        smallest = variance
        freedom = math.inf
        if grouped and n_units > 1:
            influence = influence / (1 - size / total) * math.sqrt((n_units - 1) / n_units)
            smallest, variance = sorted([variance, influence @ influence])
            freedom = degrees_of_freedom(size)
        number = float(n_units)  # where all are alike, a unit says no more than one case
        if smallest > NO_WIDTH**2:
            number = share * (1 - share) / variance
        if weight.max() > 1:  # a case is several pairs, and says no more than they would apart
            number = min(number, total)
        return cls(share, influence, size > 0, float(number), freedom)

    def bounds(self, confidence: float) -> tuple[float, float]:
        """Wilson's interval at the effective number; NaN of one unit.

        >>> share = Share.of(np.array([1.0, 1, 0]), np.ones(3), np.arange(3), grouped=False)
        >>> np.round(share.bounds(0.95), 2).tolist()
        [0.21, 0.94]
        """
        if np.count_nonzero(self.present) < 2:
            return math.nan, math.nan
        share = self.estimate
        q2 = float(t_quantile(confidence, self.freedom)) ** 2 / self.number
        reach = math.sqrt(q2 * (share * (1 - share) + q2 / 4)) / (1 + q2)
        centre = (share + q2 / 2) / (1 + q2)
        return max(0.0, centre - reach), min(1.0, centre + reach)

    def correlation(self, other: Share) -> float:
        """Of both shares' errors; where one has none to see, that of the units they have in common.

        Categories of different units are independent: 0.
        """
        spread = np.linalg.norm(self.influence) * np.linalg.norm(other.influence)
        if spread > NO_WIDTH**2:
            return float(self.influence @ other.influence / spread)
        sizes = np.count_nonzero(self.present) * np.count_nonzero(other.present)
        return float(np.count_nonzero(self.present & other.present) / math.sqrt(sizes))


def mean_share_interval(
    shares: Sequence[Share],
    confidence: float,
    weights: Sequence[float] | None = None,
) -> tuple[float, float, float]:
    """The mean of k shares, plain or of weights that sum to 1, with its bounds."""
    estimates = np.array([share.estimate for share in shares])
    weight = np.full(len(shares), 1 / len(shares)) if weights is None else np.array(weights)
    mean = float(weight @ estimates)
    if min(np.count_nonzero(share.present) for share in shares) < 2:
        return mean, math.nan, math.nan
    if len(shares) == 1:
        return mean, *shares[0].bounds(confidence)
    correlation = np.eye(len(shares))  # (k, k), of the shares' errors
    for a, b in combinations(range(len(shares)), 2):
        correlation[a, b] = correlation[b, a] = shares[a].correlation(shares[b])
    number = np.array([share.number for share in shares])
    quantile = t_quantile(confidence, np.array([share.freedom for share in shares]))
    low = _lowest_mean(estimates, weight, number, quantile, correlation)
    high = 1 - _lowest_mean(1 - estimates, weight, number, quantile, correlation)
    return mean, low, high


def _lowest_mean(
    estimates: Floats,
    weight: Floats,
    number: Floats,
    quantile: Floats,
    correlation: Floats,
) -> float:
    """The lower bound of a mean of k shares: the least mean that a score test does not reject.

    Wilson's interval for several shares: under a lower mean the likeliest shares p solve
    number (estimate - p) / (p (1 - p)) = pull * weight, one pull for all, and the variance is that
    of these. So a category of few cases that are all right is the first to be pulled down.
    """
    mean = weight @ estimates
    near, far = 1e-9, 1e9 * number.max() / weight.min()  # of the pull, on a log scale
    for _ in range(80):
        pull = math.sqrt(near * far)
        both = pull * weight + number
        root = np.sqrt(np.maximum(both**2 - 4 * pull * weight * number * estimates, 0.0))
        p = np.minimum(2 * number * estimates / (both + root), 1.0)
        reach = weight * quantile * np.sqrt(p * (1 - p) / number)
        if (mean - weight @ p) ** 2 > reach @ correlation @ reach:
            far = pull
        else:
            near = pull
    return float(weight @ p)
