"""How the embedded judge was made: exact resumption, losses on the right tokens, pixels as the judge will see them."""

from __future__ import annotations

import json
import re
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

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
def data(tokenizer) -> lessons.Lessons:
    return lessons.Lessons(tokenizer, seed=5, n_images=40)


class Killed(Exception):
    pass


def _two_stages(module: nn.Linear, *, fail_at: int | None = None) -> list[Stage]:
    """Two stages of a regression; `fail_at` counts steps over both."""
    seen = [0]

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        rng = np.random.default_rng([3, step])
        x = torch.from_numpy(rng.normal(size=(8, 4))).float()
        return x, x.sum(1, keepdim=True)

    def loss(made: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        seen[0] += 1
        if seen[0] == fail_at:
            raise Killed
        return (module(made[0]) - made[1]).square().mean(), {"seen": 1.0}

    weights = list(module.parameters())
    return [
        Stage("first", 20, 1e-2, batch, loss, weights, warmup=3),
        Stage("second", 15, 5e-3, batch, loss, weights[:1], warmup=3),
    ]


def _train(folder, *, fail_at: int | None = None) -> nn.Linear:
    torch.manual_seed(0)
    module = nn.Linear(4, 1)
    options = {"log_every": 5, "checkpoint_every": 4, "workers": 0}
    train(module, _two_stages(module, fail_at=fail_at), folder, **options)
    return module


@pytest.mark.parametrize("fail_at", [1, 12, 20, 27])
def test_a_killed_training_resumes_to_the_same_weights_and_log(tmp_path, fail_at):
    whole = _train(tmp_path / "whole")
    with pytest.raises(Killed):
        _train(tmp_path / "cut", fail_at=fail_at)
    resumed = _train(tmp_path / "cut")
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name

    def entries(folder: str) -> list[dict]:
        lines = (tmp_path / folder / LOG).read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]

    assert entries("cut") == entries("whole")
    assert len(entries("whole")) == 4 + 3


def test_the_judge_is_trained_on_exactly_the_published_target(data, tokenizer):
    """Decoded, the labelled tokens are the target and the end; what comes before them is the prompt."""
    ids, labels, *_ = data.judge(2)
    rng = data.rng(3, 2)
    for row, marks in zip(ids, labels, strict=True):
        scene = data.scene(int(rng.integers(data.n_images)))
        made = scenes.case(scene, str(rng.choice(list(scenes.ASPECTS))), rng)[0]
        target = prompts.target(made["feedback"], int(made["gold"]))
        trained = marks[marks != lessons.IGNORED]
        assert tokenizer.decode(trained) == f" {target}</s>"
        start = int((marks != lessons.IGNORED).nonzero()[0])
        item = Item.from_row({"id": "x", "images": ["picture"], **made})
        assert row[:start].tolist() == data.encoder.ids(TEMPLATE.render(item))
        assert row[start : start + len(trained)].tolist() == trained.tolist()
        assert (row[start + len(trained) :] == tokenizer.pad_token_id).all()


def test_checks_are_trained_on_what_is_seen_and_on_verdicts(data, tokenizer):
    claims = [scenes.Claim("top", "red", "blue")] * 3 + [scenes.Claim("left", "two", "two")]
    ids, labels = data.checked(claims)
    feedback = scenes.feedback(claims)
    assert tokenizer.decode(ids) == " " + prompts.target(feedback, 2)
    trained = [token for token in labels if token != lessons.IGNORED]
    assert tokenizer.decode(trained) == " blue wrong" * 3 + " two correct Three 2 2"
    blind = [token for token in data.checked(claims, seen=False)[1] if token != lessons.IGNORED]
    assert tokenizer.decode(blind) == " wrong" * 3 + " correct Three 2 2"


def test_reading_is_trained_on_what_the_response_says(data, tokenizer):
    """The labelled words after each "(k) said" are those of claim k of the response, never of the reference answer."""
    ids, labels, _, places = data.read(1, size=12)
    n_references = 0
    for row, marks, where in zip(ids, labels, places, strict=True):
        text = tokenizer.decode(row[row != tokenizer.pad_token_id]).removeprefix("<s>")
        prompt, answers = text.split(lessons.FEEDBACK)
        response = prompt.removeprefix(lessons.RESPONSE).split(lessons.REFERENCE)[0]
        n_references += lessons.REFERENCE in prompt
        claims = dict(re.findall(r"\((\d)\) (.*?)\.(?: |$)", response))
        asked = re.findall(r"\((\d)\) said ([\w-]+), ([\w-]+)\.", answers)
        assert len(asked) == 8 and len(claims) == 4
        for number, said, key in asked:
            assert key in claims[number].split()
            assert said in claims[number].split() or said in ("present", "absent")
        trained = tokenizer.decode(marks[marks != lessons.IGNORED])
        assert trained == "".join(f" {said} {key}" for _, said, key in asked)
        assert (where[row == tokenizer.pad_token_id] == lessons.IGNORED).all()
        reference = [int(k) for k in where.unique() if k > 4]
        assert bool(reference) == (lessons.REFERENCE in prompt)
    assert 0 < n_references < 12


def test_pixels_equal_the_image_processors(data):
    """What is trained on is what grading will feed: the same resizing and normalisation."""
    picture = scenes.draw(data.scene(3))
    expected = lessons.make_image_processor()(picture, return_tensors="pt")["pixel_values"]
    assert torch.allclose(data.pixels([data._cached(3)]), expected, atol=1e-6)


def test_fixed_phrases_are_one_token_and_the_marker_is_no_special(tokenizer):
    for phrase in phrases():
        assert len(tokenizer.encode(phrase, add_special_tokens=False)) == 1
    assert "[RESULT]" in tokenizer.decode(
        tokenizer.encode("a [RESULT] 3"), skip_special_tokens=True
    )
    for score in range(1, 6):
        assert len(tokenizer.encode(f" {score}", add_special_tokens=False)) == 1


def test_a_few_steps_learn_and_save_a_judge_that_loads(tmp_path, tokenizer, data):
    """The whole recipe at its smallest: every stage runs, the folder loads, and a judge can be asked."""
    import vjudge as vj

    trainee = tiny.Trainee(tiny.make_model(tokenizer, seed=0))
    steps = {"tower": 2, "describe": 2, "read": 2, "judge": 2}
    train(trainee, tiny.stages(trainee, data, steps), tmp_path / "run", workers=0)
    tiny.save(trainee, tokenizer, tmp_path / "judge")
    judge = vj.load_judge(tmp_path / "judge")
    run = judge.grade(
        vj.load_collection("scenes", split="validation", limit=3), mode="score", progress=False
    )
    assert run["expected_score"].between(1, 5).all()


def test_the_base_keeps_the_judges_tower_and_says_how_it_was_made(tmp_path, monkeypatch, tokenizer):
    """`make base` at its smallest: it ends before the judge stage, and its card holds what was measured."""
    import vjudge as vj

    monkeypatch.setattr(tiny, "make_tokenizer", lambda: tokenizer)
    monkeypatch.setattr(tiny.card, "write_base", partial(tiny.card.write_base, n_judged=4))
    monkeypatch.setattr(tiny, "held_out", partial(tiny.held_out, batches=1))
    options = ["--tower", "tiny", "--last", "read", "--describe-steps", "1", "--read-steps", "1"]
    tiny.main(["--out", str(tmp_path), *options])
    assert not (tmp_path / "judge").exists()
    made, judge = (
        vj.load_judge(each, device="cpu").engine.model.model for each in (tmp_path / "read", "tiny")
    )
    theirs = judge.model.vision_tower.state_dict()
    assert all(
        torch.equal(value, theirs[name])
        for name, value in made.model.vision_tower.state_dict().items()
    )
    assert not torch.equal(made.lm_head.weight, judge.lm_head.weight)
    card = (tmp_path / "read/README.md").read_text(encoding="utf-8")
    assert "--tower tiny --last read" in card and "what a response claims |" in card
    stages = [
        json.loads(line)["stage"]
        for line in (tmp_path / "read/training_log.jsonl").read_text().splitlines()
    ]
    assert stages == ["describe", "read"]
