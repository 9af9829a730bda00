"""Fine-tuning: it learns, on every architecture, resumes exactly, and says what came of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from accelerate.commands.config.config_args import load_config_from_file
from PIL import Image
from safetensors.torch import load_file
from training_cases import (
    QUIET,
    SMALL,
    at_step,
    die,
    entries_of,
    losses_of,
    pairs_with_feedback,
    result_of,
    rows_with_feedback,
    spoil,
    weights_of,
)

import vjudge as vj
from chatmodels import CHATS, TEXTS
from vjudge.data import CollectionError
from vjudge.judge import load_judge
from vjudge.prompts import TEMPLATES
from vjudge.training import fine_tune, trainer, weights
from vjudge.training.__main__ import main
from vjudge.training.weights import part_of

pytestmark = QUIET
WAYS = [(kind, {"lora": {"r": 4}}) for kind in (*CHATS, "onevision", "llama", "mixtral")]
WAYS += [("qwen3_vl", {}), ("internvl", {"freeze": []}), ("bloom", {})]
WAYS += [("qwen3_vl", {"lora": {"r": 4, "merge": False}}), ("gemma3", {"precision": "bfloat16"})]


@pytest.mark.parametrize(("kind", "way"), WAYS, ids=str)
def test_every_architecture_trains_loads_and_grades(kind, way, base_of, tmp_path):
    rows = rows_with_feedback(5)
    wording = TEXTS.get(kind, "chat")
    options = SMALL | {"steps": 2, "template": wording, "lr": 1e-2} | way
    folder = fine_tune(base_of(kind), rows, out=tmp_path / "out", **options)
    assert len(losses_of(tmp_path / "out")) == 2 and result_of(tmp_path / "out")["changed"] > 0.5
    judge = load_judge(folder, device="cpu")
    assert judge.template.name == wording
    run = judge.grade(rows[:1], mode="score", progress=False)
    assert run["failure"].isna().all()
    before = load_judge(base_of(kind), device="cpu", template=wording)
    logits = [one.forward("Is it?", []).logits for one in (judge, before)]
    assert not torch.allclose(*logits, atol=1e-3)


def test_one_batch_is_learned_by_heart(random_judge, tmp_path):
    rows = rows_with_feedback(3)
    for row, name in zip(rows, ("white", "red", "blue"), strict=True):
        row |= {"images": [Image.new("RGB", (16, 16), name)], "response": f"it is {name} {name}"}
    options = SMALL | dict(steps=60, batch_size=3, lr=5e-3, log_every=10, checkpoint_every=60)
    options["template"] = "prometheus-vision"
    folder = fine_tune(random_judge, rows, out=tmp_path / "out", **options)
    losses, result = losses_of(tmp_path / "out"), result_of(tmp_path / "out")
    assert losses[0] > 1 and losses[-1] < 0.05
    run = load_judge(folder, device="cpu").grade(rows, max_new_tokens=60, progress=False)
    assert run["score"].tolist() == [row["gold"] for row in rows]
    assert run["feedback"].str.startswith("It is answer").all()
    assert result["changed"] > 0.9 and result["relative"] > 0.01 and result["lesson"] is None
    assert (result["loss_first"], result["loss_last"]) == (losses[0], losses[-1])


@pytest.mark.parametrize(
    ("kind", "wording"),
    [("qwen2_vl", "r1-reward"), ("onevision", "llava-critic-pair"), ("llava", "chat-relative")],
)
def test_pair_wordings_train_from_preferences_and_are_loaded(kind, wording, base_of, tmp_path):
    rows = pairs_with_feedback(2)
    options = SMALL | dict(template=wording, steps=3, batch_size=2, lr=1e-2)
    folder = fine_tune(base_of(kind), rows, out=tmp_path / "out", **options)
    losses = losses_of(tmp_path / "out")
    judge = load_judge(folder, device="cpu")
    assert losses[-1] < losses[0] and judge.pairs.name == wording
    run = judge.compare(rows[:1], orders="one", max_new_tokens=4, progress=False)
    assert len(run) == 1


def test_a_wording_of_ones_own_is_stored_with_the_judge(base_of, tmp_path):
    own = replace(TEMPLATES["chat"], name="mine", body="Mine.\n" + TEMPLATES["chat"].body)
    rows = rows_with_feedback(5)
    folder = fine_tune(base_of("qwen2_vl"), rows, out=tmp_path, template=own, steps=1, **SMALL)
    judge, asked = (load_judge(path, device="cpu") for path in (folder, base_of("qwen2_vl")))
    model = asked.engine.model
    bound = own.bind(model.processor, image_token=model.image_token)
    assert judge.template.name == "mine"
    assert judge.render(rows[0]) == replace(asked, template=bound).render(rows[0])


def test_a_training_that_teaches_nothing_ends_with_a_line_that_says_so(random_judge, tmp_path):
    options = SMALL | dict(recipe="prometheus-vision", batch_size=20, max_length=500, lr=2e-5)
    options |= dict(gradient_checkpointing=False, warmup=0.03, template="prometheus-vision")
    with pytest.warns(UserWarning, match="nothing was learned that shows: the loss was") as caught:
        fine_tune(random_judge, rows_with_feedback(20), out=tmp_path, **options)
    (message,) = (str(w.message) for w in caught if "nothing" in str(w.message))
    assert "the weights hardly moved: 0.0% of them changed" in message and "\n" not in message
    assert "nothing was learned that shows" in (tmp_path / "judge/README.md").read_text()


def test_a_killed_training_resumes_to_the_same_weights_and_log(random_judge, tmp_path):
    rows, held_out = rows_with_feedback(15), rows_with_feedback(3)
    for row in held_out:
        row |= {"images": [Image.new("RGB", (30, 30), "purple")], "instruction": "Another?"}
    options = SMALL | dict(steps=7, checkpoint_every=2, evaluate_every=3, rows_at_once=2)
    options["validation"] = held_out
    seen: list[dict] = []
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    made = fine_tune(random_judge, rows, out=whole, on_log=seen.append, **options)
    assert [entry["step"] for entry in seen] == [entry["step"] for entry in entries_of(whole)]
    step = int(np.random.default_rng().integers(1, 7))
    with pytest.raises(KeyboardInterrupt), at_step(step, die):
        fine_tune(random_judge, rows, out=cut, **options)
    resumed = fine_tune(random_judge, rows, out=cut, **options)
    expected = weights_of(made)
    for name, weight in weights_of(resumed).items():
        assert torch.equal(weight, expected[name]), (step, name)
    assert json.dumps(entries_of(cut)) == json.dumps(entries_of(whole)), step
    assert result_of(cut) == result_of(whole)
    with pytest.raises(ValueError, match=r"holds another training \(recipe was"):
        fine_tune(random_judge, rows, out=cut, **options | {"lr": 1e-4})
    done = fine_tune(random_judge, rows, out=cut, **options | {"log_every": 5})
    assert done == resumed, "done is done, however it is logged"


@pytest.mark.parametrize(
    ("kind", "freeze"),
    [
        ("random", ["tower"]),
        ("random", ["tower", "decoder"]),
        ("qwen3_vl", ["tower", "decoder"]),
        ("idefics3", []),
    ],
)
def test_frozen_parts_stay_as_they_are(kind, freeze, base_of, tmp_path):
    options = SMALL | dict(freeze=freeze, steps=2, lr=1e-2)
    folder = fine_tune(base_of(kind), rows_with_feedback(5), out=tmp_path, **options)
    before, after = weights_of(base_of(kind)), weights_of(folder)
    changed = {part_of(name) for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"tower", "projector", "decoder"} - set(freeze)


@pytest.mark.parametrize("kind", ["random", "qwen2_5_vl"])
def test_accumulated_passes_are_one_batch(kind, base_of, tmp_path):
    """The loss of a step is the same however its rows are divided, though they differ in length."""
    rows = rows_with_feedback(10)
    for number, row in enumerate(rows):
        row["feedback"] += " It is plain." * (number % 3)
    for at_once in (4, 1):
        options = SMALL | dict(steps=3, rows_at_once=at_once, gradient_checkpointing=at_once == 1)
        fine_tune(base_of(kind), rows, out=tmp_path / str(at_once), **options)
    assert losses_of(tmp_path / "4") == pytest.approx(losses_of(tmp_path / "1"), rel=1e-4)


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(random_judge, tmp_path):
    rows, options = rows_with_feedback(10), SMALL | dict(steps=6, checkpoint_every=2, out=tmp_path)
    message = "step 6: the gradient's norm is nan; the call continues from the last checkpoint"
    with pytest.raises(FloatingPointError, match=message), at_step(5, spoil):
        fine_tune(random_judge, rows, **options)
    fine_tune(random_judge, rows, **options)
    assert len(losses_of(tmp_path)) == 6 and np.isfinite(losses_of(tmp_path)).all()


def test_the_best_weights_are_kept(random_judge, tmp_path, monkeypatch):
    rows, worth = rows_with_feedback(10), iter([0.1, 0.9, 0.3, 0.2])
    row = pd.DataFrame({"low": 0.0, "high": 1.0}, index=["pearson"])
    monkeypatch.setattr(trainer, "correlate", lambda *_, **__: row.assign(estimate=next(worth)))
    options = SMALL | dict(steps=6, evaluate_every=2, checkpoint_every=2, shape="score")
    options |= dict(validation=rows[:2], allow=["leakage"])
    stored = weights_of(fine_tune(random_judge, rows, out=tmp_path, **options))
    for step, best in (("best", True), ("checkpoints/checkpoint-6/model", False)):
        weight = load_file(tmp_path / f"{step}.safetensors")["lm_head.weight"]
        own = stored.get("lm_head.weight", stored.get("language_model.lm_head.weight"))
        assert torch.equal(weight, own) is best


def test_files_of_settings_say_what_they_lack_and_accelerate_reads_the_launch_ones(tmp_path):
    (tmp_path / "judge.yaml").write_text("base: tiny\nlr: 1\n")
    with pytest.raises(SystemExit, match="must give at least base, items and out"):
        main(tmp_path / "judge.yaml")
    files = list((Path(vj.__file__).parent / "training/launch").glob("*.yaml"))
    assert [load_config_from_file(str(file)).num_processes for file in files] == [8, 8, 8]


CRITIC = [  # a wording of LLaVA-Critic-113k, and one that nobody lists
    (
        "[Question]\nWhat is it?\n\n[Assistant 1]\nA dog.\n[End of Assistant 1]\n\n"
        "[Assistant 2]\nA cat.\n[End of Assistant 2]\n\nAssume assistant 1 always receive 10.",
        "10 3\nThe second names another animal.",
    ),
    ("Judge the second of these captions: <one> a dog <two> a cat", "It is off. Three of ten."),
]


@pytest.mark.parametrize("quantization", [None, "4bit"], ids=["LoRA", "QLoRA"])
def test_critic_rows_train_wherever_prompt_and_target_are_there(quantization, base_of, tmp_path):
    """Instruction and response can't be read out of each, and training needs neither."""
    if quantization:
        pytest.importorskip("bitsandbytes")
    stored = []
    for number, (prompt, answer) in enumerate(CRITIC):
        image = f"{number}.png"
        Image.effect_noise((40, 36), 60 + number).convert("RGB").save(tmp_path / image)
        turns = [{"from": "human", "value": f"<image>\n{prompt}"}, {"from": "gpt", "value": answer}]
        row = {"id": f"row-{number}", "source": "x", "image": image, "conversations": turns}
        stored.append(row)
    file = tmp_path / "critic.json"
    file.write_text(json.dumps(stored))
    items = vj.load_collection(file)
    assert not all(row.get("response") for row in items)
    options = SMALL | dict(recipe="llava-critic", lr=1e-2, batch_size=2, steps=3, warmup=1)
    options |= dict(template="llava-critic", lora={"r": 4}, quantization=quantization)
    options |= dict(freeze=["tower"], allow=["length", "scores"])
    folder = fine_tune(base_of("onevision"), items, out=tmp_path / "out", **options)
    losses = losses_of(tmp_path / "out")
    assert len(losses) == 3 and losses[-1] < losses[0]
    rows = [row for row in items if row.get("response") and row.get("instruction")]
    assert len(vj.load_judge(folder, device="cpu").grade(rows, max_new_tokens=8)) >= 1
    stored[1]["conversations"][1]["value"] = " "
    file.write_text(json.dumps(stored))
    with pytest.raises(CollectionError) as caught:
        fine_tune(base_of("onevision"), vj.load_collection(file), out=tmp_path / "no", **options)
    assert {problem.index for problem in caught.value.problems} == {1}


def test_a_tower_of_another_kind_is_stored_under_names_that_load(tmp_path: Path) -> None:
    """A LLaVA that sees through DINOv2: only CLIP's and SigLIP's towers had older names."""
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    tower = {"model_type": "dinov2", "image_size": 28, "patch_size": 14, **size}
    text = {"model_type": "llama", "vocab_size": 64, "intermediate_size": 32, **size}
    kind = transformers.LlavaForConditionalGeneration
    config = transformers.LlavaConfig(vision_config=tower, text_config=text, image_token_index=1)
    weights.write_checkpoint(kind(config), tmp_path, tmp_path / "judge")
    _, report = kind.from_pretrained(tmp_path / "judge", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
