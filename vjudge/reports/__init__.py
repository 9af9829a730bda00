"""A judge's report card: what a model card is for a model, on one page, and the folder that a paper needs.

    card = vj.report(judge, items, out="outputs/report")

evidence.py  the runs that a card rests on: graded now, or given; what they are held against
card.py      what a card is, and `report`
parts.py     its parts: each a question, its numbers, and the one sentence that follows
methods.py   how it was made, in sentences, and what they cite
page.py      the card as HTML and as PDF
paper.py     figures, tables, methods, references and a main.tex that compiles

Nothing is computed here: numbers are those of `vjudge.metrics` and `vjudge.probes`, figures those of `vjudge.plots`.
"""

from vjudge.names import public
from vjudge.reports.card import Card, Part, report

__all__ = ["Card", "Part", "report"]

__dir__ = public(__name__)
