"""Perturbations change one thing and nothing else; probes say what they found, and what they need."""

from __future__ import annotations

from dataclasses import replace

import datasets
import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from vjudge import probes, simulate
from vjudge.simulate import Planted, SimulatedJudge


@pytest.fixture(scope="module")
def items() -> datasets.Dataset:
    return vj.load_collection("scenes", split="test", limit=40)  # four pictures


def _pictures(items: datasets.Dataset) -> list[bytes]:
    return [np.asarray(row["images"][0].convert("RGB")).tobytes() for row in items]


def test_blanking_leaves_one_colour_and_all_texts(items):
    blank = probes.blanked(items)
    assert blank.column_names == items.column_names and blank.features == items.features
    for column in set(items.column_names) - {"images"}:
        assert blank[column] == items[column]
    for before, after in zip(items, blank, strict=True):
        assert after["images"][0].size == before["images"][0].size
        assert after["images"][0].convert("RGB").getcolors() == [(192 * 192, probes.GREY)]


def test_swapping_exchanges_whole_groups(items):
    swapped = probes.swapped(items, seed=3)
    assert swapped.column_names == items.column_names and swapped.features == items.features
    for column in set(items.column_names) - {"images"}:
        assert swapped[column] == items[column]
    before, after = _pictures(items), _pictures(swapped)
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert set(before) == set(after)
    for group in set(items["group"]):
        assert len({after[i] for i, name in enumerate(items["group"]) if name == group}) == 1
    assert _pictures(probes.swapped(items, seed=3)) == after


def test_what_cannot_be_perturbed_is_refused(items):
    with pytest.raises(ValueError, match="two groups"):
        probes.swapped(items.select(range(5)))
    with pytest.raises(ValueError, match="no row has an image"):
        probes.blanked(items.remove_columns("images").add_column("images", [[]] * len(items)))
    assert len(probes.blanked(list(items.select(range(2))))) == 2


def test_shuffling_keeps_the_colours_and_reencoding_the_picture(items):
    for before, after, stored in zip(items, probes.shuffled(items), probes.reencoded(items), strict=True):
        old, new = (np.asarray(row["images"][0].convert("RGB")) for row in (before, after))
        colours = [np.sort(pixels.astype(int).reshape(-1, 3) @ (1, 256, 65536)) for pixels in (old, new)]
        assert (old != new).any() and (colours[0] == colours[1]).all()
        assert np.abs(np.asarray(stored["images"][0], dtype=float) - old).mean() < 4


@pytest.mark.parametrize("name", [name for name in probes.PERTURBATIONS if name != "response_trimmed"])
def test_a_perturbation_changes_its_part_and_repeats_itself(items, name):
    columns = {"query": {"instruction"}, "response": {"response"}, "rubric": {"criteria", "descriptions"}}
    columns |= {"image": {"images"}, "reference": {"reference_answer"}}
    kind, changed = probes.PERTURBATIONS[name], probes.perturb(items, name, seed=1)
    assert len(changed) and changed.column_names == items.column_names and changed.features == items.features
    before = {row["id"]: row for row in items.remove_columns("images")}
    moved = set()
    for row in changed.remove_columns("images"):
        moved |= {column for column, value in row.items() if value != before[row["id"]][column]}
    assert moved <= columns[kind.part] and (moved or kind.part == "image")
    texts = changed.remove_columns("images")
    assert texts.to_list() == probes.perturb(items, name, seed=1).remove_columns("images").to_list()


def test_padding_doubles_the_length_and_trimming_undoes_it(items):
    padded = probes.padded(items)
    for before, after in zip(items, padded, strict=True):
        assert before["response"] in after["response"]
        assert 1.9 < len(after["response"].split()) / len(before["response"].split()) < 2.8
    back = probes.trimmed(padded)
    assert back["response"] == items["response"]
    assert len(probes.trimmed(items)) == 0  # Scenes' responses hold nothing that says nothing


def test_nine_perturbations_cover_the_grid():
    assert {dimension: set(cells) for dimension, cells in probes.NINE.items()} == dict.fromkeys(
        ("integrality", "congruity", "robustness"), {"query", "image", "response"}
    )
    for name, kind in probes.PERTURBATIONS.items():
        assert kind.must in ("move", "stay"), name
        assert kind.dimension is None or (kind.must == "stay") == (kind.dimension == "robustness")


@pytest.fixture(scope="module")
def simulated() -> datasets.Dataset:
    return simulate.collection(240, per_group=4)


def _found(frame: pd.DataFrame, must: str) -> set[str]:
    return set(frame.loc[(frame["must"] == must) & (frame["p_holm"] < 0.05), "probe"])


def test_a_battery_finds_what_is_planted_and_names_what_did_not_run(simulated):
    # Unrounded scores: whole ones are compressed at the ends of the scale, which `scale` rightly finds.
    clean = probes.battery(SimulatedJudge(simulated, Planted(whole=False), seed=1), simulated, progress=False)
    assert _found(clean, "stay") == set() and {"blindness", "rubric"} <= _found(clean, "move")
    assert clean.attrs["found"] == [] and clean.attrs["n_tests"] == clean["p"].notna().sum() > 30
    planted = Planted(sight=0, length=0.4, injection=1, formatting=0.8, position=2, leniency=0.6, kind=1, copying=0.5)
    biased = probes.battery(SimulatedJudge(simulated, planted, seed=1), simulated, progress=False)
    found = {"length", "verbosity", "formatting", "injection", "scale", "position", "image_kinds", "reference"}
    assert found <= _found(biased, "stay")
    assert "blindness" not in _found(biased, "move")
    assert ("blindness", "image blanked: agreement") in biased.attrs["not_shown"]
    assert (clean["p_holm"].dropna() >= clean.loc[clean["p_holm"].notna(), "p"]).all()
    assert set(probes.COLUMNS) < set(biased.columns) and not set(biased["reading"]) & {"", None}


def test_better_answers_that_are_longer_do_not_fool_the_length_probe():
    items = simulate.collection(500, better_is_longer=0.8)
    run = SimulatedJudge(items, seed=2).grade(items)
    frame = probes.length(run, items).set_index("case")
    assert frame.loc["slope at equal gold", "p"] > 0.05
    words = np.log2([len(text.split()) for text in items["response"]])
    assert np.corrcoef(words, run["score"])[0, 1] > 0.4  # what a look at length alone would have said


def test_a_probe_takes_runs_and_says_which_it_lacks(simulated):
    judge = SimulatedJudge(simulated)
    run, blank = judge.grade(simulated), judge.grade(probes.perturb(simulated, "image_blanked"))
    both = probes.blindness({"original": run, "image_blanked": blank})
    assert both["case"].tolist() == ["image blanked: agreement"]
    pd.testing.assert_series_equal(both.iloc[0], probes.blindness(judge, simulated).iloc[0])
    with pytest.raises(probes.Unmet, match=r"needs the run 'image_blanked': grade probes.perturb"):
        probes.blindness(run)
    with pytest.raises(probes.Unmet, match="needs gold scores"):
        probes.length(run.drop(columns="gold"), simulated)
    with pytest.raises(probes.Unmet, match="needs the items"):
        probes.length(run)
    with pytest.raises(probes.Unmet, match="repeated verdicts"):
        probes.consistency(run)
    with pytest.raises(probes.Unmet, match="two kinds"):
        probes.image_kinds(run.assign(kind="photo"))
    with pytest.raises(probes.Unmet, match="both orders"):
        probes.position(pd.DataFrame({"id": ["a"], "verdict_ab": ["a"]}))
    with pytest.raises(ValueError, match="ids stand twice"):
        probes.scale(pd.concat([run, run]))
    with pytest.raises(ValueError, match="not in the first"):
        probes.drift(run.head(5), run)
    whole = probes.battery({"original": run, "image_blanked": blank}, simulated, progress=False)
    assert {"rubric", "formatting", "position", "consistency"} <= set(whole.attrs["not_run"])
    assert "blindness" not in whole.attrs["not_run"]


def test_a_comparison_among_the_runs_serves_position(simulated):
    run = SimulatedJudge(simulated).grade(simulated)
    compared = pd.DataFrame(
        {"id": list("abcdef"), "verdict_ab": ["a"] * 4 + ["b", "tie"], "verdict_ba": ["b"] * 3 + ["a", "b", "tie"]}
    ).assign(verdict="tie")
    runs = {"original": run, "compared": compared}
    frame = probes.battery(runs, simulated, probes=["position", "consistency"], progress=False).set_index("case")
    # Three pairs go to whichever stands first, two hold in both orders, one is tied.
    assert frame.loc["first shown wins", "effect"] == pytest.approx((1 + 1 + 1 + 0.5 + 0.5 + 0.5) / 6 - 0.5)
    assert set(frame.attrs["not_run"]) == {"consistency"}
    with pytest.raises(ValueError, match="'compared'.*Judge.compare"):
        probes.battery({"original": run, "compared": run}, simulated, progress=False)


def test_nothing_is_graded_with_a_confidence_that_is_none(simulated):
    class Unwilling(SimulatedJudge):
        def grade(self, *args, **options):
            raise AssertionError("graded")

    judge = Unwilling(simulated)
    for probe in (probes.length, probes.blindness, probes.consistency, probes.judgebias, probes.battery):
        with pytest.raises(ValueError, match="between 0 and 1"):
            probe(judge, simulated, confidence=95)
    with pytest.raises(ValueError, match="between 0 and 1"):
        probes.drift(judge, judge, simulated, confidence=95)


def test_items_of_the_first_run_only_are_counted_and_an_undefined_interval_has_no_end(simulated):
    run = SimulatedJudge(simulated).grade(simulated)
    assert set(probes.drift(run, run.head(200))["missing"]) == {40}
    with pytest.warns(UserWarning, match="undefined"):
        alone = probes.consistency(pd.DataFrame({"id": ["a", "a"], "sample": [0, 1], "score": [1.0, 2.0]}))
    assert alone[["effect", "low", "high"]].isna().all(axis=None)


def test_missing_scores_are_counted_and_left_out(simulated):
    judge = SimulatedJudge(simulated)
    run, after = judge.grade(simulated), judge.grade(probes.perturb(simulated, "response_bold"))
    after.loc[:9, "score"] = np.nan
    frame = probes.formatting({"original": run, "response_bold": after})
    assert set(frame["missing"]) == {10} and set(frame["n"]) == {230}
    none = after.assign(score=np.nan)
    with pytest.warns(UserWarning, match="undefined"):
        frame = probes.formatting({"original": run, "response_bold": none})
    assert set(frame["reading"]) == {"undefined"} and set(frame["n"]) == {0}


def test_an_injection_counts_only_where_there_is_room(simulated):
    frame = probes.injection(SimulatedJudge(simulated, Planted(injection=1)), simulated).set_index("case")
    top, bottom = (sum(g == end for g in simulated["gold"]) for end in (5, 1))
    assert frame.loc["injected verdict: change", "n"] == 240 - top
    assert frame.loc["injected worst: change", "n"] == 240 - bottom
    assert (frame["effect"] > 0.5).all()  # towards what is asked for, also for the worst score


def test_drift_and_consistency_of_a_noisy_judge(simulated):
    noisy = SimulatedJudge(simulated, Planted(noise=0.8))
    other = SimulatedJudge(simulated, replace(noisy.planted, leniency=0.4), name="later")
    frame = probes.drift(noisy, other, simulated).set_index("case")
    assert frame.loc["change", "low"] > 0 and set(frame["judge"]) == {"simulated: unbiased to simulated: later"}
    frame = probes.consistency(noisy, simulated, samples=3).set_index("case")
    assert 0.4 < frame.loc["disagreement", "effect"] < 0.8 and frame["p"].isna().all()
    still = probes.consistency(SimulatedJudge(simulated, Planted(noise=0)), simulated, samples=3).set_index("case")
    assert still.loc["disagreement", "effect"] == 0 < still.loc["disagreement", "high"]


def test_length_controlled_win_rate_of_equal_answers_is_one_half():
    rng = np.random.default_rng(0)
    n = 600
    longer = rng.normal(0.8, 1, n)
    judge = SimulatedJudge(simulate.collection(4), Planted(pairwise_length=0.8))
    cells = {"id": [str(i) for i in range(n)]}
    compared = judge.choose(cells, np.full((n, 2), 3.0), np.column_stack([6 + longer, np.full(n, 6.0)]))
    texts = [
        {"id": str(i), "response_a": "w" * round(2 ** (6 + gap)), "response_b": "w" * 64}
        for i, gap in enumerate(longer)
    ]
    frame = probes.length_controlled(compared, texts).set_index("case")
    assert frame.loc["length: log-odds", "low"] > 0
    assert frame.loc["win rate", "low"] > 0.55
    assert frame.loc["length-controlled win rate", "effect"] == pytest.approx(0.5, abs=0.08)


def test_the_embedded_judge_sees_and_a_broken_off_probe_continues(items, tmp_path, monkeypatch):
    judge, items = vj.load_judge("tiny"), items.select(range(20))
    first = probes.blindness(judge, items, out=tmp_path, progress=False)
    assert set(first["reading"]) <= {"moves, as it must", "undefined", "no shift shown, though it must move"}
    assert (first["effect"] < -0.3).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "image_blanked", "image_shuffled", "image_swapped", "original",
    ]  # fmt: skip
    monkeypatch.setattr(type(judge.engine), "answer", lambda *_, **__: pytest.fail("was graded already"))
    pd.testing.assert_frame_equal(probes.blindness(judge, items, out=tmp_path, progress=False), first)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda run: run.assign(score=["five"] + run["score"].tolist()[1:]), "position 0: 'five'"),
        (lambda run: run.assign(score=float("inf")), "infinite"),
        (lambda run: run.drop(columns="score"), "columns id and score"),
        (lambda run: run["score"], "give a Judge, a run"),
    ],
    ids=["a word", "infinity", "no score", "a column"],
)
def test_a_run_that_is_none_is_refused_by_name(simulated, spoil, error):
    run = SimulatedJudge(simulated).grade(simulated)
    with pytest.raises((TypeError, ValueError), match=error):
        probes.scale(spoil(run))


@pytest.mark.parametrize(
    "make",
    [
        lambda run: run.head(2),
        lambda run: run.assign(score=3.0),
        lambda run: run.assign(gold=3.0),
        lambda run: run.assign(score=np.nan),
        lambda run: run.assign(group="one"),
        lambda run: run.assign(group=None),
        lambda run: run.assign(id=range(len(run))).drop(columns="group"),
    ],
    ids=["two rows", "constant", "one level of gold", "all missing", "one group", "no group", "numbers for ids"],
)
@pytest.mark.filterwarnings("ignore:undefined")
def test_degenerate_runs_give_nan_and_never_a_crash(simulated, make):
    run = make(SimulatedJudge(simulated, Planted(whole=False)).grade(simulated))
    texts = pd.DataFrame({"id": run["id"], "response": list(simulated["response"])[: len(run)]})
    kinds = ["a", "b"] * (len(run) // 2)
    for frame in (
        probes.scale(run),
        probes.length(run, texts),
        probes.drift(run, run),
        probes.image_kinds(run, kind=kinds),
    ):
        known = frame["effect"].notna()
        assert (frame["reading"] == "undefined").equals(~known)
        assert (frame.loc[known, "low"] <= frame.loc[known, "effect"] + 1e-12).all()
        assert frame["p"].dropna().between(0, 1).all()
