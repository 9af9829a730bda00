"""What a judge needs against what is free: counted by hand, and compared with models that are really built."""

from __future__ import annotations

import doctest
import importlib
import json
from pathlib import Path
from typing import Any

import huggingface_hub
import nbformat
import pytest
import torch
from originals import write_llava15, write_onevision
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, LlamaConfig

from vjudge import models
from vjudge.engines.vision import vision_of
from vjudge.judge import load_judge
from vjudge.models import memory
from vjudge.models.memory import GIB, Machine, need

ROOT = Path(__file__).parents[2]
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
SMALL |= {"num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512}
LAPTOP = Machine("a laptop", ram=14 * GIB)


def published(name: str) -> Any:
    (found,) = [each for each in memory.PUBLISHED if each.name == name]
    return memory.assemble(found.text, found.vision)


# Counting


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # as their authors and the hub's pages count them
        ("Prometheus 7B", 6_738_415_616),
        ("Prometheus 13B", 13_015_864_320),
        ("Prometheus 2 7B", 7_241_732_096),
        ("Prometheus 2 8x7B", 46_702_792_704),
        ("Prometheus-Vision 7B", 7_062_902_784),
        ("Prometheus-Vision 13B", 13_350_839_296),
    ],
)
def test_published_parameters(name: str, parameters: int) -> None:
    assert need(published(name)).parameters == parameters
    assert need(published(name), dtype="float32").weights == 4 * parameters


def test_qwen2_is_the_published_one() -> None:
    """LLaVA-Critic's decoder has 7,615,616,512 weights and its projector two layers; the rest is the tower."""
    config = published("LLaVA-Critic 7B")
    projector = (1152 + 1) * 3584 + (3584 + 1) * 3584 + 3584  # and the newline
    layer = 4 * 1152 * 1152 + 4 * 1152 + 2 * 1152 * 4304 + 4304 + 1152 + 4 * 1152
    tower = 26 * layer + 3 * 14 * 14 * 1152 + 1152 + 729 * 1152 + 2 * 1152
    assert need(config).parameters == 7_615_616_512 + projector + tower


@pytest.mark.parametrize("tied", [False, True])
def test_a_built_model_takes_what_was_computed(tied: bool) -> None:
    config = LlamaConfig(**SMALL, tie_word_embeddings=tied)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    assert need(config).weights == model.get_memory_footprint(return_buffers=False)
    cache = DynamicCache(config=config)
    model(torch.zeros((2, 192), dtype=torch.long), past_key_values=cache, use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert need(config, batch=2, length=192).cache == held == 2 * 2 * 3 * 192 * 2 * 16 * 2


def test_quantised_weights_by_hand() -> None:
    """Linear layers of the decoder shrink; embeddings, norms and output weights do not."""
    config = LlamaConfig(**SMALL)
    linear = 3 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 64 * 96)
    rest = 2 * 100 * 64 + 3 * 2 * 64 + 64
    rows = 3 * (64 + 32 + 32 + 64 + 96 + 96 + 64)
    eight, four = need(config, quantization="8bit"), need(config, quantization="4bit")
    assert eight.parameters == linear + rest and eight.quantized == linear / (linear + rest)
    assert eight.weights == 2 * rest + linear + 4 * rows
    blocks = [numbers // 64 for numbers in (4096, 2048, 2048, 4096, 6144, 6144, 6144)]
    assert four.weights == 2 * rest + linear // 2 + 3 * sum(each + 4 * -(-each // 256) for each in blocks)


def test_quantised_towers_stay_whole() -> None:
    config = published("Prometheus-Vision 7B")
    tower = need(config, quantization="8bit")
    text = need(published("Prometheus 7B"), quantization="8bit")
    projector = 4096 * 1024 + 4096 * 4096
    clip = 7_062_902_784 - 6_738_415_616 - projector - 2 * 4096
    assert tower.weights - text.weights == 2 * clip + 2 * 2 * 4096 + projector + 4 * 2 * 4096


def test_experts_in_one_tensor_are_not_quantised() -> None:
    """transformers 5 holds Mixtral's experts so, and bitsandbytes replaces linear layers alone."""
    taken = need(published("Prometheus 2 8x7B"), quantization="4bit")
    assert taken.quantized < 0.05 and taken.weights > 80 * GIB
    found = memory.options(published("Prometheus 2 8x7B"), memory.COLAB[2])
    assert [option.note for option in found if "quantization" in option.argument] == [
        "only 3% of its weights can be quantised"
    ] * 2
    assert memory.memory_table().splitlines()[-1].count(" * |") == 2


def test_cache_of_windows_and_grouped_heads() -> None:
    plain = LlamaConfig(**SMALL)
    assert memory.cache_bytes(plain, 100, 2) == 2 * 3 * 100 * 2 * 16 * 2
    windowed = AutoConfig.for_model("mistral", **SMALL, sliding_window=30)
    assert memory.cache_bytes(windowed, 100, 2) == 2 * 3 * 30 * 2 * 16 * 2
    assert memory.cache_bytes(windowed, 20, 2) == 2 * 3 * 20 * 2 * 16 * 2
    mixed = AutoConfig.for_model(
        "gemma3_text",
        **SMALL,
        head_dim=8,
        sliding_window=30,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    )
    assert memory.cache_bytes(mixed, 100, 4) == 2 * (30 + 30 + 100) * 2 * 8 * 4


def test_places_of_an_image() -> None:
    assert memory.image_tokens(published("Prometheus-Vision 13B")) == 576
    assert memory.image_tokens(published("Prometheus 13B")) == 0
    most = memory.image_tokens(published("LLaVA-Critic 7B"))
    assert 729 + 1.21 * 9 * 729 < most < 10_000
    gemma = AutoConfig.for_model("gemma3", mm_tokens_per_image=256)
    assert memory.image_tokens(gemma) == 256


def test_an_image_takes_no_more_places_than_computed(tmp_path: Path) -> None:
    judge = load_judge(write_onevision(tmp_path / "judge"), device="cpu")
    model = judge.engine.model
    seen = vision_of(model.model, model.image_processor)
    shapes = [(width, height) for width in range(10, 400, 13) for height in range(10, 400, 17)]
    most = max(seen.n_tokens(size, "anyres") for size in shapes if max(size) < 20 * min(size))
    assert most <= memory.image_tokens(model.model.config) < 2.2 * most


def test_need_grows_with_rows_and_length() -> None:
    config = published("Prometheus-Vision 7B")
    one, four = need(config), need(config, batch=4)
    assert one.tokens == 2048 + 576 and four.cache == 4 * one.cache and four.weights == one.weights
    assert need(config, length=1312).cache == one.cache / 2
    assert need(config, device="cpu").allowance == one.allowance - memory.CONTEXT


# Free memory


def test_free_ram_keeps_to_a_containers_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    whole = memory.free_ram()
    assert 0 < whole <= memory.psutil.virtual_memory().total
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 500000\ninactive_file 150000\n")
    assert memory.free_ram() == 450_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_ram() > 1_000_000


def test_a_gpus_unused_reserve_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: ((number + 1) * GIB, 16 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda number: 3 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda number: 2 * GIB)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: False)
    found = Machine.here()
    assert found.gpus == (2 * GIB, 3 * GIB) and found.device == "cuda" and found.half == "float16"
    assert Machine.here(look_at=[1]).gpus == (3 * GIB,) and Machine.here(look_at=[]).gpus == ()


# What fits


def test_fits_without_loading() -> None:
    table = models.fits("kaist-ai/prometheus-vision-13b-v1.0", machine=memory.COLAB[0]).set_index("argument")
    assert not table.loc['dtype="float16"', "fits"] and not table.loc['quantization="8bit"', "fits"]
    assert table.loc['quantization="4bit"', "fits"]
    assert table["fits"].iloc[-1] and "base_url" in table.index[-1]
    assert (table["need_gib"][:-1] > table["weights_gib"][:-1]).all()
    here = models.fits("tiny")
    assert here["fits"].all()  # two million weights
    two = Machine("two GPUs", (80 * GIB, 80 * GIB), 10 * GIB)
    spread = models.fits("lmms-lab/llava-critic-72b", machine=two).set_index("setting")["fits"]
    assert spread["bfloat16 over 2 GPUs"] and not spread["bfloat16 on one GPU"] and spread["4-bit on one GPU"]
    mac = models.fits("lmms-lab/llava-critic-7b", machine=Machine("a Mac", ram=60 * GIB, mps=40 * GIB))
    assert (
        list(mac["argument"][:2]) == ['dtype="float32"', 'dtype="float16"']
        and not mac["argument"].str.contains("bit").any()
    )


def test_a_published_judge_is_known_under_its_own_ids_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> str:
        raise OSError("no connection")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    assert memory.configuration("prometheus-eval/prometheus-vision-7b-v1.0") is not None
    assert memory.configuration("someone/llava-critic-7b") is None


@pytest.mark.parametrize("name", ["no-such-judge", "./nowhere", "a/b/c"])
def test_nothing_is_known_of_an_unknown_judge(name: str) -> None:
    with pytest.raises(ValueError, match="no judge"):
        models.fits(name)


def test_sizes_of_a_folder_are_its_own(tmp_path: Path) -> None:
    """Before its tokenizer and weights are read: the rows that are added to the vocabulary are not counted."""
    for write in (write_llava15, write_onevision):
        folder = write(tmp_path / write.__name__ / "judge")
        loaded = models.load(folder, device="cpu").model
        computed = need(memory.configuration(folder)).parameters
        actual = sum(weight.numel() for weight in loaded.parameters())
        assert abs(actual - computed) <= 2 * 70 * loaded.config.get_text_config().hidden_size


def tight(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    monkeypatch.setattr(Machine, "here", classmethod(lambda cls, **options: machine))


def test_a_judge_that_does_not_fit_is_refused_before_its_weights_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch, LAPTOP)
    for fetch in ("hf_hub_download", "snapshot_download"):
        monkeypatch.setattr(huggingface_hub, fetch, lambda *args, **options: pytest.fail("reached the hub"))
    with pytest.raises(models.MemoryShortage) as refusal:
        load_judge("kaist-ai/prometheus-vision-7b-v1.0", device="cpu")
    said = str(refusal.value)
    assert "in float32 it needs 31.6 GiB (weights 26.3 GiB, keys and values 2.6 GiB" in said
    assert "14.0 GiB are free on the CPU" in said and "computed, for one row of 2,624 tokens" in said
    assert 'or a server, load_judge("openai:MODEL", base_url=' in said and "check_memory=False" in said
    assert (
        'What fits: quantization="8bit" (8-bit on the CPU: ' in said and 'quantization="4bit" (4-bit on the CPU' in said
    )
    tight(monkeypatch, Machine("a workstation", ram=20 * GIB))
    with pytest.raises(
        models.MemoryShortage, match=r'What fits: dtype="bfloat16" \(bfloat16 on the CPU: 15.8 GiB of 20'
    ):
        load_judge("kaist-ai/prometheus-vision-7b-v1.0", device="cpu")


def test_a_config_is_fetched_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = {
        **memory.LLAMA_13B,
        "architectures": ["LlavaLlamaForCausalLM"],
        "mm_vision_tower": "x/clip-vit-large-patch14-336",
    }
    text |= {"model_type": "llava", "mm_projector_type": "mlp2x_gelu"}
    (tmp_path / "config.json").write_text(json.dumps(text))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *args, **options: str(tmp_path / "config.json"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **options: pytest.fail("fetched weights"))
    tight(monkeypatch, LAPTOP)
    with pytest.raises(models.MemoryShortage, match=r"in bfloat16 it needs 28.9 GiB \(weights 24.9 GiB"):
        models.load("me/another-llava", device="cpu", dtype="bfloat16")


def test_a_judge_that_fits_is_loaded_quietly(
    random_judge: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load_judge(random_judge, device="cpu")
    said = capsys.readouterr()
    assert not said.out and "GiB" not in said.err
    tight(monkeypatch, Machine("a watch", ram=1000))
    with pytest.raises(models.MemoryShortage):
        load_judge(random_judge, device="cpu")
    load_judge(random_judge, device="cpu", check_memory=False)


def test_a_device_map_is_compared_with_all_devices(random_judge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate")
    with pytest.raises(models.MemoryShortage, match="are free on all devices together"):
        models.load(random_judge, device_map="auto", max_memory={"cpu": "1KiB"})
    tight(monkeypatch, Machine("a watch", ram=1000))
    with pytest.raises(models.MemoryShortage):
        models.load(random_judge, device_map={"": "cpu"})
    placed = models.place(device_map="auto", offload_folder="disk")
    memory.check(random_judge, placed)  # the disk has room


def test_on_a_gpu_the_asked_setting_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    card = torch.device("cuda", 1)
    machine = Machine("two cards", (40 * GIB, int(14.7 * GIB)), 8 * GIB)
    name = "kaist-ai/prometheus-vision-7b-v1.0"

    def placed(quantization: str | None, **options: Any) -> models.Placement:
        return models.Placement(card, torch.float16, quantization, None, "sdpa", options)

    with pytest.raises(models.MemoryShortage) as refusal:
        memory.check(name, placed(None, device_map={"": card}), machine=machine)
    said = str(refusal.value)
    assert "in float16 it needs 16.3 GiB" in said and "14.7 GiB are free on cuda:1" in said
    assert 'quantization="8bit" (8-bit on one GPU: 10.1 GiB of 40.0 GiB)' in said and 'device_map="auto"' in said
    memory.check(name, placed("8bit", device_map={"": card}), machine=machine)
    with pytest.raises(
        models.MemoryShortage, match=r"without accelerate its weights go by way of main memory: 13.2 GiB"
    ):
        memory.check(
            name, models.Placement(torch.device("cuda", 0), torch.float16, None, None, "sdpa", {}), machine=machine
        )


@pytest.mark.parametrize("room", ["llava", "load", "memory", "places"])
def test_the_examples_run(room: str) -> None:
    module = importlib.import_module(f"vjudge.models.{room}")
    assert doctest.testmod(module).failed == 0


# What is published of it


def test_the_readmes_table_is_the_computed_one() -> None:
    assert memory.memory_table() in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_notebooks_table_is_the_computed_one() -> None:
    notebook = nbformat.read(ROOT / "notebooks" / "03_correlation.ipynb", as_version=4)
    assert any(memory.fitting_table(memory.COLAB) in cell.source for cell in notebook.cells)
