"""vjudge: a research workbench for vision-language models as judges.

    import vjudge as vj

    items = vj.load_collection("scenes", split="test")
    judge = vj.load_judge("tiny")
    run = judge.grade(items, out="outputs/tiny")
    vj.correlate(run["score"], run["gold"])

Importing the package loads neither torch nor pandas: a name brings its module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Judge",
    "__version__",
    "agreement",
    "benchmark",
    "bradley_terry",
    "compare_judges",
    "correlate",
    "load_collection",
    "load_judge",
    "load_verdicts",
    "plan",
    "report",
    "truth",
    "win_rate",
]

_HOMES = {
    "Judge": "vjudge.judge",
    "agreement": "vjudge.metrics",
    "benchmark": "vjudge.official",
    "bradley_terry": "vjudge.metrics",
    "compare_judges": "vjudge.metrics",
    "correlate": "vjudge.metrics",
    "load_collection": "vjudge.data",
    "load_judge": "vjudge.judge",
    "load_verdicts": "vjudge.data",
    "plan": "vjudge.judge",
    "report": "vjudge.reports",
    "truth": "vjudge.data",
    "win_rate": "vjudge.metrics",
}
_MODULES = (
    "builder",
    "calls",
    "data",
    "engines",
    "images",
    "judge",
    "metrics",
    "models",
    "official",
    "photos",
    "plots",
    "preference",
    "probes",
    "prompts",
    "records",
    "reports",
    "review",
    "runs",
    "scenes",
    "table",
    "training",
)
_INNER = {"calls", "judge", "table"}  # importable, and of no use to a notebook

if TYPE_CHECKING:
    from vjudge.data import load_collection as load_collection
    from vjudge.data import load_verdicts as load_verdicts
    from vjudge.data import truth as truth
    from vjudge.judge import Judge as Judge
    from vjudge.judge import load_judge as load_judge
    from vjudge.judge import plan as plan
    from vjudge.metrics import agreement as agreement  # type: ignore[no-redef]
    from vjudge.metrics import bradley_terry as bradley_terry
    from vjudge.metrics import compare_judges as compare_judges
    from vjudge.metrics import correlate as correlate
    from vjudge.metrics import win_rate as win_rate
    from vjudge.official import benchmark as benchmark
    from vjudge.reports import report as report


def __getattr__(name: str) -> Any:
    """Bring a public name or a submodule on first use."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"vjudge.{name}")
    raise AttributeError(f"module 'vjudge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(set(_MODULES) - _INNER)})
