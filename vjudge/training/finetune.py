"""fine_tune: a base and a collection in, a judge out, by transformers' Trainer and peft."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from transformers import AutoConfig, PreTrainedModel, TrainingArguments

from vjudge import data
from vjudge.data.notes import warn
from vjudge.data.rows import Rows
from vjudge.data.schema import Items
from vjudge.judging.judge import Judge
from vjudge.judging.loading import load_judge
from vjudge.judging.record import replace_file
from vjudge.judging.runs import MANIFEST
from vjudge.models import VisionLanguageModel, locate
from vjudge.models.find import find_checkpoint
from vjudge.models.placement import choose_device, choose_dtype
from vjudge.prompts import Template, families
from vjudge.training import weights
from vjudge.training.checks import check_balance, check_leakage, survey, with_truth
from vjudge.training.collate import Examples
from vjudge.training.recipes import Plan, Recipe, recipe_of
from vjudge.training.trainer import JudgeTrainer

# Fields of a recipe that change no weight: a training may continue with other values of them.
FREE = ("checkpoint_every", "log_every", "allow", "source")
# Architectures whose tokens, labels and loss equal those of their own processors and classes.
VERIFIED_KINDS = (
    "llava llava_onevision llava_next qwen2_vl qwen2_5_vl qwen3_vl internvl idefics3 gemma3"
).split()
ALWAYS: dict = {  # transformers' arguments that are the same in every training
    "save_total_limit": 2,
    "remove_unused_columns": False,
    "report_to": "none",
    "logging_first_step": True,
    "logging_nan_inf_filter": False,
    "train_sampling_strategy": "sequential",
    "ddp_find_unused_parameters": True,  # rows without images leave the projector no gradient
    "ddp_timeout": 6 * 3600,  # seconds that processes wait while one grades or writes 13B weights
}
CARD = """---
tags: [vision-language-model-as-a-judge]
base_model: {plan.base}
---
# {name}: a judge fine-tuned with vjudge

Source of its recipe: {plan.recipe.source}. The outcome of the training is under "result":

```json
{manifest}
```
"""


def fine_tune(
    base: str | Path,
    items: Items,
    *,
    out: str | Path,
    recipe: str | Recipe | None = None,
    template: str | Template | None = None,
    validation: Items | None = None,
    truth: Literal["gold", "people"] = "gold",
    lora: bool | Mapping | None = None,
    quantization: str | None = None,
    device: str = "auto",
    precision: str = "auto",
    seed: int = 0,
    on_log: Callable[[dict], None] | None = None,
    progress: bool = True,
    **changes: Any,
) -> Path:
    """Fine-tune a judge on a collection, with the loss on feedback and verdict alone.

    The same call continues an interrupted training, and ends in the same weights as an
    uninterrupted one (float32, same machine and versions). It works the same under `accelerate
    launch` and `torchrun`. Weights that train are in float32.

    Args:
        base: any model that `load_judge` loads on this machine: a LLaVA, a chat model, a language
            model. Adapters without their base are first merged with it, into whole weights beside
            `out`.
        items: items, or pairs; a row with its own `prompt` and `target` needs no other texts.
        out: a folder for checkpoints, `training_log.jsonl`, `manifest.json` and the judge.
        recipe: a name in `RECIPES`, or a `Recipe`; None takes "chat" for a chat model with a
            processor of its own, else "prometheus-vision"; with adapters "chat-lora" or
            "prometheus-vision-lora".
        template: the prompt template to train; None takes the base's own, as `load_judge` does.
        validation: held-out items. They are compared with `items` for leakage, and graded during
            training; the weights with the highest correlation times share of readable verdicts
            become the judge.
        truth: "gold", or "people" for the mean of `human_scores`: rounded to a whole score, halves
            up, as the training target (the manifest counts the rounded ones), unrounded in
            `validation`.
        lora: adapters on the decoder: True, or options of `peft.LoraConfig` such as {"r": 16}. The
            further option "merge" says whether adapters are merged into the stored weights (by
            default unless the base is quantised). None trains the weights themselves.
        quantization: "4bit" or "8bit" for the base under adapters (QLoRA); needs bitsandbytes.
        device: "auto", "cpu", "cuda" or "mps"; under a launcher each process takes its own.
        precision: "auto", "float32", "bfloat16" or "float16": of matrix products, and of a base's
            weights under adapters.
        seed: of the order of rows, of dropout and of the adapters' initial values.
        on_log: a function that is called with every new entry of the log.
        progress: whether to show a bar.
        changes: fields of the recipe, such as steps=200 or freeze=["tower"].

    Returns:
        The folder of the judge. `manifest.json` beside it says under "result" how the loss fell;
        where it did not, a warning says so too.
        An entry of the log has step and seconds; for losses loss, grad_norm and learning_rate; for
        evaluations pearson with low and high (95 %), parsed (share of readable verdicts) and n.

    Raises:
        CollectionError: every row that cannot be trained on; a collection that is unbalanced or
            leaks.
        TypeError: a name that is neither an argument nor a field of `Recipe`.
        ValueError: an invalid option; a folder that holds another training.
        FloatingPointError: the loss is NaN or infinite; the last checkpoint stays.
    """
    # 1) the options, and the base as a judge
    base = weights.whole_base(base, out)
    items, validation, account = with_truth(items, validation, truth)
    plan = _settle(base, recipe, changes, lora, quantization, device, precision, seed)
    judge = _load(plan, template, validation)

    # 2) the rows, all checked before anything is computed
    out = Path(out).expanduser()
    rows = data.rows_of(items)
    _check_template(template, rows.columns)
    examples = _examples(judge, rows, validation, plan.recipe)
    arguments = _arguments(plan, out, len(rows), progress)
    transformers.set_seed(seed)
    network = weights.settle_weights(judge.engine.model, freeze=plan.recipe.freeze, lora=plan.lora)
    lengths, longest_answer = survey(items, examples)
    if validation is not None:
        check_leakage(items, validation, allow=plan.recipe.allow)
    account |= check_balance(items, allow=plan.recipe.allow)

    # 3) the manifest in the folder; one with a result is of a finished training, which is not
    #    repeated
    settings = _settings(plan, judge, examples, items, arguments)
    record = weights.claim(out / MANIFEST, settings, begin=arguments.process_index == 0)
    if "result" in record:
        return out / "judge"

    # 4) the training
    trainer = JudgeTrainer(network, arguments, examples, lengths, plan, on_log)
    if validation is not None:
        trainer.grade = _grading(judge, validation, plan.recipe, longest_answer)
    trainer.resume(judge.engine.model)

    # 5) the judge's files
    _store(trainer, judge.engine.model, record, account, out)
    return out / "judge"


# -- the options


def _uses_fsdp() -> bool:
    """Tell whether accelerate's launcher was told to shard the weights over processes (FSDP)."""
    return "ACCELERATE_USE_FSDP" in os.environ


def _settle(
    base: str | Path,
    recipe: str | Recipe | None,
    changes: Mapping,
    lora: bool | Mapping | None,
    quantization: str | None,
    device: str,
    precision: str,
    seed: int,
) -> Plan:
    """Fill in the defaults of all options; the arguments are those of `fine_tune`.

    Raises:
        TypeError, ValueError: an option that is invalid, or that another one excludes.
    """
    adapted = lora not in (None, False)
    if adapted and lora is not True and not isinstance(lora, Mapping):
        raise ValueError(f"lora={lora!r}: use True, or options of peft.LoraConfig")
    if quantization is not None and not adapted:
        raise ValueError(f"quantization={quantization!r} keeps the base's weights: add lora=True")
    chat = find_checkpoint(locate(base)).kind == "chat"
    recipe = recipe_of(recipe, changes, chat=chat, adapters=adapted)
    device, dtype = _place(device, precision)
    plan = Plan(
        str(base), recipe, quantization=quantization, device=device, precision=dtype, seed=seed
    )
    if not adapted:
        return plan
    options = {"r": recipe.rank, "lora_alpha": recipe.alpha, "lora_dropout": recipe.dropout}
    if isinstance(lora, Mapping):
        options |= lora
    merge = bool(options.pop("merge", quantization is None))
    return replace(plan, lora=options, merge=merge)


def _check_template(template: str | Template | None, columns: Collection[str]) -> None:
    """Refuse a prompt template for one response where rows hold two, and the reverse.

    Args:
        template: as for `fine_tune`; None, the base's own, always passes.
        columns: of the rows. Rows without a response have their own prompts, and pass.
    """
    if template is None:
        return
    wording = families.wording(template)
    pairs = "response_a" in columns
    if not pairs and "response" not in columns:
        return
    if wording.compares != pairs:
        shows = "two responses" if wording.compares else "one response"
        raise ValueError(f"template: {wording.name!r} shows {shows}, and the rows do not")


def _place(device: str, precision: str) -> tuple[str, str]:
    """Choose this process's device, and the precision of its matrix products.

    Args:
        device, precision: as for `fine_tune`.

    Returns:
        Both by name, such as ("cuda:1", "bfloat16").
    """
    chosen = choose_device(device)
    dtype = str(choose_dtype(precision, chosen)).removeprefix("torch.")
    if _uses_fsdp():
        return "cpu", dtype  # the trainer moves each process's shards to its device
    # Launchers number the processes of a machine; each one takes the GPU of its number.
    if "LOCAL_RANK" in os.environ and chosen.type == "cuda":
        return f"cuda:{os.environ['LOCAL_RANK']}", dtype
    return str(chosen), dtype


def _load(plan: Plan, template: str | Template | None, validation: Items | None) -> Any:
    """Load the base as a judge, in float32 where its own weights train.

    Args:
        plan: of the training.
        template, validation: as for `fine_tune`.

    Raises:
        ValueError: FSDP together with validation or adapters.
    """
    if _uses_fsdp() and (validation is not None or plan.lora is not None):
        raise ValueError(
            "FSDP spreads the weights over processes, which takes no validation= and no lora=:"
            " grade the finished judge, and train adapters under DDP (launch/ddp.yaml)"
        )
    return load_judge(
        plan.base,
        template=template,
        device=plan.device,
        dtype="float32" if plan.lora is None else plan.precision,
        quantization=plan.quantization,
    )


# -- the rows


def _examples(judge: Any, rows: Rows, validation: Items | None, recipe: Recipe) -> Examples:
    """Make the training examples of rows, in the judge's prompt template for items or for pairs.

    Warns where the training of the judge's architecture was never compared with the original's.

    Args:
        judge: the base.
        rows: canonical rows.
        validation: as for `fine_tune`.
        recipe: of the training.

    Raises:
        ValueError: validation rows together with pairs.
    """
    model = judge.engine.model
    kind = model.model.config.model_type
    if model.sees_images and kind not in VERIFIED_KINDS:
        warn(f"nobody has compared the training of {kind!r} with its own processor and loss")
    template = judge.template
    if "response_a" in rows.columns:
        template = judge.wording_of_pairs()
        if validation is not None:
            raise ValueError(
                "validation: pairs are not graded during training; compare with the judge"
                " afterwards"
            )
    return Examples(rows, model, template, shape=recipe.shape, max_length=recipe.max_length)


def _settings(
    plan: Plan, judge: Judge, examples: Examples, items: Items, arguments: TrainingArguments
) -> dict:
    """Return all that the trained weights depend on, to tell this training from another one.

    The device is left out: a training may continue on another one.
    """
    settings = asdict(plan)
    del settings["device"]
    for name in FREE:
        del settings["recipe"][name]
    return settings | {
        "base_weights": judge.engine.identity()["checkpoint"],
        "template": examples.template.fingerprint(),
        "collection": data.fingerprint(items),
        "processes": arguments.world_size,
    }


# -- the training


def _arguments(plan: Plan, out: Path, n_rows: int, progress: bool) -> TrainingArguments:
    """Translate a plan into transformers' arguments on this machine.

    Args:
        plan: of the training.
        out: its folder.
        n_rows: rows of the collection, which decide the number of steps where the recipe does not.
        progress: whether to show a bar.
    """
    recipe = plan.recipe
    rows_at_once, passes = _batches(recipe)
    steps = recipe.steps
    if steps is None:
        steps = max(1, round(recipe.epochs * math.ceil(n_rows / recipe.batch_size)))
    tenth = math.ceil(steps / 10)  # the default interval between evaluations, and checkpoints
    arguments = TrainingArguments(
        str(out / "checkpoints"),
        per_device_train_batch_size=rows_at_once,
        gradient_accumulation_steps=passes,
        max_steps=steps,
        learning_rate=recipe.lr,
        lr_scheduler_type=recipe.schedule,
        warmup_steps=recipe.warmup,  # transformers, too, takes a number below 1 as a share
        weight_decay=recipe.weight_decay,
        adam_beta1=recipe.betas[0],
        adam_beta2=recipe.betas[1],
        max_grad_norm=recipe.clip,
        logging_steps=recipe.log_every,
        eval_steps=recipe.evaluate_every or tenth,
        save_steps=recipe.checkpoint_every or tenth,
        bf16=plan.precision == "bfloat16",
        fp16=plan.precision == "float16" and plan.device != "cpu",
        use_cpu=plan.device == "cpu" and not _uses_fsdp(),
        seed=plan.seed,
        disable_tqdm=not progress,
        **ALWAYS,
    )
    # One device per process; without this, transformers would use all GPUs of the machine.
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def _batches(recipe: Recipe) -> tuple[int, int]:
    """Split the batch of one optimiser step over processes and forward passes.

    Returns:
        The rows of one forward pass of one process, and how many passes make an optimiser step:
        batch_size = processes x rows x passes.

    Raises:
        ValueError: the batch cannot be split evenly.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    rows_at_once = recipe.rows_at_once or max(1, recipe.batch_size // processes)
    passes, remainder = divmod(recipe.batch_size, rows_at_once * processes)
    if remainder:
        raise ValueError(
            f"batch_size={recipe.batch_size} is no multiple of {processes} process(es) times"
            f" {rows_at_once}"
        )
    return rows_at_once, passes


def _grading(
    judge: Judge, validation: Items | None, recipe: Recipe, longest_answer: int
) -> Callable[[], Any]:
    """Make a function that grades the validation rows with the judge's present weights.

    Args:
        judge: the base, whose network trains.
        validation: as for `fine_tune`.
        recipe: of the training.
        longest_answer: tokens of the longest answer in training.

    Returns:
        A function without arguments that returns a run.
    """
    return partial(
        judge.grade,
        validation,
        progress=False,
        mode="feedback" if recipe.shape == "feedback" else "score",  # as the answers are trained
        # A quarter and eight tokens more than the longest answer in training. Without this limit a
        # base that never ends an answer would take minutes.
        max_new_tokens=longest_answer * 5 // 4 + 8,
    )


# -- the judge


def _store(
    trainer: JudgeTrainer, model: VisionLanguageModel, record: dict, account: dict, out: Path
) -> None:
    """Write a trained judge for `load_judge`, its card, and the result into the manifest.

    Args:
        trainer: after the training.
        model: the base.
        record: the manifest so far.
        account: of the rows' truth and balance, to be recorded with the result.
        out: the training's folder.
    """
    state = trainer.full_state()  # every process takes part in gathering the weights
    if trainer.is_world_process_zero():
        record["result"] = trainer.result() | account
        _write_weights(trainer.model, model, out / "judge", state, trainer.plan)
        families.record(out / "judge", trainer.examples.template)
        manifest = json.dumps(record, indent=2)
        card = CARD.format(plan=trainer.plan, name=out.name, manifest=manifest)
        (out / "judge" / "README.md").write_text(card, encoding="utf-8")
        replace_file(out / MANIFEST, manifest + "\n")
        if record["result"]["lesson"]:
            warn(f"{out}: {record['result']['lesson']}")
    trainer.accelerator.wait_for_everyone()


def _write_weights(
    network: PreTrainedModel,
    model: VisionLanguageModel,
    folder: Path,
    state: dict[str, torch.Tensor] | None,
    plan: Plan,
) -> None:
    """Write the trained weights: adapters alone, or whole weights in the base's precision.

    Args:
        network: the trained network, or peft's around it.
        model: the base.
        folder: the judge's, which is replaced.
        state: the weights of all processes.
        plan: of the training; its `merge` is None without adapters, False to keep them apart.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if plan.merge is False:
        weights.save_adapters(network, plan.base, folder)
        return
    dtype = AutoConfig.from_pretrained(model.folder).dtype
    if plan.merge:
        scratch = folder.with_name("adapters")
        network = weights.merged(network, plan.base, scratch, dtype=dtype or torch.bfloat16)
        state = None
    weights.write_checkpoint(network, model.folder, folder, state=state, dtype=dtype)
