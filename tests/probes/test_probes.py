"""Probes say what moves and what stays, accuse no honest judge, and name what they need."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import datasets
import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from validity.simulated import Planted, SimulatedJudge, Truth, collection
from vjudge import probes
from vjudge.probes.runs import COLUMNS

EXACT = Planted(item=0, group=0, noise=0, whole=False)
own_liked = partial(probes.self_preference, own="own", gold="exact")


@pytest.fixture(scope="module")
def collected() -> datasets.Dataset:
    return collection(240, per_group=4)


@pytest.fixture(scope="module")
def runs_of(collected):
    """Planted biases and a seed -> all runs of a judge."""
    truth = Truth(collected)
    views = {name: truth.view(probes.perturb(collected, name)) for name in probes.PERTURBATIONS}
    views["original"] = truth.view(collected)

    def runs(planted: Planted, seed: int = 1) -> dict[str, pd.DataFrame]:
        judge = SimulatedJudge(truth, planted, seed=seed)
        return {name: judge.run(view) for name, view in views.items()}

    return runs


@pytest.fixture
def run(collected) -> pd.DataFrame:
    return SimulatedJudge(collected).grade(collected)


PLANTED = [
    ("sight", 0.4, probes.blindness, "image blanked: agreement", -0.4, "a grey image lowers"),
    ("sight", 0.4, probes.blindness, "image swapped: agreement", -0.4, "image lowers the slope"),
    ("reading", 1.0, probes.rubric, "levels reversed: agreement", -2.0, "levels lowers the slope"),
    ("wording", 0.5, probes.rewording, "rubric reworded: change", 0.5, "raises scores by .50"),
    ("length", 0.1, probes.length, "slope at equal gold", 0.1, "the length raises scores at equal"),
    ("formatting", -0.6, probes.formatting, "response bold: change", -0.6, "bold type lowers"),
    ("injection", 0.9, probes.injection, "injected order: change", 0.9, "scores towards it by .90"),
    ("injection", 0.9, probes.injection, "injected worst: change", 0.9, "scores towards it by .90"),
    ("anchoring", 0.4, probes.anchoring, "shown highest: change", 0.4, "scores towards it by .40"),
    ("anchoring", -0.4, probes.anchoring, "shown lowest: change", -0.4, "away from it by .40"),
    ("led", 0.3, probes.commitment, "answered first: change", -0.3, "first lowers scores by .30"),
    ("liking", 0.4, own_liked, "own responses at equal gold", 0.4, "own raises scores at equal"),
]


@pytest.mark.parametrize(("plant", "size", "probe", "case", "effect", "words"), PLANTED)
def test_a_probe_recovers_what_is_planted_and_says_so(
    collected, runs_of, plant, size, probe, case, effect, words
):
    frame = probe(runs_of(replace(EXACT, **{plant: size})), collected).set_index("case")
    assert frame.loc[case, "effect"] == pytest.approx(effect, abs=1e-9)
    assert words in frame.loc[case, "finding"]


def test_padding_is_worth_its_doublings_and_position_its_place(collected):
    table = probes.verbosity(SimulatedJudge(collected, replace(EXACT, length=0.1)), collected)
    words = [len(text.split()) for text in collected["response"]]
    longer = [len(text.split()) for text in probes.padded(collected)["response"]]
    doublings = np.log2(np.divide(longer, words)).mean()
    assert table.set_index("case").loc["response padded: change", "effect"] == pytest.approx(
        0.1 * doublings
    )
    pairs = probes.pairs_of_items(collected)
    first = probes.position(SimulatedJudge(collected, replace(EXACT, position=1000.0)), pairs)
    assert len(pairs) == 60 * 6 and first["effect"].tolist() == [0.5, 1]
    assert first.loc[0, "finding"] == "standing first raises the share of wins by .50"


def test_of_four_honest_judges_none_is_accused(collected, runs_of):
    """By raw p values, of more than twenty tests, each would be accused of something."""
    decided = []
    raw = 0
    for seed in range(20, 24):
        planted = Planted(whole=seed % 3 > 0, noise=0.5 if seed % 2 else 0.9)
        frame = probes.battery(runs_of(planted, seed), collected, gold="exact", own="own")
        assert frame.attrs["against"] == []
        must = frame[frame["must"].notna()]
        assert set(must["verdict"]) <= {"moves", "stays", "can't say"} and must["p"].notna().all()
        decided.append((must["verdict"] == must["must"] + "s").mean())
        raw += int((must.loc[must["must"] == "stay", "p"] < 0.05).sum())
    assert np.mean(decided) > 0.5 and raw >= 3


def test_a_battery_finds_what_is_planted_and_says_how(collected):
    biases = {"injection": 1, "formatting": 0.8, "position": 2}
    biases |= {"anchoring": 1, "wording": 1, "led": 1, "liking": 1, "length": 0.8}
    judge = SimulatedJudge(collected, Planted(sight=0, **biases), seed=1)
    frame = probes.battery(judge, collected, gold="exact", own="own")
    against = {probe for probe, _ in frame.attrs["against"]}
    assert against == set(probes.PROBES) - {"rubric"}
    assert frame.attrs["n_tests"] == frame["p"].notna().sum() > 20 and frame.attrs["not_run"] == {}
    assert list(frame.columns) == COLUMNS
    assert not set(frame["reading"]) & {"", None} and not set(frame["finding"]) & {"", None}
    assert (frame["must"].isna() == (frame["reading"] == "described")).all()
    perturbed = frame["case"].str.contains("image (?:blanked|swapped)|response padded: ")
    assert frame.loc[perturbed, ["deviation", "conformity_low"]].notna().all(axis=None)
    padded = frame.set_index("case").loc["response padded: change"]
    before = judge.grade(collected)["score"]
    after = judge.grade(probes.padded(collected))["score"]
    expected = probes.bias_scores(before, after, groups=collected["group"])["estimate"]
    assert padded["conformity"] == pytest.approx(expected["bias_conformity"])


READ = {  # planted -> reading of blanked and of swapped images
    "blind and harsh on grey": ({"sight": 0.0, "grey": True}, "can't say", "stays"),
    "nearly blind": ({"sight": 0.1}, "stays", "stays"),
    "sound": ({}, "moves", "moves"),
}


@pytest.mark.parametrize("name", READ)
def test_a_blind_judge_is_found_by_swapped_images_whatever_it_says_of_grey_ones(runs_of, name):
    planted, blanked, swapped = READ[name]
    frame = probes.blindness(runs_of(Planted(**planted))).set_index("case")
    assert frame.loc["image blanked: agreement", "verdict"] == blanked
    assert frame.loc["image swapped: agreement", "verdict"] == swapped
    assert (frame.loc[frame["must"] == "move", "margin"] > 0.2).all()  # a quarter of about .9


def test_a_judge_that_agrees_with_nobody_has_nothing_to_lose(runs_of):
    same = {name: run.assign(score=3.0) for name, run in runs_of(Planted()).items()}
    table = probes.blindness(same)
    assert set(table.loc[table["must"] == "move", "verdict"]) == {"can't say"}


def test_people_who_rated_stand_for_gold_where_there_is_none(collected, runs_of):
    people = {}
    for row in collected.remove_columns("images"):
        people[row["id"]] = [row["gold"], None, min(5, row["gold"] + 1)]
    runs = {name: run.drop(columns="gold") for name, run in runs_of(Planted(sight=0.1)).items()}
    rated = {}
    for name, run in runs.items():
        rated[name] = run.assign(human_scores=[people[id] for id in run["id"]])
    frame = probes.blindness(rated).set_index("case")
    assert frame.loc["image blanked: agreement", ["must", "verdict"]].tolist() == ["move", "stays"]
    assert set(probes.blindness(runs)["must"]) == {None, "stay"}  # nobody knows what must be lost


def test_noise_in_gold_makes_no_length_bias_and_no_self_preference():
    """Better answers are longer, and more often the judge's own; gold is noisy people's scores."""
    items = collection(1_000, better_is_longer=0.5, median_words=16)
    honest = SimulatedJudge(items, seed=2).grade(items)
    noise = np.random.default_rng(0).normal(0, 1.05, (1_000, 2))
    people = np.clip(np.rint(honest["gold"].to_numpy()[:, None] + noise), 1, 5)
    one = honest.assign(gold=people[:, 0])
    two = honest.assign(gold=people.mean(axis=1), human_scores=people.tolist())
    for probe in (probes.length, partial(probes.self_preference, own="own")):
        described = probe(one, items).iloc[-1]
        assert described["low"] > 0.05  # one person's noise looks like a bias
        assert described["must"] is None and described["reading"] == "described"
        rated = probe(two, items, gold="rated").iloc[-1]
        assert rated["verdict"] == "stays" and rated["low"] < 0 < rated["high"]
    biased = SimulatedJudge(items, Planted(length=0.4, liking=0.6), seed=2).grade(items)
    biased = biased.assign(human_scores=people.tolist())
    assert probes.length(biased, items, gold="rated").loc[0, "verdict"] == "moves"
    liked = probes.self_preference(biased, items, own="own", gold="rated").set_index("case")
    assert liked.loc["own responses at equal gold", "verdict"] == "moves"
    assert liked.loc["own responses: score", "effect"] > liked.loc["own responses: gold", "effect"]


FAULTS = [
    ("needs the run 'image_blanked': grade probes", lambda run, items: probes.blindness(run)),
    ("needs gold scores", lambda run, items: probes.length(run.drop(columns="gold"), items)),
    ("needs the items", lambda run, items: probes.length(run)),
    ("needs own=", lambda run, items: probes.self_preference(run, items)),
    ("needs responses of me", lambda run, items: probes.self_preference(run, items, own="me")),
    ("needs both orders", lambda run, items: probes.position(run.assign(verdict="a"))),
    ("belong to", lambda run, items: probes.length(probes.ProbeRuns(run, items), gold="exact")),
    ("gold='known': use one of", lambda run, items: probes.length(run, items, gold="known")),
    ("ids stand twice", lambda run, items: probes.length(pd.concat([run, run]))),
    ("not in the first", lambda run, items: probes.blindness(changed(run, run.head(5)))),
    ("position 0: 'five'", lambda run, items: probes.length(run.assign(score="five"), items)),
    ("probe 'scale' is unknown", lambda run, items: probes.battery(run, probes=["scale"])),
]


def changed(run, first):
    return {"original": first, "image_blanked": run}


@pytest.mark.parametrize(("message", "call"), FAULTS)
def test_a_probe_says_what_it_lacks_or_what_is_wrong(collected, run, message, call):
    lacks = message.startswith("needs")
    error = probes.MissingInputError if lacks else (TypeError, ValueError)
    with pytest.raises(error, match=message):
        call(run, collected.remove_columns("own_answer"))


def test_runs_that_are_given_serve_the_probes(collected, run):
    judge = SimulatedJudge(collected)
    runs = {"original": run}
    for name in ("image_blanked", "image_swapped"):
        runs[name] = judge.grade(probes.perturb(collected, name))
    given = probes.blindness(runs, collected)
    graded = probes.blindness(judge, collected).head(2)
    pd.testing.assert_frame_equal(given.drop(columns="p_holm"), graded.drop(columns="p_holm"))
    verdicts = {"verdict_ab": ["a"] * 4 + ["b", "tie"], "verdict_ba": ["b"] * 3 + ["a", "b", "tie"]}
    compared = pd.DataFrame({"id": list("abcdef"), **verdicts})
    whole = probes.battery({**runs, "compared": compared}, collected)
    assert {"rubric", "formatting"} <= set(whole.attrs["not_run"])
    # three pairs go to whichever stands first, two hold in both orders, one is tied
    assert whole.set_index("case").loc["first shown wins", "effect"] == pytest.approx(1 / 4)


@pytest.mark.parametrize("probe", [probes.injection, probes.anchoring])
def test_a_score_that_is_asked_for_counts_only_where_there_is_room(collected, probe):
    frame = probe(SimulatedJudge(collected, Planted(injection=1, anchoring=1)), collected)
    gold = list(collected["gold"])
    for case, n in frame.set_index("case")["n"].items():
        end = 1 if "worst" in case or "lowest" in case else 5
        assert n == 240 - gold.count(end)
    assert (frame["effect"] > 0.5).all()  # towards what is asked for, also for the lowest score


def test_a_real_judge_answers_first_and_a_broken_off_probe_continues(tmp_path, monkeypatch):
    judge = vj.load_judge("tiny")
    items = vj.load_collection("scenes", split="test", limit=20)
    answer = judge.engine.answer
    asked = []

    def counting(prompts, images, ask, *more):
        asked.append((len(prompts), ask.mode, ask.max_new_tokens))
        return answer(prompts, images, ask, *more)

    monkeypatch.setattr(judge.engine, "answer", counting)
    options = {"mode": "score", "out": tmp_path, "progress": False}
    first = probes.commitment(judge, items, **options)
    questions = {(row["group"], row["instruction"]) for row in items.remove_columns("images")}
    assert asked[0] == (len(questions), "feedback", 128) and len(questions) < 20
    assert first["n"].max() + first["missing"].max() == 20
    assert {path.name for path in tmp_path.iterdir()} == {"answered_first", "original"}
    again = probes.commitment(judge, items, **options)
    assert [mode for _, mode, _ in asked[1:]].count("score") == 2  # none was graded twice
    pd.testing.assert_frame_equal(again, first)


@pytest.mark.parametrize("column", [{"score": 3.0}, {"gold": 3.0}, {"group": "one"}], ids=str)
@pytest.mark.filterwarnings("ignore:.*undefined")
def test_degenerate_runs_give_nan_and_never_a_crash(collected, run, column):
    run = run.assign(**column)
    runs = changed(run, run)
    for frame in (probes.blindness(runs, collected), probes.length(run, collected)):
        assert ((frame["reading"] == "undefined") == frame["effect"].isna()).all()
        rows = frame[frame["effect"].notna()]
        assert (rows["low"] <= rows["effect"] + 1e-12).all()
        assert rows["p"].dropna().between(0, 1).all()
