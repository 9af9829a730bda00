"""fine_tune: a base and a collection in, a judge out, by transformers' Trainer and peft."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, Trainer, TrainingArguments

import vjudge
from vjudge import data
from vjudge.judge import load_judge
from vjudge.metrics import correlate
from vjudge.models import locate
from vjudge.models.find import find
from vjudge.models.placement import choose_device, choose_dtype
from vjudge.prompts import Template, families
from vjudge.runs import replace_file
from vjudge.training import weights
from vjudge.training.checks import check_balance, check_leakage, survey
from vjudge.training.collate import Examples, answer_loss, encode_pictures, training_order
from vjudge.training.recipes import Recipe, recipe_of

MANIFEST = "manifest.json"
LOG = "training_log.jsonl"
BEST = "best.safetensors"
FALL = 0.98  # a loss that ends above this share of the one at the start did not fall
FREE = ("checkpoint_every", "log_every", "workers", "allow", "source")  # no weight depends on them
COMPARED = (  # their tokens, labels and loss are compared with their own processors' and classes'
    *("llava", "llava_onevision", "llava_next", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"),
    *("internvl", "idefics3", "gemma3"),
)
SPREAD = ("FSDP", "DEEPSPEED")
ALWAYS: dict[str, Any] = {
    "save_total_limit": 2,
    "remove_unused_columns": False,
    "report_to": "none",
    "logging_first_step": True,
    "logging_nan_inf_filter": False,
    "train_sampling_strategy": "sequential",
    "ddp_find_unused_parameters": True,  # rows without images leave the projector no gradient
    "ddp_timeout": 6 * 3600,  # while one process grades or writes 13B weights
}
CARD = """---
tags: [vision-language-model-as-a-judge]
base_model: {base}
---
# {name}: a judge fine-tuned with vjudge

Source of its recipe: {source}. What came of the training stands under "result":

```json
{manifest}
```
"""


def fine_tune(
    base: str | Path,
    items: Any,
    *,
    out: str | Path,
    recipe: str | Recipe | None = None,
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
    """Fine-tune a judge on a collection, with the loss on feedback and verdict alone.

    The same call continues where it was cut off, and ends in the same weights (float32, same
    machine and versions); it runs alike under `accelerate launch` and `torchrun`. What trains is
    float32.

    Args:
        base: any model that `load_judge` loads here: a LLaVA, a chat model, a language model.
        items: items, or pairs; a row with its own `prompt` and `target` needs no other texts.
        out: a folder for checkpoints, `training_log.jsonl`, `manifest.json` and the judge.
        recipe: a name in `RECIPES`, or a `Recipe`; None takes "chat" for a chat model with a
            processor of its own, else "prometheus-vision", with adapters their "-lora".
        template: the wording to train; None takes the base's own, as `load_judge` does.
        validation: held-out items (compared for leakage), graded while it trains; the weights with
            the best correlation times share of readable verdicts become the judge.
        lora: adapters on the decoder: True, or options of `peft.LoraConfig` such as {"r": 16},
            beside which "merge" says whether they go into the stored weights (by default unless
            the base is quantised). None: in full.
        quantization: "4bit" or "8bit" for the base under adapters (QLoRA); needs bitsandbytes.
        device: "auto", "cpu", "cuda" or "mps"; under a launcher each process takes its own.
        precision: "auto", "float32", "bfloat16" or "float16": of products, and of a base's weights
            under adapters.
        seed: of the order, of dropout and of adapters' first values.
        on_log: called with every new entry of the log.
        progress: whether to show a bar.
        changes: fields of the recipe, such as steps=200 or freeze=["tower"].

    Returns:
        The folder of the judge. `manifest.json` beside it says under "result" how the loss fell
        and how far the weights moved; a training that taught nothing that shows ends in a warning.
        A line of the log has step, seconds, and of losses loss, grad_norm and learning_rate, of
        evaluations pearson with low and high (95 %), parsed (share of readable verdicts) and n.

    Raises:
        CollectionError: rows that can't be trained on, all of them; a collection that is
            unbalanced or leaks.
        TypeError: a name that is neither an argument nor a field of `Recipe`.
        ValueError: an unsound option; a folder of another training.
        FloatingPointError: a gradient that is no number; the last good checkpoint stays.
    """
    # 1) the recipe, and the base in its precision
    adapters, merge = _adapters(lora, quantization)
    chat = find(locate(base)).kind == "chat"
    recipe = recipe_of(recipe, changes, chat=chat, adapters=adapters is not None)
    if adapters is not None:
        own = {"r": recipe.rank, "lora_alpha": recipe.alpha, "lora_dropout": recipe.dropout}
        adapters = own | adapters
    _check_spread(validation, adapters)
    place, dtype = _place(device, precision)
    held = "float32" if adapters is None else dtype
    judge: Any = load_judge(
        base, template=template, device=place, dtype=held, quantization=quantization
    )
    model = judge.engine.model

    # 2) the rows, each looked at before anything is computed
    out = Path(out).expanduser()
    rows = data.rows_of(items)
    if not len(rows):
        raise data.CollectionError("the collection has no rows; check split= and limit=")
    wording = _wording(judge, rows, validation)
    arguments = _arguments(
        recipe, out, len(rows), place, dtype, seed=seed, disable_tqdm=not progress
    )
    examples = Examples(rows, model, wording, shape=recipe.shape, max_length=recipe.max_length)
    transformers.set_seed(seed)
    network = weights.prepare(model, freeze=recipe.freeze, lora=adapters)
    lengths, longest_answer = survey(items, examples)
    if validation is not None:
        check_leakage(items, validation, allow=recipe.allow)
    balance = check_balance(items, allow=recipe.allow)

    # 3) what the folder holds already
    settings = {
        "base": str(base),
        "base_weights": judge.engine.identity()["weights"],
        "seed": seed,
        "rows": len(rows),
        "template": wording.fingerprint(),
        "collection": data.fingerprint(items),
        "recipe": {name: value for name, value in asdict(recipe).items() if name not in FREE},
        "lora": adapters,
        "merge": merge,
        "quantization": quantization,
        "precision": dtype,
        "processes": arguments.world_size,
    }
    if _is_done(out, settings, main=arguments.process_index == 0):
        return out / "judge"

    # 4) train
    if recipe.gradient_checkpointing:
        model.model.gradient_checkpointing_enable({"use_reentrant": False})
    order = training_order(
        lengths, batch_size=recipe.batch_size, steps=arguments.max_steps, seed=seed
    )
    trainer = JudgeTrainer(network, arguments, examples, order, recipe, dtype, on_log)
    if validation is not None:
        trainer.grade = partial(
            judge.grade,
            validation,
            progress=False,
            mode="feedback" if recipe.shape == "feedback" else "score",
            max_new_tokens=longest_answer * 5 // 4 + 8,  # a base that never ends takes minutes
        )
    before = weights.weight_samples(network)
    trainer.go_on(model)

    # 5) store the judge
    state = trainer.whole_state()
    if arguments.process_index == 0:
        result = trainer.result(before, state) | balance
        _store(network, model, out / "judge", state, base=base, merge=merge)
        _describe(out, wording, result, base=base, source=recipe.source)
    trainer.accelerator.wait_for_everyone()
    return out / "judge"


def _adapters(
    lora: bool | Mapping[str, Any] | None, quantization: str | None
) -> tuple[dict[str, Any] | None, bool | None]:
    """The options of adapters, and whether to merge them; None, None for a training in full."""
    if lora is None or lora is False:
        if quantization is not None:
            raise ValueError(
                f"quantization={quantization!r} keeps the base's weights: add lora=True"
            )
        return None, None
    options = {} if lora is True else dict(lora)
    merge = bool(options.pop("merge", quantization is None))
    return options, merge


def _check_spread(validation: Any, adapters: Any) -> None:
    """Refuse what weights that are spread over processes cannot do."""
    on = {name: os.environ.get(f"ACCELERATE_USE_{name}", "").lower() == "true" for name in SPREAD}
    stage = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE")
    spread = on["FSDP"] or (on["DEEPSPEED"] and stage == "3")
    if spread and (validation is not None or adapters is not None):
        raise ValueError(
            "FSDP and ZeRO-3 spread the weights over processes, which takes no validation= and no"
            " lora=: grade the finished judge, and train adapters under DDP (launch/ddp.yaml)"
        )


def _place(device: str, precision: str) -> tuple[str, str]:
    """This process's device, and the precision of its products."""
    chosen = choose_device(device)
    dtype = str(choose_dtype(precision, chosen)).removeprefix("torch.")
    rank = os.environ.get("LOCAL_RANK")
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        return "cpu", dtype  # each process moves its shards
    if rank is not None and chosen.type == "cuda":
        return f"cuda:{rank}", dtype
    return str(chosen), dtype


def _wording(judge: Any, rows: Sequence[Any], validation: Any) -> Template:
    """The judge's wording for these rows; a warning where its architecture was not compared."""
    model = judge.engine.model
    kind = model.model.config.model_type
    if model.sees_images and kind not in COMPARED:
        warnings.warn(
            f"nobody has compared the training of {kind!r} with its own processor and loss",
            stacklevel=3,
        )
    if "response_a" not in rows[0]:
        return judge.template
    if validation is not None:
        raise ValueError(
            "validation: pairs are not graded during training; compare with the judge afterwards"
        )
    return judge.wording_of_pairs()


def _arguments(
    recipe: Recipe, out: Path, n_rows: int, device: str, dtype: str, **options: Any
) -> TrainingArguments:
    """transformers' arguments for a recipe on this machine."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    at_once = min(recipe.rows_at_once or recipe.batch_size // processes or 1, recipe.batch_size)
    passes, rest = divmod(recipe.batch_size, at_once * processes)
    if rest:
        raise ValueError(
            f"batch_size={recipe.batch_size} is no multiple of {processes} process(es) times"
            f" {at_once}"
        )
    steps = recipe.steps
    if steps is None:
        steps = max(1, round(recipe.epochs * math.ceil(n_rows / recipe.batch_size)))
    tenth = math.ceil(steps / 10)
    arguments = TrainingArguments(
        str(out / "checkpoints"),
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
        dataloader_num_workers=recipe.workers,
        logging_steps=recipe.log_every,
        eval_steps=recipe.evaluate_every or tenth,
        save_steps=recipe.checkpoint_every or tenth,
        bf16=dtype == "bfloat16",
        fp16=dtype == "float16" and device != "cpu",
        use_cpu=device == "cpu" and not os.environ.get("ACCELERATE_USE_FSDP"),
        **ALWAYS,
        **options,
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # one process, one device: more take a launcher
    return arguments


def _is_done(out: Path, settings: dict[str, Any], *, main: bool) -> bool:
    """Whether the judge is there already; refuses a folder that holds another training."""
    file = out / MANIFEST
    if file.is_file():
        before = json.loads(file.read_text(encoding="utf-8"))["settings"]
        now = json.loads(json.dumps(settings))
        changed = [name for name in now if before.get(name) != now[name]]
        if changed:
            lines = [f"{name} was {before.get(name)!r} and is {now[name]!r}" for name in changed]
            raise ValueError(
                f"{out} holds another training ({'; '.join(lines)}): give another out=, or remove"
                " it"
            )
    elif main:
        if out.exists() and any(out.iterdir()):
            raise ValueError(
                f"{out} holds something else than a training: give an empty or new folder"
            )
        out.mkdir(parents=True, exist_ok=True)
        versions = {module.__name__: module.__version__ for module in (vjudge, torch, transformers)}
        replace_file(file, json.dumps({"settings": settings, "versions": versions}, indent=2))
    return (out / "judge" / "README.md").is_file()


class JudgeTrainer(weights.OwnCheckpoints, Trainer):
    """transformers' Trainer on `Examples` in a given order; `grade` gives a validation run."""

    model: Any
    grade: Callable[[], Any] | None = None

    def __init__(
        self,
        network: Any,
        arguments: TrainingArguments,
        examples: Examples,
        order: list[int],
        recipe: Recipe,
        dtype: str,
        on_log: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        super().__init__(
            network,
            arguments,
            data_collator=examples.collate,
            train_dataset=order,
            compute_loss_func=answer_loss,
        )
        self.remove_callback(transformers.PrinterCallback)  # the log has its own place
        self.recipe = recipe
        self.dtype = getattr(torch, dtype)
        self.out = Path(str(arguments.output_dir)).parent
        self.on_log = on_log
        self.began = time.monotonic()

    def go_on(self, model: Any) -> None:
        """Train from the last checkpoint, else from the start, and take the best weights."""
        last = weights.last_checkpoint(Path(str(self.args.output_dir)))
        self.args.distributed_state.wait_for_everyone()  # all look before one writes a checkpoint
        if self.grade is not None:
            self.args.eval_strategy = transformers.IntervalStrategy.STEPS
            self.args.eval_on_start = last is None
        hook = encode_pictures(model)
        self.train(resume_from_checkpoint=last)
        hook.remove()
        best = self.out / BEST
        if best.is_file():
            weights.load_weights(self.model, best)
        self.model.eval()

    def whole_state(self) -> dict[str, Any]:
        """The network's weights, of all processes where they are spread."""
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            return self.accelerator.get_state_dict(self.model_wrapped)
        return self.model.state_dict()

    def result(self, before: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """What the training came to; `lesson` is a sentence where it taught nothing that shows."""
        moved = weights.movement(before, state)
        return {"steps": self.state.global_step, **outcome(self.state.log_history, moved)}

    def compute_loss_context_manager(self) -> Any:
        """Products in the recipe's precision, also where accelerate has no autocast for it."""
        enabled = self.dtype != torch.float32
        return torch.autocast(self.args.device.type, self.dtype, enabled=enabled)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW with transformers' choice of what decays, and each part's own rate."""
        if self.optimizer is not None:
            return self.optimizer
        trained: Any = model or self.model
        decaying = set(self.get_decay_parameter_names(trained))
        rates = {"projector": self.recipe.projector_lr, "tower": self.recipe.tower_lr}
        groups: dict[tuple[float, float], list[Any]] = {}
        for name, weight in trained.named_parameters():
            if weight.requires_grad:
                rate = rates.get(weights.part_of(name)) or self.recipe.lr
                decay = self.recipe.weight_decay if name in decaying else 0.0
                groups.setdefault((rate, decay), []).append(weight)
        kind, options = self.get_optimizer_cls_and_kwargs(self.args, trained)
        sets = []
        for (rate, decay), params in groups.items():
            sets.append({"params": params, "lr": rate, "weight_decay": decay})
        self.optimizer = kind(sets, **options)
        return self.optimizer

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """The norm over all processes; one that is no number ends the training before a step."""
        norm = super()._get_grad_norm(model, grad_norm)
        scaled = self.accelerator.scaler is not None  # a scaler skips the step
        if norm is not None and not scaled and not math.isfinite(norm):
            raise FloatingPointError(
                f"step {self.state.global_step + 1}: the gradient's norm is {float(norm)}; the call"
                " continues from the last checkpoint. Lower lr, raise warmup, or use another"
                " precision"
            )
        return norm

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        """Grade the validation sample, log how it went, and keep the best weights so far.

        They have the greatest correlation (-1 where it is undefined) times share of readable
        verdicts.
        """
        if self.is_world_process_zero() and self.grade is not None:
            self.model.eval()
            with warnings.catch_warnings(), self.compute_loss_context_manager():
                warnings.simplefilter("ignore")  # that verdicts can't be read is what `parsed` says
                run = self.grade()
                table = correlate(run["score"], run["gold"], groups=run["group"], n_resamples=1_000)
            self.model.train()
            entry = table.loc["pearson", ["estimate", "low", "high"]].astype(float)
            pearson = entry.pop("estimate")
            parsed = float(run["score"].notna().mean())
            merit = (-1.0 if math.isnan(pearson) else pearson) * parsed
            if self.state.best_metric is None or merit > self.state.best_metric:
                self.state.best_metric = merit
                weights.save_weights(self.model, self.out / BEST)
            self.log({"pearson": pearson, **entry, "parsed": parsed, "n": len(run)})
        self.control.should_evaluate = False
        self.accelerator.wait_for_everyone()
        return {}

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """To transformers' record, and losses and evaluations to the log file and `on_log`."""
        seconds = round(time.monotonic() - self.began, 3)
        super().log({**logs, "seconds": seconds}, start_time)
        history = self.state.log_history
        history[-1].pop("epoch", None)  # of the order, which is all epochs
        entries = [entry for entry in history if "loss" in entry or "parsed" in entry]
        if self.is_world_process_zero() and entries and entries[-1] is history[-1]:
            lines = [json.dumps(entry) + "\n" for entry in entries]
            replace_file(self.out / LOG, "".join(lines))
            if self.on_log is not None:
                self.on_log(entries[-1])


def outcome(log: Sequence[Mapping[str, Any]], moved: Mapping[str, float]) -> dict[str, Any]:
    """loss_first, loss_last, changed, relative, and lesson: a sentence where none shows."""
    losses = [entry["loss"] for entry in log if "loss" in entry]
    tenth = max(1, len(losses) // 10)
    first = sum(losses[:tenth]) / tenth
    last = sum(losses[-tenth:]) / tenth
    faults = []
    if last >= FALL * first:
        faults.append(f"the loss was {first:.3f} first, {last:.3f} last, {len(losses)} logged")
    still = weights.movement_line(moved)
    if still:
        faults.append(still)
    lesson = f"nothing was learned that shows: {'; '.join(faults)}" if faults else None
    return {"loss_first": losses[0], "loss_last": losses[-1], **moved, "lesson": lesson}


def _store(
    network: Any, model: Any, folder: Path, state: Any, *, base: str | Path, merge: bool | None
) -> None:
    """Write a trained judge for `load_judge`: whole weights, or adapters alone."""
    shutil.rmtree(folder, ignore_errors=True)
    if merge is False:
        weights.save_adapters(network, base, folder)
        return
    dtype = AutoConfig.from_pretrained(model.folder).dtype
    if merge:
        aside = folder.with_name("adapters")
        network = weights.merged(network, base, aside, dtype=dtype or torch.bfloat16)
        state = None
    weights.write_checkpoint(network, model.folder, folder, state=state, dtype=dtype)


def _describe(
    out: Path, wording: Template, result: dict[str, Any], *, base: str | Path, source: str
) -> None:
    """Write the wording, the result and the card; a card stands where a training is done."""
    folder = out / "judge"
    families.record(folder, wording)
    file = out / MANIFEST
    stored = json.loads(file.read_text(encoding="utf-8"))
    manifest = json.dumps(stored | {"result": result}, indent=2)
    replace_file(file, manifest + "\n")
    card = CARD.format(base=base, name=out.name, source=source, manifest=manifest)
    (folder / "README.md").write_text(card, encoding="utf-8")
    if result["lesson"]:
        warnings.warn(f"{out}: {result['lesson']}", stacklevel=3)
