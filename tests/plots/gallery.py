"""Every figure from made-up numbers, for any number of judges: what the tests draw, and to look at.

python tests/plots/gallery.py outputs/gallery eccv 8
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from vjudge import metrics, plots

NAMES = ["Prometheus-Vision 13B", "LLaVA-Critic 7B", "GPT-4o", "tiny", "image blanked"]
NAMES += ["Gemini 1.5 Pro", "ROUGE-L", "length alone"]
BENCHMARKS = ["LLaVA-Bench", "VisIT-Bench", "Perception-Bench", "MM-Vet", "WildVision"]
LONG = (
    2
    * "Does the response name every object in the picture that the question asks about, in colour? "
)
Options = dict[str, Any]


def texts(fig: Figure) -> list[Text]:
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


def crowded(fig: Figure) -> list[tuple[str, ...]]:
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


def run(judges: int, n: int = 120, *, means: bool = False, top: int = 5) -> pd.DataFrame:
    """Verdicts of several judges of one collection; with `means`, gold is a mean of three raters."""
    rng = np.random.default_rng(0)
    gold = np.resize(np.arange(1.0, top + 1), n)
    people = np.clip(gold[:, None] + rng.integers(-1, 2, (n, 3)), 1, top)
    parts = []
    for place, judge in enumerate(NAMES[:judges]):
        score = np.clip(np.round(gold + rng.normal(0, 0.3 + 0.25 * place, n)), 1, top)
        score[[3, 44, 90]] = np.nan
        words = (20 + 4 * gold + rng.integers(0, 30, n)).astype(int)
        part = pd.DataFrame({"judge": judge, "id": np.arange(n), "score": score})
        part["gold"] = people.mean(axis=1) if means else gold
        parts.append(part.assign(response=["word " * count for count in words]))
    return pd.concat(parts, ignore_index=True)


def correlations(judges: int, benchmarks: int = 3) -> pd.DataFrame:
    statistics = ("pearson", "spearman", "kendall")
    cells = itertools.product([*NAMES[:judges], "people"], BENCHMARKS[:benchmarks], statistics)
    table = pd.DataFrame(cells, columns=["judge", "benchmark", "statistic"])
    place = pd.Series(pd.factorize(table["judge"])[0])
    r = 0.8 - 0.13 * place + np.random.default_rng(1).normal(0, 0.08, len(table))
    table["estimate"] = r.where(table["judge"] != "people", 0.86)
    table["low"] = table["estimate"] - 0.11
    table["high"] = (table["estimate"] + 0.09).clip(upper=1)
    absent = (table["judge"] == NAMES[1]) & (table["benchmark"] == BENCHMARKS[1])
    table.loc[absent, ["estimate", "low", "high"]] = np.nan
    return table.assign(n=300 - 10 * place, missing=2 * place, ceiling=table["judge"] == "people")


def pearson(judges: int, benchmarks: int = 3) -> pd.DataFrame:
    return correlations(judges, benchmarks).query("statistic == 'pearson'").reset_index(drop=True)


def long_names() -> pd.DataFrame:
    return pearson(3, 1).assign(judge=[f"{k} {LONG}"[:200] for k in range(4)])


def comparisons(judges: int) -> pd.DataFrame:
    verdicts = run(judges)
    scores = verdicts.pivot(index="id", columns="judge", values="score")[NAMES[:judges]]
    return metrics.compare_judges(verdicts["gold"][: len(scores)], scores, n_resamples=200)


def calibration(judges: int) -> dict[str, pd.DataFrame]:
    tables = {}
    for place, name in enumerate(NAMES[:judges]):
        table = pd.DataFrame({"judge": np.arange(1.0, 6), "n": [20, 24, 30, 26, 20]})
        table["human"] = 3 + (table["judge"] - 3) * (1 - 0.12 * place)
        table = table.assign(low=table["human"] - 0.2, high=table["human"] + 0.2)
        tables[name] = table.assign(share=table["n"] / 120)
    return tables


def answers(judges: int) -> dict[tuple[str, str], pd.DataFrame]:
    """The first is Prometheus-Vision's own."""
    counts = [(21, 36, 57, 21), (26, 30, 70, 9), (50, 59, 12, 14), (1, 120, 8, 6)]
    words = ("left", "right", "both good", "both bad")
    tables = [metrics.feedback_preference(np.repeat(words, n)) for n in counts]
    pairs = itertools.islice(itertools.combinations(NAMES, 2), max(1, judges - 1))
    return dict(zip(pairs, itertools.cycle(tables)))


def wins(judges: int) -> dict[tuple[str, str], pd.DataFrame]:
    tables = {}
    for k, pair in enumerate(itertools.combinations(NAMES[:judges], 2)):
        tables[pair] = metrics.win_rate(["a"] * (45 + 5 * k) + ["b"] * 31 + ["tie"] * 9 + [None])
    return tables


def tags(judges: int) -> pd.DataFrame:
    names = [
        "misread the picture",
        "ignores the rubric",
        "hallucinates",
        "praises too much",
        "other",
    ]
    cells = itertools.product(enumerate(NAMES[:judges]), zip(names, (22, 9, 5, 14, 0), strict=True))
    counts = [(judge, tag, max(0, n - k) if n else 0) for (k, judge), (tag, n) in cells]
    table = pd.DataFrame(counts, columns=["judge", "tag", "count"]).assign(n=60)
    table["share"] = table["count"] / 60
    return table.assign(low=(table["share"] - 0.08).clip(lower=0), high=table["share"] + 0.1)


BATTERY = """\
blindness,image blanked: agreement,move,-0.861,-1.02,-0.71,score per gold point,40
blindness,image swapped: agreement,move,-1.21,-1.5,-0.91,score per gold point,40
question,question removed: change,move,0,0,0,score points,40
verbosity,response padded: change,stay,-0.231,-0.46,0,score points,40
formatting,response bold: change,stay,0.02,-0.06,0.1,score points,18
scale,leniency,,0.1,-0.1,0.3,score points,40
position,,,,,,,0"""


def battery() -> pd.DataFrame:
    rows = [line.split(",") for line in BATTERY.split("\n")]
    names = ["probe", "case", "must", "effect", "low", "high", "unit", "n"]
    table = pd.DataFrame(rows, columns=names)
    table[["effect", "low", "high", "n"]] = table[["effect", "low", "high", "n"]].apply(
        pd.to_numeric
    )
    table["must"] = table["must"].replace("", None)
    return table.assign(margin=np.where(table["must"] == "stay", 0.25, np.nan))


def power() -> pd.DataFrame:
    cells = itertools.product(("500 images", "24 images"), ("length", "order"), (0, 0.05, 0.1, 0.2))
    table = pd.DataFrame(cells, columns=["design", "test", "planted"]).assign(simulations=300)
    size = (table["planted"] * table["design"].str.len()) ** 2
    table["rejected"] = 0.05 + 0.95 * (1 - np.exp(-size))
    upper = table["rejected"] + 0.05 * (1 - table["rejected"])
    return table.assign(low=0.95 * table["rejected"], high=upper)


def training() -> pd.DataFrame:
    losses = pd.DataFrame({"step": range(1, 9)}).assign(loss=lambda t: 12 * 0.5 ** t["step"])
    graded = pd.DataFrame({"step": [0, 4, 8], "pearson": [np.nan, 0.4, 0.9], "parsed": [0, 0.8, 1]})
    graded = graded.assign(low=graded["pearson"] - 0.1, high=graded["pearson"] + 0.1, n=60)
    return pd.concat([losses, graded]).sort_values("step", kind="stable")


def slopes(judges: int) -> pd.DataFrame:
    row = {"case": "slope at equal gold", "effect": 0.2, "low": 0.14, "high": 0.26, "p": 0.0004}
    return pd.DataFrame([row] * judges)


def boxes(judges: int) -> Options:
    """A collection of two items, and runs of several judges on it, the last without a score."""
    image = Image.fromarray(np.tile(np.arange(0, 240, 2, dtype=np.uint8), (90, 1))).convert("RGB")
    row = {"images": [image], "instruction": "What is in the picture?", "response": "A grey ramp."}
    row |= {"criteria": "Is the picture described?", "descriptions": ["no", "partly", "yes"]}
    items = [row | {"id": "a", "human_scores": [2, 3]}, row | {"id": "b", "gold": 2, "images": []}]
    runs = {}
    for place, name in enumerate(NAMES[:judges]):
        score = 1.0 + place if place < 2 else np.nan
        verdicts = pd.DataFrame({"id": ["a", "b"], "score": score, "feedback": LONG})
        runs[name] = verdicts.assign(failure=None if place < 2 else "no verdict: cut off")
    return {"items": items, "runs": runs, "ids": ["a", "b"]}


LINES = dict(x="planted", y="rejected", by="design")
POWER = dict(**LINES, panel="test", lines=(0.05, 0.9), band=(0.04, 0.06))
FIGURES: dict[str, Callable[[int, Options], Figure]] = {
    "heatmap": lambda k, o: plots.heatmap(pearson(k, 1 + k % 5), **o),
    "long criteria": lambda k, o: plots.heatmap(long_names(), **o),
    "ranks": lambda k, o: plots.rank_heatmap(pearson(k, 5), **o),
    "who beats whom": lambda k, o: plots.who_beats_whom(comparisons(k), **o),
    "wins": lambda k, o: plots.win_matrix(wins(k), **o),
    "forest": lambda k, o: plots.forest(pearson(k, 1), ceiling=0.86, **o),
    "forest of three": lambda k, o: plots.forest(correlations(k, 1), by="statistic", **o),
    "long lines": lambda k, o: plots.forest(long_names(), ceiling=0.86, **o),
    "multiples": lambda k, o: plots.small_multiples(pearson(k, 5), **o),
    "battery": lambda k, o: plots.battery_effects(battery(), **o),
    "confusion": lambda k, o: plots.confusion(run(k), **o),
    "confusion of a hundred": lambda k, o: plots.confusion(run(1, 300, top=100), **o),
    "calibration": lambda k, o: plots.calibration_curve(calibration(k), **o),
    "scatter": lambda k, o: plots.agreement_scatter(run(k, means=True), **o),
    "feedback": lambda k, o: plots.preference_bars(answers(k), **o),
    "tags": lambda k, o: plots.tag_bars(tags(k), **o),
    "length": lambda k, o: plots.length_by_score(run(1), **o),
    "length of judges": lambda k, o: plots.length_by_score(run(k), score="score", **o),
    "length scatter": lambda k, o: plots.length_scatter(run(k), slopes(k), **o),
    "power": lambda k, o: plots.curves(power(), **POWER, **o),
    "logarithmic": lambda k, o: plots.curves(power().query("planted > 0"), **LINES, log=True, **o),
    "training": lambda k, o: plots.training_curve(training(), **o),
    "boxes": lambda k, o: plots.qualitative(**boxes(min(k, 3)), **o | {"column": "full"}),
}


if __name__ == "__main__":
    folder, venue, judges = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    options: Options = {"venue": venue, "column": sys.argv[4] if len(sys.argv) > 4 else "half"}
    for name, draw in FIGURES.items():
        fig = draw(judges, options)
        print(f"{name}: {fig.get_figwidth():.2f} x {fig.get_figheight():.2f} in. {fig.get_label()}")
        print(*crowded(fig)[:4], sep="\n")
        fig.savefig(folder / f"{name.replace(' ', '_')}.pdf")
