"""Strata: correlations within benchmarks and their mean, and what rows of items go together.

Pooled rows of two benchmarks on two scales correlate by their scales alone: two judges that are
noise within each benchmark reach .9 over both. Only within a stratum do scores compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from vjudge.metrics.array_types import Column, Floats, Integers, Weights
from vjudge.metrics.formatting import format_p
from vjudge.metrics.groups import group_codes
from vjudge.metrics.intervals import PERFECT
from vjudge.metrics.resampling import Design, jackknife
from vjudge.metrics.weighted_correlation import STATISTICS, correlations

MIN_STRATUM = 4  # items, so that a weight of n - 3 is above 0
DOUBTFUL = 0.1  # p of Cochran's Q, below which strata are said to differ


@dataclass(frozen=True)
class Strata:
    """The strata of n items: the code of each, which items are used, and what is left out.

    A stratum with a constant score, or with fewer than four items, has no correlation to average.
    """

    code: Integers  # (n,)
    used: np.ndarray  # (n,) of bool
    left_out: Sequence[str] = ()

    @classmethod
    def of(cls, labels: Column, used: np.ndarray, columns: Sequence[Floats]) -> Strata:
        """Read labels of n items, of which those in `used` have a score in each of the columns."""
        names = np.array([str(label) for label in labels])
        everything = np.ones(len(used), dtype=bool)
        code = group_codes(labels, everything, name="strata")
        valid = used.copy()
        left_out = []
        for stratum in range(int(code.max(initial=-1)) + 1):
            rows = used & (code == stratum)
            constant = any(np.ptp(column[rows]) == 0 for column in columns if rows.any())
            if rows.sum() < MIN_STRATUM or constant:
                valid &= ~rows
                left_out.append(str(names[code == stratum][0]))
        return cls(group_codes(code, valid), valid, left_out)

    @property
    def caveats(self) -> list[str]:
        """Which strata the mean leaves out."""
        if not self.left_out:
            return []
        return [
            f"{', '.join(self.left_out)}: left out of the mean over strata (fewer than"
            f" {MIN_STRATUM} items, or a constant score)"
        ]

    def z(
        self,
        x: Floats,
        y: Floats,
        stratum: Floats,
        weights: Weights,
        statistics: Sequence[str] = STATISTICS,
    ) -> Floats:
        """Fisher's z of correlations within strata, (strata, statistics, replicates), for cells.

        A perfect correlation of n items counts as half a swap of two items below 1.
        """
        sizes = np.bincount(self.code)
        rows = []
        for code, n in enumerate(sizes):
            inside = stratum == code
            r = correlations(x[inside], y[inside], weights[inside], statistics=statistics)
            limit = 1 - 2 / (n * (n - 1))
            r = np.where(np.abs(r) >= PERFECT, np.sign(r) * limit, r)
            rows.append(np.arctanh(r))
        return np.stack(rows)

    def correlations(self, x: Floats, y: Floats, stratum: Floats, weights: Weights) -> Floats:
        """The mean correlations over strata on Fisher's z scale, weights n - 3; (3, replicates).

        Strata of 13 and 23 items with z of .2 and .5: tanh((10 * .2 + 20 * .5) / 30) = tanh(.4).
        """
        share = np.bincount(self.code) - 3.0
        z = self.z(x, y, stratum, weights)
        return np.tanh(np.tensordot(share / share.sum(), z, axes=1))

    def heterogeneity(self, cells: Floats, design: Design, seed: int) -> tuple[str, list[str]]:
        """Cochran's Q and I^2 of Pearson's r, for a caption, and a caveat where strata differ.

        Q is the sum of squared deviations of the strata's z from their mean, each over its
        variance; I^2 the share of Q above its expectation, the number of strata less 1.

        Source: Higgins and Thompson, Statistics in Medicine 21 (2002), 1539-1558.
        """
        k = len(np.bincount(self.code))
        if k < 2:
            return "", []

        x, y, stratum = cells.T

        def pearson(weights: Weights) -> Floats:
            return self.z(x, y, stratum, weights, ["pearson"])[:, 0]

        variance, _ = jackknife(pearson, design, seed=seed)
        with np.errstate(invalid="ignore", divide="ignore"):
            weight = 1 / variance
            z = pearson(design.counts[:, None])[:, 0]
            mean = weight @ z / weight.sum()
            q = float(weight @ (z - mean) ** 2)
        if not np.isfinite(q):
            return f"; a mean over {k} strata", []
        p = float(stats.chi2.sf(q, k - 1))
        share = max(0.0, 1 - (k - 1) / q) if q else 0.0
        text = f"Q = {q:.1f} on {k - 1} degrees of freedom, p {format_p(p)}, I^2 = {share:.0%}"
        caveats = []
        if p < DOUBTFUL:
            caveats.append(
                f"strata differ (Pearson's r: {text}): their mean describes none of them alone"
            )
        return f"; a mean over {k} strata on Fisher's z scale, {text}", caveats
