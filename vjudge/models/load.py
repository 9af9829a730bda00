"""Load a judge model, whole or without its weights; no code from a checkpoint is run."""

from __future__ import annotations

import functools
import inspect
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from tokenizers import AddedToken

# Without torchvision, transformers 5.17 has neither under its short name.
from transformers.models.auto.image_processing_auto import AutoImageProcessor
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from vjudge.models.files import ADAPTER_FILE, fingerprint, library_errors, read_settings
from vjudge.models.find import NO_HUB, base_of, find_checkpoint, folder_of, locate
from vjudge.models.llava import converted
from vjudge.models.original import Original
from vjudge.models.placement import Placement, check_fit, place
from vjudge.models.value_head import load_value_head

BUFFERS = ("position_ids", "inv_freq")  # ends of names: weights that newer classes compute instead
UNBOUNDED = 1 << 20  # tokens of context where a configuration names no limit


@dataclass(frozen=True)
class VisionLanguageModel:
    """A loaded judge model with everything that turns text and pixels into its inputs."""

    name: str  # as the user gave it
    path: Path  # the folder of the checkpoint
    folder: Path  # the folder that transformers read: `path`, or what that was converted to
    kind: str  # "llava" (vjudge prepares its images), "chat" (its processor does) or "text" (none)
    model: Any  # in eval mode, on `device`
    tokenizer: Any
    image_processor: Any = None  # based on PIL, equal to the original to the bit; None for "text"
    processor: Any = None  # of a chat model
    device: torch.device = torch.device("meta")
    dtype: torch.dtype = torch.float32
    quantization: str | None = None  # "8bit" or "4bit"
    sources: tuple[Path, ...] = ()  # further folders that its weights and settings came from
    value_head: torch.nn.Linear | None = None  # hidden size -> 1, float32: it writes no answers
    checkpoint: str = ""  # the fingerprint of the files whose weights are loaded

    @property
    def sees_images(self) -> bool:
        """Whether it takes images."""
        return self.image_processor is not None

    @property
    def tiled(self) -> bool:
        """Whether it is a LLaVA-OneVision, in which a larger image takes more tokens."""
        return bool(self.model.config.model_type == "llava_onevision")

    @property
    def context_length(self) -> int:
        """The most tokens, image tokens included, that a prompt and its answer have together."""
        config = self.model.config.get_text_config()
        return int(getattr(config, "max_position_embeddings", UNBOUNDED))

    @property
    def tokens_per_image(self) -> int:
        """The number of tokens of one image (of a tiled model, a padded one); 0 if it varies."""
        if self.kind != "llava":
            return 0
        vision = self.model.config.vision_config
        patches = int((vision.image_size // vision.patch_size) ** 2)
        # one more for the class token of LLaVA-1.5's tower, or for OneVision's newline
        has_class_token = self.model.config.vision_feature_select_strategy == "full"
        return patches + int(self.tiled or has_class_token)

    @property
    def image_token_id(self) -> int | None:
        """The vocabulary entry whose places take image features; None for a text-only judge."""
        if not self.sees_images:
            return None
        return getattr(self.model.config, "image_token_id", None)

    @property
    def image_token(self) -> str:
        """The text that stands for an image in the chat template; "" for a text-only judge."""
        if hasattr(self.processor, "image_token"):
            return str(self.processor.image_token)
        if self.image_token_id is None:
            return ""
        return str(self.tokenizer.convert_ids_to_tokens(self.image_token_id))

    @functools.cached_property
    def non_text_token_ids(self) -> tuple[int, ...]:
        """The entries that no answer may hold: places of images, videos, sound; spare entries."""
        config = self.model.config
        tokens: Any = set(range(len(self.tokenizer), config.get_text_config().vocab_size))
        for kind in ("image", "video", "audio"):
            tokens.add(getattr(config, f"{kind}_token_id", None))
        return tuple(sorted(tokens - {None}))

    def fingerprint(self) -> str:
        """Return the fingerprint of its files as they are now; compare with `checkpoint`."""
        return fingerprint(self.path, *self.sources)

    def mask_non_text(self, logits: torch.Tensor) -> None:
        """Set `non_text_token_ids` to -inf, in place, in logits (rows, vocabulary)."""
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
        name_or_path: a short name, a folder or a hub id, as for `load_judge`.
        revision: a branch, tag or commit of a hub id.
        check_memory: whether to refuse weights that do not fit into the free memory.
        placing: device, dtype, quantization, device_map and attention, see `place`.

    Raises:
        ValueError: nothing of that name, an unsupported or damaged checkpoint, weights that do not
            fit its config.json, or that do not fit into memory.
    """
    base = base_of(name_or_path)  # None: this is no folder of adapters
    weights_from = base or name_or_path  # adapters alone are no whole model

    # 1) where it goes, and whether it fits there, before any weight is fetched
    placed = place(**placing)
    if check_memory:
        check_fit(find_checkpoint(weights_from, revision=revision), placed)

    # 2) settings, tokenizer and processors (`shape`: the model without weights), then the weights
    shape = outline(weights_from, revision=revision)
    checkpoint = shape.fingerprint()  # before the weights are read: the files may change later
    with library_errors(shape.name, shape.folder):
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
    if base is not None:
        loaded = _with_adapters(loaded, name_or_path)
        _check_unchanged(loaded)
    return loaded


def _check_unchanged(loaded: VisionLanguageModel) -> None:
    """Raise ValueError if a checkpoint's files changed while they were read.

    Which of the two contents was loaded would be unknown.
    """
    if loaded.fingerprint() != loaded.checkpoint:
        raise ValueError(
            f"judge {loaded.name!r}: its files changed while they were read; load it again"
        )


def outline(name_or_path: str | Path, *, revision: str | None = None) -> VisionLanguageModel:
    """Load a judge without its weights, for an engine that reads them itself.

    Its `model` holds nothing but `config` and `generation_config`. Arguments and errors are those
    of `load`.
    """
    name = str(name_or_path)
    folder = path = locate(name_or_path, revision=revision)
    kind = find_checkpoint(path).kind
    sources: tuple[Path, ...] = ()
    processor = image_processor = None
    with library_errors(name, path):
        # 1) an original checkpoint is read from what it is converted to
        if kind == "original":
            original = Original(path)
            folder = converted(original)
            sources = original.origins[1:]
            kind = "llava"
        # 2) configuration, tokenizer and processors
        config = transformers.AutoConfig.from_pretrained(folder, **NO_HUB)
        if kind == "chat":
            processor = load_processor(folder, config)
            tokenizer = processor.tokenizer
            image_processor = processor.image_processor
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **NO_HUB)
        if kind == "llava":
            image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil", **NO_HUB)
        # 3) of the stored generation settings, only the special tokens and the tokens that no
        # answer may hold: sampling parameters are the engine's
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


def load_processor(folder: Path, config: Any) -> Any:
    """Load a chat model's own processor, based on PIL, without its part for videos.

    The part for videos needs torchvision, and vjudge shows no videos.

    Args:
        folder: the folder of the checkpoint.
        config: its configuration, whose class decides the processor's.
    """
    # 1) a subclass of the processor's class, without the attribute for videos
    processor_class: Any = PROCESSOR_MAPPING[type(config)]

    class Processor(processor_class):
        @classmethod
        def get_attributes(cls) -> list[str]:
            """Return the names of the parts that are loaded."""
            return [name for name in processor_class.get_attributes() if name != "video_processor"]

    # transformers compares the name of the class with the stored one
    Processor.__name__ = processor_class.__name__
    # 2) SmolVLM's constructor needs an argument for videos even so
    options: dict[str, Any] = dict(NO_HUB)
    if "video_processor" in inspect.signature(processor_class.__init__).parameters:
        options["video_processor"] = None
    return Processor.from_pretrained(folder, backend="pil", **options)


def _make_special(shape: VisionLanguageModel) -> None:
    """Make the tokens of images and of the chat template special tokens of the tokenizer.

    `Encoder` spells special tokens out where a text from data holds them. An ordinary added token
    would be read as that token there.
    """
    tokenizer = shape.tokenizer
    template = getattr(shape.processor, "chat_template", None) or tokenizer.chat_template
    ordinary = []
    for token, entry in tokenizer.added_tokens_decoder.items():
        is_control = str(entry) in str(template) or token in shape.non_text_token_ids
        if is_control and not entry.special:
            ordinary.append(AddedToken(str(entry), special=True, normalized=False))
    tokenizer.add_tokens(ordinary, special_tokens=True)


def _network(shape: VisionLanguageModel, placed: Placement) -> Any:
    """Build the network with its weights on its device, in eval mode.

    Args:
        shape: the model without its weights.
        placed: where and how it computes.

    Returns:
        transformers' model.

    Raises:
        ValueError: the weights do not fit config.json.
    """
    auto_class: Any = transformers.AutoModelForImageTextToText
    if shape.kind == "text":
        auto_class = transformers.AutoModelForCausalLM
    model, report = auto_class.from_pretrained(
        shape.folder,
        config=shape.model.config,
        dtype=placed.dtype,
        output_loading_info=True,
        **NO_HUB,
        **placed.options,
    )
    # transformers fills a weight that is missing with random numbers, and only warns of it. In the
    # LLaVA families, a weight that has no place in the network is refused, too.
    misfits = set(report["missing_keys"])
    if shape.kind == "llava":
        misfits.update(key for key in report["unexpected_keys"] if not key.endswith(BUFFERS))
    if misfits:
        raise ValueError(
            f"judge {shape.name!r}: the weights do not fit its config.json ({len(misfits)} missing"
            f" or unexpected, such as {min(misfits)})"
        )
    model.generation_config = shape.model.generation_config
    return model.eval()


def _with_adapters(base: VisionLanguageModel, name_or_path: str | Path) -> VisionLanguageModel:
    """Return a loaded base with the adapters of a folder put on it, unmerged.

    Args:
        base: the model that the adapters were trained on; its network is changed.
        name_or_path: the folder of the adapters.

    Raises:
        ValueError: the adapters do not fit the base, or can't be read.
    """
    folder = folder_of(name_or_path)
    sources = (base.path, *base.sources)
    checkpoint = fingerprint(folder, *sources)  # before the weights are read
    with library_errors(str(folder), folder), warnings.catch_warnings():
        import peft

        # 1) peft only warns of an adapter that the configuration names and the file lacks; here
        # that is an error
        warnings.filterwarnings("error", message=".*missing adapter keys")
        wrapped: Any = peft.PeftModel.from_pretrained(base.model, folder, local_files_only=True)
        # 2) peft passes over an adapter in the file that the configuration does not name; here that
        # is an error, too
        stored = peft.load_peft_weights(folder, device="cpu", local_files_only=True)
        unused = set(stored) - set(peft.get_peft_model_state_dict(wrapped))
        if unused:
            raise ValueError(
                f"judge {str(folder)!r}: {len(unused)} of {len(stored)} adapter weights have no"
                f" module in the base by its {ADAPTER_FILE}, such as {min(unused)}; correct its"
                " target_modules"
            )
    wrapped.requires_grad_(False)
    return replace(
        base,
        name=str(name_or_path),
        path=folder,
        model=wrapped.base_model.model.eval(),
        sources=sources,
        checkpoint=checkpoint,
    )
