"""Statistics as they go out: a row each, with interval, counts, method and caveats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vjudge.metrics.columns import Column, check_options, group_codes, warn
from vjudge.metrics.resampling import (
    BLOCKS,
    JACKKNIFED,
    LARGE,
    MANY_LEVELS,
    PERFECT,
    Design,
    Floats,
    Integers,
    Statistic,
    Weights,
    effective_number,
    freedom_of,
    interval,
    jackknife,
    on_fisher_scale,
    replicates,
    student,
    values,
)

INTERVAL = ["estimate", "low", "high"]
NO_WIDTH = 1e-12
ALPHA = 0.05  # the level of a test, after Holm's correction where there are several
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


def gathered_caveats(tables: Iterable[pd.DataFrame]) -> list[str]:
    """The caveats of several tables that become one, each once."""
    texts = chain.from_iterable(table.attrs.get("caveats", ()) for table in tables)
    return list(dict.fromkeys(texts))


METHODS = {"t": "Student's", "fisher": "Student's on Fisher's z scale"}


def tabulate(
    statistic: Statistic,
    names: Sequence[Any],
    design: Design,
    *,
    n: Column | int | None = None,
    missing: Column | int | None = None,
    method: str = "t",
    inflation: Floats | float = 1.0,
    unit: str = "items",
    index: str | Sequence[str] = "statistic",
    why: str = "too few items, or no variation",
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
    by: Literal["bootstrap", "jackknife"] = "bootstrap",
    pairs: int = 0,
) -> pd.DataFrame:
    """Estimate several statistics of one sample, a row each: estimate, low, high, n, missing.

    Args:
        statistic, names: a function of weights, as in `resampling`, and what its values are called.
        design: the sample. n, missing: counts of each row; None takes the design's.
        method, inflation: see `resampling.interval`; an inflation of each row, or one.
        unit, why: words for a row of the sample, and for what a NaN means.
        by: where the standard error comes from; always the jackknife in a crossed design, and over
            50 random blocks from 20,000 rows on in groups, or of more than 100 distinct rows.
        pairs: of units, see `resampling.jackknife`.
    """
    check_options(confidence=confidence, n_resamples=n_resamples)
    # 1) estimates and counts
    table = pd.DataFrame(np.nan, pd.Index(list(names)).set_names(index), INTERVAL)
    table["n"] = len(design.cell) if n is None else n
    table["missing"] = design.missing if missing is None else missing
    if len(design.cell):
        table["estimate"] = values(statistic, design.counts[:, None])[:, 0]
    estimates = table["estimate"]
    undefined = estimates.isna()
    warn_of(table.index[undefined], f"undefined ({why})")
    # 2) intervals
    kind = f"bootstrap intervals ({METHODS[method]}), {n_resamples:,} resamples"
    costly = design.groups is not None or len(design.counts) > MANY_LEVELS
    is_large = len(design.cell) >= LARGE and costly
    jackknifed = by == "jackknife" or design.second is not None or is_large
    if jackknifed:
        block = f"one of {BLOCKS} random blocks" if is_large else "one"
        kind = f"jackknife intervals ({METHODS[method]}), without {block} in turn"
    groupings = [codes for codes in (design.groups, design.second) if codes is not None]
    sizes = [np.bincount(codes) for codes in groupings]
    if not undefined.all() and design.n_units < 2:
        warn("intervals are undefined: there is one item, or all belong to one group")
    elif not undefined.all() and n_resamples:
        options: dict[str, Any] = {"method": method, "confidence": confidence, "seed": seed}
        if jackknifed:
            max_units = min(n_resamples, BLOCKS if is_large else JACKKNIFED)
            options |= {"max_units": max_units, "pairs": 0 if is_large else pairs}
            bounds = _jackknifed(statistic, estimates, design, **options)
        else:
            options |= {"inflation": inflation, "why": why}
            bounds = _bootstrapped(statistic, estimates, design, n_resamples, **options)
        columns = list(bounds) if by == "jackknife" else ["low", "high"]
        table[columns] = bounds[columns]
        flat = table["high"] - table["low"] < NO_WIDTH
        warn_of(table.index[flat], "all resamples agree: an interval without width says nothing")
        add_caveats(table, chain.from_iterable(map(of_group_sizes, sizes)))
    # 3) method
    units = f"{len(design.cell)} {unit}, seed {seed}"
    if sizes:
        units = f"{' by '.join(str(len(counts)) for counts in sizes)} groups of {units}"
    table.attrs["method"] = f"{confidence:.0%} {kind} of {units}"
    return table


def _bootstrapped(
    statistic: Statistic,
    estimates: pd.Series,
    design: Design,
    n_resamples: int,
    *,
    inflation: Floats | float,
    why: str,
    seed: int,
    **options: Any,
) -> pd.DataFrame:
    """Low and high of each estimate by the bootstrap."""
    drawn = replicates(statistic, design, n_resamples=n_resamples, seed=seed)
    factors = np.broadcast_to(inflation, len(estimates))
    bounds = []
    for row in zip(drawn, estimates, factors, strict=True):
        bounds.append(interval(*row, n_units=design.n_effective, **options))
    lost = np.isnan(drawn[estimates.notna().to_numpy()]).mean(axis=-1).max()
    if lost > 0.01:
        reason = f" ({why})" if why else ""
        warn(
            f"a statistic is undefined in {lost:.0%} of the resamples{reason}: its interval"
            " leaves them out and is too narrow"
        )
    return pd.DataFrame(bounds, estimates.index, ["low", "high"])


def _jackknifed(
    statistic: Statistic,
    estimates: pd.Series,
    design: Design,
    *,
    method: str,
    confidence: float,
    **options: int,
) -> pd.DataFrame:
    """Low, high, standard error (on the scale of the method) and degrees of freedom, by row."""

    def scaled(weights: Weights) -> Floats:
        value = statistic(weights)
        return np.arctanh(np.clip(value, -PERFECT, PERFECT)) if method == "fisher" else value

    variance, freedom = jackknife(scaled, design, **options)
    error = np.sqrt(variance)
    reach = student(confidence, freedom) * error
    low, high = estimates - reach, estimates + reach
    if method == "fisher":
        _, low, high = on_fisher_scale(estimates, reach).T
    undefined = estimates.notna() & np.isnan(error)
    warn_of(estimates.index[undefined], "no interval: undefined without one of the units")
    columns = {"low": low, "high": high, "error": error, "freedom": freedom}
    return pd.DataFrame(columns, estimates.index)


def of_group_sizes(sizes: Sequence[float] | NDArray) -> list[str]:
    """The caveat of groups of very unequal size, if they are.

    >>> of_group_sizes([2] * 50), of_group_sizes([50] + [1] * 50)
    ([], ['groups of very unequal size: 51 weigh as much as 4 equal ones, so that the interval may \
hold less than it says'])
    """
    if not len(sizes) or effective_number(sizes) >= UNEQUAL * len(sizes):
        return []
    return [
        f"groups of very unequal size: {len(sizes)} weigh as much as {effective_number(sizes):.0f}"
        " equal ones, so that the interval may hold less than it says"
    ]


def warn_of(rows: pd.Index, message: str) -> None:
    """Warn of rows of a table, if there are any."""
    if len(rows):
        warn(f"{', '.join(map(str, rows))}: {message}")


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
            sum of gains over that of weights. Of shape (k, n) they are the shares of k categories,
            and the row is their plain mean.
        groups: of each case, or None. unit: what a case is.

    Returns:
        Columns as `tabulate`. A share of one case or one group has no interval, nor has a mean over
        such a category; it is a caveat.

    The effective number is p (1 - p) over the variance of the share, by a jackknife over groups,
    and at most that of independent cases (of pairs, where a case of weight w is w of them); then
    Student's t, with as many degrees of freedom as equal groups of that weight would have, takes
    the place of the normal quantile. A mean of shares has the bounds of the same score test, so
    that a category where all are right is not certain. Coverage: figures/validity_numbers.csv.

    Source: Wilson, JASA 22 (1927), 209-212; Korn and Graubard, Survey Methodology 24 (1998); for
    means Yan and Su, Statistics in Biopharmaceutical Research 2 (2010), 329-335.
    """
    check_options(confidence=confidence)
    # 1) which cases count in any row, and their groups
    cases = []
    for _, gain, weight in rows:
        weights = np.atleast_2d(np.asarray(weight, dtype=float))  # (k, n)
        cases.append((np.where(weights > 0, np.asarray(gain, dtype=float), 0.0), weights))
    used = np.any([weights.any(axis=0) for _, weights in cases], axis=0)
    codes = group_codes(groups, used)
    grouped = groups is not None
    # 2) a line a row
    lines = []
    for gains, weights in cases:
        categories = []
        for gain, weight in zip(gains[:, used], weights[:, used], strict=True):
            categories.append(Share.of(gain, weight, codes, grouped=grouped))
        n = int(weights.any(axis=0).sum())
        lines.append([*mean_of_shares(categories, confidence), n, len(used) - n])
    names = pd.Index([row[0] for row in rows]).set_names(index)
    table = pd.DataFrame(lines, names, [*INTERVAL, "n", "missing"])
    # 3) method and caveats
    undefined = table["estimate"].isna()
    warn_of(names[undefined], "undefined (nothing to count)")
    cases_of = f"{len(codes)} {unit}"
    if grouped:
        sizes = np.bincount(codes)
        cases_of = f"the effective number of {unit}, of {cases_of} in {len(sizes)} groups"
        add_caveats(table, of_group_sizes(sizes))
    table.attrs["method"] = f"{confidence:.0%} Wilson intervals over {cases_of}"
    single = names[~undefined & table["low"].isna()]
    if len(single):
        kind = "group" if grouped else "item"
        listing = ", ".join(map(str, single))
        add_caveats(table, [f"{listing}: no interval, since one {kind} is all there is of it"])
    return table


@dataclass(frozen=True)
class Share:
    """A share of cases in units (groups, or the cases themselves), and how much it varies."""

    estimate: float
    influence: Floats  # (units,): what each unit adds to the share, by a jackknife
    present: NDArray[np.bool_]  # (units,): which units have a case that counts
    number: float  # of independent cases that would vary as much
    freedom: float

    @classmethod
    def of(cls, gain: Floats, weight: Floats, codes: Integers, *, grouped: bool) -> Share:
        """From gain and weight of each case, and the unit of each, 0..units - 1; all (n,)."""
        total = weight.sum()
        size: Any = np.bincount(codes, weight)
        n_units = np.count_nonzero(size)
        if not n_units:
            return cls(math.nan, size, size > 0, math.nan, math.nan)
        share = float(gain.sum() / total)
        of_case = (gain - share * weight) / total
        influence: Any = np.bincount(codes, of_case)
        variance = of_case @ of_case
        smallest = variance
        freedom = math.inf
        if grouped and n_units > 1:
            influence = influence / (1 - size / total) * math.sqrt((n_units - 1) / n_units)
            smallest, variance = sorted([variance, influence @ influence])
            freedom = freedom_of(size)
        number = float(n_units)  # where all are alike, a unit says no more than one case
        if smallest > NO_WIDTH**2:
            number = share * (1 - share) / variance
        if weight.max() > 1:  # a case is several pairs, and says no more than they would apart
            number = min(number, total)
        return cls(share, influence, size > 0, float(number), freedom)

    def bounds(self, confidence: float) -> tuple[float, float]:
        """Wilson's interval at the effective number; NaN of one unit.

        >>> share = Share.of(np.array([1.0, 1, 0]), np.ones(3), np.arange(3), grouped=False)
        >>> np.round(share.bounds(0.95), 2).tolist()
        [0.21, 0.94]
        """
        if np.count_nonzero(self.present) < 2:
            return math.nan, math.nan
        share = self.estimate
        q2 = float(student(confidence, self.freedom)) ** 2 / self.number
        reach = math.sqrt(q2 * (share * (1 - share) + q2 / 4)) / (1 + q2)
        centre = (share + q2 / 2) / (1 + q2)
        return max(0.0, centre - reach), min(1.0, centre + reach)

    def correlation(self, other: Share) -> float:
        """Of both shares' errors; where one has none to see, that of the units they have in common.

        Categories of different units are independent: 0.
        """
        spread = np.linalg.norm(self.influence) * np.linalg.norm(other.influence)
        if spread > NO_WIDTH**2:
            return float(self.influence @ other.influence / spread)
        sizes = np.count_nonzero(self.present) * np.count_nonzero(other.present)
        return float(np.count_nonzero(self.present & other.present) / math.sqrt(sizes))


def mean_of_shares(
    shares: Sequence[Share],
    confidence: float,
    weights: Sequence[float] | None = None,
) -> tuple[float, float, float]:
    """The mean of k shares, plain or of weights that sum to 1, with its bounds."""
    estimates = np.array([share.estimate for share in shares])
    weight = np.full(len(shares), 1 / len(shares)) if weights is None else np.array(weights)
    mean = float(weight @ estimates)
    if min(np.count_nonzero(share.present) for share in shares) < 2:
        return mean, math.nan, math.nan
    if len(shares) == 1:
        return mean, *shares[0].bounds(confidence)
    correlation = np.eye(len(shares))  # (k, k), of the shares' errors
    for a, b in combinations(range(len(shares)), 2):
        correlation[a, b] = correlation[b, a] = shares[a].correlation(shares[b])
    number = np.array([share.number for share in shares])
    quantile = student(confidence, np.array([share.freedom for share in shares]))
    low = _lowest_mean(estimates, weight, number, quantile, correlation)
    high = 1 - _lowest_mean(1 - estimates, weight, number, quantile, correlation)
    return mean, low, high


def _lowest_mean(
    estimates: Floats,
    weight: Floats,
    number: Floats,
    quantile: Floats,
    correlation: Floats,
) -> float:
    """The lower bound of a mean of k shares: the least mean that a score test does not reject.

    Wilson's interval for several shares: under a lower mean the likeliest shares p solve
    number (estimate - p) / (p (1 - p)) = pull * weight, one pull for all, and the variance is that
    of these. So a category of few cases that are all right is the first to be pulled down.
    """
    mean = weight @ estimates
    near, far = 1e-9, 1e9 * number.max() / weight.min()  # of the pull, on a log scale
    for _ in range(80):
        pull = math.sqrt(near * far)
        both = pull * weight + number
        root = np.sqrt(np.maximum(both**2 - 4 * pull * weight * number * estimates, 0.0))
        p = np.minimum(2 * number * estimates / (both + root), 1.0)
        reach = weight * quantile * np.sqrt(p * (1 - p) / number)
        if (mean - weight @ p) ** 2 > reach @ correlation @ reach:
            far = pull
        else:
            near = pull
    return float(weight @ p)


def holm(p: Column) -> Floats:
    """p values corrected for their number by Holm's method; NaN isn't counted.

    Equal to statsmodels' `multipletests`, which collects Python's garbage at every call (.15 s).

    Source: Holm, Scandinavian Journal of Statistics 6 (1979), 65-70.
    """
    p = np.asarray(p)
    order = np.argsort(p, kind="stable")  # NaN last
    left = np.count_nonzero(~np.isnan(p)) - np.arange(len(p))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * left), 1)
    return corrected
