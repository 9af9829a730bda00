"""Published results, to show one's own beside them. Each number names its paper; none was measured here."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def results(paper: str, *, table: str | None = None, statistic: str | None = None) -> pd.DataFrame:
    """Return published results, one row a number.

    Args:
        paper: "prometheus-vision" or "llava-critic".
        table: "instruction following" (correlation with GPT-4V's scores) or "human evaluators" of the first;
            "pointwise" or "pairwise" of the second; all when None.
        statistic: such as "pearson"; all when None.

    Returns:
        Columns paper, table, evaluator, benchmark, truth (what was correlated with), statistic, value, source.

    Raises:
        ValueError: nothing is stored under these names; the error lists what is.
    """
    import pandas as pd

    with resources.files("vjudge").joinpath("assets", "published.csv").open(encoding="utf-8") as file:
        stored = pd.read_csv(file)
    found = stored
    for column, wanted in {"paper": paper, "table": table, "statistic": statistic}.items():
        if wanted is not None:
            if wanted not in set(found[column]):
                raise ValueError(f"{column} {wanted!r} is not stored; there is {sorted(set(found[column]))}")
            found = found[found[column] == wanted]
    return found.reset_index(drop=True)
