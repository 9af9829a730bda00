"""Find a judge's checkpoint, check its settings before any weight is fetched, and read its files.

No code from a checkpoint is run: weights are read as tensors alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import huggingface_hub
import torch
import transformers
from safetensors.torch import load_file
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as TEXT_MODELS
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGE_MODELS,
)

from vjudge.prompts.families import RECORD
from vjudge.prompts.wordings import ASSETS
from vjudge.records import brief

EMBEDDED = sorted(file.parent.name for file in ASSETS.glob("*/config.json"))
"""The checkpoints in this package, each by the name of its folder."""
SUPPORTED = (
    "LLaVA-1.5 or -OneVision in either layout, a chat model that reads images, or a causal"
    " language model"
)
# The families whose images vjudge prepares as the original code does, with their vision towers.
LLAVA_TOWERS = {"llava": "clip_vision_model", "llava_onevision": "siglip_vision_model"}
# The class of an original LLaVA checkpoint -> transformers' name of its decoder.
DECODERS = {"LlavaLlamaForCausalLM": "llama", "LlavaQwenForCausalLM": "qwen2"}
# Settings of an original's config.json that are supported, by decoder.
DECODER_SETTINGS = {
    "llama": {
        "mm_projector_type": "mlp2x_gelu",
        "mm_use_im_start_end": "False|None",
        "mm_use_im_patch_token": "False",
        "mm_patch_merge_type": "flat|None",
        "image_aspect_ratio": "(?!.*anyres).*",
    },
    "qwen2": {
        "mm_projector_type": "mlp2x_gelu",
        "mm_use_im_patch_token": "False",
        "mm_patch_merge_type": "spatial_unpad",
        "image_aspect_ratio": r"anyres(_max_\d+)?",
        "mm_newline_position": "one_token|grid|None",
    },
}

ADAPTER_FILE = "adapter_config.json"  # of a folder that holds adapters on a base
CHECKED_FILES = ("config.json", "preprocessor_config.json", "processor_config.json")
SETTINGS_FILES = (
    *CHECKED_FILES,
    *"generation_config.json chat_template.json chat_template.jinja tokenizer.json".split(),
    *"tokenizer_config.json special_tokens_map.json added_tokens.json tokenizer.model".split(),
    *("vocab.json", "merges.txt", ADAPTER_FILE),
)
# The first kind that is there is read.
WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "adapter_model.bin")
# Fields of these files, and the largest number that a model can be built with; the least is 1.
LIMITS = {
    "num_hidden_layers|num_(attention_|key_value_)?heads|depth|r": 4096,
    "(patch|image|merge|temporal_patch)_size|head_dim": 2**16,
    "height|width": 2**13,  # of a prepared picture: 67 million pixels, as many as are opened
    "(hidden|intermediate|vocab)_size|max_position_.+|image_seq_len(gth)?|num_image_tokens": 2**30,
    "(min|max)_pixels|(shortest|longest)_edge": 2**28,
}


class Checkpoint(NamedTuple):
    """A checkpoint whose settings were read and checked; no weight was fetched from a hub."""

    name: str  # a short name, a path or a hub id
    revision: str | None  # of a hub id
    folder: Path
    kind: str  # see `kind_of`
    settings: dict[str, Any]  # of its config.json


def find_checkpoint(name_or_path: str | Path, *, revision: str | None = None) -> Checkpoint:
    """Find a judge by short name, path or hub id, and check its settings; errors as `locate`."""
    name = str(name_or_path)
    folder = folder_of(name_or_path)
    if not folder.is_dir():
        if re.fullmatch(r"[^\s./~][^\s/]*/[^\s/]+", name) is None:
            raise ValueError(
                f"no judge {name!r}: it is neither one of {EMBEDDED}, nor a folder, nor a hub id"
                f" such as 'owner/name'; give the path of a folder that holds {SUPPORTED}, or for"
                f" a model behind a server 'openai:{name}'"
            )
        folder = fetch(name, [*SETTINGS_FILES, RECORD], revision=revision)
    for file in CHECKED_FILES:
        if (folder / file).is_file():
            read_settings(folder / file)  # refuses bad numbers now
    settings = read_settings(folder / "config.json")
    return Checkpoint(name, revision, folder, kind_of(settings, name), settings)


def locate(name_or_path: str | Path, *, revision: str | None = None) -> Path:
    """The folder of a judge, downloaded once where it is a hub id.

    Raises:
        ValueError: nothing of that name exists, or what exists is not supported or damaged.
    """
    checkpoint = find_checkpoint(name_or_path, revision=revision)
    if folder_of(name_or_path).is_dir():
        return checkpoint.folder
    return fetch_weights(str(name_or_path), revision=revision)


def folder_of(name_or_path: str | Path) -> Path:
    """The folder that a short name or a path means; of a training's `out`, the judge in it."""
    if str(name_or_path) in EMBEDDED:
        return ASSETS / str(name_or_path)
    folder = Path(name_or_path).expanduser()
    for candidate in (folder, folder / "judge"):
        if (candidate / "config.json").is_file() or (candidate / ADAPTER_FILE).is_file():
            return candidate
    return folder


# What a checkpoint is


def kind_of(config: Mapping[str, Any], name: str) -> str:
    """How a checkpoint is loaded, from its config.json.

    Returns:
        "original" (LLaVA's own layout), "llava" (a family whose images vjudge prepares), "chat" (a
        model with a processor of its own) or "text" (a model that sees no images).

    Raises:
        ValueError: one that can't be loaded right.
    """
    if decoder_of(config) is not None or "mm_vision_tower" in config:
        _check_original(config, name)
        return "original"
    model_type = str(config.get("model_type"))
    vision = config.get("vision_config") or {}
    tower = LLAVA_TOWERS.get(model_type)
    if tower is not None and vision.get("model_type", tower) == tower:
        return "llava"
    if model_type in IMAGE_MODELS and (vision or model_type not in TEXT_MODELS):
        # captioning models such as BLIP-2 don't take an image at its place in a text
        if getattr(transformers, IMAGE_MODELS[model_type]).main_input_name == "input_ids":
            return "chat"
        fault = "which reads no chat with images in it"
    elif model_type in TEXT_MODELS:
        return "text"
    else:
        fault = "unknown to transformers without code of its own, which is not run here"
    raise ValueError(
        f"judge {name!r} has model_type {model_type!r}, {fault}; supported is {SUPPORTED}"
    )


def decoder_of(config: Mapping[str, Any]) -> str | None:
    """The decoder of an original LLaVA checkpoint, by its class."""
    classes = config.get("architectures") or [None]
    return DECODERS.get(classes[0])


def _check_original(config: Mapping[str, Any], name: str) -> None:
    decoder = decoder_of(config)
    faults = []
    if decoder is None:
        faults.append(f"its class is {brief(config.get('architectures'))}")
    for setting, values in DECODER_SETTINGS.get(str(decoder), {}).items():
        value = config.get(setting)
        if re.fullmatch(values, str(value)) is None:
            faults.append(f"{setting} is {brief(value)}")
    if faults:
        raise ValueError(
            f"judge {name!r} is an original LLaVA checkpoint, not supported: {'; '.join(faults)}"
        )


# Files


def fetch(name: str, patterns: Sequence[str], *, revision: str | None = None) -> Path:
    """Download files of a hub repository once; without a connection, take what the cache has."""
    try:
        folder = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=list(patterns)
        )
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{name!r} is no folder here, and the hub could not provide it ({reason_of(error)}); a"
            f" model behind a server is 'openai:{name}'"
        ) from error
    return Path(folder)


def fetch_weights(name: str, *, revision: str | None = None) -> Path:
    """Download settings and weights; pickled weights only where there are no others."""
    for pattern in WEIGHTS:
        files = [*SETTINGS_FILES, RECORD, pattern, f"{pattern}.index.json"]
        folder = fetch(name, files, revision=revision)
        if weight_files(folder):
            break
    return folder


def weight_files(folder: Path) -> list[Path]:
    """The files that a folder's weights are read from, wherever an index says that they stand.

    Pickles are read only where there is nothing else.
    """
    for pattern in WEIGHTS:
        files = set(folder.glob(pattern))
        for index in folder.glob(f"{pattern}.index.json"):
            named = read_settings(index).get("weight_map")
            if isinstance(named, dict):
                files |= {folder / str(name) for name in named.values()}
        files = {file for file in files if file.is_file()}
        if files:
            return sorted(files)
    return []


def weight_bytes(checkpoint: Checkpoint) -> int:
    """The size of a checkpoint's weight files, in bytes; of a hub id, as the hub says."""
    if folder_of(checkpoint.name).is_dir():
        return sum(file.stat().st_size for file in weight_files(checkpoint.folder))
    listed: Any = huggingface_hub.HfApi().model_info(
        checkpoint.name, revision=checkpoint.revision, files_metadata=True
    )
    for pattern in WEIGHTS:
        sizes = [file.size for file in listed.siblings if fnmatch(file.rfilename, pattern)]
        if sizes:
            return sum(sizes)
    return 0


def fingerprint(*folders: Path) -> str:
    """The SHA-256 over what decides checkpoints' outputs; each file is read once a process."""
    digest_of_all = hashlib.sha256()
    for folder in folders:
        settings = [folder / name for name in SETTINGS_FILES if (folder / name).is_file()]
        for file in [*weight_files(folder), *settings]:
            state = file.stat()
            times = (state.st_mtime_ns, state.st_ctime_ns)  # the second can't be set back
            digest = _digest(file.resolve(), times, state.st_size)
            digest_of_all.update(f"{os.path.relpath(file, folder)}\0{digest}\n".encode())
    return digest_of_all.hexdigest()


@functools.cache
def _digest(file: Path, times: tuple[int, int], size: int) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for chunk in iter(lambda: stream.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def read_settings(file: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object.

    ValueError: it is damaged, or holds a number (named with its field) that no model or
    preprocessing can be built with.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"), object_hook=_checked)
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError, RecursionError) as error:  # no file, no JSON, too deep
        raise ValueError(
            f"{file} can't be read ({error}); give a checkpoint's folder, or download it again"
        ) from error
    return content


def _checked(entries: dict[str, Any]) -> dict[str, Any]:
    for key, value in entries.items():
        for pattern, limit in LIMITS.items():
            if isinstance(value, int | float) and re.fullmatch(pattern, key):
                if not 1 <= value <= limit:
                    raise ValueError(f"{key} = {value:,}, and from 1 to {limit:,} is possible")
    return entries


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of a folder by name, on the CPU and as stored, from mapped files.

    Raises:
        ValueError: no weights, a damaged file, or one that would run code when it is read.
    """
    tensors: dict[str, torch.Tensor] = {}
    for file in weight_files(folder):
        try:
            if file.suffix == ".safetensors":
                tensors |= load_file(file)
            else:
                tensors |= torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # of any kind: libraries don't check a file before they use it
            reason = reason_of(error)
            raise ValueError(f"{file} can't be read ({reason}); download it again") from error
    return tensors


def reason_of(error: Exception) -> str:
    """In one line, why a library could not read a file."""
    first_line = str(error).strip().partition("\n")[0][:600]
    if isinstance(error, pickle.UnpicklingError):
        first_line = f"could run code, so it was refused and nothing in it was run: {first_line}"
    return f"{type(error).__name__}: {first_line}"
