"""Do the intervals of single numbers hold the truth, and do their tests and plans keep their word?

A study is a function of a random generator that simulates one data set and yields rows: number,
setting, what is claimed of it, and whether it held. `PYTHONPATH=tools python -m validity --only
validity_numbers` writes figures/validity_numbers.csv.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pandas as pd
from scipy import optimize, special

from validity.correlations import correlations_of
from validity.designs import COVERS, DESIGNS, Rows, holds
from validity.studies import exact
from vjudge import metrics
from vjudge.metrics.planning import _variance_of_z_difference
from vjudge.metrics.weighted_correlation import STATISTICS

# --- May a judge replace people?

PEOPLE, PERSON_RIGHT, EPSILON = 4, 0.8, 0.2


def annotations(
    n: int, judge_right: float, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.Series]:
    """Binary labels of n items by people, and by a judge who is right in a share of them."""
    truth = rng.integers(0, 2, n)
    right = rng.random((n, PEOPLE)) < PERSON_RIGHT
    people = pd.DataFrame(np.where(right, truth[:, None], 1 - truth[:, None]))
    return people, pd.Series(np.where(rng.random(n) < judge_right, truth, 1 - truth))


@cache
def just_worse() -> float:
    """How often a judge is right whom people are ahead of by exactly epsilon."""

    def lead(right: float) -> float:
        people, judge = annotations(50_000, right, np.random.default_rng(0))
        agree = people.iloc[:, 1:].to_numpy()
        of_judge = (agree == judge.to_numpy()[:, None]).mean(axis=1)
        of_person = (agree == people[[0]].to_numpy()).mean(axis=1)
        return float((of_person > of_judge).mean() - (of_judge > of_person).mean()) - EPSILON

    return float(optimize.brentq(lead, 0.3, 0.8, xtol=1e-4))


def alt_test(rng: np.random.Generator) -> Rows:
    people, judge = annotations(100, just_worse(), rng)
    table = metrics.alt_test(people, judge, epsilon=EPSILON)
    alarm = "p below .05 of one person, who is ahead by epsilon"
    yield "alt_test", "100 items, 4 people", alarm, bool(table["p"].iloc[0] < 0.05)
    passed = table["winning_rate"].iloc[0] >= 0.5
    yield "alt_test", "100 items, 4 people", "such a judge passes", bool(passed)
    people, judge = annotations(100, PERSON_RIGHT, rng)
    passed = metrics.alt_test(people, judge, epsilon=EPSILON)["winning_rate"].iloc[0] >= 0.5
    yield "alt_test", "100 items, 4 people", "a judge as right as people passes", bool(passed)


# --- Rates, means and labels


def corrected_rate(rng: np.random.Generator) -> Rows:
    for rate, labels in ((0.3, 150), (0.3, 80), (0.9, 200)):
        is_right = rng.random(1000) < rate
        verdict = np.where(is_right, rng.random(1000) < 0.9, rng.random(1000) < 0.3)
        known = pd.Series(is_right.astype(float)).where(np.arange(1000) < labels)
        table = metrics.corrected_rate_from_labels(pd.Series(verdict.astype(float)), known)
        setting = f"rate {rate}, {labels} labels of 1,000"
        yield "corrected_rate_from_labels", setting, COVERS, holds(table, rate)


def prediction_powered(rng: np.random.Generator) -> Rows:
    truth = pd.Series(rng.integers(1, 6, size=500).astype(float))
    judge = pd.Series(np.clip(np.round(truth + rng.normal(0.5, 0.8, size=500)), 1, 5))
    wins = pd.Series((rng.random(500) < 0.8).astype(float))
    told = wins.where(rng.random(500) < 0.85, 1 - wins)
    image = pd.Series(np.arange(500) // 5)
    shared = truth + pd.Series(rng.normal(size=100))[image].to_numpy()
    settings = {
        "mean score, 60 labels of 500": (judge, truth, 3.0, None),
        "win rate, 60 labels of 500": (told, wins, 0.8, None),
        "mean score, 20 images of 100": (judge, shared, 3.0, image),
    }
    for setting, (verdicts, labels, mean, groups) in settings.items():
        last = 60 if groups is None else 100
        known = labels.where(labels.index < last)
        table = metrics.prediction_powered_mean(verdicts, known, groups=groups)
        row = table.loc["prediction_powered"]
        yield "prediction_powered_mean", setting, COVERS, holds(row, mean)


def two_judges(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    truth = rng.normal(size=n)
    people = truth[:, None] + rng.normal(0, 0.6, size=(n, 2))
    return truth + rng.normal(0, 0.5, size=n), truth + rng.normal(0, 0.58, size=n), people


@cache
def planned() -> tuple[int, int]:
    own, other, people = two_judges(100_000, np.random.default_rng(0))
    pilot = (pd.Series(own), pd.DataFrame(people))
    rival = metrics.labels_needed(*pilot, rival=pd.Series(other)).loc[2, "items"]
    above = metrics.labels_needed(*pilot, above=0.75).loc[2, "items"]
    return int(rival), int(above)


def labels_needed(rng: np.random.Generator) -> Rows:
    rival, above = planned()
    own, other, people = two_judges(rival, rng)
    r = np.corrcoef([own, other, people.mean(axis=1)])
    error = np.sqrt(_variance_of_z_difference(r[0, 2], r[1, 2], r[0, 1]) / (rival - 3))
    shown = np.arctanh(r[0, 2]) - np.arctanh(r[1, 2]) > 1.96 * error
    yield "labels_needed", "a rival lower by .03", "shown at power .8", bool(shown)
    own, other, people = two_judges(above, rng)
    r = np.corrcoef(own, people.mean(axis=1))[0, 1]
    shown = np.arctanh(r) - np.arctanh(0.75) > 1.96 / np.sqrt(above - 3)
    yield "labels_needed", "correlation above .75", "shown at power .8", bool(shown)


# --- Panels, raters, agreement


def panels(rng: np.random.Generator) -> Rows:
    for r in (0.1, 0.5):
        shared = rng.normal(size=(100, 1))
        errors = np.sqrt(r) * shared + np.sqrt(1 - r) * rng.normal(size=(100, 5))
        table = metrics.effective_judges(pd.DataFrame(errors), n_resamples=400)
        row = table.loc["effective_judges"]
        setting = f"5 judges, errors correlated {r}, 100 items"
        yield "effective_judges", setting, COVERS, holds(row, 5 / (1 + 4 * r))


def severities(rng: np.random.Generator) -> Rows:
    strict = np.array([0.5, 0.0, -0.5, 0.0])
    scores = rng.normal(3, 1, size=(60, 1)) - strict + rng.normal(0, 0.7, size=(60, 4))
    scores[rng.random(scores.shape) < 0.3] = np.nan
    frame = pd.DataFrame(scores, columns=list("abcd")).rename_axis("item").reset_index()
    table = metrics.severities(frame.melt("item", var_name="rater", value_name="score"))
    yield "severities", "4 raters, 60 items, 30 % missing", COVERS, holds(table.loc["a"], 0.5)


@cache
def of_population(prevalence: float) -> pd.Series:
    """Agreement of two raters of a binary, each wrong in 5 %, in the population."""
    table = metrics.agreement(binary(100_000, prevalence, np.random.default_rng(0)), n_resamples=0)
    return table["estimate"]


def binary(n: int, prevalence: float, rng: np.random.Generator) -> np.ndarray:
    truth = rng.random((n, 1)) < prevalence
    return (truth ^ (rng.random((n, 2)) < 0.05)).astype(int)


def agreement(rng: np.random.Generator) -> Rows:
    for n, prevalence in ((30, 0.5), (30, 0.1), (200, 0.1)):
        truth = of_population(prevalence)
        table = metrics.agreement(binary(n, prevalence, rng), n_resamples=400)
        for name in ("alpha_nominal", "cohen_kappa", "gwet_ac1", "icc", "exact"):
            setting = f"binary, {prevalence:.0%} positive, {n} items, 2 raters"
            yield f"agreement: {name}", setting, COVERS, holds(table.loc[name], truth[name])


# --- Calibration


def calibration(rng: np.random.Generator) -> Rows:
    for over in (0.0, 0.1):
        sure = pd.Series(rng.uniform(0.6, 1, size=400))
        right = pd.Series((rng.random(400) < sure - over).astype(int))
        row = metrics.expected_calibration_error(sure, right, n_resamples=400)
        setting = f"too sure by {over}, 400 verdicts"
        yield "expected_calibration_error", setting, COVERS, holds(row, over)
    logits = rng.normal(size=(100, 5)) * 1.5
    for t in (1.0, 2.0):
        truth = [float(rng.choice(5, p=special.softmax(row / t))) for row in logits]
        judge = pd.Series([dict(enumerate(special.softmax(row))) for row in logits])
        row = metrics.temperature_scaling(judge, pd.Series(truth))
        yield "temperature_scaling", f"temperature {t:g}, 100 items", COVERS, holds(row, t)


def conformal(rng: np.random.Generator) -> Rows:
    truth = pd.Series(rng.integers(1, 6, size=61).astype(float))
    judge = truth + rng.normal(0.5, 0.5, size=61)
    table = metrics.conformal_intervals(judge, truth.where(truth.index < 60))
    claim = "90 % interval holds the next score"
    yield "conformal_intervals", "60 known scores", claim, holds(table.iloc[60], truth[60])


# --- Correlations and lengths


def correlations(rng: np.random.Generator) -> Rows:
    root = np.linalg.cholesky([[1, 0.6], [0.6, 1]])
    tail = rng.normal(size=(100, 2)) @ root.T / np.sqrt(rng.chisquare(3, size=(100, 1)) / 3)
    row = metrics.correlate(*tail.T, n_resamples=400).loc["pearson"]
    yield "correlate: pearson", "Student's t with 3 degrees, 100 items", COVERS, holds(row, 0.6)
    for systems, questions in ((5, 40), (20, 60)):
        quality = rng.normal(size=(systems, 2)) @ np.linalg.cholesky([[1, 0.9], [0.9, 1]]).T
        scores = quality[:, None] + 1.5 * rng.normal(size=(systems, questions, 2))
        x, y = scores.reshape(-1, 2).T
        system = np.repeat(np.arange(systems), questions)
        table = metrics.correlate_levels(x, y, systems=system, levels=["system"])
        setting = f"{systems} systems, {questions} questions, system level"
        for name, truth in zip(STATISTICS, correlations_of(0.9, None), strict=True):
            row = table.loc[("system", name)]
            yield f"correlate_levels: {name}", setting, COVERS, holds(row, truth)


def many_rows(rng: np.random.Generator) -> Rows:
    image = np.arange(20_000) // 4
    for name, groups in (("fine scores", None), ("groups of four", image)):
        own = rng.normal(size=(2, 20_000))
        if groups is not None:
            own = own + rng.normal(size=(2, 5_000))[:, image]
        x = own[0]
        y = 0.6 * x + 0.8 * own[1]
        row = metrics.correlate(x, y, groups=groups, seed=int(rng.integers(2**31))).loc["pearson"]
        yield "correlate: random blocks", f"20,000 rows, {name}", COVERS, holds(row, 0.6)


STUDIES: dict[Callable[[np.random.Generator], Rows], float] = {
    alt_test: 1.0,
    corrected_rate: 1.0,
    prediction_powered: 1.0,
    labels_needed: 1.0,
    panels: 0.5,
    severities: 0.2,
    agreement: 1.0,
    calibration: 0.5,
    conformal: 1.0,
    correlations: 1.0,
    many_rows: 0.1,
    **DESIGNS,
}
"""Each study, and which share of the simulations it gets: slow ones get fewer."""


def numbers(
    studies: Mapping[Callable[[np.random.Generator], Rows], float] = STUDIES,
    *,
    simulations: int,
    seed: int,
) -> pd.DataFrame:
    """How often each number's claim held: a row a number, setting and claim, with exact bounds."""
    rows = []
    for place, (study, part) in enumerate(studies.items()):
        for simulation in range(round(simulations * part)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                rows.extend(study(np.random.default_rng([seed, place, simulation])))
        print(study.__name__, flush=True)
    frame = pd.DataFrame(rows, columns=["number", "setting", "claim", "held"])
    lines = []
    for key, held in frame.groupby(["number", "setting", "claim"], sort=False)["held"]:
        lines.append([*key, *exact(int(held.sum()), len(held), "share").values(), len(held), seed])
    columns = ["number", "setting", "claim", "share", "low", "high", "simulations", "seed"]
    return pd.DataFrame(lines, columns=columns)
