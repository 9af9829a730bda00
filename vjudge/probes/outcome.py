"""What a probe says: effects with intervals that hold when rows share an image, and a verdict on each.

"Moves" needs a p value of no effect below .05 after Holm's correction over all tests of the table, so that one honest
judge in twenty at most is accused of anything. "Stays" needs the whole interval inside a stated margin: that an effect
was not shown does not show that there is none. Where a score must move, the margin is the least effect that counts, and
p is that of an effect of just this size. What the intervals cover was measured: figures/validity.csv.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from vjudge.metrics._bootstrap import Floats
from vjudge.metrics._tables import holm, shares, warn
from vjudge.records import NAN

STEP = 1.0  # score points: what a score changes by if it changes at all, where nothing observed says how much
LEVEL = 0.05  # of the verdicts; the p values are there for any other
TAIL = 1 - LEVEL / 2
MARGINS = {"score points": 0.2, "score per doubling": 0.2, "score per gold point": 0.1, "share less one half": 0.05}
"""Unit -> the largest effect that counts as none, for scales of about five levels: a fifth of a level, a tenth of the
slope on gold, and 45 to 55 % for one of two responses."""
COLUMNS = {
    "judge": object, "probe": object, "case": object, "must": object, "effect": float, "low": float, "high": float,
    "unit": object, "p": float, "p_holm": float, "margin": float, "verdict": object, "n": int, "groups": int,
    "missing": int, "moved": float, "reading": object, "note": object,
}  # fmt: skip
"""A probe's columns.

- must: "move" where a sound judge's score must change, "stay" where it must not, None for a description
- low, high: the 95 % interval of the effect; n, groups: rows and independent groups used; missing: rows left out
- p: two-sided, of no effect where the score must stay, of an effect of `margin` where it must move; p_holm: corrected
- margin: the largest effect that counts as none where the score must stay, the least loss where it must move
- verdict: "moves", "stays" or "can't say"; reading: the verdict against what must be, in words
- moved: share of items whose score changed by half a level or more
"""


class Unmet(ValueError):
    """A probe lacks something; the message says what it needs and how to give it."""


class Effect(NamedTuple):
    """An estimate, its 95 % interval, the two-sided p of a true value of 0 (NaN where 0 is no sensible null), and the
    rows and independent groups used."""

    effect: float = NAN
    low: float = NAN
    high: float = NAN
    p: float = NAN
    n: int = 0
    groups: int = 0


def coefficient(y: Any, design: Floats, groups: Any, *, error: Floats | None = None) -> Effect:
    """The first column's least-squares coefficient, its interval and p robust to groups of dependent rows.

    Args:
        y, design, groups: responses (n,), regressors (n, k) and each row's group (n,).
        error: the variance (n,) with which each row's last regressor was measured: it is taken out of that regressor's
            sum of squares, so that noise in it does not pass for an effect of the first.

    Returns:
        The coefficient; NaN with a warning where it is not determined. Where no group's removal changes it, the
        interval reaches as far as steps of one score point would take it in as many groups as could have taken one
        without any of these showing it; p is then 1 for a coefficient of zero, else that of the sign test.

    Source: the leave-one-cluster-out jackknife (CV3J) of MacKinnon, Nielsen and Webb, Journal of Econometrics 232
    (2023), with Student's t on G - 1 degrees of freedom; noise: Fuller, Measurement Error Models (1987), section 2.2;
    a share of which none of G was seen: Clopper and Pearson, Biometrika 26 (1934).
    """
    y, x, code = np.asarray(y, dtype=float), np.asarray(design, dtype=float), _codes(groups)
    n, n_groups = len(y), int(code.max(initial=-1)) + 1
    if n_groups < 2:
        return _undefined(f"{n} rows, and not two groups of them", n, n_groups)
    x = x[:, [0, *(1 + np.flatnonzero(x[:, 1:].any(axis=0)))]]
    if np.linalg.matrix_rank(x) == np.linalg.matrix_rank(x[:, 1:]):
        return _undefined("what is measured does not vary once the rest is held equal", n, n_groups)
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
        return _undefined("what is held equal is nothing but noise", n, n_groups)
    effect = float((np.linalg.pinv(whole, hermitian=True) @ right)[0])
    left_out = _solutions(whole - square, right - cross, whole)
    deviation = math.sqrt((n_groups - 1) / n_groups * ((left_out - left_out.mean()) ** 2).sum())
    if deviation <= 1e-12 * max(1.0, abs(effect)):  # all groups agree: no spread to judge by
        effect, p = (0.0, 1.0) if abs(effect) <= 1e-12 else (effect, 2.0 ** (1 - n_groups))
        alone = x[:, 0] - x[:, 1:] @ np.linalg.lstsq(x[:, 1:], x[:, 0], rcond=None)[0]
        unseen = 1 - (1 - TAIL) ** (1 / n_groups)
        reach = float(STEP * unseen * np.abs(alone).mean() / (alone**2).mean())
    else:
        reach = deviation * float(special.stdtrit(n_groups - 1, TAIL))
        p = 2 * float(special.stdtr(n_groups - 1, -abs(effect) / deviation))
    return Effect(effect, effect - reach, effect + reach, p, n, n_groups)


def _codes(groups: Any) -> np.ndarray:
    return np.asarray(pd.factorize(np.asarray(groups, dtype=object))[0], dtype=np.int64)


def _undefined(why: str, n: int, groups: int) -> Effect:
    warn(f"undefined: {why}")
    return Effect(n=n, groups=groups)


def _solutions(square: Floats, right: Floats, whole: Floats) -> Floats:
    """The first coefficient of each group-deleted fit; a column that a deletion empties drops out of its fit."""
    thin = (np.diagonal(square, axis1=1, axis2=2) <= 1e-9 * np.diagonal(whole)).any(axis=1)
    first = np.empty(len(square))
    try:
        first[~thin] = np.linalg.solve(square[~thin], right[~thin][..., None])[:, 0, 0]
    except np.linalg.LinAlgError:
        thin = np.ones(len(square), dtype=bool)
    if thin.any():
        first[thin] = (np.linalg.pinv(square[thin], rcond=1e-9, hermitian=True) @ right[thin][..., None])[:, 0, 0]
    return first


def mean(values: Any, groups: Any) -> Effect:
    """The mean, its interval and p, robust to groups of dependent rows; see `coefficient`."""
    return coefficient(values, np.ones((len(values), 1)), groups)


def slope(y: Any, x: Any, groups: Any) -> Effect:
    """The slope of y on x, its interval and p, robust to groups of dependent rows; see `coefficient`."""
    x = np.asarray(x, dtype=float)
    return coefficient(y, np.column_stack([x - x.sum() / max(1, len(x)), np.ones(len(x))]), groups)


def share(flags: Any, groups: Any) -> Effect:
    """A share of true flags with Wilson's interval at the effective number of rows; p is NaN. See `metrics.shares`."""
    flags, code = np.asarray(flags, dtype=float), _codes(groups)
    row = shares([("share", flags, np.ones(len(flags)))], groups=code, unit="items").iloc[0]
    n_groups = int(code.max(initial=-1)) + 1
    estimate = float(row["estimate"]) if n_groups > 1 else NAN
    return Effect(estimate, float(row["low"]), float(row["high"]), NAN, len(flags), n_groups)


def equal(values: Floats, *, most: int = 10) -> Floats:
    """Columns that hold finite values of shape (n,) equal in a regression: one for each of at most so many levels, or
    for as many classes of equal counts, with the value itself beside them."""
    levels, code = np.unique(values, return_inverse=True)
    if len(levels) <= most:
        return np.eye(len(levels))[code.reshape(-1)]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, most + 1)[1:-1]))
    classes = np.eye(len(edges) + 1)[np.searchsorted(edges, values, side="right")]
    return np.column_stack([classes, values - values.mean()])


def judged(frame: pd.DataFrame) -> pd.DataFrame:
    """A probe's rows with p_holm, verdict and reading.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979); two one-sided tests by an interval inside a margin:
    Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987).
    """
    p_holm, must, stay = holm(frame["p"].to_numpy(dtype=float)), frame["must"], frame["must"] == "stay"
    inside = (-frame["margin"] < frame["low"]) & (frame["high"] < frame["margin"])
    sure, lost = p_holm < LEVEL, frame["effect"] < -frame["margin"]
    said: list[Any] = [None, "stays", "moves", "stays"]
    verdict = np.select([must.isna(), stay & inside, sure & (stay | lost), sure], said, "can't say")
    verdict = pd.Series(verdict, frame.index, dtype=object)
    against = verdict + ", though it must " + must
    cases = [frame["unit"] == "", frame["effect"].isna(), must.isna(), verdict == "can't say", verdict != must + "s"]
    words = ["not run", "undefined", "described", "can't say", against, "moves, as it must"]
    some = [f"stays; {moved:.0%} of items moved" if moved > 0 else "stays" for moved in frame["moved"]]
    return frame.assign(p_holm=p_holm, verdict=verdict, reading=np.select([*cases, must == "move"], words, some))
