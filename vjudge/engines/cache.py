"""Keys and values of a batch while it decodes, in buffers that grow in steps."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

STEP = 64  # tokens


class GrowingLayer(DynamicLayer):
    """A layer's cache that copies what it holds once in 64 tokens, where `DynamicLayer` copies it for every token.

    Selecting, cropping or repeating works as in `DynamicLayer`: the next token starts new buffers.
    At a judge's sizes (prompts of hundreds of tokens, answers of tens) that copying is a third of the decoding time.
    """

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values (rows, heads, tokens, width); return all of them."""
        if not self.is_initialized or self.keys is None or self.values is None:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
            self._shown: torch.Tensor | None = None
            self._buffers = (self.keys, self.values)
        start, end = self.keys.shape[-2], self.keys.shape[-2] + key_states.shape[-2]
        # Anything that gave the layer other tensors since (a selection of rows, say) left the buffers behind.
        if self.keys is not self._shown or end > self._buffers[0].shape[-2]:
            self._buffers = (_room_for(self.keys, end, key_states), _room_for(self.values, end, value_states))
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., start:end, :] = states
        self.keys, self.values = (buffer[..., :end, :] for buffer in self._buffers)
        self._shown = self.keys
        return self.keys, self.values


def growing_cache(config: Any) -> DynamicCache:
    """A cache for a model; layers that keep a window or a state of their own stay transformers' own."""
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def _room_for(held: torch.Tensor, length: int, like: torch.Tensor) -> torch.Tensor:
    """A buffer for `length` tokens and some more that begins with what is held."""
    buffer = like.new_empty((*like.shape[:-2], length + STEP, like.shape[-1]))
    buffer[..., : held.shape[-2], :] = held
    return buffer
