"""Columns as they come in, checked; statistics as they go out, with interval, counts and method.

At the end: how numbers stand in print.
"""

from __future__ import annotations

import math
import numbers
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
from vjudge.records import is_int_at_least, is_missing

Column: TypeAlias = Sequence[Any] | np.ndarray | pd.Series
Groups: TypeAlias = Column | None  # the group of each item: its image, its question
INTERVAL = ["estimate", "low", "high"]
FEW_RESAMPLES = 100
NO_WIDTH = 1e-12


def warn(message: str) -> None:
    """Warn at the line of the caller outside this package."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("vjudge."):
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)


def add_caveats(table: pd.DataFrame | pd.Series, texts: Iterable[str]) -> None:
    """Put known limits that apply to these data beside a table's numbers, and warn of each once.

    They stand in `attrs["caveats"]`, a list of texts; one that is there already is not repeated.
    """
    caveats = table.attrs.setdefault("caveats", [])
    for text in texts:
        if text not in caveats:
            caveats.append(text)
            warn(text)


# --- Columns


def check_columns(**columns: Any) -> None:
    """Refuse what is no column, and columns that differ in length or index; None is left out."""
    lengths = {}
    indexes: dict[str, pd.Index] = {}
    for name, column in columns.items():
        if column is None:
            continue
        if isinstance(column, str | bytes) or not hasattr(column, "__len__"):
            kind = type(column).__name__
            raise TypeError(f"{name} must be a sequence, one of each per item, not {kind}")
        lengths[name] = len(column)
        if isinstance(column, pd.DataFrame | pd.Series):
            indexes[name] = column.index
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise ValueError(f"{counts}: give one of each per item")
    first = next(iter(indexes), "")
    for name, index in indexes.items():
        if not index.equals(indexes[first]):
            raise ValueError(
                f"{first} and {name} have different indexes: align them first, or pass .to_numpy()"
                " if their order is the same"
            )


def check_items(**columns: Any) -> None:
    """Refuse columns that are not pandas', with each item once in their index."""
    for name, column in columns.items():
        if not isinstance(column, pd.DataFrame | pd.Series):
            raise TypeError(f"{name} is a {type(column).__name__}: give a Series, a row an item")
        if not column.index.is_unique:
            twice = column.index[column.index.duplicated()][0]
            raise ValueError(f"{name}: item {twice} stands twice in the index; give it one row")


def scores(values: Any, *, name: str) -> Floats:
    """Numbers as float64, NaN where missing."""
    if getattr(values, "ndim", 1) != 1:
        raise ValueError(f"{name} must have one dimension, not {values.ndim}")
    dtype = getattr(values, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iuf":
        values = [math.nan if is_missing(cell) else cell for cell in values]
        bad = [place for place, cell in enumerate(values) if not _is_number(cell)]
        if bad:
            raise TypeError(
                f"{name} has values that are not numbers: {listed(bad, values)}; convert them or"
                " set them to NaN"
            )
    array = np.array(values, dtype=float)
    infinite = np.flatnonzero(np.isinf(array))
    if infinite.size:
        where = listed(infinite, array)
        raise ValueError(f"{name} has infinite values: {where}; set them to NaN if missing")
    return array


def _is_number(cell: Any) -> bool:
    return isinstance(cell, numbers.Real) and not isinstance(cell, bool)


def check_scaled(measure: str, *columns: Any) -> None:
    """Refuse scores of a value head, which have no scale that people's scores share."""
    for column in columns:
        if getattr(column, "attrs", {}).get("unbounded"):
            raise ValueError(
                f"{measure} needs scores on people's scale, and a value head's have none:"
                " use correlate, or compare and pairwise_accuracy"
            )


def aligned(*, groups: Any = None, **columns: Any) -> list[Any]:
    """Columns of scores of the same items, and last which items have all of them."""
    check_columns(**columns, groups=groups)
    arrays = [scores(values, name=name) for name, values in columns.items()]
    complete = ~np.isnan(arrays).any(axis=0)
    return [*arrays, complete]


def listed(positions: Any, values: Any, *, most: int = 20) -> str:
    """Positions with their values, the first few of them, for an error message."""
    shown = []
    for place in positions[:most]:
        value = values[place]
        if isinstance(value, np.generic):
            value = value.item()
        shown.append(f"position {place}: {repr(value)[:80]}")
    if len(positions) > most:
        shown.append(f"and {len(positions) - most} more")
    return ", ".join(shown)


def group_codes(
    groups: Any,
    used: np.ndarray,
    *,
    name: str = "groups",
) -> Integers:
    """Codes 0..G-1 of the groups of the used items; None makes each item a group.

    A used item without a group is a ValueError.
    """
    if groups is None:
        return np.arange(int(used.sum()))
    labels = list(groups)
    codes = pd.factorize(pd.Series(labels, dtype=object))[0]
    bad = np.flatnonzero(used & (codes < 0))
    if bad.size:
        where = listed(bad, labels)
        raise ValueError(
            f"{name} are missing for scored items: {where}; name them, or leave these out"
        )
    return np.asarray(pd.factorize(codes[used])[0], dtype=np.int64)


def groups_of(run: pd.DataFrame) -> np.ndarray:
    """The unit of resampling of each row of a run: its group, its id where it names none."""
    units = run["id"].map(str)
    if "group" in run:
        own = run["group"]
        units = own.map(str, na_action="ignore").where(~own.map(is_missing), units)
    return units.to_numpy(dtype=object)


def closed_in(run: pd.DataFrame) -> str:
    """How many verdicts of a run were closed (`unread="close"`), in words; "" where none was."""
    count = int(run["closed"].eq(True).sum()) if "closed" in run else 0
    return f"{count:,} of {len(run):,} verdicts were closed" if count else ""


def design_of(cell: np.ndarray, groups: Any, used: np.ndarray) -> Design:
    """The design of the used items, from their cells and the groups of all, if there are any."""
    codes = None if groups is None else group_codes(groups, used)
    return Design(cell, codes, int((~used).sum()))


CHOICES = ("a", "b", "tie")
# Beside these, the five answers of Arena-Hard, WildVision-Bench and their like, by who won.
SPELLINGS = {choice: choice for choice in (*CHOICES, "abstain")}
SPELLINGS |= {"A>>B": "a", "A>B": "a", "A=B": "tie", "B>A": "b", "B>>A": "b"}


def read_verdicts(
    verdicts: Column,
    *,
    meanings: Mapping[str, str] = SPELLINGS,
    people: bool = False,
) -> tuple[Any, Any, dict[str, int]]:
    """Each choice or None, by its spelling in any capitals, which are choices, and an account.

    A judge's malformed verdicts are counted and warned of. ValueError: a column of which nothing
    can be read, or a person's choice that can't be.
    """
    folded = {spelling.casefold(): word for spelling, word in meanings.items()}
    read: list[str | None] = []
    for verdict in verdicts:
        word = None
        if is_missing(verdict):
            word = "missing"
        elif isinstance(verdict, str):
            word = folded.get(verdict.casefold())
        read.append(word)
    counts = Counter(read)
    malformed = [place for place, word in enumerate(read) if word is None]
    if malformed:
        bad = f"{len(malformed)} of {len(read)}"
        cells = list(verdicts)
        if people or len(malformed) + counts["missing"] == len(read):
            kind = "preferences" if people else "verdicts"
            raise ValueError(
                f"{kind}: {bad} are none of {', '.join(meanings)}, such as"
                f" {listed(malformed[:1], cells)}: write them so, or as None"
            )
        some = listed(malformed, cells, most=3)
        warn(f"{bad} verdicts can't be read and count as none: {some}")
    account = {
        "missing": counts["missing"],
        "abstained": counts["abstain"],
        "malformed": len(malformed),
    }
    choice = np.array(read, dtype=object)
    choice[np.isin(choice, ["missing", "abstain"])] = None
    return choice, pd.notna(choice), account


def check_options(*, confidence: float = 0.95, n_resamples: int = 10_000) -> None:
    """Refuse a confidence or a number of resamples that can't be meant."""
    if not isinstance(confidence, numbers.Real) or not 0 < confidence < 1:
        raise ValueError(f"confidence must be a number between 0 and 1, not {confidence!r}")
    if not is_int_at_least(n_resamples, 0):
        raise ValueError(
            f"n_resamples must be a whole number, such as 10_000, from 0, not {n_resamples!r}"
        )
    if 0 < n_resamples < FEW_RESAMPLES:
        warn(f"n_resamples={n_resamples}: intervals of so few are rough; take 1,000 or more")


# --- Statistics

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
            bounds.append(interval(*row, method=method, n_units=units, confidence=confidence))
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
    grouped = "" if design.groups is None else f"{units} groups of "
    table.attrs["method"] = (
        f"{confidence:.0%} bootstrap intervals ({METHODS[method]}), {n_resamples:,} resamples of"
        f" {grouped}{len(design.cell)} {unit}, seed {seed}"
    )
    return table


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


# --- Numbers in print


def format_number(
    value: float,
    digits: int = 2,
    *,
    zero: bool = True,
) -> str:
    """A number as tables and figures print it: never -0.00, "n/a" where it is NaN.

    `zero`: whether the zero before the point is printed.

    >>> format_number(-0.001), format_number(-0.714, zero=False), format_number(float("nan"))
    ('0.00', '-.71', 'n/a')
    """
    if math.isnan(value):
        return "n/a"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text if zero else re.sub(r"^(-?)0\.", r"\1.", text)


def format_interval(
    estimate: float,
    low: float,
    high: float,
    digits: int = 2,
    *,
    zero: bool = True,
) -> str:
    """An estimate with its bounds, in more digits (up to five) where the bounds print alike.

    >>> format_interval(0.714, 0.618, 0.784), format_interval(0.9994, 0.9985, 0.9997)
    ('0.71 [0.62, 0.78]', '0.999 [0.999, 1.000]')
    """
    if math.isnan(low) or math.isnan(high):
        return format_number(estimate, digits, zero=zero)
    while digits < 5 and high - low > 1e-12:
        if format_number(low, digits) != format_number(high, digits):
            break
        digits += 1
    value = format_number(estimate, digits, zero=zero)
    below = format_number(low, digits, zero=zero)
    above = format_number(high, digits, zero=zero)
    return f"{value} [{below}, {above}]"


def format_p(p: float) -> str:
    """A p value with its relation.

    >>> format_p(0.0149), format_p(0.0001), format_p(1.0)
    ('= .015', '< .001', '= 1')
    """
    if math.isnan(p):
        return "n/a"
    if p < 0.001:
        return "< .001"
    if p > 0.9995:
        return "= 1"
    return "= " + format_number(p, 3, zero=False)
