"""The trainer: transformers' own, with what it lacks for judges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers
from accelerate.utils import gather_object
from torch import nn
from transformers import Trainer, TrainerCallback

from vjudge.data import CollectionError, Problem
from vjudge.metrics import correlate
from vjudge.training.batching import Collator, Order
from vjudge.training.examples import Examples
from vjudge.training.lora import part_of
from vjudge.training.network import Network
from vjudge.training.recipes import Recipe
from vjudge.training.watch import LEFT_OUT, OwnNames, RunLog, last_checkpoint, plain_name, save_weights

BEST = "best.safetensors"


class JudgeTrainer(OwnNames, Trainer):
    """transformers' Trainer for a `Network`.

    Args:
        network: what trains.
        examples, collator: what it trains on.
        recipe: rates of the parts, and the order's grouping.
        arguments: transformers' own.
        log: gets losses, evaluations and rows left out, of all processes, from the main one.
        grade: grades a part of the validation sample with the judge as it is, given its number and the number of parts:
            a run, None for a part without rows. None for no evaluation.
        keep: where the best weights are kept.
        max_bad: how many rows may be left out because an image fails, over all processes.
        left_out: those that were left out before the checkpoint that is continued.
    """

    def __init__(
        self,
        network: Network,
        *,
        examples: Examples,
        collator: Collator,
        recipe: Recipe,
        arguments: transformers.TrainingArguments,
        log: RunLog,
        grade: Callable[[int, int], Any] | None,
        keep: Path,
        max_bad: int,
        left_out: Iterable[Problem],
        callbacks: list[TrainerCallback],
    ) -> None:
        self.recipe, self.run_log, self.grade, self.keep = recipe, log, grade, keep
        self.max_bad, self.left_out = max_bad, {problem.index: problem for problem in left_out}
        self.matrices = {name for name, weight in network.named_parameters() if weight.ndim > 1}
        super().__init__(
            model=network,
            args=arguments,
            data_collator=collator,
            train_dataset=examples,
            eval_dataset=[] if grade else None,
            callbacks=callbacks,
        )
        self.remove_callback(transformers.PrinterCallback)  # the log has its own place
        self.model_accepts_loss_kwargs = True  # the loss is divided by the tokens of the whole step

    def _get_train_sampler(self, train_dataset: Any = None) -> Order:
        return Order(
            self.train_dataset,  # type: ignore[arg-type]
            batch_size=self.recipe.batch_size,
            steps=self.args.max_steps,
            seed=self.args.seed,
            grouped=self.recipe.group_by_length,
        )

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW with decay on matrices alone and each part's own rate."""
        trained: Any = model or self.model
        if self.optimizer is None:
            rates = {"projector": self.recipe.projector_lr, "tower": self.recipe.tower_lr}
            groups: dict[tuple[float, float], list[nn.Parameter]] = {}
            for name, weight in trained.named_parameters():
                if weight.requires_grad:
                    decay = self.recipe.weight_decay if plain_name(name) in self.matrices else 0.0
                    rate = rates.get(part_of(name)) or self.recipe.lr
                    groups.setdefault((rate, decay), []).append(weight)
            made = [{"params": weights, "lr": lr, "weight_decay": decay} for (lr, decay), weights in groups.items()]
            kind, options = self.get_optimizer_cls_and_kwargs(self.args, trained)
            self.optimizer = kind(made, **options)
        return self.optimizer

    def get_batch_samples(self, *args: Any, **options: Any) -> tuple[list[Any], Any]:
        """The batches of one step; rows that were left out of them are counted over all processes, named and logged.

        Raises:
            CollectionError: there are more of them than `max_bad`; in every process.
        """
        batches, n_tokens = super().get_batch_samples(*args, **options)
        found = [problem for batch in batches for problem in batch.pop("faults", ())]
        for problem in gather_object(found) if self.args.world_size > 1 else found:
            if problem.index in self.left_out:
                continue
            self.left_out[problem.index] = problem
            if self.accelerator.is_main_process:
                self.run_log.write({"step": self.state.global_step + 1, LEFT_OUT: asdict(problem)})
        if len(self.left_out) > self.max_bad:
            raise CollectionError(
                f"{len(self.left_out)} rows had images that failed in training, more than"
                f" max_bad_images={self.max_bad}",
                self.left_out.values(),
            )
        return batches, n_tokens

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """The loss; one that is no number ends the training in every process before any weight takes it up."""
        loss = super().compute_loss(model, inputs, *args, **options)
        value = (loss[0] if isinstance(loss, tuple) else loss).detach().reshape(1)
        values = self.accelerator.gather(value) if self.args.world_size > 1 else value
        if not bool(torch.isfinite(values).all()):
            self._stop(f"the loss is {float(values[~torch.isfinite(values)][0])}")
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        scaled = self.accelerator.scaler is not None  # float16: the scaler leaves such a step out by itself
        if norm is not None and not scaled and not math.isfinite(float(norm)):
            self._stop(f"the gradient's norm is {float(norm)}")
        return norm

    def _stop(self, what: str) -> None:
        last = last_checkpoint(Path(str(self.args.output_dir)))
        kept = f"the last good checkpoint is {last.name}" if last else "there is no checkpoint yet"
        raise FloatingPointError(
            f"step {self.state.global_step + 1}: {what}; {kept}, and the call continues there. Lower lr, raise warmup,"
            " or use another precision"
        )

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        """Grade the validation sample: correlation with its interval, and the share of readable verdicts.

        Every process grades a part of it, and all of them have the figures of the whole.
        """
        if self.grade is None:
            return {}
        network: Any = self.model
        network.eval()
        runs = [self.grade(self.args.process_index, self.args.world_size)]
        if self.args.world_size > 1:
            runs = gather_object(runs)
        known = [run[["score", "gold", "group"]] for run in runs if run is not None]
        metrics = graded(pd.concat(known, ignore_index=True))
        network.train()
        if self.accelerator.is_main_process:
            self.run_log.write({"step": self.state.global_step, **metrics})
            worth = merit(metrics)
            if worth > self._best():
                save_weights(self.unwrapped, self.keep, {"merit": repr(worth), "step": str(self.state.global_step)})
        self.accelerator.wait_for_everyone()
        found = {f"eval_{name}": float(value) for name, value in metrics.items()}
        self.log(found)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def _best(self) -> float:
        """The merit of the weights that are kept, of this run and no later step than this one."""
        if not self.keep.is_file():
            return -math.inf
        from safetensors import safe_open

        with safe_open(self.keep, "pt") as file:
            said = file.metadata()
        return float(said["merit"]) if int(said["step"]) < self.state.global_step else -math.inf

    @property
    def unwrapped(self) -> Network:
        """The network without what spreads it over devices."""
        inner: Network = self.accelerator.unwrap_model(self.model)
        return inner

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """To transformers' own trackers, and to the log file."""
        super().log(logs, start_time)
        if "loss" in logs and self.accelerator.is_main_process:
            said: dict[str, Any] = {name: logs[name] for name in ("loss", "grad_norm", "learning_rate") if name in logs}
            seen = self.state.global_step * self.recipe.batch_size
            counts = {"examples": seen, "epoch": seen / len(self.train_dataset)}  # type: ignore[arg-type]
            self.run_log.write({"step": self.state.global_step, **counts, **said, "skipped": len(self.left_out)})


def graded(run: Any) -> dict[str, float]:
    """A run of the validation sample in numbers: pearson with low and high, parsed (share of verdicts), n."""
    import warnings

    parsed = float(run["score"].notna().mean())
    found = {"pearson": math.nan, "low": math.nan, "high": math.nan}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # undefined is said by NaN
        if run["score"].notna().sum() > 2:
            table = correlate(run["score"], run["gold"], groups=run["group"], n_resamples=1_000)
            row = table.loc["pearson"]
            found = {"pearson": float(row["estimate"]), "low": float(row["low"]), "high": float(row["high"])}
    return {**found, "parsed": parsed, "n": len(run)}


def merit(metrics: Mapping[str, float]) -> float:
    """What the best checkpoint has most of: correlation times readable share; a verdict nobody can read agrees with
    nothing. Undefined correlation counts as -1."""
    pearson = metrics["pearson"]
    return -1.0 + metrics["parsed"] if math.isnan(pearson) else pearson * metrics["parsed"]
