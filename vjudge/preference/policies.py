"""Train a policy with one of TRL's trainers: load it, choose what trains, resume, and store it.

The reference is the policy that a training starts from. Weights that train, and those that are
stored, are float32 whatever the precision of computation: at DPO's published rate of 5e-7 a step is
far smaller than bfloat16's spacing, and would be rounded away.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
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

__all__ = ["Make", "WeightPlan", "optimise", "trl"]
FIXED: dict = {  # training arguments that no caller changes
    "logging_steps": 1,
    "save_total_limit": 1,
    "report_to": [],
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
    "remove_unused_columns": False,
}
# Makes the trainer from the reference (None with adapters), the adapters' settings (None without),
# and the training arguments.
Make = Callable[[Any, Any, transformers.TrainingArguments], Any]


@dataclass
class WeightPlan:
    """Which weights of a policy train, and in which precision; see `vjudge.preference.train`.

    Raises:
        ValueError: quantised weights without adapters, or unknown modules.
    """

    freeze: Sequence[str]
    lora: Mapping | bool | None  # options of adapters; True becomes {}, False becomes None
    quantization: str | None
    dtype: str

    def __post_init__(self) -> None:
        self.freeze = list(self.freeze)
        if isinstance(self.lora, bool):
            self.lora = {} if self.lora else None
        if self.quantization and self.lora is None:
            raise ValueError("quantised weights can't train: give lora= too")
        if not set(self.freeze) <= set(PARTS):
            raise ValueError(f"freeze={self.freeze!r}: use {', '.join(PARTS)}")


def optimise(
    policy: str | Path,
    out: str | Path,
    file: str,
    plan: WeightPlan,
    *,
    config: Callable[..., transformers.TrainingArguments],
    build: Callable[[Judge], Make],
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    template: Template | None = None,
) -> dict:
    """Train a policy; a finished training in `out` is returned, not repeated.

    Args:
        policy, out: as in `vjudge.preference.train`.
        file: the name of the record in `out`.
        plan: which weights train.
        config: makes the trainer's arguments from `options`.
        build: checks the rows with the loaded policy, and returns what makes the trainer.
        settings: what the trained weights depend on beside the options, the plan and the policy.
        options: of the training, for `config`.
        template: the prompt template that the policy is loaded with.

    Returns:
        The record: settings, steps, and `log`, TRL's metrics by step.
    """
    # 1) return the record of a finished training
    out = Path(out).expanduser()
    policy = weights.whole_base(policy, out)
    start = models.fingerprint(models.locate(policy))
    settings = {"start": start, **settings, **asdict(plan), **options}
    record = weights.claim(out / file, settings, begin=False)
    if "log" in record:
        return record

    # 2) load the policy: in float32 if its own weights train; under adapters in the precision of
    #    computation
    device = placement.choose_device()
    precision = placement.choose_dtype(plan.dtype, device)
    stored = "float32" if plan.lora is None else str(precision).removeprefix("torch.")
    loaded = load_judge(policy, template=template, dtype=stored, quantization=plan.quantization)
    model: Any = loaded.engine.model  # type: ignore[attr-defined]
    make = build(loaded)
    reference, adapters = _prepared(model, plan)

    # 3) train
    arguments = config(
        str(out / "checkpoints"),
        use_cpu=device.type == "cpu",
        bf16=precision == torch.bfloat16,
        fp16=precision == torch.float16 and device.type == "cuda",
        **FIXED,
        **options,
    )
    trainer = _trained(partial(make, reference, adapters, arguments), out / file, settings)

    # 4) store the policy, and then the record that says it is finished
    network = trainer.model
    if adapters is not None:
        network = weights.merged(network, policy, out / "adapters", dtype=torch.float32)
    weights.write_checkpoint(network, model.folder, out)
    record["steps"] = trainer.state.global_step
    record["log"] = [entry for entry in trainer.state.log_history if "loss" in entry]
    replace_file(out / file, json.dumps(record, indent=1) + "\n")
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    return record


def _trained(make: Callable[[], Any], file: Path, settings: Mapping[str, Any]) -> Any:
    """Make the trainer and train, from the last checkpoint if there is one.

    Args:
        make: makes the trainer.
        file: the record, whose existence claims the folder for this training. If the training fails
            before its first checkpoint, a folder that it claimed anew is removed: a refused option
            must not stand in the way of the next call.
        settings: of the training, for the record.

    Returns:
        The trainer, after training.
    """
    is_new = not file.exists()
    weights.claim(file, settings)
    checkpoints = file.parent / "checkpoints"
    try:
        trainer = make()
        trainer.remove_callback(transformers.PrinterCallback)
        weights.train_in_float32(trainer.model)  # TRL makes adapters on quantised weights bfloat16
        trainer.train(resume_from_checkpoint=weights.last_checkpoint(checkpoints))
    except Exception:
        if is_new and weights.last_checkpoint(checkpoints) is None:
            shutil.rmtree(file.parent)
        raise
    return trainer


def _prepared(model: models.VisionLanguageModel, plan: WeightPlan) -> tuple[Any, Any]:
    """Prepare a model for training in place.

    Returns:
        The reference, a frozen copy of the model, and None; with adapters None and their settings,
        since the model without its adapters is the reference.
    """
    encode_pictures(model)
    model.model.train()
    if isinstance(plan.lora, Mapping):
        return None, weights.adapters_of(model.model, plan.freeze, plan.lora)
    weights.settle_weights(model, freeze=plan.freeze, lora=None)
    return copy.deepcopy(model.model).eval(), None
