"""A judge's report card: what a model card is for a model, on one page, and the folder that a paper needs.

gather.py  `report`: the runs that a card rests on, graded now or given, and the truth they are held against
card.py    the card and its parts: each a question, its numbers, and the one sentence that follows
pages.py   the card as HTML, as one A4 page, and as a paper's figures, tables, methods and references

Nothing is computed here: numbers are those of `vjudge.metrics` and `vjudge.probes`, figures those of `vjudge.plots`.
"""

from vjudge.names import public
from vjudge.reports.card import Card, Part
from vjudge.reports.gather import report

__all__ = ["Card", "Part", "report"]

__dir__ = public(__name__)
