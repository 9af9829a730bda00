"""Simulated judges do what is planted, say that they are simulated, and repeat themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vjudge import probes
from vjudge.probes import simulated
from vjudge.probes.simulated import Planted, SimulatedJudge, Truth

EXACT = Planted(item=0, group=0, noise=0, whole=False)


@pytest.fixture(scope="module")
def items():
    return simulated.collection(60, per_group=5)


@pytest.fixture(scope="module")
def truth(items):
    return Truth(items)


def _effect(frame, case):
    return frame.set_index("case").loc[case, "effect"]


def test_a_collection_is_canonical_and_repeats_itself(items):
    assert items["gold"] == simulated.collection(60, per_group=5)["gold"]
    assert len(set(items["group"])) == 12 and set(items["gold"]) == {1, 2, 3, 4, 5}
    longer = simulated.collection(400, better_is_longer=0.5)
    words = np.log2([len(text.split()) for text in longer["response"]])
    assert np.polyfit(longer["gold"], words, 1)[0] == pytest.approx(0.5, abs=0.1)


def test_a_judge_says_that_it_is_simulated_and_refuses_what_it_was_not_told(truth, items):
    run = SimulatedJudge(truth, name="lenient").grade(items)
    assert set(run["judge"]) == {"simulated: lenient"}
    assert run["score"].isin([1, 2, 3, 4, 5]).all() and run["failure"].isna().all()
    again, other = (SimulatedJudge(truth, seed=seed).grade(items)["score"] for seed in (0, 5))
    assert again.equals(run["score"]) and not other.equals(run["score"])
    with pytest.raises(ValueError, match="not in the collection"):
        truth.view(simulated.collection(70, per_group=5))
    with pytest.raises(ValueError, match="no gold"):
        Truth([{**dict(simulated.collection(2)[0]), "gold": None}])


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
        ({"length": 0.1}, probes.length, "slope at equal gold", 0.1),
        ({"formatting": 0.6}, probes.formatting, "response bold: change", 0.6),
        ({"formatting": 0.6}, probes.formatting, "response listed: change", 0.6),
        ({"injection": 0.9}, probes.injection, "injected order: change", 0.9),
        ({"injection": 0.9}, probes.injection, "injected worst: change", 0.9),
        ({"leniency": 0.5}, probes.scale, "leniency", 0.5),
        ({"compression": -0.25}, probes.scale, "compression", -0.25),
        ({"kind": 0.4}, probes.image_kinds, "photo: leniency", 0.0),
        ({"kind": 0.4}, probes.image_kinds, "text-rich: leniency", 0.4),
        ({"kind": 0.4}, probes.image_kinds, "photo: against the others", -0.4),
    ],
)
def test_a_probe_recovers_what_is_planted_exactly_without_noise(items, truth, planted, probe, case, effect):
    frame = probe(SimulatedJudge(truth, replace(EXACT, **planted)), items)
    assert _effect(frame, case) == pytest.approx(effect, abs=1e-9)


def test_padding_is_worth_its_doublings(items, truth):
    frame = probes.verbosity(SimulatedJudge(truth, replace(EXACT, length=0.1)), items)
    long, short = ([len(text.split()) for text in rows["response"]] for rows in (probes.padded(items), items))
    assert _effect(frame, "response padded: change") == pytest.approx(0.1 * np.log2(np.divide(long, short)).mean())


def test_position_is_recovered_and_consistent_without_it(items, truth):
    pairs = probes.pairs_of_items(items)
    assert len(pairs) == 12 * 10
    always_first = SimulatedJudge(truth, replace(EXACT, position=1000.0))
    frame = probes.position(always_first, pairs)
    assert _effect(frame, "first shown wins") == 0.5 and _effect(frame, "order decides") == 1
    likes_length = SimulatedJudge(truth, replace(EXACT, pairwise_length=1000.0))
    assert _effect(probes.verbosity(likes_length, items), "padded against itself: wins") == 0.5
