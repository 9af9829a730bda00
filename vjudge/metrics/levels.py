"""Choose the levels of a scale for figures and tables of counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd


def score_levels(*columns: pd.Series, scale: Sequence[float] | None = None) -> np.ndarray:
    """Choose at most 11 evenly spaced levels that cover the scores, and the scale.

    Args:
        columns: scores; missing ones are skipped.
        scale: the rubric's scores (`data.levels`). None takes 1 to 5, or 0 to 1 if all scores lie
            in [0, 1].

    Returns:
        The levels in ascending order.

    >>> score_levels(pd.Series([1, 2.5, 5])).tolist(), score_levels(pd.Series([3, 85]))[:3].tolist()
    ([1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 10.0, 20.0])
    """
    from matplotlib.ticker import MaxNLocator  # only where a figure is drawn

    numbers = pd.concat(columns).dropna().astype(float)
    values = [*numbers, *(scale or (1, 5))]
    if scale is None and numbers.between(0, 1).all():
        values = [0, 1]
    # Levels are whole numbers, unless the scores are shares.
    is_integer = max(values) > 1 or (numbers % 1 == 0).all()
    locator = MaxNLocator(10, steps=[1, 2, 5, 10], integer=is_integer)
    return np.array(locator.tick_values(min(values), max(values)))


def nearest_level(values: pd.Series, levels: np.ndarray) -> pd.Series:
    """Round each value to its nearest level; halfway between two, to the upper one.

    Args:
        values: numbers; NaN where missing.
        levels: in ascending order, shape (levels,).

    Returns:
        A level per value, NaN where it is missing.

    >>> nearest_level(pd.Series([1.5, 4.9, None]), np.array([1, 2, 5])).tolist()
    [2.0, 5.0, nan]
    """
    middles = (levels[1:] + levels[:-1]) / 2
    edges = [-np.inf, *middles, np.inf]
    return pd.cut(values, edges, right=False, labels=levels).astype(float)
