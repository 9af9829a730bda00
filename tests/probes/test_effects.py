"""Estimates against SciPy, statsmodels and brute force; what they say where nothing varies."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge.probes import bias_scores
from vjudge.probes.effects import coefficient, equal, judged, mean

NAN = float("nan")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_means_are_students_t_tests_of_single_rows_or_of_equal_groups(rng):
    values = rng.normal(0.3, 1, 60)
    expected = stats.ttest_1samp(values, 0)
    low, high = expected.confidence_interval(0.95)
    single = mean(values, range(60))
    assert single == pytest.approx((values.mean(), low, high, expected.pvalue, 60, 60), abs=1e-10)
    grouped = mean(values, np.repeat(range(12), 5))
    by_group = values.reshape(12, 5).mean(axis=1)
    assert grouped.p == pytest.approx(stats.ttest_1samp(by_group, 0).pvalue)


def test_a_coefficient_is_the_least_squares_one_with_a_jackknife_over_groups(rng):
    groups = np.append(rng.integers(0, 15, 77), [15, 15, 15])
    gold = np.append(rng.integers(1, 5, 77), [5, 5, 5]).astype(float)  # a level of one group alone
    x = rng.normal(size=80)
    y = 0.2 * x + gold + rng.normal(size=80)
    design = np.column_stack([x, equal(gold)])

    def fit(rows):
        return np.linalg.lstsq(design[rows], y[rows], rcond=None)[0][0]

    effect = coefficient(y, design, groups)
    assert effect.effect == pytest.approx(fit(groups >= 0), abs=1e-10)
    fits = np.array([fit(groups != group) for group in np.unique(groups)])
    error = np.sqrt((len(fits) - 1) * fits.var())
    width = 2 * error * stats.t.ppf(0.975, len(fits) - 1)
    assert effect.high - effect.low == pytest.approx(width, abs=1e-10)


def test_what_does_not_vary_is_undefined_and_what_never_moves_has_p_of_one(rng):
    with pytest.warns(UserWarning, match="does not vary"):
        assert np.isnan(coefficient(rng.normal(size=9), np.ones((9, 2)), range(9)).p)
    with pytest.warns(UserWarning, match="not two groups"):
        assert np.isnan(mean(np.ones(2), ["a", "a"]).effect)
    # none of nine moved: up to 1 - .025 ** (1 / 9) of all may move, by a score point each
    reach = 1 - 0.025 ** (1 / 9)
    assert mean(np.zeros(9), range(9)) == pytest.approx((0, -reach, reach, 1, 9, 9))
    assert mean(np.ones(9), range(9)).p == 2.0**-8  # all nine groups moved alike: the sign test
    gold = np.tile(np.arange(1.0, 6.0), 20)  # a judge without an error: its slope is rounding
    design = np.column_stack([rng.normal(size=100), equal(gold)])
    assert coefficient(gold, design, np.arange(100) // 5).p == 1


def test_bias_scores_are_those_of_mm_judgebias():
    table = bias_scores([5, 4, 1, NAN], [3, 4, 2, 5], groups=list("abcd"))
    assert table["estimate"].tolist() == pytest.approx([0.25, 0.75])
    assert table["n"].tolist() == [2, 3] and table["missing"].tolist() == [1, 1]
    assert table.loc["bias_conformity", ["low", "high"]].between(0, 1).all()
    one = bias_scores([10, 0, 4], [5, 0, 4], lowest=0, highest=10)["estimate"].tolist()
    assert one == pytest.approx([0.25, (0.5 + 1 + 1) / 3])
    with pytest.raises(ValueError, match="1 items have scores beyond"):
        bias_scores([6, 4], [3, 4])


VERDICTS = [  # case, must, effect, low, high, margin, p -> verdict, reading
    ("a", "stay", 0.0, -0.1, 0.1, 0.2, 1.0, "stays", "stays"),
    ("shown, too small", "stay", 0.1, 0.05, 0.15, 0.2, 1e-4, "stays", "stays"),
    ("a", "stay", 0.3, 0.1, 0.5, 0.2, 1e-4, "moves", "moves, though it must stay"),
    ("sure, too small", "stay", 0.1, 0.05, 0.25, 0.2, 1e-9, "can't say", "can't say"),
    ("by its interval alone", "stay", 0.3, 0.01, 0.5, 0.2, 0.04, "can't say", "can't say"),
    ("a", "move", -0.9, -1.0, -0.8, 0.25, 1e-4, "moves", "moves, as it must"),
    ("a", "move", -0.1, -0.2, 0.0, 0.25, 1e-4, "stays", "stays, though it must move"),
    ("a", "stay", NAN, NAN, NAN, 0.2, NAN, "can't say", "undefined"),
    ("a", None, 0.3, 0.1, 0.5, NAN, NAN, "", "described"),
]


def judged_rows(rows):
    columns = ["case", "must", "effect", "low", "high", "margin", "p", "expected", "words"]
    frame = pd.DataFrame(rows, columns=columns).astype({"must": object})
    return judged(frame.assign(unit="score points", note=""))


def test_verdicts_follow_holms_p_and_the_stated_margin():
    table = judged_rows(VERDICTS)
    assert table["reading"].tolist() == table["words"].tolist()
    assert table["verdict"].fillna("").tolist() == table["expected"].tolist()
    assert table.loc[3, "note"] == "shown, but perhaps too small to count"
    assert table["p_holm"].iloc[[0, 2, 3, 4]].tolist() == pytest.approx([1, 6e-4, 7e-9, 0.08])


@pytest.mark.parametrize(
    ("swapped", "blanked"), [(-0.9, "moves"), (-0.1, "can't say"), (None, "can't say")]
)
def test_a_blanked_image_counts_as_seen_only_beside_swapped_ones(swapped, blanked):
    rows = [("image blanked: agreement", "move", -0.8, -0.9, -0.7, 0.2, 1e-9, "", "")]
    if swapped is not None:
        ends = (swapped, swapped - 0.1, swapped + 0.1)
        rows.append(("image swapped: agreement", "move", *ends, 0.2, 1e-9, "", ""))
    table = judged_rows(rows)
    assert table.loc[0, "verdict"] == blanked
    assert table.loc[0, "note"].startswith("only swapped") == (blanked == "can't say")
