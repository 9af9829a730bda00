"""A card says what metrics and probes say, and "fails" only by a corrected test; judges stand side by side."""

import re

import numpy as np
import pandas as pd
from numpy import clip, nan
from pandas import DataFrame
from pytest import approx, mark, raises

import vjudge as vj
from validity.simulated import Planted, SimulatedJudge, collection
from vjudge import metrics
from vjudge.analysis.card import CLAIMS

QUICK = {"n_resamples": 200}
HOSTILE = "<script>alert(1)</script> 100%_of & #1 {judge} $x$ ^~\\ \u202e ρ"


def rated(n=60):
    """A run whose items three simulated people rated, without gold."""
    rng = np.random.default_rng(0)
    level = rng.integers(1, 6, n)
    people = clip(np.rint(level[:, None] + rng.normal(0, 0.8, (n, 3))), 1, 5)
    score = clip(np.rint(level + rng.normal(0, 1.2, n)), 1, 5)
    frame = DataFrame({"id": np.arange(n), "judge": "simulated", "score": score})
    frame = frame.assign(human_scores=people.tolist(), group=frame["id"] // 3)
    return frame.assign(lowest=1.0, highest=5.0, closed=False, failure=None, sees_image=True)


def claim(card, name, judge=None):
    rows = card.claims[card.claims["claim"] == name]
    return (rows if judge is None else rows[rows["judge"] == judge]).iloc[0]


def reason(card, name):
    return card.absent.set_index("claim")["reason"][name]


def test_only_a_corrected_test_fails_a_judge_and_judges_stand_side_by_side(tmp_path):
    items = collection(160, per_group=2)
    plans = {"honest": Planted(), "pays": Planted(length=0.8)}
    judges = {name: SimulatedJudge(items, plan, seed=3, name=name) for name, plan in plans.items()}
    card = vj.report(judges, items, gold="exact", out=tmp_path, **QUICK)
    assert claim(card, "image", "honest")["verdict"] == "holds"
    failed = card.claims[card.claims["verdict"] == "fails"]
    assert set(failed["judge"]) == {"pays"}
    sentence = claim(card, "length", "pays")["sentence"]
    assert re.match(r"padding raises scores by \.\d\d \(change \.\d\d \[", sentence)
    page = (tmp_path / "report.html").read_text()
    assert page.count('class="verdict fails"') == len(failed)
    assert "<th>honest</th><th>pays</th>" in page
    assert set(card.results["confusion"].table["judge"]) == set(plans)


def test_a_judge_is_graded_under_all_controls_and_goes_on_where_it_was(tmp_path, monkeypatch):
    items = vj.load_collection("scenes", split="test", limit=6)
    judge = vj.load_judge("tiny", device="cpu")
    options = QUICK | dict(out=tmp_path, about="Scenes", mode="score")
    card = vj.report(judge, items, **options)
    assert set(card.claims["claim"]) == set(CLAIMS) - {"position"}
    assert "wording for two responses" in reason(card, "position")
    text = (tmp_path / "report.html").read_text()
    for words in ("checkpoint", "mode score", "Scenes, compared with the true score"):
        assert words in text, words
    assert not re.search(r'(?:src|href)="(?!data:image/png)', text)  # nothing is loaded
    monkeypatch.setattr(type(judge.engine), "answer", None)  # no verdict is computed twice
    again = vj.report(judge, items, **options)
    assert (tmp_path / "report.html").read_text() == text
    pd.testing.assert_frame_equal(again.claims, card.claims)


def test_people_without_gold_are_the_truth_and_stand_beside_the_judge():
    run = rated()
    card = vj.report({"mine": run}, **QUICK)
    assert card.judges == ["mine"] and "the mean of 3 people" in card.results["confusion"].caption
    mean = [np.mean(cell) for cell in run["human_scores"]]
    r = metrics.correlate(run["score"], mean, groups=run["group"], **QUICK).loc["pearson"]
    found = card.results["agreement"].table.query("statistic == 'pearson'").iloc[0]
    assert found["low"] == approx(r["low"])
    kinds = set(card.results["raters"].table["kind"])
    assert {"person", "judge"} <= kinds
    assert "image_blanked" in reason(card, "image")


def test_controls_rest_on_as_many_items_as_are_asked_for():
    items = vj.data.canonical([{**row, "images": []} for row in collection(60, per_group=6)])
    card = vj.report(SimulatedJudge(items), items, controls=13, **QUICK)
    assert card.truth == "the true score"
    assert set(card.results["agreement"].table["n"]) == {60}
    rows = card.results["controls"].table
    assert set(rows.loc[rows["probe"] == "verbosity", "n"]) <= {13}
    assert "no row has an image" in reason(card, "image")


def test_a_run_that_failed_says_so():
    why = ["no verdict: the model's <b>own</b> words"] * 9 + ["too long"] * 3
    card = vj.report(rated(12).assign(score=nan, failure=why), **QUICK)
    expected = "12 of 12 verdicts are missing (no verdict: 9; too long: 3)"
    failures = claim(card, "failures")
    assert failures["sentence"].startswith(expected) and failures["verdict"] == "measured"
    assert "words" not in card.html()


def test_closed_verdicts_are_no_readable_ones():
    card = vj.report({"mine": rated(12).assign(closed=[True] * 5 + [False] * 7)}, **QUICK)
    said = claim(card, "failures")
    assert said["sentence"] == "5 of 12 verdicts were closed, and no verdict is missing"
    assert said["verdict"] == "measured"
    assert "5 of 12 verdicts were closed" in card.results["confusion"].caption


def test_scores_from_elsewhere_may_be_missing_without_a_reason():
    run = rated().drop(columns=["failure", "closed"])
    run.loc[:4, "score"] = nan
    sentence = claim(vj.report(run, **QUICK), "failures")["sentence"]
    assert sentence.startswith("5 of 60 verdicts are missing (no reason is given)")


def test_pairs_have_accuracy_and_position():
    truth = np.resize(["a", "b"], 80)
    leans = np.arange(80) % 10 > 0  # to the response shown first
    frame = DataFrame({"id": range(80), "judge": "first", "preference": truth})
    frame["verdict_ab"] = np.where(leans, "a", truth)
    frame["verdict_ba"] = np.where(leans, "b", truth)
    frame["verdict"] = verdict = np.where(leans, "tie", truth)
    card = vj.report(frame, **QUICK)
    verdicts = dict(zip(card.claims["claim"], card.claims["verdict"], strict=True))
    assert verdicts == {"agreement": "measured", "position": "fails", "failures": "holds"}
    expected = metrics.pairwise_accuracy(verdict, truth).loc["with_ties", "estimate"]
    rows = card.results["agreement"].table.set_index("statistic")
    assert rows.loc["with_ties", "estimate"] == expected
    assert reason(card, "calibration") == "a comparison of pairs has no scores"


def test_a_table_of_scores_or_of_choices_becomes_a_page(tmp_path):
    card = vj.scores(rated(30)).report(out=tmp_path)
    assert (tmp_path / "report.html").is_file() and "no control was run" in reason(card, "image")
    pairs = DataFrame({"judge": ["a", "b"] * 20, "people": ["a", "b"] * 20})
    assert vj.choices(pairs, ["judge"], "people").report().truth == "people's preferences"


def test_hostile_names_are_text_on_the_page(tmp_path):
    run = rated(40).assign(judge=HOSTILE, failure=HOSTILE)
    run.loc[0, "score"] = nan
    card = vj.report({HOSTILE: run}, about=HOSTILE, out=tmp_path / "card", **QUICK)
    page = (tmp_path / "card/report.html").read_text()
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page and "\u202e" not in page
    assert "<script" not in card._repr_html_() and len(repr(card)) < 300
    assert [path.name for path in tmp_path.iterdir()] == ["card"]
    assert all((tmp_path / f"card/{name}.pdf").is_file() for name in ("agreement", "confusion"))


RUN = DataFrame({"id": ["a", "b"], "score": [1.0, 2.0], "gold": [1.0, 3.0]})


@mark.parametrize(
    "judge, message",
    [
        (SimulatedJudge(collection(4)), "a judge with items to grade"),
        (RUN.iloc[:0], "the run has no rows; give a run with verdicts"),
        ({"mine": RUN.drop(columns="score")}, "'mine': a run has .* not .'id', 'gold'.; a wide"),
        ({"mine": RUN, "theirs": 1}, "'theirs': "),
    ],
)
def test_what_can_not_be_used_is_refused(judge, message):
    with raises(ValueError, match=message):
        vj.report(judge)
