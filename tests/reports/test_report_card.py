"""A report card says what metrics and probes say, red only by a corrected test, and what it could not measure."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from vjudge import metrics
from vjudge.probes.simulated import Planted, SimulatedJudge, collection
from vjudge.reports import Card
from vjudge.reports import card as module

QUICK: dict[str, Any] = dict(n_resamples=200, progress=False)


def rated(n: int = 60, *, top: int = 5, seed: int = 0) -> pd.DataFrame:
    """A run whose items three simulated people rated, without gold."""
    rng = np.random.default_rng(seed)
    level = rng.integers(1, top + 1, n)
    people = np.clip(np.rint(level[:, None] + rng.normal(0, 0.8, (n, 3))), 1, top)
    score = np.clip(np.rint(level + rng.normal(0, 1.2, n)), 1, top)
    frame = pd.DataFrame({"id": [f"i{k}" for k in range(n)], "judge": "simulated: some", "score": score})
    return frame.assign(human_scores=people.tolist(), group=[f"g{k // 3}" for k in range(n)])


def part(card: Card, name: str) -> pd.DataFrame:
    return next(part.table for part in card.parts if part.name == name).set_index("measure")


@pytest.fixture(scope="module")
def biased() -> dict[str, Card]:
    items = collection(160, per_group=2)
    plans = {"honest": Planted(), "pays for length": Planted(length=0.8)}
    options = dict(gold="exact", samples=2, collection="simulated items", **QUICK)
    judges = {name: SimulatedJudge(items, plan, seed=3, name=name) for name, plan in plans.items()}
    return {name: vj.report(judge, items, **options) for name, judge in judges.items()}


def test_a_planted_length_bias_is_red_and_an_honest_judge_has_no_red(biased: dict[str, Card]) -> None:
    states = {name: {part.name: part.state for part in card.parts} for name, card in biased.items()}
    assert "against" not in states["honest"].values()
    assert states["pays for length"]["length"] == "against" and states["honest"]["image"] == "sound"
    red, honest = (card._repr_html_() for card in (biased["pays for length"], biased["honest"]))
    assert "though it must" in red and "though it must" not in honest
    assert "class=&quot;against&quot;&gt;0 of" not in honest


def test_red_is_the_verdict_of_a_test_corrected_over_the_whole_card(biased: dict[str, Card]) -> None:
    table = biased["pays for length"].table
    red = table[table["reading"].str.contains("though")]
    assert len(red) and (red["p_holm"] < 0.05).all()
    assert set(table.loc[table["state"] == "described", "p_holm"].dropna()) == set()


def test_tiny_is_graded_under_all_controls_at_a_cost_said_beforehand_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    items, judge = vj.load_collection("scenes", split="test", limit=12), vj.load_judge("tiny", device="cpu")
    options: dict[str, Any] = dict(out=tmp_path, samples=2, gold="exact", n_resamples=200, collection="Scenes")
    options["mode"] = "score"
    card = vj.report(judge, items, **options)
    assert "about 180 verdicts: 12 items once, 12 under 14 controls" in capsys.readouterr().err
    names = [part.name for part in card.parts]
    assert names == ["agreement", "image", "length", "injection", "consistency", "failures", "calibration", "cost"]
    assert dict(card.absent)["human ceiling"] == "nobody rated the items twice: no ratings of people"
    assert (
        "no wording" not in dict(card.absent)["position"]
        and "wording for two responses" in dict(card.absent)["position"]
    )
    text = (tmp_path / "report.html").read_text()
    for words in ("one forward pass", "weights", "prometheus-vision", "seed 0", "12 items in 2 groups of Scenes"):
        assert words in text, words
    assert "http" not in text.replace("http://www.w3.org", "")  # nothing is loaded from elsewhere
    assert (tmp_path / "report.pdf").read_bytes()[:5] == b"%PDF-"
    monkeypatch.setattr(type(judge.engine), "answer", lambda *_: pytest.fail("a verdict was computed twice"))
    again = vj.report(judge, items, progress=False, **options)
    assert (tmp_path / "report.html").read_text() == text
    pd.testing.assert_frame_equal(again.table, card.table)


def test_people_without_gold_are_the_truth_and_stand_beside_the_judge() -> None:
    run = rated().assign(kind=["chart", "photo"] * 30)
    card = vj.report(run, by="kind", **QUICK)
    assert list(part(card, "agreement by")["n"]) == [30, 30]
    assert card.truth == "mean of three raters" and "mean of three raters" in card.pictures[0].caption
    table, mean = part(card, "agreement"), [np.mean(cell) for cell in run["human_scores"]]
    r = metrics.correlate(run["score"], mean, groups=run["group"], n_resamples=200).loc["pearson"]
    assert table.loc["Pearson r", ["estimate", "low", "high"]].tolist() == pytest.approx(r[["estimate", "low", "high"]])
    people = metrics.rater_table(
        run["human_scores"].tolist(), {"j": run["score"]}, groups=run["group"], n_resamples=200
    )
    like = people["estimate"].xs("pearson", level="statistic")
    assert table["estimate"]["ceiling: a rater and the others"] == pytest.approx(like["ceiling", "the others"])
    assert table["estimate"]["the judge and the same means"] == pytest.approx(like["j", "all but one"])
    assert card.parts[0].sentence.endswith("the intervals overlap.")
    assert dict(card.absent)["image"].startswith("needs the run 'image_blanked'")


def test_a_column_of_a_frame_is_a_judge_and_the_frame_s_others_stand_beside_it_in_the_paper(tmp_path: Path) -> None:
    run = rated(90, top=10)
    frame = pd.DataFrame({"item": run["id"], "ours": run["score"], "theirs": 11 - run["score"], "group": run["group"]})
    frame["human_1"] = frame["human"] = [cell[0] for cell in run["human_scores"]]
    frame.attrs = {"judges": ["ours", "theirs"], "raters": ["human_1"], "traps": ["one rater an answer"],
                   "citation": "Chen et al. 2024, MLLM-as-a-Judge, arXiv 2402.04788", "name": "mine"}  # fmt: skip
    card = vj.report(frame, score="ours", out=tmp_path, **QUICK)
    assert (card.judge, card.collection, card.truth) == ("ours", "mine", "one rater's score")
    assert "nobody rated the items twice: one rater an item" in dict(card.absent).values()
    assert "one rater an answer" in card.remarks
    assert part(card, "calibration").loc["mean absolute error", "estimate"] == pytest.approx(
        np.abs(frame["ours"] - frame["human"]).mean()
    )
    table = (tmp_path / "paper/tables/agreement.tex").read_text()
    assert table.count(r"\textbf") == 3 and "theirs" in table
    assert "chen24" in (tmp_path / "paper/methods.tex").read_text()
    with pytest.raises(ValueError, match=r"no column 'score'.*'ours', 'theirs'"):
        vj.report(frame, **QUICK)


def test_the_truth_may_be_a_column_or_values_by_id() -> None:
    run = rated().assign(expert=lambda frame: frame["score"])
    card = vj.report(run, truth="expert", **QUICK)
    assert card.truth == "expert" and part(card, "agreement").loc["Pearson r", "estimate"] == pytest.approx(1)
    series = pd.Series(run["score"].to_numpy(), run["id"], name="lab")[::-1]
    same = vj.report(run.iloc[:30], truth=series, truth_name="our lab", **QUICK)
    assert same.truth == "our lab" and part(same, "agreement").loc["Pearson r", "estimate"] == pytest.approx(1)
    with pytest.raises(ValueError, match="'oracle' is no column of the run or of the items"):
        vj.report(run, truth="oracle", **QUICK)
    with pytest.raises(ValueError, match="3 values for 60 verdicts"):
        vj.report(run, truth=[1, 2, 3], **QUICK)


def test_items_without_pictures_have_no_blind_control_and_the_card_says_why() -> None:
    items = collection(24, per_group=2, pictures=False)
    card = vj.report(SimulatedJudge(items), items, samples=2, **QUICK)
    reasons = [why for what, why in card.absent if what.startswith("image")]
    assert reasons and all("no row has an image" in why for why in reasons)
    assert "image" not in [part.name for part in card.parts] and "length" in [part.name for part in card.parts]


def test_controls_rest_on_whole_groups() -> None:
    items = collection(60, per_group=6)
    card = vj.report(SimulatedJudge(items), items, samples=2, controls=13, **QUICK)
    assert part(card, "agreement")["n"].max() == 60 and set(part(card, "consistency")["n"]) == {18}
    none = vj.report(SimulatedJudge(items), items, controls=0, **QUICK)
    assert dict(none.absent)["injection"] == "controls=0: no control was asked for"


def test_a_run_of_nothing_is_refused_and_one_that_failed_says_so(tmp_path: Path) -> None:
    run = rated(12)
    with pytest.raises(ValueError, match="no verdict: there is nothing to report"):
        vj.report(run.iloc[:0], **QUICK)
    failed = run.assign(score=np.nan, failure=["no verdict: the model's <b>own</b> words"] * 9 + ["too long"] * 3)
    card = vj.report(failed, out=tmp_path, **QUICK)
    assert dict(card.absent)["agreement"] == "no verdict could be read"
    assert card.parts[0].sentence.startswith("12 of 12 have no verdict (no verdict: 9; too long: 3)")
    assert part(card, "failures").loc["too long", "estimate"] == 0.25
    assert "own" not in (tmp_path / "report.html").read_text().replace("own card", "").split("How it was made")[0]


def test_pairs_have_accuracy_and_position() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice(["a", "b"], 80)
    ab = np.where(rng.random(80) < 0.9, "a", truth)  # leans to the response shown first
    ba = np.where(rng.random(80) < 0.9, "b", truth)
    verdict = np.where(ab == ba, ab, "tie")
    frame = pd.DataFrame({"id": range(80), "judge": "first", "verdict": verdict, "verdict_ab": ab, "verdict_ba": ba})
    card = vj.report(frame.assign(preference=truth, group=range(80)), **QUICK)
    states = {part.name: part.state for part in card.parts}
    assert states == {"agreement": "described", "position": "against", "failures": "described"}
    expected = metrics.pairwise_accuracy(verdict, truth).loc["with_ties", "estimate"]
    assert part(card, "agreement").loc["same choice of three", "estimate"] == expected
    assert dict(card.absent)["image"] == "a comparison of pairs has no scores"
    votes = pd.DataFrame({"item": range(80), "theirs": verdict, "preference": truth})
    single = vj.report(votes, score="theirs", **QUICK)
    assert part(single, "agreement").loc["same choice of three", "estimate"] == expected
    assert dict(single.absent)["position"] == "each pair was shown in one order"


def test_the_example_of_the_docstring_runs() -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
