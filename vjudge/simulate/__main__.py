"""`make validity`: what probes, intervals and tests make of simulated judges, as tables and a figure.

python -m vjudge.simulate --out figures
"""

from __future__ import annotations

import argparse
from pathlib import Path

from vjudge.simulate.coverage import measure
from vjudge.simulate.drawing import save
from vjudge.simulate.validity import study_all

PARTS = ("probes", "coverage", "comparison")


def main() -> None:
    """Run all studies, or some, and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("figures"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--simulations", type=int, default=2_000, help="of a setting; of probes: with none planted")
    parser.add_argument("--power-simulations", type=int, default=300, help="of probes, with an effect planted")
    parser.add_argument("--sizes", type=int, nargs="+", help="items of a sample, of coverage and comparison")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if "probes" in options.only:
        cells = study_all(
            null_simulations=options.simulations,
            power_simulations=options.power_simulations,
            seed=options.seed,
            report=lambda line: print(line, flush=True),
        )
        for path in save(cells, folder=options.out, seed=options.seed):
            print(path)
    for name in ("coverage", "comparison"):
        if name in options.only:
            print(
                measure(name, out=options.out, sizes=options.sizes, simulations=options.simulations, seed=options.seed)
            )


if __name__ == "__main__":
    main()
