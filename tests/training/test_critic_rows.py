"""Rows of LLaVA-Critic-113k, as they are stored, through training by adapters, to verdicts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chatmodels import make
from PIL import Image
from training_cases import losses_of

import vjudge as vj
from vjudge.data import CollectionError
from vjudge.training import fine_tune
from vjudge.training.collate import has_own_texts

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*verdicts failed"),
    pytest.mark.filterwarnings("ignore:.*nothing was learned"),
    pytest.mark.filterwarnings("ignore:.*LLaVA-Critic-113k"),
]
FEW: dict[str, Any] = dict(lr=1e-2, batch_size=3, steps=3, warmup=1, log_every=1, progress=False, device="cpu")
ADAPTERS = {"rank": 4, "alpha": 8}

# Wordings in which LLaVA-Critic-113k's prompts are evidenced, and one that nobody lists.
CRITIC = [
    ("Text Caption: a dog on a sofa.\nFrom 0 to 100, how much do you rate for this Text Caption?", "Final Score: 85."),
    (
        "[Question]\nWhat is it?\n\n[Assistant 1]\nA dog.\n[End of Assistant 1]\n\n[Assistant 2]\nA cat.\n"
        "[End of Assistant 2]\n\nAssume assistant 1 always receive a score of 10.",
        "10 3\nThe second names another animal.",
    ),
    ("question | ground truth | prediction | correctness\n--- | --- | --- | ---\nWhat? | dog | cat |", "0.0"),
    ("Judge the second of these captions in any way you like: <one> a dog <two> a cat", "It is off. Three of ten."),
]


@pytest.mark.parametrize("quantization", [None, "4bit"], ids=["LoRA", "QLoRA"])
def test_critic_rows_train_wherever_prompt_and_target_are_there(quantization, tmp_path):
    """Instruction and response can't be read out of each, and training needs neither."""
    if quantization:
        pytest.importorskip("bitsandbytes")
    stored = []
    for number, (prompt, answer) in enumerate(CRITIC):
        Image.effect_noise((40, 36), 60 + number).convert("RGB").save(tmp_path / f"{number}.png")
        turns = [{"from": "human", "value": f"<image>\n{prompt}"}, {"from": "gpt", "value": answer}]
        stored.append({"id": f"row-{number}", "source": "x", "image": f"{number}.png", "conversations": turns})
    file = tmp_path / "critic.json"
    file.write_text(json.dumps(stored))
    items = vj.load_collection(file)
    assert all(map(has_own_texts, items)) and not all(row.get("response") for row in items)
    base = make("onevision", tmp_path / "base")
    more = dict(lora=ADAPTERS, quantization=quantization, allow=["length", "scores"])
    folder = fine_tune(base, items, out=tmp_path / "out", recipe="llava-critic", freeze=["tower"], **FEW, **more)
    losses = losses_of(tmp_path / "out")
    assert len(losses) == 3 and losses[-1] < losses[0]
    judge = vj.load_judge(folder, device="cpu")
    graded = judge.grade([row for row in items if row.get("response") and row.get("instruction")], max_new_tokens=8)
    assert len(graded) >= 1
    stored[1]["conversations"][1]["value"] = " "
    file.write_text(json.dumps(stored))
    with pytest.raises(CollectionError) as caught:
        fine_tune(base, vj.load_collection(file), out=tmp_path / "none", recipe="llava-critic", **FEW, **more)
    assert {problem.index for problem in caught.value.problems} == {1}
