"""Direct preference optimisation (DPO) of a policy on pairs, by TRL's trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pandas as pd

from vjudge import data
from vjudge.data.checks import check_rows
from vjudge.data.schema import Items, Row
from vjudge.engines.vision import left_padded
from vjudge.judging.judge import Judge
from vjudge.preference.candidates import checked
from vjudge.preference.policies import Make, WeightPlan, optimise, trl
from vjudge.training import weights
from vjudge.training.collate import CPU, Coder

PUBLISHED: dict = {
    "beta": 0.1,  # weight of the penalty on moving away from the reference policy
    "learning_rate": 5e-7,  # the peak, from which it decays to 0
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.1,  # a number of steps; below 1, the share of all steps
    "num_train_epochs": 1,
    "per_device_train_batch_size": 1,  # pairs per forward pass
    "gradient_accumulation_steps": 8,  # forward passes per step; not all of this is published
    "loss_type": ["sigmoid"],  # add "sft" and `loss_weights` (gamma) to keep chosen texts likely
    "gradient_checkpointing": False,  # True needs less memory and more computation
    "save_strategy": "no",  # "steps", with `save_steps`: an interrupted round resumes from there
    "seed": 0,  # for the order of pairs and the initial adapters
}
"""The default options of `train`, those of `trl.DPOConfig`.

Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning; LLaVA-VL/LLaVA-NeXT
scripts/train/dpo_ov7b.sh.
"""


def train(
    policy: str | Path,
    pairs: Items,
    out: str | Path,
    *,
    freeze: Sequence[str] = (),
    lora: Mapping | bool | None = None,
    quantization: str | None = None,
    dtype: str = "auto",
    max_length: int = 4096,
    **options: Any,
) -> dict:
    """Train a policy on preference pairs; a finished round in `out` is returned, not repeated.

    Args:
        policy: the folder of a checkpoint of any architecture. An original LLaVA checkpoint is
            trained in its converted form. A checkpoint of adapters is first merged with its base,
            and the merged weights are stored beside `out`.
        pairs: from `make_pairs`, or rows with instruction, images, chosen and rejected.
        out: the folder that gets the trained policy, as a complete checkpoint of the same kind in
            float32 with adapters merged, and the record, `dpo.json`. A round that was interrupted
            resumes from its last checkpoint, or starts again if it has none; it ends in the same
            weights as an uninterrupted round.
        freeze: the modules not to train, of "tower", "projector" and "decoder", as in `fine_tune`.
        lora: True, or options of `peft.LoraConfig`, to train adapters on the decoder alone.
        quantization: "4bit" or "8bit", for the weights under adapters.
        dtype: the precision of computation: "float32", "bfloat16", "float16" or "auto".
        max_length: the largest number of tokens of prompt and response, image tokens included.
        options: of `trl.DPOConfig`; they take precedence over the defaults, `PUBLISHED`.

    Returns:
        The record in `dpo.json`: settings, steps, and `log`, TRL's metrics by step, such as loss
        and rewards/margins.

    Raises:
        CollectionError: there are no pairs, or some lack a text or are longer than `max_length`
            (all are named).
        ValueError: the checkpoint can't be trained, or `out` holds a different round.
    """
    rows = checked(pairs)

    def build(loaded: Judge) -> Make:
        coder = Coder.of(loaded)
        _check_lengths(coder, rows, max_length)
        return partial(_trainer, coder, rows)

    return optimise(
        policy,
        out,
        "dpo.json",
        WeightPlan(freeze, lora, quantization, dtype),
        config=partial(trl.DPOConfig, max_length=None),  # TRL must not truncate pairs
        build=build,
        settings={"pairs": _fingerprint(rows), "max_length": max_length},
        options=PUBLISHED | options,
    )


def _fingerprint(rows: Sequence[Row]) -> str:
    """Compute a key of the pairs' content, by which a round in `out` is recognised."""
    columns = {"chosen": "response_a", "rejected": "response_b"}
    return data.fingerprint(pd.DataFrame(rows).rename(columns=columns))


def _trainer(
    coder: Coder, rows: Sequence[Row], reference: Any, adapters: Any, arguments: trl.DPOConfig
) -> Trainer:
    """Make the trainer; its data set holds row indices, which its collator turns into batches.

    Args:
        coder: encodes rows for the policy, and holds its model.
        rows: the pairs.
        reference: the frozen reference model; None with adapters.
        adapters: the adapters' settings; None where the weights themselves train.
        arguments: TRL's training arguments.
    """
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
    """TRL's DPO trainer, on batches of `batch_of` instead of its own tokens."""

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """Return the data set of row indices as it is; TRL's further arguments are not used.

        TRL would tokenize texts here, and its tokenizer reads control tokens in them.
        """
        return dataset


def _check_lengths(coder: Coder, rows: Sequence[Row], max_length: int) -> None:
    """Raise CollectionError, naming all pairs that are longer than `max_length` tokens."""
    lengths = []
    for row in rows:
        prompt, responses = encode(coder, row)
        lengths.append(len(prompt) + max(map(len, responses)))
    fits = [length <= max_length for length in lengths]
    remedy = f"raise it, to {max(lengths)} for all, or leave the pair out"
    check_rows(rows, "length", fits, f"exceeds max_length={max_length}", remedy)


def batch_of(coder: Coder, rows: Sequence[Row]) -> dict:
    """Collate B pairs to a batch of 2 B sequences: all chosen responses, then all rejected ones.

    Returns:
        What the model takes (token ids and pixels, padded on the left), and `completion_mask`
        (2 B, length): 1 on the tokens of responses, 0 on those of prompts and on padding. With
        padding _, prompt p, chosen c and rejected r:

            p p p c c         0 0 0 1 1
            _ p p c c         0 0 0 1 1
            p p p r r    ->   0 0 0 1 1
            _ _ p p r         0 0 0 0 1
    """
    encoded = [encode(coder, row) for row in rows]
    images = [policy_images(coder, row) for row in rows]
    ids = []
    is_response = []
    for side in (0, 1):  # chosen, rejected
        for prompt, responses in encoded:
            ids.append(prompt + responses[side])
            is_response.append([0] * len(prompt) + [1] * len(responses[side]))
    batch = coder.batch(ids, images * 2)
    batch["completion_mask"], _ = left_padded(is_response, 0, CPU)
    return batch


def policy_images(coder: Coder, row: Row) -> list:
    """Return a row's images; none for a policy that sees no images."""
    return row["images"] if coder.model.sees_images else []


def encode(coder: Coder, row: Row) -> tuple[list[int], list[list[int]]]:
    """Return the token ids of a row's prompt and of its two responses, the chosen one first."""
    images = policy_images(coder, row)
    prompt = coder.conversation.wrap(row["instruction"], len(images))
    return coder.encode(prompt, images, [row["chosen"], row["rejected"]])
