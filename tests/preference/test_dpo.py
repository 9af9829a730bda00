"""DPO by TRL on small models: trained on what the policy answers with, repeatable, resumable."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from PIL import Image  # noqa: E402
from safetensors import safe_open  # noqa: E402

from chatmodels import make  # noqa: E402
from vjudge import load_judge, models, preference  # noqa: E402
from vjudge.data import CollectionError  # noqa: E402
from vjudge.preference import dpo  # noqa: E402
from vjudge.preference.dpo import batch_of, train  # noqa: E402
from vjudge.prompts import Conversation  # noqa: E402
from vjudge.training.collate import Coder, encode_pictures  # noqa: E402

TINY = Path(models.__file__).parents[1] / "assets/tiny"
FAST: dict[str, Any] = {"learning_rate": 1e-4, "warmup_steps": 0, "num_train_epochs": 2}
FAST |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}
# Weights are about .06, where bfloat16's grid is 2.4e-4 wide: a step is a twentieth of it.
SMALL: dict[str, Any] = {**FAST, "learning_rate": 1e-5, "num_train_epochs": 3}
LORA = {"r": 8, "lora_alpha": 16}


@pytest.fixture(scope="module")
def pairs() -> list[dict[str, Any]]:
    rows = []
    for number, size in enumerate(((60, 40), (30, 90), (40, 40), (50, 20))):
        row = {"id": str(number), "instruction": f"What is red in {number}?"}
        row |= {"images": [Image.effect_noise(size, 90).convert("RGB")]}
        row |= {"chosen": "(1) red comes to two.", "rejected": "(1) wrong, <image> and </s> too."}
        rows.append(row)
    return rows


def coder_of(policy: Any) -> Coder:
    return Coder(policy.engine.model, policy.template.conversation)


def test_responses_are_text_with_their_conversations_end(pairs: Any) -> None:
    policy: Any = load_judge(TINY)
    tokenizer = policy.engine.model.tokenizer
    batch = batch_of(coder_of(policy), pairs[:2])
    masks = batch["completion_mask"].bool()
    ids = [row[mask].tolist() for row, mask in zip(batch["input_ids"], masks, strict=True)]
    assert len(ids) == 4 and policy.engine.encoder.text(ids[0]) == " (1) red comes to two.</s>"
    assert ids[2].count(tokenizer.eos_token_id) == 1, "what spells it in the text is text"
    turns = Conversation(name="turns", opening="", closing="<pad>\n", controls=("<pad>",))
    _, (chosen, _) = dpo.encode(Coder(policy.engine.model, turns), pairs[0])
    assert chosen[-1] == tokenizer.pad_token_id != tokenizer.eos_token_id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 40}, r"4 of 4 rows .*(.|\n)*exceeds max_length=40; raise it, to \d+"),
        ({"freeze": ["tower", "projector", "decoder"]}, "nothing to train"),
        ({"quantization": "4bit"}, "give lora="),
        ({"warmup_steps": -1}, "warmup_steps"),
        ({"learning_rte": 1.0}, "learning_rte"),
    ],
)
def test_unsound_calls_are_refused_before_a_folder_is_made(
    pairs: Any, random_judge: Path, tmp_path: Path, options: Any, message: str
) -> None:
    with pytest.raises((CollectionError, ValueError, TypeError), match=message):
        train(random_judge, pairs, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists(), "the call put right goes there"


@pytest.mark.parametrize("kind", ["tiny", "onevision", "qwen2_vl", "gemma3"])
def test_prompts_and_pixels_give_the_logits_that_the_policy_answers_by(
    kind: str, pairs: Any, tmp_path: Path
) -> None:
    policy: Any = load_judge(kind if kind == "tiny" else make(kind, tmp_path / kind))
    rows = [pairs[0], pairs[1] | {"images": [], "instruction": "What is <image>?"}, pairs[2]]
    batch = batch_of(coder_of(policy), rows)
    completed = batch.pop("completion_mask")
    encode_pictures(policy.engine.model)
    with torch.no_grad():
        logits = policy.engine.model.model(**batch).logits
    for place, row in enumerate(rows * 2):
        n = int(completed[place].argmax())
        alone = policy.engine.forward(preference.prompt_of(policy, row), row["images"]).logits
        assert len(alone) == batch["attention_mask"][place, :n].sum()
        own = logits[place, n - 1, : alone.shape[1]]
        torch.testing.assert_close(own, alone[-1], atol=1e-4, rtol=1e-3)


def test_a_round_prefers_what_was_chosen_and_can_hold_its_likelihood(
    pairs: Any, tmp_path: Path
) -> None:
    record = train(TINY, pairs, tmp_path / "out", **FAST)
    log = pd.DataFrame(record["log"])
    assert (record["pairs"], record["steps"]) == (4, 2)
    assert record["changed"] > 0.5 and record["relative"] > 1e-4
    assert log["loss"].iloc[0] == pytest.approx(math.log(2))
    assert log["rewards/margins"].iloc[-1] > 0
    with safe_open(tmp_path / "out/model.safetensors", framework="pt") as file:
        towers = [name for name in file.keys() if "vision_tower." in name]
    assert towers and all("vision_tower.vision_model." in name for name in towers), "as vLLM reads"
    sft = {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 2.0]}
    held = pd.DataFrame(train(TINY, pairs, tmp_path / "held", **FAST, **sft)["log"])
    assert held["rewards/chosen"].iloc[-1] > log["rewards/chosen"].iloc[-1]


def test_lora_changes_the_decoder_alone_and_a_round_that_hardly_moves_says_so(
    pairs: Any, random_judge: Path, tmp_path: Path, capsys: Any
) -> None:
    record = train(random_judge, pairs, tmp_path / "lora", **FAST, lora=LORA)
    before = models.load(random_judge).model.state_dict()
    after = models.load(tmp_path / "lora").model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("language_model" in name for name in changed)
    assert record["changed"] > 0.99
    record = train(random_judge, pairs, tmp_path / "still")
    assert record["relative"] < 1e-4
    assert "still: the weights hardly moved" in capsys.readouterr().err


@pytest.mark.parametrize("lora", [None, {"r": 4}], ids=["full", "lora"])
def test_an_interrupted_round_goes_on_and_ends_as_an_unbroken_one(
    pairs: Any, tmp_path: Path, monkeypatch: Any, random_judge: Path, lora: Any
) -> None:
    options = {**FAST, "per_device_train_batch_size": 2, "lora": lora}
    options |= {"save_strategy": "steps", "save_steps": 1}
    whole = train(random_judge, pairs, tmp_path / "whole", **options)
    batches = [0, 0, 0, KeyboardInterrupt, *[0] * 4]  # eight would be all from the start

    def broken(*arguments: Any) -> Any:
        error = batches.pop(0)
        if error:
            raise error
        return batch_of(*arguments)

    monkeypatch.setattr(dpo, "batch_of", broken)
    with pytest.raises(KeyboardInterrupt):
        train(random_judge, pairs, tmp_path / "cut", **options)
    (last,) = (tmp_path / "cut/checkpoints").glob("checkpoint-*")
    last.with_name("checkpoint-99").mkdir()  # as a kill while it is written leaves it
    rest = train(random_judge, pairs, tmp_path / "cut", **options)
    assert [e["loss"] for e in rest["log"]] == [e["loss"] for e in whole["log"]] and batches
    left = [models.weights_fingerprint(tmp_path / name) for name in ("cut", "whole")]
    assert left[0] == left[1]


@pytest.fixture(scope="module")
def gain(pairs: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., float]:
    """How much more a policy that rounds leave prefers what was chosen: mean log-odds."""
    folder = tmp_path_factory.mktemp("gains")
    gains: dict[str, float] = {}

    def margin(policy: Path) -> float:
        loaded: Any = load_judge(policy, dtype="float32")
        encode_pictures(loaded.engine.model)
        batch = batch_of(coder_of(loaded), pairs)
        completed = batch.pop("completion_mask")[:, 1:]
        with torch.no_grad():
            logits = loaded.engine.model.model(**batch).logits[:, :-1].log_softmax(-1)
        chances = logits.gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
        chosen, rejected = (chances * completed).sum(1).double().chunk(2)
        return float((chosen - rejected).mean())

    start = margin(TINY)

    def of(rounds: int = 1, **options: Any) -> float:
        policy: Path = TINY
        for number in range(1, rounds + 1):
            name = f"{number} {options}"
            if name not in gains:
                train(policy, pairs, folder / name, **SMALL, **options)
                gains[name] = margin(folder / name) - start
            policy = folder / name
        return gains[name]

    return of


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_bfloat16_learns_what_float32_learns_and_rounds_add_up(gain: Any, lora: Any) -> None:
    """At a rate whose steps lie below bfloat16's grid."""
    once = gain(dtype="bfloat16", lora=lora)
    assert once >= 0.8 * gain(dtype="float32", lora=lora) > 0.003
    if lora is None:
        assert gain(2, dtype="bfloat16", lora=lora) > 1.5 * once


def test_adapters_on_four_bits_learn_as_much(gain: Any) -> None:
    pytest.importorskip("bitsandbytes")
    quantised = gain(lora=LORA, dtype="bfloat16", quantization="4bit")
    assert quantised >= 0.8 * gain(lora=LORA, dtype="float32")
