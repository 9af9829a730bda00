"""How far a judge's scores agree with the truth: correlation with an interval.

Arrays and frames in, frames out. A pair with a missing score is left out and counted; what is undefined is NaN with a
warning, never 0.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from vjudge import resampling


def correlate(
    x: Sequence[float] | np.ndarray | pd.Series,
    y: Sequence[float] | np.ndarray | pd.Series,
    *,
    groups: Sequence[Any] | np.ndarray | pd.Series | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Correlate two scores of the same items, with bootstrap intervals.

    Args:
        x, y: scores of n items, in the same order; None and NaN are missing. Two Series must share their index.
        groups: the unit of resampling of each item, for example its image; items of one image are not independent, and
            drawing whole images keeps the interval honest about that. None resamples items.
        confidence: coverage of the intervals, in (0, 1).
        n_resamples: bootstrap replicates; 0 leaves the intervals NaN.
        seed: of the resampling.

    Returns:
        A frame with rows pearson, spearman (midranks) and kendall (tau-b), and columns estimate, low and high in
        [-1, 1], n (pairs used) and missing (pairs left out). NaN, with a warning, where a statistic is undefined: fewer
        than three pairs, a constant score, fewer than two groups. `attrs` has the method in words for a caption,
        confidence, n_resamples, seed, n_groups, missing_x, missing_y, and undefined_resamples: for each statistic, the
        share of replicates in which it did not exist, which the interval leaves out.

    Raises:
        TypeError: a score is not a number; every such position is named.
        ValueError: lengths or indexes differ, a score is infinite, a used pair has no group, or an option is off range.

    Source: `vjudge.resampling.interval` for the intervals (BCa).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    if n_resamples < 0:
        raise ValueError(f"n_resamples must not be negative, not {n_resamples}")
    _same_index(x=x, y=y, groups=groups)
    a, b = _scores(x, name="x"), _scores(y, name="y")
    if len(a) != len(b):
        raise ValueError(f"x has {len(a)} scores and y has {len(b)}: give one of each per item")
    used = ~(np.isnan(a) | np.isnan(b))
    codes = None if groups is None else _group_codes(groups, used)

    n = int(used.sum())
    units = n if codes is None else len(np.unique(codes))
    table = pd.DataFrame(
        {"estimate": np.nan, "low": np.nan, "high": np.nan, "n": n, "missing": len(a) - n},
        index=pd.Index(resampling.STATISTICS, name="statistic"),
    )
    undefined = np.full(len(table), np.nan)
    why = _undefined(a[used], b[used])
    if why:
        warnings.warn(f"correlation is undefined: {why}", stacklevel=2)
    else:
        pairs = resampling.Table.of(a[used], b[used])
        table["estimate"] = resampling.correlations(pairs, pairs.counts[:, None])[:, 0]
        if units < 2:
            warnings.warn("intervals are undefined: all pairs belong to one group", stacklevel=2)
        elif n_resamples:
            bounds, undefined = resampling.interval(
                pairs, groups=codes, confidence=confidence, n_resamples=n_resamples, seed=seed
            )
            table[["low", "high"]] = bounds
            if (bounds[:, 0] == bounds[:, 1]).any():
                warnings.warn(
                    "an interval has no width: every resample agrees perfectly, which says nothing beyond these items",
                    stacklevel=2,
                )
            if undefined.max() > 0.01:
                warnings.warn(
                    f"a score is constant in {undefined.max():.0%} of the resamples: the intervals leave those out and "
                    "are too narrow",
                    stacklevel=2,
                )
    unit = f"{n} items" if codes is None else f"{units} groups of {n} items"
    table.attrs = {
        "method": f"{confidence:.0%} BCa bootstrap intervals, {n_resamples:,} resamples of {unit}, seed {seed}",
        "confidence": confidence,
        "n_resamples": n_resamples,
        "seed": seed,
        "n_groups": None if codes is None else units,
        "missing_x": int(np.isnan(a).sum()),
        "missing_y": int(np.isnan(b).sum()),
        "undefined_resamples": dict(zip(resampling.STATISTICS, undefined.tolist(), strict=True)),
    }
    return table


def _undefined(x: np.ndarray, y: np.ndarray) -> str | None:
    if len(x) < 3:
        return f"{len(x)} complete pairs, at least 3 are needed"
    constant = [name for name, values in (("x", x), ("y", y)) if (values == values[0]).all()]
    return f"{' and '.join(constant)} constant" if constant else None


def _same_index(**columns: Any) -> None:
    """Series are aligned by position, so refuse those whose labels say otherwise."""
    series = {name: column for name, column in columns.items() if isinstance(column, pd.Series)}
    names = list(series)
    for name in names[1:]:
        if not series[name].index.equals(series[names[0]].index):
            raise ValueError(
                f"{names[0]} and {name} have different indexes: align them first, or pass .to_numpy() if their "
                "order is the same"
            )


def _scores(values: Any, *, name: str) -> np.ndarray:
    """Scores as float64 with NaN for missing; anything but numbers is refused, position by position."""
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"{name} must be a sequence of numbers, not {type(values).__name__}")
    if getattr(values, "ndim", 1) != 1:
        raise ValueError(f"{name} must have one dimension, not {values.ndim}")
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        scores = np.asarray(values, dtype=float)
    else:
        cells = list(values)
        missing = [cell is None or cell is pd.NA for cell in cells]
        bad = [i for i, cell in enumerate(cells) if not missing[i] and not _is_number(cell)]
        if bad:
            raise TypeError(
                f"{name} has values that are not numbers: {_listed(bad, cells)}; convert them or set them to NaN"
            )
        scores = np.array([math.nan if gone else float(cell) for cell, gone in zip(cells, missing, strict=True)])
    infinite = np.flatnonzero(np.isinf(scores))
    if len(infinite):
        raise ValueError(
            f"{name} has infinite values: {_listed(infinite.tolist(), scores)}; set them to NaN if missing"
        )
    return scores


def _is_number(cell: Any) -> bool:
    return isinstance(cell, numbers.Real) and not isinstance(cell, bool | np.bool_)


def _group_codes(groups: Any, used: np.ndarray) -> np.ndarray:
    labels = list(groups)
    if len(labels) != len(used):
        raise ValueError(f"groups has {len(labels)} labels for {len(used)} items: give one per item")
    codes = pd.factorize(pd.Series(labels, dtype=object))[0]
    bad = np.flatnonzero(used & (codes < 0)).tolist()
    if bad:
        raise ValueError(f"groups are missing for scored items: {_listed(bad, labels)}; name them or pass groups=None")
    return np.asarray(pd.factorize(codes[used])[0], dtype=np.int64)


def _listed(positions: list[int], values: Any, *, most: int = 20) -> str:
    shown = ", ".join(f"position {i}: {values[i]!r}" for i in positions[:most])
    return shown + (f" and {len(positions) - most} more" if len(positions) > most else "")
