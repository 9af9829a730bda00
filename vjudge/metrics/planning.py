"""How many items and labels a study needs to show what a pilot suggests, with the pilot's error.

Three quantities carry the plan, each an array with one entry for each number of raters per item:
the judge's lead on Fisher's z scale, n times the variance of that lead in a study of n items, and
the standard error of the pilot's estimate of the lead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.array_types import Floats, Groups, Weights
from vjudge.metrics.caveats import add_caveats, warn
from vjudge.metrics.columns import check_columns
from vjudge.metrics.groups import design_of, groups_from_ids
from vjudge.metrics.ratings import aligned_to, rater_table
from vjudge.metrics.resampling import jackknife
from vjudge.metrics.strictness import levelled
from vjudge.metrics.weighted_correlation import correlations

CAUTION = 0.9  # probability that the true lead exceeds the lead that the plan rests on
MIN_PILOT = 10  # items
UNSURE = 3  # a lead of fewer of its standard errors in the pilot gets a caveat
MAX_CORRELATION = 0.999  # expected correlations are capped here, so that Fisher's z stays finite


def labels_needed(
    judge: pd.Series,
    people: pd.DataFrame | pd.Series,
    *,
    rival: pd.Series | None = None,
    above: float | None = None,
    difference: float | None = None,
    groups: Groups = None,
    power: float = 0.8,
    alpha: float = 0.05,
) -> pd.DataFrame:
    """Plan how many items and labels show that a judge's correlation with people is high enough.

    The study is to show that Pearson's r exceeds a fixed value (`above`) or the correlation of a
    second judge (`rival`). The plan starts from a pilot, whose estimated lead has an error: a plan
    that takes the estimate of a pilot of 60 items at face value promises a power of .8 and
    delivers .5. This function therefore plans with a smaller lead, which the true lead exceeds
    with probability .9, and reports the power for other leads that the pilot allows. Nine of ten
    pilots then lead to a plan with the requested power, or to no plan. Where the true lead is
    small, a lower share of the plans that are made reach that power: with a lead of .03 in
    correlation 64, 76 and 81 % do, from pilots of 60, 150 and 400 items.

    Args:
        judge: the judge's scores of the pilot's items.
        people: people's scores of the same items, by the same index: a frame (items by persons,
            NaN where a person gave none), one Series, or a Series of lists such as a collection's
            `human_scores`.
        rival: the second judge's scores of the same items.
        above: the correlation to exceed, in (-1, 1). Give either `rival` or `above`.
        difference: the true difference between both judges' correlations that the study should
            detect. It replaces the pilot's estimate, and has no error. None: use the estimate,
            reduced for its error.
        groups: the unit of sampling of each item in the pilot and in the study, such as its image.
        power, alpha: of the two-sided test (Fisher's z; Steiger's test for a rival), in (0, 1).

    Returns:
        One row per number of people who rate each item (index `raters`, from 1 to twice the
        pilot's). More raters make the mean score more reliable, and correlations with it higher.
        Columns:

        - `correlation`: expected with the mean score of that many raters;
        - `items`: how many the study needs; NaN, with a warning, where the pilot does not show that
          the judge is ahead;
        - `labels`: items times raters;
        - `power`: of a study of that many items, averaged over the leads that the pilot allows;
        - `low`, `high`: the power at the ends of the lead's 95 % interval;
        - `pilot`: items in the pilot;
        - `reliability`: of one person's score.

    Raises:
        ValueError: neither or both of `above` and `rival` are given, the pilot has fewer than ten
            items with all scores, or the judge is not ahead in the pilot.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=150)
    >>> people = pd.DataFrame(truth[:, None] + rng.normal(0, 0.6, size=(150, 3)))
    >>> judge = pd.Series(truth + rng.normal(0, 0.7, size=150))
    >>> table = labels_needed(judge, people, above=0.6)
    >>> bool(table.loc[1, "items"] > table.loc[3, "items"])
    True

    Source: Steiger, Psychological Bulletin 87 (1980), 245-251; Spearman-Brown for the reliability;
    Perugini, Gallucci and Costantini, Perspectives on Psychological Science 9 (2014), 319-332, for
    planning with a bound. Power of such plans: figures/validity_crossed.csv.
    """
    _check_plan(above, rival, power, alpha)
    people = rater_table(people)
    groups, caveats = groups_from_ids(people, groups)
    check_columns(people=people, groups=groups)
    pilot = Pilot.of(people, judge, rival)
    # 1) The lead that the pilot suggests, for each number of raters per item
    reliability = _reliability_of_one(pilot.ratings)
    raters = np.arange(1, 2 * people.shape[1] + 1)  # (k,)
    expected, lead, variance = _expected_lead(pilot, reliability, raters, above, difference)
    if (lead <= 0).all():
        raise ValueError("in the pilot the judge is not ahead: no number of items would show it")
    if groups is not None:
        variance = variance * _design_effect(pilot, groups)
    error = np.sqrt(variance / (pilot.n - 3))
    if difference is not None:
        error = np.zeros(len(raters))  # the difference is given, not estimated
    # 2) The number of items that shows the lead, after a deduction for the pilot's error
    cautious_lead = lead - stats.norm.ppf(CAUTION) * error
    items = _items_needed(cautious_lead, variance, power, alpha)
    if np.isnan(items).any():
        warn(
            "the pilot doesn't show that the judge is ahead: no plan can rest on its lead; name the"
            " difference that is worth finding, or label a larger pilot"
        )
    # 3) The power of that many items
    columns = {"correlation": expected, "items": items, "labels": items * raters}
    columns |= _power_of_plan(lead, error, np.sqrt(variance / (items - 3)), alpha)
    result = pd.DataFrame(columns, pd.Index(raters, name="raters"))
    result = result.assign(pilot=pilot.n, reliability=reliability)
    if (lead < UNSURE * error).any():
        caveats.append(
            f"the pilot's lead is less than {UNSURE} of its standard errors: a pilot that shows"
            " little more than luck plans too few items in one of three to five; see low"
        )
    add_caveats(result, caveats)
    return result


def _check_plan(above: float | None, rival: pd.Series | None, power: float, alpha: float) -> None:
    """Refuse contradictory or impossible options of a plan."""
    if (above is None) == (rival is None):
        raise ValueError("give above=, the correlation to be exceeded, or rival=, another judge")
    if above is not None and not -1 < above < 1:
        raise ValueError(f"above={above!r}: use a correlation between -1 and 1")
    for name, share in {"power": power, "alpha": alpha}.items():
        if not 0 < share < 1:
            raise ValueError(f"{name}={share!r}: use a number between 0 and 1")


@dataclass(frozen=True)
class Pilot:
    """The n items of a pilot that the judge, the rival (if any) and people have all scored."""

    used: np.ndarray  # bool, one for each item of the pilot's table: which n items these are
    human: Floats  # (n,), the mean of people's scores
    judges: Floats  # (1, n) for the judge alone, (2, n) with a rival
    ratings: pd.DataFrame  # (n, persons), NaN where a person gave none

    @classmethod
    def of(cls, people: pd.DataFrame, judge: pd.Series, rival: pd.Series | None) -> Pilot:
        """Collect the items that the judge, the rival (if any) and at least one person scored.

        Raises:
            ValueError: there are fewer than ten.
        """
        columns = {"judge": judge}
        if rival is not None:
            columns["rival"] = rival
        scores = [pd.to_numeric(column) for column in aligned_to(people, **columns)]
        judges = np.array(scores, dtype=float)
        ratings = people.astype(float)
        human = ratings.mean(axis=1).to_numpy()
        used = np.asarray(~np.isnan([human, *judges]).any(axis=0))
        if used.sum() < MIN_PILOT:
            raise ValueError(f"the pilot has {used.sum()} items with all scores: use ten or more")
        return cls(used, human[used], judges[:, used], ratings[used].reset_index(drop=True))

    @property
    def n(self) -> int:
        """The number of items."""
        return len(self.human)


def _expected_lead(
    pilot: Pilot,
    reliability: float,
    raters: np.ndarray,
    above: float | None,
    difference: float | None,
) -> tuple[Floats, Floats, Floats]:
    """Predict the judge's lead for k numbers of raters per item.

    Args:
        reliability: of one person's score. raters: k numbers of people per item; (k,).
        above, difference: as in `labels_needed`.

    Returns:
        The judge's expected correlation, its lead on Fisher's z scale over the value or the rival,
        and n times the variance of that lead in a study of n items; each of shape (k,).
    """
    r = np.corrcoef([pilot.human, *pilot.judges])  # in this order: people, the judge, the rival
    # Correlations grow with the square root of the mean score's reliability: with reliabilities of
    # .5 in the pilot and .6 in the study, r = .40 becomes .40 * sqrt(.6 / .5) = .44.
    mean_raters = pilot.ratings.count(axis=1).mean()  # per item of the pilot
    in_study = _spearman_brown(reliability, raters)
    gain = np.sqrt(in_study / _spearman_brown(reliability, mean_raters))
    expected = np.minimum(r[0, 1] * gain, MAX_CORRELATION)
    if above is not None:
        target = np.full(len(raters), above)
        variance = np.ones(len(raters))  # Fisher's z of n items has the variance 1 / (n - 3)
    else:
        target = np.minimum(r[0, 2] * gain, MAX_CORRELATION)
        if difference is not None:
            target = expected - difference * gain  # a difference grows as correlations do
        variance = _variance_of_z_difference(expected, target, r[1, 2])
    return expected, np.arctanh(expected) - np.arctanh(target), variance


def _items_needed(lead: Floats, variance: Floats, power: float, alpha: float) -> Floats:
    """Compute the number of items with which a two-sided z test detects a lead; NaN without one.

    n = (z of 1 - alpha / 2 + z of the power)^2 * variance / lead^2 + 3. With alpha .05, power .8,
    variance 1 and a lead of .2: (1.96 + .84)^2 / .04 + 3 = 199.2, so 200 items.
    """
    z_sum = stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(power)
    with np.errstate(divide="ignore", invalid="ignore"):
        items = np.ceil(z_sum**2 * variance / lead**2 + 3)
    return np.where(lead > 0, items, np.nan)


def _power_of_plan(
    lead: Floats, error: Floats, study_error: Floats, alpha: float
) -> dict[str, Floats]:
    """Compute the power of a plan over the leads that the pilot allows.

    Args:
        lead, error: the pilot's estimate on Fisher's z scale, and its standard error; (k,).
        study_error: the standard error of the lead in the planned study; (k,).

    Returns:
        `power`, the mean over a normal distribution of the true lead; `low` and `high`, the power
        if the true lead lies at the lower or the upper end of its 95 % interval.
    """
    critical = stats.norm.ppf(1 - alpha / 2) * study_error  # a larger estimate is significant
    half_width = stats.norm.ppf(0.975) * error
    return {
        "power": stats.norm.cdf((lead - critical) / np.hypot(study_error, error)),
        "low": stats.norm.cdf((lead - half_width - critical) / study_error),
        "high": stats.norm.cdf((lead + half_width - critical) / study_error),
    }


def _design_effect(pilot: Pilot, groups: Groups) -> float:
    """Estimate how much more the lead varies with grouped items than with independent ones.

    The design effect is the jackknife variance of the lead over groups, divided by that over single
    items; it is never below 1.
    """

    def lead(weights: Weights) -> Floats:
        """Compute Fisher's z of the judge, minus that of a rival; (1, replicates)."""
        r = [
            correlations(pilot.human, scores, weights, statistics=["pearson"])[0]
            for scores in pilot.judges
        ]
        z = np.arctanh(r)
        return z[:1] - z[1:].sum(axis=0)  # without a rival the sum is 0

    cells = np.arange(pilot.n)  # each item is a cell of its own
    # The jackknife returns the variance of each value, here of one, and degrees of freedom
    over_groups, _ = jackknife(lead, design_of(cells, groups, pilot.used))
    over_items, _ = jackknife(lead, design_of(cells, None, pilot.used))
    return float(max(over_groups[0] / over_items[0], 1.0))


def _reliability_of_one(ratings: pd.DataFrame) -> float:
    """Estimate the reliability of one person's score: the share of its variance between items.

    Differences in raters' strictness are removed first, since they are not noise.
    """
    if ratings.shape[1] == 1:
        return 1.0  # one person alone shows no disagreement
    fit = levelled(ratings)
    within = fit.error.mean()  # variance of a single rating about its item's quality
    # The variance of item means contains within / (ratings per item), which is noise.
    noise = within / ratings.count(axis=1).mean()
    between = max(fit.ratings.mean(axis=1).var(ddof=1) - noise, 1e-6)
    return float(between / (between + within))


def _spearman_brown(reliability: float, raters: Floats | float) -> Floats:
    """Predict the reliability of the mean score of several raters (Spearman-Brown formula).

    >>> _spearman_brown(0.5, np.array([1, 2, 3])).tolist()
    [0.5, 0.6666666666666666, 0.75]
    """
    return np.asarray(raters * reliability / (1 + (raters - 1) * reliability))


def _variance_of_z_difference(r_a: Floats, r_b: Floats, between: float) -> Floats:
    """Compute n times the variance of Fisher's z of judge a minus that of judge b (Steiger).

    Both correlations are with the same people's scores, so they are dependent.

    Args:
        r_a, r_b: the correlations of the two judges with people. between: that of both judges.
    """
    mean = (r_a + r_b) / 2  # pooled, as the null hypothesis takes both for equal
    remainder = 1 - 2 * mean**2
    covariance = between * remainder - mean**2 * (remainder - between**2) / 2
    return 2 - 2 * covariance / (1 - mean**2) ** 2
