"""Several judges as one, a judge with a value head, and answers that are closed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from stand_in import QUIET, Scripted, judge_of, pair

import vjudge as vj
from vjudge.judge import Judge
from vjudge.prompts import TEMPLATES, VICUNA_V1
from vjudge.runs import Run


def fixed(name: str, text: str) -> Judge:
    """A judge that writes one text."""
    return judge_of(lambda prompt, ask, place: (text, None), name)


@pytest.mark.parametrize(
    ("texts", "combine", "score", "n"),
    [
        ("145", "mean", 10 / 3, 3),
        ("145", "median", 4.0, 3),
        ("141", "majority", 1.0, 3),
        ("14", "majority", 2.5, 2),  # equally frequent scores are averaged
        ("1?5", "mean", 3.0, 2),
        ("???", "mean", math.nan, 0),
    ],
)
def test_a_panel_grades(
    texts: str, combine: str, score: float, n: int, rows: Any, tmp_path: Path, capsys: Any
) -> None:
    judges = [fixed(f"judge {i}", f"So. [RESULT] {text}") for i, text in enumerate(texts)]
    run = vj.panel(judges, combine=combine).grade(rows[:4], out=tmp_path, **QUIET)
    missing = len(texts) - n
    assert run["score"].tolist() == pytest.approx([score] * 4, nan_ok=True)
    assert run["n"].eq(n).all() and run["missing"].eq(missing).all()
    assert run["failure"].notna().all() == (n == 0) and set(run["judge"]) == {"panel"}
    assert run["gold"].tolist() == [row["gold"] for row in rows[:4]]
    members = run[[f"score_{judge.name}" for judge in judges]]
    assert members.notna().sum(axis=1).eq(n).all()
    assert ("lack a member's verdict" in capsys.readouterr().err) == bool(missing)
    for place in range(len(texts)):
        assert len(Run(tmp_path / f"judge-{place}").verdicts()) == 4


@pytest.mark.parametrize(
    ("texts", "combine", "verdict"),
    [
        (["A", "A", "B"], "majority", "tie"),  # each always takes the first: the orders disagree
        (["tie", "tie", "?"], "mean", "tie"),
        (["?", "?"], "median", None),
    ],
)
def test_a_panel_compares(texts: list[str], combine: str, verdict: str | None) -> None:
    judges = [fixed(str(place), f"So. [RESULT] {text}") for place, text in enumerate(texts)]
    run = vj.panel(judges, combine=combine).compare([pair("1"), pair("2")], **QUIET)
    assert run["verdict"].tolist() == [verdict] * 2
    assert run["missing"].eq(texts.count("?")).all()
    assert run["verdict_0"].tolist() == [None if texts[0] == "?" else "tie"] * 2
    if texts[0] == "A":
        assert run["verdict_ab"].tolist() == ["a", "a"] and not run["consistent"].any()


def test_a_panel_of_unsound_members_is_refused(rows: Any) -> None:
    one, two = fixed("one", ""), fixed("two", "")
    for judges, combine, message in (
        ([one], "mean", "two judges or more"),
        ([one, one], "mean", "names of their own"),
        ([fixed("a b", ""), fixed("a/b", "")], "mean", "names of their own"),
        ([one, two], "sum", "combine='sum': use one of mean"),
    ):
        with pytest.raises(ValueError, match=message):
            vj.panel(judges, combine=combine)
    two.template = TEMPLATES["llava-critic"]
    with pytest.raises(ValueError, match="no common scale .*'two' 'llava-critic'"):
        vj.panel([one, two]).grade(rows[:2])


def value_of(prompt: Any, ask: Any, place: int) -> dict[str, Any]:
    """A value head that likes long responses, up to a point."""
    assert ask.mode == "value"
    length = len(prompt.text)
    return {"value": math.nan if length > 900 else length / 7}


def test_a_judge_with_a_value_head_has_no_scale_and_no_order(capsys: Any, tmp_path: Path) -> None:
    template = replace(TEMPLATES["skywork-vl-reward"], conversation=VICUNA_V1)
    judge = Judge("value", template=template, engine=Scripted(value_of))
    items = [
        {"id": str(n), "images": [], "instruction": "Say.", "response": "x" * n} for n in (1, 99)
    ]
    run = judge.grade(items, out=tmp_path, **QUIET)
    assert (
        run.attrs["scale"] is None
        and run.attrs["unbounded"]
        and run["score"].is_monotonic_increasing
    )
    pairs = [pair("1", "long answer", "short"), pair("2", "a", "b"), pair("3", "x" * 999, "b")]
    run = judge.compare(pairs, **QUIET)
    assert run["verdict"].tolist() == ["a", "tie", None] and run["failure"].notna().sum() == 1
    assert run["verdict_ab"].equals(run["verdict_ba"])
    assert "a value head knows no order" in capsys.readouterr().err
    rank = judge.rank([{**items[0], "responses": ["aaa", "a", "aa"]}], **QUIET)
    assert rank["rank"].tolist() == [1, 3, 2]
    for options in ({"mode": "score"}, {"temperature": 1.0, "samples": 2}):
        with pytest.raises(ValueError, match="a value head writes and draws nothing"):
            judge.grade(items, **options)


def unread(prompt: Any, ask: Any, place: int) -> dict[str, Any]:
    """No verdict, closed where it is told to; the second row can't be closed."""
    answer: dict[str, Any] = {"text": "It is fine."}
    if ask.closing is None:
        return answer
    if place == 1:
        return answer | {"unclosed": "no room"}
    *others, last = ask.scale(place)
    logprobs = dict.fromkeys(others, math.log(0.05)) | {last: math.log(0.8)}
    return answer | {"closed": last, "score_logprobs": logprobs}


def test_an_answer_without_a_verdict_is_closed_where_that_is_wanted(rows: Any, capsys: Any) -> None:
    chat = TEMPLATES["chat"].as_messages()
    judge = judge_of(unread)
    judge.template = chat
    judge.pairs = TEMPLATES["chat-relative"].as_messages()
    assert chat.unread == "close", "the default of zero-shot wordings"
    run = judge.grade(rows[:3], **QUIET)
    assert run["closed"].tolist() == [True, False, True]
    assert run["score"].tolist() == pytest.approx([5, math.nan, 5], nan_ok=True)
    assert run["failure"].notna().tolist() == [False, True, False]
    assert run["expected_score"][0] == pytest.approx(4.5) and run["raw"][0] == "It is fine."
    assert run.attrs["closed"] == 2 and run.attrs["unclosed"] == {"no room": 1}
    said = capsys.readouterr().err
    assert "2 of 3 verdicts were closed" in said and "not closed: 1 x no room" in said
    run = judge.grade(rows[:3], unread="missing", **QUIET)
    assert run["score"].isna().all() and not run["closed"].any() and run.attrs["closed"] == 0
    run = judge.compare([pair("1")], **QUIET)
    assert run["verdict_ab"].tolist() == ["b"] and run["closed"].all()


def test_several_criteria_in_one_call(rows: Any, tmp_path: Path) -> None:
    """Scores by name, their weighted mean with its scale, the same from a continued record."""
    criteria = [
        {"name": "right", "criteria": "Is it right?", "weight": 3.0},
        {"name": "rude", "criteria": "Is it rude?", "weight": -1.0},
    ]
    items = [{**row, "criteria": criteria, "gold": None} for row in rows[:3]]
    answers = [
        {"feedback": "Fine.", "scores": {"right": 5, "rude": 1}},
        {"feedback": "Hm.", "scores": {"right": 4}},
        {"feedback": "No.", "scores": {"rude": 5, "right": 1}},
    ]
    seen: list[Any] = []

    def write(prompt: Any, ask: Any, place: int) -> tuple[str, Any]:
        seen.append((ask.schema(place), ask.scale(place)))
        return json.dumps(answers[place]), None

    judge = judge_of(write)
    with pytest.raises(ValueError, match="several criteria.*chat-json"):
        judge.grade(items, **QUIET)
    judge.template = TEMPLATES["chat-json"].as_messages()
    run = judge.grade(items, out=tmp_path, **QUIET)
    assert run["score"].tolist() == pytest.approx([3.5, math.nan, -0.5], nan_ok=True)
    assert run["scores"][0] == {"right": 5, "rude": 1} and run["failure"].notna().sum() == 1
    assert run.attrs["scale"] == (-0.5, 3.5) and run.attrs["without_distribution"] == 0
    assert set(seen[0][0]["properties"]["scores"]["properties"]) == {"right", "rude"}
    assert not seen[0][1] and len(seen) == 3
    pd.testing.assert_frame_equal(judge.grade(items, out=tmp_path, **QUIET), run)
    assert len(seen) == 3


def test_a_rubric_of_anchors_has_a_level_for_every_number(rows: Any) -> None:
    items = [{**rows[0], "descriptions": {0: "No.", 50: "Half.", 100: "Yes."}, "gold": 70.0}]
    run = fixed("x", "So. [RESULT] 85").grade([{**items[0], "human_scores": None}], **QUIET)
    assert run["score"].tolist() == [85.0] and run["gold"].tolist() == [70.0]
