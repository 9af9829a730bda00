"""Recipes: how a judge is trained, as published, and which recipe fits a base."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from vjudge.records import is_int_at_least

ANSWER_SHAPES = ("feedback", "score", "score-first")
"""What an answer holds: feedback then verdict (as published), the verdict alone, or the verdict and
then feedback."""
PARTS = ("tower", "projector", "decoder")
"""The parts of a vision-language model; a language model is a decoder as a whole."""
WHOLE_NUMBERS = (
    "batch_size steps max_length rank rows_at_once evaluate_every checkpoint_every log_every"
).split()
MINIMA = {"epochs": 1e-6, "alpha": 1e-6} | dict.fromkeys(
    ("lr", "warmup", "weight_decay", "clip", "dropout"), 0.0
)
ALLOWED_VALUES = {"freeze": PARTS, "allow": ("length", "scores", "leakage"), "shape": ANSWER_SHAPES}


@dataclass(frozen=True)
class Recipe:
    """How to train: all options that stay the same from one training to the next.

    Raises:
        ValueError: an unknown shape, part or check; a number of the wrong kind or out of range.

    >>> RECIPES["llava-critic"].lr
    2e-06
    """

    lr: float  # peak learning rate
    batch_size: int  # examples per optimiser step, over all devices and accumulated passes
    epochs: float = 1.0  # passes over the collection
    steps: int | None = None  # optimiser steps; None: as many as `epochs` take
    schedule: str = "cosine"  # or another name in `transformers.SchedulerType`
    warmup: float = 0.03  # below 1 a share of the steps, else a number of steps
    weight_decay: float = 0.0  # of matrices; biases and norms have none
    betas: tuple[float, float] = (0.9, 0.999)  # AdamW's
    clip: float = 1.0  # the largest norm of a gradient
    max_length: int | None = None  # tokens of an example, images included; None: the model's limit
    freeze: tuple[str, ...] = ("tower",)  # which of `PARTS` are not trained
    projector_lr: float | None = None  # peak learning rate of the projector; None: `lr`
    rank: int = 128  # of adapters, as are `alpha` and `dropout`
    alpha: int = 256
    dropout: float = 0.05
    gradient_checkpointing: bool = False  # less memory for more computation
    shape: str = "feedback"  # of the answer, one of `ANSWER_SHAPES`
    rows_at_once: int | None = None  # rows per forward pass of a device; None: all of its share
    evaluate_every: int | None = None  # optimiser steps; None: ten times in all
    checkpoint_every: int | None = None  # optimiser steps; None: ten times in all; two are kept
    log_every: int = 10  # optimiser steps
    allow: tuple[str, ...] = ()  # checks that may fail: "length", "scores", "leakage"
    source: str = "own"  # where the recipe is published, and which of its values are not

    def __post_init__(self) -> None:
        for name, choices in ALLOWED_VALUES.items():
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
    """The options of one training, with every default filled in."""

    base: str
    recipe: Recipe
    lora: dict | None = None  # options of adapters; None trains the weights themselves
    merge: bool | None = None  # whether adapters are merged into the stored weights
    quantization: str | None = None
    device: str = "cpu"
    precision: str = "float32"  # of matrix products
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
"""Name -> recipe: LLaVA's for its families and language models, Qwen2.5-VL's for chat models."""


def recipe_of(
    recipe: str | Recipe | None, changes: Mapping, *, chat: bool, adapters: bool
) -> Recipe:
    """Return a recipe with changed fields.

    Args:
        recipe: a name in `RECIPES`, a recipe, or None for the one that fits `chat` and `adapters`.
        changes: field -> value.
        chat: whether the base is a chat model.
        adapters: whether adapters are trained.

    Raises:
        TypeError: a change that is no field.
        ValueError: an unknown name, or a value that `Recipe` refuses.
    """
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
