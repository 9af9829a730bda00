"""Where a model computes. Nothing here has a GPU: what needs one is tested by the arguments that reach transformers."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from originals import write_llava15, write_onevision
from PIL import Image

from vjudge.engines import Ask
from vjudge.judge import load_judge
from vjudge.models import places
from vjudge.models.places import place
from vjudge.prompts import question

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


# Attention


def test_flash_attention_that_cannot_run_is_refused(gpu: Any) -> None:
    gpu(packages=("flash_attn", "accelerate"))
    assert place(attention="flash_attention_2").options["attn_implementation"] == "flash_attention_2"
    assert "attn_implementation" not in place().options  # the model's own way
    for options in ({"dtype": "float32"}, {"device": "cpu", "dtype": "bfloat16"}):
        with pytest.raises(
            ValueError, match=r'needs the package flash-attn, a GPU .* here it is .*: use attention="sdpa"'
        ):
            place(attention="flash_attention_2", **options)
    for claims in ({"packages": ("flash_attn",), "capability": (7, 5)}, {}):
        gpu(**claims)
        with pytest.raises(ValueError, match=f"float16 on cuda, with{'' if claims else 'out'} the package"):
            place(attention="flash_attention_2", dtype="float16")
    with pytest.raises(ValueError, match="attention 'fast' is unknown"):
        place(attention="fast")


@pytest.mark.parametrize("name", ["llava", "onevision"])
def test_attention_reaches_every_part_of_the_model(folders: dict[str, Path], name: str) -> None:
    for kind, chosen in (("auto", "sdpa"), ("eager", "eager")):
        judge = load_judge(folders[name], device="cpu", attention=kind)
        config = judge.engine.model.model.config
        assert config.text_config._attn_implementation == config.vision_config._attn_implementation == chosen
        assert judge.engine.identity()["attention"] == chosen


# Device and precision


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


@pytest.mark.parametrize("device", ["cuda:3", "gpu", "mps"])
def test_absent_device(gpu: Any, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu()
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match=device.split(":")[0]):
        places.choose_device(device)


# Quantisation


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
    spread = place(quantization="4bit", device_map="auto", max_memory={0: "10GiB"})
    assert spread.options["device_map"] == "auto" and spread.options["max_memory"] == {0: "10GiB"}
    assert "quantization_config" in spread.options


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


def test_the_identity_names_what_quantised(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load_judge(folders["llava"], device="cpu").engine
    assert engine.identity()["quantization"] is None and "bitsandbytes" not in engine.identity()["versions"]
    object.__setattr__(engine.model, "quantization", "4bit")
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.48" if name == "bitsandbytes" else real(name))
    assert engine.identity()["quantization"] == "4bit" and engine.identity()["versions"]["bitsandbytes"] == "0.48"


# Several devices


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
        ({"max_memory": {0: "1GiB"}}, 'go with a device_map; add device_map="auto"'),
        ({"offload_folder": "x"}, 'go with a device_map; add device_map="auto"'),
        ({"device": "cpu", "device_map": "auto"}, "exclude each other"),
        ({"device_map": "spread"}, "device_map 'spread' is unknown"),
        ({"device_map": {"": 3}}, r"device 'cuda:3' is not available"),
    ],
)
def test_options_at_odds(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        place(**options)


def test_a_device_map_needs_accelerate(gpu: Any) -> None:
    gpu()
    with pytest.raises(ValueError, match=r"device_map needs accelerate: pip install 'vjudge\[gpu\]'"):
        place(device_map="auto")


@pytest.mark.parametrize("option", [{"device_map": "auto"}, {"attention": "sdpa"}, {"dtype": "float16"}])
def test_a_server_places_its_own_model(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(option))}: these are the server engine's own choice"):
        load_judge("openai:judge", **option)


@pytest.mark.filterwarnings("ignore:The following device_map keys do not match any submodules")
@pytest.mark.parametrize("where", ["cpu", "auto", "tower on disk", "decoder on disk", "all on disk"])
@pytest.mark.parametrize("name", ["llava", "onevision"])
def test_a_spread_model_answers_as_one_on_one_device(
    folders: dict[str, Path], tmp_path: Path, picture: Image.Image, name: str, where: str
) -> None:
    """accelerate hands every weight that waits on the disk to the CPU when its layer is reached."""
    tower = ["model.vision_tower", "model.multi_modal_projector"]
    decoder, rest = ["model.language_model", "lm_head"], {"model.image_newline": "cpu"} if "onevision" in name else {}
    maps: dict[str, Any] = {
        "cpu": {"": "cpu"},
        "auto": "auto",
        "tower on disk": {**rest, **dict.fromkeys(tower, "disk"), **dict.fromkeys(decoder, "cpu")},
        "decoder on disk": {**rest, **dict.fromkeys(tower, "cpu"), **dict.fromkeys(decoder, "disk")},
        "all on disk": {"model": "disk", "lm_head": "cpu"},
    }
    pytest.importorskip("accelerate")
    whole = load_judge(folders[name], device="cpu")
    spread = load_judge(folders[name], device_map=maps[where], offload_folder=str(tmp_path), dtype="float32")
    assert spread.engine.model.device == CPU
    elsewhere = {each for each, tensor in spread.engine.model.model.named_parameters() if tensor.device.type == "meta"}
    assert bool(elsewhere) == ("disk" in where)
    asked = ("is the thing there?", [picture])
    assert torch.equal(spread.forward(*asked).logits, whole.forward(*asked).logits)
    assert spread.complete(*asked, max_new_tokens=4) == whole.complete(*asked, max_new_tokens=4)
    texts = ["is the thing there?", "is it?", "the thing"]
    prompts = [question(whole.template.conversation, text, n_images=1) for text in texts]
    rows = Ask(max_new_tokens=6, batch_size=3)
    answers = [
        sorted(
            (each.index, each.text) for batch in judge.engine.answer(prompts, [[picture]] * 3, rows) for each in batch
        )
        for judge in (whole, spread)
    ]
    assert answers[0] == answers[1] and len(answers[0]) == 3
