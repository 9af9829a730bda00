"""vjudge: a research workbench for vision-language models as judges.

    import vjudge as vj

    items = vj.load_collection("scenes", split="test")
    judge = vj.load_judge("tiny")
    run = judge.grade(items, out="outputs/tiny")
    vj.correlate(run["score"], run["gold"])

Importing the package loads neither torch nor pandas: a name brings its module when first used.
"""

from __future__ import annotations

from pkgutil import iter_modules
from typing import TYPE_CHECKING

from vjudge.lazy import lazy_names

if TYPE_CHECKING:
    from vjudge.analysis import (
        Choices,
        Scores,
        align,
        available,
        choices,
        from_scores,
        inspect,
        load_verdicts,
        picture_controls,
        report,
        scores,
    )
    from vjudge.benchmarks.numbers import benchmark
    from vjudge.benchmarks.run import run_benchmark
    from vjudge.data import load_collection, truth
    from vjudge.judging.judge import Judge, JudgeLike, plan
    from vjudge.judging.loading import load_judge, load_run
    from vjudge.judging.panel import combine_samples, panel
    from vjudge.judging.paths import run_folder
    from vjudge.metrics import bradley_terry, compare_judges, correlate, win_rate
    from vjudge.metrics.agreement import agreement
    from vjudge.records import Criterion, Item, Pair, Rubric
    from vjudge.results import NotComputed, Result, settings

__version__ = "0.2.0"
__all__ = [
    "Choices", "Criterion", "Item", "Judge", "JudgeLike", "NotComputed", "Pair", "Result",
    "Rubric", "Scores", "__version__", "agreement", "align", "available", "benchmark",
    "bradley_terry", "choices", "combine_samples", "compare_judges", "correlate", "from_scores",
    "inspect", "load_collection", "load_judge", "load_run", "load_verdicts", "panel",
    "picture_controls", "plan", "report", "run_benchmark", "run_folder", "scores", "settings",
    "truth", "win_rate",
]  # fmt: skip

_NAMES = {
    "analysis": "Choices Scores align available choices from_scores inspect load_verdicts"
    " picture_controls report scores",
    "benchmarks": "benchmark run_benchmark",
    "data": "load_collection truth",
    "judging.judge": "Judge JudgeLike plan",
    "judging.loading": "load_judge load_run",
    "judging.panel": "combine_samples panel",
    "judging.paths": "run_folder",
    "metrics": "agreement bradley_terry compare_judges correlate win_rate",
    "records": "Criterion Item Pair Rubric",
    "results": "NotComputed Result settings",
}
_ROOMS = frozenset(room.name for room in iter_modules(__path__))
__getattr__, *_ = lazy_names(__name__, _NAMES, _ROOMS)  # `__all__` is for type checkers


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
