"""Effects, and their intervals, which hold when rows share an image.

Coverage of the intervals was measured on simulated judges: figures/validity.csv.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from vjudge.benchmarks.measures import deviation_and_conformity
from vjudge.metrics.array_types import Column, Floats
from vjudge.metrics.caveats import warn
from vjudge.metrics.cells import indicator_matrix
from vjudge.metrics.columns import as_floats, check_columns
from vjudge.metrics.groups import group_codes
from vjudge.metrics.multiple_testing import ALPHA
from vjudge.records import NAN

UPPER_QUANTILE = 1 - ALPHA / 2  # the quantile at the upper end of a two-sided interval
NO_CHANGE = 1e-9  # differences below it are rounding
N_CLASSES = 10  # gold of more levels is held equal by so many classes of it


class Effect(NamedTuple):
    """An estimate with its 95 % interval.

    p is two-sided, of no effect; NaN where an effect of 0 is no sensible null hypothesis. n and
    groups are the numbers of rows and of independent groups that count.
    """

    effect: float = NAN
    low: float = NAN
    high: float = NAN
    p: float = NAN
    n: int = 0
    groups: int = 0


def coefficient(
    y: Column,
    design: Floats,
    groups: Column,
    *,
    error: Floats | None = None,
    step: float = 1.0,
) -> Effect:
    """Estimate the first column's least-squares coefficient, robust to groups of dependent rows.

    Args:
        y: responses, shape (n,).
        design: regressors, shape (n, k).
        groups: each row's group, shape (n,).
        error: the variance with which each row's last regressor was measured, shape (n,). It is
            taken out of the regressor's sum of squares, so that noise does not pass for an effect.
        step: the change of a score that is assumed possible where no change was seen.

    Returns:
        The effect, with the interval of Student's t. Where no group's removal changes the
        coefficient, the interval is that of `_unseen_reach`. The effect is NaN, with a warning,
        where it is not determined.

    Source: the leave-one-cluster-out jackknife (CV3J) of MacKinnon, Nielsen and Webb, Journal of
    Econometrics 232 (2023), with Student's t on G - 1 degrees of freedom; noise: Fuller,
    Measurement Error Models (1987), section 2.2.
    """
    y = np.asarray(y, dtype=float)
    x = np.asarray(design, dtype=float)
    n = len(y)
    codes = group_codes(groups, np.full(n, True))  # (n,), 0 to G - 1
    n_groups = len(np.unique(codes))
    undefined = Effect(n=n, groups=n_groups)
    if n_groups < 2:
        warn(f"undefined: {n} rows, and not two groups of them")
        return undefined
    # the first regressor's residual on the other regressors decides its coefficient
    controls = x[:, 1:]
    fit = np.linalg.lstsq(controls, x[:, 0], rcond=None)[0]
    residual = x[:, 0] - controls @ fit
    if np.abs(residual).max() < NO_CHANGE:
        warn("undefined: what is measured does not vary once the rest is held equal")
        return undefined

    # 1) both sides of the normal equations, X'X b = X'y, of each group and of all
    gram, moment = _normal_equations(x, y, codes, error)  # (G, k, k), (G, k)
    total_gram = gram.sum(axis=0)
    total_moment = moment.sum(axis=0)
    if error is not None and np.linalg.eigvalsh(total_gram)[0] <= 0:
        warn("undefined: what is held equal is nothing but noise")
        return undefined

    # 2) the coefficient with all groups, and without each one
    estimate = float(_first_coefficient(total_gram, total_moment))
    without = _first_coefficient(total_gram - gram, total_moment - moment)  # (G,)

    # 3) interval and p; the CV3J variance is G - 1 times that of the G coefficients
    df = n_groups - 1
    deviation = math.sqrt(df * without.var())
    if deviation > NO_CHANGE * max(1.0, abs(estimate)):
        reach = deviation * special.stdtrit(df, UPPER_QUANTILE)
        p = 2 * special.stdtr(df, -abs(estimate) / deviation)
    else:
        reach = _unseen_reach(residual, n_groups, step)
        # the sign test over groups: all G have the same sign with probability 2 * 2^-G
        p = 2.0**-df if abs(estimate) > NO_CHANGE else 1.0
    return Effect(estimate, estimate - reach, estimate + reach, p, n, n_groups)


def _normal_equations(
    x: Floats, y: Floats, codes: np.ndarray, error: Floats | None
) -> tuple[Floats, Floats]:
    """Sum X'X and X'y over each group: shapes (G, k, k) and (G, k).

    Where `error` (n,) is given, the variance of each row's measurement error in the last regressor,
    it is subtracted from that regressor's sum of squares.
    """
    products = x[:, :, None] * x[:, None, :]  # (n, k, k)
    if error is not None:
        products[:, -1, -1] -= error
    sum_by_group = indicator_matrix(codes)  # (G, n)
    gram = sum_by_group @ products.reshape(len(x), -1)  # (G, k * k)
    return gram.reshape(-1, *products.shape[1:]), sum_by_group @ (x * y[:, None])


def _first_coefficient(gram: Floats, moment: Floats) -> Floats:
    """Solve normal equations (..., k, k) and (..., k) for their first coefficient, shape (...).

    The pseudo-inverse leaves out a column that is zero, such as the level of one group alone.
    """
    inverse = np.linalg.pinv(gram, rcond=1e-9, hermitian=True)
    return np.asarray((inverse[..., 0, :] * moment).sum(axis=-1))


def _unseen_reach(residual: Floats, n_groups: int, step: float) -> float:
    """Bound a coefficient that no group's removal changes.

    Up to a share s = 1 - .025^(1/G) of groups may be different although none of G was: with 9
    groups s = .34. If their scores changed by `step` in the worst direction, the coefficient would
    change by s * step * mean |r| / mean r^2, where r is the residual (n,) of the first regressor.

    Source: Clopper and Pearson, Biometrika 26 (1934), for a share of which none was seen.
    """
    share = 1 - (1 - UPPER_QUANTILE) ** (1 / n_groups)
    return float(share * step * np.abs(residual).mean() / (residual**2).mean())


def mean(values: Column, groups: Column, *, step: float = 1.0) -> Effect:
    """Estimate the mean of values (n,), with interval and p as in `coefficient`."""
    return coefficient(values, np.ones((len(values), 1)), groups, step=step)


def slope(y: Column, x: Column, groups: Column, *, step: float = 1.0) -> Effect:
    """Estimate the slope of y on x, both (n,), with interval and p as in `coefficient`."""
    x = np.asarray(x, dtype=float)
    design = np.column_stack([x - x.mean(), np.ones(len(x))])
    return coefficient(y, design, groups, step=step)


def equal(values: Floats) -> Floats:
    """Make the regressors that hold values (n,) equal in a regression.

    Returns:
        One indicator column per distinct value if these are at most ten, else one per class of ten
        classes of about equal counts; and last the centred value itself, which varies within a
        class. Shape (n, k).
    """
    classes = pd.Series(values)
    if classes.nunique() > N_CLASSES:
        classes = pd.qcut(classes, N_CLASSES, duplicates="drop")
    indicators = pd.get_dummies(classes, dtype=float)
    return np.column_stack([indicators, values - values.mean()])


# --- the published measures of a bias


def bias_scores(
    before: Column,
    after: Column,
    *,
    lowest: Column | float = 1,
    highest: Column | float = 5,
    groups: Column | None = None,
) -> pd.DataFrame:
    """Compute bias deviation and bias conformity of scores before and after a change.

    Args:
        before, after: scores of n items, NaN where missing.
        lowest, highest: the ends of the scale, or those of each item's.
        groups: the group of each item; None where each is its own.

    Returns:
        Two rows, both in [0, 1]:

        - bias_deviation, how far scores fall that should fall: the mean of
          max(0, before - after) / (before - lowest) over items above the lowest score;
        - bias_conformity, how well scores stay that should stay: the mean of
          1 - |before - after| / max(before - lowest, highest - before).

        Columns estimate, low, high (95 %), n, missing.

    Raises:
        ValueError: scores beyond the scale, or columns of unequal length.

    Source: MM-JudgeBias (arXiv 2604.18164; github.com/naver-ai/MM-JudgeBias, metrics.py). Their
    scale starts at 1. Intervals are ours, as those of the other effects.

    >>> bias_scores([5, 4, 1], [3, 4, 2])["estimate"].round(2).to_dict()
    {'bias_deviation': 0.25, 'bias_conformity': 0.75}
    """
    check_columns(before=before, after=after, groups=groups)
    scores_before = as_floats(before, name="before")
    scores_after = as_floats(after, name="after")
    is_outside = (scores_after < lowest) | (scores_after > highest)
    is_outside |= (scores_before < lowest) | (scores_before > highest)
    if is_outside.any():
        raise ValueError(f"{int(is_outside.sum())} items have scores beyond lowest= and highest=")
    deviation, conformity = deviation_and_conformity(scores_before, scores_after, lowest, highest)
    missing = np.isnan(scores_before) | np.isnan(scores_after)
    rows = {}
    for name, values in (("bias_deviation", deviation), ("bias_conformity", conformity)):
        is_defined = ~np.isnan(values)
        effect = mean(values[is_defined], group_codes(groups, is_defined))
        low = np.clip(effect.low, 0, 1)
        high = np.clip(effect.high, 0, 1)
        rows[name] = [effect.effect, low, high, effect.n]
    columns = ["estimate", "low", "high", "n"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return table.assign(missing=missing.sum())
