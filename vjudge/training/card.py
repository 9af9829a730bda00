"""The model card of a fine-tuned judge: what it was made of, by which recipe, and what was measured on the way."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

import vjudge
from vjudge.prompts import Template
from vjudge.training.lora import Lora
from vjudge.training.recipes import Recipe


def card(
    out: Path,
    *,
    recipe: Recipe,
    lora: Lora | None,
    wording: Template,
    facts: Mapping[str, Any],
    entries: Sequence[Mapping[str, Any]],
) -> str:
    """Write a model card.

    Args:
        out: the training's folder; its name is the judge's.
        recipe, lora, wording: what was trained, and how.
        facts: base, rows, steps, loss, skipped, auc, ratio, shape.
        entries: the training's log.

    Returns:
        Markdown with the hub's header.
    """
    how = "in full" if lora is None else f"by adapters of rank {lora.rank} (alpha {lora.alpha}, dropout {lora.dropout})"
    frozen = ", ".join(recipe.freeze) or "nothing"
    length = f"{recipe.steps} steps" if recipe.steps else f"{recipe.epochs:g} epoch(s)"
    rate = f"learning rate {recipe.lr:g}, {recipe.schedule}, warm-up {recipe.warmup:g}"
    rate += f", batch {recipe.batch_size}, {length}"
    graded = [entry for entry in entries if "pearson" in entry]
    table = [
        f"| {entry['step']} | {_shown(entry['pearson'])} [{_shown(entry['low'])}, {_shown(entry['high'])}]"
        f" | {entry['parsed']:.1%} | {entry['n']} |"
        for entry in graded
    ]
    measured = "\n".join(["| step | Pearson, 95 % interval | readable | n |", "|---|---|---|---|", *table])
    balance = (
        "Probability that the better of two of its responses is the longer one (0.5 tells nothing):"
        f" {_shown(facts['auc'])}; its most frequent score is {facts['ratio']:.1f} times as frequent as its rarest."
    )
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}"
    return f"""---
tags: [vision-language-model-as-a-judge]
base_model: {facts["base"]}
---

# {out.name}: a judge fine-tuned with vjudge {vjudge.__version__}

    judge = vjudge.load_judge("{out.name}/judge")

Base: `{facts["base"]}`, trained {how}; frozen: {frozen}. Wording: `{wording.name}`; answer: {facts["shape"]}; the loss
is on the answer alone.

Recipe `{recipe.name}` ({rate}). Source: {recipe.source or "none"}. Not known from there: {recipe.unknown or "nothing"}.

Trained on {facts["rows"]:,} rows for {facts["steps"]:,} steps; mean loss {facts["loss"]:.4f}; rows left out because an
image failed: {facts["skipped"]}. {balance} {versions}.

## On the validation sample, while it trained

{measured if graded else "None was given."}
"""


def _shown(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.3f}"
