"""What a training leaves behind: its log, checkpoints of what trains, how far its weights moved, and the model card."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

import vjudge
from vjudge.data import Problem

if TYPE_CHECKING:
    import pandas as pd

LOG = "training_log.jsonl"
LEFT_OUT = "left_out"  # what the log calls a row without which training went on
SAMPLE = 1 << 14  # weights of each tensor that are compared with those at the start
FEW, SHORT = 0.5, 1e-4  # a smaller share of weights that changed, or a smaller change by the norm, is hardly any
FALL = 0.98  # a loss that ends above this share of the one at the start did not fall


# The log


class RunLog:
    """An append-only log of one JSON object a line; what was written after a checkpoint is cut off when it is resumed.

    Args:
        path: its file.
        on_log: called with every entry, of a training that goes on first with those that it goes on from.
    """

    def __init__(self, path: Path, on_log: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.path, self.on_log, self.began = path, on_log, time.monotonic()

    def rewind(self, step: int) -> None:
        """Keep the entries up to a step, and go on counting seconds from the last of them."""
        entries = [entry for entry in self.entries() if entry["step"] <= step]
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text, encoding="utf-8")
        self.began = time.monotonic() - max((entry["seconds"] for entry in entries), default=0.0)
        for entry in entries if self.on_log is not None else ():
            self.on_log(entry)  # type: ignore[misc]

    def entries(self) -> list[dict[str, Any]]:
        """All entries so far."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        return [json.loads(line) for line in lines]

    def left_out(self) -> list[Problem]:
        """The rows that were left out so far."""
        return [Problem(**entry[LEFT_OUT]) for entry in self.entries() if LEFT_OUT in entry]

    def write(self, entry: dict[str, Any]) -> None:
        """Append an entry, with the seconds that the training took so far."""
        entry = {**entry, "seconds": round(time.monotonic() - self.began, 3)}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        if self.on_log is not None:
            self.on_log(entry)


def read_log(folder: str | Path) -> pd.DataFrame:
    """A training's log, a row for each entry.

    Args:
        folder: the training's `out`, or its log file.

    Returns:
        step, seconds, and of losses examples, loss, grad_norm, learning_rate, epoch, skipped; of evaluations pearson
        with low and high (95 %), parsed (share of readable verdicts), n. What an entry lacks is NaN.
    """
    import pandas as pd

    file = Path(folder)
    return pd.DataFrame(RunLog(file / LOG if file.is_dir() else file).entries())


def live_curve() -> Callable[[dict[str, Any]], None]:
    """What `fine_tune(on_log=...)` takes in a notebook: a figure under the cell that is drawn anew with every entry."""
    import pandas as pd
    from IPython.display import display

    from vjudge.plots import training_curve

    entries: list[dict[str, Any]] = []
    handle: Any = None

    def show(entry: dict[str, Any]) -> None:
        nonlocal handle
        entries.append(entry)
        figure = training_curve(pd.DataFrame(entries))
        if handle is None:
            handle = display(figure, display_id=True)
        else:
            handle.update(figure)

    return show


# Checkpoints


class OwnNames:
    """For a transformers `Trainer`: checkpoints of the weights that train, under the network's own names.

    transformers saves LLaVA's weights under the names of older classes, and its trainer then finds none of them when it
    resumes: it warns, and goes on with the optimiser of one training and the weights of another.
    """

    accelerator: Any
    model: Any
    args: Any

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if self.args.should_save:
            folder = Path(output_dir or str(self.args.output_dir))
            folder.mkdir(parents=True, exist_ok=True)
            network = self.accelerator.unwrap_model(self.model)
            save_weights(network, folder / "model.safetensors", {"format": "pt"}, state_dict)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        if load_result.unexpected_keys:
            raise ValueError(f"the checkpoint is of another model: it has {load_result.unexpected_keys[:3]}")


def plain_name(name: str) -> str:
    """A weight's name without what FSDP adds to it."""
    return name.replace("_fsdp_wrapped_module.", "")


def save_weights(
    network: nn.Module, file: Path, metadata: dict[str, str], state: Mapping[str, torch.Tensor] | None = None
) -> None:
    """Write the weights that train as safetensors, aside first and then renamed.

    Args:
        state: all weights, where those of `network` are spread over processes.
    """
    names = [plain_name(name) for name, weight in network.named_parameters() if weight.requires_grad]
    if state is None:
        state = dict(network.named_parameters())
    aside = file.with_suffix(".part")
    save_file({name: state[name].detach().contiguous().cpu() for name in names}, aside, metadata=metadata)
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


# What was learned


def weight_samples(network: nn.Module) -> dict[str, torch.Tensor]:
    """Evenly spaced values of each weight that trains, at most 16,384 of a tensor, for `movement`."""
    return {name: _sample(weight) for name, weight in network.named_parameters() if weight.requires_grad}


def movement(before: Mapping[str, torch.Tensor], after: nn.Module | Mapping[str, torch.Tensor]) -> dict[str, float]:
    """How far weights moved in a training.

    Args:
        before: `weight_samples` of the network before it, or whole weights by name.
        after: the network after it, or its weights by name.

    Returns:
        changed: the share of the weights that train that have another value; relative: the norm of their change
        divided by the norm that they had. NaN without weights.
    """
    state = dict(after.named_parameters()) if isinstance(after, nn.Module) else after
    count = changed = squares = start = 0.0
    for name, old in before.items():
        old = _sample(old)
        delta = _sample(state[name]) - old
        n = state[name].numel()
        count, changed = count + n, changed + n * float((delta != 0).float().mean())
        squares, start = squares + n * float(delta.square().mean()), start + n * float(old.square().mean())
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


def lesson_line(losses: Sequence[tuple[int, float]], *, warmup: int, moved: Mapping[str, float]) -> str | None:
    """A sentence about a training that taught nothing that shows; None of others.

    Args:
        losses: step and loss of the log's entries, in order.
        warmup: steps over which the rate rises.
        moved: from `movement`.
    """
    steps, values = (losses[-1][0] if losses else 0), [loss for _, loss in losses]
    tenth = max(1, len(values) // 10)
    first, last = (sum(part) / tenth if part else math.nan for part in (values[:tenth], values[-tenth:]))
    faults = []
    if steps <= warmup:
        faults.append(f"its {steps} step(s) lie in the warm-up of {warmup}")
    if len(values) < 2:
        faults.append(f"it has one loss, {first:.3f}, and no later one to compare")
    elif not last < FALL * first:
        faults.append(f"the loss was {first:.3f} at first and {last:.3f} at last")
    if line := movement_line(moved):
        faults.append(line)
    return f"nothing was learned that shows: {'; '.join(faults)}" if faults else None


def mean_loss(losses: Sequence[tuple[int, float]]) -> float:
    """The mean over all steps, of the step and loss of each entry."""
    spans = [(step - before, loss) for (before, _), (step, loss) in pairwise([(0, 0.0), *losses])]
    return sum(n * loss for n, loss in spans) / losses[-1][0] if losses else math.nan


def card(out: Path, *, recipe: Any, lora: Any, template: str, facts: Mapping[str, Any], entries: Sequence[Any]) -> str:
    """A model card: what a judge was made of, by which recipe, and what was measured on the way.

    Args:
        out: the training's folder; its name is the judge's.
        recipe, lora, template: what was trained, and how; the template's name.
        facts: base, rows, steps, loss, skipped, auc, ratio, changed, relative, lesson.
        entries: the training's log.

    Returns:
        Markdown with the hub's header.
    """

    def number(value: float) -> str:
        return "undefined" if math.isnan(value) else f"{value:.3f}"

    how = "in full" if lora is None else f"by adapters of rank {lora.rank} (alpha {lora.alpha}, dropout {lora.dropout})"
    length = f"{recipe.steps} steps" if recipe.steps else f"{recipe.epochs:g} epoch(s)"
    rate = f"learning rate {recipe.lr:g}, {recipe.schedule}, warm-up {recipe.warmup:g}"
    table = [
        f"| {entry['step']} | {number(entry['pearson'])} [{number(entry['low'])}, {number(entry['high'])}]"
        f" | {entry['parsed']:.1%} | {entry['n']} |"
        for entry in entries
        if "pearson" in entry
    ]
    graded = "\n".join(["| step | Pearson, 95 % interval | readable | n |", "|---|---|---|---|", *table])
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}"
    return f"""---
tags: [vision-language-model-as-a-judge]
base_model: {facts["base"]}
---

# {out.name}: a judge fine-tuned with vjudge {vjudge.__version__}

    judge = vjudge.load_judge("{out.name}/judge")

Base: `{facts["base"]}`, trained {how}; frozen: {", ".join(recipe.freeze) or "nothing"}. Wording: `{template}`; answer:
{recipe.shape}; the loss is on the answer alone.

Recipe `{recipe.name}` ({rate}, batch {recipe.batch_size}, {length}). Source: {recipe.source or "none"}. Not known from
there: {recipe.unknown or "nothing"}.

Trained on {facts["rows"]:,} rows for {facts["steps"]:,} steps; mean loss {facts["loss"]:.4f}; rows left out because an
image failed: {facts["skipped"]}. Of the weights that train {facts["changed"]:.1%} changed, by {facts["relative"]:.1e}
of their norm. {(facts["lesson"] or "").capitalize()}

Probability that the better of two of its responses is the longer one (0.5 tells nothing): {number(facts["auc"])}; its
most frequent score is {facts["ratio"]:.1f} times as frequent as its rarest. {versions}.

## On the validation sample, while it trained

{graded if table else "None was given."}
"""
