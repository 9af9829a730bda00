"""Finding a judge; refusing in bounded time what would load wrong or hang; knowing weights by their content."""

import contextlib
import importlib
import json
import os
import shutil
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from safetensors.torch import load_file, save_file

from chatmodels import make
from originals import edit, refused, write_llava15
from vjudge import models
from vjudge.engines.hf import HFEngine
from vjudge.models import find as finding
from vjudge.models import placement


@pytest.fixture
def folder(random_judge, tmp_path):
    """A copy of the random judge that a test may damage."""
    return Path(shutil.copytree(random_judge, tmp_path / "judge"))


@pytest.mark.parametrize("name", ["gpt-4o", "a/b/c", "/no/such/folder", "two words/x"])
def test_unknown_name_says_what_exists(name):
    exists = "no judge .*'tiny', .*'tiny-policy'.*, nor a folder, nor a hub id"
    with pytest.raises(ValueError, match=f"{exists}.* server 'openai:{name}'"):
        models.locate(name)


def test_a_hub_checkpoint_is_checked_before_its_weights_are_fetched(folder, tmp_path, monkeypatch):
    copy = tmp_path / "snapshot"
    copy.mkdir()
    fetched = []

    def snapshot(name, revision, allow_patterns):
        assert (name, revision) == ("some/judge", "abc")
        before = set(os.listdir(copy))
        for file in folder.iterdir():
            if any(fnmatch(file.name, each) for each in allow_patterns):
                shutil.copy(file, copy)
        fetched.append(set(os.listdir(copy)) - before)
        return str(copy)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    for stray in ("pytorch_model.bin", "consolidated.pth", "code.py"):
        (folder / stray).touch()
    file = SimpleNamespace(rfilename="model.safetensors", size=1 << 60)
    listed = SimpleNamespace(siblings=[file])
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: listed)
    with pytest.raises(ValueError, match="does not fit: its weights take 10.*GiB"):
        models.load("some/judge", revision="abc", device="cpu")
    (settings,) = fetched
    assert "config.json" in settings and "model.safetensors" not in settings
    assert models.locate("some/judge", revision="abc") == copy
    assert fetched[-1] == {"model.safetensors"}
    assert not {file.suffix for file in copy.iterdir()} & {".bin", ".pth", ".py"}


@pytest.mark.parametrize(
    ("way", "free", "message"),
    [
        ({}, 9, "does not fit: its weights take 9.3 GiB, and 9.0 GiB are free on cpu"),
        ({}, 10, None),
        ({"dtype": "bfloat16"}, 5, None),
        ({"quantization": "8bit"}, 2, "2.3 GiB, and 2.0 GiB .*quantization='8bit' or '4b"),
        ({"quantization": "4bit"}, 2, None),
        ({"device_map": "auto"}, 1, None),  # accelerate places what fits
    ],
)
def test_what_does_not_fit_is_refused_with_its_remedies(tmp_path, monkeypatch, way, free, message):
    small = dict.fromkeys(("num_hidden_layers", "vocab_size", "intermediate_size"), 1)
    settings = {"model_type": "llama", "dtype": "bfloat16", **small}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "model.safetensors").touch()
    os.truncate(tmp_path / "model.safetensors", 5 * 10**9)
    memory = SimpleNamespace(available=free << 30)
    monkeypatch.setattr(placement.psutil, "virtual_memory", lambda: memory)
    options = {"dtype": "float32", "device": "cpu"} | way
    with pytest.raises(ValueError, match=message) if message else contextlib.nullcontext():
        placement.check_fit(finding.find_checkpoint(tmp_path), placement.place(**options))


@pytest.mark.parametrize("field", ["vocab_size", "intermediate_size", "hidden_size"])
@pytest.mark.parametrize("layout", ["llava", "chat", "text", "original"])
def test_what_the_configuration_makes_room_for_counts(tmp_path, random_judge, field, layout):
    """A vocabulary of a thousand million words in 8 MB took 24 GB and killed the kernel."""
    if layout == "original":
        folder = write_llava15(tmp_path / "original")
    elif layout == "llava":
        folder = Path(shutil.copytree(random_judge, tmp_path / "judge"))
    else:
        folder = make("qwen2_vl" if layout == "chat" else "llama", tmp_path / layout)
    models.load(folder, device="cpu")
    settings = json.loads((folder / "config.json").read_text())
    inner = settings.get("text_config", settings)
    inner[field] = inner[field] * 10**6 if field == "hidden_size" else 10**9
    (folder / "config.json").write_text(json.dumps(settings))
    refused(folder, "does not fit: its weights take .*check_memory=False")


def test_weights_that_fit_only_in_part(folder):
    """transformers would fill the gap with random numbers and say so in a warning."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    name = next(key for key in weights if key.endswith("linear_2.weight"))
    last = weights.pop(name)
    faults = {
        "missing or unexpected, such as .*linear_2.weight": {},
        "missing or unexpected, such as stray": {name: last, "stray": last.clone()},
        "can't be read from": {name: last[:-1].clone()},
    }
    for message, change in faults.items():
        save_file(weights | change, file, metadata={"format": "pt"})
        refused(folder, message)


def test_fingerprint_follows_the_content(folder, random_judge, monkeypatch):
    before = models.fingerprint(folder)
    assert before == models.fingerprint(random_judge), "the same bytes elsewhere"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: pytest.fail("an unchanged file is read again"))
        assert models.fingerprint(folder) == before
    edit(folder / "tokenizer_config.json", model_max_length=7)
    changed = models.fingerprint(folder)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    os.utime(file, ns=(1, 1))
    assert len({before, changed, models.fingerprint(folder)}) == 3


def test_what_answers_is_what_is_stamped(folder):
    """A folder that is trained into again keeps the mark of what was loaded from it."""
    loaded = models.load(folder, device="cpu")
    assert loaded.checkpoint == models.fingerprint(folder)
    file = folder / "model.safetensors"
    state = file.stat()
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    engine = HFEngine(loaded)
    assert engine.identity()["checkpoint"] == loaded.checkpoint != models.fingerprint(folder)


def test_weights_that_are_written_while_they_are_read_are_refused(folder, monkeypatch):
    def meanwhile(*options):
        (folder / "model.safetensors").touch()
        edit(folder / "tokenizer_config.json", model_max_length=7)

    loading = importlib.import_module("vjudge.models.load")
    monkeypatch.setattr(loading, "load_value_head", meanwhile)
    with pytest.raises(ValueError, match="changed while they were read"):
        models.load(folder, device="cpu")


@pytest.mark.parametrize("home", ["parts", "../beside"])
def test_weights_are_known_wherever_the_index_names_them(folder, home):
    plain = models.load(folder, device="cpu")
    (folder / home).mkdir()
    file = folder / home / "weights.safetensors"
    shutil.move(folder / "model.safetensors", file)
    names = dict.fromkeys(load_file(file), f"{home}/weights.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    loaded = models.load(folder, device="cpu")
    theirs, ours = plain.model.state_dict(), loaded.model.state_dict()
    assert all((theirs[name] == ours[name]).all() for name in theirs)
    tensors = load_file(file)
    tensors[min(tensors)] = tensors[min(tensors)] + 1
    save_file(tensors, file, {"format": "pt"})
    assert models.fingerprint(folder) != loaded.checkpoint


# Made to hang or to confuse


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [
        ("config.json", "text_config.num_hidden_layers", 10_000_000),
        ("config.json", "vision_config.patch_size", 0),
        ("config.json", "text_config.hidden_size", -64),
        ("config.json", "text_config.head_dim", 0),
        ("config.json", "text_config.num_key_value_heads", 0),
        ("config.json", "text_config.max_position_embeddings", 0),
        ("config.json", "text_config.vocab_size", 1e30),
        ("config.json", "vision_config.image_size", float("inf")),
        ("preprocessor_config.json", "crop_size.height", 10**9),
        ("preprocessor_config.json", "size.width", 20_000),  # 1.2 GB of a picture's bytes
        ("preprocessor_config.json", "size.shortest_edge", 2**30),
        ("adapter_config.json", "r", 10**6),
        ("preprocessor_config.json", "min_pixels", 1e12),
        ("processor_config.json", "image_seq_length", float("nan")),
        ("config.json", "model_type", "clip"),
        ("config.json", "model_type", "blip-2"),
    ],
)
def test_settings_that_nothing_can_be_built_with(folder, file, field, value):
    path = folder / file
    settings = json.loads(path.read_text()) if path.exists() else {}
    outer, _, last = field.rpartition(".")
    part = settings.setdefault(outer, {}) if outer else settings
    part[last] = value
    path.write_text(json.dumps(settings))
    reason = rf"{file} .*{last} = .*from 1 to .* is possible"
    if isinstance(value, str):
        reason = f"'{value}', (unknown to|which reads no chat).*supported is"
    refused(folder, reason)


def test_numbers_of_an_originals_tower(tmp_path):
    original = write_llava15(tmp_path / "original")
    edit(tmp_path / "tower-clip" / "config.json", vision_config={"num_hidden_layers": 10_000_000})
    refused(original, "num_hidden_layers = 10,000,000")


@pytest.mark.parametrize("content", [b"[" * 100_000, b"[1]", b"\xff", None])
def test_files_that_are_damaged_or_missing(folder, content):
    for name in ("config.json", "model.safetensors", "preprocessor_config.json"):
        file = folder / name
        whole = file.read_bytes()
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        refused(folder, r"judge|can't be read")
        file.write_bytes(whole)


def test_smolvlm_names_the_package_that_it_lacks(tmp_path, monkeypatch):
    folder = make("idefics3", tmp_path / "smolvlm")  # the same network under an older name
    edit(folder / "config.json", model_type="smolvlm")
    processing = importlib.import_module("transformers.models.smolvlm.processing_smolvlm")
    monkeypatch.setattr(processing, "num2words", None)
    refused(folder, "needs a package that is missing: .*num2words")
    monkeypatch.setattr(processing, "num2words", str)
    assert models.load(folder, device="cpu").image_token == "<image>"
