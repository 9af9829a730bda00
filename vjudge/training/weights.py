"""A judge's weights: which of them train, always in float32; their checkpoints and files."""

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
from vjudge.models.files import without_bars
from vjudge.models.find import base_of, folder_of
from vjudge.prompts import families

if TYPE_CHECKING:
    from peft import PeftModel

MODULE_NAMES = {  # part of the model -> names of its modules; all other modules are the decoder's
    "projector": (
        "multi_modal_projector image_newline connector merger mlp1 deepstack_merger_list"
    ).split(),
    "tower": ["vision_tower", "visual", "vision_model"],
}
# Vision towers whose weights have older names in checkpoints, see `tower_names`.
OLDER_TOWERS = ("clip_vision_model", "siglip_vision_model")
COPIED_ENDINGS = (".json", ".jinja", ".model", ".txt")  # files that training leaves as they are


def part_of(name: str) -> str:
    """Tell which part of the model a weight belongs to: "tower", "projector" or "decoder".

    >>> part_of("model.visual.merger.mlp.0.weight"), part_of("model.visual.blocks.0.norm1.weight")
    ('projector', 'tower')
    """
    modules = name.split(".")
    # The projector first: a Qwen's projector (`merger`) is inside its tower (`visual`).
    for part, module_names in MODULE_NAMES.items():
        if any(module_name in modules for module_name in module_names):
            return part
    return "decoder"


def settle_weights(
    judge: VisionLanguageModel, *, freeze: Collection[str], lora: Mapping | None
) -> Any:
    """Decide which weights train, and hold these in float32; changes the judge's network in place.

    Args:
        judge: the base.
        freeze: parts that do not train, see `vjudge.training.recipes.PARTS`.
        lora: options of adapters on the decoder; None trains the network's own weights.

    Returns:
        The network, or peft's network around it.

    Raises:
        ValueError: nothing is left to train; adapters on a frozen decoder.
    """
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


def _adapted(judge: VisionLanguageModel, freeze: Collection[str], lora: Mapping) -> Any:
    """Put adapters on the decoder.

    A projector that is not frozen trains all of its weights, without adapters, as in LLaVA.

    Args:
        judge, freeze, lora: as for `settle_weights`.

    Returns:
        peft's network around the judge's.
    """
    import peft

    config = adapters_of(judge.model, freeze, lora)
    if "projector" not in freeze:
        config.modules_to_save = _projectors(judge.model) or None
    network = judge.model
    if judge.quantization:
        for module in network.modules():
            # bitsandbytes would pack such weights for a CPU while it grades; then no gradient
            # passes through them.
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
        network = peft.prepare_model_for_kbit_training(network, use_gradient_checkpointing=False)
    return peft.get_peft_model(network, config)


def _projectors(network: nn.Module) -> list[str]:
    """Return the full names of the modules that make up the projector.

    Of a list of modules each one is named.
    """
    names = []
    for name, module in network.named_modules():
        if name.rpartition(".")[2] in MODULE_NAMES["projector"]:
            if isinstance(module, nn.ModuleList):
                names += [f"{name}.{index}" for index in range(len(module))]
            else:
                names.append(name)
    return names


def adapters_of(network: PreTrainedModel, freeze: Collection[str], lora: Mapping) -> Any:
    """Make peft's configuration of adapters on all linear layers of the decoder.

    Args:
        network: the base's.
        freeze: parts that do not train.
        lora: options of `peft.LoraConfig` that replace the defaults made here.

    Raises:
        ValueError: the decoder is frozen.
    """
    import peft

    if "decoder" in freeze:
        raise ValueError("lora= adapts the decoder, and freeze= keeps it: leave one of them out")
    output = network.get_output_embeddings()
    leaves = set()  # last names of the linear layers, such as "q_proj"
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear) and module is not output and part_of(name) == "decoder":
            leaves.add(name.rpartition(".")[2])
    # peft takes a pattern of full names: one of these layers, in no module of projector or tower.
    excluded = "|".join(chain.from_iterable(MODULE_NAMES.values()))
    layers = rf"(?!(.*\.)?({excluded})\.).*\.({'|'.join(sorted(leaves))})"
    return peft.LoraConfig(**{"target_modules": layers, "task_type": "CAUSAL_LM", **lora})


def train_in_float32(network: nn.Module) -> None:
    """Hold every weight that trains in float32: 16 bits would round small updates away."""
    for weight in network.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()


class OwnCheckpoints:
    """A mixin for transformers' `Trainer`: checkpoints hold the trained weights under their names.

    transformers saves some models' weights under the names of older classes, and its trainer then
    finds none of them when it resumes. Weights that are sharded over processes (FSDP, DeepSpeed)
    are left to transformers.
    """

    def _save(self: Any, output_dir: Any = None, state_dict: Any = None) -> None:
        # `state_dict` is passed for sharded weights alone, which transformers writes elsewhere.
        if self.args.should_save and state_dict is None:
            Path(output_dir).mkdir(parents=True, exist_ok=True)
            save_weights(self.model, Path(output_dir) / "model.safetensors")

    def _load_from_checkpoint(
        self: Any, resume_from_checkpoint: str, model: nn.Module | None = None
    ) -> None:
        if model is not None:  # transformers passes it only for sharded weights
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        else:
            load_weights(self.model, Path(resume_from_checkpoint) / "model.safetensors")


def save_weights(network: nn.Module, file: Path) -> None:
    """Write the weights that train, under another name first, so that `file` is always complete."""
    weights = {}
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            weights[name] = weight.detach().contiguous().cpu()
    save_file(weights, file.with_suffix(".part"), {"format": "pt"})
    file.with_suffix(".part").replace(file)


def load_weights(network: nn.Module, file: Path) -> None:
    """Load what `save_weights` wrote; all other weights stay as they are."""
    network.load_state_dict(load_file(file), strict=False)


def last_checkpoint(folder: Path) -> str | None:
    """Find the newest checkpoint that was written completely; None where there is none."""
    complete: dict[int, str | None] = {0: None}  # step -> folder; step 0, the start, has none
    for file in folder.glob("checkpoint-*/trainer_state.json"):  # the file that is written last
        complete[int(file.parent.name.rpartition("-")[2])] = str(file.parent)
    return complete[max(complete)]


def claim(file: Path, settings: Mapping, *, begin: bool = True) -> dict:
    """Open the manifest of a training, or begin one.

    Args:
        file: the manifest, in the training's folder.
        settings: all that the training depends on.
        begin: whether to write a new manifest where there is none; of several processes only one
            does.

    Returns:
        The manifest: "settings" and, where the training is finished, "result".

    Raises:
        ValueError: the folder holds a training with other settings, or something else.
    """
    folder = file.parent
    record = {"settings": json.loads(json.dumps(settings))}
    if file.is_file():
        stored: dict = json.loads(file.read_text("utf-8"))
        requested = record["settings"]
        changed = [name for name in requested if stored["settings"].get(name) != requested[name]]
        if changed:
            raise ValueError(
                f"{folder} holds another training (other {', '.join(changed)}): give another out=,"
                " or remove it"
            )
        return stored
    if begin:
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} holds something else: give an empty or new folder")
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps(record, indent=2))
    return record


def merged(adapters: PeftModel, base: str | Path, scratch: Path, *, dtype: torch.dtype) -> Any:
    """Merge adapters into the base's weights as they are stored.

    The weights in memory may be rounded or quantised for computing, so the base is loaded again.

    Args:
        adapters: peft's network.
        base: the checkpoint that it adapts.
        scratch: a folder that is written and removed.
        dtype: of the merged weights.
    """
    adapters.save_pretrained(scratch)
    network = _joined(models.load(base, device="cpu", dtype=dtype).model, scratch)
    shutil.rmtree(scratch)
    return network


def _joined(network: PreTrainedModel, adapters: Path) -> Any:
    """Merge the adapters of a folder into a network's weights."""
    import peft

    adapted = peft.PeftModel.from_pretrained(network, str(adapters), local_files_only=True)
    return adapted.merge_and_unload()


def whole_base(base: str | Path, out: str | Path) -> str | Path:
    """Return a checkpoint with whole weights to train from.

    A base that is adapters alone is merged with the checkpoint that the adapters name. The merged
    checkpoint is written once, in float32, beside the folder of the training, and named after the
    adapters' fingerprint.

    Args:
        base: a checkpoint, or a folder of adapters.
        out: the training's folder.

    Returns:
        `base`, or the folder of the merged checkpoint.
    """
    adapted_base = base_of(base)  # None where `base` is no folder of adapters
    if adapted_base is None:
        return base
    adapters = folder_of(base)
    out = Path(out).expanduser()
    folder = out.with_name(f"{out.name}-base-{models.fingerprint(adapters)[:8]}")
    if folder.exists():
        return folder

    # Several processes may merge at once. Each writes its own folder and renames it; the first one
    # succeeds, and the others remove theirs.
    model = models.load(adapted_base, device="cpu", dtype="float32")
    network = _joined(model.model, adapters)
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    write_checkpoint(network, model.folder, scratch, dtype=torch.float32)
    template = families.recorded(adapters)
    if template is not None:
        families.record(scratch, template)
    try:
        scratch.rename(folder)
    except OSError:
        shutil.rmtree(scratch)
    return folder


def save_adapters(adapters: PeftModel, base: str | Path, folder: Path) -> None:
    """Write adapters alone; their configuration names the base, which `load_judge` then loads."""
    local = Path(base).expanduser()
    if local.is_dir():
        base = local.resolve()
    adapters.peft_config["default"].base_model_name_or_path = str(base)
    adapters.save_pretrained(folder)


def tower_names(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Rename a LLaVA's tower weights to their older names, the only ones that vLLM reads.

    vision_tower.encoder.x -> vision_tower.vision_model.encoder.x; an older name stays.

    Args:
        state: name -> weight; names of other parts stay.
    """
    new = "vision_tower."
    old = "vision_tower.vision_model."
    # Make an older name new, then every new name old, so that none is lengthened twice.
    return {name.replace(old, new).replace(new, old, 1): state[name] for name in state}


def write_checkpoint(
    network: PreTrainedModel,
    source: Path,
    folder: Path,
    *,
    state: dict[str, torch.Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a network's weights, and its base's other files: tokenizer, processor, templates.

    Args:
        network: the trained one.
        source: folder of the base's checkpoint.
        folder: where to write.
        state: the weights, where they come from several processes; None takes the network's.
        dtype: of the written weights; None keeps each weight's precision.
    """
    if state is None:
        state = network.state_dict()
    # 1) the weights, under the names and in the precision that readers of the base expect
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

    # 2) the base's files that hold no weights and were not just written
    for file in source.iterdir():
        is_index = file.name.endswith(".index.json")  # of the base's weight files
        if file.suffix in COPIED_ENDINGS and not is_index and not (folder / file.name).exists():
            shutil.copy(file, folder / file.name)
