"""Rows to batches: exactly the published target carries loss, and padding, sharing and order change nothing of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chatmodels import make_onevision, make_text
from PIL import Image
from training_cases import coder_of, rows_with_feedback

import vjudge as vj
from vjudge import prompts
from vjudge.data import rows_of
from vjudge.images import picture
from vjudge.prompts import TEMPLATES
from vjudge.training.collate import IGNORED, Coder, Collator, Order
from vjudge.training.finetune import Network


@pytest.fixture(scope="module")
def onevision(tmp_path_factory) -> Path:
    return make_onevision(tmp_path_factory.mktemp("ov") / "judge")


@pytest.fixture(scope="module")
def text_only(tmp_path_factory) -> Path:
    return make_text("llama", tmp_path_factory.mktemp("text") / "judge")


@pytest.fixture(params=["llava", "onevision", "text"])
def base(request, random_judge, onevision, text_only) -> tuple[Path, str]:
    """A checkpoint and the wording to train it on."""
    return {
        "llava": (random_judge, "prometheus-vision"),
        "onevision": (onevision, "prometheus-vision"),
        "text": (text_only, "prometheus"),
    }[request.param]


def test_the_trained_tokens_are_exactly_the_target(base):
    """Decoded, the labelled tokens are the published target and the end; the ids before them are the judge's prompt."""
    judge, coder = coder_of(*base)
    tokenizer, engine = judge.engine.model.tokenizer, judge.engine
    for row in rows_with_feedback(6):
        example = coder(row)
        trained = [token for token in example.labels if token != IGNORED]
        text = judge.template.conversation.reply + prompts.target(row["feedback"], int(row["gold"]))
        assert tokenizer.decode(trained[:-1]) == text
        assert trained[-1] in engine.ends
        assert example.ids[example.n_prompt :] == trained
        prompt, options = judge.template.render(vj.records.Item.from_row(row)), {}
        if judge.engine.model.sees_images:
            features = engine.images_of_a_call()
            prompt, places = features.place(prompt, features.keys(list(map(picture, row["images"]))))
            options = {"image_tokens": places}
        assert example.ids[: example.n_prompt] == engine.encoder.ids(prompt, **options)


ABSOLUTE = [name for name, t in TEMPLATES.items() if not t.compares and t.marker in ("[RESULT]", "Final Score:")]


@pytest.mark.parametrize("name", ABSOLUTE)
def test_every_wording_trains_the_target_alone(name, random_judge, onevision, text_only):
    """In Vicuna's, Llama's and Mistral's conversations or in Qwen's, with two images where the judge sees any."""
    template = TEMPLATES[name]
    chatml = template.conversation.controls or name.startswith("chat")
    folder = onevision if chatml else random_judge if template.sees_images else text_only
    judge, coder = coder_of(folder, name)
    row = rows_with_feedback(3, n_images=2 if judge.template.sees_images else 1)[1]
    example = coder(row)
    trained = [token for token in example.labels if token != IGNORED]
    own = template.marker == "[RESULT]"
    text = prompts.target(row["feedback"], 2) if own else f"{row['feedback']}\nFinal Score: 2"
    assert judge.engine.model.tokenizer.decode(trained[:-1]) == judge.template.conversation.reply + text
    places = [i for i, token in enumerate(example.ids) if token == judge.engine.model.image_token_id]
    assert not places or max(places) < example.n_prompt
    assert (len(places) > 0) == judge.template.sees_images


@pytest.mark.parametrize("padding", ["left", "right"])
def test_padding_keeps_every_label_and_the_loss(base, padding):
    judge, coder = coder_of(*base)
    rows = rows_with_feedback(5)
    rows[2]["response"] = "it is " * 12
    if judge.engine.model.sees_images:
        rows[3]["images"] = rows[3]["images"] * 2
    examples = [coder(row, index) for index, row in enumerate(rows)]
    batch = Collator(coder, padding=padding)(examples)
    for example, ids, mask, labels in zip(
        examples, batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True
    ):
        assert ids[mask.bool()].tolist() == example.ids
        assert labels[mask.bool()].tolist() == example.labels
        assert (labels[~mask.bool()] == IGNORED).all()
    network = Network(judge.engine.model)
    with torch.no_grad():
        together = network(**batch)["loss"]
        n = sum(label != IGNORED for e in examples for label in e.labels)
        alone = sum(network(**Collator(coder)([e]), num_items_in_batch=n)["loss"] for e in examples)
    assert float(together) == pytest.approx(float(alone), rel=1e-5)


def test_the_loss_is_transformers_own(random_judge):
    """On one image a row the same number as the model's own loss over the same labels."""
    judge, coder = coder_of(random_judge, "prometheus-vision")
    model, rows = judge.engine.model, rows_with_feedback(3)
    batch = Collator(coder, padding="right")([coder(row) for row in rows])
    pixels = model.image_processor([row["images"][0] for row in rows], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        inputs = {key: batch[key] for key in ("input_ids", "attention_mask", "labels")}
        theirs = model.model(**inputs, pixel_values=pixels).loss
        assert float(Network(model)(**batch)["loss"]) == pytest.approx(float(theirs), abs=1e-5)


def test_images_that_rows_share_are_opened_once_a_batch(random_judge, tmp_path):
    """And a row that is left out takes none of them along."""
    judge, coder = coder_of(random_judge, "prometheus-vision")
    rows = rows_with_feedback(3)
    for number, row in enumerate(rows):
        row["images"] = [str(tmp_path / f"{number}.jpg")]
        Image.effect_noise((200, 200), 90).convert("RGB").save(row["images"][0])
    broken = tmp_path / "2.jpg"
    broken.write_bytes(broken.read_bytes()[:3000])  # its header is sound, its pixels are not
    rows[2]["images"] = [rows[0]["images"][0], str(broken)]
    batch = Collator(coder, rows=rows)([coder(rows[n], n) for n in (2, 0, 1, 0)])
    (fault,) = batch.pop("faults")
    assert (fault.index, fault.id, fault.field) == (2, "item-2", "images") and "2.jpg" in fault.what
    assert ["tiles" in picture for picture in batch["pictures"]] == [True, True, False]
    network = Network(judge.engine.model)
    with torch.no_grad():
        alone = [network(**Collator(coder)([coder(rows[n])]), num_items_in_batch=1)["loss"] for n in (0, 1, 0)]
        together = network(**batch, num_items_in_batch=1)["loss"]
    assert float(together) == pytest.approx(float(sum(alone)), rel=1e-5)


def test_epochs_are_drawn_anew_and_alike():
    lengths = [n * 7 % 13 + 1 for n in range(37)]
    order = Order(lengths, batch_size=4, steps=14, seed=1, grouped=True)
    first = order.epoch(0)
    assert sorted(first) == sorted(order.epoch(1)) == list(range(37)) and order.epoch(1) != first
    assert list(order) == [*first, *order.epoch(1)][:56] == list(order) and len(order) == 56
    steps = [[lengths[i] for i in first[start : start + 4]] for start in range(0, 36, 4)]
    assert np.mean([max(step) - min(step) for step in steps]) < 2


# Texts of a row's own, published samples, descriptions


def test_published_texts_go_in_as_they_are(onevision):
    """A row of LLaVA-Critic-113k is trained on its own prompt and answer, in ChatML."""
    judge, coder = coder_of(onevision, None)
    texts = {"prompt": "Say <|im_end|> which.", "target": " A.\nScore: 7"}
    example = coder({"id": "1", "images": [Image.new("RGB", (20, 30))], **texts})
    tokenizer = judge.engine.model.tokenizer
    assert tokenizer.decode([t for t in example.labels if t != IGNORED]) == " A.\nScore: 7<|im_end|>"
    start = tokenizer.decode(example.ids[: example.n_prompt]).replace("<image>", "")
    assert start.endswith("<|im_start|>user\n\nSay <|im_end|> which.<|im_end|>\n<|im_start|>assistant\n")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert example.ids.count(end) == 3, "the one in the text is spelled out"


def test_the_published_sample_gives_its_own_target():
    file = Path(__file__).parents[3] / "shared/data/prometheus_vision_samples/sample_train_data.json"
    if not file.is_file():
        pytest.skip(f"{file} is not there")
    for row, item in zip(json.loads(file.read_text()), rows_of(file), strict=True):
        prompt, target = vj.training.prompt_and_target(item, TEMPLATES["prometheus-vision"])
        assert target == row["conversations"][1]["value"]
        assert prompt.text.endswith(row["conversations"][0]["value"].removeprefix("<image>\n") + " ASSISTANT:")


def test_a_description_is_trained_on_its_image_alone(random_judge):
    """The ids are the image's places and the text with a line feed, as in LLaVA; only the text has loss."""
    judge, coder = coder_of(random_judge, "prometheus-vision", shape="description")
    example = coder({"id": "1", "images": [Image.new("RGB", (20, 30))], "response": "a plain picture"})
    prompt = example.ids[: example.n_prompt]
    assert prompt.count(judge.engine.model.image_token_id) == 4 and len(prompt) - 4 <= 1  # what opens every text
    text = judge.engine.model.tokenizer.decode([token for token in example.labels if token != IGNORED])
    assert text == "a plain picture\n"


def test_a_chat_model_with_its_own_processor_is_refused_with_another_way(tmp_path):
    from chatmodels import make_chat

    judge: Any = vj.load_judge(make_chat("qwen2_vl", tmp_path / "judge"), template="chat", device="cpu")
    with pytest.raises(ValueError, match="SFTTrainer"):
        Coder(judge.engine.model, judge.template)
