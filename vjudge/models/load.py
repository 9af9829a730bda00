"""Load a judge model for inference, whole or not at all.

Three kinds load: the LLaVA families whose vision is ours, from the transformers layout or the original one; any chat
model that transformers knows as image-text-to-text, through its own processor; and causal language models, which judge
without images. Anything else is refused with a reason. No code from a checkpoint is run unless asked for, and a
checkpoint that lacks a weight is an error, because transformers would fill it with random numbers.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from tokenizers import AddedToken
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING, processor_class_from_name

from vjudge.models.llava import NO_LIMIT, Original, converted
from vjudge.models.memory import check
from vjudge.models.places import (
    ADAPTERS,
    EMBEDDED,
    SUPPORTED,
    Architecture,
    Placement,
    check_layout,
    code_fingerprint,
    folder_of,
    input_device,
    locate,
    place,
    read_json,
    weight_files,
)

BUFFERS = ("position_ids", "inv_freq")  # older checkpoints store these; newer classes compute them
UNBOUNDED = 1 << 20  # tokens, for a model without a stated context
STRETCHED = ("linear", "dynamic")  # rotary scalings that multiply the length a model was made for
NAMES_PROCESSOR = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
ADAPTER_WEIGHTS = "adapter_model.safetensors"
BESIDE = "non_lora_trainables.bin"  # in LLaVA's own folders of adapters: weights that were trained in full
PATTERN_SECONDS = 10.0  # to match a model's module names with an adapter's pattern


@dataclass(frozen=True)
class VisionLanguageModel:
    """A loaded judge model with everything that turns text and pixels into its inputs.

    Args:
        name: what the user called it.
        path: the folder that it came from.
        folder: the transformers folder that it was read from: `path`, or what an original was converted to.
        model: in eval mode, on `device`.
        tokenizer: the checkpoint's own.
        image_processor: PIL-based, so that pixels equal the original preprocessing to the bit; None for a text-only
            judge.
        device, dtype: where and in what precision it computes.
        quantization: None, "8bit" or "4bit".
        others: further folders that its weights and settings came from.
        processor: of a chat model that prepares its inputs by itself; None for LLaVA's families, whose vision is ours,
            and for a text-only judge.
        architecture: how it was loaded.
        code: a digest of the checkpoint's own code, where it was asked to run; None otherwise.
    """

    name: str
    path: Path
    folder: Path
    model: Any
    tokenizer: Any
    image_processor: Any
    device: torch.device
    dtype: torch.dtype
    quantization: str | None = None
    others: tuple[Path, ...] = ()
    processor: Any = None
    architecture: Architecture = Architecture("text")
    code: str | None = None

    @property
    def sees_images(self) -> bool:
        """Whether it reads images."""
        return self.image_processor is not None

    @property
    def attention(self) -> str:
        """How transformers computes the decoder's attention: "sdpa", "eager" or "flash_attention_2"."""
        return str(self.model.config.get_text_config()._attn_implementation)

    @property
    def tiled(self) -> bool:
        """Whether it is of the LLaVA-OneVision family, where an image's size decides how many places it takes."""
        return bool(self.model.config.model_type == "llava_onevision")

    @property
    def prompt_limit(self) -> int:
        """The most tokens, image tokens included, that a prompt may have.

        For LLaVA's families the tokenizer's maximum, as originally; others look at the model's context alone.
        """
        stated = int(self.tokenizer.model_max_length)
        ours = self.sees_images and self.processor is None
        return stated if ours and stated < NO_LIMIT else self.context_length

    @functools.cached_property
    def vocabulary_size(self) -> int:
        """How many leading entries of the vocabulary are words: those before an image's place that was put last."""
        if self.image_token_id is None or self.processor is not None:
            return len(self.tokenizer)
        special = {token for token, entry in self.tokenizer.added_tokens_decoder.items() if entry.special}
        last = all(token in special for token in range(self.image_token_id, len(self.tokenizer)))
        return self.image_token_id if last else len(self.tokenizer)

    @property
    def context_length(self) -> int:
        """The most tokens, image tokens included, that a prompt and its answer may have together."""
        config = self.model.config.get_text_config()
        rope = getattr(config, "rope_parameters", None) or {}
        length = getattr(config, "max_position_embeddings", None) or UNBOUNDED
        return int(length * (rope["factor"] if rope.get("rope_type") in STRETCHED else 1))

    @property
    def image_token_id(self) -> int | None:
        """The vocabulary entry that stands where image features go; None for a text-only judge."""
        return _token_id(self.model.config, "image") if self.sees_images else None

    @property
    def image_token(self) -> str:
        """What stands for an image in its chat template; "" for a text-only judge."""
        if self.image_token_id is None:
            return ""
        own: str = self.tokenizer.convert_ids_to_tokens(self.image_token_id)
        return getattr(self.processor, "image_token", own)

    @functools.cached_property
    def wordless(self) -> tuple[int, ...]:
        """The vocabulary entries that stand for images, videos and sound: no words of an answer."""
        tokens = {_token_id(self.model.config, kind) for kind in ("image", "video", "audio")}
        return tuple(sorted(token for token in tokens if token is not None))

    def leave_words(self, logits: torch.Tensor) -> None:
        """Take out of logits (rows, vocabulary), in place, what is no word of an answer."""
        logits[:, list(self.wordless)] = -torch.inf
        logits[:, self.vocabulary_size :] = -torch.inf  # rows beyond the vocabulary

    @property
    def tokens_per_image(self) -> int:
        """How many positions one image takes; a padded one, where the family has tiles; 0 where that varies."""
        if not self.sees_images or self.processor is not None:
            return 0
        vision = self.model.config.vision_config
        patches = (vision.image_size // vision.patch_size) ** 2
        return patches + (self.tiled or self.model.config.vision_feature_select_strategy == "full")


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
        name_or_path: a short name such as "tiny", a folder, or a hub id. An original LLaVA checkpoint is first written
            in the transformers layout, once (`llava.converted`); adapters are loaded with their base, unmerged.
        device, dtype: see `choose_device` and `choose_dtype`.
        quantization: None, "8bit" or "4bit" (bitsandbytes, on CUDA or a CPU).
        revision: branch, tag or commit of a hub checkpoint.
        trust_remote_code: whether to run a model that is code of the checkpoint, where transformers has none; it is
            said in a warning, and the run's manifest keeps a digest of the code.
        check_memory: whether to compare the need with the memory that is free before weights are fetched or read.
        placing: `device_map`, `max_memory`, `offload_folder` and `attention`, see `place`.

    Raises:
        ValueError: unknown name, unsupported or incomplete checkpoint, or an option this machine can't serve.
        MemoryShortage: it does not fit; names what does. A ValueError, too.

    >>> model = load("tiny", device="cpu")
    >>> model.tokens_per_image, model.context_length, model.attention
    (36, 1024, 'sdpa')
    """
    name, base = str(name_or_path), base_of(name_or_path)
    if base is not None and base_of(base) is not None:
        raise ValueError(f"judge {name!r}: its base {base!r} is a folder of adapters itself; merge that one first")
    placed = place(device=device, dtype=dtype, quantization=quantization, **placing)
    target = name_or_path if base is None else base
    if check_memory:
        check(target, placed, revision=revision)
    shape = outline(target, revision=revision, trust_remote_code=trust_remote_code)
    loaded = _with_weights(shape, placed, attention=str(placing.get("attention", "auto")))
    return loaded if base is None else replace(attach(loaded, folder_of(name_or_path)), name=name)


def outline(
    name_or_path: str | Path, *, revision: str | None = None, trust_remote_code: bool = False
) -> VisionLanguageModel:
    """A judge without its weights, for an engine that runs the model by itself: its `model` has settings alone.

    Args:
        name_or_path, revision, trust_remote_code: as for `load`; adapters are not read.

    Raises:
        ValueError: unknown name, unsupported or incomplete checkpoint.
    """
    name = str(name_or_path)
    path = folder = locate(name_or_path, revision=revision, trust_remote_code=trust_remote_code)
    architecture = check_layout(folder, name, trust_remote_code=trust_remote_code)
    others: tuple[Path, ...] = ()
    if architecture.kind == "original":
        original = Original(folder, name=name)
        folder, others = converted(original), original.origins[1:]
        architecture = check_layout(folder, name)
    trusted = {"local_files_only": True, "trust_remote_code": architecture.remote}
    if architecture.remote:
        warnings.warn(f"judge {name!r}: running the code that comes with the checkpoint ({folder})", stacklevel=3)
    with _reading(name, folder / "config.json"):
        config = transformers.AutoConfig.from_pretrained(folder, **trusted)
    if config.is_encoder_decoder:
        raise ValueError(f"judge {name!r} is an encoder-decoder ({config.model_type}); supported is {SUPPORTED}")
    processor = image_processor = None
    generation: dict[str, Any] = {}
    with _reading(name, folder, what="its tokenizer, preprocessing or generation settings"):
        if architecture.kind == "chat":
            processor = load_processor(folder, config, trust_remote_code=architecture.remote)
            tokenizer, image_processor = processor.tokenizer, processor.image_processor
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **trusted)
            if (own := architecture.image_processor) is not None:
                image_processor = own.from_pretrained(folder, local_files_only=True)
        if (folder / "generation_config.json").is_file():
            generation = read_json(folder / "generation_config.json")
    shape = VisionLanguageModel(
        name=name,
        path=path,
        folder=folder,
        model=SimpleNamespace(config=config, generation_config=_endings(generation)),
        tokenizer=tokenizer,
        image_processor=image_processor,
        device=torch.device("meta"),
        dtype=torch.float32,
        others=others,
        processor=processor,
        architecture=architecture,
        code=code_fingerprint(folder) if architecture.remote else None,
    )
    if architecture.kind != "llava":
        guard(tokenizer, getattr(processor, "chat_template", None) or tokenizer.chat_template, shape.wordless)
    return shape


def _with_weights(shape: VisionLanguageModel, placed: Placement, *, attention: str) -> VisionLanguageModel:
    """A judge with its weights in their place."""
    folder, name, config, architecture = shape.folder, shape.name, shape.model.config, shape.architecture
    with _quiet(folder), _reading(name, folder, weights=True):
        model, report = architecture.loader.from_pretrained(
            folder,
            config=config,
            dtype=placed.dtype,
            use_safetensors=any(folder.glob("*.safetensors")),
            weights_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported, and refused below with the rest
            local_files_only=True,
            trust_remote_code=architecture.remote,
            **_options(placed, attention, architecture.loader, config),
        )
    _check_weights(report, name, strict=architecture.kind == "llava")
    _check_attention(model.config, name, attention)
    if "device_map" not in placed.options:
        model.to(placed.device)
    _unpack_odd_layers(model)
    model.generation_config = _endings(model.generation_config.to_dict())
    return replace(
        shape,
        model=model.eval(),
        device=input_device(model.get_input_embeddings()),
        dtype=placed.dtype,
        quantization=placed.quantization,
    )


def _endings(generation: dict[str, Any]) -> Any:
    """Of the generation settings what ends an answer and what is no word: how to draw is the engine's to say."""
    tokens = {key: value for key, value in generation.items() if key.endswith("_token_id") or key == "suppress_tokens"}
    return transformers.GenerationConfig(**tokens)


def _token_id(config: Any, kind: str) -> int | None:
    """The vocabulary entry that stands for an image, a video or sound, by the names that configurations use."""
    names = (f"{kind}_token_id", f"{kind}_token_index")
    return next((token for name in names if isinstance(token := getattr(config, name, None), int)), None)


def _options(placed: Placement, attention: str, loader: Any, config: Any) -> dict[str, Any]:
    """The options of `from_pretrained`; attention is transformers' choice where "auto" chose what a model lacks."""
    classes = getattr(loader, "_model_mapping", {})
    chosen = classes[type(config)] if type(config) in classes else loader
    flag = {"sdpa": "_supports_sdpa", "flash_attention_2": "_supports_flash_attn"}.get(placed.attention, "")
    if attention == "auto" and not getattr(chosen, flag, True):
        return {name: value for name, value in placed.options.items() if name != "attn_implementation"}
    return placed.options


def _check_attention(config: Any, name: str, attention: str) -> None:
    """Refuse a model of which a part computes attention otherwise than asked."""
    parts = {"decoder": config.get_text_config(), "vision tower": getattr(config, "vision_config", None)}
    for part, settings in parts.items():
        kind = getattr(settings, "_attn_implementation", None)
        if attention != "auto" and kind not in (None, attention):
            raise ValueError(f'judge {name!r}: its {part} computes attention by "{kind}", not by "{attention}"')


@contextlib.contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """No progress bar for weights that load in a moment: one that flashes by is noise in a notebook."""
    # It says so at every layer that it casts in 8 bits, and that a package for faster CPU kernels is not there.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    progress = transformers.utils.logging
    hide = progress.is_progress_bar_enabled() and sum(file.stat().st_size for file in weight_files(folder)) < 1 << 28
    if hide:
        progress.disable_progress_bar()
    try:
        yield
    finally:
        if hide:
            progress.enable_progress_bar()


@contextlib.contextmanager
def _reading(name: str, place: Path, *, what: str = "", weights: bool = False) -> Iterator[None]:
    """Say plainly what was being read when a library failed on a damaged or hostile file.

    Args:
        place: the file, or the folder.
        what: of the folder is read.
        weights: whether its weights are read: which file is damaged is then found out.
    """
    try:
        yield
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"judge {name!r}: its weights hold more than tensors: reading them could run code, so they were refused and"
            f" nothing in them was run ({str(error).strip().splitlines()[0]}); get them as safetensors"
        ) from error
    except (torch.OutOfMemoryError, ImportError):
        raise
    except (
        *(SafetensorError, StrictDataclassError, OSError, EOFError, RecursionError, RuntimeError),
        *(ArithmeticError, AttributeError, LookupError, TypeError, AssertionError, ValueError),
    ) as error:
        if isinstance(error, ValueError) and str(place) in str(error):
            raise  # ours, or plain already
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
        if weights:
            for file in weight_files(place):
                if damage := _damage(file):
                    raise ValueError(f"judge {name!r}: {file} is damaged ({damage}); download it again") from error
        raise ValueError(f"judge {name!r}: {what or 'the checkpoint'} can't be read from {place} ({reason})") from error


def _damage(file: Path) -> str:
    """What is wrong with a safetensors file; "" for nothing."""
    try:
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as opened:
                opened.keys()
    except (SafetensorError, OSError) as error:
        return str(error)
    return ""


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
        counts = "; ".join(f"{len(keys)} {kind}, such as {keys[0]}" for kind, keys in faults.items() if keys)
        raise ValueError(f"judge {name!r}: the weights do not fit its config.json ({counts})")
    if unused:
        warnings.warn(f"judge {name!r}: {len(unused)} weights are not used, such as {unused[0]}", stacklevel=4)


# A chat model's own processor


def load_processor(folder: Path, config: Any, *, trust_remote_code: bool = False) -> Any:
    """Load a checkpoint's processor: its tokenizer and its PIL-based image preprocessing.

    Video preprocessing is left out: it needs torchvision, and a judge sees no videos.

    Args:
        folder: the checkpoint.
        config: its loaded configuration.
        trust_remote_code: whether a processor may come from code in the checkpoint.

    Raises:
        ValueError: it has no processor, or one that can't be loaded here.
    """
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust_remote_code, "backend": "pil"}
    stored = [read_json(folder / name) for name in NAMES_PROCESSOR if (folder / name).is_file()]
    try:
        if trust_remote_code and any("AutoProcessor" in (content.get("auto_map") or {}) for content in stored):
            return transformers.AutoProcessor.from_pretrained(folder, **options)
        names = [content["processor_class"] for content in stored if content.get("processor_class")]
        kind = processor_class_from_name(names[0]) if names else None
        kind = kind or PROCESSOR_MAPPING.get(type(config), None)
        if kind is None:
            raise ValueError(f"it names no processor that transformers {transformers.__version__} knows")
        return _without_videos(kind).from_pretrained(folder, **options)
    except (ImportError, OSError, TypeError, AttributeError, KeyError, ValueError) as error:
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise ValueError(f"{folder}: the checkpoint's processor can't be loaded ({reason})") from error


def guard(tokenizer: Any, chat_template: Any, ids: Collection[int] = ()) -> None:
    """Make special the added tokens with which the chat template writes a conversation, and those of `ids`.

    Some checkpoints store "<|user|>" and its like as ordinary added tokens, which would match in any text.
    """
    template = str(chat_template or "")
    written = [
        AddedToken(str(entry), special=True, normalized=False)
        for token, entry in tokenizer.added_tokens_decoder.items()
        if not entry.special and (str(entry) in template or token in ids)
    ]
    if written:
        tokenizer.add_tokens(written, special_tokens=True)


def _without_videos(kind: Any) -> Any:
    """A processor class that asks for no video preprocessing."""

    class Processor(kind):
        @classmethod
        def get_attributes(cls) -> list[str]:
            return [name for name in kind.get_attributes() if name != "video_processor"]

    Processor.__name__ = kind.__name__
    return Processor


# Judges stored as adapters on a base


def _unpack_odd_layers(model: Any) -> None:
    """Let 4-bit layers of sizes that bitsandbytes' packed kernel for CPUs does not take compute unpacked."""
    for layer in model.modules():
        if type(layer).__name__ == "Linear4bit" and (layer.out_features % 32 or layer.in_features % 64):
            layer.support_avx512bf16_for_cpu = False


def base_of(name_or_path: str | Path) -> str | None:
    """The base that a folder's adapters were trained on; None for anything else than a folder of adapters."""
    if str(name_or_path) in EMBEDDED or not (file := folder_of(name_or_path) / ADAPTERS).is_file():
        return None
    name = read_json(file).get("base_model_name_or_path")
    if not name:
        raise ValueError(f"judge {str(name_or_path)!r}: its {ADAPTERS} names no base_model_name_or_path; add it")
    if (file.parent / BESIDE).is_file():
        raise ValueError(
            f"judge {str(name_or_path)!r}: its projector was trained beside the adapters and stands in {BESIDE},"
            " which is not read here, and without it the judge would not see; merge both with LLaVA's own"
            " scripts/merge_lora_weights.py and give the merged folder"
        )
    if not (file.parent / ADAPTER_WEIGHTS).is_file():
        raise ValueError(f"judge {str(name_or_path)!r}: its folder has no {ADAPTER_WEIGHTS}; save the adapters so")
    return str(name)


def attach(base: VisionLanguageModel, folder: Path) -> VisionLanguageModel:
    """A base with a folder's adapters in it, not merged.

    Raises:
        ValueError: peft is missing, or the adapters do not fit the base: each that their settings place has its weights
            in the folder, and there are no others.
    """
    try:
        import peft
    except ImportError as error:
        raise ValueError("a judge stored as adapters needs peft: pip install 'vjudge[train]'") from error
    _check_pattern(base.model, read_json(folder / ADAPTERS).get("target_modules"), folder)
    with _reading(base.name, folder, what="the adapters", weights=True):
        with safe_open(folder / ADAPTER_WEIGHTS, framework="pt") as file:
            stored = set(file.keys())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*(missing|unexpected) adapter keys")  # refused below
            wrapped: Any = peft.PeftModel.from_pretrained(base.model, folder, local_files_only=True)
        vocabulary = any("embed_tokens" in key or "lm_head" in key for key in stored)
        places = set(peft.get_peft_model_state_dict(wrapped, save_embedding_layers=vocabulary))
    faults = {"missing": sorted(places - stored), "unexpected": sorted(stored - places)}
    if any(faults.values()):
        counts = "; ".join(f"{len(keys)} {kind}, such as {keys[0]}" for kind, keys in faults.items() if keys)
        raise ValueError(f"the adapters in {folder} do not fit {base.name!r} ({counts})")
    for weight in wrapped.parameters():
        weight.requires_grad_(False)
    return replace(base, path=folder, others=(base.path, *base.others), model=wrapped.base_model.model.eval())


def _check_pattern(model: Any, pattern: Any, folder: Path) -> None:
    """Match module names with an adapter's pattern in another process: Python can't stop one that takes forever."""
    if not isinstance(pattern, str):
        return
    names = "\n".join(name for name, _ in model.named_modules())
    code = "import re, sys; p = re.compile(sys.argv[1]); [p.fullmatch(n) for n in sys.stdin.read().split()]"
    fault = ""
    try:
        re.compile(pattern)
        command = [sys.executable, "-I", "-S", "-c", code, pattern]
        subprocess.run(command, input=names, text=True, capture_output=True, timeout=PATTERN_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        fault = f"is still being matched after {PATTERN_SECONDS:.0f} seconds"
    except (re.error, RecursionError, OverflowError) as error:
        fault = f"is no regular expression ({error})"
    if fault:
        raise ValueError(f"{folder / ADAPTERS}: target_modules = {pattern[:80]!r} {fault}")
