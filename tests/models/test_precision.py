"""Where a model computes and how precisely: devices, few bits on a CPU, and the adapters on a base."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import vjudge as vj
from originals import edit, logits_of, refused, write_onevision
from vjudge import models
from vjudge.judging.loading import load_judge
from vjudge.models.placement import choose_device, choose_dtype, place

LAYERS = {"4bit": "Linear4bit", "8bit": "Linear8bitLt", None: "Linear"}


@pytest.fixture(scope="module")
def items():
    return vj.load_collection("scenes", split="test", limit=12)


@pytest.fixture(scope="module")
def exact(items):
    return load_judge("tiny", device="cpu").grade(items)


@pytest.mark.parametrize(
    "way", [{"quantization": "4bit"}, {"quantization": "8bit"}, {"dtype": "bfloat16"}]
)
def test_the_embedded_judge_is_graded_in_few_bits_on_a_cpu(way, items, exact):
    judge = load_judge("tiny", device="cpu", **way)
    kinds = {}
    for name, module in judge.engine.model.model.named_modules():
        part = re.search("vision_tower|projector|language_model|lm_head", name)
        if part and "Linear" in type(module).__name__:
            kinds.setdefault(part[0], set()).add(type(module).__name__)
    bits = way.get("quantization")
    assert kinds.pop("language_model") == {LAYERS[bits]}
    # the projector as in LLaVA's own training: it may train under adapters
    assert kinds == {part: {"Linear"} for part in ("vision_tower", "projector", "lm_head")}
    graded = judge.grade(items)
    assert graded["failure"].isna().mean() > 0.9
    assert (graded["score"] == exact["score"]).mean() > 0.8
    assert (graded["expected_score"] != exact["expected_score"]).any()
    identity = judge.engine.identity()
    assert identity["quantization"] == bits and identity["dtype"] == way.get("dtype", "float32")


# Adapters

SETTINGS = "adapter_config.json"


@pytest.fixture(scope="module")
def adapters(random_judge, tmp_path_factory):
    """A folder of adapters on the random judge, with weights that change its answers."""
    peft = pytest.importorskip("peft")
    folder = tmp_path_factory.mktemp("adapters") / "adapters"
    settings = peft.LoraConfig(
        r=2, lora_alpha=4, target_modules=r".*language_model\..*\.(q_proj|v_proj)"
    )
    torch.manual_seed(0)
    wrapped = peft.get_peft_model(models.load(random_judge, device="cpu").model, settings)
    for name, weight in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    wrapped.save_pretrained(folder)
    edit(folder / SETTINGS, base_model_name_or_path=str(random_judge))
    return folder


@pytest.fixture
def copied(adapters, tmp_path):
    return Path(shutil.copytree(adapters, tmp_path / "adapters"))


def test_adapters_load_with_their_base_and_their_settings_are_fingerprinted(
    adapters, copied, random_judge
):
    ids = torch.arange(5, 45)[None]
    logits = []
    for path in (random_judge, adapters):
        logits.append(models.load(path, device="cpu").model(input_ids=ids).logits)
    assert (logits[0] - logits[1]).abs().max() > 0.01
    edit(copied / SETTINGS, lora_alpha=64)
    assert models.fingerprint(copied) != models.fingerprint(adapters)


@pytest.mark.parametrize(
    "targets", [r".*language_model\..*\.q_proj", r".*language_model\..*\.0\..*\.(q|v)_proj"]
)
def test_adapter_weights_that_have_no_module_are_refused(copied, targets):
    """peft passed over them in silence: half of the training was gone."""
    edit(copied / SETTINGS, target_modules=targets)
    refused(copied, "adapter weights have no module .* correct its target_modules")


def test_adapters_that_do_not_fit_are_refused(copied):
    file = copied / "adapter_model.safetensors"
    weights = load_file(file)
    save_file(dict(sorted(weights.items())[1:]), file)
    refused(copied, "can't be read from .*missing adapter keys")
    file.write_bytes(b"\xff" * 100)
    refused(copied, "can't be read from .*SafetensorError")
    edit(copied / SETTINGS, target_modules="(")
    refused(copied, "can't be read from .*unterminated")


# --- where a model computes ------------------------------------------------------------------------


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


@pytest.mark.parametrize("device", ["gpu", "cuda:7"])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(ValueError, match=f"device='{device}': .*use 'auto' or 'cpu'"):
        choose_device(device)


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


@pytest.mark.parametrize("options", [{"dtype": "int8"}, {"quantization": "2bit"}])
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
