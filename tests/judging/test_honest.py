"""What a table says of its own weaknesses: closed answers, probability elsewhere, no numbers."""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest

from originals import CRITERIA
from samples import Scripted, pair, scripted
from vjudge.judging.judge import Judge
from vjudge.judging.panel import panel
from vjudge.prompts import TEMPLATES


def forced(logprob):
    """A judge with these log-probabilities by place, beside a feedback that says 4."""

    def write(prompt, ask, place):
        logprobs = dict.fromkeys(ask.scale(place), logprob(place))
        return {"text": "" if ask.is_score_pass else "Fine. [RESULT] 4", "score_logprobs": logprobs}

    return scripted(write)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_none_are_no_verdict(rows, bad):
    judge = forced(lambda place: bad)
    frame = judge.grade(rows[:3], mode="score")
    assert frame[["score", "expected_score"]].isna().all(axis=None)
    assert frame.attrs["failures"] == {"no score of the rubric has a probability": 3}
    written = judge.grade(rows[:3])  # a verdict, without a distribution
    assert written["score"].tolist() == [4.0] * 3 and written["expected_score"].isna().all()
    with pytest.raises(ValueError, match="draws nothing"):
        judge.grade(rows[:2], mode="score", top_p=0.8)


def unread(prompt, ask, place):
    """No verdict, closed where it is told to; the second row can't be closed."""
    answer = {"text": "It is fine."}
    if ask.closing is None:
        return answer
    if place == 1:
        return answer | {"unclosed": "no room"}
    if ask.criteria[place]:
        return answer | {"closed_scores": dict.fromkeys(ask.criteria[place].by_name, 2)}
    *others, last = ask.scale(place)
    logprobs = dict.fromkeys(others, math.log(0.05)) | {last: math.log(0.8)}
    return answer | {"closed": last, "score_logprobs": logprobs}


def test_an_answer_without_a_verdict_is_closed_where_that_is_wanted(rows, capsys):
    chat = TEMPLATES["chat"].as_messages()
    assert chat.unread == "close", "the default of zero-shot wordings"
    pairs = TEMPLATES["chat-relative"].as_messages()
    judge = Judge("mine", template=chat, pairs=pairs, engine=Scripted(write=unread))
    run = judge.grade(rows[:3])
    assert run["closed"].tolist() == [True, False, True] == run["failure"].isna().tolist()
    assert run["score"].tolist() == pytest.approx([5, math.nan, 5], nan_ok=True)
    assert run["expected_score"][0] == pytest.approx(4.5) and run["raw"][0] == "It is fine."
    assert run.attrs["closed"] == 2 and run.attrs["unclosed"] == {"no room": 1}
    said = capsys.readouterr().err
    assert "2 of 3 verdicts were closed" in said and "1 of 3 were not closed: 1 x no room" in said
    together = panel([judge, replace(judge, name="other")]).grade(rows[:3])
    assert together["closed"].tolist() == [True, False, True]
    run = judge.grade(rows[:3], unread="missing")
    assert run["score"].isna().all() and not run["closed"].any() and run.attrs["closed"] == 0
    run = judge.compare([pair("1")])
    assert run["verdict_ab"].tolist() == ["b"] and run["closed"].all()


def test_several_criteria_in_one_call(rows, tmp_path, capsys):
    """Scores by name, their weighted mean with its scale, closed ones too; a record keeps them."""
    items = [{**row, "criteria": CRITERIA, "gold": None} for row in rows[:4]]
    scores = [{"right": 5, "rude": 1}, {"right": 4}, {"rude": 5, "right": 1}]
    answers = [json.dumps({"feedback": "Hm.", "scores": each}) for each in scores]

    def write(prompt, ask, place):
        names = ask.schema(place)["properties"]["scores"]["properties"]
        assert set(names) == {"right", "rude"} and not ask.scale(place)
        return answers[place] if place < 3 and place != 1 else unread(prompt, ask, place)

    judge = scripted(write)
    with pytest.raises(ValueError, match="several criteria.*chat-json"):
        judge.grade(items)
    judge.template = TEMPLATES["chat-json"].as_messages()
    run = judge.grade(items, out=tmp_path)
    assert run["score"].tolist() == pytest.approx([4, math.nan, 2, 2], nan_ok=True)
    assert run["scores"][0] == scores[0] and run["scores"][3] == {"right": 2, "rude": 2}
    assert run["closed"].tolist() == [False, False, False, True]
    assert run[["lowest", "highest"]].drop_duplicates().values.tolist() == [[1, 5]]
    assert "1 of 4 verdicts were closed" in capsys.readouterr().err
    pd.testing.assert_frame_equal(judge.grade(items, out=tmp_path), run)
    assert judge.engine.asked == 4
