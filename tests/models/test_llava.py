"""Original LLaVA checkpoints: equal to the original code on its golden outputs, and to plain decoders and towers on
checkpoints of other shapes that the tests write themselves."""

from __future__ import annotations

import functools
import json
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from originals import PATCH, SIDE, VISION, write_llava15, write_onevision
from PIL import Image
from safetensors.torch import load_file

from vjudge import models
from vjudge.engines.vision import images_of
from vjudge.judge import load_judge
from vjudge.models import llava
from vjudge.models.places import read_tensors
from vjudge.prompts import question

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
LLAVA15, CRITIC = FIXTURES / "llava15-original", FIXTURES / "llava-next-original"
needs_fixtures = pytest.mark.skipif(not FIXTURES.is_dir(), reason=f"no golden outputs at {FIXTURES}")


def cases(root: Path) -> list[dict[str, Any]]:
    return json.loads((root / "golden.json").read_text())["cases"] if root.is_dir() else []


@functools.cache
def golden(root: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return json.loads((root / "golden.json").read_text()), dict(np.load(root / "golden.npz"))


original_judge = functools.cache(functools.partial(load_judge, device="cpu", dtype="float32"))


def compare(judge: Any, root: Path, case: dict[str, Any]) -> None:
    """Everything that the golden file holds of one case."""
    facts, arrays = golden(root)
    names = case.get("images") or [case["image"]]
    mode, id = case["mode"], case["id"]
    images = [root / "images" / f"{name}.png" for name in names]
    text = facts["prompts"][case["prompt"]]["question"]
    prompt = question(judge.template.conversation, text, n_images=len(images))
    assert prompt.text == facts["prompts"][case["prompt"]]["prompt"]
    out = judge.forward(text, images, image_mode=mode)

    def close(value: Any, name: str, limit: float = 5e-5) -> None:
        assert value.shape == arrays[name].shape and np.abs(value - arrays[name]).max() < limit, name

    assert out.input_ids.tolist() == arrays[f"ids/{case['prompt']}"].tolist()
    if root == LLAVA15:
        pixels = arrays[f"pixel_values/{names[0]}/{mode}"][None]
    else:
        levels = [arrays[f"pixel_levels/{name}/{mode}"] for name in names]
        pixels = np.concatenate([(each.reshape(-1, *each.shape[-3:]) / 255 - 0.5) / 0.5 for each in levels])
    assert np.abs(out.pixel_values.numpy() - pixels).max() < 1e-6
    close(out.image_features.numpy(), f"image_features/{case.get('features') or f'{names[0]}/{mode}'}", 1e-5)
    logits = out.logits.numpy()
    assert logits.shape == (case["n_positions"], arrays["R"].shape[0])
    close(logits[-4:], f"logits_last4/{id}")
    close(logits.max(-1), f"logits_max/{id}")
    close(np.logaddexp.reduce(logits, axis=-1), f"logits_lse/{id}")
    close(logits @ arrays["R"], f"logits_proj/{id}", 1e-3)
    if f"logits/{id}" in arrays:
        close(logits, f"logits/{id}")
    assert (logits.argmax(-1) == arrays[f"logits_argmax/{id}"]).all()
    answer = {"max_new_tokens": len(case["greedy"]), "image_mode": mode}
    assert judge.complete(text, images, **answer) == case["greedy"]
    if penalised := case.get("greedy_with_saved_generation_config_rep_penalty"):
        assert judge.complete(text, images, repetition_penalty=1.05, **answer) == penalised


@needs_fixtures
@pytest.mark.parametrize("case", cases(LLAVA15), ids=lambda case: case["id"])
@pytest.mark.parametrize("layout", ["llava-bin-vt", "llava-st-vt", "llava-bin-novt"])
def test_llava15_equals_the_original(layout: str, case: dict[str, Any]) -> None:
    compare(original_judge(LLAVA15 / layout), LLAVA15, case)


@needs_fixtures
@pytest.mark.parametrize("case", cases(CRITIC), ids=lambda case: case["id"])
def test_onevision_equals_the_original(case: dict[str, Any]) -> None:
    compare(original_judge(CRITIC / "llava-critic-qwen-tiny"), CRITIC, case)


# Checkpoints of other shapes, against plain decoders and towers.


@pytest.fixture(scope="session")
def llava15(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llava15(tmp_path_factory.mktemp("llava15") / "judge")


@pytest.fixture(scope="session")
def onevision(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_onevision(tmp_path_factory.mktemp("onevision") / "judge")


@pytest.fixture
def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (70, 101, 3), dtype=np.uint8))


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return {key: tensor.float() for key, tensor in read_tensors(folder).items()}


def project(weights: dict[str, torch.Tensor], states: torch.Tensor) -> torch.Tensor:
    inner = states @ weights["model.mm_projector.0.weight"].T + weights["model.mm_projector.0.bias"]
    inner = torch.nn.functional.gelu(inner)
    return inner @ weights["model.mm_projector.2.weight"].T + weights["model.mm_projector.2.bias"]


@torch.no_grad()
@pytest.mark.parametrize(("layer", "feature"), [(-2, "patch"), (2, "cls_patch")])
def test_llava15_of_another_shape(tmp_path: Path, picture: Image.Image, layer: int, feature: str) -> None:
    """Features by layer, counted from either end, the input included; with or without the class token."""
    folder = write_llava15(tmp_path / "judge", mm_vision_select_layer=layer, mm_vision_select_feature=feature)
    out = load_judge(folder, device="cpu").forward("is the thing there?", [picture])
    tower = transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**VISION, hidden_act="quick_gelu")).eval()
    own = {key.partition("vision_model.")[2]: tensor for key, tensor in stored(folder.parent / "tower-clip").items()}
    tower.load_state_dict({name: own[name.removeprefix("vision_model.")] for name in tower.state_dict()})
    states = tower(out.pixel_values, output_hidden_states=True).hidden_states[layer]
    features = project(stored(folder), states)[0][0 if feature == "cls_patch" else 1 :]
    assert len(features) == (SIDE // PATCH) ** 2 + (feature == "cls_patch")
    torch.testing.assert_close(out.image_features, features, atol=1e-5, rtol=1e-5)


def test_a_grid_that_is_wider_than_high_is_read_as_the_original_reads_it(tmp_path: Path, onevision: Path) -> None:
    """The original lists (width, height), or the corners in tiles; transformers lists (height, width)."""
    corners = write_onevision(tmp_path / "judge", image_grid_pinpoints="(1x1),...,(3x2)")
    listed, model = (models.load(folder, device="cpu") for folder in (onevision, corners))
    grid = [[SIDE * high, SIDE * wide] for wide in (1, 2, 3) for high in (1, 2)]
    assert model.model.config.image_grid_pinpoints == listed.model.config.image_grid_pinpoints == grid
    assert images_of(model).tiles(Image.new("RGB", (300, 90)), "anyres").shape[0] == 1 + 3 * 1


def test_whose_tower_weights_count(tmp_path: Path) -> None:
    """LLaVA-1.5 takes its tower from `mm_vision_tower`; LLaVA-OneVision's own wins where it was trained."""
    for write, wins in ((write_llava15, False), (write_onevision, True)):
        folder = write(tmp_path / write.__name__ / "judge")
        before = llava.Original(folder, name="judge").tower_weights
        stale = {f"vision_model.{name}": tensor * 2 for name, tensor in before.items()}
        torch.save(stale, next(folder.parent.glob("tower-*")) / "pytorch_model.bin")
        after = llava.Original(folder, name="judge").tower_weights
        assert all(torch.equal(after[name], before[name]) == wins for name in before if before[name].any())


@pytest.mark.parametrize("family", ["llava15", "onevision"])
def test_a_converted_folder_is_whole(
    family: str, tmp_path: Path, picture: Image.Image, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder: Path = request.getfixturevalue(family)
    target = models.convert(folder, tmp_path / "new" / "judge")
    assert sorted(path.name for path in target.parent.iterdir()) == ["judge"]  # nothing half-written is left
    monkeypatch.setattr(llava, "SHARD_BYTES", 60_000)
    sharded = models.convert(folder, tmp_path / "sharded")
    judges = [load_judge(path, device="cpu") for path in (folder, target, sharded)]
    text = "It's <s>the</s> [RESULT] 5 <|im_end|>\n ☃"
    one, two, three = (judge.forward(text, [picture]).logits for judge in judges)
    assert torch.equal(one, two) and torch.equal(one, three) and len(list(sharded.glob("model-*.safetensors"))) > 2
    with pytest.raises(FileExistsError, match="is not empty"):
        models.convert(folder, target)
    with pytest.raises(ValueError, match="not in the original LLaVA layout"):
        models.convert(target, tmp_path / "again")


# Hostile and broken folders.


class Spy:
    """A pickle of it would run code when read."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("touched",)


@pytest.mark.parametrize(("where", "save"), [("judge", torch.save), ("tower-clip", pickle.dump)])
def test_a_pickle_that_would_run_code(tmp_path: Path, where: str, save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_llava15(tmp_path / "judge")
    victim = sorted((tmp_path / where).glob("pytorch_model*.bin"))[-1]
    held = torch.load(victim) | {"spy": Spy()}
    with victim.open("wb") as file:
        save(held, file)
    for work in (lambda: load_judge(folder, device="cpu"), lambda: models.convert(folder, tmp_path / "converted")):
        with pytest.raises(ValueError, match="could run code, so it was refused and nothing in it was run"):
            work()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["judge", "tower-clip"]


def test_broken_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_llava15(tmp_path / "judge")

    def refused(reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            models.convert(folder, tmp_path / "converted")
        assert not (tmp_path / "converted").exists()

    with monkeypatch.context() as patch:
        room = shutil.disk_usage(folder)._replace(free=1000)
        patch.setattr(shutil, "disk_usage", lambda _: room)
        refused("takes 0.0 GB in the transformers layout, and 0.0 GB are free at .*make room")
    shard = sorted(folder.glob("*.bin"))[0]
    shutil.copy(shard, folder / "pytorch_model-copy.bin")
    refused("in two files; remove those that are not of the checkpoint")
    (folder / "pytorch_model-copy.bin").unlink()
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    refused(f"{shard.name} can't be read")
    shard.unlink()
    refused(r"weights do not fit its config.json: it asks for \d+, not \d+")


@pytest.mark.parametrize(
    ("write", "settings", "reason"),
    [
        (write_llava15, {"architectures": ["LlavaMptForCausalLM"]}, "not supported: its decoder is"),
        (write_llava15, {"mm_projector_type": "linear"}, "not supported: mm_projector_type is 'linear'"),
        (write_llava15, {"mm_vision_tower": None}, "not supported: mm_vision_tower is None"),
        (write_llava15, {"mm_vision_select_layer": -6}, r"from layer -6 \(mm_vision_select_layer\), .* has 4 layers"),
        (write_onevision, {"mm_patch_merge_type": "flat"}, "not supported: mm_patch_merge_type is 'flat'"),
        (write_onevision, {"image_grid_pinpoints": "print(1)"}, "image_grid_pinpoints .* no list of resolutions"),
    ],
)
def test_kinds_that_do_not_fit(tmp_path: Path, write: Any, settings: dict[str, Any], reason: str) -> None:
    folder = write(tmp_path / "judge", **settings)
    with pytest.raises(ValueError, match=reason):
        models.load(folder, device="cpu")


# Converted once, into the user's cache


def test_an_original_is_converted_once_and_named_in_the_fingerprint(
    llava15: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ThreadPoolExecutor(2) as pool:
        pool.submit(llava.converted, llava.Original(llava15, name="judge"))
        target = pool.submit(llava.converted, llava.Original(llava15, name="judge")).result()
    assert [path for path in target.parent.iterdir() if path.is_dir()] == [target]
    identity = load_judge(llava15, device="cpu").engine.identity()
    assert identity["weights"] == models.weights_fingerprint(llava15, llava15.parent / "tower-clip")
    precisions = {tensor.dtype for tensor in load_file(target / "model.safetensors").values()}
    assert precisions == {torch.float16, torch.float32}  # as stored: the tower's folder is in float32
    monkeypatch.setattr(llava, "_write", lambda *_: pytest.fail("converted again"))
    models.load(llava15, device="cpu")
