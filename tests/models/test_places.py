"""Where a model computes. Nothing here has a GPU: what needs one is tested by the arguments that reach transformers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from originals import write_llava15, write_onevision
from PIL import Image

from vjudge.judge import load_judge
from vjudge.models import places
from vjudge.models.places import place

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make torch claim GPUs of a capability, and Python claim packages."""

    def pretend(*, capability: tuple[int, int] = (8, 0), count: int = 1, packages: tuple[str, ...] = ()) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "Test GPU")
        bfloat16 = capability >= (8, 0)
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation=True: bfloat16 or including_emulation
        )
        real = importlib.util.find_spec
        optional = ("accelerate", "bitsandbytes", "flash_attn")
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: name in packages or None if name in optional else real(name)
        )
        places._say_no_bfloat16.cache_clear()

    return pretend


@pytest.fixture(scope="module")
def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (70, 101, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("placed")
    return {"llava": write_llava15(root / "llava"), "onevision": write_onevision(root / "onevision")}


@pytest.mark.parametrize("name", ["llava", "onevision"])
def test_attention_reaches_every_part_of_the_model(folders: dict[str, Path], name: str) -> None:
    for kind, chosen in (("auto", "sdpa"), ("eager", "eager")):
        judge = load_judge(folders[name], device="cpu", attention=kind)
        config = judge.engine.model.model.config
        assert config.text_config._attn_implementation == config.vision_config._attn_implementation == chosen
        assert judge.engine.identity()["attention"] == chosen


def test_automatic_device_and_precision(gpu: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert places.choose_device() == CPU and places.choose_dtype("auto", CPU) == torch.float32
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert places.choose_device() == torch.device("mps")
    gpu()
    assert places.choose_device() == GPU and places.choose_dtype("auto", GPU) == torch.bfloat16
    assert places.choose_dtype(torch.float32, GPU) == torch.float32 and not capsys.readouterr().out
    gpu(capability=(7, 5))
    for _ in range(2):
        assert places.choose_dtype("auto", GPU) == torch.float16  # bfloat16 would be emulated, and is slower
    assert capsys.readouterr().out == "Test GPU has no bfloat16: computing in float16 instead\n"


def test_quantised_loading_asks_for_the_original_authors_settings(gpu: Any) -> None:
    gpu(packages=("accelerate", "bitsandbytes"))
    for kind in ("4bit", "8bit"):
        placed = place(quantization=kind)
        config = placed.options["quantization_config"]
        assert placed.options["device_map"] == {"": GPU} and placed.dtype == torch.bfloat16
        assert config.load_in_4bit == (kind == "4bit") and config.load_in_8bit == (kind == "8bit")
        if kind == "4bit":
            assert config.bnb_4bit_quant_type == "nf4" and config.bnb_4bit_use_double_quant
            assert config.bnb_4bit_compute_dtype == torch.bfloat16
    spread = place(quantization="4bit", device_map="auto").options
    assert spread["device_map"] == "auto" and "quantization_config" in spread


@pytest.mark.parametrize("name", ["llava", "onevision"])
def test_quantisation_leaves_the_tower_and_the_output_weights(folders: dict[str, Path], name: str) -> None:
    """As the LLaVA-1.5 code: it quantises the decoder and the projector."""
    from transformers.quantizers.quantizers_utils import should_convert_module

    model = load_judge(folders[name], device="cpu").engine.model.model
    linear = [part for part, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    kept = {part for part in linear if not should_convert_module(part, list(places.UNQUANTIZED))}
    assert kept == {part for part in linear if part == "lm_head" or part.startswith("model.vision_tower.")}
    assert {part for part in linear if "projector" in part} and not {part for part in kept if "projector" in part}


def test_quantisation_that_cannot_run_says_what_helps(gpu: Any) -> None:
    with pytest.raises(ValueError, match=r'on CUDA or a CPU .*the device is mps; here, use dtype="float16"'):
        places.quantized("4bit", torch.device("mps"), torch.float16)
    gpu()
    with pytest.raises(ValueError, match=r"needs accelerate and bitsandbytes: pip install 'vjudge\[gpu\]'"):
        place(quantization="8bit")


def test_weights_go_straight_to_a_gpu(gpu: Any) -> None:
    gpu(packages=("accelerate",))
    assert place().options["device_map"] == {"": GPU}
    gpu()
    assert "device_map" not in place().options  # by way of the CPU, without accelerate
    assert "device_map" not in place(device="cpu").options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "dtype 'int8' is unknown"),
        ({"quantization": "2bit"}, "quantization '2bit' is unknown"),
        ({"attention": "fast"}, "attention 'fast' is unknown"),
        ({"device": "gpu"}, "device 'gpu' is unknown"),
        ({"device": "cpu", "device_map": "auto"}, "exclude each other"),
        ({"device_map": "spread"}, "device_map 'spread' is unknown"),
        ({"device_map": {"": 3}}, r"device 'cuda:3' is not available"),
    ],
)
def test_options_at_odds(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        place(**options)


@pytest.mark.parametrize("where", ["auto", "elsewhere"])
@pytest.mark.parametrize("name", ["llava", "onevision"])
def test_a_spread_model_answers_as_one_on_one_device(
    folders: dict[str, Path], picture: Image.Image, name: str, where: str
) -> None:
    """accelerate hands every weight that waits elsewhere, here on a disk, to the CPU when its layer is reached."""
    pytest.importorskip("accelerate")
    whole = load_judge(folders[name], device="cpu")
    waiting = {"model": "disk", "lm_head": "cpu"}
    spread = load_judge(folders[name], device_map="auto" if where == "auto" else waiting, dtype="float32")
    model: Any = spread.engine.model
    assert model.device == CPU
    elsewhere = {part for part, tensor in model.model.named_parameters() if tensor.device.type == "meta"}
    assert bool(elsewhere) == (where == "elsewhere")
    question = ("is the thing there?", [picture])
    assert torch.equal(spread.forward(*question).logits, whole.forward(*question).logits)
    assert spread.complete(*question, max_new_tokens=4) == whole.complete(*question, max_new_tokens=4)
