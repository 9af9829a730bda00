"""`make validity`: what probes, batteries, intervals and tests make of simulated judges, as tables and a figure.

PYTHONPATH=tests python -m validity --out figures
"""

from __future__ import annotations

import argparse
from pathlib import Path

from validity.batteries import batteries
from validity.correlations import measure
from validity.probes import study_all

PARTS = ("batteries", "probes", "comparison", "coverage", "labels", "figures")


def main() -> None:
    """Run all studies, or some, and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("figures"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--simulations", type=int, default=2_000, help="of a setting; of probes: with none planted")
    parser.add_argument("--power-simulations", type=int, default=200, help="of probes, with an effect planted")
    parser.add_argument("--batteries", type=int, default=100, help="of each honest judge, a quarter of each biased one")
    parser.add_argument("--sizes", type=int, nargs="+", help="items of a sample, of coverage and comparison")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    def report(line: str) -> None:
        print(line, flush=True)

    if "batteries" in options.only:
        count = options.batteries
        frame = batteries(simulations=count, power_simulations=count // 4, seed=options.seed, report=report)
        frame.round(4).to_csv(options.out / "validity_battery.csv", index=False, lineterminator="\n")
    if "probes" in options.only:
        counts = {"null_simulations": options.simulations, "power_simulations": options.power_simulations}
        frame = study_all(**counts, seed=options.seed, report=report)
        frame.to_csv(options.out / "validity.csv", index=False, lineterminator="\n")
    for name in ("comparison", "coverage"):
        if name in options.only:
            count = options.simulations // (2 if name == "comparison" else 1)  # which takes four times as long
            report(str(measure(name, out=options.out, sizes=options.sizes, simulations=count, seed=options.seed)))
    if "labels" in options.only:
        from validity.labels import labelling

        frame = labelling(simulations=options.simulations // 20, seed=options.seed)
        frame.round(4).to_csv(options.out / "validity_labels.csv", index=False, lineterminator="\n")
        report(frame.to_string())
    if "figures" in options.only:
        from validity.drawing import save

        for path in save(options.out, seed=options.seed):
            report(str(path))


if __name__ == "__main__":
    main()
