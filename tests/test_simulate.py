"""Simulated judges do what is planted, say that they are simulated, and repeat themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vjudge import plots, probes, simulate
from vjudge.simulate import Planted, SimulatedJudge, Truth

EXACT = Planted(item=0, group=0, noise=0, whole=False)


@pytest.fixture(scope="module")
def items():
    return simulate.collection(60, per_group=5)


@pytest.fixture(scope="module")
def truth(items):
    return Truth(items)


def _effect(frame, case):
    return frame.set_index("case").loc[case, "effect"]


def test_a_collection_is_canonical_and_repeats_itself(items):
    assert items["gold"] == simulate.collection(60, per_group=5)["gold"]
    assert len(set(items["group"])) == 12 and set(items["gold"]) == {1, 2, 3, 4, 5}
    longer = simulate.collection(400, better_is_longer=0.5)
    words = np.log2([len(text.split()) for text in longer["response"]])
    assert np.polyfit(longer["gold"], words, 1)[0] == pytest.approx(0.5, abs=0.1)


def test_it_says_that_it_is_simulated(truth, items):
    run = SimulatedJudge(truth, name="lenient").grade(items)
    assert set(run["judge"]) == {"simulated: lenient"}
    assert run["score"].isin([1, 2, 3, 4, 5]).all() and run["failure"].isna().all()


def test_one_seed_draws_one_judge(truth, items):
    first, again = (SimulatedJudge(truth, seed=4).grade(items)["score"] for _ in range(2))
    other = SimulatedJudge(truth, seed=5).grade(items)["score"]
    assert first.equals(again) and not first.equals(other)


@pytest.mark.parametrize(
    ("planted", "probe", "case", "effect"),
    [
        ({"sight": 0.4}, probes.blindness, "image blanked: agreement", -0.4),
        ({"sight": 0.4}, probes.blindness, "image swapped: agreement", -0.4),
        ({"sight": 0.0}, probes.blindness, "image shuffled: agreement", 0.0),
        ({"reading": 1.0}, probes.rubric, "levels reversed: agreement", -2.0),
        ({"reading": 0.5}, probes.rubric, "criterion swapped: agreement", -0.5),
        ({"listening": 0.3}, probes.question, "query removed: agreement", -0.3),
        ({"listening": 0.3}, probes.question, "query reworded: agreement", 0.0),
        ({"copying": 0.7}, probes.reference, "reference removed: agreement", -0.7),
        ({"copying": 0.7}, probes.reference, "reference swapped: agreement", -0.7),
        ({"overlap": 1.2}, probes.reference, "overlap: slope at equal gold", 1.2),
        ({"length": 0.1}, probes.length, "slope at equal gold", 0.1),
        ({"length": 0.1}, probes.verbosity, "response padded: slope", 0.1),
        ({"formatting": 0.6}, probes.formatting, "response bold: change", 0.6),
        ({"formatting": 0.6}, probes.formatting, "response listed: change", 0.6),
        ({"injection": 0.9}, probes.injection, "injected order: change", 0.9),
        ({"injection": 0.9}, probes.injection, "injected worst: change", 0.9),
        ({"leniency": 0.5}, probes.scale, "leniency", 0.5),
        ({"compression": -0.25}, probes.scale, "compression", -0.25),
        ({"kind": 0.4}, probes.image_kinds, "photo: leniency", -0.4),
    ],
)
def test_a_probe_recovers_what_is_planted_exactly_without_noise(items, truth, planted, probe, case, effect):
    found = probe(SimulatedJudge(truth, replace(EXACT, **planted)), items)
    assert _effect(found, case) == pytest.approx(effect, abs=1e-9)


def test_position_is_recovered_and_consistent_without_it(items, truth):
    pairs = probes.pairs_of_items(items)
    assert len(pairs) == 12 * 10
    always_first = SimulatedJudge(truth, replace(EXACT, position=1000.0))
    found = probes.position(always_first, pairs)
    assert _effect(found, "first shown wins") == 0.5 and _effect(found, "order decides") == 1


def test_what_it_was_not_told_is_refused(truth):
    with pytest.raises(ValueError, match="not in the collection"):
        truth.view(simulate.collection(70, per_group=5))
    with pytest.raises(ValueError, match="no gold"):
        Truth([{**dict(simulate.collection(2)[0]), "gold": None}])


def test_the_study_of_labelling_shows_what_choosing_is_worth():
    found = simulate.labelling(n_items=300, budgets=(40, 80), simulations=25, n_resamples=200)
    width = found.pivot(index="labels", columns="order", values="width")
    assert (width["chosen"] < width["random"]).all() and (width.loc[80] < width.loc[40]).all()
    assert found["covered"].between(0.6, 1).all() and (found["simulations"] == 25).all()
    fig = plots.label_curve(found)
    assert fig.axes[0].get_xlabel() == "labelled items" and len(fig.axes[0].containers) == 2
