"""What probes, batteries, intervals and tests make of simulated judges, as tables and a figure.

PYTHONPATH=tools python -m validity --out figures
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from validity import crossed
from validity.correlations import measure
from validity.drawing import save
from validity.numbers import numbers
from validity.studies import STUDIES, batteries, study_all


def main() -> None:
    """Run all studies and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("figures"))
    parser.add_argument(
        "--simulations", type=int, default=2_000, help="of a probe or interval; others get a share"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="*", help="write these tables alone, such as validity_battery"
    )
    parser.add_argument(
        "--probes",
        nargs="*",
        help="study these probes alone and replace their rows in validity.csv",
    )
    o = parser.parse_args()
    n, seed = o.simulations, {"seed": o.seed}
    o.out.mkdir(parents=True, exist_ok=True)
    studies = {
        "validity_battery": lambda: batteries(n // 20, n // 80, **seed),
        "validity": lambda: study_all(null_simulations=n, power_simulations=n // 10, **seed),
        "validity_comparison": lambda: measure("comparison", simulations=n // 2, **seed),
        "validity_correlation_coverage": lambda: measure("coverage", simulations=n, **seed),
        "validity_numbers": lambda: numbers(simulations=n // 5, **seed),
        "validity_crossed": lambda: numbers(crossed.STUDIES, simulations=n // 5, **seed),
    }
    if o.probes:
        chosen = [study for study in STUDIES if study.name in o.probes]
        old = pd.read_csv(o.out / "validity.csv")
        new = study_all(chosen, null_simulations=n, power_simulations=n // 10, **seed)
        whole = pd.concat([old[~old["probe"].isin(o.probes)], new])
        studies = {"validity": lambda: whole}
    if o.only:
        studies = {name: studies[name] for name in o.only}
    for name, study in studies.items():
        digits = 17 if name == "validity" else 4
        study().round(digits).to_csv(o.out / f"{name}.csv", index=False, lineterminator="\n")
    print(*save(o.out, seed=o.seed), sep="\n")


if __name__ == "__main__":
    main()
