"""Compile what results saved, in a one-column and a two-column article, and say what breaks.

PYTHONPATH=tools python -m latex figures --out outputs/latex
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from latex import ARTICLES, compile_folder


def main() -> None:
    """Compile one folder; the status is 1 where a file overflows or breaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("figures"))
    parser.add_argument("--out", type=Path, default=Path("outputs/latex"))
    options = parser.parse_args()
    try:
        faults = compile_folder(options.folder, options.out)
    except FileNotFoundError as error:
        sys.exit(str(error))
    for row in faults.itertuples():
        print(f"{row.article} {row.file}: {row.kind}: {row.message[:200]}")
    print(f"{len(faults)} faults; pages: {', '.join(f'{options.out}/{v}.pdf' for v in ARTICLES)}")
    sys.exit(1 if len(faults) else 0)


main()
