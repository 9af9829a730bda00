"""What a fine-tuning is going to take: memory and hours, computed from a configuration before any download."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PretrainedConfig

from vjudge.models.memory import CONTEXT, FRAGMENTS, GIB, configuration, need
from vjudge.training.lora import Lora, as_lora, decoder_layers, part_of
from vjudge.training.recipes import Recipe, recipe_of

STATE = 16  # bytes of a weight that trains: itself, its gradient and AdamW's two moments, each in float32
PEAK = {"T4": 65e12, "A100": 312e12, "H100": 989e12}
"""Products a second in 16 bits, by GPU. Source: NVIDIA's data sheets, dense, tensor cores."""
USED = 0.35  # the share of it that a training reaches: an assumption, of what well-tuned trainings of this size report


@dataclass(frozen=True)
class Cost:
    """What a training takes on each device, computed and not measured.

    Args:
        parameters: of the whole model.
        trained: how many of them, or of the adapters, learn.
        weights, states, activations: GiB on each device: of weights that stay, of what learns with its optimiser, and
            of what is alive between forward and backward pass.
        total: GiB with the device's own half GiB and 5 % for fragments.
        hours: for one pass over the rows, at the assumed share of the device's peak.
    """

    parameters: int
    trained: int
    weights: float
    states: float
    activations: float
    total: float
    hours: float


def training_cost(
    base: str | Path | PretrainedConfig,
    *,
    recipe: str | Recipe = "prometheus-vision",
    lora: bool | Mapping[str, Any] | Lora | None = None,
    quantization: str | None = None,
    gpu: str = "A100",
    devices: int = 1,
    rows_at_once: int = 1,
    length: int = 1_500,
    answer: int = 150,
    rows: int = 150_000,
    used: float = USED,
    **changes: Any,
) -> Cost:
    """Compute the memory and the time of a training.

    Weights of a full training are held in float32 and computed with in 16 bits, as `fine_tune` does; under adapters
    they are held in 16 bits, or quantised. Over several devices weights and optimiser are taken as spread (FSDP).
    A weight costs 2 products a token forward, 2 for the states before it and 2 for its own gradient if it trains, and
    the forward 2 again where activations are computed anew. Attention's own products (below a tenth at these lengths),
    a frozen tower, whose states are kept, and what the devices tell each other are left out.

    Args:
        base: as for `fine_tune`, of which the config.json is read; or a transformers configuration.
        recipe, lora, quantization: as for `fine_tune`.
        gpu: a name in `PEAK`.
        devices: how many of them.
        rows_at_once: rows that a device computes together.
        length: tokens of a row, image and answer included; Perception-Collection's mean is near 1,500 (belief).
        answer: how many of them carry loss.
        rows: of the collection.
        used: share of the GPU's peak that is reached.
        changes: fields of `Recipe`.

    Raises:
        ValueError: an unknown GPU, or nothing is known of the base.
    """
    if gpu not in PEAK:
        raise ValueError(f"gpu={gpu!r}: known are {', '.join(PEAK)}")
    config = configuration(base)
    chosen, adapted = recipe_of(recipe, **changes), as_lora(lora)
    sizes, largest = _sizes(config)
    counted = need(config, dtype="float32" if adapted is None else "bfloat16", quantization=quantization)
    parts = {part: sum(n for name, n in sizes.items() if part_of(name) == part) for part in set(map(part_of, sizes))}
    if adapted is None:
        trained = sum(n for part, n in parts.items() if part not in chosen.freeze)
        copies = 2 * trained if devices == 1 else 0  # in 16 bits, for the products; spread weights are gathered in them
        weights = 4 * (counted.parameters - trained) + copies
    else:
        projector = 0 if "projector" in chosen.freeze else parts.get("projector", 0)
        trained = adapter_weights(config, adapted) + projector
        weights = counted.weights
    text = config.get_text_config()
    again = chosen.gradient_checkpointing
    tokens = rows_at_once * length
    inside = 2 * tokens * (16 * text.hidden_size + 4 * text.intermediate_size)  # of one layer, in 16 bits
    edges = 2 * tokens * text.hidden_size * text.num_hidden_layers
    activations = edges + inside if again else inside * text.num_hidden_layers
    activations += 3 * 4 * rows_at_once * answer * text.vocab_size  # scores over the vocabulary, in float32
    activations += 2 * largest  # one layer's weights, gathered or unpacked in 16 bits
    states = STATE * trained
    allowance = FRAGMENTS * (weights + states) / devices + CONTEXT
    decoder = parts["decoder"]
    products = (2 + 2 + 2 * again) * decoder + 2 * (decoder if adapted is None else trained)
    seconds = rows * length * products / (PEAK[gpu] * used * devices)
    return Cost(
        parameters=counted.parameters,
        trained=trained,
        weights=round(weights / devices / GIB, 1),
        states=round(states / devices / GIB, 1),
        activations=round(activations / GIB, 1),
        total=round((weights / devices + states / devices + activations + allowance) / GIB, 1),
        hours=round(seconds / 3600, 1),
    )


def adapter_weights(config: Any, lora: Lora) -> int:
    """How many weights adapters have: rank times rows and columns of each layer that they stand on."""
    model = _built(config)
    wanted = re.compile(lora.targets or decoder_layers(model))
    layers = [each for name, each in model.named_modules() if isinstance(each, nn.Linear) and wanted.fullmatch(name)]
    return sum(lora.rank * (layer.in_features + layer.out_features) for layer in layers)


def _built(config: Any) -> Any:
    """The model without storage."""
    kind = AutoModelForImageTextToText if getattr(config, "vision_config", None) else AutoModelForCausalLM
    with torch.device("meta"):
        return kind.from_config(config)


def _sizes(config: Any) -> tuple[dict[str, int], int]:
    """The weights of each tensor by name, and of the largest linear layer."""
    model = _built(config)
    largest = max(module.weight.numel() for module in model.modules() if isinstance(module, nn.Linear))
    return {name: weight.numel() for name, weight in model.named_parameters()}, largest
