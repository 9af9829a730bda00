"""Fine-tuning: it learns, on every architecture, resumes exactly, and says what came of it."""

import json
import math
from dataclasses import replace

import numpy as np
import torch
import transformers
from pandas import DataFrame
from PIL import Image
from pytest import mark, raises, warns
from safetensors.torch import load_file
from training_cases import (
    QUIET,
    at_step,
    die,
    entries_of,
    losses_of,
    pairs_with_feedback,
    result_of,
    rows_with_feedback,
    train,
    weights_of,
)

from chatmodels import CHATS, TEXTS
from originals import logits_of
from samples import turns
from vjudge.data import CollectionError, canonical
from vjudge.judging.loading import load_judge
from vjudge.prompts import TEMPLATES
from vjudge.training import checks, trainer, weights
from vjudge.training.weights import part_of

pytestmark = QUIET
LORA = {"lora": {"r": 4}}
WAYS = [*((kind, LORA) for kind in (*CHATS, "onevision", "llama")), ("qwen3_vl", {}), ("bloom", {})]
WAYS += [("qwen3_vl", {"lora": {"r": 4, "merge": False}})]
WAYS += [("gemma3", {"precision": "bfloat16", "freeze": []})]


@mark.parametrize("kind, way", WAYS)
def test_every_architecture_trains_loads_and_grades(kind, way, base_of, tmp_path):
    wording = TEXTS.get(kind, "chat")
    folder = train(base_of(kind), tmp_path / "out", steps=2, template=wording, lr=1e-2, **way)
    assert len(losses_of(tmp_path / "out")) == 2
    judge = load_judge(folder, device="cpu")
    assert judge.template.name == wording
    run = judge.grade(rows_with_feedback(1), mode="score", progress=False)
    assert run["failure"].isna().all()
    before = load_judge(base_of(kind), device="cpu", template=wording)
    assert not torch.allclose(logits_of(judge, "Is it?"), logits_of(before, "Is it?"), atol=1e-3)


def test_one_batch_is_learned_by_heart_and_without_a_bar(random_judge, tmp_path, capsys):
    rows = rows_with_feedback(3)
    for row, name in zip(rows, ("white", "red", "blue"), strict=True):
        row |= {"images": [Image.new("RGB", (16, 16), name)], "response": f"it is {name} {name}"}
    options = dict(steps=50, batch_size=3, lr=5e-3, log_every=10, checkpoint_every=50)
    folder = train(random_judge, tmp_path, rows, template="prometheus-vision", **options)
    first, *_, last = losses_of(tmp_path)
    assert first > 1 and last < 0.05
    run = load_judge(folder, device="cpu").grade(rows, max_new_tokens=60, progress=False)
    assert run["score"].tolist() == [row["gold"] for row in rows]
    assert run["feedback"].str.startswith("It is answer").all()
    assert {"loss_last": last, "lesson": None}.items() <= result_of(tmp_path).items()
    assert "%|" not in capsys.readouterr().err  # progress=False: transformers' own bars too


@mark.parametrize(
    "kind, wording",
    [("qwen2_vl", "r1-reward"), ("onevision", "llava-critic-pair"), ("llava", "chat-relative")],
)
def test_pair_wordings_train_from_preferences_and_are_loaded(kind, wording, base_of, tmp_path):
    rows = pairs_with_feedback(2)
    options = dict(template=wording, steps=3, batch_size=2, lr=1e-2)
    folder = train(base_of(kind), tmp_path / "out", rows, **options)
    losses = losses_of(tmp_path / "out")
    judge = load_judge(folder, device="cpu")
    assert losses[-1] < losses[0] and judge.pairs.name == wording
    assert len(judge.compare(rows[:1], orders="one", max_new_tokens=4, progress=False)) == 1


def test_a_wording_of_ones_own_is_stored_and_a_training_that_teaches_nothing_says_so(
    base_of, tmp_path
):
    own = replace(TEMPLATES["chat"], name="mine", body="Mine.\n" + TEMPLATES["chat"].body)
    with warns(UserWarning, match="nothing was learned that shows: the loss was"):
        folder = train(base_of("qwen2_vl"), tmp_path, template=own, steps=2, lr=0.0)
    assert "nothing was learned that shows" in (folder / "README.md").read_text()
    judge = load_judge(folder, device="cpu")
    assert judge.template.name == "mine" and "Mine.\n" in judge.render(rows_with_feedback(1)[0])


def test_a_killed_training_resumes_to_the_same_weights_and_log(random_judge, tmp_path):
    held_out = rows_with_feedback(2)
    for row in held_out:
        row |= {"images": [Image.new("RGB", (30, 30), "purple")], "instruction": "Another?"}
    options = dict(rows=10, steps=5, checkpoint_every=2, evaluate_every=2, rows_at_once=2)
    options["validation"] = held_out
    seen = []
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    expected = weights_of(train(random_judge, whole, on_log=seen.append, **options))
    assert [entry["step"] for entry in seen] == [entry["step"] for entry in entries_of(whole)]
    step = int(np.random.default_rng().integers(1, 5))
    with raises(KeyboardInterrupt), at_step(step, die):
        train(random_judge, cut, **options)
    resumed = train(random_judge, cut, **options)
    torch.testing.assert_close(weights_of(resumed), expected, rtol=0, atol=0, msg=str(step))
    assert json.dumps(entries_of(cut)) == json.dumps(entries_of(whole)), step
    assert result_of(cut) == result_of(whole)
    with raises(ValueError, match=r"another training \(other recipe\)"):
        train(random_judge, cut, lr=1e-4, **options)
    assert train(random_judge, cut, log_every=5, **options) == resumed  # done, however it is logged


@mark.parametrize(
    "kind, freeze",
    [("random", ["tower", "decoder"]), ("qwen3_vl", ["tower", "decoder"]), ("idefics3", [])],
)
def test_frozen_parts_stay_as_they_are(kind, freeze, base_of, tmp_path):
    folder = train(base_of(kind), tmp_path, freeze=freeze, steps=2, lr=1e-2)
    before, after = weights_of(base_of(kind)), weights_of(folder)
    changed = {part_of(name) for name in before if not before[name].equal(after[name])}
    assert changed == {"tower", "projector", "decoder"} - set(freeze)


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(random_judge, tmp_path):
    def spoil(trainer):
        next(weight for weight in trainer.model.parameters() if weight.requires_grad).data *= np.nan

    options = dict(steps=3, checkpoint_every=1)
    with raises(FloatingPointError, match="the loss is nan"), at_step(2, spoil):
        train(random_judge, tmp_path, **options)
    train(random_judge, tmp_path, **options)
    assert len(losses_of(tmp_path)) == 3 and np.isfinite(losses_of(tmp_path)).all()


def test_the_best_weights_are_kept(random_judge, tmp_path, monkeypatch):
    worth = iter([0.1, 0.9, 0.3, 0.2])
    row = DataFrame({"low": 0.0, "high": 1.0}, index=["pearson"])
    monkeypatch.setattr(trainer, "correlate", lambda *_, **__: row.assign(estimate=next(worth)))
    options = dict(rows=10, steps=3, evaluate_every=1, checkpoint_every=1, shape="score")
    options |= dict(validation=rows_with_feedback(2), allow=["leakage"])
    stored = weights_of(train(random_judge, tmp_path, **options))
    (own,) = (weight for name, weight in stored.items() if name.endswith("lm_head.weight"))
    for step, best in (("best", True), ("checkpoints/checkpoint-3/model", False)):
        weight = load_file(tmp_path / f"{step}.safetensors")["lm_head.weight"]
        assert weight.equal(own) is best


def test_no_weights_are_worse_than_those_without_a_correlation():
    unread = trainer.quality(math.nan, 0.0)
    assert unread == trainer.quality(math.nan, 1.0) < trainer.quality(-0.5, 1.0)
    assert trainer.quality(0.8, 0.5) == 0.4


def test_critic_rows_train_wherever_prompt_and_target_are_there(base_of, tmp_path):
    """Instruction and response can't be read out of each, and training needs neither."""
    rows = [turns(question, "Three of ten.") for question in ("Judge <one> or <two>", "How?")]
    options = dict(recipe="llava-critic", lr=1e-2, batch_size=2, steps=3, warmup=1)
    options |= dict(template="llava-critic", **LORA)
    options |= dict(freeze=["tower"], allow=["length", "scores"])
    train(base_of("onevision"), tmp_path / "out", canonical(rows), **options)
    losses = losses_of(tmp_path / "out")
    assert len(losses) == 3 and losses[-1] < losses[0]
    rows[1]["conversations"][1]["value"] = " "
    with raises(CollectionError) as caught:
        train(base_of("onevision"), tmp_path / "no", canonical(rows), **options)
    assert {problem.index for problem in caught.value.problems} == {1}


def test_a_tower_of_another_kind_is_stored_under_names_that_load(tmp_path):
    """A LLaVA that sees through DINOv2: only CLIP's and SigLIP's towers had older names."""
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    tower = {"model_type": "dinov2", "image_size": 28, "patch_size": 14, **size}
    text = {"model_type": "llama", "vocab_size": 64, "intermediate_size": 32, **size}
    kind = transformers.LlavaForConditionalGeneration
    config = transformers.LlavaConfig(vision_config=tower, text_config=text, image_token_index=1)
    weights.write_checkpoint(kind(config), tmp_path, tmp_path / "judge")
    _, report = kind.from_pretrained(tmp_path / "judge", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]


def test_a_log_ends_with_the_last_step_and_the_result_says_how_the_loss_moved(
    random_judge, tmp_path
):
    rows = rows_with_feedback(4)
    fell = dict(steps=6, lr=1e-2, log_every=10, batch_size=4)
    train(random_judge, tmp_path / "fell", rows, **fell)
    assert [entry["step"] for entry in entries_of(tmp_path / "fell")] == [1, 6]
    result = result_of(tmp_path / "fell")
    assert result["lesson"] is None and result["loss_last"] < 0.9 * result["loss_first"]
    for name, options, lesson in (
        ("once", dict(steps=1, lr=1e-2), "one step alone was logged"),
        ("rose", dict(steps=3, lr=3.0, warmup=0), "the loss rose from .* lower lr"),
    ):
        with warns(UserWarning, match=lesson):
            train(random_judge, tmp_path / name, rows, **fell | options)


def test_the_truth_may_be_the_mean_of_people(random_judge, tmp_path):
    rows = rows_with_feedback(5)
    means = {0: ([4.0, None, 3.0], 4), 1: ([2.0, 2.0, 3.0], 2), 2: ([1.0], 1), 3: ([5.0, 4.0], 5)}
    for number, row in enumerate(rows):
        ratings, whole = means.get(number, ([3.0], 3))
        row |= {"human_scores": ratings, "gold": None, "feedback": f"It has {whole}."}
    held = [rows[0] | {"instruction": "Another?", "images": [Image.new("RGB", (9, 9), "red")]}]
    folder = tmp_path / "out"
    train(random_judge, folder, rows, truth="people", steps=2, validation=held)
    counted = {"truth": "the mean of people, rounded", "rounded": 3}
    assert counted.items() <= result_of(folder).items()
    targets, validation, _ = checks.with_truth(rows, held, "people")
    assert [row["gold"] for row in targets] == [4, 2, 1, 5, 3] and validation[0]["gold"] == 3.5
    rows[2]["human_scores"] = [None]
    with raises(CollectionError, match=r"human_scores: has no score(.|\n)*leave the row out"):
        train(random_judge, tmp_path / "no", rows, truth="people")
    with raises(ValueError, match='use "gold" or "people"'):
        train(random_judge, tmp_path / "no", rows, truth="mean")


def test_adapters_alone_are_a_base(random_judge, tmp_path):
    adapters = dict(steps=2, batch_size=2, lr=1e-2, template="chat", lora={"r": 4, "merge": False})
    first = train(random_judge, tmp_path / "first", **adapters)
    same = train(first, tmp_path / "same", steps=2, lr=0.0)  # nothing moves
    expected, found = (load_judge(folder, device="cpu") for folder in (first, same))
    assert found.template.name == expected.template.name == "chat"
    assert torch.allclose(logits_of(found, "Is it?"), logits_of(expected, "Is it?"), atol=1e-4)
    again = train(first, tmp_path / "again", **adapters)
    assert load_judge(again, device="cpu").grade(rows_with_feedback(1), mode="score") is not None
