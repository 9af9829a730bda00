"""Intervals of one table: degrees of freedom by hand, coverage of shares, and limits that are said."""

import numpy as np
import pytest
from scipy import stats

from vjudge.metrics.resampling import Design
from vjudge.metrics.tables import tabulate


def test_freedom_is_of_the_effective_number_of_groups():
    """A group of 10 beside five of 2: a half and five tenths of the weight, 1 / .3 equal groups."""
    values = np.arange(20.0)
    bounds = {}
    for name, groups in (
        ("equal", np.arange(20) // 4),
        ("unequal", np.r_[np.zeros(10), 1 + np.arange(10) // 2]),
    ):
        design = Design(np.arange(20), groups.astype(int))
        table = tabulate(lambda w: (values @ w / w.sum(axis=0))[None], ["mean"], design)
        bounds[name] = table
    freedom = 1 / 0.3 - 1
    drawn = np.random.default_rng(0).multinomial(6, np.full(6, 1 / 6), size=10_000)
    sums = np.bincount(groups.astype(int), values)
    sizes = np.bincount(groups.astype(int))
    spread = (drawn @ sums / (drawn @ sizes)).std() * np.sqrt((freedom + 1) / freedom)
    half = stats.t.ppf(0.975, freedom) * spread
    assert bounds["unequal"].loc["mean", "high"] == pytest.approx(9.5 + half, rel=0.05)
    assert bounds["equal"].attrs.get("caveats", []) == []
    assert "6 weigh as much as 3 equal ones" in bounds["unequal"].attrs["caveats"][0]
