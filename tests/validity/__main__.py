"""`make validity`: what probes, batteries, intervals and tests make of simulated judges, as tables and a figure.

PYTHONPATH=tests python -m validity --out figures
"""

from __future__ import annotations

import argparse
from pathlib import Path

from validity.batteries import batteries
from validity.correlations import measure
from validity.drawing import save
from validity.labels import labelling
from validity.probes import study_all

PARTS = ("batteries", "probes", "comparison", "coverage", "labels", "figures")


def main() -> None:
    """Run all studies, or some, and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("figures"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--simulations", type=int, default=2_000, help="of a setting; of probes: with none planted")
    parser.add_argument("--power-simulations", type=int, default=200, help="of probes, with an effect planted")
    parser.add_argument("--batteries", type=int, default=100, help="of each honest judge, a quarter of each biased one")
    parser.add_argument("--sizes", type=int, nargs="+", help="items of a sample, of coverage and comparison")
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    o.out.mkdir(parents=True, exist_ok=True)
    counts = {"null_simulations": o.simulations, "power_simulations": o.power_simulations}
    parts = {
        "batteries": lambda: batteries(o.batteries, o.batteries // 4, seed=o.seed, report=print),
        "probes": lambda: study_all(**counts, seed=o.seed, report=print),
        "comparison": lambda: measure("comparison", sizes=o.sizes, simulations=o.simulations // 2, seed=o.seed).round(
            4
        ),
        "coverage": lambda: measure("coverage", sizes=o.sizes, simulations=o.simulations, seed=o.seed),
        "labels": lambda: labelling(simulations=o.simulations // 20, seed=o.seed),
    }
    files = {"batteries": "battery", "coverage": "correlation_coverage"}
    for part, study in parts.items():
        if part in o.only:
            name = "validity" if part == "probes" else f"validity_{files.get(part, part)}"
            study().round(4 if part != "probes" else 17).to_csv(o.out / f"{name}.csv", index=False, lineterminator="\n")
    if "figures" in o.only:
        print(*save(o.out, seed=o.seed), sep="\n")


if __name__ == "__main__":
    main()
