"""Original LLaVA checkpoints: equal to the original code on its golden outputs, and to plain decoders and towers on
checkpoints of other shapes that the tests write themselves."""

import functools
import json
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file

from originals import (
    PATCH,
    SIDE,
    TEXT,
    VISION,
    complete,
    forward,
    question,
    write_llava15,
    write_onevision,
)
from vjudge import models
from vjudge.engines.vision import images_of
from vjudge.images import Picture
from vjudge.judge import load_judge
from vjudge.models import llava
from vjudge.models.find import read_tensors
from vjudge.prompts import VICUNA_V1

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


def compare(judge, root, case):
    """Everything that the golden file holds of one case."""
    facts, arrays = golden(root)
    names = case.get("images") or [case["image"]]
    mode, id = case["mode"], case["id"]
    images = [root / "images" / f"{name}.png" for name in names]
    text = facts["prompts"][case["prompt"]]["question"]
    prompt = question(judge.template.conversation, text, n_images=len(images))
    assert prompt.text == facts["prompts"][case["prompt"]]["prompt"]
    out = forward(judge, text, images, image_mode=mode)

    def close(value, name, limit=5e-5):
        assert value.shape == arrays[name].shape and np.abs(value - arrays[name]).max() < limit, (
            name
        )

    assert out.input_ids.tolist() == arrays[f"ids/{case['prompt']}"].tolist()
    if root == LLAVA15:
        pixels = arrays[f"pixel_values/{names[0]}/{mode}"][None]
    else:
        levels = [arrays[f"pixel_levels/{name}/{mode}"] for name in names]
        pixels = np.concatenate(
            [(each.reshape(-1, *each.shape[-3:]) / 255 - 0.5) / 0.5 for each in levels]
        )
    assert np.abs(out.pixel_values.numpy() - pixels).max() < 1e-6
    close(
        out.image_features.numpy(),
        f"image_features/{case.get('features') or f'{names[0]}/{mode}'}",
        1e-5,
    )
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
    assert complete(judge, text, images, **answer) == case["greedy"]
    if penalised := case.get("greedy_with_saved_generation_config_rep_penalty"):
        assert complete(judge, text, images, repetition_penalty=1.05, **answer) == penalised


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


def stored(folder):
    return {key: tensor.float() for key, tensor in read_tensors(folder).items()}


def project(weights, states):
    inner = states @ weights["model.mm_projector.0.weight"].T + weights["model.mm_projector.0.bias"]
    inner = torch.nn.functional.gelu(inner)
    return inner @ weights["model.mm_projector.2.weight"].T + weights["model.mm_projector.2.bias"]


def load_tower(tower, weights):
    own = {}
    for key, tensor in weights.items():
        if "vision_model." in key:
            own[key.partition("vision_model.")[2]] = tensor
    prefixed = {name: own[name.removeprefix("vision_model.")] for name in tower.state_dict()}
    tower.load_state_dict(prefixed)
    return tower.eval()


def decoded(decoder, weights, ids, features):
    """Logits of the language model alone, whose own names are the original's, with features in the image's place."""
    theta = 5e5 if decoder is transformers.Qwen2ForCausalLM else 1e4
    rope = {"rope_type": "default", "rope_theta": theta}
    rows = len(weights["model.embed_tokens.weight"])
    model = decoder(decoder.config_class(vocab_size=rows, rope_parameters=rope, **TEXT)).eval()
    model.load_state_dict({key: weights[key] for key in model.state_dict()})
    place, embeddings = ids.tolist().index(-200), model.get_input_embeddings()
    parts = [embeddings(ids[:place]), features, embeddings(ids[place + 1 :])]
    return model(inputs_embeds=torch.cat(parts)[None]).logits[0]


@torch.no_grad()
@pytest.mark.parametrize("layer", [-2, 2])
def test_llava15_of_another_shape(tmp_path, picture, layer):
    """Features by layer, counted from either end, the input included, without the class token."""
    rope = {"rope_scaling": {"type": "dynamic", "factor": 2.0}}  # stretches the context alone
    folder = write_llava15(tmp_path / "judge", mm_vision_select_layer=layer, **rope)
    judge, weights = load_judge(folder, device="cpu"), stored(folder)
    assert judge.engine.model.context_length == 2 * TEXT["max_position_embeddings"]
    out = forward(judge, "is the thing there?", [picture])
    tower = transformers.CLIPVisionModel(
        transformers.CLIPVisionConfig(**VISION, hidden_act="quick_gelu")
    )
    load_tower(tower, stored(folder.parent / "tower-clip"))
    states = tower(out.pixel_values, output_hidden_states=True).hidden_states[layer]
    features = project(weights, states)[0][1:]
    assert len(features) == (SIDE // PATCH) ** 2
    torch.testing.assert_close(out.image_features, features, atol=1e-5, rtol=1e-5)
    logits = decoded(transformers.LlamaForCausalLM, weights, out.input_ids, features)
    assert out.logits.shape == logits.shape  # the image's row and the filling are not shown
    torch.testing.assert_close(out.logits, logits, atol=5e-5, rtol=1e-5)
    assert out.input_ids[0] == 1 and (out.input_ids == 1).sum() == 1


@torch.no_grad()
def test_onevision_of_another_shape(onevision, picture):
    judge, weights = load_judge(onevision, device="cpu"), stored(onevision)
    out = forward(judge, "<image> is it?", [picture.resize((84, 20))])
    config = transformers.SiglipVisionConfig(
        **{**VISION, "num_hidden_layers": VISION["num_hidden_layers"] - 1}
    )
    config.vision_use_head = False
    tower = load_tower(transformers.SiglipVisionModel(config), weights)
    projected = project(
        weights, tower(out.pixel_values, output_hidden_states=True).hidden_states[-1]
    )
    # 84 x 20 pixels lie on two tiles side by side; of the three rows of features the outer two are margin.
    assert len(out.pixel_values) == 1 + 2
    rows = [*projected[1, 3:6], *projected[2, 3:6], weights["model.image_newline"]]
    features = torch.cat([projected[0], torch.stack(rows)])
    torch.testing.assert_close(out.image_features, features, atol=1e-5, rtol=1e-5)
    logits = decoded(transformers.Qwen2ForCausalLM, weights, out.input_ids, features)[:, :-9]
    torch.testing.assert_close(
        out.logits, logits, atol=5e-5, rtol=1e-5
    )  # the nine spare rows are no words


def test_a_grid_that_is_wider_than_high_is_read_as_the_original_reads_it(tmp_path, onevision):
    """The original lists (width, height), or the corners in tiles; transformers lists (height, width)."""
    corners = write_onevision(tmp_path / "judge", image_grid_pinpoints="(1x1),...,(3x2)")
    listed, model = (models.load(folder, device="cpu") for folder in (onevision, corners))
    grid = [[SIDE * high, SIDE * wide] for wide in (1, 2, 3) for high in (1, 2)]
    assert (
        model.model.config.image_grid_pinpoints == listed.model.config.image_grid_pinpoints == grid
    )
    source = images_of(model)
    (key,) = source.keys([Picture(Image.new("RGB", (300, 90)))])
    assert source.prepare(key)[0].shape[0] == 1 + 3 * 1


def test_whose_tower_weights_count(tmp_path):
    """LLaVA-1.5 takes its tower from `mm_vision_tower`; LLaVA-OneVision's own wins where it was trained."""
    for write, wins in ((write_llava15, False), (write_onevision, True)):
        folder = write(tmp_path / write.__name__ / "judge")
        before = llava.Original(folder, name="judge").tower_weights
        stale = {f"vision_model.{name}": tensor * 2 for name, tensor in before.items()}
        torch.save(stale, next(folder.parent.glob("tower-*")) / "pytorch_model.bin")
        after = llava.Original(folder, name="judge").tower_weights
        assert all(
            torch.equal(after[name], before[name]) == wins for name in before if before[name].any()
        )


@pytest.mark.parametrize("family", ["llava15", "onevision"])
def test_a_converted_folder_is_whole(family, tmp_path, picture, request, monkeypatch):
    folder = request.getfixturevalue(family)
    monkeypatch.setattr(llava, "SHARD_BYTES", 60_000)
    target = models.convert(folder, tmp_path / "new" / "judge")
    assert [path.name for path in target.parent.iterdir()] == ["judge"], "nothing half-written"
    files = {path.name for path in target.iterdir()}
    assert {"preprocessor_config.json", "processor_config.json", "tokenizer.json"} <= files
    assert len(list(target.glob("model-*.safetensors"))) > 2 and not list(target.glob("*.bin"))
    judges = [load_judge(path, device="cpu") for path in (folder, target)]
    text = "It's <s>the</s> [RESULT] 5 <|im_end|>\n ☃"
    one, two = (forward(judge, text, [picture]).logits for judge in judges)
    assert torch.equal(one, two)
    tokenizer = judges[0].engine.model.tokenizer
    ids = judges[0].engine.encoder.ids(question(VICUNA_V1, text, n_images=0))
    assert not set(ids[1:]) & set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    with pytest.raises(FileExistsError, match="is not empty"):
        models.convert(folder, target)
    with pytest.raises(ValueError, match="not in the original LLaVA layout"):
        models.convert(target, tmp_path / "again")


# Hostile and broken folders.


class Spy:
    """A pickle of it would run code when read."""

    def __reduce__(self):
        return os.mkdir, ("touched",)


@pytest.mark.parametrize(("where", "save"), [("judge", torch.save), ("tower-clip", pickle.dump)])
def test_a_pickle_that_would_run_code(tmp_path, where, save, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_llava15(tmp_path / "judge")
    victim = sorted((tmp_path / where).glob("pytorch_model*.bin"))[-1]
    held = torch.load(victim) | {"spy": Spy()}
    with victim.open("wb") as file:
        save(held, file)
    with pytest.raises(ValueError, match="could run code, so it was refused and nothing in it was"):
        load_judge(folder, device="cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["judge", "tower-clip"]


def test_broken_weights(tmp_path):
    folder = write_llava15(tmp_path / "judge")
    shard = sorted(folder.glob("*.bin"))[0]
    whole = shard.read_bytes()
    copy = folder / "pytorch_model-copy.bin"

    def refused(message):
        with pytest.raises(ValueError, match=message):
            models.convert(folder, tmp_path / "converted")
        assert not (tmp_path / "converted").exists()

    copy.write_bytes(whole)
    refused("in two files; remove those that are not of the checkpoint")
    copy.unlink()
    shard.write_bytes(whole[: len(whole) // 2])
    refused(f"{shard.name} can't be read")
    shard.unlink()
    refused(r"weights do not fit its config.json: it asks for \d+, not \d+")


@pytest.mark.parametrize(
    ("write", "settings", "reason"),
    [
        (write_llava15, {"architectures": ["LlavaMptForCausalLM"]}, "supported: its decoder is"),
        (write_llava15, {"mm_projector_type": "linear"}, "mm_projector_type is 'linear'"),
        (write_llava15, {"image_aspect_ratio": "anyres"}, "is 'anyres'"),
        (write_llava15, {"mm_vision_select_layer": -6}, r"from layer -6 .*, .* has 4 layers"),
        (write_llava15, {"rope_scaling": 7}, "can't be read from"),
        (write_onevision, {"mm_vision_tower": "tower-clip"}, "vision tower of type 'clip'"),
        (write_onevision, {"image_grid_pinpoints": "print(1)"}, "no list of resolutions"),
    ],
)
def test_kinds_that_do_not_fit(tmp_path, write, settings, reason):
    if write is write_onevision:
        write_llava15(tmp_path / "other")  # with a tower of CLIP beside
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
        pool.submit(llava.converted, llava.Original(llava15, name="judge"))
        target = pool.submit(llava.converted, llava.Original(llava15, name="judge")).result()
    assert [path for path in home.iterdir() if path.is_dir()] == [target]
    first = models.load(llava15, device="cpu")
    tower = llava15.parent / "tower-clip"
    assert (first.path, first.folder, first.others) == (llava15, target, (tower,))
    identity = load_judge(llava15, device="cpu").engine.identity()
    assert identity["weights"] == models.weights_fingerprint(llava15, tower)
    precisions = {tensor.dtype for tensor in load_file(target / "model.safetensors").values()}
    assert precisions == {torch.float16, torch.float32}, "as stored: the tower is in float32"
    monkeypatch.setattr(llava, "_write", lambda *_: pytest.fail("converted again"))
    models.load(llava15, device="cpu")


def test_a_full_disk_and_a_cache_that_cannot_be_written_are_said(llava15, home, monkeypatch):
    home.parent.mkdir(parents=True)
    home.touch()
    with pytest.raises(ValueError, match="can't be written .*set XDG_CACHE_HOME"):
        models.load(llava15, device="cpu")
    home.unlink()
    room = shutil.disk_usage(llava15)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    with pytest.raises(
        ValueError,
        match="takes 0.0 GB in the transformers layout, and 0.0 GB are free at .*make room",
    ):
        models.load(llava15, device="cpu")
    assert not [path for path in home.iterdir() if path.is_dir()]
