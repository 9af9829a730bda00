"""Intervals of one table: degrees of freedom by hand, coverage of shares, and limits that are said."""

import numpy as np
import pytest
from scipy import stats

from vjudge.metrics.resampling import Design
from vjudge.metrics.shares import shares
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


def covered(sizes, right, *, simulations=200):
    """How often the interval of a macro mean holds it; categories of these sizes."""
    rng = np.random.default_rng(0)
    category = np.repeat(np.arange(len(sizes)), sizes)
    members = category == np.arange(len(sizes))[:, None]  # (k, n)
    count = 0
    for _ in range(simulations):
        is_right = rng.random(len(category)) < right
        row = shares([("macro", members & is_right, members)], groups=None, unit="items").iloc[0]
        count += row["low"] <= right <= row["high"]
    return count / simulations


@pytest.mark.parametrize("sizes", [(8, 8, 300), (12, 12, 500), (8,) * 10])
def test_a_mean_of_small_and_large_categories_holds_the_truth(sizes):
    """They held it in .79, .73 and .89; 200 simulations of .93 are above .88 but in one of 200."""
    assert covered(sizes, 0.9) > 0.88


def test_one_category_is_wilsons_interval_by_the_general_formula():
    gain = np.r_[np.ones(17), np.zeros(3)]
    one = np.ones((1, 20))
    rows = [("plain", gain, one), ("twice", np.tile(gain, (2, 1)), np.ones((2, 20)))]
    table = shares(rows, groups=None, unit="items")
    theirs = stats.binomtest(17, 20).proportion_ci(method="wilson")
    assert table.loc["plain", ["low", "high"]].tolist() == pytest.approx(list(theirs))
    assert table.loc["twice", ["low", "high"]].tolist() == pytest.approx(list(theirs))


@pytest.mark.parametrize("groups", [None, np.arange(201) // 3])
def test_a_category_of_one_item_or_group_has_no_interval_nor_a_mean_over_it(groups):
    category = np.repeat(
        [0, 1, 2], [1 if groups is None else 3, 98, 102 if groups is None else 100]
    )
    members = category == np.arange(3)[:, None]
    right = np.arange(201) % 5 > 0
    rows = [("macro", members & right, members), ("all", right, np.ones(201))]
    rows += [(number, members[number] & right, members[number]) for number in range(3)]
    with pytest.warns(UserWarning, match="macro, 0: no interval"):
        table = shares(rows, groups=groups, unit="items")
    assert table["estimate"].notna().all()
    assert table["low"].isna().tolist() == [True, False, True, False, False]
    assert table.attrs["caveats"][-1].endswith("is all there is of it")
