"""The cache of prefixes: their keys and values are computed once, and copied to each row."""

from __future__ import annotations

import inspect
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
"""Chat models whose prefixes were shared and compared with their own `generate`."""
SPARE = 64  # columns that a layer has behind those that are filled


class RoomyLayer(DynamicLayer):
    """Keys and values (rows, heads, columns, width) with spare columns behind them.

    transformers' own layer copies all columns for each token that is written.
    """

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Put in the states of new columns; returns those of all columns."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys = key_states[:, :, :0]
            self.values = value_states[:, :, :0]
            self.buffers = [self.keys, self.values]
        self.keys = self._appended(0, self.keys, key_states)
        self.values = self._appended(1, self.values, value_states)
        return self.keys, self.values

    def _appended(self, number: int, filled: Any, new: torch.Tensor) -> torch.Tensor:
        """The filled columns with new ones behind them, both in one buffer."""
        n_filled = filled.shape[2]
        n_columns = n_filled + new.shape[2]
        buffer = self.buffers[number]
        # Rows that were selected or reordered stand in a tensor of their own, not in the buffer.
        if buffer.data_ptr() != filled.data_ptr() or buffer.shape[2] < n_columns:
            n_rows, n_heads, _, width = new.shape
            buffer = new.new_empty((n_rows, n_heads, n_columns + SPARE, width))
            buffer[:, :, :n_filled] = filled
            self.buffers[number] = buffer
        buffer[:, :, n_filled:n_columns] = new
        return buffer[:, :, :n_columns]


@dataclass
class Shared:
    """The cache of prefixes, or of the rows behind them; columns outside of `mask` are padding."""

    cache: Any
    mask: torch.Tensor  # (rows, columns), 1 for a token
    deltas: torch.Tensor  # (rows, 1), what multimodal positions add to a token's number


def prefill(model: VisionLanguageModel, source: CallImages, prefixes: Sequence[Prefix]) -> Shared:
    """Compute the cache of prefixes, one a row."""
    ids = [prefix.ids for prefix in prefixes]
    keys = [prefix.keys for prefix in prefixes]
    inputs = source.inputs(ids, keys)
    mask = inputs["attention_mask"]
    # A multimodal model says itself where images stand.
    placed = multimodal(model) and any(keys)
    if not placed:
        positions = mask.cumsum(-1) - 1
        inputs["position_ids"] = expanded(model, positions.clamp(min=0))
    cache: Any = DynamicCache(config=model.model.config.get_text_config())
    cache.layers = [RoomyLayer() for _ in cache.layers]
    model.model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
    deltas = torch.zeros_like(mask[:, :1])
    if placed:
        deltas = model.model.model.rope_deltas.to(mask)
    return Shared(cache, mask, deltas)


def behind_prefixes(
    model: VisionLanguageModel, rows: Sequence[Tokenized], shared: Shared
) -> dict[str, Any]:
    """What `generate` takes for rows whose prefixes are computed; `shared` is theirs afterwards.

    prefixes    | of the rows
    . . P P P P | . R R     padded on the left, each by itself
    P P P P P P | R R R
    """
    # 1) copy each prefix to its rows
    slots = torch.tensor([row.prefix.slot for row in rows if row.prefix])
    shared.cache.batch_select_indices(slots)
    shared.deltas = shared.deltas[slots]  # (rows, 1)
    # 2) the tokens behind it
    behind = [row.ids[-row.n_behind_prefix :] for row in rows]
    ids, mask = left_padded(behind, 0, model.device)  # (rows, longest)
    shared.mask = torch.cat([shared.mask[slots], mask], dim=1)  # (rows, columns)
    # 3) a token's position is the number of tokens before it
    positions = shared.mask.cumsum(1) - 1
    positions = positions[:, -ids.shape[1] :].clamp(min=0) + shared.deltas  # (rows, longest)
    return {
        "input_ids": ids,
        "attention_mask": shared.mask,
        "position_ids": expanded(model, positions),
        "past_key_values": shared.cache,
    }


def keep_for_readings(rows: Sequence[Request], shared: Shared) -> None:
    """Reuse each row's cache for its readings, which begin with tokens that it holds.

    column    0 1 2 3 4 5 6 7     a reading of P P P R W: n_valid = 5 of the row's tokens
    token     . P P P . R W W     are its prefix
    counted   0 1 2 3 3 4 5 6
    mask      0 1 1 1 0 1 1 0     the 6th token is masked out
    """
    n_written = shared.cache.get_seq_length() - shared.mask.shape[1]
    shared.mask = pad(shared.mask, (0, n_written), value=1)  # (rows, columns)
    for slot, row in enumerate(rows):
        if not row.readings:
            continue
        ids = row.readings[0].ids  # its stem is ()
        n_cached = len(row.ids) + len(row.tokens) - 1  # the last token was never put in
        n_valid = min(n_cached, len(ids) - 1)  # a pass needs a token of its own
        counted = shared.mask[slot].cumsum(0)  # (columns,)
        shared.mask[slot, counted > n_valid] = 0
        prefix = Prefix(ids[:n_valid], row.keys, slot)
        for reading in row.readings:
            reading.prefix = prefix


def multimodal(model: VisionLanguageModel) -> bool:
    """Whether its tokens have three positions, time, height and width, as in Qwen-VL."""
    return hasattr(getattr(model.model, "model", None), "rope_deltas")


def expanded(model: VisionLanguageModel, positions: torch.Tensor) -> torch.Tensor:
    """Positions (rows, tokens) as the model takes them."""
    if multimodal(model):
        return positions.expand(3, *positions.shape)
    return positions


def can_share(model: VisionLanguageModel) -> bool:
    """Whether rows may share prefixes: a plain cache, positions by number, a model that was tried.

    Models with sliding windows, states or positions of their own are batched by `generate` alone.
    """
    config = model.model.config.get_text_config()
    if model.kind == "chat" and model.model.config.model_type not in SHARING_CHATS:
        return False
    if "position_ids" not in inspect.signature(model.model.forward).parameters:
        return False
    layers = DynamicCache(config=config).layers
    return all(type(layer) is DynamicLayer for layer in layers)
