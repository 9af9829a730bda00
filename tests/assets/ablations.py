"""The ablations of `figures/ablations.csv`, on Scenes from the embedded base: `make ablations`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from vjudge.data import load_collection
from vjudge.training import ablate


def main() -> None:
    """Run them, or go on where they were cut off, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m assets.ablations", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the trainings")
    parser.add_argument("--save", type=Path, required=True, help="folder for ablations.csv")
    options = parser.parse_args()
    table = ablate(
        "tiny-base",
        partial(load_collection, "scenes", split="train", limit=15_000),
        test=partial(load_collection, "scenes", split="test", limit=600),
        out=options.out,
        n_rows=3_000,
        max_new_tokens=80,
        recipe="scenes",
        steps=300,
    )
    table.to_csv(options.save / "ablations.csv", float_format="%.4f")
    print(table.to_string(float_format="{:.3f}".format))


if __name__ == "__main__":
    main()
