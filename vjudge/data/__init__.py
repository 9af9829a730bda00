"""Collections: published data sets and local files in one canonical schema, checked before anything runs.

Items have the columns `id`, `images` (list), `instruction`, `response`, `reference_answer`, `criteria`, `descriptions`
(list of str, lowest score first), `gold` (score), `feedback`, `human_scores` (list), `group` (the unit of resampling).
Pairs have `response_a`, `response_b` and `preference` ("a", "b" or "tie") in place of the response and the scores;
candidates have `responses` and `ranks`. What a source does not know stays None, or NaN for `gold`.

    schema.py     the canonical columns; what is wrong with a collection
    adapters/     the published data sets, each in one place
    lines.py      a file of JSON lines, read row by row
    rows.py       rows of any known schema -> the canonical columns
    hub.py        published sets from the hub, with the commit they came from or are pinned to
    sources.py    load_collection: the generator, files and folders, the hub
    answers.py    a policy's responses to questions
    checks.py     what must hold before a long run; fingerprints
    summary.py    what is in a collection
"""

from vjudge.data.answers import with_responses
from vjudge.data.checks import fingerprint, validate
from vjudge.data.hub import PINNED, origin
from vjudge.data.rows import canonical, readable
from vjudge.data.schema import CANDIDATE_FEATURES, FEATURES, PAIR_FEATURES, CollectionError, Problem
from vjudge.data.sources import load_collection
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
    "CANDIDATE_FEATURES",
    "FEATURES",
    "PAIR_FEATURES",
    "PINNED",
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
    "origin",
    "readable",
    "reference_overlap",
    "rubric_overlap",
    "validate",
    "with_responses",
]
