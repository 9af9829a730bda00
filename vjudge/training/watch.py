"""What a training leaves behind: checkpoints of what trains, how far its weights moved, and the model card."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import vjudge

SAMPLE = 1 << 14  # weights of each tensor that are compared with those at the start
FEW, SHORT = 0.5, 1e-4  # a smaller share of weights that changed, or a smaller change by the norm, is hardly any
FALL = 0.98  # a loss that ends above this share of the one at the start did not fall


class OwnNames:
    """For a transformers `Trainer`: checkpoints of the weights that train, under the network's own names, where
    transformers saves LLaVA's under those of older classes and its trainer finds none of them when it resumes."""

    accelerator: Any
    model: Any
    args: Any

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if self.args.should_save:
            folder = Path(output_dir or str(self.args.output_dir))
            folder.mkdir(parents=True, exist_ok=True)
            save_weights(self.accelerator.unwrap_model(self.model), folder / "model.safetensors", state_dict)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if model is not None:  # FSDP's own shards, and DeepSpeed's
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        else:
            load_weights(self.model, Path(resume_from_checkpoint) / "model.safetensors")


def save_weights(network: nn.Module, file: Path, state: Mapping[str, torch.Tensor] | None = None) -> None:
    """Write the weights that train, of `state` where those of `network` are spread over processes."""
    weights = {}
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            name = name.replace("_fsdp_wrapped_module.", "")  # what FSDP puts before the name of what it wraps
            weights[name] = (weight if state is None else state[name]).detach().contiguous().cpu()
    save_file(weights, file.with_suffix(".part"), {"format": "pt"})
    file.with_suffix(".part").replace(file)


def load_weights(network: nn.Module, file: Path) -> None:
    """Put such weights back."""
    if strays := network.load_state_dict(load_file(file), strict=False).unexpected_keys:
        raise ValueError(f"{file} is of another model: it has {strays[:3]}")


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end."""
    whole = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def weight_samples(network: nn.Module) -> dict[str, torch.Tensor]:
    """Evenly spaced values of each weight that trains, at most 16,384 of a tensor, for `movement`."""
    return {name: _sample(weight) for name, weight in network.named_parameters() if weight.requires_grad}


def movement(before: Mapping[str, torch.Tensor], after: nn.Module | Mapping[str, torch.Tensor]) -> dict[str, float]:
    """How far weights moved since their `weight_samples`: changed, the share that has another value, and relative, the
    norm of the change by the norm that they had."""
    state = dict(after.named_parameters()) if isinstance(after, nn.Module) else after
    count = changed = squares = start = 0.0
    for name, sample in before.items():
        old, new, n = _sample(sample), _sample(state[name]), state[name].numel()
        count, changed = count + n, changed + n * float((new != old).float().mean())
        squares, start = squares + n * float((new - old).square().mean()), start + n * float(old.square().mean())
    return {"changed": changed / count, "relative": math.sqrt(squares / start) if start else math.inf}


def _sample(weight: torch.Tensor) -> torch.Tensor:
    """Values of a tensor at evenly spaced places, on the CPU in float32."""
    flat = weight.detach().flatten()
    return flat[:: max(1, flat.numel() // SAMPLE)].to("cpu", torch.float32, copy=True)


def movement_line(moved: Mapping[str, float]) -> str | None:
    """A sentence about weights that hardly moved; None of others."""
    if moved["changed"] >= FEW and moved["relative"] >= SHORT:
        return None
    share, norm = f"{moved['changed']:.1%}", f"{moved['relative']:.1e}"
    return f"the weights hardly moved: {share} of them changed, by {norm} of their norm; raise lr or steps"


def outcome(
    entries: Sequence[Mapping[str, Any]], *, steps: int, warmup: int, moved: Mapping[str, float]
) -> dict[str, Any]:
    """What a training came to: steps, loss_first, loss_last, loss (the mean over all steps), changed, relative, and
    lesson, a sentence where nothing was learned that shows."""
    ends, losses = zip(*((entry["step"], entry["loss"]) for entry in entries if "loss" in entry), strict=True)
    tenth = max(1, len(losses) // 10)
    first, last = np.mean(losses[:tenth]), np.mean(losses[-tenth:])
    faults = [f"its {steps} step(s) lie in the warm-up of {warmup}"] if steps <= warmup else []
    if len(losses) < 2:
        faults.append(f"it has one loss, {first:.3f}, and no later one to compare")
    elif not last < FALL * first:
        faults.append(f"the loss was {first:.3f} at first and {last:.3f} at last")
    if line := movement_line(moved):
        faults.append(line)
    mean = sum(n * loss for n, loss in zip(np.diff(ends, prepend=0).tolist(), losses, strict=True)) / ends[-1]
    result = {"steps": steps, "loss_first": losses[0], "loss_last": losses[-1], "loss": mean, **moved}
    return {**result, "lesson": f"nothing was learned that shows: {'; '.join(faults)}" if faults else None}


def card(name: str, made: Mapping[str, Any], came: Mapping[str, Any]) -> str:
    """A model card in Markdown: what a judge was made of, and what came of it."""
    lines = "\n".join(f"| {what} | {value} |" for what, value in made.items() if value not in (None, "", ()))
    return f"""---
tags: [vision-language-model-as-a-judge]
base_model: {made["base"]}
---

# {name}: a judge fine-tuned with vjudge {vjudge.__version__}

{came["steps"]:,} steps, mean loss {came["loss"]:.4f}. Of the weights that train {came["changed"]:.1%} changed, by
{came["relative"]:.1e} of their norm. {came["lesson"] or ""}

The better of two responses that it was trained on is the longer one with probability {came["auc"]:.3f} (0.5 tells
nothing); the most frequent score is {came["ratio"]:.1f} times as frequent as the rarest.

| | |
|---|---|
{lines}
"""
