"""Load a judge model for inference, whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers

import vjudge
from vjudge import checkpoints
from vjudge.models.adapted import attach, base_of
from vjudge.models.architectures import SUPPORTED
from vjudge.models.finding import check_layout, locate
from vjudge.models.fingerprints import code_fingerprint, settings_fingerprint, weight_files, weights_fingerprint
from vjudge.models.fitting import check
from vjudge.models.model import VisionLanguageModel
from vjudge.models.placement import Placement, input_device, place
from vjudge.models.processors import guard, load_processor

BUFFERS = ("position_ids", "inv_freq")  # older checkpoints store these; newer classes compute them


def load(
    name_or_path: str | Path,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    quantization: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    check_memory: bool = True,
    **placing: Any,
) -> VisionLanguageModel:
    """Load a judge model for inference.

    Args:
        name_or_path: "tiny", a folder, or a hub id. A folder of adapters is loaded with its base, unmerged.
        device, dtype: see `choose_device` and `choose_dtype`.
        quantization: None, "8bit" or "4bit" (bitsandbytes; needs CUDA).
        revision: branch, tag or commit of a hub checkpoint.
        trust_remote_code: whether to run a model that is code of the checkpoint, where transformers has none; it is
            said in a warning, and the run's manifest keeps a digest of the code.
        check_memory: whether to compare the need with the memory that is free before weights are fetched or read.
        placing: `device_map`, `max_memory`, `offload_folder` and `attention`, see `vjudge.models.place`.

    Raises:
        ValueError: unknown name, unsupported or incomplete checkpoint, or an option this machine can't serve.
        MemoryShortage: it does not fit; names what does. A ValueError, too.
    """
    if (base := base_of(name_or_path)) is not None:
        options = {"device": device, "dtype": dtype, "quantization": quantization, "check_memory": check_memory}
        under = load(base, **options, trust_remote_code=trust_remote_code, **placing)  # type: ignore[arg-type]
        return replace(attach(under, Path(name_or_path).expanduser()), name=str(name_or_path))
    asked = str(placing.get("attention", "auto"))
    placed = place(device=device, dtype=dtype, quantization=quantization, **placing)
    if check_memory:
        check(name_or_path, placed, revision=revision)
    name = str(name_or_path)
    folder = locate(name_or_path, revision=revision, trust_remote_code=trust_remote_code)
    architecture = check_layout(folder, name, trust_remote_code=trust_remote_code)
    if architecture.kind == "original":
        return _load_original(folder, name, placed)
    trusted = {"local_files_only": True, "trust_remote_code": architecture.remote}
    if architecture.remote:
        warnings.warn(f"judge {name!r}: running the code that comes with the checkpoint ({folder})", stacklevel=2)
    config = transformers.AutoConfig.from_pretrained(folder, **trusted)
    if config.is_encoder_decoder:
        raise ValueError(f"judge {name!r} is an encoder-decoder ({config.model_type}); supported is {SUPPORTED}")
    with _quiet(folder), _unpickling(name):
        model, report = architecture.loader.from_pretrained(
            folder,
            config=config,
            dtype=placed.dtype,
            use_safetensors=any(folder.glob("*.safetensors")),
            weights_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported, and refused below with the rest
            **trusted,
            **_options(placed, asked, architecture.loader, config),
        )
    _check_weights(report, name, strict=architecture.kind == "llava")
    if "device_map" not in placed.options:
        model.to(placed.device)
    processor = None
    if architecture.kind == "chat":
        processor = load_processor(folder, config, trust_remote_code=architecture.remote)
        tokenizer, image_processor = processor.tokenizer, processor.image_processor
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **trusted)
        ours = architecture.image_processor
        image_processor = ours.from_pretrained(folder, local_files_only=True) if ours else None
    loaded = VisionLanguageModel(
        name=name,
        path=folder,
        model=model.eval(),
        tokenizer=tokenizer,
        image_processor=image_processor,
        device=input_device(model.get_input_embeddings()),
        dtype=placed.dtype,
        quantization=quantization,
        processor=processor,
        code=code_fingerprint(folder) if architecture.remote else None,
    )
    if architecture.kind != "llava":
        # What ends an answer is the checkpoint's to say; how to draw is the engine's.
        ids = {key: value for key, value in model.generation_config.to_dict().items() if key.endswith("_token_id")}
        model.generation_config = transformers.GenerationConfig(**ids)
        guard(tokenizer, getattr(processor, "chat_template", None) or tokenizer.chat_template, loaded.wordless)
    return loaded


def outline(judge: str | Path, *, revision: str | None = None) -> VisionLanguageModel:
    """A judge without its weights, for an engine that runs the model by itself: its `model` has settings alone.

    An original LLaVA checkpoint is written in the transformers layout to vjudge's folder in the user's cache, once.

    Args:
        judge, revision: as for `load`; adapters are not read.

    Raises:
        ValueError: unknown name, unsupported or incomplete checkpoint.
    """
    name = str(judge)
    path = folder = locate(judge, revision=revision)
    kind: str = check_layout(folder, name).kind
    others: tuple[Path, ...] = ()
    if kind == "original":
        others = (checkpoints.Original(folder, name=name).tower_folder,)
        kind, folder = "llava", _converted(path, *others)
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    processor = load_processor(folder, config) if kind == "chat" else None
    tokenizer = (
        processor.tokenizer
        if processor is not None
        else transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    )
    generation = transformers.GenerationConfig()
    if (folder / "generation_config.json").is_file():
        generation = transformers.GenerationConfig.from_pretrained(folder, local_files_only=True)
    shape = VisionLanguageModel(
        name=name,
        path=path,
        model=SimpleNamespace(config=config, generation_config=generation),
        tokenizer=tokenizer,
        image_processor=None if kind == "text" else processor or config.vision_config,
        device=torch.device("meta"),
        dtype=torch.float32,
        others=others,
        processor=processor,
        folder=folder,
    )
    if kind != "llava":
        guard(tokenizer, getattr(processor, "chat_template", None) or tokenizer.chat_template, shape.wordless)
    return shape


def _converted(*origins: Path) -> Path:
    """The folder of an original checkpoint in the transformers layout, written if it is not there."""
    parts = [weights_fingerprint(*origins), settings_fingerprint(*origins), vjudge.__version__]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vjudge" / "converted"
    target = home / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    if not (target / "config.json").is_file():
        try:
            checkpoints.convert(origins[0], target)
        except OSError:
            if not (target / "config.json").is_file():  # otherwise another process was quicker
                raise
    return target


def _load_original(folder: Path, name: str, placed: Placement) -> VisionLanguageModel:
    """Load an original LLaVA folder."""
    original = checkpoints.Original(folder, name=name)
    with _quiet(folder):
        model, report = checkpoints.build(original, dtype=placed.dtype, **placed.options)
    _check_weights(report, name)
    if "device_map" not in placed.options:
        model.to(placed.device)
    return VisionLanguageModel(
        name=name,
        path=folder,
        model=model,
        tokenizer=original.tokenizer,
        image_processor=original.image_processor,
        device=input_device(model.get_input_embeddings()),
        dtype=placed.dtype,
        quantization=placed.quantization,
        others=(original.tower_folder,),
    )


def _options(placed: Placement, asked: str, loader: Any, config: Any) -> dict[str, Any]:
    """The options of `from_pretrained`; attention is transformers' choice where "auto" chose what a model lacks."""
    classes = getattr(loader, "_model_mapping", {})
    chosen = classes[type(config)] if type(config) in classes else loader
    known = {"sdpa": "_supports_sdpa", "flash_attention_2": "_supports_flash_attn"}.get(placed.attention, "")
    if asked == "auto" and not getattr(chosen, known, True):
        return {name: value for name, value in placed.options.items() if name != "attn_implementation"}
    return placed.options


@contextlib.contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """No progress bar for weights that load in a moment: one that flashes by is noise in a notebook."""
    progress = transformers.utils.logging
    small = sum(file.stat().st_size for file in weight_files(folder)) < 1 << 28
    shown = progress.is_progress_bar_enabled()
    if small and shown:
        progress.disable_progress_bar()
    try:
        yield
    finally:
        if small and shown:
            progress.enable_progress_bar()


@contextlib.contextmanager
def _unpickling(name: str) -> Iterator[None]:
    """Say plainly that a file was refused which holds more than tensors."""
    try:
        yield
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"judge {name!r}: its weights hold more than tensors: reading them could run code, so they were refused and"
            f" nothing in them was run ({str(error).strip().splitlines()[0]}); get them as safetensors"
        ) from error


def _check_weights(report: dict[str, Any], name: str, *, strict: bool = True) -> None:
    """Refuse weights that fit the configuration only in part.

    Args:
        strict: whether weights that the model has no place for are refused; otherwise a warning counts them, because
            checkpoints carry parts that inference has no use for.
    """
    faults = {
        kind: sorted(key if isinstance(key, str) else key[0] for key in report[f"{kind}_keys"])
        for kind in ("missing", "mismatched", "unexpected")
    }
    faults["unexpected"] = [key for key in faults["unexpected"] if not key.endswith(BUFFERS)]
    unused = [] if strict else faults.pop("unexpected")
    if any(faults.values()):
        found = "; ".join(f"{len(keys)} {kind}, such as {keys[0]}" for kind, keys in faults.items() if keys)
        raise ValueError(f"judge {name!r}: the weights do not fit its config.json ({found})")
    if unused:
        warnings.warn(f"judge {name!r}: {len(unused)} weights are not used, such as {unused[0]}", stacklevel=3)
