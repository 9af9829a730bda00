"""Reviewing judges' feedback: show items, take annotators' votes, and say what they become.

votes.py (votes on disk), session.py (one annotator's list and votes), review.py (`Review`: what
votes become, as results), show.py (views by assets/review.html), widget.py (the notebook tool, the
matrix; assets/reviewer.js).
"""

from vjudge.review.judged import contrast
from vjudge.review.review import Review
from vjudge.review.session import assignment
from vjudge.review.show import show, show_case
from vjudge.review.votes import ANSWERS, TAGS, ReviewError
from vjudge.review.widget import Matrix as matrix
from vjudge.review.widget import Reviewer

__all__ = [
    "ANSWERS", "TAGS", "Review", "ReviewError", "Reviewer", "assignment",
    "contrast", "matrix", "show", "show_case",
]  # fmt: skip

__dir__ = __all__.copy
