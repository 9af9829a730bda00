"""The share of right responses, corrected for a judge's errors that a few labels reveal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd

from vjudge.metrics.array_types import Groups
from vjudge.metrics.caveats import add_caveats, warn
from vjudge.metrics.columns import check_options, zeros_and_ones
from vjudge.metrics.intervals import INTERVAL, t_quantile
from vjudge.metrics.labels import Labelled, check_random
from vjudge.metrics.wilson import Share, mean_share_interval

RARE = 10  # right (or wrong) labelled items, below which errors on them are poorly known


def corrected_rate(
    rate: float,
    *,
    specificity: float,
    sensitivity: float,
    n: float,
    n_specificity: float,
    n_sensitivity: float,
    confidence: float = 0.95,
) -> pd.Series:
    """Correct the share of responses that a judge calls right for the judge's known errors.

    Args:
        rate: share of `n` items that the judge calls right.
        specificity: share of `n_specificity` wrong items that the judge calls wrong.
        sensitivity: share of `n_sensitivity` right items that the judge calls right.
        n, n_specificity, n_sensitivity: how many items each share rests on, or an effective number
            of items.
        confidence: of the interval, which allows for the sampling errors of all three shares.

    Returns:
        `estimate`, `low`, `high`, in [0, 1]. An estimate that the correction puts outside of [0, 1]
        is replaced by the nearer bound, with a warning. The bounds are 0 and 1, with a warning,
        where so few labels do not show that the judge is better than chance.

    Raises:
        ValueError: a share outside [0, 1], no items, or a judge that is no better than chance
            (specificity + sensitivity of 1 or less), whose verdicts say nothing about the rate.

    >>> corrected_rate(.4, specificity=.7, sensitivity=.9, n=1000, n_specificity=200,
    ...                n_sensitivity=200).round(4).tolist()
    [0.1667, 0.0564, 0.2627]

    Source: Lee et al., How to Correctly Report LLM-as-a-Judge Evaluations, arXiv 2511.21140.
    """
    check_options(confidence=confidence)
    shares = {"rate": rate, "specificity": specificity, "sensitivity": sensitivity}
    _check_rates(shares, min(n, n_specificity, n_sensitivity))
    # Rogan and Gladen: rate = sensitivity * estimate + (1 - specificity) * (1 - estimate), solved
    # for the estimate. Here (.4 + .7 - 1) / (.7 + .9 - 1) = .1 / .6 = .1667.
    estimate = (rate + specificity - 1) / (specificity + sensitivity - 1)
    if not 0 <= estimate <= 1:
        warn(
            f"the corrected rate is {estimate:.3f}, outside [0, 1], and is given as the bound:"
            " the judge's errors on these items are not those of the labelled ones"
        )
    # 1) Shrink each share towards 1/2, so that a share of 0 or 1 has an error too: add z^2 items to
    # those of the rate (Agresti and Coull), and two to the others, half of them called right. As in
    # the paper, p is the rate, q0 the specificity and q1 the sensitivity.
    z = t_quantile(confidence)
    p = (n * rate + z**2 / 2) / (n + z**2)
    q0 = (n_specificity * specificity + 1) / (n_specificity + 2)
    q1 = (n_sensitivity * sensitivity + 1) / (n_sensitivity + 2)
    youden = q0 + q1 - 1  # Youden's J: how much better than chance the judge is
    if youden <= 0:
        warn(
            "so few labels do not show the judge to be better than chance: the rate is not bounded"
        )
        return pd.Series([np.clip(estimate, 0, 1), 0, 1], index=INTERVAL)
    # 2) Add up the variances of the three shares by the delta method. The estimate moves with
    # (p + (1 - estimate) * q0 - estimate * q1) / youden.
    centre = (p + q0 - 1) / youden
    variance_0 = q0 * (1 - q0) / (n_specificity + 2)
    variance_1 = q1 * (1 - q1) / (n_sensitivity + 2)
    variance = p * (1 - p) / (n + z**2)
    variance += (1 - centre) ** 2 * variance_0
    variance += centre**2 * variance_1
    half_width = z * math.sqrt(variance) / youden
    # 3) Move the centre by its second-order bias, as the paper does
    centre += 2 * z**2 * (centre * variance_1 - (1 - centre) * variance_0)
    bounds = np.clip([estimate, centre - half_width, centre + half_width], 0, 1)
    return pd.Series(bounds, index=INTERVAL)


def _check_rates(shares: Mapping[str, float], min_count: float) -> None:
    """Refuse impossible shares and counts, and a judge that is no better than chance.

    Args:
        shares: rate, specificity and sensitivity by name. min_count: the smallest of their counts.
    """
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{name}={share!r}: use a share from 0 to 1")
    if min_count < 1:
        raise ValueError("n, n_specificity and n_sensitivity are counts of items, 1 or more")
    if shares["specificity"] + shares["sensitivity"] <= 1:
        raise ValueError(
            f"a judge of specificity {shares['specificity']:g} and sensitivity"
            f" {shares['sensitivity']:g} is no better than chance: its verdicts say nothing about"
            " the rate; use labels alone"
        )


def corrected_rate_from_labels(
    verdicts: pd.Series,
    labels: pd.Series,
    *,
    labelled: Literal["random", "by verdict"] = "random",
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.Series:
    """Correct a judge's rate of right responses by its errors on the items that people labelled.

    Args:
        verdicts: n verdicts, 1 for right and 0 for wrong, NaN where there is none.
        labels: the truth by the same index, 1 or 0, NaN where nobody labelled.
        labelled: how items were chosen for labelling. "random": at random from all items. "by
            verdict": a fixed number at random from those that the judge calls right, and another
            from those that it calls wrong.
        groups: the sampling unit of each item, such as its image; None: each item is a unit.
        confidence: of the interval.

    Returns:
        `estimate`, `low`, `high`, in [0, 1]; `rate` (that the judge calls right), `n` (verdicts),
        `labels` (labelled items with a verdict), `missing` (items without a verdict). With
        "random", a caveat says if the labels alone give a narrower interval.

    With "random" the estimate is that of `corrected_rate`. With "by verdict" it is the sum, over
    both verdicts, of the verdict's share times how often a labelled item with it is right: of 1,000
    items 600 are called right; 90 of 100 labelled among these are right, and 20 of 100 among the
    others: .6 * .9 + .4 * .2 = .62.

    Raises:
        ValueError: other values than 0 and 1; no labelled item that is right, or none that is wrong
            (random), or fewer than two of a verdict (by verdict); labels that are declared random
            and evidently were not.

    >>> verdicts = pd.Series([1, 1, 0, 0, 1, 1, 0, 1, 1, 0] * 10)
    >>> labels = pd.Series([1, 1, 0, 0, 1, 0, None, None, None, None] * 10)
    >>> corrected_rate_from_labels(verdicts, labels)["estimate"].round(2).item()
    0.4

    Source: as `corrected_rate`; by verdict, Tenenbein, JASA 65 (1970), 1350-1361.
    """
    check_options(confidence=confidence)
    if labelled not in ("random", "by verdict"):
        raise ValueError(f'labelled must be "random" or "by verdict", not {labelled!r}')
    items = Labelled.of(verdicts, labels, groups, read=zeros_and_ones)
    rate = items.share(items.verdict, np.ones(len(items.verdict), dtype=bool))
    caveats = items.caveats
    if labelled == "random":
        remedy = 'if they were chosen by verdict give labelled="by verdict"'
        caveats = caveats + check_random(items.verdict, items.has_label, items.units, remedy)
        result = _by_random_labels(items, rate, confidence)
        caveats += _limits_of_random_labels(items, result["high"] - result["low"], confidence)
    else:
        result = _by_verdict(items, rate, confidence)
    result["rate"] = rate.estimate
    result["n"] = len(items.verdict)
    result["labels"] = items.has_label.sum()
    result["missing"] = items.missing
    add_caveats(result, caveats)
    return result


def _by_random_labels(items: Labelled, rate: Share, confidence: float) -> pd.Series:
    """Correct the rate by specificity and sensitivity, which the labelled items show.

    Args:
        rate: the share of all items that the judge calls right.

    Returns:
        `estimate`, `low`, `high`.

    Raises:
        ValueError: no labelled item is right, or none is wrong.
    """
    wrong = items.label == 0
    right = items.label == 1
    n_wrong = int(wrong.sum())
    n_right = int(right.sum())
    if not n_right or not n_wrong:
        raise ValueError(
            f"of the labelled items {n_right} are right and {n_wrong} wrong: label at least one of"
            " each (better 50), so that both kinds of error can be counted"
        )
    specificity = items.share(1 - items.verdict, wrong)
    sensitivity = items.share(items.verdict, right)
    result = corrected_rate(
        rate.estimate,
        specificity=specificity.estimate,
        sensitivity=sensitivity.estimate,
        # Effective numbers, which are no larger than the numbers of items
        n=min(rate.n_effective, len(items.verdict)),
        n_specificity=min(specificity.n_effective, n_wrong),
        n_sensitivity=min(sensitivity.n_effective, n_right),
        confidence=confidence,
    )
    # `corrected_rate` takes the three shares for independent, but they come from the same items.
    # By the delta method the corrected rate moves with rate + (1 - estimate) * specificity
    # - estimate * sensitivity. Scale the interval by a ratio: the standard error of that sum,
    # divided by the one that it would have if the three shares were independent.
    estimate = result["estimate"]
    influences = [rate.influence, specificity.influence, sensitivity.influence]
    errors = np.array([[1], [1 - estimate], [-estimate]]) * influences  # (3, units)
    if_independent = (errors**2).sum()
    if if_independent > 0:
        dependent = (errors.sum(axis=0) ** 2).sum()
        result = estimate + (result - estimate) * math.sqrt(dependent / if_independent)
    return result.clip(0, 1)


def _limits_of_random_labels(items: Labelled, width: float, confidence: float) -> list[str]:
    """List the caveats of a rate corrected by random labels.

    Args:
        width: of the interval of the corrected rate.
    """
    caveats = []
    n_labels = int(items.has_label.sum())
    n_right = int((items.label == 1).sum())
    rarer = min(n_right, n_labels - n_right)
    if rarer < RARE:
        caveats.append(
            f"only {rarer} labelled items are of one kind: label {RARE} or more, so that the"
            " judge's errors on them can be counted"
        )
    low, high = items.share(items.label, items.has_label).wilson_interval(confidence)
    if high - low < width:
        caveats.append(
            f"labels alone are narrower: [{low:.3f}, {high:.3f}] of {n_labels} labels;"
            " prediction_powered_mean takes both"
        )
    return caveats


def _by_verdict(items: Labelled, rate: Share, confidence: float) -> pd.Series:
    """Average how often an item of each verdict is right, weighted by the verdicts' shares.

    Args:
        rate: the share of items that the judge calls right; the weight of verdict 1.

    Returns:
        `estimate`, `low`, `high`.

    Raises:
        ValueError: fewer than two items of a verdict are labelled.
    """
    shares = []
    weights = []
    for verdict, weight in ((1, rate.estimate), (0, 1 - rate.estimate)):
        if weight == 0:
            continue  # the judge gave this verdict to no item
        among = items.has_label & (items.verdict == verdict)
        if among.sum() < 2:
            raise ValueError(
                f"{among.sum()} items of verdict {verdict} are labelled: label two or more of each"
                " verdict (better 50)"
            )
        shares.append(items.share(items.label, among))
        weights.append(weight)
    estimate, low, high = mean_share_interval(shares, confidence, weights)
    # The weights have an error too: a rate off by d moves the mean by d times the difference
    # between both shares (0 if there is only one). This error is independent of the labels' error,
    # so their squares add up.
    difference = shares[0].estimate - shares[-1].estimate
    # (2,): how far the mean moves if the rate is at either end of its interval
    of_weights = difference * (np.array(rate.wilson_interval(confidence)) - rate.estimate)
    low = estimate - np.hypot(estimate - low, of_weights.min())
    high = estimate + np.hypot(high - estimate, of_weights.max())
    return pd.Series(np.clip([estimate, low, high], 0, 1), index=INTERVAL)
