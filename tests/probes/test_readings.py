"""What probes return: margins on any scale, several judges and panels, and readings that are true of any data."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vjudge as vj
from validity.simulated import Planted, SimulatedJudge, collection
from vjudge import probes
from vjudge.probes.readings import _summary

rng = np.random.default_rng(0)


def runs_of(before, after, name="injected_verdict", gold=None, **columns):
    """A run and what became of it under a perturbation, each item its own group."""
    run = pd.DataFrame({"id": np.arange(len(before)), "score": before, **columns})
    run["gold"] = before if gold is None else gold
    return {"original": run, name: run.assign(score=after)}


def scale(lowest, highest):
    return {"lowest": float(lowest), "highest": float(highest)}


def flipped(n=400, share=0.15):
    """Scores of 0 and 1, of whose zeros a share becomes one."""
    before = np.arange(n) % 2
    zeros = np.flatnonzero(before == 0)
    after = before.copy()
    after[zeros[: round(share * len(zeros))]] = 1
    return before, after


def test_margins_are_a_share_of_the_scales_width():
    """An injection that turns 15 % of "wrong" into "right" moves; half a point of 100 does not."""
    row = probes.injection(runs_of(*flipped(), **scale(0, 1))).table.iloc[0]
    assert row["effect"] == pytest.approx(0.15) and row["margin"] == pytest.approx(0.05)
    assert row["verdict"] == "moves" and not row["passes"]
    gold = rng.integers(0, 100, 300).astype(float)
    shifted = gold + 0.5 + rng.normal(0, 0.5, 300)
    result = probes.formatting(runs_of(gold, shifted, "response_bold", gold, **scale(0, 100)))
    change = result.table.iloc[0]
    assert change["margin"] == 5 and change["verdict"] == "stays"
    assert (
        "5% of the scale's width of 100" in result.reading and "stays, as it must" in result.reading
    )


def test_verdicts_are_those_of_the_same_scores_on_a_scale_of_25_times_the_width():
    items = collection(150)
    judge = SimulatedJudge(items, Planted(length=0.3, formatting=0.5), seed=2)
    names = ("response_padded", "response_bold", "levels_reversed", "shown_lowest")
    runs = {name: judge.grade(probes.perturb(items, name)) for name in names}
    runs["original"] = judge.grade(items)
    columns = ["score", "gold", "lowest", "highest"]
    wide = {name: run.assign(**(25 * run[columns])) for name, run in runs.items()}
    chosen = ["verbosity", "formatting", "rubric", "anchoring", "length"]
    narrow, wide = (
        probes.battery(one, items, probes=chosen, gold="exact").table for one in (runs, wide)
    )
    assert set(narrow["verdict"]) >= {"moves", "stays"}
    for column in ("verdict", "p_holm", "deviation"):
        pd.testing.assert_series_equal(wide[column], narrow[column])


def test_value_heads_have_margins_of_their_spread_and_say_so():
    gold = rng.integers(1, 6, 300)
    value = 7 * (gold + rng.normal(0, 0.5, 300)) - 20
    nothing = {"lowest": np.nan, "highest": np.nan}
    result = probes.formatting(runs_of(value, value + 0.1, "response_bold", gold, **nothing))
    change = result.table.iloc[0]
    assert change["margin"] == pytest.approx(0.2 * value.std(ddof=1)) and change["passes"]
    assert any("no scale is known" in text for text in result.caveats)
    assert np.isnan(change["deviation"])


def test_scores_beyond_the_scale_are_counted():
    runs = runs_of(*flipped(), **scale(0, 1))
    runs["injected_verdict"].loc[:1, "score"] = 2
    result = probes.injection(runs)
    assert "no bias deviation and conformity, since 1 items have scores beyond" in result.caveats[0]


def test_caveats_do_not_depend_on_which_probe_comes_first():
    run = pd.DataFrame({"id": list("abcd"), "score": [1, 2, 4, 5], "gold": [1, 2, 4, 5]})
    compared = pd.DataFrame({"id": ["p", "q"], "verdict_ab": ["a", "a"], "verdict_ba": ["b", "a"]})
    runs = {"original": run, "response_bold": run.assign(score=3), "compared": compared}
    names = ["position", "formatting"]
    orders = [set(probes.battery(runs, probes=order).caveats) for order in (names, names[::-1])]
    assert orders[0] == orders[1] and any("independent groups: 4" in text for text in orders[0])
    shared = probes.ProbeRuns({"original": run})
    assert shared.caveats[0].startswith("judge:")
    assert shared.renamed("other").caveats[0].startswith("other:")


def test_scales_are_columns_and_survive_a_file(tmp_path):
    runs = runs_of(*flipped(), **scale(0, 1))
    read = {}
    for name, run in runs.items():
        run.to_csv(tmp_path / name, index=False)
        read[name] = pd.read_csv(tmp_path / name)
    before = probes.injection(runs).table
    pd.testing.assert_frame_equal(probes.injection(read).table, before)
    for run in read.values():
        run.attrs = {"scale": (0, 100)}  # nothing reads it
    pd.testing.assert_frame_equal(probes.injection(read).table, before)


def teams(seed, n=200):
    """Two systems, each rated by two people of its own, equally strict; the second is better by one.

    An honest judge, and longer responses of the better system.
    """
    draw = np.random.default_rng(seed)
    system = np.repeat([0, 1], n // 2)
    quality = 3 + (system - 0.5) + draw.normal(0, 0.6, n)
    people = quality[:, None] + draw.normal(0, 0.7, (n, 4))
    people[system == 0, 2:] = np.nan
    people[system == 1, :2] = np.nan
    words = np.rint(2 ** (5 + system + draw.normal(0, 0.5, n))).astype(int)
    columns = {"model": [f"s{number}" for number in system], "human_scores": people.tolist()}
    run = pd.DataFrame({"id": np.arange(n), "score": quality + draw.normal(0, 0.4, n), **columns})
    return run.assign(response=["w " * count for count in words], **scale(1, 5))


def test_teams_that_rated_one_system_each_accuse_no_honest_judge():
    """Centred columns took the systems' difference out of people's means: 1.00 of judges accused."""
    tables = [probes.length(teams(seed)).table.iloc[0] for seed in range(40)]
    assert sum(row["p"] < 0.05 for row in tables) <= 5  # 2 expected; 6 or more has p .014
    assert abs(np.mean([row["effect"] for row in tables])) < 0.05
    assert {row["must"] for row in tables} == {"stay"}  # two raters and no gold: rated
    assert any("share no item" in text for text in probes.length(teams(0)).caveats)


def likes(seed, own=0.0, systems=8, n=480):
    """A judge that likes each of several systems differently, and its own by `own`."""
    draw = np.random.default_rng(seed)
    system = draw.integers(0, systems, n)
    liking = draw.normal(0, 0.4, systems)
    liking[0] = own
    gold = draw.integers(1, 6, n)
    score = gold + liking[system] + draw.normal(0, 0.6, n)
    run = pd.DataFrame({"id": np.arange(n), "score": score, "gold": gold, **scale(1, 5)})
    return run.assign(model=[f"s{number}" for number in system])


def test_self_preference_is_tested_against_the_spread_of_other_systems():
    """Liking each system differently is no self-preference: .14 to .45 were accused."""
    options = {"own": "s0", "gold": "exact"}
    p = [probes.self_preference(likes(seed), **options).table.iloc[-1]["p"] for seed in range(40)]
    assert np.mean(np.array(p) < 0.05) <= 0.1  # 2 expected of 40; 5 or more has p .048
    result = probes.self_preference(likes(0, own=2.5), **options)
    table = result.table
    assert (
        table.iloc[-1]["verdict"] == "moves" and "though it must stay" in table.iloc[-1]["reading"]
    )
    assert (table["note"] == "a placebo").sum() == 7
    # The test with the spread of seven others is of a t with 6 degrees of freedom
    row = table.iloc[-1]
    error = (row["high"] - row["low"]) / 2 / stats.t.ppf(0.975, 6)
    size = error * (stats.t.ppf(0.975, 6) + stats.t.ppf(0.8, 6))
    assert f"a liking of {size:.2f} points with a power of .8" in row["note"]
    few = probes.self_preference(likes(0, own=2.5, systems=3), **options).table.iloc[-1]
    assert few["verdict"] == "described" and "2 other systems" in few["note"]


def test_several_judges_stand_in_one_table_and_one_figure():
    items = collection(60)
    truth = SimulatedJudge(items).truth
    judges = {
        "honest": SimulatedJudge(truth),
        "pays": SimulatedJudge(truth, Planted(length=0.5)).grade(items),
        "coarse": probes.ProbeRuns(SimulatedJudge(truth, seed=3), items, gold="exact"),
    }
    result = probes.length(judges, items, gold="exact")
    assert result.table["judge"].tolist() == list(judges)
    assert all(f"{name}: " in result.reading for name in judges)
    assert len(result.plot().axes) == 3 and set(result._data["judge"]) == set(judges)
    one_frame = pd.concat([judges["pays"], judges["honest"].grade(items).assign(judge="honest")])
    both = probes.length(one_frame, items, gold="exact").table
    assert both["judge"].tolist() == ["simulated: unbiased", "honest"]
    whole = probes.battery({name: judges[name] for name in ("honest", "pays")}, items)
    idle = whole.table[whole.table["verdict"] == "not run"]
    assert set(idle["judge"]) == {"honest", "pays"} and "Not run: " in whole.reading
    assert whole.plot(column="full").get_figheight() <= 5
    padded = probes.verbosity({"honest": judges["honest"], "pays": judges["pays"]}, items)
    assert padded.table["verdict"].tolist()[-1] == "not run" and padded.computed


def test_a_panel_is_probed_as_one_judge():
    judges = [vj.load_judge(name, device="cpu") for name in ("tiny", "tiny-base")]
    panel = vj.panel(judges)
    items = vj.load_collection("scenes", split="test", limit=30)
    options = {"mode": "score", "progress": False}
    table = probes.battery(
        panel, items, probes=["verbosity", "position", "commitment"], **options
    ).table
    assert set(table.loc[table["probe"] == "verbosity", "verdict"]) <= {
        "can't say",
        "stays",
        "moves",
    }
    notes = table.set_index("probe")["note"]
    assert "no wording" in notes["position"] or "wording for two responses" in notes["position"]
    assert "writes answers" in notes["commitment"]
    compare = [vj.load_judge("tiny", device="cpu", template="prometheus-2-relative") for _ in "ab"]
    compare[1].name = "second"
    result = probes.position(vj.panel(compare, combine="majority"), items, **options)
    assert set(result.table["n"]) == {30}


def test_position_of_verdicts_that_contradict_themselves_is_drawn_as_bars():
    run = pd.DataFrame({"id": list("abcd"), "verdict_ab": list("aaab"), "verdict_ba": list("bbaa")})
    result = probes.position({"mine": run, "theirs": run[:3]})
    assert len(result._data) == 8
    shares = result._data.loc["mine", "estimate"]
    assert shares.to_dict() == {"first": 0.5, "same": 0.25, "tie": 0, "second": 0.25}


READINGS = [  # scores after a change of five-level scores before, and what must stand in the reading
    ("moved", lambda score, noise: score + 1 + 0.1 * noise, "moves, though it must stay"),
    ("kept", lambda score, noise: score + 0.05 * noise, "stays, as it must"),
    ("noisy", lambda score, noise: score + 4 * noise, "can't say whether"),
    ("the same", lambda score, noise: score, "changes scores by .00 (change .00 ["),
    ("unread", lambda score, noise: np.nan * score, "undefined"),
]


@pytest.mark.parametrize("case", READINGS, ids=[case[0] for case in READINGS])
def test_readings_have_direction_size_interval_and_whether_it_decides(case):
    _, change, expected = case
    gold = np.arange(200) % 5 + 1.0
    noise = np.random.default_rng(1).normal(size=200)
    result = probes.formatting(runs_of(gold, change(gold, noise), "response_bold", **scale(1, 5)))
    assert expected in result.reading and "nan" not in result.reading and result.caption


def test_a_judge_that_reads_nothing_or_one_item_says_so():
    run = pd.DataFrame({"id": [1, 2], "score": np.nan, "gold": [1, 2], "response": ["w", "w w"]})
    assert "none of the 2 verdicts" in repr(probes.length(run))
    assert "none of the 2 verdicts" in repr(probes.battery({"original": run, "response_bold": run}))
    one = runs_of(np.array([3.0]), np.array([4.0]), "response_bold", **scale(1, 5))
    result = probes.formatting(one)
    assert "undefined, of 1 items" in result.reading and result._bundles()


def test_pairs_have_no_single_responses_to_probe():
    pairs = probes.pairs_of_items(vj.load_collection("scenes", split="test", limit=10))
    judge = vj.load_judge("tiny", device="cpu")
    for probe in (probes.length, probes.verbosity, probes.battery):
        assert "each row is a pair" in probe(judge, pairs, progress=False).reason


def test_simulated_judges_show_what_was_planted_and_the_study_its_power(tmp_path):
    table = probes.length_power([0, 0.3], samples=20).table
    assert table["significant"].iloc[0] <= 0.2 and table["significant"].iloc[1] == 1
    assert (table["correlation"] > 0.3).all()  # also without a bias
    lean = probes.position({f"{lean}": probes.simulated_position(lean) for lean in (0, 1)}).table
    assert lean["effect"].iloc[[0, 2]].tolist() == pytest.approx([0, 0.175], abs=0.03)
    study = {"label": "l", "design": "d", "unit": "score per doubling", "simulations": 9}
    rows = pd.DataFrame({"null": [True, False], "planted": [0, 0.2], "rejected": [0.05, 0.95]})
    rows.assign(**study, rejected_low=0.0, rejected_high=1.0).to_csv(tmp_path / "study.csv")
    result = probes.power(tmp_path / "study.csv", "l")
    assert "from 0.2 score per doubling on it is found" in result.reading and result.plot()
    assert "no file none.csv" in repr(probes.power(tmp_path / "none.csv"))
    assert "use one of l" in repr(probes.power(tmp_path / "study.csv", "m"))


def test_a_judge_beside_itself_on_coarser_pictures_and_fewer_items():
    items = vj.load_collection("scenes", split="test", limit=30)
    judge = vj.load_judge("tiny", device="cpu")
    options = {"gold": "exact", "progress": False, "limit": 20, "mode": "score"}
    judges = probes.at_resolutions(judge, items, (8,), **options)
    result = probes.length(judges)
    assert result.table["judge"].tolist() == ["tiny", "tiny, 1/8 resolution"]
    assert set(result.table["n"]) == {20} and len(result.plot(column="full").axes) == 2
    pictures = [np.asarray(row["images"][0]) for row in (items[0], probes.coarse(items, 8)[0])]
    assert pictures[0].shape == pictures[1].shape and (pictures[0] != pictures[1]).any()
    assert probes.coarse(items, 1)[0] == vj.data.canonical(items)[0]
    without = [{**row, "images": []} for row in vj.data.rows_of(items)]
    assert list(probes.at_resolutions(judge, without)) == ["tiny"]
    with pytest.raises(ValueError, match="factor=0: give a whole number from 1 on"):
        probes.at_resolutions(judge, items, (0,))
    with pytest.raises(ValueError, match="perturbation 'bold' is unknown"):
        probes.example(items, "bold")


def test_an_example_shows_what_is_changed_and_the_bias_table_what_was_measured():
    items = collection(40)
    shown = probes.example(items, "injected_verdict").table
    assert shown["column"].tolist() == ["response"] and "[RESULT]" in shown["after"][0]
    assert "pictures alone" in repr(probes.example(items, "image_blanked"))
    battery = probes.battery(SimulatedJudge(items), items, probes=["verbosity", "injection"])
    table = probes.bias_table(battery).table
    assert len(table) == 1 + len(probes.PHRASES) and table["conformity"].between(0, 1).all()
    bare = probes.length(SimulatedJudge(items), items)
    assert not probes.bias_table(bare).computed


def test_a_probe_that_ran_in_part_is_named_by_the_cases_that_did_not():
    rows = pd.DataFrame({"probe": ["blindness"] * 5 + ["position"], "case": list("abcdef")})
    rows["verdict"] = ["not run", *["can't say"] * 4, "not run"]
    rows["must"], rows["passes"] = "move", pd.NA
    assert _summary(rows).endswith(". Not run: a, position; the column note says why")
