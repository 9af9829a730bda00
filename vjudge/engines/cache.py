"""Keys and values of a batch: each prefix is computed once and copied to its rows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from vjudge.engines.batches import cut
from vjudge.engines.rows import Prefix, Row
from vjudge.engines.vision import left_padded
from vjudge.models import VisionLanguageModel

STEP = 64  # tokens by which keys and values get room
PASS_TOKENS = 2048  # tokens of prompts computed at once: more bring nothing
SHARING_CHATS = "qwen2_vl qwen2_5_vl qwen3_vl internvl llava_next llava idefics3".split()
"""Chat models whose prefixes were shared and compared with their own `generate`."""


class GrowingLayer(DynamicLayer):
    """A layer's `states` (2 for keys and values, rows, heads, columns, width), `end` of them used.

    `DynamicLayer` copies all of them at every step.
    """

    def __init__(self, states: torch.Tensor, end: int) -> None:
        super().__init__()
        self.lazy_initialization(states[0], states[1])
        self.hold(states, end)

    def hold(self, states: torch.Tensor, end: int) -> None:
        self.states = states
        self.keys, self.values = states[:, :, :, :end]

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Any:
        """Append keys and values; return all of them."""
        states = self.states
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if end > states.shape[3]:
            states = pad(states, (0, 0, 0, STEP))
        states[0, :, :, start:end] = key_states
        states[1, :, :, start:end] = value_states
        self.hold(states, end)
        return self.keys, self.values


def prefill(model: VisionLanguageModel, source: Any, prefixes: Sequence[Prefix]) -> None:
    """Compute the keys and values of prefixes, neighbours together."""
    for part in cut([len(prefix.ids) for prefix in prefixes], PASS_TOKENS):
        batch = prefixes[part]
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


class RowCache:
    """A batch behind its prefixes, in columns: prefix and own tokens, both on the right of their
    part, then the answer."""

    def __init__(self, model: VisionLanguageModel, rows: Sequence[Row]) -> None:
        self.model = model
        self.rows = sorted(rows, key=lambda row: row.own)
        prefixes = [row.prefix for row in self.rows]
        # 1) lay the tokens out
        own = [row.ids[len(row.prefix.ids) :] for row in self.rows]
        self.tokens, own_mask = left_padded(own, 0, model.device)
        _, mask = left_padded([prefix.ids for prefix in prefixes], 0, model.device)
        end = mask.shape[1]
        self.mask = torch.cat([mask, own_mask], dim=1)
        self.width = self.mask.shape[1]
        deltas = torch.tensor([[prefix.delta] for prefix in prefixes], device=model.device)
        self.positions = (self.mask.cumsum(1) - 1).clamp(min=0) + deltas
        # 2) copy the prefixes' keys and values; what is masked has to be a number, too
        self.cache: Any = DynamicCache()
        for number, like in enumerate(prefixes[0].states):
            _, heads, _, size = like.shape
            states = like.new_zeros(2, len(rows), heads, self.width + STEP, size)
            for place, prefix in enumerate(prefixes):
                states[:, place, :, end - len(prefix.ids) : end] = prefix.states[number]
            self.cache.layers.append(GrowingLayer(states, self.width))
        for prefix in prefixes:
            prefix.states = []

    def own_tokens(self, **options: Any) -> Iterator[tuple[list[Row], Any]]:
        """Compute what the rows have to themselves: rows and the model's output, pass by pass."""
        for part in cut([row.own for row in self.rows], PASS_TOKENS):
            rows = self.rows[part]
            longest = rows[-1].own
            cache = DynamicCache()
            for layer in self.cache.layers:
                states = layer.states[:, part, :, : self.width]
                cache.layers.append(GrowingLayer(states, self.width - longest))
            tokens = self.tokens[part, -longest:]
            positions = self.positions[part, -longest:]
            yield rows, self._forward(cache, tokens, positions, self.mask[part], **options)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Put a token (rows,) behind each row; the logits (rows, vocabulary) after it."""
        self.positions = self.positions[:, -1:] + 1
        self.mask = pad(self.mask, (0, 1), value=1)
        output = self._forward(self.cache, tokens[:, None], self.positions, self.mask)
        return output.logits[:, -1].float()

    def keep(self, places: list[int]) -> None:
        """Keep these rows alone, in this order."""
        self.rows = [self.rows[place] for place in places]
        self.mask = self.mask[places]
        self.positions = self.positions[places]
        for layer in self.cache.layers:
            layer.hold(layer.states[:, places], layer.get_seq_length())

    def give_prefix(self, place: int) -> None:
        """Give what is read after a row the keys and values that are there."""
        row = self.rows[place]
        ids = row.readings[0].ids  # without a stem
        columns = self.mask[place].nonzero().flatten()[: len(ids) - 1]
        prefix = Prefix(ids[: len(columns)], row.keys, delta=row.prefix.delta)
        for layer in self.cache.layers:
            states = layer.states[:, place]
            prefix.states.append(states[:, :, columns.to(states.device)])
        for reading in row.readings:
            reading.prefix = prefix

    def _forward(
        self, cache: Any, tokens: Any, positions: torch.Tensor, mask: Any, **options: Any
    ) -> Any:
        return self.model.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=expanded(self.model, positions),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
            **options,
        )


def multimodal(model: VisionLanguageModel) -> bool:
    """Whether its tokens have three positions, time, height and width, as in Qwen-VL."""
    return hasattr(getattr(model.model, "model", None), "rope_deltas")


def expanded(model: VisionLanguageModel, positions: torch.Tensor) -> torch.Tensor:
    """Positions (rows, tokens) as the model takes them."""
    if multimodal(model):
        return positions.expand(3, *positions.shape)
    return positions


def why_plain(model: VisionLanguageModel) -> str | None:
    """Why a model's rows share no prefixes, by its configuration; None where they do."""
    config = model.model.config.get_text_config()
    kind = str(model.model.config.model_type)
    taken = inspect.signature(model.model.forward).parameters
    needs = {"attention_mask", "position_ids", "past_key_values", "logits_to_keep"}
    scaling = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    kinds = {type(layer) for layer in DynamicCache(config=config).layers}
    if model.kind == "chat" and kind not in SHARING_CHATS:
        reason = "not tried for this model"
    elif not needs <= taken.keys() or getattr(model.model, "_is_stateful", False):
        reason = "its positions or cache are its own"
    elif scaling in ("dynamic", "longrope"):
        reason = f"its positions are scaled by the prompt's length ({scaling})"
    elif kinds - {DynamicLayer}:
        reason = "it has layers with a window or a state"
    else:
        return None
    return f"{kind}: rows share no images or prefixes here and are batched plainly: {reason}"
