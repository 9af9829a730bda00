"""fine_tune: a base and a collection in, a judge out. transformers' Trainer with what it lacks for judges."""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional
from transformers import Trainer, TrainingArguments

import vjudge
from vjudge import data
from vjudge.data import CollectionError, Problem
from vjudge.engines.vision import embedded, images_of
from vjudge.judge import load_judge
from vjudge.metrics import correlate
from vjudge.models import VisionLanguageModel
from vjudge.models.places import choose_device, choose_dtype
from vjudge.prompts import Template
from vjudge.runs import replace_file
from vjudge.training import lora as adapting
from vjudge.training import watch
from vjudge.training.checks import check_balance, check_leakage
from vjudge.training.collate import IGNORED, Collator, Examples, has_own_texts, training_order
from vjudge.training.lora import Lora, as_lora, part_of
from vjudge.training.recipes import Recipe, recipe_of

MANIFEST = "manifest.json"
BEST = "best.safetensors"
PATIENCE = 6 * 3600  # seconds a process waits for the others, such as for one that grades or writes 13B weights

OnLog = Callable[[dict[str, Any]], None]


def fine_tune(
    base: str | Path,
    items: Any,
    *,
    out: str | Path,
    recipe: str | Recipe = "prometheus-vision",
    template: str | Template | None = None,
    validation: Any = None,
    lora: bool | Mapping[str, Any] | Lora | None = None,
    quantization: str | None = None,
    device: str = "auto",
    precision: str = "auto",
    seed: int = 0,
    on_log: OnLog | None = None,
    progress: bool = True,
    **changes: Any,
) -> Path:
    """Fine-tune a judge on a collection, with the loss on feedback and score alone.

    The same call continues where it was cut off, and ends in the same weights (float32, same machine and versions); it
    runs alike under `accelerate launch` and `torchrun`. Weights that train are float32, whatever the precision.

    Args:
        base: what `load_judge` loads on this machine: a LLaVA-1.5 or LLaVA-OneVision checkpoint in either layout, or a
            text-only language model.
        items: a collection or rows; a row with its own `prompt` and `target` needs no other texts.
        out: a folder for checkpoints, the log `training_log.jsonl`, `manifest.json` and the judge.
        recipe: a name in `RECIPES`, or a `Recipe`.
        template: the wording to train; None takes the base's own, as `load_judge` does.
        validation: rows held out from `items` (compared for leakage), graded while it trains; the weights with the best
            correlation times share of readable verdicts become the judge.
        lora: adapters on the decoder: True, a mapping such as {"rank": 16}, or a `Lora`. None trains in full.
        quantization: "4bit" or "8bit" for the base under adapters (QLoRA), the projector whole; needs bitsandbytes.
        device: "auto", "cpu", "cuda" or "mps"; under a launcher each process takes its own.
        precision: "auto", "float32", "bfloat16" or "float16": of products, and of a base's weights under adapters.
        seed: of the order, of dropout and of adapters' first values.
        on_log: called with every new entry of the log, such as `live_curve()`.
        progress: whether to show a bar.
        changes: fields of `Recipe`, such as lr=1e-5, steps=200 or freeze=["tower", "projector"].

    Returns:
        The folder of the judge, for `load_judge`. `manifest.json` beside it says under "result" how the loss fell and
        how far the weights moved; a training that taught nothing that shows ends in a warning that says so.

    Raises:
        CollectionError: rows that can't be trained on, all of them; a collection that is unbalanced or leaks.
        ValueError: an unsound option; a base that can't be trained here; a folder of another training.
        FloatingPointError: a gradient that is no number; the last good checkpoint stays.
    """
    adapters, chosen, out = as_lora(lora), recipe_of(recipe, **changes), Path(out).expanduser()
    if quantization is not None and adapters is None:
        raise ValueError(f"quantization={quantization!r} keeps the base's weights as they are: add lora=True")
    if validation is not None or adapters is not None:
        _check_spread()
    chosen_device, rank = choose_device(device), os.environ.get("LOCAL_RANK")
    place = f"cuda:{rank}" if rank is not None and chosen_device.type == "cuda" else str(chosen_device)
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        place = "cpu"  # each process moves its shards
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
    arguments = _arguments(chosen, out, len(rows), place, dtype, seed)
    examples = Examples(rows, model, wording, shape=chosen.shape, max_length=chosen.max_length)
    balance = _survey(items, examples, validation, chosen)
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
    main = arguments.process_index == 0
    if _is_done(out, settings, main):
        return out / "judge"
    transformers.set_seed(seed)
    wrapped = adapting.prepare(model, freeze=chosen.freeze, lora=adapters)
    if chosen.gradient_checkpointing:
        model.model.gradient_checkpointing_enable({"use_reentrant": False})
    last = watch.last_checkpoint(out / "checkpoints")
    arguments.distributed_state.wait_for_everyone()  # no checkpoint is written before all have looked for one
    arguments.disable_tqdm = not (progress and main)
    network = Network(model, dtype=getattr(torch, dtype))
    before, grade = watch.weight_samples(network), None
    if validation is not None:
        arguments.eval_strategy, arguments.eval_on_start = transformers.IntervalStrategy.STEPS, last is None
        mode = "feedback" if chosen.shape == "feedback" else "score"  # without feedback before it: in score mode
        longest = examples.longest_answer * 5 // 4 + 8  # a base that never ends would take minutes
        grade = partial(judge.grade, validation, mode=mode, max_new_tokens=longest, progress=False)
    trainer = JudgeTrainer(network, examples, chosen, arguments, grade=grade, on_log=on_log)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    spread = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped) if spread else None
    if main:
        if (out / BEST).is_file():
            watch.load_weights(network, out / BEST)
        model.model.eval()
        moved = watch.movement(before, network if weights is None else weights)
        result = watch.outcome(
            trainer.entries(), steps=trainer.state.global_step, warmup=int(arguments.warmup_steps), moved=moved
        )
        facts = {**result, **balance, "rows": len(rows), "base": str(base)}
        page = watch.card(out.name, recipe=chosen, lora=adapters, template=wording.name, facts=facts)
        merge = adapters is not None and (quantization is None if adapters.merge is None else adapters.merge)
        whole = None if weights is None else {name.removeprefix("model."): value for name, value in weights.items()}
        adapting.save(model, wrapped, out / "judge", base=base, template=wording, merge=merge, card=page, weights=whole)
        manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        replace_file(out / MANIFEST, json.dumps(manifest | {"result": result}, indent=2) + "\n")
        if result["lesson"]:
            warnings.warn(f"{out}: {result['lesson']}", stacklevel=2)
    trainer.accelerator.wait_for_everyone()
    return out / "judge"


def _check_spread() -> None:
    """Refuse validation and adapters while no process holds all weights: under FSDP and DeepSpeed's ZeRO-3."""
    fsdp, deepspeed = (os.environ.get(f"ACCELERATE_USE_{name}", "").lower() for name in ("FSDP", "DEEPSPEED"))
    if fsdp == "true" or (deepspeed == "true" and os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3"):
        raise ValueError(
            "FSDP and ZeRO-3 spread the weights over processes, which takes no validation= and no lora=: grade the"
            " finished judge, and train adapters under DDP (launch/ddp.yaml), in 4 bits where the base is too large"
        )


def _arguments(recipe: Recipe, out: Path, n_rows: int, device: str, dtype: str, seed: int) -> TrainingArguments:
    """transformers' arguments for a recipe on this machine."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    at_once = min(recipe.rows_at_once or recipe.batch_size // processes or 1, recipe.batch_size)
    passes, rest = divmod(recipe.batch_size, at_once * processes)
    if rest:
        raise ValueError(f"batch_size={recipe.batch_size} is no multiple of {processes} process(es) times {at_once}")
    steps, warmup = recipe.count_steps(n_rows)
    tenth = max(1, -(-steps // 10))
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
        data_seed=seed,
        logging_steps=recipe.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        eval_steps=recipe.evaluate_every or tenth,
        save_steps=recipe.checkpoint_every or tenth,
        save_total_limit=2,
        dataloader_num_workers=recipe.workers,
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to="none",
        ddp_timeout=PATIENCE,
        ddp_find_unused_parameters=True,  # rows without images leave the projector without a gradient
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # one process, one device: more take a launcher
    return arguments


def _survey(items: Any, examples: Examples, validation: Any, recipe: Recipe) -> dict[str, float]:
    """Look at the whole collection before anything is computed; everything that is wrong is said at once."""
    rows, problems = examples.rows, []
    try:
        data.validate(items, needs=examples.template.needs, sees_images=examples.sees)
    except CollectionError as error:
        if not error.problems:
            raise
        for problem in error.problems:  # a row with texts of its own needs no others
            if problem.field.partition("[")[0] in ("id", "images") or not has_own_texts(rows[problem.index]):
                problems.append(problem)
    fields = {(problem.index, problem.field.partition("[")[0]) for problem in problems}
    for index, row, why in examples.survey(data.rows_of(items)):  # which are read many at a time
        field, _, rest = why.partition(": ")
        if (index, field) not in fields:
            what, _, remedy = rest.rpartition("; ")
            problems.append(Problem(index, str(row.get("id")), field, what or rest or why, remedy or "correct the row"))
    if problems:
        problems.sort(key=lambda problem: problem.index)
        n_bad = len({problem.index for problem in problems})
        raise CollectionError(f"{n_bad} of {len(rows)} rows can't be trained on:", problems)
    if validation is not None:
        check_leakage(items, validation, allow=recipe.allow)
    return check_balance(items, allow=recipe.allow)


def _is_done(out: Path, settings: dict[str, Any], main: bool) -> bool:
    """Whether the judge is there already; refuses a folder that holds another training."""
    file = out / MANIFEST
    if file.is_file():
        before = json.loads(file.read_text(encoding="utf-8"))["settings"]
        plain = json.loads(json.dumps(settings))
        if changed := [name for name in plain if before.get(name) != plain[name]]:
            lines = "; ".join(f"{name} was {before.get(name)!r} and is {plain[name]!r}" for name in changed[:5])
            raise ValueError(f"{out} holds another training ({lines}): give another out=, or remove it")
        return (out / "judge" / "README.md").is_file()
    if main:
        if out.exists() and any(out.iterdir()):
            raise ValueError(f"{out} holds something else than a training: give an empty or new folder")
        out.mkdir(parents=True, exist_ok=True)
        versions = {"vjudge": vjudge.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
        replace_file(file, json.dumps({"settings": settings, "versions": versions}, indent=2) + "\n")
    return False


class Network(nn.Module):
    """A judge's model with the loss on its answers, in products of `dtype`: a batch of `Collator` in, the loss out."""

    def __init__(self, judge: VisionLanguageModel, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.model, self.judge, self.dtype = judge.model, judge, dtype
        self.vision = images_of(judge)
        self.config = judge.model.config  # for the trainer

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        shown: list[str],
        pictures: dict[str, Any],
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> dict[str, torch.Tensor]:
        """The cross-entropy over labelled tokens, by `num_items_in_batch` or their number here."""
        truth = labels[:, 1:]
        columns = (truth != IGNORED).any(0).nonzero()[:, 0]
        vision: Any = self.vision
        with torch.autocast(input_ids.device.type, self.dtype, enabled=self.dtype != torch.float32):
            features = {
                key: vision.encode([(tiles, tuple(size), mode)])[0] for key, (tiles, size, mode) in pictures.items()
            }
            logits = self.model(
                inputs_embeds=embedded(self.judge, input_ids, [features[key] for key in shown]),
                attention_mask=attention_mask,
                position_ids=(attention_mask.cumsum(1) - 1).clamp(min=0),
                logits_to_keep=columns,
                use_cache=False,
            ).logits
        total = functional.cross_entropy(
            logits.flatten(0, 1).float(), truth[:, columns].flatten(), ignore_index=IGNORED, reduction="sum"
        )
        n = (truth != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
        return {"loss": total / n}


class JudgeTrainer(watch.OwnNames, Trainer):
    """transformers' Trainer for a `Network`; `grade` gives a run of the validation sample with the judge as it is."""

    def __init__(
        self,
        network: Network,
        examples: Examples,
        recipe: Recipe,
        arguments: TrainingArguments,
        *,
        grade: Callable[[], Any] | None,
        on_log: OnLog | None,
    ) -> None:
        self.recipe, self.examples, self.network = recipe, examples, network
        self.grade, self.on_log = grade, on_log or (lambda entry: None)
        self.out, self.began = Path(str(arguments.output_dir)).parent, time.monotonic()
        super().__init__(
            model=network,
            args=arguments,
            data_collator=Collator(examples.coder),
            train_dataset=examples,
            eval_dataset=[] if grade else None,
        )
        self.remove_callback(transformers.PrinterCallback)  # the log has its own place
        self.model_accepts_loss_kwargs = True  # the loss is divided by the tokens of the whole step

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        shape = dict(batch_size=self.recipe.batch_size, steps=self.args.max_steps, seed=self.args.seed)
        return training_order(self.examples.lengths, **shape)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW with transformers' choice of what decays, and each part's own rate."""
        trained: Any = model or self.model
        if self.optimizer is None:
            decaying = set(self.get_decay_parameter_names(trained))
            rates = {"projector": self.recipe.projector_lr, "tower": self.recipe.tower_lr}
            groups: dict[tuple[float, float], list[nn.Parameter]] = {}
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
        if norm is not None and not scaled and not math.isfinite(float(norm)):
            last = watch.last_checkpoint(Path(str(self.args.output_dir)))
            state = f"the last good checkpoint is {last.name}" if last else "there is no checkpoint yet"
            raise FloatingPointError(
                f"step {self.state.global_step + 1}: the gradient's norm is {float(norm)}; {state}, and the call"
                " continues there. Lower lr, raise warmup, or use another precision"
            )
        return norm

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        """Grade the validation sample, log how it went, and keep the best weights so far."""
        if self.grade is not None and self.is_world_process_zero():
            self.network.eval()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that verdicts can't be read is what `parsed` says
                metrics = graded(self.grade())
            self.network.train()
            if all(merit(metrics) > merit(entry) for entry in self.entries() if "parsed" in entry):
                watch.save_weights(self.network, self.out / BEST)
            self.log(metrics)
        self.control.should_evaluate = False
        self.accelerator.wait_for_everyone()
        return {}

    def entries(self) -> list[dict[str, Any]]:
        """The log so far: losses and evaluations, as checkpoints keep them."""
        return [entry for entry in self.state.log_history if "loss" in entry or "parsed" in entry]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """To transformers' own trackers, to the log file and to `on_log`."""
        super().log({**logs, "seconds": round(time.monotonic() - self.began, 3)}, start_time)
        entry = self.state.log_history[-1]
        entry["epoch"] = self.state.global_step * self.recipe.batch_size / len(self.examples)
        entries = self.entries()
        if self.is_world_process_zero() and entries and entries[-1] is entry:
            replace_file(self.out / watch.LOG, "".join(json.dumps(line) + "\n" for line in entries))
            self.on_log(entry)


def graded(run: Any) -> dict[str, float]:
    """A run of the validation sample in numbers; an undefined correlation is NaN."""
    row = correlate(run["score"], run["gold"], groups=run["group"], n_resamples=1_000).loc["pearson"]
    figures = {"pearson": float(row["estimate"]), "low": float(row["low"]), "high": float(row["high"])}
    return {**figures, "parsed": float(run["score"].notna().mean()), "n": len(run)}


def merit(metrics: Mapping[str, float]) -> float:
    """What the best weights have most of: correlation (-1 where it is undefined) times readable share."""
    pearson = metrics["pearson"]
    return -1.0 + metrics["parsed"] if math.isnan(pearson) else pearson * metrics["parsed"]
