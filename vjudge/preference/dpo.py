"""Direct preference optimisation by TRL's trainer: one round, and rounds one after another.

The reference is the policy that a round starts from. Weights that train, and those that a round
leaves, are float32 whatever is computed in: at the published rate of 5e-7 a step lies far below
bfloat16's grid, and would round away.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import torch
import transformers

import vjudge
from vjudge import data, models
from vjudge.comparing import check_rows
from vjudge.engines.engine import say
from vjudge.engines.vision import left_padded
from vjudge.judge import load_judge
from vjudge.models import placement
from vjudge.preference.candidates import draw
from vjudge.preference.rewards import checked, make_pairs, reward
from vjudge.runs import plain, replace_file
from vjudge.training import weights
from vjudge.training.collate import CPU, Coder, encode_pictures

try:
    import peft
    import trl
except ImportError as error:
    raise ImportError(f"{error}: preference learning needs pip install 'vjudge[train]'") from error

PUBLISHED: dict[str, Any] = {
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
ALWAYS: dict[str, Any] = {
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
    lora: Mapping[str, Any] | None = None,
    quantization: str | None = None,
    dtype: str = "auto",
    max_length: int = 4096,
    **options: Any,
) -> dict[str, Any]:
    """Train a policy on pairs; what `out` holds already is not trained again.

    Args:
        policy: the folder of a checkpoint of any architecture; an original LLaVA one is trained as
            what it was converted to.
        pairs: from `make_pairs`, or rows with instruction, images, chosen and rejected.
        out: gets the trained policy as a whole checkpoint of the same kind, in float32, adapters
            merged; and `dpo.json`. An interrupted round goes on from its last checkpoint, or its
            start, and ends alike.
        freeze: which of "tower", "projector", "decoder" stay as they are, as in `fine_tune`.
        lora: options of `peft.LoraConfig`, for adapters on the decoder alone.
        quantization: "4bit" or "8bit", of the weights under adapters.
        dtype: what is computed in: "float32", "bfloat16", "float16", or "auto".
        max_length: tokens of prompt and response, the image's included; a longer pair is refused.
        options: of `trl.DPOConfig`, before those in `PUBLISHED`.

    Returns:
        The record in `dpo.json`: identity, pairs, steps, versions; changed and relative, see
        `training.weights.movement`; `log`, TRL's metrics by step: loss, rewards/margins and so on.

    Raises:
        CollectionError: every pair without a text, or longer than `max_length`; there is none.
        ValueError: the folder can't be trained; another round stands in `out`.
    """
    if quantization and lora is None:
        raise ValueError("quantised weights can't train: give lora= too")
    rows = checked(pairs)
    if not rows:
        raise data.CollectionError(
            "there are no pairs to train on: see attrs['left_out'] of make_pairs"
        )
    out = Path(out)
    options = PUBLISHED | options
    settings = {
        "freeze": list(freeze),
        "lora": lora,
        "quantization": quantization,
        "dtype": dtype,
        "max_length": max_length,
        **options,
    }
    record = _record(out, policy, rows, settings)
    if "log" in record:
        return record

    # 1) the policy; weights that train in full are read in float32
    device = placement.choose_device()
    precision = placement.choose_dtype(dtype, device)
    held = "float32" if lora is None else str(precision).removeprefix("torch.")
    loaded: Any = load_judge(policy, dtype=held, quantization=quantization)
    model = loaded.engine.model
    coder = Coder(model, loaded.template.conversation)
    _check_lengths(coder, rows, max_length)

    # 2) what trains, and the reference, which is computed in the same way
    encode_pictures(model)
    network = model.model.train()
    reference = adapters = None
    if lora is None:
        weights.prepare(model, freeze=freeze, lora=None)
        reference = copy.deepcopy(network).eval()
    else:
        adapters = weights.adapters_of(network, freeze, lora)

    # 3) train
    arguments = trl.DPOConfig(
        str(out / "checkpoints"),
        use_cpu=device.type == "cpu",
        bf16=precision == torch.bfloat16,
        fp16=precision == torch.float16 and device.type == "cuda",
        **ALWAYS,
        **options,
    )
    out.mkdir(parents=True, exist_ok=True)
    replace_file(out / RECORD, json.dumps(record) + "\n")  # nothing is refused from here on
    trainer = Trainer(
        model=network,
        ref_model=reference,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"row": range(len(rows))}),
        data_collator=lambda entries: batch_of(coder, [rows[entry["row"]] for entry in entries]),
        processing_class=model.tokenizer,
        peft_config=adapters,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    weights.train_in_float32(trainer.model)  # TRL makes adapters on quantised weights bfloat16
    before = weights.weight_samples(trainer.model)
    trainer.train(resume_from_checkpoint=weights.last_checkpoint(out / "checkpoints"))

    # 4) store
    return _store(trainer, model, policy, out, record, before, n_pairs=len(rows))


class Trainer(weights.OwnCheckpoints, trl.DPOTrainer):
    """TRL's, on batches of `batch_of`."""

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """Row numbers: TRL's own tokens would read control tokens in texts."""
        return dataset


def _record(
    out: Path, policy: str | Path, rows: Sequence[Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The record of this round, as far as it got; refuses a folder of another one."""
    folder = models.locate(policy)
    start = models.weights_fingerprint(folder)
    if not start or not (folder / "config.json").exists():
        raise ValueError(f"{policy} holds no checkpoint to train")
    texts = [{**row, "response_a": row["chosen"], "response_b": row["rejected"]} for row in rows]
    plan = {
        "start": start,
        "pairs": data.fingerprint(texts),
        "settings": json.loads(json.dumps(settings)),
    }
    file = out / RECORD
    if not file.exists():
        if out.exists() and any(out.iterdir()):
            raise ValueError(f"{out} holds something else than a round: use another folder")
        return {"identity": plan}
    record = json.loads(file.read_text("utf-8"))
    different = [name for name in plan if record["identity"].get(name) != plan[name]]
    if different:
        names = " and ".join(different)
        raise ValueError(f"{out} holds a round with other {names}: use another folder")
    return record


def _check_lengths(coder: Coder, rows: Sequence[Mapping[str, Any]], max_length: int) -> None:
    """Refuse all pairs that are longer than allowed."""
    lengths = []
    for row in rows:
        prompt, responses = encode(coder, row)
        lengths.append(len(prompt) + max(map(len, responses)))
    check_rows(
        rows,
        "length",
        [length <= max_length for length in lengths],
        f"exceeds max_length={max_length}",
        f"raise it, to {max(lengths)} for all, or leave the pair out",
    )


def _store(
    trainer: Trainer,
    model: Any,
    policy: str | Path,
    out: Path,
    record: dict[str, Any],
    before: dict[str, torch.Tensor],
    *,
    n_pairs: int,
) -> dict[str, Any]:
    """Write the policy and its record, and say so where its weights hardly moved."""
    network = trainer.model
    checkpoints = out / "checkpoints"
    if isinstance(network, peft.PeftModel):
        layers = [f"{name}.weight" for name in network.base_model.targeted_module_names]
        whole = models.load(policy, device="cpu", dtype="float32").model.state_dict()
        before = {name: whole[name] for name in layers}
        network = weights.merged(network, policy, checkpoints / "adapters", dtype=torch.float32)
    moved = weights.movement(before, network.state_dict())
    still = weights.movement_line(moved)
    if still:
        say(f"{out.name}: {still}")
    weights.write_checkpoint(network, model.folder, out)
    packages = (vjudge, torch, transformers, trl, peft)
    record |= {
        "pairs": n_pairs,
        "steps": int(trainer.state.global_step),
        **moved,
        "versions": {module.__name__: module.__version__ for module in packages},
        "log": [entry for entry in trainer.state.log_history if "loss" in entry],
    }
    replace_file(out / RECORD, json.dumps(plain(record), indent=1) + "\n")
    shutil.rmtree(checkpoints, ignore_errors=True)
    return record


def batch_of(coder: Coder, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Pairs, chosen responses first, as the tokens and pixels that the policy answers with."""
    encoded = [encode(coder, row) for row in rows]
    ids = []
    completions = []
    for side in (0, 1):
        for prompt, responses in encoded:
            ids.append(prompt + responses[side])
            completions.append([0] * len(prompt) + [1] * len(responses[side]))
    batch = coder.batch(ids, [images_of(coder, row) for row in rows] * 2)
    batch["completion_mask"], _ = left_padded(completions, 0, CPU)
    return batch


def images_of(coder: Coder, row: Mapping[str, Any]) -> list[Any]:
    """A row's images, none for a policy that reads none."""
    return row["images"] if coder.model.sees_images else []


def encode(coder: Coder, row: Mapping[str, Any]) -> tuple[list[int], list[list[int]]]:
    """The ids of a row's prompt, and of its two responses after it."""
    images = images_of(coder, row)
    prompt = coder.conversation.wrap(row["instruction"], len(images))
    return coder.encode(prompt, images, [row["chosen"], row["rejected"]])


def run_rounds(
    policy: str | Path,
    questions: Sequence[Any],
    judge: Any,
    out: str | Path,
    *,
    rounds: int = 3,
    draws: Mapping[str, Any] | None = None,
    rewards: Mapping[str, Any] | None = None,
    pairs: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> list[SimpleNamespace]:
    """Improve a policy by a judge's preferences over rounds: draw, reward, pair, train.

    Args:
        policy: the checkpoint that the first round starts from.
        questions, judge: what the policy answers in each round, with a rubric where the `Judge`
            needs one.
        out: gets `round-1` and so on, each with candidates, rewards, policy and pairs.json; an
            interrupted call goes on where it stopped. Who removes a round's folder and the later
            ones has them made anew.
        rounds: how many; three as published.
        draws, rewards, pairs, training: options of `draw`, `reward`, `make_pairs` and `train`; the
            seeds of draws and training grow by one a round.

    Returns:
        What each round made: candidates, rewards, pairs, record (of `train`) and policy, the
        folder of what it left.

    Raises:
        CollectionError: bad questions; no pairs are left. RunError, ValueError: a folder holds
            another call's round.
    """
    start = policy
    results = []
    draws = {"seed": 0, **(draws or {})}
    training = {"seed": 0, **(training or {})}
    for number in range(rounds):
        folder = Path(out) / f"round-{number + 1}"
        # 1) draw; then the policy is let go of: training needs its memory
        own = {**draws, "seed": draws["seed"] + number, "out": folder / "candidates"}
        name = f"{Path(policy).name}, {number} rounds"
        rows = draw(replace(load_judge(start), name=name), questions, **own)
        # 2) reward and pair
        rewarded = reward(judge, rows, out=folder / "rewards", **(rewards or {}))
        chosen = make_pairs(rows, rewarded, **(pairs or {}))
        # 3) train
        own = {**training, "seed": training["seed"] + number}
        record = train(start, chosen, folder / "policy", **own)
        kept = chosen.drop(columns="images").to_dict("records")
        account = plain({"account": chosen.attrs, "pairs": kept})
        text = json.dumps(account, indent=1, ensure_ascii=False)
        replace_file(folder / "pairs.json", text + "\n")
        start = folder / "policy"
        results.append(
            SimpleNamespace(
                candidates=rows, rewards=rewarded, pairs=chosen, record=record, policy=start
            )
        )
    return results
