"""Estimates with intervals that hold when rows share an image: coefficients, shares, rank correlations, log-odds.

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
from scipy import special, stats

Floats = NDArray[np.float64]
NAN = float("nan")


class Estimate(NamedTuple):
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

    def within(self, lowest: float, highest: float = math.inf) -> Estimate:
        """The same with its interval cut at the ends of what can be; NaN stays NaN."""
        low, high = (float(np.clip(bound, lowest, highest)) for bound in (self.low, self.high))
        return self._replace(low=low, high=high)


def codes_of(groups: Any) -> NDArray[np.int64]:
    """Codes 0..G-1 of group labels."""
    return np.asarray(pd.factorize(np.asarray(groups, dtype=object))[0], dtype=np.int64)


def coefficient(y: Floats, design: Floats, groups: Any, *, confidence: float = 0.95) -> Estimate:
    """The first column's least-squares coefficient, its interval and p robust to groups of dependent rows.

    Args:
        y: response, shape (n,).
        design: regressors, shape (n, k) or (n,); a mean is the coefficient of a column of ones.
        groups: label of each row's group, shape (n,).
        confidence: of the interval, in (0, 1).

    Returns:
        The coefficient. NaN with a warning where it is undefined: fewer than two groups, or a first column that the
        others determine. Where no group's removal changes the coefficient, the interval has no width; p is then 1 for
        a coefficient of zero, else that of the sign test over groups.

    Source: the leave-one-cluster-out jackknife (CV3J) of MacKinnon, Nielsen and Webb, Journal of Econometrics 232
    (2023), with G - 1 degrees of freedom; for groups of one row it is the jackknife of MacKinnon and White (1985).
    """
    y, x = np.asarray(y, dtype=float), np.asarray(design, dtype=float)
    x = x[:, None] if x.ndim == 1 else x
    code = codes_of(groups)
    n, n_groups = len(y), int(code.max(initial=-1)) + 1
    nothing = Estimate(NAN, NAN, NAN, NAN, n, n_groups)
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
    square = np.add.reduceat(xs[:, :, None] * xs[:, None, :], starts, axis=0)
    cross = np.add.reduceat(xs * ys[:, None], starts, axis=0)
    whole, right = square.sum(axis=0), cross.sum(axis=0)
    effect = float((np.linalg.pinv(whole, hermitian=True) @ right)[0])
    left_out = _solutions(whole - square, right - cross, whole)
    return _from_jackknife(effect, left_out, n, confidence)


def _solutions(square: Floats, right: Floats, whole: Floats) -> Floats:
    """The first coefficient of each group-deleted fit; a column that a deletion empties drops out of its fit."""
    diagonal = np.diagonal(square, axis1=1, axis2=2)
    thin = (diagonal <= 1e-9 * np.diagonal(whole)).any(axis=1)
    found = np.empty(len(square))
    try:
        found[~thin] = np.linalg.solve(square[~thin], right[~thin][..., None])[:, 0, 0]
    except np.linalg.LinAlgError:
        thin = np.ones(len(square), dtype=bool)
    if thin.any():
        found[thin] = (np.linalg.pinv(square[thin], rcond=1e-9, hermitian=True) @ right[thin][..., None])[:, 0, 0]
    return found


def _from_jackknife(effect: float, left_out: Floats, n: int, confidence: float) -> Estimate:
    n_groups = len(left_out)
    variance = (n_groups - 1) / n_groups * ((left_out - left_out.mean()) ** 2).sum()
    error = math.sqrt(variance)
    if error <= 1e-12 * max(1.0, abs(effect)):
        exact = abs(effect) <= 1e-12
        effect = 0.0 if exact else effect
        return Estimate(effect, effect, effect, 1.0 if exact else 2.0 ** (1 - n_groups), n, n_groups)
    reach = error * float(special.stdtrit(n_groups - 1, (1 + confidence) / 2))
    p = 2 * float(special.stdtr(n_groups - 1, -abs(effect) / error))
    return Estimate(effect, effect - reach, effect + reach, p, n, n_groups)


def mean(values: Floats, groups: Any, *, confidence: float = 0.95) -> Estimate:
    """The mean, its interval and p, robust to groups of dependent rows; see `coefficient`."""
    return coefficient(values, np.ones(len(values)), groups, confidence=confidence)


def share(flags: Any, groups: Any, *, confidence: float = 0.95) -> Estimate:
    """A share with Wilson's interval at the effective number of rows; p is NaN.

    Args:
        flags: true or false, shape (n,).
        groups, confidence: as in `coefficient`.

    Returns:
        The share. The effective number of rows is p (1 - p) over the jackknife variance, at most n; where all flags
        agree, the number of groups, so that the interval keeps a width.

    Source: Wilson, JASA 22 (1927); the effective sample size as in Korn and Graubard, Survey Methodology 24 (1998).
    """
    flags = np.asarray(flags, dtype=float)
    code = codes_of(groups)
    n, n_groups = len(flags), int(code.max(initial=-1)) + 1
    if n_groups < 2:
        warnings.warn(f"undefined: {n} rows in {n_groups} group(s), at least two groups are needed", stacklevel=3)
        return Estimate(NAN, NAN, NAN, NAN, n, n_groups)
    at = float(flags.mean())
    sums, sizes = np.bincount(code, flags), np.bincount(code)
    left_out = (flags.sum() - sums) / (n - sizes)
    variance = (n_groups - 1) / n_groups * ((left_out - left_out.mean()) ** 2).sum()
    effective = n_groups if variance <= 0 else min(n, at * (1 - at) / variance)
    t = float(special.stdtrit(n_groups - 1, (1 + confidence) / 2))
    centre = (at + t**2 / (2 * effective)) / (1 + t**2 / effective)
    reach = t * math.sqrt(at * (1 - at) / effective + t**2 / (4 * effective**2)) / (1 + t**2 / effective)
    return Estimate(at, min(at, max(0.0, centre - reach)), max(at, min(1.0, centre + reach)), NAN, n, n_groups)


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


def rank_correlation(x: Floats, y: Floats, held: Floats, groups: Any, *, confidence: float = 0.95) -> Estimate:
    """Spearman's correlation of x and y given the columns of `held`: a partial rank correlation.

    Midranks of both are regressed on `held`, and the residuals correlated. The standard error comes from the
    correlation's influence function summed within groups, on Fisher's z scale; the ranks are taken as given.

    Args:
        x, y: shape (n,). held: shape (n, k), with a constant among its columns' combinations.
        groups, confidence: as in `coefficient`.
    """
    code = codes_of(groups)
    n, n_groups = len(x), int(code.max(initial=-1)) + 1
    nothing = Estimate(NAN, NAN, NAN, NAN, n, n_groups)
    if n_groups < 2 or n <= held.shape[1] + 2:
        warnings.warn(f"undefined: {n} rows in {n_groups} group(s) are too few", stacklevel=3)
        return nothing
    residuals = []
    for values in (x, y):
        ranks = stats.rankdata(values)
        ranks = ranks - ranks.mean()
        residuals.append(ranks - held @ np.linalg.lstsq(held, ranks, rcond=None)[0])
    a, b = residuals
    spread = math.sqrt(float(a @ a) * float(b @ b))
    if min(np.abs(a).max(), np.abs(b).max()) < 1e-9 * n:
        warnings.warn("undefined: a variable is constant once the score is held equal", stacklevel=3)
        return nothing
    r = float(np.clip(a @ b / spread, -1, 1))
    a, b = a / math.sqrt(a @ a / n), b / math.sqrt(b @ b / n)
    influence = np.bincount(code, a * b - r * (a**2 + b**2) / 2)
    small = n_groups / (n_groups - 1) * (n - 1) / max(1, n - held.shape[1] - 1)
    error = math.sqrt(small * float(influence @ influence)) / n / max(1e-12, 1 - r**2)
    z, t = math.atanh(np.clip(r, -1 + 1e-12, 1 - 1e-12)), float(special.stdtrit(n_groups - 1, (1 + confidence) / 2))
    p = 2 * float(special.stdtr(n_groups - 1, -abs(z) / error)) if error > 0 else 1.0
    return Estimate(r, math.tanh(z - t * error), math.tanh(z + t * error), p, n, n_groups)


def log_odds(chosen: Floats, design: Floats, groups: Any, *, confidence: float = 0.95) -> tuple[Estimate, Floats]:
    """The first column's coefficient in a logistic regression, robust to groups, and all coefficients.

    Args:
        chosen: 1, 0, or 1/2 for a tie, shape (n,).
        design: shape (n, k).
        groups, confidence: as in `coefficient`.

    Returns:
        The coefficient in log-odds, and the k coefficients. NaN with a warning where the likelihood has no maximum
        (the columns separate the choices) or the design is singular.
    """
    x, y = np.asarray(design, dtype=float), np.asarray(chosen, dtype=float)
    code = codes_of(groups)
    n, n_groups = len(y), int(code.max(initial=-1)) + 1
    beta = np.zeros(x.shape[1])
    fine = n_groups > x.shape[1] and np.linalg.matrix_rank(x) == x.shape[1]
    for _ in range(50 if fine else 0):
        chance = special.expit(x @ beta)
        information = x.T @ (x * (chance * (1 - chance))[:, None])
        if np.linalg.cond(information) > 1e10:
            fine = False
            break
        step = np.linalg.solve(information, x.T @ (y - chance))
        beta = beta + step
        if np.abs(step).max() < 1e-10:
            break
    if not fine or np.abs(beta).max() > 30:
        warnings.warn(
            "undefined: too few groups, or the choices follow from length or preference exactly", stacklevel=3
        )
        return Estimate(NAN, NAN, NAN, NAN, n, n_groups), np.full(x.shape[1], NAN)
    chance = special.expit(x @ beta)
    weight = (chance * (1 - chance))[:, None]
    information = x.T @ (x * weight)
    scores = np.zeros((n_groups, x.shape[1]))
    squares = np.zeros((n_groups, x.shape[1], x.shape[1]))
    np.add.at(scores, code, x * (y - chance)[:, None])
    np.add.at(squares, code, x[:, :, None] * (x * weight)[:, None, :])
    # One Newton step from the whole fit without each group: the jackknife, to first order.
    left_out = beta[0] - np.linalg.solve(information - squares, scores[..., None])[:, 0, 0]
    return _from_jackknife(float(beta[0]), left_out, n, confidence), beta
