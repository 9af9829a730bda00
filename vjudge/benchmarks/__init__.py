"""Benchmarks of judges: how each is run, and the number that its paper reports.

result = vj.run_benchmark(judge, "vl-rewardbench", out="outputs/vl")
result.official, result.deviations, result.table

pairs.py       pairs of responses to one question, of graded single ones
pictures.py    rows of benchmarks of pictures, and VIEScore's grading by two wordings
numbers.py     what each benchmark reports, and that number from a run: `benchmark`
protocols.py   how each is run: one `Protocol` a benchmark, and its own reader of answers
run.py         `run_benchmark`, its rows, and `audit` of a published number from its parts
"""

from vjudge.benchmarks.numbers import (
    BENCHMARKS,
    Benchmark,
    BenchmarkResult,
    Deviation,
    benchmark,
)
from vjudge.benchmarks.pictures import viescore
from vjudge.benchmarks.protocols import PROTOCOLS, Protocol
from vjudge.benchmarks.run import audit, protocol_table, reread, run_benchmark

__all__ = [
    "BENCHMARKS",
    "PROTOCOLS",
    "Benchmark",
    "BenchmarkResult",
    "Deviation",
    "Protocol",
    "audit",
    "benchmark",
    "protocol_table",
    "reread",
    "run_benchmark",
    "viescore",
]

__dir__ = __all__.copy
