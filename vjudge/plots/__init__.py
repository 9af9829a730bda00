"""Figures and tables sized for a venue: the same bytes on every run, readable in gray and by the colour-blind.

A plotting function takes a frame and returns a matplotlib figure at the venue's width; `save_figure` writes it as PDF,
SVG and PNG with its caption and data. Missing and failed verdicts are counted in the figure's corner, never dropped
in silence.

canvas.py         venues, text sizes, colours, and what all figures share
accounts.py       what a figure rests on, in words: captions
correlations.py   judges against benchmarks
forests.py        estimates with their intervals
scores.py         scores against the truth
confusions.py     which score is given for which true score
lengths.py        length of a response, by score and at equal quality
reliabilities.py  what a score means in true scores
rivals.py         who beats whom
preferences.py    shares of left, right, both good, both bad; of wins and losses
powers.py         power curves
budgets.py        what labels buy
trainings.py      loss and agreement while a judge learns
files.py          figures and tables as files
"""

from vjudge.plots.accounts import caption
from vjudge.plots.budgets import label_curve
from vjudge.plots.canvas import HATCHES, MARKERS, MIN_TEXT, PALETTE, VENUES, Look, Venue, looks, style, width
from vjudge.plots.confusions import confusion
from vjudge.plots.correlations import heatmap
from vjudge.plots.files import save_figure, save_table
from vjudge.plots.forests import forest
from vjudge.plots.lengths import length_by_score, length_scatter
from vjudge.plots.powers import power_curves
from vjudge.plots.preferences import preference_bars
from vjudge.plots.reliabilities import reliability_curve
from vjudge.plots.rivals import who_beats_whom
from vjudge.plots.scores import score_by_score, score_distribution
from vjudge.plots.trainings import training_curve

__all__ = [
    "HATCHES",
    "MARKERS",
    "MIN_TEXT",
    "PALETTE",
    "VENUES",
    "Look",
    "Venue",
    "caption",
    "confusion",
    "forest",
    "heatmap",
    "label_curve",
    "length_by_score",
    "length_scatter",
    "looks",
    "power_curves",
    "preference_bars",
    "reliability_curve",
    "save_figure",
    "save_table",
    "score_by_score",
    "score_distribution",
    "style",
    "training_curve",
    "who_beats_whom",
    "width",
]
