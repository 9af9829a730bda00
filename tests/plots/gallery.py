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
from matplotlib.figure import Figure

from vjudge import metrics, plots

NAMES = ["Prometheus-Vision 13B", "LLaVA-Critic 7B", "GPT-4o", "tiny", "image blanked", "Gemini 1.5 Pro", "ROUGE-L",
         "length alone"]  # fmt: skip
BENCHMARKS = ["LLaVA-Bench", "VisIT-Bench", "Perception-Bench", "MM-Vet", "WildVision"]
LONG = (
    "Does the response name every object in the picture that the question asks about, with its right colour and "
    * 2
)
Options = dict[str, Any]


def run(judges: int, n: int = 120, *, means: bool = False, top: int = 5) -> pd.DataFrame:
    """Verdicts of several judges of one collection; with `means`, gold is a mean of three raters."""
    rng = np.random.default_rng(0)
    gold = np.resize(np.arange(1.0, top + 1), n)
    people = np.clip(gold[:, None] + rng.integers(-1, 2, (n, 3)), 1, top)
    parts = []
    for place, judge in enumerate(NAMES[:judges]):
        score = np.clip(np.round(gold + rng.normal(0, 0.3 + 0.25 * place, n)), 1, top)
        score[[3, 44, 90]] = np.nan
        part = pd.DataFrame(
            {"judge": judge, "id": np.arange(n), "score": score, "human_scores": people.tolist()}
        )
        part["gold"] = people.mean(axis=1) if means else gold
        part["response"] = [
            "word " * int(20 + 4 * g + k) for g, k in zip(gold, rng.integers(0, 30, n), strict=True)
        ]
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def correlations(judges: int, benchmarks: int = 3) -> pd.DataFrame:
    cells = itertools.product(
        [*NAMES[:judges], "people"], BENCHMARKS[:benchmarks], ("pearson", "spearman", "kendall")
    )
    table = pd.DataFrame(cells, columns=["judge", "benchmark", "statistic"])
    place = pd.Series(pd.factorize(table["judge"])[0])
    r = 0.8 - 0.13 * place + np.random.default_rng(1).normal(0, 0.08, len(table))
    table["estimate"] = r.where(table["judge"] != "people", 0.86)
    table = table.assign(
        low=table["estimate"] - 0.11, high=(table["estimate"] + 0.09).clip(upper=1)
    )
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
    score, n = np.arange(1.0, 6), np.array([20, 24, 30, 26, 20])
    human = {NAMES[place]: 3 + (score - 3) * (1 - 0.12 * place) for place in range(judges)}
    return {name: pd.DataFrame({"judge": score, "human": mean, "low": mean - 0.2, "high": mean + 0.2, "n": n,
                                "share": n / 120}) for name, mean in human.items()}  # fmt: skip


def answers(judges: int) -> dict[tuple[str, str], pd.DataFrame]:
    counts = [
        (21, 36, 57, 21),
        (26, 30, 70, 9),
        (50, 59, 12, 14),
        (1, 120, 8, 6),
    ]  # first Prometheus-Vision's own
    words = ("left", "right", "both good", "both bad")
    pairs = itertools.islice(itertools.combinations(NAMES, 2), max(1, judges - 1))
    tables = [metrics.feedback_preference(np.repeat(words, n)) for n in counts]
    return dict(zip(pairs, itertools.cycle(tables)))


def wins(judges: int) -> dict[tuple[str, str], pd.DataFrame]:
    verdicts = ["a"] * 60 + ["b"] * 31 + ["tie"] * 9 + ["??"]
    return {
        (name, "baseline"): metrics.win_rate(verdicts[k:]) for k, name in enumerate(NAMES[:judges])
    }


def tags(judges: int) -> pd.DataFrame:
    names = [
        "misread the picture",
        "ignores the rubric",
        "hallucinates",
        "praises what is not there",
        "other",
    ]
    counts = [(judge, tag, count) for k, judge in enumerate(NAMES[:judges])
              for tag, count in zip(names, (22 - k, 9, 5 + k, 14, 0), strict=True)]  # fmt: skip
    table = pd.DataFrame(counts, columns=["judge", "tag", "count"]).assign(
        n=60, share=lambda t: t["count"] / 60
    )
    return table.assign(low=(table["share"] - 0.08).clip(lower=0), high=table["share"] + 0.1)


def battery() -> pd.DataFrame:
    rows = [
        (
            "blindness",
            "image blanked: agreement",
            "move",
            -0.861,
            -1.02,
            -0.71,
            "score per gold point",
            40,
        ),
        (
            "blindness",
            "image swapped: agreement",
            "move",
            -1.21,
            -1.5,
            -0.91,
            "score per gold point",
            40,
        ),
        ("question", "question removed: change", "move", 0, 0, 0, "score points", 40),
        ("verbosity", "response padded: change", "stay", -0.231, -0.46, 0.0, "score points", 40),
        ("formatting", "response bold: change", "stay", 0.02, -0.06, 0.1, "score points", 18),
        ("scale", "leniency", None, 0.1, -0.1, 0.3, "score points", 40),
        ("position", "", None, np.nan, np.nan, np.nan, "", 0),
    ]
    table = pd.DataFrame(
        rows, columns=["probe", "case", "must", "effect", "low", "high", "unit", "n"]
    )
    return table.assign(margin=np.where(table["must"] == "stay", 0.25, np.nan))


def power() -> pd.DataFrame:
    cells = itertools.product(
        ("500 images", "24 images"), ("length", "position"), (0, 0.05, 0.1, 0.2)
    )
    table = pd.DataFrame(cells, columns=["design", "test", "planted"]).assign(simulations=300)
    table["rejected"] = 0.05 + 0.95 * (
        1 - np.exp(-((table["planted"] * table["design"].str.len()) ** 2))
    )
    return table.assign(
        low=0.95 * table["rejected"], high=table["rejected"] + 0.05 * (1 - table["rejected"])
    )


def training() -> pd.DataFrame:
    losses = [{"step": step, "loss": 12 * 0.5**step} for step in range(1, 9)]
    graded = [{"step": step, "pearson": r, "low": r - 0.1, "high": min(1.0, r + 0.1), "parsed": parsed, "n": 60}
              for step, r, parsed in [(0, np.nan, 0.0), (4, 0.4, 0.8), (8, 0.9, 1.0)]]  # fmt: skip
    return pd.DataFrame([*losses, *graded]).sort_values("step", kind="stable")


def slope() -> pd.DataFrame:
    return pd.DataFrame(
        {"case": ["slope at equal gold"], "effect": 0.2, "low": 0.14, "high": 0.26, "p": 0.0004}
    )


LINES = dict(x="planted", y="rejected", by="design")
POWER = dict(**LINES, panel="test", lines=(0.05, 0.9), band=(0.04, 0.06))
FIGURES: dict[str, Callable[[int, Options], Figure]] = {
    "heatmap": lambda k, o: plots.heatmap(pearson(k, 1 + k % 5), **o),
    "long criteria": lambda k, o: plots.heatmap(long_names(), **o),
    "forest": lambda k, o: plots.forest(pearson(k, 1), ceiling=0.86, **o),
    "forest of three": lambda k, o: plots.forest(correlations(k, 1), by="statistic", **o),
    "long lines": lambda k, o: plots.forest(long_names(), ceiling=0.86, **o),
    "battery": lambda k, o: plots.battery_effects(battery(), **o),
    "who beats whom": lambda k, o: plots.who_beats_whom(comparisons(k), **o),
    "confusion": lambda k, o: plots.confusion(run(k), **o),
    "confusion of a hundred": lambda k, o: plots.confusion(run(1, 300, top=100), **o),
    "calibration": lambda k, o: plots.calibration_curve(calibration(k), **o),
    "feedback": lambda k, o: plots.preference_bars(answers(k), **o),
    "tags": lambda k, o: plots.tag_bars(tags(k), **o),
    "length": lambda k, o: plots.length_by_score(run(1), **o),
    "length of judges": lambda k, o: plots.length_by_score(run(k), score="score", **o),
    "length scatter": lambda k, o: plots.length_scatter(run(1), slope(), **o),
    "power": lambda k, o: plots.curves(power(), **POWER, **o),
    "logarithmic": lambda k, o: plots.curves(
        power()[power()["planted"] > 0], **LINES, log=True, **o
    ),
    "training": lambda k, o: plots.training_curve(training(), **o),
}


if __name__ == "__main__":
    folder, venue, judges = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        fig = draw(judges, {"venue": venue})
        fig.savefig(folder / f"{name.replace(' ', '_')}.png")
        print(f"{name}: {fig.get_figwidth():.2f} x {fig.get_figheight():.2f} in. {fig.get_label()}")
