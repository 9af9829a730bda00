"""Correlations within strata, such as benchmarks, and their mean.

Pooled rows of two benchmarks on two scales correlate by their scales alone: two judges that are
noise within each benchmark reach .9 over both. Only within a stratum do scores compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.array_types import Booleans, Column, Floats, Groups, Integers, Weights
from vjudge.metrics.caveats import add_caveats
from vjudge.metrics.cells import distinct_rows
from vjudge.metrics.formatting import format_p
from vjudge.metrics.groups import design_of, group_codes
from vjudge.metrics.intervals import PERFECT
from vjudge.metrics.resampling import Design, jackknife
from vjudge.metrics.tables import tabulate
from vjudge.metrics.weighted_correlation import STATISTICS, correlations

OVERALL = "overall"  # the stratum in a table's index that stands for all strata together
MIN_STRATUM = 4  # items of a stratum at least, so that its weight of n - 3 is above 0
DOUBTFUL = 0.1  # p of Cochran's Q, below which a caveat says that strata differ


@dataclass(frozen=True)
class Strata:
    """The strata that have a correlation: four items or more, and scores that vary.

    Attributes:
        code: the stratum of each used item, 0..k-1.
        used: which of n items are in such a stratum and have all scores; shape (n,).
        left_out: the names of the strata that have no correlation.
    """

    code: Integers
    used: Booleans
    left_out: Sequence[str] = ()

    @classmethod
    def of(cls, labels: Column, used: Booleans, columns: Sequence[Floats]) -> Strata:
        """Sort n items into strata.

        Args:
            labels: the stratum of each item.
            used: which items have a score in each column, shape (n,).
            columns: the scores, each of shape (n,).
        """
        code = group_codes(labels, np.ones(len(used), dtype=bool), name="strata")
        # A stratum has a correlation if it has four used items and each score varies over them.
        strata = pd.DataFrame(np.transpose(columns)[used]).groupby(code[used])
        varies = (strata.nunique() > 1).all(axis=1)
        defined = varies.index[varies & (strata.size() >= MIN_STRATUM)]
        has_correlation = np.isin(code, defined)  # (n,)
        names = pd.Series(list(labels), dtype=object).astype(str)
        valid = used & has_correlation
        # Number the strata anew, without those that are left out.
        return cls(group_codes(code, valid), valid, names[~has_correlation].unique().tolist())

    @property
    def caveats(self) -> list[str]:
        """A caveat that names the strata which the mean leaves out, if there are any."""
        if not self.left_out:
            return []
        return [
            f"{', '.join(self.left_out)}: left out of the mean over strata (fewer than"
            f" {MIN_STRATUM} items, or a constant score)"
        ]

    def fisher_z(
        self,
        x: Floats,
        y: Floats,
        stratum: Floats,
        weights: Weights,
        statistics: Sequence[str] = STATISTICS,
    ) -> Floats:
        """Compute Fisher's z of the correlations within each stratum.

        Args:
            x, y, stratum: the scores and the stratum of each cell, shape (cells,).
            weights: how often each cell occurs, shape (cells, replicates).
            statistics: which correlations to compute, some of `STATISTICS`.

        Returns:
            Shape (strata, statistics, replicates).
        """
        rows = []
        for code, n in enumerate(np.bincount(self.code)):
            inside = stratum == code
            r = correlations(x[inside], y[inside], weights[inside], statistics=statistics)
            # A perfect correlation has an infinite z. Swapping two neighbors of n ranks lowers
            # Kendall's tau by 4 / (n (n - 1)): a perfect one counts as half a swap below 1.
            limit = 1 - 2 / (n * (n - 1))
            r = np.where(np.abs(r) >= PERFECT, np.sign(r) * limit, r)
            rows.append(np.arctanh(r))
        return np.stack(rows)

    def correlations(self, x: Floats, y: Floats, stratum: Floats, weights: Weights) -> Floats:
        """Average the correlations within strata; arguments are those of `fisher_z`.

        The mean is taken on Fisher's z scale, with weights n - 3. Strata of 13 and 23 items with z
        of .2 and .5 have tanh((10 * .2 + 20 * .5) / 30) = tanh(.4).

        Returns:
            Pearson's, Spearman's and Kendall's correlation, shape (3, replicates).
        """
        n_minus_3 = np.bincount(self.code) - 3.0
        z = self.fisher_z(x, y, stratum, weights)
        return np.tanh(np.tensordot(n_minus_3 / n_minus_3.sum(), z, axes=1))

    def heterogeneity(self, cells: Floats, design: Design, seed: int) -> tuple[str, list[str]]:
        """Test by Cochran's Q whether Pearson's r differs between strata.

        Q is the sum of the squared deviations of the strata's z from their weighted mean, each over
        its variance by the jackknife. I^2 = 1 - (k - 1) / Q is the share of Q above its expectation
        under k equal strata.

        Args:
            cells: x, y and stratum of each cell, shape (cells, 3).
            design: how the used items are resampled.
            seed: of the jackknife's random blocks.

        Returns:
            An addition to a table's caption with Q, p and I^2, or "" for a single stratum; and a
            list of one caveat if strata differ, else an empty list.

        Source: Higgins and Thompson, Statistics in Medicine 21 (2002), 1539-1558.
        """
        k = len(np.bincount(self.code))
        if k < 2:
            return "", []

        x, y, stratum = cells.T

        def pearson_z(weights: Weights) -> Floats:
            return self.fisher_z(x, y, stratum, weights, ["pearson"])[:, 0]

        variance, _ = jackknife(pearson_z, design, seed=seed)
        with np.errstate(invalid="ignore", divide="ignore"):
            weight = 1 / variance
            z = pearson_z(design.counts[:, None])[:, 0]
            mean = weight @ z / weight.sum()
            q = float(weight @ (z - mean) ** 2)
        if not np.isfinite(q):  # such as where a stratum's variance is 0
            return f"; a mean over {k} strata", []
        p = float(stats.chi2.sf(q, k - 1))
        i_squared = max(0.0, 1 - (k - 1) / q) if q else 0.0
        text = f"Q = {q:.1f} on {k - 1} degrees of freedom, p {format_p(p)}, I^2 = {i_squared:.0%}"
        caveats = []
        if p < DOUBTFUL:
            caveats.append(
                f"strata differ (Pearson's r: {text}): their mean describes none of them alone"
            )
        return f"; a mean over {k} strata on Fisher's z scale, {text}", caveats


def correlate_over_strata(
    x: Floats, y: Floats, strata: Strata, groups: Groups, **options: Any
) -> pd.DataFrame:
    """Average the correlations of two scores within strata, with intervals by the jackknife.

    Args:
        x, y: the scores of n items, NaN where missing.
        strata: the strata of these items.
        groups: see `correlate`.
        options: confidence, n_resamples and seed.

    Returns:
        Rows pearson, spearman and kendall, columns as `correlate`.
    """
    used = strata.used
    cells, cell = distinct_rows(np.column_stack([x[used], y[used], strata.code]))
    design = design_of(cell, groups, used)
    table = tabulate(
        partial(strata.correlations, *cells.T),
        STATISTICS,
        design,
        method="fisher",
        by="jackknife",
        reason="no stratum has four items and scores that differ",
        **options,
    ).drop(columns=["error", "freedom"], errors="ignore")
    caption, caveats = strata.heterogeneity(cells, design, options["seed"])
    table.attrs["method"] += caption
    add_caveats(table, [*strata.caveats, *caveats])
    return table
