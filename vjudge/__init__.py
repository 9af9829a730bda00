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
from typing import Any

__version__ = "0.1.0"
_HOMES = {
    "Criterion": "records",
    "Item": "records",
    "Judge": "judge",
    "Pair": "records",
    "Rubric": "records",
    "agreement": "metrics",
    "benchmark": "benchmarks",
    "bradley_terry": "metrics",
    "compare_judges": "metrics",
    "correlate": "metrics",
    "from_scores": "reports",
    "load_collection": "data",
    "load_judge": "judge",
    "load_verdicts": "data",
    "panel": "panels",
    "plan": "judge",
    "report": "reports",
    "run_benchmark": "benchmarks",
    "truth": "data",
    "win_rate": "metrics",
}
__all__ = [*_HOMES, "__version__"]
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
