"""Figures and tables sized for a venue: the same bytes on every run, readable in gray and by the colour-blind.

A plotting function takes a frame and returns a matplotlib figure at the venue's width; `save_figure` writes it with its
caption and data. Every figure takes the options of `page`: venue, column, note and font. What is not drawn is counted,
in the corner and the caption. A frame that lacks a column, names a cell twice or has nothing to draw is a ValueError.
"""

from vjudge.plots.figures import (
    FOUR_WAY,
    battery_effects,
    curves,
    forest,
    heatmap,
    preference_bars,
    tag_bars,
    training_curve,
    who_beats_whom,
)
from vjudge.plots.save import caption, save_correlations, save_figure, save_table
from vjudge.plots.scores import (
    calibration_curve,
    confusion,
    length_by_score,
    length_scatter,
)
from vjudge.plots.style import MIN_TEXT, PALETTE, VENUES, Look, Page, looks, page, width

__all__ = [
    "FOUR_WAY", "MIN_TEXT", "PALETTE", "VENUES", "Look", "Page", "battery_effects",
    "calibration_curve", "caption", "confusion", "curves", "forest", "heatmap", "length_by_score", "length_scatter",
    "looks", "page", "preference_bars", "save_correlations", "save_figure", "save_table",
    "tag_bars", "training_curve", "who_beats_whom", "width",
]  # fmt: skip

__dir__ = __all__.copy
