"""Review judges' feedback: show items, take annotators' votes, and analyse them.

judged.py (a judge beside a weaker one; runs and items as tables), hiding.py (scores in a feedback),
votes.py (votes on disk), session.py (one annotator's list and votes), show.py (HTML by
assets/review.html), review.py (`Review`: results of everyone's votes), widget.py (the notebook tool
and the matrix; assets/reviewer.js).
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
