"""Recognise an original LLaVA checkpoint, and check that its settings are supported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vjudge.records import brief

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
"""By decoder, the settings of config.json and a pattern of their supported values."""


def decoder_of(config: Mapping[str, Any]) -> str | None:
    """Return the decoder of an original LLaVA checkpoint ("llama", "qwen2"); None for others."""
    classes = config.get("architectures") or [None]
    return DECODERS.get(classes[0])


def is_original(config: Mapping[str, Any]) -> bool:
    """Tell whether a config.json is that of an original LLaVA checkpoint, supported or not."""
    return decoder_of(config) is not None or "mm_vision_tower" in config


def check_original(config: Mapping[str, Any], name: str) -> None:
    """Raise ValueError that names each unsupported setting of an original LLaVA checkpoint."""
    decoder = decoder_of(config)
    faults = []
    if decoder is None:
        faults.append(f"its class is {brief(config.get('architectures'))}")
    for setting, supported in SUPPORTED_SETTINGS.get(str(decoder), {}).items():
        value = config.get(setting)
        if re.fullmatch(supported, str(value)) is None:
            faults.append(f"{setting} is {brief(value)}")
    if faults:
        raise ValueError(
            f"judge {name!r} is an original LLaVA checkpoint, not supported: {'; '.join(faults)}"
        )
