"""DPO by TRL on small models: trained on what the policy answers with, repeatable, resumable."""

import math
from pathlib import Path

import torch
from pandas import DataFrame
from PIL import Image
from pytest import approx, importorskip, mark, raises
from safetensors import safe_open

from originals import forward
from vjudge import load_judge, models, preference
from vjudge.data import CollectionError
from vjudge.preference import dpo
from vjudge.preference.dpo import batch_of, train
from vjudge.training.collate import Coder, encode_pictures

TINY = Path(models.__file__).parents[1] / "assets/tiny"
FAST = {"learning_rate": 1e-4, "warmup_steps": 0, "num_train_epochs": 2}
FAST |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}
# Weights are about .06, where bfloat16's grid is 2.4e-4 wide: a step is a twentieth of it.
SMALL = {**FAST, "learning_rate": 1e-5}
LORA = {"r": 8, "lora_alpha": 16}


PAIRS = [
    {
        "id": str(number),
        "instruction": f"What is red in {number}?",
        "images": [Image.effect_noise(size, 90).convert("RGB")],
        "chosen": "(1) red comes to two.",
        "rejected": "(1) wrong, <image> and </s> too.",
    }
    for number, size in enumerate(((60, 40), (30, 90), (40, 40), (50, 20)))
]


def coder_of(policy):
    return Coder(policy.engine.model, policy.template.conversation)


def test_responses_are_text_with_their_conversations_end():
    policy = load_judge(TINY)
    tokenizer = policy.engine.model.tokenizer
    batch = batch_of(coder_of(policy), PAIRS[:2])
    masks = batch["completion_mask"].bool()
    ids = [row[mask].tolist() for row, mask in zip(batch["input_ids"], masks, strict=True)]
    assert len(ids) == 4 and policy.engine.encoder.text(ids[0]) == " (1) red comes to two.</s>"
    assert ids[2].count(tokenizer.eos_token_id) == 1  # what spells it in the text is text


@mark.parametrize(
    "options, message",
    [
        ({"max_length": 40}, r"4 of 4 rows .*(.|\n)*exceeds max_length=40; raise it, to \d+"),
        ({"freeze": ["tower", "projector", "decoder"]}, "nothing to train"),
        ({"quantization": "4bit"}, "give lora="),
        ({"quantization": "4bit", "lora": False}, "give lora="),
        ({"warmup_steps": -1}, "warmup_steps"),
        ({"learning_rte": 1.0}, "learning_rte"),
        ({"freeze": ["towr"]}, "use tower, projector, decoder"),
        ({"loss_type": ["foo"]}, "foo"),
    ],
)
def test_unsound_calls_are_refused_before_a_folder_is_made(
    random_judge, tmp_path, options, message
):
    with raises((CollectionError, ValueError, TypeError), match=message):
        train(random_judge, PAIRS, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()  # the call put right goes there


def test_every_picture_that_does_not_open_is_named_by_its_row(random_judge, tmp_path):
    rows = [PAIRS[0], PAIRS[1] | {"images": [str(tmp_path / "gone.png")]}, PAIRS[2]]
    with raises(CollectionError, match=r"row 1 \(id '1'\), images: .*does not exist"):
        train(random_judge, rows, tmp_path / "out")


@mark.parametrize("kind", ["tiny", "onevision", "qwen2_vl", "gemma3"])
def test_prompts_and_pixels_give_the_logits_that_the_policy_answers_by(kind, base_of):
    policy = load_judge(kind if kind == "tiny" else base_of(kind))
    rows = [PAIRS[0], PAIRS[1] | {"images": [], "instruction": "What is <image>?"}, PAIRS[2]]
    batch = batch_of(coder_of(policy), rows)
    completed = batch.pop("completion_mask")
    encode_pictures(policy.engine.model)
    with torch.no_grad():
        logits = policy.engine.model.model(**batch).logits
    for place, row in enumerate(rows * 2):
        n = int(completed[place].argmax())
        _, alone = forward(policy.engine, preference.prompt_of(policy, row), row["images"])
        assert len(alone) == batch["attention_mask"][place, :n].sum()
        own = logits[place, n - 1, : alone.shape[1]]
        torch.testing.assert_close(own, alone[-1], atol=1e-4, rtol=1e-3)


def test_a_round_prefers_what_was_chosen_and_can_hold_its_likelihood(tmp_path):
    record = train(TINY, PAIRS, tmp_path / "out", **FAST)
    log = DataFrame(record["log"])
    assert record["steps"] == 2
    assert log["loss"].iloc[0] == approx(math.log(2))
    assert log["rewards/margins"].iloc[-1] > 0
    with safe_open(tmp_path / "out/model.safetensors", framework="pt") as file:
        towers = [name for name in file.keys() if "vision_tower." in name]
    assert towers and all("vision_tower.vision_model." in name for name in towers)  # as vLLM reads
    sft = {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 2.0]}
    held = DataFrame(train(TINY, PAIRS, tmp_path / "held", **FAST, **sft)["log"])
    assert held["rewards/chosen"].iloc[-1] > log["rewards/chosen"].iloc[-1]


def test_lora_changes_the_decoder_alone_and_another_round_is_refused_in_its_folder(
    random_judge, tmp_path
):
    train(random_judge, PAIRS, tmp_path / "lora", **FAST, lora=LORA)
    before = models.load(random_judge).model.state_dict()
    after = models.load(tmp_path / "lora").model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("language_model" in name for name in changed)
    with raises(ValueError, match=r"another training \(other beta\)"):
        train(random_judge, PAIRS, tmp_path / "lora", **FAST, lora=LORA, beta=0.5)


@mark.parametrize("lora", [None, {"r": 4}])
def test_an_interrupted_round_goes_on_and_ends_as_an_unbroken_one(
    tmp_path, monkeypatch, random_judge, lora
):
    options = {**FAST, "per_device_train_batch_size": 2, "lora": lora}
    options |= {"save_strategy": "steps", "save_steps": 1}
    whole = train(random_judge, PAIRS, tmp_path / "whole", **options)
    begun = []

    def broken(*arguments):
        begun.append(arguments)
        if len(begun) == 4:
            raise KeyboardInterrupt
        return batch_of(*arguments)

    monkeypatch.setattr(dpo, "batch_of", broken)
    with raises(KeyboardInterrupt):
        train(random_judge, PAIRS, tmp_path / "cut", **options)
    (last,) = (tmp_path / "cut/checkpoints").glob("checkpoint-*")
    last.with_name("checkpoint-99").mkdir()  # as a kill while it is written leaves it
    rest = train(random_judge, PAIRS, tmp_path / "cut", **options)
    assert [e["loss"] for e in rest["log"]] == [e["loss"] for e in whole["log"]]
    assert len(begun) < 8  # not from the start
    assert models.fingerprint(tmp_path / "cut") == models.fingerprint(tmp_path / "whole")


@torch.no_grad()
def margin(folder):
    """How much more a policy prefers what was chosen: mean log-odds, in float32."""
    policy = load_judge(folder, dtype="float32")
    encode_pictures(policy.engine.model)
    batch = batch_of(coder_of(policy), PAIRS)
    completed = batch.pop("completion_mask")[:, 1:]
    logits = policy.engine.model.model(**batch).logits[:, :-1].log_softmax(-1)
    chances = logits.gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    chosen, rejected = (chances * completed).sum(1).chunk(2)
    return float((chosen - rejected).mean())


@mark.parametrize("lora, ways", [(None, [{}]), (LORA, [{}, {"quantization": "4bit"}])])
def test_low_precision_learns_what_float32_learns(lora, ways, tmp_path):
    """At a rate whose steps lie below bfloat16's grid."""

    def gain(name, **options):
        train(TINY, PAIRS[:2], tmp_path / name, **SMALL, lora=lora, **options)
        return margin(tmp_path / name) - margin(TINY)

    whole = gain("high", dtype="float32")
    for way in ways:
        if way:
            importorskip("bitsandbytes")
        assert gain(f"low {way}", dtype="bfloat16", **way) >= 0.8 * whole > 0.0016
