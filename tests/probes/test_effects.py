"""Estimates against SciPy, statsmodels and brute force; what they say where nothing varies."""

import io

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge.probes import bias_scores
from vjudge.probes.decisions import judged
from vjudge.probes.effects import coefficient, equal, mean

NAN = float("nan")
rng = np.random.default_rng(0)


def test_means_are_students_t_tests_of_single_rows_or_of_equal_groups():
    values = rng.normal(0.3, 1, 60)
    expected = stats.ttest_1samp(values, 0)
    low, high = expected.confidence_interval(0.95)
    single = mean(values, range(60))
    assert single == pytest.approx((values.mean(), low, high, expected.pvalue, 60, 60), abs=1e-10)
    grouped = mean(values, np.repeat(range(12), 5))
    by_group = values.reshape(12, 5).mean(axis=1)
    assert grouped.p == pytest.approx(stats.ttest_1samp(by_group, 0).pvalue)


def test_a_coefficient_is_the_least_squares_one_with_a_jackknife_over_groups():
    groups = np.append(rng.integers(0, 15, 77), [15, 15, 15])
    gold = np.append(rng.integers(1, 5, 77), [5, 5, 5]).astype(float)  # a level of one group alone
    x = rng.normal(size=80)
    y = 0.2 * x + gold + rng.normal(size=80)
    design = np.column_stack([x, equal(gold)])

    def fit(rows):
        return np.linalg.lstsq(design[rows], y[rows], rcond=None)[0][0]

    effect = coefficient(y, design, groups)
    fits = np.array([fit(groups != group) for group in range(16)])
    reach = np.sqrt(15 * fits.var()) * stats.t.ppf(0.975, 15)
    expected = fit(groups >= 0) + np.array([0, -reach, reach])
    assert effect[:3] == pytest.approx(expected, abs=1e-10)


def test_what_does_not_vary_is_undefined_and_what_never_moves_has_p_of_one():
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
    for seed in range(4):  # with many uneven groups, too
        rng_of = np.random.default_rng(seed)
        gold = rng_of.integers(1, 6, 300).astype(float)
        words = np.log2(rng_of.choice([14, 20, 24, 28, 32, 36], 300))
        own = coefficient(gold, np.column_stack([words, equal(gold)]), rng_of.integers(0, 60, 300))
        assert own.p == 1 and own.high > 0.01


def test_bias_scores_are_those_of_mm_judgebias():
    table = bias_scores([5, 4, 1, NAN], [3, 4, 2, 5], groups=list("abcd"))
    assert table["estimate"].tolist() == pytest.approx([0.25, 0.75])
    assert table["n"].tolist() == [2, 3] and table["missing"].tolist() == [1, 1]
    assert table.loc["bias_conformity", ["low", "high"]].between(0, 1).all()
    one = bias_scores([10, 0, 4], [5, 0, 4], lowest=0, highest=10)["estimate"].tolist()
    assert one == pytest.approx([0.25, (0.5 + 1 + 1) / 3])
    with pytest.raises(ValueError, match="1 items have scores beyond"):
        bias_scores([6, 4], [3, 4])
    with pytest.raises(ValueError, match="1 items have scores beyond"):  # beside a missing one, too
        bias_scores([NAN, 4], [6, 4])


VERDICTS = """\
must,effect,low,high,margin,p,expected,passes,words
stay,0,-.1,.1,.2,1,stays,True,stays
stay,.1,.05,.15,.2,1e-4,stays,True,stays
stay,.3,.1,.5,.2,1e-4,moves,False,"moves, though it must stay"
stay,.1,.05,.25,.2,1e-9,can't say,,can't say
stay,.3,.01,.5,.2,.04,can't say,,can't say
move,-.9,-1,-.8,.25,1e-4,moves,True,"moves, as it must"
move,-.1,-.2,0,.25,1e-4,stays,False,"stays, though it must move"
stay,,,,.2,,undefined,,undefined
,.3,.1,.5,,,described,,described
"""  # the second and fourth are significant and too small; the fifth is told by its interval alone


def test_verdicts_follow_holms_p_and_the_stated_margin():
    frame = pd.read_csv(io.StringIO(VERDICTS), dtype={"passes": "boolean"})
    given = frame.drop(columns="passes").assign(perturbation=None, unit="score points", note="")
    table = judged(given)
    pd.testing.assert_series_equal(table["passes"], frame["passes"])
    for column, expected in (("reading", "words"), ("verdict", "expected")):
        assert table[column].tolist() == frame[expected].tolist()
    assert table.loc[3, "note"] == "significant, but perhaps too small to count"
    assert table["p_holm"].iloc[[0, 2, 3, 4]].tolist() == pytest.approx([1, 6e-4, 7e-9, 0.08])
