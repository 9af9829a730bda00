"""Best of n: what a judge's choice among n answers is worth, for every n up to the number drawn."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vjudge.metrics._tables import design_of, tabulate

Floats = NDArray[np.float64]


def best_of_n(
    rewards: pd.DataFrame,
    *,
    value: str = "true_score",
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """The mean value of the answer that the reward prefers among n, for every n.

    Each figure is the exact mean over all ways to take n of a question's answers, so that nothing is drawn anew. Of
    answers with equal rewards each is preferred as often.

    Args:
        rewards: from `reward`: one row a distinct answer with id, times, reward, group, and the column `value`.
        value: what the preferred answer is worth: "true_score", a second judge's score, or "reward" itself.
        confidence, n_resamples, seed: see `metrics.correlate`; groups are resampled.

    Returns:
        Index n, from 1 to the fewest answers of any question; columns estimate, low, high, n (questions), missing
        (questions left out because a reward or a value is missing), best_possible (the value itself choosing: the most
        that any judge could reach) and share_of_possible (the gain over n = 1 as a share of the possible gain).

    Raises:
        ValueError: the column is not there.

    Source: LLaVA-Critic (arXiv 2410.02712) chooses the best of five so.
    """
    if value not in rewards:
        raise ValueError(f"rewards have no column {value!r}: add the value of every answer")
    curves, limits, groups, left_out = [], [], [], 0
    for _, part in rewards.groupby("id", sort=False):
        if part[["reward", value]].isna().any(axis=None):
            left_out += 1
            continue
        times = part["times"].to_numpy(dtype=int)
        worth = np.repeat(part[value].to_numpy(dtype=float), times)
        curves.append(expected_best(np.repeat(part["reward"].to_numpy(dtype=float), times), worth))
        limits.append(expected_best(worth, worth))
        groups.append(part["group"].iloc[0])
    fewest = min(map(len, curves), default=0)
    if not fewest:
        raise ValueError(f"no question has a reward and a {value} for every answer ({left_out} left out)")
    chosen = np.array([curve[:fewest] for curve in curves])
    possible = np.array([curve[:fewest] for curve in limits])
    used = np.ones(len(chosen), dtype=bool)
    table = tabulate(
        lambda w: chosen.T @ w / w.sum(axis=0),
        list(range(1, fewest + 1)),
        design_of(np.arange(len(chosen)), groups, used),
        n=len(chosen),
        missing=left_out,
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
        method="t",
        unit="questions",
        index="n",
    )
    table["best_possible"] = possible.mean(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        gain = (table["estimate"] - table["estimate"].iloc[0]).to_numpy()
        table["share_of_possible"] = gain / (possible.mean(axis=0) - possible.mean(axis=0)[0])
    table.attrs["value"] = value
    return table


def expected_best(rewards: Floats, values: Floats) -> Floats:
    """The mean value of the answer with the highest reward among n, over all choices of n answers, n = 1 to all.

    Args:
        rewards, values: of each answer, shape (k,).

    Returns:
        Shape (k,); equal rewards share their chance.
    """
    k = len(rewards)
    levels, level = np.unique(rewards, return_inverse=True)
    mean = np.array([values[level == each].mean() for each in range(len(levels))])
    upto = np.cumsum(np.bincount(level, minlength=len(levels)))
    ways: Any = np.array([[comb(int(count), n) for count in [0, *upto]] for n in range(1, k + 1)], dtype=float)
    return np.asarray(np.diff(ways, axis=1) @ mean / ways[:, -1])
