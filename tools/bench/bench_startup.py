"""How long one waits before anything happens: importing, loading the embedded judge. `make bench`."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

RUNS = 3


def seconds(code):
    """The median time of a statement in a new process, after what stands before the bar."""
    before, timed = code.split(" | ")
    script = f"{before}\nfrom time import perf_counter\nstart = perf_counter()\n{timed}\nprint(perf_counter() - start)"
    took = []
    for _ in range(RUNS):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        took.append(float(done.stdout.split()[-1]))
    return median(took)


def test_import(report):
    report.add("import vjudge", f"{seconds('pass | import vjudge'):.2f} s", "0.3 s")


def test_load_judge(report):
    libraries = seconds("import vjudge | import torch, transformers, vjudge.engines.hf")
    loading = seconds(
        'import vjudge, torch, transformers, vjudge.engines.hf | vjudge.load_judge("tiny")'
    )
    report.add("load_judge('tiny'): torch and transformers", f"{libraries:.1f} s")
    report.add("load_judge('tiny'): the judge itself", f"{loading:.1f} s")
