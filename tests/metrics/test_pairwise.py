"""Verdicts on pairs: hand-derived shares, SciPy's intervals, scikit-learn, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_fscore_support

from vjudge.metrics import (
    bradley_terry,
    classification,
    feedback_preference,
    length_controlled,
    pairwise_accuracy,
    tie_calibrated_accuracy,
    win_rate,
)

JUDGE = ["a", "b", "tie", "tie", "a", None, "b"]
HUMAN = ["a", "a", "tie", "b", "tie", "a", None]
# Prometheus-Vision-13B against GPT-4V: 57.78 % is (21 + 57) / 135. By the same count the other side
# has 68.89 %, and it wins 36 of the 57 decided.
FOUR_WAY = np.repeat(["left", "right", "both good", "both bad"], [21, 36, 57, 21])
BY_HAND = {
    "win rates": (
        win_rate(["a"] * 6 + ["b"] * 3 + ["tie"]),
        {"win": 0.6, "tie": 0.1, "loss": 0.3, "win_ties_half": 0.65, "win_ties_out": 6 / 9}
        | {"win_or_tie": 0.7, "win_of_all": 0.6},
    ),
    "five answers": (
        win_rate(["A>>B", *5 * ["A>B"], *3 * ["B>>A"], "A=B"]),
        {"win": 0.6, "tie": 0.1, "loss": 0.3},
    ),
    "capitals": (
        win_rate(["A"] * 60 + ["B"] * 20 + ["Tie"] * 20),
        {"win": 0.6, "tie": 0.2, "loss": 0.2},
    ),
    "accuracy": (
        pairwise_accuracy(JUDGE, HUMAN),
        {"with_ties": 2 / 5, "without_ties": 1 / 3, "both_decided": 1 / 2, "all_pairs": 2 / 6},
    ),
    "feedback": (
        feedback_preference(FOUR_WAY),
        {"left_as_good_or_better": 78 / 135, "right_as_good_or_better": 93 / 135}
        | {"left_of_decided": 21 / 57, "left_ties_half": 60 / 135},
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_shares_by_hand(name):
    table, expected = BY_HAND[name]
    assert table["estimate"][list(expected)].to_dict() == pytest.approx(expected, abs=1e-15)
    first = table.iloc[0]
    count = round(first["estimate"] * first["n"])
    theirs = stats.binomtest(count, int(first["n"])).proportion_ci(method="wilson")
    assert first[["low", "high"]].tolist() == pytest.approx([theirs.low, theirs.high], abs=1e-10)


def test_what_is_no_verdict_is_counted_apart_and_never_a_tie():
    verdicts = ["a", "tie", None, np.nan, "abstain", "AA", "[[A]]", ["a"], 1, pd.NA]
    with pytest.warns(UserWarning, match="4 of 10 verdicts can't be read"):
        table = win_rate(verdicts)
    assert table.loc["win", ["n", "missing"]].tolist() == [2, 8]
    assert table["estimate"]["tie"] == 0.5 and table["estimate"]["win_of_all"] == 0.1
    account = {"AA": 1, "[[A]]": 1, "['a']": 1, "1": 1}
    expected = {"missing": 3, "abstained": 1, "malformed": 4, "malformed_verdicts": account}
    assert {name: table.attrs[name] for name in expected} == expected


def test_a_share_of_all_or_none_has_a_width_with_groups_too():
    """Forty comparisons in eight images, all won: not [1, 1], and never [0, 0]."""
    image = np.repeat(range(8), 5)
    q2 = stats.t.ppf(0.975, 7) ** 2
    table = win_rate(["a"] * 40, groups=image)[["estimate", "low", "high"]]
    assert table.loc["win"].tolist() == pytest.approx([1, 8 / (8 + q2), 1])  # Wilson's, 8 of 8
    assert table.loc["loss"].tolist() == pytest.approx([0, 0, q2 / (8 + q2)])


def test_classes_by_scikit_learn():
    rng = np.random.default_rng(0)
    actual = rng.choice(["left", "right", "both good", "both bad"], 80).astype(object)
    guess = rng.choice(["left", "right", "unsure"], 80)
    predicted = np.where(rng.random(80) < 0.6, actual, guess).astype(object)
    actual[3] = None
    predicted[[5, 9]] = None, float("nan")
    with pytest.warns(UserWarning, match=r"\('unsure', 'recall'\): undefined"):
        table = classification(predicted, actual, groups=np.arange(80) // 4)
    both = pd.notna(actual) & pd.notna(predicted)
    true = actual[both].astype(str)
    given = predicted[both].astype(str)
    classes = sorted({*given, *true})
    theirs = precision_recall_fscore_support(true, given, labels=classes, zero_division=np.nan)
    for column, name in enumerate(("precision", "recall")):
        ours = table["estimate"].xs(name, level="statistic")[classes]
        np.testing.assert_allclose(ours, theirs[column], atol=1e-12)
    macro = precision_recall_fscore_support(true, given, average="macro", zero_division=0)[2]
    right = (true == given).sum()
    expected = [right / 77, right / 79, macro]  # a failure counts as an error
    assert table.loc["all", "estimate"].tolist() == pytest.approx(expected, abs=1e-12)
    assert table.loc[("all", "accuracy"), ["n", "missing"]].tolist() == [77, 3]
    gold = pd.Series([1, 2, 3, 4] * 25)  # a missing label makes floats of the others
    table = classification(gold.where(gold.index != 7), gold)["estimate"]
    assert table[("all", "accuracy")] == 1.0 and table[("all", "accuracy_of_all")] == 0.99


def test_tie_calibration_equals_mt_metrics_eval():
    """The values of tau_optimization_test.py in google-research/mt-metrics-eval, `acc_23`."""
    judge = [[0, 5, 2, 3, 2], [None, 2, 1, 5, 3], [9, 1, 5, 3, 8], [9, 3, 4, 4, 1], [None] * 5]
    human = [[1, 5, 2, 1, 1], [4, 2, 2, 1, 4], [5, 9, 2, 8, 7], [7, 6, None, 3, 2], [None] * 5]
    within = np.repeat(range(5), 5)
    table = tie_calibrated_accuracy(sum(judge, []), sum(human, []), within=within, n_resamples=200)
    assert table["estimate"].tolist() == pytest.approx([59 / 120, 56 / 120], abs=1e-12)
    assert table.attrs["epsilon"] == 1 and table["n"].eq(4).all() and table["missing"].eq(1).all()


def test_the_length_controlled_rate_has_an_interval_and_finds_the_bias():
    """Verdicts that follow quality and length; images of three pairs each."""
    rng = np.random.default_rng(0)
    quality, gap = rng.normal(size=(2, 600))
    odds = 1.5 * quality + 1.5 * np.tanh(gap)
    verdict = np.where(rng.random(600) < 1 / (1 + np.exp(-odds)), "a", "b")
    preference = np.select([quality > 0.5, quality < -0.5], ["a", "b"], "tie").astype(object)
    lengths = (500 + 50 * gap, np.full(600, 500.0))
    options = {"preferences": preference, "groups": np.arange(600) // 3}
    table = length_controlled(verdict, *lengths, **options)
    assert ((table["low"] < table["estimate"]) & (table["estimate"] < table["high"])).all()
    longer = verdict == np.where(gap > 0, "a", "b")
    assert table.loc["longer_wins", "estimate"] == longer.mean()
    assert table.loc["length_log_odds", "low"] > 0.5
    controlled = table.loc["length_controlled_win_rate"]
    assert controlled["low"] < 0.5 < controlled["high"]
    assert "not AlpacaEval's" in table.attrs["note"]
    preference[0] = None  # one less leaves the model as it is
    less = length_controlled(verdict, *lengths, **options)[1:]
    assert (table["estimate"][1:] - less["estimate"]).abs().max() < 0.01
    assert less["missing"].tolist() == [1] * 3


def test_lengths_that_tell_nothing():
    for verdicts in (["tie"] * 30, ["a", "b"] * 15):  # a model against itself
        with pytest.warns(UserWarning, match="length_log_odds: undefined"):
            table = length_controlled(verdicts, [20] * 30, [20] * 30)
        assert table["estimate"].tolist()[1:3] == [0.5, 0.5]
        assert table.iloc[2]["low"] < 0.5 < table.iloc[2]["high"]
    with pytest.warns(UserWarning, match="length_log_odds: undefined"):  # the longer always wins
        length_controlled(["a", "b"] * 15, [20, 10] * 15, [10, 20] * 15)
    with pytest.warns(UserWarning, match="b is longer in 98% of the comparisons.*extrapolation"):
        longer = [5] * 3 + [30, 40, 31] * 49
        table = length_controlled(["a", "b", "b"] * 50, [10, 11, 12] * 50, longer)
    assert table.attrs["overlap"] == 0.02


def test_bradley_terry_with_half_ties_equals_logistic_regression():
    rng = np.random.default_rng(0)
    i = rng.integers(0, 5, 600)
    j = (i + rng.integers(1, 5, 600)) % 5
    chance = 1 / (1 + np.exp(-(i - j) / 2))
    verdicts = np.where(rng.random(600) < chance, "a", "b")
    verdicts[rng.random(600) < 0.2] = "t"
    design = np.eye(5)[i] - np.eye(5)[j]
    won = np.concatenate([verdicts != "b", verdicts == "a"])  # a tie is won once and lost once
    options = {"fit_intercept": False, "C": np.inf, "solver": "newton-cholesky", "tol": 1e-13}
    model = LogisticRegression(**options, max_iter=1000).fit(np.vstack([design, design]), won)
    theirs = model.coef_[0] - model.coef_[0].mean()
    names = np.where(verdicts == "t", "tie", verdicts)
    table = bradley_terry(i, j, names, n_resamples=200).sort_index()
    np.testing.assert_allclose(table["estimate"], theirs, atol=1e-8)
    np.testing.assert_allclose(table["elo"], 1000 + 400 / np.log(10) * theirs, atol=1e-5)
    assert ((table["low"] < theirs) & (theirs < table["high"])).all()


def test_strengths_without_a_finite_maximum_are_nan():
    with pytest.warns(UserWarning, match="never beat"):
        table = bradley_terry(["x", "x"], ["y", "z"], ["a", "b"], n_resamples=100)
    assert table["estimate"].isna().all()
    with pytest.warns(UserWarning, match="1 comparisons of a player with itself"):
        table = bradley_terry(["x", "x", "y"], ["x", "y", "x"], ["a"] * 3, n_resamples=0)
    assert table["n"].tolist() == [2, 2]


WRONG = [
    (lambda: pairwise_accuracy(["a"], ["a", "b"]), "verdicts has 1, preferences has 2"),
    (lambda: bradley_terry(["x"], ["y"], ["a"], anchor="z"), "anchor"),
    (lambda: bradley_terry(["x", None], ["y", "z"], ["a", "b"]), "players .* missing.*position 1"),
    (lambda: win_rate(["first", "second", None]), "verdicts: 2 of 3 .* 'first' at position 0"),
    (lambda: pairwise_accuracy(["a", "b"], ["a", "second"]), "preferences: 1 of 2 .* position 1"),
    (lambda: length_controlled(["a"], [-3], [2]), "length_a is negative: position 0: -3.0"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_bad_input_is_named_and_another_spelling_is_not_counted_as_missing(call, message):
    with pytest.raises(ValueError, match=message):
        call()
