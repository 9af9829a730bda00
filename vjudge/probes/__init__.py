"""Does a judge's score move when it must, and stay when it must not?

A probe takes a judge and items, or the runs made of them, and returns one small table with the columns of
`vjudge.probes.outcome`: what must happen, effect, interval, unit, p, n. `battery` runs all that apply. How far each can
be trusted was measured on simulated judges: `make validity`, figures/validity.csv.

sensitivity.py  must move: image, question, rubric
stability.py    must stay: reference, format, injected verdicts
lengths.py      length at equal quality, padding and trimming, pairwise with length controlled
positions.py    which response is shown first
scales.py       leniency, range, kinds of image
repeats.py      samples, seeds, versions
nine.py         MM-JudgeBias's two measures over nine perturbations
suite.py        all of them
catalogue.py    the perturbations by name; pictures.py, texts.py, injections.py make them
trials.py       the runs that are compared; contrasts.py compares them
estimates.py    intervals and p values that respect groups; outcome.py the table
"""

from vjudge.probes.catalogue import PERTURBATIONS, Perturbation, perturb
from vjudge.probes.injections import PHRASES, injected
from vjudge.probes.lengths import length, length_controlled, verbosity
from vjudge.probes.nine import NINE, judgebias
from vjudge.probes.outcome import COLUMNS, Unmet
from vjudge.probes.pictures import GREY, blanked, reencoded, shuffled, swapped
from vjudge.probes.positions import pairs_of_items, position
from vjudge.probes.repeats import consistency, drift
from vjudge.probes.scales import image_kinds, scale
from vjudge.probes.sensitivity import blindness, question, rubric
from vjudge.probes.stability import formatting, injection, reference
from vjudge.probes.suite import PROBES, battery
from vjudge.probes.texts import padded, trimmed
from vjudge.probes.trials import Trials

__all__ = [
    "COLUMNS",
    "GREY",
    "NINE",
    "PERTURBATIONS",
    "PHRASES",
    "PROBES",
    "Perturbation",
    "Trials",
    "Unmet",
    "battery",
    "blanked",
    "blindness",
    "consistency",
    "drift",
    "formatting",
    "image_kinds",
    "injected",
    "injection",
    "judgebias",
    "length",
    "length_controlled",
    "padded",
    "pairs_of_items",
    "perturb",
    "position",
    "question",
    "reencoded",
    "reference",
    "rubric",
    "scale",
    "shuffled",
    "swapped",
    "trimmed",
    "verbosity",
]
