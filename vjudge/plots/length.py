"""Length of a response: at each score, and against the judge's score at equal true score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from vjudge import metrics
from vjudge.plots.judges import log_ticks
from vjudge.plots.save import name_of
from vjudge.plots.scores import bins, by_judge, level_ticks, violins
from vjudge.plots.style import INK, MARKERS, interval, key, need, p_text, page

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from vjudge.plots.style import PageOptions


def length_by_score(
    frame: pd.DataFrame,
    *,
    score: str = "gold",
    score_name: str | None = None,
    text: str = "response",
    unit: str | None = None,
    scale: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    **options: Unpack[PageOptions],
) -> Figure:
    """Length of a text at each score: violins with quartiles, or for several judges their quartiles side by side.

    Args:
        frame: one row an item, or a verdict with its `judge`; columns `score` and `text`.
        score, text: names of those columns; `text` may also hold lengths as numbers.
        score_name: what the score is called; None takes the column's name.
        unit: "words", "characters", or what numbers count; None chooses by script (see `metrics.lengths`).
        scale, names: see `score_by_score`.
        options: venue, column, note, font: see `page`.

    Returns:
        The figure: dots are medians, thick lines reach from the first to the third quartile. In the corner the
        Kruskal-Wallis test of no difference between scores, which takes items as independent, for a single judge.
    """
    need(frame, score, text)
    lengths, unit = lengths_of(frame[text], unit)
    judges = by_judge(frame, names)
    where = bins(frame[score], scale=scale)
    place = where.place(frame[score])
    known = (place >= 0) & lengths.notna().to_numpy()
    counts = np.bincount(place[known], minlength=len(where.labels))
    step = where.edges[1] - where.edges[0]
    with page(**options) as paper:
        fig, ax = paper.subplots(0.4 * min(paper.inches, 4) + 0.6)
        for k, (_, look, rows) in enumerate(judges):
            here = known & frame.index.isin(rows.index)
            at = [lengths[here & (place == level)].to_numpy(float) for level in range(len(where.labels))]
            aside = (k - (len(judges) - 1) / 2) * 0.84 / len(judges) * step
            if len(judges) == 1:
                violins(ax, where.centers, at, look, 0.75 * step)
            for center, values in zip(where.centers, at, strict=True):
                if len(values):
                    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
                    color = INK if len(judges) == 1 else look.color
                    ax.plot(
                        [center + aside] * 2,
                        [low, high],
                        color=color,
                        lw=2.5 if len(judges) < 4 else 1.5,
                        solid_capstyle="butt",
                    )
                    ax.plot(center + aside, middle, look.marker, ms=3.5, color="white", mec=INK, mew=0.6)
        level_ticks(paper, ax, where, counts.tolist(), paper.inches - 0.5)
        ax.set(xlabel=name_of(score, score_name), ylabel=f"{text.replace('_', ' ')} ({unit})")
        ax.set_xlim(where.edges[0], where.edges[-1])
        ax.set_ylim(bottom=0)
        if len(judges) > 1:
            paper.legend(fig, [key(name, look, lw=2) for name, look, _ in judges])
        note, gone = f"{int(known.sum()):,} items", int((~known).sum())
        note += f", {gone:,} more without score or text" if gone else ""
        filled = [lengths[known & (place == level)] for level in range(len(where.labels)) if counts[level]]
        if len(judges) == 1 and len(filled) > 1 and lengths[known].nunique() > 1:
            test = stats.kruskal(*filled)
            note += f"; Kruskal-Wallis H = {test.statistic:.1f}, {p_text(test.pvalue)}"
        return paper.finish(fig, note, where.note)


def length_scatter(
    frame: pd.DataFrame,
    probe: pd.DataFrame,
    *,
    score: str = "score",
    truth: str = "gold",
    truth_name: str | None = None,
    text: str = "response",
    unit: str | None = None,
    seed: int = 0,
    **options: Unpack[PageOptions],
) -> Figure:
    """The judge's score against the length of the response, with the slope of `probes.length` at equal true score.

    Args:
        frame: one row a verdict: columns `score`, `truth`, and `text`, which holds responses or their lengths.
        probe: what `probes.length` returned for these verdicts; its row "slope at equal gold" is drawn and noted.
        score, truth, text: names of columns.
        truth_name: what the truth is called; None takes the column's name.
        unit: what lengths are counted in, as in the probe; None chooses by script (see `metrics.lengths`).
        seed: of the vertical jitter of whole-number scores, which has no meaning.
        options: venue, column, note, font: see `page`.

    Returns:
        The figure: points by true score, and through each true score's mean a line of the one common slope, with its
        interval as a band; length on a logarithmic axis. The spacing of the lines is how far the judge tells true
        scores apart.

    Raises:
        ValueError: a column or the probe's row is absent.
    """
    need(frame, score, truth, text)
    need(probe, "case", "effect", "low", "high", "p")
    rows = probe[probe["case"] == "slope at equal gold"]
    if len(rows) != 1:
        raise ValueError(f"the probe's table has {len(rows)} rows 'slope at equal gold': pass that of one judge")
    slope = rows.iloc[0]
    lengths, unit = lengths_of(frame[text], unit)
    whole = pd.DataFrame({"y": frame[score], "gold": frame[truth], "length": lengths}).astype(float)
    used = whole[whole.notna().all(axis=1) & (whole["length"] > 0)]
    where = bins(used["gold"])
    place = where.place(used["gold"])
    levels = sorted(set(place))
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.88, max(len(levels), 2)))
    rng = np.random.default_rng(seed)
    jitter = 0.22 if (used["y"] % 1 == 0).all() else 0.0
    with page(**options) as paper:
        fig, ax = paper.subplots(0.65 * min(paper.inches, 3.8))
        handles = []
        for level, color, marker in zip(levels, shades, [*MARKERS, *MARKERS], strict=False):
            part = used[place == level]
            ax.scatter(part["length"], part["y"] + rng.uniform(-jitter, jitter, len(part)), s=6, color=color,
                       marker=marker, alpha=0.5, linewidths=0)  # fmt: skip
            x, y = np.log2(part["length"]), part["y"]
            reach = np.linspace(x.min(), x.max(), 24)
            lines = [y.mean() + slope[way] * (reach - x.mean()) for way in ("effect", "low", "high")]
            ax.fill_between(2**reach, lines[1], lines[2], color=color, alpha=0.25, linewidth=0)
            handles += ax.plot(2**reach, lines[0], color=color, linewidth=1.6, marker=marker, markevery=[0, -1], ms=4,
                               mec=INK, mew=0.5, label=where.labels[level])  # fmt: skip
        ax.set_xscale("log")
        log_ticks(ax, "x", used["length"].min() * 1.3, used["length"].max() / 1.3)
        ax.set(xlabel=f"length of the response ({unit})", ylabel="judge's score")
        paper.legend(fig, handles, title=name_of(truth, truth_name))
        gone = len(whole) - len(used)
        estimate = " ".join(interval(slope["effect"], slope["low"], slope["high"]))
        return paper.finish(
            fig,
            f"{estimate} points a doubling at equal {name_of(truth, truth_name)}, {p_text(slope['p'])}",
            f"{len(used):,} verdicts" + (f", {gone:,} more without score or text" if gone else ""),
            where.note,
        )


def lengths_of(texts: pd.Series, unit: str | None) -> tuple[pd.Series, str]:
    """Lengths of texts and their unit; numbers are lengths already."""
    if pd.api.types.is_numeric_dtype(texts):
        return texts.astype(float), unit or "words"
    lengths = metrics.lengths(texts, unit=unit)
    return lengths, str(lengths.attrs["unit"])
