"""Collections: published data sets and local files in one canonical schema, checked before anything runs.

Columns: `id`, `images` (list), `instruction`, `response`, `reference_answer`, `criteria`, `descriptions` (list of
str, lowest score first), `gold` (score), `feedback`, `human_scores` (list), `group` (the unit of resampling). What a
source does not know stays None, or NaN for `gold`.

`schema` brings any known row into these columns, `sources` finds the rows, `checks` validates and fingerprints them,
`summary` says what is in them.
"""

from vjudge.data.checks import fingerprint, validate
from vjudge.data.schema import COLUMNS, FEATURES, CollectionError, Problem, canonical
from vjudge.data.sources import HUB, load_collection
from vjudge.data.summary import (
    cases,
    counts,
    image_sizes,
    length_test,
    lengths,
    reference_overlap,
    rubric_overlap,
)

__all__ = [
    "COLUMNS",
    "FEATURES",
    "HUB",
    "CollectionError",
    "Problem",
    "canonical",
    "cases",
    "counts",
    "fingerprint",
    "image_sizes",
    "length_test",
    "lengths",
    "load_collection",
    "reference_overlap",
    "rubric_overlap",
    "validate",
]
