"""Simulated judges with a bias of known size: how small a bias the probes find.

They prove the probes and say nothing about any model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from vjudge import metrics
from vjudge.plots.curves import curves
from vjudge.plots.forest import forest
from vjudge.plots.style import short
from vjudge.probes.biases import length
from vjudge.results import NotComputed, Result, analysis, current

LOWEST, HIGHEST = 1.0, 5.0


def simulated_length(bias: float = 0.0, *, n: int = 500, seed: int = 0) -> pd.DataFrame:
    """A simulated judge's run on responses of which better ones are longer.

    A point of gold goes with half a doubling of the length, with a standard deviation of one; the
    score is gold, plus `bias` points a doubling, plus noise, rounded to the scale of 1 to 5.

    >>> run = simulated_length(0.3, n=4)
    >>> run["score"].between(1, 5).all() and run["response"].str.startswith("word").all()
    np.True_
    """
    rng = np.random.default_rng(seed)
    gold = rng.integers(1, 6, n)
    doublings = 0.5 * (gold - 3) + rng.normal(0, 1, n)
    score = gold + bias * doublings + rng.normal(0, 0.65, n)
    responses = ["word " * round(2 ** (6 + size)) for size in doublings]
    run = pd.DataFrame({"id": range(n), "gold": gold, "response": responses})
    run["score"] = np.clip(np.rint(score), LOWEST, HIGHEST)
    return run.assign(judge=f"simulated, {bias:g} planted", lowest=LOWEST, highest=HIGHEST)


def simulated_position(lean: float = 0.0, *, n: int = 400, seed: int = 0) -> pd.DataFrame:
    """A simulated judge's verdicts on pairs in both orders.

    `lean` are log-odds for the response shown first; how far one is ahead has a standard deviation
    of 1.5 log-odds.

    >>> simulated_position(0.5, n=2)[["verdict_ab", "verdict_ba"]].isin(["a", "b"]).all(axis=None)
    np.True_
    """
    rng = np.random.default_rng(seed)
    ahead = rng.normal(0, 1.5, n)
    a_when_first = rng.random(n) < 1 / (1 + np.exp(-ahead - lean))
    b_when_first = rng.random(n) < 1 / (1 + np.exp(ahead - lean))
    run = pd.DataFrame({"id": range(n), "judge": f"simulated, {lean:g} planted"})
    run["verdict_ab"] = np.where(a_when_first, "a", "b")
    return run.assign(verdict_ba=np.where(b_when_first, "b", "a"))


@analysis
def length_power(
    biases: Sequence[float] = (0.0, 0.1, 0.3), *, samples: int = 20, n: int = 500
) -> Result:
    """Plant biases for length in simulated judges, and read them by `length`.

    Args:
        biases: points a doubling.
        samples: simulated samples of each.
        n: items of a sample.

    Returns:
        A row a bias: `planted`, `estimate` (mean slope at equal gold), `low` and `high` (the range
        of 95 % of the samples), `correlation` (mean Spearman correlation of score and length,
        which is no bias), `significant` (share of samples with p < .05), `n` (samples).

    >>> table = length_power([0.0, 0.5], samples=3, n=60).table
    >>> table["planted"].tolist(), bool(table["estimate"].is_monotonic_increasing)
    ([0.0, 0.5], True)
    """
    draws = []
    for bias in biases:
        for sample in range(samples):
            run = simulated_length(bias, n=n, seed=current().seed + sample)
            row = length(run, gold="exact").table.iloc[0]
            lengths = metrics.lengths(run["response"])
            correlation = run["score"].corr(lengths, method="spearman")
            draws.append((bias, row["effect"], row["p"] < 0.05, correlation))
    drawn = pd.DataFrame(draws, columns=["planted", "slope", "significant", "correlation"])
    by_size = drawn.groupby("planted", sort=False)
    table = pd.DataFrame({"estimate": by_size["slope"].mean()})
    table["low"] = by_size["slope"].quantile(0.025)
    table["high"] = by_size["slope"].quantile(0.975)
    table = table.join(by_size[["correlation", "significant"]].mean()).reset_index()
    table["n"] = samples
    lines = []
    for row in table.to_dict("records"):
        slope = short(row["estimate"], row["low"], row["high"])
        lines.append(
            f"Of {row['planted']:g} points planted, the slope is {slope} and significant in"
            f" {row['significant']:.0%} of {samples} samples; the plain correlation of score and"
            f" length is {short(row['correlation'])}."
        )
    return Result(
        table,
        name="length_planted",
        reading=" ".join(lines),
        caption="Slope of the score on the response's length, at equal true score, of simulated"
        f" judges with a bias planted: mean of {samples} samples of {n} items, range of 95% of"
        " them. Better responses are longer, by half a doubling a point; scores are rounded to 1"
        " to 5, which makes slopes smaller than planted",
        plot=partial(_planted, table),
        data=drawn,
    )


def _planted(table: pd.DataFrame, **options: Any) -> Figure:
    """What was found beside what was planted, a line a judge."""
    name = table["planted"].map("{:g} points planted".format)
    estimates = table[["estimate", "low", "high"]].assign(name=name, kind="found")
    planted = pd.DataFrame({"estimate": table["planted"], "name": name, "kind": "planted"})
    rows = pd.concat([estimates, planted.assign(low=np.nan, high=np.nan)], ignore_index=True)
    rows = rows.sort_values("name", kind="stable")
    return forest(rows, rows="name", by="kind", label="score points per doubling", **options)


@analysis
def power(study: str | Path, label: str = "length, better is longer") -> Result:
    """How often a probe finds an effect, by its size: read from the study of `make validity`.

    Args:
        study: the file figures/validity.csv.
        label: of the study's rows: which probe, on which judges.

    NotComputed: there is no such file, or it has no such rows.
    """
    path = Path(study)
    if not path.is_file():
        raise NotComputed(
            f"there is no file {path.name} there: make validity, in the repository, writes it"
        )
    everything = pd.read_csv(path)
    rows = everything[everything["label"] == label].reset_index(drop=True)
    if rows.empty:
        study_labels = ", ".join(everything["label"].dropna().unique())
        raise NotComputed(f"the study has no rows of {label!r}: use one of {study_labels}")
    columns = "design planted rejected rejected_low rejected_high simulations".split()
    lines = []
    for design, of_design in rows.groupby("design", sort=False):
        null = of_design[of_design["null"]].iloc[0]
        detected = of_design[of_design["rejected"] >= 0.9]
        bound = "no planted size is"
        if len(detected):
            bound = f"from {detected['planted'].min():g} {of_design['unit'].iloc[0]} on it is"
        bounds = short(null["rejected"], null["rejected_low"], null["rejected_high"])
        lines.append(
            f"{design}: without a bias the test rejects in {bounds} of samples; {bound} found in"
            " nine of ten."
        )
    plot = partial(
        curves,
        rows,
        x="planted",
        y="rejected",
        by="design",
        low="rejected_low",
        high="rejected_high",
        lines=(0.05, 0.9),
        labels=(f"planted: {rows['unit'].iloc[0]}", "share found"),
    )
    return Result(
        rows,
        name="power",
        reading=" ".join(lines),
        caption=f"Share of simulated samples in which the probe ({label}) finds an effect at the 5%"
        " level, by its size. Dotted: 5% and 90%. Bars: exact 95% intervals",
        plot=plot,
        view=rows[columns],
    )
