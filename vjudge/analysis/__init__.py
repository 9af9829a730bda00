"""Scores in, results out: who scored what, and every analysis of it.

tables.py        the table: one row an item, and which column is whose
score_table.py   `scores` and its analyses
choice_table.py  `choices`, the same for verdicts on pairs
readings.py      sentences made of numbers
public.py        public verdicts of real judges as such a table
controls.py      one judge with right, grey and swapped pictures
inspection.py    `inspect`: what a collection holds, and what tells its scores without the picture
aligning.py      `align`: which candidate agrees best with people, by two halves
card.py          `report`, a judge's card: agreement, biases, failures, calibration on a page
names.py         what can be named
"""

from vjudge.analysis.aligning import align
from vjudge.analysis.card import Report, report
from vjudge.analysis.choice_table import Choices, choices
from vjudge.analysis.controls import picture_controls
from vjudge.analysis.inspection import Inspection, inspect
from vjudge.analysis.names import available
from vjudge.analysis.public import load_verdicts
from vjudge.analysis.score_table import Scores, from_scores, scores

__all__ = [
    "Choices",
    "Inspection",
    "Report",
    "Scores",
    "align",
    "available",
    "choices",
    "from_scores",
    "inspect",
    "load_verdicts",
    "picture_controls",
    "report",
    "scores",
]

__dir__ = __all__.copy
