"""A report card says what metrics and probes say, and "fails" only by a corrected test; judges stand side by side."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from validity.simulated import Planted, SimulatedJudge, collection
from vjudge import metrics
from vjudge.reports import Card
from vjudge.reports.card import CLAIMS

QUICK: dict[str, Any] = {"n_resamples": 200}
HOSTILE = "<script>alert(1)</script> 100%_of & #1 {judge} $x$ ^~\\ \u202e ρ"


def rated(n: int = 60, top: int = 5) -> pd.DataFrame:
    """A run whose items three simulated people rated, without gold."""
    rng = np.random.default_rng(0)
    level = rng.integers(1, top + 1, n)
    people = np.clip(np.rint(level[:, None] + rng.normal(0, 0.8, (n, 3))), 1, top)
    score = np.clip(np.rint(level + rng.normal(0, 1.2, n)), 1, top)
    frame = pd.DataFrame({"id": [f"i{k}" for k in range(n)], "judge": "simulated", "score": score})
    return frame.assign(human_scores=people.tolist(), group=[f"g{k // 3}" for k in range(n)])


def part(card: Card, name: str) -> pd.DataFrame:
    return next(part.table for part in card.parts if part.name == name).set_index("measure")


def absent(card: Card) -> dict[str, str]:
    return {what: why for _, what, why in card.absent}


def test_only_a_corrected_test_fails_a_judge_and_judges_stand_side_by_side(tmp_path: Path) -> None:
    items = collection(160, per_group=2)
    plans = {"honest": Planted(), "pays": Planted(length=0.8)}
    judges = {name: SimulatedJudge(items, plan, seed=3, name=name) for name, plan in plans.items()}
    card = vj.report(judges, items, gold="exact", out=tmp_path, **QUICK)
    parts = {(one.judge, one.name): one for one in card.parts}
    verdicts = {key: one.verdict for key, one in parts.items()}
    assert verdicts["honest", "image"] == "holds"
    assert {judge for (judge, _), verdict in verdicts.items() if verdict == "fails"} == {"pays"}
    failed = parts["pays", "length"]
    assert failed.verdict == "fails"
    words = r"padding raises scores by \.\d\d \(\["
    assert re.match(words, failed.sentence) and failed.table["p_holm"].min() < 0.05
    page = (tmp_path / "report.html").read_text()
    assert page.count('class="verdict fails"') == list(verdicts.values()).count("fails")
    assert "<th>honest</th><th>pays</th>" in page
    assert set(card.figures["confusion"][2]["judge"]) == set(plans)


def test_a_judge_is_graded_under_all_controls_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = vj.load_collection("scenes", split="test", limit=6)
    judge = vj.load_judge("tiny", device="cpu")
    options: dict[str, Any] = dict(out=tmp_path, n_resamples=200, collection="Scenes", mode="score")
    card = vj.report(judge, items, **options)
    assert {one.name for one in card.parts} == set(CLAIMS) - {"position"}
    assert "wording for two responses" in absent(card)[CLAIMS["position"]]
    text = (tmp_path / "report.html").read_text()
    for words in ("checkpoint", "mode score", "seed 0", "Scenes, held against gold"):
        assert words in text, words
    assert not re.search(r'(?:src|href)="(?!data:image/png)', text), "nothing is loaded"

    def answered_twice(*_: Any) -> None:
        pytest.fail("a verdict was computed twice")

    monkeypatch.setattr(type(judge.engine), "answer", answered_twice)
    again = vj.report(judge, items, **options)
    assert (tmp_path / "report.html").read_text() == text
    pd.testing.assert_frame_equal(again.table, card.table)


def test_people_without_gold_are_the_truth_and_stand_beside_the_judge() -> None:
    run = rated()
    card = vj.report({"mine": run}, **QUICK)
    assert card.judges == ["mine"] and "mean of people" in card.figures["confusion"][1]
    table = part(card, "agreement")
    mean = [np.mean(cell) for cell in run["human_scores"]]
    r = metrics.correlate(run["score"], mean, groups=run["group"], n_resamples=200).loc["pearson"]
    assert table.loc["Pearson", "low"] == pytest.approx(r["low"])
    ceiling = metrics.human_ceiling(list(run["human_scores"])).loc["pearson", "estimate"]
    assert table.loc["a rater and the others", "estimate"] == pytest.approx(ceiling)
    assert absent(card)[CLAIMS["image"]].startswith("needs the run 'image_blanked'")


def test_controls_rest_on_as_many_items_as_are_asked_for() -> None:
    items = vj.data.canonical([{**row, "images": []} for row in collection(60, per_group=6)])
    card = vj.report(SimulatedJudge(items), items, controls=13, **QUICK)
    assert card.truth == "gold" and set(part(card, "agreement")["n"]) == {60}
    assert set(part(card, "length")["n"]) == {13}
    assert "no row has an image" in absent(card)[CLAIMS["image"]]


def test_a_run_that_failed_says_so() -> None:
    why = ["no verdict: the model's <b>own</b> words"] * 9 + ["too long"] * 3
    card = vj.report(rated(12).assign(score=np.nan, failure=why), **QUICK)
    assert "no score was read" in absent(card)[CLAIMS["injection"]]
    expected = "12 of 12 verdicts are missing (no verdict: 9; too long: 3)"
    assert card.parts[0].sentence.startswith(expected) and card.parts[0].verdict == "measured"
    assert "words" not in card.html()


def test_pairs_have_accuracy_and_position() -> None:
    truth = np.resize(["a", "b"], 80)
    leans = np.arange(80) % 10 > 0  # to the response shown first
    frame = pd.DataFrame({"id": range(80), "judge": "first", "preference": truth})
    frame["verdict_ab"] = np.where(leans, "a", truth)
    frame["verdict_ba"] = np.where(leans, "b", truth)
    verdict = frame["verdict_ab"].where(~leans, "tie")
    frame["verdict"] = verdict
    card = vj.report(frame, **QUICK)
    verdicts = {one.name: one.verdict for one in card.parts}
    assert verdicts == {"agreement": "measured", "position": "fails", "failures": "holds"}
    expected = metrics.pairwise_accuracy(verdict, truth).loc["with_ties", "estimate"]
    assert part(card, "agreement").loc["with ties", "estimate"] == expected
    assert "needs the run 'original'" in absent(card)[CLAIMS["image"]]
    assert absent(card)[CLAIMS["calibration"]] == "a comparison of pairs has no scores"


def test_hostile_names_are_text_on_the_page(tmp_path: Path) -> None:
    run = rated(40).assign(judge=HOSTILE, failure=[HOSTILE] + [None] * 39)
    run["score"] = run["score"].where(run.index > 0)
    card = vj.report({HOSTILE: run}, collection=HOSTILE, out=tmp_path, **QUICK)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page and "\u202e" not in page
    assert "<script" not in card._repr_html_()
    assert list(card.figures) == ["agreement", "confusion", "calibration"]
    assert {f"{name}.pdf" for name in card.figures} <= {path.name for path in tmp_path.iterdir()}


RUN = pd.DataFrame({"id": ["a", "b"], "score": [1.0, 2.0], "gold": [1.0, 3.0]})


@pytest.mark.parametrize(
    ("judge", "venue", "message"),
    [
        (SimulatedJudge(collection(4)), "acl", "a judge with items to grade"),
        (RUN, "vldb", "unknown venue"),
        (RUN.iloc[:0], "acl", "give a run with verdicts"),
        ({"mine": RUN, "theirs": 1}, "acl", "'theirs': "),
    ],
)
def test_what_can_not_be_used_is_refused(judge: Any, venue: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vj.report(judge, venue=venue)
