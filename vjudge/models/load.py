"""Load a judge model, whole or its settings alone; no code from a checkpoint is run."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from tokenizers import AddedToken

# Without torchvision, transformers 5.17 has no such class under its short name.
from transformers.models.auto.image_processing_auto import AutoImageProcessor
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from vjudge.models.find import (
    ADAPTER_FILE,
    find_checkpoint,
    fingerprint,
    folder_of,
    locate,
    read_settings,
    reason_of,
)
from vjudge.models.llava import converted
from vjudge.models.original import Original
from vjudge.models.placement import Placement, check_fit, place
from vjudge.models.value_head import load_value_head

BUFFERS = ("position_ids", "inv_freq")  # older checkpoints store these; newer classes compute them
UNBOUNDED = 1 << 20  # tokens, for a model without a stated context
NO_HUB = {"local_files_only": True, "trust_remote_code": False}


@dataclass(frozen=True)
class VisionLanguageModel:
    """A loaded judge model with everything that turns text and pixels into its inputs."""

    name: str  # what the user called it
    path: Path  # the folder that it came from
    folder: Path  # the transformers folder it was read from: `path`, or what that was converted to
    kind: str  # "llava" (vjudge prepares its images), "chat" (its processor does) or "text" (none)
    model: Any  # in eval mode, on `device`
    tokenizer: Any
    image_processor: Any = None  # PIL-based, equal to the original to the bit; None for "text"
    processor: Any = None  # of a chat model
    device: torch.device = torch.device("meta")
    dtype: torch.dtype = torch.float32
    quantization: str | None = None  # "8bit" or "4bit"
    sources: tuple[Path, ...] = ()  # further folders that its weights and settings came from
    value_head: torch.nn.Linear | None = None  # hidden size -> 1, float32: it writes no answers
    checkpoint: str = ""  # the fingerprint of the files whose weights are loaded

    @property
    def sees_images(self) -> bool:
        return self.image_processor is not None

    @property
    def tiled(self) -> bool:
        """Whether it is a LLaVA-OneVision, which takes more places for a larger image."""
        return bool(self.model.config.model_type == "llava_onevision")

    @property
    def context_length(self) -> int:
        """The most tokens, image tokens included, that a prompt and its answer have together."""
        config = self.model.config.get_text_config()
        return int(getattr(config, "max_position_embeddings", UNBOUNDED))

    @property
    def tokens_per_image(self) -> int:
        """Positions that one image takes (of a tiled model a padded one); 0 where that varies."""
        if self.kind != "llava":
            return 0
        vision = self.model.config.vision_config
        patches = int((vision.image_size // vision.patch_size) ** 2)
        has_class_token = self.model.config.vision_feature_select_strategy == "full"
        return patches + int(self.tiled or has_class_token)

    @property
    def image_token_id(self) -> int | None:
        """The vocabulary entry where image features go; None for a text-only judge."""
        if not self.sees_images:
            return None
        return getattr(self.model.config, "image_token_id", None)

    @property
    def image_token(self) -> str:
        """What stands for an image in its chat template; "" for a text-only judge."""
        if hasattr(self.processor, "image_token"):
            return str(self.processor.image_token)
        if self.image_token_id is None:
            return ""
        return str(self.tokenizer.convert_ids_to_tokens(self.image_token_id))

    @functools.cached_property
    def non_text_token_ids(self) -> tuple[int, ...]:
        """What is no word of an answer: places of images, videos and sound, and spare rows."""
        config = self.model.config
        tokens: Any = set(range(len(self.tokenizer), config.get_text_config().vocab_size))
        for kind in ("image", "video", "audio"):
            tokens.add(getattr(config, f"{kind}_token_id", None))
        return tuple(sorted(tokens - {None}))

    def fingerprint(self) -> str:
        """The fingerprint of its files as they are now; `checkpoint` is that of what was loaded."""
        return fingerprint(self.path, *self.sources)

    def mask_non_text(self, logits: torch.Tensor) -> None:
        """Set to -inf, in place, what is no word in logits of shape (rows, vocabulary)."""
        logits[:, list(self.non_text_token_ids)] = -torch.inf


def load(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    check_memory: bool = True,
    **placing: Any,
) -> VisionLanguageModel:
    """Load a judge model for inference.

    An original LLaVA checkpoint is first written in the transformers layout, once; adapters are
    loaded with their base, unmerged; a value head is loaded with its base.

    Args:
        name_or_path, revision, check_memory: as for `load_judge`.
        placing: device, dtype, quantization, device_map and attention, see `place`.

    Raises:
        ValueError: nothing of that name, an unsupported or damaged checkpoint, weights that do not
            fit its config.json, or that do not fit into memory.
    """
    base = base_of(name_or_path)
    target = base or name_or_path

    # 1) where it goes, and whether it fits there, before any weight is fetched
    placed = place(**placing)
    if check_memory:
        check_fit(find_checkpoint(target, revision=revision), placed)

    # 2) settings, tokenizer and processors, then the weights
    shape = outline(target, revision=revision)
    checkpoint = shape.fingerprint()  # now: what stands there when answers come may be others
    with _reading(shape.name, shape.folder):
        model = _network(shape, placed)
        hidden_size = model.config.get_text_config().hidden_size
        head = load_value_head(shape.folder, hidden_size, placed.device)
    loaded = replace(
        shape,
        model=model,
        device=placed.device,
        dtype=placed.dtype,
        quantization=placed.quantization,
        value_head=head,
        checkpoint=checkpoint,
    )

    _check_unchanged(loaded)

    # 3) adapters on top
    if base is None:
        return loaded
    path = folder_of(name_or_path)
    adapted = replace(
        loaded, name=str(name_or_path), path=path, sources=(loaded.path, *loaded.sources)
    )
    adapted = _with_adapters(replace(adapted, checkpoint=adapted.fingerprint()))
    _check_unchanged(adapted)
    return adapted


def _check_unchanged(loaded: VisionLanguageModel) -> None:
    """Refuse weights that were written while they were read: nothing says which are loaded."""
    if loaded.fingerprint() != loaded.checkpoint:
        raise ValueError(
            f"judge {loaded.name!r}: its files changed while they were read; load it again"
        )


def outline(name_or_path: str | Path, *, revision: str | None = None) -> VisionLanguageModel:
    """A judge whose `model` has settings alone, for an engine that runs it by itself."""
    name = str(name_or_path)
    folder = path = locate(name_or_path, revision=revision)
    kind = find_checkpoint(path).kind
    sources: tuple[Path, ...] = ()
    processor = image_processor = None
    with _reading(name, path):
        if kind == "original":
            original = Original(path)
            folder, sources = converted(original), original.origins[1:]
            kind = "llava"
        config = transformers.AutoConfig.from_pretrained(folder, **NO_HUB)
        if kind == "chat":
            processor = load_processor(folder, config)
            tokenizer, image_processor = processor.tokenizer, processor.image_processor
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **NO_HUB)
        if kind == "llava":
            image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil", **NO_HUB)
        # what ends an answer and what is no word; how to draw is the engine's to say
        file = folder / "generation_config.json"
        stored = read_settings(file) if file.is_file() else {}
        names = ("bos_token_id", "eos_token_id", "pad_token_id", "suppress_tokens")
        generation = transformers.GenerationConfig(**{name: stored.get(name) for name in names})
    shape = VisionLanguageModel(
        name=name,
        path=path,
        folder=folder,
        kind=kind,
        model=SimpleNamespace(config=config, generation_config=generation),
        tokenizer=tokenizer,
        image_processor=image_processor,
        processor=processor,
        sources=sources,
    )
    _make_special(shape)
    return shape


def _make_special(shape: VisionLanguageModel) -> None:
    """Make image and chat tokens special: ordinary added ones would match in any text."""
    tokenizer = shape.tokenizer
    template = getattr(shape.processor, "chat_template", None) or tokenizer.chat_template
    marks = []
    for token, entry in tokenizer.added_tokens_decoder.items():
        used = str(entry) in str(template) or token in shape.non_text_token_ids
        if used and not entry.special:
            marks.append(AddedToken(str(entry), special=True, normalized=False))
    tokenizer.add_tokens(marks, special_tokens=True)


def _network(shape: VisionLanguageModel, placed: Placement) -> Any:
    """The network with its weights, placed; ValueError where they do not fit its config.json."""
    auto: Any = transformers.AutoModelForImageTextToText
    if shape.kind == "text":
        auto = transformers.AutoModelForCausalLM
    model, report = auto.from_pretrained(
        shape.folder,
        config=shape.model.config,
        dtype=placed.dtype,
        output_loading_info=True,
        **NO_HUB,
        **placed.options,
    )
    wrong = set(report["missing_keys"])
    if shape.kind == "llava":
        wrong.update(key for key in report["unexpected_keys"] if not key.endswith(BUFFERS))
    if wrong:
        raise ValueError(
            f"judge {shape.name!r}: the weights do not fit its config.json ({len(wrong)} missing or"
            f" unexpected, such as {min(wrong)})"
        )
    model.generation_config = shape.model.generation_config
    return model.eval()


@contextlib.contextmanager
def _reading(name: str, folder: Path) -> Iterator[None]:
    """Say what was being read when a library failed; show no bar."""
    # bitsandbytes speaks of every layer that it casts in 8 bits.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        with without_bars():
            yield
    except ImportError as error:
        raise ValueError(f"judge {name!r} needs a package that is missing: {error}") from error
    except Exception as error:  # of any kind: libraries don't check a file before they use it
        plain = repr(name) in str(error) or str(folder) in str(error)
        if plain and isinstance(error, ValueError):
            raise
        reason = reason_of(error)
        raise ValueError(f"judge {name!r} can't be read from {folder} ({reason})") from error


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Show none of transformers' progress bars, which a notebook keeps as red lines."""
    bars = transformers.utils.logging
    enabled = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            bars.enable_progress_bar()


def load_processor(folder: Path, config: Any) -> Any:
    """A chat model's own processor, PIL-based, without videos, which need torchvision."""
    kind: Any = PROCESSOR_MAPPING[type(config)]

    class Processor(kind):
        @classmethod
        def get_attributes(cls) -> list[str]:
            return [name for name in kind.get_attributes() if name != "video_processor"]

    Processor.__name__ = kind.__name__
    options: dict[str, Any] = dict(NO_HUB)
    if "video_processor" in inspect.signature(kind.__init__).parameters:  # SmolVLM's needs one
        options["video_processor"] = None
    return Processor.from_pretrained(folder, backend="pil", **options)


def base_of(name_or_path: str | Path) -> str | None:
    """The base of a folder of adapters; None for anything else."""
    file = folder_of(name_or_path) / ADAPTER_FILE
    if not file.is_file():
        return None
    return str(read_settings(file)["base_model_name_or_path"])


def _with_adapters(base: VisionLanguageModel) -> VisionLanguageModel:
    """A base with the adapters of its `path` in it, unmerged; ValueError where they do not fit."""
    folder = base.path
    with _reading(str(folder), folder), warnings.catch_warnings():
        import peft

        warnings.filterwarnings("error", message=".*missing adapter keys")
        wrapped: Any = peft.PeftModel.from_pretrained(base.model, folder, local_files_only=True)
        # peft passes over weights for modules that target_modules does not name
        stored = peft.load_peft_weights(folder, device="cpu", local_files_only=True)
        unused = set(stored) - set(peft.get_peft_model_state_dict(wrapped))
        if unused:
            raise ValueError(
                f"judge {str(folder)!r}: {len(unused)} of {len(stored)} adapter weights have no"
                f" module in the base by its {ADAPTER_FILE}, such as {min(unused)}; correct its"
                " target_modules"
            )
    wrapped.requires_grad_(False)
    return replace(base, model=wrapped.base_model.model.eval())
