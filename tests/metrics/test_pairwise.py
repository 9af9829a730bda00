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
    model_ranking,
    order_consistency,
    pairwise_accuracy,
    tie_calibrated_accuracy,
    win_rate,
)

VERDICTS = ["a"] * 6 + ["b"] * 3 + ["tie"] * 1


def test_win_rates_by_hand():
    found = win_rate(VERDICTS)
    expected = {"win": 0.6, "tie": 0.1, "loss": 0.3, "win_ties_half": 0.65, "win_ties_out": 6 / 9}
    expected |= {"win_or_tie": 0.7, "win_of_all": 0.6}
    assert found["estimate"].to_dict() == pytest.approx(expected, abs=1e-15)
    assert found.loc["win_ties_out", ["n", "missing"]].tolist() == [9, 1]
    theirs = stats.binomtest(6, 10).proportion_ci(method="wilson")
    assert found.loc["win", ["low", "high"]].tolist() == pytest.approx([theirs.low, theirs.high], abs=1e-10)
    other = win_rate(VERDICTS, side="b")["estimate"]
    assert other["win"] == 0.3 and other["win_ties_half"] == pytest.approx(0.35)


def test_what_is_no_verdict_is_counted_apart_and_never_a_tie():
    found = win_rate(["a", "tie", None, np.nan, "abstain", "A", "[[A]]", ["a"], 1, pd.NA])
    assert found.loc["win", ["n", "missing"]].tolist() == [2, 8]
    assert found["estimate"]["tie"] == 0.5 and found["estimate"]["win_of_all"] == 0.1
    assert (found.attrs["missing"], found.attrs["abstained"], found.attrs["malformed"]) == (3, 1, 4)
    assert found.attrs["malformed_verdicts"] == {"A": 1, "[[A]]": 1, "['a']": 1, "1": 1}


def test_accuracy_with_and_without_ties_by_hand():
    judge = ["a", "b", "tie", "tie", "a", None, "b"]
    human = ["a", "a", "tie", "b", "tie", "a", None]
    found = pairwise_accuracy(judge, human)["estimate"]
    assert found["with_ties"] == pytest.approx(2 / 5)
    assert found["without_ties"] == pytest.approx(1 / 3)
    assert found["both_decided"] == pytest.approx(1 / 2)
    assert found["all_pairs"] == pytest.approx(2 / 6)


def test_order_consistency_by_hand():
    ab = ["a", "a", "b", "tie", "a", None]
    ba = ["a", "b", "a", "a", "tie", "a"]
    found = order_consistency(ab, ba)
    assert found["estimate"][["consistent", "flipped", "tie_in_one"]].tolist() == pytest.approx([1 / 5, 2 / 5, 2 / 5])
    # Chosen in ab: a a b - a, first shown a; in ba: a b a a -, first shown b. First: 3 of 4 and 1 of 4.
    assert found["estimate"]["first_chosen"] == pytest.approx(4 / 8)
    assert found.loc["first_chosen", "n"] == 5 and found.attrs["ab"]["missing"] == 1


def test_four_way_comparison_of_prometheus_vision():
    """The published counts, Prometheus-Vision-13B against GPT-4V: 57.78 % is (21 + 57) / 135."""
    counts = {"left": 21, "right": 36, "both good": 57, "both bad": 21}
    found = feedback_preference(counts)
    assert round(100 * found["estimate"]["left_as_good_or_better"], 2) == 57.78
    # What it leaves out: by the same count the other side has 68.89 %, and it wins 36 of the 57 decided.
    assert round(100 * found["estimate"]["right_as_good_or_better"], 2) == 68.89
    assert found["estimate"]["left_of_decided"] == pytest.approx(21 / 57)
    assert found["estimate"]["left_ties_half"] == pytest.approx((21 + 39) / 135)
    single = [answer for answer, n in counts.items() for _ in range(n)]
    pd.testing.assert_frame_equal(found, feedback_preference(single))


def test_a_share_of_all_or_none_has_a_width_with_groups_too():
    """Forty comparisons in eight images, all won: not [1, 1], and never [0, 0]."""
    image = np.repeat(range(8), 5)
    found = win_rate(["a"] * 40, groups=image)
    assert found.loc["win", "estimate"] == 1 and found.loc["win", "high"] == 1
    q2 = stats.t.ppf(0.975, 7) ** 2
    assert found.loc["win", "low"] == pytest.approx(8 / (8 + q2), abs=1e-12)  # Wilson's at 8 of 8
    assert found.loc["loss", ["estimate", "low"]].tolist() == [0, 0]
    assert found.loc["loss", "high"] == pytest.approx(q2 / (8 + q2), abs=1e-12)
    ties = win_rate(["tie"] * 40, groups=image).loc["win_ties_half"]
    assert ties["estimate"] == 0.5 and ties["low"] == pytest.approx(0.5 - q2 / (8 + q2) / 2)
    everything = pairwise_accuracy(["a"] * 40, ["a"] * 40, groups=image)
    assert (everything["low"] < 1).all() and (everything["low"] > 0).all()
    assert (feedback_preference(["left"] * 40, groups=image)["high"] > 0).all()


@pytest.mark.parametrize(("n_groups", "share"), [(12, 0.5), (30, 0.9)])
def test_intervals_of_grouped_shares_cover(n_groups, share):
    """500 samples of groups of five that agree among themselves; at .95, 500 show less than .92 once in 500."""
    rng = np.random.default_rng(1)
    spread = 2.0  # of a beta distribution of the groups' own shares
    covered = []
    for _ in range(500):
        own = rng.beta(share * spread, (1 - share) * spread, n_groups)
        won = rng.random((n_groups, 5)) < own[:, None]
        row = win_rate(np.where(won.ravel(), "a", "b"), groups=np.repeat(range(n_groups), 5)).loc["win"]
        covered.append(row["low"] <= share <= row["high"])
    assert np.mean(covered) > 0.92


def test_classes_by_hand_and_by_scikit_learn():
    from sklearn.metrics import f1_score, precision_recall_fscore_support

    rng = np.random.default_rng(0)
    actual = rng.choice(["left", "right", "both good", "both bad"], 80).astype(object)
    predicted = np.where(rng.random(80) < 0.6, actual, rng.choice(["left", "right", "unsure"], 80)).astype(object)
    actual[3] = None
    predicted[[5, 9]] = None, float("nan")
    with pytest.warns(UserWarning, match=r"\('unsure', 'recall'\): undefined"):
        found = classification(predicted, actual, groups=np.arange(80) // 4)
    both = [i for i in range(80) if i not in (3, 5, 9)]
    classes = sorted({*predicted[both], *actual[both]})
    theirs = precision_recall_fscore_support(
        actual[both].astype(str), predicted[both].astype(str), labels=classes, zero_division=np.nan
    )
    for column, name in enumerate(("precision", "recall")):
        ours = found["estimate"].xs(name, level="statistic")[classes]
        np.testing.assert_allclose(ours, theirs[column], atol=1e-12)
    macro = f1_score(actual[both].astype(str), predicted[both].astype(str), average="macro", zero_division=0)
    assert found.loc[("all", "macro_f1"), "estimate"] == pytest.approx(macro, abs=1e-12)
    assert found.loc[("all", "accuracy"), ["n", "missing"]].tolist() == [77, 3]
    right = (predicted[both] == actual[both]).sum()
    assert found.loc[("all", "accuracy_of_all"), "estimate"] == pytest.approx(right / 79), "failures count as errors"
    held = found.dropna()
    assert ((held["low"] < held["high"]) & held["estimate"].between(held["low"], held["high"])).all()
    numbers = classification([1, 2, 2], [1, 2, 1])
    assert numbers.loc[("1", "recall"), "estimate"] == 0.5, "numbers are names"


def test_tie_calibration_equals_mt_metrics_eval():
    """The values of tau_optimization_test.py in google-research/mt-metrics-eval, `acc_23`."""
    nothing = None
    judge = [[0, 5, 2, 3, 2], [nothing, 2, 1, 5, 3], [9, 1, 5, 3, 8], [9, 3, 4, 4, 1], [nothing] * 5]
    human = [[1, 5, 2, 1, 1], [4, 2, 2, 1, 4], [5, 9, 2, 8, 7], [7, 6, nothing, 3, 2], [nothing] * 5]
    within = np.repeat(range(5), 5)
    found = tie_calibrated_accuracy(sum(judge, []), sum(human, []), within=within, n_resamples=200)
    assert found.loc["calibrated", "estimate"] == pytest.approx(0.4916666666666668, abs=1e-12)
    assert found.loc["as_scored", "estimate"] == pytest.approx(0.4666666666666667, abs=1e-12)
    assert found.attrs["epsilon"] == 1 and found["n"].eq(4).all() and found["missing"].eq(1).all()
    perfect = tie_calibrated_accuracy([0, 2, 6, 8] * 2, [1, 2, 3, 4] * 2, within=[0] * 4 + [1] * 4, n_resamples=0)
    assert perfect.attrs["epsilon"] == 0 and perfect["estimate"].eq(1).all()


def length_biased(n=600, bias=1.5, seed=0):
    """Verdicts that follow quality and length; images of three pairs each."""
    rng = np.random.default_rng(seed)
    quality, gap = rng.normal(size=n), rng.normal(size=n)
    odds = 1.5 * quality + bias * np.tanh(gap)
    verdict = np.where(rng.random(n) < 1 / (1 + np.exp(-odds)), "a", "b")
    preference = np.where(quality > 0.5, "a", np.where(quality < -0.5, "b", "tie"))
    return verdict, 100 + 50 * gap, np.full(n, 100.0), preference, np.arange(n) // 3


def test_the_length_controlled_rate_has_an_interval_and_finds_the_bias():
    verdict, a, b, preference, image = length_biased()
    found = length_controlled(verdict, a, b, preferences=preference, groups=image)
    assert found["estimate"].between(found["low"], found["high"]).all() and (found["low"] < found["high"]).all()
    assert found.loc["length_log_odds", "low"] > 0.5 and found.attrs["p"] < 1e-6
    assert found.loc["length_controlled_win_rate", "low"] < 0.5 < found.loc["length_controlled_win_rate", "high"]
    assert "not AlpacaEval's" in found.attrs["note"]
    repeated = length_controlled(*(np.repeat(c, 4) for c in (verdict, a, b)), groups=np.repeat(image, 4))
    once = length_controlled(verdict, a, b, groups=image)
    np.testing.assert_allclose(repeated[["estimate", "low", "high"]], once[["estimate", "low", "high"]], atol=1e-9)


def test_the_length_controlled_rate_covers():
    """200 samples of 90 pairs of a judge without a length bias, whose true rate is one half."""
    covered = []
    for seed in range(200):
        verdict, a, b, _, image = length_biased(90, bias=0, seed=seed)
        found = length_controlled(verdict, a, b, groups=image)
        low, high = found["low"].to_numpy()[1:], found["high"].to_numpy()[1:]
        covered.append((low <= [0.5, 0]) & (high >= [0.5, 0]))
    assert (np.mean(covered, axis=0) > 0.91).all(), "at .95, 200 samples show less than .91 once in 200 times"


def test_one_preference_less_leaves_the_model_as_it_is():
    verdict, a, b, preference, image = length_biased()
    whole = length_controlled(verdict, a, b, preferences=preference, groups=image)
    preference[0] = None
    less = length_controlled(verdict, a, b, preferences=preference, groups=image)
    assert (whole["estimate"] - less["estimate"]).abs().max() < 0.01
    assert less["missing"].tolist() == [1] * 3 and less["n"].tolist() == [599] * 3
    without = length_controlled(verdict, a, b, groups=image)
    assert (whole["estimate"] - without["estimate"]).abs().max() > 0.05


def test_a_model_against_itself_wins_one_half():
    with pytest.warns(UserWarning, match="length_log_odds: undefined"):
        found = length_controlled(["tie"] * 30, [20] * 30, [20] * 30)
    assert found["estimate"].tolist()[:2] == [0.5, 0.5] and found.iloc[1]["low"] < 0.5 < found.iloc[1]["high"]
    with pytest.warns(UserWarning, match="undefined"):
        drawn = length_controlled(["a", "b"] * 15, [20] * 30, [20] * 30)
    assert drawn["estimate"].tolist()[:2] == [0.5, 0.5]


def test_lengths_that_hardly_overlap_are_said():
    rng = np.random.default_rng(0)
    verdicts = rng.choice(["a", "b"], 100)
    with pytest.warns(UserWarning, match="b is longer in 98% of the comparisons.*extrapolation"):
        found = length_controlled(verdicts, rng.uniform(10, 20, 100), np.r_[[5.0] * 2, rng.uniform(30, 60, 98)])
    assert found.attrs["overlap"] == 0.02


def test_models_ranked_by_a_judge_and_by_people():
    rng = np.random.default_rng(0)
    strength = dict(zip("vwxyz", range(5), strict=True))
    rows = [(model, question) for question in range(60) for model in strength]
    human = np.array([strength[model] for model, _ in rows]) + rng.normal(size=300)
    judge = np.array([{"v": 0, "w": 1, "x": 2, "y": 4.5, "z": 3.5}[model] for model, _ in rows]) + rng.normal(size=300)
    models, questions = zip(*rows, strict=True)
    human[7] = np.nan
    found = model_ranking(models, judge, human, groups=questions, n_resamples=300)
    assert found.index.tolist() == list("zyxwv") and found["judge_rank"].tolist() == [2, 1, 3, 4, 5]
    assert (
        found.attrs["tau"] == pytest.approx(stats.kendalltau(found["judge"], found["human"])[0]) == pytest.approx(0.8)
    )
    assert found.attrs["tau_low"] <= 0.8 <= found.attrs["tau_high"] <= 1
    assert found.loc[models[7], ["n", "missing"]].tolist() == [59, 1]
    used = np.array([model == "z" for model in models])
    assert found.loc["z", "judge"] == pytest.approx(judge[used].mean())
    assert ((found["human_low"] < found["human"]) & (found["human"] < found["human_high"])).all()


def tournament(n=600, players=5, nu=0.7, seed=0):
    rng = np.random.default_rng(seed)
    strength = np.linspace(-1, 1, players)
    i = rng.integers(0, players, n)
    j = (i + rng.integers(1, players, n)) % players
    ahead = np.exp((strength[i] - strength[j]) / 2)
    draw = rng.random(n) * (ahead + 1 / ahead + nu)
    return i, j, np.where(draw < ahead, "a", np.where(draw < ahead + 1 / ahead, "b", "tie"))


def test_bradley_terry_with_half_ties_equals_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    i, j, verdicts = tournament()
    design = np.zeros((len(i), 5))
    design[np.arange(len(i)), i] += 1
    design[np.arange(len(i)), j] -= 1
    won = np.concatenate([verdicts != "b", verdicts == "a"])  # twice each: a tie is won once and lost once
    model = LogisticRegression(fit_intercept=False, C=np.inf, solver="newton-cholesky", tol=1e-13, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = model.fit(np.vstack([design, design]), won).coef_[0]
    found = bradley_terry(i, j, verdicts, n_resamples=0).sort_index()
    np.testing.assert_allclose(found["estimate"], theirs - theirs.mean(), atol=1e-10)
    np.testing.assert_allclose(found["elo"], 1000 + 400 / np.log(10) * found["estimate"], atol=1e-10)


def test_two_players_have_a_closed_form():
    found = bradley_terry(["x"] * 4, ["y"] * 4, ["a", "a", "a", "b"], anchor="y", n_resamples=0)
    assert found.loc["x", "estimate"] == pytest.approx(np.log(3), abs=1e-12)
    assert found.loc["y", "elo"] == 1000
    thrice = bradley_terry(["x"] * 2, ["y"] * 2, ["a", "b"], weights=[3, 1], anchor="y", n_resamples=0)
    assert thrice.loc["x", "estimate"] == pytest.approx(np.log(3), abs=1e-12)


def test_strengths_without_a_finite_maximum_are_nan():
    with pytest.warns(UserWarning, match="never beat"):
        found = bradley_terry(["x", "x"], ["y", "z"], ["a", "b"], n_resamples=10)
    assert found["estimate"].isna().all()
    with pytest.warns(UserWarning, match="itself"):
        found = bradley_terry(["x", "x", "y"], ["x", "y", "x"], ["a"] * 3, n_resamples=0)
    assert found.attrs["self_comparisons"] == 1 and found["n"].tolist() == [2, 2]
    with pytest.warns(UserWarning, match="never meet"):
        assert bradley_terry(["x"], ["y"], [None])["estimate"].isna().all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: win_rate("aab"), TypeError, "sequence"),
        (lambda: win_rate(["a"], side="c"), ValueError, "side"),
        (lambda: win_rate(["x"], labels={"x": "left"}), ValueError, "not left"),
        (lambda: pairwise_accuracy(["a"], ["a", "b"]), ValueError, "verdicts has 1, preferences has 2"),
        (lambda: feedback_preference({"left": 1}, groups=[1]), ValueError, "groups"),
        (lambda: bradley_terry(["x"], ["y"], ["a"], anchor="z"), ValueError, "anchor"),
        (lambda: bradley_terry(["x", None], ["y", "z"], ["a", "b"]), ValueError, "positions \\[1\\]"),
        (lambda: tie_calibrated_accuracy([1], [1], within=[None]), ValueError, "within are missing.*position 0"),
        (lambda: model_ranking(["x", None], [1, 2], [1, 2]), ValueError, "models are missing.*position 1"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
