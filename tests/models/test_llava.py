"""Original LLaVA checkpoints: equal to the original code on its golden outputs, and to plain decoders and towers on
checkpoints of other shapes that the tests write themselves."""

import functools
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from originals import SIDE, forward, question, write_llava15, write_onevision
from vjudge import models
from vjudge.engines import Ask, HFEngine
from vjudge.engines.vision import images_of
from vjudge.images import Picture
from vjudge.judge import load_judge
from vjudge.models import llava

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
LLAVA15, CRITIC = FIXTURES / "llava15-original", FIXTURES / "llava-next-original"
needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason=f"no golden outputs at {FIXTURES}"
)


def cases(root):
    return json.loads((root / "golden.json").read_text())["cases"] if root.is_dir() else []


@functools.cache
def golden(root):
    return json.loads((root / "golden.json").read_text()), dict(np.load(root / "golden.npz"))


original_judge = functools.cache(functools.partial(load_judge, device="cpu", dtype="float32"))


def computed(judge, text, images, mode=None):
    """Ids, with -200 for each image as in the original, pixels, features and logits."""
    engine = HFEngine(judge.engine.model, image_mode=mode)
    prompt = question(judge.template.conversation, text, n_images=len(images))
    ids = torch.tensor(engine.encoder.ids(prompt, image_tokens=[1] * len(images)))
    ids[ids == engine.model.image_token_id] = -200
    source = images_of(engine.model, mode)
    keys = source.keys([Picture(image) for image in images])
    source.features = {key: source.fetched(key) for key in keys}
    return SimpleNamespace(
        engine=engine,
        prompt=prompt,
        input_ids=ids,
        pixel_values=torch.cat([source.prepare(key)[0] for key in keys]),
        image_features=torch.cat([source.features[key] for key in keys]),
        logits=forward(engine, prompt, images)[1],
    )


def compare(judge, root, case):
    """Everything that the golden file holds of one case."""
    facts, arrays = golden(root)
    names = case.get("images") or [case["image"]]
    mode, id = case["mode"], case["id"]
    images = [root / "images" / f"{name}.png" for name in names]
    out = computed(judge, facts["prompts"][case["prompt"]]["question"], images, mode)
    assert out.prompt.text == facts["prompts"][case["prompt"]]["prompt"]

    def close(value, name, limit=5e-5):
        assert value.shape == arrays[name].shape, name
        assert np.abs(value - arrays[name]).max() < limit, name

    assert out.input_ids.tolist() == arrays[f"ids/{case['prompt']}"].tolist()
    if root == LLAVA15:
        pixels = arrays[f"pixel_values/{names[0]}/{mode}"][None]
    else:
        pixels = []
        for name in names:
            levels = arrays[f"pixel_levels/{name}/{mode}"]
            pixels.append((levels.reshape(-1, *levels.shape[-3:]) / 255 - 0.5) / 0.5)
        pixels = np.concatenate(pixels)
    assert np.abs(out.pixel_values.numpy() - pixels).max() < 1e-6
    features = case.get("features") or f"{names[0]}/{mode}"
    close(out.image_features.numpy(), f"image_features/{features}", 1e-5)
    words = arrays["R"].shape[0]
    logits = out.logits.numpy()[:, :words]
    assert logits.shape == (case["n_positions"], words)
    close(logits[-4:], f"logits_last4/{id}")
    close(logits.max(-1), f"logits_max/{id}")
    close(np.logaddexp.reduce(logits, axis=-1), f"logits_lse/{id}")
    close(logits @ arrays["R"], f"logits_proj/{id}", 1e-3)
    if f"logits/{id}" in arrays:
        close(logits, f"logits/{id}")
    assert (logits.argmax(-1) == arrays[f"logits_argmax/{id}"]).all()
    penalised = case.get("greedy_with_saved_generation_config_rep_penalty")
    for expected, penalty in ((case["greedy"], 1.0), (penalised, 1.05)):
        if expected:
            how = Ask(max_new_tokens=len(expected), repetition_penalty=penalty)
            ((answer,),) = out.engine.answer([out.prompt], [images], how)
            written = expected[:-1] if answer.finish == "stop" else expected
            assert answer.text == out.engine.encoder.text(written)
            assert answer.n_new_tokens == len(expected)


@needs_fixtures
@pytest.mark.parametrize("case", cases(LLAVA15), ids=lambda case: case["id"])
@pytest.mark.parametrize("layout", ["llava-bin-vt", "llava-st-vt", "llava-bin-novt"])
def test_llava15_equals_the_original(layout, case):
    compare(original_judge(LLAVA15 / layout), LLAVA15, case)


@needs_fixtures
@pytest.mark.parametrize("case", cases(CRITIC), ids=lambda case: case["id"])
def test_onevision_equals_the_original(case):
    compare(original_judge(CRITIC / "llava-critic-qwen-tiny"), CRITIC, case)


# Checkpoints of other shapes, against plain decoders and towers.


@pytest.fixture(scope="session")
def llava15(tmp_path_factory):
    return write_llava15(tmp_path_factory.mktemp("llava15") / "judge")


@pytest.fixture(scope="session")
def onevision(tmp_path_factory):
    return write_onevision(tmp_path_factory.mktemp("onevision") / "judge")


@pytest.fixture
def picture():
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (70, 101, 3), dtype=np.uint8))


def test_a_grid_that_is_wider_than_high_is_read_as_the_original_reads_it(tmp_path, onevision):
    """The original lists (width, height), or the corners in tiles; transformers lists (height, width)."""
    corners = write_onevision(tmp_path / "judge", image_grid_pinpoints="(1x1),...,(3x2)")
    grid = [[SIDE * high, SIDE * wide] for wide in (1, 2, 3) for high in (1, 2)]
    for folder in (onevision, corners):
        judge = load_judge(folder, device="cpu")
        assert judge.engine.model.model.config.image_grid_pinpoints == grid
        out = computed(judge, "x", [Image.new("RGB", (300, 90))])
        assert len(out.pixel_values) == 1 + 3 * 1


def test_whose_tower_weights_count(tmp_path):
    """LLaVA-1.5 takes its tower from `mm_vision_tower`; LLaVA-OneVision's own wins where it was trained."""
    for write, wins in ((write_llava15, False), (write_onevision, True)):
        folder = write(tmp_path / write.__name__ / "judge")
        before = llava.Original(folder).tower_weights
        stale = {f"vision_model.{name}": tensor * 2 for name, tensor in before.items()}
        torch.save(stale, next(folder.parent.glob("tower-*")) / "pytorch_model.bin")
        after = llava.Original(folder).tower_weights
        assert all(
            torch.equal(after[name], before[name]) == wins for name in before if before[name].any()
        )


def test_a_folder_that_is_not_to_be_written(llava15, tmp_path, monkeypatch):
    monkeypatch.setattr(llava, "SHARD_BYTES", 60_000)
    target = models.convert(llava15, tmp_path / "new" / "judge")
    assert [path.name for path in target.parent.iterdir()] == ["judge"], "nothing half-written"
    assert len(list(target.glob("model-*.safetensors"))) > 2
    with pytest.raises(FileExistsError, match="is not empty"):
        models.convert(llava15, target)
    with pytest.raises(ValueError, match="not in the original LLaVA layout"):
        models.convert(target, tmp_path / "again")


# Hostile and broken folders.


class Spy:
    """A pickle of it would run code when read."""

    def __reduce__(self):
        return os.mkdir, ("touched",)


@pytest.mark.parametrize("where", ["judge", "tower-clip"])
def test_a_pickle_that_would_run_code(tmp_path, where, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_llava15(tmp_path / "judge")
    victim = sorted((tmp_path / where).glob("pytorch_model*.bin"))[-1]
    torch.save(torch.load(victim) | {"spy": Spy()}, victim)
    with pytest.raises(ValueError, match="could run code, so it was refused and nothing in it was"):
        load_judge(folder, device="cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["judge", "tower-clip"]


def test_broken_weights(tmp_path):
    folder = write_llava15(tmp_path / "judge")
    shard = sorted(folder.glob("*.bin"))[0]
    shard.write_bytes(shard.read_bytes()[:1000])
    with pytest.raises(ValueError, match=f"{shard.name} can't be read"):
        models.convert(folder, tmp_path / "converted")
    assert not (tmp_path / "converted").exists()
    shard.unlink()
    with pytest.raises(ValueError, match="weights do not fit its config.json"):
        models.load(folder, device="cpu")


@pytest.mark.parametrize(
    ("write", "settings", "reason"),
    [
        (write_llava15, {"architectures": ["LlavaMptForCausalLM"]}, "supported: its class is"),
        (write_llava15, {"mm_projector_type": "linear"}, "mm_projector_type is 'linear'"),
        (write_llava15, {"image_aspect_ratio": "anyres"}, "is 'anyres'"),
        (write_onevision, {"mm_newline_position": "frame"}, "mm_newline_position is 'frame'"),
    ],
)
def test_kinds_that_do_not_fit(tmp_path, write, settings, reason):
    folder = write(tmp_path / "judge", **settings)
    with pytest.raises(ValueError, match=reason):
        models.load(folder, device="cpu")


# Converted once, into the user's cache


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of converted checkpoints in a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vjudge" / "converted"


def test_an_original_is_converted_once_and_named_in_the_fingerprint(llava15, home, monkeypatch):
    with ThreadPoolExecutor(2) as pool:
        pool.submit(llava.converted, llava.Original(llava15))
        target = pool.submit(llava.converted, llava.Original(llava15)).result()
    assert [path for path in home.iterdir() if path.is_dir()] == [target]
    first = models.load(llava15, device="cpu")
    tower = llava15.parent / "tower-clip"
    assert (first.path, first.folder, first.others) == (llava15, target, (tower,))
    identity = load_judge(llava15, device="cpu").engine.identity()
    assert identity["checkpoint"] == models.fingerprint(llava15, tower)
    precisions = {tensor.dtype for tensor in load_file(target / "model.safetensors").values()}
    assert precisions == {torch.float16, torch.float32}, "as stored: the tower is in float32"
    monkeypatch.setattr(llava, "_write", lambda *_: pytest.fail("converted again"))
    models.load(llava15, device="cpu")
