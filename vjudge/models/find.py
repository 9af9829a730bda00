"""Find a judge's checkpoint, check its settings before any weight is fetched, and read its files.

No code from a checkpoint is run: weights are read as tensors alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import huggingface_hub
import torch
import transformers
from safetensors.torch import load_file
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as TEXT_MODELS
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGE_MODELS,
)

from vjudge.prompts.families import FAMILIES
from vjudge.records import brief

ASSETS = Path(__file__).parents[1] / "assets"
EMBEDDED = sorted(file.parent.name for file in ASSETS.glob("*/config.json"))
"""The checkpoints in this package, each by the name of its folder."""
SUPPORTED = (
    "LLaVA-1.5 or -OneVision in either layout, a chat model that reads images, or a causal"
    " language model"
)
# The families whose images vjudge prepares as the original code does, with their vision towers.
LLAVA_TOWERS = {
    "llava": ("clip_vision_model",),
    "llava_onevision": ("siglip_vision_model", "clip_vision_model"),
}
# The class or model_type of an original LLaVA checkpoint -> transformers' name of its decoder.
DECODERS = {
    "LlavaLlamaForCausalLM": "llama",
    "llava_llama": "llama",
    "LlavaQwenForCausalLM": "qwen2",
    "llava_qwen": "qwen2",
}
# Settings of an original's config.json: the value where it is absent, the values supported.
ORIGINAL_SETTINGS: dict[str, tuple[Any, str]] = {
    "mm_vision_tower": (None, "(?!None$).+"),
    "mm_projector_type": ("linear", "mlp2x_gelu"),
    "mm_vision_select_feature": ("patch", "patch"),
    "mm_vision_select_layer": (-2, r"-?\d+"),
    "mm_use_im_start_end": (False, "False|None"),
    "mm_resampler_type": (None, "None"),
}
DECODER_SETTINGS: dict[str, dict[str, tuple[Any, str]]] = {
    "llama": {
        "mm_patch_merge_type": ("flat", "flat"),
        "image_aspect_ratio": ("square", "(?!.*anyres).*"),
    },
    "qwen2": {
        "mm_patch_merge_type": ("flat", "spatial_unpad"),
        "image_aspect_ratio": (None, r"anyres(_max_\d+)?"),
        "mm_newline_position": ("one_token", "one_token|grid"),
    },
}

ADAPTERS = "adapter_config.json"  # of a folder that holds adapters on a base
NUMBERS = ("config.json", "preprocessor_config.json", "processor_config.json")
SETTINGS = (
    *(*NUMBERS, "generation_config.json", "chat_template.json", "chat_template.jinja"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("tokenizer.model", "vocab.json", "merges.txt"),
)
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")  # the first kind that is there is read
# Fields of these files and the range of numbers a model can be built with; the first that fits.
LIMITS: tuple[tuple[str, int, int], ...] = (
    ("n_layers?|num_(hidden_)?layers|(num_|n_)?(attention_|key_value_)?heads?|depth", 1, 4096),
    (".*(layers?|depths?|blocks|experts)", -4096, 4096),  # layers are counted from the end, too
    ("(patch|image|merge|spatial_merge|temporal_patch)_size|height|width", 1, 2**16),
    ("(hidden|vocab)_size|head_dim|max_position_embeddings|tokenizer_model_max_length", 1, 2**30),
    ("(min|max)_patches|image_seq_len(gth)?|num_image_tokens|mm_tokens_per_image", 1, 2**20),
    ("image_grid_pinpoints|size|crop_size", 1, 2**20),
    ("min_pixels|shortest_edge", 1, 2**26),
    ("max_pixels|longest_edge", 1, 2**31),
    ("(?!window).*_size", 0, 2**30),
)
PROBE_SECONDS = 5.0  # to reach the hub


class Found(NamedTuple):
    """A checkpoint whose settings were read and checked; of one on the hub, no weight is here."""

    folder: Path
    kind: str  # see `kind_of`
    settings: dict[str, Any]  # of its config.json


def find(name_or_path: str | Path, *, revision: str | None = None) -> Found:
    """Find a judge by short name, path or hub id, and check its settings; errors as `locate`."""
    name = str(name_or_path)
    folder = folder_of(name_or_path)
    if not folder.is_dir():
        folder = fetch(_hub_id(name), SETTINGS, revision=revision)
    if not (folder / "config.json").is_file():
        remedy = f"give a folder that holds {SUPPORTED}"
        raise ValueError(f"judge {name!r}: {folder} has no config.json; {remedy}")
    for file in NUMBERS:
        if (folder / file).is_file():
            check_numbers(folder / file, read_json(folder / file))
    settings = read_json(folder / "config.json")
    return Found(folder, kind_of(settings, name), settings)


def locate(name_or_path: str | Path, *, revision: str | None = None) -> Path:
    """The folder of a judge, downloaded once where it is a hub id.

    Raises:
        ValueError: nothing of that name exists, or what exists is not supported or damaged.
    """
    found = find(name_or_path, revision=revision)
    if folder_of(name_or_path).is_dir():
        return found.folder
    return fetch_weights(str(name_or_path), revision=revision)


def folder_of(name_or_path: str | Path) -> Path:
    """The folder that a short name or a path means; of a training's `out`, the judge in it."""
    if str(name_or_path) in EMBEDDED:
        return ASSETS / str(name_or_path)
    folder = Path(name_or_path).expanduser()
    for place in (folder, folder / "judge"):
        if (place / "config.json").is_file() or (place / ADAPTERS).is_file():
            return place
    return folder


def _hub_id(name: str) -> str:
    short = ", ".join(repr(each) for each in EMBEDDED)
    if name in FAMILIES:
        which = ", ".join(repr(id) for id in FAMILIES[name].ids) or "any folder or hub id"
        raise ValueError(
            f"{name!r} is a family of judges; load one of them: {which}; or one of {short}"
        )
    if re.fullmatch(r"[^\s./~][^\s/]*/[^\s/]+", name) is None:
        raise ValueError(
            f"no judge {name!r}: it is neither one of {short}, nor a folder, nor a hub id such as"
            f" 'owner/name'; give the path of a folder that holds {SUPPORTED}"
        )
    return name


# What a checkpoint is


def kind_of(config: Mapping[str, Any], name: str) -> str:
    """How a checkpoint is loaded, from its config.json.

    Returns:
        "original" (LLaVA's own layout), "llava" (a family whose images vjudge prepares), "chat" (a
        model with a processor of its own) or "text" (a model that sees no images).

    Raises:
        ValueError: one that can't be loaded right.
    """
    if decoder_of(config) is not None or "mm_vision_tower" in config:
        _check_original(config, name)
        return "original"
    model_type = str(config.get("model_type"))
    vision = config.get("vision_config")
    towers = LLAVA_TOWERS.get(model_type, ())
    if towers:
        tower: Any = towers[0]  # where nothing is said
        if isinstance(vision, Mapping):
            tower = vision.get("model_type", tower)
        if tower in towers:
            return "llava"
    if model_type in IMAGE_MODELS and (vision or model_type not in TEXT_MODELS):
        # captioning models such as BLIP-2 don't take an image at its place in a text
        if getattr(transformers, IMAGE_MODELS[model_type]).main_input_name == "input_ids":
            return "chat"
        fault = "which reads no chat with images in it"
    elif model_type in TEXT_MODELS:
        return "text"
    else:
        fault = f"which transformers {transformers.__version__} does not know"
        if config.get("auto_map"):
            fault += " without code of its own, which is not run here: let a server run it"
    raise ValueError(
        f"judge {name!r} has model_type {model_type!r}, {fault}; supported is {SUPPORTED}"
    )


def decoder_of(config: Mapping[str, Any]) -> str | None:
    """The decoder of an original LLaVA checkpoint, by its class, else by its model_type."""
    classes = config.get("architectures")
    if isinstance(classes, list) and classes:
        return DECODERS.get(str(classes[0]))
    return DECODERS.get(str(config.get("model_type")))


def _check_original(config: Mapping[str, Any], name: str) -> None:
    decoder = decoder_of(config)
    faults = []
    expected = dict(ORIGINAL_SETTINGS)
    if decoder is None:
        architecture = config.get("architectures", config.get("model_type"))
        faults.append(f"its decoder is {brief(architecture)}")
    else:
        expected |= DECODER_SETTINGS[decoder]
    for setting, (absent, values) in expected.items():
        value = config.get(setting, absent)
        if re.fullmatch(values, str(value)) is None:
            faults.append(f"{setting} is {brief(value)}")
    if faults:
        listed = "; ".join(faults)
        raise ValueError(f"judge {name!r} is an original LLaVA checkpoint, not supported: {listed}")


def check_numbers(file: Path, value: Any, key: str = "") -> None:
    """Refuse numbers, at any depth, that no model or preprocessing can be built with.

    Raises:
        ValueError: names the file, the field and what it may be.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            check_numbers(file, inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            check_numbers(file, inner, key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        for pattern, least, most in LIMITS:
            if re.fullmatch(pattern, key) is None:
                continue
            if not least <= value <= most:
                limits = f"a number from {least:,} to {most:,} is possible"
                raise ValueError(f"{file} says {key} = {value:,}; {limits}, correct the file")
            return


# Files


def fetch(name: str, patterns: Sequence[str], *, revision: str | None = None) -> Path:
    """Download files of a hub repository once; without a connection, take what the cache has."""
    reachable = _hub_answers()
    try:
        folder = huggingface_hub.snapshot_download(
            name,
            revision=revision,
            allow_patterns=list(patterns),
            local_files_only=not reachable,
        )
    except (OSError, ValueError) as error:
        reason = reason_of(error)
        if not reachable:
            reason = (
                "it can't be reached from here, and the local cache does not hold it: check the"
                " connection"
            )
        raise ValueError(
            f"{name!r} is no folder here, and the hub could not provide it ({reason})"
        ) from error
    return Path(folder)


def _hub_answers() -> bool:
    """Ask the hub once: huggingface_hub itself would try for half a minute at every file."""
    session: Any = huggingface_hub.utils.get_session()  # type: ignore[attr-defined]
    try:
        session.head(huggingface_hub.constants.ENDPOINT, timeout=PROBE_SECONDS)
    except Exception:  # whatever the HTTP client of this version raises
        return False
    return True


def fetch_weights(name: str, *, revision: str | None = None) -> Path:
    """Download settings and weights; pickled weights only where there are no others."""
    for pattern in WEIGHTS:
        folder = fetch(name, [*SETTINGS, pattern, f"{pattern}.index.json"], revision=revision)
        if weight_files(folder):
            break
    return folder


def weight_files(folder: Path) -> list[Path]:
    """The files that a folder's weights are read from: pickles only where there is nothing else."""
    for pattern in WEIGHTS:
        files = sorted(folder.glob(pattern))
        if files:
            return files
    return []


def weight_bytes(name_or_path: str | Path, *, revision: str | None = None) -> int:
    """The size of a checkpoint's weight files, in bytes; of one on the hub, as the hub says."""
    folder = folder_of(name_or_path)
    if folder.is_dir():
        return sum(file.stat().st_size for file in weight_files(folder))
    listed: Any = huggingface_hub.HfApi().model_info(
        str(name_or_path), revision=revision, files_metadata=True
    )
    for pattern in WEIGHTS:
        sizes = [file.size for file in listed.siblings if fnmatch(file.rfilename, pattern)]
        if sizes:
            return sum(sizes)
    return 0


def weights_fingerprint(*folders: Path) -> str:
    """The SHA-256 over weight files, in the order of their names; each is read once a process."""
    whole = hashlib.sha256()
    for folder in folders:
        for file in weight_files(folder):
            _add_file(whole, file)
    return whole.hexdigest()


def settings_fingerprint(*folders: Path) -> str:
    """The SHA-256 over what else decides a checkpoint's outputs: settings, tokenizer, images."""
    whole = hashlib.sha256()
    for folder in folders:
        for name in sorted((*SETTINGS, ADAPTERS)):
            if (folder / name).is_file():
                _add_file(whole, folder / name)
    return whole.hexdigest()


def _add_file(whole: Any, file: Path) -> None:
    state = file.stat()
    digest = _digest(file.resolve(), state.st_mtime_ns, state.st_size)
    whole.update(f"{file.name}\0{digest}\n".encode())


@functools.cache
def _digest(file: Path, modified: int, size: int) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for chunk in iter(lambda: stream.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def read_json(file: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object; ValueError for one that is damaged."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or a thousand brackets
        raise ValueError(f"{file} can't be read ({error}); download it again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} can't be read (it holds no JSON object); download it again")
    return content


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of a folder by name, on the CPU and as stored, from mapped files.

    Raises:
        ValueError: no weights, a damaged file, or one that would run code when it is read.
    """
    tensors: dict[str, torch.Tensor] = {}
    for file in weight_files(folder):
        try:
            if file.suffix == ".safetensors":
                part = load_file(file)
            else:
                mapped = zipfile.is_zipfile(file)  # before torch 1.6 a file was no archive
                part = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
            part = {name: value for name, value in part.items() if hasattr(value, "dtype")}
        except Exception as error:  # of any kind: libraries don't check a file before they use it
            reason = reason_of(error)
            raise ValueError(f"{file} can't be read ({reason}); download it again") from error
        again = part.keys() & tensors.keys()
        if again:
            raise ValueError(
                f"{folder} holds {min(again)} in two files; remove those that are not of the"
                " checkpoint"
            )
        tensors |= part
    if not tensors:
        raise ValueError(f"{folder} holds no weights (safetensors or pytorch_model*.bin)")
    return tensors


def reason_of(error: Exception) -> str:
    """In one line, why a library could not read a file."""
    line = str(error).strip().partition("\n")[0][:600]
    if isinstance(error, pickle.UnpicklingError):
        return (
            "it holds more than tensors: reading it as a pickle could run code, so it was refused"
            f" and nothing in it was run, {line}; get the checkpoint as safetensors"
        )
    return f"{type(error).__name__}: {line}"
