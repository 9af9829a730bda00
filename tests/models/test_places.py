"""Where a model computes. Nothing here has a GPU: what needs one is tested by the arguments that reach transformers."""

import importlib.util
from pathlib import Path

import pytest
import torch
from PIL import Image

from originals import complete, forward, write_llava15, write_onevision
from vjudge.judge import load_judge
from vjudge.models.placement import choose_device, choose_dtype, place

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch):
    """Make torch claim a GPU, and Python claim packages."""
    real = importlib.util.find_spec

    def pretend(*packages, bfloat16=True):
        absent = {"accelerate", "bitsandbytes"} - {*packages}
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bfloat16)
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name in absent else real(name)
        )

    return pretend


@pytest.fixture(scope="module", params=[write_llava15, write_onevision])
def folder(request, tmp_path_factory):
    write = request.param
    return Path(write(tmp_path_factory.mktemp("placed") / "judge"))


def test_attention_reaches_every_part_of_the_model(folder):
    judge = load_judge(folder, device="cpu", attention="eager")
    config = judge.engine.model.model.config
    parts = (config.text_config, config.vision_config)
    assert {part._attn_implementation for part in parts} == {"eager"}
    assert judge.engine.identity()["attention"] == "eager"


def test_automatic_device_and_precision(gpu, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device() == CPU and choose_dtype("auto", CPU) == torch.float32
    gpu()
    assert choose_device() == GPU and choose_dtype("auto", GPU) == torch.bfloat16
    gpu(bfloat16=False)
    with pytest.warns(UserWarning, match="this GPU has no bfloat16: computing in float16 instead"):
        assert choose_dtype("auto", GPU) == torch.float16


def test_quantised_loading_asks_for_the_original_authors_settings(gpu):
    gpu("accelerate", "bitsandbytes")
    eight = place(quantization="8bit").options
    four = place(quantization="4bit", device_map="auto").options
    assert (eight["device_map"], four["device_map"]) == ({"": GPU}, "auto")
    assert eight["quantization_config"].load_in_8bit
    config = four["quantization_config"]
    assert config.load_in_4bit and config.bnb_4bit_use_double_quant
    assert (config.bnb_4bit_quant_type, config.bnb_4bit_compute_dtype) == ("nf4", torch.bfloat16)


def test_what_cannot_run_says_what_helps_and_weights_go_straight_to_a_gpu(gpu):
    gpu()
    with pytest.raises(ValueError, match=r"needs accelerate: pip install 'vjudge\[gpu\]'"):
        place(quantization="8bit")
    assert "device_map" not in place().options, "by way of the CPU, without accelerate"
    gpu("accelerate")
    assert place().options["device_map"] == {"": GPU}
    assert "device_map" not in place(device="cpu").options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "dtype 'int8' is unknown"),
        ({"quantization": "2bit"}, "quantization '2bit' is unknown"),
        ({"device": "gpu"}, "device 'gpu' can't be used by torch"),
        ({"attention": "fast"}, "attention 'fast' is unknown"),
        ({"device": "cpu", "device_map": "auto"}, "exclude each other"),
    ],
)
def test_options_at_odds(options, message):
    with pytest.raises(ValueError, match=message):
        place(**options)


def test_a_spread_model_answers_as_one_on_one_device(folder):
    """accelerate hands every weight that waits elsewhere, here on a disk, to the CPU when its layer is reached."""
    pytest.importorskip("accelerate")
    picture = Image.linear_gradient("L").convert("RGB").resize((101, 70))
    places = {"model": "disk", "lm_head": "cpu"}
    spread = load_judge(folder, device_map=places, dtype="float32")
    assert spread.engine.model.device == CPU
    assert any(tensor.device.type == "meta" for tensor in spread.engine.model.model.parameters())
    judges = (spread, load_judge(folder, device="cpu"))
    logits = [forward(judge, "is it?", [picture]).logits for judge in judges]
    assert torch.equal(*logits)
    answers = [complete(judge, "is it?", [picture], max_new_tokens=4) for judge in judges]
    assert answers[0] == answers[1]
