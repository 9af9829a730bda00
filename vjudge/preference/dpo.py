"""Direct preference optimisation by TRL's trainer: one round, and rounds that each start from the last one's policy.

The reference is the policy that a round starts from. Weights that train, and those that a round leaves, are float32
whatever is computed in: at the published rate of 5e-7 a step lies far below bfloat16's grid, and would round away.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import torch
from torch.nn.utils.rnn import pad_sequence

import vjudge
from vjudge import data, models
from vjudge.calls import check_rows
from vjudge.data import CollectionError
from vjudge.engines.vision import images_of
from vjudge.images import picture
from vjudge.models import VisionLanguageModel, locate
from vjudge.preference.policy import draw, load_policy
from vjudge.preference.rewards import checked, make_pairs, reward
from vjudge.prompts import Conversation
from vjudge.runs import plain, replace_file
from vjudge.training import weights
from vjudge.training.collate import Coder
from vjudge.training.weights import PARTS

RECORD, CHECKPOINTS = "dpo.json", "checkpoints"
ALWAYS: dict[str, Any] = {"logging_steps": 1, "save_total_limit": 1, "report_to": [], "disable_tqdm": True}
ALWAYS |= {"dataloader_pin_memory": False, "remove_unused_columns": False}  # of every training


@dataclass(frozen=True)
class DpoSettings:
    """How a round trains, by default as published (of `batch_size` not all is known); what Scenes needs: notebook 06.

    In full, policy, reference, gradient and AdamW's moments take 20 bytes a weight whatever is computed in.
    Source: LLaVA-Critic (arXiv 2410.02712), preference learning; LLaVA-VL/LLaVA-NeXT scripts/train/dpo_ov7b.sh.
    """

    beta: float = 0.1  # how strongly the policy is held to the reference
    learning_rate: float = 5e-7  # the peak, from which it falls to 0 as a cosine
    warmup: float = 0.1  # the share of the steps over which the rate rises
    epochs: int = 1
    batch_size: int = 8  # pairs a step
    microbatch: int = 1  # of them, computed at once
    train: tuple[str, ...] = PARTS  # some of "tower", "projector", "decoder"
    lora: Mapping[str, Any] | None = None  # `peft.LoraConfig`'s options: adapters on the decoder, in place of `train`
    quantization: str | None = None  # "4bit" or "8bit": the weights under the adapters while training
    max_length: int = 4096  # tokens of prompt and response, the image's included; a longer pair is refused
    dtype: str = "auto"  # what is computed in: "float32", "bfloat16", "float16", or as `load_judge` chooses
    gradient_checkpointing: bool = False  # less memory for more computation
    checkpoint_every: int | None = None  # steps between checkpoints that an interrupted round goes on from
    sft: float = 0.0  # weight of the chosen response's cross-entropy, LLaVA-NeXT's gamma: its likelihood stays up
    seed: int = 0  # of the order of pairs and of adapters

    def __post_init__(self) -> None:
        sound = {
            "beta and learning_rate must be above 0": self.beta > 0 and self.learning_rate > 0,
            "sft must be at least 0": self.sft >= 0,
            "warmup is a share of the steps, from 0 to below 1": 0 <= self.warmup < 1,
            "epochs and microbatch are at least 1": self.epochs >= 1 and self.microbatch >= 1,
            "batch_size is a multiple of microbatch": self.microbatch and self.batch_size % self.microbatch == 0,
            f"train names some of {', '.join(PARTS)}": self.train and set(self.train) <= set(PARTS),
            "quantised weights can't train: give lora= too": not self.quantization or self.lora is not None,
        }
        if faults := [fault for fault, holds in sound.items() if not holds]:
            raise ValueError("; ".join(faults))


def train(policy: str | Path, pairs: Any, out: str | Path, settings: DpoSettings | None = None) -> dict[str, Any]:
    """Train a policy on pairs; what `out` holds already is not trained again. It needs TRL, PEFT and accelerate.

    Args:
        policy: the folder of a checkpoint; an original LLaVA one is trained as what it was converted to.
        pairs: from `make_pairs`, or rows with instruction, images, chosen and rejected.
        out: gets the trained policy as a whole checkpoint of the same kind, in float32, adapters merged; and
            `dpo.json`. An interrupted round goes on from its last checkpoint, or its start, and ends alike.
        settings: None for the published recipe.

    Returns:
        The record in `dpo.json`: identity, pairs, steps, versions; changed and relative, see `training.weights`,
        with a line where weights hardly moved; `log`, TRL's metrics by step: loss, rewards/margins and so on.

    Raises:
        CollectionError: every pair without a text, or longer than `max_length`; there is none. ValueError: the folder
            can't be trained; another round stands in `out`.
    """
    settings, policy, out = settings or DpoSettings(), Path(policy), Path(out)
    work = out.with_name(f"{out.name}.part")
    if not (rows := checked(pairs)):
        raise CollectionError("there are no pairs to train on: see attrs['left_out'] of make_pairs")
    start = models.weights_fingerprint(locate(policy))
    if not start or not (locate(policy) / "config.json").exists():
        raise ValueError(f"{policy} holds no checkpoint to train")
    texts = [{**row, "response_a": row["chosen"], "response_b": row["rejected"]} for row in rows]
    plan = {"start": start, "pairs": data.fingerprint(texts), "settings": json.loads(json.dumps(asdict(settings)))}
    for folder in (out, work):
        file = folder / RECORD
        record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"identity": plan}
        if different := [name for name in plan if record["identity"].get(name) != plan[name]]:
            raise ValueError(f"{folder} holds a round with other {' and '.join(different)}: use another folder")
        if folder == out and "log" in record:
            return dict(record)
    if out.exists():
        raise ValueError(f"{out} exists and holds no trained policy: use another folder")
    work.mkdir(parents=True, exist_ok=True)
    replace_file(work / RECORD, json.dumps({"identity": plan}) + "\n")
    record = {"identity": plan, **_fit(policy, rows, work, settings)}
    replace_file(work / RECORD, json.dumps(plain(record), indent=1) + "\n")
    shutil.rmtree(work / CHECKPOINTS, ignore_errors=True)
    work.rename(out)
    return record


def _fit(policy: Path, rows: Sequence[Mapping[str, Any]], work: Path, settings: DpoSettings) -> dict[str, Any]:
    """Train and write the checkpoint into `work`."""
    try:
        import peft
        import transformers
        import trl
    except ImportError as error:
        raise ImportError(f"{error}: preference learning needs pip install 'vjudge[train]'") from error

    class Trainer(weights.OwnNames, trl.DPOTrainer):
        """TRL's, with checkpoints under the network's own names."""

    device = models.places.choose_device()
    dtype = models.places.choose_dtype(settings.dtype, device)
    # Weights that train in full are read in float32: a policy of an earlier round has steps below a coarser grid.
    precision = "float32" if settings.lora is None else dtype
    loaded: Any = load_policy(policy, dtype=precision, quantization=settings.quantization)
    model: VisionLanguageModel = loaded.engine.model
    if not model.sees_images:
        raise ValueError(f"{policy} reads no images: train a language model by TRL itself")
    batches = PairBatches(model, loaded.conversation)
    lengths = [len(prompt) + max(map(len, responses)) for prompt, responses in map(batches.encode, rows)]
    sound, limit = [length <= settings.max_length for length in lengths], f"max_length={settings.max_length}"
    check_rows(rows, "length", sound, f"exceeds {limit}", f"raise it, to {max(lengths)} for all, or leave the pair out")
    network, reference, adapters = model.model.train(), None, None
    if settings.lora is None:
        for name, weight in network.named_parameters():
            weight.requires_grad_(weights.part_of(name) in settings.train)
        reference = copy.deepcopy(network).eval()  # computed as the policy is: the first margin is 0
    else:
        options = {"target_modules": weights.decoder_layers(network), "task_type": "CAUSAL_LM", **settings.lora}
        adapters = peft.LoraConfig(**options)
    trainer = Trainer(
        model=network,
        ref_model=reference,
        args=trl.DPOConfig(
            output_dir=str(work / CHECKPOINTS),
            beta=settings.beta,
            loss_type=["sigmoid", *["sft"] * bool(settings.sft)],
            loss_weights=[1.0, settings.sft] if settings.sft else None,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=round(settings.warmup * -(-len(rows) // settings.batch_size) * settings.epochs),
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=settings.microbatch,
            gradient_accumulation_steps=settings.batch_size // settings.microbatch,
            max_length=None,  # longer pairs were refused above
            gradient_checkpointing=settings.gradient_checkpointing,
            save_strategy="no" if settings.checkpoint_every is None else "steps",
            save_steps=settings.checkpoint_every or 500,
            use_cpu=device.type == "cpu",
            bf16=dtype == torch.bfloat16,  # autocast: float32 weights, computed with in bfloat16
            fp16=dtype == torch.float16 and device.type == "cuda",
            seed=settings.seed,
            **ALWAYS,
        ),
        # TRL draws row numbers, and asks for images; a pair is read when its batch comes.
        train_dataset=datasets.Dataset.from_dict({"row": range(len(rows)), "images": [[] for _ in rows]}),
        data_collator=lambda entries: batches([rows[entry["row"]] for entry in entries]),
        # What TRL takes for a model that reads images; the batches are made by `PairBatches`, not by it.
        processing_class=model.processor or transformers.LlavaProcessor(model.image_processor, model.tokenizer),
        peft_config=adapters,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    weights.train_in_float32(trainer.model)  # TRL makes the adapters on quantised weights bfloat16
    start = weights.weight_samples(trainer.model)
    last = weights.last_checkpoint(work / CHECKPOINTS)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    stored = trainer.model
    if adapters is not None:
        layers = {f"{name}.weight" for name in stored.base_model.targeted_module_names}
        whole = weights.weight_samples(models.load(policy, device="cpu", dtype="float32").model)
        start = {name: whole[name] for name in layers}
        stored = weights.merged(stored, policy, work / "adapters", dtype=torch.float32)
    moved = weights.movement(start, stored)
    if line := weights.movement_line(moved):
        print(f"{work.with_suffix('').name}: {line}", file=sys.stderr)
    weights.write_checkpoint(stored, model.folder, work)
    return {
        "pairs": len(rows),
        "steps": int(trainer.state.global_step),
        **moved,
        "versions": {module.__name__: module.__version__ for module in (vjudge, torch, transformers, trl, peft)},
        "log": [entry for entry in trainer.state.log_history if "loss" in entry],
    }


class PairBatches:
    """Make a batch of pairs, chosen responses first: the very tokens and pixels that the policy's engine answers with.

    TRL's own collator would read control tokens in texts; LLaVA's families have no processor for it.
    """

    def __init__(self, model: VisionLanguageModel, conversation: Conversation) -> None:
        self.model, self.coder = model, Coder(model, conversation)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        encoded = [self.encode(row) for row in rows]
        sides = [(prompt, responses[side]) for side in (0, 1) for prompt, responses in encoded]

        def padded(rows: list[list[int]], pad: int = 0) -> torch.Tensor:
            return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad)

        ids = padded([prompt + response for prompt, response in sides], self.coder.pad)
        attended = padded([[1] * len(prompt + response) for prompt, response in sides])
        completed = padded([[0] * len(prompt) + [1] * len(response) for prompt, response in sides])
        pixels = self.pixels(ids, [row["images"] for row in rows])
        return {"input_ids": ids, "attention_mask": attended, "completion_mask": completed, **pixels}

    def encode(self, row: Mapping[str, Any]) -> tuple[list[int], list[list[int]]]:
        """The ids of a row's prompt, and of its two responses after it."""
        prompt = self.coder.conversation.wrap(row["instruction"], len(row["images"]))
        return self.coder.encode(prompt, row["images"], [row["chosen"], row["rejected"]])

    def pixels(self, ids: torch.Tensor, images: Sequence[Sequence[Any]]) -> dict[str, torch.Tensor]:
        """The images of a batch's rows, for its chosen and then its rejected side, as the model's class takes them."""
        source: Any = images_of(self.model)
        pictures = [list(map(picture, row)) for row in images] * 2
        keys = [source.keys(row) for row in pictures]
        if not any(keys):
            return {}
        if self.model.processor is not None:
            source.fetch([key for row in keys for key in row])
            inputs = source.inputs(ids.tolist(), keys)  # rows of one length: nothing is padded
            return {name: inputs[name] for name in inputs if name not in ("input_ids", "attention_mask")}
        tiles = [source.prepare(key)[0] for row in keys for key in row]
        if not self.model.tiled:
            return {"pixel_values": torch.cat(tiles)}
        sizes = torch.tensor([image.size[::-1] for row in pictures for image in row])  # height, width
        counts = torch.tensor([len(row) for row in pictures if row])
        padded = pad_sequence(tiles, batch_first=True)
        return {"pixel_values": padded, "image_sizes": sizes, "batch_num_images": counts}


@dataclass(frozen=True)
class Round:
    """What one round, counted from 1, made, and the folder of the policy that it left."""

    number: int
    candidates: list[dict[str, Any]]
    rewards: pd.DataFrame
    pairs: pd.DataFrame
    record: dict[str, Any]
    policy: Path


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
    settings: DpoSettings | None = None,
    enrich: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None,
    progress: bool = True,
) -> list[Round]:
    """Improve a policy by a judge's preferences over rounds, three as published: draw, reward, pair, train.

    Args:
        policy: the checkpoint that the first round starts from.
        questions: what the policy answers in each round; rows with a rubric where the judge needs one.
        judge: a `Judge`.
        out: gets `round-1` and so on, each with candidates, rewards, policy and pairs.json; an interrupted call goes on
            where it stopped. Who removes a round's folder and the later ones has them made anew.
        draws, rewards, pairs, settings: options of `draw`, `reward`, `make_pairs` and `train`; the published ones where
            they say nothing. The seeds of draws and settings grow by one a round.
        enrich: applied to each round's candidates before they are rewarded; `with_true_scores` on Scenes.

    Raises:
        CollectionError: bad questions; no pairs are left. RunError, ValueError: a folder holds another call's round.

    Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning.
    """
    out, start, results = Path(out), Path(policy), list[Round]()
    draws, settings = {"seed": 0, **(draws or {})}, settings or DpoSettings()
    for number in range(1, rounds + 1):
        folder, name = out / f"round-{number}", f"{Path(policy).name}, {number - 1} rounds"
        own = {**draws, "seed": draws["seed"] + number - 1, "out": folder / "candidates", "progress": progress}
        rows = draw(load_policy(start, name=name), questions, **own)  # then that policy is gone: training needs memory
        rows = enrich(rows) if enrich else rows
        rewarded = reward(judge, rows, out=folder / "rewards", progress=progress, **(rewards or {}))
        chosen = make_pairs(rows, rewarded, **(pairs or {}))
        record = train(start, chosen, folder / "policy", replace(settings, seed=settings.seed + number - 1))
        start = folder / "policy"
        account = {"account": chosen.attrs, "pairs": chosen.drop(columns="images").to_dict("records")}
        replace_file(folder / "pairs.json", json.dumps(plain(account), indent=1, ensure_ascii=False) + "\n")
        results.append(Round(number, rows, rewarded, chosen, record, start))
    return results
