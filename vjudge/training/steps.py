"""How a recipe's steps are taken here: transformers' arguments for them, and a bar over them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainingArguments

from vjudge.training import lora as parts
from vjudge.training.lora import Lora
from vjudge.training.recipes import Recipe

PATIENCE = 6 * 3600  # seconds a process waits for the others, such as for one that grades more or writes 13B weights


def arguments_of(
    recipe: Recipe,
    out: Path,
    device: str,
    kind: str,
    lora: Lora | None,
    rows_at_once: int | None,
    n_rows: int,
    evaluate_every: int | None,
    checkpoint_every: int | None,
    evaluated: bool,
    log_every: int,
    workers: int,
    seed: int,
    report_to: Sequence[str],
    model: Any,
) -> TrainingArguments:
    """transformers' arguments for a recipe on this machine.

    Raises:
        ValueError: the batch can't be divided among processes and rows at once, or accelerate is missing.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    at_once = min(rows_at_once or recipe.batch_size // processes or 1, recipe.batch_size)
    passes, rest = divmod(recipe.batch_size, at_once * processes)
    if rest:
        raise ValueError(
            f"batch_size={recipe.batch_size} is no multiple of {processes} process(es) times rows_at_once={at_once}"
        )
    steps = recipe.steps or max(1, round(recipe.epochs * -(-n_rows // recipe.batch_size)))
    tenth = max(1, -(-steps // 10))
    try:
        arguments = TrainingArguments(
            output_dir=str(out / "checkpoints"),
            per_device_train_batch_size=at_once,
            gradient_accumulation_steps=passes,
            max_steps=steps,
            learning_rate=recipe.lr,
            lr_scheduler_type=recipe.schedule,
            warmup_steps=recipe.warmup,
            weight_decay=recipe.weight_decay,
            adam_beta1=recipe.betas[0],
            adam_beta2=recipe.betas[1],
            max_grad_norm=recipe.clip,
            optim=recipe.optimizer,
            bf16=kind == "bfloat16",
            fp16=kind == "float16",
            use_cpu=device == "cpu" and not os.environ.get("ACCELERATE_USE_FSDP"),
            seed=seed,
            data_seed=seed,
            logging_steps=log_every,
            logging_nan_inf_filter=False,
            eval_strategy="steps" if evaluated else "no",
            eval_steps=evaluate_every or tenth,
            save_steps=checkpoint_every or tenth,
            save_total_limit=2,
            dataloader_num_workers=workers,
            dataloader_drop_last=False,
            remove_unused_columns=False,
            disable_tqdm=True,
            report_to=list(report_to) or "none",
            ddp_timeout=PATIENCE,
            ddp_find_unused_parameters="tower" not in recipe.freeze and lora is None,
            accelerator_config={"even_batches": True, "split_batches": False},
        )
    except ImportError as error:
        raise ValueError(f"fine-tuning needs accelerate: {parts.EXTRA}") from error
    arguments._n_gpu = min(1, arguments.n_gpu)  # one process, one device: more take a launcher
    return arguments


def check_spread(*, validated: bool, adapted: bool) -> None:
    """Refuse what can't be done while no process holds all weights: under FSDP and DeepSpeed's ZeRO-3.

    Raises:
        ValueError: before any work, with what to do instead.
    """
    fsdp = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    zero = os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true" and _zero_stage() == 3
    if not (fsdp or zero):
        return
    name = "FSDP" if fsdp else "ZeRO-3"
    if validated:
        raise ValueError(
            f"validation= can't be graded while {name} spreads the weights over processes: leave it out and grade the"
            " finished judge (load_judge(out / 'judge').grade(...)), or train under DDP or ZeRO-2, which grade"
        )
    if adapted:
        raise ValueError(
            f"lora= is not trained or stored soundly while {name} spreads the weights (the base's precision and the"
            " adapters' differ): train adapters under DDP (launch/ddp.yaml), by quantization='4bit' where the base"
            " does not fit one device"
        )


def _zero_stage() -> int:
    """DeepSpeed's stage, as accelerate's launcher passes it on: by itself, or in DeepSpeed's own file."""
    file = os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "")
    if file and Path(file).is_file():
        return int(json.loads(Path(file).read_text(encoding="utf-8")).get("zero_optimization", {}).get("stage", 0))
    return int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))  # 2 is accelerate's own default


class LastLog(TrainerCallback):
    """The last step stands in the log, whatever its number."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_log |= state.global_step >= state.max_steps


class Bar(TrainerCallback):
    """A bar over the steps."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        from tqdm.auto import tqdm

        self.bar = tqdm(total=state.max_steps, initial=state.global_step, desc="fine-tuning", unit="step")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.update()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.bar.set_postfix({name: f"{logs[name]:.3g}" for name in ("loss", "eval_pearson") if name in (logs or {})})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.close()
