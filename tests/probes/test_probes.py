"""Probes say what moves and what stays, accuse no honest judge, and name what they need."""

from __future__ import annotations

from dataclasses import replace

import datasets
import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from vjudge import probes
from vjudge.probes.simulated import Planted, SimulatedJudge, Truth, collection
from vjudge.probes.trials import judged

EXACT = Planted(item=0, group=0, noise=0, whole=False)


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


@pytest.mark.parametrize(
    ("planted", "probe", "case", "effect"),
    [
        ({"sight": 0.4}, probes.blindness, "image blanked: agreement", -0.4),
        ({"sight": 0.4}, probes.blindness, "image swapped: agreement", -0.4),
        ({"reading": 1.0}, probes.rubric, "levels reversed: agreement", -2.0),
        ({"reading": 0.5}, probes.rubric, "criterion swapped: agreement", -0.5),
        ({"listening": 0.3}, probes.question, "query removed: agreement", -0.3),
        ({"copying": 0.7}, probes.reference, "reference removed: agreement", -0.7),
        ({"length": 0.1}, probes.length, "slope at equal gold", 0.1),
        ({"formatting": 0.6}, probes.formatting, "response bold: change", 0.6),
        ({"injection": 0.9}, probes.injection, "injected order: change", 0.9),
        ({"injection": 0.9}, probes.injection, "injected worst: change", 0.9),
        ({"leniency": 0.5}, probes.scale, "leniency", 0.5),
        ({"kind": 0.4}, probes.image_kinds, "photo: against the others", -0.4),
    ],
)
def test_a_probe_recovers_what_is_planted_exactly_without_noise(
    collected, runs_of, planted, probe, case, effect
):
    frame = probe(runs_of(replace(EXACT, **planted)), collected).set_index("case")
    assert frame.loc[case, "effect"] == pytest.approx(effect, abs=1e-9)


def test_padding_is_worth_its_doublings_and_position_its_place(collected):
    judge = SimulatedJudge(collected, replace(EXACT, length=0.1, pairwise_length=1000.0))
    effect = probes.verbosity(judge, collected).set_index("case")["effect"]
    long, short = (
        [len(text.split()) for text in rows["response"]]
        for rows in (probes.padded(collected), collected)
    )
    assert effect["response padded: change"] == pytest.approx(
        0.1 * np.log2(np.divide(long, short)).mean()
    )
    assert effect["padded against itself: wins"] == 0.5
    pairs = probes.pairs_of_items(collected)
    first = probes.position(SimulatedJudge(collected, replace(EXACT, position=1000.0)), pairs)
    assert len(pairs) == 60 * 6 and first["effect"].tolist() == [0.5, 1]


def test_of_twelve_honest_judges_none_is_accused(collected, runs_of):
    """By raw p values, 44 of them, each of twelve was accused one to five times; now it is one honest judge in 25."""
    shares, raw = [], 0
    for seed in range(20, 32):
        planted = Planted(whole=seed % 3 > 0, noise=0.5 if seed % 2 else 0.9)
        frame = probes.battery(runs_of(planted, seed), collected, gold="exact")
        assert frame.attrs["against"] == [] and not frame["reading"].str.contains("though").any(), (
            seed
        )
        raw += int((frame.loc[frame["must"] == "stay", "p"] < 0.05).sum())
        must = frame[frame["must"].notna()]
        shares.append((must["verdict"] == must["must"] + "s").mean())
        assert set(must["verdict"]) <= {"moves", "stays", "can't say"} and must["p"].notna().all()
    assert (
        np.mean(shares) > 0.5 and raw >= 8
    )  # most rows are not left open, and raw p values do fall below .05


def test_a_battery_finds_what_is_planted_and_says_how(collected):
    planted = Planted(
        sight=0, length=0.8, injection=1, formatting=0.8, position=2, kind=1, copying=0.5
    )
    frame = probes.battery(SimulatedJudge(collected, planted, seed=1), collected, gold="exact")
    against = {probe for probe, _ in frame.attrs["against"]}
    assert against >= {
        "blindness",
        "length",
        "verbosity",
        "formatting",
        "injection",
        "position",
        "image_kinds",
    }
    assert against >= {"reference"} and "rubric" not in against
    assert frame.attrs["n_tests"] == frame["p"].notna().sum() > 25 and frame.attrs["not_run"] == {}
    assert (
        frame.set_index("case").loc["image blanked: agreement", "reading"]
        == "stays, though it must move"
    )
    assert list(frame.columns) == list(probes.COLUMNS) and not set(frame["reading"]) & {"", None}
    assert (frame["must"].isna() == (frame["reading"] == "described")).all()


def test_a_nearly_blind_judge_is_not_passed_and_one_that_agrees_with_nobody_has_nothing_to_lose(
    runs_of,
):
    for sight, reading in ((0.1, "stays, though it must move"), (1.0, "moves, as it must")):
        frame = probes.blindness(runs_of(Planted(sight=sight)))
        lost = frame[frame["must"] == "move"]
        assert set(lost["reading"]) == {reading}
        assert (lost["margin"] > 0.2).all()  # a quarter of a slope of about .9
    deaf = probes.blindness(
        {name: run.assign(score=3.0) for name, run in runs_of(Planted()).items()}
    )
    assert set(deaf.loc[deaf["must"] == "move", "verdict"]) == {"can't say"}


def test_people_who_rated_stand_for_gold_where_there_is_none(collected, runs_of):
    people = dict(
        zip(
            collected["id"],
            [[score, None, min(5, score + 1)] for score in collected["gold"]],
            strict=True,
        )
    )
    runs = {name: run.drop(columns="gold") for name, run in runs_of(Planted(sight=0.1)).items()}
    rated = {
        name: run.assign(human_scores=[people[id] for id in run["id"]])
        for name, run in runs.items()
    }
    frame = probes.blindness(rated).set_index("case")
    assert frame.loc["image blanked: agreement", ["must", "verdict"]].tolist() == ["move", "stays"]
    assert set(probes.blindness(runs)["must"]) == {None, "stay"}  # nobody knows what must be lost


def test_noise_in_gold_makes_no_length_bias():
    """Better answers are longer and gold is one person's score: at equal gold, an honest judge pays for length."""
    items = collection(1_000, better_is_longer=0.5, median_words=16)
    run = SimulatedJudge(items, seed=2).grade(items)
    rng = np.random.default_rng(0)
    people = np.clip(
        np.rint(run["gold"].to_numpy()[:, None] + rng.normal(0, 1.05, (1_000, 2))), 1, 5
    )
    assert np.corrcoef(people.T)[0, 1] == pytest.approx(0.66, abs=0.05)
    one = probes.length(run.assign(gold=people[:, 0]), items).iloc[0]
    assert one["low"] > 0.1  # what was called a bias
    assert one["must"] is None and np.isnan(one["p"]) and one["reading"] == "described"
    rated = run.assign(gold=people.mean(axis=1), human_scores=people.tolist())
    two = probes.length(rated, items, gold="rated").iloc[0]
    assert two["verdict"] == "stays" and two["low"] < 0 < two["high"]
    biased = (
        SimulatedJudge(items, Planted(length=0.4), seed=2)
        .grade(items)
        .assign(human_scores=people.tolist())
    )
    assert probes.length(biased, items, gold="rated").iloc[0]["verdict"] == "moves"


def test_compression_is_described_and_agreement_is_told_by_kind_of_picture(collected):
    frame = probes.scale(SimulatedJudge(collected, seed=3).grade(collected)).set_index("case")
    assert (
        frame.loc["compression", "high"] < 0
    )  # pulled in at the ends of the scale, as any whole score is
    assert (
        frame["must"].isna().all()
        and frame["p"].isna().all()
        and set(frame["reading"]) == {"described"}
    )
    run = SimulatedJudge(collected, Planted(kind=0.8), seed=1).grade(collected)
    frame = probes.image_kinds(run, collected, gold="exact").set_index("case")
    assert frame.loc["photo: against the others", "verdict"] == "moves"
    for kind in ("photo", "text-rich"):
        own = run[[name == kind for name in collected["kind"]]]
        assert frame.loc[f"{kind}: agreement", "effect"] == pytest.approx(
            np.polyfit(own["gold"], own["score"], 1)[0]
        )


LACKS = {
    "needs the run 'image_blanked': grade probes.perturb": lambda run, items: probes.blindness(run),
    "needs gold scores": lambda run, items: probes.length(run.drop(columns="gold"), items),
    "needs the items": lambda run, items: probes.length(run),
    "both orders": lambda run, items: probes.position(
        pd.DataFrame({"id": ["a"], "verdict_ab": ["a"]})
    ),
}
FAULTS = {
    "belong to the Trials": lambda run, items: probes.length(
        probes.Trials(run, items), gold="exact"
    ),
    "no unit is called pounds": lambda run, items: probes.formatting(run, margins={"pounds": 1}),
    "ids stand twice": lambda run, items: probes.scale(pd.concat([run, run])),
    "not in the first": lambda run, items: probes.drift(run.head(5), run),
    "position 0: 'five'": lambda run, items: probes.scale(
        run.assign(score=["five", *run["score"][1:]])
    ),
}


@pytest.mark.parametrize("message", [*LACKS, *FAULTS])
def test_a_probe_says_what_it_lacks_or_what_is_wrong(collected, run, message):
    with pytest.raises(
        probes.Unmet if message in LACKS else (TypeError, ValueError), match=message
    ):
        (LACKS | FAULTS)[message](run, collected)


def test_runs_that_are_given_serve_the_probes(collected, run):
    judge, blank = SimulatedJudge(collected), probes.perturb(collected, "image_blanked")
    runs = {"original": run, "image_blanked": judge.grade(blank)}
    both = probes.blindness(runs)
    assert both["case"].tolist() == ["image blanked: agreement"]
    pd.testing.assert_series_equal(both.iloc[0], probes.blindness(judge, collected).iloc[0])
    verdicts = {"verdict_ab": ["a"] * 4 + ["b", "tie"], "verdict_ba": ["b"] * 3 + ["a", "b", "tie"]}
    whole = probes.battery(
        {**runs, "compared": pd.DataFrame({"id": list("abcdef"), **verdicts})}, collected
    )
    assert {"rubric", "formatting"} <= set(
        whole.attrs["not_run"]
    ) and "position" not in whole.attrs["not_run"]
    # Three pairs go to whichever stands first, two hold in both orders, one is tied.
    assert whole.set_index("case").loc["first shown wins", "effect"] == pytest.approx(4.5 / 6 - 0.5)


def test_an_injection_counts_only_where_there_is_room(collected):
    frame = probes.injection(SimulatedJudge(collected, Planted(injection=1)), collected).set_index(
        "case"
    )
    top, bottom = (sum(g == end for g in collected["gold"]) for end in (5, 1))
    assert frame.loc["injected verdict: change", "n"] == 240 - top
    assert frame.loc["injected worst: change", "n"] == 240 - bottom
    assert (frame["effect"] > 0.5).all()  # towards what is asked for, also for the worst score


def test_drift_and_consistency_of_a_noisy_judge(collected):
    noisy = SimulatedJudge(collected, Planted(noise=0.8))
    other = SimulatedJudge(collected, replace(noisy.planted, leniency=0.4), name="later")
    frame = probes.drift(noisy.grade(collected), other.grade(collected)).set_index("case")
    assert frame.loc["change", "low"] > 0 and set(frame["judge"]) == {
        "simulated: unbiased to simulated: later"
    }
    assert set(
        probes.drift(noisy.grade(collected), noisy.grade(collected).head(200))["missing"]
    ) == {40}
    frame = probes.consistency(noisy, collected, samples=3).set_index("case")
    assert 0.4 < frame.loc["disagreement", "effect"] < 0.8 and frame["p"].isna().all()
    still = probes.consistency(
        SimulatedJudge(collected, Planted(noise=0)), collected, samples=3
    ).set_index("case")
    assert still.loc["disagreement", "effect"] == 0 < still.loc["disagreement", "high"]


def test_the_embedded_judge_sees_and_a_broken_off_probe_continues(tmp_path, monkeypatch):
    judge, items = vj.load_judge("tiny"), vj.load_collection("scenes", split="test", limit=20)
    first = probes.blindness(judge, items, out=tmp_path, progress=False)
    taken = first[first["must"] == "move"]
    assert set(taken["verdict"]) <= {"moves", "can't say"}  # two pictures are few
    assert (taken["effect"] < -0.3).all()
    kept = {"image_blanked", "image_reencoded", "image_shuffled", "image_swapped", "original"}
    assert {path.name for path in tmp_path.iterdir()} == kept
    monkeypatch.setattr(
        type(judge.engine), "answer", lambda *_, **__: pytest.fail("was graded already")
    )
    pd.testing.assert_frame_equal(
        probes.blindness(judge, items, out=tmp_path, progress=False), first
    )


@pytest.mark.parametrize(
    "column", [{"score": 3.0}, {"gold": 3.0}, {"score": np.nan}, {"group": "one"}], ids=str
)
@pytest.mark.filterwarnings("ignore:.*undefined")
def test_degenerate_runs_give_nan_and_never_a_crash(collected, run, column):
    run, kinds = run.assign(**column), {"kind": ["a", "b"] * (len(run) // 2)}
    tables = probes.scale(run), probes.length(run, collected), probes.drift(run, run.head(2))
    for frame in (*tables, probes.image_kinds(run.assign(**kinds))):
        rows = frame[frame["effect"].notna()]
        assert ((frame["reading"] == "undefined") == frame["effect"].isna()).all()
        assert (rows["low"] <= rows["effect"] + 1e-12).all() and rows["p"].dropna().between(
            0, 1
        ).all()


def test_what_is_too_small_to_count_is_never_a_failure():
    """However sure it is: the figure draws its marker inside the grey zone."""
    rows = pd.DataFrame(
        {"must": "stay", "effect": [0.1, 0.3], "low": [0.05, 0.25], "high": [0.25, 0.35]}
    )
    rows = rows.assign(p=1e-9, margin=0.2, unit="score points", moved=0.5)
    assert judged(rows)["reading"].tolist() == ["can't say", "moves, though it must stay"]
