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
from vjudge.probes.lengths import length
from vjudge.results import NotComputed, Result, analysis, current

LOWEST = 1
HIGHEST = 5
MEAN_LENGTH = 6  # log2 of the number of words of a response with gold 3: 64 words
DOUBLINGS_PER_POINT = 0.5  # better responses are longer
SCORE_NOISE = 0.65  # standard deviation, in points
QUALITY_SPREAD = 1.5  # standard deviation of the log-odds between two responses
FOUND_SHARE = 0.9  # a size of an effect counts as found if this share of samples finds it
POWER_COLUMNS = "design planted rejected rejected_low rejected_high simulations".split()


def simulated_length(bias: float = 0.0, *, n: int = 500, seed: int = 0) -> pd.DataFrame:
    """Simulate a judge's run on responses of which better ones are longer.

    Gold is uniform on 1 to 5. With l the number of doublings of the length beyond 64 words,

        l     = 0.5 (gold - 3) + N(0, 1)
        score = gold + bias * l + N(0, 0.65),  rounded to 1 to 5

    Args:
        bias: the injected bias, in score points per doubling of the length.
        n: the number of items.
        seed: of all random draws.

    >>> run = simulated_length(0.3, n=4)
    >>> run["score"].between(1, 5).all() and run["response"].str.startswith("word").all()
    np.True_
    """
    rng = np.random.default_rng(seed)
    gold = rng.integers(LOWEST, HIGHEST + 1, n)
    middle = (LOWEST + HIGHEST) / 2
    doublings = DOUBLINGS_PER_POINT * (gold - middle) + rng.normal(0, 1, n)
    score = gold + bias * doublings + rng.normal(0, SCORE_NOISE, n)
    run = pd.DataFrame({"id": range(n), "gold": gold})
    run["response"] = ["word " * round(2 ** (MEAN_LENGTH + extra)) for extra in doublings]
    run["score"] = np.clip(np.rint(score), LOWEST, HIGHEST)
    return run.assign(
        judge=f"simulated, {bias:g} planted", lowest=float(LOWEST), highest=float(HIGHEST)
    )


def simulated_position(lean: float = 0.0, *, n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Simulate a judge's verdicts on pairs in both orders.

    The log-odds that response a wins are d + lean where a is shown first and d - lean where b is,
    with d from N(0, 1.5).

    Args:
        lean: the injected bias, in log-odds for the response shown first.
        n: the number of pairs.
        seed: of all random draws.

    >>> simulated_position(0.5, n=2)[["verdict_ab", "verdict_ba"]].isin(["a", "b"]).all(axis=None)
    np.True_
    """
    rng = np.random.default_rng(seed)
    lead = rng.normal(0, QUALITY_SPREAD, n)  # of response a over b, in log-odds
    wins_a_first = rng.random(n) < 1 / (1 + np.exp(-lead - lean))
    wins_b_first = rng.random(n) < 1 / (1 + np.exp(lead - lean))
    run = pd.DataFrame({"id": range(n), "judge": f"simulated, {lean:g} planted"})
    run["verdict_ab"] = np.where(wins_a_first, "a", "b")
    return run.assign(verdict_ba=np.where(wins_b_first, "b", "a"))


# --- the size of what is found


@analysis
def length_power(
    biases: Sequence[float] = (0.0, 0.1, 0.3), *, samples: int = 20, n: int = 500
) -> Result:
    """Inject biases for length into simulated judges, and estimate them by `length`.

    Args:
        biases: the injected biases, in points per doubling.
        samples: simulated samples per bias.
        n: items per sample.

    Returns:
        One row per bias: `planted`, `estimate` (mean slope at equal gold), `low` and `high` (the
        range of 95 % of the samples), `correlation` (mean Spearman correlation of score and length,
        which is no bias), `significant` (share of samples with p < .05), `n` (samples).

    >>> table = length_power([0.0, 0.5], samples=3, n=60).table
    >>> table["planted"].tolist(), bool(table["estimate"].is_monotonic_increasing)
    ([0.0, 0.5], True)
    """
    drawn = _length_samples(biases, samples, n)
    by_bias = drawn.groupby("planted", sort=False)
    table = pd.DataFrame({"estimate": by_bias["slope"].mean()})
    table["low"] = by_bias["slope"].quantile(0.025)
    table["high"] = by_bias["slope"].quantile(0.975)
    table = table.join(by_bias[["correlation", "significant"]].mean()).reset_index()
    table["n"] = samples
    sentences = []
    for row in table.to_dict("records"):
        slope = short(row["estimate"], row["low"], row["high"])
        sentences.append(
            f"Of {row['planted']:g} points planted, the slope is {slope} and significant in"
            f" {row['significant']:.0%} of {samples} samples; the plain correlation of score and"
            f" length is {short(row['correlation'])}."
        )
    return Result(
        table,
        name="length_planted",
        reading=" ".join(sentences),
        caption="Slope of the score on the response's length, at equal true score, of simulated"
        f" judges with a bias planted: mean of {samples} samples of {n} items, range of 95% of"
        " them. Better responses are longer, by half a doubling a point; scores are rounded to 1"
        " to 5, which makes slopes smaller than planted",
        plot=partial(_planted, table),
        data=drawn,
    )


def _length_samples(biases: Sequence[float], samples: int, n: int) -> pd.DataFrame:
    """Simulate samples of a judge per injected bias, and run the probe of length on each.

    Args:
        biases, samples, n: as in `length_power`.

    Returns:
        One row per sample:

        - planted: the injected bias;
        - slope, significant: the probe's estimate, and whether its p is below .05;
        - correlation: Spearman's, of score and length.
    """
    rows = []
    for bias in biases:
        for sample in range(samples):
            run = simulated_length(bias, n=n, seed=current().seed + sample)
            row = length(run, gold="exact").table.iloc[0]
            lengths = metrics.lengths(run["response"])
            correlation = run["score"].corr(lengths, method="spearman")
            rows.append((bias, row["effect"], row["p"] < 0.05, correlation))
    return pd.DataFrame(rows, columns=["planted", "slope", "significant", "correlation"])


def _planted(table: pd.DataFrame, **options: Any) -> Figure:
    """Draw the estimate of each bias beside the injected one, one line per bias."""
    name = table["planted"].map("{:g} points planted".format)
    estimates = table[["estimate", "low", "high"]].assign(name=name, kind="found")
    planted = pd.DataFrame({"estimate": table["planted"], "name": name, "kind": "planted"})
    rows = pd.concat([estimates, planted.assign(low=np.nan, high=np.nan)], ignore_index=True)
    rows = rows.sort_values("name", kind="stable")
    return forest(rows, rows="name", by="kind", label="score points per doubling", **options)


# --- how often it is found


@analysis
def power(study: str | Path, label: str = "length, better is longer") -> Result:
    """Show how often a probe finds an effect, by its size.

    Args:
        study: the file figures/validity.csv, which `make validity` writes.
        label: of the study's rows: which probe, on which judges.

    Returns:
        One row per design and injected size: `planted`, `rejected` (the share of samples in which
        the test rejects) with its interval, and the number of `simulations`.

    Raises:
        NotComputed: there is no such file, or it has no such rows.
    """
    rows = _study_rows(Path(study), label)
    sentences = []
    for design, of_design in rows.groupby("design", sort=False):
        unbiased = of_design[of_design["null"]].iloc[0]  # the row without a bias
        detected = of_design[of_design["rejected"] >= FOUND_SHARE]
        bound = "no planted size is"
        if len(detected):
            bound = f"from {detected['planted'].min():g} {of_design['unit'].iloc[0]} on it is"
        share = short(unbiased["rejected"], unbiased["rejected_low"], unbiased["rejected_high"])
        sentences.append(
            f"{design}: without a bias the test rejects in {share} of samples; {bound} found in"
            " nine of ten."
        )
    return Result(
        rows,
        name="power",
        reading=" ".join(sentences),
        caption=f"Share of simulated samples in which the probe ({label}) finds an effect at the 5%"
        " level, by its size. Dotted: 5% and 90%. Bars: exact 95% intervals",
        plot=partial(
            curves,
            rows,
            x="planted",
            y="rejected",
            by="design",
            low="rejected_low",
            high="rejected_high",
            lines=(0.05, FOUND_SHARE),
            labels=(f"planted: {rows['unit'].iloc[0]}", "share found"),
        ),
        view=rows[POWER_COLUMNS],
    )


def _study_rows(path: Path, label: str) -> pd.DataFrame:
    """Read the rows of one label from the file of the study of power.

    Raises:
        NotComputed: there is no such file, or it has no such rows.
    """
    if not path.is_file():
        raise NotComputed(
            f"there is no file {path.name} there: make validity, in the repository, writes it"
        )
    table = pd.read_csv(path)
    rows = table[table["label"] == label].reset_index(drop=True)
    if rows.empty:
        labels = ", ".join(table["label"].dropna().unique())
        raise NotComputed(f"the study has no rows of {label!r}: use one of {labels}")
    return rows
