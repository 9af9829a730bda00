"""vjudge: a research workbench for vision-language models as judges.

    import vjudge as vj

    items = vj.load_collection("scenes", split="test")
    judge = vj.load_judge("tiny")
    run = judge.grade(items, out="outputs/tiny")
    vj.correlate(run["score"], run["gold"])

Importing the package loads neither torch nor pandas: a name brings its module when first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vjudge.benchmarks import benchmark, run_benchmark
    from vjudge.data import load_collection, load_verdicts, truth
    from vjudge.judge import Judge, JudgeLike, load_judge, load_run, plan
    from vjudge.metrics import bradley_terry, compare_judges, correlate, win_rate
    from vjudge.metrics.agreement import agreement
    from vjudge.panels import combine_samples, panel
    from vjudge.records import Criterion, Item, Pair, Rubric
    from vjudge.reports import from_scores, report
    from vjudge.results import NotComputed, Result, settings

__version__ = "0.1.0"
__all__ = [
    "Criterion",
    "Item",
    "Judge",
    "Pair",
    "Rubric",
    "__version__",
    "agreement",
    "benchmark",
    "bradley_terry",
    "compare_judges",
    "correlate",
    "from_scores",
]
__all__ += ["load_collection", "load_judge", "load_verdicts", "panel", "plan", "report", "truth"]
__all__ += ["run_benchmark", "win_rate", "NotComputed", "Result", "settings"]
__all__ += ["JudgeLike", "combine_samples", "load_run"]

_HOMES = dict.fromkeys(__all__, "metrics") | dict.fromkeys(("from_scores", "report"), "reports")
_HOMES |= dict.fromkeys(("benchmark", "run_benchmark"), "benchmarks")
_HOMES |= dict.fromkeys(("load_collection", "load_verdicts", "truth"), "data")
_HOMES |= dict.fromkeys(("Judge", "JudgeLike", "load_judge", "load_run", "plan"), "judge")
_HOMES |= dict.fromkeys(("combine_samples", "panel"), "panels")
_HOMES |= dict.fromkeys(("Criterion", "Item", "Pair", "Rubric"), "records")
_HOMES |= dict.fromkeys(("NotComputed", "Result", "settings"), "results")
_ROOMS = {room.name for room in iter_modules(__path__)}


def lazy(room: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A room's `__getattr__`: a public name brings the module that has it."""

    def bring(name: str) -> Any:
        if name in homes:
            return getattr(import_module(f"{room}.{homes[name]}"), name)
        if name in _ROOMS and room == __name__:
            return import_module(f"{room}.{name}")
        raise AttributeError(f"module {room!r} has no attribute {name!r}")

    return bring


__getattr__ = lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    inner = {"asking", "comparing", "grading", "judge", "panels"}  # of no use to a notebook
    return sorted({*__all__, *_ROOMS} - inner)
