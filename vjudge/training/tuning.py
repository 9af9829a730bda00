"""fine_tune: a base and a collection in, a judge out."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import TrainerCallback

import vjudge
from vjudge import data
from vjudge.judge import Judge, load_judge
from vjudge.models.places import choose_device, choose_dtype
from vjudge.prompts import Template
from vjudge.runs import replace_file
from vjudge.training import lora as parts
from vjudge.training.batching import Collator, States
from vjudge.training.card import card
from vjudge.training.checks import ALLOWED, check_balance, check_leakage, rows_with_index
from vjudge.training.examples import Coder, Examples
from vjudge.training.lora import Lora, as_lora
from vjudge.training.network import Network
from vjudge.training.recipes import Recipe, recipe_of
from vjudge.training.running import BEST, JudgeTrainer
from vjudge.training.steps import Bar, LastLog, arguments_of, check_spread
from vjudge.training.watch import LOG, RunLog, last_checkpoint, load_weights, mean_loss

MANIFEST = "manifest.json"
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


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
    merge: bool | None = None,
    shape: str = "feedback",
    allow: Collection[str] = (),
    device: str = "auto",
    precision: str = "auto",
    rows_at_once: int | None = None,
    padding: str = "left",
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    log_every: int = 10,
    keep: str = "best",
    cache_bytes: int = 2 << 30,
    max_bad_images: int = 10,
    workers: int = 0,
    seed: int = 0,
    report_to: Sequence[str] = (),
    on_log: Callable[[dict[str, Any]], None] | None = None,
    progress: bool = True,
    attention: str = "auto",
    trust_remote_code: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    **changes: Any,
) -> Path:
    """Fine-tune a judge on a collection, with the loss on feedback and score alone.

    The same call continues where it was cut off, and ends in the same weights (float32, same machine and versions). It
    runs alike under `accelerate launch` and `torchrun`; see `python -m vjudge.training`.

    Args:
        base: what `load_judge` loads on this machine: a LLaVA-1.5 or LLaVA-OneVision checkpoint in either layout, or a
            text-only language model.
        items: a collection with the canonical columns, or rows; what `load_collection` returns is read row by row.
        out: a folder for checkpoints, the log `training_log.jsonl` and the judge.
        recipe: a name in `RECIPES`, or a `Recipe`.
        template: the wording to train; None takes the base's own, as `load_judge` does.
        validation: rows to grade with the judge while it trains, held out from `items`; they are compared for leakage.
        lora: adapters on the decoder: True, a mapping such as {"rank": 16}, or a `Lora`. None trains in full.
        quantization: "4bit" or "8bit" for the base under adapters (QLoRA), the projector whole; needs bitsandbytes.
        merge: whether adapters go into the stored weights. None does so, unless the base is quantised.
        shape: of the answer, "feedback" as published; see `targets.SHAPES`.
        allow: what not to refuse the collection for: "length", "scores", "leakage".
        device: "auto", "cpu", "cuda" or "mps"; under a launcher each process takes its own.
        precision: "auto", "float32", "bfloat16" or "float16". In full training weights stay float32 and products are
            computed in it; under adapters the base's weights are stored in it.
        rows_at_once: rows a device computes together; None takes the recipe's batch, divided over the devices. The rest
            of a batch is accumulated, and every token weighs the same.
        padding: "left" or "right"; the same loss.
        evaluate_every: optimiser steps between evaluations; None is ten in all. Needs `validation`.
        checkpoint_every: optimiser steps between checkpoints; None is ten in all. The last two are kept.
        log_every: optimiser steps between entries of the log.
        keep: "best" stores the weights with the best evaluation (correlation times share of readable verdicts), "last"
            those of the last step; without `validation` always the last.
        cache_bytes: main memory for what a frozen tower saw of images; 0 keeps nothing.
        max_bad_images: how many rows may be left out because their image fails to open during training.
        workers: processes that prepare batches; with any, a frozen tower's states are not kept.
        seed: of the order, of dropout and of adapters' first values.
        report_to: "tensorboard" or "wandb", in addition to the log.
        on_log: called with every entry of the log, such as `live_curve()`.
        progress: whether to show a bar.
        attention, trust_remote_code: as for `load_judge`.
        callbacks: transformers' own.
        changes: fields of `Recipe`, such as lr=1e-5, steps=200 or freeze=["tower", "projector"].

    Returns:
        The folder of the judge, for `load_judge`. Beside it stand the log, and checkpoints of the weights that train.

    Raises:
        CollectionError: rows that can't be trained on, all of them; a collection that is unbalanced or leaks; more
            images failed than allowed.
        ValueError: an unsound option; a base that can't be trained here; a folder of another training.
        FloatingPointError: a loss that is no number; the last good checkpoint stays.
    """
    adapted = as_lora(lora)
    chosen = recipe_of(recipe, **changes)
    out = Path(out).expanduser()
    placed, kind = _placed(device, precision, quantization, adapted)
    _check_options(allow=allow, keep=keep, rows_at_once=rows_at_once, log_every=log_every, workers=workers)
    check_spread(validated=validation is not None, adapted=adapted is not None)
    if shape == "description" and validation is not None:
        raise ValueError("validation: a description has no verdict that could be graded; leave validation out")
    rows = data.rows_of(items)
    judge, wording = _judge(base, rows, template, placed, kind, quantization, adapted, attention, trust_remote_code)
    model = judge.engine.model  # type: ignore[attr-defined]
    arguments = arguments_of(
        chosen, out, placed, kind, adapted, rows_at_once, len(rows), evaluate_every, checkpoint_every,
        validation is not None, log_every, workers, seed, report_to, model,
    )  # fmt: skip
    manifest = {
        "base": str(base),
        "base_weights": judge.engine.identity()["weights"],
        "template": wording.fingerprint(),
        "recipe": chosen.to_dict(),
        "lora": None if adapted is None else asdict(adapted),
        "quantization": quantization,
        "precision": kind,
        "shape": shape,
        "seed": seed,
        "rows": len(rows),
        "batch": [arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps, arguments.world_size],
        "padding": padding,
    }
    coder = Coder(model, wording, shape=shape, max_length=chosen.max_length)
    examples = Examples(rows, coder)
    balance = _survey(items, examples, wording, validation, allow, shape, seed)
    manifest["collection"] = data.fingerprint(items)
    main, state = arguments.process_index == 0, arguments.distributed_state
    done = _resume(out, manifest, main)
    if done:
        return out / "judge"
    transformers.set_seed(seed)
    adapters = parts.prepare(model, freeze=chosen.freeze, lora=adapted)
    if chosen.gradient_checkpointing:
        model.model.gradient_checkpointing_enable({"use_reentrant": False})
    tower_trains = any(w.requires_grad for name, w in model.model.named_parameters() if "vision_tower" in name)
    states = States(cache_bytes) if not tower_trains and workers == 0 else None
    log = RunLog(out / LOG, on_log)
    last = last_checkpoint(out / "checkpoints")
    if main:
        log.rewind(int(last.name.rpartition("-")[2]) if last else -1)
    state.wait_for_everyone()  # the log is as it was, and no checkpoint is written before all have looked for one
    trainer = JudgeTrainer(
        Network(model, states=states, frozen=not tower_trains),
        examples=examples,
        collator=Collator(coder, states=states, padding=padding, name=lambda index: str(_id(rows[index]))),
        recipe=chosen,
        arguments=arguments,
        log=log,
        grade=None if validation is None else _grader(judge, validation, wording, shape, examples),
        keep=out / BEST,
        max_bad=max_bad_images,
        left_out=log.left_out(),
        callbacks=[*callbacks, LastLog(), *([Bar()] if progress and main else [])],
    )
    if validation is not None and last is None:
        trainer.evaluate()  # where it starts from
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    spread = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped) if spread else None
    if main:
        if validation is not None and keep == "best" and (out / BEST).is_file():
            load_weights(trainer.unwrapped, out / BEST)
        model.model.eval()
        facts: dict[str, Any] = {
            "loss": mean_loss([(entry["step"], entry["loss"]) for entry in log.entries() if "loss" in entry]),
            "steps": trainer.state.global_step,
            **balance,
        }
        facts |= {"rows": len(rows), "skipped": len(trainer.left_out), "base": str(base), "shape": shape}
        written = card(out, recipe=chosen, lora=adapted, wording=wording, facts=facts, entries=log.entries())
        merged = quantization is None if merge is None else merge
        if weights is not None:
            weights = {name.removeprefix("model."): value for name, value in weights.items()}
        parts.save(
            model, adapters, out / "judge", base=base, template=wording, merge=merged, card=written, weights=weights
        )
    trainer.accelerator.wait_for_everyone()
    return out / "judge"


def _placed(device: str, precision: str, quantization: str | None, lora: Lora | None) -> tuple[str, str]:
    """The device and the precision, both settled."""
    rank = os.environ.get("LOCAL_RANK")
    chosen = choose_device(device)
    place = f"cuda:{rank}" if rank is not None and chosen.type == "cuda" else str(chosen)
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        place = "cpu"  # each process moves its shards
    if precision != "auto" and precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}: use auto, {', '.join(PRECISIONS)}")
    kind = str(choose_dtype(precision, chosen)).removeprefix("torch.")
    if quantization is not None and lora is None:
        raise ValueError(f"quantization={quantization!r} keeps the base's weights as they are: add lora=True")
    if kind == "float16" and chosen.type == "cpu":
        raise ValueError("precision='float16' is for GPUs: use float32 or bfloat16 on a CPU")
    return place, kind


def _check_options(
    *, allow: Collection[str], keep: str, rows_at_once: int | None, log_every: int, workers: int
) -> None:
    sound = {
        f"allow={list(allow)!r}: use names out of {', '.join(ALLOWED)}": set(allow) <= set(ALLOWED),
        f'keep={keep!r}: use "best" or "last"': keep in ("best", "last"),
        f"rows_at_once={rows_at_once!r}: use a whole number from 1": rows_at_once is None or rows_at_once >= 1,
        f"log_every={log_every!r}: use a whole number from 1": log_every >= 1,
        f"workers={workers!r}: use a whole number from 0": workers >= 0,
    }
    if faults := [fault for fault, fine in sound.items() if not fine]:
        raise ValueError("; ".join(faults))


def _judge(
    base: str | Path,
    rows: Sequence[Any],
    template: str | Template | None,
    device: str,
    kind: str,
    quantization: str | None,
    lora: Lora | None,
    attention: str,
    trust_remote_code: bool,
) -> tuple[Judge, Template]:
    """The base as a judge, and the wording for such rows."""
    # In full training weights and their changes need float32's grid; under adapters the base is only read.
    dtype = kind if lora is not None else "float32"
    options: dict[str, Any] = {"device": device, "dtype": dtype, "quantization": quantization, "attention": attention}
    judge = load_judge(base, template=template, trust_remote_code=trust_remote_code, **options)
    if not len(rows):
        raise data.CollectionError("the collection has no rows; check split= and limit=")
    first = rows[0]
    pairs = hasattr(first, "response_a") or (isinstance(first, Mapping) and "response_a" in first)
    if not pairs:
        return judge, judge.template
    if judge.pairs is None:
        raise ValueError(f"judge {str(base)!r} has no wording for pairs: give a template that compares")
    return judge, judge.pairs


def _survey(
    items: Any,
    examples: Examples,
    wording: Template,
    validation: Any,
    allow: Collection[str],
    shape: str,
    seed: int,
) -> dict[str, float]:
    """Look at the whole collection before anything is computed; everything that is wrong is said at once.

    As `items`, which are read many at a time, not as the rows of `examples`, which are read one by one.
    """
    try:
        data.validate(items, needs=() if shape == "description" else wording.needs, sees_images=examples.coder.sees)
        problems: list[data.Problem] = []
    except data.CollectionError as error:
        if not error.problems:
            raise
        problems = list(error.problems)
    known = {(problem.index, problem.field.partition("[")[0]) for problem in problems}
    for index, row, why in examples.survey(rows_with_index(items)):
        field, _, rest = why.partition(": ")
        if (index, field) not in known and not (field == "images" and problems and (index, "images") in known):
            what, _, remedy = rest.rpartition("; ")
            problems.append(data.Problem(index, str(_id(row)), field, what or rest or why, remedy or "correct the row"))
    if problems:
        problems.sort(key=lambda problem: problem.index)
        n_bad = len({problem.index for problem in problems})
        raise data.CollectionError(f"{n_bad} of {len(examples)} rows can't be trained on:", problems)
    found = check_balance(items, allow=allow, seed=seed)
    if validation is not None:
        found["shared"] = float(check_leakage(items, validation, allow=allow))
    return found


def _id(row: Any) -> Any:
    return row.get("id") if isinstance(row, Mapping) else row.id


def _resume(out: Path, manifest: dict[str, Any], main: bool) -> bool:
    """Whether the judge is there already; refuses a folder that holds another training."""
    file = out / MANIFEST
    if file.is_file():
        before = json.loads(file.read_text(encoding="utf-8"))["settings"]
        if changed := sorted(name for name in manifest if before.get(name) != json.loads(json.dumps(manifest[name]))):
            said = "; ".join(f"{name} was {before.get(name)!r} and is {manifest[name]!r}" for name in changed[:5])
            raise ValueError(f"{out} holds another training ({said}): give another out=, or remove it")
        return (out / "judge" / "README.md").is_file()
    if out.exists() and any(out.iterdir()) and main and not {path.name for path in out.iterdir()} <= {LOG}:
        raise ValueError(f"{out} holds something else than a training: give an empty or new folder")
    if main:
        out.mkdir(parents=True, exist_ok=True)
        versions = {"vjudge": vjudge.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
        replace_file(file, json.dumps({"settings": manifest, "versions": versions}, indent=2) + "\n")
    return False


def _grader(
    judge: Judge, validation: Any, wording: Template, shape: str, examples: Examples
) -> Callable[[int, int], Any]:
    """Grade the validation sample as the judge will be used; a score without feedback before it in score mode.

    An answer may be a quarter longer than the longest that was trained on: a base that never ends would take minutes.
    """
    if wording.compares:
        raise ValueError("validation: pairs are not graded during training; compare with the judge afterwards")
    mode = "feedback" if shape == "feedback" else "score"
    longest = max(whole - asked for whole, asked in zip(examples.lengths, examples.n_prompt, strict=True))

    rows = data.rows_of(validation)

    def grade(part: int, parts: int) -> Any:
        first, after = len(rows) * part // parts, len(rows) * (part + 1) // parts  # neighbours share images
        if first == after:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that verdicts can't be read is what `parsed` says
            mine = validation if parts == 1 else [rows[index] for index in range(first, after)]
            return judge.grade(mine, mode=mode, max_new_tokens=longest + longest // 4 + 8, progress=False)

    return grade
