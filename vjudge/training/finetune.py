"""fine_tune: a base and a collection in, a judge out, by transformers' Trainer and peft."""

from __future__ import annotations

import json
import math
import os
import shutil
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from transformers import AutoConfig, PreTrainedModel, TrainingArguments

from vjudge import data
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

FREE = ("checkpoint_every", "log_every", "allow", "source")  # no weight depends on them
VERIFIED_KINDS = (  # whose tokens, labels and loss equal their own processors' and classes'
    "llava llava_onevision llava_next qwen2_vl qwen2_5_vl qwen3_vl internvl idefics3 gemma3"
).split()
ALWAYS: dict = {
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
base_model: {plan.base}
---
# {name}: a judge fine-tuned with vjudge

Source of its recipe: {plan.recipe.source}. What came of the training stands under "result":

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

    The same call continues where it was cut off, and ends in the same weights (float32, same
    machine and versions); it runs alike under `accelerate launch` and `torchrun`. What trains is
    float32.

    Args:
        base: any model that `load_judge` loads here: a LLaVA, a chat model, a language model.
            Adapters alone are first written with their base as whole weights beside `out`.
        items: items, or pairs; a row with its own `prompt` and `target` needs no other texts.
        out: a folder for checkpoints, `training_log.jsonl`, `manifest.json` and the judge.
        recipe: a name in `RECIPES`, or a `Recipe`; None takes "chat" for a chat model with a
            processor of its own, else "prometheus-vision", with adapters their "-lora".
        template: the wording to train; None takes the base's own, as `load_judge` does.
        validation: held-out items (compared for leakage), graded while it trains; the weights with
            the best correlation times share of readable verdicts become the judge.
        truth: "gold", or "people" for the mean of `human_scores`: rounded to a whole score, halves
            up, as the target, which is counted under "result"; as it is in `validation`.
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
        The folder of the judge. `manifest.json` beside it says under "result" how the loss fell; a
        training that taught nothing that shows ends in a warning.
        A line of the log has step, seconds, and of losses loss, grad_norm and learning_rate, of
        evaluations pearson with low and high (95 %), parsed (share of readable verdicts) and n.

    Raises:
        CollectionError: rows that can't be trained on, all of them; a collection that is
            unbalanced or leaks.
        TypeError: a name that is neither an argument nor a field of `Recipe`.
        ValueError: an unsound option; a folder of another training.
        FloatingPointError: a loss that is no number; the last checkpoint stays.
    """
    # 1) what is asked for, and the base in its precision
    base = weights.whole_base(base, out)
    items, validation, account = with_truth(items, validation, truth)
    plan = _settle(base, recipe, changes, lora, quantization, device, precision, seed)
    judge = _load(plan, template, validation)

    # 2) the rows, each looked at before anything is computed
    out = Path(out).expanduser()
    rows = data.rows_of(items)
    _check_wording(template, rows.columns)
    examples = _examples(judge, rows, validation, plan.recipe)
    arguments = _arguments(plan, out, len(rows), progress)
    transformers.set_seed(seed)
    network = weights.settle_weights(judge.engine.model, freeze=plan.recipe.freeze, lora=plan.lora)
    lengths, longest_answer = survey(items, examples)
    if validation is not None:
        check_leakage(items, validation, allow=plan.recipe.allow)
    account |= check_balance(items, allow=plan.recipe.allow)

    # 3) what the folder holds already
    settings = _settings(plan, judge, examples, items, arguments)
    record = weights.claim(out / MANIFEST, settings, begin=arguments.process_index == 0)
    if "result" in record:
        return out / "judge"

    # 4) train
    trainer = JudgeTrainer(network, arguments, examples, lengths, plan, on_log)
    if validation is not None:
        trainer.grade = _grading(judge, validation, plan.recipe, longest_answer)
    trainer.go_on(judge.engine.model)

    # 5) store the judge
    _store(trainer, judge.engine.model, record, account, out)
    return out / "judge"


# -- what is asked for


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
    """Every option as it will be used; ValueError where two do not go together."""
    adapted = lora not in (None, False)
    if adapted and lora is not True and not isinstance(lora, Mapping):
        raise ValueError(f"lora={lora!r}: use True, or options of peft.LoraConfig")
    if quantization is not None and not adapted:
        raise ValueError(f"quantization={quantization!r} keeps the base's weights: add lora=True")
    chat = find_checkpoint(locate(base)).kind == "chat"
    recipe = recipe_of(recipe, changes, chat=chat, adapters=adapted)
    device, dtype = _place(device, precision)
    plan = Plan(str(base), recipe, None, None, quantization, device, dtype, seed)
    if not adapted:
        return plan
    options = {"r": recipe.rank, "lora_alpha": recipe.alpha, "lora_dropout": recipe.dropout}
    if isinstance(lora, Mapping):
        options |= lora
    merge = bool(options.pop("merge", quantization is None))
    return replace(plan, lora=options, merge=merge)


def _check_wording(template: str | Template | None, columns: Collection) -> None:
    """Refuse a wording for one response where rows hold two, and the reverse."""
    if template is None:
        return
    wording = families.wording(template)
    pairs = "response_a" in columns
    if not pairs and "response" not in columns:  # rows with prompts of their own
        return
    if wording.compares != pairs:
        shows = "two responses" if wording.compares else "one response"
        raise ValueError(f"template: {wording.name!r} shows {shows}, and the rows do not")


def _place(device: str, precision: str) -> tuple:
    """This process's device, and the precision of its products."""
    chosen = choose_device(device)
    dtype = str(choose_dtype(precision, chosen)).removeprefix("torch.")
    if "ACCELERATE_USE_FSDP" in os.environ:
        return "cpu", dtype  # each process moves its shards
    if "LOCAL_RANK" in os.environ and chosen.type == "cuda":
        return f"cuda:{os.environ['LOCAL_RANK']}", dtype
    return str(chosen), dtype


def _load(plan: Plan, template: str | Template | None, validation: Items | None) -> Any:
    """The base as a judge, in float32 where its own weights train."""
    spread = "ACCELERATE_USE_FSDP" in os.environ
    if spread and (validation is not None or plan.lora is not None):
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
    """The rows in the judge's wording; a warning where its architecture was not compared."""
    model = judge.engine.model
    kind = model.model.config.model_type
    if model.sees_images and kind not in VERIFIED_KINDS:
        warnings.warn(
            f"nobody has compared the training of {kind!r} with its own processor and loss",
            stacklevel=3,
        )
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
    """All that the weights follow from, by which another training is told."""
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
    """transformers' arguments for a recipe on this machine."""
    recipe = plan.recipe
    at_once, passes = _batches(recipe)
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
        logging_steps=recipe.log_every,
        eval_steps=recipe.evaluate_every or tenth,
        save_steps=recipe.checkpoint_every or tenth,
        bf16=plan.precision == "bfloat16",
        fp16=plan.precision == "float16" and plan.device != "cpu",
        use_cpu=plan.device == "cpu" and "ACCELERATE_USE_FSDP" not in os.environ,
        seed=plan.seed,
        disable_tqdm=not progress,
        **ALWAYS,
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # one process, one device: more take a launcher
    return arguments


def _batches(recipe: Recipe) -> tuple:
    """The rows that a process computes at once, and how many such passes make a step."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    at_once = recipe.rows_at_once or max(1, recipe.batch_size // processes)
    passes, remainder = divmod(recipe.batch_size, at_once * processes)
    if remainder:
        raise ValueError(
            f"batch_size={recipe.batch_size} is no multiple of {processes} process(es) times"
            f" {at_once}"
        )
    return at_once, passes


def _grading(
    judge: Judge, validation: Items | None, recipe: Recipe, longest_answer: int
) -> Callable:
    """What grades the validation rows with the weights as they are."""
    return partial(
        judge.grade,
        validation,
        progress=False,
        mode="feedback" if recipe.shape == "feedback" else "score",
        max_new_tokens=longest_answer * 5 // 4 + 8,  # a base that never ends takes minutes
    )


# -- the judge


def _store(
    trainer: JudgeTrainer, model: VisionLanguageModel, record: dict, account: dict, out: Path
) -> None:
    """Write a trained judge for `load_judge`, and what came of its training."""
    state = trainer.whole_state()  # of all processes
    if trainer.is_world_process_zero():
        record["result"] = trainer.result() | account
        _write(trainer.model, model, out / "judge", state, trainer.plan)
        families.record(out / "judge", trainer.examples.template)
        manifest = json.dumps(record, indent=2)
        card = CARD.format(plan=trainer.plan, name=out.name, manifest=manifest)
        (out / "judge" / "README.md").write_text(card, encoding="utf-8")
        replace_file(out / MANIFEST, manifest + "\n")
        if record["result"]["lesson"]:
            warnings.warn(f"{out}: {record['result']['lesson']}", stacklevel=3)
    trainer.accelerator.wait_for_everyone()


def _write(
    network: PreTrainedModel,
    model: VisionLanguageModel,
    folder: Path,
    state: dict[str, torch.Tensor] | None,
    plan: Plan,
) -> None:
    """Whole weights, or adapters alone."""
    shutil.rmtree(folder, ignore_errors=True)
    if plan.merge is False:
        weights.save_adapters(network, plan.base, folder)
        return
    dtype = AutoConfig.from_pretrained(model.folder).dtype
    if plan.merge:
        aside = folder.with_name("adapters")
        network = weights.merged(network, plan.base, aside, dtype=dtype or torch.bfloat16)
        state = None
    weights.write_checkpoint(network, model.folder, folder, state=state, dtype=dtype)
