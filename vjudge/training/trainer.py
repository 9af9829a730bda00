"""transformers' Trainer for a judge: learning rates, validation, log, result."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    PreTrainedModel,
    Trainer,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from vjudge.judging.record import replace_file
from vjudge.metrics import correlate
from vjudge.models import VisionLanguageModel
from vjudge.training import weights
from vjudge.training.collate import Examples, answer_loss, encode_pictures, training_order
from vjudge.training.recipes import Plan

LOG = "training_log.jsonl"
BEST = "best.safetensors"
FALL = 0.98  # a loss counts as fallen where it ends below this share of its start


class LastStep(transformers.TrainerCallback):
    """Log the last step, whatever `log_every` is, so that the log ends where the training does."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Have the last step logged; transformers passes further arguments, unused here."""
        control.should_log = control.should_log or state.global_step >= state.max_steps


def lesson_of(first: float, last: float, n_losses: int) -> str | None:
    """Say what to change where the loss did not fall.

    Args:
        first, last: the loss at the start and at the end.
        n_losses: how many losses were logged.

    Returns:
        A sentence, or None where the loss fell.

    >>> lesson_of(11.6, 4.5, 2) is None
    True
    >>> lesson_of(2.0, 3.0, 2)
    'the loss rose from 2.000 to 3.000; lower lr, or raise warmup'
    """
    if n_losses < 2:
        return f"one step alone was logged, its loss {first:.3f}: whether it fell can't be told"
    # A rise or a fall of less than about 2 % counts as no change.
    if last * FALL > first:
        return f"the loss rose from {first:.3f} to {last:.3f}; lower lr, or raise warmup"
    if last >= FALL * first:
        return (
            f"nothing was learned that shows: the loss was {first:.3f} first, {last:.3f} last;"
            " raise lr or steps"
        )
    return None


def quality(pearson: float, parsed: float) -> float:
    """Rate weights: the correlation with the truth times the share of readable verdicts.

    Without a correlation (no verdict is readable, or all are the same) it is -1, the lowest.
    """
    return -1.0 if math.isnan(pearson) else pearson * parsed


class JudgeTrainer(weights.OwnCheckpoints, Trainer):
    """transformers' Trainer on `Examples`.

    Attributes:
        grade: a function that grades the validation rows and returns the run; None without them.

    Args:
        network: with the weights that train, or peft's network around it.
        arguments: transformers'.
        examples: of the collection.
        lengths: tokens per row.
        plan: the training's options.
        on_log: is called with every new entry of the log; or None.
    """

    model: Any
    grade: Callable[[], Any] | None = None

    def __init__(
        self,
        network: PreTrainedModel,
        arguments: TrainingArguments,
        examples: Examples,
        lengths: list[int],
        plan: Plan,
        on_log: Callable | None,
    ) -> None:
        order = training_order(
            lengths,
            batch_size=plan.recipe.batch_size,
            steps=arguments.max_steps,
            seed=plan.seed,
        )
        super().__init__(
            network,
            arguments,
            data_collator=examples.collate,
            train_dataset=order,
            compute_loss_func=answer_loss,
        )
        # The printer would print what `log` writes.
        self.remove_callback(transformers.PrinterCallback)
        self.add_callback(LastStep())
        self.examples = examples
        self.plan = plan
        self.dtype = getattr(torch, plan.precision)
        self.out = Path(str(arguments.output_dir)).parent
        self.on_log = on_log
        self.began = time.monotonic()

    def resume(self, model: VisionLanguageModel) -> None:
        """Train from the last checkpoint, or else from the start; end with the best weights.

        Args:
            model: the judge's, whose network trains.
        """
        checkpoint = weights.last_checkpoint(Path(str(self.args.output_dir)))
        # No process may write a checkpoint before all have looked for one.
        self.args.distributed_state.wait_for_everyone()
        if self.grade is not None:
            self.args.eval_strategy = transformers.IntervalStrategy.STEPS
            self.args.eval_on_start = checkpoint is None
        if self.plan.recipe.gradient_checkpointing:
            model.model.gradient_checkpointing_enable({"use_reentrant": False})
        hook = encode_pictures(model)
        self.train(resume_from_checkpoint=checkpoint)
        hook.remove()
        best = self.out / BEST
        if best.is_file():
            weights.load_weights(self.model, best)
        self.model.eval()

    def full_state(self) -> dict[str, torch.Tensor]:
        """Return the network's weights, gathered from all processes where they are sharded."""
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            return self.accelerator.get_state_dict(self.model_wrapped)
        return self.model.state_dict()

    def result(self) -> dict:
        """Return the steps, the loss at the start and at the end, and the lesson of both.

        `lesson` is a sentence where the loss did not fall, else None.
        """
        losses = [entry["loss"] for entry in self.state.log_history if "loss" in entry]
        tenth = max(1, len(losses) // 10)  # start and end are means of a tenth of the entries
        loss_before = sum(losses[:tenth]) / tenth
        loss_after = sum(losses[-tenth:]) / tenth
        result = {
            "steps": self.state.global_step,
            "loss_first": loss_before,
            "loss_last": loss_after,
        }
        return result | {"lesson": lesson_of(loss_before, loss_after, len(losses))}

    def compute_loss_context_manager(self) -> Any:
        """Return a context in which matrix products are computed in the plan's precision.

        It also works on devices on which accelerate would compute in float32.
        """
        enabled = self.dtype != torch.float32
        return torch.autocast(self.args.device.type, self.dtype, enabled=enabled)

    def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
        """Make transformers' AdamW, and give the projector a learning rate of its own.

        Args:
            model: the network; None for the trainer's. The name is transformers'.
        """
        is_new = self.optimizer is None  # transformers may ask again for one that is made
        optimizer = super().create_optimizer(model)
        if not is_new or self.plan.recipe.projector_lr is None:
            return optimizer
        projector = set()
        for name, weight in (model or self.model).named_parameters():
            if weights.part_of(name) == "projector":
                projector.add(weight)
        # Split each group of parameters (with and without weight decay) in two.
        for group in list(optimizer.param_groups):
            in_projector = [weight for weight in group["params"] if weight in projector]
            group["params"] = [weight for weight in group["params"] if weight not in projector]
            new_values = {"params": in_projector, "lr": self.plan.recipe.projector_lr}
            optimizer.add_param_group({**group, **new_values})
        return optimizer

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        """Grade the validation rows, log correlation and readable share, and keep the best weights.

        The best weights have the highest `quality`. transformers calls this method, with arguments
        that are of no use here, and reads no metrics: they are in the log.
        """
        if self.is_world_process_zero() and self.grade is not None:
            self.model.eval()
            with warnings.catch_warnings(), self.compute_loss_context_manager():
                warnings.simplefilter("ignore")  # `parsed` says how many verdicts were unreadable
                run = self.grade()
                table = correlate(run["score"], run["gold"], groups=run["group"], n_resamples=1_000)
            self.model.train()
            entry = table.loc["pearson", ["estimate", "low", "high"]].astype(float)
            pearson = entry.pop("estimate")
            parsed = float(run["score"].notna().mean())
            reached = quality(pearson, parsed)
            if self.state.best_metric is None or reached > self.state.best_metric:
                self.state.best_metric = reached
                weights.save_weights(self.model, self.out / BEST)
            self.log({"pearson": pearson, **entry, "parsed": parsed, "n": len(run)})
        self.control.should_evaluate = False
        self.accelerator.wait_for_everyone()
        return {}

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add an entry to transformers' log; write losses and evaluations to the log file, too.

        Args:
            logs: the entry, name -> number.
            start_time: of the training, which transformers may pass for its own speed figures.
        """
        seconds = round(time.monotonic() - self.began, 3)
        super().log({**logs, "seconds": seconds}, start_time)
        history = self.state.log_history
        # transformers takes the whole order, which is all epochs, for one epoch.
        history[-1].pop("epoch", None)
        entries = [entry for entry in history if "loss" in entry or "parsed" in entry]
        # Only the first process writes, and only where the new entry is a loss or an evaluation.
        if self.is_world_process_zero() and entries and entries[-1] is history[-1]:
            text = "".join(json.dumps(entry) + "\n" for entry in entries)
            replace_file(self.out / LOG, text)
            if self.on_log is not None:
                self.on_log(entries[-1])
