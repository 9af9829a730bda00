"""What a training leaves behind: its log, checkpoints of what trains, how far its weights moved, and the model card."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import vjudge

if TYPE_CHECKING:
    import pandas as pd

LOG = "training_log.jsonl"
SAMPLE = 1 << 14  # weights of each tensor that are compared with those at the start
FEW, SHORT = 0.5, 1e-4  # a smaller share of weights that changed, or a smaller change by the norm, is hardly any
FALL = 0.98  # a loss that ends above this share of the one at the start did not fall


def read_log(folder: str | Path) -> pd.DataFrame:
    """A training's log, of its `out` or the file itself, a row for each entry.

    Returns:
        step, epoch, seconds, and of losses loss, grad_norm, learning_rate; of evaluations pearson with low and high
        (95 %), parsed (share of readable verdicts), n. What an entry lacks is NaN.
    """
    import pandas as pd

    file = Path(folder)
    text = (file / LOG if file.is_dir() else file).read_text(encoding="utf-8")
    return pd.DataFrame([json.loads(line) for line in text.splitlines()])


def live_curve() -> Callable[[dict[str, Any]], None]:
    """What `fine_tune(on_log=...)` takes in a notebook: a figure under the cell that is drawn anew with every entry."""
    import pandas as pd
    from IPython.display import display

    from vjudge.plots import training_curve

    entries: list[dict[str, Any]] = []
    handle = display(display_id=True)

    def show(entry: dict[str, Any]) -> None:
        entries.append(entry)
        handle.update(training_curve(pd.DataFrame(entries)))

    return show


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
    prefix = "_fsdp_wrapped_module."  # what FSDP puts before the name of what it wraps
    trained = {name.replace(prefix, ""): weight for name, weight in network.named_parameters() if weight.requires_grad}
    weights = {name: (weight if state is None else state[name]).detach() for name, weight in trained.items()}
    aside = file.with_suffix(".part")
    save_file({name: weight.contiguous().cpu() for name, weight in weights.items()}, aside, {"format": "pt"})
    aside.replace(file)


def load_weights(network: nn.Module, file: Path) -> None:
    """Put such weights back."""
    report = network.load_state_dict(load_file(file), strict=False)
    if report.unexpected_keys:
        raise ValueError(f"{file} is of another model: it has {report.unexpected_keys[:3]}")


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end."""
    whole = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def weight_samples(network: nn.Module) -> dict[str, torch.Tensor]:
    """Evenly spaced values of each weight that trains, at most 16,384 of a tensor, for `movement`."""
    return {name: _sample(weight) for name, weight in network.named_parameters() if weight.requires_grad}


def movement(before: Mapping[str, torch.Tensor], after: nn.Module | Mapping[str, torch.Tensor]) -> dict[str, float]:
    """How far weights moved since their `weight_samples`: changed, the share that has another value, and relative, the
    norm of the change by the norm that they had; NaN without weights."""
    state = dict(after.named_parameters()) if isinstance(after, nn.Module) else after
    count = changed = squares = start = 0.0
    for name, old in before.items():
        old, new, n = _sample(old), _sample(state[name]), state[name].numel()
        count, changed = count + n, changed + n * float((new != old).float().mean())
        squares, start = squares + n * float((new - old).square().mean()), start + n * float(old.square().mean())
    if not count:
        return {"changed": math.nan, "relative": math.nan}
    return {"changed": changed / count, "relative": math.sqrt(squares / start) if start else math.inf}


def _sample(weight: torch.Tensor) -> torch.Tensor:
    """Values of a tensor at evenly spaced places, on the CPU in float32."""
    flat = weight.detach().flatten()
    return flat[:: max(1, flat.numel() // SAMPLE)].to("cpu", torch.float32, copy=True)


def movement_line(moved: Mapping[str, float]) -> str | None:
    """A sentence about weights that hardly moved; None of others."""
    if moved["changed"] >= FEW and moved["relative"] >= SHORT:
        return None
    return (
        f"the weights hardly moved: {moved['changed']:.1%} of them changed, by {moved['relative']:.1e} of their norm;"
        " raise lr or steps"
    )


def outcome(
    entries: Sequence[Mapping[str, Any]], *, steps: int, warmup: int, moved: Mapping[str, float]
) -> dict[str, Any]:
    """What a training came to: steps, loss_first, loss_last, loss (the mean over all steps), changed, relative, and
    lesson, a sentence where nothing was learned that shows."""
    losses = [(entry["step"], entry["loss"]) for entry in entries if "loss" in entry]
    values = [loss for _, loss in losses]
    tenth = max(1, len(values) // 10)
    first, last = (sum(part) / tenth for part in (values[:tenth], values[-tenth:]))
    faults = []
    if steps <= warmup:
        faults.append(f"its {steps} step(s) lie in the warm-up of {warmup}")
    if len(values) < 2:
        faults.append(f"it has one loss, {first:.3f}, and no later one to compare")
    elif not last < FALL * first:
        faults.append(f"the loss was {first:.3f} at first and {last:.3f} at last")
    if line := movement_line(moved):
        faults.append(line)
    spans = [(step - before) * loss for (before, _), (step, loss) in pairwise([(0, 0.0), *losses])]
    ends = {"loss_first": values[0], "loss_last": values[-1], "loss": sum(spans) / losses[-1][0]}
    lesson = f"nothing was learned that shows: {'; '.join(faults)}" if faults else None
    return {"steps": steps, **ends, **moved, "lesson": lesson}


def card(name: str, *, recipe: Any, lora: Any, template: str, facts: Mapping[str, Any]) -> str:
    """A model card in Markdown: what a judge was made of, by which recipe, and what came of it."""
    how = "in full" if lora is None else f"by adapters of rank {lora.rank} (alpha {lora.alpha}, dropout {lora.dropout})"
    return f"""---
tags: [vision-language-model-as-a-judge]
base_model: {facts["base"]}
---

# {name}: a judge fine-tuned with vjudge {vjudge.__version__}

Base `{facts["base"]}`, trained {how}; frozen: {", ".join(recipe.freeze) or "nothing"}. Wording: `{template}`.
Recipe `{recipe.name}` (learning rate {recipe.lr:g}, {recipe.schedule}, warm-up {recipe.warmup:g}, batch
{recipe.batch_size}). Source: {recipe.source or "none"}. Not known from there: {recipe.unknown or "nothing"}.

Trained on {facts["rows"]:,} rows for {facts["steps"]:,} steps; mean loss {facts["loss"]:.4f}. Of the weights that train
{facts["changed"]:.1%} changed, by {facts["relative"]:.1e} of their norm. {(facts["lesson"] or "").capitalize()}
The better of two of its responses is the longer one with probability {facts["auc"]:.3f} (0.5 tells nothing); its most
frequent score is {facts["ratio"]:.1f} times as frequent as its rarest.
"""
