"""Whole batteries on simulated judges: how many honest ones are accused of anything, and which biases are found.

An accusation is a verdict against what must be: "moves" where a score must stay, "stays" where it must move. A battery
asks about thirty times; at most one honest judge in twenty may be accused of anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pandas as pd

from validity.studies import DESIGNS, POOL, Pool, Sample, exact
from vjudge import probes
from vjudge.probes.perturbations import PERTURBATIONS
from vjudge.probes.simulated import Planted, SimulatedJudge

HONEST: dict[str, tuple[Planted, str, float]] = {
    "whole scores, exact gold": (Planted(), "exact", 0.0),
    "whole scores, exact gold, better is longer": (Planted(), "exact", 0.5),
    "whole scores, gold of one rater, better is longer": (Planted(), "observed", 0.5),
    "whole scores, gold of two raters, better is longer": (Planted(), "rated", 0.5),
    "expected scores, exact gold": (Planted(whole=False), "exact", 0.0),
    "noisy judge, gold of two raters": (Planted(noise=1.2), "rated", 0.0),
}
"""Name -> an unbiased judge, what gold is, and doublings of length a gold point."""
BIASED: dict[str, tuple[Planted, str]] = {
    "length, .2 a doubling": (Planted(length=0.2), "verbosity"),
    "length, .4 a doubling": (Planted(length=0.4), "verbosity"),
    "length in pairs, .5 a doubling": (Planted(pairwise_length=0.5), "verbosity"),
    "format, .25 points": (Planted(formatting=0.25), "formatting"),
    "injection, .25 points": (Planted(injection=0.25), "injection"),
    "position, .5 log-odds": (Planted(position=0.5), "position"),
    "reference, a quarter copied": (Planted(copying=0.25), "reference"),
    "kinds of image, .5 points": (Planted(kind=0.5), "image_kinds"),
    "nine tenths blind": (Planted(sight=0.1), "blindness"),
    "blind": (Planted(sight=0.0), "blindness"),
    "rubric not read": (Planted(reading=0.0), "rubric"),
}
"""Name -> a judge with one bias, and the probe that should find it; gold exact."""


def runs_of(sample: Sample, judge: SimulatedJudge, gold: str) -> dict[str, pd.DataFrame]:
    """All runs that a battery reads, with the gold scores that are known."""
    runs = {name: judge.run(sample.view(name)) for name in PERTURBATIONS}
    runs = {"original": sample.original(judge, gold), **runs, "sampled": judge.run(sample.view(), samples=2)}
    if gold != "exact":
        means = runs["original"].set_index("id")["gold"]
        runs = {name: run.assign(gold=run["id"].map(means)) for name, run in runs.items()}
    return runs | {"compared": judge.choose(*sample.pairs()), "compared_padded": judge.choose(*sample.padded_pairs())}


def batteries(
    simulations: int, power_simulations: int, *, pool_size: int = POOL, seed: int = 0,
    designs: dict[str, tuple[int, int]] = DESIGNS, report: Callable[[str], None] = lambda line: None,
) -> pd.DataFrame:  # fmt: skip
    """Run many batteries: a row a judge and design.

    accused: share of batteries with a verdict against what must be (of honest judges); found: share in which the probe
    that should find the bias does; passed: in which all its rows are as they must be; cleared: mean share of the other
    rows that are. low, high: exact 95 % interval of accused or found. Biased judges are run on one item an image.
    """
    rows = []
    for (design, (n, per_group)), longer in itertools.product(designs.items(), (0.0, 0.5)):
        pool = Pool(per_group, n=pool_size, longer=longer, seed=seed, names=tuple(PERTURBATIONS))
        cells = [(name, planted, gold, "") for name, (planted, gold, far) in HONEST.items() if far == longer]
        if not longer and per_group == 1:
            cells += [(name, planted, "exact", probe) for name, (planted, probe) in BIASED.items()]
        for name, planted, gold, probe in cells:
            count = power_simulations if probe else simulations
            mean = pd.DataFrame([_one(pool, n, planted, gold, probe, [seed, k]) for k in range(count)]).mean()
            key = "found" if probe else "accused"
            interval = exact(round(mean[key] * count), count, key)
            line = {"judge": name, "design": design, "planted": probe or "nothing", **mean.to_dict()}
            line |= {"low": interval[f"{key}_low"], "high": interval[f"{key}_high"], "simulations": count}
            rows.append(line)
            report(", ".join(f"{name} {value}" for name, value in line.items()))
    return pd.DataFrame(rows)


def _one(pool: Pool, n: int, planted: Planted, gold: str, probe: str, seed: list[int]) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    sample = pool.draw(n, rng)
    judge = SimulatedJudge(pool.truth, planted, seed=int(rng.integers(2**62)))
    frame = probes.battery(runs_of(sample, judge, gold), gold=gold, progress=False)
    against = {name for name, _ in frame.attrs["against"]}
    must = frame[frame["must"].notna()]
    right, about = must["verdict"] == must["must"] + "s", must["probe"] == probe
    return {
        "accused": np.nan if probe else float(bool(against)),
        "found": float(probe in against) if probe else np.nan,
        "passed": float(right[about].all()) if probe else np.nan,
        "cleared": float(right[~about].mean()),
        "tests": frame.attrs["n_tests"],
    }
