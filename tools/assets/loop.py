"""The training loop: stages of steps that resume exactly where a kill left them.

A stage's batch for a step depends on the seed and the step alone, never on what was drawn before, so that a resumed
run sees the same batches as an unbroken one. A checkpoint holds weights, optimiser and the position; it is written
aside and renamed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils.data
from torch import nn

CHECKPOINT = "checkpoint.pt"
LOG = "training_log.jsonl"


@dataclass(frozen=True)
class Stage:
    """One stage of training.

    Args:
        name: its name in the log.
        steps: how many optimiser steps.
        lr: peak learning rate.
        batch: step -> batch; depends on the step alone, so that it can be made ahead in another process.
        loss: batch -> (loss, numbers for the log).
        parameters: what is trained; all else stays as it is.
        warmup: steps of linear warm-up.
        decay: share of the steps, at the end, over which the rate falls linearly to `floor` times the peak.
        floor: see `decay`.
    """

    name: str
    steps: int
    lr: float
    batch: Callable[[int], Any]
    loss: Callable[[Any], tuple[torch.Tensor, dict[str, float]]]
    parameters: Sequence[nn.Parameter]
    warmup: int = 50
    decay: float = 0.5
    floor: float = 0.02

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        left = (self.steps - step) / max(1, self.steps * self.decay)
        return self.lr * (self.floor + (1 - self.floor) * min(1.0, left))


class Log:
    """An append-only log of one JSON object a line, truncated to what a checkpoint knows when a run resumes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOG

    def rewind(self, n_lines: int) -> None:
        """Keep the first `n_lines` lines."""
        lines = (
            self.path.read_text(encoding="utf-8").splitlines(keepends=True)
            if self.path.exists()
            else []
        )
        self.path.write_text("".join(lines[:n_lines]), encoding="utf-8")

    def write(self, entry: dict[str, Any]) -> None:
        """Append one entry."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        print(
            " ".join(
                f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in entry.items()
            ),
            flush=True,
        )


def train(
    module: nn.Module,
    stages: Sequence[Stage],
    folder: Path,
    *,
    betas: tuple[float, float] = (0.9, 0.98),
    weight_decay: float = 0.05,
    clip: float = 1.0,
    log_every: int = 50,
    checkpoint_every: int = 200,
    precision: str = "float32",
    workers: int = 1,
    after_stage: Callable[[str], None] | None = None,
) -> None:
    """Run the stages in order, resuming from the folder's checkpoint if there is one.

    Args:
        module: holds every parameter and buffer that the stages use; what a checkpoint saves.
        stages: in order.
        folder: gets `checkpoint.pt` and `training_log.jsonl`.
        betas, weight_decay: AdamW's.
        clip: the largest norm of the gradient.
        log_every, checkpoint_every: in steps.
        precision: "float32", or "bfloat16" to compute products in it (weights stay float32).
        workers: processes that make batches ahead; 0 makes them in this one.
        after_stage: called with the stage's name once it is done (again if the run was cut off before its checkpoint).

    Raises:
        FloatingPointError: a loss is not finite; the last checkpoint stays as it was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, log = folder / CHECKPOINT, Log(folder)
    state: dict[str, Any] = {"stage": 0, "step": 0, "lines": 0, "seconds": 0.0, "optimizer": None}
    if path.exists():
        state = torch.load(path, weights_only=True)
        module.load_state_dict(state["module"])
    log.rewind(state["lines"])
    lines, began = state["lines"], time.monotonic() - state["seconds"]
    for number, stage in enumerate(stages):
        if number < state["stage"]:
            continue
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        for parameter in stage.parameters:
            parameter.requires_grad_(True)
        optimizer = torch.optim.AdamW(
            _groups(stage.parameters, weight_decay), lr=stage.lr, betas=betas, fused=True
        )
        resumed = number == state["stage"]
        if resumed and state["optimizer"] is not None:
            optimizer.load_state_dict(state["optimizer"])
        totals: dict[str, list[float]] = state.get("totals", {}) if resumed else {}
        first = state["step"] if resumed else 0
        for step, batch in enumerate(_batches(stage, first, workers), start=first):
            for group in optimizer.param_groups:
                group["lr"] = stage.rate(step)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
                loss, numbers = stage.loss(batch)
            if not math.isfinite(loss.item()):
                raise FloatingPointError(
                    f"stage {stage.name}, step {step}: the loss is {loss.item()}"
                )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(stage.parameters, clip)
            optimizer.step()
            for name, value in {"loss": loss.item(), **numbers}.items():
                totals.setdefault(name, []).append(value)
            done = step + 1
            if done % log_every == 0 or done == stage.steps:
                means = {name: sum(values) / len(values) for name, values in totals.items()}
                log.write(
                    {
                        "stage": stage.name,
                        "step": done,
                        "seconds": round(time.monotonic() - began, 1),
                        **means,
                    }
                )
                totals, lines = {}, lines + 1
            if done % checkpoint_every == 0 and done < stage.steps:
                _save(
                    path, module, optimizer, number, done, lines, time.monotonic() - began, totals
                )
        if after_stage:
            after_stage(stage.name)
        _save(path, module, None, number + 1, 0, lines, time.monotonic() - began, {})


class _Steps(torch.utils.data.Dataset[Any]):
    def __init__(self, stage: Stage, first: int) -> None:
        self.stage, self.first = stage, first

    def __len__(self) -> int:
        return self.stage.steps - self.first

    def __getitem__(self, i: int) -> Any:
        return self.stage.batch(self.first + i)


def _batches(stage: Stage, first: int, workers: int) -> Iterator[Any]:
    """Yield the batches of a stage from step `first` on."""
    options: dict[str, Any] = {"prefetch_factor": 4} if workers else {}
    steps = _Steps(stage, first)
    yield from torch.utils.data.DataLoader(
        steps, batch_size=None, shuffle=False, num_workers=workers, **options
    )


def _groups(parameters: Sequence[nn.Parameter], weight_decay: float) -> Iterator[dict[str, Any]]:
    """Decay matrices, not biases and norms."""
    yield {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay}
    yield {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}


def _save(
    path: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    stage: int,
    step: int,
    lines: int,
    seconds: float,
    totals: dict[str, list[float]],
) -> None:
    state = {
        "module": module.state_dict(),
        "optimizer": optimizer.state_dict() if optimizer else None,
        "stage": stage,
        "step": step,
        "lines": lines,
        "seconds": seconds,
        "totals": totals,
    }
    aside = path.with_suffix(".part")
    torch.save(state, aside)
    aside.replace(path)
