"""Whether a judge may replace the people who label: the alternative annotator test."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from vjudge.metrics.array_types import Groups
from vjudge.metrics.caveats import add_caveats, warn
from vjudge.metrics.cells import dense_ranks
from vjudge.metrics.columns import check_columns
from vjudge.metrics.groups import balanced_group_caveats, group_codes, groups_from_ids
from vjudge.metrics.intervals import INTERVAL
from vjudge.metrics.noninferiority import p_below
from vjudge.metrics.ratings import aligned_to, label_text, rater_table
from vjudge.metrics.shares import shares

MIN_PEOPLE = 3
MIN_ITEMS = 30  # of a person
FALSE_DISCOVERIES = 0.05


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
    people = rater_table(people)
    if people.shape[1] < MIN_PEOPLE:
        raise ValueError(
            f"people has {people.shape[1]} columns: the test takes three people or more"
        )
    groups, caveats = groups_from_ids(people, groups)
    check_columns(people=people, groups=groups)
    (judge,) = aligned_to(people, judge=judge)
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
        shared &= shared.sum() >= MIN_ITEMS
        gap = _closeness(remaining, judge, measure) - _closeness(remaining, people[person], measure)
        rows.append((person, shared & (gap >= 0), shared))
        lead = -np.sign(gap[shared].to_numpy())
        p[person] = p_below(lead, dense_ranks(unit[shared.to_numpy()]), epsilon)
    options: dict[str, Any] = {"groups": groups, "confidence": confidence}
    table = shares(rows, unit="items", index="person", **options)
    table["n"] = n
    table["p"] = pd.Series(p)
    # 2) of which persons the judge is the better choice
    tested = table["p"].notna()
    if not tested.any():
        warn(f"no person has {MIN_ITEMS} items: the test is undefined")
    adjusted = stats.false_discovery_control(table.loc[tested, "p"], method="by")
    table["rejected"] = False
    table.loc[tested, "rejected"] = adjusted <= FALSE_DISCOVERIES
    add_caveats(table, [*caveats, *balanced_group_caveats(groups, every)])
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
