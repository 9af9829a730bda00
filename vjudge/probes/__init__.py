"""Does a judge's score move when it must, and stay when it must not?

A probe takes a judge and items, or the runs made of them, or several judges by name. It returns a
result: effects with interval and p, and a verdict on each (moves, stays, or can't say), put into
sentences. `battery` runs all probes. How far each can be trusted was measured on simulated judges:
figures/validity.csv.

Files in reading order:

    changes.py        one thing changed in every item: images, or texts
    perturbations.py  all changes by name, and whether scores must change
    effects.py        an effect with its interval; bias deviation and bias conformity
    decisions.py      margins, the columns of a probe's table, and the verdict on each row
    readings.py       sentences about a table
    runs.py           `ProbeRuns`: the runs that a probe compares
    finish.py         from rows to a result
    lengths.py        scores at equal gold, and the probe of length
    systems.py        the probe of self-preference
    pairs.py          the probe of position
    biases.py         the probes that compare scores before and after a change; `battery`
    simulated.py      simulated judges with injected biases

A name brings its module when it is first used.
"""

from vjudge.lazy import lazy_names

_NAMES = {
    "changes": "PHRASES blanked coarse padded reencoded swapped",
    "perturbations": "PERTURBATIONS example perturb",
    "effects": "bias_scores",
    "runs": "MissingInputError ProbeRuns at_resolutions",
    "biases": "PROBES anchoring battery bias_table blindness commitment formatting injection"
    " rewording rubric verbosity",
    "lengths": "length",
    "systems": "self_preference",
    "pairs": "pairs_of_items position",
    "simulated": "length_power power simulated_length simulated_position",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _NAMES)
