"""What a table says of its own weaknesses: closed answers, probability elsewhere, no numbers."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest

import vjudge as vj
from samples import Scripted, pair, scripted
from vjudge.grading import LOW_MASS
from vjudge.judge import Judge
from vjudge.prompts import TEMPLATES

QUIET = {"progress": False}


def forced(logprob):
    """A judge with these log-probabilities by place, beside a feedback that says 4."""

    def write(prompt, ask, place):
        logprobs = dict.fromkeys(ask.scale(place), logprob(place))
        return {"text": "" if ask.scores else "Fine. [RESULT] 4", "score_logprobs": logprobs}

    return scripted(write)


def test_verdicts_with_little_probability_are_counted_and_said(rows, capsys):
    """Five scores with a tenth of LOW_MASS each in two rows, with nearly all of it in others."""
    judge = forced(lambda place: math.log(LOW_MASS / 10 if place < 2 else 0.19))
    frame = judge.grade(rows[:5], mode="score", **QUIET)
    assert frame.attrs["low_mass"] == 2 and frame["score"].notna().all()
    assert frame["probability_mass"].round(3).tolist() == [0.25, 0.25, 0.95, 0.95, 0.95]
    line = "2 of 5 verdicts rest on less than 0.5 of the probability"
    assert capsys.readouterr().err.startswith(line)
    written = judge.grade(rows[:5], **QUIET)  # the judge wrote this verdict itself
    assert written.attrs["low_mass"] == 0
    assert judge.compare([pair("x")], mode="score", **QUIET).attrs["low_mass"] == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_none_are_no_verdict(rows, bad):
    judge = forced(lambda place: bad)
    frame = judge.grade(rows[:3], mode="score", **QUIET)
    assert frame[["score", "expected_score"]].isna().all(axis=None)
    assert frame["failure"].notna().all()
    compared = judge.compare([pair("x"), pair("y")], mode="score", **QUIET)
    assert compared[["verdict", "probability_a"]].isna().all(axis=None)
    assert sum(compared.attrs["failures"].values()) == 4
    for by, row in (("pairs", pair("x")), ("scores", rows[0])):
        ranked = judge.rank([{**row, "responses": ["one", "two"]}], by=by, mode="score", **QUIET)
        assert ranked["rank"].isna().all() and not ranked["best"].any()
        assert ranked["missing"].ge(1).all()
    written = judge.grade(rows[:3], **QUIET)  # a verdict, without a distribution
    assert written["score"].tolist() == [4.0] * 3 and written["expected_score"].isna().all()
    assert written.attrs["without_distribution"] == 3


@pytest.mark.parametrize("name", ["prometheus-vision", "prometheus", "llava-critic"])
def test_a_score_pass_takes_the_published_decoding_as_a_whole_and_no_other(name, rows):
    judge = forced(lambda place: -1.0)
    judge.family = vj.prompts.families.FAMILIES[name]
    published = dict(judge.family.published)
    plain = judge.grade(rows[:2], mode="score", **QUIET)
    taken = judge.grade(rows[:2], mode="score", **published, **QUIET)
    pd.testing.assert_frame_equal(taken, plain)
    published.pop("samples", None)
    judge.compare([pair("x")], mode="score", **published, **QUIET)
    others = ({"top_p": 0.8}, {"repetition_penalty": 1.5}, {"samples": 7, "temperature": 1.0})
    for options in others:
        with pytest.raises(ValueError, match="draws nothing"):
            judge.grade(rows[:2], mode="score", **options, **QUIET)


def unread(prompt, ask, place):
    """No verdict, closed where it is told to; the second row can't be closed."""
    answer = {"text": "It is fine."}
    if ask.closing is None:
        return answer
    if place == 1:
        return answer | {"unclosed": "no room"}
    if ask.criteria[place]:
        return answer | {"closed_scores": dict.fromkeys(ask.criteria[place], 2)}
    *others, last = ask.scale(place)
    logprobs = dict.fromkeys(others, math.log(0.05)) | {last: math.log(0.8)}
    return answer | {"closed": last, "score_logprobs": logprobs}


def test_an_answer_without_a_verdict_is_closed_where_that_is_wanted(rows, capsys):
    chat = TEMPLATES["chat"].as_messages()
    assert chat.unread == "close", "the default of zero-shot wordings"
    pairs = TEMPLATES["chat-relative"].as_messages()
    judge = Judge("mine", template=chat, pairs=pairs, engine=Scripted(write=unread))
    run = judge.grade(rows[:3], **QUIET)
    assert run["closed"].tolist() == [True, False, True] == run["failure"].isna().tolist()
    assert run["score"].tolist() == pytest.approx([5, math.nan, 5], nan_ok=True)
    assert run["expected_score"][0] == pytest.approx(4.5) and run["raw"][0] == "It is fine."
    assert run.attrs["closed"] == 2 and run.attrs["unclosed"] == {"no room": 1}
    said = capsys.readouterr().err
    assert "2 of 3 verdicts were closed" in said and "not closed: 1 x no room" in said
    run = judge.grade(rows[:3], unread="missing", **QUIET)
    assert run["score"].isna().all() and not run["closed"].any() and run.attrs["closed"] == 0
    run = judge.compare([pair("1")], **QUIET)
    assert run["verdict_ab"].tolist() == ["b"] and run["closed"].all()


def test_several_criteria_in_one_call(rows, tmp_path, capsys):
    """Scores by name, their weighted mean with its scale, closed ones too; a record keeps them."""
    criteria = [
        {"name": "right", "criteria": "Is it right?", "weight": 3.0},
        {"name": "rude", "criteria": "Is it rude?", "weight": -1.0},
    ]
    items = [{**row, "criteria": criteria, "gold": None} for row in rows[:4]]
    scores = [{"right": 5, "rude": 1}, {"right": 4}, {"rude": 5, "right": 1}]
    answers = [json.dumps({"feedback": "Hm.", "scores": each}) for each in scores]

    def write(prompt, ask, place):
        names = ask.schema(place)["properties"]["scores"]["properties"]
        assert set(names) == {"right", "rude"} and not ask.scale(place)
        return answers[place] if place < 3 and place != 1 else unread(prompt, ask, place)

    judge = scripted(write)
    with pytest.raises(ValueError, match="several criteria.*chat-json"):
        judge.grade(items, **QUIET)
    judge.template = TEMPLATES["chat-json"].as_messages()
    run = judge.grade(items, out=tmp_path, **QUIET)
    assert run["score"].tolist() == pytest.approx([3.5, math.nan, -0.5, 1.0], nan_ok=True)
    assert run["scores"][0] == scores[0] and run["scores"][3] == {"right": 2, "rude": 2}
    assert run["closed"].tolist() == [False, False, False, True]
    assert run.attrs["scale"] == (-0.5, 3.5) and run.attrs["without_distribution"] == 0
    assert "1 of 4 verdicts were closed" in capsys.readouterr().err
    pd.testing.assert_frame_equal(judge.grade(items, out=tmp_path, **QUIET), run)
    assert judge.engine.asked == 4


def test_a_rubric_of_anchors_has_a_level_for_every_number(rows):
    anchors = {"descriptions": {0: "No.", 50: "Half.", 100: "Yes."}, "gold": 70.0}
    item = {**rows[0], **anchors, "human_scores": None}
    run = scripted(lambda prompt, ask, place: "So. [RESULT] 85").grade([item], **QUIET)
    assert run["score"].tolist() == [85.0] and run["gold"].tolist() == [70.0]
