"""Comparing and ranking: both orders, what they say together, durable and resumable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from vjudge import load_judge
from vjudge.data import CollectionError
from vjudge.engines import Answer, Engine
from vjudge.judge import Judge
from vjudge.prompts import TEMPLATES, VICUNA_V1
from vjudge.runs import RunError

RELATIVE = TEMPLATES["chat-relative"].as_messages()
QUIET: dict[str, Any] = {"progress": False}


class Scripted(Engine):
    """An engine whose answers follow from the two responses it is shown."""

    name = "scripted"

    def __init__(self, write: Callable[[str, str], str], *, stop_after: int | None = None) -> None:
        self.write, self.stop_after, self.asked = write, stop_after, 0

    def identity(self) -> dict[str, Any]:
        return {"engine": self.name, "weights": "none", "versions": {}}

    def answer(self, prompts: Any, images: Any, ask: Any, wanted: Any = None) -> Iterator[list[Answer]]:
        for index, prompt in enumerate(prompts):
            assert len(images[index]) == prompt.n_images
            if index not in wanted:
                continue
            if self.asked == self.stop_after:
                raise KeyboardInterrupt
            self.asked += 1
            first, rest = prompt.text.split("###Response A:\n")[1].split("\n\n###Response B:\n")
            text = self.write(first, rest.split("\n\n###")[0])
            letter = text.rpartition("[RESULT] ")[2]
            shares = {0: math.log(0.9), 1: math.log(0.1)} if letter == "A" else {0: math.log(0.2), 1: math.log(0.8)}
            known = ask.scale(index) and letter in ("A", "B")
            yield [Answer(index, text=text, score_logprobs=shares if known else None, stopped=True, n_new_tokens=3)]


def judge_of(answer: Callable[[str, str], str], **options: Any) -> Judge:
    return Judge("scripted", template=TEMPLATES["chat"], pairs=RELATIVE, engine=Scripted(answer, **options))  # type: ignore[arg-type]


def longer(first: str, second: str) -> str:
    choice = "tie" if len(first) == len(second) else "A" if len(first) > len(second) else "B"
    return f"Length decides. [RESULT] {choice}"


def pair(id: str, a: str, b: str, **more: Any) -> dict[str, Any]:
    shared = {"images": [], "instruction": "Say it.", "criteria": "Said?"}
    return {"id": id, "response_a": a, "response_b": b} | shared | more


PAIRS = [
    pair("1", "long answer", "short", preference="a", group="g"),
    pair("2", "brief", "much longer", preference="a", group="g"),
    pair("3", "same", "four", preference="tie", group="h"),
]


def test_a_judge_without_a_position_bias() -> None:
    frame = judge_of(longer).compare(PAIRS, **QUIET)
    assert list(frame["verdict"]) == list(frame["verdict_ab"]) == list(frame["verdict_ba"]) == ["a", "b", "tie"]
    assert list(frame["consistent"]) == [True] * 3 and frame["failure"].isna().all()
    assert list(frame["preference"]) == ["a", "a", "tie"] and list(frame["group"]) == ["g", "g", "h"]
    assert list(frame["feedback_ab"]) == ["Length decides."] * 3
    # P(a) is .9 where A is shown and wins, and .8 where it is shown second and wins.
    assert frame["probability_a"][0] == pytest.approx((0.9 + 0.8) / 2)
    assert frame["probability_a"][1] == pytest.approx((0.2 + 0.1) / 2)
    assert math.isnan(frame["probability_a"][2])
    assert list(frame["n_new_tokens"]) == [6] * 3


def test_a_planted_position_bias_shows(capsys: Any) -> None:
    frame = judge_of(lambda first, second: "The first. [RESULT] A").compare(PAIRS, **QUIET)
    assert list(frame["verdict_ab"]) == ["a"] * 3 and list(frame["verdict_ba"]) == ["b"] * 3
    assert list(frame["verdict"]) == ["tie"] * 3 and list(frame["consistent"]) == [False] * 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "3 of 3 verdicts changed with the order; 3 pairs have no image and were judged without"
    assert frame.attrs["without_images"] == 3


def test_failures_and_abstentions_are_not_choices(capsys: Any) -> None:
    def answer(first: str, second: str) -> str:
        if "broken" in first:
            return "Hm."
        return "[RESULT] abstain" if "unclear" in (first, second) else longer(first, second)

    frame = judge_of(answer).compare(
        [pair("1", "broken", "x"), pair("2", "unclear", "y"), pair("3", "aa", "b")], **QUIET
    )
    assert list(frame["verdict"]) == [None, "abstain", "a"]
    assert list(frame["verdict_ab"]) == [None, "abstain", "a"] and list(frame["verdict_ba"]) == ["a", "abstain", "a"]
    assert list(frame["consistent"]) == [None, True, True]
    assert list(frame["failure"]) == ["ab: no verdict marker", None, None]
    assert frame.attrs["failures"] == {"no verdict marker": 1}
    assert capsys.readouterr().err.startswith("1 of 6 comparisons failed: 1 x no verdict marker; ")


def test_an_interrupted_comparison_continues(tmp_path: Path) -> None:
    whole = judge_of(longer).compare(PAIRS, out=tmp_path / "whole", **QUIET)
    with pytest.raises(KeyboardInterrupt):
        judge_of(longer, stop_after=3).compare(PAIRS, out=tmp_path / "cut", **QUIET)
    judge = judge_of(longer)
    frame = judge.compare(PAIRS, out=tmp_path / "cut", **QUIET)
    assert judge.engine.asked == 3  # type: ignore[union-attr]
    pd.testing.assert_frame_equal(frame.drop(columns="seconds"), whole.drop(columns="seconds"))
    assert frame.attrs == whole.attrs
    with pytest.raises(RunError, match="collection"):
        judge_of(longer).compare([PAIRS[0], pair("2", "other", "much longer")], out=tmp_path / "cut", **QUIET)


def test_wrong_use(random_judge: Path) -> None:
    judge = judge_of(longer)
    with pytest.raises(ValueError, match="orders='all'"):
        judge.compare(PAIRS, orders="all")
    with pytest.raises(ValueError, match="by='votes'"):
        judge.rank([], by="votes")
    with pytest.raises(ValueError, match="orders='one'"):
        judge.rank([], by="scores", orders="one")
    with pytest.raises(CollectionError, match="row 1 .*not a list of two texts"):
        judge.rank([{"id": "1", "responses": ["a", "b"]}, {"id": "2", "responses": ["a"]}])
    with pytest.raises(ValueError, match="has no wording for two responses"):
        load_judge(random_judge, device="cpu").compare(PAIRS)
    with pytest.raises(ValueError, match="template= judges one response and pairs= compares two"):
        Judge("x", template=RELATIVE, engine=judge.engine)
    critic = Judge("x", template=TEMPLATES["llava-critic"], pairs=TEMPLATES["llava-critic-pair"], engine=judge.engine)
    with pytest.raises(ValueError, match="answers to template 'llava-critic-pair' have none"):
        critic.compare(PAIRS, mode="score")


def test_best_of_n_by_pairs() -> None:
    rows = [
        {"id": "x", "images": [], "instruction": "Say.", "criteria": "Said?", "responses": ["aa", "aaaa", "a", "bb"]},
        {"id": "y", "images": [], "instruction": "Say.", "criteria": "Said?", "responses": ["b", "bb"], "group": "g"},
    ]
    frame = judge_of(longer).rank(rows, **QUIET)
    first = frame[frame["id"] == "x"]
    # r_i = sum_k a_ki - sum_l a_il over 6 comparisons each: 0, 6, -6, 0.
    assert list(first["value"] * first["n"]) == pytest.approx([0, 6, -6, 0])
    assert list(first["rank"]) == [2, 1, 4, 2] and list(first["best"]) == [False, True, False, False]
    assert list(first["n"]) == [6] * 4 and list(first["missing"]) == [0] * 4
    assert list(frame["group"]) == ["x"] * 4 + ["g"] * 2 and list(frame["candidate"]) == [0, 1, 2, 3, 0, 1]
    biased = judge_of(lambda a, b: "[RESULT] A").rank(rows, **QUIET)
    assert list(biased["value"]) == [0] * 6  # both orders cancel a position bias
    silent = judge_of(lambda a, b: "").rank(rows, **QUIET)
    assert silent["value"].isna().all() and silent["rank"].isna().all() and not silent["best"].any()
    assert list(silent["missing"]) == [6] * 4 + [2] * 2


def test_best_of_n_by_scores(taught_judge: Path, rows: Any) -> None:
    judge = load_judge(taught_judge, device="cpu")
    candidates = [{**row, "responses": [row["response"], "it is right"]} for row in rows[:3]]
    frame = judge.rank(candidates, by="scores", mode="score", **QUIET)
    singles = [
        {**row, "id": f"{row['id']}/{n}", "response": r["responses"][n]}
        for row, r in zip(rows, candidates, strict=False)
        for n in (0, 1)
    ]
    graded = judge.grade(singles, mode="score", **QUIET)
    assert list(frame["value"]) == pytest.approx(list(graded["expected_score"]))
    assert frame.groupby("id")["rank"].min().eq(1).all() and list(frame["missing"]) == [0] * 6


@pytest.fixture(scope="module")
def real(taught_judge: Path) -> Judge:
    """A real model on this machine, asked in the conversation it was taught."""
    return load_judge(taught_judge, device="cpu", template=replace(RELATIVE, conversation=VICUNA_V1))


def real_pairs(rows: Any, n: int = 5) -> list[dict[str, Any]]:
    shared = ("images", "instruction", "criteria", "descriptions", "reference_answer", "group")
    return [
        {"id": row["id"], "response_a": row["response"], "response_b": "it is plain red"} | {k: row[k] for k in shared}
        for row in rows[:n]
    ]


def test_a_real_model_in_one_pass_each_order(real: Judge, rows: Any, tmp_path: Path) -> None:
    pairs = real_pairs(rows)
    frame = real.compare(pairs, mode="score", out=tmp_path, **QUIET)
    assert frame["failure"].isna().all() and frame["verdict_ab"].isin(["a", "b"]).all()
    assert frame["probability_a"].between(0, 1).all()
    # What the pass says is what the judge finds more probable: by hand, order by order.
    swapped = [{**p, "response_a": p["response_b"], "response_b": p["response_a"]} for p in pairs]
    other = real.compare(swapped, mode="score", **QUIET)
    mirror = {"a": "b", "b": "a"}
    assert list(other["verdict_ab"].map(mirror)) == list(frame["verdict_ba"])
    assert list(1 - other["probability_a"]) == pytest.approx(list(frame["probability_a"]), abs=1e-5)
