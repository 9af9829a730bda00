"""Recipes and adapters: what a published training did, with its source."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from vjudge.training.collate import SHAPES

PARTS = ("tower", "projector", "decoder")

SCHEDULES, ALLOWED = ("cosine", "linear", "constant_with_warmup"), ("length", "scores", "leakage")
CHOICES = {"schedule": SCHEDULES, "freeze": PARTS, "shape": SHAPES, "allow": ALLOWED}
POSITIVE = "lr epochs clip batch_size steps rows_at_once evaluate_every checkpoint_every log_every".split()
FREE = ("checkpoint_every", "log_every", "workers", "allow", "name", "source")
"""What may change where a training goes on: no weight depends on it."""


@dataclass(frozen=True)
class Recipe:
    """How to train: everything that is the same from run to run; ValueError with every unsound setting.

    >>> RECIPES["llava-critic"].lr
    2e-06
    """

    name: str
    lr: float  # at its peak
    batch_size: int  # examples an optimiser step, over all devices and accumulated passes
    epochs: float = 1.0  # passes over the collection
    steps: int | None = None  # counts instead of epochs
    schedule: str = "cosine"  # or "linear", "constant_with_warmup"
    warmup: float = 0.03  # a share of the steps below 1, or a number of steps
    weight_decay: float = 0.0  # of matrices, not of biases and norms
    betas: tuple[float, float] = (0.9, 0.999)  # AdamW's
    clip: float = 1.0  # the largest norm of a gradient
    max_length: int | None = None  # the most tokens of an example, image tokens included; None: the model's own limit
    freeze: tuple[str, ...] = ("tower",)  # which of "tower", "projector", "decoder" stay as they are
    projector_lr: float | None = None  # None: `lr`
    tower_lr: float | None = None
    gradient_checkpointing: bool = False  # computes activations again in the backward pass, to save memory
    shape: str = "feedback"  # of the answer, one of `vjudge.training.collate.SHAPES`; "feedback" as published
    rows_at_once: int | None = None  # that a device computes together, the rest accumulated; None: the device's share
    evaluate_every: int | None = None  # optimiser steps; None: ten in all
    checkpoint_every: int | None = None  # optimiser steps; None: ten in all. Two are kept
    log_every: int = 10  # optimiser steps
    workers: int = 0  # processes that prepare batches
    allow: tuple[str, ...] = ()  # what not to refuse the collection for: "length", "scores", "leakage"
    source: str = ""  # where it is published, and what of it is not

    def __post_init__(self) -> None:
        for name in ("freeze", "betas", "allow"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        faults = []
        for name, value in vars(self).items():
            if name in POSITIVE and value is not None and not value > 0:
                faults.append(f"{name}={value!r}: use a number above 0")
            if name in ("warmup", "workers") and not value >= 0:
                faults.append(f"{name}={value!r}: use a number from 0")
            if name in CHOICES and not set(value if isinstance(value, tuple) else [value]) <= set(CHOICES[name]):
                faults.append(f"{name}={value!r}: use {', '.join(CHOICES[name])}")
        if faults:
            raise ValueError(f"recipe {self.name!r}: " + "; ".join(faults))

    def identity(self) -> dict[str, Any]:
        """The settings that decide which weights come out, for a manifest."""
        return {name: value for name, value in asdict(self).items() if name not in FREE}

    def count_steps(self, n_rows: int) -> tuple[int, int]:
        """How many optimiser steps so many rows take, and how many of them are warm-up."""
        steps = self.steps or max(1, round(self.epochs * -(-n_rows // self.batch_size)))
        return steps, int(self.warmup) if self.warmup >= 1 else math.ceil(self.warmup * steps)


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters on the decoder's linear layers.

    Source: haotian-liu/LLaVA scripts/v1_5/finetune_lora.sh, and llava/train/train.py for the dropout.
    """

    rank: int = 128
    alpha: int = 256
    dropout: float = 0.05
    targets: str | None = None  # a regular expression over modules; None: the decoder's linear layers but the output
    merge: bool | None = None  # whether adapters go into the stored weights; None: unless the base is quantised


_VISION = Recipe(
    name="prometheus-vision",
    lr=2e-5,
    batch_size=128,
    max_length=2048,
    gradient_checkpointing=True,
    source="haotian-liu/LLaVA scripts/v1_5/finetune.sh, the code base that kaistAI/prometheus-vision README.md names"
    " (16 a device on 8 devices there). Not known: the rate and batch of Prometheus-Vision's own judge stage; its"
    " README prints the command that trains the projector, not the one that made the judge",
)
_LORA = replace(
    _VISION,
    name="prometheus-vision-lora",
    lr=2e-4,
    projector_lr=2e-5,
    source="haotian-liu/LLaVA scripts/v1_5/finetune_lora.sh: rank 128, alpha 256; Prometheus-Vision published none",
)
_CRITIC = Recipe(
    name="llava-critic",
    lr=2e-6,
    batch_size=32,
    freeze=(),
    gradient_checkpointing=True,
    source="LLaVA-Critic (arXiv 2410.02712): lr 2e-6, batch 32, one epoch, cross-entropy on score and reason. Not"
    " known: schedule, warm-up and weight decay, taken from LLaVA's code base; that the tower trains too is believed of"
    " LLaVA-OneVision",
)
_SCENES = Recipe(
    name="scenes",
    lr=1.5e-3,
    batch_size=16,
    steps=600,
    warmup=50,
    weight_decay=0.05,
    betas=(0.9, 0.98),
    source="this project: the judge stage of tests/assets/tiny.py, for the embedded model on Scenes",
)
RECIPES = {recipe.name: recipe for recipe in (_VISION, _LORA, _CRITIC, _SCENES)}
"""The recipes by name."""
