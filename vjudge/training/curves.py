"""A training's log as a table, and as a figure that updates while it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vjudge.training.running import LOG

if TYPE_CHECKING:
    import pandas as pd


def read_log(folder: str | Path) -> pd.DataFrame:
    """A training's log, a row for each entry.

    Args:
        folder: the training's `out`, or its log file.

    Returns:
        step, seconds, and of losses examples, loss, grad_norm, learning_rate, epoch, skipped; of evaluations pearson
        with low and high (95 %), parsed (share of readable verdicts), n. What an entry lacks is NaN.
    """
    import pandas as pd

    file = Path(folder)
    file = file / LOG if file.is_dir() else file
    return pd.DataFrame([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()])


def live_curve() -> Callable[[dict[str, Any]], None]:
    """What `fine_tune(on_log=...)` takes in a notebook: a figure under the cell that is drawn anew with every entry."""
    import pandas as pd
    from IPython.display import display

    from vjudge.plots import training_curve

    entries: list[dict[str, Any]] = []
    handle: Any = None

    def show(entry: dict[str, Any]) -> None:
        nonlocal handle
        entries.append(entry)
        figure = training_curve(pd.DataFrame(entries))
        if handle is None:
            handle = display(figure, display_id=True)
        else:
            handle.update(figure)

    return show
