"""Checkpoints that were made to hang or to confuse: a clear error that names the file, in a bounded time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from originals import write_llava15

from vjudge import models


@pytest.fixture
def folder(random_judge: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(random_judge, tmp_path / "judge"))


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("part", ["text_config", "vision_config"])
def test_ten_million_layers(folder: Path, part: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", **{part: config[part] | {"num_hidden_layers": 10_000_000}})
    for work in (models.load, models.fits):
        with pytest.raises(ValueError, match="config.json says num_hidden_layers = 10,000,000, and 4,096 is the most"):
            work(folder)


def test_an_original_of_ten_million_layers(tmp_path: Path) -> None:
    folder = write_llava15(tmp_path / "judge")
    edit(folder / "config.json", num_hidden_layers=10_000_000)
    with pytest.raises(ValueError, match="num_hidden_layers = 10,000,000"):
        models.load(folder, device="cpu")
    edit(folder / "config.json", num_hidden_layers=2)
    edit(tmp_path / "tower-clip" / "config.json", vision_config={"num_hidden_layers": 10_000_000})
    with pytest.raises(ValueError, match="num_hidden_layers = 10,000,000"):
        models.load(folder, device="cpu")


@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", ["[" * 100_000, "{", "[1]", "\xff"])
def test_json_that_is_none(folder: Path, file: str, content: str) -> None:

    (folder / file).write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=r"judge|can't be read|holds no JSON object"):
        models.load(folder, device="cpu")


@pytest.mark.parametrize("size", [0, 1000])
def test_weights_that_are_cut_off(folder: Path, size: int) -> None:

    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ValueError, match="model.safetensors is damaged"):
        models.load(folder, device="cpu")


@pytest.mark.parametrize(
    "changes",
    [
        {"text_config": {"model_type": "no_such_model"}},
        {"text_config": 7},
        {"vision_config": [1]},
        {"text_config": {"model_type": "llama", "hidden_size": "wide"}},
        {"text_config": {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 0}},
        {"vision_feature_layer": "last"},
        {"architectures": 7},
        {"image_token_index": -5},
    ],
)
def test_settings_of_the_wrong_kind(folder: Path, changes: dict[str, Any]) -> None:

    edit(folder / "config.json", **changes)
    try:
        loaded = models.load(folder, device="cpu")
    except ValueError:
        return
    assert loaded.image_token_id is not None  # what does not matter may load
