"""Verdicts on pairs: hand-derived shares, SciPy's intervals, scikit-learn's Bradley-Terry, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge.metrics import (
    bradley_terry,
    classification,
    feedback_preference,
    length_controlled,
    pairwise_accuracy,
    tie_calibrated_accuracy,
    win_rate,
)


def test_win_rates_by_hand():
    verdicts = ["a"] * 6 + ["b"] * 3 + ["tie"]
    table = win_rate(verdicts)
    expected = {"win": 0.6, "tie": 0.1, "loss": 0.3, "win_ties_half": 0.65, "win_ties_out": 6 / 9}
    expected |= {"win_or_tie": 0.7, "win_of_all": 0.6}
    assert table["estimate"].to_dict() == pytest.approx(expected, abs=1e-15)
    theirs = stats.binomtest(6, 10).proportion_ci(method="wilson")
    assert table.loc["win", ["low", "high"]].tolist() == pytest.approx(
        [theirs.low, theirs.high], abs=1e-10
    )
    five = ["A>>B", *5 * ["A>B"], *3 * ["B>>A"], "A=B"]
    pd.testing.assert_frame_equal(win_rate(five), table)


def test_what_is_no_verdict_is_counted_apart_and_never_a_tie():
    with pytest.warns(UserWarning, match="4 of 10 verdicts can't be read"):
        table = win_rate(["a", "tie", None, np.nan, "abstain", "AA", "[[A]]", ["a"], 1, pd.NA])
    assert table.loc["win", ["n", "missing"]].tolist() == [2, 8]
    assert table["estimate"]["tie"] == 0.5 and table["estimate"]["win_of_all"] == 0.1
    assert (table.attrs["missing"], table.attrs["abstained"], table.attrs["malformed"]) == (3, 1, 4)
    assert table.attrs["malformed_verdicts"] == {"AA": 1, "[[A]]": 1, "['a']": 1, "1": 1}
    capitals = win_rate(["A"] * 60 + ["B"] * 20 + ["Tie"] * 20)["estimate"]
    assert capitals[["win", "loss", "tie"]].tolist() == [0.6, 0.2, 0.2]


def test_accuracy_with_and_without_ties_by_hand():
    judge = ["a", "b", "tie", "tie", "a", None, "b"]
    human = ["a", "a", "tie", "b", "tie", "a", None]
    expected = {
        "with_ties": 2 / 5,
        "without_ties": 1 / 3,
        "both_decided": 1 / 2,
        "all_pairs": 2 / 6,
    }
    assert pairwise_accuracy(judge, human)["estimate"].to_dict() == pytest.approx(expected)


def test_four_way_comparison_of_prometheus_vision():
    """The published counts, Prometheus-Vision-13B against GPT-4V: 57.78 % is (21 + 57) / 135."""
    table = feedback_preference(
        np.repeat(["left", "right", "both good", "both bad"], [21, 36, 57, 21])
    )
    # By the same count the other side has 68.89 %, and it wins 36 of the 57 decided.
    rows = [
        "left_as_good_or_better",
        "right_as_good_or_better",
        "left_of_decided",
        "left_ties_half",
    ]
    assert table["estimate"][rows].round(4).tolist() == [
        0.5778,
        0.6889,
        round(21 / 57, 4),
        round(60 / 135, 4),
    ]


def test_a_share_of_all_or_none_has_a_width_with_groups_too():
    """Forty comparisons in eight images, all won: not [1, 1], and never [0, 0]."""
    image, q2 = np.repeat(range(8), 5), stats.t.ppf(0.975, 7) ** 2
    table = win_rate(["a"] * 40, groups=image)
    assert table.loc["win"].tolist()[:3] == pytest.approx(
        [1, 8 / (8 + q2), 1], abs=1e-12
    )  # Wilson's at 8 of 8
    assert table.loc["loss"].tolist()[:3] == pytest.approx([0, 0, q2 / (8 + q2)], abs=1e-12)
    ties = win_rate(["tie"] * 40, groups=image).loc["win_ties_half"]
    assert ties["estimate"] == 0.5 and ties["low"] == pytest.approx(0.5 - q2 / (8 + q2) / 2)


def test_classes_by_hand_and_by_scikit_learn():
    from sklearn.metrics import precision_recall_fscore_support

    rng = np.random.default_rng(0)
    actual = rng.choice(["left", "right", "both good", "both bad"], 80).astype(object)
    predicted = np.where(
        rng.random(80) < 0.6, actual, rng.choice(["left", "right", "unsure"], 80)
    ).astype(object)
    actual[3] = None
    predicted[[5, 9]] = None, float("nan")
    with pytest.warns(UserWarning, match=r"\('unsure', 'recall'\): undefined"):
        table = classification(predicted, actual, groups=np.arange(80) // 4)
    both = [i for i in range(80) if i not in (3, 5, 9)]
    right, (true, given) = (
        (predicted[both] == actual[both]).sum(),
        (c[both].astype(str) for c in (actual, predicted)),
    )
    classes = sorted({*given, *true})
    theirs = precision_recall_fscore_support(true, given, labels=classes, zero_division=np.nan)
    for column, name in enumerate(("precision", "recall")):
        np.testing.assert_allclose(
            table["estimate"].xs(name, level="statistic")[classes], theirs[column], atol=1e-12
        )
    macro = precision_recall_fscore_support(true, given, average="macro", zero_division=0)[2]
    expected = [right / 77, right / 79, macro]  # a failure counts as an error
    assert table.loc["all", "estimate"].tolist() == pytest.approx(expected, abs=1e-12)
    assert table.loc[("all", "accuracy"), ["n", "missing"]].tolist() == [77, 3]
    held = table.dropna()
    assert (
        (held["low"] < held["high"]) & held["estimate"].between(held["low"], held["high"])
    ).all()


def test_a_missing_label_changes_no_other():
    gold = pd.Series([1, 2, 3, 4] * 25)
    table = classification(gold.where(gold.index != 7), gold)["estimate"]  # floats now
    assert table[("all", "accuracy")] == 1.0 and table[("all", "accuracy_of_all")] == 0.99


def test_tie_calibration_equals_mt_metrics_eval():
    """The values of tau_optimization_test.py in google-research/mt-metrics-eval, `acc_23`."""
    judge = [[0, 5, 2, 3, 2], [None, 2, 1, 5, 3], [9, 1, 5, 3, 8], [9, 3, 4, 4, 1], [None] * 5]
    human = [[1, 5, 2, 1, 1], [4, 2, 2, 1, 4], [5, 9, 2, 8, 7], [7, 6, None, 3, 2], [None] * 5]
    table = tie_calibrated_accuracy(
        sum(judge, []), sum(human, []), within=np.repeat(range(5), 5), n_resamples=200
    )
    assert table["estimate"].tolist() == pytest.approx(
        [0.4916666666666668, 0.4666666666666667], abs=1e-12
    )
    assert table.attrs["epsilon"] == 1 and table["n"].eq(4).all() and table["missing"].eq(1).all()


def length_biased(n=600, bias=1.5, seed=0):
    """Verdicts that follow quality and length; images of three pairs each."""
    rng = np.random.default_rng(seed)
    quality, gap = rng.normal(size=n), rng.normal(size=n)
    odds = 1.5 * quality + bias * np.tanh(gap)
    verdict = np.where(rng.random(n) < 1 / (1 + np.exp(-odds)), "a", "b")
    preference = np.where(quality > 0.5, "a", np.where(quality < -0.5, "b", "tie")).astype(object)
    return verdict, 500 + 50 * gap, np.full(n, 500.0), preference, np.arange(n) // 3


def test_the_length_controlled_rate_has_an_interval_and_finds_the_bias():
    verdict, a, b, preference, image = length_biased()
    table = length_controlled(verdict, a, b, preferences=preference, groups=image)
    assert (
        table["estimate"].between(table["low"], table["high"]).all()
        and (table["low"] < table["high"]).all()
    )
    assert table.loc["longer_wins", "estimate"] == (verdict == np.where(a > b, "a", "b")).mean()
    assert table.loc["length_log_odds", "low"] > 0.5
    assert (
        table.loc["length_controlled_win_rate", "low"]
        < 0.5
        < table.loc["length_controlled_win_rate", "high"]
    )
    assert "not AlpacaEval's" in table.attrs["note"]
    preference[0] = None  # one less leaves the model as it is
    less = length_controlled(verdict, a, b, preferences=preference, groups=image)[1:]
    assert (table["estimate"][1:] - less["estimate"]).abs().max() < 0.01 and less[
        "missing"
    ].tolist() == [1] * 3


def test_a_model_against_itself_wins_one_half():
    for verdicts in (["tie"] * 30, ["a", "b"] * 15):
        with pytest.warns(UserWarning, match="length_log_odds: undefined"):
            table = length_controlled(verdicts, [20] * 30, [20] * 30)
        assert (
            table["estimate"].tolist()[1:3] == [0.5, 0.5]
            and table.iloc[2]["low"] < 0.5 < table.iloc[2]["high"]
        )


def test_lengths_that_hardly_overlap_are_said():
    with pytest.warns(UserWarning, match="b is longer in 98% of the comparisons.*extrapolation"):
        table = length_controlled(
            ["a", "b", "b"] * 50, [10, 11, 12] * 50, [5] * 3 + [30, 40, 31] * 49
        )
    assert table.attrs["overlap"] == 0.02


def test_bradley_terry_with_half_ties_equals_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    rng, strength = np.random.default_rng(0), np.linspace(-1, 1, 5)
    i = rng.integers(0, 5, 600)
    j = (i + rng.integers(1, 5, 600)) % 5
    ahead = np.exp((strength[i] - strength[j]) / 2)
    draw = rng.random(600) * (ahead + 1 / ahead + 0.7)
    verdicts = np.where(draw < ahead, "a", np.where(draw < ahead + 1 / ahead, "b", "tie"))
    design = np.eye(5)[i] - np.eye(5)[j]
    won = np.concatenate(
        [verdicts != "b", verdicts == "a"]
    )  # twice each: a tie is won once and lost once
    model = LogisticRegression(
        fit_intercept=False, C=np.inf, solver="newton-cholesky", tol=1e-13, max_iter=1000
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = model.fit(np.vstack([design, design]), won).coef_[0]
    table = bradley_terry(i, j, verdicts, n_resamples=0).sort_index()
    np.testing.assert_allclose(table["estimate"], theirs - theirs.mean(), atol=1e-10)
    np.testing.assert_allclose(
        table["elo"], 1000 + 400 / np.log(10) * table["estimate"], atol=1e-10
    )


def test_strengths_without_a_finite_maximum_are_nan():
    with pytest.warns(UserWarning, match="never beat"):
        assert (
            bradley_terry(["x", "x"], ["y", "z"], ["a", "b"], n_resamples=10)["estimate"]
            .isna()
            .all()
        )
    with pytest.warns(UserWarning, match="1 comparisons of a player with itself"):
        assert bradley_terry(["x", "x", "y"], ["x", "y", "x"], ["a"] * 3, n_resamples=0)[
            "n"
        ].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pairwise_accuracy(["a"], ["a", "b"]), "verdicts has 1, preferences has 2"),
        (lambda: bradley_terry(["x"], ["y"], ["a"], anchor="z"), "anchor"),
        (
            lambda: length_controlled(["a", "b"], [1, -3], [2, 2]),
            "length_a is negative: position 1: -3.0",
        ),
        (
            lambda: bradley_terry(["x", None], ["y", "z"], ["a", "b"]),
            "players are missing.*position 1",
        ),
        (
            lambda: win_rate(["first", "second", None]),
            "verdicts: 2 of 3 are none of a, b, tie, .*such as 'first' at position 0",
        ),
        (
            lambda: pairwise_accuracy(["a", "b"], ["a", "second"]),
            "preferences: 1 of 2 are none .*'second' at position 1: write",
        ),
    ],
)
def test_bad_input_is_named_and_another_spelling_is_not_counted_as_missing(call, message):
    with pytest.raises(ValueError, match=message):
        call()
