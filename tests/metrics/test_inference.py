"""What verdicts allow one to conclude: published values, values by hand, and intervals that hold.

Coverage and false alarms are measured in tools/validity (figures/validity_numbers.csv).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from validity import numbers
from vjudge import metrics

DATA = Path(__file__).resolve().parents[2].parent / "shared/data/alt_test"
# Printed in the notebook of github.com/nitaytech/AltTest: winning rate, advantage probability.
PUBLISHED = {
    ("lesion", 0.15, "rmse"): {
        "gemini_flash": (0.17, 0.71), "gemini_pro": (1.00, 0.81), "gpt-4o": (0.00, 0.62),
        "gpt-4o-mini": (0.67, 0.73),
    },
    ("lgbteen", 0.2, "accuracy"): {
        "gemini_flash": (0.25, 0.71), "gemini_pro": (0.00, 0.67), "gpt-4o": (0.75, 0.77),
        "llama-31": (0.00, 0.72), "gpt-4o-mini": (0.75, 0.76), "mistral-v03": (0.25, 0.75),
    },
    ("framing", 0.15, "accuracy"): {
        "gemini_flash": (1.00, 0.83), "gemini_pro": (1.00, 0.91), "gpt-4o": (1.00, 0.92),
        "llama-31": (0.50, 0.80), "gpt-4o-mini": (1.00, 0.87), "mistral-v03": (0.25, 0.80),
    },
}  # fmt: skip


@pytest.mark.parametrize("name, epsilon, measure", PUBLISHED)
def test_alt_test_gives_the_published_values(name: str, epsilon: float, measure: str) -> None:
    file = DATA / f"{name}.csv.gz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not here: the published labels are not part of the project")
    labels = pd.read_csv(file)
    is_human = labels["kind"] == "human"
    people = labels[is_human].pivot(index="item", columns="rater", values="label")
    judges = labels[~is_human].pivot(index="item", columns="rater", values="label")
    for judge, expected in PUBLISHED[name, epsilon, measure].items():
        attrs = metrics.alt_test(people, judges[judge], epsilon=epsilon, measure=measure).attrs
        found = (attrs["winning_rate"], attrs["advantage_probability"])
        assert tuple(round(value, 2) for value in found) == expected, judge


PEOPLE = pd.DataFrame({"a": [1, 2] * 20, "b": [1, 2] * 20, "c": [1, None] * 20})
ROWS = pd.Series(np.arange(60.0))
SIZES = {"n": 1000, "n_specificity": 200, "n_sensitivity": 200}
REFUSED = [
    (lambda: metrics.alt_test(PEOPLE, PEOPLE["a"], epsilon=1.0), "epsilon"),
    (lambda: metrics.alt_test(PEOPLE, PEOPLE["a"], measure="r"), "measure"),
    (lambda: metrics.alt_test(PEOPLE[["a", "b"]], PEOPLE["a"]), "three people"),
    (
        lambda: metrics.corrected_rate(0.4, specificity=0.3, sensitivity=0.7, **SIZES),
        "no better than chance",
    ),
    (lambda: metrics.corrected_rate_from_labels(ROWS, ROWS), "other values than 0 and 1"),
    (lambda: metrics.prediction_powered_mean(ROWS, ROWS), "60 labelled and 0 unlabelled"),
    (lambda: metrics.labels_needed(ROWS, ROWS), "give above="),
    (lambda: metrics.labels_needed(-ROWS, ROWS + ROWS % 7, above=0.9), "not ahead"),
    (lambda: metrics.effective_judges(pd.DataFrame({"a": [1, 0, 1]})), "two judges"),
    (
        lambda: metrics.effective_judges(pd.DataFrame({"a": [1, 0, 1], "b": [0, 0, 0]})),
        "errors of b are all the same",
    ),
    (lambda: metrics.expected_calibration_error(ROWS / 60, ROWS, bins=1.5), "whole number"),
    (lambda: metrics.conformal_intervals(ROWS[:5], ROWS[:5]), "90% takes 9 or more"),
    (lambda: metrics.calibration_curve(ROWS, ROWS, bins=1.5), "bins must be a whole number"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_can_not_be_answered_is_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_alt_test_counts() -> None:
    same = metrics.alt_test(PEOPLE, PEOPLE["a"])
    assert same.loc["c", "n"] == 20 and np.isnan(same.loc["c", "p"])  # fewer than 30 items
    assert same.attrs["winning_rate"] == same.attrs["advantage_probability"] == 1.0
    with pytest.warns(UserWarning, match="no person has 30 items"):
        assert np.isnan(metrics.alt_test(PEOPLE[:20], PEOPLE["a"]).attrs["winning_rate"])


def test_corrected_rate_is_the_published_one() -> None:
    found = metrics.corrected_rate(0.4, specificity=0.7, sensitivity=0.9, **SIZES)
    # What `confidence_interval` of UW-Madison-Lee-Lab/LLM-judge-reporting at 082884d returns.
    assert found.tolist() == pytest.approx([1 / 6, 0.0563507, 0.2627330], abs=1e-7)
    with pytest.warns(UserWarning, match="outside"):
        metrics.corrected_rate(0.1, specificity=0.7, sensitivity=0.9, **SIZES)


def test_every_number_keeps_its_word() -> None:
    """A few of the simulations that figures/validity_numbers.csv has a thousand of."""
    table = numbers.numbers(simulations=12, seed=1).set_index(["number", "claim"])
    covers = table.filter(like="holds", axis=0)
    assert len(covers) > 30 and (covers["high"] > 0.9).all(), covers[covers["high"] <= 0.9]
    assert table.loc[("labels_needed", "shown at power .8"), "share"].between(0.6, 0.97).all()
    alarms = table.loc["alt_test", "share"]
    assert alarms.iloc[0] < 0.17 and alarms.iloc[1] < 0.1 and alarms.iloc[2] > 0.6, alarms


def test_labels_add_what_they_can() -> None:
    rng = np.random.default_rng(1)
    truth = pd.Series(rng.integers(1, 6, size=1000).astype(float))
    known = truth.where(truth.index < 100)
    good = metrics.prediction_powered_mean(truth + rng.normal(0, 0.3, size=1000), known)
    blind = metrics.prediction_powered_mean(pd.Series(rng.normal(size=1000)), known)
    assert good.attrs["labels_saved"] > 300 and abs(blind.attrs["labels_saved"]) < 20
    alone = good.loc["labels_alone"]
    assert alone["estimate"] == pytest.approx(known.mean())
    half = (alone["high"] - alone["low"]) / 2
    assert half == pytest.approx(1.984 * known.std() / 10, rel=1e-3)


def test_a_calibrated_judge_has_temperature_one() -> None:
    rng = np.random.default_rng(0)
    odds = np.exp(rng.normal(size=(800, 3)))
    shares = odds / odds.sum(axis=1, keepdims=True)
    truth = pd.Series([float(rng.choice(3, p=row)) for row in shares])
    judge = pd.Series([dict(enumerate(row)) for row in shares])
    honest = metrics.temperature_scaling(judge, truth)
    sharper = pd.Series([metrics.scaled(row, 0.5) for row in judge])
    twice = metrics.temperature_scaling(sharper, truth)
    assert twice["estimate"] == pytest.approx(2 * honest["estimate"], rel=1e-2)
    with pytest.raises(ValueError, match="none of"):
        metrics.temperature_scaling(judge, truth.replace({0.0: 7.0}))


def test_conformal_coverage_is_told_by_group() -> None:
    rng = np.random.default_rng(0)
    noisy = pd.Series(np.arange(400) % 2 == 1)
    truth = pd.Series(rng.normal(size=400))
    judge = truth + rng.normal(size=400) * np.where(noisy, 2, 0.2)
    coverage = metrics.conformal_intervals(judge, truth, by=noisy).attrs["coverage"]
    assert coverage.loc["all", "share"] == pytest.approx(0.9, abs=0.01)
    assert coverage.loc[True, "high"] < 0.9 < coverage.loc[False, "low"]


def test_severities_are_differences_of_means_where_all_saw_all() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(3, 1, size=(40, 3)), columns=["ann", "bob", "judge"])
    table["bob"] -= 1
    rows = table.rename_axis("item").reset_index()
    long = rows.melt("item", var_name="rater", value_name="score")
    found = metrics.severities(long)
    expected = table.mean().mean() - table.mean()
    assert found["estimate"].to_dict() == pytest.approx(expected.to_dict(), abs=1e-6)
    assert found.index[0] == "bob" and found.loc["bob", "low"] > 0
    with pytest.raises(ValueError, match="no item"):
        metrics.severities(long.drop_duplicates("item").assign(rater=list("ab") * 20))


def test_calibration_by_hand() -> None:
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
    judge.attrs["unbounded"] = True
    with pytest.raises(ValueError, match="calibration_errors needs scores on people's scale"):
        metrics.calibration_errors(judge, judge)
