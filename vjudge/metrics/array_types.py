"""Types of the arrays, columns and functions that statistics take and return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
# How often each cell of the sample occurs in each replicate, shape (cells, replicates).
Weights = NDArray[np.number]
# Weights (cells, replicates) -> values (..., replicates).
Statistic = Callable[[Weights], Floats]

# One value per item: a score, a group, a verdict.
Column: TypeAlias = Sequence[Any] | np.ndarray | pd.Series
# Human ratings, items by raters: a frame, a 2-D array, or one list of ratings per item.
Ratings: TypeAlias = pd.DataFrame | np.ndarray | Sequence | pd.Series
# The group of each item (its image, its question), or two of a crossed design: [image, system].
Groups: TypeAlias = Column | Sequence[Column] | pd.DataFrame | None
