"""How many items and labels show what a pilot suggests, the pilot's own error counted."""

from __future__ import annotations

from typing import Any

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

CAUTION = 0.9  # share of pilots whose lead lies above the one that is planned with
LEAST_PILOT = 10  # items
UNSURE = 3  # standard errors of a lead


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
    """Plan how many items, and labels by people, show a judge's correlation with people.

    That is, show Pearson's r to be above a value, or above a rival's; planned from a pilot. A
    pilot's lead is its own luck, too: planned with as it is, a pilot of 60 items promises .8 and
    gives .5. So the plan takes the lead that the true one exceeds with a probability of .9, and
    says what the power is if the lead is another. Nine of ten pilots then lead to a plan of the
    power asked for, or to none; of plans alone fewer where the true lead is small (.03 in
    correlation: 64, 76, 81 % from pilots of 60, 150, 400 items).

    Args:
        judge: the judge's scores of the pilot's items.
        people: their scores by the same index, items by persons (NaN where none), one series, or a
            Series of lists, as `human_scores` of a collection.
        rival: the other judge's scores; with `difference`.
        above: the correlation to be exceeded, in (-1, 1).
        difference: the true difference in correlation to be found, which takes the place of the
            pilot's; None plans with the pilot's, less its error.
        groups: the unit of sampling of each item of the pilot, and of the study, such as its image.
        power, alpha: of the two-sided test (Fisher's z; Steiger's for a rival).

    Returns:
        One row a number of people an item (`raters`, from 1 to twice the pilot's): `correlation`
        (expected with the mean of so many people), `items`, `labels` (items times raters), `power`
        (of those items, over all leads that the pilot allows), `low`, `high` (of the power, at the
        ends of the 95 % interval of the lead), `pilot` (items) and `reliability` (of one person's
        score). More people an item make the truth more reliable, and correlations with it higher.
        NaN, with a warning, where the pilot doesn't show that the judge is ahead at all.

    ValueError: neither `above` nor `rival`, fewer than ten items in the pilot, or a correlation
    that is not above the value.

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
    columns = {"judge": judge} if rival is None else {"judge": judge, "rival": rival}
    scores = np.array(
        [pd.to_numeric(column) for column in aligned_to(people, **columns)], dtype=float
    )
    human = people.astype(float).mean(axis=1).to_numpy()
    used = np.asarray(~np.isnan([human, *scores]).any(axis=0))
    n = int(used.sum())
    if n < LEAST_PILOT:
        raise ValueError(f"the pilot has {n} items with all scores: use ten or more")
    r = np.corrcoef([human[used], *scores[:, used]])
    of_pilot = people[used].astype(float).reset_index(drop=True)
    reliability = _reliability_of_one(of_pilot)
    # 1) each number of people an item: what correlation the judge has, and what it has to beat
    raters = np.arange(1, 2 * people.shape[1] + 1)
    gain = _spearman_brown(reliability, raters)
    gain = np.sqrt(gain / _spearman_brown(reliability, of_pilot.count(axis=1).mean()))
    expected = np.minimum(r[0, 1] * gain, 0.999)
    goal = np.full(len(raters), above or 0.0)
    variance = np.ones(len(raters))  # n times that of the lead on Fisher's z scale
    if rival is not None:
        goal = np.minimum(r[0, 2] * gain, 0.999)
        if difference is not None:
            goal = expected - difference * gain
        variance = _variance_of_z_difference(expected, goal, r[1, 2])
    lead = np.arctanh(expected) - np.arctanh(goal)
    if (lead <= 0).all():
        raise ValueError("in the pilot the judge is not ahead: no number of items would show it")
    if groups is not None:
        variance = variance * _design_effect(human, scores, groups, used)
    # 2) the items that show the lead, less the pilot's error of it
    error = np.sqrt(variance / (n - 3)) if difference is None else np.zeros(len(raters))
    planned = lead - stats.norm.ppf(CAUTION) * error
    needed = stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(power)
    with np.errstate(divide="ignore", invalid="ignore"):
        items = np.where(planned > 0, np.ceil(needed**2 * variance / planned**2 + 3), np.nan)
    if np.isnan(items).any():
        warn(
            "the pilot doesn't show that the judge is ahead: no plan can rest on its lead; name the"
            " difference that is worth finding, or label a larger pilot"
        )
    result = pd.DataFrame(
        {"correlation": expected, "items": items}, pd.Index(raters, name="raters")
    )
    result["labels"] = items * raters
    # 3) its power: over the normal distribution of the lead, and at the ends of its interval
    step = np.sqrt(variance / (items - 3))
    critical = stats.norm.ppf(1 - alpha / 2) * step
    result["power"] = stats.norm.cdf((lead - critical) / np.hypot(step, error))
    half = stats.norm.ppf(0.975) * error
    result["low"] = stats.norm.cdf((lead - half - critical) / step)
    result["high"] = stats.norm.cdf((lead + half - critical) / step)
    result = result.assign(pilot=n, reliability=reliability)
    if (lead < UNSURE * error).any():
        caveats.append(
            f"the pilot's lead is less than {UNSURE} of its standard errors: a pilot that shows"
            " little more than luck plans too few items in one of three to five; see low"
        )
    add_caveats(result, caveats)
    return result


def _design_effect(
    human: Floats,
    scores: Floats,
    groups: Groups,
    used: np.ndarray,
) -> float:
    """By how much items in groups vary a lead more than as many items alone; at least 1.

    The variance of the lead by leaving out groups over that by leaving out items.
    """
    human = human[used]
    scores = scores[:, used]

    def lead(weights: Weights) -> Floats:
        """Fisher's z of the judge, less that of the rival if there is one; (1, replicates)."""
        r = [correlations(human, column, weights, statistics=["pearson"])[0] for column in scores]
        z = np.arctanh(r)
        return z[:1] - z[1:].sum(axis=0)

    cell = np.arange(len(human))
    grouped, _ = jackknife(lead, design_of(cell, groups, used))
    alone, _ = jackknife(lead, design_of(cell, None, used))
    return float(max(grouped[0] / alone[0], 1.0))


def _check_plan(above: float | None, rival: Any, power: float, alpha: float) -> None:
    """Refuse a plan that can't be meant."""
    if (above is None) == (rival is None):
        raise ValueError("give above=, the correlation to be exceeded, or rival=, another judge")
    if above is not None and not -1 < above < 1:
        raise ValueError(f"above={above!r}: use a correlation between -1 and 1")
    for name, share in {"power": power, "alpha": alpha}.items():
        if not 0 < share < 1:
            raise ValueError(f"{name}={share!r}: use a number between 0 and 1")


def _reliability_of_one(people: pd.DataFrame) -> float:
    """The reliability of one person's score: the share of variance between items."""
    if people.shape[1] == 1:
        return 1.0  # of one person nothing is known
    fit = levelled(people)  # that one person is stricter is no noise
    within = fit.error.mean()
    between = fit.ratings.mean(axis=1).var(ddof=1) - within / people.count(axis=1).mean()
    between = max(between, 1e-6)
    return float(between / (between + within))


def _spearman_brown(reliability: float, raters: Floats | float) -> Any:
    return raters * reliability / (1 + (raters - 1) * reliability)


def _variance_of_z_difference(r_a: Floats | float, r_b: Floats | float, between: float) -> Any:
    """n times the variance of the difference of two judges' correlations on Fisher's z scale.

    `between` is the correlation of the two judges.
    """
    mean = (r_a + r_b) / 2  # pooled, as under equality
    remainder = 1 - 2 * mean**2
    psi = between * remainder - mean**2 * (remainder - between**2) / 2
    return 2 - 2 * psi / (1 - mean**2) ** 2
