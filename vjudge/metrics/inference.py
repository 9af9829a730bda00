"""What verdicts allow one to conclude: may a judge replace people, how many judges a panel is, and
who is strict."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like
from scipy import sparse, special, stats
from scipy.sparse.csgraph import connected_components

from vjudge.metrics.agreement import label_text, mean_of_defined, ratings_frame
from vjudge.metrics.columns import (
    Groups,
    Ratings,
    check_columns,
    check_items,
    check_options,
    design_of,
    factors,
    group_codes,
    warn,
)
from vjudge.metrics.resampling import (
    Floats,
    Integers,
    Weights,
    codes,
    correlations,
    effective_number,
    summing,
)
from vjudge.metrics.strata import grouped_by_id, of_balanced_groups
from vjudge.metrics.tables import INTERVAL, add_caveats, shares, tabulate
from vjudge.records import from_csv

LEAST_PEOPLE = 3
LEAST_ITEMS = 30  # of a person
EXACT_BELOW = 10  # items of a kind, below which the t test gives way to an exact one
SINGULAR = 1e-9  # of an eigenvalue beside the largest
NUISANCE = 60  # values of the nuisance share
EXACT = 300  # items, beyond which the score test is as good and the exact one slow
FALSE_DISCOVERIES = 0.05


# --- May the judge replace people?


def people_table(people: Ratings) -> pd.DataFrame:
    """People's labels as a frame, items by persons, from a frame, a Series of lists or an array.

    >>> people_table(pd.Series([[4.0, None], [5.0]])).to_numpy().tolist()
    [[4.0, nan], [5.0, nan]]
    """
    if isinstance(people, pd.Series) and people.map(from_csv).map(is_list_like).any():
        frame = ratings_frame(people)
        return frame.where(frame.notna()).infer_objects().set_axis(people.index)
    return pd.DataFrame(people)


def matched(people: pd.DataFrame, **columns: pd.Series) -> list[pd.Series]:
    """Columns as people's items are ordered, by position where indexes are equal, else by label."""
    rows = []
    for name, column in columns.items():
        if isinstance(column, pd.Series) and not column.index.equals(people.index):
            check_items(people=people, **{name: column})
            column = column.reindex(people.index)
        check_columns(people=people, **{name: column})
        rows.append(pd.Series(column).set_axis(people.index))
    return rows


def alt_test(
    people: pd.DataFrame | pd.Series,
    judge: pd.Series,
    *,
    epsilon: float = 0.2,
    measure: Literal["accuracy", "rmse"] = "accuracy",
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Test whether a judge may replace a person who labels: the alternative annotator test.

    Each person is left out in turn. On that person's items it is compared whether the judge or the
    person agrees better with the other people.

    Epsilon is what a judge may be worse and still be the better choice, since it costs less: the
    share of items that a person may be ahead by. The authors use 0.2 where the people are experts,
    0.15 where they are trained, 0.1 where they are a crowd.

    Args:
        people: labels, items by persons, NaN where a person gave none; or a Series of lists, as
            `human_scores` of a collection.
        judge: the judge's label of each item, by the same index, NaN where there is none.
        epsilon: in [0, 1).
        measure: "accuracy" for categories (share of the other people who said the same), "rmse" for
            scores (negative root mean squared distance to them).
        groups: the unit of sampling of each item, such as its image; None: each item is its own.
        confidence: of the intervals.

    Returns:
        One row a person: `n` (items that the person, the judge and others labelled), `advantage`
        (share of items on which the judge is at least as close to the others), `low`, `high`
        (Wilson's interval of it), `p` (one-sided, that the person is ahead by epsilon or more: a t
        test as published; where fewer than 10 items favour the judge, or the person, an exact
        test), `rejected` (after Benjamini-Yekutieli at .05). A person with fewer than 30 items has
        NaN and is not counted. In each row alike: `winning_rate` (share of persons rejected; from
        .5 on the judge may replace people) and `advantage_probability` (mean of `advantage`), each
        with `_low` and `_high` (Wilson's, over persons and over items), and `missing` (items
        without a verdict).

    ValueError: an unknown measure, an epsilon outside [0, 1), fewer than three people.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(1, 6, size=200)
    >>> people = pd.DataFrame(truth[:, None] + rng.integers(-1, 2, size=(200, 4)))
    >>> alt_test(people, pd.Series(truth), measure="rmse")["winning_rate"].tolist()
    [1.0, 1.0, 1.0, 1.0]

    Source: Calderon, Reichart and Dror, arXiv 2501.10970, section 3.
    """
    if measure not in ("accuracy", "rmse"):
        raise ValueError(f'measure={measure!r}: use "accuracy" for categories, "rmse" for scores')
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon={epsilon!r}: use a share of items, from 0 to below 1")
    people = people_table(people)
    if people.shape[1] < LEAST_PEOPLE:
        raise ValueError(
            f"people has {people.shape[1]} columns: the test takes three people or more"
        )
    groups, caveats = grouped_by_id(people, groups)
    check_columns(people=people, groups=groups)
    (judge,) = matched(people, judge=judge)
    people = people.reset_index(drop=True)
    judge = judge.reset_index(drop=True)
    if measure == "accuracy":
        people = people.map(label_text)
        judge = judge.map(label_text)
    every = np.ones(len(people), dtype=bool)
    unit = group_codes(groups, every)
    # 1) on each person's items: who agrees better with the others
    rows = []
    n = []
    p = {}
    for person in people:
        remaining = people.drop(columns=person)
        shared = people[person].notna() & judge.notna() & remaining.notna().any(axis=1)
        n.append(shared.sum())
        shared &= shared.sum() >= LEAST_ITEMS
        gap = _closeness(remaining, judge, measure) - _closeness(remaining, people[person], measure)
        rows.append((person, shared & (gap >= 0), shared))
        lead = -np.sign(gap[shared].to_numpy())
        p[person] = p_below(lead, codes(unit[shared.to_numpy()]), epsilon)
    options: dict[str, Any] = {"groups": groups, "confidence": confidence}
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
    add_caveats(table, [*caveats, *of_balanced_groups(groups, every)])
    table = table.rename(columns={"estimate": "advantage"})
    table = table[["n", "advantage", "low", "high", "p", "rejected"]]
    # 3) over persons, who share the items
    over_people = ("winning_rate", table["rejected"], tested)
    won = shares([over_people], groups=None, unit="people", confidence=confidence)
    counted = [row for row in rows if tested[row[0]]] or rows
    _, ahead, shared_items = zip(*counted, strict=True)
    over_items = ("advantage_probability", np.stack(ahead), np.stack(shared_items))
    advantage = shares([over_items], unit="items", **options)
    for name, row in pd.concat([won, advantage])[INTERVAL].iterrows():
        table[name], table[f"{name}_low"], table[f"{name}_high"] = row
    return table.assign(missing=int(judge.isna().sum()))


def _closeness(
    people: pd.DataFrame,
    labels: pd.Series,
    measure: str,
) -> pd.Series:
    """How near labels are to those of the other people, the higher the nearer."""
    if measure == "accuracy":
        equal = people.eq(labels, axis=0)
        return equal.sum(axis=1) / people.notna().sum(axis=1)
    distance = people.astype(float).sub(labels.astype(float), axis=0)
    return -np.sqrt((distance**2).mean(axis=1))


def p_below(lead: Floats, unit: Integers, epsilon: float) -> float:
    """The p-value against a mean lead of epsilon or more.

    Args:
        lead: of n items 1 where the person is ahead, -1 where the judge is, else 0.
        unit: the group of each item, 0..G-1.

    Where one of them is ahead on a few items only, the mean is far from normal: with people right
    in .98 to .99 of 30 items a t test rejects in 12 to 16 % at 5 %. The exact test is taken there;
    of items in groups each group counts as one, with its share of the items.
    """
    n = len(lead)
    if not n:
        return math.nan
    size = np.bincount(unit)
    ahead = np.count_nonzero(lead > 0)
    behind = np.count_nonzero(lead < 0)
    if min(ahead, behind) < EXACT_BELOW:
        share = len(size) / n  # 1 without groups
        return noninferiority(
            math.ceil(ahead * share), math.floor(behind * share), len(size), epsilon
        )
    # Student's t of a mean over items, with the sums over groups as independent
    surplus = np.bincount(unit, lead - lead.mean())
    error = math.sqrt(surplus @ surplus * len(size) / (len(size) - 1)) / n
    freedom = effective_number(size) - 1
    return float(stats.t.cdf((lead.mean() - epsilon) / error, freedom))


def noninferiority(ahead: int, behind: int, n: int, epsilon: float) -> float:
    """The exact p-value against a difference of epsilon or more between paired shares.

    Of n items, a share p + epsilon is ahead, p behind, the rest tied. All outcomes that speak as
    much against this by Tango's score are added up, for the p that makes them likeliest. Thirty
    ties at an epsilon of .01 are .99^30 = .74 likely where p is 0. Beyond 300 items the normal
    distribution of the score takes its place.

    Source: Tango, Statistics in Medicine 17 (1998), 891-908; Sidik, Journal of Statistical Planning
    and Inference 113 (2003), 209-224, for the unconditional test.

    >>> round(noninferiority(0, 0, 30, 0.01), 2)
    0.74
    """
    score = _tango(np.array(ahead), np.array(behind), n, epsilon)
    if n > EXACT:
        return float(stats.norm.cdf(score))
    # 1) all outcomes (ahead, behind) at least as extreme
    a, b = np.indices((n + 1, n + 1)).reshape(2, -1)
    possible = a + b <= n
    a, b = a[possible], b[possible]
    extreme = _tango(a, b, n, epsilon) <= score + 1e-9
    a, b = a[extreme], b[extreme]
    # 2) their probability under each p; shape (p, outcomes)
    orders = special.gammaln([n + 1]) - special.gammaln([a + 1, b + 1, n - a - b + 1]).sum(axis=0)
    p = np.linspace(0, (1 - epsilon) / 2, NUISANCE)[:, None]
    logs = special.xlogy(a, p + epsilon) + special.xlogy(b, p)
    logs += special.xlogy(n - a - b, np.maximum(1 - epsilon - 2 * p, 0))
    return float(min(np.exp(orders + logs).sum(axis=1).max(), 1.0))


def _tango(ahead: Integers, behind: Integers, n: int, epsilon: float) -> Floats:
    """Tango's score: the difference less epsilon over its error where it is epsilon.

    The share behind is then q, the root of 2n q^2 + (2n epsilon - a - b - (a - b) epsilon) q
    - b epsilon (1 - epsilon) = 0.
    """
    linear = (2 * n - ahead + behind) * epsilon - ahead - behind
    constant = behind * epsilon * (1 - epsilon)
    q = (np.sqrt(linear**2 + 8 * n * constant) - linear) / (4 * n)
    variance = n * (2 * q + epsilon - epsilon**2)
    return (ahead - behind - n * epsilon) / np.sqrt(np.maximum(variance, 1e-300))


# --- How many judges a panel really is


def effective_judges(
    errors: pd.DataFrame,
    *,
    groups: Groups = None,
    n_resamples: int = 2_000,
    **options: Any,
) -> pd.DataFrame:
    """Count the independent judges that a panel whose errors are correlated amounts to.

    Args:
        errors: items by judges: score minus truth, or 1 where a judge is wrong and 0 where right;
            NaN where there is none (the item is left out and counted).
        groups: the unit of resampling of each item, see `correlate`.
        n_resamples, options: confidence and seed of the interval, by resampling units.

    Returns:
        Rows `effective_judges`, `error_correlation` (the mean over pairs of judges) and
        `next_judge` (what one more judge with errors as correlated would add), with `estimate`,
        `low`, `high`, `n` (items) and `missing`.

    ValueError: fewer than two judges, or a judge whose errors are all the same.

    >>> rng = np.random.default_rng(0)
    >>> shared = rng.normal(size=(500, 1))
    >>> errors = pd.DataFrame(shared + rng.normal(size=(500, 9)))  # correlated by one half
    >>> round(float(effective_judges(errors).loc["effective_judges", "estimate"]), 1)
    1.7

    Source: Kish's effective sample size k / (1 + (k - 1) r), as for judges in arXiv 2605.29800.
    """
    groups, caveats = grouped_by_id(errors, groups)
    check_columns(errors=errors, groups=groups)
    used = errors.notna().all(axis=1).to_numpy()
    complete = errors[used].astype(float)
    n, k = complete.shape
    if k < 2:
        raise ValueError(f"errors has {k} column(s): a panel is two judges or more")
    constant = complete.columns[complete.nunique() < 2]
    if len(constant):
        raise ValueError(
            f"the errors of {', '.join(map(str, constant))} are all the same: their correlation"
            " with others is undefined"
        )
    pairs = list(combinations(complete.to_numpy().T, 2))

    def mean_correlation(weights: Weights) -> Floats:
        """The mean correlation over pairs of judges."""
        r = [correlations(x, y, weights, statistics=["pearson"]) for x, y in pairs]
        return mean_of_defined(r)

    table = tabulate(
        mean_correlation,
        ["error_correlation"],
        design_of(np.arange(n), groups, used),
        method="fisher",
        n_resamples=n_resamples,
        **options,
    )
    add_caveats(table, [*caveats, *of_balanced_groups(groups, used)])
    r = table.loc["error_correlation", INTERVAL]
    # The more correlated, the fewer; judges whose errors cancel are no more than there are
    turned = r.rename(dict(low="high", high="low")).clip(lower=0)
    worth = k / (1 + (k - 1) * turned)
    rows = {
        "error_correlation": r,
        "effective_judges": worth,
        "next_judge": (k + 1) / (1 + k * turned) - worth,
    }
    result = pd.DataFrame(rows).T[INTERVAL].assign(n=n, missing=len(errors) - n)
    result.attrs = table.attrs
    return result


# --- Who is strict?


def severities(
    scores: pd.DataFrame,
    *,
    groups: Groups = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate how far each rater, person or judge, scores below the mean on the same items.

    score = quality of the item - severity of the rater + error, by least squares with an effect of
    every item, so that raters who were given better or worse items are comparable: only how raters
    differ on items that they share counts.

    Args:
        scores: one row a score, with the columns `item`, `rater` and `score`.
        groups: the unit of resampling of each row, such as the image; None: the item.
        confidence: of the intervals.

    Returns:
        One row a rater, the most severe first: `estimate` (score points below the mean of the
        raters of its part), `low`, `high`, `n` (scores), `part` (raters of different parts share no
        item, even by way of others, and can't be compared), `items` (of that part), `missing` (rows
        without a score, left out). Intervals are of a jackknife over items or groups.

    ValueError: a column is absent, fewer than two raters, or no item that two raters share.

    >>> rng = np.random.default_rng(0)
    >>> quality = rng.normal(3, 1, size=100)
    >>> rows = [(i, name, quality[i] - strict + rng.normal(0, 0.3))
    ...         for i in range(100) for name, strict in (("kind", -0.5), ("strict", 0.5))]
    >>> table = severities(pd.DataFrame(rows, columns=["item", "rater", "score"]))
    >>> table["estimate"].round(1).to_dict()
    {'strict': 0.5, 'kind': -0.5}

    Source: the rater facet of many-facet measurement (Linacre 1989), as the two-way model without
    interaction of incomplete blocks, Searle, Linear Models (1971), chapter 7.
    """
    check_options(confidence=confidence)
    columns = ["item", "rater", "score"]
    if not set(columns) <= set(scores):
        raise ValueError(
            f"severities needs the columns {', '.join(columns)}, a row a score, and there are"
            f" {list(scores)}: of a column a rater make rows with DataFrame.melt"
        )
    # 1) rows with a score, and the parts of raters that shared items connect
    check_columns(scores=scores, groups=groups)
    used = scores[columns].notna().all(axis=1).to_numpy()
    rated = scores.loc[used, columns].astype({"score": float}).reset_index(drop=True)
    rater, names = pd.factorize(rated["rater"])
    item = pd.factorize(rated["item"])[0]
    if len(names) < 2:
        raise ValueError(f"{len(names)} rater(s): severities compare two or more")
    counts = summing(rater, item, (len(names), item.max() + 1))  # (raters, items)
    if counts.astype(bool).sum(axis=0).max() < 2:
        raise ValueError("no item has scores of two raters: their severities can't be told apart")
    n_parts, component = connected_components(counts @ counts.T, directed=False)
    # 2) each part on its own
    tables = []
    for number in range(n_parts):
        rows = component[rater] == number
        mask = used.copy()
        mask[used] = rows
        tables.append(_severities(rated[rows], groups, mask, confidence).assign(part=number))
    result = pd.concat(tables).sort_values("estimate", ascending=False, kind="stable")
    result["missing"] = int((~used).sum())
    result.attrs = {"method": f"{confidence:.0%} jackknife intervals (Student's)", "caveats": []}
    if n_parts > 1:
        text = (
            f"raters fall into {n_parts} parts that share no items: severities are below the"
            " mean of each part, and can't be compared between parts"
        )
        add_caveats(result, [text])
    return result[[*INTERVAL, "n", "part", "items", "missing"]]


def _severities(
    rated: pd.DataFrame,
    groups: Groups,
    used: np.ndarray,
    confidence: float,
) -> pd.DataFrame:
    """Severities of raters whom shared items connect; a row of `rated` for each used row."""
    # 1) what an item adds to the normal equations: of N_r scores by rater r of its M scores,
    #    diag(N) - N N' / M on the left; on the right, r's scores less the item's mean
    rater, names = pd.factorize(rated["rater"])
    item, items = pd.factorize(rated["item"])
    shape = (len(names), len(items))
    counts = summing(rater, item, shape)  # N, (raters, items)
    total = np.bincount(item)
    mean = np.bincount(item, rated["score"]) / total
    deviation = rated["score"].to_numpy() - mean[item]
    surplus = sparse.csr_array((deviation, (rater, item)), shape=shape)

    def below_mean(weights: Weights) -> Floats:
        """Severities with each item so often, (raters, replicates); NaN where raters fall apart."""
        right = surplus @ weights
        effects = np.full(right.shape, np.nan)
        for replicate, weight in enumerate(np.asarray(weights, dtype=float).T):
            left = -(counts.multiply(weight / total) @ counts.T).toarray()
            left[np.diag_indices_from(left)] += counts @ weight
            # The mean of raters is free, and 0 as the shortest solution has it.
            effect, _, rank, _ = np.linalg.lstsq(left, right[:, replicate], rcond=SINGULAR)
            if rank == len(names) - 1 > 0:
                effects[:, replicate] = -effect
        return effects

    # 2) the jackknife over items, or over groups of items
    cell = np.arange(len(items))
    unit = None if groups is None else _of_items(groups, used, item)
    table = tabulate(
        below_mean,
        names,
        design_of(cell, unit, np.ones(len(items), dtype=bool)),
        by="jackknife",
        index="rater",
        why="of one rater alone",
        confidence=confidence,
    )
    table["n"] = np.bincount(rater)
    return table.assign(items=len(items))


def _of_items(groups: Groups, used: np.ndarray, item: Integers) -> pd.DataFrame:
    """The groups of items, from those of their rows. ValueError: an item is in two groups."""
    codes = pd.DataFrame([group_codes(column, used) for column in factors(groups)]).T
    by_item = codes.groupby(item)
    if (by_item.nunique() > 1).any(axis=None):
        raise ValueError("an item has scores in two groups: groups are of items here")
    return by_item.first()
