"""Recipes: what a published training did, with its source and what of it is not known; what a training takes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PretrainedConfig

from vjudge.models.memory import CONTEXT, FRAGMENTS, GIB, configuration, need
from vjudge.training.collate import SHAPES
from vjudge.training.lora import PARTS, Lora, as_lora, decoder_layers, part_of

SCHEDULES = ("cosine", "linear", "constant_with_warmup")
ALLOWED = ("length", "scores", "leakage")
FREE = ("checkpoint_every", "log_every", "workers", "allow", "name", "source", "unknown")
"""What may change where a training goes on: no weight depends on it."""


@dataclass(frozen=True)
class Recipe:
    """How to train: everything that is the same from run to run.

    Args:
        lr: peak learning rate, reached after `warmup`: a share of the steps below 1, or a number of steps.
        batch_size: examples an optimiser step, over all devices and accumulated passes.
        epochs: passes over the collection; `steps`, where given, counts instead.
        schedule: one of `SCHEDULES`.
        weight_decay: of matrices, not of biases and norms.
        betas, clip, optimizer: AdamW's, the largest norm of a gradient, and a name of `TrainingArguments.optim`.
        max_length: the most tokens of an example, image tokens included; None takes the model's own limit.
        freeze: which of "tower", "projector", "decoder" stay as they are.
        projector_lr, tower_lr: rates of their own for these parts; None for `lr`.
        group_by_length: whether examples of like length share a batch.
        gradient_checkpointing: whether activations are computed again in the backward pass, to save memory.
        shape: of the answer, one of `vjudge.training.collate.SHAPES`; "feedback" as published.
        rows_at_once: rows a device computes together, the rest of a batch accumulated; None takes the device's share.
        evaluate_every, checkpoint_every: optimiser steps in between; None makes ten in all. Two checkpoints are kept.
        log_every: optimiser steps between entries of the log.
        workers: processes that prepare batches.
        allow: what not to refuse the collection for: "length", "scores", "leakage".
        source, unknown: where it is published, and what is not, or was chosen here.

    Raises:
        ValueError: a setting is unsound; all of them are named.

    >>> RECIPES["llava-critic"].lr
    2e-06
    """

    name: str
    lr: float
    batch_size: int
    epochs: float = 1.0
    steps: int | None = None
    schedule: str = "cosine"
    warmup: float = 0.03
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = 1.0
    max_length: int | None = None
    freeze: tuple[str, ...] = ("tower",)
    projector_lr: float | None = None
    tower_lr: float | None = None
    group_by_length: bool = True
    gradient_checkpointing: bool = False
    optimizer: str = "adamw_torch"
    shape: str = "feedback"
    rows_at_once: int | None = None
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    log_every: int = 10
    workers: int = 0
    allow: tuple[str, ...] = ()
    source: str = ""
    unknown: str = ""

    def __post_init__(self) -> None:
        for field in ("freeze", "betas", "allow"):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        positive = [name for name in ("lr", "epochs", "clip") if not getattr(self, name) > 0]
        faults = [f"{name}={getattr(self, name)!r}: use a number above 0" for name in positive]
        counts = ("batch_size", "rows_at_once", "evaluate_every", "checkpoint_every", "log_every", "steps")
        for name, least in {**dict.fromkeys(counts, 1), "workers": 0, "warmup": 0}.items():
            value = getattr(self, name)
            faults += [] if value is None or value >= least else [f"{name}={value!r}: use a number from {least}"]
        choices = {"schedule": SCHEDULES, "freeze": PARTS, "shape": SHAPES, "allow": ALLOWED}
        for name, names in choices.items():
            value = getattr(self, name)
            fine = {value} <= set(names) if isinstance(value, str) else set(value) <= set(names)
            faults += [] if fine else [f"{name}={value!r}: use {', '.join(names)}"]
        if faults:
            raise ValueError(f"recipe {self.name!r}: " + "; ".join(faults))

    def identity(self) -> dict[str, Any]:
        """The settings that decide which weights come out, for a manifest."""
        return {name: value for name, value in asdict(self).items() if name not in FREE}

    def count_steps(self, n_rows: int) -> tuple[int, int]:
        """How many optimiser steps so many rows take, and how many of them are warm-up."""
        steps = self.steps or max(1, round(self.epochs * -(-n_rows // self.batch_size)))
        return steps, int(self.warmup) if self.warmup >= 1 else math.ceil(self.warmup * steps)


_VISION = Recipe(
    name="prometheus-vision",
    lr=2e-5,
    batch_size=128,
    max_length=2048,
    gradient_checkpointing=True,
    source="haotian-liu/LLaVA scripts/v1_5/finetune.sh, the code base that kaistAI/prometheus-vision README.md names"
    " (16 a device on 8 devices there)",
    unknown="the rate and batch of Prometheus-Vision's own judge stage: its README prints the command that trains the"
    " projector, not the one that made the judge",
)
_RECIPES = (
    _VISION,
    replace(
        _VISION,
        name="prometheus-vision-lora",
        lr=2e-4,
        projector_lr=2e-5,
        source="haotian-liu/LLaVA scripts/v1_5/finetune_lora.sh: rank 128, alpha 256",
        unknown="no adapter of Prometheus-Vision is published",
    ),
    Recipe(
        name="llava-critic",
        lr=2e-6,
        batch_size=32,
        freeze=(),
        gradient_checkpointing=True,
        source="LLaVA-Critic (arXiv 2410.02712): lr 2e-6, batch 32, one epoch, cross-entropy on score and reason",
        unknown="schedule, warm-up and weight decay; taken from LLaVA's code base. That the tower trains too is"
        " LLaVA-OneVision's way (belief)",
    ),
    Recipe(
        name="scenes",
        lr=1.5e-3,
        batch_size=16,
        steps=600,
        warmup=50,
        weight_decay=0.05,
        betas=(0.9, 0.98),
        source="this project: the judge stage of tests/assets/tiny.py, for the embedded model on Scenes",
    ),
)
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _RECIPES}
"""The recipes by name."""


def recipe_of(recipe: str | Recipe, **changes: Any) -> Recipe:
    """A recipe by name or as it is, with changes to its fields, where None is no change.

    Raises:
        ValueError: an unknown recipe or field, or an unsound value.

    >>> recipe_of("scenes", steps=20).steps
    20
    """
    base = RECIPES.get(recipe) if isinstance(recipe, str) else recipe
    if base is None:
        raise ValueError(f"recipe {recipe!r} is unknown; use one of {', '.join(RECIPES)}, or a Recipe")
    names = {field.name for field in fields(Recipe)}
    if wrong := sorted(set(changes) - names):
        raise ValueError(f"{', '.join(wrong)}: no such setting of a recipe; there are {', '.join(sorted(names))}")
    return replace(base, **{name: value for name, value in changes.items() if value is not None})


STATE = 16  # bytes of a weight that trains: itself, its gradient and AdamW's two moments, each in float32
PEAK = {"T4": 65e12, "A100": 312e12, "H100": 989e12}
"""Products a second in 16 bits, by GPU. Source: NVIDIA's data sheets, dense, tensor cores."""
USED = 0.35  # the share of it that a training reaches: an assumption, of what well-tuned trainings of this size report
ANSWER = 150  # tokens of a row that carry loss


def training_cost(
    base: str | Path | PretrainedConfig,
    *,
    lora: bool | Mapping[str, Any] | Lora | None = None,
    quantization: str | None = None,
    gpu: str = "A100",
    devices: int = 1,
    length: int = 1_500,
    rows: int = 150_000,
) -> dict[str, float]:
    """Compute, not measure, the memory and the hours of a training with a frozen tower from a configuration alone.

    Precisions are those of `fine_tune`. Over several devices weights and optimiser are taken as spread (FSDP), and
    activations as computed again in the backward pass. A weight costs 2 products a token forward, 2 again, 2 for the
    states before it and 2 for its own gradient if it trains. Attention's own products (below a tenth at these lengths),
    the tower and what the devices tell each other are left out.

    Args:
        base: as for `fine_tune`, of which the config.json is read; or a transformers configuration.
        lora, quantization: as for `fine_tune`.
        gpu, devices: a name in `PEAK`, and how many of them.
        length: tokens of a row, image and answer included; Perception-Collection's mean is near 1,500 (belief).
        rows: of the collection.

    Returns:
        parameters of the whole model; trained, how many learn; GiB on each device of weights that stay, of states (what
        learns, with its optimiser) and of activations; total with the device's own half GiB and 5 % for fragments;
        hours for one pass over the rows, at `USED` of the device's peak.

    Raises:
        ValueError: an unknown GPU, or nothing is known of the base.
    """
    if gpu not in PEAK:
        raise ValueError(f"gpu={gpu!r}: use one of {', '.join(PEAK)}")
    config, adapters = configuration(base), as_lora(lora)
    kind = AutoModelForImageTextToText if getattr(config, "vision_config", None) else AutoModelForCausalLM
    with torch.device("meta"):
        model = kind.from_config(config)
    parts: Counter[str] = Counter()
    for name, weight in model.named_parameters():
        parts[part_of(name)] += weight.numel()
    linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    memory = need(config, dtype="float32" if adapters is None else "bfloat16", quantization=quantization)
    if adapters is None:
        trained = parts["projector"] + parts["decoder"]
        copies = 2 * trained if devices == 1 else 0  # in 16 bits, for the products; spread weights are gathered in them
        weights = 4 * (memory.parameters - trained) + copies
    else:
        places = re.compile(adapters.targets or decoder_layers(model))
        layers = [layer for name, layer in linear.items() if places.fullmatch(name)]
        trained = parts["projector"] + sum(adapters.rank * (layer.in_features + layer.out_features) for layer in layers)
        weights = memory.weights
    text = config.get_text_config()
    activations = 2 * length * (16 * text.hidden_size + 4 * text.intermediate_size)  # of one layer, in 16 bits
    activations += 2 * length * text.hidden_size * text.num_hidden_layers  # between the layers
    activations += 3 * 4 * ANSWER * text.vocab_size  # scores over the vocabulary, in float32
    activations += 2 * max(layer.weight.numel() for layer in linear.values())  # one layer, gathered in 16 bits
    products = 6 * parts["decoder"] + 2 * (parts["decoder"] if adapters is None else trained)
    sizes = {"weights": weights / devices, "states": STATE * trained / devices, "activations": activations}
    sizes["total"] = (1 + FRAGMENTS) * (weights + STATE * trained) / devices + CONTEXT + activations
    return {
        "parameters": memory.parameters,
        "trained": trained,
        **{name: round(size / GIB, 1) for name, size in sizes.items()},
        "hours": round(rows * length * products / (PEAK[gpu] * USED * devices) / 3600, 1),
    }
