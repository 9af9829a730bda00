"""Keys and values of prefixes: each is computed once, and copied to the rows behind it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from vjudge.engines.rows import Prefix, Row
from vjudge.engines.vision import left_padded
from vjudge.models import VisionLanguageModel

SHARING_CHATS = "qwen2_vl qwen2_5_vl qwen3_vl internvl llava_next llava idefics3".split()
"""Chat models whose prefixes were shared and compared with their own `generate`."""


SPARE = 64  # columns


class RoomyLayer(DynamicLayer):
    """Keys and values (rows, heads, columns, width) with spare columns behind them.

    transformers' own layer copies everything that is there for each token that is written.
    """

    def update(self, key_states: Any, value_states: Any, *args: Any, **options: Any) -> Any:
        """Put in the states of new columns; returns those of all columns."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys = key_states[:, :, :0]
            self.values = value_states[:, :, :0]
            self.rooms = [self.keys, self.values]
        self.keys = self._written(0, self.keys, key_states)
        self.values = self._written(1, self.values, value_states)
        return self.keys, self.values

    def _written(self, which: int, known: Any, new: Any) -> Any:
        first = known.shape[2]
        last = first + new.shape[2]
        room = self.rooms[which]
        if room.data_ptr() != known.data_ptr() or room.shape[2] < last:
            n_rows, n_heads, _, width = new.shape
            room = new.new_empty((n_rows, n_heads, last + SPARE, width))
            room[:, :, :first] = known
            self.rooms[which] = room
        room[:, :, first:last] = new
        return room[:, :, :last]


@dataclass
class Shared:
    """Keys and values of prefixes, a place each; columns outside of `mask` count for nothing.

    `deltas` (places, 1) is what multimodal positions add to a token's number.
    """

    cache: Any
    mask: torch.Tensor  # (places, columns)
    deltas: torch.Tensor


def prefill(model: VisionLanguageModel, source: Any, prefixes: Sequence[Prefix]) -> Shared:
    """Compute the keys and values of prefixes."""
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
    model: VisionLanguageModel, rows: Sequence[Row], shared: Shared
) -> dict[str, Any]:
    """What `generate` takes for rows whose prefixes are computed.

    The columns are the prefixes, then the rows' own tokens, both on the right of their part.
    `shared` has a place for each row afterwards.
    """
    places = torch.tensor([row.prefix.place for row in rows])
    shared.cache.batch_select_indices(places)
    own = [row.ids[-row.own :] for row in rows]
    ids, own_mask = left_padded(own, 0, model.device)
    shared.mask = torch.cat([shared.mask[places], own_mask], dim=1)
    shared.deltas = shared.deltas[places]
    positions = shared.mask.cumsum(1) - 1
    positions = positions[:, -ids.shape[1] :].clamp(min=0) + shared.deltas
    return {
        "input_ids": ids,
        "attention_mask": shared.mask,
        "position_ids": expanded(model, positions),
        "past_key_values": shared.cache,
    }


def keep_for_readings(rows: Sequence[Row], shared: Shared) -> None:
    """Give what is read after rows the keys and values that are there of them."""
    n_written = shared.cache.get_seq_length() - shared.mask.shape[1]
    shared.mask = pad(shared.mask, (0, n_written), value=1)
    for place, row in enumerate(rows):
        if not row.readings:
            continue
        ids = row.readings[0].ids  # without a stem
        known = len(row.ids) + len(row.tokens) - 1  # the last token was never put in
        known = min(known, len(ids) - 1)
        prefix = Prefix(ids[:known], row.keys, place)
        shared.mask[place] *= shared.mask[place].cumsum(0) <= known
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


def shares(model: VisionLanguageModel) -> bool:
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
