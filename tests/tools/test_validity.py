"""A quick version of `make validity`, with bounds that an honest probe keeps and a careless one breaks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from validity import drawing, studies
from validity.simulated import Planted
from validity.studies import STUDIES, Pool, Study, simulate
from vjudge.probes import length
from vjudge.probes.effects import mean

N = 50  # simulations
FIGURES = Path(__file__).parents[2] / "figures"
ALIKE = (
    "format, unrounded",
    "length, gold exact",
    "length, noisy judge",
    "format",
)
QUICK = [study for study in STUDIES if study.label not in ALIKE]


@cache
def _pool(per_group: int, longer: float = 0.0) -> Pool:
    return Pool(per_group, n=600, longer=longer)


def _within(count: int, of: int, rate: float) -> bool:
    """Whether a count is one that this rate gives in all but 2 of 10,000 runs; seeds are fixed, so it holds or not."""
    return bool(stats.binom.ppf(1e-4, of, rate) <= count <= stats.binom.ppf(1 - 1e-4, of, rate))


def _study(label: str) -> Study:
    return next(study for study in STUDIES if study.label == label)


@pytest.mark.parametrize(
    "study", QUICK, ids=lambda study: f"{study.name}-{study.label or study.cases}"
)
def test_false_positives_and_coverage_of_clustered_items(study):
    """With better answers longer, gold of noisy raters and whole scores among the studies."""
    drawn = study.run(_pool(5, study.longer), 120, study.effects[0], simulations=N, seed=1)
    for case, cell in drawn.groupby("case"):
        assert not study.tested or _within(int((cell["p"] < 0.05).sum()), N, 0.05), case
        counts = studies.summarise(cell)
        assert counts["undefined"] == 0 and _within(round(counts["covered"] * N), N, 0.945), (
            case,
            counts["covered"],
        )


@pytest.mark.parametrize(
    ("label", "effect", "rate"),
    [("length, better is longer", 0.1, 0.9), ("length, noisy gold, better is longer", 0.0, 0.05)],
)
def test_a_bias_of_a_tenth_a_doubling_is_found_at_500_items_and_noise_in_gold_is_none(
    label, effect, rate
):
    drawn = _study(label).run(_pool(1, 0.5), 500, effect, simulations=N, seed=1)
    assert _within(int((drawn["p"] < 0.05).sum()), N, rate)


def test_a_test_that_forgets_the_images_or_takes_noisy_gold_for_exact_is_caught():
    planted, forgetful = Planted(group=0.8, noise=0.2, item=0.1), 0
    for sample, judge in simulate(_pool(5), 120, planted, ([seed] for seed in range(150))):
        run = judge.run(sample.view())
        forgetful += (
            mean(run["score"] - run["gold"], np.arange(120)).p < 0.05
        )  # rows taken for independent
    draws = simulate(_pool(1, 0.5), 500, Planted(), ([seed] for seed in range(40)))
    naive = sum(
        length(sample.original(judge, "observed"), gold="exact").loc[0, "p"] < 0.05
        for sample, judge in draws
    )
    assert not _within(forgetful, 150, 0.05) and naive > 30


def test_studies_are_summed_up():
    chosen = [STUDIES[0], _study("blindness"), STUDIES[-1]]
    cells = studies.study_all(chosen, null_simulations=12, power_simulations=6, pool_size=600)
    assert len(cells) == 2 * (5 + 5 + 2)
    assert (cells["covered_low"] <= cells["covered"]).all() and cells["rejected"].isna().sum() == 4
    assert (
        cells.loc[cells["case"] == "image blanked: agreement", "planted"].iloc[0] == 0.25
    )  # the least that counts
    summed = drawing.summary(cells).set_index(["n", "case"])
    assert summed.loc[500, "FP"].notna().sum() == 2
    assert summed.loc[(500, "padding: change"), "stays"] > 0.9
    frame = studies.batteries(
        simulations=2, power_simulations=1, pool_size=200, designs={"120 items": (120, 1)}
    )
    assert set(frame["judge"]) == set(studies.JUDGES)
    assert (
        frame.loc[frame["planted"] == "nothing", "accused"].mean() < 0.2
        and frame["tests"].between(20, 40).all()
    )
    assert frame.set_index("judge").loc[["blind", "rubric not read"], "found"].eq(1).all()


def test_stored_tables_hold_what_is_claimed():
    """False positives of 4 to 6 %, and at most 5 % of honest judges accused, within the error of the simulation."""
    cells = pd.read_csv(FIGURES / "validity.csv")
    null = cells[cells["null"] & cells["rejected"].notna()]
    assert ((null["rejected_low"] <= 0.06) & (null["rejected_high"] >= 0.04)).all()
    honest = pd.read_csv(FIGURES / "validity_battery.csv").query("planted == 'nothing'")
    assert (honest["low"] <= 0.05).all()
    numbers = pd.read_csv(FIGURES / "validity_numbers.csv").set_index("claim")
    assert (numbers.filter(like="95 % interval", axis=0)["high"] > 0.9).all()
    assert (numbers.filter(like="power .8", axis=0)["high"] > 0.8).all()
    assert numbers.loc["p below .05 of one person, who is ahead by epsilon", "low"] < 0.05
