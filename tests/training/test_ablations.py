"""Ablations: each changes what it says; the table holds means and intervals over seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from training_cases import SMALL

import vjudge as vj
from vjudge.prompts import TEMPLATES
from vjudge.training import ABLATIONS, ablate, over_seeds
from vjudge.training.ablations import Trial, length_tells, without_rubric

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*verdicts failed"),
    pytest.mark.filterwarnings("ignore:.*nothing was learned"),
]


def test_an_ablation_changes_what_it_says():
    items = vj.load_collection("scenes", split="train", limit=600)
    trial = Trial(items, items, TEMPLATES["prometheus-vision"], n_rows=60)
    changed = {name: ablation(trial) for name, ablation in ABLATIONS.items()}
    assert changed["full recipe"] == trial
    assert changed["no feedback"].options["shape"] == "score"
    assert changed["score before feedback"].options["shape"] == "score-first"
    assert not any(changed["no reference answer"].rows["reference_answer"])
    assert not any(changed["no reference answer"].test["reference_answer"]) and any(trial.rows["reference_answer"])
    images = [image for row in changed["no image"].rows["images"] for image in row]
    assert all(len(np.unique(np.asarray(image))) == 1 for image in images)
    assert "Score Rubrics" not in changed["no rubric"].template.body
    assert "criteria" not in changed["no rubric"].template.needs
    assert len(changed["a quarter of the rows"].rows) == 15
    assert changed["nothing frozen"].options["freeze"] == ()
    planted = changed["length tells the score"]
    assert len(planted.rows) == 60 and planted.test is items
    assert vj.data.length_test(trial.rows, n_resamples=0).loc["words", "auc"] == pytest.approx(0.5, abs=0.1)
    assert vj.data.length_test(planted.rows, n_resamples=0).loc["words", "auc"] > 0.8


def test_ablations_that_do_not_apply_are_refused_before_any_training(random_judge, tmp_path):
    items = vj.load_collection("scenes", split="train", limit=40)
    trial = Trial(items, items, TEMPLATES["llava-critic"], n_rows=40)
    with pytest.raises(ValueError, match="no section"):
        without_rubric(trial)
    with pytest.raises(ValueError, match="give more items"):
        length_tells(trial)
    with pytest.raises(ValueError, match="unknown ablations: no sleep"):
        ablate(random_judge, lambda seed: items, test=lambda seed: items, out=tmp_path, names=["no sleep"])


def table(pearson: dict[str, float], difference: dict[str, float], rows: int = 9) -> pd.DataFrame:
    index = pd.Index(list(pearson), name="ablation")
    columns = {"pearson": pearson, "difference": difference, "readable": dict.fromkeys(pearson, 1.0)}
    frame = pd.DataFrame({name: pd.Series(values, dtype=float) for name, values in columns.items()}).reindex(index)
    return frame.assign(rows=rows, steps=2, length_auc=0.5)


def test_the_table_has_means_and_t_intervals_over_seeds():
    """By hand: of .7, .8, .9 the standard error is .1 / sqrt(3) and t(2) at .975 is 4.3027; undefined stays so."""
    nan = float("nan")
    seeds = {
        0: table({"full recipe": 0.9, "a": 0.7, "b": nan, "c": nan}, {"a": -0.2, "b": nan}),
        1: table({"full recipe": 0.9, "a": 0.8, "b": nan, "c": 0.2}, {"a": -0.1, "b": nan, "c": -0.7}),
        2: table({"full recipe": 0.9, "a": 0.9, "b": nan, "c": 0.4}, {"a": 0.0, "b": nan, "c": -0.5}),
    }
    summary = over_seeds(seeds)
    half = 4.302653 * 0.1 / 3**0.5
    assert summary.loc["a", ["pearson", "high"]].tolist() == pytest.approx([0.8, 1.0])  # cut at 1
    assert summary.loc["a", "low"] == pytest.approx(0.8 - half, abs=1e-5)
    assert summary.loc["a", ["seed_0", "seed_1", "seed_2"]].tolist() == [0.7, 0.8, 0.9]
    differences = summary.loc["a", ["difference", "difference_low", "difference_high"]].tolist()
    assert differences == pytest.approx([-0.1, -0.1 - half, -0.1 + half], abs=1e-5)
    assert summary.loc["a", "p"] == pytest.approx(0.2254, abs=1e-4)  # t = -1.732 with 2 degrees of freedom
    assert np.isnan(summary.loc["b", ["pearson", "low", "difference", "p"]].astype(float)).all()
    assert summary["undefined"].tolist() == [0, 0, 3, 1] and summary.loc["c", "pearson"] == pytest.approx(0.3)
    assert summary.loc["a", "p_holm"] >= summary.loc["a", "p"] and np.isnan(summary.loc["full recipe", "difference"])
    with pytest.raises(ValueError, match="seed 1 has other ablations, rows or steps"):
        over_seeds({0: seeds[0], 1: table({"full recipe": 0.9}, {})})


def test_every_seed_trains_grades_and_goes_on_where_it_was(random_judge, tmp_path):
    pool = vj.load_collection("scenes", split="train", limit=30)
    test = vj.load_collection("scenes", split="test", limit=5)
    options = SMALL | dict(names=["no feedback"], n_rows=20, steps=2, seeds=(3, 4))
    options |= dict(allow=["length", "scores"])  # so few rows
    collections = (lambda seed: pool), (lambda seed: test)
    summary = ablate(random_judge, collections[0], test=collections[1], out=tmp_path, max_new_tokens=30, **options)
    assert list(summary.index) == ["full recipe", "no feedback"] and {"seed_3", "seed_4"} <= set(summary)
    assert (summary["rows"] == 20).all() and (summary["steps"] == 2).all()
    logs = [(tmp_path / f"seed-{seed}/full-recipe/training_log.jsonl").read_text() for seed in (3, 4)]
    assert logs[0] != logs[1]
    again = ablate(random_judge, collections[0], test=collections[1], out=tmp_path, max_new_tokens=30, **options)
    pd.testing.assert_frame_equal(again, summary)
    stored = pd.read_csv(tmp_path / "seed-3/ablations.csv", index_col="ablation")
    assert stored["steps"].tolist() == [2, 2]
