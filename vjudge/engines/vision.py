"""Images to what a model takes: the pixels and features of the LLaVA families, and a chat model's own processor.

In the LLaVA families an image becomes tiles (tiles, 3, side, side), and its features are packed as the original packs
them, which differs from transformers in the rounding of a tiled image's margins.

Source: kaistAI/prometheus-vision llava/mm_utils.py and llava/eval/model_vqa.py; LLaVA-VL/LLaVA-NeXT llava/mm_utils.py
(process_anyres_image) and llava/model/llava_arch.py (prepare_inputs_labels_for_multimodal).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers.image_processing_utils import select_best_resolution

from vjudge.images import MAX_PIXELS, Picture, pad_to_square
from vjudge.models import VisionLanguageModel
from vjudge.models.memory import ENCODED_TOGETHER, FEATURES_KEPT
from vjudge.models.places import input_device, weight_of
from vjudge.prompts import Control, Prompt, split

Size = tuple[int, int]  # (width, height) in pixels, as PIL has it
Tokens = Sequence[int] | np.ndarray
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "text_replacement_offsets")
KINDS_OF_TOKEN = ("mm_token_type_ids", "token_type_ids")  # where a processor says which tokens are an image's


def vision_of(model: Any, image_processor: Any) -> Vision:
    """How a LLaVA (or LLaVA-OneVision) model looks at images; the PIL-based image processor goes with it."""
    kind = TiledVision if model.config.model_type == "llava_onevision" else Vision
    return kind(model, image_processor)


def images_of(model: VisionLanguageModel, mode: str | None = None) -> ImageFeatures | ProcessedImages:
    """The images of a call by a LLaVA family's vision or a chat model's processor; ValueError for an unknown mode."""
    return ImageFeatures(model, mode) if model.kind == "llava" else ProcessedImages(model, mode)


class Vision:
    """From PIL images to features in a prompt, as LLaVA-1.5's own code has it; `modes` are the ways to prepare one.

    An image is one square: cut from the middle ("crop") or padded with the mean colour ("pad").

    Source: model_vqa.py crops, whatever the checkpoint's image_aspect_ratio says; the demo code pads.
    """

    modes: tuple[str, ...] = ("crop", "pad")

    def __init__(self, model: Any, image_processor: Any) -> None:
        self.model, self.processor = model, image_processor
        vision = model.config.vision_config
        self.side, self.across = int(vision.image_size), int(vision.image_size // vision.patch_size)

    def default_mode(self, n_images: int) -> str:
        """The family's own way with a prompt of so many images."""
        return "crop"

    def check(self, size: Size, mode: str) -> None:
        """Refuse by ValueError an image that can't be prepared within bounds."""
        edge = dict(self.processor.size).get("shortest_edge") or 0
        if mode == "crop" and edge * edge * max(size) / min(size) > MAX_PIXELS:  # it scales the short side up
            raise ValueError(
                f"an image of {size[0]} x {size[1]} pixels is too narrow: scaled to a short side of {edge} it would"
                f" exceed {MAX_PIXELS} pixels; crop it"
            )

    def n_tokens(self, size: Size, mode: str) -> int:
        """The places that an image takes in a prompt."""
        return self.across**2 + (self.model.config.vision_feature_select_strategy == "full")

    def tiles(self, images: Sequence[Image.Image], mode: str) -> list[torch.Tensor]:
        """Pixels in float32, (tiles, 3, side, side) an image."""
        prepared = list(map(self.squared, images)) if mode == "pad" else list(images)
        return list(self.processor(prepared, return_tensors="pt")["pixel_values"].unsqueeze(1))

    def squared(self, image: Image.Image) -> Image.Image:
        """An image in the middle of a square of the mean colour; a huge one is scaled down on the way."""
        return pad_to_square(image, tuple(int(value * 255) for value in self.processor.image_mean))

    def encode(self, tiles: torch.Tensor) -> torch.Tensor:
        """What the tower sees in tiles (tiles, patches, width): the chosen layers side by side, as configured."""
        config, tower = self.model.config, self.model.model.vision_tower
        states = tower(tiles.to(input_device(tower), self.model.dtype), output_hidden_states=True).hidden_states
        layers = config.vision_feature_layer
        chosen = torch.cat([states[layer] for layer in layers], dim=-1) if isinstance(layers, list) else states[layers]
        return chosen[:, 1:] if config.vision_feature_select_strategy == "default" else chosen

    def project(self, states: torch.Tensor, size: Size, mode: str) -> torch.Tensor:
        """One image's features as they stand in a prompt (tokens, hidden), from its tiles' states."""
        projected: torch.Tensor = self.model.model.multi_modal_projector(states)[0]
        return projected

    def features(self, tiles: Sequence[torch.Tensor], sizes: Sequence[Size], mode: str) -> list[torch.Tensor]:
        """The features of images, encoded together and projected."""
        return list(self.model.model.multi_modal_projector(self.encode(torch.cat(list(tiles)))))


class TiledVision(Vision):
    """LLaVA-NeXT/OneVision: the whole image and a grid of tiles ("anyres"), or one padded square ("pad").

    Two images or more in a prompt are padded, as in the original's training.
    """

    modes = ("anyres", "pad")

    def __init__(self, model: Any, image_processor: Any) -> None:
        super().__init__(model, image_processor)
        most = re.fullmatch(r"anyres_max_(\d+)", model.config.vision_aspect_ratio)
        self.most = int(most[1]) if most else None  # tiles' worth of features after which they are thinned out

    def default_mode(self, n_images: int) -> str:
        return "anyres" if n_images == 1 else "pad"

    def check(self, size: Size, mode: str) -> None:
        if mode == "anyres" and min(self._layout(size)[-1]) < 1:  # no row or column of features would be left
            raise ValueError(f"an image of {size[0]} x {size[1]} pixels is too narrow for tiles; crop it")

    def n_tokens(self, size: Size, mode: str) -> int:
        if mode == "pad":
            return self.across**2 + 1
        height, width = self._layout(size)[-1]
        return self.across**2 + height * (width + 1)

    def tiles(self, images: Sequence[Image.Image], mode: str) -> list[torch.Tensor]:
        """Pixels by transformers' tiles of 8-bit levels, made numbers as the original does, which rounds otherwise."""
        processor = self.processor
        mean, std = (torch.tensor(part)[:, None, None] for part in (processor.image_mean, processor.image_std))
        grid = [[self.side, self.side]] if mode == "pad" else self.model.config.image_grid_pinpoints
        how = {"size": {"height": self.side, "width": self.side}, "image_grid_pinpoints": grid}
        how |= {"do_rescale": False, "do_normalize": False, "return_tensors": "pt"}
        prepared = []
        for image in images:
            levels = processor(self.squared(image) if mode == "pad" else image, **how)["pixel_values"][0]
            levels = levels[:1] if mode == "pad" else levels  # the first is the whole image
            prepared.append((levels.float() * np.float32(1 / 255) - mean) / std)
        return prepared

    def project(self, states: torch.Tensor, size: Size, mode: str) -> torch.Tensor:
        """The states of all tiles, laid out as one picture without its margins, a newline after each row."""
        inner = self.model.model
        projected = inner.multi_modal_projector(states)
        newline = weight_of(inner, "image_newline").to(projected)
        if mode == "pad":
            return torch.cat([projected[0], newline[None]])
        (down, across), crop, (height, width) = self._layout(size)
        picture = projected[1:].view(down, across, self.across, self.across, -1)
        picture = picture.permute(4, 0, 2, 1, 3).flatten(1, 2).flatten(2, 3)
        picture = picture[:, crop[0], crop[1]]
        if picture.shape[1:] != (height, width):
            picture = torch.nn.functional.interpolate(picture[None], [height, width], mode="bilinear")[0]
        picture = torch.cat([picture, newline[:, None, None].expand(-1, height, 1)], dim=-1)
        return torch.cat([projected[0], picture.flatten(1, 2).T])

    def features(self, tiles: Sequence[torch.Tensor], sizes: Sequence[Size], mode: str) -> list[torch.Tensor]:
        """The features of images, encoded and projected one by one."""
        return [self.project(self.encode(each), size, mode) for each, size in zip(tiles, sizes, strict=True)]

    def _layout(self, size: Size) -> tuple[tuple[int, int], tuple[slice, slice], tuple[int, int]]:
        """How an image lies on the grid: tiles (down, across), the features kept of them, and (height, width) at last.

        The margin's width is cut without rounding first, as in the original; transformers rounds at the seventh digit.
        """
        best = select_best_resolution(size[::-1], self.model.config.image_grid_pinpoints)
        down, across = (edge // self.side for edge in best)
        height, width = down * self.across, across * self.across
        top = left = 0
        if size[0] / size[1] > width / height:
            top = (height - int(size[1] * (width / size[0]))) // 2
        else:
            left = (width - int(size[0] * (height / size[1]))) // 2
        crop = slice(top, height - top), slice(left, width - left)
        height, width = height - 2 * top, width - 2 * left
        if self.most is not None:
            times = math.sqrt(height * width / (self.most * self.across**2))
            if times > 1.1:
                height, width = int(height // times), int(width // times)
        return (down, across), crop, (height, width)


class ImageSource:
    """The images of a call by key; equal images that are prepared alike have one. `encoded` counts those that were
    encoded.

    Both kinds have `place(prompt, keys)`, the prompt for the encoder and the places of each image; `fetch(keys)`, which
    has images ready, key -> why one can't be had; `inputs(ids, keys)`, what the model takes for rows, padded on the
    left.
    """

    def __init__(self, model: VisionLanguageModel) -> None:
        self.model, self.encoded = model, 0
        self._sizes: dict[str, Size] = {}
        self._again: dict[str, Callable[[], Image.Image]] = {}

    def keys(self, pictures: Sequence[Picture], again: Sequence[Callable[[], Image.Image]] = ()) -> tuple[str, ...]:
        """Names for a prompt's images, each opened by `again`; ValueError for one that can't be prepared."""
        keys = tuple(self._name(picture, len(pictures)) for picture in pictures)
        for key, picture, get in zip(keys, pictures, again or [picture.open for picture in pictures], strict=True):
            self._sizes.setdefault(key, picture.size)
            self._again.setdefault(key, get)
        return keys

    def settle(self, keys: Iterable[str]) -> None:
        """Fix which images are encoded together, before any is: an image that comes back has the same bits."""

    def _name(self, picture: Picture, n_images: int) -> str:
        return picture.key

    def _open(self, keys: Iterable[str]) -> tuple[dict[str, Image.Image], dict[str, str]]:
        """Images by key, and why others can't be had."""
        images, broken = {}, {}
        for key in keys:
            try:
                images[key] = self._again[key]()
            except (ValueError, OSError) as error:
                broken[key] = str(error)
        return images, broken


class ImageFeatures(ImageSource):
    """A LLaVA model's images: `features` by key, each encoded once; `mode` of `vision.modes`, or None for the own."""

    def __init__(self, model: VisionLanguageModel, mode: str | None = None) -> None:
        super().__init__(model)
        self.vision, self.mode = vision_of(model.model, model.image_processor), mode
        if mode is not None and mode not in self.vision.modes:
            raise ValueError(f"image_mode {mode!r} is unknown to this judge; use one of {self.vision.modes}")
        self.features: dict[str, torch.Tensor] = {}  # the latest used last
        self._capacity = FEATURES_KEPT // (model.model.config.get_text_config().hidden_size * model.dtype.itemsize)
        self._modes: dict[str, str] = {}
        self._chunks: dict[str, tuple[str, ...]] = {}  # key -> the images that it is encoded with
        self._broken: dict[str, str] = {}

    def place(self, prompt: Prompt, keys: Sequence[str]) -> tuple[Prompt, list[int]]:
        return prompt, [self.vision.n_tokens(self._sizes[key], self._modes[key]) for key in keys]

    def settle(self, keys: Iterable[str]) -> None:
        fresh = [key for key in dict.fromkeys(keys) if key not in self._chunks]
        for start in range(0, len(fresh), ENCODED_TOGETHER):
            chunk = tuple(fresh[start : start + ENCODED_TOGETHER])
            self._chunks |= dict.fromkeys(chunk, chunk)

    def fetch(self, keys: Sequence[str]) -> dict[str, str]:
        for key in keys:
            if key not in self.features and key not in self._broken:
                self._encode(self._chunks.get(key, (key,)))
            if key in self.features:
                self.features[key] = self.features.pop(key)
        size = sum(map(len, self.features.values()))
        while size > self._capacity and (oldest := next(iter(self.features))) not in keys:
            size -= len(self.features.pop(oldest))
        return {key: self._broken[key] for key in keys if key in self._broken}

    def inputs(self, ids: Sequence[Tokens], keys: Sequence[Sequence[str]]) -> dict[str, torch.Tensor]:
        padded, mask = left_padded(ids, 0, self.model.device)
        features = [self.features[key] for row in keys for key in row]
        return {"inputs_embeds": embedded(self.model, padded, features), "attention_mask": mask}

    def pixels(self, keys: Sequence[str]) -> list[torch.Tensor]:
        """The pixel values of images, each (tiles, 3, side, side), as they are encoded."""
        return [self.vision.tiles([self._again[key]()], self._modes[key])[0] for key in keys]

    def _name(self, picture: Picture, n_images: int) -> str:
        mode = self.mode or self.vision.default_mode(n_images)
        self.vision.check(picture.size, mode)
        key = picture.key if mode == self.vision.default_mode(1) else f"{mode}:{picture.key}"
        self._modes[key] = mode
        return key

    @torch.inference_mode()
    def _encode(self, keys: Sequence[str]) -> None:
        images, broken = self._open(keys)
        self._broken |= broken
        for mode in dict.fromkeys(self._modes[key] for key in images):
            names = [key for key in images if self._modes[key] == mode]
            tiles = self.vision.tiles([images[name] for name in names], mode)
            features = self.vision.features(tiles, [images[name].size for name in names], mode)
            for name, feature in zip(names, features, strict=True):
                places = self.vision.n_tokens(images[name].size, mode)
                if len(feature) != places:
                    raise ValueError(
                        f"the vision tower gave {len(feature)} tokens an image and the prompt holds {places}: image"
                        " size and patch size of the checkpoint disagree"
                    )
                self.features[name] = feature.clone()  # its own memory, so that dropping it frees it
            self.encoded += len(names)


class ProcessedImages(ImageSource):
    """A chat model's images, by its own processor, encoded with their prompts; none for a judge of texts."""

    def __init__(self, model: VisionLanguageModel, mode: str | None = None) -> None:
        super().__init__(model)
        if mode is not None:
            own = "prepares images by its own processor alone" if model.sees_images else "reads no images"
            raise ValueError(f"image_mode {mode!r}: this judge {own}")
        self._opened: dict[str, Image.Image] = {}
        self._spelling: dict[tuple[Size, ...], tuple[tuple[Any, ...], ...]] = {}
        added = model.tokenizer.added_tokens_decoder.values()
        self._controls = sorted({str(entry) for entry in added if entry.special})

    def place(self, prompt: Prompt, keys: Sequence[str]) -> tuple[Prompt, None]:
        """A prompt with each image's own tokens in its place, as the processor writes them, which may refuse one."""
        if not keys:
            return prompt, None
        sizes = tuple(self._sizes[key] for key in keys)  # what is written depends on the sizes alone
        if sizes not in self._spelling:
            outputs = self._process([[self._again[key]() for key in keys]], return_text_replacement_offsets=True)
            texts = [each["replacement"] for each in outputs["text_replacement_offsets"][0]]
            self._spelling[sizes] = tuple(runs(split(text, self._controls)) for text in texts)
        return prompt.with_images(self._spelling[sizes]), None

    def fetch(self, keys: Sequence[str]) -> dict[str, str]:
        self._opened, broken = self._open(keys)
        return broken

    def inputs(self, ids: Sequence[Tokens], keys: Sequence[Sequence[str]]) -> dict[str, torch.Tensor]:
        padded, mask = left_padded(ids, self.model.tokenizer.pad_token_id or 0, self.model.device)
        inputs = {"input_ids": padded, "attention_mask": mask}
        shown = [[self._opened[key] for key in row] for row in keys if row]
        if shown:
            outputs = self._process(shown, padding=True)
            inputs |= {name: tensor for name, tensor in outputs.items() if name not in TEXT_INPUTS}
            kind = next((name for name in KINDS_OF_TOKEN if name in outputs), None)
            if kind is not None and hasattr(self.model.processor, "create_mm_token_type_ids"):
                kinds = torch.tensor(self.model.processor.create_mm_token_type_ids(padded.tolist()))
                inputs[kind] = kinds.to(mask) * mask
            self.encoded += sum(map(len, shown))
        for name, tensor in inputs.items():
            if isinstance(tensor, torch.Tensor):
                dtype = self.model.dtype if tensor.is_floating_point() else None
                inputs[name] = tensor.to(self.model.device, dtype)
        return inputs

    def _name(self, picture: Picture, n_images: int) -> str:
        if self.model.processor is None:
            raise ValueError("this judge reads no images: use a template whose sees_images is False")
        return picture.key

    def _process(self, images: Sequence[Sequence[Image.Image]], **options: Any) -> Any:
        processor = self.model.processor
        text = [processor.image_token * len(row) for row in images]
        return processor(images=list(map(list, images)), text=text, return_tensors="pt", **options)


def left_padded(ids: Sequence[Tokens], pad: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of tokens as one tensor (rows, longest), padded on the left, and the mask of real tokens."""
    width = max(map(len, ids))
    padded = np.full((len(ids), width), pad, dtype=np.int64)
    mask = np.zeros_like(padded)
    for row, tokens in enumerate(ids):
        padded[row, width - len(tokens) :] = tokens
        mask[row, width - len(tokens) :] = 1
    return torch.from_numpy(padded).to(device), torch.from_numpy(mask).to(device)


def embedded(model: VisionLanguageModel, ids: torch.Tensor, features: Sequence[torch.Tensor]) -> torch.Tensor:
    """Embeddings (rows, tokens, hidden) of ids, with image features in the images' places, in order."""
    is_image = torch.zeros_like(ids, dtype=torch.bool) if model.image_token_id is None else ids == model.image_token_id
    inputs: torch.Tensor = model.model.get_input_embeddings()(ids.masked_fill(is_image, 0)).to(ids.device)
    if features:
        inputs = inputs.masked_scatter(is_image.unsqueeze(-1), torch.cat([feature.to(inputs) for feature in features]))
    return inputs


def runs(parts: Iterable[Any]) -> tuple[Any, ...]:
    """Parts of a prompt with a run of one control token as one part."""
    joined: list[Any] = []
    for part, equal in itertools.groupby(part for part in parts if part != ""):
        times = len(list(equal))
        joined.append(Control(part.text, part.times * times) if isinstance(part, Control) else part * times)
    return tuple(joined)
