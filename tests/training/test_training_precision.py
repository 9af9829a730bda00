"""Low precision: what trains is float32 in every mode, so that steps below a weight's grid add up."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch
from training_cases import (
    QUIET,
    SMALL,
    at_step,
    losses_of,
    result_of,
    rows_with_feedback,
    weights_of,
)

from vjudge.judge import load_judge
from vjudge.training import fine_tune, finetune
from vjudge.training.trainer import outcome
from vjudge.training.weights import movement, part_of, weight_samples

pytestmark = QUIET
ADAPTERS = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0}
WAYS: dict[str, dict[str, Any]] = {
    "full, bfloat16": {"precision": "bfloat16"},
    "full, float16": {"precision": "float16"},
    "LoRA, bfloat16": {"precision": "bfloat16", "lora": ADAPTERS},
    "LoRA, float16": {"precision": "float16", "lora": ADAPTERS},
    "QLoRA, 4 bits": {"precision": "bfloat16", "lora": ADAPTERS, "quantization": "4bit"},
    "QLoRA, 8 bits": {
        "precision": "float32",
        "lora": ADAPTERS | {"merge": True},
        "quantization": "8bit",
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_what_trains_is_float32_and_the_judge_loads(way, random_judge, tmp_path):
    """And the base under adapters is as it was asked for."""
    if "QLoRA" in way:
        pytest.importorskip("bitsandbytes")
    dtypes = defaultdict[str, set[torch.dtype]](set)

    def look(trainer: Any) -> None:
        for name, weight in trainer.model.named_parameters():
            dtypes[f"{part_of(name)} {'trains' if weight.requires_grad else 'stays'}"].add(
                weight.dtype
            )

    rows = rows_with_feedback(10)
    options = SMALL | dict(steps=2) | WAYS[way]
    with at_step(1, look):
        folder = fine_tune(random_judge, rows, out=tmp_path, **options)
    assert dtypes["decoder trains"] == dtypes["projector trains"] == {torch.float32}
    if "LoRA," in way and "Q" not in way:
        assert (
            dtypes["decoder stays"]
            == dtypes["tower stays"]
            == {getattr(torch, options["precision"])}
        )
    if "4 bits" in way:
        assert torch.uint8 in dtypes["decoder stays"]
    assert (
        result_of(tmp_path)["changed"] > 0.7
    )  # one step with a rate; an adapter's first half has no gradient in it
    assert (folder / "adapter_config.json").is_file() is ("4 bits" in way)  # the others' are merged
    run = load_judge(folder, device="cpu", dtype="float32").grade(
        rows[:2], mode="score", progress=False
    )
    assert run["expected_score"].notna().all()


def naive(judge: Any, *, prepare: Any = finetune.weights.prepare, **options: Any) -> Any:
    """What trains has the base's precision, as in a training in 16 bits."""
    wrapped = prepare(judge, **options)
    for weight in filter(lambda weight: weight.requires_grad, judge.model.parameters()):
        weight.data = weight.data.bfloat16()
    return wrapped


@pytest.mark.parametrize("lora", [None, ADAPTERS], ids=["full", "LoRA"])
def test_steps_below_bfloat16s_grid_add_up(lora, random_judge, tmp_path, monkeypatch):
    """In bfloat16 at least .8 of float32's fall; by weights that are bfloat16 themselves less than half in full."""
    rows = rows_with_feedback(8)
    rate = 1e-5  # half the distance of bfloat16's neighbours at .005; the weights' spread is .15
    options = SMALL | dict(
        steps=10, batch_size=8, lr=rate, warmup=1, schedule="constant_with_warmup", lora=lora
    )
    options |= {"projector_lr": rate, "lr": 1e-3} if lora else {}
    falls, projector = {}, {}
    for way, precision in (("float32", "float32"), ("bfloat16", "bfloat16"), ("naive", "bfloat16")):
        if way == "naive":
            monkeypatch.setattr(finetune.weights, "prepare", naive)
        folder = fine_tune(random_judge, rows, out=tmp_path / way, precision=precision, **options)
        losses = losses_of(tmp_path / way)
        falls[way] = losses[0] - losses[-1]
        start = {
            name: weight
            for name, weight in weights_of(random_judge).items()
            if part_of(name) == "projector"
        }
        if way == "naive":  # where it starts from
            start = {name: weight.bfloat16().float() for name, weight in start.items()}
        projector[way] = movement(start, weights_of(folder))["changed"]
    assert falls["float32"] > 0.01 and falls["bfloat16"] >= 0.8 * falls["float32"]
    assert projector["bfloat16"] > 0.9 and projector["naive"] < 0.4
    if not lora:
        assert falls["naive"] < 0.5 * falls["float32"]


def test_adapters_merged_and_kept_give_the_same_logits(random_judge, tmp_path):
    rows = rows_with_feedback(5)
    options = SMALL | dict(steps=3, lr=1e-2)
    folders = []
    for merge in (True, False):
        lora = ADAPTERS | {"merge": merge}
        out = tmp_path / str(merge)
        folders.append(fine_tune(random_judge, rows, out=out, lora=lora, **options))
    merged, kept = folders
    assert (merged / "model.safetensors").is_file()
    assert (kept / "adapter_model.safetensors").is_file()
    assert not (kept / "model.safetensors").exists()
    judges = [load_judge(folder, device="cpu") for folder in (*folders, random_judge)]
    logits = [judge.forward("What is it?", rows[0]["images"]).logits for judge in judges]
    assert torch.allclose(logits[0], logits[1], atol=1e-5)
    assert not torch.allclose(logits[0], logits[2], atol=1e-2)
    card = (kept / "README.md").read_text()
    assert '"r": 4' in card and "base_model:" in card


def test_movement_is_the_share_that_changed_and_the_norm_of_the_change():
    before = {"a": torch.tensor([3.0, 0.0, 4.0, 0.0]), "b": torch.zeros(4)}
    after = {"a": torch.tensor([3.0, 0.0, 4.0, 0.5]), "b": torch.zeros(4)}
    assert movement(before, after) == {"changed": 1 / 8, "relative": 0.1}
    assert movement(before, before) == {"changed": 0.0, "relative": 0.0}
    large = torch.nn.Linear(400, 400, bias=False)  # more than a sample holds
    samples = weight_samples(large)
    with torch.no_grad():
        large.weight *= 1.01
    assert movement(samples, large.state_dict())["relative"] == pytest.approx(0.01, rel=1e-3)


def test_the_line_says_what_speaks_against_a_lesson():
    falling, moved = [3.0 / n for n in range(1, 21)], {"changed": 0.99, "relative": 0.01}
    for losses, share, part in (
        (falling, 0.99, "None"),
        (falling, 0.002, "0.2% of them changed, by 1.0e-02 of their norm"),
        ([3.0] * 20, 0.99, "was 3.000 first, 3.000 last, 20 logged"),
        ([3.0], 0.99, "was 3.000 first, 3.000 last, 1 logged"),
    ):
        entries = [{"step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
        assert part in str(outcome(entries, moved | {"changed": share})["lesson"])


def test_grading_in_between_changes_no_step_of_a_quantised_base(random_judge, tmp_path):
    """In evaluation bitsandbytes packed 4-bit weights for the CPU, after which no gradient passed through a layer."""
    pytest.importorskip("bitsandbytes")
    rows = rows_with_feedback(10)
    options = SMALL | dict(steps=4, quantization="4bit", precision="float32", lora=ADAPTERS)
    for name, more in {
        "plain": {},
        "graded": dict(validation=rows[:2], allow=["leakage"], evaluate_every=1),
    }.items():
        fine_tune(random_judge, rows, out=tmp_path / name, **options | more)
    assert losses_of(tmp_path / "graded") == losses_of(tmp_path / "plain")
