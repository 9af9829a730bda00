"""Judged items, some of them labelled by people, and whether these are a random sample.

`corrected_rates` and `prediction_powered` estimate from them; `calibration` checks its sample here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.array_types import Booleans, Floats, Groups, Integers
from vjudge.metrics.cells import indicator_matrix
from vjudge.metrics.columns import as_floats, check_items
from vjudge.metrics.groups import unit_codes
from vjudge.metrics.intervals import NO_WIDTH, degrees_of_freedom
from vjudge.metrics.wilson import Share

# p values of the test that the labelled items are a random sample
SELDOM = 0.01  # up to this, a caveat says that they seldom would be
NOT_BY_CHANCE = 1e-5  # below this, the labels are refused


@dataclass(frozen=True)
class Labelled:
    """The n items that a judge gave a verdict on; people labelled some of them."""

    verdict: Floats  # (n,)
    label: Floats  # (n,), NaN where nobody labelled
    units: Integers  # (n,): the unit of sampling of each item, 0 to G - 1
    grouped: bool  # whether units are groups of items; if not, each item is its own unit
    missing: int  # items without a verdict, which are left out
    caveats: list[str]  # of labels that are left out

    @classmethod
    def of(
        cls,
        verdicts: pd.Series,
        labels: pd.Series,
        groups: Groups,
        read: Callable[..., Floats] = as_floats,
    ) -> Labelled:
        """Match verdicts and labels by their index, and leave out items without a verdict.

        Args:
            verdicts, labels: each may lack items of the other.
            groups: the unit of sampling of each verdict; None: each item is its own unit.
            read: converts a column to floats, NaN where a cell is blank; called as
                `read(column, name=...)`.

        Raises:
            TypeError, ValueError: a column is no Series, has an item twice, or can't be read.
        """
        check_items(verdicts=verdicts, labels=labels)
        caveats = []
        unjudged = int(labels.drop(verdicts.index, errors="ignore").notna().sum())
        if unjudged:
            caveats.append(f"{unjudged} labels are of items that verdicts lacks: left out")
        verdict = read(verdicts, name="verdicts")
        label = read(labels.reindex(verdicts.index), name="labels")
        judged = ~np.isnan(verdict)
        units = unit_codes(groups, verdicts.index, judged)
        missing = int((~judged).sum())
        return cls(verdict[judged], label[judged], units, groups is not None, missing, caveats)

    @property
    def has_label(self) -> Booleans:
        """Which items people labelled; (n,)."""
        return ~np.isnan(self.label)

    def share(self, values: Floats, among: Booleans) -> Share:
        """Estimate the share of ones in `values` among the items that `among` marks.

        Args:
            values: 1 or 0 for each item, (n,); NaN is allowed outside of `among`.
        """
        gain = np.where(among, values, 0.0)
        return Share.of(gain, among.astype(float), self.units, grouped=self.grouped)


def check_random(
    verdict: Floats,
    has_label: Booleans,
    units: Integers,
    remedy: str = "label a random sample",
) -> list[str]:
    """Test whether the labelled items are a random sample, as far as the verdicts tell.

    In a random sample the mean verdict differs from that of the other items by chance alone.

    Args:
        verdict: of n items, NaN nowhere. has_label: which of them people labelled; (n,).
        units: the unit of sampling of each item, 0 to G - 1; (n,).
        remedy: what the caveat or the error advises.

    Returns:
        A list of one caveat if a random sample shows such a difference in at most one of 100 cases,
        else an empty list.

    Raises:
        ValueError: a random sample shows such a difference in fewer than one of 100,000 cases.
    """
    n_labelled = np.count_nonzero(has_label)
    # There is nothing to test if all or no items are labelled, or if all verdicts are equal
    if n_labelled in (0, len(verdict)) or np.ptp(verdict) < NO_WIDTH:
        return []
    independent = len(np.unique(units)) == len(units)
    if independent and np.isin(verdict, [0, 1]).all():
        # Few verdicts of one kind make a skewed mean, so independent zeros and ones are tested
        # exactly.
        p = stats.fisher_exact(pd.crosstab(has_label, verdict)).pvalue
    else:
        p = _p_of_equal_means(verdict, has_label, units)
    if p > SELDOM:
        return []
    text = (
        f"the judge's mean verdict is {verdict[has_label].mean():.3g} on the labelled items and"
        f" {verdict[~has_label].mean():.3g} on the others, as a random sample seldom has it:"
        f" {remedy}"
    )
    if p < NOT_BY_CHANCE:
        raise ValueError(text)
    return [text]


def _p_of_equal_means(verdict: Floats, has_label: Booleans, units: Integers) -> float:
    """Compute the p value of a t test that labelled and unlabelled items have one mean verdict.

    The standard error comes from the variance of all n verdicts, since under the hypothesis both
    samples are of one population. A separate variance of each sample would be too small where most
    verdicts are equal, because a small sample may happen to hold equal verdicts only.
    """
    n_labelled = np.count_nonzero(has_label)
    # (n,): the difference of both means is contrast @ verdict
    contrast = np.where(has_label, 1 / n_labelled, -1 / (len(verdict) - n_labelled))
    # The design effect: how much more the difference varies with dependence within units than it
    # would with independent items; never below 1
    deviation = contrast * (verdict - verdict.mean())
    of_units = indicator_matrix(units) @ deviation
    design_effect = max(1.0, of_units @ of_units / (deviation @ deviation))
    error = math.sqrt(verdict.var(ddof=1) * (contrast @ contrast) * design_effect)
    # A unit weighs as much as it contributes to the variance of the difference
    freedom = degrees_of_freedom(np.bincount(units, contrast**2))
    return float(2 * stats.t.sf(abs(contrast @ verdict) / error, freedom))
