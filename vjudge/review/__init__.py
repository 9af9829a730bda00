"""Reviewing judges' feedback: show items, take an annotator's votes, and export them.

votes.py (votes on disk), review.py (`Review`), show.py (views by assets/review.html, exports),
widget.py (the notebook tool, the matrix).
"""

from vjudge.review.review import Review
from vjudge.review.show import (
    collection,
    contact_sheet,
    error_tags,
    export,
    preference,
    show,
    show_case,
)
from vjudge.review.votes import ANSWERS, TAGS, ReviewError
from vjudge.review.widget import Matrix as matrix
from vjudge.review.widget import Reviewer

__all__ = [
    "ANSWERS", "TAGS", "Review", "ReviewError", "Reviewer", "collection", "contact_sheet",
    "error_tags", "export", "matrix", "preference", "show", "show_case",
]  # fmt: skip

__dir__ = __all__.copy
