"""Each benchmark's own number from a run on its real rows, and an absolute judge on pairs; values by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rapidfuzz.distance import Levenshtein

import vjudge as vj
from chatmodels import make
from samples import ROWS, judge_of
from vjudge import data
from vjudge.benchmarks import BENCHMARKS, rank_by_score
from vjudge.data import CollectionError, load_collection
from vjudge.records import Rubric

pytestmark = [
    pytest.mark.skipif(not ROWS.is_dir(), reason="the published rows are not at hand"),
    pytest.mark.filterwarnings("ignore:.* rows have no interval"),
]


def unpictured(items: Any) -> list[dict[str, Any]]:
    """Rows whose pictures are not at hand."""
    return [{**row, "images": []} for row in data.rows_of(items)]


def labels() -> list[dict[str, Any]]:
    """VL-RewardBench's 1,250 real labels on texts of ours."""
    lines = (ROWS / "vl_rewardbench_labels.jsonl").read_text("utf-8").splitlines()
    texts = {"query": "What?", "response": ["One.", "Two."], "image": None}
    return [{**json.loads(line), **texts} for line in lines]


def test_an_order_that_is_kept_would_give_vl_rewardbench_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """1,245 of its 1,250 rows prefer the first response: a judge that always says so is no good one."""
    run = judge_of("The better response: [1].").compare(
        data.canonical(labels()), orders="one", progress=False
    )
    assert set(run["verdict"]) == {"tie"} and "verdict_ba" in run, "both orders were asked"
    assert (
        "both orders were asked: 1245 of 1250 known preferences are for the first"
        in capsys.readouterr().err
    )
    table = vj.benchmark(run)["estimate"]
    assert (
        table["overall", "accuracy", "wrong"] == 0 and table["overall", "accuracy", "random"] == 0.5
    )


def test_vl_rewardbench_counts_unread_answers_in_three_ways() -> None:
    """One answer in seven is unread, one in three wrong; by hand, from the real ids' categories."""
    pairs = data.canonical(labels())
    place = np.arange(len(pairs))
    verdict = np.where(place % 7 == 0, None, np.where(place % 3 == 0, "b", "a"))
    category = np.array(pairs["category"])
    cells = {name: pairs[name] for name in ("id", "preference", "group")}
    run = pd.DataFrame({**cells, "verdict": verdict, "category": category})
    preference = np.array([("a", "b")[label["human_ranking"][0]] for label in labels()])
    read, right = run["verdict"].notna().to_numpy(), (run["verdict"] == preference).to_numpy()
    table = vj.benchmark(run, name="vl-rewardbench")
    shares = {name: right[(category == name) & read].mean() for name in set(category)}
    official = table[table["official"]]["estimate"]
    assert official.index[:2].tolist() == [
        ("overall", "accuracy", "left out"),
        ("macro", "accuracy", "left out"),
    ]
    assert official["overall", "accuracy", "left out"] == pytest.approx(right[read].mean())
    assert official["macro", "accuracy", "left out"] == pytest.approx(
        np.mean(list(shares.values()))
    )
    assert {part: official[part, "accuracy", "left out"] for part in shares} == pytest.approx(
        shares
    )
    assert table["estimate"]["overall", "accuracy", "wrong"] == pytest.approx(right.mean())
    assert table["estimate"]["overall", "accuracy", "random"] == pytest.approx(
        (right + 0.5 * ~read).mean()
    )
    assert ((table["low"] < table["estimate"]) & (table["estimate"] < table["high"])).all()
    assert table["n"]["overall", "accuracy", "left out"] == read.sum()
    assert table.attrs["benchmark"] == "VL-RewardBench" and "cal.py" in table.attrs["source"]
    assert "VLMEvalKit" in table.attrs["note"] and "Wilson" in table.attrs["method"]
    with pytest.raises(
        ValueError, match="nothing says which benchmark the run is of: give name=, one of vl-reward"
    ):
        vj.benchmark(run)
    with pytest.raises(
        ValueError, match="needs preference, which the run does not have .*use Judge.compare"
    ):
        vj.benchmark(run.drop(columns="preference"), name="vl-rewardbench")
    with pytest.warns(UserWarning, match="has no row of general, hallucination"):
        vj.benchmark(run.assign(category="reasoning"), name="vl-rewardbench")
    with pytest.warns(UserWarning, match="is reported by category, and the run has none"):
        vj.benchmark(run.drop(columns="category"), name="vl-rewardbench")


def test_multimodal_rewardbench_guesses_and_keeps_the_published_order() -> None:
    texts = {"Text": "What?", "Image": None, "Output1": "One.", "Output2": "Two."}
    kinds = ["safety"] * 4 + ["vqa"] * 8
    rows = [
        {**texts, "ID": n, "Better": f"Output{1 + n % 2}", "Category": kind}
        for n, kind in enumerate(kinds)
    ]
    run = judge_of("[[A]]").compare(data.canonical(rows), orders="one", progress=False)
    run.loc[0, "verdict"] = None
    table = vj.benchmark(run)["estimate"]
    assert table.index[0] == ("overall", "accuracy", "random") and table.iloc[0] == pytest.approx(
        (5 + 0.5) / 12
    )
    assert table["safety", "accuracy", "random"] == pytest.approx((1 + 0.5) / 4)
    both = judge_of("[[A]]").compare(data.canonical(rows), progress=False)
    table = vj.benchmark(both)["estimate"]
    assert (
        table["overall", "accuracy", "left out"] == 0.5
        and table["overall", "accuracy in both orders", "wrong"] == 0
    )


def test_mllm_judge_scores_pairs_and_orders() -> None:
    """Its three parts on the real rows: Pearson with people, accuracy with and without ties, Levenshtein distance."""
    scores = load_collection(ROWS / "mllm_judge_score.jsonl")
    graded = pd.DataFrame({name: scores[name] for name in ("id", "gold", "group", "category")})
    graded["score"] = [70 + 2 * (n % 3) for n in range(len(scores))]
    table = vj.benchmark(graded, name="mllm-judge-score")
    expected = np.corrcoef(graded["score"], scores["gold"])[0, 1]
    assert table.index[0] == ("overall", "pearson", "left out")
    assert table["estimate"].iloc[0] == pytest.approx(expected) and table["low"].iloc[0] < expected

    pairs = load_collection(ROWS / "mllm_judge_pair.jsonl")
    compared = judge_of("[[C]]").compare(unpictured(pairs), progress=False)
    table = vj.benchmark(compared, name="mllm-judge-pair")["estimate"]
    ties = [choice == "tie" for choice in pairs["preference"]]
    assert table["overall", "accuracy with ties", "left out"] == pytest.approx(np.mean(ties))
    assert table["overall", "accuracy without ties", "left out"] == 0

    batch = load_collection(ROWS / "mllm_judge_batch.jsonl")
    right = pd.DataFrame({name: batch[name] for name in ("id", "category", "ranks")})
    right = (
        right.explode("ranks", ignore_index=True)
        .rename(columns={"ranks": "true_rank"})
        .astype({"true_rank": float})
    )
    right = right.assign(
        candidate=right.groupby("id", sort=False).cumcount(), rank=right["true_rank"]
    )
    assert vj.benchmark(right, name="mllm-judge-batch")["estimate"].iloc[0] == 0
    human = [
        "".join("ABCD"[ranks.index(n + 1)] for n in range(len(ranks))) for ranks in batch["ranks"]
    ]
    expected = np.mean(
        [Levenshtein.normalized_distance("ABCD"[: len(text)], text) for text in human]
    )
    table = vj.benchmark(right.assign(rank=right["candidate"]), name="mllm-judge-batch")["estimate"]
    assert table["overall", "levenshtein", "left out"] == pytest.approx(expected)
    table = vj.benchmark(
        right.assign(rank=right["rank"].mask(right.index == 0)), name="mllm-judge-batch"
    )["estimate"]
    assert table["overall", "levenshtein", "left out"] == 0
    assert table["overall", "levenshtein", "wrong"] == pytest.approx(1 / len(batch))
    tied = right.tail(4).assign(
        rank=[1, 1, 3, 4], true_rank=[1, 2, 3, 4]
    )  # left open: ABCD or BACD
    assert vj.benchmark(tied, name="mllm-judge-batch")["estimate"].iloc[0] == pytest.approx(
        (0 + 2 / 4) / 2
    )
    ranked = judge_of("The better response: [1].").rank(
        unpictured(batch), progress=False
    )  # nothing is better
    assert vj.benchmark(ranked, name="mllm-judge-batch").loc[
        ("overall", "levenshtein", "left out"), "n"
    ] == len(batch)


@pytest.mark.parametrize("kind", ["wild", "coco"])
def test_llava_bench_is_the_relative_score_by_its_own_protocol(kind: str) -> None:
    """Two scores from the wording's own form; one unreadable review counts as (-1, -1) in the means."""
    questions = load_collection(ROWS / f"llava_bench_{kind}").select(range(30))
    items = questions.remove_columns("response").add_column("response", ["A shore."] * 30)
    answers = iter(["8 6\nFine.", "Unreadable.", *["10 5\nShort."] * 28])
    judge = judge_of(lambda _: next(answers), template=f"llava-bench-{kind}")
    run = judge.grade(unpictured(items), progress=False)
    assert run["scores"][0] == [8, 6] and run["score"][0] == 6 and run["failure"].notna().sum() == 1
    table = vj.benchmark(run, name=f"llava-bench-{kind}", n_resamples=200)
    assert table.attrs["benchmark"] == BENCHMARKS[f"llava-bench-{kind}"].title
    assert table.index[0] == ("overall", "relative score", "(-1, -1)")
    assert table["estimate"].iloc[0] == pytest.approx(100 * (6 - 1 + 28 * 5) / (8 - 1 + 28 * 10))
    left_out = table.loc[("overall", "relative score", "left out")]
    assert (
        left_out["estimate"] == pytest.approx(100 * (6 + 28 * 5) / (8 + 28 * 10))
        and left_out["n"] == 29
    )
    assert set(items["category"]) <= set(table.index.get_level_values("part"))


def test_a_judge_takes_a_benchmarks_protocol_by_its_name(tmp_path: Path) -> None:
    """A judge of LLaVA-Critic's build keeps each protocol's own system message, in its own conversation."""
    folder = make("onevision", tmp_path / "onevision")
    item = {
        "id": "i",
        "images": [],
        "instruction": "Q?",
        "response": "R",
        "reference_answer": "REF",
        "context": "CTX",
    }
    pair = {"id": "p", "images": [], "instruction": "Q?", "response_a": "A1", "response_b": "B1"}
    for name, row, system in [
        ("wildvision", pair, "Please act as an impartial judge"),
        ("llava-wilder", item, "You are a helpful assistant."),
        (
            "llava-bench-wild",
            item,
            "You are a helpful and precise assistant for checking the quality of the answer.",
        ),
    ]:
        judge = vj.load_judge(folder, device="cpu", template=name)
        text = judge.render(row)
        assert text.startswith(f"<|im_start|>system\n{system}") and text.endswith(
            "<|im_start|>assistant\n"
        )
    with pytest.raises(
        CollectionError, match=r"context: is missing, and the judge's wording shows it"
    ):
        judge.grade([{**item, "context": ""}], progress=False)


def test_prometheus_benchmarks_correlate_with_the_true_scores() -> None:
    frame = pd.DataFrame(
        {"id": list("pqrstu"), "score": [1, 2, 3, 4, 5, np.nan], "gold": [2, 1, 3, 5, 4, 5]}
    )
    for name in ("perception-bench", "feedback-bench", "llava-bench-wild", "visit-bench"):
        table = vj.benchmark(frame, name=name, n_resamples=200)
        assert table.loc["overall"]["estimate"].round(3).tolist() == [0.8, 0.8, 0.6]
        assert table["missing"].tolist() == [1, 1, 1] and table["official"].all()
    people = frame.drop(columns="gold").assign(human_scores=[[2], [1, 1], [3], [5], [3, 5], None])
    assert vj.benchmark(people, name="perception-bench")["estimate"].iloc[0] == pytest.approx(0.8)
    with pytest.raises(
        ValueError, match="needs true score, which the run does not have.*gold or human_scores"
    ):
        vj.benchmark(frame.drop(columns="gold"), name="perception-bench")


def test_visit_bench_is_elo_over_battles() -> None:
    cells = {"verdict": list("aaabab"), "policy_a": list("xxyyzz"), "policy_b": list("yzzxxy")}
    frame = pd.DataFrame({"id": range(6), **cells})
    table = vj.benchmark(frame, name="visit-bench", n_resamples=0)["estimate"]
    assert table.xs("elo", level="statistic").mean() == pytest.approx(1000)
    assert (
        table["x", "elo", "left out"]
        > table["y", "elo", "left out"]
        > table["z", "elo", "left out"]
    )


def test_an_absolute_judge_answers_pairs_and_its_ties_are_no_choice() -> None:
    pair = {
        "images": [],
        "instruction": "Is it?",
        "response_a": "Yes.",
        "response_b": "No.",
        "preference": "a",
    }
    pairs = [{"id": str(n), "category": "general", **pair} for n in range(4)]
    scores = iter(["5", "3", "4", "4", "2", "3", "none", "3"])
    judge = judge_of(lambda _: f"So. [RESULT] {next(scores)}", template="prometheus-vision")
    run = rank_by_score(
        judge, pairs, rubric=Rubric("Is it good?", ("1", "2", "3", "4", "5")), progress=False
    )
    assert run["verdict"].tolist() == ["a", "tie", "b", None] and run.attrs["failures"]
    with pytest.warns(UserWarning, match="has no row of hallucination, reasoning"):
        table = vj.benchmark(run, name="vl-rewardbench")["estimate"]
    assert [table["overall", "accuracy", way] for way in ("wrong", "left out", "random")] == [
        0.25,
        0.5,
        0.5,
    ]
