"""Collections: published data sets and local files in one canonical schema, checked before a run.

Items have the columns `id`, `images` (list), `instruction`, `response`, `reference_answer`,
`criteria`, `descriptions` (list of str, lowest score first), `gold` (score), `feedback`,
`human_scores` (list), `group` (the unit of resampling). Pairs have `response_a`, `response_b` and
`preference` ("a", "b" or "tie") in place of the response and the scores; candidates have
`responses` and `ranks`. Responses that are pictures stand in `response_images`, of pairs in
`response_a_images` and `response_b_images`, where some row has one. What a source does not know is
None, or NaN for `gold`.

How somebody's table becomes such rows:

files.py     the rows of a file or a folder, as they stand there
exports.py   Label Studio's and Argilla's rows, with a column for each question
layout.py    which of its columns is which of ours: named by the caller, or known by their name
cells.py     what reads the cells of a column
rows.py      a row in canonical form, and what keeps it from being so
adapters.py  published sets
load.py      `load_collection` and `rows_of`, the two entrances
checks.py    what else must hold before a run

To add a data set: put an `Adapter` into `adapters.ADAPTERS`, which says which of its columns is
which of ours, with a function for what takes more than a name. `load_collection` knows it by its
hub ids, and local files by their columns.
"""

from vjudge.data.checks import validate
from vjudge.data.load import canonical, check_pictures, load_collection, origin, rows_of
from vjudge.data.schema import FEATURES, CollectionError, Problem
from vjudge.data.summary import cases, fingerprint, lengths, levels, n_words, truth
from vjudge.data.verdicts import load_verdicts

__all__ = [
    "FEATURES",
    "CollectionError",
    "Problem",
    "canonical",
    "cases",
    "check_pictures",
    "fingerprint",
    "lengths",
    "levels",
    "load_collection",
    "load_verdicts",
    "n_words",
    "origin",
    "rows_of",
    "truth",
    "validate",
]

__dir__ = __all__.copy
