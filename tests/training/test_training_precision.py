"""Low precision: what trains is float32 in every mode, so that steps below a weight's grid add up."""

from collections import defaultdict

import torch
from pytest import importorskip, mark
from training_cases import QUIET, at_step, losses_of, rows_with_feedback, train

from originals import logits_of
from vjudge.judging.loading import load_judge
from vjudge.training.weights import part_of

pytestmark = QUIET
ADAPTERS = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0}
MERGED = ADAPTERS | {"merge": True}
WAYS = {
    "full, bfloat16": {"precision": "bfloat16"},
    "LoRA, float16": {"precision": "float16", "lora": ADAPTERS},
    "LoRA, bfloat16": {"precision": "bfloat16", "lora": ADAPTERS},
    "QLoRA, 4 bits": {"precision": "bfloat16", "lora": ADAPTERS, "quantization": "4bit"},
    "QLoRA, 8 bits": {"precision": "float32", "lora": MERGED, "quantization": "8bit"},
}


@mark.parametrize("way", WAYS)
def test_what_trains_is_float32_and_the_judge_loads(way, random_judge, tmp_path):
    """And the base under adapters is as it was asked for."""
    if "QLoRA" in way:
        importorskip("bitsandbytes")
    dtypes = defaultdict(set)

    def look(trainer):
        for name, weight in trainer.model.named_parameters():
            dtypes[f"{part_of(name)} {weight.requires_grad}"].add(weight.dtype)

    with at_step(1, look):
        folder = train(random_judge, tmp_path, steps=2, batch_size=2, **WAYS[way])
    assert dtypes["decoder True"] == dtypes["projector True"] == {torch.float32}
    if way.startswith("LoRA"):
        held = {getattr(torch, WAYS[way]["precision"])}
        assert dtypes["decoder False"] == dtypes["tower False"] == held
    if "4 bits" in way:
        assert torch.uint8 in dtypes["decoder False"]
    assert (folder / "adapter_config.json").is_file() is ("4 bits" in way)  # the others' are merged
    judge = load_judge(folder, device="cpu", dtype="float32")
    run = judge.grade(rows_with_feedback(2), mode="score", progress=False)
    assert run["expected_score"].notna().all()


@mark.parametrize("lora", [None, ADAPTERS])
def test_steps_below_bfloat16s_grid_add_up(lora, random_judge, tmp_path):
    """In bfloat16 the loss falls by at least .8 of float32's fall."""
    rate = 1e-5  # half the distance of bfloat16's neighbours at .005; the weights' spread is .15
    options = dict(rows=2, steps=10, batch_size=2, lr=rate, warmup=1, allow=["scores", "length"])
    options |= dict(schedule="constant_with_warmup", lora=lora)
    if lora:
        options |= {"projector_lr": rate, "lr": 1e-3}
    falls = {}
    for precision in ("float32", "bfloat16"):
        train(random_judge, tmp_path / precision, precision=precision, **options)
        losses = losses_of(tmp_path / precision)
        falls[precision] = losses[0] - losses[-1]
    assert falls["float32"] > 0.01 and falls["bfloat16"] >= 0.8 * falls["float32"]


def test_adapters_merged_and_kept_give_the_same_logits(random_judge, tmp_path):
    folders = [random_judge]
    for merge in (True, False):
        options = dict(steps=2, batch_size=2, lr=1e-2, lora=ADAPTERS | {"merge": merge})
        folders.append(train(random_judge, tmp_path / str(merge), **options))
        assert (folders[-1] / "model.safetensors").is_file() is merge
        assert (folders[-1] / "adapter_model.safetensors").is_file() is not merge
    images = rows_with_feedback(1)[0]["images"]
    base, merged, kept = (
        logits_of(load_judge(folder, device="cpu"), "What is it?", images) for folder in folders
    )
    assert torch.allclose(merged, kept, atol=1e-5) and not torch.allclose(base, kept, atol=1e-2)
    card = (folders[-1] / "README.md").read_text()
    assert '"r": 4' in card and "base_model:" in card


def test_grading_in_between_changes_no_step_of_a_quantised_base(random_judge, tmp_path):
    """In evaluation bitsandbytes packed 4-bit weights for the CPU, after which no gradient passed through a layer."""
    importorskip("bitsandbytes")
    options = dict(steps=2, batch_size=2, quantization="4bit", precision="float32", lora=ADAPTERS)
    train(random_judge, tmp_path / "plain", **options)
    graded = dict(validation=rows_with_feedback(1), allow=["leakage"], evaluate_every=1)
    train(random_judge, tmp_path / "graded", **options, **graded)
    assert losses_of(tmp_path / "graded") == losses_of(tmp_path / "plain")
