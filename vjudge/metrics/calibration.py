"""Compare a judge's scores with human scores of the same items: calibration curve, bias, error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Column, Groups, Weights
from vjudge.metrics.caveats import add_caveats, warn
from vjudge.metrics.columns import check_options, check_scale, read_scores
from vjudge.metrics.groups import design_of, group_codes, groups_from_ids
from vjudge.metrics.intervals import degrees_of_freedom, t_quantile
from vjudge.metrics.tables import tabulate
from vjudge.records import is_int_at_least


def calibration_curve(
    judge: Column,
    human: Column,
    *,
    bins: int | None = None,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Average the human score at each score of the judge, or in bins of its scores.

    For a calibrated judge both are equal: the points lie on the diagonal.

    Args:
        judge, human: scores of n items, NaN where missing.
        bins: None makes a row for each score of the judge. A number makes that many bins of about
            equal counts (fewer where scores tie).
        groups, confidence: as in `correlate`.

    Returns:
        One row per bin, lowest first: judge, human (mean scores), low, high (Student's t), n,
        share (of all items) and missing (items without both scores). The interval is NaN, with a
        warning, in a bin of one item, one group or one human score.

    Raises:
        ValueError: `bins` is not a whole number from 1.

    Source: reliability diagrams, Niculescu-Mizil and Caruana, ICML 2005, of scores.

    >>> calibration_curve([1, 1, 2, 2], [1, 2, 3, 4])[["judge", "human", "n"]].values.tolist()
    [[1.0, 1.5, 2.0], [2.0, 3.5, 2.0]]
    """
    check_options(confidence=confidence)
    groups, caveats = groups_from_ids(judge, groups)
    (x, y), used = read_scores(judge=judge, human=human, groups=groups)
    if bins is not None and not is_int_at_least(bins, 1):
        raise ValueError(f"bins must be a whole number from 1, or None, not {bins!r}")
    frame = pd.DataFrame({"judge": x[used], "human": y[used], "bin": x[used]})
    frame["unit"] = group_codes(groups, used)
    # 1) Mean scores in each bin, with intervals; without bins, each score of the judge is one
    if bins is not None and len(frame):
        edges = np.unique(np.quantile(frame["judge"], np.linspace(0, 1, bins + 1)[1:-1]))
        frame["bin"] = np.searchsorted(edges, frame["judge"], side="right")
    by_bin = frame.groupby("bin")
    table = by_bin[["judge", "human"]].mean()
    half_width = _half_widths(frame, confidence)
    table["low"] = table["human"] - half_width
    table["high"] = table["human"] + half_width
    table["n"] = by_bin.size()
    table["share"] = table["n"] / len(frame)
    # 2) Counts, warnings and the method; a half width of NaN is an undefined interval
    n_without = int(half_width.isna().sum())
    if n_without or table.empty:
        warn(
            f"intervals are undefined in {n_without} of {len(table)} bins (of one item or group, or"
            " of one human score: give bins=, or more items)"
        )
    unit = "items" if groups is None else "groups"
    table = table.reset_index(drop=True).assign(missing=int((~used).sum()))
    table.attrs["method"] = (
        f"{confidence:.0%} intervals by Student's t over {unit}; {len(frame)} items"
    )
    add_caveats(table, caveats)
    return table


def _half_widths(frame: pd.DataFrame, confidence: float) -> pd.Series:
    """Compute the half width of the interval of each bin's mean human score.

    The standard error of a mean over n items in G units is sqrt(sum of d_g^2 * G / (G - 1)) / n,
    where d_g is the sum of unit g's deviations from the mean.

    Args:
        frame: one row per item: columns human, bin, unit.

    Returns:
        A half width per bin; NaN for a bin of one item, one unit or one human score.
    """
    by_bin = frame.groupby("bin")["human"]
    deviation = frame["human"] - by_bin.transform("mean")
    by_unit = deviation.groupby([frame["bin"], frame["unit"]]).agg(["sum", "size"])
    units_of_bin = by_unit.groupby("bin")["size"]
    n_units = units_of_bin.size()
    squares = (by_unit["sum"] ** 2).groupby("bin").sum()
    error = np.sqrt(squares * n_units / (n_units - 1)) / by_bin.size()
    error = error.where(by_bin.nunique() > 1)  # equal scores do not show how much they vary
    return t_quantile(confidence, units_of_bin.agg(degrees_of_freedom)) * error


def calibration_errors(
    judge: Column,
    human: Column,
    *,
    scale: tuple[float, float] | pd.DataFrame | None = None,
    groups: Groups = None,
    n_resamples: int = 2_000,
    **options: Any,
) -> pd.DataFrame:
    """Measure bias (mean of judge minus human score) and mae (mean absolute error).

    Args:
        judge, human: scores of n items on one scale, NaN where missing.
        scale: its lowest and highest score, or a run's columns `lowest` and `highest` (NaN for a
            value head). It only serves to check the scores; None does not check them.
        groups, n_resamples, options: as in `correlate`.

    Returns:
        Rows bias and mae, with columns as `correlate`.

    Raises:
        ValueError: scores outside of the scale, or scores for which it is NaN.

    Source: Willmott and Matsuura, Climate Research 30 (2005), 79-82.

    >>> calibration_errors([2, 3, 4, 5], [1, 2, 3, 5], n_resamples=0)["estimate"].to_dict()
    {'bias': 0.75, 'mae': 0.75}
    """
    groups, caveats = groups_from_ids(judge, groups)
    (x, y), used = read_scores(judge=judge, human=human, groups=groups)
    if isinstance(scale, pd.DataFrame):
        check_scale("calibration_errors", scale.to_numpy(dtype=float).T, judge=x, human=y)
    elif scale is not None:
        check_scale("calibration_errors", scale, judge=x, human=y)
    error = (x - y)[used]

    def bias_and_mae(weights: Weights) -> np.ndarray:
        """Compute both means from weights of items, (items, replicates); (2, replicates)."""
        return np.stack([error, np.abs(error)]) @ weights / weights.sum(axis=0)

    table = tabulate(
        bias_and_mae,
        ["bias", "mae"],
        design_of(np.arange(len(error)), groups, used),  # each item is a cell of its own
        n_resamples=n_resamples,
        reason="too few items",
        **options,
    )
    add_caveats(table, caveats)
    return table
