"""Direct preference optimisation by TRL's trainer: one round.

The reference is the policy that a round starts from. Weights that train, and those that a round
leaves, are float32 whatever is computed in: at the published rate of 5e-7 a step lies far below
bfloat16's grid, and would round away.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import torch
import transformers

from vjudge import data, models
from vjudge.engines.vision import left_padded
from vjudge.judging.comparing import check_rows
from vjudge.judging.loading import load_judge
from vjudge.judging.record import replace_file
from vjudge.models import placement
from vjudge.preference.rewards import checked
from vjudge.training import weights
from vjudge.training.collate import CPU, Coder, encode_pictures
from vjudge.training.recipes import PARTS

try:
    import trl
except ImportError as error:
    raise ImportError(f"{error}: preference learning needs pip install 'vjudge[train]'") from error

PUBLISHED: dict = {
    "beta": 0.1,  # how strongly the policy is held to the reference
    "learning_rate": 5e-7,  # the peak, from which it falls to 0
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.1,  # a number, or below 1 the share of all steps
    "num_train_epochs": 1,
    "per_device_train_batch_size": 1,  # pairs computed at once
    "gradient_accumulation_steps": 8,  # times so many are a step; not all of it is published
    "loss_type": ["sigmoid"],  # with "sft", by `loss_weights` (gamma), what was chosen stays likely
    "gradient_checkpointing": False,  # less memory for more computation
    "save_strategy": "no",  # "steps", with `save_steps`: an interrupted round goes on from there
    "seed": 0,  # of the order of pairs and of adapters
}
"""How `train` trains unless told otherwise, as options of `trl.DPOConfig`.

Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning; LLaVA-VL/LLaVA-NeXT
scripts/train/dpo_ov7b.sh.
"""
ALWAYS: dict = {
    "logging_steps": 1,
    "save_total_limit": 1,
    "report_to": [],
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
    "remove_unused_columns": False,
    "max_length": None,  # a longer pair is refused, none is cut
}
RECORD = "dpo.json"


def train(
    policy: str | Path,
    pairs: Any,
    out: str | Path,
    *,
    freeze: Sequence[str] = (),
    lora: Mapping | bool | None = None,
    quantization: str | None = None,
    dtype: str = "auto",
    max_length: int = 4096,
    **options: Any,
) -> dict:
    """Train a policy on pairs; what `out` holds already is not trained again.

    Args:
        policy: the folder of a checkpoint of any architecture; an original LLaVA one is trained as
            what it was converted to, adapters with their base as whole weights beside `out`.
        pairs: from `make_pairs`, or rows with instruction, images, chosen and rejected.
        out: gets the trained policy as a whole checkpoint of the same kind, in float32, adapters
            merged; and `dpo.json`. An interrupted round goes on from its last checkpoint, or its
            start, and ends alike.
        freeze: which of "tower", "projector", "decoder" stay as they are, as in `fine_tune`.
        lora: True or options of `peft.LoraConfig`, for adapters on the decoder alone.
        quantization: "4bit" or "8bit", of the weights under adapters.
        dtype: what is computed in: "float32", "bfloat16", "float16", or "auto".
        max_length: tokens of prompt and response, the image's included; a longer pair is refused.
        options: of `trl.DPOConfig`, before those in `PUBLISHED`.

    Returns:
        The record in `dpo.json`: settings, steps, and `log`, TRL's metrics by step: loss,
        rewards/margins and so on.

    Raises:
        CollectionError: every pair without a text, or longer than `max_length`; there is none.
        ValueError: the folder can't be trained; another round stands in `out`.
    """
    # 1) the pairs, and what the folder holds already
    if quantization and lora is None:
        raise ValueError("quantised weights can't train: give lora= too")
    if not set(freeze) <= set(PARTS):
        raise ValueError(f"freeze={freeze!r}: use {', '.join(PARTS)}")
    lora = {} if lora is True else lora
    rows = checked(pairs)
    out = Path(out).expanduser()
    policy = weights.whole_base(policy, out)
    options = PUBLISHED | options
    settings: dict = {"start": models.fingerprint(models.locate(policy)), "pairs": _digest(rows)}
    settings |= {"freeze": list(freeze), "lora": lora, "quantization": quantization}
    settings |= {"dtype": dtype, "max_length": max_length, **options}
    record = weights.claim(out / RECORD, settings, begin=False)
    if "log" in record:
        return record

    # 2) the policy; weights that train in full are read in float32
    device = placement.choose_device()
    precision = placement.choose_dtype(dtype, device)
    held = "float32" if lora is None else str(precision).removeprefix("torch.")
    loaded: Any = load_judge(policy, dtype=held, quantization=quantization)
    coder = Coder(loaded.engine.model, loaded.template.conversation)
    _check_lengths(coder, rows, max_length)
    reference, adapters = _prepared(loaded.engine.model, freeze, lora)

    # 3) train
    arguments = _arguments(out, device, precision, options)
    fresh = not (out / RECORD).exists()
    weights.claim(out / RECORD, settings)
    try:
        trainer = _trainer(loaded.engine.model, reference, adapters, arguments, coder, rows)
        trainer.train(resume_from_checkpoint=weights.last_checkpoint(out / "checkpoints"))
    except Exception:  # a refused option must not stand in the way of the next call
        if fresh and weights.last_checkpoint(out / "checkpoints") is None:
            shutil.rmtree(out)
        raise

    # 4) store
    network = trainer.model
    if adapters is not None:
        network = weights.merged(network, policy, out / "adapters", dtype=torch.float32)
    weights.write_checkpoint(network, loaded.engine.model.folder, out)
    return _finish(record, trainer.state, out)


def _digest(rows: Sequence) -> str:
    """What pairs are known by."""
    sides = {"chosen": "response_a", "rejected": "response_b"}
    return data.fingerprint(pd.DataFrame(rows).rename(columns=sides))


def _prepared(model: Any, freeze: Sequence, lora: Any) -> tuple:
    """The reference, which is computed in the same way, or the settings of adapters."""
    encode_pictures(model)
    model.model.train()
    if lora is not None:
        return None, weights.adapters_of(model.model, freeze, lora)
    weights.prepare(model, freeze=freeze, lora=None)
    return copy.deepcopy(model.model).eval(), None


def _arguments(out: Path, device: Any, precision: Any, options: Any) -> trl.DPOConfig:
    return trl.DPOConfig(
        str(out / "checkpoints"),
        use_cpu=device.type == "cpu",
        bf16=precision == torch.bfloat16,
        fp16=precision == torch.float16 and device.type == "cuda",
        **ALWAYS,
        **options,
    )


def _trainer(
    model: Any, reference: Any, adapters: Any, arguments: Any, coder: Coder, rows: Sequence
) -> Trainer:
    trainer = Trainer(
        model=model.model,
        ref_model=reference,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"row": range(len(rows))}),
        data_collator=lambda entries: batch_of(coder, [rows[entry["row"]] for entry in entries]),
        processing_class=model.tokenizer,
        peft_config=adapters,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    weights.train_in_float32(trainer.model)  # TRL makes adapters on quantised weights bfloat16
    return trainer


def _finish(record: dict, state: Any, out: Path) -> dict:
    """Write down what came of a round; it takes no checkpoints any more."""
    record["steps"] = state.global_step
    record["log"] = [entry for entry in state.log_history if "loss" in entry]
    replace_file(out / RECORD, json.dumps(record, indent=1) + "\n")
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    return record


class Trainer(weights.OwnCheckpoints, trl.DPOTrainer):
    """TRL's, on batches of `batch_of`."""

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """Row numbers: TRL's own tokens would read control tokens in texts."""
        return dataset


def _check_lengths(coder: Coder, rows: Sequence, max_length: int) -> None:
    """Refuse all pairs that are longer than allowed."""
    lengths = []
    sound = []
    for row in rows:
        prompt, responses = encode(coder, row)
        lengths.append(len(prompt) + max(map(len, responses)))
        sound.append(lengths[-1] <= max_length)
    remedy = f"raise it, to {max(lengths)} for all, or leave the pair out"
    check_rows(rows, "length", sound, f"exceeds max_length={max_length}", remedy)


def batch_of(coder: Coder, rows: Sequence) -> dict:
    """Pairs, chosen responses first, as the tokens and pixels that the policy answers with."""
    encoded = []
    images = []
    for row in rows:
        encoded.append(encode(coder, row))
        images.append(images_of(coder, row))
    ids = []
    completions = []
    for side in (0, 1):
        for prompt, responses in encoded:
            ids.append(prompt + responses[side])
            completions.append([0] * len(prompt) + [1] * len(responses[side]))
    batch = coder.batch(ids, images * 2)
    batch["completion_mask"], _ = left_padded(completions, 0, CPU)
    return batch


def images_of(coder: Coder, row: Mapping) -> list:
    """A row's images, none for a policy that reads none."""
    return row["images"] if coder.model.sees_images else []


def encode(coder: Coder, row: Mapping) -> tuple[list[int], list]:
    """The ids of a row's prompt, and of its two responses after it."""
    images = images_of(coder, row)
    prompt = coder.conversation.wrap(row["instruction"], len(images))
    return coder.encode(prompt, images, [row["chosen"], row["rejected"]])
