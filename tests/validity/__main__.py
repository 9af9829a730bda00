"""`make validity`: what probes, batteries, intervals and tests make of simulated judges, as tables and a figure.

PYTHONPATH=tests python -m validity --out figures
"""

from __future__ import annotations

import argparse
from pathlib import Path

from validity.batteries import batteries
from validity.correlations import labelling, measure
from validity.drawing import save
from validity.studies import study_all

PARTS = ("battery", "probes", "comparison", "correlation_coverage", "labels", "figures")


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
    n, sizes, seed = o.simulations, o.sizes, {"seed": o.seed}
    o.out.mkdir(parents=True, exist_ok=True)
    studies = {
        "battery": lambda: batteries(o.batteries, o.batteries // 4, report=print, **seed),
        "probes": lambda: study_all(null_simulations=n, power_simulations=o.power_simulations, report=print, **seed),
        "comparison": lambda: measure("comparison", sizes=sizes, simulations=n // 2, **seed),
        "correlation_coverage": lambda: measure("coverage", sizes=sizes, simulations=n, **seed),
        "labels": lambda: labelling(simulations=n // 20, **seed),
    }
    for part in (part for part in studies if part in o.only):
        name, digits = ("validity", 17) if part == "probes" else (f"validity_{part}", 4)
        studies[part]().round(digits).to_csv(o.out / f"{name}.csv", index=False, lineterminator="\n")
    if "figures" in o.only:
        print(*save(o.out, seed=o.seed), sep="\n")


if __name__ == "__main__":
    main()
