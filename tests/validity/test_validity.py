"""A quick version of `make validity`, with bounds that an honest probe keeps and a careless one breaks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from validity import batteries, probes, studies
from validity.labels import labelling
from validity.studies import STUDIES, Pool
from vjudge.probes._cluster import mean
from vjudge.probes.simulated import SimulatedJudge

N = 200  # simulations
POOLS: dict[tuple[int, float], Pool] = {}


def _pool(per_group: int, longer: float = 0.0) -> Pool:
    if (per_group, longer) not in POOLS:
        POOLS[per_group, longer] = Pool(per_group, n=600, longer=longer)
    return POOLS[per_group, longer]


def _within(count: int, of: int, rate: float) -> bool:
    """Whether a count is one that this rate gives in all but 2 of 10,000 runs; seeds are fixed, so it holds or not."""
    return bool(stats.binom.ppf(1e-4, of, rate) <= count <= stats.binom.ppf(1 - 1e-4, of, rate))


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: f"{study.name}-{study.label or next(iter(study.cases))}")
def test_what_is_studied_is_the_public_probe(study):
    for per_group in (1, 5):
        sample = _pool(per_group, study.longer).draw(100, np.random.default_rng(per_group))
        judge = SimulatedJudge(sample.pool.truth, study.plant(study.effects[-1]), seed=3)
        estimates, table = study.estimate(sample, judge), study.public(sample, judge)
        for case in study.cases if len(table) else ():
            row = table.set_index("case").loc[case, ["effect", "low", "high", "p", "n", "groups"]].to_numpy(dtype=float)
            effect = estimates[case] if study.tested else estimates[case]._replace(p=np.nan)  # a description has no p
            assert np.array(effect, dtype=float) == pytest.approx(row, abs=1e-10, nan_ok=True)


SLOW = ("reference", "drift", "format, unrounded", "length, gold exact")  # like others
QUICK = [study for study in STUDIES if study.label not in SLOW]


@pytest.mark.parametrize("study", QUICK, ids=lambda study: f"{study.name}-{study.label or next(iter(study.cases))}")
def test_false_positives_and_coverage_of_clustered_items(study):
    drawn = probes.simulate(study, _pool(5, study.longer), 120, study.effects[0], simulations=N, seed=1)
    for case, cell in drawn.groupby("case"):
        if study.tested:
            assert _within(int((cell["p"] < 0.05).sum()), N, 0.05), case
        counts = probes.summarise(cell)
        assert counts["undefined"] == 0 and _within(round(counts["covered"] * N), N, 0.945), (case, counts["covered"])


def test_a_length_bias_of_a_tenth_a_doubling_is_found_at_500_items():
    for study in (s for s in STUDIES if s.label in ("length, gold exact", "length, better is longer")):
        drawn = probes.simulate(study, _pool(1, study.longer), 500, 0.1, simulations=100, seed=1)
        slope = drawn[drawn["case"].str.startswith("slope")]
        assert (slope["p"] < 0.05).sum() > stats.binom.ppf(0.001, 100, 0.9)
        fooled = probes.simulate(study, _pool(1, study.longer), 500, 0.0, simulations=N, seed=1)
        assert _within(int((fooled.loc[fooled["case"].str.startswith("slope"), "p"] < 0.05).sum()), N, 0.05)


def test_a_test_that_forgets_the_images_is_caught():
    pool, rejected = _pool(5), 0
    for seed in range(N):
        sample = pool.draw(120, np.random.default_rng(seed))
        judge = SimulatedJudge(pool.truth, studies.Planted(group=0.8, noise=0.2, item=0.1), seed=seed)
        run = judge.scored(sample.view())
        rejected += mean(run.score - run.gold, np.arange(120)).p < 0.05  # rows taken for independent
    assert not _within(rejected, N, 0.05)


def test_noise_in_gold_fools_a_slope_that_takes_it_for_exact():
    study = next(study for study in STUDIES if study.label.startswith("length, noisy gold"))
    pool, naive = _pool(1, study.longer), 0
    for seed in range(60):
        sample = pool.draw(500, np.random.default_rng(seed))
        run = SimulatedJudge(pool.truth, seed=seed).scored(sample.view())
        people = sample.ratings(1)[:, 0]
        naive += studies.biases.slope_at_equal_gold(run.score, sample.view().doublings, people, run.group).p < 0.05
    assert naive > 50
    drawn = probes.simulate(study, pool, 500, 0.0, simulations=N, seed=1)
    assert _within(int((drawn["p"] < 0.05).sum()), N, 0.05)


def test_the_whole_study_is_summed_up():
    chosen = [STUDIES[0], next(study for study in STUDIES if study.name == "blindness"), STUDIES[-1]]
    sizes = {"null_simulations": 12, "power_simulations": 6, "pool_size": 600}
    cells = probes.study_all(studies=chosen, **sizes)
    pd.testing.assert_frame_equal(cells, probes.study_all(studies=chosen, **sizes))
    assert len(cells) == 2 * (5 + 5 + 2)
    assert (cells["covered_low"] <= cells["covered"]).all() and cells["rejected"].isna().sum() == 4
    assert cells.loc[cells["case"] == "image blanked: agreement", "planted"].iloc[0] == 0.25  # the least that counts
    summed = probes.summary(cells).set_index("case")
    assert summed["FP, n=500"].notna().sum() == 2 and summed.loc["padding: change", "stays, n=500"] > 0.9


def test_a_battery_study_counts_accusations_and_finds():
    frame = batteries.batteries(simulations=3, power_simulations=2, pool_size=200, designs={"120 items": (120, 1)})
    assert set(frame.loc[frame["planted"] != "nothing", "judge"]) == set(batteries.BIASED)
    assert frame.loc[frame["planted"] == "nothing", "accused"].mean() < 0.2
    assert frame.set_index("judge").loc[["blind", "rubric not read"], "found"].eq(1).all()
    assert frame["tests"].between(20, 40).all()


def test_chosen_labels_narrow_the_interval():
    frame = labelling(n_items=300, budgets=(40, 80), simulations=25, n_resamples=200)
    width = frame.pivot(index="labels", columns="order", values="width")
    assert (width["chosen"] < width["random"]).all() and (width.loc[80] < width.loc[40]).all()
    assert frame["covered"].between(0.6, 1).all() and (frame["simulations"] == 25).all()
