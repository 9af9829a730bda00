"""Figures of one venue, each with its caption and data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from vjudge import metrics, plots
from vjudge.plots.save import sentences

MOST_LEVELS = 11  # of a scale whose scores are calibrated one by one, not in bins


class Figures(dict[str, tuple[Figure, str, pd.DataFrame]]):
    """By name a figure, its caption and what it was drawn from, as wide as the venue's page."""

    def __init__(self, venue: str) -> None:
        plots.width(venue, "full")  # an unknown venue is refused before anything is computed
        self.venue = venue

    def draw(self, name: str, plot: Any, rows: Any, caption: str, /, **options: Any) -> None:
        """Draw rows, a frame or frames by judge, and keep the figure."""
        figure = plot(rows, venue=self.venue, column="full", **options)
        if isinstance(rows, dict):
            rows = pd.concat(rows, names=["name", "row"]).reset_index()
        self[name] = (figure, caption, rows)

    def draw_scores(self, run: pd.DataFrame, truth: str) -> None:
        """Draw confusion with the truth, and what each score means.

        run: columns judge, score, gold, group, a row an item and judge.
        """
        text = f"Scores of each judge by {truth}; shade: share of a row"
        self.draw(
            "confusion",
            plots.confusion,
            run,
            text,
            truth_name=truth,
        )
        curves = {}
        for name, rows in run.groupby("judge", sort=False):
            bins = None if rows["score"].nunique() <= MOST_LEVELS else 10
            curves[str(name)] = metrics.calibration_curve(
                rows["score"],
                rows["gold"],
                bins=bins,
                groups=rows["group"],
            )
        text = f"The truth ({truth}) at each score of a judge: means with 95% t intervals"
        self.draw(
            "calibration",
            plots.calibration_curve,
            curves,
            text,
            label=truth,
        )

    def save(self, folder: str | Path, about: str = "") -> dict[str, dict[str, Path]]:
        """Write all figures; `about` is added to each caption. Returns the paths by name."""
        files = {}
        for name, (figure, caption, data) in self.items():
            files[name] = plots.save_figure(
                figure,
                name,
                caption=sentences(caption, about),
                data=data,
                folder=folder,
            )
        return files
