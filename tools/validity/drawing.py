"""The figures and tables of `make validity`, from the tables that its parts wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from validity.studies import ALPHA, RATER, SPREAD, STUDIES, exact
from vjudge import plots

LEAST = 0.25  # share of the agreement that must be lost
LEVELS = {
    "rejected": (ALPHA, 0.04, 0.06),
    "covered": (0.95, 0.94, 0.965),
}  # nominal, and the band aimed at
SHORT = {  # units in a narrow place
    "score points": "points",
    "score per doubling": "per doubling",
    "log-odds per doubling": "log-odds",
    "log-odds of the first": "log-odds",
}
ABOUT = (
    "Simulated judges and scores; nothing here is about a model. Scores are whole numbers on a 1-5 scale unless "
    "unrounded; noise of an item .3, an image .3 and a verdict .5 score points (noisy judge: 1.2); response lengths "
    f"with a standard deviation of {SPREAD} doublings, and where better is longer, half a doubling more for each gold "
    f"point; noisy gold is the mean of two raters with errors of {RATER} points. "
)
DOTS = (
    "Left: share of simulations in which the two-sided test rejects at 5 % where nothing is planted (or, where a "
    "score must move, just the least loss that counts); grey band 4-6 %. Right: share of 95 % intervals that hold "
    "the true effect, over all planted sizes; grey band 94-96.5 %. Bars are exact 95 % binomial intervals. "
)
CURVES = (
    "Share of simulations in which the two-sided test rejects, by planted size: score points, of length "
    "and padding points per doubling, of position log-odds; dotted lines at .05 and .9. Of "
    "blindness and rubric the size is what the judge lacks of the least loss that counts, .25 of its agreement. "
    "Bars are exact 95 % binomial intervals. "
)
TABLE = (
    "FP: false positives at 5 %; found: smallest planted effect with power .9 or more, in the unit beside it (--: none "
    "of those planted); cover: coverage of 95 % intervals; stays: share of judges without the bias whose interval lies inside the margin. On "
    "simulated judges: {designs}. Seed {seed}."
)


def levels(cells: pd.DataFrame) -> Figure:
    """False-positive rates and coverage of all cases, each with its exact 95 % interval."""
    kinds = plots.looks(list(dict.fromkeys(cells["design"])))
    order = [(study.name, case) for study in STUDIES for case in study.names]
    cases = [key for key in order if key in set(zip(cells["probe"], cells["case"], strict=True))]
    rows = []
    for (probe, case, design), part in cells.groupby(["probe", "case", "design"], sort=False):
        defined = part["simulations"] - part["undefined"]
        share = exact(
            round(float((part["covered"] * defined).sum())), int(defined.sum()), "covered"
        )
        rows.append({"probe": probe, "case": case, "design": design, **share})
    pooled = pd.DataFrame(rows)  # over all planted sizes
    with plots.page(column="full") as paper:
        fig, (left, right) = paper.subplots(0.16 * len(cases) + 0.8, 1, 2, sharey=True)
        _dots(left, cells[cells["null"] & cells["rejected"].notna()], cases, "rejected", kinds)
        _dots(right, pooled, cases, "covered", kinds)
        left.set_xlabel("false-positive rate at 5 %")
        right.set_xlabel("coverage of 95 % intervals")
        left.set_yticks(
            range(len(cases)), [f"{probe.replace('_', ' ')}: {case}" for probe, case in cases]
        )
        left.set_ylim(len(cases) - 0.4, -0.6)
        marks = [Line2D([], [], ms=3.5, ls="none", label=name, **look)
                 for name, look in kinds.items()]  # fmt: skip
        fig.legend(handles=marks, loc="outside upper center", ncols=len(marks))
        return paper.finish(fig, "")


def _dots(
    ax: Axes, cells: pd.DataFrame, cases: list[Any], value: str, kinds: dict[str, Any]
) -> None:
    nominal, low, high = LEVELS[value]
    ax.axvspan(low, high, color="#DDDDDD", lw=0, zorder=0)
    ax.axvline(nominal, color="#222222", lw=0.6, zorder=0)
    for offset, (design, look) in zip(
        np.linspace(-0.18, 0.18, len(kinds)), kinds.items(), strict=True
    ):
        here = cells[cells["design"] == design]
        at = [cases.index(key) + offset for key in zip(here["probe"], here["case"], strict=True)]
        spread = np.abs(
            here[[f"{value}_low", f"{value}_high"]].to_numpy() - here[[value]].to_numpy()
        ).T
        ax.errorbar(
            here[value],
            at,
            xerr=spread,
            **look,
            ms=2.8,
            elinewidth=0.7,
            ls="none",
        )
    ax.tick_params(axis="y", length=0)


TITLES = {  # short enough for a panel's title
    "length, better is longer": "better is longer",
    "length, noisy gold, better is longer": "length, rated gold",
    "self-preference, two raters' gold": "self-pref., rated",
    "self-preference, a taste for each system": "self-pref., tastes",
}


def power(cells: pd.DataFrame) -> Figure:
    """Share of simulations in which a test rejects, by planted size, a panel a test.

    Where a score must move, the size is what a judge lacks of the least loss that counts.
    """
    first = {study.names[0] for study in STUDIES}
    cells = cells[cells["case"].isin(first)].copy()
    least = cells["unit"].str.startswith("share ") & (cells["probe"] != "reference")
    cells = cells[~least | (cells["planted"] <= LEAST)]
    cells.loc[least, "planted"] = LEAST - cells["planted"]
    cells.loc[least, "unit"] = "share missing"
    cells["panel"] = cells["label"].replace(TITLES)
    cells = cells.sort_values(["label", "planted"], kind="stable")
    return plots.curves(
        cells, x="planted", y="rejected", by="design", panel="panel", low="rejected_low",
        high="rejected_high", labels=("size, in the unit of the caption", "share rejected"),
        lines=(ALPHA, 0.9), column="full",
    )  # fmt: skip


def summary(cells: pd.DataFrame) -> pd.DataFrame:
    """A row for each design and case: false positives, the smallest planted effect with power .9, coverage, and how
    often a judge without the bias is cleared."""
    rows = []
    for (design, probe, case), part in cells.groupby(["design", "probe", "case"], sort=False):
        null = part[part["null"] & part["rejected"].notna()]
        larger = part["planted"] > part.loc[part["null"], "planted"].max()
        rows.append(
            {
                "probe": probe,
                "case": case,
                "n": int(design.split()[0]),  # tells the designs apart
                "FP": null["rejected"].iloc[0] if len(null) else np.nan,
                "found": part[larger & (part["rejected"] >= 0.9)]["planted"].min(),
                "unit": SHORT.get(part["unit"].iloc[0], part["unit"].iloc[0]),
                "cover": np.average(part["covered"], weights=part["simulations"]),
                "stays": null["stays"].iloc[0] if len(null) else np.nan,
            }
        )
    return pd.DataFrame(rows).sort_values("n", ascending=False, kind="stable", ignore_index=True)


def save(folder: Path, *, seed: int = 0) -> list[Path]:
    """Write the figures `validity` and `validity_power` and the table `validity_table` from validity.csv."""
    cells = pd.read_csv(folder / "validity.csv")
    drawn, described = cells[cells["rejected"].notna()], cells[cells["rejected"].isna()]
    counts = (
        f"Up to {drawn.loc[drawn['null'], 'simulations'].max():,} simulations with nothing planted, "
        f"{drawn.loc[~drawn['null'], 'simulations'].max():,} with an effect "
        f"(descriptions: {described['simulations'].max():,}). "
        f"Seed {seed}; {int(cells['undefined'].sum())} undefined estimates, counted as not rejected."
    )
    table = TABLE.format(designs="; ".join(dict.fromkeys(cells["design"])), seed=seed)
    files = [
        plots.save_figure(
            levels(cells), "validity", caption=ABOUT + DOTS + counts, data=cells, folder=folder
        ),
        plots.save_figure(
            power(drawn),
            "validity_power",
            caption=ABOUT + CURVES + counts,
            data=drawn,
            folder=folder,
        ),
        plots.save_table(summary(cells), "validity_table", caption=table, folder=folder),
    ]
    return [path for paths in files for path in paths.values()]
