"""The figure of a probe or a battery of probes: effects in units of their margins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from vjudge.plots.style import GREY, PALE, PALETTE, Look, counts, need, page, reach

# How a case is drawn, by whether it passed: True, False, or undecided
OUTCOMES: dict[str, Look] = {
    "as it must": {"color": PALETTE[0], "marker": "o", "ms": 4},
    "against what must be": {"color": PALETTE[5], "marker": "X", "ms": 6.5},
    "undecided": {"color": PALE, "marker": "^", "ms": 4},
}


def battery_effects(table: DataFrame, **options: Any) -> Figure:
    """Draw how each case of a battery changed the scores, in margins, with one column per judge.

    The upper panels show the cases in which scores must stay, with a grey band of one margin on
    either side of zero. The lower panels show the cases in which scores must fall, with a dashed
    line at the least loss required, one margin.

    Args:
        table: as a probe's or `probes.battery`'s result has it: columns case, judge, effect, low,
            high, margin, must ("stay" or "move"), passes. Cases that lack `must`, an effect or a
            margin are not drawn; the caption counts them.
        options: of `page`.

    Raises:
        ValueError: no case is left to draw.
    """
    lines, n_left_out = _in_margins(table)  # a line of the figure is one case of one judge
    judges = dict(list(lines.groupby("judge", sort=False)))
    cases = {}  # "stay" or "move" -> the names of its cases, from top to bottom
    for must in ("stay", "move"):
        names = lines.loc[lines["must"] == must, "case"].unique()
        if len(names):
            cases[must] = names
    heights = [len(names) + 1 for names in cases.values()]  # of the panels, in lines
    with page(**options) as paper:
        fig, axes = paper.subplots(
            0.125 * sum(heights) + 0.25 * len(cases) + 0.35,  # inches
            len(cases),
            len(judges),
            squeeze=False,
            sharex=True,
            sharey="row",
            height_ratios=heights,
        )
        for column, (judge, of_judge) in zip(axes.T, judges.items(), strict=True):
            for ax, (must, names) in zip(column, cases.items(), strict=True):
                _draw_outcomes(ax, of_judge[of_judge["must"] == must], names, must)
            if len(judges) > 1:
                (title,) = paper.fold([judge], paper.inches / len(judges) - 0.5)
                column[0].set_title(title)
        for ax, (must, names) in zip(axes[:, 0], cases.items(), strict=True):
            ax.set_yticks(range(len(names)), paper.fold(names, 0.36 * paper.inches, 1))
            ax.set_ylabel(f"must {must}")
        fig.supxlabel("effect, in margins")
        paper.legend(fig, axes[0, 0])
        marks = "Grey band: less than a margin. Dashed line: the least loss"
        left_out = f"Left out, as nothing was tested: {n_left_out} cases" if n_left_out else ""
        return paper.finish(fig, marks, counts(lines), left_out)


def _in_margins(table: DataFrame) -> tuple[DataFrame, int]:
    """Divide effects and their bounds by the margins, and name the outcomes.

    Returns:
        The rows that can be drawn, with a column `outcome`; and how many rows are left out.

    Raises:
        ValueError: no row can be drawn, or a column is absent.
    """
    columns = ("effect", "low", "high", "margin", "must", "passes", "judge")
    cases = need(table, *columns, names=["case"])
    is_tested = cases["must"].notna() & (cases["effect"] / cases["margin"]).notna()
    lines = cases[is_tested].copy()
    if lines.empty:
        raise ValueError("no case that must move or stay was tested: there is nothing to draw")
    bounds = ["effect", "low", "high"]
    lines[bounds] = lines[bounds].div(lines["margin"], axis=0)
    passes = lines["passes"].astype("boolean")  # NA where undecided
    outcomes = passes.map({True: "as it must", False: "against what must be"})
    lines["outcome"] = outcomes.astype(object).fillna("undecided")
    # A probe that names a case "NAME: change" shows as NAME
    lines["case"] = lines["case"].str.replace(": change", "", regex=False)
    return lines, len(cases) - len(lines)


def _draw_outcomes(ax: Axes, lines: DataFrame, names: Sequence[str], must: str) -> None:
    """Draw one judge's effects in margins, one line per case.

    Args:
        lines: the judge's rows of `_in_margins` with this `must`.
        names: of the cases, from top to bottom.
        must: "stay" or "move".
    """
    position = {name: y for y, name in enumerate(names)}
    for outcome, look in OUTCOMES.items():
        of_outcome = lines[lines["outcome"] == outcome]
        y = of_outcome["case"].map(position)
        whiskers = reach(of_outcome, "effect")
        ax.errorbar(of_outcome["effect"], y, xerr=whiskers, label=outcome, ls="none", **look)
    if must == "stay":
        ax.axvspan(-1, 1, color=GREY, lw=0, zorder=-2)
    else:
        ax.axvline(-1, color=PALE, ls="--", lw=0.8, zorder=-1)
    ax.axvline(0, color=PALE, lw=0.5, zorder=-1)
    ax.set_ylim(len(names) - 0.4, -0.6)  # the first case on top
    ax.tick_params(axis="y", length=0)
