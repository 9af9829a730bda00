"""What verdicts allow one to conclude: published values, values by hand, and intervals that hold.

Coverage and false alarms are measured in tools/validity (figures/validity_numbers.csv).
"""

import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from validity import numbers
from vjudge import metrics
from vjudge.metrics.labels import check_random

DATA = Path(__file__).resolve().parents[2].parent / "shared/data/alt_test"
# Printed in the notebook of github.com/nitaytech/AltTest: data set, epsilon, measure, judge, its
# winning rate and advantage probability.
PUBLISHED = """\
lesion 0.15 rmse gemini_flash 0.17 0.71
lesion 0.15 rmse gemini_pro 1.00 0.81
lesion 0.15 rmse gpt-4o 0.00 0.62
lesion 0.15 rmse gpt-4o-mini 0.67 0.73
lgbteen 0.2 accuracy gemini_flash 0.25 0.71
lgbteen 0.2 accuracy gemini_pro 0.00 0.67
lgbteen 0.2 accuracy gpt-4o 0.75 0.77
lgbteen 0.2 accuracy llama-31 0.00 0.72
lgbteen 0.2 accuracy gpt-4o-mini 0.75 0.76
lgbteen 0.2 accuracy mistral-v03 0.25 0.75
framing 0.15 accuracy gemini_flash 1.00 0.83
framing 0.15 accuracy gemini_pro 1.00 0.91
framing 0.15 accuracy gpt-4o 1.00 0.92
framing 0.15 accuracy llama-31 0.50 0.80
framing 0.15 accuracy gpt-4o-mini 1.00 0.87
framing 0.15 accuracy mistral-v03 0.25 0.80
"""


@pytest.mark.skipif(not DATA.is_dir(), reason="published labels without a licence")
@pytest.mark.parametrize("name", ["lesion", "lgbteen", "framing"])
def test_alt_test_gives_the_published_values(name):
    labels = pd.read_csv(DATA / f"{name}.csv.gz")
    people = labels[labels["kind"] == "human"].pivot(index="item", columns="rater", values="label")
    for row in PUBLISHED.splitlines():
        data_set, epsilon, measure, judge, *published = row.split()
        if data_set != name:
            continue
        scores = labels[labels["rater"] == judge].set_index("item")["label"]
        table = metrics.alt_test(people, scores, epsilon=float(epsilon), measure=measure)
        found = table[["winning_rate", "advantage_probability"]].iloc[0]
        assert [f"{value:.2f}" for value in found] == published, judge


PEOPLE = pd.DataFrame({"a": [1, 2] * 20, "b": [1, 2] * 20, "c": [1, None] * 20})
ROWS = pd.Series(np.arange(60.0))
TWICE = pd.Series([0, 1, 1.0], index=[0, 0, 1])
SURE = pd.Series([{0: 1.0, 1: 0.0}] * 10)
SIZES = {"n": 1000, "n_specificity": 200, "n_sensitivity": 200}
corrected = partial(metrics.corrected_rate, specificity=0.7, sensitivity=0.9, **SIZES)
REFUSED = [
    (lambda: metrics.alt_test(PEOPLE, PEOPLE["a"], epsilon=1.0), "epsilon"),
    (lambda: metrics.alt_test(PEOPLE, PEOPLE["a"], measure="r"), "measure"),
    (lambda: metrics.alt_test(PEOPLE[["a", "b"]], PEOPLE["a"]), "three people"),
    (lambda: corrected(0.4, specificity=0.05), "no better than chance"),
    (lambda: metrics.corrected_rate_from_labels(ROWS, ROWS), "other values than 0 and 1"),
    (lambda: metrics.prediction_powered_mean(ROWS, ROWS), "60 labelled and 0 unlabelled"),
    (lambda: metrics.labels_needed(ROWS, ROWS), "give above="),
    (lambda: metrics.labels_needed(-ROWS, ROWS + ROWS % 7, above=0.9), "not ahead"),
    (lambda: metrics.effective_judges(pd.DataFrame({"a": [1, 0, 1]})), "two judges"),
    (
        lambda: metrics.effective_judges(pd.DataFrame({"a": [1, 0, 1], "b": [0, 0, 0]})),
        "errors of b are all the same",
    ),
    (lambda: metrics.conformal_intervals(ROWS[:5], ROWS[:5]), "90% takes 9 or more"),
    (lambda: metrics.calibration_curve(ROWS, ROWS, bins=1.5), "bins must be a whole number"),
    (lambda: metrics.corrected_rate_from_labels(TWICE, TWICE), "verdicts: item 0 stands twice"),
    (lambda: metrics.conformal_intervals(ROWS, ROWS, confidence=95), "confidence must be"),
    (lambda: metrics.conformal_intervals(ROWS, ROWS, spread=0 * ROWS), "spread is 0 in all items"),
    (lambda: metrics.temperature_scaling(SURE, ROWS[:10] % 2), "5 items, such as 1, give their"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_can_not_be_answered_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_alt_test_counts():
    same = metrics.alt_test(PEOPLE, PEOPLE["a"])
    assert same.loc["c", "n"] == 20 and np.isnan(same.loc["c", "p"])  # fewer than 30 items
    over_people = same[["winning_rate", "advantage_probability"]]
    assert over_people.eq(1).all(axis=None) and same["missing"].eq(0).all()
    with pytest.warns(UserWarning, match="no person has 30 items in two groups or more"):
        assert metrics.alt_test(PEOPLE[:20], PEOPLE["a"])["winning_rate"].isna().all()


def test_corrected_rate_is_the_published_one():
    # What `confidence_interval` of UW-Madison-Lee-Lab/LLM-judge-reporting at 082884d returns.
    assert corrected(0.4).tolist() == pytest.approx([1 / 6, 0.0563507, 0.2627330], abs=1e-7)
    with pytest.warns(UserWarning, match="outside"):
        corrected(0.1)


def test_every_number_keeps_its_word():
    """A few of the simulations that figures/validity_numbers.csv has a thousand of."""
    table = numbers.numbers(simulations=12, seed=1).set_index(["number", "claim"])
    covers = table.filter(like="holds", axis=0)["high"]
    assert len(covers) > 30 and covers.min() > 0.9, covers
    assert table.loc[("labels_needed", "shown at power .8"), "share"].between(0.6, 0.97).all()
    alarms = table.loc["alt_test", "share"].tolist()
    assert alarms[0] < 0.17 and alarms[1] < 0.1 and alarms[2] > 0.6, alarms


def test_labels_add_what_they_can():
    rng = np.random.default_rng(1)
    truth = pd.Series(rng.integers(1, 6, size=1000).astype(float))
    known = truth.where(truth.index < 100)
    good = metrics.prediction_powered_mean(truth + rng.normal(0, 0.3, size=1000), known)
    blind = metrics.prediction_powered_mean(pd.Series(rng.normal(size=1000)), known)
    saved = [table["labels_saved"]["prediction_powered"] for table in (good, blind)]
    assert saved[0] > 300 and abs(saved[1]) < 20
    half = 1.984 * known.std() / 10
    expected = [known.mean() + times * half for times in (0, -1, 1)]
    alone = good.loc["labels_alone", ["estimate", "low", "high"]]
    assert alone.tolist() == pytest.approx(expected, rel=1e-3)


def test_a_calibrated_judge_has_temperature_one():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet([1, 1, 1], size=800)
    truth = pd.Series([float(rng.choice(3, p=row)) for row in shares])
    judge = pd.Series([dict(enumerate(row)) for row in shares])
    honest = metrics.temperature_scaling(judge, truth)
    sharper = pd.Series([metrics.scaled(row, 0.5) for row in judge])
    twice = metrics.temperature_scaling(sharper, truth)
    assert twice["estimate"] == pytest.approx(2 * honest["estimate"], rel=1e-2)
    with pytest.raises(ValueError, match="none of"):
        metrics.temperature_scaling(judge, truth.replace({0.0: 7.0}))


def test_conformal_coverage_is_told_by_group():
    rng = np.random.default_rng(0)
    noisy = pd.Series(np.arange(400) % 2 == 1)
    truth = pd.Series(rng.normal(size=400))
    judge = truth + rng.normal(size=400) * np.where(noisy, 2, 0.2)
    coverage = metrics.conformal_coverage(judge, truth, by=noisy)
    assert coverage.loc["all", "share"] == pytest.approx(0.9, abs=0.01)
    assert coverage.loc[True, "high"] < 0.9 < coverage.loc[False, "low"]


@pytest.mark.parametrize("confidence", [0.55, 0.8])
def test_conformal_coverage_leaves_each_item_out(confidence):
    """100 * .55 is 55.00000000000001 in floating point, of which the rank is 55 nonetheless."""
    rng = np.random.default_rng(1)
    truth = pd.Series(rng.normal(size=100))
    judge = truth + rng.normal(size=100)
    inside = []
    for item in truth.index:
        others = truth.where(truth.index != item)
        interval = metrics.conformal_intervals(judge, others, confidence=confidence).loc[item]
        inside.append(interval["low"] <= truth[item] <= interval["high"])
    coverage = metrics.conformal_coverage(judge, truth, confidence=confidence)
    assert coverage.loc["all", "share"] == pytest.approx(np.mean(inside))


def test_strictness_is_no_noise():
    """What one person scores lower throughout changes no plan, nor the number of items it takes."""
    rng = np.random.default_rng(4)
    truth = rng.normal(size=120)
    people = pd.DataFrame(truth[:, None] + rng.normal(size=(120, 3)))
    judge = pd.Series(truth + rng.normal(size=120))
    plans = [metrics.labels_needed(judge, people + shift, above=0.2) for shift in (0, [0, 1, -1])]
    pd.testing.assert_frame_equal(*plans)


def test_numbers_near_their_bounds_stay_in_order():
    rng = np.random.default_rng(3)
    errors = pd.DataFrame(rng.normal(size=(30, 2)))
    table = metrics.effective_judges(errors, n_resamples=200).loc["next_judge"]
    assert table["low"] <= table["estimate"] <= table["high"]
    counts = {"n": 1000, "n_specificity": 100, "n_sensitivity": 3}
    with pytest.warns(UserWarning, match="do not show the judge to be better"):
        rate = metrics.corrected_rate(0.99, specificity=0.01, sensitivity=1.0, **counts)
    assert rate[["low", "high"]].tolist() == [0, 1]
    labels = pd.Series([1.0] * 19 + [0.0])
    verdicts = pd.Series(np.resize([1.0, 1, 0], 100))
    with pytest.warns(UserWarning, match="only 1 labels, or errors of the judge, are unlike"):
        metrics.prediction_powered_mean(verdicts, labels)
    with pytest.warns(UserWarning, match="all alike, or of one group"):
        metrics.prediction_powered_mean(verdicts, labels, groups=0 * verdicts)
    spread = pd.Series([0.0] * 60 + [1.0] * 40)  # certain, and wrong in half of the items
    truth = pd.Series(np.resize([3.0, 4.0], 100))
    table = metrics.conformal_intervals(pd.Series(3.0, spread.index), truth, spread=spread)
    coverage = metrics.conformal_coverage(pd.Series(3.0, spread.index), truth, spread=spread)
    assert table["low"].notna().all() and coverage.loc["all", "share"] >= 0.85
    with pytest.warns(UserWarning, match="an interval without width says nothing"):
        table = metrics.correlate(np.arange(20_000.0), 2 * np.arange(20_000.0))
    assert table[["low", "high"]].gt(1 - 1e-6).all(axis=None)


def test_gwets_coefficients_count_the_scale():
    ratings = [[5, 5], [5, 4], [4, 5], [5, 5]]
    share = np.array([0, 0, 0, 0.25, 0.75])  # of the levels
    alike = 1 - ((np.arange(5)[:, None] - np.arange(5)) / 4) ** 2
    chance = alike.sum() * (share * (1 - share)).sum() / (5 * 4)
    agreeing = 1 - 0.5 / 16
    table = metrics.agreement(ratings, scale=range(1, 6), n_resamples=0)["estimate"]
    assert table["gwet_ac2"] == pytest.approx((agreeing - chance) / (1 - chance))


def test_severities_are_differences_of_means_where_all_saw_all():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(3, 1, size=(40, 3)), columns=["ann", "bob", "judge"])
    table["bob"] -= 1
    long = table.melt(var_name="rater", value_name="score", ignore_index=False)
    long["item"] = long.index
    found = metrics.severities(long)
    expected = table.mean().mean() - table.mean()
    assert found["estimate"].to_dict() == pytest.approx(expected.to_dict(), abs=1e-6)
    assert found.index[0] == "bob" and found.loc["bob", "low"] > 0
    with pytest.raises(ValueError, match="no item"):
        metrics.severities(long.drop_duplicates("item").assign(rater=list("ab") * 20))
    with pytest.raises(ValueError, match="an item has scores in two groups"):
        metrics.severities(long, groups=long["rater"])
    with pytest.raises(ValueError, match="columns item, rater, score.*'ann'.*melt"):
        metrics.severities(table)


def test_calibration_by_hand():
    with pytest.warns(UserWarning, match="undefined in 2 of 3 bins"):
        judge, human = [1, 1, 1, 2, 2, 5, np.nan], [1, 2, 3, 2, 2, 4, 1]
        table = metrics.calibration_curve(judge, human)
    assert table[["judge", "human", "n"]].to_numpy().tolist() == [[1, 2, 3], [2, 2, 2], [5, 4, 1]]
    half = 4.302653 / np.sqrt(3)  # t(2) at .975, a standard deviation of 1
    assert table.loc[0, ["low", "high"]].tolist() == pytest.approx([2 - half, 2 + half], abs=1e-6)
    assert table.loc[1:, ["low", "high"]].isna().all(axis=None) and table["missing"].eq(1).all()
    judge = pd.Series([2, 3, 4, 6, None] * 9)
    table = metrics.calibration_errors(judge, [1, 2, 4, 6, 3] * 9, n_resamples=100)
    assert table["estimate"].to_dict() == {"bias": 0.5, "mae": 0.5} and table["missing"].eq(9).all()
    run = pd.DataFrame({"score": judge, "lowest": np.nan, "highest": np.nan})
    scale = pd.concat([run.assign(lowest=1, highest=6), run])[["lowest", "highest"]]  # two runs
    twice = pd.concat([judge, judge])
    with pytest.raises(ValueError, match="calibration_errors needs a scale, and 36 of judge have"):
        metrics.calibration_errors(twice, twice, scale=scale)
    with pytest.raises(ValueError, match="9 of judge lie outside of the scale, such as 6"):
        metrics.calibration_errors(judge, judge, scale=(1, 5))


# --- Labels chosen by verdict, and few of them


def labelled(rate, chosen, rng, *, n=1_000, specificity=0.7, sensitivity=0.9):
    """Verdicts, and labels of so many items of each verdict; or of so many at random."""
    is_right = rng.random(n) < rate
    verdict = np.where(is_right, rng.random(n) < sensitivity, rng.random(n) >= specificity)
    order = rng.permutation(n)
    keep = order[: chosen[0]]
    if len(chosen) == 2:
        keep = [*order[verdict[order]][: chosen[0]], *order[~verdict[order]][: chosen[1]]]
    labels = pd.Series(is_right.astype(float)).where(np.isin(np.arange(n), keep))
    return pd.Series(verdict.astype(float)), labels


@pytest.mark.parametrize("chosen", [(100, 100), (300, 300), (200, 50)])
def test_labels_chosen_by_verdict_have_their_own_formula(chosen):
    """They covered .79, .17 and 0 as if they were random; 150 of .95 are above .9 but in 1 %."""
    held = 0
    for number in range(150):
        data = labelled(0.6, chosen, np.random.default_rng([number, 1]))
        row = metrics.corrected_rate_from_labels(*data, labelled="by verdict")
        held += row["low"] <= 0.6 <= row["high"]
    assert held > 0.9 * 150


def test_few_groups_are_no_evidence_against_a_random_sample():
    """The z of independent items would refuse labels of two images of ten in .5 of samples."""
    refused = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        image = np.arange(500) // 50
        verdict = rng.normal(size=10)[image] + rng.normal(size=500)
        refused += bool(check_random(verdict, image < 2, image))
    assert refused <= 4


@pytest.mark.parametrize(("share", "n_labels"), [(0.84, 200), (0.97, 60), (0.5, 100)])
def test_a_random_sample_of_verdicts_that_are_nearly_all_equal_is_taken(share, n_labels):
    """A lucky sample of them hardly varies: by its own error it would be refused."""
    rng = np.random.default_rng(5)
    doubted = 0
    for _ in range(300):
        verdict = (rng.random(1000) < share).astype(float)
        is_labelled = rng.permutation(1000) < n_labels
        doubted += bool(check_random(verdict, is_labelled, np.arange(1000)))
    assert doubted <= 9


@pytest.mark.parametrize("grouped", [False, True])
def test_equal_verdicts_do_not_tell_that_labels_are_no_random_sample(grouped):
    """Rounding in the two means was taken for a difference beyond chance, and refused."""
    for value, n in ((1.0, 37), (0.7, 200)):
        unit = np.arange(n) // (4 if grouped else 1)
        for n_labelled in range(n):
            assert check_random(np.full(n, value), np.arange(n) < n_labelled, unit) == []


def test_by_verdict_by_hand():
    verdicts = pd.Series([1.0] * 60 + [0.0] * 40)
    labels = pd.Series([1, 1, 1, 0] * 3 + [None] * 48 + [0, 0, 0, 1, 1] + [None] * 35)
    row = metrics.corrected_rate_from_labels(verdicts, labels, labelled="by verdict")
    assert row["estimate"] == pytest.approx(0.6 * 9 / 12 + 0.4 * 2 / 5)
    assert row[["rate", "n", "labels", "missing"]].tolist() == [0.6, 100, 17, 0]


def test_labels_that_are_no_random_sample_are_refused():
    rng = np.random.default_rng(0)
    chosen = labelled(0.3, (200, 50), rng)
    for call in (metrics.corrected_rate_from_labels, metrics.prediction_powered_mean):
        with pytest.raises(ValueError, match="mean verdict is 0.8 on the labelled items and 0.3"):
            call(*chosen)
    judge = pd.Series(rng.normal(size=200))
    for call in (metrics.conformal_intervals, metrics.conformal_coverage):
        with pytest.raises(ValueError, match="as a random sample seldom has it: label a random"):
            call(judge, judge.where(judge > 0.5))
    for chosen, is_said in (((60, 60), True), ((100,), False)):
        table = metrics.corrected_rate_from_labels(*labelled(0.6, chosen, rng))
        caveats = " ".join(table.attrs["caveats"])
        assert ('if they were chosen by verdict give labelled="by verdict"' in caveats) == is_said
    verdicts, labels = labelled(0.3, (50, 1), rng)
    with pytest.raises(ValueError, match="1 items of verdict 0 are labelled: label two or more"):
        metrics.corrected_rate_from_labels(verdicts, labels, labelled="by verdict")
    with pytest.raises(ValueError, match="labelled must be"):
        metrics.corrected_rate_from_labels(verdicts, labels, labelled="chosen")
    with pytest.warns(UserWarning, match="labels alone are narrower: .* of 100 labels"):
        table = metrics.corrected_rate_from_labels(*labelled(0.3, (100,), rng))
    assert "labels alone are narrower" in table.attrs["caveats"][-1]


def test_labels_of_items_without_a_row_are_counted():
    verdicts, labels = labelled(0.5, (60,), np.random.default_rng(0))
    further = pd.concat([labels, pd.Series([1.0, 0.0, None], index=["x", "y", "z"])])
    for call in (metrics.corrected_rate_from_labels, metrics.prediction_powered_mean):
        alone = call(verdicts, labels)
        with pytest.warns(UserWarning, match="2 labels are of items that verdicts lacks"):
            beside = call(verdicts, further)
        np.testing.assert_array_equal(alone, beside)


def test_a_win_rate_of_few_labels_holds_the_truth():
    """Win, tie, loss of .9, .05, .05 and a judge that is right in 95 %: .79 to .85 before."""
    held = 0
    for number in range(150):
        rng = np.random.default_rng([number, 2])
        wins = pd.Series(rng.choice([1.0, 0.5, 0.0], size=500, p=[0.9, 0.05, 0.05]))
        told = wins.where(rng.random(500) < 0.95, rng.choice([1.0, 0.5, 0.0], size=500))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = metrics.prediction_powered_mean(told, wins.where(wins.index < 30))
        held += table["low"].iloc[0] <= 0.925 <= table["high"].iloc[0]
    assert held > 0.9 * 150 and "unlike the commonest" in table.attrs["caveats"][0]


# --- Calibration: ties, percentages, groups


def test_calibration_does_not_depend_on_the_order_of_rows():
    """400 probabilities of .8 that are right in four of five: one bin, no gap, whatever the order."""
    sure = pd.Series([0.8] * 400)
    right = pd.Series([1, 1, 1, 1, 0] * 80)
    for order in (slice(None), np.argsort(right, kind="stable")):
        row = metrics.expected_calibration_error(sure, right.iloc[order].reset_index(drop=True))
        assert row[["estimate", "low", "plain", "p", "bins"]].tolist() == pytest.approx(
            [0, 0, 0, 1, 1]
        )
    rng = np.random.default_rng(0)
    tied = pd.Series(rng.choice([0.6, 0.7, 0.8, 0.95], size=300))
    right = pd.Series((rng.random(300) < tied).astype(int))
    rows = []
    for order in (np.arange(300), np.argsort(right, kind="stable"), rng.permutation(300)):
        row = metrics.expected_calibration_error(tied.iloc[order], right.iloc[order])
        rows.append(row.drop("p"))
        assert row["p"] == pytest.approx(0.03, abs=0.02)
    pd.testing.assert_series_equal(rows[0], rows[1])
    pd.testing.assert_series_equal(rows[0], rows[2])


def test_a_calibrated_judge_is_accused_in_one_of_twenty():
    alarms = 0
    for number in range(200):
        rng = np.random.default_rng([number, 4])
        sure = pd.Series(rng.choice([0.7, 0.8, 0.9, 0.97], size=200))
        right = pd.Series((rng.random(200) < sure).astype(int))
        alarms += metrics.expected_calibration_error(sure, right, n_resamples=200)["p"] <= 0.05
    assert 2 <= alarms <= 19  # 200 of 5 %: outside in 1 %


def test_five_answers_of_an_image_are_not_five_items():
    rng = np.random.default_rng(0)
    image = pd.Series(np.arange(400) // 5)
    sure = pd.Series(rng.uniform(0.6, 1, size=80))[image].reset_index(drop=True)
    right = pd.Series((rng.random(80)[image] < sure).astype(int))
    alone = metrics.expected_calibration_error(sure, right)
    grouped = metrics.expected_calibration_error(sure, right, groups=image)
    assert alone["p"] < 0.05 < grouped["p"]
    assert grouped["plain"] == alone["plain"] and grouped["high"] > alone["high"]
    judge = pd.Series([{0: 1 - share, 1: share} for share in sure])
    alone = metrics.temperature_scaling(judge, right.astype(float))
    grouped = metrics.temperature_scaling(judge, right.astype(float), groups=image)
    assert grouped["estimate"] == alone["estimate"]
    assert grouped["low"] < alone["low"] < alone["high"] < grouped["high"]


WRONG_CALIBRATION = [
    (pd.Series([80.0] * 60), ROWS % 2, "probability has 60 values outside .* divide percentages"),
    (ROWS / 60, ROWS, "right holds other values"),
]


@pytest.mark.parametrize(("sure", "right", "message"), WRONG_CALIBRATION)
def test_what_is_no_probability_is_refused(sure, right, message):
    with pytest.raises(ValueError, match=message):
        metrics.expected_calibration_error(sure, right)
