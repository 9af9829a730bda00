"""What fits where: the bytes that a model needs against those that are free, before anything is loaded or downloaded.

Nothing is loaded: the model is built without storage (torch's "meta" device) from its configuration, and its weights
are counted one by one. What runs beside the weights is computed from the same configuration for prompts of a stated
length; what can't be computed (the device's own context, fragmentation) is a stated allowance. The engine plans its
batches by the same numbers (`token_bytes`, `batch_budget`).
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    LlavaConfig,
    LlavaOnevisionConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
from transformers.quantizers.quantizers_utils import should_convert_module

from vjudge.models.llava import TEXT_SETTINGS, Original
from vjudge.models.places import (
    EMBEDDED,
    UNQUANTIZED,
    Placement,
    architecture_of,
    decoder_of,
    fetch_file,
    folder_of,
    is_hub_id,
    locate,
    read_json,
)
from vjudge.prompts.families import FAMILIES

if TYPE_CHECKING:
    import pandas as pd

GIB = 1 << 30
TEXT_TOKENS = 2048  # of a prompt's text and its answer together, unless told
IMAGE_TOKENS = 4096  # of an image, for an architecture whose configuration does not say
ENCODED_TOGETHER = 16  # images; what the engine encodes at once
FEATURES_KEPT = 1 << 29  # bytes of image features that the engine keeps
CONTEXT = GIB // 2  # allowance on a GPU for what the driver and the libraries take
FRAGMENTS = 0.05  # allowance, of the weights
FULLY = 0.5  # the share of weights below which a quantised model is said to be one in part only
UNSOUND = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StrictDataclassError)
"""What libraries raise on settings of the wrong kind."""
CGROUP = Path("/sys/fs/cgroup")
SERVER = 'load_judge("openai:MODEL", base_url="http://HOST:PORT/v1")'


class MemoryShortage(ValueError):
    """A judge that does not fit where it was to be loaded."""


# What a model needs


@dataclass(frozen=True)
class Need:
    """What a model needs on its device, in bytes.

    Args:
        parameters: how many weights it has.
        quantized: the share of them that is quantised.
        weights: bytes of the weights, with quantisation's own constants.
        cache: bytes of keys and values.
        activations: bytes of what is alive while a prompt or an image is read, with the image features that are kept.
        allowance: bytes for what can't be computed: half a GiB on a GPU and 5 % of the weights.
        tokens: the length that cache and activations are for.
        batch: rows computed together.
    """

    parameters: int
    quantized: float
    weights: int
    cache: int
    activations: int
    allowance: int
    tokens: int
    batch: int

    @property
    def total(self) -> int:
        """All of it, in bytes."""
        return self.weights + self.cache + self.activations + self.allowance


def need(
    config: Any,
    *,
    dtype: str | torch.dtype = "bfloat16",
    quantization: str | None = None,
    batch: int = 1,
    length: int | None = None,
    device: str = "cuda",
) -> Need:
    """Compute what a model needs.

    Linear layers of the decoder and the projector count quantised (see `places.UNQUANTIZED`): in "8bit" at 1 byte a
    weight and 4 a row; in "4bit" (nf4, quantised twice) at half a byte a weight, 1 for 64 of them and 4 for 16,384.
    Weights that are not in linear layers, such as the experts that transformers 5 holds in one tensor, stay in `dtype`.

    Args:
        config: a transformers configuration.
        dtype: "float32", "bfloat16" or "float16".
        quantization: None, "8bit" or "4bit".
        batch: rows computed together.
        length: tokens of a prompt, its images and its answer; None takes 2,048 and the most that one image takes, or
            the model's context where that is less.
        device: "cuda", "mps" or "cpu".

    Raises:
        ValueError: the architecture is unknown to this transformers.
    """
    size = getattr(torch, str(dtype).removeprefix("torch.")).itemsize
    count = _count(json.dumps(config.to_dict(), default=str, sort_keys=True), quantization)
    weights = count.plain * size + count.quantized_bytes
    text, image = config.get_text_config(), image_tokens(config)
    context = int(getattr(text, "max_position_embeddings", None) or TEXT_TOKENS + image)
    tokens = length or min(TEXT_TOKENS + image, context)
    logits = 3 * 4 * batch * text.vocab_size  # float32, and sorted for top-p
    features = min(FEATURES_KEPT, ENCODED_TOGETHER * image * text.hidden_size * size)
    unpacked = count.widest * size if quantization else 0  # one layer at a time
    reading = max(batch * tokens * _activations(text) * size, _vision_activations(config) * size)
    return Need(
        parameters=count.parameters,
        quantized=count.quantized / count.parameters,
        weights=weights,
        cache=batch * cache_bytes(text, tokens, size),
        activations=reading + logits + features + unpacked,
        allowance=int(FRAGMENTS * weights) + (CONTEXT if device != "cpu" else 0),
        tokens=tokens,
        batch=batch,
    )


def token_bytes(config: Any, dtype: torch.dtype) -> tuple[int, int]:
    """Bytes that one position takes while a batch runs: its keys and values in all layers, its activations in one.

    Args:
        config: the model's transformers configuration.
        dtype: in which it computes.

    >>> token_bytes(assemble(LLAMA_7B, None), torch.bfloat16)
    (524288, 131584)
    """
    text, size = config.get_text_config(), dtype.itemsize
    return cache_bytes(text, 1, size), _activations(text) * size


def batch_budget(model: Any) -> int:
    """Bytes for a batch, from the device's size and not from what is free now, so that the next run plans alike.

    Args:
        model: a `VisionLanguageModel`.

    Returns:
        2 GiB on a CPU; on GPUs what the weights leave of 80 %, bounded by the GPU with the least room for its share of
        the layers.
    """
    if model.device.type != "cuda":
        return 2 << 30
    own: dict[torch.device, int] = {}
    share: dict[torch.device, int] = {}
    for tensor in (*model.model.parameters(), *model.model.buffers()):
        device = tensor.device
        if device.type == "cuda":
            own[device] = own.get(device, 0) + tensor.nbytes
        else:  # it waits elsewhere; the layer computes on the first GPU and keeps its keys and values there
            device = model.device
        share[device] = share.get(device, 0) + tensor.nbytes
    rooms = [
        (0.8 * torch.cuda.get_device_properties(device).total_memory - own.get(device, 0))
        * (sum(share.values()) / max(1, weights))
        for device, weights in share.items()
    ]
    return max(1 << 28, int(min(rooms)))


def cache_bytes(text: Any, tokens: int, size: int) -> int:
    """Bytes of one row's keys and values.

    Args:
        text: the decoder's configuration; layers that look at a window keep no more than it.
        tokens: of the row.
        size: bytes of a number.
    """
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    window = getattr(text, "sliding_window", None)
    kinds = getattr(text, "layer_types", None) or ["full_attention" if not window else "sliding_attention"]
    if len(kinds) != text.num_hidden_layers:
        kinds = list(kinds[:1]) * int(text.num_hidden_layers)
    positions = sum(min(tokens, window) if window and "sliding" in kind else tokens for kind in kinds)
    return int(2 * positions * heads * width * size)


def image_tokens(config: Any) -> int:
    """The most places that one image takes in a prompt; 0 for a model of text alone."""
    vision = getattr(config, "vision_config", None)
    if vision is None:
        return 0
    ours = config.model_type in ("llava", "llava_onevision")
    side, patch = getattr(vision, "image_size", None), getattr(vision, "patch_size", None)
    for name in ("mm_tokens_per_image", "image_seq_length"):
        if not ours and getattr(config, name, None):
            return int(getattr(config, name))
    if not ours or not (isinstance(side, int) and isinstance(patch, int)):
        return IMAGE_TOKENS
    across = side // patch
    if config.model_type == "llava":
        return across**2 + (config.vision_feature_select_strategy == "full")
    most = re.fullmatch(r"anyres_max_(\d+)", str(config.vision_aspect_ratio))
    tiles = max(height * width for height, width in config.image_grid_pinpoints) // side**2
    # More than 1.1 times as wide and high as the limit allows is thinned out; a newline ends each row of features.
    places = min(tiles, 1.21 * int(most[1])) * across**2 if most else tiles * across**2
    return int(across**2 + places + math.ceil(math.sqrt(places)) * 3)


def _activations(text: Any) -> int:
    """Numbers alive for one position while a decoder's layer computes."""
    routed = getattr(text, "num_experts_per_tok", None) or 1
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    return int(8 * text.hidden_size + 3 * inner * routed)


def _vision_activations(config: Any) -> int:
    """Numbers alive while the vision tower reads: every layer's states, which transformers hands back."""
    vision = getattr(config, "vision_config", None)
    if vision is None:
        return 0
    hidden = int(getattr(vision, "embed_dim", None) or vision.hidden_size)
    layers = int(getattr(vision, "num_hidden_layers", None) or getattr(vision, "depth", None) or 32)
    inner = int(getattr(vision, "intermediate_size", None) or 4 * hidden)
    if config.model_type == "llava_onevision":
        side, across = vision.image_size, vision.image_size // vision.patch_size
        patches = (1 + max(height * width for height, width in config.image_grid_pinpoints) // side**2) * across**2
    elif config.model_type == "llava":
        patches = ENCODED_TOGETHER * ((vision.image_size // vision.patch_size) ** 2 + 1)
    else:
        patches = 4 * image_tokens(config)
    return patches * (hidden * (layers + 1) + 4 * hidden + 2 * inner)


@dataclass(frozen=True)
class _Count:
    parameters: int
    plain: int  # weights that keep the model's dtype
    quantized: int
    quantized_bytes: int
    widest: int  # weights of the largest quantised layer


@functools.lru_cache(maxsize=64)
def _count(config: str, quantization: str | None) -> _Count:
    """Count a model's weights, each once, by how they are stored."""
    settings = json.loads(config)
    whole = AutoConfig.for_model(**settings)
    kind = AutoModelForImageTextToText if type(whole) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING else AutoModelForCausalLM
    try:
        with torch.device("meta"):
            model = kind.from_config(whole)
    except (*UNSOUND, ImportError, RuntimeError) as error:  # a class that asks for more
        raise ValueError(f"a model of type {whole.model_type!r} can't be built without its weights: {error}") from error
    plain = quantized = stored = widest = 0
    ids: set[int] = set()  # tied weights are one
    for name, module in model.named_modules():
        for key, weight in module.named_parameters(recurse=False):
            if id(weight) in ids:
                continue
            ids.add(id(weight))
            count = weight.numel()
            linear = type(module) is torch.nn.Linear and key == "weight"
            if quantization is None or not linear or not should_convert_module(name, list(UNQUANTIZED)):
                plain += count
                continue
            blocks = -(-count // 64)
            constants = 4 * weight.shape[0] if quantization == "8bit" else blocks + 4 * -(-blocks // 256)
            stored += (count if quantization == "8bit" else -(-count // 2)) + constants
            quantized += count
            widest = max(widest, count)
    return _Count(plain + quantized, plain, quantized, stored, widest)


# What is free


@dataclass(frozen=True)
class Machine:
    """Where a model might run, with what is free there in bytes.

    Args:
        name: for messages.
        gpus: free memory of each CUDA GPU.
        ram: free main memory.
        mps: free memory of Apple's GPU, which is main memory too; None without one.
        bfloat16: whether its GPUs have bfloat16.
    """

    name: str
    gpus: tuple[int, ...] = ()
    ram: int = 0
    mps: int | None = None
    bfloat16: bool = True

    @property
    def device(self) -> str:
        """What device="auto" takes here."""
        return "cuda" if self.gpus else "mps" if self.mps is not None else "cpu"

    @property
    def half(self) -> str:
        """The 16-bit precision that dtype="auto" would take on its GPU."""
        return "float16" if self.device == "mps" or (self.gpus and not self.bfloat16) else "bfloat16"

    @classmethod
    def here(cls, *, look_at: Sequence[int] | None = None) -> Machine:
        """This machine, as it is now.

        Args:
            look_at: the CUDA GPUs to ask; None for all. To be asked costs a GPU some hundred MB until the process ends.
        """
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        gpus = tuple(free_gpu(number) for number in (range(count) if look_at is None else look_at))
        ram, mps = free_ram(), None
        if torch.backends.mps.is_available():
            mps = min(ram, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
        native = bool(gpus) and torch.cuda.is_bf16_supported(including_emulation=False)
        return cls("this machine", gpus, ram, mps, native or not gpus)


COLAB = (
    Machine("T4 16 GB", (int(14.7 * GIB),), int(12.7 * GIB), bfloat16=False),
    Machine("A100 40 GB", (int(39.5 * GIB),), int(83 * GIB)),
    Machine("A100 80 GB", (int(79.1 * GIB),), int(167 * GIB)),
)
"""Colab's GPUs with nothing else on them; the sizes are what torch reports as their capacity (belief, not measured)."""


def free_gpu(number: int) -> int:
    """Free bytes of one CUDA GPU; what torch has reserved and does not use counts as free."""
    free, _ = torch.cuda.mem_get_info(number)
    return int(free + torch.cuda.memory_reserved(number) - torch.cuda.memory_allocated(number))


def free_ram() -> int:
    """Free bytes of main memory, within the limit of a container."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        if limit != "max":
            used = int((CGROUP / "memory.current").read_text())
            pages = re.search(r"^inactive_file (\d+)$", (CGROUP / "memory.stat").read_text(), re.M)
            free = min(free, max(0, int(limit) - used + (int(pages[1]) if pages else 0)))  # those are given back
    except (OSError, ValueError):
        pass  # no such limit here
    return free


# What fits


@dataclass(frozen=True)
class Option:
    """One way to load a judge on one machine.

    Args:
        setting: in words.
        argument: what to pass to `load_judge`.
        need: what it takes.
        free: bytes that are free for it.
        note: what else there is to know.
    """

    setting: str
    argument: str
    need: Need
    free: int
    note: str = ""

    @property
    def fits(self) -> bool:
        """Whether the need is within what is free."""
        return self.need.total <= self.free


def fits(
    name_or_path: str | Path,
    *,
    machine: Machine | None = None,
    batch: int = 1,
    length: int | None = None,
    revision: str | None = None,
) -> pd.DataFrame:
    """Say which ways of loading a judge fit, without loading it.

    Args:
        name_or_path: as for `load_judge`; the published judges' sizes are known offline.
        machine: None for this one, as it is now; one of `COLAB`, or any `Machine`.
        batch, length: rows computed together and tokens of each, see `need`.
        revision: branch, tag or commit of a hub checkpoint.

    Returns:
        A row for each way: `setting`, `argument` (what to pass to `load_judge`), `need_gib` (computed, see `need`),
        `weights_gib`, `free_gib`, `fits`, `note`. The last row is a server, which needs nothing here.

    Raises:
        ValueError: nothing is known of the judge.

    >>> table = fits("kaist-ai/prometheus-vision-13b-v1.0", machine=COLAB[0])
    >>> table.loc[table["fits"], ["argument", "need_gib"]].head(1).values.tolist()
    [['quantization="4bit"', 11.0]]
    """
    import pandas as pd

    config = configuration(name_or_path, revision=revision)
    if config is None:
        locate(name_or_path, revision=revision)  # says why there is no such judge
        raise ValueError(f"the memory of judge {str(name_or_path)!r} can't be computed from its config.json")
    try:
        ways = options(config, machine or Machine.here(), batch=batch, length=length)
    except UNSOUND as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"the memory of judge {str(name_or_path)!r} can't be computed ({reason})") from error
    rows = [
        {
            "setting": option.setting,
            "argument": option.argument,
            "need_gib": round(option.need.total / GIB, 1),
            "weights_gib": round(option.need.weights / GIB, 1),
            "free_gib": round(option.free / GIB, 1),
            "fits": option.fits,
            "note": option.note,
        }
        for option in ways
    ]
    server = {"setting": "a server", "argument": SERVER, "need_gib": 0.0, "weights_gib": 0.0, "fits": True}
    return pd.DataFrame([*rows, {**server, "free_gib": float("nan"), "note": "needs nothing here"}])


def options(config: Any, machine: Machine, *, batch: int = 1, length: int | None = None) -> list[Option]:
    """Every way to load a model on a machine, the most exact first; other arguments as in `fits`."""

    def of(dtype: str, device: str, quantization: str | None = None) -> Need:
        return need(config, dtype=dtype, quantization=quantization, batch=batch, length=length, device=device)

    device, half = machine.device, machine.half
    free = {"cuda": max(machine.gpus, default=0), "mps": machine.mps or 0, "cpu": machine.ram}[device]
    on = {"cuda": "one GPU", "mps": "Apple's GPU", "cpu": "the CPU"}[device]
    ways = [
        Option(f"float32 on {on}", 'dtype="float32"', of("float32", device), free),
        Option(f"{half} on {on}", f'dtype="{half}"', of(half, device), free),
    ]
    for kind in ("8bit", "4bit") if device != "mps" else ():
        cost = of("float32" if device == "cpu" else half, device, kind)
        note = "" if cost.quantized > FULLY else f"only {cost.quantized:.0%} of its weights can be quantised"
        ways.append(Option(f"{kind[0]}-bit on {on}", f'quantization="{kind}"', cost, free, note))
    if device == "cuda":
        pooled, spread = of(half, device), 'device_map="auto"'
        if (count := len(machine.gpus)) > 1:
            room = sum(machine.gpus) - (count - 1) * CONTEXT
            ways.append(Option(f"{half} over {count} GPUs", spread, pooled, room))
        room = sum(machine.gpus) + machine.ram
        ways.append(Option(f"{half}, the rest on the CPU", spread, pooled, room, "slow: weights travel at each token"))
    if device != "cpu":
        slow = of("bfloat16", "cpu")
        ways.append(Option("bfloat16 on the CPU", 'device="cpu", dtype="bfloat16"', slow, machine.ram))
    return ways


def check(
    name_or_path: str | Path, placed: Placement, *, revision: str | None = None, machine: Machine | None = None
) -> None:
    """Refuse to load a judge that does not fit; quiet where it fits, or where its need can't be computed.

    Only its config.json is fetched. What may be put on a disk is not compared.

    Raises:
        MemoryShortage: with the need, the free memory, and the options that fit.
    """
    mapped = placed.device_map
    if placed.options.get("offload_folder") or (isinstance(mapped, dict) and "disk" in mapped.values()):
        return
    config = configuration(name_or_path, revision=revision)
    if config is None:
        return
    kind, dtype = placed.device.type, str(placed.dtype).removeprefix("torch.")
    try:
        cost = need(config, dtype=dtype, quantization=placed.quantization, device=kind)
    except UNSOUND:
        return  # an architecture that this transformers does not know, or damaged settings: loading says so
    single = kind == "cuda" and mapped is None
    number = placed.device.index or 0
    here = machine or Machine.here(look_at=None if mapped is not None else [number] if single else [])
    if mapped is not None:
        free, where = _pool(here, placed.options.get("max_memory")), "all devices together"
    elif single:
        free, where = here.gpus[number if machine else 0], str(placed.device)
    else:
        free, where = (here.mps or 0, "mps") if kind == "mps" else (here.ram, "the CPU")
    name = str(name_or_path)
    if cost.total > free:
        raise MemoryShortage(_refusal(name, config, cost, placed, free, where, machine or Machine.here()))
    if single and "device_map" not in placed.options and cost.weights > here.ram:
        raise MemoryShortage(
            f"judge {name!r} fits on {where}, but without accelerate its weights go by way of main memory:"
            f" {_gib(cost.weights)}, and {_gib(here.ram)} are free; pip install 'vjudge[gpu]'"
        )


def _refusal(name: str, config: Any, cost: Need, placed: Placement, free: int, where: str, machine: Machine) -> str:
    setting = f"{placed.quantization[0]}-bit" if placed.quantization else str(placed.dtype).removeprefix("torch.")
    parts = {"weights": cost.weights, "keys and values": cost.cache, "activations": cost.activations}
    sizes = ", ".join(f"{part} {_gib(size)}" for part, size in {**parts, "allowance": cost.allowance}.items())
    ways = [
        f"{option.argument} ({option.setting}: {_gib(option.need.total)} of {_gib(option.free)})"
        for option in options(config, machine)
        if option.fits
    ]
    return (
        f"judge {name!r} does not fit: in {setting} it needs {_gib(cost.total)} ({sizes}; computed, for one row of"
        f" {cost.tokens:,} tokens), and {_gib(free)} are free on {where}. What fits:"
        f" {'; or '.join([*ways, f'a server, {SERVER}'])}. check_memory=False loads it all the same"
    )


def configuration(name_or_path: str | Path, *, revision: str | None = None) -> Any | None:
    """A judge's transformers configuration, from as little as can be fetched; None where that is not enough.

    Args:
        name_or_path, revision: as for `load_judge`; a published judge's sizes are not fetched at all.
    """
    name = str(name_or_path)
    folder = locate(name) if name in EMBEDDED else folder_of(name_or_path)
    if not folder.is_dir() and name.lower() in (id for family in FAMILIES.values() for id in family.ids):
        for judge in PUBLISHED:
            if judge.id.rpartition("/")[2] == name.lower().rpartition("/")[2]:  # some stand under two owners
                return assemble(judge.text, judge.vision)
    try:
        if not folder.is_dir() and not is_hub_id(name):
            return None
        file = folder / "config.json" if folder.is_dir() else fetch_file(name, "config.json", revision=revision)
        settings = read_json(file)
        if architecture_of(settings, name, trust_remote_code=True).kind == "original":
            text = {key: settings[key] for key in (*TEXT_SETTINGS, "vocab_size") if settings.get(key) is not None}
            tower = TOWERS.get(str(settings["mm_vision_tower"]).rstrip("/").rpartition("/")[2])
            tower = tower or Original(folder, name=name).tower_config.to_dict()
            return assemble({**text, "model_type": decoder_of(settings)}, tower)
        return None if "quantization_config" in settings else AutoConfig.for_model(**settings)
    except (OSError, *UNSOUND):
        return None  # loading says what is wrong with it, where anything is


def _pool(machine: Machine, limits: dict[Any, Any] | None) -> int:
    """What a device map may use in all."""
    free: dict[Any, int] = {**dict(enumerate(machine.gpus)), "cpu": machine.ram}
    if machine.mps is not None:
        free["mps"] = machine.mps
    if limits is not None:
        from accelerate.utils import convert_file_size_to_int

        free = {key: min(free.get(key, 0), convert_file_size_to_int(limit)) for key, limit in limits.items()}
    return sum(free.values())


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


# The published judges

# The sizes are those of each checkpoint's config.json, or of the model it was trained from; parameters and bytes are
# computed from them. What was verified is said for each, and is no more than what was run.

LLAMA_7B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
"""Llama 2 7B and Vicuna 7B v1.5. Source: config.json of meta-llama/Llama-2-7b-chat-hf, lmsys/vicuna-7b-v1.5."""
LLAMA_13B = LLAMA_7B | {
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 40,
}
"""Llama 2 13B and Vicuna 13B v1.5. Source: config.json of meta-llama/Llama-2-13b-chat-hf, lmsys/vicuna-13b-v1.5."""
MISTRAL_7B = LLAMA_7B | {
    "model_type": "mistral",
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
    "sliding_window": None,
}
"""Source: config.json of mistralai/Mistral-7B-Instruct-v0.2."""
MIXTRAL_8X7B = MISTRAL_7B | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
"""Source: config.json of mistralai/Mixtral-8x7B-Instruct-v0.1."""
QWEN2_7B: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}
"""Source: config.json of Qwen/Qwen2-7B-Instruct."""
QWEN2_72B = QWEN2_7B | {
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
"""Source: config.json of Qwen/Qwen2-72B-Instruct."""
CLIP_L_336: dict[str, Any] = {
    "model_type": "clip_vision_model",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
    "projection_dim": 768,
}
"""Source: config.json of openai/clip-vit-large-patch14-336."""
SIGLIP_SO400M: dict[str, Any] = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 26,  # of 27: the original deletes the last, and the pooling head
    "num_attention_heads": 16,
    "image_size": 384,
    "patch_size": 14,
    "vision_use_head": False,
}
"""Source: config.json of google/siglip-so400m-patch14-384; LLaVA-VL/LLaVA-NeXT multimodal_encoder/siglip_encoder.py."""
TOWERS = {"clip-vit-large-patch14-336": CLIP_L_336, "siglip-so400m-patch14-384": SIGLIP_SO400M}

ORIGINAL = "small random weights in float32 on a CPU: equal to the original code on {} cases"
LANGUAGE = (
    "wording and parser; small random weights of its architecture in float32 on a CPU: greedy answers equal to"
    " transformers' generate, repetition penalty included"
)


@dataclass(frozen=True)
class Published:
    """A published judge.

    Args:
        name: as people call it.
        id: its hub id.
        text, vision: the sizes of its decoder and of its vision tower, as in their config.json.
        verified: what of it was run in this project, and on what; nobody ran the published weights.
    """

    name: str
    id: str
    text: Mapping[str, Any]
    vision: Mapping[str, Any] | None
    verified: str


PUBLISHED = (
    Published("Prometheus-Vision 7B", "kaist-ai/prometheus-vision-7b-v1.0", LLAMA_7B, CLIP_L_336, ORIGINAL.format(12)),
    Published(
        "Prometheus-Vision 13B", "kaist-ai/prometheus-vision-13b-v1.0", LLAMA_13B, CLIP_L_336, ORIGINAL.format(12)
    ),
    Published("LLaVA-Critic 7B", "lmms-lab/llava-critic-7b", QWEN2_7B, SIGLIP_SO400M, ORIGINAL.format(17)),
    Published("LLaVA-Critic 72B", "lmms-lab/llava-critic-72b", QWEN2_72B, SIGLIP_SO400M, ORIGINAL.format(17)),
    Published("Prometheus 7B", "prometheus-eval/prometheus-7b-v1.0", LLAMA_7B, None, LANGUAGE),
    Published("Prometheus 13B", "prometheus-eval/prometheus-13b-v1.0", LLAMA_13B, None, LANGUAGE),
    Published("Prometheus 2 7B", "prometheus-eval/prometheus-7b-v2.0", MISTRAL_7B, None, LANGUAGE),
    Published("Prometheus 2 8x7B", "prometheus-eval/prometheus-8x7b-v2.0", MIXTRAL_8X7B, None, LANGUAGE),
)
"""The judges whose authors' wording vjudge has."""


def assemble(text: Mapping[str, Any], vision: Mapping[str, Any] | None) -> Any:
    """A transformers configuration from the sizes of its parts.

    Args:
        text: of the decoder, with its `model_type`.
        vision: of the vision tower, with its `model_type`; None for a model of text alone.
    """
    decoder = AutoConfig.for_model(**text)
    if vision is None:
        return decoder
    tower = AutoConfig.for_model(**vision)
    if text["model_type"] == "qwen2":
        return LlavaOnevisionConfig(
            text_config=decoder, vision_config=tower, tie_word_embeddings=False, vision_aspect_ratio="anyres_max_9"
        )
    return LlavaConfig(text_config=decoder, vision_config=tower, tie_word_embeddings=False)


def memory_table() -> str:
    """The published judges with the memory that each takes, in Markdown, computed for one prompt of the usual length.

    Returns:
        A row for each of `PUBLISHED`: its name, the call, parameters, GiB at each precision, and what was verified.
    """
    head = ["Judge", "`load_judge(...)`", "Weights", "float32", "16-bit", "8-bit", "4-bit", "Verified here"]
    lines = [head, ["---", "---", *["---:"] * 5, "---"]]
    for judge in PUBLISHED:
        config = assemble(judge.text, judge.vision)
        needs = [need(config, dtype=dtype) for dtype in ("float32", "bfloat16")]
        needs += [need(config, quantization=kind) for kind in ("8bit", "4bit")]
        sizes = [f"{each.total / GIB:.1f}" for each in needs]
        sizes = [f"{size} *" if 0 < each.quantized < FULLY else size for size, each in zip(sizes, needs, strict=True)]
        count = f"{needs[0].parameters / 1e9:.2f} B"
        lines.append([judge.name, f'`"{judge.id}"`', count, *sizes, judge.verified])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fitting_table(machines: Sequence[Machine]) -> str:
    """What fits where, in Markdown: the `quantization` to load each published judge with on one GPU, None before 8-bit.

    Args:
        machines: each with a GPU, such as `COLAB`.
    """
    head = ["`JUDGE`", *(machine.name for machine in machines)]
    lines = [head, ["---"] * len(head)]
    for judge in PUBLISHED:
        config, cells = assemble(judge.text, judge.vision), []
        for machine in machines:
            ways = zip(("`None`", '`"8bit"`', '`"4bit"`'), options(config, machine)[1:4], strict=True)
            cells.append(next((way for way, option in ways if option.fits), "too large"))
        lines.append([f'`"{judge.id}"`', *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
