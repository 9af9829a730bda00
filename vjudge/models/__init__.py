"""Where a judge's weights come from and where they run.

places.py   a judge's name -> its folder, checked before any weight is read; what its files hold; device and precision
llava.py    original LLaVA checkpoints -> a transformers folder, once
memory.py   what a model needs and what is free: one arithmetic for loading and for batches
load.py     weights, tokenizer and preprocessing, whole or not at all
"""

from __future__ import annotations

from vjudge.models.llava import convert
from vjudge.models.load import VisionLanguageModel, load, outline
from vjudge.models.memory import MemoryShortage, batch_budget, need, token_bytes
from vjudge.models.places import locate, settings_fingerprint, weights_fingerprint

__all__ = ["MemoryShortage", "VisionLanguageModel", "batch_budget", "convert", "load", "locate", "need", "outline"]
__all__ += ["settings_fingerprint", "token_bytes", "weights_fingerprint"]

__dir__ = __all__.copy
