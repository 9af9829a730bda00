"""Effects with intervals that hold when rows share an image: means, slopes and shares.

Rows of one group (one image) are not independent, so the unit that varies is the group: each standard error is a
jackknife over groups (for linear models, close to CR3) with Student's t on one degree of freedom less than there
are groups. Why not a bootstrap: these statistics are smooth, the jackknife costs one small linear solve a group, and
`figures/validity.csv` shows what its intervals cover.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from vjudge.metrics._bootstrap import Floats
from vjudge.metrics._tables import shares

NAN = float("nan")
STEP = 1.0  # score points: what a score changes by if it changes at all, where nothing observed says how much


class Effect(NamedTuple):
    """A number with its interval and the test of zero.

    Args:
        effect: the estimate; low, high: its interval; p: two-sided, of a true value of zero, NaN where zero is no
            sensible null (a share of changed scores).
        n: rows used.
        groups: independent groups among them.
    """

    effect: float
    low: float
    high: float
    p: float
    n: int
    groups: int

    def within(self, lowest: float, highest: float = math.inf) -> Effect:
        """The same with its interval cut at the ends of what can be; NaN stays NaN."""
        low, high = (float(np.clip(bound, lowest, highest)) for bound in (self.low, self.high))
        return self._replace(low=low, high=high)


def codes_of(groups: Any) -> NDArray[np.int64]:
    """Codes 0..G-1 of group labels."""
    return np.asarray(pd.factorize(np.asarray(groups, dtype=object))[0], dtype=np.int64)


def coefficient(
    y: Floats, design: Floats, groups: Any, *, error: Floats | None = None, confidence: float = 0.95
) -> Effect:
    """The first column's least-squares coefficient, its interval and p robust to groups of dependent rows.

    Args:
        y: response, shape (n,).
        design: regressors, shape (n, k) or (n,); a mean is the coefficient of a column of ones.
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
    x = x[:, None] if x.ndim == 1 else x
    code = codes_of(groups)
    n, n_groups = len(y), int(code.max(initial=-1)) + 1
    nothing = Effect(NAN, NAN, NAN, NAN, n, n_groups)
    if n_groups < 2:
        warnings.warn(f"undefined: {n} rows in {n_groups} group(s), at least two groups are needed", stacklevel=3)
        return nothing
    x = x[:, [0, *(1 + np.flatnonzero(x[:, 1:].any(axis=0)))]]
    if np.linalg.matrix_rank(x) == (np.linalg.matrix_rank(x[:, 1:]) if x.shape[1] > 1 else 0):
        warnings.warn("undefined: what is measured does not vary once the rest is held equal", stacklevel=3)
        return nothing
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
        warnings.warn("undefined: what is held equal is nothing but noise", stacklevel=3)
        return nothing
    effect = float((np.linalg.pinv(whole, hermitian=True) @ right)[0])
    result = _from_jackknife(effect, _solutions(whole - square, right - cross, whole), n, confidence)
    return result if result.low < result.high else _stepped(result, x, confidence)


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


def _from_jackknife(effect: float, left_out: Floats, n: int, confidence: float) -> Effect:
    n_groups = len(left_out)
    variance = (n_groups - 1) / n_groups * ((left_out - left_out.mean()) ** 2).sum()
    error = math.sqrt(variance)
    if error <= 1e-12 * max(1.0, abs(effect)):
        exact = abs(effect) <= 1e-12
        effect = 0.0 if exact else effect
        return Effect(effect, effect, effect, 1.0 if exact else 2.0 ** (1 - n_groups), n, n_groups)
    reach = error * float(special.stdtrit(n_groups - 1, (1 + confidence) / 2))
    p = 2 * float(special.stdtr(n_groups - 1, -abs(effect) / error))
    return Effect(effect, effect - reach, effect + reach, p, n, n_groups)


def _stepped(effect: Effect, x: Floats, confidence: float) -> Effect:
    """An interval with a width where all groups agree: none of G differs, but a few of all there are may.

    Source: Clopper and Pearson, Biometrika 26 (1934): the upper bound of a share of which none of G was seen.
    """
    rest = x[:, 1:]
    alone = x[:, 0] - rest @ np.linalg.lstsq(rest, x[:, 0], rcond=None)[0] if rest.shape[1] else x[:, 0]
    share = 1 - ((1 - confidence) / 2) ** (1 / effect.groups)
    reach = STEP * share * np.abs(alone).mean() / (alone**2).mean()
    return effect._replace(low=effect.effect - reach, high=effect.effect + reach)


def mean(values: Floats, groups: Any, *, confidence: float = 0.95) -> Effect:
    """The mean, its interval and p, robust to groups of dependent rows; see `coefficient`."""
    return coefficient(values, np.ones(len(values)), groups, confidence=confidence)


def slope(y: Floats, x: Floats, groups: Any, *, confidence: float = 0.95) -> Effect:
    """The slope of y on x, its interval and p, robust to groups of dependent rows; see `coefficient`."""
    centred = x - x.sum() / max(1, len(x))
    return coefficient(y, np.column_stack([centred, np.ones(len(x))]), groups, confidence=confidence)


def share(flags: Any, groups: Any, *, confidence: float = 0.95) -> Effect:
    """A share of true flags with Wilson's interval at the effective number of rows; p is NaN. See `metrics.shares`."""
    flags, code = np.asarray(flags, dtype=float), codes_of(groups)
    table = shares([("share", flags, np.ones(len(flags)))], groups=code, confidence=confidence, unit="items")
    low, high = table["low"].iloc[0], table["high"].iloc[0]
    n_groups = int(code.max(initial=-1)) + 1
    at = float(table["estimate"].iloc[0]) if n_groups > 1 else NAN
    return Effect(at, float(low), float(high), NAN, len(flags), n_groups)


def equal(values: Floats, *, most: int = 10) -> Floats:
    """Columns that hold a score equal in a regression: one for each level of a short scale.

    Args:
        values: shape (n,), finite.
        most: more levels than this are cut into this many classes of equal counts, with the score itself beside them.
    """
    levels, code = np.unique(values, return_inverse=True)
    code = code.reshape(-1)
    if len(levels) <= most:
        return np.eye(len(levels))[code]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, most + 1)[1:-1]))
    classes = np.eye(len(edges) + 1)[np.searchsorted(edges, values, side="right")]
    return np.column_stack([classes, values - values.mean()])
