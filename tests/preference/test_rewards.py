"""Rewards over ordered pairs by hand, pairs and what was left out of them, best of n, and files for other trainers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from vjudge import preference
from vjudge.data import CollectionError
from vjudge.preference import rewards
from vjudge.probes.simulated import Planted, SimulatedJudge


def candidate_rows(n: int, k: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Questions whose k responses have true scores."""
    rng, picture = np.random.default_rng(seed), Image.new("RGB", (8, 8), "teal")
    rows = []
    for number in range(n):
        truth = [float(score) for score in rng.integers(1, 6, k)]
        texts = [f"answer {place} of q{number}" for place in range(k)]
        own = {"id": f"q{number}", "instruction": f"What is {number}?", "images": [picture], "criteria": "True?"}
        own |= {"descriptions": ["Wrong.", "Poor.", "Half.", "Good.", "Right."], "group": f"q{number}"}
        rows.append({**own, "responses": texts, "times": [1] * k, "drawn": k, "true_scores": truth})
    return rows


def compared(rows: list[dict[str, Any]], verdict: Any) -> pd.DataFrame:
    """What `Judge.compare` would return if `verdict(first, second)` says -1, 0 or 1 for the second being better."""
    results = []
    for pair in rewards.pairs_of(rows):
        a, b = pair["response_a"], pair["response_b"]
        ab = {-1: "a", 0: "tie", 1: "b", None: None}[verdict(a, b)]
        ba = {-1: "b", 0: "tie", 1: "a", None: None}[verdict(b, a)]
        agree = None if ab is None or ba is None else ab == ba
        results.append({"id": pair["id"], "verdict_ab": ab, "verdict_ba": ba, "consistent": agree})
    return pd.DataFrame(results)


def published(texts: list[str], verdict: Any) -> list[float]:
    """r_i = sum_k a_ki - sum_l a_il written out."""
    places = range(len(texts))
    a = [[0 if i == j else verdict(texts[i], texts[j]) for j in places] for i in places]
    return [float(sum(a[k][i] for k in places) - sum(a[i][j] for j in places)) for i in places]


def scored(values: list[float], texts: list[str] | None = None) -> tuple[list[dict[str, Any]], pd.DataFrame]:
    """One question whose responses have these scores."""
    (row,) = candidate_rows(1, len(values))
    row["responses"] = texts or [f"word word {place}" for place in range(len(values))]
    row["true_scores"] = [1.0, 2.0, 3.0, 4.0, 5.0][: len(values)]
    graded = pd.DataFrame([{"id": f"q0/{place}", "score": value} for place, value in enumerate(values)])
    return [row], rewards.rewards_of_scores([row], graded)


def test_reward_is_the_published_sum_over_ordered_pairs() -> None:
    rng, rows = np.random.default_rng(0), candidate_rows(20, 5)
    table: dict[Any, int] = {}

    def verdict(first: str, second: str) -> int:
        return table.setdefault((first, second), int(rng.integers(-1, 2)))

    frame = rewards.rewards_of_pairs(rows, compared(rows, verdict))
    for row in rows:
        assert frame[frame["id"] == row["id"]]["reward"].tolist() == published(row["responses"], verdict)
    assert (frame.groupby("id")["reward"].sum() == 0).all() and (frame["missing"] == 0).all()


def test_what_depends_on_the_place_alone_cancels_to_nothing() -> None:
    rows = candidate_rows(3, 4)
    for constant in (-1, 1):
        frame = rewards.rewards_of_pairs(rows, compared(rows, lambda first, second, c=constant: c))
        assert (frame["reward"] == 0).all() and (frame["flipped"].map(len) == 3).all()
        pairs = preference.make_pairs(rows, frame)
        assert len(pairs) == 0 and pairs.attrs["left_out"] == {"pair: a tie": 3} and pairs.attrs["without_pair"] == 3


def test_a_repeated_answer_counts_as_often_as_it_was_drawn() -> None:
    (row,) = candidate_rows(1, 3)
    order = {text: place for place, text in enumerate(row["responses"])}

    def verdict(first: str, second: str) -> int:
        return int(np.sign(order[second] - order[first]))

    drawn = [row["responses"][place] for place in (0, 0, 1, 2)]
    distinct = {**row, "times": [2, 1, 1]}
    frame = rewards.rewards_of_pairs([distinct], compared([distinct], verdict))
    written_out = published(drawn, verdict)
    assert frame["reward"].tolist() == [written_out[0], written_out[2], written_out[3]]


def test_a_missing_verdict_leaves_both_responses_without_a_reward() -> None:
    rows = candidate_rows(1, 4)
    gone = {rows[0]["responses"][1], rows[0]["responses"][2]}
    frame = rewards.rewards_of_pairs(rows, compared(rows, lambda first, second: None if {first, second} == gone else 1))
    assert frame["reward"].isna().tolist() == [False, True, True, False] and frame["missing"].tolist() == [0, 2, 2, 0]
    assert preference.make_pairs(rows, frame).attrs["left_out"] == {"response: without a reward": 2, "pair: a tie": 1}


def test_pairs_by_both_orders_agree_with_the_truth_more_often_under_a_planted_bias() -> None:
    rows = preference.scene_candidates("test", limit=60)
    assert all(sorted(row["true_scores"]) == [1, 2, 3, 4, 5] for row in rows) and "response" not in rows[0]
    judge = SimulatedJudge(list(rewards.singles_of(rows)), Planted(position=2.5, item=0.3), seed=0)
    shares = {}
    for orders in ("one", "both"):
        frame = rewards.rewards_of_pairs(rows, judge.compare(list(rewards.pairs_of(rows)), orders=orders))
        pairs = preference.make_pairs(rows, frame, choose="all")
        shares[orders] = preference.true_order(pairs).loc["without_ties"]
    assert shares["both"]["low"] > shares["one"]["high"] and shares["both"]["estimate"] > 0.9


def test_scores_reward_by_the_expected_score_and_keep_what_is_missing() -> None:
    rows = candidate_rows(2, 3)
    graded = pd.DataFrame([{"id": row["id"], "score": 4.0, "expected_score": 3.5} for row in rewards.singles_of(rows)])
    graded.loc[1, ["score", "expected_score"]] = np.nan
    graded.loc[2, "expected_score"] = np.nan
    values = rewards.rewards_of_scores(rows, graded)["reward"]
    assert values[0] == 3.5 and np.isnan(values[1]) and values[2] == 4.0


def test_candidates_of_ones_own_keep_their_picture_and_are_numbered(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), "teal").save(tmp_path / "a.png")
    known = ("instruction", "criteria", "descriptions", "responses")
    rows = [{name: row[name] for name in known} | {"image": str(tmp_path / "a.png")} for row in candidate_rows(2, 2)]
    graded = pd.DataFrame({"id": ["0/0", "0/1", "1/0", "1/1"], "score": [1.0, 2.0, 4.0, 3.0]})
    assert [single["images"] for single in rewards.singles_of(rows)] == [[str(tmp_path / "a.png")]] * 4
    pairs = preference.make_pairs(rows, rewards.rewards_of_scores(rows, graded))
    assert pairs["images"].tolist() == [[str(tmp_path / "a.png")]] * 2, "a policy would learn them blind"
    assert pairs["id"].tolist() == ["0/1-0", "1/0-1"]


def test_extremes_and_all_pairs_with_margins_and_lengths() -> None:
    lengths = [3, 30, 4, 3]
    rows, frame = scored([2.0, 5.0, 1.0, 5.0], [" ".join(["word"] * n) + f" {n}" for n in lengths[:3]] + ["a b c d"])
    (pair,) = preference.make_pairs(rows, frame).to_dict("records")
    assert pair["id"] == "q0/1-2" and pair["margin"] == 4 and pair["true_rejected"] == 3
    every = preference.make_pairs(rows, frame, choose="all")
    assert len(every) == 5 and (every["margin"] > 0).all() and every.attrs["left_out"] == {"pair: a tie": 1}
    near = preference.make_pairs(rows, frame, choose="all", min_margin=1.0, max_length_ratio=2.0)
    assert set(near["id"]) == {"q0/3-0", "q0/3-2"}
    reasons = {"one response more than 2 times as long": 2, "a tie": 1, "margin not above 1": 1}
    assert near.attrs["left_out"] == {f"pair: {reason}": n for reason, n in reasons.items()}
    with pytest.raises(ValueError, match='order consistency is known of rewards by="pairs" alone'):
        preference.make_pairs(rows, frame, consistent_only=True)
    with pytest.raises(ValueError, match="choose='best'"):
        preference.make_pairs(rows, frame, choose="best")


def test_the_longer_response_is_seen_in_a_script_without_spaces() -> None:
    rows, frame = scored([1.0, 2.0], ["一只猫", "一只很大很大很大的猫坐在垫子上"])
    assert preference.make_pairs(rows, frame, max_length_ratio=2).empty and frame["words"].tolist() == [3, 15]


def test_responses_that_a_check_finds_make_no_pair_and_are_counted() -> None:
    texts = ["(1) It is red. (2) IT IS  RED.", "(1) It is red. (2) It is round.", "(1) It is blue. (2) It is flat."]
    rows, frame = scored([5.0, 4.0, 1.0], texts)
    shares = [preference.repetition(text) for text in [*texts, "红。圆。红。", "", "..."]]
    assert shares == pytest.approx([0.5, 0, 0, 1 / 3, 0, 0])
    (overpaid,) = preference.make_pairs(rows, frame).to_dict("records")
    assert overpaid["chosen"] == texts[0]
    pairs = preference.make_pairs(rows, frame, leave_out={"repeats itself": preference.repetition})
    assert pairs["chosen"].tolist() == [texts[1]] and pairs.attrs["left_out"] == {"response: repeats itself": 1}
    none = preference.make_pairs(rows, frame, leave_out={"repeats itself": preference.repetition, "red": texts.index})
    assert len(none) == 0 and none.attrs["left_out"] == {
        "response: repeats itself": 1,
        "response: red": 2,
        "question: fewer than two distinct responses to choose from": 1,
    }
    assert [none.attrs[n] for n in ("questions", "without_pair", "answers", "failed", "distinct")] == [1, 1, 3, 0, 3]


def test_inconsistent_pairs_can_be_left_out_and_are_counted() -> None:
    rows = candidate_rows(1, 3)
    order = rows[0]["responses"].index

    def verdict(first: str, second: str) -> int:  # of the first and the last response always the second place
        return 1 if {order(first), order(second)} == {0, 2} else int(np.sign(order(second) - order(first)))

    frame = rewards.rewards_of_pairs(rows, compared(rows, verdict))
    assert frame["reward"].tolist() == [-2.0, 0.0, 2.0] and frame["flipped"].tolist() == [[2], [], [0]]
    consistent = preference.make_pairs(rows, frame, consistent_only=True)
    assert len(consistent) == 0 and consistent.attrs["left_out"] == {"pair: the orders disagree": 1}


@pytest.mark.filterwarnings("ignore")  # so few groups
def test_agreement_with_the_true_order_counts_true_ties_apart() -> None:
    truth = {"true_chosen": [5, 4, 3, 2, 1.0], "true_rejected": [1, 2, 3, 3, np.nan]}
    table = preference.true_order(pd.DataFrame({"group": list("aabbc"), **truth}))
    assert table.loc["without_ties", "estimate"] == pytest.approx(2 / 3) and table.loc["without_ties", "n"] == 3
    assert table.loc["with_ties", "estimate"] == 0.5 and table.loc["with_ties", "missing"] == 1
    with pytest.raises(ValueError, match="no true scores"):
        preference.true_order(pd.DataFrame({"group": ["a"]}))


def test_best_of_n_is_the_mean_over_every_choice_of_n() -> None:
    rng = np.random.default_rng(3)
    values, judged = rng.normal(size=6), rng.integers(0, 3, 6).astype(float)
    for n in range(1, 7):
        means = []
        for chosen in itertools.combinations(range(6), n):
            top = max(judged[list(chosen)])
            means.append(np.mean([values[i] for i in chosen if judged[i] == top]))
        assert rewards.expected_best(judged, values)[n - 1] == pytest.approx(np.mean(means))


def test_best_of_n_over_questions_counts_repeats_and_what_is_left_out() -> None:
    columns = {"reward": [1.0, 2.0, 5.0, 1.0, np.nan], "true_score": [1.0, 5.0, 2.0, 4.0, 3.0]}
    table = pd.DataFrame({"id": list("ppqqr"), **columns, "times": [2, 1, 1, 2, 3], "group": list("aabbc")})
    curve = preference.best_of_n(table, n_resamples=200)
    assert list(curve.index) == [1, 2, 3] and (curve["n"] == 2).all() and (curve["missing"] == 1).all()
    assert curve["estimate"].tolist() == pytest.approx([(7 / 3 + 10 / 3) / 2, (11 / 3 + 8 / 3) / 2, 3.5])
    assert curve["best_possible"].iloc[-1] == 4.5
    assert curve["share_of_possible"].iloc[-1] == pytest.approx((3.5 - 17 / 6) / (4.5 - 17 / 6))
    with pytest.raises(ValueError, match="no column 'other'"):
        preference.best_of_n(table, value="other")


def test_files_hold_the_pairs_with_each_picture_once(tmp_path: Path) -> None:
    rows, frame = scored([2.0, 5.0, 1.0])
    pairs = preference.make_pairs(rows, frame, choose="all")
    first = preference.to_trl(pairs)[0]
    assert [part["type"] for part in first["prompt"][0]["content"]] == ["image", "text"]
    turns = [first[name][0] for name in ("prompt", "chosen", "rejected")]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "assistant"] and len(first["images"]) == 1
    texts = [turn["content"][-1]["text"] for turn in turns]
    assert texts == pairs.loc[0, ["instruction", "chosen", "rejected"]].tolist()
    hostile = pairs.assign(id="../../up")
    path = preference.write_llava_next(hostile, tmp_path / "out")
    entries = json.loads(path.read_text("utf-8"))
    assert list(entries[0]) == ["id", "image", "prompt", "chosen", "rejected"] and len(entries) == 3
    assert entries[0]["prompt"] == "What is 0?" and entries[0]["chosen"] == pairs["chosen"][0]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert sorted(files) == sorted([path, path.parent / "images" / entries[0]["image"]])
    assert Image.open(files[0] if files[0].suffix == ".png" else files[1]).size == (8, 8)


def test_files_refuse_what_their_readers_would_change(tmp_path: Path) -> None:
    rows = [{"id": "x", "instruction": "Where is <image>?", "images": [], "chosen": "a", "rejected": "b"}]
    with pytest.raises(CollectionError, match=r"row 0 \(id 'x'\), instruction: spells <image>"):
        preference.write_llava_next(rows, tmp_path)
    with pytest.raises(CollectionError, match="2 texts of 1 pairs"):
        preference.to_trl([rows[0] | {"chosen": "", "rejected": None}])
