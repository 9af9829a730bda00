"""Scores and lengths against the truth: point by point, as distributions, as a matrix, and what a score means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from scipy import stats

from vjudge import metrics
from vjudge.plots import style
from vjudge.plots.style import INK, MARKERS, MIN_TEXT, PALE, TRUTH, Look, Page, clean, looks, names_of, need, page

NONE, OFF = "none", "off"
GREY = {"truth": Look(TRUTH, "", "", "-"), "people": Look("#A9A9A9", "", "////", "-")}


class Bins(NamedTuple):
    """Where scores are drawn: levels of the scale, or bins of it, and what the caption must say of them."""

    edges: np.ndarray
    centers: np.ndarray
    labels: list[str]
    note: str
    whole: bool  # whether they are levels

    def place(self, values: pd.Series) -> np.ndarray:
        """The bin of each value; -1 for a missing one, -2 for one off the scale."""
        numbers = values.to_numpy(dtype=float)
        places = np.clip(np.searchsorted(self.edges, numbers + 1e-9, side="right") - 1, 0, len(self.labels) - 1)
        # Of whole levels the outermost half bins are off the scale: 5.4 is no 5 where 5 is the most.
        low, high = (self.centers if self.whole else self.edges)[[0, -1]] + (-1e-9, 1e-9)
        return np.where(np.isnan(numbers), -1, np.where((numbers < low) | (numbers > high), -2, places))

    @property
    def ticks(self) -> tuple[Sequence[float], list[str]]:
        """Ticks of a numeric axis: at whole levels, or at the edges of bins."""
        at = self.centers if self.whole else self.edges[:-1]
        every = -(-len(at) // 6) if len(at) > 7 else 1
        return list(at)[::every], self.labels[::every]


def bins(*columns: pd.Series, scale: Sequence[int] | None = None) -> Bins:
    """Levels for these scores: the whole scores of the scale where there are at most 11, else bins of equal width.

    Args:
        columns: scores that are to be drawn.
        scale: the rubric's scores (`data.levels`); None takes 1 to 5, or the range of the scores where that is wider.

    >>> from vjudge.plots.scores import bins
    >>> import pandas as pd
    >>> bins(pd.Series([1, 2.5, 5])).labels, bins(pd.Series([3, 85])).labels[:3]
    (['1', '2', '3', '4', '5'], ['0', '10', '20'])
    """
    numbers = pd.concat(columns).dropna().astype(float) if columns else pd.Series(dtype=float)
    low, high = (numbers.min(), numbers.max()) if len(numbers) else (1.0, 5.0)
    fractions = bool((numbers % 1 != 0).any())
    if scale is None and fractions and low >= 0 and high <= 1:
        edges = np.arange(11) / 10
    else:
        first = 1 if low >= 1 else int(np.floor(low))
        scale = scale or range(first, max(int(np.ceil(high)), 5 if first == 1 else first + 1) + 1)
        least, most = min(scale), max(scale)
        if len(scale) <= 11:
            levels = np.array(sorted(scale), dtype=float)
            edges = np.concatenate([[least - 0.5], (levels[1:] + levels[:-1]) / 2, [most + 0.5]])
            note = "scores between two levels are drawn at the nearer, those midway at the upper one" * fractions
            return Bins(edges, levels, [f"{level:g}" for level in levels], note, True)
        step = next(size for size in (2, 5, 10, 20, 50, *(10**k for k in range(2, 12))) if (most - least) / size <= 10)
        edges = np.arange(np.floor(least / step), np.ceil(most / step) + 1) * step
    note = f"bins of {edges[1] - edges[0]:g} points from the number at the axis, which belongs to the bin"
    return Bins(edges, (edges[1:] + edges[:-1]) / 2, [f"{edge:g}" for edge in edges[:-1]], note, False)


def score_distribution(
    run: pd.DataFrame, *, score: str = "score", truth: str | None = "gold", truth_name: str | None = None,
    people: str = "human_scores", scale: Sequence[int] | None = None, **options: Any,
) -> Figure:  # fmt: skip
    """How often each score is given: by people and in truth where known, and by each judge.

    Args:
        run: one row a verdict; truth and people are those of the first judge's items.
        score, truth, people: names of its columns; people holds a list of scores an item, each of which counts.
        truth_name: what the truth is called, for example "mean of three people"; None takes the column's name.
        scale: see `bins`.
    """
    need(run, score)
    judges = by_judge(run)
    first, series = judges[0][2], list[tuple[str, Look, pd.Series]]()
    if truth is not None and truth in run:
        series.append((name_of(truth, truth_name), GREY["truth"], first[truth]))
    if people in run:
        series.append(("people", GREY["people"], pd.to_numeric(first[people].explode(), errors="coerce")))
    series = [one for one in series if one[2].notna().any()] + [
        (name, look, rows[score]) for name, look, rows in judges
    ]
    where = bins(*(values for _, _, values in series), scale=scale)
    with page(**options) as paper:
        fig, ax = paper.subplots(0.5 * min(paper.inches, 4) + 0.2)
        step, off, handles = 0.84 / len(series), 0, []
        for place, (name, look, values) in enumerate(series):
            at = where.place(values.dropna())
            off += int((at == -2).sum())
            counts = np.bincount(at[at >= 0], minlength=len(where.labels))
            x = np.arange(len(counts)) - 0.42 + (place + 0.5) * step
            columns = ax.bar(x, 100 * counts / max(len(at), 1), step, **look.bar)
            handles.append(Patch(**look.bar, label=f"{name} (n={len(at):,})"))
            for text in ax.bar_label(columns, [str(count) for count in counts], fontsize=MIN_TEXT, padding=1):
                paper.optional(text, "counts", step * (paper.inches - 0.5) / len(counts))
        ax.set_xticks(range(len(where.labels)), where.labels)
        ax.set(xlabel="score", ylabel="share (%)")
        ax.margins(x=0.02, y=0.14)
        paper.legend(fig, handles)
        lacking = int(run[score].isna().sum())
        note = f"{lacking:,} of {len(run):,} verdicts without a score" if lacking else f"{len(run):,} verdicts"
        return paper.finish(fig, note, _off_scale(off), where.note)


def confusion(
    run: pd.DataFrame, *, score: str = "score", truth: str = "gold", truth_name: str | None = None,
    scale: Sequence[int] | None = None, **options: Any,
) -> Figure:  # fmt: skip
    """How often each score is given for each true score: counts, shaded by their share of the true score's items.

    Args:
        run, score, truth, truth_name, scale: see `score_distribution`.

    Returns:
        A panel a judge, framed cells where score and truth are of one level; "none" counts verdicts without a score,
        "off" those off the scale. In the corner: verdicts, failures, and for a single judge the shares of all items
        with a truth that agree exactly and within one level, those without a score counted as disagreeing.
    """
    need(run, score, truth)
    judges = by_judge(run)
    where = bins(run[score], run[truth], scale=scale)
    x, y = where.place(run[score]), where.place(run[truth])
    extra = {code: label for code, label in ((-1, NONE), (-2, OFF)) if (x[y >= 0] == code).any()}
    columns = [*range(len(where.labels)), *extra]
    with page(**options) as paper:
        fig, axes = paper.panels(len(judges), 0.85, margin=0.6)
        for ax, (_, look, rows) in zip(axes, judges, strict=True):
            counts = pd.crosstab(where.place(rows[truth]), where.place(rows[score]))
            counts = counts.reindex(index=range(len(where.labels)), columns=columns, fill_value=0).to_numpy()
            _matrix(paper, ax, counts, where, list(extra.values()), look)
            ax.set_xlabel("judge's score")
        paper.name_panels(axes, [name for name, _, _ in judges], name_of(truth, truth_name))
        close = ""
        if (y >= 0).any() and len(judges) == 1:
            near = [((np.abs(x - y) <= reach) & (x >= 0))[y >= 0].mean() for reach in (0, 1)]
            close = f"{near[0]:.1%} exact, {near[1]:.1%} within one"
        counted = account(run, score, truth, truth_name)
        return paper.finish(fig, counted, close, _off_scale(int((y == -2).sum())), where.note)


def _matrix(paper: Page, ax: Axes, counts: np.ndarray, where: Bins, extra: list[str], look: Look) -> None:
    share, shades = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), colormaps["Blues"]
    ax.imshow(share, cmap=shades, vmin=0, vmax=1, aspect="auto")
    margins = paper.panel_inches > 1.7  # else cells take all the room
    side = (min(paper.panel_inches, 3.5) - 0.45) / (counts.shape[1] * (1.25 if margins else 1))
    for (i, j), count in np.ndenumerate(counts):
        if count:
            text = ax.text(j, i, str(count), ha="center", va="center", fontsize=MIN_TEXT,
                           color=style.ink_on(shades(share[i, j])))  # fmt: skip
            paper.optional(text, "counts", side)
    for i in range(len(where.labels)):
        ax.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, fill=False, ec=INK, lw=0.8))
    names = [*where.labels, *extra]
    upright = max(map(paper.text_width, names)) > side * 0.9
    ax.set_xticks(range(len(names)), names, rotation=90 if upright else 0)
    ax.set_yticks(range(len(where.labels)), where.labels)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if not margins:
        return
    top, right = ax.inset_axes((0, 1.03, 1, 0.2)), ax.inset_axes((1.03, 0, 0.2, 1))
    by_score, by_truth = counts.sum(axis=0), counts.sum(axis=1)
    above = top.bar(range(len(by_score)), by_score, 0.8, color=look.color, ec="white", hatch=look.hatch, lw=0.4)
    beside = right.barh(range(len(by_truth)), by_truth, 0.8, color=TRUTH, ec=INK, lw=0.4)
    for inset, bars, numbers in ((top, above, by_score), (right, beside, by_truth)):
        for text in inset.bar_label(bars, [str(n) for n in numbers], fontsize=MIN_TEXT, padding=1):
            paper.optional(text, "counts in the margins", side if inset is top else np.inf)
        inset.set_axis_off()
    top.set(xlim=ax.get_xlim(), ylim=(0, 1.9 * max(by_score.max(), 1)))
    right.set(ylim=ax.get_ylim(), xlim=(0, 2.1 * max(by_truth.max(), 1)))


def calibration_curve(tables: Mapping[str, pd.DataFrame], *, label: str = "mean true score", **options: Any) -> Figure:
    """The mean true score at each score that a judge gives, and how often it gives it.

    Args:
        tables: by judge, what `metrics.calibration_curve` returned: columns judge, human, low, high, n, share.
        label: of the upper vertical axis, for example "mean human score".

    Returns:
        On the dashed diagonal a score means what it says; above it the judge is too harsh, below it too lenient. Bars
        are the tables' intervals. Below: the share of items at each score.
    """
    if not tables:
        raise ValueError("there is no judge to draw: give at least one table of metrics.calibration_curve")
    for name, table in tables.items():
        need(table, "judge", "human", "low", "high", "n", "share")
        if table.empty:
            raise ValueError(f"{name!r} has no item with both scores")
    styles = looks(list(tables))
    whole = pd.concat([table[["judge", "human"]] for table in tables.values()])
    ends = (float(whole.min(axis=None)), float(whole.max(axis=None)))
    with page(**options) as paper:
        height = max(2.1, 0.85 * min(paper.inches, 3.4))
        fig, (ax, below) = paper.subplots(height, 2, sharex=True, height_ratios=(3.2, 1))
        ax.plot(ends, ends, ls="--", color=PALE, zorder=0)
        for place, (name, table) in enumerate(tables.items()):
            look, aside = styles[name], (place - (len(tables) - 1) / 2) * (ends[1] - ends[0])
            shift = 0.012 * aside  # intervals must not cover each other
            style.bars(ax, table, "judge", "human", look, shift=shift, ms=4, lw=1, elinewidth=0.9, capsize=2)
            at, share = table["judge"] + min(0.025, 0.1 / len(tables)) * aside, 100 * table["share"]
            below.vlines(at, 0, share, color=look.color, lw=1.3)
            below.plot(at, share, ls="none", ms=3.5, **look.point)
        ax.set_ylabel("\n".join(paper.wrap(label, 0.5 * height)))  # a long one would reach the lower panel's
        # Of two items with one score an interval may be ten times the scale: it would press all others flat.
        room = (ends[1] - ends[0] or 1.0) / 2
        low, high = ends[0] - room, ends[1] + room
        beyond = sum(int(((table["low"] < low) | (table["high"] > high)).sum()) for table in tables.values())
        if beyond:
            ax.set_ylim(low, high)
        below.set(xlabel="judge's score", ylabel="share (%)")
        below.set_ylim(0, 118 * max(table["share"].max() for table in tables.values()))
        fig.align_ylabels([ax, below])
        paper.legend(fig, [style.key(name, look, lw=1, ls=look.dash) for name, look in styles.items()])
        missing = max(int(table.attrs.get("missing", 0)) for table in tables.values())
        n = f"n = {style.span([table['n'].sum() for table in tables.values()])}{' a judge' * (len(tables) > 1)}"
        cut = f"{beyond} interval(s) reach beyond the axis" if beyond else ""
        return paper.finish(fig, n + (f", up to {missing} more without a score" if missing else ""), cut)


def by_judge(run: pd.DataFrame) -> list[tuple[str, Look, pd.DataFrame]]:
    """The verdicts of each judge with how it is drawn, in order of appearance."""
    judge = names_of(run["judge"]) if "judge" in run.columns else pd.Series("judge", index=run.index)
    if judge.empty:
        raise ValueError("the run holds no verdict")
    return [(name, look, run[judge == name]) for name, look in looks(list(judge.unique())).items()]


def account(run: pd.DataFrame, score: str, truth: str, truth_name: str | None = None) -> str:
    """How many verdicts are drawn, and of the others how many failed for which reason or lack a score or truth."""
    no_score, no_truth = run[score].isna(), run[truth].isna()
    failed = run["failure"].notna() & no_score if "failure" in run else no_score & False
    # The part before the colon is ours; behind it may stand a model's words.
    kinds = run.loc[failed, "failure"].map(str).str.partition(":")[0].value_counts() if failed.any() else {}
    lacks = {
        f"failed ({'; '.join(f'{kind}: {count}' for kind, count in kinds.items())})": failed.sum(),
        "without a score": (no_score & ~failed).sum(),
        f"without a {name_of(truth, truth_name)}": (no_truth & ~no_score).sum(),
    }
    used, gone = int((~no_score & ~no_truth).sum()), [f"{count:,} {words}" for words, count in lacks.items() if count]
    return f"{used:,} of {len(run):,} verdicts; {', '.join(gone)}" if gone else f"{used:,} verdicts"


def name_of(truth: str, name: str | None = None) -> str:
    """What a column of truths is called: its name, and "true score" for gold."""
    return name or ("true score" if truth == "gold" else clean(truth.replace("_", " ")))


def _off_scale(count: int) -> str:
    return f"{count:,} off the scale, not drawn" if count else ""


# --- length -----------------------------------------------------------------------------------------------------------


def _violins(ax: Axes, centers: np.ndarray, at: list[np.ndarray], look: Look, wide: float) -> None:
    """A violin at each level, and its points where all are alike."""
    for center, values in zip(centers, at, strict=True):
        if len(np.unique(values)) > 1:
            parts: dict[str, Any] = ax.violinplot(values, [center], widths=wide, showextrema=False)
            parts["bodies"][0].set(facecolor=look.color, edgecolor=INK, alpha=0.35, linewidth=0.5)
        else:
            ax.scatter([center] * len(values), values, s=5, color=look.color, marker=look.marker)


def _level_ticks(paper: Page, ax: Axes, where: Bins, counts: Sequence[int], inches: float) -> None:
    """The levels below an axis with the items at each, or without where they do not fit."""
    labels = [f"{label}\nn={count}" for label, count in zip(where.labels, counts, strict=True)]
    if max(map(paper.text_width, labels)) <= inches / len(labels) * 0.95:
        ax.set_xticks(where.centers, labels)
        return
    ax.set_xticks(*where.ticks)
    paper.account.append(f"n at each level: {', '.join(map(str, counts))}")


def length_by_score(
    frame: pd.DataFrame, *, score: str = "gold", score_name: str | None = None,
    scale: Sequence[int] | None = None, **options: Any,
) -> Figure:  # fmt: skip
    """Length of the response at each score: violins with quartiles, or for several judges their quartiles side by side.

    Args:
        frame: one row an item, or a verdict with its `judge`; columns `score` and response.
        score: name of that column; score_name: what it is called; None takes the column's name.
        scale: see `bins`.

    Returns:
        Dots are medians of words, or characters by script, lines quartiles; in the corner, for a single judge, the
        Kruskal-Wallis test of no difference between scores, which takes items as independent.
    """
    need(frame, score, "response")
    lengths = metrics.lengths(frame["response"])
    judges = by_judge(frame)
    where = bins(frame[score], scale=scale)
    place = where.place(frame[score])
    whole = (place >= 0) & lengths.notna().to_numpy()
    counts = np.bincount(place[whole], minlength=len(where.labels))
    step, single = where.edges[1] - where.edges[0], len(judges) == 1
    with page(**options) as paper:
        fig, ax = paper.subplots(0.4 * min(paper.inches, 4) + 0.6)
        for k, (_, look, rows) in enumerate(judges):
            here = whole & frame.index.isin(rows.index)
            at = [lengths[here & (place == level)].to_numpy(float) for level in range(len(where.labels))]
            aside = (k - (len(judges) - 1) / 2) * 0.84 / len(judges) * step
            if single:
                _violins(ax, where.centers, at, look, 0.75 * step)
            line: dict[str, Any] = dict(color=INK if single else look.color, lw=2.5 if len(judges) < 4 else 1.5)
            for center, values in zip(where.centers + aside, at, strict=True):
                if len(values):
                    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
                    ax.plot([center] * 2, [low, high], solid_capstyle="butt", **line)
                    ax.plot(center, middle, look.marker, ms=3.5, color="white", mec=INK, mew=0.6)
        _level_ticks(paper, ax, where, counts.tolist(), paper.inches - 0.5)
        ax.set(xlabel=name_of(score, score_name), ylabel=f"response ({lengths.attrs['unit']})")
        ax.set_xlim(where.edges[0], where.edges[-1])
        ax.set_ylim(bottom=0)
        if not single:
            paper.legend(fig, [style.key(name, look, lw=2) for name, look, _ in judges])
        note = _drawn(whole, "items")
        filled = [lengths[whole & (place == level)] for level in np.flatnonzero(counts)]
        if single and len(filled) > 1 and lengths[whole].nunique() > 1:
            test = stats.kruskal(*filled)
            note += f"; Kruskal-Wallis H = {test.statistic:.1f}, {style.p_text(test.pvalue)}"
        return paper.finish(fig, note, where.note)


def length_scatter(
    frame: pd.DataFrame, probe: pd.DataFrame, *, truth_name: str | None = None, **options: Any
) -> Figure:
    """The judge's score against the length of the response, with the slope of `probes.length` at equal true score.

    Args:
        frame: one row a verdict: columns score, gold and response.
        probe: what `probes.length` returned for these verdicts; its row "slope at equal gold" is drawn and noted.
        truth_name: see `score_distribution`.

    Returns:
        Points by true score, and through each true score's mean a line of the one common slope, with its interval as a
        band; length on a logarithmic axis.
    """
    need(frame, "score", "gold", "response")
    need(probe, "case", "effect", "low", "high", "p")
    rows = probe[probe["case"] == "slope at equal gold"]
    if len(rows) != 1:
        raise ValueError(f"the probe's table has {len(rows)} rows 'slope at equal gold': pass that of one judge")
    slope = rows.iloc[0]
    lengths = metrics.lengths(frame["response"])
    whole = pd.DataFrame({"y": frame["score"], "gold": frame["gold"], "length": lengths}).astype(float)
    both = (whole.notna().all(axis=1) & (whole["length"] > 0)).to_numpy()
    used = whole[both]
    where = bins(used["gold"])
    place = where.place(used["gold"])
    levels = sorted(set(place))
    shades = colormaps["viridis"](np.linspace(0.0, 0.88, max(len(levels), 2)))
    rng = np.random.default_rng(0)  # of the jitter, which has no meaning
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
        style.log_ticks(ax, "x", used["length"].min() * 1.3, used["length"].max() / 1.3)
        ax.set(xlabel=f"length of the response ({lengths.attrs['unit']})", ylabel="judge's score")
        paper.legend(fig, handles, title=name_of("gold", truth_name))
        estimate = " ".join(style.interval(slope["effect"], slope["low"], slope["high"]))
        text = f"{estimate} points a doubling at equal {name_of('gold', truth_name)}, {style.p_text(slope['p'])}"
        return paper.finish(fig, text, _drawn(both, "verdicts"), where.note)


def _drawn(whole: np.ndarray, what: str) -> str:
    gone = int((~whole).sum())
    return f"{int(whole.sum()):,} {what}" + (f", {gone:,} more without score or text" if gone else "")
