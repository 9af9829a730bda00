"""What a probe says: effects with intervals that hold when rows share an image, and one table with a verdict on each.

Each standard error is a jackknife over groups (images), with Student's t on one degree of freedom less than there are
groups. These statistics are smooth, so a bootstrap would bring nothing more; `figures/validity.csv` shows what the
intervals cover.

"Moves" needs a p value of no effect below .05 after Holm's correction over all tests of the table, so that one honest
judge in twenty at most is accused of anything. "Stays" needs the whole interval inside a stated margin: that an effect
was not shown does not show that there is none. Where a score must move, the margin is the least effect that counts, and
p is that of an effect of just this size.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from vjudge.metrics._bootstrap import Floats
from vjudge.metrics._tables import holm, shares

NAN = float("nan")
STEP = 1.0  # score points: what a score changes by if it changes at all, where nothing observed says how much
LEVEL = 0.05  # of the verdicts; the p values are there for any other


class Unmet(ValueError):
    """A probe lacks something; the message says what it needs and how to give it."""


# --- effects ----------------------------------------------------------------------------------------------------------


class Effect(NamedTuple):
    """An estimate, its interval, the two-sided p of a true value of 0 (NaN where 0 is no sensible null), and the rows
    and independent groups used."""

    effect: float = NAN
    low: float = NAN
    high: float = NAN
    p: float = NAN
    n: int = 0
    groups: int = 0


NOTHING = Effect()


def coefficient(
    y: Any, design: Floats, groups: Any, *, error: Floats | None = None, confidence: float = 0.95
) -> Effect:
    """The first column's least-squares coefficient, its interval and p robust to groups of dependent rows.

    Args:
        y, design, groups: responses (n,), regressors (n, k) and each row's group (n,).
        error: the variance with which each row's last regressor was measured, shape (n,): its mean is taken out of that
            regressor's sum of squares, so that noise in it does not pass for an effect of the first. None: no noise.
        confidence: of the interval, in (0, 1).

    Returns:
        The coefficient; NaN with a warning where there are fewer than two groups, the other columns determine the
        first, or the last is nothing but noise. Where no group's removal changes it, the interval reaches as far as
        steps of one score point would take it, in as many groups as could have taken one without any of these showing
        it; p is then 1 for a coefficient of zero, else that of the sign test.

    Source: the leave-one-cluster-out jackknife (CV3J) of MacKinnon, Nielsen and Webb, Journal of Econometrics 232
    (2023), with G - 1 degrees of freedom; for groups of one row it is the jackknife of MacKinnon and White (1985). The
    correction for noise: Fuller, Measurement Error Models (1987), section 2.2.
    """
    y, x = np.asarray(y, dtype=float), np.asarray(design, dtype=float)
    code = _codes(groups)
    n, n_groups = len(y), int(code.max(initial=-1)) + 1
    if n_groups < 2:
        return _undefined(f"{n} rows in {n_groups} group(s), at least two groups are needed", n, n_groups)
    x = x[:, [0, *(1 + np.flatnonzero(x[:, 1:].any(axis=0)))]]
    if np.linalg.matrix_rank(x) == (np.linalg.matrix_rank(x[:, 1:]) if x.shape[1] > 1 else 0):
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
        reach = _step(x, n_groups, confidence)
    else:
        reach = deviation * float(special.stdtrit(n_groups - 1, (1 + confidence) / 2))
        p = 2 * float(special.stdtr(n_groups - 1, -abs(effect) / deviation))
    return Effect(effect, effect - reach, effect + reach, p, n, n_groups)


def _codes(groups: Any) -> np.ndarray:
    return np.asarray(pd.factorize(np.asarray(groups, dtype=object))[0], dtype=np.int64)


def _undefined(why: str, n: int, groups: int) -> Effect:
    warnings.warn(f"undefined: {why}", stacklevel=4)
    return Effect(n=n, groups=groups)


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


def mean(values: Any, groups: Any, *, confidence: float = 0.95) -> Effect:
    """The mean, its interval and p, robust to groups of dependent rows; see `coefficient`."""
    return coefficient(values, np.ones((len(values), 1)), groups, confidence=confidence)


def slope(y: Any, x: Any, groups: Any, *, confidence: float = 0.95) -> Effect:
    """The slope of y on x, its interval and p, robust to groups of dependent rows; see `coefficient`."""
    x = np.asarray(x, dtype=float)
    centred = x - x.sum() / max(1, len(x))
    return coefficient(y, np.column_stack([centred, np.ones(len(x))]), groups, confidence=confidence)


def share(flags: Any, groups: Any, *, confidence: float = 0.95) -> Effect:
    """A share of true flags with Wilson's interval at the effective number of rows; p is NaN. See `metrics.shares`."""
    flags, code = np.asarray(flags, dtype=float), _codes(groups)
    row = shares([("share", flags, np.ones(len(flags)))], groups=code, confidence=confidence, unit="items").iloc[0]
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


# --- the table --------------------------------------------------------------------------------------------------------

COLUMNS = {
    "judge": object, "probe": object, "case": object, "must": object, "effect": float, "low": float, "high": float,
    "unit": object, "p": float, "p_holm": float, "margin": float, "verdict": object, "n": int, "groups": int,
    "missing": int, "moved": float, "reading": object, "note": object,
}  # fmt: skip
"""A probe's columns.

- must: "move" where a sound judge's score must change, "stay" where it must not, None for a description
- p: two-sided, of no effect where the score must stay, of an effect of `margin` where it must move
- p_holm: p after Holm's correction over the tests of the table
- margin: the largest effect that counts as none where the score must stay, the least loss where it must move
- verdict: "moves", "stays" or "can't say"; reading: the verdict against what must be, in words
- n, groups: rows and independent groups used; missing: rows without a score, left out
- moved: share of items whose score changed by half a level or more
"""

MARGINS = {"score points": 0.2, "score per doubling": 0.2, "score per gold point": 0.1, "share less one half": 0.05}
"""Unit -> the largest effect that counts as none, for scales of about five levels: a fifth of a level, a tenth of the
slope on gold, and 45 to 55 % for one of two responses."""
LEAST = 0.25  # see `Trials`: of what a judge loses if it knows all from that part
NEEDS = ("image", "rubric")
"""Parts without which a collection can't be judged, as a rule. Not among them: the query, where rubric and response say
what was asked, and the criterion, where good answers are good by all criteria."""


def verdict(line: Mapping[str, Any]) -> str | None:
    """The verdict on a row with its p_holm: "moves", "stays" or "can't say"; None for a description.

    >>> line = {"must": "stay", "effect": 0.05, "low": -0.02, "high": 0.12, "margin": 0.2, "p_holm": 1.0}
    >>> verdict(line), verdict(line | {"high": 0.3}), verdict(line | {"low": 0.15, "high": 0.4, "p_holm": 0.001})
    ('stays', "can't say", 'moves')
    """
    if not line["must"]:
        return None
    sure = line["p_holm"] < LEVEL
    if line["must"] == "move":
        return "can't say" if not sure else "moves" if line["effect"] < -line["margin"] else "stays"
    if -line["margin"] < line["low"] and line["high"] < line["margin"]:
        return "stays"
    return "moves" if sure else "can't say"


def _reading(line: Mapping[str, Any]) -> str:
    """A row's verdict against what must be, in words, with the share that moved where the average stayed."""
    must, short = line["must"], line["verdict"]
    if np.isnan(line["effect"]):
        return "not run" if line["reading"] == "not run" else "undefined"
    if not must:
        return "described"
    if short != f"{must}s":
        return "can't say" if short == "can't say" else f"{short}, though it must {must}"
    some = f"; {line['moved']:.0%} of items moved" if line["moved"] > 0 else ""
    return "moves, as it must" if must == "move" else f"stays{some}"


def table(rows: Iterable[Mapping[str, Any]], *, confidence: float, seed: int) -> pd.DataFrame:
    """Rows as a table, with Holm's p over all of them and the verdicts.

    `attrs` has confidence, seed, n_tests, the method in words for a caption, and two lists of (probe, case): `against`,
    whose verdict is against what must be, and `open`, of which nothing can be said.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979). Two one-sided tests by an interval inside a margin:
    Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987); at 95 %, each of the two at 2.5 %.
    """
    lines = [dict(line) for line in rows]
    for line, p_holm in zip(lines, holm(np.array([line["p"] for line in lines], dtype=float)), strict=True):
        line["p_holm"] = p_holm
        line["verdict"] = verdict(line)
        line["reading"] = _reading(line)
    cells = {name: pd.Series([line[name] for line in lines], dtype=kind) for name, kind in COLUMNS.items()}
    frame, judged = pd.DataFrame(cells), [line for line in lines if line["must"]]
    sure = [line for line in judged if line["verdict"] != "can't say"]
    frame.attrs = {
        "confidence": confidence,
        "seed": seed,
        "n_tests": int(frame["p"].notna().sum()),
        "against": [(line["probe"], line["case"]) for line in sure if line["verdict"] != f"{line['must']}s"],
        "open": [(line["probe"], line["case"]) for line in judged if line not in sure],
        "method": f"{confidence:.0%} intervals by a jackknife over groups with Student's t; seed {seed}",
    }
    return frame
