"""Rewards over ordered pairs by hand, pairs and what was left out of them, best of n, and a file for trainers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from validity.simulated import Planted, SimulatedJudge
from vjudge import load_collection, preference
from vjudge.data import CollectionError
from vjudge.preference import rewards

NAN = float("nan")


def candidate_rows(n: int, k: int, **more: Any) -> list[dict[str, Any]]:
    shared = {"images": [Image.new("RGB", (8, 8), "teal")], **more}
    texts = [[f"answer {place} of q{number}" for place in range(k)] for number in range(n)]
    return [
        {"id": f"q{i}", "instruction": f"What is {i}?", "responses": texts[i], **shared}
        for i in range(n)
    ]


def scored(
    values: list[float], texts: list[str] | None = None
) -> tuple[list[dict[str, Any]], pd.DataFrame]:
    """One question whose responses have these scores."""
    (row,) = candidate_rows(1, len(values), true_scores=[1.0, 2.0, 3.0, 4.0, 5.0][: len(values)])
    row["responses"] = texts or [f"word word {place}" for place in range(len(values))]
    judge = SimpleNamespace(grade=lambda items: pd.DataFrame({"score": values}))
    return [row], preference.reward(judge, [row])


def compared(rows: list[dict[str, Any]], rule: Callable[[str, str], Any]) -> pd.DataFrame:
    """Rewards by a judge by whose rule the second of two texts is better (1), as good (0) or worse (-1)."""

    def compare(pairs: Any) -> pd.DataFrame:
        texts = [(pair["response_a"], pair["response_b"]) for pair in pairs]
        ab = [{-1: "a", 0: "tie", 1: "b", None: None}[rule(a, b)] for a, b in texts]
        ba = [{-1: "b", 0: "tie", 1: "a", None: None}[rule(b, a)] for a, b in texts]
        return pd.DataFrame({"verdict_ab": ab, "verdict_ba": ba})

    return preference.reward(SimpleNamespace(compare=compare), rows, by="pairs")


def published(texts: list[str], rule: Any) -> list[float]:
    """r_i = sum_k a_ki - sum_l a_il written out."""
    places = range(len(texts))
    a = [[0 if i == j else rule(texts[i], texts[j]) for j in places] for i in places]
    return [float(sum(a[k][i] for k in places) - sum(a[i][j] for j in places)) for i in places]


def test_reward_is_the_published_sum_over_ordered_pairs() -> None:
    rng, rows, table = np.random.default_rng(0), candidate_rows(20, 5), dict[Any, int]()

    def rule(first: str, second: str) -> int:
        return table.setdefault((first, second), int(rng.integers(-1, 2)))

    frame = compared(rows, rule)
    for row in rows:
        assert frame[frame["id"] == row["id"]]["reward"].tolist() == published(
            row["responses"], rule
        )


def test_what_depends_on_the_place_alone_cancels_to_nothing() -> None:
    rows = candidate_rows(3, 4)
    for constant in (-1, 1):
        frame = compared(rows, lambda first, second, c=constant: c)
        assert (frame["reward"] == 0).all()
        pairs = preference.make_pairs(rows, frame)
        assert (
            pairs.attrs == {"questions": 3, "without_pair": 3, "left_out": {"pair: a tie": 3}}
            and pairs.empty
        )


def test_a_repeated_answer_counts_as_often_and_one_without_a_verdict_has_no_reward() -> None:
    (row,) = candidate_rows(1, 4, times=[2, 1, 1, 1])
    place, gone = row["responses"].index, set(row["responses"][1:3])

    def rule(first: str, second: str) -> int:
        return int(np.sign(place(second) - place(first)))

    written_out = published([row["responses"][i] for i in (0, 0, 1, 2, 3)], rule)
    assert compared([row], rule)["reward"].tolist() == [written_out[0], *written_out[2:]]
    frame = compared([row], lambda first, second: None if {first, second} == gone else 1)
    assert frame["reward"].isna().tolist() == [False, True, True, False]
    pairs = preference.make_pairs([row], frame)
    assert pairs.attrs["left_out"] == {"response: without a reward": 2, "pair: a tie": 1}


def test_pairs_by_both_orders_agree_with_the_truth_more_often_under_a_planted_bias() -> None:
    rows = preference.scene_questions("test", limit=60)
    items, right = load_collection("scenes", split="test", limit=5), {}
    judge = SimulatedJudge(items, Planted(position=2.5, item=0.3), seed=0)
    for orders in ("one", "both"):
        frame = preference.reward(judge, rows, by="pairs", orders=orders)
        pairs = preference.make_pairs(rows, frame, every=True)
        right[orders] = (pairs["true_chosen"] > pairs["true_rejected"]).mean()
    assert right["both"] > 0.9 > 0.8 > right["one"]


def test_scores_of_candidates_of_ones_own_keep_their_picture_and_what_is_missing() -> None:
    rows = [
        {"instruction": "What?", "image": "a.png", "responses": texts}
        for texts in (["a", "b"], ["c", "d"])
    ]
    graded = pd.DataFrame({"score": [4, NAN, 4, 3], "expected_score": [3.5, NAN, NAN, 3]})
    frame = preference.reward(SimpleNamespace(grade=lambda items: graded), rows)
    assert frame["reward"].fillna(0).tolist() == [3.5, 0, 4, 3] and frame["true_score"].isna().all()
    (pair,) = preference.make_pairs(rows, frame).to_dict("records")
    assert pair["id"] == "1/0-1" and pair["images"] == ["a.png"], "a policy would learn it blind"
    with pytest.raises(ValueError, match=r'by=\'wins\': use "scores" or "pairs"'):
        preference.reward(None, rows, by="wins")


def test_extremes_and_all_pairs_with_margins_and_lengths() -> None:
    lengths = [3, 30, 4, 3]
    rows, frame = scored(
        [2.0, 5.0, 1.0, 5.0], [" ".join(["word"] * n) + f" {n}" for n in lengths[:3]] + ["a b c d"]
    )
    (pair,) = preference.make_pairs(rows, frame).to_dict("records")
    assert pair["id"] == "q0/1-2" and pair["margin"] == 4 and pair["true_rejected"] == 3
    every = preference.make_pairs(rows, frame, every=True)
    assert (
        len(every) == 5
        and (every["margin"] > 0).all()
        and every.attrs["left_out"] == {"pair: a tie": 1}
    )
    near = preference.make_pairs(rows, frame, every=True, min_margin=1.0, max_length_ratio=2.0)
    assert set(near["id"]) == {"q0/3-0", "q0/3-2"}
    reasons = {"one response more than 2 times as long": 2, "a tie": 1, "margin not above 1": 1}
    assert near.attrs["left_out"] == {f"pair: {reason}": n for reason, n in reasons.items()}
    rows, frame = scored(
        [1.0, 2.0], ["一只猫", "一只很大很大很大的猫坐在垫子上"]
    )  # a script without spaces
    assert preference.make_pairs(rows, frame, max_length_ratio=2).empty and frame[
        "words"
    ].tolist() == [3, 15]


def test_responses_that_a_check_finds_make_no_pair_and_are_counted() -> None:
    texts = [
        "(1) It is red. (2) IT IS  RED.",
        "(1) It is red. (2) It is round.",
        "(1) It is blue. (2) It is flat.",
    ]
    rows, frame = scored([5.0, 4.0, 1.0], texts)
    shares = [preference.repetition(text) for text in [*texts, "红。圆。红。", "", "..."]]
    assert shares == pytest.approx([0.5, 0, 0, 1 / 3, 0, 0])
    assert preference.make_pairs(rows, frame)["chosen"].tolist() == [texts[0]]
    pairs = preference.make_pairs(rows, frame, leave_out=preference.repetition)
    assert pairs["chosen"].tolist() == [texts[1]] and pairs.attrs["left_out"] == {
        "response: left out by its text": 1
    }
    none = preference.make_pairs(rows, frame, leave_out=lambda text: text != texts[0])
    fewer = "question: fewer than two distinct responses to choose from"
    assert none.attrs["left_out"] == {"response: left out by its text": 2, fewer: 1} and none.empty


def test_best_of_n_is_the_mean_over_every_choice_of_n_and_counts_what_is_left_out() -> None:
    rng = np.random.default_rng(3)
    values, judged = rng.normal(size=6), rng.integers(0, 3, 6).astype(float)
    for n, best in enumerate(rewards.expected_best(judged, values), start=1):
        choices = [list(chosen) for chosen in itertools.combinations(range(6), n)]
        means = [
            values[chosen][judged[chosen] == judged[chosen].max()].mean() for chosen in choices
        ]
        assert best == pytest.approx(np.mean(means))
    columns = {"reward": [1.0, 2.0, 5.0, 1.0, NAN], "true_score": [1.0, 5.0, 2.0, 4.0, 3.0]}
    table = pd.DataFrame(
        {"id": list("ppqqr"), **columns, "times": [2, 1, 1, 2, 3], "group": list("aabbc")}
    )
    curve = preference.best_of_n(table, n_resamples=200)
    assert (
        list(curve.index) == [1, 2, 3] and (curve["n"] == 2).all() and (curve["missing"] == 1).all()
    )
    assert curve["estimate"].tolist() == pytest.approx(
        [(7 / 3 + 10 / 3) / 2, (11 / 3 + 8 / 3) / 2, 3.5]
    )
    with pytest.raises(ValueError, match=r"a true score for every answer \(3 left out\)"):
        preference.best_of_n(table.assign(true_score=NAN))


@pytest.mark.filterwarnings("ignore")  # so few answers
def test_what_a_judge_overpays_is_the_mean_error_with_a_mark_less_that_without() -> None:
    error, mark = (
        pd.DataFrame({"error": [2.0, 1, 0, 0, 0, np.nan]}),
        [True, True, False, False, False, True],
    )
    (row,) = preference.mean_of(error, list("abcdef"), mark=mark, n_resamples=300).to_dict(
        "records"
    )
    assert (row["estimate"], row["n"], row["missing"]) == (1.5, 5, 1) and row["low"] < 1.5 < row[
        "high"
    ]


def test_a_file_holds_the_pairs_with_each_picture_once_and_nothing_its_reader_would_change(
    tmp_path: Path,
) -> None:
    pairs = preference.make_pairs(*scored([2.0, 5.0, 1.0]), every=True).assign(
        id=["../../up", "b", "c"]
    )
    path = preference.write_llava_next(pairs, tmp_path / "out")
    first, *_ = entries = json.loads(path.read_text("utf-8"))
    assert list(first) == ["id", "image", "prompt", "chosen", "rejected"] and len(entries) == 3
    assert first["prompt"] == "What is 0?" and first["chosen"] == pairs["chosen"][0]
    picture = path.parent / "images" / first["image"]
    assert {file for file in tmp_path.rglob("*") if file.is_file()} == {path, picture}
    assert Image.open(picture).size == (8, 8)
    row = {
        "id": "x",
        "instruction": "Where is <image>?",
        "images": [],
        "chosen": "a",
        "rejected": "b",
    }
    with pytest.raises(CollectionError, match=r"row 0 \(id 'x'\), instruction: spells <image>"):
        preference.write_llava_next([row], tmp_path)
    with pytest.raises(CollectionError, match=r"row 0 \(id 'x'\), rejected: is missing or blank"):
        preference.write_llava_next([row | {"rejected": None}], tmp_path)
