"""What was known to be wrong: labels that a missing one turns into floats, capitals, edges, many rows."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge import metrics
from vjudge.metrics import (
    agreement,
    calibration_curve,
    classification,
    correlate,
    correlate_levels,
    human_ceiling,
    length_controlled,
    next_labels,
    win_rate,
)


def test_a_missing_label_changes_no_other():
    gold = pd.Series([1, 2, 3, 4] * 25)
    verdicts = gold.where(gold.index != 7)  # floats now
    table = classification(verdicts, gold)
    assert table.loc[("all", "accuracy"), "estimate"] == 1.0
    assert table.loc[("all", "accuracy_of_all"), "estimate"] == 0.99
    mixed = agreement(list(zip(verdicts, gold.astype(str), strict=True)), level="nominal")
    assert mixed.loc["alpha_nominal", "estimate"] == 1.0


def test_capitals_are_read_and_what_is_not_is_warned_of():
    verdicts = ["A"] * 60 + ["B"] * 20 + ["Tie"] * 20
    assert win_rate(verdicts)["estimate"][["win", "loss", "tie"]].tolist() == [0.6, 0.2, 0.2]
    with pytest.warns(UserWarning, match="2 of 102 verdicts can't be read .* 2 x 'neither'"):
        table = win_rate([*verdicts, "neither", "neither"])
    assert table.attrs["malformed"] == 2 and table.loc["win", "n"] == 100


def test_edges_are_refused_or_said():
    x = [1, 2, 3, 4, 5, 5]
    with pytest.warns(UserWarning, match="n_resamples=5: intervals of so few"):
        correlate(x, x[::-1], n_resamples=5)
    with pytest.warns(UserWarning, match="undefined"):
        assert human_ceiling([[1, 2], [3, 4]])["estimate"].isna().all()
    floats = np.random.default_rng(0).normal(size=30)
    with pytest.warns(UserWarning, match="no width"):
        correlate(floats, 2 * floats + 1, n_resamples=200)
    for n in (-1, 3.5, 0):
        with pytest.raises(ValueError, match="whole number from 1"):
            next_labels(x, x, n=n)
    with pytest.raises(ValueError, match="bins must be a whole number"):
        calibration_curve(x, x, bins=1.5)
    with pytest.raises(ValueError, match="length_a is negative: position 1: -3.0"):
        length_controlled(["a", "b"], [1, -3], [2, 2])


def test_the_system_level_says_what_its_intervals_are_worth():
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    systems, questions = np.repeat(range(5), 40), np.tile(range(40), 5)
    with pytest.warns(UserWarning, match="system level: intervals .* cover less often"):
        table = correlate_levels(x, x + rng.normal(size=200), systems=systems, groups=questions)
    assert table.attrs["fixed"] == "systems"


@pytest.mark.parametrize("grouped", [False, True])
def test_many_rows_take_the_time_of_scipy(grouped):
    rng = np.random.default_rng(0)
    groups = np.arange(40_000) // 2
    common = rng.normal(size=20_000)[groups]
    x = common + rng.normal(size=40_000)
    y = common + rng.normal(size=40_000)
    if grouped:
        x, y = np.digitize(x, [-1, 0, 1, 2]), np.digitize(y, [-1, 0, 1, 2])
    began = time.process_time()
    table = correlate(x, y, groups=groups if grouped else None)
    assert time.process_time() - began < 10  # it was 40
    assert table.loc["kendall", "estimate"] == stats.kendalltau(x, y).statistic
    assert "100 random blocks" in table.attrs["method"]


def test_intervals_of_many_rows_hold_the_truth():
    inside = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=20_000)
        y = 0.6 * x + 0.8 * rng.normal(size=20_000)
        low, high = correlate(x, y, seed=seed).loc["pearson", ["low", "high"]]
        inside += low < 0.6 < high
    assert inside >= 21  # of 25 at 95 %: P(fewer) = .007


def test_nothing_is_said_of_sound_input():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        correlate([1, 2, 2, 4, 5, 3, 3, 1] * 5, [1, 2, 3, 4, 4, 3, 2, 2] * 5, n_resamples=200)


def test_measures_that_need_a_scale_refuse_a_value_heads_scores() -> None:
    run = pd.DataFrame({"score": [-3.2, 0.4, 11.0, 2.5], "gold": [1, 2, 5, 4]})
    run.attrs["unbounded"] = True
    with pytest.raises(ValueError, match="agreement needs scores on people's scale"):
        metrics.agreement(run[["score", "gold"]])
    with pytest.raises(ValueError, match="calibration_errors needs scores on people's scale"):
        metrics.calibration_errors(run["score"], run["gold"])
    assert (
        metrics.correlate(run["score"], run["gold"], n_resamples=0).loc["spearman", "estimate"]
        > 0.99
    )
