"""Where a judge's weights come from and where they run.

places.py   a judge's name -> its folder, checked before any weight is read; device, precision, fingerprints
llava.py    original LLaVA checkpoints -> a transformers folder, once
memory.py   what a model needs and what is free: one arithmetic for loading and for batches
load.py     weights, tokenizer and preprocessing, whole or not at all
"""

from __future__ import annotations

from vjudge.models.llava import NO_LIMIT, convert
from vjudge.models.load import VisionLanguageModel, load, outline
from vjudge.models.memory import (
    COLAB,
    Machine,
    MemoryShortage,
    Need,
    batch_budget,
    fits,
    fitting_table,
    memory_table,
    need,
    token_bytes,
)
from vjudge.models.places import (
    EMBEDDED,
    SUPPORTED,
    Placement,
    choose_attention,
    choose_device,
    choose_dtype,
    input_device,
    locate,
    place,
    settings_fingerprint,
    weight_of,
    weights_fingerprint,
)
from vjudge.names import public

__all__ = [
    "COLAB",
    "EMBEDDED",
    "Machine",
    "MemoryShortage",
    "NO_LIMIT",
    "Need",
    "Placement",
    "SUPPORTED",
    "VisionLanguageModel",
    "batch_budget",
    "choose_attention",
    "choose_device",
    "choose_dtype",
    "convert",
    "fits",
    "fitting_table",
    "input_device",
    "load",
    "locate",
    "memory_table",
    "need",
    "outline",
    "place",
    "settings_fingerprint",
    "token_bytes",
    "weight_of",
    "weights_fingerprint",
]

__dir__ = public(__name__)
