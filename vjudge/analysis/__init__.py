"""Scores in, results out: who scored what, and every analysis of it.

tables.py        the table: one row per item, and the role of each column
sources.py       such a table made of runs, or of a wide frame
score_table.py   `scores` and its analyses
choice_table.py  `choices`, the same for verdicts on pairs
scales.py        judges' scores on the scale of the truth
few_labels.py    a judge's mean corrected by the truth of a few items
readings.py      sentences made of numbers
public.py        public verdicts of real judges as such a table
controls.py      one judge with the right, a grey and a swapped picture
inspection.py    `inspect`: what a collection holds, and what predicts its scores without the image
aligning.py      `align`: the candidate that agrees best with people
card.py          `report`, a judge's card: agreement, biases, failures, calibration on one page
names.py         `available`: everything that can be given by name
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
