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
from functools import partial
from typing import Any

import torch
from torch.nn.functional import interpolate
from torch.nn.utils.rnn import pad_sequence
from transformers import BatchFeature
from transformers.image_processing_utils import select_best_resolution

from vjudge.images import pad_to_square
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Prompt, split

Size = tuple[int, int]  # (width, height) in pixels, as PIL has it
Prepared = tuple[torch.Tensor, Size, str]  # tiles (tiles, 3, side, side), size of the image, mode
Keys = Sequence[str]
Ids = Sequence[Sequence[int]]
Inputs = dict[str, Any]
IMAGE_MODES = {"llava": ("crop", "pad"), "llava_onevision": ("anyres", "pad")}
MAX_ASPECT_RATIO = 200  # times as long as wide: no model sees anything in such an image
KINDS_OF_TOKEN = ("mm_token_type_ids", "token_type_ids")  # which tokens are an image's
TEXT_INPUTS = ("input_ids", "attention_mask", "text_replacement_offsets")


class CallImages:
    """The images of a call by key; `features` holds what was fetched of the present batch's.

    `keys` names images, `place` puts their tokens into a prompt, `fetch` loads those of a batch,
    and `inputs` makes what the model takes.
    """

    def __init__(self, model: VisionLanguageModel, mode: str | None = None) -> None:
        modes = ("", "")
        if model.kind == "llava":
            modes = IMAGE_MODES[model.model.config.model_type]
        if mode is not None and mode not in modes:
            raise ValueError(f"image_mode={mode!r}: use None, or for this judge one of {modes}")
        self.modes = modes if mode is None else (mode, mode)
        self.model = model
        self.encoded = 0  # how many images were encoded
        self.features: dict[str, Any] = {}
        self.pictures: dict[str, tuple[Any, str]] = {}  # key -> picture, mode

    def keys(self, pictures: Sequence[Any]) -> tuple[str, ...]:
        """Name a prompt's pictures, equal ones alike."""
        if pictures and not self.model.sees_images:
            raise ValueError(
                "this judge reads no images: use a template whose sees_images is False"
            )
        mode = self.modes[self.model.tiled and len(pictures) > 1]
        keys = []
        for picture in pictures:
            key = f"{mode}:{picture.key}"
            self.pictures.setdefault(key, (picture, mode))
            keys.append(key)
        return tuple(keys)

    def place(self, prompt: Prompt, keys: Keys) -> tuple[Prompt, Sequence[int] | None]:
        """The prompt for the encoder, and the places that each of its images takes: here one."""
        return prompt, [1] * len(keys)

    def fetched(self, key: str) -> Any:
        """An image as `inputs` takes it: here opened."""
        return self.pictures[key][0].open()

    def inputs(self, ids: Ids, keys: Sequence[Keys]) -> Inputs:
        """What the model takes for rows whose images were fetched, padded on the left."""
        raise NotImplementedError

    def fetch(self, rows: Sequence[Any]) -> list[Any]:
        """Load the images of a batch; returns the rows whose images could be loaded, others fail.

        Images of the batch before are reused, and those that no row has are dropped.
        """
        before = self.features
        self.features = {}
        for row in rows:
            try:
                for key in row.keys:
                    if key not in before:
                        before[key] = self.fetched(key)
                    self.features[key] = before[key]
            except (ValueError, OSError) as error:
                row.failure = str(error)
        return [row for row in rows if row.failure is None]


class ImageFeatures(CallImages):
    """A LLaVA model's images: `features` are what the projector gives, each encoded once.

    LLaVA-1.5 sees one square: cut from the middle ("crop", as model_vqa.py does whatever
    image_aspect_ratio says) or padded with the mean colour ("pad", as the demo does). OneVision
    sees the whole image and a grid of tiles ("anyres"), or one padded square where a prompt has
    several images, as in training.
    """

    def __init__(self, model: VisionLanguageModel, mode: str | None) -> None:
        super().__init__(model, mode)
        self.config = model.model.config
        self.processor = model.image_processor
        self.side = int(self.config.vision_config.image_size)
        self.across = self.side // self.config.vision_config.patch_size  # patches along a tile

    def place(self, prompt: Prompt, keys: Keys) -> tuple[Prompt, list[int]]:
        """As above; ValueError: an image is too narrow."""
        places = []
        for key in keys:
            picture, mode = self.pictures[key]
            size = picture.size
            n_tokens = self.model.tokens_per_image
            narrow = max(size) > MAX_ASPECT_RATIO * min(size)
            if mode == "anyres":
                _, _, (height, width) = self._layout(size)
                n_tokens = self.across**2 + height * (width + 1)
                narrow = narrow or height < 1 or width < 1  # no row or column is left
            if narrow:
                raise ValueError(
                    f"an image of {size[0]} x {size[1]} pixels is too narrow for this judge; crop"
                    " it"
                )
            places.append(n_tokens)
        return prompt, places

    def inputs(self, ids: Ids, keys: Sequence[Keys]) -> Inputs:
        """See `CallImages.inputs`."""
        padded, mask = left_padded(ids, 0, self.model.device)
        features = [self.features[key] for row in keys for key in row]
        return {"inputs_embeds": embedded(self.model, padded, features), "attention_mask": mask}

    @torch.no_grad()
    def fetched(self, key: str) -> torch.Tensor:
        """An image's features."""
        # One at a time: the last bits depend on who is encoded along.
        self.encoded += 1
        return self.encode(*self.prepare(key))

    def prepare(self, key: str) -> Prepared:
        """An image's tiles; a huge one that is padded is reduced first."""
        picture, mode = self.pictures[key]
        image = picture.open()
        if mode == "pad":
            background = tuple(int(value * 255) for value in self.processor.image_mean)
            image = pad_to_square(image, background)
        if self.model.tiled:
            grid = self.config.image_grid_pinpoints
            if mode == "pad":
                grid = [[self.side, self.side]]
            (tiles,) = self.processor(
                image,
                size={"height": self.side, "width": self.side},
                image_grid_pinpoints=grid,
                return_tensors="pt",
            )["pixel_values"]
            if mode == "pad":
                tiles = tiles[:1]  # the whole image stands first
        else:
            tiles = self.processor(image, return_tensors="pt")["pixel_values"]
        return tiles, picture.size, mode

    def encode(self, tiles: torch.Tensor, size: Size, mode: str) -> torch.Tensor:
        """An image's features as they stand in a prompt, (tokens, hidden)."""
        inner = self.model.model.model
        pixels = tiles.to(self.model.device, self.model.dtype)
        states = inner.vision_tower(pixels, output_hidden_states=True).hidden_states
        chosen = states[self.config.vision_feature_layer]
        if self.config.vision_feature_select_strategy == "default":
            chosen = chosen[:, 1:]  # without the class token
        projected = inner.multi_modal_projector(chosen)
        if not self.model.tiled:
            return projected[0]
        newline = inner.image_newline
        if newline.device.type == "meta":  # accelerate's hook keeps it elsewhere
            newline = inner._hf_hook.weights_map["image_newline"]
        newline = newline.to(projected)
        margin = newline[None]
        if mode == "anyres":
            margin = self._grid(projected[1:], newline, size)
        return torch.cat([projected[0], margin])

    def _grid(self, tiles: torch.Tensor, newline: torch.Tensor, size: Size) -> torch.Tensor:
        """Lay the features of a grid's tiles out as one picture, a newline after each row."""
        (down, across), crop, shape = self._layout(size)
        picture = tiles.view(down, across, self.across, self.across, -1)
        picture = picture.permute(4, 0, 2, 1, 3).flatten(1, 2).flatten(2, 3)[crop]
        if picture.shape[1:] != shape:
            picture = interpolate(picture[None], shape, mode="bilinear")[0]
        newlines = newline[:, None, None].expand(-1, shape[0], 1)
        rows = torch.cat([picture, newlines], dim=-1)
        return rows.flatten(1).T

    def _layout(self, size: Size) -> tuple[Size, tuple[slice, ...], Size]:
        """How an image lies on its grid: tiles (down, across), features kept, (height, width).

        The margin is cut without rounding first, as in the original; transformers rounds.
        """
        best = select_best_resolution(size[::-1], self.config.image_grid_pinpoints)
        down = best[0] // self.side
        across = best[1] // self.side
        height = down * self.across
        width = across * self.across
        # 1) cut the margins
        top = left = 0
        if size[0] / size[1] > width / height:
            top = (height - int(size[1] * (width / size[0]))) // 2
        else:
            left = (width - int(size[0] * (height / size[1]))) // 2
        rows = slice(top, height - top)
        columns = slice(left, width - left)
        height -= 2 * top
        width -= 2 * left
        # 2) thin the features out beyond the most tiles
        limit, _, n_tiles = str(getattr(self.config, "vision_aspect_ratio", "")).rpartition("_")
        if limit == "anyres_max":
            times = math.sqrt(height * width / (int(n_tiles) * self.across**2))
            if times > 1.1:
                height = int(height // times)
                width = int(width // times)
        return (down, across), (slice(None), rows, columns), (height, width)


class ProcessedImages(CallImages):
    """A chat model's images, which its own processor prepares; or none, of a text judge.

    `features` are the opened images: they are encoded together with the prompts they stand in.
    """

    def __init__(self, model: VisionLanguageModel, mode: str | None) -> None:
        super().__init__(model, mode)
        self.processor = model.processor
        self.spelling: dict[tuple[Size, ...], list[Any]] = {}  # sizes -> parts of each image

    def place(self, prompt: Prompt, keys: Keys) -> tuple[Prompt, None]:
        """A prompt with each image's own tokens in its place, which the processor may refuse."""
        if not keys:
            return prompt, None
        pictures = [self.pictures[key][0] for key in keys]
        sizes = tuple(picture.size for picture in pictures)  # these alone decide the tokens
        if sizes not in self.spelling:
            opened = [picture.open() for picture in pictures]
            outputs = self._process([opened], return_text_replacement_offsets=True)
            (images,) = outputs["text_replacement_offsets"]
            controls = list(self.model.tokenizer.get_added_vocab())
            self.spelling[sizes] = [split(image["replacement"], controls) for image in images]
        return prompt.with_images(self.spelling[sizes]), None

    def inputs(self, ids: Ids, keys: Sequence[Keys]) -> Inputs:
        padded, mask = left_padded(ids, self.model.tokenizer.pad_token_id or 0, self.model.device)
        inputs = {"input_ids": padded, "attention_mask": mask}
        images = []  # of each row that has any
        for row in keys:
            if row:
                images.append([self.features[key] for key in row])
        if images:
            outputs = self._process(images, padding=True)
            for name in outputs:
                if name in KINDS_OF_TOKEN:
                    kinds = self.processor.create_mm_token_type_ids(padded.tolist())
                    inputs[name] = torch.tensor(kinds).to(mask) * mask
                elif name not in TEXT_INPUTS:
                    inputs[name] = outputs[name]
            self.encoded += sum(map(len, images))
        # The precision is for inputs with a fraction alone.
        return dict(BatchFeature(inputs).to(self.model.device, dtype=self.model.dtype))

    def _process(self, images: Sequence[list[Any]], **options: Any) -> Any:
        text = [self.processor.image_token * len(row) for row in images]
        return self.processor(images=list(images), text=text, return_tensors="pt", **options)


def call_images(model: VisionLanguageModel, mode: str | None = None) -> CallImages:
    """The images of a call, by what kind of model reads them; ValueError for an unknown mode."""
    kind: Any = ImageFeatures if model.kind == "llava" else ProcessedImages
    return kind(model, mode)


def left_padded(ids: Ids, pad: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of tokens as one tensor (rows, longest), padded on the left, and the mask."""
    rows = list(map(torch.tensor, ids))
    left = partial(pad_sequence, batch_first=True, padding_side="left")
    padded = left(rows, padding_value=pad)
    mask = left(list(map(torch.ones_like, rows)))
    return padded.to(device), mask.to(device)


def embedded(
    model: VisionLanguageModel, ids: torch.Tensor, features: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Embeddings (rows, tokens, hidden) of ids, image features in their places, in order."""
    embed = model.model.get_input_embeddings()
    is_image: Any = ids == model.image_token_id
    inputs = embed(ids.masked_fill(is_image, 0)).to(ids.device)
    if not features:
        return inputs
    states = torch.cat([feature.to(inputs) for feature in features])
    return inputs.masked_scatter(is_image.unsqueeze(-1), states)
