"""Keys and values of prefixes: each is computed once and copied to the rows behind it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from vjudge.engines.rows import Prefix, Row
from vjudge.engines.vision import left_padded
from vjudge.models import VisionLanguageModel

AT_ONCE = 8  # prefixes: more bring nothing
SHARING_CHATS = "qwen2_vl qwen2_5_vl qwen3_vl internvl llava_next llava idefics3".split()
"""Chat models whose prefixes were shared and compared with their own `generate`."""


def prefill(model: VisionLanguageModel, source: Any, prefixes: Sequence[Prefix]) -> None:
    """Compute the keys and values of prefixes, neighbours together."""
    for start in range(0, len(prefixes), AT_ONCE):
        batch = prefixes[start : start + AT_ONCE]
        inputs = source.inputs([prefix.ids for prefix in batch], [prefix.keys for prefix in batch])
        # A multimodal model says itself where images stand.
        placed = multimodal(model) and any(prefix.keys for prefix in batch)
        if not placed:
            positions = inputs["attention_mask"].cumsum(-1) - 1
            inputs["position_ids"] = expanded(model, positions.clamp(min=0))
        cache: Any = DynamicCache(config=model.model.config.get_text_config())
        model.model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        for place, prefix in enumerate(batch):
            for layer in cache.layers:
                states = torch.stack([layer.keys[place], layer.values[place]])
                prefix.states.append(states[:, :, -len(prefix.ids) :])
            if placed:
                prefix.delta = int(model.model.model.rope_deltas[place])


def behind_prefixes(model: VisionLanguageModel, rows: Sequence[Row]) -> dict[str, Any]:
    """What `generate` takes for rows whose prefixes are computed, which are let go of.

    The columns are the prefixes, then the rows' own tokens, both on the right of their part.
    """
    prefixes = [row.prefix for row in rows]
    # 1) lay the tokens out
    own = [row.ids[-row.own :] for row in rows]
    ids, own_mask = left_padded(own, 0, model.device)
    _, mask = left_padded([prefix.ids for prefix in prefixes], 0, model.device)
    end = mask.shape[1]
    mask = torch.cat([mask, own_mask], dim=1)
    deltas = torch.tensor([[prefix.delta] for prefix in prefixes], device=model.device)
    positions = (mask.cumsum(1) - 1).clamp(min=0) + deltas
    # 2) copy the prefixes' keys and values; what is masked has to be a number, too
    cache = DynamicCache()
    for number, like in enumerate(prefixes[0].states):
        _, heads, _, size = like.shape
        states = like.new_zeros(2, len(rows), heads, end, size)
        for place, prefix in enumerate(prefixes):
            states[:, place, :, end - len(prefix.ids) :] = prefix.states[number]
        cache.update(states[0], states[1], number)
    for prefix in prefixes:
        prefix.states = []
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": expanded(model, positions[:, end:]),
        "past_key_values": cache,
    }


def give_prefix(row: Row, mask: torch.Tensor, layers: Sequence[Any], place: int) -> None:
    """Give what is read after a row the keys and values that are there."""
    ids = row.readings[0].ids  # without a stem
    known = len(row.ids) + len(row.tokens) - 1  # the last token was never put in
    mask = pad(mask, (0, layers[0].get_seq_length() - len(mask)), value=1)
    columns = mask.nonzero().flatten()[: min(known, len(ids) - 1)]
    prefix = Prefix(ids[: len(columns)], row.keys, delta=row.prefix.delta)
    for layer in layers:
        states = torch.stack([layer.keys[place], layer.values[place]])
        prefix.states.append(states[:, :, columns.to(states.device)])
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
    return {type(layer) for layer in DynamicCache(config=config).layers} <= {DynamicLayer}
