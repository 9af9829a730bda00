"""Find a checkpoint (find.py), place it (placement.py) and load it (load.py, value_head.py).

Original LLaVA checkpoints (original.py) are converted once (llava.py).
"""

from vjudge.models.find import fingerprint, locate
from vjudge.models.llava import convert
from vjudge.models.load import VisionLanguageModel, load, outline
from vjudge.models.value_head import classifier

__all__ = [
    "VisionLanguageModel",
    "classifier",
    "convert",
    "fingerprint",
    "load",
    "locate",
    "outline",
]

__dir__ = __all__.copy
