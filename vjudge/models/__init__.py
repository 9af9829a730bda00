"""Where a judge's weights come from and where they run: device, dtype, quantisation, loading.

Three kinds load: the LLaVA families whose vision is ours, from the transformers layout or the original one (see
`vjudge.checkpoints`); any chat model that transformers knows as image-text-to-text, through its own processor; and
causal language models, which judge without images. Anything else is refused with a reason. No code from a checkpoint is
run unless asked for, and a checkpoint that lacks a weight is an error, because transformers would fill it with random
numbers.

    architectures.py what a config.json says: which kind a checkpoint is, and how that is loaded
    finding.py       a judge's name -> the folder of its checkpoint, checked before any weight is read or fetched
    placement.py     one device or several, dtype, quantisation, attention
    processors.py    a chat model's own processor, without what only videos need
    sizes.py         the sizes of the published judges
    memory.py        the bytes that a model needs, and those that are free
    fitting.py       what fits, said before anything is loaded
    adapted.py       judges stored as adapters on a base
    loading.py       weights, tokenizer and preprocessing, whole or not at all
    model.py         VisionLanguageModel: what loading gives
    fingerprints.py  knowing a checkpoint by its content
"""

from __future__ import annotations

from vjudge.models.architectures import FAMILIES, SUPPORTED, Architecture, architecture_of
from vjudge.models.finding import EMBEDDED, judge_names, locate
from vjudge.models.fingerprints import settings_fingerprint, weights_fingerprint
from vjudge.models.fitting import MemoryShortage, fits, fitting_table, memory_table
from vjudge.models.loading import load, outline
from vjudge.models.memory import COLAB, Machine, Need, need
from vjudge.models.model import VisionLanguageModel
from vjudge.models.placement import Placement, choose_attention, choose_device, choose_dtype, place

__all__ = [
    "COLAB",
    "EMBEDDED",
    "Architecture",
    "FAMILIES",
    "SUPPORTED",
    "Machine",
    "MemoryShortage",
    "Need",
    "Placement",
    "VisionLanguageModel",
    "architecture_of",
    "choose_attention",
    "choose_device",
    "choose_dtype",
    "fits",
    "fitting_table",
    "judge_names",
    "load",
    "locate",
    "memory_table",
    "need",
    "outline",
    "place",
    "settings_fingerprint",
    "weights_fingerprint",
]
