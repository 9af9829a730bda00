"""The levels of a scale as a figure or a table of counts shows them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd


def score_levels(*columns: pd.Series, scale: Sequence[float] | None = None) -> np.ndarray:
    """At most 11 levels that reach over these scores, and over the scale.

    scale: the rubric's scores (`data.levels`); None takes 1 to 5, of shares 0 to 1.

    >>> score_levels(pd.Series([1, 2.5, 5])).tolist(), score_levels(pd.Series([3, 85]))[:3].tolist()
    ([1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 10.0, 20.0])
    """
    from matplotlib.ticker import MaxNLocator  # only where a figure is drawn

    numbers = pd.concat(columns).dropna().astype(float)
    values = [*numbers, *(scale or (1, 5))]
    if scale is None and numbers.between(0, 1).all():
        values = [0, 1]
    integers = max(values) > 1 or (numbers % 1 == 0).all()
    ticks = MaxNLocator(10, steps=[1, 2, 5, 10], integer=integers)
    return np.array(ticks.tick_values(min(values), max(values)))


def nearest_level(values: pd.Series, levels: np.ndarray) -> pd.Series:
    """The level that is nearest to each value, of two the upper one; NaN where it is missing."""
    middles = (levels[1:] + levels[:-1]) / 2
    edges = [-np.inf, *middles, np.inf]
    return pd.cut(values, edges, right=False, labels=levels).astype(float)
