"""Probes say what moves and what stays, accuse no honest judge, and name what they need."""

import io
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from validity.simulated import Planted, SimulatedJudge, Truth, collection
from vjudge import probes
from vjudge.probes.decisions import PROBE_COLUMNS
from vjudge.probes.readings import decision

EXACT = Planted(item=0, group=0, noise=0, whole=False)


@pytest.fixture(scope="module")
def collected():
    return collection(240, per_group=4)


@pytest.fixture(scope="module")
def runs_of(collected):
    """Planted biases and a seed -> all runs of a judge."""
    truth = Truth(collected)
    views = {"original": truth.view(collected)}
    for name, kind in probes.PERTURBATIONS.items():
        if not kind.responses:
            views[name] = truth.view(probes.perturb(collected, name))

    def runs(planted, seed=1):
        judge = SimulatedJudge(truth, planted, seed=seed)
        return {name: judge.run(view) for name, view in views.items()}

    return runs


def against(frame):
    """The probes with a verdict against what must be."""
    return set(frame.loc[frame["passes"].eq(False).fillna(False), "probe"])


@pytest.fixture
def run(collected):
    return SimulatedJudge(collected).grade(collected)


PLANTED = """\
plant,size,probe,case,effect,words
sight,.4,blindness,image blanked: agreement,-.4,a grey image lowers
sight,.4,blindness,image swapped: agreement,-.4,image lowers the slope
reading,1,rubric,levels reversed: agreement,-2,levels lowers the slope
wording,.5,rewording,rubric reworded: change,.5,raises scores by .50
length,.1,length,slope at equal gold,.1,the length raises scores at equal
formatting,-.6,formatting,response bold: change,-.6,bold type lowers
injection,.9,injection,injected order: change,.9,scores towards it by .90
injection,.9,injection,injected worst: change,.9,scores towards it by .90
anchoring,.4,anchoring,shown highest: change,.4,scores towards it by .40
anchoring,-.4,anchoring,shown lowest: change,-.4,away from it by .40
led,.3,commitment,answered first: change,-.3,first lowers scores by .30
liking,.4,self_preference,own responses at equal gold,.4,own raises scores at equal
"""
PLANTED = pd.read_csv(io.StringIO(PLANTED)).to_dict("records")


@pytest.mark.parametrize("row", PLANTED, ids=str)
def test_a_probe_recovers_what_is_planted_and_says_so(collected, runs_of, row):
    runs = runs_of(replace(EXACT, **{row["plant"]: row["size"]}))
    frame = probes.battery(runs, collected, probes=[row["probe"]], own="own").table
    found = frame.set_index("case").loc[row["case"]]
    assert found["effect"] == pytest.approx(row["effect"], abs=1e-9)
    assert row["words"] in found["finding"]


def test_padding_is_worth_its_doublings_and_position_its_place(collected):
    table = probes.verbosity(SimulatedJudge(collected, replace(EXACT, length=0.1)), collected).table
    words = vj.metrics.lengths(list(collected["response"]))
    doublings = np.log2(vj.metrics.lengths(list(probes.padded(collected)["response"])) / words)
    assert table.loc[0, "effect"] == pytest.approx(0.1 * doublings.mean())
    pairs = probes.pairs_of_items(collected)
    first = probes.position(SimulatedJudge(collected, replace(EXACT, position=1000.0)), pairs).table
    assert len(pairs) == 60 * 6 and first["effect"].tolist() == [0.5, 1]
    finding = first.loc[0, "finding"]
    assert finding == "standing first raises the share of wins by .50 (change .50 [.44, .50])"


def test_of_four_honest_judges_none_is_accused(collected, runs_of):
    """By raw p values, of more than twenty tests, each would be accused of something."""
    decided = []
    raw = 0
    for seed in range(20, 24):
        planted = Planted(whole=seed % 3 > 0, noise=0.5 if seed % 2 else 0.9)
        frame = probes.battery(runs_of(planted, seed), collected, gold="exact", own="own").table
        assert not against(frame)
        must = frame.dropna(subset="must")
        decided.append(must["passes"].notna().mean())
        raw += (must.loc[must["must"] == "stay", "p"] < 0.05).sum()
    assert np.mean(decided) > 0.5 and raw >= 3


def test_a_battery_finds_what_is_planted_and_says_how(collected):
    biases = dict.fromkeys(["injection", "anchoring", "wording", "led", "liking"], 1)
    biases |= {"formatting": 0.8, "length": 0.8, "position": 2, "sight": 0}
    judge = SimulatedJudge(collected, Planted(**biases), seed=1)
    frame = probes.battery(judge, collected, gold="exact", own="own").table
    assert against(frame) == set(probes.PROBES) - {"rubric", "self_preference"}
    alone = probes.self_preference(judge, collected, gold="exact", own="own")
    assert alone.table.iloc[-1]["verdict"] == "moves"  # seven placebos are few for Holm's share
    assert frame["p"].notna().sum() > 20 and not (frame["verdict"] == "not run").any()
    assert list(frame.columns) == PROBE_COLUMNS and frame[["reading", "finding"]].all(axis=None)
    perturbed = frame["perturbation"].isin(["image_blanked", "image_swapped", "response_padded"])
    assert frame.loc[perturbed, ["deviation", "conformity_low"]].notna().all(axis=None)
    padded = frame.set_index("case").loc["response padded: change"]
    before, after = (judge.grade(each)["score"] for each in (collected, probes.padded(collected)))
    expected = probes.bias_scores(before, after)["estimate"]["bias_conformity"]
    assert padded["conformity"] == pytest.approx(expected)


READ = {  # planted -> reading of blanked and of swapped images
    "blind and harsh on grey": ({"sight": 0.0, "grey": True}, "can't say", "stays"),
    "nearly blind": ({"sight": 0.1}, "stays", "stays"),
    "sound": ({}, "moves", "moves"),
}


@pytest.mark.parametrize("name", READ)
def test_a_blind_judge_is_found_by_swapped_images_whatever_it_says_of_grey_ones(runs_of, name):
    planted, *verdicts = READ[name]
    runs = runs_of(Planted(**planted))
    frame = probes.blindness(runs).table
    tests = frame[frame["must"] == "move"]
    assert tests["verdict"].tolist() == verdicts  # of blanked and of swapped images
    assert (tests["margin"] > 0.2).all()  # a quarter of about .9
    del runs["image_swapped"]
    assert probes.blindness(runs).table.loc[0, "verdict"] != "moves"  # grey alone shows nothing


def test_a_judge_without_agreement_has_none_to_lose():
    """No margin of a slope near or below zero, and no figure in such margins."""
    rng = np.random.default_rng(0)
    items = pd.DataFrame({"id": map(str, range(60)), "gold": np.resize([1.0, 2, 3, 4, 5], 60)})
    run = items.assign(judge="none", score=rng.integers(1, 6, 60), lowest=1, highest=5)
    result = probes.blindness({"original": run, "image_swapped": run.assign(score=3)})
    row = result.table.loc[0]
    assert row["must"] == "move" and np.isnan(row["margin"]) and row["verdict"] == "can't say"
    assert f"can't say whether agreement is lost ({row['note']})" in decision(row)


def test_people_who_rated_stand_for_gold_where_there_is_none(collected, runs_of):
    runs = {}
    rated = {}
    for name, run in runs_of(Planted(sight=0.1)).items():
        people = [[gold, None, min(5, gold + 1)] for gold in run.pop("gold")]
        runs[name] = run
        rated[name] = run.assign(human_scores=people)
    frame = probes.blindness(rated).table.set_index("case")
    assert frame.loc["image blanked: agreement", ["must", "verdict"]].tolist() == ["move", "stays"]
    assert set(probes.blindness(runs).table["must"]) == {
        None,
        "stay",
    }  # nobody knows what must be lost


def test_a_strict_rater_makes_no_length_bias():
    """The slope at equal gold is the same, whatever one of two people takes off every score."""
    rng = np.random.default_rng(0)
    words = rng.integers(5, 90, 200)
    truth = 3 + np.log2(words / 30) + rng.normal(size=200)
    run = pd.DataFrame({"id": range(200), "score": truth + rng.normal(size=200)})
    run["response"] = ["word " * count for count in words]
    rated = truth[:, None] + rng.normal(size=(200, 2))
    rows = []
    for shift in (0, 1):
        people = (rated - [0, shift]).tolist()
        rows.append(probes.length(run.assign(human_scores=people), gold="rated").table.iloc[0])
    assert (
        rows[0]["effect"] == pytest.approx(rows[1]["effect"])
        and rows[1]["low"] < 0 < rows[1]["high"]
    )


def test_noise_in_gold_makes_no_length_bias_and_no_self_preference():
    """Better answers are longer, and more often the judge's own; gold is noisy people's scores."""
    items = collection(1_000, better_is_longer=0.5, median_words=16)
    honest = SimulatedJudge(items, seed=2).grade(items)
    noise = np.random.default_rng(0).normal(0, 1.05, (1_000, 2))
    people = np.clip(np.rint(honest["gold"].to_numpy()[:, None] + noise), 1, 5)
    one = honest.assign(gold=people[:, 0])
    two = honest.assign(gold=people.mean(axis=1), human_scores=people.tolist())
    biased = SimulatedJudge(items, Planted(length=0.4, liking=0.6), seed=2).grade(items)
    biased = biased.assign(human_scores=people.tolist())
    for probe in (probes.length, partial(probes.self_preference, own="own")):
        described = probe(one, items, gold="observed").table.iloc[-1]
        assert described["effect"] > 0.1  # one person's noise looks like a bias
        assert described["verdict"] == "described"
        rated = probe(two, items, gold="rated").table.iloc[-1]
        assert rated["verdict"] != "moves" and rated["low"] < 0 < rated["high"]
        found = probe(biased, items, gold="rated").table
        assert found["verdict"].iloc[-1] == "moves"
    assert found["effect"][0] > found["effect"][1]  # the score's difference, gold's


def changed(run, first):
    return {"original": first, "image_blanked": run}


FAULTS = [  # message, probe, its options, what is made of the run
    ("needs the run 'image_blanked': grade probes", probes.blindness, {}),
    ("needs the items", probes.length, {"items": None}),
    ("needs own=", probes.self_preference, {}),
    ("needs responses of me", probes.self_preference, {"own": "me"}),
    ("needs the run 'compared'", probes.position, {}),
    ("needs both orders", probes.position, {}, lambda run: run.assign(verdict="a")),
    ("needs gold scores", probes.length, {}, lambda run: run.drop(columns="gold")),
    ("belong to", probes.length, {"gold": "exact"}, probes.ProbeRuns),
    ("gold='known': use one of", probes.length, {"gold": "known"}),
    ("ids stand twice", probes.length, {}, lambda run: pd.concat([run, run])),
    ("not in the first", probes.blindness, {}, lambda run: changed(run, run.head(5))),
    ("probe 'scale' is unknown", probes.battery, {"probes": ["scale"]}),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_probe_says_what_it_lacks_or_what_is_wrong(collected, run, fault):
    message, probe, options, *changes = fault
    for change in changes:
        run = change(run)
    options = {"items": collected.remove_columns("own_answer"), **options}
    if message.startswith("needs"):
        lacking = probe(run, **options)
        assert not lacking.computed and message in repr(lacking)
        with pytest.raises(vj.NotComputed, match=message):
            _ = lacking.table
    else:
        with pytest.raises(ValueError, match=message):
            probe(run, **options)


def test_runs_that_are_given_serve_the_probes(collected, run):
    judge = SimulatedJudge(collected)
    bold = judge.grade(probes.perturb(collected, "response_bold"))
    runs = {"original": run, "response_bold": bold}
    given = probes.formatting(runs, collected).table
    pd.testing.assert_frame_equal(given, probes.formatting(judge, collected).table)
    assert "closed" not in given.attrs["method"]
    closed = {**runs, "response_bold": bold.assign(closed=bold.index < 3)}
    method = probes.formatting(closed, collected).table.attrs["method"]
    assert method.endswith(f"; 3 of {len(bold) + len(run)} verdicts were closed")
    # three pairs go to whichever stands first, one holds in both orders
    compared = pd.DataFrame({"id": list("abcd"), "verdict_ab": "a", "verdict_ba": list("bbba")})
    whole = probes.battery({**runs, "compared": compared}, collected).table
    assert {"rubric", "blindness"} <= set(whole.loc[whole["verdict"] == "not run", "probe"])
    assert whole.set_index("case").loc["first shown wins", "effect"] == pytest.approx(3 / 8)


@pytest.mark.parametrize("probe", [probes.injection, probes.anchoring])
def test_a_score_that_is_asked_for_counts_only_where_there_is_room(collected, probe):
    judge = SimulatedJudge(collected, Planted(injection=1, anchoring=1))
    frame = probe(judge, collected).table
    gold = list(collected["gold"])
    lowest = frame["case"].str.contains("worst|lowest")
    assert frame["n"].tolist() == [240 - gold.count(1 if low else 5) for low in lowest]
    assert (frame["effect"] > 0.5).all()  # towards what is asked for, also for the lowest score


def test_a_real_judge_answers_first_and_a_broken_off_probe_continues(tmp_path, monkeypatch):
    judge = vj.load_judge("tiny")
    items = vj.load_collection("scenes", split="test", limit=20)
    asked = Mock(wraps=judge.engine.answer)
    monkeypatch.setattr(judge.engine, "answer", asked)
    options = {"mode": "score", "out": tmp_path, "progress": False}
    first = probes.commitment(judge, items, **options).table
    questions = {(row["group"], row["instruction"]) for row in items.remove_columns("images")}
    prompts, _, ask = asked.call_args_list[0].args
    assert len(prompts) == len(questions) < 20
    assert (ask.mode, ask.max_new_tokens) == ("feedback", 128)
    assert first["n"].max() + first["missing"].max() == 20
    assert {path.name for path in tmp_path.iterdir()} == {"answered_first", "original"}
    graded = asked.call_count
    again = probes.commitment(judge, items, **options).table
    assert asked.call_count == graded + 1  # its answers alone: none was graded twice
    pd.testing.assert_frame_equal(again, first)


@pytest.mark.parametrize("column", [{"score": 3.0}, {"gold": 3.0}, {"group": "one"}], ids=str)
@pytest.mark.filterwarnings("ignore:.*undefined")
def test_degenerate_runs_give_nan_and_never_a_crash(collected, run, column):
    run = run.assign(**column)
    for result in (probes.blindness(changed(run, run), collected), probes.length(run, collected)):
        frame = result.table
        assert result.reading and "nan" not in result.reading
        assert ((frame["verdict"] == "undefined") == frame["effect"].isna()).all()
        rows = frame[frame["effect"].notna()]
        assert (rows["low"] <= rows["effect"] + 1e-12).all()
        assert rows["p"].dropna().between(0, 1).all()
        assert set(frame.loc[frame["must"] == "move", "verdict"]) <= {"can't say", "undefined"}
