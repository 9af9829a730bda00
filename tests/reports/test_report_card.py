"""A report card says what metrics and probes say, red only by a corrected test; its page and its paper are whole."""

from __future__ import annotations

import re
import shutil
import subprocess
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
from vjudge.reports.pages import to_html

QUICK: dict[str, Any] = dict(n_resamples=200, progress=False)
HOSTILE = "<script>alert(1)</script> 100%_of & #1 {judge} $x$ ^~\\ \u202e评 ρ"


def rated(n: int = 60, top: int = 5) -> pd.DataFrame:
    """A run whose items three simulated people rated, without gold."""
    rng = np.random.default_rng(0)
    level = rng.integers(1, top + 1, n)
    people = np.clip(np.rint(level[:, None] + rng.normal(0, 0.8, (n, 3))), 1, top)
    score = np.clip(np.rint(level + rng.normal(0, 1.2, n)), 1, top)
    frame = pd.DataFrame(
        {"id": [f"i{k}" for k in range(n)], "judge": "simulated: some", "score": score}
    )
    return frame.assign(human_scores=people.tolist(), group=[f"g{k // 3}" for k in range(n)])


def part(card: Card, name: str) -> pd.DataFrame:
    return next(part.table for part in card.parts if part.name == name).set_index("measure")


def test_red_is_the_verdict_of_a_corrected_test_and_an_honest_judge_has_none() -> None:
    items = collection(160, per_group=2)
    plans = {"honest": Planted(), "pays": Planted(length=0.8)}
    judges = {name: SimulatedJudge(items, plan, seed=3, name=name) for name, plan in plans.items()}
    cards = {name: vj.report(judge, items, gold="exact", **QUICK) for name, judge in judges.items()}
    states = {name: {part.name: part.state for part in card.parts} for name, card in cards.items()}
    assert "against" not in states["honest"].values() and states["honest"]["image"] == "sound"
    assert states["pays"]["length"] == "against"
    table = cards["pays"].table
    assert (table.loc[table["reading"].str.contains("though"), "p_holm"] < 0.05).all()
    assert "though it must" in to_html(cards["pays"]) and "though it must" not in to_html(
        cards["honest"]
    )


def test_a_judge_is_graded_under_all_controls_after_their_number_is_said_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    items, judge = (
        vj.load_collection("scenes", split="test", limit=12),
        vj.load_judge("tiny", device="cpu"),
    )
    options: dict[str, Any] = dict(out=tmp_path, n_resamples=200, collection="Scenes", mode="score")
    card = vj.report(judge, items, **options)
    assert "about 204 verdicts: 12 items once, 12 under 16 controls" in capsys.readouterr().err
    parts = "agreement image length injection consistency failures calibration cost".split()
    assert [part.name for part in card.parts] == parts
    assert "wording for two responses" in dict(card.absent)["position"]
    text = (tmp_path / "report.html").read_text()
    for words in (
        "one forward pass",
        "weights",
        "prometheus-vision",
        "seed 0",
        "12 items in 2 groups of Scenes",
    ):
        assert words in text, words
    assert not re.search(r'(?:src|href)="(?!data:image/png)', text), (
        "nothing is loaded from elsewhere"
    )
    assert len(re.findall(rb"/Type /Page\b", (tmp_path / "report.pdf").read_bytes())) == 1
    monkeypatch.setattr(
        type(judge.engine), "answer", lambda *_: pytest.fail("a verdict was computed twice")
    )
    again = vj.report(judge, items, progress=False, **options)
    assert (tmp_path / "report.html").read_text() == text
    pd.testing.assert_frame_equal(again.table, card.table)


def test_people_without_gold_are_the_truth_and_stand_beside_the_judge() -> None:
    run = rated().assign(kind=["chart", "photo"] * 30)
    card = vj.report(run, by="kind", **QUICK)
    assert sorted(part(card, "agreement").index[-2:]) == ["chart", "photo"]
    assert card.truth == "the mean of 3 raters" and "mean of 3 raters" in card.figures[0].caption
    table, mean = part(card, "agreement"), [np.mean(cell) for cell in run["human_scores"]]
    r = metrics.correlate(run["score"], mean, groups=run["group"], n_resamples=200).loc["pearson"]
    assert table.loc["Pearson r", ["estimate", "low", "high"]].tolist() == pytest.approx(
        r[["estimate", "low", "high"]]
    )
    people = metrics.rater_table(
        run["human_scores"].tolist(), {"j": run["score"]}, groups=run["group"]
    )
    expected = people["estimate"].xs("pearson", level="statistic")[
        [("ceiling", "the others"), ("j", "all but one")]
    ]
    assert table["estimate"].iloc[3:5].tolist() == pytest.approx(expected.tolist())
    assert dict(card.absent)["image"].startswith("needs the run 'image_blanked'")


def test_a_column_of_a_frame_is_a_judge_by_its_own_name_and_the_best_of_all_is_bold(
    tmp_path: Path,
) -> None:
    run = rated(90, top=10)
    frame = pd.DataFrame(
        {
            "item": run["id"],
            "ours": run["score"],
            "Theirs": 11 - run["score"],
            "group": run["group"],
        }
    )
    frame["human_1"] = frame["human"] = [cell[0] for cell in run["human_scores"]]
    frame.attrs = {"judges": ["ours", "Theirs"], "raters": ["human_1"], "traps": ["one rater an answer"], "source": "x",
                   "citation": "Chen et al. 2024, arXiv 2402.04788; {my} 100% own", "name": "mine"}  # fmt: skip
    card = vj.report(frame, score="ours", out=tmp_path, **QUICK)
    assert (card.judge, card.collection, card.truth) == ("ours", "mine", "one rater's score")
    assert "human ceiling" in dict(card.absent) and "one rater an answer" in card.remarks
    error = np.abs(frame["ours"] - frame["human"]).mean()
    assert part(card, "calibration").loc["mean absolute error", "estimate"] == pytest.approx(error)
    table = (tmp_path / "paper/tables/agreement.tex").read_text()
    assert table.count(r"\textbf") == 3 and "Theirs" in table
    assert r"\cite{chen2024,source" in (tmp_path / "paper/methods.tex").read_text()
    assert r"note = {(my) 100\% own}" in (tmp_path / "paper/references.bib").read_text()
    with pytest.raises(ValueError, match=r"no column 'score'.*'ours', 'Theirs'"):
        vj.report(frame, **QUICK)


def test_controls_rest_on_whole_groups_and_on_the_truth_given_and_without_pictures_none_is_blind() -> (
    None
):
    items = vj.data.canonical([{**row, "images": []} for row in collection(60, per_group=6)])
    truth = pd.Series(vj.truth(items)[::-1].to_numpy(), items["id"], name="our lab")
    card = vj.report(SimulatedJudge(items), items, truth=truth, controls=13, **QUICK)
    graded = card.trials.runs["original"].set_index("id")["gold"]
    assert card.truth == "our lab" and graded.equals(
        truth[graded.index].rename("gold").rename_axis("id")
    )
    assert part(card, "agreement")["n"].max() == 60 and set(part(card, "consistency")["n"]) == {18}
    assert "no row has an image" in dict(card.absent)["image"]


def test_a_run_of_nothing_is_refused_and_one_that_failed_says_so() -> None:
    run = rated(12)
    with pytest.raises(ValueError, match="no verdict: there is nothing to report"):
        vj.report(run.iloc[:0], **QUICK)
    failed = run.assign(
        score=np.nan, failure=["no verdict: the model's <b>own</b> words"] * 9 + ["too long"] * 3
    )
    card = vj.report(failed, **QUICK)
    assert (
        dict(card.absent)["agreement"]
        == dict(card.absent)["injection"]
        == "no verdict could be read"
    )
    assert card.parts[0].sentence.startswith(
        "12 of 12 have no verdict (no verdict: 9; too long: 3)"
    )
    assert part(card, "failures").loc["too long", "estimate"] == 0.25 and "words" not in to_html(
        card
    )


def test_pairs_have_accuracy_and_position() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice(["a", "b"], 80)
    ab = np.where(rng.random(80) < 0.9, "a", truth)  # leans to the response shown first
    ba = np.where(rng.random(80) < 0.9, "b", truth)
    verdict = np.where(ab == ba, ab, "tie")
    frame = pd.DataFrame(
        {"id": range(80), "judge": "first", "verdict": verdict, "verdict_ab": ab, "verdict_ba": ba}
    )
    card = vj.report(frame.assign(preference=truth, group=range(80)), **QUICK)
    states = {part.name: part.state for part in card.parts}
    assert states == {"agreement": "described", "position": "against", "failures": "described"}
    expected = metrics.pairwise_accuracy(verdict, truth).loc["with_ties", "estimate"]
    assert part(card, "agreement").loc["same choice of three", "estimate"] == expected
    assert (
        dict(card.absent)["image"]
        == dict(card.absent)["calibration"]
        == "a comparison of pairs has no scores"
    )
    by = vj.report(
        frame.assign(preference=truth, group=range(80), kind="chart"), by="kind", **QUICK
    )
    assert dict(by.absent)["agreement by kind"] == "a comparison of pairs has no scores"
    votes = pd.DataFrame(
        {"item": np.arange(80) // 2, "theirs": verdict, "preference": truth}
    )  # two people a pair
    single = vj.report(votes, score="theirs", **QUICK)
    assert part(single, "agreement").loc["same choice of three", "estimate"] == expected
    assert dict(single.absent)["position"].startswith("needs both orders")


@pytest.mark.parametrize("venue", ["acl"])
def test_hostile_names_are_text_on_one_page_and_in_a_paper_that_compiles(
    venue: str, tmp_path: Path
) -> None:
    run = rated(40).assign(
        judge=HOSTILE, failure=[HOSTILE] + [None] * 39, kind=["a_b", "c & d"] * 20
    )
    run["score"] = run["score"].where(run.index > 0)
    truth = vj.truth(run).set_axis(run["id"]).rename(HOSTILE)
    card = vj.report(
        run, truth=truth, by="kind", collection=HOSTILE, venue=venue, out=tmp_path, **QUICK
    )
    page, paper = (tmp_path / "report.html").read_text(encoding="utf-8"), tmp_path / "paper"
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page and "\u202e" not in page
    assert "<script" not in card._repr_html_() and 'sandbox=""' in card._repr_html_()
    assert len(re.findall(rb"/Type /Page\b", (tmp_path / "report.pdf").read_bytes())) == 1
    main, methods = (
        (paper / name).read_text(encoding="utf-8") for name in ("main.tex", "methods.tex")
    )
    assert (
        f"textwidth={width(venue, 'full'):.2f}in" in main
        and r"100\%\_of \& \#1 \{judge\} \$x\$" in main
    )
    assert [one.name for one in card.figures] == [
        "agreement",
        "scores",
        "agreement_by",
        "calibration",
    ]
    assert {one.figure.get_figwidth() for one in card.figures} == {width(venue, "half")}
    assert all((paper / f"{name}.tex").is_file() for name in re.findall(r"\\input\{(.+?)\}", main))
    keys = {key for text in re.findall(r"\\cite\{(.+?)\}", methods) for key in text.split(",")}
    assert keys == set(re.findall(r"@\w+\{(\w+),", (paper / "references.bib").read_text()))
    first = [path.read_bytes() for path in tmp_path.glob("report.*")]
    card.write(tmp_path)
    assert first == [path.read_bytes() for path in tmp_path.glob("report.*")], "the same bytes"
    if shutil.which("pdflatex") is not None:
        latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
        for command in (latex, ["bibtex", "main"], latex, latex):
            done = subprocess.run(command, cwd=paper, capture_output=True, timeout=120)
            assert done.returncode == 0, done.stdout[-2000:].decode("utf-8", "replace")
        assert "undefined" not in (paper / "main.log").read_text(errors="replace").lower()


def test_what_a_card_can_not_use_is_refused_before_anything_is_graded():
    class Silent:
        """A judge that must not be asked."""

    items = vj.load_collection("scenes", split="test", limit=5)
    with pytest.raises(
        ValueError, match="by='kindd' is no column of the items or the run, which have id, "
    ):
        vj.report(Silent(), items, by="kindd")
    with pytest.raises(ValueError, match="needs items to grade"):
        vj.report(Silent())
    run = pd.DataFrame({"id": ["a", "b"], "score": [1.0, 2.0], "gold": [1.0, 3.0]})
    with pytest.raises(
        ValueError, match="by='kind' is no column of the items or the run, which have id"
    ):
        vj.report(run, by="kind")
    with pytest.raises(ValueError, match="truth has no id of the run, such as 'a'"):
        vj.report(run, truth=pd.Series([1.0, 2.0]))


def test_runs_by_judge_stand_side_by_side():
    """`report({judge: run})`: the first is what the card is about."""
    rng = np.random.default_rng(0)
    gold = rng.integers(1, 6, 60)
    runs = {}
    for name, noise in (("mine", 0.5), ("theirs", 1.5)):
        score = np.clip(np.round(gold + rng.normal(0, noise, 60)), 1, 5)
        runs[name] = pd.DataFrame(
            {"id": [f"i{n}" for n in range(60)], "score": score, "gold": gold}
        )
    card = vj.report(runs, n_resamples=100)
    assert card.judge == "mine"
    (drawn,) = [figure.data for figure in card.figures if figure.name == "agreement"]
    assert set(drawn["judge"]) == {"mine", "theirs"}
    assert vj.report({"mine": runs["mine"]}, n_resamples=100).judge == "mine"
    with pytest.raises(ValueError, match="'theirs' is no run with the columns id and 'score'"):
        vj.report(runs | {"theirs": {"score": 1}})
