"""Effects with intervals that hold when rows share an image, and the verdict on each.

"Moves" needs a p value below .05 after Holm's correction over all tests of the table, so that one
honest judge in twenty at most is accused of anything. "Stays" needs the whole interval inside a
stated margin: that no effect was shown does not show that there is none. Coverage and false alarms
were measured on simulated judges: figures/validity.csv.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from vjudge.metrics.array_types import Column, Floats
from vjudge.metrics.caveats import warn
from vjudge.metrics.cells import indicator_matrix
from vjudge.metrics.columns import as_floats, check_columns
from vjudge.metrics.groups import group_codes
from vjudge.metrics.multiple_testing import ALPHA, holm
from vjudge.records import NAN, is_missing

Must = Literal["move", "stay"]
TAIL = 1 - ALPHA / 2
NO_CHANGE = 1e-9  # what is smaller is rounding


class Effect(NamedTuple):
    """An estimate, its 95 % interval, the two-sided p of no effect, rows and groups used.

    p is NaN where 0 is no sensible null.
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

    Where no group's removal changes the coefficient, its interval reaches as far as steps of `step`
    points would take it in as many groups as could have made one unseen; p is then 1 for a
    coefficient of zero, else that of the sign test.

    Args:
        y: responses, shape (n,).
        design: regressors, shape (n, k).
        groups: each row's group.
        error: the variance (n,) with which each row's last regressor was measured. It is taken out
            of the regressor's sum of squares, so that noise does not pass for an effect.
        step: the change of a score that is reckoned with where none was seen.

    Returns:
        The effect; NaN with a warning where it is not determined.

    Source: the leave-one-cluster-out jackknife (CV3J) of MacKinnon, Nielsen and Webb, Journal of
    Econometrics 232 (2023), with Student's t on G - 1 degrees of freedom; noise: Fuller,
    Measurement Error Models (1987), section 2.2; a share of which none of G was seen: Clopper and
    Pearson, Biometrika 26 (1934).
    """
    y = np.asarray(y, dtype=float)
    x = np.asarray(design, dtype=float)
    n = len(y)
    code = group_codes(groups, np.full(n, True))
    n_groups = len(np.unique(code))
    undefined = Effect(n=n, groups=n_groups)
    if n_groups < 2:
        warn(f"undefined: {n} rows, and not two groups of them")
        return undefined
    regressor = x[:, 0]
    controls = x[:, 1:]
    fit = np.linalg.lstsq(controls, regressor, rcond=None)[0]
    residual = regressor - controls @ fit
    variation = np.abs(residual)
    if variation.max() < 1e-9:
        warn("undefined: what is measured does not vary once the rest is held equal")
        return undefined

    # 1) sums of squares and products of each group, and in all
    squares = x[:, :, None] * x[:, None, :]
    if error is not None:
        squares[:, -1, -1] -= error
    products = x * y[:, None]
    sums = indicator_matrix(code)  # a matrix that sums rows by group
    square = sums @ squares.reshape(n, -1)
    square = square.reshape(n_groups, *squares.shape[1:])
    cross = sums @ products
    square_of_all = square.sum(axis=0)
    cross_of_all = cross.sum(axis=0)
    if error is not None and np.linalg.eigvalsh(square_of_all)[0] <= 0:
        warn("undefined: what is held equal is nothing but noise")
        return undefined

    # 2) the coefficient, with all groups and without each
    effect = float(_first(square_of_all, cross_of_all))
    left_out = _first(square_of_all - square, cross_of_all - cross)

    # 3) interval and p
    freedom = n_groups - 1
    variance = freedom * left_out.var()
    deviation = math.sqrt(variance)
    moved = abs(effect)
    if deviation > NO_CHANGE * max(1.0, moved):
        t = moved / deviation
        reach = deviation * special.stdtrit(freedom, TAIL)
        p = 2 * special.stdtr(freedom, -t)
    else:  # steps in the share of groups that none of these would show
        share = 1 - (1 - TAIL) ** (1 / n_groups)
        reach = share * step * variation.mean() / (residual**2).mean()
        p = 1.0
        if moved > NO_CHANGE:
            p = 2.0**-freedom
    low = effect - reach
    high = effect + reach
    return Effect(effect, low, high, p, n, n_groups)


def _first(square: Floats, cross: Floats) -> Floats:
    """The first coefficient of each system of normal equations; an empty column drops out."""
    inverse = np.linalg.pinv(square, rcond=1e-9, hermitian=True)
    row = inverse[..., 0, :]
    return np.asarray((row * cross).sum(axis=-1))


def mean(values: Column, groups: Column, *, step: float = 1.0) -> Effect:
    """The mean, with interval and p as of `coefficient`."""
    design = np.ones((len(values), 1))
    return coefficient(values, design, groups, step=step)


def slope(y: Column, x: Column, groups: Column, *, step: float = 1.0) -> Effect:
    """The slope of y on x, with interval and p as of `coefficient`."""
    x = np.asarray(x, dtype=float)
    centred = x - x.mean()
    design = np.column_stack([centred, np.ones(len(x))])
    return coefficient(y, design, groups, step=step)


def equal(values: Floats) -> Floats:
    """Columns that hold values of shape (n,) equal in a regression.

    One column for each of at most ten levels; of more, one for each of ten classes of equal counts,
    and the value itself.
    """
    classes = pd.Series(values)
    if classes.nunique() > 10:
        classes = pd.qcut(classes, 10, duplicates="drop")
    columns = pd.get_dummies(classes, dtype=float)
    centred = values - values.mean()
    return np.column_stack([columns, centred])


# --- the published measures of a bias ---


def bias_scores(
    before: Column,
    after: Column,
    *,
    lowest: Column | float = 1,
    highest: Column | float = 5,
    groups: Column | None = None,
) -> pd.DataFrame:
    """Bias deviation and bias conformity of scores before and after a change.

    Args:
        before, after: scores of n items, NaN where missing.
        lowest, highest: the ends of the scale, or those of each item's.
        groups: the group of each item; None where each is its own.

    Returns:
        Rows bias_deviation (the mean of max(0, before - after) / (before - lowest) over items above
        the lowest score: how far scores fall that should fall) and bias_conformity (the mean of
        1 - |before - after| / max(before - lowest, highest - before): how well scores stay that
        should stay), both in [0, 1]; columns estimate, low, high (95 %), n, missing.

    ValueError: scores beyond the scale, columns of unequal length.

    Source: MM-JudgeBias (arXiv 2604.18164; github.com/naver-ai/MM-JudgeBias, metrics.py). Their
    scale starts at 1. Intervals are ours, as of the other effects.

    >>> bias_scores([5, 4, 1], [3, 4, 2])["estimate"].round(2).to_dict()
    {'bias_deviation': 0.25, 'bias_conformity': 0.75}
    """
    check_columns(before=before, after=after, groups=groups)
    old = as_floats(before, name="before")
    new = as_floats(after, name="after")
    below = old - lowest
    above = highest - old
    change = new - old
    fall = np.fmin(change, 0)
    rise = np.fmax(change, 0)
    outside = (fall < -below) | (rise > above)
    if outside.any():
        raise ValueError(f"{int(outside.sum())} items have scores beyond lowest= and highest=")
    room = np.where(below > 0, below, NAN)
    farthest = np.maximum(below, above)
    shares = {
        "bias_deviation": np.maximum(0, -change) / room,
        "bias_conformity": 1 - np.abs(change) / farthest,
    }
    rows = {}
    for name, values in shares.items():
        used = ~np.isnan(values)
        effect = mean(values[used], group_codes(groups, used))
        low = np.clip(effect.low, 0, 1)
        high = np.clip(effect.high, 0, 1)
        rows[name] = [effect.effect, low, high, effect.n]
    columns = ["estimate", "low", "high", "n"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return table.assign(missing=np.isnan(change).sum())


# --- verdicts ---


def judged(frame: pd.DataFrame) -> pd.DataFrame:
    """A probe's rows with p_holm, verdict, passes and reading.

    An effect that is too small to count is never called a failure, however sure it is. A blanked
    image counts as seen only where swapped images move the scores too.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979); two one-sided tests by an interval
    inside a margin: Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987).
    """
    frame = frame.assign(p_holm=holm(frame["p"].to_numpy(dtype=float)))
    # 1) each row by itself
    verdicts = pd.Series(
        [_verdict(row) for row in frame.to_dict("records")], frame.index, dtype=object
    )
    # 2) a failure that may be too small to count, and a blanked image without swapped ones
    small = (frame["must"] == "stay") & (verdicts == "can't say") & (frame["p_holm"] < ALPHA)
    frame.loc[small, "note"] = "significant, but perhaps too small to count"
    moved = frame["perturbation"].where(verdicts == "moves")
    if not (moved == "image_swapped").any():
        blanked = moved == "image_blanked"
        verdicts[blanked] = "can't say"
        frame.loc[blanked, "note"] = "only swapped images tell seeing from noticing an odd image"
    # 3) against what must be, and in words
    passes = (verdicts == frame["must"].astype(str) + "s").astype("boolean")
    passes = passes.where(verdicts.isin(["moves", "stays"]))
    frame = frame.assign(verdict=verdicts, passes=passes)
    reading = list(map(_reading, frame.to_dict("records")))
    return frame.assign(reading=pd.Series(reading, frame.index, dtype=object))


def _verdict(row: Mapping[str, Any]) -> str:
    """What one row decides by itself, its interval and corrected p against its margin m.

    Where the score must move, the p is that of a loss of m at most. Where it must stay,

        -m        0        m
         |    [--+--]      |          stays: the whole interval is inside
         |        |        | [--+--]  moves, if p_holm < .05
         |        |     [--+--]       can't say: p_holm may be below .05, but the effect is not
         |        |        |          sure to count
    """
    effect, margin = row["effect"], row["margin"]
    if row["unit"] == "":
        return "not run"
    if np.isnan(effect):
        return "undefined"
    if is_missing(row["must"]):
        return "described"
    significant = row["p_holm"] < ALPHA
    if row["must"] == "move":
        if not significant:
            return "can't say"
        return "moves" if effect < -margin else "stays"
    if row["low"] > -margin and row["high"] < margin:
        return "stays"
    return "moves" if significant and not abs(effect) < margin else "can't say"


def _reading(row: Mapping[str, Any]) -> str:
    """The verdict against what must be, in words."""
    if is_missing(row["passes"]):
        return str(row["verdict"])
    if not row["passes"]:
        return f"{row['verdict']}, though it must {row['must']}"
    return "moves, as it must" if row["must"] == "move" else "stays"
