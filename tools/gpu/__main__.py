"""Run all parts and write `gpu.csv` and `gpu.md`: `PYTHONPATH=tools:tests python -m gpu --out outputs/gpu`.

Each part has its time and all have eight minutes; a part that fails or takes too long is a line of the table, which is
written after each. `--small` runs them on a CPU in seconds, on small weights. No hub is read.
"""

from __future__ import annotations

import argparse
import os
import signal
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

import pandas as pd

BUDGET = 480.0  # seconds in all


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """TimeoutError in the block after so many seconds."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"stopped after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(
    parts: Mapping[str, Any], bench: Any, *, budget: float = BUDGET, patience: float = 1.0
) -> Iterator[tuple]:
    """The lines (part, what, how much) of all parts, each within its time, so many times."""
    end = monotonic() + budget
    for name, part in parts.items():
        missing = [package for package in part.needs if find_spec(package) is None]
        if missing:
            yield name, "not run", f"{', '.join(missing)} not installed"
            continue
        start = monotonic()
        if start >= end:
            yield name, "not run", f"{budget:g} s were over"
            continue
        try:
            with at_most(min(part.seconds * patience, end - start)):
                for what, measured in part.run(bench):
                    yield name, what, measured
        except Exception as error:  # of any kind: the parts after it are measured
            yield name, "failed", f"{type(error).__name__}: {str(error)[:300]}"
        yield name, "seconds", monotonic() - start


def write(lines: list[tuple], folder: Path) -> str:
    """The table as CSV and as Markdown, which is returned."""
    import torch
    import transformers

    pd.DataFrame(lines, columns=["part", "what", "measured"]).to_csv(folder / "gpu.csv")
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, small weights"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    page = f"{card}; {versions}; {pd.Timestamp.now():%Y-%m-%d}\n\n| Part | What | Measured |\n|---|---|---:|\n"
    for name, what, measured in lines:
        shown = f"{measured:.3g}" if isinstance(measured, float) else str(measured)
        page += f"| {name} | {what} | {' '.join(shown.replace('|', '/').split())} |\n"
    (folder / "gpu.md").write_text(page, encoding="utf-8")
    return page


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("outputs/gpu"))
    parser.add_argument("--small", action="store_true")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    if not chosen.small:
        os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    from gpu.parts import PARTS, Bench

    warnings.filterwarnings("ignore", module="vjudge")
    lines: list[tuple] = []
    patience = 30 if chosen.small else 1  # a CPU may be busy
    bench = Bench(chosen.out, chosen.small)
    for line in run(PARTS, bench, budget=BUDGET * patience, patience=patience):
        lines.append(line)
        page = write(lines, chosen.out)
    print(page)


if __name__ == "__main__":
    main()
