"""Recipes: how a judge is trained, as published, and which of them fits a base."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from vjudge.records import is_int_at_least

ANSWER_SHAPES = ("feedback", "score", "score-first")
"""What an answer holds: feedback then verdict (as published), the verdict alone, verdict first."""
PARTS = ("tower", "projector", "decoder")
"""The parts of a vision-language model; all of a language model is its decoder."""
WHOLE_NUMBERS = (
    "batch_size steps max_length rank rows_at_once evaluate_every checkpoint_every log_every"
).split()
MINIMA = {"epochs": 1e-6, "alpha": 1e-6} | dict.fromkeys(
    ("lr", "warmup", "weight_decay", "clip", "dropout"), 0.0
)
OPTIONS = {"freeze": PARTS, "allow": ("length", "scores", "leakage"), "shape": ANSWER_SHAPES}


@dataclass(frozen=True)
class Recipe:
    """How to train: everything that is the same from run to run.

    ValueError: an unknown shape, part or check.

    >>> RECIPES["llava-critic"].lr
    2e-06
    """

    lr: float  # at its peak
    batch_size: int  # examples an optimiser step, over all devices and accumulated passes
    epochs: float = 1.0  # passes over the collection
    steps: int | None = None  # counts instead of epochs
    schedule: str = "cosine"  # or another name in `transformers.SchedulerType`
    warmup: float = 0.03  # a share of the steps below 1, or a number of steps
    weight_decay: float = 0.0  # of matrices, not of biases and norms
    betas: tuple = (0.9, 0.999)  # AdamW's
    clip: float = 1.0  # the largest norm of a gradient
    max_length: int | None = None  # tokens of an example, images included; None: the model's limit
    freeze: tuple = ("tower",)  # which of `PARTS` stay as they are
    projector_lr: float | None = None  # None: `lr`
    rank: int = 128  # of adapters, where they are asked for, with `alpha` and `dropout`
    alpha: int = 256
    dropout: float = 0.05
    gradient_checkpointing: bool = False  # less memory for more computation
    shape: str = "feedback"  # of the answer, one of `SHAPES`
    rows_at_once: int | None = None  # computed together by a device; None: its share of a batch
    evaluate_every: int | None = None  # optimiser steps; None: ten times in all
    checkpoint_every: int | None = None  # optimiser steps; None: ten times in all; two are kept
    log_every: int = 10  # optimiser steps
    allow: tuple = ()  # checks that may fail: "length", "scores", "leakage"
    source: str = "own"  # where it is published, and what of it is not

    def __post_init__(self) -> None:
        for name, choices in OPTIONS.items():
            value = getattr(self, name)
            values = [value] if name == "shape" else value
            if not set(values) <= set(choices):
                raise ValueError(f"recipe: {name}={value!r}: use {', '.join(choices)}")
        for name in WHOLE_NUMBERS:
            value = getattr(self, name)
            if value is not None and not is_int_at_least(value, 1):
                raise ValueError(f"recipe: {name}={value!r}: use a whole number from 1")
        for name, minimum in MINIMA.items():
            value = getattr(self, name)
            if not isinstance(value, int | float) or not minimum <= value < math.inf:
                raise ValueError(f"recipe: {name}={value!r}: use a number from {minimum:g}")


@dataclass(frozen=True)
class Plan:
    """A training of which every option is settled."""

    base: str
    recipe: Recipe
    lora: dict | None = None  # options of adapters; None trains in full
    merge: bool | None = None  # whether adapters go into the stored weights
    quantization: str | None = None
    device: str = "cpu"
    precision: str = "float32"  # of products
    seed: int = 0


_LLAVA = Recipe(
    lr=2e-5,
    batch_size=128,
    max_length=2048,
    gradient_checkpointing=True,
    source="haotian-liu/LLaVA scripts/v1_5/finetune.sh; Prometheus-Vision names that code base,"
    " and not its judge stage's own rate and batch",
)
_QWEN = Recipe(
    lr=1e-5,
    batch_size=16,
    epochs=3,
    warmup=0.1,
    freeze=("tower", "projector"),
    gradient_checkpointing=True,
    source="hiyouga/LLaMA-Factory@3034206 examples/train_full/qwen2_5vl_full_sft.yaml: rate 1e-5,"
    " 2 examples a device, here as on eight devices; images are never cut, as by its cutoff_len",
)
RECIPES = {
    "prometheus-vision": _LLAVA,
    "prometheus-vision-lora": replace(
        _LLAVA,
        lr=2e-4,
        projector_lr=2e-5,
        source="haotian-liu/LLaVA scripts/v1_5/finetune_lora.sh: rank 128, alpha 256; the dropout"
        " is its train.py's; Prometheus-Vision published none",
    ),
    "llava-critic": Recipe(
        lr=2e-6,
        batch_size=32,
        freeze=(),
        gradient_checkpointing=True,
        source="LLaVA-Critic, arXiv 2410.02712; schedule, warm-up and decay are LLaVA's, that the"
        " tower trains OneVision's",
    ),
    "chat": _QWEN,
    "chat-lora": replace(
        _QWEN,
        lr=1e-4,
        batch_size=8,
        rank=8,
        alpha=16,
        dropout=0.0,
        source="hiyouga/LLaMA-Factory@85b0f31 examples/train_lora/qwen2_5vl_lora_sft.yaml: rate"
        " 1e-4, batch 8, rank 8; alpha and dropout are that project's defaults",
    ),
    "scenes": Recipe(
        lr=1.5e-3,
        batch_size=16,
        steps=600,
        warmup=50,
        weight_decay=0.05,
        betas=(0.9, 0.98),
        source="this project: the judge stage of tools/assets/tiny.py, for the embedded model",
    ),
}
"""The recipes by name: LLaVA's for its families and language models, Qwen2.5-VL's for chat ones."""


def recipe_of(
    recipe: str | Recipe | None, changes: Mapping, *, chat: bool, adapters: bool
) -> Recipe:
    """A recipe with changed fields; None takes the one for the kind of base and of training."""
    field_names = [field.name for field in fields(Recipe)]
    for name in changes:
        if name not in field_names:
            raise TypeError(
                f"fine_tune() got an unexpected keyword argument {name!r}: a recipe's fields are"
                f" {', '.join(field_names)}"
            )
    if recipe is None:
        recipe = "chat" if chat else "prometheus-vision"
        if adapters:
            recipe += "-lora"
    if not isinstance(recipe, Recipe):
        if str(recipe) not in RECIPES:
            names = ", ".join(RECIPES)
            raise ValueError(f"recipe {recipe!r} is unknown; use one of {names}, or a Recipe")
        recipe = RECIPES[recipe]
    return replace(recipe, **changes)
