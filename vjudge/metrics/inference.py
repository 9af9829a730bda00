"""What verdicts allow one to conclude: may a judge replace people, what is a rate after its errors,
how many labels are needed, how many judges a panel is, and who is strict."""

from __future__ import annotations

import math
import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.resampling import (
    Design,
    Floats,
    Weights,
    correlations,
    student,
)
from vjudge.metrics.tables import INTERVAL, tabulate, warn

LEAST_PEOPLE = 3
LEAST_ITEMS = 30  # of a person: the test is a t test
FALSE_DISCOVERIES = 0.05


# --- May the judge replace people?


def alt_test(
    people: pd.DataFrame,
    judge: pd.Series,
    *,
    epsilon: float = 0.2,
    measure: str = "accuracy",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Test whether a judge may replace a person who labels: the alternative annotator test.

    Each person is left out in turn. On that person's items it is compared whether the judge or the
    person agrees better with the other people.

    Epsilon is what a judge may be worse and still be the better choice, since it costs less: the
    share of items that a person may be ahead by. The authors use 0.2 where the people are experts,
    0.15 where they are trained, 0.1 where they are a crowd.

    Args:
        people: labels, items by persons, NaN where a person gave none.
        judge: the judge's label of each item, by the same index, NaN where there is none.
        epsilon: in [0, 1).
        measure: "accuracy" for categories (share of the other people who said the same), "rmse" for
            scores (negative root mean squared distance to them).
        confidence: of the intervals.

    Returns:
        One row a person: `n` (items), `advantage` (share of items on which the judge is at least as
        close to the others), `low`, `high` (Wilson's interval of it), `p` (one-sided t test that
        the person is ahead by epsilon or more), `rejected` (after Benjamini-Yekutieli at .05). A
        person with fewer than 30 items has NaN and is not counted. `attrs`: `winning_rate` (share
        of persons rejected; from .5 on the judge may replace people), `advantage_probability`
        (mean of `advantage`), `winning_rate_interval`, `advantage_probability_interval` (over
        persons, and by the t distribution over items), `missing` (items without a verdict).

    ValueError: an unknown measure, an epsilon outside [0, 1), fewer than three people.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(1, 6, size=200)
    >>> people = pd.DataFrame(truth[:, None] + rng.integers(-1, 2, size=(200, 4)))
    >>> alt_test(people, pd.Series(truth), measure="rmse").attrs["winning_rate"]
    1.0

    Source: Calderon, Reichart and Dror, arXiv 2501.10970, section 3.
    """
    if measure not in ("accuracy", "rmse"):
        raise ValueError(f'measure={measure!r}: use "accuracy" for categories, "rmse" for scores')
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon={epsilon!r}: use a share of items, from 0 to below 1")
    if people.shape[1] < LEAST_PEOPLE:
        raise ValueError(
            f"people has {people.shape[1]} columns: the test takes three people or more"
        )
    judge = judge.reindex(people.index)
    closeness = _share_alike if measure == "accuracy" else _negative_rmse
    table = pd.DataFrame(index=people.columns.rename("person"), columns=["n", "advantage", "p"])
    ahead = pd.DataFrame(index=people.index)
    for person in people:
        own, lead = _judge_ahead(people, person, judge, closeness)
        table.loc[person] = [len(own), np.nan, np.nan]
        if len(own) >= LEAST_ITEMS:
            ahead[person] = own
            table.loc[person] = [len(own), own.mean(), _p_below(lead, epsilon)]
    table = table.astype({"n": int, "advantage": float, "p": float})
    bounds = [_wilson(row.advantage, row.n, confidence) for row in table.itertuples()]
    table[["low", "high"]] = np.reshape(bounds, (-1, 2))
    tested = table["p"].notna()
    table["rejected"] = False
    if tested.any():
        adjusted = stats.false_discovery_control(table.loc[tested, "p"], method="by")
        table.loc[tested, "rejected"] = adjusted <= FALSE_DISCOVERIES
    else:
        warn(f"no person has {LEAST_ITEMS} items: the test is undefined")
    winning_rate = float(table.loc[tested, "rejected"].mean())
    table.attrs = {
        "winning_rate": winning_rate,
        "winning_rate_interval": _wilson(winning_rate, int(tested.sum()), confidence),
        "advantage_probability": float(table["advantage"].mean()),
        "advantage_probability_interval": _mean_over_items(ahead, confidence),
        "epsilon": epsilon,
        "measure": measure,
        "missing": int(judge.isna().sum()),
    }
    return table[["n", "advantage", "low", "high", "p", "rejected"]]


def _judge_ahead(
    people: pd.DataFrame, person: Any, judge: pd.Series, closeness: Any
) -> tuple[pd.Series, np.ndarray]:
    """Whether the judge is at least as close to the others as a person, and the person's lead."""
    others = people.drop(columns=person)
    shown = people[person].notna() & judge.notna() & others.notna().any(axis=1)
    of_judge = closeness(others[shown], judge[shown])
    of_person = closeness(others[shown], people.loc[shown, person])
    ahead = (of_judge >= of_person).astype(float)
    return ahead, ((of_person >= of_judge) - ahead).to_numpy(dtype=float)


def _share_alike(others: pd.DataFrame, labels: pd.Series) -> pd.Series:
    """The share of an item's other people who said the same."""
    alike = others.eq(labels, axis=0) & others.notna()
    return alike.sum(axis=1) / others.notna().sum(axis=1)


def _negative_rmse(others: pd.DataFrame, labels: pd.Series) -> pd.Series:
    """The negative root mean squared distance to an item's other people."""
    distance = others.astype(float).sub(labels.astype(float), axis=0)
    return -np.sqrt((distance**2).mean(axis=1))


def _p_below(lead: np.ndarray, epsilon: float) -> float:
    """The p-value against a mean lead of epsilon or more."""
    if np.ptp(lead) == 0:  # a t test of a constant is undefined, and the answer is plain
        return 0.0 if lead[0] < epsilon else 1.0
    return float(stats.ttest_1samp(lead, epsilon, alternative="less").pvalue)


def _wilson(share: float, n: int, confidence: float) -> tuple[float, float]:
    if n == 0 or math.isnan(share):
        return math.nan, math.nan
    interval = stats.binomtest(round(share * n), n).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def _mean_over_items(ahead: pd.DataFrame, confidence: float) -> tuple[float, float]:
    """The interval of the mean over persons of their share of items; persons share the items."""
    ahead = ahead.dropna(how="all")
    n_items, persons = ahead.shape
    if not persons:
        return math.nan, math.nan
    # An item's influence on the mean of shares, summed over the persons who labelled it.
    influence = ((ahead - ahead.mean()) / ahead.count()).sum(axis=1) / persons
    error = math.sqrt((influence**2).sum() * n_items / (n_items - 1))
    half = student(confidence, n_items - 1) * error
    centre = ahead.mean().mean()
    return float(centre - half), float(centre + half)


# --- A rate after the judge's own errors


def corrected_rate(
    rate: float,
    *,
    specificity: float,
    sensitivity: float,
    n: int,
    n_specificity: int,
    n_sensitivity: int,
    confidence: float = 0.95,
) -> pd.Series:
    """Correct the share of responses that a judge calls right for the judge's known errors.

    Args:
        rate: share of `n` items that the judge calls right.
        specificity: share of `n_specificity` wrong items that the judge calls wrong.
        sensitivity: share of `n_sensitivity` right items that the judge calls right.
        n, n_specificity, n_sensitivity: how many items each share rests on.
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
    given = {"rate": rate, "specificity": specificity, "sensitivity": sensitivity}
    for name, share in given.items():
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
    z = student(confidence)
    p = (n * rate + z**2 / 2) / (n + z**2)
    q0 = (n_specificity * specificity + 1) / (n_specificity + 2)
    q1 = (n_sensitivity * sensitivity + 1) / (n_sensitivity + 2)
    # 2) add up the variances by the delta method
    centre = (p + q0 - 1) / (q0 + q1 - 1)
    var_0 = q0 * (1 - q0) / (n_specificity + 2)
    var_1 = q1 * (1 - q1) / (n_sensitivity + 2)
    variance = p * (1 - p) / (n + z**2) + (1 - centre) ** 2 * var_0 + centre**2 * var_1
    half = z * math.sqrt(variance) / (q0 + q1 - 1)
    # 3) move the centre by the second-order bias
    centre += 2 * z**2 * (centre * var_1 - (1 - centre) * var_0)
    bounds = np.clip([estimate, centre - half, centre + half], 0, 1)
    return pd.Series(bounds, index=INTERVAL)


def corrected_rate_from_labels(
    verdicts: pd.Series, labels: pd.Series, *, confidence: float = 0.95
) -> pd.Series:
    """Correct a rate with the judge's errors counted on the items that people labelled.

    Args:
        verdicts: n verdicts, 1 for right and 0 for wrong, NaN where there is none.
        labels: the truth by the same index, 1 or 0, NaN where nobody labelled.

    Returns:
        As `corrected_rate`; `attrs` have the rate, specificity, sensitivity and their counts.

    ValueError: other values than 0 and 1, or no labelled item that is right, or none that is wrong.

    >>> verdicts = pd.Series([1, 1, 0, 0, 1, 1, 0, 1, 1, 0])
    >>> labels = pd.Series([1, 1, 0, 0, 1, 0, None, None, None, None])
    >>> float(corrected_rate_from_labels(verdicts, labels)["estimate"].round(2))
    0.4

    Source: as `corrected_rate`.
    """
    verdicts, labels = verdicts.align(labels, join="left")
    for name, column in {"verdicts": verdicts, "labels": labels}.items():
        if not column.dropna().isin([0, 1]).all():
            raise ValueError(f"{name} holds other values than 0 and 1")
    judged = verdicts.dropna().astype(float)
    known = labels[judged.index].dropna().astype(float)
    right = judged[known.index[known == 1]]
    wrong = judged[known.index[known == 0]]
    if right.empty or wrong.empty:
        raise ValueError(
            f"of the labelled items {len(right)} are right and {len(wrong)} wrong: label at least"
            " one of each (better 50), so that both kinds of error can be counted"
        )
    counts: dict[str, Any] = {
        "specificity": 1 - wrong.mean(),
        "sensitivity": right.mean(),
        "n": len(judged),
        "n_specificity": len(wrong),
        "n_sensitivity": len(right),
    }
    table = corrected_rate(judged.mean(), **counts, confidence=confidence)
    table.attrs = {"rate": judged.mean(), **counts, "missing": int(verdicts.isna().sum())}
    return table


# --- How many labels are needed


def labels_needed(
    judge: pd.Series,
    people: pd.DataFrame | pd.Series,
    *,
    rival: pd.Series | None = None,
    above: float | None = None,
    difference: float | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
) -> pd.DataFrame:
    """Plan how many items, and labels by people, show a judge's correlation with people.

    That is, show Pearson's r to be above a value, or above a rival's; planned from a pilot.

    Args:
        judge: the judge's scores of the pilot's items.
        people: their scores by the same index, items by persons (NaN where none), or one series.
        rival: the other judge's scores; with `difference`.
        above: the correlation to be exceeded, in (-1, 1); the pilot's own is taken for the true.
        difference: the true difference in correlation to be found; None takes the pilot's own.
        power, alpha: of the two-sided test (Fisher's z; Steiger's for a rival).

    Returns:
        One row a number of people an item (`raters`, from 1 to twice the pilot's): `correlation`
        (expected with the mean of so many people), `items`, `labels` (items times raters), `low`,
        `high` (of `items`, by the pilot's own error). More people an item make the truth more
        reliable, and correlations with it higher.

    ValueError: neither `above` nor `rival`, fewer than ten items in the pilot, or a correlation
    that is not above the value.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=150)
    >>> people = pd.DataFrame(truth[:, None] + rng.normal(0, 0.6, size=(150, 3)))
    >>> judge = pd.Series(truth + rng.normal(0, 0.7, size=150))
    >>> table = labels_needed(judge, people, above=0.6)
    >>> bool(table.loc[1, "items"] > table.loc[3, "items"])
    True

    Source: Steiger, Psychological Bulletin 87 (1980), 245-251; Spearman-Brown for the reliability.
    """
    if (above is None) == (rival is None):
        raise ValueError("give above=, the correlation to be exceeded, or rival=, another judge")
    table = pd.DataFrame(people)
    columns = {"judge": judge, "human": table.mean(axis=1)}
    if rival is not None:
        columns["rival"] = rival
    pilot = pd.DataFrame(columns).dropna()
    n = len(pilot)
    if n < 10:
        raise ValueError(f"the pilot has {n} items with all scores: use ten or more")
    r = pilot.corr()
    labels = table.loc[pilot.index]
    reliability = _reliability_of_one(labels)
    of_pilot = _spearman_brown(reliability, labels.count(axis=1).mean())
    quantile = stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(power)
    raters = pd.RangeIndex(1, 2 * table.shape[1] + 1, name="raters")
    result = pd.DataFrame(
        index=raters, columns=["correlation", "items", "low", "high"], dtype=float
    )
    for count in raters:
        gain = math.sqrt(_spearman_brown(reliability, count) / of_pilot)
        own = min(r.loc["judge", "human"] * gain, 0.999)
        variance = 1.0
        goal = above or 0.0
        if rival is not None:
            goal = min(r.loc["rival", "human"] * gain, 0.999)
            if difference is not None:
                goal = own - difference * gain
            variance = _variance_of_z_difference(own, goal, r.loc["judge", "rival"])
        result.loc[count, "correlation"] = own
        lead = math.atanh(own) - math.atanh(goal)
        error = math.sqrt(variance / n)  # of the pilot's own lead
        if lead > 0:
            result.loc[count, "items"] = _items(lead, variance, quantile)
        if lead > 0 and difference is None:
            result.loc[count, "low"] = _items(lead + error, variance, quantile)
            result.loc[count, "high"] = _items(lead - error, variance, quantile)
    if result["items"].isna().all():
        raise ValueError("in the pilot the judge is not ahead: no number of items would show it")
    result["labels"] = result["items"] * raters
    result.attrs = {"pilot": n, "reliability": reliability, "power": power, "alpha": alpha}
    return result


def _items(lead: float, variance: float, quantile: float) -> float:
    """How many items show a lead on Fisher's z scale; NaN where there is none."""
    if lead <= 0:
        return math.nan
    return math.ceil(quantile**2 * variance / lead**2 + 3)


def _reliability_of_one(people: pd.DataFrame) -> float:
    """The reliability of one person's score: the share of variance between items (ICC(1))."""
    if people.shape[1] == 1:
        return 1.0  # of one person nothing is known
    counts = people.count(axis=1)
    within = people[counts > 1].var(axis=1, ddof=1).mean()
    between = max(people.mean(axis=1).var(ddof=1) - within / counts.mean(), 1e-6)
    return float(between / (between + within))


def _spearman_brown(reliability: float, raters: float) -> float:
    return raters * reliability / (1 + (raters - 1) * reliability)


def _variance_of_z_difference(own: float, other: float, between: float) -> float:
    """n times the variance of the difference of two judges' correlations on Fisher's z scale.

    `between` is the correlation of the two judges.
    """
    mean = (own + other) / 2  # pooled, as under equality
    psi = between * (1 - 2 * mean**2) - mean**2 * (1 - 2 * mean**2 - between**2) / 2
    return 2 - 2 * psi / (1 - mean**2) ** 2


# --- How many judges a panel really is


def effective_judges(
    errors: pd.DataFrame, *, confidence: float = 0.95, n_resamples: int = 2_000, seed: int = 0
) -> pd.DataFrame:
    """Count the independent judges that a panel whose errors are correlated amounts to.

    Args:
        errors: items by judges: score minus truth, or 1 where a judge is wrong and 0 where right;
            NaN where there is none (the item is left out and counted).
        confidence, n_resamples, seed: of the interval, by resampling items.

    Returns:
        Rows `effective_judges`, `error_correlation` (the mean over pairs of judges) and
        `next_judge` (what one more judge with errors as correlated would add), with `estimate`,
        `low`, `high`; `attrs`: `judges`, `n` (items), `missing`.

    ValueError: fewer than two judges, or a judge whose errors are all the same.

    >>> rng = np.random.default_rng(0)
    >>> shared = rng.normal(size=(500, 1))
    >>> errors = pd.DataFrame(shared + rng.normal(size=(500, 9)))  # correlated by one half
    >>> round(float(effective_judges(errors).loc["effective_judges", "estimate"]), 1)
    1.7

    Source: Kish's effective sample size k / (1 + (k - 1) r), as for judges in arXiv 2605.29800.
    """
    complete = errors.dropna().astype(float)
    n, k = complete.shape
    if k < 2:
        raise ValueError(f"errors has {k} column(s): a panel is two judges or more")
    constant = complete.columns[complete.nunique() < 2]
    if len(constant):
        raise ValueError(
            f"the errors of {', '.join(map(str, constant))} are all the same: their correlation"
            " with others is undefined"
        )
    columns = complete.to_numpy().T

    def statistic(weights: Weights) -> Floats:
        """The mean correlation over pairs of judges."""
        pairs = []
        for x, y in combinations(columns, 2):
            pairs.append(correlations(x, y, weights, statistics=["pearson"]))
        return np.nanmean(pairs, axis=0)

    options: dict[str, Any] = {"confidence": confidence, "n_resamples": n_resamples, "seed": seed}
    design = Design(np.arange(n))
    drawn = tabulate(statistic, ["error_correlation"], design, method="fisher", **options)
    r = drawn[INTERVAL].to_numpy()[0]
    effective = k / (1 + (k - 1) * r)
    added = (k + 1) / (1 + k * r) - effective
    rows = [effective[[0, 2, 1]], r, added[[0, 2, 1]]]  # the more correlated, the fewer
    names = ["effective_judges", "error_correlation", "next_judge"]
    table = pd.DataFrame(rows, names, INTERVAL)
    table.attrs = {"judges": k, "n": n, "missing": len(errors) - n}
    return table


# --- Who is strict?


def severities(
    scores: pd.DataFrame,
    *,
    item: str = "item",
    rater: str = "rater",
    score: str = "score",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate how far each rater, person or judge, scores below the mean on the same items.

    A linear mixed model, score = mean - severity of the rater + quality of the item + error, with
    the items as random effects, so that raters who saw other items are comparable.

    Args:
        scores: one row a score, with the columns `item`, `rater` and `score`.
        confidence: of the intervals.

    Returns:
        One row a rater, the most severe first: `estimate` (score points below the mean of raters),
        `low`, `high`, `n` (scores). `attrs`: `items`, `missing` (rows without a score, left out),
        `item_variance`, `error_variance`.

    ValueError: fewer than two raters, or no item that two raters share.

    >>> rng = np.random.default_rng(0)
    >>> quality = rng.normal(3, 1, size=100)
    >>> rows = [(i, name, quality[i] - strict + rng.normal(0, 0.3))
    ...         for i in range(100) for name, strict in (("kind", -0.5), ("strict", 0.5))]
    >>> table = severities(pd.DataFrame(rows, columns=["item", "rater", "score"]))
    >>> table["estimate"].round(1).to_dict()
    {'strict': 0.5, 'kind': -0.5}

    Source: the rater facet of many-facet measurement (Linacre 1989), as a linear mixed model.
    """
    import statsmodels.formula.api as smf  # slow to import

    known = scores[[item, rater, score]].dropna().set_axis(["item", "rater", "score"], axis=1)
    known["score"] = known["score"].astype(float)
    raters = sorted(known["rater"].unique(), key=str)
    k = len(raters)
    if k < 2:
        raise ValueError(f"{k} rater(s): severities compare two or more")
    if known.groupby("item")["rater"].nunique().max() < 2:
        raise ValueError("no item has scores of two raters: their severities can't be told apart")
    known["code"] = known["rater"].map(dict(zip(raters, range(k), strict=True)))
    model = smf.mixedlm("score ~ 0 + C(code)", known, groups=known["item"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance of 0 is at the bound, which is no fault here
        fit = model.fit(reml=True)
    # Severity is the mean over raters minus the rater's own mean.
    contrast = np.full((k, k), 1 / k) - np.eye(k)
    estimate = contrast @ fit.fe_params.to_numpy()
    covariance = fit.cov_params().to_numpy()[:k, :k]
    error = np.sqrt(np.diag(contrast @ covariance @ contrast.T))
    half = student(confidence) * error
    table = pd.DataFrame({"estimate": estimate, "low": estimate - half, "high": estimate + half})
    table.index = pd.Index(raters, name="rater")
    table["n"] = known["rater"].value_counts()[raters].to_numpy()
    table = table.sort_values("estimate", ascending=False)
    table.attrs = {
        "items": known["item"].nunique(),
        "missing": len(scores) - len(known),
        "item_variance": float(fit.cov_re.iloc[0, 0]),
        "error_variance": float(fit.scale),
    }
    return table
