"""A quick version of `make validity`, with bounds that an honest probe keeps and a careless one breaks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from validity import batteries, probes
from validity.labels import labelling
from validity.studies import STUDIES, Pool, Study
from vjudge.probes import length
from vjudge.probes.outcome import mean
from vjudge.probes.simulated import Planted, SimulatedJudge

N = 120  # simulations
FIGURES = Path(__file__).parents[2] / "figures"


@cache
def _pool(per_group: int, longer: float = 0.0) -> Pool:
    return Pool(per_group, n=600, longer=longer)


def _within(count: int, of: int, rate: float) -> bool:
    """Whether a count is one that this rate gives in all but 2 of 10,000 runs; seeds are fixed, so it holds or not."""
    return bool(stats.binom.ppf(1e-4, of, rate) <= count <= stats.binom.ppf(1 - 1e-4, of, rate))


def _study(label: str) -> Study:
    return next(study for study in STUDIES if study.label == label)


ALIKE = ("reference", "drift", "format, unrounded", "length, gold exact", "length, noisy judge")
QUICK = [study for study in STUDIES if study.label not in ALIKE]


@pytest.mark.parametrize("study", QUICK, ids=lambda study: f"{study.name}-{study.label or next(iter(study.cases))}")
def test_false_positives_and_coverage_of_clustered_items(study):
    """With better answers longer, gold of noisy raters and whole scores among the studies."""
    drawn = study.simulate(_pool(5, study.longer), 120, study.effects[0], simulations=N, seed=1)
    for case, cell in drawn.groupby("case"):
        if study.tested:
            assert _within(int((cell["p"] < 0.05).sum()), N, 0.05), case
        counts = probes.summarise(cell)
        assert counts["undefined"] == 0 and _within(round(counts["covered"] * N), N, 0.945), (case, counts["covered"])


def test_a_length_bias_of_a_tenth_a_doubling_is_found_at_500_items():
    study = _study("length, better is longer")
    for effect, rate in ((0.1, 0.9), (0.0, 0.05)):
        drawn = study.simulate(_pool(1, study.longer), 500, effect, simulations=N, seed=1)
        assert _within(int((drawn["p"] < 0.05).sum()), N, rate)


def test_a_test_that_forgets_the_images_is_caught():
    pool, rejected = _pool(5), 0
    for seed in range(200):
        sample = pool.draw(120, np.random.default_rng(seed))
        run = SimulatedJudge(pool.truth, Planted(group=0.8, noise=0.2, item=0.1), seed=seed).run(sample.view())
        rejected += mean(run["score"] - run["gold"], np.arange(120)).p < 0.05  # rows taken for independent
    assert not _within(rejected, 200, 0.05)


def test_noise_in_gold_fools_a_slope_that_takes_it_for_exact():
    pool, naive = _pool(1, 0.5), 0
    for seed in range(60):
        sample = pool.draw(500, np.random.default_rng(seed))
        run = SimulatedJudge(pool.truth, seed=seed).run(sample.view()).assign(gold=sample.ratings(1)[:, 0])
        naive += length(run, sample.texts, gold="exact").loc[0, "p"] < 0.05
    assert naive > 50
    drawn = _study("length, noisy gold, better is longer").simulate(pool, 500, 0.0, simulations=N, seed=1)
    assert _within(int((drawn["p"] < 0.05).sum()), N, 0.05)


def test_the_whole_study_is_summed_up():
    chosen = [STUDIES[0], _study("blindness"), STUDIES[-1]]
    cells = probes.study_all(studies=chosen, null_simulations=12, power_simulations=6, pool_size=600)
    assert len(cells) == 2 * (5 + 5 + 2)
    assert (cells["covered_low"] <= cells["covered"]).all() and cells["rejected"].isna().sum() == 4
    assert cells.loc[cells["case"] == "image blanked: agreement", "planted"].iloc[0] == 0.25  # the least that counts
    summed = probes.summary(cells).set_index("case")
    assert summed["FP, n=500"].notna().sum() == 2 and summed.loc["padding: change", "stays, n=500"] > 0.9


def test_a_battery_study_counts_accusations_and_finds():
    frame = batteries.batteries(simulations=2, power_simulations=1, pool_size=200, designs={"120 items": (120, 1)})
    assert set(frame.loc[frame["planted"] != "nothing", "judge"]) == set(batteries.BIASED)
    assert frame.loc[frame["planted"] == "nothing", "accused"].mean() < 0.2
    assert frame.set_index("judge").loc[["blind", "rubric not read"], "found"].eq(1).all()
    assert frame["tests"].between(20, 40).all()


def test_chosen_labels_narrow_the_interval():
    frame = labelling(n_items=300, budgets=(40, 80), simulations=25, n_resamples=200)
    width = frame.pivot(index="labels", columns="order", values="width")
    assert (width["chosen"] < width["random"]).all() and (width.loc[80] < width.loc[40]).all()
    assert frame["covered"].between(0.6, 1).all()


def test_stored_tables_hold_what_is_claimed():
    """False positives of 4 to 6 %, and at most 5 % of honest judges accused, within the error of the simulation."""
    cells = pd.read_csv(FIGURES / "validity.csv")
    null = cells[cells["null"] & cells["rejected"].notna()]
    assert ((null["rejected_low"] <= 0.06) & (null["rejected_high"] >= 0.04)).all()
    honest = pd.read_csv(FIGURES / "validity_battery.csv").query("planted == 'nothing'")
    assert (honest["low"] <= 0.05).all()
