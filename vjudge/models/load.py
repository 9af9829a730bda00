"""Load a judge model, whole or its settings alone; no code from a checkpoint is run."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from safetensors import safe_open
from tokenizers import AddedToken
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING, processor_class_from_name
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)

from vjudge.models.find import (
    ADAPTERS,
    SUPPORTED,
    find,
    folder_of,
    locate,
    read_json,
    reason_of,
    weight_files,
)
from vjudge.models.llava import converted
from vjudge.models.original import NO_LIMIT, Original
from vjudge.models.placement import Placement, check_fit, input_device, place
from vjudge.models.value_head import load_value_head

IMAGE_PROCESSORS: dict[str, Any] = {
    "llava": CLIPImageProcessorPil,
    "llava_onevision": LlavaOnevisionImageProcessorPil,
}
BUFFERS = ("position_ids", "inv_freq")  # older checkpoints store these; newer classes compute them
UNBOUNDED = 1 << 20  # tokens, for a model without a stated context
STRETCHED = ("linear", "dynamic")  # rotary scalings that multiply the length a model was made for
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
ADAPTER_WEIGHTS = "adapter_model.safetensors"
FULL_WEIGHTS = "non_lora_trainables.bin"  # of LLaVA's own adapters: what was trained in full
QUICK = 1 << 28  # bytes of weights that load in a moment: no progress bar
LOCAL = {"local_files_only": True, "trust_remote_code": False}


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
    others: tuple[Path, ...] = ()  # further folders that its weights and settings came from
    value_head: torch.nn.Linear | None = None  # hidden size -> 1, float32: it writes no answers

    @property
    def sees_images(self) -> bool:
        return self.image_processor is not None

    @property
    def attention(self) -> str:
        """How the decoder computes attention: "sdpa", "eager" or "flash_attention_2"."""
        return str(self.model.config.get_text_config()._attn_implementation)

    @property
    def tiled(self) -> bool:
        """Whether it is a LLaVA-OneVision, which takes more places for a larger image."""
        return bool(self.model.config.model_type == "llava_onevision")

    @property
    def context_length(self) -> int:
        """The most tokens, image tokens included, that a prompt and its answer have together."""
        config = self.model.config.get_text_config()
        length = getattr(config, "max_position_embeddings", UNBOUNDED)
        rope = getattr(config, "rope_parameters", None)
        if rope and rope.get("rope_type") in STRETCHED:
            length *= rope["factor"]
        return int(length)

    @property
    def prompt_limit(self) -> int:
        """The most tokens of a prompt: for LLaVA the tokenizer's maximum, as originally."""
        stated = int(self.tokenizer.model_max_length)
        if self.kind == "llava" and stated < NO_LIMIT:
            return stated
        return self.context_length

    @property
    def tokens_per_image(self) -> int:
        """Positions that one image takes (of a tiled model a padded one); 0 where that varies."""
        if self.kind != "llava":
            return 0
        vision = self.model.config.vision_config
        patches = int((vision.image_size // vision.patch_size) ** 2)
        if self.tiled or self.model.config.vision_feature_select_strategy == "full":
            return patches + 1
        return patches

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
    def vocabulary_size(self) -> int:
        """Leading entries of the vocabulary that are words: LLaVA's image token was put last."""
        entries = len(self.tokenizer)
        if self.image_token_id is None or self.kind != "llava":
            return entries
        added = self.tokenizer.added_tokens_decoder
        for token in range(self.image_token_id, entries):
            if token not in added or not added[token].special:
                return entries
        return self.image_token_id

    @functools.cached_property
    def non_text_token_ids(self) -> tuple[int, ...]:
        """Vocabulary entries that stand for images, videos and sound: no words of an answer."""
        names = [f"{kind}_token_id" for kind in ("image", "video", "audio")]
        tokens = {getattr(self.model.config, name, None) for name in names}
        return tuple(sorted(token for token in tokens if token is not None))

    def mask_non_text(self, logits: torch.Tensor) -> None:
        """Set to -inf, in place, what is no word in logits of shape (rows, vocabulary)."""
        logits[:, list(self.non_text_token_ids)] = -torch.inf
        logits[:, self.vocabulary_size :] = -torch.inf  # rows beyond the vocabulary


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
    name = str(name_or_path)
    base = base_of(name_or_path)
    if base is not None and base_of(base) is not None:
        raise ValueError(
            f"judge {name!r}: its base {base!r} is a folder of adapters itself; merge that first"
        )
    target = name_or_path if base is None else base

    # 1) where it goes, and whether it fits there, before any weight is fetched
    placed = place(**placing)
    if check_memory:
        check_fit(target, find(target, revision=revision), placed, revision=revision)

    # 2) settings, tokenizer and processors, then the weights
    shape = outline(target, revision=revision)
    with _reading(shape.name, shape.folder):
        model = _network(shape, placed)
        width = model.config.get_text_config().hidden_size
        head = load_value_head(shape.folder, width)
    if head is not None:
        head = head.to(input_device(model.get_output_embeddings()))
    loaded = replace(
        shape,
        model=model,
        device=input_device(model.get_input_embeddings()),
        dtype=placed.dtype,
        quantization=placed.quantization,
        value_head=head,
    )

    # 3) adapters on top
    if base is None:
        return loaded
    return replace(_with_adapters(loaded, folder_of(name_or_path)), name=name)


def outline(name_or_path: str | Path, *, revision: str | None = None) -> VisionLanguageModel:
    """A judge whose `model` has settings alone, for an engine that runs it by itself."""
    name = str(name_or_path)
    path = locate(name_or_path, revision=revision)
    kind = find(path).kind
    folder = path
    others: tuple[Path, ...] = ()
    processor = None
    image_processor = None
    with _reading(name, path):
        if kind == "original":
            original = Original(path, name=name)
            folder, others = converted(original), original.origins[1:]
            kind = "llava"
        config = transformers.AutoConfig.from_pretrained(folder, **LOCAL)
        if config.is_encoder_decoder:
            raise ValueError(
                f"judge {name!r} is an encoder-decoder ({config.model_type}); supported is"
                f" {SUPPORTED}"
            )
        if kind == "chat":
            processor = load_processor(folder, config)
            tokenizer, image_processor = processor.tokenizer, processor.image_processor
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
        if kind == "llava":
            images = IMAGE_PROCESSORS[config.model_type]
            image_processor = images.from_pretrained(folder, local_files_only=True)
        generation = _generation_config(folder, config)
    shape = VisionLanguageModel(
        name=name,
        path=path,
        folder=folder,
        kind=kind,
        model=SimpleNamespace(config=config, generation_config=generation),
        tokenizer=tokenizer,
        image_processor=image_processor,
        processor=processor,
        others=others,
    )
    if kind != "llava":
        _make_special(shape)
    return shape


def _generation_config(folder: Path, config: Any) -> Any:
    """What ends an answer and what is no word; how to draw is the engine's to say."""
    file = folder / "generation_config.json"
    if file.is_file():
        stored = read_json(file)
    else:
        stored = transformers.GenerationConfig.from_model_config(config).to_dict()
    tokens = {}
    for key, value in stored.items():
        if key.endswith("_token_id") or key == "suppress_tokens":
            tokens[key] = value
    return transformers.GenerationConfig(**tokens)


def _make_special(shape: VisionLanguageModel) -> None:
    """Make a chat template's added tokens special: ordinary ones would match in any text."""
    tokenizer = shape.tokenizer
    template = str(tokenizer.chat_template)
    if getattr(shape.processor, "chat_template", None):
        template = str(shape.processor.chat_template)
    marks = []
    for token, entry in tokenizer.added_tokens_decoder.items():
        used = str(entry) in template or token in shape.non_text_token_ids
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
        use_safetensors=any(shape.folder.glob("*.safetensors")),
        weights_only=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # reported, and refused below with the rest
        **LOCAL,
        **placed.options,
    )
    unused = {key for key in report["unexpected_keys"] if not key.endswith(BUFFERS)}
    if unused and shape.kind != "llava":
        warnings.warn(
            f"judge {shape.name!r}: {len(unused)} weights are not used, such as {min(unused)}",
            stacklevel=4,
        )
        unused = set()
    _check_keys(
        f"judge {shape.name!r}: the weights do not fit its config.json",
        missing=report["missing_keys"],
        unexpected=unused,
        mismatched={key[0] for key in report["mismatched_keys"]},
    )
    if "device_map" not in placed.options:
        model.to(placed.device)
    for layer in model.modules():
        # bitsandbytes' packed kernel for CPUs takes no 4-bit layers of other sizes
        if type(layer).__name__ == "Linear4bit":
            if layer.out_features % 32 or layer.in_features % 64:
                layer.support_avx512bf16_for_cpu = False
    model.generation_config = shape.model.generation_config
    return model.eval()


def _check_keys(what: str, **faults: Collection[str]) -> None:
    counts = []
    for kind, keys in faults.items():
        if keys:
            counts.append(f"{len(keys)} {kind}, such as {min(keys)}")
    if counts:
        raise ValueError(f"{what} ({'; '.join(counts)})")


@contextlib.contextmanager
def _reading(name: str, folder: Path) -> Iterator[None]:
    """Say what was being read when a library failed; show no bar for weights of a moment."""
    # bitsandbytes speaks of every layer that it casts in 8 bits.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    bars = transformers.utils.logging
    size = sum(file.stat().st_size for file in weight_files(folder))
    hide = bars.is_progress_bar_enabled() and size < QUICK
    if hide:
        bars.disable_progress_bar()
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except ImportError as error:
        raise ValueError(f"judge {name!r} needs a package that is missing: {error}") from error
    except Exception as error:  # of any kind: libraries don't check a file before they use it
        plain = repr(name) in str(error) or str(folder) in str(error)
        if plain and isinstance(error, ValueError):
            raise
        reason = reason_of(error)
        raise ValueError(f"judge {name!r} can't be read from {folder} ({reason})") from error
    finally:
        if hide:
            bars.enable_progress_bar()


def load_processor(folder: Path, config: Any) -> Any:
    """A chat model's own processor, PIL-based, without videos, which need torchvision."""
    kind: Any = PROCESSOR_MAPPING.get(type(config), None)
    for file in PROCESSOR_FILES:
        stored = read_json(folder / file) if (folder / file).is_file() else {}
        if stored.get("processor_class"):
            kind = processor_class_from_name(stored["processor_class"])
            break
    if kind is None:
        version = transformers.__version__
        raise ValueError(f"{folder} names no processor that transformers {version} knows")

    class Processor(kind):
        @classmethod
        def get_attributes(cls) -> list[str]:
            return [name for name in kind.get_attributes() if name != "video_processor"]

    Processor.__name__ = kind.__name__
    options: dict[str, Any] = dict(LOCAL)
    video = inspect.signature(kind.__init__).parameters.get("video_processor")
    if video is not None and video.default is inspect.Parameter.empty:  # SmolVLM's
        options["video_processor"] = None
    return Processor.from_pretrained(folder, backend="pil", **options)


def base_of(name_or_path: str | Path) -> str | None:
    """The base of a folder of adapters; None for anything else."""
    file = folder_of(name_or_path) / ADAPTERS
    if not file.is_file():
        return None
    name = str(name_or_path)
    if (file.parent / FULL_WEIGHTS).is_file():
        raise ValueError(
            f"judge {name!r}: its projector stands in {FULL_WEIGHTS}, not read here: merge all by"
            " LLaVA's own scripts/merge_lora_weights.py"
        )
    base = read_json(file).get("base_model_name_or_path")
    if not base:
        raise ValueError(f"judge {name!r}: its {ADAPTERS} names no base_model_name_or_path; add it")
    return str(base)


def _with_adapters(base: VisionLanguageModel, folder: Path) -> VisionLanguageModel:
    """A base with a folder's adapters in it, not merged; ValueError where they do not fit."""
    try:
        import peft
    except ImportError as error:
        raise ValueError(
            "a judge stored as adapters needs peft: pip install 'vjudge[train]'"
        ) from error
    with _reading(str(folder), folder), warnings.catch_warnings():
        with safe_open(folder / ADAPTER_WEIGHTS, framework="pt") as file:
            stored = set(file.keys())
        # Missing and unexpected keys are refused below.
        warnings.filterwarnings("ignore", message=".*(missing|unexpected) adapter keys")
        wrapped: Any = peft.PeftModel.from_pretrained(base.model, folder, local_files_only=True)
        vocabulary = any("embed_tokens" in key or "lm_head" in key for key in stored)
        state = peft.get_peft_model_state_dict(wrapped, save_embedding_layers=vocabulary)
    _check_keys(
        f"the adapters in {folder} do not fit {base.name!r}",
        missing=set(state) - stored,
        unexpected=stored - set(state),
    )
    wrapped.requires_grad_(False)
    model = wrapped.base_model.model.eval()
    return replace(base, path=folder, others=(base.path, *base.others), model=model)
