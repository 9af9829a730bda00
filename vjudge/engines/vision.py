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
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from vjudge.images import MAX_PIXELS, Picture, pad_to_square
from vjudge.models import VisionLanguageModel
from vjudge.models.memory import ENCODED_TOGETHER, FEATURES_KEPT
from vjudge.models.places import input_device, weight_of
from vjudge.prompts import Control, Prompt, split

Size = tuple[int, int]  # (width, height) in pixels, as PIL has it
Tokens = Sequence[int] | np.ndarray


def vision_of(model: Any, image_processor: Any) -> Vision:
    """How a LLaVA (or LLaVA-OneVision) model looks at images; the PIL-based image processor goes with it."""
    kind = TiledVision if model.config.model_type == "llava_onevision" else PlainVision
    return kind(model, image_processor)


class Vision:
    """From a PIL image to its features in a prompt, as the original code of a LLaVA family has it.

    Each family has `modes`, the ways to prepare an image; `default_mode(n_images)`, its own way; `n_tokens(size,
    mode)`, the places it takes; `check(size, mode)`, which raises ValueError for one that can't be prepared within
    bounds; `tiles(images, mode)`, pixels in float32; `project(states, size, mode)`, one image's packed features
    (tokens, hidden).
    """

    modes: tuple[str, ...]
    default_mode: Callable[[int], str]
    n_tokens: Callable[[Size, str], int]
    check: Callable[[Size, str], None]
    tiles: Callable[[Sequence[Image.Image], str], list[torch.Tensor]]
    project: Callable[[torch.Tensor, Size, str], torch.Tensor]

    def __init__(self, model: Any, image_processor: Any) -> None:
        self.model, self.processor = model, image_processor

    def encode(self, tiles: torch.Tensor) -> torch.Tensor:
        """What the tower sees in tiles (tiles, patches, width): the chosen layers side by side, as configured."""
        config, tower = self.model.config, self.model.model.vision_tower
        states = tower(tiles.to(input_device(tower), self.model.dtype), output_hidden_states=True).hidden_states
        layers = config.vision_feature_layer
        chosen = torch.cat([states[layer] for layer in layers], dim=-1) if isinstance(layers, list) else states[layers]
        return chosen[:, 1:] if config.vision_feature_select_strategy == "default" else chosen

    def features(self, tiles: Sequence[torch.Tensor], sizes: Sequence[Size], mode: str) -> list[torch.Tensor]:
        """The features of images, encoded and projected."""
        return [self.project(self.encode(each), size, mode) for each, size in zip(tiles, sizes, strict=True)]

    def squared(self, image: Image.Image) -> Image.Image:
        """An image in the middle of a square of the mean colour; a huge one is scaled down on the way."""
        return pad_to_square(image, tuple(int(value * 255) for value in self.processor.image_mean))


class PlainVision(Vision):
    """LLaVA-1.5: one square an image, cut from the middle ("crop") or padded with the mean colour ("pad").

    Source: model_vqa.py crops, whatever the checkpoint's image_aspect_ratio says; the demo code pads.
    """

    modes = ("crop", "pad")

    def default_mode(self, n_images: int) -> str:
        return "crop"

    def n_tokens(self, size: Size, mode: str) -> int:
        vision = self.model.config.vision_config
        patches = int(vision.image_size // vision.patch_size) ** 2
        return patches + (self.model.config.vision_feature_select_strategy == "full")

    def check(self, size: Size, mode: str) -> None:
        edge = dict(self.processor.size).get("shortest_edge") or 0
        if mode == "crop" and edge * edge * max(size) / min(size) > MAX_PIXELS:  # it scales the short side up
            raise ValueError(
                f"an image of {size[0]} x {size[1]} pixels is too narrow: scaled to a short side of {edge} it would"
                f" exceed {MAX_PIXELS} pixels; crop it"
            )

    def tiles(self, images: Sequence[Image.Image], mode: str) -> list[torch.Tensor]:
        prepared = list(map(self.squared, images)) if mode == "pad" else list(images)
        return list(self.processor(prepared, return_tensors="pt")["pixel_values"].unsqueeze(1))

    def project(self, states: torch.Tensor, size: Size, mode: str) -> torch.Tensor:
        projected: torch.Tensor = self.model.model.multi_modal_projector(states)[0]
        return projected

    def features(self, tiles: Sequence[torch.Tensor], sizes: Sequence[Size], mode: str) -> list[torch.Tensor]:
        return list(self.model.model.multi_modal_projector(self.encode(torch.cat(list(tiles)))))


class TiledVision(Vision):
    """LLaVA-NeXT/OneVision: the whole image and a grid of tiles ("anyres"), or one padded square ("pad").

    Two images or more in a prompt are padded, as in the original's training.
    """

    modes = ("anyres", "pad")

    def __init__(self, model: Any, image_processor: Any) -> None:
        super().__init__(model, image_processor)
        config = model.config
        self.side = int(config.vision_config.image_size)
        self.across = self.side // int(config.vision_config.patch_size)  # patches along a tile's side
        self.grid = [(int(width), int(height)) for height, width in config.image_grid_pinpoints]
        most = re.fullmatch(r"anyres_max_(\d+)", config.vision_aspect_ratio)
        self.most = int(most[1]) if most else None  # tiles' worth of features after which they are thinned out

    def default_mode(self, n_images: int) -> str:
        return "anyres" if n_images == 1 else "pad"

    def n_tokens(self, size: Size, mode: str) -> int:
        base = self.across**2
        if mode == "pad":
            return base + 1
        width, height = self._shape(size)[-1]
        return base + height * (width + 1)

    def check(self, size: Size, mode: str) -> None:
        if mode == "anyres" and min(self._shape(size)[-1]) < 1:  # no row or column of features would be left
            raise ValueError(f"an image of {size[0]} x {size[1]} pixels is too narrow for tiles; crop it")

    def tiles(self, images: Sequence[Image.Image], mode: str) -> list[torch.Tensor]:
        return [self._tiles(image, mode) for image in images]

    def _tiles(self, image: Image.Image, mode: str) -> torch.Tensor:
        bicubic, side = Image.Resampling.BICUBIC, self.side
        squares = [self.squared(image)]
        if mode != "pad":
            canvas = _letterboxed(image, self._best(image.size))
            squares = [image]  # the whole image is squeezed into a square, not padded
            squares += [
                canvas.crop((left, top, left + side, top + side))
                for top in range(0, canvas.height, side)
                for left in range(0, canvas.width, side)
            ]
        levels = np.stack([np.asarray(square.resize((side, side), bicubic)) for square in squares])
        processor = self.processor
        mean, std = (np.array(values, dtype=np.float32) for values in (processor.image_mean, processor.image_std))
        values = (levels.astype(np.float32) * np.float32(1 / 255) - mean) / std
        return torch.from_numpy(values).permute(0, 3, 1, 2).contiguous()

    def project(self, states: torch.Tensor, size: Size, mode: str) -> torch.Tensor:
        """The states of all tiles, laid out as one picture without its margins, a newline after each row."""
        inner = self.model.model
        projected = inner.multi_modal_projector(states)
        newline = weight_of(inner, "image_newline").to(projected)
        if mode == "pad":
            return torch.cat([projected[0], newline[None]])
        (columns, rows), crop, (width, height) = self._shape(size)
        picture = projected[1:].view(rows, columns, self.across, self.across, -1)
        picture = picture.permute(4, 0, 2, 1, 3).flatten(1, 2).flatten(2, 3)
        picture = picture[:, crop[1], crop[0]]
        if picture.shape[1:] != (height, width):
            picture = torch.nn.functional.interpolate(picture[None], [height, width], mode="bilinear")[0]
        picture = torch.cat([picture, newline[:, None, None].expand(-1, height, 1)], dim=-1)
        return torch.cat([projected[0], picture.flatten(1, 2).T])

    def _best(self, size: Size) -> Size:
        """The resolution of the grid that keeps most of the image's pixels, then the one that wastes least."""

        def worth(resolution: Size) -> tuple[int, int]:
            scale = min(resolution[0] / size[0], resolution[1] / size[1])
            kept = min(int(size[0] * scale) * int(size[1] * scale), size[0] * size[1])
            return kept, kept - resolution[0] * resolution[1]

        return max(self.grid, key=worth)  # the first of equals, as the original

    def _shape(self, size: Size) -> tuple[Size, tuple[slice, slice], Size]:
        """How an image lies on the grid: tiles (across, down), the features kept of them, and (width, height) at last.

        The margin's width is cut without rounding first, as in the original; transformers rounds at the seventh digit.
        """
        columns, rows = (edge // self.side for edge in self._best(size))
        full = (columns * self.across, rows * self.across)
        if size[0] / size[1] > full[0] / full[1]:
            margin = (full[1] - int(size[1] * (full[0] / size[0]))) // 2
            crop = (slice(0, full[0]), slice(margin, full[1] - margin))
        else:
            margin = (full[0] - int(size[0] * (full[1] / size[1]))) // 2
            crop = (slice(margin, full[0] - margin), slice(0, full[1]))
        width, height = (part.stop - part.start for part in crop)
        if self.most is not None:
            times = math.sqrt(height * width / (self.most * self.across**2))
            if times > 1.1:
                width, height = int(width // times), int(height // times)
        return (columns, rows), crop, (width, height)


def _letterboxed(image: Image.Image, size: Size) -> Image.Image:
    """An image scaled into `size`, on black."""
    across, down = size[0] / image.width, size[1] / image.height
    if across < down:
        scaled = (size[0], min(math.ceil(image.height * across), size[1]))
    else:
        scaled = (min(math.ceil(image.width * down), size[0]), size[1])
    canvas = Image.new("RGB", size, (0, 0, 0))
    resized = image.resize(scaled, Image.Resampling.BICUBIC)
    canvas.paste(resized, ((size[0] - scaled[0]) // 2, (size[1] - scaled[1]) // 2))
    return canvas


TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "text_replacement_offsets")
KINDS_OF_TOKEN = ("mm_token_type_ids", "token_type_ids")  # where a processor says which tokens are an image's


class ImageSource:
    """The images of a call by key; equal images that are prepared alike have one. `encoded` counts those that were
    encoded.

    Both kinds have `place(prompt, keys)`, the prompt for the encoder and the places of each image; `fetch(keys)`, which
    has images ready, key -> why one can't be had; `inputs(ids, keys)`, what the model takes for rows, padded on the
    left.
    """

    def __init__(self, model: VisionLanguageModel, mode: str | None = None) -> None:
        self.model, self.mode, self.encoded = model, mode, 0
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
    """A LLaVA model's images: features by key, each encoded once; `mode` is of `vision.modes`, or None for the own."""

    def __init__(self, model: VisionLanguageModel, mode: str | None = None) -> None:
        super().__init__(model, mode)
        self.vision = vision_of(model.model, model.image_processor)
        if mode is not None and mode not in self.vision.modes:
            raise ValueError(f"image_mode {mode!r} is unknown to this judge; use one of {self.vision.modes}")
        self._capacity = FEATURES_KEPT // (model.model.config.get_text_config().hidden_size * model.dtype.itemsize)
        self._modes: dict[str, str] = {}
        self._chunks: dict[str, tuple[str, ...]] = {}  # key -> the images that it is encoded with
        self._features: OrderedDict[str, torch.Tensor] = OrderedDict()
        self._broken: dict[str, str] = {}

    def n_tokens(self, key: str) -> int:
        """How many places an image takes."""
        return self.vision.n_tokens(self._sizes[key], self._modes[key])

    def place(self, prompt: Prompt, keys: Sequence[str]) -> tuple[Prompt, list[int]]:
        return prompt, [self.n_tokens(key) for key in keys]

    def settle(self, keys: Iterable[str]) -> None:
        fresh = [key for key in dict.fromkeys(keys) if key not in self._chunks]
        for start in range(0, len(fresh), ENCODED_TOGETHER):
            chunk = tuple(fresh[start : start + ENCODED_TOGETHER])
            self._chunks |= dict.fromkeys(chunk, chunk)

    def fetch(self, keys: Sequence[str]) -> dict[str, str]:
        for key in keys:
            if key not in self._features and key not in self._broken:
                self._encode(self._chunks.get(key, (key,)))
            if key in self._features:
                self._features.move_to_end(key)
        size = sum(map(len, self._features.values()))
        while size > self._capacity and (oldest := next(iter(self._features))) not in keys:
            size -= len(self._features.pop(oldest))
        return {key: self._broken[key] for key in keys if key in self._broken}

    def inputs(self, ids: Sequence[Tokens], keys: Sequence[Sequence[str]]) -> dict[str, torch.Tensor]:
        padded, mask = left_padded(ids, 0, self.model.device)
        features = [self._features[key] for row in keys for key in row]
        return {"inputs_embeds": embedded(self.model, padded, features), "attention_mask": mask}

    def pixels(self, keys: Sequence[str]) -> list[torch.Tensor]:
        """The pixel values of images, each (tiles, 3, side, side), as they are encoded."""
        return [self.vision.tiles([self._again[key]()], self._modes[key])[0] for key in keys]

    def features(self, key: str) -> torch.Tensor:
        """The features of a fetched image, (tokens, hidden)."""
        return self._features[key]

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
                if len(feature) != self.n_tokens(name):
                    raise ValueError(
                        f"the vision tower gave {len(feature)} tokens an image and the prompt holds"
                        f" {self.n_tokens(name)}: image size and patch size of the checkpoint disagree"
                    )
                self._features[name] = feature.clone()  # its own memory, so that dropping it frees it
            self.encoded += len(names)


class ProcessedImages(ImageSource):
    """A chat model's images, by its own processor, encoded with their prompts; none for a judge of texts."""

    def __init__(self, model: VisionLanguageModel, mode: str | None = None) -> None:
        super().__init__(model)
        if mode is not None:
            own = "prepares images by its own processor alone" if model.sees_images else "reads no images"
            raise ValueError(f"image_mode {mode!r}: this judge {own}")
        self.pad = model.tokenizer.pad_token_id or 0
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
        padded, mask = left_padded(ids, self.pad, self.model.device)
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
    mask = np.zeros((len(ids), width), dtype=np.int64)
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
