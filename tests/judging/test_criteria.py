"""Rubrics of several criteria, each with its own levels: asked together or apart, closed, kept, combined."""

import json
import math

import pandas as pd
import pytest

import vjudge as vj
from samples import judge_of, row, scripted
from vjudge.data import CollectionError
from vjudge.judging.loading import load_run
from vjudge.prompts import TEMPLATES

SIGN = {"name": "sign", "criteria": "Is the sign read?", "descriptions": {0: "No.", 1: "Yes."}}
DEPTH = {"name": "depth", "criteria": "How deep?", "descriptions": {0: "Flat.", 10: "Deep."}}
STYLE = {"name": "style", "criteria": "Is it clear?", "weight": 2}  # on the row's 1 to 5
ITEM = row(images=[], criteria=[SIGN, DEPTH, STYLE])
SCORES = {"sign": 1, "depth": 5, "style": 4}
MEAN = 1 + 4 * (1 + 0.5 + 2 * 0.75) / 4  # shares by weights, on the row's scale


def apart(prompt, ask, place):
    """Each criterion's score behind its question; no verdict where the response says so."""
    prompt = prompt.text
    if "True?" in prompt:
        return "[RESULT] 2"
    (score,) = (SCORES[entry["name"]] for entry in ITEM["criteria"] if entry["criteria"] in prompt)
    if "silent" in prompt and score == 5:
        return "Hm."
    *_, highest = ask.scale(place)
    return f"Out of {highest}, this. [RESULT] {score}"


def test_one_call_shows_each_level_and_reads_each_scale():
    judge = judge_of(json.dumps({"feedback": "Hm.", "scores": SCORES}), template="chat-json")
    text = judge.render(ITEM)
    for line in (
        "sign: Is the sign read?\nScore 0: No.\nScore 1: Yes.\ndepth: How deep?\nScore 0:",
    ):
        assert line in text
    assert "from its lowest to its highest score?" in text and '"depth": 5, "style": 3' in text
    assert "of the highest scores: Red." in judge.render(ITEM | {"reference_answer": "Red."})
    form = judge.template.schema(vj.Item.from_row(ITEM).rubric)["properties"]["scores"]
    assert form["properties"]["sign"]["enum"] == [0, 1]
    assert form["properties"]["depth"]["enum"] == list(range(11))
    run = judge.grade([ITEM, ITEM | {"id": "b", "descriptions": None, "criteria": [SIGN, DEPTH]}])
    assert run["score"].tolist() == [MEAN, 0.75] and run["scores"][0] == SCORES
    assert run[["lowest", "highest"]].values.tolist() == [[1, 5], [0, 1]]


def test_a_call_each_in_any_wording_that_shows_a_rubric(tmp_path):
    rows = [ITEM, ITEM | {"id": "b", "response": "silent"}, row("c", images=[])]
    judge = scripted(apart)
    run = judge.grade(rows, criteria="apart", out=tmp_path)
    assert judge.engine.asked == 7
    assert run["score"].tolist() == pytest.approx([MEAN, math.nan, 2], nan_ok=True)
    assert run["scores"].tolist() == [SCORES, SCORES | {"depth": None}, None]
    assert run["failure"].tolist() == [None, "depth: no verdict marker", None]
    assert run["feedback"][0].splitlines()[1] == "depth: Out of 10, this."
    assert run[["lowest", "highest"]].drop_duplicates().values.tolist() == [[1, 5]]
    assert run["n_new_tokens"][0] == 3 * run["n_new_tokens"][2]
    assert "criterion" not in run and run.attrs["failures"] == {"no verdict marker": 1}
    pd.testing.assert_frame_equal(load_run(tmp_path), run)
    pd.testing.assert_frame_equal(judge.grade(rows, criteria="apart", out=tmp_path), run)
    assert judge.engine.asked == 7, "all of it came from the record"
    drawn = judge.grade(rows[:1], criteria="apart", samples=2, temperature=1.0)
    assert drawn["sample"].tolist() == [0, 1] and drawn["score"].tolist() == [MEAN, MEAN]


def test_a_score_pass_of_each_has_expected_scores():
    def sure(prompt, ask, place):
        lowest, *_, highest = ask.scale(place)
        return {
            "score_logprobs": {
                n: math.log(0.5 * (n in (lowest, highest)) or 1e-9) for n in ask.scale(place)
            }
        }

    run = scripted(sure).grade([ITEM], criteria="apart", mode="score")
    assert run["expected_score"][0] == pytest.approx(3) and run["score"][0] == 1
    assert run["scores"][0] == {"sign": 0, "depth": 0, "style": 1}


def test_who_can_not_ask_so_refuses():
    with pytest.raises(ValueError, match="'llava-critic' asks for no score of a criterion"):
        judge_of().grade([ITEM], criteria="apart")
    with pytest.raises(ValueError, match="criteria='each': use one of together, apart"):
        scripted(apart).grade([ITEM], criteria="each")
    with pytest.raises(ValueError, match="or criteria='apart'"):
        scripted(apart).grade([ITEM])
    with pytest.raises(TypeError, match="no option 'criteria'"):
        judge_of().compare([], criteria="apart")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([SIGN, SIGN], "row 1 .id 'b'., criteria: a name stands twice"),
        ([SIGN | {"weight": -1}], "row 1 .id 'b'., criteria: criterion 'sign': the weight -1"),
        (
            [SIGN | {"descriptions": {0: "No."}}],
            "row 1 .id 'b'., criteria: criterion 'sign': has 1",
        ),
        ([SIGN | {"levels": 3}], "row 1 .id 'b'., criteria: criterion 'sign': its levels would"),
    ],
)
def test_bad_criteria_are_named_before_the_run(change, message):
    judge = judge_of(template="chat-json")
    with pytest.raises(CollectionError, match=message):
        judge.grade([ITEM, ITEM | {"id": "b", "criteria": change}])
    assert not judge.engine.asked


def test_levels_go_through_files(tmp_path):
    rows = [ITEM, ITEM | {"id": "b", "criteria": json.dumps([STYLE])}]
    pd.DataFrame(rows).to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    loaded = list(vj.load_collection(str(tmp_path / "rows.jsonl")))
    assert vj.Item.from_row(loaded[0]).rubric == vj.Item.from_row(ITEM).rubric
    assert vj.Item.from_row(loaded[1]).rubric.mixed is False


def test_a_panel_keeps_its_members_scores_by_criterion():
    judges = [
        judge_of(json.dumps({"scores": SCORES | {"sign": n}}), template="chat-json") for n in (0, 1)
    ]
    judges[1].name = "other"
    run = vj.panel(judges).grade([ITEM])
    assert run["scores_scripted"][0] == SCORES | {"sign": 0} and run["scores_other"][0] == SCORES
    assert run["score"][0] == MEAN - 0.5


def test_the_embedded_judge_closes_several_and_reads_each_answer_once(monkeypatch):
    from vjudge.prompts import parse as parsing

    reads = []
    read = parsing._read
    monkeypatch.setattr(parsing, "_read", lambda *call: reads.append(call) or read(*call))
    items = [row | {"criteria": [SIGN, STYLE]} for row in vj.load_collection("scenes", limit=2)]
    items = [item | {"gold": None, "human_scores": None} for item in items]
    judge = vj.load_judge("tiny", template="chat-json", device="cpu")
    run = judge.grade(items, max_new_tokens=3, progress=False)
    assert run["closed"].all() and len(reads) == 2
    assert all(each["sign"] in (0, 1) and each["style"] in range(1, 6) for each in run["scores"])
    assert TEMPLATES["chat-json"].unread == "close"
