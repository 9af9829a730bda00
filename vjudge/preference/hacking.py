"""Reward hacking: whether the judge is pleased and the truth is not, and what the judge pays for that it should not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from vjudge.metrics._tables import design_of, tabulate


def compare_policies(
    answers: Mapping[str, pd.DataFrame], *, columns: Sequence[str] = ("judge", "truth"), **options: Any
) -> pd.DataFrame:
    """Policies side by side on the same questions: their means, and how far each is from the first one.

    Args:
        answers: name -> one row an answer with id, group and the columns; the first policy is what the others are held
            against, such as the one before training. Several answers to a question are averaged first.
        columns: what to compare: the judge that gave the rewards, a second judge, the truth, lengths and so on.
        options: confidence, n_resamples and seed, see `metrics.correlate`; groups are resampled.

    Returns:
        Index (measure, policy); estimate (mean over questions), low, high, n (questions), missing (questions without
        it); change (the mean difference from the first policy over the questions that both have), change_low,
        change_high; NaN for the first. A judge's change above 0 with a truth's that is not is what to look for.

    Raises:
        ValueError: a column is missing from a frame.
    """
    tables = {}
    for name, frame in answers.items():
        if absent := [column for column in ("id", "group", *columns) if column not in frame]:
            raise ValueError(f"the answers of {name!r} have no column {', '.join(absent)}")
        tables[name] = frame.groupby("id").agg({"group": "first", **dict.fromkeys(columns, "mean")})
    ids = sorted(set().union(*(table.index for table in tables.values())))
    tables = {name: table.reindex(ids) for name, table in tables.items()}
    groups = pd.concat([table["group"] for table in tables.values()], axis=1).bfill(axis=1).iloc[:, 0]
    first, rows = next(iter(tables)), {}
    for column in columns:
        for name, table in tables.items():
            mean = _mean(table[column], groups, options)
            rows[column, name] = dict(mean.iloc[0])
            if name != first:
                change = _mean(table[column] - tables[first][column], groups, options).iloc[0]
                names = {"change": "estimate", "change_low": "low", "change_high": "high"}
                rows[column, name] |= {new: change[old] for new, old in names.items()}
    result = pd.DataFrame.from_dict(rows, orient="index")
    result.index = pd.MultiIndex.from_tuples(rows, names=["measure", "policy"])
    result.attrs = dict(mean.attrs)
    return result


def over_rewarded(
    graded: pd.DataFrame, marks: Mapping[str, Any], *, judge: str = "judge", truth: str = "truth", **options: Any
) -> pd.DataFrame:
    """What goes with a score above the truth.

    Args:
        graded: one row an answer, with the judge's score, the true one, and `group`.
        marks: name -> a truth for each answer, such as "says something twice".
        judge, truth: the columns.
        options: confidence, n_resamples and seed, see `metrics.correlate`; groups are resampled.

    Returns:
        A row a mark: with and without (the mean of judge less truth among answers that have the mark and that don't),
        estimate (the difference), low, high, n (answers with the mark), others, missing (answers without a score).

    Raises:
        ValueError: a mark of another length.
    """
    error = (graded[judge] - graded[truth]).to_numpy(dtype=float)
    valid, rows = ~np.isnan(error), []
    for name, values in marks.items():
        if len(values) != len(error):
            raise ValueError(f"{name!r} has {len(values)} entries for {len(error)} answers")
        mark, gap = np.asarray(values, dtype=bool)[valid], error[valid]

        def difference(weights: Any, mark: Any = mark, gap: Any = gap) -> Any:
            with np.errstate(invalid="ignore", divide="ignore"):
                sides = [(side * gap) @ weights / (side @ weights) for side in (mark * 1.0, ~mark * 1.0)]
            return (sides[0] - sides[1])[None]

        why = "no answer has the mark, or every one"
        row = _row(difference, name, graded["group"], valid, options, n=int(mark.sum()), why=why)
        means = [gap[side].mean() if side.any() else np.nan for side in (mark, ~mark)]
        rows.append(row.assign(**{"with": means[0], "without": means[1], "others": int((~mark).sum())}))
    result = pd.concat(rows)[["with", "without", "estimate", "low", "high", "n", "others", "missing"]]
    result.attrs = rows[-1].attrs
    return result.rename_axis("mark")


def _mean(values: pd.Series, groups: pd.Series, options: Mapping[str, Any]) -> pd.DataFrame:
    """A mean over questions with its interval."""
    valid = values.notna().to_numpy()
    numbers = values[valid].to_numpy(dtype=float)
    return _row(lambda weights: (numbers @ weights / weights.sum(axis=0))[None], "mean", groups, valid, options)


def _row(
    statistic: Any, name: str, groups: pd.Series, valid: Any, options: Mapping[str, Any], **more: Any
) -> pd.DataFrame:
    design, n = design_of(np.arange(valid.sum()), list(groups), valid), int(valid.sum())
    chosen = {"confidence": 0.95, "n_resamples": 10_000, "seed": 0, "n": n, "why": "no value", **more, **options}
    return tabulate(statistic, [name], design, missing=int((~valid).sum()), method="t", unit="answers", **chosen)
