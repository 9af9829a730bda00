"""VisionLanguageModel: a loaded judge model with everything that turns text and pixels into its inputs."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vjudge import checkpoints

UNBOUNDED = 1 << 20  # tokens, for a model without a stated context
STRETCHED = ("linear", "dynamic")  # rotary scalings that multiply the length a model was made for


@dataclass(frozen=True)
class VisionLanguageModel:
    """A loaded judge model with everything that turns text and pixels into its inputs.

    Args:
        name: what the user called it.
        path: the folder its files stand in.
        model: in eval mode, on `device`.
        tokenizer: the checkpoint's own.
        image_processor: PIL-based, so that pixels equal the original preprocessing to the bit; None for a text-only
            judge.
        device, dtype: where and in what precision it computes.
        quantization: None, "8bit" or "4bit".
        others: further folders that its weights and settings came from.
        processor: of a chat model that prepares its inputs by itself; None for LLaVA's families, whose vision is ours,
            and for a text-only judge.
        code: a digest of the checkpoint's own code, where it was asked to run; None otherwise.
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
    processor: Any = None
    code: str | None = None
    folder: Path | None = None  # in the transformers layout, where that is another than `path`

    @property
    def sees_images(self) -> bool:
        """Whether it reads images."""
        return self.image_processor is not None

    @property
    def shares(self) -> bool:
        """Whether rows can share work: it computes from embeddings and positions that are given to it."""
        taken = inspect.signature(self.model.forward).parameters
        given = {"inputs_embeds", "attention_mask", "position_ids", "past_key_values", "logits_to_keep"}
        return self.processor is None and given <= taken.keys() and not getattr(self.model, "_is_stateful", False)

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
        return stated if ours and stated < checkpoints.NO_LIMIT else self.context_length

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
        found = {_token_id(self.model.config, kind) for kind in ("image", "video", "audio")}
        return tuple(sorted(token for token in found if token is not None))

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


def _token_id(config: Any, kind: str) -> int | None:
    """The vocabulary entry that stands for an image, a video or sound, by the names that configurations use."""
    for name in (f"{kind}_token_id", f"{kind}_token_index"):
        if isinstance(found := getattr(config, name, None), int):
            return found
    return None
