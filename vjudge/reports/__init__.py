"""A judge's report card, and a paper's tables and figures from a wide table of scores.

scores.py  `from_scores`, the tables and figures of a paper
card.py    `report`, the card: claims, verdicts, sentences and figures
sides.py   what was given: judges or their runs, with the truth of each item
"""

from vjudge.reports.card import Card, report
from vjudge.reports.scores import ScoreAnalysis, from_scores

__all__ = ["Card", "ScoreAnalysis", "from_scores", "report"]

__dir__ = __all__.copy
