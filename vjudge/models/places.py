"""Where a judge lies and where it runs: its folder, checked before any weight is read or fetched; device and precision.

Everything here lies below loading: what a config.json says, fetching from the hub, fingerprints of a folder's files,
and the choice of device, precision, quantisation and attention.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, BitsAndBytesConfig
from transformers import LlavaForConditionalGeneration as Llava
from transformers import LlavaOnevisionForConditionalGeneration as LlavaOnevision
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil

from vjudge.prompts.families import FAMILIES

EMBEDDED = {"tiny": "tiny", "tiny-base": "tiny-base", "tiny-policy": "policy"}  # short name -> folder of the assets
SUPPORTED = (
    "a LLaVA-1.5 or LLaVA-OneVision checkpoint in the transformers layout or in the original one, a chat model that"
    " transformers knows as image-text-to-text, or a causal language model"
)
OURS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {  # model_type -> class, image processor, vision towers
    "llava": (Llava, CLIPImageProcessorPil, ("clip_vision_model",)),
    "llava_onevision": (
        LlavaOnevision,
        LlavaOnevisionImageProcessorPil,
        ("siglip_vision_model", "clip_vision_model"),
    ),
}
"""The families whose vision is ours, as the original code has it (`vjudge.engines.vision`)."""
DECODERS = {"LlavaLlamaForCausalLM": "llama", "LlavaQwenForCausalLM": "qwen2"}
"""The classes of original LLaVA checkpoints -> transformers' name of their decoder."""

LAYOUT_FILES = ("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
VOCABULARY_FILES = ("tokenizer.model", "vocab.json", "merges.txt", "chat_template.json", "chat_template.jinja")
ADAPTERS = "adapter_config.json"  # of a folder that holds adapters on a base
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")  # the first kind that is there is read

MOST_PARTS = 4096  # layers, blocks or experts: more than any model has, and few enough to count in a moment
MOST_BYTES = 1 << 26  # of a JSON file: the largest tokenizers take half of it
PROBE_SECONDS = 5.0  # to reach the hub

ATTENTION = ("sdpa", "flash_attention_2", "eager")
AMPERE = (8, 0)  # FlashAttention 2 needs this CUDA compute capability
UNQUANTIZED = (r"lm_head", r"(model\.)?(vision_tower|vision_model|visual)")
"""Patterns of modules that keep their precision in a quantised model.

The LLaVA-1.5 code quantises every linear layer but the output weights, and loads its vision tower afterwards, in
float16; the projector is quantised. Both families are treated so here.
Source: haotian-liu/LLaVA llava/model/builder.py; its 4-bit settings are the same there (nf4, quantised twice).
"""


# What a config.json says


@dataclass(frozen=True)
class Architecture:
    """How a checkpoint is loaded.

    Args:
        kind: "original" (LLaVA's own layout), "llava" (a family whose vision is ours), "chat" (a model with a processor
            of its own), or "text" (a causal language model, which sees no images).
        loader: transformers' class for the model; None for an original one.
        image_processor: transformers' class for its images, for a family whose vision is ours.
        remote: whether the model is code that comes with the checkpoint.
    """

    kind: str
    loader: Any = None
    image_processor: Any = None
    remote: bool = False


def architecture_of(config: Mapping[str, Any], name: str, *, trust_remote_code: bool = False) -> Architecture:
    """Tell a checkpoint's architecture from its configuration.

    Args:
        config: the content of its config.json.
        name: what the user called it.
        trust_remote_code: whether code of the checkpoint may run; it does only where transformers has none of its own.

    Raises:
        ValueError: an architecture that can't be loaded right, or not without running the checkpoint's code.
    """
    check_counts(config, name)
    if is_original(config):
        check_original(config, name)
        return Architecture("original")
    kind = str(config.get("model_type"))
    vision = config.get("vision_config") or {}
    if kind in OURS:
        loader, image_processor, towers = OURS[kind]
        if isinstance(vision, Mapping) and vision.get("model_type", towers[0]) in towers:
            return Architecture("llava", loader, image_processor)
    if kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES and (vision or kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        return Architecture("chat", AutoModelForImageTextToText)
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return Architecture("text", AutoModelForCausalLM)
    classes = config.get("auto_map") or {}
    autos = (AutoModelForImageTextToText, AutoModelForCausalLM)
    loader = next((auto for auto in autos if auto.__name__ in classes), None)
    unknown = f"judge {name!r} has model_type {kind!r}, which transformers {transformers.__version__} does not know"
    if loader is None:
        raise ValueError(f"{unknown} as a generating model; supported is {SUPPORTED}")
    if not trust_remote_code:
        raise ValueError(
            f"{unknown}: its model is code that comes with the checkpoint ({classes[loader.__name__]}); read that code,"
            " and pass load_judge trust_remote_code=True to run it"
        )
    return Architecture("chat" if vision else "text", loader, remote=True)


def is_original(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is of the original LLaVA code rather than of transformers."""
    classes = config.get("architectures")
    return "mm_vision_tower" in config or (isinstance(classes, list) and any(name in DECODERS for name in classes))


def decoder_of(config: Mapping[str, Any]) -> str | None:
    """The decoder of an original checkpoint, by its class, else by its model_type."""
    if isinstance(classes := config.get("architectures"), list) and classes:
        return next((DECODERS[name] for name in classes if name in DECODERS), None)
    return {"llava": "llama", "llava_llama": "llama", "llava_qwen": "qwen2"}.get(str(config.get("model_type")))


def check_original(config: Mapping[str, Any], name: str) -> None:
    """Refuse an original checkpoint that transformers' classes can't hold.

    Raises:
        ValueError: with all reasons at once.
    """
    get, decoder = config.get, decoder_of(config)
    projector, feature = get("mm_projector_type", "linear"), get("mm_vision_select_feature", "patch")
    layer, newline = get("mm_vision_select_layer", -2), get("mm_newline_position", "one_token")
    merge, aspect = str(get("mm_patch_merge_type", "flat")), str(get("image_aspect_ratio"))
    tiled = decoder == "qwen2"
    unsound = {
        f"its decoder is {get('architectures') or get('model_type')}, not Llama or Qwen2": decoder is None,
        "it names no mm_vision_tower": not get("mm_vision_tower"),
        f"its projector is {projector!r}, not 'mlp2x_gelu'": projector != "mlp2x_gelu",
        f"it selects image features by {feature!r}, not 'patch' or 'cls_patch'": feature not in ("patch", "cls_patch"),
        f"it takes image features from layer {layer!r}, not from one by number": not isinstance(layer, int),
        "it puts start and end tokens around images (mm_use_im_start_end)": get("mm_use_im_start_end"),
        f"it resamples image features by {get('mm_resampler_type')!r}": get("mm_resampler_type"),
        f"it merges patches by {merge!r}, not 'spatial_unpad'": tiled and merge != "spatial_unpad",
        f"it prepares images by {aspect!r}, not 'anyres' or 'anyres_max_N'": tiled
        and not re.fullmatch(r"anyres(_max_\d+)?", aspect),
        f"it sets its newlines by {newline!r}": tiled and newline not in ("one_token", "grid"),
        f"it is of LLaVA-1.6 (mm_patch_merge_type {merge!r}, image_aspect_ratio {aspect!r})": not tiled
        and (merge != "flat" or "anyres" in aspect),
    }
    if faults := [fault for fault, present in unsound.items() if present]:
        raise ValueError(
            f"judge {name!r} is an original LLaVA checkpoint of a kind that is not supported: " + "; ".join(faults)
        )


def check_counts(config: Mapping[str, Any], name: str) -> None:
    """Refuse a configuration of more layers than can be built in a moment.

    Raises:
        ValueError: naming the setting.
    """
    for key, count in _counts(config):
        if count > MOST_PARTS:
            raise ValueError(f"judge {name!r}: its config.json says {key} = {count:,}, and {MOST_PARTS:,} is the most")


def _counts(config: Any) -> Iterator[tuple[str, int]]:
    """What a configuration counts of layers, blocks and experts, at any depth."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _counts(value)
        elif re.search(r"(layers?|depths?|blocks|experts)$", str(key)):
            for count in value if isinstance(value, list) else [value]:
                if isinstance(count, int):
                    yield key, count


def read_json(file: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object.

    Raises:
        ValueError: naming a file that is damaged, too large, or nested too deeply.
    """
    try:
        if (size := file.stat().st_size) > MOST_BYTES:
            raise ValueError(f"{size:,} bytes, and {MOST_BYTES:,} is the most")
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no JSON, or no UTF-8, or a thousand brackets
        raise ValueError(f"{file} can't be read ({error}); download it again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds no JSON object; download it again")
    return content


# Where a judge lies


def locate(name_or_path: str | Path, *, revision: str | None = None, trust_remote_code: bool = False) -> Path:
    """Find the folder of a judge by short name, local path or hub id; a hub checkpoint is downloaded once.

    The configuration is fetched and checked before any weight is.

    Args:
        name_or_path: "tiny", "tiny-base" or "tiny-policy"; a folder, or the `out` of a training; or a hub id.
        revision: branch, tag or commit of a hub checkpoint.
        trust_remote_code: see `load`.

    Raises:
        ValueError: nothing of that name exists, or what exists is not supported; lists what is.
    """
    name = str(name_or_path)
    if name in EMBEDDED:
        folder = Path(str(resources.files("vjudge").joinpath("assets", EMBEDDED[name])))
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"judge {name!r}: its files are missing from this installation ({folder}); reinstall vjudge"
            )
        return folder
    folder = folder_of(name_or_path)
    if folder.is_dir():
        check_layout(folder, name, trust_remote_code=trust_remote_code)
        return folder
    short = ", ".join(map(repr, EMBEDDED))
    if name in FAMILIES:
        ids = ", ".join(repr(id) for id in FAMILIES[name].ids if id not in EMBEDDED) or "any folder or hub id"
        raise ValueError(f"{name!r} is a family of judges; load one of them: {ids}; or one of {short}")
    if isinstance(name_or_path, Path) or not is_hub_id(name):
        raise ValueError(
            f"no judge {name!r}: it is neither one of {short}, nor a folder, nor a hub id such as"
            f" 'llava-hf/llava-1.5-7b-hf'; give the path of a folder that holds {SUPPORTED}"
        )

    def code(config: Mapping[str, Any]) -> tuple[str, ...]:
        return ("*.py",) if architecture_of(config, name, trust_remote_code=trust_remote_code).remote else ()

    try:
        folder = fetch(name, revision=revision, extra=code)
    except HubError as error:
        raise ValueError(
            f"no judge {name!r}: it is neither one of {short} nor a folder, and the hub could not provide it"
            f" ({error}); give the path of a folder that holds {SUPPORTED}"
        ) from error
    check_layout(folder, name, trust_remote_code=trust_remote_code)
    return folder


def folder_of(name_or_path: str | Path) -> Path:
    """The folder that a path means: of a training's `out`, the judge in it."""
    folder = Path(name_or_path).expanduser()
    if any((folder / file).is_file() for file in ("config.json", ADAPTERS)):
        return folder
    inside = folder / "judge"
    return inside if any((inside / file).is_file() for file in ("config.json", ADAPTERS)) else folder


def is_hub_id(name: str) -> bool:
    """Whether a name has the form "owner/name"."""
    return not name.startswith((".", "/", "~")) and name.count("/") == 1 and " " not in name


def check_layout(folder: Path, name: str, *, trust_remote_code: bool = False) -> Architecture:
    """Refuse a folder that can't be loaded right, saying why; otherwise how it is loaded."""
    if not (folder / "config.json").is_file():
        raise ValueError(f"judge {name!r}: {folder} has no config.json; give a folder that holds {SUPPORTED}")
    config = read_json(folder / "config.json")
    architecture = architecture_of(config, name, trust_remote_code=trust_remote_code)
    if architecture.kind == "original":
        return architecture
    if not weight_files(folder):
        pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
        reason = f"only weights of another kind ({pickles[0]})" if pickles else "no weights"
        raise ValueError(f"judge {name!r}: {folder} holds {reason}; save the model as safetensors")
    preprocessing = ("preprocessor_config.json", "processor_config.json")
    if architecture.kind != "text" and not any((folder / file).is_file() for file in preprocessing):
        raise ValueError(f"judge {name!r}: {folder} has no preprocessor_config.json; copy the checkpoint's own there")
    return architecture


class HubError(OSError):
    """The hub could not provide a checkpoint; the message says why, in one line."""


def fetch(name: str, *, revision: str | None = None, extra: Callable[[Mapping[str, Any]], tuple[str, ...]]) -> Path:
    """Download a checkpoint once: settings, tokenizer and weights, pickled weights only where there are no others.

    Args:
        name: the hub id.
        revision: branch, tag or commit.
        extra: takes the content of config.json, refuses what can't be used by raising, and names further files.

    Returns:
        The folder.

    Raises:
        HubError: there is no such checkpoint, or no connection.
    """
    files = [*LAYOUT_FILES, *TOKENIZER_FILES, *VOCABULARY_FILES, "*.safetensors", "*.safetensors.index.json"]
    files += extra(read_json(fetch_file(name, "config.json", revision=revision)))
    return fetch_files(name, files, or_else=["pytorch_model*.bin", "pytorch_model.bin.index.json"], revision=revision)


def fetch_file(name: str, file: str, *, revision: str | None = None) -> Path:
    """One file of a hub repository. Raises `HubError`."""
    import huggingface_hub

    with _hub() as offline:
        return Path(huggingface_hub.hf_hub_download(name, file, revision=revision, **offline))


def fetch_files(name: str, files: list[str], *, or_else: list[str], revision: str | None = None) -> Path:
    """Files of a hub repository by pattern; those of `or_else`, too, where it has no safetensors. Raises `HubError`."""
    import huggingface_hub

    with _hub() as offline:
        # Without a connection both kinds are looked for, in what was downloaded before.
        there = [] if offline else huggingface_hub.list_repo_files(name, revision=revision)
        if not any(file.endswith(".safetensors") for file in there):
            files = [*files, *or_else]  # read by torch's restricted unpickler
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=files, **offline))


@contextlib.contextmanager
def _hub() -> Iterator[dict[str, Any]]:
    """The options of a download: none, or those without a connection, which take what was downloaded before."""
    from huggingface_hub import errors

    offline = {} if _reachable() else {"local_files_only": True}
    try:
        yield offline
    except (OSError, errors.HfHubHTTPError, errors.HFValidationError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if offline:
            reason = "it can't be reached from here, and the checkpoint is not in its local cache: check the connection"
        raise HubError(reason) from error


def _reachable() -> bool:
    """Whether the hub answers; huggingface_hub itself would try for half a minute at every file."""
    from huggingface_hub import constants, utils

    try:
        utils.get_session().head(constants.ENDPOINT, timeout=PROBE_SECONDS)  # type: ignore[attr-defined]
    except Exception:  # whatever the HTTP client of this version raises
        return False
    return True


# What its files hold

_digests: dict[tuple[str, int, int], str] = {}


def weights_fingerprint(*folders: Path) -> str:
    """Identify a checkpoint's weights: the SHA-256 over its weight files, in the order of their names.

    A file is read once a process; one whose path, size and modification time have not changed is not read again.
    """
    return _fingerprint(file for folder in folders for file in weight_files(folder))


def settings_fingerprint(*folders: Path) -> str:
    """Identify what else decides a checkpoint's outputs: its configuration, tokenizer and preprocessing files."""
    names = sorted((*LAYOUT_FILES, *TOKENIZER_FILES, *VOCABULARY_FILES, ADAPTERS))
    return _fingerprint(file for folder in folders for name in names if (file := folder / name).is_file())


def code_fingerprint(folder: Path) -> str:
    """Identify the code that a checkpoint brings: the SHA-256 over its Python files, in the order of their names."""
    return _fingerprint(sorted(folder.glob("*.py")))


def weight_files(folder: Path) -> list[Path]:
    """The files that a folder's weights are read from: pickles only where there is nothing else."""
    return next((files for pattern in WEIGHTS if (files := sorted(folder.glob(pattern)))), [])


def _fingerprint(files: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for file in files:
        state = file.stat()
        key = (str(file.resolve()), state.st_mtime_ns, state.st_size)
        if key not in _digests:
            digest = hashlib.sha256()
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
            _digests[key] = digest.hexdigest()
        whole.update(f"{file.name}\0{_digests[key]}\n".encode())
    return whole.hexdigest()


# Where it runs


@dataclass(frozen=True)
class Placement:
    """Where and how a model is to compute.

    Args:
        device: where it computes; with a `device_map` over several, where its inputs go first.
        dtype: in what precision.
        quantization: None, "8bit" or "4bit".
        device_map: None for one device; "auto", or module name -> device, where it is spread.
        attention: one of `ATTENTION`.
        options: for transformers' `from_pretrained`.
    """

    device: torch.device
    dtype: torch.dtype
    quantization: str | None
    device_map: Any
    attention: str
    options: dict[str, Any]


def place(
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    quantization: str | None = None,
    device_map: str | dict[str, Any] | None = None,
    max_memory: dict[int | str, int | str] | None = None,
    offload_folder: str | None = None,
    attention: str = "auto",
) -> Placement:
    """Settle where and how a model is to compute, refusing at once what this machine can't do.

    Args:
        device, dtype, attention: see `choose_device`, `choose_dtype` and `choose_attention`.
        quantization: None, "8bit" or "4bit" (bitsandbytes, on CUDA or a CPU).
        device_map: None for one device. "auto" fills the GPUs in turn, then the CPU's memory; "balanced" and
            "sequential" likewise; or a mapping module name -> device. Needs accelerate.
        max_memory: device (0, 1, ..., "cpu") -> the most to use there, in bytes or as "20GiB"; with a `device_map`.
        offload_folder: where weights go that a `device_map` puts on "disk".

    Raises:
        ValueError: an option that is unknown, absent here, or at odds with another.
    """
    has_accelerate = importlib.util.find_spec("accelerate") is not None
    if device_map is None:
        if max_memory is not None or offload_folder is not None:
            raise ValueError('max_memory and offload_folder go with a device_map; add device_map="auto"')
        chosen = choose_device(device)
    else:
        if str(device) != "auto":
            raise ValueError(f"device={str(device)!r} and a device_map exclude each other; leave one out")
        if not has_accelerate:
            raise ValueError("device_map needs accelerate: pip install 'vjudge[gpu]'")
        chosen = choose_device(_first_device(device_map))
    precision = choose_dtype(dtype, chosen)
    kind = choose_attention(attention, chosen, precision)
    options = {"attn_implementation": kind, **quantization_options(quantization, chosen, precision)}
    if device_map is not None:
        extra = {"device_map": device_map, "max_memory": max_memory, "offload_folder": offload_folder}
        options |= {key: value for key, value in extra.items() if value is not None}
    elif chosen.type != "cpu" and has_accelerate:
        options["device_map"] = {"": chosen}  # each weight straight to its device, not by way of the CPU's memory
    return Placement(chosen, precision, quantization, device_map, kind, options)


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """Choose where to compute: CUDA, else Apple's MPS, else the CPU, unless told.

    Raises:
        ValueError: the device asked for is unknown or absent.
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if str(device) == "auto":
        return torch.device(next(kind for kind, here in present.items() if here))
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f'device {device!r} is unknown; use "auto", "cpu", "cuda", "cuda:1" or "mps"') from error
    if not present.get(chosen.type, False):
        raise ValueError(f'device {device!r} is not available to this torch ({torch.__version__}); use device="auto"')
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {str(chosen)!r}: this machine has {torch.cuda.device_count()} CUDA device(s)")
    return chosen


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """Choose the precision: bfloat16 on a GPU that has it, float16 on other GPUs, float32 on a CPU, unless told.

    That a CUDA GPU has no bfloat16 is printed, once a process: float16 has a smaller range, and scores may differ.

    Raises:
        ValueError: the dtype is not one of "auto", "float32", "bfloat16", "float16".
    """
    if dtype == "auto":
        if device.type == "cpu":
            return torch.float32
        if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16
        if device.type == "cuda":
            _say_no_bfloat16(device)
        return torch.float16
    name = str(dtype).removeprefix("torch.")
    if name not in ("float32", "bfloat16", "float16"):
        raise ValueError(f'dtype {dtype!r} is unknown; use "auto", "float32", "bfloat16" or "float16"')
    chosen: torch.dtype = getattr(torch, name)
    return chosen


def choose_attention(attention: str, device: torch.device, dtype: torch.dtype) -> str:
    """Choose how attention is computed: FlashAttention where it is installed and can run, else SDPA, unless told.

    Args:
        attention: "auto", "sdpa", "flash_attention_2" or "eager".

    Raises:
        ValueError: unknown, or FlashAttention was asked for and can't run, with every reason.
    """
    if attention not in ("auto", *ATTENTION):
        raise ValueError(f'attention {attention!r} is unknown; use "auto" or one of {ATTENTION}')
    if attention not in ("auto", "flash_attention_2"):
        return attention
    lacks = []
    if importlib.util.find_spec("flash_attn") is None:
        lacks.append("the flash-attn package is not installed (pip install flash-attn)")
    if device.type != "cuda":
        lacks.append(f"it needs a CUDA GPU, and the device is {device}")
    elif torch.cuda.get_device_capability(device) < AMPERE:
        lacks.append(f"it needs compute capability 8.0, and {torch.cuda.get_device_name(device)} is older")
    if dtype == torch.float32:
        lacks.append("it computes in bfloat16 or float16 only, and the dtype is float32")
    if lacks and attention == "flash_attention_2":
        raise ValueError(f'attention="flash_attention_2" can\'t run: {"; ".join(lacks)}; use attention="sdpa"')
    return "sdpa" if lacks else "flash_attention_2"


def quantization_options(quantization: str | None, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """The options of `from_pretrained` for a quantised model; none without quantisation.

    Raises:
        ValueError: an unknown kind, a device without bitsandbytes' kernels, or a package is not installed.
    """
    if quantization is None:
        return {}
    if quantization not in ("8bit", "4bit"):
        raise ValueError(f'quantization {quantization!r} is unknown; use None, "8bit" or "4bit"')
    if device.type not in ("cuda", "cpu"):
        raise ValueError(
            f"quantization={quantization!r} runs on CUDA or a CPU (bitsandbytes), and the device is {device}; here, use"
            ' dtype="float16", or a server (engine="server")'
        )
    if lacks := [name for name in ("accelerate", "bitsandbytes") if importlib.util.find_spec(name) is None]:
        raise ValueError(f"quantization={quantization!r} needs {' and '.join(lacks)}: pip install 'vjudge[gpu]'")
    if quantization == "8bit":
        settings: dict[str, Any] = {"load_in_8bit": True}
    else:
        settings = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        settings["bnb_4bit_compute_dtype"] = dtype
    config = BitsAndBytesConfig(**settings, llm_int8_skip_modules=list(UNQUANTIZED))
    return {"quantization_config": config, "device_map": {"": device}}


def input_device(module: torch.nn.Module) -> torch.device:
    """Where a loaded module's inputs go: the device that its first weight is on, or is brought to when it is used.

    Args:
        module: of a model as `from_pretrained` gives it, on one device or spread over several.
    """
    for part in module.modules():
        for weight in part.parameters(recurse=False):
            if weight.device.type != "meta":
                return weight.device
            device: Any = part._hf_hook.execution_device  # type: ignore[union-attr]  # accelerate's: it waits elsewhere
            return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    raise ValueError(f"{type(module).__name__} has no weights")


def weight_of(module: Any, name: str) -> torch.Tensor:
    """A module's own weight for use outside of its forward pass, wherever it waits.

    Raises:
        ValueError: a device_map put this weight by itself on the disk, where accelerate does not fetch it.
    """
    weight: torch.Tensor = getattr(module, name)
    if weight.device.type != "meta":
        return weight
    if not hasattr(module, "_hf_hook"):
        raise ValueError(f"the device_map puts {name} by itself on the disk; map it to a device")
    held: torch.Tensor = module._hf_hook.weights_map[name]
    return held


def _first_device(device_map: str | dict[str, Any]) -> str:
    """The kind of device that a map computes on: weights that wait on the disk are computed with elsewhere."""
    if isinstance(device_map, str):
        if device_map not in ("auto", "balanced", "balanced_low_0", "sequential"):
            raise ValueError(f'device_map {device_map!r} is unknown; use "auto", "balanced", "sequential" or a mapping')
        return "auto"
    kinds = [f"cuda:{device}" if isinstance(device, int) else str(device) for device in device_map.values()]
    return next((kind for kind in kinds if kind not in ("cpu", "disk")), "cpu")


@functools.cache
def _say_no_bfloat16(device: torch.device) -> None:
    print(f"{torch.cuda.get_device_name(device)} has no bfloat16: computing in float16 instead")
