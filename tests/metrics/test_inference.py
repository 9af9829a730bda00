"""What verdicts allow one to conclude: published values, values by hand, and intervals that hold.

Coverage and false alarms are measured in tools/validity (figures/validity_numbers.csv).
"""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from validity import numbers
from vjudge import metrics

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
        attrs = metrics.alt_test(people, scores, epsilon=float(epsilon), measure=measure).attrs
        found = [attrs["winning_rate"], attrs["advantage_probability"]]
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
    assert same.attrs["winning_rate"] == same.attrs["advantage_probability"] == 1.0
    with pytest.warns(UserWarning, match="no person has 30 items"):
        assert np.isnan(metrics.alt_test(PEOPLE[:20], PEOPLE["a"]).attrs["winning_rate"])


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
    assert good.attrs["labels_saved"] > 300 and abs(blind.attrs["labels_saved"]) < 20
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
    coverage = metrics.conformal_intervals(judge, truth, by=noisy).attrs["coverage"]
    assert coverage.loc["all", "share"] == pytest.approx(0.9, abs=0.01)
    assert coverage.loc[True, "high"] < 0.9 < coverage.loc[False, "low"]


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
    with pytest.warns(UserWarning, match="only 1 labels of one kind"):
        metrics.prediction_powered_mean(verdicts, labels)
    with pytest.warns(UserWarning, match="all alike, or of one group"):
        metrics.prediction_powered_mean(verdicts, labels, groups=0 * verdicts)
    spread = pd.Series([0.0] * 60 + [1.0] * 40)  # certain, and wrong in half of the items
    truth = pd.Series(np.resize([3.0, 4.0], 100))
    table = metrics.conformal_intervals(pd.Series(3.0, spread.index), truth, spread=spread)
    assert table["low"].notna().all() and table.attrs["coverage"].loc["all", "share"] >= 0.85
    with pytest.warns(UserWarning, match="a perfect correlation has no interval"):
        table = metrics.correlate(np.arange(20_000.0), 2 * np.arange(20_000.0))
    assert table["low"].isna().all()


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
    with pytest.raises(ValueError, match="columns item, rater, score.*'ann'.*melt"):
        metrics.severities(table)


def test_calibration_by_hand():
    with pytest.warns(UserWarning, match="undefined in 2 of 3 bins"):
        judge, human = [1, 1, 1, 2, 2, 5, np.nan], [1, 2, 3, 2, 2, 4, 1]
        table = metrics.calibration_curve(judge, human)
    assert table[["judge", "human", "n"]].to_numpy().tolist() == [[1, 2, 3], [2, 2, 2], [5, 4, 1]]
    half = 4.302653 / np.sqrt(3)  # t(2) at .975, a standard deviation of 1
    assert table.loc[0, ["low", "high"]].tolist() == pytest.approx([2 - half, 2 + half], abs=1e-6)
    assert table.loc[1:, ["low", "high"]].isna().all(axis=None) and table.attrs["missing"] == 1
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
