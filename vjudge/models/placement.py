"""Where a model computes and how precisely, and whether its weights fit there."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any, NamedTuple

import huggingface_hub
import psutil
import torch
import transformers
from transformers import BitsAndBytesConfig

from vjudge.models.files import WEIGHT_PATTERNS, weight_files
from vjudge.models.find import Checkpoint, decoder_of, folder_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
QUANTIZED_BYTES = {"8bit": 1.0, "4bit": 0.5}  # bytes per weight, without quantisation constants
UNQUANTIZED = [
    r"lm_head",
    r"(model\.)?(vision_tower|vision_model|visual|multi_modal_projector|connector)",
]
"""Patterns of modules that keep their precision in a quantised model.

Source: haotian-liu/LLaVA llava/model/builder.py, also for the 4-bit settings in `place`; for the
projector llava/train/train.py, so that it can train under adapters.
"""
GIB = 1 << 30


class Placement(NamedTuple):
    """Where and how a model computes."""

    device: torch.device  # where its inputs go
    dtype: torch.dtype
    quantization: str | None  # "8bit", "4bit" or none
    options: dict[str, Any]  # further arguments of transformers' `from_pretrained`


def place(
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    quantization: str | None = None,
    device_map: str | dict[str, Any] | None = None,
    attention: str | None = None,
) -> Placement:
    """Decide where and how a model computes.

    Args:
        device: "auto" takes CUDA, else Apple's MPS, else the CPU.
        dtype: "auto" takes bfloat16 or float16 on a GPU, float32 on a CPU.
        quantization: "8bit" or "4bit" (needs bitsandbytes); None for none.
        device_map: "auto" spreads the weights over all GPUs and the CPU's memory; or a map of
            modules, as accelerate takes it.
        attention: "flash_attention_2", "sdpa" or "eager"; None lets transformers choose.

    Raises:
        ValueError: an unknown value, or a device that is not there.
    """
    chosen = choose_device(device)
    precision = choose_dtype(dtype, chosen)
    options: dict[str, Any] = {}
    if attention is not None:
        options["attn_implementation"] = attention
    if quantization is not None:
        if quantization not in QUANTIZED_BYTES:
            raise ValueError(f'quantization={quantization!r}: use None, "8bit" or "4bit"')
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_8bit=quantization == "8bit",
            load_in_4bit=quantization == "4bit",
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=precision,
            llm_int8_skip_modules=UNQUANTIZED,
        )
    if device_map is not None:
        options["device_map"] = device_map
    # A model on a CPU takes no map: transformers loads it there anyway.
    elif quantization or chosen.type != "cpu":
        # Each weight goes straight to its device, not by way of the CPU's memory.
        options["device_map"] = {"": chosen}
    return Placement(chosen, precision, quantization, options)


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """Return a device: the named one, or for "auto" CUDA, else Apple's MPS, else the CPU.

    Raises:
        ValueError: the named device is not there.
    """
    if str(device) == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter by a torch without CUDA
        reason = str(error).splitlines()[0]
        raise ValueError(f"device={device!r}: {reason}; use 'auto' or 'cpu'") from error
    return torch.device(device)


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """Return a precision: the named one, or for "auto" the usual one of the device.

    That is bfloat16 on a CUDA GPU that computes in it, float16 on other GPUs, and float32 on a CPU.

    Raises:
        ValueError: an unknown name.
    """
    if dtype == "auto":
        if device.type == "cpu":
            return torch.float32
        if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16
        return torch.float16
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: use 'auto', 'float32', 'bfloat16' or 'float16'")
    return DTYPES[name]


def check_fit(checkpoint: Checkpoint, placed: Placement) -> None:
    """Refuse weights that need more memory than is free where they are to go.

    Keys, values and activations come on top. Where a `device_map` spreads the weights, accelerate
    checks this itself.

    Raises:
        ValueError: the weights do not fit; the message says how much memory they need, how much is
            free, and what to pass instead.
    """
    device = placed.device
    everything_there = {"": device}  # the device map that puts all modules on one device
    if placed.options.get("device_map", everything_there) != everything_there:
        return
    n_needed = needed_bytes(checkpoint, placed)
    n_free = psutil.virtual_memory().available
    if device.type == "cuda":
        n_free, _ = torch.cuda.mem_get_info(device)
    if n_needed > n_free:
        raise ValueError(
            f"judge {checkpoint.name!r} does not fit: its weights take {n_needed / GIB:.1f} GiB,"
            f" and {n_free / GIB:.1f} GiB are free on {device}. Less take dtype='bfloat16',"
            " quantization='8bit' or '4bit'; more have many GPUs, device_map='auto', or a server,"
            " load_judge('openai:MODEL', base_url=...). check_memory=False loads it all the same"
        )


def needed_bytes(checkpoint: Checkpoint, placed: Placement) -> float:
    """Return the bytes that the weights take once they are loaded.

    This is the larger of two numbers: what the weight files hold, and what the configuration makes
    room for, because a file of 8 MB may come with a configuration of a thousand million words.

    For a file of 14 GB in float16 (2 bytes a weight), loaded in "4bit" (half a byte a weight):

        14 GB * 0.5 / 2 = 3.5 GB
    """
    dtype = checkpoint.settings.get("dtype", checkpoint.settings.get("torch_dtype"))
    bytes_stored: float = DTYPES.get(str(dtype), torch.float32).itemsize  # of a weight
    bytes_loaded = QUANTIZED_BYTES.get(str(placed.quantization), placed.dtype.itemsize)
    # Stored quantised, and loaded as stored, so that the files' size is what is needed. Whether
    # in 8 or 4 bits is not read: 4 is the least that the configured weights can take.
    if "quantization_config" in checkpoint.settings:
        bytes_loaded = bytes_stored = QUANTIZED_BYTES["4bit"]
    in_files = weight_bytes(checkpoint) * bytes_loaded / bytes_stored
    return max(in_files, bytes_loaded * configured_weights(checkpoint))


def weight_bytes(checkpoint: Checkpoint) -> int:
    """Return the size of the weight files in bytes; for a hub id, as the hub states it.

    0 stands for a repository without weight files.
    """
    if folder_of(checkpoint.name).is_dir():
        return sum(file.stat().st_size for file in weight_files(checkpoint.folder))
    listed: Any = huggingface_hub.HfApi().model_info(
        checkpoint.name, revision=checkpoint.revision, files_metadata=True
    )
    for pattern in WEIGHT_PATTERNS:  # the first kind that is there would be downloaded
        sizes = [file.size for file in listed.siblings if fnmatch(file.rfilename, pattern)]
        if sizes:
            return sum(sizes)
    return 0


def configured_weights(checkpoint: Checkpoint) -> int:
    """Count the weights that a configuration makes room for, without allocating them.

    Returns:
        The number of weights; of an original LLaVA checkpoint those of its decoder, because its
        vision tower has settings of its own. 0 where transformers can't build the network, which
        loading then reports.
    """
    settings = dict(checkpoint.settings)
    auto_class: Any = transformers.AutoModelForImageTextToText
    if checkpoint.kind in ("original", "text"):
        auto_class = transformers.AutoModelForCausalLM
    if checkpoint.kind == "original":
        settings["model_type"] = decoder_of(settings)
    try:
        config = transformers.CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
        with torch.device("meta"):  # tensors with a shape and no memory
            network = auto_class.from_config(config)
    except Exception:  # of any kind: a configuration is checked as it is used
        return 0
    return sum(weight.numel() for weight in network.parameters())
