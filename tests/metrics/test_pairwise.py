"""Verdicts on pairs: hand-derived shares, SciPy's intervals, scikit-learn, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from vjudge.metrics import (
    bradley_terry,
    feedback_preference,
    pairwise_accuracy,
    win_rate,
)
from vjudge.metrics.tables import shares

JUDGE = ["a", "b", "tie", "tie", "a", None, "b"]
HUMAN = ["a", "a", "tie", "b", "tie", "a", None]
# Prometheus-Vision-13B against GPT-4V: 57.78 % is (21 + 57) / 135. By the same count the other side
# has 68.89 %, and it wins 36 of the 57 decided.
FOUR_WAY = np.repeat(["left", "right", "both good", "both bad"], [21, 36, 57, 21])
BY_HAND = {
    "win rates": (
        win_rate(["a"] * 6 + ["b"] * 3 + ["tie"]),
        {"win": 0.6, "tie": 0.1, "loss": 0.3, "win_ties_half": 0.65, "win_ties_out": 6 / 9}
        | {"win_of_all": 0.6},
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
    share, *bounds, n = table[["estimate", "low", "high", "n"]].iloc[0]
    theirs = stats.binomtest(round(share * n), int(n)).proportion_ci(method="wilson")
    assert bounds == pytest.approx(list(theirs), abs=1e-10)


def test_what_is_no_verdict_is_counted_apart_and_never_a_tie():
    verdicts = ["a", "tie", None, np.nan, "abstain", "AA", "[[A]]", ["a"], 1, pd.NA]
    with pytest.warns(UserWarning, match="4 of 10 verdicts can't be read"):
        table = win_rate(verdicts)
    assert table.loc["win", ["n", "missing"]].tolist() == [2, 8]
    assert table["estimate"]["tie"] == 0.5 and table["estimate"]["win_of_all"] == 0.1
    expected = {"missing": 3, "abstained": 1, "malformed": 4}
    assert {name: table.attrs[name] for name in expected} == expected


def test_a_share_of_all_or_none_has_a_width_with_groups_too():
    """Forty comparisons in eight images, all won: not [1, 1], and never [0, 0]."""
    image = np.repeat(range(8), 5)
    q2 = stats.t.ppf(0.975, 7) ** 2
    table = win_rate(["a"] * 40, groups=image)[["estimate", "low", "high"]]
    assert table.loc["win"].tolist() == pytest.approx([1, 8 / (8 + q2), 1])  # Wilson's, 8 of 8
    assert table.loc["loss"].tolist() == pytest.approx([0, 0, q2 / (8 + q2)])
    # the plain mean of four parts that share these images is no surer than all of them
    part = np.arange(40) % 4 == np.arange(4)[:, None]
    rows = [("all", np.ones(40), np.ones(40)), ("macro", part, part)]
    table = shares(rows, groups=image, unit="pairs")
    assert 0.55 < table.loc["macro", "low"] <= table.loc["all", "low"]


def test_bradley_terry_with_half_ties_equals_logistic_regression():
    rng = np.random.default_rng(0)
    i = rng.integers(0, 5, 600)
    j = (i + rng.integers(1, 5, 600)) % 5
    verdicts = np.where(rng.logistic(size=600) < (i - j) / 2, "a", "b").astype(object)
    verdicts[:100] = "tie"
    design = np.eye(5)[i] - np.eye(5)[j]
    won = np.concatenate([verdicts != "b", verdicts == "a"])  # a tie is won once and lost once
    model = LogisticRegression(fit_intercept=False, C=np.inf, solver="newton-cholesky", tol=1e-13)
    theirs = model.fit(np.vstack([design, design]), won).coef_[0]
    theirs -= theirs.mean()
    table = bradley_terry(i, j, verdicts).sort_index()
    np.testing.assert_allclose(table["estimate"], theirs, atol=1e-8)
    np.testing.assert_allclose(table["elo"], 1000 + 400 / np.log(10) * theirs, atol=1e-5)
    assert ((table["low"] < theirs) & (theirs < table["high"])).all()


def test_strengths_without_a_finite_maximum_are_nan():
    with pytest.warns(UserWarning, match="never beat"):
        table = bradley_terry(["x", "x"], ["y", "z"], ["a", "b"])
    assert table["estimate"].isna().all()
    with pytest.warns(UserWarning, match="1 comparisons of a player with itself"):
        table = bradley_terry(["x", "x", "y"], ["x", "y", "x"], ["a"] * 3)
    assert table["n"].tolist() == [2, 2]


WRONG = [
    (lambda: pairwise_accuracy(["a"], ["a", "b"]), "verdicts has 1, preferences has 2"),
    (lambda: bradley_terry(["x", None], ["y", "z"], ["a", "b"]), "players .* missing.*position 1"),
    (lambda: win_rate(["first", "second", None]), "verdicts: 2 of 3 .* position 0: 'first'"),
    (lambda: pairwise_accuracy(["a", "b"], ["a", "second"]), "preferences: 1 of 2 .* position 1"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_bad_input_is_named_and_another_spelling_is_not_counted_as_missing(call, message):
    with pytest.raises(ValueError, match=message):
        call()
