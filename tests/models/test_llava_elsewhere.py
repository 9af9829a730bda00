"""A converted folder in other hands: transformers' processors and models read it as this project reads the original."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    LlavaOnevisionProcessor,
)
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.utils import is_torchvision_available

from conftest import make_rows
from originals import complete, forward, question, write_llava15, write_onevision
from vjudge import models
from vjudge.judge import load_judge
from vjudge.records import Item

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
PUBLISHED = {
    "llava15": "llava15-original/llava-bin-vt",
    "onevision": "llava-next-original/llava-critic-qwen-tiny",
}
OWN_WAY = {"llava15": "crop", "onevision": "anyres"}  # as the originals prepare a single image
ROUNDED = "edge"  # the fixture's image whose margin transformers rounds otherwise than the original


class WithoutVideo(LlavaOnevisionProcessor):
    """AutoProcessor's class, without the video processor that needs torchvision and that no judge uses."""

    def check_argument_for_proper_class(self, *_): ...


def processor_of(folder):
    """What AutoProcessor makes of a converted folder, PIL-based."""
    settings = json.loads((folder / "processor_config.json").read_text())
    if settings.pop("processor_class") == "LlavaProcessor" or is_torchvision_available():
        return AutoProcessor.from_pretrained(folder, backend="pil")
    template = (folder / "chat_template.jinja").read_text()
    pictures = LlavaOnevisionImageProcessorPil.from_pretrained(folder)
    return WithoutVideo(
        pictures, AutoTokenizer.from_pretrained(folder), None, chat_template=template, **settings
    )


def asked(processor, text, images):
    """A user's turn as an engine prepares it: the conversation by the chat template, then ids and pixels."""
    content = [{"type": "image", "image": image} for image in images]
    talk = [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]
    written = processor.apply_chat_template(talk, add_generation_prompt=True)
    inputs = processor.apply_chat_template(
        talk, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    return written.removeprefix(processor.tokenizer.bos_token or ""), inputs


def expanded(judge, text, images, mode):
    """The ids of the same turn here, image places included."""
    engine = judge.engine
    per_image = [
        len(forward(judge, "x", [image], image_mode=mode).image_features) for image in images
    ]
    prompt = question(judge.template.conversation, text, n_images=len(images))
    return list(engine.encoder.ids(prompt, image_tokens=per_image))


@pytest.fixture(scope="module", params=["llava15", "onevision"])
def small(request, tmp_path_factory):
    root, family = tmp_path_factory.mktemp("elsewhere"), request.param
    folder = (write_llava15 if family == "llava15" else write_onevision)(root / "judge")
    return family, load_judge(folder, device="cpu"), models.convert(folder, root / "converted")


@pytest.mark.skipif(not FIXTURES.is_dir(), reason=f"no golden outputs at {FIXTURES}")
@pytest.mark.parametrize("family", PUBLISHED)
def test_the_processor_gives_our_ids_and_pixels_for_every_fixture(family, tmp_path):
    folder, mode = FIXTURES / PUBLISHED[family], OWN_WAY[family]
    judge, processor = (
        load_judge(folder, device="cpu"),
        processor_of(models.convert(folder, tmp_path / "converted")),
    )
    facts = json.loads((folder.parent / "golden.json").read_text())
    compared = 0
    for case in facts["cases"]:
        if len(case.get("images") or ()) > 1:
            continue  # their marks stand inside the text; two images are compared below
        (name,) = case.get("images") or [case["image"]]
        image = Image.open(folder.parent / "images" / f"{name}.png").convert("RGB")
        text = facts["prompts"][case["prompt"]]["question"].removeprefix("<image>\n")
        written, inputs = asked(processor, text, [image])
        assert written == facts["prompts"][case["prompt"]]["prompt"]
        out = forward(judge, text, [image], image_mode=mode)
        pixels = inputs["pixel_values"].reshape(out.pixel_values.shape)
        assert (pixels - out.pixel_values).abs().max() < 1e-6
        if name != ROUNDED:
            assert inputs["input_ids"][0].tolist() == expanded(judge, text, [image], mode)
            compared += 1
    assert compared >= 10


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 2])
def test_processor_and_model_alone_compute_what_the_original_does(small, count):
    """Nothing of this project takes part between the converted folder and the logits."""
    family, judge, target = small
    wide = Image.linear_gradient("L").convert("RGB").resize((101, 70))
    images = [wide, Image.new("RGB", (60, 88), "teal")][:count]
    text = "Is it? It's the\n\n###Score: (1) <a>"
    model, report = AutoModelForImageTextToText.from_pretrained(
        target, dtype=torch.float32, output_loading_info=True
    )
    kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
    assert not any(report[kind] for kind in kinds)
    _, inputs = asked(processor_of(target), text, images)
    mode = "pad" if family == "onevision" and count > 1 else OWN_WAY[family]
    assert inputs["input_ids"][0].tolist() == expanded(judge, text, images, mode)
    words = judge.engine.model.vocabulary_size
    logits = model(**inputs).logits[0, :, :words]
    torch.testing.assert_close(logits, forward(judge, text, images).logits, atol=5e-5, rtol=1e-5)
    answer = model.generate(**inputs, max_new_tokens=8, do_sample=False)[0]
    written = answer[inputs["input_ids"].shape[1] :].tolist()
    assert written == complete(judge, text, images, max_new_tokens=8)


def test_a_served_prompt_is_the_judges_own_token_for_token(small):
    """Chat endpoints add no special tokens to what a template writes: it has the beginning-of-text token, once."""
    family, judge, target = small
    tokenizer = AutoTokenizer.from_pretrained(target)
    item = Item.from_row(make_rows(1)[0])
    messages = judge.template.as_messages().render(item).messages()
    written = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    served = tokenizer(written, add_special_tokens=False).input_ids
    assert served == judge.engine.encoder.ids(judge.template.render(item), image_tokens=[1])
    image = judge.engine.model.image_token_id
    assert served.count(image) == 1 and served.count(1) == (family == "llava15") == (served[0] == 1)
