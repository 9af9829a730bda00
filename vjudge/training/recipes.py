"""Recipes: what a published training did, with its source and what of it is not known."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from vjudge.training.collate import SHAPES
from vjudge.training.lora import PARTS

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
        betas, clip: AdamW's, and the largest norm of a gradient.
        max_length: the most tokens of an example, image tokens included; None takes the model's own limit.
        freeze: which of "tower", "projector", "decoder" stay as they are.
        projector_lr, tower_lr: rates of their own for these parts; None for `lr`.
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
    gradient_checkpointing: bool = False
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
