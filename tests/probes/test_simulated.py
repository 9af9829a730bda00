"""Simulated judges say that they are simulated and repeat themselves, and probes recover what is planted in them."""

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


def test_a_collection_and_its_judges_repeat_themselves_and_say_that_they_are_simulated(truth, items):
    assert items["gold"] == simulated.collection(60, per_group=5)["gold"]
    assert len(set(items["group"])) == 12 and set(items["gold"]) == {1, 2, 3, 4, 5}
    longer = simulated.collection(400, better_is_longer=0.5)
    words = np.log2([len(text.split()) for text in longer["response"]])
    assert np.polyfit(longer["gold"], words, 1)[0] == pytest.approx(0.5, abs=0.1)
    run = SimulatedJudge(truth, name="lenient").grade(items)
    assert set(run["judge"]) == {"simulated: lenient"} and set(run["score"]) == {1, 2, 3, 4, 5}
    again, other = (SimulatedJudge(truth, seed=seed).grade(items)["score"] for seed in (0, 5))
    assert again.equals(run["score"]) and not other.equals(run["score"])
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
        ({"kind": 0.4}, probes.image_kinds, "photo: agreement", 1.0),
        ({"kind": 0.4}, probes.image_kinds, "photo: against the others", -0.4),
    ],
)
def test_a_probe_recovers_what_is_planted_exactly_without_noise(items, truth, planted, probe, case, effect):
    frame = probe(SimulatedJudge(truth, replace(EXACT, **planted)), items).set_index("case")
    assert frame.loc[case, "effect"] == pytest.approx(effect, abs=1e-9)


def test_padding_is_worth_its_doublings_and_position_its_place(items, truth):
    frame = probes.verbosity(SimulatedJudge(truth, replace(EXACT, length=0.1, pairwise_length=1000.0)), items)
    long, short = ([len(text.split()) for text in rows["response"]] for rows in (probes.padded(items), items))
    effect = frame.set_index("case")["effect"]
    assert effect["response padded: change"] == pytest.approx(0.1 * np.log2(np.divide(long, short)).mean())
    assert effect["padded against itself: wins"] == 0.5
    pairs = probes.pairs_of_items(items)
    frame = probes.position(SimulatedJudge(truth, replace(EXACT, position=1000.0)), pairs)
    assert len(pairs) == 12 * 10 and frame["effect"].tolist() == [0.5, 1]
