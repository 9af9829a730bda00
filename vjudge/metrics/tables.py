"""Statistics as they go out: a row each, with interval, counts, method and caveats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vjudge.metrics.columns import CHOICES as CHOICES
from vjudge.metrics.columns import Column as Column
from vjudge.metrics.columns import Groups as Groups
from vjudge.metrics.columns import aligned as aligned
from vjudge.metrics.columns import check_columns as check_columns
from vjudge.metrics.columns import check_items as check_items
from vjudge.metrics.columns import check_options as check_options
from vjudge.metrics.columns import check_scaled as check_scaled
from vjudge.metrics.columns import closed_in as closed_in
from vjudge.metrics.columns import design_of as design_of
from vjudge.metrics.columns import group_codes as group_codes
from vjudge.metrics.columns import groups_of as groups_of
from vjudge.metrics.columns import read_verdicts as read_verdicts
from vjudge.metrics.columns import scores as scores
from vjudge.metrics.columns import warn as warn
from vjudge.metrics.formatting import format_interval as format_interval
from vjudge.metrics.formatting import format_number as format_number
from vjudge.metrics.formatting import format_p as format_p
from vjudge.metrics.resampling import (
    Design,
    Floats,
    Integers,
    Statistic,
    interval,
    replicates,
    student,
    values,
)

INTERVAL = ["estimate", "low", "high"]
NO_WIDTH = 1e-12
UNEQUAL = 0.7  # effective number of groups over their number, below which it is said


def add_caveats(table: pd.DataFrame | pd.Series, texts: Iterable[str]) -> None:
    """Put known limits that apply to these data beside a table's numbers, and warn of each once.

    They stand in `attrs["caveats"]`, a list of texts; one that is there already is not repeated.
    """
    caveats = table.attrs.setdefault("caveats", [])
    for text in texts:
        if text not in caveats:
            caveats.append(text)
            warn(text)


METHODS = {"t": "Student's", "fisher": "Student's on Fisher's z scale"}


def tabulate(
    statistic: Statistic,
    names: Sequence[Any],
    design: Design,
    *,
    n: Any = None,
    missing: Any = None,
    method: str = "t",
    inflation: Floats | float = 1.0,
    unit: str = "items",
    index: str | Sequence[str] = "statistic",
    why: str = "too few items, or no variation",
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Estimate several statistics of one sample, a row each: estimate, low, high, n, missing.

    Args:
        statistic, names: a function of weights, as in `resampling`, and what its values are called.
        design: the sample. n, missing: counts of each row; None takes the design's.
        method, inflation: see `resampling.interval`; an inflation of each row, or one.
        unit, why: words for a row of the sample, and for what a NaN means.
    """
    check_options(confidence=confidence, n_resamples=n_resamples)
    # 1) estimates and counts
    table = pd.DataFrame(
        np.nan,
        index=pd.Index(list(names)).set_names(index),
        columns=INTERVAL,
    )
    table["n"] = len(design.cell) if n is None else n
    table["missing"] = design.missing if missing is None else missing
    if len(design.cell):
        table["estimate"] = values(statistic, design.counts[:, None])[:, 0]
    defined = table["estimate"].notna()
    warn_of(table.index[~defined], f"undefined ({why})")
    # 2) intervals
    units = design.n_units
    if defined.any() and units < 2:
        warn("intervals are undefined: there is one item, or all belong to one group")
    elif defined.any() and n_resamples:
        drawn = replicates(
            statistic,
            design,
            n_resamples=n_resamples,
            seed=seed,
        )
        factors = np.broadcast_to(inflation, len(table))
        bounds = []
        for row in zip(drawn, table["estimate"], factors, strict=True):
            bound = interval(
                *row,
                method=method,
                n_units=design.n_effective,
                confidence=confidence,
            )
            bounds.append(bound)
        table[["low", "high"]] = bounds
        flat = table["high"] - table["low"] < NO_WIDTH
        warn_of(table.index[flat], "all resamples agree: an interval without width says nothing")
        lost = np.isnan(drawn[defined.to_numpy()]).mean(axis=-1).max()
        if lost > 0.01:
            reason = f" ({why})" if why else ""
            warn(
                f"a statistic is undefined in {lost:.0%} of the resamples{reason}: its interval"
                " leaves them out and is too narrow"
            )
        add_caveats(table, of_group_sizes(units, design.n_effective))
    grouped = "" if design.groups is None else f"{units} groups of "
    table.attrs["method"] = (
        f"{confidence:.0%} bootstrap intervals ({METHODS[method]}), {n_resamples:,} resamples of"
        f" {grouped}{len(design.cell)} {unit}, seed {seed}"
    )
    return table


def of_group_sizes(n_groups: int, effective: float) -> list[str]:
    """The caveat of groups of very unequal size, if they are.

    >>> of_group_sizes(50, 48.0), of_group_sizes(51, 3.9)
    ([], ['groups of very unequal size: 51 weigh as much as 4 equal ones, so that the interval may \
hold less than it says'])
    """
    if effective >= UNEQUAL * n_groups:
        return []
    return [
        f"groups of very unequal size: {n_groups} weigh as much as {effective:.0f} equal ones, so"
        " that the interval may hold less than it says"
    ]


def warn_of(rows: pd.Index, what: str) -> None:
    """Warn of rows of a table, if there are any."""
    if len(rows):
        warn(f"{', '.join(map(str, rows))}: {what}")


def shares(
    rows: Sequence[tuple[Any, NDArray[Any], NDArray[Any]]],
    *,
    groups: Column | None,
    unit: str,
    confidence: float = 0.95,
    index: str | Sequence[str] = "statistic",
) -> pd.DataFrame:
    """Shares of one sample, with Wilson's interval at the effective number of cases.

    Args:
        rows: a name, and gain and weight of each of n cases, 0 <= gain <= weight; the share is the
            sum of gains over that of weights. Of shape (k, n) they are k shares, and the row is
            their plain mean.
        groups: of each case, or None. unit: what a case is.

    Returns:
        Columns as `tabulate`.

    The effective number is p (1 - p) over the variance of the share, by a jackknife over groups;
    then Student's t, with as many degrees of freedom as equal groups of that weight would have,
    takes the place of the normal quantile. In simulated groups of five, 95 % intervals covered
    shares of .5 to .9 in 94 to 96 % with 12 to 100 groups, and a share of .97 in 91 % with 60
    groups, 95 % with 200; with one group of 40 among 19 of two, 99 %.

    Source: Wilson, JASA 22 (1927), 209-212; Korn and Graubard, Survey Methodology 24 (1998).
    """
    check_options(confidence=confidence)
    # 1) which cases count in any row, and their groups
    parts = []
    for _, gain, weight in rows:
        weights = np.atleast_2d(np.asarray(weight, dtype=float))
        gains = np.where(weights > 0, np.asarray(gain, dtype=float), 0.0)
        parts.append((gains, weights))
    used = np.any([weights.any(axis=0) for _, weights in parts], axis=0)
    codes = group_codes(groups, used)
    # 2) a line a row
    lines = []
    for gains, weights in parts:
        n = int(weights.any(axis=0).sum())
        share = _share(
            gains[:, used],
            weights[:, used],
            codes,
            groups is not None,
            confidence,
        )
        lines.append([*share, n, len(used) - n])
    names = pd.Index([row[0] for row in rows]).set_names(index)
    table = pd.DataFrame(
        lines,
        index=names,
        columns=[*INTERVAL, "n", "missing"],
    )
    defined = table["estimate"].notna()
    warn_of(table.index[~defined], "undefined (nothing to count)")
    single = defined & table["low"].isna()
    warn_of(table.index[single], "intervals are undefined: all items belong to one group")
    over = f"{int(used.sum())} {unit}"
    if groups is not None:
        n_groups = int(codes.max(initial=-1)) + 1
        over = f"the effective number of {unit}, of {over} in {n_groups} groups"
    table.attrs["method"] = f"{confidence:.0%} Wilson intervals over {over}"
    return table


def _share(
    gain: Floats,
    weight: Floats,
    codes: Integers,
    grouped: bool,
    confidence: float,
) -> tuple[float, float, float]:
    """The mean of k shares with its bounds; gains and weights of shape (k, n)."""
    total = weight.sum(axis=1)
    if not len(codes) or (total == 0).any():
        return math.nan, math.nan, math.nan
    each = gain.sum(axis=1) / total
    share = float(each.mean())
    units = len(np.unique(codes[weight.any(axis=0)]))
    if grouped and units < 2:
        return share, math.nan, math.nan
    # 1) the variance of the share, from what each group adds to it
    surplus = gain - each[:, None] * weight
    influence: Any = np.bincount(codes, weights=(surplus / total[:, None]).mean(axis=0))
    freedom = math.inf
    if grouped:  # a jackknife over groups, of which a large one counts for more
        part = np.bincount(codes, weights=(weight / total[:, None]).mean(axis=0))
        influence = influence / (1 - part) * math.sqrt((units - 1) / units)
        freedom = max(1 / float(part @ part) - 1, 1.0)
    variance = float(influence @ influence)
    q2 = float(student(confidence, freedom)) ** 2
    # 2) the number of cases that has this variance; where all are alike, at most that of units
    if variance < 1e-20:
        of_each = np.array([len(np.unique(codes[row > 0])) for row in weight])
        number = min(units, len(weight) / (1 / of_each).mean())
    else:
        number = share * (1 - share) / variance
    # 3) Wilson's interval
    centre = (share + q2 / (2 * number)) / (1 + q2 / number)
    reach = math.sqrt(q2 * (share * (1 - share) / number + q2 / (4 * number**2)))
    reach /= 1 + q2 / number
    return share, max(0.0, centre - reach), min(1.0, centre + reach)


def holm(p: Floats) -> Floats:
    """p values corrected for their number by Holm's method; NaN isn't counted.

    Equal to statsmodels' `multipletests`, which collects Python's garbage at every call (.15 s).

    Source: Holm, Scandinavian Journal of Statistics 6 (1979), 65-70.
    """
    order = np.argsort(p, kind="stable")  # NaN last
    left = np.count_nonzero(~np.isnan(p)) - np.arange(len(p))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * left), 1)
    return corrected
