"""Effects with intervals that hold when rows share an image: means, slopes and shares.

The unit that varies is the group (the image): each standard error is a jackknife over groups, with Student's t on one
degree of freedom less than there are groups. These statistics are smooth, so a bootstrap would bring nothing more;
`figures/validity.csv` shows what the intervals cover.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from vjudge.metrics._bootstrap import Floats
from vjudge.metrics._tables import shares

NAN = float("nan")
STEP = 1.0  # score points: what a score changes by if it changes at all, where nothing observed says how much


class Effect(NamedTuple):
    """A number with its interval, the two-sided p of a true value of 0 (NaN where 0 is no sensible null), and counts.

    Args:
        effect: the estimate; low, high: its interval.
        n: rows used; groups: independent groups among them.
    """

    effect: float
    low: float
    high: float
    p: float
    n: int
    groups: int


def coefficient(
    y: Floats, design: Floats, groups: Any, *, error: Floats | None = None, confidence: float = 0.95
) -> Effect:
    """The first column's least-squares coefficient, its interval and p robust to groups of dependent rows.

    Args:
        y: response, shape (n,).
        design: regressors, shape (n, k); a mean is the coefficient of a column of ones.
        groups: label of each row's group, shape (n,).
        error: the variance with which each row's last regressor was measured, shape (n,): its mean is taken out of that
            regressor's sum of squares, so that noise in it does not pass for an effect of the first. None: no noise.
        confidence: of the interval, in (0, 1).

    Returns:
        The coefficient. NaN with a warning where it is undefined: fewer than two groups, a first column that the
        others determine, or a last one that is nothing but noise. Where no group's removal changes the coefficient,
        the interval reaches as far as steps of one score point would take it, in as many groups as could have taken
        one without any of these showing it; p is then 1 for a coefficient of zero, else that of the sign test.

    Source: the leave-one-cluster-out jackknife (CV3J) of MacKinnon, Nielsen and Webb, Journal of Econometrics 232
    (2023), with G - 1 degrees of freedom; for groups of one row it is the jackknife of MacKinnon and White (1985). The
    correction for noise: Fuller, Measurement Error Models (1987), section 2.2.
    """
    y, x = np.asarray(y, dtype=float), np.asarray(design, dtype=float)
    code = _codes(groups)
    n, n_groups = len(y), int(code.max(initial=-1)) + 1
    rank = np.linalg.matrix_rank
    why = None
    if n_groups < 2:
        why = f"{n} rows in {n_groups} group(s), at least two groups are needed"
    else:
        x = x[:, [0, *(1 + np.flatnonzero(x[:, 1:].any(axis=0)))]]
        if rank(x) == (rank(x[:, 1:]) if x.shape[1] > 1 else 0):
            why = "what is measured does not vary once the rest is held equal"
    if why is None:
        order = np.argsort(code, kind="stable")
        starts = np.searchsorted(code[order], np.arange(n_groups))
        xs, ys = x[order], y[order]
        squares = xs[:, :, None] * xs[:, None, :]
        if error is not None:
            squares[:, -1, -1] -= error[order]
        square = np.add.reduceat(squares, starts, axis=0)
        cross = np.add.reduceat(xs * ys[:, None], starts, axis=0)
        whole, right = square.sum(axis=0), cross.sum(axis=0)
        if error is not None and np.linalg.eigvalsh(whole)[0] <= 0:
            why = "what is held equal is nothing but noise"
    if why is not None:
        warnings.warn(f"undefined: {why}", stacklevel=3)
        return Effect(NAN, NAN, NAN, NAN, n, n_groups)
    effect = float((np.linalg.pinv(whole, hermitian=True) @ right)[0])
    left_out = _solutions(whole - square, right - cross, whole)
    variance = (n_groups - 1) / n_groups * ((left_out - left_out.mean()) ** 2).sum()
    deviation = math.sqrt(variance)
    if deviation <= 1e-12 * max(1.0, abs(effect)):  # all groups agree: no spread to judge by
        effect, p = (0.0, 1.0) if abs(effect) <= 1e-12 else (effect, 2.0 ** (1 - n_groups))
        reach = _step(x, n_groups, confidence)
    else:
        reach = deviation * float(special.stdtrit(n_groups - 1, (1 + confidence) / 2))
        p = 2 * float(special.stdtr(n_groups - 1, -abs(effect) / deviation))
    return Effect(effect, effect - reach, effect + reach, p, n, n_groups)


def _codes(groups: Any) -> np.ndarray:
    return np.asarray(pd.factorize(np.asarray(groups, dtype=object))[0], dtype=np.int64)


def _solutions(square: Floats, right: Floats, whole: Floats) -> Floats:
    """The first coefficient of each group-deleted fit; a column that a deletion empties drops out of its fit."""
    diagonal = np.diagonal(square, axis1=1, axis2=2)
    thin = (diagonal <= 1e-9 * np.diagonal(whole)).any(axis=1)
    first = np.empty(len(square))
    try:
        first[~thin] = np.linalg.solve(square[~thin], right[~thin][..., None])[:, 0, 0]
    except np.linalg.LinAlgError:
        thin = np.ones(len(square), dtype=bool)
    if thin.any():
        first[thin] = (np.linalg.pinv(square[thin], rcond=1e-9, hermitian=True) @ right[thin][..., None])[:, 0, 0]
    return first


def _step(x: Floats, n_groups: int, confidence: float) -> float:
    """How far steps of one score point would move the coefficient where none of G groups differs, but a few may.

    Source: Clopper and Pearson, Biometrika 26 (1934): the upper bound of a share of which none of G was seen.
    """
    rest = x[:, 1:]
    alone = x[:, 0] - rest @ np.linalg.lstsq(rest, x[:, 0], rcond=None)[0] if rest.shape[1] else x[:, 0]
    share = 1 - ((1 - confidence) / 2) ** (1 / n_groups)
    return float(STEP * share * np.abs(alone).mean() / (alone**2).mean())


def mean(values: Floats, groups: Any, *, confidence: float = 0.95) -> Effect:
    """The mean, its interval and p, robust to groups of dependent rows; see `coefficient`."""
    return coefficient(values, np.ones((len(values), 1)), groups, confidence=confidence)


def slope(y: Floats, x: Floats, groups: Any, *, confidence: float = 0.95) -> Effect:
    """The slope of y on x, its interval and p, robust to groups of dependent rows; see `coefficient`."""
    centred = x - x.sum() / max(1, len(x))
    return coefficient(y, np.column_stack([centred, np.ones(len(x))]), groups, confidence=confidence)


def share(flags: Any, groups: Any, *, confidence: float = 0.95) -> Effect:
    """A share of true flags with Wilson's interval at the effective number of rows; p is NaN. See `metrics.shares`."""
    flags, code = np.asarray(flags, dtype=float), _codes(groups)
    row = shares([("share", flags, np.ones(len(flags)))], groups=code, confidence=confidence, unit="items").iloc[0]
    n_groups = int(code.max(initial=-1)) + 1
    at = float(row["estimate"]) if n_groups > 1 else NAN
    return Effect(at, float(row["low"]), float(row["high"]), NAN, len(flags), n_groups)


def equal(values: Floats, *, most: int = 10) -> Floats:
    """Columns that hold a score equal in a regression: one for each level of a short scale.

    Args:
        values: shape (n,), finite.
        most: more levels than this are cut into this many classes of equal counts, with the score itself beside them.
    """
    levels, code = np.unique(values, return_inverse=True)
    if len(levels) <= most:
        return np.eye(len(levels))[code.reshape(-1)]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, most + 1)[1:-1]))
    classes = np.eye(len(edges) + 1)[np.searchsorted(edges, values, side="right")]
    return np.column_stack([classes, values - values.mean()])
