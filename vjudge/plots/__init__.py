"""Figures and tables sized for a venue, the same bytes on every run.

They are readable in gray and by the colour-blind. A plotting function takes a frame and returns a
matplotlib figure at the venue's width; `save_figure` writes it with its caption and data. Every
figure takes the options of `page`: venue and column. Its caption counts the rows that are not
drawn. A frame that lacks a column or has nothing to draw is a ValueError.

In reading order:

style.py     venues, fonts, colours, the page
forest.py    estimates with intervals, one per line
battery.py   effects of probes
bars.py      stacked shares
curves.py    estimates over a number
matrices.py  judges against benchmarks, and against each other
scores.py    single verdicts: confusion, calibration, lengths
boxes.py     qualitative examples, as a figure and as LaTeX
escaping.py  texts made harmless for LaTeX and for spreadsheets
latex.py     figures and tables as LaTeX environments
save.py      files: figures with caption and data, tables
"""

from vjudge.plots.bars import FOUR_WAY, preference_bars
from vjudge.plots.battery import battery_effects
from vjudge.plots.boxes import qualitative, qualitative_latex
from vjudge.plots.curves import curves, training_curve
from vjudge.plots.forest import forest
from vjudge.plots.matrices import heatmap, rank_heatmap, who_beats_whom
from vjudge.plots.save import save_figure, save_table
from vjudge.plots.scores import (
    agreement_scatter,
    calibration_curve,
    confusion,
    length_by_score,
    length_scatter,
)
from vjudge.plots.style import VENUES, looks, page, width

__all__ = [
    "FOUR_WAY", "VENUES", "agreement_scatter",
    "battery_effects", "calibration_curve", "confusion", "curves", "forest", "heatmap",
    "length_by_score", "length_scatter", "looks", "page", "preference_bars", "qualitative",
    "qualitative_latex", "rank_heatmap", "save_figure", "save_table",
    "training_curve", "who_beats_whom", "width",
]  # fmt: skip

__dir__ = __all__.copy
