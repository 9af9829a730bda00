"""Scores and lengths against the truth: as distributions, as a matrix, and what a score means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from vjudge import metrics
from vjudge.plots import style
from vjudge.plots.style import INK, MARKERS, MIDDLE, PALE, SMALL, TRUTH, Look, looks, need, page

PEOPLE = Look("#A9A9A9", hatch="////")


class Bins(NamedTuple):
    """Where scores are drawn: levels of the scale, or bins of it, and what the caption must say of them."""

    edges: np.ndarray  # the outermost are the ends of the scale: 5.4 is no 5 where 5 is the most
    centers: np.ndarray
    labels: list[str]
    note: str

    def place(self, values: pd.Series) -> np.ndarray:
        """The bin of each value; -1 for a missing one, -2 for one off the scale."""
        numbers = values.to_numpy(dtype=float)
        places = np.digitize(numbers + 1e-9, self.edges) - 1
        return np.where(
            np.isnan(numbers), -1, np.where((places < 0) | (places >= len(self.labels)), -2, places)
        )


def bins(*columns: pd.Series, scale: Sequence[int] | None = None) -> Bins:
    """Levels for these scores: the whole scores of the scale where there are at most 11, else bins of equal width.

    scale: the rubric's scores (`data.levels`); None takes 1 to 5, or the range of the scores where that is wider.

    >>> bins(pd.Series([1, 2.5, 5])).labels, bins(pd.Series([3, 85])).labels[:3]
    (['1', '2', '3', '4', '5'], ['0', '10', '20'])
    """
    numbers = pd.concat(columns).dropna().astype(float)
    low, high = (numbers.min(), numbers.max()) if len(numbers) else (1.0, 5.0)
    fractions = bool((numbers % 1 != 0).any())
    shares = scale is None and fractions and low >= 0 and high <= 1
    first = 1 if low >= 1 else int(np.floor(low))
    centers = np.sort(
        scale or range(first, max(int(np.ceil(high)), 5 if first == 1 else first + 1) + 1)
    ).astype(float)
    if len(centers) <= 11 and not shares:
        edges, labels = (
            np.array([centers[0], *(centers[1:] + centers[:-1]) / 2, centers[-1]]),
            centers,
        )
        note = (
            "Scores between two levels are drawn at the nearer, those midway at the upper one"
            * fractions
        )
    else:
        edges = np.asarray(
            MaxNLocator(10, steps=[1, 2, 5, 10]).tick_values(centers[0], centers[-1])
        )
        note = f"Bins of {edges[1] - edges[0]:g} points from the number at the axis, which belongs to the bin"
        centers, labels = (edges[1:] + edges[:-1]) / 2, edges[:-1].copy()
    edges[-1] += 2e-9  # the last bin has its upper end
    return Bins(edges, centers, [f"{label:g}" for label in labels], note)


def confusion(
    run: pd.DataFrame,
    *,
    truth_name: str = "true score",
    scale: Sequence[int] | None = None,
    **options: Any,
) -> Figure:
    """How often each score is given for each true score: counts, shaded by their share of the true score's items.

    Args:
        run: one row a verdict: columns score, gold; judge and failure where known.
        truth_name: what gold is called, for example "mean of three people"; scale: see `bins`.

    Returns:
        A panel a judge; "none" counts verdicts without a score, "off" those off the scale.
    """
    need(run, "score", "gold")
    judges = by_judge(run)
    where = bins(run["score"], run["gold"], scale=scale)
    x, y = where.place(run["score"]), where.place(run["gold"])
    extra = {
        code: label for code, label in ((-1, "none"), (-2, "off")) if (x[y >= 0] == code).any()
    }
    with page(**options) as paper:
        fig, axes, inches = paper.panels(
            [name for name, _, _ in judges], 0.85, label=truth_name, margin=0.6
        )
        columns, levels, margins = (
            [*where.labels, *extra.values()],
            range(len(where.labels)),
            inches > 1.7,
        )
        side = (min(inches, 3.5) - 0.45) / (len(columns) * (1.25 if margins else 1))  # of a cell
        upright = max(map(paper.text_width, columns)) > side * 0.9
        for ax, (_, look, rows) in zip(axes, judges, strict=True):
            counts = pd.crosstab(where.place(rows["gold"]), where.place(rows["score"]))
            counts = counts.reindex(
                index=levels, columns=[*levels, *extra], fill_value=0
            ).to_numpy()
            share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
            image = ax.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
            for i, j in np.argwhere(counts):
                color = style.ink_on(image.to_rgba(share[i, j]))
                paper.optional(
                    ax.text(j, i, str(counts[i, j]), color=color, **MIDDLE, **SMALL), "counts", side
                )
            for i in levels:
                ax.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, fill=False, ec=INK, lw=0.8))
            ax.set_xticks(range(len(columns)), columns, rotation=90 * upright)
            ax.set_yticks(levels, where.labels)
            ax.tick_params(length=0)
            ax.spines[:].set_visible(False)
            ax.set_xlabel("judge's score")
            if not margins:
                continue
            top, right = ax.inset_axes((0, 1.03, 1, 0.2)), ax.inset_axes((1.03, 0, 0.2, 1))
            by_score, by_truth = counts.sum(axis=0), counts.sum(axis=1)
            above = top.bar(
                range(len(columns)),
                by_score,
                0.8,
                color=look.color,
                ec="white",
                hatch=look.hatch,
                lw=0.4,
            )
            beside = right.barh(levels, by_truth, 0.8, color=TRUTH, ec=INK, lw=0.4)
            for inset, bars, room in ((top, above, side), (right, beside, np.inf)):
                for text in inset.bar_label(bars, padding=1, **SMALL):
                    paper.optional(text, "counts in the margins", room)
                inset.set_axis_off()
            top.set(xlim=ax.get_xlim(), ylim=(0, 1.9 * max(by_score.max(), 1)))
            right.set(ylim=ax.get_ylim(), xlim=(0, 2.1 * max(by_truth.max(), 1)))
        off = int((y == -2).sum())
        return paper.finish(
            fig, _account(run, "verdicts", {"score": "score", "gold": truth_name}, off), where.note
        )


def calibration_curve(
    tables: Mapping[str, pd.DataFrame], *, label: str = "mean true score", **options: Any
) -> Figure:
    """The mean true score at each score that a judge gives, and how often it gives it.

    On the dashed diagonal a score means what it says; above it the judge is too harsh, below it too lenient.

    Args:
        tables: by judge, what `metrics.calibration_curve` returned: columns judge, human, low, high, n, share.
        label: of the upper vertical axis, for example "mean human score".
    """
    whole, styles = pd.concat(tables), looks(list(tables))
    need(whole, "judge", "human", "low", "high", "n", "share")
    if whole.empty:
        raise ValueError(
            f"no item has both scores, of {', '.join(tables)}: there is nothing to draw"
        )
    low, high = whole[["judge", "human"]].min(axis=None), whole[["judge", "human"]].max(axis=None)
    with page(**options) as paper:
        height = max(2.1, 0.85 * min(paper.inches, 3.4))
        fig, (ax, below) = paper.subplots(height, 2, sharex=True, height_ratios=(3.2, 1))
        ax.plot([low, high], [low, high], ls="--", color=PALE, zorder=0)
        for place, (name, table) in enumerate(tables.items()):
            look, aside = styles[name], (place - (len(tables) - 1) / 2) * (high - low)
            shift = min(0.02, 0.06 / len(tables)) * aside  # intervals must not cover each other
            style.bars(
                ax,
                table,
                "judge",
                "human",
                look,
                shift=shift,
                ms=4,
                lw=1,
                elinewidth=0.9,
                capsize=2,
            )
            at, share = table["judge"] + min(0.025, 0.1 / len(tables)) * aside, 100 * table["share"]
            below.vlines(at, 0, share, color=look.color, lw=1.3)
            below.plot(at, share, ls="none", ms=3.5, **look.point)
        ax.set_ylabel(
            "\n".join(paper.wrap(label, 0.5 * height))
        )  # a long one would reach the lower panel's
        # Of two items with one score an interval may be ten times the scale: it would press all others flat.
        ends = np.array([low, high]) + np.array([-0.5, 0.5]) * (high - low or 1)
        beyond = int(((whole["low"] < ends[0]) | (whole["high"] > ends[1])).sum())
        if beyond:
            ax.set_ylim(ends)
        below.set(xlabel="judge's score", ylabel="share (%)", ylim=(0, 118 * whole["share"].max()))
        fig.align_ylabels([ax, below])
        paper.legend(fig, style.keys(styles, lw=1))
        counts = [(table["n"].sum(), table.attrs.get("missing", 0)) for table in tables.values()]
        counted = style.items(pd.DataFrame(counts, columns=["n", "missing"]), "a judge")
        return paper.finish(
            fig, counted, f"{beyond} interval(s) reach beyond the axis" * bool(beyond)
        )


def by_judge(run: pd.DataFrame) -> list[tuple[str, Look, pd.DataFrame]]:
    """The verdicts of each judge with how it is drawn, in order of appearance."""
    if run.empty:
        raise ValueError("the run holds no verdict")
    parts = dict(
        list(
            need(run.assign(judge=run.get("judge", "")), names=["judge"]).groupby(
                "judge", sort=False
            )
        )
    )
    return [(name, look, parts[name]) for name, look in looks(list(parts)).items()]


def _account(frame: pd.DataFrame, unit: str, words: Mapping[str, str], off: int = 0) -> str:
    """How many rows have the columns that are called by these words, and how many lack each or are off the scale."""
    lacks = {f"without a {word}": int(frame[column].isna().sum()) for column, word in words.items()}
    gone = [
        f"{count:,} {why}"
        for why, count in {**lacks, "off the scale, not drawn": off}.items()
        if count
    ]
    used = f"{len(frame.dropna(subset=list(words))):,}" + f" of {len(frame):,}" * any(
        lacks.values()
    )
    return "; ".join([f"{used} {unit}", *gone])


def length_by_score(
    frame: pd.DataFrame, *, score: str = "gold", score_name: str | None = None,
    scale: Sequence[int] | None = None, **options: Any,
) -> Figure:  # fmt: skip
    """Length of the response at each score: medians and quartiles, and for a single judge violins.

    Args:
        frame: one row an item, or a verdict with its `judge`; columns `score` and response.
        score: name of that column; score_name: what it is called; scale: see `bins`.
    """
    need(frame, score, "response")
    lengths, where = metrics.lengths(frame["response"]), bins(frame[score], scale=scale)
    place = pd.Series(where.place(frame[score]), frame.index)
    frame = frame.assign(length=lengths, place=place.where((place >= 0) & lengths.notna()))
    judges, off = by_judge(frame), int((place == -2).sum())
    counts = frame["place"].value_counts().reindex(range(len(where.labels)), fill_value=0)
    step, single = np.diff(where.centers).min(), len(judges) == 1
    with page(**options) as paper:
        fig, ax = paper.subplots(0.4 * min(paper.inches, 4) + 0.6)
        for k, (_, look, rows) in enumerate(judges):
            aside = (k - (len(judges) - 1) / 2) * 0.84 / len(judges) * step
            line: dict[str, Any] = dict(
                color=INK if single else look.color, lw=2.5 if len(judges) < 4 else 1.5
            )
            for level, values in rows.groupby("place")["length"]:
                center = where.centers[int(level)] + aside
                if single and values.nunique() > 1:
                    (body,) = ax.violinplot(
                        values, [center], widths=0.75 * step, showextrema=False
                    )["bodies"]
                    body.set(facecolor=look.color, edgecolor=INK, alpha=0.35, linewidth=0.5)
                low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
                ax.plot([center] * 2, [low, high], solid_capstyle="butt", **line)
                ax.plot(center, middle, look.marker, ms=3.5, color="white", mec=INK, mew=0.6)
        labels = [f"{label}\nn={count}" for label, count in zip(where.labels, counts, strict=True)]
        if max(map(paper.text_width, labels)) * len(labels) <= 0.95 * (paper.inches - 0.5):
            ax.set_xticks(where.centers, labels)
        else:
            ax.locator_params(axis="x", nbins=6)
            paper.account.append(f"n at each level: {', '.join(map(str, counts))}")
        name = score_name or ("true score" if score == "gold" else score.replace("_", " "))
        ax.set(xlabel=name, ylabel=f"response ({lengths.attrs['unit']})")
        ax.set_xlim(where.centers[0] - step / 2, where.centers[-1] + step / 2)
        ax.set_ylim(bottom=0)
        if not single:
            paper.legend(fig, style.keys({name: look for name, look, _ in judges}, lw=2, ls="-"))
        return paper.finish(
            fig, _account(frame, "items", {"length": "response", score: name}, off), where.note
        )


def length_scatter(
    frame: pd.DataFrame, probe: pd.DataFrame, *, truth_name: str = "true score", **options: Any
) -> Figure:
    """The judge's score against the length of the response, with the slope of `probes.length` at equal true score.

    Args:
        frame: one row a verdict: columns score, gold and response; truth_name: what gold is called.
        probe: what `probes.length` returned for these verdicts; its row "slope at equal gold" is drawn through each
            true score's mean, its interval as a band.
    """
    need(frame, "score", "gold", "response")
    rows = need(probe, "case", "effect", "low", "high", "p")[probe["case"] == "slope at equal gold"]
    if len(rows) != 1:
        raise ValueError(
            f"the probe's table has {len(rows)} rows 'slope at equal gold': pass that of one judge"
        )
    slope, lengths = rows.iloc[0], metrics.lengths(frame["response"])
    whole = frame[["score", "gold"]].astype(float).assign(length=lengths.where(lengths > 0))
    used = whole.dropna()
    where = bins(used["gold"])
    parts = list(used.groupby(where.place(used["gold"])))
    shades = colormaps["viridis"](np.linspace(0.0, 0.88, max(len(parts), 2)))
    rng = np.random.default_rng(0)  # of the jitter, which has no meaning
    jitter = 0.22 if (used["score"] % 1 == 0).all() else 0.0
    with page(**options) as paper:
        fig, ax = paper.subplots(0.65 * min(paper.inches, 3.8))
        handles = []
        for (level, part), color, marker in zip(parts, shades, [*MARKERS, *MARKERS], strict=False):
            look: dict[str, Any] = dict(color=color, marker=marker)
            spread = rng.uniform(-jitter, jitter, len(part))
            ax.scatter(part["length"], part["score"] + spread, s=6, alpha=0.5, linewidths=0, **look)
            x, y = np.log2(part["length"]), part["score"].mean()
            reach = np.linspace(x.min(), x.max(), 24)
            middle, low, high = (
                y + slope[way] * (reach - x.mean()) for way in ("effect", "low", "high")
            )
            ax.fill_between(2**reach, low, high, color=color, alpha=0.25, linewidth=0)
            ends: dict[str, Any] = dict(markevery=[0, -1], ms=4, mec=INK, mew=0.5)
            handles += ax.plot(2**reach, middle, lw=1.6, label=where.labels[level], **ends, **look)
        style.log_axis(ax, "x", used["length"].min() * 1.3, used["length"].max() / 1.3)
        ax.set(xlabel=f"length of the response ({lengths.attrs['unit']})", ylabel="judge's score")
        paper.legend(fig, handles, title=truth_name)
        estimate = style.short(slope["effect"], slope["low"], slope["high"])
        text = f"{estimate} points per doubling at equal {truth_name}, {style.p_text(slope['p'])}"
        counted = _account(
            whole, "verdicts", {"length": "response", "score": "score", "gold": truth_name}
        )
        return paper.finish(fig, text, counted, where.note)
