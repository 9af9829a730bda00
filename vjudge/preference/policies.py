"""A policy that TRL trains: which of its weights train, in which precision, and what is stored.

The reference is the policy that a training starts from. Weights that train, and those that are
stored, are float32 whatever is computed in: at DPO's published rate of 5e-7 a step lies far below
bfloat16's grid, and would round away.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from vjudge import models
from vjudge.judging.judge import Judge
from vjudge.judging.loading import load_judge
from vjudge.judging.record import replace_file
from vjudge.models import placement
from vjudge.prompts import Template
from vjudge.training import weights
from vjudge.training.collate import encode_pictures
from vjudge.training.recipes import PARTS

try:
    import trl
except ImportError as error:
    raise ImportError(f"{error}: preference learning needs pip install 'vjudge[train]'") from error

__all__ = ["optimise", "trl"]
ALWAYS: dict = {
    "logging_steps": 1,
    "save_total_limit": 1,
    "report_to": [],
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
    "remove_unused_columns": False,
}


def optimise(
    policy: str | Path,
    out: str | Path,
    file: str,
    config: Callable[..., transformers.TrainingArguments],
    build: Callable[[Judge], Callable],
    settings: Mapping,
    options: Mapping,
    *,
    freeze: Sequence[str],
    lora: Mapping | bool | None,
    quantization: str | None,
    dtype: str,
    template: Template | None = None,
) -> dict:
    """Train a policy with one of TRL's trainers; what `out` holds already is not trained again.

    Args:
        policy, out, freeze, lora, quantization, dtype: as of `vjudge.preference.train`.
        file: the name of the record in `out`.
        config: the trainer's class of arguments, which `options` are given to.
        build: of the loaded policy: checks the rows and returns what makes the trainer, of the
            reference (None with adapters), the settings of adapters, and the arguments.
        settings: what the weights follow from beside options and start.
        template: a wording that the policy is loaded with.

    Returns:
        The record: settings, steps, and `log`, TRL's metrics by step.
    """
    # 1) what the folder holds already
    if quantization and lora is None:
        raise ValueError("quantised weights can't train: give lora= too")
    if not set(freeze) <= set(PARTS):
        raise ValueError(f"freeze={freeze!r}: use {', '.join(PARTS)}")
    lora = {} if lora is True else lora
    out = Path(out).expanduser()
    policy = weights.whole_base(policy, out)
    settings = {"start": models.fingerprint(models.locate(policy)), **settings}
    settings |= {"freeze": list(freeze), "lora": lora, "quantization": quantization}
    settings |= {"dtype": dtype, **options}
    record = weights.claim(out / file, settings, begin=False)
    if "log" in record:
        return record

    # 2) the policy; weights that train in full are read in float32
    device = placement.choose_device()
    precision = placement.choose_dtype(dtype, device)
    held = "float32" if lora is None else str(precision).removeprefix("torch.")
    loaded = load_judge(policy, template=template, dtype=held, quantization=quantization)
    model: Any = loaded.engine.model  # type: ignore[attr-defined]
    make = build(loaded)
    reference, adapters = _prepared(model, freeze, lora)

    # 3) train
    arguments = config(
        str(out / "checkpoints"),
        use_cpu=device.type == "cpu",
        bf16=precision == torch.bfloat16,
        fp16=precision == torch.float16 and device.type == "cuda",
        **ALWAYS,
        **options,
    )
    fresh = not (out / file).exists()
    weights.claim(out / file, settings)
    try:
        trainer = make(reference, adapters, arguments)
        trainer.remove_callback(transformers.PrinterCallback)
        weights.train_in_float32(trainer.model)  # TRL makes adapters on quantised weights bfloat16
        trainer.train(resume_from_checkpoint=weights.last_checkpoint(out / "checkpoints"))
    except Exception:  # a refused option must not stand in the way of the next call
        if fresh and weights.last_checkpoint(out / "checkpoints") is None:
            shutil.rmtree(out)
        raise

    # 4) store
    network = trainer.model
    if adapters is not None:
        network = weights.merged(network, policy, out / "adapters", dtype=torch.float32)
    weights.write_checkpoint(network, model.folder, out)
    record["steps"] = trainer.state.global_step
    record["log"] = [entry for entry in trainer.state.log_history if "loss" in entry]
    replace_file(out / file, json.dumps(record, indent=1) + "\n")
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    return record


def _prepared(model: models.VisionLanguageModel, freeze: Sequence, lora: Any) -> tuple:
    """The reference, which is computed in the same way, or the settings of adapters."""
    encode_pictures(model)
    model.model.train()
    if lora is not None:
        return None, weights.adapters_of(model.model, freeze, lora)
    weights.settle_weights(model, freeze=freeze, lora=None)
    return copy.deepcopy(model.model).eval(), None
