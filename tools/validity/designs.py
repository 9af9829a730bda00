"""Ordinary designs that intervals have to hold on: tied and sorted rows, few items, unequal parts.

Studies of `numbers.py`, in the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from scipy import special, stats

from vjudge import metrics
from vjudge.metrics.shares import shares

Rows = Iterator[tuple[str, str, str, bool]]
COVERS = "95 % interval holds the truth"
LEVEL = "p at most .05 under the null"


def holds(row: pd.Series, truth: float) -> bool:
    return bool(row["low"] <= truth <= row["high"])


def clustered(chance: np.ndarray, group: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Events of these chances, alike within groups (a latent correlation of one half)."""
    latent = np.sqrt(0.5) * (rng.normal(size=group.max() + 1)[group] + rng.normal(size=len(group)))
    return latent < stats.norm.ppf(chance)


def unequal_categories(rng: np.random.Generator) -> Rows:
    for sizes in ((8, 8, 300), (12, 12, 500), (8,) * 10):
        category = np.repeat(np.arange(len(sizes)), sizes)
        members = category == np.arange(len(sizes))[:, None]  # (k, n)
        is_right = rng.random(len(category)) < 0.9
        table = shares([("macro", members & is_right, members)], groups=None, unit="items")
        setting = f"categories of {', '.join(map(str, sizes[:3]))}, .9 right"
        yield "macro share", setting, COVERS, holds(table.iloc[0], 0.9)


def share_in_groups(rng: np.random.Generator) -> Rows:
    zipf = np.maximum(1, (100 / np.arange(1, 41)).astype(int))
    for name, sizes in {"40 of five": [5] * 40, "40 by Zipf's law": zipf}.items():
        group = np.repeat(np.arange(40), sizes)
        won = clustered(np.full(len(group), 0.8), group, rng)
        table = metrics.win_rate(np.where(won, "a", "b"), groups=group)
        yield "win_rate", f"groups: {name}", COVERS, holds(table.loc["win"], 0.8)


def labels_by_verdict(rng: np.random.Generator) -> Rows:
    for chosen in ((100, 100), (300, 300), (200, 50)):
        is_right = rng.random(1000) < 0.6
        verdict = np.where(is_right, rng.random(1000) < 0.9, rng.random(1000) < 0.3)
        order = rng.permutation(1000)
        keep = [*order[verdict[order]][: chosen[0]], *order[~verdict[order]][: chosen[1]]]
        labels = pd.Series(is_right.astype(float)).where(np.isin(np.arange(1000), keep))
        row = metrics.corrected_rate_from_labels(
            pd.Series(verdict.astype(float)), labels, labelled="by verdict"
        )
        setting = f"{chosen[0]} + {chosen[1]} labels by verdict"
        yield "corrected_rate_from_labels", setting, COVERS, holds(row, 0.6)


def few_labels(rng: np.random.Generator) -> Rows:
    for setting, chances, n in (
        ("win, tie, loss .9, .05, .05, 30 labels", (0.9, 0.05, 0.05), 30),
        ("win, tie, loss .5, .1, .4, 30 labels", (0.5, 0.1, 0.4), 30),
        ("win rate .9, 50 labels", (0.9, 0.0, 0.1), 50),
    ):
        wins = pd.Series(rng.choice([1.0, 0.5, 0.0], size=500, p=chances))
        told = wins.where(rng.random(500) < 0.9, rng.choice([1.0, 0.5, 0.0], size=500))
        table = metrics.prediction_powered_mean(told, wins.where(wins.index < n))
        truth = chances[0] + chances[1] / 2
        yield "prediction_powered_mean", setting, COVERS, holds(table.iloc[0], truth)


def calibration(rng: np.random.Generator) -> Rows:
    tied = pd.Series(rng.choice([0.7, 0.8, 0.9, 0.97], size=400)).sort_values(ignore_index=True)
    image = pd.Series(np.arange(400) // 5)
    fine = pd.Series(rng.uniform(0.6, 1, size=400))
    for setting, sure, groups in (
        ("four tied levels, 400 verdicts", tied, None),
        ("80 images of five", fine, image),
    ):
        for over in (0.0, 0.1):
            chance = (sure - over).to_numpy()
            right = rng.random(400) < chance
            if groups is not None:
                right = clustered(chance, image.to_numpy(), rng)
            row = metrics.expected_calibration_error(
                sure, pd.Series(right.astype(int)), groups=groups, n_resamples=400
            )
            name = "expected_calibration_error"
            yield name, f"{setting}, too sure by {over}", COVERS, holds(row, over)
            if not over:
                yield name, setting, LEVEL, bool(row["p"] <= 0.05)


def temperature_in_groups(rng: np.random.Generator) -> Rows:
    group = np.repeat(np.arange(40), 5)
    logits = 1.5 * rng.normal(size=(40, 5))[group]
    noise = np.where(rng.random((200, 1)) < 0.6, rng.gumbel(size=(40, 5))[group], 0.0)
    noise = np.where(noise == 0, rng.gumbel(size=(200, 5)), noise)
    truth = pd.Series((logits + noise).argmax(axis=1).astype(float))
    judge = pd.Series([dict(enumerate(special.softmax(row))) for row in logits])
    row = metrics.temperature_scaling(judge, truth, groups=pd.Series(group))
    yield "temperature_scaling", "temperature 1, 40 images of five", COVERS, holds(row, 1.0)


EXACT: dict[int, float] = {}


def exact_agreement(rng: np.random.Generator) -> Rows:
    def ratings(n: int, m: int, rng: np.random.Generator) -> np.ndarray:
        spread = rng.normal(size=(n, 1)) + 0.7 * rng.normal(size=(n, m))
        return np.clip(np.round(3 + spread), 1, 5)

    for n, m in ((10, 3), (15, 3), (15, 5)):
        if m not in EXACT:
            many = ratings(50_000, m, np.random.default_rng(0))
            EXACT[m] = metrics.agreement(many, n_resamples=0).loc["exact", "estimate"]
        row = metrics.agreement(ratings(n, m, rng), n_resamples=0).loc["exact"]
        yield (
            "agreement: exact",
            f"{n} items, {m} raters, five levels",
            COVERS,
            holds(row, EXACT[m]),
        )


def strengths(rng: np.random.Generator) -> Rows:
    strength = np.linspace(-1, 1, 5)
    zipf = np.maximum(1, (100 / np.arange(1, 41)).astype(int))
    designs = {"200 comparisons": [1] * 200, "40 groups by Zipf's law": zipf}
    for setting, sizes in designs.items():
        group = np.repeat(np.arange(len(sizes)), sizes)
        i = rng.integers(0, 5, len(group))
        j = (i + rng.integers(1, 5, len(group))) % 5
        won = clustered(special.expit(strength[i] - strength[j]), group, rng)
        table = metrics.bradley_terry(i, j, np.where(won, "a", "b"), groups=group)
        yield "bradley_terry", setting, COVERS, holds(table.loc[4], 1.0)


def two_judges_on_pairs(rng: np.random.Generator) -> Rows:
    for setting, n, size in (("100 pairs", 100, 1), ("40 images of five pairs", 200, 5)):
        group = np.arange(n) // size
        right = np.stack([clustered(np.full(n, 0.7), group, rng) for _ in range(2)])
        verdicts = np.where(right, "a", "b")
        judges = dict(zip(("one", "other"), verdicts, strict=True))
        row = metrics.compare_choices(["a"] * n, judges, groups=group).iloc[0]
        yield "compare_choices", setting, LEVEL, bool(row["p"] <= 0.05)
        yield "compare_choices", setting, COVERS, holds(row, 0.0)


def length_controlled(rng: np.random.Generator) -> Rows:
    length = rng.integers(100, 1000, size=(2, 200))
    gap = length[0] - length[1]
    chance = special.expit(0.5 + np.tanh(gap / 367))  # 367: the standard deviation of the gaps
    verdicts = np.where(rng.random(200) < chance, "a", "b")
    table = metrics.length_controlled_win_rate(verdicts, *length)
    row = table.loc["length_controlled"]
    yield "length_controlled_win_rate", "200 comparisons", COVERS, holds(row, special.expit(0.5))


DESIGNS: dict[Callable[[np.random.Generator], Rows], float] = {
    unequal_categories: 1.0,
    share_in_groups: 1.0,
    labels_by_verdict: 1.0,
    few_labels: 1.0,
    calibration: 0.5,
    temperature_in_groups: 0.5,
    exact_agreement: 1.0,
    strengths: 1.0,
    two_judges_on_pairs: 1.0,
    length_controlled: 1.0,
}
"""Each study, and which share of the simulations it gets."""
