"""The record of a run: what is there is reused, a line belongs to its run, no kill changes the table."""

import json
import math
import os
import random
import select
import shutil
import signal
import sys
import time
from dataclasses import replace
from datetime import date
from types import SimpleNamespace

import pandas as pd
import pytest

from chatmodels import chatml_tokenizer
from samples import pair, scripted
from vjudge.judging import asking
from vjudge.judging.asking import Question
from vjudge.judging.grading import verdict_key
from vjudge.judging.runs import Run, RunError
from vjudge.prompts import TEMPLATES
from vjudge.prompts.conversation import IMAGE, Control, Prompt, Reply
from vjudge.records import Criterion, Rubric


def grader(name="scripted", *, slow=0.0):
    """A judge whose score depends on what it is shown and on its seed alone."""

    def write(prompt, ask, place):
        time.sleep(slow)
        score = 1 + (len(prompt.text) + (ask.seed(place) if ask.temperature else 0)) % 5
        logprobs = {n: math.log(0.9 if n == score else 0.02) for n in ask.scale(place)}
        return {"text": f"So. [RESULT] {score}", "score_logprobs": logprobs}

    return scripted(write, name)


@pytest.mark.parametrize(
    ("change", "asked", "said"),
    [
        (lambda rows: rows[:6], 0, ""),
        (lambda rows: rows[:9], 3, "reused 6, new 3, 0 kept"),
        (lambda rows: rows[2:5], 0, "reused 3, new 0, 3 kept"),
        (lambda rows: rows[5::-1], 0, ""),
        (lambda rows: [{**rows[0], "response": "other"}, *rows[1:6]], 1, "reused 5, new 1, 1 kept"),
        (lambda rows: [{**rows[0], "images": rows[-1]["images"]}, *rows[1:6]], 1, "new 1, 1 kept"),
        (lambda rows: [{**row, "gold": 3.0} for row in rows[:6]], 0, ""),
        (lambda rows: [{**row, "descriptions": ["a", "b"]} for row in rows[:6]], 6, "6 kept"),
    ],
)
def test_a_changed_collection_reuses_what_is_there(change, asked, said, rows, tmp_path, capsys):
    rows = [{**row, "human_scores": None, "gold": None} for row in rows[:-1]] + [rows[-1]]
    changed = change(rows)
    grader().grade(rows[:6], out=tmp_path)
    capsys.readouterr()
    for expected in (asked, 0):
        judge = grader()
        frame = judge.grade(changed, out=tmp_path)
        assert judge.engine.asked == expected
        assert expected == 0 or said in capsys.readouterr().err
        pd.testing.assert_frame_equal(frame, grader().grade(changed))


def test_a_run_keeps_the_day_that_its_prompts_name(rows, tmp_path, monkeypatch):
    """At midnight a chat template with a date changed every prompt, and nothing was reused."""
    tokenizer = chatml_tokenizer(["<image>"], "<image>")
    tokenizer.chat_template = "{{ strftime_now('%d %b %Y') }}" + tokenizer.chat_template
    bound = TEMPLATES["prometheus-vision"].as_messages().bind(tokenizer, image_token="<image>")
    seen = []

    def on(day, folder):
        monkeypatch.setattr(asking, "date", SimpleNamespace(today=lambda: date(2026, 11, day)))
        judge = scripted(lambda prompt, ask, place: seen.append(prompt.text) or {"text": "Hm."})
        replace(judge, template=bound).grade(rows[:3], out=tmp_path / folder)
        return judge.engine.asked

    assert (on(28, "a"), on(29, "a"), on(29, "b")) == (3, 0, 3)
    assert [text[:11] for text in seen] == ["28 Nov 2026"] * 3 + ["29 Nov 2026"] * 3
    assert Run(tmp_path / "a").manifest["day"] == "2026-11-28"
    grader().grade(rows[:1], out=tmp_path / "c")
    assert "day" not in Run(tmp_path / "c").manifest


def test_a_run_of_an_older_version_finds_its_verdicts_again():
    """A class of prompts got another name, and with it every verdict another key: all were asked again."""
    levels = {1: "No.", 5: "Yes."}
    named = (Criterion("a", "Right?"), Criterion("b", "Clear?", 2.0, {0: "No.", 1: "Yes."}))
    rubric = Rubric("a: Right?\nb: Clear?", levels, named=named)
    parts = (Control("<|im_start|>"), "See ", IMAGE, Reply("[RESULT] 3"), " <image>")
    question = Question(0, "id", Prompt(parts, "Be fair."))
    asked = replace(
        question, row=7, sample=1, order="ab", scores=(0, 1), rubric=rubric, criterion={"name": "a"}
    )
    asked = replace(asked, images=[SimpleNamespace(key="k")])
    keys = [verdict_key(asked), verdict_key(question)]
    assert keys == [
        "89408baf45de0e1fd17d1cd01432a5f266881316d4ea67814f87622005223064",
        "b3777ea6c7d77992bc90d0970c891e78ce84070251ae1e54076ad3d09b1bbb5d",
    ]


def test_more_samples_reuse_the_first(rows, tmp_path):
    options = {"temperature": 1.0, "out": tmp_path}
    judge = grader()
    for samples in (2, 3, 3):
        frame = judge.grade(rows[:4], samples=samples, **options)
    assert len(frame) == judge.engine.asked == 12
    with pytest.raises(RunError, match="differs from this call in template"):
        judge.compare([pair("1"), pair("2")], samples=2, **options)


def test_lines_copied_from_another_judges_folder_are_never_taken_over(rows, tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    for name, folder in (("mine", mine), ("other", other)):
        grader(name).grade(rows[:4], out=folder)
    shutil.copy(other / "verdicts.jsonl", mine / "verdicts.jsonl")
    judge = grader("mine")
    with pytest.warns(RuntimeWarning, match="4 damaged lines.*copied from another run"):
        judge.grade(rows[:4], out=mine)
    assert judge.engine.asked == len(Run(mine).verdicts()) == 4


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on Windows")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*damaged lines:RuntimeWarning")
def test_kills_at_any_time_give_the_same_table(rows, tmp_path):
    """Nothing that was reported as saved is lost or asked again."""
    options = {"samples": 12, "temperature": 1.0, "progress": False}
    rows = rows[:5]
    unbroken = grader().grade(rows, **options)
    reported = []
    append = Run.append
    draw = random.Random(0)
    kills = 0
    while True:
        here, there = os.pipe()

        def reporting(self, verdicts, pipe=there):
            append(self, verdicts)
            saved = [[verdict["id"], verdict["sample"]] for verdict in verdicts]
            os.write(pipe, json.dumps(saved).encode() + b"\n")

        child = os.fork()
        if not child:
            Run.append = reporting
            grader(slow=0.001).grade(rows, out=tmp_path, **options)
            os._exit(0)
        os.close(there)
        select.select([here], [], [])  # the first verdict of this child, or its end
        time.sleep(draw.choice([0.0, draw.uniform(0.0, 0.003)]))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with open(here, encoding="utf-8") as pipe:
            for line in pipe:
                reported += [(id, sample) for id, sample in json.loads(line)]
        if status == 0:
            break
        kills += 1
    assert kills >= 20 and len(reported) == len(set(reported))
    final = grader().grade(rows, out=tmp_path, **options)
    pd.testing.assert_frame_equal(final, unbroken)
    written = [(line["id"], line["sample"]) for line in Run(tmp_path).verdicts()]
    assert set(reported) <= set(written) and len(written) == len(set(written)) == len(unbroken)
    assert len(list(tmp_path.iterdir())) <= 4
