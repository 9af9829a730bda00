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
from vjudge.plots import width
from vjudge.reports import Card
from vjudge.reports.card import CLAIMS
from vjudge.reports.page import to_html

QUICK: dict[str, Any] = dict(n_resamples=200, progress=False)
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
    verdicts = {name: {} for name in plans}
    for one in card.parts:
        verdicts[one.judge][one.name] = one.verdict
    assert "fails" not in verdicts["honest"].values() and verdicts["honest"]["image"] == "holds"
    assert verdicts["pays"]["length"] == "fails"
    (failed,) = [one for one in card.parts if (one.judge, one.name) == ("pays", "length")]
    words = r"doubling the length raises scores at equal gold by \.\d\d \(\["
    assert re.match(words, failed.sentence)
    assert (failed.table["p_holm"] < 0.05).any()
    page = (tmp_path / "report.html").read_text()
    assert page.count('class="verdict fails"') == list(verdicts["pays"].values()).count("fails")
    assert "<th>honest</th><th>pays</th>" in page
    assert {one.name: set(one.data["judge"]) for one in card.figures}["scores"] == set(plans)


def test_a_judge_is_graded_under_all_controls_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    items = vj.load_collection("scenes", split="test", limit=12)
    judge = vj.load_judge("tiny", device="cpu")
    options: dict[str, Any] = dict(out=tmp_path, n_resamples=200, collection="Scenes", mode="score")
    card = vj.report(judge, items, **options)
    said = capsys.readouterr().err
    assert re.search(r"about \d+ verdicts: 12 items once, 12 under \d+ controls", said)
    parts = "agreement image length injection consistency failures calibration cost".split()
    assert [one.name for one in card.parts] == parts
    assert "wording for two responses" in absent(card)[CLAIMS["position"]]
    text = (tmp_path / "report.html").read_text()
    for words in ("one forward pass", "weights", "seed 0", "12 items in 2 groups of Scenes"):
        assert words in text, words
    loaded = re.search(r'(?:src|href)="(?!data:image/png)', text)
    assert not loaded, "nothing is loaded from elsewhere"

    def answered_twice(*_: Any) -> None:
        pytest.fail("a verdict was computed twice")

    monkeypatch.setattr(type(judge.engine), "answer", answered_twice)
    again = vj.report(judge, items, progress=False, **options)
    assert (tmp_path / "report.html").read_text() == text
    pd.testing.assert_frame_equal(again.table, card.table)


def test_people_without_gold_are_the_truth_and_stand_beside_the_judge() -> None:
    run = rated().assign(kind=["chart", "photo"] * 30)
    card = vj.report(run, by="kind", **QUICK)
    assert card.truth == "the mean of 3 raters" and "mean of 3 raters" in card.figures[0].caption
    table = part(card, "agreement")
    mean = [np.mean(cell) for cell in run["human_scores"]]
    r = metrics.correlate(run["score"], mean, groups=run["group"], n_resamples=200).loc["pearson"]
    bounds = ["estimate", "low", "high"]
    assert table.loc["Pearson", bounds].tolist() == pytest.approx(r[bounds])
    people = metrics.rater_table(
        run["human_scores"].tolist(), {"j": run["score"]}, groups=run["group"]
    )
    pearson = people["estimate"].xs("pearson", level="statistic")
    expected = pearson[[("ceiling", "the others"), ("j", "all but one")]].tolist()
    assert table["estimate"].iloc[3:5].tolist() == pytest.approx(expected)
    assert absent(card)[CLAIMS["image"]].startswith("needs the run 'image_blanked'")
    (by,) = [one.data for one in card.figures if one.name == "agreement_by"]
    assert sorted(by["kind"]) == ["chart", "photo"]


def test_judges_of_a_frame_of_verdicts_stand_by_their_own_names(tmp_path: Path) -> None:
    run = rated(90, top=10)
    frame = pd.DataFrame({"item": run["id"], "ours": run["score"], "Theirs": 11 - run["score"]})
    frame["group"] = run["group"]
    frame["human_1"] = frame["human"] = [cell[0] for cell in run["human_scores"]]
    frame.attrs = {"judges": ["ours", "Theirs"], "raters": ["human_1"], "name": "mine"}
    frame.attrs |= {"traps": ["one rater an answer"], "source": "x"}
    card = vj.report(frame, score="ours", out=tmp_path, **QUICK)
    assert card.judges == ["ours", "Theirs"]
    assert (card.collection, card.truth) == ("mine", "one rater's score")
    assert "Human ceiling" in absent(card) and "one rater an answer" in card.remarks
    error = np.abs(frame["ours"] - frame["human"]).mean()
    assert part(card, "calibration").loc["mean error", "estimate"] == pytest.approx(error)
    assert {"ours", "Theirs"} <= set(pd.read_csv(tmp_path / "report.csv")["judge"])
    with pytest.raises(ValueError, match=r"no column 'score'.*'ours', 'Theirs'"):
        vj.report(frame, **QUICK)


def test_runs_by_judge_stand_side_by_side() -> None:
    runs = {"mine": rated(), "theirs": rated().assign(score=3.0)}
    card = vj.report(runs, **QUICK)
    assert card.judges == ["mine", "theirs"]
    assert {one.judge for one in card.parts} == set(runs)
    assert vj.report({"mine": runs["mine"]}, **QUICK).judge == "mine"


def test_controls_rest_on_whole_groups_and_on_the_truth_given() -> None:
    items = vj.data.canonical([{**row, "images": []} for row in collection(60, per_group=6)])
    truth = pd.Series(vj.truth(items)[::-1].to_numpy(), items["id"], name="our lab")
    card = vj.report(SimulatedJudge(items), items, truth=truth, controls=13, **QUICK)
    assert card.truth == "our lab"
    assert part(card, "agreement")["n"].max() == 60
    assert set(part(card, "consistency")["n"]) == {18}
    assert "no row has an image" in absent(card)[CLAIMS["image"]]


def test_a_run_that_failed_says_so() -> None:
    why = ["no verdict: the model's <b>own</b> words"] * 9 + ["too long"] * 3
    card = vj.report(rated(12).assign(score=np.nan, failure=why), **QUICK)
    reasons = absent(card)
    assert reasons[CLAIMS["agreement"]] == "no verdict could be read"
    assert "no verdict could be read" in reasons[CLAIMS["injection"]]
    expected = "12 of 12 verdicts are missing (no verdict: 9; too long: 3)"
    assert card.parts[0].sentence.startswith(expected) and card.parts[0].verdict == "measured"
    assert part(card, "failures").loc["too long", "estimate"] == 0.25
    assert "words" not in to_html(card, CLAIMS)


def test_pairs_have_accuracy_and_position() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice(["a", "b"], 80)
    ab = np.where(rng.random(80) < 0.9, "a", truth)  # leans to the response shown first
    ba = np.where(rng.random(80) < 0.9, "b", truth)
    verdict = np.where(ab == ba, ab, "tie")
    frame = pd.DataFrame(
        {"id": range(80), "judge": "first", "verdict": verdict, "group": range(80)}
    )
    frame = frame.assign(verdict_ab=ab, verdict_ba=ba, preference=truth)
    card = vj.report(frame, **QUICK)
    verdicts = {one.name: one.verdict for one in card.parts}
    assert verdicts == {"agreement": "measured", "position": "fails", "failures": "holds"}
    expected = metrics.pairwise_accuracy(verdict, truth).loc["with_ties", "estimate"]
    assert part(card, "agreement").loc["with ties", "estimate"] == expected
    for claim in ("image", "calibration"):
        assert absent(card)[CLAIMS[claim]] == "a comparison of pairs has no scores"
    votes = pd.DataFrame({"item": np.arange(80) // 2, "theirs": verdict, "preference": truth})
    single = vj.report(votes, score="theirs", **QUICK)  # two people a pair
    assert part(single, "agreement").loc["with ties", "estimate"] == expected
    assert absent(single)[CLAIMS["position"]].startswith("needs both orders")


def test_hostile_names_are_text_and_files_are_the_same_twice(tmp_path: Path) -> None:
    run = rated(40).assign(
        judge=HOSTILE, failure=[HOSTILE] + [None] * 39, kind=["a_b", "c & d"] * 20
    )
    run["score"] = run["score"].where(run.index > 0)
    truth = vj.truth(run).set_axis(run["id"]).rename(HOSTILE)
    card = vj.report(run, truth=truth, by="kind", collection=HOSTILE, out=tmp_path, **QUICK)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page and "\u202e" not in page
    assert "<script" not in card._repr_html_() and 'sandbox=""' in card._repr_html_()
    latex = (tmp_path / "report.tex").read_text(encoding="utf-8")
    assert r"100\%\_of \& \#1 \{judge\} \$x\$" in latex
    names = ["agreement", "agreement_by", "scores", "calibration"]
    assert [one.name for one in card.figures] == names
    assert {one.figure.get_figwidth() for one in card.figures} == {width("acl", "full")}
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    card.write(tmp_path)
    again = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert first == again and {f"{name}.pdf" for name in names} <= set(first)


class Silent:
    """A judge that must not be asked."""

    name = "silent"

    def grade(self, *_: Any, **__: Any) -> None:
        pytest.fail("graded")


RUN = pd.DataFrame({"id": ["a", "b"], "score": [1.0, 2.0], "gold": [1.0, 3.0]})


@pytest.mark.parametrize(
    ("judge", "options", "message"),
    [
        (Silent(), {"items": 5, "by": "kindd"}, "by='kindd' is no column .* which have id, "),
        (Silent(), {}, "needs items to grade"),
        (RUN, {"by": "kind"}, "by='kind' is no column of the items or the run, which have id"),
        (RUN, {"truth": pd.Series([1.0, 2.0])}, "truth has no id of the run, such as 'a'"),
        (RUN, {"venue": "vldb"}, "unknown venue"),
        (RUN.iloc[:0], {}, "no verdict: there is nothing to report"),
        ({"mine": RUN, "theirs": {"score": 1}}, {}, "'theirs': "),
    ],
)
def test_what_can_not_be_used_is_refused_before_anything_is_graded(
    judge: Any, options: dict[str, Any], message: str
) -> None:
    options = dict(options)
    if "items" in options:
        options["items"] = vj.load_collection("scenes", split="test", limit=options["items"])
    with pytest.raises(ValueError, match=message):
        vj.report(judge, **options)
