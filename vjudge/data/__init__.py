"""Collections: published data sets and local files in one canonical schema, checked before anything runs.

Columns: `id`, `images` (list), `instruction`, `response`, `reference_answer`, `criteria`, `descriptions` (list of
str, lowest score first), `gold` (score), `feedback`, `human_scores` (list), `group` (the unit of resampling). What a
source does not know stays None, or NaN for `gold`.

`schema` brings any known row into these columns, `sources` finds the rows, `checks` validates and fingerprints them.
"""

from vjudge.data.checks import fingerprint, validate
from vjudge.data.schema import COLUMNS, FEATURES, CollectionError, Problem, canonical
from vjudge.data.sources import HUB, load_collection

__all__ = [
    "COLUMNS",
    "FEATURES",
    "HUB",
    "CollectionError",
    "Problem",
    "canonical",
    "fingerprint",
    "load_collection",
    "validate",
]
