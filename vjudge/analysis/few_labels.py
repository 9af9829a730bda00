"""Correct a judge's mean score and its share of good answers by the truth of a few random items."""

from __future__ import annotations

import numpy as np
from pandas import DataFrame, Series

from vjudge import metrics
from vjudge.analysis import readings
from vjudge.analysis.scales import comparable_scores, rescaled
from vjudge.analysis.tables import RatingTable
from vjudge.metrics.intervals import INTERVAL
from vjudge.plots.style import short
from vjudge.results import NotComputed, Result, current

GOOD = 0.75  # an answer is good whose score is at least this share of the way up the scale

Estimate = tuple[dict[str, float], list[str]]  # the numbers of one row, and their caveats


def correct_by_labels(
    table: RatingTable, labels: int, threshold: float | None, seed: int | None
) -> Result:
    """Correct every judge's numbers by the truth of a few random items.

    Args:
        table: the scores.
        labels: the number of items whose truth is used as a label.
        threshold: the lowest score of a good answer; None means `GOOD`.
        seed: the seed of the draw; None means that of `settings`.

    Returns:
        The result of `Scores.corrected`, whose table also has `holds_people`: whether the corrected
        interval contains the value by people's scores of all items.

    Raises:
        NotComputed: no more items than `labels` have a truth, or no judge shares its scale.
    """
    judged = comparable_scores(table)
    truth = judged.truth
    n_true = int(truth.notna().sum())
    if n_true <= labels:
        raise NotComputed(f"{n_true} items have a truth: draw fewer than that, labels=")
    if threshold is None:
        lowest, highest = table.scale or (truth.min(), truth.max())
        threshold = lowest + GOOD * (highest - lowest)

    # 1) Keep the truth of random items as labels
    rng = np.random.default_rng(current().seed if seed is None else seed)
    drawn = rng.choice(np.flatnonzero(truth.notna()), size=labels, replace=False)
    labelled = truth.where(np.isin(np.arange(len(truth)), drawn))

    # 2) Correct each judge
    rows = []
    caveats = list(judged.caveats)
    for judge in judged.rows["judge"].unique():
        columns = DataFrame({"judge": rescaled(table, judge), "labels": labelled, "people": truth})
        # Quantity -> its numbers and their caveats
        estimates = {"mean score": _corrected_mean(columns, table.groups)}
        try:
            share = _corrected_share(columns, threshold, table.groups)
            estimates[f"share of {threshold:g} or more"] = share
        except ValueError as error:  # too few labels
            caveats.append(f"{judge}: no corrected share of {threshold:g} or more: {error}")
        for quantity, (numbers, limits) in estimates.items():
            rows.append({"quantity": quantity, "judge": judge, **numbers})
            caveats += [f"{judge}, {quantity}: {text}" for text in limits]
    corrected = DataFrame(rows)
    corrected["holds_people"] = corrected["people"].between(corrected["low"], corrected["high"])

    return table._result(
        corrected,
        name="corrected",
        reading=_reading(corrected, truth),
        caption=(
            f"Corrected by {labels} random labels of {n_true:,} (a good answer has {threshold:g}"
            " or more)"
        ),
        caveats=caveats,
    )


def _reading(corrected: DataFrame, truth: Series) -> str:
    """State the mean score by the first three judges, alone and corrected, and by people."""
    texts = []
    means = corrected[corrected["quantity"] == "mean score"].head(3)
    for _, row in means.rename(columns={"corrected": "estimate"}).iterrows():
        alone = short(row["judge_alone"])
        texts.append(f"{row['judge']} alone says {alone}, corrected {readings.bounds(row)}")
    return f"Mean score: {'; '.join(texts)}; people say {short(truth.mean())} on all items."


def _corrected_mean(columns: DataFrame, groups: Series | None) -> Estimate:
    """Estimate the mean score of all items by prediction-powered inference.

    Args:
        columns: one row per item, with the scores of the judge, the labels (NaN where the item was
            not drawn), and the scores of people.
        groups: the unit of resampling of each item.
    """
    table = metrics.prediction_powered_mean(columns["judge"], columns["labels"], groups=groups)
    labels_alone = table.loc["labels_alone", "estimate"]
    return _estimate(columns, table.loc["prediction_powered"], labels_alone), table.attrs["caveats"]


def _corrected_share(columns: DataFrame, threshold: float, groups: Series | None) -> Estimate:
    """Estimate the share of items with a score of `threshold` or more.

    Args:
        columns, groups: as for `_corrected_mean`.
        threshold: the lowest score of a good answer.

    Raises:
        ValueError: there are too few labels.
    """
    is_good = columns.ge(threshold).astype(float).where(columns.notna())  # 1, 0 or NaN
    rate = metrics.corrected_rate_from_labels(is_good["judge"], is_good["labels"], groups=groups)
    return _estimate(is_good, rate, is_good["labels"].mean()), rate.attrs["caveats"]


def _estimate(columns: DataFrame, interval: Series, labels_alone: float) -> dict[str, float]:
    """Put the corrected estimate beside those by the judge, by the labels and by people alone.

    Args:
        columns: one row per item, with the values of the judge and of people.
        interval: the corrected estimate with its bounds.
        labels_alone: the estimate by the labels alone.
    """
    return {
        "judge_alone": columns["judge"].mean(),
        **interval[INTERVAL].rename({"estimate": "corrected"}),
        "labels_alone": labels_alone,
        "people": columns["people"].mean(),
    }
