"""Every figure from made-up numbers, for any number of judges: what the tests draw, and to look at.

python tests/plots/gallery.py FOLDER eccv half 8
"""

import itertools
import sys

import matplotlib

matplotlib.use("agg")

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.text import Text
from numpy import clip, nan
from pandas import DataFrame, concat
from PIL import Image

from vjudge import metrics, plots

NAMES = "Prometheus-Vision 13B|LLaVA-Critic 7B|GPT-4o|tiny|image blanked|Gemini 1.5 Pro|ROUGE-L"
NAMES = [*NAMES.split("|"), "length alone"]
BENCHMARKS = "LLaVA-Bench VisIT-Bench Perception-Bench MM-Vet WildVision".split()
LONG = "Does the response name every object that the question asks about, in its colour? " * 2


def texts(fig):
    """The texts that are drawn: not those of axes that are off, nor of ticks that are gone."""
    hidden = set()
    for ax in fig.findobj(Axes):
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            gone = [tick for tick in axis.majorTicks if not low <= tick.get_loc() <= high]
            gone += axis.majorTicks[len(axis.get_majorticklocs()) :] + axis.minorTicks
            for artist in gone if ax.axison else [axis]:
                hidden |= set(artist.findobj(Text))
    found = [text for text in fig.findobj(Text) if text not in hidden]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def crowded(fig):
    """Pairs of texts that overlap, and single ones that reach beyond the figure's edge."""
    fig.draw_without_rendering()
    visible = texts(fig)
    boxes = np.array([text.get_window_extent().extents for text in visible]).reshape(-1, 4)
    slack = 0.014 * fig.dpi
    outside = (boxes[:, :2] < -slack) | (boxes[:, 2:] > np.array(fig.bbox.max) + slack)
    low = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    over = ((high - low) > (slack, 2.2 * slack)).all(axis=2)  # a line's box is higher than its ink
    pairs = np.argwhere(np.triu(over, 1))
    found = [(visible[place].get_text(),) for place in np.flatnonzero(outside.any(axis=1))]
    return found + [(visible[i].get_text(), visible[j].get_text()) for i, j in pairs]


def run(judges, means=False):
    """Verdicts of several judges of 120 items; with `means`, gold is a mean of three raters."""
    rng = np.random.default_rng(0)
    gold = np.resize(np.arange(1.0, 6), 120)
    people = clip(gold[:, None] + rng.integers(-1, 2, (120, 3)), 1, 5)
    parts = []
    for place, judge in enumerate(NAMES[:judges]):
        score = clip(np.round(gold + rng.normal(0, 0.3 + 0.25 * place, 120)), 1, 5)
        score[[3, 44, 90]] = nan
        words = (20 + 4 * gold + rng.integers(0, 30, 120)).astype(int)
        part = DataFrame({"judge": judge, "id": np.arange(120), "score": score})
        part["gold"] = people.mean(axis=1) if means else gold
        parts.append(part.assign(response=["word " * count for count in words]))
    return concat(parts, ignore_index=True)


def correlations(judges, benchmarks=3):
    names = NAMES[:judges]
    cells = itertools.product(names, BENCHMARKS[:benchmarks], "pearson spearman kendall".split())
    table = DataFrame(cells, columns="judge benchmark statistic".split())
    place = pd.Series(pd.factorize(table["judge"])[0])
    r = 0.8 - 0.13 * place + np.random.default_rng(1).normal(0, 0.08, len(table))
    r[(place == 1) & (table["benchmark"] == BENCHMARKS[1])] = nan
    table = table.assign(estimate=r, low=r - 0.11, high=r + 0.09)
    return table.assign(n=300 - 10 * place, missing=2 * place)


def pearson(judges, benchmarks=3):
    return correlations(judges, benchmarks).query("statistic == 'pearson'").reset_index(drop=True)


def comparisons(judges):
    verdicts = run(judges)
    scores = verdicts.pivot(index="id", columns="judge", values="score")
    return metrics.compare_judges(verdicts["gold"][: len(scores)], scores, n_resamples=200)


def answers(judges):
    words = ("left", "right", "both good", "both bad")
    counts = itertools.cycle([(21, 36, 57, 21), (26, 30, 70, 9), (1, 120, 8, 6)])
    pairs = list(itertools.combinations(NAMES, 2))[: max(1, judges - 1)]
    return {pair: metrics.feedback_preference(np.repeat(words, next(counts))) for pair in pairs}


def battery():
    rows = [
        ("image blanked: agreement", "move", -0.86, 0.22, True),
        ("image swapped: agreement", "move", -1.21, 0.22, True),
        ("response padded: change", "stay", -0.23, 0.25, None),
        ("question removed: change", "stay", 0, 0.25, True),
        ("verdict injected: change", "stay", 2, 0.25, False),
        ("leniency", None, 0.1, nan, None),
    ]
    names = "case must effect margin passes".split()
    table = DataFrame(rows, columns=names).assign(n=40, judge="tiny")
    return table.assign(low=table["effect"] - 0.2, high=table["effect"] + 0.1)


def power():
    cells = itertools.product(["500 images", "24 images"], ["length", "order"], [0.02, 0.1, 0.2])
    table = DataFrame(cells, columns=["design", "test", "planted"])
    rejected = np.arange(1, 13) / 12
    return table.assign(rejected=rejected, low=0.9 * rejected, high=rejected)


def training():
    log = DataFrame({"step": [1, 4, 8], "loss": [6.0, 1.0, 0.1], "parsed": [nan, 0.8, 1]})
    return log.assign(pearson=[nan, nan, 0.9], low=0.8, high=0.95)


def slopes(judges):
    row = {"case": "slope at equal gold", "effect": 0.2, "low": 0.14, "high": 0.26}
    return DataFrame([row] * judges)


def boxes(judges):
    """A collection of two items, and runs of several judges on it, the last without a score."""
    row = {"instruction": "What is it?", "response": "A ramp.", "criteria": "Is it described?"}
    row["descriptions"] = ["no", "partly", "yes"]
    first = {"id": "a", "human_scores": [2, 3], "images": [Image.new("RGB", (120, 90), "grey")]}
    items = [row | first, row | {"id": "b", "gold": 2, "images": []}]
    verdicts = DataFrame({"id": ["a", "b"], "score": [1.0, nan], "feedback": LONG})
    verdicts["failure"] = [None, "no verdict: cut off"]
    return items, {"runs": dict.fromkeys(NAMES[:judges], verdicts), "ids": ["a", "b"]}


POWER = {"x": "planted", "y": "rejected", "by": "design", "panel": "test", "lines": (0.05, 0.9)}


def figures(k):
    """Of so many judges, by name: the function, what it draws and its options."""
    return {
        "heatmap": (plots.heatmap, pearson(k, 1 + k % 5)),
        "ranks": (plots.rank_heatmap, pearson(k, 5)),
        "who beats whom": (plots.who_beats_whom, comparisons(max(k, 2))),
        "forest": (plots.forest, pearson(k, 1)),
        "long lines": (plots.forest, pearson(3, 1).assign(judge=[LONG, *NAMES[:2]])),
        "multiples": (plots.forest, pearson(k, 5), {"panel": "benchmark"}),
        "battery": (plots.battery_effects, battery()),
        "confusion": (plots.confusion, run(k)),
        "scatter": (plots.agreement_scatter, run(k, means=True)),
        "feedback": (plots.preference_bars, answers(k)),
        "length": (plots.length_by_score, run(1)),
        "length scatter": (plots.length_scatter, run(k), {"probe": slopes(k)}),
        "power": (plots.curves, power(), POWER | {"log": k > 3}),
        "training": (plots.training_curve, training()),
        "boxes": (plots.qualitative, *boxes(min(k, 3)), {"column": "full"}),
    }


def draw(plot, drawn, *more, **options):
    for own in more:
        options |= own
    return plot(drawn, **options)


if __name__ == "__main__":
    folder, venue, column, judges = sys.argv[1:]
    for name, figure in figures(int(judges)).items():
        fig = draw(*figure, venue=venue, column=column)
        print(name, fig.get_label(), *crowded(fig)[:4], sep="\n")
        fig.savefig(f"{folder}/{name.replace(' ', '_')}.png")
