"""Verdicts on pairs: hand-derived shares, SciPy's intervals, scikit-learn, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from vjudge.metrics import (
    bradley_terry,
    compare_choices,
    feedback_preference,
    length_controlled_win_rate,
    pairwise_accuracy,
    win_rate,
)
from vjudge.metrics.shares import shares

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
    assert table[["abstained", "malformed"]].drop_duplicates().to_numpy().tolist() == [[1, 4]]


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


def firth_by_hand(wins, losses):
    """Of two players Firth's penalty is half a win for each side."""
    return np.log((wins + 0.5) / (losses + 0.5))


def test_who_never_wins_has_a_finite_strength_and_is_named():
    with pytest.warns(UserWarning, match="Firth's penalty .*: x never beat, or never lost to, the"):
        table = bradley_terry(["x"] * 7, ["y"] * 7, ["a"] * 7)
    gap = table["estimate"]["x"] - table["estimate"]["y"]
    assert gap == pytest.approx(firth_by_hand(7, 0), abs=1e-9)
    assert (table["low"] < table["estimate"]).all() and (table["estimate"] < table["high"]).all()
    # The others' strengths stay what they are, nearly, where one of many never wins.
    i, j = np.triu_indices(4, 1)
    first, second = np.repeat(i, 20), np.repeat(j, 20)
    rng = np.random.default_rng(0)
    verdicts = np.where(rng.random(120) < 0.6, "a", "b")
    usual = bradley_terry(first, second, verdicts)["estimate"]
    first, second = np.r_[first, range(4)], np.r_[second, [4] * 4]
    with pytest.warns(UserWarning, match=": 4 never beat"):
        table = bradley_terry(first, second, np.r_[verdicts, ["a"] * 4])
    assert table.index[-1] == 4 and table["estimate"].notna().all()
    theirs = table["estimate"][range(4)]
    np.testing.assert_allclose(theirs - theirs.mean(), usual[range(4)], atol=0.05)


def test_who_never_meets_the_others_is_named():
    first, second = ["x", "y", "z", "p"] * 3, ["y", "z", "x", "q"] * 3
    with pytest.warns(UserWarning, match="no strength of p, q: they never met the other 3"):
        table = bradley_terry(first, second, ["a", "b", "a", "a"] * 2 + ["b", "a", "b", "b"])
    assert table["estimate"].notna().tolist() == [True] * 3 + [False] * 2
    with pytest.warns(UserWarning, match="1 comparisons of a player with itself"):
        table = bradley_terry(["x", "x", "y"], ["x", "y", "x"], ["a"] * 3)
    assert table["n"].tolist() == [2, 2]


def test_ties_alone_are_not_certain():
    table = bradley_terry(["x"] * 10, ["y"] * 10, ["tie"] * 10)
    half = stats.norm.ppf(0.975) / 2 / np.sqrt(10 / 4)  # of a strength, half the gap's
    assert table["estimate"].tolist() == [0, 0]
    assert table.loc["x", "high"] > half and table.loc["x", "low"] < -half


def test_judges_are_compared_by_mcnemars_test():
    """Exact p of SciPy's sign test; in groups all signs by hand."""
    rng = np.random.default_rng(0)
    human = rng.choice(["a", "b", "tie"], 200)
    judges = {}
    for name, right in (("good", 0.8), ("fair", 0.7), ("poor", 0.5)):
        judges[name] = np.where(rng.random(200) < right, human, rng.choice(["a", "b"], 200))
    table = compare_choices(human, judges)
    assert len(table) == 6 and (table["p_holm"] >= table["p"]).all()
    for (a, b, measure), row in table.iterrows():
        used = (human != "tie") | (measure == "with_ties")
        right = [(judges[name] == human)[used] for name in (a, b)]
        only = [int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())]
        assert row[["only_a", "only_b", "n"]].tolist() == [*only, used.sum()]
        assert row["p"] == pytest.approx(stats.binomtest(only[0], sum(only)).pvalue)
        assert row["difference"] == pytest.approx(right[0].mean() - right[1].mean())
        assert row["low"] < row["difference"] < row["high"]
    # Differences 2, 2, -1 of three groups: of eight signs, sums 5, 3, 1, 1 and their mirrors
    verdicts = {"x": ["a"] * 5, "y": ["b"] * 4 + ["a"]}
    human = ["a"] * 4 + ["b"]
    grouped = compare_choices(
        ["a"] * 5, {"x": list("aaaab"), "y": list("bbbba")}, groups=list("ppqqr")
    )
    assert grouped["p"].iloc[0] == pytest.approx(4 / 8)
    with pytest.raises(ValueError, match="two or more"):
        compare_choices(human, {"x": verdicts["x"]})


def alpaca_rows(n=400):
    """Rows as AlpacaEval has them: preference of output_2 in [1, 2], lengths in characters."""
    rng = np.random.default_rng(0)
    length_1, length_2 = rng.integers(200, 3000, size=(2, n))
    difficulty = rng.normal(size=n)
    logit = 0.3 + 1.5 * np.tanh((length_2 - length_1) / 1000) - 0.5 * difficulty
    preference = 1 + np.clip(1 / (1 + np.exp(-logit)) + rng.normal(0, 0.15, n), 0, 1)
    return preference, length_1, length_2, difficulty


@pytest.mark.parametrize("has_difficulty", [True, False])
def test_length_controlled_win_rate_is_alpaca_evals_regression(has_difficulty):
    """By scikit-learn on each row twice, weighted by its preference, as AlpacaEval fits it."""
    preference, length_1, length_2, difficulty = alpaca_rows()
    gap = length_1 - length_2
    columns = [np.tanh(gap / gap.std(ddof=1)), difficulty, np.ones(400)]
    design = np.column_stack(columns if has_difficulty else columns[::2])
    share = preference - 1
    rows = np.vstack([design, design]), np.repeat([1, 0], 400)
    weights = np.r_[share, 1 - share]
    options = {"fit_intercept": False, "max_iter": 10_000, "tol": 1e-12}
    rates = []
    for model in (
        LogisticRegression(C=np.inf, solver="newton-cholesky", **options),
        LogisticRegression(C=100, l1_ratio=1, solver="liblinear", **options),
    ):
        model.fit(*rows, sample_weight=weights)
        at_zero = design.copy()
        at_zero[:, 0] = 0
        rates.append(model.predict_proba(at_zero)[:, 1].mean())
    known = {"difficulty": difficulty} if has_difficulty else {}
    table = length_controlled_win_rate(share, length_2, length_1, **known)
    row = table.loc["length_controlled"]
    assert row["estimate"] == pytest.approx(rates[0], abs=1e-8)
    assert row["estimate"] == pytest.approx(rates[1], abs=1e-3)
    assert row["low"] < 0.57 < row["high"]
    image = np.arange(400) // 4
    grouped = length_controlled_win_rate(share, length_2, length_1, groups=image)
    assert grouped.loc["length_controlled", "n"] == 400


def test_length_that_tells_all_verdicts_is_said():
    lengths = np.arange(20.0)
    with pytest.warns(UserWarning, match="length tells all verdicts"):
        table = length_controlled_win_rate(np.where(lengths > 9.5, "a", "b"), lengths, [9.5] * 20)
    assert table["estimate"].tolist() == pytest.approx([0.5, 0.5])
    for verdicts, message in (([80.0] * 20, "such as 80"), (["a"] * 5 + [None] * 15, "5 compari")):
        with pytest.raises(ValueError, match=message):
            length_controlled_win_rate(verdicts, lengths, [9.5] * 20)


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


FUNCTIONS = {
    "win_rate": lambda f, g: win_rate(f["one"], groups=g),
    "pairwise_accuracy": lambda f, g: pairwise_accuracy(f["one"], f["human"], groups=g),
    "compare_choices": lambda f, g: compare_choices(f["human"], f[["one", "other"]], groups=g),
    "bradley_terry": lambda f, g: bradley_terry(f["x"], f["y"], f["one"], groups=g).sort_index(),
    "length": lambda f, g: length_controlled_win_rate(f["one"], f["a"], f["b"], groups=g),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_order_and_index_change_nothing_and_repeated_ids_are_grouped(name):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.choice(["a", "b", "tie"], (120, 3)), columns=["human", "one", "other"])
    frame[["a", "b"]] = rng.integers(10, 99, (120, 2))
    frame["x"], frame["y"] = np.resize(list("pqr"), 120), np.resize(list("qrp"), 120)
    group = np.arange(120) // 4
    table = FUNCTIONS[name](frame, group)
    order = rng.permutation(120)
    names = np.array([f"image {number * 7 % 30}" for number in group])
    for other, groups in (
        (frame.iloc[order], group[order]),
        (frame.set_axis([0] * 120), group),
        (frame, names),
    ):
        theirs = FUNCTIONS[name](other, groups)
        pd.testing.assert_frame_equal(theirs, table, rtol=1e-8, atol=1e-10)
    with pytest.warns(UserWarning, match="120 rows have 30 ids"):
        theirs = FUNCTIONS[name](frame.set_axis(names), None)
    assert "30 ids" in theirs.attrs["caveats"][0]
    pd.testing.assert_frame_equal(theirs, table, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("blank", ["", " ", "n/a", "NA", "nan", None, np.nan, pd.NA])
def test_a_blank_verdict_is_missing_and_not_malformed(blank):
    table = win_rate(["a", "b", "a", blank])
    assert table.loc["win", ["n", "missing", "malformed"]].tolist() == [3, 1, 0]
