"""Which weights of a judge train, in full or by adapters, always in float32; how the result is stored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig

from vjudge import models
from vjudge.models import VisionLanguageModel
from vjudge.models.places import read_tensors
from vjudge.prompts import TEMPLATES, Template, families

PARTS = ("tower", "projector", "decoder")
MARKS = {  # of a weight's name -> the part of the model; all else is the decoder's
    "tower": {"vision_tower", "visual", "vision_model"},
    "projector": {"multi_modal_projector", "image_newline", "connector", "merger", "mlp1"},
}
SETTINGS = (".json", ".jinja", ".model", ".txt")  # files of a checkpoint that training leaves as they are


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters on the decoder's linear layers.

    Source: haotian-liu/LLaVA scripts/v1_5/finetune_lora.sh, and llava/train/train.py for the dropout.
    """

    rank: int = 128
    alpha: int = 256
    dropout: float = 0.05
    targets: str | None = None  # a regular expression over modules; None: the decoder's linear layers but the output
    merge: bool | None = None  # whether adapters go into the stored weights; None: unless the base is quantised


def part_of(name: str) -> str:
    """Which part of the model a weight belongs to by its name: one of `PARTS`."""
    words = name.split(".")
    return next((part for part, marks in MARKS.items() if not marks.isdisjoint(words)), "decoder")


def tower_names(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights of a LLaVA with the vision tower's under their older names, the only ones that vLLM reads."""
    new, old = "vision_tower.", "vision_tower.vision_model."
    return {name if old in name else name.replace(new, old, 1): tensor for name, tensor in state.items()}


def decoder_layers(model: Any) -> str:
    """A regular expression over the names of the decoder's linear layers, the output weights apart."""
    output = model.get_output_embeddings()
    leaves = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not output and part_of(name) == "decoder"
    }
    inside = r".*language_model\." if hasattr(model.config, "vision_config") else ""
    return rf"{inside}.*\.({'|'.join(sorted(leaves))})"


def train_in_float32(model: nn.Module) -> None:
    """Hold every weight that trains in float32, and let a projector that trains take states of the base's precision."""
    for weight in model.parameters():
        if weight.requires_grad and weight.is_floating_point():
            weight.data = weight.data.float()
    for name, module in model.named_modules():
        if name.endswith("multi_modal_projector") and any(weight.requires_grad for weight in module.parameters()):
            module.register_forward_pre_hook(lambda _, states: tuple(state.float() for state in states))


def prepare(judge: VisionLanguageModel, *, freeze: Collection[str], lora: Lora | None) -> Any:
    """Settle in place which weights of a judge train, in float32; with adapters, return the peft model around it."""
    model = judge.model
    if lora is None:
        for name, weight in model.named_parameters():
            weight.requires_grad_(part_of(name) not in freeze and weight.is_floating_point())
        if not any(weight.requires_grad for weight in model.parameters()):
            raise ValueError(f"freeze={sorted(freeze)} leaves nothing to train: leave a part of the model out of it")
        train_in_float32(model)
        return None
    if "decoder" in freeze:
        raise ValueError("lora= adapts the decoder, and freeze= keeps it as it is: leave one of them out")
    try:
        import peft
    except ImportError as error:
        raise ValueError("lora= needs peft: pip install 'vjudge[train]'") from error
    trains_projector = judge.sees_images and "projector" not in freeze
    if judge.quantization:
        for module in model.modules():
            if hasattr(module, "support_avx512bf16_for_cpu"):  # grading packs such weights: no gradient passes then
                module.support_avx512bf16_for_cpu = False
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        if trains_projector:  # quantised weights can't train: a projector of the stored ones takes their place
            projector, stored = type(model.model.multi_modal_projector)(model.config), read_tensors(judge.folder)
            names = projector.state_dict()
            projector.load_state_dict({name: stored[f"multi_modal_projector.{name}"] for name in names})
            model.model.multi_modal_projector = projector.to(judge.device)
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets or decoder_layers(judge.model),
        modules_to_save=["multi_modal_projector"] if trains_projector else None,
        task_type="CAUSAL_LM",
    )
    adapters = peft.get_peft_model(model, config)
    train_in_float32(adapters)
    return adapters


def save(
    judge: VisionLanguageModel,
    adapters: Any,
    folder: Path,
    *,
    base: str | Path,
    template: Template,
    merge: bool,
    card: str,
    weights: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write a trained judge, in its wording, so that `load_judge` loads it; its card last, when all else is written.

    Adapters go into the base's whole weights (`merge`) or stand alone; `weights` are those of all devices.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if adapters is None or merge:
        dtype, model = AutoConfig.from_pretrained(judge.folder).dtype, judge.model
        if adapters is not None:
            model = merged(adapters, base, folder.with_name("adapters"), dtype=dtype or torch.bfloat16)
        write_checkpoint(model, judge.folder, folder, state=weights, dtype=dtype)
    else:
        local = Path(base).expanduser()
        adapters.peft_config["default"].base_model_name_or_path = str(local.resolve() if local.is_dir() else base)
        for part in (adapters, judge.tokenizer, judge.image_processor):
            if part is not None:
                part.save_pretrained(folder)
    record = {"template": template.name if template.name in TEMPLATES else None}
    (folder / families.RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card, encoding="utf-8")


def merged(adapters: Any, base: str | Path, aside: Path, *, dtype: torch.dtype) -> Any:
    """A model whose whole weights, not those that were rounded or quantised to compute with, have taken adapters in."""
    import peft

    adapters.save_pretrained(aside)
    model = models.load(base, device="cpu", dtype=dtype).model
    model = peft.PeftModel.from_pretrained(model, str(aside), local_files_only=True).merge_and_unload()
    shutil.rmtree(aside)
    return model


def write_checkpoint(
    model: Any,
    source: Path,
    folder: Path,
    *,
    state: Mapping[str, torch.Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a model's weights, and beside them everything of the checkpoint it came from that is no weights."""
    state = tower_names(model.state_dict() if state is None else state)
    if dtype is not None:
        state = {name: value.to(dtype) if value.is_floating_point() else value for name, value in state.items()}
        model.config.dtype = dtype
    model.save_pretrained(folder, state_dict=state)
    for file in source.iterdir():
        settings = file.suffix in SETTINGS and not file.name.endswith(".index.json")
        if file.is_file() and settings and not (folder / file.name).exists():
            shutil.copy(file, folder / file.name)
