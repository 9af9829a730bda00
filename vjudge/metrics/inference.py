"""What verdicts allow one to conclude: may a judge replace people, how many judges a panel is, and
who is strict."""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.agreement import label_text
from vjudge.metrics.columns import check_items, check_options, warn
from vjudge.metrics.resampling import Design, Floats, Weights, correlations
from vjudge.metrics.tables import INTERVAL, shares, tabulate

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
        One row a person: `n` (items that the person, the judge and others labelled), `advantage`
        (share of items on which the judge is at least as close to the others), `low`, `high`
        (Wilson's interval of it), `p` (one-sided t test that the person is ahead by epsilon or
        more), `rejected` (after Benjamini-Yekutieli at .05). A person with fewer than 30 items has
        NaN and is not counted. `attrs`: `winning_rate` (share of persons rejected; from .5 on the
        judge may replace people), `advantage_probability` (mean of `advantage`),
        `winning_rate_interval`, `advantage_probability_interval` (Wilson's, over persons and over
        items), `missing` (items without a verdict).

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
    check_items(people=people, judge=judge)
    if measure == "accuracy":
        people = people.map(label_text)
        judge = judge.map(label_text)
    judge = judge.reindex(people.index)
    # 1) on each person's items: who agrees better with the others
    rows = []
    n = []
    p = {}
    for person in people:
        others = people.drop(columns=person)
        shown = people[person].notna() & judge.notna() & others.notna().any(axis=1)
        n.append(shown.sum())
        shown &= shown.sum() >= LEAST_ITEMS
        gap = _closeness(others, judge, measure) - _closeness(others, people[person], measure)
        rows.append((person, shown & (gap >= 0), shown))
        p[person] = _p_below(-np.sign(gap[shown]), epsilon)
    options: dict[str, Any] = {"groups": None, "confidence": confidence}
    table = shares(rows, unit="items", index="person", **options)
    table["n"] = n
    table["p"] = pd.Series(p)
    # 2) of which persons the judge is the better choice
    tested = table["p"].notna()
    if not tested.any():
        warn(f"no person has {LEAST_ITEMS} items: the test is undefined")
    adjusted = stats.false_discovery_control(table.loc[tested, "p"], method="by")
    table["rejected"] = False
    table.loc[tested, "rejected"] = adjusted <= FALSE_DISCOVERIES
    # 3) over persons, who share the items
    over_people = ("all", table["rejected"], tested)
    won = shares([over_people], unit="people", **options).iloc[0]
    counted = [row for row in rows if tested[row[0]]] or rows
    _, ahead, shown = zip(*counted, strict=True)
    over_items = ("all", np.stack(ahead), np.stack(shown))
    advantage = shares([over_items], unit="items", **options).iloc[0]
    table.attrs = {
        "winning_rate": float(won["estimate"]),
        "winning_rate_interval": (won["low"], won["high"]),
        "advantage_probability": float(advantage["estimate"]),
        "advantage_probability_interval": (advantage["low"], advantage["high"]),
        "missing": int(judge.isna().sum()),
    }
    table = table.rename(columns={"estimate": "advantage"})
    return table[["n", "advantage", "low", "high", "p", "rejected"]]


def _closeness(
    others: pd.DataFrame,
    labels: pd.Series,
    measure: str,
) -> pd.Series:
    """How near labels are to those of the other people, the higher the nearer."""
    if measure == "accuracy":
        alike = others.eq(labels, axis=0)
        return alike.sum(axis=1) / others.notna().sum(axis=1)
    distance = others.astype(float).sub(labels.astype(float), axis=0)
    return -np.sqrt((distance**2).mean(axis=1))


def _p_below(lead: pd.Series, epsilon: float) -> float:
    """The p-value against a mean lead of epsilon or more."""
    if lead.empty:
        return np.nan
    if lead.nunique() == 1:  # a t test of a constant is undefined, and the answer is plain
        return 0.0 if lead.iloc[0] < epsilon else 1.0
    return float(stats.ttest_1samp(lead, epsilon, alternative="less").pvalue)


# --- How many judges a panel really is


def effective_judges(
    errors: pd.DataFrame,
    *,
    n_resamples: int = 2_000,
    **options: Any,
) -> pd.DataFrame:
    """Count the independent judges that a panel whose errors are correlated amounts to.

    Args:
        errors: items by judges: score minus truth, or 1 where a judge is wrong and 0 where right;
            NaN where there is none (the item is left out and counted).
        n_resamples, options: confidence and seed of the interval, by resampling items.

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

    table = tabulate(
        statistic,
        ["error_correlation"],
        Design(np.arange(n)),
        method="fisher",
        n_resamples=n_resamples,
        **options,
    )[INTERVAL]
    r = table.loc["error_correlation"].rename(dict(low="high", high="low"))  # the more, the fewer
    r = r.clip(lower=0)  # judges whose errors cancel are no more judges than there are
    table.loc["effective_judges"] = k / (1 + (k - 1) * r)
    table.loc["next_judge"] = (k + 1) / (1 + k * r) - table.loc["effective_judges"]
    table.attrs = {"judges": k, "n": n, "missing": len(errors) - n}
    return table


# --- Who is strict?


def severities(scores: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Estimate how far each rater, person or judge, scores below the mean on the same items.

    A linear mixed model, score = mean - severity of the rater + quality of the item + error, with
    the items as random effects, so that raters who saw other items are comparable.

    Args:
        scores: one row a score, with the columns `item`, `rater` and `score`.
        confidence: of the intervals.

    Returns:
        One row a rater, the most severe first: `estimate` (score points below the mean of raters),
        `low`, `high`, `n` (scores). `attrs`: `items`, `missing` (rows without a score, left out).

    ValueError: a column is absent, fewer than two raters, or no item that two raters share.

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

    check_options(confidence=confidence)
    columns = ["item", "rater", "score"]
    if not set(columns) <= set(scores):
        raise ValueError(
            f"severities needs the columns {', '.join(columns)}, a row a score, and there are"
            f" {list(scores)}: of a column a rater make rows with DataFrame.melt"
        )
    known = scores[columns].dropna().astype({"score": float})
    counts = known["rater"].value_counts(sort=False)
    k = len(counts)
    if k < 2:
        raise ValueError(f"{k} rater(s): severities compare two or more")
    if known.groupby("item")["rater"].nunique().max() < 2:
        raise ValueError("no item has scores of two raters: their severities can't be told apart")
    known["code"] = pd.Categorical(known["rater"], counts.index).codes
    model = smf.mixedlm("score ~ 0 + C(code)", known, groups=known["item"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance of 0 is at the bound, which is no fault here
        fit = model.fit(reml=True)
    # Severity is the mean over raters minus the rater's own mean.
    contrast = np.full((k, k), 1 / k) - np.eye(k)
    test = fit.t_test(contrast)
    bounds = test.conf_int(alpha=1 - confidence)
    table = pd.DataFrame(
        np.column_stack([test.effect, bounds]),
        counts.index,
        INTERVAL,
    )
    table["n"] = counts
    table = table.sort_values("estimate", ascending=False)
    table.attrs = {
        "items": known["item"].nunique(),
        "missing": len(scores) - len(known),
    }
    return table
