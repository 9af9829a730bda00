"""Original LLaVA checkpoints: equal to the original code on its golden outputs, and to plain decoders and towers on
checkpoints of other shapes that the tests write themselves."""

import functools
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoTokenizer

from conftest import make_rows
from originals import SIDE, answers, forward, question, refused, write_llava15, write_onevision
from vjudge import models
from vjudge.engines import Ask, HFEngine
from vjudge.engines.vision import call_images
from vjudge.images import Picture
from vjudge.judging.loading import load_judge
from vjudge.models import llava
from vjudge.records import Item

ORIGINAL = Path(__file__).parents[1] / "golden"
LLAVA15, CRITIC = ORIGINAL / "llava15-original", ORIGINAL / "llava-next-original"
ORIGINALS = [(LLAVA15, f"llava-{kind}") for kind in ("bin-vt", "st-vt", "bin-novt")]
ORIGINALS.append((CRITIC, "llava-critic-qwen-tiny"))


@functools.cache
def golden(root):
    return json.loads((root / "golden.json").read_text()), dict(np.load(root / "golden.npz"))


original_judge = functools.cache(functools.partial(load_judge, device="cpu", dtype="float32"))


def prepared(engine, images, mode=None):
    """The pixels of images, tiles one after another, and their features."""
    source = call_images(engine.model, mode)
    keys = source.keys([Picture(image) for image in images])
    pixels = torch.cat([source.prepare(key)[0] for key in keys])
    return pixels.numpy(), torch.cat([source.fetched(key) for key in keys]).numpy()


GOLDEN = []
for root, layout in ORIGINALS:
    GOLDEN += [(root, layout, case) for case in golden(root)[0]["cases"]]


@pytest.mark.parametrize(("root", "layout", "case"), GOLDEN)
def test_an_original_equals_the_original_code(root, layout, case):
    """In everything that the golden file holds of one case."""
    judge = original_judge(root / layout)
    facts, arrays = golden(root)
    mode, id = case["mode"], case["id"]
    names = case.get("images") or [case["image"]]
    images = [root / "images" / f"{name}.png" for name in names]
    asked = facts["prompts"][case["prompt"]]
    engine = HFEngine(judge.engine.model, image_mode=mode)
    # 1) ids, with -200 for each image as in the original
    prompt = question(judge.template.conversation, asked["question"], n_images=len(images))
    assert prompt.text == asked["prompt"]
    ids = np.array(engine.encoder.ids(prompt, image_tokens=[1] * len(images)))
    ids[ids == engine.model.image_token_id] = -200
    assert ids.tolist() == arrays[f"ids/{case['prompt']}"].tolist()
    # 2) pixels and features
    pixels, features = prepared(engine, images, mode)
    expected = []
    for name in names:
        if root == LLAVA15:
            expected.append(arrays[f"pixel_values/{name}/{mode}"][None])
        else:
            levels = arrays[f"pixel_levels/{name}/{mode}"]
            expected.append((levels.reshape(-1, *levels.shape[-3:]) / 255 - 0.5) / 0.5)
    assert np.abs(pixels - np.concatenate(expected)).max() < 1e-6
    # 3) logits
    words = arrays["R"].shape[0]
    logits = forward(engine, prompt, images)[1].numpy()[:, :words]
    assert logits.shape == (case["n_positions"], words)
    assert (logits.argmax(-1) == arrays[f"logits_argmax/{id}"]).all()
    values = {
        f"image_features/{case.get('features') or f'{names[0]}/{mode}'}": (features, 1e-5),
        f"logits_last4/{id}": (logits[-4:], 5e-5),
        f"logits_max/{id}": (logits.max(-1), 5e-5),
        f"logits_lse/{id}": (np.logaddexp.reduce(logits, axis=-1), 5e-5),
        f"logits_proj/{id}": (logits @ arrays["R"], 1e-3),
    }
    if f"logits/{id}" in arrays:
        values[f"logits/{id}"] = (logits, 5e-5)
    for name, (value, limit) in values.items():
        assert value.shape == arrays[name].shape, name
        assert np.abs(value - arrays[name]).max() < limit, name
    # 4) texts
    penalised = case.get("greedy_with_saved_generation_config_rep_penalty")
    for expected, penalty in ((case["greedy"], 1.0), (penalised, 1.05)):
        if expected:
            how = Ask(max_new_tokens=len(expected), repetition_penalty=penalty)
            (answer,) = answers(engine, [prompt], [images], how)
            written = expected[:-1] if answer.finish == "stop" else expected
            assert answer.text == engine.encoder.text(written)
            assert answer.n_new_tokens == len(expected)


# Checkpoints of other shapes, against plain decoders and towers.


@pytest.fixture(scope="session")
def llava15(tmp_path_factory):
    return write_llava15(tmp_path_factory.mktemp("llava15") / "judge")


@pytest.fixture(scope="session")
def onevision(tmp_path_factory):
    return write_onevision(tmp_path_factory.mktemp("onevision") / "judge")


def test_a_grid_that_is_wider_than_high_is_read_as_the_original_reads_it(tmp_path, onevision):
    """The original lists (width, height), or the corners in tiles; transformers lists (height, width)."""
    corners = write_onevision(tmp_path / "judge", image_grid_pinpoints="(1x1),...,(3x2)")
    grid = [[SIDE * high, SIDE * wide] for wide in (1, 2, 3) for high in (1, 2)]
    for folder in (onevision, corners):
        judge = load_judge(folder, device="cpu")
        assert judge.engine.model.model.config.image_grid_pinpoints == grid
        assert len(prepared(judge.engine, [Image.new("RGB", (300, 90))])[0]) == 1 + 3 * 1


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
    refused(folder, "could run code, so it was refused and nothing in it was")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["judge", "tower-clip"]


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
    refused(folder, reason)


# Converted once, into the user's cache


def test_an_original_is_converted_once_and_named_in_the_fingerprint(llava15, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ThreadPoolExecutor(2) as pool:
        pool.submit(llava.converted, llava.Original(llava15))
        target = pool.submit(llava.converted, llava.Original(llava15)).result()
    folders = [path for path in (tmp_path / "vjudge" / "converted").iterdir() if path.is_dir()]
    assert folders == [target]
    first = models.load(llava15, device="cpu")
    tower = llava15.parent / "tower-clip"
    assert (first.path, first.folder, first.sources) == (llava15, target, (tower,))
    identity = load_judge(llava15, device="cpu").engine.identity()
    assert identity["checkpoint"] == models.fingerprint(llava15, tower)
    precisions = {tensor.dtype for tensor in load_file(target / "model.safetensors").values()}
    assert precisions == {torch.float16, torch.float32}, "as stored: the tower is in float32"
    monkeypatch.setattr(llava, "_write", lambda *_: pytest.fail("converted again"))
    models.load(llava15, device="cpu")


# --- a converted folder in other hands -------------------------------------------------------------


@pytest.fixture(scope="module", params=[write_llava15, write_onevision])
def small(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("elsewhere")
    folder = request.param(root / "judge")
    return load_judge(folder, device="cpu"), models.convert(folder, root / "converted")


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
