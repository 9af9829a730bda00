"""Simulated scores whose true correlations are known: what the intervals and tests of correlation are proven on.

No judge and no rater gave these scores. Latent qualities are normal; a scale cuts them into points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from vjudge.metrics._bootstrap import Floats, Integers, Table, correlations

CUTS = (-1.2, -0.4, 0.4, 1.2)


@dataclass(frozen=True)
class Population:
    """Several scores of each item, for example a reference and two judges.

    Args:
        latent: correlation matrix of the m latent scores.
        cuts: the latent values at which the next point of the scale starts; None leaves scores continuous.
        per_group: items of a group (image); shared: share of every latent variance that these have in common.
    """

    latent: tuple[tuple[float, ...], ...]
    cuts: tuple[float, ...] | None = CUTS
    per_group: int = 1
    shared: float = 0.5

    @classmethod
    def pair(cls, correlation: float, *, cuts: tuple[float, ...] | None = CUTS, per_group: int = 1) -> Population:
        """Two scores with a latent correlation."""
        return cls(((1.0, correlation), (correlation, 1.0)), cuts=cuts, per_group=per_group)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Floats, Integers | None]:
        """Scores of n items, shape (n, m), and the group of each; None where every group is one item."""
        root = np.linalg.cholesky(np.asarray(self.latent))
        own = rng.standard_normal((n, len(root))) @ root.T
        groups = None
        if self.per_group > 1:
            groups = np.arange(n) // self.per_group
            common = rng.standard_normal((int(groups[-1]) + 1, len(root))) @ root.T
            own = np.sqrt(1 - self.shared) * own + np.sqrt(self.shared) * common[groups]
        if self.cuts is not None:
            own = np.digitize(own, self.cuts).astype(float) + 1
        return own, groups

    def truth(self, i: int = 0, j: int = 1) -> Floats:
        """Pearson, Spearman and Kendall's tau-b of scores i and j in the population; shape (3,).

        Source: Kruskal, JASA 53 (1958), 814-861, for two normal variables; a scale's from its cell probabilities.
        """
        rho = self.latent[i][j]
        if self.cuts is None:
            return np.array([rho, 6 / np.pi * np.arcsin(rho / 2), 2 / np.pi * np.arcsin(rho)])
        edges = [np.array([-9.0, *self.cuts, 9.0])] * 2
        grid = np.stack(np.meshgrid(*edges, indexing="ij"), axis=-1)
        below = stats.multivariate_normal(cov=[[1, rho], [rho, 1]]).cdf(grid)
        cells = np.diff(np.diff(below, axis=0), axis=1)
        x, y = np.indices(cells.shape).reshape(2, -1).astype(float)
        table = Table(x, y)
        # As counts of so large a sample that pairs of an item with itself don't matter.
        return correlations(table, np.maximum(cells.reshape(-1, 1), 0) * 1e12)[:, 0]
