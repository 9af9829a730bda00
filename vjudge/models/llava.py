"""Convert original LLaVA checkpoints, once, to a folder in the transformers layout.

These are LLaVA-1.5 with a Llama decoder (Prometheus-Vision), and LLaVA-NeXT or OneVision with a
Qwen2 one (LLaVA-Critic). transformers must not read such a folder itself: it would take
`model_type: "llava"` for its own model of default sizes.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file

from vjudge.models.files import fingerprint, read_settings
from vjudge.models.find import find_checkpoint, locate
from vjudge.models.original import Original

FORMAT_VERSION = 4  # raised whenever another folder would be written, which renews caches
SHARD_BYTES = 2 << 30  # the largest size of a converted checkpoint's files


def convert(source: str | Path, target: str | Path) -> Path:
    """Write an original LLaVA checkpoint as a transformers folder, as `load_judge` does once.

    Precision, tokenizer, image preprocessing, conversation (as a chat template) and generation
    settings are the original's. Entries that are no text are suppressed. A repetition penalty is
    left out, because the original never penalises the prompt. In other programs, image processors
    based on torchvision differ from the original's pixels by 1 or 2 of 255 levels, and OneVision's
    counts the tokens of a few image sizes differently.

    Args:
        source: a folder, with its vision tower where `mm_vision_tower` says, or a hub id.
        target: the folder to write; it appears when everything is written.

    Returns:
        `target`.

    Raises:
        FileExistsError: `target` holds something already.
        ValueError: no original checkpoint, or one that is damaged, unsupported or would run code;
            or a disk too full.
    """
    target = Path(target).expanduser()
    if target.exists() and any(target.iterdir()):
        raise FileExistsError(f"{target} is not empty; give another folder")
    if find_checkpoint(source).kind != "original":
        raise ValueError(
            f"{source} is not in the original LLaVA layout; there is nothing to convert"
        )
    return _write(Original(locate(source)), target)


def converted(original: Original) -> Path:
    """Return the transformers folder of an original checkpoint, written once per content.

    It stands in the user's cache, XDG_CACHE_HOME or ~/.cache, under the fingerprint of all files.
    Errors are those of `convert`.
    """
    # Reading the property downloads the tower's weights, so that the fingerprint covers all files.
    original.tower_weights  # noqa: B018
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()
    home = cache / "vjudge" / "converted"
    target = home / f"{fingerprint(*original.origins)[:16]}-{FORMAT_VERSION}"
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / f"{target.name}.lock"):  # another process may be writing it
        if not target.is_dir():
            _write(original, target)
    return target


# --- writing a folder


def _write(original: Original, target: Path) -> Path:
    """Write a checkpoint in the transformers layout, and return its folder, `target`.

    All files are written into a hidden folder beside it, which is renamed at the end: a folder with
    the target's name is complete.
    """
    unfinished = target.with_name(f".{target.name}")
    shutil.rmtree(unfinished, ignore_errors=True)  # left by a process that was killed
    unfinished.mkdir(parents=True)
    # 1) settings and tokenizer
    config = original.config
    config.dtype = getattr(torch, str(original.settings.get("torch_dtype", "float32")))
    for component in (config, original.tokenizer, original.image_processor):
        component.save_pretrained(unfinished)
    _write_json(unfinished / "generation_config.json", _generation_settings(original))
    _write_json(unfinished / "processor_config.json", _processor_settings(original))
    # 2) weights
    _write_tensors(original.tensors, unfinished)
    unfinished.rename(target)
    return target


def _write_tensors(tensors: dict[str, torch.Tensor], folder: Path) -> None:
    """Write weights into files of at most `SHARD_BYTES`, with an index if there are several."""
    # The plan is made of shapes alone: tensors of one memory-mapped file share their storage, which
    # the planning function would refuse to split.
    shapes = {name: tensor.to("meta") for name, tensor in tensors.items()}
    plan = split_torch_state_dict_into_shards(shapes, max_shard_size=SHARD_BYTES)
    for file, names in plan.filename_to_tensors.items():
        shard = {name: tensors[name].contiguous() for name in names}
        save_file(shard, folder / file, metadata={"format": "pt"})
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        _write_json(folder / "model.safetensors.index.json", index)


def _generation_settings(original: Original) -> dict[str, Any]:
    """Return the content of generation_config.json: special tokens, and entries that are no text.

    The original's own generation_config.json, if it has one, goes before its config.json.
    """
    file = original.folder / "generation_config.json"
    stored = original.settings | (read_settings(file) if file.is_file() else {})
    config = original.config
    spare_entries = range(config.image_token_index, config.text_config.vocab_size)
    generation: dict[str, Any] = {"suppress_tokens": list(spare_entries)}
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if stored.get(name) is not None:
            generation[name] = stored[name]
    return generation


def _processor_settings(original: Original) -> dict[str, Any]:
    """Return the settings by which transformers' processor counts an image's tokens."""
    config = original.config
    patches_per_side = config.vision_config.image_size // config.vision_config.patch_size
    settings: dict[str, Any] = {
        "vision_feature_select_strategy": config.vision_feature_select_strategy,
        "image_token": original.tokenizer.convert_ids_to_tokens(config.image_token_index),
    }
    if original.tiled:
        return settings | {
            "processor_class": "LlavaOnevisionProcessor",
            "num_image_tokens": patches_per_side**2,
            "vision_aspect_ratio": config.vision_aspect_ratio,
        }
    return settings | {
        "processor_class": "LlavaProcessor",
        "patch_size": config.vision_config.patch_size,
        "num_additional_image_tokens": 1,
    }


def _write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a JSON file."""
    file.write_text(json.dumps(content, indent=2) + "\n")
