"""A judge's weights: which of them train, always in float32; checkpoints, storage."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from vjudge import models
from vjudge.judging.record import replace_file
from vjudge.models import VisionLanguageModel
from vjudge.models.adapters import base_of
from vjudge.models.files import without_bars
from vjudge.models.find import folder_of
from vjudge.prompts import families

if TYPE_CHECKING:
    from peft import PeftModel

MARKS = {  # words of a weight's name -> the part of the model; all else is the decoder's
    "projector": (
        "multi_modal_projector image_newline connector merger mlp1 deepstack_merger_list"
    ).split(),
    "tower": ["vision_tower", "visual", "vision_model"],
}
OLDER_TOWERS = ("clip_vision_model", "siglip_vision_model")  # others keep their weights' names
COPIED_ENDINGS = (".json", ".jinja", ".model", ".txt")  # files that training leaves as they are


def part_of(name: str) -> str:
    """Which part of the model a weight belongs to by its name: "tower", "projector", "decoder"."""
    name_parts = name.split(".")
    for module_name, marks in MARKS.items():  # a Qwen's projector stands inside its tower
        if any(mark in name_parts for mark in marks):
            return module_name
    return "decoder"


def settle_weights(
    judge: VisionLanguageModel, *, freeze: Collection[str], lora: Mapping | None
) -> Any:
    """Settle in place which weights train, in float32; returns the network, or peft's around it."""
    network = judge.model
    if lora is None:
        for name, weight in network.named_parameters():
            weight.requires_grad_(part_of(name) not in freeze and weight.is_floating_point())
        if not any(weight.requires_grad for weight in network.parameters()):
            raise ValueError(f"freeze={list(freeze)} leaves nothing to train: leave a part out")
    else:
        network = _adapted(judge, freeze, lora)
    train_in_float32(network)
    return network


def _adapted(judge: VisionLanguageModel, freeze: Collection, lora: Mapping) -> Any:
    """The network under adapters; a projector that trains does so whole, as in LLaVA's recipe."""
    import peft

    config = adapters_of(judge.model, freeze, lora)
    if "projector" not in freeze:
        config.modules_to_save = _projectors(judge.model) or None
    network = judge.model
    if judge.quantization:
        for module in network.modules():
            # grading packs such weights for a CPU, after which no gradient passes
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
        network = peft.prepare_model_for_kbit_training(network, use_gradient_checkpointing=False)
    return peft.get_peft_model(network, config)


def _projectors(network: nn.Module) -> list:
    """The names of the modules that are a projector, each of a list by itself."""
    names = []
    for name, module in network.named_modules():
        if name.rpartition(".")[2] in MARKS["projector"]:
            if isinstance(module, nn.ModuleList):
                names += [f"{name}.{index}" for index in range(len(module))]
            else:
                names.append(name)
    return names


def adapters_of(network: PreTrainedModel, freeze: Collection[str], lora: Mapping) -> Any:
    """peft's settings of adapters on the decoder; ValueError where the decoder is frozen."""
    import peft

    if "decoder" in freeze:
        raise ValueError("lora= adapts the decoder, and freeze= keeps it: leave one of them out")
    output = network.get_output_embeddings()
    leaves = set()
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear) and module is not output and part_of(name) == "decoder":
            leaves.add(name.rpartition(".")[2])
    excluded = "|".join(chain.from_iterable(MARKS.values()))
    layers = rf"(?!(.*\.)?({excluded})\.).*\.({'|'.join(sorted(leaves))})"
    return peft.LoraConfig(**{"target_modules": layers, "task_type": "CAUSAL_LM", **lora})


def train_in_float32(network: nn.Module) -> None:
    """Hold every weight that trains in float32: a step may be below a coarser grid."""
    for weight in network.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()


class OwnCheckpoints:
    """For a transformers `Trainer`: checkpoints of the weights that train, under their own names.

    transformers saves some models' under those of older classes, and its trainer then finds none
    of them when it resumes. Weights that are spread over processes have a file of their own.
    """

    def _save(self: Any, output_dir: Any = None, state_dict: Any = None) -> None:
        if self.args.should_save and state_dict is None:
            Path(output_dir).mkdir(parents=True, exist_ok=True)
            save_weights(self.model, Path(output_dir) / "model.safetensors")

    def _load_from_checkpoint(
        self: Any, resume_from_checkpoint: str, model: nn.Module | None = None
    ) -> None:
        if model is not None:  # FSDP's own shards, and DeepSpeed's
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        else:
            load_weights(self.model, Path(resume_from_checkpoint) / "model.safetensors")


def save_weights(network: nn.Module, file: Path) -> None:
    """Write the weights that train."""
    weights = {}
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            weights[name] = weight.detach().contiguous().cpu()
    save_file(weights, file.with_suffix(".part"), {"format": "pt"})
    file.with_suffix(".part").replace(file)


def load_weights(network: nn.Module, file: Path) -> None:
    """Put back what `save_weights` wrote."""
    network.load_state_dict(load_file(file), strict=False)


def last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that was written to its end."""
    complete: dict = {0: None}
    for file in folder.glob("checkpoint-*/trainer_state.json"):
        complete[int(file.parent.name.rpartition("-")[2])] = str(file.parent)
    return complete[max(complete)]


def claim(file: Path, settings: Mapping, *, begin: bool = True) -> dict:
    """The record of a training in `file`; of the processes of a new one, one has to `begin` it.

    ValueError: the folder holds another training, or something else.
    """
    folder = file.parent
    record = {"settings": json.loads(json.dumps(settings))}
    if file.is_file():
        held: dict = json.loads(file.read_text("utf-8"))
        now = record["settings"]
        changed = [name for name in now if held["settings"].get(name) != now[name]]
        if changed:
            raise ValueError(
                f"{folder} holds another training (other {', '.join(changed)}): give another out=,"
                " or remove it"
            )
        return held
    if begin:
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} holds something else: give an empty or new folder")
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps(record, indent=2))
    return record


def merged(adapters: PeftModel, base: str | Path, aside: Path, *, dtype: torch.dtype) -> Any:
    """The base's whole weights, not those rounded or quantised to compute with, with adapters."""
    adapters.save_pretrained(aside)
    network = _joined(models.load(base, device="cpu", dtype=dtype).model, aside)
    shutil.rmtree(aside)
    return network


def _joined(network: PreTrainedModel, adapters: Path) -> Any:
    """A network with the adapters of a folder in its weights."""
    import peft

    adapted = peft.PeftModel.from_pretrained(network, str(adapters), local_files_only=True)
    return adapted.merge_and_unload()


def whole_base(base: str | Path, out: str | Path) -> str | Path:
    """The base itself or, of adapters alone, a checkpoint of the whole weights with them.

    It is written once, in float32, beside the folder of the training, and named after the adapters.
    """
    below = base_of(base)
    if below is None:
        return base
    adapters = folder_of(base)
    out = Path(out).expanduser()
    folder = out.with_name(f"{out.name}-base-{models.fingerprint(adapters)[:8]}")
    if folder.exists():
        return folder

    # Write it under a name of this process; whoever is first gives it its own.
    model = models.load(below, device="cpu", dtype="float32")
    aside = folder.with_name(f"{folder.name}.{os.getpid()}")
    write_checkpoint(_joined(model.model, adapters), model.folder, aside, dtype=torch.float32)
    template = families.recorded(adapters)
    if template is not None:
        families.record(aside, template)
    try:
        aside.rename(folder)
    except OSError:
        shutil.rmtree(aside)
    return folder


def save_adapters(adapters: PeftModel, base: str | Path, folder: Path) -> None:
    """Write adapters alone, which name their base for `load_judge`."""
    local = Path(base).expanduser()
    if local.is_dir():
        base = local.resolve()
    adapters.peft_config["default"].base_model_name_or_path = str(base)
    adapters.save_pretrained(folder)


def tower_names(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A LLaVA's weights, the tower's under their older names, the only ones that vLLM reads."""
    new = "vision_tower."
    old = "vision_tower.vision_model."
    return {name.replace(old, new).replace(new, old, 1): state[name] for name in state}


def write_checkpoint(
    network: PreTrainedModel,
    source: Path,
    folder: Path,
    *,
    state: dict[str, torch.Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a network's weights, and beside them all of its base's files that are no weights.

    `state` are the weights of all devices, None: of this one; `dtype` None keeps their precision.
    """
    if state is None:
        state = network.state_dict()
    if network.config.model_type in ("llava", "llava_onevision"):
        if network.config.vision_config.model_type in OLDER_TOWERS:
            state = tower_names(state)
    if dtype is not None:
        for name, tensor in state.items():
            if tensor.is_floating_point():
                state[name] = tensor.to(dtype)
        network.config.dtype = dtype
    with without_bars():
        network.save_pretrained(folder, state_dict=state)
    for file in source.iterdir():
        index = file.name.endswith(".index.json")
        if file.suffix in COPIED_ENDINGS and not index and not (folder / file.name).exists():
            shutil.copy(file, folder / file.name)
