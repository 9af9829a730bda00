"""Prompts in; texts, token counts and score probabilities out.

encoding.py   text -> token ids: data text is never markup; which token carries a score
vision.py     images -> pixels -> features, as each family's original code makes them
features.py   the features of a call's images, each encoded once, the cache bounded in bytes
forward.py    one pass and a greedy answer, for research
local.py      the torch engine: batches, decoding, score passes
"""

from __future__ import annotations

from vjudge.engines.decoding import Answer
from vjudge.engines.encoding import Encoder, Scale
from vjudge.engines.features import ImageFeatures
from vjudge.engines.forward import Forward
from vjudge.engines.local import TorchEngine

__all__ = ["Answer", "Encoder", "Forward", "ImageFeatures", "Scale", "TorchEngine"]
