"""Prompts in; texts, token counts and score probabilities out.

encoding.py   text -> token ids: data text is never markup; which token carries a score
features.py   images -> features, each encoded once a call, the cache bounded in bytes
local.py      the torch engine: batches, decoding, score passes
"""

from __future__ import annotations

from vjudge.engines.decoding import Answer
from vjudge.engines.encoding import Encoder, Scale
from vjudge.engines.features import ImageFeatures
from vjudge.engines.local import TorchEngine

__all__ = ["Answer", "Encoder", "ImageFeatures", "Scale", "TorchEngine"]
