"""The figure and the table of `make validity`."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from vjudge import plots
from vjudge.plots.canvas import INK, TRUTH, finish, need, short
from vjudge.plots.powers import power_panel
from vjudge.simulate.studies import SPREAD, STUDIES
from vjudge.simulate.validity import ALPHA, summary

COLUMNS = 6  # of power panels
LEVELS = {"rejected": (ALPHA, 0.04, 0.06), "covered": (0.95, 0.935, 0.965)}  # nominal, and the band aimed at


def figure(cells: pd.DataFrame, *, venue: str = "acl") -> Figure:
    """Power by planted size for each probe; false-positive rates and coverage of all cases.

    Args:
        cells: as `validity.study_all` returns them.
        venue: the figure takes its full width.
    """
    need(cells, "probe", "case", "label", "design", "planted", "rejected", "covered", "simulations")
    looks = plots.looks(list(dict.fromkeys(cells["design"])))
    tested = cells[cells["rejected"].notna()]
    order = {(study.name, case): place for place, study in enumerate(STUDIES) for case in study.cases.values()}
    cases = sorted(dict.fromkeys(zip(cells["probe"], cells["case"], strict=True)), key=lambda key: order.get(key, 99))
    known = [study.label for study in STUDIES if study.label in set(tested["label"])]
    labels = list(dict.fromkeys([*known, *tested["label"]]))
    with plots.style(venue):
        inches = plots.width(venue, "full")
        n_rows = -(-len(labels) // COLUMNS)
        heights = [1.42 * n_rows, 0.155 * len(cases) + 0.55]
        fig = plt.figure(figsize=(inches, sum(heights) + 0.3), layout="constrained")
        upper, lower = np.asarray(fig.subfigures(2, 1, height_ratios=heights))
        grid = upper.subplots(n_rows, COLUMNS, sharey=True, squeeze=False)
        axes = np.asarray(grid)
        for ax, label in zip(axes.flat, labels, strict=False):
            cells_of = tested[tested["label"] == label]
            first = cells_of[cells_of["case"] == cells_of["case"].iloc[0]]
            power_panel(ax, first, looks, by="design", effect="planted", narrow=True)
            ax.set_title(label.replace(", ", ",\n"), pad=3, fontsize=plots.MIN_TEXT + 0.5)
        for ax in axes.flat[len(labels) :]:
            ax.set_axis_off()
        for row in axes:
            row[0].set_ylabel("rejected")
        left, right = lower.subplots(1, 2, sharey=True)
        _dots(left, tested[tested["planted"] == 0], cases, "rejected", looks)
        _dots(right, _pooled(cells), cases, "covered", looks)
        left.set_xlabel("false-positive rate at 5 %")
        right.set_xlabel("coverage of 95 % intervals")
        left.set_yticks(range(len(cases)), [f"{probe.replace('_', ' ')}: {case}" for probe, case in cases])
        left.set_ylim(len(cases) - 0.4, -0.6)
        marks = [
            Line2D([], [], color=look.color, marker=look.marker, ms=3.5, lw=1, label=name)
            for name, look in looks.items()
        ]
        fig.legend(handles=marks, loc="outside upper center", ncols=len(marks))
        return finish(fig)


def _pooled(cells: pd.DataFrame) -> pd.DataFrame:
    """Coverage over all planted sizes of a case and design, with its exact interval."""
    rows = []
    for (probe, case, design), part in cells.groupby(["probe", "case", "design"], sort=False):
        total = int(part["simulations"].sum() - part["undefined"].sum())
        hits = round(float((part["covered"] * (part["simulations"] - part["undefined"])).sum()))
        interval = stats.binomtest(hits, total).proportion_ci(0.95, method="exact")
        told = {"probe": probe, "case": case, "design": design, "covered": hits / total}
        rows.append({**told, "covered_low": interval.low, "covered_high": interval.high})
    return pd.DataFrame(rows)


def _dots(
    ax: Axes, cells: pd.DataFrame, cases: list[tuple[str, str]], value: str, looks: dict[str, plots.Look]
) -> None:
    nominal, low, high = LEVELS[value]
    ax.axvspan(low, high, color=TRUTH, alpha=0.6, lw=0, zorder=0)
    ax.axvline(nominal, color=INK, lw=0.6, zorder=0)
    offsets = np.linspace(-0.18, 0.18, len(looks))
    for offset, (design, look) in zip(offsets, looks.items(), strict=True):
        here = cells[cells["design"] == design]
        at = [cases.index(key) + offset for key in zip(here["probe"], here["case"], strict=True)]
        spread = np.abs(here[[f"{value}_low", f"{value}_high"]].to_numpy() - here[[value]].to_numpy()).T
        ax.errorbar(
            here[value], at, xerr=spread, fmt=look.marker, color=look.color, ms=2.8, elinewidth=0.7, linestyle="none"
        )
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", color="#EEEEEE", lw=0.4, zorder=-1)
    ax.set_axisbelow(True)


def caption(cells: pd.DataFrame, *, seed: int) -> str:
    """What the figure shows, with n, unit, method, seed and failures."""
    null = cells[(cells["planted"] == 0) & cells["rejected"].notna()]
    power = cells[(cells["planted"] > 0) & cells["rejected"].notna()]
    undefined = int(cells["undefined"].sum())
    return (
        "Probes on simulated judges with planted effects; nothing here is about a model. "
        "Above: share of simulations in which the two-sided test rejects no effect at 5 %, by planted size "
        f"(first case of each probe; {null['simulations'].max():,} simulations with nothing planted, "
        f"{power['simulations'].max():,} with an effect; dotted lines at .05 and .9). "
        "Below, left: the same share with nothing planted, for every test; grey band 4-6 %. "
        "Below, right: share of 95 % intervals that hold the true effect, over all planted sizes; grey band "
        "93.5-96.5 %. Bars are exact 95 % binomial intervals. Designs: "
        f"{' and '.join(dict.fromkeys(cells['design']))}. Scores are whole numbers on a 1-5 scale (range compression: "
        "unrounded); noise of an item .3, an image .3 and a verdict .5 score points (noisy judge: 1.2); response "
        f"lengths with a standard deviation of {SPREAD} doublings, and where better is longer, half a doubling more "
        f"for each gold point. Intervals and p by a jackknife over images with Student's t. Seed {seed}; {undefined} "
        "undefined estimates, counted as not rejected."
    )


def save(cells: pd.DataFrame, *, folder: str | Path = "figures", seed: int = 0) -> list[Path]:
    """Write the figure `validity` with all cells as its data, and the table `validity_table`.

    Returns:
        The files.
    """
    made = plots.save_figure(
        figure(cells), "validity", column="full", caption=caption(cells, seed=seed), data=cells, folder=folder
    )
    designs = "; ".join(dict.fromkeys(cells["design"]))
    told = (
        "FP: false positives at 5 %; found: smallest planted effect with power .9 or more, in the unit of the last "
        "column; cover: coverage of 95 % intervals, over all planted sizes. On simulated judges in two designs: "
        f"{designs}. {short(ALPHA, 2)} and .95 are nominal. Numbers of simulations are in validity.csv; seed {seed}."
    )
    made |= {f"table {end}": path for end, path in plots.save_table(
        summary(cells), "validity_table", caption=told, folder=folder).items()}  # fmt: skip
    return list(made.values())
