"""Benchmarks of judges: how each is run, and the number that its paper reports.

table = vj.run_benchmark(judge, "vl-rewardbench", out="outputs/vl")
table.attrs["official"], table.attrs["deviations"]

numbers.py     what each benchmark reports, and that number from a run: `benchmark`
protocols.py   how each is run: one `Protocol` a benchmark, and its own reader of answers
run.py         `run_benchmark`, its rows, and `audit` of a published number from its parts
"""

from vjudge.benchmarks.numbers import BENCHMARKS, Benchmark, benchmark
from vjudge.benchmarks.protocols import PROTOCOLS, Protocol
from vjudge.benchmarks.run import audit, reread, run_benchmark

__all__ = [
    "BENCHMARKS",
    "PROTOCOLS",
    "Benchmark",
    "Protocol",
    "audit",
    "benchmark",
    "reread",
    "run_benchmark",
]

__dir__ = __all__.copy
