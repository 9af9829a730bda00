"""Where a model computes and how precisely, and whether its weights fit there."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from transformers import BitsAndBytesConfig

from vjudge.models.find import Found, reason_of, weight_bytes

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION = ("auto", "sdpa", "flash_attention_2", "eager")
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

    device: torch.device  # of several, the one where its inputs go first
    dtype: torch.dtype
    quantization: str | None
    options: dict[str, Any]


def place(
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    quantization: str | None = None,
    device_map: str | dict[str, Any] | None = None,
    attention: str = "auto",
) -> Placement:
    """Settle where and how a model computes; arguments and errors as for `load_judge`."""
    if device_map is not None and str(device) != "auto":
        raise ValueError(
            f"device={str(device)!r} and a device_map exclude each other; leave one out"
        )
    if attention not in ATTENTION:
        known = ", ".join(repr(each) for each in ATTENTION)
        raise ValueError(f"attention {attention!r} is unknown; use one of {known}")
    chosen = choose_device(device)
    precision = choose_dtype(dtype, chosen)
    options: dict[str, Any] = {}
    if attention != "auto":
        options["attn_implementation"] = attention
    if quantization is not None:
        options["quantization_config"] = _quantized(quantization, precision)
    if device_map is not None:
        options["device_map"] = device_map
    elif quantization or (chosen.type != "cpu" and importlib.util.find_spec("accelerate")):
        # Each weight goes straight to its device, not by way of the CPU's memory.
        options["device_map"] = {"": chosen}
    return Placement(chosen, precision, quantization, options)


def _quantized(quantization: str, precision: torch.dtype) -> BitsAndBytesConfig:
    if quantization not in QUANTIZED_BYTES:
        raise ValueError(f'quantization {quantization!r} is unknown; use None, "8bit" or "4bit"')
    for package in ("accelerate", "bitsandbytes"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"quantization={quantization!r} needs {package}: pip install 'vjudge[gpu]'"
            )
    if quantization == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=UNQUANTIZED)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=precision,
        llm_int8_skip_modules=UNQUANTIZED,
    )


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """CUDA, else Apple's MPS, else the CPU, unless told; ValueError where that is absent."""
    if str(device) == "auto":
        device = "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device("cuda" if torch.cuda.is_available() else device)
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device {str(device)!r} can't be used by torch {torch.__version__}"
            f' ({reason_of(error)}); use "auto", "cpu", "cuda:1" or "mps"'
        ) from error


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """bfloat16 on a GPU that has it, float16 on other GPUs (said), float32 on a CPU."""
    if dtype == "auto":
        if device.type in ("cpu", "mps"):
            return torch.float32 if device.type == "cpu" else torch.float16
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16
        warnings.warn("this GPU has no bfloat16: computing in float16 instead", stacklevel=2)
        return torch.float16
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(
            f'dtype {dtype!r} is unknown; use "auto", "float32", "bfloat16" or "float16"'
        )
    return DTYPES[name]


def check_fit(
    name_or_path: str | Path, found: Found, placed: Placement, *, revision: str | None = None
) -> None:
    """Refuse weights that are larger than the memory free where they are to go.

    They are counted from the sizes of the weight files; keys, values and activations come on top.
    accelerate sees to it by itself where a `device_map` spreads them.

    Raises:
        ValueError: says how much is needed, how much is free, and what to pass instead.
    """
    device = placed.device
    if placed.options.get("device_map", {"": device}) != {"": device}:
        return
    needed: float = weight_bytes(name_or_path, revision=revision)
    if "quantization_config" not in found.settings:  # else stored quantised, and loaded so
        stored = found.settings.get("dtype", found.settings.get("torch_dtype"))
        each = QUANTIZED_BYTES.get(str(placed.quantization), placed.dtype.itemsize)
        needed *= each / DTYPES.get(str(stored), torch.float32).itemsize
    free = free_bytes(device)
    if needed > free:
        precision = placed.quantization or str(placed.dtype).removeprefix("torch.")
        raise ValueError(
            f"judge {str(name_or_path)!r} does not fit: its weights take {needed / GIB:.1f} GiB in"
            f" {precision}, and {free / GIB:.1f} GiB are free on {device}. Less take"
            " dtype='bfloat16', quantization='8bit' or '4bit'; more have many GPUs,"
            " device_map='auto', or a server, load_judge('openai:MODEL', base_url=...)."
            " check_memory=False loads it all the same"
        )


def free_bytes(device: torch.device) -> int:
    """Free memory of a device; on a GPU, what torch holds and does not use counts as free."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def input_device(module: torch.nn.Module) -> torch.device:
    """Where a module's inputs go: the device of its first weight, or where it is brought to."""
    for part in module.modules():
        for weight in part.parameters(recurse=False):
            if weight.device.type != "meta":
                return weight.device
            hook: Any = part._hf_hook  # accelerate's: the weight waits elsewhere
            return torch.device(hook.execution_device)
    raise ValueError("a module without weights is on no device")


def weight_of(module: Any, name: str) -> torch.Tensor:
    """A module's own weight for use outside of its forward pass, wherever it waits."""
    weight: torch.Tensor = getattr(module, name)
    if weight.device.type == "meta":
        return module._hf_hook.weights_map[name]
    return weight
