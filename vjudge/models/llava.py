"""Original LLaVA checkpoints -> a folder in the transformers layout, once.

LLaVA-1.5 with a Llama decoder (Prometheus-Vision), and LLaVA-NeXT/OneVision with a Qwen2 one
(LLaVA-Critic). transformers must not see such a folder first: it takes `model_type: "llava"` for
its own, of default sizes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from tqdm.auto import tqdm

from vjudge.models.find import (
    find,
    locate,
    read_json,
    settings_fingerprint,
    weight_bytes,
    weights_fingerprint,
)
from vjudge.models.original import Original

WRITTEN = 2  # raise it whenever another folder would be written, and caches are renewed
SHARD_BYTES = 2 << 30  # of a converted checkpoint's files


def convert(source: str | Path, target: str | Path, *, revision: str | None = None) -> Path:
    """Write an original LLaVA checkpoint as a transformers folder, as `load_judge` does once.

    Precision, tokenizer, preprocessing, conversation (as a chat template) and generation settings
    are the original's; entries that are no words are suppressed, and no repetition penalty stays:
    the original never penalises the prompt. Elsewhere, a processor by torchvision differs from the
    original's pixels by 1-2 of 255 levels, and OneVision's counts a few image sizes otherwise.

    Args:
        source: a folder, with its vision tower where `mm_vision_tower` says, or a hub id.
        target: the folder to write; it appears when everything is written.
        revision: branch, tag or commit of a hub checkpoint.

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
    if find(source, revision=revision).kind != "original":
        raise ValueError(
            f"{source} is not in the original LLaVA layout; there is nothing to convert"
        )
    folder = locate(source, revision=revision)
    return _write(Original(folder, name=str(source)), target)


def converted(original: Original) -> Path:
    """The transformers folder of an original checkpoint, written once into the user's cache.

    It stands in XDG_CACHE_HOME or ~/.cache by the content of all files. ValueError as `convert`.
    """
    original.tower_weights  # noqa: B018  # fetched now, so that the fingerprints are of all files
    parts = (
        weights_fingerprint(*original.origins),
        settings_fingerprint(*original.origins),
        str(WRITTEN),
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()
    home = cache / "vjudge" / "converted"
    target = home / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    if target.is_dir():
        return target
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"judge {original.name!r}: {home} can't be written ({error}); set XDG_CACHE_HOME"
        ) from error
    with FileLock(home / f"{target.name}.lock"):
        for rest in home.glob(f".{target.name}-*"):  # of a process that was killed
            shutil.rmtree(rest, ignore_errors=True)
        if target.is_dir():  # by another process, meanwhile
            return target
        return _write(original, target)


# Writing a folder


def _write(original: Original, target: Path) -> Path:
    # 1) room for the files, and weights that fit the configuration
    target.parent.mkdir(parents=True, exist_ok=True)
    size = sum(weight_bytes(folder) for folder in original.origins)
    free = shutil.disk_usage(target.parent).free
    if size > free:
        raise ValueError(
            f"judge {original.name!r} takes {size / 1e9:.1f} GB in the transformers layout, and"
            f" {free / 1e9:.1f} GB are free at {target.parent}: make room, or set XDG_CACHE_HOME"
            " elsewhere"
        )
    tensors = original.tensors
    expected = _count_tensors(original.config)
    if len(tensors) != expected:
        raise ValueError(
            f"{original.folder}: the weights do not fit its config.json: it asks for {expected},"
            f" not {len(tensors)}"
        )

    # 2) all files into a folder beside, which then gets its name
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write_settings(original, partial)
        label = f"{original.name} -> {target}"
        with tqdm(total=size, unit="B", unit_scale=True, desc=label, delay=2) as bar:
            _write_tensors(tensors, partial, bar)
        partial.chmod(0o755)  # mkdtemp's is for its owner alone
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _count_tensors(config: Any) -> int:
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(config)
    count = len(model.state_dict())
    return count - 1 if config.tie_word_embeddings else count


def _write_tensors(tensors: dict[str, torch.Tensor], folder: Path, bar: Any) -> None:
    # Tensors of one mapped file are one storage, which no plan may cut: it is made of their sizes.
    sizes = {name: tensor.to("meta") for name, tensor in tensors.items()}
    plan = split_torch_state_dict_into_shards(sizes, max_shard_size=SHARD_BYTES)
    for file, names in plan.filename_to_tensors.items():
        shard = {name: tensors[name].contiguous() for name in names}
        save_file(shard, folder / file, metadata={"format": "pt"})
        bar.update(sum(tensor.nbytes for tensor in shard.values()))
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        _write_json(folder / "model.safetensors.index.json", index)


def _write_settings(original: Original, folder: Path) -> None:
    config = original.config
    config.dtype = getattr(torch, str(original.settings.get("torch_dtype", "float32")))
    for part in (config, original.tokenizer, original.image_processor):
        part.save_pretrained(folder)
    _write_json(folder / "generation_config.json", _generation_settings(original))
    _write_json(folder / "processor_config.json", _processor_settings(original))


def _generation_settings(original: Original) -> dict[str, Any]:
    file = original.folder / "generation_config.json"
    generation = read_json(file) if file.is_file() else {}
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if generation.get(name) is None and original.settings.get(name) is not None:
            generation[name] = original.settings[name]
    for name in ("repetition_penalty", "attn_implementation"):
        generation.pop(name, None)
    words = original.config.image_token_index
    generation["suppress_tokens"] = list(range(words, original.config.text_config.vocab_size))
    return generation


def _processor_settings(original: Original) -> dict[str, Any]:
    config = original.config
    vision = config.vision_config
    settings: dict[str, Any] = {
        "vision_feature_select_strategy": config.vision_feature_select_strategy,
        "image_token": original.tokenizer.convert_ids_to_tokens(config.image_token_index),
    }
    if not original.tiled:
        settings["processor_class"] = "LlavaProcessor"
        settings["patch_size"] = vision.patch_size
        settings["num_additional_image_tokens"] = 1
        return settings
    settings["processor_class"] = "LlavaOnevisionProcessor"
    settings["num_image_tokens"] = (vision.image_size // vision.patch_size) ** 2
    settings["vision_aspect_ratio"] = config.vision_aspect_ratio
    settings["video_token"] = "<video>"
    return settings


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
