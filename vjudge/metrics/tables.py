"""Columns as they come in, checked; statistics as they go out, with interval, counts and method; numbers in print."""

from __future__ import annotations

import math
import numbers
import re
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from vjudge.metrics.resampling import (
    Design,
    Floats,
    Integers,
    Statistic,
    constant_share,
    interval,
    replicates,
    values,
)
from vjudge.records import is_missing

Column: TypeAlias = Sequence[Any] | np.ndarray | pd.Series
Groups: TypeAlias = Column | None  # the group of each item: its image, its question
PANDAS = (pd.DataFrame, pd.Series)


def warn(message: str) -> None:
    """Warn at the line of the caller outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("vjudge."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def check_columns(**columns: Any) -> None:
    """Refuse what is no column, and columns of one table that differ in length or index; None is left out."""
    columns = {name: column for name, column in columns.items() if column is not None}
    for name, column in columns.items():
        if isinstance(column, str | bytes) or not hasattr(column, "__len__"):
            raise TypeError(
                f"{name} must be a sequence, one of each per item, not {type(column).__name__}"
            )
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name} has {len(column)}" for name, column in columns.items())
        raise ValueError(f"{lengths}: give one of each per item")
    (first, index), *others = [
        (n, c.index) for n, c in columns.items() if isinstance(c, PANDAS)
    ] or [("", None)]
    if unlike := [name for name, other in others if not other.equals(index)]:
        remedy = "align them first, or pass .to_numpy() if their order is the same"
        raise ValueError(f"{first} and {unlike[0]} have different indexes: {remedy}")


def scores(values: Any, *, name: str, by_design: bool = False) -> np.ndarray:
    """Numbers as float64, NaN where missing; chosen labels are refused unless weighted."""
    chooser = getattr(values, "attrs", {}).get("labelled_by")
    if chooser and not by_design:
        raise ValueError(
            f"{name} was labelled where {chooser} chose, which is no random sample: use correlate with "
            "weights=review.weights(), or the collection's column weight; or clear attrs if you know better"
        )
    check_columns(**{name: values})
    if getattr(values, "ndim", 1) != 1:
        raise ValueError(f"{name} must have one dimension, not {values.ndim}")
    if not isinstance(dtype := getattr(values, "dtype", None), np.dtype) or dtype.kind not in "iuf":
        values = [math.nan if cell is None or cell is pd.NA else cell for cell in values]
        bad = [
            i
            for i, cell in enumerate(values)
            if isinstance(cell, bool) or not isinstance(cell, numbers.Real)
        ]
        if bad:
            where = listed(bad, values)
            raise TypeError(
                f"{name} has values that are not numbers: {where}; convert them or set them to NaN"
            )
    scores = np.array(values, dtype=float)
    if (infinite := np.flatnonzero(np.isinf(scores))).size:
        raise ValueError(
            f"{name} has infinite values: {listed(infinite, scores)}; set them to NaN if missing"
        )
    return scores


def check_scaled(measure: str, *columns: Any) -> None:
    """Refuse scores of a value head, which have no scale that people's scores share."""
    for column in columns:
        if getattr(column, "attrs", {}).get("unbounded"):
            raise ValueError(
                f"{measure} needs scores on people's scale, and a value head's have none:"
                " use correlate, or compare and pairwise_accuracy"
            )


def positive(values: Any, used: np.ndarray, *, name: str) -> np.ndarray:
    """Numbers above 0 for the used items."""
    array = scores(values, name=name)
    if (bad := np.flatnonzero(used & ~(array > 0))).size:
        raise ValueError(f"{name} of items that count must be positive: {listed(bad, array)}")
    return array


def aligned(*, groups: Any = None, by_design: bool = False, **columns: Any) -> list[Any]:
    """Columns of scores of the same items, each as `scores` reads it, and last which items have all of them."""
    check_columns(**columns, groups=groups)
    arrays = [scores(values, name=name, by_design=by_design) for name, values in columns.items()]
    return [*arrays, ~np.isnan(arrays).any(axis=0)]


def label_text(label: Any) -> str | None:
    """A label as text, None where it is missing; 1, 1.0 and NumPy's are one label.

    pandas turns whole numbers into floats where one is missing.

    >>> label_text(1.0), label_text("1"), label_text(np.int64(1)), label_text(1.5), label_text(None)
    ('1', '1', '1', '1.5', None)
    """
    if is_missing(label):
        return None
    if isinstance(label, numbers.Real) and not isinstance(label, (bool, np.bool_)):
        number = float(label)
        return str(int(number)) if number.is_integer() else str(number)
    return str(label)


def listed(positions: Any, values: Any, *, most: int = 20) -> str:
    """Positions with their values, the first few of them, for an error message."""
    text = ", ".join(
        f"position {i}: {getattr(values[i], 'item', lambda i=i: values[i])()!r}"
        for i in positions[:most]
    )
    return text + (f" and {len(positions) - most} more" if len(positions) > most else "")


def group_codes(groups: Any, used: np.ndarray, *, name: str = "groups") -> np.ndarray:
    """Codes 0..G-1 of the groups of the used items, each its own for None; a used item without a group is refused."""
    if groups is None:
        return np.arange(int(used.sum()))
    labels = list(groups)
    codes = pd.factorize(pd.Series(labels, dtype=object))[0]
    if (bad := np.flatnonzero(used & (codes < 0))).size:
        raise ValueError(
            f"{name} are missing for scored items: {listed(bad, labels)}; name them, or leave these out"
        )
    return np.asarray(pd.factorize(codes[used])[0], dtype=np.int64)


def groups_of(run: pd.DataFrame) -> np.ndarray:
    """The unit of resampling of each row of a run: its group, its id where it names none."""
    ids = run["id"].map(str).to_numpy(dtype=object)
    labels = run["group"].to_numpy(dtype=object) if "group" in run else np.full(len(run), None)
    return np.array(
        [own if is_missing(label) else str(label) for label, own in zip(labels, ids, strict=True)],
        object,
    )


def design_of(cell: np.ndarray, groups: Any, used: np.ndarray) -> Design:
    """The design of the used items: their cells, drawn one by one or, with a label for each item, in whole groups."""
    codes = None if groups is None else group_codes(groups, used)
    return Design(np.reshape(cell, -1).astype(np.int64), codes, int((~used).sum()))


FEW_RESAMPLES = 100
CHOICES = ("a", "b", "tie")
# Beside these, the five answers of Arena-Hard, WildVision-Bench and their like, by who won.
SPELLINGS = {choice: choice for choice in (*CHOICES, "abstain")}
SPELLINGS |= {"A": "a", "B": "b", "A>>B": "a", "A>B": "a", "A=B": "tie", "B>A": "b", "B>>A": "b"}


def read_verdicts(
    verdicts: Column, *, meanings: Mapping[str, str] = SPELLINGS, people: bool = False
) -> tuple[Any, Any, dict[str, Any]]:
    """Each choice or None, by its spelling in any capitals, and an account of what is no verdict.

    A judge's malformed verdicts are counted and warned of; a column in which nothing can be read, or a person's choice
    that can't, is in another spelling, and a ValueError.
    """
    check_columns(verdicts=verdicts)
    folded = {spelling.casefold(): word for spelling, word in meanings.items()}
    read = [
        "missing" if is_missing(v) else folded.get(v.casefold()) if isinstance(v, str) else None
        for v in verdicts
    ]
    malformed = Counter(
        str(verdict)[:80] for verdict, word in zip(verdicts, read, strict=True) if word is None
    )
    if malformed and (people or not set(read) - {"missing", None}):
        what = f"{'preferences' if people else 'verdicts'}: {malformed.total()} of {len(read)}"
        first = f"such as {next(iter(malformed))!r} at position {read.index(None)}"
        raise ValueError(
            f"{what} are none of {', '.join(meanings)}, {first}: write them so, or as None"
        )
    if malformed:
        some = ", ".join(f"{n} x {text!r}" for text, n in malformed.most_common(3))
        warn(f"{malformed.total()} of {len(read)} verdicts can't be read and count as none: {some}")
    account = {
        "missing": read.count("missing"),
        "abstained": read.count("abstain"),
        "malformed": malformed.total(),
    }
    choice = np.array(
        [None if word in ("missing", "abstain") else word for word in read], dtype=object
    )
    return choice, pd.notna(choice), account | {"malformed_verdicts": dict(malformed.most_common())}


def check_options(*, confidence: float = 0.95, n_resamples: int = 10_000) -> None:
    """Refuse a confidence or a number of resamples that can't be meant."""
    if not isinstance(confidence, numbers.Real) or not 0 < confidence < 1:
        raise ValueError(f"confidence must be a number between 0 and 1, not {confidence!r}")
    if (
        isinstance(n_resamples, bool)
        or not isinstance(n_resamples, numbers.Integral)
        or n_resamples < 0
    ):
        raise ValueError(
            f"n_resamples must be a whole number, such as 10_000, and not negative, not {n_resamples!r}"
        )
    if 0 < n_resamples < FEW_RESAMPLES:
        warn(
            f"n_resamples={n_resamples}: intervals of so few resamples are rough; take 1,000 or more"
        )


METHODS = {
    "t": "Student's",
    "fisher": "Student's on Fisher's z scale",
    "logit": "Student's on the logit scale",
}


def tabulate(
    statistic: Statistic,
    names: Sequence[Any],
    design: Design,
    *,
    n: Any = None,
    missing: Any = None,
    method: str | Sequence[str] = "t",
    inflation: Floats | float = 1.0,
    width: int = 0,
    unit: str = "items",
    index: str | Sequence[str] = "statistic",
    why: str = "too few items, or no variation",
    no_width: bool = True,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Estimate several statistics of one sample, a row each: columns estimate, low, high, n, missing.

    The statistic is one of `resampling`, whose `interval` and `replicates` say what method, inflation and width are; n
    and missing are the design's where None; unit and why are words for a row of the sample and for what a NaN means.
    """
    check_options(confidence=confidence, n_resamples=n_resamples)
    table = pd.DataFrame(
        np.nan, index=pd.Index(list(names)).set_names(index), columns=["estimate", "low", "high"]
    )
    table["n"] = len(design.cell) if n is None else n
    table["missing"] = design.missing if missing is None else missing
    methods, factors = (np.broadcast_to(choice, len(table)) for choice in (method, inflation))
    if len(design.cell):
        table["estimate"] = values(statistic, design.counts[:, None])[:, 0]
    defined, units = table["estimate"].notna(), design.n_units
    _warn_undefined(table.index[~defined], why)
    if defined.any() and units < 2:
        warn(
            f"intervals are undefined: {'one item' if design.groups is None else 'all items belong to one group'}"
        )
    elif defined.any() and n_resamples:
        drawn = replicates(statistic, design, n_resamples=n_resamples, seed=seed, width=width)
        rows = zip(drawn, table["estimate"], methods, factors, strict=True)
        bounds = [interval(*row, n_units=units, confidence=confidence) for row in rows]
        table["low"], table["high"], left_out = np.transpose(bounds)
        narrow = np.isclose(table["low"], table["high"], rtol=0, atol=1e-12)
        if no_width and (flat := table.index[narrow]).size:
            same = ", ".join(map(str, flat))
            warn(
                f"{same}: all resamples give one value: an interval of no width says nothing beyond these items"
            )
        if (often := left_out[defined].max()) > 0.01:
            where = f"undefined in {often:.0%} of the resamples ({why})"
            warn(f"a statistic is {where}: its interval leaves them out and is too narrow")
    ways = ", ".join(dict.fromkeys(METHODS[way] for way in methods))
    of = (
        f"{len(design.cell)} {unit}"
        if design.groups is None
        else f"{units} groups of {len(design.cell)} {unit}"
    )
    text = f"{confidence:.0%} bootstrap intervals ({ways}), {n_resamples:,} resamples of {of}, seed {seed}"
    table.attrs = {"method": text}
    return table


def _warn_undefined(rows: pd.Index, why: str) -> None:
    if len(rows):
        warn(f"{', '.join(map(str, rows))}: undefined ({why})")


def shares(
    rows: Sequence[tuple[Any, NDArray[Any], NDArray[Any]]],
    *,
    groups: Column | None,
    unit: str,
    confidence: float = 0.95,
    index: str | Sequence[str] = "statistic",
    account: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Shares of one sample, a row each, with Wilson's interval at the effective number of cases; columns as `tabulate`.

    Rows are a name, and gain and weight of each of n cases, 0 <= gain <= weight: the share is the sum of gains over
    that of weights. Of shape (k, n) they are k shares, and the row is their plain mean. `account` is for attrs.

    The effective number is p (1 - p) over the variance of the share, summed by group; with groups Student's t takes the
    place of the normal quantile. In simulated groups of five 95 % intervals covered shares of .5 to .9 in 94 to 96 %
    with 12 to 100 groups, and a share of .97 in 91 % with 60 groups, 95 % with 200.

    Source: Wilson, JASA 22 (1927), 209-212; Korn and Graubard, Survey Methodology 24 (1998), 193-201.
    """
    check_options(confidence=confidence)
    parts = [[np.atleast_2d(np.asarray(column, dtype=float)) for column in row[1:]] for row in rows]
    used = np.any([weight.any(axis=0) for _, weight in parts], axis=0)
    codes, lines = group_codes(groups, used), []
    for gain, weight in parts:
        n, worth = int(weight.any(axis=0).sum()), np.where(weight > 0, gain, 0.0)[:, used]
        share = _share(
            worth, weight[:, used], codes, grouped=groups is not None, confidence=confidence
        )
        lines.append([*share, n, len(used) - n])
    names, columns = (
        pd.Index([row[0] for row in rows]).set_names(index),
        ["estimate", "low", "high", "n", "missing"],
    )
    table = pd.DataFrame(lines, index=names, columns=columns)
    defined = table["estimate"].notna()
    _warn_undefined(table.index[~defined], "nothing to count")
    if (single := table.index[defined & table["low"].isna()]).size:
        warn(
            f"intervals of {', '.join(map(str, single))} are undefined: all items belong to one group"
        )
    over = f"{int(used.sum())} {unit}"
    if groups is not None:
        over = (
            f"the effective number of {unit}, of {over} in {int(codes.max(initial=-1)) + 1} groups"
        )
    table.attrs = {"method": f"{confidence:.0%} Wilson intervals over {over}", **(account or {})}
    return table


def _share(
    gain: Floats, weight: Floats, codes: Integers, *, grouped: bool, confidence: float
) -> tuple[float, float, float]:
    """The mean of k shares with its bounds; gains and weights of shape (k, n)."""
    total = weight.sum(axis=1)
    if not len(total) or (total == 0).any():
        return math.nan, math.nan, math.nan
    each = gain.sum(axis=1) / total
    share = float(each.mean())
    units = len(np.unique(codes[weight.any(axis=0)]))
    if grouped and units < 2:
        return share, math.nan, math.nan
    by_unit = np.bincount(
        codes, weights=((gain - each[:, None] * weight) / total[:, None]).mean(axis=0)
    )
    variance = float(by_unit @ by_unit) * (units / (units - 1) if grouped else 1)
    tail = (1 + confidence) / 2
    q2 = float(stats.t.ppf(tail, units - 1) if grouped else stats.norm.ppf(tail)) ** 2
    if variance < 1e-20:
        of_each = [len(np.unique(codes[row > 0])) for row in weight]
        return share, *constant_share(share, len(of_each) ** 2 / sum(1 / n for n in of_each), q2)
    number = share * (1 - share) / variance
    centre = (share + q2 / (2 * number)) / (1 + q2 / number)
    reach = math.sqrt(q2 * (share * (1 - share) / number + q2 / (4 * number**2))) / (
        1 + q2 / number
    )
    return share, max(0.0, centre - reach), min(1.0, centre + reach)


def holm(p: Floats) -> Floats:
    """p values corrected for their number (Holm, Scandinavian Journal of Statistics 6, 1979); NaN isn't counted."""
    corrected = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: int((~np.isnan(p)).sum())]
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return corrected


def format_number(value: float, digits: int = 2, *, zero: bool = True) -> str:
    """A number as tables and figures print it: never -0.00, "n/a" where it is NaN; zero: the one before the point.

    >>> format_number(-0.001), format_number(-0.714, zero=False), format_number(float("nan"))
    ('0.00', '-.71', 'n/a')
    """
    if not math.isfinite(value):
        return "n/a" if math.isnan(value) else str(value)
    text = f"{value:.{digits}f}"
    text = text.removeprefix("-") if float(text) == 0 else text
    return text if zero else re.sub(r"^(-?)0\.", r"\1.", text)


def format_interval(
    estimate: float, low: float, high: float, digits: int = 2, *, zero: bool = True
) -> str:
    """An estimate with its bounds (unless NaN) in equal digits, up to five where the bounds would print alike.

    >>> format_interval(0.714, 0.618, 0.784), format_interval(0.9994, 0.9985, 0.9997), format_interval(0, -3e-17, 1e-17)
    ('0.71 [0.62, 0.78]', '0.999 [0.999, 1.000]', '0.00 [0.00, 0.00]')
    """
    if math.isnan(low) or math.isnan(high):
        return format_number(estimate, digits, zero=zero)
    while (
        high - low > 1e-12
        and digits < 5
        and format_number(low, digits) == format_number(high, digits)
    ):
        digits += 1
    value, below, above = (
        format_number(number, digits, zero=zero) for number in (estimate, low, high)
    )
    return f"{value} [{below}, {above}]"


def format_p(p: float, *, floor: float | None = None) -> str:
    """A p value with its sign of relation; floor: the least that permutations can give (`attrs["p_floor"]`).

    >>> format_p(0.0149), format_p(1 / 67, floor=1 / 67), format_p(0.0001), format_p(1.0)
    ('= .015', '<= .015', '< .001', '= 1')
    """
    if math.isnan(p):
        return "n/a"
    if floor is not None and p <= floor * (1 + 1e-9):
        return "<= " + f"{p:.2g}".replace("0.", ".", 1)
    if p < 0.001:
        return "< .001"
    return "= 1" if p > 0.9995 else "= " + format_number(p, 3, zero=False)
