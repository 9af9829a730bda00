"""fine_tune: a base and a collection in, a judge out. transformers' Trainer with what it lacks for judges."""

from __future__ import annotations

import inspect
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers
from accelerate.utils import gather_object
from torch import nn
from torch.nn import functional
from transformers import Trainer, TrainerCallback, TrainingArguments

import vjudge
from vjudge import data
from vjudge.data import CollectionError, Problem
from vjudge.engines.vision import vision_of
from vjudge.judge import Judge, load_judge
from vjudge.metrics import correlate
from vjudge.models import VisionLanguageModel
from vjudge.models.places import choose_device, choose_dtype
from vjudge.prompts import Template
from vjudge.runs import replace_file
from vjudge.training import lora as adapting
from vjudge.training.checks import check_balance, check_leakage
from vjudge.training.collate import IGNORED, Coder, Collator, Examples, Order, id_of
from vjudge.training.lora import Lora, as_lora, part_of
from vjudge.training.recipes import Recipe, recipe_of
from vjudge.training.targets import has_own_texts
from vjudge.training.watch import (
    LEFT_OUT,
    LOG,
    OwnNames,
    RunLog,
    card,
    last_checkpoint,
    lesson_line,
    load_weights,
    mean_loss,
    movement,
    plain_name,
    save_weights,
    weight_samples,
)

MANIFEST = "manifest.json"
BEST = "best.safetensors"
PRECISIONS = ("float32", "bfloat16", "float16")
PATIENCE = 6 * 3600  # seconds a process waits for the others, such as for one that grades more or writes 13B weights


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
    on_log: Callable[[dict[str, Any]], None] | None = None,
    progress: bool = True,
    **changes: Any,
) -> Path:
    """Fine-tune a judge on a collection, with the loss on feedback and score alone.

    The same call continues where it was cut off, and ends in the same weights (float32, same machine and versions). It
    runs alike under `accelerate launch` and `torchrun`; see `python -m vjudge.training`. Weights that train are float32
    on every device, whatever the precision of products and of a base under adapters.

    Args:
        base: what `load_judge` loads on this machine: a LLaVA-1.5 or LLaVA-OneVision checkpoint in either layout, or a
            text-only language model.
        items: a collection with the canonical columns, or rows; what `load_collection` returns is read row by row. A
            row with texts of its own, `prompt` and `target`, needs no others.
        out: a folder for checkpoints, the log `training_log.jsonl`, `manifest.json` and the judge.
        recipe: a name in `RECIPES`, or a `Recipe`.
        template: the wording to train; None takes the base's own, as `load_judge` does.
        validation: rows to grade with the judge while it trains, held out from `items`; they are compared for leakage.
        lora: adapters on the decoder: True, a mapping such as {"rank": 16}, or a `Lora`. None trains in full.
        quantization: "4bit" or "8bit" for the base under adapters (QLoRA), the projector whole; needs bitsandbytes.
        device: "auto", "cpu", "cuda" or "mps"; under a launcher each process takes its own.
        precision: "auto", "float32", "bfloat16" or "float16": of products, and of a base's weights under adapters.
        seed: of the order, of dropout and of adapters' first values.
        on_log: called with every entry of the log, such as `live_curve()`.
        progress: whether to show a bar.
        changes: fields of `Recipe`, such as lr=1e-5, steps=200 or freeze=["tower", "projector"].

    Returns:
        The folder of the judge, for `load_judge`. Beside it stand the log, checkpoints of the weights that train, and
        in `manifest.json` under "result" the losses and how far the weights moved; a training that taught nothing that
        shows ends in a warning that says so.

    Raises:
        CollectionError: rows that can't be trained on, all of them; a collection that is unbalanced or leaks; more
            images failed than allowed.
        ValueError: an unsound option; a base that can't be trained here; a folder of another training.
        FloatingPointError: a loss that is no number; the last good checkpoint stays.
    """
    adapters, chosen, out = as_lora(lora), recipe_of(recipe, **changes), Path(out).expanduser()
    place, dtype = _placed(device, precision, quantization, adapters)
    _check_spread(validated=validation is not None, adapted=adapters is not None)
    if chosen.shape == "description" and validation is not None:
        raise ValueError("validation: a description has no verdict that could be graded; leave validation out")
    rows = data.rows_of(items)
    held = {"device": place, "dtype": dtype if adapters else "float32", "quantization": quantization}
    judge, wording = _judge(base, rows, template, held)
    model = judge.engine.model  # type: ignore[attr-defined]
    arguments = _arguments(chosen, out, len(rows), place, dtype, seed, evaluated=validation is not None)
    examples = Examples(rows, Coder(model, wording, shape=chosen.shape, max_length=chosen.max_length))
    balance = _survey(items, examples, validation, chosen, seed)
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
    main, state = arguments.process_index == 0, arguments.distributed_state
    if _is_done(out, settings, main):
        return out / "judge"
    transformers.set_seed(seed)
    wrapped = adapting.prepare(model, freeze=chosen.freeze, lora=adapters)
    if chosen.gradient_checkpointing:
        model.model.gradient_checkpointing_enable({"use_reentrant": False})
    log, last = RunLog(out / LOG, on_log), last_checkpoint(out / "checkpoints")
    if main:
        log.rewind(int(last.name.rpartition("-")[2]) if last else -1)
    state.wait_for_everyone()  # the log is as it was, and no checkpoint is written before all have looked for one
    network = Network(model, dtype=getattr(torch, dtype))
    before = weight_samples(network)
    trainer = JudgeTrainer(
        network,
        examples=examples,
        collator=Collator(examples.coder, padding=chosen.padding, rows=rows),
        recipe=chosen,
        arguments=arguments,
        log=log,
        grade=None if validation is None else _grader(judge, validation, wording, chosen.shape, examples),
        best=out / BEST,
        progress=progress and main,
    )
    if validation is not None and last is None:
        trainer.evaluate()  # where it starts from
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    spread = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped) if spread else None
    if main:
        if validation is not None and chosen.keep == "best" and (out / BEST).is_file():
            load_weights(trainer.unwrapped, out / BEST)
        model.model.eval()
        result = _result(
            log, chosen.count_steps(len(rows))[1], movement(before, trainer.unwrapped if weights is None else weights)
        )
        facts = {**result, **balance, "rows": len(rows), "skipped": len(trainer.left_out), "base": str(base)}
        page = card(out, recipe=chosen, lora=adapters, template=wording.name, facts=facts, entries=log.entries())
        merge = adapters is not None and (quantization is None if adapters.merge is None else adapters.merge)
        whole = None if weights is None else {name.removeprefix("model."): value for name, value in weights.items()}
        adapting.save(model, wrapped, out / "judge", base=base, template=wording, merge=merge, card=page, weights=whole)
        manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        replace_file(out / MANIFEST, json.dumps(manifest | {"result": result}, indent=2) + "\n")
        if result["lesson"]:
            warnings.warn(f"{out}: {result['lesson']}", stacklevel=2)
    trainer.accelerator.wait_for_everyone()
    return out / "judge"


# Before any work


def _placed(device: str, precision: str, quantization: str | None, lora: Lora | None) -> tuple[str, str]:
    """The device and the precision, both settled."""
    rank = os.environ.get("LOCAL_RANK")
    chosen = choose_device(device)
    place = f"cuda:{rank}" if rank is not None and chosen.type == "cuda" else str(chosen)
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        place = "cpu"  # each process moves its shards
    if precision not in ("auto", *PRECISIONS):
        raise ValueError(f"precision={precision!r}: use auto, {', '.join(PRECISIONS)}")
    if quantization is not None and lora is None:
        raise ValueError(f"quantization={quantization!r} keeps the base's weights as they are: add lora=True")
    return place, str(choose_dtype(precision, chosen)).removeprefix("torch.")


def _check_spread(*, validated: bool, adapted: bool) -> None:
    """Refuse what can't be done while no process holds all weights: under FSDP and DeepSpeed's ZeRO-3.

    Raises:
        ValueError: before any work, with what to do instead.
    """
    fsdp = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    zero = os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true" and _zero_stage() == 3
    name = "FSDP" if fsdp else "ZeRO-3"
    if (fsdp or zero) and validated:
        raise ValueError(
            f"validation= can't be graded while {name} spreads the weights over processes: leave it out and grade the"
            " finished judge (load_judge(out / 'judge').grade(...)), or train under DDP or ZeRO-2, which grade"
        )
    if (fsdp or zero) and adapted:
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


def _judge(
    base: str | Path, rows: Sequence[Any], template: str | Template | None, held: Mapping[str, Any]
) -> tuple[Judge, Template]:
    """The base as a judge, and the wording for such rows."""
    judge = load_judge(base, template=template, **held)
    if not len(rows):
        raise CollectionError("the collection has no rows; check split= and limit=")
    first = rows[0]
    pairs = hasattr(first, "response_a") or (isinstance(first, Mapping) and "response_a" in first)
    if not pairs:
        return judge, judge.template
    if judge.pairs is None:
        raise ValueError(f"judge {str(base)!r} has no wording for pairs: give a template that compares")
    return judge, judge.pairs


def _arguments(
    recipe: Recipe, out: Path, n_rows: int, device: str, dtype: str, seed: int, *, evaluated: bool
) -> TrainingArguments:
    """transformers' arguments for a recipe on this machine.

    Raises:
        ValueError: the batch can't be divided among processes and rows at once, or accelerate is missing.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    at_once = min(recipe.rows_at_once or recipe.batch_size // processes or 1, recipe.batch_size)
    passes, rest = divmod(recipe.batch_size, at_once * processes)
    if rest:
        raise ValueError(
            f"batch_size={recipe.batch_size} is no multiple of {processes} process(es) times rows_at_once={at_once}"
        )
    steps, warmup = recipe.count_steps(n_rows)
    tenth = max(1, -(-steps // 10))
    try:
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
            optim=recipe.optimizer,
            bf16=dtype == "bfloat16",
            fp16=dtype == "float16" and device != "cpu",
            use_cpu=device == "cpu" and not os.environ.get("ACCELERATE_USE_FSDP"),
            seed=seed,
            data_seed=seed,
            logging_steps=recipe.log_every,
            logging_first_step=True,
            logging_nan_inf_filter=False,
            eval_strategy="steps" if evaluated else "no",
            eval_steps=recipe.evaluate_every or tenth,
            save_steps=recipe.checkpoint_every or tenth,
            save_total_limit=2,
            dataloader_num_workers=recipe.workers,
            dataloader_drop_last=False,
            remove_unused_columns=False,
            disable_tqdm=True,
            report_to=list(recipe.report_to) or "none",
            ddp_timeout=PATIENCE,
            ddp_find_unused_parameters="tower" not in recipe.freeze,
            accelerator_config={"even_batches": True, "split_batches": False},
        )
    except ImportError as error:
        raise ValueError(f"fine-tuning needs accelerate: {adapting.EXTRA}") from error
    arguments._n_gpu = min(1, arguments.n_gpu)  # one process, one device: more take a launcher
    return arguments


def _survey(items: Any, examples: Examples, validation: Any, recipe: Recipe, seed: int) -> dict[str, float]:
    """Look at the whole collection before anything is computed; everything that is wrong is said at once.

    As `items`, which are read many at a time, not as the rows of `examples`, which are read one by one.
    """
    coder, rows = examples.coder, examples.rows
    needs = () if recipe.shape == "description" else coder.template.needs
    problems: list[Problem] = []
    try:
        data.validate(items, needs=needs, sees_images=coder.sees)
    except CollectionError as error:
        if not error.problems:
            raise
        # What a row is not trained on may be missing: of one with texts of its own, and of a description, most.
        read = ("id", "images", *(["response"] if recipe.shape == "description" else []))
        problems += [
            problem
            for problem in error.problems
            if problem.field.partition("[")[0] in read
            or not (recipe.shape == "description" or has_own_texts(rows[problem.index]))
        ]
    seen = {(problem.index, problem.field.partition("[")[0]) for problem in problems}
    for index, row, why in examples.survey(data.rows_of(items)):
        field, _, rest = why.partition(": ")
        if (index, field) not in seen:
            what, _, remedy = rest.rpartition("; ")
            problems.append(Problem(index, str(id_of(row)), field, what or rest or why, remedy or "correct the row"))
    if problems:
        problems.sort(key=lambda problem: problem.index)
        n_bad = len({problem.index for problem in problems})
        raise CollectionError(f"{n_bad} of {len(examples)} rows can't be trained on:", problems)
    balance = check_balance(items, allow=recipe.allow, seed=seed)
    if validation is not None:
        balance["shared"] = float(check_leakage(items, validation, allow=recipe.allow))
    return balance


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
    if main and out.exists() and {path.name for path in out.iterdir()} - {LOG}:
        raise ValueError(f"{out} holds something else than a training: give an empty or new folder")
    if main:
        out.mkdir(parents=True, exist_ok=True)
        versions = {"vjudge": vjudge.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
        replace_file(file, json.dumps({"settings": settings, "versions": versions}, indent=2) + "\n")
    return False


# While it trains


class Network(nn.Module):
    """A judge's model with the loss on its answers: a batch in, the loss out.

    Images go through the family's own vision (`vjudge.engines.vision`), as in grading, and output weights are applied
    to the positions that carry loss alone.

    Args:
        judge: the loaded model; adapters may stand in it already.
        dtype: of products; weights that train are float32. accelerate's own autocast leaves a CPU in float32.
    """

    _keys_to_ignore_on_save = None

    def __init__(self, judge: VisionLanguageModel, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.model, self.dtype = judge.model, dtype
        self.vision = vision_of(judge.model, judge.image_processor) if judge.sees_images else None
        self.image_token_id = judge.image_token_id
        arguments = inspect.signature(self.model.forward).parameters
        self.chooses, self.takes_positions = "logits_to_keep" in arguments, "position_ids" in arguments

    @property
    def config(self) -> Any:
        """The model's configuration, for the trainer."""
        return self.model.config

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        labels: torch.Tensor,
        pictures: list[dict[str, Any]],
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> dict[str, torch.Tensor]:
        """The cross-entropy over labelled tokens, divided by `num_items_in_batch`, or by their number here."""
        with torch.autocast(input_ids.device.type, self.dtype, enabled=self.dtype != torch.float32):
            logits, truth = self._logits(input_ids, attention_mask, position_ids, labels, pictures)
        total = functional.cross_entropy(
            logits.flatten(0, 1).float(), truth.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        if self.vision is not None and not pictures and torch.distributed.is_initialized():
            # Every process must have a gradient for every weight that trains.
            unused = (p for name, p in self.named_parameters() if p.requires_grad and part_of(name) != "decoder")
            total = total + sum(p.sum() * 0 for p in unused)
        n = (labels[:, 1:] != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
        return {"loss": total / torch.as_tensor(n, device=total.device).clamp(min=1)}

    def _logits(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        positions: torch.Tensor,
        labels: torch.Tensor,
        pictures: list[dict[str, Any]],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores over the vocabulary and truth in the columns in which any row carries loss."""
        columns = (labels[:, 1:] != IGNORED).any(0).nonzero()[:, 0]
        if not len(columns):
            columns = columns.new_zeros(1)
        options: dict[str, Any] = {"position_ids": positions} if self.takes_positions else {}
        if self.chooses:
            options["logits_to_keep"] = columns
        inputs = self._embeddings(ids, pictures)
        logits = self.model(inputs_embeds=inputs, attention_mask=mask, use_cache=False, **options).logits
        return logits if self.chooses else logits[:, columns], labels[:, 1:][:, columns]

    def _embeddings(self, ids: torch.Tensor, pictures: list[dict[str, Any]]) -> torch.Tensor:
        """The embeddings (rows, tokens, hidden) of ids, with image features in the images' places, in order."""
        places = torch.zeros_like(ids, dtype=torch.bool) if self.image_token_id is None else ids == self.image_token_id
        inputs: torch.Tensor = self.model.get_input_embeddings()(ids.masked_fill(places, 0))
        if not pictures:
            return inputs
        assert self.vision is not None
        seen: dict[str, torch.Tensor] = {}  # rows of a batch share images; each alone, so that its bits are its own
        for picture in pictures:
            if "tiles" in picture:
                states = self.vision.encode(picture["tiles"])
                seen[picture["key"]] = self.vision.project(states, tuple(picture["size"]), picture["mode"])
        features = torch.cat([seen[picture["key"]] for picture in pictures])
        return inputs.masked_scatter(places.unsqueeze(-1), features.to(inputs))


class JudgeTrainer(OwnNames, Trainer):
    """transformers' Trainer for a `Network`.

    Args:
        network: what trains.
        examples, collator: what it trains on.
        recipe: rates of the parts, the order's grouping, how many rows may be left out.
        arguments: transformers' own.
        log: gets losses, evaluations and rows left out, of all processes, from the main one.
        grade: grades a part of the validation sample with the judge as it is, given its number and the number of parts:
            a run, None for a part without rows. None for no evaluation.
        best: where the best weights are kept.
        progress: whether to show a bar.
    """

    def __init__(
        self,
        network: Network,
        *,
        examples: Examples,
        collator: Collator,
        recipe: Recipe,
        arguments: TrainingArguments,
        log: RunLog,
        grade: Callable[[int, int], Any] | None,
        best: Path,
        progress: bool,
    ) -> None:
        self.recipe, self.run_log, self.grade, self.best, self.examples = recipe, log, grade, best, examples
        self.left_out = {problem.index: problem for problem in log.left_out()}
        self.matrices = {name for name, weight in network.named_parameters() if weight.ndim > 1}
        super().__init__(
            model=network,
            args=arguments,
            data_collator=collator,
            train_dataset=examples,
            eval_dataset=[] if grade else None,
            callbacks=[LastLog(), *([Bar()] if progress else [])],
        )
        self.remove_callback(transformers.PrinterCallback)  # the log has its own place
        self.model_accepts_loss_kwargs = True  # the loss is divided by the tokens of the whole step

    def _get_train_sampler(self, train_dataset: Any = None) -> Order:
        shape = dict(batch_size=self.recipe.batch_size, steps=self.args.max_steps, seed=self.args.seed)
        return Order(self.examples.lengths, grouped=self.recipe.group_by_length, **shape)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW with decay on matrices alone and each part's own rate."""
        trained: Any = model or self.model
        if self.optimizer is None:
            rates = {"projector": self.recipe.projector_lr, "tower": self.recipe.tower_lr}
            groups: dict[tuple[float, float], list[nn.Parameter]] = {}
            for name, weight in trained.named_parameters():
                if weight.requires_grad:  # a shard of FSDP is flat and does not tell a matrix
                    decay = self.recipe.weight_decay if plain_name(name) in self.matrices else 0.0
                    groups.setdefault((rates.get(part_of(name)) or self.recipe.lr, decay), []).append(weight)
            kind, options = self.get_optimizer_cls_and_kwargs(self.args, trained)
            sets = [{"params": weights, "lr": lr, "weight_decay": decay} for (lr, decay), weights in groups.items()]
            self.optimizer = kind(sets, **options)
        return self.optimizer

    def get_batch_samples(self, *args: Any, **options: Any) -> tuple[list[Any], Any]:
        """The batches of one step; rows that were left out of them are counted over all processes, named and logged.

        Raises:
            CollectionError: there are more of them than `max_bad_images`; in every process.
        """
        batches, n_tokens = super().get_batch_samples(*args, **options)
        faults = [problem for batch in batches for problem in batch.pop("faults", ())]
        for problem in gather_object(faults) if self.args.world_size > 1 else faults:
            if problem.index in self.left_out:
                continue
            self.left_out[problem.index] = problem
            if self.accelerator.is_main_process:
                self.run_log.write({"step": self.state.global_step + 1, LEFT_OUT: asdict(problem)})
        if len(self.left_out) > self.recipe.max_bad_images:
            raise CollectionError(
                f"{len(self.left_out)} rows had images that failed in training, more than"
                f" max_bad_images={self.recipe.max_bad_images}",
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
        state = f"the last good checkpoint is {last.name}" if last else "there is no checkpoint yet"
        raise FloatingPointError(
            f"step {self.state.global_step + 1}: {what}; {state}, and the call continues there. Lower lr, raise warmup,"
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
        metrics = graded(pd.concat([run[["score", "gold", "group"]] for run in runs if run is not None]))
        network.train()
        if self.accelerator.is_main_process:
            step = self.state.global_step
            self.run_log.write({"step": step, **metrics})
            earlier = [merit(e) for e in self.run_log.entries() if "parsed" in e and e["step"] < step]
            if merit(metrics) > max(earlier, default=-math.inf):
                save_weights(self.unwrapped, self.best, {"step": str(step)})
        self.accelerator.wait_for_everyone()
        figures = {f"eval_{name}": float(value) for name, value in metrics.items()}
        self.log(figures)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures

    @property
    def unwrapped(self) -> Network:
        """The network without what spreads it over devices."""
        inner: Network = self.accelerator.unwrap_model(self.model)
        return inner

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """To transformers' own trackers, and to the log file."""
        super().log(logs, start_time)
        if "loss" in logs and self.accelerator.is_main_process:
            step = self.state.global_step
            n = step * self.recipe.batch_size
            entry = {"step": step, "examples": n, "epoch": n / len(self.examples), "skipped": len(self.left_out)}
            self.run_log.write(
                entry | {name: logs[name] for name in ("loss", "grad_norm", "learning_rate") if name in logs}
            )


class LastLog(TrainerCallback):
    """The last step stands in the log, whatever its number."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_log |= state.global_step >= state.max_steps


class Bar(TrainerCallback):
    """A bar over the steps, with the last loss and correlation."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        from tqdm.auto import tqdm

        self.bar = tqdm(total=state.max_steps, initial=state.global_step, desc="fine-tuning", unit="step")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.update()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if hasattr(self, "bar"):
            self.bar.set_postfix({name: f"{logs[name]:.3g}" for name in ("loss", "eval_pearson") if name in logs})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.close()


def _grader(
    judge: Judge, validation: Any, wording: Template, shape: str, examples: Examples
) -> Callable[[int, int], Any]:
    """Grade the validation sample as the judge will be used; a score without feedback before it in score mode.

    An answer may be a quarter longer than the longest that was trained on: a base that never ends would take minutes.
    """
    if wording.compares:
        raise ValueError("validation: pairs are not graded during training; compare with the judge afterwards")
    mode = "feedback" if shape == "feedback" else "score"
    limit = examples.longest_answer + examples.longest_answer // 4 + 8
    rows = data.rows_of(validation)

    def grade(part: int, parts: int) -> Any:
        first, after = len(rows) * part // parts, len(rows) * (part + 1) // parts  # neighbours share images
        if first == after:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that verdicts can't be read is what `parsed` says
            mine = validation if parts == 1 else [rows[index] for index in range(first, after)]
            return judge.grade(mine, mode=mode, max_new_tokens=limit, progress=False)

    return grade


def graded(run: Any) -> dict[str, float]:
    """A run of the validation sample in numbers: pearson with low and high, parsed (share of verdicts), n."""
    figures = dict.fromkeys(("pearson", "low", "high"), math.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # undefined is said by NaN
        if run["score"].notna().sum() > 2:
            table = correlate(run["score"], run["gold"], groups=run["group"], n_resamples=1_000)
            row = table.loc["pearson"]
            figures = {"pearson": float(row["estimate"]), "low": float(row["low"]), "high": float(row["high"])}
    return {**figures, "parsed": float(run["score"].notna().mean()), "n": len(run)}


def merit(metrics: Mapping[str, float]) -> float:
    """What the best checkpoint has most of: correlation times readable share; a verdict nobody can read agrees with
    nothing. Undefined correlation counts as -1."""
    pearson = metrics["pearson"]
    return -1.0 + metrics["parsed"] if math.isnan(pearson) else pearson * metrics["parsed"]


def _result(log: RunLog, warmup: int, moved: dict[str, float]) -> dict[str, Any]:
    """What a training came to: steps, losses, how far weights moved, and the sentence if nothing was learned."""
    losses = [(entry["step"], entry["loss"]) for entry in log.entries() if "loss" in entry]
    lesson = lesson_line(losses, warmup=warmup, moved=moved)
    ends = {"loss_first": losses[0][1], "loss_last": losses[-1][1], "loss": mean_loss(losses)}
    return {"steps": losses[-1][0], **ends, **moved, "lesson": lesson}
