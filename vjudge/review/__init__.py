"""Reviewing judges' feedback: what an annotator sees, votes and exports, without widgets.

journal.py    the append-only file that several kernels write
votes.py      events -> votes; undo, conflicts, two people's files merged
cases.py      the items with their verdicts; which are listed, in what order
review.py     Review: filter, order, vote, undo, reveal, resume
export.py     what votes become: human scores, preferences, tables, files
rehearsal.py  votes of simulated annotators, to try it out
"""

from vjudge.names import public
from vjudge.review.cases import ORDERS, Case, Progress, Side
from vjudge.review.export import collection, error_tags, export, preference, preferences
from vjudge.review.journal import ReviewError
from vjudge.review.rehearsal import rehearse
from vjudge.review.review import Review
from vjudge.review.votes import ANSWERS, FIELDS, NOTE_LIMIT, TAGS, differences, merge

__all__ = [
    "ANSWERS",
    "FIELDS",
    "NOTE_LIMIT",
    "ORDERS",
    "TAGS",
    "Case",
    "Progress",
    "Review",
    "ReviewError",
    "Side",
    "collection",
    "differences",
    "error_tags",
    "export",
    "merge",
    "preference",
    "preferences",
    "rehearse",
]

__dir__ = public(__name__)
