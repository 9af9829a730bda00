"""Does a judge's score move when it must, and stay when it must not?

A probe takes a judge and items, or the runs made of them, and returns one small table: what it
found in a sentence, with interval and p, and a verdict: moves, stays, or can't say. `battery` runs
all. How far each can be trusted was measured on simulated judges: figures/validity.csv.
"""

from vjudge.probes.biases import (
    PROBES,
    battery,
    consistency,
    image_kinds,
    length,
    scale,
    self_preference,
)
from vjudge.probes.changes import (
    anchoring,
    blindness,
    commitment,
    drift,
    formatting,
    injection,
    question,
    reference,
    rewording,
    rubric,
    verbosity,
)
from vjudge.probes.effects import bias_scores
from vjudge.probes.pairs import pairs_of_items, position
from vjudge.probes.perturbations import (
    GREY,
    PERTURBATIONS,
    PHRASES,
    blanked,
    padded,
    perturb,
    reencoded,
    swapped,
)
from vjudge.probes.runs import COLUMNS, MARGINS, MissingInputError, ProbeRuns

__all__ = [
    "COLUMNS",
    "GREY",
    "MARGINS",
    "PERTURBATIONS",
    "PHRASES",
    "PROBES",
    "MissingInputError",
    "ProbeRuns",
    "anchoring",
    "battery",
    "bias_scores",
    "blanked",
    "blindness",
    "commitment",
    "consistency",
    "drift",
    "formatting",
    "image_kinds",
    "injection",
    "length",
    "padded",
    "pairs_of_items",
    "perturb",
    "position",
    "question",
    "reencoded",
    "reference",
    "rewording",
    "rubric",
    "scale",
    "self_preference",
    "swapped",
    "verbosity",
]
__dir__ = __all__.copy
