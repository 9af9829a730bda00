"""Columns as they come in, and statistics as they go out.

In order: columns of scores, groups and verdicts, checked (`scores`, `group_codes`, `read_verdicts`); and statistics of
weights as rows of a frame with estimate, interval, counts, and the account of them in `attrs` (`tabulate`, `shares`).
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from vjudge.metrics._bootstrap import Design, Statistic, intervals, jackknife, replicates, values
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


def scores(values: Any, *, name: str, scale: tuple[float, float] | None = None) -> np.ndarray:
    """Scores as float64 with NaN for missing; anything but numbers on the scale is refused, position by position."""
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

METHODS = {
    "bca": "BCa",
    "percentile": "percentile",
    "t": "Student's",
    "fisher": "Student's on Fisher's z scale",
    "logit": "Student's on the logit scale",
}


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
    method: str | Sequence[str] = "bca",
    width: int = 0,
    unit: str = "items",
    index: str | Sequence[str] = "statistic",
    why: str = "too few items, or no variation",
    stacklevel: int = 3,
) -> pd.DataFrame:
    """Estimate several statistics of one sample, a row each.

    Args:
        statistic: from weights of shape (cells, replicates) to values of shape (rows, replicates).
        names: of the rows; tuples make a MultiIndex.
        design: what is drawn.
        n, missing: what each row is made of and what it leaves out; one number for all rows or one for each.
        confidence, n_resamples, seed: see `metrics._bootstrap.estimate`.
        method: one for all rows or one for each: see `metrics._bootstrap.intervals`; or "logit" for shares, Student's
            on the logit scale.
        width: see `metrics._bootstrap.replicates`.
        unit: the word for a row of the sample, in captions.
        index: name or names of the index.
        why: what a NaN means, for its warning.
        stacklevel: of the warnings; 3 points at the caller of the function that calls this one.

    Returns:
        Columns estimate, low, high, n, missing. `attrs` has method (in words, for a caption), confidence, n_resamples,
        seed, n_groups, and undefined_resamples: by row, the share of replicates that the interval leaves out.
    """
    check_options(confidence=confidence, n_resamples=n_resamples)
    multiple = isinstance(index, list | tuple)
    rows = pd.MultiIndex.from_tuples(names, names=index) if multiple else pd.Index(list(names), name=index)
    table = pd.DataFrame({"estimate": np.nan, "low": np.nan, "high": np.nan, "n": n, "missing": missing}, index=rows)
    undefined = np.full(len(table), np.nan)
    methods = [method] * len(table) if isinstance(method, str) else list(method)
    units, total = design.n_units, len(design.cell)
    if total and units > 1 and n_resamples:
        drawn = replicates(statistic, design, n_resamples=n_resamples, seed=seed, width=width)
        value = values(statistic, design.counts[:, None])[:, 0]
        gaps, copies = np.zeros_like(drawn), np.ones(0, dtype=np.int64)
        if "bca" in methods:
            gaps, copies = jackknife(statistic, design, width=width)
        bounds = np.empty((len(table), 2))
        for row, way in enumerate(methods):
            options: dict[str, Any] = dict(influence=(gaps[row], copies), n_units=units, confidence=confidence)
            if way == "logit":  # log-odds are twice Fisher's z of 2 p - 1
                bounds[row], undefined[row] = intervals(
                    2 * drawn[row] - 1, 2 * value[row] - 1, method="fisher", **options
                )
                bounds[row] = (bounds[row] + 1) / 2
            else:
                bounds[row], undefined[row] = intervals(drawn[row], value[row], method=way, **options)
        table["estimate"], table[["low", "high"]] = value, bounds
    elif total:
        table["estimate"] = values(statistic, design.counts[:, None])[:, 0]
    unknown = table.index[table["estimate"].isna()]
    if len(unknown):
        warnings.warn(f"{', '.join(map(str, unknown))}: undefined ({why})", stacklevel=stacklevel)
    if total and units < 2:
        single = "one item" if design.groups is None else "all items belong to one group"
        warnings.warn(f"intervals are undefined: {single}", stacklevel=stacklevel)
    elif n_resamples and total:
        _warn_of_weak_intervals(table, undefined, stacklevel + 1)
    ways = ", ".join(dict.fromkeys(METHODS[way] for way in methods))
    of = f"{total} {unit}" if design.groups is None else f"{units} groups of {total} {unit}"
    table.attrs = {
        "method": f"{confidence:.0%} bootstrap intervals ({ways}), {n_resamples:,} resamples of {of}, seed {seed}",
        "confidence": confidence,
        "n_resamples": n_resamples,
        "seed": seed,
        "n_groups": None if design.groups is None else units,
        "undefined_resamples": dict(zip(table.index, np.ravel(undefined).tolist(), strict=True)),
    }
    return table


def _warn_of_weak_intervals(table: pd.DataFrame, undefined: np.ndarray, stacklevel: int) -> None:
    known = table["estimate"].notna().to_numpy()
    flat = table.index[known & (table["low"] == table["high"]).to_numpy()]
    if len(flat):
        warnings.warn(
            f"{', '.join(map(str, flat))}: every resample gives the same value, so the interval has no width and says "
            "nothing beyond these items",
            stacklevel=stacklevel,
        )
    often = np.max(undefined[known], initial=0)
    if often > 0.01:
        warnings.warn(
            f"a statistic is undefined in {often:.0%} of the resamples: its interval leaves them out and is too narrow",
            stacklevel=stacklevel,
        )


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
    rows: Sequence[tuple[str, NDArray[Any], NDArray[np.bool_]]],
    *,
    groups: Labels | None,
    missing: int | Sequence[int],
    confidence: float,
    n_resamples: int,
    seed: int,
    unit: str,
    stacklevel: int = 4,
) -> pd.DataFrame:
    """Shares of one sample, a row each: Wilson intervals for independent rows, else the cluster bootstrap.

    Args:
        rows: name, value of each case (a truth, or a number in [0, 1]), and which cases count.
        groups, missing, confidence, n_resamples, seed, unit, stacklevel: see `tabulate`.
    """
    check_options(confidence=confidence, n_resamples=n_resamples)
    names = [name for name, _, _ in rows]
    worth = np.array([np.where(counted, value, 0) for _, value, counted in rows], dtype=float)
    counts = np.array([counted for _, _, counted in rows], dtype=float)
    used = np.asarray(counts.any(axis=0))
    cells, cell = np.unique(np.vstack([worth, counts])[:, used], axis=1, return_inverse=True)
    gain, weight = np.vsplit(cells, 2)
    n = [int(count) for count in counts.sum(axis=1)]
    whole = [groups is None and total > 0 and np.isin(row, (0, 1)).all() for row, total in zip(worth, n, strict=True)]
    with warnings.catch_warnings():
        if groups is None:  # what the bootstrap lacks at 0 and 1, or where few count, Wilson's interval has
            warnings.filterwarnings("ignore", message=".*no width.*|.*of the resamples.*")
        if all(whole):
            warnings.filterwarnings("ignore", message="intervals are undefined.*")
        table = tabulate(
            lambda w: np.asarray((gain @ w) / (weight @ w), dtype=float),
            names,
            design_of(np.reshape(cell, -1), groups, used),
            n=n,
            missing=missing,
            confidence=confidence,
            n_resamples=n_resamples,
            seed=seed,
            method="logit",
            unit=unit,
            why="nothing to count",
            stacklevel=stacklevel,
        )
    if groups is None:
        for row, (name, total) in enumerate(zip(names, n, strict=True)):
            if whole[row]:
                found = stats.binomtest(int(worth[row].sum()), total).proportion_ci(confidence, method="wilson")
                table.loc[name, ["low", "high"]] = [found.low, found.high]
        table.attrs["method"] = f"{confidence:.0%} Wilson intervals over {int(used.sum())} {unit}" + (
            ""
            if np.isin(worth, (0, 1)).all()
            else f"; halves: bootstrap (logit scale), {n_resamples:,} resamples, seed {seed}"
        )
    return table
