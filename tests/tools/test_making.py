"""How the embedded judge was made: exact resumption, losses on the right tokens, pixels as the judge will see them."""

import itertools
import json
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import vjudge as vj
from assets import lessons, tiny
from assets.loop import LOG, Stage, train
from assets.tokenizer import TEMPLATE, make_tokenizer, phrases
from vjudge import prompts
from vjudge.data import scenes
from vjudge.records import Item


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(60)


@pytest.fixture(scope="module")
def data(tokenizer):
    return lessons.Lessons(tokenizer, seed=5, n_images=40)


def _train(folder, *, fail_at=None):
    """Two stages of a regression; `fail_at` counts steps over both."""
    torch.manual_seed(0)
    module = nn.Linear(4, 1)
    steps = itertools.count(1)

    def batch(step):
        x = torch.from_numpy(np.random.default_rng([3, step]).normal(size=(8, 4))).float()
        return x, x.sum(1, keepdim=True)

    def loss(made):
        if next(steps) == fail_at:
            raise KeyboardInterrupt
        return (module(made[0]) - made[1]).square().mean(), {"seen": 1.0}

    weights = list(module.parameters())
    stages = [
        Stage("first", 20, 1e-2, batch, loss, weights, warmup=3),
        Stage("second", 15, 5e-3, batch, loss, weights[:1], warmup=3),
    ]
    train(module, stages, folder, log_every=5, checkpoint_every=4, workers=0)
    log = (folder / LOG).read_text().splitlines()
    entries = [json.loads(line) | {"seconds": 0} for line in log]
    return module.state_dict(), entries


@pytest.mark.parametrize("fail_at", [1, 12, 20, 27])
def test_a_killed_training_resumes_to_the_same_weights_and_log(tmp_path, fail_at):
    weights, log = _train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path / "cut", fail_at=fail_at)
    resumed, entries = _train(tmp_path / "cut")
    torch.testing.assert_close(resumed, weights, rtol=0, atol=0)
    assert entries == log and len(log) == 4 + 3


def test_the_judge_is_trained_on_exactly_the_published_target(data, tokenizer):
    """Decoded, the labelled tokens are the target and the end; what comes before them is the prompt."""
    ids, labels, *_ = data.judge(2)
    rng = data.rng(3, 2)
    for row, marks in zip(ids, labels, strict=True):
        scene = data.scene(int(rng.integers(data.n_images)))
        made = scenes.case(scene, str(rng.choice(list(scenes.ASPECTS))), rng)[0]
        item = Item.from_row({"id": "x", "images": ["picture"], **made})
        prompt = data.encoder.ids(TEMPLATE.render(item))
        target = marks[marks != lessons.IGNORED].tolist()
        assert (
            tokenizer.decode(target)
            == f" {prompts.target(made['feedback'], int(made['gold']))}</s>"
        )
        rest = len(row) - len(prompt) - len(target)
        assert row.tolist() == prompt + target + [tokenizer.pad_token_id] * rest
        assert marks.tolist() == [lessons.IGNORED] * len(prompt) + target + [lessons.IGNORED] * rest


def test_reading_is_trained_on_what_the_response_says(data, tokenizer):
    """The labelled words after each "(k) said" are those of claim k of the response, never of the reference answer."""
    ids, labels, *_ = data.read(1, size=12)
    for row, marks in zip(ids, labels, strict=True):
        prompt, answers = tokenizer.decode(row).split(lessons.FEEDBACK)
        response = prompt.split(lessons.REFERENCE)[0]
        claims = dict(re.findall(r"\((\d)\) (.*?)\.(?: |$)", response))
        asked = re.findall(r"\((\d)\) said ([\w-]+), ([\w-]+)\.", answers)
        assert len(asked) == 8 and len(claims) == 4
        for number, said, key in asked:
            assert key in claims[number].split()
            assert said in claims[number].split() or said in ("present", "absent")
        trained = tokenizer.decode(marks[marks != lessons.IGNORED])
        assert trained == "".join(f" {said} {key}" for _, said, key in asked)


def test_pixels_equal_the_image_processors(data):
    """What is trained on is what grading will feed: the same resizing and normalisation."""
    picture = scenes.paint(data.scene(3))
    expected = lessons.make_image_processor()(picture, return_tensors="pt")["pixel_values"]
    assert torch.allclose(data.pixels([data._cached(3)]), expected, atol=1e-6)


def test_fixed_phrases_are_one_token_and_the_marker_is_no_special(tokenizer):
    for phrase in (*phrases(), " 1", " 2", " 3", " 4", " 5"):
        assert len(tokenizer.encode(phrase, add_special_tokens=False)) == 1
    ids = tokenizer.encode("a [RESULT] 3")
    assert "[RESULT]" in tokenizer.decode(ids, skip_special_tokens=True)


def test_a_few_steps_learn_and_save_a_judge_that_loads(tmp_path, tokenizer, data):
    """The whole recipe at its smallest: every stage runs, the folder loads, and a judge can be asked."""
    trainee = tiny.Trainee(tiny.make_model(tokenizer, seed=0))
    steps = dict.fromkeys(["tower", "describe", "read", "judge"], 2)
    train(trainee, tiny.stages(trainee, data, steps), tmp_path / "run", workers=0)
    tiny.save(trainee, tokenizer, tmp_path / "judge")
    judge = vj.load_judge(tmp_path / "judge")
    items = vj.load_collection("scenes", split="validation", limit=3)
    run = judge.grade(items, mode="score", progress=False)
    assert run["expected_score"].between(1, 5).all()


def test_the_base_keeps_the_judges_tower_and_says_how_it_was_made(tmp_path, monkeypatch, tokenizer):
    """`make base` at its smallest: it ends before the judge stage, and its card holds what was measured."""
    monkeypatch.setattr(tiny, "make_tokenizer", lambda: tokenizer)
    monkeypatch.setattr(tiny.card, "write_base", partial(tiny.card.write_base, n_judged=4))
    monkeypatch.setattr(tiny, "held_out", partial(tiny.held_out, batches=1))
    options = ["--tower", "tiny", "--last", "read", "--describe-steps", "1", "--read-steps", "1"]
    tiny.main(["--out", str(tmp_path), *options])
    assert not (tmp_path / "judge").exists()
    made, judge = (
        vj.load_judge(each, device="cpu").engine.model.model for each in (tmp_path / "read", "tiny")
    )
    towers = [each.model.vision_tower.state_dict() for each in (made, judge)]
    torch.testing.assert_close(*towers, rtol=0, atol=0)
    assert not torch.equal(made.lm_head.weight, judge.lm_head.weight)
    card = (tmp_path / "read/README.md").read_text(encoding="utf-8")
    assert "--tower tiny --last read" in card and "what a response claims |" in card
    log = pd.read_json(tmp_path / "read/training_log.jsonl", lines=True)
    assert log["stage"].tolist() == ["describe", "read"]
