"""A quick version of `make validity`, with bounds that an honest probe keeps and a careless one breaks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vjudge.probes.estimates import mean
from vjudge.simulate import SimulatedJudge, drawing, studies, validity
from vjudge.simulate.studies import STUDIES, Pool

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
        estimates, table = study.estimate(sample, judge), study.public(sample, judge).set_index("case")
        for case in study.cases:
            row = table.loc[case, ["effect", "low", "high", "p", "n", "groups"]].to_numpy(dtype=float)
            assert np.array(estimates[case], dtype=float) == pytest.approx(row, abs=1e-10, nan_ok=True)


QUICK = [study for study in STUDIES if study.label not in ("question (reads)", "reference", "drift", "leniency")]


@pytest.mark.parametrize("study", QUICK, ids=lambda study: f"{study.name}-{study.label or next(iter(study.cases))}")
def test_false_positives_and_coverage_of_clustered_items(study):
    drawn = validity.simulate(study, _pool(5, study.longer), 120, study.effects[0], simulations=N, seed=1)
    for case, cell in drawn.groupby("case"):
        if study.tested:
            assert _within(int((cell["p"] < 0.05).sum()), N, 0.05), case
        found = validity.summarise(cell)
        assert found["undefined"] == 0 and _within(round(found["covered"] * N), N, 0.945), (case, found["covered"])


def test_a_length_bias_of_a_tenth_a_doubling_is_found_at_500_items():
    for study in STUDIES[:2]:  # lengths unrelated to quality, and better answers longer
        drawn = validity.simulate(study, _pool(1, study.longer), 500, 0.1, simulations=100, seed=1)
        slope = drawn[drawn["case"].str.startswith("slope")]
        assert (slope["p"] < 0.05).sum() > stats.binom.ppf(0.001, 100, 0.9)
        fooled = validity.simulate(study, _pool(1, study.longer), 500, 0.0, simulations=N, seed=1)
        assert _within(int((fooled.loc[fooled["case"].str.startswith("slope"), "p"] < 0.05).sum()), N, 0.05)


def test_a_test_that_forgets_the_images_is_caught():
    pool, rejected = _pool(5), 0
    for seed in range(N):
        sample = pool.draw(120, np.random.default_rng(seed))
        judge = SimulatedJudge(pool.truth, studies.Planted(group=0.8, noise=0.2, item=0.1), seed=seed)
        run = judge.scored(sample.view())
        rejected += mean(run.score - run.gold, np.arange(120)).p < 0.05  # rows taken for independent
    assert not _within(rejected, N, 0.05)


def test_the_whole_study_is_summed_up_and_drawn(tmp_path):
    chosen = [STUDIES[0], STUDIES[6], STUDIES[-1]]
    cells = validity.study_all(studies=chosen, null_simulations=12, power_simulations=6, pool_size=600)
    again = validity.study_all(studies=chosen, null_simulations=12, power_simulations=6, pool_size=600)
    pd.testing.assert_frame_equal(cells, again)
    assert len(cells) == 2 * (2 * 5 + 5 + 2)
    assert (cells["covered_low"] <= cells["covered"]).all() and cells["rejected"].isna().sum() == 4
    paths = drawing.save(cells, folder=tmp_path)
    assert {path.name for path in paths} == {
        *(f"validity.{end}" for end in ("pdf", "svg", "png", "txt", "csv")), "validity_table.csv", "validity_table.tex",
    }  # fmt: skip
    assert "12 simulations with nothing planted" in (tmp_path / "validity.txt").read_text()
