"""Collections: published data sets and local files in one canonical schema, checked before a run.

Items have the columns `id`, `images` (list), `instruction`, `response`, `reference_answer`,
`criteria`, `descriptions` (list of str, lowest score first), `gold` (score), `feedback`,
`human_scores` (list), `group` (the unit of resampling). Pairs have `response_a`, `response_b` and
`preference` ("a", "b" or "tie") in place of the response and the scores; candidates have
`responses` and `ranks`. Where some response is an image, the columns `response_images`, for pairs
`response_a_images` and `response_b_images`, hold the responses' images. What a source does not say
is None, or NaN for `gold`.

The files, in the order in which a user's table passes through them:

files.py       the rows of a file or a folder, unchanged
exports.py     rows that Label Studio and Argilla export, with a column per question
layout.py      which columns of a table are which canonical columns
cells.py       readers of a column's cells
rows.py        a row in canonical form, and what is wrong with one that cannot be
adapters.py    published data sets
paths.py       image paths, resolved against the folder of a collection's file
collection.py  all rows as one data set
load.py        `load_collection` and `rows_of`, the two entrances
checks.py      what else must hold before a run

To add a data set, put an `Adapter` into `adapters.ADAPTERS`: it says which columns of the set are
which canonical columns, with a function for cells that need more. `load_collection` then knows the
set by its hub ids, and local files by their columns.
"""

from vjudge.data.checks import validate
from vjudge.data.collection import origin
from vjudge.data.load import canonical, check_pictures, load_collection, rows_of
from vjudge.data.schema import FEATURES, CollectionError, Problem
from vjudge.data.summary import cases, fingerprint, lengths, levels, n_words, truth

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
    "n_words",
    "origin",
    "rows_of",
    "truth",
    "validate",
]

__dir__ = __all__.copy
