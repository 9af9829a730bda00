"""Columns as they come in, and statistics as they go out.

In order: columns of scores, groups and verdicts, checked (`scores`, `group_codes`, `read_verdicts`); and statistics of
weights as rows of a frame with estimate, interval, counts, and the account of them in `attrs` (`tabulate`, `shares`).
"""

from __future__ import annotations

import math
import numbers
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from vjudge.metrics._bootstrap import METHODS, Design, Floats, Statistic, interval, replicates, values
from vjudge.records import is_missing


def same_index(**columns: Any) -> None:
    """Series are aligned by position, so refuse those whose labels say otherwise."""
    series = {name: column for name, column in columns.items() if isinstance(column, pd.Series)}
    names = list(series)
    for name in names[1:]:
        if not series[name].index.equals(series[names[0]].index):
            raise ValueError(
                f"{names[0]} and {name} have different indexes: align them first, or pass .to_numpy() if their "
                "order is the same"
            )


def scores(values: Any, *, name: str, scale: tuple[float, float] | None = None, by_design: bool = False) -> np.ndarray:
    """Scores as float64 with NaN for missing; anything but numbers on the scale is refused, position by position.

    Labels that were chosen, and say so in `attrs["labelled_by"]`, are refused unless the caller weights them.
    """
    chooser = getattr(values, "attrs", {}).get("labelled_by")
    if chooser and not by_design:
        raise ValueError(
            f"{name} was labelled where {chooser} chose, which is no random sample: use correlate with "
            "weights=review.weights(), or the collection's column weight; or clear attrs if you know better"
        )
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"{name} must be a sequence of numbers, not {type(values).__name__}")
    if getattr(values, "ndim", 1) != 1:
        raise ValueError(f"{name} must have one dimension, not {values.ndim}")
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        scores = np.asarray(values, dtype=float)
    else:
        cells = list(values)
        missing = [cell is None or cell is pd.NA for cell in cells]
        bad = [i for i, cell in enumerate(cells) if not missing[i] and not _is_number(cell)]
        if bad:
            raise TypeError(
                f"{name} has values that are not numbers: {listed(bad, cells)}; convert them or set them to NaN"
            )
        scores = np.array([math.nan if gone else float(cell) for cell, gone in zip(cells, missing, strict=True)])
    infinite = np.flatnonzero(np.isinf(scores))
    if len(infinite):
        raise ValueError(f"{name} has infinite values: {listed(infinite.tolist(), scores)}; set them to NaN if missing")
    if scale is not None:
        check_scale(scale)
        off = np.flatnonzero((scores < scale[0]) | (scores > scale[1])).tolist()
        if off:
            raise ValueError(
                f"{name} has scores off the scale {scale[0]:g} to {scale[1]:g}: {listed(off, scores)}; correct them or "
                "set them to NaN"
            )
    return scores


def aligned(
    *, groups: Any = None, scale: tuple[float, float] | None = None, by_design: bool = False, **columns: Any
) -> list[np.ndarray]:
    """Columns of scores of the same items, each as `scores` reads it; indexes or lengths that differ are refused."""
    same_index(**columns, groups=groups)
    arrays = [scores(values, name=name, scale=scale, by_design=by_design) for name, values in columns.items()]
    if len({len(array) for array in arrays}) > 1:
        lengths = " and ".join(f"{name} has {len(array)} scores" for name, array in zip(columns, arrays, strict=True))
        raise ValueError(f"{lengths}: give one of each per item")
    return arrays


def check_scale(scale: tuple[float, float]) -> None:
    """Refuse a scale that is not its lowest and its highest score."""
    if len(scale) != 2 or not scale[0] < scale[1]:
        raise ValueError(f"scale must be the lowest and the highest score, such as (1, 5), not {scale}")


def listed_twice(names: Iterable[str]) -> str:
    """The names that stand more than once, for an error message."""
    return ", ".join(name for name, count in Counter(names).items() if count > 1)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, numbers.Real) and not isinstance(cell, bool | np.bool_)


def group_codes(groups: Any, used: np.ndarray, *, name: str = "groups") -> np.ndarray:
    """Codes 0..G-1 of the groups of the used items; a used item without a group is refused."""
    labels = list(groups)
    if len(labels) != len(used):
        raise ValueError(f"{name} has {len(labels)} labels for {len(used)} items: give one per item")
    codes = pd.factorize(pd.Series(labels, dtype=object))[0]
    bad = np.flatnonzero(used & (codes < 0)).tolist()
    if bad:
        raise ValueError(f"{name} are missing for scored items: {listed(bad, labels)}; name them or pass {name}=None")
    return np.asarray(pd.factorize(codes[used])[0], dtype=np.int64)


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python prints it."""
    return value.item() if isinstance(value, np.generic) else value


def listed(positions: list[int], values: Any, *, most: int = 20) -> str:
    """Positions with their values, the first few of them, for an error message."""
    shown = ", ".join(f"position {i}: {_plain(values[i])!r}" for i in positions[:most])
    return shown + (f" and {len(positions) - most} more" if len(positions) > most else "")


CHOICES = ("a", "b", "tie")
# The five answers of Arena-Hard, WildVision-Bench and their like, by who won.
FIVE_POINT = {"A>>B": "a", "A>B": "a", "A=B": "tie", "B>A": "b", "B>>A": "b"}


@dataclass(frozen=True)
class Verdicts:
    """Verdicts sorted from what is none.

    Args:
        choice: "a", "b", "tie" or None, one for each comparison.
        missing, abstained: comparisons without a verdict, and with an abstention.
        malformed: what was no verdict, and how often it occurs, the commonest first.
    """

    choice: NDArray[np.object_]
    missing: int
    abstained: int
    malformed: dict[str, int]

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which comparisons have a verdict."""
        return np.array([choice is not None for choice in self.choice], dtype=bool)

    @property
    def account(self) -> dict[str, Any]:
        """Comparisons without a verdict by reason, as frames carry it in `attrs`."""
        return {
            "missing": self.missing,
            "abstained": self.abstained,
            "malformed": sum(self.malformed.values()),
            "malformed_verdicts": self.malformed,
        }


def read_verdicts(
    verdicts: Sequence[Any] | np.ndarray | pd.Series, *, labels: Mapping[Any, str] | None = None
) -> Verdicts:
    """Sort verdicts from missing, abstaining and malformed ones.

    Args:
        verdicts: one for each comparison.
        labels: spelling -> "a", "b", "tie" or "abstain", exactly as it stands; for example `FIVE_POINT`. None reads
            these four words. What is no spelling of a verdict is malformed; nothing is guessed.

    Raises:
        TypeError: verdicts is no sequence.
        ValueError: a label stands for something that is no verdict.
    """
    if isinstance(verdicts, str | bytes) or not hasattr(verdicts, "__len__"):
        raise TypeError(f"verdicts must be a sequence, not {type(verdicts).__name__}")
    known = {name: name for name in (*CHOICES, "abstain")} if labels is None else dict(labels)
    wrong = sorted({str(meaning) for meaning in known.values()} - {*CHOICES, "abstain"})
    if wrong:
        raise ValueError(f"labels may stand for a, b, tie and abstain, not {', '.join(wrong)}")
    choice = np.empty(len(verdicts), dtype=object)
    counts: Counter[str] = Counter()
    malformed: Counter[str] = Counter()
    for position, verdict in enumerate(verdicts):
        if is_missing(verdict):
            counts["missing"] += 1
            continue
        try:
            meaning = known.get(verdict)
        except TypeError:  # unhashable: a list, say
            meaning = None
        if meaning is None:
            malformed[str(verdict)[:80]] += 1
        elif meaning == "abstain":
            counts["abstained"] += 1
        else:
            choice[position] = meaning
    return Verdicts(choice, counts["missing"], counts["abstained"], dict(malformed.most_common()))


Labels: TypeAlias = Sequence[Any] | np.ndarray | pd.Series
Scores: TypeAlias = Sequence[float] | np.ndarray | pd.Series

MOST_DIGITS = 5  # of a bound in print
ROUNDING = 1e-12  # bounds that differ by less are one number


def check_options(*, confidence: float, n_resamples: int = 0) -> None:
    """Refuse a confidence or a number of resamples that can't be meant."""
    if isinstance(confidence, bool) or not isinstance(confidence, numbers.Real):
        raise TypeError(f"confidence must be a number between 0 and 1, not {confidence!r}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    if isinstance(n_resamples, bool) or not isinstance(n_resamples, numbers.Integral):
        raise TypeError(f"n_resamples must be a whole number, such as 10_000, not {n_resamples!r}")
    if n_resamples < 0:
        raise ValueError(f"n_resamples must not be negative, not {n_resamples}")


def tabulate(
    statistic: Statistic,
    names: Sequence[Any],
    design: Design,
    *,
    n: int | Sequence[int],
    missing: int | Sequence[int] = 0,
    confidence: float,
    n_resamples: int,
    seed: int,
    method: str | Sequence[str] = "t",
    inflation: Floats | float = 1.0,
    width: int = 0,
    unit: str = "items",
    index: str | Sequence[str] = "statistic",
    why: str = "too few items, or no variation",
    undefined: str | None = None,
    stacklevel: int = 3,
) -> pd.DataFrame:
    """Estimate several statistics of one sample, a row each.

    Args:
        statistic: from weights of shape (cells, replicates) to values of shape (rows, replicates).
        names: of the rows; tuples make a MultiIndex.
        design: what is drawn.
        n, missing: what each row is made of and what it leaves out; one number for all rows or one for each.
        confidence, n_resamples, seed: see `correlate`.
        method: one for all rows or one for each, see `metrics._bootstrap.interval`.
        inflation: see there; one for all rows or one for each.
        width: see `metrics._bootstrap.replicates`.
        unit: the word for a row of the sample, in captions.
        index: name or names of the index.
        why: what a NaN means, for its warning.
        undefined: why every row is undefined, where that is plain beforehand; nothing is drawn then.
        stacklevel: of the warnings; 3 points at the caller of the function that calls this one.

    Returns:
        Columns estimate, low, high, n, missing. `attrs` has method (in words, for a caption), confidence, n_resamples,
        seed, n_groups, and undefined_resamples: by row, the share of replicates that the interval leaves out.
    """
    check_options(confidence=confidence, n_resamples=n_resamples)
    multiple = isinstance(index, list | tuple)
    rows = pd.MultiIndex.from_tuples(names, names=index) if multiple else pd.Index(list(names), name=index)
    table = pd.DataFrame({"estimate": np.nan, "low": np.nan, "high": np.nan, "n": n, "missing": missing}, index=rows)
    left_out = np.full(len(table), np.nan)  # share of the replicates
    methods = [method] * len(table) if isinstance(method, str) else list(method)
    units, total = design.n_units, 0 if undefined else len(design.cell)
    if total:
        table["estimate"] = values(statistic, design.counts[:, None])[:, 0]
    if total and units > 1 and n_resamples:
        drawn = replicates(statistic, design, n_resamples=n_resamples, seed=seed, width=width)
        inflations = np.broadcast_to(inflation, len(table))
        for row, way in enumerate(methods):
            value = float(table["estimate"].iloc[row])
            options: dict[str, Any] = dict(n_units=units, confidence=confidence, method=way)
            low, high, left_out[row] = interval(drawn[row], value, inflation=inflations[row], **options)
            if way == "logit" and low == high:  # every resample agrees
                low, high = _constant_share(value, units, stats.t.ppf((1 + confidence) / 2, units - 1) ** 2)
            table.iloc[row, 1:3] = [low, high]
    unknown = table.index[table["estimate"].isna()]
    if len(unknown):
        warnings.warn(f"{', '.join(map(str, unknown))}: undefined ({undefined or why})", stacklevel=stacklevel)
    if total and units < 2:
        single = "one item" if design.groups is None else "all items belong to one group"
        warnings.warn(f"intervals are undefined: {single}", stacklevel=stacklevel)
    elif n_resamples and total:
        _warn_of_weak_intervals(table, left_out, stacklevel + 1)
    ways = ", ".join(dict.fromkeys(METHODS[way] for way in methods))
    size = f"{len(design.cell)} {unit}"
    of = size if design.groups is None else f"{units} groups of {size}"
    table.attrs = {
        "method": f"{confidence:.0%} bootstrap intervals ({ways}), {n_resamples:,} resamples of {of}, seed {seed}",
        "confidence": confidence,
        "n_resamples": n_resamples,
        "seed": seed,
        "n_groups": None if design.groups is None else units,
        "undefined_resamples": dict(zip(table.index, left_out.tolist(), strict=True)),
    }
    return table


def _warn_of_weak_intervals(table: pd.DataFrame, undefined: np.ndarray, stacklevel: int) -> None:
    defined = table["estimate"].notna().to_numpy()
    flat = table.index[defined & (table["low"] == table["high"]).to_numpy()]
    if len(flat):
        warnings.warn(
            f"{', '.join(map(str, flat))}: every resample gives the same value, so the interval has no width and says "
            "nothing beyond these items",
            stacklevel=stacklevel,
        )
    often = np.max(undefined[defined], initial=0)
    if often > 0.01:
        warnings.warn(
            f"a statistic is undefined in {often:.0%} of the resamples (a score is constant there): its interval "
            "leaves them out and is too narrow",
            stacklevel=stacklevel,
        )


def format_number(value: float, digits: int = 2, *, zero: bool = True) -> str:
    """A number as tables and figures print it: never -0.00, "n/a" where it is NaN.

    Args:
        value: the number.
        digits: after the point.
        zero: whether the zero before the point of 0.71 stays.

    >>> from vjudge.metrics._tables import format_number
    >>> format_number(-0.001), format_number(-0.714, zero=False), format_number(float("nan"))
    ('0.00', '-.71', 'n/a')
    """
    if not math.isfinite(value):
        return "n/a" if math.isnan(value) else str(value)
    text = f"{value:.{digits}f}"
    text = text.removeprefix("-") if float(text) == 0 else text
    return text if zero else re.sub(r"^(-?)0\.", r"\1.", text)


def format_interval(estimate: float, low: float, high: float, digits: int = 2, *, zero: bool = True) -> str:
    """An estimate with its bounds, all with the same number of digits, so that the bounds hold the estimate in print.

    Digits grow, by three at most, where two bounds that differ would print alike.

    Args:
        estimate, low, high: the numbers; bounds that are NaN aren't printed.
        digits, zero: see `format_number`.

    >>> from vjudge.metrics._tables import format_interval
    >>> format_interval(0.714, 0.618, 0.784), format_interval(0.9994, 0.9985, 0.9997), format_interval(0, -3e-17, 1e-17)
    ('0.71 [0.62, 0.78]', '0.999 [0.999, 1.000]', '0.00 [0.00, 0.00]')
    """
    if math.isnan(low) or math.isnan(high):
        return format_number(estimate, digits, zero=zero)
    # "-0.0" and "0.0" are one number in print, and so are bounds that differ by a computer's rounding alone.
    while high - low > ROUNDING and digits < MOST_DIGITS and format_number(low, digits) == format_number(high, digits):
        digits += 1
    value, below, above = (format_number(number, digits, zero=zero) for number in (estimate, low, high))
    return f"{value} [{below}, {above}]"


def format_p(p: float, *, floor: float | None = None) -> str:
    """A p value with its sign of relation: "= .015", "< .001", "<= .0001" at the floor of its permutations.

    Args:
        p: the p value.
        floor: the least p that the permutations can give, `attrs["p_floor"]` of a table; None for an exact test.

    >>> from vjudge.metrics._tables import format_p
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


def holm(p: Floats) -> Floats:
    """p values corrected for their number by Holm's method; NaN stays NaN and isn't counted.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979), 65-70.
    """
    corrected = np.full(len(p), np.nan)
    defined = np.flatnonzero(~np.isnan(p))
    order = defined[np.argsort(p[defined], kind="stable")]
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return corrected


def design_of(cell: np.ndarray, groups: Any, used: np.ndarray) -> Design:
    """The design of the used items: their cells, drawn one by one or in whole groups.

    Args:
        cell: of the used items.
        groups: the label of each item, used or not; None draws items.
        used: which items are used.

    Raises:
        ValueError: a used item has no group, or labels and items differ in number.
    """
    return Design(np.asarray(cell, dtype=np.int64), None if groups is None else group_codes(groups, used))


def shares(
    rows: Sequence[tuple[Any, NDArray[Any], NDArray[Any]]],
    *,
    groups: Labels | None,
    confidence: float,
    unit: str,
    index: str | Sequence[str] = "statistic",
    stacklevel: int = 3,
) -> pd.DataFrame:
    """Shares of one sample, a row each, with Wilson's interval at the effective number of cases.

    Args:
        rows: name, gain and weight of each of n cases, 0 <= gain <= weight; the share is the sum of gains over the sum
            of weights. Gains and weights of shape (k, n) are k shares, and the row is their plain mean.
        groups: the group of each case; None takes cases as independent.
        confidence, unit, index, stacklevel: see `tabulate`.

    Returns:
        Columns as `tabulate`: n counts the cases with a weight, missing the others.

    The effective number is p (1 - p) over the variance of the share, which is linearised and summed by group; for
    independent cases of gain 0 or 1 it is n. With groups Student's t takes the place of the normal quantile, with one
    degree of freedom less than groups. Where every unit has one and the same share v, the variance says nothing: Wilson
    bounds the share u of units that could have another, and the interval is v (1 - u) to v + (1 - v) u. In simulated
    samples of groups of five with an intraclass correlation of 1/3, 95 % intervals covered shares of .5 to .9 in 94 to
    96 % with 12 to 100 groups, and a share of .97 in 91 % with 60 groups, 95 % with 200.

    Source: Wilson, JASA 22 (1927), 209-212; Korn and Graubard, Survey Methodology 24 (1998), 193-201, for the effective
    number.
    """
    check_options(confidence=confidence)
    counted = [np.atleast_2d(np.asarray(weight, dtype=float)) for _, _, weight in rows]
    used = np.any([weight.any(axis=0) for weight in counted], axis=0)
    codes = np.arange(int(used.sum())) if groups is None else group_codes(groups, used)
    n_groups = int(codes.max(initial=-1)) + 1
    values, ns = [], list[int]()
    for (_, gain, _), weight in zip(rows, counted, strict=True):
        weight, ns = weight[:, used], [*ns, int(weight.any(axis=0).sum())]
        worth = np.where(weight > 0, np.atleast_2d(np.asarray(gain, dtype=float))[:, used], 0.0)
        values.append(_share(worth, weight, codes, grouped=groups is not None, confidence=confidence))
    multiple = isinstance(index, list | tuple)
    names = [name for name, _, _ in rows]
    labels = pd.MultiIndex.from_tuples(names, names=index) if multiple else pd.Index(names, name=index)
    table = pd.DataFrame(values, index=labels, columns=["estimate", "low", "high"], dtype=float)
    table["n"], table["missing"] = ns, len(used) - np.array(ns, dtype=int)
    if (unknown := table.index[table["estimate"].isna()]).size:
        warnings.warn(f"{', '.join(map(str, unknown))}: undefined (nothing to count)", stacklevel=stacklevel)
    if (single := table.index[table["estimate"].notna() & table["low"].isna()]).size:
        which = "" if len(single) == len(table) else f" of {', '.join(map(str, single))}"
        warnings.warn(f"intervals{which} are undefined: all items belong to one group", stacklevel=stacklevel)
    over = f"{int(used.sum())} {unit}"
    if groups is not None:
        over = f"the effective number of {unit}, of {over} in {n_groups} groups"
    table.attrs = {
        "method": f"{confidence:.0%} Wilson intervals over {over}",
        "confidence": confidence,
        "n_groups": None if groups is None else n_groups,
    }
    return table


def _constant_share(share: float, units: float, q2: float) -> tuple[float, float]:
    """Bounds of a share that is the same in each of so many units: Wilson's on the units that could have another."""
    other = q2 / (units + q2)
    return share * (1 - other), share + (1 - share) * other


def _share(
    gain: NDArray[np.float64], weight: NDArray[np.float64], codes: np.ndarray, *, grouped: bool, confidence: float
) -> tuple[float, float, float]:
    """The mean of k shares with its bounds; gains and weights of shape (k, n)."""
    total = weight.sum(axis=1)
    if not len(total) or (total == 0).any():
        return math.nan, math.nan, math.nan
    each = gain.sum(axis=1) / total
    share = float(each.mean())
    influence = ((gain - each[:, None] * weight) / total[:, None]).mean(axis=0)
    present = np.bincount(codes, weights=weight.any(axis=0)) > 0
    units = int(present.sum())
    if grouped and units < 2:
        return share, math.nan, math.nan
    by_unit = np.bincount(codes, weights=influence)
    variance = float(by_unit @ by_unit) * (units / (units - 1) if grouped else 1)
    tail = (1 + confidence) / 2
    q2 = float(stats.t.ppf(tail, units - 1) if grouped else stats.norm.ppf(tail)) ** 2
    if variance < 1e-20:
        of_each = [len(np.unique(codes[row > 0])) for row in weight]
        number = len(of_each) ** 2 / sum(1 / n for n in of_each)
        return share, *_constant_share(share, number, q2)
    number = share * (1 - share) / variance
    centre = (share + q2 / (2 * number)) / (1 + q2 / number)
    reach = math.sqrt(q2 * (share * (1 - share) / number + q2 / (4 * number**2))) / (1 + q2 / number)
    return share, max(0.0, centre - reach), min(1.0, centre + reach)
