"""Where a model computes. Nothing here has a GPU: what needs one is tested by the arguments that reach transformers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from originals import write_llava15, write_onevision
from vjudge.judge import load_judge
from vjudge.models.placement import choose_device, choose_dtype, place

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make torch claim a GPU, and Python claim packages."""

    real = importlib.util.find_spec

    def pretend(*, bfloat16: bool = True, packages: tuple[str, ...] = ()) -> None:
        optional = {"accelerate", "bitsandbytes"} - {*packages}
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bfloat16)
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name in optional else real(name)
        )

    return pretend


@pytest.fixture(scope="module", params=[write_llava15, write_onevision])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    write: Any = request.param
    return Path(write(tmp_path_factory.mktemp("placed") / "judge"))


def test_attention_reaches_every_part_of_the_model(folder: Path) -> None:
    for kind, expected in (("auto", "sdpa"), ("eager", "eager")):
        judge: Any = load_judge(folder, device="cpu", attention=kind)
        config = judge.engine.model.model.config
        assert (
            config.text_config._attn_implementation
            == config.vision_config._attn_implementation
            == expected
        )
        assert judge.engine.identity()["attention"] == expected


def test_automatic_device_and_precision(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device() == CPU and choose_dtype("auto", CPU) == torch.float32
    gpu()
    assert choose_device() == GPU and choose_dtype("auto", GPU) == torch.bfloat16
    gpu(bfloat16=False)
    with pytest.warns(UserWarning, match="this GPU has no bfloat16: computing in float16 instead"):
        assert choose_dtype("auto", GPU) == torch.float16


def test_quantised_loading_asks_for_the_original_authors_settings(gpu: Any) -> None:
    gpu(packages=("accelerate", "bitsandbytes"))
    eight, four = place(quantization="8bit"), place(quantization="4bit", device_map="auto")
    assert eight.options["device_map"] == {"": GPU} and four.options["device_map"] == "auto"
    assert (
        eight.options["quantization_config"].load_in_8bit
        and four.options["quantization_config"].load_in_4bit
    )
    config = four.options["quantization_config"]
    assert config.bnb_4bit_quant_type == "nf4" and config.bnb_4bit_use_double_quant
    assert config.bnb_4bit_compute_dtype == torch.bfloat16 == four.dtype


def test_what_cannot_run_says_what_helps_and_weights_go_straight_to_a_gpu(gpu: Any) -> None:
    gpu()
    with pytest.raises(
        ValueError, match=r"needs accelerate and bitsandbytes: pip install 'vjudge\[gpu\]'"
    ):
        place(quantization="8bit")
    assert "device_map" not in place().options  # by way of the CPU, without accelerate
    gpu(packages=("accelerate",))
    assert (
        place().options["device_map"] == {"": GPU}
        and "device_map" not in place(device="cpu").options
    )


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
def test_options_at_odds(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        place(**options)


def test_a_spread_model_answers_as_one_on_one_device(folder: Path) -> None:
    """accelerate hands every weight that waits elsewhere, here on a disk, to the CPU when its layer is reached."""
    pytest.importorskip("accelerate")
    picture = Image.fromarray(
        np.random.default_rng(0).integers(0, 256, (70, 101, 3), dtype=np.uint8)
    )
    whole = load_judge(folder, device="cpu")
    spread: Any = load_judge(
        folder, device_map={"model": "disk", "lm_head": "cpu"}, dtype="float32"
    )
    assert spread.engine.model.device == CPU
    assert any(tensor.device.type == "meta" for tensor in spread.engine.model.model.parameters())
    assert torch.equal(
        spread.forward("is it?", [picture]).logits, whole.forward("is it?", [picture]).logits
    )  # type: ignore[arg-type]
    answers = [judge.complete("is it?", [picture], max_new_tokens=4) for judge in (spread, whole)]
    assert answers[0] == answers[1]
