"""Each answer of "How do I ...?" runs as it stands on the page, on data of the kind that it speaks of."""

import dataclasses
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import vjudge as vj

PAGE = (Path(__file__).parents[1] / "notebooks/README.md").read_text(encoding="utf-8")
ANSWERS = dict(re.findall(r"\*\*\.\.\. ([^*]+)\?\*\*.*?```python\n(.*?)```", PAGE, re.S))
ADDRESS = "http://localhost:8000/v1"
BODY = "Rate the answer to {instruction}: {response} {look}End with: The final score is N."


def rows(n=6, **columns):
    frame = pd.DataFrame({"id": [f"a{k}" for k in range(n)], "image_path": "cat.png"})
    frame["instruction"] = "What is it?"
    frame["response"] = [f"A cat {k}." for k in range(n)]
    frame["descriptions"] = '["bad", "poor", "fair", "good", "right"]'
    return frame.assign(criteria="Is it right?", **columns)


@pytest.fixture(scope="module")
def tiny():
    return vj.load_judge("tiny", device="cpu")


@pytest.fixture
def room(tiny, tmp_path, monkeypatch):
    """A folder with a picture, a collection, and the names that the answers use."""
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 30), "teal").save("cat.png")
    scores = {"anna": [1, 2, 3, 4, 5, 3], "ben": [1, 3, 3, 4, 4, 2]}
    rows(**scores).to_csv("items.csv", index=False)
    renamed = {"instruction": "question", "response": "answer"}
    rows().rename(columns=renamed).to_csv("mine.csv", index=False)
    collection = rows(topic=["x", "y"] * 3, gold=[1, 2, 3, 4, 5, 3])
    items = vj.load_collection(collection)
    run = tiny.grade(items, mode="score", out="outputs/critic", progress=False)
    other = run.assign(judge="other", score=run["score"].to_numpy()[::-1])
    return {
        "vj": vj,
        "dataclasses": dataclasses,
        "judge": tiny,
        "items": items,
        "run": run,
        "other_run": other,
        "frame": rows(),
        "BODY": BODY,
    }


def answer(question, names):
    exec(ANSWERS[question], names)
    return names


def test_the_page_has_every_question_and_three_lines_each():
    asked = re.findall(r"\*\*\.\.\. ([^*]+)\?\*\*", PAGE)
    assert len(asked) >= 15 and set(asked) == set(ANSWERS)
    assert all(len(code.strip().splitlines()) <= 3 for code in ANSWERS.values())


def test_own_tables_come_in(room):
    items = answer("use my annotators' columns", room)["items"]
    assert list(items[2]["human_scores"]) == [3.0, 3.0]
    assert answer("use other column names", room)["items"][0]["response"] == "A cat 0."
    items = answer("give levels, anchors, or a scale of -3 to 3 in a CSV", room)["items"]
    assert items[0]["lowest"] == -3 and len(items[0]["descriptions"]) == 7


def test_grading_without_a_rubric_and_with_a_wording_of_ones_own(room):
    room["items"] = vj.load_collection(room["frame"].drop(columns=["criteria", "descriptions"]))
    run = answer("judge without a rubric", room)["run"]
    assert len(run) == 6 and run["raw"].notna().all()
    judge = answer("use my own wording and reader", room)["judge"]
    assert judge.render(room["items"][0]).count("End with: The final score is N.") == 1
    assert "prompt tokens" in " ".join(map(str, judge.plan(room["items"]).index)).lower()


def test_criteria_examples_and_candidates(room, tmp_path):
    run = answer("grade by a checklist, or by several criteria", room)["run"]
    assert set(run["scores"][0]) == {"sign", "depth"} and (run["lowest"] == 1).all()
    graded = rows(1, gold=4, feedback="It is a cat.").assign(id="shown", response="A tom cat.")
    room |= {"graded": graded, "items": rows(8, group=list("aabbccdd"), gold=[1, 2, 3, 4] * 2)}
    run = answer("show my judge graded examples", room)["run"]
    assert (run["n_prompt_tokens"] > room["judge"].grade(room["items"])["n_prompt_tokens"]).all()
    answer("choose between wordings honestly", room)
    assert (tmp_path / "figures/align.pdf").is_file()


def test_runs_are_reopened_combined_split_and_put_on_paper(room, tmp_path):
    run = answer("reopen a run elsewhere, without its judge or GPU", room)["run"]
    pd.testing.assert_series_equal(run["score"], room["run"]["score"])
    assert answer("combine k votes an item", room)["run"]["n"].tolist() == [5] * 6
    result = eval(ANSWERS["split by a column of my own"], room)
    assert set(result.table["topic"]) == {"overall", "x", "y"}
    answer("get from a run to a paper's figures", room)
    assert (tmp_path / "outputs/paper/correlation.pdf").is_file()


def test_a_picture_is_a_response(room):
    run = answer("judge pictures, such as an image generator's", room)["run"]
    assert run["sees_image"].tolist() == [True] and run["highest"].tolist() == [3]


def test_two_judges_on_pairs(room):
    verdicts = np.resize(["a", "b", "tie"], 30)
    frame = pd.DataFrame({"id": range(30), "verdict": verdicts, "preference": "a"})

    class Compares:
        def compare(self, pairs):
            return frame

    room |= {"one": Compares(), "other": Compares(), "pairs": None}
    answer("compare two judges on pairs", room)
    accuracy = room["both"].accuracy().table.query("statistic == 'with_ties'")
    assert accuracy["estimate"].tolist() == pytest.approx([1 / 3, 1 / 3])


def test_a_served_judge_is_one_parameter(room):
    judge = answer("use a judge behind a server in a notebook", room)["judge"]
    assert judge.name == "openai:my-model"


def test_rewards_train_a_policy_and_a_value_head_is_served(room, tmp_path, monkeypatch):
    from safetensors.torch import save_file
    from torch import ones

    calls = []
    monkeypatch.setattr(vj.preference, "grpo", lambda *call, **options: calls.append(call))
    answer(
        "train a policy on a judge's rewards", room | {"preference": vj.preference, "questions": []}
    )
    assert calls == [("tiny-policy", [], room["judge"], "outputs/grpo")]
    folder = tmp_path / "reward"
    shutil.copytree(vj.models.locate("tiny"), folder)
    save_file({"v_head.summary.weight": ones(1, 8)}, folder / "value_head.safetensors")
    judge = answer("serve a reward model", room | {"reward_model": folder, "ADDRESS": ADDRESS})[
        "judge"
    ]
    assert judge.gives_values and (tmp_path / "outputs/served/score.safetensors").is_file()


def test_what_there_is_and_what_it_costs(room):
    table = eval(ANSWERS["list judges, benchmarks, wordings, verdict sets"], room)
    assert {"judge", "wording", "benchmark", "verdicts", "probe"} <= set(table["kind"])
    assert len(eval(ANSWERS["know what a run will cost"], room))


def test_clones_are_read_from_their_folder():
    code = ANSWERS["use a clone of public files"]
    assert "folder=" in code
    with pytest.raises(vj.data.CollectionError, match="clones"):
        exec(code, {"vj": vj})


def test_people_are_what_training_learns_from():
    import inspect

    from vjudge.training import fine_tune

    assert "truth" in inspect.signature(fine_tune).parameters
