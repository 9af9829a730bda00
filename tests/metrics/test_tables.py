"""Numbers in print, and the table of judges by benchmarks."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vjudge.metrics import correlate, correlation_table, human_ceiling
from vjudge.metrics._tables import format_interval, format_number, format_p


def read(text):
    return float(text.replace("[", "").replace("]", "").replace(",", ""))


def test_numbers_in_print():
    assert [format_number(value) for value in (-0.0, 0.714, math.nan, math.inf)] == ["0.00", "0.71", "n/a", "inf"]
    assert [format_number(value, zero=False) for value in (-0.25, 0.714, 1.0)] == ["-.25", ".71", "1.00"]
    assert format_number(-0.0004, digits=3) == "0.000" and format_number(10.25, digits=1, zero=False) == "10.2"


@example([0.0, 0.0, -0.03125], 1, False)
@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.integers(1, 3), st.booleans())
def test_bounds_hold_their_estimate_in_print(values, digits, zero):
    low, estimate, high = sorted(values)
    text = format_interval(estimate, low, high, digits, zero=zero)
    printed = [read(part) for part in text.split()]
    assert printed[1] <= printed[0] <= printed[2] and "-0.0 " not in text
    if high - low > 1e-4:
        assert printed[1] < printed[2]  # an interval with a width has one in print


def test_an_interval_that_excluded_its_estimate_in_print():
    assert format_interval(0.9991, 0.9986, 0.9995, 2) == "0.999 [0.999, 1.000]"
    assert format_interval(0.9991, math.nan, math.nan) == "1.00"


def test_p_in_print():
    floors = [(1 / 67, 1 / 67), (1 / 67, 1 / 10_001), (1 / 10_001, 1 / 10_001), (0.00004, None), (0.9999, None)]
    assert [format_p(p, floor=floor) for p, floor in floors] == ["<= .015", "= .015", "<= .0001", "< .001", "= 1"]
    assert format_p(math.nan) == "n/a"


def benchmarks(seed=0):
    rng = np.random.default_rng(seed)
    truth = {name: rng.integers(1, 6, n).astype(float) for name, n in (("long", 120), ("short", 40))}
    judges = {
        name: pd.DataFrame({judge: gold + noise * rng.normal(size=len(gold)) for judge, noise in noises.items()})
        for (name, gold), noises in zip(truth.items(), ({"good": 0.5, "bad": 3.0}, {"bad": 3.0}), strict=True)
    }
    judges["long"].loc[:4, "good"] = np.nan
    return judges, truth


def test_judges_by_benchmarks():
    judges, truth = benchmarks()
    people = pd.DataFrame({f"rater {i}": truth["long"] + np.random.default_rng(i).normal(size=120) for i in range(3)})
    ceiling = {"long": human_ceiling(people, n_resamples=50)}
    groups = {"long": np.arange(120) // 4}
    table = correlation_table(judges, truth, groups=groups, ceiling=ceiling, n_resamples=200)
    assert table[["judge", "benchmark"]].drop_duplicates().to_numpy().tolist() == [
        ["good", "long"],
        ["bad", "long"],
        ["people", "long"],
        ["bad", "short"],
    ]
    alone = correlate(judges["long"]["good"], truth["long"], groups=groups["long"], n_resamples=200)
    columns = ["estimate", "low", "high", "n", "missing"]
    cells = table[(table["judge"] == "good") & (table["benchmark"] == "long")].set_index("statistic")[columns]
    pd.testing.assert_frame_equal(cells, alone)
    best = table[table["best"]]
    assert best[["judge", "benchmark"]].drop_duplicates().to_numpy().tolist() == [["good", "long"], ["bad", "short"]]
    assert len(best) == 6 and not (table["best"] & table["ceiling"]).any()


def test_a_table_names_what_it_lacks():
    judges, truth = benchmarks()
    with pytest.raises(ValueError, match="no truth for short"):
        correlation_table(judges, {"long": truth["long"]})
    judges["short"] = {"bad": [1, 2, 3]}
    with pytest.raises(ValueError, match="bad on short: x has 3, y has 40"):
        correlation_table(judges, truth, n_resamples=0)
