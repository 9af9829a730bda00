"""Where a model computes and how precisely, and whether its weights fit there."""

from __future__ import annotations

from typing import Any, NamedTuple

import psutil
import torch
import transformers
from transformers import BitsAndBytesConfig

from vjudge.models.find import Checkpoint, decoder_of, weight_bytes

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
QUANTIZED_BYTES = {"8bit": 1.0, "4bit": 0.5}  # of a weight, its constants aside
# Patterns of modules that keep their precision in a quantised model.
# Source: haotian-liu/LLaVA llava/model/builder.py, also of the 4-bit settings below; of the
# projector llava/train/train.py, so that it can train under adapters.
UNQUANTIZED = [
    r"lm_head",
    r"(model\.)?(vision_tower|vision_model|visual|multi_modal_projector|connector)",
]
GIB = 1 << 30


class Placement(NamedTuple):
    """Where and how a model computes; `options` are for transformers' `from_pretrained`."""

    device: torch.device  # where its inputs go
    dtype: torch.dtype
    quantization: str | None
    options: dict[str, Any]


def place(
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    quantization: str | None = None,
    device_map: str | dict[str, Any] | None = None,
    attention: str | None = None,
) -> Placement:
    """Settle where and how a model computes; arguments and errors as for `load_judge`."""
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
    elif quantization or chosen.type != "cpu":
        # Each weight goes straight to its device, not by way of the CPU's memory.
        options["device_map"] = {"": chosen}
    return Placement(chosen, precision, quantization, options)


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """CUDA, else Apple's MPS, else the CPU, unless told; ValueError for what is not there."""
    if str(device) == "auto":
        device = "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device("cuda" if torch.cuda.is_available() else device)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter of a torch without CUDA
        reason = str(error).splitlines()[0]
        raise ValueError(f"device={device!r}: {reason}; use 'auto' or 'cpu'") from error
    return torch.device(device)


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """bfloat16 on a GPU that has it, float16 on other GPUs, float32 on a CPU, unless told."""
    if dtype == "auto":
        if device.type == "cpu":
            return torch.float32
        has = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if has else torch.float16
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: use 'auto', 'float32', 'bfloat16' or 'float16'")
    return DTYPES[name]


def check_fit(checkpoint: Checkpoint, placed: Placement) -> None:
    """Refuse weights that need more than the memory free where they are to go.

    Keys, values and activations come on top. accelerate sees to it by itself where a `device_map`
    spreads the weights.

    Raises:
        ValueError: says how much is needed, how much is free, and what to pass instead.
    """
    device = placed.device
    if placed.options.get("device_map", {"": device}) != {"": device}:
        return
    needed = needed_bytes(checkpoint, placed)
    free = psutil.virtual_memory().available
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
    if needed > free:
        raise ValueError(
            f"judge {checkpoint.name!r} does not fit: its weights take {needed / GIB:.1f} GiB,"
            f" and {free / GIB:.1f} GiB are free on {device}. Less take dtype='bfloat16',"
            " quantization='8bit' or '4bit'; more have many GPUs, device_map='auto', or a server,"
            " load_judge('openai:MODEL', base_url=...). check_memory=False loads it all the same"
        )


def needed_bytes(checkpoint: Checkpoint, placed: Placement) -> float:
    """The memory that weights take: the larger of what files hold and the configuration asks for.

    A file of 8 MB may come with a vocabulary of a thousand million words.
    """
    stored = checkpoint.settings.get("dtype", checkpoint.settings.get("torch_dtype"))
    stored_bytes: float = DTYPES.get(str(stored), torch.float32).itemsize
    n_bytes = QUANTIZED_BYTES.get(str(placed.quantization), placed.dtype.itemsize)
    if "quantization_config" in checkpoint.settings:  # stored quantised, and loaded so
        n_bytes = stored_bytes = QUANTIZED_BYTES["4bit"]
    in_files = weight_bytes(checkpoint) * n_bytes / stored_bytes
    return max(in_files, n_bytes * configured_weights(checkpoint))


def configured_weights(checkpoint: Checkpoint) -> int:
    """How many weights a configuration makes room for, counted without memory.

    Of an original checkpoint those of its decoder: its vision tower has settings of its own. 0
    where transformers can't build the network, which loading then says.
    """
    settings = dict(checkpoint.settings)
    auto: Any = transformers.AutoModelForImageTextToText
    if checkpoint.kind in ("original", "text"):
        auto = transformers.AutoModelForCausalLM
    if checkpoint.kind == "original":
        settings["model_type"] = decoder_of(settings)
    try:
        config = transformers.CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
        with torch.device("meta"):
            network = auto.from_config(config)
    except Exception:  # of any kind: a configuration is checked as it is used
        return 0
    return sum(weight.numel() for weight in network.parameters())
