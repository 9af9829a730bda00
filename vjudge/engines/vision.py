"""Images to what a model takes: pixels and features of the LLaVA families, or a chat model's own.

In the LLaVA families an image becomes tiles (tiles, 3, side, side). Its features are packed as the
original packs them, which differs from transformers in the rounding of a tiled image's margins.

Source: kaistAI/prometheus-vision llava/mm_utils.py and llava/eval/model_vqa.py; LLaVA-VL/LLaVA-NeXT
llava/mm_utils.py (process_anyres_image) and llava/model/llava_arch.py
(prepare_inputs_labels_for_multimodal).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BatchFeature
from transformers.image_processing_utils import select_best_resolution

from vjudge.images import MAX_PIXELS, pad_to_square
from vjudge.models import VisionLanguageModel
from vjudge.models.placement import input_device, weight_of
from vjudge.prompts import Prompt, split

Size = tuple[int, int]  # (width, height) in pixels, as PIL has it
Prepared = tuple[torch.Tensor, Size, str]  # tiles (tiles, 3, side, side), size of the image, mode
Keys = Sequence[str]
Ids = Sequence[Sequence[int]]
Inputs = dict[str, Any]
KINDS_OF_TOKEN = ("mm_token_type_ids", "token_type_ids")  # which tokens are an image's
TEXT_INPUTS = ("input_ids", "attention_mask", "text_replacement_offsets", *KINDS_OF_TOKEN)


class CallImages:
    """The images of a call by key; `features` holds what was fetched of the present batch's.

    `keys` names images, `place` makes room for them in a prompt, `fetch` has them ready, and
    `inputs` makes what the model takes.
    """

    def __init__(self, model: VisionLanguageModel) -> None:
        self.model = model
        self.encoded = 0  # how many images were encoded
        self.features: dict[str, Any] = {}
        self._pictures: dict[str, tuple[Any, str]] = {}  # key -> picture, mode

    def fetched(self, key: str) -> Any:
        """What `inputs` needs of an image: here the image, opened."""
        return self._pictures[key][0].open()

    def fetch(self, keys: Keys) -> dict[str, str]:
        """Have these images ready; returns key -> why one can't be had.

        Others are dropped: neighbouring batches share some images, others hardly do.
        """
        self.features = {key: self.features[key] for key in keys if key in self.features}
        broken = {}
        for key in keys:
            try:
                if key not in self.features:
                    self.features[key] = self.fetched(key)
            except (ValueError, OSError) as error:
                broken[key] = str(error)
        return broken

    def forget(self) -> None:
        """Let go of the pictures that were named; `keys` names them anew."""
        self._pictures.clear()


class ImageFeatures(CallImages):
    """A LLaVA model's images: `features` are what the projector gives, each encoded once.

    LLaVA-1.5 sees one square: cut from the middle ("crop", as model_vqa.py does whatever
    image_aspect_ratio says) or padded with the mean colour ("pad", as the demo does). OneVision
    sees the whole image and a grid of tiles ("anyres"), or one padded square where a prompt has
    several images, as in training.
    """

    def __init__(self, model: VisionLanguageModel, mode: str | None = None) -> None:
        super().__init__(model)
        self.config = model.model.config
        self.processor = model.image_processor
        self.modes = ("anyres", "pad") if model.tiled else ("crop", "pad")
        if mode is not None and mode not in self.modes:
            raise ValueError(
                f"image_mode {mode!r} is unknown to this judge; use one of {self.modes}"
            )
        self.mode = mode
        self.side = int(self.config.vision_config.image_size)
        self.across = self.side // self.config.vision_config.patch_size  # patches along a tile

    def keys(self, pictures: Sequence[Any]) -> tuple[str, ...]:
        """Name a prompt's pictures, equal ones alike."""
        mode = self.mode
        if mode is None:
            mode = self.modes[self.model.tiled and len(pictures) > 1]
        keys = []
        for picture in pictures:
            key = f"{mode}:{picture.key}"
            self._pictures.setdefault(key, (picture, mode))
            keys.append(key)
        return tuple(keys)

    def place(self, prompt: Prompt, keys: Keys) -> tuple[Prompt, list[int]]:
        """The prompt for the encoder, and the places that each of its images takes.

        ValueError: an image is too narrow.
        """
        places = []
        for key in keys:
            picture, mode = self._pictures[key]
            places.append(self.n_tokens(picture.size, mode))
        return prompt, places

    def n_tokens(self, size: Size, mode: str) -> int:
        """The places that an image takes in a prompt; ValueError for one that is too narrow."""
        n_tokens = self.model.tokens_per_image
        narrow = False
        if mode == "anyres":
            _, _, (height, width) = self._layout(size)
            n_tokens = self.across**2 + height * (width + 1)
            narrow = height < 1 or width < 1  # no row or column of features is left
        if mode == "crop":
            edge = dict(self.processor.size).get("shortest_edge", 0)
            narrow = edge**2 * max(size) / min(size) > MAX_PIXELS  # once it is scaled
        if narrow:
            raise ValueError(
                f"an image of {size[0]} x {size[1]} pixels is too narrow for this judge; crop it"
            )
        return n_tokens

    def inputs(self, ids: Ids, keys: Sequence[Keys]) -> Inputs:
        """What the model takes for rows, padded on the left, whose images were fetched."""
        padded, mask = left_padded(ids, 0, self.model.device)
        features = [self.features[key] for row in keys for key in row]
        return {"inputs_embeds": embedded(self.model, padded, features), "attention_mask": mask}

    @torch.no_grad()
    def fetched(self, key: str) -> torch.Tensor:
        """An image's features."""
        # One at a time: the last bits depend on who is encoded along.
        (features,) = self.encode([self.prepare(key)])
        self.encoded += 1
        return features

    def prepare(self, key: str) -> Prepared:
        """An image as it is encoded; a huge one that is padded is reduced first."""
        picture, mode = self._pictures[key]
        processor = self.processor
        image = picture.open()
        if mode == "pad":
            background = tuple(int(value * 255) for value in processor.image_mean)
            image = pad_to_square(image, background)
        if not self.model.tiled:
            tiles = processor(image, return_tensors="pt")["pixel_values"]
            return tiles, picture.size, mode
        # transformers' tiles of 8-bit levels, made numbers as the original does, which rounds.
        grid = self.config.image_grid_pinpoints
        if mode == "pad":
            grid = [[self.side, self.side]]
        levels = processor(
            image,
            size={"height": self.side, "width": self.side},
            image_grid_pinpoints=grid,
            do_rescale=False,
            do_normalize=False,
            return_tensors="pt",
        )["pixel_values"][0]
        if mode == "pad":
            levels = levels[:1]  # the whole image stands first
        mean = torch.tensor(processor.image_mean)[:, None, None]
        std = torch.tensor(processor.image_std)[:, None, None]
        return (levels.float() * np.float32(1 / 255) - mean) / std, picture.size, mode

    def encode(self, images: Sequence[Prepared]) -> list[torch.Tensor]:
        """Images' features as they stand in a prompt, (tokens, hidden) each."""
        inner = self.model.model.model
        layers = self.config.vision_feature_layer
        if isinstance(layers, int):
            layers = [layers]
        features = []
        for tiles, size, mode in images:
            pixels = tiles.to(input_device(inner.vision_tower), self.model.dtype)
            states = inner.vision_tower(pixels, output_hidden_states=True).hidden_states
            chosen = torch.cat([states[layer] for layer in layers], dim=-1)
            if self.config.vision_feature_select_strategy == "default":
                chosen = chosen[:, 1:]  # without the class token
            projected = inner.multi_modal_projector(chosen)
            packed = projected[0]
            if self.model.tiled:
                newline = weight_of(inner, "image_newline").to(projected)
                rest = newline[None]
                if mode == "anyres":
                    rest = self._grid(projected[1:], newline, size)
                packed = torch.cat([packed, rest])
            features.append(packed)
        return features

    def _grid(self, tiles: torch.Tensor, newline: torch.Tensor, size: Size) -> torch.Tensor:
        """Lay the features of a grid's tiles out as one picture, a newline after each row."""
        (down, across), crop, (height, width) = self._layout(size)
        picture = tiles.view(down, across, self.across, self.across, -1)
        picture = picture.permute(4, 0, 2, 1, 3).flatten(1, 2).flatten(2, 3)[crop]
        if picture.shape[1:] != (height, width):
            shape = [height, width]
            picture = torch.nn.functional.interpolate(picture[None], shape, mode="bilinear")[0]
        ends = newline[:, None, None].expand(-1, height, 1)
        return torch.cat([picture, ends], dim=-1).flatten(1).T

    def _layout(self, size: Size) -> tuple[Size, tuple[slice, ...], Size]:
        """How an image lies on its grid: tiles (down, across), features kept, (height, width).

        The margin is cut without rounding first, as in the original; transformers rounds.
        """
        best = select_best_resolution(size[::-1], self.config.image_grid_pinpoints)
        down, across = (edge // self.side for edge in best)
        height = down * self.across
        width = across * self.across
        # 1) cut the margins
        top = left = 0
        if size[0] / size[1] > width / height:
            top = (height - int(size[1] * (width / size[0]))) // 2
        else:
            left = (width - int(size[0] * (height / size[1]))) // 2
        crop = (slice(None), slice(top, height - top), slice(left, width - left))
        height -= 2 * top
        width -= 2 * left
        # 2) thin the features out beyond the most tiles
        limit, _, most = str(getattr(self.config, "vision_aspect_ratio", "")).rpartition("_")
        if limit == "anyres_max":
            times = math.sqrt(height * width / (int(most) * self.across**2))
            if times > 1.1:
                height = int(height // times)
                width = int(width // times)
        return (down, across), crop, (height, width)


class ProcessedImages(CallImages):
    """A chat model's images, which its own processor prepares; or none, of a text judge.

    `features` are the opened images: they are encoded together with the prompts they stand in.
    """

    def __init__(self, model: VisionLanguageModel, mode: str | None = None) -> None:
        super().__init__(model)
        if mode is not None:
            raise ValueError(
                f"image_mode {mode!r}: only LLaVA's families have modes, and this judge has none"
            )
        self.processor = model.processor
        self._spelling: dict[tuple[Size, ...], list[Any]] = {}  # sizes -> parts of each image
        added = model.tokenizer.added_tokens_decoder.values()
        self._controls = sorted({str(entry) for entry in added if entry.special})

    def keys(self, pictures: Sequence[Any]) -> tuple[str, ...]:
        if pictures and self.processor is None:
            raise ValueError(
                "this judge reads no images: use a template whose sees_images is False"
            )
        for picture in pictures:
            self._pictures.setdefault(picture.key, (picture, ""))
        return tuple(picture.key for picture in pictures)

    def place(self, prompt: Prompt, keys: Keys) -> tuple[Prompt, None]:
        """A prompt with each image's own tokens in its place, which the processor may refuse."""
        if not keys:
            return prompt, None
        pictures = [self._pictures[key][0] for key in keys]
        sizes = tuple(picture.size for picture in pictures)  # these alone decide the tokens
        if sizes not in self._spelling:
            shown = [picture.open() for picture in pictures]
            outputs = self._process([shown], return_text_replacement_offsets=True)
            (images,) = outputs["text_replacement_offsets"]
            written = [split(image["replacement"], self._controls) for image in images]
            self._spelling[sizes] = written
        return prompt.with_images(self._spelling[sizes]), None

    def inputs(self, ids: Ids, keys: Sequence[Keys]) -> Inputs:
        padded, mask = left_padded(ids, self.model.tokenizer.pad_token_id or 0, self.model.device)
        inputs = {"input_ids": padded, "attention_mask": mask}
        shown = [[self.features[key] for key in row] for row in keys if row]
        if shown:
            outputs = self._process(shown, padding=True)
            for name, tensor in outputs.items():
                if name not in TEXT_INPUTS:
                    inputs[name] = tensor
                elif name in KINDS_OF_TOKEN and KINDS_OF_TOKEN[0] not in inputs:
                    kinds = self.processor.create_mm_token_type_ids(padded.tolist())
                    inputs[name] = torch.tensor(kinds).to(mask) * mask
            self.encoded += sum(map(len, shown))
        # The precision is for inputs with a fraction alone.
        return dict(BatchFeature(inputs).to(self.model.device, dtype=self.model.dtype))

    def _process(self, images: Sequence[list[Any]], **options: Any) -> Any:
        text = [self.processor.image_token * len(row) for row in images]
        return self.processor(images=list(images), text=text, return_tensors="pt", **options)


def images_of(model: VisionLanguageModel, mode: str | None = None) -> CallImages:
    """The images of a call, by what kind of model reads them; ValueError for an unknown mode."""
    if model.kind == "llava":
        return ImageFeatures(model, mode)
    return ProcessedImages(model, mode)


def left_padded(ids: Ids, pad: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of tokens as one tensor (rows, longest), padded on the left, and the mask."""
    rows = [torch.tensor(row, dtype=torch.long) for row in ids]
    ones = [torch.ones_like(row) for row in rows]
    padded = pad_sequence(rows, batch_first=True, padding_value=pad, padding_side="left")
    mask = pad_sequence(ones, batch_first=True, padding_side="left")
    return padded.to(device), mask.to(device)


def embedded(
    model: VisionLanguageModel, ids: torch.Tensor, features: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Embeddings (rows, tokens, hidden) of ids, image features in their places, in order."""
    embed = model.model.get_input_embeddings()
    if not features:
        return embed(ids).to(ids.device)
    is_image: Any = ids == model.image_token_id
    inputs = embed(ids.masked_fill(is_image, 0)).to(ids.device)
    states = torch.cat([feature.to(inputs) for feature in features])
    if len(states) != is_image.sum():
        raise ValueError(f"{len(states)} image features for {is_image.sum()} places in the prompts")
    return inputs.masked_scatter(is_image.unsqueeze(-1), states)
