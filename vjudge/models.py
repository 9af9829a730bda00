"""Where a judge's weights come from and where they run: device, dtype, quantisation, loading.

Two architectures load: `LlavaForConditionalGeneration` with a CLIP tower (LLaVA-1.5) and
`LlavaOnevisionForConditionalGeneration`, from a folder in the transformers layout, in the original LLaVA layout (see
`vjudge.checkpoints`), or from the hub. Anything else is refused with a reason. No code from a checkpoint is run, and a
checkpoint that lacks a weight is an error, because transformers would fill it with random numbers.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import BitsAndBytesConfig, LlavaForConditionalGeneration, LlavaOnevisionForConditionalGeneration
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil

from vjudge import checkpoints

EMBEDDED = {"tiny": ("assets", "tiny")}  # judges that the package ships, as folders inside it
LAYOUT_FILES = ("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
VOCABULARY_FILES = ("tokenizer.model", "vocab.json", "merges.txt", "chat_template.json", "chat_template.jinja")
STRETCHED = ("linear", "dynamic")  # rotary scalings that multiply the length a model was made for
BUFFERS = ("position_ids", "inv_freq")  # older checkpoints store these; newer classes compute them
SUPPORTED = (
    "a LLaVA-1.5 checkpoint (LlavaForConditionalGeneration with a CLIP vision tower), a LLaVA-OneVision checkpoint"
    " (LlavaOnevisionForConditionalGeneration), or either in the original layout"
)
FAMILIES: dict[str, tuple[Any, Any, tuple[str, ...]]] = {  # model_type -> class, image processor, vision towers
    "llava": (LlavaForConditionalGeneration, CLIPImageProcessorPil, ("clip_vision_model",)),
    "llava_onevision": (
        LlavaOnevisionForConditionalGeneration,
        LlavaOnevisionImageProcessorPil,
        ("siglip_vision_model", "clip_vision_model"),
    ),
}

_digests: dict[tuple[str, int, int], str] = {}


@dataclass(frozen=True)
class VisionLanguageModel:
    """A loaded judge model with everything that turns text and pixels into its inputs.

    Args:
        name: what the user called it.
        path: the folder its files stand in.
        model: in eval mode, on `device`.
        tokenizer: the checkpoint's own.
        image_processor: PIL-based, so that pixels equal the original preprocessing to the bit.
        device, dtype: where and in what precision it computes.
        quantization: None, "8bit" or "4bit".
        others: further folders that its weights and settings came from.
    """

    name: str
    path: Path
    model: Any
    tokenizer: Any
    image_processor: Any
    device: torch.device
    dtype: torch.dtype
    quantization: str | None = None
    others: tuple[Path, ...] = ()

    @property
    def tiled(self) -> bool:
        """Whether it is of the LLaVA-OneVision family, where an image's size decides how many places it takes."""
        return bool(self.model.config.model_type == "llava_onevision")

    @property
    def prompt_limit(self) -> int:
        """The most tokens, image tokens included, that a prompt may have: the tokenizer's maximum, as originally."""
        stated = int(self.tokenizer.model_max_length)
        return stated if stated < checkpoints.NO_LIMIT else self.context_length

    @functools.cached_property
    def vocabulary_size(self) -> int:
        """How many leading entries of the vocabulary are words: those before an image's place that was put last."""
        special = {token for token, entry in self.tokenizer.added_tokens_decoder.items() if entry.special}
        last = all(token in special for token in range(self.image_token_id, len(self.tokenizer)))
        return self.image_token_id if last else len(self.tokenizer)

    @property
    def context_length(self) -> int:
        """The most tokens, image tokens included, that a prompt and its answer may have together."""
        config = self.model.config.get_text_config()
        rope = getattr(config, "rope_parameters", None) or {}
        return int(config.max_position_embeddings * (rope["factor"] if rope.get("rope_type") in STRETCHED else 1))

    @property
    def image_token_id(self) -> int:
        """The vocabulary entry that stands where image features go."""
        return int(self.model.config.image_token_id)

    @property
    def tokens_per_image(self) -> int:
        """How many positions one image takes; a padded one, where the family has tiles."""
        vision = self.model.config.vision_config
        patches = (vision.image_size // vision.patch_size) ** 2
        return patches + (self.tiled or self.model.config.vision_feature_select_strategy == "full")


def judge_names() -> tuple[str, ...]:
    """The judges that load by a short name."""
    return tuple(sorted(EMBEDDED))


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

    Raises:
        ValueError: the dtype is not one of "auto", "float32", "bfloat16", "float16".
    """
    if dtype == "auto":
        if device.type == "cpu":
            return torch.float32
        native = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if native else torch.float16
    name = str(dtype).removeprefix("torch.")
    if name not in ("float32", "bfloat16", "float16"):
        raise ValueError(f'dtype {dtype!r} is unknown; use "auto", "float32", "bfloat16" or "float16"')
    chosen: torch.dtype = getattr(torch, name)
    return chosen


def locate(name_or_path: str | Path, *, revision: str | None = None) -> Path:
    """Find the folder of a judge by short name, local path or hub id; a hub checkpoint is downloaded once.

    The configuration is fetched and checked before any weight is.

    Raises:
        ValueError: nothing of that name exists, or what exists is not supported; lists what is.
    """
    name = str(name_or_path)
    if name in EMBEDDED:
        folder = Path(str(resources.files("vjudge").joinpath(*EMBEDDED[name])))
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"judge {name!r}: its files are missing from this installation ({folder}); reinstall vjudge"
            )
        return folder
    folder = Path(name).expanduser()
    if folder.is_dir():
        _check_layout(folder, name)
        return folder
    if isinstance(name_or_path, Path) or name.startswith((".", "/", "~")) or name.count("/") != 1 or " " in name:
        known = ", ".join(repr(judge) for judge in judge_names())
        raise ValueError(
            f"no judge {name!r}: it is neither one of {known}, nor a folder, nor a hub id such as"
            f" 'llava-hf/llava-1.5-7b-hf'; give the path of a folder that holds {SUPPORTED}"
        )
    return _download(name, revision)


def load(
    name_or_path: str | Path,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    quantization: str | None = None,
    revision: str | None = None,
) -> VisionLanguageModel:
    """Load a judge model for inference.

    Args:
        name_or_path: "tiny", a folder, or a hub id.
        device, dtype: see `choose_device` and `choose_dtype`.
        quantization: None, "8bit" or "4bit" (bitsandbytes; needs CUDA).
        revision: branch, tag or commit of a hub checkpoint.

    Raises:
        ValueError: unknown name, unsupported or incomplete checkpoint, or an option this machine can't serve.
    """
    chosen = choose_device(device)
    precision = choose_dtype(dtype, chosen)
    options = _quantization(quantization, chosen, precision)
    folder = locate(name_or_path, revision=revision)
    config = _check_layout(folder, str(name_or_path))
    if checkpoints.is_original(config):
        return _load_original(folder, str(name_or_path), chosen, precision, quantization, options)
    classes, image_processor, _ = FAMILIES[config["model_type"]]
    with _quiet(folder):
        model, report = classes.from_pretrained(
            folder,
            dtype=precision,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported, and refused below with the rest
            **options,
        )
    _check_weights(report, str(name_or_path))
    if not options:
        model.to(chosen)
    return VisionLanguageModel(
        name=str(name_or_path),
        path=folder,
        model=model.eval(),
        tokenizer=transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False),
        image_processor=image_processor.from_pretrained(folder, local_files_only=True),
        device=chosen,
        dtype=precision,
        quantization=quantization,
    )


def _load_original(
    folder: Path, name: str, device: torch.device, dtype: torch.dtype, quantization: str | None, options: dict[str, Any]
) -> VisionLanguageModel:
    """Load an original LLaVA folder: straight to the device where accelerate can, otherwise by way of the CPU."""
    original = checkpoints.Original(folder, name=name)
    if not options and device.type != "cpu" and importlib.util.find_spec("accelerate") is not None:
        options = {"device_map": {"": device}}
    with _quiet(folder):
        model, report = checkpoints.build(original, dtype=dtype, **options)
    _check_weights(report, name)
    if not options:
        model.to(device)
    return VisionLanguageModel(
        name=name,
        path=folder,
        model=model,
        tokenizer=original.tokenizer,
        image_processor=original.image_processor,
        device=device,
        dtype=dtype,
        quantization=quantization,
        others=(original.tower_folder,),
    )


def weights_fingerprint(*folders: Path) -> str:
    """Identify a checkpoint's weights: the SHA-256 over its weight files, in the order of their names.

    A file is read once a process; one whose path, size and modification time have not changed is not read again.
    """
    digest = hashlib.sha256()
    for file in (file for folder in folders for file in _weight_files(folder)):
        digest.update(f"{file.name}\0{_file_digest(file)}\n".encode())
    return digest.hexdigest()


def settings_fingerprint(*folders: Path) -> str:
    """Identify what else decides a checkpoint's outputs: its configuration, tokenizer and preprocessing files."""
    digest = hashlib.sha256()
    for folder in folders:
        for name in sorted((*LAYOUT_FILES, *TOKENIZER_FILES, *VOCABULARY_FILES)):
            if (folder / name).is_file():
                digest.update(f"{name}\0{_file_digest(folder / name)}\n".encode())
    return digest.hexdigest()


def _weight_files(folder: Path) -> list[Path]:
    """The files that a folder's weights are read from: pickles only where there is nothing else."""
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))


def _file_digest(file: Path) -> str:
    state = file.stat()
    key = (str(file.resolve()), state.st_mtime_ns, state.st_size)
    if key not in _digests:
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
        _digests[key] = digest.hexdigest()
    return _digests[key]


def _quantization(quantization: str | None, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """The loading options of a quantised model; none without quantisation."""
    if quantization is None:
        return {}
    if quantization not in ("8bit", "4bit"):
        raise ValueError(f'quantization {quantization!r} is unknown; use None, "8bit" or "4bit"')
    if device.type != "cuda":
        raise ValueError(f"quantization={quantization!r} needs a CUDA GPU (bitsandbytes), and the device is {device}")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ValueError(f"quantization={quantization!r} needs bitsandbytes: pip install 'vjudge[gpu]'")
    four_bit = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": dtype}
    config = BitsAndBytesConfig(**(four_bit if quantization == "4bit" else {"load_in_8bit": True}))
    return {"quantization_config": config, "device_map": {"": device}}


@contextlib.contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """No progress bar for weights that load in a moment: one that flashes by is noise in a notebook."""
    progress = transformers.utils.logging
    small = sum(file.stat().st_size for file in _weight_files(folder)) < 1 << 28
    shown = progress.is_progress_bar_enabled()
    if small and shown:
        progress.disable_progress_bar()
    try:
        yield
    finally:
        if small and shown:
            progress.enable_progress_bar()


def _check_weights(report: dict[str, Any], name: str) -> None:
    """Refuse weights that fit the configuration only in part."""
    faults = {
        kind: sorted(key if isinstance(key, str) else key[0] for key in report[f"{kind}_keys"])
        for kind in ("missing", "mismatched", "unexpected")
    }
    faults["unexpected"] = [key for key in faults["unexpected"] if not key.endswith(BUFFERS)]
    if any(faults.values()):
        found = "; ".join(f"{len(keys)} {kind}, such as {keys[0]}" for kind, keys in faults.items() if keys)
        raise ValueError(f"judge {name!r}: the weights do not fit its config.json ({found})")


def _check_layout(folder: Path, name: str) -> dict[str, Any]:
    """Refuse a folder that this module can't load right, saying why; its config.json otherwise."""
    if not (folder / "config.json").is_file():
        raise ValueError(f"judge {name!r}: {folder} has no config.json; give a folder that holds {SUPPORTED}")
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _check_config(config, name)
    if checkpoints.is_original(config):
        return config
    if not any(folder.glob("*.safetensors")):
        pickled = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
        reason = f"only pickled weights ({pickled[0]}), which can run code when read" if pickled else "no weights"
        raise ValueError(f"judge {name!r}: {folder} holds {reason}; save the model as safetensors")
    if not any((folder / file).is_file() for file in ("preprocessor_config.json", "processor_config.json")):
        raise ValueError(f"judge {name!r}: {folder} has no preprocessor_config.json; copy the checkpoint's own there")
    return config


def _check_config(config: dict[str, Any], name: str) -> None:
    """Refuse a family that this module can't load right."""
    if checkpoints.is_original(config):
        checkpoints.check(config, name)
        return
    family = str(config.get("model_type"))
    _, _, towers = FAMILIES.get(family, (None, None, ("",)))
    tower = (config.get("vision_config") or {}).get("model_type", towers[0])
    if family not in FAMILIES or tower not in towers:
        raise ValueError(f"judge {name!r} has model_type {family!r} (vision tower {tower!r}); supported is {SUPPORTED}")


def _download(name: str, revision: str | None) -> Path:
    """Fetch a hub checkpoint: its configuration first, then its weights and tokenizer files, never code.

    Pickled weights are fetched for an original LLaVA checkpoint that has no others.
    """
    import huggingface_hub

    try:
        config = huggingface_hub.hf_hub_download(name, "config.json", revision=revision)
        _check_config(json.loads(Path(config).read_text(encoding="utf-8")), name)
        files = ["*.safetensors", "*.safetensors.index.json", *LAYOUT_FILES, *TOKENIZER_FILES, *VOCABULARY_FILES]
        if checkpoints.is_original(json.loads(Path(config).read_text(encoding="utf-8"))):
            there = huggingface_hub.list_repo_files(name, revision=revision)
            if not any(file.endswith(".safetensors") for file in there):
                files += ["pytorch_model*.bin", "pytorch_model.bin.index.json"]  # read by torch's restricted unpickler
        folder = Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=files))
    except (OSError, huggingface_hub.errors.HfHubHTTPError, huggingface_hub.errors.HFValidationError) as error:
        known = ", ".join(repr(judge) for judge in judge_names())
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"no judge {name!r}: it is neither one of {known} nor a folder, and the hub could not provide it"
            f" ({reason}); give the path of a folder that holds {SUPPORTED}"
        ) from error
    _check_layout(folder, name)
    return folder
