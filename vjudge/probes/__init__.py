"""Does a judge's score move when it must, and stay when it must not?

A probe takes a judge and items, or the runs made of them, or several judges by name, and returns a
result: effects with interval and p, and a verdict on each (moves, stays, or can't say), read out in
sentences. `battery` runs all. How far each can be trusted was measured on simulated judges:
figures/validity.csv.
"""

from vjudge.benchmarks.pairs import pairs_of_items
from vjudge.probes.biases import (
    PROBES,
    anchoring,
    battery,
    bias_table,
    blindness,
    commitment,
    formatting,
    injection,
    length,
    rewording,
    rubric,
    verbosity,
)
from vjudge.probes.effects import bias_scores
from vjudge.probes.pairs import position
from vjudge.probes.perturbations import (
    PERTURBATIONS,
    PHRASES,
    blanked,
    coarse,
    example,
    padded,
    perturb,
    reencoded,
    swapped,
)
from vjudge.probes.runs import MissingInputError, ProbeRuns, at_resolutions
from vjudge.probes.simulated import (
    length_power,
    power,
    simulated_length,
    simulated_position,
)
from vjudge.probes.systems import self_preference

__all__ = [
    "PERTURBATIONS",
    "PHRASES",
    "PROBES",
    "MissingInputError",
    "ProbeRuns",
    "anchoring",
    "at_resolutions",
    "battery",
    "bias_scores",
    "bias_table",
    "blanked",
    "blindness",
    "coarse",
    "commitment",
    "example",
    "formatting",
    "injection",
    "length",
    "length_power",
    "padded",
    "pairs_of_items",
    "perturb",
    "position",
    "power",
    "reencoded",
    "rewording",
    "rubric",
    "self_preference",
    "simulated_length",
    "simulated_position",
    "swapped",
    "verbosity",
]
__dir__ = __all__.copy
