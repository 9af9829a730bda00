"""Figures of single verdicts: scores against the truth, calibration, lengths of responses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vjudge import metrics
from vjudge.plots import style
from vjudge.plots.style import INK, PALE, PALETTE, SMALL, looks, need, page

MOST_LEVELS = 11  # of a scale that is drawn level by level, not in bins
MARGINS = {-1: "none", -2: "off"}  # columns of verdicts without a score, and off the scale


class Bins(NamedTuple):
    """Levels of the scale or bins of it, and what the caption says of them."""

    edges: np.ndarray  # the outermost are the ends of the scale: 5.4 is no 5 where 5 is the most
    labels: list[str]
    note: str

    def place(self, values: pd.Series) -> np.ndarray:
        """The bin of each value; -1 for a missing one, -2 for one off the scale."""
        numbers = values.to_numpy(dtype=float)
        places = np.digitize(numbers + 1e-9, self.edges) - 1
        off = (places < 0) | (places >= len(self.labels))
        return np.where(np.isnan(numbers), -1, np.where(off, -2, places))


def bins(*columns: pd.Series, scale: Sequence[int] | None = None) -> Bins:
    """Levels for these scores: the whole scores of the scale, or bins where there are more than 11.

    scale: the rubric's scores (`data.levels`); None takes 1 to 5, or the scores' range if wider.

    >>> bins(pd.Series([1, 2.5, 5])).labels, bins(pd.Series([3, 85])).labels[:3]
    (['1', '2', '3', '4', '5'], ['0', '10', '20'])
    """
    numbers = pd.concat(columns).dropna().astype(float)
    fractions = bool((numbers % 1 != 0).any())
    shares = scale is None and fractions and numbers.between(0, 1).all()
    if scale is None:
        first = min(1, math.floor(numbers.min())) if len(numbers) else 1
        last = math.ceil(numbers.max()) if len(numbers) else 5
        scale = range(first, max(last, 5 if first == 1 else first + 1) + 1)
    centers = np.sort(np.array(scale, dtype=float))
    if len(centers) <= MOST_LEVELS and not shares:
        edges = np.array([centers[0], *(centers[1:] + centers[:-1]) / 2, centers[-1]])
        labels = centers
        note = "Scores between two levels are drawn at the nearer, those midway at the upper one"
        note = note if fractions else ""
    else:
        ticks = MaxNLocator(10, steps=[1, 2, 5, 10]).tick_values(centers[0], centers[-1])
        edges = np.array(ticks)
        labels = edges[:-1].copy()
        note = f"Bins of {edges[1] - edges[0]:g} points from the number at the axis"
    edges[-1] += 2e-9  # the last bin has its upper end
    return Bins(edges, [f"{label:g}" for label in labels], note)


def by_judge(run: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The verdicts of each judge, in order of appearance."""
    if run.empty:
        raise ValueError("the run holds no verdict")
    named = need(run.assign(judge=run.get("judge", "")), names=["judge"])
    return dict(list(named.groupby("judge", sort=False)))


def _account(frame: pd.DataFrame, unit: str, words: Mapping[str, str], off: int = 0) -> str:
    """How many rows are drawn, how many lack a column (called by `words`) or are off the scale."""
    gone = []
    for column, word in words.items():
        lacking = int(frame[column].isna().sum())
        if lacking:
            gone.append(f"{lacking:,} without a {word}")
    used = f"{len(frame.dropna(subset=list(words))):,}"
    if gone:
        used += f" of {len(frame):,}"
    if off:
        gone.append(f"{off:,} off the scale, not drawn")
    return "; ".join([f"{used} {unit}", *gone])


def confusion(
    run: pd.DataFrame,
    *,
    truth_name: str = "true score",
    scale: Sequence[int] | None = None,
    **options: Any,
) -> Figure:
    """Counts of each score for each true score, shaded by their share of the true score's items.

    Args:
        run: one row a verdict: columns score, gold; judge where known.
        truth_name: what gold is called, for example "mean of three people".
        scale: see `bins`.

    Returns:
        A panel a judge; "none" counts verdicts without a score, "off" those off the scale.
    """
    run = need(run, "score", "gold").reset_index(drop=True)
    judges = by_judge(run)
    where = bins(run["score"], run["gold"], scale=scale)
    places = pd.DataFrame({name: where.place(run[name]) for name in ("gold", "score")}, run.index)
    levels = list(range(len(where.labels)))
    found = set(places.loc[places["gold"] >= 0, "score"])
    extra = {code: label for code, label in MARGINS.items() if code in found}
    columns = [*where.labels, *extra.values()]
    with page(**options) as paper:
        least = min(paper.inches, 0.25 * len(columns) + 0.4)  # a cell holds three digits
        fig, axes = paper.panels(list(judges), 0.75, least=least)
        for ax, rows in zip(axes, judges.values(), strict=True):
            here = places.loc[rows.index]
            counts = pd.crosstab(here["gold"], here["score"])
            counts = counts.reindex(index=levels, columns=[*levels, *extra], fill_value=0)
            share = counts.div(counts.sum(axis=1).clip(lower=1), axis=0)
            texts = counts.astype(str).where(counts > 0, "")
            look: dict[str, Any] = dict(cmap="Blues", vmin=0, vmax=1, cbar=False, annot=texts)
            look |= dict(fmt="", annot_kws=SMALL, xticklabels=columns, yticklabels=where.labels)
            sns.heatmap(share, ax=ax, **look)
            ax.plot([0, len(levels)], [0, len(levels)], color=PALE, ls="--", lw=0.8, zorder=0)
            ax.tick_params(length=0, rotation=0)
            ax.tick_params(axis="x", rotation=90 if len(columns) > 8 else 0)
            ax.set(xlabel="judge's score", ylabel=truth_name)
            ax.label_outer()
        off = int((places["gold"] == -2).sum())
        words = {"score": "score", "gold": truth_name}
        return paper.finish(fig, _account(run, "verdicts", words, off), where.note)


def calibration_curve(
    tables: Mapping[str, pd.DataFrame], *, label: str = "mean true score", **options: Any
) -> Figure:
    """The mean true score at each score that a judge gives: a panel a judge, with the same axes.

    On the dashed diagonal a score means what it says; above it the judge is too harsh, below it too
    lenient. The area of a marker is the share of items with that score.

    Args:
        tables: by judge, what `metrics.calibration_curve` returned: columns judge, human, low,
            high, n, share.
        label: of the vertical axis, for example "mean human score".
    """
    whole = need(pd.concat(tables), "judge", "human", "low", "high", "n", "share")
    if whole.empty:
        raise ValueError(
            f"no item has both scores, of {', '.join(tables)}: there is nothing to draw"
        )
    low = whole[["judge", "human"]].min(axis=None)
    high = whole[["judge", "human"]].max(axis=None)
    pad = 0.25 * (high - low) or 1
    with page(**options) as paper:
        fig, axes = paper.panels(list(tables), 0.85, least=1.25, sharex=True, sharey=True)
        for ax, (name, look) in zip(axes, looks(list(tables)).items(), strict=True):
            table = tables[name]
            _diagonal(ax, low, high)
            style.bars(ax, table, "judge", "human", look)
            point: dict[str, Any] = dict(
                color=look.color, marker=look.marker, ec=INK, lw=0.4, zorder=3
            )
            ax.scatter("judge", "human", 6 + 90 * table["share"], data=table, **point)
            ax.set_ylim(
                low - pad, high + pad
            )  # of two items an interval may be ten times the scale
        if ((whole["low"] < low - pad) | (whole["high"] > high + pad)).any():
            paper.account.append("Some intervals reach beyond the axis")
        paper.account.append("Area of a marker: share of items")
        paper.name_axes(fig, "judge's score", label)
        counts = [(table["n"].sum(), table.attrs.get("missing", 0)) for table in tables.values()]
        counted = pd.DataFrame(counts, columns=["n", "missing"])
        return paper.finish(fig, style.items(counted, "a judge"))


def _diagonal(ax: Axes, low: float, high: float) -> None:
    ax.plot([low, high], [low, high], ls="--", color=PALE, lw=0.8, zorder=0)


def agreement_scatter(
    run: pd.DataFrame, *, truth_name: str = "mean of people's scores", **options: Any
) -> Figure:
    """The judge's score against people's mean: density of items, and the mean score at each level.

    Args:
        run: one row a verdict: columns score and gold; judge where known, a panel each.
        truth_name: what gold is called.
    """
    run = need(run, "score", "gold").reset_index(drop=True)
    judges = by_judge(run)
    used = run[["score", "gold"]].dropna().astype(float)
    where = bins(used["gold"])
    low = used.min(axis=None)
    high = used.max(axis=None)
    ends = (low - 0.06 * (high - low), high + 0.06 * (high - low))
    with page(**options) as paper:
        fig, axes = paper.panels(list(judges), 0.9, sharex=True, sharey=True)
        for ax, rows in zip(axes, judges.values(), strict=True):
            here = used.loc[rows.index.intersection(used.index)]
            shade: dict[str, Any] = dict(
                gridsize=18, extent=ends * 2, cmap="Blues", mincnt=1, bins="log", lw=0
            )
            ax.hexbin("gold", "score", data=here, **shade)
            _diagonal(ax, low, high)
            means = here.groupby(where.place(here["gold"])).mean()
            ax.plot("gold", "score", "D", data=means, color=PALETTE[1], mec=INK, mew=0.4, ms=4)
            ax.set(xlim=ends, ylim=ends, box_aspect=1)
        paper.name_axes(fig, truth_name, "judge's score")
        paper.account.append("Shade: number of items, on a logarithmic scale; diamonds: means")
        words = {"score": "score", "gold": truth_name}
        return paper.finish(fig, _account(run, "verdicts", words))


def length_by_score(
    frame: pd.DataFrame,
    *,
    score: str = "gold",
    score_name: str | None = None,
    scale: Sequence[int] | None = None,
    **options: Any,
) -> Figure:
    """Length of the response at each score, as box plots: quartiles, and whiskers to 5 and 95%.

    Args:
        frame: one row an item, or a verdict with its `judge`; columns `score` and response.
        score: name of that column.
        score_name: what it is called.
        scale: see `bins`.
    """
    frame = need(frame, score, "response").reset_index(drop=True)
    lengths = metrics.lengths(frame["response"])
    where = bins(frame[score], scale=scale)
    data = pd.concat(by_judge(frame).values())
    data = data.assign(length=lengths, place=pd.Series(where.place(frame[score]), frame.index))
    off = int((data["place"] == -2).sum())
    styles = looks(list(data["judge"].unique()))
    drawn = data[(data["place"] >= 0) & data["length"].notna()]
    levels = range(len(where.labels))
    name = score_name or ("true score" if score == "gold" else score)
    with page(**options) as paper:
        fig, ax = paper.subplots(0.4 * min(paper.inches, 4) + 0.6)
        wide = 0.8 / len(styles)
        look: dict[str, Any] = dict(whis=(5, 95), showfliers=False, patch_artist=True)
        look |= dict(widths=0.85 * wide, manage_ticks=False, medianprops=dict(color=INK))
        for place, (judge, own) in enumerate(styles.items()):
            rows = drawn[drawn["judge"] == judge]
            values = [rows.loc[rows["place"] == level, "length"] for level in levels]
            at = np.array(levels) + (place + 0.5) * wide - 0.4
            ax.boxplot(values, positions=at, boxprops=own.bar, **look)
        ax.set_xticks(levels, where.labels)
        ax.set(xlabel=name, ylabel=f"response ({lengths.attrs['unit']})")
        ax.set_ylim(bottom=0)
        if len(styles) > 1:
            paper.legend(fig, style.patches(styles))
        counts = drawn["place"].value_counts().reindex(levels, fill_value=0)
        paper.account.append(f"n at each level: {', '.join(map(str, counts))}")
        paper.account.append("Boxes: quartiles; whiskers: 5 and 95%")
        words = {"length": "response", score: name}
        return paper.finish(fig, _account(data, "items", words, off), where.note)


def length_scatter(
    frame: pd.DataFrame, probe: pd.DataFrame, *, truth_name: str = "true score", **options: Any
) -> Figure:
    """What is left of a judge's score at equal true score, against the length of the response.

    Args:
        frame: one row a verdict: columns score, gold and response; judge where known, a panel each.
        probe: what `probes.length` returned for these verdicts; of several judges the tables in the
            judges' order. The rows "slope at equal gold" are the lines, their intervals the bands.
        truth_name: what gold is called.
    """
    frame = need(frame, "score", "gold", "response").reset_index(drop=True)
    slopes = need(probe, "case", "effect", "low", "high")
    slopes = slopes[slopes["case"] == "slope at equal gold"]
    judges = by_judge(frame)
    if len(slopes) != len(judges):
        raise ValueError(
            f"the probe's table has {len(slopes)} rows 'slope at equal gold' for {len(judges)} "
            "judge(s): give one for each"
        )
    lengths = metrics.lengths(frame["response"])
    used = frame[["score", "gold"]].astype(float).assign(length=lengths.where(lengths > 0))
    where = bins(used["gold"])
    with page(**options) as paper:
        fig, axes = paper.panels(list(judges), 0.75, least=1.6, sharex=True, sharey=True)
        for ax, (name, rows), (_, slope) in zip(
            axes, judges.items(), slopes.iterrows(), strict=True
        ):
            here = used.loc[rows.index].dropna()
            means = here["score"].groupby(where.place(here["gold"])).transform("mean")
            _slope(ax, here["length"], here["score"] - means, slope)
            estimate = style.short(*slope[["effect", "low", "high"]].astype(float))
            paper.account.append(f"{name} {estimate} points per doubling".strip())
        style.log_axis(axes[0], "x", used["length"].min(), used["length"].max())
        up = f"score less its mean\nat equal {truth_name}"
        paper.name_axes(fig, f"length of the response ({lengths.attrs['unit']})", up)
        words = {"length": "response", "score": "score", "gold": truth_name}
        return paper.finish(fig, _account(used, "verdicts", words), where.note)


def _slope(ax: Axes, length: pd.Series, rest: pd.Series, row: pd.Series) -> None:
    """Points, and the line of a slope per doubling with its band."""
    ax.axhline(0, color=PALE, ls="--", lw=0.8)
    ax.scatter(length, rest, s=8, color=PALETTE[0], alpha=0.35, lw=0)
    x = np.linspace(math.log2(length.min()), math.log2(length.max()), 24)
    aside = x - np.log2(length).mean()
    ax.fill_between(
        2**x, row["low"] * aside, row["high"] * aside, color=PALETTE[1], alpha=0.4, lw=0
    )
    ax.plot(2**x, row["effect"] * aside, color=INK, lw=1.4)
