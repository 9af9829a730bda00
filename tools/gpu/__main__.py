"""Run all parts and write `gpu.csv` and `gpu.md`: `PYTHONPATH=tools:tests python -m gpu --out outputs/gpu`.

The parts run in a process of their own, which is stopped, and begun anew behind it, where one takes too long or
brings it down. `--small` runs them here, on a CPU, in seconds, on small weights. No hub is read.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import warnings
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

BUDGET = 480.0  # seconds in all
Line = tuple[str, str, Any]  # part, what, how much


def measure(names: list[str], folder: Path, send: Callable[[Line], None], *, small: bool) -> None:
    """Run parts one after another; each ends with a line whose `what` is "seconds"."""
    from gpu.parts import PARTS, Bench

    bench = Bench(folder, small)
    warnings.filterwarnings("ignore", module="vjudge")
    for name in names:
        start = monotonic()
        for what, value in PARTS[name].measure(bench):
            send((name, what, value))
        send((name, "seconds", monotonic() - start))


def in_child(names: list[str], folder: Path, pipe: Connection) -> None:
    measure(names, folder, pipe.send, small=False)


def watch(
    child: Callable[[list[str], Path, Connection], None],
    budgets: Mapping[str, float],
    folder: Path,
    *,
    total: float = BUDGET,
) -> list[Line]:
    """Run parts in a child, each within its seconds, and all within `total`."""
    lines: list[Line] = []
    waiting = list(budgets)
    context = multiprocessing.get_context("spawn")
    end = monotonic() + total
    while waiting and monotonic() < end:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=child, args=(waiting, folder, there))
        process.start()
        there.close()  # so that the end of the child is the end of the pipe
        while waiting:
            name = waiting[0]
            stop = min(end, monotonic() + budgets[name])
            try:
                line = ("", "", None)
                while line[:2] != (name, "seconds"):
                    if not here.poll(max(0.0, stop - monotonic())):
                        raise TimeoutError(f"stopped after {budgets[name]:g} s, or at the end")
                    line = here.recv()
                    lines.append(line)
            except (TimeoutError, EOFError) as error:
                lines.append((name, "failed", str(error) or "the process ended"))
                process.kill()
                waiting.pop(0)
                break
            waiting.pop(0)
        process.join()
    return lines + [(name, "not run", f"{total:.0f} s were over") for name in waiting]


def write(lines: list[Line], folder: Path) -> str:
    """The table as CSV and as Markdown, which is returned."""
    import pandas as pd
    import torch
    import transformers

    table = pd.DataFrame(lines, columns=["part", "what", "measured"])
    table.to_csv(folder / "gpu.csv", index=False)
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, small weights"
    page = [f"{card}; torch {torch.__version__}, transformers {transformers.__version__};"]
    page[0] += f" {pd.Timestamp.now():%Y-%m-%d}"
    page += ["", "| Part | What | Measured |", "|---|---|---:|"]
    for part, what, value in lines:
        shown = f"{value:.3g}" if isinstance(value, float) else str(value).replace("|", "/")
        page.append(f"| {part} | {what} | {' '.join(shown.split())} |")
    text = "\n".join(page) + "\n"
    (folder / "gpu.md").write_text(text, encoding="utf-8")
    return text


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("outputs/gpu"))
    parser.add_argument("--small", action="store_true")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    if not chosen.small:  # for the child, in which vLLM is to stay
        os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    from gpu.parts import PARTS

    if chosen.small:
        lines: list[Line] = []
        measure(list(PARTS), chosen.out, lines.append, small=True)
    else:
        budgets = {name: part.seconds for name, part in PARTS.items()}
        lines = watch(in_child, budgets, chosen.out)
    print(write(lines, chosen.out))


if __name__ == "__main__":
    main()
