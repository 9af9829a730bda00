"""Find a judge's checkpoint, and check its settings before any weight is fetched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as TEXT_MODELS
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGE_MODELS,
)

from vjudge.models.files import (
    ADAPTER_FILE,
    CHECKED_FILES,
    SETTINGS_FILES,
    fetch,
    fetch_weights,
    read_settings,
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
LLAVA_TOWERS = {"llava": "clip_vision_model", "llava_onevision": "siglip_vision_model"}
"""Model type of a family whose images vjudge prepares -> model type of its vision tower."""

DECODERS = {"LlavaLlamaForCausalLM": "llama", "LlavaQwenForCausalLM": "qwen2"}
"""The class of an original LLaVA checkpoint -> transformers' name of its decoder."""
SUPPORTED_SETTINGS = {
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
"""Decoder -> setting in config.json -> regular expression of its supported values.

Each is matched with the whole value as `str` writes it: "False", or "None" where it is absent.
"""
NO_HUB = {"local_files_only": True, "trust_remote_code": False}
"""Arguments of each `from_pretrained`: nothing is fetched then, and no stored code is run."""


class Checkpoint(NamedTuple):
    """A checkpoint whose settings were read and checked; no weight was fetched from a hub."""

    name: str  # a short name, a path or a hub id
    revision: str | None  # a branch, tag or commit of a hub id
    folder: Path
    kind: str  # see `kind_of`
    settings: dict[str, Any]  # the content of its config.json


def find_checkpoint(name_or_path: str | Path, *, revision: str | None = None) -> Checkpoint:
    """Find a judge, and check its settings; of a hub id, no weight is downloaded.

    Args:
        name_or_path: the short name of an embedded judge, the path of a folder, or a hub id.
        revision: a branch, tag or commit of a hub id.

    Raises:
        ValueError: nothing of that name exists, or what exists is not supported or damaged.
    """
    name = str(name_or_path)
    folder = folder_of(name_or_path)
    if not folder.is_dir():
        if re.fullmatch(r"[^\s./~][^\s/]*/[^\s/]+", name) is None:  # owner/name
            raise ValueError(
                f"no judge {name!r}: it is neither one of {EMBEDDED}, nor a folder, nor a hub id"
                f" such as 'owner/name'; give the path of a folder that holds {SUPPORTED}, or for"
                f" a model behind a server 'openai:{name}'"
            )
        folder = fetch(name, [*SETTINGS_FILES, RECORD], revision=revision)
    # Numbers with which no model can be built are refused now, and not after a long download.
    for file in CHECKED_FILES:
        if (folder / file).is_file():
            read_settings(folder / file)
    settings = read_settings(folder / "config.json")
    return Checkpoint(name, revision, folder, kind_of(settings, name), settings)


def locate(name_or_path: str | Path, *, revision: str | None = None) -> Path:
    """Return the folder of a judge with its weights, which a hub id downloads once.

    Args:
        name_or_path, revision: as for `find_checkpoint`.

    Raises:
        ValueError: nothing of that name exists, or what exists is not supported or damaged.
    """
    checkpoint = find_checkpoint(name_or_path, revision=revision)
    if folder_of(name_or_path).is_dir():
        return checkpoint.folder
    return fetch_weights(str(name_or_path), revision=revision)


def folder_of(name_or_path: str | Path) -> Path:
    """Return the folder that a short name or a path means; it may not exist.

    A path may be the `out` of a training, whose judge stands in the folder `judge` there.
    """
    if str(name_or_path) in EMBEDDED:
        return ASSETS / str(name_or_path)
    folder = Path(name_or_path).expanduser()
    for candidate in (folder, folder / "judge"):
        if (candidate / "config.json").is_file() or (candidate / ADAPTER_FILE).is_file():
            return candidate
    return folder


def base_of(name_or_path: str | Path) -> str | None:
    """Return the name or path of the base of a folder of adapters; None for anything else."""
    file = folder_of(name_or_path) / ADAPTER_FILE
    if not file.is_file():
        return None
    return str(read_settings(file)["base_model_name_or_path"])


def kind_of(config: Mapping[str, Any], name: str) -> str:
    """Tell from a config.json how a checkpoint is loaded.

    Returns:
        "original" (LLaVA's own layout), "llava" (a family whose images vjudge prepares), "chat" (a
        model with a processor of its own) or "text" (a model that sees no images).

    Raises:
        ValueError: a checkpoint that can't be loaded right.
    """
    # 1) LLaVA's own layout, by its class, or by a setting that only such a checkpoint has
    if decoder_of(config) is not None or "mm_vision_tower" in config:
        check_original(config, name)
        return "original"
    # 2) a LLaVA family in transformers' layout; with another vision tower than the family's, its
    # own processor prepares the images, as a chat model's does. A stored vision_config may leave
    # its model type out, which then is the family's
    model_type = str(config.get("model_type"))
    vision = config.get("vision_config") or {}
    tower = LLAVA_TOWERS.get(model_type)
    if tower is not None and vision.get("model_type", tower) == tower:
        return "llava"
    # 3) a chat model, if it sees: some model types have a variant without vision, a text model
    if model_type in IMAGE_MODELS and (vision or model_type not in TEXT_MODELS):
        # Captioning models such as BLIP-2 don't take an image at its place in a text.
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


# --- original LLaVA checkpoints


def decoder_of(config: Mapping[str, Any]) -> str | None:
    """Return the decoder of an original LLaVA checkpoint ("llama", "qwen2"); None for others."""
    classes = config.get("architectures") or [None]  # the first is the checkpoint's class
    return DECODERS.get(classes[0])


def check_original(config: Mapping[str, Any], name: str) -> None:
    """Refuse an original LLaVA checkpoint whose class or settings are not supported.

    Args:
        config: the content of its config.json.
        name: the judge's name, for the message.

    Raises:
        ValueError: naming the unsupported class, or each unsupported setting.
    """
    decoder = decoder_of(config)
    faults = []
    if decoder is None:
        faults.append(f"its class is {brief(config.get('architectures'))}")
    for setting, pattern in SUPPORTED_SETTINGS.get(str(decoder), {}).items():
        value = config.get(setting)  # None where it is absent, which a pattern may allow
        if re.fullmatch(pattern, str(value)) is None:
            faults.append(f"{setting} is {brief(value)}")
    if faults:
        raise ValueError(
            f"judge {name!r} is an original LLaVA checkpoint, not supported: {'; '.join(faults)}"
        )
