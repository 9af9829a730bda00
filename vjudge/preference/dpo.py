"""Direct preference optimisation by TRL's trainer: one round, and rounds that each start from the last one's policy.

The reference is the policy that a round starts from. Weights that train, and those that a round leaves, are float32
whatever is computed in: at the published rate of 5e-7 a step lies far below bfloat16's grid, and would round away.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import torch

import vjudge
from vjudge import data, models
from vjudge.data import CollectionError, Problem, check_pictures, rows_of
from vjudge.engines.vision import images_of
from vjudge.images import picture
from vjudge.models import VisionLanguageModel, locate
from vjudge.preference.policy import draw, load_policy
from vjudge.preference.rewards import checked, make_pairs, reward
from vjudge.prompts import Conversation
from vjudge.runs import plain, replace_file
from vjudge.training.collate import Coder
from vjudge.training.lora import PARTS, decoder_layers, merged, part_of, train_in_float32, write_checkpoint
from vjudge.training.watch import OwnNames, last_checkpoint, movement, movement_line, weight_samples

RECORD = "dpo.json"
CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class DpoSettings:
    """How a round trains. The defaults are the published recipe's, where it says; `batch_size` is not published whole.

    The small policy of Scenes, 2 M weights, needs more, and must be held to what it says well (notebook 06): a
    learning_rate of 6e-4, 2 epochs, an sft of 2 and train=("projector", "decoder").

    Args:
        beta: how strongly the policy is held to the reference.
        learning_rate: the peak; linear warm-up over `warmup` (a share) of the steps, then a cosine to 0.
        epochs: passes over the pairs.
        batch_size: pairs a step, `microbatch` of them computed at once.
        train: what is trained: "tower", "projector", "decoder"; the published recipe trains all.
        lora: None trains those parts whole; a mapping is `peft.LoraConfig`'s options, such as {"r": 16}, on the linear
            layers of the decoder (`target_modules` for others), whatever `train` says.
        quantization: None, or with `lora` "4bit" or "8bit" for the weights under the adapters while training.
        max_length: the most tokens of prompt and response, the image's included; a longer pair is refused.
        dtype: what is computed in: "float32", "bfloat16" or "float16"; "auto" as `load_judge` chooses. In full, policy,
            reference, gradient and AdamW's moments take 20 bytes a weight in any case.
        gradient_checkpointing: less memory for more computation.
        checkpoint_every: steps between checkpoints that an interrupted round goes on from; None for none.
        sft: weight of the plain cross-entropy on the chosen response, which keeps its own likelihood from falling with
            the rejected one's; LLaVA-NeXT's gamma, published as 0.
        seed: of the order of pairs and of adapters.

    Source: LLaVA-Critic (arXiv 2410.02712), preference learning; LLaVA-VL/LLaVA-NeXT scripts/train/dpo_ov7b.sh.
    """

    beta: float = 0.1
    learning_rate: float = 5e-7
    warmup: float = 0.1
    epochs: int = 1
    batch_size: int = 8
    microbatch: int = 1
    train: tuple[str, ...] = PARTS
    lora: Mapping[str, Any] | None = None
    quantization: str | None = None
    max_length: int = 4096
    dtype: str = "auto"
    gradient_checkpointing: bool = False
    checkpoint_every: int | None = None
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
        if self.quantization and self.lora is None:
            faults.append("quantised weights can't train: give lora= too")
        if faults:
            raise ValueError("; ".join(faults))


def train(policy: str | Path, pairs: Any, out: str | Path, settings: DpoSettings | None = None) -> dict[str, Any]:
    """Train a policy on pairs; what `out` holds already is not trained again.

    Args:
        policy: the folder of a checkpoint; an original LLaVA one is trained as what it was converted to.
        pairs: from `make_pairs`, or rows with instruction, images, chosen and rejected.
        out: gets the trained policy as a whole checkpoint of the same kind, in float32, adapters merged; and
            `dpo.json`. An interrupted round goes on from its last checkpoint, or its start, and ends alike.
        settings: None for the published recipe.

    Returns:
        The record of the round, as in `dpo.json`: pairs, steps, seconds, settings, versions; changed and relative (the
        share of the stored weights that have another value, and the norm of their change by theirs; a line is printed
        where they hardly moved); and `log`, TRL's metrics by step: loss, rewards/chosen, rewards/margins and so on.

    Raises:
        ValueError: the folder can't be trained; another round stands in `out`.
        CollectionError: every pair without a text, or longer than `max_length`; there is none.
        ImportError: TRL, PEFT or accelerate is not there.
    """
    settings, policy, out, pairs = settings or DpoSettings(), Path(policy), Path(out), rows_of(pairs)
    check_pictures(pairs)
    rows = checked(pairs)
    if not rows:
        raise CollectionError("there are no pairs to train on: see attrs['left_out'] of make_pairs")
    start = models.weights_fingerprint(locate(policy))
    if not start or not (locate(policy) / "config.json").exists():
        raise ValueError(f"{policy} holds no checkpoint to train")
    texts = [{**row, "response_a": row["chosen"], "response_b": row["rejected"]} for row in rows]
    plan = {"start": start, "pairs": data.fingerprint(texts), "settings": json.loads(json.dumps(asdict(settings)))}
    work = out.with_name(f"{out.name}.part")
    for file in (out / RECORD, work / RECORD):
        record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"identity": plan}
        if different := [name for name in plan if record["identity"].get(name) != plan[name]]:
            raise ValueError(f"{file.parent} holds a round with other {' and '.join(different)}: use another folder")
        if file.parent == out and "log" in record:
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
        raise ImportError(f"DPO needs TRL, PEFT and accelerate ({error}): pip install 'vjudge[train]'") from error

    class Trainer(OwnNames, trl.DPOTrainer):
        """TRL's, with checkpoints under the network's own names."""

    began = time.monotonic()
    device = models.places.choose_device()
    dtype = models.places.choose_dtype(settings.dtype, device)
    # Weights that train in full are read in float32: a policy of an earlier round has steps below a coarser grid.
    precision = "float32" if settings.lora is None else dtype
    loaded: Any = load_policy(policy, dtype=precision, quantization=settings.quantization)
    model: VisionLanguageModel = loaded.engine.model
    if not model.sees_images:
        raise ValueError(f"{policy} reads no images: train a language model by TRL itself")
    network, reference, adapters = model.model.train(), None, None
    if settings.lora is None:
        for name, weight in network.named_parameters():
            weight.requires_grad_(part_of(name) in settings.train)
        reference = copy.deepcopy(network).eval()  # computed as the policy is: the first margin is 0
    else:
        options = {"target_modules": decoder_layers(network), "task_type": "CAUSAL_LM", **settings.lora}
        adapters = peft.LoraConfig(**options)
    batches = PairBatches(model, loaded.conversation)
    problems = []
    for index, row in enumerate(rows):
        prompt, responses = batches.encode(row)
        if (length := len(prompt) + max(map(len, responses))) > settings.max_length:
            remedy = f"raise max_length={settings.max_length}, or leave the pair out"
            problems.append(Problem(index, str(row.get("id")), "length", f"is {length} tokens", remedy))
    if problems:
        raise CollectionError(f"{len(problems)} of {len(rows)} pairs are too long:", problems)
    # What TRL takes for a model that reads images; the batches are made by `PairBatches`, not by it.
    processor = model.processor or transformers.LlavaProcessor(model.image_processor, model.tokenizer)
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
            logging_steps=1,
            save_strategy="no" if settings.checkpoint_every is None else "steps",
            save_steps=settings.checkpoint_every or 500,
            save_total_limit=1,
            use_cpu=device.type == "cpu",
            bf16=dtype == torch.bfloat16,  # autocast: float32 weights, computed with in bfloat16
            fp16=dtype == torch.float16 and device.type == "cuda",
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            report_to=[],
            disable_tqdm=True,
            seed=settings.seed,
        ),
        # TRL draws row numbers, and asks for images; a pair is read when its batch comes.
        train_dataset=datasets.Dataset.from_dict({"row": range(len(rows)), "images": [[] for _ in rows]}),
        data_collator=lambda entries: batches([rows[entry["row"]] for entry in entries]),
        processing_class=processor,
        peft_config=adapters,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    train_in_float32(trainer.model)  # TRL makes the adapters on quantised weights bfloat16
    start = weight_samples(trainer.model)
    last = last_checkpoint(work / CHECKPOINTS)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    stored = trainer.model
    if adapters is not None:
        layers = {f"{name}.weight" for name in stored.base_model.targeted_module_names}
        whole = weight_samples(models.load(policy, device="cpu", dtype="float32").model)
        start = {name: whole[name] for name in layers}
        stored = merged(stored, policy, work / "adapters", dtype=torch.float32)
    moved = movement(start, stored)
    if line := movement_line(moved):
        print(f"{work.with_suffix('').name}: {line}", file=sys.stderr)
    write_checkpoint(stored, model.folder, work)
    return {
        "pairs": len(rows),
        "steps": int(trainer.state.global_step),
        **moved,
        "seconds": round(time.monotonic() - began, 1),
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
        width = max(len(prompt) + len(response) for prompt, response in sides)
        ids = torch.full((len(sides), width), self.coder.pad)
        attended, completed = torch.zeros_like(ids), torch.zeros_like(ids)
        for row, (prompt, response) in enumerate(sides):
            length = len(prompt) + len(response)
            ids[row, :length] = torch.tensor(prompt + response)
            attended[row, :length] = 1
            completed[row, len(prompt) : length] = 1
        pixels = self.pixels(ids, [row["images"] for row in rows] * 2)
        return {"input_ids": ids, "attention_mask": attended, "completion_mask": completed, **pixels}

    def encode(self, row: Mapping[str, Any]) -> tuple[list[int], list[list[int]]]:
        """The ids of a row's prompt, and of its two responses after it."""
        prompt = self.coder.conversation.wrap(row["instruction"], len(row["images"]))
        return self.coder.encode(prompt, row["images"], [row["chosen"], row["rejected"]])

    def pixels(self, ids: torch.Tensor, images: Sequence[Sequence[Any]]) -> dict[str, torch.Tensor]:
        """The images of a batch as the model's class takes them."""
        source: Any = images_of(self.model)
        pictures = [list(map(picture, row)) for row in images]
        keys = [source.keys(row) for row in pictures]
        if not any(keys):
            return {}
        if self.model.processor is not None:
            if broken := source.fetch([key for row in keys for key in row]):
                raise ValueError(f"an image that was readable is no longer: {next(iter(broken.values()))}")
            inputs = source.inputs(ids.tolist(), keys)  # rows of one length: nothing is padded
            return {name: inputs[name] for name in inputs if name not in ("input_ids", "attention_mask")}
        tiles = [source.prepare(key)[0] for row in keys for key in row]
        if not self.model.tiled:
            return {"pixel_values": torch.cat(tiles)}
        most = max(map(len, tiles))
        padded = [torch.cat([tile, tile.new_zeros(most - len(tile), *tile.shape[1:])]) for tile in tiles]
        sizes = torch.tensor([image.size[::-1] for row in pictures for image in row])  # height, width
        counts = torch.tensor([len(row) for row in pictures if row])
        return {"pixel_values": torch.stack(padded), "image_sizes": sizes, "batch_num_images": counts}


@dataclass(frozen=True)
class RoundRecipe:
    """What every round does; the defaults are the published recipe's, by scores, with three rounds.

    Scenes needs temperature 1 and top_p 1, a `min_margin` of 0.5 and a `max_length_ratio` of 1.2.

    Args:
        samples, temperature, top_p: of candidates.
        by: "scores" or "pairs": how candidates are rewarded.
        reward, pairs: options of `reward` and `make_pairs`.
        answering: further options of `Policy.respond`, such as max_new_tokens.
        settings: of DPO; its seed grows by one a round.
        seed: of candidates; each round draws with its own.

    Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning.
    """

    samples: int = 5
    temperature: float = 0.7
    top_p: float = 0.9
    by: str = "scores"
    reward: Mapping[str, Any] = field(default_factory=dict)
    pairs: Mapping[str, Any] = field(default_factory=dict)
    answering: Mapping[str, Any] = field(default_factory=dict)
    settings: DpoSettings = field(default_factory=DpoSettings)
    seed: int = 0


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
    recipe: RoundRecipe | None = None,
    enrich: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None,
    progress: bool = True,
) -> list[Round]:
    """Improve a policy by a judge's preferences over rounds: draw, reward, pair, train.

    Everything a round makes is in its folder, and the call that was interrupted goes on where it stopped. Who removes a
    round's folder and the later ones has them made anew.

    Args:
        policy: the checkpoint that the first round starts from.
        questions: what the policy answers in each round; rows with a rubric where the judge needs one.
        judge: a `Judge`.
        out: gets a folder a round: `round-1` with candidates, rewards, pairs.json, policy, and so on.
        rounds: how many; three are published.
        recipe: None for the published one, by scores.
        enrich: applied to each round's candidates before they are rewarded; `with_true_scores` on Scenes.
        progress: whether to show progress bars.

    Raises:
        RunError, ValueError: a folder holds a round of another call.
        CollectionError: bad questions; no pairs are left in some round.
    """
    recipe, out, start = recipe or RoundRecipe(), Path(out), Path(policy)
    results: list[Round] = []
    for number in range(1, rounds + 1):
        folder = out / f"round-{number}"
        rows = draw(  # the policy that draws is gone after this: training needs its memory
            load_policy(start, name=f"{Path(policy).name}, {number - 1} rounds"),
            questions,
            samples=recipe.samples,
            temperature=recipe.temperature,
            top_p=recipe.top_p,
            seed=recipe.seed + number - 1,
            out=folder / "candidates",
            progress=progress,
            **recipe.answering,
        )
        rows = enrich(rows) if enrich else rows
        rewards = reward(judge, rows, by=recipe.by, out=folder / "rewards", progress=progress, **recipe.reward)
        pairs = make_pairs(rows, rewards, **recipe.pairs)
        account = {"account": pairs.attrs, "pairs": pairs.drop(columns="images").to_dict("records")}
        file, text = folder / "pairs.json", json.dumps(plain(account), indent=1, ensure_ascii=False) + "\n"
        if file.exists() and file.read_text(encoding="utf-8") != text:
            raise ValueError(f"{file} holds the pairs of another call: repeat the first call, or use another folder")
        replace_file(file, text)
        settings = replace(recipe.settings, seed=recipe.settings.seed + number - 1)
        record = train(start, pairs, folder / "policy", settings)
        start = folder / "policy"
        results.append(Round(number, rows, rewards, pairs, record, start))
    return results
