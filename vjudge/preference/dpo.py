"""Direct preference optimisation by TRL's trainer: one round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pandas as pd

from vjudge import data
from vjudge.data.checks import check_rows
from vjudge.engines.vision import left_padded
from vjudge.judging.judge import Judge
from vjudge.preference.policies import optimise, trl
from vjudge.preference.rewards import checked
from vjudge.training import weights
from vjudge.training.collate import CPU, Coder

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
    rows = checked(pairs)

    def build(loaded: Judge) -> Callable:
        coder = Coder.of(loaded)
        _check_lengths(coder, rows, max_length)
        return partial(_trainer, coder, rows)

    return optimise(
        policy,
        out,
        "dpo.json",
        partial(trl.DPOConfig, max_length=None),  # a longer pair is refused, none is cut
        build,
        {"pairs": _digest(rows), "max_length": max_length},
        PUBLISHED | options,
        freeze=freeze,
        lora=lora,
        quantization=quantization,
        dtype=dtype,
    )


def _digest(rows: Sequence) -> str:
    """What pairs are known by."""
    sides = {"chosen": "response_a", "rejected": "response_b"}
    return data.fingerprint(pd.DataFrame(rows).rename(columns=sides))


def _trainer(
    coder: Coder, rows: Sequence, reference: Any, adapters: Any, arguments: trl.DPOConfig
) -> Trainer:
    return Trainer(
        model=coder.model.model,
        ref_model=reference,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"row": range(len(rows))}),
        data_collator=lambda entries: batch_of(coder, [rows[entry["row"]] for entry in entries]),
        processing_class=coder.model.tokenizer,
        peft_config=adapters,
    )


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
        images.append(policy_images(coder, row))
    ids = []
    completions = []
    for side in (0, 1):
        for prompt, responses in encoded:
            ids.append(prompt + responses[side])
            completions.append([0] * len(prompt) + [1] * len(responses[side]))
    batch = coder.batch(ids, images * 2)
    batch["completion_mask"], _ = left_padded(completions, 0, CPU)
    return batch


def policy_images(coder: Coder, row: Mapping) -> list:
    """A row's images, none for a policy that reads none."""
    return row["images"] if coder.model.sees_images else []


def encode(coder: Coder, row: Mapping) -> tuple[list[int], list]:
    """The ids of a row's prompt, and of its two responses after it."""
    images = policy_images(coder, row)
    prompt = coder.conversation.wrap(row["instruction"], len(images))
    return coder.encode(prompt, images, [row["chosen"], row["rejected"]])
