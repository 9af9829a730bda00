"""Where a model computes. What needs a GPU is tested by the arguments that reach transformers."""

import pytest
import torch
from PIL import Image

from originals import logits_of, write_onevision
from vjudge.judge import load_judge
from vjudge.models.placement import choose_device, choose_dtype, place

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch):
    """Make torch claim a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)


def test_automatic_device_and_precision(gpu, monkeypatch):
    assert choose_device() == GPU and choose_dtype("auto", GPU) == torch.bfloat16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert choose_dtype("auto", GPU) == torch.float16
    assert choose_dtype("auto", CPU) == torch.float32


def test_quantised_loading_asks_for_the_original_authors_settings(gpu):
    eight = place(quantization="8bit").options
    four = place(quantization="4bit", device_map="auto").options
    assert (eight["device_map"], four["device_map"]) == ({"": GPU}, "auto")
    assert eight["quantization_config"].load_in_8bit
    config = four["quantization_config"]
    assert config.load_in_4bit and config.bnb_4bit_use_double_quant
    assert (config.bnb_4bit_quant_type, config.bnb_4bit_compute_dtype) == ("nf4", torch.bfloat16)
    assert place().options["device_map"] == {"": GPU}, "not by way of the CPU's memory"
    assert "device_map" not in place(device="cpu").options


@pytest.mark.parametrize("options", [{"dtype": "int8"}, {"quantization": "2bit"}], ids=str)
def test_unknown_options(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}='{value}': "):
        place(**options)


def test_a_spread_model_answers_as_one_on_one_device(tmp_path):
    """accelerate hands every weight that waits on a disk to the CPU when its layer is reached."""
    folder = write_onevision(tmp_path / "judge")
    picture = Image.linear_gradient("L").convert("RGB").resize((101, 70))
    places = {"model": "disk", "lm_head": "cpu"}
    spread = load_judge(folder, device="cpu", device_map=places, dtype="float32")
    assert any(tensor.device.type == "meta" for tensor in spread.engine.model.model.parameters())
    whole = load_judge(folder, device="cpu", attention="eager")
    assert whole.engine.identity()["attention"] == "eager"
    logits = [logits_of(judge, "is it?", [picture]) for judge in (spread, whole)]
    torch.testing.assert_close(*logits, atol=1e-4, rtol=1e-4)
