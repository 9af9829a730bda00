"""Benchmarks of judges: how each is run, and the number that its paper reports.

    result = vj.run_benchmark(judge, "vl-rewardbench", out="outputs/vl")
    result.official, result.deviations, result.table

Files in reading order:

    protocols.py  how each benchmark is run, its own answer reader, and what it reports
    measures.py   the table of each kind of statistic, from a run
    numbers.py    `benchmark`: the number that a paper reports, from a run; `audit` of a number
    pairs.py      pairs of responses to one question, made of graded single responses
    rows.py       a benchmark's rows, as a judge takes them
    asking.py     one judge asked by one protocol, and how that deviates from the published way
    run.py        `run_benchmark`

A name brings its module when it is first used.
"""

from vjudge.lazy import lazy_names

_NAMES = {
    "protocols": "BENCHMARKS Benchmark Deviation PROTOCOLS Protocol protocol_table",
    "numbers": "BenchmarkResult audit benchmark",
    "asking": "reread viescore",
    "run": "run_benchmark",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _NAMES)
