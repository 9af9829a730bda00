"""Reviewing judges' feedback: what a notebook shows of items, what an annotator votes, and what votes become.

review.py (votes, `Review`), show.py (views, by assets/review.html), export.py, widget.py (the tool, the matrix)
"""

from vjudge.review.export import collection, error_tags, export, preference, save_page
from vjudge.review.review import ANSWERS, TAGS, Review, ReviewError
from vjudge.review.show import contact_sheet, show, show_case
from vjudge.review.widget import Reviewer, matrix

__all__ = [
    "ANSWERS",
    "TAGS",
    "Review",
    "ReviewError",
    "Reviewer",
    "collection",
    "contact_sheet",
    "error_tags",
    "export",
    "matrix",
    "preference",
    "save_page",
    "show",
    "show_case",
]

__dir__ = __all__.copy
