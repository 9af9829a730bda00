"""fine_tune: a base and a collection in, a judge out. transformers' Trainer with what it lacks for judges."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from transformers import Trainer, TrainingArguments

import vjudge
from vjudge import data
from vjudge.data import CollectionError, Problem
from vjudge.engines.vision import embedded, images_of
from vjudge.images import picture
from vjudge.judge import load_judge
from vjudge.metrics import correlate
from vjudge.models import VisionLanguageModel
from vjudge.models.places import choose_device, choose_dtype
from vjudge.prompts import TEMPLATES, Template, families
from vjudge.runs import replace_file
from vjudge.training import weights
from vjudge.training.checks import check_balance, check_leakage
from vjudge.training.collate import IGNORED, Examples, has_own_texts, training_order
from vjudge.training.recipes import RECIPES, Lora, Recipe
from vjudge.training.weights import part_of

MANIFEST = "manifest.json"
LOG = "training_log.jsonl"
BEST = "best.safetensors"
FALL = 0.98  # a loss that ends above this share of the one at the start did not fall
PATIENCE = 6 * 3600  # seconds a process waits for the others, such as for one that grades or writes 13B weights


def fine_tune(
    base: str | Path,
    items: Any,
    *,
    out: str | Path,
    recipe: str | Recipe = "prometheus-vision",
    template: str | Template | None = None,
    validation: Any = None,
    lora: bool | Mapping[str, Any] | None = None,
    quantization: str | None = None,
    device: str = "auto",
    precision: str = "auto",
    seed: int = 0,
    on_log: Callable[[dict[str, Any]], None] | None = None,
    progress: bool = True,
    **changes: Any,
) -> Path:
    """Fine-tune a judge on a collection, with the loss on feedback and score alone; what trains is float32.

    The same call continues where it was cut off, and ends in the same weights (float32, same machine and versions); it
    runs alike under `accelerate launch` and `torchrun`.

    Args:
        base: a LLaVA-1.5 or LLaVA-OneVision checkpoint in either layout, or a text-only language model.
        items: a collection or rows; a row with its own `prompt` and `target` needs no other texts.
        out: a folder for checkpoints, `training_log.jsonl`, `manifest.json` and the judge.
        recipe: a name in `RECIPES`, or a `Recipe`.
        template: the wording to train; None takes the base's own, as `load_judge` does.
        validation: held-out rows (compared for leakage), graded while it trains; the weights with the best correlation
            times share of readable verdicts become the judge.
        lora: adapters on the decoder: True, or fields of `Lora` such as {"rank": 16}. None trains in full.
        quantization: "4bit" or "8bit" for the base under adapters (QLoRA), the projector whole; needs bitsandbytes.
        device: "auto", "cpu", "cuda" or "mps"; under a launcher each process takes its own.
        precision: "auto", "float32", "bfloat16" or "float16": of products, and of a base's weights under adapters.
        seed: of the order, of dropout and of adapters' first values.
        on_log: called with every new entry of the log, such as `live_curve()`.
        progress: whether to show a bar.
        changes: fields of the recipe, such as lr=1e-5, steps=200 or freeze=["tower", "projector"].

    Returns:
        The folder of the judge, for `load_judge`. `manifest.json` beside it says under "result" how the loss fell and
        how far the weights moved; a training that taught nothing that shows ends in a warning that says so. A line of
        the log has step, seconds, and of losses loss, grad_norm and learning_rate, of evaluations pearson with low and
        high (95 %), parsed (share of readable verdicts) and n.

    Raises:
        CollectionError: rows that can't be trained on, all of them; a collection that is unbalanced or leaks.
        ValueError: an unsound option; a base that can't be trained here; a folder of another training.
        FloatingPointError: a gradient that is no number; the last good checkpoint stays.
    """
    adapters = None if lora is None or lora is False else Lora() if lora is True else Lora(**lora)
    if isinstance(recipe, str) and recipe not in RECIPES:
        raise ValueError(f"recipe {recipe!r} is unknown; use one of {', '.join(RECIPES)}, or a Recipe")
    given = {name: value for name, value in changes.items() if value is not None}
    chosen, out = replace(RECIPES[recipe] if isinstance(recipe, str) else recipe, **given), Path(out).expanduser()
    if quantization is not None and adapters is None:
        raise ValueError(f"quantization={quantization!r} keeps the base's weights as they are: add lora=True")
    fsdp, deepspeed = (os.environ.get(f"ACCELERATE_USE_{name}", "").lower() == "true" for name in ("FSDP", "DEEPSPEED"))
    spread = fsdp or (deepspeed and os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3")
    if spread and (validation is not None or adapters is not None):
        raise ValueError(
            "FSDP and ZeRO-3 spread the weights over processes, which takes no validation= and no lora=: grade the"
            " finished judge, and train adapters under DDP (launch/ddp.yaml), in 4 bits where the base is too large"
        )
    chosen_device, rank = choose_device(device), os.environ.get("LOCAL_RANK")
    place = f"cuda:{rank}" if rank is not None and chosen_device.type == "cuda" else str(chosen_device)
    place = "cpu" if fsdp else place  # each process moves its shards
    dtype = str(choose_dtype(precision, chosen_device)).removeprefix("torch.")
    rows = data.rows_of(items)
    if not len(rows):
        raise CollectionError("the collection has no rows; check split= and limit=")
    held: dict[str, Any] = {"device": place, "dtype": dtype if adapters else "float32", "quantization": quantization}
    judge: Any = load_judge(base, template=template, **held)
    model, wording = judge.engine.model, judge.pairs if "response_a" in rows[0] else judge.template
    if wording is None:
        raise ValueError(f"judge {str(base)!r} has no wording for pairs: give a template that compares")
    if wording.compares and validation is not None:
        raise ValueError("validation: pairs are not graded during training; compare with the judge afterwards")
    arguments = _arguments(chosen, out, len(rows), place, dtype, seed, progress)
    main = arguments.process_index == 0
    examples = Examples(rows, model, wording, shape=chosen.shape, max_length=chosen.max_length)
    lengths, longest_answer = _survey(items, examples)
    if validation is not None:
        check_leakage(items, validation, allow=chosen.allow)
    balance = check_balance(items, allow=chosen.allow)
    settings = {
        "base": str(base),
        "base_weights": judge.engine.identity()["weights"],
        "template": wording.fingerprint(),
        "recipe": chosen.identity(),
        "lora": None if adapters is None else asdict(adapters),
        "quantization": quantization,
        "precision": dtype,
        "seed": seed,
        "rows": len(rows),
        "batch": [arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps, arguments.world_size],
        "collection": data.fingerprint(items),
    }
    transformers.set_seed(seed)
    wrapped = weights.prepare(model, freeze=chosen.freeze, lora=adapters)
    if _is_done(out, settings, main):
        return out / "judge"
    if chosen.gradient_checkpointing:
        model.model.gradient_checkpointing_enable({"use_reentrant": False})
    last = weights.last_checkpoint(out / "checkpoints")
    arguments.distributed_state.wait_for_everyone()  # no checkpoint is written before all have looked for one
    network = Network(model, dtype=getattr(torch, dtype))
    before = weights.weight_samples(network)
    trainer = JudgeTrainer(network, arguments, examples.collate, examples)
    trainer.remove_callback(transformers.PrinterCallback)  # the log has its own place
    trainer.recipe, trainer.out, trainer.began, trainer.on_log = chosen, out, time.monotonic(), on_log
    trainer.order = training_order(lengths, batch_size=chosen.batch_size, steps=arguments.max_steps, seed=seed)
    if validation is not None:
        arguments.eval_strategy, arguments.eval_on_start = transformers.IntervalStrategy.STEPS, last is None
        mode = "feedback" if chosen.shape == "feedback" else "score"  # without feedback before it: in score mode
        longest = longest_answer * 5 // 4 + 8  # a base that never ends would take minutes
        trainer.grade = partial(judge.grade, validation, mode=mode, max_new_tokens=longest, progress=False)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    spread = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped) if spread else None
    if main:
        if (out / BEST).is_file():
            network.load_state_dict(load_file(out / BEST), strict=False)  # what trains
        model.model.eval()
        moved = weights.movement(before, network if state is None else state)
        steps, warmup = trainer.state.global_step, int(arguments.warmup_steps)
        result = outcome(trainer.entries(), steps=steps, warmup=warmup, moved=moved)
        folder = out / "judge"
        shutil.rmtree(folder, ignore_errors=True)
        whole = None if state is None else {name.removeprefix("model."): value for name, value in state.items()}
        weights.save(model, wrapped, folder, base=base, lora=adapters, weights=whole)
        record = {"template": wording.name if wording.name in TEMPLATES else None}
        (folder / families.RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
        made = {"base": base, "rows": len(rows), "wording": wording.name, "lora": adapters, **asdict(chosen)}
        manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        replace_file(out / MANIFEST, json.dumps(manifest | {"result": result}, indent=2) + "\n")
        (folder / "README.md").write_text(card(out.name, made, result | balance), encoding="utf-8")  # it is done
        if result["lesson"]:
            warnings.warn(f"{out}: {result['lesson']}", stacklevel=2)
    trainer.accelerator.wait_for_everyone()
    return out / "judge"


def _arguments(
    recipe: Recipe, out: Path, n_rows: int, device: str, dtype: str, seed: int, progress: bool
) -> TrainingArguments:
    """transformers' arguments for a recipe on this machine."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    at_once = min(recipe.rows_at_once or recipe.batch_size // processes or 1, recipe.batch_size)
    passes, rest = divmod(recipe.batch_size, at_once * processes)
    if rest:
        raise ValueError(f"batch_size={recipe.batch_size} is no multiple of {processes} process(es) times {at_once}")
    steps, warmup = recipe.count_steps(n_rows)
    tenth = -(-steps // 10)
    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=passes,
        max_steps=steps,
        learning_rate=recipe.lr,
        lr_scheduler_type=recipe.schedule,
        warmup_steps=warmup,
        weight_decay=recipe.weight_decay,
        adam_beta1=recipe.betas[0],
        adam_beta2=recipe.betas[1],
        max_grad_norm=recipe.clip,
        bf16=dtype == "bfloat16",
        fp16=dtype == "float16" and device != "cpu",
        use_cpu=device == "cpu" and not os.environ.get("ACCELERATE_USE_FSDP"),
        seed=seed,
        logging_steps=recipe.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        eval_steps=recipe.evaluate_every or tenth,
        save_steps=recipe.checkpoint_every or tenth,
        save_total_limit=2,
        dataloader_num_workers=recipe.workers,
        remove_unused_columns=False,
        disable_tqdm=not progress,
        report_to="none",
        ddp_timeout=PATIENCE,
        ddp_find_unused_parameters=True,  # rows without images leave the projector without a gradient
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # one process, one device: more take a launcher
    return arguments


def _survey(items: Any, examples: Examples) -> tuple[list[int], int]:
    """The tokens of every row and of the longest answer; a CollectionError with every row that can't be trained on:
    each is encoded and each image opened, once, before anything is computed."""
    problems, lengths, opened, longest_answer = list[Problem](), list[int](), set[str](), 0
    try:
        data.validate(items, needs=examples.template.needs, sees_images=examples.sees)
    except CollectionError as error:
        if not error.problems:
            raise
        for problem in error.problems:  # a row with texts of its own needs no others
            if problem.field.partition("[")[0] in ("id", "images") or not has_own_texts(examples.rows[problem.index]):
                problems.append(problem)
    faulty = {problem.index for problem in problems}
    for index, row in enumerate(data.rows_of(items)):  # which are read many at a time
        if index in faulty:
            continue
        try:
            example = examples.encode(row)
            for image in map(picture, example.images):
                if image.key not in opened:
                    image.open()
                    opened.add(image.key)
        except (ValueError, OSError, KeyError) as error:
            field, _, rest = str(error).partition(": ")
            what, _, remedy = rest.rpartition("; ")
            problems.append(Problem(index, str(row.get("id")), field, what or rest, remedy or "correct the row"))
            continue
        lengths.append(len(example.ids))
        longest_answer = max(longest_answer, len(example.ids) - example.labels.count(IGNORED))
    if problems:
        raise CollectionError.of_rows(sorted(problems, key=lambda problem: problem.index), len(examples))
    return lengths, longest_answer


def _is_done(out: Path, settings: dict[str, Any], main: bool) -> bool:
    """Whether the judge is there already; refuses a folder that holds another training."""
    file = out / MANIFEST
    if file.is_file():
        before, plain = json.loads(file.read_text(encoding="utf-8"))["settings"], json.loads(json.dumps(settings))
        if changed := [name for name in plain if before.get(name) != plain[name]]:
            lines = "; ".join(f"{name} was {before.get(name)!r} and is {plain[name]!r}" for name in changed[:5])
            raise ValueError(f"{out} holds another training ({lines}): give another out=, or remove it")
        return (out / "judge" / "README.md").is_file()
    if main:
        if out.exists() and any(out.iterdir()):
            raise ValueError(f"{out} holds something else than a training: give an empty or new folder")
        out.mkdir(parents=True, exist_ok=True)
        versions = {module.__name__: module.__version__ for module in (vjudge, torch, transformers)}
        replace_file(file, json.dumps({"settings": settings, "versions": versions}, indent=2) + "\n")
    return False


class Network(nn.Module):
    """A judge's model with the loss on its answers, in products of `dtype`: a batch of `Examples` in, the loss out."""

    accepts_loss_kwargs = True  # for the trainer: the loss is divided by the tokens of the whole step

    def __init__(self, judge: VisionLanguageModel, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.model, self.judge, self.dtype = judge.model, judge, dtype
        self.vision: Any = images_of(judge)
        self.config = judge.model.config  # for the trainer

    def forward(self, num_items_in_batch: torch.Tensor | int | None = None, **batch: Any) -> dict[str, torch.Tensor]:
        """The cross-entropy over labelled tokens, by `num_items_in_batch` or their number here."""
        ids, mask, truth = batch["input_ids"], batch["attention_mask"], batch["labels"][:, 1:]
        columns, features = (truth != IGNORED).any(0).nonzero()[:, 0], dict[str, torch.Tensor]()
        with torch.autocast(ids.device.type, self.dtype, enabled=self.dtype != torch.float32):
            for key, (tiles, size, mode) in batch["pictures"].items():
                (features[key],) = self.vision.encode([(tiles, tuple(size), mode)])
            logits = self.model(
                inputs_embeds=embedded(self.judge, ids, [features[key] for key in batch["shown"]]),
                attention_mask=mask,
                position_ids=(mask.cumsum(1) - 1).clamp(min=0),
                logits_to_keep=columns,
                use_cache=False,
            ).logits.float()
        labels = truth[:, columns].flatten()
        total = functional.cross_entropy(logits.flatten(0, 1), labels, ignore_index=IGNORED, reduction="sum")
        return {"loss": total / ((labels != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch)}


class JudgeTrainer(weights.OwnNames, Trainer):
    """transformers' Trainer for a `Network`; `grade` gives a run of the validation sample with the judge as it is."""

    recipe: Recipe
    out: Path
    order: list[int]  # of rows
    grade: Callable[[], pd.DataFrame]
    began: float
    on_log: Callable[[dict[str, Any]], None] | None

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return self.order

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW with transformers' choice of what decays, and each part's own rate."""
        if self.optimizer is not None:
            return self.optimizer
        trained: Any = model or self.model
        decaying, groups = set(self.get_decay_parameter_names(trained)), dict[tuple[float, float], list[nn.Parameter]]()
        rates = {"projector": self.recipe.projector_lr, "tower": self.recipe.tower_lr}
        for name, weight in trained.named_parameters():
            if weight.requires_grad:
                decay = self.recipe.weight_decay if name in decaying else 0.0
                groups.setdefault((rates.get(part_of(name)) or self.recipe.lr, decay), []).append(weight)
        kind, options = self.get_optimizer_cls_and_kwargs(self.args, trained)
        sets = [{"params": weights, "lr": lr, "weight_decay": decay} for (lr, decay), weights in groups.items()]
        self.optimizer = kind(sets, **options)
        return self.optimizer

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """The norm over all processes; one that is no number ends the training before any weight takes it up."""
        norm = super()._get_grad_norm(model, grad_norm)
        scaled = self.accelerator.scaler is not None  # float16: the scaler leaves such a step out by itself
        if norm is not None and not scaled and not math.isfinite(norm):
            last = weights.last_checkpoint(self.out / "checkpoints")
            raise FloatingPointError(
                f"step {self.state.global_step + 1}: the gradient's norm is {float(norm)}; the call continues from"
                f" {last.name if last else 'its start'}. Lower lr, raise warmup, or use another precision"
            )
        return norm

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        """Grade the validation sample, log how it went, and keep the best weights so far: those with the greatest
        correlation (-1 where it is undefined) times share of readable verdicts."""
        if self.is_world_process_zero():
            self.model.eval()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that verdicts can't be read is what `parsed` says
                run = self.grade()
                row = correlate(run["score"], run["gold"], groups=run["group"], n_resamples=1_000).loc["pearson"]
            self.model.train()
            pearson, parsed = float(row["estimate"]), float(run["score"].notna().mean())
            merit = parsed - 1.0 if math.isnan(pearson) else pearson * parsed
            if self.state.best_metric is None or merit > self.state.best_metric:
                self.state.best_metric = merit
                weights.save_weights(self.model, self.out / BEST)
            interval = {"low": float(row["low"]), "high": float(row["high"])}
            self.log({"pearson": pearson, **interval, "parsed": parsed, "n": len(run)})
        self.control.should_evaluate = False
        self.accelerator.wait_for_everyone()
        return {}

    def entries(self) -> list[dict[str, Any]]:
        """The log so far: losses and evaluations, as checkpoints keep them."""
        return [entry for entry in self.state.log_history if "loss" in entry or "parsed" in entry]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """To transformers' own trackers, to the log file and to `on_log`."""
        super().log({**logs, "seconds": round(time.monotonic() - self.began, 3)}, start_time)
        self.state.log_history[-1].pop("epoch", None)  # of the order, which is all epochs
        entries = self.entries()
        if self.is_world_process_zero() and entries and entries[-1] is self.state.log_history[-1]:
            replace_file(self.out / LOG, "".join(json.dumps(entry) + "\n" for entry in entries))
            if self.on_log is not None:
                self.on_log(entries[-1])


def live_curve() -> Callable[[dict[str, Any]], None]:
    """What `fine_tune(on_log=...)` takes in a notebook: a figure under the cell that is drawn anew with every entry."""
    from IPython.display import display

    from vjudge.plots import training_curve

    entries: list[dict[str, Any]] = []
    handle = display(display_id=True)

    def show(entry: dict[str, Any]) -> None:
        entries.append(entry)
        handle.update(training_curve(pd.DataFrame(entries)))

    return show


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
    if line := weights.movement_line(moved):
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
