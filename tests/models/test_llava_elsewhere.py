"""A converted folder in other hands: transformers reads it as this project reads the original."""

import json

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
from originals import forward, question, write_llava15, write_onevision
from vjudge import models
from vjudge.judge import load_judge
from vjudge.records import Item


class WithoutVideo(LlavaOnevisionProcessor):
    """AutoProcessor's class, without the video processor that needs torchvision."""

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


@pytest.fixture(scope="module", params=[write_llava15, write_onevision])
def small(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("elsewhere")
    folder = request.param(root / "judge")
    return load_judge(folder, device="cpu"), models.convert(folder, root / "converted")


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 2])
def test_processor_and_model_alone_compute_what_the_original_does(small, count):
    """Nothing of this project takes part between the converted folder and the logits."""
    judge, target = small
    wide = Image.linear_gradient("L").convert("RGB").resize((101, 70))
    images = [wide, Image.new("RGB", (60, 88), "teal")][:count]
    text = "Is it? It's the\n\n###Score: (1) <a>"
    model = AutoModelForImageTextToText.from_pretrained(target, dtype=torch.float32)
    content = [{"type": "image", "image": image} for image in images]
    talk = [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]
    inputs = processor_of(target).apply_chat_template(
        talk, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    prompt = question(judge.template.conversation, text, n_images=count)
    ids, logits = forward(judge.engine, prompt, images)
    assert inputs["input_ids"][0].tolist() == ids
    torch.testing.assert_close(model(**inputs).logits[0], logits, atol=5e-5, rtol=1e-5)


def test_a_served_prompt_is_the_judges_own_token_for_token(small):
    """A chat template writes the beginning-of-text token, once: endpoints add none."""
    judge, target = small
    tokenizer = AutoTokenizer.from_pretrained(target)
    item = Item.from_row(make_rows(1)[0])
    messages = judge.template.as_messages().render(item).messages()
    written = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    served = tokenizer(written, add_special_tokens=False).input_ids
    assert served == judge.engine.encoder.ids(judge.template.render(item), image_tokens=[1])
    assert served.count(judge.engine.model.image_token_id) == 1
    assert served.count(1) == (not judge.engine.model.tiled) == (served[0] == 1)
