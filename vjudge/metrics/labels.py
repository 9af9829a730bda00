"""A few human labels beside many verdicts: what they correct."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from vjudge.metrics.array_types import Floats, Groups, Integers
from vjudge.metrics.caveats import add_caveats, unequal_group_caveats, warn
from vjudge.metrics.columns import as_floats, check_items, check_options, zeros_and_ones
from vjudge.metrics.groups import unit_codes
from vjudge.metrics.intervals import INTERVAL, degrees_of_freedom, t_quantile
from vjudge.metrics.wilson import Share, mean_share_interval

RARE = 10  # labels of a kind, below which the errors of means are not known well
FEW_LEVELS = 11  # of a scale that labels and verdicts share
FEW_OTHERS = 15  # labels unlike the commonest one, below which a variance is put too low
SELDOM = 0.01  # p of labels being a random sample, below which it is said
NOT_BY_CHANCE = 1e-5  # and below which they are refused

# --- A rate after the judge's own errors


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
        n, n_specificity, n_sensitivity: how many items each share rests on, or an effective number.
        confidence: of the interval, which counts the errors of all three shares.

    Returns:
        `estimate`, `low`, `high`, in [0, 1]. An estimate that the correction puts outside of it is
        given as the bound, with a warning.

    ValueError: a share outside [0, 1], no items, or a judge that is no better than chance
    (specificity + sensitivity of 1 or less), whose verdicts say nothing about the rate.

    >>> corrected_rate(.4, specificity=.7, sensitivity=.9, n=1000, n_specificity=200,
    ...                n_sensitivity=200).round(4).tolist()
    [0.1667, 0.0564, 0.2627]

    Source: Lee et al., How to Correctly Report LLM-as-a-Judge Evaluations, arXiv 2511.21140.
    """
    check_options(confidence=confidence)
    shares = {"rate": rate, "specificity": specificity, "sensitivity": sensitivity}
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{name}={share!r}: use a share from 0 to 1")
    if min(n, n_specificity, n_sensitivity) < 1:
        raise ValueError("n, n_specificity and n_sensitivity are counts of items, 1 or more")
    if specificity + sensitivity <= 1:
        raise ValueError(
            f"a judge of specificity {specificity:g} and sensitivity {sensitivity:g} is no better"
            " than chance: its verdicts say nothing about the rate; use labels alone"
        )
    estimate = (rate + specificity - 1) / (specificity + sensitivity - 1)
    if not 0 <= estimate <= 1:
        warn(
            f"the corrected rate is {estimate:.3f}, outside [0, 1], and is given as the bound:"
            " the judge's errors on these items are not those of the labelled ones"
        )
    # 1) shrink each share a little, so that one of 0 or 1 has an error too
    z = t_quantile(confidence)
    p = (n * rate + z**2 / 2) / (n + z**2)
    q0 = (n_specificity * specificity + 1) / (n_specificity + 2)
    q1 = (n_sensitivity * sensitivity + 1) / (n_sensitivity + 2)
    # 2) add up the variances by the delta method
    gain = q0 + q1 - 1
    if gain <= 0:
        warn(
            "so few labels do not show the judge to be better than chance: the rate is not bounded"
        )
        return pd.Series([np.clip(estimate, 0, 1), 0, 1], index=INTERVAL)
    centre = (p + q0 - 1) / gain
    var_0 = q0 * (1 - q0) / (n_specificity + 2)
    var_1 = q1 * (1 - q1) / (n_sensitivity + 2)
    variance = p * (1 - p) / (n + z**2)
    variance += (1 - centre) ** 2 * var_0
    variance += centre**2 * var_1
    half = z * math.sqrt(variance) / gain
    # 3) move the centre by the second-order bias
    centre += 2 * z**2 * (centre * var_1 - (1 - centre) * var_0)
    bounds = np.clip([estimate, centre - half, centre + half], 0, 1)
    return pd.Series(bounds, index=INTERVAL)


def corrected_rate_from_labels(
    verdicts: pd.Series,
    labels: pd.Series,
    *,
    labelled: Literal["random", "by verdict"] = "random",
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.Series:
    """Correct a rate with the judge's errors counted on the items that people labelled.

    Args:
        verdicts: n verdicts, 1 for right and 0 for wrong, NaN where there is none.
        labels: the truth by the same index, 1 or 0, NaN where nobody labelled.
        labelled: how items were chosen for labelling: "random", of all items; or "by verdict", so
            many that the judge calls right and so many that it calls wrong, each at random.
        groups: the unit of sampling of each item, such as its image; None: each item is its own.
        confidence: of the interval.

    Returns:
        `estimate`, `low`, `high`, in [0, 1]; `rate` (the judge's), `n`, `labels`, `missing`
        (items without a verdict). `attrs["caveats"]` say where labels alone would be narrower.

    By verdict the rate is the share of either verdict times how often it is right: of 1,000 items
    600 are called right; of 100 labelled of these 90 are, and of 100 others 20: .6 * .9 + .4 * .2 =
    .62. At random it is `corrected_rate`.

    ValueError: other values than 0 and 1; no labelled item that is right, or none that is wrong
    (random), or fewer than two of a verdict (by verdict); labels called random that were evidently
    chosen by verdict.

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
    everything = np.ones(len(items.verdict), dtype=bool)
    rate = items.share(items.verdict, everything)
    limits = items.caveats
    if labelled == "random":
        remedy = 'if they were chosen by verdict give labelled="by verdict"'
        limits = limits + check_random(items.verdict, items.has_label, items.units, remedy)
        result = _by_random_labels(items, rate, confidence)
    else:
        result = _by_verdict(items, rate, confidence)
    n_labels = int(items.has_label.sum())
    limits = limits + result.attrs.get("caveats", [])
    if labelled == "random":
        low, high = items.share(items.label, items.has_label).wilson_interval(confidence)
        if high - low < result["high"] - result["low"]:
            limits.append(
                f"labels alone are narrower: [{low:.3f}, {high:.3f}] of {n_labels} labels;"
                " prediction_powered_mean takes both"
            )
    counts = {"rate": rate.estimate, "n": len(everything), "labels": n_labels}
    counts["missing"] = items.missing
    row = pd.concat([result, pd.Series(counts, dtype=float)])
    row.attrs = {}
    add_caveats(row, limits)
    return row


@dataclass(frozen=True)
class Labelled:
    """The n items that a judge gave a verdict on, of which people labelled some."""

    verdict: Floats  # (n,)
    label: Floats  # (n,), NaN where nobody labelled
    units: Integers  # (n,): the unit of sampling, 0 to G - 1
    grouped: bool
    missing: int  # items without a verdict, which are left out
    caveats: list[str]

    @classmethod
    def of(
        cls,
        verdicts: pd.Series,
        labels: pd.Series,
        groups: Groups,
        read: Callable[..., Floats] = as_floats,
    ) -> Labelled:
        """From columns of which each may lack items of the other, by their index."""
        check_items(verdicts=verdicts, labels=labels)
        caveats = []
        unjudged = int(labels.drop(verdicts.index, errors="ignore").notna().sum())
        if unjudged:
            caveats.append(f"{unjudged} labels are of items that verdicts lacks: left out")
        verdict = read(verdicts, name="verdicts")
        label = read(labels.reindex(verdicts.index), name="labels")
        judged = ~np.isnan(verdict)
        units = unit_codes(groups, verdicts.index, judged)
        missing = int((~judged).sum())
        return cls(verdict[judged], label[judged], units, groups is not None, missing, caveats)

    @property
    def has_label(self) -> NDArray[np.bool_]:
        """Which items people labelled; (n,)."""
        return ~np.isnan(self.label)

    def share(self, values: Floats, among: NDArray[np.bool_]) -> Share:
        """The share of ones among some of the items."""
        gain = np.where(among, values, 0.0)
        return Share.of(gain, among.astype(float), self.units, grouped=self.grouped)


def check_random(
    verdict: Floats,
    has_label: NDArray[np.bool_],
    units: Integers,
    remedy: str = "label a random sample",
) -> list[str]:
    """Compare the verdicts on labelled items with those on the others, which chance alone may part.

    Args:
        verdict: of n items. has_label: which people labelled. units: of sampling, 0 to G - 1.

    Returns:
        A caveat where a random sample would differ as much in one of 100 cases.

    ValueError: it would in one of 100,000.
    """
    counts = np.array([has_label.sum(), (~has_label).sum()])
    if counts.min() == 0:
        return []
    contrast = np.where(has_label, 1 / counts[0], -1 / counts[1])  # (n,)
    gap = float(contrast @ verdict)
    if not gap:
        return []
    if len(np.unique(units)) == len(units) and np.isin(verdict, [0, 1]).all():
        # Yes or no, each item by itself: exact, since few of one kind make a skewed mean.
        p = stats.fisher_exact(pd.crosstab(has_label, verdict)).pvalue
    else:
        # Of a random sample both means have the error of one population. Those of the two samples
        # would be too small where most verdicts are equal: a lucky sample of them hardly varies.
        deviation = contrast * (verdict - verdict.mean())
        of_units: Any = np.bincount(units, deviation)
        design_effect = max(1.0, of_units @ of_units / max(deviation @ deviation, 1e-300))
        error = math.sqrt(verdict.var(ddof=1) * (contrast @ contrast) * design_effect)
        freedom = degrees_of_freedom(np.bincount(units, contrast**2))
        p = 2 * stats.t.sf(abs(gap) / max(error, 1e-300), freedom)
    if p > SELDOM:
        return []
    text = (
        f"the judge's mean verdict is {verdict[has_label].mean():.3g} on the labelled items and"
        f" {verdict[~has_label].mean():.3g} on the others, as a random sample seldom has it:"
        f" {remedy}"
    )
    if p < NOT_BY_CHANCE:
        raise ValueError(text)
    return [text]


def _by_random_labels(items: Labelled, rate: Share, confidence: float) -> pd.Series:
    """The rate corrected by specificity and sensitivity, each at its effective number of items."""
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
        n=min(rate.n_effective, len(wrong)),
        n_specificity=min(specificity.n_effective, n_wrong),
        n_sensitivity=min(sensitivity.n_effective, n_right),
        confidence=confidence,
    )
    # The shares are of the same items: their errors partly cancel, or add up in groups
    estimate = result["estimate"]
    influences = [rate.influence, specificity.influence, sensitivity.influence]
    errors = np.array([[1], [1 - estimate], [-estimate]]) * influences
    apart = (errors**2).sum()
    if apart > 0:
        together = (errors.sum(axis=0) ** 2).sum()
        result = estimate + (result - estimate) * math.sqrt(together / apart)
    result = result.clip(0, 1)
    rarer = min(n_right, n_wrong)
    if rarer < RARE:
        result.attrs["caveats"] = [
            f"only {rarer} labelled items are of one kind: label {RARE} or more, so that the"
            " judge's errors on them can be counted"
        ]
    return result


def _by_verdict(items: Labelled, rate: Share, confidence: float) -> pd.Series:
    """The mean over both verdicts of how often an item is right, weighted by their shares."""
    shares = []
    weights = []
    for verdict, weight in ((1, rate.estimate), (0, 1 - rate.estimate)):
        among = items.has_label & (items.verdict == verdict)
        if weight > 0 and among.sum() < 2:
            raise ValueError(
                f"{int(among.sum())} items of verdict {verdict} are labelled: label two or more of"
                " each verdict (better 50)"
            )
        if weight > 0:
            shares.append(items.share(items.label, among))
            weights.append(weight)
    estimate, low, high = mean_share_interval(shares, confidence, weights)
    # How far the verdicts' own share may be off, put together with the errors of the labels
    gap = shares[0].estimate - shares[-1].estimate
    around = gap * (np.array(rate.wilson_interval(confidence)) - rate.estimate)
    low = estimate - np.hypot(estimate - low, around.min())
    high = estimate + np.hypot(high - estimate, around.max())
    return pd.Series(np.clip([estimate, low, high], 0, 1), index=INTERVAL)


# --- A mean, by verdicts and labels


def prediction_powered_mean(
    verdicts: pd.Series,
    labels: pd.Series,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate the mean of people's labels on all items from a few labels and all verdicts.

    It holds whatever the judge's errors are; a better judge makes the interval shorter. Where fewer
    than 15 labels (or of the judge's errors) are unlike the commonest one, their variance is put
    too low, so that one more of the widest is added: without it 95 % intervals of a win rate of .9
    covered 81 to 90 % with 20 to 50 labels, of .95 with 20 labels 60 %.

    For a win rate put 1, 0.5 and 0 for win, tie and loss; for the difference of two systems put the
    differences of their scores on each item.

    Args:
        verdicts: the judge's value of each of n items; NaN where there is none.
        labels: people's value by the same index, NaN where nobody labelled; the labelled items are
            a random part of all.
        groups: the unit of sampling of each item, usually its image; None: each item is its own.
        confidence: of the intervals, by the t distribution.

    Returns:
        Rows `prediction_powered` and `labels_alone`: `estimate`, `low`, `high`, `n` (labels),
        `weight` (how far the verdicts are trusted, the one of least variance), `labels_saved`
        (further labels that the same precision would take without the judge), `missing` (items
        without a verdict, labelled or not, which are left out).

    ValueError: fewer than two labelled items, no item without a label, or verdicts on labelled
    items that are evidently not those of a random sample.

    >>> rng = np.random.default_rng(1)
    >>> truth = pd.Series(rng.integers(1, 6, size=2000).astype(float))
    >>> verdicts = truth + rng.normal(0.5, 0.4, size=2000)
    >>> table = prediction_powered_mean(verdicts, truth.where(truth.index < 100))
    >>> (table["high"] - table["low"]).round(2).to_dict()
    {'prediction_powered': 0.21, 'labels_alone': 0.55}

    Source: Angelopoulos, Duchi and Zrnic, PPI++ (arXiv 2311.01453); for judges of language models
    Fisch et al. (arXiv 2406.04291).
    """
    check_options(confidence=confidence)
    items = Labelled.of(verdicts, labels, groups)
    f = items.verdict
    y = items.label
    has_label = items.has_label
    n = int(has_label.sum())
    if n < 2 or n == len(f):
        raise ValueError(f"{n} labelled and {len(f) - n} unlabelled items: use at least 2 and 1")
    caveats = items.caveats + check_random(f, has_label, items.units)
    # 1) trust verdicts as far as it takes most off the variance
    covariance = float(np.cov(f[has_label], y[has_label])[0, 1])
    trust = covariance / max(float(f.var(ddof=1)), 1e-300)
    unlike = [_unlike_the_commonest(y[has_label])]
    widest = max(float(np.ptp(y[has_label])), abs(trust) * float(np.ptp(f)))
    levels = np.unique(f)
    if len(levels) <= FEW_LEVELS and np.isin(y[has_label], levels).all():  # both on one scale
        widest = float(np.ptp(levels))
    # 2) both means, each with the variance of its sum over units
    sizes = np.bincount(items.units, has_label)
    n_units = int(np.count_nonzero(sizes))
    freedom = degrees_of_freedom(sizes)
    rows = {}
    errors = []
    for name, weight in {"prediction_powered": trust, "labels_alone": 0.0}.items():
        rectifier = np.where(has_label, y - weight * f, 0.0)
        mean = rectifier.sum() / n
        influence = has_label * (rectifier - mean) / n + weight * (f - f.mean()) / len(f)
        by_unit: Any = np.bincount(items.units, influence)
        variance = float(by_unit @ by_unit) * n_units / max(n_units - 1, 1)
        # One more label, as far from the others as can be, where few tell how much they vary
        few = min(unlike[0], _unlike_the_commonest(rectifier[has_label]))
        variance += (widest / n) ** 2 * max(1 - few / FEW_OTHERS, 0)
        unlike.append(few)
        half = t_quantile(confidence, freedom) * math.sqrt(variance)
        estimate = mean + weight * f.mean()
        errors.append(math.sqrt(variance))
        rows[name] = [estimate, estimate - half, estimate + half, n]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=[*INTERVAL, "n"])
    if n_units < 2 or widest == 0:
        table[["low", "high"]] = np.nan
    ratio = errors[1] / errors[0] if errors[0] > 1e-12 else 1.0
    table["weight"] = [float(trust * (1 - n / len(f))), 0.0]
    table["labels_saved"] = [round(n * (ratio**2 - 1)), 0]
    table["missing"] = items.missing
    add_caveats(table, caveats)
    add_caveats(table, _of_few_labels(min(unlike), table["low"].notna().all()))
    if items.grouped:
        add_caveats(table, unequal_group_caveats(sizes[sizes > 0]))
    return table


def _of_few_labels(unlike: int, has_interval: bool) -> list[str]:
    """What so few labels unlike the commonest mean for the interval, in words."""
    if not has_interval:
        return ["no interval, since the labels are all alike, or of one group"]
    if unlike >= RARE:
        return []
    return [
        f"only {unlike} labels, or errors of the judge, are unlike the commonest: the interval is"
        f" put wider for it; label until there are {RARE} or more"
    ]


def _unlike_the_commonest(values: Floats) -> int:
    """How many values are not the commonest one.

    >>> _unlike_the_commonest(np.array([1.0, 1, 1, 0.5, 0]))
    2
    """
    return len(values) - int(np.unique(values.round(9), return_counts=True)[1].max())
