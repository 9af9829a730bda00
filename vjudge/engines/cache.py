"""Share the keys and values of prefixes: which rows have one in common, computed once."""

from __future__ import annotations

import inspect
import os.path
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from vjudge.engines.rows import Prefix, Request, Tokenized
from vjudge.engines.vision import CallImages, left_padded
from vjudge.models import VisionLanguageModel

SHARING_CHATS = "qwen2_vl qwen2_5_vl qwen3_vl internvl llava_next llava idefics3".split()
"""Chat models whose answers with shared prefixes were compared with their own `generate`."""
MIN_PREFIX = 8  # tokens; computing a shorter prefix apart saves nothing
SPARE_COLUMNS = 64  # free columns that a layer gets whenever it grows


def share_prefixes(rows: Sequence[Tokenized], image_token_id: int | None) -> list[Prefix]:
    """Set the prefix of each row, and return the distinct prefixes.

    A prefix holds all images of its rows. The rows come sorted by images and text, so that one pass
    over them suffices (a greedy algorithm). A row joins the newest prefix, which is truncated to
    what both have in common, if this saves more tokens than a new prefix. A new prefix has all
    tokens of its row but the last, because the model has to read at least one token after it.

    Rows 1 and 2 below have the prefix a b c d e f. Row 3 has a b c d in common with it. If it
    joins, three rows share four tokens, and two of them need not compute these: 8 tokens are saved.
    If it gets a new prefix, rows 1 and 2 still share six tokens: 6 are saved. So it joins.

        row 1   a b c d e f | 1
        row 2   a b c d e f | 2
        row 3   a b c d x y | 3

    Args:
        rows: tokens and image keys; the function sets `row.prefix` of each.
        image_token_id: the token that stands at an image's places; None for a model without images.

    Returns:
        The distinct prefixes. The position of each in this list is its `slot`, the row that it gets
        in the shared cache.
    """
    prefixes: list[Prefix] = []
    newest = Prefix([], (), 0)  # empty at first: no row can join it
    n_sharing = 0  # rows that have the newest prefix
    for row in rows:
        # 1) the shortest prefix that the row can share: it goes beyond the row's last image
        n_needed = MIN_PREFIX
        if image_token_id in row.ids:
            n_needed = max(n_needed, len(row.ids) - row.ids[::-1].index(image_token_id))
        # 2) the tokens that are saved, if the row joins the newest prefix, and if it does not:
        # of several rows that share a prefix, all but one save it
        n_common = len(os.path.commonprefix([newest.ids, row.ids[:-1]]))
        saved_if_joined = n_sharing * n_common
        saved_if_split = (n_sharing - 1) * len(newest.ids)
        # 3) join, or begin a new prefix
        can_join = newest.keys == row.keys and n_common >= n_needed
        if can_join and saved_if_joined > saved_if_split:
            newest.ids = row.ids[:n_common]
        else:
            newest = Prefix(row.ids[:-1], row.keys, len(prefixes))
            prefixes.append(newest)
            n_sharing = 0
        n_sharing += 1
        row.prefix = newest
    return prefixes


class RoomyLayer(DynamicLayer):
    """Hold a layer's keys and values, each (rows, heads, columns, width), with spare columns.

    transformers' own layer copies all columns for each token that is written. This one writes the
    new column into a buffer, and copies only when the buffer is full.

        buffer   k k k k k _ _ _     5 filled columns, 3 spare ones
        + 1      k k k k k k _ _     nothing is copied
    """

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the states of new columns; return the keys and the values of all columns.

        transformers passes further arguments to every kind of layer; this one needs none of them.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys = key_states[:, :, :0]
            self.values = value_states[:, :, :0]
            self.buffers = [self.keys, self.values]
        self.keys = self._appended(0, self.keys, key_states)
        self.values = self._appended(1, self.values, value_states)
        return self.keys, self.values

    def _appended(self, number: int, filled: Any, new: torch.Tensor) -> torch.Tensor:
        """Put `new` columns after the `filled` ones; return both as a view of the buffer.

        Args:
            number: the buffer, 0 for keys and 1 for values.
            filled: what the buffer holds so far, (rows, heads, columns, width).
            new: what comes after it, of the same shape but for the number of columns.
        """
        n_filled = filled.shape[2]
        n_columns = n_filled + new.shape[2]
        buffer = self.buffers[number]
        # Rows that were selected or reordered stand in a new tensor, no longer in the buffer.
        if buffer.data_ptr() != filled.data_ptr() or buffer.shape[2] < n_columns:
            n_rows, n_heads, _, width = new.shape
            buffer = new.new_empty((n_rows, n_heads, n_columns + SPARE_COLUMNS, width))
            buffer[:, :, :n_filled] = filled
            self.buffers[number] = buffer
        buffer[:, :, n_filled:n_columns] = new
        return buffer[:, :, :n_columns]


@dataclass
class Shared:
    """The keys and values of prefixes, one prefix per row.

    `inputs_after_prefixes` changes such an object in place: its rows are then those of a batch.

    A token's number is how many tokens its row has before it. Its position is this number plus the
    row's delta. The delta is 0 but for models with multimodal positions (Qwen-VL's M-RoPE), where
    an image of 100 tokens may advance the position by 10 only: the delta is then 10 - 100 = -90 for
    all tokens after the image.
    """

    cache: Any  # transformers' DynamicCache
    mask: torch.Tensor  # (rows, columns), 1 for a token, 0 for padding or a token to pass over
    deltas: torch.Tensor  # (rows, 1), position minus number of the tokens after a row's images


def prefill(model: VisionLanguageModel, source: CallImages, prefixes: Sequence[Prefix]) -> Shared:
    """Compute the keys and values of prefixes in one pass; the images are those of `source`."""
    # 1) tokens, padded on the left, and images
    ids = [prefix.ids for prefix in prefixes]
    keys = [prefix.keys for prefix in prefixes]
    inputs = source.inputs(ids, keys)
    mask = inputs["attention_mask"]  # (prefixes, longest)
    # 2) positions: a multimodal model computes them itself where there are images; else a
    # token's position is the number of tokens before it (padding has none and gets 0)
    computes_positions = multimodal(model) and any(keys)
    if not computes_positions:
        positions = mask.cumsum(-1) - 1
        inputs["position_ids"] = expanded(model, positions.clamp(min=0))
    # 3) one pass fills the cache; its logits are not used, and one token's are the fewest possible
    cache: Any = DynamicCache(config=model.model.config.get_text_config())
    cache.layers = [RoomyLayer() for _ in cache.layers]
    model.model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
    deltas = torch.zeros_like(mask[:, :1])  # (prefixes, 1)
    if computes_positions:
        deltas = model.model.model.rope_deltas.to(mask)
    return Shared(cache, mask, deltas)


def inputs_after_prefixes(
    model: VisionLanguageModel, rows: Sequence[Tokenized], shared: Shared
) -> dict[str, Any]:
    """Return the arguments of `generate` for rows whose prefixes are computed.

    Prefixes and the tokens after them are each padded on the left:

        prefix      | tokens after it
        . . P P P P | . R R
        P P P P P P | R R R

    Args:
        model: the model that generates.
        rows: what it reads; each row has a prefix.
        shared: the keys and values of the prefixes, by their slots. This function changes it in
            place: afterwards it holds one row for each of `rows`, in their order.
    """
    # 1) copy each prefix to its rows; `if` is for the type checker alone: every row has a prefix
    slots = torch.tensor([row.prefix.slot for row in rows if row.prefix])  # (rows,)
    shared.cache.batch_select_indices(slots)
    shared.deltas = shared.deltas[slots]  # (rows, 1)
    # 2) take the tokens after each prefix, at least one per row. Token 0 fills the padding, which
    # the mask hides
    tokens = [row.ids[-row.n_after_prefix :] for row in rows]
    ids, mask = left_padded(tokens, 0, model.device)  # (rows, longest)
    shared.mask = torch.cat([shared.mask[slots], mask], dim=1)  # (rows, columns)
    # 3) a token's position is the number of tokens before it, plus the row's delta (see `Shared`)
    positions = shared.mask.cumsum(1) - 1  # (rows, columns)
    positions = positions[:, -ids.shape[1] :].clamp(min=0) + shared.deltas  # (rows, longest)
    return {
        "input_ids": ids,
        "attention_mask": shared.mask,
        "position_ids": expanded(model, positions),
        "past_key_values": shared.cache,
    }


def keep_for_readings(rows: Sequence[Request], shared: Shared) -> None:
    """Let each row's readings begin with the keys and values that its answer left in the cache.

    A reading repeats the prompt and the beginning of the answer. Of the row's columns, those that
    the reading repeats become its prefix, and the others are masked out. For a reading whose first
    5 tokens are in the cache of a row with 6 tokens:

        column    0 1 2 3 4 5 6 7
        token     . P P P . R W W     padding, prefix, rest of the prompt, written
        mask      0 1 1 1 0 1 1 1
        number    0 1 2 3 3 4 5 6     the cumulative sum of the mask
        new mask  0 1 1 1 0 1 1 0     numbers above n_valid = 5 are masked out

    Args:
        rows: requests whose readings are planned; this function sets `reading.prefix` of each.
        shared: the keys and values of the requests, in their order, after `generate`: the cache has
            columns for what was written, and the mask has none yet. The mask is changed.
    """
    n_written = shared.cache.get_seq_length() - shared.mask.shape[1]
    shared.mask = pad(shared.mask, (0, n_written), value=1)  # (rows, columns)
    for slot, row in enumerate(rows):
        if not row.readings:
            continue
        # The first reading has an empty stem. What the cache holds of it, all others begin with.
        ids = row.readings[0].ids
        # The model never read the last token that was written, so that the cache lacks it. One
        # token of a reading has to be left, too, which the model can read.
        n_cached = len(row.ids) + len(row.writing.tokens) - 1
        n_valid = min(n_cached, len(ids) - 1)
        number = shared.mask[slot].cumsum(0)  # (columns,)
        shared.mask[slot, number > n_valid] = 0
        prefix = Prefix(ids[:n_valid], row.keys, slot)
        for reading in row.readings:
            reading.prefix = prefix


def multimodal(model: VisionLanguageModel) -> bool:
    """Tell whether tokens have three positions (time, height, width), as in Qwen-VL's M-RoPE."""
    return hasattr(getattr(model.model, "model", None), "rope_deltas")


def expanded(model: VisionLanguageModel, positions: torch.Tensor) -> torch.Tensor:
    """Return positions (rows, tokens) in the shape that the model takes.

    A multimodal model takes (3, rows, tokens): time, height and width, which are equal for text.
    Any other model takes (rows, tokens).
    """
    if multimodal(model):
        return positions.expand(3, *positions.shape)  # (3, rows, tokens)
    return positions


def can_share(model: VisionLanguageModel) -> bool:
    """Tell whether a model's rows may share prefixes.

    They may if the model's cache holds all keys and values of every layer, its `forward` takes
    `position_ids`, and, for a chat model, its answers were compared with its own `generate`
    (`SHARING_CHATS`). Models with sliding windows, states or positions of another kind get whole
    prompts by `generate`.
    """
    config = model.model.config.get_text_config()
    if model.kind == "chat" and model.model.config.model_type not in SHARING_CHATS:
        return False
    if "position_ids" not in inspect.signature(model.model.forward).parameters:
        return False
    layers = DynamicCache(config=config).layers
    return all(type(layer) is DynamicLayer for layer in layers)
