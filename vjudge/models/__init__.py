"""Find a judge's checkpoint, and load it.

Read in this order; the files marked with a star are of the core:

    find.py *      which folder a name means, and what kind of checkpoint stands there
    files.py       its files: settings, weights, fingerprint
    load.py *      the loaded model, and how it is loaded, low-rank adapters on its base included
    placement.py   on which device, how precisely, and whether it fits
    value_head.py  a judge that gives one number
    original.py    an original LLaVA checkpoint in transformers' terms; llava.py: converted once
"""

from vjudge.models.files import fingerprint
from vjudge.models.find import locate
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
