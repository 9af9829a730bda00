"""Turn images into what a model takes: features of the LLaVA families, or a chat model's pixels.

In the LLaVA families an image becomes tiles (tiles, 3, side, side). Its features are arranged as in
the original code, which rounds a tiled image's margins in another way than transformers.

Source: kaistAI/prometheus-vision llava/mm_utils.py and llava/eval/model_vqa.py; LLaVA-VL/LLaVA-NeXT
llava/mm_utils.py (process_anyres_image) and llava/model/llava_arch.py
(prepare_inputs_labels_for_multimodal).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.functional import interpolate
from torch.nn.utils.rnn import pad_sequence
from transformers import BatchFeature
from transformers.image_processing_utils import select_best_resolution

from vjudge.images import pad_to_square
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Prompt, split

if TYPE_CHECKING:
    from vjudge.engines.rows import TokenizedT

Size = tuple[int, int]  # (width, height) in pixels, as PIL has it
Prepared = tuple[torch.Tensor, Size, str]  # tiles (tiles, 3, side, side), size of the image, mode
Keys = Sequence[str]  # names of images, equal for equal images
Ids = Sequence[Sequence[int]]  # the token ids of rows
Inputs = dict[str, Any]  # the arguments of a model's `forward`

IMAGE_MODES = {"llava": ("crop", "pad"), "llava_onevision": ("anyres", "pad")}
"""Model type -> the mode for one image in a prompt, and the mode for several (of tiled models)."""
MAX_ASPECT_RATIO = 200  # no model sees anything in an image that is longer than that
TOKEN_TYPE_INPUTS = ("mm_token_type_ids", "token_type_ids")  # which tokens are an image's
TEXT_INPUTS = ("input_ids", "attention_mask", "text_replacement_offsets")


class CallImages:
    """Hold the images of a call by key; this base class hands opened images to an engine.

    `keys` names images, `place` puts their tokens into a prompt, `fetch` loads those of a batch,
    and `inputs` makes what the model takes.

    Args:
        model: the model that sees the images.
        mode: how a LLaVA's images are cut; None for the family's own way.

    Attributes:
        features: key -> what `fetched` returned, for the images of the present batch.
        encoded: how many images were encoded.

    Raises:
        ValueError: a mode that the model does not have.
    """

    def __init__(self, model: VisionLanguageModel, mode: str | None = None) -> None:
        modes = ("", "")
        if model.kind == "llava":
            modes = IMAGE_MODES[model.model.config.model_type]
        if mode is not None and mode not in modes:
            raise ValueError(f"image_mode={mode!r}: use None, or for this judge one of {modes}")
        self.modes = modes if mode is None else (mode, mode)
        self.model = model
        self.encoded = 0
        self.features: dict[str, Any] = {}
        self.pictures: dict[str, tuple[Any, str]] = {}  # key -> image, mode

    def keys(self, pictures: Sequence[Any]) -> tuple[str, ...]:
        """Name a prompt's images; equal images in the same mode get the same key.

        Raises:
            ValueError: the model reads no images.
        """
        if pictures and not self.model.sees_images:
            raise ValueError(
                "this judge reads no images: use a template whose sees_images is False"
            )
        # A tiled model was trained with several images per prompt that were padded, not tiled.
        is_one_of_several = self.model.tiled and len(pictures) > 1
        mode = self.modes[1] if is_one_of_several else self.modes[0]
        keys = []
        for picture in pictures:
            key = f"{mode}:{picture.key}"
            self.pictures.setdefault(key, (picture, mode))
            keys.append(key)
        return tuple(keys)

    def place(self, prompt: Prompt, keys: Keys) -> tuple[Prompt, Sequence[int] | None]:
        """Prepare a prompt for the encoder.

        Args:
            prompt: the prompt.
            keys: the keys of its images, in order.

        Returns:
            The prompt, in which a subclass may replace images by control tokens; and how many
            places each image takes: here one. None instead of the numbers stands for the encoder's
            own.
        """
        return prompt, [1] * len(keys)

    def fetched(self, key: str) -> Any:
        """Return an image as `inputs` takes it; here opened."""
        return self.pictures[key][0].open()

    def inputs(self, ids: Ids, keys: Sequence[Keys]) -> Inputs:
        """Return what the model takes for rows whose images were fetched, padded on the left.

        Args:
            ids: the token ids of each row.
            keys: the keys of each row's images.
        """
        raise NotImplementedError

    def fetch(self, rows: Sequence[TokenizedT]) -> list[TokenizedT]:
        """Load the images of a batch into `features`; return the rows whose images could be loaded.

        The other rows get a `failure`. Images of the last batch are reused where a row of this one
        has them, and dropped otherwise.
        """
        loaded = self.features
        self.features = {}
        for row in rows:
            try:
                for key in row.keys:
                    if key not in loaded:
                        loaded[key] = self.fetched(key)
                    self.features[key] = loaded[key]
            except (ValueError, OSError) as error:
                row.failure = str(error)
        return [row for row in rows if row.failure is None]


class GridLayout(NamedTuple):
    """How an image lies on a grid of tiles."""

    down: int  # how many tiles from top to bottom
    across: int  # how many tiles from left to right
    rows: slice  # the rows of patches that the image covers, without the margins
    columns: slice  # the same for the columns of patches
    shape: Size  # (height, width) of the features that remain, unlike the size of an image


class ImageFeatures(CallImages):
    """The images of a LLaVA model: `features` are the projector's output, each computed once.

    LLaVA-1.5 sees one square: cut from the middle ("crop", as model_vqa.py does whatever
    image_aspect_ratio says) or padded with the mean colour ("pad", as the demo does). OneVision
    sees the whole image and a grid of tiles ("anyres"), or one padded square where a prompt has
    several images, as in training.
    """

    def __init__(self, model: VisionLanguageModel, mode: str | None) -> None:
        super().__init__(model, mode)
        self.config = model.model.config
        self.processor = model.image_processor
        self.side = int(self.config.vision_config.image_size)  # of a tile, in pixels
        self.across = self.side // self.config.vision_config.patch_size  # of a tile, in patches

    def place(self, prompt: Prompt, keys: Keys) -> tuple[Prompt, list[int]]:
        """Return the prompt, and how many places each of its images takes.

        Raises:
            ValueError: an image is too narrow.
        """
        image_tokens = []
        for key in keys:
            picture, mode = self.pictures[key]
            size = picture.size
            n_tokens = self.model.tokens_per_image
            is_too_narrow = max(size) > MAX_ASPECT_RATIO * min(size)
            if mode == "anyres":
                height, width = self._layout(size).shape
                # the tokens of the whole image, and those of the grid, with a newline for each row
                n_tokens = self.across**2 + height * (width + 1)
                is_too_narrow = is_too_narrow or min(height, width) < 1
            if is_too_narrow:
                raise ValueError(
                    f"an image of {size[0]} x {size[1]} pixels is too narrow for this judge; crop"
                    " it"
                )
            image_tokens.append(n_tokens)
        return prompt, image_tokens

    def inputs(self, ids: Ids, keys: Sequence[Keys]) -> Inputs:
        """Return embeddings with features in the places of images, see `CallImages.inputs`."""
        # token 0 fills the padding, which the mask hides
        padded, mask = left_padded(ids, 0, self.model.device)
        features = [self.features[key] for row in keys for key in row]
        return {"inputs_embeds": embedded(self.model, padded, features), "attention_mask": mask}

    @torch.no_grad()
    def fetched(self, key: str) -> torch.Tensor:
        """Encode one image, by itself: the last bits depend on which images are encoded with it."""
        self.encoded += 1
        return self.encode(*self.prepare(key))

    def prepare(self, key: str) -> Prepared:
        """Open an image and cut it into tiles; return the three arguments of `encode`.

        These are the tiles (tiles, 3, side, side), a single one for LLaVA-1.5; the size of the
        image; and its mode.
        """
        picture, mode = self.pictures[key]
        image = picture.open()
        if mode == "pad":
            background = tuple(int(value * 255) for value in self.processor.image_mean)
            image = pad_to_square(image, background)
        if not self.model.tiled:
            return self.processor(image, return_tensors="pt")["pixel_values"], picture.size, mode
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
            tiles = tiles[:1]  # the whole image comes first, and there are no tiles of it
        return tiles, picture.size, mode

    def encode(self, tiles: torch.Tensor, size: Size, mode: str) -> torch.Tensor:
        """Compute an image's features as they stand in a prompt, (tokens, hidden).

        Args:
            tiles: (tiles, 3, side, side); of OneVision the first is the whole image.
            size: of the image, before it was cut or padded.
            mode: "crop" or "pad" for LLaVA-1.5, "anyres" or "pad" for OneVision.
        """
        # 1) tower and projector
        inner = self.model.model.model
        pixels = tiles.to(self.model.device, self.model.dtype)
        states = inner.vision_tower(pixels, output_hidden_states=True).hidden_states
        chosen = states[self.config.vision_feature_layer]  # (tiles, patches, width)
        if self.config.vision_feature_select_strategy == "default":
            chosen = chosen[:, 1:]  # without the class token
        projected = inner.multi_modal_projector(chosen)  # (tiles, patches, hidden)
        if not self.model.tiled:
            return projected[0]
        # 2) OneVision: the whole image, then the grid of tiles, or a single newline
        newline = inner.image_newline  # (hidden,)
        if newline.device.type == "meta":  # accelerate moved it to memory where no module sees it
            newline = inner._hf_hook.weights_map["image_newline"]
        newline = newline.to(projected)
        after_whole = newline[None]
        if mode == "anyres":
            after_whole = self._grid(projected[1:], newline, size)
        return torch.cat([projected[0], after_whole])

    def _grid(self, tiles: torch.Tensor, newline: torch.Tensor, size: Size) -> torch.Tensor:
        """Join the features of tiles into one large image; put a newline after each of its rows.

        Tiles of 2 x 2 patches, two across:

            a b | e f
            c d | g h     ->  a b e f newline c d g h newline

        Args:
            tiles: features (tiles, patches, hidden), the tiles row by row.
            newline: its features (hidden,).
            size: of the image.

        Returns:
            Features (height * (width + 1), hidden).
        """
        layout = self._layout(size)
        # 1) put the tiles next to each other, (hidden, patches down, patches across)
        joined = tiles.view(layout.down, layout.across, self.across, self.across, -1)
        joined = joined.permute(4, 0, 2, 1, 3).flatten(1, 2).flatten(2, 3)
        # 2) cut off the margins, and reduce the number of features where there are too many
        joined = joined[:, layout.rows, layout.columns]
        if joined.shape[1:] != layout.shape:
            joined = interpolate(joined[None], layout.shape, mode="bilinear")[0]
        # 3) a newline as the last column
        newlines = newline[:, None, None].expand(-1, layout.shape[0], 1)
        rows = torch.cat([joined, newlines], dim=-1)  # (hidden, height, width + 1)
        return rows.flatten(1).T

    def _layout(self, size: Size) -> GridLayout:
        """Compute how an image lies on its grid of tiles.

        An image of 600 x 200 pixels on two tiles across, one down, of 27 x 27 patches each: the
        grid has 54 x 27 patches. The image is as wide as the grid, and

            200 * (54 / 600) = 18 patches high,  (27 - 18) // 2 = 4 rows are cut at top and bottom

        so that 19 rows remain. The height is cut to a whole number first, as in the original code;
        transformers rounds it.
        """
        # 1) the grid, in tiles and in patches; transformers takes and returns (height, width)
        best = select_best_resolution(size[::-1], self.config.image_grid_pinpoints)
        down = best[0] // self.side
        across = best[1] // self.side
        height = down * self.across
        width = across * self.across
        # 2) cut off the margins: top and bottom of a wide image, left and right of any other
        top = left = 0
        if size[0] / size[1] > width / height:
            top = (height - int(size[1] * (width / size[0]))) // 2
        else:
            left = (width - int(size[0] * (height / size[1]))) // 2
        rows = slice(top, height - top)
        columns = slice(left, width - left)
        height -= 2 * top
        width -= 2 * left
        # 3) "anyres_max_9" allows as many features as nine tiles have. If there are more, height
        # and width are divided by one factor; up to 1.1 is tolerated, as in the original code
        limit, _, n_tiles = str(getattr(self.config, "vision_aspect_ratio", "")).rpartition("_")
        if limit == "anyres_max":
            factor = math.sqrt(height * width / (int(n_tiles) * self.across**2))
            if factor > 1.1:
                height = int(height // factor)
                width = int(width // factor)
        return GridLayout(down, across, rows, columns, (height, width))


class ProcessedImages(CallImages):
    """The images of a chat model, which its own processor prepares; or none, of a text judge.

    `features` are the opened images: they are encoded together with the prompts they stand in.
    """

    def __init__(self, model: VisionLanguageModel, mode: str | None) -> None:
        super().__init__(model, mode)
        self.processor = model.processor
        self.parts_of_sizes: dict[tuple[Size, ...], list[Any]] = {}  # sizes -> tokens of each image

    def place(self, prompt: Prompt, keys: Keys) -> tuple[Prompt, None]:
        """Return the prompt with each image's own tokens in its place.

        Raises:
            ValueError: the processor refuses an image.
        """
        if not keys:
            return prompt, None
        pictures = [self.pictures[key][0] for key in keys]
        # The sizes alone decide an image's tokens, so the processor is asked once for equal sizes.
        sizes = tuple(picture.size for picture in pictures)
        if sizes not in self.parts_of_sizes:
            opened = [picture.open() for picture in pictures]
            outputs = self._process([opened], return_text_replacement_offsets=True)
            (replaced,) = outputs["text_replacement_offsets"]
            controls = list(self.model.tokenizer.get_added_vocab())
            parts = [split(image["replacement"], controls) for image in replaced]
            self.parts_of_sizes[sizes] = parts
        return prompt.with_images(self.parts_of_sizes[sizes]), None

    def inputs(self, ids: Ids, keys: Sequence[Keys]) -> Inputs:
        """Return token ids and what the processor makes of the images, see `CallImages.inputs`."""
        # 1) the token ids, which hold the images' tokens already
        padded, mask = left_padded(ids, self.model.tokenizer.pad_token_id or 0, self.model.device)
        inputs = {"input_ids": padded, "attention_mask": mask}
        # 2) the images of each row that has any
        images = []
        for row in keys:
            if row:
                images.append([self.features[key] for key in row])
        if images:
            outputs = self._process(images, padding=True)
            for name in outputs:
                if name in TOKEN_TYPE_INPUTS:  # of our ids, and not of the processor's own text
                    types = self.processor.create_mm_token_type_ids(padded.tolist())
                    inputs[name] = torch.tensor(types).to(mask) * mask
                elif name not in TEXT_INPUTS:
                    inputs[name] = outputs[name]
            self.encoded += sum(map(len, images))
        # `to` changes the precision of floating-point inputs alone.
        return dict(BatchFeature(inputs).to(self.model.device, dtype=self.model.dtype))

    def _process(self, images: Sequence[list[Any]], **options: Any) -> Any:
        """Run the processor on the images of rows, with a text of image tokens per row."""
        text = [self.processor.image_token * len(row) for row in images]
        return self.processor(images=list(images), text=text, return_tensors="pt", **options)


def call_images(model: VisionLanguageModel, mode: str | None = None) -> CallImages:
    """Return an object that holds the images of a call, for the kind of model that sees them.

    Args:
        model: the model.
        mode: as for `CallImages`.

    Raises:
        ValueError: a mode that the model does not have.
    """
    images_class: Any = ImageFeatures if model.kind == "llava" else ProcessedImages
    return images_class(model, mode)


def left_padded(ids: Ids, pad: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows of tokens on the left.

    Args:
        ids: the token ids of each row.
        pad: the token id that fills the padding; the mask hides it from the model.
        device: where the tensors go.

    Returns:
        The token ids (rows, longest); and their mask (rows, longest), 1 for a token and 0 for
        padding.
    """
    rows = list(map(torch.tensor, ids))
    left = partial(pad_sequence, batch_first=True, padding_side="left")
    padded = left(rows, padding_value=pad)
    mask = left(list(map(torch.ones_like, rows)))
    return padded.to(device), mask.to(device)


def embedded(
    model: VisionLanguageModel, ids: torch.Tensor, features: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Embed token ids (rows, tokens), with image features in the places of images.

    Args:
        model: its embeddings are used.
        ids: token ids, `model.image_token_id` at each place of an image.
        features: those of all images, (places, hidden) each, in the order of their places.

    Returns:
        Embeddings (rows, tokens, hidden).
    """
    embed = model.model.get_input_embeddings()
    is_image: Any = ids == model.image_token_id  # (rows, tokens)
    inputs = embed(ids.masked_fill(is_image, 0)).to(ids.device)
    if not features:
        return inputs
    states = torch.cat([feature.to(inputs) for feature in features])  # (all places, hidden)
    return inputs.masked_scatter(is_image.unsqueeze(-1), states)
