"""One round of direct preference optimisation, by TRL's trainer.

A round takes a policy's folder and pairs and leaves another policy's folder. The reference is the policy that the round
starts from. With LoRA, adapters are trained and merged, so that what a round leaves is a whole checkpoint again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import pandas as pd

import vjudge
from vjudge import models
from vjudge.data import CollectionError, check_pictures, rows_of
from vjudge.images import fingerprint, open_image
from vjudge.models import locate
from vjudge.preference.batches import PairBatches
from vjudge.preference.formats import checked
from vjudge.preference.policy import load_policy
from vjudge.runs import plain, replace_file
from vjudge.training.lora import tower_names

RECORD = "dpo.json"
CHECKPOINTS = "checkpoints"
SETTINGS = (".json", ".jinja", ".model", ".txt")  # files of a checkpoint that training leaves as they are
PARTS = {
    "vision": ("vision_tower", "visual", "vision_model"),
    "projector": ("multi_modal_projector", "image_newline", "connector", "merger", "mlp1"),
    "language": (),  # all else
}


@dataclass(frozen=True)
class DpoSettings:
    """How a round trains. The defaults are the published recipe's, where it says; `batch_size` is not published whole.

    Args:
        beta: how strongly the policy is held to the reference.
        learning_rate: the peak; linear warm-up over `warmup` of the steps, then a cosine to 0.
        warmup: share of the steps.
        epochs: passes over the pairs.
        batch_size: pairs a step, `microbatch` of them computed at once.
        microbatch: pairs computed at once.
        weight_decay, clip: AdamW's; the largest norm of the gradient.
        train: what is trained: "vision", "projector", "language"; the published recipe trains all.
        lora: None trains those parts whole; a mapping is `peft.LoraConfig`'s options, such as {"r": 16}, on the linear
            layers of the language model (`target_modules` for others); `train` then does not matter.
        max_length: the most tokens of prompt and response, the image's included.
        dtype: of the weights while training; "float32", "bfloat16" or "auto" as `load_judge` chooses.
        gradient_checkpointing: less memory for more computation.
        checkpoint_every: steps between checkpoints that an interrupted round goes on from; None for none.
        loss: TRL's `loss_type`; "sigmoid" is DPO's.
        sft: weight of the plain cross-entropy on the chosen response beside it. Above 0 it keeps the chosen responses'
            own likelihood from falling with the rejected ones', as DPO lets it; LLaVA-NeXT's gamma, published as 0.
        seed: of the order of pairs and of adapters.

    Source: LLaVA-Critic (arXiv 2410.02712), preference learning; LLaVA-VL/LLaVA-NeXT scripts/train/dpo_ov7b.sh.
    """

    beta: float = 0.1
    learning_rate: float = 5e-7
    warmup: float = 0.1
    epochs: int = 1
    batch_size: int = 8
    microbatch: int = 1
    weight_decay: float = 0.0
    clip: float = 1.0
    train: tuple[str, ...] = ("vision", "projector", "language")
    lora: Mapping[str, Any] | None = None
    max_length: int | None = 4096
    dtype: str = "auto"
    gradient_checkpointing: bool = False
    checkpoint_every: int | None = None
    loss: str = "sigmoid"
    sft: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        faults = []
        if not self.beta > 0 or not self.learning_rate > 0 or not self.sft >= 0:
            faults.append("beta and learning_rate must be above 0, and sft at least 0")
        if not 0 <= self.warmup < 1:
            faults.append("warmup is a share of the steps, from 0 to below 1")
        if self.epochs < 1 or self.microbatch < 1 or self.batch_size % self.microbatch:
            faults.append("epochs and microbatch are at least 1, and batch_size a multiple of microbatch")
        if not self.train or set(self.train) - set(PARTS):
            faults.append(f"train names some of {', '.join(PARTS)}")
        if faults:
            raise ValueError("; ".join(faults))


def train(policy: str | Path, pairs: Any, out: str | Path, settings: DpoSettings | None = None) -> dict[str, Any]:
    """Train a policy on pairs; what `out` holds already is not trained again.

    Args:
        policy: the folder of a checkpoint; an original LLaVA one is trained as what it was converted to.
        pairs: from `make_pairs`, or rows with instruction, images, chosen and rejected.
        out: gets the trained policy as a checkpoint of the same kind, and `dpo.json`. An interrupted round goes on from
            its last checkpoint, where `checkpoint_every` made one, else from its start; either ends in the same policy
            on the same machine.
        settings: None for the published recipe.

    Returns:
        The record of the round, as in `dpo.json`: pairs, cut (pairs with a response that max_length cuts), steps,
        seconds, settings, versions, and `log`, TRL's metrics by step: loss, rewards/chosen, rewards/rejected,
        rewards/accuracies, rewards/margins, learning_rate and so on.

    Raises:
        ValueError: the folder can't be trained; another round stands in `out`.
        CollectionError: every pair without a text; there is none.
        ImportError: TRL, PEFT or accelerate is not there.
    """
    settings = settings or DpoSettings()
    policy, out = Path(policy), Path(out)
    pairs = rows_of(pairs)
    check_pictures(pairs)
    rows = checked(pairs)
    if not rows:
        raise CollectionError("there are no pairs to train on: see attrs['left_out'] of make_pairs")
    wanted = _identity(policy, rows, settings)
    if (out / RECORD).exists():
        record: dict[str, Any] = json.loads((out / RECORD).read_text(encoding="utf-8"))
        _same(record["identity"], wanted, out)
        return record
    if out.exists():
        raise ValueError(f"{out} exists and holds no trained policy: use another folder")
    work = out.with_name(f"{out.name}.part")
    work.mkdir(parents=True, exist_ok=True)
    if (work / "identity.json").exists():
        _same(json.loads((work / "identity.json").read_text(encoding="utf-8")), wanted, work)
    replace_file(work / "identity.json", json.dumps(wanted, indent=2) + "\n")
    record = {"identity": wanted, **_fit(policy, rows, work, settings)}
    replace_file(work / RECORD, json.dumps(plain(record), indent=1) + "\n")
    shutil.rmtree(work / CHECKPOINTS, ignore_errors=True)
    (work / "identity.json").unlink()
    work.rename(out)
    return record


def log_of(record: Mapping[str, Any]) -> pd.DataFrame:
    """The log of a round as a frame, one row a step."""
    return pd.DataFrame([entry for entry in record["log"] if "loss" in entry])


def _fit(policy: Path, rows: Sequence[Mapping[str, Any]], work: Path, settings: DpoSettings) -> dict[str, Any]:
    """Train and write the checkpoint into `work`."""
    try:
        import peft
        import trl

        from vjudge.preference.trainer import PairTrainer
        from vjudge.training.watch import last_checkpoint
    except ImportError as error:
        raise ImportError(f"DPO needs TRL, PEFT and accelerate ({error}): pip install 'vjudge[train]'") from error
    import torch
    import transformers

    began = time.monotonic()
    loaded = _load(policy, settings)
    held = loaded.engine.model
    network, reference, adapters = held.model.train(), None, None
    if settings.lora is None:
        _freeze(network, settings.train)
        reference = _load(policy, settings).engine.model.model.eval()
    else:
        options = {"target_modules": _language_layers(network), "task_type": "CAUSAL_LM", **settings.lora}
        adapters = peft.LoraConfig(**options)
    batches = PairBatches(held, loaded.conversation, max_length=settings.max_length)
    if n_cut := batches.n_cut(rows):
        print(
            f"{n_cut} of {len(rows)} pairs have a response that max_length={settings.max_length} cuts", file=sys.stderr
        )
    trainer = PairTrainer(
        model=network,
        ref_model=reference,
        args=_arguments(trl.DPOConfig, held, len(rows), work, settings),
        train_dataset=_dataset(rows),
        data_collator=batches,
        processing_class=held.processor or _processor(held),
        peft_config=adapters,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    n_trained = sum(each.numel() for each in trainer.model.parameters() if each.requires_grad)
    last = last_checkpoint(work / CHECKPOINTS)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    trained: Any = trainer.model if adapters is None else trainer.model.merge_and_unload()
    _save(trained, held.folder, work)
    versions = {each.__name__: each.__version__ for each in (torch, transformers, trl, peft)}
    return {
        "pairs": len(rows),
        "cut": n_cut,
        "steps": int(trainer.state.global_step),
        "trained_parameters": n_trained,
        "seconds": round(time.monotonic() - began, 1),
        "threads": torch.get_num_threads(),
        "versions": {"vjudge": vjudge.__version__, **versions},
        "log": trainer.state.log_history,
    }


def _load(policy: Path, settings: DpoSettings) -> Any:
    """The policy, its model held in this process."""
    loaded: Any = load_policy(policy, dtype=settings.dtype)
    held = loaded.engine.model
    if not held.sees_images:
        raise ValueError(f"{policy} reads no images: train a language model by TRL itself")
    if not (held.path / "config.json").exists() or not models.weights_fingerprint(held.path):
        raise ValueError(f"{policy} holds no checkpoint to train")
    return loaded


def _arguments(kind: Any, held: Any, n_pairs: int, work: Path, settings: DpoSettings) -> Any:
    """TRL's settings of a round."""
    import torch

    n_steps = -(-n_pairs // settings.batch_size) * settings.epochs
    return kind(
        output_dir=str(work / CHECKPOINTS),
        beta=settings.beta,
        loss_type=[settings.loss, *["sft"] * bool(settings.sft)],
        loss_weights=[1.0, settings.sft] if settings.sft else None,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=round(settings.warmup * n_steps),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.microbatch,
        gradient_accumulation_steps=settings.batch_size // settings.microbatch,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip,
        max_length=None,  # the batches cut
        gradient_checkpointing=settings.gradient_checkpointing,
        logging_steps=1,
        save_strategy="no" if settings.checkpoint_every is None else "steps",
        save_steps=settings.checkpoint_every or 500,
        save_total_limit=1,
        use_cpu=held.device.type == "cpu",
        bf16=held.dtype == torch.bfloat16,
        dataloader_pin_memory=held.device.type == "cuda",
        remove_unused_columns=False,
        report_to=[],
        disable_tqdm=True,
        seed=settings.seed,
    )


def _dataset(rows: Sequence[Mapping[str, Any]]) -> datasets.Dataset:
    """Pairs as the trainer draws them; images as files, decoded when their batch comes."""
    text = datasets.Value("string")
    names = ("instruction", "chosen", "rejected")
    features = datasets.Features({**dict.fromkeys(names, text), "images": datasets.List(datasets.Image())})
    made = [{**{name: row[name] for name in names}, "images": list(row["images"])} for row in rows]
    return datasets.Dataset.from_list(made, features=features)


def _processor(held: Any) -> Any:
    """What TRL takes for a model that reads images; the batches are made by `PairBatches`, not by it."""
    from transformers import LlavaProcessor

    return LlavaProcessor(image_processor=held.image_processor, tokenizer=held.tokenizer)


def _part_of(name: str) -> str:
    """The part of the model that a parameter belongs to."""
    words = name.split(".")
    return next((part for part, marks in PARTS.items() if any(mark in words for mark in marks)), "language")


def _freeze(network: Any, trained: Sequence[str]) -> None:
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(_part_of(name) in trained)


def _language_layers(network: Any) -> list[str]:
    """The linear layers of the language model, without its head, whose adapters TRL would pass over."""
    import torch

    head = network.get_output_embeddings()
    return [
        name
        for name, module in network.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head and _part_of(name) == "language"
    ]


def _save(trained: Any, source: Path, folder: Path) -> None:
    """Write the trained weights, and beside them everything of the source that is not weights."""
    for file in source.iterdir():
        kept = file.suffix in SETTINGS and not file.name.endswith(".index.json") and file.name != RECORD
        if file.is_file() and kept:
            shutil.copy(file, folder / file.name)
    trained.save_pretrained(folder, state_dict=tower_names(trained.state_dict()))


def _identity(policy: Path, rows: Sequence[Mapping[str, Any]], settings: DpoSettings) -> dict[str, Any]:
    """What decides the policy that a round leaves."""
    digest = hashlib.sha256()
    for row in rows:
        texts = [row[name] for name in ("instruction", "chosen", "rejected")]
        prints = [fingerprint(open_image(image)) for image in row["images"]]
        digest.update(json.dumps([texts, prints]).encode() + b"\n")
    start = models.weights_fingerprint(locate(policy))
    return {"start": start, "pairs": digest.hexdigest(), "settings": json.loads(json.dumps(asdict(settings)))}


def _same(known: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path) -> None:
    if different := [name for name in wanted if known.get(name) != wanted[name]]:
        raise ValueError(
            f"{folder} holds a round with other {' and '.join(different)}: repeat the first call, or use another folder"
        )
