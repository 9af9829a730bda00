"""One pass over a prompt and a greedy answer to it, for research and for comparison with the original code."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.utils.generic import ModelOutput

from vjudge.engines.cache import growing_cache
from vjudge.engines.encoding import Encoder
from vjudge.engines.vision import vision_of
from vjudge.images import open_image
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Prompt

IMAGE_INDEX = -200  # how the original counts an image in a prompt


@dataclass
class Forward(ModelOutput):
    """What one pass over a prompt computed, on the CPU.

    Args:
        input_ids: (ids,) int64, one -200 for each image, as the original's `tokenizer_image_token` gives them.
        pixel_values: (tiles, 3, side, side) float32, the tiles of all images in order; None without images.
        image_features: (places, hidden) after the projector, as inserted into the prompt: for LLaVA-OneVision the whole
            image, then its tiles without margins, a newline after each row; None without images.
        logits: (positions, vocabulary) float32 over the original's vocabulary, images expanded in place.
        tiles_per_image: how many of the tiles belong to each image.
    """

    input_ids: torch.Tensor | None = None
    pixel_values: torch.Tensor | None = None
    image_features: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    tiles_per_image: tuple[int, ...] | None = None


@torch.no_grad()  # not inference mode, whose tensors can take no part in later work
def forward(
    model: VisionLanguageModel, encoder: Encoder, prompt: Prompt, images: Sequence[Any], mode: str | None
) -> Forward:
    """One pass; arguments and errors as for `TorchEngine.forward`."""
    tiles, features, inputs = _prepare(model, encoder, prompt, images, mode)
    logits = model.model(inputs_embeds=inputs, use_cache=False).logits[0, :, : model.vocabulary_size]
    marks = encoder.ids(prompt, image_tokens=[1] * len(images))
    ids = torch.tensor([IMAGE_INDEX if token == model.image_token_id else token for token in marks])
    return Forward(
        input_ids=ids,
        pixel_values=_plain(torch.cat(tiles)) if tiles else None,
        image_features=_plain(torch.cat(features)) if features else None,
        logits=_plain(logits),
        tiles_per_image=tuple(map(len, tiles)),
    )


@torch.inference_mode()
def complete(
    model: VisionLanguageModel,
    encoder: Encoder,
    prompt: Prompt,
    images: Sequence[Any],
    mode: str | None,
    *,
    ends: Collection[int],
    max_new_tokens: int,
    repetition_penalty: float = 1.0,
) -> list[int]:
    """A greedy answer; arguments and errors as for `TorchEngine.complete`."""
    check_answer(max_new_tokens, repetition_penalty)
    _, _, inputs = _prepare(model, encoder, prompt, images, mode)
    cache = growing_cache(model.model.config)
    written: list[int] = []
    while len(written) < max_new_tokens:
        output = model.model(inputs_embeds=inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits = output.logits[0, -1].float()
        model.leave_words(logits[None])
        if written and repetition_penalty != 1.0:
            seen = torch.tensor(sorted(set(written)), device=logits.device)
            logits[seen] = torch.where(
                logits[seen] < 0, logits[seen] * repetition_penalty, logits[seen] / repetition_penalty
            )
        written.append(int(logits.argmax()))
        if written[-1] in ends:
            break
        inputs = embed(model, torch.tensor([written[-1:]], device=model.device), ())
    return written


def embed(model: VisionLanguageModel, ids: torch.Tensor, features: Sequence[torch.Tensor]) -> torch.Tensor:
    """Embeddings (rows, tokens, hidden) of ids, with image features in the images' places, in order."""
    is_image = torch.zeros_like(ids, dtype=torch.bool) if model.image_token_id is None else ids == model.image_token_id
    inputs: torch.Tensor = model.model.get_input_embeddings()(ids.masked_fill(is_image, 0)).to(ids.device)
    if features:
        inputs = inputs.masked_scatter(is_image.unsqueeze(-1), torch.cat([feature.to(inputs) for feature in features]))
    return inputs


def check_answer(max_new_tokens: int, repetition_penalty: float) -> None:
    """Refuse options of an answer that mean nothing.

    Raises:
        ValueError: an answer of no tokens; a penalty that is not above 0.
    """
    if max_new_tokens < 1 or repetition_penalty <= 0:
        raise ValueError("max_new_tokens must be at least 1 and repetition_penalty above 0")


def check_length(model: VisionLanguageModel, n_tokens: int, n_image_tokens: int, *, answered: bool) -> None:
    """Refuse a prompt that the model can't hold.

    Args:
        answered: whether the model's context must hold the prompt and an answer; the original looks at the tokenizer's
            maximum alone.

    Raises:
        ValueError: with the length and the limit.
    """
    held = f", {n_image_tokens} of them for images," if n_image_tokens else ""
    if answered and n_tokens >= model.context_length:
        raise ValueError(
            f"the prompt has {n_tokens} tokens{held} and the model's context holds {model.context_length}, an answer"
            " included; shorten the item's texts"
        )
    if n_tokens > model.prompt_limit:
        raise ValueError(
            f"the prompt has {n_tokens} tokens{held} and this judge's limit is {model.prompt_limit} (the original cuts"
            " a longer prompt and then fails); shorten the item's texts"
        )


def _prepare(
    model: VisionLanguageModel, encoder: Encoder, prompt: Prompt, images: Sequence[Any], mode: str | None
) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """The tiles and features of each image, and the prompt's embeddings (1, positions, hidden)."""
    if prompt.n_images != len(images):
        raise ValueError(f"the prompt has {prompt.n_images} image place(s) and there are {len(images)} image(s)")
    if not model.sees_images:
        if mode is not None or images:
            raise ValueError("this judge reads no images")
        ids = encoder.ids(prompt)
        check_length(model, len(ids), 0, answered=False)
        return [], [], embed(model, torch.tensor([ids], device=model.device), ())
    vision = vision_of(model.model, model.image_processor)
    mode = mode or vision.default_mode(len(images))
    if mode not in vision.modes:
        raise ValueError(f"image_mode {mode!r} is unknown to this judge; use one of {vision.modes}")
    opened = [open_image(image) for image in images]
    for image in opened:
        vision.check(image.size, mode)
    taken = [vision.n_tokens(image.size, mode) for image in opened]
    ids = encoder.ids(prompt, image_tokens=taken)
    check_length(model, len(ids), sum(taken), answered=False)
    tiles = vision.tiles(opened, mode) if opened else []
    features = vision.features(tiles, [image.size for image in opened], mode) if opened else []
    return tiles, features, embed(model, torch.tensor([ids], device=model.device), features)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float().cpu()
