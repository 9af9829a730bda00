"""A judge's report card: what a model card is for a model, on one page, and the folder that a paper needs.

scores.py  `from_scores`, the tables and figures of a paper from a wide table of scores
card.py    `report`, the card and its parts: each a question, its numbers, and the one sentence that follows
pages.py   the card as HTML, as one A4 page, and as a paper's figures, tables, methods and references

Nothing is computed here: numbers are those of `vjudge.metrics` and `vjudge.probes`, figures those of `vjudge.plots`.
What is said stands in assets/: report.txt has the sentences, report.html and report.tex the pages.
"""

from vjudge.reports.card import Card, Part, report
from vjudge.reports.scores import ScoreAnalysis, from_scores

__all__ = ["Card", "Part", "ScoreAnalysis", "from_scores", "report"]

__dir__ = __all__.copy
